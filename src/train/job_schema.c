/* job_schema.c - every key of a job file: the one place to add one.
 *
 * A row and a field of tti_job_config (job.h) make a key: parser, overrides, messages, `tutti
 * config`, the JSON schema and docs/job.md follow from the row.  What concerns two keys at once is
 * in job_conflicts.c. */
#include "exec/exec.h"
#include "train/job.h"

/* The first four members of a row; `name` is the key and, in tti_job_config, the field. */
#define KEY(name, kind, value) #name, TTI_OPTION_##kind, offsetof(tti_job_config, name), value
#define RANGE(low, high) .min = (low), .max = (high)
#define AT_LEAST(low) .min = (low), .max = TTI_NO_LIMIT

/* Integers up to here are exact in a double, and so in JSON. */
#define EXACT_INT 9007199254740991.0

static const tti_option_group groups[] = {
    {"model", "What is trained"},
    {"data", "Where samples come from and how they are prepared"},
    {"train", "How long, on what loss, in batches of what size"},
    {"optimizer", "How parameters follow gradients"},
    {"schedule", "How the learning rate changes"},
    {"parallel", "How the work is spread; in exact mode only `shards` can change the result"},
    {"run", "Where results go and how often"},
};

static const tti_option rows[] = {
    /* model */
    {KEY(model.name, CHOICE, "lenet"),
     .choices = "bert|gpt2|lenet|lstm|mlp|resnet101|resnet18|resnet34|resnet50|vgg11|vgg13|vgg16",
     .also = "arch|architecture|net|network|type",
     .meant = "gpt=gpt2|nanogpt=gpt2|transformer=gpt2|decoder=gpt2|encoder=bert|cnn=lenet|convnet="
              "lenet|rnn=lstm|perceptron=mlp|linear=mlp|fc=mlp|resnet=resnet18|vgg=vgg16",
     .help = "The network; see `tutti models`"},
    {KEY(model.plugin, TEXT, "\"\""), .also = "library|shared_object|so|path|file",
     .help = "A shared object that exports tutti_build_model, instead of model.name; see "
             "examples/plugin",
     .example = "./my_model.so"},
    {KEY(model.hidden, INT_LIST, "[512, 512]"), RANGE(1, 1 << 20),
     .also = "widths|hidden_size|hidden_sizes|hidden_dims",
     .help = "mlp: widths of the hidden layers; [] for none", .example = "[256, 128]"},
    {KEY(model.dropout, FLOAT, "0"), RANGE(0, 0.99), .also = "drop|p_drop|drop_rate",
     .help = "Probability of dropping an element, where the model has dropout", .example = "0.1"},
    {KEY(model.drop_path, FLOAT, "0"), RANGE(0, 0.99),
     .also = "stochastic_depth|drop_connect|drop_path_rate",
     .help = "Probability of leaving a residual branch out, where the model has some; rises with "
             "depth up to this",
     .example = "0.1"},
    {KEY(model.stem, CHOICE, "imagenet"), .choices = "imagenet|cifar",
     .also = "small_images|first_layer|input",
     .help =
         "resnet, vgg: for pictures of 224x224; or for those of about 32x32, with a first layer "
         "3x3 that keeps their size (resnet), with narrower linear layers (vgg)"},
    {KEY(model.batch_norm, BOOL, "false"), .also = "bn|batchnorm",
     .help = "vgg: after every convolution"},
    {KEY(model.zero_init_residual, BOOL, "false"), .also = "zero_init|zero_gamma",
     .help = "resnet: residual branches start as zero"},
    {KEY(model.size, CHOICE, "auto"),
     .choices = "auto|124M|355M|774M|1558M|tiny|mini|small|medium|base|large",
     .also = "preset|variant|scale",
     .help = "Layers, heads and width by name, gpt2: 124M, 355M, 774M, 1558M; bert: tiny, mini, "
             "small, medium, base, large; lstm: small, medium, large; auto: 124M, base, small"},
    {KEY(model.layers, INT, "0"), RANGE(0, 1000),
     .also = "n_layer|n_layers|num_layers|num_hidden_layers|depth|blocks",
     .help = "gpt2, bert, lstm: how many; 0: as model.size says", .example = "6"},
    {KEY(model.heads, INT, "0"), RANGE(0, 1024),
     .also = "n_head|n_heads|num_heads|num_attention_heads",
     .help = "gpt2, bert: of attention; 0: as model.size says", .example = "6"},
    {KEY(model.width, INT, "0"), RANGE(0, 1 << 20),
     .also = "n_embd|d_model|embed_dim|embedding_size|dim|channels",
     .help = "gpt2, bert, lstm: features of a position; 0: as model.size says", .example = "384"},
    {KEY(model.context, INT, "0"), RANGE(0, 1 << 20),
     .also = "block_size|n_ctx|n_positions|max_position_embeddings|seq_len",
     .help =
         "gpt2, bert: positions that the model has, at least the tokens of a sample; 0: as many",
     .example = "1024"},
    {KEY(model.vocabulary, INT, "0"), RANGE(0, 1 << 24),
     .also = "vocab_size|vocab|n_vocab|n_tokens",
     .help = "gpt2, bert, lstm: different tokens that the model knows; 0: as many as the data has; "
             "more than those with model.head=classify alone",
     .example = "50257"},
    {KEY(model.head, CHOICE, "tokens"), .choices = "tokens|classify", .also = "task|objective",
     .help = "bert: guesses tokens, or classifies the sample"},
    {KEY(model.padding, INT, "-1"), RANGE(-1, 1 << 24), .also = "pad_token|pad_token_id|pad_id",
     .help = "bert: token that fills up the end of samples and is not looked at; -1: none",
     .example = "0"},
    {KEY(model.activation, CHOICE, "auto"), .choices = "auto|gelu|gelu_tanh|relu|silu|tanh|sigmoid",
     .also = "activation_function|hidden_act|act|nonlinearity",
     .help = "gpt2, bert: of the hidden features of each block; auto: gelu_tanh for gpt2, gelu for "
             "bert, or as the config.json of model.init says"},
    {KEY(model.norm_eps, FLOAT, "0"), RANGE(0, 1),
     .also = "layer_norm_epsilon|layer_norm_eps|epsilon|eps",
     .help = "gpt2, bert: added to the variance in layer norms; 0: 1e-5 for gpt2, 1e-12 for bert",
     .example = "1e-6"},
    {KEY(model.mlp_width, INT, "0"), RANGE(0, 1 << 22),
     .also = "n_inner|intermediate_size|ffn_dim|d_ff",
     .help = "gpt2, bert: hidden features of each block's MLP; 0: 4 x model.width",
     .example = "1536"},
    {KEY(model.attention_scaled, CHOICE, "auto"), .choices = "auto|yes|no",
     .also = "scale_attn_weights|scale_attention",
     .help = "gpt2: divides attention scores by sqrt(width of a head); auto: yes"},
    {KEY(model.attention_by_layer, CHOICE, "auto"), .choices = "auto|yes|no",
     .also = "scale_attn_by_inverse_layer_idx",
     .help = "gpt2: divides the attention scores of layer i = 0, 1, ... by i + 1, too; auto: no"},
    {KEY(model.tied, CHOICE, "auto"), .choices = "auto|yes|no",
     .also = "tie_word_embeddings|tie_weights|weight_tying",
     .help = "gpt2, bert: the output layer shares the token table; auto: yes, or as the files of "
             "model.init are"},
    {KEY(model.segments, INT, "0"), RANGE(0, 1 << 20), .also = "type_vocab_size",
     .help = "bert: rows of the segment table, of which the first is used; 0: 2"},
    {KEY(model.init, TEXT, "\"\""), .also = "pretrained|weights|init_from|from|checkpoint",
     .help = "Weights to begin with: a .safetensors file, or a folder with model.safetensors as of "
             "Hugging Face or `tutti export`",
     .example = "./gpt2"},
    {KEY(model.init_except, TEXT_LIST, "[]"), AT_LEAST(1),
     .also = "skip|init_skip|new_layers|exclude",
     .help = "Patterns of parameters that model.init does not give: a new head",
     .example = "[\"fc.*\"]"},

    /* data */
    {KEY(data.format, CHOICE, "digits"),
     .choices = "digits|idx|text|tokens|npy|csv|images|cifar10|cifar100|tar|packed|"
                "random_images|random_tokens",
     .also = "type|dataset|kind|name",
     .meant = "mnist=idx|fashion_mnist=idx|imagefolder=images|image_folder=images|imagenet=images|"
              "folder=images|webdataset=tar|wds=tar|numpy=npy|npz=npy|tsv=csv|table=csv|tabular="
              "csv|txt=text|bin=tokens|cifar=cifar10",
     .help = "digits: drawn by the program itself; idx: MNIST's files, plain or .gz"},
    {KEY(data.dir, TEXT, "\"\""),
     .also = "path|root|folder|data_dir|data_path|data_dir|dataset_dir|root|train_file|train_data|"
             "train_dir",
     .help = "the files of data.format, in the current directory or from it: a folder; text, "
             "tokens, npy, csv, tar: also a file or a pattern (docs/data.md)",
     .example = "data/mnist"},
    {KEY(data.n_train, INT, "0"), RANGE(0, 1e9), .also = "train_size|n_samples|samples",
     .help = "Training samples to use; 0: idx all, digits 20000", .example = "10000"},
    {KEY(data.n_test, INT, "0"), RANGE(0, 1e9), .also = "test_size|n_val|val_size",
     .help = "Test samples to use; 0: idx all, digits 4000", .example = "2000"},
    {KEY(data.mean, FLOAT, "0.1307"), RANGE(-1000, 1000), .help = "Subtracted from pixel/255"},
    {KEY(data.std, FLOAT, "0.3081"), RANGE(1e-6, 1000), .also = "stddev",
     .help = "Divides what is left"},
    {KEY(data.context, INT, "256"), RANGE(1, 1 << 20),
     .also =
         "block_size|seq_len|sequence_length|max_length|n_ctx|t|window|max_seq_length|max_seq_len",
     .help = "text, tokens: tokens of a sample; the target of each is the one that follows, unless "
             "data.mask_prob is given",
     .example = "1024"},
    {KEY(data.stride, INT, "0"), RANGE(0, 1 << 20), .also = "step|overlap",
     .help = "text, tokens: tokens from one sample to the next; 0: data.context, no overlap",
     .example = "128"},
    {KEY(data.tokenizer, CHOICE, "auto"), .choices = "auto|bytes|chars|gpt2",
     .also = "tokeniser|encoding|vocab",
     .help = "text: what its tokens are; auto: the one in data.tokenizer_dir, without it chars"},
    {KEY(data.tokenizer_dir, TEXT, "\"\""),
     .also = "tokenizer_path|tokenizer_file|vocab_file|merges",
     .help = "text, tokens: a tokenizer.json, or a folder with one or with vocab.json and "
             "merges.txt; \"\": tokens looks in data.dir",
     .example = "gpt2"},
    {KEY(data.vocabulary, INT, "0"), RANGE(0, 1 << 24), .also = "vocab_size|n_vocab|n_tokens",
     .help = "text, tokens, random_tokens: how many different ones the model knows; 0: as many as "
             "the tokenizer has, without one the largest token + 1",
     .example = "50304"},
    {KEY(data.label, TEXT, "\"\""), .also = "label_column|y",
     .help = "csv: name or number (from 0) of the column of labels; \"\": label, class, target "
             "or y, or else the last",
     .example = "species"},
    {KEY(data.classes, INT, "0"), RANGE(0, 1 << 24),
     .also = "n_classes|num_classes|num_labels|n_labels",
     .help = "Number of classes; labels must be below it; 0: the largest label of the training "
             "samples + 1",
     .example = "10"},
    {KEY(data.columns, TEXT, "\"\""), .also = "column_types|features",
     .help = "csv: kinds of columns by name or number: number, boolean, date, category, ignore; "
             "\"\": as their values say",
     .example = "\"zip: category, id: ignore\""},
    {KEY(data.missing, CHOICE, "impute"), .choices = "impute|refuse",
     .also = "missing_values|na|fillna",
     .help = "csv: a cell without a value gets the median of the training rows (numbers, dates) or "
             "their most frequent value (texts), with a notice, or ends the run"},
    {KEY(data.target, CHOICE, "auto"), .choices = "auto|class|value", .also = "task",
     .help = "csv, npy: labels are classes, or values to predict (regression); auto: values with "
             "train.loss mae or huber, and with mse if some label is not a whole number"},
    {KEY(data.val_fraction, FLOAT, "0.1"), RANGE(0, 0.9),
     .also = "val_split|validation_split|test_fraction|test_size",
     .help = "Share of the samples that is kept for testing, where the files do not say"},
    {KEY(data.image_size, INT, "0"), RANGE(0, 4096),
     .also = "resolution|img_size|input_size|crop_size|size",
     .help = "Pictures: width and height of what the model sees; 0: 224, CIFAR 32",
     .example = "128"},
    {KEY(data.augment, TEXT, "auto"), AT_LEAST(0), .also = "augmentation|transforms|transform|aug",
     .help = "Pictures, training: steps between commas of random_resized_crop=SMALLEST_SHARE, "
             "flip=PROBABILITY, colour_jitter=STRENGTH, pad_crop=PIXELS, cutout=SIDE (numbers "
             "may be left out), or none; auto: random_resized_crop, flip; CIFAR pad_crop, flip",
     .example = "\"random_resized_crop, flip, colour_jitter=0.4\""},
    {KEY(data.channel_mean, TEXT, "auto"), AT_LEAST(1),
     .help = "Pictures: subtracted from pixel/255 of R, G, B; auto: of ImageNet or CIFAR",
     .example = "\"0.485, 0.456, 0.406\""},
    {KEY(data.channel_std, TEXT, "auto"), AT_LEAST(1),
     .help = "Pictures: divides what is left; auto: of ImageNet or CIFAR",
     .example = "\"0.229, 0.224, 0.225\""},
    {KEY(data.mixup, FLOAT, "0"), RANGE(0, 100), .also = "mixup_alpha|mix_up|mix",
     .help =
         "Training: each sample and its label are mixed with another of its shard, w and 1 - w, "
         "w of Beta(mixup, mixup); hits are of the first label; 0: off",
     .example = "0.2"},
    {KEY(data.mask_prob, FLOAT, "0"), RANGE(0, 1),
     .also = "mlm_probability|mask_probability|masking|mask_rate|masked_lm_prob|mlm",
     .help = "text, tokens: share of the tokens that is to be guessed (BERT): of them 80 % become "
             "data.mask_token, 10 % any token, 10 % stay; 0: each token's target is the next one, "
             "which bert sees",
     .example = "0.15"},
    {KEY(data.mask_token, INT, "auto"), RANGE(0, 1 << 24), .word = "auto",
     .also = "mask_token_id|mask_id|mask",
     .help = "Token that stands for those to be guessed; auto: one more than the data has",
     .example = "103"},
    {KEY(data.on_error, CHOICE, "stop"), .choices = "stop|skip",
     .also = "on_bad_sample|errors|skip_errors",
     .help = "A damaged sample ends the run, or is counted, listed and left out of the loss"},
    {KEY(data.max_pixels, INT, "134217728"), RANGE(1, 1 << 30),
     .also = "max_image_pixels|pixel_limit|image_limit",
     .help = "Pictures with more pixels are refused; decoding one takes 3 bytes per pixel and "
             "loader thread, 6 when EXIF turns it",
     .example = "300000000"},
    {KEY(data.max_unpacked_mb, INT, "1024"), RANGE(1, 1 << 24),
     .also = "max_uncompressed|max_gzip|unpacked_limit",
     .help = "Compressed files that unpack to more MiB are refused; 0: 1024 or 32 times the size "
             "of the file, whichever is more",
     .example = "8192"},
    {KEY(data.threads, INT, "1"), RANGE(0, 64),
     .also = "num_workers|n_workers|n_threads|loader_threads",
     .help = "Loader threads per worker; 0: the worker loads its own batches"},
    {KEY(data.prefetch, INT, "4"), RANGE(1, 1024), .also = "prefetch_factor|buffer",
     .help = "Batches made ahead"},
    {KEY(data.resident, CHOICE, "auto"), .choices = "auto|yes|no", .also = "cache|on_device",
     .help =
         "Samples of bytes without random changes are copied to the device once, which makes its "
         "own batches, the same bits; auto: where they take a quarter of its memory at most"},

    /* train */
    {KEY(train.batch, INT, "128"), RANGE(1, 1 << 24),
     .also = "batch_size|batchsize|global_batch|bs|per_device_train_batch_size|train_batch_size|"
             "micro_batch_size|per_device_batch_size|train_micro_batch_size_per_gpu",
     .help = "Samples per step over all workers together, whatever their number", .example = "256"},
    {KEY(train.epochs, INT, "5"), RANGE(1, 1e6),
     .also = "n_epochs|num_epochs|max_epochs|num_train_epochs|max_epochs",
     .help = "Stop after so many passes over the data"},
    {KEY(train.steps, INT, "0"), RANGE(0, 1e12),
     .also = "max_steps|n_steps|num_steps|iterations|iters|max_iters|max_iters",
     .help = "Stop after so many steps instead; 0: by epochs", .example = "1000"},
    {KEY(train.seed, INT, "1"), RANGE(0, EXACT_INT), .also = "random_seed|manual_seed",
     .help = "Of the initial parameters, the order of samples and dropout"},
    {KEY(train.loss, CHOICE, "cross-entropy"), .choices = "cross-entropy|mse|mae|huber",
     .also = "criterion|objective|loss_fn",
     .meant = "ce=cross-entropy|nll=cross-entropy|crossentropyloss=cross-entropy|softmax=cross-"
              "entropy|bce=cross-entropy|mseloss=mse|l2=mse|l1=mae|l1loss=mae|smooth_l1=huber|"
              "huberloss=huber",
     .help = "Loss function.  cross-entropy: classes; mae (l1), huber: values (data.target); mse: "
             "values, or classes as vectors of 0 and 1"},
    {KEY(train.huber_delta, FLOAT, "1"), RANGE(1e-6, 500), .also = "delta|beta",
     .help = "huber: errors beyond it count linearly; in standard deviations "
             "of the target"},
    {KEY(train.label_smoothing, FLOAT, "0"), RANGE(0, 0.99), .also = "smoothing",
     .help = "cross-entropy: share of the target spread over all classes", .example = "0.1"},
    {KEY(train.clip_norm, FLOAT, "0"), AT_LEAST(0),
     .also = "grad_clip|clip|max_norm|gradient_clip|clip_grad|max_grad_norm|gradient_clip_val|"
             "gradient_clipping|clip_grad_norm",
     .help = "Largest norm of all gradients together; 0: no clipping", .example = "1.0"},
    {KEY(train.clip_value, FLOAT, "0"), AT_LEAST(0), .also = "clip_grad_value|max_value",
     .help = "Largest size of an element of the gradient, before it is clipped by norm; 0: no "
             "clipping",
     .example = "0.5"},
    {KEY(train.ema, FLOAT, "0"), RANGE(0, 0.999999), .also = "ema_decay|averaging|model_ema|swa",
     .help = "Decay per step of averaged weights, which are kept beside the others and evaluated; "
             "0: none",
     .example = "0.999"},
    {KEY(train.precision, CHOICE, "auto"), .choices = "auto|f32|tf32|bf16|f16",
     .also = "dtype|amp|mixed_precision|autocast|compute_dtype|half|fp16|bf16|fp32|float16|"
             "bfloat16|torch_dtype",
     .meant = "fp16=f16|float16=f16|half=f16|16=f16|16-mixed=f16|bfloat16=bf16|bf16-mixed=bf16|"
              "mixed=bf16|amp=bf16|fp32=f32|float32=f32|32=f32|float=f32|full=f32",
     .help = "Of matrix products, convolutions, attention and what lies between them; parameters, "
             "sums and losses are f32 in any case; auto: bf16 on a GPU, else f32; tf32: f32 with "
             "products in tf32, on a GPU"},
    {KEY(train.low_stream, BOOL, "false"), .also = "bf16_residual|residual_in_fp32|pure_bf16",
     .help = "bf16, f16: embeddings and the sums that run past the blocks of a transformer have 16 "
             "bits too; fewer bytes, as llm.c does it"},
    {KEY(train.loss_scale, FLOAT, "auto"), RANGE(1, 0x1p32), .word = "auto",
     .also = "grad_scale|scale|scaler|grad_scaler|init_scale",
     .help = "Times the loss when gradients are taken, divided out before the update, so that "
             "small ones survive in f16; auto: for f16 as large as goes, otherwise none",
     .example = "1024"},
    {KEY(train.recompute, TEXT, "none"), AT_LEAST(1),
     .also = "checkpointing|gradient_checkpointing|activation_checkpointing|remat|rematerialize",
     .help = "Activations that are made again in the backward pass instead of being kept, with the "
             "same results: none; light: those that cost little more than moving their bytes, such "
             "as normalisations and activations; block: all but the ends of blocks; or the bytes "
             "that those of a shard may take, with the cheapest made again",
     .example = "512MiB"},
    {KEY(train.on_nan, CHOICE, "stop"), .choices = "stop|skip", .also = "nan|on_inf",
     .help = "When the loss is not finite, or a gradient, which skip, f16 and train.clip_norm look "
             "at: end the run, or leave the parameters as they are for that step.  Parameters that "
             "are not finite are never saved, and end the run"},
    {KEY(train.eval_every, INT, "1"), RANGE(0, 1e6),
     .also = "eval_interval|val_every|eval_freq|eval_steps|val_check_interval|check_val_every_n_"
             "epoch|evaluation_strategy",
     .help = "Epochs between evaluations; 0: only at the end"},

    /* optimizer */
    {KEY(optimizer.name, CHOICE, "adamw"),
     .choices = "adagrad|adam|adamw|lamb|lars|lion|rmsprop|sgd", .also = "optim|type|algorithm",
     .meant = "adamw_torch=adamw|adamw_hf=adamw|adamw8bit=adamw|adam_w=adamw|fusedadam=adam|"
              "momentum=sgd|nesterov=sgd|rms=rmsprop",
     .help = "The rule"},
    {KEY(optimizer.lr, FLOAT, "1e-3"), RANGE(0, 1000),
     .also = "learning_rate|learningrate|rate|step_size|alpha|eta",
     .help = "Learning rate, at its highest", .example = "3e-4"},
    {KEY(optimizer.momentum, FLOAT, "auto"), RANGE(0, 0.9999), .word = "auto", .also = "mu",
     .help = "sgd, lars, rmsprop: share of the last direction that is kept; auto: 0.9, rmsprop 0"},
    {KEY(optimizer.weight_decay, FLOAT, "0"), RANGE(0, 1000), .also = "wd|decay|l2|weightdecay",
     .help = "On weights, not on biases and norms; adamw, lamb, lion: decoupled from the gradient",
     .example = "0.01"},
    {KEY(optimizer.beta1, FLOAT, "0.9"), RANGE(0, 0.999999), .also = "betas|b1",
     .help = "adam, adamw, lamb, lion: decay of the mean"},
    {KEY(optimizer.beta2, FLOAT, "auto"), RANGE(0, 0.99999999), .word = "auto", .also = "b2",
     .help = "adam, adamw, lamb: decay of the mean square; lion: of the kept mean; auto: 0.999, "
             "lion 0.99"},
    {KEY(optimizer.alpha, FLOAT, "0.99"), RANGE(0, 0.99999999), .also = "rho|smoothing_constant",
     .help = "rmsprop: decay of the mean square"},
    {KEY(optimizer.eps, FLOAT, "auto"), RANGE(1e-30, 1), .word = "auto", .also = "epsilon",
     .help = "Added to the divisor; auto: 1e-8, adagrad 1e-10, lamb 1e-6"},
    {KEY(optimizer.trust, FLOAT, "1e-3"), RANGE(1e-12, 1000),
     .also = "trust_coefficient|trust_coeff|eeta",
     .help = "lars: length of a step relative to the weights', at a learning rate of 1"},
    {KEY(optimizer.nesterov, BOOL, "false"), .help = "sgd: look ahead along the momentum"},
    {KEY(optimizer.l1, FLOAT, "0"), RANGE(0, 1000), .also = "lasso|l1_decay|l1_penalty",
     .help = "Times the sign of each weight, added to the gradient where weight decay is",
     .example = "1e-5"},
    {KEY(optimizer.scale_lr, CHOICE, "none"), .choices = "none|linear|sqrt",
     .also = "lr_scaling|scale|auto_scale_lr",
     .help = "Multiply lr by train.batch / base_batch, or by its square root"},
    {KEY(optimizer.base_batch, INT, "256"), RANGE(1, 1 << 24),
     .also = "base_batch_size|reference_batch",
     .help = "The batch that lr is for, where it is scaled"},
    {KEY(optimizer.groups, TEXT_LIST, "[]"), AT_LEAST(1),
     .also = "param_groups|parameter_groups|lr_mult",
     .help = "Learning rate (a factor) and weight decay by name of the parameter, as "
             "\"PATTERN: lr=2 decay=0\"; * stands for any text, ? for one character; the last "
             "that says it wins",
     .example = "[\"*.bias: lr=2\", \"bn*: decay=0\"]"},
    {KEY(optimizer.freeze, TEXT_LIST, "[]"), AT_LEAST(1), .also = "frozen|freeze_layers|fixed",
     .help = "Patterns of parameters that stay as they are, as if by lr=0",
     .example = "[\"conv1.*\"]"},

    /* schedule */
    {KEY(schedule.name, CHOICE, "constant"),
     .choices = "constant|cosine|cyclic|exponential|linear|multi_step|one_cycle|plateau|polynomial|"
                "step|wsd",
     .also = "lr_schedule|lr_scheduler|scheduler|type|policy|lr_scheduler_type",
     .meant = "cosine_annealing=cosine|cosineannealinglr=cosine|cosine_with_restarts=cyclic|"
              "onecycle=one_cycle|onecyclelr=one_cycle|steplr=step|multisteplr=multi_step|"
              "reducelronplateau=plateau|reduce_on_plateau=plateau|exponentiallr=exponential|"
              "cycliclr=cyclic|poly=polynomial|none=constant|fixed=constant",
     .help = "The curve after the warm-up; wsd: warm-up, stable, decay; plateau: falls when the "
             "validation loss does not"},
    {KEY(schedule.warmup_steps, INT, "0"), RANGE(0, 1e12),
     .also = "warmup|warm_up|warmup_iters|n_warmup",
     .help = "Steps in which the learning rate grows to where the curve begins", .example = "200"},
    {KEY(schedule.warmup_shape, CHOICE, "linear"), .choices = "linear|constant|exponential|cosine",
     .also = "warmup_type|warmup_mode|warmup_method",
     .help = "How it grows; constant: it stays at its start"},
    {KEY(schedule.warmup_start, FLOAT, "0"), RANGE(0, 1),
     .also = "warmup_factor|start_factor|warmup_ratio",
     .help = "Where the warm-up begins, as a share of where it ends", .example = "0.01"},
    {KEY(schedule.steps, INT, "auto"), RANGE(0, 1e12), .word = "auto",
     .also = "n_steps|total_steps|max_steps|t_max|length",
     .help =
         "Steps from the first to the last learning rate; 0: those of train.epochs; auto: "
         "train.steps if only that is given, else train.epochs, so that a run that is cut short "
         "keeps its curve"},
    {KEY(schedule.unit, CHOICE, "epochs"), .choices = "epochs|steps", .also = "interval|by",
     .help = "step, multi_step, exponential: what they count"},
    {KEY(schedule.step_size, INT, "1"), RANGE(1, 1e12), .also = "drop_every|step_epochs|period",
     .help = "step: epochs (or steps) between drops"},
    {KEY(schedule.milestones, INT_LIST, "[]"), RANGE(1, 1e12), .also = "drops|steps_at|boundaries",
     .help = "multi_step: epochs (or steps) of the drops", .example = "[30, 60, 90]"},
    {KEY(schedule.gamma, FLOAT, "auto"), RANGE(0, 1), .word = "auto", .also = "factor|drop",
     .help = "step, multi_step, plateau: factor of a drop; exponential: of an epoch (or step); "
             "cyclic, exp_range: of a step; auto: 0.1, exponential 0.95, cyclic 0.9999"},
    {KEY(schedule.min_lr, FLOAT, "0"), RANGE(0, 1000), .also = "eta_min|final_lr|end_lr|base_lr",
     .help =
         "cosine, linear, polynomial, wsd: the last learning rate; cyclic, plateau: the lowest"},
    {KEY(schedule.power, FLOAT, "1"), RANGE(0, 100), .also = "exponent|degree",
     .help = "polynomial: power of what is left", .example = "2"},
    {KEY(schedule.cycle_steps, INT, "4000"), RANGE(2, 1e12),
     .also = "cycle_length|step_size_up|period_steps", .help = "cyclic: steps up and down again"},
    {KEY(schedule.cycle, CHOICE, "triangular"), .choices = "triangular|triangular2|exp_range",
     .also = "mode|cycle_mode",
     .help = "cyclic: all alike; each half as high; or lower by gamma with each step"},
    {KEY(schedule.rise, FLOAT, "auto"), RANGE(0, 1), .word = "auto", .also = "pct_start|rising|up",
     .help = "one_cycle, cyclic: share of a cycle in which the rate rises; auto: 0.3, cyclic 0.5"},
    {KEY(schedule.div, FLOAT, "25"), RANGE(1, 1e9), .also = "div_factor",
     .help = "one_cycle: begins at lr / div"},
    {KEY(schedule.final_div, FLOAT, "1e4"), RANGE(1, 1e12), .also = "final_div_factor",
     .help = "one_cycle: ends at lr / div / final_div"},
    {KEY(schedule.anneal, CHOICE, "cosine"), .choices = "cosine|linear|sqrt",
     .also = "anneal_strategy|decay_type|shape",
     .help = "one_cycle, wsd: shape of its flanks; sqrt: 1 - sqrt(done)"},
    {KEY(schedule.decay_share, FLOAT, "0.2"), RANGE(0, 1),
     .also = "decay_frac|cooldown_frac|decay_ratio|decay_fraction",
     .help = "wsd: share of the curve in which the rate falls"},
    {KEY(schedule.patience, INT, "10"), RANGE(0, 1e6),
     .help = "plateau: evaluations without a better loss that are borne"},
    {KEY(schedule.cooldown, INT, "0"), RANGE(0, 1e6),
     .help = "plateau: evaluations after a fall in which none is counted"},
    {KEY(schedule.threshold, FLOAT, "1e-4"), RANGE(0, 0.999), .also = "min_delta|tolerance",
     .help = "plateau: a better loss is better by this share"},

    /* parallel */
    {KEY(parallel.workers, INT, "auto"), RANGE(1, TTI_MAX_WORKERS), .word = "auto",
     .also = "n|n_workers|num_workers|world_size|n_ranks|nproc|num_processes|nproc_per_node|num_"
             "replicas",
     .help = "Workers; auto: one per GPU, or one per core", .example = "4"},
    {KEY(parallel.place, CHOICE, "threads"), .choices = "threads|processes",
     .also = "placement|strategy|launcher",
     .meant = "ddp=processes|fork=processes|spawn=processes|multiprocessing=processes|dp=threads|"
              "data_parallel=threads|fsdp=processes",
     .help = "Workers are threads of one process, or processes"},
    {KEY(parallel.shards, INT, "auto"), RANGE(1, 4096), .word = "auto",
     .also = "v|n_shards|virtual_shards|num_shards|gradient_accumulation|gradient_accumulation_"
             "steps|accumulate_grad_batches|accumulation_steps|accum|num_microbatches",
     .help = "Equal parts of the batch, a power of two; the result depends on it and not on the "
             "number of workers; auto: on the host as many as cores or workers, whichever is "
             "more, on GPUs as many as workers, rounded up to a power of two",
     .example = "8"},
    {KEY(parallel.shares, TEXT, "auto"), AT_LEAST(1),
     .also = "weights|balance|load_balance|worker_weights|split|uneven",
     .help = "How many of the shards each worker has.  equal: all as many; measured: as many as "
             "its speed at the start says; weights such as 3,1: in proportion, for workers of "
             "unequal speed.  The same bits in exact mode; auto: measured where GPUs are of "
             "different kinds, else equal",
     .example = "3,1"},
    {KEY(parallel.ahead, INT, "auto"), RANGE(1, TTI_MAX_AHEAD), .word = "auto",
     .also = "steps_per_launch|scan",
     .help = "Steps over resident samples that a GPU is given before it has told the first one's "
             "results, half of them by one launch where they are small; these do not depend on it"},
    {KEY(parallel.mode, CHOICE, "exact"), .choices = "exact|fast",
     .also = "exact|deterministic|precision|reproducible",
     .help = "exact: the same bits for any number of workers; fast: the same mathematics"},
    {KEY(parallel.sync_batch_norm, BOOL, "false"), .also = "sync_bn|syncbn|sync_batchnorm",
     .help = "Batch norm over the whole batch instead of over each shard"},
    {KEY(parallel.algorithm, CHOICE, "auto"), .choices = "auto|ring|tree|direct",
     .also = "all_reduce|allreduce|algo",
     .help = "How sums travel between workers; auto: by size; ring: fast mode only.  Between GPUs "
             "auto, direct: kernels over each other's memory, else as tree; tree: inside hosts so, "
             "between them NCCL; ring: NCCL"},
    {KEY(parallel.bucket_mb, FLOAT, "auto"), RANGE(0.0009765625, 4096), .word = "auto",
     .also = "bucket|bucket_size|bucket_cap_mb",
     .help = "MiB of gradients that travel together; auto: by the link and the size of the model "
             "(docs/parallel.md)"},
    {KEY(parallel.compress, CHOICE, "none"), .choices = "none|bf16|f16|topk|powersgd",
     .also = "compression|grad_compression|reduce_dtype|comm_dtype|comm_hook",
     .help =
         "Fast mode: what of a worker's gradients travels.  bf16, f16: all, rounded to 16 bits; "
         "sums are made in f32 and rounded once more.  topk: of matrices the largest elements; "
         "powersgd: of matrices a product of thin ones; what was not sent is added to the next "
         "step's"},
    {KEY(parallel.topk, FLOAT, "0.01"), RANGE(1e-6, 0.5),
     .also = "top_k|sparsity|density|compression_ratio|k_ratio",
     .help = "topk: share of the elements of a matrix that travels"},
    {KEY(parallel.rank, INT, "2"), RANGE(1, 256),
     .also = "powersgd_rank|matrix_approximation_rank|low_rank",
     .help = "powersgd: columns of the thin matrices", .example = "4"},
    {KEY(parallel.compress_after, INT, "0"), RANGE(0, 1e12),
     .also = "start_powersgd_iter|compress_start|warmup_steps_compress",
     .help = "topk, powersgd: steps before the first one that is compressed", .example = "200"},
    {KEY(parallel.sync, CHOICE, "all-reduce"), .choices = "all-reduce|local|parameter-server",
     .also = "ps|parameter_server|aggregation|synchronization|update",
     .help = "Who makes the update: every worker, after an all-reduce of the gradients; every "
             "worker with its own gradients, and parameters are averaged now and then (local SGD); "
             "or threads that keep parameters and optimizer state for the workers"},
    {KEY(parallel.average_every, INT, "8"), RANGE(1, 1e9),
     .also = "local_steps|sync_every|h_steps|averaging_period",
     .help = "local: steps from one averaging to the next"},
    {KEY(parallel.average_after, INT, "0"), RANGE(0, 1e12),
     .also = "start_local_sgd_iter|post_local",
     .help = "local: steps in front that are those of an all-reduce (post-local SGD)",
     .example = "200"},
    {KEY(parallel.average, CHOICE, "parameters"), .choices = "parameters|all",
     .also = "average_momentum|average_state",
     .help = "local: what is averaged; all: the optimizer's state too, which otherwise is averaged "
             "for checkpoints and evaluations alone"},
    {KEY(parallel.servers, INT, "1"), RANGE(1, 64),
     .also = "n_servers|num_servers|num_ps|ps_num|n_ps",
     .help = "Threads of the parameter server, each with a range of the parameters; where workers "
             "are processes: so many of them, the first; with a divided model: so many of each "
             "part of it, or 1 where its copies do not wait for each other",
     .example = "2"},
    {KEY(parallel.staleness, INT, "0"), RANGE(0, 1e6), .word = "unbounded",
     .also = "async|asynchronous|max_staleness|delay|ssp",
     .help = "0: synchronous, the bits of the all-reduce.  More: every worker trains on batches of "
             "its own, and while one computes a gradient another may begin so many steps; "
             "unbounded: any number.  Needs parallel.mode=fast",
     .example = "4"},
    {KEY(parallel.backup_workers, INT, "0"), RANGE(0, 63),
     .also = "n_backup|backup|drop_slowest|stragglers",
     .help = "A synchronous parameter server applies a step when all workers but so many have "
             "brought their gradients; those that come later are dropped.  Needs "
             "parallel.mode=fast",
     .example = "1"},
    {KEY(parallel.replay, TEXT, "\"\""), .also = "replay_order|arrivals|repeat",
     .help = "The folder of an asynchronous run of the same job, whose gradients are applied again "
             "in the same order, with the same result",
     .example = "runs/first"},
    {KEY(parallel.copies, CHOICE, "one"), .choices = "one|each",
     .also = "replicas|shared_parameters|share_memory",
     .help = "Workers that are threads of one process on CPUs have one: parameters and optimizer "
             "state in common, of which each updates its part.  each: all have their own, and a "
             "wrong result of one core shows as a difference.  The same bits"},
    {KEY(parallel.zero, INT, "0"), RANGE(0, 3),
     .also = "zero_stage|zero_optimization|shard_optimizer|sharded_optimizer|stage",
     .help = "1: each worker keeps and updates its part of the optimizer's state, instead of all "
             "of it; 2: and of the summed gradients; 3: and of the parameters, which come to all "
             "while a layer uses them.  The same bits with less memory"},
    {KEY(parallel.offload, CHOICE, "none"), .choices = "none|optimizer",
     .also = "offload_optimizer|zero_offload|cpu_offload|optimizer_offload|offload_device",
     .help = "optimizer: its state stays in the memory of the host, which makes the update; a GPU "
             "has parameters, gradients and activations.  The same bits as on CPUs"},
    {KEY(parallel.data, INT, "auto"), RANGE(1, TTI_MAX_WORKERS), .word = "auto",
     .also = "dp|data_parallel|data_parallel_size|replicas",
     .help = "Copies of the model, each with a part of the batch: workers are data x pipeline x "
             "tensor; auto: as parallel.workers says",
     .example = "2"},
    {KEY(parallel.tensor, INT, "1"), RANGE(1, TTI_MAX_WORKERS),
     .also = "tp|tensor_parallel|tensor_parallel_size|tensor_model_parallel_size|model_parallel",
     .help = "Workers that divide each layer between them: weights, optimizer state and products "
             "are cut into so many pieces.  The workers are data x pipeline x tensor",
     .example = "2"},
    {KEY(parallel.uneven, CHOICE, "refuse"), .choices = "refuse|whole", .also = "uneven_layers",
     .help = "Layers whose heads, channels or features parallel.tensor does not divide: refused, "
             "with the numbers that would do; or whole on every worker"},
    {KEY(parallel.pipeline, INT, "1"), RANGE(1, TTI_MAX_WORKERS),
     .also = "pp|stages|pipeline_stages|pipeline_parallel|pipeline_model_parallel_size",
     .help = "Workers that divide the layers between them: the model is cut into so many stages, "
             "through which the shards of a worker go one after the other",
     .example = "4"},
    {KEY(parallel.pipeline_chunks, INT, "1"), RANGE(1, 16),
     .also = "chunks|interleave|virtual_pipeline|virtual_pipeline_stages|interleaved",
     .help = "Pieces of the model that each stage has, not neighbours: shards go round the stages "
             "so many times, and the stages wait for each other that many times less; more "
             "activations are kept and sent",
     .example = "2"},
    {KEY(parallel.timeout_ms, INT, "60000"), RANGE(1, 86400000), .also = "timeout",
     .help = "Longest wait for another worker"},
    {KEY(parallel.phase_timeout_ms, INT, "600000"), RANGE(1, 86400000),
     .help = "Longest wait for a worker that says that it saves, evaluates, or loads data or the "
             "model, and for a batch of data"},
    {KEY(parallel.backend, CHOICE, "auto"), .choices = "auto|cpu|reference",
     .also = "device|accelerator", .help = "Kernels: the fastest for this machine, or plain C"},
    {KEY(parallel.devices, TEXT, "auto"), AT_LEAST(1),
     .also = "gpu|gpus|cuda|cuda_visible_devices|device_ids|num_gpus|n_gpus|devices",
     .help =
         "Where to compute: cpu, gpu (all there are), or their numbers; with cpu among them, as "
         "0,cpu or gpu,cpu, some workers are on the host (fast mode), each place one worker and "
         "the host all further ones; auto: GPUs where there are some",
     .example = "0,1"},
    {KEY(parallel.share_devices, BOOL, "true"), .also = "oversubscribe|gpu_sharing|share_gpus",
     .help = "More workers of a machine than it has GPUs: true: they take turns, told in a "
             "warning; false: such a run is refused"},

    /* run */
    {KEY(run.dir, TEXT, "auto"), AT_LEAST(1),
     .also = "output|out_dir|output_dir|log_dir|save_dir|name",
     .help = "The run folder; auto: the next free runs/NAME-N", .example = "runs/first"},
    {KEY(run.checkpoint_every, INT, "0"), RANGE(-1, 1e12),
     .also = "save_every|checkpoint_interval|save_steps|checkpoint",
     .help = "Steps between checkpoints; 0: at the end of each epoch; -1: only at the end"},
    {KEY(run.keep, INT, "2"), RANGE(2, 1e6),
     .also = "keep_last|n_keep|save_total_limit|max_to_keep",
     .help = "Checkpoints kept; two, so that one is whole whatever happens"},
    {KEY(run.log_every, INT, "0"), RANGE(0, 1e12),
     .also = "log_interval|log_steps|print_every|logging_steps",
     .help = "Steps between step records in metrics.jsonl; 0: about twice a second"},
    {KEY(run.text_samples, INT, "3"), RANGE(0, 16), .also = "samples|generations|n_texts",
     .help = "Texts in report.html that a language model writes on from beginnings in the test "
             "split, for at most two seconds; 0: none"},
    {KEY(run.restarts, INT, "0"), RANGE(0, 1e6), .also = "max_restarts|restart|retries",
     .help = "Workers that are processes are all started again after a failure, up to so often, "
             "and continue from the last checkpoint; a failure that comes again in the same step "
             "is not tried a third time",
     .example = "3"},
    {KEY(run.progress, BOOL, "true"), .also = "verbose|progress_bar|tqdm",
     .help = "Show progress on standard error"},
};

static const tti_option_answer answers[] = {
    {"resume|resume_from_checkpoint|ckpt_path|continue",
     "a run is continued by: tutti train --resume RUN"},
    {"shuffle", "the training samples are shuffled anew in every epoch, by train.seed"},
    {"drop_last", "the last batch of an epoch is trained on, however short it is"},
    {"pin_memory|persistent_workers|find_unused_parameters|compile|torch_compile|jit",
     "there is nothing to set: it is done where it helps"},
    {"early_stopping|load_best_model_at_end",
     "there is no early stopping; train for fewer train.epochs, and resume with more if needed"},
    {"num_nodes|nnodes|master_addr|master_port|node_rank",
     "several hosts are given by mpirun, srun or torchrun (docs/clusters.md)"},
};

const tti_option_table tti_job_table = {
    .rows = rows,
    .n_rows = TTI_COUNT(rows),
    .groups = groups,
    .n_groups = TTI_COUNT(groups),
    .answers = answers,
    .n_answers = TTI_COUNT(answers),
    .n_config_bytes = sizeof(tti_job_config),
};

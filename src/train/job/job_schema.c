/* job_schema.c - every key of a job file: the one place to add one.
 *
 * A key consists of a row here and a field of tti_job_config (job.h).  Parser, overrides, messages,
 * `tutti config`, the JSON schema and docs/job.md are generated from the row.  Rules between keys
 * are in job_conflicts.c. */
#include "data/data_spec.h"
#include "exec/exec.h"
#include "train/job/job.h"
#include "train/job/lr_schedule.h"

/* The first four members of a row; `name` is the key and, in tti_job_config, the field. */
#define KEY(name, kind, value) #name, TTI_OPTION_##kind, offsetof(tti_job_config, name), value
#define RANGE(low, high) .min = (low), .max = (high)
#define AT_LEAST(low) .min = (low), .max = TTI_NO_LIMIT

/* "|NAME" for a list of choices; the first character of the list is skipped. */
#define OR_NAME(name) "|" #name

/* The largest integer that is exact in a double, and so in JSON. */
#define EXACT_INT 9007199254740991.0

static const tti_option_group groups[] = {
    {"model", "The network"},
    {"data", "Where samples come from and how they are prepared"},
    {"train", "Batch size, duration, loss and precision"},
    {"optimizer", "Optimizer and its hyperparameters"},
    {"schedule", "How the learning rate changes"},
    {"parallel", "How the work is divided; in exact mode only `shards` can change the result"},
    {"run", "Where results go and how often"},
};

static const tti_option rows[] = {
    /* model */
    {KEY(model.name, CHOICE, "lenet"),
     .choices = "bert|convnext|densenet121|densenet161|densenet169|densenet201|efficientnet_b0|"
                "efficientnet_b1|efficientnet_b2|efficientnet_b3|efficientnet_b4|"
                "efficientnet_b5|efficientnet_b6|efficientnet_b7|efficientnet_v2_l|"
                "efficientnet_v2_m|efficientnet_v2_s|gpt2|lenet|lstm|mlp|mobilenet_v2|"
                "mobilenet_v3_large|mobilenet_v3_small|regnet_x_16gf|regnet_x_1_6gf|"
                "regnet_x_32gf|regnet_x_3_2gf|regnet_x_400mf|regnet_x_800mf|regnet_x_8gf|"
                "regnet_y_128gf|regnet_y_16gf|regnet_y_1_6gf|regnet_y_32gf|regnet_y_3_2gf|"
                "regnet_y_400mf|regnet_y_800mf|regnet_y_8gf|resnet101|resnet18|resnet34|"
                "resnet50|swin|unet|vgg11|vgg13|vgg16|vit",
     .also = "arch|architecture|net|network|type",
     .meant =
         "gpt=gpt2|nanogpt=gpt2|transformer=gpt2|decoder=gpt2|encoder=bert|cnn=lenet|convnet="
         "lenet|rnn=lstm|perceptron=mlp|linear=mlp|fc=mlp|resnet=resnet18|vgg=vgg16|mobilenet="
         "mobilenet_v2|mobilenetv2=mobilenet_v2|mobilenetv3=mobilenet_v3_large|densenet="
         "densenet121|efficientnet=efficientnet_b0|regnet=regnet_y_400mf|"
         "vit_b_16=vit|vit_base=vit|deit=vit|swin_t=swin|swin_tiny=swin|convnext_tiny=convnext|"
         "u_net=unet",
     .help = "Network architecture; `tutti models` lists them"},
    {KEY(model.plugin, TEXT, "\"\""), .also = "library|shared_object|so|path|file",
     .help = "Shared object that exports tutti_build_model, used instead of model.name; see "
             "examples/plugin",
     .example = "./my_model.so"},
    {KEY(model.file, TEXT, "\"\""), .also = "pt2|onnx|exported|program|import",
     .help = "Exported model, used instead of model.name, with its weights: a .pt2 file of "
             "torch.export.save, an ONNX file, or a folder of tutti import; see docs/pytorch.md",
     .example = "model.pt2"},
    {KEY(model.inputs, TEXT, "\"\""), .joins = true, .also = "input_names|field_map",
     .help =
         "model.file: which field of a sample each input of the model reads, INPUT=FIELD; \"\": "
         "the field of the same name, or x and y in order",
     .example = "\"input_ids=tokens, labels=y\""},
    {KEY(model.loss, TEXT, "auto"), .also = "loss_output",
     .help =
         "model.file: the output that is the loss, by its name or counted from 0; none: train.loss "
         "is used; "
         "auto and first: the first output that is a single number.  A loss with a term for each "
         "sample "
         "is averaged; a single number is the mean of a shard",
     .example = "0"},
    {KEY(model.metrics, TEXT, "\"\""), .joins = true,
     .help = "model.file: metrics that the model computes, each with the name or the number of its "
             "output, or of its sum and its count: \"NAME=OUTPUT, NAME=SUM/COUNT\"",
     .example = "\"hits=2/3, sharpness=4\""},
    {KEY(model.hidden, INT_LIST, "[512, 512]"), RANGE(1, 1 << 20),
     .also = "widths|hidden_size|hidden_sizes|hidden_dims",
     .help = "mlp: widths of the hidden layers; []: no hidden layer", .example = "[256, 128]"},
    {KEY(model.dropout, FLOAT, "0"), RANGE(0, 0.99), .also = "drop|p_drop|drop_rate",
     .help = "Dropout probability, for models that have dropout", .example = "0.1"},
    {KEY(model.drop_path, FLOAT, "0"), RANGE(0, 0.99),
     .also = "stochastic_depth|drop_connect|drop_path_rate",
     .help = "Probability of skipping a residual branch (stochastic depth), for models that have "
             "them; grows linearly with depth up to this value",
     .example = "0.1"},
    {KEY(model.stem, CHOICE, "imagenet"), .choices = "imagenet|cifar",
     .also = "small_images|first_layer|input",
     .help =
         "Networks for images: imagenet for about 224x224; cifar for about 32x32: the first layer "
         "is 3x3 without downsampling; vgg: the linear layers are narrower"},
    {KEY(model.width_multiplier, FLOAT, "1"), RANGE(0.01, 100),
     .also = "width_mult|width_factor|alpha",
     .help = "mobilenet, efficientnet, densenet, regnet: factor of the number of channels, which "
             "is rounded to a multiple of 8",
     .example = "0.5"},
    {KEY(model.batch_norm, BOOL, "false"), .also = "bn|batchnorm",
     .help = "vgg: batch norm after every convolution"},
    {KEY(model.zero_init_residual, BOOL, "false"), .also = "zero_init|zero_gamma",
     .help = "resnet, regnet: initialize residual branches to zero"},
    {KEY(model.patch, INT, "0"), RANGE(0, 1024), .also = "patch_size",
     .help = "vit: height and width of a patch; 0: 16", .example = "32"},
    {KEY(model.depths, INT_LIST, "[]"), RANGE(1, 1000), .also = "stages|stage_depths",
     .help = "convnext, swin: number of blocks in each of the four stages; []: from model.size",
     .example = "[2, 2, 6, 2]"},
    {KEY(model.window, INT, "0"), RANGE(0, 64), .also = "window_size",
     .help = "swin: height and width of an attention window, in patches; 0: 7", .example = "4"},
    {KEY(model.upsample, CHOICE, "transposed"), .choices = "transposed|bilinear",
     .also = "upsampling|up_mode|interpolation",
     .help = "unet: how images are enlarged: transposed convolutions, or bilinear without weights"},
    {KEY(model.size, CHOICE, "auto"),
     .choices = "auto|none|124M|355M|774M|1558M|tiny|mini|small|medium|base|large",
     .also = "preset|variant|scale",
     .help = "Named size that sets layers, heads and width.  gpt2: 124M, 355M, 774M, 1558M; bert: "
             "tiny, mini, small, medium, base, large; lstm: small, medium, large; vit, convnext, "
             "swin: tiny, small, base, large; none: model.layers, model.heads and model.width are "
             "given; auto: 124M (gpt2), base (bert, vit), small (lstm), tiny (convnext, swin)"},
    {KEY(model.layers, INT, "0"), RANGE(0, 1000),
     .also = "n_layer|n_layers|num_layers|num_hidden_layers|depth|blocks",
     .help = "gpt2, bert, lstm, vit: number of layers; unet: levels below the first, 0: 4; else 0: "
             "from model.size",
     .example = "6"},
    {KEY(model.heads, INT, "0"), RANGE(0, 1024),
     .also = "n_head|n_heads|num_heads|num_attention_heads",
     .help = "gpt2, bert, vit: number of attention heads; 0: from model.size; swin: heads in the "
             "first stage, twice as many in each further one; 0: model.width / 32",
     .example = "6"},
    {KEY(model.width, INT, "0"), RANGE(0, 1 << 20),
     .also = "n_embd|d_model|embed_dim|embedding_size|dim|channels",
     .help = "gpt2, bert, lstm, vit: features per position; convnext, swin: those of the first "
             "stage; 0: from model.size; unet: channels of the first level, 0: 64",
     .example = "384"},
    {KEY(model.context, INT, "0"), RANGE(0, 1 << 20),
     .also = "block_size|n_ctx|n_positions|max_position_embeddings|seq_len",
     .help = "gpt2, bert: number of positions, at least the tokens per sample; 0: as many",
     .example = "1024"},
    {KEY(model.vocabulary, INT, "0"), RANGE(0, 1 << 24),
     .also = "vocab_size|vocab|n_vocab|n_tokens",
     .help = "gpt2, bert, lstm: number of tokens in the vocabulary; 0: as many as the data has; a "
             "larger number needs model.head=classify",
     .example = "50257"},
    {KEY(model.head, CHOICE, "tokens"), .choices = "tokens|classify", .also = "task|objective",
     .help = "bert: tokens predicts masked tokens; classify predicts the class of the sample"},
    {KEY(model.padding, INT, "-1"), RANGE(-1, 1 << 24), .also = "pad_token|pad_token_id|pad_id",
     .help = "bert: token that pads samples and is ignored; -1: none", .example = "0"},
    {KEY(model.activation, CHOICE, "auto"),
     .choices = "auto|none|gelu|gelu_tanh|relu|silu|tanh|sigmoid",
     .also = "activation_function|hidden_act|act|nonlinearity",
     .help = "gpt2, bert, vit: activation in the MLP of each block; auto: gelu_tanh for gpt2, gelu "
             "for bert and vit, or as in the config.json of model.init; none: for other models"},
    {KEY(model.norm_eps, FLOAT, "0"), RANGE(0, 1),
     .also = "layer_norm_epsilon|layer_norm_eps|epsilon|eps",
     .help = "Added to the variance in layer norms (convnext: in the last one); 0: 1e-5 for gpt2 "
             "and swin, 1e-6 for vit and convnext, 1e-12 for bert",
     .example = "1e-6"},
    {KEY(model.mlp_width, INT, "0"), RANGE(0, 1 << 22),
     .also = "n_inner|intermediate_size|ffn_dim|d_ff",
     .help = "gpt2, bert, vit: hidden features of each block's MLP; 0: 4 x model.width",
     .example = "1536"},
    {KEY(model.attention_scaled, CHOICE, "auto"), .choices = "auto|yes|no",
     .also = "scale_attn_weights|scale_attention",
     .help = "gpt2: divide attention scores by the square root of the head width; auto: yes"},
    {KEY(model.attention_by_layer, CHOICE, "auto"), .choices = "auto|yes|no",
     .also = "scale_attn_by_inverse_layer_idx",
     .help = "gpt2: also divide the attention scores of layer i = 0, 1, ... by i + 1; auto: no"},
    {KEY(model.tied, CHOICE, "auto"), .choices = "auto|yes|no",
     .also = "tie_word_embeddings|tie_weights|weight_tying",
     .help = "gpt2, bert: the output layer shares the token embedding; auto: yes, or as in the "
             "files of model.init"},
    {KEY(model.segments, INT, "0"), RANGE(0, 1 << 20), .also = "type_vocab_size",
     .help = "bert: rows of the segment embedding, of which the first is used; 0: 2"},
    {KEY(model.init, TEXT, "\"\""), .also = "pretrained|weights|init_from|from|checkpoint",
     .help = "Pretrained weights: a .safetensors file, or a folder with model.safetensors from "
             "Hugging Face or `tutti export`",
     .example = "./gpt2"},
    {KEY(model.init_except, TEXT_LIST, "[]"), AT_LEAST(1),
     .also = "skip|init_skip|new_layers|exclude",
     .help = "Patterns of parameters that are not loaded from model.init, such as a new head",
     .example = "[\"fc.*\"]"},

    /* data */
    {KEY(data.format, CHOICE, "digits"), .choices = &(TTI_FORMATS(OR_NAME))[1],
     .also = "type|dataset|kind|name",
     .meant = "mnist=idx|fashion_mnist=idx|imagefolder=images|image_folder=images|imagenet=images|"
              "folder=images|webdataset=tar|wds=tar|numpy=npy|npz=npy|tsv=csv|table=csv|tabular="
              "csv|txt=text|bin=tokens|cifar=cifar10",
     .help = "Format of the data; `tutti formats` lists them.  digits: drawn by the program "
             "itself; idx: the files of MNIST, plain or .gz"},
    {KEY(data.dir, TEXT, "\"\""),
     .also = "path|root|folder|data_dir|data_path|data_dir|dataset_dir|root|train_file|train_data|"
             "train_dir",
     .help = "Folder with the files of data.format, relative to the current directory; text, "
             "tokens, npy, csv, tar: also a file or a pattern (docs/data.md)",
     .example = "data/mnist"},
    {KEY(data.n_train, INT, "0"), RANGE(0, 1e9), .also = "train_size|n_samples|samples",
     .help = "Number of training samples to use; 0: all (digits: 20000)", .example = "10000"},
    {KEY(data.n_test, INT, "0"), RANGE(0, 1e9), .also = "test_size|n_val|val_size",
     .help = "Number of test samples to use; 0: all (digits: 4000)", .example = "2000"},
    {KEY(data.mean, FLOAT, "0.1307"), RANGE(-1000, 1000), .help = "Subtracted from pixel/255"},
    {KEY(data.std, FLOAT, "0.3081"), RANGE(1e-6, 1000), .also = "stddev",
     .help = "Divides pixel/255 - data.mean"},
    {KEY(data.context, INT, "256"), RANGE(1, 1 << 20),
     .also =
         "block_size|seq_len|sequence_length|max_length|n_ctx|t|window|max_seq_length|max_seq_len",
     .help = "text, tokens: tokens per sample; the target of each token is the next one, unless "
             "data.mask_prob is set",
     .example = "1024"},
    {KEY(data.stride, INT, "0"), RANGE(0, 1 << 20), .also = "step|overlap",
     .help =
         "text, tokens: tokens between the starts of two samples; 0: data.context, without overlap",
     .example = "128"},
    {KEY(data.tokenizer, CHOICE, "auto"), .choices = "auto|none|bytes|chars|gpt2",
     .also = "tokeniser|encoding|vocab",
     .help = "text: tokenizer; auto: the one in data.tokenizer_dir, or chars without it; none: for "
             "other data"},
    {KEY(data.tokenizer_dir, TEXT, "\"\""),
     .also = "tokenizer_path|tokenizer_file|vocab_file|merges",
     .help = "text, tokens: a tokenizer.json, or a folder with tokenizer.json or with vocab.json "
             "and merges.txt; \"\": tokens looks in data.dir",
     .example = "gpt2"},
    {KEY(data.vocabulary, INT, "0"), RANGE(0, 1 << 24), .also = "vocab_size|n_vocab|n_tokens",
     .help = "text, tokens, random_tokens: number of tokens in the vocabulary; 0: that of the "
             "tokenizer, or without one the largest token + 1",
     .example = "50304"},
    {KEY(data.label, TEXT, "\"\""), .joins = true, .also = "label_column|labels|targets|y",
     .help =
         "csv: name or number (from 0) of the label column, or a list of several columns: values "
         "to predict (regression), or labels of 0 and 1 (train.loss=bce); \"\": the column named "
         "label, class, target or y, else the last one",
     .example = "species"},
    {KEY(data.classes, INT, "0"), RANGE(0, 1 << 24),
     .also = "n_classes|num_classes|num_labels|n_labels",
     .help = "Number of classes; labels must be below it; 0: the largest label in the training "
             "samples + 1",
     .example = "10"},
    {KEY(data.columns, TEXT, "\"\""), .joins = true, .also = "column_types|features",
     .help = "csv: types of columns by name or number: number, boolean, date, category, ignore; "
             "\"\": detected from the values",
     .example = "{zip: category, id: ignore}"},
    {KEY(data.missing, CHOICE, "impute"), .choices = "impute|refuse",
     .also = "missing_values|na|fillna",
     .help = "csv: empty cells.  impute: use the median (numbers, dates) or the most frequent "
             "value (texts) of the training rows, with a notice; refuse: end the run"},
    {KEY(data.fields, TEXT, "auto"), .joins = true, .also = "arrays|keys",
     .help =
         "npy: arrays that are the fields of a sample, by name; all: every array; \"\": samples "
         "are x and y; auto: all for a model.file with several inputs, else \"\".  Fields are used "
         "as they are: floats are f32, whole numbers and booleans i32.  data.label names the "
         "target of train.loss",
     .example = "\"x, mask, y\""},
    {KEY(data.target, CHOICE, "auto"), .choices = "auto|class|labels|value", .also = "task",
     .help =
         "csv, npy: class: labels are classes; value: labels are numbers to predict (regression); "
         "labels (csv): each label column is 0 or 1, a yes-or-no question of its own; auto: value "
         "with train.loss mae, huber or smooth_l1, and with mse if a label is not an integer (npy: "
         "if labels are floats); labels with bce"},
    {KEY(data.val_fraction, FLOAT, "0.1"), RANGE(0, 0.9),
     .also = "val_split|validation_split|test_fraction|test_size",
     .help =
         "Fraction of the samples held out for testing, if the files do not define a test split; "
         "0: none, so they must define one"},
    {KEY(data.image_size, INT, "0"), RANGE(0, 4096),
     .also = "resolution|img_size|input_size|crop_size|size",
     .help = "Images: width and height of the model's input; 0: 224 (CIFAR: 32)", .example = "128"},
    {KEY(data.augment, TEXT, "auto"), AT_LEAST(0), .also = "augmentation|transforms|transform|aug",
     .help = "Images, training: random changes, separated by commas: "
             "random_resized_crop=SMALLEST_AREA, flip=PROBABILITY, colour_jitter=STRENGTH, "
             "pad_crop=PIXELS, cutout=SIDE (values are optional), or none; auto: "
             "random_resized_crop, flip (CIFAR: pad_crop, flip)",
     .example = "\"random_resized_crop, flip, colour_jitter=0.4\""},
    {KEY(data.channel_mean, TEXT, "auto"), AT_LEAST(1),
     .help = "Images: mean of R, G, B, subtracted from pixel/255; auto: that of ImageNet or CIFAR; "
             "none: for other data",
     .example = "\"0.485, 0.456, 0.406\""},
    {KEY(data.channel_std, TEXT, "auto"), AT_LEAST(1),
     .help =
         "Images: standard deviation of R, G, B; auto: that of ImageNet or CIFAR; none: for other "
         "data",
     .example = "\"0.229, 0.224, 0.225\""},
    {KEY(data.mixup, FLOAT, "0"), RANGE(0, 100), .also = "mixup_alpha|mix_up|mix",
     .help = "Training: mix each sample and its label with another sample of the same shard, with "
             "weights w and 1 - w, where w is drawn from Beta(mixup, mixup); accuracy counts the "
             "first label; 0: off",
     .example = "0.2"},
    {KEY(data.mask_prob, FLOAT, "0"), RANGE(0, 1),
     .also = "mlm_probability|mask_probability|masking|mask_rate|masked_lm_prob|mlm",
     .help = "text, tokens: fraction of tokens to predict (BERT): 80 % of them are replaced by "
             "data.mask_token, 10 % by a random token, 10 % are kept; 0: predict the next token "
             "(not for bert, which sees it)",
     .example = "0.15"},
    {KEY(data.mask_token, INT, "auto"), RANGE(0, 1 << 24), .word = "auto|added|none",
     .also = "mask_token_id|mask_id|mask",
     .help =
         "Mask token; added: one above the tokens of the data; none: without masking; auto: added "
         "with data.mask_prob, otherwise none",
     .example = "103"},
    {KEY(data.on_error, CHOICE, "stop"), .choices = "stop|skip",
     .also = "on_bad_sample|errors|skip_errors",
     .help = "Damaged samples.  stop: end the run; skip: count them, list them and leave them out "
             "of the loss"},
    {KEY(data.max_pixels, INT, "134217728"), RANGE(1, 1 << 30),
     .also = "max_image_pixels|pixel_limit|image_limit",
     .help = "Refuse images with more pixels; decoding takes 3 bytes per pixel and loader thread, "
             "6 if EXIF rotates the image",
     .example = "300000000"},
    {KEY(data.max_unpacked_mb, INT, "1024"), RANGE(1, 1 << 24),
     .also = "max_uncompressed|max_gzip|unpacked_limit",
     .help = "Refuse compressed files that unpack to more MiB; 0: the larger of 1024 MiB and 32 "
             "times the size of the file",
     .example = "8192"},
    {KEY(data.threads, INT, "1"), RANGE(0, 64),
     .also = "num_workers|n_workers|n_threads|loader_threads",
     .help = "Loader threads per worker; 0: the worker loads its own batches, as it does with "
             "drawn samples (digits, random_images) if 8 workers or more share each core"},
    {KEY(data.prefetch, INT, "4"), RANGE(1, 1024), .also = "prefetch_factor|buffer",
     .help = "Batches loaded in advance"},
    {KEY(data.resident, CHOICE, "auto"), .choices = "auto|fit|yes|no", .also = "cache|on_device",
     .help =
         "Copy samples of bytes without random changes to the device once, so that it gathers its "
         "own batches, with the same bits; fit, auto: if they take at most a quarter of its "
         "memory"},

    /* train */
    {KEY(train.batch, INT, "128"), RANGE(1, 1 << 24),
     .also = "batch_size|batchsize|global_batch|bs|per_device_train_batch_size|train_batch_size|"
             "micro_batch_size|per_device_batch_size|train_micro_batch_size_per_gpu",
     .help = "Global batch size: samples per step over all workers", .example = "256"},
    {KEY(train.epochs, INT, "5"), RANGE(1, 1e6),
     .also = "n_epochs|num_epochs|max_epochs|num_train_epochs|max_epochs",
     .help = "Number of passes over the training data"},
    {KEY(train.steps, INT, "0"), RANGE(0, 1e12),
     .also = "max_steps|n_steps|num_steps|iterations|iters|max_iters|max_iters",
     .help = "Number of steps, instead of train.epochs; 0: use train.epochs", .example = "1000"},
    {KEY(train.seed, INT, "1"), RANGE(0, EXACT_INT), .also = "random_seed|manual_seed",
     .help = "Seed of the initial parameters, the sample order and dropout"},
    {KEY(train.loss, CHOICE, "cross-entropy"),
     .choices = "cross-entropy|mse|mae|huber|smooth_l1|bce|focal|dice|kl|cosine|infonce|sigmoid",
     .also = "criterion|objective|loss_fn",
     .meant = "ce=cross-entropy|nll=cross-entropy|crossentropyloss=cross-entropy|softmax=cross-"
              "entropy|bcewithlogitsloss=bce|bce_with_logits=bce|binary_cross_entropy=bce|"
              "kldivloss=kl|kl_div=kl|mseloss=mse|l2=mse|l1loss=mae|smoothl1="
              "smooth_l1|"
              "smoothl1loss=smooth_l1|huberloss=huber|clip=infonce|contrastive=infonce|"
              "info_nce=infonce|nt_xent=infonce|siglip=sigmoid",
     .alias = "l1=mae",
     .help =
         "Loss function.  cross-entropy: classes; mae (l1), huber, smooth_l1: values "
         "(data.target); mse: values, or classes as one-hot vectors.  For fields (data.fields) "
         "also "
         "bce: yes-or-no questions; focal: classes or questions; dice: masks; kl: probabilities; "
         "cosine: directions; infonce, sigmoid: two embeddings of each sample, compared with those "
         "of the whole batch (as in CLIP and SigLIP)"},
    {KEY(train.temperature, FLOAT, "0"), RANGE(0, 1000), .also = "tau|logit_temperature",
     .help =
         "infonce, sigmoid: divides the cosine similarities, unless the model has an output for "
         "the scale; 0: 0.07 for infonce, 0.1 for sigmoid",
     .example = "0.05"},
    {KEY(train.logit_bias, FLOAT, "-10"), RANGE(-1000, 1000), .also = "init_logit_bias",
     .help = "sigmoid: added to the scaled similarities, unless the model has an output for it"},
    {KEY(train.metrics, TEXT, "auto"), .joins = true, .also = "metric|eval_metrics",
     .help = "Metrics of each evaluation besides the loss, by name: accuracy, top5 (any topK), "
             "class_accuracy, miou, auc, mae, rmse, r2, perplexity; none; auto and "
             "by_task: those of the task",
     .example = "\"accuracy, top5\""},
    {KEY(train.class_weights, TEXT, "\"\""), .joins = true, .also = "class_weight|weight",
     .help = "cross-entropy: weights of the classes; \"\": all 1", .example = "\"1, 2, 0.5\""},
    {KEY(train.ignore_index, TEXT, "auto"), .also = "ignore|ignore_label",
     .help =
         "cross-entropy, focal, dice: targets with this label do not count; none: all do; auto: "
         "255 for data.format=masks, else none",
     .example = "255"},
    {KEY(train.pos_weight, TEXT, "\"\""), .joins = true, .also = "positive_weight",
     .help = "bce: weight of positive targets, one for all or one for each column; \"\": 1",
     .example = "\"3\""},
    {KEY(train.focal_gamma, FLOAT, "2"), RANGE(0.01, 100), .also = "gamma_focal",
     .help = "focal: power of 1 - p, which lowers the loss of easy samples"},
    {KEY(train.focal_alpha, FLOAT, "0"), RANGE(0, 1), .also = "alpha_focal",
     .help = "focal of questions: weight of positives, 1 - alpha that of negatives; 0: none",
     .example = "0.25"},
    {KEY(train.huber_delta, FLOAT, "1"), RANGE(1e-6, 500), .also = "delta",
     .help = "huber: errors larger than this count linearly; in standard deviations of the target"},
    {KEY(train.smooth_l1_beta, FLOAT, "1"), RANGE(1e-6, 500), .also = "beta",
     .help = "smooth_l1: errors larger than this count linearly, in standard deviations of the "
             "target; equals huber divided by this value"},
    {KEY(train.label_smoothing, FLOAT, "0"), RANGE(0, 0.99), .also = "smoothing",
     .help = "cross-entropy: fraction of the target distributed over all classes",
     .example = "0.1"},
    {KEY(train.clip_norm, FLOAT, "0"), AT_LEAST(0),
     .also = "grad_clip|clip|max_norm|gradient_clip|clip_grad|max_grad_norm|gradient_clip_val|"
             "gradient_clipping|clip_grad_norm",
     .help = "Largest global norm of the gradient; 0: no clipping", .example = "1.0"},
    {KEY(train.clip_value, FLOAT, "0"), AT_LEAST(0), .also = "clip_grad_value|max_value",
     .help = "Largest absolute value of a gradient element, applied before train.clip_norm; 0: no "
             "clipping",
     .example = "0.5"},
    {KEY(train.ema, FLOAT, "0"), RANGE(0, 0.999999), .also = "ema_decay|averaging|model_ema|swa",
     .help = "Decay per step of an exponential moving average of the weights, which is used for "
             "evaluation; 0: none",
     .example = "0.999"},
    {KEY(train.precision, CHOICE, "auto"), .choices = "auto|f32|tf32|bf16|f16",
     .also = "dtype|amp|mixed_precision|autocast|compute_dtype|half|fp16|bf16|fp32|float16|"
             "bfloat16|torch_dtype",
     .meant = "fp16=f16|float16=f16|half=f16|16=f16|16-mixed=f16|bfloat16=bf16|bf16-mixed=bf16|"
              "mixed=bf16|amp=bf16|fp32=f32|float32=f32|32=f32|float=f32|full=f32",
     .help = "Precision of matrix products, convolutions, attention and the operations between "
             "them; parameters, sums and losses are always f32.  tf32: f32 with products in tf32 "
             "(GPU); auto: bf16 on a GPU, else f32"},
    {KEY(train.low_precision_residual, BOOL, "false"), .former = "train.low_stream",
     .also = "bf16_residual|residual_in_fp32|pure_bf16",
     .help = "bf16, f16: keep the residual stream and embeddings in 16 bits, as llm.c does; needs "
             "less memory"},
    {KEY(train.loss_scale, FLOAT, "auto"), RANGE(1, 0x1p32), .word = "auto|dynamic|none",
     .also = "grad_scale|scale|scaler|grad_scaler|init_scale",
     .help =
         "Factor on the loss that keeps small gradients from underflowing in f16; gradients "
         "are divided by it before the update; dynamic: adjusted to the gradients of f16; none: 1; "
         "auto: dynamic for f16, otherwise none",
     .example = "1024"},
    {KEY(train.recompute, TEXT, "none"), AT_LEAST(1),
     .also = "checkpointing|gradient_checkpointing|activation_checkpointing|remat|rematerialize",
     .help = "Recompute activations in the backward pass instead of storing them; the result is "
             "the same.  none; light: cheap operations such as normalizations and activations; "
             "block: everything except block boundaries; a size: keep at most this many bytes per "
             "shard, recomputing the cheapest operations",
     .example = "512MiB"},
    {KEY(train.on_nan, CHOICE, "stop"), .choices = "stop|skip", .also = "nan|on_inf",
     .help = "If the loss is not finite, or the gradient (checked with skip, f16 or "
             "train.clip_norm).  stop: end the run; skip: leave the parameters unchanged in this "
             "step.  Parameters that are not finite are never saved and end the run"},
    {KEY(train.eval_every, INT, "1"), RANGE(0, 1e6),
     .also = "eval_interval|val_every|eval_freq|eval_steps|val_check_interval|check_val_every_n_"
             "epoch|evaluation_strategy",
     .help = "Epochs between evaluations; 0: only at the end"},

    /* optimizer */
    {KEY(optimizer.name, CHOICE, "adamw"),
     .choices = "adagrad|adam|adamw|lamb|lars|lion|rmsprop|sgd", .also = "optim|type|algorithm",
     .meant = "adamw_torch=adamw|adamw_hf=adamw|adamw8bit=adamw|adam_w=adamw|fusedadam=adam|"
              "momentum=sgd|nesterov=sgd|rms=rmsprop",
     .help = "Optimizer; `tutti optimizers` lists them"},
    {KEY(optimizer.lr, FLOAT, "1e-3"), RANGE(0, TTI_MOST_LR),
     .also = "learning_rate|learningrate|rate|step_size|alpha|eta", .help = "Peak learning rate",
     .example = "3e-4"},
    {KEY(optimizer.momentum, FLOAT, "auto"), RANGE(0, 0.9999), .word = "auto", .also = "mu",
     .help = "sgd, lars, rmsprop: momentum; auto: 0.9, rmsprop 0"},
    {KEY(optimizer.weight_decay, FLOAT, "0"), RANGE(0, 1000), .also = "wd|decay|l2|weightdecay",
     .help = "Weight decay, not applied to biases and norms; adamw, lamb, lion: decoupled from the "
             "gradient",
     .example = "0.01"},
    {KEY(optimizer.beta1, FLOAT, "0.9"), RANGE(0, 0.999999), .also = "betas|b1",
     .help = "adam, adamw, lamb, lion: decay of the running mean of the gradient"},
    {KEY(optimizer.beta2, FLOAT, "auto"), RANGE(0, 0.99999999), .word = "auto", .also = "b2",
     .help = "adam, adamw, lamb: decay of the running mean of the squared gradient; lion: of the "
             "stored mean; auto: 0.999, lion 0.99"},
    {KEY(optimizer.alpha, FLOAT, "0.99"), RANGE(0, 0.99999999), .also = "rho|smoothing_constant",
     .help = "rmsprop: decay of the running mean of the squared gradient"},
    {KEY(optimizer.eps, FLOAT, "auto"), RANGE(1e-30, 1), .word = "auto", .also = "epsilon",
     .help = "Added to the denominator; auto: 1e-8, adagrad 1e-10, lamb 1e-6"},
    {KEY(optimizer.trust, FLOAT, "1e-3"), RANGE(1e-12, 1000),
     .also = "trust_coefficient|trust_coeff|eeta", .help = "lars: trust coefficient"},
    {KEY(optimizer.nesterov, BOOL, "false"), .help = "sgd: Nesterov momentum"},
    {KEY(optimizer.l1, FLOAT, "0"), RANGE(0, 1000), .also = "lasso|l1_decay|l1_penalty",
     .help = "L1 penalty: this times the sign of each weight is added to its gradient, for "
             "parameters with weight decay",
     .example = "1e-5"},
    {KEY(optimizer.scale_lr, CHOICE, "none"), .choices = "none|linear|sqrt",
     .also = "lr_scaling|scale|auto_scale_lr",
     .help = "Multiply the learning rate by train.batch / base_batch, or by its square root"},
    {KEY(optimizer.base_batch, INT, "256"), RANGE(1, 1 << 24),
     .also = "base_batch_size|reference_batch",
     .help = "Batch size that optimizer.lr was chosen for, with optimizer.scale_lr"},
    {KEY(optimizer.groups, TEXT_LIST, "[]"), AT_LEAST(1),
     .also = "param_groups|parameter_groups|lr_mult",
     .help = "Learning rate (a factor) and weight decay by parameter name: \"PATTERN: lr=2 "
             "decay=0\"; * matches any text, ? one character; the last match wins",
     .example = "[\"*.bias: lr=2\", \"bn*: decay=0\"]"},
    {KEY(optimizer.freeze, TEXT_LIST, "[]"), AT_LEAST(1), .also = "frozen|freeze_layers|fixed",
     .help = "Patterns of parameters that are not updated", .example = "[\"conv1.*\"]"},

    /* schedule */
    {KEY(schedule.name, CHOICE, "constant"),
     .choices = "constant|cosine|cyclic|exponential|linear|multi_step|one_cycle|plateau|polynomial|"
                "step|wsd",
     .also = "lr_schedule|lr_scheduler|scheduler|type|policy|lr_scheduler_type",
     .meant = "cosine_annealing=cosine|cosineannealinglr=cosine|cosine_with_restarts=cyclic|"
              "onecycle=one_cycle|onecyclelr=one_cycle|steplr=step|multisteplr=multi_step|"
              "reducelronplateau=plateau|reduce_on_plateau=plateau|exponentiallr=exponential|"
              "cycliclr=cyclic|poly=polynomial|none=constant|fixed=constant",
     .help = "Learning rate schedule after warm-up; wsd: warm-up, stable, decay; plateau: reduce "
             "when the validation loss stops improving"},
    {KEY(schedule.warmup_steps, INT, "0"), RANGE(0, 1e12),
     .also = "warmup|warm_up|warmup_iters|n_warmup", .help = "Warm-up steps", .example = "200"},
    {KEY(schedule.warmup_shape, CHOICE, "linear"), .choices = "linear|constant|exponential|cosine",
     .also = "warmup_type|warmup_mode|warmup_method",
     .help = "Shape of the warm-up; constant: the rate stays at its start value"},
    {KEY(schedule.warmup_start, FLOAT, "0"), RANGE(0, 1),
     .also = "warmup_factor|start_factor|warmup_ratio",
     .help = "Rate at the start of warm-up, as a fraction of the rate at its end",
     .example = "0.01"},
    {KEY(schedule.steps, INT, "auto"), RANGE(0, 1e12), .word = "auto",
     .also = "n_steps|total_steps|max_steps|t_max|length",
     .help =
         "Length of the schedule in steps; 0: that of train.epochs; auto: train.steps if only that "
         "is given, else that of train.epochs, so that a shortened run keeps its schedule"},
    {KEY(schedule.unit, CHOICE, "epochs"), .choices = "epochs|steps", .also = "interval|by",
     .help = "step, multi_step, exponential: unit of the schedule"},
    {KEY(schedule.step_size, INT, "1"), RANGE(1, 1e12), .also = "drop_every|step_epochs|period",
     .help = "step: epochs (or steps) between reductions"},
    {KEY(schedule.milestones, INT_LIST, "[]"), RANGE(1, 1e12), .also = "drops|steps_at|boundaries",
     .help = "multi_step: epochs (or steps) at which the rate is reduced",
     .example = "[30, 60, 90]"},
    {KEY(schedule.gamma, FLOAT, "auto"), RANGE(0, 1), .word = "auto", .also = "factor|drop",
     .help =
         "step, multi_step, plateau: factor of a reduction; exponential: factor per epoch (or "
         "step); cyclic exp_range: factor per step; auto: 0.1, exponential 0.95, cyclic 0.9999"},
    {KEY(schedule.min_lr, FLOAT, "0"), RANGE(0, 1000), .also = "eta_min|final_lr|end_lr|base_lr",
     .help = "cosine, linear, polynomial, wsd: final learning rate; cyclic, plateau: lowest "
             "learning rate"},
    {KEY(schedule.power, FLOAT, "1"), RANGE(0, 100), .also = "exponent|degree",
     .help = "polynomial: exponent", .example = "2"},
    {KEY(schedule.cycle_steps, INT, "4000"), RANGE(2, 1e12),
     .also = "cycle_length|step_size_up|period_steps", .help = "cyclic: steps per cycle"},
    {KEY(schedule.cycle, CHOICE, "triangular"), .choices = "triangular|triangular2|exp_range",
     .also = "mode|cycle_mode",
     .help = "cyclic: triangular: all cycles have the same height; triangular2: each has half the "
             "height; exp_range: the height falls by gamma per step"},
    {KEY(schedule.rise, FLOAT, "auto"), RANGE(0, 1), .word = "auto", .also = "pct_start|rising|up",
     .help =
         "one_cycle, cyclic: fraction of a cycle in which the rate rises; auto: 0.3, cyclic 0.5"},
    {KEY(schedule.div, FLOAT, "25"), RANGE(1, 1e9), .also = "div_factor",
     .help = "one_cycle: the initial rate is lr / div"},
    {KEY(schedule.final_div, FLOAT, "1e4"), RANGE(1, 1e12), .also = "final_div_factor",
     .help = "one_cycle: the final rate is lr / div / final_div"},
    {KEY(schedule.anneal, CHOICE, "cosine"), .choices = "cosine|linear|sqrt",
     .also = "anneal_strategy|decay_type|shape",
     .help = "one_cycle, wsd: shape of the decay; sqrt: 1 - sqrt(progress)"},
    {KEY(schedule.decay_fraction, FLOAT, "0.2"), RANGE(0, 1), .former = "schedule.decay_share",
     .also = "decay_frac|cooldown_frac|decay_ratio",
     .help = "wsd: fraction of the schedule spent in decay"},
    {KEY(schedule.patience, INT, "10"), RANGE(0, 1e6),
     .help = "plateau: evaluations without improvement before the rate is reduced"},
    {KEY(schedule.cooldown, INT, "0"), RANGE(0, 1e6),
     .help = "plateau: evaluations after a reduction that are not counted"},
    {KEY(schedule.threshold, FLOAT, "1e-4"), RANGE(0, 0.999), .also = "min_delta|tolerance",
     .help = "plateau: smallest relative decrease of the loss that counts as improvement"},

    /* parallel */
    {KEY(parallel.workers, INT, "auto"), RANGE(1, TTI_MAX_WORKERS), .word = "auto",
     .also = "n|n_workers|num_workers|world_size|n_ranks|nproc|num_processes|nproc_per_node|num_"
             "replicas",
     .help = "Number of workers; auto: one per GPU, or one per core", .example = "4"},
    {KEY(parallel.place, CHOICE, "threads"), .choices = "threads|processes",
     .also = "placement|strategy|launcher",
     .meant = "ddp=processes|fork=processes|spawn=processes|multiprocessing=processes|dp=threads|"
              "data_parallel=threads|fsdp=processes",
     .help = "Run workers as threads of one process, or as processes"},
    {KEY(parallel.shards, INT, "auto"), RANGE(1, TTI_MAX_WORKERS), .word = "auto",
     .also = "v|n_shards|virtual_shards|num_shards|gradient_accumulation|gradient_accumulation_"
             "steps|accumulate_grad_batches|accumulation_steps|accum|num_microbatches",
     .help = "Number of equal parts of the batch (micro-batches), a power of two; the result "
             "depends on it and not on the number of workers; auto: on the host the larger of "
             "cores and workers, on GPUs the number of workers, rounded up to a power of two",
     .example = "8"},
    {KEY(parallel.load_weights, TEXT, "auto"), AT_LEAST(1), .former = "parallel.shares",
     .also = "weights|balance|load_balance|worker_weights|split|uneven",
     .help = "How shards are distributed over the workers.  equal: evenly; measured: by the speed "
             "measured at the start and during the run; weights such as 3,1: in proportion, for "
             "workers of unequal "
             "speed.  In exact mode the bits are the same; auto: measured if the GPUs are of "
             "different kinds, else equal",
     .example = "3,1"},
    {KEY(parallel.ahead, INT, "auto"), RANGE(1, TTI_MAX_AHEAD), .word = "auto|best",
     .also = "steps_per_launch|scan",
     .help = "GPU with resident samples: steps queued before the results of the first one are "
             "read; small steps are launched several at a time; best, auto: as many as hide the "
             "work of "
             "the host.  Does not change the result"},
    {KEY(parallel.mode, CHOICE, "exact"), .choices = "exact|fast",
     .also = "exact|deterministic|precision|reproducible",
     .help = "exact: the same bits for any number of workers; fast: the same mathematics, "
             "additions in any order"},
    {KEY(parallel.sync_batch_norm, BOOL, "false"), .also = "sync_bn|syncbn|sync_batchnorm",
     .help = "Compute batch norm statistics over the whole batch instead of each shard"},
    {KEY(parallel.algorithm, CHOICE, "auto"), .choices = "auto|by_size|ring|tree|direct",
     .also = "all_reduce|allreduce|algo",
     .help =
         "All-reduce algorithm; by_size, auto: the fastest for each size; ring: fast mode only.  "
         "Between GPUs: by_size, direct: kernels that access each other's memory, or tree if they "
         "cannot; tree: the "
         "same inside a host, NCCL between hosts; ring: NCCL"},
    {KEY(parallel.bucket_mb, FLOAT, "auto"), RANGE(0.0009765625, 4096), .word = "auto|by_link",
     .also = "bucket|bucket_size|bucket_cap_mb",
     .help =
         "Size of a gradient bucket in MiB; by_link, auto: from the link and the size of the model "
         "(docs/parallelism.md)"},
    {KEY(parallel.wire, CHOICE, "auto"), .choices = "auto|f32|bf16",
     .also = "wire_dtype|reduce_dtype|comm_dtype|grad_reduce_dtype|grad_dtype|bf16_gradients",
     .help = "Dtype of gradients between workers.  bf16: half the bytes; sums are computed in f32, "
             "and in exact mode every partial sum is rounded, also inside a worker, so that the "
             "result does not depend on the number of workers; auto: f32"},
    {KEY(parallel.compress, CHOICE, "none"), .choices = "none|bf16|f16|topk|powersgd",
     .old_choice = "bf16", .instead = "parallel.wire=bf16",
     .also = "compression|grad_compression|comm_hook",
     .help =
         "Fast mode: compression of gradients between workers.  f16: rounded to 16 bits, summed in "
         "f32, rounded again; topk: the largest elements of each matrix; powersgd: a low-rank "
         "approximation of each matrix; the rest is added to the next step's gradient"},
    {KEY(parallel.topk, FLOAT, "0.01"), RANGE(1e-6, 0.5),
     .also = "top_k|sparsity|density|compression_ratio|k_ratio",
     .help = "topk: fraction of each matrix's elements that is sent"},
    {KEY(parallel.rank, INT, "2"), RANGE(1, 256),
     .also = "powersgd_rank|matrix_approximation_rank|low_rank",
     .help = "powersgd: rank of the approximation", .example = "4"},
    {KEY(parallel.compress_after, INT, "0"), RANGE(0, 1e12),
     .also = "start_powersgd_iter|compress_start|warmup_steps_compress",
     .help = "topk, powersgd: uncompressed steps before compression starts", .example = "200"},
    {KEY(parallel.sync, CHOICE, "all-reduce"), .choices = "all-reduce|local|parameter-server",
     .also = "ps|parameter_server|aggregation|synchronization|update",
     .help = "all-reduce: every worker updates after an all-reduce of the gradients; local: every "
             "worker updates with its own gradients, and parameters are averaged periodically "
             "(local SGD); parameter-server: server threads keep parameters and optimizer state "
             "and make the update"},
    {KEY(parallel.average_every, INT, "8"), RANGE(1, 1e9),
     .also = "local_steps|sync_every|h_steps|averaging_period",
     .help = "local: steps between two averagings"},
    {KEY(parallel.average_after, INT, "0"), RANGE(0, 1e12),
     .also = "start_local_sgd_iter|post_local",
     .help = "local: steps with all-reduce before local SGD starts (post-local SGD)",
     .example = "200"},
    {KEY(parallel.average, CHOICE, "parameters"), .choices = "parameters|all",
     .also = "average_momentum|average_state",
     .help = "local: what is averaged: parameters, or all: the optimizer state as well (otherwise "
             "it is averaged only for checkpoints and evaluations)"},
    {KEY(parallel.servers, INT, "1"), RANGE(1, TTI_MAX_WORKERS),
     .also = "n_servers|num_servers|num_ps|ps_num|n_ps",
     .help = "parameter-server: number of server threads, each with a range of the parameters.  "
             "With workers as processes, the first ones are the servers; with a divided model, "
             "this many for each part, or 1 if its replicas are asynchronous",
     .example = "2"},
    {KEY(parallel.staleness, INT, "0"), RANGE(0, 1e6), .word = "unbounded",
     .also = "async|asynchronous|max_staleness|delay|ssp",
     .help = "parameter-server: 0: synchronous, with the bits of all-reduce.  More: asynchronous: "
             "every worker trains on its own batches, and while one computes a gradient at most "
             "this many other steps may start; unbounded: no limit.  Needs parallel.mode=fast",
     .example = "4"},
    {KEY(parallel.backup_workers, INT, "0"), RANGE(0, TTI_MAX_WORKERS - 1),
     .also = "n_backup|backup|drop_slowest|stragglers",
     .help = "parameter-server, synchronous: apply a step when gradients of all but this many "
             "workers have arrived; late gradients are dropped.  Needs parallel.mode=fast",
     .example = "1"},
    {KEY(parallel.replay, TEXT, "\"\""), .also = "replay_order|arrivals|repeat",
     .help = "Run folder of an asynchronous run of the same job; its gradients are applied in the "
             "same order, with the same result",
     .example = "runs/first"},
    {KEY(parallel.copies, CHOICE, "one"), .choices = "one|each",
     .also = "replicas|shared_parameters|share_memory",
     .help = "one: threads of one process on CPUs share one copy of parameters and optimizer "
             "state, and each updates its part; each: every worker has its own copy, so that a "
             "wrong result of one core is detected.  The bits are the same"},
    {KEY(parallel.zero, INT, "0"), RANGE(0, 3),
     .also = "zero_stage|zero_optimization|shard_optimizer|sharded_optimizer|stage",
     .help = "ZeRO stage.  1: each worker stores and updates its partition of the optimizer state; "
             "2: also of the reduced gradients; 3: also of the parameters, which are gathered "
             "while a layer uses them.  The bits are the same, with less memory"},
    {KEY(parallel.offload, CHOICE, "none"), .choices = "none|optimizer",
     .also = "offload_optimizer|zero_offload|cpu_offload|optimizer_offload|offload_device",
     .help = "optimizer: keep optimizer state in host memory and update on the host; the GPU keeps "
             "parameters, gradients and activations.  The same bits as on CPUs"},
    {KEY(parallel.data, INT, "auto"), RANGE(1, TTI_MAX_WORKERS), .word = "auto",
     .also = "dp|data_parallel|data_parallel_size|replicas",
     .help = "Number of model replicas, each with a part of the batch; workers = data x pipeline x "
             "tensor; auto: from parallel.workers",
     .example = "2"},
    {KEY(parallel.tensor, INT, "1"), RANGE(1, TTI_MAX_WORKERS),
     .also = "tp|tensor_parallel|tensor_parallel_size|tensor_model_parallel_size|model_parallel",
     .help = "Tensor parallel size: this many workers divide the weights, optimizer state and "
             "products of each layer; workers = data x pipeline x tensor",
     .example = "2"},
    {KEY(parallel.uneven, CHOICE, "refuse"), .choices = "refuse|whole", .also = "uneven_layers",
     .help = "Layers whose heads, channels or features parallel.tensor does not divide.  refuse: "
             "end with the numbers that would work; whole: compute them on every worker"},
    {KEY(parallel.pipeline, INT, "1"), RANGE(1, TTI_MAX_WORKERS),
     .also = "pp|stages|pipeline_stages|pipeline_parallel|pipeline_model_parallel_size",
     .help = "Number of pipeline stages: the layers are divided over this many workers, and shards "
             "pass through the stages one after the other",
     .example = "4"},
    {KEY(parallel.pipeline_chunks, INT, "1"), RANGE(1, 16),
     .also = "chunks|interleave|virtual_pipeline|virtual_pipeline_stages|interleaved",
     .help = "Model chunks per pipeline stage (interleaved schedule): shorter waits between "
             "stages, more stored and sent activations",
     .example = "2"},
    {KEY(parallel.min_workers, INT, "0"), RANGE(0, TTI_MAX_WORKERS),
     .also = "min_nodes|min_nnodes|min_replicas|elastic",
     .help =
         "Elastic run: tutti scale may change the number of workers down to this; when a worker "
         "process dies, the others continue from memory if at least so many are left, and "
         "run.restarts counts workers that are started again; 0: all workers end together",
     .example = "2"},
    {KEY(parallel.max_workers, INT, "0"), RANGE(0, TTI_MAX_WORKERS),
     .also = "max_nodes|max_nnodes|max_replicas",
     .help = "Elastic run: the largest number of workers that tutti scale may ask for, at most "
             "parallel.shards replicas; 0: parallel.workers",
     .example = "8"},
    {KEY(parallel.spares, INT, "0"), RANGE(0, TTI_MAX_WORKERS), .also = "spare_workers|standby",
     .help = "Elastic run: additional processes that have loaded the data and wait to take the "
             "place of a lost worker, on each host",
     .example = "1"},
    {KEY(parallel.hostfile, TEXT, "\"\""), .also = "host_file|machinefile|discovery_file",
     .help = "Elastic run: a file with lines HOST slots=N; whenever it changes, the slots of a "
             "host become its number of workers",
     .example = "hosts"},
    {KEY(parallel.mirror, BOOL, "true"), .also = "in_memory_checkpoint|memory_checkpoint",
     .help = "Elastic run with parallel.zero, parallel.tensor, parallel.pipeline or a parameter "
             "server: keep parameters and optimizer state of the last two "
             "steps in shared memory, on several hosts also in that of a neighbor, so that the "
             "partition of a lost worker or host is not lost; false: continue from the last "
             "checkpoint"},
    {KEY(parallel.verify_every, INT, "0"), RANGE(0, 1000000000),
     .also = "sdc|sdc_check|verify|silent_data_corruption",
     .help = "Every so many steps one worker computes a shard of another worker again and compares "
             "all layers bit by bit, which finds silent data corruption; 0: never",
     .example = "1000"},
    {KEY(parallel.on_corruption, CHOICE, "stop"), .choices = "stop|exclude",
     .help = "If parallel.verify_every finds that a worker computed wrongly.  stop: end the run; "
             "exclude: an elastic run goes on without that worker"},
    {KEY(parallel.timeout_ms, INT, "60000"), RANGE(1, 86400000), .also = "timeout",
     .help = "Longest wait for another worker"},
    {KEY(parallel.phase_timeout_ms, INT, "600000"), RANGE(1, 86400000),
     .help = "Longest wait for a worker that saves, evaluates, or loads data or the model, and for "
             "a batch of data"},
    {KEY(parallel.backend, CHOICE, "auto"), .choices = "auto|fastest|cpu|reference|none",
     .also = "device|accelerator",
     .help =
         "Kernels; fastest, auto: the fastest for parallel.devices; cpu: the fastest of the host; "
         "reference: plain C; none: computes nothing, to measure the other costs of many workers"},
    {KEY(parallel.devices, TEXT, "auto"), AT_LEAST(1),
     .also = "gpu|gpus|cuda|cuda_visible_devices|device_ids|num_gpus|n_gpus|devices",
     .help = "Where to compute: cpu, gpu (all GPUs), or GPU numbers.  A list with cpu, such as "
             "0,cpu, puts one worker on each GPU and all others on the host (fast mode); auto: "
             "GPUs if there are any",
     .example = "0,1"},
    {KEY(parallel.share_devices, BOOL, "true"), .also = "oversubscribe|gpu_sharing|share_gpus",
     .help = "More workers on a machine than it has GPUs.  true: they take turns, with a warning; "
             "false: refuse"},

    /* run */
    {KEY(run.dir, TEXT, "auto"), AT_LEAST(1),
     .also = "output|out_dir|output_dir|log_dir|save_dir|name",
     .help = "Run folder; auto: the next free runs/NAME-N", .example = "runs/first"},
    {KEY(run.checkpoint_every, INT, "0"), RANGE(-1, 1e12),
     .also = "save_every|checkpoint_interval|save_steps|checkpoint",
     .help = "Steps between checkpoints; 0: after each epoch; -1: only at the end"},
    {KEY(run.keep, INT, "2"), RANGE(2, 1e6),
     .also = "keep_last|n_keep|save_total_limit|max_to_keep",
     .help = "Number of checkpoints kept; at least two, so that a complete one always exists"},
    {KEY(run.log_every, INT, "0"), RANGE(0, 1e12),
     .also = "log_interval|log_steps|print_every|logging_steps",
     .help = "Steps between step records in metrics.jsonl; 0: about twice a second"},
    {KEY(run.text_samples, INT, "3"), RANGE(0, 16), .also = "samples|generations|n_texts",
     .help = "Number of texts in report.html that a language model continues from the test split, "
             "in at most two seconds; 0: none"},
    {KEY(run.restarts, INT, "0"), RANGE(0, 1e6), .also = "max_restarts|restart|retries",
     .help = "Times that worker processes are restarted after a failure, from the last checkpoint; "
             "the same failure in the same step is retried only once",
     .example = "3"},
    {KEY(run.progress, BOOL, "true"), .also = "verbose|progress_bar|tqdm",
     .help = "Show progress on standard error"},
};

static const tti_option_answer answers[] = {
    {"resume|resume_from_checkpoint|ckpt_path|continue",
     "to continue a run: tutti train --resume RUN"},
    {"shuffle", "the training samples are reshuffled in every epoch, with train.seed"},
    {"drop_last", "the last batch of an epoch is used even if it is short"},
    {"pin_memory|persistent_workers|find_unused_parameters|compile|torch_compile|jit",
     "no setting is needed: it is done wherever it helps"},
    {"early_stopping|load_best_model_at_end",
     "there is no early stopping; train for fewer train.epochs, and resume with more if needed"},
    {"num_nodes|nnodes|master_addr|master_port|node_rank",
     "start several hosts with mpirun, srun or torchrun (docs/clusters.md)"},
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

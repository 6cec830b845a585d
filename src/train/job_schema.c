/* job_schema.c - every key of a job file: the one place to add one.
 *
 * A row and a field of tti_job_config (job.h) make a key: parser, overrides, messages, `tutti
 * config`, the JSON schema and docs/job.md follow from the row.  What concerns two keys at once is
 * in job_conflicts.c. */
#include "train/job.h"

#define AT(field) offsetof(tti_job_config, field)
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
    {"model.name", TTI_OPTION_CHOICE, AT(model.name), "lenet", .choices = "lenet|mlp",
     .also = "arch|architecture|net|network|type", .help = "The network"},
    {"model.hidden", TTI_OPTION_INT_LIST, AT(model.hidden), "[512, 512]", RANGE(1, 1 << 20),
     .also = "layers|widths|hidden_size|hidden_sizes|hidden_dims",
     .help = "mlp: widths of the hidden layers; [] for none", .example = "[256, 128]"},
    {"model.dropout", TTI_OPTION_FLOAT, AT(model.dropout), "0", RANGE(0, 0.99),
     .also = "drop|p_drop|drop_rate",
     .help = "Probability of dropping an element, where the model has dropout", .example = "0.1"},

    /* data */
    {"data.format", TTI_OPTION_CHOICE, AT(data.format), "digits", .choices = "digits|idx",
     .also = "type|dataset|kind|name",
     .help = "digits: drawn by the program itself; idx: MNIST's files, plain or .gz"},
    {"data.dir", TTI_OPTION_TEXT, AT(data.dir), "\"\"", .also = "path|root|folder|data_dir",
     .help = "idx: folder of the files, relative to the current directory",
     .example = "data/mnist"},
    {"data.n_train", TTI_OPTION_INT, AT(data.n_train), "0", RANGE(0, 1e9),
     .also = "train_size|n_samples|samples",
     .help = "Training samples to use; 0: idx all, digits 20000", .example = "10000"},
    {"data.n_test", TTI_OPTION_INT, AT(data.n_test), "0", RANGE(0, 1e9),
     .also = "test_size|n_val|val_size", .help = "Test samples to use; 0: idx all, digits 4000",
     .example = "2000"},
    {"data.mean", TTI_OPTION_FLOAT, AT(data.mean), "0.1307", RANGE(-1000, 1000),
     .help = "Subtracted from pixel/255"},
    {"data.std", TTI_OPTION_FLOAT, AT(data.std), "0.3081", RANGE(1e-6, 1000), .also = "stddev",
     .help = "Divides what is left"},
    {"data.threads", TTI_OPTION_INT, AT(data.threads), "1", RANGE(0, 64),
     .also = "num_workers|n_workers|n_threads|loader_threads",
     .help = "Loader threads per worker; 0: the worker loads its own batches"},
    {"data.prefetch", TTI_OPTION_INT, AT(data.prefetch), "4", RANGE(1, 1024),
     .also = "prefetch_factor|buffer", .help = "Batches made ahead"},

    /* train */
    {"train.batch", TTI_OPTION_INT, AT(train.batch), "128", RANGE(1, 1 << 24),
     .also = "batch_size|batchsize|global_batch|bs",
     .help = "Samples per step over all workers together, whatever their number", .example = "256"},
    {"train.epochs", TTI_OPTION_INT, AT(train.epochs), "5", RANGE(1, 1e6),
     .also = "n_epochs|num_epochs|max_epochs", .help = "Stop after so many passes over the data"},
    {"train.steps", TTI_OPTION_INT, AT(train.steps), "0", RANGE(0, 1e12),
     .also = "max_steps|n_steps|num_steps|iterations|iters|max_iters",
     .help = "Stop after so many steps instead; 0: by epochs", .example = "1000"},
    {"train.seed", TTI_OPTION_INT, AT(train.seed), "1", RANGE(0, EXACT_INT),
     .also = "random_seed|manual_seed",
     .help = "Of the initial parameters, the order of samples and dropout"},
    {"train.loss", TTI_OPTION_CHOICE, AT(train.loss), "cross-entropy",
     .choices = "cross-entropy|mse", .also = "criterion|objective|loss_fn",
     .help = "What is made small"},
    {"train.label_smoothing", TTI_OPTION_FLOAT, AT(train.label_smoothing), "0", RANGE(0, 0.99),
     .also = "smoothing", .help = "cross-entropy: share of the target spread over all classes",
     .example = "0.1"},
    {"train.clip_norm", TTI_OPTION_FLOAT, AT(train.clip_norm), "0", AT_LEAST(0),
     .also = "grad_clip|clip|max_norm|gradient_clip|clip_grad|max_grad_norm",
     .help = "Largest norm of all gradients together; 0: no clipping", .example = "1.0"},
    {"train.on_nan", TTI_OPTION_CHOICE, AT(train.on_nan), "stop", .choices = "stop|skip",
     .also = "nan|on_inf",
     .help = "When the loss or a gradient is not finite: end the run, or "
             "leave the parameters as they are for that step"},
    {"train.eval_every", TTI_OPTION_INT, AT(train.eval_every), "1", RANGE(0, 1e6),
     .also = "eval_interval|val_every|eval_freq",
     .help = "Epochs between evaluations; 0: only at the end"},

    /* optimizer */
    {"optimizer.name", TTI_OPTION_CHOICE, AT(optimizer.name), "adamw", .choices = "sgd|adam|adamw",
     .also = "optim|type|algorithm", .help = "The rule"},
    {"optimizer.lr", TTI_OPTION_FLOAT, AT(optimizer.lr), "1e-3", RANGE(0, 1000),
     .also = "learning_rate|learningrate|rate|step_size|alpha|eta",
     .help = "Learning rate, at its highest", .example = "3e-4"},
    {"optimizer.momentum", TTI_OPTION_FLOAT, AT(optimizer.momentum), "0.9", RANGE(0, 0.9999),
     .also = "mu", .help = "sgd: share of the last direction that is kept"},
    {"optimizer.weight_decay", TTI_OPTION_FLOAT, AT(optimizer.weight_decay), "0", RANGE(0, 1000),
     .also = "wd|decay|l2|weightdecay",
     .help = "On weights, not on biases and norms; adamw: decoupled from the gradient",
     .example = "0.01"},
    {"optimizer.beta1", TTI_OPTION_FLOAT, AT(optimizer.beta1), "0.9", RANGE(0, 0.999999),
     .also = "betas|b1", .help = "adam, adamw: decay of the mean"},
    {"optimizer.beta2", TTI_OPTION_FLOAT, AT(optimizer.beta2), "0.999", RANGE(0, 0.99999999),
     .also = "b2", .help = "adam, adamw: decay of the mean square"},
    {"optimizer.eps", TTI_OPTION_FLOAT, AT(optimizer.eps), "1e-8", RANGE(1e-30, 1),
     .also = "epsilon", .help = "adam, adamw: added to the root"},
    {"optimizer.nesterov", TTI_OPTION_BOOL, AT(optimizer.nesterov), "false",
     .help = "sgd: look ahead along the momentum"},

    /* schedule */
    {"schedule.name", TTI_OPTION_CHOICE, AT(schedule.name), "constant",
     .choices = "constant|step|cosine", .also = "lr_schedule|lr_scheduler|scheduler|type|policy",
     .help = "The curve after the warm-up"},
    {"schedule.warmup_steps", TTI_OPTION_INT, AT(schedule.warmup_steps), "0", RANGE(0, 1e12),
     .also = "warmup|warm_up|warmup_iters|n_warmup",
     .help = "Steps in which the learning rate grows from 0", .example = "200"},
    {"schedule.steps", TTI_OPTION_INT, AT(schedule.steps), "auto", RANGE(0, 1e12), .word = "auto",
     .also = "n_steps|total_steps|max_steps|t_max|length",
     .help =
         "Steps from the first to the last learning rate; 0: those of train.epochs; auto: "
         "train.steps if only that is given, else train.epochs, so that a run that is cut short "
         "keeps its curve"},
    {"schedule.step_size", TTI_OPTION_INT, AT(schedule.step_size), "1", RANGE(1, 1e6),
     .also = "drop_every|step_epochs|period", .help = "step: epochs between drops"},
    {"schedule.gamma", TTI_OPTION_FLOAT, AT(schedule.gamma), "0.1", RANGE(0, 1),
     .also = "factor|drop", .help = "step: factor of a drop"},
    {"schedule.min_lr", TTI_OPTION_FLOAT, AT(schedule.min_lr), "0", RANGE(0, 1000),
     .also = "eta_min|final_lr|end_lr", .help = "cosine: the last learning rate"},

    /* parallel */
    {"parallel.workers", TTI_OPTION_INT, AT(parallel.workers), "auto", RANGE(1, TTI_MAX_WORKERS),
     .word = "auto", .also = "n|n_workers|num_workers|world_size|n_ranks|nproc|gpus|devices",
     .help = "Workers; auto: one per core", .example = "4"},
    {"parallel.place", TTI_OPTION_CHOICE, AT(parallel.place), "threads",
     .choices = "threads|processes", .also = "placement|strategy|launcher",
     .help = "Workers are threads of one process, or processes"},
    {"parallel.shards", TTI_OPTION_INT, AT(parallel.shards), "auto", RANGE(1, 4096), .word = "auto",
     .also = "v|n_shards|virtual_shards|num_shards",
     .help = "Equal parts of the batch, a power of two; the result depends on it and not on the "
             "number of workers; auto: the smallest that serves the workers",
     .example = "8"},
    {"parallel.mode", TTI_OPTION_CHOICE, AT(parallel.mode), "exact", .choices = "exact|fast",
     .also = "exact|deterministic|precision|reproducible",
     .help = "exact: the same bits for any number of workers; fast: the same mathematics"},
    {"parallel.algorithm", TTI_OPTION_CHOICE, AT(parallel.algorithm), "auto",
     .choices = "auto|ring|tree|direct", .also = "all_reduce|allreduce|algo",
     .help = "How sums travel between workers; auto: by size; ring: fast mode only"},
    {"parallel.bucket_mb", TTI_OPTION_FLOAT, AT(parallel.bucket_mb), "4", RANGE(0.0009765625, 4096),
     .also = "bucket|bucket_size|bucket_cap_mb", .help = "MiB of gradients that travel together"},
    {"parallel.timeout_ms", TTI_OPTION_INT, AT(parallel.timeout_ms), "60000", RANGE(1, 86400000),
     .also = "timeout", .help = "Longest wait for another worker"},
    {"parallel.backend", TTI_OPTION_CHOICE, AT(parallel.backend), "auto",
     .choices = "auto|cpu|reference", .also = "device|accelerator",
     .help = "Kernels: the fastest for this machine, or plain C"},

    /* run */
    {"run.dir", TTI_OPTION_TEXT, AT(run.dir), "auto", AT_LEAST(1),
     .also = "output|out_dir|output_dir|log_dir|save_dir|name",
     .help = "The run folder; auto: the next free runs/NAME-N", .example = "runs/first"},
    {"run.checkpoint_every", TTI_OPTION_INT, AT(run.checkpoint_every), "0", RANGE(-1, 1e12),
     .also = "save_every|checkpoint_interval|save_steps|checkpoint",
     .help = "Steps between checkpoints; 0: at the end of each epoch; -1: only at the end"},
    {"run.keep", TTI_OPTION_INT, AT(run.keep), "2", RANGE(2, 1e6),
     .also = "keep_last|n_keep|save_total_limit|max_to_keep",
     .help = "Checkpoints kept; two, so that one is whole whatever happens"},
    {"run.log_every", TTI_OPTION_INT, AT(run.log_every), "0", RANGE(0, 1e12),
     .also = "log_interval|log_steps|print_every|logging_steps",
     .help = "Steps between step records in metrics.jsonl; 0: about twice a second"},
    {"run.progress", TTI_OPTION_BOOL, AT(run.progress), "true", .also = "verbose|progress_bar|tqdm",
     .help = "Show progress on standard error"},
};

const tti_option_table tti_job_table = {
    .rows = rows,
    .n_rows = TTI_COUNT(rows),
    .groups = groups,
    .n_groups = TTI_COUNT(groups),
    .n_config_bytes = sizeof(tti_job_config),
};

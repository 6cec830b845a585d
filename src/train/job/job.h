/* job.h - a job as the trainer sees it: every value of the schema table, typed.
 *
 * The schema table (job_schema.c) gives each key its type, default, range and help.  Parser,
 * overrides, `config show`, JSON schema and reference page are generated from that table. */
#ifndef TTI_TRAIN_JOB_H
#define TTI_TRAIN_JOB_H

#include "base/options/option.h"
#include "tutti/job.h"

enum {
    TTI_NO_MASK_TOKEN = -3, /* the word "none" of data.mask_token */
    TTI_NO_LOSS_SCALE = -3  /* "none" for train.loss_scale */
};

enum { TTI_MAX_WORKERS = 65536 }; /* maximum in a job file; run_limits.h has the limits of a run */

/* Text fields are NUL-terminated.  -1, -2, ... stand for the words of the schema, -1 for "auto". */
typedef struct tti_job_config {
    struct {
        char name[TTI_TEXT_MAX];    /* a row of models/model_table.c */
        char plugin[TTI_TEXT_MAX];  /* a shared object with the model instead; "": none */
        char file[TTI_TEXT_MAX];    /* a model that another framework exported; "": none */
        char inputs[TTI_TEXT_MAX];  /* for file: "INPUT=FIELD, ..."; "": by name */
        char loss[TTI_TEXT_MAX];    /* for file: the output with the loss: auto, none or a number */
        char metrics[TTI_TEXT_MAX]; /* for file: "NAME=OUTPUT, NAME=SUM/COUNT"; "": none */
        tti_int_list hidden;        /* mlp: widths of the hidden layers */
        double dropout;             /* probability, for models that have dropout */
        double drop_path;           /* probability, for models that have stochastic depth */
        char stem[TTI_TEXT_MAX];    /* imagenet | cifar */
        double width_multiplier;    /* factor of channels, for models that have it */
        bool batch_norm;            /* vgg */
        bool zero_init_residual;    /* resnet, regnet */
        int64_t patch;              /* vit; 0: the model's default */
        tti_int_list depths;        /* convnext, swin: blocks of each stage; empty: from size */
        int64_t window;             /* swin; 0: the model's default */
        char upsample[TTI_TEXT_MAX];   /* unet: transposed | bilinear */
        char size[TTI_TEXT_MAX];       /* "auto", "none", or a row of the model's table */
        int64_t layers, heads, width;  /* 0: from size */
        int64_t context;               /* positions; 0: as many as samples have */
        int64_t vocabulary;            /* 0: as many tokens as the data has */
        char head[TTI_TEXT_MAX];       /* bert: tokens | classify */
        int64_t padding;               /* bert: the token that pads samples; -1: none */
        char activation[TTI_TEXT_MAX]; /* gpt2, bert: auto | none | gelu | ...: tutti/models.h */
        double norm_eps;               /* gpt2, bert: 0: the model's default */
        int64_t mlp_width;             /* gpt2, bert: 0: 4 x width */
        char attention_scaled[TTI_TEXT_MAX]; /* auto | yes | no: scales scores by 1 / sqrt(head
                                                width) */
        char
            attention_by_layer[TTI_TEXT_MAX]; /* auto | yes | no: also scales by 1 / layer number */
        char tied[TTI_TEXT_MAX];              /* gpt2, bert: auto | yes | no */
        int64_t segments;                     /* bert: 0: 2 */
        char init[TTI_TEXT_MAX];              /* folder or file of initial weights; "": none */
        tti_text_list init_except; /* patterns of parameters that are not loaded from init */
    } model;
    struct {
        char format[TTI_TEXT_MAX]; /* a name of TTI_FORMATS */
        char dir[TTI_TEXT_MAX];    /* relative to the current directory */
        int64_t n_train, n_test;   /* digits: number of generated samples; idx: 0 = all */
        double mean, std;          /* pixel/255 is normalised by these */
        int64_t context,
            stride; /* tokens per sample; tokens between the starts of two samples, 0: context */
        char tokenizer[TTI_TEXT_MAX]; /* auto | none | bytes | chars | gpt2 */
        char tokenizer_dir[TTI_TEXT_MAX];
        int64_t vocabulary;       /* tokens in the vocabulary; 0: from the tokenizer or the files */
        char label[TTI_TEXT_MAX]; /* csv: the label column */
        int64_t classes;          /* 0: the largest label + 1 */
        char columns[TTI_TEXT_MAX]; /* csv: kinds of columns, "id: ignore, zip: category" */
        char missing[TTI_TEXT_MAX]; /* csv: impute | refuse */
        char target[TTI_TEXT_MAX];  /* auto | class | value */
        char fields[TTI_TEXT_MAX];  /* npy: "auto", "all", names between commas; "": x and y */
        double val_fraction;        /* held out for testing, if the files define no test split */
        int64_t image_size;         /* images: side of the model input; 0: by format */
        char augment[TTI_TEXT_MAX]; /* "auto", or steps: data/image/augment.h */
        char channel_mean[TTI_TEXT_MAX], channel_std[TTI_TEXT_MAX]; /* "auto", or three numbers */
        double mixup; /* alpha of Beta(alpha, alpha); 0: off */
        double
            mask_prob; /* text, tokens: fraction of tokens to predict; 0: predict the next token */
        int64_t mask_token; /* token that replaces them; -1: one above the tokens of the data */
        char on_error[TTI_TEXT_MAX]; /* stop | skip */
        int64_t max_pixels;          /* pixels of an image in a file */
        int64_t max_unpacked_mb; /* MiB that a compressed file may unpack to; 0: by the size of the
                                    file */
        int64_t threads;         /* loader threads per worker */
        int64_t prefetch;        /* batches loaded in advance, >= 1 */
        char resident[TTI_TEXT_MAX]; /* auto | yes | no: the samples stay on the device */
        const tutti_samples
            *samples[TUTTI_N_SPLITS]; /* samples in memory; borrowed from the job; NULL: files */
    } data;
    struct {
        int64_t batch;  /* global batch over all workers */
        int64_t epochs; /* stop after this many */
        int64_t steps;  /* stop after this many steps; 0: by epochs */
        int64_t seed;
        char metrics[TTI_TEXT_MAX]; /* auto, none, or names between commas */
        char loss[TTI_TEXT_MAX];    /* a loss of tutti/losses.h */
        double huber_delta;         /* in standard deviations of the target */
        double smooth_l1_beta;      /* in standard deviations of the target */
        double label_smoothing;
        char class_weights[TTI_TEXT_MAX], pos_weight[TTI_TEXT_MAX]; /* numbers between commas */
        char ignore_index[TTI_TEXT_MAX];                            /* auto, none, or a label */
        double focal_gamma, focal_alpha;
        double temperature, logit_bias; /* contrastive losses; temperature 0: that of the loss */
        double clip_norm;               /* 0: off */
        double clip_value;              /* limit of an element of the mean gradient; 0: off */
        double ema;                     /* decay of the averaged weights; 0: no average */
        bool low_precision_residual;    /* keep the residual stream in 16 bits */
        char precision[TTI_TEXT_MAX];   /* auto | f32 | tf32 | bf16 | f16 */
        double loss_scale;            /* factor of the gradients; -1: dynamic for f16, else none */
        char recompute[TTI_TEXT_MAX]; /* none | block | bytes: see tti_numerics_recompute */
        char on_nan[TTI_TEXT_MAX];    /* stop | skip */
        int64_t eval_every;           /* epochs between evaluations; 0: only at the end */
    } train;
    struct {
        char name[TTI_TEXT_MAX];                              /* a row of train/job/optimizer.c */
        double lr, momentum, weight_decay, beta1, beta2, eps; /* -1 in momentum, beta2, eps: auto */
        double alpha;                                         /* rmsprop: decay, like beta2 */
        double trust;                                         /* lars */
        bool nesterov;
        double l1;                   /* l1 * sign(w) is added to the gradient */
        char scale_lr[TTI_TEXT_MAX]; /* none | linear | sqrt */
        int64_t base_batch;          /* the batch size that lr was chosen for, with scale_lr */
        tti_text_list groups;        /* "PATTERN: lr=FACTOR decay=VALUE", see param_groups.h */
        tti_text_list freeze;        /* patterns */
    } optimizer;
    struct {
        char name[TTI_TEXT_MAX]; /* a row of train/job/lr_schedule.c */
        int64_t warmup_steps;
        char warmup_shape[TTI_TEXT_MAX]; /* linear | constant | exponential | cosine */
        double warmup_start;             /* fraction of the peak at its start */
        int64_t steps;                   /* length in steps; 0: train.epochs; -1: auto */
        char unit[TTI_TEXT_MAX];         /* unit of step_size, milestones, gamma: epochs | steps */
        int64_t step_size;               /* step: between reductions */
        tti_int_list milestones;         /* multi_step: where the rate is reduced */
        double gamma;                    /* factor of a reduction; -1: auto */
        double min_lr;                   /* final or lowest learning rate */
        double power;                    /* polynomial */
        int64_t cycle_steps;             /* cyclic */
        char cycle[TTI_TEXT_MAX];        /* cyclic: triangular | triangular2 | exp_range */
        double rise;                     /* fraction of a cycle that rises; -1: auto */
        double div, final_div;           /* one_cycle */
        char anneal[TTI_TEXT_MAX];       /* one_cycle, wsd: cosine | linear | sqrt */
        double decay_fraction;           /* wsd */
        int64_t patience, cooldown;      /* plateau: evaluations */
        double threshold;                /* plateau: relative */
    } schedule;
    struct {
        int64_t workers;                 /* -1: auto */
        char place[TTI_TEXT_MAX];        /* threads | processes */
        int64_t shards;                  /* V; -1: auto */
        char load_weights[TTI_TEXT_MAX]; /* auto | equal | measured | weights */
        char mode[TTI_TEXT_MAX];         /* exact | fast */
        bool sync_batch_norm;            /* statistics of batch norm over the global batch */
        char algorithm[TTI_TEXT_MAX];    /* auto | ring | tree | direct */
        double bucket_mb;                /* MiB of gradients per bucket; -1: auto */
        char wire[TTI_TEXT_MAX];         /* auto | f32 | bf16: dtype of gradients in messages */
        char compress[TTI_TEXT_MAX];     /* none | bf16 (deprecated) | f16 | topk | powersgd */
        double topk;                     /* topk: fraction of each gradient matrix that is sent */
        int64_t rank;                    /* powersgd: rank of the approximation */
        int64_t compress_after;          /* number of first steps without compression */
        char sync[TTI_TEXT_MAX];         /* all-reduce | local | parameter-server */
        int64_t average_every;           /* local: steps between averagings */
        int64_t average_after;           /* local: number of first steps with an all-reduce */
        char average[TTI_TEXT_MAX];      /* local: parameters | all */
        int64_t servers;                 /* threads of the parameter server */
        int64_t backup_workers;    /* synchronous: a step does not wait for this many gradients */
        int64_t staleness;         /* 0: synchronous; -1: unbounded */
        char replay[TTI_TEXT_MAX]; /* run folder whose order of updates is repeated; "": none */
        int64_t data;              /* replicas of the model; -1: from workers */
        int64_t tensor;            /* tensor shards of each layer */
        char uneven[TTI_TEXT_MAX]; /* layers that cannot be divided by tensor: refuse | whole */
        int64_t pipeline;          /* pipeline stages */
        int64_t pipeline_chunks;   /* chunks per stage */
        char copies[TTI_TEXT_MAX]; /* copies of the parameters among threads: one | each */
        int64_t zero; /* ZeRO stage; partitions 1: state; 2: also gradients; 3: also parameters */
        char offload[TTI_TEXT_MAX]; /* moved from devices to their host: none | optimizer */
        int64_t min_workers; /* an elastic run continues with at least this many; 0: not elastic */
        int64_t max_workers; /* maximum of an elastic run; 0: workers */
        bool mirror;         /* elastic, with zero: partitions survive the loss of their worker */
        char hostfile[TTI_TEXT_MAX];      /* watched for the number of workers; "": none */
        int64_t spares;                   /* processes that wait for the place of a lost worker */
        int64_t verify_every;             /* steps between verifications of a shard; 0: never */
        char on_corruption[TTI_TEXT_MAX]; /* stop | exclude */
        int64_t timeout_ms;               /* longest wait for a peer */
        int64_t phase_timeout_ms;   /* longest wait for a peer that saves, loads or evaluates */
        int64_t ahead;              /* steps queued on a device at once; -1: auto */
        char backend[TTI_TEXT_MAX]; /* auto | cpu | reference */
        char devices[TTI_TEXT_MAX]; /* auto | cpu | gpu | a list of numbers */
        bool share_devices;         /* a machine may have more workers than GPUs */
    } parallel;
    struct {
        char dir[TTI_TEXT_MAX];   /* "auto": runs/NAME-N */
        int64_t checkpoint_every; /* steps; 0: at the end of each epoch; -1: only at the end */
        int64_t keep;             /* checkpoints kept, >= 2 */
        int64_t log_every;        /* steps between step records; 0: about twice a second */
        int64_t text_samples;     /* generated texts in report.html */
        int64_t restarts;         /* restarts of all worker processes after failures */
        bool progress;
    } run;
} tti_job_config;

struct tutti_job {
    tti_job_config config;
    tti_options options;     /* the table bound to config, with the origin of every value */
    tutti_model_fn model_fn; /* NULL: by model.name */
    const void *model_user;
    tutti_samples *samples[TUTTI_N_SPLITS]; /* owned; NULL: files */
    char *path;                             /* path of the job file, owned; NULL: none */
    bool is_of_run;                         /* the file is in a run folder */
    bool allows_plugin;                     /* loads model.plugin even if a run folder names it */
};

/* The schema: every key of a job file, in the order of the reference page. */
extern const tti_option_table tti_job_table;

/* The values of a job; its options, which the caller may change temporarily; the option of a key,
 * NULL: no such key. */
const tti_job_config *tti_job_config_of(const tutti_job *job);
tti_options *tti_job_options(tutti_job *job);
const tti_option_state *tti_job_option_state(const tutti_job *job, const char *key);

/* The path of the job file, owned by the job; NULL: there is none. */
const char *tti_job_path(const tutti_job *job);

/* True if a function of the caller builds the model, instead of the built-in one of model.name. */
bool tti_job_has_model_fn(const tutti_job *job);

/* Returns TUTTI_E_CONFIG if model.plugin comes from a run folder and the caller has not allowed
 * it. */
tutti_status tti_job_check_plugin(const tutti_job *job);

/* Like tutti_job_load, but reads from memory; source names the text in messages. */
tutti_status tti_job_load_text(tutti_job *job, const char *text, size_t n_bytes,
                               const char *source);

/* An independent copy; *out is owned by the caller, NULL on failure. */
tutti_status tti_job_copy(const tutti_job *job, tutti_job **out);

/* True if a parameter server adds the gradients. */
bool tti_job_has_server(const tti_job_config *config);
/* True if each gradient is applied when it arrives: workers do not wait for each other. */
bool tti_job_is_async(const tti_job_config *config);

/* True if the job uses local SGD: workers update their own parameters and average them
 * periodically. */
bool tti_job_is_local(const tti_job_config *config);

/* True if the bits must not depend on the number of workers (parallel.mode=exact). */
bool tti_job_is_exact(const tti_job_config *config);

/* The dtype of gradients in messages between workers, from parallel.wire and parallel.compress:
 * f32, bf16, or in fast mode f16. */
tutti_dtype tti_job_wire(const tti_job_config *config);

/* The built-in model of the job; NULL: the model is that of model.plugin or model.file, or the name
 * is unknown.  Ignores a model that the caller has set. */
const struct tutti_model *tti_job_model(const tti_job_config *config);

/* True if model.size is a size, and not auto or none. */
bool tti_job_names_size(const tti_job_config *config);

/* True if parallel.backend names a backend of the host instead of the fastest one for
 * parallel.devices. */
bool tti_job_names_backend(const tti_job_config *config);

/* True if samples are images, which are augmented and normalised by channel. */
bool tti_job_has_images(const tti_job_config *config);

/* Sets parallel.data back to auto if a run wrote it into its job file, because the number of
 * workers changes. */
void tti_job_free_copies(tutti_job *job, const char *origin);

/* Adds conflicts between keys as problems of job->options; unknown (auto) values are skipped. */
void tti_job_find_conflicts(tutti_job *job);

/* False for keys of the built-in models, at their defaults, in a job with another model. */
bool tti_job_key_applies(const char *key, const void *job);

/* Returns the key that makes the host take part in the middle of each step, even if workers are on
 * devices; NULL: none. */
const char *tti_job_ends_on_host(const tti_job_config *config);

/* True if workers on devices that divide the model communicate through the host, for n_copies
 * replicas.  The same rule as in exec/device/device.c. */
bool tti_job_is_host_staged(const tti_job_config *config, int n_copies);

/* Number of workers that the job sets: parallel.workers, or from parallel.data, or from the weights
 * in parallel.load_weights; 0: it sets none. */
int64_t tti_job_given_workers(const tti_job_config *config);

/* Number of workers that hold one replica of the model together. */
int64_t tti_job_workers_of_model(const tti_job_config *config);

/* The minimum and maximum number of workers of an elastic run, both multiples of a replica. */
int64_t tti_job_least_workers(const tti_job_config *config);
int64_t tti_job_most_workers(const tti_job_config *config);

/* If the text of the last failure names a key that the user has set, and has no place yet, prepends
 * the place: "job.yaml:3:5: error: " or "command line: error: ".  Every call of the public
 * interface ends with it.  Returns st, the failure's status. */
tutti_status tti_job_say_where(const tutti_job *job, tutti_status st);

/* Makes the files and folders that the job names independent of the current directory, so that its
 * text can be used from any other.  TUTTI_E_CONFIG for a path that would be too long. */
tutti_status tti_job_make_paths_absolute(tutti_job *job);

/* Values that follow from others (auto shards, auto workers) and conflicts between keys.
 * Reports every problem at once. */
tutti_status tti_job_resolve(tutti_job *job, int n_cores);

#endif /* TTI_TRAIN_JOB_H */

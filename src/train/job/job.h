/* job.h - a job as the trainer sees it: every value of the schema table, typed.
 *
 * The one schema table (job_schema.c) gives each key its type, default, range and help; parser,
 * overrides, `config show`, JSON schema and the reference page are made from it. */
#ifndef TTI_TRAIN_JOB_H
#define TTI_TRAIN_JOB_H

#include "base/option.h"
#include "tutti/job.h"

enum {
    TTI_NO_MASK_TOKEN = -3, /* the word "none" of data.mask_token */
    TTI_NO_LOSS_SCALE = -3  /* "none" for train.loss_scale */
};

enum { TTI_MAX_WORKERS = 64 }; /* as many ranks as a communicator of one host joins */

/* Text fields are NUL-terminated.  -1, -2, ... stand for the words of the schema, -1 for "auto". */
typedef struct tti_job_config {
    struct {
        char name[TTI_TEXT_MAX];      /* a row of models/model_table.c */
        char plugin[TTI_TEXT_MAX];    /* a shared object with the model instead; "": none */
        char file[TTI_TEXT_MAX];      /* a model that another framework exported; "": none */
        tti_int_list hidden;          /* mlp: widths of the hidden layers */
        double dropout;               /* probability, where the model has dropout */
        double drop_path;             /* probability, where the model has stochastic depth */
        char stem[TTI_TEXT_MAX];      /* imagenet | cifar */
        bool batch_norm;              /* vgg */
        bool zero_init_residual;      /* resnet */
        char size[TTI_TEXT_MAX];      /* language models: "auto", "none", or a row of their table */
        int64_t layers, heads, width; /* 0: as size says */
        int64_t context;              /* positions; 0: as many as samples have */
        int64_t vocabulary;           /* 0: as many tokens as the data has */
        char head[TTI_TEXT_MAX];      /* bert: tokens | classify */
        int64_t padding;              /* bert: the token that fills up samples; -1: none */
        char activation[TTI_TEXT_MAX]; /* gpt2, bert: auto | none | gelu | ...: tutti/models.h */
        double norm_eps;               /* gpt2, bert: 0: of the model */
        int64_t mlp_width;             /* gpt2, bert: 0: 4 x width */
        char attention_scaled[TTI_TEXT_MAX]; /* auto | yes | no: by 1 / sqrt(width of a head) */
        char
            attention_by_layer[TTI_TEXT_MAX]; /* auto | yes | no: by 1 / number of the layer, too */
        char tied[TTI_TEXT_MAX];              /* gpt2, bert: auto | yes | no */
        int64_t segments;                     /* bert: 0: 2 */
        char init[TTI_TEXT_MAX];   /* folder or file of weights to begin with; "": none */
        tti_text_list init_except; /* patterns of parameters that it does not give */
    } model;
    struct {
        char format[TTI_TEXT_MAX]; /* a name of TTI_FORMATS */
        char dir[TTI_TEXT_MAX];    /* relative to the current directory */
        int64_t n_train, n_test;   /* digits: number of generated samples; idx: 0 = all */
        double mean, std;          /* pixel/255 is normalised by these */
        int64_t context, stride;   /* tokens of a sample, and from sample to sample; 0: context */
        char tokenizer[TTI_TEXT_MAX]; /* auto | none | bytes | chars | gpt2 */
        char tokenizer_dir[TTI_TEXT_MAX];
        int64_t vocabulary;         /* tokens: how many there are; 0: as its files say */
        char label[TTI_TEXT_MAX];   /* csv: the column */
        int64_t classes;            /* 0: as many as the labels say */
        char columns[TTI_TEXT_MAX]; /* csv: kinds of columns, "id: ignore, zip: category" */
        char missing[TTI_TEXT_MAX]; /* csv: impute | refuse */
        char target[TTI_TEXT_MAX];  /* auto | class | value */
        double val_fraction;        /* for testing, where the files do not say */
        int64_t image_size;         /* images: side of the model input; 0: by format */
        char augment[TTI_TEXT_MAX]; /* "auto", or steps: data/image/augment.h */
        char channel_mean[TTI_TEXT_MAX], channel_std[TTI_TEXT_MAX]; /* "auto", or three numbers */
        double mixup;                /* alpha of Beta(alpha, alpha); 0: off */
        double mask_prob;            /* text, tokens: share of tokens to guess; 0: the next one */
        int64_t mask_token;          /* that stands for them; -1: one more than the data has */
        char on_error[TTI_TEXT_MAX]; /* stop | skip */
        int64_t max_pixels;          /* of an image in a file */
        int64_t max_unpacked_mb;     /* MiB that a compressed file may unpack to; 0: auto */
        int64_t threads;             /* loader threads per worker */
        int64_t prefetch;            /* batches made ahead, >= 1 */
        char resident[TTI_TEXT_MAX]; /* auto | yes | no: the samples stay on the device */
    } data;
    struct {
        int64_t batch;  /* global, whatever the number of workers */
        int64_t epochs; /* stop after this many */
        int64_t steps;  /* or after this many steps; 0: by epochs */
        int64_t seed;
        char loss[TTI_TEXT_MAX]; /* cross-entropy | mse | mae | huber | smooth_l1 */
        double huber_delta;      /* in standard deviations of the target */
        double smooth_l1_beta;   /* likewise */
        double label_smoothing;
        double clip_norm;             /* 0: off */
        double clip_value;            /* of an element of the mean gradient; 0: off */
        double ema;                   /* decay of the averaged weights; 0: no averages */
        bool low_precision_residual;  /* the residual stream has 16 bits too */
        char precision[TTI_TEXT_MAX]; /* auto | f32 | tf32 | bf16 | f16 */
        double loss_scale;            /* times the gradients; -1: dynamic for f16, else none */
        char recompute[TTI_TEXT_MAX]; /* none | block | bytes: see tti_numerics_recompute */
        char on_nan[TTI_TEXT_MAX];    /* stop | skip */
        int64_t eval_every;           /* epochs between evaluations; 0: only at the end */
    } train;
    struct {
        char name[TTI_TEXT_MAX];                              /* a row of train/job/optimizer.c */
        double lr, momentum, weight_decay, beta1, beta2, eps; /* momentum, beta2, eps: -1 auto */
        double alpha;                                         /* rmsprop: as beta2 */
        double trust;                                         /* lars */
        bool nesterov;
        double l1;                   /* times sign(w), added to the gradient */
        char scale_lr[TTI_TEXT_MAX]; /* none | linear | sqrt */
        int64_t base_batch;          /* the batch that lr is for, where it is scaled */
        tti_text_list groups;        /* "PATTERN: lr=FACTOR decay=VALUE", see param_groups.h */
        tti_text_list freeze;        /* patterns */
    } optimizer;
    struct {
        char name[TTI_TEXT_MAX]; /* a row of train/job/lr_schedule.c */
        int64_t warmup_steps;
        char warmup_shape[TTI_TEXT_MAX]; /* linear | constant | exponential | cosine */
        double warmup_start;             /* share of the peak where it begins */
        int64_t steps;                   /* length; 0: train.epochs; -1: auto */
        char unit[TTI_TEXT_MAX];         /* of step_size, milestones, gamma: epochs | steps */
        int64_t step_size;               /* step: between drops */
        tti_int_list milestones;         /* multi_step: where drops are */
        double gamma;                    /* factor of a drop; -1: auto */
        double min_lr;                   /* the final or the lowest learning rate */
        double power;                    /* polynomial */
        int64_t cycle_steps;             /* cyclic */
        char cycle[TTI_TEXT_MAX];        /* cyclic: triangular | triangular2 | exp_range */
        double rise;                     /* share of a cycle that rises; -1: auto */
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
        char compress[TTI_TEXT_MAX];     /* none | bf16 | f16 | topk | powersgd */
        double topk;                     /* share of a matrix of gradients that travels */
        int64_t rank;                    /* of powersgd */
        int64_t compress_after;          /* steps before are sent whole */
        char sync[TTI_TEXT_MAX];         /* all-reduce | local | parameter-server */
        int64_t average_every;           /* local: steps between averagings */
        int64_t average_after;           /* local: number of first steps with an all-reduce */
        char average[TTI_TEXT_MAX];      /* local: parameters | all */
        int64_t servers;                 /* threads of the parameter server */
        int64_t backup_workers;          /* synchronous: whose gradients a step does without */
        int64_t staleness;               /* 0: synchronous; -1: unbounded */
        char replay[TTI_TEXT_MAX];       /* run whose order of arrival is repeated; "": none */
        int64_t data;                    /* copies of the model; -1: as workers say */
        int64_t tensor;                  /* pieces of each layer, on as many workers */
        char uneven[TTI_TEXT_MAX];       /* layers that tensor does not divide: refuse | whole */
        int64_t pipeline;                /* stages of the model, on as many workers */
        int64_t pipeline_chunks;         /* pieces of each stage */
        char copies[TTI_TEXT_MAX];       /* of parameters, among threads: one | each */
        int64_t zero;                    /* in parts: 1: state; 2: gradients; 3: parameters, too */
        char offload[TTI_TEXT_MAX];      /* of devices, to their host: none | optimizer */
        int64_t timeout_ms;              /* longest wait for a peer */
        int64_t phase_timeout_ms;        /* likewise, for one that saves, loads or evaluates */
        int64_t ahead;                   /* steps queued on a device at once; -1: auto */
        char backend[TTI_TEXT_MAX];      /* auto | cpu | reference */
        char devices[TTI_TEXT_MAX];      /* auto | cpu | gpu | a list of numbers */
        bool share_devices;              /* workers of a machine may be more than its GPUs */
    } parallel;
    struct {
        char dir[TTI_TEXT_MAX];   /* "auto": runs/NAME-N */
        int64_t checkpoint_every; /* steps; 0: at the end of each epoch; -1: only at the end */
        int64_t keep;             /* generations kept, >= 2 */
        int64_t log_every;        /* steps between step records; 0: about twice a second */
        int64_t text_samples;     /* texts of a language model in report.html */
        int64_t restarts;         /* of all worker processes after a failure */
        bool progress;
    } run;
} tti_job_config;

struct tutti_job {
    tti_job_config config;
    tti_options options;     /* the table bound to config, with the origin of every value */
    tutti_model_fn model_fn; /* NULL: by model.name */
    const void *model_user;
    char *path;         /* of the job file, owned; NULL: none */
    bool is_of_run;     /* the file lies in a run folder */
    bool allows_plugin; /* of such a file, too */
};

/* The schema: every key of a job file, in the order of the reference page. */
extern const tti_option_table tti_job_table;

/* TUTTI_E_CONFIG if model.plugin comes from a run folder and the caller has not allowed it. */
tutti_status tti_job_check_plugin(const tutti_job *job);

/* As tutti_job_load, from memory; source names the text in messages. */
tutti_status tti_job_load_text(tutti_job *job, const char *text, size_t n_bytes,
                               const char *source);

/* An independent copy; *out is owned by the caller, NULL on failure. */
tutti_status tti_job_copy(const tutti_job *job, tutti_job **out);

/* Whether its gradients are added by a parameter server. */
bool tti_job_has_server(const tti_job_config *config);
/* True if each gradient is applied when it arrives: workers do not wait for each other. */
bool tti_job_is_async(const tti_job_config *config);

/* Whether workers update their own parameters and average them now and then: local SGD. */
bool tti_job_is_local(const tti_job_config *config);

/* The same bits for any number of workers (parallel.mode). */
bool tti_job_is_exact(const tti_job_config *config);

/* The built-in model of the job; NULL: the model is that of model.plugin or model.file, or the name
 * is not known.  A model of the caller's is not looked at. */
const struct tutti_model *tti_job_model(const tti_job_config *config);

/* Whether model.size is a size, and not auto or none. */
bool tti_job_names_size(const tti_job_config *config);

/* Whether parallel.backend is one of the host, and not the fastest for parallel.devices. */
bool tti_job_names_backend(const tti_job_config *config);

/* Whether samples are images, which are augmented and normalised by channel. */
bool tti_job_has_images(const tti_job_config *config);

/* A change of the workers leaves the number of copies open that a run wrote into its job file. */
void tti_job_free_copies(tutti_job *job, const char *origin);

/* Adds conflicts between keys as problems of job->options; unknown (auto) values are skipped. */
void tti_job_find_conflicts(tutti_job *job);

/* The key for which the host has a part in the middle of each step, whatever its workers compute
 * on; NULL: there is none. */
const char *tti_job_ends_on_host(const tti_job_config *config);

/* Whether workers on devices that divide the model communicate through the host, with this many
 * replicas: the same rule as in exec/device/device_meet.c. */
bool tti_job_is_host_staged(const tti_job_config *config, int n_copies);

/* Workers that the job asks for: by parallel.workers, by parallel.data copies of the model, or by
 * weights for each copy in parallel.load_weights; 0: it leaves that open. */
int64_t tti_job_given_workers(const tti_job_config *config);

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

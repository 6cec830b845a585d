/* job.h - a job as the trainer sees it: every value of the schema table, typed.
 *
 * The one schema table (job_schema.c) gives each key its type, default, range and help; parser,
 * overrides, `config show`, JSON schema and the reference page are made from it. */
#ifndef TTI_TRAIN_JOB_H
#define TTI_TRAIN_JOB_H

#include "base/option.h"
#include "tutti/job.h"

enum { TTI_MAX_WORKERS = 64 }; /* as many ranks as a communicator of one host joins */

/* Text fields are NUL-terminated.  -1 stands for "auto" where the schema says so. */
typedef struct tti_job_config {
    struct {
        char name[TTI_TEXT_MAX]; /* lenet, mlp, ... */
        tti_int_list hidden;     /* mlp: widths of the hidden layers */
        double dropout;          /* probability, where the model has dropout */
    } model;
    struct {
        char format[TTI_TEXT_MAX]; /* digits | idx */
        char dir[TTI_TEXT_MAX];    /* relative to the current directory */
        int64_t n_train, n_test;   /* digits: how many are drawn; idx: 0 = all */
        double mean, std;          /* pixel/255 is normalised by these */
        int64_t threads;           /* loader threads per worker */
        int64_t prefetch;          /* batches made ahead, >= 1 */
    } data;
    struct {
        int64_t batch;  /* global, whatever the number of workers */
        int64_t epochs; /* stop after this many */
        int64_t steps;  /* or after this many steps; 0: by epochs */
        int64_t seed;
        char loss[TTI_TEXT_MAX]; /* cross-entropy | mse */
        double label_smoothing;
        double clip_norm;          /* 0: off */
        char on_nan[TTI_TEXT_MAX]; /* stop | skip */
        int64_t eval_every;        /* epochs between evaluations; 0: only at the end */
    } train;
    struct {
        char name[TTI_TEXT_MAX]; /* sgd | adam | adamw */
        double lr, momentum, weight_decay, beta1, beta2, eps;
        bool nesterov;
    } optimizer;
    struct {
        char name[TTI_TEXT_MAX]; /* constant | step | cosine */
        int64_t warmup_steps;
        int64_t steps;     /* length; 0: train.epochs; -1: auto */
        int64_t step_size; /* step: epochs between drops */
        double gamma;      /* step: factor of a drop */
        double min_lr;     /* cosine: the final learning rate */
    } schedule;
    struct {
        int64_t workers;              /* -1: auto */
        char place[TTI_TEXT_MAX];     /* threads | processes */
        int64_t shards;               /* V; -1: auto */
        char mode[TTI_TEXT_MAX];      /* exact | fast */
        char algorithm[TTI_TEXT_MAX]; /* auto | ring | tree | direct */
        double bucket_mb;             /* MiB of gradients per bucket */
        int64_t timeout_ms;           /* longest wait for a peer */
        char backend[TTI_TEXT_MAX];   /* auto | cpu | reference */
    } parallel;
    struct {
        char dir[TTI_TEXT_MAX];   /* "auto": runs/NAME-N */
        int64_t checkpoint_every; /* steps; 0: at the end of each epoch; -1: only at the end */
        int64_t keep;             /* generations kept, >= 2 */
        int64_t log_every;        /* steps between step records; 0: about twice a second */
        bool progress;
    } run;
} tti_job_config;

struct tutti_job {
    tti_job_config config;
    tti_options options;     /* the table bound to config, with the origin of every value */
    tutti_model_fn model_fn; /* NULL: by model.name */
    const void *model_user;
    char *path; /* of the job file, owned; NULL: none */
};

/* The schema: every key of a job file, in the order of the reference page. */
extern const tti_option_table tti_job_table;

/* As tutti_job_load, from memory; source names the text in messages. */
tutti_status tti_job_load_text(tutti_job *job, const char *text, size_t n_bytes,
                               const char *source);

/* Conflicts between keys, as problems of job->options; what is not known yet (auto) is passed
 * over. */
void tti_job_find_conflicts(tutti_job *job);

/* Values that follow from others (auto shards, auto workers) and conflicts between keys.
 * Reports every problem at once. */
tutti_status tti_job_resolve(tutti_job *job, int n_cores);

#endif /* TTI_TRAIN_JOB_H */

/* optimizer.h - the optimizers that a job can name. */
#ifndef TTI_TRAIN_OPTIMIZER_H
#define TTI_TRAIN_OPTIMIZER_H

#include "base/str.h"
#include "ir/graph.h"
#include "train/job/job.h"

enum { TTI_MAX_STATES = 4 };

typedef struct tti_optimizer {
    const char *name; /* also the name of its op */
    const char *doc;
    const char *states[TTI_MAX_STATES]; /* names in checkpoints, as PyTorch has them; NULL ends */
    /* Fills the attributes of the op but "decay"; a NULL name ends them. */
    void (*attrs)(const tti_job_config *config, tti_attr_arg *out);
    double momentum, beta2, eps; /* what "auto" stands for */
} tti_optimizer;

/* Optimizers in order of the table: i = 0, 1, ... until NULL. */
const tti_optimizer *tti_optimizer_at(int i);
const tti_optimizer *tti_optimizer_find(const char *name);

/* The highest learning rate of a job: optimizer.lr, scaled by train.batch where the job says so. */
double tti_peak_lr(const tti_job_config *config);

/* Appends how it came about, "learning rate 0.1 x 512 / 256 = 0.2 (optimizer.scale_lr linear)";
 * nothing where it is not scaled. */
void tti_peak_lr_explain(const tti_job_config *config, tti_str *out);

#endif /* TTI_TRAIN_OPTIMIZER_H */

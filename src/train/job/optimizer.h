/* optimizer.h - the table of optimizers that a job can name. */
#ifndef TTI_TRAIN_OPTIMIZER_H
#define TTI_TRAIN_OPTIMIZER_H

#include "base/str.h"
#include "ir/graph.h"
#include "train/job/job.h"

enum { TTI_MAX_STATES = 4 };

typedef struct tti_optimizer {
    const char *name; /* also the name of its op */
    const char *doc;
    const char *states[TTI_MAX_STATES]; /* names in checkpoints, as in PyTorch; ends with NULL */
    /* Sets the attributes of the op except "decay"; ends with a NULL name. */
    void (*attrs)(const tti_job_config *config, tti_attr_arg *out);
    double momentum, beta2, eps; /* values of "auto" */
} tti_optimizer;

/* Returns row i = 0, 1, ... of the table, NULL after the last. */
const tti_optimizer *tti_optimizer_at(int i);
const tti_optimizer *tti_optimizer_find(const char *name);

/* Returns the peak learning rate of a job: optimizer.lr, scaled by train.batch according to
 * optimizer.scale_lr. */
double tti_peak_lr(const tti_job_config *config);

/* Appends the computation of a scaled learning rate, "learning rate 0.1 x 512 / 256 = 0.2
 * (optimizer.scale_lr linear)"; nothing if it is not scaled. */
void tti_peak_lr_explain(const tti_job_config *config, tti_str *out);

#endif /* TTI_TRAIN_OPTIMIZER_H */

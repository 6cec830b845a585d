/* optimizer.h - the optimizers that a job can name. */
#ifndef TTI_TRAIN_OPTIMIZER_H
#define TTI_TRAIN_OPTIMIZER_H

#include "ir/graph.h"
#include "train/job.h"

enum { TTI_MAX_STATES = 3 };

typedef struct tti_optimizer {
    const char *name; /* also the name of its op */
    const char *doc;
    const char *states[TTI_MAX_STATES]; /* names in checkpoints, as PyTorch has them; NULL ends */
    /* Fills the attributes of the op but "decay"; a NULL name ends them. */
    void (*attrs)(const tti_job_config *config, tti_attr_arg *out);
} tti_optimizer;

/* Optimizers in order of the table: i = 0, 1, ... until NULL. */
const tti_optimizer *tti_optimizer_at(int i);
const tti_optimizer *tti_optimizer_find(const char *name);

#endif /* TTI_TRAIN_OPTIMIZER_H */

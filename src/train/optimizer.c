/* optimizer.c - one row for each optimizer: its op, its states, its attributes. */
#include "train/optimizer.h"

#include <string.h>

static void sgd_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("momentum", c->optimizer.momentum);
    out[1] = TTI_INT("nesterov", c->optimizer.nesterov);
}

static void adam_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("beta1", c->optimizer.beta1);
    out[1] = TTI_FLOAT("beta2", c->optimizer.beta2);
    out[2] = TTI_FLOAT("eps", c->optimizer.eps);
}

static const tti_optimizer optimizers[] = {
    {"adam", "Kingma, Ba 2015; weight decay as L2", {"exp_avg", "exp_avg_sq"}, adam_attrs},
    {"adamw",
     "Loshchilov, Hutter 2019; decoupled weight decay",
     {"exp_avg", "exp_avg_sq"},
     adam_attrs},
    {"sgd", "momentum and Nesterov; weight decay as L2", {"momentum_buffer"}, sgd_attrs},
};

const tti_optimizer *tti_optimizer_at(int i) {
    return i >= 0 && (size_t)i < TTI_COUNT(optimizers) ? &optimizers[i] : NULL;
}

const tti_optimizer *tti_optimizer_find(const char *name) {
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++)
        if (strcmp(optimizers[i].name, name) == 0) return &optimizers[i];
    return NULL;
}

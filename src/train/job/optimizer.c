/* optimizer.c - the table of optimizers: op, states, attributes and defaults of each. */
#include "train/job/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/number.h"

static void sgd_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("momentum", c->optimizer.momentum);
    out[1] = TTI_INT("nesterov", c->optimizer.nesterov);
}

static void adam_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("beta1", c->optimizer.beta1);
    out[1] = TTI_FLOAT("beta2", c->optimizer.beta2);
    out[2] = TTI_FLOAT("eps", c->optimizer.eps);
}

static void adagrad_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("eps", c->optimizer.eps);
}

static void lars_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("momentum", c->optimizer.momentum);
    out[1] = TTI_FLOAT("trust", c->optimizer.trust);
    out[2] = TTI_FLOAT("eps", c->optimizer.eps);
}

static void lion_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("beta1", c->optimizer.beta1);
    out[1] = TTI_FLOAT("beta2", c->optimizer.beta2);
}

static void rmsprop_attrs(const tti_job_config *c, tti_attr_arg *out) {
    out[0] = TTI_FLOAT("alpha", c->optimizer.alpha);
    out[1] = TTI_FLOAT("eps", c->optimizer.eps);
    out[2] = TTI_FLOAT("momentum", c->optimizer.momentum);
}

static const tti_optimizer optimizers[] = {
    {"adagrad",
     "Duchi, Hazan, Singer 2011; weight decay as L2",
     {"sum"},
     adagrad_attrs,
     .momentum = .9,
     .beta2 = .999,
     .eps = 1e-10},
    {"adam",
     "Kingma, Ba 2015; weight decay as L2",
     {"exp_avg", "exp_avg_sq"},
     adam_attrs,
     .momentum = .9,
     .beta2 = .999,
     .eps = 1e-8},
    {"adamw",
     "Loshchilov, Hutter 2019; decoupled weight decay",
     {"exp_avg", "exp_avg_sq"},
     adam_attrs,
     .momentum = .9,
     .beta2 = .999,
     .eps = 1e-8},
    {"lamb",
     "You et al. 2020; Adam, each layer's step scaled to the norm of its weights",
     {"exp_avg", "exp_avg_sq"},
     adam_attrs,
     .momentum = .9,
     .beta2 = .999,
     .eps = 1e-6},
    {"lars",
     "You, Gitman, Ginsburg 2017; SGD, each layer's step scaled to the norm of its weights",
     {"momentum_buffer"},
     lars_attrs,
     .momentum = .9,
     .beta2 = .999,
     .eps = 1e-8},
    {"lion",
     "Chen et al. 2023; sign of a mean; decoupled weight decay",
     {"exp_avg"},
     lion_attrs,
     .momentum = .9,
     .beta2 = .99,
     .eps = 1e-8},
    {"rmsprop",
     "Hinton 2012; weight decay as L2",
     {"square_avg", "momentum_buffer"},
     rmsprop_attrs,
     .momentum = 0,
     .beta2 = .999,
     .eps = 1e-8},
    {"sgd",
     "momentum and Nesterov; weight decay as L2",
     {"momentum_buffer"},
     sgd_attrs,
     .momentum = .9,
     .beta2 = .999,
     .eps = 1e-8},
};

const tti_optimizer *tti_optimizer_at(int i) {
    return i >= 0 && (size_t)i < TTI_COUNT(optimizers) ? &optimizers[i] : NULL;
}

const tti_optimizer *tti_optimizer_find(const char *name) {
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++)
        if (strcmp(optimizers[i].name, name) == 0) return &optimizers[i];
    return NULL;
}

double tti_peak_lr(const tti_job_config *c) {
    double ratio = (double)c->train.batch / (double)c->optimizer.base_batch;
    if (strcmp(c->optimizer.scale_lr, "linear") == 0) return c->optimizer.lr * ratio;
    if (strcmp(c->optimizer.scale_lr, "sqrt") == 0) return c->optimizer.lr * sqrt(ratio);
    return c->optimizer.lr;
}

void tti_peak_lr_explain(const tti_job_config *c, tti_str *out) {
    char lr[TTI_NUMBER_TEXT], peak[TTI_NUMBER_TEXT];
    bool root = strcmp(c->optimizer.scale_lr, "sqrt") == 0;
    if (strcmp(c->optimizer.scale_lr, "none") == 0) return;
    tti_format_float(peak, (float)tti_peak_lr(c));
    tti_str_printf(out,
                   "learning rate %s x %s%" PRId64 " / %" PRId64 "%s = %s (optimizer.scale_lr %s)",
                   tti_format_double(lr, c->optimizer.lr), root ? "sqrt(" : "", c->train.batch,
                   c->optimizer.base_batch, root ? ")" : "", peak, c->optimizer.scale_lr);
}

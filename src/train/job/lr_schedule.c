/* lr_schedule.c - learning rate schedules: one short function and one row each.
 *
 * Schedules that torch.optim.lr_scheduler also has use its formulas, in closed form, so a resumed
 * run needs no history.  The curve begins after the warm-up, but epochs are counted from the first
 * step of the run, so reductions happen at the epochs that the job names. */
#include "train/job/lr_schedule.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "train/job/optimizer.h"

static const double pi = 3.14159265358979323846;

static bool is(const char *text, const char *word) { return text && strcmp(text, word) == 0; }

/* The number of steps of the curve, and the fraction of the curve that is done at step t. */
static int64_t curve_steps(const tti_lr_desc *d) {
    return TTI_MAX(d->n_steps - d->warmup_steps, 1);
}

static double done(const tti_lr_desc *d, int64_t t) {
    int64_t n = curve_steps(d);
    return (double)TTI_MIN(t, n) / (double)n;
}

/* Converts steps to epochs, unless the job counts steps. */
static int64_t count(const tti_lr_desc *d, int64_t t) {
    return d->by_steps ? t : t / TTI_MAX(d->steps_per_epoch, 1);
}

/* Falls from high to low as p goes from 0 to 1. */
static double anneal(const char *shape, double high, double low, double p) {
    if (is(shape, "linear")) return high + (low - high) * p;
    if (is(shape, "sqrt")) return high + (low - high) * sqrt(p);
    return low + 0.5 * (high - low) * (1 + cos(pi * p));
}

static double constant(const tti_lr_desc *d, int64_t t) {
    (void)t;
    return d->lr;
}

/* Half a cosine from lr to min_lr over the steps after the warm-up (Loshchilov, Hutter 2017). */
static double cosine(const tti_lr_desc *d, int64_t t) {
    return anneal("cosine", d->lr, d->min_lr, done(d, t));
}

/* Cycles between min_lr and lr (Smith 2017); cycles are numbered from 0. */
static double cyclic(const tti_lr_desc *d, int64_t t) {
    int64_t n = TTI_MAX(d->cycle_steps, 1), cycle = t / n;
    double x = (double)(t % n) / (double)n;
    double height = x < d->rise ? x / d->rise : (1 - x) / (1 - d->rise);
    if (is(d->cycle, "triangular2")) height *= pow(0.5, (double)cycle);
    if (is(d->cycle, "exp_range")) height *= pow(d->gamma, (double)t);
    return d->min_lr + (d->lr - d->min_lr) * height;
}

/* PyTorch's ExponentialLR: lr * gamma^epoch, the epochs after the warm-up. */
static double exponential(const tti_lr_desc *d, int64_t t) {
    return d->lr * pow(d->gamma, (double)count(d, t));
}

static double linear(const tti_lr_desc *d, int64_t t) {
    return anneal("linear", d->lr, d->min_lr, done(d, t));
}

/* PyTorch's MultiStepLR: a factor gamma at each milestone that was reached. */
static double multi_step(const tti_lr_desc *d, int64_t t) {
    int64_t now = count(d, t + d->warmup_steps);
    int n = 0;
    for (int i = 0; i < d->milestones.n; i++) n += now >= d->milestones.v[i];
    return d->lr * pow(d->gamma, (double)n);
}

/* PyTorch's OneCycleLR (Smith, Topin 2018): up from lr/div, then down to lr/div/final_div.  The
 * peak and the end must fall on steps, so a rise ends one step early. */
static double one_cycle(const tti_lr_desc *d, int64_t t) {
    double first = d->lr / d->div, last = first / d->final_div;
    double n = (double)curve_steps(d), top = d->rise * n - 1;
    double now = TTI_MIN((double)t, n - 1);
    if (now > top) return anneal(d->anneal, d->lr, last, (now - top) / (n - 1 - top));
    return top > 0 ? anneal(d->anneal, first, d->lr, now / top) : d->lr;
}

/* The rate after the reductions made at evaluations. */
static double plateau(const tti_lr_desc *d, int64_t t) {
    (void)t;
    return d->plateau ? d->lr * d->plateau->scale : d->lr;
}

static double polynomial(const tti_lr_desc *d, int64_t t) {
    return d->min_lr + (d->lr - d->min_lr) * pow(1 - done(d, t), d->power);
}

/* PyTorch's StepLR: lr * gamma^floor(epoch / step_size). */
static double step(const tti_lr_desc *d, int64_t t) {
    int64_t now = count(d, t + d->warmup_steps);
    return d->lr * pow(d->gamma, (double)(now / TTI_MAX(d->step_size, 1)));
}

/* Warm-up, stable, decay (Hu et al. 2024): lr, then min_lr at the end of the curve. */
static double wsd(const tti_lr_desc *d, int64_t t) {
    double falling = d->decay_fraction * (double)curve_steps(d);
    double gone = (double)t - ((double)curve_steps(d) - falling);
    if (gone <= 0) return d->lr;
    return anneal(d->anneal, d->lr, d->min_lr, TTI_MIN(gone / falling, 1));
}

static const tti_lr_schedule schedules[] = {
    {"constant", "lr", TTI_LR_NEEDS_NOTHING, constant, .1, .3},
    {"cosine", "half a cosine from lr to min_lr", TTI_LR_NEEDS_LENGTH, cosine, .1, .3},
    {"cyclic", "triangles between min_lr and lr", TTI_LR_NEEDS_NOTHING, cyclic, .9999, .5},
    {"exponential", "lr * gamma^epoch", TTI_LR_NEEDS_EPOCHS, exponential, .95, .3},
    {"linear", "a line from lr to min_lr", TTI_LR_NEEDS_LENGTH, linear, .1, .3},
    {"multi_step", "a factor gamma at each of the milestones", TTI_LR_NEEDS_EPOCHS, multi_step, .1,
     .3},
    {"one_cycle", "up from lr/div to lr, down to lr/div/final_div", TTI_LR_NEEDS_LENGTH, one_cycle,
     .1, .3},
    {"plateau", "a factor gamma when the validation loss stops falling", TTI_LR_NEEDS_EVALUATIONS,
     plateau, .1, .3},
    {"polynomial", "(1 - done)^power from lr to min_lr", TTI_LR_NEEDS_LENGTH, polynomial, .1, .3},
    {"step", "lr * gamma^(epoch / step_size)", TTI_LR_NEEDS_EPOCHS, step, .1, .3},
    {"wsd", "lr, then down to min_lr in the last decay_fraction", TTI_LR_NEEDS_LENGTH, wsd, .1, .3},
};

const tti_lr_schedule *tti_lr_schedule_at(int i) {
    return i >= 0 && (size_t)i < TTI_COUNT(schedules) ? &schedules[i] : NULL;
}

const tti_lr_schedule *tti_lr_schedule_find(const char *name) {
    for (size_t i = 0; i < TTI_COUNT(schedules); i++)
        if (strcmp(schedules[i].name, name) == 0) return &schedules[i];
    return NULL;
}

tti_lr_desc tti_lr_desc_of(const tti_job_config *c, int64_t n_steps, int64_t steps_per_epoch) {
    return (tti_lr_desc){.name = c->schedule.name,
                         .lr = tti_peak_lr(c),
                         .warmup_steps = c->schedule.warmup_steps,
                         .warmup = c->schedule.warmup_shape,
                         .warmup_start = c->schedule.warmup_start,
                         .n_steps = n_steps,
                         .steps_per_epoch = steps_per_epoch,
                         .by_steps = is(c->schedule.unit, "steps"),
                         .step_size = c->schedule.step_size,
                         .milestones = c->schedule.milestones,
                         .gamma = c->schedule.gamma,
                         .min_lr = c->schedule.min_lr,
                         .power = c->schedule.power,
                         .cycle_steps = c->schedule.cycle_steps,
                         .cycle = c->schedule.cycle,
                         .rise = c->schedule.rise,
                         .div = c->schedule.div,
                         .final_div = c->schedule.final_div,
                         .anneal = c->schedule.anneal,
                         .decay_fraction = c->schedule.decay_fraction};
}

tti_plateau_desc tti_plateau_desc_of(const tti_job_config *c) {
    return (tti_plateau_desc){.lr = tti_peak_lr(c),
                              .gamma = c->schedule.gamma,
                              .min_lr = c->schedule.min_lr,
                              .threshold = c->schedule.threshold,
                              .patience = c->schedule.patience,
                              .cooldown = c->schedule.cooldown};
}

/* The factor of the learning rate when the fraction p of the warm-up is done, 0 < p <= 1. */
static double warmup(const tti_lr_desc *d, double p) {
    double start = d->warmup_start;
    if (is(d->warmup, "constant")) return start;
    if (is(d->warmup, "exponential")) return pow(start, 1 - p);
    if (is(d->warmup, "cosine")) return start + (1 - start) * 0.5 * (1 - cos(pi * p));
    return start + (1 - start) * p;
}

bool tti_lr_is_valid(double lr) { return lr >= 0 && lr <= TTI_MOST_LR; /* not NAN */ }

double tti_lr(const tti_lr_desc *d, int64_t t) {
    const tti_lr_schedule *schedule = tti_lr_schedule_find(d->name);
    TTI_ASSERT(schedule && "a schedule of the table");
    if (t >= d->warmup_steps) return schedule->at(d, t - d->warmup_steps);
    return schedule->at(d, 0) * warmup(d, (double)(t + 1) / (double)d->warmup_steps);
}

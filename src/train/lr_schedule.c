/* lr_schedule.c - one short function and one row for each schedule. */
#include "train/lr_schedule.h"

#include <math.h>
#include <string.h>

#include "base/error.h"

static double constant(const tti_lr_desc *d, int64_t t) {
    (void)t;
    return d->lr;
}

/* PyTorch's StepLR: lr * gamma^floor(epoch / step_size). */
static double step(const tti_lr_desc *d, int64_t t) {
    int64_t epoch = (t + d->warmup_steps) / TTI_MAX(d->steps_per_epoch, 1);
    return d->lr * pow(d->gamma, (double)(epoch / TTI_MAX(d->step_size, 1)));
}

/* Half a cosine from lr to min_lr over the steps after the warm-up (Loshchilov, Hutter 2017). */
static double cosine(const tti_lr_desc *d, int64_t t) {
    int64_t n = TTI_MAX(d->n_steps - d->warmup_steps, 1);
    double done = (double)TTI_MIN(t, n) / (double)n;
    return d->min_lr + 0.5 * (d->lr - d->min_lr) * (1 + cos(3.14159265358979323846 * done));
}

static const tti_lr_schedule schedules[] = {
    {"constant", "lr", constant},
    {"cosine", "half a cosine from lr to min_lr", cosine},
    {"step", "lr * gamma^(epoch / step_size)", step},
};

const tti_lr_schedule *tti_lr_schedule_at(int i) {
    return i >= 0 && (size_t)i < TTI_COUNT(schedules) ? &schedules[i] : NULL;
}

double tti_lr(const tti_lr_desc *d, int64_t t) {
    if (t < d->warmup_steps) return d->lr * (double)(t + 1) / (double)d->warmup_steps;
    for (size_t i = 0; i < TTI_COUNT(schedules); i++)
        if (strcmp(schedules[i].name, d->name) == 0) return schedules[i].at(d, t - d->warmup_steps);
    TTI_ASSERT(false && "a schedule of the table");
    return 0;
}

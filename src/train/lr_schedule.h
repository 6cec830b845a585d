/* lr_schedule.h - the learning rate of a step, a pure function of the step. */
#ifndef TTI_TRAIN_LR_SCHEDULE_H
#define TTI_TRAIN_LR_SCHEDULE_H

#include "tutti/types.h"

typedef struct tti_lr_desc {
    const char *name;        /* a row of the table                                      */
    double lr;               /* the peak                                                */
    int64_t warmup_steps;    /* linear from 0: step t has lr * (t+1)/warmup_steps       */
    int64_t n_steps;         /* length of the curve                                     */
    int64_t steps_per_epoch; /* for schedules that count epochs                         */
    int64_t step_size;       /* step: epochs between drops                              */
    double gamma;            /* step: factor of a drop                                  */
    double min_lr;           /* cosine: where it ends                                   */
} tti_lr_desc;

typedef struct tti_lr_schedule {
    const char *name;
    const char *doc;
    double (*at)(const tti_lr_desc *desc, int64_t step); /* step counted after the warm-up */
} tti_lr_schedule;

/* Schedules in order of the table: i = 0, 1, ... until NULL. */
const tti_lr_schedule *tti_lr_schedule_at(int i);

/* The learning rate of step t = 0, 1, ...; the name must be one of the table. */
double tti_lr(const tti_lr_desc *desc, int64_t t);

#endif /* TTI_TRAIN_LR_SCHEDULE_H */

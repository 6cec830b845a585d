/* lr_schedule.h - the learning rate of a step.
 *
 * The rate is a pure function of the step, except for plateau, whose state (plateau.h) is passed by
 * pointer. */
#ifndef TTI_TRAIN_LR_SCHEDULE_H
#define TTI_TRAIN_LR_SCHEDULE_H

#include "train/job/job.h"
#include "train/job/plateau.h"

/* Learning rates are 0 .. TTI_MOST_LR: those of optimizer.lr, of callbacks and of sessions. */
enum { TTI_MOST_LR = 1000 };
bool tti_lr_is_valid(double lr);

/* Fields that the schedule does not use may be zero or NULL. */
typedef struct tti_lr_desc {
    const char *name;        /* a row of the table                                             */
    double lr;               /* the peak                                                       */
    int64_t warmup_steps;    /* step t < warmup_steps has done p = (t+1)/warmup_steps of it */
    const char *warmup;      /* linear, constant, exponential, cosine; NULL: linear            */
    double warmup_start;     /* fraction of the peak at p = 0 */
    int64_t n_steps;         /* length of warm-up and curve                                    */
    int64_t steps_per_epoch; /* for schedules that count epochs                                */
    bool by_steps;           /* step, multi_step, exponential: count steps and not epochs      */
    int64_t step_size;       /* step: epochs between reductions, counted from step 0 */
    tti_int_list milestones; /* multi_step: epochs of the reductions, counted from step 0 */
    double gamma;          /* factor per reduction, per epoch (exponential) or per step (cyclic) */
    double min_lr;         /* final learning rate; cyclic, plateau: the lowest */
    double power;          /* polynomial                                                     */
    int64_t cycle_steps;   /* cyclic: steps of one cycle                                     */
    const char *cycle;     /* cyclic: triangular, triangular2, exp_range                     */
    double rise;           /* fraction of a cycle in which the learning rate rises */
    double div, final_div; /* one_cycle: starts at lr/div, ends at lr/div/final_div          */
    const char *anneal;    /* one_cycle, wsd: cosine, linear, sqrt; NULL: cosine             */
    double decay_fraction; /* wsd: fraction of the curve in which it falls */
    const tti_plateau *plateau; /* plateau: its state; other schedules do not read it */
} tti_lr_desc;

/* The facts of a run on which a schedule depends, besides the step. */
typedef enum tti_lr_needs {
    TTI_LR_NEEDS_NOTHING,
    TTI_LR_NEEDS_LENGTH, /* the number of steps */
    TTI_LR_NEEDS_EPOCHS, /* steps_per_epoch, unless it counts steps */
    TTI_LR_NEEDS_EVALUATIONS
} tti_lr_needs;

typedef struct tti_lr_schedule {
    const char *name;
    const char *doc;
    tti_lr_needs needs;
    double (*at)(const tti_lr_desc *desc, int64_t step); /* step counted after the warm-up */
    double gamma, rise;                                  /* values of "auto" */
} tti_lr_schedule;

/* Returns row i = 0, 1, ... of the table, NULL after the last. */
const tti_lr_schedule *tti_lr_schedule_at(int i);
const tti_lr_schedule *tti_lr_schedule_find(const char *name);

/* Describes the schedule of a resolved job, with texts borrowed from config.  The peak is the
 * scaled learning rate (tti_peak_lr). */
tti_lr_desc tti_lr_desc_of(const tti_job_config *config, int64_t n_steps, int64_t steps_per_epoch);

/* Settings of the state of schedule plateau. */
tti_plateau_desc tti_plateau_desc_of(const tti_job_config *config);

/* The learning rate of step t = 0, 1, ...; the name must be one of the table. */
double tti_lr(const tti_lr_desc *desc, int64_t t);

#endif /* TTI_TRAIN_LR_SCHEDULE_H */

/* step_cost.h - creates the list of instructions of a planned worker, and totals what it computes,
 * sends and updates. The planner and the simulator cost this list. */
#ifndef TTI_PLANNER_STEP_COST_H
#define TTI_PLANNER_STEP_COST_H

#include "exec/exec.h"
#include "planner/calibrate.h"

/* A planned worker: it has the model part with the number `position`, and the shards of the data
 * rank with the most shards, out of n_ranks. */
typedef struct tti_step_worker {
    const tti_blueprint *b;
    int position, n_ranks;
    int n_shards;          /* shards of all data ranks */
    bool is_device;        /* a device, which gathers all parameters bucket by bucket */
    int n_compute_threads; /* at most this number; a device has one */
    int n_owners; /* workers that own a range of a synchronous parameter server; 0: as in the job */
} tti_step_worker;

/* On success the caller owns *out. */
tutti_status tti_step_worker_lists(const tti_step_worker *worker, tti_step_lists **out);

/* A form of step, and the fraction of the job's steps that have this form. The fractions add up to
 * 1. Warm-up steps are ignored. */
typedef struct tti_step_share {
    tti_step_form form;
    double share;
} tti_step_share;

enum { TTI_MAX_STEP_SHARES = 2 };

/* Fills shares and returns their number. */
int tti_step_shares(const tti_blueprint *b, tti_step_share shares[TTI_MAX_STEP_SHARES]);

/* Totals of a step, averaged over the forms of step. */
typedef struct tti_step_cost {
    double n_runs;                      /* runs of the whole shard program, by one compute thread */
    double merged;                      /* elements that the worker adds to other partial sums */
    double n_reductions, reduced_bytes; /* reductions of gradients: calls, and bytes sent */
    double n_gathers, gathered_bytes;   /* gathers of parameters and averages: calls and bytes */
    double n_small;                     /* small all-reduces: reports and hashes */
    double n_updates;
    bool reduces_tied; /* gradients of tied parameters are all-reduced */
} tti_step_cost;

/* Fills *out. c gives the fraction of the shard program that each RUN instruction takes. */
tutti_status tti_step_cost_of(const tti_step_worker *worker, const tti_calibration *c,
                              tti_step_cost *out);

/* The fraction of the shard program's time that its steps before `end` take. */
double tti_program_share(const tti_calibration *c, const tti_program *program, int end);

#endif /* TTI_PLANNER_STEP_COST_H */

/* step_cost.h - the list of instructions of a worker that is not created yet, and what the list
 * adds, sends and updates.  The planner and the simulator cost this list. */
#ifndef TTI_PLANNER_STEP_COST_H
#define TTI_PLANNER_STEP_COST_H

#include "exec/exec.h"
#include "planner/calibrate.h"

/* A worker of a job: the part of the model at `position` of its replica, and the shards of the data
 * rank that has the most of them, out of n_ranks. */
typedef struct tti_step_worker {
    const tti_blueprint *b;
    int position, n_ranks;
    int n_shards;          /* of all data ranks */
    bool is_device;        /* which gathers all parameters bucket by bucket */
    int n_compute_threads; /* at most; a device has one */
    int n_owners; /* of a synchronous parameter server in the workers; 0: as the job says */
} tti_step_worker;

/* On success *out is owned by the caller. */
tutti_status tti_step_worker_lists(const tti_step_worker *worker, tti_step_lists **out);

/* A form of step, and how often the job makes such a step: the shares add up to 1.  Warm-up steps
 * are not counted. */
typedef struct tti_step_share {
    tti_step_form form;
    double share;
} tti_step_share;

enum { TTI_MAX_STEP_SHARES = 2 };

/* Returns their number. */
int tti_step_shares(const tti_blueprint *b, tti_step_share shares[TTI_MAX_STEP_SHARES]);

/* Totals of a step, in the mean over the forms. */
typedef struct tti_step_cost {
    double n_runs;                      /* of the whole shard program, by one compute thread */
    double merged;                      /* elements that the worker adds to others */
    double n_reductions, reduced_bytes; /* gradients: calls, and bytes that the worker sends */
    double n_gathers, gathered_bytes;   /* parameters and averages, likewise */
    double n_small;                     /* small all-reduces: reports and hashes */
    double n_updates;
    bool sums_tied; /* gradients of parameters that several stages have */
} tti_step_cost;

/* c: for the shares of the shard program that RUN instructions take. */
tutti_status tti_step_cost_of(const tti_step_worker *worker, const tti_calibration *c,
                              tti_step_cost *out);

/* The share of the shard program's time that its steps before `end` take. */
double tti_program_share(const tti_calibration *c, const tti_program *program, int end);

#endif /* TTI_PLANNER_STEP_COST_H */

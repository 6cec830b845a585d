/* planner.h - which layout of workers is the fastest, before any of them has run.
 *
 * A layout says how the workers of a job share its work: how many of them have the batch in parts,
 * a part of each layer or some of the layers, who keeps the optimizer's state, into how many shards
 * the batch is cut, and what is computed twice to save memory.  The planner takes every one that
 * this program accepts, predicts the time of a step and the memory from the costs that operations
 * state and from a calibration on this machine, and says which is the best and why the others are
 * not.
 *
 * A job comes out of every call as it went in, so one may be planned, drawn and trained.
 *
 * Threads: a job is used by one thread at a time; calibration uses all cores. */
#ifndef TUTTI_PLANNER_H
#define TUTTI_PLANNER_H

#include "tutti/job.h"

/* Zero is the default of every field. */
typedef struct tutti_plan_desc {
    int n_workers; /* to plan for, whatever layout the job has so far; 0: the job's; at most 64 */
    double
        memory_bytes; /* that all workers of a host, or one of a GPU, may take; 0: what there is */
    const char *device; /* "measured" (default): this machine; "h200", or "cpu" for a core of a host
                           for each worker: figures of one, no measuring */
    double budget_s;    /* for the calibration, 0: 8 */
    int max_rows;       /* of the table, 0: 10 */
    bool json;          /* one object instead of a table */
    bool allow_plugin;  /* tutti_plan_check: as tutti_job_allow_plugin */
} tutti_plan_desc;

/* A cluster that is not there.  Zero is the default of every field but n_workers. */
typedef struct tutti_simulate_desc {
    int n_workers; /* 1 .. 2^20: all powers of two up to it are played, and itself */
    const char
        *network; /* a preset ("h200", the default, "ethernet") or a file: docs/parallelism.md */
    const char *device; /* as in tutti_plan_desc */
    double step_ms;     /* of a worker alone, where it is known; 0: predicted */
    const char *speeds; /* of the copies of the model, over again where they are more: "1,1,0.2";
                           NULL: all are alike */
    bool json;
} tutti_simulate_desc;

TUTTI_EXTERN_C_BEGIN

/* *text: a table of the best layouts, for each what its step takes, its memory, and what the others
 * lose by.  *best: the job as YAML with the best one written into it; NULL where not wanted.  Both
 * are freed with free().  TUTTI_E_CONFIG: no layout is possible; the text has every reason. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_plan_job(tutti_job *job, const tutti_plan_desc *desc,
                                                      char **text, char **best);

/* Compares the predicted step time and memory of a finished run with the measured ones; free *text
 * with free().  The run must have been made on this machine.  Uses desc's device, budget_s, json
 * and allow_plugin. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_plan_check(const char *run_dir,
                                                        const tutti_plan_desc *desc, char **text);

/* Plays the step of a job on many workers, each copy of the model with the batch of the job (where
 * the job divides it, n_workers is a multiple of those who share a copy): what its plan computes,
 * when its buckets of gradients come, and how long their sums take on the links of the network;
 * with a parameter server whose workers do not wait for all others, who comes when and waits for
 * what. *text: the scaling curve, the part of the sums that nobody could hide, and what travels on
 * each level; freed with free(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_simulate_job(tutti_job *job,
                                                          const tutti_simulate_desc *desc,
                                                          char **text);

/* Who has what and what is sent when, for the workers of the job: shards, parameters, state of
 * each, and the buckets whose gradients are summed; picture: as SVG.  *text is freed with free().
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_draw_layout(tutti_job *job, bool picture, char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_PLANNER_H */

/* planner.h - predicts the fastest layout of workers, and simulates clusters.
 *
 * A layout is the sizes of the data, tensor and pipeline axes, the ZeRO stage, the number of
 * shards, and which activations are recomputed.  The planner tries every layout that the job
 * allows.  It predicts step time and memory from the costs that ops declare and from a calibration
 * on this machine, ranks the layouts, and explains why the others are slower or impossible.
 *
 * No call changes its job, so one job may be planned, drawn and trained.
 *
 * Threads: a job is used by one thread at a time; calibration uses all cores. */
#ifndef TUTTI_PLANNER_H
#define TUTTI_PLANNER_H

#include "tutti/job.h"

/* Zero is the default of every field. */
typedef struct tutti_plan_desc {
    int n_workers;       /* number of workers to plan for; 0: the job's; at most 64 */
    double memory_bytes; /* limit for all workers of a host together, or for one worker on a GPU; 0:
                            all memory */
    const char *device;  /* "measured" (default): this machine; "h200", or "cpu" (one core per
                            worker): stored figures, nothing is measured */
    double budget_s;     /* time for calibration, 0: 8 */
    int max_rows;        /* rows of the table, 0: 10 */
    bool json;           /* one JSON object instead of a table */
    bool allow_plugin;   /* tutti_plan_check only: as tutti_job_allow_plugin */
} tutti_plan_desc;

/* The cluster to simulate.  Zero is the default of every field but n_workers. */
typedef struct tutti_simulate_desc {
    int n_workers;       /* 1 .. 2^20: simulates all powers of two up to it, and itself */
    const char *network; /* "h200" (default), "ethernet" or a file: docs/parallelism.md */
    const char *device;  /* as in tutti_plan_desc */
    double step_ms;      /* compute time of a step on one worker; 0: predicted */
    const char *speeds;  /* relative speeds of the replicas, repeated cyclically: "1,1,0.2"; NULL:
                            all are equal */
    bool json;
} tutti_simulate_desc;

TUTTI_EXTERN_C_BEGIN

/* Ranks the layouts of a job.  *text: a table of the best ones with step time and memory, and why
 * others are slower.  *best: the job as YAML with the best layout; best may be NULL.  Free both
 * with free().  TUTTI_E_CONFIG if no layout is possible, with every reason. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_plan_job(tutti_job *job, const tutti_plan_desc *desc,
                                                      char **text, char **best);

/* Compares the predicted step time and memory of a finished run with the measured ones; free *text
 * with free().  The run must have been made on this machine.  Reads device, budget_s, json and
 * allow_plugin of desc.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_plan_check(const char *run_dir,
                                                        const tutti_plan_desc *desc, char **text);

/* Simulates a step of the job on many workers, each replica with the batch of the job; n_workers is
 * a multiple of the workers per replica.  Models compute time, when each gradient bucket is ready,
 * and how long its reduction takes on the links of the network; for asynchronous parameter servers
 * also arrivals and waits.  *text: the scaling curve, the part of the reductions that is not
 * overlapped, and the bytes on each level.  Free it with free(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_simulate_job(tutti_job *job,
                                                          const tutti_simulate_desc *desc,
                                                          char **text);

/* Draws what each worker of the job holds (shards, parameters, optimizer state), what it sends and
 * when; as SVG if svg.  Free *text with free(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_draw_layout(tutti_job *job, bool svg, char **text);

/* Prints the instructions that one worker on the host executes in each kind of step: number, queue,
 * instruction with its range, and what it waits for.  worker: its number, as text.  Free *text with
 * free(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_list_steps(tutti_job *job, const char *worker,
                                                        char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_PLANNER_H */

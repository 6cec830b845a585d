/* slowest.h - finds the worker that the others wait for, and why.  Each worker sums the times of
 * its steps; about twice a second, at agreed steps, all workers gather the sums.  All workers
 * leave a collective at the same time, so the one that waited least arrived last.  Asynchronous
 * workers do not wait, so nothing is reported for them.
 */
#ifndef TTI_TRAIN_SLOWEST_H
#define TTI_TRAIN_SLOWEST_H

#include "base/str.h"
#include "comm/shard_map.h"
#include "exec/exec.h"
#include "train/job/job.h"

typedef enum tti_spent_part {
    TTI_SPENT_DATA,    /* waiting for a batch */
    TTI_SPENT_COPY,    /* samples to a device, gradients from it */
    TTI_SPENT_COMPUTE, /* the rest of the step, without waiting */
    TTI_SPENT_OTHER,   /* between steps: records, progress */
    TTI_SPENT_WAIT,    /* for other workers, and the traffic with them */
    TTI_N_SPENT_PARTS
} tti_spent_part;

/* A worker that is later than this fraction of a step is reported: during the run, where a window
 * may be odd, and at its end. */
static const double TTI_LATE_SHARE = 0.05;
static const double TTI_LATE_OVERALL = 0.01;

/* The finding.  Zero: none yet, or unknown. */
typedef struct tti_slowest_finding {
    bool known;
    int rank;          /* the rank that arrives last at the collectives of a step */
    const char *why;   /* "data", "copy", "compute", "other"; "none": hardly later than the rest */
    double late_share; /* delay after the median of the others, as a fraction of a step; 0 .. 1 */
} tti_slowest_finding;

typedef struct tti_slowest {
    tutti_comm *comm; /* borrowed; NULL: nothing is reported */
    tti_exec *exec;   /* borrowed */
    int n_ranks;
    bool has_begun;              /* the first steps are over, which load things */
    int64_t next, every, n_adds; /* next step to gather at, distance of gatherings, steps in own */
    double own[TTI_N_SPENT_PARTS]; /* ns since the last gathering; of TTI_SPENT_COMPUTE with what
                                    * is copied and waited for in steps */
    tti_exec_spent before;         /* state of exec when own began */
    tti_slowest_finding finding;   /* of the last window; of many workers on one host rank 0 alone
                                      has findings */
    /* Arrays of workers that judge, made at the first gathering: steps allocate nothing. */
    double (*total)[TTI_N_SPENT_PARTS]; /* [n_ranks] seconds in all windows; owned */
    double (*all)[TTI_N_SPENT_PARTS];   /* [n_ranks] of one window; owned */
    double *sorted;                     /* [n_ranks] for tti_slowest_of; owned */
    tti_slowest_finding overall;        /* of all windows; why "none" below TTI_LATE_OVERALL */
} tti_slowest;

/* Judges the times of n_ranks workers, in seconds; no communication.  A worker that is late by less
 * than least_share of a step has no cause.  sorted: [n_ranks], overwritten. */
void tti_slowest_of(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks, double least_share,
                    double *sorted, tti_slowest_finding *out);

/* comm: of all workers of a job whose workers wait for each other, else NULL. */
void tti_slowest_init(tti_slowest *s, tutti_comm *comm, tti_exec *exec, int64_t first_step);
void tti_slowest_fini(tti_slowest *s); /* also of one that is zero */

/* Adds the times of a step in ns: waiting for a batch, in the executor, and in total. */
void tti_slowest_add(tti_slowest *s, int64_t data_ns, int64_t exec_ns, int64_t spent_ns);

/* Excludes the executor's time between the two calls, which belongs to no step.  Fails if a device
 * fails. */
tutti_status tti_slowest_pause(tti_slowest *s, tti_exec_spent *at);
tutti_status tti_slowest_go_on(tti_slowest *s, const tti_exec_spent *at);

/* Whether to gather after this step; the same answer on all workers. */
bool tti_slowest_is_due(const tti_slowest *s, int64_t step);

/* Gathers the times, sets the finding, and starts a new window.  Collective.  The first call may
 * fail with TUTTI_E_NOMEM. */
tutti_status tti_slowest_gather(tti_slowest *s, int64_t step);

/* Appends which parallel.load_weights would have shortened the steps by at least TTI_LATE_OVERALL.
 * Appends nothing if no weights would, if computing is not why the slowest worker is late, after
 * less than 20 seconds, for more than 16 workers, and if this worker does not judge.  now: the
 * shard map of the run.  exact: uneven runs then send more partial sums.  Fails with
 * TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_slowest_advise(const tti_slowest *s, const tti_shard_map *now,
                                                bool exact, tti_str *text);

#endif /* TTI_TRAIN_SLOWEST_H */

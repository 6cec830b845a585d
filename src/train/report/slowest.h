/* slowest.h - finds the worker that the others wait for, and the reason.  Each worker sums the
 * times of its steps; about twice a second, at agreed steps, all workers gather the sums.  All
 * workers leave a collective at the same time, so the worker that waited least arrived last.
 * Asynchronous workers do not wait, so nothing is reported for them. */
#ifndef TTI_TRAIN_SLOWEST_H
#define TTI_TRAIN_SLOWEST_H

#include "base/str.h"
#include "comm/shard_map.h"
#include "exec/exec.h"
#include "train/job/job.h"

typedef enum tti_spent_part {
    TTI_SPENT_DATA,    /* waiting for a batch */
    TTI_SPENT_COPY,    /* copying samples to a device and gradients from it */
    TTI_SPENT_COMPUTE, /* the rest of the step, except waiting */
    TTI_SPENT_OTHER,   /* between steps: records, progress */
    TTI_SPENT_WAIT,    /* waiting for other workers, and communication with them */
    TTI_N_SPENT_PARTS
} tti_spent_part;

/* A worker is reported if its delay exceeds this fraction of a step.  The limit is higher during
 * the run, because single windows are noisy, than at its end. */
static const double TTI_LATE_SHARE = 0.05;
static const double TTI_LATE_OVERALL = 0.01;

/* The finding.  Zero: none yet, or unknown. */
typedef struct tti_slowest_finding {
    bool known;
    int rank;          /* the rank that arrives last at the collectives of a step */
    const char *why;   /* "data", "copy", "compute", "other"; "none": hardly later than the rest */
    double late_share; /* delay relative to the median of the others, as a fraction of a step; 0 ..
                          1 */
} tti_slowest_finding;

typedef struct tti_slowest {
    tutti_comm *comm; /* borrowed; NULL: nothing is reported */
    tti_exec *exec;   /* borrowed */
    int n_ranks;
    bool has_begun;                /* the first steps, which load kernels and data, are over */
    int64_t next, every, n_adds;   /* next: step of the next gathering; every: steps between
                                      gatherings; n_adds: steps in own */
    double own[TTI_N_SPENT_PARTS]; /* ns since the last gathering; TTI_SPENT_COMPUTE includes copies
                                      and waits in steps */
    tti_exec_spent before;         /* state of exec when own began */
    tti_slowest_finding finding;   /* finding of the last window; with many workers on one host only
                                      rank 0 has findings */
    /* Arrays of workers that compute findings, allocated at the first gathering so that steps
     * allocate nothing. */
    double (*total)[TTI_N_SPENT_PARTS]; /* [n_ranks] seconds in all windows; owned */
    double (*all)[TTI_N_SPENT_PARTS];   /* [n_ranks] seconds in one window; owned */
    double *sorted;                     /* [n_ranks] for tti_slowest_of; owned */
    tti_slowest_finding overall; /* finding of all windows; why is "none" below TTI_LATE_OVERALL */
} tti_slowest;

/* Computes the finding from the times of n_ranks workers, in seconds, without communication.  The
 * reason is "none" if the delay is below least_share of a step. sorted: [n_ranks], overwritten. */
void tti_slowest_of(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks, double least_share,
                    double *sorted, tti_slowest_finding *out);

/* Initializes s. comm: the communicator of all workers if they wait for each other, else NULL. */
void tti_slowest_init(tti_slowest *s, tutti_comm *comm, tti_exec *exec, int64_t first_step);
void tti_slowest_fini(tti_slowest *s); /* accepts a zeroed struct */

/* Adds the times of a step in ns: waiting for a batch, in the executor, and in total. */
void tti_slowest_add(tti_slowest *s, int64_t data_ns, int64_t exec_ns, int64_t spent_ns);

/* Exclude the executor's time between the two calls, which belongs to no step.  Fail if a device
 * fails. */
tutti_status tti_slowest_pause(tti_slowest *s, tti_exec_spent *at);
tutti_status tti_slowest_go_on(tti_slowest *s, const tti_exec_spent *at);

/* True if times are gathered after this step; equal on all workers. */
bool tti_slowest_is_due(const tti_slowest *s, int64_t step);

/* Gathers the times, sets the finding, and starts a new window.  Collective.  TUTTI_E_NOMEM: only
 * in the first call. */
tutti_status tti_slowest_gather(tti_slowest *s, int64_t step);

/* Appends the parallel.load_weights that would have shortened the steps by at least
 * TTI_LATE_OVERALL.  Appends nothing if there are none, if the slowest worker is not late because
 * of computing, after less than 20 seconds, for more than 16 workers, or if this worker computes no
 * findings. now: the shard map of the run. exact: uneven runs send more partial sums, which is
 * considered.  TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_slowest_advise(const tti_slowest *s, const tti_shard_map *now,
                                                bool exact, tti_str *text);

#endif /* TTI_TRAIN_SLOWEST_H */

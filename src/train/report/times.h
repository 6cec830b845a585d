/* times.h - records where the time of every worker goes.
 *
 * Each worker adds up the times of its steps; at agreed steps, which become rarer as the run
 * continues, all workers exchange the sums since the last time.  Rank 0 writes them (reporter.h).
 */
#ifndef TTI_TRAIN_TIMES_H
#define TTI_TRAIN_TIMES_H

#include "exec/exec.h"
#include "train/job/job.h"

typedef enum tti_time_part {
    TTI_TIME_DATA,    /* waiting for the loader */
    TTI_TIME_COMPUTE, /* forward and backward */
    TTI_TIME_COMM,    /* reduction, and waiting for other workers in it */
    TTI_TIME_UPDATE,  /* the optimizer */
    TTI_TIME_SPENT,   /* whole steps: the four above and the time between them */
    TTI_N_TIME_PARTS
} tti_time_part;

typedef struct tti_times {
    tutti_comm *comm; /* borrowed; NULL: a single worker, or exec is set */
    tti_exec *exec;   /* borrowed: a worker process without comm gathers through its server */
    int rank, n_ranks;
    bool at_root;                    /* rank 0 alone has all */
    int64_t first_step;              /* steps done before this part of the run */
    double own[TTI_N_TIME_PARTS];    /* seconds since the last gathering */
    double (*all)[TTI_N_TIME_PARTS]; /* [n_ranks] owned, of the last gathering; NULL: rank 0 of
                                        many workers has it */
} tti_times;

/* first_step: steps that earlier parts of the run have done, the same on all workers.  for_all:
 * every worker needs the times of all.  The caller calls fini, also after a failure. */
TUTTI_NODISCARD tutti_status tti_times_init(tti_times *t, tutti_comm *comm, int n_ranks,
                                            int64_t first_step, bool for_all);
void tti_times_fini(tti_times *t);

/* Adds the times of a step; spent_ns: the whole step, wait_ns: waiting for its batch. */
void tti_times_add(tti_times *t, const tti_step_result *result, int64_t wait_ns, int64_t spent_ns);

/* Whether to gather after this step: at first always, then 16 times per doubling of the number of
 * steps, so a run of any length gathers a few hundred times; many workers once per doubling. */
bool tti_times_is_due(const tti_times *t, int64_t step);

/* Gathers into all and starts again.  Collective. */
tutti_status tti_times_gather(tti_times *t);

#endif /* TTI_TRAIN_TIMES_H */

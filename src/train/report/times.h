/* times.h - records how every worker spends its time.
 *
 * Each worker adds up the times of its steps.  At agreed steps, which become rarer during the run,
 * all workers gather the sums since the last gathering, and rank 0 writes them (reporter.h). */
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
    bool at_root;                    /* only rank 0 has all times */
    int64_t first_step;              /* steps done before this part of the run */
    double own[TTI_N_TIME_PARTS];    /* seconds since the last gathering */
    double (*all)[TTI_N_TIME_PARTS]; /* [n_ranks] owned, times of the last gathering; NULL: only
                                        rank 0 has them */
} tti_times;

/* Initializes t. first_step: steps that earlier parts of the run have done, equal on all workers.
 * for_all: every worker needs the times of all workers.  The caller calls fini, also after a
 * failure. */
TUTTI_NODISCARD tutti_status tti_times_init(tti_times *t, tutti_comm *comm, int n_ranks,
                                            int64_t first_step, bool for_all);
void tti_times_fini(tti_times *t);

/* Adds the times of a step; spent_ns: the whole step, wait_ns: waiting for its batch. */
void tti_times_add(tti_times *t, const tti_step_result *result, int64_t wait_ns, int64_t spent_ns);

/* True if times are gathered after this step: at first after every step, then 16 times per doubling
 * of the number of steps, so a run of any length gathers a few hundred times.  Many workers gather
 * once per doubling. */
bool tti_times_is_due(const tti_times *t, int64_t step);

/* Gathers the times into t->all and resets t->own.  Collective. */
tutti_status tti_times_gather(tti_times *t);

#endif /* TTI_TRAIN_TIMES_H */

/* slowest.h - which worker the others wait for, and what keeps it.
 *
 * Each worker adds up what its steps are spent on; about twice a second, after steps that all agree
 * on, the sums go to all.  All end an exchange at the same time, so who waited least for the others
 * came last.  Asynchronous workers wait for nobody: nothing is told of them. */
#ifndef TTI_TRAIN_SLOWEST_H
#define TTI_TRAIN_SLOWEST_H

#include "exec/exec.h"
#include "train/job/job.h"

typedef enum tti_spent_part {
    TTI_SPENT_DATA,    /* until there was a batch */
    TTI_SPENT_COPY,    /* samples to a device, gradients from it */
    TTI_SPENT_COMPUTE, /* the rest of the step: all of it but waiting */
    TTI_SPENT_OTHER,   /* between steps: records, progress */
    TTI_SPENT_WAIT,    /* for other workers, and the traffic with them */
    TTI_N_SPENT_PARTS
} tti_spent_part;

/* Who is later than so much of a step is told of. */
static const double TTI_LATE_SHARE = 0.05;

/* What is told.  Zero: nothing yet, or nothing can be known. */
typedef struct tti_slowest_told {
    bool known;
    int rank;          /* who comes last to the exchanges of a step */
    const char *why;   /* "data", "copy", "compute", "other"; "none": hardly later than the rest */
    double late_share; /* after the median of the others, of the time of a step; 0 .. 1 */
} tti_slowest_told;

typedef struct tti_slowest {
    tutti_comm *comm; /* borrowed; NULL: nothing is told */
    tti_exec *exec;   /* borrowed */
    int n_ranks;
    bool has_begun;                /* the first steps are over, which load things */
    int64_t next, every, n_adds;   /* steps: when to gather, from which distance; in own */
    double own[TTI_N_SPENT_PARTS]; /* ns since the last gathering; of TTI_SPENT_COMPUTE with what
                                    * is copied and waited for in steps */
    tti_exec_spent before;         /* when own began */
    tti_slowest_told told;
} tti_slowest;

/* Of n_ranks workers, seconds each: the judgement alone. */
tti_slowest_told tti_slowest_of(const double (*spent)[TTI_N_SPENT_PARTS], int n_ranks);

/* comm: of all workers of a job whose workers wait for each other, else NULL. */
void tti_slowest_init(tti_slowest *s, tutti_comm *comm, tti_exec *exec, int64_t first_step);

/* A step has been done: ns until there was a batch, in the executor, and in all. */
void tti_slowest_add(tti_slowest *s, int64_t data_ns, int64_t exec_ns, int64_t spent_ns);

/* What the executor does between the two calls is of no step.  Fail where a device does. */
tutti_status tti_slowest_pause(tti_slowest *s, tti_exec_spent *at);
tutti_status tti_slowest_go_on(tti_slowest *s, const tti_exec_spent *at);

/* Whether to gather after this step: the same on all workers. */
bool tti_slowest_is_due(const tti_slowest *s, int64_t step);

/* Gathers, judges into told, and begins anew.  Collective. */
tutti_status tti_slowest_gather(tti_slowest *s, int64_t step);

#endif /* TTI_TRAIN_SLOWEST_H */

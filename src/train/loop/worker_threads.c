/* worker_threads.c - starts the workers of a job as threads, joins them, and finds the one that
 * failed first. */
#include "train/loop/worker_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

typedef struct member {
    const tti_worker_threads_desc *desc;
    int rank;
    pthread_t thread;
    tutti_status status;
    int64_t failed_ns;
    char error[4096];
} member;

static void *run_member(void *arg) {
    member *m = arg;
    m->status = m->desc->run(m->desc->user, m->rank);
    if (m->status != TUTTI_OK) {
        m->failed_ns = tti_now_ns();
        snprintf(m->error, sizeof m->error, "%s", tutti_last_error());
    }
    return NULL;
}

/* The worker that failed first is the cause; other failures follow from it. */
static tutti_status first_failure(const member *members, int n) {
    const member *first = NULL;
    for (int r = 0; r < n; r++) {
        if (members[r].status == TUTTI_OK) continue;
        bool own = members[r].status != TUTTI_E_PEER;
        bool first_own = first && first->status != TUTTI_E_PEER;
        if (!first || (own && !first_own) ||
            (own == first_own && members[r].failed_ns < first->failed_ns))
            first = &members[r];
    }
    return first ? tti_fail(first->status, "%s", first->error) : TUTTI_OK;
}

tutti_status tti_worker_threads_join(tutti_comm_group *group, int rank, int n,
                                     const tti_job_config *config, tutti_comm **out) {
    const tutti_comm_desc desc = {.group = group,
                                  .rank = rank,
                                  .n_ranks = n,
                                  .timeout_ms = (int)config->parallel.timeout_ms,
                                  .phase_timeout_ms = (int)config->parallel.phase_timeout_ms};
    *out = NULL;
    return n > 1 ? tutti_comm_create(&desc, out) : TUTTI_OK;
}

tutti_status tti_worker_threads_run(const tti_worker_threads_desc *desc) {
    member *members = calloc((size_t)desc->n, sizeof *members);
    if (!members) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", desc->who);
    int n_started = 1;
    for (int r = 0; r < desc->n; r++) members[r] = (member){.desc = desc, .rank = r};
    while (n_started < desc->n &&
           pthread_create(&members[n_started].thread, NULL, run_member, &members[n_started]) == 0)
        n_started++;
    tutti_status st = TUTTI_OK;
    if (n_started < desc->n) {
        st = tti_fail(TUTTI_E_NOMEM, "%s: cannot start worker thread %d of %d", desc->who,
                      n_started, desc->n);
        tutti_comm_group_abort(desc->group, -1, tutti_last_error());
    } else {
        run_member(&members[0]);
    }
    for (int r = 1; r < n_started; r++) pthread_join(members[r].thread, NULL);
    if (st == TUTTI_OK) st = first_failure(members, desc->n);
    free(members);
    return st;
}

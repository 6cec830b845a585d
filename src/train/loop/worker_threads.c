/* worker_threads.c - starts the workers of a job as threads, joins them, and finds the one that
 * failed first. */
#include "train/loop/worker_threads.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"

/* Counts the workers that have ended, and records the first failure. */
typedef struct ending {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n;
    bool is_watched;
} ending;

typedef struct member {
    const tti_worker_threads_desc *desc;
    ending *ended;
    int rank;
    pthread_t thread;
    tutti_status status;
    int64_t failed_ns;
    char error[4096];
} member;

/* Waits until all workers have ended or the grace period is over, because a thread may be stuck,
 * for example on a disk that does not answer. */
static void watch_others(const member *m) {
    const tti_worker_threads_desc *desc = m->desc;
    ending *e = m->ended;
    int64_t end_ns = tti_now_ns() + desc->grace_ms * TTI_NS_PER_MS;
    char text[sizeof m->error + 200];
    pthread_mutex_lock(&e->mutex);
    int code = 0;
    while (e->n < desc->n && code == 0) code = tti_cond_wait_until(&e->changed, &e->mutex, end_ns);
    int n_left = desc->n - e->n;
    pthread_mutex_unlock(&e->mutex);
    if (n_left == 0) return;
    snprintf(text, sizeof text, "%s; %d worker%s not ended %lld ms after worker %d failed",
             m->error, n_left, n_left > 1 ? "s have" : " has", (long long)desc->grace_ms, m->rank);
    desc->on_stuck(desc->user, m->status, text);
}

static void *run_member(void *arg) {
    member *m = arg;
    ending *e = m->ended;
    m->status = m->desc->run(m->desc->user, m->rank);
    if (m->status != TUTTI_OK) {
        m->failed_ns = tti_now_ns();
        snprintf(m->error, sizeof m->error, "%s", tutti_last_error());
    }
    pthread_mutex_lock(&e->mutex);
    e->n++;
    bool watches = m->status != TUTTI_OK && m->desc->on_stuck && !e->is_watched;
    e->is_watched |= watches;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
    if (watches) watch_others(m);
    return NULL;
}

/* Returns the failure of the worker that failed first, which caused the other failures. */
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
    ending ended = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    tti_cond_init(&ended.changed);
    for (int r = 0; r < desc->n; r++)
        members[r] = (member){.desc = desc, .ended = &ended, .rank = r};
    while (n_started < desc->n &&
           pthread_create(&members[n_started].thread, NULL, run_member, &members[n_started]) == 0)
        n_started++;
    tutti_status st = TUTTI_OK;
    if (n_started < desc->n) {
        st = tti_fail(TUTTI_E_NOMEM, "%s: cannot start worker thread %d of %d", desc->who,
                      n_started, desc->n);
        ended.n =
            desc->n - n_started; /* these threads never start; the failure is reported below */
        ended.is_watched = true;
        tutti_comm_group_abort(desc->group, -1, tutti_last_error());
    } else {
        run_member(&members[0]);
    }
    for (int r = 1; r < n_started; r++) pthread_join(members[r].thread, NULL);
    if (st == TUTTI_OK) st = first_failure(members, desc->n);
    pthread_cond_destroy(&ended.changed);
    free(members);
    return st;
}

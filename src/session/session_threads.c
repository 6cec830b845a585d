/* session_threads.c - the threads of a session's workers: each waits for a function, runs it, and
 * reports.
 *
 * A failure that other workers may wait for ends the group, so that none waits forever. */
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "comm/transport.h"
#include "session/session_state.h"

static bool is_fatal(const tutti_session *s, tutti_status st) {
    return st != TUTTI_OK && st != TUTTI_E_NUMERICS && !s->threads.tries;
}

static void fail_others(const tti_session_worker *w) {
    tutti_session *s = w->session;
    if (s->group) tutti_comm_group_abort(s->group, w->rank, w->error);
    if (s->comm) tti_comm_abort(s->comm, w->error);
    if (w->server) tti_server_abort(w->server, w->status, w->error);
}

static void run(tti_session_worker *w, tti_session_fn fn, void *arg) {
    w->status = fn(w, arg);
    w->error[0] = '\0';
    if (w->status == TUTTI_OK) return;
    snprintf(w->error, sizeof w->error, "%s", tutti_last_error());
    if (is_fatal(w->session, w->status)) fail_others(w);
}

static void *worker_main(void *arg) {
    tti_session_worker *w = arg;
    tti_session_threads *c = &w->session->threads;
    int64_t turn = 0;
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        while (c->turn == turn) pthread_cond_wait(&c->begin, &c->mutex);
        turn = c->turn;
        tti_session_fn fn = c->fn;
        void *fn_arg = c->arg;
        if (!fn) break;
        pthread_mutex_unlock(&c->mutex);
        run(w, fn, fn_arg);
        pthread_mutex_lock(&c->mutex);
        if (--c->n_left == 0) pthread_cond_signal(&c->end);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

tutti_status tti_session_threads_start(tutti_session *s) {
    tti_session_threads *c = &s->threads;
    while (c->n_started < s->n_workers) {
        tti_session_worker *w = &s->workers[c->n_started];
        if (tti_thread_start(&w->thread, NULL, worker_main, w) != 0)
            return tti_fail(TUTTI_E_NOMEM, "session: cannot start worker thread %d of %d",
                            c->n_started, s->n_workers);
        c->n_started++;
    }
    return TUTTI_OK;
}

/* Hands a function to all threads; NULL ends them. */
static void begin(tti_session_threads *c, tti_session_fn fn, void *arg) {
    c->fn = fn;
    c->arg = arg;
    c->n_left = c->n_started;
    c->turn++;
    pthread_cond_broadcast(&c->begin);
}

void tti_session_threads_stop(tutti_session *s) {
    tti_session_threads *c = &s->threads;
    if (c->n_started == 0) return;
    pthread_mutex_lock(&c->mutex);
    begin(c, NULL, NULL);
    pthread_mutex_unlock(&c->mutex);
    for (int i = 0; i < c->n_started; i++) pthread_join(s->workers[i].thread, NULL);
    c->n_started = 0;
}

/* The cause: failures of the kind "a peer failed" follow from others. */
static const tti_session_worker *first_failure(const tutti_session *s) {
    const tti_session_worker *first = NULL;
    for (int i = 0; i < s->n_workers; i++) {
        const tti_session_worker *w = &s->workers[i];
        if (w->status == TUTTI_OK) continue;
        if (!first || (first->status == TUTTI_E_PEER && w->status != TUTTI_E_PEER)) first = w;
    }
    return first;
}

static tutti_status call_all(tutti_session *s, tti_session_fn fn, void *arg, bool tries) {
    tti_session_threads *c = &s->threads;
    pthread_mutex_lock(&c->mutex);
    c->tries = tries;
    begin(c, fn, arg);
    while (c->n_left > 0) pthread_cond_wait(&c->end, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    const tti_session_worker *w = first_failure(s);
    if (!w) return TUTTI_OK;
    if (is_fatal(s, w->status)) {
        s->failed = w->status;
        snprintf(s->failure, sizeof s->failure, "%s", w->error);
    }
    return tti_fail(w->status, "%s", w->error);
}

tutti_status tti_session_run(tutti_session *s, tti_session_fn fn, void *arg) {
    return call_all(s, fn, arg, false);
}

tutti_status tti_session_try(tutti_session *s, tti_session_fn fn, void *arg) {
    return call_all(s, fn, arg, true);
}

/* ---- where workers compute ---- */

const tti_backend *tti_worker_backend(const tti_session_worker *w) {
    return tti_blueprint_backend(w->b);
}

int tti_worker_device(const tti_session_worker *w) {
    bool on_host = !tti_worker_backend(w)->device;
    return on_host ? TTI_ON_HOST : tti_devices_place(tti_blueprint_devices(w->b), w->local_rank);
}

tti_session_worker *tti_session_worker_on(const tutti_session *s, int device) {
    for (int i = 0; i < s->n_workers; i++)
        if (tti_worker_device(&s->workers[i]) == device) return &s->workers[i];
    return NULL;
}

const tti_device_ops *tti_session_device_ops(const tutti_session *s) {
    return tti_worker_backend(&s->workers[0])->device;
}

/* comm_thread.c - the communication thread. Its mutex is never held during a collective. */
#include "exec/host/comm_thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/affinity.h"
#include "base/error.h"

struct tti_comm_thread {
    int core;
    tti_instr_fn fn;
    void *user;
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t changed;
    const tti_step_program *program; /* of the current step; NULL: none */
    int *n_arrived;                  /* [n_instrs]: number of compute threads that arrived */
    _Atomic int position;            /* the next instruction; changed under the mutex */
    bool stop;
    tutti_status status;
    char error[1024];
};

static bool is_comm(const tti_step_program *p, int instr) {
    return instr < p->n_instrs && p->instrs[instr].queue == TTI_ON_COMM;
}

static void move_on(tti_comm_thread *t, int position) {
    const tti_step_program *p = t->program;
    while (position < p->n_instrs && !is_comm(p, position)) position++;
    atomic_store_explicit(&t->position, position, memory_order_release);
}

static bool is_done(const tti_comm_thread *t, int instr) {
    return atomic_load_explicit(&t->position, memory_order_acquire) > instr;
}

static bool is_ready(const tti_comm_thread *t) {
    int at = t->position;
    return t->program && at < t->program->n_instrs &&
           t->n_arrived[at] == t->program->instrs[at].n_arrivals;
}

/* Runs the next instruction with the mutex released. After a failure it skips instructions, so that
 * finish returns. */
static void run_next(tti_comm_thread *t) {
    int at = t->position;
    const tti_instr *instr = &t->program->instrs[at];
    bool give_up = t->status != TUTTI_OK;
    pthread_mutex_unlock(&t->mutex);
    tutti_status st = give_up ? TUTTI_OK : t->fn(instr, t->user);
    pthread_mutex_lock(&t->mutex);
    if (st != TUTTI_OK) {
        t->status = st;
        snprintf(t->error, sizeof t->error, "%s", tutti_last_error());
    }
    move_on(t, at + 1);
    pthread_cond_broadcast(&t->changed);
}

static void *walk_queue(void *arg) {
    tti_comm_thread *t = arg;
    tti_core_pin(t->core);
    pthread_mutex_lock(&t->mutex);
    while (!t->stop) {
        if (is_ready(t))
            run_next(t);
        else
            pthread_cond_wait(&t->changed, &t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

tutti_status tti_comm_thread_create(int n_instrs, int core, tti_instr_fn fn, void *user,
                                    tti_comm_thread **out) {
    tti_comm_thread *t = *out = calloc(1, sizeof *t);
    if (!t) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *t = (tti_comm_thread){.core = core, .fn = fn, .user = user};
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    t->n_arrived = calloc((size_t)n_instrs + 1, sizeof *t->n_arrived);
    t->started = t->n_arrived && pthread_create(&t->thread, NULL, walk_queue, t) == 0;
    return t->started ? TUTTI_OK
                      : tti_fail(TUTTI_E_NOMEM, "exec: cannot start the communication thread");
}

void tti_comm_thread_destroy(tti_comm_thread *t) {
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    if (t->started) pthread_join(t->thread, NULL);
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->changed);
    free(t->n_arrived);
    free(t);
}

void tti_comm_thread_begin(tti_comm_thread *t, const tti_step_program *program) {
    pthread_mutex_lock(&t->mutex);
    for (int i = 0; i < program->n_instrs; i++) t->n_arrived[i] = 0;
    t->program = program;
    t->status = TUTTI_OK;
    move_on(t, 0);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

static tutti_status report_failure(const tti_comm_thread *t, tutti_status st) {
    return st == TUTTI_OK ? TUTTI_OK : tti_fail(st, "%s", t->error);
}

tutti_status tti_comm_thread_check(tti_comm_thread *t) {
    pthread_mutex_lock(&t->mutex);
    tutti_status st = t->status;
    pthread_mutex_unlock(&t->mutex);
    return report_failure(t, st);
}

tutti_status tti_comm_thread_finish(tti_comm_thread *t) {
    if (!t || !t->program) return TUTTI_OK;
    pthread_mutex_lock(&t->mutex);
    while (!is_done(t, t->program->n_instrs - 1)) pthread_cond_wait(&t->changed, &t->mutex);
    t->program = NULL;
    tutti_status st = t->status;
    pthread_mutex_unlock(&t->mutex);
    return report_failure(t, st);
}

/* ---- compute threads ---- */

tti_compute_thread_cursor tti_compute_thread_cursor_at(tti_comm_thread *t,
                                                       const tti_step_program *p, int instr) {
    const tti_instr *in = &p->instrs[instr];
    return (tti_compute_thread_cursor){.thread = t,
                                       .program = p,
                                       .next_signal = t ? instr + 1 : p->n_instrs,
                                       .next_wait = in->first_wait,
                                       .last_wait = in->first_wait + (t ? in->n_waits : 0)};
}

bool tti_compute_thread_cursor_is_used(const tti_compute_thread_cursor *c) {
    return is_comm(c->program, c->next_signal) || c->next_wait < c->last_wait;
}

static bool is_due(const tti_compute_thread_cursor *c, int step) {
    return is_comm(c->program, c->next_signal) && c->program->instrs[c->next_signal].after <= step;
}

void tti_compute_thread_cursor_signal(tti_compute_thread_cursor *c, int step) {
    tti_comm_thread *t = c->thread;
    bool wakes = false;
    if (!is_due(c, step)) return;
    pthread_mutex_lock(&t->mutex);
    for (; is_due(c, step); c->next_signal++) {
        ++t->n_arrived[c->next_signal];
        wakes = wakes || c->next_signal == t->position;
    }
    if (wakes && is_ready(t)) pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

bool tti_compute_thread_cursor_must_wait(const tti_compute_thread_cursor *c, int step) {
    return c->next_wait < c->last_wait && c->program->waits[c->next_wait].step <= step;
}

void tti_compute_thread_cursor_wait(tti_compute_thread_cursor *c, int step) {
    tti_comm_thread *t = c->thread;
    for (; tti_compute_thread_cursor_must_wait(c, step); c->next_wait++) {
        int instr = c->program->waits[c->next_wait].instr;
        if (is_done(t, instr)) continue;
        pthread_mutex_lock(&t->mutex);
        while (!is_done(t, instr) && t->status == TUTTI_OK)
            pthread_cond_wait(&t->changed, &t->mutex);
        pthread_mutex_unlock(&t->mutex);
    }
}

void tti_compute_thread_cursor_leave(tti_compute_thread_cursor *c) {
    tti_compute_thread_cursor_signal(c, TTI_AT_END);
}

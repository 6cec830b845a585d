/* traffic.c - the list of moves, and one thread that works it off.
 *
 * The idea to know: moves stand in the order of the steps they wait for, and what a shard waits for
 * before a step stands before everything that waits for this shard to go on.  So nothing waits in a
 * circle, on one worker or between them. */
#include "exec/traffic.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/affinity.h"
#include "base/error.h"

typedef struct move {
    tti_move_kind kind;
    const tti_use *use;
    int needs; /* all shards have done the steps before this one */
} move;

struct tti_traffic {
    tti_traffic_desc desc;
    move *moves; /* [n_moves] */
    int n_moves;
    int *wanted;  /* [n_steps + 1]: moves that must be made before a step */
    bool *counts; /* [n_steps + 1]: a move waits for this step */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards what is below */
    pthread_cond_t changed;
    int *n_arrived; /* [n_steps + 1]: shards */
    int n_shards, n_done;
    bool active, stop;
    tutti_status status;
    char error[1024];
};

/* ---- the list ---- */

static void add_moves(tti_traffic *t, const tti_window *w, tti_move_kind kind) {
    for (int i = 0; w && i < w->n_uses; i++) {
        const tti_use *use = &w->uses[i];
        int needs = kind == TTI_MOVE_FETCH ? use->taken : use->last + 1;
        t->moves[t->n_moves++] = (move){kind, use, needs};
    }
}

/* What shards wait for first. */
static int by_need(const void *a, const void *b) {
    const move *x = a, *y = b;
    if (x->needs != y->needs) return x->needs < y->needs ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->use->first != y->use->first) return x->use->first < y->use->first ? -1 : 1;
    return (x->use->bucket > y->use->bucket) - (x->use->bucket < y->use->bucket);
}

static void want(tti_traffic *t, int step, int n_moves) {
    t->wanted[step] = TTI_MAX(t->wanted[step], n_moves);
}

/* A place is taken when what lay there before has been reduced. */
static void want_places(tti_traffic *t, int i) {
    const tti_window *w = t->desc.grads;
    const tti_use *gone = t->moves[i].use;
    for (int k = 0; k < w->n_uses; k++)
        if (w->uses[k].taken > gone->last && tti_window_shares(w, gone, &w->uses[k]))
            want(t, w->uses[k].first, i + 1);
}

static tutti_status list_moves(tti_traffic *t) {
    const tti_traffic_desc *d = &t->desc;
    size_t n = (size_t)d->n_steps + 1;
    size_t n_moves =
        (size_t)(d->params ? d->params->n_uses : 0) + (size_t)(d->grads ? d->grads->n_uses : 0);
    t->moves = calloc(n_moves + 1, sizeof *t->moves);
    t->wanted = calloc(n, sizeof *t->wanted);
    t->counts = calloc(n, sizeof *t->counts);
    t->n_arrived = calloc(n, sizeof *t->n_arrived);
    if (!t->moves || !t->wanted || !t->counts || !t->n_arrived)
        return tti_fail(TUTTI_E_NOMEM, "traffic: out of memory");
    add_moves(t, d->params, TTI_MOVE_FETCH);
    add_moves(t, d->grads, TTI_MOVE_REDUCE);
    if (t->n_moves > 0) qsort(t->moves, (size_t)t->n_moves, sizeof *t->moves, by_need);
    for (int i = 0; i < t->n_moves; i++) {
        t->counts[t->moves[i].needs] = true;
        if (t->moves[i].kind == TTI_MOVE_FETCH)
            want(t, t->moves[i].use->first, i + 1);
        else
            want_places(t, i);
    }
    return TUTTI_OK;
}

/* ---- the thread ---- */

static bool is_ready(const tti_traffic *t) {
    return t->active && t->n_done < t->n_moves &&
           t->n_arrived[t->moves[t->n_done].needs] == t->n_shards;
}

/* With the mutex released; after a failure moves are only counted. */
static void make_next(tti_traffic *t) {
    const move *m = &t->moves[t->n_done];
    bool give_up = t->status != TUTTI_OK;
    pthread_mutex_unlock(&t->mutex);
    tutti_status st = give_up ? TUTTI_OK : t->desc.fn(m->kind, m->use, t->desc.user);
    pthread_mutex_lock(&t->mutex);
    if (st != TUTTI_OK) {
        t->status = st;
        snprintf(t->error, sizeof t->error, "%s", tutti_last_error());
    }
    t->n_done++;
    pthread_cond_broadcast(&t->changed);
}

static void *run(void *arg) {
    tti_traffic *t = arg;
    tti_core_pin(t->desc.core);
    pthread_mutex_lock(&t->mutex);
    while (!t->stop) {
        if (is_ready(t))
            make_next(t);
        else
            pthread_cond_wait(&t->changed, &t->mutex);
    }
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

tutti_status tti_traffic_create(const tti_traffic_desc *desc, tti_traffic **out) {
    tti_traffic *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return tti_fail(TUTTI_E_NOMEM, "traffic: out of memory");
    t->desc = *desc;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->changed, NULL);
    tutti_status st = list_moves(t);
    if (st == TUTTI_OK) {
        t->started = pthread_create(&t->thread, NULL, run, t) == 0;
        if (!t->started) st = tti_fail(TUTTI_E_NOMEM, "traffic: cannot start a thread");
    }
    if (st != TUTTI_OK) {
        tti_traffic_destroy(t);
        return st;
    }
    *out = t;
    return TUTTI_OK;
}

void tti_traffic_destroy(tti_traffic *t) {
    if (!t) return;
    pthread_mutex_lock(&t->mutex);
    t->stop = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
    if (t->started) pthread_join(t->thread, NULL);
    pthread_mutex_destroy(&t->mutex);
    pthread_cond_destroy(&t->changed);
    free(t->moves);
    free(t->wanted);
    free(t->counts);
    free(t->n_arrived);
    free(t);
}

/* ---- a run of the program ---- */

void tti_traffic_begin(tti_traffic *t, int n_shards) {
    pthread_mutex_lock(&t->mutex);
    for (int s = 0; s <= t->desc.n_steps; s++) t->n_arrived[s] = 0;
    t->n_shards = n_shards;
    t->n_done = 0;
    t->status = TUTTI_OK;
    t->active = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

static void arrive(tti_traffic *t, int step) {
    if (t->counts[step] && ++t->n_arrived[step] == t->n_shards) pthread_cond_broadcast(&t->changed);
}

void tti_traffic_reach(tti_traffic *t, int step) {
    if (!t->counts[step] && t->wanted[step] == 0) return;
    pthread_mutex_lock(&t->mutex);
    arrive(t, step);
    while (t->n_done < t->wanted[step] && t->status == TUTTI_OK)
        pthread_cond_wait(&t->changed, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
}

void tti_traffic_leave(tti_traffic *t, int step) {
    pthread_mutex_lock(&t->mutex);
    for (; step <= t->desc.n_steps; step++) arrive(t, step);
    pthread_mutex_unlock(&t->mutex);
}

tutti_status tti_traffic_finish(tti_traffic *t) {
    pthread_mutex_lock(&t->mutex);
    while (t->n_done < t->n_moves) pthread_cond_wait(&t->changed, &t->mutex);
    t->active = false;
    tutti_status st = t->status;
    pthread_mutex_unlock(&t->mutex);
    return st == TUTTI_OK ? TUTTI_OK : tti_fail(st, "%s", t->error);
}

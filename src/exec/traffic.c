/* traffic.c - the list of moves of a step, and the thread that executes it.
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
    int part;  /* in which it is made */
} move;

struct tti_traffic {
    tti_traffic_desc desc;
    move *moves; /* [n_moves] */
    int n_moves;
    tti_use *joins;  /* [n_joins] */
    int *part_first; /* [n_parts + 1] */
    int *part_moves; /* [n_parts + 1]: its first move */
    int *wanted;     /* [n_steps + 1]: moves that must be made before a step */
    bool *counts;    /* [n_steps + 1]: a move waits for this step */
    pthread_t thread;
    bool started;
    pthread_mutex_t mutex; /* guards what is below */
    pthread_cond_t changed;
    int *n_arrived;              /* [n_steps + 1]: shards */
    int n_shards, n_done, n_due; /* moves of this run: up to that one */
    bool active, stop;
    tutti_status status;
    char error[1024];
};

/* ---- the list ---- */

static int part_of(const tti_traffic *t, int step) {
    int part = 0;
    while (part + 1 < t->desc.n_parts && t->part_first[part + 1] <= step) part++;
    return part;
}

static void add_moves(tti_traffic *t, const tti_use *uses, int n_uses, tti_move_kind kind) {
    for (int i = 0; i < n_uses; i++) {
        const tti_use *use = &uses[i];
        int needs = kind == TTI_MOVE_FETCH ? use->taken : use->last + (kind == TTI_MOVE_REDUCE);
        t->moves[t->n_moves++] = (move){kind, use, needs, part_of(t, use->last)};
    }
}

/* What shards wait for first. */
static int by_need(const void *a, const void *b) {
    const move *x = a, *y = b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
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

static int n_uses(const tti_window *w) { return w ? w->n_uses : 0; }

static tutti_status take_memory(tti_traffic *t) {
    const tti_traffic_desc *d = &t->desc;
    size_t n = (size_t)d->n_steps + 2, n_parts = (size_t)d->n_parts + 2;
    size_t n_moves = (size_t)n_uses(d->params) + (size_t)n_uses(d->grads) + (size_t)d->n_joins;
    t->moves = calloc(n_moves + 1, sizeof *t->moves);
    t->joins = calloc((size_t)d->n_joins + 1, sizeof *t->joins);
    t->part_first = calloc(n_parts, sizeof *t->part_first);
    t->part_moves = calloc(n_parts, sizeof *t->part_moves);
    t->wanted = calloc(n, sizeof *t->wanted);
    t->counts = calloc(n, sizeof *t->counts);
    t->n_arrived = calloc(n, sizeof *t->n_arrived);
    bool good = t->moves && t->joins && t->part_first && t->part_moves && t->wanted && t->counts;
    return good && t->n_arrived ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "traffic: out of memory");
}

static void find_parts(tti_traffic *t) {
    int n = 0;
    for (int p = 0; p <= t->desc.n_parts; p++) {
        while (n < t->n_moves && t->moves[n].part < p) n++;
        t->part_moves[p] = n;
    }
}

static tutti_status list_moves(tti_traffic *t) {
    const tti_traffic_desc *d = &t->desc;
    TTI_TRY(take_memory(t));
    for (int p = 0; d->n_parts > 0 && p <= d->n_parts; p++) t->part_first[p] = d->part_first[p];
    for (int i = 0; i < d->n_joins; i++)
        t->joins[i] = (tti_use){.bucket = -1, .first = d->joins[i], .last = d->joins[i]};
    if (d->params) add_moves(t, d->params->uses, d->params->n_uses, TTI_MOVE_FETCH);
    if (d->grads) add_moves(t, d->grads->uses, d->grads->n_uses, TTI_MOVE_REDUCE);
    add_moves(t, t->joins, d->n_joins, TTI_MOVE_JOIN);
    if (t->n_moves > 0) qsort(t->moves, (size_t)t->n_moves, sizeof *t->moves, by_need);
    find_parts(t);
    for (int i = 0; i < t->n_moves; i++) {
        const move *m = &t->moves[i];
        t->counts[m->needs] = true;
        if (m->kind == TTI_MOVE_REDUCE)
            want_places(t, i);
        else
            want(t, m->use->first + (m->kind == TTI_MOVE_JOIN), i + 1);
    }
    return TUTTI_OK;
}

/* ---- the thread ---- */

static bool is_ready(const tti_traffic *t) {
    return t->active && t->n_done < t->n_due &&
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
    free(t->joins);
    free(t->part_first);
    free(t->part_moves);
    free(t->wanted);
    free(t->counts);
    free(t->n_arrived);
    free(t);
}

/* ---- a run of the program ---- */

static void begin(tti_traffic *t, int first, int last, int n_shards) {
    pthread_mutex_lock(&t->mutex);
    for (int s = 0; s <= t->desc.n_steps; s++) t->n_arrived[s] = 0;
    t->n_shards = n_shards;
    t->n_done = first;
    t->n_due = last;
    t->status = TUTTI_OK;
    t->active = true;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->mutex);
}

void tti_traffic_begin(tti_traffic *t, int n_shards) { begin(t, 0, t->n_moves, n_shards); }

void tti_traffic_begin_part(tti_traffic *t, int part, int n_shards) {
    TTI_ASSERT(part >= 0 && part < t->desc.n_parts);
    begin(t, t->part_moves[part], t->part_moves[part + 1], n_shards);
}

static void arrive(tti_traffic *t, int step) {
    if (t->counts[step] && ++t->n_arrived[step] == t->n_shards) pthread_cond_broadcast(&t->changed);
}

/* What the next run makes, nobody waits for in this one: its end is where the next one begins. */
static void await(tti_traffic *t, int step) {
    while (t->n_done < TTI_MIN(t->wanted[step], t->n_due) && t->status == TUTTI_OK)
        pthread_cond_wait(&t->changed, &t->mutex);
}

void tti_traffic_arrive(tti_traffic *t, int step) {
    if (!t->counts[step]) return;
    pthread_mutex_lock(&t->mutex);
    arrive(t, step);
    pthread_mutex_unlock(&t->mutex);
}

void tti_traffic_await(tti_traffic *t, int step) {
    if (t->wanted[step] == 0) return;
    pthread_mutex_lock(&t->mutex);
    await(t, step);
    pthread_mutex_unlock(&t->mutex);
}

void tti_traffic_reach(tti_traffic *t, int step) {
    if (!t->counts[step] && t->wanted[step] == 0) return;
    pthread_mutex_lock(&t->mutex);
    arrive(t, step);
    await(t, step);
    pthread_mutex_unlock(&t->mutex);
}

static tutti_status told(const tti_traffic *t, tutti_status st) {
    return st == TUTTI_OK ? TUTTI_OK : tti_fail(st, "%s", t->error);
}

tutti_status tti_traffic_check(tti_traffic *t) {
    pthread_mutex_lock(&t->mutex);
    tutti_status st = t->status;
    pthread_mutex_unlock(&t->mutex);
    return told(t, st);
}

static bool is_join(const tti_traffic *t, int step) {
    for (int i = 0; i < t->desc.n_joins; i++)
        if (t->joins[i].first == step) return true;
    return false;
}

int tti_traffic_next_stop(const tti_traffic *t, int step) {
    for (step++; step < t->desc.n_steps; step++)
        if (t->wanted[step] > 0 || is_join(t, step)) return step;
    return t->desc.n_steps;
}

void tti_traffic_leave(tti_traffic *t, int step) {
    pthread_mutex_lock(&t->mutex);
    for (; step <= t->desc.n_steps; step++) arrive(t, step);
    pthread_mutex_unlock(&t->mutex);
}

tutti_status tti_traffic_finish(tti_traffic *t) {
    pthread_mutex_lock(&t->mutex);
    while (t->n_done < t->n_due) pthread_cond_wait(&t->changed, &t->mutex);
    t->active = false;
    tutti_status st = t->status;
    pthread_mutex_unlock(&t->mutex);
    return told(t, st);
}

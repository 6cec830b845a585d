/* server.c - the threads of a parameter server, their queue, and the workers' side of it.
 *
 * The idea to know: one mutex orders everything.  What a worker asks for is put at the end of one
 * queue, and numbers (which batch, which update, of which version) are given in the same moment; so
 * the numbers say what the threads will do, and no other order between workers exists. */
#include "exec/server.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/local_sum.h"
#include "comm/transport.h"
#include "exec/worker.h"

typedef enum request_kind { PULL, PUSH, STEP } request_kind;

/* Lies in the memory of its worker, which waits for it; that of a step in the server's. */
typedef struct request {
    request_kind kind;
    float *params;      /* PULL: [n_flat], to be filled */
    float *grads;       /* PUSH: the summed gradient of a batch */
    tti_step_desc step; /* else: step, lr, loss_scale */
    double inv_count;
    tti_arrival arrival; /* PUSH; its result also for STEP */
    tutti_status status;
    char error[512];
    bool done;
    struct request *next;
} request;

/* What a worker has at work. */
typedef struct worker {
    const tti_exec *exec; /* STEP: it has arrived with its pieces; NULL: not yet */
    bool computes;        /* a batch that it has taken */
    int64_t batch, version;
    int64_t next_replay; /* index of the first of its arrivals that it has not begun, or beyond */
    bool has_left;
    int64_t n_dropped;
    int n_begun[TTI_MAX_RANKS]; /* steps that the others have begun since it took its batch */
} worker;

struct tti_server {
    tti_server_desc desc;
    tti_exec *x;
    tti_sum_order order; /* of the pieces of a step over the workers */
    void *scratch[TTI_MAX_LANES];
    pthread_t thread;
    bool has_thread, is_up, stop;
    tutti_status up;           /* how that went */
    char up_error[1024];       /* and why not */
    pthread_mutex_t mutex;     /* guards all below */
    pthread_cond_t work, news; /* for the thread; for the workers */
    request *head, *tail;
    bool failed, stopped; /* nobody goes on; nothing more is taken */
    char error[1024];
    worker worker[TTI_MAX_RANKS];
    request step; /* synchronous */
    int n_arrived;
    uint64_t n_steps;     /* that were served */
    tti_step_result sums; /* with backup workers: of the pieces that came */
    int64_t n_rows;       /* likewise */
    tti_leave left[TTI_MAX_RANKS];
    int n_left, n_left_told;
    int64_t returned[TTI_MAX_RANKS]; /* batches to be taken again */
    int n_returned;
    int64_t first, last;        /* batches of this stretch */
    int64_t n_dealt, n_updates; /* batches taken; updates put into the queue; both of the run */
    int64_t *n_to_pull;         /* replay: [n_replay + 1], pulls still to come by version */
    tti_arrival *log;           /* [log_first .. n_log): not asked for yet */
    size_t log_first, n_log, cap_log;
    int64_t bins[TTI_STALENESS_BINS];
};

/* ---- the server's threads ---- */

static void pull_lane(int lane, void *arg) {
    void **p = arg;
    const tti_server *s = p[0];
    const request *r = p[1];
    tti_range mine = tti_lane_range(s->x->desc.plan->n_flat, 16, lane, s->x->desc.n_lanes);
    if (mine.first < mine.last)
        memcpy(r->params + mine.first, s->x->params + mine.first,
               (mine.last - mine.first) * sizeof *r->params);
}

/* Where the sum of a step comes to: the first piece of the first worker. */
static float *piece_of(const tti_exec *x, int piece) {
    return x->buffers[x->acc.piece_buffer[piece]];
}

/* A server thread's range of all pieces, added along the tree. */
static void sum_lane(int lane, void *arg) {
    tti_server *s = arg;
    const void *terms[TTI_MAX_RANKS * TTI_MAX_PIECES];
    float *dst = piece_of(s->worker[0].exec, 0);
    tti_range mine = tti_lane_range(s->x->desc.plan->n_flat, 16, lane, s->x->desc.n_lanes);
    for (int t = 0; t < s->order.n_terms; t++)
        terms[t] = piece_of(s->worker[s->order.terms[t].rank].exec, s->order.terms[t].piece);
    for (size_t i = mine.first; i < mine.last; i += TTI_SUM_BLOCK) {
        size_t n = TTI_MIN(mine.last - i, (size_t)TTI_SUM_BLOCK);
        const void *sum = tti_sum_block(&s->order, terms, i * sizeof(float), TUTTI_F32, TUTTI_SUM,
                                        n, s->scratch[lane]);
        if (sum != dst + i) memcpy(dst + i, sum, n * sizeof *dst);
    }
}

/* The first worker that has brought its pieces. */
static int first_of(const tti_server *s) {
    int w = 0;
    while (!s->worker[w].exec) w++;
    return w;
}

/* The pieces of those that came, in the order of the workers. */
static void add_lane(int lane, void *arg) {
    tti_server *s = arg;
    int first = first_of(s);
    float *dst = piece_of(s->worker[first].exec, 0);
    tti_range mine = tti_lane_range(s->x->desc.plan->n_flat, 16, lane, s->x->desc.n_lanes);
    if (mine.first >= mine.last) return;
    for (int w = first; w < s->desc.n_workers; w++) {
        const tti_exec *x = s->worker[w].exec;
        for (int i = w == first; x && i < x->acc.n_pieces; i++)
            s->x->desc.backend->accumulate(dst + mine.first, piece_of(x, i) + mine.first,
                                           mine.last - mine.first);
    }
}

static tutti_status apply(tti_server *s, request *r) {
    tti_exec *x = s->x;
    if (r->kind == STEP) tti_lanes_run(x->lanes, s->desc.n_backup > 0 ? add_lane : sum_lane, s);
    for (int i = 0; i < x->n_in_flight; i++) x->lane[i].status = TUTTI_OK;
    x->buffers[0] = r->kind == STEP ? piece_of(s->worker[first_of(s)].exec, 0) : r->grads;
    x->loss_scale = r->step.loss_scale > 0 ? (float)r->step.loss_scale : 1.0f;
    return tti_exec_apply(x, &r->step, r->inv_count, &r->arrival.result);
}

static void serve(tti_server *s, request *r) {
    int64_t start = tti_now_ns();
    if (r->kind == PULL)
        tti_lanes_run(s->x->lanes, pull_lane, (void *[]){s, r});
    else
        r->status = apply(s, r);
    r->arrival.result.update_ns = tti_now_ns() - start;
    if (r->status != TUTTI_OK) snprintf(r->error, sizeof r->error, "%s", tutti_last_error());
}

/* With the mutex held, as all from here to the threads' end. */
static bool grow_log(tti_server *s) {
    if (s->log_first == s->n_log) s->log_first = s->n_log = 0;
    if (s->n_log < s->cap_log) return true;
    size_t cap = 2 * s->cap_log + 64;
    tti_arrival *log = realloc(s->log, cap * sizeof *log);
    if (!log) return false;
    s->log = log;
    s->cap_log = cap;
    return true;
}

static void note_arrival(tti_server *s, request *r) {
    int64_t stale = r->arrival.step - 1 - r->arrival.version;
    if (r->status != TUTTI_OK) return;
    TTI_ASSERT(stale >= 0);
    s->bins[TTI_MIN(stale, (int64_t)TTI_STALENESS_BINS - 1)]++;
    if (grow_log(s)) {
        s->log[s->n_log++] = r->arrival;
        return;
    }
    r->status = TUTTI_E_NOMEM;
    snprintf(r->error, sizeof r->error, "parameter server: out of memory");
}

static void end_step(tti_server *s) {
    for (int w = 0; w < s->desc.n_workers; w++) s->worker[w].exec = NULL;
    s->n_arrived = 0;
    s->n_steps++;
    s->n_rows = 0;
    s->sums = (tti_step_result){0};
}

static void fail_all(tti_server *s, const char *text) {
    if (!s->failed) snprintf(s->error, sizeof s->error, "%s", text);
    s->failed = true;
    pthread_cond_broadcast(&s->news);
}

static void loop(tti_server *s) {
    for (;;) {
        while (!s->head && !s->stop) pthread_cond_wait(&s->work, &s->mutex); /* until destroy */
        request *r = s->head;
        if (!r) return;
        s->head = r->next;
        if (!s->head) s->tail = NULL;
        pthread_mutex_unlock(&s->mutex);
        serve(s, r);
        pthread_mutex_lock(&s->mutex);
        if (r->kind == PUSH || (r->kind == STEP && s->desc.n_backup > 0)) note_arrival(s, r);
        if (r->kind == STEP) end_step(s);
        if (r->kind == STEP && s->desc.n_backup > 0 && r->status != TUTTI_OK) fail_all(s, r->error);
        r->done = true;
        pthread_cond_broadcast(&s->news);
    }
}

/* The lanes' first thread is this one: it makes what it will use. */
static tutti_status set_up(tti_server *s) {
    s->desc.exec.serves = true;
    s->desc.exec.comm = NULL;
    s->desc.exec.cores = NULL;
    TTI_TRY(tti_exec_create(&s->desc.exec, &s->x));
    tti_deal deal;
    tti_deal_equally(s->desc.n_workers, s->desc.exec.n_shards, &deal);
    TTI_TRY(tti_sum_order_shards(&deal, &s->order));
    for (int i = 0; i < s->x->desc.n_lanes; i++) {
        s->scratch[i] = aligned_alloc(64, (tti_sum_scratch_bytes() + 63) & ~(size_t)63);
        if (!s->scratch[i]) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    }
    return TUTTI_OK;
}

static void *run_server(void *arg) {
    tti_server *s = arg;
    tutti_status st = set_up(s);
    pthread_mutex_lock(&s->mutex);
    s->up = st;
    if (st != TUTTI_OK) snprintf(s->up_error, sizeof s->up_error, "%s", tutti_last_error());
    s->is_up = true;
    pthread_cond_broadcast(&s->news);
    if (st == TUTTI_OK) loop(s);
    pthread_mutex_unlock(&s->mutex);
    tti_exec_destroy(s->x);
    return NULL;
}

/* ---- create and destroy ---- */

/* How many pulls each version must have before the next update. */
static tutti_status count_pulls(tti_server *s) {
    const tti_server_desc *d = &s->desc;
    if (!d->replay) return TUTTI_OK;
    s->n_to_pull = calloc((size_t)d->n_replay + 1, sizeof *s->n_to_pull);
    if (!s->n_to_pull) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    int64_t base = d->n_replay > 0 ? d->replay[0].step - 1 : 0;
    for (int64_t i = 0; i < d->n_replay; i++) {
        const tti_arrival *a = &d->replay[i];
        if (a->step != base + i + 1 || a->version < base || a->version >= a->step ||
            a->worker < 0 || a->worker >= d->n_workers)
            return tti_fail(TUTTI_E_INVALID,
                            "parameter server: arrival %lld of worker %d, version %lld, cannot be",
                            (long long)a->step, a->worker, (long long)a->version);
        s->n_to_pull[a->version - base]++;
    }
    return TUTTI_OK;
}

static void init_sync(tti_server *s) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static tutti_status start(tti_server *s) {
    if (pthread_create(&s->thread, NULL, run_server, s) != 0)
        return tti_fail(TUTTI_E_NOMEM, "parameter server: cannot start a thread");
    s->has_thread = true;
    pthread_mutex_lock(&s->mutex);
    while (!s->is_up) pthread_cond_wait(&s->news, &s->mutex); /* its work ends */
    tutti_status st = s->up;
    pthread_mutex_unlock(&s->mutex);
    return st == TUTTI_OK ? st : tti_fail(st, "%s", s->up_error);
}

tutti_status tti_server_create(const tti_server_desc *desc, tti_server **out) {
    *out = NULL;
    if (desc->n_workers < 1 || desc->n_workers > TTI_MAX_RANKS)
        return tti_fail(TUTTI_E_INVALID, "parameter server: %d workers", desc->n_workers);
    tti_server *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    s->desc = *desc;
    init_sync(s);
    tutti_status st = count_pulls(s);
    if (st == TUTTI_OK) st = start(s);
    if (st != TUTTI_OK) {
        tti_server_destroy(s);
        return st;
    }
    *out = s;
    return TUTTI_OK;
}

void tti_server_destroy(tti_server *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    if (s->has_thread) pthread_join(s->thread, NULL);
    for (int i = 0; i < TTI_MAX_LANES; i++) free(s->scratch[i]);
    tti_sum_order_free(&s->order);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->mutex);
    free(s->n_to_pull);
    free(s->log);
    free(s);
}

tti_exec *tti_server_exec(tti_server *s) { return s->x; }

bool tti_server_is_async(const tti_server *s) {
    return s->desc.staleness != 0 || s->desc.n_backup > 0;
}

bool tti_server_shards(const tti_server *s, int w, int n_shards, int *first, int *last) {
    if (s->desc.n_backup == 0) return false;
    *first = tti_shard_first(w, s->desc.n_workers, n_shards);
    *last = tti_shard_first(w + 1, s->desc.n_workers, n_shards);
    return true;
}

/* ---- waiting, with the mutex held ---- */

void tti_server_abort(tti_server *s, const char *text) {
    pthread_mutex_lock(&s->mutex);
    fail_all(s, text && *text ? text : "a worker is gone");
    pthread_mutex_unlock(&s->mutex);
}

/* The one that the others wait for: it has not come, or has computed for the longest. */
static int slowest(const tti_server *s, int waits) {
    int found = -1;
    for (int w = 0; w < s->desc.n_workers; w++) {
        const worker *other = &s->worker[w];
        if (w == waits || (!tti_server_is_async(s) && other->exec)) continue;
        if (tti_server_is_async(s) && !other->computes) continue;
        if (found < 0 || other->version < s->worker[found].version) found = w;
    }
    return found;
}

typedef bool (*ready_fn)(const tti_server *s, int w, int64_t arg);

/* Until ready(w, arg); the server's failure, or the time is over. */
static tutti_status wait_until(tti_server *s, int w, ready_fn ready, int64_t arg) {
    int64_t end_ns = tti_now_ns() + s->desc.timeout_ms * TTI_NS_PER_MS;
    struct timespec end = {(time_t)(end_ns / 1000000000), (long)(end_ns % 1000000000)};
    while (!s->failed && !ready(s, w, arg))
        if (pthread_cond_timedwait(&s->news, &s->mutex, &end) == ETIMEDOUT && !s->failed &&
            !ready(s, w, arg)) {
            char text[256];
            snprintf(text, sizeof text,
                     "parameter server: worker %d waited %d ms for worker %d (parallel.timeout_ms)",
                     w, s->desc.timeout_ms, slowest(s, w));
            fail_all(s, text);
            return tti_fail(TUTTI_E_TIMEOUT, "%s", text);
        }
    return s->failed ? tti_fail(TUTTI_E_PEER, "%s", s->error) : TUTTI_OK;
}

static void put(tti_server *s, request *r) {
    r->next = NULL;
    if (s->tail)
        s->tail->next = r;
    else
        s->head = r;
    s->tail = r;
    pthread_cond_signal(&s->work);
}

/* The threads' work on a request ends, whatever becomes of the workers; so does this. */
static tutti_status wait_served(tti_server *s, const request *r) {
    while (!r->done) pthread_cond_wait(&s->news, &s->mutex);
    return r->status == TUTTI_OK ? TUTTI_OK : tti_fail(r->status, "%s", r->error);
}

/* ---- synchronous ---- */

static bool is_served(const tti_server *s, int w, int64_t n_before) {
    (void)w;
    return s->n_steps > (uint64_t)n_before;
}

static tutti_status arrive(tti_server *s, tti_exec *x, const tti_step_desc *desc, double inv_count,
                           tti_step_result *result) {
    int w = x->desc.server_worker;
    int64_t n_before = (int64_t)s->n_steps;
    if (s->failed) return tti_fail(TUTTI_E_PEER, "%s", s->error);
    TTI_ASSERT(!s->worker[w].exec);
    s->worker[w].exec = x;
    if (++s->n_arrived == s->desc.n_workers) {
        s->step = (request){.kind = STEP, .step = *desc, .inv_count = inv_count};
        put(s, &s->step);
    }
    TTI_TRY(wait_until(s, w, is_served, n_before));
    const tti_step_result *told = &s->step.arrival.result;
    result->grad_norm = told->grad_norm;
    result->skipped = told->skipped;
    return s->step.status == TUTTI_OK ? TUTTI_OK : tti_fail(s->step.status, "%s", s->step.error);
}

/* A worker's copy of the parameters, hashed as it is in its own memory. */
static void copy_lane(int lane, void *arg) {
    tti_exec *x = arg;
    const tti_plan *plan = x->desc.plan;
    const float *from = tti_server_exec(x->desc.server)->params;
    tti_range mine = tti_lane_range((size_t)plan->n_updates, 1, lane, x->desc.n_lanes);
    x->lane[lane].hash = 0;
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        memcpy(x->params + u->first, from + u->first, u->n_elems * sizeof *from);
        x->lane[lane].hash += x->desc.backend->hash(x->params + u->first, u->n_elems, u->first);
    }
}

tutti_status tti_server_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result) {
    tti_server *s = x->desc.server;
    int64_t begin = tti_now_ns();
    pthread_mutex_lock(&s->mutex);
    tutti_status st = arrive(s, x, desc, inv_count, result);
    pthread_mutex_unlock(&s->mutex);
    TTI_TRY(st);
    /* Nothing is applied before all workers come again. */
    tti_lanes_run(x->lanes, copy_lane, x);
    x->last_hash = 0;
    for (int i = 0; i < x->desc.n_lanes; i++) x->last_hash += x->lane[i].hash;
    x->has_hash = true;
    result->params_hash = x->last_hash;
    x->gather_ns = tti_now_ns() - begin;
    return TUTTI_OK;
}

/* ---- asynchronous ---- */

void tti_server_open(tti_server *s, int64_t first, int64_t last) {
    pthread_mutex_lock(&s->mutex);
    if (s->first != first || s->last != last) {
        s->first = s->n_dealt = s->n_updates = first;
        s->last = last;
    }
    pthread_mutex_unlock(&s->mutex);
}

void tti_server_stop(tti_server *s) {
    pthread_mutex_lock(&s->mutex);
    if (s->desc.n_backup > 0)
        s->last = TTI_MIN(s->last, s->n_updates + 1); /* some wait in the step at work */
    else
        s->stopped = true;
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->mutex);
}

/* The next of the worker's recorded arrivals, NULL: none in this stretch. */
static const tti_arrival *next_recorded(const tti_server *s, int w) {
    int64_t i = s->worker[w].next_replay;
    const tti_server_desc *d = &s->desc;
    while (i < d->n_replay && (d->replay[i].worker != w || d->replay[i].step <= s->first)) i++;
    return i < d->n_replay && d->replay[i].step <= s->last ? &d->replay[i] : NULL;
}

/* What others still compute may have to be taken from them. */
static bool is_at_work(const tti_server *s) {
    for (int i = 0; i < s->desc.n_workers; i++)
        if (s->worker[i].computes) return true;
    return s->n_returned > 0;
}

static bool is_over(const tti_server *s, int w) {
    if (s->desc.replay) return s->stopped || !next_recorded(s, w);
    if (s->desc.n_backup > 0) return s->n_updates >= s->last;
    return (s->stopped || s->n_dealt >= s->last) && !is_at_work(s);
}

/* There is a batch that nobody has. */
static bool has_more(const tti_server *s) {
    return s->n_returned > 0 || (!s->stopped && s->n_dealt < s->last);
}

/* Nobody who computes would come to lack more steps of this worker than are allowed. */
static bool may_begin(const tti_server *s, int w, int64_t unused) {
    (void)unused;
    if (is_over(s, w) || s->desc.n_backup > 0) return true;
    if (s->desc.replay) return s->n_updates == next_recorded(s, w)->version;
    if (!has_more(s)) return false;
    for (int i = 0; i < s->desc.n_workers && s->desc.staleness != TTI_UNBOUNDED; i++)
        if (i != w && s->worker[i].computes && s->worker[i].n_begun[w] >= s->desc.staleness)
            return false;
    return true;
}

static void begin(tti_server *s, int w, tti_ticket *ticket) {
    worker *me = &s->worker[w];
    *ticket = (tti_ticket){true, s->n_dealt, s->n_updates};
    if (s->desc.replay) {
        const tti_arrival *a = next_recorded(s, w);
        ticket->batch = a->batch;
        me->next_replay = a - s->desc.replay + 1;
        s->n_to_pull[a->version - (s->desc.replay[0].step - 1)]--;
    }
    if (s->desc.n_backup > 0)
        ticket->batch = s->n_updates;
    else if (s->n_returned > 0)
        ticket->batch = s->returned[--s->n_returned];
    else
        s->n_dealt++;
    me->computes = true;
    me->batch = ticket->batch;
    me->version = ticket->version;
    memset(me->n_begun, 0, sizeof me->n_begun);
    for (int i = 0; i < s->desc.n_workers; i++)
        if (i != w && s->worker[i].computes) s->worker[i].n_begun[w]++;
}

static tutti_status pull(tti_server *s, tti_exec *x) {
    request r = {.kind = PULL, .params = x->params};
    put(s, &r);
    pthread_cond_broadcast(&s->news); /* a recorded update may have waited for this pull */
    return wait_served(s, &r);
}

static tutti_status take(tti_server *s, tti_exec *x, tti_ticket *ticket) {
    int w = x->desc.server_worker;
    TTI_TRY(wait_until(s, w, may_begin, 0));
    if (is_over(s, w)) return TUTTI_OK;
    begin(s, w, ticket);
    return pull(s, x);
}

tutti_status tti_server_take(tti_exec *x, tti_ticket *ticket) {
    tti_server *s = x->desc.server;
    *ticket = (tti_ticket){0};
    pthread_mutex_lock(&s->mutex);
    tutti_status st = take(s, x, ticket);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_server_pull(tti_exec *x, int64_t *n_updates) {
    tti_server *s = x->desc.server;
    pthread_mutex_lock(&s->mutex);
    *n_updates = s->n_updates;
    tutti_status st = pull(s, x);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* Played again: it is this one's turn, and whoever had the parameters before has them. */
static bool is_its_turn(const tti_server *s, int w, int64_t unused) {
    (void)unused;
    if (!s->desc.replay) return true;
    const tti_arrival *a = &s->desc.replay[s->worker[w].next_replay - 1];
    return s->n_updates == a->step - 1 && s->n_to_pull[a->step - s->desc.replay[0].step] == 0;
}

static tutti_status push(tti_server *s, tti_exec *x, const tti_gift *gift, request *r) {
    int w = x->desc.server_worker;
    worker *me = &s->worker[w];
    TTI_TRY(wait_until(s, w, is_its_turn, 0));
    tti_arrival *a = &r->arrival;
    a->worker = w;
    a->batch = me->batch;
    a->version = me->version;
    r->step.step = (uint64_t)s->n_updates;
    r->step.lr = a->lr = gift->lr(gift->user, s->n_updates);
    a->step = ++s->n_updates;
    me->computes = false;
    put(s, r);
    pthread_cond_broadcast(&s->news);
    return wait_served(s, r);
}

/* What a step with backup workers is made of, when its last piece has come. */
static void begin_step(tti_server *s, const tti_gift *gift) {
    tti_arrival *a = &s->step.arrival;
    s->step = (request){.kind = STEP, .step = *gift->desc};
    s->step.inv_count = s->sums.count > 0 ? 1.0 / s->sums.count : 0;
    s->step.step.step = (uint64_t)s->n_updates;
    s->step.step.lr = a->lr = gift->lr(gift->user, s->n_updates);
    s->step.step.n_rows = a->n_rows = s->n_rows;
    a->result = s->sums;
    a->batch = a->version = s->n_updates;
    a->wait_ns = gift->wait_ns;
    a->step = ++s->n_updates;
    put(s, &s->step);
}

/* Its pieces are a part of the step at work, or come too late for theirs. */
static tutti_status bring(tti_server *s, tti_exec *x, const tti_gift *gift, request *r) {
    worker *me = &s->worker[x->desc.server_worker];
    const tti_step_result *own = &r->arrival.result;
    me->computes = false;
    if (s->failed) return tti_fail(TUTTI_E_PEER, "%s", s->error);
    if (me->version != s->n_updates) {
        me->n_dropped++;
        return TUTTI_OK;
    }
    int64_t n_before = (int64_t)s->n_steps;
    me->exec = x;
    s->sums.loss_sum += own->loss_sum;
    s->sums.count += own->count;
    s->sums.correct += own->correct;
    s->sums.compute_ns += own->compute_ns;
    for (int i = 0; i < x->last_shard - x->first_shard; i++)
        s->n_rows += gift->desc->shards[i].n_rows;
    r->arrival.step = me->version + 1;
    if (++s->n_arrived == s->desc.n_workers - s->desc.n_backup) begin_step(s, gift);
    return wait_until(s, x->desc.server_worker, is_served, n_before);
}

tutti_status tti_server_give(tti_exec *x, const tti_gift *gift, tti_arrival *out) {
    tti_server *s = x->desc.server;
    request r = {.kind = PUSH, .step = *gift->desc};
    tti_step_result *result = &r.arrival.result;
    int64_t start_ns = tti_now_ns();
    TTI_TRY(tti_exec_gradient(x, gift->desc, result));
    result->compute_ns = tti_now_ns() - start_ns;
    r.grads = tti_exec_grads(x);
    r.inv_count = result->count > 0 ? 1.0 / result->count : 0;
    r.arrival.n_rows = gift->desc->n_rows;
    r.arrival.wait_ns = gift->wait_ns;
    pthread_mutex_lock(&s->mutex);
    tutti_status st = s->desc.n_backup > 0 ? bring(s, x, gift, &r) : push(s, x, gift, &r);
    pthread_mutex_unlock(&s->mutex);
    *out = r.arrival;
    return st;
}

/* ---- workers that leave ---- */

static bool may_leave(const tti_server *s, int w) {
    int n_present = s->desc.n_workers - s->n_left;
    int n_needed = s->desc.n_backup > 0 ? s->desc.n_workers - s->desc.n_backup : 1;
    if (s->failed || s->desc.replay || !s->worker[w].computes || n_present <= n_needed)
        return false;
    for (int i = 0; i < s->n_left && s->desc.n_backup == 0; i++)
        if (s->left[i].batch == s->worker[w].batch) return false;
    return true;
}

static void leave(tti_server *s, int w, const char *why) {
    worker *me = &s->worker[w];
    tti_leave *told = &s->left[s->n_left++];
    *told = (tti_leave){.worker = w, .step = s->n_updates, .batch = -1};
    snprintf(told->why, sizeof told->why, "%s", why);
    if (s->desc.n_backup == 0) told->batch = s->returned[s->n_returned++] = me->batch;
    me->computes = false;
    me->has_left = true;
    pthread_cond_broadcast(&s->news);
}

bool tti_server_leave(tti_exec *x, const char *why) {
    tti_server *s = x->desc.server;
    pthread_mutex_lock(&s->mutex);
    bool may = may_leave(s, x->desc.server_worker);
    if (may) leave(s, x->desc.server_worker, why);
    pthread_mutex_unlock(&s->mutex);
    return may;
}

bool tti_server_has_left(const tti_exec *x) {
    tti_server *s = x->desc.server;
    pthread_mutex_lock(&s->mutex);
    bool has = s->worker[x->desc.server_worker].has_left;
    pthread_mutex_unlock(&s->mutex);
    return has;
}

static bool is_news(const tti_server *s, int w, int64_t n_updates) {
    return is_over(s, w) || s->n_updates != n_updates;
}

tutti_status tti_server_watch(tti_exec *x, int64_t *n_updates, bool *over) {
    tti_server *s = x->desc.server;
    int w = x->desc.server_worker;
    pthread_mutex_lock(&s->mutex);
    tutti_status st = wait_until(s, w, is_news, *n_updates);
    *n_updates = s->n_updates;
    *over = is_over(s, w);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

void tti_server_place(const tti_exec *x, int *index, int *n_present) {
    tti_server *s = x->desc.server;
    pthread_mutex_lock(&s->mutex);
    *index = 0;
    for (int w = 0; w < x->desc.server_worker; w++) *index += !s->worker[w].has_left;
    if (s->worker[x->desc.server_worker].has_left) *index = -1;
    *n_present = s->desc.n_workers - s->n_left;
    if (s->desc.n_backup > 0) *index = 0, *n_present = 1;
    pthread_mutex_unlock(&s->mutex);
}

bool tti_server_next_leave(tti_server *s, tti_leave *out) {
    pthread_mutex_lock(&s->mutex);
    bool any = s->n_left_told < s->n_left;
    if (any) *out = s->left[s->n_left_told++];
    pthread_mutex_unlock(&s->mutex);
    return any;
}

void tti_server_dropped(tti_server *s, int64_t *counts) {
    pthread_mutex_lock(&s->mutex);
    for (int w = 0; w < s->desc.n_workers; w++) counts[w] = s->worker[w].n_dropped;
    pthread_mutex_unlock(&s->mutex);
}

bool tti_server_next(tti_server *s, tti_arrival *out) {
    pthread_mutex_lock(&s->mutex);
    bool any = s->log_first < s->n_log;
    if (any) *out = s->log[s->log_first++];
    pthread_mutex_unlock(&s->mutex);
    return any;
}

void tti_server_staleness(tti_server *s, int64_t bins[TTI_STALENESS_BINS]) {
    pthread_mutex_lock(&s->mutex);
    memcpy(bins, s->bins, sizeof s->bins);
    pthread_mutex_unlock(&s->mutex);
}

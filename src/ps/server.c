/* server.c - the parameter server: its threads, their queue, and synchronous steps.
 *
 * One mutex orders everything.  A worker's request is appended to one queue, and its numbers (which
 * batch, which update, of which version) are assigned at the same time; so the numbers determine
 * what the threads will do, and there is no other order between workers. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/local_sum.h"
#include "comm/wait_clock.h"
#include "exec/device/device.h"
#include "ps/server_group.h"
#include "ps/server_ranges.h"

enum { WAIT_SLICE_MS = 50 };

/* ---- the server's threads ---- */

static void pull_compute_thread(int compute_thread, void *arg) {
    void **p = arg;
    const tti_server *s = p[0];
    const tti_request *r = p[1];
    tti_range mine =
        tti_compute_thread_range(s->n_own, 16, compute_thread, s->x->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    size_t n_bytes = (mine.last - mine.first) * sizeof *r->params;
    memcpy(r->params + mine.first, s->x->params + mine.first, n_bytes);
    if (r->ema && s->x->ema) memcpy(r->ema + mine.first, s->x->ema + mine.first, n_bytes);
}

/* A server thread's range of all pieces, added along the tree. */
static void sum_lane(int compute_thread, void *arg) {
    tti_server *s = arg;
    const void *terms[TTI_MAX_RANKS * TTI_MAX_PIECES];
    float *dst = s->worker[0].pieces[0];
    tti_range mine = tti_compute_thread_range(s->x->desc.plan->n_flat, 16, compute_thread,
                                              s->x->desc.n_compute_threads);
    for (int t = 0; t < s->order.n_terms; t++)
        terms[t] = s->worker[s->order.terms[t].rank].pieces[s->order.terms[t].piece];
    for (size_t i = mine.first; i < mine.last; i += TTI_SUM_BLOCK) {
        size_t n = TTI_MIN(mine.last - i, (size_t)TTI_SUM_BLOCK);
        const void *sum = tti_sum_block(&s->order, terms, i * sizeof(float), TUTTI_F32, TUTTI_SUM,
                                        n, s->scratch[compute_thread]);
        if (sum != dst + i) memcpy(dst + i, sum, n * sizeof *dst);
    }
}

/* The first worker that has brought its pieces. */
static int first_of(const tti_server *s) {
    int w = 0;
    while (s->worker[w].n_pieces == 0) w++;
    return w;
}

/* The pieces of those that came, in the order of the workers. */
static void add_compute_thread(int compute_thread, void *arg) {
    tti_server *s = arg;
    int first = first_of(s);
    float *dst = s->worker[first].pieces[0];
    tti_range mine =
        tti_compute_thread_range(s->n_own, 16, compute_thread, s->x->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    for (int w = first; w < s->desc.n_workers; w++) {
        const tti_served *from = &s->worker[w];
        for (int i = w == first; i < from->n_pieces; i++)
            s->x->desc.backend->accumulate(dst + mine.first, from->pieces[i] + mine.first,
                                           mine.last - mine.first);
    }
}

static uint64_t workers_of(const tti_server *s, const tti_request *r) {
    uint64_t workers = 0;
    if (r->kind == TTI_PUSH) return UINT64_C(1) << r->arrival.worker;
    for (int w = 0; w < s->desc.n_workers; w++)
        if (s->worker[w].n_pieces > 0) workers |= UINT64_C(1) << w;
    return workers;
}

/* Arrays sent to or received from these workers, of which the first is in this process. */
static void count_arrays(tti_server *s, uint64_t workers, size_t n_arrays, tutti_dtype of) {
    size_t n_far = s->listener ? (size_t)__builtin_popcountll(workers & ~UINT64_C(1)) : 0;
    s->n_bytes += (int64_t)(n_far * n_arrays * s->n_own * tutti_dtype_bytes(of));
}

/* Waits for the other ranges' part of an update, after this range's own part.  A server that timed
 * out is not waited for again, because other workers wait for this result. */
static tutti_status end_update(tti_server *s, tti_request *r, tutti_status st) {
    char text[512];
    if (!s->ranges || st == TUTTI_E_TIMEOUT) return st;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tutti_status others = tti_ranges_end_update(s->ranges, &r->arrival.result.params_hash);
    return st == TUTTI_OK ? others : tti_fail(st, "%s", text);
}

static tutti_status apply(tti_server *s, tti_request *r) {
    tti_exec *x = s->x;
    uint64_t workers = workers_of(s, r);
    if (r->arrival.result.skipped) return TUTTI_OK; /* a loss was not finite */
    TTI_TRY(tti_ranges_update(s->ranges, r, workers));
    count_arrays(s, workers, 1, s->desc.exec.wire);
    if (r->kind == TTI_STEP)
        tti_compute_threads_run(x->compute_threads,
                                s->desc.n_backup > 0 ? add_compute_thread : sum_lane, s);
    for (int i = 0; i < x->n_in_flight; i++) x->compute_thread[i].status = TUTTI_OK;
    x->buffers[0] = r->kind == TTI_STEP ? s->worker[first_of(s)].pieces[0] : r->grads;
    x->loss_scale = r->step.loss_scale > 0 ? (float)r->step.loss_scale : 1.0f;
    return end_update(s, r, tti_exec_apply(x, &r->step, r->inv_count, &r->arrival.result));
}

static tutti_status copy_params(tti_server *s, tti_request *r) {
    TTI_TRY(tti_ranges_copy(s->ranges, r));
    tti_compute_threads_run(s->x->compute_threads, pull_compute_thread, (void *[]){s, r});
    count_arrays(s, UINT64_C(1) << r->worker, r->ema && s->x->ema ? 2 : 1, TUTTI_F32);
    return TUTTI_OK;
}

/* Fetches the part of keys that this process owns, and those of the other servers. */
static tutti_status fetch(tti_server *s, tti_request *r) {
    size_t last = TTI_MIN(r->keys.last, s->n_own);
    if (r->keys.first < last)
        memcpy(r->to, s->x->states[r->k] + r->keys.first, (last - r->keys.first) * sizeof *r->to);
    return tti_ranges_fetch(s->ranges, r->k, r->keys, r->to);
}

static tutti_status tell_traffic(tti_server *s, tti_request *r) {
    r->bytes[0] = s->n_bytes;
    return tti_ranges_traffic(s->ranges, r->bytes);
}

bool tti_server_leaves_out(const tti_server *s) {
    return tti_server_is_async(s) && s->desc.exec.watch_gradients;
}

static void serve(tti_server *s, tti_request *r) {
    static tutti_status (*const fns[])(tti_server *, tti_request *) = {
        [TTI_PULL] = copy_params,
        [TTI_PUSH] = apply,
        [TTI_STEP] = apply,
        [TTI_FETCH] = fetch,
        [TTI_TRAFFIC] = tell_traffic};
    int64_t start = tti_now_ns();
    r->status = fns[r->kind](s, r);
    if (r->status == TUTTI_E_NUMERICS && r->arrival.result.skipped && tti_server_leaves_out(s)) {
        tti_clear_error();
        r->status = TUTTI_OK;
    }
    r->arrival.result.update_ns = tti_now_ns() - start;
    if (r->status != TUTTI_OK) snprintf(r->error, sizeof r->error, "%s", tutti_last_error());
}

/* With the mutex held, like all functions up to the threads' end. */
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

static void note_arrival(tti_server *s, tti_request *r) {
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
    for (int w = 0; w < s->desc.n_workers; w++) {
        tti_served *worker = &s->worker[w];
        if (worker->n_pieces > 0) worker->was_left_out = s->step.arrival.result.skipped;
        worker->n_pieces = 0;
    }
    s->n_arrived = 0;
    s->n_steps++;
    s->n_rows = 0;
    s->sums = (tti_step_result){0};
}

void tti_server_fail(tti_server *s, tutti_status status, const char *text) {
    if (!s->failed) snprintf(s->error, sizeof s->error, "%s", text);
    if (!s->failed) s->cause = status;
    s->failed = true;
    pthread_cond_broadcast(&s->news);
}

static void loop(tti_server *s) {
    for (;;) {
        while (!s->head && !s->stop) pthread_cond_wait(&s->work, &s->mutex); /* until destroy */
        tti_request *r = s->head;
        if (!r) return;
        s->head = r->next;
        if (!s->head) s->tail = NULL;
        pthread_mutex_unlock(&s->mutex);
        serve(s, r);
        pthread_mutex_lock(&s->mutex);
        if (r->kind == TTI_PUSH || (r->kind == TTI_STEP && s->desc.n_backup > 0))
            note_arrival(s, r);
        if (r->kind == TTI_STEP) end_step(s);
        if (r->kind == TTI_STEP && s->desc.n_backup > 0 && r->status != TUTTI_OK)
            tti_server_fail(s, TUTTI_E_PEER, r->error);
        if (tti_ranges_is_lost(s->ranges)) tti_server_fail(s, TUTTI_E_PEER, r->error);
        r->done = true;
        pthread_cond_broadcast(&s->news);
    }
}

/* This thread is the first compute thread: it allocates the memory that it will use. */
static tutti_status set_up(tti_server *s) {
    s->desc.exec.serves = true;
    s->desc.exec.comm = NULL;
    s->desc.exec.cores = NULL;
    s->desc.exec.shard_map = NULL;
    if (s->desc.n_ranges > 1) {
        s->desc.exec.n_ranges = s->desc.n_ranges;
        s->desc.exec.join = tti_ranges_join;
        s->desc.exec.join_user = s;
    }
    TTI_TRY(tti_exec_create(&s->desc.exec, &s->x));
    for (int i = 0; i < s->x->desc.n_compute_threads; i++) {
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
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->work, NULL);
    tti_cond_init(&s->news);
}

tutti_status tti_server_start(tti_server *s) {
    TTI_TRY(count_pulls(s));
    if (pthread_create(&s->thread, NULL, run_server, s) != 0)
        return tti_fail(TUTTI_E_NOMEM, "parameter server: cannot start a thread");
    s->has_thread = true;
    pthread_mutex_lock(&s->mutex);
    while (!s->is_up) pthread_cond_wait(&s->news, &s->mutex); /* its work ends */
    tutti_status st = s->up;
    pthread_mutex_unlock(&s->mutex);
    return st == TUTTI_OK ? st : tti_fail(st, "%s", s->up_error);
}

static const tti_server_calls calls = {
    .state_owner = tti_server_exec,
    .shards = tti_server_shards,
    .has_ranges = tti_server_has_ranges,
    .fetch = tti_server_fetch,
    .store = tti_server_store,
    .push = tti_server_push_step,
    .pull = tti_server_pull_step,
    .bring_averages = tti_server_bring_averages,
};

tti_server *tti_server_new(const tti_server_desc *desc) {
    tti_server *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->calls = &calls;
    s->desc = *desc;
    s->n_own = tti_server_range(desc, 0).last;
    init_sync(s);
    return s;
}

tutti_status tti_server_create(const tti_server_desc *desc, tti_server **out) {
    *out = NULL;
    if (desc->n_workers < 1 || desc->n_workers > TTI_MAX_RANKS)
        return tti_fail(TUTTI_E_INVALID, "parameter server: %d workers", desc->n_workers);
    tti_server *s = tti_server_new(desc);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    tutti_status st = tti_server_start(s);
    if (st != TUTTI_OK) {
        tti_server_destroy(s);
        return st;
    }
    *out = s;
    return TUTTI_OK;
}

void tti_server_destroy(tti_server *s) {
    if (!s) return;
    tti_listener_close(s->listener);
    bool in_order = tti_client_close(s) && !(s->replica_group && s->failed);
    /* The others need it until the first process ends, which after a failure may never happen. */
    tti_range_server_close(s->range_server, in_order ? TTI_NO_TIMEOUT : s->desc.timeout_ms);
    pthread_mutex_lock(&s->mutex);
    s->stop = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->mutex);
    if (s->has_thread) pthread_join(s->thread, NULL);
    tti_ranges_close(s->ranges);
    tti_keys_close(s->keys);
    tti_replica_group_destroy(s->replica_group);
    for (int i = 0; i < TTI_MAX_COMPUTE_THREADS; i++) free(s->scratch[i]);
    tti_sum_order_free(&s->order);
    pthread_cond_destroy(&s->work);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->mutex);
    free(s->n_to_pull);
    free(s->barrier.brought);
    free(s->log);
    free(s);
}

tti_exec *tti_server_exec(tti_server *s) { return tti_server_has_ranges(s) ? NULL : s->x; }

bool tti_server_has_ranges(const tti_server *s) { return s->desc.n_ranges > 1 || s->replica_group; }

bool tti_server_is_async(const tti_server *s) {
    return s->desc.staleness != 0 || s->desc.n_backup > 0;
}

bool tti_server_shards(const tti_server *s, int w, int n_shards, int *first, int *last) {
    if (s->desc.n_backup == 0) return false;
    *first = tti_shard_first(w, s->desc.n_workers, n_shards);
    *last = tti_shard_first(w + 1, s->desc.n_workers, n_shards);
    return true;
}

void tti_server_watch_phases(tti_server *s, const tti_phase_watch *watch) {
    if (s) s->desc.watch = *watch;
}

/* ---- failing and waiting ---- */

void tti_server_abort(tti_server *s, tutti_status status, const char *text) {
    if (s->client) tti_client_abort(s, status, text);
    tti_replica_group_abort(s->replica_group, text);
    pthread_mutex_lock(&s->mutex);
    tti_server_fail(s, TUTTI_E_PEER, text && *text ? text : "a worker is gone");
    pthread_mutex_unlock(&s->mutex);
}

/* Whether w has not come where the other one waits, or may still compute for it. */
static bool holds_up(const tti_server *s, int w, int waits) {
    if (w == waits || s->worker[w].is_dead) return false;
    if (s->barrier.has_come[waits]) return !s->barrier.has_come[w];
    return tti_server_is_async(s) ? s->worker[w].computes : s->worker[w].n_pieces == 0;
}

/* Of those workers the one that has computed for the longest time. */
static const char *slowest(const tti_server *s, int waits, char text[32]) {
    int found = -1;
    for (int w = 0; w < s->desc.n_workers; w++)
        if (holds_up(s, w, waits) && (found < 0 || s->worker[w].version < s->worker[found].version))
            found = w;
    snprintf(text, 32, "%s %d", tti_server_kind(s), found);
    return found < 0 ? "the others" : text;
}

/* The limit of ordinary waits may be a part of parallel.timeout_ms (server_group.c). */
static tutti_status fail_timeout(tti_server *s, int w, const tti_wait_clock *clock) {
    const tti_phase_watch *watch = &s->desc.watch;
    bool is_phase = clock->kind == TTI_DELAY_PHASE;
    char text[400], whom[32];
    tti_str why = {0};
    if (is_phase) (void)watch->find_busy(watch->user, &why);
    snprintf(
        text, sizeof text,
        "parameter server: %s %d waited %lld ms for %s (the limit is %d ms, by parallel.%s)%s%s",
        tti_server_kind(s), w, (long long)(clock->waited_ns[clock->kind] / TTI_NS_PER_MS),
        slowest(s, w, whom), is_phase ? clock->phase_timeout_ms : clock->timeout_ms,
        is_phase ? "phase_timeout_ms" : "timeout_ms", is_phase ? "; " : "", tti_str_text(&why));
    tti_str_free(&why);
    tti_server_fail(s, TUTTI_E_PEER, text);
    return tti_fail(TUTTI_E_TIMEOUT, "%s", text);
}

/* Until ready(w, arg); the server's failure, or the time is over. */
tutti_status tti_server_wait(tti_server *s, int w, tti_server_ready ready, int64_t arg) {
    const tti_phase_watch *watch = &s->desc.watch;
    int limit_ms = s->desc.timeout_ms;
    tti_wait_clock clock = tti_wait_clock_begin(limit_ms, TTI_MAX(limit_ms, watch->timeout_ms));
    while (!s->failed && !ready(s, w, arg)) {
        int64_t end_ns = tti_now_ns() + TTI_MIN(limit_ms, WAIT_SLICE_MS) * TTI_NS_PER_MS;
        tti_cond_wait_until(&s->news, &s->mutex, end_ns);
        if (tti_wait_clock_look(&clock, tti_delay_by(watch)) && !s->failed && !ready(s, w, arg))
            return fail_timeout(s, w, &clock);
    }
    return s->failed ? tti_fail(s->cause, "%s", s->error) : TUTTI_OK;
}

void tti_server_put(tti_server *s, tti_request *r) {
    r->next = NULL;
    if (s->tail)
        s->tail->next = r;
    else
        s->head = r;
    s->tail = r;
    pthread_cond_signal(&s->work);
}

/* The threads' work on a request ends, whatever becomes of the workers; so does this. */
tutti_status tti_server_wait_served(tti_server *s, const tti_request *r) {
    while (!r->done) pthread_cond_wait(&s->news, &s->mutex);
    return r->status == TUTTI_OK ? TUTTI_OK : tti_fail(r->status, "%s", r->error);
}

tutti_status tti_server_why(tti_server *s, const char *text) {
    if (s->client) return tti_client_why(s, text);
    pthread_mutex_lock(&s->mutex);
    tti_server_fail(s, TUTTI_E_PEER, text);
    tutti_status st = tti_fail(s->cause, "%s", s->error);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* ---- what several processes hold ---- */

static tutti_status put_and_wait(tti_server *s, tti_request *r) {
    pthread_mutex_lock(&s->mutex);
    tti_server_put(s, r);
    tutti_status st = tti_server_wait_served(s, r);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_server_fetch(tti_exec *x, int k, tti_range keys, const float **data) {
    float *to = tti_exec_piece(x, 0) + keys.first;
    tti_server *s = x->desc.server;
    tti_request r = {.kind = TTI_FETCH, .k = k, .keys = keys, .to = to};
    *data = to;
    if (!s->range_server) return put_and_wait(s, &r);
    tti_range_server_fetch(s->range_server, k, keys, to); /* of a part: all of it is here */
    return TUTTI_OK;
}

void tti_server_store(tti_exec *x, int k, tti_range keys, const float *data) {
    tti_server *s = x->desc.server;
    if (s->range_server) tti_range_server_store(s->range_server, k, keys, data);
    if (!s->ranges) return;
    pthread_mutex_lock(&s->mutex);
    tti_exec_store_range(s->x, k, keys, data);
    pthread_mutex_unlock(&s->mutex);
}

tutti_status tti_server_held(tti_server *s, tti_held held[TTI_MAX_RANKS], int *n) {
    int64_t bytes[TTI_MAX_RANKS];
    tti_request r = {.kind = TTI_TRAFFIC, .bytes = bytes};
    TTI_TRY(put_and_wait(s, &r));
    *n = s->replica_group ? tti_replica_group_n_parts(s->replica_group)
                          : tti_server_n_ranges(&s->desc);
    for (int i = 0; i < *n; i++) {
        held[i].keys = s->replica_group ? tti_replica_group_keys(s->replica_group, i)
                                        : tti_server_range(&s->desc, i);
        held[i].n_bytes = bytes[i];
    }
    return TUTTI_OK;
}

/* ---- synchronous ---- */

static bool is_served(const tti_server *s, int w, int64_t n_before) {
    (void)w;
    return s->n_steps > (uint64_t)n_before;
}

/* A worker that leaves after a failure frees its gradients: not while the threads read them. */
tutti_status tti_server_wait_step(tti_server *s, int w) {
    int64_t n_before = (int64_t)s->n_steps;
    int n_needed = s->desc.n_workers - s->desc.n_backup;
    tutti_status st = tti_server_wait(s, w, is_served, n_before);
    while (st != TUTTI_OK && s->n_arrived == n_needed && !is_served(s, w, n_before))
        pthread_cond_wait(&s->news, &s->mutex); /* their work ends */
    return st;
}

/* Between two steps, when the threads read no pieces, workers may have been assigned other shards.
 */
static tutti_status take_shard_map(tti_server *s, const tti_shard_map *shard_map) {
    tti_sum_order order;
    if (tti_shard_map_same(&s->shard_map, shard_map)) return TUTTI_OK;
    TTI_ASSERT(s->n_arrived == 0);
    TTI_TRY(tti_shard_map_check(shard_map, s->desc.n_workers, s->desc.exec.n_shards));
    TTI_TRY(tti_sum_order_shards(shard_map, &order));
    tti_sum_order_free(&s->order);
    s->order = order;
    s->shard_map = *shard_map;
    return TUTTI_OK;
}

static tutti_status arrive(tti_server *s, tti_exec *x, const tti_step_desc *desc, double inv_count,
                           tti_step_result *result) {
    int w = x->desc.server_worker;
    if (s->failed) return tti_fail(s->cause, "%s", s->error);
    TTI_ASSERT(s->worker[w].n_pieces == 0);
    TTI_TRY(take_shard_map(s, &x->shard_map));
    for (int i = 0; i < x->acc.n_pieces; i++) s->worker[w].pieces[i] = tti_exec_piece(x, i);
    s->worker[w].n_pieces = x->acc.n_pieces;
    if (++s->n_arrived == s->desc.n_workers) {
        s->step = (tti_request){.kind = TTI_STEP, .step = *desc, .inv_count = inv_count};
        tti_server_put(s, &s->step);
    }
    TTI_TRY(tti_server_wait_step(s, w));
    const tti_step_result *told = &s->step.arrival.result;
    result->grad_norm = told->grad_norm;
    result->skipped = told->skipped;
    return s->step.status == TUTTI_OK ? TUTTI_OK : tti_fail(s->step.status, "%s", s->step.error);
}

/* A worker's copy of the parameters, hashed as it is in its own memory. */
static void copy_compute_thread(int compute_thread, void *arg) {
    tti_exec *x = arg;
    const tti_plan *plan = x->desc.plan;
    const float *from = tti_server_exec(x->desc.server)->params;
    tti_range mine = tti_compute_thread_range((size_t)plan->n_updates, 1, compute_thread,
                                              x->desc.n_compute_threads);
    x->compute_thread[compute_thread].hash = 0;
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        memcpy(x->params + u->first, from + u->first, u->n_elems * sizeof *from);
        x->compute_thread[compute_thread].hash +=
            x->desc.backend->hash(x->params + u->first, u->n_elems, u->first);
    }
}

/* The server's parameters, to the memory of a worker; nothing is applied before all workers come
 * again. */
static tutti_status copy_to_worker(tti_exec *x) {
    x->last_hash = 0;
    if (x->device) {
        TTI_TRY(tti_exec_device_put(x, x->params, tti_server_exec(x->desc.server)->params));
        return tti_exec_device_hash(x, &x->last_hash);
    }
    tti_compute_threads_run(x->compute_threads, copy_compute_thread, x);
    for (int i = 0; i < x->desc.n_compute_threads; i++) x->last_hash += x->compute_thread[i].hash;
    return TUTTI_OK;
}

void tti_server_profile(tti_exec *x, const char *name, int64_t start_ns, int64_t end_ns,
                        int64_t served_ns) {
    int64_t from = served_ns > 0 ? TTI_MAX(start_ns, end_ns - served_ns) : start_ns;
    tti_profile_add(x, TTI_ROW_SERVER, tti_part_other(name), -1, from, end_ns);
    tti_profile_add(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for the server"), -1, start_ns,
                    end_ns);
}

tutti_status tti_server_push_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                                  tti_step_result *result) {
    tti_server *s = x->desc.server;
    int64_t begin = tti_now_ns();
    pthread_mutex_lock(&s->mutex);
    tutti_status st = arrive(s, x, desc, inv_count, result);
    pthread_mutex_unlock(&s->mutex);
    TTI_TRY(st);
    tti_profile_rest(x, tti_part_sums("sums of the step"), begin);
    tti_server_profile(x, "sum and update", begin, tti_now_ns(), s->step.arrival.result.update_ns);
    return TUTTI_OK;
}

tutti_status tti_server_pull_step(tti_exec *x) {
    const tti_span copy = {
        .part = tti_part_params("parameters from the server"), .shard = -1, .row = TTI_ROW_COMM};
    int64_t start = tti_now_ns();
    TTI_TRY(copy_to_worker(x));
    int64_t copied = tti_now_ns();
    tti_profile_stall(x, &copy, "waiting for parameters", start, copied);
    tti_profile_mark(x, copied);
    return TUTTI_OK;
}

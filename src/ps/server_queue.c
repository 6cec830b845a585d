/* server_queue.c - the server's thread, which serves the requests of all workers one by one.
 *
 * One mutex orders all requests. A request is appended to the queue, and its batch, update and
 * version numbers are assigned, under the same lock. So these numbers define the order of all
 * work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/local_sum.h"
#include "exec/device/device.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

_Static_assert((int)TTI_MAX_SERVER_THREADS == (int)TTI_MAX_COMPUTE_THREADS, "one for each");

/* ---- requests ---- */

static void pull_compute_thread(int compute_thread, void *arg) {
    void **p = arg;
    const tti_server *s = p[0];
    const tti_request *r = p[1];
    tti_range mine = tti_compute_thread_range(s->n_own, 16, compute_thread,
                                              tti_setup_of(s->x)->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    size_t n_bytes = (mine.last - mine.first) * sizeof *r->params;
    memcpy(r->params + mine.first, tti_exec_array(s->x, TTI_STATE_PARAMS) + mine.first, n_bytes);
    if (r->ema && tti_exec_array(s->x, TTI_STATE_EMA))
        memcpy(r->ema + mine.first, tti_exec_array(s->x, TTI_STATE_EMA) + mine.first, n_bytes);
}

/* Adds all partial sums along the tree, for one server thread's range. */
static void sum_compute_thread(int compute_thread, void *arg) {
    tti_server *s = arg;
    const tti_sum_dtypes dtypes = {
        TUTTI_F32, tti_exec_rounds_partials(&s->desc.exec) ? TUTTI_BF16 : TUTTI_F32};
    float *dst = s->worker[0].partials[0];
    tti_range mine =
        tti_compute_thread_range(tti_setup_of(s->x)->desc.plan->n_flat, 16, compute_thread,
                                 tti_setup_of(s->x)->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i += TTI_SUM_BLOCK) {
        size_t n = TTI_MIN(mine.last - i, (size_t)TTI_SUM_BLOCK);
        const void *sum = tti_sum_block(&s->order, s->terms, i * sizeof(float), dtypes, TUTTI_SUM,
                                        n, s->scratch[compute_thread]);
        if (sum != dst + i) memcpy(dst + i, sum, n * sizeof *dst);
    }
}

/* Lists the partial sums of a step in the order in which they are added. */
static tutti_status list_terms(tti_server *s) {
    const void **terms = realloc(s->terms, (size_t)s->order.n_terms * sizeof(void *));
    if (!terms) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    s->terms = terms;
    for (int t = 0; t < s->order.n_terms; t++)
        terms[t] = s->worker[s->order.terms[t].rank].partials[s->order.terms[t].partial];
    return TUTTI_OK;
}

/* The first worker that has pushed its partial sums. */
static int first_of(const tti_server *s) {
    int w = 0;
    while (s->worker[w].n_partials == 0) w++;
    return w;
}

/* Adds the partial sums of the workers that pushed in time, in the order of the workers. */
static void add_compute_thread(int compute_thread, void *arg) {
    tti_server *s = arg;
    int first = first_of(s);
    float *dst = s->worker[first].partials[0];
    tti_range mine = tti_compute_thread_range(s->n_own, 16, compute_thread,
                                              tti_setup_of(s->x)->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    for (int w = first; w < s->desc.n_workers; w++) {
        const tti_served *from = &s->worker[w];
        for (int i = w == first; i < from->n_partials; i++)
            tti_setup_of(s->x)->desc.backend->accumulate(
                dst + mine.first, from->partials[i] + mine.first, mine.last - mine.first);
    }
}

static tti_worker_set workers_of(const tti_server *s, const tti_request *r) {
    tti_worker_set workers = {0};
    if (r->kind == TTI_PUSH) tti_set_add(&workers, r->arrival.worker);
    for (int w = 0; w < s->desc.n_workers && r->kind != TTI_PUSH; w++)
        if (s->worker[w].n_partials > 0) tti_set_add(&workers, w);
    return workers;
}

/* Counts the bytes of n_arrays arrays exchanged with each of n_workers workers of other
 * processes. */
static void count_arrays(tti_server *s, int n_workers, size_t n_arrays, tutti_dtype of) {
    size_t n_far = s->listener ? (size_t)n_workers : 0;
    s->n_bytes += (int64_t)(n_far * n_arrays * s->n_own * tutti_dtype_bytes(of));
}

static tutti_status apply(tti_server *s, tti_request *r) {
    tti_exec *x = s->x;
    tti_worker_set workers = workers_of(s, r);
    if (r->arrival.result.skipped) return TUTTI_OK; /* a loss was not finite */
    if (r->kind == TTI_STEP && s->desc.n_backup == 0) TTI_TRY(list_terms(s));
    TTI_TRY(tti_ranges_update(s->ranges, r, &workers));
    count_arrays(s, tti_set_count(&workers) - tti_set_has(&workers, 0), 1, s->desc.exec.wire);
    if (r->kind == TTI_STEP)
        tti_exec_run_threads(x, s->desc.n_backup > 0 ? add_compute_thread : sum_compute_thread, s);
    tti_exec_lend_grads(x, r->kind == TTI_STEP ? s->worker[first_of(s)].partials[0] : r->grads);
    tti_exec_scale_loss(x, r->step.loss_scale);
    /* Waits for the other range servers only after this range's own part. If one has timed out
     * already, does not wait for it again, because the workers wait for this result. */
    tutti_status st = tti_exec_apply(x, &r->step, r->inv_count, &r->arrival.result);
    char text[512];
    if (!s->ranges || st == TUTTI_E_TIMEOUT) return st;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tutti_status others = tti_ranges_end_update(s->ranges, &r->arrival.result.params_hash);
    return st == TUTTI_OK ? others : tti_fail(st, "%s", text);
}

static tutti_status copy_params(tti_server *s, tti_request *r) {
    TTI_TRY(tti_ranges_copy(s->ranges, r));
    tti_exec_run_threads(s->x, pull_compute_thread, (void *[]){s, r});
    count_arrays(s, r->worker > 0, r->ema && tti_exec_array(s->x, TTI_STATE_EMA) ? 2 : 1,
                 TUTTI_F32);
    return TUTTI_OK;
}

/* Fetches the part of keys that this process owns, and the parts of the other servers. */
static tutti_status fetch(tti_server *s, tti_request *r) {
    size_t last = TTI_MIN(r->keys.last, s->n_own);
    if (r->keys.first < last)
        memcpy(r->to, tti_exec_array(s->x, r->k) + r->keys.first,
               (last - r->keys.first) * sizeof *r->to);
    return tti_ranges_fetch(s->ranges, r->k, r->keys, r->to);
}

static tutti_status report_traffic(tti_server *s, tti_request *r) {
    r->bytes[0] = s->n_bytes;
    return tti_ranges_traffic(s->ranges, r->bytes);
}

static void serve(tti_server *s, tti_request *r) {
    static tutti_status (*const fns[])(tti_server *, tti_request *) = {
        [TTI_PULL] = copy_params,
        [TTI_PUSH] = apply,
        [TTI_STEP] = apply,
        [TTI_FETCH] = fetch,
        [TTI_TRAFFIC] = report_traffic};
    int64_t start = tti_now_ns();
    r->status = fns[r->kind](s, r);
    if (r->status == TUTTI_E_NUMERICS && r->arrival.result.skipped &&
        tti_server_skips_nonfinite(s)) {
        tti_clear_error();
        r->status = TUTTI_OK;
    }
    r->arrival.result.update_ns = tti_now_ns() - start;
    if (r->status != TUTTI_OK) snprintf(r->error, sizeof r->error, "%s", tutti_last_error());
}

/* Call this and the other functions of this section with the mutex held. */
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

static void record_arrival(tti_server *s, tti_request *r) {
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

static void serve_requests(tti_server *s) {
    for (;;) {
        while (!s->head && !s->stop)
            pthread_cond_wait(&s->work, &s->mutex); /* until destroy sets stop */
        tti_request *r = s->head;
        if (!r) return;
        s->head = r->next;
        if (!s->head) s->tail = NULL;
        pthread_mutex_unlock(&s->mutex);
        serve(s, r);
        pthread_mutex_lock(&s->mutex);
        if (r->kind == TTI_PUSH || (r->kind == TTI_STEP && s->desc.n_backup > 0))
            record_arrival(s, r);
        if (r->kind == TTI_STEP) {
            for (int w = 0; w < s->desc.n_workers; w++) {
                tti_served *worker = &s->worker[w];
                if (worker->n_partials > 0) worker->was_left_out = s->step.arrival.result.skipped;
                worker->n_partials = 0;
            }
            s->n_arrived = 0;
            s->n_steps++;
            s->n_rows = 0;
            s->sums = (tti_step_result){0};
        }
        if (r->kind == TTI_STEP && s->desc.n_backup > 0 && r->status != TUTTI_OK)
            tti_server_fail(s, TUTTI_E_PEER, r->error);
        if (tti_ranges_is_lost(s->ranges)) tti_server_fail(s, TUTTI_E_PEER, r->error);
        r->done = true;
        pthread_cond_broadcast(&s->news);
    }
}

/* The ranges are connected after the server has started. */
static tutti_status join_ranges(void *server, double *values, size_t n_each) {
    return tti_ranges_join(((const tti_server *)server)->ranges, values, n_each);
}

/* This thread is compute thread 0, and allocates the memory that it will use. */
static tutti_status set_up(tti_server *s) {
    s->desc.exec.serves = true;
    s->desc.exec.comm = NULL;
    s->desc.exec.cores = NULL;
    s->desc.exec.shard_map = NULL;
    if (s->desc.n_ranges > 1) {
        s->desc.exec.n_ranges = s->desc.n_ranges;
        s->desc.exec.join = join_ranges;
        s->desc.exec.join_user = s;
    }
    TTI_TRY(tti_exec_create(&s->desc.exec, &s->x));
    for (int i = 0; i < tti_setup_of(s->x)->desc.n_compute_threads; i++) {
        s->scratch[i] = aligned_alloc(64, (tti_sum_scratch_bytes() + 63) & ~(size_t)63);
        if (!s->scratch[i]) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    }
    return TUTTI_OK;
}

static void *run_server(void *arg) {
    tti_server *s = arg;
    tutti_status st = set_up(s);
    pthread_mutex_lock(&s->mutex);
    s->start_status = st;
    if (st != TUTTI_OK) snprintf(s->start_error, sizeof s->start_error, "%s", tutti_last_error());
    s->is_up = true;
    pthread_cond_broadcast(&s->news);
    if (st == TUTTI_OK) serve_requests(s);
    pthread_mutex_unlock(&s->mutex);
    tti_exec_destroy(s->x);
    return NULL;
}

/* ---- start ---- */

/* Counts the pulls of each version that must happen before the next update. */
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
            return tti_fail(
                TUTTI_E_INVALID,
                "parameter server: arrival %lld of worker %d, version %lld, is not valid",
                (long long)a->step, a->worker, (long long)a->version);
        s->n_to_pull[a->version - base]++;
    }
    return TUTTI_OK;
}

tutti_status tti_server_start(tti_server *s) {
    TTI_TRY(count_pulls(s));
    if (pthread_create(&s->thread, NULL, run_server, s) != 0)
        return tti_fail(TUTTI_E_NOMEM, "parameter server: cannot start a thread");
    s->has_thread = true;
    pthread_mutex_lock(&s->mutex);
    while (!s->is_up)
        pthread_cond_wait(&s->news, &s->mutex); /* s->x is created on the server's thread */
    tutti_status st = s->start_status;
    pthread_mutex_unlock(&s->mutex);
    return st == TUTTI_OK ? st : tti_fail(st, "%s", s->start_error);
}

/* ---- synchronous steps: every worker pushes its partial sums, then pulls the parameters ---- */

static tutti_status push_partials(tti_server *s, tti_exec *x, const tti_step_desc *desc,
                                  double inv_count, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    int w = setup->desc.server_worker;
    if (s->failed) return tti_fail(s->cause, "%s", s->error);
    TTI_ASSERT(s->worker[w].n_partials == 0);
    /* The shard map may have changed since the last step. No thread reads partial sums between two
     * steps. */
    tti_sum_order order;
    if (!tti_shard_map_same(&s->shard_map, &setup->shard_map)) {
        TTI_ASSERT(s->n_arrived == 0);
        TTI_TRY(tti_shard_map_check(&setup->shard_map, s->desc.n_workers, s->desc.exec.n_shards));
        TTI_TRY(tti_sum_order_shards(&setup->shard_map, &order));
        tti_sum_order_free(&s->order);
        s->order = order;
        TTI_TRY(tti_shard_map_copy(&setup->shard_map, &s->shard_map));
    }
    for (int i = 0; i < setup->acc.n_partials; i++)
        s->worker[w].partials[i] = tti_exec_partial(x, i);
    s->worker[w].n_partials = setup->acc.n_partials;
    if (++s->n_arrived == s->desc.n_workers) {
        s->step = (tti_request){.kind = TTI_STEP, .step = *desc, .inv_count = inv_count};
        tti_server_put(s, &s->step);
    }
    TTI_TRY(tti_server_wait_step(s, w));
    const tti_step_result *applied = &s->step.arrival.result;
    result->grad_norm = applied->grad_norm;
    result->skipped = applied->skipped;
    return s->step.status == TUTTI_OK ? TUTTI_OK : tti_fail(s->step.status, "%s", s->step.error);
}

/* A copy of the parameters to a worker's memory. */
typedef struct copying {
    const tti_setup *setup;
    const float *from;
    float *to;
    _Atomic uint64_t hash; /* hash of the copied parameters: a sum over the threads */
} copying;

static void copy_compute_thread(int compute_thread, void *arg) {
    copying *c = arg;
    const tti_plan *plan = c->setup->desc.plan;
    uint64_t hash = 0;
    tti_range mine = tti_compute_thread_range((size_t)plan->n_updates, 1, compute_thread,
                                              c->setup->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        memcpy(c->to + u->first, c->from + u->first, u->n_elems * sizeof *c->to);
        hash += tti_hash_block(c->setup->desc.backend, u, c->to + u->first);
    }
    c->hash += hash;
}

/* Copies the server's parameters to a worker's memory. They do not change before all workers have
 * pushed again. */
static tutti_status copy_to_worker(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    copying c = {.setup = setup,
                 .from = tti_exec_array(tti_server_exec(setup->desc.server), TTI_STATE_PARAMS),
                 .to = tti_exec_array(x, TTI_STATE_PARAMS)};
    uint64_t hash;
    tti_exec_set_hash(x, 0);
    if (tti_device_of(x)) {
        TTI_TRY(tti_exec_device_put(x, c.to, c.from));
        TTI_TRY(tti_exec_device_hash(x, &hash));
        tti_exec_set_hash(x, hash);
        return TUTTI_OK;
    }
    tti_exec_run_threads(x, copy_compute_thread, &c);
    tti_exec_set_hash(x, c.hash);
    return TUTTI_OK;
}

tutti_status tti_server_push_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                                  tti_step_result *result) {
    tti_server *s = tti_setup_of(x)->desc.server;
    int64_t begin = tti_now_ns();
    tti_server_round_partials(x);
    pthread_mutex_lock(&s->mutex);
    tutti_status st = push_partials(s, x, desc, inv_count, result);
    pthread_mutex_unlock(&s->mutex);
    TTI_TRY(st);
    tti_profile_rest(x, tti_instr_span(TTI_REPORT), begin);
    tti_server_profile(x, "sum and update", begin, tti_now_ns(), s->step.arrival.result.update_ns);
    return TUTTI_OK;
}

tutti_status tti_server_pull_step(tti_exec *x) {
    const tti_span copy = {.id = tti_instr_span(TTI_PULL_PARAMS), .shard = -1, .row = TTI_ROW_COMM};
    int64_t start = tti_now_ns();
    TTI_TRY(copy_to_worker(x));
    int64_t copied = tti_now_ns();
    tti_profile_stall(x, &copy, "waiting for parameters", start, copied);
    tti_profile_mark(x, copied);
    return TUTTI_OK;
}

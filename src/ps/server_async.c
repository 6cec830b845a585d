/* server_async.c - asynchronous steps: workers lease batches and push gradients.
 *
 * All functions take the number of a worker. A worker thread passes its own number; for a worker
 * process a thread of server_listener.c calls them. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exec/device/device.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

/* ---- opening and stopping ---- */

tutti_status tti_server_open(tti_server *s, int64_t first, int64_t last) {
    if (!tti_server_sends_requests(s)) return TUTTI_OK;
    if (s->client) return tti_client_open(s, first, last);
    pthread_mutex_lock(&s->mutex);
    if (s->first != first || s->opened != last) {
        s->first = s->n_assigned = s->n_updates = first;
        s->last = s->opened = last;
    }
    pthread_mutex_unlock(&s->mutex);
    return TUTTI_OK;
}

static tutti_status stop(tti_server *s) {
    if (s->client) return tti_client_stop(s);
    pthread_mutex_lock(&s->mutex);
    if (s->desc.n_backup > 0)
        s->last = TTI_MIN(
            s->last, s->n_updates + 1); /* finish the current step, in which some workers wait */
    else
        s->stopped = true;
    pthread_cond_broadcast(&s->news);
    pthread_mutex_unlock(&s->mutex);
    return TUTTI_OK;
}

/* Any worker of a replica may request a stop; it takes effect at the replica's next lease. */
tutti_status tti_server_stop(tti_server *s) {
    if (!s->replica_group) return stop(s);
    s->replica_group->wants_stop = true;
    return TUTTI_OK;
}

/* The next recorded arrival of w among the current batches; NULL: none. */
static const tti_arrival *next_recorded(const tti_server *s, int w) {
    int64_t i = s->worker[w].next_replay;
    const tti_server_desc *d = &s->desc;
    while (i < d->n_replay && (d->replay[i].worker != w || d->replay[i].step <= s->first)) i++;
    return i < d->n_replay && d->replay[i].step <= s->last ? &d->replay[i] : NULL;
}

/* True if no batch is left for w. */
static bool is_over(const tti_server *s, int w) {
    if (s->desc.replay) return s->stopped || !next_recorded(s, w);
    if (s->desc.n_backup > 0) return s->n_updates >= s->last;
    if (!s->stopped && s->n_assigned < s->last) return false;
    /* If a worker that still computes fails, its batch is leased again. */
    for (int i = 0; i < s->desc.n_workers; i++)
        if (s->worker[i].computes) return false;
    return s->n_returned == 0;
}

/* True if w may begin a step without exceeding the staleness bound of any worker that computes. */
static bool may_begin(const tti_server *s, int w, int64_t unused) {
    (void)unused;
    if (is_over(s, w) || s->desc.n_backup > 0) return true;
    if (s->desc.replay) return s->n_updates == next_recorded(s, w)->version;
    bool has_more = s->n_returned > 0 || (!s->stopped && s->n_assigned < s->last);
    if (!has_more) return false;
    for (int i = 0; i < s->desc.n_workers && s->n_begun; i++)
        if (i != w && s->worker[i].computes && s->worker[i].n_begun[w] >= s->desc.staleness)
            return false;
    return true;
}

/* ---- leases a batch with its parameters ---- */

static tutti_status pull(tti_server *s, int w, float *params, float *ema) {
    tti_request r = {.kind = TTI_PULL, .worker = w, .params = params, .ema = ema};
    r.arrival.version = s->n_updates;
    tti_server_put(s, &r);
    pthread_cond_broadcast(&s->news); /* a replayed update may have waited for this pull */
    return tti_server_wait_served(s, &r);
}

static tutti_status lease_batch(tti_server *s, int w, float *params, tti_lease *lease) {
    TTI_TRY(tti_server_wait(s, w, may_begin, 0));
    if (is_over(s, w)) return TUTTI_OK;
    tti_served *me = &s->worker[w];
    *lease = (tti_lease){.any = true, .batch = s->n_assigned, .version = s->n_updates};
    if (s->desc.replay) {
        const tti_arrival *a = next_recorded(s, w);
        lease->batch = a->batch;
        lease->loss_scale = a->loss_scale;
        me->next_replay = a - s->desc.replay + 1;
        s->n_to_pull[a->version - (s->desc.replay[0].step - 1)]--;
    }
    if (s->desc.n_backup > 0)
        lease->batch = s->n_updates;
    else if (s->n_returned > 0)
        lease->batch = s->returned[--s->n_returned];
    else
        s->n_assigned++;
    me->computes = true;
    me->batch = lease->batch;
    me->version = lease->version;
    if (me->n_begun) memset(me->n_begun, 0, (size_t)s->desc.n_workers * sizeof *me->n_begun);
    for (int i = 0; i < s->desc.n_workers && s->n_begun; i++)
        if (i != w && s->worker[i].computes) s->worker[i].n_begun[w]++;
    return pull(s, w, params, NULL);
}

tutti_status tti_server_lease_for(tti_server *s, int w, float *params, tti_lease *lease) {
    *lease = (tti_lease){0};
    pthread_mutex_lock(&s->mutex);
    tutti_status st = lease_batch(s, w, params, lease);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* Host memory [n_flat] that receives the pulled parameters, and the averages (NULL: none), of a
 * worker of this process. */
static float *pulled(const tti_exec *x) {
    return tti_device_of(x) ? tti_exec_device_pulled(tti_device_of(x))
                            : tti_exec_array(x, TTI_STATE_PARAMS);
}

static float *pulled_ema(const tti_exec *x) {
    if (!tti_exec_array(x, TTI_STATE_EMA)) return NULL;
    return tti_device_of(x) ? tti_exec_partial(x, 0) : tti_exec_array(x, TTI_STATE_EMA);
}

/* Copies parameters and averages of that version to the device. They come from the answer of the
 * only server process, or from each range server. */
static tutti_status receive_params(tti_exec *x, int64_t version, bool with_ema) {
    tti_server *s = tti_exec_server(x);
    float *params = pulled(x), *ema = with_ema ? pulled_ema(x) : NULL;
    if (s->client && !s->keys) {
        float *from = tti_client_area(s, TTI_WIRE_PARAMS);
        float *from_ema = ema ? tti_client_area(s, TTI_WIRE_EMA) : NULL;
        if (!tti_device_of(x)) {
            tti_server_copy(x, params, from, s->n_own);
            if (ema) tti_server_copy(x, ema, from_ema, s->n_own);
        }
        params = from;
        ema = from_ema;
    } else
        TTI_TRY(tti_keys_pull(s, x, version, params, ema));
    if (!tti_device_of(x)) return TUTTI_OK;
    TTI_TRY(tti_exec_device_put(x, tti_exec_array(x, TTI_STATE_PARAMS), params));
    return ema ? tti_exec_device_put(x, tti_exec_array(x, TTI_STATE_EMA), ema) : TUTTI_OK;
}

tutti_status tti_server_lease(tti_exec *x, tti_lease *lease) {
    const tti_span leased = {
        .id = tti_instr_span(TTI_PULL_PARAMS), .shard = -1, .row = TTI_ROW_COMM};
    int64_t start_ns = tti_now_ns();
    tti_server *s = tti_exec_server(x);
    bool stops = false;
    /* One worker of the replica sends the request and broadcasts the answer. */
    TTI_TRY(tti_replica_group_ask_stop(s->replica_group, &stops));
    if (tti_server_sends_requests(s)) {
        if (stops) TTI_TRY(stop(s));
        TTI_TRY(s->client ? tti_client_lease(s, lease)
                          : tti_server_lease_for(s, tti_exec_server_worker(x), pulled(x), lease));
    }
    TTI_TRY(tti_replica_group_broadcast(s->replica_group, lease, sizeof *lease));
    if (!lease->any) return TUTTI_OK;
    TTI_TRY(receive_params(x, lease->version, false));
    if (!tti_device_of(x)) tti_profile_next_step(x);
    tti_profile_stall(x, &leased, "waiting for parameters", start_ns, tti_now_ns());
    return TUTTI_OK;
}

tutti_status tti_server_pull_for(tti_server *s, int w, float *params, float *ema,
                                 int64_t *n_updates) {
    pthread_mutex_lock(&s->mutex);
    *n_updates = s->n_updates;
    tutti_status st = pull(s, w, params, ema);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_server_pull(tti_exec *x, int64_t *n_updates) {
    tti_server *s = tti_exec_server(x);
    /* Without ranges a worker of the server's process reads averages directly from the server. */
    bool with_ema = s->client || tti_server_has_ranges(s);
    tti_arrays_of(x)->has_whole_ema =
        false; /* the averages may have changed even if this worker has made no update since */
    if (tti_server_sends_requests(s))
        TTI_TRY(s->client ? tti_client_pull(s, n_updates)
                          : tti_server_pull_for(s, tti_exec_server_worker(x), pulled(x),
                                                with_ema ? pulled_ema(x) : NULL, n_updates));
    TTI_TRY(tti_replica_group_broadcast(s->replica_group, n_updates, sizeof *n_updates));
    return receive_params(x, *n_updates, with_ema);
}

tutti_status tti_server_pull_averages(tti_exec *x) {
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_exec *state_owner = tti_server_exec(tti_setup_of(x)->desc.server);
    if (!state_owner || !tti_exec_array(state_owner, TTI_STATE_EMA) || arrays->has_whole_ema)
        return TUTTI_OK;
    arrays->has_whole_ema = true;
    return tti_exec_device_put(x, tti_zero_averages(x), tti_exec_array(state_owner, TTI_STATE_EMA));
}

/* ---- pushes the gradient ---- */

/* In a replay: true if the next recorded update is this worker's and all pulls of the current
 * version are done. */
static bool is_its_turn(const tti_server *s, int w, int64_t unused) {
    (void)unused;
    if (!s->desc.replay) return true;
    const tti_arrival *a = &s->desc.replay[s->worker[w].next_replay - 1];
    return s->n_updates == a->step - 1 && s->n_to_pull[a->step - s->desc.replay[0].step] == 0;
}

static double rate_of(const tti_server *s, const tti_push *b) {
    return b->lr ? b->lr(b->user, s->n_updates) : s->lr(s->lr_user, s->n_updates);
}

static tutti_status push(tti_server *s, int w, const tti_push *b, tti_request *r) {
    tti_served *me = &s->worker[w];
    TTI_TRY(tti_server_wait(s, w, is_its_turn, 0));
    tti_arrival *a = &r->arrival;
    a->worker = w;
    a->batch = me->batch;
    a->version = me->version;
    r->step.step = (uint64_t)s->n_updates;
    r->step.lr = a->lr = rate_of(s, b);
    a->step = ++s->n_updates;
    me->computes = false;
    tti_server_put(s, r);
    pthread_cond_broadcast(&s->news);
    return tti_server_wait_served(s, r);
}

/* Adds the worker's partial sums to the current step, or drops them if that step is complete. */
static tutti_status push_partial(tti_server *s, int w, const tti_push *b, tti_request *r) {
    tti_served *me = &s->worker[w];
    me->computes = false;
    if (s->failed) return tti_fail(s->cause, "%s", s->error);
    if (me->version != s->n_updates) {
        me->n_dropped++;
        return TUTTI_OK;
    }
    memcpy(me->partials, b->partials, sizeof me->partials);
    me->n_partials = b->n_partials;
    /* The bubble is a fraction of time, so it is weighted by compute time. */
    double waited_ns = s->sums.bubble * (double)s->sums.compute_ns +
                       b->result.bubble * (double)b->result.compute_ns;
    s->sums.loss_sum += b->result.loss_sum;
    s->sums.count += b->result.count;
    s->sums.correct += b->result.correct;
    for (size_t i = 0; i < TTI_COUNT(s->sums.metrics.of); i++)
        s->sums.metrics.of[i] += b->result.metrics.of[i];
    s->sums.compute_ns += b->result.compute_ns;
    s->sums.skipped = s->sums.skipped || b->result.skipped;
    s->sums.bubble = waited_ns / (double)TTI_MAX(s->sums.compute_ns, 1);
    s->n_rows += b->n_own_rows;
    r->arrival.step = me->version + 1;
    if (++s->n_arrived == s->desc.n_workers - s->desc.n_backup) {
        tti_arrival *a = &s->step.arrival;
        s->step = (tti_request){.kind = TTI_STEP, .step = b->step};
        s->step.inv_count = s->sums.count > 0 ? 1.0 / s->sums.count : 0;
        s->step.step.step = (uint64_t)s->n_updates;
        s->step.step.lr = a->lr = rate_of(s, b);
        s->step.step.n_rows = a->n_rows = s->n_rows;
        a->result = s->sums;
        a->batch = a->version = s->n_updates;
        a->wait_ns = b->wait_ns;
        a->loss_scale = b->step.loss_scale;
        a->step = ++s->n_updates;
        tti_server_put(s, &s->step);
    }
    TTI_TRY(tti_server_wait_step(s, w));
    r->arrival.result.skipped = me->was_left_out;
    return TUTTI_OK;
}

tutti_status tti_server_push_for(tti_server *s, int w, const tti_push *b, tti_arrival *out) {
    tti_request r = {.kind = TTI_PUSH, .grads = b->partials[0], .step = b->step};
    r.inv_count = b->result.count > 0 ? 1.0 / b->result.count : 0;
    r.arrival = (tti_arrival){.n_rows = b->n_rows,
                              .loss_scale = b->step.loss_scale,
                              .wait_ns = b->wait_ns,
                              .result = b->result};
    pthread_mutex_lock(&s->mutex);
    tutti_status st = s->desc.n_backup > 0 ? push_partial(s, w, b, &r) : push(s, w, b, &r);
    pthread_mutex_unlock(&s->mutex);
    *out = r.arrival;
    return st;
}

tutti_status tti_server_push_gradient(tti_exec *x, const tti_pushed_gradient *pushed,
                                      tti_arrival *out) {
    const tti_setup *setup = tti_setup_of(x);
    tti_server *s = setup->desc.server;
    tti_push b = {.n_partials = tti_exec_n_partials(tti_setup_of(x)),
                  .step = *pushed->desc,
                  .n_rows = pushed->desc->n_rows,
                  .wait_ns = pushed->wait_ns,
                  .lr = pushed->lr,
                  .user = pushed->user};
    int64_t start_ns = tti_now_ns();
    tutti_status computed = tti_exec_gradient(x, pushed->desc, &b.result);
    if (computed == TUTTI_E_NUMERICS && tti_server_skips_nonfinite(s)) {
        tti_clear_error();
        b.result.skipped = true; /* no gradient is pushed, only the non-finite loss is reported */
    } else {
        TTI_TRY(computed);
    }
    int64_t computed_ns = tti_now_ns();
    b.result.compute_ns = computed_ns - start_ns;
    for (int i = 0; i < b.n_partials; i++) b.partials[i] = tti_exec_partial(x, i);
    tti_server_round(x, b.partials, &b.n_partials);
    for (int i = 0; i < setup->last_shard - setup->first_shard; i++)
        b.n_own_rows += pushed->desc->shards[i].n_rows;
    if (!b.result.skipped) TTI_TRY(tti_keys_push(s, x, b.partials, b.n_partials));
    if (s->replica_group) /* all workers of the replica have pushed their gradients */
        TTI_TRY(tutti_comm_barrier(s->replica_group->mesh.model));
    if (tti_server_sends_requests(s))
        TTI_TRY(s->client ? tti_client_push_gradient(s, x, &b, out)
                          : tti_server_push_for(s, setup->desc.server_worker, &b, out));
    TTI_TRY(tti_replica_group_broadcast(s->replica_group, out, sizeof *out));
    tti_server_profile(x, "update", computed_ns, tti_now_ns(), out->result.update_ns);
    return TUTTI_OK;
}

/* ---- waiting for updates ---- */

static bool has_new_updates(const tti_server *s, int w, int64_t n_updates) {
    return is_over(s, w) || s->n_updates != n_updates;
}

tutti_status tti_server_watch_for(tti_server *s, int w, int64_t *n_updates, bool *over) {
    pthread_mutex_lock(&s->mutex);
    tutti_status st = tti_server_wait(s, w, has_new_updates, *n_updates);
    *n_updates = s->n_updates;
    *over = is_over(s, w);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_server_watch(tti_exec *x, int64_t *n_updates, bool *over) {
    const tti_setup *setup = tti_setup_of(x);
    tti_server *s = setup->desc.server;
    if (s->client) return tti_client_watch(s, n_updates, over);
    return tti_server_watch_for(s, setup->desc.server_worker, n_updates, over);
}

/* ---- reports ---- */

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

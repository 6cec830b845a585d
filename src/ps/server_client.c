/* server_client.c - the worker's side of a server: copies, and requests to other processes.
 *
 * With gradients in 16 bits every worker rounds its gradient before pushing it, even within the
 * server's process. So the result does not depend on the placement of workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/channel.h"
#include "comm/local_sum.h"
#include "exec/device/device.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

typedef struct copying {
    tti_exec *x;
    void *dst;
    const float *const *partials; /* the first is copied, the others are added */
    int n_partials;
    tti_range range;  /* of the partial sums */
    tutti_dtype wire; /* of dst */
    bool widens;      /* dst is f32, with values rounded to wire */
} copying;

static void copy_compute_thread(int compute_thread, void *arg) {
    const copying *c = arg;
    float *dst = c->dst;
    size_t n_all = c->range.last - c->range.first;
    tti_range mine = tti_compute_thread_range(n_all, 16, compute_thread,
                                              tti_setup_of(c->x)->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    size_t n = mine.last - mine.first, from = c->range.first + mine.first;
    memcpy(dst + mine.first, c->partials[0] + from, n * sizeof *dst);
    for (int i = 1; i < c->n_partials; i++)
        tti_backend_cpu.accumulate(dst + mine.first, c->partials[i] + from, n);
}

static void round_compute_thread(int compute_thread, void *arg) {
    const copying *c = arg;
    tti_range mine = tti_compute_thread_range(c->range.last - c->range.first, 16, compute_thread,
                                              tti_setup_of(c->x)->desc.n_compute_threads);
    for (size_t at = mine.first; at < mine.last; at += TTI_SUM_BLOCK) {
        float sum[TTI_SUM_BLOCK];
        uint16_t rounded[TTI_SUM_BLOCK];
        size_t n = TTI_MIN(mine.last - at, (size_t)TTI_SUM_BLOCK), from = c->range.first + at;
        memcpy(sum, c->partials[0] + from, n * sizeof *sum);
        for (int i = 1; i < c->n_partials; i++)
            tti_backend_cpu.accumulate(sum, c->partials[i] + from, n);
        tti_narrow(c->wire, sum, rounded, n);
        if (c->widens)
            tti_widen(c->wire, rounded, (float *)c->dst + at, n);
        else
            memcpy((uint16_t *)c->dst + at, rounded, n * sizeof *rounded);
    }
}

static void copy_partials(tti_exec *x, void *dst, float *const *partials, int n_partials,
                          tti_range range, tutti_dtype wire, bool widens) {
    const float *from[TTI_MAX_PARTIALS];
    for (int i = 0; i < n_partials; i++) from[i] = partials[i];
    copying c = {x, dst, from, n_partials, range, wire, widens};
    tti_exec_run_threads(x, wire == TUTTI_F32 ? copy_compute_thread : round_compute_thread, &c);
}

void tti_server_round(tti_exec *x, float *const *partials, int *n_partials) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_range all = {0, setup->desc.plan->n_flat};
    tutti_dtype wire = setup->desc.server->desc.exec.wire;
    if (wire == TUTTI_F32) return;
    copy_partials(x, partials[0], partials, *n_partials, all, wire, true);
    *n_partials = 1;
}

static void round_partials_compute_thread(int compute_thread, void *arg) {
    tti_exec *x = arg;
    const tti_setup *setup = tti_setup_of(x);
    tti_range mine = tti_compute_thread_range(setup->desc.plan->n_flat, 16, compute_thread,
                                              setup->desc.n_compute_threads);
    for (int i = 0; i < setup->acc.n_partials && mine.first < mine.last; i++)
        tti_backend_cpu.accumulate_rounded(tti_exec_partial(x, i) + mine.first, NULL,
                                           mine.last - mine.first);
}

void tti_server_round_partials(tti_exec *x) {
    if (tti_exec_rounds_partials(&tti_setup_of(x)->desc))
        tti_exec_run_threads(x, round_partials_compute_thread, x);
}

void tti_server_copy(tti_exec *x, float *dst, const float *from, size_t n) {
    copying c = {x, dst, &from, 1, {0, n}, TUTTI_F32, true};
    tti_exec_run_threads(x, copy_compute_thread, &c);
}

/* ---- the client of a server in another process ----
 *
 * Each call is a request and its answer.  Parameters, gradients and averages are in the channel's
 * areas. */

struct tti_client {
    tti_channel *channel;
    bool has_left;
    bool refused; /* an answer reported a failure; the server may not have recorded yet that it ends
                     the run */
    bool failed;  /* the connection is lost */
};

/* ---- request and answer ---- */

/* Receives the reason after the server is lost: its message may have arrived, or may arrive before
 * the connection closes. */
static tutti_status receive_cause(tti_server *s, tti_wire_message *m, tutti_status st) {
    int timeout_ms = st == TUTTI_E_PEER ? s->desc.timeout_ms : 0;
    char text[512];
    size_t n_bytes = sizeof *m;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    for (; tti_channel_recv(s->client->channel, m, &n_bytes, ~0u, timeout_ms) == TUTTI_OK;
         n_bytes = sizeof *m)
        if (tti_wire_check(m, n_bytes) == TUTTI_OK && m->kind == TTI_WIRE_FAIL)
            return tti_fail(TUTTI_E_PEER, "%s", m->more.text);
    if (st == TUTTI_E_PEER)
        return tti_fail(st, "parameter server: its process, rank 0, has ended (%s)", text);
    return tti_fail(st, "parameter server: %s", text);
}

static tutti_status answer_of(tti_server *s, tti_wire_message *m, int64_t kind,
                              unsigned allowed_areas, int timeout_ms) {
    tutti_status st =
        tti_wire_recv(s->client->channel, m, allowed_areas, timeout_ms, &s->desc.watch);
    if (st != TUTTI_OK) return receive_cause(s, m, st);
    if (m->kind == kind) return TUTTI_OK;
    if (m->kind != TTI_WIRE_FAIL)
        return tti_fail(TUTTI_E_MISMATCH,
                        "parameter server: the answer does not match the request");
    return tti_fail(tti_wire_status(m), "%s", m->more.text);
}

/* Records a reported failure or a lost connection; st is the result of the call. Returns st. */
static tutti_status record_failure(tti_server *s, const tti_wire_message *m, tutti_status st) {
    if (st != TUTTI_OK && m->kind == TTI_WIRE_FAIL)
        s->client->refused = true;
    else if (st != TUTTI_OK)
        s->client->failed = true;
    return st;
}

static tutti_status send_message(tti_server *s, tti_wire_message *m, unsigned areas) {
    tutti_status st = tti_wire_send(s->client->channel, m, areas);
    return st == TUTTI_OK ? st : record_failure(s, m, receive_cause(s, m, st));
}

static tutti_status receive_message(tti_server *s, tti_wire_message *m, int64_t kind,
                                    unsigned allowed_areas) {
    return record_failure(
        s, m, answer_of(s, m, kind, allowed_areas, tti_wire_answer_timeout_ms(&s->desc)));
}

/* Sends m with areas, then receives the answer into m with the areas allowed_areas. */
static tutti_status send_request(tti_server *s, tti_wire_message *m, unsigned areas,
                                 unsigned allowed_areas) {
    int64_t kind = m->kind;
    TTI_TRY(send_message(s, m, areas));
    return receive_message(s, m, kind, allowed_areas);
}

/* ---- copies ---- */

float *tti_client_area(tti_server *s, int area) {
    return tti_channel_area(s->client->channel, area);
}

static void pack_own(tti_exec *x, float *const *partials, int n_partials) {
    tti_server *s = tti_exec_server(x);
    copy_partials(x, tti_client_area(s, TTI_WIRE_GRADS), partials, n_partials,
                  (tti_range){0, s->n_own}, s->desc.exec.wire, false);
}

/* ---- the calls ---- */

tutti_status tti_client_open(tti_server *s, int64_t first, int64_t last) {
    tti_wire_message m = {.kind = TTI_WIRE_OPEN, .number = {first, last}};
    return send_request(s, &m, 0, 0);
}

tutti_status tti_client_stop(tti_server *s) {
    tti_wire_message m = {.kind = TTI_WIRE_STOP};
    return send_request(s, &m, 0, 0);
}

tutti_status tti_client_lease(tti_server *s, tti_lease *lease) {
    tti_wire_message m = {.kind = TTI_WIRE_LEASE};
    *lease = (tti_lease){0};
    TTI_TRY(send_request(s, &m, 0, 1u << TTI_WIRE_PARAMS));
    if (!m.number[0]) return TUTTI_OK;
    if (m.number[1] < 0 || m.number[2] < 0)
        return tti_fail(TUTTI_E_MISMATCH, "parameter server: batch %lld, version %lld",
                        (long long)m.number[1], (long long)m.number[2]);
    *lease = (tti_lease){.any = true, .batch = m.number[1], .version = m.number[2]};
    memcpy(&lease->loss_scale, &m.number[3], sizeof lease->loss_scale);
    return TUTTI_OK;
}

/* Copies only the numbers, since a client does not use the other fields. */
static tti_arrival arrival_of(const tti_arrival *applied) {
    return (tti_arrival){.step = applied->step,
                         .batch = applied->batch,
                         .version = applied->version,
                         .worker = applied->worker,
                         .n_rows = applied->n_rows,
                         .lr = applied->lr,
                         .loss_scale = applied->loss_scale,
                         .wait_ns = applied->wait_ns,
                         .result = {.loss_sum = applied->result.loss_sum,
                                    .count = applied->result.count,
                                    .correct = applied->result.correct,
                                    .metrics = applied->result.metrics,
                                    .grad_norm = applied->result.grad_norm,
                                    .params_hash = applied->result.params_hash,
                                    .skipped = applied->result.skipped,
                                    .bubble = applied->result.bubble,
                                    .compute_ns = applied->result.compute_ns,
                                    .update_ns = applied->result.update_ns}};
}

tutti_status tti_client_push_gradient(tti_server *s, tti_exec *x, const tti_push *b,
                                      tti_arrival *out) {
    tti_wire_message m = {.kind = TTI_WIRE_GRADIENT, .number = {b->n_own_rows}};
    bool carries = !s->keys && !b->result.skipped;
    m.more.arrival = (tti_arrival){.n_rows = b->n_rows,
                                   .loss_scale = b->step.loss_scale,
                                   .wait_ns = b->wait_ns,
                                   .result = b->result};
    if (carries) pack_own(x, b->partials, b->n_partials);
    TTI_TRY(send_request(s, &m, carries ? 1u << TTI_WIRE_GRADS : 0, 0));
    *out = arrival_of(&m.more.arrival);
    return TUTTI_OK;
}

tutti_status tti_client_pull(tti_server *s, int64_t *n_updates) {
    tti_wire_message m = {.kind = TTI_WIRE_PULL};
    TTI_TRY(send_request(s, &m, 0, 1u << TTI_WIRE_PARAMS | 1u << TTI_WIRE_EMA));
    *n_updates = m.number[0];
    return TUTTI_OK;
}

bool tti_client_leave(tti_server *s, const char *why) {
    tti_wire_message m = {.kind = TTI_WIRE_LEAVE};
    snprintf(m.more.text, sizeof m.more.text, "%s", why);
    s->client->has_left = send_request(s, &m, 0, 0) == TUTTI_OK && m.number[0];
    return s->client->has_left;
}

bool tti_client_has_left(const tti_server *s) { return s->client->has_left; }

tutti_status tti_client_watch(tti_server *s, int64_t *n_updates, bool *over) {
    tti_wire_message m = {.kind = TTI_WIRE_WATCH, .number = {*n_updates}};
    TTI_TRY(send_request(s, &m, 0, 0));
    *n_updates = m.number[0];
    *over = m.number[1];
    return TUTTI_OK;
}

tutti_status tti_client_combine(tti_server *s, tti_combine_op op, int64_t *values, int n,
                                tti_members *members) {
    tti_wire_message m = {.kind = TTI_WIRE_COMBINE, .number = {n, op}};
    TTI_ASSERT(n >= 0 && n <= TTI_COMBINE_VALUES);
    for (int i = 0; i < n; i++) m.more.values[i] = values[i];
    TTI_TRY(send_request(s, &m, 0, 0));
    if (m.number[0] != n)
        return tti_fail(TUTTI_E_MISMATCH,
                        "parameter server: the reply does not have as many values as the request");
    for (int i = 0; i < n; i++) values[i] = m.more.values[i];
    tti_wire_get_members(&m, members);
    return TUTTI_OK;
}

tutti_status tti_server_report_error(tti_server *s, const char *text) {
    if (s->client) {
        /* Answers to earlier requests may arrive first. */
        tti_wire_message m = {.kind = TTI_WIRE_REPORT};
        snprintf(m.more.text, sizeof m.more.text, "%s", text);
        TTI_TRY(send_message(s, &m, 0));
        m.kind = TTI_WIRE_NONE;
        (void)tti_fail(TUTTI_E_PEER, "%s", text);
        return record_failure(s, &m, receive_cause(s, &m, TUTTI_E_PEER));
    }
    pthread_mutex_lock(&s->mutex);
    tti_server_fail(s, TUTTI_E_PEER, text);
    tutti_status st = tti_fail(s->cause, "%s", s->error);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* Sends the last message of a failed worker, unless the server failed. */
void tti_client_abort(tti_server *s, tutti_status status, const char *text) {
    tti_wire_message m;
    char kept[4096];
    if (s->client->failed) return;
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    tti_wire_fail(&m, status, text);
    s->client->failed = true;
    tutti_status st = tti_wire_send(s->client->channel, &m, 0);
    tti_fail(st == TUTTI_OK ? TUTTI_E_INTERNAL : st, "%s", kept);
}

/* ---- connecting and disconnecting ---- */

bool tti_client_close(tti_server *s) {
    tti_wire_message m = {.kind = TTI_WIRE_DISCONNECT};
    if (!s->client) return true;
    bool in_order = !s->client->failed && !s->client->refused;
    if (in_order && tti_wire_send(s->client->channel, &m, 0))
        tti_clear_error(); /* the server disconnected first */
    tti_channel_close(s->client->channel);
    free(s->client);
    s->client = NULL;
    return in_order;
}

tutti_status tti_client_begin(tti_server *s, tti_channel *channel) {
    s->client = calloc(1, sizeof *s->client);
    if (!s->client) {
        tti_channel_close(channel);
        return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    }
    s->client->channel = channel;
    return TUTTI_OK;
}

/* ---- the client of a server that spans several processes ---- */

/* A worker sends a request to all range servers before it waits for an answer, so that they work
 * concurrently. It reports a lost range server to the first process, which knows the original
 * cause. */

struct tti_keys {
    const tti_server_desc *desc;
    int first, n;   /* ranges first .. n-1; range 0 belongs to the queue if first is 1 */
    int model_rank; /* model rank of the owner; 0: the ranges divide the whole model */
    tti_channel **range_server; /* [n], owned; NULL: for the first process and this one */
};

/* NULL: out of memory. */
static tti_keys *new_keys(const tti_server_desc *desc, int n) {
    tti_keys *k = calloc(1, sizeof *k);
    tti_channel **range_server = calloc((size_t)n, sizeof(tti_channel *));
    if (!k || !range_server) {
        free(k);
        free(range_server);
        return NULL;
    }
    *k = (tti_keys){.desc = desc, .n = n, .range_server = range_server};
    return k;
}

tti_keys *tti_keys_create(const tti_server_desc *desc, tti_channel *const *channels) {
    tti_keys *k = new_keys(desc, tti_server_n_ranges(desc));
    if (!k) return NULL;
    k->first = 1;
    for (int r = 0; r < k->n; r++) k->range_server[r] = channels[r];
    return k;
}

tti_keys *tti_keys_create_for_model_rank(const tti_server_desc *desc, int model_rank,
                                         tti_channel *channel) {
    tti_keys *k = new_keys(desc, 1);
    if (!k) return NULL;
    k->model_rank = model_rank;
    k->range_server[0] = channel;
    return k;
}

void tti_keys_close(tti_keys *k) {
    for (int r = 0; k && r < k->n; r++) tti_channel_close(k->range_server[r]);
    if (k) free(k->range_server);
    free(k);
}

/* ---- request and answer ---- */

/* Returns the failure after a range server is lost, which ends the run. The first process may know
 * the cause. */
static tutti_status fail_range(tti_server *s, int r) {
    const tti_keys *k = s->keys;
    char text[512], why[400];
    snprintf(why, sizeof why, "%s", tutti_last_error());
    if (k->model_rank > 0)
        snprintf(text, sizeof text,
                 "parameter server: rank %d, which owns its part of the model: %s", k->model_rank,
                 why);
    else
        snprintf(text, sizeof text, "parameter server: rank %d, which owns range %d of %d: %s", r,
                 r, k->n, why);
    return tti_server_report_error(s, text);
}

static tutti_status ask_range(tti_server *s, int r, const tti_wire_message *m, unsigned areas) {
    tutti_status st = tti_wire_send(s->keys->range_server[r], m, areas);
    return st == TUTTI_OK ? st : fail_range(s, r);
}

static tutti_status receive_from_range(tti_server *s, int r, int64_t kind, unsigned allowed_areas,
                                       tti_wire_message *m) {
    const tti_keys *k = s->keys;
    int timeout_ms = tti_wire_answer_timeout_ms(k->desc);
    tutti_status st =
        tti_wire_recv(k->range_server[r], m, allowed_areas, timeout_ms, &k->desc->watch);
    if (st == TUTTI_OK && m->kind == kind) return st;
    if (st != TUTTI_OK || m->kind != TTI_WIRE_FAIL) return fail_range(s, r);
    return tti_server_report_error(s, m->more.text);
}

/* ---- gradients ---- */

tutti_status tti_keys_push(tti_server *s, tti_exec *x, float *const *partials, int n_partials) {
    tti_keys *k = s->keys;
    tti_wire_message m = {.kind = TTI_WIRE_PUSH};
    if (!k) return TUTTI_OK;
    if (s->client) {
        pack_own(x, partials, n_partials);
        TTI_TRY(send_message(s, &m, 1u << TTI_WIRE_GRADS));
    }
    for (int r = k->first; r < k->n; r++) {
        bool is_own = !k->range_server[r];
        tti_range keys = tti_server_range(k->desc, r);
        if (is_own) {
            copy_partials(x, tti_range_server_grads(s->range_server), partials, n_partials, keys,
                          TUTTI_F32, true);
            tti_range_server_push(s->range_server);
        } else {
            void *area = tti_channel_area(k->range_server[r], TTI_WIRE_GRADS);
            copy_partials(x, area, partials, n_partials, keys, s->desc.exec.wire, false);
            TTI_TRY(ask_range(s, r, &m, 1u << TTI_WIRE_GRADS));
        }
    }
    for (int r = k->first; r < k->n; r++)
        if (k->range_server[r]) TTI_TRY(receive_from_range(s, r, TTI_WIRE_PUSH, 0, &m));
    return s->client ? receive_message(s, &m, TTI_WIRE_PUSH, 0) : TUTTI_OK;
}

/* ---- parameters ---- */

/* Copies the parameters of keys, and their averages if they are requested and exist. */
static void copy_keys(tti_exec *x, tti_range keys, const float *const from[2], float *params,
                      float *ema) {
    tti_server_copy(x, params + keys.first, from[0], keys.last - keys.first);
    if (ema && from[1]) tti_server_copy(x, ema + keys.first, from[1], keys.last - keys.first);
}

tutti_status tti_keys_pull(tti_server *s, tti_exec *x, int64_t version, float *params, float *ema) {
    enum { AREAS = 1u << TTI_WIRE_PARAMS | 1u << TTI_WIRE_EMA };
    tti_keys *k = s->keys;
    tti_wire_message m = {.kind = TTI_WIRE_KEYS, .number = {version, ema != NULL}};
    tti_wire_message m0 = {.kind = TTI_WIRE_KEYS, .number = {0, ema != NULL}};
    const float *from[2];
    if (!k) return TUTTI_OK;
    for (int r = k->first; r < k->n; r++)
        if (k->range_server[r]) TTI_TRY(ask_range(s, r, &m, 0));
    if (s->client) TTI_TRY(send_message(s, &m0, 0));
    for (int r = k->first; r < k->n; r++) {
        tti_channel *channel = k->range_server[r];
        if (channel) {
            TTI_TRY(receive_from_range(s, r, TTI_WIRE_KEYS, AREAS, &m));
            from[0] = tti_channel_area(channel, TTI_WIRE_PARAMS);
            from[1] = ema ? tti_channel_area(channel, TTI_WIRE_EMA) : NULL;
        } else if (tti_range_server_pull(s->range_server, version, &from[0], &from[1]) != TUTTI_OK)
            return tti_server_report_error(s, tutti_last_error());
        copy_keys(x, tti_server_range(k->desc, r), from, params, ema);
    }
    if (!s->client) return TUTTI_OK;
    TTI_TRY(receive_message(s, &m0, TTI_WIRE_KEYS, AREAS));
    from[0] = tti_client_area(s, TTI_WIRE_PARAMS);
    from[1] = ema ? tti_client_area(s, TTI_WIRE_EMA) : NULL;
    copy_keys(x, (tti_range){0, s->n_own}, from, params, ema);
    return TUTTI_OK;
}

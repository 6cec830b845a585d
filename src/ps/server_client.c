/* server_client.c - the client of a server in another process.
 *
 * Each call is a request and its answer.  Parameters, gradients and averages are in the channel's
 * areas (server_copies.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/channel.h"
#include "exec/device/device.h"
#include "ps/server_ranges.h"

struct tti_client {
    tti_channel *channel;
    bool has_left;
    bool refused; /* an answer was a failure: the server may not know yet that it is the run's */
    bool failed;  /* the connection is lost */
};

/* ---- question and answer ---- */

/* The server went away: it may have said why, or is about to, before the connection ends. */
static tutti_status receive_why(tti_server *s, tti_wire_message *m, tutti_status st) {
    int timeout_ms = st == TUTTI_E_PEER ? s->desc.timeout_ms : 0;
    tti_client *r = s->client;
    char text[512];
    size_t n_bytes = sizeof *m;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    for (; tti_channel_recv(r->channel, m, &n_bytes, ~0u, timeout_ms) == TUTTI_OK;
         n_bytes = sizeof *m)
        if (tti_wire_check(m, n_bytes) == TUTTI_OK && m->kind == TTI_WIRE_FAIL)
            return tti_fail(TUTTI_E_PEER, "%s", m->more.text);
    if (st == TUTTI_E_PEER)
        return tti_fail(st, "parameter server: its process, rank 0, has ended (%s)", text);
    return tti_fail(st, "parameter server: %s", text);
}

static tutti_status answer_of(tti_server *s, tti_wire_message *m, int64_t kind, unsigned may_carry,
                              int timeout_ms) {
    tutti_status st = tti_wire_recv(s->client->channel, m, may_carry, timeout_ms, &s->desc.watch);
    if (st != TUTTI_OK) return receive_why(s, m, st);
    if (m->kind == kind) return TUTTI_OK;
    if (m->kind != TTI_WIRE_FAIL)
        return tti_fail(TUTTI_E_MISMATCH, "parameter server: an answer to another question");
    return tti_fail(tti_wire_status(m), "%s", m->more.text);
}

/* st is the result of sending: records a lost connection. */
static tutti_status note(tti_server *s, const tti_wire_message *m, tutti_status st) {
    if (st != TUTTI_OK && m->kind == TTI_WIRE_FAIL)
        s->client->refused = true;
    else if (st != TUTTI_OK)
        s->client->failed = true;
    return st;
}

static tutti_status send_message(tti_server *s, tti_wire_message *m, unsigned areas) {
    tutti_status st = tti_wire_send(s->client->channel, m, areas);
    return st == TUTTI_OK ? st : note(s, m, receive_why(s, m, st));
}

static tutti_status receive_message(tti_server *s, tti_wire_message *m, int64_t kind,
                                    unsigned may_carry) {
    return note(s, m, answer_of(s, m, kind, may_carry, tti_wire_patience_ms(&s->desc)));
}

/* Sends m with areas; m becomes the answer, with the areas that it may carry. */
static tutti_status ask(tti_server *s, tti_wire_message *m, unsigned areas, unsigned may_carry) {
    int64_t kind = m->kind;
    TTI_TRY(send_message(s, m, areas));
    return receive_message(s, m, kind, may_carry);
}

/* ---- copies ---- */

/* The part of a flat array that the first process holds. */
static size_t n_own(const tti_exec *x) { return tti_exec_server(x)->n_own; }

static void pack_own(tti_exec *x, float *const *pieces, int n_pieces) {
    void *area = tti_channel_area(tti_exec_server(x)->client->channel, TTI_WIRE_GRADS);
    tti_server_pack(x, area, pieces, n_pieces, (tti_range){0, n_own(x)});
}

float *tti_client_area(tti_server *s, int area) {
    return tti_channel_area(s->client->channel, area);
}

/* ---- range 0, as one of several ---- */

tutti_status tti_client_push(tti_server *s, tti_exec *x, float *const *pieces, int n_pieces) {
    tti_wire_message m = {.kind = TTI_WIRE_PUSH};
    pack_own(x, pieces, n_pieces);
    return send_message(s, &m, 1u << TTI_WIRE_GRADS);
}

tutti_status tti_client_pushed(tti_server *s) {
    tti_wire_message m;
    return receive_message(s, &m, TTI_WIRE_PUSH, 0);
}

tutti_status tti_client_ask_keys(tti_server *s, bool with_ema) {
    tti_wire_message m = {.kind = TTI_WIRE_KEYS, .number = {0, with_ema}};
    return send_message(s, &m, 0);
}

tutti_status tti_client_hear_keys(tti_server *s, tti_exec *x, float *params, float *ema) {
    tti_wire_message m;
    TTI_TRY(receive_message(s, &m, TTI_WIRE_KEYS, 1u << TTI_WIRE_PARAMS | 1u << TTI_WIRE_EMA));
    tti_server_copy(x, params, tti_channel_area(s->client->channel, TTI_WIRE_PARAMS), n_own(x));
    if (!ema) return TUTTI_OK;
    tti_server_copy(x, ema, tti_channel_area(s->client->channel, TTI_WIRE_EMA), n_own(x));
    return TUTTI_OK;
}

/* ---- the calls ---- */

tutti_status tti_client_open(tti_server *s, int64_t first, int64_t last) {
    tti_wire_message m = {.kind = TTI_WIRE_OPEN, .number = {first, last}};
    return ask(s, &m, 0, 0);
}

tutti_status tti_client_stop(tti_server *s) {
    tti_wire_message m = {.kind = TTI_WIRE_STOP};
    return ask(s, &m, 0, 0);
}

tutti_status tti_client_lease(tti_server *s, tti_lease *lease) {
    tti_wire_message m = {.kind = TTI_WIRE_LEASE};
    *lease = (tti_lease){0};
    TTI_TRY(ask(s, &m, 0, 1u << TTI_WIRE_PARAMS));
    if (!m.number[0]) return TUTTI_OK;
    if (m.number[1] < 0 || m.number[2] < 0)
        return tti_fail(TUTTI_E_MISMATCH, "parameter server: batch %lld, version %lld",
                        (long long)m.number[1], (long long)m.number[2]);
    *lease = (tti_lease){.any = true, .batch = m.number[1], .version = m.number[2]};
    memcpy(&lease->loss_scale, &m.number[3], sizeof lease->loss_scale);
    return TUTTI_OK;
}

/* Only the numbers: the other fields are not needed for client arrivals. */
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
    if (carries) pack_own(x, b->pieces, b->n_pieces);
    TTI_TRY(ask(s, &m, carries ? 1u << TTI_WIRE_GRADS : 0, 0));
    *out = arrival_of(&m.more.arrival);
    return TUTTI_OK;
}

tutti_status tti_client_pull(tti_server *s, int64_t *n_updates) {
    tti_wire_message m = {.kind = TTI_WIRE_PULL};
    TTI_TRY(ask(s, &m, 0, 1u << TTI_WIRE_PARAMS | 1u << TTI_WIRE_EMA));
    *n_updates = m.number[0];
    return TUTTI_OK;
}

bool tti_client_leave(tti_server *s, const char *why) {
    tti_wire_message m = {.kind = TTI_WIRE_LEAVE};
    snprintf(m.more.text, sizeof m.more.text, "%s", why);
    s->client->has_left = ask(s, &m, 0, 0) == TUTTI_OK && m.number[0];
    return s->client->has_left;
}

bool tti_client_has_left(const tti_server *s) { return s->client->has_left; }

tutti_status tti_client_watch(tti_server *s, int64_t *n_updates, bool *over) {
    tti_wire_message m = {.kind = TTI_WIRE_WATCH, .number = {*n_updates}};
    TTI_TRY(ask(s, &m, 0, 0));
    *n_updates = m.number[0];
    *over = m.number[1];
    return TUTTI_OK;
}

tutti_status tti_client_combine(tti_server *s, tti_combine_op op, int64_t *values, int n,
                                tti_members *members) {
    tti_wire_message m = {.kind = TTI_WIRE_COMBINE, .number = {n, op}};
    TTI_ASSERT(n >= 0 && n <= TTI_COMBINE_VALUES);
    for (int i = 0; i < n; i++) m.more.values[i] = values[i];
    TTI_TRY(ask(s, &m, 0, 0));
    if (m.number[0] != n)
        return tti_fail(TUTTI_E_MISMATCH, "parameter server: numbers of another meeting");
    for (int i = 0; i < n; i++) values[i] = m.more.values[i];
    memcpy(&members->all, &m.number[1], sizeof members->all);
    memcpy(&members->able, &m.number[2], sizeof members->able);
    return TUTTI_OK;
}

/* Answers to earlier requests may arrive first. */
static tutti_status ask_why(tti_server *s, const char *text) {
    tti_wire_message m = {.kind = TTI_WIRE_WHY};
    snprintf(m.more.text, sizeof m.more.text, "%s", text);
    TTI_TRY(send_message(s, &m, 0));
    m.kind = TTI_WIRE_NONE;
    (void)tti_fail(TUTTI_E_PEER, "%s", text);
    return note(s, &m, receive_why(s, &m, TUTTI_E_PEER));
}

tutti_status tti_server_why(tti_server *s, const char *text) {
    if (s->client) return ask_why(s, text);
    pthread_mutex_lock(&s->mutex);
    tti_server_fail(s, TUTTI_E_PEER, text);
    tutti_status st = tti_fail(s->cause, "%s", s->error);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

/* The last word of a worker that fails, unless the server was it that failed. */
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

/* ---- coming and going ---- */

bool tti_client_close(tti_server *s) {
    tti_wire_message m = {.kind = TTI_WIRE_BYE};
    if (!s->client) return true;
    bool in_order = !s->client->failed && !s->client->refused;
    if (in_order && tti_wire_send(s->client->channel, &m, 0))
        tti_clear_error(); /* it has gone first */
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

/* server_keys.c - the client of a server that spans several processes.
 *
 * All servers are asked before any answer is awaited, so that they answer concurrently.  A server
 * that fails is reported to the first process, which knows the cause that ends the run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ps/server_ranges.h"

struct tti_keys {
    const tti_server_desc *desc;
    int first, n; /* ranges first .. n-1; range 0, where it is not one, is the queue's affair */
    int part;     /* of a model; 0: ranges are of all of it */
    tti_channel *range_server[TTI_MAX_RANKS]; /* [n]; NULL: the first, or of this process */
};

tti_keys *tti_keys_create(const tti_server_desc *desc, tti_channel *const *channels) {
    tti_keys *k = calloc(1, sizeof *k);
    if (!k) return NULL;
    *k = (tti_keys){.desc = desc, .first = 1, .n = tti_server_n_ranges(desc)};
    for (int r = 0; r < k->n; r++) k->range_server[r] = channels[r];
    return k;
}

tti_keys *tti_keys_create_for_part(const tti_server_desc *desc, int part, tti_channel *channel) {
    tti_keys *k = calloc(1, sizeof *k);
    if (k) *k = (tti_keys){.desc = desc, .n = 1, .part = part, .range_server = {channel}};
    return k;
}

void tti_keys_close(tti_keys *k) {
    for (int r = 0; k && r < k->n; r++) tti_channel_close(k->range_server[r]);
    free(k);
}

/* ---- question and answer ---- */

/* A range server is not there: the run's failure, which the first process may know better. */
static tutti_status lose(tti_server *s, int r) {
    const tti_keys *k = tti_server_keys(s);
    char text[512], why[400];
    snprintf(why, sizeof why, "%s", tutti_last_error());
    if (k->part > 0)
        snprintf(text, sizeof text, "parameter server: rank %d, which holds its part: %s", k->part,
                 why);
    else
        snprintf(text, sizeof text, "parameter server: rank %d, which holds range %d of %d: %s", r,
                 r, k->n, why);
    return tti_server_why(s, text);
}

static tutti_status ask(tti_server *s, int r, const tti_wire_message *m, unsigned areas) {
    tutti_status st = tti_wire_send(tti_server_keys(s)->range_server[r], m, areas);
    return st == TUTTI_OK ? st : lose(s, r);
}

static tutti_status receive_message(tti_server *s, int r, int64_t kind, unsigned may_carry,
                                    tti_wire_message *m) {
    const tti_keys *k = tti_server_keys(s);
    int timeout_ms = tti_wire_patience_ms(k->desc);
    tutti_status st = tti_wire_recv(k->range_server[r], m, may_carry, timeout_ms, &k->desc->watch);
    if (st == TUTTI_OK && m->kind == kind) return st;
    if (st != TUTTI_OK || m->kind != TTI_WIRE_FAIL) return lose(s, r);
    return tti_server_why(s, m->more.text);
}

/* ---- gradients ---- */

tutti_status tti_keys_push(tti_server *s, tti_exec *x, float *const *pieces, int n_pieces) {
    tti_keys *k = tti_server_keys(s);
    tti_wire_message m = {.kind = TTI_WIRE_PUSH};
    if (!k) return TUTTI_OK;
    if (tti_server_is_client(s)) TTI_TRY(tti_client_push(s, x, pieces, n_pieces));
    for (int r = k->first; r < k->n; r++) {
        bool is_own = !k->range_server[r];
        tti_range keys = tti_server_range(k->desc, r);
        if (is_own) {
            tti_server_copy_sum(x, tti_range_server_grads(tti_server_own_range(s)), pieces,
                                n_pieces, keys);
            tti_range_server_push(tti_server_own_range(s));
        } else {
            void *area = tti_channel_area(k->range_server[r], TTI_WIRE_GRADS);
            tti_server_pack(x, area, pieces, n_pieces, keys);
            TTI_TRY(ask(s, r, &m, 1u << TTI_WIRE_GRADS));
        }
    }
    for (int r = k->first; r < k->n; r++)
        if (k->range_server[r]) TTI_TRY(receive_message(s, r, TTI_WIRE_PUSH, 0, &m));
    return tti_server_is_client(s) ? tti_client_pushed(s) : TUTTI_OK;
}

/* ---- parameters ---- */

static tutti_status take_own(tti_server *s, tti_exec *x, int64_t version, tti_range keys,
                             float *params, float *ema) {
    const float *from, *from_ema;
    tutti_status st = tti_range_server_pull(tti_server_own_range(s), version, &from, &from_ema);
    if (st != TUTTI_OK) return tti_server_why(s, tutti_last_error());
    tti_server_copy(x, params + keys.first, from, keys.last - keys.first);
    if (ema && from_ema) tti_server_copy(x, ema + keys.first, from_ema, keys.last - keys.first);
    return TUTTI_OK;
}

static tutti_status take_from(tti_server *s, int r, tti_exec *x, int64_t version, float *params,
                              float *ema) {
    tti_keys *k = tti_server_keys(s);
    tti_range keys = tti_server_range(k->desc, r);
    tti_wire_message m;
    if (!k->range_server[r]) return take_own(s, x, version, keys, params, ema);
    TTI_TRY(receive_message(s, r, TTI_WIRE_KEYS, 1u << TTI_WIRE_PARAMS | 1u << TTI_WIRE_EMA, &m));
    tti_server_copy(x, params + keys.first, tti_channel_area(k->range_server[r], TTI_WIRE_PARAMS),
                    keys.last - keys.first);
    if (ema)
        tti_server_copy(x, ema + keys.first, tti_channel_area(k->range_server[r], TTI_WIRE_EMA),
                        keys.last - keys.first);
    return TUTTI_OK;
}

tutti_status tti_keys_pull(tti_server *s, tti_exec *x, int64_t version, float *params, float *ema) {
    tti_keys *k = tti_server_keys(s);
    tti_wire_message m = {.kind = TTI_WIRE_KEYS, .number = {version, ema != NULL}};
    if (!k) return TUTTI_OK;
    for (int r = k->first; r < k->n; r++)
        if (k->range_server[r]) TTI_TRY(ask(s, r, &m, 0));
    if (tti_server_is_client(s)) TTI_TRY(tti_client_ask_keys(s, ema != NULL));
    for (int r = k->first; r < k->n; r++) TTI_TRY(take_from(s, r, x, version, params, ema));
    return tti_server_is_client(s) ? tti_client_hear_keys(s, x, params, ema) : TUTTI_OK;
}

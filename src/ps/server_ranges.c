/* server_ranges.c - the first process of a server of several: sends orders to the range servers.
 *
 * Only the server's thread communicates with them, one request after the other, and it sends each
 * order to all of them before it awaits any answer. */
#include "ps/server_ranges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/worker/worker.h"

struct tti_ranges {
    const tti_server_desc *desc;
    int n;
    bool is_lost;
    char why[768];                            /* it is lost */
    tti_channel *range_server[TTI_MAX_RANKS]; /* [n], none for the first */
    int *first_update;                        /* [n + 1]: blocks of range r are first .. next-1 */
    bool are_parts;                           /* not ranges of one plan: each has its own plan */
};

/* ---- create and close ---- */

static void find_updates(tti_ranges *g) {
    const tti_plan *plan = g->desc->exec.plan;
    int at = 0;
    for (int r = 0; r < g->n; r++) {
        size_t last = tti_server_range(g->desc, r).last;
        g->first_update[r] = at;
        while (at < plan->n_updates && plan->updates[at].first < last) at++;
    }
    g->first_update[g->n] = plan->n_updates;
}

tti_ranges *tti_ranges_create(const tti_server_desc *desc, int n, tti_channel *const *channels) {
    tti_ranges *g = calloc(1, sizeof *g);
    int *first_update = calloc((size_t)n + 1, sizeof *first_update);
    if (!g || !first_update) {
        free(g);
        free(first_update);
        return NULL;
    }
    *g = (tti_ranges){.desc = desc, .n = n, .first_update = first_update};
    g->are_parts = n != tti_server_n_ranges(desc);
    for (int r = 1; r < n; r++) g->range_server[r] = channels[r];
    if (!g->are_parts) find_updates(g);
    return g;
}

void tti_ranges_close(tti_ranges *g) {
    tti_wire_message m = {.kind = TTI_WIRE_BYE};
    char kept[4096]; /* the original cause of the end, not its consequences */
    if (!g) return;
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    tutti_status st = TUTTI_OK;
    for (int r = 1; r < g->n; r++) {
        st |= tti_wire_send(g->range_server[r], &m, 0);
        tti_channel_close(g->range_server[r]);
    }
    if (st != TUTTI_OK) tti_fail(st, "%s", kept);
    free(g->first_update);
    free(g);
}

bool tti_ranges_is_lost(const tti_ranges *g) { return g && g->is_lost; }

/* ---- orders and answers ---- */

/* From now on nothing is executed, because of the last failure. */
static void note_loss(tti_ranges *g) {
    if (!g->is_lost) snprintf(g->why, sizeof g->why, "%s", tutti_last_error());
    g->is_lost = true;
}

static tutti_status fail_if_lost(const tti_ranges *g) {
    return g->is_lost ? tti_fail(TUTTI_E_PEER, "%s", g->why) : TUTTI_OK;
}

/* The text of the last failure, by the range server that it is of. */
static tutti_status lose(tti_ranges *g, int r) {
    char text[512];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tutti_status st = tti_fail(
        TUTTI_E_PEER, "parameter server: rank %d, which holds %s %d of %d, does not go on: %s", r,
        g->are_parts ? "part" : "range", r, g->n, text);
    note_loss(g);
    return st;
}

static tutti_status order(tti_ranges *g, int r, const tti_wire_message *m, unsigned areas) {
    tutti_status st = tti_wire_send(g->range_server[r], m, areas);
    return st == TUTTI_OK ? st : lose(g, r);
}

static tutti_status order_all(tti_ranges *g, const tti_wire_message *m) {
    TTI_TRY(fail_if_lost(g));
    for (int r = 1; r < g->n; r++) TTI_TRY(order(g, r, m, 0));
    return TUTTI_OK;
}

/* A message of that kind, or what its sender failed of. */
static tutti_status receive_message(tti_ranges *g, int r, int64_t kind, unsigned may_carry,
                                    tti_wire_message *m) {
    int timeout_ms = g->are_parts ? g->desc->timeout_ms : tti_wire_patience_ms(g->desc);
    tutti_status st = tti_wire_recv(g->range_server[r], m, may_carry, timeout_ms, &g->desc->watch);
    if (st == TUTTI_OK && m->kind != kind && m->kind != TTI_WIRE_FAIL)
        st = tti_fail(TUTTI_E_MISMATCH, "an answer to another question");
    if (st != TUTTI_OK) return lose(g, r);
    if (m->kind == kind) return TUTTI_OK;
    return tti_fail(tti_wire_status(m), "%s", m->more.text);
}

tutti_status tti_ranges_copy(tti_ranges *g, const tti_request *r) {
    if (!g) return TUTTI_OK;
    tti_wire_message m = {.kind = TTI_WIRE_COPY,
                          .number = {r->worker, r->arrival.version, r->ema != NULL}};
    return order_all(g, &m);
}

tutti_status tti_ranges_update(tti_ranges *g, const tti_request *r, uint64_t workers) {
    if (!g) return TUTTI_OK;
    tti_wire_message m = {.kind = TTI_WIRE_UPDATE,
                          .number = {(int64_t)workers, r->step.n_rows},
                          .more.update = {.step = r->step.step,
                                          .lr = r->step.lr,
                                          .loss_scale = r->step.loss_scale,
                                          .inv_count = r->inv_count}};
    return order_all(g, &m);
}

static uint64_t hash_of_all(const tti_ranges *g, const uint64_t *hashes) {
    uint64_t sum = 0;
    if (g->are_parts) return tti_divided_join_hashes(hashes, g->n);
    for (int r = 0; r < g->n; r++) sum += hashes[r];
    return sum;
}

tutti_status tti_ranges_end_update(tti_ranges *g, uint64_t *hash) {
    uint64_t hashes[TTI_MAX_RANKS] = {*hash};
    tutti_status st = TUTTI_OK;
    if (!g) return st;
    for (int r = 1; r < g->n && !g->is_lost; r++) {
        tti_wire_message m;
        tutti_status own = receive_message(g, r, TTI_WIRE_UPDATE, 0, &m);
        if (own == TUTTI_OK)
            hashes[r] = (uint64_t)m.number[0];
        else if (st == TUTTI_OK || g->is_lost)
            st = own;
    }
    *hash = hash_of_all(g, hashes);
    return st;
}

/* ---- values of all blocks ---- */

static tutti_status join(tti_ranges *g, double *values, size_t n_each) {
    size_t n_bytes = (size_t)g->desc->exec.plan->n_updates * n_each * sizeof *values;
    tti_wire_message m = {.kind = TTI_WIRE_JOIN, .number = {(int64_t)n_each}};
    for (int r = 1; r < g->n; r++) {
        TTI_TRY(receive_message(g, r, TTI_WIRE_JOIN, 1u << TTI_WIRE_JOINED, &m));
        size_t first = (size_t)g->first_update[r] * n_each;
        size_t last = (size_t)g->first_update[r + 1] * n_each;
        const double *from = tti_channel_area(g->range_server[r], TTI_WIRE_JOINED);
        if (m.number[0] != (int64_t)n_each)
            return tti_fail(TUTTI_E_MISMATCH, "parameter server: rank %d adds other values", r);
        if (last > first) memcpy(values + first, from + first, (last - first) * sizeof *values);
    }
    for (int r = 1; r < g->n; r++) {
        memcpy(tti_channel_area(g->range_server[r], TTI_WIRE_JOINED), values, n_bytes);
        TTI_TRY(order(g, r, &m, 1u << TTI_WIRE_JOINED));
    }
    return TUTTI_OK;
}

tutti_status tti_ranges_join(tti_ranges *g, double *values, size_t n_each) {
    tutti_status st = join(g, values, n_each);
    if (st != TUTTI_OK) note_loss(g); /* some wait for a message that is never sent */
    return st;
}

/* ---- state ---- */

static tutti_status ask(tti_ranges *g, int r, tti_wire_message *m) {
    TTI_TRY(order(g, r, m, 0));
    return receive_message(g, r, TTI_WIRE_FETCH, 1u << TTI_WIRE_FETCHED, m);
}

static tutti_status fetch_from(tti_ranges *g, int r, int k, tti_range keys, float *to) {
    tti_range theirs = tti_server_range(g->desc, r);
    size_t first = TTI_MAX(keys.first, theirs.first), last = TTI_MIN(keys.last, theirs.last);
    for (size_t n; first < last; first += n) {
        n = TTI_MIN(last - first, (size_t)TTI_FETCH_ELEMS);
        tti_wire_message m = {.kind = TTI_WIRE_FETCH,
                              .number = {k, (int64_t)(first - theirs.first), (int64_t)n}};
        TTI_TRY(ask(g, r, &m));
        memcpy(to + (first - keys.first), tti_channel_area(g->range_server[r], TTI_WIRE_FETCHED),
               n * sizeof *to);
    }
    return TUTTI_OK;
}

tutti_status tti_ranges_fetch(tti_ranges *g, int k, tti_range keys, float *to) {
    TTI_TRY(fail_if_lost(g));
    for (int r = 1; r < g->n && !g->are_parts; r++) TTI_TRY(fetch_from(g, r, k, keys, to));
    return TUTTI_OK;
}

tutti_status tti_ranges_traffic(tti_ranges *g, int64_t *bytes) {
    if (!g) return TUTTI_OK;
    TTI_TRY(fail_if_lost(g));
    for (int r = 1; r < g->n; r++) {
        tti_wire_message m = {.kind = TTI_WIRE_FETCH, .number = {TTI_STATE_PARAMS, 0, 0}};
        TTI_TRY(ask(g, r, &m));
        bytes[r] = m.number[3];
    }
    return TUTTI_OK;
}

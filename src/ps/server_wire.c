/* server_wire.c - sizes, checks, sends and receives server messages. */
#include "ps/server_wire.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "comm/transport.h"

enum { HEAD_BYTES = offsetof(tti_wire_message, more), SLACK_MS = 10000 };

_Static_assert(sizeof(tti_wire_message) <= (size_t)TTI_CHANNEL_BYTES, "a channel holds it");

static bool has_count(const tti_wire_message *m) {
    return m->number[0] >= 0 && m->number[0] <= TTI_COMBINE_VALUES;
}

size_t tti_wire_bytes(const tti_wire_message *m) {
    switch (m->kind) {
        case TTI_WIRE_GRADIENT:
            return HEAD_BYTES + sizeof m->more.arrival;
        case TTI_WIRE_LEAVE:
        case TTI_WIRE_WHY:
        case TTI_WIRE_FAIL:
            return HEAD_BYTES + sizeof m->more.text;
        case TTI_WIRE_UPDATE:
            return HEAD_BYTES + sizeof m->more.update;
        case TTI_WIRE_COMBINE:
            return HEAD_BYTES + (has_count(m) ? (size_t)m->number[0] : 0) * sizeof(int64_t);
        default:
            return HEAD_BYTES;
    }
}

static bool makes_sense(const tti_wire_message *m) {
    const tti_arrival *a = &m->more.arrival;
    switch (m->kind) {
        case TTI_WIRE_OPEN:
            return m->number[0] >= 0 && m->number[1] >= m->number[0];
        case TTI_WIRE_GRADIENT:
            return m->number[0] >= 0 && a->n_rows >= m->number[0] && a->result.count >= 0 &&
                   isfinite(a->result.count) && isfinite(a->result.bubble) &&
                   isfinite(a->loss_scale) && a->loss_scale >= 0;
        case TTI_WIRE_COMBINE:
            return has_count(m);
        case TTI_WIRE_COPY:
            return m->number[0] >= 0 && m->number[0] < TTI_MAX_RANKS;
        case TTI_WIRE_FETCH:
            return m->number[1] >= 0 && m->number[2] >= 0;
        default:
            return true;
    }
}

tutti_status tti_wire_check(tti_wire_message *m, size_t n_bytes) {
    if (n_bytes < (size_t)HEAD_BYTES || m->kind <= TTI_WIRE_NONE || m->kind >= TTI_N_WIRE_KINDS ||
        n_bytes != tti_wire_bytes(m) || !makes_sense(m))
        return tti_fail(TUTTI_E_MISMATCH, "parameter server: %zu bytes that are no message of it",
                        n_bytes);
    if (m->kind == TTI_WIRE_LEAVE || m->kind == TTI_WIRE_WHY || m->kind == TTI_WIRE_FAIL)
        m->more.text[TTI_WIRE_TEXT - 1] = '\0';
    return TUTTI_OK;
}

tutti_status tti_wire_send(tti_channel *channel, const tti_wire_message *m, unsigned areas) {
    return tti_channel_send(channel, m, tti_wire_bytes(m), areas);
}

tutti_status tti_wire_recv(tti_channel *channel, tti_wire_message *m, unsigned may_carry,
                           int timeout_ms, const tti_phase_watch *watch) {
    size_t n_bytes = sizeof *m;
    if (watch) TTI_TRY(tti_channel_await(channel, timeout_ms, watch));
    TTI_TRY(tti_channel_recv(channel, m, &n_bytes, may_carry, timeout_ms));
    return tti_wire_check(m, n_bytes);
}

int tti_wire_patience_ms(const tti_server_desc *desc) {
    if (desc->answer_ms > 0) return desc->answer_ms;
    return TTI_MIN(desc->timeout_ms, INT32_MAX / 4) * 2 + SLACK_MS;
}

void tti_wire_fail(tti_wire_message *m, tutti_status status, const char *text) {
    *m = (tti_wire_message){.kind = TTI_WIRE_FAIL, .number = {(int64_t)status}};
    snprintf(m->more.text, sizeof m->more.text, "%s", text);
}

tutti_status tti_wire_status(const tti_wire_message *m) {
    bool known = m->number[0] > TUTTI_OK && m->number[0] < TUTTI_N_STATUS;
    return known ? (tutti_status)m->number[0] : TUTTI_E_PEER;
}

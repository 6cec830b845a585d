/* wait_clock.c - adds up the time of a wait by its reason, and writes it for timeout messages. */
#include "comm/wait_clock.h"

#include <stdio.h>

tti_wait_clock tti_wait_clock_begin(int timeout_ms, int phase_timeout_ms) {
    return (tti_wait_clock){.patience = tti_patience_begin(tti_now_ns()),
                            .timeout_ms = timeout_ms,
                            .phase_timeout_ms = phase_timeout_ms};
}

bool tti_wait_clock_look(tti_wait_clock *c, tti_delay delay) {
    int64_t limit_ms = delay.kind == TTI_DELAY_PHASE ? c->phase_timeout_ms : c->timeout_ms;
    c->kind = delay.kind;
    c->waited_ns[delay.kind] += tti_patience_look(&c->patience, tti_now_ns());
    return c->waited_ns[delay.kind] >= (limit_ms + delay.more_ms) * TTI_NS_PER_MS;
}

static const char *write_text(int64_t waited_ns, const char *key, int limit_ms,
                              char text[TTI_WAIT_TEXT_BYTES]) {
    snprintf(text, TTI_WAIT_TEXT_BYTES, "%lld ms (parallel.%s=%d)",
             (long long)(waited_ns / TTI_NS_PER_MS), key, limit_ms);
    return text;
}

const char *tti_wait_clock_text(const tti_wait_clock *c, char text[TTI_WAIT_TEXT_BYTES]) {
    if (c->kind == TTI_DELAY_PHASE)
        return write_text(c->waited_ns[c->kind], "phase_timeout_ms", c->phase_timeout_ms, text);
    return tti_waited_text(c->waited_ns[c->kind], c->timeout_ms, text);
}

const char *tti_waited_text(int64_t waited_ns, int timeout_ms, char text[TTI_WAIT_TEXT_BYTES]) {
    return write_text(waited_ns, "timeout_ms", timeout_ms, text);
}

const char *tti_wait_clock_reason(const tti_wait_clock *c) {
    return c->kind == TTI_DELAY_OUTAGE
               ? "; another host does not answer: the network is out, or that host is down"
               : "";
}

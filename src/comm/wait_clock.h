/* wait_clock.h - how long a wait for other ranks has lasted, by the reason for the delay.
 *
 * Each reason has its own limit, so that a rank that saves for minutes, or a network that is down
 * for seconds, does not reduce the limit of ordinary waits.  Not thread-safe. */
#ifndef TTI_COMM_WAIT_CLOCK_H
#define TTI_COMM_WAIT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/patience.h"
#include "comm/progress.h"

typedef enum tti_delay_kind {
    TTI_DELAY_NONE,   /* no known reason: timeout_ms */
    TTI_DELAY_PHASE,  /* a rank is in a long phase, or has not joined yet: phase_timeout_ms */
    TTI_DELAY_OUTAGE, /* another host does not answer: timeout_ms                           */
    TTI_N_DELAYS
} tti_delay_kind;

typedef struct tti_delay {
    tti_delay_kind kind;
    int more_ms; /* added to the limit: time until bytes lost in an outage have been sent again */
} tti_delay;

enum { TTI_WAIT_TEXT_BYTES = 96 };

typedef struct tti_wait_clock {
    tti_patience patience;
    int64_t waited_ns[TTI_N_DELAYS];
    tti_delay_kind kind; /* reason at the last look */
    int timeout_ms, phase_timeout_ms;
} tti_wait_clock;

tti_wait_clock tti_wait_clock_begin(int timeout_ms, int phase_timeout_ms);

/* The delay for a wait outside of calls. */
static inline tti_delay tti_delay_by(const tti_phase_watch *watch) {
    bool is_busy = watch->find_busy && watch->find_busy(watch->user, NULL);
    return (tti_delay){.kind = is_busy ? TTI_DELAY_PHASE : TTI_DELAY_NONE};
}

/* Counts the time since the last look as a wait of this kind.  Returns true if its limit is
 * exceeded. */
bool tti_wait_clock_look(tti_wait_clock *clock, tti_delay delay);

/* Writes the time for the message of a timeout: "10004 ms (parallel.timeout_ms=10000)".  Returns
 * text. */
const char *tti_wait_clock_text(const tti_wait_clock *clock, char text[TTI_WAIT_TEXT_BYTES]);

/* The same for a time that another clock measured. */
const char *tti_waited_text(int64_t waited_ns, int timeout_ms, char text[TTI_WAIT_TEXT_BYTES]);

/* The text that is appended to a timeout message after an outage; else "". */
const char *tti_wait_clock_reason(const tti_wait_clock *clock);

#endif /* TTI_COMM_WAIT_CLOCK_H */

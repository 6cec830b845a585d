/* patience.h - measures how long a waiter has really waited.
 *
 * A process that is stopped (SIGSTOP, a frozen cgroup, a suspended machine) receives nothing, and
 * would blame its peers for the silence if it used the clock alone.  So a waiter adds up the time
 * between its checks and counts at most LOOK_MS of each: time in which it could not check does not
 * count.  Not thread-safe. */
#ifndef TTI_BASE_PATIENCE_H
#define TTI_BASE_PATIENCE_H

#include <stdint.h>

#include "base/clock.h"

/* Waiters look more often than this. */
enum { TTI_PATIENCE_LOOK_MS = 400 };

typedef struct tti_patience {
    int64_t last_ns; /* when it looked last */
} tti_patience;

static inline tti_patience tti_patience_begin(int64_t now_ns) { return (tti_patience){now_ns}; }

/* The time to count for this look. */
static inline int64_t tti_patience_look(tti_patience *p, int64_t now_ns) {
    int64_t since_ns = now_ns - p->last_ns, most_ns = TTI_PATIENCE_LOOK_MS * TTI_NS_PER_MS;
    p->last_ns = now_ns;
    return since_ns < most_ns ? since_ns : most_ns;
}

#endif /* TTI_BASE_PATIENCE_H */

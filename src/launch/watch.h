/* watch.h - finds a rank that makes no progress, using only the flight recorder.
 *
 * A rank hangs if none of its operations, layers or steps changes for max(2 s, 5 median steps).
 * Time in which the watcher itself did not run, or the rank's threads waited for a core, is not
 * counted, because a busy machine makes ranks slow, not stuck.  A rank that only waits for others
 * is not reported as the cause.  In a declared phase a rank is reported as slow if the phase
 * exceeds its limit, or if an operation in it makes no progress and moves no bytes for the same
 * time.  Reports do not end the run. */
#ifndef TTI_LAUNCH_WATCH_H
#define TTI_LAUNCH_WATCH_H

#include "base/flight.h"
#include "base/str.h"

typedef struct tti_watch tti_watch;

typedef struct tti_watch_desc {
    tti_flight_memory *memory; /* borrowed */
    int min_ms;                /* shortest hang; 0: such that a hang is reported within 2000 */
    int first_ms;              /* the same before the first step has ended; 0: 20000 */
    int64_t phase_ms;          /* longest declared phase; 0: 300000 */
    void (*report)(void *user, const char *text); /* one line */
    void *user;
} tti_watch_desc;

enum { TTI_WATCH_EVERY_MS = 100 };

TUTTI_NODISCARD tutti_status tti_watch_create(const tti_watch_desc *desc, tti_watch **out);
void tti_watch_destroy(tti_watch *watch); /* NULL is a no-op */

/* Checks all ranks and reports new findings.  Call it every TTI_WATCH_EVERY_MS. */
void tti_watch_look(tti_watch *watch);

/* Checks from a separate thread until tti_watch_stop.  For ranks that are threads. */
TUTTI_NODISCARD tutti_status tti_watch_start(tti_watch *watch);
void tti_watch_stop(tti_watch *watch);

/* Appends the activity of the rank: "evaluating", "step 40, run conv2 (conv2d)", "between
 * operations". */
void tti_watch_describe(const tti_flight *f, tti_str *out);

#endif /* TTI_LAUNCH_WATCH_H */

/* watch.h - finds the rank that makes no progress, from the flight recorder alone.
 *
 * A rank hangs if none of its operations, layers or steps changes for max(2 s, 5 median steps).
 * Time in which the watcher itself could not look does not count, nor does time in which the
 * rank's threads waited for a core: a busy machine makes ranks slow, not stuck.  A rank that only
 * waits for others is not the culprit.  In a declared phase a rank is reported as slow: if the
 * phase is longer than its limit, or if an operation in it makes no progress and moves no bytes for
 * as long as a hang.  Reports end nothing. */
#ifndef TTI_LAUNCH_WATCH_H
#define TTI_LAUNCH_WATCH_H

#include "base/flight.h"
#include "base/str.h"

typedef struct tti_watch tti_watch;

typedef struct tti_watch_desc {
    tti_flight_memory *memory; /* borrowed */
    int min_ms;                /* shortest hang; 0: reported within 2000 */
    int first_ms;              /* the same before the first step has ended; 0: 20000 */
    int64_t phase_ms;          /* longest declared phase; 0: 300000 */
    void (*report)(void *user, const char *text); /* one line */
    void *user;
} tti_watch_desc;

enum { TTI_WATCH_EVERY_MS = 100 };

TUTTI_NODISCARD tutti_status tti_watch_create(const tti_watch_desc *desc, tti_watch **out);
void tti_watch_destroy(tti_watch *watch); /* takes NULL */

/* Looks at all ranks and reports what is new.  Call it every TTI_WATCH_EVERY_MS. */
void tti_watch_look(tti_watch *watch);

/* Looks from a thread of its own until tti_watch_stop.  For ranks that are threads. */
TUTTI_NODISCARD tutti_status tti_watch_start(tti_watch *watch);
void tti_watch_stop(tti_watch *watch);

/* Appends what the rank does: "evaluating", "step 40, run conv2 (conv2d)", "between operations".
 */
void tti_watch_describe(const tti_flight *f, tti_str *out);

#endif /* TTI_LAUNCH_WATCH_H */

/* lanes.h - the threads of one worker that compute shards in parallel.
 *
 * Thread 0 is the calling thread; the others are kept and pinned, so that a dispatch costs a
 * wake-up and not a new thread; destroy restores the affinity of the caller.  Waiting spins for
 * some microseconds (the cores belong to these threads), then sleeps. */
#ifndef TTI_EXEC_LANES_H
#define TTI_EXEC_LANES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct tti_lanes tti_lanes;
typedef void (*tti_lane_fn)(int lane, void *arg);

/* n_lanes >= 1. cores [n_lanes]: the core of each thread, NULL: not pinned. init runs once on every
 * thread (NULL: nothing).  On success *out is owned by the caller. */
tutti_status tti_lanes_create(int n_lanes, const int *cores, void (*init)(void), tti_lanes **out);
void tti_lanes_destroy(tti_lanes *lanes);

int tti_lanes_count(const tti_lanes *lanes);

/* Runs fn(lane, arg) on every lane and returns when all are done. */
void tti_lanes_run(tti_lanes *lanes, tti_lane_fn fn, void *arg);

/* Inside fn: returns when every lane has called it. */
void tti_lanes_barrier(tti_lanes *lanes);

/* The part first .. last-1 of n items that lane i of n_lanes takes, in units of unit items. */
typedef struct tti_range {
    size_t first, last;
} tti_range;
tti_range tti_lane_range(size_t n, size_t unit, int lane, int n_lanes);

#endif /* TTI_EXEC_LANES_H */

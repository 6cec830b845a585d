/* profile_trace.h - spans of steps as a trace and as a table. */
#ifndef TTI_TRAIN_PROFILE_TRACE_H
#define TTI_TRAIN_PROFILE_TRACE_H

#include "base/str.h"
#include "exec/exec.h"
#include "train/ceilings.h"
#include "train/devices.h"

/* Spans of a window of steps, and what they are held against. */
typedef struct tti_profiled {
    tti_timeline *ranks; /* [n_ranks] */
    int n_ranks, n_steps;
    const tti_devices *devices; /* of the ranks, in turn */
    double trained_us;          /* a step as training runs it */
    double wait_us;             /* of it waiting for samples */
    tti_ceilings ceilings;
    int max_rows;
} tti_profiled;

/* Chrome's trace format: a process for each rank, a line for each queue of its device and for the
 * threads of the host, in microseconds. */
void tti_profile_trace(const tti_profiled *profiled, tti_str *out);

/* One row for each op with the same types and kernel, the slowest first: of rank 0's fastest step.
 */
tutti_status tti_profile_table(const tti_profiled *profiled, tti_str *out);

#endif /* TTI_TRAIN_PROFILE_TRACE_H */

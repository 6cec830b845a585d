/* profile_trace.h - spans of a step as a trace and as a table. */
#ifndef TTI_TRAIN_PROFILE_TRACE_H
#define TTI_TRAIN_PROFILE_TRACE_H

#include "base/str.h"
#include "exec/exec.h"
#include "train/ceilings.h"

/* Spans of one step, and what they are held against. */
typedef struct tti_profiled {
    const tti_span *spans;
    int n_spans;
    double step_us;    /* from begin to end, as it was timed */
    double trained_us; /* a step as training runs it */
    tti_ceilings ceilings;
    int max_rows;
} tti_profiled;

/* Chrome's trace format: one line of events for each shard, in microseconds. */
void tti_profile_trace(const tti_profiled *profiled, tti_str *out);

/* One row for each op with the same types and kernel, the slowest first. */
tutti_status tti_profile_table(const tti_profiled *profiled, tti_str *out);

#endif /* TTI_TRAIN_PROFILE_TRACE_H */

/* profile_trace.h - spans of steps as a trace and as a table. */
#ifndef TTI_TRAIN_PROFILE_TRACE_H
#define TTI_TRAIN_PROFILE_TRACE_H

#include "base/str.h"
#include "comm/mesh.h"
#include "train/job/devices.h"
#include "train/profile/ceilings.h"
#include "train/profile/profile_spans.h"

/* The spans of a window of steps, and the ceilings that they are compared with. */
typedef struct tti_profiled {
    tti_worker_spans *ranks;    /* [n_ranks] */
    int n_ranks, shown;         /* shown: rank whose table is printed */
    const tti_devices *devices; /* devices of the ranks, reused cyclically */
    tti_mesh_at mesh;           /* extents */
    tti_ceilings ceilings;
    int max_rows;
} tti_profiled;

/* Writes Chrome's trace format, in microseconds: a process for each rank, and a line for each queue
 * of its device and each thread of the host. */
void tti_profile_trace(const tti_profiled *profiled, tti_str *out);

/* Writes a table of the fastest step of the selected rank, with one row for each op with the same
 * types and kernel, the slowest first.  With several ranks, the communication between them and its
 * hidden part follow. */
tutti_status tti_profile_table(const tti_profiled *profiled, tti_str *out);

#endif /* TTI_TRAIN_PROFILE_TRACE_H */

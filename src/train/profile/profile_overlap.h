/* profile_overlap.h - measures how much communication between workers was hidden by computation. */
#ifndef TTI_TRAIN_PROFILE_OVERLAP_H
#define TTI_TRAIN_PROFILE_OVERLAP_H

#include "train/profile/profile_spans.h"

/* The time of one kind of communication, over all profiled steps. */
typedef struct tti_traffic_time {
    double us;        /* time covered by at least one span of the kind */
    double hidden_us; /* part of us while kernels of the same worker ran */
    int64_t n_spans;
} tti_traffic_time;

/* Adds the spans of each kind to times [TTI_N_SPAN_KINDS]. */
TUTTI_NODISCARD tutti_status tti_traffic_times(const tti_worker_spans *spans,
                                               tti_traffic_time *times);

/* Returns the kind as text, such as "gradients"; NULL: not communication. */
const char *tti_traffic_name(tti_span_kind kind);

#endif /* TTI_TRAIN_PROFILE_OVERLAP_H */

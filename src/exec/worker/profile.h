/* profile.h - times ordinary steps: spans of a device's queues, for which the device records
 * timestamps, and of the host's threads, with the host's clock.
 *
 * Every call does nothing without a profile. Any thread may call these functions. */
#ifndef TTI_EXEC_PROFILE_H
#define TTI_EXEC_PROFILE_H

#include "exec/worker/desc.h"

typedef struct tti_profile tti_profile;

/* Open begins a window of steps. Read reads the spans of an idle device. Close ends the window,
 * even in the middle of a step. */
tutti_status tti_profile_open(tti_exec *x);
tutti_status tti_profile_read(tti_exec *x, tti_timeline *out);
void tti_profile_close(tti_exec *x);

/* Starts the next span of this device queue. */
tutti_status tti_profile_from(tti_exec *x, tti_row row);

/* Ends a span: the work launched in the queue since tti_profile_from, or since the last span. */
tutti_status tti_profile_upto(tti_exec *x, tti_row row, tti_span_id id, int shard);

/* Reserves n timestamps of the compute queue, which the caller records, and returns the first; 0:
 * not profiling.  The second function adds the span between one of them and the next. */
int tti_profile_take(tti_exec *x, int n);
void tti_profile_between(tti_exec *x, tti_row row, tti_span_id id, int shard, int from);

/* Adds a span that was measured with the host's clock.  Without a device it may be in
 * TTI_ROW_COMPUTE. */
void tti_profile_add(tti_exec *x, tti_row row, tti_span_id id, int shard, int64_t start_ns,
                     int64_t end_ns);

/* Adds work of another row that the compute thread ran itself, and the wait in its own row. */
void tti_profile_stall(tti_exec *x, const tti_span *what, const char *waiting, int64_t start_ns,
                       int64_t end_ns);

/* Begins a span of TTI_ROW_COMPUTE that contains others, at now_ns; ends the thread's previous one
 * in this step. */
void tti_profile_mark(tti_exec *x, int64_t now_ns);
void tti_profile_rest(tti_exec *x, tti_span_id id, int64_t now_ns);

/* Makes later spans of queues belong to the next step of the window. */
void tti_profile_next_step(tti_exec *x);

/* True if timestamps can be part of a captured graph.  Call after tti_profile_zero. */
bool tti_profile_records(tti_exec *x);

/* Aligns timestamp 0 of an idle device with the host's clock. n_timestamps: the total number, so
 * that none is allocated later. */
tutti_status tti_profile_zero(tti_exec *x, int n_timestamps);

#endif /* TTI_EXEC_PROFILE_H */

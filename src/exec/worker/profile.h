/* profile.h - the timing of ordinary steps: spans of the queues of a device, which records the
 * timestamps itself, and of the host's threads, by the host's clock.
 *
 * Every call does nothing without a profile.  Any thread. */
#ifndef TTI_EXEC_PROFILE_H
#define TTI_EXEC_PROFILE_H

#include "exec/worker/desc.h"

typedef struct tti_profile tti_profile;

/* Begins a window of steps; what was timed in it, of a device at rest; ends it, also one that was
 * left in the middle. */
tutti_status tti_profile_open(tti_exec *x);
tutti_status tti_profile_hand_over(tti_exec *x, tti_timeline *out);
void tti_profile_drop(tti_exec *x);

/* The next span of this queue of the device begins here. */
tutti_status tti_profile_from(tti_exec *x, tti_row row);

/* The work launched in the queue since then, or since the last span, is one span. */
tutti_status tti_profile_upto(tti_exec *x, tti_row row, tti_span_id id, int shard);

/* Reserves n timestamps of the compute queue that the caller sets; returns the first, 0: not
 * profiling.  And the span between one of them and the next. */
int tti_profile_take(tti_exec *x, int n);
void tti_profile_between(tti_exec *x, tti_row row, tti_span_id id, int shard, int from);

/* A span by the clock of the host, TTI_ROW_COMPUTE too where there is no device. */
void tti_profile_add(tti_exec *x, tti_row row, tti_span_id id, int shard, int64_t start_ns,
                     int64_t end_ns);

/* The compute thread executed work of another row itself, and waited for it: records both. */
void tti_profile_stall(tti_exec *x, const tti_span *what, const char *waiting, int64_t start_ns,
                       int64_t end_ns);

/* A span of TTI_ROW_COMPUTE that contains others: the worker's thread begins work at now_ns; ends
 * its previous one, if any in this step. */
void tti_profile_mark(tti_exec *x, int64_t now_ns);
void tti_profile_rest(tti_exec *x, tti_span_id id, int64_t now_ns);

/* Spans of queues belong to the next step of the window from here on. */
void tti_profile_next_step(tti_exec *x);

/* Whether timestamps can be part of a captured graph: it is tried, after tti_profile_zero. */
bool tti_profile_records(tti_exec *x);

/* Aligns timestamp 0 of an idle device with the host's clock. n_timestamps: the total number, so
 * that none is allocated later. */
tutti_status tti_profile_zero(tti_exec *x, int n_timestamps);

#endif /* TTI_EXEC_PROFILE_H */

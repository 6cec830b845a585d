/* profile.h - what is timed while steps run as ever: spans of the queues of a device, which notes
 * the moments itself, and of the host's threads, by the host's clock.
 *
 * Every call does nothing where nothing is profiled.  Threads: any. */
#ifndef TTI_EXEC_PROFILE_H
#define TTI_EXEC_PROFILE_H

#include "exec/exec.h"

typedef struct tti_profile tti_profile;

/* The next span of this queue of the device begins here. */
tutti_status tti_profile_from(tti_exec *x, tti_row row);

/* What has come into the queue since then, or since the last span, is one. */
tutti_status tti_profile_upto(tti_exec *x, tti_row row, tti_part part, int shard);

/* Moments of the compute queue that the caller stamps itself, the first of n; 0: nothing is
 * profiled.  And the span between one of them and the next. */
int tti_profile_take(tti_exec *x, int n);
void tti_profile_between(tti_exec *x, tti_row row, tti_part part, int shard, int from);

/* A span by the clock of the host, TTI_ROW_COMPUTE too where there is no device. */
void tti_profile_add(tti_exec *x, tti_row row, tti_part part, int shard, int64_t start_ns,
                     int64_t end_ns);

/* The thread of the lane made something of another row itself, and waited for it: both are told. */
void tti_profile_stall(tti_exec *x, const tti_span *what, const char *waiting, int64_t start_ns,
                       int64_t end_ns);

/* A span of TTI_ROW_COMPUTE that others are inside of: the worker's thread begins something; and
 * what it was until now, if it has begun any in this step. */
void tti_profile_mark(tti_exec *x, int64_t now_ns);
void tti_profile_rest(tti_exec *x, tti_part part, int64_t now_ns);

/* Spans of queues belong to the next step of the window from here on. */
void tti_profile_next_step(tti_exec *x);

/* Whether moments can be part of a recording: it is tried, after tti_profile_zero. */
bool tti_profile_records(tti_exec *x);

/* Moment 0 of a device, which is at rest, beside the host's clock.  n_moments: enough for all, so
 * that none is made later. */
tutti_status tti_profile_zero(tti_exec *x, int n_moments);

#endif /* TTI_EXEC_PROFILE_H */

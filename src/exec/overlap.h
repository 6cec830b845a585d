/* overlap.h - a thread that reduces buckets while the last shards still compute.
 *
 * Lanes report each bucket that they completed; once all lanes of the last wave have, the bucket is
 * merged and reduced.  Buckets go in plan order, so every worker issues the same collectives. */
#ifndef TTI_EXEC_OVERLAP_H
#define TTI_EXEC_OVERLAP_H

#include "base/error.h"

typedef struct tti_overlap tti_overlap;

/* Reduces bucket b; called on the overlap thread. */
typedef tutti_status (*tti_overlap_fn)(int bucket, void *user);

/* core: pinned there, -1: not.  On success *out is owned by the caller. */
tutti_status tti_overlap_create(int n_buckets, int core, tti_overlap_fn fn, void *user,
                                tti_overlap **out);
void tti_overlap_destroy(tti_overlap *overlap);

/* A new step: n_lanes lanes will arrive at every bucket. */
void tti_overlap_begin(tti_overlap *overlap, int n_lanes);

/* A lane has completed the gradients of bucket b. */
void tti_overlap_arrive(tti_overlap *overlap, int bucket);

/* Waits until all buckets are reduced, or one failed. */
tutti_status tti_overlap_finish(tti_overlap *overlap);

#endif /* TTI_EXEC_OVERLAP_H */

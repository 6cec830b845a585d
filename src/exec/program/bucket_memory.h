/* bucket_memory.h - the memory of buckets of a flat array that exist only while steps use them.
 *
 * A live range of a bucket goes from the first to the last step of a program that accesses it.
 * Between two live ranges other buckets use its memory. The assignment depends only on the plan. */
#ifndef TTI_EXEC_BUCKET_MEMORY_H
#define TTI_EXEC_BUCKET_MEMORY_H

#include "passes/plan.h"

typedef struct tti_live_range {
    int bucket;
    int first, last;     /* steps of the program */
    int taken, released; /* its memory is reserved in steps taken .. released */
    size_t offset;       /* offset of its memory, in elements, a multiple of 16 */
} tti_live_range;

typedef struct tti_bucket_memory {
    const tti_plan *plan; /* borrowed */
    tti_live_range *live; /* [n_live] by first step, then bucket */
    int n_live;
    size_t n_elems; /* elements of the memory of all live ranges */
} tti_bucket_memory;

/* Plans the memory of the buckets that a program accesses in a space.
 *
 * TTI_SPACE_PARAM, buckets that it reads: the memory of a bucket is reserved while the previous
 * bucket is live, so that it can be filled meanwhile.  A bucket is released and fetched again if
 * two others are accessed in between, and at the end of a segment of the program, because segments
 * of other shards may run in between.
 *
 * TTI_SPACE_GRAD, buckets that it writes: memory is released one bucket later, so that the bucket
 * can be reduced meanwhile.
 *
 * Freed by fini, also after a failure. */
tutti_status tti_bucket_memory_init(const tti_plan *plan, const tti_program *program,
                                    tti_space space, tti_bucket_memory *out);
void tti_bucket_memory_fini(tti_bucket_memory *memory);

/* The location of element at of the flat array, in the live range that contains step; step -1: the
 * bucket has only one live range. */
size_t tti_bucket_memory_at(const tti_bucket_memory *memory, int step, size_t at);

/* The next step after this one, at most last, at which memory is reserved or first used. */
int tti_bucket_memory_next_change(const tti_bucket_memory *memory, int step, int last);

/* True if two live ranges have bytes in common. */
bool tti_bucket_memory_shares(const tti_bucket_memory *memory, const tti_live_range *a,
                              const tti_live_range *b);

#endif /* TTI_EXEC_BUCKET_MEMORY_H */

/* chunk.h - the chunk of a vector that each rank reduces; plain C and C++. */
#ifndef TTI_CHUNK_H
#define TTI_CHUNK_H

#include <stddef.h>

typedef struct tti_chunk {
    size_t first, n_elems;
} tti_chunk;

/* The part of n_elems f32 that a rank sums: runs in order of rank, of equal length but for the
 * last ones, which may be shorter or empty; each begins at a multiple of 4 elements. */
static inline tti_chunk tti_chunk_of(size_t n_elems, int rank, int n_ranks) {
    size_t units = (n_elems + 3) / 4, each = (units + (size_t)n_ranks - 1) / (size_t)n_ranks * 4;
    size_t first = each * (size_t)rank, last = first + each;
    if (first > n_elems) first = n_elems;
    if (last > n_elems) last = n_elems;
    tti_chunk chunk = {first, last - first};
    return chunk;
}

#endif /* TTI_CHUNK_H */

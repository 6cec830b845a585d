/* nd.h - iterates over several values together: broadcasting, reductions, permutations, any layout.
 *
 * An nd is a nest of loops with one stride for each operand.  Building it sorts the loops by the
 * memory order of operand 0 and joins loops that are one run in every operand, so that the last
 * loop, which the caller writes, is as long as possible. */
#ifndef TTI_CPU_ND_H
#define TTI_CPU_ND_H

#include "ir/graph.h"

enum { TTI_ND_OPERANDS = 3 };

typedef struct tti_nd {
    int n_dims, n_operands;
    size_t dim[TUTTI_MAX_DIMS];                     /* outermost first; n_dims >= 1 */
    size_t stride[TTI_ND_OPERANDS][TUTTI_MAX_DIMS]; /* elements; 0: repeated or summed */
} tti_nd;

/* The position of the loops: offsets of the operands in elements. */
typedef struct tti_nd_at {
    size_t index[TUTTI_MAX_DIMS];
    size_t offset[TTI_ND_OPERANDS];
} tti_nd_at;

/* Strides of a value in memory for each of its dimensions, in elements. */
void tti_value_strides(const tutti_value *value, size_t stride[TUTTI_MAX_DIMS]);

/* The nest over shape full; each operand's dimensions are aligned at the last one, and those of
 * size 1 have stride 0. */
tti_nd tti_nd_make(const tutti_shape *full, const tutti_value *const *operand, int n_operands);

/* From raw loops: sorts by operand 0 and joins. */
void tti_nd_tidy(tti_nd *nd);

/* Iterations of the loops but the last n_inner. */
size_t tti_nd_n_outer(const tti_nd *nd, int n_inner);
/* One step of these loops. */
void tti_nd_next(const tti_nd *nd, int n_inner, tti_nd_at *at);

#endif /* TTI_CPU_ND_H */

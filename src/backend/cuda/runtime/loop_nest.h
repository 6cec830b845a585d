/* loop_nest.h - loops over several values at once: broadcasting, reductions, any layout; C and C++.
 *
 * Building a nest sorts the loops by the memory order of operand 0 and joins loops that are one run
 * in every operand, so that few are left and the last one is long. */
#ifndef TTI_CUDA_LOOP_NEST_H
#define TTI_CUDA_LOOP_NEST_H

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TTI_NEST_OPERANDS = 17 };

typedef struct tti_nest {
    int n_dims, n_operands;
    uint64_t dim[TUTTI_MAX_DIMS];                       /* outermost first; n_dims >= 1 */
    uint64_t stride[TTI_NEST_OPERANDS][TUTTI_MAX_DIMS]; /* elements; 0: repeated or summed */
} tti_nest;

struct tutti_value;

/* Strides of a value in memory for each of its dimensions, in elements. */
void tti_cuda_strides(const struct tutti_value *value, uint64_t stride[TUTTI_MAX_DIMS]);

/* One shape, and element i of the bytes is the same element in both. */
bool tti_cuda_same_order(const struct tutti_value *a, const struct tutti_value *b);

/* The loops over full; operands' dimensions are aligned at the last one, those of 1 repeat. */
tti_nest tti_cuda_nest(const tutti_shape *full, const struct tutti_value *const *operand,
                       int n_operands);

/* From raw loops without empty ones: sorts by operand 0 and joins. */
void tti_cuda_nest_tidy(tti_nest *nest);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_LOOP_NEST_H */

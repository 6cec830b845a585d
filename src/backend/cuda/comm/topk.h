/* topk.h - launchers of topk.cu: the largest elements of gradients, and sums of pairs. */
#ifndef TTI_CUDA_TOPK_H
#define TTI_CUDA_TOPK_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TTI_TOPK_TILE = 8192, TTI_TOPK_BINS = 2048 };

/* Elements first .. of a slot, at most TTI_TOPK_TILE. */
typedef struct tti_topk_tile {
    int32_t slot;
    uint32_t first;
} tti_topk_tile;

/* The known part of the k-th largest element of a slot: the upper bits of its magnitude, and how
 * many of the elements with these bits are among the k. */
typedef struct tti_topk_bound {
    uint32_t upper, n_left;
} tti_topk_bound;

/* Elements of a tile, and then of all tiles before it in its slot, that are above the bound, and
 * that are equal to it. */
typedef struct tti_topk_tally {
    uint32_t above, equal;
} tti_topk_tally;

/* A bucket; all pointers into the device. */
typedef struct tti_topk_view {
    const tti_topk_slot *slots; /* [n_slots] */
    const tti_topk_tile *tiles; /* [n_tiles]: of slot numbers in slots, slot by slot */
    const int32_t *first_tile;  /* [n_slots + 1] */
    int n_slots, n_tiles, n_ranks;
    float *grads, *residual;
    tti_topk_pair *own, *all;
    uint64_t first_pair, n_pairs;
    uint32_t *bins;          /* [n_slots][TTI_TOPK_BINS], 0 between calls */
    tti_topk_bound *bounds;  /* [n_slots] */
    tti_topk_tally *tallies; /* [n_tiles] */
    const tti_step_args *args;
} tti_topk_view;

cudaError_t tti_launch_topk_load(void);

/* As choose and add of tti_device_topk_ops. */
cudaError_t tti_launch_topk_choose(const tti_topk_view *view, cudaStream_t stream);
cudaError_t tti_launch_topk_add(const tti_topk_view *view, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_TOPK_H */

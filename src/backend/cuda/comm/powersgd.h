/* powersgd.h - launchers of powersgd.cu: gradients as low-rank products. */
#ifndef TTI_CUDA_POWERSGD_H
#define TTI_CUDA_POWERSGD_H

#include <cuda_runtime_api.h>

#include "backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows row .. and columns col .. of a slot, at most TTI_POWERSGD_ROWS of TTI_POWERSGD_COLS. */
typedef struct tti_powersgd_tile {
    int32_t slot;
    uint32_t row, col;
} tti_powersgd_tile;

/* A bucket; all pointers into the device. */
typedef struct tti_powersgd_view {
    const tti_powersgd_slot *slots; /* [n_slots] */
    const tti_powersgd_tile *tiles; /* [n_tiles]: of slot numbers in slots */
    int n_slots, n_tiles, r;        /* r: of every slot that is a matrix */
    float *grads, *residual, *message, *own, *scratch;
    const tti_step_args *args;
} tti_powersgd_view;

/* Loads the kernels of view->r. */
cudaError_t tti_launch_powersgd_load(int r);

/* As left, right and end of tti_device_powersgd_ops. */
cudaError_t tti_launch_powersgd_left(const tti_powersgd_view *view, cudaStream_t stream);
cudaError_t tti_launch_powersgd_right(const tti_powersgd_view *view, cudaStream_t stream);
cudaError_t tti_launch_powersgd_end(const tti_powersgd_view *view, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_POWERSGD_H */

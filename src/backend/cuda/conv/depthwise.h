/* depthwise.h - depthwise convolutions (groups = channels = output channels) of N,H,W,C values.
 *
 * f32, f16, bf16; sums in f32, in an order that depends on the shape alone.  Weights are
 * w[c,1,r,s], row-major.  Square windows of 3, 5 and 7 with stride 1 or 2 have tiled kernels; every
 * other window, stride or dilation has plain ones.
 *
 * A tiled kernel computes results from a source: y from x, or dx from dy.  A block has CHANNELS
 * channels and loops over tiles, which it prefetches into shared memory.  A thread has two channels
 * and a task of TASK_ROWS x tti_depthwise_columns results.  The gradient of w has the same tasks;
 * there the "result" that a thread reads is dy, and the source is x. */
#ifndef TTI_CUDA_CONV_DEPTHWISE_H
#define TTI_CUDA_CONV_DEPTHWISE_H

#include "backend/cuda/conv/conv_direct.h"

enum {
    TTI_DEPTHWISE_CHANNELS = 32,
    TTI_DEPTHWISE_LANES = TTI_DEPTHWISE_CHANNELS / 2, /* threads of a task, two channels each */
    TTI_DEPTHWISE_TASK_ROWS = 2,
    TTI_DEPTHWISE_MAX_TASKS = 14, /* of a block */
    TTI_DEPTHWISE_MAX_THREADS = TTI_DEPTHWISE_MAX_TASKS * TTI_DEPTHWISE_LANES
};

typedef enum tti_depthwise_mode {
    TTI_DEPTHWISE_ONE,       /* result i reads sources i - pad + r */
    TTI_DEPTHWISE_TWO,       /* 2 i - pad + r */
    TTI_DEPTHWISE_TRANSPOSED /* (i + pad - r) / 2 where that is whole: dx for a stride of 2 */
} tti_depthwise_mode;

/* ---- the positions of a task along one axis, for kernels and for the plan ---- */

#ifdef __cplusplus
#define TTI_DEPTHWISE_INLINE constexpr
#else
#define TTI_DEPTHWISE_INLINE static inline
#endif

/* Columns of a task: 7 divides the usual planes; the transposed mode needs an even number. */
TTI_DEPTHWISE_INLINE int tti_depthwise_columns(tti_depthwise_mode mode) {
    return mode == TTI_DEPTHWISE_TRANSPOSED ? 8 : 7;
}

/* Transposed: the parity of i + pad at the first result of a task, the one of "same" padding. */
TTI_DEPTHWISE_INLINE int tti_depthwise_parity(int kernel) { return kernel / 2 % 2; }

/* Transposed: sources that a task reads before its own first one. */
TTI_DEPTHWISE_INLINE int tti_depthwise_before(int kernel) {
    return (kernel - 1 - tti_depthwise_parity(kernel)) / 2;
}

/* Source positions that n adjacent results read. */
TTI_DEPTHWISE_INLINE int tti_depthwise_span(tti_depthwise_mode mode, int kernel, int n) {
    return mode == TTI_DEPTHWISE_TRANSPOSED
               ? (tti_depthwise_parity(kernel) + n - 1) / 2 + tti_depthwise_before(kernel) + 1
               : (n - 1) * (mode == TTI_DEPTHWISE_TWO ? 2 : 1) + kernel;
}

/* Source positions between the first ones of results n apart; transposed: n is even. */
TTI_DEPTHWISE_INLINE int tti_depthwise_step(tti_depthwise_mode mode, int n) {
    return mode == TTI_DEPTHWISE_TRANSPOSED ? n / 2 : mode == TTI_DEPTHWISE_TWO ? 2 * n : n;
}

/* The position in the window that joins source a and result u of a task; there is none if it is
 * below 0 or at least kernel. */
TTI_DEPTHWISE_INLINE int tti_depthwise_tap(tti_depthwise_mode mode, int kernel, int a, int u) {
    return mode == TTI_DEPTHWISE_TRANSPOSED
               ? tti_depthwise_parity(kernel) + u - 2 * (a - tti_depthwise_before(kernel))
               : a - u * (mode == TTI_DEPTHWISE_TWO ? 2 : 1);
}

/* Blocks that a multiprocessor has registers for, which __launch_bounds__ asks for. */
TTI_DEPTHWISE_INLINE int tti_depthwise_blocks(int kernel, bool grad_w) {
    return kernel == 7 || (kernel == 5 && grad_w) ? 2 : 3;
}

/* ---- the plan ---- */

/* One axis.  Tile t has results out_base + t out_step .. (out_step of them) and reads sources
 * base + t step .. (span of them); positions beyond 0 .. out - 1 or 0 .. source - 1 do not exist.
 */
typedef struct tti_depthwise_axis {
    int source, out; /* sizes of the planes */
    int n_tasks;     /* of a tile */
    int n_tiles;     /* of a plane */
    int base, step, span, out_base, out_step;
} tti_depthwise_axis;

typedef struct tti_depthwise_plan {
    bool is_tiled; /* otherwise only n, c, n_groups and n_blocks are set */
    bool flip;     /* weights are read backwards: dx for a stride of 1 */
    tti_depthwise_mode mode;
    int kernel;
    int n, c;
    int n_groups; /* of CHANNELS channels; the last may have fewer */
    int n_images; /* of a tile */
    int n_tiles;  /* of a group */
    int n_blocks; /* of a group; for the gradient of w one partial sum each */
    int n_threads;
    tti_depthwise_axis axis[2]; /* rows, columns */
    int tile_elems, out_elems;  /* elements of shared memory for a tile of the source, of dy */
    int n_shared;               /* bytes */
} tti_depthwise_plan;

typedef enum tti_depthwise_kind {
    TTI_DEPTHWISE_FORWARD,
    TTI_DEPTHWISE_GRAD_X,
    TTI_DEPTHWISE_GRAD_W
} tti_depthwise_kind;

#ifdef __cplusplus
extern "C" {
#endif

/* If the kernels take it: the type, the layout, and sizes whose indices fit. */
bool tti_depthwise_supports(tutti_dtype dtype, const tti_cuda_conv *conv);

/* The plan of a convolution that is supported. */
tti_depthwise_plan tti_depthwise_plan_of(tutti_dtype dtype, const tti_cuda_conv *conv,
                                         tti_depthwise_kind kind);

/* y = act(conv(x, w) + bias); bias[c] or NULL. */
cudaError_t tti_depthwise_forward(tutti_dtype dtype, const tti_cuda_conv *conv,
                                  const tti_depthwise_plan *plan, const void *x, const void *w,
                                  const void *bias, bool relu, void *y, cudaStream_t stream);

cudaError_t tti_depthwise_grad_x(tutti_dtype dtype, const tti_cuda_conv *conv,
                                 const tti_depthwise_plan *plan, const void *dy, const void *w,
                                 void *dx, cudaStream_t stream);

/* dw[c,1,r,s], and db[c] unless it is NULL; partials: tti_depthwise_grad_w_bytes. */
size_t tti_depthwise_grad_w_bytes(const tti_cuda_conv *conv, const tti_depthwise_plan *plan);
cudaError_t tti_depthwise_grad_w(tutti_dtype dtype, const tti_cuda_conv *conv,
                                 const tti_depthwise_plan *plan, const void *dy, const void *x,
                                 float *partials, void *dw, void *db, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_CONV_DEPTHWISE_H */

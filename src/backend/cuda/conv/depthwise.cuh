/* depthwise.cuh - what depthwise.cu and depthwise_grad_w.cu share: tiles in shared memory, pairs of
 * channels, and the choice of a kernel. */
#ifndef TTI_CUDA_CONV_DEPTHWISE_CUH
#define TTI_CUDA_CONV_DEPTHWISE_CUH

#include "backend/cuda/conv/depthwise.h"
#include "backend/cuda/gemm/mma.cuh"

namespace depthwise {

enum {
    CHANNELS = TTI_DEPTHWISE_CHANNELS,
    LANES = TTI_DEPTHWISE_LANES,
    ROWS = TTI_DEPTHWISE_TASK_ROWS,
    MAX_THREADS = TTI_DEPTHWISE_MAX_THREADS
};

/* A task in numbers that the compiler knows. */
template <int K, tti_depthwise_mode MODE>
struct window {
    static constexpr int COLUMNS = tti_depthwise_columns(MODE);
    static constexpr int SPAN_H = tti_depthwise_span(MODE, K, ROWS);
    static constexpr int SPAN_W = tti_depthwise_span(MODE, K, COLUMNS);
    static constexpr int STEP_H = tti_depthwise_step(MODE, ROWS);
    static constexpr int STEP_W = tti_depthwise_step(MODE, COLUMNS);
    static constexpr bool has_tap(int tap) { return tap >= 0 && tap < K; }
};

template <class T>
__device__ __forceinline__ float2 load_pair(const T *p) {
    float x[2];
    tti_load<T, 2>(p, x);
    return make_float2(x[0], x[1]);
}

/* Where tile `index` of a group is: its first image, and its number along both axes. */
struct place {
    int n, tile[2];
};

__device__ __forceinline__ place place_of(const tti_depthwise_plan &p, int index) {
    place t;
    t.tile[1] = index % p.axis[1].n_tiles, index /= p.axis[1].n_tiles;
    t.tile[0] = index % p.axis[0].n_tiles;
    t.n = index / p.axis[0].n_tiles * p.n_images;
    return t;
}

/* The task of a thread: image of the tile, and its number along both axes. */
struct task {
    bool exists;
    int lane; /* has channels 2 lane and 2 lane + 1 of the group */
    int image, row, column;
};

__device__ __forceinline__ task task_of(const tti_depthwise_plan &p) {
    task t;
    int slot = (int)threadIdx.x / LANES, rows = p.axis[0].n_tasks, columns = p.axis[1].n_tasks;
    t.lane = (int)threadIdx.x % LANES;
    t.exists = slot < p.n_images * rows * columns;
    t.column = slot % columns, slot /= columns;
    t.row = slot % rows;
    t.image = slot / rows;
    return t;
}

/* A box of positions [n_images][rows][columns] of a plane, beginning at n, row, column; those
 * outside of the plane or the batch are zeros. */
struct box {
    int n, row, column;
    tti_divisor rows, columns;
};

/* The box into shared memory: to[n_images][rows][columns][CHANNELS], channels from c0.  VECTORS:
 * the channels are a multiple of 16 bytes, which are copied asynchronously. */
template <class T, bool VECTORS>
__device__ __forceinline__ void load_box(const tti_depthwise_plan &p, const box &b, int height,
                                         int width, int c0, const T *from, T *to) {
    constexpr int WIDTH = VECTORS ? 16 / (int)sizeof(T) : 1, PARTS = CHANNELS / WIDTH;
    int part = (int)threadIdx.x % PARTS * WIDTH, step = (int)blockDim.x / PARTS;
    int n_positions = p.n_images * (int)(b.rows.d * b.columns.d);
    bool has_channels = c0 + part < p.c;
    from += c0 + part;
    for (int i = (int)threadIdx.x / PARTS; i < n_positions; i += step) {
        uint32_t column = (uint32_t)i, row = tti_split_index(column, b.columns);
        uint32_t image = tti_split_index(row, b.rows);
        int n = b.n + (int)image, h = b.row + (int)row, w = b.column + (int)column;
        bool inside = has_channels && n < p.n && h >= 0 && h < height && w >= 0 && w < width;
        const T *at = from + (inside ? (int64_t)((n * height + h) * width + w) * p.c : 0);
        T *place = to + i * CHANNELS + part;
        if (VECTORS)
            tti_copy_async(place, inside ? at : from - part - c0, inside);
        else
            *place = inside ? *at : tti_from_f32<T>(0.0f);
    }
    if (VECTORS) tti_copy_commit();
}

__device__ __forceinline__ void wait_for_boxes(bool vectors) {
    if (vectors) tti_copy_wait();
    __syncthreads();
}

template <class T>
bool has_vectors(int c) {
    return c % (16 / (int)sizeof(T)) == 0;
}

}  // namespace depthwise

/* Runs the statement with K, of a window that has tiled kernels. */
#define TTI_DEPTHWISE_KERNEL(kernel, ...) \
    switch (kernel) {                     \
        case 3: {                         \
            constexpr int K = 3;          \
            __VA_ARGS__;                  \
            break;                        \
        }                                 \
        case 5: {                         \
            constexpr int K = 5;          \
            __VA_ARGS__;                  \
            break;                        \
        }                                 \
        default: {                        \
            constexpr int K = 7;          \
            __VA_ARGS__;                  \
        }                                 \
    }

#endif /* TTI_CUDA_CONV_DEPTHWISE_CUH */

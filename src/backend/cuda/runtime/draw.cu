/* draw.cu - initial values of parameters: a block has one run of them.
 *
 * The bits are those of src/ops/draw.c: double, and nothing contracted (cmake/cuda.cmake). */
#include "backend/cuda/runtime/draw.h"

#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256 };

/* A thread has a draw, four elements. */
__global__ void __launch_bounds__(THREADS) draw_kernel(const tti_draws *draws, float *params) {
    const tti_draws d = draws[blockIdx.x];
    size_t last = d.first + d.n_elems;
    for (size_t four = d.first / 4 + threadIdx.x; four * 4 < last; four += THREADS) {
        double x[4];
        tti_philox r = tti_philox_draw(d.key, 0, four);
        if (d.is_normal) {
            tti_draw_normals(r.v[0], r.v[1], &x[0], &x[1]);
            tti_draw_normals(r.v[2], r.v[3], &x[2], &x[3]);
        } else {
#pragma unroll
            for (int lane = 0; lane < 4; lane++) x[lane] = tti_philox_unit(r.v[lane]);
        }
#pragma unroll
        for (int lane = 0; lane < 4; lane++) {
            size_t i = four * 4 + lane;
            float value = (float)(d.scale == 0 ? d.offset : d.offset + d.scale * x[lane]);
            if (i >= d.first && i < last) params[d.at + (i - d.first)] = value;
        }
    }
}

}  // namespace

extern "C" cudaError_t tti_launch_draw(const tti_draws *draws, int n, float *params,
                                       cudaStream_t stream) {
    draw_kernel<<<(unsigned)n, THREADS, 0, stream>>>(draws, params);
    return cudaGetLastError();
}

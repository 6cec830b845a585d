/* fill.cu - random numbers to time kernels with. */
#include "backend/cuda/runtime/fill.h"

#include "backend/cuda/runtime/device.cuh"

namespace {

/* A few rounds of mixing: good enough to keep the arithmetic busy. */
template <class T>
__global__ void fill_kernel(T *data, size_t n, uint32_t seed) {
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        uint32_t h = ((uint32_t)i ^ seed * 0x9e3779b9u) * 0x85ebca6bu;
        h = (h ^ h >> 15) * 0xc2b2ae35u;
        h ^= h >> 16;
        data[i] = tti_from_f32<T>((float)h * (2.0f / 4294967296.0f) - 1.0f);
    }
}

}  // namespace

extern "C" cudaError_t tti_cuda_fill_random(tutti_dtype dtype, void *data, size_t n, uint32_t seed,
                                            cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    size_t blocks = (n + 255) / 256;
    unsigned grid = blocks < 4096 ? (unsigned)blocks : 4096u;
    switch (dtype) {
        case TUTTI_F32:
        case TUTTI_F64:
        case TUTTI_F16:
        case TUTTI_BF16:
            TTI_FLOAT_DISPATCH(dtype,
                               (fill_kernel<T><<<grid, 256, 0, stream>>>((T *)data, n, seed)));
            return cudaGetLastError();
        default:
            return cudaMemsetAsync(data, 0,
                                   n * (dtype == TUTTI_I64   ? 8
                                        : dtype == TUTTI_I32 ? 4
                                                             : 1),
                                   stream);
    }
}

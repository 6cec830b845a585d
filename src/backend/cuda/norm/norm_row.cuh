/* norm_row.cuh - a row of 16-bit values in a warp, in vectors of 16 bytes: vector k of lane t is
 * number 32 k + t of the row.  Kernels that inline this code have the same bits. */
#ifndef TTI_CUDA_NORM_ROW_CUH
#define TTI_CUDA_NORM_ROW_CUH

#include "backend/cuda/runtime/device.cuh"

namespace {

enum { WARP = 32, V = 8 /* elements of a vector */ };

/* A row as it came. */
template <int NV>
struct row_of {
    uint4 v[NV];
};

/* The positions of this lane's vectors; n: vectors of a row. */
struct place {
    unsigned lane, n;
};

__device__ __forceinline__ bool has(place at, int k) { return at.lane + k * WARP < at.n; }

template <int NV>
__device__ __forceinline__ void load(const void *from, size_t row, place at, row_of<NV> &x) {
    const uint4 *p = (const uint4 *)from + row * at.n + at.lane;
#pragma unroll
    for (int k = 0; k < NV; k++) x.v[k] = has(at, k) ? p[k * WARP] : make_uint4(0, 0, 0, 0);
}

/* Asynchronous copy to shared memory; zeros if the vector does not exist. */
__device__ __forceinline__ void copy_vector(uint4 *to, const void *from, int at, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"((const uint4 *)from + at), "r"(there ? 16 : 0)
                 : "memory");
}

/* Bytes of shared memory that a block may ask for on this device. */
inline size_t most_shared() {
    int device = 0, n = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&n, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return (size_t)n;
}

__device__ __forceinline__ float2 widen(uint32_t w, tti_bf16) {
    return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
}
__device__ __forceinline__ float2 widen(uint32_t w, tti_f16) {
    return __half22float2(*reinterpret_cast<__half2 *>(&w));
}

template <class T>
__device__ __forceinline__ void widen(uint4 v, float (&x)[V]) {
    float2 a = widen(v.x, T()), b = widen(v.y, T()), c = widen(v.z, T()), d = widen(v.w, T());
    x[0] = a.x, x[1] = a.y, x[2] = b.x, x[3] = b.y;
    x[4] = c.x, x[5] = c.y, x[6] = d.x, x[7] = d.y;
}

/* Hides from the compiler that values were widened before, so that it does not keep them in
 * registers. */
template <int NV>
__device__ __forceinline__ void forget(row_of<NV> &x) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        asm volatile("" : "+r"(x.v[k].x), "+r"(x.v[k].y), "+r"(x.v[k].z), "+r"(x.v[k].w));
}

template <class T>
__device__ __forceinline__ void store(void *to, size_t row, place at, int k, const float (&x)[V]) {
    if (has(at, k)) tti_store((T *)to + (row * at.n + at.lane + k * WARP) * V, x);
}

/* Vector k of gamma or beta, zeros where this lane has none. */
__device__ __forceinline__ void load_params(const float *from, place at, int k, float (&x)[V]) {
#pragma unroll
    for (int i = 0; i < V; i++) x[i] = 0;
    if (!from || !has(at, k)) return;
    const float4 *p = (const float4 *)from + 2 * (at.lane + k * WARP);
    float4 a = p[0], b = p[1];
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* Layer norm of a row; mean and rstd come out. */
struct row_norm {
    const float *gamma, *beta;
    float eps, n;
    float mean, rstd;
};

/* put(k, y) for vector k of this lane; x has been added up to sum, of this lane, and is lost. */
template <int NV, class Put>
__device__ __forceinline__ void normalise(row_norm &norm, place at, float sum, float (&x)[NV][V],
                                          const Put &put) {
    float mean = tti_warp_sum(sum) / norm.n, squares = 0;
#pragma unroll
    for (int k = 0; k < NV; k++)
        if (has(at, k))
#pragma unroll
            for (int i = 0; i < V; i++) squares += (x[k][i] - mean) * (x[k][i] - mean);
    float rstd = 1.0f / sqrtf(tti_warp_sum(squares) / norm.n + norm.eps);
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float gamma[V], beta[V];
        load_params(norm.gamma, at, k, gamma);
        load_params(norm.beta, at, k, beta);
#pragma unroll
        for (int i = 0; i < V; i++) x[k][i] = (x[k][i] - mean) * rstd * gamma[i] + beta[i];
        put(k, x[k]);
    }
    norm.mean = mean, norm.rstd = rstd;
}

}  // namespace

#endif /* TTI_CUDA_NORM_ROW_CUH */

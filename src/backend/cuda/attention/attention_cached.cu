/* attention_cached.cu - one position against a cache, and the small kernels that correct cuDNN's
 * attention for samples with lengths. */
#include "backend/cuda/attention/attention_flash.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256 };

__device__ __forceinline__ double warp_max(double x) {
    for (int d = 16; d > 0; d /= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
__device__ __forceinline__ float warp_max(float x) { return tti_warp_max(x); }

/* ---- one position ---- */

/* Caches of one sample and key head: rows step apart; row pos is the new one, in qkv. */
template <class T>
struct cache {
    const T *q, *k, *v, *new_k, *new_v;
    int64_t step, pos;
};

template <class T>
__device__ __forceinline__ cache<T> cache_of(const tti_cuda_cached &a, int64_t b, int h) {
    const tti_cuda_heads &v = a.heads;
    cache<T> c;
    int kv = h / (v.heads / v.kv_heads);
    const T *qkv = (const T *)a.qkv + b * (v.heads + 2 * v.kv_heads) * v.dim;
    c.step = (int64_t)v.kv_heads * v.dim;
    c.pos = *a.pos;
    c.q = qkv + (int64_t)h * v.dim;
    c.new_k = qkv + (int64_t)(v.heads + kv) * v.dim, c.new_v = c.new_k + c.step;
    c.k = (const T *)a.k_in + b * a.t_max * c.step + (int64_t)kv * v.dim;
    c.v = (const T *)a.v_in + b * a.t_max * c.step + (int64_t)kv * v.dim;
    return c;
}

/* p[i] = the score of key k0 + i, one warp for each; -inf beyond the last. */
template <class T, class A>
__device__ __forceinline__ void score(const tti_cuda_cached &a, const cache<T> &c, int64_t k0,
                                      A *p) {
    int lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < THREADS; i += THREADS / 32) {
        int64_t key = k0 + i;
        const T *k = key == c.pos ? c.new_k : c.k + key * c.step;
        A sum = 0;
        for (int d = lane; key <= c.pos && d < a.heads.dim; d += 32)
            sum += tti_widen<A>(c.q[d]) * tti_widen<A>(k[d]);
        sum = tti_warp_sum(sum);
        if (lane == 0) p[i] = key <= c.pos ? sum * (A)a.heads.scale : (A)-INFINITY;
    }
}

/* Every warp reads all of p, so that all threads have the same maximum. */
template <class A>
__device__ __forceinline__ A max_of(const A *p, A top) {
    for (int i = threadIdx.x % 32; i < THREADS; i += 32) top = p[i] > top ? p[i] : top;
    return warp_max(top);
}

/* A block makes 256 columns of one head's y; with fewer columns groups of threads share the keys
 * and are added in order at the end. */
template <class T>
__global__ void __launch_bounds__(THREADS) cached_kernel(tti_cuda_cached a, int n_slices) {
    typedef typename tti_acc<T>::type A;
    __shared__ A p[THREADS], sums[32], parts[THREADS];
    const tti_cuda_heads &v = a.heads;
    int slice = (int)(blockIdx.x % n_slices) * THREADS, h = (int)(blockIdx.x / n_slices % v.heads);
    int64_t b = blockIdx.x / n_slices / v.heads;
    cache<T> c = cache_of<T>(a, b, h);
    int n_columns = v.dim - slice < THREADS ? v.dim - slice : THREADS;
    int span = (n_columns + 31) / 32 * 32, n_groups = THREADS / span;
    int group = threadIdx.x / span, column = threadIdx.x % span;
    bool works = group < n_groups && column < n_columns;
    A m = (A)-INFINITY, l = 0, out = 0;
    bool inside = c.pos >= 0 && c.pos < a.t_max;
    for (int64_t k0 = 0; inside && k0 <= c.pos; k0 += THREADS) {
        __syncthreads();
        score(a, c, k0, p);
        __syncthreads();
        A top = max_of(p, m), shrink = m == top ? (A)1 : tti_exp(m - top);
        A own = tti_exp(p[threadIdx.x] - top);
        l = l * shrink + tti_block_sum(own, sums);
        p[threadIdx.x] = own;
        __syncthreads();
        out *= shrink, m = top;
        for (int i = group; works && i < THREADS && k0 + i <= c.pos; i += n_groups) {
            const T *row = k0 + i == c.pos ? c.new_v : c.v + (k0 + i) * c.step;
            out += p[i] * tti_widen<A>(row[slice + column]);
        }
    }
    parts[threadIdx.x] = out;
    __syncthreads();
    if (group > 0 || !works) return;
    for (int i = 1; i < n_groups; i++) out += parts[i * span + column];
    ((T *)a.y)[(b * v.heads + h) * v.dim + slice + column] = tti_narrow<T>(inside ? out / l : (A)0);
}

/* The new key and value into row pos of the caches. */
template <class T>
__global__ void insert_kernel(tti_cuda_cached a, int64_t n) {
    int64_t step = (int64_t)a.heads.kv_heads * a.heads.dim, pos = *a.pos;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || pos < 0 || pos >= a.t_max) return;
    int64_t b = i / step, d = i % step, q = (int64_t)a.heads.heads * a.heads.dim;
    const T *from = (const T *)a.qkv + b * (q + 2 * step) + q + d;
    int64_t to = (b * a.t_max + pos) * step + d;
    ((T *)a.k_out)[to] = from[0];
    ((T *)a.v_out)[to] = from[step];
}

template <class T>
static void cached(const tti_cuda_cached *a, cudaStream_t stream) {
    const tti_cuda_heads *v = &a->heads;
    int slices = (v->dim + THREADS - 1) / THREADS;
    int64_t n = v->n_batch * v->kv_heads * v->dim;
    cached_kernel<T>
        <<<(unsigned)(v->n_batch * v->heads * slices), THREADS, 0, stream>>>(*a, slices);
    insert_kernel<T><<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(*a, n);
}

/* ---- lengths ---- */

__global__ void lengths_kernel(int64_t n, int32_t n_t, const int32_t *lengths, int32_t *queries,
                               int32_t *keys) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int32_t length = lengths[i];
    queries[i] = n_t;
    keys[i] = length < 1 ? 1 : length < n_t ? length : n_t;
}

/* A block for each sample, away at once where there are keys. */
__global__ void mend_kernel(tti_cuda_attention a) {
    const tti_cuda_heads &v = a.heads;
    for (int64_t b = blockIdx.x; b < v.n_batch; b += gridDim.x) {
        if (a.lengths[b] > 0) continue;
        int64_t n_y = v.n_t * v.heads * v.dim, n_lse = v.n_t * v.heads;
        uint16_t *y = (uint16_t *)a.y + b * n_y;
        for (int64_t i = threadIdx.x; i < n_y; i += blockDim.x) y[i] = 0;
        for (int64_t i = threadIdx.x; i < n_lse; i += blockDim.x) a.lse[b * n_lse + i] = 0;
    }
}

/* A block for each position: all of it where the sample has no keys, else key and value where it
 * is beyond the length. */
__global__ void mend_grad_kernel(tti_cuda_attention a, int64_t n_rows) {
    const tti_cuda_heads &v = a.heads;
    int64_t width = (int64_t)(v.heads + 2 * v.kv_heads) * v.dim;
    for (int64_t row = blockIdx.x; row < n_rows; row += gridDim.x) {
        int32_t length = a.lengths[row / v.n_t];
        if (row % v.n_t < length) continue;
        uint16_t *to = (uint16_t *)a.dqkv + row * width;
        int64_t first = length > 0 ? (int64_t)v.heads * v.dim : 0;
        for (int64_t i = first + threadIdx.x; i < width; i += blockDim.x) to[i] = 0;
    }
}

}  // namespace

/* ---- launchers ---- */

static size_t element_bytes(tutti_dtype dtype) {
    return dtype == TUTTI_F64 ? 8 : dtype == TUTTI_F32 ? 4 : 2;
}

extern "C" cudaError_t tti_cuda_attention_cached(const tti_cuda_cached *a, cudaStream_t stream) {
    const tti_cuda_heads *v = &a->heads;
    size_t bytes = (size_t)(v->n_batch * a->t_max * v->kv_heads * v->dim) * element_bytes(a->dtype);
    const void *from[2] = {a->k_in, a->v_in};
    void *to[2] = {a->k_out, a->v_out};
    if (v->n_batch == 0) return cudaSuccess;
    for (int i = 0; i < 2; i++) {
        if (bytes == 0 || from[i] == to[i]) continue;
        cudaError_t error =
            cudaMemcpyAsync(to[i], from[i], bytes, cudaMemcpyDeviceToDevice, stream);
        if (error != cudaSuccess) return error;
    }
    TTI_FLOAT_DISPATCH(a->dtype, cached<T>(a, stream));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_attention_lengths(const tti_cuda_heads *heads,
                                                  const int32_t *lengths, int32_t *queries,
                                                  int32_t *keys, cudaStream_t stream) {
    int64_t n = heads->n_batch;
    if (n == 0) return cudaSuccess;
    lengths_kernel<<<(unsigned)((n + 127) / 128), 128, 0, stream>>>(n, (int32_t)heads->n_t, lengths,
                                                                    queries, keys);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_attention_mend(const tti_cuda_attention *a, cudaStream_t stream) {
    int64_t n = a->heads.n_batch;
    if (n == 0 || a->heads.n_t == 0) return cudaSuccess;
    mend_kernel<<<(unsigned)(n < 65536 ? n : 65536), 256, 0, stream>>>(*a);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_attention_mend_grad(const tti_cuda_attention *a,
                                                    cudaStream_t stream) {
    int64_t n = a->heads.n_batch * a->heads.n_t;
    if (n == 0) return cudaSuccess;
    mend_grad_kernel<<<(unsigned)(n < 65536 ? n : 65536), 128, 0, stream>>>(*a, n);
    return cudaGetLastError();
}

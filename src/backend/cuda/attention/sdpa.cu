/* sdpa.cu - attention with separate queries, keys and values, with everything that the op's
 * record allows: the fallback for every case without a faster kernel.  A block has one query of
 * one head, and its weights in shared memory; the gradient of keys and values has a block for
 * each key, which adds the queries in their order. */
#include "backend/cuda/attention/sdpa.h"
#include "backend/cuda/runtime/device.cuh"
#include "base/philox.h"

namespace {

enum { THREADS = 128, SAMPLE_BITS = 28, MOST_BLOCKS = 0x7fffffff };

template <class T, class A>
__device__ __forceinline__ A dot(const T *x, const T *y, size_t n) {
    A sum = 0;
    for (size_t i = 0; i < n; i++) sum += tti_widen<A>(x[i]) * tti_widen<A>(y[i]);
    return sum;
}

/* One query of one head. */
struct query {
    size_t b, h, t, kv;
};

__device__ __forceinline__ query query_of(const tti_sdpa &v, size_t block) {
    query r;
    r.t = block % v.n_t;
    r.h = block / v.n_t % v.heads;
    r.b = block / v.n_t / v.heads;
    r.kv = r.h / (v.heads / v.kv_heads);
    return r;
}

template <class T>
__device__ __forceinline__ const T *q_of(const tti_cuda_sdpa &a, const query &r) {
    const tti_sdpa &v = a.sizes;
    return (const T *)a.q + ((r.b * v.n_t + r.t) * v.heads + r.h) * v.dim;
}
__device__ __forceinline__ size_t y_at(const tti_sdpa &v, const query &r) {
    return ((r.b * v.n_t + r.t) * v.heads + r.h) * v.v_dim;
}
__device__ __forceinline__ size_t row_at(const tti_sdpa &v, const query &r) {
    return (r.b * v.heads + r.h) * v.n_t + r.t;
}
__device__ __forceinline__ size_t row_of(const tti_sdpa &v, const query &r, size_t j) {
    return (r.b * v.n_s + j) * v.kv_heads + r.kv;
}

/* Whether the query attends to key j.  Only what it does not attend to is left out of a sum: a
 * weight of 0 times NaN is NaN. */
__device__ __forceinline__ bool sees(const tti_cuda_sdpa &a, const query &r, size_t j) {
    const tti_sdpa &v = a.sizes;
    size_t first, end;
    tti_sdpa_range(&v, r.t, &first, &end);
    if (j < first || j >= end) return false;
    return !a.query_segments ||
           a.query_segments[r.b * v.n_t + r.t] == a.key_segments[r.b * v.n_s + j];
}

/* The score of key j, -inf if it is not seen; *slope: by the product. */
template <class T, class A>
__device__ A score(const tti_cuda_sdpa &a, const query &r, size_t j, A *slope) {
    const tti_sdpa &v = a.sizes;
    *slope = (A)v.scale;
    if (!sees(a, r, j)) return (A)-INFINITY;
    A s = (A)v.scale * dot<T, A>(q_of<T>(a, r), (const T *)a.k + row_of(v, r, j) * v.dim, v.dim);
    if (v.softcap > 0) {
        A turned = (A)tanh((double)(s / (A)v.softcap));
        s = (A)v.softcap * turned;
        *slope *= 1 - turned * turned;
    }
    if (!a.bias) return s;
    A bias =
        tti_widen<A>(((const T *)a.bias)[tti_sdpa_bias_at(&v, r.b, r.h, r.t) + j * v.bias_step[3]]);
    if (!tti_sdpa_is_replaced(v.replaces, (float)bias)) return s + bias;
    *slope = 0;
    return bias;
}

/* The factor of weight j: 0 of a dropped one. */
template <class A>
__device__ A kept(const tti_cuda_sdpa &a, const query &r, size_t j) {
    const tti_sdpa &v = a.sizes;
    if (v.p == 0) return 1;
    uint64_t e = tti_sdpa_weight(&v, r.h, r.t) + j, sample = a.run->sample0 + r.b;
    uint64_t key = tti_mix64(a.run->seed, v.key);
    tti_philox x = tti_philox_draw(key, a.run->step, (sample << SAMPLE_BITS) + e / 4);
    return tti_philox_unit(x.v[e % 4]) >= (float)v.p ? (A)(1 / (1 - v.p)) : (A)0;
}

/* A weight of a row with the sum e^log_sum.  s - max comes first: it is exact where both are huge,
 * such as where a finite bias hides all keys. */
template <class A>
__device__ __forceinline__ A weight_of(A s, A max, A log_sum) {
    return s == (A)-INFINITY ? (A)0 : tti_exp(s - max - log_sum);
}

__device__ __forceinline__ double warp_max(double x) {
    for (int d = 16; d > 0; d /= 2) x = fmax(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}
__device__ __forceinline__ float warp_max(float x) { return tti_warp_max(x); }

template <class A>
__device__ A block_max(A x, A *shared) {
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_max(threadIdx.x % 32 < THREADS / 32 ? shared[threadIdx.x % 32] : (A)-INFINITY);
}

template <class T>
__global__ void __launch_bounds__(THREADS) forward_kernel(tti_cuda_sdpa a) {
    typedef typename tti_acc<T>::type A;
    extern __shared__ unsigned char memory[];
    __shared__ A shared[32];
    A *p = (A *)memory, max = (A)-INFINITY, sum = 0, slope;
    const tti_sdpa &v = a.sizes;
    query r = query_of(v, blockIdx.x);
    for (size_t j = threadIdx.x; j < v.n_s; j += THREADS) {
        p[j] = score<T, A>(a, r, j, &slope);
        max = p[j] > max ? p[j] : max;
    }
    max = block_max(max, shared);
    if (max == (A)-INFINITY) max = 0;
    for (size_t j = threadIdx.x; j < v.n_s; j += THREADS) sum += p[j] = weight_of(p[j], max, (A)0);
    sum = tti_block_sum(sum, shared);
    for (size_t j = threadIdx.x; v.p > 0 && j < v.n_s; j += THREADS) p[j] *= kept<A>(a, r, j);
    if (threadIdx.x == 0) {
        ((A *)a.max)[row_at(v, r)] = sum == 0 ? (A)0 : max;
        ((A *)a.log_sum)[row_at(v, r)] = sum == 0 ? (A)0 : (A)log((double)sum);
    }
    __syncthreads();
    for (size_t d = threadIdx.x; d < v.v_dim; d += THREADS) {
        A y = 0;
        for (size_t j = 0; j < v.n_s; j++)
            if (sees(a, r, j))
                y += p[j] * tti_widen<A>(((const T *)a.v)[row_of(v, r, j) * v.v_dim + d]);
        ((T *)a.y)[y_at(v, r) + d] = tti_narrow<T>(sum == 0 ? (A)0 : y / sum);
    }
}

/* mean and dq of one query. */
template <class T>
__global__ void __launch_bounds__(THREADS) query_kernel(tti_cuda_sdpa a) {
    typedef typename tti_acc<T>::type A;
    extern __shared__ unsigned char memory[];
    __shared__ A shared[32];
    A *ds = (A *)memory, mean = 0, slope;
    const tti_sdpa &v = a.sizes;
    query r = query_of(v, blockIdx.x);
    const T *dy = (const T *)a.dy + y_at(v, r), *y = (const T *)a.y + y_at(v, r);
    for (size_t d = threadIdx.x; d < v.v_dim; d += THREADS)
        mean += tti_widen<A>(dy[d]) * tti_widen<A>(y[d]);
    mean = tti_block_sum(mean, shared);
    if (threadIdx.x == 0) ((A *)a.mean)[row_at(v, r)] = mean;
    A max = ((const A *)a.max)[row_at(v, r)], log_sum = ((const A *)a.log_sum)[row_at(v, r)];
    for (size_t j = threadIdx.x; j < v.n_s; j += THREADS) {
        A p = weight_of(score<T, A>(a, r, j, &slope), max, log_sum);
        A dp = 0;
        if (sees(a, r, j))
            dp = dot<T, A>(dy, (const T *)a.v + row_of(v, r, j) * v.v_dim, v.v_dim) *
                 kept<A>(a, r, j);
        ds[j] = sees(a, r, j) ? p * (dp - mean) * slope : (A)0;
    }
    __syncthreads();
    for (size_t d = threadIdx.x; d < v.dim; d += THREADS) {
        A dq = 0;
        for (size_t j = 0; j < v.n_s; j++)
            if (sees(a, r, j))
                dq += ds[j] * tti_widen<A>(((const T *)a.k)[row_of(v, r, j) * v.dim + d]);
        ((T *)a.dq)[((r.b * v.n_t + r.t) * v.heads + r.h) * v.dim + d] = tti_narrow<T>(dq);
    }
}

/* p m and the gradient of the score of one query and key. */
template <class T, class A>
__device__ void weigh(const tti_cuda_sdpa &a, const query &r, size_t j, A *p, A *ds, A *slope) {
    const tti_sdpa &v = a.sizes;
    size_t row = row_at(v, r);
    A own = weight_of(score<T, A>(a, r, j, slope), ((const A *)a.max)[row],
                      ((const A *)a.log_sum)[row]);
    A m = kept<A>(a, r, j);
    *p = own * m;
    *ds = 0;
    if (!sees(a, r, j)) return;
    A dp = dot<T, A>((const T *)a.dy + y_at(v, r), (const T *)a.v + row_of(v, r, j) * v.v_dim,
                     v.v_dim);
    *ds = own * (m * dp - ((const A *)a.mean)[row]);
}

/* dk and dv of one key. */
template <class T>
__global__ void __launch_bounds__(THREADS) key_kernel(tti_cuda_sdpa a) {
    typedef typename tti_acc<T>::type A;
    extern __shared__ unsigned char memory[];
    const tti_sdpa &v = a.sizes;
    A *p = (A *)memory, *ds = p + v.n_t;
    size_t j = blockIdx.x % v.n_s, group = v.heads / v.kv_heads, widest = v.dim;
    query r = {blockIdx.x / v.n_s / v.kv_heads, 0, 0, blockIdx.x / v.n_s % v.kv_heads};
    size_t row = row_of(v, r, j);
    if (v.v_dim > widest) widest = v.v_dim;
    for (size_t d0 = 0; d0 < widest; d0 += THREADS) {
        size_t d = d0 + threadIdx.x;
        A dk = 0, dv = 0;
        for (r.h = r.kv * group; r.h < (r.kv + 1) * group; r.h++) {
            __syncthreads();
            for (size_t t = threadIdx.x; t < v.n_t; t += THREADS) {
                A slope;
                query own = {r.b, r.h, t, r.kv};
                weigh<T, A>(a, own, j, p + t, ds + t, &slope);
                ds[t] *= slope;
            }
            __syncthreads();
            for (size_t t = 0; t < v.n_t; t++) {
                query own = {r.b, r.h, t, r.kv};
                if (!sees(a, own, j)) continue;
                if (d < v.dim) dk += ds[t] * tti_widen<A>(q_of<T>(a, own)[d]);
                if (d < v.v_dim) dv += p[t] * tti_widen<A>(((const T *)a.dy)[y_at(v, own) + d]);
            }
        }
        if (d < v.dim) ((T *)a.dk)[row * v.dim + d] = tti_narrow<T>(dk);
        if (d < v.v_dim) ((T *)a.dv)[row * v.v_dim + d] = tti_narrow<T>(dv);
    }
}

/* One element of dbias for each block: the gradients of all scores that it was added to. */
template <class T>
__global__ void __launch_bounds__(THREADS) bias_kernel(tti_cuda_sdpa a) {
    typedef typename tti_acc<T>::type A;
    __shared__ A shared[32];
    const tti_sdpa &v = a.sizes;
    size_t at[4], n[4], full[4] = {v.n_batch, v.heads, v.n_t, v.n_s}, left = blockIdx.x, sums = 1;
    for (int d = 3; d >= 0; d--) {
        at[d] = left % a.dbias[d], left /= a.dbias[d];
        n[d] = full[d] / a.dbias[d]; /* of a sample's dimension rows may repeat */
        sums *= n[d];
    }
    A sum = 0;
    for (size_t i = threadIdx.x; i < sums; i += THREADS) {
        size_t j = at[3] + i % n[3], t = at[2] + i / n[3] % n[2];
        size_t h = at[1] + i / n[3] / n[2] % n[1], b = at[0] + i / n[3] / n[2] / n[1] * a.dbias[0];
        A p, ds, slope;
        query r = {b, h, t, h / (v.heads / v.kv_heads)};
        weigh<T, A>(a, r, j, &p, &ds, &slope);
        sum += ds;
    }
    sum = tti_block_sum(sum, shared);
    if (threadIdx.x == 0) ((T *)a.dbias_out)[blockIdx.x] = tti_narrow<T>(sum);
}

size_t acc_bytes(tutti_dtype dtype) { return dtype == TUTTI_F64 ? 8 : 4; }

template <class K>
cudaError_t allow(K *kernel, size_t shared) {
    if (shared <= 48 * 1024) return cudaSuccess;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
}

template <class T>
cudaError_t forward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    const tti_sdpa *v = &a->sizes;
    size_t blocks = v->n_batch * v->heads * v->n_t, shared = v->n_s * acc_bytes(a->dtype);
    if (blocks > MOST_BLOCKS) return cudaErrorInvalidValue;
    cudaError_t error = allow(forward_kernel<T>, shared);
    if (error != cudaSuccess) return error;
    forward_kernel<T><<<(unsigned)blocks, THREADS, shared, stream>>>(*a);
    return cudaGetLastError();
}

template <class T>
cudaError_t backward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    const tti_sdpa *v = &a->sizes;
    size_t queries = v->n_batch * v->heads * v->n_t, keys = v->n_batch * v->kv_heads * v->n_s;
    size_t of_query = v->n_s * acc_bytes(a->dtype), of_key = 2 * v->n_t * acc_bytes(a->dtype);
    if (queries > MOST_BLOCKS || keys > MOST_BLOCKS || a->n_dbias > MOST_BLOCKS)
        return cudaErrorInvalidValue;
    cudaError_t error = allow(query_kernel<T>, of_query);
    if (error == cudaSuccess) error = allow(key_kernel<T>, of_key);
    if (error != cudaSuccess) return error;
    if (queries > 0) query_kernel<T><<<(unsigned)queries, THREADS, of_query, stream>>>(*a);
    if (keys > 0) key_kernel<T><<<(unsigned)keys, THREADS, of_key, stream>>>(*a);
    if (a->n_dbias > 0) bias_kernel<T><<<(unsigned)a->n_dbias, THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

}  // namespace

extern "C" size_t tti_sdpa_shared_bytes(const tti_cuda_sdpa *a) {
    size_t n =
        a->sizes.saved >= 0 && 2 * a->sizes.n_t > a->sizes.n_s ? 2 * a->sizes.n_t : a->sizes.n_s;
    return n * acc_bytes(a->dtype);
}

extern "C" cudaError_t tti_launch_sdpa(const tti_cuda_sdpa *a, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    if (a->sizes.n_batch * a->sizes.n_t == 0) return error;
    TTI_FLOAT_DISPATCH(a->dtype, { error = forward<T>(a, stream); })
    return error;
}

extern "C" cudaError_t tti_launch_sdpa_grad(const tti_cuda_sdpa *a, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    TTI_FLOAT_DISPATCH(a->dtype, { error = backward<T>(a, stream); })
    return error;
}

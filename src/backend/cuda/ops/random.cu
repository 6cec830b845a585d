/* random.cu - dropout and drop_path: masks from a counter-based generator, computed where they are
 * used.
 *
 * Element e of sample s is kept if draw (key, step, s*2^28 + e/4), lane e%4, is at least p; e
 * counts in N,C,H,W order whatever the layout.  The bits are those of src/ops/random.c. */
#include "backend/cuda/ops/random.h"
#include "backend/cuda/runtime/device.cuh"
#include "base/philox.h"
#include "ops/draw.h"

enum { THREADS = 256, SAMPLE_BITS = 28 };

typedef struct dropout_args {
    const void *x;
    void *y;
    const tti_run *run;
    uint64_t key, n;    /* n: threads with work */
    tti_divider sample; /* how many of them a sample has */
    tti_divider pixels; /* of a sample in H,W,C order */
    uint64_t per_sample, n_channels;
    double scale;
    uint32_t limit; /* of the upper 24 bits: keep from here on, the same as unit >= p */
} dropout_args;

__device__ __forceinline__ tti_philox draw(const dropout_args &a, uint64_t sample, uint64_t quad) {
    uint64_t key = tti_mix64(a.run->seed, a.key);
    return tti_philox_draw(key, a.run->step, ((a.run->sample0 + sample) << SAMPLE_BITS) + quad);
}

/* A dropped x is 0 as x - x, so that NaN stays. */
template <class A>
__device__ __forceinline__ A masked(A x, uint32_t bits, uint32_t limit, A scale) {
    return (bits >> 8) >= limit ? x * scale : x - x;
}

/* A thread has V elements of one sample, whole draws. */
template <class T, int V, bool BY_SAMPLE>
__global__ void __launch_bounds__(THREADS) vector_kernel(const __grid_constant__ dropout_args a) {
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    tti_vec<T, V> raw = *((const tti_vec<T, V> *)a.x + i); /* on its way during the draws */
    uint64_t sample = tti_divide(i, a.sample), quad = (i - sample * a.sample.by) * (V / 4);
    float scale = (float)a.scale, x[V];
    uint32_t bits[V];
#pragma unroll
    for (int q = 0; q < V; q += 4) {
        tti_philox r = draw(a, sample, BY_SAMPLE ? 0 : quad + q / 4);
#pragma unroll
        for (int j = 0; j < 4; j++) bits[q + j] = r.v[BY_SAMPLE ? 0 : j];
    }
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = masked(tti_to_f32(raw.v[j]), bits[j], a.limit, scale);
    tti_store((T *)a.y + i * V, x);
}

/* A thread has one draw, up to four elements, in any layout. */
template <class T, bool BY_SAMPLE>
__global__ void __launch_bounds__(THREADS) quad_kernel(const __grid_constant__ dropout_args a) {
    typedef typename tti_acc<T>::type A;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    uint64_t sample = tti_divide(i, a.sample), quad = i - sample * a.sample.by;
    tti_philox r = draw(a, sample, BY_SAMPLE ? 0 : quad);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        uint64_t e = quad * 4 + j, at = e;
        if (e >= a.per_sample) return;
        if (a.n_channels) {
            uint64_t channel = tti_divide(e, a.pixels);
            at = (e - channel * a.pixels.by) * a.n_channels + channel;
        }
        at += sample * a.per_sample;
        A x = tti_to_acc(((const T *)a.x)[at]);
        tti_from_acc((T *)a.y + at, masked(x, r.v[BY_SAMPLE ? 0 : j], a.limit, (A)a.scale));
    }
}

/* A thread has one draw of four numbers, as quad_kernel has. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    noise_kernel(const __grid_constant__ dropout_args a, bool normal) {
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    uint64_t sample = tti_divide(i, a.sample), quad = i - sample * a.sample.by;
    tti_philox r = draw(a, sample, quad);
    double x[4];
    for (int j = 0; j < 4; j++) x[j] = tti_philox_unit(r.v[j]);
    if (normal) tti_draw_normals(r.v[0], r.v[1], &x[0], &x[1]);
    if (normal) tti_draw_normals(r.v[2], r.v[3], &x[2], &x[3]);
    for (int j = 0; j < 4; j++) {
        uint64_t e = quad * 4 + j, at = e;
        if (e >= a.per_sample) return;
        if (a.n_channels) {
            uint64_t channel = tti_divide(e, a.pixels);
            at = (e - channel * a.pixels.by) * a.n_channels + channel;
        }
        tti_from_acc((T *)a.y + at + sample * a.per_sample, (typename tti_acc<T>::type)x[j]);
    }
}

static dropout_args args_of(const tti_dropout_desc *desc, const void *x, void *y,
                            const tti_run *run) {
    dropout_args a = {};
    a.x = x, a.y = y, a.run = run;
    a.key = desc->key;
    a.per_sample = desc->per_sample, a.n_channels = desc->n_channels;
    a.pixels = tti_divider_of(desc->n_pixels ? desc->n_pixels : 1);
    a.sample = tti_divider_of((desc->per_sample + 3) / 4);
    a.n = (desc->per_sample + 3) / 4 * desc->n_samples;
    return a;
}

extern "C" cudaError_t tti_cuda_noise(const tti_dropout_desc *desc, bool normal, void *y,
                                      const tti_run *run, cudaStream_t stream) {
    uint64_t n = desc->n_samples * desc->per_sample;
    if (n == 0) return cudaSuccess;
    if (n > (uint64_t)THREADS * 0x7FFFFFFF) return cudaErrorInvalidValue;
    dropout_args a = args_of(desc, nullptr, y, run);
    unsigned n_blocks = (unsigned)((a.n + THREADS - 1) / THREADS);
    TTI_FLOAT_DISPATCH(desc->dtype,
                       { noise_kernel<T><<<n_blocks, THREADS, 0, stream>>>(a, normal); })
    return cudaGetLastError();
}

__global__ void __launch_bounds__(THREADS)
    batch_rows_kernel(const int32_t *there, int32_t *rows, size_t n, const tti_run *run) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) rows[i] = there[i] == -1 ? -1 : (int32_t)(run->sample0 + i);
}

extern "C" cudaError_t tti_cuda_batch_rows(const int32_t *there, int32_t *rows, size_t n,
                                           const tti_run *run, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (n > (size_t)THREADS * 0x7FFFFFFF) return cudaErrorInvalidValue;
    unsigned n_blocks = (unsigned)((n + THREADS - 1) / THREADS);
    batch_rows_kernel<<<n_blocks, THREADS, 0, stream>>>(there, rows, n, run);
    return cudaGetLastError();
}

template <class T, int V>
static void launch(const tti_dropout_desc *d, dropout_args *a, cudaStream_t stream) {
    bool whole = V > 1 && !d->n_channels && d->per_sample % V == 0;
    uint64_t of_sample = whole ? d->per_sample / V : (d->per_sample + 3) / 4;
    a->sample = tti_divider_of(of_sample);
    a->n = of_sample * d->n_samples;
    unsigned n_blocks = (unsigned)((a->n + THREADS - 1) / THREADS);
    if constexpr (V > 1) {
        if (whole && d->by_sample)
            vector_kernel<T, V, true><<<n_blocks, THREADS, 0, stream>>>(*a);
        else if (whole)
            vector_kernel<T, V, false><<<n_blocks, THREADS, 0, stream>>>(*a);
        if (whole) return;
    }
    if (d->by_sample)
        quad_kernel<T, true><<<n_blocks, THREADS, 0, stream>>>(*a);
    else
        quad_kernel<T, false><<<n_blocks, THREADS, 0, stream>>>(*a);
}

extern "C" cudaError_t tti_cuda_dropout(const tti_dropout_desc *desc, const void *x, void *y,
                                        const tti_run *run, cudaStream_t stream) {
    uint64_t n = desc->n_samples * desc->per_sample;
    if (n == 0) return cudaSuccess;
    if (n > (uint64_t)THREADS * 0x7FFFFFFF) return cudaErrorInvalidValue;
    dropout_args a = args_of(desc, x, y, run);
    a.scale = 1 / (1 - desc->p);
    double limit = (double)(float)desc->p * 0x1p24;
    a.limit = (uint32_t)limit + ((double)(uint32_t)limit < limit);
    TTI_FLOAT_DISPATCH(desc->dtype, {
        constexpr int V = sizeof(T) == 8 ? 1 : 16 / sizeof(T);
        launch<T, V>(desc, &a, stream);
    })
    return cudaGetLastError();
}

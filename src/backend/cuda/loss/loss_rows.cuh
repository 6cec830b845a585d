/* loss_rows.cuh - code shared by the kernels of cross entropy: statistics of a row of logits, and
 * the sums over the rows. */
#ifndef TTI_LOSS_ROWS_CUH
#define TTI_LOSS_ROWS_CUH

#include "backend/cuda/loss/loss.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { FINISH_THREADS = 1024 };

__device__ __forceinline__ float exponential(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}
__device__ __forceinline__ double exponential(double x) { return exp(x); }

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

template <class A>
struct seen {
    A max, sum; /* of e^(x - max) */
    A total;    /* of x, if needed */
    int beaten; /* the label's logit is not the first maximum */
};

/* The statistics of a row. */
template <class A>
struct wanted {
    A own; /* the label's logit */
    size_t label;
    bool total;
};

template <int N, class A>
__device__ __forceinline__ void see(seen<A> &s, const A (&x)[N], size_t first, const wanted<A> &w) {
    A best = x[0];
#pragma unroll
    for (int i = 1; i < N; i++) best = larger(best, x[i]);
    A max = larger(s.max, best), base = max == -INFINITY ? (A)0 : max;
    A sum = s.sum * exponential(s.max - base);
#pragma unroll
    for (int i = 0; i < N; i++) sum += exponential(x[i] - base);
    s.max = max;
    s.sum = sum;
    if (w.total)
#pragma unroll
        for (int i = 0; i < N; i++) s.total += x[i];
    if (first + N <= w.label) {
        s.beaten |= best >= w.own;
    } else if (first > w.label) {
        s.beaten |= best > w.own;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) s.beaten |= first + i < w.label ? x[i] >= w.own : x[i] > w.own;
    }
}

template <class A>
__device__ __forceinline__ seen<A> join(const seen<A> &a, const seen<A> &b) {
    A max = larger(a.max, b.max), base = max == -INFINITY ? (A)0 : max;
    seen<A> s;
    s.max = max;
    s.sum = a.sum * exponential(a.max - base) + b.sum * exponential(b.max - base);
    s.total = a.total + b.total;
    s.beaten = a.beaten | b.beaten;
    return s;
}

/* All lanes of a warp get the combined statistics of their 2 * FROM neighbours. */
template <int FROM, class A>
__device__ __forceinline__ seen<A> join_lanes(seen<A> s) {
#pragma unroll
    for (int d = FROM; d > 0; d /= 2) {
        seen<A> other;
        other.max = __shfl_xor_sync(0xffffffffu, s.max, d);
        other.sum = __shfl_xor_sync(0xffffffffu, s.sum, d);
        other.total = __shfl_xor_sync(0xffffffffu, s.total, d);
        other.beaten = __shfl_xor_sync(0xffffffffu, s.beaten, d);
        s = join(s, other);
    }
    return s;
}

/* All threads of a group of G (a warp, or the block) get the combined statistics of the group.  A
 * block that calls it repeatedly alternates turns 0 and 1. */
template <int G, class A>
__device__ __forceinline__ seen<A> join_group(seen<A> s, int turn = 0) {
    __shared__ seen<A> shared[2][G / 32]; /* a power of 2, at most 32 */
    s = join_lanes<16>(s);
    if (G == 32) return s;
    if (threadIdx.x % 32 == 0) shared[turn][threadIdx.x / 32] = s;
    __syncthreads();
    s = shared[turn][threadIdx.x % (G / 32)];
    return join_lanes<G / 64>(s);
}
struct entropy {
    const int32_t *labels;
    size_t n_rows, n;
    int64_t ignore;
    double smoothing;
};

inline entropy entropy_of(const tti_entropy_rows *r) {
    entropy e = {r->labels, r->n_rows, r->n_classes, r->ignore, r->smoothing};
    return e;
}

template <class T, int G>
__device__ __forceinline__ void fill_row(T *dx, size_t n, unsigned lane, float value) {
    for (size_t i = lane; i < n; i += G) dx[i] = tti_from_f32<T>(value);
}

/* found[row]: its loss, 1 if its first maximum is the label; P: a pair of numbers.  One block. */
template <class P>
__global__ void __launch_bounds__(FINISH_THREADS)
    entropy_finish(const P *found, entropy e, float *loss, float *count, float *correct) {
    __shared__ double shared[32];
    double sum = 0, kept = 0, right = 0;
#pragma unroll 4
    for (size_t r = threadIdx.x; r < e.n_rows; r += FINISH_THREADS) {
        P f = found[r];
        sum += f.x;
        right += f.y;
        kept += e.labels[r] != e.ignore;
    }
    sum = tti_block_sum(sum, shared);
    right = tti_block_sum(right, shared);
    kept = tti_block_sum(kept, shared);
    if (threadIdx.x) return;
    *loss = (float)sum, *count = (float)kept, *correct = (float)right;
}

}  // namespace

#endif /* TTI_LOSS_ROWS_CUH */

/* update.cuh - code shared by the kernels that update parameters: update.cu, and peers_update.cu,
 * which also adds the gradients of several devices.  The bits are the same, so neither file may be
 * contracted (cmake/cuda.cmake). */
#ifndef TTI_UPDATE_CUH
#define TTI_UPDATE_CUH

#include "backend/cuda/optim/optim.cuh"
#include "backend/cuda/runtime/device.cuh"
#include "base/philox.h"

enum { TTI_UPDATE_THREADS = 256, TTI_UPDATE_STRIDE = TTI_UPDATE_THREADS * 4 };

/* ---- numbers of the step ---- */

/* From the sums [n_shards][n_sums]; also the initial report before the update. */
__device__ __forceinline__ tti_hyper tti_make_hyper(const tti_update_view &u, const double *sums,
                                                    tti_step_report *report) {
    double count = 0, loss = 0;
    for (int s = 0; s < u.n_shards; s++) {
        const double *of = sums + u.n_sums * s;
        loss += of[0] - of[0]; /* 0, or NaN where it is not finite */
        count += of[1];
    }
    const tti_step_args a = *u.args;
    tti_hyper h;
    h.lr = a.lr;
    h.inv_count = (float)((count > 0 ? 1.0 / count : 0.0) / (double)a.loss_scale);
    h.clip = 1;
    h.step = (float)(a.step + 1);
    h.bias1 = a.correction1, h.bias2 = a.correction2;
    h.inv_rows = a.inv_rows;
    h.unused = 0;
    report->grad_norm = 0;
    report->params_hash = 0;
    report->bad = (a.keep_bad ? u.report->bad : 0) | (loss == 0 ? 0 : TTI_BAD_LOSS);
    report->reserved = 0;
    report->reported_ns = report->waited_ns = 0;
    return h;
}

/* ---- the hash of a block: backend.h defines it, cpu/isa.c is the CPU version ---- */

typedef struct tti_block_hash {
    uint32_t lane[TTI_HASH_LANES];      /* Horner's rule in 64 lanes */
    uint32_t power[TTI_UPDATE_THREADS]; /* of its factor: as many as a block has rounds of lanes */
} tti_block_hash;

__device__ __forceinline__ void tti_hash_powers(tti_block_hash &h) {
    uint32_t factor = 0x9E3779B1u, power = 1;
    for (uint32_t k = threadIdx.x; k; k >>= 1, factor *= factor)
        if (k & 1) power *= factor;
    if (threadIdx.x < TTI_UPDATE_THREADS) h.power[threadIdx.x] = power;
}

/* Begins the next block; every thread must call it. */
__device__ __forceinline__ void tti_hash_begin(tti_block_hash &h) {
    if (threadIdx.x < TTI_HASH_LANES) h.lane[threadIdx.x] = 0;
    __syncthreads();
}

/* Four neighbours at element i of n; the thread's lanes are the same in every round. */
__device__ __forceinline__ void tti_hash_four(const tti_block_hash &h, uint32_t n, uint32_t i,
                                              const float (&w)[4], uint32_t (&acc)[4]) {
    uint32_t n_chunks = (n + TTI_HASH_LANES - 1) / TTI_HASH_LANES;
    uint32_t power = h.power[n_chunks - 1 - i / TTI_HASH_LANES];
#pragma unroll
    for (int k = 0; k < 4; k++) acc[k] += i + k < n ? __float_as_uint(w[k]) * power : 0u;
}

/* The threads' lanes together; every thread must call it. */
__device__ __forceinline__ void tti_hash_lanes(tti_block_hash &h, const uint32_t (&acc)[4]) {
#pragma unroll
    for (int k = 0; k < 4; k++) atomicAdd(&h.lane[threadIdx.x % 16 * 4 + k], acc[k]);
    __syncthreads();
}

/* In one thread, from the lanes of all: lane(k). */
template <class Lane>
__device__ __forceinline__ uint64_t tti_hash_of_lanes(const Lane &lane, uint64_t first,
                                                      uint32_t n) {
    uint64_t hash = tti_mix64(first, n);
    for (int k = 0; k < 16; k += 2) {
        uint32_t pair[2];
        for (int j = 0; j < 2; j++) {
            pair[j] = lane(k + j);
            for (int r = 1; r < 4; r++) pair[j] = pair[j] * 0x85EBCA6Bu + lane(16 * r + k + j);
        }
        hash = tti_mix64(hash ^ ((uint64_t)pair[0] << 32 | pair[1]), (uint64_t)k);
    }
    return hash;
}

__device__ __forceinline__ uint64_t tti_hash_end(const tti_block_hash &h, uint64_t first,
                                                 uint32_t n) {
    return tti_hash_of_lanes([&](int k) { return h.lane[k]; }, first, n);
}

/* Adds the lanes of this part to those of the others: sums of integers, whose order does not
 * matter.  Returns true, with the lanes of all parts in h, for the last one. */
__device__ __forceinline__ bool tti_join_parts(const tti_update_view &u, int block, int n_parts,
                                               tti_block_hash &h) {
    __shared__ bool is_last;
    uint32_t *lanes = u.hash_lanes + (size_t)block * TTI_HASH_LANES;
    if (n_parts == 1) return true;
    if (threadIdx.x < TTI_HASH_LANES) atomicAdd(&lanes[threadIdx.x], h.lane[threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(&u.arrived[block], 1u) == (uint32_t)n_parts - 1;
    __syncthreads();
    if (!is_last) return false;
    __threadfence();
    if (threadIdx.x < TTI_HASH_LANES) h.lane[threadIdx.x] = atomicExch(&lanes[threadIdx.x], 0u);
    if (threadIdx.x == 0) atomicExch(&u.arrived[block], 0u);
    __syncthreads();
    return true;
}

/* ---- four elements ---- */

__device__ __forceinline__ void tti_average_four(const tti_update_view &u, bool buffer, size_t at,
                                                 const float (&w)[4]) {
    float decay = buffer ? 0.0f : u.ema_decay, rest = buffer ? 1.0f : u.ema_rest, a[4];
    tti_load<float, 4>(u.ema + at, a);
#pragma unroll
    for (int k = 0; k < 4; k++) a[k] = decay * a[k] + rest * w[k];
    tti_store<float, 4>(u.ema + at, a);
}

/* Rounds like the cast of a step. */
__device__ __forceinline__ void tti_narrow_four(const tti_update_view &u, size_t at,
                                                const float (&w)[4]) {
    if (u.low_dtype == TUTTI_BF16)
        tti_store<tti_bf16, 4>((tti_bf16 *)u.low_copies + at, w);
    else
        tti_store<tti_f16, 4>((tti_f16 *)u.low_copies + at, w);
}

/* Four neighbours of a block: parameters, the summed gradient, states. */
struct tti_four {
    float w[4], g[4], s[2][4];
};

/* All but the gradient. */
template <int N_STATES>
__device__ __forceinline__ void tti_load_four(const tti_update_view &u, const tti_update_block &b,
                                              uint32_t i, tti_four &f) {
    tti_load<float, 4>(u.params + b.params + i, f.w);
#pragma unroll
    for (int j = 0; j < N_STATES; j++)
        if (b.kind == TTI_BLOCK_TRAINED) tti_load<float, 4>(u.states[j] + b.state + i, f.s[j]);
}

template <int KIND, int N_STATES>
__device__ __forceinline__ void tti_train_four(const tti_update_view &u, const tti_update_block &b,
                                               const tti_hyper &h, uint32_t i, tti_four &f) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        tti_element e = {f.w[k], f.s[0][k], N_STATES > 1 ? f.s[1][k] : 0.0f, f.g[k], 0};
        tti_rule_step<KIND>(u.rule, h, b.decay, u.norms + 2 * b.slot, e);
        f.w[k] = e.w, f.s[0][k] = e.s0;
        if (N_STATES > 1) f.s[1][k] = e.s1;
    }
#pragma unroll
    for (int j = 0; j < N_STATES; j++) tti_store<float, 4>(u.states[j] + b.state + i, f.s[j]);
}

/* Parameters, states, averages and the copy in 16 bits; h with the rate of the block.  Slots are
 * padded to 16 elements, so four at once may run over the end of a block's own. */
template <int KIND, int N_STATES>
__device__ __forceinline__ void tti_update_four(const tti_update_view &u, const tti_update_block &b,
                                                const tti_hyper &h, uint32_t i, tti_four &f) {
    if (b.kind == TTI_BLOCK_TRAINED) tti_train_four<KIND, N_STATES>(u, b, h, i, f);
#pragma unroll
    for (int k = 0; b.kind == TTI_BLOCK_BUFFER && k < 4; k++)
        f.w[k] = (1 - b.decay) * f.w[k] + b.decay * h.inv_rows * f.g[k];
    if (b.kind != TTI_BLOCK_FROZEN) tti_store<float, 4>(u.params + b.params + i, f.w);
    if (u.ema) tti_average_four(u, b.kind == TTI_BLOCK_BUFFER, b.state + i, f.w);
    if (b.has_low_copy) tti_narrow_four(u, b.low_copy + i, f.w);
}

#endif /* TTI_UPDATE_CUH */

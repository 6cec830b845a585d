/* peers.cuh - code shared by kernels that wait for the kernels of other devices. */
#ifndef TTI_CUDA_PEERS_CUH
#define TTI_CUDA_PEERS_CUH

#include "backend/cuda/comm/peers.h"
#include "backend/cuda/runtime/clock.cuh"
#include "backend/cuda/runtime/device.cuh"

enum { TTI_PEERS_PATIENCE = 1024 /* looks at a flag before the clock is looked at */ };

/* Whether a wait since start must be aborted. */
static __device__ __noinline__ bool tti_is_hopeless(const tti_peers_view &v, uint64_t start) {
    volatile uint32_t *state = v.state;
    if (*state) return true;
    if (tti_now_ns() - start < v.timeout_ns) return false;
    *state = TTI_PEERS_LATE;
    __threadfence_system();
    return true;
}

/* ---- barriers of the same blocks of all ranks ---- */

/* Announces that this block has reached a barrier; called by one thread per rank, after
 * __syncthreads. */
__device__ __forceinline__ void tti_arrive(const tti_peers_view &v, int channel, uint32_t epoch) {
    uint32_t *there = &v.arena[threadIdx.x]->flags[channel][blockIdx.x][v.rank];
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(there), "r"(epoch) : "memory");
}

/* Returns when the rank of the thread's number has reached it. */
__device__ __forceinline__ void tti_await(const tti_peers_view &v, int channel, uint32_t epoch) {
    uint32_t *here = &v.arena[v.rank]->flags[channel][blockIdx.x][threadIdx.x], seen;
    uint64_t start = tti_now_ns();
    for (uint32_t n = 1;; n++) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(here) : "memory");
        if ((int32_t)(seen - epoch) >= 0) break;
        if (n % TTI_PEERS_PATIENCE == 0 && tti_is_hopeless(v, start)) break;
    }
}

/* Returns when the same block of every rank has reached this barrier. */
__device__ __forceinline__ void tti_peers_barrier(const tti_peers_view &v, int channel,
                                                  uint32_t epoch) {
    __syncthreads();
    if (threadIdx.x < v.n_ranks) {
        tti_arrive(v, channel, epoch);
        tti_await(v, channel, epoch);
    }
    __syncthreads();
}

/* The same, and adds up how long the first block waited; the addition's result is not needed, so it
 * does not block.  Returns it to that block's first thread. */
__device__ __forceinline__ uint64_t tti_peers_barrier_timed(const tti_peers_view &v, int channel,
                                                            uint32_t epoch) {
    bool counts = blockIdx.x == 0 && threadIdx.x == 0;
    uint64_t start = counts ? tti_now_ns() : 0;
    tti_peers_barrier(v, channel, epoch);
    if (!counts) return 0;
    uint64_t waited = tti_now_ns() - start;
    atomicAdd((unsigned long long *)&v.arena[v.rank]->waited_ns[channel],
              (unsigned long long)waited);
    return waited;
}

/* ---- values that ranks exchange: see tti_device_step_sums ---- */

__device__ __forceinline__ int tti_n_numbers(const tti_device_step_sums &t) {
    return t.n_sums * t.n_shards + 3 * t.n_ranks;
}

/* Number i of sums, hashes and votes: whether this rank contributes it; and its value, else 0. */
__device__ __forceinline__ bool tti_reports_bad(const tti_device_step_sums &t, int i) {
    int hash = i - t.n_sums * t.n_shards, vote = hash - 2 * t.n_ranks;
    if (hash < 0) return i >= t.n_sums * t.first_shard && i < t.n_sums * t.last_shard;
    return vote >= 0 ? vote == t.rank : hash / 2 == t.rank;
}

__device__ __forceinline__ double tti_numbers(const tti_device_step_sums &t, int i) {
    int hash = i - t.n_sums * t.n_shards, vote = hash - 2 * t.n_ranks;
    if (!tti_reports_bad(t, i)) return 0.0;
    if (hash < 0) return t.sums[i];
    if (vote >= 0) return (double)t.args->vote;
    uint64_t h = t.report->params_hash;
    return (double)(uint32_t)(hash % 2 ? h : h >> 32);
}

#endif /* TTI_CUDA_PEERS_CUH */

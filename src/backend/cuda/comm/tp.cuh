/* tp.cuh - synchronizes the blocks of a collective with those of the same number on the other
 * devices.
 *
 * Barriers are counted on the device, in 64 bits, two for each collective; one that needs fewer
 * still counts two. */
#ifndef TTI_CUDA_TP_CUH
#define TTI_CUDA_TP_CUH

#include "backend/cuda/comm/peers.cuh"
#include "backend/cuda/comm/tp.h"

/* Writes of all threads of the block are visible to blocks that have synchronized with it. */
__device__ __forceinline__ void tti_tp_barrier(const tti_peers_view &v, uint64_t epoch) {
    __syncthreads();
    if (threadIdx.x < v.n_ranks) {
        uint64_t *there = &v.arena[threadIdx.x]->tp_flags[blockIdx.x][v.rank], seen;
        uint64_t *here = &v.arena[v.rank]->tp_flags[blockIdx.x][threadIdx.x];
        uint64_t start = tti_now_ns();
        asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(there), "l"(epoch) : "memory");
        for (uint32_t n = 1;; n++) {
            asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(here) : "memory");
            if (seen >= epoch) break;
            if (n % TTI_PEERS_PATIENCE == 0 && tti_is_hopeless(v, start)) break;
        }
    }
    __syncthreads();
}

/* Barriers before this collective. */
__device__ __forceinline__ uint64_t tti_tp_epoch(const tti_peers_view &v) {
    return v.arena[v.rank]->tp_epochs[blockIdx.x];
}

/* Also counts for blocks that this collective did not have; all threads have synchronized. */
__device__ __forceinline__ void tti_tp_end(const tti_peers_view &v, uint64_t epoch) {
    uint64_t *epochs = v.arena[v.rank]->tp_epochs;
    uint32_t at = blockIdx.x + threadIdx.x * gridDim.x;
    if (at < TTI_TP_BLOCKS) epochs[at] = epoch + 2;
}

#endif /* TTI_CUDA_TP_CUH */

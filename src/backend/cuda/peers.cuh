/* peers.cuh - what kernels share that wait for the kernels of other devices. */
#ifndef TTI_CUDA_PEERS_CUH
#define TTI_CUDA_PEERS_CUH

#include "backend/cuda/device.cuh"
#include "backend/cuda/peers.h"

enum { TTI_PEERS_PATIENCE = 1024 /* looks at a flag before the clock is looked at */ };

__device__ __forceinline__ uint64_t tti_now_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

/* Whether a wait since start is to be given up. */
static __device__ __noinline__ bool tti_is_hopeless(const tti_peers_view &v, uint64_t start) {
    volatile uint32_t *state = v.state;
    if (*state) return true;
    if (tti_now_ns() - start < v.timeout_ns) return false;
    *state = TTI_PEERS_LATE;
    __threadfence_system();
    return true;
}

#endif /* TTI_CUDA_PEERS_CUH */

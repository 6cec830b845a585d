/* clock.cuh - the device's clock, which is the same for all kernels of a device. */
#ifndef TTI_CUDA_CLOCK_CUH
#define TTI_CUDA_CLOCK_CUH

#include <stdint.h>

__device__ __forceinline__ uint64_t tti_now_ns() {
    uint64_t t;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
    return t;
}

#endif /* TTI_CUDA_CLOCK_CUH */

/* cluster.cuh - blocks of a cluster that read each other's shared memory (sm_90; on older devices a
 * cluster is one block). */
#ifndef TTI_CLUSTER_CUH
#define TTI_CLUSTER_CUH

#include <cuda_runtime_api.h>
#include <stdint.h>
#include <string.h>

/* Every thread of every block of the cluster; earlier writes can be read afterwards. */
__device__ __forceinline__ void tti_sync_cluster() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

/* The value at an address of this block's shared memory, in that of block rank. */
template <class T>
__device__ __forceinline__ T tti_load_remote(const T *place, int rank) {
    static_assert(sizeof(T) % 4 == 0, "whole words");
    T value = *place;
#if __CUDA_ARCH__ >= 900
    uint32_t here = (uint32_t)__cvta_generic_to_shared(place), there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
    uint32_t words[sizeof(T) / 4];
    if constexpr (sizeof(T) == 16)
        asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(there)
                     : "memory");
    else
#pragma unroll
        for (int i = 0; i < (int)(sizeof(T) / 4); i++)
            asm volatile("ld.shared::cluster.u32 %0, [%1];"
                         : "=r"(words[i])
                         : "r"(there + 4 * i)
                         : "memory");
    memcpy(&value, words, sizeof value);
#endif
    return value;
}

#endif /* TTI_CLUSTER_CUH */

/* early.cuh - kernels that start while the previous one in the queue still runs, so that launch
 * latency is hidden (sm_90; no effect on older devices).
 *
 * A kernel launched by tti_launch_early must call tti_wait_for_before, in every thread, before it
 * accesses anything that an earlier kernel may write or still reads: the wait ends when the
 * previous kernel has ended and its writes are visible.  Before the wait only block-local work, and
 * reading parameters, is allowed: parameters change in updates, and arrive from other devices, and
 * between those and the next reader there is always a kernel that is launched normally, the
 * beginning of a step or tti_launch_nothing. */
#ifndef TTI_EARLY_CUH
#define TTI_EARLY_CUH

#include <cuda_runtime_api.h>

/* The next kernel may start, if it was launched early, once every block has called this. */
__device__ __forceinline__ void tti_let_next_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ __forceinline__ void tti_wait_for_before() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* kernel<<<grid, n_threads, n_shared, stream>>>(args...), early; cluster: blocks of one, along x.
 */
template <class... Params, class... Args>
cudaError_t tti_launch_early(void (*kernel)(Params...), dim3 grid, unsigned n_threads,
                             size_t n_shared, unsigned cluster, cudaStream_t stream, Args... args) {
    int device = 0, major = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaLaunchAttribute attrs[2] = {};
    attrs[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attrs[0].val.programmaticStreamSerializationAllowed = 1;
    attrs[1].id = cudaLaunchAttributeClusterDimension;
    attrs[1].val.clusterDim.x = cluster;
    attrs[1].val.clusterDim.y = attrs[1].val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(n_threads);
    config.dynamicSmemBytes = n_shared;
    config.stream = stream;
    bool early = major >= 9;
    config.attrs = early ? attrs : attrs + 1;
    config.numAttrs = (early ? 1 : 0) + (cluster > 1 ? 1 : 0);
    return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

#endif /* TTI_EARLY_CUH */

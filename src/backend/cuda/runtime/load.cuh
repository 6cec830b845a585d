/* load.cuh - loads kernels before a step runs: a first launch may wait for the device, which must
 * not happen while a kernel waits for a peer. */
#ifndef TTI_LOAD_CUH
#define TTI_LOAD_CUH

#include <cuda_runtime_api.h>

#include <initializer_list>

template <class Kernel>
cudaError_t tti_load_kernel(Kernel *kernel) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel);
}

template <class... Errors>
cudaError_t tti_first_error(Errors... errors) {
    for (cudaError_t error : {errors...})
        if (error != cudaSuccess) return error;
    return cudaSuccess;
}

template <class... Kernels>
cudaError_t tti_load_kernels(Kernels *...kernels) {
    return tti_first_error(tti_load_kernel(kernels)...);
}

#endif /* TTI_LOAD_CUH */

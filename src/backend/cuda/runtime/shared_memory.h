/* shared_memory.h - launches with more shared memory than the default limit. */
#ifndef TTI_CUDA_SHARED_MEMORY_H
#define TTI_CUDA_SHARED_MEMORY_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on launches of the kernel on this thread's device may have n_bytes of dynamic shared
 * memory.  The limit is never lowered: it is shared by all threads that launch the kernel there,
 * and workers that share a device use different sizes. */
cudaError_t tti_allow_shared(const void *kernel, size_t n_bytes);

/* The same for kernels that need several blocks per multiprocessor: also asks for the largest
 * shared memory, without which the driver may leave room for only one block. */
cudaError_t tti_make_room(const void *kernel, size_t n_bytes);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_SHARED_MEMORY_H */

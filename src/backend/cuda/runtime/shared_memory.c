/* shared_memory.c - see shared_memory.h.  Reads and raises the limit under one lock, so that of two
 * threads the one with the smaller launch does not lower it between the other's call and its
 * launch. */
#include "backend/cuda/runtime/shared_memory.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static cudaError_t raise_limit(const void *kernel, size_t n_bytes) {
    struct cudaFuncAttributes now;
    cudaError_t error = cudaFuncGetAttributes(&now, kernel);
    if (error != cudaSuccess || now.maxDynamicSharedSizeBytes >= (int)n_bytes) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
}

cudaError_t tti_allow_shared(const void *kernel, size_t n_bytes) {
    pthread_mutex_lock(&lock);
    cudaError_t error = raise_limit(kernel, n_bytes);
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t tti_make_room(const void *kernel, size_t n_bytes) {
    cudaError_t error = tti_allow_shared(kernel, n_bytes);
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                cudaSharedmemCarveoutMaxShared);
}

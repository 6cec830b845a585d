/* device_check.h - whether driver and device can be used by this build, and what to do if not. */
#ifndef TTI_CUDA_DEVICE_CHECK_H
#define TTI_CUDA_DEVICE_CHECK_H

#include <cuda_runtime_api.h>

#include "base/error.h"

/* Versions as CUDA has them (13000 is 13.0; driver 0: there is none); counted: what asking for the
 * number of devices came back with, which was n. */
typedef struct tti_cuda_found {
    int driver, runtime, n;
    cudaError_t counted;
} tti_cuda_found;

tutti_status tti_cuda_fits_driver(const tti_cuda_found *found);

/* loads: what loading a kernel there came back with; only what says that it has no code counts. */
tutti_status tti_cuda_fits_device(const char *name, int major, int minor, cudaError_t loads);

#endif /* TTI_CUDA_DEVICE_CHECK_H */

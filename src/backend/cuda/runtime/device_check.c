/* device_check.c - explains why no device can be used, and what to do.  Makes no CUDA calls itself.
 */
#include "backend/cuda/runtime/device_check.h"

/* Compute capabilities that the kernels are compiled for, "80-real,90-real,90-virtual". */
#ifndef TUTTI_CUDA_ARCHS
#define TUTTI_CUDA_ARCHS "unknown"
#endif

enum { OLDEST = 80 };

static int major_of(int version) { return version / 1000; }
static int minor_of(int version) { return version % 1000 / 10; }

tutti_status tti_cuda_fits_driver(const tti_cuda_found *f) {
    if (f->driver == 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "cuda: there is no NVIDIA driver here (libcuda.so.1): install one, or give "
                        "the container its GPUs");
    if (f->counted == cudaErrorInsufficientDriver)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "cuda: the NVIDIA driver is too old: it is for CUDA %d.%d, and this build "
                        "needs %d.%d; install a newer driver, or build with an older toolkit",
                        major_of(f->driver), minor_of(f->driver), major_of(f->runtime),
                        minor_of(f->runtime));
    if (f->counted == cudaSuccess && f->n > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "cuda: no device can be used: %s (driver for CUDA %d.%d, runtime %d.%d); check "
                    "nvidia-smi and CUDA_VISIBLE_DEVICES",
                    f->counted == cudaSuccess ? "none is there" : cudaGetErrorString(f->counted),
                    major_of(f->driver), minor_of(f->driver), major_of(f->runtime),
                    minor_of(f->runtime));
}

tutti_status tti_cuda_fits_device(const char *name, int major, int minor, cudaError_t loads) {
    if (10 * major + minor < OLDEST)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "cuda: %s has compute capability %d.%d; 8.0 (Ampere) and later are "
                        "supported: leave it out of parallel.devices",
                        name, major, minor);
    if (loads == cudaErrorNoKernelImageForDevice || loads == cudaErrorInvalidDeviceFunction ||
        loads == cudaErrorUnsupportedPtxVersion)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "cuda: the module has no code for %s, compute capability %d.%d: it was "
                        "built for %s; build it with -DTUTTI_CUDA_ARCHS=%d%d-real",
                        name, major, minor, TUTTI_CUDA_ARCHS, major, minor);
    return TUTTI_OK; /* what else it may be shows where the device is used */
}

/* range.c - named ranges for NVIDIA's tools, with the header-only NVTX. */
#include "backend/cuda/runtime/device.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

void tti_cuda_range(const char *name) {
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
}
#else
void tti_cuda_range(const char *name) { (void)name; }
#endif

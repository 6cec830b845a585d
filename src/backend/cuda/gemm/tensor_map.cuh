/* tensor_map.cuh - descriptors of matrices for the tensor copy engine: the host's side of
 * wgmma.cuh. */
#ifndef TTI_CUDA_TENSOR_MAP_CUH
#define TTI_CUDA_TENSOR_MAP_CUH

#include <cuda_runtime_api.h>

#include "backend/cuda/gemm/wgmma.cuh"
#include "tutti/types.h"

typedef CUresult (*tti_encode_call)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                    const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                    const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                    CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

/* The driver's own function, NULL without one: the program links with no driver. */
static inline tti_encode_call tti_find_encode(void) {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                         cudaEnableDefault, &result);
#else
    cudaError_t error =
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? (tti_encode_call)found
                                                                         : nullptr;
}

static inline tti_encode_call tti_encode_of(void) {
    static const tti_encode_call found = tti_find_encode();
    return found;
}

/* x[rows][n] of 16 bits, copied in boxes of box_rows x 64, or x 32: then swizzled by 64 bytes. */
static inline bool tti_make_map(CUtensorMap *map, tutti_dtype dtype, const void *x, int64_t rows,
                                int64_t n, int box_rows, int box_cols = 64) {
    cuuint64_t sizes[2] = {(cuuint64_t)n, (cuuint64_t)rows}, step = (cuuint64_t)n * 2;
    cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, steps[2] = {1, 1};
    CUtensorMapDataType type =
        dtype == TUTTI_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return tti_encode_of()(map, type, 2, (void *)(uintptr_t)x, sizes, &step, box, steps,
                           CU_TENSOR_MAP_INTERLEAVE_NONE,
                           box_cols == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                           CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

#endif /* TTI_CUDA_TENSOR_MAP_CUH */

/* conv_point.cuh - code shared by the tiles of conv_point.cu and the joining of their results
 * (conv_point_end.cu). */
#ifndef TTI_CUDA_CONV_POINT_CUH
#define TTI_CUDA_CONV_POINT_CUH

#include "backend/cuda/conv/conv_point.h"

enum { POINT_ROWS = 128 }; /* of a tile */

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Rows that count. */
__device__ __forceinline__ int real_rows(const int32_t *rows, int m, int per_sample) {
    if (!rows) return m;
    long long n = (long long)*rows * per_sample;
    return n <= 0 ? 0 : n < m ? (int)n : m;
}

/* How many of n values lie in a run of this length that begins `before` values after them. */
__device__ __forceinline__ int clip(int n, int before, int length) {
    return min(max(n - before, 0), length);
}

#endif /* TTI_CUDA_CONV_POINT_CUH */

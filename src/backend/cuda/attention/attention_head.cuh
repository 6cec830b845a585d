/* attention_head.cuh - the location of one head of one sample in packed queries, keys and values.
 */
#ifndef TTI_ATTENTION_HEAD_CUH
#define TTI_ATTENTION_HEAD_CUH

#include "backend/cuda/attention/attention_flash.h"

template <class T>
struct tti_head {
    const T *q, *k, *v, *y, *dy;
    int64_t width, y_width, y_at, lse_at; /* elements from row to row; to the head's first */
    int n_t, n_keys;                      /* positions; number of valid ones */
};

template <class T>
__device__ __forceinline__ tti_head<T> tti_head_of(const tti_cuda_attention &a, int64_t b, int h) {
    const tti_cuda_heads &v = a.heads;
    tti_head<T> o;
    int kv = h / (v.heads / v.kv_heads);
    o.width = (int64_t)(v.heads + 2 * v.kv_heads) * v.dim;
    o.y_width = (int64_t)v.heads * v.dim;
    o.q = (const T *)a.qkv + b * v.n_t * o.width + (int64_t)h * v.dim;
    o.k = (const T *)a.qkv + b * v.n_t * o.width + (int64_t)(v.heads + kv) * v.dim;
    o.v = o.k + (int64_t)v.kv_heads * v.dim;
    o.y_at = b * v.n_t * o.y_width + (int64_t)h * v.dim;
    o.y = (const T *)a.y + o.y_at, o.dy = (const T *)a.dy + o.y_at;
    o.lse_at = (b * v.heads + h) * v.n_t;
    o.n_t = (int)v.n_t;
    int n = a.lengths ? a.lengths[b] : o.n_t;
    o.n_keys = n < 0 ? 0 : n < o.n_t ? n : o.n_t;
    return o;
}

#endif /* TTI_ATTENTION_HEAD_CUH */

/* sdpa_score.cuh - what the kernels of sdpa_mma.cu and sdpa_short.cu have in common: where a head
 * lies, which keys a query sees, what is added to their products, and how the gradient of a bias
 * that repeats is divided among blocks. */
#ifndef TTI_SDPA_SCORE_CUH
#define TTI_SDPA_SCORE_CUH

#include "backend/cuda/attention/attention_tiles.cuh"
#include "backend/cuda/attention/sdpa.h"
#include "base/philox.h"

/* One head of one sample: its first rows, and elements from one row to the next. */
template <class T>
struct tti_sdpa_head {
    const T *q, *k, *v, *dy, *bias;
    const int32_t *query_segments, *key_segments;
    int64_t q_step, k_step, v_step, y_step, y_at, row0; /* row0: of max and log_sum */
    uint64_t weight0;                                   /* number of weight (0, 0) */
    int64_t b;
};

template <class T>
__device__ __forceinline__ tti_sdpa_head<T> tti_sdpa_head_of(const tti_cuda_sdpa &a, int64_t b,
                                                             int h) {
    const tti_sdpa &v = a.sizes;
    int64_t n_t = (int64_t)v.n_t, n_s = (int64_t)v.n_s, kv = h / (int)(v.heads / v.kv_heads);
    tti_sdpa_head<T> o;
    o.b = b;
    o.q_step = (int64_t)(v.heads * v.dim), o.y_step = (int64_t)(v.heads * v.v_dim);
    o.k_step = (int64_t)(v.kv_heads * v.dim), o.v_step = (int64_t)(v.kv_heads * v.v_dim);
    o.q = (const T *)a.q + b * n_t * o.q_step + h * (int64_t)v.dim;
    o.k = (const T *)a.k + b * n_s * o.k_step + kv * (int64_t)v.dim;
    o.v = (const T *)a.v + b * n_s * o.v_step + kv * (int64_t)v.v_dim;
    o.y_at = b * n_t * o.y_step + h * (int64_t)v.v_dim;
    o.dy = (const T *)a.dy + o.y_at;
    o.row0 = (b * (int64_t)v.heads + h) * n_t;
    o.bias = a.bias ? (const T *)a.bias + tti_sdpa_bias_at(&v, (size_t)b, (size_t)h, 0) : NULL;
    o.query_segments = a.query_segments ? a.query_segments + b * n_t : NULL;
    o.key_segments = a.key_segments ? a.key_segments + b * n_s : NULL;
    o.weight0 = tti_sdpa_weight(&v, (size_t)h, 0);
    return o;
}

/* The parameters that all scores of a block have in common. */
struct tti_sdpa_rule {
    int n_t, n_s, window;
    bool causal, replaces;
    float scale, softcap, factor; /* factor: of weights that are kept */
    float p;
    uint64_t key, step, sample0;
    int64_t bias_t, bias_s;
};

__device__ __forceinline__ tti_sdpa_rule tti_sdpa_rule_of(const tti_cuda_sdpa &a) {
    const tti_sdpa &v = a.sizes;
    tti_sdpa_rule r;
    r.n_t = (int)v.n_t, r.n_s = (int)v.n_s, r.window = (int)v.window, r.causal = v.causal;
    r.replaces = v.replaces;
    r.scale = (float)v.scale, r.softcap = (float)v.softcap;
    r.p = (float)v.p, r.factor = (float)(1 / (1 - v.p));
    r.key = r.step = r.sample0 = 0;
    if (v.p > 0) r.key = tti_mix64(a.run->seed, v.key), r.step = a.run->step;
    if (v.p > 0) r.sample0 = a.run->sample0;
    r.bias_t = (int64_t)v.bias_step[2], r.bias_s = (int64_t)v.bias_step[3];
    return r;
}

/* Keys that the queries q0 .. q0+n-1 may see: *first .. *end-1. */
__device__ __forceinline__ void tti_sdpa_key_range(const tti_sdpa_rule &r, int q0, int n,
                                                   int *first, int *end) {
    int last = q0 + n < r.n_t ? q0 + n : r.n_t;
    *first = r.window > 0 && q0 + 1 > r.window ? q0 + 1 - r.window : 0;
    *end = r.n_s;
    if (r.causal && last < *end) *end = last;
    if (r.window > 0 && last - 1 + r.window < *end) *end = last - 1 + r.window;
}

/* Queries that may see the keys k0 .. k0+n-1. */
__device__ __forceinline__ void tti_sdpa_query_range(const tti_sdpa_rule &r, int k0, int n,
                                                     int *first, int *end) {
    int last = k0 + n < r.n_s ? k0 + n : r.n_s;
    *first = r.causal ? k0 : r.window > 0 && k0 + 1 > r.window ? k0 + 1 - r.window : 0;
    *end = r.n_t;
    if (r.window > 0 && last - 1 + r.window < *end) *end = last - 1 + r.window;
}

template <class T>
__device__ __forceinline__ bool tti_sdpa_sees(const tti_sdpa_rule &r, const tti_sdpa_head<T> &o,
                                              int query, int key) {
    bool seen = query < r.n_t && key < r.n_s && (!r.causal || key <= query);
    if (r.window > 0) seen = seen && key > query - r.window && key < query + r.window;
    return seen && (!o.query_segments || o.query_segments[query] == o.key_segments[key]);
}

/* The score s with its bias, which may replace it: then *slope becomes 0. */
template <class T>
__device__ __forceinline__ float tti_sdpa_biased(const tti_sdpa_rule &r, const tti_sdpa_head<T> &o,
                                                 int query, int key, float s, float *slope) {
    float bias = tti_to_f32(o.bias[query * r.bias_t + key * r.bias_s]);
    if (!tti_sdpa_is_replaced(r.replaces, bias)) return s + bias;
    *slope = 0;
    return bias;
}

/* The score of a query and a key that it sees; *slope: by the product, without the scale. */
template <class T>
__device__ __forceinline__ float tti_sdpa_score(const tti_sdpa_rule &r, const tti_sdpa_head<T> &o,
                                                int query, int key, float product, float *slope) {
    float s = product * r.scale;
    *slope = 1;
    if (r.softcap > 0) {
        float turned = tanhf(s / r.softcap);
        s = r.softcap * turned;
        *slope = 1 - turned * turned;
    }
    return o.bias ? tti_sdpa_biased(r, o, query, key, s, slope) : s;
}

/* e^(s - base).  The difference comes first: it is exact where both are huge, such as where a
 * finite bias hides all keys, and in base 2 they may be beyond the largest number. */
__device__ __forceinline__ float tti_sdpa_exp(float s, float base) {
    return tti_exp2((s - base) * TTI_LOG2E);
}

/* The sum of a row, as the kernels of the gradient use it. */
struct tti_sdpa_sum {
    float max, log2_sum; /* the logarithm in base 2 */
};

/* 0 beyond the last query. */
__device__ __forceinline__ tti_sdpa_sum tti_sdpa_sum_of(const tti_cuda_sdpa &a, int64_t row0,
                                                        int query) {
    bool inside = query < (int)a.sizes.n_t;
    tti_sdpa_sum sum;
    sum.max = inside ? ((const float *)a.max)[row0 + query] : 0.0f;
    sum.log2_sum = inside ? ((const float *)a.log_sum)[row0 + query] * TTI_LOG2E : 0.0f;
    return sum;
}

__device__ __forceinline__ float tti_sdpa_weight_of(float s, const tti_sdpa_sum &sum) {
    return tti_exp2((s - sum.max) * TTI_LOG2E - sum.log2_sum);
}

/* Stores what the gradient reads of a row; max is -inf where there is no key, or NaN alone. */
__device__ __forceinline__ void tti_sdpa_store_sum(const tti_cuda_sdpa &a, int64_t row, float max,
                                                   float sum) {
    ((float *)a.max)[row] = max == -INFINITY ? 0.0f : max;
    ((float *)a.log_sum)[row] = sum == 0 ? 0.0f : logf(sum);
}

static inline int64_t tti_sdpa_tiles_of(size_t n) {
    return (int64_t)((n + TTI_TILE_ROWS - 1) / TTI_TILE_ROWS);
}

/* ---- the gradient of a bias ---- */

/* The bias has n_groups parts [T,S], each added to n_members samples and heads; a block adds a tile
 * of one part over the members of one of n_chunks chunks. */
struct tti_sdpa_bias_work {
    int64_t n_groups, n_members, n_chunks, n_tasks;
    int64_t own_b, own_h; /* samples and heads after which the bias repeats */
    int q_tiles, k_tiles;
};

/* Work for about n_blocks blocks.  Without a gradient of the bias, all samples and heads are
 * members of one part. */
static inline tti_sdpa_bias_work tti_sdpa_bias_work_of(const tti_cuda_sdpa *a, int64_t n_blocks) {
    const tti_sdpa *v = &a->sizes;
    tti_sdpa_bias_work w = {};
    w.own_b = a->n_dbias ? (int64_t)a->dbias[0] : 1,
    w.own_h = a->n_dbias ? (int64_t)a->dbias[1] : 1;
    w.n_groups = w.own_b * w.own_h;
    w.n_members = (int64_t)(v->n_batch * v->heads) / w.n_groups;
    w.q_tiles = (int)tti_sdpa_tiles_of(v->n_t), w.k_tiles = (int)tti_sdpa_tiles_of(v->n_s);
    int64_t tiles = w.n_groups * w.q_tiles * w.k_tiles;
    w.n_chunks = tiles > 0 ? (n_blocks + tiles - 1) / tiles : 0;
    if (w.n_chunks > w.n_members) w.n_chunks = w.n_members;
    w.n_tasks = tiles * w.n_chunks;
    return w;
}

/* Sample and head of member i of a part: its rows repeat over the samples. */
__device__ __forceinline__ tti_tile_task tti_sdpa_member_of(const tti_sdpa_bias_work &w, int heads,
                                                            int64_t group, int64_t i) {
    int64_t each_h = heads / w.own_h;
    tti_tile_task t;
    t.tile = 0;
    t.b = group / w.own_h + i / each_h * w.own_b;
    t.h = (int)(group % w.own_h + i % each_h);
    return t;
}

/* to[n] = the sums of n_chunks chunks, in their order. */
template <class T>
static __global__ void __launch_bounds__(TTI_TILE_THREADS)
    tti_sdpa_add_chunks_kernel(const float *sums, int64_t n_chunks, int64_t n, T *to) {
    int64_t i = (int64_t)blockIdx.x * TTI_TILE_THREADS + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int64_t c = 0; c < n_chunks; c++) sum += sums[c * n + i];
    to[i] = tti_from_f32<T>(sum);
}

template <class T>
static cudaError_t tti_sdpa_add_chunks(const tti_cuda_sdpa *a, const tti_sdpa_bias_work *w,
                                       const float *sums, cudaStream_t stream) {
    int64_t n = (int64_t)a->n_dbias;
    unsigned blocks = (unsigned)((n + TTI_TILE_THREADS - 1) / TTI_TILE_THREADS);
    tti_sdpa_add_chunks_kernel<T>
        <<<blocks, TTI_TILE_THREADS, 0, stream>>>(sums, w->n_chunks, n, (T *)a->dbias_out);
    return cudaGetLastError();
}

#endif /* TTI_SDPA_SCORE_CUH */

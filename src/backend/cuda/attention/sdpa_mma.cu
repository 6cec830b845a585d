/* sdpa_mma.cu - attention with separate queries, keys and values on tensor cores: 16-bit values,
 * widths that are multiples of 8 up to 128, with everything that the op's record allows.
 *
 * As attention_mma.cu, with what a score may have besides its product: a cap, a bias, windows,
 * segments and dropout.  The gradient of a bias that repeats over samples or heads is the sum over
 * them: a block adds up a tile of it over some samples and heads, and a second kernel adds what the
 * blocks have, in a fixed order. */
#include "backend/cuda/attention/attention_tiles.cuh"
#include "backend/cuda/attention/sdpa.h"
#include "base/philox.h"

namespace {

enum {
    THREADS = TTI_TILE_THREADS,
    OWN = TTI_TILE_ROWS,
    SAMPLE_BITS = 28,
    FULL_GPU = 528, /* blocks that keep every multiprocessor busy */
};
#define LN2 0.6931471805599453f

/* One head of one sample: its first rows, and elements from one row to the next. */
template <class T>
struct head {
    const T *q, *k, *v, *dy, *bias;
    const int32_t *query_segments, *key_segments;
    int64_t q_step, k_step, v_step, y_step, y_at, lse_at;
    uint64_t weight0; /* number of weight (0, 0) */
    int64_t b;
};

template <class T>
__device__ __forceinline__ head<T> head_of(const tti_cuda_sdpa &a, int64_t b, int h) {
    const tti_sdpa &v = a.sizes;
    int64_t n_t = (int64_t)v.n_t, n_s = (int64_t)v.n_s, kv = h / (int)(v.heads / v.kv_heads);
    head<T> o;
    o.b = b;
    o.q_step = (int64_t)(v.heads * v.dim), o.y_step = (int64_t)(v.heads * v.v_dim);
    o.k_step = (int64_t)(v.kv_heads * v.dim), o.v_step = (int64_t)(v.kv_heads * v.v_dim);
    o.q = (const T *)a.q + b * n_t * o.q_step + h * (int64_t)v.dim;
    o.k = (const T *)a.k + b * n_s * o.k_step + kv * (int64_t)v.dim;
    o.v = (const T *)a.v + b * n_s * o.v_step + kv * (int64_t)v.v_dim;
    o.y_at = b * n_t * o.y_step + h * (int64_t)v.v_dim;
    o.dy = (const T *)a.dy + o.y_at;
    o.lse_at = (b * (int64_t)v.heads + h) * n_t;
    o.bias = a.bias ? (const T *)a.bias + tti_sdpa_bias_at(&v, (size_t)b, (size_t)h, 0) : NULL;
    o.query_segments = a.query_segments ? a.query_segments + b * n_t : NULL;
    o.key_segments = a.key_segments ? a.key_segments + b * n_s : NULL;
    o.weight0 = tti_sdpa_weight(&v, (size_t)h, 0);
    return o;
}

/* The parameters that all scores of a block have in common. */
struct rule {
    int n_t, n_s, window;
    bool causal;
    float scale, scale2, softcap, factor; /* scale2: in base 2; factor: of weights that are kept */
    float p;
    uint64_t key, step, sample0;
    int64_t bias_t, bias_s;
};

__device__ __forceinline__ rule rule_of(const tti_cuda_sdpa &a) {
    const tti_sdpa &v = a.sizes;
    rule r;
    r.n_t = (int)v.n_t, r.n_s = (int)v.n_s, r.window = (int)v.window, r.causal = v.causal;
    r.scale = (float)v.scale, r.scale2 = (float)v.scale * TTI_LOG2E, r.softcap = (float)v.softcap;
    r.p = (float)v.p, r.factor = (float)(1 / (1 - v.p));
    r.key = r.step = r.sample0 = 0;
    if (v.p > 0) r.key = tti_mix64(a.run->seed, v.key), r.step = a.run->step;
    if (v.p > 0) r.sample0 = a.run->sample0;
    r.bias_t = (int64_t)v.bias_step[2], r.bias_s = (int64_t)v.bias_step[3];
    return r;
}

/* Keys that the queries q0 .. q0+n-1 may see: *first .. *end-1. */
__device__ __forceinline__ void key_range(const rule &r, int q0, int n, int *first, int *end) {
    int last = q0 + n < r.n_t ? q0 + n : r.n_t;
    *first = r.window > 0 && q0 + 1 > r.window ? q0 + 1 - r.window : 0;
    *end = r.n_s;
    if (r.causal && last < *end) *end = last;
    if (r.window > 0 && last - 1 + r.window < *end) *end = last - 1 + r.window;
}

/* Queries that may see the keys k0 .. k0+n-1. */
__device__ __forceinline__ void query_range(const rule &r, int k0, int n, int *first, int *end) {
    int last = k0 + n < r.n_s ? k0 + n : r.n_s;
    *first = r.causal ? k0 : r.window > 0 && k0 + 1 > r.window ? k0 + 1 - r.window : 0;
    *end = r.n_t;
    if (r.window > 0 && last - 1 + r.window < *end) *end = last - 1 + r.window;
}

template <class T>
__device__ __forceinline__ bool sees(const rule &r, const head<T> &o, int query, int key) {
    bool seen = query < r.n_t && key < r.n_s && (!r.causal || key <= query);
    if (r.window > 0) seen = seen && key > query - r.window && key < query + r.window;
    return seen && (!o.query_segments || o.query_segments[query] == o.key_segments[key]);
}

/* The score in base 2 of a query and a key that it sees; *slope: by the product, without the scale.
 */
template <class T>
__device__ __forceinline__ float score(const rule &r, const head<T> &o, int query, int key,
                                       float product, float *slope) {
    float s = product * r.scale2;
    *slope = 1;
    if (r.softcap > 0) {
        float turned = tanhf(product * r.scale / r.softcap);
        s = r.softcap * turned * TTI_LOG2E;
        *slope = 1 - turned * turned;
    }
    if (o.bias) s += tti_to_f32(o.bias[query * r.bias_t + key * r.bias_s]) * TTI_LOG2E;
    return s;
}

/* Dropout's factor of a weight: 0 if it is dropped. */
template <class T>
__device__ __forceinline__ float kept(const rule &r, const head<T> &o, int query, int key) {
    uint64_t e = o.weight0 + (uint64_t)query * r.n_s + key, sample = r.sample0 + o.b;
    tti_philox x = tti_philox_draw(r.key, r.step, (sample << SAMPLE_BITS) + e / 4);
    return tti_philox_unit(x.v[e % 4]) >= r.p ? r.factor : 0.0f;
}

/* ---- forward ---- */

/* Adds one tile of scores, in base 2, to the running maximum m, sum l and output. */
template <int N, int ND>
__device__ __forceinline__ void softmax_step(float (&s)[N][4], float (&m)[2], float (&l)[2],
                                             float (&out)[ND][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = m[i];
#pragma unroll
        for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        top = tti_quad_max(top);
        float base = top == -INFINITY ? 0.0f : top, shrink = tti_exp2(m[i] - base);
        m[i] = top, l[i] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 2 * i; j < 2 * i + 2; j++) {
                s[n][j] = tti_exp2(s[n][j] - base);
                l[i] += s[n][j];
            }
#pragma unroll
        for (int d = 0; d < ND; d++) out[d][2 * i] *= shrink, out[d][2 * i + 1] *= shrink;
    }
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    forward_kernel(tti_cuda_sdpa a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int SIZE = OWN * tti_tile<DP>::STEP, N = OWN / 8;
    T *sq = (T *)memory, *sk = sq + SIZE, *sv = sk + 2 * SIZE;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    rule r = rule_of(a);
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, (int)a.sizes.heads);
        head<T> o = head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * OWN, row = q0 + warp * 16 + g, first, end;
        key_range(r, q0, OWN, &first, &end);
        float s[N][4], out[DP / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0}, slope;
        tti_clear_rows(out);
        first = first / OWN * OWN;
        __syncthreads();
        tti_fetch_tile<T, DP>(sq, o.q, o.q_step, q0, r.n_t, OWN, dim);
        tti_fetch_tile<T, DP>(sk, o.k, o.k_step, first, r.n_s, OWN, dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.v_step, first, r.n_s, OWN, v_dim);
        tti_copy_commit();
        for (int k0 = first, turn = 0; k0 < end; k0 += OWN, turn ^= 1) {
            tti_copy_wait();
            __syncthreads();
            if (k0 + OWN < end) {
                int next = (turn ^ 1) * SIZE;
                tti_fetch_tile<T, DP>(sk + next, o.k, o.k_step, k0 + OWN, r.n_s, OWN, dim);
                tti_fetch_tile<T, DP>(sv + next, o.v, o.v_step, k0 + OWN, r.n_s, OWN, v_dim);
            }
            tti_copy_commit();
            tti_row_products<T, DP, N>(sq + warp * 16 * tti_tile<DP>::STEP, sk + turn * SIZE, s);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int query = row + i / 2 * 8, key = k0 + n * 8 + 2 * t4 + i % 2;
                    bool seen = sees(r, o, query, key);
                    s[n][i] = seen ? score(r, o, query, key, s[n][i], &slope) : -INFINITY;
                }
            softmax_step(s, m, l, out);
            if (r.p > 0) {
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        s[n][i] *= kept(r, o, row + i / 2 * 8, k0 + n * 8 + 2 * t4 + i % 2);
            }
            tti_add_products<T, DP, N>(s, sv + turn * SIZE, out);
        }
        tti_copy_wait();
        float factor[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            l[i] = tti_quad_sum(l[i]);
            factor[i] = l[i] == 0 ? 0.0f : 1 / l[i];
            if (t4 == 0 && row + 8 * i < r.n_t)
                a.lse[o.lse_at + row + 8 * i] = l[i] == 0 ? 0.0f : m[i] * LN2 + logf(l[i]);
        }
        tti_store_rows<T, DP>(out, factor, q0 + warp * 16, r.n_t, v_dim, o.y_step,
                              (T *)a.y + o.y_at);
    }
}

/* ---- backward ---- */

/* One warp for each row of y: mean[b,h,t] = the sum of dy y. */
template <class T>
__global__ void __launch_bounds__(THREADS) mean_kernel(tti_cuda_sdpa a, int64_t n_rows) {
    const tti_sdpa &v = a.sizes;
    int lane = threadIdx.x % 32;
    int64_t n_warps = (int64_t)gridDim.x * (THREADS / 32), heads = (int64_t)v.heads;
    for (int64_t row = (int64_t)blockIdx.x * (THREADS / 32) + threadIdx.x / 32; row < n_rows;
         row += n_warps) {
        const T *y = (const T *)a.y + row * (int64_t)v.v_dim;
        const T *dy = (const T *)a.dy + row * (int64_t)v.v_dim;
        int64_t h = row % heads, t = row / heads % (int64_t)v.n_t, b = row / heads / (int64_t)v.n_t;
        float sum = 0;
        for (int d = lane; d < (int)v.v_dim; d += 32) sum += tti_to_f32(y[d]) * tti_to_f32(dy[d]);
        sum = tti_warp_sum(sum);
        if (lane == 0) ((float *)a.mean)[(b * heads + h) * (int64_t)v.n_t + t] = sum;
    }
}

/* Turns the products s and dp of a query and a key: s = the weight times dropout's factor, dp = the
 * gradient of the score, *slope as above. */
template <class T>
__device__ __forceinline__ void weigh(const rule &r, const head<T> &o, int query, int key,
                                      float lse2, float mean, float &s, float &dp, float *slope) {
    *slope = 1;
    if (!sees(r, o, query, key)) {
        s = dp = 0;
        return;
    }
    float own = tti_exp2(score(r, o, query, key, s, slope) - lse2), m = 1;
    if (r.p > 0) m = kept(r, o, query, key);
    s = own * m, dp = own * (m * dp - mean);
}

/* The logarithm in base 2 and the mean of a query; 0 beyond the last one. */
__device__ __forceinline__ void row_values(const tti_cuda_sdpa &a, int64_t lse_at, int query,
                                           float *lse2, float *mean) {
    bool inside = query < (int)a.sizes.n_t;
    *lse2 = inside ? a.lse[lse_at + query] * TTI_LOG2E : 0.0f;
    *mean = inside ? ((const float *)a.mean)[lse_at + query] : 0.0f;
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_q_kernel(tti_cuda_sdpa a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int M = tti_other_rows<DP>::N, N = M / 8, STEP = tti_tile<DP>::STEP;
    T *sq = (T *)memory, *sdy = sq + OWN * STEP, *sk = sdy + OWN * STEP, *sv = sk + 2 * M * STEP;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    rule r = rule_of(a);
    float factor[2] = {r.scale, r.scale};
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, (int)a.sizes.heads);
        head<T> o = head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * OWN, row = q0 + warp * 16 + g, first, end;
        key_range(r, q0, OWN, &first, &end);
        float s[N][4], dp[N][4], out[DP / 8][4], lse2[2], mean[2], slope;
        tti_clear_rows(out);
        for (int i = 0; i < 2; i++) row_values(a, o.lse_at, row + 8 * i, &lse2[i], &mean[i]);
        first = first / M * M;
        __syncthreads();
        tti_fetch_tile<T, DP>(sq, o.q, o.q_step, q0, r.n_t, OWN, dim);
        tti_fetch_tile<T, DP>(sdy, o.dy, o.y_step, q0, r.n_t, OWN, v_dim);
        tti_fetch_tile<T, DP>(sk, o.k, o.k_step, first, r.n_s, M, dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.v_step, first, r.n_s, M, v_dim);
        tti_copy_commit();
        for (int k0 = first, turn = 0; k0 < end; k0 += M, turn ^= 1) {
            tti_copy_wait();
            __syncthreads();
            if (k0 + M < end) {
                int next = (turn ^ 1) * M * STEP;
                tti_fetch_tile<T, DP>(sk + next, o.k, o.k_step, k0 + M, r.n_s, M, dim);
                tti_fetch_tile<T, DP>(sv + next, o.v, o.v_step, k0 + M, r.n_s, M, v_dim);
            }
            tti_copy_commit();
            tti_row_products<T, DP, N>(sq + warp * 16 * STEP, sk + turn * M * STEP, s);
            tti_row_products<T, DP, N>(sdy + warp * 16 * STEP, sv + turn * M * STEP, dp);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = k0 + n * 8 + 2 * t4 + i % 2;
                    weigh(r, o, row + i / 2 * 8, key, lse2[i / 2], mean[i / 2], s[n][i], dp[n][i],
                          &slope);
                    dp[n][i] *= slope;
                }
            tti_add_products<T, DP, N>(dp, sk + turn * M * STEP, out);
        }
        tti_copy_wait();
        tti_store_rows<T, DP>(out, factor, q0 + warp * 16, r.n_t, dim, o.q_step,
                              (T *)a.dq + (o.q - (const T *)a.q));
    }
}

/* The tiles of one query head into dk and dv of the block's keys, whose rows are in sk and sv. */
template <class T, int DP>
__device__ __forceinline__ void walk_queries(const tti_cuda_sdpa &a, const rule &r,
                                             const head<T> &o, int k0, const T *sk, const T *sv,
                                             T *sq, float (&dk)[DP / 8][4],
                                             float (&dv)[DP / 8][4]) {
    const int M = tti_other_rows<DP>::N, N = M / 8, STEP = tti_tile<DP>::STEP;
    T *sdy = sq + 2 * M * STEP;
    float *lse2 = (float *)(sdy + 2 * M * STEP), *mean = lse2 + 2 * M, s[N][4], dp[N][4], slope;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim, first, end;
    query_range(r, k0, OWN, &first, &end);
    first = first / M * M;
    for (int q0 = first - M, turn = 1; q0 < end; q0 += M, turn ^= 1) {
        int next = (turn ^ 1) * M, ahead = q0 + M;
        tti_copy_wait();
        __syncthreads();
        if (ahead < end) {
            tti_fetch_tile<T, DP>(sq + next * STEP, o.q, o.q_step, ahead, r.n_t, M, dim);
            tti_fetch_tile<T, DP>(sdy + next * STEP, o.dy, o.y_step, ahead, r.n_t, M, v_dim);
            for (int i = threadIdx.x; i < M; i += THREADS)
                row_values(a, o.lse_at, ahead + i, &lse2[next + i], &mean[next + i]);
        }
        tti_copy_commit();
        if (q0 < first) continue;
        tti_row_products<T, DP, N>(sk + warp * 16 * STEP, sq + turn * M * STEP, s);
        tti_row_products<T, DP, N>(sv + warp * 16 * STEP, sdy + turn * M * STEP, dp);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = n * 8 + 2 * t4 + i % 2, key = k0 + warp * 16 + g + i / 2 * 8;
                weigh(r, o, q0 + at, key, lse2[turn * M + at], mean[turn * M + at], s[n][i],
                      dp[n][i], &slope);
                dp[n][i] *= slope;
            }
        tti_add_products<T, DP, N>(s, sdy + turn * M * STEP, dv);
        tti_add_products<T, DP, N>(dp, sq + turn * M * STEP, dk);
    }
    tti_copy_wait();
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_kv_kernel(tti_cuda_sdpa a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int STEP = tti_tile<DP>::STEP;
    T *sk = (T *)memory, *sv = sk + OWN * STEP, *sq = sv + OWN * STEP;
    int warp = threadIdx.x / 32, group = (int)(a.sizes.heads / a.sizes.kv_heads);
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    rule r = rule_of(a);
    float one[2] = {1, 1}, factor[2] = {r.scale, r.scale};
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, (int)a.sizes.kv_heads);
        head<T> o = head_of<T>(a, t.b, t.h * group);
        int k0 = t.tile * OWN;
        float dk[DP / 8][4], dv[DP / 8][4];
        tti_clear_rows(dk), tti_clear_rows(dv);
        __syncthreads();
        tti_fetch_tile<T, DP>(sk, o.k, o.k_step, k0, r.n_s, OWN, dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.v_step, k0, r.n_s, OWN, v_dim);
        tti_copy_commit();
        for (int h = 0; h < group; h++) {
            head<T> own = head_of<T>(a, t.b, t.h * group + h);
            walk_queries<T, DP>(a, r, own, k0, sk, sv, sq, dk, dv);
            __syncthreads();
        }
        tti_store_rows<T, DP>(dk, factor, k0 + warp * 16, r.n_s, dim, o.k_step,
                              (T *)a.dk + (o.k - (const T *)a.k));
        tti_store_rows<T, DP>(dv, one, k0 + warp * 16, r.n_s, v_dim, o.v_step,
                              (T *)a.dv + (o.v - (const T *)a.v));
    }
}

/* ---- gradient of the bias ---- */

/* The bias has n_groups parts [T,S], each added to n_members samples and heads; a block adds a tile
 * of one part over the members of one of n_chunks chunks. */
struct bias_work {
    int64_t n_groups, n_members, n_chunks, n_tasks;
    int q_tiles, k_tiles;
};

bias_work bias_work_of(const tti_cuda_sdpa *a) {
    const tti_sdpa *v = &a->sizes;
    bias_work w = {};
    if (a->n_dbias == 0) return w;
    w.n_groups = (int64_t)(a->dbias[0] * a->dbias[1]);
    w.n_members = (int64_t)(v->n_batch * v->heads) / w.n_groups;
    w.q_tiles = (int)((v->n_t + OWN - 1) / OWN), w.k_tiles = (int)((v->n_s + OWN - 1) / OWN);
    int64_t tiles = w.n_groups * w.q_tiles * w.k_tiles;
    w.n_chunks = (FULL_GPU + tiles - 1) / tiles;
    if (w.n_chunks > w.n_members) w.n_chunks = w.n_members;
    w.n_tasks = tiles * w.n_chunks;
    return w;
}

/* Sample and head of member i of a part: its rows repeat over the samples. */
__device__ __forceinline__ tti_tile_task member_of(const tti_cuda_sdpa &a, int64_t group,
                                                   int64_t i) {
    int64_t own_b = (int64_t)a.dbias[0], own_h = (int64_t)a.dbias[1];
    int64_t each_h = (int64_t)a.sizes.heads / own_h;
    tti_tile_task t;
    t.tile = 0;
    t.b = group / own_h + i / each_h * own_b;
    t.h = (int)(group % own_h + i % each_h);
    return t;
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_bias_kernel(tti_cuda_sdpa a, bias_work w, float *sums) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int N = OWN / 8, STEP = tti_tile<DP>::STEP, SIZE = OWN * STEP;
    T *sq = (T *)memory, *sdy = sq + SIZE, *sk = sdy + SIZE, *sv = sk + SIZE;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    rule r = rule_of(a);
    for (int64_t at = blockIdx.x; at < w.n_tasks; at += gridDim.x) {
        int64_t left = at;
        int k0 = (int)(left % w.k_tiles) * OWN, q0 = (int)(left / w.k_tiles % w.q_tiles) * OWN;
        left /= (int64_t)w.k_tiles * w.q_tiles;
        int64_t group = left % w.n_groups, chunk = left / w.n_groups;
        int64_t i = w.n_members * chunk / w.n_chunks;
        int64_t last = w.n_members * (chunk + 1) / w.n_chunks;
        int row = q0 + warp * 16 + g;
        float s[N][4], dp[N][4], sum[N][4], lse2[2], mean[2], slope;
        tti_clear_rows(sum);
        for (; i < last; i++) {
            tti_tile_task t = member_of(a, group, i);
            head<T> o = head_of<T>(a, t.b, t.h);
            __syncthreads();
            tti_fetch_tile<T, DP>(sq, o.q, o.q_step, q0, r.n_t, OWN, dim);
            tti_fetch_tile<T, DP>(sdy, o.dy, o.y_step, q0, r.n_t, OWN, v_dim);
            tti_fetch_tile<T, DP>(sk, o.k, o.k_step, k0, r.n_s, OWN, dim);
            tti_fetch_tile<T, DP>(sv, o.v, o.v_step, k0, r.n_s, OWN, v_dim);
            tti_copy_commit();
            for (int j = 0; j < 2; j++) row_values(a, o.lse_at, row + 8 * j, &lse2[j], &mean[j]);
            tti_copy_wait();
            __syncthreads();
            tti_row_products<T, DP, N>(sq + warp * 16 * STEP, sk, s);
            tti_row_products<T, DP, N>(sdy + warp * 16 * STEP, sv, dp);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    weigh(r, o, row + j / 2 * 8, k0 + n * 8 + 2 * t4 + j % 2, lse2[j / 2],
                          mean[j / 2], s[n][j], dp[n][j], &slope);
                    sum[n][j] += dp[n][j];
                }
        }
        float *to = sums + (chunk * w.n_groups + group) * r.n_t * r.n_s;
        for (int n = 0; n < N; n++)
            for (int j = 0; j < 4; j++) {
                int query = row + j / 2 * 8, key = k0 + n * 8 + 2 * t4 + j % 2;
                if (query < r.n_t && key < r.n_s) to[(int64_t)query * r.n_s + key] = sum[n][j];
            }
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    add_chunks_kernel(const float *sums, int64_t n_chunks, int64_t n, T *to) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int64_t c = 0; c < n_chunks; c++) sum += sums[c * n + i];
    to[i] = tti_from_f32<T>(sum);
}

/* ---- launchers ---- */

int64_t tiles_of(size_t n) { return (int64_t)((n + OWN - 1) / OWN); }

template <class T, int DP>
cudaError_t forward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    const tti_sdpa *v = &a->sizes;
    int bytes = 5 * OWN * tti_tile<DP>::STEP * (int)sizeof(T), tiles = (int)tiles_of(v->n_t);
    int64_t n = (int64_t)(v->n_batch * v->heads) * tiles;
    cudaError_t error = tti_allow_shared(forward_kernel<T, DP>, bytes);
    if (error != cudaSuccess || n == 0) return error;
    forward_kernel<T, DP><<<tti_tile_grid(n), THREADS, bytes, stream>>>(*a, n, tiles);
    return cudaGetLastError();
}

/* Where the sums of bias_work lie in the scratch memory. */
size_t sums_at(const tti_sdpa *v) {
    return (v->n_batch * v->heads * v->n_t * sizeof(float) + 255) / 256 * 256;
}

template <class T, int DP>
cudaError_t grad_bias(const tti_cuda_sdpa *a, cudaStream_t stream) {
    bias_work w = bias_work_of(a);
    float *sums = (float *)((char *)a->mean + sums_at(&a->sizes));
    int bytes = 4 * OWN * tti_tile<DP>::STEP * (int)sizeof(T);
    cudaError_t error = tti_allow_shared(grad_bias_kernel<T, DP>, bytes);
    if (error != cudaSuccess) return error;
    int64_t n = (int64_t)a->n_dbias;
    if (w.n_tasks > 0)
        grad_bias_kernel<T, DP><<<tti_tile_grid(w.n_tasks), THREADS, bytes, stream>>>(*a, w, sums);
    add_chunks_kernel<T><<<(unsigned)((n + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        sums, w.n_chunks, n, (T *)a->dbias_out);
    return cudaGetLastError();
}

template <class T, int DP>
cudaError_t backward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    const tti_sdpa *v = &a->sizes;
    const int M = tti_other_rows<DP>::N;
    int bytes = (2 * OWN + 4 * M) * tti_tile<DP>::STEP * (int)sizeof(T);
    int more = bytes + 4 * M * (int)sizeof(float);
    int q_tiles = (int)tiles_of(v->n_t), k_tiles = (int)tiles_of(v->n_s);
    int64_t rows = (int64_t)(v->n_batch * v->heads * v->n_t);
    int64_t n_q = (int64_t)(v->n_batch * v->heads) * q_tiles;
    int64_t n_kv = (int64_t)(v->n_batch * v->kv_heads) * k_tiles;
    cudaError_t error = tti_allow_shared(grad_kv_kernel<T, DP>, more);
    if (error == cudaSuccess) error = tti_allow_shared(grad_q_kernel<T, DP>, bytes);
    if (error != cudaSuccess) return error;
    if (rows > 0) mean_kernel<T><<<tti_tile_grid((rows + 3) / 4), THREADS, 0, stream>>>(*a, rows);
    if (n_kv > 0)
        grad_kv_kernel<T, DP><<<tti_tile_grid(n_kv), THREADS, more, stream>>>(*a, n_kv, k_tiles);
    if (n_q > 0)
        grad_q_kernel<T, DP><<<tti_tile_grid(n_q), THREADS, bytes, stream>>>(*a, n_q, q_tiles);
    error = cudaGetLastError();
    if (error != cudaSuccess || a->n_dbias == 0) return error;
    return grad_bias<T, DP>(a, stream);
}

template <class T>
cudaError_t forward_of(const tti_cuda_sdpa *a, cudaStream_t stream) {
    size_t dim = a->sizes.dim > a->sizes.v_dim ? a->sizes.dim : a->sizes.v_dim;
    if (dim <= 32) return forward<T, 32>(a, stream);
    return dim <= 64 ? forward<T, 64>(a, stream) : forward<T, 128>(a, stream);
}

template <class T>
cudaError_t backward_of(const tti_cuda_sdpa *a, cudaStream_t stream) {
    size_t dim = a->sizes.dim > a->sizes.v_dim ? a->sizes.dim : a->sizes.v_dim;
    if (dim <= 32) return backward<T, 32>(a, stream);
    return dim <= 64 ? backward<T, 64>(a, stream) : backward<T, 128>(a, stream);
}

}  // namespace

extern "C" bool tti_sdpa_mma_can(const tti_cuda_sdpa *a) {
    const tti_sdpa *v = &a->sizes;
    size_t most = (size_t)1 << 30;
    if (a->dtype != TUTTI_BF16 && a->dtype != TUTTI_F16) return false;
    if (v->dim % 8 != 0 || v->v_dim % 8 != 0 || v->dim > 128 || v->v_dim > 128) return false;
    if (v->dim == 0 || v->v_dim == 0 || v->n_t > most || v->n_s > most || v->window > most)
        return false;
    return a->n_dbias == 0 || (a->dbias[2] == v->n_t && a->dbias[3] == v->n_s);
}

extern "C" size_t tti_sdpa_mma_scratch(const tti_cuda_sdpa *a) {
    bias_work w = bias_work_of(a);
    return sums_at(&a->sizes) + (size_t)w.n_chunks * a->n_dbias * sizeof(float);
}

extern "C" cudaError_t tti_launch_sdpa_mma(const tti_cuda_sdpa *a, cudaStream_t stream) {
    return a->dtype == TUTTI_BF16 ? forward_of<tti_bf16>(a, stream)
                                  : forward_of<tti_f16>(a, stream);
}

extern "C" cudaError_t tti_launch_sdpa_mma_grad(const tti_cuda_sdpa *a, cudaStream_t stream) {
    return a->dtype == TUTTI_BF16 ? backward_of<tti_bf16>(a, stream)
                                  : backward_of<tti_f16>(a, stream);
}

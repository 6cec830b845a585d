/* attention_mma.cu - attention on tensor cores for 16-bit values, D a multiple of 8 up to 128.
 *
 * Four warps, each with 16 rows (queries in forward and for dQ, keys for dK and dV) of a tile of
 * 64, loop over tiles of the other side, which cp.async prefetches two deep.  Scores stay in
 * registers: the result c of one mma, packed to 16 bits, is the operand a of the next.  For dK and
 * dV the scores are computed transposed, so that the same holds.  D is padded to DP with zeros. */
#include <limits.h>

#include "backend/cuda/attention/attention_head.cuh"
#include "backend/cuda/attention/attention_tiles.cuh"

namespace {

enum { THREADS = TTI_TILE_THREADS, OWN = TTI_TILE_ROWS };

/* ---- forward ---- */

/* Scores that a query may not see become -inf. */
template <int N>
__device__ __forceinline__ void mask(float (&s)[N][4], int query, int key, int n_keys,
                                     bool causal) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int k = key + n * 8 + 2 * t + i % 2, q = query + i / 2 * 8;
            if (k >= n_keys || (causal && k > q)) s[n][i] = -INFINITY;
        }
}

/* Adds one tile of scores to the running maximum m, sum l (of this thread's columns) and output. */
template <int N, int ND>
__device__ __forceinline__ void softmax_step(float (&s)[N][4], float scale2, float (&m)[2],
                                             float (&l)[2], float (&out)[ND][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = m[i];
#pragma unroll
        for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        top = tti_quad_max(top);
        float base = top == -INFINITY ? 0.0f : top * scale2;
        float shrink = tti_exp2(m[i] * scale2 - base);
        m[i] = top, l[i] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 2 * i; j < 2 * i + 2; j++) {
                s[n][j] = tti_exp2(s[n][j] * scale2 - base);
                l[i] += s[n][j];
            }
#pragma unroll
        for (int d = 0; d < ND; d++) out[d][2 * i] *= shrink, out[d][2 * i + 1] *= shrink;
    }
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, DP == 64 ? 3 : 2)
    forward_kernel(tti_cuda_attention a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int SIZE = OWN * tti_tile<DP>::STEP, N = OWN / 8;
    T *sq = (T *)memory, *sk = sq + SIZE, *sv = sk + 2 * SIZE;
    const tti_cuda_heads &v = a.heads;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, v.heads);
        tti_head<T> o = tti_head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * OWN, row = q0 + warp * 16 + g;
        int end = v.causal && q0 + OWN < o.n_keys ? q0 + OWN : o.n_keys;
        float s[N][4], out[DP / 8][4], m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
#pragma unroll
        for (int d = 0; d < DP / 8; d++) out[d][0] = out[d][1] = out[d][2] = out[d][3] = 0;
        __syncthreads();
        tti_fetch_tile<T, DP>(sq, o.q, o.width, q0, o.n_t, OWN, v.dim);
        tti_fetch_tile<T, DP>(sk, o.k, o.width, 0, o.n_t, OWN, v.dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.width, 0, o.n_t, OWN, v.dim);
        tti_copy_commit();
        for (int k0 = 0, turn = 0; k0 < end; k0 += OWN, turn ^= 1) {
            tti_copy_wait();
            __syncthreads();
            if (k0 + OWN < end) {
                tti_fetch_tile<T, DP>(sk + (turn ^ 1) * SIZE, o.k, o.width, k0 + OWN, o.n_t, OWN,
                                      v.dim);
                tti_fetch_tile<T, DP>(sv + (turn ^ 1) * SIZE, o.v, o.width, k0 + OWN, o.n_t, OWN,
                                      v.dim);
            }
            tti_copy_commit();
            tti_row_products<T, DP, N>(sq + warp * 16 * tti_tile<DP>::STEP, sk + turn * SIZE, s);
            if (k0 + OWN > o.n_keys || (v.causal && k0 + OWN > q0))
                mask(s, row, k0, o.n_keys, v.causal);
            softmax_step(s, v.scale * TTI_LOG2E, m, l, out);
            tti_add_products<T, DP, N>(s, sv + turn * SIZE, out);
        }
        tti_copy_wait();
        float factor[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            l[i] = tti_quad_sum(l[i]);
            factor[i] = o.n_keys == 0 ? 0.0f : 1 / l[i]; /* all scores -inf: NaN */
            if (threadIdx.x % 4 == 0 && row + 8 * i < o.n_t)
                a.lse[o.lse_at + row + 8 * i] = o.n_keys == 0 ? 0.0f : m[i] * v.scale + logf(l[i]);
        }
        tti_store_rows<T, DP>(out, factor, q0 + warp * 16, o.n_t, v.dim, o.y_width,
                              (T *)a.y + o.y_at);
    }
}

/* ---- backward ---- */

/* s = the weight p of one query and key, dp = p (dp - delta): without scale. */
__device__ __forceinline__ void weigh(bool seen, float scale2, float lse2, float delta, float &s,
                                      float &dp) {
    s = seen ? tti_exp2(s * scale2 - lse2) : 0.0f;
    dp = seen ? s * (dp - delta) : 0.0f;
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_q_kernel(tti_cuda_attention a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int M = tti_other_rows<DP>::N, N = M / 8, STEP = tti_tile<DP>::STEP;
    T *sq = (T *)memory, *sdy = sq + OWN * STEP, *sk = sdy + OWN * STEP, *sv = sk + 2 * M * STEP;
    const tti_cuda_heads &v = a.heads;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    float scale2 = v.scale * TTI_LOG2E, factor[2] = {v.scale, v.scale};
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, v.heads);
        tti_head<T> o = tti_head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * OWN, row = q0 + warp * 16 + g;
        int end = v.causal && q0 + OWN < o.n_keys ? q0 + OWN : o.n_keys;
        float s[N][4], dp[N][4], out[DP / 8][4], lse2[2], delta[2];
        int limit[2]; /* keys that a row sees */
#pragma unroll
        for (int d = 0; d < DP / 8; d++) out[d][0] = out[d][1] = out[d][2] = out[d][3] = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int query = row + 8 * i;
            bool inside = query < o.n_t;
            limit[i] = v.causal && query + 1 < o.n_keys ? query + 1 : o.n_keys;
            lse2[i] = inside ? a.lse[o.lse_at + row + 8 * i] * TTI_LOG2E : 0.0f;
            delta[i] = inside ? ((const float *)a.delta)[o.lse_at + row + 8 * i] : 0.0f;
        }
        __syncthreads();
        tti_fetch_tile<T, DP>(sq, o.q, o.width, q0, o.n_t, OWN, v.dim);
        tti_fetch_tile<T, DP>(sdy, o.dy, o.y_width, q0, o.n_t, OWN, v.dim);
        tti_fetch_tile<T, DP>(sk, o.k, o.width, 0, o.n_t, M, v.dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.width, 0, o.n_t, M, v.dim);
        tti_copy_commit();
        for (int k0 = 0, turn = 0; k0 < end; k0 += M, turn ^= 1) {
            tti_copy_wait();
            __syncthreads();
            if (k0 + M < end) {
                tti_fetch_tile<T, DP>(sk + (turn ^ 1) * M * STEP, o.k, o.width, k0 + M, o.n_t, M,
                                      v.dim);
                tti_fetch_tile<T, DP>(sv + (turn ^ 1) * M * STEP, o.v, o.width, k0 + M, o.n_t, M,
                                      v.dim);
            }
            tti_copy_commit();
            tti_row_products<T, DP, N>(sq + warp * 16 * STEP, sk + turn * M * STEP, s);
            tti_row_products<T, DP, N>(sdy + warp * 16 * STEP, sv + turn * M * STEP, dp);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    int key = k0 + n * 8 + 2 * t4 + i % 2;
                    weigh(key < limit[i / 2], scale2, lse2[i / 2], delta[i / 2], s[n][i], dp[n][i]);
                }
            tti_add_products<T, DP, N>(dp, sk + turn * M * STEP, out);
        }
        tti_copy_wait();
        tti_store_rows<T, DP>(out, factor, q0 + warp * 16, o.n_t, v.dim, o.width,
                              (T *)a.dqkv + (o.q - (const T *)a.qkv));
    }
}

/* The logarithms and deltas of n queries, ready for exp2, into shared memory. */
__device__ __forceinline__ void fetch_rows(const tti_cuda_attention &a, int64_t lse_at, int first,
                                           int n_t, int n, float *lse2, float *delta) {
    for (int i = threadIdx.x; i < n; i += THREADS) {
        bool inside = first + i < n_t;
        lse2[i] = inside ? a.lse[lse_at + first + i] * TTI_LOG2E : 0.0f;
        delta[i] = inside ? ((const float *)a.delta)[lse_at + first + i] : 0.0f;
    }
}

/* The tiles of one query head into dk and dv of the block's keys, whose rows are in sk and sv. */
template <class T, int DP>
__device__ __forceinline__ void walk_queries(const tti_cuda_attention &a, const tti_head<T> &o,
                                             int k0, const T *sk, const T *sv, T *sq,
                                             float (&dk)[DP / 8][4], float (&dv)[DP / 8][4]) {
    const int M = tti_other_rows<DP>::N, N = M / 8, STEP = tti_tile<DP>::STEP;
    const tti_cuda_heads &v = a.heads;
    T *sdy = sq + 2 * M * STEP;
    float *lse2 = (float *)(sdy + 2 * M * STEP), *delta = lse2 + 2 * M;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int first = v.causal ? k0 : 0, end = k0 < o.n_keys ? o.n_t : 0;
    float scale2 = v.scale * TTI_LOG2E, s[N][4], dp[N][4];
    int lowest[2]; /* query that sees a key; those beyond n_t are zeros and add nothing */
    for (int i = 0; i < 2; i++) {
        int key = k0 + warp * 16 + g + 8 * i;
        lowest[i] = key >= o.n_keys ? INT_MAX : v.causal ? key : 0;
    }
    __syncthreads();
    tti_fetch_tile<T, DP>(sq, o.q, o.width, first, o.n_t, M, v.dim);
    tti_fetch_tile<T, DP>(sdy, o.dy, o.y_width, first, o.n_t, M, v.dim);
    tti_copy_commit();
    fetch_rows(a, o.lse_at, first, o.n_t, M, lse2, delta);
    for (int q0 = first, turn = 0; q0 < end; q0 += M, turn ^= 1) {
        int next = turn ^ 1;
        tti_copy_wait();
        __syncthreads();
        if (q0 + M < end) {
            tti_fetch_tile<T, DP>(sq + next * M * STEP, o.q, o.width, q0 + M, o.n_t, M, v.dim);
            tti_fetch_tile<T, DP>(sdy + next * M * STEP, o.dy, o.y_width, q0 + M, o.n_t, M, v.dim);
            fetch_rows(a, o.lse_at, q0 + M, o.n_t, M, lse2 + next * M, delta + next * M);
        }
        tti_copy_commit();
        tti_row_products<T, DP, N>(sk + warp * 16 * STEP, sq + turn * M * STEP, s);
        tti_row_products<T, DP, N>(sv + warp * 16 * STEP, sdy + turn * M * STEP, dp);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = n * 8 + 2 * t4 + i % 2;
                weigh(q0 + at >= lowest[i / 2], scale2, lse2[turn * M + at], delta[turn * M + at],
                      s[n][i], dp[n][i]);
            }
        tti_add_products<T, DP, N>(s, sdy + turn * M * STEP, dv);
        tti_add_products<T, DP, N>(dp, sq + turn * M * STEP, dk);
    }
    tti_copy_wait();
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_kv_kernel(tti_cuda_attention a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int STEP = tti_tile<DP>::STEP;
    T *sk = (T *)memory, *sv = sk + OWN * STEP, *sq = sv + OWN * STEP;
    const tti_cuda_heads &v = a.heads;
    int warp = threadIdx.x / 32, group = v.heads / v.kv_heads;
    float one[2] = {1, 1}, factor[2] = {v.scale, v.scale};
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, v.kv_heads);
        tti_head<T> o = tti_head_of<T>(a, t.b, t.h * group);
        int k0 = t.tile * OWN;
        float dk[DP / 8][4], dv[DP / 8][4];
#pragma unroll
        for (int d = 0; d < DP / 8; d++)
#pragma unroll
            for (int i = 0; i < 4; i++) dk[d][i] = dv[d][i] = 0;
        __syncthreads();
        tti_fetch_tile<T, DP>(sk, o.k, o.width, k0, o.n_t, OWN, v.dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.width, k0, o.n_t, OWN, v.dim);
        for (int h = 0; h < group; h++) {
            o = tti_head_of<T>(a, t.b, t.h * group + h);
            walk_queries<T, DP>(a, o, k0, sk, sv, sq, dk, dv);
        }
        tti_store_rows<T, DP>(dk, factor, k0 + warp * 16, o.n_t, v.dim, o.width,
                              (T *)a.dqkv + (o.k - (const T *)a.qkv));
        tti_store_rows<T, DP>(dv, one, k0 + warp * 16, o.n_t, v.dim, o.width,
                              (T *)a.dqkv + (o.v - (const T *)a.qkv));
    }
}

/* ---- launchers ---- */

template <class T, int DP>
static cudaError_t forward(const tti_cuda_attention *a, cudaStream_t stream) {
    const tti_cuda_heads *v = &a->heads;
    int tiles = (int)((v->n_t + OWN - 1) / OWN);
    int bytes = 5 * OWN * tti_tile<DP>::STEP * (int)sizeof(T);
    int64_t n = v->n_batch * v->heads * tiles;
    cudaError_t error = tti_allow_shared(forward_kernel<T, DP>, bytes);
    if (error != cudaSuccess) return error;
    forward_kernel<T, DP><<<tti_tile_grid(n), THREADS, bytes, stream>>>(*a, n, tiles);
    return cudaGetLastError();
}

template <class T, int DP>
static cudaError_t backward(const tti_cuda_attention *a, cudaStream_t stream) {
    const tti_cuda_heads *v = &a->heads;
    const int M = tti_other_rows<DP>::N;
    int tiles = (int)((v->n_t + OWN - 1) / OWN);
    int bytes = (2 * OWN + 4 * M) * tti_tile<DP>::STEP * (int)sizeof(T);
    int more = bytes + 4 * M * (int)sizeof(float);
    int64_t n_kv = v->n_batch * v->kv_heads * tiles, n_q = v->n_batch * v->heads * tiles;
    cudaError_t error = tti_allow_shared(grad_kv_kernel<T, DP>, more);
    if (error == cudaSuccess) error = tti_allow_shared(grad_q_kernel<T, DP>, bytes);
    if (error == cudaSuccess) error = tti_cuda_attention_delta(a, stream);
    if (error != cudaSuccess) return error;
    grad_kv_kernel<T, DP><<<tti_tile_grid(n_kv), THREADS, more, stream>>>(*a, n_kv, tiles);
    grad_q_kernel<T, DP><<<tti_tile_grid(n_q), THREADS, bytes, stream>>>(*a, n_q, tiles);
    return cudaGetLastError();
}

}  // namespace

extern "C" bool tti_cuda_attention_mma_can(tutti_dtype dtype, const tti_cuda_heads *heads) {
    return (dtype == TUTTI_BF16 || dtype == TUTTI_F16) && heads->dim % 8 == 0 && heads->dim <= 128;
}

extern "C" cudaError_t tti_cuda_attention_mma_forward(const tti_cuda_attention *a,
                                                      cudaStream_t stream) {
    if (a->heads.n_batch == 0 || a->heads.n_t == 0) return cudaSuccess;
    if (a->dtype == TUTTI_BF16)
        return a->heads.dim > 64 ? forward<tti_bf16, 128>(a, stream)
                                 : forward<tti_bf16, 64>(a, stream);
    return a->heads.dim > 64 ? forward<tti_f16, 128>(a, stream) : forward<tti_f16, 64>(a, stream);
}

extern "C" cudaError_t tti_cuda_attention_mma_backward(const tti_cuda_attention *a,
                                                       cudaStream_t stream) {
    if (a->heads.n_batch == 0 || a->heads.n_t == 0) return cudaSuccess;
    if (a->dtype == TUTTI_BF16)
        return a->heads.dim > 64 ? backward<tti_bf16, 128>(a, stream)
                                 : backward<tti_bf16, 64>(a, stream);
    return a->heads.dim > 64 ? backward<tti_f16, 128>(a, stream) : backward<tti_f16, 64>(a, stream);
}

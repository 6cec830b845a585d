/* sdpa_mma.cu - attention with separate queries, keys and values on tensor cores: 16-bit values,
 * widths that are multiples of 8 up to 128, with everything that the op's record allows.
 *
 * As attention_mma.cu, with what a score may have besides its product: a cap, a bias, windows,
 * segments and dropout.  The gradient of a bias that repeats over samples or heads is the sum over
 * them: a block adds up a tile of it over some samples and heads, and a second kernel adds what the
 * blocks have, in a fixed order. */
#include "backend/cuda/attention/sdpa_score.cuh"

namespace {

enum {
    THREADS = TTI_TILE_THREADS,
    OWN = TTI_TILE_ROWS,
    SAMPLE_BITS = 28,
    FULL_GPU = 528, /* blocks that keep every multiprocessor busy */
};

/* Dropout's factor of a weight: 0 if it is dropped. */
template <class T>
__device__ __forceinline__ float kept(const tti_sdpa_rule &r, const tti_sdpa_head<T> &o, int query,
                                      int key) {
    uint64_t e = o.weight0 + (uint64_t)query * r.n_s + key, sample = r.sample0 + o.b;
    tti_philox x = tti_philox_draw(r.key, r.step, (sample << SAMPLE_BITS) + e / 4);
    return tti_philox_unit(x.v[e % 4]) >= r.p ? r.factor : 0.0f;
}

/* ---- forward ---- */

/* Adds one tile of scores to the running maximum m, sum l and output. */
template <int N, int ND>
__device__ __forceinline__ void softmax_step(float (&s)[N][4], float (&m)[2], float (&l)[2],
                                             float (&out)[ND][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = m[i];
#pragma unroll
        for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
        top = tti_quad_max(top);
        float base = top == -INFINITY ? 0.0f : top, shrink = tti_sdpa_exp(m[i], base);
        m[i] = top, l[i] *= shrink;
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int j = 2 * i; j < 2 * i + 2; j++) {
                s[n][j] = tti_sdpa_exp(s[n][j], base);
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
    tti_sdpa_rule r = tti_sdpa_rule_of(a);
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, (int)a.sizes.heads);
        tti_sdpa_head<T> o = tti_sdpa_head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * OWN, row = q0 + warp * 16 + g, first, end;
        tti_sdpa_key_range(r, q0, OWN, &first, &end);
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
                    bool seen = tti_sdpa_sees(r, o, query, key);
                    s[n][i] = seen ? tti_sdpa_score(r, o, query, key, s[n][i], &slope) : -INFINITY;
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
                tti_sdpa_store_sum(a, o.row0 + row + 8 * i, m[i], l[i]);
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
__device__ __forceinline__ void weigh(const tti_sdpa_rule &r, const tti_sdpa_head<T> &o, int query,
                                      int key, const tti_sdpa_sum &of_row, float mean, float &s,
                                      float &dp, float *slope) {
    *slope = 1;
    if (!tti_sdpa_sees(r, o, query, key)) {
        s = dp = 0;
        return;
    }
    float own = tti_sdpa_weight_of(tti_sdpa_score(r, o, query, key, s, slope), of_row), m = 1;
    if (r.p > 0) m = kept(r, o, query, key);
    s = own * m, dp = own * (m * dp - mean);
}

/* The sum and the mean of a query; 0 beyond the last one. */
__device__ __forceinline__ void row_values(const tti_cuda_sdpa &a, int64_t row0, int query,
                                           tti_sdpa_sum *of_row, float *mean) {
    *of_row = tti_sdpa_sum_of(a, row0, query);
    *mean = query < (int)a.sizes.n_t ? ((const float *)a.mean)[row0 + query] : 0.0f;
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_q_kernel(tti_cuda_sdpa a, int64_t n_tasks, int n_tiles) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int M = tti_other_rows<DP>::N, N = M / 8, STEP = tti_tile<DP>::STEP;
    T *sq = (T *)memory, *sdy = sq + OWN * STEP, *sk = sdy + OWN * STEP, *sv = sk + 2 * M * STEP;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    tti_sdpa_rule r = tti_sdpa_rule_of(a);
    float factor[2] = {r.scale, r.scale};
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, (int)a.sizes.heads);
        tti_sdpa_head<T> o = tti_sdpa_head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * OWN, row = q0 + warp * 16 + g, first, end;
        tti_sdpa_key_range(r, q0, OWN, &first, &end);
        float s[N][4], dp[N][4], out[DP / 8][4], mean[2], slope;
        tti_sdpa_sum of_row[2];
        tti_clear_rows(out);
        for (int i = 0; i < 2; i++) row_values(a, o.row0, row + 8 * i, &of_row[i], &mean[i]);
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
                    weigh(r, o, row + i / 2 * 8, key, of_row[i / 2], mean[i / 2], s[n][i], dp[n][i],
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
__device__ __forceinline__ void walk_queries(const tti_cuda_sdpa &a, const tti_sdpa_rule &r,
                                             const tti_sdpa_head<T> &o, int k0, const T *sk,
                                             const T *sv, T *sq, float (&dk)[DP / 8][4],
                                             float (&dv)[DP / 8][4]) {
    const int M = tti_other_rows<DP>::N, N = M / 8, STEP = tti_tile<DP>::STEP;
    T *sdy = sq + 2 * M * STEP;
    tti_sdpa_sum *of_row = (tti_sdpa_sum *)(sdy + 2 * M * STEP);
    float *mean = (float *)(of_row + 2 * M), s[N][4], dp[N][4], slope;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim, first, end;
    tti_sdpa_query_range(r, k0, OWN, &first, &end);
    first = first / M * M;
    for (int q0 = first - M, turn = 1; q0 < end; q0 += M, turn ^= 1) {
        int next = (turn ^ 1) * M, ahead = q0 + M;
        tti_copy_wait();
        __syncthreads();
        if (ahead < end) {
            tti_fetch_tile<T, DP>(sq + next * STEP, o.q, o.q_step, ahead, r.n_t, M, dim);
            tti_fetch_tile<T, DP>(sdy + next * STEP, o.dy, o.y_step, ahead, r.n_t, M, v_dim);
            for (int i = threadIdx.x; i < M; i += THREADS)
                row_values(a, o.row0, ahead + i, &of_row[next + i], &mean[next + i]);
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
                weigh(r, o, q0 + at, key, of_row[turn * M + at], mean[turn * M + at], s[n][i],
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
    tti_sdpa_rule r = tti_sdpa_rule_of(a);
    float one[2] = {1, 1}, factor[2] = {r.scale, r.scale};
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        tti_tile_task t = tti_tile_task_of(at, n_tiles, (int)a.sizes.kv_heads);
        tti_sdpa_head<T> o = tti_sdpa_head_of<T>(a, t.b, t.h * group);
        int k0 = t.tile * OWN;
        float dk[DP / 8][4], dv[DP / 8][4];
        tti_clear_rows(dk), tti_clear_rows(dv);
        __syncthreads();
        tti_fetch_tile<T, DP>(sk, o.k, o.k_step, k0, r.n_s, OWN, dim);
        tti_fetch_tile<T, DP>(sv, o.v, o.v_step, k0, r.n_s, OWN, v_dim);
        tti_copy_commit();
        for (int h = 0; h < group; h++) {
            tti_sdpa_head<T> own = tti_sdpa_head_of<T>(a, t.b, t.h * group + h);
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

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, 2)
    grad_bias_kernel(tti_cuda_sdpa a, tti_sdpa_bias_work w, float *sums) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int N = OWN / 8, STEP = tti_tile<DP>::STEP, SIZE = OWN * STEP;
    T *sq = (T *)memory, *sdy = sq + SIZE, *sk = sdy + SIZE, *sv = sk + SIZE;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    tti_sdpa_rule r = tti_sdpa_rule_of(a);
    for (int64_t at = blockIdx.x; at < w.n_tasks; at += gridDim.x) {
        int64_t left = at;
        int k0 = (int)(left % w.k_tiles) * OWN, q0 = (int)(left / w.k_tiles % w.q_tiles) * OWN;
        left /= (int64_t)w.k_tiles * w.q_tiles;
        int64_t group = left % w.n_groups, chunk = left / w.n_groups;
        int64_t i = w.n_members * chunk / w.n_chunks;
        int64_t last = w.n_members * (chunk + 1) / w.n_chunks;
        int row = q0 + warp * 16 + g;
        float s[N][4], dp[N][4], sum[N][4], mean[2], slope;
        tti_sdpa_sum of_row[2];
        tti_clear_rows(sum);
        for (; i < last; i++) {
            tti_tile_task t = tti_sdpa_member_of(w, (int)a.sizes.heads, group, i);
            tti_sdpa_head<T> o = tti_sdpa_head_of<T>(a, t.b, t.h);
            __syncthreads();
            tti_fetch_tile<T, DP>(sq, o.q, o.q_step, q0, r.n_t, OWN, dim);
            tti_fetch_tile<T, DP>(sdy, o.dy, o.y_step, q0, r.n_t, OWN, v_dim);
            tti_fetch_tile<T, DP>(sk, o.k, o.k_step, k0, r.n_s, OWN, dim);
            tti_fetch_tile<T, DP>(sv, o.v, o.v_step, k0, r.n_s, OWN, v_dim);
            tti_copy_commit();
            for (int j = 0; j < 2; j++) row_values(a, o.row0, row + 8 * j, &of_row[j], &mean[j]);
            tti_copy_wait();
            __syncthreads();
            tti_row_products<T, DP, N>(sq + warp * 16 * STEP, sk, s);
            tti_row_products<T, DP, N>(sdy + warp * 16 * STEP, sv, dp);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    weigh(r, o, row + j / 2 * 8, k0 + n * 8 + 2 * t4 + j % 2, of_row[j / 2],
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

/* ---- launchers ---- */

template <class T, int DP>
cudaError_t forward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    const tti_sdpa *v = &a->sizes;
    int bytes = 5 * OWN * tti_tile<DP>::STEP * (int)sizeof(T),
        tiles = (int)tti_sdpa_tiles_of(v->n_t);
    int64_t n = (int64_t)(v->n_batch * v->heads) * tiles;
    cudaError_t error = tti_allow_shared(forward_kernel<T, DP>, bytes);
    if (error != cudaSuccess || n == 0) return error;
    forward_kernel<T, DP><<<tti_tile_grid(n), THREADS, bytes, stream>>>(*a, n, tiles);
    return cudaGetLastError();
}

/* Where the sums of tti_sdpa_bias_work lie in the scratch memory. */
size_t sums_at(const tti_sdpa *v) {
    return (v->n_batch * v->heads * v->n_t * sizeof(float) + 255) / 256 * 256;
}

template <class T, int DP>
cudaError_t grad_bias(const tti_cuda_sdpa *a, cudaStream_t stream) {
    tti_sdpa_bias_work w = tti_sdpa_bias_work_of(a, FULL_GPU);
    float *sums = (float *)((char *)a->mean + sums_at(&a->sizes));
    int bytes = 4 * OWN * tti_tile<DP>::STEP * (int)sizeof(T);
    cudaError_t error = tti_allow_shared(grad_bias_kernel<T, DP>, bytes);
    if (error != cudaSuccess) return error;
    if (w.n_tasks > 0)
        grad_bias_kernel<T, DP><<<tti_tile_grid(w.n_tasks), THREADS, bytes, stream>>>(*a, w, sums);
    return tti_sdpa_add_chunks<T>(a, &w, sums, stream);
}

template <class T, int DP>
cudaError_t backward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    const tti_sdpa *v = &a->sizes;
    const int M = tti_other_rows<DP>::N;
    int bytes = (2 * OWN + 4 * M) * tti_tile<DP>::STEP * (int)sizeof(T);
    int more = bytes + 2 * M * (int)(sizeof(tti_sdpa_sum) + sizeof(float));
    int q_tiles = (int)tti_sdpa_tiles_of(v->n_t), k_tiles = (int)tti_sdpa_tiles_of(v->n_s);
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
    tti_sdpa_bias_work w = tti_sdpa_bias_work_of(a, FULL_GPU);
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

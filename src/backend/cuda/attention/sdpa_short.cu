/* sdpa_short.cu - attention of at most 64 queries and keys, such as the windows of Swin: 16-bit
 * values, widths that are multiples of 8 up to 64, as many heads of keys as of queries, neither cap
 * nor dropout.
 *
 * All scores of a head fit into the registers of one block, so each input is read once and the
 * gradient is one kernel: the block computes weights and gradients of the scores, keeps them as 16
 * bits in shared memory, and multiplies them by both sides.  A block takes one head after another
 * and copies the next one meanwhile.  Those to which the same part of a bias belongs follow each
 * other, so that the block adds up its gradient in registers. */
#include "backend/cuda/attention/sdpa_score.cuh"

namespace {

enum {
    THREADS = TTI_TILE_THREADS,
    OWN = TTI_TILE_ROWS,
    N = OWN / 8,
    P_STEP = OWN + 8,      /* a row of weights in shared memory */
    FORWARD_BLOCKS = 4096, /* several for each place on the largest GPUs, each with several heads */
    GRAD_BLOCKS = 2048,
};

/* The heads that a block takes: members first .. last - 1 of a part. */
struct heads_of_block {
    int64_t group, first, last;
};

__device__ __forceinline__ heads_of_block heads_of(const tti_sdpa_bias_work &w, int64_t task) {
    heads_of_block o;
    int64_t chunk = task / w.n_groups;
    o.group = task % w.n_groups;
    o.first = w.n_members * chunk / w.n_chunks;
    o.last = w.n_members * (chunk + 1) / w.n_chunks;
    return o;
}

template <class T>
__device__ __forceinline__ tti_sdpa_head<T> head_at(const tti_cuda_sdpa &a,
                                                    const tti_sdpa_bias_work &w, int64_t group,
                                                    int64_t i) {
    tti_tile_task t = tti_sdpa_member_of(w, (int)a.sizes.heads, group, i);
    return tti_sdpa_head_of<T>(a, t.b, t.h);
}

/* The score of a query and a key that it sees; *slope becomes 0 where the bias replaces it. */
template <class T>
__device__ __forceinline__ float score(const tti_sdpa_rule &r, const tti_sdpa_head<T> &o, int query,
                                       int key, float product, float *slope) {
    float s = product * r.scale;
    return o.bias ? tti_sdpa_biased(r, o, query, key, s, slope) : s;
}

/* ---- forward ---- */

template <class T, int DP>
__device__ __forceinline__ void fetch_forward(const tti_cuda_sdpa &a, const tti_sdpa_head<T> &o,
                                              T *to) {
    const int SIZE = OWN * tti_tile<DP>::STEP;
    int n_t = (int)a.sizes.n_t, n_s = (int)a.sizes.n_s;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    tti_fetch_tile<T, DP>(to, o.q, o.q_step, 0, n_t, OWN, dim);
    tti_fetch_tile<T, DP>(to + SIZE, o.k, o.k_step, 0, n_s, OWN, dim);
    tti_fetch_tile<T, DP>(to + 2 * SIZE, o.v, o.v_step, 0, n_s, OWN, v_dim);
}

/* s = the weights of a row before they are divided by their sum *l; *m: the largest score. */
__device__ __forceinline__ void softmax_row(float (&s)[N][4], int i, float *m, float *l) {
    float top = -INFINITY, sum = 0;
#pragma unroll
    for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(s[n][2 * i], s[n][2 * i + 1]));
    top = tti_quad_max(top);
    float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int j = 2 * i; j < 2 * i + 2; j++) {
            s[n][j] = tti_sdpa_exp(s[n][j], base);
            sum += s[n][j];
        }
    *m = top, *l = tti_quad_sum(sum);
}

template <class T, int DP>
__global__ void __launch_bounds__(THREADS, DP > 32 ? 3 : 5)
    forward_kernel(tti_cuda_sdpa a, tti_sdpa_bias_work w) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int STEP = tti_tile<DP>::STEP, SIZE = OWN * STEP;
    T *tiles = (T *)memory; /* two times q, k, v */
    int warp = threadIdx.x / 32, row = warp * 16 + threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    tti_sdpa_rule r = tti_sdpa_rule_of(a);
    for (int64_t task = blockIdx.x; task < w.n_tasks; task += gridDim.x) {
        heads_of_block mine = heads_of(w, task);
        tti_sdpa_head<T> o = head_at<T>(a, w, mine.group, mine.first);
        __syncthreads();
        fetch_forward<T, DP>(a, o, tiles);
        tti_copy_commit();
        int turn = 0;
        for (int64_t i = mine.first; i < mine.last; i++, turn ^= 1) {
            const T *sq = tiles + turn * 3 * SIZE, *sk = sq + SIZE, *sv = sk + SIZE;
            tti_sdpa_head<T> next = o;
            float s[N][4], out[DP / 8][4], m[2], l[2], factor[2];
            tti_copy_wait();
            __syncthreads();
            if (i + 1 < mine.last) {
                next = head_at<T>(a, w, mine.group, i + 1);
                fetch_forward<T, DP>(a, next, tiles + (turn ^ 1) * 3 * SIZE);
            }
            tti_copy_commit();
            tti_row_products<T, DP, N>(sq + warp * 16 * STEP, sk, s);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int query = row + j / 2 * 8, key = n * 8 + 2 * t4 + j % 2;
                    bool seen = tti_sdpa_sees(r, o, query, key);
                    float slope;
                    s[n][j] = seen ? score(r, o, query, key, s[n][j], &slope) : -INFINITY;
                }
#pragma unroll
            for (int j = 0; j < 2; j++) {
                softmax_row(s, j, &m[j], &l[j]);
                factor[j] = l[j] == 0 ? 0.0f : 1 / l[j];
                if (t4 == 0 && row + 8 * j < r.n_t)
                    tti_sdpa_store_sum(a, o.row0 + row + 8 * j, m[j], l[j]);
            }
            tti_clear_rows(out);
            tti_add_products<T, DP, N>(s, sv, out);
            tti_store_rows<T, DP>(out, factor, warp * 16, r.n_t, (int)a.sizes.v_dim, o.y_step,
                                  (T *)a.y + o.y_at);
            o = next;
        }
    }
}

/* ---- backward ---- */

template <class T, int DP>
__device__ __forceinline__ void fetch_backward(const tti_cuda_sdpa &a, const tti_sdpa_head<T> &o,
                                               T *to) {
    fetch_forward<T, DP>(a, o, to);
    tti_fetch_tile<T, DP>(to + 3 * OWN * tti_tile<DP>::STEP, o.dy, o.y_step, 0, (int)a.sizes.n_t,
                          OWN, (int)a.sizes.v_dim);
}

/* The part that this thread has of a row of y: elements 8 t4 .. 8 t4 + 7 of each 32. */
template <int DP>
struct part_of_row {
    uint4 of[(DP + 31) / 32];
};

template <class T, int DP>
__device__ __forceinline__ part_of_row<DP> read_part(const tti_cuda_sdpa &a,
                                                     const tti_sdpa_head<T> &o, int row) {
    const T *y = (const T *)a.y + o.y_at + row * o.y_step;
    part_of_row<DP> part;
#pragma unroll
    for (int i = 0; i < (DP + 31) / 32; i++) {
        int d = i * 32 + threadIdx.x % 4 * 8;
        bool inside = row < (int)a.sizes.n_t && d < (int)a.sizes.v_dim;
        part.of[i] = inside ? *reinterpret_cast<const uint4 *>(y + d) : make_uint4(0, 0, 0, 0);
    }
    return part;
}

/* The sum of dy y over a row, of which four threads have y, and dy lies in shared memory. */
template <class T, int DP>
__device__ __forceinline__ float mean_of(const part_of_row<DP> &part, const T *dy) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < (DP + 31) / 32; i++) {
        uint4 other = *reinterpret_cast<const uint4 *>(dy + i * 32 + threadIdx.x % 4 * 8);
        const T *y = reinterpret_cast<const T *>(&part.of[i]);
        const T *x = reinterpret_cast<const T *>(&other);
#pragma unroll
        for (int d = 0; d < 8; d++) sum += tti_to_f32(y[d]) * tti_to_f32(x[d]);
    }
    return tti_quad_sum(sum);
}

/* The warp's rows of s, in 16 bits, to a tile of all rows. */
template <class T>
__device__ __forceinline__ void keep_rows(const float (&s)[N][4], int row, T *to) {
    int t4 = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *reinterpret_cast<uint32_t *>(to + (row + 8 * i) * P_STEP + n * 8 + 2 * t4) =
                tti_pack(s[n][2 * i], s[n][2 * i + 1], T());
}

/* out[16][DP] = columns column .. column + 15 of p, transposed, times values: the sums over all
 * rows. */
template <class T, int DP>
__device__ __forceinline__ void column_products(const T *p, int column, const T *values,
                                                float (&out)[DP / 8][4]) {
    const int STEP = tti_tile<DP>::STEP;
    int lane = threadIdx.x % 32;
    const T *pa = p + (lane / 16 * 8 + lane % 8) * P_STEP + column + lane / 8 % 2 * 8;
    const T *pv = values + (lane % 16) * STEP + lane / 16 * 8;
    tti_clear_rows(out);
#pragma unroll
    for (int row = 0; row < OWN; row += 16) {
        uint32_t a[4], b[4];
        tti_ldmatrix_transposed(a, pa + row * P_STEP);
#pragma unroll
        for (int d = 0; d < DP / 8; d += 2) {
            tti_ldmatrix_transposed(b, pv + row * STEP + d * 8);
            tti_mma<T>(out[d], a, b[0], b[1]);
            tti_mma<T>(out[d + 1], a, b[2], b[3]);
        }
    }
}

/* BIAS: the sums of the scores' gradients over the members of a part go to sums[chunk][part]. */
template <class T, int DP, bool BIAS>
__global__ void __launch_bounds__(THREADS, DP > 32 ? 2 : 3)
    grad_kernel(tti_cuda_sdpa a, tti_sdpa_bias_work w, float *sums) {
    extern __shared__ __align__(16) unsigned char memory[];
    const int STEP = tti_tile<DP>::STEP, SIZE = OWN * STEP;
    T *tiles = (T *)memory, *sp = tiles + 8 * SIZE,
      *sds = sp + OWN * P_STEP; /* two times 4 tiles */
    int warp = threadIdx.x / 32, row = warp * 16 + threadIdx.x % 32 / 4, t4 = threadIdx.x % 4;
    int dim = (int)a.sizes.dim, v_dim = (int)a.sizes.v_dim;
    tti_sdpa_rule r = tti_sdpa_rule_of(a);
    const float one[2] = {1, 1}, scales[2] = {r.scale, r.scale};
    for (int64_t task = blockIdx.x; task < w.n_tasks; task += gridDim.x) {
        heads_of_block mine = heads_of(w, task);
        tti_sdpa_head<T> o = head_at<T>(a, w, mine.group, mine.first);
        float sum[BIAS ? N : 1][4];
        tti_clear_rows(sum);
        __syncthreads();
        fetch_backward<T, DP>(a, o, tiles);
        tti_copy_commit();
        int turn = 0;
        for (int64_t i = mine.first; i < mine.last; i++, turn ^= 1) {
            const T *sq = tiles + turn * 4 * SIZE, *sk = sq + SIZE, *sv = sk + SIZE;
            const T *sdy = sv + SIZE;
            tti_sdpa_head<T> next = o;
            float s[N][4], dp[N][4], out[DP / 8][4], mean[2];
            tti_sdpa_sum of_row[2];
            part_of_row<DP> y[2];
#pragma unroll
            for (int j = 0; j < 2; j++) {
                y[j] = read_part<T, DP>(a, o, row + 8 * j);
                of_row[j] = tti_sdpa_sum_of(a, o.row0, row + 8 * j);
            }
            tti_copy_wait();
            __syncthreads();
            if (i + 1 < mine.last) {
                next = head_at<T>(a, w, mine.group, i + 1);
                fetch_backward<T, DP>(a, next, tiles + (turn ^ 1) * 4 * SIZE);
            }
            tti_copy_commit();
            tti_row_products<T, DP, N>(sq + warp * 16 * STEP, sk, s);
            tti_row_products<T, DP, N>(sdy + warp * 16 * STEP, sv, dp);
            for (int j = 0; j < 2; j++) mean[j] = mean_of<T, DP>(y[j], sdy + (row + 8 * j) * STEP);
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    int query = row + j / 2 * 8, key = n * 8 + 2 * t4 + j % 2;
                    bool seen = tti_sdpa_sees(r, o, query, key);
                    float slope = 1;
                    float x = seen ? score(r, o, query, key, s[n][j], &slope) : -INFINITY;
                    s[n][j] = seen ? tti_sdpa_weight_of(x, of_row[j / 2]) : 0.0f;
                    dp[n][j] = seen ? s[n][j] * (dp[n][j] - mean[j / 2]) : 0.0f;
                    if (BIAS) sum[BIAS ? n : 0][j] += dp[n][j];
                    dp[n][j] *= slope;
                }
            keep_rows(s, row, sp);
            keep_rows(dp, row, sds);
            tti_clear_rows(out);
            tti_add_products<T, DP, N>(dp, sk, out);
            tti_store_rows<T, DP>(out, scales, warp * 16, r.n_t, dim, o.q_step,
                                  (T *)a.dq + (o.q - (const T *)a.q));
            __syncthreads();
            column_products<T, DP>(sds, warp * 16, sq, out);
            tti_store_rows<T, DP>(out, scales, warp * 16, r.n_s, dim, o.k_step,
                                  (T *)a.dk + (o.k - (const T *)a.k));
            column_products<T, DP>(sp, warp * 16, sdy, out);
            tti_store_rows<T, DP>(out, one, warp * 16, r.n_s, v_dim, o.v_step,
                                  (T *)a.dv + (o.v - (const T *)a.v));
            o = next;
        }
        if (!BIAS) continue;
        float *to = sums + task * r.n_t * r.n_s; /* a task is a part of a chunk */
        for (int n = 0; n < N; n++)
            for (int j = 0; j < 4; j++) {
                int query = row + j / 2 * 8, key = n * 8 + 2 * t4 + j % 2;
                if (query < r.n_t && key < r.n_s)
                    to[(int64_t)query * r.n_s + key] = sum[BIAS ? n : 0][j];
            }
    }
}

/* ---- launchers ---- */

template <class T, int DP>
cudaError_t forward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    tti_cuda_sdpa plain = *a;
    plain.n_dbias = 0;
    tti_sdpa_bias_work w = tti_sdpa_bias_work_of(&plain, FORWARD_BLOCKS);
    int bytes = 2 * 3 * OWN * tti_tile<DP>::STEP * (int)sizeof(T);
    cudaError_t error = tti_allow_shared(forward_kernel<T, DP>, bytes);
    if (error != cudaSuccess || w.n_tasks == 0) return error;
    forward_kernel<T, DP><<<tti_tile_grid(w.n_tasks), THREADS, bytes, stream>>>(*a, w);
    return cudaGetLastError();
}

template <class T, int DP, bool BIAS>
cudaError_t grad(const tti_cuda_sdpa *a, const tti_sdpa_bias_work *w, cudaStream_t stream) {
    int bytes = (8 * OWN * tti_tile<DP>::STEP + 2 * OWN * P_STEP) * (int)sizeof(T);
    cudaError_t error = tti_allow_shared(grad_kernel<T, DP, BIAS>, bytes);
    if (error != cudaSuccess || w->n_tasks == 0) return error;
    grad_kernel<T, DP, BIAS>
        <<<tti_tile_grid(w->n_tasks), THREADS, bytes, stream>>>(*a, *w, (float *)a->mean);
    return cudaGetLastError();
}

template <class T, int DP>
cudaError_t backward(const tti_cuda_sdpa *a, cudaStream_t stream) {
    tti_sdpa_bias_work w = tti_sdpa_bias_work_of(a, GRAD_BLOCKS);
    if (a->n_dbias == 0) return grad<T, DP, false>(a, &w, stream);
    cudaError_t error = grad<T, DP, true>(a, &w, stream);
    if (error != cudaSuccess) return error;
    return tti_sdpa_add_chunks<T>(a, &w, (const float *)a->mean, stream);
}

bool is_narrow(const tti_cuda_sdpa *a) { return a->sizes.dim <= 32 && a->sizes.v_dim <= 32; }

template <class T>
cudaError_t forward_of(const tti_cuda_sdpa *a, cudaStream_t stream) {
    return is_narrow(a) ? forward<T, 32>(a, stream) : forward<T, 64>(a, stream);
}

template <class T>
cudaError_t backward_of(const tti_cuda_sdpa *a, cudaStream_t stream) {
    return is_narrow(a) ? backward<T, 32>(a, stream) : backward<T, 64>(a, stream);
}

}  // namespace

extern "C" bool tti_sdpa_short_can(const tti_cuda_sdpa *a) {
    const tti_sdpa *v = &a->sizes;
    if (v->n_t > OWN || v->n_s > OWN || v->dim > 64 || v->v_dim > 64) return false;
    return tti_sdpa_mma_can(a) && v->heads == v->kv_heads && v->softcap == 0 && v->p == 0;
}

extern "C" size_t tti_sdpa_short_scratch(const tti_cuda_sdpa *a) {
    return (size_t)tti_sdpa_bias_work_of(a, GRAD_BLOCKS).n_chunks * a->n_dbias * sizeof(float);
}

extern "C" cudaError_t tti_launch_sdpa_short(const tti_cuda_sdpa *a, cudaStream_t stream) {
    return a->dtype == TUTTI_BF16 ? forward_of<tti_bf16>(a, stream)
                                  : forward_of<tti_f16>(a, stream);
}

extern "C" cudaError_t tti_launch_sdpa_short_grad(const tti_cuda_sdpa *a, cudaStream_t stream) {
    return a->dtype == TUTTI_BF16 ? backward_of<tti_bf16>(a, stream)
                                  : backward_of<tti_f16>(a, stream);
}

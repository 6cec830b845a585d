/* attention_flash.cu - attention in plain arithmetic, for every dtype and every D.
 *
 * 256 threads hold a tile of 16 R queries by 16 R keys, R x R elements each.  Scores are computed
 * in chunks of D through shared memory; the output is divided into slices of 16 R columns, one
 * block each, so that D has no limit (each slice recomputes the scores).  A thread's rows are ty R
 * + i, its columns tx R + j; the 16 threads of a row are half a warp. */
#include "backend/cuda/attention/attention_head.cuh"

#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, CHUNK = 32 };

/* Rows of a thread. */
template <class T>
struct own_rows {
    static const int R = 4;
};
template <>
struct own_rows<double> {
    static const int R = 2;
};

__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }

/* Over the 16 threads of a row. */
template <class A>
__device__ __forceinline__ A row_max(A x) {
#pragma unroll
    for (int d = 8; d > 0; d /= 2) {
        A other = __shfl_xor_sync(0xffffffffu, x, d);
        x = other > x ? other : x;
    }
    return x;
}
template <class A>
__device__ __forceinline__ A row_sum(A x) {
#pragma unroll
    for (int d = 8; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

/* Rows of D elements, step apart; rows from n on count as zeros. */
template <class T>
struct rows {
    const T *first;
    int64_t step;
    int n;
};

template <class T>
__device__ __forceinline__ rows<T> rows_at(const T *p, int64_t step, int first, int end) {
    rows<T> r = {p + first * step, step, end - first};
    return r;
}

/* Elements from .. from + n_columns of rows into shared memory, zeros outside. */
template <class T, class A>
__device__ __forceinline__ void load(const rows<T> &r, int from, int dim, int n_rows, int n_columns,
                                     int row_step, int column_step, A *tile) {
    for (int i = threadIdx.x; i < n_rows * n_columns; i += THREADS) {
        int row = i / n_columns, d = i % n_columns;
        bool inside = row < r.n && from + d < dim;
        tile[row * row_step + d * column_step] =
            inside ? tti_widen<A>(r.first[row * r.step + from + d]) : (A)0;
    }
}

/* acc[i][j] += x[i] y[j], R elements each in 16 bytes of shared memory. */
template <class A, int R>
__device__ __forceinline__ void outer(const A *px, const A *py, A (&acc)[R][R]) {
    tti_vec<A, R> x = *reinterpret_cast<const tti_vec<A, R> *>(px);
    tti_vec<A, R> y = *reinterpret_cast<const tti_vec<A, R> *>(py);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) acc[i][j] += x.v[i] * y.v[j];
}

/* acc[i][j] = a's row ty R + i times b's row tx R + j. */
template <class T, class A, int R>
__device__ __forceinline__ void products(const rows<T> &a, const rows<T> &b, int dim, A *shared,
                                         A (&acc)[R][R]) {
    const int N = 16 * R, STEP = N + R;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    A *sa = shared, *sb = shared + CHUNK * STEP;
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) acc[i][j] = 0;
    for (int d0 = 0; d0 < dim; d0 += CHUNK) {
        __syncthreads();
        load(a, d0, dim, N, CHUNK, 1, STEP, sa);
        load(b, d0, dim, N, CHUNK, 1, STEP, sb);
        __syncthreads();
#pragma unroll 4
        for (int d = 0; d < CHUNK; d++) outer(sa + d * STEP + ty * R, sb + d * STEP + tx * R, acc);
    }
}

/* out[i][j] += sum over k of weights[ty R + i][k] values[k][slice + tx R + j]; the weights are
 * each thread's own p, brought together in shared memory. */
template <class T, class A, int R>
__device__ __forceinline__ void add_products(const A (&p)[R][R], const rows<T> &values, int slice,
                                             int dim, A *shared, A (&out)[R][R]) {
    const int N = 16 * R, STEP = N + R;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    A *sp = shared, *sv = shared + N * STEP;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < R; j++) {
        tti_vec<A, R> column;
#pragma unroll
        for (int i = 0; i < R; i++) column.v[i] = p[i][j];
        *reinterpret_cast<tti_vec<A, R> *>(sp + (tx * R + j) * STEP + ty * R) = column;
    }
    load(values, slice, dim, N, N, STEP, 1, sv);
    __syncthreads();
#pragma unroll 4
    for (int k = 0; k < N; k++) outer(sp + k * STEP + ty * R, sv + k * STEP + tx * R, out);
}

template <class T, class A, int R>
__device__ __forceinline__ void store(const A (&out)[R][R], int first, int end, int slice, int dim,
                                      int64_t step, T *to) {
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int i = 0; i < R; i++)
        for (int j = 0; j < R; j++) {
            int row = first + ty * R + i, column = slice + tx * R + j;
            if (row < end && column < dim) to[row * step + column] = tti_narrow<T>(out[i][j]);
        }
}

/* The task of a block: task -> tile, slice, head, sample, in this order. */
struct task {
    int tile, slice, h;
    int64_t b;
};

__device__ __forceinline__ task task_of(int64_t at, int n_tiles, int n_slices, int n_heads) {
    task t;
    t.tile = (int)(at % n_tiles), at /= n_tiles;
    t.slice = (int)(at % n_slices), at /= n_slices;
    t.h = (int)(at % n_heads), t.b = at / n_heads;
    return t;
}

template <class A, int R>
struct shared_size {
    static const int N = 16 * R;
    static const int products = 2 * CHUNK * (N + R), weights = 2 * N * (N + R);
    static const int value = products > weights ? products : weights;
};

/* ---- forward ---- */

/* Adds one tile of keys to the running maximum m, sum l and output. */
template <class T, class A, int R>
__device__ __forceinline__ void softmax_step(const tti_cuda_heads &v, const tti_head<T> &o, int q0,
                                             int k0, A (&s)[R][R], A (&m)[R], A (&l)[R],
                                             A (&out)[R][R]) {
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < R; i++) {
        int query = q0 + ty * R + i;
        A top = m[i];
#pragma unroll
        for (int j = 0; j < R; j++) {
            int key = k0 + tx * R + j;
            bool seen = key < o.n_keys && (!v.causal || key <= query);
            s[i][j] = seen ? s[i][j] * (A)v.scale : (A)-INFINITY;
            top = s[i][j] > top ? s[i][j] : top;
        }
        top = row_max(top);
        A shrink = m[i] == top ? (A)1 : tti_exp(m[i] - top), sum = 0;
#pragma unroll
        for (int j = 0; j < R; j++) {
            s[i][j] = s[i][j] == (A)-INFINITY ? (A)0 : tti_exp(s[i][j] - top);
            sum += s[i][j];
            out[i][j] *= shrink;
        }
        l[i] = l[i] * shrink + row_sum(sum);
        m[i] = top;
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    forward_kernel(tti_cuda_attention a, int64_t n_tasks, int n_tiles, int n_slices) {
    typedef typename tti_acc<T>::type A;
    const int R = own_rows<T>::R, N = 16 * R;
    __shared__ __align__(16) A shared[shared_size<A, R>::value];
    const tti_cuda_heads &v = a.heads;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        task t = task_of(at, n_tiles, n_slices, v.heads);
        tti_head<T> o = tti_head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * N, slice = t.slice * N;
        int end = v.causal && q0 + N < o.n_keys ? q0 + N : o.n_keys;
        A s[R][R], out[R][R], m[R], l[R];
        for (int i = 0; i < R; i++) {
            m[i] = (A)-INFINITY, l[i] = 0;
            for (int j = 0; j < R; j++) out[i][j] = 0;
        }
        for (int k0 = 0; k0 < end; k0 += N) {
            products(rows_at(o.q, o.width, q0, o.n_t), rows_at(o.k, o.width, k0, o.n_t), v.dim,
                     shared, s);
            softmax_step(v, o, q0, k0, s, m, l, out);
            add_products(s, rows_at(o.v, o.width, k0, o.n_t), slice, v.dim, shared, out);
        }
        for (int i = 0; i < R; i++) {
            int query = q0 + ty * R + i;
            for (int j = 0; j < R; j++)
                out[i][j] = o.n_keys == 0 ? (A)0 : out[i][j] / l[i]; /* all scores -inf: NaN */
            if (tx == 0 && slice == 0 && query < o.n_t)
                a.lse[o.lse_at + query] = o.n_keys == 0 ? 0.0f : (float)(m[i] + log_of(l[i]));
        }
        store(out, q0, o.n_t, slice, v.dim, o.y_width, (T *)a.y + (o.y - (const T *)a.y));
    }
}

/* ---- backward ---- */

/* One warp for each row of y: delta[b,h,t]. */
template <class T>
__global__ void delta_kernel(tti_cuda_attention a, typename tti_acc<T>::type *delta,
                             int64_t n_rows) {
    typedef typename tti_acc<T>::type A;
    const tti_cuda_heads &v = a.heads;
    int lane = threadIdx.x % 32;
    int64_t n_warps = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t first = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (int64_t row = first; row < n_rows; row += n_warps) {
        const T *y = (const T *)a.y + row * v.dim, *dy = (const T *)a.dy + row * v.dim;
        int64_t h = row % v.heads, t = row / v.heads % v.n_t, b = row / v.heads / v.n_t;
        A sum = 0;
        for (int d = lane; d < v.dim; d += 32) sum += tti_widen<A>(y[d]) * tti_widen<A>(dy[d]);
        sum = tti_warp_sum(sum);
        if (lane == 0) delta[(b * v.heads + h) * v.n_t + t] = sum;
    }
}

/* p = the weights and ds = p (dp - delta), both of one query and one key. */
template <class A, class T>
__device__ __forceinline__ void weigh(const tti_cuda_attention &a, const tti_head<T> &o, int query,
                                      int key, A &s, A &dp) {
    const tti_cuda_heads &v = a.heads;
    bool seen = query < o.n_t && key < o.n_keys && (!v.causal || key <= query);
    if (!seen) {
        s = dp = 0;
        return;
    }
    s = tti_exp(s * (A)v.scale - (A)a.lse[o.lse_at + query]);
    dp = s * (dp - ((const A *)a.delta)[o.lse_at + query]) * (A)v.scale;
}

template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    grad_q_kernel(tti_cuda_attention a, int64_t n_tasks, int n_tiles, int n_slices) {
    typedef typename tti_acc<T>::type A;
    const int R = own_rows<T>::R, N = 16 * R;
    __shared__ __align__(16) A shared[shared_size<A, R>::value];
    const tti_cuda_heads &v = a.heads;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        task t = task_of(at, n_tiles, n_slices, v.heads);
        tti_head<T> o = tti_head_of<T>(a, t.b, t.h);
        int q0 = (n_tiles - 1 - t.tile) * N, slice = t.slice * N;
        int end = v.causal && q0 + N < o.n_keys ? q0 + N : o.n_keys;
        A s[R][R], dp[R][R], out[R][R];
        for (int i = 0; i < R; i++)
            for (int j = 0; j < R; j++) out[i][j] = 0;
        for (int k0 = 0; k0 < end; k0 += N) {
            products(rows_at(o.q, o.width, q0, o.n_t), rows_at(o.k, o.width, k0, o.n_t), v.dim,
                     shared, s);
            products(rows_at(o.dy, o.y_width, q0, o.n_t), rows_at(o.v, o.width, k0, o.n_t), v.dim,
                     shared, dp);
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++)
                    weigh(a, o, q0 + ty * R + i, k0 + tx * R + j, s[i][j], dp[i][j]);
            add_products(dp, rows_at(o.k, o.width, k0, o.n_t), slice, v.dim, shared, out);
        }
        store(out, q0, o.n_t, slice, v.dim, o.width, (T *)a.dqkv + (o.q - (const T *)a.qkv));
    }
}

/* One tile of keys of one key head: all queries of all heads that share it, head by head. */
template <class T>
__global__ void __launch_bounds__(THREADS, 2)
    grad_kv_kernel(tti_cuda_attention a, int64_t n_tasks, int n_tiles, int n_slices) {
    typedef typename tti_acc<T>::type A;
    const int R = own_rows<T>::R, N = 16 * R;
    __shared__ __align__(16) A shared[shared_size<A, R>::value];
    const tti_cuda_heads &v = a.heads;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16, group = v.heads / v.kv_heads;
    for (int64_t at = blockIdx.x; at < n_tasks; at += gridDim.x) {
        task t = task_of(at, n_tiles, n_slices, v.kv_heads);
        int k0 = t.tile * N, slice = t.slice * N;
        A s[R][R], dp[R][R], dk[R][R], dv[R][R];
        for (int i = 0; i < R; i++)
            for (int j = 0; j < R; j++) dk[i][j] = dv[i][j] = 0;
        tti_head<T> o = tti_head_of<T>(a, t.b, t.h * group);
        for (int h = t.h * group; h < (t.h + 1) * group; h++) {
            o = tti_head_of<T>(a, t.b, h);
            int first = v.causal ? k0 : 0, end = k0 < o.n_keys ? o.n_t : 0;
            for (int q0 = first; q0 < end; q0 += N) {
                products(rows_at(o.k, o.width, k0, o.n_t), rows_at(o.q, o.width, q0, o.n_t), v.dim,
                         shared, s);
                products(rows_at(o.v, o.width, k0, o.n_t), rows_at(o.dy, o.y_width, q0, o.n_t),
                         v.dim, shared, dp);
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int j = 0; j < R; j++)
                        weigh(a, o, q0 + tx * R + j, k0 + ty * R + i, s[i][j], dp[i][j]);
                add_products(s, rows_at(o.dy, o.y_width, q0, o.n_t), slice, v.dim, shared, dv);
                add_products(dp, rows_at(o.q, o.width, q0, o.n_t), slice, v.dim, shared, dk);
            }
        }
        store(dk, k0, o.n_t, slice, v.dim, o.width, (T *)a.dqkv + (o.k - (const T *)a.qkv));
        store(dv, k0, o.n_t, slice, v.dim, o.width, (T *)a.dqkv + (o.v - (const T *)a.qkv));
    }
}

/* ---- launchers ---- */

static unsigned grid_of(int64_t n) { return (unsigned)(n < (1 << 30) ? n : 1 << 30); }

static bool is_empty(const tti_cuda_heads *v) { return v->n_batch == 0 || v->n_t == 0; }

template <class T>
static void forward(const tti_cuda_attention *a, cudaStream_t stream) {
    const int N = 16 * own_rows<T>::R;
    const tti_cuda_heads *v = &a->heads;
    int tiles = (int)((v->n_t + N - 1) / N), slices = (v->dim + N - 1) / N;
    int64_t n = v->n_batch * v->heads * tiles * slices;
    forward_kernel<T><<<grid_of(n), THREADS, 0, stream>>>(*a, n, tiles, slices);
}

template <class T>
static void backward(const tti_cuda_attention *a, cudaStream_t stream) {
    const int N = 16 * own_rows<T>::R;
    const tti_cuda_heads *v = &a->heads;
    int tiles = (int)((v->n_t + N - 1) / N), slices = (v->dim + N - 1) / N;
    int64_t n = v->n_batch * tiles * slices;
    grad_kv_kernel<T>
        <<<grid_of(n * v->kv_heads), THREADS, 0, stream>>>(*a, n * v->kv_heads, tiles, slices);
    grad_q_kernel<T>
        <<<grid_of(n * v->heads), THREADS, 0, stream>>>(*a, n * v->heads, tiles, slices);
}

template <class T>
static void delta(const tti_cuda_attention *a, cudaStream_t stream) {
    int64_t n = a->heads.n_batch * a->heads.n_t * a->heads.heads, blocks = (n + 7) / 8;
    delta_kernel<T>
        <<<grid_of(blocks), 256, 0, stream>>>(*a, (typename tti_acc<T>::type *)a->delta, n);
}

}  // namespace

extern "C" size_t tti_cuda_attention_delta_bytes(tutti_dtype dtype, const tti_cuda_heads *heads) {
    return (size_t)(heads->n_batch * heads->heads * heads->n_t) * (dtype == TUTTI_F64 ? 8 : 4);
}

extern "C" cudaError_t tti_cuda_attention_delta(const tti_cuda_attention *a, cudaStream_t stream) {
    if (is_empty(&a->heads)) return cudaSuccess;
    TTI_FLOAT_DISPATCH(a->dtype, delta<T>(a, stream));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_attention_forward(const tti_cuda_attention *a,
                                                  cudaStream_t stream) {
    if (is_empty(&a->heads)) return cudaSuccess;
    TTI_FLOAT_DISPATCH(a->dtype, forward<T>(a, stream));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_attention_backward(const tti_cuda_attention *a,
                                                   cudaStream_t stream) {
    if (is_empty(&a->heads)) return cudaSuccess;
    TTI_FLOAT_DISPATCH(a->dtype, delta<T>(a, stream); backward<T>(a, stream));
    return cudaGetLastError();
}

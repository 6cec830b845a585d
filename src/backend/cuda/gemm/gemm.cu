/* gemm.cu - a matrix product for cases that cublasLt refuses, and the passes around its products.
 *
 * The product is plain: tiles of 64 x 64 in shared memory, 4 x 4 elements to a thread, any strides,
 * no tensor cores.  It makes every legal product possible; cublasLt runs the others. */
#include "backend/cuda/gemm/gemm.h"

#include "backend/cuda/runtime/device.cuh"
#include "backend/cuda/runtime/elementwise.cuh"

/* ---- types: sums in f32, or f64 for f64 ---- */

template <class T>
struct wide {
    typedef float type;
};
template <>
struct wide<double> {
    typedef double type;
};

template <class A, class T>
__device__ __forceinline__ A load_as(const T *x) {
    return (A)tti_to_f32(*x);
}
template <>
__device__ __forceinline__ double load_as<double, double>(const double *x) {
    return *x;
}

template <class T, class A>
__device__ __forceinline__ void store_as(T *x, A value) {
    *x = tti_from_f32<T>((float)value);
}
template <>
__device__ __forceinline__ void store_as<double, double>(double *x, double value) {
    *x = value;
}

/* ---- the product ---- */

enum { TILE = 64, DEPTH = 16, EACH = 4, GEMM_THREADS = 256 };

/* A matrix of n_rows x k with any strides. */
template <class T>
struct operand {
    const T *x;
    int64_t n_rows, k, row_step, k_step;
};

/* TILE rows from row0 on, DEPTH of k from k0 on, as [depth][row]; zeros beyond the edges. */
template <class T, class A>
__device__ void load_tile(const operand<T> &m, int64_t row0, int64_t k0, A (*tile)[TILE + 1]) {
    for (int i = threadIdx.x; i < TILE * DEPTH; i += GEMM_THREADS) {
        /* neighbours in memory go to neighbouring threads */
        int r = m.k_step == 1 ? i / DEPTH : i % TILE, d = m.k_step == 1 ? i % DEPTH : i / TILE;
        bool inside = row0 + r < m.n_rows && k0 + d < m.k;
        tile[d][r] =
            inside ? load_as<A>(m.x + (row0 + r) * m.row_step + (k0 + d) * m.k_step) : (A)0;
    }
}

template <class T, class U, class A>
__device__ void store_tile(const tti_cuda_gemm_desc &g, const A (&sum)[EACH][EACH], int64_t row,
                           int64_t col, int64_t batch) {
    const U *c = g.c ? (const U *)g.c + batch * g.d_step : nullptr;
    U *d = (U *)g.d + batch * g.d_step;
    for (int i = 0; i < EACH; i++)
        for (int j = 0; j < EACH; j++) {
            int64_t at = (row + i * 16) * g.ldd + col + j * 16;
            if (row + i * 16 >= g.m || col + j * 16 >= g.n) continue;
            store_as<U, A>(d + at, c ? sum[i][j] + load_as<A>(c + at) : sum[i][j]);
        }
}

template <class T, class U>
__global__ void __launch_bounds__(GEMM_THREADS) gemm_kernel(tti_cuda_gemm_desc g, int64_t n_cols) {
    typedef typename wide<T>::type A;
    __shared__ A a_tile[DEPTH][TILE + 1], b_tile[DEPTH][TILE + 1];
    int64_t row0 = (int64_t)(blockIdx.x / n_cols) * TILE, col0 = blockIdx.x % n_cols * TILE;
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    for (int64_t batch = blockIdx.y; batch < g.n_batch; batch += gridDim.y) {
        operand<T> a = {(const T *)g.a + batch * g.a_step, g.m, g.k, g.a_row, g.a_col};
        operand<T> b = {(const T *)g.b + batch * g.b_step, g.n, g.k, g.b_col, g.b_row};
        A sum[EACH][EACH] = {};
        for (int64_t k0 = 0; k0 < g.k; k0 += DEPTH) {
            load_tile(a, row0, k0, a_tile);
            load_tile(b, col0, k0, b_tile);
            __syncthreads();
#pragma unroll
            for (int d = 0; d < DEPTH; d++) {
                A x[EACH], y[EACH];
#pragma unroll
                for (int i = 0; i < EACH; i++) {
                    x[i] = a_tile[d][ty + i * 16];
                    y[i] = b_tile[d][tx + i * 16];
                }
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++) sum[i][j] += x[i] * y[j];
            }
            __syncthreads();
        }
        store_tile<T, U, A>(g, sum, row0 + ty, col0 + tx, batch);
    }
}

template <class T, class U>
static cudaError_t gemm_launch(const tti_cuda_gemm_desc &g, cudaStream_t stream) {
    int64_t n_rows = (g.m + TILE - 1) / TILE, n_cols = (g.n + TILE - 1) / TILE;
    if (n_rows > INT32_MAX / n_cols) return cudaErrorInvalidConfiguration;
    dim3 grid((unsigned)(n_rows * n_cols), (unsigned)(g.n_batch < 65535 ? g.n_batch : 65535));
    gemm_kernel<T, U><<<grid, GEMM_THREADS, 0, stream>>>(g, n_cols);
    return cudaGetLastError();
}

extern "C" bool tti_cuda_gemm_has(tutti_dtype in, tutti_dtype out) {
    bool is_16_bit = in == TUTTI_BF16 || in == TUTTI_F16;
    return (is_16_bit && (out == in || out == TUTTI_F32)) ||
           (out == in && (in == TUTTI_F32 || in == TUTTI_F64));
}

extern "C" cudaError_t tti_cuda_gemm(const tti_cuda_gemm_desc *g, cudaStream_t stream) {
    if (g->m == 0 || g->n == 0 || g->n_batch == 0) return cudaSuccess;
    if (!tti_cuda_gemm_has(g->in, g->out)) return cudaErrorInvalidValue;
    if (g->in == TUTTI_F64) return gemm_launch<double, double>(*g, stream);
    if (g->in == TUTTI_F32) return gemm_launch<float, float>(*g, stream);
    if (g->in == TUTTI_BF16 && g->out == TUTTI_F32) return gemm_launch<tti_bf16, float>(*g, stream);
    if (g->in == TUTTI_BF16) return gemm_launch<tti_bf16, tti_bf16>(*g, stream);
    if (g->out == TUTTI_F32) return gemm_launch<tti_f16, float>(*g, stream);
    return gemm_launch<tti_f16, tti_f16>(*g, stream);
}

/* ---- the tail of a product ---- */

__device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_of(double x) { return tanh(x); }

template <class A>
__device__ __forceinline__ A gelu(A x) {
    A t = tanh_of((A)0.79788456080286535588 * (x + (A)0.044715 * x * x * x));
    return (A)0.5 * x * ((A)1 + t);
}

template <class A>
__device__ __forceinline__ A gelu_slope(A x) {
    const A root = (A)0.79788456080286535588;
    A t = tanh_of(root * (x + (A)0.044715 * x * x * x));
    return (A)0.5 * ((A)1 + t) +
           (A)0.5 * x * ((A)1 - t * t) * root * ((A)1 + (A)(3 * 0.044715) * x * x);
}

/* N neighbouring elements: one access of N times their bytes. */
template <int N, class T, class A>
__device__ __forceinline__ void load_n(const void *x, int64_t at, A (&to)[N]) {
    tti_vec<T, N> raw = *reinterpret_cast<const tti_vec<T, N> *>((const T *)x + at);
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = load_as<A>(&raw.v[i]);
}

template <int N, class T, class A>
__device__ __forceinline__ void store_n(void *x, int64_t at, const A (&from)[N]) {
    tti_vec<T, N> raw;
#pragma unroll
    for (int i = 0; i < N; i++) store_as<T, A>(&raw.v[i], from[i]);
    *reinterpret_cast<tti_vec<T, N> *>((T *)x + at) = raw;
}

enum { TAIL_THREADS = 256, TAIL_BLOCKS = 132 * 16 };

/* S: the type of the product's result. */
template <class T, class S, int N>
__global__ void __launch_bounds__(TAIL_THREADS) tail_kernel(tti_cuda_tail_desc t) {
    typedef typename wide<T>::type A;
    int64_t n_elems = t.rows * t.n, step = (int64_t)gridDim.x * TAIL_THREADS * N;
    int64_t at = ((int64_t)blockIdx.x * TAIL_THREADS + threadIdx.x) * N;
    int64_t col = at % t.n, col_step = step % t.n; /* N divides n: a vector stays in its row */
    for (; at < n_elems; at += step) {
        A d[N], other[N];
        load_n<N, S>(t.wide ? (const void *)t.wide : t.d, at, d);
        if (t.kind == TTI_TAIL_GELU_GRAD) {
            load_n<N, T>(t.aux, at, other);
#pragma unroll
            for (int i = 0; i < N; i++)
                d[i] *= t.exact ? tti_gelu_slope(other[i]) : gelu_slope(other[i]);
        }
        if (t.bias) {
            load_n<N, T>(t.bias, col, other);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] += other[i];
        }
        if (t.kind == TTI_TAIL_RELU) {
#pragma unroll
            for (int i = 0; i < N; i++) d[i] = d[i] < (A)0 ? (A)0 : d[i];
        }
        if (t.kind == TTI_TAIL_GELU) {
            store_n<N, T>(t.aux, at, d);
#pragma unroll
            for (int i = 0; i < N; i++) d[i] = t.exact ? tti_gelu(d[i]) : gelu(d[i]);
        }
        store_n<N, T>(t.d, at, d);
        col += col_step;
        if (col >= t.n) col -= t.n;
    }
}

template <class T, class S>
static void tail_launch_from(const tti_cuda_tail_desc &t, cudaStream_t stream) {
    const int N = 16 / sizeof(T);
    bool vectors = t.n % N == 0;
    int64_t n = t.rows * t.n / (vectors ? N : 1);
    int64_t n_blocks = (n + TAIL_THREADS - 1) / TAIL_THREADS;
    unsigned grid = (unsigned)(n_blocks < TAIL_BLOCKS ? n_blocks : TAIL_BLOCKS);
    if (vectors)
        tail_kernel<T, S, N><<<grid, TAIL_THREADS, 0, stream>>>(t);
    else
        tail_kernel<T, S, 1><<<grid, TAIL_THREADS, 0, stream>>>(t);
}

template <class T>
static void tail_launch(const tti_cuda_tail_desc &t, cudaStream_t stream) {
    if constexpr (sizeof(T) == 2) {
        if (t.wide) return tail_launch_from<T, float>(t, stream);
    }
    tail_launch_from<T, T>(t, stream);
}

extern "C" cudaError_t tti_cuda_run_tail(const tti_cuda_tail_desc *t, cudaStream_t stream) {
    if (t->rows == 0 || t->n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(t->dtype, tail_launch<T>(*t, stream))
    return cudaGetLastError();
}

/* ---- sums of columns, in two steps of fixed order ---- */

enum {
    COLUMN_LANES = 32,
    COLUMN_ROWS = 8,
    COLUMN_AHEAD = 8,   /* loads of a thread that are under way together */
    COLUMN_BLOCKS = 528 /* at most; 4 on each of 132 multiprocessors */
};

/* As many parts as fill the device; the number depends on the shape alone. */
static int64_t n_parts_of(int64_t rows, int64_t n, int64_t width) {
    int64_t n_cols = (n + width - 1) / width, least = COLUMN_ROWS * COLUMN_AHEAD;
    int64_t most = (rows + least - 1) / least, parts = COLUMN_BLOCKS / (n_cols > 0 ? n_cols : 1);
    return parts < 1 ? (rows > 0) : parts < most ? parts : most;
}

/* Adds the sums of the rows of threads in order: partials[blockIdx.y][n]. */
template <class T, int N>
__device__ void leave_columns(const tti_cuda_columns_desc &c, int64_t col,
                              typename wide<T>::type (&sum)[N]) {
    typedef typename wide<T>::type A;
    __shared__ A shared[COLUMN_ROWS][COLUMN_LANES * N];
    A *partials = (A *)c.partials;
#pragma unroll
    for (int i = 0; i < N; i++) shared[threadIdx.y][threadIdx.x * N + i] = sum[i];
    __syncthreads();
    if (threadIdx.y != 0 || col >= c.n) return;
    for (int y = 1; y < COLUMN_ROWS; y++)
        for (int i = 0; i < N; i++) sum[i] += shared[y][threadIdx.x * N + i];
    for (int i = 0; i < N; i++) partials[blockIdx.y * c.n + col + i] = sum[i];
}

/* partials[part][n]: rows part * COLUMN_ROWS + y, then on with the stride of all parts; counted
 * from the last row down, because the end of x, which was just written, is in the cache. */
template <class T, int N>
__global__ void __launch_bounds__(COLUMN_LANES *COLUMN_ROWS)
    column_parts_kernel(tti_cuda_columns_desc c, int64_t n_parts) {
    typedef typename wide<T>::type A;
    int64_t col = ((int64_t)blockIdx.x * COLUMN_LANES + threadIdx.x) * N;
    int64_t step = n_parts * COLUMN_ROWS, r = (int64_t)blockIdx.y * COLUMN_ROWS + threadIdx.y;
    A sum[N] = {};
    if (col >= c.n) r = c.rows;
    for (; r + (COLUMN_AHEAD - 1) * step < c.rows; r += COLUMN_AHEAD * step) {
        tti_vec<T, N> raw[COLUMN_AHEAD];
#pragma unroll
        for (int u = 0; u < COLUMN_AHEAD; u++)
            raw[u] = *reinterpret_cast<const tti_vec<T, N> *>(
                (const T *)c.x + (c.rows - 1 - (r + u * step)) * c.n + col);
#pragma unroll
        for (int u = 0; u < COLUMN_AHEAD; u++)
#pragma unroll
            for (int i = 0; i < N; i++) sum[i] += load_as<A>(&raw[u].v[i]);
    }
    for (; r < c.rows; r += step) {
        A x[N];
        load_n<N, T>(c.x, (c.rows - 1 - r) * c.n + col, x);
#pragma unroll
        for (int i = 0; i < N; i++) sum[i] += x[i];
    }
    leave_columns<T, N>(c, col, sum);
}

/* gelu_slope with the tanh of fast instructions: 1e-6 off, which 16 bits do not see. */
template <class T>
__device__ __forceinline__ typename wide<T>::type slope_for(typename wide<T>::type x) {
    return gelu_slope(x);
}
__device__ __forceinline__ float fast_slope(float x) {
    const float root = 0.79788456080286535588f;
    float cube = 0.044715f * x * x, u = root * x * (1 + cube);
    float t = 1 - __fdividef(2.0f, 1 + __expf(2 * u));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * root * (1 + 3 * cube);
}
template <>
__device__ __forceinline__ float slope_for<tti_bf16>(float x) {
    return fast_slope(x);
}
template <>
__device__ __forceinline__ float slope_for<tti_f16>(float x) {
    return fast_slope(x);
}

/* The sums of x gelu'(aux), which is stored in x. */
template <class T, int N, bool EXACT>
__global__ void __launch_bounds__(COLUMN_LANES *COLUMN_ROWS)
    gelu_grad_parts_kernel(tti_cuda_columns_desc c, T *x, const T *aux, int64_t n_parts) {
    typedef typename wide<T>::type A;
    enum { AHEAD = COLUMN_AHEAD / 2 };
    int64_t col = ((int64_t)blockIdx.x * COLUMN_LANES + threadIdx.x) * N;
    int64_t step = n_parts * COLUMN_ROWS, r = (int64_t)blockIdx.y * COLUMN_ROWS + threadIdx.y;
    A sum[N] = {};
    if (col >= c.n) r = c.rows;
    for (; r < c.rows; r += AHEAD * step) {
        tti_vec<T, N> d[AHEAD], z[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int64_t at = (r + u * step) * c.n + col;
            if (r + u * step >= c.rows) continue;
            d[u] = *reinterpret_cast<const tti_vec<T, N> *>(x + at);
            z[u] = *reinterpret_cast<const tti_vec<T, N> *>(aux + at);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            A made[N];
            if (r + u * step >= c.rows) continue;
#pragma unroll
            for (int i = 0; i < N; i++) {
                A at = load_as<A>(&z[u].v[i]);
                made[i] = load_as<A>(&d[u].v[i]) * (EXACT ? tti_gelu_slope(at) : slope_for<T>(at));
                sum[i] += made[i];
            }
            store_n<N, T>(x, (r + u * step) * c.n + col, made);
        }
    }
    leave_columns<T, N>(c, col, sum);
}

enum { SUM_LANES = 32, SUM_ROWS = 32 };

/* Sums the partials of 32 columns: row y of threads takes parts y, y + 32, .., then y by y. */
template <class A, class U>
__global__ void __launch_bounds__(SUM_LANES *SUM_ROWS)
    column_sums_kernel(const A *partials, int64_t n_parts, int64_t n, U *sums) {
    __shared__ A shared[SUM_ROWS][SUM_LANES];
    int64_t col = (int64_t)blockIdx.x * SUM_LANES + threadIdx.x;
    A sum = 0;
    if (col < n) {
#pragma unroll 4
        for (int64_t part = threadIdx.y; part < n_parts; part += SUM_ROWS)
            sum += partials[part * n + col];
    }
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= n) return;
    for (int y = 1; y < SUM_ROWS; y++) sum += shared[y][threadIdx.x];
    store_as<U, A>(sums + col, sum);
}

/* Columns of a block. */
template <class T>
static int64_t columns_of(int64_t n) {
    const int N = 16 / sizeof(T);
    return COLUMN_LANES * (n % N == 0 ? N : 1);
}

extern "C" size_t tti_cuda_column_bytes(tutti_dtype in, int64_t rows, int64_t n) {
    int64_t width = COLUMN_LANES;
    TTI_FLOAT_DISPATCH(in, width = columns_of<T>(n))
    return (size_t)n_parts_of(rows, n, width) * (size_t)n * (in == TUTTI_F64 ? 8 : 4);
}

struct column_grid {
    int64_t n_parts;
    dim3 grid, block;
};

template <class T>
static column_grid column_grid_of(const tti_cuda_columns_desc &c) {
    int64_t width = columns_of<T>(c.n), n_parts = n_parts_of(c.rows, c.n, width);
    column_grid g = {n_parts, dim3((unsigned)((c.n + width - 1) / width), (unsigned)n_parts),
                     dim3(COLUMN_LANES, COLUMN_ROWS)};
    return g;
}

template <class T>
static cudaError_t add_parts(const tti_cuda_columns_desc &c, int64_t n_parts, cudaStream_t stream) {
    typedef typename wide<T>::type A;
    unsigned n_blocks = (unsigned)((c.n + SUM_LANES - 1) / SUM_LANES);
    dim3 sum_block(SUM_LANES, SUM_ROWS);
    const A *partials = (const A *)c.partials;
    if (c.out == TUTTI_F32)
        column_sums_kernel<A, float>
            <<<n_blocks, sum_block, 0, stream>>>(partials, n_parts, c.n, (float *)c.sums);
    else
        column_sums_kernel<A, T>
            <<<n_blocks, sum_block, 0, stream>>>(partials, n_parts, c.n, (T *)c.sums);
    return cudaGetLastError();
}

template <class T>
static cudaError_t column_launch(const tti_cuda_columns_desc &c, cudaStream_t stream) {
    const int N = 16 / sizeof(T);
    column_grid g = column_grid_of<T>(c);
    if (g.n_parts > 0 && c.n % N == 0)
        column_parts_kernel<T, N><<<g.grid, g.block, 0, stream>>>(c, g.n_parts);
    else if (g.n_parts > 0)
        column_parts_kernel<T, 1><<<g.grid, g.block, 0, stream>>>(c, g.n_parts);
    return add_parts<T>(c, g.n_parts, stream);
}

template <class T, bool EXACT>
static cudaError_t gelu_grad_launch(const tti_cuda_columns_desc &c, T *x, const T *aux,
                                    cudaStream_t stream) {
    const int N = 16 / sizeof(T);
    column_grid g = column_grid_of<T>(c);
    if (g.n_parts > 0 && c.n % N == 0)
        gelu_grad_parts_kernel<T, N, EXACT><<<g.grid, g.block, 0, stream>>>(c, x, aux, g.n_parts);
    else if (g.n_parts > 0)
        gelu_grad_parts_kernel<T, 1, EXACT><<<g.grid, g.block, 0, stream>>>(c, x, aux, g.n_parts);
    return add_parts<T>(c, g.n_parts, stream);
}

extern "C" cudaError_t tti_cuda_gelu_grad_sums(const tti_cuda_columns_desc *c, void *x,
                                               const void *aux, bool exact, cudaStream_t stream) {
    if (c->n == 0) return cudaSuccess;
    cudaError_t error = cudaErrorInvalidValue;
    if (exact)
        TTI_FLOAT_DISPATCH(c->in,
                           error = gelu_grad_launch<T, true>(*c, (T *)x, (const T *)aux, stream))
    else
        TTI_FLOAT_DISPATCH(c->in,
                           error = gelu_grad_launch<T, false>(*c, (T *)x, (const T *)aux, stream))
    return error;
}

extern "C" cudaError_t tti_cuda_column_sums(const tti_cuda_columns_desc *c, cudaStream_t stream) {
    if (c->n == 0) return cudaSuccess;
    cudaError_t error = cudaErrorInvalidValue;
    TTI_FLOAT_DISPATCH(c->in, error = column_launch<T>(*c, stream))
    return error;
}

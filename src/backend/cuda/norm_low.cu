/* norm_low.cu - layer norm of rows whose values all have 16 bits, with what stands beside it.
 *
 * A warp has a row, in vectors of 16 bytes: vector k of lane t is number 32 k + t of the row.  The
 * idea to know: what was read is kept as it came, in words of two elements, and widened where it is
 * used, twice, so that there are registers for the column sums.  The next two rows are on their way
 * to shared memory meanwhile; each lane copies what it reads itself.  Rows are taken from the last
 * one down: what a product has just written is in the cache at its end. */
#include "backend/cuda/norm_low.h"
#include "backend/cuda/norm_row.cuh"

namespace {

enum {
    FORWARD_THREADS = 256,
    BACKWARD_THREADS = 128,
    BACKWARD_BLOCKS = 396, /* 3 on each of 132 multiprocessors; the bits depend on it */
    MOST_VECTORS = 4,      /* of a lane backward, */
    MOST_FORWARD = 8,      /* and forward */
    STAGES = 3             /* rows of a warp: one at work, two on their way */
};

/* ---- forward ---- */

template <class T, int NV>
__global__ void __launch_bounds__(FORWARD_THREADS, NV > 4   ? 2
                                                   : NV > 3 ? 3
                                                            : 4) forward_low(tti_cuda_norm a) {
    place at = {threadIdx.x % WARP, (unsigned)(a.rows.width / V)};
    size_t row = (size_t)blockIdx.x * (FORWARD_THREADS / WARP) + threadIdx.x / WARP;
    float x[NV][V], sum = 0;
    row_of<NV> raw, more;
    if (row >= a.rows.n_rows) return;
    row = a.rows.n_rows - 1 - row;
    load(a.x.at, row, at, raw);
    if (a.branch.at) load(a.branch.at, row, at, more);
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float b[V] = {};
        widen<T>(raw.v[k], x[k]);
        if (a.branch.at) widen<T>(more.v[k], b);
#pragma unroll
        for (int i = 0; i < V; i++) {
            x[k][i] += b[i];
            sum += x[k][i];
        }
        if (a.branch.at) store<T>(a.sum.at, row, at, k, x[k]);
    }
    row_norm norm = {a.gamma, a.beta, (float)a.eps, (float)a.rows.width};
    normalise(norm, at, sum, x,
              [&](int k, const float(&y)[V]) { store<T>(a.y.at, row, at, k, y); });
    if (at.lane == 0) a.mean[row] = norm.mean, a.rstd[row] = norm.rstd;
}

/* ---- backward ---- */

enum { DGAMMA, DBETA, DSUM, N_SUMS };

/* What a warp has of a row in shared memory. */
template <int NV>
struct staged {
    uint4 dy[NV * WARP], x[NV * WARP], residual[NV * WARP];
};

template <int NV>
struct read_row {
    row_of<NV> dy, x;
    float mean, rstd;
};

template <int NV>
__device__ __forceinline__ void copy_ahead(uint4 *to, const void *from, size_t row, place at) {
    const uint4 *p = (const uint4 *)from + row * at.n + at.lane;
#pragma unroll
    for (int k = 0; k < NV; k++) {
        unsigned there = (unsigned)__cvta_generic_to_shared(to + k * WARP + at.lane);
        if (has(at, k))
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(there), "l"(p + k * WARP)
                         : "memory");
    }
}

__device__ __forceinline__ void read_scale(const tti_cuda_norm_grad &a, size_t turn, float &mean,
                                           float &rstd) {
    if (turn >= a.rows.n_rows) return;
    mean = a.mean[a.rows.n_rows - 1 - turn];
    rstd = a.rstd[a.rows.n_rows - 1 - turn];
}

/* A group of copies, empty when all rows have had their turn. */
template <int NV>
__device__ __forceinline__ void copy_row(const tti_cuda_norm_grad &a, size_t turn, place at,
                                         staged<NV> &to) {
    if (turn < a.rows.n_rows) {
        size_t row = a.rows.n_rows - 1 - turn;
        copy_ahead<NV>(to.dy, a.dy.at, row, at);
        copy_ahead<NV>(to.x, a.x.at, row, at);
        if (a.residual.at) copy_ahead<NV>(to.residual, a.residual.at, row, at);
    }
    asm volatile("cp.async.commit_group;");
}

template <int NV>
__device__ __forceinline__ void take(const uint4 *from, place at, row_of<NV> &x) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        x.v[k] = has(at, k) ? from[k * WARP + at.lane] : make_uint4(0, 0, 0, 0);
}

/* The sums over the row of d = dy gamma, and of d xhat; adds to the sums of columns. */
template <class T, int NV>
__device__ __forceinline__ float2 row_sums(const read_row<NV> &r, const float *gamma, place at,
                                           float (&sums)[N_SUMS][NV][V]) {
    float sum = 0, dot = 0;
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float g[V], dy[V], x[V];
        load_params(gamma, at, k, g);
        widen<T>(r.dy.v[k], dy);
        widen<T>(r.x.v[k], x);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float xhat = (x[i] - r.mean) * r.rstd;
            sums[DGAMMA][k][i] += dy[i] * xhat;
            sums[DBETA][k][i] += dy[i];
            sum += dy[i] * g[i];
            dot += dy[i] * g[i] * xhat;
        }
    }
    return make_float2(tti_warp_sum(sum), tti_warp_sum(dot));
}

template <class T, int NV>
__device__ __forceinline__ void one_row(const tti_cuda_norm_grad &a, size_t row, place at,
                                        const staged<NV> &from, read_row<NV> &r,
                                        float (&sums)[N_SUMS][NV][V]) {
    float n = (float)a.rows.width;
    take(from.dy, at, r.dy);
    take(from.x, at, r.x);
    float2 s = row_sums<T>(r, a.gamma, at, sums);
    s.x /= n, s.y /= n;
    forget(r.dy);
    forget(r.x);
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float g[V], dy[V], dx[V], b[V] = {};
        load_params(a.gamma, at, k, g);
        widen<T>(r.dy.v[k], dy);
        widen<T>(r.x.v[k], dx);
        if (a.residual.at && has(at, k)) widen<T>(from.residual[k * WARP + at.lane], b);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float xhat = (dx[i] - r.mean) * r.rstd;
            dx[i] = r.rstd * (dy[i] * g[i] - s.x - xhat * s.y) + b[i];
            if (has(at, k)) sums[DSUM][k][i] += dx[i];
        }
        store<T>(a.dx.at, row, at, k, dx);
    }
}

/* The warps of a block add theirs in order: shared [NV * V * WARP], that nobody uses; own
 * [N_SUMS][width]. */
template <int NV>
__device__ __forceinline__ void leave(const float (&sums)[N_SUMS][NV][V], place at, size_t width,
                                      float *shared, float *own) {
#pragma unroll
    for (int s = 0; s < N_SUMS; s++) {
        for (unsigned turn = 0; turn < BACKWARD_THREADS / WARP; turn++) {
            if (turn == threadIdx.x / WARP)
#pragma unroll
                for (int k = 0; k < NV; k++)
#pragma unroll
                    for (int i = 0; i < V; i++) {
                        float *to = &shared[(k * V + i) * WARP + at.lane];
                        *to = (turn ? *to : 0.0f) + sums[s][k][i];
                    }
            __syncthreads();
        }
        for (unsigned e = threadIdx.x; e < width; e += BACKWARD_THREADS) {
            unsigned k = e / (V * WARP), lane = e / V % WARP, i = e % V;
            own[s * width + e] = shared[(k * V + i) * WARP + lane];
        }
        __syncthreads();
    }
}

template <class T, int NV>
__global__ void __launch_bounds__(BACKWARD_THREADS, NV > 3 ? 2 : 3)
    backward_low(tti_cuda_norm_grad a) {
    extern __shared__ uint4 memory[];
    staged<NV> *mine = reinterpret_cast<staged<NV> *>(memory) + threadIdx.x / WARP * STAGES;
    place at = {threadIdx.x % WARP, (unsigned)(a.rows.width / V)};
    size_t step = (size_t)gridDim.x * (BACKWARD_THREADS / WARP);
    size_t turn = (size_t)blockIdx.x * (BACKWARD_THREADS / WARP) + threadIdx.x / WARP;
    float sums[N_SUMS][NV][V] = {};
    float mean = 0, rstd = 0;
    read_scale(a, turn, mean, rstd);
    copy_row(a, turn, at, mine[0]);
    copy_row(a, turn + step, at, mine[1]);
    for (int i = 0; turn < a.rows.n_rows; turn += step, i = (i + 1) % STAGES) {
        read_row<NV> r;
        r.mean = mean, r.rstd = rstd;
        copy_row(a, turn + 2 * step, at, mine[(i + 2) % STAGES]);
        read_scale(a, turn + step, mean, rstd);
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        one_row<T>(a, a.rows.n_rows - 1 - turn, at, mine[i], r, sums);
    }
    __syncthreads(); /* the rows of all warps have been read */
    leave(sums, at, a.rows.width, reinterpret_cast<float *>(memory),
          a.partials + (size_t)blockIdx.x * N_SUMS * a.rows.width);
}

/* Sums of columns over the blocks, in order of 32 runs. */
__global__ void add_blocks(const float *partials, int n_blocks, tti_cuda_norm_grad a) {
    __shared__ float runs[WARP][WARP + 1];
    size_t width = a.rows.width, n_cols = N_SUMS * width;
    size_t col = (size_t)blockIdx.x * WARP + threadIdx.x;
    float sum = 0;
    if (col < n_cols)
#pragma unroll 8
        for (int p = threadIdx.y; p < n_blocks; p += WARP) sum += partials[p * n_cols + col];
    runs[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || col >= n_cols) return;
    sum = 0;
#pragma unroll
    for (int y = 0; y < WARP; y++) sum += runs[y][threadIdx.x];
    float *to = col < width ? a.dgamma : col < 2 * width ? a.dbeta : a.dsums;
    if (to) to[col % width] = sum;
}

/* dx alone, of long rows: their columns are summed by themselves. */
template <class T, int NV>
__global__ void __launch_bounds__(FORWARD_THREADS, 2) backward_long(tti_cuda_norm_grad a) {
    place at = {threadIdx.x % WARP, (unsigned)(a.rows.width / V)};
    size_t row = (size_t)blockIdx.x * (FORWARD_THREADS / WARP) + threadIdx.x / WARP;
    row_of<NV> dy, x, residual = {};
    if (row >= a.rows.n_rows) return;
    row = a.rows.n_rows - 1 - row;
    load(a.dy.at, row, at, dy);
    load(a.x.at, row, at, x);
    if (a.residual.at) load(a.residual.at, row, at, residual);
    row_norm_grad grad = {a.gamma, (float)a.rows.width, a.mean[row], a.rstd[row]};
    norm_grad_row<T>(grad, at, dy, x, residual,
                     [&](int k, const float(&dx)[V]) { store<T>(a.dx.at, row, at, k, dx); });
}

bool is_low(tutti_dtype dtype) { return dtype == TUTTI_BF16 || dtype == TUTTI_F16; }

bool is_like(tti_cuda_floats value, tutti_dtype dtype) { return !value.at || value.dtype == dtype; }

bool rows_fit(const tti_cuda_rows *v, size_t most_vectors) {
    return v->groups == 1 && v->inner == 1 && v->centred && v->width % V == 0 && v->width > 0 &&
           v->width <= most_vectors * V * WARP && v->n_rows > 0;
}

unsigned blocks_of(size_t n_rows) {
    size_t n = (n_rows + BACKWARD_THREADS / WARP - 1) / (BACKWARD_THREADS / WARP);
    return (unsigned)(n < BACKWARD_BLOCKS ? n : BACKWARD_BLOCKS);
}

template <class T, int NV>
void launch_forward(const tti_cuda_norm *a, cudaStream_t stream) {
    size_t each = FORWARD_THREADS / WARP;
    forward_low<T, NV>
        <<<(unsigned)((a->rows.n_rows + each - 1) / each), FORWARD_THREADS, 0, stream>>>(*a);
}

template <class T, int NV>
void launch_backward(const tti_cuda_norm_grad *a, cudaStream_t stream) {
    unsigned n_blocks = blocks_of(a->rows.n_rows);
    size_t n_bytes = BACKWARD_THREADS / WARP * STAGES * sizeof(staged<NV>);
    static_assert(sizeof(staged<NV>) >= V * NV * WARP * sizeof(float), "sums fit where rows were");
    if (tti_make_room((const void *)backward_low<T, NV>, n_bytes) != cudaSuccess)
        return; /* cudaGetLastError says it */
    backward_low<T, NV><<<n_blocks, BACKWARD_THREADS, n_bytes, stream>>>(*a);
    unsigned n_cols = (unsigned)(N_SUMS * a->rows.width);
    add_blocks<<<(n_cols + WARP - 1) / WARP, dim3(WARP, WARP), 0, stream>>>(a->partials,
                                                                            (int)n_blocks, *a);
}

/* The least vectors of a lane that hold the row. */
#define PICK(T, LAUNCH)                                                 \
    do {                                                                \
        size_t n = (a->rows.width + V * WARP - 1) / ((size_t)V * WARP); \
        if (n <= 1)                                                     \
            LAUNCH<T, 1>(a, stream);                                    \
        else if (n <= 3)                                                \
            LAUNCH<T, 3>(a, stream);                                    \
        else                                                            \
            LAUNCH<T, 4>(a, stream);                                    \
    } while (0)

template <class T>
void long_of(const tti_cuda_norm_grad *a, cudaStream_t stream) {
    size_t each = FORWARD_THREADS / WARP;
    unsigned grid = (unsigned)((a->rows.n_rows + each - 1) / each);
    if (a->rows.width <= 7 * V * WARP)
        backward_long<T, 7><<<grid, FORWARD_THREADS, 0, stream>>>(*a);
    else
        backward_long<T, MOST_FORWARD><<<grid, FORWARD_THREADS, 0, stream>>>(*a);
}

template <class T>
void forward_of(const tti_cuda_norm *a, cudaStream_t stream) {
    size_t n = (a->rows.width + V * WARP - 1) / ((size_t)V * WARP);
    if (n <= MOST_VECTORS)
        PICK(T, launch_forward);
    else if (n <= 7)
        launch_forward<T, 7>(a, stream);
    else
        launch_forward<T, MOST_FORWARD>(a, stream);
}

}  // namespace

extern "C" bool tti_cuda_norm_low_forward_can(const tti_cuda_norm *a) {
    tutti_dtype dtype = a->x.dtype;
    return rows_fit(&a->rows, MOST_FORWARD) && is_low(dtype) && is_like(a->branch, dtype) &&
           is_like(a->sum, dtype) && is_like(a->y, dtype) && a->rows.n_rows < ((size_t)1 << 32);
}

extern "C" cudaError_t tti_cuda_norm_low_forward(const tti_cuda_norm *a, cudaStream_t stream) {
    if (a->x.dtype == TUTTI_BF16)
        forward_of<tti_bf16>(a, stream);
    else
        forward_of<tti_f16>(a, stream);
    return cudaGetLastError();
}

extern "C" bool tti_cuda_norm_low_backward_can(const tti_cuda_norm_grad *a) {
    tutti_dtype dtype = a->x.dtype;
    return rows_fit(&a->rows, MOST_VECTORS) && is_low(dtype) && is_like(a->dy, dtype) && a->dx.at &&
           is_like(a->dx, dtype) && is_like(a->residual, dtype) && !a->copy.at && a->dgamma &&
           a->dbeta;
}

extern "C" size_t tti_cuda_norm_low_scratch(const tti_cuda_rows *v) {
    return rows_fit(v, MOST_VECTORS)
               ? (size_t)blocks_of(v->n_rows) * N_SUMS * v->width * sizeof(float)
               : 0;
}

extern "C" cudaError_t tti_cuda_norm_low_backward(const tti_cuda_norm_grad *a,
                                                  cudaStream_t stream) {
    if (a->x.dtype == TUTTI_BF16)
        PICK(tti_bf16, launch_backward);
    else
        PICK(tti_f16, launch_backward);
    return cudaGetLastError();
}

extern "C" bool tti_cuda_norm_long_backward_can(const tti_cuda_norm_grad *a) {
    tutti_dtype dtype = a->x.dtype;
    return rows_fit(&a->rows, MOST_FORWARD) && !rows_fit(&a->rows, MOST_VECTORS) && is_low(dtype) &&
           is_like(a->dy, dtype) && a->dx.at && is_like(a->dx, dtype) &&
           is_like(a->residual, dtype) && !a->copy.at;
}

extern "C" cudaError_t tti_cuda_norm_long_backward(const tti_cuda_norm_grad *a,
                                                   cudaStream_t stream) {
    if (a->x.dtype == TUTTI_BF16)
        long_of<tti_bf16>(a, stream);
    else
        long_of<tti_f16>(a, stream);
    return cudaGetLastError();
}

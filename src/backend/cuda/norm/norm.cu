/* norm.cu - kernels of layer, RMS and group norm.
 *
 * Fast path: a team of threads (a warp, or a block for wide rows) holds a row in registers, so that
 * memory is read and written once.  A thread has chunks of 4 elements, chunk k of thread t being
 * number k * team + t of the row: 16 bytes of f32, 8 of 16-bit floats.  Dtypes are run-time values,
 * the same for all threads: loaded values are kept in their format (raw) until all loads are
 * issued.  Slow path, for widths that are no multiple of 4, very wide rows, groups and f64: a block
 * reads its row several times from the caches.  Gradients of gamma and beta: teams process rows
 * n_teams apart and keep sums of their columns; blocks write partial sums, which a second kernel
 * adds in order.  The number of blocks depends on the shape alone, so the bits do not depend on the
 * device. */
#include <type_traits>

#include "backend/cuda/norm/norm.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum {
    WARP = 32,
    FAST_THREADS = 256, /* of a block; also the widest team */
    GRAD_THREADS = 128, /* of a block of warps in the gradients, which take many registers */
    SUM_BLOCKS = 396,   /* 3 on each of 132 multiprocessors */
    MAX_CHUNKS = 8,     /* of a thread */
    MAX_BLOCKS = 1 << 20
};

/* ---- raw chunks ---- */

template <int NV>
struct raw_row {
    uint32_t w[NV][4]; /* 16-bit floats use two words of a chunk */
};

/* Which chunks of a row this thread has. */
struct place {
    unsigned first, step, n_chunks;
};

/* Chunk k of this thread lies k * step after its first: addresses are one base and constants. */
__device__ __forceinline__ bool has_chunk(place at, int k) {
    return at.first + k * at.step < at.n_chunks;
}

template <int NV>
__device__ __forceinline__ void load_raw(tti_cuda_floats from, size_t row, place at,
                                         raw_row<NV> &raw) {
    size_t base = row * at.n_chunks + at.first;
    if (from.dtype == TUTTI_F32) {
        const uint4 *p = (const uint4 *)from.at + base;
#pragma unroll
        for (int k = 0; k < NV; k++) {
            uint4 v = has_chunk(at, k) ? p[k * (int)at.step] : make_uint4(0, 0, 0, 0);
            raw.w[k][0] = v.x, raw.w[k][1] = v.y, raw.w[k][2] = v.z, raw.w[k][3] = v.w;
        }
    } else {
        const uint2 *p = (const uint2 *)from.at + base;
#pragma unroll
        for (int k = 0; k < NV; k++) {
            uint2 v = has_chunk(at, k) ? p[k * (int)at.step] : make_uint2(0, 0);
            raw.w[k][0] = v.x, raw.w[k][1] = v.y;
        }
    }
}

__device__ __forceinline__ float2 pair_to_f32(uint32_t w, tutti_dtype dtype) {
    if (dtype == TUTTI_BF16)
        return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000u));
    return __half22float2(*reinterpret_cast<__half2 *>(&w));
}

template <int NV>
__device__ __forceinline__ void to_f32(const raw_row<NV> &raw, tutti_dtype dtype,
                                       float (&x)[NV][4]) {
#pragma unroll
    for (int k = 0; k < NV; k++) {
        if (dtype == TUTTI_F32) {
#pragma unroll
            for (int i = 0; i < 4; i++) x[k][i] = __uint_as_float(raw.w[k][i]);
        } else {
            float2 lo = pair_to_f32(raw.w[k][0], dtype), hi = pair_to_f32(raw.w[k][1], dtype);
            x[k][0] = lo.x, x[k][1] = lo.y, x[k][2] = hi.x, x[k][3] = hi.y;
        }
    }
}

template <class T, int NV>
__device__ __forceinline__ void load_as(const T *from, place at, float (&x)[NV][4]) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        if (has_chunk(at, k)) tti_load<T, 4>(from + 4 * k * (int)at.step, x[k]);
}

/* Without the intermediate raw format: for a single value.  Chunks beyond the row are unchanged. */
template <int NV>
__device__ __forceinline__ void load_f32(tti_cuda_floats from, size_t row, place at,
                                         float (&x)[NV][4]) {
    size_t base = 4 * (row * at.n_chunks + at.first);
    if (from.dtype == TUTTI_F32)
        load_as((const float *)from.at + base, at, x);
    else if (from.dtype == TUTTI_BF16)
        load_as((const tti_bf16 *)from.at + base, at, x);
    else
        load_as((const tti_f16 *)from.at + base, at, x);
}

template <class T, int NV>
__device__ __forceinline__ void store_as(T *to, place at, const float (&x)[NV][4]) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        if (has_chunk(at, k)) tti_store<T, 4>(to + 4 * k * (int)at.step, x[k]);
}

template <int NV>
__device__ __forceinline__ void store_row(tti_cuda_floats to, size_t row, place at,
                                          const float (&x)[NV][4]) {
    size_t base = 4 * (row * at.n_chunks + at.first);
    if (to.dtype == TUTTI_F32)
        store_as((float *)to.at + base, at, x);
    else if (to.dtype == TUTTI_BF16)
        store_as((tti_bf16 *)to.at + base, at, x);
    else
        store_as((tti_f16 *)to.at + base, at, x);
}

/* Chunk k of gamma or beta. */
__device__ __forceinline__ void load_params(const float *from, place at, int k, float (&x)[4]) {
    float4 v = reinterpret_cast<const float4 *>(from + 4 * at.first)[k * (int)at.step];
    x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
}

/* ---- teams ---- */

/* The sum over a team, on each of its threads; shared: 32 elements. */
template <bool BLOCK>
__device__ __forceinline__ float team_sum(float x, float *shared) {
    return BLOCK ? tti_block_sum(x, shared) : tti_warp_sum(x);
}

template <bool BLOCK>
__device__ __forceinline__ place my_place(unsigned n_chunks) {
    place at = {BLOCK ? threadIdx.x : threadIdx.x % WARP, BLOCK ? blockDim.x : WARP, n_chunks};
    return at;
}

template <bool BLOCK>
__device__ __forceinline__ size_t first_row() {
    return BLOCK ? blockIdx.x : (size_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
}

template <bool BLOCK>
__device__ __forceinline__ size_t n_teams() {
    return BLOCK ? gridDim.x : (size_t)gridDim.x * (blockDim.x / WARP);
}

/* ---- forward, rows in registers ---- */

template <int NV, bool BLOCK>
__device__ __forceinline__ float sum_squares(const float (&x)[NV][4], float mean, place at) {
    float sum = 0;
#pragma unroll
    for (int k = 0; k < NV; k++)
        if (has_chunk(at, k))
#pragma unroll
            for (int i = 0; i < 4; i++) sum += (x[k][i] - mean) * (x[k][i] - mean);
    return sum;
}

/* x += branch, stored as the sum. */
template <int NV>
__device__ __forceinline__ void add_branch(const tti_cuda_norm &a, const raw_row<NV> &raw,
                                           size_t row, place at, float (&x)[NV][4]) {
    float more[NV][4];
    to_f32(raw, a.branch.dtype, more);
#pragma unroll
    for (int k = 0; k < NV; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) x[k][i] += more[k][i];
    store_row(a.sum, row, at, x);
}

template <int NV>
__device__ __forceinline__ void store_normal(const tti_cuda_norm &a, size_t row, place at,
                                             float mean, float rstd, float (&x)[NV][4]) {
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float gamma[4] = {0, 0, 0, 0}, beta[4] = {0, 0, 0, 0};
        if (has_chunk(at, k)) load_params(a.gamma, at, k, gamma);
        if (has_chunk(at, k) && a.beta) load_params(a.beta, at, k, beta);
#pragma unroll
        for (int i = 0; i < 4; i++) x[k][i] = (x[k][i] - mean) * rstd * gamma[i] + beta[i];
    }
    store_row(a.y, row, at, x);
}

template <int NV, bool BLOCK>
__global__ void __launch_bounds__(FAST_THREADS, NV > 6 ? 1 : 2) forward_fast(tti_cuda_norm a) {
    __shared__ float shared[WARP];
    place at = my_place<BLOCK>((unsigned)(a.rows.width / 4));
    float n = (float)a.rows.width;
    for (size_t row = first_row<BLOCK>(); row < a.rows.n_rows; row += n_teams<BLOCK>()) {
        raw_row<NV> raw_x, raw_branch;
        float x[NV][4], sum = 0;
        load_raw(a.x, row, at, raw_x);
        if (a.branch.at) load_raw(a.branch, row, at, raw_branch);
        to_f32(raw_x, a.x.dtype, x);
        if (a.branch.at) add_branch(a, raw_branch, row, at, x);
        if (a.rows.centred) {
#pragma unroll
            for (int k = 0; k < NV; k++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum += x[k][i];
            sum = team_sum<BLOCK>(sum, shared);
        }
        float mean = sum / n;
        float squares = team_sum<BLOCK>(sum_squares<NV, BLOCK>(x, mean, at), shared);
        float rstd = 1.0f / sqrtf(squares / n + (float)a.eps);
        store_normal(a, row, at, mean, rstd, x);
        if (at.first == 0) {
            if (a.mean) a.mean[row] = mean;
            a.rstd[row] = rstd;
        }
    }
}

/* ---- backward, rows in registers ---- */

template <int NV>
struct column_sums {
    float dgamma[NV][4], dbeta[NV][4];
};

template <int NV>
__device__ __forceinline__ void add_columns(const float (&dy)[NV][4], const float (&xhat)[NV][4],
                                            column_sums<NV> &sums) {
#pragma unroll
    for (int k = 0; k < NV; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sums.dgamma[k][i] += dy[k][i] * xhat[k][i];
            sums.dbeta[k][i] += dy[k][i];
        }
}

/* dy times gamma. */
template <int NV>
__device__ __forceinline__ void scale_dy(const float *gamma, place at, float (&dy)[NV][4]) {
#pragma unroll
    for (int k = 0; k < NV; k++) {
        float g[4] = {0, 0, 0, 0};
        if (has_chunk(at, k)) load_params(gamma, at, k, g);
#pragma unroll
        for (int i = 0; i < 4; i++) dy[k][i] *= g[i];
    }
}

/* d: dy gamma.  The residual gradient is read here, not with dy and x: registers are scarce, and
 * the sums over the team hide its latency. */
template <int NV, bool BLOCK>
__device__ __forceinline__ void store_dx(const tti_cuda_norm_grad &a, size_t row, place at,
                                         float rstd, float (&d)[NV][4], const float (&xhat)[NV][4],
                                         float *shared) {
    float sum = 0, dot = 0, n = (float)a.rows.width, more[NV][4] = {};
    if (a.residual.at) load_f32(a.residual, row, at, more);
#pragma unroll
    for (int k = 0; k < NV; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            sum += d[k][i];
            dot += d[k][i] * xhat[k][i];
        }
    sum = a.rows.centred ? team_sum<BLOCK>(sum, shared) / n : 0.0f;
    dot = team_sum<BLOCK>(dot, shared) / n;
#pragma unroll
    for (int k = 0; k < NV; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            d[k][i] = rstd * (d[k][i] - sum - xhat[k][i] * dot) + more[k][i];
        }
    store_row(a.dx, row, at, d);
    if (a.copy.at) store_row(a.copy, row, at, d);
}

/* The columns of this thread, set or added. */
template <int NV>
__device__ __forceinline__ void put_columns(place at, size_t width, bool set,
                                            const column_sums<NV> &sums, float *to) {
#pragma unroll
    for (int k = 0; k < NV; k++) {
        if (!has_chunk(at, k)) continue;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            size_t e = 4 * (size_t)(at.first + k * at.step) + i;
            to[e] = (set ? 0.0f : to[e]) + sums.dgamma[k][i];
            to[width + e] = (set ? 0.0f : to[width + e]) + sums.dbeta[k][i];
        }
    }
}

/* Partials [block][2][width]: threads of a block that is one team have own columns. */
template <int NV>
__device__ __forceinline__ void leave_columns(std::true_type, float *own, size_t width, place at,
                                              const column_sums<NV> &sums, float *) {
    put_columns(at, width, true, sums, own);
}

/* The warps of a block add theirs in order, in columns: shared, [2][width]. */
template <int NV>
__device__ __forceinline__ void leave_columns(std::false_type, float *own, size_t width, place at,
                                              const column_sums<NV> &sums, float *columns) {
    for (unsigned turn = 0; turn < blockDim.x / WARP; turn++) {
        if (turn == threadIdx.x / WARP) put_columns(at, width, turn == 0, sums, columns);
        __syncthreads();
    }
    for (size_t e = threadIdx.x; e < 2 * width; e += blockDim.x) own[e] = columns[e];
}

/* SUMS: column sums too; dx may be absent then. */
template <int NV, bool BLOCK, bool SUMS>
__global__ void __launch_bounds__(BLOCK ? FAST_THREADS : GRAD_THREADS, BLOCK    ? 1
                                                                       : NV > 6 ? 2
                                                                                : 3)
    backward_fast(tti_cuda_norm_grad a) {
    __shared__ float shared[WARP];
    __shared__ float columns[SUMS && !BLOCK ? 2 * NV * 4 * WARP : 1];
    place at = my_place<BLOCK>((unsigned)(a.rows.width / 4));
    column_sums<NV> sums = {};
    for (size_t row = first_row<BLOCK>(); row < a.rows.n_rows; row += n_teams<BLOCK>()) {
        raw_row<NV> raw_dy, raw_x;
        float dy[NV][4], x[NV][4];
        load_raw(a.dy, row, at, raw_dy);
        load_raw(a.x, row, at, raw_x);
        float mean = a.rows.centred ? a.mean[row] : 0.0f, rstd = a.rstd[row];
        to_f32(raw_dy, a.dy.dtype, dy);
        to_f32(raw_x, a.x.dtype, x);
#pragma unroll
        for (int k = 0; k < NV; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) x[k][i] = (x[k][i] - mean) * rstd;
        if (SUMS) add_columns(dy, x, sums);
        if (!a.dx.at) continue;
        scale_dy(a.gamma, at, dy);
        store_dx<NV, BLOCK>(a, row, at, rstd, dy, x, shared);
    }
    if (SUMS)
        leave_columns(std::integral_constant<bool, BLOCK>(),
                      a.partials + (size_t)blockIdx.x * 2 * a.rows.width, a.rows.width, at, sums,
                      columns);
}

/* out[col] = the sum of partials [n_partials][n_cols] over the first index, in order of 32 runs. */
__global__ void add_partials(const float *partials, int n_partials, size_t stride, size_t width,
                             float *dgamma, float *dbeta) {
    __shared__ float runs[WARP][WARP + 1];
    size_t col = (size_t)blockIdx.x * WARP + threadIdx.x, n_cols = dbeta ? 2 * width : width;
    float sum = 0;
    if (col < n_cols)
#pragma unroll 8
        for (int p = threadIdx.y; p < n_partials; p += WARP) sum += partials[p * stride + col];
    runs[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || col >= n_cols) return;
    sum = 0;
#pragma unroll
    for (int y = 0; y < WARP; y++) sum += runs[y][threadIdx.x];
    (col < width ? dgamma[col] : dbeta[col - width]) = sum;
}

/* ---- any width, group and dtype: A is the type of the computation ---- */

template <class A>
__device__ __forceinline__ A load_any(tti_cuda_floats from, size_t i) {
    switch (from.dtype) {
        case TUTTI_F32:
            return (A)((const float *)from.at)[i];
        case TUTTI_BF16:
            return (A)__bfloat162float(((const tti_bf16 *)from.at)[i]);
        case TUTTI_F16:
            return (A)__half2float(((const tti_f16 *)from.at)[i]);
        default:
            return (A)((const double *)from.at)[i];
    }
}

template <class A>
__device__ __forceinline__ void store_any(tti_cuda_floats to, size_t i, A x) {
    switch (to.dtype) {
        case TUTTI_F32:
            ((float *)to.at)[i] = (float)x;
            break;
        case TUTTI_BF16:
            ((tti_bf16 *)to.at)[i] = __float2bfloat16_rn((float)x);
            break;
        case TUTTI_F16:
            ((tti_f16 *)to.at)[i] = __float2half_rn((float)x);
            break;
        default:
            ((double *)to.at)[i] = (double)x;
            break;
    }
}

/* For element e of row r. */
__device__ __forceinline__ size_t param_index(const tti_rows &v, size_t row, size_t e) {
    if (v.inner == 1 && v.groups == 1) return e;
    size_t channel = v.width >> 32 ? e / v.inner : (unsigned)e / (unsigned)v.inner;
    return row % v.groups * v.per_group + channel;
}

template <class A>
__device__ __forceinline__ A term(const tti_cuda_norm &a, size_t i) {
    A x = load_any<A>(a.x, i);
    return a.branch.at ? x + load_any<A>(a.branch, i) : x;
}

template <class A>
__global__ void forward_any(tti_cuda_norm a) {
    __shared__ A shared[WARP];
    size_t width = a.rows.width;
    A n = (A)(width ? width : 1);
    for (size_t row = blockIdx.x; row < a.rows.n_rows; row += gridDim.x) {
        size_t base = row * width;
        A sum = 0, squares = 0;
        if (a.rows.centred)
            for (size_t e = threadIdx.x; e < width; e += blockDim.x) sum += term<A>(a, base + e);
        A mean = tti_block_sum(sum, shared) / n;
        for (size_t e = threadIdx.x; e < width; e += blockDim.x) {
            A d = term<A>(a, base + e) - mean;
            squares += d * d;
        }
        A rstd = (A)1 / sqrt(tti_block_sum(squares, shared) / n + (A)a.eps);
        for (size_t e = threadIdx.x; e < width; e += blockDim.x) {
            size_t p = param_index(a.rows, row, e);
            A x = term<A>(a, base + e);
            A y = (x - mean) * rstd * (A)a.gamma[p] + (a.beta ? (A)a.beta[p] : (A)0);
            if (a.sum.at) store_any<A>(a.sum, base + e, x);
            store_any<A>(a.y, base + e, y);
        }
        if (threadIdx.x == 0) {
            if (a.mean) a.mean[row] = (float)mean;
            a.rstd[row] = (float)rstd;
        }
    }
}

template <class A>
__global__ void grad_x_any(tti_cuda_norm_grad a) {
    __shared__ A shared[WARP];
    size_t width = a.rows.width;
    A n = (A)(width ? width : 1);
    for (size_t row = blockIdx.x; row < a.rows.n_rows; row += gridDim.x) {
        size_t base = row * width;
        A mean = a.rows.centred ? (A)a.mean[row] : (A)0, rstd = (A)a.rstd[row], sum = 0, dot = 0;
        for (size_t e = threadIdx.x; e < width; e += blockDim.x) {
            A d = load_any<A>(a.dy, base + e) * (A)a.gamma[param_index(a.rows, row, e)];
            sum += d;
            dot += d * (load_any<A>(a.x, base + e) - mean) * rstd;
        }
        sum = tti_block_sum(sum, shared) / n, dot = tti_block_sum(dot, shared) / n;
        if (!a.rows.centred) sum = 0;
        for (size_t e = threadIdx.x; e < width; e += blockDim.x) {
            A d = load_any<A>(a.dy, base + e) * (A)a.gamma[param_index(a.rows, row, e)];
            A dx = rstd * (d - sum - (load_any<A>(a.x, base + e) - mean) * rstd * dot);
            if (a.residual.at) dx += load_any<A>(a.residual, base + e);
            store_any<A>(a.dx, base + e, dx);
            if (a.copy.at) store_any<A>(a.copy, base + e, dx);
        }
    }
}

/* Column sums of rows without groups: blocks of 32 columns by 8 rows, blockIdx.y for a run of
 * rows; partials [gridDim.y][2][width]. */
template <class A>
__global__ void columns_any(tti_cuda_norm_grad a, size_t rows_each) {
    __shared__ A runs[2][8][WARP];
    size_t col = (size_t)blockIdx.x * WARP + threadIdx.x, width = a.rows.width;
    size_t first = blockIdx.y * rows_each, end = min(first + rows_each, a.rows.n_rows);
    A dgamma = 0, dbeta = 0;
    if (col < width)
        for (size_t row = first + threadIdx.y; row < end; row += 8) {
            A mean = a.rows.centred ? (A)a.mean[row] : (A)0;
            A dy = load_any<A>(a.dy, row * width + col), x = load_any<A>(a.x, row * width + col);
            dgamma += dy * ((x - mean) * (A)a.rstd[row]);
            dbeta += dy;
        }
    runs[0][threadIdx.y][threadIdx.x] = dgamma, runs[1][threadIdx.y][threadIdx.x] = dbeta;
    __syncthreads();
    if (threadIdx.y >= 2 || col >= width) return;
    A sum = 0;
    for (int y = 0; y < 8; y++) sum += runs[threadIdx.y][y][threadIdx.x];
    a.partials[((size_t)blockIdx.y * 2 + threadIdx.y) * width + col] = (float)sum;
}

/* Sums of one channel, blockIdx.x, over a run of samples, blockIdx.y, and all places;
 * partials [gridDim.y][2][channels]. */
template <class A>
__global__ void planes_any(tti_cuda_norm_grad a, size_t samples_each) {
    __shared__ A shared[WARP];
    const tti_rows &v = a.rows;
    size_t n_channels = v.groups * v.per_group, n_samples = v.n_rows / v.groups;
    size_t c = blockIdx.x, first = blockIdx.y * samples_each;
    size_t end = min(first + samples_each, n_samples);
    A dgamma = 0, dbeta = 0;
    for (size_t n = first; n < end; n++) {
        size_t base = (n * n_channels + c) * v.inner, row = n * v.groups + c / v.per_group;
        A mean = v.centred ? (A)a.mean[row] : (A)0, rstd = (A)a.rstd[row];
        for (size_t s = threadIdx.x; s < v.inner; s += blockDim.x) {
            A dy = load_any<A>(a.dy, base + s);
            dgamma += dy * ((load_any<A>(a.x, base + s) - mean) * rstd);
            dbeta += dy;
        }
    }
    dgamma = tti_block_sum(dgamma, shared), dbeta = tti_block_sum(dbeta, shared);
    if (threadIdx.x) return;
    a.partials[((size_t)blockIdx.y * 2) * n_channels + c] = (float)dgamma;
    a.partials[((size_t)blockIdx.y * 2 + 1) * n_channels + c] = (float)dbeta;
}

/* ---- which kernel, how many blocks ---- */

bool is_narrow(tti_cuda_floats v) { return !v.at || v.dtype != TUTTI_F64; }

bool has_groups(const tti_rows *v) { return v->groups != 1 || v->inner != 1; }

/* Threads of a team whose rows fit in its registers; 0: none does. */
unsigned team_of(const tti_rows *v) {
    if (has_groups(v) || v->width == 0 || v->width % 4) return 0;
    for (unsigned team = WARP; team <= FAST_THREADS; team *= 2)
        if (v->width / 4 <= (size_t)team * MAX_CHUNKS) return team;
    return 0;
}

unsigned blocks_for(size_t n, size_t each, size_t most) {
    size_t n_blocks = (n + each - 1) / each;
    return (unsigned)(n_blocks < most ? n_blocks : most);
}

unsigned threads_for(size_t width) { return width <= 256 ? 64 : width <= 8192 ? 256 : 1024; }

/* Blocks that leave partial column sums, on the fast path and on the slow one. */
unsigned sum_blocks(const tti_rows *v, unsigned team) {
    return blocks_for(v->n_rows, team == WARP ? GRAD_THREADS / WARP : 1, SUM_BLOCKS);
}

unsigned slow_sum_blocks(const tti_rows *v) {
    return has_groups(v) ? blocks_for(v->n_rows / v->groups, 1, 32) : blocks_for(v->n_rows, 64, 64);
}

/* Runs KERNEL<NV, BLOCK, more..> with the NV that a team needs. */
#define PICK(team, width, KERNEL, ...)                       \
    do {                                                     \
        size_t n_chunks = ((width) / 4 + (team)-1) / (team); \
        if ((team) > WARP)                                   \
            KERNEL(8, true, __VA_ARGS__);                    \
        else if (n_chunks <= 1)                              \
            KERNEL(1, false, __VA_ARGS__);                   \
        else if (n_chunks <= 2)                              \
            KERNEL(2, false, __VA_ARGS__);                   \
        else if (n_chunks <= 4)                              \
            KERNEL(4, false, __VA_ARGS__);                   \
        else if (n_chunks <= 6)                              \
            KERNEL(6, false, __VA_ARGS__);                   \
        else                                                 \
            KERNEL(8, false, __VA_ARGS__);                   \
    } while (0)

#define FORWARD(NV, BLOCK, blocks, threads) \
    forward_fast<NV, BLOCK><<<blocks, threads, 0, stream>>>(*a)
#define GRAD_X(NV, BLOCK, blocks, threads) \
    backward_fast<NV, BLOCK, false><<<blocks, threads, 0, stream>>>(*a)
#define GRAD_SUMS(NV, BLOCK, blocks, threads) \
    backward_fast<NV, BLOCK, true><<<blocks, threads, 0, stream>>>(*a)

void launch_partials(const tti_cuda_norm_grad *a, unsigned n_partials, cudaStream_t stream) {
    size_t width = a->rows.groups * a->rows.per_group, n_cols = a->dbeta ? 2 * width : width;
    unsigned blocks = (unsigned)((n_cols + WARP - 1) / WARP);
    add_partials<<<blocks, dim3(WARP, WARP), 0, stream>>>(a->partials, (int)n_partials, 2 * width,
                                                          width, a->dgamma, a->dbeta);
}

/* Without rows there are no blocks and no partials, and the sums are zeros. */
void launch_fast(const tti_cuda_norm_grad *a, unsigned team, cudaStream_t stream) {
    size_t width = a->rows.width;
    unsigned n_sums = a->dgamma ? sum_blocks(&a->rows, team) : 0;
    if (n_sums) {
        PICK(team, width, GRAD_SUMS, n_sums, team == WARP ? GRAD_THREADS : team);
    } else if (a->dx.at && a->rows.n_rows) {
        unsigned per_block = team == WARP ? GRAD_THREADS / WARP : 1;
        unsigned blocks = blocks_for(a->rows.n_rows, per_block, MAX_BLOCKS);
        PICK(team, width, GRAD_X, blocks, per_block * team);
    }
    if (a->dgamma) launch_partials(a, n_sums, stream);
}

template <class A>
void launch_any(const tti_cuda_norm_grad *a, cudaStream_t stream) {
    const tti_rows *v = &a->rows;
    size_t n_params = v->groups * v->per_group;
    if (a->dx.at && v->n_rows && v->width)
        grad_x_any<A>
            <<<blocks_for(v->n_rows, 1, MAX_BLOCKS), threads_for(v->width), 0, stream>>>(*a);
    if (!a->dgamma || n_params == 0) return;
    unsigned n_sums = slow_sum_blocks(v);
    if (n_sums && has_groups(v)) {
        size_t n_samples = v->n_rows / v->groups;
        planes_any<A><<<dim3((unsigned)n_params, n_sums), v->inner <= 256 ? 64 : 256, 0, stream>>>(
            *a, (n_samples + n_sums - 1) / n_sums);
    } else if (n_sums) {
        columns_any<A>
            <<<dim3((unsigned)((v->width + WARP - 1) / WARP), n_sums), dim3(WARP, 8), 0, stream>>>(
                *a, (v->n_rows + n_sums - 1) / n_sums);
    }
    launch_partials(a, n_sums, stream);
}

}  // namespace

extern "C" cudaError_t tti_cuda_norm_forward(const tti_cuda_norm *a, cudaStream_t stream) {
    const tti_rows *v = &a->rows;
    unsigned team = team_of(v);
    bool narrow = is_narrow(a->x) && is_narrow(a->branch) && is_narrow(a->y);
    if (v->n_rows == 0) return cudaSuccess;
    if (narrow && team) {
        unsigned per_block = team == WARP ? FAST_THREADS / WARP : 1;
        PICK(team, v->width, FORWARD, blocks_for(v->n_rows, per_block, MAX_BLOCKS),
             per_block * team);
    } else if (narrow) {
        forward_any<float>
            <<<blocks_for(v->n_rows, 1, MAX_BLOCKS), threads_for(v->width), 0, stream>>>(*a);
    } else {
        forward_any<double>
            <<<blocks_for(v->n_rows, 1, MAX_BLOCKS), threads_for(v->width), 0, stream>>>(*a);
    }
    return cudaGetLastError();
}

extern "C" size_t tti_cuda_norm_scratch(const tti_rows *v) {
    unsigned team = team_of(v), fast = team ? sum_blocks(v, team) : 0, slow = slow_sum_blocks(v);
    return (size_t)(fast > slow ? fast : slow) * 2 * v->groups * v->per_group * sizeof(float);
}

extern "C" cudaError_t tti_cuda_norm_backward(const tti_cuda_norm_grad *a, cudaStream_t stream) {
    unsigned team = team_of(&a->rows);
    bool narrow = is_narrow(a->dy) && is_narrow(a->x) && is_narrow(a->residual) &&
                  is_narrow(a->dx) && is_narrow(a->copy);
    if (narrow && team)
        launch_fast(a, team, stream);
    else if (narrow)
        launch_any<float>(a, stream);
    else
        launch_any<double>(a, stream);
    return cudaGetLastError();
}

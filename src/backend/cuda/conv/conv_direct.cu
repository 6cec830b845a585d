/* conv_direct.cu - convolutions term by term, for every case that cuDNN refuses and for tiny ones,
 * and the small kernels around cuDNN's: weight conversion, channel padding, bias and its gradient.
 *
 * One thread sums one element of y or dx, one block one element of dw: correct and reproducible,
 * not fast.  The kernels around cuDNN's move whole vectors. */
#include "backend/cuda/conv/conv_direct.h"

#include "backend/cuda/runtime/device.cuh"

namespace {

static unsigned blocks_for(int64_t n, int64_t per_block) {
    int64_t blocks = (n + per_block - 1) / per_block;
    return (unsigned)(blocks < (1 << 30) ? blocks : 1 << 30);
}

/* The offset of [n,c,i,j] in planes [.,n_c,n_i,n_j]. */
__device__ __forceinline__ int64_t at(bool last, int64_t n, int64_t c, int64_t i, int64_t j,
                                      int64_t n_c, int64_t n_i, int64_t n_j) {
    return last ? ((n * n_i + i) * n_j + j) * n_c + c : ((n * n_c + c) * n_i + i) * n_j + j;
}

/* The place (n, c, i, j) of element flat. */
struct place {
    int64_t n, c, i, j;
};

__device__ __forceinline__ place place_of(int64_t flat, bool last, int64_t n_c, int64_t n_i,
                                          int64_t n_j) {
    place p;
    if (last) p.c = flat % n_c, flat /= n_c;
    p.j = flat % n_j, flat /= n_j;
    p.i = flat % n_i, flat /= n_i;
    if (!last) p.c = flat % n_c, flat /= n_c;
    p.n = flat;
    return p;
}

/* ---- the three convolutions ---- */

template <class T>
__global__ void forward_kernel(tti_cuda_conv v, const T *x, const T *w, const T *bias, bool relu,
                               T *y) {
    typedef typename tti_acc<T>::type A;
    int64_t total = v.n * v.o * v.p * v.q, cg = v.c / v.groups, og = v.o / v.groups;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t flat = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; flat < total;
         flat += step) {
        place o = place_of(flat, v.y_last, v.o, v.p, v.q);
        int64_t c0 = o.c / og * cg;
        A sum = bias ? tti_widen<A>(bias[o.c]) : (A)0;
        for (int64_t r = 0; r < v.r; r++) {
            int64_t i = o.i * v.stride[0] - v.pad[0] + r * v.dilation[0];
            if (i < 0 || i >= v.h) continue;
            for (int64_t s = 0; s < v.s; s++) {
                int64_t j = o.j * v.stride[1] - v.pad[1] + s * v.dilation[1];
                if (j < 0 || j >= v.w) continue;
                for (int64_t c = 0; c < cg; c++)
                    sum += tti_widen<A>(x[at(v.x_last, o.n, c0 + c, i, j, v.c, v.h, v.w)]) *
                           tti_widen<A>(w[((o.c * cg + c) * v.r + r) * v.s + s]);
            }
        }
        y[flat] = tti_narrow<T>(relu && sum < (A)0 ? (A)0 : sum);
    }
}

/* dx[n,c,i,j] gathers the outputs that have seen it: p stride = i + pad - r dilation. */
template <class T>
__global__ void grad_x_kernel(tti_cuda_conv v, const T *dy, const T *w, T *dx) {
    typedef typename tti_acc<T>::type A;
    int64_t total = v.n * v.c * v.h * v.w, cg = v.c / v.groups, og = v.o / v.groups;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t flat = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; flat < total;
         flat += step) {
        place x = place_of(flat, v.x_last, v.c, v.h, v.w);
        int64_t o0 = x.c / cg * og, c = x.c % cg;
        A sum = 0;
        for (int64_t r = 0; r < v.r; r++) {
            int64_t i = x.i + v.pad[0] - r * v.dilation[0], p = i / v.stride[0];
            if (i < 0 || p >= v.p || p * v.stride[0] != i) continue;
            for (int64_t s = 0; s < v.s; s++) {
                int64_t j = x.j + v.pad[1] - s * v.dilation[1], q = j / v.stride[1];
                if (j < 0 || q >= v.q || q * v.stride[1] != j) continue;
                for (int64_t o = o0; o < o0 + og; o++)
                    sum += tti_widen<A>(dy[at(v.y_last, x.n, o, p, q, v.o, v.p, v.q)]) *
                           tti_widen<A>(w[((o * cg + c) * v.r + r) * v.s + s]);
            }
        }
        dx[flat] = tti_narrow<T>(sum);
    }
}

enum { GRAD_W_THREADS = 128 };

/* One block for each dw[o,c,r,s]; a thread takes every 128th row (n, p). */
template <class T>
__global__ void grad_w_kernel(tti_cuda_conv v, const T *dy, const T *x, T *dw, int64_t n_weights) {
    typedef typename tti_acc<T>::type A;
    __shared__ A shared[32];
    int64_t cg = v.c / v.groups, og = v.o / v.groups;
    for (int64_t flat = blockIdx.x; flat < n_weights; flat += gridDim.x) {
        int64_t s = flat % v.s, r = flat / v.s % v.r, c = flat / (v.s * v.r) % cg;
        int64_t o = flat / (v.s * v.r * cg), xc = o / og * cg + c;
        A sum = 0;
        for (int64_t row = threadIdx.x; row < v.n * v.p; row += GRAD_W_THREADS) {
            int64_t n = row / v.p, p = row % v.p;
            int64_t i = p * v.stride[0] - v.pad[0] + r * v.dilation[0];
            if (i < 0 || i >= v.h) continue;
            for (int64_t q = 0; q < v.q; q++) {
                int64_t j = q * v.stride[1] - v.pad[1] + s * v.dilation[1];
                if (j < 0 || j >= v.w) continue;
                sum += tti_widen<A>(dy[at(v.y_last, n, o, p, q, v.o, v.p, v.q)]) *
                       tti_widen<A>(x[at(v.x_last, n, xc, i, j, v.c, v.h, v.w)]);
            }
        }
        sum = tti_block_sum(sum, shared);
        if (threadIdx.x == 0) dw[flat] = tti_narrow<T>(sum);
    }
}

/* ---- bias ---- */

enum { SUM_THREADS = 256, SUM_MAX_SPLITS = 512 };

/* Rows (plain: samples) that one block adds, and into how many parts they fall. */
static int64_t sum_splits(const tti_cuda_planes *dy) {
    int64_t rows = dy->last ? dy->n * dy->plane : dy->n, per = dy->last ? 256 : 1;
    int64_t splits = (rows + per - 1) / per, most = dy->last ? SUM_MAX_SPLITS : 64;
    return splits < 1 ? 1 : splits < most ? splits : most;
}

/* partials[split][c] of dy[rows, c]; a block has 32 vectors of V channels beside 8 rows. */
template <class T, int V>
__global__ void sum_last_kernel(const T *dy, int64_t rows, int64_t n_c,
                                typename tti_acc<T>::type *partials) {
    typedef typename tti_acc<T>::type A;
    __shared__ A shared[8][32 * V];
    int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
    int64_t c = ((int64_t)blockIdx.x * 32 + tx) * V;
    int64_t per = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * per;
    int64_t end = first + per < rows ? first + per : rows;
    A sum[V];
    for (int v = 0; v < V; v++) sum[v] = 0;
    for (int64_t row = first + ty; c < n_c && row < end; row += 8) {
        tti_vec<T, V> x = *reinterpret_cast<const tti_vec<T, V> *>(dy + row * n_c + c);
#pragma unroll
        for (int v = 0; v < V; v++) sum[v] += tti_widen<A>(x.v[v]);
    }
    for (int v = 0; v < V; v++) shared[ty][tx * V + v] = sum[v];
    __syncthreads();
    for (int k = threadIdx.x; k < 32 * V; k += SUM_THREADS) {
        A total = 0;
        for (int row = 0; row < 8; row++) total += shared[row][k];
        int64_t column = (int64_t)blockIdx.x * 32 * V + k;
        if (column < n_c) partials[blockIdx.y * n_c + column] = total;
    }
}

/* partials[split][c] of dy[n, c, plane]: block (c, split) adds every gridDim.y-th sample. */
template <class T>
__global__ void sum_plain_kernel(const T *dy, int64_t n, int64_t n_c, int64_t plane,
                                 typename tti_acc<T>::type *partials) {
    typedef typename tti_acc<T>::type A;
    __shared__ A shared[32];
    int64_t c = blockIdx.x;
    A sum = 0;
    for (int64_t i = blockIdx.y; i < n; i += gridDim.y)
        for (int64_t k = threadIdx.x; k < plane; k += SUM_THREADS)
            sum += tti_widen<A>(dy[(i * n_c + c) * plane + k]);
    sum = tti_block_sum(sum, shared);
    if (threadIdx.x == 0) partials[blockIdx.y * n_c + c] = sum;
}

template <class T>
__global__ void sum_partials_kernel(const typename tti_acc<T>::type *partials, int64_t splits,
                                    int64_t n_c, T *db) {
    int64_t c = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= n_c) return;
    typename tti_acc<T>::type sum = 0;
    for (int64_t i = 0; i < splits; i++) sum += partials[i * n_c + c];
    db[c] = tti_narrow<T>(sum);
}

template <class T>
static void sum_channels(const tti_cuda_planes *dy, const T *values,
                         typename tti_acc<T>::type *partials, T *db, cudaStream_t stream) {
    const int V = 16 / sizeof(T);
    int64_t rows = dy->n * dy->plane, splits = sum_splits(dy);
    unsigned y = (unsigned)splits;
    if (!dy->last)
        sum_plain_kernel<T><<<dim3((unsigned)dy->c, y), SUM_THREADS, 0, stream>>>(
            values, dy->n, dy->c, dy->plane, partials);
    else if (dy->c % V == 0)
        sum_last_kernel<T, V><<<dim3(blocks_for(dy->c, 32 * V), y), SUM_THREADS, 0, stream>>>(
            values, rows, dy->c, partials);
    else
        sum_last_kernel<T, 1><<<dim3(blocks_for(dy->c, 32), y), SUM_THREADS, 0, stream>>>(
            values, rows, dy->c, partials);
    sum_partials_kernel<T><<<blocks_for(dy->c, 128), 128, 0, stream>>>(partials, splits, dy->c, db);
}

/* V elements of one channel (plain: of one plane) or of V channels. */
template <class T, int V>
__global__ void epilogue_kernel(tti_cuda_planes v, const T *bias, bool relu, T *y, int64_t total) {
    typedef typename tti_acc<T>::type A;
    int64_t step = (int64_t)gridDim.x * blockDim.x * V;
    for (int64_t flat = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * V; flat < total;
         flat += step) {
        tti_vec<T, V> x = *reinterpret_cast<const tti_vec<T, V> *>(y + flat);
        int64_t c = v.last ? flat % v.c : flat / v.plane % v.c;
#pragma unroll
        for (int k = 0; k < V; k++) {
            A a = tti_widen<A>(x.v[k]) + (bias ? tti_widen<A>(bias[v.last ? c + k : c]) : (A)0);
            x.v[k] = tti_narrow<T>(relu && a < (A)0 ? (A)0 : a);
        }
        *reinterpret_cast<tti_vec<T, V> *>(y + flat) = x;
    }
}

template <class T>
static void epilogue(const tti_cuda_planes *y, const T *bias, bool relu, T *values,
                     cudaStream_t stream) {
    const int V = 16 / sizeof(T);
    int64_t total = y->n * y->c * y->plane;
    bool whole = (y->last ? y->c : y->plane) % V == 0;
    if (whole)
        epilogue_kernel<T, V>
            <<<blocks_for(total, 256 * V), 256, 0, stream>>>(*y, bias, relu, values, total);
    else
        epilogue_kernel<T, 1>
            <<<blocks_for(total, 256), 256, 0, stream>>>(*y, bias, relu, values, total);
}

/* ---- weights and channels ---- */

/* A block converts CHANNELS channels of output channel blockIdx.y through shared memory, so that
 * accesses on both sides are contiguous, without divisions. channels: of the converted side. */
enum { CHANNELS = 64, MAX_TURNED = 49 /* places */ };

template <class T>
__global__ void __launch_bounds__(256)
    turn_tile(int c, int area, int channels, const T *w, T *turned) {
    __shared__ T tile[CHANNELS * MAX_TURNED];
    int first = blockIdx.x * CHANNELS, n = min(CHANNELS, c - first) * area;
    const T *from = w + ((int64_t)blockIdx.y * c + first) * area;
    T *to = turned + (int64_t)blockIdx.y * area * channels + first;
    for (int i = threadIdx.x; i < n; i += blockDim.x) tile[i] = from[i];
    __syncthreads();
    for (int i = threadIdx.x; i < CHANNELS * area; i += blockDim.x) {
        int k = i % CHANNELS, a = i / CHANNELS;
        if (first + k < channels)
            to[(int64_t)a * channels + k] = first + k < c ? tile[k * area + a] : (T)0;
    }
}

template <class T>
__global__ void __launch_bounds__(256)
    turn_back_tile(int c, int area, int channels, const T *turned, T *w) {
    __shared__ T tile[CHANNELS * MAX_TURNED];
    int first = blockIdx.x * CHANNELS, n = min(CHANNELS, c - first) * area;
    const T *from = turned + (int64_t)blockIdx.y * area * channels + first;
    T *to = w + ((int64_t)blockIdx.y * c + first) * area;
    for (int i = threadIdx.x; i < CHANNELS * area; i += blockDim.x) {
        int k = i % CHANNELS, a = i / CHANNELS;
        if (first + k < c) tile[k * area + a] = from[(int64_t)a * channels + k];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = tile[i];
}

/* Windows with more positions.  Neighbouring threads write neighbours; their reads come from the
 * cache. */
template <class T>
__global__ void turn_kernel(int64_t n, int64_t c, int64_t area, int64_t c_to, const T *w,
                            T *turned) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t flat = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; flat < n; flat += step) {
        int64_t k = flat % c_to, row = flat / c_to, a = row % area, o = row / area;
        turned[flat] = k < c ? w[(o * c + k) * area + a] : (T)0;
    }
}

template <class T>
__global__ void turn_back_kernel(int64_t n, int64_t c, int64_t area, int64_t c_from,
                                 const T *turned, T *w) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t flat = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; flat < n; flat += step) {
        int64_t a = flat % area, row = flat / area, k = row % c, o = row / c;
        w[flat] = turned[(o * area + a) * c_from + k];
    }
}

/* A thread makes one place of 16 bytes: V channels. */
template <class T, int V>
__global__ void pad_kernel(tti_cuda_planes x, const T *from, T *padded) {
    int64_t n = x.n * x.plane, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < n; at += step) {
        int64_t first = x.last ? at * x.c : at / x.plane * x.c * x.plane + at % x.plane;
        tti_vec<T, V> v;
#pragma unroll
        for (int k = 0; k < V; k++)
            v.v[k] = k < x.c ? from[first + (x.last ? k : k * x.plane)] : (T)0;
        *reinterpret_cast<tti_vec<T, V> *>(padded + at * V) = v;
    }
}

}  // namespace

/* ---- launchers ---- */

extern "C" cudaError_t tti_cuda_conv_forward(tutti_dtype dtype, const tti_cuda_conv *conv,
                                             const void *x, const void *w, const void *bias,
                                             bool relu, void *y, cudaStream_t stream) {
    int64_t n = conv->n * conv->o * conv->p * conv->q;
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(dtype,
                       (forward_kernel<T><<<blocks_for(n, 128), 128, 0, stream>>>(
                           *conv, (const T *)x, (const T *)w, (const T *)bias, relu, (T *)y)));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_conv_grad_x(tutti_dtype dtype, const tti_cuda_conv *conv,
                                            const void *dy, const void *w, void *dx,
                                            cudaStream_t stream) {
    int64_t n = conv->n * conv->c * conv->h * conv->w;
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(dtype, (grad_x_kernel<T><<<blocks_for(n, 128), 128, 0, stream>>>(
                                  *conv, (const T *)dy, (const T *)w, (T *)dx)));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_conv_grad_w(tutti_dtype dtype, const tti_cuda_conv *conv,
                                            const void *dy, const void *x, void *dw,
                                            cudaStream_t stream) {
    int64_t n = conv->o * (conv->c / conv->groups) * conv->r * conv->s;
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(dtype, (grad_w_kernel<T><<<blocks_for(n, 1), GRAD_W_THREADS, 0, stream>>>(
                                  *conv, (const T *)dy, (const T *)x, (T *)dw, n)));
    return cudaGetLastError();
}

extern "C" size_t tti_cuda_conv_sum_bytes(tutti_dtype dtype, const tti_cuda_planes *dy) {
    return (size_t)sum_splits(dy) * (size_t)dy->c * (dtype == TUTTI_F64 ? 8 : 4);
}

extern "C" cudaError_t tti_cuda_conv_sum(tutti_dtype dtype, const tti_cuda_planes *dy,
                                         const void *values, void *partials, void *db,
                                         cudaStream_t stream) {
    if (dy->c == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(
        dtype, (sum_channels<T>(dy, (const T *)values, (typename tti_acc<T>::type *)partials,
                                (T *)db, stream)));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_conv_epilogue(tutti_dtype dtype, const tti_cuda_planes *y,
                                              const void *bias, bool relu, void *values,
                                              cudaStream_t stream) {
    if (y->n * y->c * y->plane == 0 || (!bias && !relu)) return cudaSuccess;
    TTI_FLOAT_DISPATCH(dtype, (epilogue<T>(y, (const T *)bias, relu, (T *)values, stream)));
    return cudaGetLastError();
}

/* BACK: from turned to w. */
template <class T, bool BACK>
static cudaError_t turn(int64_t o, int64_t c, int64_t area, int64_t channels, const void *from,
                        void *to, cudaStream_t stream) {
    int64_t n = o * area * (BACK ? c : channels);
    if (n == 0) return cudaSuccess;
    if (area <= MAX_TURNED && o <= 65535 && c < (1 << 24) && channels < (1 << 24)) {
        dim3 grid(blocks_for(channels, CHANNELS), (unsigned)o);
        auto *tile = BACK ? turn_back_tile<T> : turn_tile<T>;
        tile<<<grid, 256, 0, stream>>>((int)c, (int)area, (int)channels, (const T *)from, (T *)to);
        return cudaGetLastError();
    }
    auto *kernel = BACK ? turn_back_kernel<T> : turn_kernel<T>;
    kernel<<<blocks_for(n, 256), 256, 0, stream>>>(n, c, area, channels, (const T *)from, (T *)to);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_conv_turn(int element, int64_t o, int64_t c, int64_t area,
                                          int64_t c_to, const void *w, void *turned,
                                          cudaStream_t stream) {
    return element == 2 ? turn<uint16_t, false>(o, c, area, c_to, w, turned, stream)
                        : turn<uint32_t, false>(o, c, area, c_to, w, turned, stream);
}

extern "C" cudaError_t tti_cuda_conv_turn_back(int element, int64_t o, int64_t c, int64_t area,
                                               int64_t c_from, const void *turned, void *w,
                                               cudaStream_t stream) {
    return element == 2 ? turn<uint16_t, true>(o, c, area, c_from, turned, w, stream)
                        : turn<uint32_t, true>(o, c, area, c_from, turned, w, stream);
}

extern "C" cudaError_t tti_cuda_conv_pad(int element, const tti_cuda_planes *x, int64_t c_to,
                                         const void *from, void *padded, cudaStream_t stream) {
    int64_t n = x->n * x->plane;
    if (n == 0) return cudaSuccess;
    if (x->c > c_to || c_to * element != 16) return cudaErrorInvalidValue;
    if (element == 2)
        pad_kernel<uint16_t, 8><<<blocks_for(n, 256), 256, 0, stream>>>(*x, (const uint16_t *)from,
                                                                        (uint16_t *)padded);
    else
        pad_kernel<uint32_t, 4><<<blocks_for(n, 256), 256, 0, stream>>>(*x, (const uint32_t *)from,
                                                                        (uint32_t *)padded);
    return cudaGetLastError();
}

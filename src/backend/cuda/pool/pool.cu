/* pool.cu - maximum and average over windows; gradients gathered from the windows over an element.
 *
 * One kernel serves both layouts: a thread has V channels of a position in N,H,W,C bytes, or one
 * position in plain bytes.  Gradients are sums over the windows that cover an element, in row-major
 * order of the windows, so there are no atomic additions and nothing is cleared before. */
#include "backend/cuda/pool/pool.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, MOST_ITEMS = 0x7fffffff, SEARCHED = 64 };

/* Items are the places of x or of y, one for each thread; and how both lie. */
struct walk {
    uint32_t n_items;
    tti_divisor channels, width, height; /* of items; channels: in N,H,W,C bytes only */
    size_t x_row, x_col, x_plane, y_row, y_col, y_plane; /* elements */
    int32_t in[2], out[2], kernel[2], stride[2], pad[2];
    bool count_pad, channels_last;
};

struct place {
    int32_t h, w;
    size_t x, y; /* where its plane, and its channel, begin */
};

template <int V>
__device__ __forceinline__ place place_of(const walk &k, uint32_t item) {
    place p;
    uint32_t channel = 0, rest = item;
    if (k.channels_last) {
        rest = tti_split_index(item, k.channels);
        channel = item * V;
    }
    uint32_t up = tti_split_index(rest, k.width);
    p.w = (int32_t)rest;
    uint32_t plane = tti_split_index(up, k.height);
    p.h = (int32_t)up;
    p.x = plane * k.x_plane + channel;
    p.y = plane * k.y_plane + channel;
    return p;
}

/* Elements lo .. hi-1 of x along d that output `at` sees; *start: where the window begins. */
__device__ __forceinline__ void window(const walk &k, int d, int32_t at, int32_t *lo, int32_t *hi,
                                       int32_t *start) {
    if (k.kernel[0]) {
        *start = at * k.stride[d] - k.pad[d];
        *lo = max(*start, 0);
        *hi = min(*start + k.kernel[d], k.in[d]);
    } else {
        *start = *lo = (int32_t)((int64_t)at * k.in[d] / k.out[d]);
        *hi = (int32_t)(((int64_t)(at + 1) * k.in[d] + k.out[d] - 1) / k.out[d]);
    }
}

/* Outputs lo .. hi-1 along d whose windows see element `at` of x. */
__device__ __forceinline__ void seers(const walk &k, int d, int32_t at, int32_t *lo, int32_t *hi) {
    if (k.kernel[0]) {
        int32_t first = at + k.pad[d] - k.kernel[d] + 1;
        *lo = first > 0 ? (first + k.stride[d] - 1) / k.stride[d] : 0;
        *hi = min((at + k.pad[d]) / k.stride[d] + 1, k.out[d]);
    } else {
        *lo = (int32_t)((int64_t)at * k.out[d] / k.in[d]);
        *hi = (int32_t)(((int64_t)(at + 1) * k.out[d] + k.in[d] - 1) / k.in[d]);
    }
}

template <class T, int V, class I>
__global__ void __launch_bounds__(THREADS)
    max_kernel(const T *x, T *y, I *index, const __grid_constant__ walk k) {
    typedef typename tti_acc<T>::type A;
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of<V>(k, item);
    int32_t h0, h1, top, w0, w1, left, at[V];
    A best[V];
    window(k, 0, p.h, &h0, &h1, &top);
    window(k, 1, p.w, &w0, &w1, &left);
    bool adaptive = k.kernel[0] == 0;
    for (int32_t h = h0; h < h1; h++)
        for (int32_t w = w0; w < w1; w++) {
            A now[V];
            int32_t here = adaptive ? h * k.in[1] + w : (h - top) * k.kernel[1] + w - left;
            tti_load(x + p.x + h * k.x_row + w * k.x_col, now);
            bool first = h == h0 && w == w0;
#pragma unroll
            for (int i = 0; i < V; i++) {
                bool wins = first || now[i] > best[i] || (now[i] != now[i] && best[i] == best[i]);
                best[i] = wins ? now[i] : best[i];
                at[i] = wins ? here : at[i];
            }
        }
    size_t to = p.y + p.h * k.y_row + p.w * k.y_col;
    tti_store(y + to, best);
    tti_vec<I, V> places;
#pragma unroll
    for (int i = 0; i < V; i++) places.v[i] = (I)at[i];
    *reinterpret_cast<tti_vec<I, V> *>(index + to) = places;
}

/* An adaptive index may be of any element: few windows are all searched, of many those that can
 * have seen the element. */
template <class T, int V, class I>
__global__ void __launch_bounds__(THREADS)
    max_grad_kernel(const T *dy, const I *index, T *dx, const __grid_constant__ walk k) {
    typedef typename tti_acc<T>::type A;
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of<V>(k, item);
    int32_t p0, p1, q0, q1;
    bool adaptive = k.kernel[0] == 0;
    A sum[V];
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] = 0;
    if (adaptive && k.out[0] * k.out[1] <= SEARCHED) {
        p0 = q0 = 0, p1 = k.out[0], q1 = k.out[1];
    } else {
        seers(k, 0, p.h, &p0, &p1);
        seers(k, 1, p.w, &q0, &q1);
    }
    for (int32_t r = p0; r < p1; r++)
        for (int32_t c = q0; c < q1; c++) {
            size_t from = p.y + r * k.y_row + c * k.y_col;
            int32_t own = p.h * k.in[1] + p.w;
            if (!adaptive)
                own = (p.h - r * k.stride[0] + k.pad[0]) * k.kernel[1] + p.w - c * k.stride[1] +
                      k.pad[1];
            tti_vec<I, V> places = *reinterpret_cast<const tti_vec<I, V> *>(index + from);
            A now[V];
            tti_load(dy + from, now);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += (int32_t)places.v[i] == own ? now[i] : (A)0;
        }
    tti_store(dx + p.x + p.h * k.x_row + p.w * k.x_col, sum);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    avg_kernel(const T *x, T *y, const __grid_constant__ walk k) {
    typedef typename tti_acc<T>::type A;
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of<V>(k, item);
    int32_t h0, h1, top, w0, w1, left;
    A sum[V];
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] = 0;
    window(k, 0, p.h, &h0, &h1, &top);
    window(k, 1, p.w, &w0, &w1, &left);
    for (int32_t h = h0; h < h1; h++)
#pragma unroll 4
        for (int32_t w = w0; w < w1; w++) {
            A now[V];
            tti_load(x + p.x + h * k.x_row + w * k.x_col, now);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += now[i];
        }
    A n = (A)(k.kernel[0] && k.count_pad ? (int64_t)k.kernel[0] * k.kernel[1]
                                         : (int64_t)(h1 - h0) * (w1 - w0));
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] = sum[i] / n;
    tti_store(y + p.y + p.h * k.y_row + p.w * k.y_col, sum);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    avg_grad_kernel(const T *dy, T *dx, const __grid_constant__ walk k) {
    typedef typename tti_acc<T>::type A;
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of<V>(k, item);
    int32_t p0, p1, q0, q1;
    A sum[V];
#pragma unroll
    for (int i = 0; i < V; i++) sum[i] = 0;
    seers(k, 0, p.h, &p0, &p1);
    seers(k, 1, p.w, &q0, &q1);
    for (int32_t r = p0; r < p1; r++)
        for (int32_t c = q0; c < q1; c++) {
            int32_t h0, h1, w0, w1, start;
            A now[V];
            window(k, 0, r, &h0, &h1, &start);
            window(k, 1, c, &w0, &w1, &start);
            A n = (A)(k.kernel[0] && k.count_pad ? (int64_t)k.kernel[0] * k.kernel[1]
                                                 : (int64_t)(h1 - h0) * (w1 - w0));
            tti_load(dy + p.y + r * k.y_row + c * k.y_col, now);
#pragma unroll
            for (int i = 0; i < V; i++) sum[i] += now[i] / n;
        }
    tti_store(dx + p.x + p.h * k.x_row + p.w * k.x_col, sum);
}

/* ---- launches ---- */

/* The samples first .. first+n-1, whose items are those of x or of y; V channels each. */
walk walk_of(const tti_pool *p, bool over_x, size_t n, int v) {
    walk k = {};
    const int32_t *side = over_x ? p->in : p->out;
    bool last = p->channels_last;
    size_t x_plane = (size_t)p->in[0] * (size_t)p->in[1];
    size_t y_plane = (size_t)p->out[0] * (size_t)p->out[1];
    k.n_items = (uint32_t)(n * p->c * (size_t)side[0] * (size_t)side[1] / (size_t)v);
    k.channels = tti_make_divisor((uint32_t)(p->c / (size_t)v));
    k.width = tti_make_divisor((uint32_t)side[1]);
    k.height = tti_make_divisor((uint32_t)side[0]);
    k.x_col = k.y_col = last ? p->c : 1;
    k.x_row = k.x_col * (size_t)p->in[1], k.y_row = k.y_col * (size_t)p->out[1];
    k.x_plane = x_plane * k.x_col, k.y_plane = y_plane * k.y_col;
    for (int d = 0; d < 2; d++) {
        k.in[d] = p->in[d], k.out[d] = p->out[d], k.kernel[d] = p->kernel[d];
        k.stride[d] = p->stride[d], k.pad[d] = p->pad[d];
    }
    k.count_pad = p->count_pad, k.channels_last = last;
    return k;
}

/* Calls launch(walk, blocks, first element of x, of y) for as many samples as can be counted. */
template <class F>
cudaError_t each_part(const tti_pool *p, bool over_x, int v, F launch) {
    const int32_t *side = over_x ? p->in : p->out;
    size_t x_elems = p->c * (size_t)p->in[0] * (size_t)p->in[1];
    size_t y_elems = p->c * (size_t)p->out[0] * (size_t)p->out[1];
    size_t items = p->c * (size_t)side[0] * (size_t)side[1] / (size_t)v;
    if (p->n * x_elems * y_elems == 0) return cudaSuccess;
    if (items > MOST_ITEMS) return cudaErrorInvalidValue;
    size_t at_once = MOST_ITEMS / items;
    for (size_t i = 0; i < p->n; i += at_once) {
        size_t n = p->n - i < at_once ? p->n - i : at_once;
        walk k = walk_of(p, over_x, n, v);
        launch(k, (k.n_items + THREADS - 1) / THREADS, i * x_elems, i * y_elems);
    }
    return cudaGetLastError();
}

template <class T>
bool vectors_fit(const tti_pool *p) {
    return p->channels_last && p->c % (16 / sizeof(T)) == 0;
}

template <class T, int V, class I>
cudaError_t launch_max(const tti_pool *p, const void *x, void *y, void *index, cudaStream_t st) {
    return each_part(p, false, V, [=](const walk &k, unsigned blocks, size_t at_x, size_t at_y) {
        max_kernel<T, V, I>
            <<<blocks, THREADS, 0, st>>>((const T *)x + at_x, (T *)y + at_y, (I *)index + at_y, k);
    });
}

template <class T, int V, class I>
cudaError_t launch_max_grad(const tti_pool *p, const void *dy, const void *index, void *dx,
                            cudaStream_t st) {
    return each_part(p, true, V, [=](const walk &k, unsigned blocks, size_t at_x, size_t at_y) {
        max_grad_kernel<T, V, I><<<blocks, THREADS, 0, st>>>(
            (const T *)dy + at_y, (const I *)index + at_y, (T *)dx + at_x, k);
    });
}

template <class T, int V>
cudaError_t launch_avg(const tti_pool *p, const void *x, void *y, cudaStream_t st) {
    return each_part(p, false, V, [=](const walk &k, unsigned blocks, size_t at_x, size_t at_y) {
        avg_kernel<T, V><<<blocks, THREADS, 0, st>>>((const T *)x + at_x, (T *)y + at_y, k);
    });
}

template <class T, int V>
cudaError_t launch_avg_grad(const tti_pool *p, const void *dy, void *dx, cudaStream_t st) {
    return each_part(p, true, V, [=](const walk &k, unsigned blocks, size_t at_x, size_t at_y) {
        avg_grad_kernel<T, V><<<blocks, THREADS, 0, st>>>((const T *)dy + at_y, (T *)dx + at_x, k);
    });
}

template <class T, int V>
cudaError_t max_of(const tti_pool *p, const void *x, void *y, void *index, cudaStream_t stream) {
    return p->kernel[0] ? launch_max<T, V, uint8_t>(p, x, y, index, stream)
                        : launch_max<T, V, int32_t>(p, x, y, index, stream);
}

template <class T, int V>
cudaError_t max_grad_of(const tti_pool *p, const void *dy, const void *index, void *dx,
                        cudaStream_t stream) {
    return p->kernel[0] ? launch_max_grad<T, V, uint8_t>(p, dy, index, dx, stream)
                        : launch_max_grad<T, V, int32_t>(p, dy, index, dx, stream);
}

}  // namespace

extern "C" cudaError_t tti_launch_max_pool(const tti_pool *p, const void *x, void *y, void *index,
                                           cudaStream_t stream) {
    if (tti_pool_three_fits(p)) return tti_launch_max_pool_three(p, x, y, index, stream);
    TTI_FLOAT_DISPATCH(p->dtype, return vectors_fit<T>(p)
                                            ? max_of<T, 16 / sizeof(T)>(p, x, y, index, stream)
                                            : max_of<T, 1>(p, x, y, index, stream));
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_max_pool_grad(const tti_pool *p, const void *dy,
                                                const void *index, void *dx, cudaStream_t stream) {
    if (tti_pool_three_fits(p)) return tti_launch_max_pool_three_grad(p, dy, index, dx, stream);
    TTI_FLOAT_DISPATCH(p->dtype,
                       return vectors_fit<T>(p)
                                  ? max_grad_of<T, 16 / sizeof(T)>(p, dy, index, dx, stream)
                                  : max_grad_of<T, 1>(p, dy, index, dx, stream));
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_avg_pool(const tti_pool *p, const void *x, void *y,
                                           cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(p->dtype, return vectors_fit<T>(p)
                                            ? launch_avg<T, 16 / sizeof(T)>(p, x, y, stream)
                                            : launch_avg<T, 1>(p, x, y, stream));
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_avg_pool_grad(const tti_pool *p, const void *dy, void *dx,
                                                cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(p->dtype, return vectors_fit<T>(p)
                                            ? launch_avg_grad<T, 16 / sizeof(T)>(p, dy, dx, stream)
                                            : launch_avg_grad<T, 1>(p, dy, dx, stream));
    return cudaErrorInvalidValue;
}

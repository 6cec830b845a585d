/* resample.cu - planes by repeated elements or by linear interpolation, and the gradients.
 *
 * A gradient is gathered: an element of x adds the contributions of the outputs that can have read
 * it, by the function that the forward kernel uses, in row-major order. */
#include "backend/cuda/ops/resample.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, MOST_ITEMS = 0x7fffffff };

/* Items are the places of y, or of x for a gradient; V channels each in N,H,W,C bytes. */
struct walk {
    uint32_t n_items;
    tti_divisor channels, width, height;
    size_t x_row, x_col, x_plane, y_row, y_col, y_plane; /* elements */
    int32_t in[2], out[2];
    double ratio[2], shift; /* place in x = (at + shift) ratio - shift */
    bool nearest, channels_last;
};

struct place {
    int32_t at[2];
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
    uint32_t up = tti_split_index(rest, k.width), plane = tti_split_index(up, k.height);
    p.at[0] = (int32_t)up, p.at[1] = (int32_t)rest;
    p.x = plane * k.x_plane + channel;
    p.y = plane * k.y_plane + channel;
    return p;
}

/* Output `at` along d is first (1 - share) + second share. */
template <class A>
struct two_points {
    int32_t first, second;
    A share;
};

template <class A>
__device__ __forceinline__ two_points<A> points_of(const walk &k, int d, int32_t at) {
    two_points<A> t;
    int32_t last = k.in[d] - 1;
    if (k.nearest) {
        t.first = t.second = (int32_t)((int64_t)at * k.in[d] / k.out[d]);
        t.share = 0;
        return t;
    }
    double where = fmax((at + k.shift) * k.ratio[d] - k.shift, 0.0);
    t.first = min((int32_t)where, last);
    t.second = min(t.first + 1, last);
    t.share = (A)(where - t.first);
    return t;
}

template <class A>
__device__ __forceinline__ A weight_of(const two_points<A> &t, int32_t at) {
    return (t.first == at ? 1 - t.share : (A)0) + (t.second == at ? t.share : (A)0);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    forward_kernel(const T *x, T *y, const __grid_constant__ walk k) {
    typedef typename tti_acc<T>::type A;
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of<V>(k, item);
    two_points<A> r = points_of<A>(k, 0, p.at[0]), c = points_of<A>(k, 1, p.at[1]);
    const T *top = x + p.x + r.first * k.x_row, *low = x + p.x + r.second * k.x_row;
    size_t left = c.first * k.x_col, right = c.second * k.x_col;
    A a[V], b[V], sum[V];
    tti_load(top + left, sum);
    if (!k.nearest) {
        A w[4] = {(1 - r.share) * (1 - c.share), (1 - r.share) * c.share, r.share * (1 - c.share),
                  r.share * c.share};
        A d[V];
        tti_load(top + right, a);
        tti_load(low + left, b);
        tti_load(low + right, d);
#pragma unroll
        for (int i = 0; i < V; i++) { /* what has no weight may be infinite */
            A s = w[0] != 0 ? w[0] * sum[i] : (A)0;
            s += w[1] != 0 ? w[1] * a[i] : (A)0;
            s += w[2] != 0 ? w[2] * b[i] : (A)0;
            s += w[3] != 0 ? w[3] * d[i] : (A)0;
            sum[i] = s;
        }
    }
    tti_store(y + p.y + p.at[0] * k.y_row + p.at[1] * k.y_col, sum);
}

/* Outputs lo .. hi-1 along d, at least those that look at element `at` of x. */
__device__ __forceinline__ void lookers(const walk &k, int d, int32_t at, int32_t *lo,
                                        int32_t *hi) {
    if (k.nearest) { /* x's planes divide y's */
        int32_t scale = k.out[d] / k.in[d];
        *lo = at * scale, *hi = *lo + scale;
        return;
    }
    *lo = 0, *hi = k.out[d];
    if (k.ratio[d] <= 0) return; /* all outputs look at element 0 */
    double first = (at - 1 + k.shift) / k.ratio[d] - k.shift;
    double last = (at + 1 + k.shift) / k.ratio[d] - k.shift;
    if (at > 0) *lo = (int32_t)fmin(fmax(floor(first) - 1, 0.0), (double)k.out[d]);
    if (at < k.in[d] - 1) *hi = (int32_t)fmin(fmax(ceil(last) + 2, 0.0), (double)k.out[d]);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    grad_kernel(const T *dy, T *dx, const __grid_constant__ walk k) {
    typedef typename tti_acc<T>::type A;
    uint32_t item = blockIdx.x * THREADS + threadIdx.x;
    if (item >= k.n_items) return;
    place p = place_of<V>(k, item);
    int32_t i0, i1, j0, j1;
    lookers(k, 0, p.at[0], &i0, &i1);
    lookers(k, 1, p.at[1], &j0, &j1);
    A sum[V];
#pragma unroll
    for (int v = 0; v < V; v++) sum[v] = 0;
    for (int32_t i = i0; i < i1; i++) {
        A row = weight_of(points_of<A>(k, 0, i), p.at[0]);
        if (row == 0) continue;
        for (int32_t j = j0; j < j1; j++) {
            A weight = row * weight_of(points_of<A>(k, 1, j), p.at[1]), now[V];
            if (weight == 0) continue;
            tti_load(dy + p.y + i * k.y_row + j * k.y_col, now);
#pragma unroll
            for (int v = 0; v < V; v++) sum[v] += weight * now[v];
        }
    }
    tti_store(dx + p.x + p.at[0] * k.x_row + p.at[1] * k.x_col, sum);
}

/* ---- launches ---- */

walk walk_of(const tti_resample *r, bool over_x, size_t n, int v) {
    walk k = {};
    const int32_t *side = over_x ? r->in : r->out;
    bool last = r->channels_last;
    k.n_items = (uint32_t)(n * r->c * (size_t)side[0] * (size_t)side[1] / (size_t)v);
    k.channels = tti_make_divisor((uint32_t)(r->c / (size_t)v));
    k.width = tti_make_divisor((uint32_t)side[1]);
    k.height = tti_make_divisor((uint32_t)side[0]);
    k.x_col = k.y_col = last ? r->c : 1;
    k.x_row = k.x_col * (size_t)r->in[1], k.y_row = k.y_col * (size_t)r->out[1];
    k.x_plane = k.x_row * (size_t)r->in[0], k.y_plane = k.y_row * (size_t)r->out[0];
    k.shift = r->align ? 0 : 0.5;
    for (int d = 0; d < 2; d++) {
        double in = r->in[d], out = r->out[d];
        k.in[d] = r->in[d], k.out[d] = r->out[d];
        k.ratio[d] = !r->align ? in / out : out > 1 ? (in - 1) / (out - 1) : 0;
    }
    k.nearest = r->nearest, k.channels_last = last;
    return k;
}

/* Calls launch(walk, blocks, first element of x, of y) for as many samples as can be counted. */
template <class F>
cudaError_t each_part(const tti_resample *r, bool over_x, int v, F launch) {
    const int32_t *side = over_x ? r->in : r->out;
    size_t x_elems = r->c * (size_t)r->in[0] * (size_t)r->in[1];
    size_t y_elems = r->c * (size_t)r->out[0] * (size_t)r->out[1];
    size_t items = r->c * (size_t)side[0] * (size_t)side[1] / (size_t)v;
    if (r->n * r->c == 0) return cudaSuccess;
    if (items > MOST_ITEMS) return cudaErrorInvalidValue;
    size_t at_once = MOST_ITEMS / items;
    for (size_t i = 0; i < r->n; i += at_once) {
        size_t n = r->n - i < at_once ? r->n - i : at_once;
        walk k = walk_of(r, over_x, n, v);
        launch(k, (k.n_items + THREADS - 1) / THREADS, i * x_elems, i * y_elems);
    }
    return cudaGetLastError();
}

template <class T, int V>
cudaError_t launch_forward(const tti_resample *r, const void *x, void *y, cudaStream_t st) {
    return each_part(r, false, V, [=](const walk &k, unsigned blocks, size_t at_x, size_t at_y) {
        forward_kernel<T, V><<<blocks, THREADS, 0, st>>>((const T *)x + at_x, (T *)y + at_y, k);
    });
}

template <class T, int V>
cudaError_t launch_grad(const tti_resample *r, const void *dy, void *dx, cudaStream_t st) {
    return each_part(r, true, V, [=](const walk &k, unsigned blocks, size_t at_x, size_t at_y) {
        grad_kernel<T, V><<<blocks, THREADS, 0, st>>>((const T *)dy + at_y, (T *)dx + at_x, k);
    });
}

template <class T>
bool vectors_fit(const tti_resample *r) {
    return r->channels_last && r->c % (16 / sizeof(T)) == 0;
}

}  // namespace

extern "C" cudaError_t tti_launch_resample(const tti_resample *r, const void *x, void *y,
                                           cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(r->dtype, return vectors_fit<T>(r)
                                            ? launch_forward<T, 16 / sizeof(T)>(r, x, y, stream)
                                            : launch_forward<T, 1>(r, x, y, stream));
    return cudaErrorInvalidValue;
}

extern "C" cudaError_t tti_launch_resample_grad(const tti_resample *r, const void *dy, void *dx,
                                                cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(r->dtype, return vectors_fit<T>(r)
                                            ? launch_grad<T, 16 / sizeof(T)>(r, dy, dx, stream)
                                            : launch_grad<T, 1>(r, dy, dx, stream));
    return cudaErrorInvalidValue;
}

/* batch_norm_grad.cu - the gradient of batch norm: sums over dy, and dx; batch_norm.cuh explains
 * the method. */
#include "backend/cuda/norm/batch_norm.cuh"

namespace {

/* ---- sum dy and sum dy (x - mean), dy unless y <= 0 ---- */

/* Rows whose loads are on their way together: as many as registers hold. */
__host__ __device__ constexpr int rows_at_once(bool y, bool join) {
    return join ? JOIN_ROWS : y ? MAP_ROWS : SUM_ROWS;
}

template <class T, int V>
struct grad_vec {
    tti_vec<T, V> dy, x, y, more;
    unsigned bits; /* of a mask: element i passes where bit i is set */
};

/* Bits of V elements from at on.  PLAIN: a byte has 8 channels at one place; one channel here. */
template <int V, bool PLAIN>
__device__ __forceinline__ unsigned bits_at(const uint8_t *mask, size_t at, size_t n_places) {
    if (!PLAIN) return mask[at / 8] >> (at % 8);
    size_t run = at / n_places, place = at % n_places; /* run: sample and channel; 8 | channels */
    unsigned bits = 0;
#pragma unroll
    for (int i = 0; i < V; i++)
        bits |= (mask[run / 8 * n_places + place + i] >> (run % 8) & 1u) << i;
    return bits;
}

template <class T, int V, bool Y, bool JOIN, bool PLAIN>
__device__ __forceinline__ grad_vec<T, V> grad_at(const tti_cuda_bn_grad &a, size_t at,
                                                  size_t n_places) {
    grad_vec<T, V> raw = {};
    raw.dy = raw_at<T, V>(a.dy, at);
    raw.x = raw_at<T, V>(a.x, at);
    if (Y && a.y) raw.y = raw_at<T, V>(a.y, at);
    if (JOIN && a.more) raw.more = raw_at<T, V>(a.more, at);
    if (JOIN && a.mask) raw.bits = bits_at<V, PLAIN>(a.mask, at, n_places);
    return raw;
}

/* dy (+ more, rounded as a separate value would be) unless y <= 0; without y unless bn(x) <= 0 if
 * there is a beta. f then has scale and beta. */
template <class T, int V, bool Y, bool JOIN, class F>
__device__ __forceinline__ typename wide<T>::type masked(const tti_cuda_bn_grad &a,
                                                         const grad_vec<T, V> &raw, int i,
                                                         const F &f) {
    typedef typename wide<T>::type A;
    A d = widen(raw.dy.v[i]);
    if (JOIN && a.more) d = widen(narrow<T, A>(d + widen(raw.more.v[i])));
    bool passes = true;
    if (Y && a.y) passes = !(widen(raw.y.v[i]) <= 0);
    if (JOIN && a.mask) passes = raw.bits >> i & 1;
    if (a.beta) passes = !((widen(raw.x.v[i]) - f.mean) * f.scale + f.beta <= 0);
    return passes ? d : (A)0;
}

/* The channel values of a sum: mean, and those of the mask. */
template <class A>
__device__ __forceinline__ affine<A> mask_of(const tti_cuda_bn_grad &a, size_t n_channels,
                                             size_t c) {
    affine<A> f = {(A)a.stats[1 + c], 0, 0};
    if (!a.beta) return f;
    f.scale = (A)a.gamma[c] * rstd_of<A>(a.stats, a.stats[1 + n_channels + c], a.eps);
    f.beta = (A)a.beta[c];
    return f;
}

/* ONE: all elements of a vector belong to one channel; f, sum, dot [0] are its.  JOIN: dz is
 * stored. */
template <class T, int V, bool ONE, bool Y, bool JOIN>
struct sums_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_grad &a;
    size_t n_places; /* of a channel */
    affine<A> f[ONE ? 1 : V];
    A sum[ONE ? 1 : V], dot[ONE ? 1 : V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        grad_vec<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++)
            raw[u] = grad_at<T, V, Y, JOIN, ONE>(a, at + u * stride, n_places);
#pragma unroll
        for (int u = 0; u < U; u++) {
#pragma unroll
            for (int i = 0; i < V; i++) {
                constexpr int step = ONE ? 0 : 1;
                A d = masked<T, V, Y, JOIN>(a, raw[u], i, f[step * i]);
                sum[step * i] += d;
                dot[step * i] += d * (widen(raw[u].x.v[i]) - f[step * i].mean);
                if (JOIN) raw[u].dy.v[i] = narrow<T, A>(d);
            }
            if (JOIN) put_at(a.dz, at + u * stride, raw[u].dy);
        }
    }
};

/* dz of the rows that do not count: they may be read. */
template <class T, int V, bool PLAIN>
struct rest_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_grad &a;
    size_t n_places;

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        const affine<A> none = {};
        for (int u = 0; u < U; u++) {
            grad_vec<T, V> raw = grad_at<T, V, true, true, PLAIN>(a, at + u * stride, n_places);
#pragma unroll
            for (int i = 0; i < V; i++)
                raw.dy.v[i] = narrow<T, A>(masked<T, V, true, true>(a, raw, i, none));
            put_at(a.dz, at + u * stride, raw.dy);
        }
    }
};

/* partials [n_parts][2][c].  shared: [2][blockDim.y][blockDim.x * V]. */
template <class T, int V, bool Y, bool JOIN>
__global__ void __launch_bounds__(THREADS, 2)
    sums_last(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, float *partials) {
    typedef typename wide<T>::type A;
    extern __shared__ double memory[];
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    size_t real = real_units(by, a.rows, n, s);
    sums_body<T, V, false, Y, JOIN> body = {a, s};
    share_factors<V>(c, body.f, [&](size_t i) { return mask_of<A>(a, c, i); });
    if (col < c) walk_rows<rows_at_once(Y, JOIN)>(by, c, col, real, body);
    if (JOIN && col < c && real < by.n_units) {
        size_t step = (size_t)by.n_parts * blockDim.y;
        rest_body<T, V, false> rest = {a, s};
        for (size_t row = real + blockIdx.y * blockDim.y + threadIdx.y; row < by.n_units;
             row += step)
            rest.template rows<1>(row * c + col, 0);
    }
    size_t width = (size_t)blockDim.x * V, own = threadIdx.y * width + threadIdx.x * V;
    A *sums = (A *)memory, *dots = sums + blockDim.y * width;
    __syncthreads(); /* the factors were there */
#pragma unroll
    for (int i = 0; i < V; i++) sums[own + i] = body.sum[i], dots[own + i] = body.dot[i];
    for (unsigned d = THREADS / 2; d > 0; d /= 2) {
        if (d >= blockDim.y) continue;
        __syncthreads();
        if (threadIdx.y >= d || threadIdx.y + d >= blockDim.y) continue;
#pragma unroll
        for (int i = 0; i < V; i++)
            sums[own + i] += sums[own + d * width + i], dots[own + i] += dots[own + d * width + i];
    }
    if (threadIdx.y || col >= c) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + col;
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = (float)sums[own + i], to[c + i] = (float)dots[own + i];
}

template <class T, int V, bool JOIN>
__global__ void __launch_bounds__(THREADS)
    sums_plain(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, float *partials) {
    typedef typename wide<T>::type A;
    __shared__ A shared[WARP];
    size_t real = real_units(by, a.rows, n, s), first = blockIdx.y * by.units_each;
    size_t end = min(first + by.units_each, by.n_units), n_vectors = s / V;
    sums_body<T, V, true, true, JOIN> body = {a, s, {mask_of<A>(a, c, blockIdx.x)}};
    rest_body<T, V, true> rest = {a, s};
    for (walk w = walk_of(first, n_vectors); w.n < end; advance(w)) {
        size_t at = (w.n * c + blockIdx.x) * s + w.v * V;
        if (w.n < real)
            body.template rows<1>(at, 0);
        else if (JOIN)
            rest.template rows<1>(at, 0);
        else
            break;
    }
    A sum = tti_block_sum(body.sum[0], shared), dot = tti_block_sum(body.dot[0], shared);
    if (threadIdx.x) return;
    float *to = partials + (size_t)blockIdx.y * 2 * c + blockIdx.x;
    to[0] = (float)sum, to[c] = (float)dot;
}

/* sums from partials, in double, the second kind times rstd; by themselves as well. */
__global__ void join_sums(const float *partials, tti_cuda_bn_grad a, size_t c, size_t n, size_t s,
                          cut by, tti_cuda_bn_sums_out out) {
    size_t col = (size_t)blockIdx.x * JOIN_X + threadIdx.x;
    two_sums own = {0, 0};
    if (col < c)
#pragma unroll 4
        for (unsigned p = threadIdx.y; p < by.n_parts; p += JOIN_Y) {
            const float *from = partials + (size_t)p * 2 * c + col;
            own.a += (double)from[0], own.b += (double)from[c];
        }
    own = join_runs(own);
    if (threadIdx.y) return;
    if (col < c) {
        float dot = (float)(own.b * rstd_of<double>(a.stats, a.stats[1 + c + col], a.eps));
        out.sums[1 + col] = out.dbeta[col] = (float)own.a;
        out.sums[1 + c + col] = out.dgamma[col] = dot;
    }
    if (col == 0) out.sums[0] = (float)(real_units(by, a.rows, n, s) * by.per_unit);
}

/* ---- dx = (dy - mean dy - (x - mean) slope) scale ---- */

template <class A>
struct grad_factors {
    A mean, dy_mean, slope, scale, beta;
};

template <class A>
__device__ __forceinline__ grad_factors<A> factors_of(const tti_cuda_bn_grad &a, size_t n_channels,
                                                      size_t c) {
    A rstd = rstd_of<A>(a.stats, a.stats[1 + n_channels + c], a.eps);
    A count = (A)(a.sums[0] > 1 ? a.sums[0] : 1);
    return grad_factors<A>{(A)a.stats[1 + c], (A)a.sums[1 + c] / count,
                           rstd * (A)a.sums[1 + n_channels + c] / count, (A)a.gamma[c] * rstd,
                           a.beta ? (A)a.beta[c] : (A)0};
}

template <class T, int V, bool ONE>
struct grad_body {
    typedef typename wide<T>::type A;
    const tti_cuda_bn_grad &a;
    void *dx;
    grad_factors<A> f[ONE ? 1 : V];

    template <int U>
    __device__ __forceinline__ void rows(size_t at, size_t stride) {
        grad_vec<T, V> raw[U];
#pragma unroll
        for (int u = 0; u < U; u++) raw[u] = grad_at<T, V, true, false, ONE>(a, at + u * stride, 0);
#pragma unroll
        for (int u = 0; u < U; u++) {
            tti_vec<T, V> out;
#pragma unroll
            for (int i = 0; i < V; i++) {
                const grad_factors<A> &g = f[ONE ? 0 : i];
                A d = masked<T, V, true, false>(a, raw[u], i, g) - g.dy_mean;
                out.v[i] = narrow<T, A>((d - (widen(raw[u].x.v[i]) - g.mean) * g.slope) * g.scale);
            }
            put_at(dx, at + u * stride, out);
        }
    }
};

template <class T, int V>
__device__ __forceinline__ void put_zeros(void *dx, size_t at) {
    tti_vec<T, V> out;
#pragma unroll
    for (int i = 0; i < V; i++) out.v[i] = narrow<T, typename wide<T>::type>(0);
    put_at(dx, at, out);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS, 2)
    grad_last(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, void *dx) {
    typedef typename wide<T>::type A;
    size_t col = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * V;
    size_t real = real_units(by, a.rows, n, s);
    grad_body<T, V, false> body = {a, dx};
    share_factors<V>(c, body.f, [&](size_t i) { return factors_of<A>(a, c, i); });
    if (col >= c) return;
    walk_rows<MAP_ROWS>(by, c, col, real, body);
    for (size_t row = real + blockIdx.y * blockDim.y + threadIdx.y; row < by.n_units;
         row += (size_t)by.n_parts * blockDim.y)
        put_zeros<T, V>(dx, row * c + col);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    grad_plain(tti_cuda_bn_grad a, size_t c, size_t n, size_t s, cut by, void *dx) {
    typedef typename wide<T>::type A;
    size_t n_real = real_units(by, a.rows, n, s) * c;
    for (size_t run = (size_t)blockIdx.x * blockDim.y + threadIdx.y; run < n * c;
         run += (size_t)gridDim.x * blockDim.y) {
        grad_body<T, V, true> body = {a, dx, {factors_of<A>(a, c, run % c)}};
        for (size_t v = threadIdx.x; v < s / V; v += blockDim.x) {
            size_t at = run * s + v * V;
            if (run < n_real)
                body.template rows<1>(at, 0);
            else
                put_zeros<T, V>(dx, at);
        }
    }
}

}  // namespace

/* Y: there is a y, or may be; JOIN: dz is written. */
template <bool Y, bool JOIN>
static void launch_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *a, const shape &sh,
                        float *partials, cudaStream_t stream) {
    if (p->last)
        FOR_VECTORS(p, {
            size_t bytes = max(sh.shared, sh.block.x * V * sizeof(affine<wide<T>::type>));
            sums_last<T, V, Y, JOIN>
                <<<sh.grid, sh.block, bytes, stream>>>(*a, p->c, p->n, p->s, sh.by, partials);
        });
    else
        FOR_VECTORS(p, sums_plain<T, V, JOIN>
                    <<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, partials));
}

static cudaError_t launch_join(const tti_cuda_planes *p, const tti_cuda_bn_grad *a, const cut &by,
                               const float *partials, const tti_cuda_bn_sums_out *out,
                               cudaStream_t stream) {
    join_sums<<<blocks_of(p->c ? p->c : 1, JOIN_X), dim3(JOIN_X, JOIN_Y), 0, stream>>>(
        partials, *a, p->c, p->n, p->s, by, *out);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_bn_join_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *grad,
                                             unsigned n_parts, const float *partials,
                                             const tti_cuda_bn_sums_out *out, cudaStream_t stream) {
    cut by = {};
    by.last = true, by.per_unit = 1;
    by.n_units = p->n * p->s, by.n_parts = n_parts;
    return launch_join(p, grad, by, partials, out, stream);
}

extern "C" cudaError_t tti_cuda_bn_sums(const tti_cuda_planes *p, const tti_cuda_bn_grad *a,
                                        float *partials, const tti_cuda_bn_sums_out *out,
                                        cudaStream_t stream) {
    shape sh = shape_of_sums(p, rows_at_once(a->y != NULL, a->dz != NULL));
    if (!is_empty(p) && a->dz)
        launch_sums<true, true>(p, a, sh, partials, stream);
    else if (!is_empty(p) && a->y)
        launch_sums<true, false>(p, a, sh, partials, stream);
    else if (!is_empty(p))
        launch_sums<false, false>(p, a, sh, partials, stream);
    return launch_join(p, a, sh.by, partials, out, stream);
}

extern "C" cudaError_t tti_cuda_bn_backward(const tti_cuda_planes *p, const tti_cuda_bn_grad *a,
                                            void *dx, cudaStream_t stream) {
    if (is_empty(p)) return cudaSuccess;
    if (p->last) {
        FOR_VECTORS(p, {
            shape sh = shape_of_map<grad_factors<wide<T>::type>>(p);
            grad_last<T, V>
                <<<sh.grid, sh.block, sh.shared, stream>>>(*a, p->c, p->n, p->s, sh.by, dx);
        });
    } else {
        shape sh = shape_of_runs(p);
        FOR_VECTORS(
            p, grad_plain<T, V><<<sh.grid, sh.block, 0, stream>>>(*a, p->c, p->n, p->s, sh.by, dx));
    }
    return cudaGetLastError();
}

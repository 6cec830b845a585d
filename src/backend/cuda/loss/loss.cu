/* loss.cu - cross entropy, squared error, binary cross entropy, Kullback-Leibler divergence.
 *
 * A row of logits is read once: every thread keeps a maximum and the sum of e^(x - maximum) of its
 * elements, rescaled when the maximum grows, and these are joined in one fixed order.  The label's
 * own logit is read first, so that deciding whether it is the first maximum needs a comparison for
 * each vector of elements, not an index. */
#include "backend/cuda/loss/loss_rows.cuh"

namespace {

enum { THREADS = 256, SMALL_ROW = 1024, UNROLL = 4, MAX_PARTIALS = 1024 };

/* ---- a row, cut for a group of threads: a head up to 16 bytes, vectors, a tail ---- */

template <class T>
struct cut {
    enum { V = 16 / sizeof(T) };
    size_t head, n_vectors, n;
};

template <class T>
__device__ __forceinline__ cut<T> cut_row(const T *x, size_t n) {
    cut<T> c;
    size_t off = ((16 - (uintptr_t)x % 16) % 16) / sizeof(T);
    c.head = off < n ? off : n;
    c.n_vectors = (n - c.head) / cut<T>::V;
    c.n = n;
    return c;
}

/* The statistics of a row's elements in a thread, and then in the group. */
template <class T, int G>
__device__ __forceinline__ seen<typename tti_acc<T>::type> see_row(
    const T *x, size_t n, unsigned lane, const wanted<typename tti_acc<T>::type> &w) {
    typedef typename tti_acc<T>::type A;
    enum { V = cut<T>::V };
    cut<T> c = cut_row(x, n);
    seen<A> s = {(A)-INFINITY, 0, 0, 0};
    if (lane < c.head) {
        A one[1] = {tti_to_acc(x[lane])};
        see(s, one, lane, w);
    }
    size_t v = lane;
    for (; v + (UNROLL - 1) * G < c.n_vectors; v += UNROLL * G) {
        A some[UNROLL][V];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) tti_load(x + c.head + (v + u * G) * V, some[u]);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) see(s, some[u], c.head + (v + u * G) * V, w);
    }
    for (; v < c.n_vectors; v += G) {
        A some[V];
        tti_load(x + c.head + v * V, some);
        see(s, some, c.head + v * V, w);
    }
    size_t last = c.head + c.n_vectors * V + lane;
    if (last < n) {
        A one[1] = {tti_to_acc(x[last])};
        see(s, one, last, w);
    }
    return join_group<G>(s);
}

/* The maximum as f32, and the sum with respect to that; the sum is NaN if all logits are -inf. */
__device__ __forceinline__ float2 rounded(const seen<float> &s) {
    return make_float2(s.max, s.sum > 0 ? s.sum : nanf(""));
}
__device__ __forceinline__ float2 rounded(const seen<double> &s) {
    float max = (float)s.max;
    return make_float2(max, s.sum > 0 ? (float)(s.sum * exp(s.max - (double)max)) : nanf(""));
}

template <class T, int G>
__global__ void __launch_bounds__(THREADS)
    entropy_kernel(const T *logits, entropy e, float2 *rows, float2 *found) {
    typedef typename tti_acc<T>::type A;
    size_t row = (size_t)blockIdx.x * (THREADS / G) + threadIdx.x / G;
    unsigned lane = threadIdx.x % G;
    if (row >= e.n_rows) return; /* whole groups */
    int32_t label = e.labels[row];
    bool ignored = label == e.ignore, good = label >= 0 && (size_t)label < e.n;
    if (ignored || !good) {
        if (lane == 0) rows[row] = make_float2(0, 1);
        if (lane == 0) found[row] = make_float2(ignored ? 0 : nanf(""), 0);
        return;
    }
    const T *x = logits + row * e.n;
    wanted<A> w = {tti_to_acc(x[label]), (size_t)label, e.smoothing != 0};
    seen<A> s = see_row<T, G>(x, e.n, lane, w);
    if (lane != 0) return;
    A log_sum = log(s.sum), loss = log_sum + (s.max - w.own), share = (A)e.smoothing;
    if (w.total) loss = (1 - share) * loss + share * (log_sum + (s.max - s.total / (A)e.n));
    rows[row] = rounded(s);
    found[row] = make_float2((float)loss, s.beaten || loss != loss ? 0 : 1);
}

template <class A>
struct slope {
    A max, scale, share, hit;
    size_t label;
};

template <int N, class A>
__device__ __forceinline__ void turn(A (&x)[N], size_t first, const slope<A> &p) {
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = exponential(x[i] - p.max) * p.scale - p.share;
    if (p.label - first < N) /* unsigned */
#pragma unroll
        for (int i = 0; i < N; i++)
            if (first + i == p.label) x[i] -= p.hit;
}

/* x and dx may be one: every element is read by the thread that writes it. */
template <class T, int G>
__global__ void __launch_bounds__(THREADS)
    entropy_grad_kernel(const T *logits, entropy e, const float *dloss, const float2 *rows,
                        T *out) {
    typedef typename tti_acc<T>::type A;
    enum { V = cut<T>::V };
    size_t row = (size_t)blockIdx.x * (THREADS / G) + threadIdx.x / G;
    unsigned lane = threadIdx.x % G;
    if (row >= e.n_rows) return;
    int32_t label = e.labels[row];
    const T *x = logits + row * e.n;
    T *dx = out + row * e.n;
    if (label == e.ignore) return fill_row<T, G>(dx, e.n, lane, 0);
    if (label < 0 || (size_t)label >= e.n) return fill_row<T, G>(dx, e.n, lane, nanf(""));
    A d = (A)*dloss, share = (A)e.smoothing;
    float2 known;
    if (rows) {
        known = rows[row];
    } else {
        wanted<A> w = {0, (size_t)label, false};
        known = rounded(see_row<T, G>(x, e.n, lane, w));
    }
    slope<A> p = {(A)known.x, d / (A)known.y, d * share / (A)e.n, d * (1 - share), (size_t)label};
    cut<T> c = cut_row(x, e.n);
    if (lane < c.head) {
        A one[1] = {tti_to_acc(x[lane])};
        turn(one, lane, p);
        tti_from_acc(dx + lane, one[0]);
    }
    size_t v = lane;
    for (; v + (UNROLL - 1) * G < c.n_vectors; v += UNROLL * G) {
        A some[UNROLL][V];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) tti_load(x + c.head + (v + u * G) * V, some[u]);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            turn(some[u], c.head + (v + u * G) * V, p);
            tti_store(dx + c.head + (v + u * G) * V, some[u]);
        }
    }
    for (; v < c.n_vectors; v += G) {
        A some[V];
        tti_load(x + c.head + v * V, some);
        turn(some, c.head + v * V, p);
        tti_store(dx + c.head + v * V, some);
    }
    size_t last = c.head + c.n_vectors * V + lane;
    if (last < e.n) {
        A one[1] = {tti_to_acc(x[last])};
        turn(one, last, p);
        tti_from_acc(dx + last, one[0]);
    }
}

/* ---- pairs ---- */

template <class A>
__device__ __forceinline__ A pair_term(int kind, A x, A t) {
    if (kind == TTI_PAIR_MSE) return (x - t) * (x - t);
    if (kind == TTI_PAIR_BCE) return larger(x, (A)0) - x * t + log1p(exp(-fabs(x)));
    return t > 0 ? t * (log(t) - x) : t == 0 ? (A)0 : (A)NAN;
}

template <class A>
__device__ __forceinline__ A pair_slope(int kind, bool of_target, A x, A t) {
    if (kind == TTI_PAIR_MSE) return 2 * (x - t);
    if (kind == TTI_PAIR_BCE) return of_target ? -x : 1 / (1 + exp(-x)) - t;
    if (!of_target) return -t;
    return t > 0 ? log(t) + 1 - x : t == 0 ? (A)0 : (A)NAN;
}

struct pairs {
    int kind;
    size_t n_vectors, width; /* of V elements; vectors of a row */
    const int32_t *labels;
    int64_t ignore;
};

__device__ __forceinline__ bool is_kept(const pairs &p, size_t vector) {
    return !p.labels || p.labels[vector / p.width] != p.ignore;
}

/* partials [gridDim.x] */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    pair_kernel(const T *x, const T *t, pairs p, double *partials) {
    typedef typename tti_acc<T>::type A;
    __shared__ double shared[32];
    double sum = 0;
    size_t step = (size_t)gridDim.x * THREADS;
#pragma unroll 2
    for (size_t v = (size_t)blockIdx.x * THREADS + threadIdx.x; v < p.n_vectors; v += step) {
        A a[V], b[V], terms = 0;
        if (!is_kept(p, v)) continue;
        tti_load(x + v * V, a);
        tti_load(t + v * V, b);
#pragma unroll
        for (int i = 0; i < V; i++) terms += pair_term(p.kind, a[i], b[i]);
        sum += terms;
    }
    sum = tti_block_sum(sum, shared);
    if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

/* One block; counts: for each kept row. */
__global__ void __launch_bounds__(FINISH_THREADS)
    pair_finish(const double *partials, int n_partials, const int32_t *labels, size_t n_rows,
                int64_t ignore, double counts, float *loss, float *count) {
    __shared__ double shared[32];
    double sum = threadIdx.x < n_partials ? partials[threadIdx.x] : 0, kept = 0;
    for (size_t r = threadIdx.x; labels && r < n_rows; r += FINISH_THREADS)
        kept += labels[r] != ignore;
    sum = tti_block_sum(sum, shared);
    kept = tti_block_sum(kept, shared);
    if (threadIdx.x) return;
    *loss = (float)sum;
    *count = (float)((labels ? kept : (double)n_rows) * counts);
}

template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    pair_grad_kernel(const T *x, const T *t, pairs p, bool of_target, const float *dloss, T *dx) {
    typedef typename tti_acc<T>::type A;
    A d = (A)*dloss;
    size_t step = (size_t)gridDim.x * THREADS;
    for (size_t v = (size_t)blockIdx.x * THREADS + threadIdx.x; v < p.n_vectors; v += step) {
        A a[V], b[V];
        bool kept = is_kept(p, v);
        tti_load(x + v * V, a);
        tti_load(t + v * V, b);
#pragma unroll
        for (int i = 0; i < V; i++)
            a[i] = kept ? pair_slope(p.kind, of_target, a[i], b[i]) * d : (A)0;
        tti_store(dx + v * V, a);
    }
}

/* ---- launches ---- */

unsigned row_blocks(size_t n_rows, int group) {
    return (unsigned)((n_rows + THREADS / group - 1) / (THREADS / group));
}

template <class T>
void launch_entropy(const tti_entropy_rows *r, const void *logits, float2 *rows, float2 *found,
                    cudaStream_t stream) {
    const T *x = (const T *)logits;
    if (r->n_classes <= SMALL_ROW)
        entropy_kernel<T, 32>
            <<<row_blocks(r->n_rows, 32), THREADS, 0, stream>>>(x, entropy_of(r), rows, found);
    else
        entropy_kernel<T, THREADS>
            <<<row_blocks(r->n_rows, THREADS), THREADS, 0, stream>>>(x, entropy_of(r), rows, found);
}

template <class T>
void launch_entropy_grad(const tti_entropy_rows *r, const void *logits, const float *dloss,
                         const float2 *rows, void *dx, cudaStream_t stream) {
    const T *x = (const T *)logits;
    if (r->n_classes <= SMALL_ROW)
        entropy_grad_kernel<T, 32><<<row_blocks(r->n_rows, 32), THREADS, 0, stream>>>(
            x, entropy_of(r), dloss, rows, (T *)dx);
    else
        entropy_grad_kernel<T, THREADS><<<row_blocks(r->n_rows, THREADS), THREADS, 0, stream>>>(
            x, entropy_of(r), dloss, rows, (T *)dx);
}

/* The number of blocks, which fixes the order of the sum, depends on the size alone. */
unsigned pair_blocks(size_t n_vectors) {
    size_t n = (n_vectors + THREADS * 4 - 1) / (THREADS * 4);
    return (unsigned)(n < 1 ? 1 : n < MAX_PARTIALS ? n : MAX_PARTIALS);
}

pairs pairs_of(const tti_pair_rows *r, size_t v) {
    pairs p = {r->kind, r->n_rows * r->width / v, r->width / v, r->labels, r->ignore};
    return p;
}

template <class T, int V>
unsigned launch_pair(const tti_pair_rows *r, double *partials, cudaStream_t stream) {
    pairs p = pairs_of(r, V);
    unsigned blocks = pair_blocks(p.n_vectors);
    pair_kernel<T, V>
        <<<blocks, THREADS, 0, stream>>>((const T *)r->x, (const T *)r->t, p, partials);
    return blocks;
}

template <class T, int V>
void launch_pair_grad(const tti_pair_rows *r, bool of_target, const float *dloss, void *dx,
                      cudaStream_t stream) {
    pairs p = pairs_of(r, V);
    size_t blocks = (p.n_vectors + THREADS - 1) / THREADS;
    if (blocks > 132 * 32) blocks = 132 * 32;
    pair_grad_kernel<T, V><<<(unsigned)blocks, THREADS, 0, stream>>>(
        (const T *)r->x, (const T *)r->t, p, of_target, dloss, (T *)dx);
}

}  // namespace

extern "C" size_t tti_cross_entropy_scratch(size_t n_rows) { return n_rows * sizeof(float2); }

extern "C" cudaError_t tti_launch_cross_entropy(const tti_entropy_rows *r, const void *logits,
                                                float *const out[4], void *scratch,
                                                cudaStream_t stream) {
    float2 *found = (float2 *)scratch;
    if (r->n_rows > 0)
        TTI_FLOAT_DISPATCH(r->dtype, launch_entropy<T>(r, logits, (float2 *)out[3], found, stream));
    entropy_finish<<<1, FINISH_THREADS, 0, stream>>>(found, entropy_of(r), out[0], out[1], out[2]);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_cross_entropy_grad(const tti_entropy_rows *r, const void *logits,
                                                     const float *dloss, const float *rows,
                                                     void *dx, cudaStream_t stream) {
    if (r->n_rows == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(r->dtype,
                       launch_entropy_grad<T>(r, logits, dloss, (const float2 *)rows, dx, stream));
    return cudaGetLastError();
}

extern "C" size_t tti_pair_loss_scratch(void) { return MAX_PARTIALS * sizeof(double); }

extern "C" cudaError_t tti_launch_pair_loss(const tti_pair_rows *r, float *loss_sum, float *count,
                                            void *scratch, cudaStream_t stream) {
    double *partials = (double *)scratch;
    unsigned n = 0;
    if (r->n_rows * r->width > 0)
        TTI_FLOAT_DISPATCH(r->dtype, n = r->width % (16 / sizeof(T)) == 0
                                             ? launch_pair<T, 16 / sizeof(T)>(r, partials, stream)
                                             : launch_pair<T, 1>(r, partials, stream));
    double counts = r->kind == TTI_PAIR_KL ? 1 : (double)r->width;
    pair_finish<<<1, FINISH_THREADS, 0, stream>>>(partials, (int)n, r->labels, r->n_rows, r->ignore,
                                                  counts, loss_sum, count);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_pair_grad(const tti_pair_rows *r, bool of_target,
                                            const float *dloss, void *dx, cudaStream_t stream) {
    if (r->n_rows * r->width == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(r->dtype,
                       if (r->width % (16 / sizeof(T)) == 0)
                           launch_pair_grad<T, 16 / sizeof(T)>(r, of_target, dloss, dx, stream);
                       else launch_pair_grad<T, 1>(r, of_target, dloss, dx, stream));
    return cudaGetLastError();
}

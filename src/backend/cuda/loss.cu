/* loss.cu - cross entropy, squared error, binary cross entropy, Kullback-Leibler divergence.
 *
 * A row of logits is read once: every thread keeps a maximum and the sum of e^(x - maximum) of what
 * it saw, rescaled when the maximum grows, and these are joined in one fixed order.  The idea to
 * know: the label's own logit is read first, so that whether it is the first maximum needs a
 * comparison for each vector of elements, not an index. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/loss.h"

namespace {

enum { THREADS = 256, SMALL_ROW = 1024, UNROLL = 4, MAX_PARTIALS = 1024, FINISH_THREADS = 1024 };

__device__ __forceinline__ float exponential(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}
__device__ __forceinline__ double exponential(double x) { return exp(x); }

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }

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

/* What a thread, and then the group, knows of a row. */
template <class A>
struct seen {
    A max, sum; /* of e^(x - max) */
    A total;    /* of x, where it is wanted */
    int beaten; /* the label's logit is not the first maximum */
};

/* What is looked for in a row. */
template <class A>
struct wanted {
    A own; /* the label's logit */
    size_t label;
    bool total;
};

template <int N, class A>
__device__ __forceinline__ void see(seen<A> &s, const A (&x)[N], size_t first, const wanted<A> &w) {
    A best = x[0];
#pragma unroll
    for (int i = 1; i < N; i++) best = larger(best, x[i]);
    A max = larger(s.max, best), base = max == -INFINITY ? (A)0 : max;
    A sum = s.sum * exponential(s.max - base);
#pragma unroll
    for (int i = 0; i < N; i++) sum += exponential(x[i] - base);
    s.max = max;
    s.sum = sum;
    if (w.total)
#pragma unroll
        for (int i = 0; i < N; i++) s.total += x[i];
    if (first + N <= w.label) {
        s.beaten |= best >= w.own;
    } else if (first > w.label) {
        s.beaten |= best > w.own;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) s.beaten |= first + i < w.label ? x[i] >= w.own : x[i] > w.own;
    }
}

template <class A>
__device__ __forceinline__ seen<A> join(const seen<A> &a, const seen<A> &b) {
    A max = larger(a.max, b.max), base = max == -INFINITY ? (A)0 : max;
    seen<A> s;
    s.max = max;
    s.sum = a.sum * exponential(a.max - base) + b.sum * exponential(b.max - base);
    s.total = a.total + b.total;
    s.beaten = a.beaten | b.beaten;
    return s;
}

/* All lanes of a warp get what those of their 2 * FROM neighbours saw. */
template <int FROM, class A>
__device__ __forceinline__ seen<A> join_lanes(seen<A> s) {
#pragma unroll
    for (int d = FROM; d > 0; d /= 2) {
        seen<A> other;
        other.max = __shfl_xor_sync(0xffffffffu, s.max, d);
        other.sum = __shfl_xor_sync(0xffffffffu, s.sum, d);
        other.total = __shfl_xor_sync(0xffffffffu, s.total, d);
        other.beaten = __shfl_xor_sync(0xffffffffu, s.beaten, d);
        s = join(s, other);
    }
    return s;
}

/* All threads of a group of G (a warp, or the block) get what the group saw. */
template <int G, class A>
__device__ __forceinline__ seen<A> join_group(seen<A> s) {
    __shared__ seen<A> shared[G / 32]; /* a power of 2, at most 32 */
    s = join_lanes<16>(s);
    if (G == 32) return s;
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = s;
    __syncthreads();
    s = shared[threadIdx.x % (G / 32)];
    return join_lanes<G / 64>(s);
}

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

/* The maximum as f32, and the sum with respect to that. */
__device__ __forceinline__ float2 rounded(const seen<float> &s) {
    return make_float2(s.max, s.sum);
}
__device__ __forceinline__ float2 rounded(const seen<double> &s) {
    float max = (float)s.max;
    return make_float2(max, (float)(s.sum * exp(s.max - (double)max)));
}

struct entropy {
    const int32_t *labels;
    size_t n_rows, n;
    int64_t ignore;
    double smoothing;
};

/* found[row]: its loss, 1 if its first maximum is the label */
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
    found[row] = make_float2((float)loss, s.beaten || w.own != w.own ? 0 : 1);
}

/* One block. */
__global__ void __launch_bounds__(FINISH_THREADS)
    entropy_finish(const float2 *found, entropy e, float *loss, float *count, float *correct) {
    __shared__ double shared[32];
    double sum = 0, kept = 0, right = 0;
#pragma unroll 4
    for (size_t r = threadIdx.x; r < e.n_rows; r += FINISH_THREADS) {
        float2 f = found[r];
        sum += f.x;
        right += f.y;
        kept += e.labels[r] != e.ignore;
    }
    sum = tti_block_sum(sum, shared);
    right = tti_block_sum(right, shared);
    kept = tti_block_sum(kept, shared);
    if (threadIdx.x) return;
    *loss = (float)sum, *count = (float)kept, *correct = (float)right;
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

template <class T, int G>
__device__ __forceinline__ void fill_row(T *dx, size_t n, unsigned lane, float value) {
    for (size_t i = lane; i < n; i += G) dx[i] = tti_from_f32<T>(value);
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

/* ---- loss and gradient of rows that fit in shared memory ---- */

/* Two blocks on each multiprocessor of 227 KB: one reads while the other writes. */
enum { STAGED_THREADS = 512, STAGED_BLOCKS = 2, STAGED_GROUPS = 4, MOST_STAGED = 112 << 10 };
static_assert(MOST_STAGED <= STAGED_GROUPS * UNROLL * STAGED_THREADS * 16, "groups hold a row");

#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* What see does, for numbers of 16 bits: e^(x - max) in one multiplication and one power of two. */
__device__ __forceinline__ void see_low(seen<float> &s, const float (&x)[8], unsigned first,
                                        const wanted<float> &w) {
    float best = x[0];
#pragma unroll
    for (int i = 1; i < 8; i++) best = fmaxf(best, x[i]);
    float max = fmaxf(s.max, best), base = max == -INFINITY ? 0 : max * LOG2_E;
    if (max > s.max) s.sum *= power_of_2(fmaf(s.max, LOG2_E, -base));
    s.max = max;
#pragma unroll
    for (int i = 0; i < 8; i++) s.sum += power_of_2(fmaf(x[i], LOG2_E, -base));
    if (w.total)
#pragma unroll
        for (int i = 0; i < 8; i++) s.total += x[i];
    s.beaten |= best > w.own || (best == w.own && first + 8 <= (unsigned)w.label);
}

/* What see_low leaves out: equals of the label before it, in its own vector. */
template <class T>
__device__ __forceinline__ void see_equals(const tti_vec<T, 8> *staged, const wanted<float> &w,
                                           seen<float> &s) {
    unsigned v = (unsigned)w.label / 8;
    if (v % STAGED_THREADS != threadIdx.x) return;
    for (unsigned i = 0; i < (unsigned)w.label % 8; i++)
        s.beaten |= tti_to_f32(staged[v].v[i]) >= w.own;
}

__device__ __forceinline__ void copy_ahead(void *to, const void *from) {
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
}

/* Waits for all groups of copies of this thread but the last n. */
template <int N>
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Group g of a thread's vectors, which it has itself copied. */
template <class T>
__device__ __forceinline__ void see_group(int g, unsigned n_vectors, const wanted<float> &w,
                                          const tti_vec<T, 8> *staged, seen<float> &s) {
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        unsigned v = (g * UNROLL + u) * STAGED_THREADS + threadIdx.x;
        float x[8];
        if (v >= n_vectors) return;
        tti_load(staged[v].v, x);
        see_low(s, x, v * 8, w);
    }
}

/* see_row for rows of whole vectors, all of which are under way before the first is looked at. */
template <class T>
__device__ __forceinline__ seen<float> stage_row(const T *x, unsigned n_vectors,
                                                 const wanted<float> &w, tti_vec<T, 8> *staged) {
    seen<float> s = {-INFINITY, 0, 0, 0};
#pragma unroll
    for (int g = 0; g < STAGED_GROUPS; g++) {
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            unsigned v = (g * UNROLL + u) * STAGED_THREADS + threadIdx.x;
            if (v < n_vectors) copy_ahead(staged + v, x + (size_t)v * 8);
        }
        asm volatile("cp.async.commit_group;");
    }
    static_assert(STAGED_GROUPS == 4, "one wait for each group");
    await_copies<3>();
    see_group(0, n_vectors, w, staged, s);
    await_copies<2>();
    see_group(1, n_vectors, w, staged, s);
    await_copies<1>();
    see_group(2, n_vectors, w, staged, s);
    await_copies<0>();
    see_group(3, n_vectors, w, staged, s);
    see_equals(staged, w, s);
    return join_group<STAGED_THREADS>(s);
}

/* A block for each row of whole 16-byte vectors; out may be logits. */
template <class T>
__global__ void __launch_bounds__(STAGED_THREADS, STAGED_BLOCKS)
    entropy_staged_kernel(const T *logits, entropy e, const float *dloss, float2 *found, T *out) {
    extern __shared__ uint4 memory[];
    enum { G = STAGED_THREADS, V = 8 };
    tti_vec<T, V> *staged = reinterpret_cast<tti_vec<T, V> *>(memory);
    size_t row = blockIdx.x;
    int32_t label = e.labels[row];
    bool ignored = label == e.ignore, good = label >= 0 && (size_t)label < e.n;
    T *dx = out + row * e.n;
    if (ignored || !good) {
        if (threadIdx.x == 0) found[row] = make_float2(ignored ? 0 : nanf(""), 0);
        return fill_row<T, G>(dx, e.n, threadIdx.x, ignored ? 0 : nanf(""));
    }
    const T *x = logits + row * e.n;
    unsigned n_vectors = (unsigned)(e.n / V);
    wanted<float> w = {tti_to_f32(x[label]), (size_t)label, e.smoothing != 0};
    seen<float> s = stage_row(x, n_vectors, w, staged); /* after it all have read their w.own */
    float d = *dloss, share = (float)e.smoothing;
    if (threadIdx.x == 0) {
        float log_sum = logf(s.sum), loss = log_sum + (s.max - w.own);
        if (w.total) loss = (1 - share) * loss + share * (log_sum + (s.max - s.total / (float)e.n));
        found[row] = make_float2(loss, s.beaten || w.own != w.own ? 0 : 1);
    }
    float scale = d / s.sum, even = d * share / (float)e.n, base = s.max * LOG2_E;
#pragma unroll 4
    for (unsigned v = threadIdx.x; v < n_vectors; v += G) {
        float some[V];
        tti_load(staged[v].v, some);
#pragma unroll
        for (int i = 0; i < V; i++)
            some[i] = fmaf(power_of_2(fmaf(some[i], LOG2_E, -base)), scale, -even);
        tti_store(dx + (size_t)v * V, some);
    }
    if ((unsigned)label / V % G != threadIdx.x) return; /* behind its own store */
    float own = fmaf(power_of_2(fmaf(w.own, LOG2_E, -base)), scale, -even);
    dx[label] = tti_from_f32<T>(own - d * (1 - share));
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
    return t > 0 ? log(t) + 1 - x : (A)0;
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

/* One block; counts: of each row that is kept. */
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

entropy entropy_of(const tti_entropy_rows *r) {
    entropy e = {r->labels, r->n_rows, r->n_classes, r->ignore, r->smoothing};
    return e;
}

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

/* Bytes of shared memory for a row; 0: rows of this kind are not staged. */
static size_t staged_bytes(const tti_entropy_rows *r) {
    bool low = r->dtype == TUTTI_BF16 || r->dtype == TUTTI_F16;
    size_t n_bytes = r->n_classes * 2;
    return low && n_bytes % 16 == 0 && n_bytes > SMALL_ROW * 2 && n_bytes <= MOST_STAGED ? n_bytes
                                                                                         : 0;
}

template <class T>
static cudaError_t launch_staged(const tti_entropy_rows *r, const void *logits, const float *dloss,
                                 float2 *found, void *dx, cudaStream_t stream) {
    size_t n_bytes = staged_bytes(r);
    cudaError_t error = cudaFuncSetAttribute(
        entropy_staged_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
    /* Without the wish the driver leaves room for one block of this size alone. */
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(entropy_staged_kernel<T>,
                                     cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    if (error != cudaSuccess) return error;
    entropy_staged_kernel<T><<<(unsigned)r->n_rows, STAGED_THREADS, n_bytes, stream>>>(
        (const T *)logits, entropy_of(r), dloss, found, (T *)dx);
    return cudaGetLastError();
}

extern "C" size_t tti_entropy_both_scratch(size_t n_rows) { return 2 * n_rows * sizeof(float2); }

extern "C" cudaError_t tti_launch_entropy_both(const tti_entropy_rows *r, const void *logits,
                                               const float *dloss, void *dx, float *const out[3],
                                               void *scratch, cudaStream_t stream) {
    float2 *found = (float2 *)scratch, *rows = found + r->n_rows;
    float *const apart[4] = {out[0], out[1], out[2], (float *)rows};
    cudaError_t error = cudaSuccess;
    if (r->n_rows == 0 || staged_bytes(r) == 0) {
        error = tti_launch_cross_entropy(r, logits, apart, found, stream);
        if (error != cudaSuccess) return error;
        return tti_launch_cross_entropy_grad(r, logits, dloss, (const float *)rows, dx, stream);
    }
    error = r->dtype == TUTTI_BF16 ? launch_staged<tti_bf16>(r, logits, dloss, found, dx, stream)
                                   : launch_staged<tti_f16>(r, logits, dloss, found, dx, stream);
    if (error != cudaSuccess) return error;
    entropy_finish<<<1, FINISH_THREADS, 0, stream>>>(found, entropy_of(r), out[0], out[1], out[2]);
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

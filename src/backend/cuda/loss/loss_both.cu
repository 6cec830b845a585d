/* loss_both.cu - cross entropy and its gradient in one kernel, for rows that fit in shared memory;
 * optionally with the sums of the gradient's columns, which are the gradient of the preceding bias.
 *
 * Each thread copies, reads and writes its own vectors, so that rows need no barrier but that of
 * the joint maximum and sum.  If columns are summed, a block has whole rows, its threads keep the
 * sums of their columns in registers, and two more rows are prefetched.  Blocks write their sums,
 * which are added in order: their number is fixed. */
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/loss/loss_rows.cuh"

namespace {

enum { SMALL_ROW = 1024, UNROLL = 4 };

/* Two blocks on each multiprocessor of 227 KB: one reads while the other writes. */
enum { STAGED_THREADS = 512, STAGED_BLOCKS = 2, STAGED_GROUPS = 4, MOST_STAGED = 112 << 10 };
static_assert(MOST_STAGED <= STAGED_GROUPS * UNROLL * STAGED_THREADS * 16, "groups hold a row");

#define LOG2_E 1.4426950408889634f

__device__ __forceinline__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* e^(x - max) of 16-bit numbers is 2^(x factor - base), in one multiplication and one power of two.
 * The base is rounded, or infinite, if max is huge.  Then 16-bit numbers are hundreds apart and all
 * powers are 0 or 1, so that the factor is 1 instead. */
struct power_16bit {
    float factor, base;
};

__device__ __forceinline__ power_16bit power_below(float max) {
    power_16bit p = {fabsf(max) < 65536 ? LOG2_E : 1.0f, 0};
    p.base = max == -INFINITY ? 0 : max * p.factor;
    return p;
}

__device__ __forceinline__ float power_of(float x, const power_16bit &p) {
    return power_of_2(fmaf(x, p.factor, -p.base));
}

/* As see, for 16-bit numbers. */
__device__ __forceinline__ void see_16bit(seen<float> &s, const float (&x)[8], unsigned first,
                                          const wanted<float> &w) {
    float best = x[0];
#pragma unroll
    for (int i = 1; i < 8; i++) best = fmaxf(best, x[i]);
    float max = fmaxf(s.max, best);
    power_16bit p = power_below(max);
    if (max > s.max) s.sum *= power_of(s.max, p);
    s.max = max;
#pragma unroll
    for (int i = 0; i < 8; i++) s.sum += power_of(x[i], p);
    if (w.total)
#pragma unroll
        for (int i = 0; i < 8; i++) s.total += x[i];
    s.beaten |= best > w.own || (best == w.own && first + 8 <= (unsigned)w.label);
}

/* The elements that see_16bit leaves out: those equal to the label before it, in its own vector. */
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
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
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
        see_16bit(s, x, v * 8, w);
    }
}

/* see_row for rows of whole vectors, all of which are requested before the first is used. */
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
    seen<float> s =
        stage_row(x, n_vectors, w, staged); /* afterwards all threads have read their w.own */
    float d = *dloss, share = (float)e.smoothing;
    if (threadIdx.x == 0) {
        float log_sum = logf(s.sum), loss = log_sum + (s.max - w.own);
        if (w.total) loss = (1 - share) * loss + share * (log_sum + (s.max - s.total / (float)e.n));
        found[row] = make_float2(loss, s.beaten || loss != loss ? 0 : 1);
    }
    float scale = d / s.sum, even = d * share / (float)e.n;
    power_16bit p = power_below(s.max);
#pragma unroll 4
    for (unsigned v = threadIdx.x; v < n_vectors; v += G) {
        float some[V];
        tti_load(staged[v].v, some);
#pragma unroll
        for (int i = 0; i < V; i++) some[i] = fmaf(power_of(some[i], p), scale, -even);
        tti_store(dx + (size_t)v * V, some);
    }
    if ((unsigned)label / V % G != threadIdx.x) return; /* after its own store */
    float own = fmaf(power_of(w.own, p), scale, -even);
    dx[label] = tti_from_f32<T>(own - d * (1 - share));
}

/* ---- with the sums of columns ---- */

/* One block on each of 132 multiprocessors; the bits depend on this number. */
enum { SUMS_BLOCKS = 132, SUMS_VECTORS = 8, SUMS_STAGES = 3 };
enum { MOST_SUMMED = SUMS_VECTORS * STAGED_THREADS * 16 };
static_assert(SUMS_STAGES * MOST_SUMMED <= 227 << 10, "the rows fit in shared memory");

/* The current row of a block, and the values known of the next ones. */
struct walk {
    size_t row;
    int32_t label, next_label;
    float own, next_own; /* the label's logit, where the label is a class */
};

__device__ __forceinline__ bool is_class(const entropy &e, int32_t label) {
    return label >= 0 && (size_t)label < e.n;
}

__device__ __forceinline__ int32_t label_of(const entropy &e, size_t row) {
    return row < e.n_rows ? e.labels[row] : -1;
}

template <class T>
__device__ __forceinline__ float own_of(const T *logits, const entropy &e, size_t row,
                                        int32_t label) {
    return row < e.n_rows && is_class(e, label) ? tti_to_f32(logits[row * e.n + label]) : 0.0f;
}

/* A group of copies, empty after the last row. */
template <class T>
__device__ __forceinline__ void copy_row(const T *logits, const entropy &e, size_t row,
                                         tti_vec<T, 8> *staged) {
    unsigned n_vectors = (unsigned)(e.n / 8);
    if (row < e.n_rows)
#pragma unroll
        for (int u = 0; u < SUMS_VECTORS; u++) {
            unsigned v = u * STAGED_THREADS + threadIdx.x;
            if (v < n_vectors) copy_ahead(staged + v, logits + row * e.n + (size_t)v * 8);
        }
    asm volatile("cp.async.commit_group;");
}

/* The factors of a row's gradient: x becomes e^(x - max) scale - even, at the label hit less. */
struct slope_16bit {
    power_16bit power;
    float scale, even, hit;
};

template <class T>
__device__ __forceinline__ slope_16bit see_staged(const entropy &e, const walk &at, float d,
                                                  int turn, const tti_vec<T, 8> *staged,
                                                  float2 *found) {
    wanted<float> w = {at.own, (size_t)at.label, e.smoothing != 0};
    seen<float> s = {-INFINITY, 0, 0, 0};
    unsigned n_vectors = (unsigned)(e.n / 8);
    float share = (float)e.smoothing;
#pragma unroll
    for (int u = 0; u < SUMS_VECTORS; u++) {
        unsigned v = u * STAGED_THREADS + threadIdx.x;
        float x[8];
        if (v >= n_vectors) break;
        tti_load(staged[v].v, x);
        see_16bit(s, x, v * 8, w);
    }
    see_equals(staged, w, s);
    s = join_group<STAGED_THREADS>(s, turn);
    if (threadIdx.x == 0) {
        float log_sum = logf(s.sum), loss = log_sum + (s.max - w.own);
        if (w.total) loss = (1 - share) * loss + share * (log_sum + (s.max - s.total / (float)e.n));
        found[at.row] = make_float2(loss, s.beaten || loss != loss ? 0 : 1);
    }
    slope_16bit p = {power_below(s.max), d / s.sum, d * share / (float)e.n, d * (1 - share)};
    return p;
}

template <class T>
__device__ __forceinline__ void turn_staged(const slope_16bit &p, unsigned n_vectors,
                                            unsigned label, const tti_vec<T, 8> *staged, T *dx,
                                            float (&sums)[SUMS_VECTORS][8]) {
#pragma unroll
    for (int u = 0; u < SUMS_VECTORS; u++) {
        unsigned v = u * STAGED_THREADS + threadIdx.x;
        float x[8];
        if (v >= n_vectors) break;
        tti_load(staged[v].v, x);
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = fmaf(power_of(x[i], p.power), p.scale, -p.even);
        if (v == label / 8)
#pragma unroll
            for (int i = 0; i < 8; i++) x[i] -= i == label % 8 ? p.hit : 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) sums[u][i] += x[i];
        tti_store(dx + (size_t)v * 8, x);
    }
}

/* A row whose label is none: 0, or NaN where it should be one. */
template <class T>
__device__ __forceinline__ void fill_staged(unsigned n_vectors, float value, T *dx,
                                            float (&sums)[SUMS_VECTORS][8]) {
    float x[8] = {value, value, value, value, value, value, value, value};
#pragma unroll
    for (int u = 0; u < SUMS_VECTORS; u++) {
        unsigned v = u * STAGED_THREADS + threadIdx.x;
        if (v >= n_vectors) break;
#pragma unroll
        for (int i = 0; i < 8; i++) sums[u][i] += value;
        tti_store(dx + (size_t)v * 8, x);
    }
}

/* partials [gridDim.x][n]; out may be logits: rows that are on their way are this block's own. */
template <class T>
__global__ void __launch_bounds__(STAGED_THREADS, 1)
    entropy_sums_kernel(const T *logits, entropy e, const float *dloss, float2 *found, T *out,
                        float *partials) {
    extern __shared__ uint4 memory[];
    tti_vec<T, 8> *staged = reinterpret_cast<tti_vec<T, 8> *>(memory);
    unsigned n_vectors = (unsigned)(e.n / 8), step = gridDim.x;
    float sums[SUMS_VECTORS][8] = {}, d = *dloss;
    walk at = {blockIdx.x};
    at.label = label_of(e, at.row), at.next_label = label_of(e, at.row + step);
    at.own = own_of(logits, e, at.row, at.label);
    copy_row(logits, e, at.row, staged);
    copy_row(logits, e, at.row + step, staged + n_vectors);
    int turn = 0; /* of rows that are joined: others have no barrier that would part two of them */
    for (unsigned i = 0; at.row < e.n_rows; i++, at.row += step) {
        size_t ahead = at.row + 2 * step;
        const tti_vec<T, 8> *here = staged + i % SUMS_STAGES * n_vectors;
        copy_row(logits, e, ahead, staged + (i + 2) % SUMS_STAGES * n_vectors);
        int32_t label_ahead = label_of(e, ahead);
        at.next_own = own_of(logits, e, at.row + step, at.next_label);
        await_copies<2>();
        T *dx = out + at.row * e.n;
        if (at.label != e.ignore && is_class(e, at.label)) {
            slope_16bit p = see_staged(e, at, d, turn, here, found);
            turn ^= 1;
            turn_staged(p, n_vectors, (unsigned)at.label, here, dx, sums);
        } else {
            float value = at.label == e.ignore ? 0.0f : nanf("");
            if (threadIdx.x == 0) found[at.row] = make_float2(value, 0);
            fill_staged(n_vectors, value, dx, sums);
        }
        at.label = at.next_label, at.next_label = label_ahead, at.own = at.next_own;
    }
#pragma unroll
    for (int u = 0; u < SUMS_VECTORS; u++) {
        unsigned v = u * STAGED_THREADS + threadIdx.x;
        if (v < n_vectors) tti_store(partials + (size_t)blockIdx.x * e.n + v * 8, sums[u]);
    }
}

/* ---- launches ---- */

/* Bytes of a row; 0: rows of this kind are not staged. */
size_t staged_bytes(const tti_entropy_rows *r) {
    bool is_16_bit = r->dtype == TUTTI_BF16 || r->dtype == TUTTI_F16;
    size_t n_bytes = r->n_classes * 2;
    return is_16_bit && n_bytes % 16 == 0 && n_bytes > SMALL_ROW * 2 && n_bytes <= MOST_STAGED
               ? n_bytes
               : 0;
}

bool sums_staged(const tti_entropy_rows *r) {
    return staged_bytes(r) > 0 && staged_bytes(r) <= MOST_SUMMED;
}

unsigned sums_blocks(const tti_entropy_rows *r) {
    return (unsigned)(r->n_rows < SUMS_BLOCKS ? r->n_rows : SUMS_BLOCKS);
}

/* partials NULL: no sums. */
template <class T>
cudaError_t launch_staged(const tti_entropy_rows *r, const void *logits, const float *dloss,
                          float2 *found, void *dx, float *partials, cudaStream_t stream) {
    const T *x = (const T *)logits;
    size_t n_bytes = staged_bytes(r) * (partials ? SUMS_STAGES : 1);
    const void *kernel =
        partials ? (const void *)entropy_sums_kernel<T> : (const void *)entropy_staged_kernel<T>;
    cudaError_t error = tti_make_room(kernel, n_bytes);
    if (error != cudaSuccess) return error;
    if (partials)
        entropy_sums_kernel<T><<<sums_blocks(r), STAGED_THREADS, n_bytes, stream>>>(
            x, entropy_of(r), dloss, found, (T *)dx, partials);
    else
        entropy_staged_kernel<T><<<(unsigned)r->n_rows, STAGED_THREADS, n_bytes, stream>>>(
            x, entropy_of(r), dloss, found, (T *)dx);
    return cudaGetLastError();
}

/* Sums the gradient, or the partial sums that blocks have written. */
tti_cuda_columns_desc columns_of(const tti_entropy_rows *r) {
    bool staged = sums_staged(r);
    tti_cuda_columns_desc c = {staged ? TUTTI_F32 : r->dtype, TUTTI_F32};
    c.rows = staged ? (int64_t)sums_blocks(r) : (int64_t)r->n_rows;
    c.n = (int64_t)r->n_classes;
    return c;
}

size_t aligned(size_t n_bytes) { return (n_bytes + 255) & ~(size_t)255; }

/* The layout of scratch: numbers of rows, then partials of blocks, then those of the sums over
 * them. */
struct places {
    size_t rows, partials, columns, end;
};

places places_of(const tti_entropy_rows *r, bool sums) {
    places p = {r->n_rows * sizeof(float2)};
    tti_cuda_columns_desc c = columns_of(r);
    p.partials = aligned(2 * r->n_rows * sizeof(float2));
    p.columns = p.partials;
    if (sums && sums_staged(r)) p.columns += aligned((size_t)c.rows * r->n_classes * sizeof(float));
    p.end = p.columns + (sums ? tti_cuda_column_bytes(c.in, c.rows, c.n) : 0);
    return p;
}

cudaError_t launch_apart(const tti_entropy_rows *r, const void *logits, const float *dloss,
                         void *dx, float *const out[3], char *scratch, cudaStream_t stream) {
    float *rows = (float *)(scratch + places_of(r, false).rows);
    float *const apart[4] = {out[0], out[1], out[2], rows};
    cudaError_t error = tti_launch_cross_entropy(r, logits, apart, scratch, stream);
    if (error != cudaSuccess) return error;
    return tti_launch_cross_entropy_grad(r, logits, dloss, rows, dx, stream);
}

/* Separately, afterwards, or from the blocks' partial sums. */
cudaError_t add_columns(const tti_entropy_rows *r, const void *dx, float *sums, char *scratch,
                        cudaStream_t stream) {
    places p = places_of(r, true);
    tti_cuda_columns_desc c = columns_of(r);
    c.x = sums_staged(r) ? (const void *)(scratch + p.partials) : dx;
    c.sums = sums;
    c.partials = scratch + p.columns;
    return tti_cuda_column_sums(&c, stream);
}

}  // namespace

extern "C" size_t tti_entropy_both_scratch(const tti_entropy_rows *r, bool sums) {
    return places_of(r, sums).end;
}

extern "C" cudaError_t tti_launch_entropy_both(const tti_entropy_rows *r, const void *logits,
                                               const float *dloss, void *dx, float *const out[4],
                                               void *scratch, cudaStream_t stream) {
    places p = places_of(r, out[3] != NULL);
    char *at = (char *)scratch;
    float2 *found = (float2 *)at;
    float *partials = out[3] && sums_staged(r) ? (float *)(at + p.partials) : NULL;
    cudaError_t error = cudaSuccess;
    if (r->n_rows == 0 || staged_bytes(r) == 0) {
        error = launch_apart(r, logits, dloss, dx, out, at, stream);
    } else {
        error = r->dtype == TUTTI_BF16
                    ? launch_staged<tti_bf16>(r, logits, dloss, found, dx, partials, stream)
                    : launch_staged<tti_f16>(r, logits, dloss, found, dx, partials, stream);
        if (error == cudaSuccess)
            entropy_finish<<<1, FINISH_THREADS, 0, stream>>>(found, entropy_of(r), out[0], out[1],
                                                             out[2]);
    }
    if (error != cudaSuccess || !out[3]) return error != cudaSuccess ? error : cudaGetLastError();
    return add_columns(r, dx, out[3], at, stream);
}

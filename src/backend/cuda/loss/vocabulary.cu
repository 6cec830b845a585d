/* vocabulary.cu - cross entropy of rows whose classes lie on several devices.
 *
 * A block reads a row of own logits once, in vectors of 16 bytes if rows are whole ones.
 * Computations on the parts of all devices are small, a few numbers a row, so they use f64, and
 * each device gets the same bits. */
#include "backend/cuda/loss/loss_rows.cuh"
#include "backend/cuda/loss/vocabulary.h"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 4096 };

/* The numbers of entropy_part for a row. */
enum { ROW_MAX, ROW_SUM, ROW_TARGET, ROW_TOTAL, ROW_BEST, N_ROW };

/* The statistics of the logits that a thread has read. */
template <class A>
struct known {
    A max, sum, total; /* sum: of e^(x - max) */
    size_t at;         /* of the first maximum */
};

template <int N, class A>
__device__ __forceinline__ void look(known<A> &s, const A (&x)[N], size_t first) {
    A best = x[0];
#pragma unroll
    for (int i = 1; i < N; i++) best = larger(best, x[i]);
    if (best > s.max) {
        size_t at = 0;
#pragma unroll
        for (int i = N - 1; i >= 0; i--) at = x[i] == best ? i : at;
        s.sum *= exponential(s.max - best);
        s.max = best;
        s.at = first + at;
    }
    A base = s.max == -INFINITY ? (A)0 : s.max;
#pragma unroll
    for (int i = 0; i < N; i++) {
        s.sum += exponential(x[i] - base);
        s.total += x[i];
    }
}

/* The first one of equal maxima. */
template <class A>
__device__ __forceinline__ known<A> both(const known<A> &a, const known<A> &b) {
    bool second = b.max > a.max || (b.max == a.max && b.at < a.at);
    const known<A> &to = second ? b : a, &of = second ? a : b;
    known<A> s = to;
    s.sum += of.sum * exponential(of.max - (to.max == -INFINITY ? (A)0 : to.max));
    s.total = a.total + b.total;
    return s;
}

/* Combines the statistics of all threads of the block, in the first one. */
template <class A>
__device__ __forceinline__ known<A> join_block(known<A> mine, known<A> *shared) {
    __syncthreads(); /* the row before has been read */
    shared[threadIdx.x] = mine;
    for (unsigned d = THREADS / 2; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d)
            shared[threadIdx.x] = both(shared[threadIdx.x], shared[threadIdx.x + d]);
    }
    return shared[0];
}

template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    part_kernel(const T *logits, tti_class_rows r, float *parts) {
    typedef typename tti_acc<T>::type A;
    __shared__ known<A> shared[THREADS];
    for (size_t row = blockIdx.x; row < r.n_rows; row += gridDim.x) {
        const T *x = logits + row * r.n_own;
        known<A> s = {-INFINITY, 0, 0, 0};
#pragma unroll 4
        for (size_t c = threadIdx.x * N; c < r.n_own; c += THREADS * N) {
            A here[N];
            tti_load(x + c, here);
            look(s, here, c);
        }
        s = join_block(s, shared);
        if (threadIdx.x) continue;
        int64_t own = (int64_t)r.labels[row] - r.first;
        bool is_own = own >= 0 && own < (int64_t)r.n_own;
        float *part = parts + row * N_ROW;
        bool good = s.sum == s.sum; /* else a logit is NaN, which maxima leave out */
        part[ROW_MAX] = good ? (float)s.max : nanf("");
        part[ROW_SUM] = (float)s.sum;
        part[ROW_TARGET] = is_own ? (float)tti_to_acc(x[own]) : 0.0f;
        part[ROW_TOTAL] = (float)s.total;
        bool starts_with_nan = tti_to_acc(x[0]) != tti_to_acc(x[0]); /* then no class is larger */
        part[ROW_BEST] = (float)(r.first + (starts_with_nan ? 0 : (int64_t)s.at));
    }
}

/* The parts of a row in one; of equal maxima the first one's class counts. */
__device__ __forceinline__ void join_row(const float *parts, size_t n, double (&row)[N_ROW]) {
#pragma unroll
    for (int k = 0; k < N_ROW; k++) row[k] = parts[k];
    for (size_t i = 1; i < n; i++)
        if (parts[i * N_ROW + ROW_MAX] > row[ROW_MAX]) {
            row[ROW_MAX] = parts[i * N_ROW + ROW_MAX];
            row[ROW_BEST] = parts[i * N_ROW + ROW_BEST];
        }
    row[ROW_SUM] *= exp((double)parts[ROW_MAX] - row[ROW_MAX]);
    for (size_t i = 1; i < n; i++) {
        const float *part = parts + i * N_ROW;
        row[ROW_SUM] += part[ROW_SUM] * exp((double)part[ROW_MAX] - row[ROW_MAX]);
        row[ROW_TARGET] += part[ROW_TARGET];
        row[ROW_TOTAL] += part[ROW_TOTAL];
    }
}

/* found[row]: its loss, 1 if its first maximum is the label */
__global__ void __launch_bounds__(THREADS)
    join_kernel(const float *parts, size_t n, tti_class_rows r, float2 *rows, double2 *found) {
    size_t step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < r.n_rows; i += step) {
        int32_t label = r.labels[i];
        bool ignored = label == r.ignore, good = label >= 0 && (size_t)label < r.n_classes;
        rows[i] = make_float2(0, 1);
        found[i] = make_double2(ignored ? 0 : nan(""), 0);
        if (ignored || !good) continue;
        double row[N_ROW];
        join_row(parts + i * n * N_ROW, n, row);
        double log_sum = log(row[ROW_SUM]), mean = row[ROW_TOTAL] / (double)r.n_classes;
        double loss = (1 - r.smoothing) * (row[ROW_MAX] - row[ROW_TARGET] + log_sum);
        if (r.smoothing > 0) loss += r.smoothing * (row[ROW_MAX] - mean + log_sum);
        rows[i] = make_float2((float)row[ROW_MAX], (float)row[ROW_SUM]);
        found[i] = make_double2(loss, loss == loss && row[ROW_BEST] == (double)label ? 1 : 0);
    }
}

/* logits and out may be one: every element is read by the thread that writes it. */
template <class T, int N>
__global__ void __launch_bounds__(THREADS)
    join_grad_kernel(const T *logits, tti_class_rows r, const float *dloss, const float2 *rows,
                     T *out) {
    typedef typename tti_acc<T>::type A;
    A d = (A)*dloss, share = (A)r.smoothing, even = share / (A)r.n_classes;
    for (size_t row = blockIdx.x; row < r.n_rows; row += gridDim.x) {
        const T *x = logits + row * r.n_own;
        T *dx = out + row * r.n_own;
        int32_t label = r.labels[row];
        bool ignored = label == r.ignore, good = label >= 0 && (size_t)label < r.n_classes;
        int64_t own = (int64_t)label - r.first;
        A max = (A)rows[row].x, each = good ? 1 / (A)rows[row].y : (A)nan("");
#pragma unroll 4
        for (size_t c = threadIdx.x * N; c < r.n_own; c += THREADS * N) {
            A here[N], slope[N];
            tti_load(x + c, here);
#pragma unroll
            for (int i = 0; i < N; i++) {
                A target = (own == (int64_t)c + i ? 1 - share : (A)0) + even;
                slope[i] = ignored ? (A)0 : (exponential(here[i] - max) * each - target) * d;
            }
            tti_store(dx + c, slope);
        }
    }
}

/* Whether rows begin and end where vectors do. */
template <class T>
bool is_wide(const tti_class_rows *r, const void *a, const void *b) {
    size_t all = (size_t)(uintptr_t)a | (size_t)(uintptr_t)b | r->n_own * sizeof(T);
    return all % 16 == 0;
}

unsigned blocks_for(size_t n) { return (unsigned)(n < MOST_BLOCKS ? n : MOST_BLOCKS); }

template <class T>
void launch_part(const tti_class_rows *r, const T *logits, float *parts, cudaStream_t stream) {
    unsigned n = blocks_for(r->n_rows);
    if (is_wide<T>(r, logits, logits))
        part_kernel<T, 16 / sizeof(T)><<<n, THREADS, 0, stream>>>(logits, *r, parts);
    else
        part_kernel<T, 1><<<n, THREADS, 0, stream>>>(logits, *r, parts);
}

template <class T>
void launch_grad(const tti_class_rows *r, const T *logits, const float *dloss, const float2 *rows,
                 T *dx, cudaStream_t stream) {
    unsigned n = blocks_for(r->n_rows);
    if (is_wide<T>(r, logits, dx))
        join_grad_kernel<T, 16 / sizeof(T)><<<n, THREADS, 0, stream>>>(logits, *r, dloss, rows, dx);
    else
        join_grad_kernel<T, 1><<<n, THREADS, 0, stream>>>(logits, *r, dloss, rows, dx);
}

}  // namespace

extern "C" cudaError_t tti_launch_entropy_part(const tti_class_rows *r, const void *logits,
                                               float *parts, cudaStream_t stream) {
    if (r->n_rows == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(r->dtype, (launch_part<T>(r, (const T *)logits, parts, stream)));
    return cudaGetLastError();
}

extern "C" size_t tti_entropy_join_scratch(size_t n_rows) { return n_rows * sizeof(double2); }

extern "C" cudaError_t tti_launch_entropy_join(const tti_class_rows *r, size_t n,
                                               const float *parts, float *const out[4],
                                               void *scratch, cudaStream_t stream) {
    double2 *found = (double2 *)scratch;
    if (r->n_rows > 0)
        join_kernel<<<blocks_for((r->n_rows + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
            parts, n, *r, (float2 *)out[3], found);
    entropy e = {r->labels, r->n_rows, r->n_classes, r->ignore, r->smoothing};
    entropy_finish<<<1, FINISH_THREADS, 0, stream>>>(found, e, out[0], out[1], out[2]);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_entropy_join_grad(const tti_class_rows *r, const void *logits,
                                                    const float *dloss, const float *rows, void *dx,
                                                    cudaStream_t stream) {
    if (r->n_rows == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(r->dtype, (launch_grad<T>(r, (const T *)logits, dloss, (const float2 *)rows,
                                                 (T *)dx, stream)));
    return cudaGetLastError();
}

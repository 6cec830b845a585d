/* vocabulary.cu - cross entropy of rows whose classes lie on several devices.
 *
 * A block has a row of own logits and looks at it twice: for the first maximum, and for the sums.
 * The idea to know: what is made of the parts of all devices is little, a few numbers a row, so it
 * is made in f64, and each device gets the same bits. */
#include "backend/cuda/loss_rows.cuh"
#include "backend/cuda/vocabulary.h"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 4096 };

/* What entropy_part says of a row. */
enum { ROW_MAX, ROW_SUM, ROW_TARGET, ROW_TOTAL, ROW_BEST, N_ROW };

template <class A>
struct largest {
    A x;
    size_t at;
};

/* Of equals the first one; a number never comes before one that is none. */
template <class A>
__device__ __forceinline__ bool comes_before(const largest<A> &a, const largest<A> &b) {
    return a.x > b.x || (a.x == b.x && a.at < b.at);
}

/* The first maximum of the block, on every thread.  shared: THREADS elements. */
template <class A>
__device__ __forceinline__ largest<A> join_block(largest<A> mine, largest<A> *shared) {
    __syncthreads(); /* the row before has been read */
    shared[threadIdx.x] = mine;
    for (unsigned d = THREADS / 2; d > 0; d /= 2) {
        __syncthreads();
        if (threadIdx.x < d && comes_before(shared[threadIdx.x + d], shared[threadIdx.x]))
            shared[threadIdx.x] = shared[threadIdx.x + d];
    }
    __syncthreads();
    return shared[0];
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    part_kernel(const T *logits, tti_class_rows r, float *parts) {
    typedef typename tti_acc<T>::type A;
    __shared__ largest<A> bests[THREADS];
    __shared__ A sums[32];
    for (size_t row = blockIdx.x; row < r.n_rows; row += gridDim.x) {
        const T *x = logits + row * r.n_own;
        largest<A> best = {tti_to_acc(x[0]), 0};
        for (size_t c = threadIdx.x; c < r.n_own; c += THREADS) {
            largest<A> here = {tti_to_acc(x[c]), c};
            if (here.x > best.x) best = here;
        }
        best = join_block(best, bests);
        A sum = 0, total = 0;
        for (size_t c = threadIdx.x; c < r.n_own; c += THREADS) {
            A here = tti_to_acc(x[c]);
            sum += tti_exp(here - best.x);
            total += here;
        }
        sum = tti_block_sum(sum, sums);
        total = tti_block_sum(total, sums);
        if (threadIdx.x) continue;
        int64_t own = (int64_t)r.labels[row] - r.first;
        bool is_own = own >= 0 && own < (int64_t)r.n_own;
        float *part = parts + row * N_ROW;
        part[ROW_MAX] = (float)best.x;
        part[ROW_SUM] = (float)sum;
        part[ROW_TARGET] = is_own ? (float)tti_to_acc(x[own]) : 0.0f;
        part[ROW_TOTAL] = (float)total;
        part[ROW_BEST] = (float)(r.first + (int64_t)best.at);
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
        double log_sum = row[ROW_MAX] + log(row[ROW_SUM]);
        double loss = (1 - r.smoothing) * (log_sum - row[ROW_TARGET]);
        if (r.smoothing > 0) loss += r.smoothing * (log_sum - row[ROW_TOTAL] / (double)r.n_classes);
        rows[i] = make_float2((float)row[ROW_MAX], (float)row[ROW_SUM]);
        found[i] = make_double2(loss, row[ROW_BEST] == (double)label ? 1 : 0);
    }
}

/* logits and out may be one: every element is read by the thread that writes it. */
template <class T>
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
        A max = (A)rows[row].x, sum = (A)rows[row].y;
        for (size_t c = threadIdx.x; c < r.n_own; c += THREADS) {
            A target = (own == (int64_t)c ? 1 - share : (A)0) + even;
            A slope = good ? tti_exp(tti_to_acc(x[c]) - max) / sum - target : (A)nan("");
            tti_from_acc(dx + c, ignored ? (A)0 : slope * d);
        }
    }
}

unsigned blocks_for(size_t n) { return (unsigned)(n < MOST_BLOCKS ? n : MOST_BLOCKS); }

}  // namespace

extern "C" cudaError_t tti_launch_entropy_part(const tti_class_rows *r, const void *logits,
                                               float *parts, cudaStream_t stream) {
    if (r->n_rows == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(r->dtype, (part_kernel<T><<<blocks_for(r->n_rows), THREADS, 0, stream>>>(
                                     (const T *)logits, *r, parts)));
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
    TTI_FLOAT_DISPATCH(r->dtype,
                       (join_grad_kernel<T><<<blocks_for(r->n_rows), THREADS, 0, stream>>>(
                           (const T *)logits, *r, dloss, (const float2 *)rows, (T *)dx)));
    return cudaGetLastError();
}

/* tp.cu - collectives inside a step between devices that read each other's memory.
 *
 * Each block writes its input into its device's half of the shared memory, synchronizes with the
 * blocks of the same number on the other devices, and reads theirs: so it does not depend on
 * neighbouring blocks.  Halves alternate: a rank that is one collective ahead writes into the other
 * half, and no rank can be two ahead, since the first block of every collective has synchronized
 * with all devices, each of which had ended the previous collective.  Long sums over more than two
 * devices are computed part by part, with a second barrier, so that each byte crosses a link twice
 * and not once for each device.
 *
 * Barriers are counted on the device, in 64 bits, two for each collective: blocks that a small one
 * does not have skip the same count. */
#include "backend/cuda/comm/tp.cuh"
#include "backend/cuda/runtime/load.cuh"

/* OVERLAPPED_BLOCKS: as for a sum that overlaps with matrix products, and as many for the copy
 * before it. */
enum { THREADS = 512, OVERLAPPED_BLOCKS = 32, STACK = 8 };
enum {
    PARTS_BYTES = 1 << 20 /* sums of more devices are computed part by part from this size on */
};

/* ---- units: N elements of T, moved as they are ---- */

template <int N_BYTES>
struct raw_of;
template <>
struct raw_of<1> {
    typedef unsigned char type;
};
template <>
struct raw_of<2> {
    typedef unsigned short type;
};
template <>
struct raw_of<4> {
    typedef unsigned int type;
};
template <>
struct raw_of<8> {
    typedef uint2 type;
};
template <>
struct raw_of<16> {
    typedef uint4 type;
};

/* The address of a rank's input in this collective. */
template <class R>
__device__ __forceinline__ R *given(const tti_peers_view &v, int rank, uint64_t epoch,
                                    size_t half_bytes) {
    return (R *)((char *)v.sum[rank] + (epoch / 2 % 2) * half_bytes);
}

template <class T, int V>
struct summand {
    typedef typename tti_acc<T>::type acc;
    acc x[V];
};

template <class T, int V, class R>
__device__ __forceinline__ summand<T, V> widen(R raw) {
    const tti_vec<T, V> in = *reinterpret_cast<const tti_vec<T, V> *>(&raw);
    summand<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++) out.x[k] = tti_to_acc(in.v[k]);
    return out;
}

template <class R, class T, int V>
__device__ __forceinline__ R narrow(const summand<T, V> &in) {
    tti_vec<T, V> out;
#pragma unroll
    for (int k = 0; k < V; k++) tti_from_acc(&out.v[k], in.x[k]);
    return *reinterpret_cast<const R *>(&out);
}

template <class T, int V>
__device__ __forceinline__ summand<T, V> add(const summand<T, V> &a, const summand<T, V> &b) {
    summand<T, V> c;
#pragma unroll
    for (int k = 0; k < V; k++) c.x[k] = a.x[k] + b.x[k];
    return c;
}

/* ---- sums ---- */

/* The sum of what all ranks gave at unit at, in the order of the terms, which are the ranks'.  The
 * own is still in src.  N 0: any number of ranks. */
template <class T, int V, int N, class R>
__device__ __forceinline__ R sum_at(const tti_peers_view &v, const R *const *from, size_t at) {
    if constexpr (N > 0) {
        R raw[N];
        summand<T, V> a[N];
#pragma unroll
        for (int t = 0; t < N; t++) raw[t] = __ldcg(from[t] + at);
#pragma unroll
        for (int t = 0; t < N; t++) a[t] = widen<T, V>(raw[t]);
#pragma unroll
        for (int s = 1; s < N; s *= 2)
#pragma unroll
            for (int t = 0; t + s < N; t += 2 * s) a[t] = add(a[t], a[t + s]);
        return narrow<R>(a[0]);
    } else {
        summand<T, V> stack[STACK];
        int n = 0;
        for (int t = 0; t < v.n_ranks; t++) {
            stack[n++] = widen<T, V>(__ldcg(from[t] + at));
            for (int k = 0; k < v.terms.n_adds[t]; k++, n--)
                stack[n - 2] = add(stack[n - 2], stack[n - 1]);
        }
        return narrow<R>(stack[0]);
    }
}

/* put(i, sum) for the units from(i) of a grid, i from 0 up to n. */
template <class T, int V, int N, class R, class From, class Put>
__device__ __forceinline__ void sum_units(const tti_peers_view &v, const R *const *from, uint32_t n,
                                          const From &place, const Put &put) {
    constexpr int U = N == 2 ? 4 : N == 4 ? 2 : 1;
    uint32_t step = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    if constexpr (U > 1) {
        for (; i + (U - 1) * step < n; i += U * step) {
            R sum[U];
#pragma unroll
            for (int u = 0; u < U; u++) sum[u] = sum_at<T, V, N>(v, from, place(i + u * step));
#pragma unroll
            for (int u = 0; u < U; u++) put(i + u * step, sum[u]);
        }
    }
    for (; i < n; i += step) put(i, sum_at<T, V, N>(v, from, place(i)));
}

/* The addresses of the terms: the own one in its original place. */
template <class R>
__device__ __forceinline__ void find_terms(const tti_peers_view &v, const R *own, uint64_t epoch,
                                           size_t half_bytes, const R **from) {
#pragma unroll
    for (int t = 0; t < TTI_PEERS_MAX; t++)
        if (t < v.n_ranks) from[t] = t == v.rank ? own : given<R>(v, t, epoch, half_bytes);
}

template <class T, int V, int N>
__global__ void __launch_bounds__(THREADS)
    tp_sum_kernel(const __grid_constant__ tti_peers_view v, const void *in, void *out, uint32_t n,
                  size_t half_bytes) {
    typedef typename raw_of<sizeof(T) * V>::type R;
    uint64_t epoch = tti_tp_epoch(v);
    uint32_t step = gridDim.x * blockDim.x, begin = blockIdx.x * blockDim.x + threadIdx.x;
    const R *src = (const R *)in, *from[TTI_PEERS_MAX];
    R *mine = given<R>(v, v.rank, epoch, half_bytes), *dst = (R *)out;
    for (uint32_t i = begin; i < n; i += step) mine[i] = src[i];
    tti_tp_barrier(v, epoch + 1);
    find_terms(v, src, epoch, half_bytes, from);
    sum_units<T, V, N>(
        v, from, n, [](uint32_t i) { return (size_t)i; }, [&](uint32_t i, R sum) { dst[i] = sum; });
    tti_tp_end(v, epoch);
}

/* Each rank sums its part, in the place of its own input, from which the others fetch it. */
template <class T, int V, int N>
__global__ void __launch_bounds__(THREADS)
    tp_sum_parts_kernel(const __grid_constant__ tti_peers_view v, const void *in, void *out,
                        uint32_t n, uint32_t part, size_t half_bytes) {
    typedef typename raw_of<sizeof(T) * V>::type R;
    uint64_t epoch = tti_tp_epoch(v);
    uint32_t step = gridDim.x * blockDim.x, begin = blockIdx.x * blockDim.x + threadIdx.x;
    const R *src = (const R *)in, *from[TTI_PEERS_MAX];
    R *mine = given<R>(v, v.rank, epoch, half_bytes), *dst = (R *)out;
    uint32_t first = part * v.rank, n_own = first < n ? min(part, n - first) : 0;
    for (int r = 0; r < v.n_ranks; r++)
        for (uint32_t i = begin; r != v.rank && i < part && part * r + i < n; i += step)
            mine[part * r + i] = src[part * r + i];
    tti_tp_barrier(v, epoch + 1);
    find_terms(v, src, epoch, half_bytes, from);
    sum_units<T, V, N>(
        v, from, n_own, [&](uint32_t i) { return (size_t)first + i; },
        [&](uint32_t i, R sum) { dst[first + i] = mine[first + i] = sum; });
    tti_tp_barrier(v, epoch + 2);
    for (int k = 1; k < v.n_ranks; k++) {
        int r = v.rank + k < v.n_ranks ? v.rank + k : v.rank + k - v.n_ranks;
        const R *theirs = given<R>(v, r, epoch, half_bytes);
#pragma unroll 4
        for (uint32_t i = begin; i < part && part * r + i < n; i += step)
            dst[part * r + i] = __ldcg(theirs + part * r + i);
    }
    tti_tp_end(v, epoch);
}

/* n units in all rows of a part, per_row of them in each. */
template <class T, int V, int N>
__global__ void __launch_bounds__(THREADS)
    tp_scatter_kernel(const __grid_constant__ tti_peers_view v, const void *in, void *out,
                      uint32_t n, uint32_t per_row, size_t half_bytes) {
    typedef typename raw_of<sizeof(T) * V>::type R;
    uint64_t epoch = tti_tp_epoch(v);
    uint32_t step = gridDim.x * blockDim.x, begin = blockIdx.x * blockDim.x + threadIdx.x;
    const R *src = (const R *)in, *from[TTI_PEERS_MAX];
    R *mine = given<R>(v, v.rank, epoch, half_bytes), *dst = (R *)out;
    auto place = [&](uint32_t i, int r) {
        return ((size_t)(i / per_row) * v.n_ranks + r) * per_row + i % per_row;
    };
    for (uint32_t i = begin; i < n; i += step)
        for (int r = 0; r < v.n_ranks; r++)
            if (r != v.rank) mine[place(i, r)] = src[place(i, r)];
    tti_tp_barrier(v, epoch + 1);
    find_terms(v, src, epoch, half_bytes, from);
    sum_units<T, V, N>(
        v, from, n, [&](uint32_t i) { return place(i, v.rank); },
        [&](uint32_t i, R sum) { dst[i] = sum; });
    tti_tp_end(v, epoch);
}

template <class R>
__global__ void __launch_bounds__(THREADS)
    tp_gather_kernel(const __grid_constant__ tti_peers_view v, const void *in, void *out,
                     uint32_t n, uint32_t per_row, size_t half_bytes) {
    uint64_t epoch = tti_tp_epoch(v);
    uint32_t step = gridDim.x * blockDim.x, begin = blockIdx.x * blockDim.x + threadIdx.x;
    const R *src = (const R *)in;
    R *mine = given<R>(v, v.rank, epoch, half_bytes), *dst = (R *)out;
    auto place = [&](uint32_t i, int r) {
        return ((size_t)(i / per_row) * v.n_ranks + r) * per_row + i % per_row;
    };
    for (uint32_t i = begin; i < n; i += step) {
        R unit = src[i];
        mine[i] = unit;
        dst[place(i, v.rank)] = unit;
    }
    tti_tp_barrier(v, epoch + 1);
    for (int k = 1; k < v.n_ranks; k++) {
        int r = v.rank + k < v.n_ranks ? v.rank + k : v.rank + k - v.n_ranks;
        const R *theirs = given<R>(v, r, epoch, half_bytes);
        uint32_t i = begin;
        for (; i + 3 * step < n; i += 4 * step) {
            R unit[4];
#pragma unroll
            for (int u = 0; u < 4; u++) unit[u] = __ldcg(theirs + i + u * step);
#pragma unroll
            for (int u = 0; u < 4; u++) dst[place(i + u * step, r)] = unit[u];
        }
        for (; i < n; i += step) dst[place(i, r)] = __ldcg(theirs + i);
    }
    tti_tp_end(v, epoch);
}

/* ---- lists ---- */

/* One block for each list, one thread for each lane. */
__global__ void __launch_bounds__(TTI_LIST_LANES)
    fold_kernel(const double *values, tti_device_lists lists, double *sums) {
    __shared__ double lane[TTI_LIST_LANES];
    int t = threadIdx.x, end = lists.begin[blockIdx.x + 1];
    double sum = 0;
#pragma unroll 8
    for (int k = lists.begin[blockIdx.x] + t; k < end; k += TTI_LIST_LANES)
        sum += values[lists.member[k]];
    lane[t] = sum;
    for (int d = TTI_LIST_LANES / 2; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) lane[t] += lane[t + d];
    }
    if (t == 0) sums[blockIdx.x] = lane[0];
}

__global__ void unfold_kernel(double *values, tti_device_lists lists, const double *sums) {
    int l = blockIdx.x * blockDim.x + threadIdx.x;
    if (l < lists.n) values[lists.home[l]] = sums[l];
}

/* ---- launchers ---- */

static unsigned blocks_for(size_t n_units, bool overlapped) {
    size_t n = (n_units + THREADS - 1) / THREADS;
    size_t most = overlapped ? (size_t)OVERLAPPED_BLOCKS : (size_t)TTI_PEERS_BLOCKS;
    return (unsigned)(n < 1 ? 1 : n > most ? most : n);
}

/* The parameters of a launch, in units of V elements. */
struct launch {
    tti_peers_view view;
    const tti_tp_collective *tp;
    uint32_t n, per_row, part;
    size_t half_bytes;
    unsigned grid;
    bool in_parts;
    cudaStream_t stream;
};

template <class T, int V, int N>
static cudaError_t launch_added(const launch &l) {
    const tti_tp_collective *t = l.tp;
    if (t->kind == TTI_COLLECTIVE_SCATTER)
        tp_scatter_kernel<T, V, N>
            <<<l.grid, THREADS, 0, l.stream>>>(l.view, t->in, t->out, l.n, l.per_row, l.half_bytes);
    else if (l.in_parts)
        tp_sum_parts_kernel<T, V, N>
            <<<l.grid, THREADS, 0, l.stream>>>(l.view, t->in, t->out, l.n, l.part, l.half_bytes);
    else
        tp_sum_kernel<T, V, N>
            <<<l.grid, THREADS, 0, l.stream>>>(l.view, t->in, t->out, l.n, l.half_bytes);
    return cudaGetLastError();
}

template <class T>
static cudaError_t launch_of(const launch &l, bool wide) {
    enum { V = 16 / sizeof(T) };
    if (!wide) return launch_added<T, 1, 0>(l);
    switch (l.view.terms.balanced) {
        case 2:
            return launch_added<T, V, 2>(l);
        case 4:
            return launch_added<T, V, 4>(l);
        case 8:
            return launch_added<T, V, 8>(l);
        default:
            return launch_added<T, V, 0>(l);
    }
}

template <class R>
static cudaError_t launch_gather(const launch &l) {
    const tti_tp_collective *t = l.tp;
    tp_gather_kernel<R>
        <<<l.grid, THREADS, 0, l.stream>>>(l.view, t->in, t->out, l.n, l.per_row, l.half_bytes);
    return cudaGetLastError();
}

/* The widest unit that everything is a multiple of. */
static size_t unit_of(const tti_tp_collective *t) {
    size_t all = (size_t)(uintptr_t)t->in | (size_t)(uintptr_t)t->out | t->part_bytes, unit = 16;
    while (all % unit) unit /= 2;
    return unit;
}

static cudaError_t gather_by(const launch &l, size_t unit) {
    switch (unit) {
        case 16:
            return launch_gather<uint4>(l);
        case 8:
            return launch_gather<uint2>(l);
        case 4:
            return launch_gather<unsigned int>(l);
        case 2:
            return launch_gather<unsigned short>(l);
        default:
            return launch_gather<unsigned char>(l);
    }
}

static cudaError_t add_by(const launch &l, bool wide) {
    switch (l.tp->dtype) {
        case TUTTI_F32:
            return launch_of<float>(l, wide);
        case TUTTI_F64:
            return launch_of<double>(l, wide);
        case TUTTI_BF16:
            return launch_of<tti_bf16>(l, wide);
        case TUTTI_F16:
            return launch_of<tti_f16>(l, wide);
        default:
            return cudaErrorInvalidValue;
    }
}

extern "C" cudaError_t tti_launch_tp(const tti_peers_view *view, const tti_tp_collective *tp,
                                     size_t half_bytes, bool overlapped, cudaStream_t stream) {
    bool gathers = tp->kind == TTI_COLLECTIVE_GATHER;
    size_t unit = unit_of(tp), n_bytes = tp->n_rows * tp->part_bytes;
    bool wide = unit == 16;
    if (!gathers && !wide) unit = tutti_dtype_bytes(tp->dtype);
    if (n_bytes / unit >= (size_t)1 << 31 || tp->part_bytes % unit) return cudaErrorInvalidValue;
    launch l = {.view = *view, .tp = tp, .half_bytes = half_bytes, .stream = stream};
    l.n = (uint32_t)(n_bytes / unit);
    l.per_row = (uint32_t)(tp->part_bytes / unit);
    l.part = (l.n + view->n_ranks - 1) / view->n_ranks;
    l.in_parts = wide && view->n_ranks > 2 && n_bytes >= PARTS_BYTES;
    l.grid = blocks_for(l.in_parts ? l.part : l.n, overlapped);
    return gathers ? gather_by(l, unit) : add_by(l, wide);
}

extern "C" cudaError_t tti_launch_fold(const double *values, const tti_device_lists *lists,
                                       double *sums, cudaStream_t stream) {
    if (lists->n == 0) return cudaSuccess;
    fold_kernel<<<(unsigned)lists->n, TTI_LIST_LANES, 0, stream>>>(values, *lists, sums);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_unfold(double *values, size_t n_values,
                                         const tti_device_lists *lists, const double *sums,
                                         cudaStream_t stream) {
    cudaError_t error = cudaMemsetAsync(values, 0, n_values * sizeof *values, stream);
    if (error != cudaSuccess || lists->n == 0) return error;
    unfold_kernel<<<((unsigned)lists->n + 255) / 256, 256, 0, stream>>>(values, *lists, sums);
    return cudaGetLastError();
}

/* ---- loading ---- */

template <class T, int V, int N>
static cudaError_t load_added() {
    return tti_load_kernels(tp_sum_kernel<T, V, N>, tp_sum_parts_kernel<T, V, N>,
                            tp_scatter_kernel<T, V, N>);
}

template <class T>
static cudaError_t load_dtype() {
    enum { V = 16 / sizeof(T) };
    return tti_first_error(load_added<T, V, 2>(), load_added<T, V, 4>(), load_added<T, V, 8>(),
                           load_added<T, V, 0>(), load_added<T, 1, 0>());
}

extern "C" cudaError_t tti_launch_tp_load(void) {
    cudaError_t error =
        tti_load_kernels(tp_gather_kernel<uint4>, tp_gather_kernel<uint2>,
                         tp_gather_kernel<unsigned int>, tp_gather_kernel<unsigned short>,
                         tp_gather_kernel<unsigned char>, fold_kernel, unfold_kernel);
    return tti_first_error(error, load_dtype<float>(), load_dtype<double>(), load_dtype<tti_bf16>(),
                           load_dtype<tti_f16>());
}

/* peers.cu - sums in a fixed order between devices, by kernels that read each other's memory.
 *
 * Each device sums one chunk: it reads that chunk of every term, adds in the order of the tree and
 * writes the sum to all devices, with a barrier before (all terms are complete) and after (all sums
 * are).  The bytes are those of a ring, in one kernel.
 *
 * Barriers are counted on the device, so that a captured graph can be replayed.  A wait ends when
 * the host aborts it or the time is over; the group is then broken, and its numbers are invalid. */
#include "backend/cuda/comm/peers_terms.cuh"
#include "backend/cuda/gemm/join.cuh"
#include "backend/cuda/runtime/load.cuh"

/* OVERLAPPED_BLOCKS: each keeps a product of matrices off its multiprocessor, also while it waits,
 * and so many already have the bytes in flight that a link needs. */
enum { SUM_THREADS = 512, GATHER_THREADS = 256, OVERLAPPED_BLOCKS = 16 };

/* put(unit, sum) for the units first .. last-1 of a grid, over the terms begin .. end-1.  N: so
 * many in a complete tree; 0: any list of terms.  R: as tti_add has it. */
template <int N, bool R, class Put>
__device__ __forceinline__ void sum_units(const tti_peers_terms &t, int begin, int end,
                                          size_t first, size_t last, const Put &put) {
    constexpr int U = N == 0 ? 1 : N <= 2 ? 4 : N == 4 ? 2 : 1;
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = first + (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if constexpr (N == 0) {
        for (; i < last; i += step) put(i, tti_add_any<R>(t, begin, end, i));
    } else {
        float4 sum[U], one[1];
        for (; i + (U - 1) * step < last; i += U * step) {
            tti_add_terms<N, U, R>(t, begin, i, step, sum);
#pragma unroll
            for (int u = 0; u < U; u++) put(i + u * step, sum[u]);
        }
        for (; i < last; i += step) {
            tti_add_terms<N, 1, R>(t, begin, i, step, one);
            put(i, one[0]);
        }
    }
}

/* n_to: ranks that get the sum, this one first. */
template <int N, bool R>
__global__ void __launch_bounds__(SUM_THREADS)
    peers_sum_kernel(const __grid_constant__ tti_peers_view v, size_t first, size_t last,
                     int n_to) {
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_SUM][blockIdx.x];
    uint32_t epoch = *counter;
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 1);
    sum_units<N, R>(v.terms, 0, v.terms.n, first, last, [&](size_t unit, float4 sum) {
        for (int r = 0; r < n_to; r++) {
            int to = v.rank + r < v.n_ranks ? v.rank + r : v.rank + r - v.n_ranks;
            ((float4 *)v.sum[to])[unit] = sum;
        }
    });
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 2);
    if (threadIdx.x == 0) *counter = epoch + 2;
}

/* Barriers before, when all terms are complete, and after, when no rank reads them any more. */
template <int N, bool R>
__global__ void __launch_bounds__(SUM_THREADS)
    peers_leaves_kernel(const __grid_constant__ tti_peers_view v,
                        const __grid_constant__ tti_peers_leaves l) {
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_SUM][blockIdx.x];
    uint32_t epoch = *counter;
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 1);
    for (int p = 0; p < l.n_partitions; p++)
        for (int k = 0; k < l.n_leaves; k++) {
            size_t first = l.partition[p].first / 4, n = l.partition[p].n_elems / 4;
            float4 *to = (float4 *)l.partition[p].to + k * n;
            sum_units<N, R>(v.terms, l.first[k], l.first[k] + l.n_terms[k], first, first + n,
                            [&](size_t unit, float4 sum) { to[unit - first] = sum; });
        }
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 2);
    if (threadIdx.x == 0) *counter = epoch + 2;
}

/* acc += 8 values of 16 bits. */
template <class T>
__device__ __forceinline__ void add_16bit(float (&acc)[8], float4 raw) {
    const tti_vec<T, 8> v = *reinterpret_cast<const tti_vec<T, 8> *>(&raw);
#pragma unroll
    for (int k = 0; k < 8; k++) acc[k] += tti_to_f32(v.v[k]);
}

/* The sum over N terms, 0: all there are, rounded again. */
template <class T, int N>
__device__ __forceinline__ float4 sum_16bit(const tti_peers_terms &t, size_t unit) {
    float acc[8] = {0};
    if constexpr (N > 0) {
        float4 raw[N];
#pragma unroll
        for (int i = 0; i < N; i++) raw[i] = tti_load_unit(t.data[i], unit);
#pragma unroll
        for (int i = 0; i < N; i++) add_16bit<T>(acc, raw[i]);
    } else {
        for (int i = 0; i < t.n; i++) add_16bit<T>(acc, tti_load_unit(t.data[i], unit));
    }
    tti_vec<T, 8> sum;
#pragma unroll
    for (int k = 0; k < 8; k++) sum.v[k] = tti_from_f32<T>(acc[k]);
    return *reinterpret_cast<const float4 *>(&sum);
}

template <class T, int N>
__global__ void __launch_bounds__(SUM_THREADS)
    peers_sum_16bit_kernel(const __grid_constant__ tti_peers_view v, size_t first, size_t last) {
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_SUM][blockIdx.x];
    uint32_t epoch = *counter;
    size_t step = (size_t)gridDim.x * blockDim.x;
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 1);
#pragma unroll 4
    for (size_t i = first + (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < last; i += step) {
        float4 sum = sum_16bit<T, N>(v.terms, i);
        for (int r = 0; r < v.n_ranks; r++) {
            int to = v.rank + r < v.n_ranks ? v.rank + r : v.rank + r - v.n_ranks;
            ((float4 *)v.sum[to])[i] = sum;
        }
    }
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 2);
    if (threadIdx.x == 0) *counter = epoch + 2;
}

/* dst[i] = src[i]; so many reads are under way at once as a link needs. */
__device__ __forceinline__ void fetch_units(const float *src, float *dst, size_t n) {
    constexpr int U = 4;
    size_t step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (U - 1) * step < n; i += U * step) {
        float4 a[U];
#pragma unroll
        for (int u = 0; u < U; u++) a[u] = tti_load_unit(src, i + u * step);
#pragma unroll
        for (int u = 0; u < U; u++) ((float4 *)dst)[i + u * step] = a[u];
    }
    for (; i < n; i += step) ((float4 *)dst)[i] = tti_load_unit(src, i);
}

/* Barriers before, when all ranks have written their partitions, and after, when no rank reads them
 * any more. */
__global__ void __launch_bounds__(SUM_THREADS)
    peers_fetch_kernel(const __grid_constant__ tti_peers_view v,
                       const __grid_constant__ tti_peers_partitions p) {
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_SUM][blockIdx.x];
    uint32_t epoch = *counter;
    tti_peers_barrier_timed(v, TTI_CHANNEL_SUM, epoch + 1);
    for (int i = 0; i < p.n; i++) {
        int from = p.first + i < p.n ? p.first + i : p.first + i - p.n;
        fetch_units(p.partition[from].from, p.partition[from].to, p.partition[from].n_elems / 4);
    }
    tti_peers_barrier(v, TTI_CHANNEL_SUM, epoch + 2);
    if (threadIdx.x == 0) *counter = epoch + 2;
}

template <class T, class U>
__global__ void convert_kernel(const T *__restrict__ src, U *__restrict__ dst, size_t n) {
    size_t step = (size_t)gridDim.x * blockDim.x * 4;
    for (size_t i = ((size_t)blockIdx.x * blockDim.x + threadIdx.x) * 4; i < n; i += step) {
        float x[4];
        tti_load<T, 4>(src + i, x);
        tti_store<U, 4>(dst + i, x);
    }
}

template <int N, bool R>
__global__ void __launch_bounds__(SUM_THREADS)
    terms_sum_kernel(const __grid_constant__ tti_peers_terms t, float *dst, size_t n_units) {
    sum_units<N, R>(t, 0, t.n, 0, n_units,
                    [&](size_t unit, float4 sum) { ((float4 *)dst)[unit] = sum; });
}

/* Two buffers alternate: a rank that is one barrier ahead writes into the other one, and no rank
 * can be two ahead.  The last barrier ensures that no rank reads the memory of one that has ended.
 */
__global__ void __launch_bounds__(GATHER_THREADS)
    peers_all_gather_kernel(const __grid_constant__ tti_peers_view v, uint32_t *words, size_t n,
                            size_t first, size_t last) {
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_GATHER][blockIdx.x];
    uint32_t epoch = *counter;
    size_t step = (size_t)gridDim.x * TTI_PEERS_SEGMENT;
    for (size_t base = (size_t)blockIdx.x * TTI_PEERS_SEGMENT; base < n; base += step) {
        uint32_t *mine = v.arena[v.rank]->staging[blockIdx.x][epoch & 1];
        for (uint32_t k = threadIdx.x; k < TTI_PEERS_SEGMENT && base + k < n; k += GATHER_THREADS) {
            size_t i = base + k;
            mine[k] = i >= first && i < last ? words[i] : 0;
        }
        tti_peers_barrier_timed(v, TTI_CHANNEL_GATHER, epoch + 1);
        for (uint32_t k = threadIdx.x; k < TTI_PEERS_SEGMENT && base + k < n; k += GATHER_THREADS) {
            uint32_t all = 0;
            for (int r = 0; r < v.n_ranks; r++)
                all |= __ldcg(&v.arena[r]->staging[blockIdx.x][epoch & 1][k]);
            words[base + k] = all;
        }
        epoch++;
    }
    tti_peers_barrier(v, TTI_CHANNEL_GATHER, epoch + 1);
    if (threadIdx.x == 0) *counter = epoch + 1;
}

/* The range that a block joins: elements first .. of the values, and of moments channels first ..
 * with the count before them, so that it is a shorter value of the same form. */
struct joined_run {
    size_t first, n_elems, n_channels, c; /* c: channels of the whole; n_channels: of the run */
};

__device__ __forceinline__ joined_run run_of(const tti_peers_join &j, size_t block, size_t each) {
    size_t c = j.of_moments ? (j.n_elems - 1) / 2 : j.n_elems, first = block * each;
    size_t n = c - first < each ? c - first : each;
    return joined_run{first, j.of_moments ? 1 + 2 * n : n, n, c};
}

/* The index in the whole of element i of a run. */
__device__ __forceinline__ size_t place_of(const joined_run &run, bool of_moments, size_t i) {
    if (!of_moments) return run.first + i;
    if (i == 0) return 0;
    return run.first + (i <= run.n_channels ? i : i - run.n_channels + run.c);
}

/* One barrier: the buffers of staging alternate as in an all-gather, and the next one ends with a
 * barrier. */
__global__ void __launch_bounds__(GATHER_THREADS)
    peers_join_kernel(const __grid_constant__ tti_peers_view v,
                      const __grid_constant__ tti_peers_join j, size_t each) {
    __shared__ float parts[TTI_PEERS_SEGMENT];
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_GATHER][blockIdx.x];
    uint32_t epoch = *counter;
    const joined_run run = run_of(j, blockIdx.x, each);
    const size_t n_mine = j.bounds[v.rank + 1] - j.bounds[v.rank], n_all = j.bounds[v.n_ranks];
    uint32_t *mine = v.arena[v.rank]->staging[blockIdx.x][epoch & 1];
    for (size_t k = threadIdx.x; k < n_mine * run.n_elems; k += GATHER_THREADS)
        mine[k] =
            __float_as_uint(j.in[k / run.n_elems][place_of(run, j.of_moments, k % run.n_elems)]);
    tti_peers_barrier_timed(v, TTI_CHANNEL_GATHER, epoch + 1);
    for (size_t k = threadIdx.x; k < n_all * run.n_elems; k += GATHER_THREADS) {
        int shard = (int)(k / run.n_elems), r = 0;
        while (shard >= j.bounds[r + 1]) r++;
        const uint32_t *theirs = v.arena[r]->staging[blockIdx.x][epoch & 1];
        parts[k] = __uint_as_float(__ldcg(theirs + k - j.bounds[r] * run.n_elems));
    }
    __syncthreads();
    for (size_t i = threadIdx.x; i < run.n_elems; i += GATHER_THREADS) {
        float joined = join_element(parts, n_all, run.n_elems, j.of_moments, i);
        size_t place = place_of(run, j.of_moments, i);
        bool is_own = place > 0 || blockIdx.x == 0; /* the count is with every block */
        for (size_t s = 0; is_own && s < n_mine; s++) j.out[s][place] = joined;
    }
    if (threadIdx.x == 0) *counter = epoch + 1;
}

__global__ void words_keep_kernel(uint32_t *words, size_t n, size_t first, size_t last) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && (i < first || i >= last)) words[i] = 0;
}

__global__ void words_or_kernel(uint32_t *words, const uint32_t *all, size_t n, int n_ranks) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    uint32_t word = 0;
    for (int r = 0; r < n_ranks; r++) word |= all[r * n + i];
    words[i] = word;
}

/* One block: clears sums of other shards and values of other ranks, and adds its own hash and vote.
 */
__global__ void report_sums_kernel(tti_device_step_sums t) {
    if (threadIdx.x == 0) t.report->reported_ns = t.n_ranks > 1 ? tti_now_ns() : 0;
    for (int i = threadIdx.x; i < tti_n_numbers(t); i += blockDim.x) t.sums[i] = tti_numbers(t, i);
}

/* ---- launchers ---- */

static unsigned blocks_for(size_t n, size_t each, unsigned most) {
    size_t n_blocks = (n + each - 1) / each;
    return (unsigned)(n_blocks > most ? most : n_blocks ? n_blocks : 1);
}

/* By the longest chunk of f32, so that all ranks have the same number. */
static unsigned sum_blocks(tti_chunk longest, bool overlapped) {
    unsigned most = longest.n_elems > (4 << 20) ? TTI_PEERS_BLOCKS : TTI_PEERS_BLOCKS / 2;
    return blocks_for(longest.n_elems / 4, SUM_THREADS,
                      overlapped ? (unsigned)OVERLAPPED_BLOCKS : most);
}

template <class T>
static cudaError_t load_16bit_kernels() {
    return tti_load_kernels(peers_sum_16bit_kernel<T, 0>, peers_sum_16bit_kernel<T, 2>,
                            peers_sum_16bit_kernel<T, 4>, peers_sum_16bit_kernel<T, 8>,
                            convert_kernel<float, T>, convert_kernel<T, float>);
}

template <bool R>
static cudaError_t load_tree_kernels() {
    return tti_load_kernels(peers_sum_kernel<0, R>, peers_sum_kernel<2, R>, peers_sum_kernel<4, R>,
                            peers_sum_kernel<8, R>, terms_sum_kernel<0, R>, terms_sum_kernel<2, R>,
                            terms_sum_kernel<4, R>, terms_sum_kernel<8, R>,
                            peers_leaves_kernel<0, R>, peers_leaves_kernel<1, R>,
                            peers_leaves_kernel<2, R>, peers_leaves_kernel<4, R>,
                            peers_leaves_kernel<8, R>);
}

extern "C" cudaError_t tti_launch_peers_load(void) {
    cudaError_t error =
        tti_load_kernels(peers_all_gather_kernel, peers_fetch_kernel, peers_join_kernel,
                         report_sums_kernel, words_keep_kernel, words_or_kernel);
    error = tti_first_error(error, load_tree_kernels<false>(), load_tree_kernels<true>());
    return tti_first_error(error, load_16bit_kernels<tti_bf16>(), load_16bit_kernels<tti_f16>());
}

template <bool R>
static void sum_on(const tti_peers_view &v, size_t begin, size_t end, int n_to, unsigned grid,
                   cudaStream_t stream) {
    switch (v.terms.balanced) {
        case 2:
            peers_sum_kernel<2, R><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end, n_to);
            break;
        case 4:
            peers_sum_kernel<4, R><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end, n_to);
            break;
        case 8:
            peers_sum_kernel<8, R><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end, n_to);
            break;
        default:
            peers_sum_kernel<0, R><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end, n_to);
    }
}

/* The same grid on every rank, whatever the length of its own partition. */
static cudaError_t launch_sum(const tti_peers_view &v, tti_chunk partition, size_t longest,
                              int n_to, bool overlapped, cudaStream_t stream) {
    unsigned grid = sum_blocks(tti_chunk{0, longest}, overlapped);
    size_t begin = partition.first / 4, end = begin + partition.n_elems / 4;
    if (v.terms.rounds)
        sum_on<true>(v, begin, end, n_to, grid, stream);
    else
        sum_on<false>(v, begin, end, n_to, grid, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_peers_sum(const tti_peers_view *view, size_t first, size_t n,
                                            bool overlapped, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    tti_chunk longest = tti_chunk_of(n, 0, view->n_ranks);
    tti_chunk mine = tti_chunk_of(n, view->rank, view->n_ranks);
    mine.first += first;
    return launch_sum(*view, mine, longest.n_elems, view->n_ranks, overlapped, stream);
}

extern "C" cudaError_t tti_launch_peers_sum_partition(const tti_peers_view *view, size_t first,
                                                      size_t last, size_t longest, bool overlapped,
                                                      cudaStream_t stream) {
    if (longest == 0) return cudaSuccess;
    return launch_sum(*view, tti_chunk{first, last - first}, longest, 1, overlapped, stream);
}

template <bool R>
static void leaves_on(const tti_peers_view &v, const tti_peers_leaves &l, unsigned grid,
                      cudaStream_t stream) {
    switch (l.balanced) {
        case 1:
            peers_leaves_kernel<1, R><<<grid, SUM_THREADS, 0, stream>>>(v, l);
            break;
        case 2:
            peers_leaves_kernel<2, R><<<grid, SUM_THREADS, 0, stream>>>(v, l);
            break;
        case 4:
            peers_leaves_kernel<4, R><<<grid, SUM_THREADS, 0, stream>>>(v, l);
            break;
        case 8:
            peers_leaves_kernel<8, R><<<grid, SUM_THREADS, 0, stream>>>(v, l);
            break;
        default:
            peers_leaves_kernel<0, R><<<grid, SUM_THREADS, 0, stream>>>(v, l);
    }
}

extern "C" cudaError_t tti_launch_peers_leaves(const tti_peers_view *view,
                                               const tti_peers_leaves *leaves, size_t n_elems,
                                               bool overlapped, cudaStream_t stream) {
    if (n_elems == 0) return cudaSuccess;
    unsigned grid = sum_blocks(tti_chunk{0, n_elems}, overlapped);
    if (view->terms.rounds)
        leaves_on<true>(*view, *leaves, grid, stream);
    else
        leaves_on<false>(*view, *leaves, grid, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_peers_fetch(const tti_peers_view *view,
                                              const tti_peers_partitions *partitions,
                                              size_t longest, bool overlapped,
                                              cudaStream_t stream) {
    if (longest == 0) return cudaSuccess;
    unsigned grid = sum_blocks(tti_chunk{0, longest}, overlapped);
    peers_fetch_kernel<<<grid, SUM_THREADS, 0, stream>>>(*view, *partitions);
    return cudaGetLastError();
}

template <class T>
static void sum_16bit_on(const tti_peers_view &v, size_t begin, size_t end, unsigned grid,
                         cudaStream_t stream) {
    switch (v.terms.n) {
        case 2:
            peers_sum_16bit_kernel<T, 2><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end);
            break;
        case 4:
            peers_sum_16bit_kernel<T, 4><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end);
            break;
        case 8:
            peers_sum_16bit_kernel<T, 8><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end);
            break;
        default:
            peers_sum_16bit_kernel<T, 0><<<grid, SUM_THREADS, 0, stream>>>(v, begin, end);
    }
}

extern "C" cudaError_t tti_launch_peers_sum_16bit(tutti_dtype dtype, const tti_peers_view *view,
                                                  size_t first, size_t n, bool overlapped,
                                                  cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    size_t n_words = n / 2; /* chunks are in 32-bit words */
    tti_chunk longest = tti_chunk_of(n_words, 0, view->n_ranks);
    tti_chunk mine = tti_chunk_of(n_words, view->rank, view->n_ranks);
    unsigned grid = sum_blocks(longest, overlapped);
    size_t begin = (first / 2 + mine.first) / 4, end = begin + mine.n_elems / 4;
    if (dtype == TUTTI_BF16)
        sum_16bit_on<tti_bf16>(*view, begin, end, grid, stream);
    else
        sum_16bit_on<tti_f16>(*view, begin, end, grid, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_round(tutti_dtype dtype, const float *src, void *dst, size_t n,
                                        cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    unsigned grid = blocks_for(n / 4, 256, 4096);
    if (dtype == TUTTI_BF16)
        convert_kernel<<<grid, 256, 0, stream>>>(src, (tti_bf16 *)dst, n);
    else
        convert_kernel<<<grid, 256, 0, stream>>>(src, (tti_f16 *)dst, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_unround(tutti_dtype dtype, const void *src, float *dst, size_t n,
                                          cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    unsigned grid = blocks_for(n / 4, 256, 4096);
    if (dtype == TUTTI_BF16)
        convert_kernel<<<grid, 256, 0, stream>>>((const tti_bf16 *)src, dst, n);
    else
        convert_kernel<<<grid, 256, 0, stream>>>((const tti_f16 *)src, dst, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_peers_all_gather(const tti_peers_view *view, uint32_t *words,
                                                   size_t n, size_t first, size_t last,
                                                   cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    unsigned grid = blocks_for(n, TTI_PEERS_SEGMENT, TTI_PEERS_BLOCKS);
    peers_all_gather_kernel<<<grid, GATHER_THREADS, 0, stream>>>(*view, words, n, first, last);
    return cudaGetLastError();
}

/* Channels of a block: few, so that many blocks share the way to the others. */
static size_t joined_each(const tti_peers_join *j, int n_ranks) {
    size_t n_all = (size_t)j->bounds[n_ranks], room = TTI_PEERS_SEGMENT / n_all, most = 32;
    size_t each = j->of_moments ? (room - 1) / 2 : room;
    return each < most ? each : most;
}

static size_t joined_blocks(const tti_peers_join *j, size_t each) {
    size_t c = j->of_moments ? (j->n_elems - 1) / 2 : j->n_elems;
    return (c + each - 1) / each;
}

extern "C" bool tti_peers_can_join(const tti_peers_join *j, int n_ranks) {
    for (int r = 0; r < n_ranks; r++)
        if (j->bounds[r + 1] - j->bounds[r] > TTI_PEERS_JOINED) return false;
    if (j->bounds[n_ranks] > TTI_PEERS_SEGMENT / 4 || j->n_elems < 2) return false;
    return joined_blocks(j, joined_each(j, n_ranks)) <= TTI_PEERS_BLOCKS;
}

extern "C" cudaError_t tti_launch_peers_join(const tti_peers_view *view, const tti_peers_join *j,
                                             cudaStream_t stream) {
    size_t each = joined_each(j, view->n_ranks);
    peers_join_kernel<<<(unsigned)joined_blocks(j, each), GATHER_THREADS, 0, stream>>>(*view, *j,
                                                                                       each);
    return cudaGetLastError();
}

template <bool R>
static void terms_on(const tti_peers_terms &t, float *dst, size_t n_units, unsigned grid,
                     cudaStream_t stream) {
    switch (t.balanced) {
        case 2:
            terms_sum_kernel<2, R><<<grid, SUM_THREADS, 0, stream>>>(t, dst, n_units);
            break;
        case 4:
            terms_sum_kernel<4, R><<<grid, SUM_THREADS, 0, stream>>>(t, dst, n_units);
            break;
        case 8:
            terms_sum_kernel<8, R><<<grid, SUM_THREADS, 0, stream>>>(t, dst, n_units);
            break;
        default:
            terms_sum_kernel<0, R><<<grid, SUM_THREADS, 0, stream>>>(t, dst, n_units);
    }
}

extern "C" cudaError_t tti_launch_terms_sum(const tti_peers_terms *terms, float *dst, size_t n,
                                            cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    unsigned grid = blocks_for(n / 4, SUM_THREADS, 1024);
    if (terms->rounds)
        terms_on<true>(*terms, dst, n / 4, grid, stream);
    else
        terms_on<false>(*terms, dst, n / 4, grid, stream);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_words_keep(uint32_t *words, size_t n, size_t first, size_t last,
                                             cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    words_keep_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(words, n, first, last);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_words_or(uint32_t *words, const uint32_t *all, size_t n,
                                           int n_ranks, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    words_or_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(words, all, n, n_ranks);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_report_sums(const tti_device_step_sums *step_sums,
                                              cudaStream_t stream) {
    report_sums_kernel<<<1, 256, 0, stream>>>(*step_sums);
    return cudaGetLastError();
}

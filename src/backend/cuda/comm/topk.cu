/* topk.cu - top-k: the largest elements of a matrix, exactly, as pairs of index and value.
 *
 * A radix select over the magnitude, of 31 bits in three rounds: counts of the elements by their
 * next bits, then the bits of the k-th largest.  Counts are whole numbers, so their atomic
 * additions give the same result in any order.  Then the elements above that magnitude, and the
 * first ones equal to it, get positions by the number of such elements before them: by ascending
 * index, as in exec/worker/compress_math.c.  The matrix is read six times and written twice. */
#include "backend/cuda/comm/compress.cuh"
#include "backend/cuda/comm/topk.h"
#include "backend/cuda/runtime/device.cuh"
#include "backend/cuda/runtime/load.cuh"

namespace {

enum { THREADS = 256, WIDE = 1024, ADD_BLOCKS = 256 };

/* Bits of a round: 30 .. 20, 19 .. 10, 9 .. 0. */
template <int ROUND>
struct bits_of {
    static constexpr int shift = ROUND == 0 ? 20 : ROUND == 1 ? 10 : 0;
    static constexpr int n = ROUND == 0 ? 11 : 10;
    static constexpr uint32_t n_bins = 1u << n;
};

/* As a whole number, ordered by magnitude; NaN is above infinity. */
__device__ __forceinline__ uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

/* The tile of a block. */
struct tile_at {
    int slot;
    uint32_t first, n;
    uint64_t at; /* of its first element, in gradients and residuals */
};

__device__ __forceinline__ tile_at find_tile(const tti_topk_view &v) {
    tti_topk_tile t = v.tiles[blockIdx.x];
    const tti_topk_slot *s = &v.slots[t.slot];
    return {t.slot, t.first, min(s->n - t.first, (uint32_t)TTI_TOPK_TILE), s->grads + t.first};
}

/* How many elements that agree with the bound so far have each value of the next bits.  The first
 * round adds the residual. */
template <int ROUND>
__global__ void __launch_bounds__(THREADS)
    topk_count_kernel(const __grid_constant__ tti_topk_view v) {
    typedef bits_of<ROUND> bits;
    __shared__ uint32_t bins[bits::n_bins];
    tile_at t = find_tile(v);
    uint32_t upper = ROUND > 0 ? v.bounds[t.slot].upper : 0;
    float unit = tti_gradient_unit(*v.args);
    for (uint32_t b = threadIdx.x; b < bits::n_bins; b += THREADS) bins[b] = 0;
    __syncthreads();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < t.n; i += THREADS) {
        float x = v.grads[t.at + i];
        if (ROUND == 0) v.grads[t.at + i] = x += v.residual[t.at + i] * unit;
        uint32_t m = magnitude(x);
        if (ROUND > 0 && m >> (bits::shift + bits::n) != upper) continue;
        atomicAdd(&bins[m >> bits::shift & (bits::n_bins - 1)], 1u);
    }
    __syncthreads();
    uint32_t *all = v.bins + (uint64_t)t.slot * TTI_TOPK_BINS;
    for (uint32_t b = threadIdx.x; b < bits::n_bins; b += THREADS)
        if (bins[b] > 0) atomicAdd(&all[b], bins[b]);
}

/* The next bits of the k-th largest: a block has a slot, a thread some bins from the top. */
template <int ROUND>
__global__ void __launch_bounds__(THREADS)
    topk_bound_kernel(const __grid_constant__ tti_topk_view v) {
    typedef bits_of<ROUND> bits;
    constexpr uint32_t each = bits::n_bins / THREADS;
    __shared__ uint32_t shared[32];
    uint32_t *bins = v.bins + (uint64_t)blockIdx.x * TTI_TOPK_BINS;
    tti_topk_bound was = {0, v.slots[blockIdx.x].k};
    if (ROUND > 0) was = v.bounds[blockIdx.x];
    uint32_t n[each], mine = 0, all, top = bits::n_bins - 1 - threadIdx.x * each;
#pragma unroll
    for (uint32_t i = 0; i < each; i++) mine += n[i] = bins[top - i];
    uint32_t above =
        tti_block_sum_before(mine, shared, &all); /* and all threads have read the bound */
#pragma unroll
    for (uint32_t i = 0; i < each; i++) {
        bins[top - i] = 0;
        bool is_here = above < was.n_left && was.n_left <= above + n[i];
        if (is_here)
            v.bounds[blockIdx.x] = {(ROUND > 0 ? was.upper << bits::n : 0) | (top - i),
                                    was.n_left - above};
        above += n[i];
    }
}

__global__ void __launch_bounds__(THREADS)
    topk_tally_kernel(const __grid_constant__ tti_topk_view v) {
    __shared__ uint32_t shared[32];
    tile_at t = find_tile(v);
    uint32_t bound = v.bounds[t.slot].upper, above = 0, equal = 0, n_above, n_equal;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < t.n; i += THREADS) {
        uint32_t m = magnitude(v.grads[t.at + i]);
        above += m > bound;
        equal += m == bound;
    }
    tti_block_sum_before(above, shared, &n_above);
    tti_block_sum_before(equal, shared, &n_equal);
    if (threadIdx.x == 0) v.tallies[blockIdx.x] = {n_above, n_equal};
}

/* For each tile the count of the previous ones: a block processes a slot. */
__global__ void __launch_bounds__(WIDE) topk_place_kernel(const __grid_constant__ tti_topk_view v) {
    __shared__ uint32_t shared[32];
    int32_t first = v.first_tile[blockIdx.x], last = v.first_tile[blockIdx.x + 1];
    uint32_t above = 0, equal = 0;
    for (int32_t begin = first; begin < last; begin += WIDE) {
        int32_t i = begin + (int32_t)threadIdx.x;
        tti_topk_tally own = {0, 0};
        uint32_t n_above, n_equal;
        if (i < last) own = v.tallies[i];
        uint32_t a = above + tti_block_sum_before(own.above, shared, &n_above);
        uint32_t e = equal + tti_block_sum_before(own.equal, shared, &n_equal);
        if (i < last) v.tallies[i] = {a, e};
        above += n_above;
        equal += n_equal;
    }
}

/* Pairs and residuals; gradients become 0 for the pairs of all. */
__global__ void __launch_bounds__(THREADS)
    topk_write_kernel(const __grid_constant__ tti_topk_view v) {
    __shared__ uint32_t shared[32];
    tile_at t = find_tile(v);
    tti_topk_bound bound = v.bounds[t.slot];
    tti_topk_tally before = v.tallies[blockIdx.x];
    tti_topk_pair *pairs = v.own + v.slots[t.slot].pairs;
    float inv = 1 / tti_gradient_unit(*v.args);
    for (uint32_t begin = 0; begin < t.n; begin += THREADS) {
        uint32_t i = begin + threadIdx.x, sum;
        bool is_there = i < t.n;
        float x = is_there ? v.grads[t.at + i] : 0;
        uint32_t m = magnitude(x), above = is_there && m > bound.upper;
        uint32_t equal = is_there && m == bound.upper;
        uint32_t upto =
            tti_block_sum_before(above | equal << 16, shared, &sum); /* at most THREADS each */
        uint32_t n_above = before.above + (upto & 0xffffu), n_equal = before.equal + (upto >> 16);
        bool is_sent = above || (equal && n_equal < bound.n_left);
        if (is_sent) pairs[n_above + min(n_equal, bound.n_left)] = {t.first + i, x};
        if (is_there) {
            v.residual[t.at + i] = is_sent ? 0 : x * inv;
            v.grads[t.at + i] = 0;
        }
        before.above += sum & 0xffffu;
        before.equal += sum >> 16;
    }
}

/* The pairs of one rank: none of them has the same element. */
__global__ void __launch_bounds__(THREADS)
    topk_add_kernel(const __grid_constant__ tti_topk_view v, int rank) {
    const tti_topk_slot *s = &v.slots[blockIdx.x];
    const tti_topk_pair *from = v.all + rank * v.n_pairs + (s->pairs - v.first_pair);
    for (uint32_t i = blockIdx.y * THREADS + threadIdx.x; i < s->k; i += gridDim.y * THREADS) {
        tti_topk_pair pair = from[i];
        if (pair.index < s->n) v.grads[s->grads + pair.index] += pair.value;
    }
}

/* ---- launchers ---- */

template <int ROUND>
void launch_round(const tti_topk_view *v, cudaStream_t stream) {
    topk_count_kernel<ROUND><<<v->n_tiles, THREADS, 0, stream>>>(*v);
    topk_bound_kernel<ROUND><<<v->n_slots, THREADS, 0, stream>>>(*v);
}

}  // namespace

extern "C" cudaError_t tti_launch_topk_load(void) {
    return tti_load_kernels(topk_count_kernel<0>, topk_count_kernel<1>, topk_count_kernel<2>,
                            topk_bound_kernel<0>, topk_bound_kernel<1>, topk_bound_kernel<2>,
                            topk_tally_kernel, topk_place_kernel, topk_write_kernel,
                            topk_add_kernel);
}

extern "C" cudaError_t tti_launch_topk_choose(const tti_topk_view *v, cudaStream_t stream) {
    if (v->n_tiles == 0) return cudaSuccess;
    launch_round<0>(v, stream);
    launch_round<1>(v, stream);
    launch_round<2>(v, stream);
    topk_tally_kernel<<<v->n_tiles, THREADS, 0, stream>>>(*v);
    topk_place_kernel<<<v->n_slots, WIDE, 0, stream>>>(*v);
    topk_write_kernel<<<v->n_tiles, THREADS, 0, stream>>>(*v);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_topk_add(const tti_topk_view *v, cudaStream_t stream) {
    dim3 grid((unsigned)v->n_slots, ADD_BLOCKS);
    for (int r = 0; v->n_slots > 0 && r < v->n_ranks; r++)
        topk_add_kernel<<<grid, THREADS, 0, stream>>>(*v, r);
    return cudaGetLastError();
}

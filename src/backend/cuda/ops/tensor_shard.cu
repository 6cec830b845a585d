/* tensor_shard.cu - dropout of a tensor shard of a value, and the rows of a table that a device
 * has.
 *
 * Draws are counted by the element's position in the whole sample, as in src/ops/random.c, so that
 * the masks of all devices together are the mask of one. */
#include "backend/cuda/ops/tensor_shard.h"
#include "backend/cuda/runtime/device.cuh"
#include "base/philox.h"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 4096, SAMPLE_BITS = 28 };

struct mask {
    const tti_run *run;
    uint64_t n;               /* threads with work, of G elements each */
    tti_divider runs, in_run; /* of a sample; threads of a run */
    uint64_t n_elems, first, step, key;
    double scale;
    uint32_t limit; /* of the upper 24 bits: keep from here on, the same as unit >= p */
};

/* G elements that follow each other and are of one draw, G 4 or 1. */
template <class T, int G>
__global__ void __launch_bounds__(THREADS) mask_kernel(const T *x, T *y, mask m) {
    typedef typename tti_acc<T>::type A;
    uint64_t key = tti_mix64(m.run->seed, m.key), n_threads = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < m.n; i += n_threads) {
        uint64_t run = tti_divide(i, m.in_run), sample = tti_divide(run, m.runs);
        uint64_t at = (i - run * m.in_run.by) * G;
        uint64_t e = m.first + (run - sample * m.runs.by) * m.step + at; /* in the whole sample */
        uint64_t counter = ((m.run->sample0 + sample) << SAMPLE_BITS) + e / 4;
        tti_philox r = tti_philox_draw(key, m.run->step, counter);
#pragma unroll
        for (int j = 0; j < G; j++) {
            uint64_t own = run * m.n_elems + at + j;
            bool keep = (r.v[G == 4 ? j : e % 4] >> 8) >= m.limit;
            A value = tti_to_acc(x[own]);
            tti_from_acc(y + own, keep ? value * (A)m.scale : value - value); /* NaN stays NaN */
        }
    }
}

__global__ void __launch_bounds__(THREADS)
    own_rows_kernel(const int32_t *x, int32_t *y, size_t n_ids, int64_t first, int64_t n) {
    size_t step = (size_t)gridDim.x * THREADS;
    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < n_ids; i += step) {
        int64_t own = (int64_t)x[i] - first;
        y[i] = own >= 0 && own < n ? (int32_t)own : -1;
    }
}

unsigned blocks_for(uint64_t n) {
    uint64_t blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
}

}  // namespace

extern "C" cudaError_t tti_launch_shard_mask(const tti_shard_mask *shard, const void *x, void *y,
                                             const tti_run *run, cudaStream_t stream) {
    const tti_shard_mask *p = shard;
    mask m = {};
    if (p->n_samples == 0 || p->n_runs == 0 || p->n_elems == 0) return cudaSuccess;
    bool quads = p->n_elems % 4 == 0 && p->first % 4 == 0 && p->step % 4 == 0;
    m.run = run;
    m.runs = tti_divider_of(p->n_runs);
    m.in_run = tti_divider_of(quads ? p->n_elems / 4 : p->n_elems);
    m.n = p->n_samples * p->n_runs * m.in_run.by;
    m.n_elems = p->n_elems, m.first = p->first, m.step = p->step, m.key = p->key;
    m.scale = 1 / (1 - p->p);
    double limit = (double)(float)p->p * 0x1p24;
    m.limit = (uint32_t)limit + ((double)(uint32_t)limit < limit);
    TTI_FLOAT_DISPATCH(p->dtype, {
        if (quads)
            mask_kernel<T, 4><<<blocks_for(m.n), THREADS, 0, stream>>>((const T *)x, (T *)y, m);
        else
            mask_kernel<T, 1><<<blocks_for(m.n), THREADS, 0, stream>>>((const T *)x, (T *)y, m);
    })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_own_rows(const int32_t *x, int32_t *y, size_t n_ids,
                                           int64_t first, int64_t n, cudaStream_t stream) {
    if (n_ids == 0) return cudaSuccess;
    own_rows_kernel<<<blocks_for(n_ids), THREADS, 0, stream>>>(x, y, n_ids, first, n);
    return cudaGetLastError();
}

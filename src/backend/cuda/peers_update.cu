/* peers_update.cu - gradients of several devices added, and parameters updated, in one kernel.
 *
 * For small models, where a step waits for kernels to start more than for bytes.  Every device adds
 * all elements itself: no sum travels, and the pieces keep their terms.  One meeting says that all
 * terms are there and brings the sums of the step along; a last one, that nobody reads them any
 * more.  It is announced before the hash is made and waited for behind it.
 *
 * The order of the additions, and the arithmetic of the update, are those of peers.cu and
 * update.cu, whose parts this is made of. */
#include "backend/cuda/early.cuh"
#include "backend/cuda/peers_terms.cuh"
#include "backend/cuda/peers_update.h"
#include "backend/cuda/update.cuh"

/* A block has a warp more than an update needs: it learns what the others tell while the threads of
 * the update already fetch gradients.  UNITS: of four elements each, that a thread has under way.
 * PARTS: of a block of the flat arrays, at most. */
enum { LEARNERS = 32, THREADS = TTI_UPDATE_THREADS + LEARNERS, UNITS = 4, PARTS = 8 };

/* What all threads of a block know of the step. */
struct learned {
    double told[TTI_PEERS_TOLD];
    tti_hyper hyper;
    tti_step_report report;
};

/* ---- the numbers of the step ---- */

/* What this rank says, for the blocks of this number. */
__device__ __forceinline__ void say(const tti_peers_view &v, const tti_device_told &t,
                                    uint32_t epoch) {
    double *mine = (double *)v.arena[v.rank]->staging[blockIdx.x][epoch & 1];
    for (int i = threadIdx.x; i < tti_n_told(t); i += THREADS) mine[i] = tti_told(t, i);
}

/* Of one warp. */
__device__ __forceinline__ void learn(const tti_peers_view &v, const tti_update_view &u,
                                      const tti_device_told &t, uint32_t epoch, learned &l) {
    int lane = threadIdx.x - TTI_UPDATE_THREADS;
    for (int i = lane; i < tti_n_told(t); i += LEARNERS) {
        unsigned long long all = 0;
        for (int r = 0; r < v.n_ranks; r++)
            all |=
                __ldcg((const unsigned long long *)v.arena[r]->staging[blockIdx.x][epoch & 1] + i);
        l.told[i] = __longlong_as_double((long long)all);
    }
    __syncwarp();
    if (lane == 0) l.hyper = tti_make_hyper(u, l.told, &l.report);
}

/* ---- the elements ---- */

/* A part of a block of the flat arrays. */
struct stretch {
    tti_update_block b;
    int block;
    uint32_t first, step, n_rounds; /* first: of this thread, elements */
};

__device__ __forceinline__ stretch find_stretch(const tti_update_view &u, int item, int n_parts) {
    stretch s;
    uint32_t part = item % n_parts;
    s.block = item / n_parts;
    s.b = u.blocks[s.block];
    s.step = n_parts * TTI_UPDATE_STRIDE;
    s.first = (part * TTI_UPDATE_THREADS + threadIdx.x) * 4;
    s.n_rounds = (s.b.n_elems + s.step * UNITS - 1) / (s.step * UNITS);
    return s;
}

/* N as of sum_units in peers.cu. */
template <int N>
__device__ __forceinline__ void sum_units(const tti_peers_terms &t, const stretch &s, uint32_t i,
                                          tti_four (&f)[UNITS]) {
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        float4 sum[1];
        size_t unit = (s.b.grads + i + k * s.step) / 4;
        if (i + k * s.step >= s.b.n_elems) continue;
        if constexpr (N > 0)
            tti_add_terms<N, 1>(t, 0, unit, 0, sum);
        else
            sum[0] = tti_add_any(t, 0, t.n, unit);
        f[k].g[0] = sum[0].x, f[k].g[1] = sum[0].y;
        f[k].g[2] = sum[0].z, f[k].g[3] = sum[0].w;
    }
}

template <int N_STATES>
__device__ __forceinline__ void load_units(const tti_peers_terms &t, const tti_update_view &u,
                                           const stretch &s, uint32_t i, tti_four (&f)[UNITS]) {
    switch (s.b.kind == TTI_BLOCK_FROZEN ? 1 : t.balanced) {
        case 1:
            break;
        case 2:
            sum_units<2>(t, s, i, f);
            break;
        case 4:
            sum_units<4>(t, s, i, f);
            break;
        case 8:
            sum_units<8>(t, s, i, f);
            break;
        default:
            sum_units<0>(t, s, i, f);
    }
#pragma unroll
    for (int k = 0; k < UNITS; k++)
        if (i + k * s.step < s.b.n_elems) tti_load_four<N_STATES>(u, s.b, i + k * s.step, f[k]);
}

template <int KIND, int N_STATES>
__device__ __forceinline__ void update_units(const tti_update_view &u, const stretch &s,
                                             const tti_hyper &hyper, uint32_t i,
                                             tti_four (&f)[UNITS], const tti_block_hash &shared,
                                             uint32_t (&acc)[4]) {
    tti_hyper h = hyper;
    h.lr *= s.b.lr_factor;
#pragma unroll
    for (int k = 0; k < UNITS; k++) {
        uint32_t at = i + k * s.step;
        if (at >= s.b.n_elems) continue;
        tti_update_four<KIND, N_STATES>(u, s.b, h, at, f[k]);
        tti_hash_four(shared, s.b.n_elems, at, f[k].w, acc);
    }
}

/* ---- the end ---- */

/* The block that is done last tells what came of it: nobody reads the report of the step before any
 * more. */
__device__ __forceinline__ void finish(const tti_update_view &u, const tti_device_told &t,
                                       const learned &l) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(u.n_done, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    for (int i = threadIdx.x; i < tti_n_told(t); i += THREADS) t.sums[i] = l.told[i];
    if (threadIdx.x) return;
    __threadfence();
    tti_step_report r = l.report;
    r.exchange_ns = __ldcg((const unsigned long long *)&u.report->exchange_ns);
    r.params_hash = atomicExch((unsigned long long *)u.total, 0ull);
    *u.report = r;
    *u.n_done = 0;
}

template <int KIND, int N_STATES>
__global__ void __launch_bounds__(THREADS)
    peers_update_kernel(const __grid_constant__ tti_peers_view v,
                        const __grid_constant__ tti_update_view u,
                        const __grid_constant__ tti_device_told t, int n_parts) {
    __shared__ tti_block_hash shared;
    __shared__ learned l;
    const bool computes = threadIdx.x < TTI_UPDATE_THREADS;
    const int n_items = u.n_blocks * n_parts;
    tti_hash_powers(shared);
    tti_let_next_start();
    tti_wait_for_before();
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_SPREAD][blockIdx.x];
    const uint32_t epoch = *counter;
    say(v, t, epoch);
    uint64_t waited = tti_meet_timed(v, TTI_CHANNEL_SPREAD, epoch + 1);
    if (blockIdx.x == 0 && threadIdx.x == 0) u.report->exchange_ns = waited;
    bool knows = false;
    for (int item = blockIdx.x; item < n_items; item += gridDim.x) {
        const stretch s = find_stretch(u, item, n_parts);
        uint32_t acc[4] = {0, 0, 0, 0};
        tti_hash_begin(shared);
        for (uint32_t round = 0; round < s.n_rounds; round++) {
            tti_four f[UNITS];
            uint32_t i = s.first + round * UNITS * s.step;
            if (computes) load_units<N_STATES>(v.terms, u, s, i, f);
            if (!computes && !knows) learn(v, u, t, epoch, l);
            if (!knows) __syncthreads();
            knows = true;
            if (computes && !l.report.bad)
                update_units<KIND, N_STATES>(u, s, l.hyper, i, f, shared, acc);
        }
        __syncthreads();
        if (item + (int)gridDim.x >= n_items && threadIdx.x < v.n_ranks)
            tti_arrive(v, TTI_CHANNEL_SPREAD, epoch + 2);
        tti_hash_lanes(shared, acc);
        bool is_whole = tti_join_parts(u, s.block, n_parts, shared);
        if (is_whole && !l.report.bad && threadIdx.x == 0)
            atomicAdd((unsigned long long *)u.total,
                      (unsigned long long)tti_hash_end(shared, s.b.first, s.b.n_elems));
        __syncthreads();
    }
    finish(u, t, l);
    if (threadIdx.x < v.n_ranks) tti_await(v, TTI_CHANNEL_SPREAD, epoch + 2);
    if (threadIdx.x == 0) *counter = epoch + 2;
}

/* ---- launchers ---- */

typedef void update_kernel(tti_peers_view, tti_update_view, tti_device_told, int);

/* NULL: norms of tensors stand between sum and update. */
static update_kernel *kernel_of(int kind) {
    switch (kind) {
        case TTI_RULE_SGD:
            return peers_update_kernel<TTI_RULE_SGD, 1>;
        case TTI_RULE_ADAM:
            return peers_update_kernel<TTI_RULE_ADAM, 2>;
        case TTI_RULE_ADAMW:
            return peers_update_kernel<TTI_RULE_ADAMW, 2>;
        case TTI_RULE_RMSPROP:
            return peers_update_kernel<TTI_RULE_RMSPROP, 2>;
        case TTI_RULE_ADAGRAD:
            return peers_update_kernel<TTI_RULE_ADAGRAD, 1>;
        case TTI_RULE_LION:
            return peers_update_kernel<TTI_RULE_LION, 1>;
        default:
            return NULL;
    }
}

extern "C" bool tti_peers_can_update(const tti_rule *rule) { return kernel_of(rule->kind) != NULL; }

extern "C" cudaError_t tti_launch_peers_update_load(const tti_rule *rule) {
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, kernel_of(rule->kind));
}

extern "C" cudaError_t tti_launch_peers_update(const tti_peers_view *v, const tti_update_view *u,
                                               const tti_device_told *t, cudaStream_t stream) {
    int n_parts = TTI_PEERS_BLOCKS / u->n_blocks;
    n_parts = n_parts < 1 ? 1 : n_parts > PARTS ? PARTS : n_parts;
    int grid = u->n_blocks * n_parts;
    if (grid > TTI_PEERS_BLOCKS) grid = TTI_PEERS_BLOCKS;
    return tti_launch_early(kernel_of(u->rule.kind), dim3((unsigned)grid), THREADS, 0, 1, stream,
                            *v, *u, *t, n_parts);
}

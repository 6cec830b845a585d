/* peers_update.cu - adds gradients of several devices and updates parameters in one kernel.
 *
 * For small models, where kernel launches limit a step more than bytes do.  Every device adds all
 * elements itself: no sum is sent, and the partial sums keep their terms.  One barrier says that
 * all terms are complete; a last one, that no device reads them any more.  It is announced before
 * the hash is computed and awaited after it.  Where partial sums are rounded, each block of threads
 * first rounds what the blocks of its number will read on all devices.
 *
 * The order of the additions, and the arithmetic of the update, are those of peers.cu and
 * update.cu, from which this is made. */
#include "backend/cuda/comm/peers_terms.cuh"
#include "backend/cuda/optim/peers_update.h"
#include "backend/cuda/optim/update.cuh"
#include "backend/cuda/runtime/early.cuh"
#include "backend/cuda/runtime/load.cuh"

enum { THREADS = 1024, LEARNER = 1 /* the warp that receives the other ranks' numbers */ };

/* The numbers of the step that all threads of a block share. */
struct learned {
    double numbers[TTI_PEERS_NUMBERS];
    tti_hyper hyper;
    tti_step_report report;
    unsigned long long hash;
};

/* ---- the numbers of the step ---- */

/* Each half of a number is followed by the epoch, in one word of 8 bytes, so that a reader that
 * sees the epoch has the half: nothing else has to be ordered, and one transfer over the link
 * suffices. */
__device__ __forceinline__ void send_rank(uint32_t *there, double number, uint32_t epoch) {
    unsigned long long bits = (unsigned long long)__double_as_longlong(number);
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(there),
                 "r"((uint32_t)bits), "r"(epoch), "r"((uint32_t)(bits >> 32)), "r"(epoch)
                 : "memory");
}

__device__ __forceinline__ double hear(const tti_peers_view &v, const uint32_t *here,
                                       uint32_t epoch) {
    uint32_t low, high, first, second;
    uint64_t start = tti_now_ns();
    for (uint32_t n = 1;; n++) {
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(low), "=r"(first), "=r"(high), "=r"(second)
                     : "l"(here)
                     : "memory");
        if (first == epoch && second == epoch) break;
        if (n % TTI_PEERS_PATIENCE == 0 && tti_is_hopeless(v, start)) break;
    }
    return __longlong_as_double((long long)((uint64_t)high << 32 | low));
}

/* How long the first block has waited for the others, as tti_peers_barrier_timed has it. */
__device__ __forceinline__ void note_wait(const tti_peers_view &v, const tti_update_view &u,
                                          uint64_t start) {
    uint64_t waited = tti_now_ns() - start;
    atomicAdd((unsigned long long *)&v.arena[v.rank]->waited_ns[TTI_CHANNEL_GATHER],
              (unsigned long long)waited);
    u.report->waited_ns = waited;
}

/* By one warp. */
__device__ __forceinline__ void learn(const tti_peers_view &v, const tti_update_view &u,
                                      const tti_device_step_sums &t, uint32_t epoch, learned &l) {
    int lane = threadIdx.x % 32, n = tti_n_numbers(t);
    for (int i = lane; i < n; i += 32) {
        if (!tti_reports_bad(t, i)) continue;
        double number = tti_numbers(t, i);
        for (int r = 0; r < v.n_ranks; r++)
            send_rank(v.arena[r]->numbers[blockIdx.x][i], number, epoch);
    }
    for (int i = lane; i < n; i += 32)
        l.numbers[i] = hear(v, v.arena[v.rank]->numbers[blockIdx.x][i], epoch);
    __syncwarp();
    if (lane == 0) l.hyper = tti_make_hyper(u, l.numbers, &l.report);
}

/* ---- the elements ---- */

/* Four elements of a term: float4; float2: of bf16, two in each float. */
__device__ __forceinline__ float4 plus(float4 a, float4 b) { return tti_add<false>(a, b); }

__device__ __forceinline__ float2 plus(float2 a, float2 b) {
    return make_float2(tti_add_pair(a.x, b.x), tti_add_pair(a.y, b.y));
}

__device__ __forceinline__ void to_floats(float4 sum, float (&out)[4]) {
    out[0] = sum.x, out[1] = sum.y, out[2] = sum.z, out[3] = sum.w;
}

__device__ __forceinline__ void to_floats(float2 sum, float (&out)[4]) {
    uint32_t a = __float_as_uint(sum.x), b = __float_as_uint(sum.y);
    out[0] = __uint_as_float(a << 16), out[1] = __uint_as_float(a & 0xFFFF0000u);
    out[2] = __uint_as_float(b << 16), out[3] = __uint_as_float(b & 0xFFFF0000u);
}

/* Bypasses this multiprocessor's cache, as tti_load_unit does. */
template <class V>
__device__ __forceinline__ V load_four(const float *p, size_t i) {
    return __ldcg((const V *)p + i);
}

template <class V, int N>
__device__ __forceinline__ V sum_of(const tti_peers_terms &t, size_t i) {
    V a[N];
#pragma unroll
    for (int k = 0; k < N; k++) a[k] = load_four<V>(t.data[k], i);
#pragma unroll
    for (int s = 1; s < N; s *= 2)
#pragma unroll
        for (int k = 0; k + s < N; k += 2 * s) a[k] = plus(a[k], a[k + s]);
    return a[0];
}

/* Any list of terms, as a stack machine. */
template <class V>
__device__ __noinline__ V sum_any(const tti_peers_terms &t, size_t i) {
    V stack[TTI_PEERS_STACK];
    int n = 0;
    for (int k = 0; k < t.n; k++) {
        stack[n++] = load_four<V>(t.data[k], i);
        for (int a = 0; a < t.n_adds[k]; a++, n--) stack[n - 2] = plus(stack[n - 2], stack[n - 1]);
    }
    return stack[0];
}

template <class V>
__device__ __forceinline__ V sum_terms(const tti_peers_terms &t, size_t i) {
    if (t.balanced == 2) return sum_of<V, 2>(t, i);
    if (t.balanced == 4) return sum_of<V, 4>(t, i);
    if (t.balanced == 8) return sum_of<V, 8>(t, i);
    return sum_any<V>(t, i);
}

/* This rank's partial sums of the elements that this block of threads updates, to bf16. */
__device__ __forceinline__ void round_partials(const tti_update_view &u,
                                               const tti_peers_rounding &r) {
    for (int next = blockIdx.x; next < u.n_items; next += gridDim.x) {
        const tti_update_item item = u.items[next];
        const tti_update_block &b = u.blocks[item.block];
        if (b.kind == TTI_BLOCK_FROZEN) continue;
        for (int k = 0; k < r.n; k++)
            for (uint32_t i = item.first + threadIdx.x * 4; i < item.last; i += THREADS * 4) {
                float x[4];
                tti_load<float, 4>(r.from[k] + b.grads + i, x);
                tti_store<tti_bf16, 4>((tti_bf16 *)r.to[k] + b.grads + i, x);
            }
    }
    __syncthreads();
}

/* Four elements at i of a block. */
template <int KIND, int N_STATES, class V>
__device__ __forceinline__ void update_at(const tti_peers_terms &t, const tti_update_view &u,
                                          const tti_update_block &b, const learned &l, uint32_t i,
                                          tti_four &f) {
    tti_hyper h = l.hyper;
    tti_load_four<N_STATES>(u, b, i, f); /* which comes while the terms of others do */
    to_floats(b.kind == TTI_BLOCK_FROZEN ? V{} : sum_terms<V>(t, (b.grads + i) / 4), f.g);
    h.lr *= b.lr_factor;
    tti_update_four<KIND, N_STATES>(u, b, h, i, f);
}

/* ---- the end ---- */

/* For all parameters, by one block of threads; the lanes are 0 again. */
__device__ __forceinline__ void make_hash(const tti_update_view &u, learned &l) {
    if (threadIdx.x == 0) l.hash = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < u.n_blocks; i += THREADS) {
        uint32_t *lanes = u.hash_lanes + (size_t)i * TTI_HASH_LANES;
        uint64_t hash = tti_hash_of_lanes([&](int k) { return __ldcg(lanes + k); },
                                          u.blocks[i].hash_at, u.blocks[i].n_elems);
        atomicAdd(&l.hash, (unsigned long long)(u.blocks[i].hash_weight * hash));
        for (int k = 0; k < TTI_HASH_LANES; k += 4) *(uint4 *)(lanes + k) = uint4{0, 0, 0, 0};
    }
    __syncthreads();
}

/* The block of threads that finishes last writes the report: the step's report has no more readers.
 */
__device__ __forceinline__ void finish(const tti_update_view &u, const tti_device_step_sums &t,
                                       learned &l) {
    __shared__ bool is_last;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(u.n_done, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!is_last) return;
    if (!l.report.bad) make_hash(u, l);
    for (int i = threadIdx.x; i < tti_n_numbers(t); i += THREADS) t.sums[i] = l.numbers[i];
    if (threadIdx.x) return;
    tti_step_report r = l.report;
    r.waited_ns = __ldcg((const unsigned long long *)&u.report->waited_ns);
    r.params_hash = r.bad ? 0 : l.hash;
    *u.report = r;
    *u.n_done = 0;
}

template <int KIND, int N_STATES, class V>
__global__ void __launch_bounds__(THREADS)
    peers_update_kernel(const __grid_constant__ tti_peers_view v,
                        const __grid_constant__ tti_update_view u,
                        const __grid_constant__ tti_device_step_sums t,
                        const __grid_constant__ tti_peers_rounding rounding) {
    __shared__ tti_block_hash shared;
    __shared__ learned l;
    tti_update_item item = u.items[blockIdx.x];
    tti_update_block b = u.blocks[item.block];
    tti_hash_powers(shared);
    tti_let_next_start();
    tti_wait_for_before();
    uint32_t *counter = &v.arena[v.rank]->epochs[TTI_CHANNEL_GATHER][blockIdx.x];
    const uint32_t now = *counter + 1;
    const bool counts = blockIdx.x == 0 && threadIdx.x == 0;
    if (rounding.n > 0) round_partials(u, rounding);
    const uint64_t start = counts ? tti_now_ns() : 0;
    if (threadIdx.x < v.n_ranks) {
        tti_arrive(v, TTI_CHANNEL_GATHER, now);
        tti_await(v, TTI_CHANNEL_GATHER, now);
    }
    if (threadIdx.x / 32 == LEARNER) learn(v, u, t, now, l);
    __syncthreads();
    if (counts) note_wait(v, u, start);
    for (int next = blockIdx.x + gridDim.x;; next += gridDim.x) {
        uint32_t acc[4] = {0, 0, 0, 0};
        tti_hash_begin(shared);
        for (uint32_t i = item.first + threadIdx.x * 4; i < item.last && !l.report.bad;
             i += THREADS * 4) {
            tti_four f;
            update_at<KIND, N_STATES, V>(v.terms, u, b, l, i, f);
            tti_hash_four(shared, b.n_elems, i, f.w, acc);
        }
        __syncthreads();
        if (next >= u.n_items && threadIdx.x < v.n_ranks)
            tti_arrive(v, TTI_CHANNEL_GATHER, now + 1);
        tti_hash_lanes(shared, acc);
        if (threadIdx.x < TTI_HASH_LANES)
            atomicAdd(u.hash_lanes + (size_t)item.block * TTI_HASH_LANES + threadIdx.x,
                      shared.lane[threadIdx.x]);
        if (next >= u.n_items) break;
        item = u.items[next];
        b = u.blocks[item.block];
        __syncthreads();
    }
    finish(u, t, l);
    if (threadIdx.x < v.n_ranks) tti_await(v, TTI_CHANNEL_GATHER, now + 1);
    if (threadIdx.x == 0) *counter = now + 1;
}

/* ---- launchers ---- */

typedef void update_kernel(tti_peers_view, tti_update_view, tti_device_step_sums,
                           tti_peers_rounding);

/* NULL: norms of tensors stand between sum and update. */
template <class V>
static update_kernel *kernel_of(int kind) {
    switch (kind) {
        case TTI_RULE_SGD:
            return peers_update_kernel<TTI_RULE_SGD, 1, V>;
        case TTI_RULE_ADAM:
            return peers_update_kernel<TTI_RULE_ADAM, 2, V>;
        case TTI_RULE_ADAMW:
            return peers_update_kernel<TTI_RULE_ADAMW, 2, V>;
        case TTI_RULE_RMSPROP:
            return peers_update_kernel<TTI_RULE_RMSPROP, 2, V>;
        case TTI_RULE_ADAGRAD:
            return peers_update_kernel<TTI_RULE_ADAGRAD, 1, V>;
        case TTI_RULE_LION:
            return peers_update_kernel<TTI_RULE_LION, 1, V>;
        default:
            return NULL;
    }
}

static update_kernel *kernel_of_terms(int kind, bool rounds) {
    return rounds ? kernel_of<float2>(kind) : kernel_of<float4>(kind);
}

extern "C" bool tti_peers_can_update(const tti_rule *rule) {
    return kernel_of<float4>(rule->kind) != NULL;
}

extern "C" cudaError_t tti_launch_peers_update_load(const tti_rule *rule, bool rounds) {
    return tti_load_kernel(kernel_of_terms(rule->kind, rounds));
}

extern "C" cudaError_t tti_launch_peers_update(const tti_peers_view *v, const tti_update_view *u,
                                               const tti_device_step_sums *t,
                                               const tti_peers_rounding *rounding,
                                               cudaStream_t stream) {
    int grid = u->n_items < TTI_PEERS_BLOCKS ? u->n_items : TTI_PEERS_BLOCKS;
    return tti_launch_early(kernel_of_terms(u->rule.kind, rounding->n > 0), dim3((unsigned)grid),
                            THREADS, 0, 1, stream, *v, *u, *t, *rounding);
}

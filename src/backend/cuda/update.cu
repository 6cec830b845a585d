/* update.cu - optimizer, clipping and parameter hash over all parameters at once.
 *
 * One block of threads for each block of the flat arrays (16 Ki elements), so a launch covers every
 * tensor of the model and each parameter is read and written once.  Numbers of the step are made
 * on the device, so nothing waits for the host.  Sums run in a fixed order; the hash is a sum of
 * integers, for which any order is the same. */
#include "backend/cuda/device.cuh"
#include "backend/cuda/early.cuh"
#include "backend/cuda/optim.cuh"
#include "base/philox.h"

/* FEW_BLOCKS: up to so many would leave multiprocessors idle, and are split into PARTS. */
enum {
    THREADS = 256,
    STRIDE = THREADS * 4,
    FEW_BLOCKS = 256,
    PARTS = 8,
    HASH_LANES = TTI_HASH_LANES,
    MAX_CHUNKS = 256
};

/* ---- numbers of the step ---- */

__global__ void hyper_kernel(tti_update_view u) {
    double count = 0, loss = 0;
    tti_let_next_start();
    tti_wait_for_before();
    for (int s = 0; s < u.n_shards; s++) {
        loss += u.sums[3 * s] - u.sums[3 * s]; /* 0, or NaN where it is not finite */
        count += u.sums[3 * s + 1];
    }
    const tti_step_args a = *u.args;
    tti_hyper h;
    h.lr = a.lr;
    h.inv_count = (float)((count > 0 ? 1.0 / count : 0.0) / (double)a.loss_scale);
    h.clip = 1;
    h.step = (float)(a.step + 1);
    h.bias1 = a.correction1, h.bias2 = a.correction2;
    h.inv_rows = a.inv_rows;
    h.unused = 0;
    *u.hyper = h;
    tti_step_report r;
    r.grad_norm = 0;
    r.params_hash = 0;
    r.bad = (a.keep_bad ? u.report->bad : 0) | (loss == 0 ? 0 : TTI_BAD_LOSS);
    r.reserved = 0;
    *u.report = r;
}

__global__ void prepare_kernel(tti_update_view u) {
    const tti_update_block b = u.blocks[blockIdx.x];
    if (b.kind == TTI_BLOCK_BUFFER || !b.is_own) return;
    float count = 1.0f / u.hyper->inv_count;
    float l1 = b.takes_l1 ? u.l1 * count : 0.0f, most = u.clip_value * count;
    for (uint32_t i = threadIdx.x; i < b.n_elems; i += THREADS) {
        float w = u.params[b.params + i], g = u.grads[b.grads + i];
        g += w > 0 ? l1 : w < 0 ? -l1 : 0.0f;
        if (most > 0) g = g > most ? most : g < -most ? -most : g;
        u.grads[b.grads + i] = g;
    }
}

/* ---- norms ---- */

__device__ __forceinline__ double block_squares(const float *x, uint32_t n, double *shared) {
    double sum = 0;
    uint32_t i = threadIdx.x * 4;
    for (; i + 4 <= n; i += STRIDE) {
        float v[4];
        tti_load<float, 4>(x + i, v);
#pragma unroll
        for (int k = 0; k < 4; k++) sum += (double)v[k] * (double)v[k];
    }
    for (uint32_t k = i; k < n && k < i + 4; k++) sum += (double)x[k] * (double)x[k];
    return tti_block_sum(sum, shared);
}

__global__ void __launch_bounds__(THREADS) squares_kernel(tti_update_view u) {
    __shared__ double shared[32];
    int block = u.n_blocks - 1 - (int)blockIdx.x; /* the last gradients are in the cache */
    const tti_update_block b = u.blocks[block];
    bool counts = b.kind == TTI_BLOCK_TRAINED && b.is_own;
    double sum = counts ? block_squares(u.grads + b.grads, b.n_elems, shared) : 0;
    if (threadIdx.x == 0) u.partials[block] = sum;
}

__global__ void __launch_bounds__(1024) clip_kernel(tti_update_view u) {
    __shared__ double shared[32];
    double sum = 0;
    for (int i = threadIdx.x; i < u.n_blocks; i += 1024) sum += u.partials[i];
    sum = tti_block_sum(sum, shared);
    if (threadIdx.x) return;
    double norm = sqrt(sum) * (double)u.hyper->inv_count;
    u.report->grad_norm = norm;
    if (!isfinite(norm)) u.report->bad |= TTI_BAD_GRADIENT;
    if (u.clip_norm > 0 && norm > u.clip_norm) u.hyper->clip = (float)(u.clip_norm / (norm + 1e-6));
}

/* Squares of a block of w, and of the scaled gradient (lars) or the direction (lamb). */
__global__ void __launch_bounds__(THREADS) tensor_squares_kernel(tti_update_view u) {
    __shared__ double shared[32];
    const tti_update_block b = u.blocks[blockIdx.x];
    const tti_hyper h = *u.hyper;
    double weight = 0, step = 0;
    bool counts = b.kind == TTI_BLOCK_TRAINED && b.is_own;
    for (uint32_t i = threadIdx.x; counts && i < b.n_elems; i += THREADS) {
        size_t state = b.state + i;
        tti_element e = {u.params[b.params + i], u.states[0][state], 0, u.grads[b.grads + i], 0};
        weight += (double)e.w * (double)e.w;
        e.direction = e.g * (h.inv_count * h.clip);
        if (u.rule.kind == TTI_RULE_LAMB) {
            e.s1 = u.states[1][state];
            tti_rule_lamb(u.rule, h, b.decay, NULL, e);
        }
        step += (double)e.direction * (double)e.direction;
    }
    weight = tti_block_sum(weight, shared);
    step = tti_block_sum(step, shared);
    if (threadIdx.x) return;
    u.partials[2 * blockIdx.x] = weight;
    u.partials[2 * blockIdx.x + 1] = step;
}

/* One warp for each slot; its blocks are neighbours. */
__global__ void slot_norms_kernel(tti_update_view u) {
    int slot = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (slot >= u.n_slots) return;
    double weight = 0, step = 0;
    for (int i = u.slot_first[slot] + lane; i < u.slot_first[slot + 1]; i += 32) {
        weight += u.partials[2 * i];
        step += u.partials[2 * i + 1];
    }
    weight = tti_warp_sum(weight);
    step = tti_warp_sum(step);
    if (lane) return;
    u.norms[2 * slot] = (float)sqrt(weight);
    u.norms[2 * slot + 1] = (float)sqrt(step);
}

/* ---- the hash of a block: backend.h says what it is of, cpu/isa.c is the twin ---- */

typedef struct block_hash {
    uint32_t lane[HASH_LANES];  /* Horner's rule in 64 lanes */
    uint32_t power[MAX_CHUNKS]; /* of its factor */
} block_hash;

__device__ __forceinline__ void hash_begin(block_hash &h) {
    uint32_t factor = 0x9E3779B1u, power = 1;
    for (uint32_t k = threadIdx.x; k; k >>= 1, factor *= factor)
        if (k & 1) power *= factor;
    h.power[threadIdx.x] = power;
    if (threadIdx.x < HASH_LANES) h.lane[threadIdx.x] = 0;
    __syncthreads();
}

/* Four neighbours at element i of n; the thread's lanes are the same in every round. */
__device__ __forceinline__ void hash_four(const block_hash &h, uint32_t n, uint32_t i,
                                          const float (&w)[4], uint32_t (&acc)[4]) {
    uint32_t n_chunks = (n + HASH_LANES - 1) / HASH_LANES;
    uint32_t power = h.power[n_chunks - 1 - i / HASH_LANES];
#pragma unroll
    for (int k = 0; k < 4; k++) acc[k] += i + k < n ? __float_as_uint(w[k]) * power : 0u;
}

/* The threads' lanes together; every thread must call it. */
__device__ __forceinline__ void hash_lanes(block_hash &h, const uint32_t (&acc)[4]) {
#pragma unroll
    for (int k = 0; k < 4; k++) atomicAdd(&h.lane[threadIdx.x % 16 * 4 + k], acc[k]);
    __syncthreads();
}

/* Of one thread, from the lanes of all. */
__device__ __forceinline__ uint64_t hash_end(const block_hash &h, uint64_t first, uint32_t n) {
    uint64_t hash = tti_mix64(first, n);
    for (int k = 0; k < 16; k += 2) {
        uint32_t pair[2];
        for (int j = 0; j < 2; j++) {
            pair[j] = h.lane[k + j];
            for (int r = 1; r < 4; r++) pair[j] = pair[j] * 0x85EBCA6Bu + h.lane[16 * r + k + j];
        }
        hash = tti_mix64(hash ^ ((uint64_t)pair[0] << 32 | pair[1]), (uint64_t)k);
    }
    return hash;
}

/* Adds the lanes of this part to those of the others: sums of integers, for which any order is the
 * same.  True, and the lanes of all parts in h, for the one that comes last. */
__device__ __forceinline__ bool join_parts(const tti_update_view &u, int block, int n_parts,
                                           block_hash &h) {
    __shared__ bool is_last;
    uint32_t *lanes = u.hash_lanes + (size_t)block * HASH_LANES;
    if (n_parts == 1) return true;
    if (threadIdx.x < HASH_LANES) atomicAdd(&lanes[threadIdx.x], h.lane[threadIdx.x]);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(&u.arrived[block], 1u) == (uint32_t)n_parts - 1;
    __syncthreads();
    if (!is_last) return false;
    __threadfence();
    if (threadIdx.x < HASH_LANES) h.lane[threadIdx.x] = atomicExch(&lanes[threadIdx.x], 0u);
    if (threadIdx.x == 0) atomicExch(&u.arrived[block], 0u);
    __syncthreads();
    return true;
}

/* ---- the update ---- */

__device__ __forceinline__ void average_four(const tti_update_view &u, bool buffer, size_t at,
                                             const float (&w)[4]) {
    float decay = buffer ? 0.0f : u.ema_decay, rest = buffer ? 1.0f : u.ema_rest, a[4];
    tti_load<float, 4>(u.ema + at, a);
#pragma unroll
    for (int k = 0; k < 4; k++) a[k] = decay * a[k] + rest * w[k];
    tti_store<float, 4>(u.ema + at, a);
}

/* As the cast of a step rounds. */
__device__ __forceinline__ void narrow_four(const tti_update_view &u, size_t at,
                                            const float (&w)[4]) {
    if (u.low_dtype == TUTTI_BF16)
        tti_store<tti_bf16, 4>((tti_bf16 *)u.low + at, w);
    else
        tti_store<tti_f16, 4>((tti_f16 *)u.low + at, w);
}

template <int KIND, int N_STATES>
__device__ __forceinline__ void train_four(const tti_update_view &u, const tti_update_block &b,
                                           const tti_hyper &h, uint32_t i, float (&w)[4]) {
    size_t at = b.params + i, state = b.state + i;
    float g[4], s[2][4] = {};
    tti_load<float, 4>(u.grads + b.grads + i, g);
#pragma unroll
    for (int j = 0; j < N_STATES; j++) tti_load<float, 4>(u.states[j] + state, s[j]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        tti_element e = {w[k], s[0][k], s[1][k], g[k], 0};
        tti_rule_step<KIND>(u.rule, h, b.decay, u.norms + 2 * b.slot, e);
        w[k] = e.w, s[0][k] = e.s0, s[1][k] = e.s1;
    }
    tti_store<float, 4>(u.params + at, w);
#pragma unroll
    for (int j = 0; j < N_STATES; j++) tti_store<float, 4>(u.states[j] + state, s[j]);
}

/* Slots are padded to 16 elements, so four at once may run over the end of a block's own.  The
 * parts of a block are neighbours. */
template <int KIND, int N_STATES>
__global__ void __launch_bounds__(THREADS) update_kernel(tti_update_view u, int n_parts) {
    __shared__ block_hash shared;
    int block = blockIdx.x / n_parts, part = blockIdx.x % n_parts;
    const tti_update_block b = u.blocks[block];
    hash_begin(shared);
    tti_let_next_start();
    tti_wait_for_before();
    tti_hyper h = *u.hyper;
    if (!b.is_own || u.report->bad) return;
    h.lr *= b.lr_factor;
    uint32_t acc[4] = {0, 0, 0, 0};
#pragma unroll 2
    for (uint32_t i = (part * THREADS + threadIdx.x) * 4; i < b.n_elems; i += n_parts * STRIDE) {
        size_t at = b.params + i;
        float w[4];
        tti_load<float, 4>(u.params + at, w);
        if (b.kind == TTI_BLOCK_TRAINED) {
            train_four<KIND, N_STATES>(u, b, h, i, w);
        } else if (b.kind == TTI_BLOCK_BUFFER) {
            float g[4];
            tti_load<float, 4>(u.grads + b.grads + i, g);
#pragma unroll
            for (int k = 0; k < 4; k++) w[k] = (1 - b.decay) * w[k] + b.decay * h.inv_rows * g[k];
            tti_store<float, 4>(u.params + at, w);
        }
        if (u.ema) average_four(u, b.kind == TTI_BLOCK_BUFFER, b.state + i, w);
        if (b.is_low) narrow_four(u, b.low + i, w);
        hash_four(shared, b.n_elems, i, w, acc);
    }
    hash_lanes(shared, acc);
    if (!join_parts(u, block, n_parts, shared) || threadIdx.x) return;
    atomicAdd((unsigned long long *)&u.report->params_hash,
              (unsigned long long)hash_end(shared, b.first, b.n_elems));
}

__global__ void __launch_bounds__(THREADS)
    hash_kernel(tti_update_view u, uint64_t *total, int which) {
    __shared__ block_hash shared;
    const tti_update_block b = u.blocks[blockIdx.x];
    if (!b.is_here || (which == TTI_HASH_OTHERS && b.is_own)) return;
    if (which != TTI_HASH_ALL && u.report->bad) return;
    hash_begin(shared);
    uint32_t acc[4] = {0, 0, 0, 0};
    for (uint32_t i = threadIdx.x * 4; i < b.n_elems; i += STRIDE) {
        float w[4];
        tti_load<float, 4>(u.params + b.params + i, w);
        hash_four(shared, b.n_elems, i, w, acc);
    }
    hash_lanes(shared, acc);
    if (threadIdx.x) return;
    atomicAdd((unsigned long long *)total,
              (unsigned long long)hash_end(shared, b.first, b.n_elems));
}

__global__ void __launch_bounds__(THREADS) narrow_kernel(tti_update_view u) {
    const tti_update_block b = u.blocks[blockIdx.x];
    for (uint32_t i = threadIdx.x * 4; b.is_low && i < b.n_elems; i += STRIDE) {
        float w[4];
        tti_load<float, 4>(u.params + b.params + i, w);
        narrow_four(u, b.low + i, w);
    }
}

/* ---- single tensors ---- */

template <int KIND>
__global__ void tensor_kernel(tti_update_tensor t) {
    const tti_hyper h = *t.hyper;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < t.n_elems;
         i += (size_t)gridDim.x * blockDim.x) {
        tti_element e = {t.w[i], t.states[0][i], t.states[1] ? t.states[1][i] : 0.0f, t.g[i], 0};
        if (t.direction) {
            tti_rule_lamb(t.rule, h, t.decay, NULL, e);
            t.direction[i] = e.direction;
            continue;
        }
        tti_rule_step<KIND>(t.rule, h, t.decay, t.norms, e);
        t.w[i] = e.w;
        t.states[0][i] = e.s0;
        if (t.states[1]) t.states[1][i] = e.s1;
    }
}

__global__ void buffer_kernel(float *w, const float *g, const tti_hyper *hyper, float momentum,
                              size_t n) {
    float inv_rows = hyper->inv_rows;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        w[i] = (1 - momentum) * w[i] + momentum * inv_rows * g[i];
}

__global__ void average_kernel(float *a, const float *w, float decay, float rest, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x)
        a[i] = decay * a[i] + rest * w[i];
}

/* ---- launchers ---- */

/* Runs the statement with KIND and N_STATES as constants. */
#define FOR_RULE(kind, ...)                         \
    switch (kind) {                                 \
        RULE_CASE(TTI_RULE_SGD, 1, __VA_ARGS__)     \
        RULE_CASE(TTI_RULE_ADAM, 2, __VA_ARGS__)    \
        RULE_CASE(TTI_RULE_ADAMW, 2, __VA_ARGS__)   \
        RULE_CASE(TTI_RULE_RMSPROP, 2, __VA_ARGS__) \
        RULE_CASE(TTI_RULE_ADAGRAD, 1, __VA_ARGS__) \
        RULE_CASE(TTI_RULE_LION, 1, __VA_ARGS__)    \
        RULE_CASE(TTI_RULE_LARS, 1, __VA_ARGS__)    \
        RULE_CASE(TTI_RULE_LAMB, 2, __VA_ARGS__)    \
        default:                                    \
            return cudaErrorInvalidValue;           \
    }
#define RULE_CASE(kind, states, ...)             \
    case kind: {                                 \
        enum { KIND = kind, N_STATES = states }; \
        __VA_ARGS__;                             \
        break;                                   \
    }

extern "C" cudaError_t tti_launch_update_hyper(const tti_update_view *u, cudaStream_t stream) {
    return tti_launch_early(hyper_kernel, dim3(1), 1, 0, 1, stream, *u);
}

extern "C" cudaError_t tti_launch_update_prepare(const tti_update_view *u, cudaStream_t stream) {
    if (u->n_blocks) prepare_kernel<<<u->n_blocks, THREADS, 0, stream>>>(*u);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_squares(const tti_update_view *u, cudaStream_t stream) {
    if (u->n_blocks) squares_kernel<<<u->n_blocks, THREADS, 0, stream>>>(*u);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_clip(const tti_update_view *u, cudaStream_t stream) {
    clip_kernel<<<1, 1024, 0, stream>>>(*u);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_tensor_squares(const tti_update_view *u,
                                                        cudaStream_t stream) {
    if (u->n_blocks) tensor_squares_kernel<<<u->n_blocks, THREADS, 0, stream>>>(*u);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_norms(const tti_update_view *u, cudaStream_t stream) {
    if (u->n_blocks == 0) return cudaSuccess;
    slot_norms_kernel<<<(u->n_slots + 7) / 8, 256, 0, stream>>>(*u);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_step(const tti_update_view *u, cudaStream_t stream) {
    if (u->n_blocks == 0) return cudaSuccess;
    unsigned n_parts = u->n_blocks <= FEW_BLOCKS ? PARTS : 1;
    FOR_RULE(u->rule.kind,
             return tti_launch_early(update_kernel<KIND, N_STATES>, dim3(u->n_blocks * n_parts),
                                     THREADS, 0, 1, stream, *u, (int)n_parts));
}

extern "C" cudaError_t tti_launch_update_hash(const tti_update_view *u, uint64_t *hash,
                                              tti_hash_of which, cudaStream_t stream) {
    if (u->n_blocks) hash_kernel<<<u->n_blocks, THREADS, 0, stream>>>(*u, hash, which);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_narrow(const tti_update_view *u, cudaStream_t stream) {
    if (u->n_blocks) narrow_kernel<<<u->n_blocks, THREADS, 0, stream>>>(*u);
    return cudaGetLastError();
}

static unsigned grid_of(size_t n) {
    size_t n_blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(n_blocks < 4096 ? n_blocks : 4096);
}

extern "C" cudaError_t tti_launch_update_tensor(const tti_update_tensor *t, cudaStream_t stream) {
    if (t->n_elems == 0) return cudaSuccess;
    FOR_RULE(t->rule.kind, tensor_kernel<KIND><<<grid_of(t->n_elems), THREADS, 0, stream>>>(*t));
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_buffer_update(float *w, const float *g, const tti_hyper *hyper,
                                                float momentum, size_t n, cudaStream_t stream) {
    if (n) buffer_kernel<<<grid_of(n), THREADS, 0, stream>>>(w, g, hyper, momentum, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_average(float *a, const float *w, double decay, size_t n,
                                          cudaStream_t stream) {
    float rest = (float)(1.0 - decay);
    if (n) average_kernel<<<grid_of(n), THREADS, 0, stream>>>(a, w, (float)decay, rest, n);
    return cudaGetLastError();
}

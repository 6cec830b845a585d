/* update.cu - optimizer, clipping and parameter hash over all parameters at once.
 *
 * One block of threads for each block of the flat arrays (16 Ki elements), so a launch covers every
 * tensor of the model and each parameter is read and written once.  Numbers of the step are
 * computed on the device, so nothing waits for the host.  Sums run in a fixed order; the hash is a
 * sum of integers, whose order does not matter. */
#include "backend/cuda/optim/update.cuh"
#include "backend/cuda/runtime/clock.cuh"
#include "backend/cuda/runtime/early.cuh"

/* FEW_BLOCKS: up to so many would leave multiprocessors idle, and are split into PARTS. */
enum { THREADS = TTI_UPDATE_THREADS, STRIDE = TTI_UPDATE_STRIDE, FEW_BLOCKS = 256, PARTS = 8 };

/* ---- numbers of the step ---- */

__global__ void hyper_kernel(tti_update_view u) {
    tti_let_next_start();
    tti_wait_for_before();
    tti_step_report r;
    *u.hyper = tti_make_hyper(u, u.sums, &r);
    /* One thread decides for all blocks of the update, after all sums. */
    if (u.failure && *(volatile const uint32_t *)u.failure) r.bad |= TTI_BAD_PEER;
    uint64_t reported_ns = u.report->reported_ns;
    r.waited_ns = reported_ns ? tti_now_ns() - reported_ns : 0;
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

/* ---- the update ---- */

/* The parts of a block are neighbours. */
template <int KIND, int N_STATES>
__global__ void __launch_bounds__(THREADS) update_kernel(tti_update_view u, int n_parts) {
    __shared__ tti_block_hash shared;
    int block = blockIdx.x / n_parts, part = blockIdx.x % n_parts;
    const tti_update_block b = u.blocks[block];
    tti_hash_powers(shared);
    tti_hash_begin(shared);
    tti_let_next_start();
    tti_wait_for_before();
    tti_hyper h = *u.hyper;
    if (!b.is_own || u.report->bad) return;
    h.lr *= b.lr_factor;
    uint32_t acc[4] = {0, 0, 0, 0};
#pragma unroll 2
    for (uint32_t i = (part * THREADS + threadIdx.x) * 4; i < b.n_elems; i += n_parts * STRIDE) {
        tti_four f;
        tti_load_four<N_STATES>(u, b, i, f);
        if (b.kind != TTI_BLOCK_FROZEN) tti_load<float, 4>(u.grads + b.grads + i, f.g);
        tti_update_four<KIND, N_STATES>(u, b, h, i, f);
        tti_hash_four(shared, b.n_elems, i, f.w, acc);
    }
    tti_hash_lanes(shared, acc);
    if (!tti_join_parts(u, block, n_parts, shared) || threadIdx.x) return;
    atomicAdd((unsigned long long *)&u.report->params_hash,
              (unsigned long long)(b.hash_weight * tti_hash_end(shared, b.hash_at, b.n_elems)));
}

__global__ void __launch_bounds__(THREADS)
    hash_kernel(tti_update_view u, uint64_t *total, tti_hash_job job) {
    __shared__ tti_block_hash shared;
    const tti_update_block b = u.blocks[job.first + (int)blockIdx.x];
    bool has_come = job.which == TTI_HASH_OTHERS;
    if (!b.is_here || (has_come && b.is_own)) return;
    if (job.which != TTI_HASH_ALL && u.report->bad) return;
    tti_hash_powers(shared);
    tti_hash_begin(shared);
    uint32_t acc[4] = {0, 0, 0, 0};
    for (uint32_t i = threadIdx.x * 4; i < b.n_elems; i += STRIDE) {
        float w[4];
        tti_load<float, 4>(u.params + b.params + i, w);
        if (has_come && b.has_low_copy) tti_narrow_four(u, b.low_copy + i, w);
        tti_hash_four(shared, b.n_elems, i, w, acc);
    }
    tti_hash_lanes(shared, acc);
    if (threadIdx.x) return;
    atomicAdd((unsigned long long *)total,
              (unsigned long long)(b.hash_weight * tti_hash_end(shared, b.hash_at, b.n_elems)));
}

__global__ void __launch_bounds__(THREADS) narrow_kernel(tti_update_view u) {
    const tti_update_block b = u.blocks[blockIdx.x];
    for (uint32_t i = threadIdx.x * 4; b.has_low_copy && i < b.n_elems; i += STRIDE) {
        float w[4];
        tti_load<float, 4>(u.params + b.params + i, w);
        tti_narrow_four(u, b.low_copy + i, w);
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
                                              tti_hash_job job, cudaStream_t stream) {
    if (job.n) hash_kernel<<<(unsigned)job.n, THREADS, 0, stream>>>(*u, hash, job);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_update_low_copies(const tti_update_view *u, cudaStream_t stream) {
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

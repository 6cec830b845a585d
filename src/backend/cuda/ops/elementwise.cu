/* elementwise.cu - kernels of elementwise functions and chains of them; swiglu, geglu.
 *
 * Four variants, by the inputs: single functions at copy speed; a small interpreter for chains over
 * inputs of one order (all branches are uniform); one with repeated dimensions for arithmetic; and
 * a slow one for everything else.  All of them use the functions of elementwise.cuh, so they give
 * the same bits. */
#include "backend/cuda/runtime/elementwise.cuh"

enum { THREADS = 256 };

static unsigned blocks_for(uint64_t n, uint64_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

/* ---- one function, one dtype in, one out ---- */

/* Whole vectors by every thread, two of them on their way at once; the last n % V elements one by
 * one in the last block. */
template <int FN, bool TWO, class TI, class TO>
__global__ void __launch_bounds__(THREADS, 6)
    direct_kernel(const TI *a, const TI *b, TO *y, uint64_t n) {
    constexpr int BYTES = sizeof(TI) > sizeof(TO) ? sizeof(TI) : sizeof(TO);
    constexpr int V = 16 / BYTES, U = 2;
    uint64_t first = (uint64_t)blockIdx.x * (THREADS * V * U) + threadIdx.x * V;
    tti_vec<TI, V> left[U], right[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
        uint64_t i = first + u * (THREADS * V);
        if (i + V > n) continue;
        left[u] = *(const tti_vec<TI, V> *)(a + i);
        if (TWO) right[u] = *(const tti_vec<TI, V> *)(b + i);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        uint64_t i = first + u * (THREADS * V);
        float x[V];
        if (i + V > n) continue;
#pragma unroll
        for (int j = 0; j < V; j++)
            x[j] = tti_elem<FN, float>(tti_to_f32(left[u].v[j]),
                                       TWO ? tti_to_f32(right[u].v[j]) : 0.0f, 0.0f, 0.0f);
        tti_store(y + i, x);
    }
    uint64_t rest = n - n % V + threadIdx.x;
    if (blockIdx.x + 1 < gridDim.x || rest >= n) return;
    y[rest] = tti_from_f32<TO>(
        tti_elem<FN, float>(tti_to_f32(a[rest]), TWO ? tti_to_f32(b[rest]) : 0.0f, 0.0f, 0.0f));
}

template <int FN, bool TWO, class TI, class TO>
static cudaError_t direct(const void *const *in, void *y, uint64_t n, cudaStream_t stream) {
    constexpr int BYTES = sizeof(TI) > sizeof(TO) ? sizeof(TI) : sizeof(TO);
    direct_kernel<FN, TWO, TI, TO><<<blocks_for(n, THREADS * 32 / BYTES), THREADS, 0, stream>>>(
        (const TI *)in[0], TWO ? (const TI *)in[1] : nullptr, (TO *)y, n);
    return cudaGetLastError();
}

typedef cudaError_t (*direct_launcher)(const void *const *in, void *y, uint64_t n,
                                       cudaStream_t stream);

typedef struct direct_row {
    int fn, from, to;
    direct_launcher launch;
} direct_row;

#define SAME(name, two)                                                                  \
    {TTI_ELEM_##name, TUTTI_F32, TUTTI_F32, direct<TTI_ELEM_##name, two, float, float>}, \
        {TTI_ELEM_##name, TUTTI_BF16, TUTTI_BF16,                                        \
         direct<TTI_ELEM_##name, two, tti_bf16, tti_bf16>},                              \
        {TTI_ELEM_##name, TUTTI_F16, TUTTI_F16, direct<TTI_ELEM_##name, two, tti_f16, tti_f16>},

static const direct_row direct_rows[] = {
    SAME(ADD, true) SAME(MUL, true) SAME(RELU, false) SAME(RELU_GRAD, true) SAME(GELU, false)
        SAME(GELU_GRAD, true) SAME(GELU_TANH, false) SAME(GELU_TANH_GRAD, true){
            TTI_ELEM_COPY, TUTTI_F32, TUTTI_BF16, direct<TTI_ELEM_COPY, false, float, tti_bf16>},
    {TTI_ELEM_COPY, TUTTI_BF16, TUTTI_F32, direct<TTI_ELEM_COPY, false, tti_bf16, float>},
    {TTI_ELEM_COPY, TUTTI_F32, TUTTI_F16, direct<TTI_ELEM_COPY, false, float, tti_f16>},
    {TTI_ELEM_COPY, TUTTI_F16, TUTTI_F32, direct<TTI_ELEM_COPY, false, tti_f16, float>},
};

static const direct_row *find_direct(tti_elem_fn fn, tutti_dtype from, tutti_dtype to) {
    for (const direct_row &row : direct_rows)
        if (row.fn == (int)fn && row.from == (int)from && row.to == (int)to) return &row;
    return nullptr;
}

extern "C" bool tti_cuda_elem_has_direct(tti_elem_fn fn, tutti_dtype from, tutti_dtype to) {
    return find_direct(fn, from, to) != nullptr;
}

extern "C" cudaError_t tti_cuda_elem_direct(tti_elem_fn fn, tutti_dtype from, tutti_dtype to,
                                            const void *const *in, void *y, uint64_t n,
                                            cudaStream_t stream) {
    const direct_row *row = find_direct(fn, from, to);
    if (!row) return cudaErrorInvalidValue;
    return n ? row->launch(in, y, n, stream) : cudaSuccess;
}

/* ---- chains ---- */

enum { WIDTH = 8 }; /* elements of a thread */

typedef struct chain_args {
    tti_elem_program program;
    const void *in[TTI_ELEM_INPUTS];
    void *y;
    uint64_t n;
} chain_args;

/* Elements as they lie in memory, packed; of a scalar the one element in front. */
typedef struct packed {
    uint32_t word[WIDTH];
} packed;

/* Bytes of an element of an input. */
__device__ __forceinline__ int bytes_of(int dtype) {
    return dtype == TUTTI_U8 ? 1 : dtype == TUTTI_F16 || dtype == TUTTI_BF16 ? 2 : 4;
}

/* m < WIDTH elements from at, one by one. */
__device__ __noinline__ packed fetch_tail(const char *at, int bytes, int m) {
    packed p = {};
    for (int j = 0; j < WIDTH; j++) {
        if (j >= m) continue;
        uint32_t x = bytes == 4   ? ((const uint32_t *)at)[j]
                     : bytes == 2 ? (uint32_t)((const uint16_t *)at)[j]
                                  : (uint32_t)((const uint8_t *)at)[j];
        int at_bit = j * bytes * 8;
#pragma unroll
        for (int w = 0; w < WIDTH; w++) p.word[w] |= w == at_bit / 32 ? x << (at_bit % 32) : 0;
    }
    return p;
}

/* Elements i .. i+m-1 of an input. */
__device__ __forceinline__ packed fetch(const chain_args &a, int slot, uint64_t i, int m) {
    int bytes = bytes_of(a.program.dtype[slot]);
    bool is_scalar = a.program.is_scalar[slot] != 0;
    const char *at = (const char *)a.in[slot] + (is_scalar ? 0 : i * bytes);
    packed p = {};
    if (is_scalar) return fetch_tail(at, bytes, 1);
    if (m < WIDTH) return fetch_tail(at, bytes, m);
    if (bytes == 1) {
        uint2 q = *(const uint2 *)at;
        p.word[0] = q.x, p.word[1] = q.y;
        return p;
    }
    uint4 q = *(const uint4 *)at;
    p.word[0] = q.x, p.word[1] = q.y, p.word[2] = q.z, p.word[3] = q.w;
    if (bytes == 4) {
        q = *(const uint4 *)(at + 16);
        p.word[4] = q.x, p.word[5] = q.y, p.word[6] = q.z, p.word[7] = q.w;
    }
    return p;
}

__device__ __forceinline__ uint16_t half_of(const packed &p, int j) {
    return (uint16_t)(p.word[j / 2] >> (16 * (j % 2)));
}

__device__ __forceinline__ void unpack(const chain_args &a, int slot, const packed &p,
                                       float (&x)[WIDTH]) {
    switch (a.program.dtype[slot]) {
        case TUTTI_F32:
#pragma unroll
            for (int j = 0; j < WIDTH; j++) x[j] = __uint_as_float(p.word[j]);
            break;
        case TUTTI_BF16:
#pragma unroll
            for (int j = 0; j < WIDTH; j++)
                x[j] = __uint_as_float(j % 2 ? p.word[j / 2] & 0xFFFF0000u : p.word[j / 2] << 16);
            break;
        case TUTTI_F16:
#pragma unroll
            for (int j = 0; j < WIDTH; j++) x[j] = __half2float(__ushort_as_half(half_of(p, j)));
            break;
        case TUTTI_I32:
#pragma unroll
            for (int j = 0; j < WIDTH; j++) x[j] = (float)(int32_t)p.word[j];
            break;
        default:
#pragma unroll
            for (int j = 0; j < WIDTH; j++) x[j] = (float)((p.word[j / 4] >> (8 * (j % 4))) & 255u);
    }
    if (!a.program.is_scalar[slot]) return;
#pragma unroll
    for (int j = 1; j < WIDTH; j++) x[j] = x[0];
}

/* Values between two steps have the bits that memory would have given them. */
__device__ __forceinline__ void round_to(int dtype, float (&x)[WIDTH]) {
    if (dtype == TUTTI_BF16) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) x[j] = __bfloat162float(__float2bfloat16_rn(x[j]));
    } else if (dtype == TUTTI_F16) {
#pragma unroll
        for (int j = 0; j < WIDTH; j++) x[j] = __half2float(__float2half_rn(x[j]));
    }
}

template <class T>
__device__ __forceinline__ void put(void *y, uint64_t i, int m, const float (&x)[WIDTH]) {
    constexpr int V = 16 / sizeof(T);
    T *to = (T *)y + i;
    if (m == WIDTH) {
#pragma unroll
        for (int k = 0; k < WIDTH; k += V) {
            float part[V];
#pragma unroll
            for (int j = 0; j < V; j++) part[j] = x[k + j];
            tti_store(to + k, part);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
        if (j < m) to[j] = tti_from_f32<T>(x[j]);
}

__device__ __forceinline__ void swap(float (&x)[WIDTH], float (&y)[WIDTH]) {
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        float t = x[j];
        x[j] = y[j], y[j] = t;
    }
}

/* The input of the next step is on its way while this one is computed. */
__global__ void __launch_bounds__(THREADS) chain_kernel(const __grid_constant__ chain_args a) {
    uint64_t i = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * WIDTH;
    if (i >= a.n) return;
    int m = a.n - i < WIDTH ? (int)(a.n - i) : (int)WIDTH, n_steps = a.program.n_steps;
    float x[WIDTH], y[WIDTH];
    packed first = fetch(a, a.program.first, i, m), next = {};
    int other = a.program.step[0].other;
    if (other < TTI_ELEM_INPUTS) next = fetch(a, other, i, m);
    unpack(a, a.program.first, first, x);
    for (int k = 0; k < n_steps; k++) {
        const tti_elem_step &step = a.program.step[k];
        if (other < TTI_ELEM_INPUTS) {
            unpack(a, other, next, y);
        } else {
#pragma unroll
            for (int j = 0; j < WIDTH; j++) y[j] = x[j];
        }
        other = k + 1 < n_steps ? a.program.step[k + 1].other : (int)TTI_ELEM_NONE;
        if (other < TTI_ELEM_INPUTS) next = fetch(a, other, i, m);
        if (step.swapped) swap(x, y);
        tti_elem_run<WIDTH, float>(step.fn, x, y, (float)step.alpha, (float)step.beta);
        if (k + 1 < n_steps) round_to(step.dtype, x);
    }
    if (a.program.out_dtype == TUTTI_F32)
        put<float>(a.y, i, m, x);
    else if (a.program.out_dtype == TUTTI_BF16)
        put<tti_bf16>(a.y, i, m, x);
    else
        put<tti_f16>(a.y, i, m, x);
}

extern "C" cudaError_t tti_cuda_elem_chain(const tti_elem_program *program, const void *const *in,
                                           void *y, uint64_t n, cudaStream_t stream) {
    chain_args a = {};
    a.program = *program;
    for (int k = 0; k < program->n_in; k++) a.in[k] = in[k];
    a.y = y, a.n = n;
    if (!n) return cudaSuccess;
    chain_kernel<<<blocks_for(n, THREADS * WIDTH), THREADS, 0, stream>>>(a);
    return cudaGetLastError();
}

/* ---- anything: any dtype, any strides, one element at a time ---- */

typedef struct any_args {
    tti_elem_program program;
    tti_nest nest;
    const void *in[TTI_ELEM_INPUTS];
    void *y;
    uint64_t n;
} any_args;

__device__ __forceinline__ uint64_t offset_of(const tti_nest &nest, int operand, uint64_t i) {
    uint64_t offset = 0;
    for (int d = nest.n_dims - 1; d > 0; d--) {
        uint64_t q = (i >> 32) ? i / nest.dim[d] : (uint32_t)i / nest.dim[d];
        offset += (i - q * nest.dim[d]) * nest.stride[operand][d];
        i = q;
    }
    return offset + i * nest.stride[operand][0];
}

/* The value that memory of this dtype holds after x was stored as cast means it. */
__device__ double held_as(int dtype, double x) {
    double lo = dtype == TUTTI_U8 ? 0 : dtype == TUTTI_I32 ? -0x1p31 : -0x1p63;
    double hi = dtype == TUTTI_U8 ? 255 : dtype == TUTTI_I32 ? 0x1p31 - 1 : 0x1.fffffffffffffp62;
    switch (dtype) {
        case TUTTI_F64:
            return x;
        case TUTTI_F32:
            return (float)x;
        case TUTTI_BF16:
            return __bfloat162float(__float2bfloat16_rn((float)x));
        case TUTTI_F16:
            return __half2float(__float2half_rn((float)x));
        default:
            return isnan(x) ? 0 : trunc(fmin(fmax(x, lo), hi));
    }
}

template <class F>
__device__ __forceinline__ double step_as(const tti_elem_step &step, double x, double y) {
    F a[1] = {(F)x}, b[1] = {(F)y};
    tti_elem_run<1, F>(step.fn, a, b, (F)step.alpha, (F)step.beta);
    return (double)a[0];
}

__device__ double any_element(const any_args &a, uint64_t i) {
    const tti_elem_program &p = a.program;
    double x = tti_load_any(p.dtype[p.first], a.in[p.first], offset_of(a.nest, 1 + p.first, i));
    for (int k = 0; k < p.n_steps; k++) {
        const tti_elem_step &step = p.step[k];
        double y = x;
        if (step.other < TTI_ELEM_INPUTS)
            y = tti_load_any(p.dtype[step.other], a.in[step.other],
                             offset_of(a.nest, 1 + step.other, i));
        double left = step.swapped ? y : x, right = step.swapped ? x : y;
        x = step.wide ? step_as<double>(step, left, right) : step_as<float>(step, left, right);
        x = held_as(step.dtype, x);
    }
    return x;
}

__global__ void __launch_bounds__(THREADS) any_kernel(const __grid_constant__ any_args a) {
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.n) return;
    tti_store_any(a.program.out_dtype, a.y, offset_of(a.nest, 0, i), any_element(a, i));
}

static uint64_t nest_elems(const tti_nest *nest) {
    uint64_t n = 1;
    for (int d = 0; d < nest->n_dims; d++) n *= nest->dim[d];
    return n;
}

extern "C" cudaError_t tti_cuda_elem_any(const tti_elem_program *program, const tti_nest *nest,
                                         const void *const *in, void *y, cudaStream_t stream) {
    any_args a = {};
    a.program = *program;
    a.nest = *nest;
    for (int k = 0; k < program->n_in; k++) a.in[k] = in[k];
    a.y = y, a.n = nest_elems(nest);
    if (!a.n) return cudaSuccess;
    if (a.n > (uint64_t)THREADS * 0x7FFFFFFF) return cudaErrorInvalidValue;
    any_kernel<<<blocks_for(a.n, THREADS), THREADS, 0, stream>>>(a);
    return cudaGetLastError();
}

/* ---- arithmetic with repeated dimensions ---- */

typedef struct broadcast_args {
    const void *in[2];
    void *y;
    uint64_t n;     /* vectors */
    int fn, n_dims; /* the last loop counts vectors */
    tti_divider dim[TUTTI_MAX_DIMS];
    uint64_t stride[2][TUTTI_MAX_DIMS];
    uint64_t inner[2]; /* 1: elements of a vector lie side by side; 0: they are one */
} broadcast_args;

/* V elements at p, or the one there in front. */
template <class T, int V>
__device__ __forceinline__ tti_vec<T, V> load_operand(const T *p, bool side_by_side) {
    if (V > 1 && side_by_side) return *(const tti_vec<T, V> *)p;
    tti_vec<T, V> raw;
    raw.v[0] = *p;
    return raw;
}

template <class T, int V>
__device__ __forceinline__ void widen(const tti_vec<T, V> &raw, bool side_by_side, float (&x)[V]) {
#pragma unroll
    for (int j = 0; j < V; j++) x[j] = tti_to_f32(side_by_side ? raw.v[j] : raw.v[0]);
}

/* The offsets of vector i in both operands. */
__device__ __forceinline__ void find_operands(const broadcast_args &a, uint64_t i,
                                              uint64_t (&at)[2]) {
    at[0] = at[1] = 0;
    for (int d = a.n_dims - 1; d > 0; d--) {
        uint64_t q = tti_divide(i, a.dim[d]), r = i - q * a.dim[d].by;
        at[0] += r * a.stride[0][d], at[1] += r * a.stride[1][d];
        i = q;
    }
    at[0] += i * a.stride[0][0], at[1] += i * a.stride[1][0];
}

/* y lies in the order of the loops without gaps.  Offsets first, conversions last: all loads of a
 * thread are under way together. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS, 4)
    broadcast_kernel(const __grid_constant__ broadcast_args a) {
    constexpr int U = V > 1 ? 2 : 4;
    uint64_t first = (uint64_t)blockIdx.x * (THREADS * U) + threadIdx.x, at[U][2];
    bool two = a.fn != TTI_ELEM_COPY, whole[2] = {a.inner[0] != 0, a.inner[1] != 0};
    tti_vec<T, V> left[U], right[U];
#pragma unroll
    for (int u = 0; u < U; u++) find_operands(a, min(first + u * THREADS, a.n - 1), at[u]);
#pragma unroll
    for (int u = 0; u < U; u++) {
        left[u] = load_operand<T, V>((const T *)a.in[0] + at[u][0], whole[0]);
        right[u] = left[u];
        if (two) right[u] = load_operand<T, V>((const T *)a.in[1] + at[u][1], whole[1]);
    }
#pragma unroll
    for (int u = 0; u < U; u++) {
        uint64_t i = first + u * THREADS;
        float x[V], z[V];
        widen(left[u], whole[0], x);
        widen(right[u], whole[1], z);
        tti_elem_zip<V, float>(a.fn, x, z);
        if (i < a.n) tti_store((T *)a.y + i * V, x);
    }
}

/* The last loop can be cut into vectors of v elements. */
static bool can_cut(const tti_nest *nest, unsigned v) {
    int last = nest->n_dims - 1;
    if (nest->dim[last] % v) return false;
    for (int k = 1; k < nest->n_operands; k++) {
        if (nest->stride[k][last] > 1) return false;
        for (int d = 0; d < last; d++)
            if (nest->stride[k][last] == 1 && nest->stride[k][d] % v) return false;
    }
    return true;
}

template <class T>
static cudaError_t broadcast(broadcast_args *a, const tti_nest *nest, cudaStream_t stream) {
    constexpr int V = 16 / sizeof(T);
    int last = nest->n_dims - 1;
    uint64_t v = can_cut(nest, V) ? V : 1;
    a->n = nest_elems(nest) / v;
    a->n_dims = nest->n_dims;
    for (int d = 0; d < nest->n_dims; d++) {
        a->dim[d] = tti_divider_of(d == last ? nest->dim[d] / v : nest->dim[d]);
        for (int k = 0; k + 1 < nest->n_operands; k++)
            a->stride[k][d] = nest->stride[1 + k][d] * (d == last ? v : 1);
    }
    for (int k = 0; k + 1 < nest->n_operands; k++) a->inner[k] = nest->stride[1 + k][last];
    if (v > 1)
        broadcast_kernel<T, V><<<blocks_for(a->n, THREADS * 2), THREADS, 0, stream>>>(*a);
    else
        broadcast_kernel<T, 1><<<blocks_for(a->n, THREADS * 4), THREADS, 0, stream>>>(*a);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_elem_broadcast(tti_elem_fn fn, tutti_dtype dtype,
                                               const tti_nest *nest, const void *const *in, void *y,
                                               cudaStream_t stream) {
    broadcast_args a = {};
    a.in[0] = in[0], a.in[1] = fn == TTI_ELEM_COPY ? in[0] : in[1];
    a.y = y, a.fn = fn;
    uint64_t n = nest_elems(nest);
    if (!n) return cudaSuccess;
    if (n > (uint64_t)THREADS * 4 * 0x7FFFFFFF) return cudaErrorInvalidValue;
    if (dtype == TUTTI_F32) return broadcast<float>(&a, nest, stream);
    if (dtype == TUTTI_BF16) return broadcast<tti_bf16>(&a, nest, stream);
    return dtype == TUTTI_F16 ? broadcast<tti_f16>(&a, nest, stream) : cudaErrorInvalidValue;
}

/* ---- swiglu, geglu ---- */

template <int GATE, class F>
__device__ __forceinline__ F open_gate(F a) {
    if constexpr (GATE == TTI_GATE_GELU) return tti_gelu(a);
    if constexpr (GATE == TTI_GATE_GELU_TANH) return a * tti_sigmoid(tti_gelu_gate(a));
    return a * tti_sigmoid(a);
}

/* d times the open gate, in the order of operations that swiglu has had. */
template <int GATE, class F>
__device__ __forceinline__ F times_gate(F d, F a) {
    if constexpr (GATE == TTI_GATE_SILU) return d * a * tti_sigmoid(a);
    return d * open_gate<GATE>(a);
}

template <int GATE, class F>
__device__ __forceinline__ F gate_slope(F a) {
    if constexpr (GATE == TTI_GATE_GELU) return tti_gelu_slope(a);
    if constexpr (GATE == TTI_GATE_GELU_TANH) return tti_gelu_tanh_slope(a);
    return tti_silu_slope(a);
}

/* A thread has V elements of a half; half counts the vectors of one. */
template <class T, int V, int GATE>
__global__ void __launch_bounds__(THREADS)
    gated_kernel(const T *x, T *y, uint64_t n, tti_divider half) {
    typedef typename tti_acc<T>::type F;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    const T *at = x + (i + tti_divide(i, half) * half.by) * V;
    F a[V], b[V];
    tti_load(at, a);
    tti_load(at + half.by * V, b);
#pragma unroll
    for (int j = 0; j < V; j++) a[j] = open_gate<GATE>(a[j]) * b[j];
    tti_store(y + i * V, a);
}

template <class T, int V, int GATE>
__global__ void __launch_bounds__(THREADS)
    gated_grad_kernel(const T *x, const T *dy, T *dx, uint64_t n, tti_divider half) {
    typedef typename tti_acc<T>::type F;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    uint64_t at = (i + tti_divide(i, half) * half.by) * V;
    F a[V], b[V], d[V];
    tti_load(x + at, a);
    tti_load(x + at + half.by * V, b);
    tti_load(dy + i * V, d);
#pragma unroll
    for (int j = 0; j < V; j++) {
        F da = d[j] * gate_slope<GATE>(a[j]) * b[j];
        b[j] = times_gate<GATE>(d[j], a[j]);
        a[j] = da;
    }
    tti_store(dx + at, a);
    tti_store(dx + at + half.by * V, b);
}

template <class T, int V, int GATE>
static void gated_as(const tti_gated *g, cudaStream_t stream) {
    uint64_t n = g->n_rows * g->n_half / V;
    tti_divider half = tti_divider_of(g->n_half / V);
    if (g->dy)
        gated_grad_kernel<T, V, GATE><<<blocks_for(n, THREADS), THREADS, 0, stream>>>(
            (const T *)g->x, (const T *)g->dy, (T *)g->out, n, half);
    else
        gated_kernel<T, V, GATE>
            <<<blocks_for(n, THREADS), THREADS, 0, stream>>>((const T *)g->x, (T *)g->out, n, half);
}

template <int GATE>
static cudaError_t gated_by(const tti_gated *g, cudaStream_t stream) {
    TTI_FLOAT_DISPATCH(g->dtype, {
        constexpr int V = 16 / sizeof(T);
        if (g->n_half % V == 0)
            gated_as<T, V, GATE>(g, stream);
        else
            gated_as<T, 1, GATE>(g, stream);
    })
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_gated(const tti_gated *g, cudaStream_t stream) {
    if (!g->n_rows || !g->n_half) return cudaSuccess;
    if (g->n_rows * g->n_half > (uint64_t)THREADS * 0x7FFFFFFF) return cudaErrorInvalidValue;
    if (g->gate == TTI_GATE_GELU) return gated_by<TTI_GATE_GELU>(g, stream);
    if (g->gate == TTI_GATE_GELU_TANH) return gated_by<TTI_GATE_GELU_TANH>(g, stream);
    return gated_by<TTI_GATE_SILU>(g, stream);
}

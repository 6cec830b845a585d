/* recurrent.cu - the functions of the gates of one step, for all samples at once.
 *
 * A thread computes one hidden element of one sample: neighbours in a warp are neighbours in
 * memory.  The products of a step take most of its time; a step is two launches in all. */
#include "backend/cuda/ops/recurrent.h"

#include "backend/cuda/runtime/device.cuh"

/* ---- types: the state is f32, or f64 for f64 ---- */

template <class T>
struct carried {
    typedef float type;
};
template <>
struct carried<double> {
    typedef double type;
};

__device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_of(double x) { return tanh(x); }

template <class A>
__device__ __forceinline__ A sigmoid(A x) {
    return (A)1 / ((A)1 + tti_exp(-x));
}

/* The position of a thread: sample b, hidden element j; state is b H + j, row b T + step. */
struct place {
    int64_t b, j, state, row;
};

/* False beyond the end. */
__device__ __forceinline__ bool find_place(const tti_cuda_cell &cell, place *p) {
    p->state = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (p->state >= cell.b * cell.h) return false;
    p->b = p->state / cell.h;
    p->j = p->state % cell.h;
    p->row = p->b * cell.t + cell.step;
    return true;
}

/* ---- forward ---- */

template <class T>
__global__ void lstm_cell_kernel(tti_cuda_cell cell, tti_cuda_cell_args a) {
    typedef typename carried<T>::type A;
    place p;
    if (!find_place(cell, &p)) return;
    int64_t h = cell.h;
    const A *x = (const A *)a.x_part + p.row * 4 * h + p.j;
    const A *from_h = (const A *)a.h_part + p.b * 4 * h + p.j;
    const T *b_ih = (const T *)a.b_ih + p.j, *b_hh = (const T *)a.b_hh + p.j;
    A z[4];
#pragma unroll
    for (int g = 0; g < 4; g++)
        z[g] = x[g * h] + from_h[g * h] + tti_to_acc(b_ih[g * h]) + tti_to_acc(b_hh[g * h]);
    A i = sigmoid(z[0]), f = sigmoid(z[1]), g = tanh_of(z[2]), o = sigmoid(z[3]);
    A *carry = (A *)a.carry + p.state;
    A c = f * *carry + i * g, y = o * tanh_of(c);
    T *gates = (T *)a.gates + p.row * 4 * h + p.j;
    gates[0] = tti_narrow<T>(i);
    gates[h] = tti_narrow<T>(f);
    gates[2 * h] = tti_narrow<T>(g);
    gates[3 * h] = tti_narrow<T>(o);
    ((T *)a.c)[p.row * h + p.j] = tti_narrow<T>(c);
    ((T *)a.y)[p.row * h + p.j] = ((T *)a.h_copy)[p.state] = tti_narrow<T>(y);
    *carry = c;
}

template <class T>
__global__ void gru_cell_kernel(tti_cuda_cell cell, tti_cuda_cell_args a) {
    typedef typename carried<T>::type A;
    place p;
    if (!find_place(cell, &p)) return;
    int64_t h = cell.h;
    const A *x = (const A *)a.x_part + p.row * 4 * h + p.j;
    const A *from_h = (const A *)a.h_part + p.b * 3 * h + p.j;
    const T *b_ih = (const T *)a.b_ih + p.j, *b_hh = (const T *)a.b_hh + p.j;
    A r = sigmoid(x[0] + from_h[0] + tti_to_acc(b_ih[0]) + tti_to_acc(b_hh[0]));
    A z = sigmoid(x[h] + from_h[h] + tti_to_acc(b_ih[h]) + tti_to_acc(b_hh[h]));
    A hidden = from_h[2 * h] + tti_to_acc(b_hh[2 * h]);
    A n = tanh_of(x[2 * h] + tti_to_acc(b_ih[2 * h]) + r * hidden);
    A *carry = (A *)a.carry + p.state;
    A y = ((A)1 - z) * n + z * *carry;
    T *gates = (T *)a.gates + p.row * 4 * h + p.j;
    gates[0] = tti_narrow<T>(r);
    gates[h] = tti_narrow<T>(z);
    gates[2 * h] = tti_narrow<T>(n);
    gates[3 * h] = tti_narrow<T>(hidden);
    ((T *)a.y)[p.row * h + p.j] = ((T *)a.h_copy)[p.state] = tti_narrow<T>(y);
    *carry = y;
}

/* ---- backward ---- */

/* The state before this step. */
template <class T>
__device__ __forceinline__ typename carried<T>::type state_before(const tti_cuda_cell &cell,
                                                                  const tti_cuda_cell_grad_args &a,
                                                                  const place &p) {
    if (cell.step > 0) return tti_to_acc(((const T *)a.states)[(p.row - 1) * cell.h + p.j]);
    return a.first ? tti_to_acc(((const T *)a.first)[p.state]) : 0;
}

template <class T>
__global__ void lstm_cell_grad_kernel(tti_cuda_cell cell, tti_cuda_cell_grad_args a) {
    typedef typename carried<T>::type A;
    place p;
    if (!find_place(cell, &p)) return;
    int64_t h = cell.h;
    const T *gates = (const T *)a.gates + p.row * 4 * h + p.j;
    A i = tti_to_acc(gates[0]), f = tti_to_acc(gates[h]), g = tti_to_acc(gates[2 * h]);
    A o = tti_to_acc(gates[3 * h]), before = state_before<T>(cell, a, p);
    A th = tanh_of(tti_to_acc(((const T *)a.states)[p.row * h + p.j]));
    A dh = ((A *)a.dh)[p.state] + tti_to_acc(((const T *)a.dy)[p.row * h + p.j]);
    A dc = ((A *)a.dc)[p.state] + dh * o * ((A)1 - th * th);
    A d[4] = {dc * g * i * ((A)1 - i), dc * before * f * ((A)1 - f), dc * i * ((A)1 - g * g),
              dh * th * o * ((A)1 - o)};
    T *dz = (T *)a.dz + p.row * 4 * h + p.j, *low = (T *)a.dz_copy + p.b * 4 * h + p.j;
#pragma unroll
    for (int k = 0; k < 4; k++) dz[k * h] = low[k * h] = tti_narrow<T>(d[k]);
    ((A *)a.dc)[p.state] = dc * f;
}

template <class T>
__global__ void gru_cell_grad_kernel(tti_cuda_cell cell, tti_cuda_cell_grad_args a) {
    typedef typename carried<T>::type A;
    place p;
    if (!find_place(cell, &p)) return;
    int64_t h = cell.h;
    const T *gates = (const T *)a.gates + p.row * 4 * h + p.j;
    A r = tti_to_acc(gates[0]), z = tti_to_acc(gates[h]), n = tti_to_acc(gates[2 * h]);
    A hidden = tti_to_acc(gates[3 * h]), before = state_before<T>(cell, a, p);
    A dh = ((A *)a.dh)[p.state] + tti_to_acc(((const T *)a.dy)[p.row * h + p.j]);
    A dn = dh * ((A)1 - z) * ((A)1 - n * n);
    A d[3] = {dn * hidden * r * ((A)1 - r), dh * (before - n) * z * ((A)1 - z), dn};
    T *di = (T *)a.di + p.row * 3 * h + p.j, *dz = (T *)a.dz + p.row * 3 * h + p.j;
    T *low = (T *)a.dz_copy + p.b * 3 * h + p.j;
#pragma unroll
    for (int k = 0; k < 3; k++) {
        di[k * h] = tti_narrow<T>(d[k]);
        dz[k * h] = low[k * h] = tti_narrow<T>(k == 2 ? dn * r : d[k]);
    }
    ((A *)a.dh)[p.state] = dh * z;
}

/* ---- states in and out ---- */

template <class T>
__global__ void cell_start_kernel(int64_t n, const T *from, typename carried<T>::type *wide,
                                  T *low) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    typename carried<T>::type x = from ? tti_to_acc(from[i]) : 0;
    if (wide) wide[i] = x;
    if (low) low[i] = tti_narrow<T>(x);
}

template <class T>
__global__ void cell_end_kernel(int64_t n, const typename carried<T>::type *from, T *to) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = tti_narrow<T>(from[i]);
}

enum { CELL_THREADS = 128 };

static unsigned n_blocks(int64_t n) { return (unsigned)((n + CELL_THREADS - 1) / CELL_THREADS); }

extern "C" cudaError_t tti_cuda_cell_start(tutti_dtype dtype, int64_t n, const void *from,
                                           void *wide, void *low, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(
        dtype, typedef typename carried<T>::type A; cell_start_kernel<T>
        <<<n_blocks(n), CELL_THREADS, 0, stream>>>(n, (const T *)from, (A *)wide, (T *)low))
    return cudaGetLastError();
}

extern "C" cudaError_t tti_cuda_cell_end(tutti_dtype dtype, int64_t n, const void *from, void *to,
                                         cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(dtype, typedef typename carried<T>::type A; cell_end_kernel<T>
                       <<<n_blocks(n), CELL_THREADS, 0, stream>>>(n, (const A *)from, (T *)to))
    return cudaGetLastError();
}

#define LAUNCHER(function, kernel, args_type)                                                 \
    extern "C" cudaError_t function(const tti_cuda_cell *cell, const args_type *args,         \
                                    cudaStream_t stream) {                                    \
        int64_t n = cell->b * cell->h;                                                        \
        if (n == 0) return cudaSuccess;                                                       \
        TTI_FLOAT_DISPATCH(cell->dtype,                                                       \
                           kernel<T><<<n_blocks(n), CELL_THREADS, 0, stream>>>(*cell, *args)) \
        return cudaGetLastError();                                                            \
    }
LAUNCHER(tti_cuda_lstm_cell, lstm_cell_kernel, tti_cuda_cell_args)
LAUNCHER(tti_cuda_gru_cell, gru_cell_kernel, tti_cuda_cell_args)
LAUNCHER(tti_cuda_lstm_cell_grad, lstm_cell_grad_kernel, tti_cuda_cell_grad_args)
LAUNCHER(tti_cuda_gru_cell_grad, gru_cell_grad_kernel, tti_cuda_cell_grad_args)

/* elementwise.cuh - the functions themselves, in float or double, the same bits in every kernel.
 *
 * The exact gelu computes erf by a formula of Abramowitz and Stegun (7.1.26, error below 1.5e-7),
 * whose exponential also gives the slope; the left tail is computed without cancellation. */
#ifndef TTI_ELEMENTWISE_CUH
#define TTI_ELEMENTWISE_CUH

#include "backend/cuda/runtime/device.cuh"
#include "backend/cuda/runtime/elementwise.h"

__device__ __forceinline__ float tti_sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
}
__device__ __forceinline__ double tti_sigmoid(double x) { return 1 / (1 + exp(-x)); }

__device__ __forceinline__ float tti_exp_tail(float x) { return __expf(-fabsf(x)); }
__device__ __forceinline__ double tti_exp_tail(double x) { return exp(-fabs(x)); }
__device__ __forceinline__ float tti_inverse(float x) { return __fdividef(1.0f, x); }
__device__ __forceinline__ double tti_inverse(double x) { return 1 / x; }

/* sigmoid(x), and its slope without cancellation. */
template <class F>
__device__ __forceinline__ F tti_sigmoid_and_slope(F x, F *slope) {
    F e = tti_exp_tail(x), r = tti_inverse(1 + e), tail = e * r;
    *slope = r * tail;
    return x < 0 ? tail : r;
}

/* d/dx of x sigmoid(x) */
template <class F>
__device__ __forceinline__ F tti_silu_slope(F x) {
    F slope, s = tti_sigmoid_and_slope(x, &slope);
    return s + x * slope;
}

/* Phi(x), the normal distribution function, and *bell = exp(-x^2/2). */
__device__ __forceinline__ float tti_phi(float x, float *bell) {
    float t = __fdividef(1.0f, fmaf(0.3275911f * 0.70710678f, fabsf(x), 1.0f));
    float e = __expf(-0.5f * x * x);
    float p = fmaf(1.061405429f, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    float tail = 0.5f * p * t * e;
    *bell = e;
    return x < 0.0f ? tail : 1.0f - tail;
}
__device__ __forceinline__ double tti_phi(double x, double *bell) {
    *bell = exp(-0.5 * x * x);
    return 0.5 * (1 + erf(x * 0.70710678118654752440));
}

/* The tanh form of Phi: (1 + tanh u) / 2 is the logistic function of 2 u, given here. */
template <class F>
__device__ __forceinline__ F tti_gelu_gate(F x) {
    return (F)(2 * 0.79788456080286535588) * (x + (F)0.044715 * x * x * x);
}

template <class F>
__device__ __forceinline__ F tti_gelu_tanh_slope(F x) {
    F slope, s = tti_sigmoid_and_slope(tti_gelu_gate(x), &slope);
    F inner = (F)(2 * 0.79788456080286535588) * (1 + (F)(3 * 0.044715) * x * x);
    return s + x * slope * inner;
}

template <class F>
__device__ __forceinline__ F tti_gelu_slope(F x) {
    F bell, phi = tti_phi(x, &bell);
    return phi + x * (F)0.39894228040143267794 * bell;
}

template <class F>
__device__ __forceinline__ F tti_gelu(F x) {
    F bell;
    return x * tti_phi(x, &bell);
}

/* The function FN of x, and of y where it has two; meanings: src/ops. */
template <int FN, class F>
__device__ __forceinline__ F tti_elem(F x, F y, F alpha, F beta) {
    if constexpr (FN == TTI_ELEM_NEG) return -x;
    if constexpr (FN == TTI_ELEM_EXP) return exp(x);
    if constexpr (FN == TTI_ELEM_LOG) return log(x);
    if constexpr (FN == TTI_ELEM_SQRT) return sqrt(x);
    if constexpr (FN == TTI_ELEM_ABS) return fabs(x);
    if constexpr (FN == TTI_ELEM_SQUARE) return x * x;
    if constexpr (FN == TTI_ELEM_SIGN) return x > 0 ? (F)1 : x < 0 ? (F)-1 : x;
    if constexpr (FN == TTI_ELEM_SIN) return sin(x);
    if constexpr (FN == TTI_ELEM_COS) return cos(x);
    if constexpr (FN == TTI_ELEM_ERF) return erf(x);
    if constexpr (FN == TTI_ELEM_LOG1P) return log1p(x);
    if constexpr (FN == TTI_ELEM_EXPM1) return expm1(x);
    if constexpr (FN == TTI_ELEM_FLOOR) return floor(x);
    if constexpr (FN == TTI_ELEM_ROUND) return rint(x);
    if constexpr (FN == TTI_ELEM_AFFINE) return fma(alpha, x, beta);
    if constexpr (FN == TTI_ELEM_RELU) return x < 0 ? (F)0 : x;
    if constexpr (FN == TTI_ELEM_RELU6) return x < 0 ? (F)0 : x > 6 ? (F)6 : x;
    if constexpr (FN == TTI_ELEM_SIGMOID) return tti_sigmoid(x);
    if constexpr (FN == TTI_ELEM_TANH) return tanh(x);
    if constexpr (FN == TTI_ELEM_GELU) return tti_gelu(x);
    if constexpr (FN == TTI_ELEM_GELU_TANH) return x * tti_sigmoid(tti_gelu_gate(x));
    if constexpr (FN == TTI_ELEM_SILU) return x * tti_sigmoid(x);
    if constexpr (FN == TTI_ELEM_ADD) return x + y;
    if constexpr (FN == TTI_ELEM_SUB) return x - y;
    if constexpr (FN == TTI_ELEM_MUL) return x * y;
    if constexpr (FN == TTI_ELEM_DIV) return x / y;
    if constexpr (FN == TTI_ELEM_MAXIMUM) return x != x || x > y ? x : y;
    if constexpr (FN == TTI_ELEM_MINIMUM) return x != x || x < y ? x : y;
    if constexpr (FN == TTI_ELEM_POW) return pow(x, y);
    if constexpr (FN == TTI_ELEM_EQUAL) return x == y ? (F)1 : (F)0;
    if constexpr (FN == TTI_ELEM_LESS) return x < y ? (F)1 : (F)0;
    if constexpr (FN == TTI_ELEM_LESS_EQUAL) return x <= y ? (F)1 : (F)0;
    if constexpr (FN == TTI_ELEM_KEEP) return y != 0 ? x : (F)0;
    if constexpr (FN == TTI_ELEM_RELU_GRAD) return x <= 0 ? (F)0 : y;
    if constexpr (FN == TTI_ELEM_RELU6_GRAD) return x <= 0 || x >= 6 ? (F)0 : y;
    if constexpr (FN == TTI_ELEM_SIGMOID_GRAD) return y * x * (1 - x);
    if constexpr (FN == TTI_ELEM_TANH_GRAD) return y * (1 - x * x);
    if constexpr (FN == TTI_ELEM_GELU_GRAD) return y * tti_gelu_slope(x);
    if constexpr (FN == TTI_ELEM_GELU_TANH_GRAD) return y * tti_gelu_tanh_slope(x);
    if constexpr (FN == TTI_ELEM_SILU_GRAD) return y * tti_silu_slope(x);
    return x;
}

/* x = fn(x, y) for N elements; fn is the same for all threads. */
template <int N, class F>
__device__ __forceinline__ void tti_elem_zip(int fn, F (&x)[N], const F (&y)[N]) {
    switch (fn) {
#define TTI_ELEM_CASE(name)                                  \
    case TTI_ELEM_##name:                                    \
        _Pragma("unroll") for (int j = 0; j < N; j++) x[j] = \
            tti_elem<TTI_ELEM_##name, F>(x[j], y[j], 0, 0);  \
        break;
        TTI_ELEM_ZIPS(TTI_ELEM_CASE)
#undef TTI_ELEM_CASE
    }
}

template <int N, class F>
__device__ __forceinline__ void tti_elem_run(int fn, F (&x)[N], const F (&y)[N], F alpha, F beta) {
    switch (fn) {
#define TTI_ELEM_CASE(name)                                        \
    case TTI_ELEM_##name:                                          \
        _Pragma("unroll") for (int j = 0; j < N; j++) x[j] =       \
            tti_elem<TTI_ELEM_##name, F>(x[j], y[j], alpha, beta); \
        break;
        TTI_ELEM_MAPS(TTI_ELEM_CASE)
        TTI_ELEM_ZIPS(TTI_ELEM_CASE)
        TTI_ELEM_GRADS(TTI_ELEM_CASE)
#undef TTI_ELEM_CASE
    }
}

#endif /* TTI_ELEMENTWISE_CUH */

/* elementwise.h - launchers of elementwise.cu, and the small programs that they run; C and C++.
 *
 * A program is an accumulator machine: it starts with one value of an input, each step computes a
 * new one from it and at most one other input.  Pointers are to device memory, 64-byte aligned; the
 * output may be the first input if both have the same bytes per element. */
#ifndef TTI_CUDA_ELEMENTWISE_H
#define TTI_CUDA_ELEMENTWISE_H

#include <cuda_runtime_api.h>

#include "backend/cuda/runtime/loop_nest.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Functions of one input, of two, and gradients (of y or x, and dy). */
#define TTI_ELEM_MATHS(X) \
    X(COPY)               \
    X(NEG)                \
    X(EXP)                \
    X(LOG)                \
    X(SQRT)               \
    X(ABS) X(SQUARE) X(SIGN) X(AFFINE) X(SIN) X(COS) X(ERF) X(LOG1P) X(EXPM1) X(FLOOR) X(ROUND)
#define TTI_ELEM_ACTS(X) X(RELU) X(RELU6) X(SIGMOID) X(TANH) X(GELU) X(GELU_TANH) X(SILU)
#define TTI_ELEM_MAPS(X) TTI_ELEM_MATHS(X) TTI_ELEM_ACTS(X)
#define TTI_ELEM_ZIPS(X) \
    X(ADD) X(SUB) X(MUL) X(DIV) X(MAXIMUM) X(MINIMUM) X(POW) X(EQUAL) X(LESS) X(LESS_EQUAL) X(KEEP)
#define TTI_ELEM_GRADS(X) \
    X(RELU_GRAD)          \
    X(RELU6_GRAD) X(SIGMOID_GRAD) X(TANH_GRAD) X(GELU_GRAD) X(GELU_TANH_GRAD) X(SILU_GRAD)

typedef enum tti_elem_fn {
#define TTI_ELEM_ENUM(name) TTI_ELEM_##name,
    TTI_ELEM_MAPS(TTI_ELEM_ENUM) TTI_ELEM_ZIPS(TTI_ELEM_ENUM) TTI_ELEM_GRADS(TTI_ELEM_ENUM)
#undef TTI_ELEM_ENUM
        TTI_ELEM_N
} tti_elem_fn;

enum { TTI_ELEM_STEPS = 16, TTI_ELEM_INPUTS = 16 };
enum { TTI_ELEM_NONE = 254, TTI_ELEM_SELF = 255 }; /* other: no second value; the same one */

typedef struct tti_elem_step {
    uint8_t fn;      /* of tti_elem_fn */
    uint8_t other;   /* input, or NONE or SELF */
    uint8_t swapped; /* 1: the accumulator is the second value */
    uint8_t dtype;   /* the result is rounded to it; to an integer: cut and held in its range */
    uint8_t wide;    /* 1: in double, for f64 and integers (tti_cuda_elem_any alone) */
    uint8_t unused[3];
    double alpha, beta; /* of affine */
} tti_elem_step;

typedef struct tti_elem_program {
    int n_in, n_steps;
    uint8_t first;                      /* input that the accumulator starts with */
    uint8_t out_dtype;                  /* that of the last step */
    uint8_t dtype[TTI_ELEM_INPUTS];     /* of the inputs */
    uint8_t is_scalar[TTI_ELEM_INPUTS]; /* 1: one element for all (tti_cuda_elem_chain) */
    tti_elem_step step[TTI_ELEM_STEPS];
} tti_elem_program;

/* True if there is a separate kernel for y = fn(a, b), values of from, results of to. */
bool tti_cuda_elem_has_direct(tti_elem_fn fn, tutti_dtype from, tutti_dtype to);
/* Launches that kernel; a, b, y [n]; b unused for functions of one input. */
cudaError_t tti_cuda_elem_direct(tti_elem_fn fn, tutti_dtype from, tutti_dtype to,
                                 const void *const *in, void *y, uint64_t n, cudaStream_t stream);

/* A program over inputs [n] or [1] of f32, bf16, f16, i32 or u8 -> y [n] of f32, bf16 or f16. */
cudaError_t tti_cuda_elem_chain(const tti_elem_program *program, const void *const *in, void *y,
                                uint64_t n, cudaStream_t stream);

/* A program over anything: operand 0 of the nest is y, 1 .. n_in are the inputs. */
cudaError_t tti_cuda_elem_any(const tti_elem_program *program, const tti_nest *nest,
                              const void *const *in, void *y, cudaStream_t stream);

/* y = fn(a, b), fn one of TTI_ELEM_ZIPS, or COPY of a alone, with repeated dimensions; dtype f32,
 * bf16 or f16; operands of the nest: y, a, b. */
cudaError_t tti_cuda_elem_broadcast(tti_elem_fn fn, tutti_dtype dtype, const tti_nest *nest,
                                    const void *const *in, void *y, cudaStream_t stream);

/* The gate of swiglu, of geglu, and of geglu by tanh. */
typedef enum tti_gate { TTI_GATE_SILU, TTI_GATE_GELU, TTI_GATE_GELU_TANH } tti_gate;

/* x [n_rows, 2 n_half]; y [n_rows, n_half] = gate(first half of x) * second half. */
typedef struct tti_gated {
    tti_gate gate;
    tutti_dtype dtype;  /* f32, bf16 or f16 */
    const void *x, *dy; /* dy NULL: computes y */
    void *out;          /* y; or dx, as x */
    uint64_t n_rows, n_half;
} tti_gated;

cudaError_t tti_cuda_gated(const tti_gated *gated, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_ELEMENTWISE_H */

/* amx.h - f32 matrix products on the tile unit of x86 processors (AMX). */
#ifndef TTI_CPU_AMX_H
#define TTI_CPU_AMX_H

#include "backend/cpu/cpu.h"

/* Applied to 32 rows of c when they are complete, while they are in the nearest caches. */
typedef enum tti_amx_finish {
    TTI_AMX_NOTHING,
    TTI_AMX_RELU,
    TTI_AMX_GELU,      /* by tanh, into more; c stays */
    TTI_AMX_GELU_GRAD, /* c *= the slope of gelu at other */
    TTI_AMX_ADD        /* c += other */
} tti_amx_finish;

/* c = a b + bias, or a b added to c, and what finishes it; m, n, k > 0, of any size. */
typedef struct tti_amx_product {
    tti_product g;
    const float *bias; /* [n] or NULL; not where g.add */
    float *sums; /* [m] receives the sum of each column of a as it is stored, rows in order; or
                    NULL. Only if g.trans_a is set and a_row is m. */
    tti_amx_finish finish;
    const float *other; /* [m], rows with the same stride as those of c */
    float *more;        /* the same */
} tti_amx_product;

/* True if the unit, where there is one, is the fastest for it. */
bool tti_amx_pays(const tti_product *g);

/* Scratch of a product with up to n columns and up to k summands, 64-byte aligned. */
size_t tti_amx_scratch_bytes(size_t n, size_t k);

/* On the calling thread; only where tti_amx_is_usable. */
void tti_amx_run(const tti_amx_product *product, void *scratch);

#endif /* TTI_CPU_AMX_H */

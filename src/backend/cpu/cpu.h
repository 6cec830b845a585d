/* cpu.h - the CPU backend's functions besides tti_backend_cpu, and how its files find each other.
 *
 * The vector files are compiled once for each instruction set (flags.cmake); each compilation gives
 * one tti_cpu_isa.  All of them compute the same bits: loops keep their order of sums, and nothing
 * is contracted to fused multiply-adds (cpu_backend_test compares them). */
#ifndef TTI_CPU_H
#define TTI_CPU_H

#include "backend/backend.h"

/* One instruction set. */
typedef struct tti_cpu_isa {
    const char *name;                 /* "avx512", "avx2", "generic" */
    const tti_kernel *const *kernels; /* families, each ended by .op == NULL; NULL ends the list */
    uint64_t (*hash_params)(const float *w, size_t n_elems, uint64_t first_index);
    double (*sum_squares)(const float *x, size_t n_elems);            /* as in tti_backend */
    void (*accumulate)(float *dst, const float *src, size_t n_elems); /* as in tti_backend */
    void (*accumulate_rounded)(float *dst, const float *src, size_t n_elems);
    /* y[j] = sum over rows of x[n_rows][n_cols], rows in order. */
    void (*sum_columns)(const float *x, size_t n_rows, size_t n_cols, float *y);
    /* x = max(x, 0) in place; NaN stays NaN. */
    void (*relu)(float *x, size_t n_elems);
    /* 16-bit floats to f32 and back: bf16, else f16. */
    void (*widen)(bool bf16, const uint16_t *x, float *y, size_t n_elems);
    void (*narrow)(bool bf16, const float *x, uint16_t *y, size_t n_elems);
} tti_cpu_isa;

/* The instruction sets that this process may use (levels.h), best first: i = 0, 1, ... until NULL.
 */
const tti_cpu_isa *tti_cpu_isa_at(int i);

/* Every kernel in the order of selection, the reference last: i = 0, 1, ... until NULL. */
const tti_kernel *tti_cpu_kernel_at(int i);

/* Called once by each compute thread (an OS thread) before it prepares or runs a kernel: one OpenMP
 * thread, denormals are zero.  Concerns only the calling thread. */
void tti_cpu_thread_init(void);

/* As hash of tti_backend.  It changes if a bit flips, or if two unequal elements are exchanged. */
uint64_t tti_cpu_hash_params(const float *w, size_t n_elems, uint64_t first_index);

/* ---- between the files of this folder ---- */

/* Kernels of onednn.c, ended by .op == NULL; empty without oneDNN. */
extern const tti_kernel tti_onednn_kernels[];
void tti_onednn_thread_init(void);
/* c[m][n] (+)= a[m][k] b[k][n]; trans: a is [k][m], b is [n][k]. */
typedef struct tti_product {
    size_t m, n, k;
    const float *a, *b;
    float *c;
    size_t a_row, b_row, c_row; /* elements from one row to the next, as they are stored */
    bool trans_a, trans_b;
    bool add; /* to what c holds */
} tti_product;

/* oneDNN's product on the calling thread, for kernels of others.  Fails without oneDNN. */
tutti_status tti_onednn_product(const tti_product *product);
/* Convolutions by products, of conv_taps.c; empty without oneDNN. */
extern const tti_kernel tti_conv_taps_kernels[];
/* Large products on the tile unit, of amx.c; none can run where there is no such unit. */
extern const tti_kernel tti_amx_kernels[];
/* True if build, processor and system let the calling process use the unit, which this asks the
 * system for.  Costs some microseconds; the answer is always the same. */
bool tti_amx_is_there(void);
/* True if that is of the level of this process. */
bool tti_amx_is_usable(void);
/* joins_products of the backend. */
bool tti_amx_joins(const tti_node *product);
/* "oneDNN 2.6.3", or "no oneDNN". */
void tti_onednn_describe(tti_str *str);

/* Body nodes of a fused node that run. */
enum { TTI_MAX_BODY = 64 };

/* Kernels for 16-bit floats that use the kernels for f32. */
extern const tti_kernel tti_narrow_kernel;
extern const tti_kernel tti_reference_kernel;
extern const tti_kernel tti_null_kernel; /* null.c */

#endif /* TTI_CPU_H */

/* wgmma.h - launchers of the matrix products on Hopper's tensor cores (wgmma.cu). */
#ifndef TTI_CUDA_WGMMA_H
#define TTI_CUDA_WGMMA_H

#include <cuda_runtime_api.h>

#include <stdint.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The operation on z[m][n] = a[m][k] op(b) before it is stored. */
typedef enum tti_cuda_wgmma_kind {
    TTI_WGMMA_BIAS,      /* d = z + bias; b is stored [n][k]                                   */
    TTI_WGMMA_GELU,      /* aux = z + bias, d = gelu(aux); b is stored [n][k]                  */
    TTI_WGMMA_GELU_GRAD, /* d = z gelu'(aux), sums = its columns' if asked for; b is [k][n]   */
    TTI_WGMMA_EXPS,      /* d = e^(z - base), and the results of rows; bf16, b is stored [n][k] */
    TTI_WGMMA_PUSH,      /* d = z where rows are the own rank's, aux where the other's; [n][k] */
    TTI_WGMMA_PUSH_BACK  /* the same with b [k][n]                                            */
} tti_cuda_wgmma_kind;

/* Values of 16 bits in rows without gaps, aligned to 16 bytes; n and k are multiples of 8.  Filled
 * from zeros: without pointers its bytes are a key. */
typedef struct tti_cuda_wgmma_desc {
    tti_cuda_wgmma_kind kind;
    bool exact;        /* gelu by erf; else by tanh */
    bool summed;       /* GELU_GRAD: there are sums */
    tutti_dtype dtype; /* bf16, f16: of all but sums */
    int64_t m, n, k;
    int rank;                 /* PUSH: the own one of two, to which rows belong by turns, in .. */
    int64_t part_rows;        /* .. parts of so many, a multiple of TTI_WGMMA_UNIT */
    const void *a, *b, *bias; /* bias [n], NULL: zeros */
    void *d, *aux;            /* [m][n]; PUSH: aux [m / 2][n], which may be of the other device */
    float *sums, *partials;   /* summed: [n]; [tti_cuda_wgmma_parts(m)][n], scratch */
    /* EXPS: base [m]; exponents are at most `most`. For each row and part of TTI_WGMMA_COLS columns
     * the sum of d, before it is rounded, and the largest z; [parts][m] each. own [m]: z of the
     * row's label, NaN if it is not the first maximum of its part; not written if the label is not
     * a column. */
    float most;
    const float *base;
    const int32_t *labels; /* [m] */
    float *row_sums, *row_bests, *own;
    /* BIAS, GELU: rows of the other rank have arrived when *rows_arrived, which its device writes,
     * has reached *wanted; waiting ends if *state is not 0, and sets it to 1 when the time is over.
     * The own rows come first.  NULL: all rows are present. */
    const uint64_t *rows_arrived, *wanted;
    uint32_t *state;
    uint64_t timeout_ns;
} tti_cuda_wgmma_desc;

enum {
    TTI_WGMMA_UNIT = 256, /* rows that are processed together */
    TTI_WGMMA_COLS = 192  /* columns of a part of EXPS */
};

/* True if the kernels were built and the open device, of this capability (90), can run them. */
bool tti_cuda_wgmma_has(int capability);

/* Tiles that hold these rows; the last one may be partly beyond them. */
int64_t tti_cuda_wgmma_parts(int64_t m);

/* The share of the tensor cores' work that is inside m and n, 0 to 1. */
double tti_cuda_wgmma_use(int64_t m, int64_t n);

cudaError_t tti_cuda_wgmma(const tti_cuda_wgmma_desc *desc, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_WGMMA_H */

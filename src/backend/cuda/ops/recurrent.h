/* recurrent.h - launchers of the cells of LSTM and GRU (recurrent.cu): one step of all samples.
 *
 * What goes from step to step is kept in f32 (f64 for f64), called wide below; values are of
 * dtype.  An LSTM has gates i f g o, a GRU r z n and w_hn h + b_hn, as in
 * src/ops/sequence/recurrent.c. */
#ifndef TTI_CUDA_RECURRENT_H
#define TTI_CUDA_RECURRENT_H

#include <cuda_runtime_api.h>

#include "tutti/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tti_cuda_cell {
    tutti_dtype dtype;
    int64_t b, t, h; /* samples, steps, hidden elements */
    int64_t step;    /* the one to do */
} tti_cuda_cell;

/* wide to[n] = from[n] (NULL: zeros), and low[n], the same values. */
cudaError_t tti_cuda_cell_start(tutti_dtype dtype, int64_t n, const void *from, void *wide,
                                void *low, cudaStream_t stream);
/* to[n] = wide from[n]. */
cudaError_t tti_cuda_cell_end(tutti_dtype dtype, int64_t n, const void *from, void *to,
                              cudaStream_t stream);

typedef struct tti_cuda_cell_args {
    const void *x_part;      /* wide [B,T,4H]: w_ih x; may be gates, where these are wide */
    const void *h_part;      /* wide [B,nH]: w_hh h; n: 4 of an LSTM, 3 of a GRU           */
    const void *b_ih, *b_hh; /* [nH] */
    void *y, *c, *gates;     /* [B,T,H], [B,T,H] (LSTM), [B,T,4H] */
    void *carry;             /* wide [B,H]: c of an LSTM, h of a GRU; before, then after the step */
    void *h_copy;            /* [B,H]: y of this step again */
} tti_cuda_cell_args;

cudaError_t tti_cuda_lstm_cell(const tti_cuda_cell *cell, const tti_cuda_cell_args *args,
                               cudaStream_t stream);
cudaError_t tti_cuda_gru_cell(const tti_cuda_cell *cell, const tti_cuda_cell_args *args,
                              cudaStream_t stream);

typedef struct tti_cuda_cell_grad_args {
    const void *dy, *gates; /* [B,T,H], [B,T,4H] */
    const void *states;     /* [B,T,H]: c of an LSTM, y of a GRU */
    const void *first;      /* [B,H]: the state before step 0; NULL: zeros */
    void *di, *dz;          /* [B,T,nH]; an LSTM has dz only */
    void *dz_copy;          /* [B,nH]: dz of this step again */
    void *dh, *dc;          /* wide [B,H]; of a GRU dh leaves times z, to be added to */
} tti_cuda_cell_grad_args;

cudaError_t tti_cuda_lstm_cell_grad(const tti_cuda_cell *cell, const tti_cuda_cell_grad_args *args,
                                    cudaStream_t stream);
cudaError_t tti_cuda_gru_cell_grad(const tti_cuda_cell *cell, const tti_cuda_cell_grad_args *args,
                                   cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_RECURRENT_H */

/* functional.h - the layers of ops.h for weights that the caller passes: for models that create,
 * share or compute their parameters.
 *
 * Shapes, defaults and errors are those of tutti/ops.h.  A weight is any value: a parameter, a
 * buffer, a constant, or the result of other operations.
 */
#ifndef TUTTI_FUNCTIONAL_H
#define TUTTI_FUNCTIONAL_H

#include "tutti/ops.h"

/* The sliding window of a convolution or pooling over the last two dimensions of x.  Pairs are
 * [height, width]. */
typedef struct tutti_window {
    int64_t kernel[2];   /* pooling only: a convolution takes it from its weight */
    int64_t stride[2];   /* 0: 1 for a convolution, the kernel for pooling */
    int64_t pad[2];      /* on both sides                                 */
    int64_t dilation[2]; /* convolution only; 0: 1 */
    int64_t groups;      /* convolution only; 0: 1 */
} tutti_window;

TUTTI_EXTERN_C_BEGIN

/* y[..,N] = x[..,K] weight[N,K]^T + bias[N]; bias may be NULL. */
TUTTI_API tutti_value *tutti_linear_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                                       tutti_value *bias);

/* x[N,C,H,W] * weight[O,C/groups,Kh,Kw] + bias[O] -> y[N,O,P,Q]; bias may be NULL. */
TUTTI_API tutti_value *tutti_conv2d_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                                       tutti_value *bias, const tutti_window *window);

/* The transposed convolution: x[N,C,H,W], weight[C,O/groups,Kh,Kw] -> y[N,O,P,Q] with
 * P = (H - 1) stride - 2 pad + dilation (Kh - 1) + 1 + extra, 0 <= extra < stride; extra, the rows
 * and columns added at the end, may be NULL: none. */
TUTTI_API tutti_value *tutti_conv_transpose2d_of(tutti_graph *g, tutti_value *x,
                                                 tutti_value *weight, tutti_value *bias,
                                                 const tutti_window *window,
                                                 const int64_t extra[2]);

/* Pooling as in ops.h, with kernel, stride and padding per dimension. */
TUTTI_API tutti_value *tutti_max_pool2d_of(tutti_graph *g, tutti_value *x,
                                           const tutti_window *window);
TUTTI_API tutti_value *tutti_avg_pool2d_of(tutti_graph *g, tutti_value *x,
                                           const tutti_window *window, bool exclude_pad);

/* The norms of ops.h.  A NULL weight stands for ones, a NULL bias for zeros. */
TUTTI_API tutti_value *tutti_layer_norm_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                                           tutti_value *bias, double eps);
TUTTI_API tutti_value *tutti_rms_norm_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                                         double eps);
TUTTI_API tutti_value *tutti_group_norm_of(tutti_graph *g, tutti_value *x, int64_t groups,
                                           tutti_value *weight, tutti_value *bias, double eps);

typedef struct tutti_batch_norm_tensors {
    tutti_value *weight, *bias;              /* [C]; NULL: ones, zeros                       */
    tutti_value *running_mean, *running_var; /* [C], buffers (tutti_buffer), whose momentum is
                                                that of the layer                            */
    double eps;                              /* 0: 1e-5                                      */
    bool sync;                               /* as in tutti_batch_norm_desc                  */
    /* Where n_calls > 1 calls share the buffers: the number of this one, from 0, and the momentum m
     * of one call.  The buffers' momentum is that of all, 1 - (1 - m)^n_calls. */
    int n_calls, call;
    double momentum;
} tutti_batch_norm_tensors;

/* tutti_batch_norm2d with these tensors. */
TUTTI_API tutti_value *tutti_batch_norm_of(tutti_graph *g, tutti_value *x,
                                           const tutti_batch_norm_tensors *tensors,
                                           const char *name);

/* Updates a buffer of momentum m (tutti_buffer) after each training step: (1 - m) * buffer + m *
 * mean, the average of value over the shards of the global batch, weighted by their samples.
 * value: f32, of the buffer's shape, one result for the whole shard rather than per sample; it may
 * depend on the buffer.  Call it once per buffer.  Does nothing in a graph for evaluation. */
TUTTI_API void tutti_move_buffer(tutti_graph *g, tutti_value *buffer, tutti_value *value);

typedef struct tutti_recurrent_tensors {
    tutti_value *weight_ih, *weight_hh; /* [nH,I], [nH,H]; LSTM n = 4, GRU n = 3           */
    tutti_value *bias_ih, *bias_hh;     /* [nH]; both NULL: zeros                          */
    tutti_value *h0, *c0; /* [B,H]: initial state; both NULL: zeros; a GRU has no c0 */
} tutti_recurrent_tensors;

/* One layer: x[B,T,I] -> y[B,T,H]. */
TUTTI_API tutti_value *tutti_lstm_of(tutti_graph *g, tutti_value *x,
                                     const tutti_recurrent_tensors *tensors);
TUTTI_API tutti_value *tutti_gru_of(tutti_graph *g, tutti_value *x,
                                    const tutti_recurrent_tensors *tensors);

TUTTI_EXTERN_C_END

#endif /* TUTTI_FUNCTIONAL_H */

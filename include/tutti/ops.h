/* ops.h - operations for models: every call adds a node to a graph and returns its value.
 *
 * Errors:    a call with bad shapes returns NULL, a call given NULL returns NULL, and
 *            tutti_graph_check reports the first failure with layer name and shapes.
 *
 * Types:     floating inputs of one call have one dtype; the result has the same, unless said
 *            otherwise.  Negative axes count from the end.
 * Names:     layers with parameters and dropout need a name, unique in the graph, up to 200 bytes.
 * Structs:   descs are zero-default and not kept.
 * Ownership: values belong to the graph.   Threads: one graph is built by one thread at a time.
 */
#ifndef TUTTI_OPS_H
#define TUTTI_OPS_H

#include "tutti/graph.h"

TUTTI_EXTERN_C_BEGIN

/* ---- layers with parameters ---- */

typedef struct tutti_linear_desc {
    int64_t n_out;          /* features of the result, >= 1                                     */
    bool no_bias;           /* no parameter NAME.bias                                           */
    const tutti_init *init; /* initial weight; the bias is then zero; NULL: PyTorch's default, both
                               uniform within 1 / sqrt(n_in) */
} tutti_linear_desc;

/* y[..,n_out] = x[..,K] w^T + b, with parameters NAME.weight [n_out,K] and NAME.bias [n_out]. */
TUTTI_API tutti_value *tutti_linear(tutti_graph *g, tutti_value *x, int64_t n_out,
                                    const char *name);
TUTTI_API tutti_value *tutti_linear_with(tutti_graph *g, tutti_value *x,
                                         const tutti_linear_desc *desc, const char *name);

typedef struct tutti_conv2d_desc {
    int64_t n_out;              /* output channels, >= 1                               */
    int64_t kernel;             /* height and width, >= 1                              */
    int64_t kernel_h, kernel_w; /* 0: kernel                                           */
    int64_t stride;             /* 0: 1                                                */
    int64_t pad;                /* zeros on each side                                  */
    int64_t dilation;           /* step between kernel elements; 0: 1                  */
    int64_t groups;             /* divides input and output channels; 0: 1             */
    bool no_bias;               /* no parameter NAME.bias                              */
    const tutti_init *init;     /* as in tutti_linear_desc, fan_in = C/groups * area   */
} tutti_conv2d_desc;

/* x[N,C,H,W] -> y[N,n_out,P,Q], P = (H + 2 pad - dilation (kernel_h - 1) - 1) / stride + 1, with
 * parameters NAME.weight [n_out, C/groups, kernel_h, kernel_w] and NAME.bias [n_out]. */
TUTTI_API tutti_value *tutti_conv2d(tutti_graph *g, tutti_value *x, const tutti_conv2d_desc *desc,
                                    const char *name);

typedef struct tutti_embedding_desc {
    int64_t n_rows;         /* rows of the table: number of ids, >= 1 */
    int64_t n_out;          /* elements of a row, >= 1                              */
    const tutti_init *init; /* initial table; NULL: normal with deviation 1 */
} tutti_embedding_desc;

/* ids i32[..] -> y[..,n_out]: rows of the parameter NAME.weight [n_rows,n_out]; an id outside 0 ..
 * n_rows-1 gives zeros. */
TUTTI_API tutti_value *tutti_embedding(tutti_graph *g, tutti_value *ids,
                                       const tutti_embedding_desc *desc, const char *name);

/* ---- normalisation ---- */

typedef struct tutti_batch_norm_desc {
    double momentum;        /* momentum of the running statistics, 0 < momentum <= 1; 0: 0.1 */
    double eps;             /* added to the variance; 0: 1e-5                                   */
    bool sync;              /* statistics over all shards of the batch (SyncBatchNorm); implied by
                               tutti_graph_set_sync_batch_norm */
    const tutti_init *init; /* initial weight; NULL: ones */
} tutti_batch_norm_desc;

/* y = weight (x - mean) / sqrt(var + eps) + bias for each channel of x[N,C,..], with parameters
 * NAME.weight, NAME.bias [C] and buffers NAME.running_mean, NAME.running_var [C].  In training,
 * mean and variance are those of the real samples of the shard (or of all shards).  The graph then
 * has the outputs "stat.NAME.running_mean" and "stat.NAME.running_var" and one input "rows" i32[]:
 * the number of real samples of the shard, which come first.  In evaluation, mean and variance are
 * the running ones. desc NULL: all defaults. */
TUTTI_API tutti_value *tutti_batch_norm2d(tutti_graph *g, tutti_value *x,
                                          const tutti_batch_norm_desc *desc, const char *name);

typedef struct tutti_norm_desc {
    double eps;   /* added to the variance; 0: 1e-5               */
    bool no_bias; /* layer norm without the parameter NAME.bias   */
} tutti_norm_desc;

/* Normalizes each row of the last dimension of x[..,K]: y = weight (x - mean) / sqrt(var + eps) +
 * bias, with parameters NAME.weight, NAME.bias [K]. desc NULL: all defaults. */
TUTTI_API tutti_value *tutti_layer_norm(tutti_graph *g, tutti_value *x, const tutti_norm_desc *desc,
                                        const char *name);

/* Normalizes each row of the last dimension: y = weight x / sqrt(mean of x^2 + eps), with the
 * parameter NAME.weight [K]. */
TUTTI_API tutti_value *tutti_rms_norm(tutti_graph *g, tutti_value *x, const tutti_norm_desc *desc,
                                      const char *name);

/* Layer norm over each of `groups` groups of channels of x[N,C,..] with all their positions;
 * parameters NAME.weight, NAME.bias [C]. groups divides C. */
TUTTI_API tutti_value *tutti_group_norm(tutti_graph *g, tutti_value *x, int64_t groups,
                                        const tutti_norm_desc *desc, const char *name);

/* ---- random ---- */

/* In training y = x / (1 - p) with probability 1 - p, else 0; in evaluation y = x.  0 <= p < 1. The
 * mask depends on seed, name, step and the sample's position in the global batch. */
TUTTI_API tutti_value *tutti_dropout(tutti_graph *g, tutti_value *x, double p, const char *name);

/* Drops whole samples: one draw for each sample of x[N,..] (stochastic depth). */
TUTTI_API tutti_value *tutti_drop_path(tutti_graph *g, tutti_value *x, double p, const char *name);

/* Random numbers of the shape of x[N,..], which is not read: uniform in 0 .. 1 (1 excluded), or
 * normal with deviation 1.  They depend on what dropout's mask depends on.  No gradient. */
TUTTI_API tutti_value *tutti_noise(tutti_graph *g, tutti_value *x, bool normal, const char *name);

/* ---- element by element: y has x's shape ---- */

TUTTI_API tutti_value *tutti_relu(tutti_graph *g, tutti_value *x);      /* max(x, 0)       */
TUTTI_API tutti_value *tutti_relu6(tutti_graph *g, tutti_value *x);     /* min(max(x, 0), 6) */
TUTTI_API tutti_value *tutti_sigmoid(tutti_graph *g, tutti_value *x);   /* 1 / (1 + e^-x)  */
TUTTI_API tutti_value *tutti_tanh(tutti_graph *g, tutti_value *x);      /* tanh x          */
TUTTI_API tutti_value *tutti_gelu(tutti_graph *g, tutti_value *x);      /* x Phi(x), exact */
TUTTI_API tutti_value *tutti_gelu_tanh(tutti_graph *g, tutti_value *x); /* Phi by tanh     */
TUTTI_API tutti_value *tutti_silu(tutti_graph *g, tutti_value *x);      /* x / (1 + e^-x)  */
TUTTI_API tutti_value *tutti_neg(tutti_graph *g, tutti_value *x);       /* -x              */
TUTTI_API tutti_value *tutti_exp(tutti_graph *g, tutti_value *x);       /* e^x             */
TUTTI_API tutti_value *tutti_log(tutti_graph *g, tutti_value *x);       /* ln x            */
TUTTI_API tutti_value *tutti_sqrt(tutti_graph *g, tutti_value *x);      /* x^(1/2)         */
TUTTI_API tutti_value *tutti_abs(tutti_graph *g, tutti_value *x);       /* |x|             */
TUTTI_API tutti_value *tutti_square(tutti_graph *g, tutti_value *x);    /* x^2             */
TUTTI_API tutti_value *tutti_sign(tutti_graph *g, tutti_value *x);      /* -1, 0, 1; no gradient */

TUTTI_API tutti_value *tutti_sin(tutti_graph *g, tutti_value *x);
TUTTI_API tutti_value *tutti_cos(tutti_graph *g, tutti_value *x);
TUTTI_API tutti_value *tutti_erf(tutti_graph *g, tutti_value *x);
TUTTI_API tutti_value *tutti_log1p(tutti_graph *g, tutti_value *x); /* ln(1 + x)  */
TUTTI_API tutti_value *tutti_expm1(tutti_graph *g, tutti_value *x); /* e^x - 1    */
/* The largest integer up to x; the nearest one, of two the even one; no gradient. */
TUTTI_API tutti_value *tutti_floor(tutti_graph *g, tutti_value *x);
TUTTI_API tutti_value *tutti_round(tutti_graph *g, tutti_value *x);

/* x[..,2K] = (a, b) -> y[..,K] = silu(a) b, where a and b are the halves of the last dimension. */
TUTTI_API tutti_value *tutti_swiglu(tutti_graph *g, tutti_value *x);

/* alpha x + beta */
TUTTI_API tutti_value *tutti_affine(tutti_graph *g, tutti_value *x, double alpha, double beta);

/* Converts x to another dtype, including integers.  To integers: truncates towards zero and
 * saturates. */
TUTTI_API tutti_value *tutti_cast(tutti_graph *g, tutti_value *x, tutti_dtype dtype);

/* ---- two inputs, broadcast as in numpy ---- */

TUTTI_API tutti_value *tutti_add(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_sub(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_mul(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_div(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_maximum(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_minimum(tutti_graph *g, tutti_value *a, tutti_value *b);

TUTTI_API tutti_value *tutti_pow(tutti_graph *g, tutti_value *a, tutti_value *b); /* a^b */

/* 1 where the relation holds, else 0; nothing holds for NaN.  No gradient. */
TUTTI_API tutti_value *tutti_equal(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_less(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_less_equal(tutti_graph *g, tutti_value *a, tutti_value *b);

/* x where mask is not 0, else 0 (also if x is NaN there).  No gradient for mask. */
TUTTI_API tutti_value *tutti_keep(tutti_graph *g, tutti_value *x, tutti_value *mask);

/* a where mask is 1, b where mask is 0.  No gradient for mask. */
TUTTI_API tutti_value *tutti_where(tutti_graph *g, tutti_value *mask, tutti_value *a,
                                   tutti_value *b);

/* Repeats x to shape; sums x to a shape that broadcasts to the shape of x. */
TUTTI_API tutti_value *tutti_broadcast_to(tutti_graph *g, tutti_value *x, const tutti_shape *shape);
TUTTI_API tutti_value *tutti_sum_to(tutti_graph *g, tutti_value *x, const tutti_shape *shape);

/* ---- products ---- */

/* y[..,M,N] = a[..,M,K] b[..,K,N]; leading dimensions are equal, or b is 2-D and is used for all of
 * them. trans: the operand is stored with its last two dimensions exchanged. */
TUTTI_API tutti_value *tutti_matmul(tutti_graph *g, tutti_value *a, tutti_value *b);
TUTTI_API tutti_value *tutti_matmul_with(tutti_graph *g, tutti_value *a, tutti_value *b,
                                         bool trans_a, bool trans_b);

/* Experts: y[S,N] = x[S,K] times matrix ids[s] of w[E,K,N] for each row s; trans_w: w is stored
 * [E,N,K].  A row whose id is outside 0 .. E-1 gives zeros. */
TUTTI_API tutti_value *tutti_grouped_matmul(tutti_graph *g, tutti_value *x, tutti_value *w,
                                            tutti_value *ids, bool trans_w);

/* ---- pooling: x[N,C,H,W] -> y[N,C,P,Q] ---- */

typedef struct tutti_pool2d_desc {
    int64_t kernel;             /* height and width                                    */
    int64_t kernel_h, kernel_w; /* 0: kernel                                           */
    int64_t stride;             /* 0: as the kernel                                    */
    int64_t pad;                /* on each side, at most half the kernel               */
    bool exclude_pad;           /* average: divide by the number of elements inside x  */
} tutti_pool2d_desc;

/* The maximum of each window of at most 255 elements. */
TUTTI_API tutti_value *tutti_max_pool2d(tutti_graph *g, tutti_value *x, int64_t kernel);
TUTTI_API tutti_value *tutti_max_pool2d_with(tutti_graph *g, tutti_value *x,
                                             const tutti_pool2d_desc *desc);

/* The mean of each window; elements outside x count as zeros unless exclude_pad is set. */
TUTTI_API tutti_value *tutti_avg_pool2d(tutti_graph *g, tutti_value *x, int64_t kernel);
TUTTI_API tutti_value *tutti_avg_pool2d_with(tutti_graph *g, tutti_value *x,
                                             const tutti_pool2d_desc *desc);

/* Windows chosen so that y is [N,C,out_h,out_w]: rows floor(p H / out_h) to
 * ceil((p + 1) H / out_h) - 1, columns likewise. */
TUTTI_API tutti_value *tutti_adaptive_avg_pool2d(tutti_graph *g, tutti_value *x, int64_t out_h,
                                                 int64_t out_w);
TUTTI_API tutti_value *tutti_adaptive_max_pool2d(tutti_graph *g, tutti_value *x, int64_t out_h,
                                                 int64_t out_w);

/* Upsampling as in PyTorch.  Nearest: repeats every element scale x scale times.  Bilinear: y is
 * [N,C,out_h,out_w], which may also be smaller than x; align_corners aligns the centres of the
 * corner elements, otherwise the edges of the planes are aligned. */
TUTTI_API tutti_value *tutti_upsample_nearest2d(tutti_graph *g, tutti_value *x, int64_t scale);
TUTTI_API tutti_value *tutti_upsample_bilinear2d(tutti_graph *g, tutti_value *x, int64_t out_h,
                                                 int64_t out_w, bool align_corners);

/* ---- shape ---- */

/* The same elements in row-major order; one dimension of shape may be -1 and takes the rest. */
TUTTI_API tutti_value *tutti_reshape(tutti_graph *g, tutti_value *x, const tutti_shape *shape);

/* x[N, ...] -> y[N, everything else] */
TUTTI_API tutti_value *tutti_flatten(tutti_graph *g, tutti_value *x);

/* transpose exchanges two dimensions; permute fills dimension d of y from dimension perm[d] of x.
 */
TUTTI_API tutti_value *tutti_transpose(tutti_graph *g, tutti_value *x, int dim_a, int dim_b);
TUTTI_API tutti_value *tutti_permute(tutti_graph *g, tutti_value *x, const int *perm, int n_perm);

/* Joins 1 to 16 values along axis; their other dimensions are equal. */
TUTTI_API tutti_value *tutti_concat(tutti_graph *g, tutti_value *const *values, int n_values,
                                    int axis);

/* len elements along axis, beginning at start. */
TUTTI_API tutti_value *tutti_slice(tutti_graph *g, tutti_value *x, int axis, int64_t start,
                                   int64_t len);

/* Selects element index along axis and removes the axis, which must not be the batch axis. */
TUTTI_API tutti_value *tutti_select(tutti_graph *g, tutti_value *x, int axis, int64_t index);

/* out[0 .. n_parts-1] = equal slices along axis; all NULL on a failure. */
TUTTI_API void tutti_split(tutti_graph *g, tutti_value *x, int axis, int n_parts,
                           tutti_value **out);

/* Pads x with `before` and `after` zeros along axis. */
TUTTI_API tutti_value *tutti_pad(tutti_graph *g, tutti_value *x, int axis, int64_t before,
                                 int64_t after);

/* y = x, and no gradient flows to x. */
TUTTI_API tutti_value *tutti_stop_gradient(tutti_graph *g, tutti_value *x);

/* table[V,C], ids i32[..] -> y[..,C]: rows of the table; an id outside 0 .. V-1 gives zeros. */
TUTTI_API tutti_value *tutti_lookup(tutti_graph *g, tutti_value *table, tutti_value *ids);

/* The elements of x at ids i32[..] along axis; the shape of ids replaces that dimension.  An id
 * outside gives zeros. */
TUTTI_API tutti_value *tutti_gather(tutti_graph *g, tutti_value *x, tutti_value *ids, int axis);

/* Running sums along axis. */
TUTTI_API tutti_value *tutti_cumsum(tutti_graph *g, tutti_value *x, int axis);

typedef struct tutti_sorted {
    tutti_value *values, *places; /* places i32: the index of each value in x; no gradient */
} tutti_sorted;

/* Sorts x along axis.  Equal elements keep their order; NaN counts as the largest. */
TUTTI_API tutti_sorted tutti_sort(tutti_graph *g, tutti_value *x, int axis, bool descending);

/* y[.., j, ..] = x[.., ids[.., j, ..], ..] along axis.  ids i32 has the shape of x, except along
 * axis. An id outside gives zero. */
TUTTI_API tutti_value *tutti_take_along(tutti_graph *g, tutti_value *x, tutti_value *ids, int axis);

/* The inverse: starts with n zeros along axis and adds x at ids, which have the shape of x. */
TUTTI_API tutti_value *tutti_put_along(tutti_graph *g, tutti_value *x, tutti_value *ids, int axis,
                                       int64_t n);

/* ---- reductions ---- */

typedef struct tutti_axes {
    int n;                    /* axes named below; 0: all                   */
    int axis[TUTTI_MAX_DIMS]; /* negative: from the end                     */
    bool keep;                /* reduced dimensions stay in the shape as 1  */
} tutti_axes;

/* axes NULL: all, giving a scalar.  The mean over the samples of a batch cannot be split over
 * workers; use tutti_sum and a count. */
TUTTI_API tutti_value *tutti_sum(tutti_graph *g, tutti_value *x, const tutti_axes *axes);
TUTTI_API tutti_value *tutti_mean(tutti_graph *g, tutti_value *x, const tutti_axes *axes);
TUTTI_API tutti_value *tutti_max(tutti_graph *g, tutti_value *x, const tutti_axes *axes);

/* Index of the first maximum along axis, i32, without that axis; no gradient. */
TUTTI_API tutti_value *tutti_argmax(tutti_graph *g, tutti_value *x, int axis);

/* labels i32 [..] -> f32 [.., n_classes]: 1 at the label, else 0; a label outside 0 ..
 * n_classes-1 gives a row of zeros; no gradient. */
TUTTI_API tutti_value *tutti_one_hot(tutti_graph *g, tutti_value *labels, int64_t n_classes);

/* y_i = e^x_i / sum_j e^x_j along axis, and its logarithm. */
TUTTI_API tutti_value *tutti_softmax(tutti_graph *g, tutti_value *x, int axis);
TUTTI_API tutti_value *tutti_log_softmax(tutti_graph *g, tutti_value *x, int axis);

/* ---- attention ---- */

typedef struct tutti_attention_desc {
    int64_t heads;    /* query heads; 0: 1 */
    int64_t kv_heads; /* key and value heads, divides heads; 0: heads */
    bool causal;  /* a position attends to itself and earlier positions (ignored when decoding) */
    double scale; /* factor of the attention scores; 0: 1 / sqrt(D) */
} tutti_attention_desc;

/* qkv[B,T,(heads + 2 kv_heads) D] -> y[B,T,heads D].  A position of qkv holds the query heads, then
 * the key heads, then the value heads, as one linear layer outputs them; query head h uses key head
 * h / (heads / kv_heads).  y = softmax(scale q k^T) v.  lengths i32[B] or NULL: in sample b keys
 * from position lengths[b] on are masked; a query without unmasked keys gives zeros. */
TUTTI_API tutti_value *tutti_attention(tutti_graph *g, tutti_value *qkv, tutti_value *lengths,
                                       const tutti_attention_desc *desc);

typedef struct tutti_sdpa_desc {
    int64_t heads;     /* query heads; 0: 1                                                 */
    int64_t kv_heads;  /* key and value heads, divides heads; 0: heads                      */
    bool causal;       /* query t sees keys 0 .. t                                          */
    int64_t window;    /* only keys fewer positions away than this are seen; 0: all         */
    double scale;      /* factor of the scores; 0: 1 / sqrt(D)                              */
    double softcap;    /* c: scores become c tanh(score / c), before the bias; 0: they stay */
    tutti_value *bias; /* [1|B,1|heads,1|T,S], added to the scores; -inf hides a key; or NULL */
    tutti_value *query_segments, *key_segments; /* i32 [B,T], [B,S]: a query sees keys of its own
                                                   segment; both NULL: all keys            */
    double dropout;      /* probability that a weight is dropped while training, 0 .. below 1 */
    const char *name;    /* of the layer, for its dropped weights; NULL without dropout       */
    int64_t bias_period; /* P > 0: the bias has P rows, of which sample b uses row b % P   */
} tutti_sdpa_desc;

/* Scaled dot-product attention with separate inputs: q[B,T,heads D], k[B,S,kv_heads D],
 * v[B,S,kv_heads E] -> y[B,T,heads E] = softmax(scale q k^T + bias) v.  A query that sees no key
 * gives zeros.  desc may be NULL. */
TUTTI_API tutti_value *tutti_sdpa(tutti_graph *g, tutti_value *q, tutti_value *k, tutti_value *v,
                                  const tutti_sdpa_desc *desc);

typedef struct tutti_cached_attention {
    tutti_value *y;                 /* [B,1,heads D]                        */
    tutti_value *k_cache, *v_cache; /* the caches with the new row in place */
} tutti_cached_attention;

/* For decoding: qkv[B,1,..] is position pos, i32[1], of its sample; its key and value are stored in
 * row pos of the caches [B,Tmax,kv_heads D], and its query attends to rows 0 .. pos.  A pos outside
 * the cache gives zeros.  No gradient. */
TUTTI_API tutti_cached_attention tutti_attention_cached(tutti_graph *g, tutti_value *qkv,
                                                        tutti_value *k_cache, tutti_value *v_cache,
                                                        tutti_value *pos,
                                                        const tutti_attention_desc *desc);

typedef struct tutti_rotary_desc {
    int64_t heads; /* the number of heads to rotate, from the first; others are copied: for qkv,
                      the query heads and the key heads                                        */
    int64_t dim;   /* width D of a head, even                                                  */
    double base;   /* of the wave lengths; 0: 10000                                            */
    int64_t start; /* position of the first element                                            */
} tutti_rotary_desc;

/* Rotary positions: in x[B,T,..] elements (i, i + D/2) of each rotated head are rotated by
 * (start + pos + t) base^(-2 i / D), as in GPT-NeoX and LLaMA.  pos i32[1] or NULL: 0. */
TUTTI_API tutti_value *tutti_rotary(tutti_graph *g, tutti_value *x, tutti_value *pos,
                                    const tutti_rotary_desc *desc);

/* ---- recurrent ---- */

typedef struct tutti_recurrent_desc {
    int64_t n_hidden; /* H, >= 1                                                       */
    int n_layers;     /* stacked layers; 0: 1 */
    double dropout;   /* between layers, 0 <= dropout < 1, named NAME.dropout_l0, ..   */
} tutti_recurrent_desc;

/* x[B,T,I] -> y[B,T,H]: the hidden state of the last layer after every step; the initial state is
 * zero.  Parameters are NAME.weight_ih_l0 [nH,I], NAME.weight_hh_l0 [nH,H], NAME.bias_ih_l0 and
 * NAME.bias_hh_l0 [nH], and _l1 .. for further layers.  Equations and order of gates are PyTorch's:
 * LSTM n = 4 (i, f, g, o), GRU n = 3 (r, z, n). */
TUTTI_API tutti_value *tutti_lstm(tutti_graph *g, tutti_value *x, const tutti_recurrent_desc *desc,
                                  const char *name);
TUTTI_API tutti_value *tutti_gru(tutti_graph *g, tutti_value *x, const tutti_recurrent_desc *desc,
                                 const char *name);

/* ---- losses: sums and counts, f32 scalars; the trainer divides the total sum once ---- */

typedef struct tutti_loss {
    tutti_value *sum;     /* sum over the rows that count; the gradient starts here */
    tutti_value *count;   /* rows (cross entropy) or elements (squared error)       */
    tutti_value *correct; /* rows whose first maximum is the label; NULL: not counted */
} tutti_loss;

/* logits[N,C], labels i32[N].  Per row -sum_c t_c ln softmax(logits)_c with target
 * t = (1 - smoothing) [c = label] + smoothing / C.  Rows with label == ignore (usually -1) do not
 * count; any other label outside 0 .. C-1 makes the sum NaN. */
TUTTI_API tutti_loss tutti_cross_entropy(tutti_graph *g, tutti_value *logits, tutti_value *labels,
                                         double smoothing, int64_t ignore);

/* pred[N,...] and target of the same type: the sum of (pred - target)^2. labels i32[N] or NULL:
 * rows with label == ignore do not count. */
TUTTI_API tutti_loss tutti_mse(tutti_graph *g, tutti_value *pred, tutti_value *target,
                               tutti_value *labels, int64_t ignore);

/* x and target of the same type, target in 0 .. 1: the sum of -t ln s(x) - (1 - t) ln(1 - s(x))
 * with s(x) = 1 / (1 + e^-x); count is the number of elements; labels as in tutti_mse. */
TUTTI_API tutti_loss tutti_bce_with_logits(tutti_graph *g, tutti_value *x, tutti_value *target,
                                           tutti_value *labels, int64_t ignore);

/* log_p and target of the same type, target holds probabilities: the sum of t (ln t - log_p), 0
 * where t is 0; count is the number of rows; labels as in tutti_mse. */
TUTTI_API tutti_loss tutti_kl_div(tutti_graph *g, tutti_value *log_p, tutti_value *target,
                                  tutti_value *labels, int64_t ignore);

/* a . b / (max(|a|, 1e-8) max(|b|, 1e-8)) along axis, without that axis; a and b broadcast. */
TUTTI_API tutti_value *tutti_cosine_similarity(tutti_graph *g, tutti_value *a, tutti_value *b,
                                               int axis);

TUTTI_EXTERN_C_END

#endif /* TUTTI_OPS_H */

/* attention.c - attention, its gradient, and one position against a cache.
 *
 * Uses cuDNN's attention where it is fast: 16-bit values, D a multiple of 8 up to 128, as many key
 * heads as query heads, T >= 64. cuDNN describes attention as a graph of plain operations (scores,
 * scale, masks, softmax); it reads q, k, v and writes their gradients in place in the packed value
 * by strides, and its row statistics are our lse.  In cuDNN's fast gradient blocks of keys add into
 * dQ in any order; its other form, which always gives the same bits, writes dS [B,H,T,T] in 16
 * bits, so exact mode uses it if that fits.  All other cases use our kernels: attention_grad.cu on
 * Hopper for many heads of 64, faster than both, attention_mma.cu on other tensor cores,
 * attention_flash.cu for the rest.  Lengths: cuDNN is not called for samples without keys, and its
 * results beyond a length are corrected by small kernels. */
#include <math.h>
#include <stdlib.h>

#include "backend/cuda/attention/attention_flash.h"
#include "backend/cuda/attention/attention_grad.h"
#include "backend/cuda/conv/dnn.h"
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/runtime/cuda.h"
#include "ir/graph.h"

enum { MIN_T = 64, MAX_DIM = 128, ALIGN = 256 };
/* Before these, cuDNN wants other graphs: always, and where T is not a multiple of 128. */
enum { MIN_VERSION = 91000, MIN_VERSION_ODD = 91600 };
static const size_t max_workspace = (size_t)4 << 30;

/* Tensors of a graph that have memory; -1: not in this one. */
typedef struct places {
    int q, kt, k, v, vt, y, lse, dy, dq, dk, dv, n_queries, n_keys, delta, sum_q;
} places;

typedef struct attention_state {
    tti_cuda_attention a; /* without pointers */
    bool has_lengths, grad;
    tti_dnn_plan *plan; /* NULL: own kernels */
    places at;
    size_t delta_at, sum_at, lengths_at, work_at, n_bytes; /* scratch */
} attention_state;

static tti_cuda_heads heads_of(const tti_node *node) {
    const int64_t *dim = node->in[0]->type.shape.dim;
    int64_t heads = tti_attr_int(node, "heads"), kv = tti_attr_int(node, "kv_heads");
    if (kv == 0) kv = heads;
    tti_cuda_heads v = {.n_batch = dim[0], .n_t = dim[1], .heads = (int)heads};
    v.kv_heads = (int)kv, v.dim = (int)(dim[2] / (heads + 2 * kv));
    v.causal = tti_attr_has(node, "causal") && tti_attr_int(node, "causal");
    double scale = tti_attr_float(node, "scale");
    v.scale = (float)(scale != 0 ? scale : 1 / sqrt((double)v.dim));
    return v;
}

/* ---- cuDNN's graphs ---- */

/* A graph being made: virtual tensors of four shapes. */
typedef struct sdpa {
    tti_dnn_graph *g;
    const tti_cuda_heads *v;
    tutti_dtype dtype;
    bool has_lengths;
    places *at;
} sdpa;

static int add(const sdpa *s, int dtype, tti_dnn_kind kind, const int64_t dim[4],
               const int64_t stride[4]) {
    return tti_dnn_tensor_add(s->g, dtype, kind, dim, stride);
}

/* [B,H,T,n] in order. */
static int plain(const sdpa *s, int dtype, tti_dnn_kind kind, int64_t n) {
    int64_t t = s->v->n_t, h = s->v->heads;
    return add(s, dtype, kind, (int64_t[]){s->v->n_batch, h, t, n},
               (int64_t[]){h * t * n, t * n, n, 1});
}

/* [B,H,T,T], inside the kernel. */
static int scores(const sdpa *s, int dtype) { return plain(s, dtype, TTI_DNN_VIRTUAL, s->v->n_t); }

/* [B,H,T,T] whose memory would be the transposed of scores. */
static int turned_scores(const sdpa *s) {
    int64_t t = s->v->n_t, h = s->v->heads;
    return add(s, (int)s->dtype, TTI_DNN_VIRTUAL, (int64_t[]){s->v->n_batch, h, t, t},
               (int64_t[]){h * t * t, t * t, 1, t});
}

/* A row of statistics. */
static int column(const sdpa *s, tti_dnn_kind kind) { return plain(s, TUTTI_F32, kind, 1); }

/* [B,H,T,D] inside a value [B,T,width]; turned: presented as [B,H,D,T]. */
static int packed(const sdpa *s, tti_dnn_kind kind, int64_t width, bool turned) {
    int64_t t = s->v->n_t, d = s->v->dim, b = s->v->n_batch, h = s->v->heads;
    if (turned)
        return add(s, (int)s->dtype, kind, (int64_t[]){b, h, d, t},
                   (int64_t[]){t * width, d, 1, width});
    return add(s, (int)s->dtype, kind, (int64_t[]){b, h, t, d},
               (int64_t[]){t * width, d, width, 1});
}

static int64_t qkv_width(const sdpa *s) {
    return (int64_t)(s->v->heads + 2 * s->v->kv_heads) * s->v->dim;
}
static int64_t y_width(const sdpa *s) { return (int64_t)s->v->heads * s->v->dim; }

static int length_tensor(const sdpa *s) {
    static const int64_t ones[4] = {1, 1, 1, 1};
    if (!s->has_lengths) return -1;
    return add(s, TUTTI_I32, TTI_DNN_REAL, (int64_t[]){s->v->n_batch, 1, 1, 1}, ones);
}

static int two(const sdpa *s, tti_dnn_code code, int a, int b, int out) {
    return tti_dnn_op_add(s->g, code, a, b, -1, out);
}

/* m, n, k: the tensors of lengths that bound the product, or -1. */
static int matmul(const sdpa *s, const int in[2], const int bounds[3], int out) {
    tti_dnn_op_add(s->g, TTI_DNN_MATMUL, in[0], in[1], bounds[0], out);
    tti_dnn_op *op = &s->g->ops[s->g->n_ops - 1];
    op->in[3] = bounds[1], op->in[4] = bounds[2];
    return out;
}

static int select_scores(const sdpa *s, int x, int mask) {
    int out = scores(s, TUTTI_F32), low = tti_dnn_scalar_add(s->g, -INFINITY);
    return tti_dnn_op_add(s->g, TTI_DNN_SELECT, x, low, mask, out);
}

static int row_index(const sdpa *s, int x) {
    return two(s, TTI_DNN_ROW, x, -1, scores(s, TUTTI_I32));
}
static int column_index(const sdpa *s, int x) {
    return two(s, TTI_DNN_COLUMN, x, -1, scores(s, TUTTI_I32));
}

static int mask_lengths(const sdpa *s, int x) {
    if (!s->has_lengths) return x;
    int row = row_index(s, x), column = column_index(s, x);
    int a = two(s, TTI_DNN_LT, row, s->at->n_queries, scores(s, TTI_DNN_BOOL));
    int b = two(s, TTI_DNN_LT, column, s->at->n_keys, scores(s, TTI_DNN_BOOL));
    return select_scores(s, x, two(s, TTI_DNN_AND, a, b, scores(s, TTI_DNN_BOOL)));
}

static int mask_causal(const sdpa *s, int x) {
    if (!s->v->causal) return x;
    int row = row_index(s, x), column = column_index(s, x);
    return select_scores(s, x, two(s, TTI_DNN_GE, row, column, scores(s, TTI_DNN_BOOL)));
}

/* q k^T scale, masked by lengths. */
static int scaled_scores(const sdpa *s) {
    const places *at = s->at;
    int x = matmul(s, (int[]){at->q, at->kt}, (int[]){at->n_queries, at->n_keys, -1},
                   scores(s, TUTTI_F32));
    int scale = tti_dnn_scalar_add(s->g, s->v->scale);
    return mask_lengths(s, two(s, TTI_DNN_MUL, x, scale, scores(s, TUTTI_F32)));
}

static void make_forward(const sdpa *s) {
    places *at = s->at;
    at->n_queries = length_tensor(s), at->n_keys = length_tensor(s);
    at->q = packed(s, TTI_DNN_REAL, qkv_width(s), false);
    at->kt = packed(s, TTI_DNN_REAL, qkv_width(s), true);
    at->v = packed(s, TTI_DNN_REAL, qkv_width(s), false);
    at->y = packed(s, TTI_DNN_REAL, y_width(s), false);
    at->lse = column(s, TTI_DNN_REAL);
    int x = mask_causal(s, scaled_scores(s));
    int top = two(s, TTI_DNN_MAX_OF, x, -1, column(s, TTI_DNN_VIRTUAL));
    x = two(s, TTI_DNN_SUB, x, top, scores(s, TUTTI_F32));
    x = two(s, TTI_DNN_EXP, x, -1, scores(s, TUTTI_F32));
    int sum = two(s, TTI_DNN_SUM_OF, x, -1, column(s, TTI_DNN_VIRTUAL));
    int log = two(s, TTI_DNN_LOG, sum, -1, column(s, TTI_DNN_VIRTUAL));
    two(s, TTI_DNN_ADD, top, log, at->lse);
    int p = two(s, TTI_DNN_DIV, x, sum, scores(s, (int)s->dtype));
    matmul(s, (int[]){p, at->v}, (int[]){at->n_queries, -1, at->n_keys}, at->y);
}

/* delta = the sum over D of dy y, as cuDNN wants it: times one. */
static void make_delta(const sdpa *s) {
    int64_t t = s->v->n_t, d = s->v->dim, h = s->v->heads;
    int x = add(s, TUTTI_F32, TTI_DNN_VIRTUAL, (int64_t[]){s->v->n_batch, h, t, d},
                (int64_t[]){h * t * d, t * d, h * d, 1});
    two(s, TTI_DNN_MUL, s->at->dy, s->at->y, x);
    int sum = two(s, TTI_DNN_SUM_OF, x, -1, column(s, TTI_DNN_VIRTUAL));
    s->at->delta = column(s, TTI_DNN_REAL);
    two(s, TTI_DNN_MUL, sum, tti_dnn_scalar_add(s->g, 1), s->at->delta);
}

static void backward_tensors(const sdpa *s) {
    places *at = s->at;
    at->n_queries = length_tensor(s), at->n_keys = length_tensor(s);
    at->q = packed(s, TTI_DNN_REAL, qkv_width(s), false);
    at->kt = packed(s, TTI_DNN_REAL, qkv_width(s), true);
    at->vt = packed(s, TTI_DNN_REAL, qkv_width(s), true);
    at->y = packed(s, TTI_DNN_REAL, y_width(s), false);
    at->dy = packed(s, TTI_DNN_REAL, y_width(s), false);
    at->lse = column(s, TTI_DNN_REAL);
    at->dq = packed(s, TTI_DNN_REAL, qkv_width(s), false);
    at->dk = packed(s, TTI_DNN_REAL, qkv_width(s), false);
    at->dv = packed(s, TTI_DNN_REAL, qkv_width(s), false);
}

/* same: every time the same bits; else dQ is summed in f32 scratch in any order. */
static void make_backward(const sdpa *s, bool same) {
    places *at = s->at;
    backward_tensors(s);
    make_delta(s);
    int rows[3] = {at->n_keys, -1, at->n_queries}; /* of products with transposed scores */
    int x = scaled_scores(s);
    x = mask_causal(s, two(s, TTI_DNN_SUB, x, at->lse, scores(s, TUTTI_F32)));
    int p = two(s, TTI_DNN_EXP, x, -1, scores(s, TUTTI_F32));
    int pt = two(s, TTI_DNN_RESHAPE, p, -1, turned_scores(s));
    matmul(s, (int[]){pt, at->dy}, rows, at->dv);
    x = matmul(s, (int[]){at->dy, at->vt}, (int[]){at->n_queries, at->n_keys, -1},
               scores(s, TUTTI_F32));
    x = two(s, TTI_DNN_SUB, x, at->delta, scores(s, TUTTI_F32));
    x = two(s, TTI_DNN_MUL, x, p, scores(s, TUTTI_F32));
    int ds = two(s, TTI_DNN_MUL, x, tti_dnn_scalar_add(s->g, s->v->scale), scores(s, TUTTI_F32));
    int dst = two(s, TTI_DNN_RESHAPE, ds, -1, turned_scores(s));
    matmul(s, (int[]){dst, at->q}, rows, at->dk);
    at->k = two(s, TTI_DNN_RESHAPE, at->kt, -1, packed(s, TTI_DNN_VIRTUAL, qkv_width(s), false));
    int *bounds = (int[]){at->n_queries, -1, at->n_keys};
    if (same) {
        matmul(s, (int[]){ds, at->k}, bounds, at->dq);
        return;
    }
    at->sum_q = plain(s, TUTTI_F32, TTI_DNN_REAL, s->v->dim);
    matmul(s, (int[]){ds, at->k}, bounds, at->sum_q);
    two(s, TTI_DNN_COPY, at->sum_q, -1, at->dq);
}

/* ---- prepare ---- */

static size_t rounded(size_t n_bytes) { return (n_bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* Scratch: delta, sum of dQ, two rows of lengths, workspace. */
static void place(attention_state *s) {
    const tti_cuda_heads *v = &s->a.heads;
    size_t rows = (size_t)(v->n_batch * v->heads * v->n_t);
    s->sum_at = s->grad ? rounded(tti_cuda_attention_delta_bytes(s->a.dtype, v)) : 0;
    s->lengths_at = s->sum_at;
    if (s->plan && s->at.sum_q >= 0) s->lengths_at += rounded(rows * (size_t)v->dim * 4);
    s->work_at = s->lengths_at;
    if (s->plan && s->has_lengths) s->work_at += 2 * rounded((size_t)v->n_batch * 4);
    s->n_bytes = s->work_at + (s->plan ? rounded(tti_dnn_plan_bytes(s->plan)) : 0);
}

static tutti_status find_plan(attention_state *s) {
    tti_dnn_graph *g = calloc(1, sizeof *g);
    bool exact = tti_cuda_is_exact();
    tti_dnn_choice choice = {.max_workspace = max_workspace, .deterministic = exact};
    sdpa graph = {g, &s->a.heads, s->a.dtype, s->has_lengths, &s->at};
    if (!g) return tti_fail(TUTTI_E_NOMEM, "attention: out of memory for a plan");
    if (s->grad)
        make_backward(&graph, exact);
    else
        make_forward(&graph);
    tutti_status st = tti_dnn_plan_get(g, &choice, &s->plan);
    free(g);
    if (st != TUTTI_E_UNSUPPORTED) return st;
    s->plan = NULL; /* own kernels do */
    tti_clear_error();
    return TUTTI_OK;
}

/* False where cuDNN's gradient with equal bits would take too much memory. */
static bool fits(const attention_state *s) {
    const tti_cuda_heads *v = &s->a.heads;
    double bytes = 2.0 * (double)v->n_batch * v->heads * (double)v->n_t * (double)v->n_t;
    return !s->grad || !tti_cuda_is_exact() || bytes < 0.99 * (double)max_workspace;
}

static tutti_status prepare(const tti_node *node, bool grad, bool with_dnn, void **state) {
    attention_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "attention: out of memory");
    s->a.heads = heads_of(node), s->a.dtype = node->in[0]->type.dtype;
    s->grad = grad, s->has_lengths = node->n_in == (grad ? 5 : 2);
    s->at.sum_q = -1;
    if (with_dnn && tti_dnn_ready() && fits(s)) {
        tutti_status st = find_plan(s);
        if (st != TUTTI_OK) {
            free(s);
            return st;
        }
    }
    place(s);
    *state = s;
    return TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)node;
    return ((const attention_state *)state)->n_bytes;
}

/* ---- running ---- */

static void *offset(const void *p, size_t n_bytes) { return (char *)(uintptr_t)p + n_bytes; }

/* The pointers of one run. */
static tti_cuda_attention bind(const attention_state *s, const tti_kargs *args) {
    tti_cuda_attention a = s->a;
    int n = args->node->n_in;
    a.qkv = args->in[0];
    a.lengths = s->has_lengths ? args->in[1] : NULL;
    if (!s->grad) {
        a.y = args->out[0], a.lse = args->out[1];
        return a;
    }
    a.y = args->in[n - 3], a.lse = args->in[n - 2], a.dy = args->in[n - 1];
    a.delta = offset(args->scratch, s->delta_at), a.dqkv = args->out[0];
    return a;
}

/* cuDNN's run, its masks put right before and after. */
static tutti_status run_plan(const attention_state *s, const tti_kargs *args,
                             const tti_cuda_attention *a) {
    const tti_cuda_heads *v = &a->heads;
    const places *at = &s->at;
    void *data[TTI_DNN_MAX_TENSORS] = {NULL};
    size_t element = tutti_dtype_bytes(a->dtype),
           head = (size_t)v->heads * (size_t)v->dim * element;
    int32_t *queries = offset(args->scratch, s->lengths_at);
    int32_t *keys = offset(queries, rounded((size_t)v->n_batch * 4));
    data[at->q] = offset(a->qkv, 0), data[at->kt] = offset(a->qkv, head);
    data[s->grad ? at->vt : at->v] = offset(a->qkv, 2 * head);
    data[at->y] = a->y, data[at->lse] = a->lse;
    if (s->has_lengths) {
        data[at->n_queries] = queries, data[at->n_keys] = keys;
        TTI_CUDA(tti_cuda_attention_lengths(v, a->lengths, queries, keys, tti_cuda_stream()));
    }
    if (s->grad) {
        data[at->dy] = offset(a->dy, 0), data[at->delta] = a->delta;
        data[at->dq] = a->dqkv, data[at->dk] = offset(a->dqkv, head);
        data[at->dv] = offset(a->dqkv, 2 * head);
        if (at->sum_q >= 0) data[at->sum_q] = offset(args->scratch, s->sum_at);
    }
    TTI_TRY(tti_dnn_run(s->plan, data, offset(args->scratch, s->work_at)));
    if (s->has_lengths && s->grad) TTI_CUDA(tti_cuda_attention_mend_grad(a, tti_cuda_stream()));
    if (s->has_lengths && !s->grad) TTI_CUDA(tti_cuda_attention_mend(a, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_attention(void *state, const tti_kargs *args) {
    const attention_state *s = state;
    tti_cuda_attention a = bind(s, args);
    bool cores = tti_cuda_attention_mma_can(a.dtype, &a.heads);
    cudaStream_t stream = tti_cuda_stream();
    if (s->plan) return run_plan(s, args, &a);
    if (s->grad)
        TTI_CUDA(cores ? tti_cuda_attention_mma_backward(&a, stream)
                       : tti_cuda_attention_backward(&a, stream));
    else
        TTI_CUDA(cores ? tti_cuda_attention_mma_forward(&a, stream)
                       : tti_cuda_attention_forward(&a, stream));
    return TUTTI_OK;
}

/* ---- with the sums of dqkv's columns, in a separate kernel ---- */

static tti_cuda_columns_desc columns_of(const tti_node *node) {
    const tutti_type *dqkv = &node->in[0]->type;
    const int64_t *d = dqkv->shape.dim;
    return (tti_cuda_columns_desc){
        .in = dqkv->dtype, .out = TUTTI_F32, .rows = d[0] * d[1], .n = d[2]};
}

static size_t sums_bytes(const tti_node *node, const void *state) {
    tti_cuda_columns_desc c = columns_of(node);
    return rounded(scratch_bytes(node, state)) + tti_cuda_column_bytes(c.in, c.rows, c.n);
}

static tutti_status run_sums(void *state, const tti_kargs *args) {
    tti_cuda_columns_desc c = columns_of(args->node);
    c.x = args->out[0], c.sums = args->out[1];
    c.partials = offset(args->scratch, rounded(scratch_bytes(args->node, state)));
    TTI_TRY(run_attention(state, args));
    TTI_CUDA(tti_cuda_column_sums(&c, tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- by attention_grad.cu ---- */

static size_t wgmma_bytes(const tti_node *node, const void *state) {
    tti_cuda_heads heads = heads_of(node);
    (void)state;
    return tti_cuda_attention_grad_bytes(&heads);
}

/* Its own scratch, the columns of parts, and what adding these needs. */
static tti_cuda_columns_desc parts_of(const tti_node *node) {
    tti_cuda_heads heads = heads_of(node);
    tti_cuda_columns_desc c = columns_of(node);
    c.in = TUTTI_F32, c.rows = tti_cuda_attention_grad_parts(&heads);
    return c;
}

static size_t parts_bytes(const tti_cuda_columns_desc *c) {
    return rounded((size_t)(c->rows * c->n) * sizeof(float));
}

static size_t wgmma_sums_bytes(const tti_node *node, const void *state) {
    tti_cuda_columns_desc c = parts_of(node);
    return rounded(wgmma_bytes(node, state)) + parts_bytes(&c) +
           tti_cuda_column_bytes(c.in, c.rows, c.n);
}

static tutti_status run_wgmma(void *state, const tti_kargs *args) {
    const tti_node *node = args->node;
    bool sums = node->op->n_out > 1;
    char *parts = offset(args->scratch, rounded(wgmma_bytes(node, state)));
    tti_cuda_attention a = {.heads = heads_of(node),
                            .dtype = node->in[0]->type.dtype,
                            .qkv = args->in[0],
                            .y = args->in[1],
                            .lse = args->in[2],
                            .dy = args->in[3],
                            .dqkv = args->out[0],
                            .columns = sums ? (float *)(void *)parts : NULL};
    TTI_CUDA(tti_cuda_attention_grad(&a, args->scratch, tti_cuda_stream()));
    if (!sums) return TUTTI_OK;
    tti_cuda_columns_desc c = parts_of(node);
    c.x = parts, c.sums = args->out[1], c.partials = parts + parts_bytes(&c);
    TTI_CUDA(tti_cuda_column_sums(&c, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_cached(void *state, const tti_kargs *args) {
    const tti_node *node = args->node;
    tti_cuda_cached a = {.heads = heads_of(node),
                         .dtype = node->in[0]->type.dtype,
                         .t_max = node->in[1]->type.shape.dim[1],
                         .qkv = args->in[0],
                         .k_in = args->in[1],
                         .v_in = args->in[2],
                         .pos = args->in[3],
                         .y = args->out[0],
                         .k_out = args->out[1],
                         .v_out = args->out[2]};
    (void)state;
    TTI_CUDA(tti_cuda_attention_cached(&a, tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- rows ---- */

static bool dnn_can_run(const tti_node *node) {
    tti_cuda_heads v = heads_of(node);
    tutti_dtype dtype = node->in[0]->type.dtype;
    size_t version = tti_dnn_version();
    return (dtype == TUTTI_BF16 || dtype == TUTTI_F16) && v.kv_heads == v.heads && v.dim % 8 == 0 &&
           v.dim <= MAX_DIM && v.n_t >= MIN_T && v.n_batch > 0 &&
           version >= (v.n_t % 128 ? MIN_VERSION_ODD : MIN_VERSION);
}

/* Decides by shapes and the kind of device only, so that exact mode may use it. */
static bool wgmma_can_run(const tti_node *node) {
    tti_cuda_heads v = heads_of(node);
    return node->n_in == 4 && tti_cuda_attention_grad_can(node->in[0]->type.dtype, &v) &&
           tti_cuda_wgmma_here();
}
static bool wgmma_sums_can_run(const tti_node *node) {
    tti_cuda_heads v = heads_of(node);
    return v.heads == v.kv_heads && wgmma_can_run(node);
}

static tutti_status prepare_dnn(const tti_node *node, void **state) {
    return prepare(node, false, true, state);
}
static tutti_status prepare_own(const tti_node *node, void **state) {
    return prepare(node, false, false, state);
}
static tutti_status prepare_grad_dnn(const tti_node *node, void **state) {
    return prepare(node, true, true, state);
}
static tutti_status prepare_grad_own(const tti_node *node, void **state) {
    return prepare(node, true, false, state);
}

const tti_kernel tti_cuda_attention_kernels[] = {
    {"attention", "cudnn", dnn_can_run, prepare_dnn, scratch_bytes, run_attention, free},
    {"attention", "flash", NULL, prepare_own, scratch_bytes, run_attention, free},
    {"attention_grad", "wgmma", wgmma_can_run, NULL, wgmma_bytes, run_wgmma, NULL},
    {"attention_grad", "cudnn", dnn_can_run, prepare_grad_dnn, scratch_bytes, run_attention, free},
    {"attention_grad", "flash", NULL, prepare_grad_own, scratch_bytes, run_attention, free},
    {"attention_grad_sums", "wgmma", wgmma_sums_can_run, NULL, wgmma_sums_bytes, run_wgmma, NULL},
    {"attention_grad_sums", "cudnn", dnn_can_run, prepare_grad_dnn, sums_bytes, run_sums, free},
    {"attention_grad_sums", "flash", NULL, prepare_grad_own, sums_bytes, run_sums, free},
    {"attention_cached", "own", NULL, NULL, NULL, run_cached, NULL},
    {0},
};

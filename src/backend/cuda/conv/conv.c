/* conv.c - conv2d and its gradients: cuDNN's engines, our kernels for a network's first layer
 * (conv_stem.cu), or the plain kernels of conv_direct.cu.
 *
 * cuDNN is fastest with N,H,W,C values, O,R,S,C weights and whole vectors of channels.  So weights
 * are converted in scratch before (dw after; a 1x1 weight is both already), and an image of 1 to 7
 * channels is padded to 16 bytes a pixel, in one small pass that saves cuDNN a slow one.  Bias and
 * ReLU follow in place.  For large products prepare times the engines; if no engine supports the
 * case the plain kernels run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/conv/conv_node.h"
#include "backend/cuda/conv/conv_stem.h"
#include "backend/cuda/conv/dnn.h"
#include "backend/cuda/norm/bn_stats.h"
#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/timing.h"
#include "base/files/cache.h"
#include "base/philox.h"
#include "ir/graph.h"

/* Multiplications up to which one plain kernel is faster than cuDNN's several, and from which
 * engines are timed. */
static const double max_direct = 4e6, min_timed = 5e7;

enum { N_ENGINES = 12, ALIGN = 256 };
static const size_t max_workspace = (size_t)512 << 20;

typedef struct conv_state {
    tti_cuda_conv_kind kind;
    tti_cuda_conv conv;
    tutti_dtype dtype;
    tti_dnn_plan *plan;        /* NULL: the plain kernels */
    tti_dnn_plan *with_totals; /* y and sums over it; NULL: y is read again for them */
    int64_t c_to;              /* channels of a group as cuDNN sees them */
    size_t stats_bytes;        /* of conv2d_stats, else 0 */
    bool turned;               /* weights go through scratch */
    size_t x_at, w_at, sums_at, work_at, n_bytes; /* scratch */
} conv_state;

static double n_products(const tti_cuda_conv *v) {
    return (double)v->n * (double)v->o * (double)v->p * (double)v->q * (double)(v->c / v->groups) *
           (double)v->r * (double)v->s;
}

/* ---- the graph of one convolution ---- */

static void set_strides(const int64_t dim[4], bool last, int64_t stride[4]) {
    stride[0] = dim[1] * dim[2] * dim[3];
    stride[1] = last ? 1 : dim[2] * dim[3];
    stride[2] = last ? dim[3] * dim[1] : dim[3];
    stride[3] = last ? dim[1] : 1;
}

static int add_tensor(tti_dnn_graph *g, tutti_dtype dtype, bool last, const int64_t dim[4]) {
    int64_t stride[4];
    set_strides(dim, last, stride);
    return tti_dnn_tensor_add(g, dtype, TTI_DNN_REAL, dim, stride);
}

/* Tensors 0 and 1 are the operands, 2 is the result. */
static void make_graph(const conv_state *s, tti_dnn_graph *g) {
    static const tti_dnn_code codes[] = {TTI_DNN_CONV, TTI_DNN_CONV_GRAD_X, TTI_DNN_CONV_GRAD_W};
    const tti_cuda_conv *v = &s->conv;
    bool padded = s->c_to != v->c / v->groups;
    int64_t x_dim[4] = {v->n, s->c_to * v->groups, v->h, v->w};
    int64_t w_dim[4] = {v->o, s->c_to, v->r, v->s}, y_dim[4] = {v->n, v->o, v->p, v->q};
    *g = (tti_dnn_graph){0};
    for (int d = 0; d < 2; d++)
        g->stride[d] = v->stride[d], g->pad[d] = v->pad[d], g->dilation[d] = v->dilation[d];
    bool x_last = v->x_last || padded;
    if (s->kind == TTI_CONV_FORWARD) add_tensor(g, s->dtype, x_last, x_dim);
    if (s->kind == TTI_CONV_GRAD_X) add_tensor(g, s->dtype, v->y_last, y_dim);
    if (s->kind == TTI_CONV_GRAD_W) add_tensor(g, s->dtype, x_last, x_dim);
    if (s->kind == TTI_CONV_GRAD_W)
        add_tensor(g, s->dtype, v->y_last, y_dim);
    else
        add_tensor(g, s->dtype, v->y_last, w_dim);
    if (s->kind == TTI_CONV_FORWARD) add_tensor(g, s->dtype, v->y_last, y_dim);
    if (s->kind == TTI_CONV_GRAD_X) add_tensor(g, s->dtype, x_last, x_dim);
    if (s->kind == TTI_CONV_GRAD_W) add_tensor(g, s->dtype, v->y_last, w_dim);
    tti_dnn_op_add(g, codes[s->kind], 0, 1, -1, 2);
}

/* Tensors 3 and 4: sums over y and over its squares. */
static void add_totals(const conv_state *s, tti_dnn_graph *g) {
    int64_t dim[4] = {1, s->conv.o, 1, 1};
    int sum = add_tensor(g, TUTTI_F32, true, dim), squares = add_tensor(g, TUTTI_F32, true, dim);
    tti_dnn_op_add(g, TTI_DNN_TOTALS, 2, squares, -1, sum);
}

static size_t rounded(size_t n_bytes) { return (n_bytes + ALIGN - 1) / ALIGN * ALIGN; }

/* The layout of scratch memory; the sum of channels for dw's bias gradient shares the workspace. */
static void place(conv_state *s) {
    const tti_cuda_conv *v = &s->conv;
    size_t element = tutti_dtype_bytes(s->dtype), work = s->plan ? tti_dnn_plan_bytes(s->plan) : 0;
    tti_cuda_planes y = tti_cuda_conv_y_planes(v);
    if (s->kind == TTI_CONV_GRAD_W) work = TTI_MAX(work, tti_cuda_conv_sum_bytes(s->dtype, &y));
    work = TTI_MAX(work, s->stats_bytes);
    if (s->with_totals) work = TTI_MAX(work, tti_dnn_plan_bytes(s->with_totals));
    s->x_at = s->w_at = 0;
    if (s->plan && s->c_to != v->c / v->groups)
        s->w_at = rounded((size_t)(v->n * s->c_to * v->h * v->w) * element);
    s->work_at = s->w_at;
    if (s->plan && s->turned)
        s->work_at += rounded((size_t)(v->o * s->c_to * v->r * v->s) * element);
    s->sums_at = s->work_at;
    if (s->with_totals) s->work_at += rounded(2 * (size_t)v->o * sizeof(float));
    s->n_bytes = s->work_at + rounded(work);
}

/* Channels of an image padded to 16 bytes, if that enables tensor cores. */
static int64_t channels_for_dnn(const conv_state *s) {
    const tti_cuda_conv *v = &s->conv;
    int64_t vector = 16 / (int64_t)tutti_dtype_bytes(s->dtype);
    bool cores = s->dtype != TUTTI_F32 || tti_cuda_uses_tf32();
    bool pad = cores && s->kind != TTI_CONV_GRAD_X && v->groups == 1 && v->y_last && v->c < vector;
    return pad ? vector : v->c / v->groups;
}

/* *plan NULL: none can be had. */
static tutti_status find_plan(const conv_state *s, bool totals, tti_dnn_plan **plan) {
    const tti_cuda *cuda = tti_cuda_device();
    tti_dnn_graph *g = malloc(sizeof *g);
    *plan = NULL;
    if (!g) return tti_fail(TUTTI_E_NOMEM, "conv2d: out of memory for a plan");
    tti_dnn_choice choice = {
        .n_timed = n_products(&s->conv) >= min_timed && !totals ? N_ENGINES : 1,
        .max_workspace = max_workspace,
        .no_tensor_cores = s->dtype == TUTTI_F32 && !cuda->desc.tf32,
        .deterministic = cuda->desc.exact,
    };
    make_graph(s, g);
    if (totals) add_totals(s, g);
    tutti_status st = tti_dnn_plan_get(g, &choice, plan);
    free(g);
    if (st != TUTTI_E_UNSUPPORTED) return st;
    *plan = NULL; /* the plain kernels do */
    tti_clear_error();
    return TUTTI_OK;
}

static conv_state *new_state(const tti_node *node, tti_cuda_conv_kind kind) {
    conv_state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->kind = kind, s->conv = tti_cuda_conv_read(node, kind);
    s->dtype = node->in[0]->type.dtype;
    s->c_to = s->conv.c / s->conv.groups;
    return s;
}

static tutti_status prepare(const tti_node *node, tti_cuda_conv_kind kind, bool with_dnn,
                            void **state) {
    conv_state *s = new_state(node, kind);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "conv2d: out of memory");
    if (with_dnn && tti_dnn_ready()) {
        const tti_cuda_conv *v = &s->conv;
        s->c_to = channels_for_dnn(s);
        s->turned = v->y_last && (v->r * v->s > 1 || s->c_to != v->c / v->groups);
        tutti_status st = find_plan(s, false, &s->plan);
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
    return ((const conv_state *)state)->n_bytes;
}

/* ---- running ---- */

static void *offset(void *scratch, size_t n_bytes) { return (char *)scratch + n_bytes; }

/* x, padded in scratch where cuDNN wants more channels than there are. */
static tutti_status give_x(const conv_state *s, const tti_kargs *a, void *x, void **out) {
    const tti_cuda_conv *v = &s->conv;
    tti_cuda_planes planes = {v->n, v->c, v->h * v->w, v->x_last};
    *out = x;
    if (s->c_to == v->c / v->groups) return TUTTI_OK;
    *out = offset(a->scratch, s->x_at);
    TTI_CUDA(tti_cuda_conv_pad((int)tutti_dtype_bytes(s->dtype), &planes, s->c_to, x, *out,
                               tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status give_w(const conv_state *s, const tti_kargs *a, void *w, void **out) {
    const tti_cuda_conv *v = &s->conv;
    *out = w;
    if (!s->turned) return TUTTI_OK;
    *out = offset(a->scratch, s->w_at);
    TTI_CUDA(tti_cuda_conv_turn((int)tutti_dtype_bytes(s->dtype), v->o, v->c / v->groups,
                                v->r * v->s, s->c_to, w, *out, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_forward(void *state, const tti_kargs *a) {
    const conv_state *s = state;
    const void *bias = a->node->n_in > 2 ? a->in[2] : NULL;
    bool relu = tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU;
    void *data[3] = {a->in[0], a->in[1], a->out[0]};
    if (!s->plan) {
        TTI_CUDA(tti_cuda_conv_forward(s->dtype, &s->conv, data[0], data[1], bias, relu, data[2],
                                       tti_cuda_stream()));
        return TUTTI_OK;
    }
    TTI_TRY(give_x(s, a, a->in[0], &data[0]));
    TTI_TRY(give_w(s, a, a->in[1], &data[1]));
    TTI_TRY(tti_dnn_run(s->plan, data, offset(a->scratch, s->work_at)));
    tti_cuda_planes y = tti_cuda_conv_y_planes(&s->conv);
    TTI_CUDA(tti_cuda_conv_epilogue(s->dtype, &y, bias, relu, data[2], tti_cuda_stream()));
    return TUTTI_OK;
}

/* x, w, rows?: y, stats */
static tutti_status run_stats(void *state, const tti_kargs *a) {
    const conv_state *s = state;
    const tti_node *node = a->node;
    const int32_t *rows = node->n_in > 2 ? a->in[2] : NULL;
    float *sums = s->with_totals ? offset(a->scratch, s->sums_at) : NULL;
    void *work = offset(a->scratch, s->work_at);
    void *data[5] = {a->in[0], a->in[1], a->out[0], sums, sums ? sums + s->conv.o : NULL};
    if (s->plan) {
        TTI_TRY(give_x(s, a, a->in[0], &data[0]));
        TTI_TRY(give_w(s, a, a->in[1], &data[1]));
        TTI_TRY(tti_dnn_run(sums ? s->with_totals : s->plan, data, work));
    } else {
        TTI_CUDA(tti_cuda_conv_forward(s->dtype, &s->conv, data[0], data[1], NULL, false, data[2],
                                       tti_cuda_stream()));
    }
    return tti_cuda_stats_run(node->out[0], a->out[0], rows, sums, work, a->out[1]);
}

static tutti_status run_grad_x(void *state, const tti_kargs *a) {
    const conv_state *s = state;
    void *data[3] = {a->in[0], a->in[1], a->out[0]};
    if (!s->plan) {
        TTI_CUDA(
            tti_cuda_conv_grad_x(s->dtype, &s->conv, data[0], data[1], data[2], tti_cuda_stream()));
        return TUTTI_OK;
    }
    TTI_TRY(give_w(s, a, a->in[1], &data[1]));
    return tti_dnn_run(s->plan, data, offset(a->scratch, s->work_at));
}

/* db, omitted if it has no reader. */
static tutti_status run_grad_b(const conv_state *s, const tti_kargs *a) {
    tti_cuda_planes dy = tti_cuda_conv_y_planes(&s->conv);
    if (!tti_attr_int(a->node, "bias")) return TUTTI_OK;
    TTI_CUDA(tti_cuda_conv_sum(s->dtype, &dy, a->in[0], offset(a->scratch, s->work_at), a->out[1],
                               tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_grad_w(void *state, const tti_kargs *a) {
    const conv_state *s = state;
    const tti_cuda_conv *v = &s->conv;
    void *data[3] = {a->in[1], a->in[0], a->out[0]};
    if (!s->plan) {
        TTI_CUDA(
            tti_cuda_conv_grad_w(s->dtype, v, a->in[0], a->in[1], a->out[0], tti_cuda_stream()));
        return run_grad_b(s, a);
    }
    TTI_TRY(give_x(s, a, a->in[1], &data[0]));
    if (s->turned) data[2] = offset(a->scratch, s->w_at);
    TTI_TRY(tti_dnn_run(s->plan, data, offset(a->scratch, s->work_at)));
    if (s->turned)
        TTI_CUDA(tti_cuda_conv_turn_back((int)tutti_dtype_bytes(s->dtype), v->o, v->c / v->groups,
                                         v->r * v->s, s->c_to, data[2], a->out[0],
                                         tti_cuda_stream()));
    return run_grad_b(s, a);
}

/* ---- the first layer ---- */

static bool can_run_stem(const tti_node *node, tti_cuda_conv_kind kind) {
    tti_cuda_conv v = tti_cuda_conv_read(node, kind);
    return tti_cuda_stem_fits(node->in[0]->type.dtype, &v);
}

static bool can_run_stem_forward(const tti_node *node) {
    return can_run_stem(node, TTI_CONV_FORWARD);
}
static bool can_run_stem_grad_w(const tti_node *node) {
    return can_run_stem(node, TTI_CONV_GRAD_W);
}

static tutti_status run_stem_forward(void *state, const tti_kargs *a) {
    tti_cuda_conv v = tti_cuda_conv_read(a->node, TTI_CONV_FORWARD);
    bool relu = tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU;
    (void)state;
    TTI_CUDA(tti_cuda_stem_forward(a->node->in[0]->type.dtype, &v, a->in[0], a->in[1],
                                   a->node->n_in > 2 ? a->in[2] : NULL, relu, a->out[0],
                                   tti_cuda_stream()));
    return TUTTI_OK;
}

static size_t stem_scratch(const tti_node *node, const void *state) {
    tti_cuda_conv v = tti_cuda_conv_read(node, TTI_CONV_GRAD_W);
    tti_cuda_planes y = tti_cuda_conv_y_planes(&v);
    (void)state;
    return TTI_MAX(tti_cuda_stem_bytes(&v), tti_cuda_conv_sum_bytes(node->in[0]->type.dtype, &y));
}

/* The sum for db comes after: it has the same scratch. */
static tutti_status run_stem_grad_w(void *state, const tti_kargs *a) {
    conv_state s = {.dtype = a->node->in[0]->type.dtype,
                    .conv = tti_cuda_conv_read(a->node, TTI_CONV_GRAD_W)};
    (void)state;
    TTI_CUDA(tti_cuda_stem_grad_w(s.dtype, &s.conv, a->in[0], a->in[1], a->scratch, a->out[0],
                                  tti_cuda_stream()));
    return run_grad_b(&s, a);
}

/* ---- a convolution and its statistics ---- */

/* cuDNN has an engine that sums over y while it computes it, for older tensor cores than the plain
 * one: it is faster if memory is the limit.  The choice is measured once for each shape, and so
 * only in fast mode: workers could disagree. */

/* A run of the node by itself: its inputs, its two outputs, scratch. */
typedef struct stats_trial {
    tti_trial on;
    conv_state *state;
    tti_kargs args;
} stats_trial;

enum { TRIAL_OUT = 3, TRIAL_SCRATCH = 5 };

static bool trial_init(conv_state *s, const tti_node *node, stats_trial *t) {
    int32_t rows = (int32_t)s->conv.n;
    *t = (stats_trial){.state = s};
    bool ok = tti_trial_open(&t->on) && tti_trial_alloc(&t->on, TRIAL_SCRATCH, s->n_bytes);
    for (int k = 0; ok && k < 2; k++)
        ok = tti_trial_alloc(&t->on, TRIAL_OUT + k, tti_value_n_bytes(node->out[k]));
    for (int i = 0; ok && i < 2; i++)
        ok = tti_trial_fill(&t->on, i, node->in[i]->type.dtype,
                            (size_t)tti_value_n_elems(node->in[i]));
    if (ok && node->n_in > 2)
        ok = tti_trial_alloc(&t->on, 2, tti_value_n_bytes(node->in[2])) &&
             cudaMemcpy(t->on.memory[2], &rows, sizeof rows, cudaMemcpyHostToDevice) == cudaSuccess;
    t->args = (tti_kargs){.node = node,
                          .in = t->on.memory,
                          .out = t->on.memory + TRIAL_OUT,
                          .scratch = t->on.memory[TRIAL_SCRATCH]};
    return ok;
}

static bool run_with_stats(const void *user) {
    const stats_trial *t = user;
    return run_stats(t->state, &t->args) == TUTTI_OK;
}

/* Microseconds, infinite where it fails; and the statistics, 2 o + 1, to the host. */
static double trial_run(const stats_trial *t, float *stats) {
    double us = tti_trial_least_us(&t->on, 2, 5, run_with_stats, t);
    size_t n_bytes = (size_t)(2 * t->state->conv.o + 1) * sizeof *stats;
    bool ok = us >= 0 && cudaMemcpy(stats, t->on.memory[TRIAL_OUT + 1], n_bytes,
                                    cudaMemcpyDeviceToHost) == cudaSuccess;
    return ok ? us : HUGE_VAL;
}

/* They differ by no more than rounding to 16 bits explains. */
static bool are_alike(const float *a, const float *b, int64_t n_channels) {
    for (int64_t c = 0; c < n_channels; c++) {
        float m2 = b[1 + n_channels + c], other = a[1 + n_channels + c], d = a[1 + c] - b[1 + c];
        if (!(m2 >= 0) || !(other >= m2 * 0.99f && other <= m2 * 1.01f)) return false;
        if (!(d * d * b[0] <= m2 * 1e-4f)) return false;
    }
    return a[0] == b[0];
}

/* measured: the node ran without them; it does not where memory is short. */
static bool totals_win(conv_state *s, const tti_node *node, tti_dnn_plan *plan, bool *measured) {
    size_t n = (size_t)(2 * s->conv.o + 1);
    float *stats = malloc(2 * n * sizeof *stats);
    stats_trial t;
    s->with_totals = plan;
    place(s); /* the larger scratch */
    bool win = trial_init(s, node, &t) && stats;
    double with = win ? trial_run(&t, stats) : 0;
    s->with_totals = NULL;
    place(s);
    double without = win ? trial_run(&t, stats + n) : HUGE_VAL;
    *measured = without < HUGE_VAL;
    win = win && with < without && are_alike(stats, stats + n, s->conv.o);
    tti_trial_close(&t.on);
    free(stats);
    tti_clear_error();
    return win;
}

/* As totals_win, remembered on disk: one worker of the host measures. */
static bool known_to_win(conv_state *s, const tti_node *node, tti_dnn_plan *plan) {
    enum { TIMEOUT_MS = 60000 };
    tti_dnn_graph *g = malloc(sizeof *g);
    tti_str key = {0};
    char name[40];
    size_t n = 0;
    bool win = false, measured = false;
    if (!g) return false;
    make_graph(s, g);
    add_totals(s, g);
    tti_str_printf(&key, "cuDNN %zu %s rows %d\n", tti_dnn_version(), tti_cuda_device()->name,
                   node->n_in > 2);
    tti_dnn_graph_print(g, &key);
    free(g);
    if (!key.failed) {
        snprintf(name, sizeof name, "conv-%016llx", (unsigned long long)tti_hash_name(key.text));
        char *answer = tti_cache_read(name, key.text, &n);
        int lock = answer ? -1 : tti_cache_lock("conv", tti_hash_name(key.text), TIMEOUT_MS);
        if (lock >= 0) answer = tti_cache_read(name, key.text, &n); /* of another worker */
        win = answer && n > 0 ? answer[0] == 'y' : totals_win(s, node, plan, &measured);
        if (measured) tti_cache_write(name, key.text, win ? "y" : "n", 1);
        tti_cache_unlock(lock);
        free(answer);
    }
    tti_str_free(&key);
    return win;
}

/* Operations per byte up to which the older tensor cores keep pace with memory. */
static const double max_flops_per_byte = 150;

static bool is_narrow(const conv_state *s) {
    const tti_cuda_conv *v = &s->conv;
    double x = (double)v->n * (double)v->c * (double)v->h * (double)v->w;
    double y = (double)v->n * (double)v->o * (double)v->p * (double)v->q;
    double bytes = (x + y) * (double)tutti_dtype_bytes(s->dtype);
    return s->dtype != TUTTI_F32 && v->y_last && n_products(v) >= min_timed &&
           2 * n_products(v) < max_flops_per_byte * bytes;
}

static tutti_status prepare_stats_with(const tti_node *node, bool with_dnn, void **state) {
    tti_dnn_plan *plan = NULL;
    TTI_TRY(prepare(node, TTI_CONV_FORWARD, with_dnn, state));
    conv_state *s = *state;
    tutti_status st = TUTTI_OK;
    s->stats_bytes = tti_cuda_stats_bytes(node->out[0]);
    if (with_dnn && tti_dnn_ready() && !tti_cuda_is_exact() && is_narrow(s))
        st = find_plan(s, true, &plan);
    if (st != TUTTI_OK) {
        free(s);
        *state = NULL;
        return st;
    }
    if (s->plan && plan && known_to_win(s, node, plan)) s->with_totals = plan;
    place(s);
    return TUTTI_OK;
}

/* ---- rows ---- */

static bool can_run_dnn(const tti_node *node, tti_cuda_conv_kind kind) {
    tti_cuda_conv v = tti_cuda_conv_read(node, kind);
    return node->in[0]->type.dtype != TUTTI_F64 && n_products(&v) > max_direct &&
           tti_dnn_version() > 0;
}

static bool can_run_forward(const tti_node *node) { return can_run_dnn(node, TTI_CONV_FORWARD); }
static bool can_run_grad_x(const tti_node *node) { return can_run_dnn(node, TTI_CONV_GRAD_X); }
static bool can_run_grad_w(const tti_node *node) { return can_run_dnn(node, TTI_CONV_GRAD_W); }

static tutti_status prepare_forward(const tti_node *node, void **state) {
    return prepare(node, TTI_CONV_FORWARD, true, state);
}
static tutti_status prepare_grad_x(const tti_node *node, void **state) {
    return prepare(node, TTI_CONV_GRAD_X, true, state);
}
static tutti_status prepare_grad_w(const tti_node *node, void **state) {
    return prepare(node, TTI_CONV_GRAD_W, true, state);
}
static tutti_status prepare_stats(const tti_node *node, void **state) {
    return prepare_stats_with(node, true, state);
}
static tutti_status prepare_stats_direct(const tti_node *node, void **state) {
    return prepare_stats_with(node, false, state);
}
static tutti_status prepare_forward_direct(const tti_node *node, void **state) {
    return prepare(node, TTI_CONV_FORWARD, false, state);
}
static tutti_status prepare_grad_x_direct(const tti_node *node, void **state) {
    return prepare(node, TTI_CONV_GRAD_X, false, state);
}
static tutti_status prepare_grad_w_direct(const tti_node *node, void **state) {
    return prepare(node, TTI_CONV_GRAD_W, false, state);
}

const tti_kernel tti_cuda_conv_kernels[] = {
    {.op = "conv2d", .name = "stem", .can_run = can_run_stem_forward, .run = run_stem_forward},
    {.op = "conv2d_grad_w",
     .name = "stem",
     .can_run = can_run_stem_grad_w,
     .scratch_bytes = stem_scratch,
     .run = run_stem_grad_w},
    {"conv2d", "cudnn", can_run_forward, prepare_forward, scratch_bytes, run_forward, free},
    {"conv2d", "direct", NULL, prepare_forward_direct, scratch_bytes, run_forward, free},
    {"conv2d_stats", "cudnn", can_run_forward, prepare_stats, scratch_bytes, run_stats, free},
    {"conv2d_stats", "direct", NULL, prepare_stats_direct, scratch_bytes, run_stats, free},
    {"conv2d_grad_x", "cudnn", can_run_grad_x, prepare_grad_x, scratch_bytes, run_grad_x, free},
    {"conv2d_grad_x", "direct", NULL, prepare_grad_x_direct, scratch_bytes, run_grad_x, free},
    {"conv2d_grad_w", "cudnn", can_run_grad_w, prepare_grad_w, scratch_bytes, run_grad_w, free},
    {"conv2d_grad_w", "direct", NULL, prepare_grad_w_direct, scratch_bytes, run_grad_w, free},
    {0},
};

/* onednn.c - convolutions and matrix products through oneDNN: the only file that sees its C API,
 * version 2 and 3 (the block at the top). f32; activations plain or N,H,W,C.
 *
 * prepare builds everything: primitives, memory objects, and a list of the argument from which each
 * memory object takes its pointer; run sets pointers and executes.  Convolution weights are
 * reordered from and to plain layout in scratch in every run, because the optimizer, the
 * communicator and the checkpoint use plain layout.  One OpenMP thread: oneDNN's weight gradients
 * change bits with the number of threads. */
#include "backend/cpu/cpu.h"

#if TUTTI_HAVE_ONEDNN

#include <dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/nd.h"
#include "backend/levels.h"
#include "base/memory_room.h"

/* libgomp, with which oneDNN is linked; its header comes with gcc only. */
extern void omp_set_num_threads(int n_threads);

/* The parameters of a primitive.  Unused descs are zero. */
typedef struct recipe {
    dnnl_memory_desc_t src, weights, bias, dst;
    bool has_bias;
    dnnl_dims_t stride, dilation, pad; /* dilation as oneDNN counts: 0 is dense */
} recipe;

/* oneDNN declares arrays of its longest rank. */
static void copy_dims(dnnl_dims_t to, const int64_t *from, int n) {
    memset(to, 0, sizeof(dnnl_dims_t));
    memcpy(to, from, (size_t)n * sizeof *from);
}

#if DNNL_VERSION_MAJOR >= 3

typedef const_dnnl_memory_desc_t desc_ref;

static desc_ref ref(const dnnl_memory_desc_t *desc) { return *desc; }

static dnnl_status_t make_desc(dnnl_memory_desc_t *desc, int n, const int64_t *dims,
                               const int64_t *strides) {
    dnnl_dims_t d, s;
    copy_dims(d, dims, n), copy_dims(s, strides, n);
    return dnnl_memory_desc_create_with_strides(desc, n, d, dnnl_f32, s);
}

static dnnl_status_t make_desc_any(dnnl_memory_desc_t *desc, int n, const int64_t *dims) {
    dnnl_dims_t d;
    copy_dims(d, dims, n);
    return dnnl_memory_desc_create_with_tag(desc, n, d, dnnl_f32, dnnl_format_tag_any);
}

static void free_desc(dnnl_memory_desc_t *desc) {
    if (*desc) dnnl_memory_desc_destroy(*desc);
    *desc = NULL;
}

static dnnl_status_t make_conv(dnnl_primitive_desc_t *pd, const recipe *r, dnnl_prop_kind_t prop,
                               dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    return dnnl_convolution_forward_primitive_desc_create(
        pd, engine, prop, dnnl_convolution_direct, r->src, r->weights, r->has_bias ? r->bias : NULL,
        r->dst, r->stride, r->dilation, r->pad, r->pad, attr);
}

static dnnl_status_t make_conv_grad_x(dnnl_primitive_desc_t *pd, const recipe *r,
                                      dnnl_engine_t engine, const_dnnl_primitive_desc_t hint,
                                      const_dnnl_primitive_attr_t attr) {
    return dnnl_convolution_backward_data_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, r->src, r->weights, r->dst, r->stride, r->dilation,
        r->pad, r->pad, hint, attr);
}

static dnnl_status_t make_conv_grad_w(dnnl_primitive_desc_t *pd, const recipe *r,
                                      dnnl_engine_t engine, const_dnnl_primitive_desc_t hint,
                                      const_dnnl_primitive_attr_t attr) {
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, dnnl_convolution_direct, r->src, r->weights, r->bias, r->dst, r->stride,
        r->dilation, r->pad, r->pad, hint, attr);
}

static dnnl_status_t make_matmul(dnnl_primitive_desc_t *pd, const recipe *r, dnnl_engine_t engine,
                                 const_dnnl_primitive_attr_t attr) {
    return dnnl_matmul_primitive_desc_create(pd, engine, r->src, r->weights,
                                             r->has_bias ? r->bias : NULL, r->dst, attr);
}

#else

typedef const dnnl_memory_desc_t *desc_ref;

static desc_ref ref(const dnnl_memory_desc_t *desc) { return desc; }

static dnnl_status_t make_desc(dnnl_memory_desc_t *desc, int n, const int64_t *dims,
                               const int64_t *strides) {
    dnnl_dims_t d, s;
    copy_dims(d, dims, n), copy_dims(s, strides, n);
    return dnnl_memory_desc_init_by_strides(desc, n, d, dnnl_f32, s);
}

static dnnl_status_t make_desc_any(dnnl_memory_desc_t *desc, int n, const int64_t *dims) {
    dnnl_dims_t d;
    copy_dims(d, dims, n);
    return dnnl_memory_desc_init_by_tag(desc, n, d, dnnl_f32, dnnl_format_tag_any);
}

static void free_desc(dnnl_memory_desc_t *desc) { (void)desc; }

static dnnl_status_t make_conv(dnnl_primitive_desc_t *pd, const recipe *r, dnnl_prop_kind_t prop,
                               dnnl_engine_t engine, const_dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t d;
    dnnl_status_t st = dnnl_dilated_convolution_forward_desc_init(
        &d, prop, dnnl_convolution_direct, &r->src, &r->weights, r->has_bias ? &r->bias : NULL,
        &r->dst, r->stride, r->dilation, r->pad, r->pad);
    return st == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : st;
}

static dnnl_status_t make_conv_grad_x(dnnl_primitive_desc_t *pd, const recipe *r,
                                      dnnl_engine_t engine, const_dnnl_primitive_desc_t hint,
                                      const_dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t d;
    dnnl_status_t st = dnnl_dilated_convolution_backward_data_desc_init(
        &d, dnnl_convolution_direct, &r->src, &r->weights, &r->dst, r->stride, r->dilation, r->pad,
        r->pad);
    return st == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, hint) : st;
}

static dnnl_status_t make_conv_grad_w(dnnl_primitive_desc_t *pd, const recipe *r,
                                      dnnl_engine_t engine, const_dnnl_primitive_desc_t hint,
                                      const_dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t d;
    dnnl_status_t st = dnnl_dilated_convolution_backward_weights_desc_init(
        &d, dnnl_convolution_direct, &r->src, &r->weights, &r->bias, &r->dst, r->stride,
        r->dilation, r->pad, r->pad);
    return st == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, hint) : st;
}

static dnnl_status_t make_matmul(dnnl_primitive_desc_t *pd, const recipe *r, dnnl_engine_t engine,
                                 const_dnnl_primitive_attr_t attr) {
    dnnl_matmul_desc_t d;
    dnnl_status_t st =
        dnnl_matmul_desc_init(&d, &r->src, &r->weights, r->has_bias ? &r->bias : NULL, &r->dst);
    return st == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, engine, NULL) : st;
}

#endif

/* ---- a prepared primitive ---- */

/* The source of a memory object's pointer. */
typedef enum source_kind { FROM_IN, FROM_OUT, FROM_SCRATCH } source_kind;
typedef struct binding {
    dnnl_memory_t memory;
    source_kind kind;
    size_t at; /* number of the input or output, or bytes into scratch */
} binding;

enum { MAX_BINDINGS = 10, MAX_ARGS = 6 };

typedef struct action { /* one primitive with its arguments */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[MAX_ARGS];
    int n_args;
} action;

typedef struct prepared {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    action before, main, after; /* before, after: reorders of weights, or none */
    binding bindings[MAX_BINDINGS];
    int n_bindings;
    size_t scratch_bytes;
    bool relu;
} prepared;

#define DNNL_TRY(call)                                 \
    do {                                               \
        dnnl_status_t dnnl_st_ = (call);               \
        if (dnnl_st_ != dnnl_success) return dnnl_st_; \
    } while (0)

static void release(void *state) {
    prepared *p = state;
    if (!p) return;
    for (int i = 0; i < p->n_bindings; i++) dnnl_memory_destroy(p->bindings[i].memory);
    if (p->before.primitive) dnnl_primitive_destroy(p->before.primitive);
    if (p->main.primitive) dnnl_primitive_destroy(p->main.primitive);
    if (p->after.primitive) dnnl_primitive_destroy(p->after.primitive);
    if (p->attr) dnnl_primitive_attr_destroy(p->attr);
    if (p->stream) dnnl_stream_destroy(p->stream);
    if (p->engine) dnnl_engine_destroy(p->engine);
    free(p);
}

static struct {
    pthread_once_t once;
    dnnl_status_t status;
} limit = {.once = PTHREAD_ONCE_INIT};

static void set_limit(void) {
    static const dnnl_cpu_isa_t limits[TTI_CPU_N_LEVELS] = {dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2,
                                                            dnnl_cpu_isa_avx512_core,
                                                            dnnl_cpu_isa_avx512_core_amx};
    int level = tti_cpu_settle_level();
    if (level < 0) return;
    limit.status = dnnl_set_max_cpu_isa(limits[level]);
    /* Other code in this process may have set the same limit before. */
    if (limit.status != dnnl_success && dnnl_get_effective_cpu_isa() == limits[level])
        limit.status = dnnl_success;
}

/* Sets the instruction sets of this process's level (levels.h), before any other call of oneDNN,
 * which accepts a limit only once. */
static dnnl_status_t limit_once(void) {
    pthread_once(&limit.once, set_limit);
    return limit.status;
}

static dnnl_status_t start(prepared *p) {
    DNNL_TRY(limit_once());
    DNNL_TRY(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
    DNNL_TRY(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
    DNNL_TRY(dnnl_primitive_attr_create(&p->attr));
    return dnnl_primitive_attr_set_scratchpad_mode(p->attr, dnnl_scratchpad_mode_user);
}

/* Adds an argument whose memory is found at run time. */
static dnnl_status_t bind(prepared *p, action *to, int arg, desc_ref desc, source_kind kind,
                          size_t at) {
    TTI_ASSERT(p->n_bindings < MAX_BINDINGS && to->n_args < MAX_ARGS);
    binding *b = &p->bindings[p->n_bindings];
    DNNL_TRY(dnnl_memory_create(&b->memory, desc, p->engine, DNNL_MEMORY_NONE));
    b->kind = kind, b->at = at;
    p->n_bindings++;
    to->args[to->n_args++] = (dnnl_exec_arg_t){arg, b->memory};
    return dnnl_success;
}

/* n_bytes of scratch in whole cache lines. */
static size_t alloc_scratch(prepared *p, size_t n_bytes) {
    size_t at = p->scratch_bytes;
    p->scratch_bytes += (n_bytes + 63) / 64 * 64;
    return at;
}

/* The primitive of pd, with its scratchpad bound. */
static dnnl_status_t make_action(prepared *p, action *to, const_dnnl_primitive_desc_t pd) {
    desc_ref pad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    DNNL_TRY(dnnl_primitive_create(&to->primitive, pd));
    size_t n_bytes = pad ? dnnl_memory_desc_get_size(pad) : 0;
    if (!n_bytes) return dnnl_success;
    return bind(p, to, DNNL_ARG_SCRATCHPAD, pad, FROM_SCRATCH, alloc_scratch(p, n_bytes));
}

/* One end of a reorder. */
typedef struct end {
    desc_ref desc;
    source_kind kind;
    size_t at;
} end;

static dnnl_status_t make_reorder(prepared *p, action *to, end from, end into) {
    dnnl_primitive_desc_t pd;
    DNNL_TRY(dnnl_reorder_primitive_desc_create(&pd, from.desc, p->engine, into.desc, p->engine,
                                                p->attr));
    dnnl_status_t st = make_action(p, to, pd);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(st);
    DNNL_TRY(bind(p, to, DNNL_ARG_FROM, from.desc, from.kind, from.at));
    return bind(p, to, DNNL_ARG_TO, into.desc, into.kind, into.at);
}

static dnnl_status_t execute(const prepared *p, const action *a) {
    if (!a->primitive) return dnnl_success;
    return dnnl_primitive_execute(a->primitive, p->stream, a->n_args, a->args);
}

static dnnl_status_t execute_all(const prepared *p, const tti_kargs *args) {
    for (int i = 0; i < p->n_bindings; i++) {
        const binding *b = &p->bindings[i];
        void *at = b->kind == FROM_IN    ? args->in[b->at]
                   : b->kind == FROM_OUT ? args->out[b->at]
                                         : (void *)((char *)args->scratch + b->at);
        DNNL_TRY(dnnl_memory_set_data_handle(b->memory, at));
    }
    DNNL_TRY(execute(p, &p->before));
    DNNL_TRY(execute(p, &p->main));
    DNNL_TRY(execute(p, &p->after));
    return dnnl_stream_wait(p->stream);
}

/* ReLU is a pass of our own: oneDNN's post-op turns NaN into 0, which hides a diverged run. */
static tutti_status run_primitive(void *state, const tti_kargs *args) {
    const prepared *p = state;
    const tti_node *node = args->node;
    dnnl_status_t st = execute_all(p, args);
    if (st != dnnl_success)
        return tti_fail(st == dnnl_out_of_memory ? TUTTI_E_NOMEM : TUTTI_E_INTERNAL,
                        "%s '%s': oneDNN status %d while running", node->op->name, node->name,
                        (int)st);
    if (p->relu) tti_cpu_isa_at(0)->relu(args->out[0], (size_t)tti_value_n_elems(node->out[0]));
    return TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)node;
    return ((const prepared *)state)->scratch_bytes;
}

/* ---- the inputs of the recipes ---- */

static dnnl_status_t desc_of(const tutti_value *value, dnnl_memory_desc_t *desc) {
    size_t stride[TUTTI_MAX_DIMS];
    int64_t signed_stride[TUTTI_MAX_DIMS];
    tti_value_strides(value, stride);
    for (int d = 0; d < value->type.shape.n_dims; d++) signed_stride[d] = (int64_t)stride[d];
    return make_desc(desc, value->type.shape.n_dims, value->type.shape.dim, signed_stride);
}

static void free_recipe(recipe *r) {
    free_desc(&r->src), free_desc(&r->weights), free_desc(&r->bias), free_desc(&r->dst);
}

static void read_pair(const tti_node *node, const char *name, int64_t fallback, int64_t less,
                      dnnl_dims_t out) {
    const tti_attr *attr = tti_attr_get(node, name);
    out[0] = (attr->n > 0 ? attr->v[0] : fallback) - less;
    out[1] = (attr->n > 1 ? attr->v[1] : attr->n > 0 ? attr->v[0] : fallback) - less;
}

/* The weights O,C/g,Kh,Kw as oneDNN's dims; returns how many. */
static int weight_dims(const tti_node *node, const tutti_value *w, int64_t dims[5]) {
    int64_t groups = tti_attr_int(node, "groups");
    const int64_t *d = w->type.shape.dim;
    if (groups == 1) {
        for (int i = 0; i < 4; i++) dims[i] = d[i];
        return 4;
    }
    dims[0] = groups, dims[1] = d[0] / groups;
    for (int i = 1; i < 4; i++) dims[i + 1] = d[i];
    return 5;
}

/* The values of a convolution in their forward roles; b is NULL without bias. */
typedef struct conv_values {
    const tutti_value *x, *w, *b, *y;
} conv_values;

static dnnl_status_t conv_recipe(const tti_node *node, conv_values v, recipe *r) {
    int64_t dims[5];
    int n = weight_dims(node, v.w, dims);
    read_pair(node, "stride", 1, 0, r->stride);
    read_pair(node, "pad", 0, 0, r->pad);
    read_pair(node, "dilation", 1, 1, r->dilation);
    r->has_bias = v.b != NULL;
    DNNL_TRY(desc_of(v.x, &r->src));
    DNNL_TRY(desc_of(v.y, &r->dst));
    if (v.b) DNNL_TRY(desc_of(v.b, &r->bias));
    return make_desc_any(&r->weights, n, dims);
}

/* The plain form of the weights. */
static dnnl_status_t plain_weights(const tti_node *node, const tutti_value *w,
                                   dnnl_memory_desc_t *desc) {
    int64_t dims[5], stride[5], n_elems = 1;
    int n = weight_dims(node, w, dims);
    for (int d = n - 1; d >= 0; d--) stride[d] = n_elems, n_elems *= dims[d];
    return make_desc(desc, n, dims, stride);
}

/* Binds the weights of main: directly where it wants them plain, else through scratch. */
static dnnl_status_t bind_weights(prepared *p, desc_ref plain, desc_ref wanted, bool is_output) {
    int arg = is_output ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;
    end user = {plain, is_output ? FROM_OUT : FROM_IN, is_output ? 0 : 1};
    if (dnnl_memory_desc_equal(plain, wanted))
        return bind(p, &p->main, arg, wanted, user.kind, user.at);
    end packed = {wanted, FROM_SCRATCH, alloc_scratch(p, dnnl_memory_desc_get_size(wanted))};
    DNNL_TRY(bind(p, &p->main, arg, wanted, FROM_SCRATCH, packed.at));
    if (is_output) return make_reorder(p, &p->after, packed, user);
    return make_reorder(p, &p->before, user, packed);
}

/* main from pd, and its weights. */
static dnnl_status_t finish_conv(prepared *p, const tti_node *node, const tutti_value *w,
                                 const_dnnl_primitive_desc_t pd, bool is_output) {
    dnnl_query_t which = is_output ? dnnl_query_diff_weights_md : dnnl_query_weights_md;
    dnnl_memory_desc_t plain = {0};
    DNNL_TRY(make_action(p, &p->main, pd));
    DNNL_TRY(plain_weights(node, w, &plain));
    dnnl_status_t st =
        bind_weights(p, ref(&plain), dnnl_primitive_desc_query_md(pd, which, 0), is_output);
    free_desc(&plain);
    return st;
}

static dnnl_status_t build_conv(prepared *p, const tti_node *node, recipe *r) {
    const tutti_value *b = node->n_in > 2 ? node->in[2] : NULL;
    DNNL_TRY(conv_recipe(node, (conv_values){node->in[0], node->in[1], b, node->out[0]}, r));
    DNNL_TRY(start(p));
    dnnl_primitive_desc_t pd;
    DNNL_TRY(make_conv(&pd, r, dnnl_forward_inference, p->engine, p->attr));
    dnnl_status_t st = finish_conv(p, node, node->in[1], pd, false);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(st);
    DNNL_TRY(bind(p, &p->main, DNNL_ARG_SRC, ref(&r->src), FROM_IN, 0));
    if (b) DNNL_TRY(bind(p, &p->main, DNNL_ARG_BIAS, ref(&r->bias), FROM_IN, 2));
    return bind(p, &p->main, DNNL_ARG_DST, ref(&r->dst), FROM_OUT, 0);
}

/* The gradients name a forward primitive as a hint; only its descs count. */
static dnnl_status_t build_conv_grad_x(prepared *p, const tti_node *node, recipe *r) {
    DNNL_TRY(conv_recipe(node, (conv_values){node->out[0], node->in[1], NULL, node->in[0]}, r));
    DNNL_TRY(start(p));
    dnnl_primitive_desc_t hint, pd;
    DNNL_TRY(make_conv(&hint, r, dnnl_forward_training, p->engine, p->attr));
    dnnl_status_t st = make_conv_grad_x(&pd, r, p->engine, hint, p->attr);
    dnnl_primitive_desc_destroy(hint);
    DNNL_TRY(st);
    st = finish_conv(p, node, node->in[1], pd, false);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(st);
    DNNL_TRY(bind(p, &p->main, DNNL_ARG_DIFF_DST, ref(&r->dst), FROM_IN, 0));
    return bind(p, &p->main, DNNL_ARG_DIFF_SRC, ref(&r->src), FROM_OUT, 0);
}

static dnnl_status_t build_conv_grad_w(prepared *p, const tti_node *node, recipe *r) {
    conv_values v = {node->in[1], node->out[0], node->out[1], node->in[0]};
    DNNL_TRY(conv_recipe(node, v, r));
    DNNL_TRY(start(p));
    dnnl_primitive_desc_t hint, pd;
    DNNL_TRY(make_conv(&hint, r, dnnl_forward_training, p->engine, p->attr));
    dnnl_status_t st = make_conv_grad_w(&pd, r, p->engine, hint, p->attr);
    dnnl_primitive_desc_destroy(hint);
    DNNL_TRY(st);
    st = finish_conv(p, node, node->out[0], pd, true);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(st);
    DNNL_TRY(bind(p, &p->main, DNNL_ARG_SRC, ref(&r->src), FROM_IN, 1));
    DNNL_TRY(bind(p, &p->main, DNNL_ARG_DIFF_DST, ref(&r->dst), FROM_IN, 0));
    return bind(p, &p->main, DNNL_ARG_DIFF_BIAS, ref(&r->bias), FROM_OUT, 1);
}

/* ---- matrix products ---- */

/* y[B,M,N] = x[B,M,K] w[B,K,N]: transposes are strides.  n_dims 2: no batch. */
typedef struct product {
    int n_dims;
    int64_t batch, m, n, k;
    bool trans_x, trans_w, one_w; /* one_w: w has no batch */
    size_t x_in, w_in;            /* numbers of the inputs */
} product;

static dnnl_status_t matrix_desc(const product *g, int64_t batch, int64_t rows, int64_t cols,
                                 bool trans, dnnl_memory_desc_t *desc) {
    int64_t dims[3] = {batch, rows, cols};
    int64_t stride[3] = {rows * cols, trans ? 1 : cols, trans ? rows : 1};
    return make_desc(desc, g->n_dims, dims + 3 - g->n_dims, stride + 3 - g->n_dims);
}

static dnnl_status_t build_product(prepared *p, const product *g, recipe *r) {
    DNNL_TRY(matrix_desc(g, g->batch, g->m, g->k, g->trans_x, &r->src));
    DNNL_TRY(matrix_desc(g, g->one_w ? 1 : g->batch, g->k, g->n, g->trans_w, &r->weights));
    DNNL_TRY(matrix_desc(g, g->batch, g->m, g->n, false, &r->dst));
    if (r->has_bias) DNNL_TRY(matrix_desc(g, 1, 1, g->n, false, &r->bias));
    DNNL_TRY(start(p));
    dnnl_primitive_desc_t pd;
    DNNL_TRY(make_matmul(&pd, r, p->engine, p->attr));
    dnnl_status_t st = make_action(p, &p->main, pd);
    dnnl_primitive_desc_destroy(pd);
    DNNL_TRY(st);
    DNNL_TRY(bind(p, &p->main, DNNL_ARG_SRC, ref(&r->src), FROM_IN, g->x_in));
    DNNL_TRY(bind(p, &p->main, DNNL_ARG_WEIGHTS, ref(&r->weights), FROM_IN, g->w_in));
    if (r->has_bias) DNNL_TRY(bind(p, &p->main, DNNL_ARG_BIAS, ref(&r->bias), FROM_IN, 2));
    return bind(p, &p->main, DNNL_ARG_DST, ref(&r->dst), FROM_OUT, 0);
}

static int64_t dim_from_end(const tutti_value *value, int i) {
    return value->type.shape.dim[value->type.shape.n_dims - i];
}

/* The product of all dimensions but the last n. */
static int64_t n_leading(const tutti_value *value, int n) {
    int64_t n_elems = 1;
    for (int d = 0; d < value->type.shape.n_dims - n; d++) n_elems *= value->type.shape.dim[d];
    return n_elems;
}

static dnnl_status_t build_matmul(prepared *p, const tti_node *node, recipe *r) {
    const tutti_value *x = node->in[0], *y = node->out[0];
    product g = {.n_dims = 3, .x_in = 0, .w_in = 1};
    g.trans_x = tti_attr_int(node, "trans_a") != 0;
    g.trans_w = tti_attr_int(node, "trans_b") != 0;
    g.m = dim_from_end(y, 2), g.n = dim_from_end(y, 1), g.k = dim_from_end(x, g.trans_x ? 2 : 1);
    g.batch = n_leading(x, 2);
    g.one_w = node->in[1]->type.shape.n_dims == 2;
    if (g.one_w && (!g.trans_x || g.batch == 1)) g.m *= g.batch, g.batch = 1, g.n_dims = 2;
    return build_product(p, &g, r);
}

static dnnl_status_t build_linear(prepared *p, const tti_node *node, recipe *r) {
    product g = {.n_dims = 2, .batch = 1, .trans_w = true, .x_in = 0, .w_in = 1};
    g.m = n_leading(node->in[0], 1), g.k = dim_from_end(node->in[0], 1);
    g.n = dim_from_end(node->in[1], 2);
    r->has_bias = node->n_in > 2;
    return build_product(p, &g, r);
}

/* dw[N,K] = dy^T x; db is summed by run_linear_grad_w. */
static dnnl_status_t build_linear_grad_w(prepared *p, const tti_node *node, recipe *r) {
    product g = {.n_dims = 2, .batch = 1, .trans_x = true, .x_in = 0, .w_in = 1};
    g.m = dim_from_end(node->in[0], 1), g.n = dim_from_end(node->in[1], 1);
    g.k = n_leading(node->in[0], 1);
    return build_product(p, &g, r);
}

static tutti_status run_linear_grad_w(void *state, const tti_kargs *args) {
    const tutti_value *dy = args->node->in[0];
    TTI_TRY(run_primitive(state, args));
    tti_cpu_isa_at(0)->sum_columns(args->in[0], (size_t)n_leading(dy, 1),
                                   (size_t)dim_from_end(dy, 1), args->out[1]);
    return TUTTI_OK;
}

/* oneDNN writes to memory for generated code that it did not get: never let it run out of address
 * space, not even with several threads at it. */
enum { ROOM = 64 << 20 };

static tutti_status check_room(const char *what, const char *name) {
    if (tti_memory_can_map(ROOM)) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM,
                    "%s '%s': less than %d MB of address space are left for kernels; raise ulimit "
                    "-v, or use fewer workers or a smaller train.batch",
                    what, name, ROOM >> 20);
}

/* ---- a product without preparation ---- */

tutti_status tti_onednn_product(const tti_product *p) {
    dnnl_dim_t m = (dnnl_dim_t)p->m, n = (dnnl_dim_t)p->n, k = (dnnl_dim_t)p->k;
    TTI_TRY(check_room("product", "sgemm"));
    dnnl_status_t st = limit_once();
    if (st == dnnl_success)
        st = dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', m, n, k, 1.0f, p->a,
                        (dnnl_dim_t)p->a_row, p->b, (dnnl_dim_t)p->b_row, p->add ? 1.0f : 0.0f,
                        p->c, (dnnl_dim_t)p->c_row);
    if (st == dnnl_success) return TUTTI_OK;
    return tti_fail(st == dnnl_out_of_memory ? TUTTI_E_NOMEM : TUTTI_E_INTERNAL,
                    "oneDNN status %d in a product of %zu x %zu x %zu", (int)st, p->m, p->n, p->k);
}

/* ---- kernels ---- */

typedef dnnl_status_t (*build_fn)(prepared *p, const tti_node *node, recipe *r);

static tutti_status prepare(const tti_node *node, build_fn build, void **state) {
    TTI_TRY(check_room(node->op->name, node->name));
    tti_onednn_thread_init(); /* the size of scratchpads follows the number of threads */
    prepared *p = calloc(1, sizeof *p);
    recipe r = {0};
    if (!p) return tti_fail(TUTTI_E_NOMEM, "%s '%s': out of memory", node->op->name, node->name);
    p->relu = tti_attr_has(node, "act") && tti_attr_int(node, "act") == TTI_EPILOGUE_RELU;
    dnnl_status_t st = build(p, node, &r);
    free_recipe(&r);
    if (st == dnnl_success) {
        *state = p;
        return TUTTI_OK;
    }
    release(p);
    return tti_fail(st == dnnl_out_of_memory ? TUTTI_E_NOMEM : TUTTI_E_INTERNAL,
                    "%s '%s': oneDNN status %d while preparing", node->op->name, node->name,
                    (int)st);
}

static tutti_status prepare_conv(const tti_node *node, void **state) {
    return prepare(node, build_conv, state);
}
static tutti_status prepare_conv_grad_x(const tti_node *node, void **state) {
    return prepare(node, build_conv_grad_x, state);
}
static tutti_status prepare_conv_grad_w(const tti_node *node, void **state) {
    return prepare(node, build_conv_grad_w, state);
}
static tutti_status prepare_matmul(const tti_node *node, void **state) {
    return prepare(node, build_matmul, state);
}
static tutti_status prepare_linear(const tti_node *node, void **state) {
    return prepare(node, build_linear, state);
}
static tutti_status prepare_linear_grad_w(const tti_node *node, void **state) {
    return prepare(node, build_linear_grad_w, state);
}

/* f32 and nothing empty. */
static bool is_usable(const tutti_value *value) {
    return value->type.dtype == TUTTI_F32 && tti_value_n_elems(value) > 0;
}

static bool is_last(const tutti_value *value) {
    return value->layout == TTI_CHANNELS_LAST_BYTES && value->type.shape.n_dims == 4;
}

static bool all_usable(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (!is_usable(node->in[i])) return false;
    for (int k = 0; k < node->op->n_out; k++)
        if (!is_usable(node->out[k])) return false;
    return true;
}

static bool can_run_plain(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (is_last(node->in[i])) return false;
    return all_usable(node) && !is_last(node->out[0]);
}

/* Two activations of one layout; with one channel the layouts are the same bytes. */
static bool one_layout(const tutti_value *x, const tutti_value *y) {
    return is_last(x) == is_last(y) || x->type.shape.dim[1] == 1 || y->type.shape.dim[1] == 1;
}

static bool can_run_conv(const tti_node *node) {
    return all_usable(node) && !is_last(node->in[1]) && one_layout(node->in[0], node->out[0]);
}

static bool can_run_conv_grad_w(const tti_node *node) {
    return all_usable(node) && !is_last(node->out[0]) && one_layout(node->in[0], node->in[1]);
}

#define ROW(op_name, can_run_fn, prepare_fn, run_fn)                                   \
    {                                                                                  \
        .op = op_name, .name = "onednn", .can_run = can_run_fn, .prepare = prepare_fn, \
        .scratch_bytes = scratch_bytes, .run = run_fn, .release = release              \
    }

const tti_kernel tti_onednn_kernels[] = {
    ROW("conv2d", can_run_conv, prepare_conv, run_primitive),
    ROW("conv2d_grad_x", can_run_conv, prepare_conv_grad_x, run_primitive),
    ROW("conv2d_grad_w", can_run_conv_grad_w, prepare_conv_grad_w, run_primitive),
    ROW("matmul", can_run_plain, prepare_matmul, run_primitive),
    ROW("linear", can_run_plain, prepare_linear, run_primitive),
    ROW("linear_grad_w", can_run_plain, prepare_linear_grad_w, run_linear_grad_w),
    {0},
};

void tti_onednn_thread_init(void) { omp_set_num_threads(1); }

void tti_onednn_describe(tti_str *str) {
    const dnnl_version_t *v = dnnl_version();
    tti_str_printf(str, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

#else

const tti_kernel tti_onednn_kernels[] = {{0}};

void tti_onednn_thread_init(void) {}

tutti_status tti_onednn_product(const tti_product *p) {
    (void)p;
    return tti_fail(TUTTI_E_UNSUPPORTED, "this build has no oneDNN");
}

void tti_onednn_describe(tti_str *str) { tti_str_add(str, "no oneDNN"); }

#endif

/* elementwise.c - kernel table rows for the elementwise ops, their chains, broadcasting, and
 * swiglu and geglu.
 *
 * prepare() turns a node, or the body of a fused one, into a small program (elementwise.h) and
 * chooses the fastest way to run it; run() only launches. */
#include "backend/cuda/runtime/elementwise.h"

#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/cuda.h"

/* ---- from ops to functions ---- */

typedef struct fn_row {
    const char *op;
    tti_elem_fn fn;
} fn_row;

static const fn_row fn_rows[] = {
    {"neg", TTI_ELEM_NEG},
    {"exp", TTI_ELEM_EXP},
    {"log", TTI_ELEM_LOG},
    {"sqrt", TTI_ELEM_SQRT},
    {"abs", TTI_ELEM_ABS},
    {"square", TTI_ELEM_SQUARE},
    {"sign", TTI_ELEM_SIGN},
    {"affine", TTI_ELEM_AFFINE},
    {"cast", TTI_ELEM_COPY},
    {"broadcast_to", TTI_ELEM_COPY},
    {"relu", TTI_ELEM_RELU},
    {"relu_grad", TTI_ELEM_RELU_GRAD},
    {"relu6", TTI_ELEM_RELU6},
    {"relu6_grad", TTI_ELEM_RELU6_GRAD},
    {"sigmoid", TTI_ELEM_SIGMOID},
    {"sigmoid_grad", TTI_ELEM_SIGMOID_GRAD},
    {"tanh", TTI_ELEM_TANH},
    {"tanh_grad", TTI_ELEM_TANH_GRAD},
    {"gelu", TTI_ELEM_GELU},
    {"gelu_grad", TTI_ELEM_GELU_GRAD},
    {"silu", TTI_ELEM_SILU},
    {"silu_grad", TTI_ELEM_SILU_GRAD},
    {"add", TTI_ELEM_ADD},
    {"sub", TTI_ELEM_SUB},
    {"mul", TTI_ELEM_MUL},
    {"div", TTI_ELEM_DIV},
    {"maximum", TTI_ELEM_MAXIMUM},
    {"minimum", TTI_ELEM_MINIMUM},
    {"sin", TTI_ELEM_SIN},
    {"cos", TTI_ELEM_COS},
    {"erf", TTI_ELEM_ERF},
    {"log1p", TTI_ELEM_LOG1P},
    {"expm1", TTI_ELEM_EXPM1},
    {"floor", TTI_ELEM_FLOOR},
    {"round", TTI_ELEM_ROUND},
    {"pow", TTI_ELEM_POW},
    {"equal", TTI_ELEM_EQUAL},
    {"less", TTI_ELEM_LESS},
    {"less_equal", TTI_ELEM_LESS_EQUAL},
    {"keep", TTI_ELEM_KEEP},
};

/* TTI_ELEM_N: not one of ours. */
static tti_elem_fn find_fn(const tti_node *node) {
    tti_elem_fn fn = TTI_ELEM_N;
    for (size_t i = 0; i < TTI_COUNT(fn_rows) && fn == TTI_ELEM_N; i++)
        if (strcmp(fn_rows[i].op, node->op->name) == 0) fn = fn_rows[i].fn;
    if (fn != TTI_ELEM_GELU && fn != TTI_ELEM_GELU_GRAD) return fn;
    if (tti_attr_int(node, "approximate") == 0) return fn;
    return fn == TTI_ELEM_GELU ? TTI_ELEM_GELU_TANH : TTI_ELEM_GELU_TANH_GRAD;
}

/* ---- programs ---- */

static bool is_wide(tutti_dtype dtype) {
    return dtype != TUTTI_F32 && dtype != TUTTI_BF16 && dtype != TUTTI_F16;
}

/* Whether value is the result of the step before, else which input of node it is; -1: neither. */
static int find_source(const tti_node *node, const tutti_value *before, const tutti_value *value,
                       bool *is_before) {
    *is_before = value == before;
    for (int i = 0; i < node->n_in && !*is_before; i++)
        if (node->in[i] == value) return i;
    return *is_before ? 0 : -1;
}

/* The step of part, which comes after the value before (NULL: it is the first). */
static bool add_step(tti_elem_program *p, const tti_node *node, const tti_node *part,
                     const tutti_value *before) {
    bool old[2] = {false, false};
    int from[2] = {-1, -1};
    tti_elem_fn fn = find_fn(part);
    if (fn == TTI_ELEM_N || part->n_in < 1 || part->n_in > 2) return false;
    tti_elem_step *step = &p->step[p->n_steps++];
    *step = (tti_elem_step){.fn = (uint8_t)fn,
                            .other = TTI_ELEM_NONE,
                            .dtype = (uint8_t)part->out[0]->type.dtype,
                            .wide = is_wide(part->out[0]->type.dtype)};
    for (int i = 0; i < part->n_in; i++) {
        from[i] = find_source(node, before, part->in[i], &old[i]);
        if (from[i] < 0) return false;
        step->wide |= is_wide(part->in[i]->type.dtype);
    }
    if (!before) {
        p->first = (uint8_t)from[0];
        old[0] = true;
    }
    if (!old[0] && !old[1]) return false;
    step->swapped = !old[0];
    if (part->n_in == 2)
        step->other = old[0] && old[1] ? TTI_ELEM_SELF : (uint8_t)(old[0] ? from[1] : from[0]);
    if (fn == TTI_ELEM_AFFINE) {
        step->alpha = tti_attr_float(part, "alpha");
        step->beta = tti_attr_float(part, "beta");
    }
    return true;
}

/* The program of node; false: it cannot be expressed. */
static bool make_program(const tti_node *node, tti_elem_program *p) {
    *p = (tti_elem_program){.n_in = node->n_in, .out_dtype = (uint8_t)node->out[0]->type.dtype};
    int64_t n = tti_value_n_elems(node->out[0]);
    if (node->n_in < 1 || node->n_in > TTI_ELEM_INPUTS) return false;
    for (int i = 0; i < node->n_in; i++) {
        p->dtype[i] = (uint8_t)node->in[i]->type.dtype;
        p->is_scalar[i] = n != 1 && tti_value_n_elems(node->in[i]) == 1;
    }
    if (!(node->op->traits & TTI_FUSED)) return add_step(p, node, node, NULL);
    if (node->n_body < 1 || node->n_body > TTI_ELEM_STEPS) return false;
    for (int k = 0; k < node->n_body; k++)
        if (!add_step(p, node, node->body[k], k ? node->body[k - 1]->out[0] : NULL)) return false;
    return true;
}

/* ---- the way to run it ---- */

typedef enum way { DIRECT, CHAIN, BROADCAST, ANY } way;

typedef struct elem_state {
    way way;
    tti_elem_program program;
    tti_nest nest; /* y and the inputs: BROADCAST, ANY */
} elem_state;

/* Every input has the elements of the output in its order, or is one element. */
static bool is_flat(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (tti_value_n_elems(node->in[i]) != 1 && !tti_cuda_same_order(node->in[i], node->out[0]))
            return false;
    return true;
}

static bool any_scalar(const tti_elem_program *p) {
    for (int i = 0; i < p->n_in; i++)
        if (p->is_scalar[i]) return true;
    return false;
}

/* Floats of at most 32 bits all along; i32 and u8 may only be cast from. */
static bool fits_chain(const tti_elem_program *p) {
    if (is_wide((tutti_dtype)p->out_dtype)) return false;
    for (int i = 0; i < p->n_in; i++)
        if (p->dtype[i] == TUTTI_F64 || p->dtype[i] == TUTTI_I64) return false;
    for (int k = 0; k < p->n_steps; k++) {
        bool narrow = !is_wide((tutti_dtype)p->step[k].dtype);
        if (!narrow || (p->step[k].wide && p->step[k].fn != TTI_ELEM_COPY)) return false;
    }
    return true;
}

/* y = fn(in 0, in 1) in this order, or fn(in 0), without a chain. */
static bool is_single(const tti_elem_program *p) {
    const tti_elem_step *step = &p->step[0];
    bool second = step->other == (p->n_in == 2 ? 1 : TTI_ELEM_NONE);
    return p->n_steps == 1 && p->first == 0 && second && !step->swapped;
}

static way choose(const tti_node *node, const tti_elem_program *p) {
    bool narrow = fits_chain(p), flat = is_flat(node);
    tti_elem_fn fn = (tti_elem_fn)p->step[0].fn;
    if (!narrow) return ANY;
    if (flat && is_single(p) && !any_scalar(p) &&
        tti_cuda_elem_has_direct(fn, (tutti_dtype)p->dtype[0], (tutti_dtype)p->out_dtype))
        return DIRECT;
    if (flat) return CHAIN;
    bool is_zip = fn == TTI_ELEM_COPY || (fn >= TTI_ELEM_ADD && fn <= TTI_ELEM_KEEP);
    return is_zip && is_single(p) && p->dtype[0] == p->out_dtype ? BROADCAST : ANY;
}

static bool elem_can_run(const tti_node *node) {
    tti_elem_program program;
    return make_program(node, &program);
}

static tutti_status elem_prepare(const tti_node *node, void **state) {
    elem_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "%s '%s': out of memory", node->op->name, node->name);
    TTI_ASSERT(make_program(node, &s->program));
    s->way = choose(node, &s->program);
    const tutti_value *operand[1 + TTI_ELEM_INPUTS] = {node->out[0]};
    for (int i = 0; i < node->n_in; i++) operand[1 + i] = node->in[i];
    s->nest = tti_cuda_nest(&node->out[0]->type.shape, operand, 1 + node->n_in);
    *state = s;
    return TUTTI_OK;
}

static tutti_status elem_run(void *state, const tti_kargs *a) {
    const elem_state *s = state;
    const tti_elem_program *p = &s->program;
    const void *const *in = (const void *const *)a->in;
    uint64_t n = (uint64_t)tti_value_n_elems(a->node->out[0]);
    tti_elem_fn fn = (tti_elem_fn)p->step[0].fn;
    cudaStream_t stream = tti_cuda_stream();
    cudaError_t error = cudaSuccess;
    switch (s->way) {
        case DIRECT:
            error = tti_cuda_elem_direct(fn, (tutti_dtype)p->dtype[0], (tutti_dtype)p->out_dtype,
                                         in, a->out[0], n, stream);
            break;
        case CHAIN:
            error = tti_cuda_elem_chain(p, in, a->out[0], n, stream);
            break;
        case BROADCAST:
            error = tti_cuda_elem_broadcast(fn, (tutti_dtype)p->out_dtype, &s->nest, in, a->out[0],
                                            stream);
            break;
        case ANY:
            error = tti_cuda_elem_any(p, &s->nest, in, a->out[0], stream);
            break;
    }
    return tti_cuda_check(error, a->node->op->name);
}

/* ---- swiglu, geglu ---- */

/* The rows are those of the plain layout. */
static bool is_plain(const tutti_value *value) {
    tutti_value plain = *value;
    plain.layout = TTI_PLAIN;
    return tti_cuda_same_order(value, &plain);
}

static bool gated_can_run(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (!is_plain(node->in[i])) return false;
    return is_plain(node->out[0]);
}

static tti_gate gate_of(const tti_node *node) {
    if (!tti_attr_has(node, "approximate")) return TTI_GATE_SILU;
    return tti_attr_int(node, "approximate") ? TTI_GATE_GELU_TANH : TTI_GATE_GELU;
}

static tutti_status gated_run(void *state, const tti_kargs *a) {
    const tutti_type *x = &a->node->in[0]->type;
    uint64_t half = (uint64_t)x->shape.dim[x->shape.n_dims - 1] / 2;
    uint64_t n = (uint64_t)tti_value_n_elems(a->node->in[0]);
    bool is_gradient = a->node->n_in == 2;
    tti_gated gated = {.gate = gate_of(a->node),
                       .dtype = x->dtype,
                       .x = a->in[0],
                       .dy = is_gradient ? a->in[1] : NULL,
                       .out = a->out[0],
                       .n_rows = half ? n / (2 * half) : 0,
                       .n_half = half};
    (void)state;
    cudaError_t error = tti_cuda_gated(&gated, tti_cuda_stream());
    return tti_cuda_check(error, a->node->op->name);
}

#define ELEM(op_name)                                                                    \
    {                                                                                    \
        .op = op_name, .name = "cuda", .can_run = elem_can_run, .prepare = elem_prepare, \
        .run = elem_run, .release = free                                                 \
    }

const tti_kernel tti_cuda_elementwise_kernels[] = {
    ELEM("fused"),
    ELEM("add"),
    ELEM("sub"),
    ELEM("mul"),
    ELEM("div"),
    ELEM("maximum"),
    ELEM("minimum"),
    ELEM("pow"),
    ELEM("equal"),
    ELEM("less"),
    ELEM("less_equal"),
    ELEM("keep"),
    ELEM("broadcast_to"),
    ELEM("cast"),
    ELEM("neg"),
    ELEM("exp"),
    ELEM("log"),
    ELEM("sqrt"),
    ELEM("abs"),
    ELEM("square"),
    ELEM("sign"),
    ELEM("sin"),
    ELEM("cos"),
    ELEM("erf"),
    ELEM("log1p"),
    ELEM("expm1"),
    ELEM("floor"),
    ELEM("round"),
    ELEM("affine"),
    ELEM("relu"),
    ELEM("relu_grad"),
    ELEM("relu6"),
    ELEM("relu6_grad"),
    ELEM("sigmoid"),
    ELEM("sigmoid_grad"),
    ELEM("tanh"),
    ELEM("tanh_grad"),
    ELEM("gelu"),
    ELEM("gelu_grad"),
    ELEM("silu"),
    ELEM("silu_grad"),
    {.op = "swiglu", .name = "cuda", .can_run = gated_can_run, .run = gated_run},
    {.op = "swiglu_grad", .name = "cuda", .can_run = gated_can_run, .run = gated_run},
    {.op = "geglu", .name = "cuda", .can_run = gated_can_run, .run = gated_run},
    {.op = "geglu_grad", .name = "cuda", .can_run = gated_can_run, .run = gated_run},
    {0},
};

/* depthwise.c - kernel table rows for depthwise convolutions of N,H,W,C values.
 *
 * cuDNN takes a quarter of a second to make a plan for each of them, and its kernels are slow in 16
 * bits. */
#include "backend/cuda/conv/depthwise.h"

#include <stdlib.h>

#include "backend/cuda/conv/conv_node.h"
#include "backend/cuda/norm/bn_stats.h"
#include "backend/cuda/runtime/cuda.h"

typedef struct depthwise_state {
    tutti_dtype dtype;
    tti_cuda_conv conv;
    tti_depthwise_plan plan;
    size_t n_bytes; /* of scratch */
} depthwise_state;

static const tti_cuda_conv_kind conv_kinds[] = {TTI_CONV_FORWARD, TTI_CONV_GRAD_X, TTI_CONV_GRAD_W};

static bool can_run(const tti_node *node, tti_depthwise_kind kind) {
    tti_cuda_conv v = tti_cuda_conv_read(node, conv_kinds[kind]);
    return tti_depthwise_supports(node->in[0]->type.dtype, &v);
}

static bool can_run_forward(const tti_node *node) { return can_run(node, TTI_DEPTHWISE_FORWARD); }
static bool can_run_grad_x(const tti_node *node) { return can_run(node, TTI_DEPTHWISE_GRAD_X); }
static bool can_run_grad_w(const tti_node *node) { return can_run(node, TTI_DEPTHWISE_GRAD_W); }

static tutti_status prepare(const tti_node *node, tti_depthwise_kind kind, void **state) {
    depthwise_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "conv2d: out of memory");
    s->dtype = node->in[0]->type.dtype;
    s->conv = tti_cuda_conv_read(node, conv_kinds[kind]);
    s->plan = tti_depthwise_plan_of(s->dtype, &s->conv, kind);
    if (kind == TTI_DEPTHWISE_GRAD_W) s->n_bytes = tti_depthwise_grad_w_bytes(&s->conv, &s->plan);
    *state = s;
    return TUTTI_OK;
}

static tutti_status prepare_forward(const tti_node *node, void **state) {
    return prepare(node, TTI_DEPTHWISE_FORWARD, state);
}
static tutti_status prepare_grad_x(const tti_node *node, void **state) {
    return prepare(node, TTI_DEPTHWISE_GRAD_X, state);
}
static tutti_status prepare_grad_w(const tti_node *node, void **state) {
    return prepare(node, TTI_DEPTHWISE_GRAD_W, state);
}

static tutti_status prepare_stats(const tti_node *node, void **state) {
    TTI_TRY(prepare_forward(node, state));
    ((depthwise_state *)*state)->n_bytes = tti_cuda_stats_bytes(node->out[0]);
    return TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)node;
    return ((const depthwise_state *)state)->n_bytes;
}

static tutti_status run_forward(void *state, const tti_kargs *a) {
    const depthwise_state *s = state;
    const void *bias = a->node->n_in > 2 ? a->in[2] : NULL;
    bool relu = tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU;
    TTI_CUDA(tti_depthwise_forward(s->dtype, &s->conv, &s->plan, a->in[0], a->in[1], bias, relu,
                                   a->out[0], tti_cuda_stream()));
    return TUTTI_OK;
}

/* x, w, rows?: y, stats */
static tutti_status run_stats(void *state, const tti_kargs *a) {
    const depthwise_state *s = state;
    const int32_t *rows = a->node->n_in > 2 ? a->in[2] : NULL;
    TTI_CUDA(tti_depthwise_forward(s->dtype, &s->conv, &s->plan, a->in[0], a->in[1], NULL, false,
                                   a->out[0], tti_cuda_stream()));
    return tti_cuda_stats_run(a->node->out[0], a->out[0], rows, NULL, a->scratch, a->out[1]);
}

static tutti_status run_grad_x(void *state, const tti_kargs *a) {
    const depthwise_state *s = state;
    TTI_CUDA(tti_depthwise_grad_x(s->dtype, &s->conv, &s->plan, a->in[0], a->in[1], a->out[0],
                                  tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_grad_w(void *state, const tti_kargs *a) {
    const depthwise_state *s = state;
    void *db = tti_attr_int(a->node, "bias") ? a->out[1] : NULL;
    TTI_CUDA(tti_depthwise_grad_w(s->dtype, &s->conv, &s->plan, a->in[0], a->in[1], a->scratch,
                                  a->out[0], db, tti_cuda_stream()));
    return TUTTI_OK;
}

const tti_kernel tti_cuda_depthwise_kernels[] = {
    {"conv2d", "depthwise", can_run_forward, prepare_forward, scratch_bytes, run_forward, free},
    {"conv2d_stats", "depthwise", can_run_forward, prepare_stats, scratch_bytes, run_stats, free},
    {"conv2d_grad_x", "depthwise", can_run_grad_x, prepare_grad_x, scratch_bytes, run_grad_x, free},
    {"conv2d_grad_w", "depthwise", can_run_grad_w, prepare_grad_w, scratch_bytes, run_grad_w, free},
    {0},
};

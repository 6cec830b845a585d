/* norm.c - layer, RMS and group norm, their gradients, and their merged forms from fuse_norm.c.
 *
 * Every op is one of two launches (norm.h): rows forward, or rows backward with any of dx, a copy
 * of dx in another dtype, and column sums for gamma and beta. */
#include "backend/cuda/norm/norm.h"

#include <string.h>

#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/norm/norm_16bit.h"
#include "backend/cuda/runtime/cuda.h"

static tti_cuda_floats in_of(const tti_kargs *a, int i) {
    return (tti_cuda_floats){a->in[i], a->node->in[i]->type.dtype};
}

static tti_cuda_floats out_of(const tti_kargs *a, int k) {
    return (tti_cuda_floats){a->out[k], a->node->out[k]->type.dtype};
}

static tutti_status forward(const tti_cuda_norm *norm) {
    if (tti_cuda_norm_16bit_forward_can(norm))
        TTI_CUDA(tti_cuda_norm_16bit_forward(norm, tti_cuda_stream()));
    else
        TTI_CUDA(tti_cuda_norm_forward(norm, tti_cuda_stream()));
    return TUTTI_OK;
}

/* x, gamma, beta? -> y, mean, rstd; RMS norm without mean. */
static tutti_status forward_run(void *state, const tti_kargs *a) {
    tti_cuda_norm norm = {.rows = tti_rows_of(a->node, 0), .eps = tti_attr_float(a->node, "eps")};
    (void)state;
    norm.x = in_of(a, 0);
    norm.gamma = a->in[1];
    norm.beta = a->node->n_in > 2 ? a->in[2] : NULL;
    norm.y = out_of(a, 0);
    norm.mean = norm.rows.centred ? a->out[1] : NULL;
    norm.rstd = a->out[norm.rows.centred ? 2 : 1];
    return forward(&norm);
}

/* x, branch, gamma, beta? -> y, sum, mean, rstd. */
static tutti_status add_forward_run(void *state, const tti_kargs *a) {
    tti_cuda_norm norm = {.rows = tti_rows_of(a->node, 0), .eps = tti_attr_float(a->node, "eps")};
    (void)state;
    norm.x = in_of(a, 0);
    norm.branch = in_of(a, 1);
    norm.gamma = a->in[2];
    norm.beta = a->node->n_in > 3 ? a->in[3] : NULL;
    norm.y = out_of(a, 0);
    norm.sum = out_of(a, 1);
    norm.mean = a->out[2];
    norm.rstd = a->out[3];
    return forward(&norm);
}

/* dy, x, mean?, rstd: what all gradients begin with. */
static tti_cuda_norm_grad grad_of(const tti_kargs *a) {
    tti_cuda_norm_grad grad = {.rows = tti_rows_of(a->node, 1)};
    int centred = grad.rows.centred ? 1 : 0;
    grad.dy = in_of(a, 0);
    grad.x = in_of(a, 1);
    grad.mean = centred ? a->in[2] : NULL;
    grad.rstd = a->in[2 + centred];
    return grad;
}

static tutti_status grad_x_run(void *state, const tti_kargs *a) {
    tti_cuda_norm_grad grad = grad_of(a);
    (void)state;
    grad.gamma = a->in[a->node->n_in - 1];
    grad.dx = out_of(a, 0);
    TTI_CUDA(tti_cuda_norm_backward(&grad, tti_cuda_stream()));
    return TUTTI_OK;
}

static size_t sums_scratch(const tti_node *node, const void *state) {
    tti_rows rows = tti_rows_of(node, 1);
    (void)state;
    return tti_cuda_norm_scratch(&rows);
}

static tutti_status grad_w_run(void *state, const tti_kargs *a) {
    tti_cuda_norm_grad grad = grad_of(a);
    (void)state;
    grad.dgamma = a->out[0];
    grad.dbeta = grad.rows.centred ? a->out[1] : NULL;
    grad.partials = a->scratch;
    TTI_CUDA(tti_cuda_norm_backward(&grad, tti_cuda_stream()));
    return TUTTI_OK;
}

static bool has_sums(const tti_node *node) { return strstr(node->op->name, "_sums") != NULL; }

static size_t grads_scratch(const tti_node *node, const void *state) {
    tti_rows rows = tti_rows_of(node, 1);
    size_t n = TTI_MAX(sums_scratch(node, state), tti_cuda_norm_16bit_scratch(&rows));
    if (!has_sums(node)) return n;
    tutti_dtype dtype = node->in[1]->type.dtype;
    return TTI_MAX(n, tti_cuda_column_bytes(dtype, (int64_t)rows.n_rows, (int64_t)rows.width));
}

/* In a separate kernel, afterwards. */
static tutti_status sum_columns(const tti_cuda_norm_grad *grad, float *sums) {
    tti_cuda_columns_desc desc = {.in = grad->dx.dtype,
                                  .out = TUTTI_F32,
                                  .rows = (int64_t)grad->rows.n_rows,
                                  .n = (int64_t)grad->rows.width,
                                  .x = grad->dx.at,
                                  .sums = sums,
                                  .partials = grad->partials};
    TTI_CUDA(tti_cuda_column_sums(&desc, tti_cuda_stream()));
    return TUTTI_OK;
}

/* dy, x, mean, rstd, gamma, residual? -> dx, dgamma, dbeta, and a copy of dx, or its column sums,
 * where there is a fourth output. */
static tutti_status grads_run(void *state, const tti_kargs *a) {
    tti_cuda_norm_grad grad = grad_of(a);
    bool sums = has_sums(a->node);
    (void)state;
    grad.gamma = a->in[4];
    if (a->node->n_in > 5) grad.residual = in_of(a, 5);
    grad.dx = out_of(a, 0);
    grad.dgamma = a->out[1];
    grad.dbeta = a->out[2];
    if (a->node->op->n_out > 3 && !sums) grad.copy = out_of(a, 3);
    grad.dsums = sums ? a->out[3] : NULL;
    grad.partials = a->scratch;
    if (tti_cuda_norm_16bit_backward_can(&grad)) {
        TTI_CUDA(tti_cuda_norm_16bit_backward(&grad, tti_cuda_stream()));
        return TUTTI_OK;
    }
    TTI_CUDA(tti_cuda_norm_backward(&grad, tti_cuda_stream()));
    return sums ? sum_columns(&grad, grad.dsums) : TUTTI_OK;
}

#define NORM(op_name)                                                                              \
    {.op = #op_name, .name = "cuda", .run = forward_run},                                          \
        {.op = #op_name "_grad_x", .name = "cuda", .run = grad_x_run}, {                           \
        .op = #op_name "_grad_w", .name = "cuda", .scratch_bytes = sums_scratch, .run = grad_w_run \
    }
#define GRADS(op_name) \
    { .op = op_name, .name = "cuda", .scratch_bytes = grads_scratch, .run = grads_run }

const tti_kernel tti_cuda_norm_kernels[] = {
    NORM(layer_norm),
    NORM(rms_norm),
    NORM(group_norm),
    {.op = "add_layer_norm", .name = "cuda", .run = add_forward_run},
    GRADS("layer_norm_grads"),
    GRADS("layer_norm_grads_cast"),
    GRADS("layer_norm_grads_sums"),
    {0},
};

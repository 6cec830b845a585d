/* gemm_small.c - kernel table rows for small products in tf32, whose kernels are in gemm_small.cu.
 *
 * They precede those of matmul.c.  Shapes alone decide which products are small, so that exact mode
 * gives the same bits wherever a shard is computed. */
#include "backend/cuda/gemm/gemm_small.h"

#include "backend/cuda/runtime/cuda.h"

static int64_t dim_from_end(const tutti_value *value, int i) {
    return value->type.shape.dim[value->type.shape.n_dims - i];
}

/* The product of all dimensions but the last n. */
static int64_t leading(const tutti_value *value, int n) {
    int64_t rows = 1;
    for (int d = 0; d + n < value->type.shape.n_dims; d++) rows *= value->type.shape.dim[d];
    return rows;
}

/* Sizes that no small product has become 0, which does not fit. */
static tti_small_product product_of(int64_t m, int64_t n, int64_t k) {
    if (m > INT32_MAX || n > INT32_MAX || k > INT32_MAX) m = n = k = 0;
    return (tti_small_product){.m = (int)m, .n = (int)n, .k = (int)k};
}

/* A b for all batches makes one product of all rows. */
static tti_small_product matmul_of(const tti_node *node) {
    const tutti_value *a = node->in[0], *b = node->in[1];
    bool trans_a = tti_attr_int(node, "trans_a") != 0, trans_b = tti_attr_int(node, "trans_b") != 0;
    int64_t m = dim_from_end(a, trans_a ? 1 : 2), k = dim_from_end(a, trans_a ? 2 : 1);
    int64_t n = dim_from_end(b, trans_b ? 2 : 1), n_batch = leading(a, 2);
    bool one = n_batch == 1 || (b->type.shape.n_dims < a->type.shape.n_dims && !trans_a);
    tti_small_product p = product_of(one ? m * n_batch : 0, n, k);
    p.trans_a = trans_a, p.trans_b = trans_b;
    return p;
}

static tti_small_product linear_of(const tti_node *node) {
    const tutti_value *x = node->in[0], *w = node->in[1];
    tti_small_product p = product_of(leading(x, 1), w->type.shape.dim[0], w->type.shape.dim[1]);
    p.trans_b = true;
    p.relu = tti_attr_int(node, "act") == TTI_EPILOGUE_RELU;
    return p;
}

static tti_small_product grad_w_of(const tti_node *node) {
    const tutti_value *dy = node->in[0], *x = node->in[1];
    tti_small_product p = product_of(dim_from_end(dy, 1), dim_from_end(x, 1), leading(dy, 1));
    p.trans_a = true;
    return p;
}

static bool can_run(const tti_node *node, tti_small_product (*describe)(const tti_node *)) {
    const tti_cuda *cuda = tti_cuda_device();
    if (!cuda || !cuda->desc.tf32) return false;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_F32 || node->in[i]->layout != TTI_PLAIN) return false;
    if (node->out[0]->type.dtype != TUTTI_F32 || node->out[0]->layout != TTI_PLAIN) return false;
    tti_small_product p = describe(node);
    return tti_small_product_fits(&p);
}

static bool can_run_matmul(const tti_node *node) { return can_run(node, matmul_of); }
static bool can_run_linear(const tti_node *node) { return can_run(node, linear_of); }
static bool can_run_grad_w(const tti_node *node) { return can_run(node, grad_w_of); }

static tutti_status run_product(tti_small_product p, const tti_kargs *a, const float *bias,
                                float *sums) {
    p.a = a->in[0], p.b = a->in[1], p.bias = bias, p.d = a->out[0], p.sums = sums;
    const tti_cuda *cuda = tti_cuda_device();
    return tti_cuda_check(
        tti_launch_small_product(&p, cuda->capability, cuda->shared_optin, tti_cuda_stream()),
        "small product");
}

static tutti_status run_matmul(void *state, const tti_kargs *a) {
    (void)state;
    return run_product(matmul_of(a->node), a, NULL, NULL);
}

static tutti_status run_linear(void *state, const tti_kargs *a) {
    (void)state;
    return run_product(linear_of(a->node), a, a->node->n_in > 2 ? a->in[2] : NULL, NULL);
}

static tutti_status run_grad_w(void *state, const tti_kargs *a) {
    (void)state;
    return run_product(grad_w_of(a->node), a, NULL, a->out[1]);
}

const tti_kernel tti_cuda_small_gemm_kernels[] = {
    {.op = "matmul", .name = "small", .can_run = can_run_matmul, .run = run_matmul},
    {.op = "linear", .name = "small", .can_run = can_run_linear, .run = run_linear},
    {.op = "linear_grad_w", .name = "small", .can_run = can_run_grad_w, .run = run_grad_w},
    {0},
};

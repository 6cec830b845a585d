/* matmul.c - matmul, linear and linear_grad_w on our own product (gemm.c); f32, plain layout.
 * Transposes are strides, and leading dimensions are rows if the weights have none. */
#include "backend/cpu/simd.h"

static bool can_run(const tti_node *node) { return tti_all_f32(node) && tti_all_plain(node); }

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)node, (void)state;
    return TTI_VARIANT(tti_gemm_scratch_bytes)();
}

static size_t dim_from_end(const tutti_value *value, int i) {
    return (size_t)value->type.shape.dim[value->type.shape.n_dims - i];
}

/* The number of rows of the last dimension. */
static size_t n_rows(const tutti_value *value) {
    size_t n = 1;
    for (int d = 0; d + 1 < value->type.shape.n_dims; d++) n *= (size_t)value->type.shape.dim[d];
    return n;
}

static tutti_status matmul_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    const tutti_value *x = node->in[0], *y = node->in[1];
    bool ta = tti_attr_int(node, "trans_a") != 0, tb = tti_attr_int(node, "trans_b") != 0;
    size_t m = dim_from_end(node->out[0], 2), n = dim_from_end(node->out[0], 1);
    size_t k = dim_from_end(x, ta ? 2 : 1), n_batch = 1;
    size_t b_step = y->type.shape.n_dims > 2 ? n * k : 0;
    (void)state;
    for (int d = 0; d + 2 < x->type.shape.n_dims; d++) n_batch *= (size_t)x->type.shape.dim[d];
    tti_gemm g = {.m = m, .n = n, .k = k, .a = a->in[0], .b = a->in[1], .c = a->out[0], .ldc = n};
    g.a_row = ta ? 1 : k, g.a_col = ta ? m : 1;
    g.b_row = tb ? 1 : n, g.b_col = tb ? k : 1;
    for (size_t i = 0; i < n_batch; i++) {
        TTI_VARIANT(tti_gemm_run)(&g, a->scratch);
        g.a += m * k, g.b += b_step, g.c += m * n;
    }
    return TUTTI_OK;
}

/* y[i][j] = act(y[i][j] + b[j]); b may be NULL. */
static void epilogue(float *y, size_t m, size_t n, const float *b, bool relu) {
    for (size_t i = 0; i < m; i++, y += n) {
        if (b) {
            TTI_IVDEP
            for (size_t j = 0; j < n; j++) y[j] += b[j];
        }
        if (relu) {
            TTI_IVDEP
            for (size_t j = 0; j < n; j++) y[j] = y[j] < 0.0f ? 0.0f : y[j];
        }
    }
}

static tutti_status linear_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    size_t m = n_rows(node->in[0]), k = dim_from_end(node->in[0], 1);
    size_t n = dim_from_end(node->in[1], 2);
    tti_gemm g = {.m = m, .n = n, .k = k, .a = a->in[0], .b = a->in[1], .c = a->out[0], .ldc = n};
    (void)state;
    g.a_row = k, g.a_col = 1, g.b_row = 1, g.b_col = k;
    TTI_VARIANT(tti_gemm_run)(&g, a->scratch);
    epilogue(a->out[0], m, n, node->n_in > 2 ? a->in[2] : NULL,
             tti_attr_int(node, "act") == TTI_EPILOGUE_RELU);
    return TUTTI_OK;
}

static tutti_status linear_grad_w_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    size_t m = n_rows(node->in[0]), n = dim_from_end(node->in[0], 1);
    size_t k = dim_from_end(node->in[1], 1);
    tti_gemm g = {.m = n, .n = k, .k = m, .a = a->in[0], .b = a->in[1], .c = a->out[0], .ldc = k};
    (void)state;
    g.a_row = 1, g.a_col = n, g.b_row = k, g.b_col = 1;
    TTI_VARIANT(tti_gemm_run)(&g, a->scratch);
    tti_sum_columns(a->in[0], m, n, a->out[1]);
    return TUTTI_OK;
}

#define ROW(op_name, run_fn)                                                                     \
    {                                                                                            \
        .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .scratch_bytes = scratch_bytes, \
        .run = run_fn                                                                            \
    }

extern const tti_kernel TTI_VARIANT(tti_kernels_matmul)[];
const tti_kernel TTI_VARIANT(tti_kernels_matmul)[] = {
    ROW("matmul", matmul_run),
    ROW("linear", linear_run),
    ROW("linear_grad_w", linear_grad_w_run),
    {0},
};

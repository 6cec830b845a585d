/* amx.c - matmul, linear and linear_grad_w, and their merged forms from fuse_linear.c, on
 * processors with a tile unit; f32, plain layout.
 *
 * Only large products: packing a small one takes longer than computing it, and products that fill
 * their last tiles badly compute too much. amx_product.c explains how a bf16 unit gives f32
 * results. */
#include "backend/cpu/gemm/amx.h"

#include "backend/cpu/simd.h"

/* ---- the products of a node ---- */

static size_t dim_from_end(const tutti_value *value, int i) {
    return (size_t)value->type.shape.dim[value->type.shape.n_dims - i];
}

/* All dimensions but the last n. */
static size_t n_leading(const tutti_value *value, int n) {
    size_t n_elems = 1;
    for (int d = 0; d + n < value->type.shape.n_dims; d++)
        n_elems *= (size_t)value->type.shape.dim[d];
    return n_elems;
}

/* Sizes and steps; x[m,k] y[k,n], each as it lies or across. */
static tti_product gemm_of(size_t m, size_t n, size_t k, bool x_across, bool y_across) {
    tti_product g = {.m = m, .n = n, .k = k, .c_row = n, .trans_a = x_across, .trans_b = y_across};
    g.a_row = x_across ? m : k, g.b_row = y_across ? k : n;
    return g;
}

/* One product of a matmul, and how many there are: a single matrix y for all rows makes it one. */
static tti_product matmul_gemm(const tti_node *node, size_t *n_batch) {
    const tutti_value *x = node->in[0], *out = node->out[0];
    bool ta = tti_attr_int(node, "trans_a") != 0, tb = tti_attr_int(node, "trans_b") != 0;
    size_t m = dim_from_end(out, 2);
    *n_batch = n_leading(x, 2);
    if (node->in[1]->type.shape.n_dims == 2 && !ta) m *= *n_batch, *n_batch = 1;
    return gemm_of(m, dim_from_end(out, 1), dim_from_end(x, ta ? 2 : 1), ta, tb);
}

static tti_product linear_gemm(const tti_node *node) {
    const tutti_value *x = node->in[0];
    return gemm_of(n_leading(x, 1), dim_from_end(node->in[1], 2), dim_from_end(x, 1), false, true);
}

/* dw[N,K] = dy^T x */
static tti_product grad_w_gemm(const tti_node *node) {
    const tutti_value *dy = node->in[0];
    size_t n = dim_from_end(dy, 1), k = dim_from_end(node->in[1], 1);
    return gemm_of(n, k, n_leading(dy, 1), true, false);
}

static bool begins(const tti_node *node, const char *name) {
    return strncmp(node->op->name, name, strlen(name)) == 0;
}

/* The product of "matmul", "linear", "linear_grad_w", and of their merged ops. */
static tti_product gemm_of_node(const tti_node *node) {
    size_t n_batch;
    if (begins(node, "matmul")) return matmul_gemm(node, &n_batch);
    return begins(node, "linear_grad_w") ? grad_w_gemm(node) : linear_gemm(node);
}

/* ---- kernels ---- */

/* Rounded up to whole blocks of 32. */
static double padded(size_t n) { return (double)((n + 31) / 32 * 32); }

bool tti_amx_pays(const tti_product *g) {
    const double least = 64.0 * 64.0 * 64.0, waste = 1.7;
    double work = (double)g->m * (double)g->n * (double)g->k;
    return work >= least && padded(g->m) * padded(g->n) * padded(g->k) <= waste * work;
}

static bool can_run(const tti_node *node) {
    if (!tti_all_f32(node) || !tti_all_plain(node)) return false;
    tti_product g = gemm_of_node(node);
    return tti_amx_pays(&g) && tti_amx_is_usable();
}

static bool can_run_gelu(const tti_node *node) {
    return tti_attr_int(node, "approximate") == 1 && can_run(node);
}

bool tti_amx_joins(const tti_node *product) {
    bool known =
        strcmp(product->op->name, "matmul") == 0 || strcmp(product->op->name, "linear") == 0;
    return known && can_run(product);
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    tti_product g = gemm_of_node(node);
    (void)state;
    return tti_amx_scratch_bytes(g.n, g.k);
}

/* p holds what finishes the product. */
static void run_matmul(tti_amx_product p, const tti_kargs *a) {
    size_t n_batch;
    bool one_y = a->node->in[1]->type.shape.n_dims == 2;
    p.g = matmul_gemm(a->node, &n_batch);
    p.g.a = a->in[0], p.g.b = a->in[1], p.g.c = a->out[0];
    for (size_t i = 0; i < n_batch; i++) {
        tti_amx_run(&p, a->scratch);
        p.g.a += p.g.m * p.g.k, p.g.c += p.g.m * p.g.n;
        if (!one_y) p.g.b += p.g.k * p.g.n;
        if (p.other) p.other += p.g.m * p.g.n;
    }
}

static tutti_status matmul_run(void *state, const tti_kargs *a) {
    (void)state;
    run_matmul((tti_amx_product){.finish = TTI_AMX_NOTHING}, a);
    return TUTTI_OK;
}

static tutti_status matmul_gelu_grad_run(void *state, const tti_kargs *a) {
    (void)state;
    run_matmul((tti_amx_product){.finish = TTI_AMX_GELU_GRAD, .other = a->in[2]}, a);
    return TUTTI_OK;
}

static tutti_status matmul_add_run(void *state, const tti_kargs *a) {
    (void)state;
    run_matmul((tti_amx_product){.finish = TTI_AMX_ADD, .other = a->in[2]}, a);
    return TUTTI_OK;
}

/* p holds what finishes the product, and c. */
static void run_linear(tti_amx_product p, const tti_kargs *a, bool has_bias) {
    float *c = p.g.c;
    p.g = linear_gemm(a->node);
    p.g.a = a->in[0], p.g.b = a->in[1], p.g.c = c;
    p.bias = has_bias ? a->in[2] : NULL;
    tti_amx_run(&p, a->scratch);
}

static tutti_status linear_run(void *state, const tti_kargs *a) {
    bool relu = tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU;
    tti_amx_product p = {.g.c = a->out[0], .finish = relu ? TTI_AMX_RELU : TTI_AMX_NOTHING};
    (void)state;
    run_linear(p, a, a->node->n_in > 2);
    return TUTTI_OK;
}

/* The outputs are gelu(z), z. */
static tutti_status linear_gelu_run(void *state, const tti_kargs *a) {
    tti_amx_product p = {.g.c = a->out[1], .finish = TTI_AMX_GELU, .more = a->out[0]};
    (void)state;
    run_linear(p, a, a->node->n_in > 2);
    return TUTTI_OK;
}

/* The last input is added. */
static tutti_status linear_add_run(void *state, const tti_kargs *a) {
    int n_in = a->node->n_in;
    tti_amx_product p = {.g.c = a->out[0], .finish = TTI_AMX_ADD, .other = a->in[n_in - 1]};
    (void)state;
    run_linear(p, a, n_in > 3);
    return TUTTI_OK;
}

static tutti_status linear_grad_w_run(void *state, const tti_kargs *a) {
    tti_amx_product p = {.g = grad_w_gemm(a->node), .sums = a->out[1]};
    (void)state;
    p.g.a = a->in[0], p.g.b = a->in[1], p.g.c = a->out[0];
    tti_amx_run(&p, a->scratch);
    return TUTTI_OK;
}

#define ROW_IF(op_name, can, run_fn) \
    { .op = op_name, .name = "amx", .can_run = can, .scratch_bytes = scratch_bytes, .run = run_fn }
#define ROW(op_name, run_fn) ROW_IF(op_name, can_run, run_fn)

const tti_kernel tti_amx_kernels[] = {
    ROW("matmul", matmul_run),
    ROW("linear", linear_run),
    ROW("linear_grad_w", linear_grad_w_run),
    ROW_IF("matmul_gelu_grad", can_run_gelu, matmul_gelu_grad_run),
    ROW("matmul_add", matmul_add_run),
    ROW_IF("linear_gelu", can_run_gelu, linear_gelu_run),
    ROW("linear_add", linear_add_run),
    {0},
};

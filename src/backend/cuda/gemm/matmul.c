/* matmul.c - matmul, linear, its weight gradient, and their merged forms from fuse_linear.c: one
 * product by cublasLt each, with as much of the rest as its epilogues support.
 *
 * An op is described as a product with its ideal epilogue.  If cublasLt has none, or if a plain
 * product and a separate pass were measured to be faster, the tail runs separately (gemm.cu).  In
 * 16 bits the tail then reads the rounded product, as separate ops would; but product and bias are
 * one op and rounded once, so if cublasLt cannot do both the product stays in f32 until the tail is
 * done.  Large layers with gelu may be one kernel of wgmma.cu. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm/blas.h"
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/runtime/cuda.h"

typedef struct product {
    tti_blas_problem want; /* with the epilogue that does everything */
    int a, b, c, bias;     /* which inputs; -1: none */
    int aux_in;            /* which input is aux; -1: aux is out 1, if any */
    bool has_tail;         /* there is more to do than the product: */
    tti_cuda_tail tail;    /* .. this, unless .. */
    bool sums;             /* .. it is out 1 = the column sums of a as it is stored */
    bool end_sums;         /* finally, output 1 = the column sums of output 0, in f32 */
    bool exact_gelu;       /* of the tail: by erf, which cublasLt has not */
    tti_blas_plan *plan;   /* NULL: nothing to multiply */
    bool fused;            /* the plan does the tail too, but for .. */
    bool relu;             /* .. a ReLU, which is always a separate pass */
    bool wide;             /* the product goes to scratch in f32, and the tail rounds it */
} product;

enum { WORKSPACE_ALIGNMENT = 256 };

/* ---- shapes ---- */

static int64_t dim_from_end(const tutti_value *value, int i) {
    return value->type.shape.dim[value->type.shape.n_dims - i];
}

/* The product of all dimensions but the last n. */
static int64_t leading(const tutti_value *value, int n) {
    int64_t rows = 1;
    for (int d = 0; d + n < value->type.shape.n_dims; d++) rows *= value->type.shape.dim[d];
    return rows;
}

static tti_blas_problem problem_of(const tti_node *node, int64_t m, int64_t n, int64_t k) {
    tti_blas_problem p;
    memset(&p, 0, sizeof p); /* its bytes are a key */
    p.m = m, p.n = n, p.k = k, p.n_batch = 1;
    p.lda = k, p.ldb = n, p.ldd = n;
    p.in = (int32_t)node->in[0]->type.dtype;
    p.out = (int32_t)node->out[0]->type.dtype;
    return p;
}

/* ---- one function for each op ---- */

/* d[..,M,N] = op(a) op(b).  A b for all batches makes one product of all rows where it can. */
static product describe_matmul(const tti_node *node) {
    const tutti_value *a = node->in[0], *b = node->in[1];
    bool trans_a = tti_attr_int(node, "trans_a") != 0, trans_b = tti_attr_int(node, "trans_b") != 0;
    int64_t m = dim_from_end(a, trans_a ? 1 : 2), k = dim_from_end(a, trans_a ? 2 : 1);
    int64_t n = dim_from_end(b, trans_b ? 2 : 1), n_batch = leading(a, 2);
    bool shared_b = b->type.shape.n_dims < a->type.shape.n_dims;
    bool one = shared_b && !trans_a;
    product made = {.want = problem_of(node, one ? m * n_batch : m, n, k), .b = 1, .c = -1};
    tti_blas_problem *p = &made.want;
    made.bias = made.aux_in = -1;
    p->trans_a = trans_a, p->trans_b = trans_b;
    p->lda = trans_a ? m : k, p->ldb = trans_b ? k : n;
    if (one || n_batch == 1) return made;
    p->n_batch = n_batch;
    p->a_step = m * k, p->b_step = shared_b ? 0 : k * n, p->d_step = m * n;
    return made;
}

/* in: a, b, c. */
static product describe_matmul_add(const tti_node *node) {
    product made = describe_matmul(node);
    made.c = 2;
    made.want.add = 1;
    return made;
}

/* in: dy, w, z. */
static product describe_matmul_gelu_grad(const tti_node *node) {
    product made = describe_matmul(node);
    made.exact_gelu = tti_attr_int(node, "approximate") == 0;
    made.want.epilogue =
        made.want.n_batch == 1 && !made.exact_gelu ? TTI_BLAS_DGELU : TTI_BLAS_PLAIN;
    made.aux_in = 2;
    made.has_tail = true;
    made.tail = TTI_TAIL_GELU_GRAD;
    return made;
}

static product describe_matmul_gelu_grad_sums(const tti_node *node) {
    product made = describe_matmul_gelu_grad(node);
    made.end_sums = true;
    return made;
}

/* x[rows][K] w[N][K]^T; bias: which input, -1: none. */
static product linear_product(const tti_node *node, int bias) {
    const tutti_value *x = node->in[0], *w = node->in[1];
    int64_t n = w->type.shape.dim[0], k = w->type.shape.dim[1];
    product made = {.want = problem_of(node, leading(x, 1), n, k), .b = 1, .c = -1};
    made.want.trans_b = 1;
    made.want.ldb = k;
    made.bias = bias;
    made.aux_in = -1;
    made.has_tail = bias >= 0;
    made.tail = TTI_TAIL_BIAS;
    made.want.epilogue = bias >= 0 ? TTI_BLAS_BIAS : TTI_BLAS_PLAIN;
    return made;
}

static product describe_linear(const tti_node *node) {
    product made = linear_product(node, node->n_in == 3 ? 2 : -1);
    if (tti_attr_int(node, "act") == 0) return made; /* infer allows 0 and 1, which is relu */
    made.relu = made.has_tail = true;
    made.tail = TTI_TAIL_RELU;
    return made;
}

static product describe_linear_gelu(const tti_node *node) {
    product made = linear_product(node, node->n_in == 3 ? 2 : -1);
    made.exact_gelu = tti_attr_int(node, "approximate") == 0;
    made.want.epilogue = made.bias >= 0 ? TTI_BLAS_GELU_AUX_BIAS : TTI_BLAS_GELU_AUX;
    if (made.exact_gelu) made.want.epilogue = TTI_BLAS_PLAIN;
    made.has_tail = true;
    made.tail = TTI_TAIL_GELU;
    return made;
}

/* in: x, w, b?, r. */
static product describe_linear_add(const tti_node *node) {
    product made = linear_product(node, node->n_in == 4 ? 2 : -1);
    made.c = node->n_in - 1;
    made.want.add = 1;
    return made;
}

/* dw[N][K] = dy[rows][N]^T x[rows][K], db = the column sums of dy. */
static product describe_linear_grad_w(const tti_node *node) {
    const tutti_value *dy = node->in[0], *x = node->in[1];
    int64_t n = dim_from_end(dy, 1), k = dim_from_end(x, 1);
    product made = {.want = problem_of(node, n, k, leading(dy, 1)), .b = 1, .c = -1, .bias = -1};
    made.want.trans_a = 1;
    made.want.lda = n;
    made.want.epilogue = TTI_BLAS_ROW_SUMS;
    made.aux_in = -1;
    made.has_tail = made.sums = true;
    return made;
}

/* ---- prepare ---- */

static bool is_empty(const tti_blas_problem *p) { return p->m * p->n * p->n_batch == 0; }

static const double copy_bytes_per_us = 4e6;

/* About how long the tail takes by itself: its bytes at the speed of copies, and a start. */
static double tail_us(const product *it) {
    const tti_blas_problem *p = &it->want;
    double n_passes = it->tail == TTI_TAIL_GELU || it->tail == TTI_TAIL_GELU_GRAD ? 3 : 2;
    double n_bytes = n_passes * (double)(p->m * p->n * p->n_batch) *
                     (double)tutti_dtype_bytes((tutti_dtype)p->out);
    if (it->sums)
        n_bytes = (double)p->m * (double)p->k * (double)tutti_dtype_bytes((tutti_dtype)p->in);
    return n_bytes / copy_bytes_per_us + (it->sums ? 6 : 4);
}

/* The time of the final sums if they read the product again: its bytes once. */
static double end_us(const product *it) {
    const tti_blas_problem *p = &it->want;
    return it->end_sums
               ? (double)(p->m * p->n * p->n_batch) *
                         (double)tutti_dtype_bytes((tutti_dtype)p->out) / copy_bytes_per_us +
                     6
               : 0;
}

static bool is_16_bit(const product *it) {
    return it->want.out == TUTTI_BF16 || it->want.out == TUTTI_F16;
}

/* cublasLt's sums of the rows cost a large product in 16 bits 40 %, whatever the algorithm; a pass
 * over its first operand costs less where it is wide. */
static bool has_slow_sums(const product *it) {
    const tti_blas_problem *p = &it->want;
    return it->sums && (p->in == TUTTI_BF16 || p->in == TUTTI_F16) && p->n >= 512 &&
           2.0 * (double)p->m * (double)p->n * (double)p->k >= 2e10;
}

/* cublasLt's tanh is good enough for what 16 bits keep. */
static bool may_fuse(const product *it) {
    bool gelu = it->has_tail && (it->tail == TTI_TAIL_GELU || it->tail == TTI_TAIL_GELU_GRAD);
    return it->want.epilogue != TTI_BLAS_PLAIN && (is_16_bit(it) || !gelu) && !has_slow_sums(it);
}

/* The plan with the epilogue, or the plain one, whichever there is or is faster. */
static tutti_status make_plan(product *it) {
    tti_blas_problem plain = it->want;
    tti_blas_plan *fused = NULL;
    plain.epilogue = TTI_BLAS_PLAIN;
    if (may_fuse(it)) TTI_TRY(tti_blas_plan_create(&it->want, &fused));
    it->plan = fused;
    it->fused = fused != NULL;
    it->wide = !fused && is_16_bit(it) && it->bias >= 0 && !it->want.add;
    if (it->wide) plain.out = TUTTI_F32;
    if (fused && tti_blas_time_us(fused) <= 0) return TUTTI_OK;
    tti_blas_plan *other;
    TTI_TRY(tti_blas_plan_create(&plain, &other));
    double other_us = tti_blas_time_us(other);
    bool better =
        !fused || (other_us > 0 && other_us + tail_us(it) < tti_blas_time_us(fused) + end_us(it));
    tti_blas_plan_destroy(better ? fused : other);
    if (better) it->plan = other;
    if (better) it->fused = false;
    return TUTTI_OK;
}

static void release(void *state) {
    product *it = state;
    if (it) tti_blas_plan_destroy(it->plan);
    free(it);
}

static tutti_status prepare(const product *described, void **state) {
    product *it = malloc(sizeof *it);
    if (!it) return tti_fail(TUTTI_E_NOMEM, "matrix product: out of memory for its state");
    *it = *described;
    tutti_status st = is_empty(&it->want) || it->want.k == 0 ? TUTTI_OK : make_plan(it);
    if (st == TUTTI_OK)
        *state = it;
    else
        release(it);
    return st;
}

static size_t workspace_bytes(const product *it) {
    size_t n = it->plan ? tti_blas_workspace(it->plan) : 0;
    return (n + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
}

/* Workspace, then partial sums or a wide product; room to align the former. */
static size_t scratch_bytes(const tti_node *node, const void *state) {
    const product *it = state;
    size_t n = workspace_bytes(it);
    (void)node;
    if (it->sums && !it->fused)
        n += tti_cuda_column_bytes((tutti_dtype)it->want.in, it->want.k, it->want.m);
    if (it->end_sums)
        n += tti_cuda_column_bytes((tutti_dtype)it->want.out, it->want.m * it->want.n_batch,
                                   it->want.n);
    if (it->wide) n += (size_t)(it->want.m * it->want.n * it->want.n_batch) * sizeof(float);
    return n ? n + WORKSPACE_ALIGNMENT : 0;
}

/* ---- run ---- */

static const void *input(const tti_kargs *a, int i) { return i < 0 ? NULL : a->in[i]; }

/* An empty sum: zeros, or c. */
static tutti_status run_empty(const product *it, const tti_kargs *a) {
    size_t n_bytes = tti_value_n_bytes(a->node->out[0]);
    if (n_bytes == 0) return TUTTI_OK;
    if (it->c >= 0)
        TTI_CUDA(cudaMemcpyAsync(a->out[0], a->in[it->c], n_bytes, cudaMemcpyDeviceToDevice,
                                 tti_cuda_stream()));
    else
        TTI_CUDA(cudaMemsetAsync(a->out[0], 0, n_bytes, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status run_sums(const product *it, const tti_kargs *a, void *partials) {
    tti_cuda_columns_desc sums = {(tutti_dtype)it->want.in,
                                  (tutti_dtype)it->want.out,
                                  it->want.k,
                                  it->want.m,
                                  a->in[it->a],
                                  a->out[1],
                                  partials};
    TTI_CUDA(tti_cuda_column_sums(&sums, tti_cuda_stream()));
    return TUTTI_OK;
}

/* The sums at the end, and the tail, if it is still to be done, on the way. */
static tutti_status run_end(const product *it, const tti_kargs *a, void *aux, void *partials) {
    const tti_blas_problem *p = &it->want;
    tti_cuda_columns_desc sums = {(tutti_dtype)p->out, TUTTI_F32, p->m * p->n_batch, p->n,
                                  a->out[0],           a->out[1], partials};
    if (it->fused)
        TTI_CUDA(tti_cuda_column_sums(&sums, tti_cuda_stream()));
    else
        TTI_CUDA(tti_cuda_gelu_grad_sums(&sums, a->out[0], aux, it->exact_gelu, tti_cuda_stream()));
    return TUTTI_OK;
}

/* A fused plan has added the bias already. */
static tutti_status run_tail(const product *it, const tti_kargs *a, void *aux, const float *wide) {
    const tti_blas_problem *p = &it->want;
    tti_cuda_tail_desc tail = {it->tail,
                               it->exact_gelu,
                               (tutti_dtype)p->out,
                               p->m * p->n_batch,
                               p->n,
                               a->out[0],
                               aux,
                               it->fused ? NULL : input(a, it->bias),
                               wide};
    TTI_CUDA(tti_cuda_run_tail(&tail, tti_cuda_stream()));
    return TUTTI_OK;
}

static void *align(void *memory) {
    uintptr_t at = (uintptr_t)memory + WORKSPACE_ALIGNMENT - 1;
    return (void *)(at / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT);
}

static tutti_status run_matmul(void *state, const tti_kargs *a) {
    product *it = state;
    char *workspace = align(a->scratch);
    void *second = a->node->op->n_out > 1 ? a->out[1] : NULL;
    void *aux = it->aux_in >= 0 ? a->in[it->aux_in] : second;
    float *wide = it->wide && it->plan ? (float *)(void *)(workspace + workspace_bytes(it)) : NULL;
    tti_blas_args args = {.a = a->in[it->a],
                          .b = a->in[it->b],
                          .c = input(a, it->c),
                          .d = wide ? wide : a->out[0],
                          .aux = aux,
                          .workspace = workspace};
    args.bias = it->sums ? second : (void *)(uintptr_t)input(a, it->bias);
    TTI_TRY(it->plan ? tti_blas_run(it->plan, &args) : run_empty(it, a));
    if (it->end_sums) return run_end(it, a, aux, workspace + workspace_bytes(it));
    if (!it->has_tail || (it->fused && !it->relu)) return TUTTI_OK;
    return it->sums ? run_sums(it, a, workspace + workspace_bytes(it)) : run_tail(it, a, aux, wide);
}

/* ---- all in one kernel of our own ---- */

/* Any gelu that fits: alone cublasLt's are as fast, but in a step, with the card at its power
 * limit, GPT-2 124M takes 104.9 ms with these and 106.8 without. */
static bool own_gelu(const tti_node *node) {
    tti_cuda_wgmma_desc d;
    return tti_cuda_device() && tti_cuda_wgmma_describe(node, &d) && d.kind != TTI_WGMMA_BIAS;
}

/* A head, strip by strip of its table: a step of GPT-2 350M takes 138.4 ms, by cublasLt 139.3. */
static bool own_head(const tti_node *node) {
    tti_cuda_wgmma_desc d;
    return tti_cuda_device() && tti_cuda_wgmma_describe(node, &d);
}

/* A bias only: if it is faster.  Exact mode does not time. */
static bool own_linear(const tti_node *node) {
    tti_cuda_wgmma_desc d;
    product it = describe_linear(node);
    if (!tti_cuda_device() || tti_cuda_is_exact()) return false;
    if (!tti_cuda_wgmma_describe(node, &d)) return false;
    double planned = make_plan(&it) == TUTTI_OK && it.plan ? tti_blas_time_us(it.plan) : 0;
    bool whole = it.fused || !it.has_tail;
    tti_blas_plan_destroy(it.plan);
    double own = planned > 0 && whole ? tti_cuda_wgmma_us(&d) : 0;
    return own > 0 && own < planned;
}

static size_t own_scratch_bytes(const tti_node *node, const void *state) {
    tti_cuda_wgmma_desc d;
    (void)state;
    if (!tti_cuda_wgmma_describe(node, &d) || !d.summed) return 0;
    return (size_t)(tti_cuda_wgmma_parts(d.m) * d.n) * sizeof(float);
}

static tutti_status run_own(void *state, const tti_kargs *a) {
    tti_cuda_wgmma_desc d;
    (void)state;
    bool known = tti_cuda_wgmma_describe(a->node, &d);
    TTI_ASSERT(known);
    bool grad = d.kind == TTI_WGMMA_GELU_GRAD;
    d.a = a->in[0], d.b = a->in[1], d.d = a->out[0];
    d.bias = !grad && a->node->n_in == 3 ? a->in[2] : NULL;
    if (d.kind == TTI_WGMMA_GELU) d.aux = a->out[1];
    if (grad) d.aux = a->in[2];
    if (d.summed) d.sums = a->out[1], d.partials = a->scratch;
    TTI_CUDA(tti_cuda_wgmma(&d, tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- the table ---- */

static bool is_plain_float(const tutti_value *value) {
    tutti_dtype t = value->type.dtype;
    bool is_float = t == TUTTI_F32 || t == TUTTI_F64 || t == TUTTI_F16 || t == TUTTI_BF16;
    return is_float && value->layout == TTI_PLAIN;
}

static bool can_run(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (!is_plain_float(node->in[i])) return false;
    return is_plain_float(node->out[0]);
}

#define PREPARE(op)                                                        \
    static tutti_status prepare_##op(const tti_node *node, void **state) { \
        product described = describe_##op(node);                           \
        return prepare(&described, state);                                 \
    }
PREPARE(matmul)
PREPARE(matmul_add)
PREPARE(matmul_gelu_grad)
PREPARE(matmul_gelu_grad_sums)
PREPARE(linear)
PREPARE(linear_gelu)
PREPARE(linear_add)
PREPARE(linear_grad_w)

#define ROW(op_name, describes)                                                                \
    {                                                                                          \
        .op = op_name, .name = "cublaslt", .can_run = can_run, .prepare = prepare_##describes, \
        .scratch_bytes = scratch_bytes, .run = run_matmul, .release = release                  \
    }

#define OWN(op_name, can)                                                                   \
    {                                                                                       \
        .op = op_name, .name = "wgmma", .can_run = can, .scratch_bytes = own_scratch_bytes, \
        .run = run_own                                                                      \
    }

const tti_kernel tti_cuda_matmul_kernels[] = {
    OWN("matmul_gelu_grad", own_gelu),
    OWN("matmul_gelu_grad_sums", own_gelu),
    OWN("linear", own_linear),
    OWN("matmul", own_head),
    OWN("linear_gelu", own_gelu),
    ROW("matmul", matmul),
    ROW("matmul_wide", matmul),
    ROW("matmul_add", matmul_add),
    ROW("matmul_gelu_grad", matmul_gelu_grad),
    ROW("matmul_gelu_grad_sums", matmul_gelu_grad_sums),
    ROW("linear", linear),
    ROW("linear_gelu", linear_gelu),
    ROW("linear_add", linear_add),
    ROW("linear_grad_w", linear_grad_w),
    ROW("linear_grad_w_wide", linear_grad_w),
    {0},
};

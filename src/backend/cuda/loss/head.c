/* head.c - kernel table rows for cross_entropy_head and scale_rows: on Hopper the product is
 * wgmma.cu's and writes powers of e, elsewhere it is cublasLt's and writes logits to scratch;
 * head.cu has the passes before and after. */
#include "backend/cuda/loss/head.h"

#include <string.h>

#include "backend/cuda/gemm/blas.h"
#include "backend/cuda/gemm/wgmma_plan.h"
#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/plain.h"
#include "ops/loss/head.h"

enum { ALIGNMENT = 256 };

static size_t aligned(size_t n_bytes) {
    return (n_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static char *align(void *memory) { return (char *)(void *)aligned((size_t)memory); }

static size_t rows_bytes(const tti_node *node) {
    return aligned((size_t)node->in[0]->type.shape.dim[0] * sizeof(float));
}

/* found is at the beginning of the scratch. */
static tti_head_rows rows_of(const tti_kargs *a, char *scratch) {
    const int64_t *x = a->node->in[0]->type.shape.dim;
    return (tti_head_rows){.n_rows = (size_t)x[0],
                           .n_classes = (size_t)a->node->in[1]->type.shape.dim[0],
                           .width = (size_t)x[1],
                           .ignore = tti_attr_int(a->node, "ignore"),
                           .x = a->in[0],
                           .w = a->in[1],
                           .labels = a->in[2],
                           .dloss = a->in[3],
                           .exps = a->out[0],
                           .factors = a->out[1],
                           .out = {a->out[2], a->out[3], a->out[4]},
                           .found = (float *)(void *)scratch};
}

/* ---- by wgmma.cu ---- */

static bool own_can_run(const tti_node *node) {
    tti_cuda_wgmma_desc d;
    return tti_cuda_all_plain(node) && tti_cuda_device() && tti_cuda_wgmma_describe_head(node, &d);
}

static size_t n_parts_of(const tti_node *node) {
    return (size_t)(node->in[1]->type.shape.dim[0] + TTI_WGMMA_COLS - 1) / TTI_WGMMA_COLS;
}

/* Two numbers of a row, its base and its own; then the parts' sums and bests. */
static size_t own_scratch(const tti_node *node, const void *state) {
    (void)state;
    return ALIGNMENT + (4 + 2 * n_parts_of(node)) * rows_bytes(node);
}

static tutti_status own_run(void *state, const tti_kargs *a) {
    char *at = align(a->scratch);
    size_t step = rows_bytes(a->node), n_parts = n_parts_of(a->node);
    tti_head_rows h = rows_of(a, at);
    float *base = (float *)(void *)(at + 2 * step), *own = (float *)(void *)(at + 3 * step);
    float *sums = (float *)(void *)(at + 4 * step), *bests = sums + n_parts * h.n_rows;
    tti_cuda_wgmma_desc d;
    (void)state;
    bool known = tti_cuda_wgmma_describe_head(a->node, &d);
    TTI_ASSERT(known);
    d.a = h.x, d.b = h.w, d.d = h.exps, d.labels = h.labels;
    d.most = (float)TTI_HEAD_MOST, d.base = base;
    d.row_sums = sums, d.row_bests = bests, d.own = own;
    TTI_CUDA(tti_launch_head_bases(&h, base, tti_cuda_stream()));
    TTI_CUDA(tti_cuda_wgmma(&d, tti_cuda_stream()));
    tti_head_parts parts = {n_parts, sums, bests, own};
    TTI_CUDA(tti_launch_head_ends(&h, &parts, tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- by cublasLt ---- */

/* NULL: an empty product, whose logits are zeros. */
static tutti_status prepare(const tti_node *node, void **state) {
    const int64_t *x = node->in[0]->type.shape.dim;
    tti_blas_problem p;
    tti_blas_plan *plan = NULL;
    memset(&p, 0, sizeof p); /* its bytes are a key */
    p.m = x[0], p.n = node->in[1]->type.shape.dim[0], p.k = x[1], p.n_batch = 1;
    p.lda = p.ldb = p.k, p.ldd = p.n, p.trans_b = 1;
    p.in = TUTTI_BF16, p.out = TUTTI_F32;
    if (p.m * p.k > 0) TTI_TRY(tti_blas_plan_create(&p, &plan));
    *state = plan;
    return TUTTI_OK;
}

static void release(void *state) { tti_blas_plan_destroy(state); }

static size_t logits_bytes(const tti_node *node) {
    return aligned((size_t)tti_value_n_elems(node->out[0]) * sizeof(float));
}

/* Two numbers of a row, logits, workspace. */
static size_t scratch_bytes(const tti_node *node, const void *state) {
    size_t n_workspace = state ? tti_blas_workspace(state) : 0;
    return ALIGNMENT + 2 * rows_bytes(node) + logits_bytes(node) + n_workspace;
}

static tutti_status run_head(void *state, const tti_kargs *a) {
    char *at = align(a->scratch);
    tti_head_rows h = rows_of(a, at);
    float *logits = (float *)(void *)(at + 2 * rows_bytes(a->node));
    size_t n_bytes = logits_bytes(a->node);
    tti_blas_args args = {.a = h.x, .b = h.w, .d = logits, .workspace = (char *)logits + n_bytes};
    if (state)
        TTI_TRY(tti_blas_run(state, &args));
    else
        TTI_CUDA(cudaMemsetAsync(logits, 0, n_bytes, tti_cuda_stream()));
    TTI_CUDA(tti_launch_head_whole(&h, logits, tti_cuda_stream()));
    return TUTTI_OK;
}

/* ---- scale_rows ---- */

static tutti_status scale_run(void *state, const tti_kargs *a) {
    const tutti_type *x = &a->node->in[0]->type;
    (void)state;
    TTI_CUDA(tti_launch_scale_rows(x->dtype, (size_t)x->shape.dim[0], (size_t)x->shape.dim[1],
                                   a->in[0], a->in[1], a->out[0], tti_cuda_stream()));
    return TUTTI_OK;
}

const tti_kernel tti_cuda_head_kernels[] = {
    {.op = "cross_entropy_head",
     .name = "wgmma",
     .can_run = own_can_run,
     .scratch_bytes = own_scratch,
     .run = own_run},
    {.op = "cross_entropy_head",
     .name = "cublaslt",
     .can_run = tti_cuda_all_plain,
     .prepare = prepare,
     .scratch_bytes = scratch_bytes,
     .run = run_head,
     .release = release},
    {.op = "scale_rows", .name = "cuda", .can_run = tti_cuda_all_plain, .run = scale_run},
    {0},
};

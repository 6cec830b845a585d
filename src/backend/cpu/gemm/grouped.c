/* grouped.c - products of rows with one of several matrices, of f32: the rows of each matrix are
 * copied side by side, in their order, for one product of our own (gemm.c). */
#include "backend/cpu/simd.h"

static bool can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && tti_all_plain(node);
}

/* The number of rows, and of the matrices. */
static size_t rows_of(const tti_node *node) { return (size_t)node->in[0]->type.shape.dim[0]; }

static size_t matrices_of(const tti_node *node) {
    const tutti_value *w =
        node->n_in > 1 && node->in[1]->type.shape.n_dims == 3 ? node->in[1] : node->out[0];
    return (size_t)w->type.shape.dim[0];
}

static size_t width_of(const tutti_value *x) { return (size_t)x->type.shape.dim[1]; }

static size_t whole_lines(size_t n_bytes) { return (n_bytes + 63) / 64 * 64; }

/* Scratch: of a product; the rows by matrix, where each matrix begins; two lists of rows. */
typedef struct groups {
    void *gemm;
    size_t *order, *start; /* [rows], [matrices + 1] */
    float *a, *b;
} groups;

static size_t lay_out(const tti_node *node, size_t a_width, size_t b_width, char *base,
                      groups *out) {
    size_t rows = rows_of(node), n = matrices_of(node);
    size_t order = whole_lines(TTI_VARIANT(tti_gemm_scratch_bytes)());
    size_t start = order + whole_lines(rows * sizeof(size_t));
    size_t a = start + whole_lines((n + 1) * sizeof(size_t));
    size_t b = a + whole_lines(rows * a_width * sizeof(float));
    if (base)
        *out = (groups){base, (size_t *)(void *)(base + order), (size_t *)(void *)(base + start),
                        (float *)(void *)(base + a), (float *)(void *)(base + b)};
    return b + whole_lines(rows * b_width * sizeof(float));
}

/* Sorts rows by id, equal ids in order of the rows; others are left out. */
static void group_rows(const tti_node *node, const int32_t *ids, groups *g) {
    size_t rows = rows_of(node), n = matrices_of(node);
    memset(g->start, 0, (n + 1) * sizeof *g->start);
    for (size_t r = 0; r < rows; r++)
        if (ids[r] >= 0 && (size_t)ids[r] < n) g->start[ids[r] + 1]++;
    for (size_t e = 0; e < n; e++) g->start[e + 1] += g->start[e];
    for (size_t r = 0; r < rows; r++)
        if (ids[r] >= 0 && (size_t)ids[r] < n) g->order[g->start[ids[r]]++] = r;
    for (size_t e = n; e > 0; e--) g->start[e] = g->start[e - 1];
    g->start[0] = 0;
}

static void take_rows(const groups *g, size_t e, const float *x, size_t width, float *to) {
    for (size_t i = g->start[e]; i < g->start[e + 1]; i++, to += width)
        memcpy(to, x + g->order[i] * width, width * sizeof *to);
}

static size_t product_scratch(const tti_node *node, const void *state) {
    (void)state;
    return lay_out(node, width_of(node->in[0]), width_of(node->out[0]), NULL, NULL);
}

static tutti_status product_run(void *state, const tti_kargs *args) {
    const tti_node *node = args->node;
    size_t k = width_of(node->in[0]), n = width_of(node->out[0]);
    bool trans = tti_attr_int(node, "trans_b") != 0;
    const float *w = args->in[1];
    float *y = args->out[0];
    groups g;
    (void)state;
    lay_out(node, k, n, args->scratch, &g);
    group_rows(node, args->in[2], &g);
    memset(y, 0, rows_of(node) * n * sizeof *y);
    for (size_t e = 0; e < matrices_of(node); e++, w += k * n) {
        size_t m = g.start[e + 1] - g.start[e];
        if (m == 0) continue;
        take_rows(&g, e, args->in[0], k, g.a);
        tti_gemm product = {.m = m, .n = n, .k = k, .a = g.a, .b = w, .c = g.b, .ldc = n};
        product.a_row = k, product.a_col = 1;
        product.b_row = trans ? 1 : n, product.b_col = trans ? k : 1;
        TTI_VARIANT(tti_gemm_run)(&product, g.gemm);
        for (size_t i = 0; i < m; i++)
            memcpy(y + g.order[g.start[e] + i] * n, g.b + i * n, n * sizeof *y);
    }
    return TUTTI_OK;
}

static size_t grad_scratch(const tti_node *node, const void *state) {
    (void)state;
    return lay_out(node, width_of(node->in[1]), width_of(node->in[0]), NULL, NULL);
}

static tutti_status grad_run(void *state, const tti_kargs *args) {
    const tti_node *node = args->node;
    size_t k = width_of(node->in[1]), n = width_of(node->in[0]);
    bool trans = tti_attr_int(node, "trans_b") != 0;
    float *dw = args->out[0];
    groups g;
    (void)state;
    lay_out(node, k, n, args->scratch, &g);
    group_rows(node, args->in[2], &g);
    for (size_t e = 0; e < matrices_of(node); e++, dw += k * n) {
        size_t m = g.start[e + 1] - g.start[e];
        memset(dw, 0, k * n * sizeof *dw);
        if (m == 0) continue;
        take_rows(&g, e, args->in[1], k, g.a);
        take_rows(&g, e, args->in[0], n, g.b);
        tti_gemm product = {.m = trans ? n : k, .n = trans ? k : n, .k = m, .c = dw};
        product.a = trans ? g.b : g.a, product.b = trans ? g.a : g.b;
        product.a_row = 1, product.a_col = product.m;
        product.b_row = product.n, product.b_col = 1;
        product.ldc = product.n;
        TTI_VARIANT(tti_gemm_run)(&product, g.gemm);
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_grouped)[];
const tti_kernel TTI_VARIANT(tti_kernels_grouped)[] = {
    {.op = "grouped_matmul",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = product_scratch,
     .run = product_run},
    {.op = "grouped_matmul_grad",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .scratch_bytes = grad_scratch,
     .run = grad_run},
    {0},
};

/* amx_test.c - products on the tile unit: every shape, step and edge against sums in double, with
 * errors that only three parts of each factor reach; what is not finite stays so; the kernels of
 * nodes against the reference.  Where there is no such unit only the choice of kernels is tried. */
#include "backend/cpu/gemm/amx.h"

#include <stdlib.h>

#include "base/philox.h"
#include "ops/op_table.h"
#include "t.h"
#include "tutti/ops.h"

enum { GUARD = 64 };

static void need_tiles(void) {
    if (!tti_amx_is_usable()) skip();
}

static float draw(uint64_t stream, uint64_t i) {
    return 2.0f * tti_philox_unit(tti_philox_draw(3, stream, i).v[0]) - 1.0f;
}

static float *make(size_t n, uint64_t stream) {
    float *x = aligned_alloc(64, (n + GUARD) * sizeof(float) / 64 * 64 + 64);
    assert_non_null(x);
    for (size_t i = 0; i < n; i++) x[i] = draw(stream, i);
    for (size_t i = n; i < n + GUARD; i++) x[i] = 77.0f;
    return x;
}

static void run(const tti_amx_product *p) {
    size_t n_bytes = (tti_amx_scratch_bytes(p->g.n, p->g.k) + 63) / 64 * 64;
    unsigned char *scratch = aligned_alloc(64, n_bytes + GUARD);
    assert_non_null(scratch);
    memset(scratch, 0xFF, n_bytes + GUARD); /* NaN */
    tti_amx_run(p, scratch);
    for (size_t i = 0; i < GUARD; i++) T_EQ(scratch[n_bytes + i], 0xFF);
    free(scratch);
}

/* The arguments of a product under test. */
typedef struct trial {
    size_t m, n, k;
    bool a_across, b_across, add, bias, relu;
} trial;

/* Each element within so much of the sum of the magnitudes of its summands. */
static void expect(const trial *t, const tti_amx_product *p, const float *before, double bound) {
    for (size_t i = 0; i < t->m; i++)
        for (size_t j = 0; j < t->n; j++) {
            double want = t->add ? (double)before[i * t->n + j] : t->bias ? (double)p->bias[j] : 0;
            double size = fabs(want);
            for (size_t x = 0; x < t->k; x++) {
                double term = (double)p->g.a[t->a_across ? x * t->m + i : i * t->k + x] *
                              (double)p->g.b[t->b_across ? j * t->k + x : x * t->n + j];
                want += term, size += fabs(term);
            }
            if (t->relu && want < 0) want = 0;
            double got = (double)p->g.c[i * t->n + j];
            if (!(fabs(got - want) <= bound * size))
                fail_msg("%zu x %zu x %zu: c[%zu][%zu] is %.9g, want %.9g", t->m, t->n, t->k, i, j,
                         got, want);
        }
}

static void try_product(const trial *t, double bound) {
    size_t m = t->m, n = t->n, k = t->k;
    float *a = make(m * k, 0), *b = make(k * n, 1), *c = make(m * n, 2), *before = make(m * n, 2);
    float *bias = make(n, 3), *sums = make(m, 4);
    tti_amx_product p = {.g = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .c_row = n}};
    p.g.trans_a = t->a_across, p.g.a_row = t->a_across ? m : k;
    p.g.trans_b = t->b_across, p.g.b_row = t->b_across ? k : n;
    p.g.add = t->add, p.bias = t->bias ? bias : NULL,
    p.finish = t->relu ? TTI_AMX_RELU : TTI_AMX_NOTHING;
    p.sums = t->a_across ? sums : NULL;
    run(&p);
    expect(t, &p, before, bound);
    for (size_t i = 0; t->a_across && i < m; i++) {
        float want = 0;
        for (size_t x = 0; x < k; x++) want += a[x * m + i];
        assert_true(sums[i] == want);
    }
    for (size_t i = 0; i < GUARD; i++) assert_true(c[m * n + i] == 77.0f && sums[m + i] == 77.0f);
    free(a), free(b), free(c), free(before), free(bias), free(sums);
}

T_CASE(every_edge_and_step) {
    T_UNUSED;
    need_tiles();
    const size_t sizes[][3] = {{1, 1, 1},    {32, 32, 32},  {33, 31, 65},  {17, 100, 129},
                               {70, 33, 31}, {40, 530, 40}, {64, 70, 700}, {3, 545, 1500}};
    for (size_t s = 0; s < TTI_COUNT(sizes); s++)
        for (int way = 0; way < 12; way++) {
            trial t = {.m = sizes[s][0], .n = sizes[s][1], .k = sizes[s][2]};
            t.a_across = way & 1, t.b_across = way & 2;
            t.add = way / 4 == 1, t.bias = way / 4 == 2, t.relu = way / 4 == 2 && (way & 2);
            try_product(&t, 0x1p-21);
        }
}

/* As convolutions by taps need it, whose last block of channels is smaller than the others. */
T_CASE(smaller_products_need_no_more_scratch) {
    T_UNUSED;
    need_tiles();
    const size_t sizes[] = {32, 100, 128, 256, 320, 384, 416, 512, 640, 1024, 5000};
    for (size_t n = 1; n < TTI_COUNT(sizes); n++)
        for (size_t k = 1; k < TTI_COUNT(sizes); k++) {
            size_t n_bytes = tti_amx_scratch_bytes(sizes[n], sizes[k]);
            assert_true(tti_amx_scratch_bytes(sizes[n - 1], sizes[k]) <= n_bytes);
            assert_true(tti_amx_scratch_bytes(sizes[n], sizes[k - 1]) <= n_bytes);
        }
    for (size_t n = 0; n < TTI_COUNT(sizes); n++) /* and none more than it says */
        try_product(&(trial){.m = 2, .n = sizes[n], .k = 700}, 0x1p-21);
}

/* With one summand nothing hides an error; if one of the six products were missing, it would be
 * up to 2^-16. */
T_CASE(one_summand_is_as_exact_as_f32) {
    T_UNUSED;
    need_tiles();
    for (int way = 0; way < 4; way++)
        try_product(&(trial){.m = 200, .n = 300, .k = 1, .a_across = way & 1, .b_across = way & 2},
                    0x1.8p-23);
}

T_CASE(long_sums_are_as_exact_as_f32) {
    T_UNUSED;
    need_tiles();
    try_product(&(trial){.m = 64, .n = 64, .k = 5000, .a_across = true}, 0x1p-22);
}

T_CASE(what_is_not_finite_is_noticed) {
    T_UNUSED;
    need_tiles();
    const uint32_t bits[] = {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu, 0x7F800000u};
    for (size_t s = 0; s < TTI_COUNT(bits); s++)
        for (int side = 0; side < 2; side++) {
            float *a = make(64 * 64, 0), *b = make(64 * 64, 1), *c = make(64 * 64, 2);
            memcpy((side ? b : a) + 64 * 5 + 40, &bits[s], sizeof(float));
            run(&(tti_amx_product){.g = {.m = 64,
                                         .n = 64,
                                         .k = 64,
                                         .a = a,
                                         .b = b,
                                         .c = c,
                                         .a_row = 64,
                                         .b_row = 64,
                                         .c_row = 64}});
            for (size_t i = 0; i < 64; i++) {
                assert_true(!isfinite(side ? c[i * 64 + 40] : c[5 * 64 + i]));
                assert_true(isfinite(side ? c[i * 64 + 39] : c[6 * 64 + i]) != 0);
            }
            free(a), free(b), free(c);
        }
}

/* ---- nodes ---- */

static const tti_kernel *kernel_of(const tti_node *node) {
    const tti_kernel *kernel;
    for (int i = 0; (kernel = tti_cpu_kernel_at(i)) != NULL; i++)
        if (strcmp(kernel->op, node->op->name) == 0 && kernel->can_run(node)) return kernel;
    return NULL;
}

static void run_node(const tti_kernel *kernel, const tti_node *node, void *const *in, float **out) {
    const tti_run run = {.seed = 1};
    size_t n_bytes = kernel->scratch_bytes ? kernel->scratch_bytes(node, NULL) : 0;
    void *scratch = aligned_alloc(64, n_bytes / 64 * 64 + 64);
    assert_non_null(scratch);
    T_OK(kernel->run(NULL, &(tti_kargs){node, in, (void *const *)out, scratch, &run}));
    free(scratch);
}

static void check_node(const tti_node *node) {
    void *in[TTI_MAX_IN];
    float *got[TTI_MAX_OUT] = {NULL}, *want[TTI_MAX_OUT] = {NULL};
    const tti_kernel *kernel = kernel_of(node);
    assert_non_null(kernel);
    assert_string_equal(kernel->name, "amx");
    for (int i = 0; i < node->n_in; i++)
        in[i] = make((size_t)tti_value_n_elems(node->in[i]), (uint64_t)i);
    for (int k = 0; k < node->op->n_out; k++) {
        got[k] = make((size_t)tti_value_n_elems(node->out[k]), 9);
        want[k] = make((size_t)tti_value_n_elems(node->out[k]), 9);
    }
    run_node(kernel, node, in, got);
    run_node(&tti_reference_kernel, node, in, want);
    for (int k = 0; k < node->op->n_out; k++)
        for (size_t i = 0; i < (size_t)tti_value_n_elems(node->out[k]) + GUARD; i++)
            T_NEAR(got[k][i], want[k][i], 1e-5);
    for (int i = 0; i < node->n_in; i++) free(in[i]);
    for (int k = 0; k < node->op->n_out; k++) free(got[k]), free(want[k]);
}

static tti_node *node_of(tutti_graph *g, const char *op, tutti_value **in, int n_in,
                         const tti_attr_arg *attrs) {
    tti_node *node = tti_graph_add(
        g, &(tti_node_desc){
               .op = tti_op_find(op), .name = "it", .in = in, .n_in = n_in, .attrs = attrs});
    T_OK(tutti_graph_check(g));
    return node;
}

T_CASE(nodes_match_the_reference) {
    T_UNUSED;
    need_tiles();
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 70, 64));
    tutti_value *y = tutti_input(g, "y", TUTTI_F32, &TUTTI_SHAPE(2, 64, 96));
    tutti_value *one = tutti_input(g, "one", TUTTI_F32, &TUTTI_SHAPE(64, 96));
    tutti_value *w = tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(96, 64));
    tutti_value *b = tutti_input(g, "b", TUTTI_F32, &TUTTI_SHAPE(96));
    tutti_value *across = tutti_input(g, "across", TUTTI_F32, &TUTTI_SHAPE(2, 64, 70));
    tutti_value *dy = tutti_input(g, "dy", TUTTI_F32, &TUTTI_SHAPE(2, 70, 96));
    const tti_attr_arg none[] = {{0}}, ta[] = {TTI_INT("trans_a", 1), {0}};
    const tti_attr_arg tb[] = {TTI_INT("trans_b", 1), {0}};
    const tti_attr_arg relu[] = {TTI_INT("act", TTI_EPILOGUE_RELU), {0}};
    check_node(node_of(g, "matmul", (tutti_value *[]){x, y}, 2, none));
    check_node(node_of(g, "matmul", (tutti_value *[]){x, one}, 2, none));
    check_node(node_of(g, "matmul", (tutti_value *[]){x, w}, 2, tb));
    check_node(node_of(g, "matmul", (tutti_value *[]){across, y}, 2, ta));
    check_node(node_of(g, "matmul", (tutti_value *[]){across, one}, 2, ta));
    check_node(node_of(g, "linear", (tutti_value *[]){x, w}, 2, none));
    check_node(node_of(g, "linear", (tutti_value *[]){x, w, b}, 3, relu));
    check_node(node_of(g, "linear_grad_w", (tutti_value *[]){dy, x}, 2, none));
    tutti_value *r = tutti_input(g, "r", TUTTI_F32, &TUTTI_SHAPE(2, 70, 96));
    check_node(node_of(g, "matmul_add", (tutti_value *[]){x, y, r}, 3, none));
    check_node(node_of(g, "matmul_add", (tutti_value *[]){x, one, r}, 3, none));
    check_node(node_of(g, "matmul_gelu_grad", (tutti_value *[]){x, y, r}, 3, none));
    check_node(node_of(g, "matmul_gelu_grad", (tutti_value *[]){x, w, r}, 3, tb));
    check_node(node_of(g, "linear_gelu", (tutti_value *[]){x, w, b}, 3, none));
    check_node(node_of(g, "linear_gelu", (tutti_value *[]){x, w}, 2, none));
    check_node(node_of(g, "linear_add", (tutti_value *[]){x, w, b, r}, 4, none));
    check_node(node_of(g, "linear_add", (tutti_value *[]){x, w, r}, 3, none));
    tutti_graph_destroy(g);
}

/* Few rows, or a size just above whole blocks: others are faster. */
T_CASE(small_products_are_left_to_others) {
    T_UNUSED;
    const int64_t sizes[][3] = {{1, 512, 512}, {33, 33, 4096}, {32, 32, 32}};
    for (size_t s = 0; s < TTI_COUNT(sizes); s++) {
        tutti_graph *g = tutti_graph_create(true);
        const int64_t *d = sizes[s];
        tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(d[0], d[2]));
        tutti_value *w = tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(d[1], d[2]));
        const tti_node *node =
            node_of(g, "linear", (tutti_value *[]){x, w}, 2, (tti_attr_arg[]){{0}});
        const tti_kernel *kernel = kernel_of(node);
        assert_non_null(kernel);
        assert_string_not_equal(kernel->name, "amx");
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_edge_and_step),
        cmocka_unit_test(smaller_products_need_no_more_scratch),
        cmocka_unit_test(one_summand_is_as_exact_as_f32),
        cmocka_unit_test(long_sums_are_as_exact_as_f32),
        cmocka_unit_test(what_is_not_finite_is_noticed),
        cmocka_unit_test(nodes_match_the_reference),
        cmocka_unit_test(small_products_are_left_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

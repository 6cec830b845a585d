/* bn_pool_test.c - batch norm, relu and pooling in one op against the ops one by one. */
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { ROWS = 2, CHANNELS = 5, HIGH = 5, WIDE = 4, STATS = 2 * CHANNELS + 1, NOWHERE = 9 };

/* Values of x, stats, gamma and beta: windows with ties, orders that turn, nothing above 0. */
static const double stats[STATS] = {40, 1, 2, -1, 0, 3, /**/ 40, 20, 80, 60, 10};
static const double gammas[CHANNELS] = {1, -2, 0.5, -1, 0}, betas[CHANNELS] = {0, 1, -9, 0.25, 2};

typedef struct pooled {
    t_reference *r;
    tutti_value *one, *apart; /* y of the op, and of the ops */
} pooled;

static tutti_value *apart_of(tutti_graph *g, tutti_value *const in[4]) {
    static const int64_t three[2] = {3, 3}, two[2] = {2, 2}, pad[2] = {1, 1};
    tutti_value *y = tti_emit(g, "bn_apply", "n", in, 4, (tti_attr_arg[]){TTI_INT("act", 1), {0}});
    tutti_value *out[2];
    const tti_attr_arg attrs[] = {
        TTI_INTS("kernel", 2, three), TTI_INTS("stride", 2, two), TTI_INTS("pad", 2, pad), {0}};
    tti_emit_n(g, "max_pool2d", "p", &y, 1, attrs, out);
    return out[0];
}

static pooled pool_both(tutti_graph *g, double odd) {
    tutti_value *in[4] = {tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(ROWS, CHANNELS, HIGH, WIDE)),
                          tutti_input(g, "stats", TUTTI_F32, &TUTTI_SHAPE(STATS)),
                          tutti_input(g, "gamma", TUTTI_F32, &TUTTI_SHAPE(CHANNELS)),
                          tutti_input(g, "beta", TUTTI_F32, &TUTTI_SHAPE(CHANNELS))};
    pooled p = {.one = tti_emit(g, "bn_apply_pool", "n", in, 4, NULL), .apart = apart_of(g, in)};
    T_OK(tutti_graph_check(g));
    p.r = t_reference_create(g);
    double *x = t_reference_of(p.r, in[0]);
    for (int i = 0; i < ROWS * CHANNELS * HIGH * WIDE; i++) x[i] = i * 7 % 13 % 9 - 4;
    x[1] = odd;
    memcpy(t_reference_of(p.r, in[1]), stats, sizeof stats);
    memcpy(t_reference_of(p.r, in[2]), gammas, sizeof gammas);
    memcpy(t_reference_of(p.r, in[3]), betas, sizeof betas);
    t_reference_run(p.r, &(tti_run){0});
    return p;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void expect_alike(double odd) {
    tutti_graph *g = tutti_graph_create(true);
    pooled p = pool_both(g, odd);
    int n_above = 0, n = (int)tti_value_n_elems(p.one);
    const double *y = t_reference_of(p.r, p.one);
    T_EQ(n, ROWS * CHANNELS * 3 * 2);
    for (int k = 0; k < 2; k++) {
        const double *one = t_reference_of(p.r, p.one->node->out[k]);
        const double *apart = t_reference_of(p.r, p.apart->node->out[k]);
        for (int i = 0; i < n; i++) {
            double want = k == 1 && y[i] <= 0 ? NOWHERE : apart[i];
            if (!same(one[i], want)) fail_msg("output %d, %d: %g, %g", k, i, one[i], want);
            n_above += k == 0 && one[i] > 0;
        }
    }
    assert_true(n_above > n / 4 && n_above < n);
    t_reference_destroy(p.r);
    tutti_graph_destroy(g);
}

T_CASE(as_the_ops_one_by_one) {
    T_UNUSED;
    expect_alike(1);
}

T_CASE(nan_wins) {
    T_UNUSED;
    expect_alike(NAN);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_the_ops_one_by_one),
                                       cmocka_unit_test(nan_wins)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* pool_test.c - windows against PyTorch 1.13, ties, NaN and infinities. */
#include "ir/graph.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

/* Runs the graph that ends in y on x; both have room for what the shapes say. */
static void run(tutti_graph *g, const tutti_value *x, const double *values, const tutti_value *y,
                double *out) {
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, x), values, (size_t)tti_value_n_elems(x) * sizeof *values);
    t_reference_run(r, &(tti_run){0});
    memcpy(out, t_reference_of(r, y), (size_t)tti_value_n_elems(y) * sizeof *out);
    t_reference_destroy(r);
}

static double sines[35];

T_CASE(averages_are_those_of_pytorch) {
    T_UNUSED;
    double y[16];
    static const double adaptive[6] = {-0.10124099977224504, 0.35847552718695824,
                                       -0.10431640265052594, -0.27210623665993366,
                                       0.27629884673170846,  0.09815766494402088};
    static const double inside[4] = {-0.09921719701354195, 0.5431362944727817, 0.19644856115426934,
                                     -0.40332776113501434};
    for (int i = 0; i < 35; i++) sines[i] = sin(i);
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 1, 7, 5));
    run(g, x, sines, tutti_adaptive_avg_pool2d(g, x, 3, 2), y);
    for (int i = 0; i < 6; i++) T_NEAR(y[i], adaptive[i], 1e-14);
    tutti_pool2d_desc desc = {.kernel = 3, .stride = 2, .pad = 1, .exclude_pad = true};
    run(g, x, sines, tutti_avg_pool2d_with(g, x, &desc), y);
    for (int i = 0; i < 4; i++) T_NEAR(y[i], inside[i], 1e-14);
    tutti_graph_destroy(g);
}

T_CASE(first_maximum_and_nan_win) {
    T_UNUSED;
    static const double values[16] = {1, 1, -INFINITY, -INFINITY, 1, 1, -INFINITY, -INFINITY,
                                      0, 5, NAN,       2,         5, 0, 3,         NAN};
    static const double index[4] = {0, 0, 1, 0};
    double y[4];
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 1, 4, 4));
    tutti_value *pooled = tutti_max_pool2d(g, x, 2);
    run(g, x, values, pooled, y);
    T_NEAR(y[0], 1, 0);
    assert_true(y[1] == -INFINITY && y[2] == 5 && isnan(y[3]));
    run(g, x, values, pooled->node->out[1], y);
    for (int i = 0; i < 4; i++) T_NEAR(y[i], index[i], 0);
    tutti_graph_destroy(g);
}

/* Padding is outside x: it never wins, even over -inf, and the index counts it in. */
T_CASE(padding_never_wins) {
    T_UNUSED;
    static const double values[4] = {-INFINITY, -9, -8, -7};
    double y[4];
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 1, 2, 2));
    tutti_pool2d_desc desc = {.kernel = 2, .stride = 2, .pad = 1};
    tutti_value *pooled = tutti_max_pool2d_with(g, x, &desc);
    run(g, x, values, pooled, y);
    for (int i = 0; i < 4; i++) assert_true(y[i] == values[i]);
    run(g, x, values, pooled->node->out[1], y);
    for (int i = 0; i < 4; i++) T_NEAR(y[i], 3 - i, 0);
    tutti_graph_destroy(g);
}

T_CASE(adaptive_index_counts_in_the_plane) {
    T_UNUSED;
    static const double values[12] = {0, 1, 2, 9, 4, 5, 6, 7, 8, 3, 10, 11};
    double y[2];
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 1, 3, 4));
    tutti_value *pooled = tutti_adaptive_max_pool2d(g, x, 1, 2);
    run(g, x, values, pooled->node->out[1], y);
    T_NEAR(y[0], 8, 0);
    T_NEAR(y[1], 11, 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_are_those_of_pytorch),
        cmocka_unit_test(first_maximum_and_nan_win),
        cmocka_unit_test(padding_never_wins),
        cmocka_unit_test(adaptive_index_counts_in_the_plane),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

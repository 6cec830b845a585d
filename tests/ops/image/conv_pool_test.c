/* conv_pool_test.c - where the maximum of a window is, and what flows back from it. */
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

/* The windows have: a tie, all below 0, nothing above 0, the maximum in the second row. */
static const double image[16] = {2,  3,  -1, -2, /**/
                                 3,  1,  -5, -1, /**/
                                 0,  -1, 4,  1,  /**/
                                 -2, 0,  9,  1};

/* conv2d_pool of the image with one channel; w: the middle tap, and one to its right. */
static t_reference *pooled(tutti_graph *g, const double taps[2], double bias, tutti_value **y) {
    tutti_value *in[3] = {tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 1, 4, 4)),
                          tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(1, 1, 3, 3)),
                          tutti_input(g, "b", TUTTI_F32, &TUTTI_SHAPE(1))};
    *y = tti_emit(g, "conv2d_pool", "c", in, 3, NULL);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, in[0]), image, sizeof image);
    t_reference_of(r, in[1])[4] = taps[0], t_reference_of(r, in[1])[5] = taps[1];
    t_reference_of(r, in[2])[0] = bias;
    t_reference_run(r, &(tti_run){0});
    return r;
}

T_CASE(first_maximum_and_nowhere) {
    T_UNUSED;
    tutti_value *y;
    tutti_graph *g = tutti_graph_create(true);
    t_reference *r = pooled(g, (double[]){1, 0}, 0, &y);
    const double *p = t_reference_of(r, y), *where = t_reference_of(r, y->node->out[1]);
    static const double index[4] = {1, 4, 4, 2};
    T_NEAR(p[0], 3, 0);
    T_NEAR(p[1], 0, 0);
    T_NEAR(p[2], 0, 0);
    T_NEAR(p[3], 9, 0);
    for (int i = 0; i < 4; i++) T_NEAR(where[i], index[i], 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(nan_stays) {
    T_UNUSED;
    tutti_value *y;
    tutti_graph *g = tutti_graph_create(true);
    t_reference *r = pooled(g, (double[]){1, 0}, NAN, &y);
    for (int i = 0; i < 4; i++) {
        assert_true(isnan(t_reference_of(r, y)[i]));
        T_NEAR(t_reference_of(r, y->node->out[1])[i], 0, 0); /* the gradient passes */
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

/* The tap to the right sees zeros beyond the edge; the bias comes before relu. */
T_CASE(neighbours_and_bias) {
    T_UNUSED;
    tutti_value *y;
    tutti_graph *g = tutti_graph_create(true);
    t_reference *r = pooled(g, (double[]){0, 1}, 2.5, &y);
    const double *p = t_reference_of(r, y), *where = t_reference_of(r, y->node->out[1]);
    T_NEAR(p[0], 5.5, 0); /* 3 is to the right of (0, 0) */
    T_NEAR(where[0], 0, 0);
    T_NEAR(p[1], 2.5, 0); /* the edge */
    T_NEAR(where[1], 1, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(what_flows_back) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *dp = tutti_input(g, "dp", TUTTI_F32, &TUTTI_SHAPE(1, 1, 2, 2));
    tutti_value *where = tutti_input(g, "where", TUTTI_U8, &TUTTI_SHAPE(1, 1, 2, 2));
    tutti_value *w = tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(1, 1, 3, 3));
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 1, 4, 4));
    tutti_value *dx =
        tti_emit(g, "conv2d_pool_grad_x", "c", (tutti_value *[]){dp, where, w}, 3, NULL);
    tutti_value *dw =
        tti_emit(g, "conv2d_pool_grad_w", "c", (tutti_value *[]){dp, where, x}, 3, NULL);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    static const double gradient[4] = {2, 3, 5, 7}, from[4] = {3, 4, 1, 4};
    memcpy(t_reference_of(r, dp), gradient, sizeof gradient);
    memcpy(t_reference_of(r, where), from, sizeof from);
    t_reference_of(r, w)[4] = 1, t_reference_of(r, w)[5] = 10;
    for (int i = 0; i < 16; i++) t_reference_of(r, x)[i] = i;
    t_reference_run(r, &(tti_run){0});
    static const double want[16] = {[5] = 2, [6] = 20, [9] = 5, [10] = 50}; /* (1,1), (2,1) */
    for (int i = 0; i < 16; i++) T_NEAR(t_reference_of(r, dx)[i], want[i], 0);
    T_NEAR(t_reference_of(r, dw)[4], 2 * 5 + 5 * 9, 0);
    T_NEAR(t_reference_of(r, dw)[5], 2 * 6 + 5 * 10, 0);
    T_NEAR(t_reference_of(r, dw->node->out[1])[0], 7, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(hostile_sizes_do_not_overflow) {
    T_UNUSED;
    const tutti_shape huge = TUTTI_SHAPE(0, 1, INT64_MAX / 2 + 1, 1);
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *in[3] = {tutti_input(g, "dp", TUTTI_F32, &huge),
                          tutti_input(g, "where", TUTTI_U8, &huge),
                          tutti_input(g, "w", TUTTI_F32, &TUTTI_SHAPE(1, 1, 3, 3))};
    assert_null(tti_emit(g, "conv2d_pool_grad_x", "c", in, 3, NULL));
    assert_int_not_equal(tutti_graph_check(g), TUTTI_OK);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_maximum_and_nowhere), cmocka_unit_test(nan_stays),
        cmocka_unit_test(neighbours_and_bias), cmocka_unit_test(what_flows_back),
        cmocka_unit_test(hostile_sizes_do_not_overflow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

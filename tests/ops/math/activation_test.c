/* activation_test.c - known values, and what NaN and infinity become, in the families of one and
 * two inputs, softmax and reductions. */
#include "ir/graph.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { N = 6 };
static const double specials[N] = {NAN, INFINITY, -INFINITY, -2, 0, 3};

typedef tutti_value *(*map_fn)(tutti_graph *g, tutti_value *x);

/* y = fn(specials), or the gradient with dy = 1. */
static void map(map_fn fn, bool gradient, double *y) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(N)), *dx = NULL;
    tutti_value *one = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(N), 1), *out = fn(g, x);
    T_OK(tutti_graph_check(g));
    T_OK(out->node->op->grad(g, out->node, &one, (bool[]){true}, &dx));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, x), specials, sizeof specials);
    t_reference_run(r, &(tti_run){0});
    memcpy(y, t_reference_of(r, gradient ? dx : out), N * sizeof *y);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

static void expect(const double *got, const double *want) {
    for (int i = 0; i < N; i++) {
        if (isnan(want[i]))
            assert_true(isnan(got[i]));
        else if (isinf(want[i]))
            assert_true(got[i] == want[i]);
        else
            T_NEAR(got[i], want[i], 1e-7);
    }
}

T_CASE(nan_passes_and_infinity_saturates) {
    T_UNUSED;
    double y[N];
    map(tutti_relu, false, y);
    expect(y, (double[]){NAN, INFINITY, 0, 0, 0, 3});
    map(tutti_relu, true, y);
    expect(y, (double[]){1, 1, 0, 0, 0, 1}); /* as PyTorch: the gradient passes at NaN */
    map(tutti_sigmoid, false, y);
    expect(y, (double[]){NAN, 1, 0, 0.1192029220, 0.5, 0.9525741268});
    map(tutti_tanh, false, y);
    expect(y, (double[]){NAN, 1, -1, -0.9640275801, 0, 0.9950547537});
    map(tutti_gelu, false, y);
    expect(y, (double[]){NAN, INFINITY, NAN, -0.0455002639, 0, 2.9959503059});
    map(tutti_abs, true, y);
    expect(y, (double[]){NAN, 1, -1, -1, 0, 1});
}

T_CASE(maximum_keeps_nan_and_shares_ties) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *a = tutti_input(g, "a", TUTTI_F32, &TUTTI_SHAPE(3));
    tutti_value *b = tutti_input(g, "b", TUTTI_F32, &TUTTI_SHAPE(3)), *dx[2];
    tutti_value *one = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(3), 1);
    tutti_value *high = tutti_maximum(g, a, b), *low = tutti_minimum(g, b, a);
    T_OK(high->node->op->grad(g, high->node, &one, (bool[]){true, true}, dx));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, a), (double[]){1, 2, NAN}, 3 * sizeof(double));
    memcpy(t_reference_of(r, b), (double[]){1, 5, 0}, 3 * sizeof(double));
    t_reference_run(r, &(tti_run){0});
    assert_true(isnan(t_reference_of(r, high)[2]) && isnan(t_reference_of(r, low)[2]));
    T_NEAR(t_reference_of(r, dx[0])[0], 0.5, 0);
    T_NEAR(t_reference_of(r, dx[1])[0], 0.5, 0);
    T_NEAR(t_reference_of(r, dx[0])[1], 0, 0);
    T_NEAR(t_reference_of(r, dx[1])[1], 1, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(rows_with_infinities_have_a_softmax) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 3));
    tutti_value *y = tutti_softmax(g, x, -1), *best = tutti_argmax(g, x, 1);
    tutti_value *max = tutti_max(g, x, &(tutti_axes){.n = 1, .axis = {1}}), *dx = NULL;
    tutti_value *one = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(2), 1);
    T_OK(max->node->op->grad(g, max->node, &one, (bool[]){true}, &dx));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, x), (double[]){-INFINITY, 0, 0, 1, NAN, 1}, 6 * sizeof(double));
    t_reference_run(r, &(tti_run){0});
    T_NEAR(t_reference_of(r, y)[0], 0, 0);
    T_NEAR(t_reference_of(r, y)[1], 0.5, 1e-15);
    assert_true(isnan(t_reference_of(r, y)[3]));
    T_NEAR(t_reference_of(r, best)[0], 1, 0); /* the first of two */
    T_NEAR(t_reference_of(r, best)[1], 1, 0); /* NaN wins */
    assert_true(isnan(t_reference_of(r, max)[1]));
    T_NEAR(t_reference_of(r, dx)[1], 0.5, 0);
    for (int i = 3; i < 6; i++) assert_true(isnan(t_reference_of(r, dx)[i])); /* as PyTorch */
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(casts_to_integers_stay_in_range) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(5));
    tutti_value *byte = tutti_cast(g, x, TUTTI_U8), *word = tutti_cast(g, x, TUTTI_I32);
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, x), (double[]){NAN, INFINITY, -1e30, 2.9, -2.9}, 5 * sizeof(double));
    t_reference_run(r, &(tti_run){0});
    assert_memory_equal(t_reference_of(r, byte), ((double[]){0, 255, 0, 2, 0}), 5 * sizeof(double));
    assert_memory_equal(t_reference_of(r, word), ((double[]){0, INT32_MAX, INT32_MIN, 2, -2}),
                        5 * sizeof(double));
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nan_passes_and_infinity_saturates),
        cmocka_unit_test(maximum_keeps_nan_and_shares_ties),
        cmocka_unit_test(rows_with_infinities_have_a_softmax),
        cmocka_unit_test(casts_to_integers_stay_in_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

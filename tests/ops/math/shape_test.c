/* shape_test.c - builders that resolve shapes: -1 in reshape, equal parts, orders of dimensions. */
#include "ops/built.h"
#include "reference_run.h"
#include "tutti/ops.h"

static tutti_value *matrix(tutti_graph *g) {
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(4, 6));
}

T_CASE(reshape_resolves_one_open_dimension) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = matrix(g);
    expect_shape(tutti_reshape(g, x, &TUTTI_SHAPE(2, -1, 3)), "f32[2,4,3]");
    expect_shape(tutti_reshape(g, x, &TUTTI_SHAPE(-1)), "f32[24]");
    tutti_value *empty = tutti_input(g, "empty", TUTTI_F32, &TUTTI_SHAPE(0, 6));
    expect_shape(tutti_reshape(g, empty, &TUTTI_SHAPE(-1, 3)), "f32[0,3]");
    expect_shape(tutti_flatten(g, empty), "f32[0,6]");
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    tutti_reshape(g, matrix(g), &TUTTI_SHAPE(-1, -1));
    expect_failure(g, "reshape: f32[4,6] cannot become");
    g = tutti_graph_create(true);
    tutti_reshape(g, matrix(g), &TUTTI_SHAPE(5, -1));
    expect_failure(g, "reshape: f32[4,6] cannot become");
    g = tutti_graph_create(true);
    tutti_reshape(g, matrix(g), &TUTTI_SHAPE(INT64_MAX, 3, -1));
    expect_failure(g, "reshape: f32[4,6] cannot become");
    g = tutti_graph_create(true);
    tutti_reshape(g, matrix(g), &TUTTI_SHAPE(0, -1));
    expect_failure(g, "reshape: f32[4,6] cannot become");
}

T_CASE(split_gives_equal_parts_that_concat_joins) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = matrix(g), *parts[4];
    tutti_split(g, x, -1, 3, parts);
    expect_shape(parts[1], "f32[4,2]");
    tutti_value *back = tutti_concat(g, parts, 3, 1);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < 24; i++) t_reference_of(r, x)[i] = i;
    t_reference_run(r, &(tti_run){0});
    T_NEAR(t_reference_of(r, parts[1])[2], 8, 0); /* row 1, column 2 */
    for (int i = 0; i < 24; i++) T_NEAR(t_reference_of(r, back)[i], i, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    tutti_split(g, matrix(g), 1, 4, parts); /* writes four */
    assert_null(parts[0]);
    expect_failure(g, "split: f32[4,6] cannot be cut in 4 equal parts along 1");
    g = tutti_graph_create(true);
    tutti_split(g, matrix(g), 2, 2, parts);
    expect_failure(g, "split: f32[4,6] cannot be cut");
}

T_CASE(transpose_counts_from_the_end_too) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 3, 4));
    expect_shape(tutti_transpose(g, x, -1, 0), "f32[4,3,2]");
    expect_shape(tutti_permute(g, x, (int[]){1, 2, 0}, 3), "f32[3,4,2]");
    T_OK(tutti_graph_check(g));
    tutti_transpose(g, x, 0, 3);
    expect_failure(g, "transpose: dimensions 0 and 3 of a shape of 3");
    g = tutti_graph_create(true);
    tutti_permute(g, matrix(g), (int[]){0, 0}, 2);
    expect_failure(g, "transpose: perm is not a permutation of 2 dimensions");
    g = tutti_graph_create(true);
    tutti_concat(g, NULL, 3, 0);
    expect_failure(g, "concat: 1 to 16 values are needed, got 3");
    g = tutti_graph_create(true);
    tutti_flatten(g, tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1));
    expect_failure(g, "flatten: a scalar has no samples");
}

T_CASE(pad_and_select_count_from_the_end_too) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = matrix(g);
    expect_shape(tutti_pad(g, x, -1, 1, 2), "f32[4,9]");
    expect_shape(tutti_select(g, x, -1, 5), "f32[4]");
    expect_shape(tutti_select(g, x, 0, 3), "f32[6]");
    T_OK(tutti_graph_check(g));
    tutti_graph_destroy(g);
    g = tutti_graph_create(true);
    tutti_pad(g, matrix(g), 0, -1, 0);
    expect_failure(g, "pad: -1 and 0 zeros");
    g = tutti_graph_create(true);
    tutti_select(g, matrix(g), 1, 6);
    expect_failure(g, "outside a dimension of 6");
}

/* The value passes, the gradient does not. */
T_CASE(stop_gradient_has_none) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = matrix(g), *y = tutti_stop_gradient(g, x), *dy = y, *dx = NULL;
    T_OK(y->node->op->grad(g, y->node, &dy, &(bool){true}, &dx));
    assert_null(dx);
    t_reference *r = t_reference_create(g);
    t_reference_of(r, x)[7] = 5;
    t_reference_run(r, &(tti_run){0});
    T_NEAR(t_reference_of(r, y)[7], 5, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reshape_resolves_one_open_dimension),
        cmocka_unit_test(split_gives_equal_parts_that_concat_joins),
        cmocka_unit_test(transpose_counts_from_the_end_too),
        cmocka_unit_test(pad_and_select_count_from_the_end_too),
        cmocka_unit_test(stop_gradient_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

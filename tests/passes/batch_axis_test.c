/* batch_axis_test.c - where the samples of a shard lie in the values of a graph. */
#include "passes/nets.h"

enum { N = 4, T = 3, D = 6 };

static tutti_value *sequences(tutti_graph *g) {
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(N, T, D));
}

static tutti_batch batch_of(tutti_graph *g, tutti_value *value) {
    tutti_batch at;
    T_OK(tutti_graph_check(g));
    tutti_find_batch(g, value, &at);
    return at;
}

T_CASE(samples_move_with_their_dimension) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = sequences(g), *w = tutti_param(g, "w", &TUTTI_SHAPE(N, D), NULL, true);
    T_EQ(tutti_batch_axis(g, x), 0);
    T_EQ(tutti_batch_axis(g, w), -1);
    tutti_value *first = tutti_transpose(g, x, 0, 1);
    T_EQ(tutti_batch_axis(g, first), 1);
    T_EQ(tutti_batch_axis(g, tutti_linear(g, tutti_tanh(g, first), 5, "fc")), 1);
    T_EQ(tutti_batch_axis(g, tutti_softmax(g, first, 1)), 1);
    T_EQ(tutti_batch_axis(g, tutti_sum(g, first, &(tutti_axes){1, {0}, false})), 0);
    T_EQ(tutti_batch_axis(g, tutti_mean(g, first, &(tutti_axes){1, {1}, false})), -1);
    T_EQ(tutti_batch_axis(g, tutti_max(g, first, &(tutti_axes){1, {0}, true})), 1);
    T_EQ(tutti_batch_axis(g, tutti_sub(g, x, tutti_mean(g, x, &(tutti_axes){1, {0}, true}))), 0);
    tutti_graph_destroy(g);
}

T_CASE(merged_dimensions_are_followed) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = sequences(g), *first = tutti_transpose(g, x, 0, 1);
    tutti_batch at = batch_of(g, tutti_reshape(g, x, &TUTTI_SHAPE(N * T, D)));
    T_EQ(at.n, N);
    T_EQ(at.inner[0], T);
    tutti_value *flat = tutti_reshape(g, first, &TUTTI_SHAPE(T * N, D));
    T_EQ(batch_of(g, flat).inner[0], 1);
    at = batch_of(g, tutti_reshape(g, flat, &TUTTI_SHAPE(T, N * 2, 3)));
    T_EQ(at.inner[0], 0);
    T_EQ(at.inner[1], 2);
    T_EQ(tutti_batch_axis(g, tutti_reshape(g, flat, &TUTTI_SHAPE(T, N, D))), 1);
    tutti_value *both = tutti_concat(g, (tutti_value *[]){flat, flat}, 2, 0);
    T_EQ(batch_of(g, both).inner[0], 1);
    T_EQ(tutti_batch_axis(g, tutti_slice(g, both, 0, N, 2 * N)), 0);
    T_EQ(tutti_batch_axis(g, tutti_reshape(g, x, &TUTTI_SHAPE(2, 2, T * D))), -2);
    tutti_graph_destroy(g);
}

T_CASE(samples_without_elements_are_followed) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *none = tutti_slice(g, sequences(g), 1, 0, 0);
    T_EQ(tutti_batch_axis(g, none), 0);
    T_EQ(tutti_batch_axis(g, tutti_reshape(g, none, &TUTTI_SHAPE(N, 0))), 0);
    T_EQ(tutti_batch_axis(g, tutti_reshape(g, none, &TUTTI_SHAPE(N * D, 0))), -1);
    tutti_graph_destroy(g);
}

T_CASE(samples_may_lie_along_two_dimensions) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_reshape(g, sequences(g), &TUTTI_SHAPE(N, T * D));
    tutti_value *pairs = tutti_matmul(g, x, tutti_transpose(g, x, 0, 1));
    tutti_batch at = batch_of(g, tutti_log_softmax(g, pairs, 1));
    T_EQ(at.inner[0], 1);
    T_EQ(at.inner[1], 1);
    T_EQ(tutti_batch_axis(g, pairs), -2);
    T_EQ(tutti_batch_axis(g, tutti_sum(g, pairs, &(tutti_axes){1, {0}, false})), 0);
    int32_t own[N] = {0, 1, 2, 3}, other[N] = {1, 0, 3, 2};
    tutti_value *ids = tutti_constant_array(g, TUTTI_I32, &TUTTI_SHAPE(N, 1), own);
    T_EQ(tutti_batch_axis(g, tutti_take_along(g, pairs, ids, 1)), 0);
    ids = tutti_constant_array(g, TUTTI_I32, &TUTTI_SHAPE(N, 1), other);
    T_EQ(tutti_batch_axis(g, tutti_take_along(g, pairs, ids, 1)), -2);
    T_EQ(tutti_batch_axis(g, tutti_matmul(g, tutti_transpose(g, x, 0, 1), x)), -1);
    tutti_graph_destroy(g);
}

T_CASE(what_mixes_samples_is_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = sequences(g);
    tutti_value *sorted = tutti_sort(g, x, 0, false).values;
    T_EQ(tutti_batch_axis(g, sorted), -2);
    assert_non_null(strstr(batch_of(g, tutti_relu(g, sorted)).mixed_by, "sort"));
    assert_non_null(strstr(batch_of(g, tutti_slice(g, x, 0, 1, N - 1)).mixed_by, "slice"));
    T_EQ(batch_of(g, tutti_slice(g, x, 1, 1, 1)).mixed_by == NULL, true);
    T_EQ(tutti_batch_axis(g, tutti_sort(g, x, 1, false).values), 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_move_with_their_dimension),
        cmocka_unit_test(merged_dimensions_are_followed),
        cmocka_unit_test(samples_without_elements_are_followed),
        cmocka_unit_test(samples_may_lie_along_two_dimensions),
        cmocka_unit_test(what_mixes_samples_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

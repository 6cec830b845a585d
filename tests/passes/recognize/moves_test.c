/* moves_test.c - rows in another order, however it is spelled; near misses stay; results and
 * gradients are the same. */
#include "passes/nets.h"
#include "passes/recognize/recognize.h"

typedef tutti_graph G;
typedef tutti_value V;

enum { SIDE = 4, WIDTH = 8 };

typedef V *(*move_fn)(G *g, V *x); /* of x[N,SIDE,SIDE,WIDTH] */

static V *roll(G *g, V *x, int axis, int64_t start) {
    int64_t n = SIDE - start;
    return tutti_concat(
        g, (V *[]){tutti_slice(g, x, axis, start, n), tutti_slice(g, x, axis, 0, start)}, 2, axis);
}

static V *windows(G *g, V *x) { /* of 2 x 2 */
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, 2, 2, 2, 2, WIDTH));
    x = tutti_permute(g, x, (int[]){0, 1, 3, 2, 4, 5}, 6);
    return tutti_reshape(g, x, &TUTTI_SHAPE(4 * NET_ROWS, 4, WIDTH));
}

static V *shifted(G *g, V *x) { return windows(g, roll(g, roll(g, x, 1, 1), 2, 1)); }
static V *shifted_back(G *g, V *x) {
    x = tutti_reshape(g, x, &TUTTI_SHAPE(4 * NET_ROWS, 4, WIDTH));
    x = tutti_reshape(g, tutti_tanh(g, x), &TUTTI_SHAPE(NET_ROWS, 2, 2, 2, 2, WIDTH));
    x = tutti_permute(g, x, (int[]){0, 1, 3, 2, 4, 5}, 6);
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, SIDE, SIDE, WIDTH));
    return roll(g, roll(g, x, 1, SIDE - 1), 2, SIDE - 1);
}

/* x[:, i::2, j::2] as exporters cut it: every second row of pairs. */
static V *every_second(G *g, V *x, int64_t i, int64_t j) {
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, 2, 2, SIDE, WIDTH));
    x = tutti_reshape(g, tutti_slice(g, x, 2, i, 1), &TUTTI_SHAPE(NET_ROWS, 2, 2, 2, WIDTH));
    return tutti_reshape(g, tutti_slice(g, x, 3, j, 1), &TUTTI_SHAPE(NET_ROWS, 2, 2, WIDTH));
}
static V *patches(G *g, V *x) {
    V *part[4];
    for (int i = 0; i < 4; i++) part[i] = every_second(g, x, i % 2, i / 2);
    return tutti_concat(g, part, 4, 3);
}

static V *windows_alone(G *g, V *x) { return windows(g, x); }
static V *twice(G *g, V *x) { /* a part is there twice, another is left out */
    V *part = tutti_slice(g, x, 1, 1, 2);
    return tutti_concat(g, (V *[]){part, part}, 2, 1);
}
static V *of_two(G *g, V *x) {
    V *part[] = {tutti_slice(g, x, 1, 1, 3), tutti_slice(g, tutti_tanh(g, x), 1, 0, 1)};
    return tutti_concat(g, part, 2, 1);
}
static V *read_inside(G *g, V *x) {
    V *y = roll(g, x, 1, 1);
    return tutti_add(g, roll(g, y, 2, 1), y);
}
static V *across_rows(G *g, V *x) { /* rows are cut */
    V *part[] = {tutti_slice(g, x, 3, 2, WIDTH - 2), tutti_slice(g, x, 3, 0, 2)};
    return tutti_concat(g, part, 2, 3);
}
static V *over_samples(G *g, V *x) { return roll(g, roll(g, x, 0, 1), 1, 1); }

static G *net_of(move_fn move, bool training) {
    G *g = tutti_graph_create(training);
    V *x = tutti_linear(g, net_x(g), SIDE * SIDE * WIDTH, "embed");
    x = tutti_tanh(g, tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, SIDE, SIDE, WIDTH)));
    x = tutti_tanh(g, move(g, x));
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, SIDE * SIDE * WIDTH));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

/* Ops of that name after the pass; results and gradients are those of the graph as it was. */
static int count_after(move_fn move, const char *op, bool training) {
    G *before = net_of(move, training), *after = net_of(move, training);
    static const tti_target plain = {.compute_dtype = TUTTI_F32};
    T_OK(tti_recognize(&after, NULL));
    T_OK(tti_graph_verify(after));
    int n = net_count_ops(after, op);
    T_OK(tti_pass_autodiff(&before, &plain));
    T_OK(tti_pass_autodiff(&after, &plain));
    T_EQ(net_count_ops(after, "scatter_add"), 0);
    if (training && n > 0 && strcmp(op, "gather") == 0) T_EQ(net_count_ops(after, "gather"), 2 * n);
    net_expect_equal(before, after);
    tutti_graph_destroy(before);
    tutti_graph_destroy(after);
    return n;
}

T_CASE(steps_that_order_rows_are_one_gather) {
    T_UNUSED;
    const move_fn moves[] = {shifted, shifted_back, patches};
    for (size_t i = 0; i < TTI_COUNT(moves); i++) {
        T_EQ(count_after(moves[i], "gather", true), 1);
        T_EQ(count_after(moves[i], "slice", true), 0);
        T_EQ(count_after(moves[i], "concat", true), 0);
        T_EQ(count_after(moves[i], "gather", false), 1);
    }
}

T_CASE(other_steps_stay) {
    T_UNUSED;
    const move_fn moves[] = {windows_alone, twice, of_two, across_rows};
    for (size_t i = 0; i < TTI_COUNT(moves); i++) T_EQ(count_after(moves[i], "gather", true), 0);
    T_EQ(count_after(read_inside, "gather", true), 2); /* each roll by itself */
}

/* Samples are never mixed: such a graph cannot be divided, and stays as it is. */
T_CASE(samples_keep_their_order) {
    T_UNUSED;
    G *g = net_of(over_samples, true);
    T_OK(tti_recognize(&g, NULL));
    T_EQ(net_count_ops(g, "gather"), 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_order_rows_are_one_gather),
        cmocka_unit_test(other_steps_stay),
        cmocka_unit_test(samples_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fuse_test.c - epilogues and chains: where they are made, where not, and the same results. */
#include <stdio.h>

#include "passes/nets.h"

static const tti_target fusing = {.fuse = true};

static tutti_graph *fused(tutti_graph *g) {
    T_OK(tutti_graph_check(g));
    T_OK(tti_pass_fuse(&g, &fusing));
    T_OK(tti_graph_verify(g));
    return g;
}

T_CASE(activations_go_into_their_layers) {
    T_UNUSED;
    tutti_graph *g = fused(net_lenet(true));
    T_EQ(net_count_ops(g, "relu"), 0);
    static const char *const names[][2] = {
        {"conv2d", "conv1"}, {"conv2d", "conv2"}, {"linear", "fc1"}, {"linear", "fc2"}};
    for (int i = 0; i < 4; i++) {
        const tti_node *node = net_find(g, names[i][0], names[i][1]);
        assert_non_null(node);
        T_EQ(tti_attr_int(node, "act"), i < 3 ? TTI_EPILOGUE_RELU : TTI_EPILOGUE_NONE);
    }
    tutti_graph_destroy(g);
}

T_CASE(nothing_is_fused_unless_requested) {
    T_UNUSED;
    tutti_graph *g = net_lenet(true), *before = g;
    T_OK(tti_pass_fuse(&g, &net_plain));
    assert_ptr_equal(g, before);
    T_EQ(net_count_ops(g, "relu"), 3);
    tutti_graph_destroy(g);
}

T_CASE(a_value_that_others_read_keeps_its_layer_bare) {
    T_UNUSED;
    for (int as_output = 0; as_output < 2; as_output++) {
        tutti_graph *g = tutti_graph_create(true);
        tutti_value *x = tutti_linear(g, net_x(g), 3, "fc"), *y = tutti_relu(g, x);
        if (as_output)
            tutti_output(g, "before", x);
        else
            y = tutti_matmul_with(g, y, x, false, true);
        tutti_output(g, "y", y);
        g = fused(g);
        T_EQ(net_count_ops(g, "relu"), 1);
        T_EQ(tti_attr_int(net_find(g, "linear", "fc"), "act"), TTI_EPILOGUE_NONE);
        tutti_graph_destroy(g);
    }
}

T_CASE(one_activation_per_layer) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_output(g, "y", tutti_relu(g, tutti_relu(g, tutti_linear(g, net_x(g), 3, "fc"))));
    g = fused(g);
    T_EQ(net_count_ops(g, "relu"), 1);
    tutti_graph_destroy(g);
}

static tutti_graph *with_bias(const tutti_shape *shape, bool own_bias) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *b = tutti_param(g, "b", shape, NULL, false);
    tutti_linear_desc desc = {.n_out = NET_CLASSES, .no_bias = !own_bias};
    tutti_value *y = tutti_linear_with(g, net_x(g), &desc, "fc");
    return net_finish(g, tutti_add(g, y, b));
}

T_CASE(an_added_parameter_becomes_the_bias) {
    T_UNUSED;
    tutti_graph *plain = with_bias(&TUTTI_SHAPE(NET_CLASSES), false);
    tutti_graph *g = fused(with_bias(&TUTTI_SHAPE(NET_CLASSES), false));
    T_EQ(net_count_ops(g, "add"), 0);
    const tti_node *fc = net_find(g, "linear", "fc");
    T_EQ(fc->n_in, 3);
    assert_string_equal(fc->in[2]->node->name, "b");
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
    g = fused(with_bias(&TUTTI_SHAPE(NET_CLASSES), true)); /* it has one */
    T_EQ(net_count_ops(g, "add"), 1);
    tutti_graph_destroy(g);
    g = fused(with_bias(&TUTTI_SHAPE(1), false)); /* not one per channel */
    T_EQ(net_count_ops(g, "add"), 1);
    tutti_graph_destroy(g);
    g = fused(with_bias(&TUTTI_SHAPE(NET_ROWS, NET_CLASSES), false)); /* one per sample */
    T_EQ(net_count_ops(g, "add"), 1);
    tutti_graph_destroy(g);
}

T_CASE(an_addition_then_an_activation_go_into_one_layer) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *b = tutti_param(g, "b", &TUTTI_SHAPE(7), NULL, false);
    tutti_linear_desc desc = {.n_out = 7, .no_bias = true};
    tutti_value *y = tutti_linear_with(g, net_x(g), &desc, "fc");
    tutti_output(g, "y", tutti_relu(g, tutti_add(g, b, y))); /* from either side */
    g = fused(g);
    const tti_node *fc = net_find(g, "linear", "fc");
    T_EQ(fc->n_in, 3);
    T_EQ(tti_attr_int(fc, "act"), TTI_EPILOGUE_RELU);
    assert_ptr_equal(tti_graph_output(g, "y"), fc->out[0]);
    tutti_graph_destroy(g);
}

/* ---- batch norm: residuals, activations, masks ---- */

static bool takes(const tutti_graph *g, const char *op, const char *name, int n_in, bool act) {
    const tti_node *node = net_find(g, op, name);
    assert_non_null(node);
    return node->n_in == n_in && tti_attr_int(node, "act") == act;
}

T_CASE(residuals_and_activations_go_into_batch_norms) {
    T_UNUSED;
    for (int training = 0; training < 2; training++) {
        tutti_graph *plain = net_blocks(training, false), *g = net_blocks(training, false);
        g = fused(g);
        const char *op = training ? "bn_apply" : "bn_eval";
        T_EQ(net_count_ops(g, "relu"), 0);
        T_EQ(net_count_ops(g, "add"), 0);
        T_EQ(net_count_ops(g, "fused"), 0);
        int n_in = training ? 4 : 5;
        assert_true(takes(g, op, "bn0", n_in, true));
        for (int i = 1; i <= 3; i++)
            assert_true(takes(g, op, (const char *[]){"bn1", "bn2", "bn3"}[i - 1], n_in + 1, true));
        assert_true(takes(g, op, "down2", n_in, false)); /* one of two: the other adds */
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

/* bn1's and bn3's masked dy goes into a shortcut too: it is made once.  bn0's and, through the
 * shortcut's batch norm, bn2's is read by gradients of batch norms alone. */
T_CASE(masks_go_where_nobody_needs_the_masked_gradient) {
    T_UNUSED;
    static const char *const names[] = {"bn0", "bn1", "bn2", "bn3", "down2"};
    static const bool masks[] = {true, false, true, false, true};
    for (int sync = 0; sync < 2; sync++) {
        tutti_graph *plain = net_blocks(true, sync), *g = net_blocks(true, sync);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &net_fast, "fuse"));
        for (size_t i = 0; i < TTI_COUNT(names); i++) {
            assert_true(takes(g, "bn_grad_sums", names[i], masks[i] ? 5 : 4, masks[i]));
            assert_true(takes(g, "bn_grad_apply", names[i], masks[i] ? 7 : 6, masks[i]));
        }
        T_EQ(net_count_ops(plain, "relu_grad"), 4);
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

/* A parameter per channel is a bias of linear, and no residual; nor is a value of another type. */
T_CASE(only_a_value_like_its_own_is_a_residual) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g), *b = tutti_param(g, "b", &TUTTI_SHAPE(6), NULL, false);
    tutti_output(g, "y", tutti_add(g, tutti_batch_norm2d(g, x, NULL, "bn"), b));
    g = fused(g);
    T_EQ(net_count_ops(g, "add"), 1);
    assert_true(takes(g, "bn_apply", "bn", 4, false));
    tutti_graph_destroy(g);
}

/* tanh(sigmoid(x) * y + x) with x and y from outside. */
static tutti_graph *chain_graph(void) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g), *y = tutti_input(g, "y", TUTTI_F32, &x->type.shape);
    tutti_value *z = tutti_mul(g, tutti_sigmoid(g, x), y);
    tutti_output(g, "z", tutti_tanh(g, tutti_add(g, z, x)));
    return g;
}

T_CASE(chains_become_one_node) {
    T_UNUSED;
    tutti_graph *plain = chain_graph(), *g = fused(chain_graph());
    T_EQ(g->n_nodes, 3);
    const tti_node *node = net_find(g, "fused", "");
    assert_non_null(node);
    T_EQ(node->n_body, 4);
    T_EQ(node->n_in, 2); /* x once */
    assert_string_equal(node->body[0]->op->name, "sigmoid");
    assert_string_equal(node->body[3]->op->name, "tanh");
    assert_ptr_equal(tti_graph_output(g, "z"), node->out[0]);
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

T_CASE(a_value_read_twice_ends_a_chain) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *a = tutti_sigmoid(g, tutti_neg(g, net_x(g)));
    tutti_value *b = tutti_exp(g, tutti_tanh(g, a)), *c = tutti_square(g, tutti_abs(g, a));
    tutti_output(g, "y", tutti_matmul_with(g, b, c, false, true));
    g = fused(g);
    T_EQ(net_count_ops(g, "fused"), 3);
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->n_body) T_EQ(g->nodes[i]->n_body, 2);
    tutti_graph_destroy(g);
}

T_CASE(an_output_ends_a_chain) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *a = tutti_sigmoid(g, net_x(g));
    tutti_output(g, "a", a);
    tutti_output(g, "b", tutti_exp(g, tutti_tanh(g, a)));
    g = fused(g);
    T_EQ(net_count_ops(g, "sigmoid"), 1);
    T_EQ(net_count_ops(g, "fused"), 1);
    tutti_graph_destroy(g);
}

T_CASE(only_f32_of_one_shape_is_chained) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g);
    tutti_value *row = tutti_input(g, "row", TUTTI_F32, &TUTTI_SHAPE(6));
    tutti_value *d = tutti_input(g, "d", TUTTI_F64, &TUTTI_SHAPE(3));
    tutti_output(g, "a", tutti_tanh(g, tutti_add(g, x, row)));
    tutti_output(g, "b", tutti_tanh(g, tutti_neg(g, d)));
    tutti_output(g, "c", tutti_neg(g, tutti_cast(g, d, TUTTI_F32)));
    tutti_output(g, "d", tutti_exp(g, tutti_dropout(g, x, 0.5, "drop")));
    int n_before = g->n_nodes;
    g = fused(g);
    T_EQ(net_count_ops(g, "fused"), 0);
    T_EQ(g->n_nodes, n_before);
    tutti_graph_destroy(g);
}

/* Longer than a chain may be, and with more inputs than a node may have. */
T_CASE(long_chains_are_cut) {
    T_UNUSED;
    for (int with_inputs = 0; with_inputs < 2; with_inputs++) {
        tutti_graph *pair[2];
        for (int p = 0; p < 2; p++) {
            tutti_graph *g = pair[p] = tutti_graph_create(true);
            tutti_value *x = net_x(g), *y = x;
            for (int i = 0; i < 40; i++) {
                char name[8] = {'i', (char)('a' + i / 26), (char)('a' + i % 26)};
                y = with_inputs ? tutti_add(g, y, tutti_input(g, name, TUTTI_F32, &x->type.shape))
                                : (i % 2 ? tutti_neg(g, y) : tutti_tanh(g, y));
            }
            tutti_output(g, "y", y);
        }
        pair[1] = fused(pair[1]);
        if (!with_inputs) assert_true(net_count_ops(pair[1], "fused") >= 2);
        net_expect_equal(pair[0], pair[1]);
        tutti_graph_destroy(pair[0]);
        tutti_graph_destroy(pair[1]);
    }
}

T_CASE(results_of_networks_stay) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        tutti_graph *plain = net_all[i](true), *g = net_all[i](true);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &fusing, "fuse"));
        net_expect_equal(plain, g);
        assert_true(g->n_nodes < plain->n_nodes);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

/* ---- gradients of slices ---- */

typedef struct part {
    int64_t start, len;
} part;

/* Parts of a layer's result, each by an activation of its own, joined in their order. */
static tutti_graph *sum_of(const part *parts, int n) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 6, "a"), *cut[4];
    for (int i = 0; i < n; i++) {
        cut[i] = tutti_slice(g, x, -1, parts[i].start, parts[i].len);
        cut[i] = i % 2 ? tutti_tanh(g, cut[i]) : tutti_sigmoid(g, cut[i]);
    }
    tutti_value *y = tutti_concat(g, cut, n, 1);
    return net_finish(g, tutti_linear(g, y, NET_CLASSES, "out"));
}

/* Gradients of slices that are left; all results are the same to the bit. */
static int n_left(const part *parts, int n) {
    tutti_graph *before = sum_of(parts, n), *g = sum_of(parts, n);
    T_OK(tti_pass_autodiff(&before, &net_plain));
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_EQ(net_count_ops(g, "slice_grad"), n);
    g = fused(g);
    net_expect_equal(before, g);
    int left = net_count_ops(g, "slice_grad");
    T_EQ(net_count_ops(g, "concat"), left == n ? 1 : 2);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
    return left;
}

T_CASE(parts_of_a_whole_are_joined) {
    T_UNUSED;
    T_EQ(n_left((part[]){{0, 2}, {2, 2}, {4, 2}}, 3), 0);
    T_EQ(n_left((part[]){{3, 3}, {0, 3}}, 2), 0); /* in any order */
    T_EQ(n_left((part[]){{4, 2}, {0, 1}, {1, 3}}, 3), 0);
}

T_CASE(gaps_and_overlaps_stay) {
    T_UNUSED;
    T_EQ(n_left((part[]){{0, 2}, {3, 3}}, 2), 2);
    T_EQ(n_left((part[]){{0, 4}, {2, 4}}, 2), 2);
    T_EQ(n_left((part[]){{0, 6}, {0, 3}, {3, 3}}, 3), 1); /* the last two */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_go_into_their_layers),
        cmocka_unit_test(nothing_is_fused_unless_requested),
        cmocka_unit_test(a_value_that_others_read_keeps_its_layer_bare),
        cmocka_unit_test(one_activation_per_layer),
        cmocka_unit_test(an_added_parameter_becomes_the_bias),
        cmocka_unit_test(an_addition_then_an_activation_go_into_one_layer),
        cmocka_unit_test(residuals_and_activations_go_into_batch_norms),
        cmocka_unit_test(masks_go_where_nobody_needs_the_masked_gradient),
        cmocka_unit_test(only_a_value_like_its_own_is_a_residual),
        cmocka_unit_test(chains_become_one_node),
        cmocka_unit_test(a_value_read_twice_ends_a_chain),
        cmocka_unit_test(an_output_ends_a_chain),
        cmocka_unit_test(only_f32_of_one_shape_is_chained),
        cmocka_unit_test(long_chains_are_cut),
        cmocka_unit_test(results_of_networks_stay),
        cmocka_unit_test(parts_of_a_whole_are_joined),
        cmocka_unit_test(gaps_and_overlaps_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

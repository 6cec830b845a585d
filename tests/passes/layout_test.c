/* layout_test.c - bytes are turned where they must be and nowhere else. */
#include "passes/nets.h"
#include "tutti/functional.h"

static const tti_target turning = {.prefers_channels_last = net_likes_channels_last};

static const tti_target strided = {.prefers_channels_last = net_likes_channels_last,
                                   .strided = true};

static tutti_graph *turned(tutti_graph *g) {
    T_OK(tti_pass_layout(&g, &turning));
    T_OK(tti_graph_verify(g));
    return g;
}

static bool is_last(const tutti_value *value) { return value->layout == TTI_CHANNELS_LAST_BYTES; }

T_CASE(nothing_is_turned_inside_a_chain_of_convolutions) {
    T_UNUSED;
    tutti_graph *g = turned(net_lenet_of(false, 3));
    T_EQ(net_count_ops(g, "to_layout"), 2); /* the image, and before flatten */
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (node->op->traits & TTI_CHANNELS_LAST) {
            assert_true(is_last(node->in[0]));
            assert_true(is_last(node->out[0]));
        }
        if (strcmp(node->op->name, "conv2d") == 0) assert_false(is_last(node->in[1])); /* weights */
    }
    assert_false(is_last(net_find(g, "reshape", "")->in[0]));
    tutti_graph_destroy(g);
}

T_CASE(one_channel_is_the_same_bytes) {
    T_UNUSED;
    tutti_graph *g = turned(net_lenet(false));
    T_EQ(net_count_ops(g, "to_layout"), 1);
    tutti_graph_destroy(g);
    g = tutti_graph_create(false); /* 1x1 pixels are, too */
    tutti_value *x = tutti_adaptive_avg_pool2d(g, net_image(g, 1), 1, 1);
    tutti_output(g, "y", tutti_flatten(g, x));
    g = turned(g);
    T_EQ(net_count_ops(g, "to_layout"), 0);
    tutti_graph_destroy(g);
}

T_CASE(the_way_back_is_turned_once) {
    T_UNUSED;
    tutti_graph *g = net_lenet_of(true, 3);
    T_OK(tti_pass_autodiff(&g, &turning));
    T_OK(tti_pass_simplify(&g, &turning));
    g = turned(g);
    T_EQ(net_count_ops(g, "to_layout"), 3);
    for (int i = 0; i < g->n_outputs; i++) assert_false(is_last(g->outputs[i].value));
    tutti_graph_destroy(g);
}

T_CASE(a_value_is_turned_once_for_all_its_readers) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = net_image(g, 3), *a = tutti_max_pool2d(g, x, 2),
                *b = tutti_avg_pool2d(g, x, 2);
    tutti_output(g, "x", x);
    tutti_output(g, "y", tutti_mul(g, tutti_add(g, a, b), a)); /* follow their inputs */
    g = turned(g);
    T_EQ(net_count_ops(g, "to_layout"), 2);
    assert_true(is_last(net_find(g, "mul", "")->out[0]));
    assert_false(is_last(tti_graph_output(g, "x")));
    assert_false(is_last(tti_graph_output(g, "y")));
    tutti_graph_destroy(g);
}

T_CASE(random_and_broadcast_readers_see_plain_bytes) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_max_pool2d(g, net_image(g, 3), 2);
    tutti_value *c = tutti_input(g, "c", TUTTI_F32, &TUTTI_SHAPE(3, 1, 1));
    tutti_value *s = tutti_input(g, "s", TUTTI_F32, &TUTTI_SHAPE(1));
    tutti_output(g, "a", tutti_dropout(g, x, 0.5, "drop"));
    tutti_output(g, "b", tutti_add(g, x, c));
    tutti_output(g, "d", tutti_mul(g, x, s));
    g = turned(g);
    assert_false(is_last(net_find(g, "dropout", "drop")->in[0]));
    assert_false(is_last(net_find(g, "add", "")->in[0]));
    assert_true(is_last(net_find(g, "mul", "")->in[0])); /* a scalar has no layout */
    tutti_graph_destroy(g);
}

/* Two halves joined along the channels, scaled for each channel, normalized as rows of channels. */
static tutti_graph *joined_net(void) {
    const tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 1};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_image(g, 3), *a = tutti_max_pool2d(g, x, 2),
                *b = tutti_avg_pool2d(g, x, 2);
    tutti_value *c = tutti_param(g, "c", &TUTTI_SHAPE(6, 1, 1), &normal, true);
    tutti_value *y = tutti_mul(g, tutti_concat(g, (tutti_value *[]){a, b}, 2, 1), c);
    const int to_rows[] = {0, 2, 3, 1}, to_planes[] = {0, 3, 1, 2};
    y = tutti_layer_norm(g, tutti_permute(g, y, to_rows, 4), NULL, "norm");
    y = tutti_mul(g, tutti_permute(g, y, to_planes, 4), c);
    y = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, y, 1, 1));
    return net_finish(g, tutti_linear(g, y, NET_CLASSES, "out"));
}

T_CASE(with_strides_only_the_image_is_turned) {
    T_UNUSED;
    tutti_graph *g = joined_net(), *plain = joined_net();
    T_OK(tti_pipeline_run(&plain, &net_plain, "layout"));
    T_OK(tti_pipeline_run(&g, &strided, "layout"));
    T_EQ(net_count_ops(g, "to_layout"), 1);
    T_EQ(net_count_ops(g, "transpose"), 0);
    T_EQ(net_count_ops(g, "permute_view"), 4); /* two, and their gradients */
    assert_true(is_last(net_find(g, "concat", "")->out[0]));
    assert_true(is_last(net_find(g, "mul", "")->out[0]));
    assert_false(is_last(net_find(g, "sum_to", "")->out[0]));
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

T_CASE(a_transposed_weight_stays_plain) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    const int to_planes[] = {0, 3, 1, 2};
    const tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 1};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(4, 3, 3, 3), &normal, true);
    w = tutti_permute(g, w, to_planes, 4);
    tutti_output(g, "y", tutti_conv2d_of(g, net_image(g, 3), w, NULL, NULL));
    T_OK(tutti_graph_check(g));
    T_OK(tti_pass_layout(&g, &strided));
    assert_false(is_last(net_find(g, "conv2d", "")->in[1]));
    tutti_graph_destroy(g);
}

T_CASE(the_graph_stays_unless_requested) {
    T_UNUSED;
    tutti_graph *plain = net_lenet_of(true, 3), *g = net_lenet_of(true, 3), *before = g;
    T_OK(tti_pass_layout(&g, &net_plain));
    assert_ptr_equal(g, before);
    T_OK(tti_pass_autodiff(&plain, &net_plain));
    T_OK(tti_pipeline_run(&g, &turning, "layout"));
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_turned_inside_a_chain_of_convolutions),
        cmocka_unit_test(one_channel_is_the_same_bytes),
        cmocka_unit_test(the_way_back_is_turned_once),
        cmocka_unit_test(a_value_is_turned_once_for_all_its_readers),
        cmocka_unit_test(random_and_broadcast_readers_see_plain_bytes),
        cmocka_unit_test(with_strides_only_the_image_is_turned),
        cmocka_unit_test(a_transposed_weight_stays_plain),
        cmocka_unit_test(the_graph_stays_unless_requested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

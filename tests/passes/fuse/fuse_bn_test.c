/* fuse_bn_test.c - what the gradients of batch norms after a relu read, and that the results stay.
 */
#include "passes/nets.h"

static const tti_target joint = {
    .prefers_channels_last = net_likes_channels_last, .fuse = true, .fuse_batch_norm = true};

static const tti_node *gradient(const tutti_graph *g, const char *op, const char *name) {
    const tti_node *node = net_find(g, op, name);
    assert_non_null(node);
    return node;
}

/* bn1's and bn3's shortcut, and bn2's batch norm in it, want the masked gradient: it comes with the
 * sums, where two gradients meet added there.  bn0's mask is made again from what it normalises. */
T_CASE(masked_gradients_come_with_their_sums) {
    T_UNUSED;
    for (int sync = 0; sync < 2; sync++) {
        tutti_graph *plain = net_blocks(true, sync), *g = net_blocks(true, sync);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &joint, "fuse"));
        T_EQ(net_count_ops(plain, "bn_grad_sums"), 5);
        T_EQ(net_count_ops(g, "bn_grad_join"), 3);
        T_EQ(net_count_ops(g, "bn_grad_sums"), 2);
        T_EQ(net_count_ops(g, "relu_grad"), 0);
        T_EQ(gradient(g, "bn_grad_join", "bn3")->n_in, 5); /* the last block: nothing to add */
        T_EQ(gradient(g, "bn_grad_join", "bn1")->n_in, 6);
        T_EQ(gradient(g, "bn_grad_join", "down2")->n_in, 6);
        T_EQ(gradient(g, "bn_grad_sums", "bn2")->n_in, 4);
        const tti_node *join = gradient(g, "bn_grad_join", "bn1");
        T_EQ(join->out[0]->layout, join->in[0]->layout);
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

T_CASE(a_mask_is_made_again_from_what_was_normalised) {
    T_UNUSED;
    tutti_graph *g = net_blocks(true, false);
    T_OK(tti_pipeline_run(&g, &joint, "fuse"));
    const tti_node *norm = gradient(g, "bn_apply", "bn0");
    const tti_node *sums = gradient(g, "bn_grad_sums", "bn0");
    const tti_node *dx = gradient(g, "bn_grad_apply", "bn0");
    T_EQ(sums->n_in, 6);
    assert_ptr_equal(sums->in[4], norm->in[2]);
    assert_ptr_equal(sums->in[5], norm->in[3]);
    T_EQ(dx->n_in, 7);
    assert_ptr_equal(dx->in[6], norm->in[3]);
    T_EQ(dx->out[0]->layout, sums->in[0]->layout);
    tutti_graph_destroy(g);
}

T_CASE(two_batch_norms_that_meet_are_one_node) {
    T_UNUSED;
    tutti_graph *g = net_blocks(true, false);
    T_OK(tti_pipeline_run(&g, &joint, "fuse"));
    T_EQ(net_count_ops(g, "bn_apply_pair"), 1);
    T_EQ(net_count_ops(g, "bn_apply"), 3); /* bn0, bn1, bn3 */
    const tti_node *pair = gradient(g, "bn_apply_pair", "bn2");
    T_EQ(tti_attr_int(pair, "relu"), 1);
    T_EQ(pair->out[0]->layout, pair->in[0]->layout);
    tutti_graph_destroy(g);
}

/* Channels that fill whole bytes: bn1, bn3 and bn2 with its shortcut record where they are above 0.
 */
T_CASE(joins_read_bits) {
    T_UNUSED;
    for (int sync = 0; sync < 2; sync++) {
        tutti_graph *plain = net_blocks_of(8, true, sync), *g = net_blocks_of(8, true, sync);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &joint, "fuse"));
        T_EQ(net_count_ops(g, "bn_apply_mask"), 3);
        T_EQ(net_count_ops(g, "bn_apply_pair"), 0);
        T_EQ(net_count_ops(g, "bn_apply"), 1); /* bn0 */
        T_EQ(gradient(g, "bn_apply_mask", "bn2")->n_in, 8);
        static const char *const names[] = {"bn1", "bn3", "down2"}, *const made[] = {"bn1", "bn3",
                                                                                     "bn2"};
        for (int i = 0; i < 3; i++) {
            const tti_node *join = gradient(g, "bn_grad_join", names[i]);
            const tti_node *norm = gradient(g, "bn_apply_mask", made[i]);
            assert_ptr_equal(join->in[1], norm->out[1]);
            T_EQ(join->in[1]->type.dtype, TUTTI_U8);
            T_EQ(join->in[1]->layout, norm->out[0]->layout);
        }
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

/* x -> bn -> conv 1x1 -> bn -> conv 3x3 -> bn -> conv 1x1 -> bn + x */
static tutti_graph *bottleneck(int64_t n_channels) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc point = {.n_out = n_channels, .kernel = 1, .no_bias = true};
    tutti_conv2d_desc wide = {.n_out = n_channels, .kernel = 3, .pad = 1, .no_bias = true};
    tutti_value *x = tutti_conv2d(g, net_image(g, 2), &wide, "conv0");
    tutti_value *y = x = tutti_batch_norm2d(g, x, NULL, "bn0");
    const tutti_conv2d_desc *const convs[] = {&point, &wide, &point};
    for (int i = 0; i < 3; i++) {
        char names[2][16];
        snprintf(names[0], sizeof names[0], "conv%d", i + 1);
        snprintf(names[1], sizeof names[1], "bn%d", i + 1);
        y = tutti_batch_norm2d(g, tutti_conv2d(g, y, convs[i], names[0]), NULL, names[1]);
        if (i < 2) y = tutti_relu(g, y);
    }
    y = tutti_relu(g, tutti_add(g, y, x));
    y = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, y, 1, 1));
    return net_finish(g, tutti_linear(g, y, NET_CLASSES, "out"));
}

static int n_conv_stats(int64_t n_channels, tutti_dtype dtype, bool compare) {
    tti_target split = net_plain, fused = joint;
    split.compute_dtype = fused.compute_dtype = dtype;
    tutti_graph *plain = bottleneck(n_channels), *g = bottleneck(n_channels);
    T_OK(tti_pipeline_run(&plain, &split, "split"));
    T_OK(tti_pipeline_run(&g, &fused, "fuse"));
    int n = net_count_ops(g, "conv2d_stats");
    T_EQ(net_count_ops(g, "bn_stats") + n, 4);
    if (compare) net_expect_equal(plain, g);
    const tti_node *node = net_find(g, "conv2d_stats", "conv3");
    if (n > 0) T_EQ(node->out[0]->layout, node->in[0]->layout);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
    return n;
}

T_CASE(point_convolutions_output_statistics) {
    T_UNUSED;
    T_EQ(n_conv_stats(8, TUTTI_BF16, true), 2);
    T_EQ(n_conv_stats(8, TUTTI_F32, true), 0);
    T_EQ(n_conv_stats(4, TUTTI_BF16, false), 0);
}

static bool of_even_channels(const tti_node *grad_x, bool keeps) {
    return !keeps && grad_x->out[0]->type.shape.dim[1] % 2 == 0;
}
static bool of_four_channels(const tti_node *grad_x, bool keeps) {
    return keeps && grad_x->out[0]->type.shape.dim[1] == 4;
}
static bool never(const tti_node *grad_x, bool keeps) {
    (void)keeps;
    T_EQ(grad_x->in[1]->type.shape.dim[2], 1); /* asked about 1x1 convolutions only */
    return false;
}

/* A plane of 3x3 for a 1x1 convolution that has padding and a stride, and so results as large. */
static tutti_value *small_image(tutti_graph *g, tutti_conv2d_desc *down) {
    down->pad = 1, down->stride = 2;
    return tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, 2, 3, 3));
}

enum { PADDED = -1 }; /* in place of a kernel */

/* x -> bn -> relu -> two bottlenecks */
static tutti_graph *two_bottlenecks(int64_t n_channels, int64_t kernel) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc first = {.n_out = n_channels, .kernel = 3, .pad = 1, .no_bias = true};
    tutti_conv2d_desc down = {.n_out = 4, .kernel = kernel, .pad = kernel / 2, .no_bias = true};
    tutti_conv2d_desc up = {.n_out = n_channels, .kernel = 1, .no_bias = true};
    if (kernel == PADDED) down.kernel = 1;
    tutti_value *x = kernel == PADDED ? small_image(g, &down) : net_image(g, 2);
    x = tutti_conv2d(g, x, &first, "conv");
    x = tutti_relu(g, tutti_batch_norm2d(g, x, NULL, "bn"));
    for (int i = 0; i < 2; i++) {
        char names[4][16];
        for (int k = 0; k < 4; k++)
            snprintf(names[k], sizeof names[k], "%s%d.%d", k % 2 ? "bn" : "conv", i, k / 2);
        tutti_value *y = tutti_conv2d(g, x, &down, names[0]);
        y = tutti_relu(g, tutti_batch_norm2d(g, y, NULL, names[1]));
        y = tutti_batch_norm2d(g, tutti_conv2d(g, y, &up, names[2]), NULL, names[3]);
        x = tutti_relu(g, tutti_add(g, y, x));
    }
    x = tutti_flatten(g, tutti_adaptive_avg_pool2d(g, x, 1, 1));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

/* How many products a network has that are joined as they are made. */
static int n_joined(int64_t n_channels, int64_t kernel, bool (*which)(const tti_node *, bool)) {
    tti_target fused = joint;
    fused.joins_gradient = which;
    tutti_graph *plain = two_bottlenecks(n_channels, kernel),
                *g = two_bottlenecks(n_channels, kernel);
    T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
    T_OK(tti_pipeline_run(&g, &fused, "fuse"));
    int n = net_count_ops(g, "conv2d_grad_join");
    T_EQ(net_count_ops(g, "bn_grad_join") + n, 2);
    net_expect_equal(plain, g);
    if (n > 0) {
        const tti_node *node = net_find(g, "conv2d_grad_join", "conv1.0");
        assert_non_null(node);
        T_EQ(node->out[0]->layout, node->in[0]->layout);
        T_EQ(node->in[1]->type.dtype, TUTTI_U8);
        assert_ptr_equal(node->in[0], net_find(g, "bn_apply_mask", "bn0.1")->in[0]);
        assert_null(net_find(g, "conv2d_grad_x", "conv1.0"));
    }
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
    return n;
}

/* The first block's input is no sum: its gradient has nothing to be joined with but its mask. */
T_CASE(point_gradients_are_joined_as_they_are_made) {
    T_UNUSED;
    T_EQ(n_joined(8, 1, of_even_channels), 1);
    T_EQ(n_joined(16, 1, of_even_channels), 1);
    T_EQ(n_joined(8, 1, never), 0);
    T_EQ(n_joined(8, 3, never), 0);
    T_EQ(n_joined(8, PADDED, never), 0);
    T_EQ(n_joined(8, PADDED, of_even_channels), 0);
    T_EQ(n_joined(8, 1, NULL), 0);
}

/* Inner batch norms, whose gradient is the output of a convolution with few channels. */
T_CASE(point_gradients_are_summed_as_they_are_made) {
    T_UNUSED;
    for (int kernel = 1; kernel <= 3; kernel += 2) {
        tti_target fused = joint;
        fused.joins_gradient = of_four_channels;
        tutti_graph *plain = two_bottlenecks(8, kernel), *g = two_bottlenecks(8, kernel);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &fused, "fuse"));
        T_EQ(net_count_ops(g, "conv2d_grad_sums"), 2);
        T_EQ(net_count_ops(g, "bn_grad_sums"), 1); /* bn's: after a join, or a 3x3 */
        net_expect_equal(plain, g);
        const tti_node *node = gradient(g, "conv2d_grad_sums", "conv1.1");
        const tti_node *dx = gradient(g, "bn_grad_apply", "bn1.0");
        T_EQ(node->out[0]->layout, node->in[0]->layout);
        assert_ptr_equal(dx->in[0], node->out[0]);
        assert_ptr_equal(dx->in[4], node->out[1]);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

T_CASE(nothing_is_done_unasked) {
    T_UNUSED;
    tutti_graph *g = net_blocks(true, false);
    T_OK(tti_pipeline_run(&g, &net_fast, "fuse"));
    T_EQ(net_count_ops(g, "bn_grad_join"), 0);
    T_EQ(net_count_ops(g, "bn_apply_pair"), 0);
    T_EQ(net_count_ops(g, "bn_apply_mask"), 0);
    T_EQ(gradient(g, "bn_grad_sums", "bn0")->n_in, 5);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masked_gradients_come_with_their_sums),
        cmocka_unit_test(a_mask_is_made_again_from_what_was_normalised),
        cmocka_unit_test(two_batch_norms_that_meet_are_one_node),
        cmocka_unit_test(joins_read_bits),
        cmocka_unit_test(point_convolutions_output_statistics),
        cmocka_unit_test(point_gradients_are_joined_as_they_are_made),
        cmocka_unit_test(point_gradients_are_summed_as_they_are_made),
        cmocka_unit_test(nothing_is_done_unasked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fuse_pool_test.c - which convolutions take the pooling after them, in which layout, and that the
 * results stay. */
#include "passes/nets.h"

static bool always(const tti_node *conv, bool tf32) {
    (void)conv;
    return tf32;
}

static const tti_target pooling = {.prefers_channels_last = net_likes_channels_last,
                                   .fuse = true,
                                   .fuses_pool = always,
                                   .tf32 = true};

static void expect_equal_after(tutti_graph *plain, tutti_graph *g) {
    T_OK(tti_graph_verify(g));
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

/* conv1's pooled values go on to conv2 as they lie, those of conv2 are flattened: plain bytes. */
T_CASE(both_of_lenet) {
    T_UNUSED;
    for (int64_t n_channels = 1; n_channels <= 3; n_channels += 2) {
        tutti_graph *plain = net_lenet_of(true, n_channels), *g = net_lenet_of(true, n_channels);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &pooling, "fuse"));
        T_EQ(net_count_ops(g, "conv2d_pool"), 2);
        T_EQ(net_count_ops(g, "conv2d_pool_grad_w"), 2);
        T_EQ(net_count_ops(g, "conv2d_pool_grad_x"), 1);
        T_EQ(net_count_ops(g, "max_pool2d") + net_count_ops(g, "max_pool2d_grad"), 0);
        T_EQ(net_count_ops(g, "conv2d") + net_count_ops(g, "conv2d_grad_w"), 0);
        T_EQ(net_count_ops(g, "relu_grad"), 1);                       /* fc1's */
        T_EQ(net_count_ops(g, "to_layout"), n_channels == 1 ? 0 : 1); /* of the image */
        T_EQ(net_find(g, "conv2d_pool", "conv1")->out[0]->layout, TTI_CHANNELS_LAST_BYTES);
        T_EQ(net_find(g, "conv2d_pool", "conv2")->out[0]->layout, TTI_PLAIN);
        T_EQ(net_find(g, "conv2d_pool", "conv2")->out[1]->layout, TTI_PLAIN);
        T_EQ(net_find(g, "conv2d_pool_grad_x", "conv2")->in[0]->layout, TTI_PLAIN);
        T_EQ(net_find(g, "conv2d_pool_grad_x", "conv2")->out[0]->layout, TTI_CHANNELS_LAST_BYTES);
        expect_equal_after(plain, g);
    }
}

T_CASE(evaluation_too) {
    T_UNUSED;
    tutti_graph *plain = net_lenet(false), *g = net_lenet(false);
    T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
    T_OK(tti_pipeline_run(&g, &pooling, "fuse"));
    T_EQ(net_count_ops(g, "conv2d_pool"), 2);
    T_EQ(net_count_ops(g, "to_layout"), 0);
    expect_equal_after(plain, g);
}

/* A convolution and a pooling of that size; loud: another node reads the value between them. */
static tutti_graph *one(int64_t kernel, bool relu, int64_t stride, bool loud) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc conv = {.n_out = 3, .kernel = 3, .pad = 1};
    tutti_value *y = tutti_conv2d(g, net_image(g, 2), &conv, "conv");
    if (relu) y = tutti_relu(g, y);
    tutti_value *x =
        tutti_max_pool2d_with(g, y, &(tutti_pool2d_desc){.kernel = kernel, .stride = stride});
    x = tutti_flatten(g, x);
    if (loud) x = tutti_concat(g, (tutti_value *[]){x, tutti_flatten(g, y)}, 2, 1);
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc"));
}

T_CASE(others_stay) {
    T_UNUSED;
    static const struct {
        int64_t kernel;
        bool relu;
        int64_t stride;
        bool loud;
        int n_fused;
    } cases[] = {{2, true, 2, false, 1},
                 {2, false, 2, false, 0},
                 {3, true, 2, false, 0},
                 {2, true, 1, false, 0},
                 {2, true, 2, true, 0}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        tutti_graph *plain = one(cases[i].kernel, cases[i].relu, cases[i].stride, cases[i].loud);
        tutti_graph *g = one(cases[i].kernel, cases[i].relu, cases[i].stride, cases[i].loud);
        T_OK(tti_pipeline_run(&plain, &net_plain, "split"));
        T_OK(tti_pipeline_run(&g, &pooling, "fuse"));
        T_EQ(net_count_ops(g, "conv2d_pool"), cases[i].n_fused);
        T_EQ(net_count_ops(g, "conv2d_pool_grad_w"), cases[i].n_fused);
        expect_equal_after(plain, g);
    }
}

/* The pooled values are read as they lie and turned: all of it stays in N,H,W,C. */
T_CASE(two_readers_of_what_is_pooled) {
    T_UNUSED;
    tutti_graph *pair[2];
    for (int i = 0; i < 2; i++) {
        tutti_graph *g = pair[i] = tutti_graph_create(true);
        tutti_conv2d_desc conv = {.n_out = 3, .kernel = 3, .pad = 1};
        tutti_value *y = tutti_relu(g, tutti_conv2d(g, net_image(g, 2), &conv, "conv"));
        tutti_value *p = tutti_max_pool2d(g, y, 2);
        tutti_value *both[2] = {tutti_flatten(g, p),
                                tutti_flatten(g, tutti_conv2d(g, p, &conv, "next"))};
        net_finish(g, tutti_linear(g, tutti_concat(g, both, 2, 1), NET_CLASSES, "fc"));
    }
    T_OK(tti_pipeline_run(&pair[0], &net_plain, "split"));
    T_OK(tti_pipeline_run(&pair[1], &pooling, "fuse"));
    const tti_node *pool = net_find(pair[1], "conv2d_pool", "conv");
    assert_non_null(pool);
    T_EQ(pool->out[0]->layout, TTI_CHANNELS_LAST_BYTES);
    T_EQ(net_find(pair[1], "conv2d_pool_grad_w", "conv")->in[0]->layout, TTI_CHANNELS_LAST_BYTES);
    expect_equal_after(pair[0], pair[1]);
}

T_CASE(only_where_it_is_asked_for) {
    T_UNUSED;
    tti_target target = pooling;
    for (int i = 0; i < 2; i++) {
        tutti_graph *g = net_lenet(true);
        if (i == 0)
            target.tf32 = false; /* what always() hears */
        else
            target.fuses_pool = NULL;
        T_OK(tti_pipeline_run(&g, &target, "fuse"));
        T_EQ(net_count_ops(g, "conv2d_pool"), 0);
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_of_lenet), cmocka_unit_test(evaluation_too),
        cmocka_unit_test(others_stay), cmocka_unit_test(two_readers_of_what_is_pooled),
        cmocka_unit_test(only_where_it_is_asked_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fuse_bn_pool_test.c - which poolings take the batch norm in front of them, and that results stay.
 */
#include "passes/nets.h"

static const tti_target joint = {
    .prefers_channels_last = net_likes_channels_last, .fuse = true, .fuse_batch_norm = true};

/* x -> bn -> relu -> a pooling */
static tutti_graph *pooled_stem(int64_t kernel, int64_t n_channels) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc first = {.n_out = n_channels, .kernel = 3, .pad = 1, .no_bias = true};
    tutti_pool2d_desc pool = {.kernel = kernel, .stride = 2, .pad = kernel / 2};
    tutti_value *x = tutti_conv2d(g, net_image(g, 2), &first, "conv");
    x = tutti_relu(g, tutti_batch_norm2d(g, x, NULL, "bn"));
    x = tutti_adaptive_avg_pool2d(g, tutti_max_pool2d_with(g, x, &pool), 1, 1);
    return net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "out"));
}

static int n_pooled(int64_t kernel, int64_t n_channels, tutti_dtype dtype) {
    tti_target split = net_plain, fused = joint;
    split.compute_dtype = fused.compute_dtype = dtype;
    tutti_graph *plain = pooled_stem(kernel, n_channels), *g = pooled_stem(kernel, n_channels);
    T_OK(tti_pipeline_run(&plain, &split, "split"));
    T_OK(tti_pipeline_run(&g, &fused, "fuse"));
    int n = net_count_ops(g, "bn_apply_pool");
    T_EQ(net_count_ops(g, "bn_apply") + n, 1);
    T_EQ(net_count_ops(g, "max_pool2d") + n, 1);
    const char *const after[] = {"relu_grad", "max_pool2d_grad", "bn_grad_sums", "bn_grad_apply"};
    for (int i = 0; n > 0 && i < 4; i++) T_EQ(net_count_ops(g, after[i]), 0);
    T_EQ(net_count_ops(g, "bn_pool_grad_sums"), n);
    T_EQ(net_count_ops(g, "bn_pool_grad_apply"), n);
    net_expect_equal(plain, g);
    const tti_node *node = net_find(g, "bn_apply_pool", "bn");
    if (n > 0) T_EQ(node->out[0]->layout, node->in[0]->layout);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
    return n;
}

T_CASE(what_is_pooled_is_normalised_there) {
    T_UNUSED;
    T_EQ(n_pooled(3, 8, TUTTI_BF16), 1);
    T_EQ(n_pooled(3, 8, TUTTI_F32), 0);
    T_EQ(n_pooled(3, 4, TUTTI_BF16), 0);
    T_EQ(n_pooled(2, 8, TUTTI_BF16), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_pooled_is_normalised_there)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

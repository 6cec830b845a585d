/* sink_mask_test.c - which masks go after the gradient of a max pooling, and the same results. */
#include "passes/nets.h"

/* A relu in front of a pooling whose windows overlap; after_relu: another node reads the relu's
 * result too, so that its gradient is a sum. */
static tutti_graph *pooled(int64_t stride, bool after_relu) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_conv2d_desc conv = {.n_out = 3, .kernel = 3, .pad = 1};
    tutti_value *y = tutti_relu(g, tutti_conv2d(g, net_image(g, 2), &conv, "conv"));
    tutti_value *p =
        tutti_max_pool2d_with(g, y, &(tutti_pool2d_desc){.kernel = 3, .stride = stride, .pad = 1});
    tutti_value *x = tutti_flatten(g, p);
    if (after_relu) x = tutti_concat(g, (tutti_value *[]){x, tutti_flatten(g, y)}, 2, 1);
    net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc"));
    T_OK(tti_pass_autodiff(&g, &net_plain));
    return g;
}

static int n_masked_poolings(const tutti_graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool mask = strcmp(node->op->name, "relu_grad") == 0;
        n += mask && strcmp(node->in[1]->node->op->name, "max_pool2d_grad") == 0;
    }
    return n;
}

T_CASE(a_mask_goes_after_the_pooling) {
    T_UNUSED;
    for (int64_t stride = 1; stride <= 3; stride++) {
        tutti_graph *plain = pooled(stride, false), *g = pooled(stride, false);
        T_EQ(n_masked_poolings(g), 1);
        T_OK(tti_sink_masks(&g));
        T_OK(tti_graph_verify(g));
        T_EQ(n_masked_poolings(g), 0);
        T_EQ(net_count_ops(g, "relu_grad"), 1);
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

T_CASE(a_gradient_with_other_parts_keeps_its_mask) {
    T_UNUSED;
    tutti_graph *plain = pooled(2, true), *g = pooled(2, true);
    T_OK(tti_sink_masks(&g));
    T_EQ(net_count_ops(g, "max_pool2d_grad"), 1);
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, "max_pool2d_grad") == 0)
            assert_string_not_equal(g->nodes[i]->in[0]->node->op->name, "relu_grad");
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_goes_after_the_pooling),
        cmocka_unit_test(a_gradient_with_other_parts_keeps_its_mask)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* fuse_linear_test.c - what goes into the products before it, what does not, the same results. */
#include "passes/nets.h"

static const tti_target plain = {.compute_dtype = TUTTI_F32};
static const tti_target joint = {
    .fuse = true, .fuse_linear_grad = true, .compute_dtype = TUTTI_F32};
static const tti_target joint_bf16 = {
    .fuse = true, .fuse_linear_grad = true, .compute_dtype = TUTTI_BF16};

static tutti_value *act(tutti_graph *g, tutti_value *x, bool by_tanh) {
    return by_tanh ? tutti_gelu_tanh(g, x) : tutti_gelu(g, x);
}

/* Two residual blocks and a head, as in a transformer; the input has a gradient of two terms. */
static tutti_graph *blocks(bool by_tanh) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 6, "in");
    x = tutti_add(g, x, tutti_linear(g, act(g, tutti_linear(g, x, 8, "fc0"), by_tanh), 6, "out0"));
    tutti_value *y = act(g, tutti_linear(g, x, 8, "fc1"), by_tanh);
    x = tutti_add(g, tutti_linear(g, y, 6, "out1"), x);
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "head"));
}

static tutti_graph *after_fuse(tutti_graph *g, const tti_target *target) {
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, target, "fuse"));
    return g;
}

T_CASE(gelu_and_residuals_go_into_their_products) {
    T_UNUSED;
    tutti_graph *before = after_fuse(blocks(true), &plain), *g = after_fuse(blocks(true), &joint);
    T_EQ(net_count_ops(before, "gelu"), 2);
    T_EQ(net_count_ops(before, "gelu_grad"), 2);
    T_EQ(net_count_ops(g, "gelu"), 0);
    T_EQ(net_count_ops(g, "gelu_grad"), 0);
    T_EQ(net_count_ops(g, "linear_gelu"), 2);
    T_EQ(net_count_ops(g, "matmul_gelu_grad"), 2);
    T_EQ(net_count_ops(g, "linear_add"), 2); /* from either side of the addition */
    T_EQ(net_find(g, "linear_add", "out1")->n_in, 4);
    T_EQ(net_count_ops(g, "matmul_add"), 2); /* the gradients of both residuals */
    T_EQ(net_count_ops(g, "add"), 0);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(an_exact_gelu_stays) {
    T_UNUSED;
    tutti_graph *before = after_fuse(blocks(false), &plain), *g = after_fuse(blocks(false), &joint);
    T_EQ(net_count_ops(g, "gelu"), 2);
    T_EQ(net_count_ops(g, "linear_gelu"), 0);
    T_EQ(net_count_ops(g, "matmul_gelu_grad"), 0);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

static bool any_product(const tti_node *product) {
    return strcmp(product->op->name, "linear") == 0 || strcmp(product->op->name, "matmul") == 0;
}

static void expect_exact(const tutti_graph *g, const char *op) {
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, op) == 0)
            T_EQ(tti_attr_int(g->nodes[i], "approximate"), 0);
}

T_CASE(an_exact_gelu_goes_where_the_backend_says_so) {
    T_UNUSED;
    tti_target requested = joint;
    requested.joins_exact_gelu = any_product;
    tutti_graph *before = after_fuse(blocks(false), &plain),
                *g = after_fuse(blocks(false), &requested);
    T_EQ(net_count_ops(g, "gelu"), 0);
    T_EQ(net_count_ops(g, "gelu_grad"), 0);
    T_EQ(net_count_ops(g, "linear_gelu"), 2);
    T_EQ(net_count_ops(g, "matmul_gelu_grad"), 2);
    expect_exact(g, "linear_gelu");
    expect_exact(g, "matmul_gelu_grad");
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(nothing_is_joined_unless_requested) {
    T_UNUSED;
    tutti_graph *g = after_fuse(blocks(true), &(tti_target){.fuse = true});
    T_EQ(net_count_ops(g, "linear_gelu"), 0);
    T_EQ(net_count_ops(g, "linear_add"), 0);
    T_EQ(net_count_ops(g, "gelu_grad"), 2);
    tutti_graph_destroy(g);
}

static bool is_linear(const tti_node *product) { return strcmp(product->op->name, "linear") == 0; }

T_CASE(a_backend_may_pick_its_products) {
    T_UNUSED;
    tti_target some = joint;
    some.joins_products = is_linear;
    tutti_graph *before = after_fuse(blocks(true), &plain), *g = after_fuse(blocks(true), &some);
    T_EQ(net_count_ops(g, "linear_gelu"), 2);
    T_EQ(net_count_ops(g, "linear_add"), 2);
    T_EQ(net_count_ops(g, "gelu_grad"), 2);
    T_EQ(net_count_ops(g, "matmul_gelu_grad"), 0);
    T_EQ(net_count_ops(g, "matmul_add"), 0);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(gradients_of_weights_in_16_bits_come_out_wide) {
    T_UNUSED;
    tutti_graph *g = after_fuse(blocks(true), &joint_bf16);
    T_EQ(net_count_ops(g, "linear_gelu"), 2);
    T_EQ(net_count_ops(g, "linear_grad_w"), 0);
    T_EQ(net_count_ops(g, "linear_grad_w_wide"), 6);
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (strcmp(node->op->name, "linear_grad_w_wide") != 0) continue;
        T_EQ(node->in[0]->type.dtype, TUTTI_BF16);
        T_EQ(node->out[0]->type.dtype, TUTTI_F32);
        T_EQ(node->out[1]->type.dtype, TUTTI_F32);
    }
    tti_node *w = tti_graph_find_source(g, "fc0.weight");
    tutti_value *dw = tti_graph_output(g, "grad.fc0.weight");
    assert_non_null(w);
    assert_string_equal(dw->node->op->name, "linear_grad_w_wide");
    tutti_graph_destroy(g);
}

/* Without rounding, as the references compute, the bf16 graph is the f32 graph. */
T_CASE(in_16_bits_the_meaning_stays) {
    T_UNUSED;
    tutti_graph *before = after_fuse(blocks(true), &plain);
    tutti_graph *g = after_fuse(blocks(true), &joint_bf16);
    net_expect_equal(before, g);
    for (int i = 0; i < before->n_outputs; i++)
        T_EQ(tti_graph_output(g, before->outputs[i].name)->type.dtype,
             before->outputs[i].value->type.dtype);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

/* a x w + later, where `later` is made after the product: joining would make a x w wait. */
T_CASE(nothing_waits_for_what_comes_later) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(6, 6), &init, true);
    tutti_value *first = tutti_matmul(g, net_x(g), w);
    tutti_value *later = tutti_tanh(g, tutti_mul(g, w, w));
    tutti_value *y = tutti_add(g, first, tutti_slice(g, later, 0, 0, NET_ROWS));
    tutti_output(g, "y", y);
    T_OK(tutti_graph_check(g));
    T_OK(tti_fuse_linear(&g, &joint));
    T_OK(tti_graph_verify(g));
    T_EQ(net_count_ops(g, "matmul"), 1);
    T_EQ(net_count_ops(g, "add"), 1);
    tutti_graph_destroy(g);
}

/* A value that is an output, or has other readers, stays as it is. */
T_CASE(what_others_read_stays) {
    T_UNUSED;
    for (int as_output = 0; as_output < 2; as_output++) {
        tutti_graph *g = tutti_graph_create(true);
        tutti_value *x = net_x(g), *y = tutti_linear(g, x, 6, "fc");
        tutti_value *sum = tutti_add(g, x, y);
        tutti_output(g, "sum", sum);
        tutti_output(g, "other", as_output ? y : tutti_tanh(g, y));
        T_OK(tutti_graph_check(g));
        T_OK(tti_fuse_linear(&g, &joint));
        T_OK(tti_graph_verify(g));
        T_EQ(net_count_ops(g, "linear"), 1);
        T_EQ(net_count_ops(g, "add"), 1);
        tutti_graph_destroy(g);
    }
}

/* z alone, without another reader, needs no second output: as it is when a graph is evaluated. */
T_CASE(a_gelu_whose_input_nobody_keeps_stays) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_output(g, "y", tutti_gelu_tanh(g, tutti_linear(g, net_x(g), 8, "fc")));
    T_OK(tutti_graph_check(g));
    T_OK(tti_fuse_linear(&g, &joint));
    T_EQ(net_count_ops(g, "gelu"), 1);
    tutti_graph_destroy(g);
}

/* The sum of a wide product and an f32 value is one op too. */
T_CASE(a_wide_product_takes_an_addition) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g), *low = tutti_cast(g, x, TUTTI_BF16);
    tutti_value *c = tutti_input(g, "c", TUTTI_F32, &TUTTI_SHAPE(6, 6));
    tutti_value *y = tutti_cast(g, tutti_matmul_with(g, low, low, true, false), TUTTI_F32);
    tutti_output(g, "y", tutti_add(g, c, y));
    T_OK(tutti_graph_check(g));
    T_OK(tti_fuse_linear(&g, &joint));
    T_OK(tti_graph_verify(g));
    const tti_node *node = tti_graph_output(g, "y")->node;
    assert_string_equal(node->op->name, "matmul_add");
    T_EQ(tti_attr_int(node, "trans_a"), 1);
    T_EQ(node->in[0]->type.dtype, TUTTI_BF16);
    T_EQ(node->out[0]->type.dtype, TUTTI_F32);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_and_residuals_go_into_their_products),
        cmocka_unit_test(an_exact_gelu_stays),
        cmocka_unit_test(an_exact_gelu_goes_where_the_backend_says_so),
        cmocka_unit_test(nothing_is_joined_unless_requested),
        cmocka_unit_test(a_backend_may_pick_its_products),
        cmocka_unit_test(gradients_of_weights_in_16_bits_come_out_wide),
        cmocka_unit_test(in_16_bits_the_meaning_stays),
        cmocka_unit_test(nothing_waits_for_what_comes_later),
        cmocka_unit_test(what_others_read_stays),
        cmocka_unit_test(a_gelu_whose_input_nobody_keeps_stays),
        cmocka_unit_test(a_wide_product_takes_an_addition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

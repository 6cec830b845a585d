/* fuse_norm_test.c - what becomes one with a layer norm, what does not, the same results. */
#include "passes/nets.h"

static const tti_target plain = {.compute_dtype = TUTTI_F32};
static const tti_target joint = {
    .fuse = true, .fuse_residual_norm = true, .compute_dtype = TUTTI_F32};
static const tti_target joint_bf16 = {
    .fuse = true, .fuse_residual_norm = true, .compute_dtype = TUTTI_BF16};

static bool no_product(const tti_node *product) { return product == NULL; }

static tutti_value *normed(tutti_graph *g, tutti_value *x, bool has_bias, const char *name) {
    return tutti_layer_norm(g, x, &(tutti_norm_desc){.no_bias = !has_bias}, name);
}

/* A residual stream with three norms, as in a transformer; one branch is the first term.  The input
 * keeps the stream in f32 under mixed precision. */
static tutti_graph *stream(void) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *at = tutti_param(g, "at", &TUTTI_SHAPE(6), NULL, false);
    tutti_value *x = tutti_add(g, net_x(g), at);
    x = tutti_add(g, x, tutti_linear(g, normed(g, x, true, "ln0"), 6, "fc0"));
    x = tutti_add(g, tutti_linear(g, normed(g, x, false, "ln1"), 6, "fc1"), x);
    return net_finish(g, tutti_linear(g, normed(g, x, true, "ln2"), NET_CLASSES, "head"));
}

static tutti_graph *after_fuse(tutti_graph *g, const tti_target *target) {
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, target, "fuse"));
    return g;
}

T_CASE(norms_take_the_additions_beside_them) {
    T_UNUSED;
    tutti_graph *before = after_fuse(stream(), &plain), *g = after_fuse(stream(), &joint);
    T_EQ(net_count_ops(before, "layer_norm"), 3);
    T_EQ(net_count_ops(before, "layer_norm_grad_x"), 3);
    T_EQ(net_count_ops(g, "layer_norm"), 1); /* the first, after an addition of another shape */
    T_EQ(net_count_ops(g, "add_layer_norm"), 2);
    T_EQ(net_find(g, "add_layer_norm", "ln1")->n_in, 3); /* no bias */
    T_EQ(net_find(g, "add_layer_norm", "ln2")->n_in, 4);
    T_EQ(net_count_ops(g, "layer_norm_grad_x"), 0);
    T_EQ(net_count_ops(g, "layer_norm_grad_w"), 0);
    T_EQ(net_count_ops(g, "layer_norm_grads"), 3);
    T_EQ(net_find(g, "layer_norm_grads", "ln2")->n_in, 5); /* dx begins the stream */
    T_EQ(net_find(g, "layer_norm_grads", "ln1")->n_in, 6);
    T_EQ(net_find(g, "layer_norm_grads", "ln0")->n_in, 6);
    T_EQ(net_count_ops(g, "add"), 1);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(casts_go_with_them) {
    T_UNUSED;
    tutti_graph *before = after_fuse(stream(), &(tti_target){.compute_dtype = TUTTI_BF16});
    tutti_graph *g = after_fuse(stream(), &joint_bf16);
    const tti_node *norm = net_find(g, "add_layer_norm", "ln1");
    T_EQ(norm->in[0]->type.dtype, TUTTI_F32);
    T_EQ(norm->in[1]->type.dtype, TUTTI_BF16);
    T_EQ(norm->out[0]->type.dtype, TUTTI_BF16);
    T_EQ(norm->out[1]->type.dtype, TUTTI_F32);
    norm = net_find(g, "add_layer_norm", "ln2"); /* whose branch is the first term */
    T_EQ(norm->in[0]->type.dtype, TUTTI_F32);
    T_EQ(norm->in[1]->type.dtype, TUTTI_BF16);
    T_EQ(net_count_ops(g, "layer_norm_grads_cast"), 2);
    T_EQ(net_count_ops(g, "layer_norm_grads"),
         1); /* the first norm's gradient is not read in 16 bits */
    const tti_node *grads = net_find(g, "layer_norm_grads_cast", "ln1");
    T_EQ(grads->in[0]->type.dtype, TUTTI_BF16);
    T_EQ(grads->in[5]->type.dtype, TUTTI_F32);
    T_EQ(grads->out[0]->type.dtype, TUTTI_F32);
    T_EQ(grads->out[3]->type.dtype, TUTTI_BF16);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

/* The sum is read before the norm is there, so it cannot be made by the norm. */
T_CASE(a_sum_that_is_read_before_stays) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 6, "in");
    tutti_value *sum = tutti_add(g, x, tutti_relu(g, x)), *read = tutti_relu(g, sum);
    tutti_output(g, "y", tutti_matmul_with(g, normed(g, sum, true, "ln"), read, false, true));
    T_OK(tutti_graph_check(g));
    T_OK(tti_pass_fuse(&g, &joint));
    T_EQ(net_count_ops(g, "add_layer_norm"), 0);
    T_EQ(net_count_ops(g, "layer_norm"), 1);
    tutti_graph_destroy(g);
}

/* x and a layer of it, by way of an activation or not, whose sum a norm reads. */
static tutti_graph *residual(bool acts, bool twice, tutti_dtype dtype) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", dtype, &TUTTI_SHAPE(4, 6));
    tutti_value *w = tutti_input(g, "w", dtype, &TUTTI_SHAPE(6, 6));
    tutti_value *y = tti_emit(g, "linear", "fc", (tutti_value *[]){x, w}, 2, NULL);
    if (acts) y = tutti_relu(g, y);
    if (twice) tutti_output(g, "branch", y);
    tutti_value *to[] = {tutti_add(g, x, y), tutti_input(g, "scale", TUTTI_F32, &TUTTI_SHAPE(6))};
    tutti_output(g, "y", tti_emit(g, "layer_norm", "ln", to, 2, NULL));
    return g;
}

static void expect_where(tutti_graph *g, const tti_target *target, int in_product, int in_norm) {
    T_OK(tutti_graph_check(g));
    T_OK(tti_pass_fuse(&g, target));
    T_EQ(net_count_ops(g, "linear_add"), in_product);
    T_EQ(net_count_ops(g, "add_layer_norm"), in_norm);
    T_EQ(net_count_ops(g, "add"), 0);
    tutti_graph_destroy(g);
}

/* Wherever one of the two can take the sum, one does. */
T_CASE(a_product_that_can_adds_before_the_norm) {
    T_UNUSED;
    tti_target both = joint, some;
    both.fuse_linear_grad = true;
    some = both;
    some.joins_products = no_product;
    expect_where(residual(false, false, TUTTI_BF16), &both, 1, 0);
    expect_where(residual(false, false, TUTTI_BF16), &joint, 0, 1);
    expect_where(residual(false, false, TUTTI_BF16), &some, 0, 1);
    expect_where(residual(false, false, TUTTI_F32), &both, 0, 1);
    expect_where(residual(false, true, TUTTI_BF16), &both, 0, 1);
    expect_where(residual(true, false, TUTTI_BF16), &both, 0, 1);
}

T_CASE(nothing_is_joined_unless_requested) {
    T_UNUSED;
    tutti_graph *g = after_fuse(stream(), &(tti_target){.fuse = true});
    T_EQ(net_count_ops(g, "add_layer_norm"), 0);
    T_EQ(net_count_ops(g, "layer_norm_grads"), 0);
    T_EQ(net_count_ops(g, "layer_norm"), 3);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_take_the_additions_beside_them),
        cmocka_unit_test(casts_go_with_them),
        cmocka_unit_test(a_sum_that_is_read_before_stays),
        cmocka_unit_test(a_product_that_can_adds_before_the_norm),
        cmocka_unit_test(nothing_is_joined_unless_requested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

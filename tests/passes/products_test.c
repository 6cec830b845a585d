/* products_test.c - which layers become one, which stay, and the same results. */
#include "passes/nets.h"

static const tti_target apart = {.compute_dtype = TUTTI_F32};
static const tti_target joint = {.fuse = true, .compute_dtype = TUTTI_F32};
static const tti_target joint_bf16 = {
    .fuse = true, .fuse_linear_grad = true, .compute_dtype = TUTTI_BF16};

enum { WIDTH = 6 };

typedef struct requested {
    int64_t n_positions; /* a row has so many */
    int64_t axis;        /* of the concat */
    bool no_bias, one_without, read_again, other_input;
} requested;

static tutti_value *layer(tutti_graph *g, tutti_value *x, int64_t n_out, bool no_bias,
                          const char *name) {
    return tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = n_out, .no_bias = no_bias}, name);
}

/* Three layers of one value, of different widths, joined; then a layer that reads all. */
static tutti_graph *three(const requested *w) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), w->n_positions * WIDTH, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, w->n_positions, WIDTH));
    int64_t same = w->axis == 2 ? 0 : 1; /* elsewhere widths have to be equal */
    tutti_value *parts[] = {
        layer(g, x, 4, w->no_bias, "q"),
        layer(g, w->other_input ? tutti_tanh(g, x) : x, same ? 4 : 3, w->no_bias, "k"),
        layer(g, x, same ? 4 : 5, w->no_bias || w->one_without, "v")};
    tutti_value *y = tutti_concat(g, parts, 3, (int)w->axis);
    y = tutti_flatten(g, tutti_tanh(g, y));
    if (w->read_again) y = tutti_concat(g, (tutti_value *[]){y, tutti_flatten(g, parts[1])}, 2, 1);
    return net_finish(g, tutti_linear(g, y, NET_CLASSES, "out"));
}

static tutti_graph *after(tutti_graph *g, const tti_target *target, const char *pass) {
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, target, pass));
    return g;
}

/* Layers that stay when w is asked for; the results are the same in any case. */
static int n_layers(const requested *w) {
    tutti_graph *before = after(three(w), &apart, "autodiff");
    tutti_graph *g = after(three(w), &joint, "autodiff");
    int n = net_count_ops(g, "linear");
    T_EQ(net_count_ops(before, "linear"), 5);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
    return n;
}

T_CASE(layers_that_are_joined_are_one) {
    T_UNUSED;
    T_EQ(n_layers(&(requested){.n_positions = 2, .axis = 2}), 3);
    T_EQ(n_layers(&(requested){.n_positions = 2, .axis = 2, .no_bias = true}), 3);
}

T_CASE(their_gradients_are_one_product_each) {
    T_UNUSED;
    const requested w = {.n_positions = 2, .axis = 2};
    tutti_graph *g = after(three(&w), &joint_bf16, "fuse");
    const tti_node *dw = tti_graph_output(g, "grad.q.weight")->node;
    T_EQ(net_count_ops(g, "linear"), 3);
    T_EQ(net_count_ops(g, "linear_grad_w_wide"), 3); /* of embed, of the three, of out */
    assert_string_equal(dw->op->name, "slice");
    assert_string_equal(dw->in[0]->node->op->name, "linear_grad_w_wide");
    for (int i = 0; i < g->n_nodes; i++) /* of parameters alone, and of their gradients */
        if (strcmp(g->nodes[i]->op->name, "concat") == 0)
            assert_true(g->nodes[i]->in[0]->node->op->traits & TTI_PARAM);
    T_EQ(net_count_ops(g, "concat"), 2);
    T_EQ(net_count_ops(g, "slice"), 6);
    tutti_graph_destroy(g);
}

T_CASE(layers_that_do_not_fit_stay) {
    T_UNUSED;
    T_EQ(n_layers(&(requested){.n_positions = 2, .axis = 1}), 5); /* another axis */
    T_EQ(n_layers(&(requested){.n_positions = 2, .axis = 2, .one_without = true}), 5);
    T_EQ(n_layers(&(requested){.n_positions = 2, .axis = 2, .read_again = true}), 5);
    T_EQ(n_layers(&(requested){.n_positions = 2, .axis = 2, .other_input = true}), 5);
    T_EQ(n_layers(&(requested){.n_positions = 1, .axis = 2}), 5); /* 4 rows of 6 are few */
}

/* A head whose weights are a table, and its bias; k columns of the input are read. */
static tutti_graph *head_of(int64_t k, bool trans_b, bool read_again) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_shape shape = trans_b ? TUTTI_SHAPE(NET_CLASSES, k) : TUTTI_SHAPE(k, NET_CLASSES);
    tutti_value *x = tutti_slice(g, net_x(g), 1, 0, k);
    tutti_value *w = tutti_param(g, "w", &shape, &init, true);
    tutti_value *b = tutti_param(g, "b", &TUTTI_SHAPE(NET_CLASSES), &init, false);
    tutti_value *y = tutti_matmul_with(g, tutti_tanh(g, x), w, false, trans_b);
    tutti_value *sum = tutti_add(g, b, y);
    return net_finish(g, read_again ? tutti_add(g, sum, tutti_tanh(g, y)) : sum);
}

static int n_heads(int64_t k, bool trans_b, bool read_again) {
    tutti_graph *before = after(head_of(k, trans_b, read_again), &apart, "autodiff");
    tutti_graph *g = after(head_of(k, trans_b, read_again), &joint, "autodiff");
    int n = net_count_ops(g, "linear");
    T_EQ(net_count_ops(before, "linear"), 0);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
    return n;
}

T_CASE(a_bias_goes_into_its_product) {
    T_UNUSED;
    T_EQ(n_heads(WIDTH, true, false), 1);
    T_EQ(n_heads(WIDTH, false, false), 0); /* 4 rows are too few to transpose a table of 6 */
    T_EQ(n_heads(3, false, false), 1);
    T_EQ(n_heads(WIDTH, true, true), 0); /* the product is wanted without it, too */
    T_EQ(n_heads(3, false, true), 0);
}

/* The weight is transposed once, in 16 bits; its gradient is made in the stored order. */
T_CASE(a_stored_transposition_is_not_repeated) {
    T_UNUSED;
    tutti_graph *g = after(head_of(3, false, false), &joint_bf16, "fuse");
    const tti_node *turned = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, "transpose") == 0) turned = g->nodes[i];
    T_EQ(net_count_ops(g, "transpose"), 1);
    assert_string_equal(turned->in[0]->node->op->name, "cast");
    assert_true(turned->in[0]->node->in[0]->node->op->traits & TTI_PARAM);
    T_EQ(turned->out[0]->type.dtype, TUTTI_BF16);
    assert_string_equal(tti_graph_output(g, "grad.w")->node->op->name, "matmul_wide");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_are_joined_are_one),
        cmocka_unit_test(their_gradients_are_one_product_each),
        cmocka_unit_test(layers_that_do_not_fit_stay),
        cmocka_unit_test(a_bias_goes_into_its_product),
        cmocka_unit_test(a_stored_transposition_is_not_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* autodiff_test.c - gradients of whole networks against finite differences, and what is refused. */
#include "passes/nets.h"

#include <stdio.h>

static double loss_of(t_reference *r) {
    t_reference_run(r, &net_run);
    return *t_reference_of(r, tti_graph_output(r->g, "loss_sum"));
}

static void check_param(t_reference *r, const tti_node *param) {
    const double h = 1e-5;
    char name[64];
    snprintf(name, sizeof name, "grad.%s", param->name);
    const tutti_value *grad = tti_graph_output(r->g, name);
    assert_non_null(grad);
    assert_true(tti_shape_equal(&grad->type.shape, &param->out[0]->type.shape));
    double *w = t_reference_of(r, param->out[0]);
    for (int64_t e = 0; e < tti_value_n_elems(grad); e++) {
        double saved = w[e];
        w[e] = saved + h;
        double up = loss_of(r);
        w[e] = saved - h;
        double down = loss_of(r);
        w[e] = saved;
        loss_of(r);
        double got = t_reference_of(r, grad)[e], want = (up - down) / (2 * h);
        if (!(fabs(got - want) <= 1e-6 * fmax(1, fabs(want))))
            fail_msg("%s[%lld]: %.9g, by differences %.9g", name, (long long)e, got, want);
    }
}

T_CASE(gradients_are_those_of_finite_differences) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        tutti_graph *g = net_all[i](true);
        T_OK(tti_pass_autodiff(&g, &net_plain));
        T_OK(tti_graph_verify(g));
        t_reference *r = t_reference_create(g);
        net_fill(r);
        int n_params = 0;
        for (int k = 0; k < g->n_nodes; k++)
            if (g->nodes[k]->op->traits & TTI_PARAM) {
                check_param(r, g->nodes[k]);
                n_params++;
            }
        assert_true(n_params >= 4);
        T_EQ(g->n_outputs, 3 + n_params);
        t_reference_destroy(r);
        tutti_graph_destroy(g);
    }
}

/* Each gradient is written into its own slot, so no two outputs may share a value. */
T_CASE(every_gradient_is_a_value_of_its_own) {
    T_UNUSED;
    tutti_graph *g = net_knots(true);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    for (int i = 0; i < g->n_outputs; i++) {
        unsigned traits = g->outputs[i].value->node->op->traits;
        assert_false(traits & (TTI_SOURCE | TTI_VIEW));
        for (int k = 0; k < i; k++) assert_ptr_not_equal(g->outputs[i].value, g->outputs[k].value);
    }
    tutti_graph_destroy(g);
}

/* d(sum w)/dw is the seed itself, a constant broadcast to w: still a value that a node makes. */
T_CASE(a_gradient_of_ones_is_made_by_a_node) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *w = tutti_param(g, "w", &(tutti_shape){0}, NULL, true);
    tutti_value *v = tutti_param(g, "v", &TUTTI_SHAPE(1, 1), NULL, true);
    tutti_value *flat = tutti_reshape(g, v, &(tutti_shape){0});
    tutti_output(g, "loss_sum", tutti_add(g, w, flat));
    T_OK(tti_pass_autodiff(&g, &net_plain));
    t_reference *r = net_evaluate(g);
    static const char *const names[] = {"grad.w", "grad.v"};
    for (int i = 0; i < 2; i++) {
        const tutti_value *grad = tti_graph_output(g, names[i]);
        assert_false(grad->node->op->traits & (TTI_SOURCE | TTI_VIEW));
        T_NEAR(*t_reference_of(r, grad), 1, 0);
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(what_needs_no_gradient_gets_none) {
    T_UNUSED;
    tutti_graph *g = net_lenet(true);
    int n_forward = g->n_nodes;
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_EQ(net_count_ops(g, "conv2d_grad_w"), 2);
    T_EQ(net_count_ops(g, "conv2d_grad_x"), 1); /* not for the image */
    assert_true(g->n_nodes > n_forward);
    tutti_graph_destroy(g);
    g = net_lenet(false);
    n_forward = g->n_nodes;
    T_OK(tti_pass_autodiff(&g, &net_plain)); /* not for training: nothing to do */
    T_EQ(g->n_nodes, n_forward);
    T_EQ(g->n_outputs, 3);
    tutti_graph_destroy(g);
}

static void expect_refused(tutti_graph *g, tutti_status status, const char *text) {
    T_OK(tutti_graph_check(g));
    T_FAILS(tti_pass_autodiff(&g, &net_plain), status, text);
    tutti_graph_destroy(g);
}

T_CASE(what_cannot_be_learnt_is_refused) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_output(g, "loss", tutti_sum(g, tutti_linear(g, net_x(g), 2, "fc"), NULL));
    expect_refused(g, TUTTI_E_INVALID, "autodiff: the graph has no output 'loss_sum'");

    g = tutti_graph_create(true);
    tutti_param(g, "spare", &TUTTI_SHAPE(3), NULL, true);
    tutti_output(g, "loss_sum", tutti_sum(g, tutti_linear(g, net_x(g), 2, "fc"), NULL));
    expect_refused(g, TUTTI_E_INVALID, "the loss does not depend on parameter 'spare'");

    g = tutti_graph_create(true); /* through integers nothing flows */
    tutti_value *y = tutti_argmax(g, tutti_linear(g, net_x(g), 2, "fc"), 1);
    tutti_output(g, "loss_sum", tutti_sum(g, tutti_cast(g, y, TUTTI_F32), NULL));
    expect_refused(g, TUTTI_E_INVALID, "the loss does not depend on parameter 'fc.");

    tti_op no_gradient = *tti_op_find("tanh");
    no_gradient.grad = NULL;
    g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 2, "fc");
    tti_node *node =
        tti_graph_add(g, &(tti_node_desc){.op = &no_gradient, .name = "bent", .in = &x, .n_in = 1});
    tutti_output(g, "loss_sum", tutti_sum(g, node->out[0], NULL));
    expect_refused(g, TUTTI_E_UNSUPPORTED, "autodiff: tanh 'bent' has no gradient");
}

static const tti_node *find_param(const tutti_graph *g, const char *name) {
    const tti_node *node = tti_graph_find_source(g, name);
    assert_non_null(node);
    return node;
}

T_CASE(parameters_that_no_gradient_reaches_have_zeros) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    const tutti_shape shape = TUTTI_SHAPE(2);
    tutti_value *y = tutti_linear(g, net_x(g), 2, "fc");
    tutti_value *limit = tutti_param(g, "limit", &shape, NULL, true);
    tutti_value *level = tutti_param(g, "level", &shape, NULL, true);
    tutti_value *cut = tutti_param(g, "cut", &shape, NULL, true);
    tutti_param(g, "spare", &shape, NULL, true);
    y = tutti_mul(g, y, tutti_less(g, y, tutti_stop_gradient(g, limit)));
    y = tutti_mul(g, y, tutti_stop_gradient(g, cut));
    y = tutti_add(g, y, tutti_floor(g, level));
    tutti_output(g, "loss_sum", tutti_sum(g, y, NULL));
    T_OK(tti_mark_unreached(g));
    T_EQ(tti_attr_int(find_param(g, "fc.weight"), "reach"), TTI_GRAD_REACHES);
    T_EQ(tti_attr_int(find_param(g, "limit"), "reach"), TTI_GRAD_IS_MISSING);
    T_EQ(tti_attr_int(find_param(g, "cut"), "reach"), TTI_GRAD_IS_MISSING);
    T_EQ(tti_attr_int(find_param(g, "spare"), "reach"), TTI_GRAD_IS_MISSING);
    T_EQ(tti_attr_int(find_param(g, "level"), "reach"), TTI_GRAD_IS_ZERO);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_OK(tti_pass_split(&g, &net_plain));
    T_OK(tti_graph_verify(g));
    assert_non_null(tti_graph_output(g, "grad.fc.weight"));
    static const char *const names[] = {"grad.limit", "grad.cut", "grad.spare", "grad.level"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        const tutti_value *grad = tti_graph_output(g, names[i]);
        assert_non_null(grad);
        assert_true(grad->node->in[0] == grad->node->in[1]); /* nothing is less than itself */
        assert_string_equal(grad->node->op->name, "less");
    }
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(parameters_that_no_gradient_reaches_have_zeros),
        cmocka_unit_test(every_gradient_is_a_value_of_its_own),
        cmocka_unit_test(a_gradient_of_ones_is_made_by_a_node),
        cmocka_unit_test(what_needs_no_gradient_gets_none),
        cmocka_unit_test(what_cannot_be_learnt_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* schedule_test.c - gradients come as early as they can, and nothing else changes. */
#include <stdlib.h>

#include "passes/nets.h"

static tutti_graph *scheduled(net_fn net, const tti_target *target) {
    tutti_graph *g = net(true);
    T_OK(tti_pipeline_run(&g, target, "schedule"));
    return g;
}

static bool makes_gradient(const tutti_graph *g, const tti_node *node) {
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value->node == node && strncmp(g->outputs[i].name, "grad.", 5) == 0)
            return true;
    return false;
}

/* Between a gradient and the last of its inputs stand only other gradients. */
T_CASE(gradients_follow_their_inputs_at_once) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_all); n++) {
        tutti_graph *g = scheduled(net_all[n], &net_fast);
        int n_gradients = 0;
        for (int i = 0; i < g->n_nodes; i++) {
            if (!makes_gradient(g, g->nodes[i])) continue;
            int last = 0;
            for (int k = 0; k < g->nodes[i]->n_in; k++)
                last = TTI_MAX(last, g->nodes[i]->in[k]->node->id);
            for (int k = last + 1; k < i; k++) assert_true(makes_gradient(g, g->nodes[k]));
            n_gradients++;
        }
        assert_true(n_gradients >= 2);
        tutti_graph_destroy(g);
    }
}

/* A gradient that was written down last is moved before the nodes that do not need it. */
T_CASE(a_late_gradient_is_moved_up) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g), *y = x;
    for (int i = 0; i < 5; i++) y = tutti_tanh(g, y);
    tutti_value *grad = tutti_exp(g, x), *second = tutti_neg(g, grad);
    tutti_output(g, "loss_sum", tutti_sum(g, y, NULL));
    tutti_output(g, "grad.a", grad);
    tutti_output(g, "grad.b", second);
    T_OK(tti_pass_schedule(&g, &net_plain));
    T_OK(tti_graph_verify(g));
    T_EQ(tti_graph_output(g, "grad.a")->node->id, 1);
    T_EQ(tti_graph_output(g, "grad.b")->node->id, 2);
    T_EQ(y->node->id, 7);
    tutti_graph_destroy(g);
}

T_CASE(without_gradients_the_order_stays) {
    T_UNUSED;
    tutti_graph *g = net_lenet(false);
    tti_node *before[64];
    int n = g->n_nodes;
    assert_true(n < 64);
    for (int i = 0; i < n; i++) before[i] = g->nodes[i];
    T_OK(tti_pass_schedule(&g, &net_plain));
    for (int i = 0; i < n; i++) assert_ptr_equal(g->nodes[i], before[i]);
    tutti_graph_destroy(g);
}

T_CASE(results_stay) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        tutti_graph *plain = net_all[i](true), *g = scheduled(net_all[i], &net_fast);
        T_OK(tti_pass_autodiff(&plain, &net_plain));
        T_OK(tti_graph_verify(g));
        net_expect_equal(plain, g);
        tutti_graph_destroy(plain);
        tutti_graph_destroy(g);
    }
}

/* ---- TP collectives ---- */

static tutti_graph *divided(bool collectives) {
    tutti_graph *g = net_blocks_of(8, true, false);
    tti_target target = net_fast;
    target.n_tensor = 2, target.collectives = collectives;
    T_OK(tti_pipeline_run(&g, &target, "schedule"));
    return g;
}

/* Gradients that are made between a collective and its first reader. */
static int n_beside(const tutti_graph *g, int collective) {
    int n = 0;
    for (int i = collective + 1; i < g->n_nodes; i++) {
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k]->node->id == collective) return n;
        n += makes_gradient(g, g->nodes[i]);
    }
    return 0; /* it has no reader */
}

static int n_hidden(const tutti_graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & TTI_COLLECTIVE) n += n_beside(g, i);
    return n;
}

static int nth_gradient(const tutti_graph *g, int at) {
    for (; at < g->n_nodes && !makes_gradient(g, g->nodes[at]); at++) continue;
    return at;
}

T_CASE(exchanges_go_before_what_they_do_not_need) {
    T_UNUSED;
    tutti_graph *plain = divided(false), *g = divided(true);
    assert_true(n_hidden(g) > n_hidden(plain));
    assert_true(n_hidden(g) >= 2);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

T_CASE(exchanges_leave_results_and_the_order_of_gradients) {
    T_UNUSED;
    tutti_graph *plain = divided(false), *g = divided(true);
    int a = nth_gradient(plain, 0), b = nth_gradient(g, 0);
    T_OK(tti_graph_verify(g));
    T_EQ(g->n_nodes, plain->n_nodes);
    for (; a < plain->n_nodes; a = nth_gradient(plain, a + 1), b = nth_gradient(g, b + 1)) {
        assert_true(b < g->n_nodes);
        assert_string_equal(plain->nodes[a]->name, g->nodes[b]->name);
        assert_string_equal(plain->nodes[a]->op->name, g->nodes[b]->op->name);
    }
    T_EQ(b, g->n_nodes);
    net_expect_equal(plain, g);
    tutti_graph_destroy(plain);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_follow_their_inputs_at_once),
        cmocka_unit_test(a_late_gradient_is_moved_up),
        cmocka_unit_test(without_gradients_the_order_stays),
        cmocka_unit_test(results_stay),
        cmocka_unit_test(exchanges_go_before_what_they_do_not_need),
        cmocka_unit_test(exchanges_leave_results_and_the_order_of_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

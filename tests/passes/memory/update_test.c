/* update_test.c - the blocks of the update cover every parameter once, with the right decay. */
#include <stdlib.h>

#include "passes/nets.h"

/* A parameter of more than two blocks beside small ones, one of them without decay. */
static tutti_graph *net_wide(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), 6000, "wide"); /* weight 36000, bias 6000 */
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static tti_plan *plan_with(const char *optimizer, double decay) {
    tti_attr_arg none[] = {{0}};
    tti_plan *plan = NULL;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net_wide(true),
                                          .target = &net_plain,
                                          .optimizer = optimizer,
                                          .optimizer_attrs = none,
                                          .weight_decay = decay,
                                          .bucket_bytes = 1 << 20},
                         &plan));
    return plan;
}

T_CASE(every_element_is_updated_once) {
    T_UNUSED;
    tti_plan *plan = plan_with("sgd", 0.1);
    unsigned char *n_times = calloc(plan->n_flat, 1);
    for (int i = 0; i < plan->n_updates; i++) {
        const tti_update_step *step = &plan->updates[i];
        assert_true(step->n_elems > 0 && step->n_elems <= TTI_UPDATE_BLOCK);
        for (size_t e = 0; e < step->n_elems; e++) n_times[step->first + e]++;
    }
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        size_t end = i + 1 < plan->n_slots ? slot[1].first : plan->n_flat;
        for (size_t e = slot->first; e < end; e++)
            T_EQ(n_times[e], e < slot->first + slot->n_elems);
    }
    free(n_times);
    tti_plan_destroy(plan);
}

static const tti_slot *slot_of(const tti_plan *plan, const tti_update_step *step) {
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        bool inside = step->first >= slot->first &&
                      step->first + step->n_elems <= slot->first + slot->n_elems;
        if (inside) return slot;
    }
    fail_msg("a block crosses a parameter's end");
    return NULL;
}

T_CASE(decay_goes_where_it_is_marked) {
    T_UNUSED;
    tti_plan *plan = plan_with("adamw", 0.25);
    int n_large = 0;
    for (int i = 0; i < plan->n_updates; i++) {
        const tti_slot *slot = slot_of(plan, &plan->updates[i]);
        bool weight = strstr(slot->param->name, ".weight") != NULL;
        T_NEAR(tti_attr_float(plan->updates[i].node, "decay"), weight ? 0.25 : 0, 0);
        n_large += strcmp(slot->param->name, "wide.weight") == 0;
    }
    T_EQ(n_large, 3); /* 36000 elements */
    tti_plan_destroy(plan);
}

T_CASE(blocks_of_a_kind_share_their_node) {
    T_UNUSED;
    tti_plan *plan = plan_with("sgd", 0.1);
    for (int i = 0; i < plan->n_updates; i++)
        for (int k = 0; k < i; k++) {
            const tti_update_step *a = &plan->updates[i], *b = &plan->updates[k];
            bool alike = a->n_elems == b->n_elems &&
                         tti_attr_float(a->node, "decay") == tti_attr_float(b->node, "decay");
            T_EQ(a->node == b->node, alike);
        }
    tti_plan_destroy(plan);
}

T_CASE(nodes_take_what_the_optimizer_needs) {
    T_UNUSED;
    static const struct {
        const char *name;
        int n_states;
    } rows[] = {{"sgd", 1}, {"adam", 2}, {"adamw", 2}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_plan *plan = plan_with(rows[i].name, 0);
        T_EQ(plan->n_states, rows[i].n_states);
        T_OK(tti_graph_verify(plan->update_graph));
        const tti_node *node = plan->updates[0].node;
        assert_string_equal(node->op->name, rows[i].name);
        T_EQ(node->n_in, rows[i].n_states + 3); /* w, states, g, hyper */
        T_EQ(node->in[0]->type.shape.dim[0], plan->updates[0].n_elems);
        T_EQ(node->in[node->n_in - 1]->type.shape.dim[0], 8);
        tti_plan_destroy(plan);
    }
}

T_CASE(not_every_op_is_an_optimizer) {
    T_UNUSED;
    static const char *const names[] = {"relu", "no_such_op", ""};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        tti_attr_arg none[] = {{0}};
        tti_plan *plan = (tti_plan *)&none;
        T_FAILS(tti_plan_create(&(tti_plan_desc){.train = net_mlp(true),
                                                 .eval = net_mlp(false),
                                                 .target = &net_plain,
                                                 .optimizer = names[i],
                                                 .optimizer_attrs = none,
                                                 .bucket_bytes = 64},
                                &plan),
                TUTTI_E_INVALID, "is not an optimizer");
        assert_null(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_updated_once),
        cmocka_unit_test(decay_goes_where_it_is_marked),
        cmocka_unit_test(blocks_of_a_kind_share_their_node),
        cmocka_unit_test(nodes_take_what_the_optimizer_needs),
        cmocka_unit_test(not_every_op_is_an_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

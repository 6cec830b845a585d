/* low_copies_test.c - parameters that the update leaves in 16 bits: no step casts them, and what
 * reads them does so in the places of the flat array. */
#include "passes/deep_nets.h"

static const tti_target casting = {.fuse = true, .compute_dtype = TUTTI_BF16};
static const tti_target keeping = {
    .fuse = true, .compute_dtype = TUTTI_BF16, .keeps_low_copies = true};

static bool is_param_cast(const tti_node *node) {
    if (strcmp(node->op->name, "cast") != 0 || node->out[0]->type.dtype != TUTTI_BF16) return false;
    return (node->in[0]->node->op->traits & TTI_PARAM) || tti_joins_params(node->in[0]->node);
}

static int count_param_casts(const tti_program *program) {
    int n = 0;
    for (int s = 0; s < program->n_steps; s++) n += is_param_cast(program->steps[s]);
    return n;
}

static const tti_slot *slot_of(const tti_plan *plan, const tti_node *from) {
    const tti_node *param = from->op->traits & TTI_PARAM ? from : from->in[0]->node;
    int slot = tti_plan_find_slot(plan, param->name);
    assert_true(slot >= 0);
    return &plan->slots[slot];
}

/* Returns how many there are. */
static int check_places(const tti_plan *plan) {
    const tutti_graph *g = plan->shard.graph;
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!is_param_cast(g->nodes[i])) continue;
        const tti_slot *slot = slot_of(plan, g->nodes[i]->in[0]->node);
        tti_buf buf = plan->shard.bufs[g->nodes[i]->out[0]->id];
        T_EQ(buf.space, TTI_SPACE_LOW);
        T_EQ(buf.offset, slot->low_copy * sizeof(uint16_t));
        T_EQ(buf.offset % 64, 0);
        assert_true(slot->has_low_copy);
        n++;
    }
    return n;
}

/* No two slots share a place. */
static void check_apart(const tti_plan *plan) {
    for (int a = 0; a < plan->n_slots; a++) {
        const tti_slot *x = &plan->slots[a];
        if (!x->has_low_copy) continue;
        T_EQ(x->low_copy % 16, 0);
        assert_true(x->low_copy + x->n_elems <= plan->n_low_copies);
        for (int b = 0; b < a; b++) {
            const tti_slot *y = &plan->slots[b];
            if (y->has_low_copy)
                assert_true(x->low_copy + x->n_elems <= y->low_copy ||
                            y->low_copy + y->n_elems <= x->low_copy);
        }
    }
}

T_CASE(no_step_casts_parameters) {
    T_UNUSED;
    static const net_fn nets[] = {net_mlp, net_lenet, net_gpt, net_heads, net_knots};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        tti_plan *before = net_plan(nets[i], &casting, 1 << 20);
        tti_plan *plan = net_plan(nets[i], &keeping, 1 << 20);
        int n = count_param_casts(&before->shard);
        assert_true(n > 0);
        T_EQ(count_param_casts(&plan->shard), 0);
        T_EQ(check_places(plan), n);
        T_EQ(plan->shard.n_steps, before->shard.n_steps - n);
        assert_true(plan->shard.arena_bytes <= before->shard.arena_bytes);
        T_EQ(plan->low_dtype, TUTTI_BF16);
        check_apart(plan);
        assert_true(tti_plan_low_copies_bytes(plan) > 0);
        T_EQ(before->low_dtype, TUTTI_F32);
        T_EQ(tti_plan_low_copies_bytes(before), 0);
        /* An evaluation may use averages, of which there are no low-precision copies. */
        T_EQ(count_param_casts(&plan->eval), count_param_casts(&before->eval));
        tti_plan_destroy(before);
        tti_plan_destroy(plan);
    }
}

/* q, k and v lie side by side, and so do their copies. */
T_CASE(joined_parameters_are_low_together) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_heads, &keeping, 1 << 20);
    static const char *const names[] = {"q.weight", "k.weight", "v.weight",
                                        "q.bias",   "k.bias",   "v.bias"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        const tti_slot *slot = &plan->slots[tti_plan_find_slot(plan, names[i])];
        assert_true(slot->has_low_copy);
        if (i % 3) T_EQ(slot->low_copy, slot[-1].low_copy + slot[-1].n_elems);
    }
    tti_plan_destroy(plan);
}

/* Norms read theirs in 32 bits. */
T_CASE(others_are_not_kept) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_gpt, &keeping, 1 << 20);
    assert_false(plan->slots[tti_plan_find_slot(plan, "h0.ln1.weight")].has_low_copy);
    assert_true(plan->slots[tti_plan_find_slot(plan, "h0.qkv.weight")].has_low_copy);
    tti_plan_destroy(plan);
    tti_target wide = keeping;
    wide.compute_dtype = TUTTI_F32;
    plan = net_plan(net_gpt, &wide, 1 << 20);
    T_EQ(plan->low_dtype, TUTTI_F32);
    for (int i = 0; i < plan->n_slots; i++) assert_false(plan->slots[i].has_low_copy);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_casts_parameters),
        cmocka_unit_test(joined_parameters_are_low_together),
        cmocka_unit_test(others_are_not_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

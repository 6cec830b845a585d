/* neighbours_test.c - parameters side by side: what then takes no step and no bytes, and where not.
 */
#include "passes/deep_nets.h"

static tutti_graph *net_narrow_heads(bool training) { return net_heads_of(training, 20); }

static int count_steps(const tti_program *program, const char *op) {
    int n = 0;
    for (int s = 0; s < program->n_steps; s++) n += strcmp(program->steps[s]->op->name, op) == 0;
    return n;
}

static const tti_slot *slot_of(const tti_plan *plan, const char *name) {
    int slot = tti_plan_find_slot(plan, name);
    assert_true(slot >= 0);
    return &plan->slots[slot];
}

static size_t end_of(const tti_slot *slot) { return slot->first + slot->n_elems; }

/* Where the only concat of parameters with that many dimensions lies. */
static tti_buf joined_buf(const tti_program *program, int64_t n_dims) {
    const tutti_graph *g = program->graph;
    const tutti_value *found = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!tti_joins_params(g->nodes[i]) || g->nodes[i]->out[0]->type.shape.n_dims != n_dims)
            continue;
        assert_null(found);
        found = g->nodes[i]->out[0];
    }
    assert_non_null(found);
    return program->bufs[found->id];
}

T_CASE(weights_lie_side_by_side) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_heads, &net_fast, 1 << 20);
    static const char *const kinds[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        const tti_slot *slots[3];
        char name[32];
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof name, "%c.%s", "qkv"[k], kinds[i]);
            slots[k] = slot_of(plan, name);
        }
        for (int k = 0; k < 2; k++) T_EQ(slots[k + 1]->first, end_of(slots[k]));
        for (int k = 0; k < 2; k++) T_EQ(slots[k + 1]->ready_after, slots[k]->ready_after);
        for (int p = 0; p < 2; p++) {
            tti_buf buf = joined_buf(p ? &plan->eval : &plan->shard, i ? 1 : 2);
            T_EQ(buf.space, TTI_SPACE_PARAM);
            T_EQ(buf.offset, slots[0]->first * sizeof(float));
        }
    }
    tti_plan_destroy(plan);
}

/* However short buckets are: what is one value to a kernel has one place. */
T_CASE(no_bucket_ends_between_them) {
    T_UNUSED;
    static const char *const names[] = {"q.weight", "q.bias"};
    tti_plan *plan = net_plan(net_heads, &net_fast, 1);
    assert_true(plan->n_buckets > 2);
    for (int i = 0; i < 2; i++) {
        const tti_slot *first = slot_of(plan, names[i]);
        const tti_bucket *bucket = &plan->buckets[tti_plan_find_bucket(plan, first->first)];
        assert_true(bucket->first + bucket->n_elems >= first->first + 3 * first->n_elems);
    }
    tti_plan_destroy(plan);
}

T_CASE(gradients_are_made_in_place) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_heads, &net_fast, 1 << 20);
    const tutti_graph *g = plan->shard.graph;
    static const char *const names[] = {"q.weight", "k.weight", "v.weight", "q.bias", "v.bias"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        char name[32];
        snprintf(name, sizeof name, "grad.%s", names[i]);
        const tti_slot *slot = slot_of(plan, names[i]);
        tti_buf buf = plan->shard.bufs[tti_graph_output(g, name)->id];
        T_EQ(buf.space, TTI_SPACE_GRAD);
        T_EQ(buf.offset, slot->first * sizeof(float));
        const tutti_value *whole = tti_graph_output(g, name)->node->in[0];
        assert_string_equal(plan->shard.steps[slot->ready_after]->op->name, "linear_grad_w");
        assert_ptr_equal(plan->shard.steps[slot->ready_after], whole->node);
    }
    const tti_program *programs[] = {&plan->shard, &plan->eval};
    for (int p = 0; p < 2; p++) T_EQ(count_steps(programs[p], "concat"), 0);
    T_EQ(count_steps(&plan->shard, "slice"), 0);
    tti_plan_destroy(plan);
}

/* A slot is padded, so the parts would not meet. */
T_CASE(parts_of_broken_lines_are_cut) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_narrow_heads, &net_fast, 1 << 20);
    T_EQ(count_steps(&plan->shard, "slice"), 3); /* of the biases: 20 elements each */
    T_EQ(count_steps(&plan->shard, "concat"), 1);
    T_EQ(count_steps(&plan->eval, "concat"), 1);
    T_EQ(joined_buf(&plan->shard, 2).space, TTI_SPACE_PARAM); /* 400 elements: whole lines */
    T_EQ(joined_buf(&plan->shard, 1).space, TTI_SPACE_ARENA);
    tti_plan_destroy(plan);
}

/* It may share the memory of its parts only if no other node reads it. */
T_CASE(a_whole_with_other_readers_is_cut) {
    T_UNUSED;
    tti_neighbours found;
    tutti_graph *g = net_heads(true);
    T_OK(tti_pipeline_run(&g, &net_fast, NULL));
    const tutti_value *part = tti_graph_output(g, "grad.q.weight");
    T_OK(tti_neighbours_find(g, true, &found));
    assert_ptr_equal(found.cut_from[part->node->id], part->node->in[0]);
    T_EQ(found.place[tti_graph_find_source(g, "v.weight")->id], 2);
    assert_ptr_equal(found.first[tti_graph_find_source(g, "v.weight")->id],
                     tti_graph_find_source(g, "q.weight"));
    assert_null(found.first[tti_graph_find_source(g, "out.weight")->id]);
    tti_neighbours_fini(&found);
    T_OK(tti_neighbours_find(g, false, &found));
    assert_null(found.cut_from[part->node->id]);
    tti_neighbours_fini(&found);
    tutti_output(g, "again", part->node->in[0]);
    T_OK(tti_neighbours_find(g, true, &found));
    assert_null(found.cut_from[part->node->id]);
    assert_null(found.first[tti_graph_find_source(g, "q.weight")->id]);
    assert_non_null(found.first[tti_graph_find_source(g, "q.bias")->id]);
    tti_neighbours_fini(&found);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_lie_side_by_side),
        cmocka_unit_test(no_bucket_ends_between_them),
        cmocka_unit_test(gradients_are_made_in_place),
        cmocka_unit_test(parts_of_broken_lines_are_cut),
        cmocka_unit_test(a_whole_with_other_readers_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

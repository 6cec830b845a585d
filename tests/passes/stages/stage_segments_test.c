/* stage_segments_test.c - the steps of a pipeline's stage by segment: what is read is there, what
 * is sent is made. */
#include "passes/nets.h"

static tutti_graph *blocks(bool training) { return net_blocks(training, false); }

static tti_plan *plan_of(net_fn net, int stage, int n_stages, int n_chunks, bool again) {
    tti_target target = net_fast;
    target.stage = stage;
    target.n_stages = n_stages;
    target.n_chunks = n_chunks;
    target.recompute = again ? TTI_RECOMPUTE_BLOCK : TTI_RECOMPUTE_NONE;
    return net_plan(net, &target, 1 << 20);
}

/* The segment of the step that makes a value; a source: the first segment that it can be read in.
 */
static int segment_of(const tti_plan *plan, const tti_program *program, const tutti_value *value) {
    const tti_node *node = value->node;
    int number = tti_stage_boundary_number(node->name);
    if ((node->op->traits & TTI_INPUT) && number >= 0)
        return tti_sched_slot_segment(plan->stages, program == &plan->shard
                                                        ? plan->stages->train.of[number].to
                                                        : plan->stages->eval.of[number].to);
    if (node->op->traits & TTI_SOURCE) return 0;
    if (node->op->traits & TTI_VIEW) return segment_of(plan, program, node->in[0]);
    for (int p = 0; p < program->n_segments; p++)
        for (int s = program->segment_first[p]; s < program->segment_first[p + 1]; s++)
            if (program->steps[s] == node) return p;
    fail_msg("%s '%s' is in no segment", node->op->name, node->name);
    return -1;
}

static void check_program(const tti_plan *plan, const tti_program *program) {
    const tti_stage_boundaries *c =
        program == &plan->shard ? &plan->stages->train : &plan->stages->eval;
    T_EQ(program->segment_first[program->n_segments], program->n_steps);
    for (int p = 0; p < program->n_segments; p++)
        for (int s = program->segment_first[p]; s < program->segment_first[p + 1]; s++)
            for (int k = 0; k < program->steps[s]->n_in; k++)
                assert_true(segment_of(plan, program, program->steps[s]->in[k]) <= p);
    int n_sent = 0;
    for (int i = 0; i < program->graph->n_outputs; i++) {
        int number = tti_stage_boundary_number(program->graph->outputs[i].name);
        if (number < 0) continue;
        const tutti_value *value = program->graph->outputs[i].value;
        assert_true(segment_of(plan, program, value) <=
                    tti_sched_slot_segment(plan->stages, c->of[number].from));
        T_EQ(program->bufs[value->id].space, TTI_SPACE_RESULT);
        n_sent++;
    }
    int n_own = 0;
    for (int i = 0; i < c->n; i++)
        n_own += tti_sched_slot_stage(plan->stages, c->of[i].from) == plan->stages->stage;
    T_EQ(n_sent, n_own);
}

T_CASE(segments_are_in_the_order_of_what_they_read) {
    T_UNUSED;
    static const net_fn nets[] = {net_lenet, net_knots, blocks};
    for (size_t i = 0; i < TTI_COUNT(nets); i++)
        for (int chunks = 1; chunks <= 2; chunks++)
            for (int stage = 0; stage < 2; stage++)
                for (int again = 0; again < 2; again++) {
                    tti_plan *plan = plan_of(nets[i], stage, 2, chunks, again);
                    T_EQ(plan->shard.n_segments, 2 * chunks);
                    T_EQ(plan->eval.n_segments, chunks);
                    /* An addition passes its gradient on and makes none. */
                    for (int p = 0; nets[i] != net_knots && p < plan->shard.n_segments; p++)
                        assert_true(plan->shard.segment_first[p] <
                                    plan->shard.segment_first[p + 1]);
                    check_program(plan, &plan->shard);
                    check_program(plan, &plan->eval);
                    tti_plan_destroy(plan);
                }
}

T_CASE(a_whole_plan_is_one_segment) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_fast, 1 << 20);
    assert_null(plan->stages);
    T_EQ(plan->shard.n_segments, 1);
    T_EQ(plan->shard.segment_first[1], plan->shard.n_steps);
    tti_plan_destroy(plan);
}

/* The stages have the parameters of the whole between them. */
T_CASE(stages_share_out_the_parameters) {
    T_UNUSED;
    tti_plan *whole = net_plan(blocks, &net_fast, 1 << 20);
    size_t n_params = 0, most = 0;
    for (int stage = 0; stage < 4; stage++) {
        tti_plan *plan = plan_of(blocks, stage, 4, 1, false);
        n_params += plan->n_params;
        most = TTI_MAX(most, plan->n_params);
        for (int i = 0; i < plan->n_slots; i++)
            assert_true(tti_plan_find_slot(whole, plan->slots[i].param->name) >= 0);
        tti_plan_destroy(plan);
    }
    T_EQ(n_params, whole->n_params);
    assert_true(2 * most < whole->n_params);
    tti_plan_destroy(whole);
}

/* A parameter on two stages is on both and counts on the first. */
T_CASE(tied_parameters_count_once) {
    T_UNUSED;
    for (int stage = 0; stage < 2; stage++) {
        tti_plan *plan = plan_of(net_knots, stage, 2, 1, false);
        int slot = tti_plan_find_slot(plan, "w");
        assert_true(slot >= 0);
        T_EQ(plan->slots[slot].is_copy, stage == 1);
        for (int i = 0; i < plan->n_slots; i++)
            if (i != slot) assert_false(plan->slots[i].is_copy);
        tti_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_in_the_order_of_what_they_read),
        cmocka_unit_test(a_whole_plan_is_one_segment),
        cmocka_unit_test(stages_share_out_the_parameters),
        cmocka_unit_test(tied_parameters_count_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

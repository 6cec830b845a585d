/* joint_sums_test.c - sums of short gradients over a tensor axis lie side by side after everything
 * else, their terms where the sums go, so that one collective makes them all. */
#include "exec/program/collective.h"

#include "passes/deep_nets.h"

/* Norms over positions of which each worker has a part. */
static tutti_graph *norms(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), 6 * 8, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, 6, 8));
    for (int i = 0; i < 3; i++) {
        char name[3][32];
        static const char *const parts[] = {"ln", "up", "down"};
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "h%d.%s", i, parts[k]);
        tutti_value *y = tutti_linear(g, tutti_layer_norm(g, x, NULL, name[0]), 512, name[1]);
        x = tutti_add(g, x, tutti_linear(g, tutti_gelu(g, y), 8, name[2]));
    }
    return net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "out"));
}

static tti_plan *plan_of(bool by_creation) {
    static const tti_attr_arg attrs[] = {TTI_FLOAT("momentum", 0.9), {0}};
    tti_target target = net_fast;
    tti_plan *plan = NULL;
    target.n_tensor = 2, target.collectives = true;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = norms(true),
                                          .target = &target,
                                          .optimizer = "sgd",
                                          .optimizer_attrs = attrs,
                                          .by_creation = by_creation,
                                          .bucket_bytes = 1 << 20},
                         &plan));
    return plan;
}

static bool is_gradient(const tti_program *program, const tti_node *node) {
    return node->op->collective == TTI_COLLECTIVE_SUM &&
           program->bufs[node->out[0]->id].space == TTI_SPACE_GRAD;
}

/* Of all sums that are gradients. */
static size_t span_of(const tti_program *program, int *n_sums) {
    size_t first = SIZE_MAX, end = 0;
    *n_sums = 0;
    for (int s = 0; s < program->n_steps; s++) {
        const tutti_value *sum = program->steps[s]->out[0];
        if (!is_gradient(program, program->steps[s])) continue;
        size_t at = program->bufs[sum->id].offset;
        T_EQ(program->bufs[program->steps[s]->in[0]->id].space, TTI_SPACE_GRAD);
        T_EQ(program->bufs[program->steps[s]->in[0]->id].offset, at);
        first = TTI_MIN(first, at);
        end = TTI_MAX(end, at + tti_value_n_bytes(sum));
        ++*n_sums;
    }
    return end - first;
}

T_CASE(short_gradients_are_summed_as_one) {
    T_UNUSED;
    tti_plan *plan = plan_of(false);
    const tti_program *program = &plan->shard;
    int n_sums, n_exchanges = 0;
    size_t span = span_of(program, &n_sums), n_bytes = 0;
    assert_true(n_sums >= 4);
    for (int s = 0; s < program->n_steps; s++) {
        if (!is_gradient(program, program->steps[s])) continue;
        T_EQ(program->steps[s]->id, program->graph->n_nodes - n_sums + n_exchanges++);
        n_bytes = TTI_MAX(n_bytes, tti_joint_bytes(program, s));
        assert_true(n_exchanges == 1 || tti_joint_bytes(program, s) == 0);
    }
    T_EQ(n_exchanges, n_sums);
    T_EQ(n_bytes, span);
    tti_plan_destroy(plan);
}

/* Every gradient is summed once, wherever slots stand. */
T_CASE(slots_elsewhere_are_summed_by_themselves) {
    T_UNUSED;
    tti_plan *plan = plan_of(true);
    const tti_program *program = &plan->shard;
    size_t end = 0;
    int n_exchanges = 0;
    for (int s = 0; s < program->n_steps; s++) {
        if (!is_gradient(program, program->steps[s])) continue;
        size_t at = program->bufs[program->steps[s]->out[0]->id].offset;
        size_t n = tti_joint_bytes(program, s), own = tti_value_n_bytes(program->steps[s]->out[0]);
        if (n > 0) end = at + n, n_exchanges++;
        assert_true(at + own <= end && (n == 0 || n >= own));
    }
    assert_true(n_exchanges >= 2);
    tti_plan_destroy(plan);
}

/* A sum that is no gradient is of its value; other steps sum nothing. */
T_CASE(other_sums_stay_as_they_are) {
    T_UNUSED;
    static const tti_attr_arg attrs[] = {TTI_INT("n", 2), TTI_INT("index", 1), {0}};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g), *sum = tti_emit(g, "tensor_all_reduce", "sum", &x, 1, attrs);
    tutti_value *y = tutti_tanh(g, sum);
    tutti_output(g, "loss_sum", tutti_sum(g, y, NULL));
    T_OK(tutti_graph_check(g));
    tti_node *steps[] = {sum->node, y->node};
    tti_buf bufs[8] = {{TTI_SPACE_ARENA, 0}};
    const tti_program program = {.graph = g, .steps = steps, .n_steps = 2, .bufs = bufs};
    T_EQ(tti_joint_bytes(&program, 0), tti_value_n_bytes(sum));
    T_EQ(tti_joint_bytes(&program, 1), 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_gradients_are_summed_as_one),
        cmocka_unit_test(slots_elsewhere_are_summed_by_themselves),
        cmocka_unit_test(other_sums_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

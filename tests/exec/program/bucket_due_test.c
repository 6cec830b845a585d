/* bucket_due_test.c - no bucket changes hands before its last reader and before the sums. */
#include "exec/program/accumulate.h"

#include "passes/nets.h"

enum { MAX_BUCKETS = 64 };

static bool reads(const tti_program *program, int step, const tti_bucket *b) {
    const tti_node *node = program->steps[step];
    for (int i = 0; i < node->n_in; i++) {
        const tti_buf *buf = &program->bufs[node->in[i]->id];
        size_t first = buf->offset / sizeof(float);
        if (buf->space == TTI_SPACE_PARAM && first >= b->first && first < b->first + b->n_elems)
            return true;
    }
    return false;
}

/* Parameters begin in one bucket and end there. */
static void check(net_fn net, const tti_target *target, int *n_held) {
    int due[MAX_BUCKETS];
    tti_plan *plan = net_plan(net, target, 64);
    assert_in_range(plan->n_buckets, 2, MAX_BUCKETS);
    tti_bucket_due(plan, due);
    int sums = tti_sums_due(&plan->shard);
    for (int b = 0; b < plan->n_buckets; b++) {
        assert_true(due[b] >= plan->buckets[b].ready_after && due[b] >= sums);
        assert_true(due[b] < plan->shard.n_steps && (b == 0 || due[b] >= due[b - 1]));
        for (int s = due[b] + 1; s < plan->shard.n_steps; s++)
            assert_true(!reads(&plan->shard, s, &plan->buckets[b]));
        *n_held += due[b] > plan->buckets[b].ready_after;
    }
    assert_true(due[0] < plan->shard.n_steps - 1); /* something is left to do meanwhile */
    tti_plan_destroy(plan);
}

/* Some gradients are complete before their weights are read for the last time. */
T_CASE(buckets_wait_for_their_last_reader) {
    T_UNUSED;
    int n_held = 0;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        check(net_all[i], &net_plain, &n_held);
        check(net_all[i], &net_fast, &n_held);
    }
    assert_true(n_held > 0);
}

/* The nodes that make the sums stand where they say, or before. */
T_CASE(sums_are_made_by_then) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_plain, 64);
    const tti_node *loss = tti_graph_output(plan->shard.graph, "loss_sum")->node;
    int due = tti_sums_due(&plan->shard), at = -1;
    for (int s = 0; s < plan->shard.n_steps; s++)
        if (plan->shard.steps[s] == loss) at = s;
    assert_in_range(at, 1, due);
    assert_true(due < plan->shard.n_steps - 1);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_wait_for_their_last_reader),
        cmocka_unit_test(sums_are_made_by_then),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

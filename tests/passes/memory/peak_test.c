/* peak_test.c - the predicted peak is the one that the memory plan comes to, counted grain by
 * grain over the plan's own places. */
#include "passes/memory/peak.h"

#include <stdlib.h>

#include "passes/deep_nets.h"

enum { GRAIN = 64 };

static int step_of(const tti_program *p, const tti_node *node) {
    for (int s = 0; s < p->n_steps; s++)
        if (p->steps[s] == node) return s;
    return -1;
}

/* The last step that reads the bytes of value, by itself or through a view. */
static int last_read(const tti_program *p, const tutti_value *value) {
    int last = step_of(p, value->node);
    for (int s = 0; s < p->n_steps; s++)
        for (int i = 0; i < p->steps[s]->n_in; i++)
            if (tti_skip_views(p->steps[s]->in[i]) == value) last = TTI_MAX(last, s);
    return last;
}

/* Distinct grains of the arena that hold something alive while step s runs. */
static size_t grains_alive(const tti_program *p, int s) {
    size_t n_grains = p->arena_bytes / GRAIN, n = 0;
    bool *used = calloc(n_grains + 1, sizeof *used);
    for (int i = 0; i < p->n_steps; i++)
        for (int k = 0; k < p->steps[i]->op->n_out; k++) {
            const tutti_value *value = p->steps[i]->out[k];
            tti_buf buf = p->bufs[value->id];
            if (buf.space != TTI_SPACE_ARENA || i > s || last_read(p, value) < s) continue;
            for (size_t b = 0; b < tti_arena_bytes(value); b += GRAIN)
                used[(buf.offset + b) / GRAIN] = true;
        }
    for (size_t b = 0; b < n_grains; b++) n += used[b];
    free(used);
    return n;
}

static size_t peak_by_counting(const tti_program *p) {
    size_t most = 0;
    for (int s = 0; s < p->n_steps; s++) most = TTI_MAX(most, grains_alive(p, s) * GRAIN);
    return most;
}

static void expect_predicted(net_fn net, const tti_target *target) {
    tti_plan *plan = net_plan(net, target, 1 << 20);
    const tti_program *programs[] = {&plan->shard, &plan->eval};
    for (int i = 0; i < 2; i++) {
        size_t n_bytes;
        T_OK(tti_graph_peak_bytes(programs[i]->graph, &n_bytes));
        T_EQ(n_bytes, peak_by_counting(programs[i]));
        assert_true(n_bytes <= programs[i]->arena_bytes);
        assert_true(programs[i]->arena_bytes <= n_bytes + n_bytes / 5);
    }
    tti_plan_destroy(plan);
}

T_CASE(the_peak_is_that_of_the_plan) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++)
        for (int mode = TTI_RECOMPUTE_NONE; mode <= TTI_RECOMPUTE_BLOCK; mode++) {
            tti_target plain = net_plain, fast = net_fast;
            plain.recompute = fast.recompute = (tti_recompute)mode;
            expect_predicted(net_deep[n], &plain);
            expect_predicted(net_deep[n], &fast);
        }
}

/* a -> tanh b -> exp c; then b again, which c does not keep alive. */
T_CASE(a_node_that_runs_twice) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(64));
    tutti_value *b = tutti_tanh(g, x), *c = tutti_softmax(g, b, 0);
    tutti_value *d = tutti_softmax(g, c, 0), *e = tutti_mul(g, tutti_softmax(g, d, 0), b);
    tutti_output(g, "y", tutti_sum(g, e, NULL));
    T_OK(tutti_graph_check(g));
    tti_peak top;
    const tti_node *once[16], *twice[16];
    int n = g->n_nodes;
    for (int i = 0; i < n; i++) once[i] = twice[i] = g->nodes[i];
    T_OK(tti_peak_of(g, once, n, &top));
    T_EQ(top.n_bytes, 3 * 256); /* b, c, d */
    T_EQ(top.at, 3);
    for (int i = n; i > e->node->id; i--) twice[i] = twice[i - 1];
    twice[e->node->id] = b->node;
    T_OK(tti_peak_of(g, twice, n + 1, &top));
    T_EQ(top.n_bytes, 2 * 256);
    tutti_graph_destroy(g);
}

T_CASE(nothing_takes_nothing) {
    T_UNUSED;
    size_t n_bytes = 1;
    tutti_graph *g = tutti_graph_create(false);
    T_OK(tti_graph_peak_bytes(g, &n_bytes));
    T_EQ(n_bytes, 0);
    tutti_output(g, "y", tutti_reshape(g, net_x(g), &TUTTI_SHAPE(6, NET_ROWS)));
    T_OK(tti_graph_peak_bytes(g, &n_bytes));
    T_EQ(n_bytes, 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_peak_is_that_of_the_plan),
        cmocka_unit_test(a_node_that_runs_twice),
        cmocka_unit_test(nothing_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

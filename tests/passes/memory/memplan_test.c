/* memplan_test.c - simulates a program through and notes, for every 64 bytes, which value was
 * written there last.  A value that is overwritten too early shows at its reader. */
#include <stdlib.h>

#include "passes/nets.h"

enum { GRAIN = 64, MAX_GRAINS = 4096 };

typedef struct memory {
    const tti_program *program;
    int owner[TTI_N_SPACES][MAX_GRAINS]; /* id of the value there, -1: none */
    int n_in_place;
} memory;

typedef struct extent {
    tti_space space;
    size_t first, last; /* grains */
} extent;

static const tutti_value *skip_views(const tutti_value *value) {
    while (value->node->op->traits & TTI_VIEW) value = value->node->in[0];
    return value;
}

static extent extent_of(const memory *m, const tutti_value *value) {
    tti_buf buf = m->program->bufs[value->id];
    extent e = {.space = buf.space};
    T_EQ(buf.offset % GRAIN, 0);
    e.first = buf.offset / GRAIN;
    e.last = e.first + (tti_value_n_bytes(value) + GRAIN - 1) / GRAIN;
    assert_true(e.last <= MAX_GRAINS);
    if (buf.space == TTI_SPACE_ARENA) assert_true(e.last * GRAIN <= m->program->arena_bytes);
    if (buf.space == TTI_SPACE_CONST) assert_true(e.last * GRAIN <= m->program->const_bytes);
    if (buf.space == TTI_SPACE_RESULT) assert_true(e.last * GRAIN <= m->program->result_bytes);
    return e;
}

static bool overlap(extent a, extent b) {
    return a.space == b.space && a.first < b.last && b.first < a.last;
}

static void write_value(memory *m, const tutti_value *value) {
    extent e = extent_of(m, value);
    for (size_t i = e.first; i < e.last; i++) m->owner[e.space][i] = value->id;
}

static void read_value(const memory *m, const tutti_value *value) {
    const tutti_value *base = skip_views(value);
    if (m->program->bufs[base->id].space == TTI_SPACE_INPUT) {
        T_EQ(m->program->bufs[value->id].space, TTI_SPACE_INPUT);
        T_EQ(m->program->bufs[value->id].offset, m->program->bufs[base->id].offset);
        return;
    }
    extent e = extent_of(m, value);
    for (size_t i = e.first; i < e.last; i++)
        if (m->owner[e.space][i] != base->id)
            fail_msg("value %d (%s '%s') is overwritten by value %d before its last reader",
                     base->id, base->node->op->name, base->node->name, m->owner[e.space][i]);
}

/* Results may not touch inputs, but for result 0 over input 0 exactly where the op allows it. */
static void check_step(memory *m, const tti_node *node) {
    for (int k = 0; k < node->op->n_out; k++) {
        extent out = extent_of(m, node->out[k]);
        assert_true(out.space == TTI_SPACE_ARENA || out.space == TTI_SPACE_RESULT ||
                    out.space == TTI_SPACE_GRAD);
        for (int other = 0; other < k; other++)
            assert_false(overlap(out, extent_of(m, node->out[other])));
        for (int i = 0; i < node->n_in; i++) {
            if (m->program->bufs[node->in[i]->id].space == TTI_SPACE_INPUT) continue;
            extent in = extent_of(m, node->in[i]);
            if (!overlap(out, in)) continue;
            assert_true((node->op->traits & TTI_IN_PLACE) && k == 0 && i == 0);
            assert_true(in.first == out.first && in.last == out.last);
            m->n_in_place++;
        }
    }
}

static memory *simulate(const tti_program *program) {
    memory *m = calloc(1, sizeof *m);
    m->program = program;
    memset(m->owner, -1, sizeof m->owner);
    const tutti_graph *g = program->graph;
    for (int i = 0; i < g->n_nodes; i++)
        if ((g->nodes[i]->op->traits & TTI_SOURCE) && !(g->nodes[i]->op->traits & TTI_INPUT))
            write_value(m, g->nodes[i]->out[0]);
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        for (int i = 0; i < node->n_in; i++) read_value(m, node->in[i]);
        check_step(m, node);
        for (int k = 0; k < node->op->n_out; k++) write_value(m, node->out[k]);
    }
    for (int i = 0; i < g->n_outputs; i++) read_value(m, g->outputs[i].value);
    for (int i = 0; i < g->n_nodes; i++) /* parameters are never written */
        if (g->nodes[i]->op->traits & TTI_PARAM) read_value(m, g->nodes[i]->out[0]);
    return m;
}

T_CASE(no_live_value_is_overwritten) {
    T_UNUSED;
    static const tti_target *const targets[] = {&net_plain, &net_fast};
    for (size_t n = 0; n < TTI_COUNT(net_all); n++)
        for (size_t t = 0; t < TTI_COUNT(targets); t++) {
            tti_plan *plan = net_plan(net_all[n], targets[t], 1 << 20);
            free(simulate(&plan->shard));
            free(simulate(&plan->eval));
            tti_plan_destroy(plan);
        }
}

T_CASE(bytes_are_used_more_than_once) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_plain, 1 << 20);
    assert_true(plan->shard.arena_bytes < plan->shard.unshared_bytes);
    assert_true(plan->eval.arena_bytes < plan->eval.unshared_bytes);
    assert_true(plan->eval.arena_bytes < plan->shard.arena_bytes);
    memory *m = simulate(&plan->shard);
    assert_true(m->n_in_place > 0);
    free(m);
    tti_plan_destroy(plan);
}

/* A value that is read later, or twice by the same op, must not be written over. */
static tutti_graph *net_tempting(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), 6, "fc1");
    tutti_value *y = tutti_add(g, tutti_tanh(g, x), x); /* x is read after tanh */
    y = tutti_mul(g, tutti_exp(g, y), tutti_sigmoid(g, y));
    tutti_value *z = tutti_mul(g, y, y); /* twice by one op */
    tutti_value *turned = tutti_reshape(g, tutti_reshape(g, z, &TUTTI_SHAPE(NET_ROWS, 3, 2)),
                                        &TUTTI_SHAPE(NET_ROWS, 6));
    z = tutti_add(g, z, turned); /* two views of the same bytes */
    return net_finish(g, tutti_linear(g, z, NET_CLASSES, "fc2"));
}

T_CASE(writing_in_place_is_never_too_early) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_tempting, &net_plain, 1 << 20);
    free(simulate(&plan->shard));
    memory *m = simulate(&plan->eval);
    assert_true(m->n_in_place > 0);
    free(m);
    tti_plan_destroy(plan);
}

T_CASE(outputs_and_sources_have_their_places) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_lenet, &net_plain, 1 << 20);
    const tti_program *p = &plan->shard;
    static const char *const names[] = {"loss_sum", "count", "correct"};
    for (int i = 0; i < 3; i++)
        T_EQ(p->bufs[tti_graph_output(p->graph, names[i])->id].space, TTI_SPACE_RESULT);
    for (int i = 0; i < plan->n_slots; i++)
        for (int e = 0; e < 2; e++) {
            const tti_program *program = e ? &plan->eval : p;
            const tti_node *w = tti_graph_find_source(program->graph, plan->slots[i].param->name);
            tti_buf buf = program->bufs[w->out[0]->id];
            T_EQ(buf.space, TTI_SPACE_PARAM);
            T_EQ(buf.offset, plan->slots[i].first * sizeof(float));
        }
    int x = tti_program_input(p, "x"), target = tti_program_input(p, "target");
    T_EQ(x + target, 1);
    T_EQ(x * target, 0);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_live_value_is_overwritten),
        cmocka_unit_test(bytes_are_used_more_than_once),
        cmocka_unit_test(writing_in_place_is_never_too_early),
        cmocka_unit_test(outputs_and_sources_have_their_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

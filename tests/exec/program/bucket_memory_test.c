/* window_test.c - places of buckets: what a step looks at is there, and no two things at once in
 * one place. */
#include "exec/program/bucket_memory.h"

#include <stdlib.h>

#include "passes/deep_nets.h"

enum { SMALL_BUCKET = 64 };

/* Each layer's own weights and, at both ends, the same ones. */
static tutti_graph *net_tied(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "tied", &TUTTI_SHAPE(6, 6), &init, true);
    tutti_value *x = tutti_tanh(g, tutti_matmul(g, net_x(g), w));
    for (int i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "fc%d", i);
        x = tutti_tanh(g, tutti_linear(g, x, 6, name));
    }
    x = tutti_tanh(g, tutti_matmul(g, x, w));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static size_t size_of(const tti_bucket_memory *w, const tti_live_range *live) {
    return w->plan->buckets[live->bucket].n_elems;
}

static void check_places(const tti_bucket_memory *w) {
    for (int i = 0; i < w->n_live; i++) {
        const tti_live_range *a = &w->live[i];
        assert_true(a->taken <= a->first && a->first <= a->last && a->last <= a->released);
        assert_true(a->offset % 16 == 0 && a->offset + size_of(w, a) <= w->n_elems);
        if (i > 0) assert_true(w->live[i - 1].first <= a->first);
        for (int k = 0; k < i; k++) {
            const tti_live_range *b = &w->live[k];
            bool at_once = a->taken <= b->released && b->taken <= a->released;
            assert_false(at_once && tti_bucket_memory_shares(w, a, b));
            assert_false(a->bucket == b->bucket && a->first <= b->last && b->first <= a->last);
        }
    }
}

/* Between two changes all that is there stays where it is. */
static void check_changes(const tti_bucket_memory *w, int n_steps) {
    for (int from = 0, to; from < n_steps; from = to) {
        to = tti_bucket_memory_next_change(w, from, n_steps);
        assert_true(to > from);
        bool changes = to == n_steps;
        for (int i = 0; i < w->n_live; i++) {
            const tti_live_range *live = &w->live[i];
            assert_false((from < live->first && live->first < to) ||
                         (from < live->taken && live->taken < to));
            changes = changes || live->first == to || live->taken == to;
        }
        assert_true(changes);
    }
}

/* The place of what a step looks at. */
static int check_value(const tti_bucket_memory *w, const tti_program *program, int step,
                       const tutti_value *value, tti_space space) {
    tti_buf buf = program->bufs[value->id];
    size_t first = buf.offset / sizeof(float);
    if (buf.space != space) return 0;
    size_t at = tti_bucket_memory_at(w, step, first);
    int bucket = tti_plan_find_bucket(w->plan, first), n = 0;
    for (int i = 0; i < w->n_live; i++) {
        const tti_live_range *live = &w->live[i];
        if (live->bucket != bucket || step < live->first || step > live->last) continue;
        assert_true(at >= live->offset);
        assert_true(at + (size_t)tti_value_n_elems(value) <= live->offset + size_of(w, live));
        n++;
    }
    T_EQ(n, 1);
    return 1;
}

static void check_window(const tti_plan *plan, const tti_program *program, tti_space space) {
    tti_bucket_memory w;
    int n = 0;
    T_OK(tti_bucket_memory_init(plan, program, space, &w));
    check_places(&w);
    check_changes(&w, program->n_steps);
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        for (int i = 0; i < node->n_in; i++) n += check_value(&w, program, s, node->in[i], space);
        for (int k = 0; k < node->op->n_out; k++)
            n += check_value(&w, program, s, node->out[k], space);
    }
    assert_true(n > 0);
    tti_bucket_memory_fini(&w);
}

T_CASE(every_step_finds_what_it_looks_at) {
    T_UNUSED;
    static const net_fn nets[] = {net_mlp, net_lenet, net_knots, net_tied, net_heads};
    static const size_t bytes[] = {1, SMALL_BUCKET, 1 << 10, 1 << 20};
    for (size_t i = 0; i < TTI_COUNT(nets); i++)
        for (size_t k = 0; k < TTI_COUNT(bytes); k++) {
            tti_plan *plan = net_plan(nets[i], &net_fast, bytes[k]);
            check_window(plan, &plan->shard, TTI_SPACE_PARAM);
            check_window(plan, &plan->shard, TTI_SPACE_GRAD);
            check_window(plan, &plan->eval, TTI_SPACE_PARAM);
            tti_plan_destroy(plan);
        }
}

static int n_live_ranges_of(const tti_bucket_memory *w, int bucket) {
    int n = 0;
    for (int i = 0; i < w->n_live; i++) n += w->live[i].bucket == bucket;
    return n;
}

/* The tied weights leave between the ends of the network and come again, and it all takes less. */
T_CASE(what_is_far_away_is_not_kept) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_tied, &net_fast, SMALL_BUCKET);
    tti_bucket_memory params, grads;
    T_OK(tti_bucket_memory_init(plan, &plan->shard, TTI_SPACE_PARAM, &params));
    T_OK(tti_bucket_memory_init(plan, &plan->shard, TTI_SPACE_GRAD, &grads));
    int tied = tti_plan_find_bucket(plan, plan->slots[tti_plan_find_slot(plan, "tied")].first);
    assert_true(n_live_ranges_of(&params, tied) >= 3);
    for (int b = 0; b < plan->n_buckets; b++) T_EQ(n_live_ranges_of(&grads, b), 1);
    assert_true(params.n_elems < plan->n_flat * 3 / 4);
    assert_true(grads.n_elems < plan->n_flat * 3 / 4);
    tti_bucket_memory_fini(&params);
    tti_bucket_memory_fini(&grads);
    tti_plan_destroy(plan);
}

T_CASE(one_bucket_is_all_of_it) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_tied, &net_fast, 1 << 20);
    tti_bucket_memory w;
    T_OK(tti_bucket_memory_init(plan, &plan->shard, TTI_SPACE_PARAM, &w));
    T_EQ(w.n_live, 1);
    T_EQ(w.n_elems, plan->n_flat);
    T_EQ(tti_bucket_memory_at(&w, -1, 17), 17);
    tti_bucket_memory_fini(&w);
    tti_plan_destroy(plan);
}

/* Buckets that a segment of a stage reads are loaded in that segment, and released with it. */
static void check_segments(const tti_program *program, const tti_bucket_memory *w) {
    for (int i = 0; i < w->n_live; i++)
        for (int p = 1; p < program->n_segments; p++) {
            int begin = program->segment_first[p];
            assert_true(w->live[i].taken >= begin || w->live[i].last < begin);
        }
}

static tti_plan *plan_of_stage(net_fn net, int stage, int n_chunks) {
    tti_target target = net_fast;
    target.n_stages = 2, target.stage = stage, target.n_chunks = n_chunks;
    return net_plan(net, &target, SMALL_BUCKET);
}

T_CASE(no_use_is_in_two_segments) {
    T_UNUSED;
    for (int stage = 0; stage < 2; stage++)
        for (int n_chunks = 1; n_chunks <= 2; n_chunks++) {
            tti_plan *plan = plan_of_stage(net_tied, stage, n_chunks);
            const tti_program *programs[] = {&plan->shard, &plan->eval};
            T_EQ(plan->shard.n_segments, 2 * n_chunks);
            for (size_t i = 0; i < TTI_COUNT(programs); i++) {
                tti_bucket_memory w;
                T_OK(tti_bucket_memory_init(plan, programs[i], TTI_SPACE_PARAM, &w));
                check_places(&w);
                check_segments(programs[i], &w);
                check_window(plan, programs[i], TTI_SPACE_PARAM);
                tti_bucket_memory_fini(&w);
            }
            tti_plan_destroy(plan);
        }
}

/* Stages have no groups of parameters: those that lie side by side by chance are one value to an
 * evaluation only where they have one place. */
T_CASE(neighbours_by_chance_are_in_one_bucket) {
    T_UNUSED;
    for (int stage = 0; stage < 2; stage++) {
        tti_plan *plan = plan_of_stage(net_heads, stage, 1);
        check_window(plan, &plan->shard, TTI_SPACE_PARAM);
        check_window(plan, &plan->shard, TTI_SPACE_GRAD);
        check_window(plan, &plan->eval, TTI_SPACE_PARAM);
        tti_plan_destroy(plan);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_finds_what_it_looks_at),
        cmocka_unit_test(what_is_far_away_is_not_kept),
        cmocka_unit_test(one_bucket_is_all_of_it),
        cmocka_unit_test(no_use_is_in_two_segments),
        cmocka_unit_test(neighbours_by_chance_are_in_one_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

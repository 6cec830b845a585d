/* stage_cut_test.c - chunks of equal time, cut where few bytes cross; what cannot be cut. */
#include "passes/stages/stages.h"

#include "ops/weight.h"
#include "passes/nets.h"

/* Layers of one size, and after each something wide that has no parameters. */
static tutti_graph *tower(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = net_x(g);
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        x = tutti_linear(g, x, 64, name);
        x = tutti_tanh(g, x);
        x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, 16, 4));
        x = tutti_sum(g, x, &(tutti_axes){.n = 1, .axis = {2}});
    }
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static tutti_status cut_for(net_fn net, const tti_target *like, tti_stages *s) {
    tti_target target = *like;
    target.stages = s;
    tutti_graph *g = net(true);
    tutti_status st = tti_pipeline_run(&g, &target, "stages");
    tutti_graph_destroy(g);
    return st;
}

static tutti_status cut(net_fn net, tti_stages *s) { return cut_for(net, &(tti_target){0}, s); }

/* The weight of the graph that a single worker runs. */
static double weight_of(net_fn net, const tti_target *target) {
    double weight = 0;
    tutti_graph *g = net(true);
    T_OK(tti_pipeline_run(&g, target, "fuse"));
    T_OK(tti_pass_simplify(&g, target));
    for (int i = 0; i < g->n_nodes; i++)
        weight += tti_node_weight(target->weights, g->nodes[i], target->tf32);
    tutti_graph_destroy(g);
    return weight;
}

/* The weight of all chunks; values that cross a boundary count at both ends. */
static double weight_of_chunks(const tti_stages *s, const tti_target *target) {
    double weight = 0, n_bytes = 0;
    for (int q = 0; q < tti_stages_n_all_chunks(s); q++) weight += s->cost[q];
    for (int i = 0; i < s->train.n; i++) n_bytes += (double)s->train.of[i].n_bytes;
    return weight - n_bytes * target->weights->byte_between; /* a value, and its gradient back */
}

T_CASE(chunks_take_the_same_time) {
    T_UNUSED;
    tti_stages s = {.n_stages = 4, .n_chunks = 1};
    T_OK(cut(tower, &s));
    double least = s.cost[0], most = s.cost[0];
    for (int q = 1; q < 4; q++) {
        least = fmin(least, s.cost[q]);
        most = fmax(most, s.cost[q]);
    }
    assert_true(least > 0 && most < 1.5 * least);
    tti_stages_fini(&s);
}

T_CASE(cuts_are_where_few_bytes_cross) {
    T_UNUSED;
    tti_stages s = {.n_stages = 4, .n_chunks = 2};
    T_OK(cut(tower, &s));
    T_EQ(s.train.n, 2 * 7); /* one value forward, one back, between chunks */
    for (int i = 0; i < s.train.n; i++) {
        T_EQ(s.train.of[i].n_bytes, NET_ROWS * 16 * 4);
        T_EQ(s.train.of[i].to, s.train.of[i].from + 1);
    }
    tti_stages_fini(&s);
}

/* A kind of device whose nodes are fused: all that it runs is in some chunk, and by its weights,
 * where kernels are all that counts, chunks have equally many. */
T_CASE(chunks_are_of_what_is_run) {
    T_UNUSED;
    static const tti_weights kernels = {.kernel = 1, .fused = true};
    tti_target fused = {.fuse = true, .fuse_linear_grad = true, .fuse_loss = true};
    const tti_weights *kinds[] = {&tti_weights_gpu, &kernels};
    for (int i = 0; i < 2; i++) {
        tti_stages s = {.n_stages = 4, .n_chunks = 1};
        fused.weights = kinds[i];
        T_OK(cut_for(tower, &fused, &s));
        double all = weight_of(tower, &fused);
        T_NEAR(weight_of_chunks(&s, &fused) / all, 1, 1e-9);
        for (int q = 0; q < 4; q++) T_NEAR(s.cost[q] / (all / 4), 1, 0.3);
        tti_stages_fini(&s);
    }
}

/* The same layers, and a wide one in front: what counts decides where the model is cut. */
static tutti_graph *funnel(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), 4096, "wide");
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        x = tutti_tanh(g, tutti_linear(g, x, 16, name));
    }
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

T_CASE(weights_decide_where_it_is_cut) {
    T_UNUSED;
    static const tti_weights bytes = {.byte = 1, .byte_between = 1}, kernels = {.kernel = 1};
    tti_stages of_bytes = {.n_stages = 2, .n_chunks = 1}, of_kernels = of_bytes;
    T_OK(cut_for(funnel, &(tti_target){.weights = &bytes}, &of_bytes));
    T_OK(cut_for(funnel, &(tti_target){.weights = &kernels}, &of_kernels));
    assert_string_equal(of_bytes.start[1].param, "layer0.weight");
    assert_string_equal(of_kernels.start[1].param, "layer4.weight");
    tti_stages_fini(&of_bytes);
    tti_stages_fini(&of_kernels);
}

T_CASE(slots_go_forward_and_back) {
    T_UNUSED;
    tti_stages s = {.n_stages = 3, .n_chunks = 2};
    int n = 2 * tti_stages_n_all_chunks(&s), seen[12] = {0};
    for (int m = 0; m < n; m++) {
        int stage = tti_sched_slot_stage(&s, m), segment = tti_sched_slot_segment(&s, m);
        T_EQ(tti_sched_slot_of(&s, stage, segment), m);
        T_EQ(tti_sched_slot_stage(&s, n - 1 - m), stage); /* back the way it came */
        T_EQ(tti_sched_slot_segment(&s, n - 1 - m), 3 - segment);
        seen[stage * 4 + segment]++;
    }
    for (int i = 0; i < n; i++) T_EQ(seen[i], 1);
}

T_CASE(names_of_boundaries) {
    T_UNUSED;
    T_EQ(tti_stage_boundary_number("pipe.0"), 0);
    T_EQ(tti_stage_boundary_number("back.17"), 17);
    T_EQ(tti_stage_boundary_number("pipe.weight"), -1);
    T_EQ(tti_stage_boundary_number("pipe."), -1);
    T_EQ(tti_stage_boundary_number("x"), -1);
}

T_CASE(a_model_of_few_layers_has_few_stages) {
    T_UNUSED;
    tti_stages s = {.n_stages = 3, .n_chunks = 1};
    T_FAILS(cut(net_mlp, &s), TUTTI_E_INVALID,
            "3 stages, but the model can be divided into at most 2 stages; give at most "
            "parallel.pipeline=2");
    tti_stages_fini(&s);
    s = (tti_stages){.n_stages = 2, .n_chunks = 2};
    T_FAILS(cut(net_mlp, &s), TUTTI_E_INVALID,
            "2 stages of 2 chunks, but the model can be divided into at most 2 chunks; give "
            "at most parallel.pipeline=1, or fewer chunks");
    tti_stages_fini(&s);
}

/* More layers than a machine word has bits; the first weight is the last one's too. */
static tutti_graph *mast(bool training) {
    enum { N_LAYERS = 80 };
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(6, 6), &init, true);
    tutti_value *x = tutti_matmul(g, net_x(g), w);
    for (int i = 0; i < N_LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        x = tutti_tanh(g, tutti_linear(g, x, 6, name));
    }
    return net_finish(g, tutti_linear(g, tutti_matmul(g, x, w), NET_CLASSES, "out"));
}

T_CASE(stages_have_no_limit) {
    T_UNUSED;
    for (int n_chunks = 1; n_chunks <= 2; n_chunks++) {
        tti_stages s = {.n_stages = n_chunks == 1 ? 72 : 40, .n_chunks = n_chunks};
        s.stage = s.n_stages - 1;
        T_OK(cut(mast, &s));
        for (int q = 0; q < tti_stages_n_all_chunks(&s); q++) assert_true(s.cost[q] > 0);
        T_EQ(s.n_tied, 1);
        assert_string_equal(s.tied[0].name, "w");
        T_EQ(s.tied[0].n_stages, 2);
        assert_true(tti_tied_has(&s.tied[0], 0) && !tti_tied_has(&s.tied[0], 1));
        assert_true(tti_tied_has(&s.tied[0], s.stage) && !tti_tied_has(&s.tied[0], s.stage - 1));
        T_EQ(tti_tied_count_below(&s.tied[0], 0), 0);
        T_EQ(tti_tied_count_below(&s.tied[0], s.stage), 1);
        tti_stages_fini(&s);
    }
}

/* Blocks of two layers over many positions.  In tensor shards the second layer of a block adds its
 * bias after a collective of terms; evaluation, which reduces no gradients, gathers the few
 * weights instead and adds it in the layer. */
static tutti_graph *blocks(bool training) {
    enum { POSITIONS = 64, WIDTH = 32 };
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_linear(g, net_x(g), POSITIONS * WIDTH, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, POSITIONS, WIDTH));
    for (int i = 0; i < 4; i++) {
        char name[3][16];
        static const char *const parts[] = {"ln", "up", "down"};
        for (int k = 0; k < 3; k++) snprintf(name[k], sizeof name[k], "h%d.%s", i, parts[k]);
        tutti_value *y = tutti_layer_norm(g, x, NULL, name[0]);
        y = tutti_gelu(g, tutti_linear(g, y, 4 * WIDTH, name[1]));
        x = tutti_add(g, x, tutti_linear(g, y, WIDTH, name[2]));
    }
    return net_finish(g, tutti_linear(g, tutti_flatten(g, x), NET_CLASSES, "out"));
}

T_CASE(stages_of_tensor_shards_have_the_parameters_of_training_in_evaluation) {
    T_UNUSED;
    static const tti_attr_arg attrs[] = {TTI_FLOAT("momentum", 0.9), {0}};
    for (int n_stages = 2; n_stages <= 6; n_stages++)
        for (int stage = 0; stage < n_stages; stage++) {
            tti_target target = {.n_tensor = 2, .n_stages = n_stages, .stage = stage};
            tti_plan *plan;
            T_OK(tti_plan_create(&(tti_plan_desc){.train = blocks(true),
                                                  .eval = blocks(false),
                                                  .target = &target,
                                                  .optimizer = "sgd",
                                                  .optimizer_attrs = attrs,
                                                  .bucket_bytes = 1 << 20},
                                 &plan));
            tti_plan_destroy(plan);
        }
}

T_CASE(a_tied_parameter_is_on_the_ranks_that_read_it) {
    T_UNUSED;
    tti_stages s = {.n_stages = 2, .n_chunks = 1};
    T_OK(cut(net_knots, &s));
    T_EQ(s.n_tied, 1);
    assert_string_equal(s.tied[0].name, "w");
    T_EQ(s.tied[0].n_stages, 2);
    T_EQ(s.tied[0].stages[0], 0);
    T_EQ(s.tied[0].stages[1], 1);
    tti_stages_fini(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_take_the_same_time),
        cmocka_unit_test(cuts_are_where_few_bytes_cross),
        cmocka_unit_test(chunks_are_of_what_is_run),
        cmocka_unit_test(weights_decide_where_it_is_cut),
        cmocka_unit_test(slots_go_forward_and_back),
        cmocka_unit_test(names_of_boundaries),
        cmocka_unit_test(a_model_of_few_layers_has_few_stages),
        cmocka_unit_test(stages_have_no_limit),
        cmocka_unit_test(stages_of_tensor_shards_have_the_parameters_of_training_in_evaluation),
        cmocka_unit_test(a_tied_parameter_is_on_the_ranks_that_read_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

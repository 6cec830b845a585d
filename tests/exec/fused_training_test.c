/* fused_training_test.c - what a device asks of the passes for training
 * (tti_backend.fuses_training) run on the host by the plain meaning of the ops: steps, memory and
 * updates fit together. */
#include <stdlib.h>

#include "exec/workers.h"
#include "passes/deep_nets.h"

enum { WIDTH = 8, POSITIONS = 5 };

/* A transformer with the gelu of GPT-2, whose gradient goes into the product before it. */
static tutti_graph *net_tanh_gpt(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_attention_desc heads = {.heads = 2, .causal = true};
    tutti_value *x = tutti_linear(g, net_x(g), POSITIONS * WIDTH, "embed");
    x = tutti_reshape(g, x, &TUTTI_SHAPE(NET_ROWS, POSITIONS, WIDTH));
    for (int i = 0; i < 3; i++) {
        char name[6][32];
        static const char *const parts[] = {"ln1", "qkv", "proj", "ln2", "up", "down"};
        for (int k = 0; k < 6; k++) snprintf(name[k], sizeof name[k], "h%d.%s", i, parts[k]);
        tutti_value *y = tutti_linear(g, tutti_layer_norm(g, x, NULL, name[0]), 24, name[1]);
        y = tutti_attention(g, y, NULL, &heads);
        x = tutti_add(g, x, tutti_linear(g, y, WIDTH, name[2]));
        y = tutti_linear(g, tutti_layer_norm(g, x, NULL, name[3]), 32, name[4]);
        x = tutti_add(g, x, tutti_linear(g, tutti_gelu_tanh(g, y), WIDTH, name[5]));
    }
    x = tutti_flatten(g, tutti_layer_norm(g, x, NULL, "ln"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static tutti_graph *net_blocks_alone(bool training) { return net_blocks(training, false); }
static tutti_graph *net_wide_blocks(bool training) { return net_blocks_of(8, training, false); }

static const tti_target apart = {.fuse = true};
static const tti_target joint = {.fuse = true,
                                 .chains_any_float = true,
                                 .fuse_batch_norm = true,
                                 .fuse_residual_norm = true,
                                 .fuse_linear_grad = true,
                                 .fuse_loss = true,
                                 .fuse_sums = true};

static workers trained(net_fn net, tti_target target, tutti_dtype dtype, int n_steps) {
    target.compute_dtype = dtype;
    target.low_precision_residual = true;
    workers c = {.net = net,
                 .target = &target,
                 .n_ranks = 1,
                 .n_compute_threads = 2,
                 .n_steps = n_steps,
                 .exec = {.alg = TUTTI_ALG_DIRECT, .reference = true}};
    workers_run(&c);
    c.target = NULL;
    return c;
}

/* How far all parameters of a are from those of b, whose plan may have them in another order. */
static double distance(const workers *a, const workers *b) {
    double sum = 0;
    T_EQ(a->plan->n_slots, b->plan->n_slots);
    for (int s = 0; s < a->plan->n_slots; s++) {
        const tti_slot *slot = &a->plan->slots[s];
        int other = tti_plan_find_slot(b->plan, slot->param->name);
        assert_true(other >= 0);
        const float *x = a->params[0] + slot->first;
        const float *y = b->params[0] + b->plan->slots[other].first;
        for (size_t e = 0; e < slot->n_elems; e++) sum += pow((double)x[e] - (double)y[e], 2);
    }
    return sqrt(sum);
}

/* tolerance: of the losses, and of the way that the parameters have gone. */
static void expect_alike(net_fn net, tutti_dtype dtype, int n_steps, double tolerance) {
    workers a = trained(net, apart, dtype, n_steps), b = trained(net, joint, dtype, n_steps);
    workers first = trained(net, apart, dtype, 0);
    assert_true(b.plan->shard.n_steps < a.plan->shard.n_steps);
    T_EQ(net_count_ops(b.plan->shard.graph, "cross_entropy_and_grad"), 1);
    for (int step = 0; step < a.n_steps; step++) {
        double want = a.result[0][step].loss_sum, got = b.result[0][step].loss_sum;
        T_NEAR(got / want, 1, tolerance);
    }
    double off = distance(&a, &b), way = distance(&a, &first);
    if (!(way > 0 && off < tolerance * way)) fail_msg("%g off after a way of %g", off, way);
    workers_fini(&a);
    workers_fini(&b);
    workers_fini(&first);
}

T_CASE(in_f32) {
    T_UNUSED;
    static const net_fn nets[] = {net_tanh_gpt, net_residual, net_resnet, net_blocks_alone,
                                  net_wide_blocks};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) expect_alike(nets[i], TUTTI_F32, 4, 1e-5);
}

/* Parameters side by side, with and without: the order of slots is another, the steps are not. */
T_CASE(neighbours_learn_as_others) {
    T_UNUSED;
    static const tti_target plain = {0};
    const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16};
    for (int i = 0; i < 2; i++) {
        workers a = trained(net_heads, plain, dtypes[i], 3),
                b = trained(net_heads, apart, dtypes[i], 3);
        workers first = trained(net_heads, plain, dtypes[i], 0);
        double off = distance(&a, &b), way = distance(&a, &first), share = i ? 0.05 : 1e-5;
        assert_true(b.plan->shard.n_steps + 4 <= a.plan->shard.n_steps);
        if (!(way > 0 && off < share * way)) fail_msg("%g off after a way of %g", off, way);
        workers_fini(&a);
        workers_fini(&b);
        workers_fini(&first);
    }
}

T_CASE(in_bf16) {
    T_UNUSED;
    static const net_fn nets[] = {net_tanh_gpt, net_residual};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) expect_alike(nets[i], TUTTI_BF16, 2, 0.05);
}

T_CASE(the_sums_are_fused_too) {
    T_UNUSED;
    workers c = trained(net_tanh_gpt, joint, TUTTI_BF16, 1);
    T_EQ(net_count_ops(c.plan->shard.graph, "matmul_gelu_grad_sums"), 3);
    assert_true(net_count_ops(c.plan->shard.graph, "layer_norm_grads_sums") >= 5);
    workers_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_f32),
        cmocka_unit_test(neighbours_learn_as_others),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(the_sums_are_fused_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

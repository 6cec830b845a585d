/* mixed_precision_test.c - networks trained by the executor with recomputation and in 16 bits: the
 * same bits there, nearly the same losses here, any number of workers alike. */
#include <stdlib.h>

#include "exec/workers.h"
#include "passes/deep_nets.h"

static workers trained(net_fn net, const tti_target *target, int n_ranks, bool reference) {
    workers c = {.net = net,
                 .target = target,
                 .n_ranks = n_ranks,
                 .n_compute_threads = 2,
                 .n_steps = 4,
                 .bucket_bytes = 4096,
                 .exec = {.alg = TUTTI_ALG_DIRECT, .reference = reference}};
    workers_run(&c);
    return c;
}

static tti_target cpu_target(void) {
    return (tti_target){.fuse = true,
                        .prefers_channels_last = tti_backend_cpu.prefers_channels_last};
}

T_CASE(recomputation_keeps_every_bit) {
    T_UNUSED;
    static const net_fn nets[] = {net_lenet, net_chain, net_residual, net_resnet, net_gpt};
    for (size_t n = 0; n < TTI_COUNT(nets); n++) {
        tti_target none = cpu_target(), block = none;
        block.recompute = TTI_RECOMPUTE_BLOCK;
        workers a = trained(nets[n], &none, 1, false), b = trained(nets[n], &block, 2, false);
        assert_true(b.plan->shard.arena_bytes <= a.plan->shard.arena_bytes);
        if (nets[n] != net_lenet) assert_true(b.plan->shard.n_steps > a.plan->shard.n_steps);
        for (int step = 0; step < a.n_steps; step++) {
            assert_true(a.result[0][step].loss_sum == b.result[0][step].loss_sum);
            assert_true(a.result[0][step].params_hash == b.result[1][step].params_hash);
        }
        assert_memory_equal(a.params[0], b.params[0], a.plan->n_flat * sizeof(float));
        workers_fini(&a);
        workers_fini(&b);
    }
}

T_CASE(sixteen_bits_learn_nearly_alike) {
    T_UNUSED;
    static const net_fn nets[] = {net_mlp, net_lenet};
    static const struct {
        tutti_dtype dtype;
        double tolerance;
    } rows[] = {{TUTTI_BF16, 0.02}, {TUTTI_F16, 0.003}};
    for (size_t n = 0; n < TTI_COUNT(nets); n++)
        for (size_t i = 0; i < TTI_COUNT(rows); i++) {
            tti_target full = cpu_target(), low = full;
            low.compute_dtype = rows[i].dtype;
            low.recompute = TTI_RECOMPUTE_BLOCK;
            workers a = trained(nets[n], &full, 1, false), b = trained(nets[n], &low, 1, false);
            workers c = trained(nets[n], &low, 2, false);
            for (int step = 0; step < a.n_steps; step++) {
                double want = a.result[0][step].loss_sum, got = b.result[0][step].loss_sum;
                T_NEAR(got / want, 1, rows[i].tolerance);
                assert_true(got != want);
                T_EQ(b.result[0][step].params_hash == c.result[1][step].params_hash, true);
            }
            workers_fini(&a);
            workers_fini(&b);
            workers_fini(&c);
        }
}

/* Times a power of two and divided by it: nothing is left of it. */
static double loss_scale_of_run;

static const char *train_scaled(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    const char *failure = NULL;
    for (int step = 0; step < c->n_steps && !failure; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        desc.loss_scale = loss_scale_of_run;
        if (tti_exec_step(exec, &desc, &c->result[rank][step]) != TUTTI_OK)
            failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    free(batch);
    return failure;
}

T_CASE(a_scale_leaves_no_trace) {
    T_UNUSED;
    tti_target target = cpu_target();
    target.loss_scale = true;
    workers runs[2];
    for (int i = 0; i < 2; i++) {
        loss_scale_of_run = i ? 4096 : 1;
        runs[i] = (workers){.net = net_mlp,
                            .target = &target,
                            .n_ranks = 1,
                            .n_compute_threads = 2,
                            .n_steps = 4,
                            .fn = train_scaled,
                            .exec = {.alg = TUTTI_ALG_DIRECT, .clip_norm = 0.5}};
        workers_run(&runs[i]);
    }
    for (int step = 0; step < 4; step++) {
        assert_true(runs[0].result[0][step].params_hash == runs[1].result[0][step].params_hash);
        T_NEAR(runs[0].result[0][step].grad_norm, runs[1].result[0][step].grad_norm, 1e-12);
        assert_true(runs[0].result[0][step].grad_norm > 0);
    }
    workers_fini(&runs[0]);
    workers_fini(&runs[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recomputation_keeps_every_bit),
        cmocka_unit_test(sixteen_bits_learn_nearly_alike),
        cmocka_unit_test(a_scale_leaves_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

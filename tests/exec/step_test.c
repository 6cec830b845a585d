/* step_test.c - a few steps of small networks, by any number of ranks and compute threads: the same
 * bits. */
#include "exec/workers.h"

static const int rank_counts[] = {1, 2, 3, 4, 8};
static const tutti_comm_alg algorithms[] = {TUTTI_ALG_AUTO, TUTTI_ALG_DIRECT, TUTTI_ALG_TREE};

static workers new_workers(net_fn net, int n_ranks, int n_compute_threads) {
    return (workers){.net = net,
                     .target = &net_fast,
                     .n_ranks = n_ranks,
                     .n_compute_threads = n_compute_threads,
                     .n_steps = 3,
                     .exec = {.clip_norm = 0.5}};
}

static void check_net(net_fn net) {
    workers first = new_workers(net, 1, 1);
    workers_run(&first);
    for (size_t w = 0; w < TTI_COUNT(rank_counts); w++)
        for (int n_compute_threads = 1; n_compute_threads <= 3; n_compute_threads++)
            for (int many = 0; many < 2; many++) {
                workers c = new_workers(net, rank_counts[w], n_compute_threads);
                c.bucket_bytes = many ? 1 : 1 << 20;
                c.exec.alg = algorithms[(w + (size_t)n_compute_threads + (size_t)many) % 3];
                workers_run(&c);
                assert_true(many ? c.plan->n_buckets > 3 : c.plan->n_buckets == 1);
                workers_expect_same(&c, &first);
                workers_fini(&c);
            }
    workers_fini(&first);
}

T_CASE(mlp_by_any_number_of_workers) {
    T_UNUSED;
    check_net(net_mlp);
}

T_CASE(lenet_by_any_number_of_workers) {
    T_UNUSED;
    check_net(net_lenet);
}

/* Two parameters share a gradient, which is read after it was written. */
T_CASE(shared_gradients_by_any_number_of_workers) {
    T_UNUSED;
    check_net(net_knots);
}

T_CASE(every_exact_algorithm_gives_the_same_bits) {
    T_UNUSED;
    workers first = new_workers(net_mlp, 1, 1);
    workers_run(&first);
    for (size_t a = 0; a < TTI_COUNT(algorithms); a++)
        for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
            workers c = new_workers(net_mlp, n_ranks, 1);
            c.exec.alg = algorithms[a];
            c.bucket_bytes = 200;
            workers_run(&c);
            workers_expect_same(&c, &first);
            workers_fini(&c);
        }
    workers_fini(&first);
}

/* What is learnt is learnt: the loss falls, steps differ, and the count is that of the rows. */
T_CASE(the_loss_falls) {
    T_UNUSED;
    workers c = new_workers(net_knots, 2, 2);
    c.n_steps = WORKERS_MAX_STEPS;
    c.exec.clip_norm = 0;
    workers_run(&c);
    const tti_step_result *r = c.result[0];
    for (int s = 0; s < c.n_steps; s++) {
        T_NEAR(r[s].count, WORKERS_SHARDS * NET_ROWS, 0);
        assert_true(r[s].correct >= 0 && r[s].correct <= r[s].count);
        assert_true(isfinite(r[s].loss_sum) && !r[s].skipped);
        if (s > 0) assert_true(r[s].params_hash != r[s - 1].params_hash);
    }
    assert_true(r[c.n_steps - 1].loss_sum < r[0].loss_sum);
    workers_fini(&c);
}

T_CASE(fast_mode_is_close) {
    T_UNUSED;
    static const tutti_comm_alg all[] = {TUTTI_ALG_AUTO, TUTTI_ALG_RING, TUTTI_ALG_TREE};
    workers first = new_workers(net_lenet, 1, 1);
    workers_run(&first);
    for (size_t a = 0; a < TTI_COUNT(all); a++)
        for (size_t w = 0; w < TTI_COUNT(rank_counts); w++) {
            workers c = new_workers(net_lenet, rank_counts[w], 2);
            c.exec.fast = true;
            c.exec.alg = all[a];
            c.bucket_bytes = w % 2 ? 100 : 0;
            workers_run(&c);
            T_NEAR(workers_distance(&c, &first), 0, 1e-4);
            workers_fini(&c);
        }
    workers_fini(&first);
}

/* Gradients that travel in 16 bits: near what f32 gives, not the same, and alike on all ranks. */
T_CASE(rounded_gradients_are_close) {
    T_UNUSED;
    static const tutti_dtype wires[] = {TUTTI_BF16, TUTTI_F16};
    workers first = new_workers(net_lenet, 1, 1);
    workers_run(&first);
    for (int i = 0; i < 2; i++)
        for (int n_ranks = 2; n_ranks <= 4; n_ranks += 2) {
            workers c = new_workers(net_lenet, n_ranks, 2);
            c.exec.fast = true;
            c.exec.wire = wires[i];
            c.bucket_bytes = n_ranks == 2 ? 100 : 0;
            workers_run(&c);
            double distance = workers_distance(&c, &first);
            assert_true(distance > 1e-6 && distance < (i == 0 ? 2e-2 : 2e-3));
            size_t n_bytes = c.plan->n_flat * sizeof(float);
            for (int r = 1; r < n_ranks; r++) T_EQ(memcmp(c.params[0], c.params[r], n_bytes), 0);
            workers_fini(&c);
        }
    workers_fini(&first);
}

/* Pictures so bright that the gradient is far above the largest number of f16. */
static const char *bright_images_fail(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    uint64_t before, after;
    workers_fill(batch, 0);
    for (size_t s = 0; s < WORKERS_SHARDS; s++)
        for (size_t i = 0; i < NET_ROWS * WORKERS_X; i++) batch->x[s][i] *= 1e6f;
    tti_step_desc desc = workers_step(batch, exec, 0);
    COMM_OK(tti_exec_params_hash(exec, &before));
    COMM_FAILS(tti_exec_step(exec, &desc, &c->result[rank][0]), TUTTI_E_NUMERICS, "gradient");
    COMM_OK(tti_exec_params_hash(exec, &after));
    free(batch);
    return before == after ? NULL : "the parameters have changed";
}

T_CASE(gradients_above_f16_leave_the_parameters_alone) {
    T_UNUSED;
    workers c = new_workers(net_mlp, 2, 1);
    c.exec.fast = true;
    c.exec.wire = TUTTI_F16;
    c.exec.clip_norm = 0; /* which looks at the gradient in any case */
    c.fn = bright_images_fail;
    workers_run(&c);
    workers_fini(&c);
}

T_CASE(the_reference_learns_the_same) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        workers fast = new_workers(net_all[i], 1, 2), slow = new_workers(net_all[i], 1, 2);
        slow.exec.reference = true;
        slow.target = &net_plain;
        workers_run(&fast);
        workers_run(&slow);
        T_NEAR(workers_distance(&fast, &slow), 0, 1e-4);
        workers_fini(&fast);
        workers_fini(&slow);
    }
}

static const char *ring_is_refused(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, 0);
    COMM_FAILS(tti_exec_step(exec, &desc, &c->result[rank][0]), TUTTI_E_INVALID, "ring");
    free(batch);
    return NULL;
}

T_CASE(an_order_that_depends_on_the_ranks_is_refused) {
    T_UNUSED;
    for (int many = 0; many < 2; many++) {
        workers c = new_workers(net_mlp, 2, 1);
        c.bucket_bytes = many ? 1 : 0;
        c.exec.alg = TUTTI_ALG_RING;
        c.fn = ring_is_refused;
        workers_run(&c);
        workers_fini(&c);
    }
}

/* ---- a loss that is not finite ---- */

static tutti_graph *net_smooth(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_tanh(g, tutti_linear(g, net_x(g), 7, "fc1"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

/* A NaN in a sample of shard 5, then a good step. */
static const char *compute_nan(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    batch->x[5][8] = NAN;
    size_t n_bytes = c->plan->n_flat * sizeof(float);
    float *before = malloc(n_bytes);
    memcpy(before, tti_exec_params(exec), n_bytes);
    tti_step_desc desc = workers_step(batch, exec, 3);
    tti_step_result *result = &c->result[rank][0];
    COMM_FAILS(
        tti_exec_step(exec, &desc, result), TUTTI_E_NUMERICS,
        "step 4: the loss is not finite (shard 5 of 8, first in the samples: one has a value "
        "that is not finite)");
    COMM_TRUE(result->skipped);
    COMM_TRUE(memcmp(before, tti_exec_params(exec), n_bytes) == 0);
    workers_fill(batch, 0);
    COMM_OK(tti_exec_step(exec, &desc, result)); /* the group is still whole */
    COMM_TRUE(!result->skipped && memcmp(before, tti_exec_params(exec), n_bytes) != 0);
    free(before);
    free(batch);
    return NULL;
}

T_CASE(a_nan_names_step_and_layer_and_leaves_the_parameters) {
    T_UNUSED;
    workers first = new_workers(net_smooth, 1, 1);
    first.fn = compute_nan;
    first.n_steps = 1;
    workers_run(&first);
    static const int counts[] = {1, 2, 3, 8};
    for (size_t i = 0; i < TTI_COUNT(counts); i++) {
        workers c = new_workers(net_smooth, counts[i], 2);
        c.bucket_bytes = i % 2 ? 1 : 0;
        c.fn = compute_nan;
        c.n_steps = 1;
        workers_run(&c);
        workers_expect_same(&c, &first);
        workers_fini(&c);
    }
    workers_fini(&first);
}

/* ---- evaluation ---- */

static const char *evaluate(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    for (int i = 0; i < 2; i++) { /* sums go on over the batches */
        workers_fill(batch, i);
        if (i == 1) /* the last batch has only 13 samples */
            for (int row = 13; row < WORKERS_SHARDS * NET_ROWS; row++)
                batch->target[row / NET_ROWS][row % NET_ROWS] = -1;
        tti_step_desc desc = workers_step(batch, exec, 0);
        COMM_OK(tti_exec_eval(exec, &desc, &c->result[rank][0]));
    }
    free(batch);
    return NULL;
}

T_CASE(evaluation_counts_every_sample_once) {
    T_UNUSED;
    workers first = new_workers(net_lenet, 1, 1);
    first.fn = evaluate;
    first.n_steps = 1;
    workers_run(&first);
    T_NEAR(first.result[0][0].count, WORKERS_SHARDS * NET_ROWS + 13, 0);
    assert_true(first.result[0][0].loss_sum > 0);
    for (size_t w = 0; w < TTI_COUNT(rank_counts); w++)
        for (int n_compute_threads = 1; n_compute_threads <= 3; n_compute_threads += 2) {
            workers c = new_workers(net_lenet, rank_counts[w], n_compute_threads);
            c.bucket_bytes = 1;
            c.fn = evaluate;
            c.n_steps = 1;
            workers_run(&c);
            workers_expect_same(&c, &first);
            workers_fini(&c);
        }
    workers_fini(&first);
}

/* ---- votes ---- */

static const char *vote(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, 0);
    for (int step = 0; step < 3; step++) {
        desc.vote = rank < step;
        COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][step]));
        COMM_TRUE(c->result[rank][step].n_votes == step);
    }
    free(batch);
    return NULL;
}

T_CASE(votes_are_counted_for_all) {
    T_UNUSED;
    workers c = new_workers(net_mlp, 3, 1);
    c.fn = vote;
    workers_run(&c);
    workers_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlp_by_any_number_of_workers),
        cmocka_unit_test(lenet_by_any_number_of_workers),
        cmocka_unit_test(shared_gradients_by_any_number_of_workers),
        cmocka_unit_test(every_exact_algorithm_gives_the_same_bits),
        cmocka_unit_test(the_loss_falls),
        cmocka_unit_test(fast_mode_is_close),
        cmocka_unit_test(rounded_gradients_are_close),
        cmocka_unit_test(gradients_above_f16_leave_the_parameters_alone),
        cmocka_unit_test(the_reference_learns_the_same),
        cmocka_unit_test(an_order_that_depends_on_the_ranks_is_refused),
        cmocka_unit_test(a_nan_names_step_and_layer_and_leaves_the_parameters),
        cmocka_unit_test(evaluation_counts_every_sample_once),
        cmocka_unit_test(votes_are_counted_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

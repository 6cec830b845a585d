/* hybrid_test.c - ways along the data axis beside workers that divide the model: batch norm joined
 * over all shards, partitioned gradients and parameters, what is compressed, own updates. */
#include "base/fault.h"
#include "exec/grid_workers.h"

enum { CHANNELS = 8 };

static tutti_graph *blocks(bool training) { return net_blocks_of(CHANNELS, training, false); }
static tutti_graph *joined(bool training) { return net_blocks_of(CHANNELS, training, true); }

static tutti_graph *mlp(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_gelu(g, tutti_linear(g, net_x(g), 16, "fc1"));
    x = tutti_dropout(g, x, 0.3, "drop");
    x = tutti_layer_norm(g, tutti_linear(g, x, 8, "fc2"), NULL, "norm");
    x = tutti_gelu(g, tutti_linear(g, x, 12, "fc3"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc4"));
}

static tutti_graph *tied(bool training) { return net_same_ends(training, 0); }

static grid alone(net_fn net) {
    grid g = {.size = {1, 1, 1}};
    grid_run(&g, net, NULL);
    return g;
}

/* ---- joins ---- */

static void expect_joined(const tti_mesh_at *sizes, size_t n) {
    grid one = alone(joined), own = alone(blocks);
    assert_true(fabs(one.result[0][2].loss_sum - own.result[0][2].loss_sum) > 1e-3);
    for (size_t i = 0; i < n; i++) {
        grid g = {.size = sizes[i]}, few = {.size = {1, sizes[i].stage, sizes[i].tensor}};
        grid_run(&g, joined, one.whole);
        grid_expect_near(&g, &one);
        grid_run(&few, joined, one.whole);
        grid_expect_same(&g, &few);
        grid_fini(&few);
        grid parts = {.size = sizes[i], .n_compute_threads = 1 + (int)i % 3};
        parts.exec.zero = 3 - (int)(i % 2);
        grid_run(&parts, joined, one.whole);
        grid_expect_same(&parts, &g);
        grid_fini(&parts);
        grid_fini(&g);
    }
    grid_fini(&one);
    grid_fini(&own);
}

T_CASE(norms_are_joined_beside_tensor_shards) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{3, 1, 2}, {2, 1, 4}};
    expect_joined(sizes, TTI_COUNT(sizes));
}

T_CASE(norms_are_joined_in_stages) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{3, 2, 1}, {2, 4, 1}, {2, 2, 2}};
    expect_joined(sizes, TTI_COUNT(sizes));
}

static void run_with_fault(grid *g, const char *fault, net_fn net) {
    T_OK(tti_fault_set(fault));
    grid_run(g, net, NULL);
    T_OK(tti_fault_set(NULL));
}

static void expect_failure(const grid *g, int rank, const char *why) {
    if (!g->failure[rank] || !strstr(g->failure[rank], why))
        fail_msg("rank %d: %s", rank, g->failure[rank] ? g->failure[rank] : "nothing");
}

/* Who waits at a join, or for parameters, for a shard that cannot be computed hears why, as all
 * others do. */
T_CASE(a_stage_that_fails_keeps_nobody_waiting) {
    T_UNUSED;
    static const char *const faults[] = {"pipe.backward:fail@rank=1,step=2",
                                         "pipe.forward:fail@rank=0,step=1"};
    for (int i = 0; i < 6; i++) {
        grid g = {.size = {2, 2, 1}, .may_fail = true};
        g.exec.zero = i < 2 ? 0 : i < 4 ? 2 : 3;
        run_with_fault(&g, faults[i % 2], i < 4 ? joined : mlp);
        for (int r = 0; r < 4; r++)
            expect_failure(&g, r, i % 2 ? "stage 0 cannot compute" : "stage 1 cannot compute");
        grid_fini(&g);
    }
}

/* One copy of the model ends: the other one waits for nothing that it was to fetch. */
T_CASE(a_copy_that_fails_keeps_no_other_waiting) {
    T_UNUSED;
    for (int i = 0; i < 2; i++) {
        grid g = {.size = {2, 2, 1}, .may_fail = true};
        g.exec.zero = 3;
        run_with_fault(&g, "exec.compute:fail@rank=1,step=1", i ? joined : mlp);
        for (int r = 0; r < 4; r++) expect_failure(&g, r, r < 2 ? "" : "cannot compute");
        grid_fini(&g);
    }
}

/* The other compute threads of the failed worker, and those of its peer on the tensor axis, leave
 * their collectives at once. */
T_CASE(a_compute_thread_that_fails_keeps_no_exchange_waiting) {
    T_UNUSED;
    static const char *const faults[] = {"exec.compute:fail@rank=0,3", "exec.shard:fail@rank=0,5"};
    for (size_t i = 0; i < TTI_COUNT(faults); i++)
        for (int n_compute_threads = 2; n_compute_threads <= 3; n_compute_threads++) {
            grid g = {.size = {1, 1, 2}, .n_compute_threads = n_compute_threads, .may_fail = true};
            run_with_fault(&g, faults[i], mlp);
            for (int r = 0; r < 2; r++) expect_failure(&g, r, "cannot compute");
            grid_fini(&g);
        }
}

/* A stage that could not fetch sends no values made of anything else: the other stages of its copy
 * hear why. */
T_CASE(a_fetch_that_fails_is_reported_to_other_stages) {
    T_UNUSED;
    for (int i = 0; i < 2; i++) {
        grid g = {.size = {2, 2, 1}, .may_fail = true};
        g.exec.zero = 3;
        run_with_fault(&g, "sharded.fetch:fail@rank=1,1", i ? joined : mlp);
        for (int r = 2; r < 4; r++) expect_failure(&g, r, "worker 1 cannot fetch");
        grid_fini(&g);
    }
}

/* ---- parts on the data axis ---- */

T_CASE(gradients_and_parameters_in_parts) {
    T_UNUSED;
    static const struct {
        net_fn net;
        tti_mesh_at size;
    } rows[] = {{mlp, {2, 1, 2}},    {mlp, {2, 1, 4}},  {blocks, {3, 1, 2}},
                {blocks, {3, 2, 1}}, {tied, {2, 2, 1}}, {tied, {2, 2, 2}}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        grid one = alone(rows[i].net), whole = {.size = rows[i].size};
        grid_run(&whole, rows[i].net, one.whole);
        for (int zero = 1; zero <= 3; zero++) {
            grid g = {.size = rows[i].size, .n_compute_threads = 1 + (zero + (int)i) % 3};
            g.exec.zero = zero;
            grid_run(&g, rows[i].net, one.whole);
            grid_expect_near(&g, &one);
            grid_expect_same(&g, &whole);
            grid_fini(&g);
        }
        grid_fini(&whole);
        grid_fini(&one);
    }
}

static tutti_graph *straight(bool training) { return net_straight(training, true); }

/* The first step of a stage wants what was fetched. */
T_CASE(joined_stages_begin_with_a_fetch) {
    T_UNUSED;
    grid one = alone(straight), g = {.size = {2, 2, 1}, .n_compute_threads = 1};
    g.exec.zero = 3;
    grid_run(&g, straight, one.whole);
    grid_expect_near(&g, &one);
    grid_fini(&g);
    grid_fini(&one);
}

/* Some have fewer micro-batch groups than others, or none of a turn; parameters come for each part
 * of a micro-batch group. */
T_CASE(stages_fetch_for_each_part) {
    T_UNUSED;
    static const struct {
        tti_mesh_at size;
        int n_compute_threads, n_chunks;
        bool uneven;
    } rows[] = {{{2, 2, 1}, 1, 2, false}, {{2, 2, 1}, 2, 2, false}, {{3, 2, 1}, 1, 1, false},
                {{2, 2, 1}, 1, 1, true},  {{2, 4, 1}, 1, 1, false}, {{5, 1, 1}, 1, 1, false}};
    grid one = {.size = {1, 1, 1}, .exec = {.ema = 0.8}};
    grid_run(&one, mlp, NULL);
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        grid g = {.size = rows[i].size,
                  .n_compute_threads = rows[i].n_compute_threads,
                  .exec = {.ema = 0.8, .zero = 3}};
        grid whole = {.size = rows[i].size,
                      .n_compute_threads = rows[i].n_compute_threads,
                      .exec = {.ema = 0.8}};
        g.n_chunks = whole.n_chunks = rows[i].n_chunks;
        g.uneven = g.may_differ = rows[i].uneven;
        grid_run(&whole, mlp, one.whole);
        grid_run(&g, mlp, one.whole);
        grid_expect_near(&g, &one);
        grid_expect_same(&g, &whole);
        grid_fini(&g);
        grid_fini(&whole);
    }
    grid_fini(&one);
}

/* ---- less that travels ---- */

/* A compressed matrix is sent for each of its tensor shards.  The matrices of a stage are whole, so
 * a stage sends the same as one worker. */
T_CASE(stages_compress_as_one_worker_does) {
    T_UNUSED;
    for (int k = TTI_COMPRESS_TOPK; k <= TTI_COMPRESS_POWERSGD; k++) {
        grid one = {.size = {2, 1, 1}}, sum = {.size = {2, 1, 1}}, g = {.size = {2, 2, 1}};
        one.exec = (tti_exec_desc){
            .fast = true, .compression = (tti_compression)k, .topk = 0.2, .low_rank = 1};
        g.exec = one.exec;
        grid_run(&one, mlp, NULL);
        grid_run(&g, mlp, one.whole);
        grid_run(&sum, mlp, NULL);
        grid_expect_near(&g, &one);
        assert_true(fabs(one.result[0][3].loss_sum - sum.result[0][3].loss_sum) > 1e-4);
        grid_fini(&one);
        grid_fini(&g);
        grid_fini(&sum);
    }
}

/* In tensor shards other elements are the largest, and all that have a parameter go on with the
 * same. */
T_CASE(tensor_shards_compress_alike) {
    T_UNUSED;
    for (int k = TTI_COMPRESS_TOPK; k <= TTI_COMPRESS_POWERSGD; k++) {
        grid one = alone(mlp), g = {.size = {3, 1, 2}};
        g.exec = (tti_exec_desc){
            .fast = true, .compression = (tti_compression)k, .topk = 0.4, .low_rank = 3};
        grid_run(&g, mlp, one.whole);
        T_NEAR(g.result[0][0].loss_sum, one.result[0][0].loss_sum, 1e-5);
        T_NEAR(g.result[0][3].loss_sum, one.result[0][3].loss_sum,
               0.02 * WORKERS_SHARDS * NET_ROWS);
        for (int rank = 1; rank < 6; rank++)
            assert_true(g.result[rank][3].params_hash == g.result[0][3].params_hash);
        grid_fini(&one);
        grid_fini(&g);
    }
}

/* Rounded to 16 bits, or chosen: a worker with partitioned state gets the bits of one with all of
 * it. */
T_CASE(parts_of_what_is_compressed) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{3, 1, 1}, {2, 1, 2}, {2, 2, 1}};
    static const tti_exec_desc ways[] = {
        {.fast = true, .wire = TUTTI_BF16},
        {.fast = true, .wire = TUTTI_F16},
        {.fast = true, .compression = TTI_COMPRESS_TOPK, .topk = 0.3},
        {.fast = true, .compression = TTI_COMPRESS_POWERSGD, .low_rank = 2}};
    grid one = alone(mlp);
    for (size_t i = 0; i < TTI_COUNT(sizes) * TTI_COUNT(ways); i++) {
        grid whole = {.size = sizes[i / TTI_COUNT(ways)], .exec = ways[i % TTI_COUNT(ways)]};
        bool rounds = whole.exec.wire != TUTTI_F32;
        grid_run(&whole, mlp, one.whole);
        assert_true(whole.params[0] != one.params[0]);
        for (int zero = 1; zero <= (rounds && whole.size.stage == 1 ? 3 : 1); zero++) {
            grid g = {.size = whole.size, .exec = whole.exec};
            g.exec.zero = zero;
            grid_run(&g, mlp, one.whole);
            grid_expect_same(&g, &whole);
            double sent = g.result[0][3].sent_bytes / whole.result[0][3].sent_bytes;
            T_NEAR(sent, rounds ? 0.5 : 1, 1e-12);
            grid_fini(&g);
        }
        grid_fini(&whole);
    }
    grid_fini(&one);
}

/* ---- own updates ---- */

/* Between averagings a copy of the model reports its own samples, as a worker alone does. */
T_CASE(copies_update_by_themselves) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{2, 1, 2}, {2, 2, 1}, {2, 2, 2}};
    grid one = {.size = {2, 1, 1}, .exec = {.fast = true, .local = true}, .average_every = 2};
    grid_run(&one, mlp, NULL);
    assert_true(one.result[0][0].partial && !one.result[0][1].partial);
    assert_true(one.result[0][0].loss_sum != one.result[1][0].loss_sum);
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        int n_model = tti_mesh_n_model(&sizes[i]);
        grid g = {.size = sizes[i], .exec = one.exec, .average_every = 2};
        g.exec.alg = TUTTI_ALG_RING;
        grid_run(&g, mlp, one.whole);
        for (int rank = 0; rank < 2 * n_model; rank++)
            for (int s = 0; s <= GRID_STEPS; s++) {
                const tti_step_result *a = &g.result[rank][s], *b = &one.result[rank / n_model][s];
                T_NEAR(a->loss_sum, b->loss_sum, 1e-5);
                T_NEAR(a->grad_norm, b->grad_norm, 1e-4);
                T_EQ((int)a->count, (int)b->count);
                int first = a->partial ? rank / n_model * n_model : 0;
                assert_true(a->params_hash == g.result[first][s].params_hash);
            }
        assert_true(g.result[0][0].params_hash != g.result[n_model][0].params_hash);
        for (size_t k = 0; k < one.whole->n_flat; k++) T_NEAR(g.params[k], one.params[k], 1e-4);
        grid_fini(&g);
    }
    grid_fini(&one);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_are_joined_beside_tensor_shards),
        cmocka_unit_test(norms_are_joined_in_stages),
        cmocka_unit_test(a_stage_that_fails_keeps_nobody_waiting),
        cmocka_unit_test(a_copy_that_fails_keeps_no_other_waiting),
        cmocka_unit_test(a_compute_thread_that_fails_keeps_no_exchange_waiting),
        cmocka_unit_test(a_fetch_that_fails_is_reported_to_other_stages),
        cmocka_unit_test(gradients_and_parameters_in_parts),
        cmocka_unit_test(joined_stages_begin_with_a_fetch),
        cmocka_unit_test(stages_fetch_for_each_part),
        cmocka_unit_test(stages_compress_as_one_worker_does),
        cmocka_unit_test(tensor_shards_compress_alike),
        cmocka_unit_test(parts_of_what_is_compressed),
        cmocka_unit_test(copies_update_by_themselves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

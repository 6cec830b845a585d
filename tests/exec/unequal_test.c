/* unequal_test.c - workers with runs of shards of any length: the bits of one worker alone,
 * whatever else is divided between them. */
#include "base/affinity.h"
#include "exec/worker/worker.h"
#include "exec/workers.h"

static const tti_shard_map shard_maps[] = {
    {.n_ranks = 2, .n_shards = 8, .first = (int[]){0, 7, 8}},
    {.n_ranks = 2, .n_shards = 8, .first = (int[]){0, 2, 8}},
    {.n_ranks = 3, .n_shards = 8, .first = (int[]){0, 1, 6, 8}},
    {.n_ranks = 4, .n_shards = 8, .first = (int[]){0, 5, 6, 7, 8}},
    {.n_ranks = 4, .n_shards = 8, .first = (int[]){0, 1, 2, 3, 8}},
    {.n_ranks = 5, .n_shards = 8, .first = (int[]){0, 1, 4, 5, 7, 8}},
};

static tutti_graph *net_joined(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_graph_set_sync_batch_norm(g, true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, 1, NET_SIDE, NET_SIDE));
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(NET_ROWS));
    tutti_conv2d_desc conv = {.n_out = 4, .kernel = 3, .pad = 1, .no_bias = true};
    x = tutti_relu(g, tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, "conv"), NULL, "bn"));
    x = tutti_dropout(g, tutti_flatten(g, x), 0.3, "drop");
    tutti_loss loss = tutti_cross_entropy(g, tutti_linear(g, x, NET_CLASSES, "fc"), target, 0, -1);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    return g;
}

static workers new_workers(net_fn net, const tti_shard_map *shard_map, int n_compute_threads) {
    workers c = {.net = net,
                 .target = &net_fast,
                 .n_ranks = shard_map ? shard_map->n_ranks : 1,
                 .n_compute_threads = n_compute_threads,
                 .n_steps = 3,
                 .bucket_bytes = n_compute_threads % 2 ? 1 << 13 : 1 << 20};
    c.exec.shard_map = shard_map;
    c.exec.clip_norm = 0.5;
    return c;
}

static const char *check_runs(workers *c, tti_exec *exec, int rank) {
    COMM_TRUE(tti_exec_first_shard(exec) == tti_shard_map_first(c->exec.shard_map, rank));
    COMM_TRUE(tti_exec_last_shard(exec) == tti_shard_map_first(c->exec.shard_map, rank + 1));
    return workers_train(c, exec, rank);
}

static void check_all(net_fn net, int most_zero) {
    workers alone = new_workers(net, NULL, 2);
    workers_run(&alone);
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++)
        for (int zero = 0; zero <= most_zero; zero++) {
            workers c = new_workers(net, &shard_maps[d], 1 + (int)(d + (size_t)zero) % 3);
            c.exec.zero = zero;
            c.exec.alg = d % 2 ? TUTTI_ALG_TREE : TUTTI_ALG_AUTO;
            c.fn = check_runs;
            workers_run(&c);
            workers_expect_same(&c, &alone);
            workers_fini(&c);
        }
    workers_fini(&alone);
}

T_CASE(any_runs_change_no_bit) {
    T_UNUSED;
    check_all(net_lenet, 3);
}

T_CASE(values_joined_inside_a_step_change_no_bit) {
    T_UNUSED;
    check_all(net_joined, 1);
}

T_CASE(shared_params_of_unequal_workers_change_no_bit) {
    T_UNUSED;
    workers alone = new_workers(net_lenet, NULL, 1);
    workers_run(&alone);
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++) {
        workers c = new_workers(NULL, &shard_maps[d], 2);
        c.plan = net_plan(net_lenet, &net_fast, 1 << 14);
        tti_exec_desc desc = c.exec;
        desc.plan = c.plan;
        desc.backend = &tti_backend_cpu;
        desc.shares = c.exec.shares = true;
        T_OK(tti_shared_params_create(&desc, &c.exec.shared_params));
        workers_run(&c);
        workers_expect_same(&c, &alone);
        tti_shared_params_destroy(c.exec.shared_params);
        workers_fini(&c);
    }
    workers_fini(&alone);
}

T_CASE(rebalanced_while_it_trains) {
    T_UNUSED;
    static const net_fn nets[] = {net_lenet, net_joined};
    for (int i = 0; i < 2; i++) {
        workers alone = new_workers(nets[i], NULL, 2);
        alone.n_steps = 5;
        alone.exec.ema = 0.9;
        alone.fn = workers_train_rebalanced;
        workers_run(&alone);
        for (int n_ranks = 2; n_ranks <= 4; n_ranks += 2)
            for (int bits = 0; bits < 4; bits += 1 + 2 * i) {
                workers c = new_workers(nets[i], NULL, 1 + (bits & 1));
                c.n_ranks = n_ranks;
                c.n_steps = 5;
                c.exec.ema = 0.9;
                c.exec.zero = bits >> 1;
                if (c.exec.zero && n_ranks == 4) c.exec.n_owners = 2; /* as servers */
                c.fn = workers_train_rebalanced;
                workers_run(&c);
                workers_expect_same(&c, &alone);
                workers_fini(&c);
            }
        workers_fini(&alone);
    }
}

/* What the caller gave the executor need not stay where it was: whoever rebalances is pinned to the
 * same cores.  Ranks wait for each other in the steps before the change and in what follows it. */
static int given_core;

static const char *check_cores(workers *c, tti_exec *exec, int rank) {
    const tti_shard_map equal = {.n_ranks = 2, .n_shards = 8, .first = (int[]){0, 4, 8}};
    tti_cores now;
    int wanted = given_core;
    const char *failure = workers_train(c, exec, rank);
    if (failure) return failure;
    if (rank == 0) given_core = -1;
    COMM_OK(tti_exec_rebalance(exec, &equal)); /* which asks all how many buffers they want */
    tti_cores_allowed(&now);
    COMM_TRUE(now.n == 1 && now.id[0] == wanted);
    return workers_train(c, exec, rank);
}

static const char *check_no_rebalance(workers *c, tti_exec *exec, int rank) {
    (void)rank;
    COMM_TRUE(!tti_exec_can_rebalance(exec));
    COMM_FAILS(tti_exec_rebalance(exec, c->exec.shard_map), TUTTI_E_UNSUPPORTED,
               "cannot be rebalanced");
    return NULL;
}

T_CASE(rebalanced_on_the_same_cores) {
    T_UNUSED;
    tti_cores all;
    tti_cores_allowed(&all);
    given_core = all.id[0];
    workers c = new_workers(net_lenet, &shard_maps[0], 1);
    c.exec.cores = &given_core;
    c.fn = check_cores;
    workers_run(&c);
    workers_fini(&c);
}

T_CASE(gradients_in_parts_are_not_rebalanced) {
    T_UNUSED;
    workers c = new_workers(net_lenet, &shard_maps[0], 1);
    c.exec.zero = 2;
    c.fn = check_no_rebalance;
    workers_run(&c);
    workers_fini(&c);
}

/* Samples weigh the same, whoever has them. */
T_CASE(any_order_of_sums_is_near) {
    T_UNUSED;
    workers alone = new_workers(net_lenet, NULL, 1);
    workers_run(&alone);
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++) {
        workers c = new_workers(net_lenet, &shard_maps[d], 1);
        c.exec.fast = true;
        c.exec.alg = d % 2 ? TUTTI_ALG_RING : TUTTI_ALG_AUTO;
        workers_run(&c);
        assert_true(workers_distance(&c, &alone) < 1e-5);
        workers_fini(&c);
    }
    workers_fini(&alone);
}

/* The prediction before a worker exists is what the worker then has. */
static const char *check_memory(workers *c, tti_exec *exec, int rank) {
    tti_exec_desc desc = c->exec;
    tti_exec_memory use = tti_exec_memory_use(exec), plan;
    desc.plan = c->plan;
    desc.backend = &tti_backend_cpu;
    desc.n_shards = WORKERS_SHARDS;
    desc.n_compute_threads = c->n_compute_threads;
    COMM_OK(tti_exec_memory_plan(&desc, rank, c->n_ranks, &plan));
    COMM_TRUE(plan.grads == use.grads && plan.arena == use.arena && plan.states == use.states);
    return NULL;
}

T_CASE(memory_follows_the_runs) {
    T_UNUSED;
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++)
        for (int zero = 0; zero <= 3; zero++) {
            workers c = new_workers(d % 2 && zero < 2 ? net_joined : net_lenet, &shard_maps[d], 2);
            c.exec.zero = zero;
            c.fn = check_memory;
            workers_run(&c);
            workers_fini(&c);
        }
}

static const char *create_refused(tutti_comm *comm, void *arg) {
    tti_exec *exec;
    COMM_FAILS(tti_exec_create(&(tti_exec_desc){.plan = arg,
                                                .backend = &tti_backend_cpu,
                                                .comm = comm,
                                                .n_shards = WORKERS_SHARDS,
                                                .shard_map = &shard_maps[3],
                                                .n_compute_threads = 1},
                               &exec),
               TUTTI_E_INVALID, "shard map has 4 ranks, and there are 2");
    return NULL;
}

T_CASE(a_shard_map_for_others_is_refused) {
    T_UNUSED;
    tti_plan *plan = net_plan(net_mlp, &net_plain, 1 << 20);
    comm_run(2, create_refused, plan);
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_runs_change_no_bit),
        cmocka_unit_test(values_joined_inside_a_step_change_no_bit),
        cmocka_unit_test(shared_params_of_unequal_workers_change_no_bit),
        cmocka_unit_test(rebalanced_while_it_trains),
        cmocka_unit_test(rebalanced_on_the_same_cores),
        cmocka_unit_test(gradients_in_parts_are_not_rebalanced),
        cmocka_unit_test(any_order_of_sums_is_near),
        cmocka_unit_test(memory_follows_the_runs),
        cmocka_unit_test(a_shard_map_for_others_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

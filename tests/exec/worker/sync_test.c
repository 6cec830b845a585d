/* sync_test.c - batch norm in a worker: per shard, and joined over all shards inside the step.
 *
 * Joined statistics must be those of the whole batch: one shard with every row is the oracle. */
#include "exec/workers.h"

enum { FILTERS = 4 };

static tutti_graph *norm_net(bool training, bool sync, int64_t rows) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_graph_set_sync_batch_norm(g, sync);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(rows, 1, NET_SIDE, NET_SIDE));
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(rows));
    tutti_conv2d_desc conv = {.n_out = FILTERS, .kernel = 3, .pad = 1, .no_bias = true};
    x = tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, "conv1"), NULL, "bn1");
    x = tutti_relu(g, x);
    x = tutti_batch_norm2d(g, tutti_conv2d(g, x, &conv, "conv2"), NULL, "bn2");
    x = tutti_linear(g, tutti_flatten(g, tutti_relu(g, x)), NET_CLASSES, "fc");
    tutti_loss loss = tutti_cross_entropy(g, x, target, 0, -1);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    return g;
}

static tutti_graph *net_own(bool training) { return norm_net(training, false, NET_ROWS); }
static tutti_graph *net_joined(bool training) { return norm_net(training, true, NET_ROWS); }
static tutti_graph *net_whole(bool training) {
    return norm_net(training, false, NET_ROWS * WORKERS_SHARDS);
}

static workers new_workers(net_fn net, int n_ranks, int n_compute_threads) {
    return (workers){.net = net,
                     .target = &net_fast,
                     .n_ranks = n_ranks,
                     .n_compute_threads = n_compute_threads,
                     .n_steps = 4};
}

static void check_bits(net_fn net) {
    static const int rank_counts[] = {1, 2, 3, 4, 8};
    workers first = new_workers(net, 1, 1);
    workers_run(&first);
    for (size_t w = 0; w < TTI_COUNT(rank_counts); w++)
        for (int n_compute_threads = 1; n_compute_threads <= 2; n_compute_threads++) {
            workers c = new_workers(net, rank_counts[w], n_compute_threads);
            c.bucket_bytes = n_compute_threads == 1 ? 1 : 1 << 20;
            workers_run(&c);
            workers_expect_same(&c, &first);
            workers_fini(&c);
        }
    workers_fini(&first);
}

T_CASE(own_statistics_by_any_number_of_workers) {
    T_UNUSED;
    check_bits(net_own);
}

T_CASE(joined_statistics_by_any_number_of_workers) {
    T_UNUSED;
    check_bits(net_joined);
}

/* All rows in one shard, from the batches of the workers; the last shard's last row is padding. */
static const char *train_whole(workers *c, tti_exec *exec, int rank) {
    enum { PIXELS = NET_SIDE * NET_SIDE, ALL = NET_ROWS * WORKERS_SHARDS };
    workers_batch *batch = workers_batch_new();
    float *x = aligned_alloc(64, sizeof(float) * ALL * PIXELS);
    _Alignas(64) int32_t target[ALL];
    const char *failure = NULL;
    for (int step = 0; step < c->n_steps && !failure; step++) {
        workers_fill(batch, step);
        for (int s = 0; s < WORKERS_SHARDS; s++) {
            memcpy(x + s * NET_ROWS * PIXELS, batch->x[s], sizeof(float) * NET_ROWS * PIXELS);
            memcpy(target + s * NET_ROWS, batch->target[s], sizeof(int32_t) * NET_ROWS);
        }
        target[ALL - 1] = -1;
        tti_shard_data shard = {x, target, ALL - 1};
        tti_step_desc desc = workers_step(batch, exec, step);
        desc.shards = &shard;
        desc.shard_size = ALL;
        desc.n_rows = ALL - 1;
        if (tti_exec_step(exec, &desc, &c->result[rank][step]) != TUTTI_OK)
            failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    free(batch);
    free(x);
    return failure;
}

/* The same with shards, whose last one has a row of padding. */
static const char *train_padded(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    const char *failure = NULL;
    for (int step = 0; step < c->n_steps && !failure; step++) {
        workers_fill(batch, step);
        batch->target[WORKERS_SHARDS - 1][NET_ROWS - 1] = -1;
        batch->shards[WORKERS_SHARDS - 1].n_rows = NET_ROWS - 1;
        tti_step_desc desc = workers_step(batch, exec, step);
        desc.n_rows = NET_ROWS * WORKERS_SHARDS - 1;
        if (tti_exec_step(exec, &desc, &c->result[rank][step]) != TUTTI_OK)
            failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    free(batch);
    return failure;
}

T_CASE(joined_statistics_are_those_of_the_whole_batch) {
    T_UNUSED;
    workers joined = new_workers(net_joined, 4, 1), own = new_workers(net_own, 4, 1);
    workers whole = new_workers(net_whole, 1, 1);
    joined.fn = own.fn = train_padded;
    whole.fn = train_whole;
    whole.n_shards = 1;
    workers_run(&joined);
    workers_run(&own);
    workers_run(&whole);
    for (int s = 0; s < joined.n_steps; s++)
        T_NEAR(joined.result[0][s].loss_sum, whole.result[0][s].loss_sum, 1e-5);
    assert_true(workers_distance(&joined, &whole) < 1e-5);
    assert_true(workers_distance(&own, &whole) > 1e-3); /* so the comparison can fail */
    workers_fini(&joined);
    workers_fini(&own);
    workers_fini(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_statistics_by_any_number_of_workers),
        cmocka_unit_test(joined_statistics_by_any_number_of_workers),
        cmocka_unit_test(joined_statistics_are_those_of_the_whole_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

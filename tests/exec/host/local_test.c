/* local_test.c - workers that train by themselves and average: the all-reduce where that must be,
 * own parameters between averagings, the same of everything after them. */
#include "exec/host/host.h"

#include "exec/workers.h"

typedef struct local_workers {
    workers workers; /* first: what workers functions are given */
    int every;
    bool state;
} local_workers;

static tti_plan *plan_with(double momentum) {
    tti_attr_arg attrs[] = {TTI_FLOAT("momentum", momentum), {0}};
    tti_plan *plan = NULL;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net_lenet(true),
                                          .eval = net_lenet(false),
                                          .target = &net_fast,
                                          .optimizer = "sgd",
                                          .optimizer_attrs = attrs,
                                          .weight_decay = 0.01,
                                          .bucket_bytes = 1 << 10},
                         &plan));
    return plan;
}

/* Steps that end with an averaging after every so many, as a session asks for them. */
static const char *train(workers *c, tti_exec *exec, int rank) {
    const local_workers *l = (const local_workers *)c;
    workers_batch *batch = workers_batch_new();
    for (int step = 0; step < c->n_steps; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        desc.average = (step + 1) % l->every == 0;
        desc.average_state = desc.average && l->state;
        desc.vote = step == 5 && rank == 1;
        COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][step]));
        uint64_t hash;
        COMM_OK(tti_exec_params_hash(exec, &hash));
        COMM_TRUE(hash == c->result[rank][step].own_hash);
    }
    free(batch);
    return NULL;
}

static local_workers new_workers(int n_ranks, double momentum, int every) {
    local_workers l = {.workers = {.n_ranks = n_ranks, .n_compute_threads = 2, .n_steps = 6},
                       .every = every};
    l.workers.plan = plan_with(momentum);
    l.workers.exec.fast = true;
    l.workers.exec.local = every > 0;
    l.workers.fn = every > 0 ? train : NULL;
    return l;
}

T_CASE(averaging_each_step_is_the_all_reduce) {
    T_UNUSED;
    for (int w = 2; w <= 8; w *= 2) {
        local_workers all = new_workers(w, 0, 0), l = new_workers(w, 0, 1);
        workers_run(&all.workers);
        workers_run(&l.workers);
        assert_true(workers_distance(&l.workers, &all.workers) < 1e-6);
        for (int s = 0; s < 6; s++) {
            T_NEAR(l.workers.result[0][s].loss_sum, all.workers.result[0][s].loss_sum, 1e-5);
            assert_true(l.workers.result[0][s].count == all.workers.result[0][s].count);
        }
        workers_fini(&l.workers);
        workers_fini(&all.workers);
    }
}

static tutti_graph *net_statistics(bool training) { return net_blocks_of(3, training, false); }

/* Running statistics are of a worker's own samples, and their mean is that of all. */
T_CASE(so_is_what_batch_norm_keeps) {
    T_UNUSED;
    for (int w = 2; w <= 4; w *= 2) {
        workers all = {
            .net = net_statistics, .target = &net_fast, .n_ranks = w, .n_compute_threads = 2};
        all.n_steps = 2;
        all.exec.fast = true;
        local_workers l = {.workers = all, .every = 1};
        l.workers.exec.local = true;
        l.workers.fn = train;
        workers_run(&all);
        workers_run(&l.workers);
        assert_true(workers_distance(&l.workers, &all) < 1e-5);
        workers_fini(&l.workers);
        workers_fini(&all);
    }
}

/* A short last batch has no samples for some workers: their steps change nothing. */
static const char *train_short(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    uint64_t before, after;
    workers_fill(batch, 0);
    for (int s = 2; s < WORKERS_SHARDS; s++) batch->shards[s].n_rows = 0;
    tti_step_desc desc = workers_step(batch, exec, 0);
    desc.n_rows = 2 * NET_ROWS;
    COMM_OK(tti_exec_params_hash(exec, &before));
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][0]));
    COMM_OK(tti_exec_params_hash(exec, &after));
    COMM_TRUE((before == after) == (rank > 0));
    COMM_TRUE(c->result[rank][0].own_hash == after);
    desc.step = 1;
    desc.average = true;
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][1]));
    free(batch);
    return NULL;
}

T_CASE(a_worker_without_samples_stays_as_it_is) {
    T_UNUSED;
    local_workers l = new_workers(4, 0.9, 2);
    l.workers.exec.l1 = 0.01;
    l.workers.fn = train_short;
    workers_run(&l.workers);
    T_EQ(l.workers.result[0][1].params_hash == l.workers.result[3][1].params_hash, true);
    assert_true(isfinite(l.workers.params[0][0]));
    workers_fini(&l.workers);
}

/* One worker has nobody to average with. */
T_CASE(alone_it_is_no_other) {
    T_UNUSED;
    local_workers plain = new_workers(1, 0.9, 0), l = new_workers(1, 0.9, 3);
    workers_run(&plain.workers);
    workers_run(&l.workers);
    workers_expect_same(&l.workers, &plain.workers);
    workers_fini(&l.workers);
    workers_fini(&plain.workers);
}

static void check_step(const local_workers *l, int step) {
    const tti_step_result *first = &l->workers.result[0][step];
    bool met = (step + 1) % l->every == 0;
    for (int r = 0; r < l->workers.n_ranks; r++) {
        const tti_step_result *own = &l->workers.result[r][step];
        T_EQ(own->partial, !met);
        T_EQ(own->n_votes, step == 5 && met);
        assert_true((own->sent_bytes > 0) == met);
        if (r == 0) continue;
        T_EQ(own->params_hash == first->params_hash, met);
        T_EQ(own->loss_sum == first->loss_sum, met);
    }
    if (met) assert_true(first->count == NET_ROWS * WORKERS_SHARDS);
}

T_CASE(all_have_the_same_where_they_meet) {
    T_UNUSED;
    for (int w = 2; w <= 5; w++)
        for (int all = 0; all < 2; all++) {
            local_workers l = new_workers(w, 0.9, 3), again = new_workers(w, 0.9, 3);
            l.state = again.state = all > 0;
            workers_run(&l.workers);
            workers_run(&again.workers);
            for (int s = 0; s < 6; s++) check_step(&l, s);
            size_t n_bytes = l.workers.plan->n_flat * sizeof(float);
            assert_memory_equal(l.workers.params[0], again.workers.params[0], n_bytes);
            assert_memory_equal(l.workers.params[1], l.workers.params[0], n_bytes);
            T_EQ(memcmp(l.workers.states[1], l.workers.states[0], n_bytes) == 0, all > 0);
            workers_fini(&l.workers);
            workers_fini(&again.workers);
        }
}

T_CASE(it_may_begin_late) {
    T_UNUSED;
    local_workers all = new_workers(4, 0.9, 0), l = new_workers(4, 0.9, 6);
    l.workers.exec.local_after = 4;
    workers_run(&all.workers);
    workers_run(&l.workers);
    for (int s = 0; s < 6; s++) {
        const tti_step_result *a = &all.workers.result[2][s], *b = &l.workers.result[2][s];
        T_EQ(a->params_hash == b->params_hash, s < 4);
        T_EQ(b->partial, s == 4);
    }
    workers_fini(&l.workers);
    workers_fini(&all.workers);
}

/* The worker says itself which step, shard and layer it was. */
static const char *fail_alone(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    for (int e = 0; e < WORKERS_X; e++) batch->x[7][e] = INFINITY;
    tti_step_desc desc = workers_step(batch, exec, 0);
    tti_step_result *result = &c->result[rank][0];
    if (rank == c->n_ranks - 1)
        COMM_FAILS(tti_exec_step(exec, &desc, result), TUTTI_E_NUMERICS, "shard 7 of 8, first in");
    else
        COMM_OK(tti_exec_step(exec, &desc, result));
    COMM_TRUE(result->skipped == (rank == c->n_ranks - 1));
    free(batch);
    return NULL;
}

T_CASE(a_loss_that_is_not_finite) {
    T_UNUSED;
    local_workers l = new_workers(3, 0, 2);
    l.workers.fn = fail_alone;
    workers_run(&l.workers);
    workers_fini(&l.workers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averaging_each_step_is_the_all_reduce),
        cmocka_unit_test(so_is_what_batch_norm_keeps),
        cmocka_unit_test(a_worker_without_samples_stays_as_it_is),
        cmocka_unit_test(alone_it_is_no_other),
        cmocka_unit_test(all_have_the_same_where_they_meet),
        cmocka_unit_test(it_may_begin_late),
        cmocka_unit_test(a_loss_that_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* local_test.c - workers that train by themselves and average: the all-reduce where that must be,
 * own parameters between averagings, the same of everything after them. */
#include "exec/host/host.h"

#include "exec/crew.h"

typedef struct local_crew {
    crew crew; /* first: what crew functions are given */
    int every;
    bool state;
} local_crew;

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
static const char *train(crew *c, tti_exec *exec, int rank) {
    const local_crew *l = (const local_crew *)c;
    crew_batch *batch = crew_batch_new();
    for (int step = 0; step < c->n_steps; step++) {
        crew_fill(batch, step);
        tti_step_desc desc = crew_step(batch, exec, step);
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

static local_crew new_crew(int n_ranks, double momentum, int every) {
    local_crew l = {.crew = {.n_ranks = n_ranks, .n_compute_threads = 2, .n_steps = 6},
                    .every = every};
    l.crew.plan = plan_with(momentum);
    l.crew.exec.fast = true;
    l.crew.exec.local = every > 0;
    l.crew.fn = every > 0 ? train : NULL;
    return l;
}

T_CASE(averaging_each_step_is_the_all_reduce) {
    T_UNUSED;
    for (int w = 2; w <= 8; w *= 2) {
        local_crew all = new_crew(w, 0, 0), l = new_crew(w, 0, 1);
        crew_run(&all.crew);
        crew_run(&l.crew);
        assert_true(crew_distance(&l.crew, &all.crew) < 1e-6);
        for (int s = 0; s < 6; s++) {
            T_NEAR(l.crew.result[0][s].loss_sum, all.crew.result[0][s].loss_sum, 1e-5);
            assert_true(l.crew.result[0][s].count == all.crew.result[0][s].count);
        }
        crew_fini(&l.crew);
        crew_fini(&all.crew);
    }
}

static tutti_graph *net_statistics(bool training) { return net_blocks_of(3, training, false); }

/* Running statistics are of a worker's own samples, and their mean is that of all. */
T_CASE(so_is_what_batch_norm_keeps) {
    T_UNUSED;
    for (int w = 2; w <= 4; w *= 2) {
        crew all = {
            .net = net_statistics, .target = &net_fast, .n_ranks = w, .n_compute_threads = 2};
        all.n_steps = 2;
        all.exec.fast = true;
        local_crew l = {.crew = all, .every = 1};
        l.crew.exec.local = true;
        l.crew.fn = train;
        crew_run(&all);
        crew_run(&l.crew);
        assert_true(crew_distance(&l.crew, &all) < 1e-5);
        crew_fini(&l.crew);
        crew_fini(&all);
    }
}

/* A short last batch has no samples for some workers: their steps change nothing. */
static const char *train_short(crew *c, tti_exec *exec, int rank) {
    crew_batch *batch = crew_batch_new();
    uint64_t before, after;
    crew_fill(batch, 0);
    for (int s = 2; s < CREW_SHARDS; s++) batch->shards[s].n_rows = 0;
    tti_step_desc desc = crew_step(batch, exec, 0);
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
    local_crew l = new_crew(4, 0.9, 2);
    l.crew.exec.l1 = 0.01;
    l.crew.fn = train_short;
    crew_run(&l.crew);
    T_EQ(l.crew.result[0][1].params_hash == l.crew.result[3][1].params_hash, true);
    assert_true(isfinite(l.crew.params[0][0]));
    crew_fini(&l.crew);
}

/* One worker has nobody to average with. */
T_CASE(alone_it_is_no_other) {
    T_UNUSED;
    local_crew plain = new_crew(1, 0.9, 0), l = new_crew(1, 0.9, 3);
    crew_run(&plain.crew);
    crew_run(&l.crew);
    crew_expect_same(&l.crew, &plain.crew);
    crew_fini(&l.crew);
    crew_fini(&plain.crew);
}

static void check_step(const local_crew *l, int step) {
    const tti_step_result *first = &l->crew.result[0][step];
    bool met = (step + 1) % l->every == 0;
    for (int r = 0; r < l->crew.n_ranks; r++) {
        const tti_step_result *own = &l->crew.result[r][step];
        T_EQ(own->partial, !met);
        T_EQ(own->n_votes, step == 5 && met);
        assert_true((own->sent_bytes > 0) == met);
        if (r == 0) continue;
        T_EQ(own->params_hash == first->params_hash, met);
        T_EQ(own->loss_sum == first->loss_sum, met);
    }
    if (met) assert_true(first->count == NET_ROWS * CREW_SHARDS);
}

T_CASE(all_have_the_same_where_they_meet) {
    T_UNUSED;
    for (int w = 2; w <= 5; w++)
        for (int all = 0; all < 2; all++) {
            local_crew l = new_crew(w, 0.9, 3), again = new_crew(w, 0.9, 3);
            l.state = again.state = all > 0;
            crew_run(&l.crew);
            crew_run(&again.crew);
            for (int s = 0; s < 6; s++) check_step(&l, s);
            size_t n_bytes = l.crew.plan->n_flat * sizeof(float);
            assert_memory_equal(l.crew.params[0], again.crew.params[0], n_bytes);
            assert_memory_equal(l.crew.params[1], l.crew.params[0], n_bytes);
            T_EQ(memcmp(l.crew.states[1], l.crew.states[0], n_bytes) == 0, all > 0);
            crew_fini(&l.crew);
            crew_fini(&again.crew);
        }
}

T_CASE(it_may_begin_late) {
    T_UNUSED;
    local_crew all = new_crew(4, 0.9, 0), l = new_crew(4, 0.9, 6);
    l.crew.exec.local_after = 4;
    crew_run(&all.crew);
    crew_run(&l.crew);
    for (int s = 0; s < 6; s++) {
        const tti_step_result *a = &all.crew.result[2][s], *b = &l.crew.result[2][s];
        T_EQ(a->params_hash == b->params_hash, s < 4);
        T_EQ(b->partial, s == 4);
    }
    crew_fini(&l.crew);
    crew_fini(&all.crew);
}

/* The worker says itself which step, shard and layer it was. */
static const char *fail_alone(crew *c, tti_exec *exec, int rank) {
    crew_batch *batch = crew_batch_new();
    crew_fill(batch, 0);
    for (int e = 0; e < CREW_X; e++) batch->x[7][e] = INFINITY;
    tti_step_desc desc = crew_step(batch, exec, 0);
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
    local_crew l = new_crew(3, 0, 2);
    l.crew.fn = fail_alone;
    crew_run(&l.crew);
    crew_fini(&l.crew);
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

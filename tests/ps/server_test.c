/* server_test.c - a parameter server and its workers: the bits of the all-reduce where they wait
 * for each other, the bits of what was recorded where they do not, and failures. */
#include "ps/server.h"

#include <stdatomic.h>
#include <time.h>

#include "base/fault.h"
#include "ps/server_state.h"
#include "ps/server_workers.h"

static void serve(workers *c, int n_servers) {
    tti_server_desc d = server_desc(c, n_servers, 0);
    T_OK(tti_server_create(&d, &c->exec.server));
    workers_run(c);
    tti_server_destroy(c->exec.server);
}

T_CASE(synchronous_is_the_all_reduce) {
    T_UNUSED;
    static const char *const optimizers[] = {"sgd", "adamw", "lamb"};
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++) {
        workers whole = new_workers(optimizers[i], 1);
        whole.exec.clip_norm = 0.01;
        whole.exec.ema = 0.9;
        workers_run(&whole);
        assert_true(whole.result[0][0].grad_norm > 0.01);
        for (int w = 1; w <= 8; w++) {
            workers c = new_workers(optimizers[i], w);
            c.exec.clip_norm = 0.01;
            c.exec.ema = 0.9;
            serve(&c, 1 + w % 3);
            workers_expect_same(&c, &whole);
            workers_fini(&c);
        }
        workers_fini(&whole);
    }
}

T_CASE(any_shard_map_is_the_all_reduce) {
    T_UNUSED;
    const tti_shard_map shard_maps[] = {{2, 8, (int[]){0, 7, 8}, false},
                                        {3, 8, (int[]){0, 1, 6, 8}, false},
                                        {4, 8, (int[]){0, 5, 6, 7, 8}, false}};
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++) {
        for (int anew = 0; anew < 2; anew++) {
            workers whole = new_workers("adamw", 4),
                    c = new_workers("adamw", shard_maps[d].n_ranks);
            workers *both[] = {&whole, &c};
            for (int i = 0; i < 2; i++) {
                both[i]->exec.clip_norm = 0.01;
                both[i]->exec.ema = 0.9;
                if (anew) both[i]->fn = workers_train_rebalanced;
            }
            c.exec.shard_map = &shard_maps[d];
            workers_run(&whole);
            serve(&c, 1 + (int)d);
            workers_expect_same(&c, &whole);
            workers_fini(&c);
            workers_fini(&whole);
        }
    }
}

/* ---- asynchronous ---- */

static const char *run_rank(tutti_comm *comm, void *arg) {
    served *s = arg;
    int64_t n_updates;
    int rank = comm ? tutti_comm_rank(comm) : 0;
    tti_exec_desc desc = server_desc(&s->workers, 2, 0).exec;
    desc.server = s->server;
    desc.server_worker = rank;
    tti_exec *exec;
    COMM_OK(tti_exec_create(&desc, &exec));
    COMM_OK(tti_server_open(s->server, 0, BATCHES));
    workers_batch *batch = workers_batch_new();
    if (comm) COMM_OK(tutti_comm_barrier(comm)); /* who is slow, is so beside the others */
    COMM_OK(run_step(exec, batch));
    if (comm) COMM_OK(tutti_comm_barrier(comm));
    COMM_OK(tti_server_pull(exec, &n_updates));
    COMM_TRUE(n_updates == BATCHES);
    free(batch);
    const char *failure = workers_keep(&s->workers, exec, rank);
    tti_exec_destroy(exec);
    return failure;
}

/* A run of W workers; replay: of another one. */
static void run_all(served *s, int n_ranks, int n_servers, int64_t staleness,
                    const served *replay) {
    *s = (served){.workers = new_workers("adamw", n_ranks)};
    s->workers.exec.clip_norm = 1;
    tti_server_desc d = server_desc(&s->workers, n_servers, staleness);
    d.replay = replay ? replay->arrivals : NULL;
    d.n_replay = replay ? replay->n_arrivals : 0;
    T_OK(tti_server_create(&d, &s->server));
    if (n_ranks > 1)
        comm_run(n_ranks, run_rank, s);
    else if (run_rank(NULL, s))
        fail_msg("alone: %s", tutti_last_error());
    while (tti_server_next(s->server, &s->arrivals[s->n_arrivals])) {
        const tti_arrival *a = &s->arrivals[s->n_arrivals++];
        T_EQ(a->step, s->n_arrivals);
        assert_true(a->version >= 0 && a->version < a->step && a->worker < n_ranks);
        assert_true(a->lr == rate(NULL, a->step - 1));
        s->stale_max = TTI_MAX(s->stale_max, a->step - 1 - a->version);
    }
    T_EQ(s->n_arrivals, BATCHES);
    int64_t bins[TTI_STALENESS_BINS], n = 0;
    tti_server_staleness(s->server, bins);
    for (int i = 0; i < TTI_STALENESS_BINS; i++) n += bins[i];
    T_EQ(n, BATCHES);
    assert_true(bins[s->stale_max] > 0);
    tti_server_destroy(s->server);
    s->server = NULL;
}

static void expect_same_params(const served *a, const served *b) {
    size_t n_bytes = a->workers.plan->n_flat * sizeof(float);
    for (int r = 0; r < a->workers.n_ranks; r++) {
        assert_memory_equal(a->workers.params[r], b->workers.params[0], n_bytes);
        assert_memory_equal(a->workers.states[r], b->workers.states[0], n_bytes);
    }
}

T_CASE(one_worker_waits_for_nobody_and_lacks_nothing) {
    T_UNUSED;
    served alone, again;
    run_all(&alone, 1, 1, TTI_UNBOUNDED, NULL);
    T_EQ(alone.stale_max, 0);
    for (int i = 0; i < BATCHES; i++) T_EQ(alone.arrivals[i].batch, i);
    run_all(&again, 1, 3, 1, NULL);
    expect_same_params(&again, &alone);
    workers_fini(&alone.workers);
    workers_fini(&again.workers);
}

/* Runs a step with a first batch, that of `which`, so late that the others make at least n updates
 * before it.  A busy machine needs longer for these. */
static void run_overtaken(served *s, int n_ranks, int64_t staleness, const char *which, int64_t n) {
    for (int late_ms = 100; late_ms <= 1600; late_ms *= 4) {
        char faults[96];
        snprintf(faults, sizeof faults,
                 "exec.compute:delay_ms=%d@%s;exec.compute:delay_ms=3@rank=1", late_ms, which);
        T_OK(tti_fault_set(faults));
        run_all(s, n_ranks, 1, staleness, NULL);
        T_OK(tti_fault_set(NULL));
        if (s->stale_max >= n) return;
        workers_fini(&s->workers);
    }
    fail_msg("no %d updates came first", (int)n);
}

T_CASE(what_was_recorded_is_repeated) {
    T_UNUSED;
    for (int w = 2; w <= 5; w++) {
        served first, again;
        /* Who begins first is overtaken, and later rank 1. */
        run_overtaken(&first, w, TTI_UNBOUNDED, "1", 1);
        T_OK(tti_fault_set("exec.compute:delay_ms=2@rank=0")); /* now another one is slow */
        run_all(&again, w, 1 + w % 3, TTI_UNBOUNDED, &first);
        T_OK(tti_fault_set(NULL));
        for (int i = 0; i < BATCHES; i++) {
            const tti_arrival *a = &first.arrivals[i], *b = &again.arrivals[i];
            assert_true(a->batch == b->batch && a->version == b->version &&
                        a->worker == b->worker && a->result.params_hash == b->result.params_hash &&
                        a->result.loss_sum == b->result.loss_sum);
        }
        expect_same_params(&again, &first);
        workers_fini(&first.workers);
        workers_fini(&again.workers);
    }
}

/* Others have a step at work when a worker takes its batch, and may begin s more. */
T_CASE(staleness_is_bounded) {
    T_UNUSED;
    enum { W = 3 };
    served free_run, bounded;
    run_overtaken(&free_run, W, TTI_UNBOUNDED, "rank=0,1", 3 * (W - 1) + 1);
    for (int64_t s = 1; s <= 2; s++) {
        run_overtaken(&bounded, W, s, "rank=0,1", 1);
        assert_in_range(bounded.stale_max, 1, (s + 1) * (W - 1));
        workers_fini(&bounded.workers);
    }
    workers_fini(&free_run.workers);
}

/* ---- failures ---- */

static atomic_int n_waiting, n_given_up; /* workers that wait for the last one, and no longer */

/* Time passes from when the others wait until they give up. */
static const char *stay_away(int n_others) {
    while (n_waiting < n_others) tti_sleep_ms(1);
    COMM_TRUE(t_wait_asleep());
    while (n_given_up < n_others) comm_let_time_pass(75);
    return NULL;
}

static const char *last_does_not_come(workers *c, tti_exec *exec, int rank) {
    if (rank == c->n_ranks - 1) return stay_away(rank);
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, 0);
    n_waiting++;
    tutti_status st = tti_server_push_step(exec, &desc, 1, &c->result[rank][0]);
    n_given_up++;
    free(batch);
    COMM_TRUE(st == TUTTI_E_TIMEOUT || st == TUTTI_E_PEER);
    COMM_TRUE(strstr(tutti_last_error(), " ms for worker 2 (the limit is ") != NULL);
    return NULL;
}

T_CASE(who_does_not_come_is_named) {
    T_UNUSED;
    workers c = new_workers("sgd", 3);
    tti_server_desc d = server_desc(&c, 1, 0);
    d.timeout_ms = 4000;
    n_waiting = n_given_up = 0;
    T_OK(tti_server_create(&d, &c.exec.server));
    c.fn = last_does_not_come;
    workers_run(&c);
    tti_server_destroy(c.exec.server);
    workers_fini(&c);
}

static const char *somebody_leaves(workers *c, tti_exec *exec, int rank) {
    tti_step_desc desc = {.lr = 0.1};
    if (rank == 1) tti_server_abort(c->exec.server, TUTTI_E_DATA, "worker 1 has no more data");
    if (rank == 1) return NULL;
    COMM_TRUE(tti_server_push_step(exec, &desc, 1, &c->result[rank][0]) == TUTTI_E_PEER);
    COMM_TRUE(strstr(tutti_last_error(), "worker 1 has no more data") != NULL);
    return NULL;
}

T_CASE(who_waits_hears_of_a_failure) {
    T_UNUSED;
    workers c = new_workers("sgd", 3);
    tti_server_desc d = server_desc(&c, 2, 0);
    T_OK(tti_server_create(&d, &c.exec.server));
    c.fn = somebody_leaves;
    workers_run(&c);
    tti_server_destroy(c.exec.server);
    workers_fini(&c);
}

/* Of a server whose threads are at a step when somebody fails. */
static tti_server *failing;
static atomic_int n_left;
static bool left_early;

static uint64_t hash_beside_a_failure(const float *x, size_t n, uint64_t first) {
    if (failing) tti_server_abort(failing, TUTTI_E_DEVICE, "a device is gone");
    for (int ms = 0; failing && ms < 100 && !left_early; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        left_early = atomic_load(&n_left) > 0;
    }
    failing = NULL;
    return tti_backend_cpu.hash(x, n, first);
}

static const char *leave_after_failure(workers *c, tti_exec *exec, int rank) {
    tti_step_desc desc = {.lr = 0.1};
    COMM_TRUE(tti_server_push_step(exec, &desc, 1, &c->result[rank][0]) == TUTTI_E_PEER);
    COMM_TRUE(strstr(tutti_last_error(), "a device is gone") != NULL);
    atomic_fetch_add(&n_left, 1);
    return NULL;
}

T_CASE(nobody_takes_along_what_the_server_reads) {
    T_UNUSED;
    tti_backend slow = tti_backend_cpu;
    slow.hash = hash_beside_a_failure;
    workers c = new_workers("sgd", 2);
    tti_server_desc d = server_desc(&c, 1, 0);
    d.exec.backend = &slow;
    T_OK(tti_server_create(&d, &c.exec.server));
    failing = c.exec.server;
    c.fn = leave_after_failure;
    workers_run(&c);
    tti_server_destroy(c.exec.server);
    assert_null(failing);
    assert_false(left_early);
    T_EQ(atomic_load(&n_left), 2);
    workers_fini(&c);
}

static float *new_flat(const workers *c) {
    float *flat = aligned_alloc(64, (c->plan->n_flat * sizeof *flat + 63) / 64 * 64);
    assert_non_null(flat);
    memset(flat, 0, c->plan->n_flat * sizeof *flat);
    return flat;
}

/* A step wants one of three: the first has made one and asked for the end when another opens. */
T_CASE(who_opens_late_undoes_no_stop) {
    T_UNUSED;
    workers c = new_workers("sgd", 3);
    tti_server_desc d = server_desc(&c, 1, 0);
    tti_server *s;
    tti_lease lease;
    tti_arrival arrival;
    int64_t n_updates;
    float *params = new_flat(&c), *grads = new_flat(&c);
    tti_push b = {.partials = {grads}, .n_partials = 1, .result = {.count = 1}, .lr = rate};
    d.n_backup = 2;
    T_OK(tti_server_create(&d, &s));
    T_OK(tti_server_open(s, 0, 10));
    T_OK(tti_server_lease_for(s, 0, params, &lease));
    T_OK(tti_server_push_for(s, 0, &b, &arrival));
    T_OK(tti_server_stop(s));
    T_OK(tti_server_open(s, 0, 10));
    T_OK(tti_server_pull_for(s, 0, params, NULL, &n_updates));
    T_EQ(n_updates, 1);
    T_OK(tti_server_lease_for(s, 1, params, &lease));
    T_EQ(lease.batch, 1);
    T_OK(tti_server_push_for(s, 1, &b, &arrival));
    T_OK(tti_server_lease_for(s, 2, params, &lease));
    assert_false(lease.any);
    tti_server_destroy(s);
    free(params);
    free(grads);
    workers_fini(&c);
}

/* A loss scale that makes gradients infinite: every worker hears it, and nothing has changed. */
static const char *overflow(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    for (size_t e = 0; e < WORKERS_X; e++) batch->x[3][e] = INFINITY;
    uint64_t before, after;
    tti_step_desc desc = workers_step(batch, exec, 0);
    COMM_OK(tti_exec_params_hash(exec, &before));
    COMM_TRUE(tti_exec_step(exec, &desc, &c->result[rank][0]) == TUTTI_E_NUMERICS);
    COMM_TRUE(strstr(tutti_last_error(), "train.on_nan=skip skips such steps"));
    COMM_TRUE(c->result[rank][0].skipped);
    COMM_OK(tti_exec_params_hash(exec, &after));
    COMM_TRUE(before == after);
    workers_fill(batch, 0);
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][0]));
    free(batch);
    return NULL;
}

T_CASE(not_finite) {
    T_UNUSED;
    workers c = new_workers("sgd", 2);
    c.fn = overflow;
    serve(&c, 2);
    workers_fini(&c);
}

/* Nobody watches gradients: it is the end. */
static const char *overflow_alone(workers *c, tti_exec *exec, int rank) {
    (void)rank;
    tti_lease lease;
    tti_arrival arrival;
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    for (size_t e = 0; e < WORKERS_X; e++) batch->x[3][e] = INFINITY;
    COMM_OK(tti_server_open(c->exec.server, 0, 1));
    COMM_OK(tti_server_lease(exec, &lease));
    tti_step_desc desc = workers_step(batch, exec, 0);
    COMM_FAILS(
        tti_server_push_gradient(exec, &(tti_pushed_gradient){.desc = &desc, .lr = rate}, &arrival),
        TUTTI_E_NUMERICS, "the loss is not finite (shard 3 of ");
    COMM_TRUE(strstr(tutti_last_error(), "train.on_nan=skip skips such steps"));
    free(batch);
    return NULL;
}

T_CASE(not_finite_alone) {
    T_UNUSED;
    workers c = new_workers("sgd", 1);
    tti_server_desc d = server_desc(&c, 1, TTI_UNBOUNDED);
    c.fn = overflow_alone;
    T_OK(tti_server_create(&d, &c.exec.server));
    workers_run(&c);
    tti_server_destroy(c.exec.server);
    workers_fini(&c);
}

T_CASE(what_cannot_have_been_recorded) {
    T_UNUSED;
    workers c = new_workers("sgd", 2);
    static const tti_arrival bad[][2] = {
        {{.step = 1}, {.step = 3}},
        {{.step = 1}, {.step = 2, .version = 2}},
        {{.step = 1}, {.step = 2, .worker = 2}},
        {{.step = 1}, {.step = 2, .worker = -1}},
        {{.step = 5, .version = 3}, {.step = 6, .version = 4}},
    };
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        tti_server *server;
        tti_server_desc d = server_desc(&c, 1, 1);
        d.replay = bad[i];
        d.n_replay = 2;
        T_FAILS(tti_server_create(&d, &server), TUTTI_E_INVALID, "is not valid");
        assert_null(server);
    }
    tti_server *server;
    tti_server_desc d = server_desc(&c, 1, 1);
    d.n_workers = TTI_MAX_SERVED + 1;
    T_FAILS(tti_server_create(&d, &server), TUTTI_E_INVALID, "4097 workers");
    workers_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synchronous_is_the_all_reduce),
        cmocka_unit_test(any_shard_map_is_the_all_reduce),
        cmocka_unit_test(one_worker_waits_for_nobody_and_lacks_nothing),
        cmocka_unit_test(what_was_recorded_is_repeated),
        cmocka_unit_test(staleness_is_bounded),
        cmocka_unit_test(who_does_not_come_is_named),
        cmocka_unit_test(who_waits_hears_of_a_failure),
        cmocka_unit_test(nobody_takes_along_what_the_server_reads),
        cmocka_unit_test(who_opens_late_undoes_no_stop),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(not_finite_alone),
        cmocka_unit_test(what_cannot_have_been_recorded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

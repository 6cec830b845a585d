/* server_ranges_test.c - keys that several processes hold, a range each: the bits of one server,
 * for any number of range servers, on one host and between hosts; and range servers or workers that
 * go. */
#include "ps/server_state.h"

#include <semaphore.h>
#include <time.h>

#include "exec/worker/worker.h"
#include "ps/server_workers.h"

enum { N_RANKS = 3 };

/* Workers of which the first n_ranges each serve a range; rank 0 also keeps the order of batches.
 */
typedef struct range_servers {
    workers workers;
    const char *optimizer;
    int n_ranges, n_backup;
    tti_server *server;
    const char *(*odd)(tti_channel *first); /* what the odd rank does; NULL: there is none */
    int odd_rank;
    bool fails;   /* each worker, at once */
    sem_t *ended; /* posted by each server at its end */
    bool leaves;  /* worker leaver leaves, and its process goes on */
    int leaver;
    const char *(*also)(struct range_servers *s, tti_exec *exec); /* after the batches */
    const char *text; /* all hear it instead of coming to the end */
    tti_arrival arrivals[MAX_UPDATES];
    int n_arrivals, n_held;
    tti_range_traffic *held;
    float *ema[N_RANKS];
} range_servers;

static tti_server_desc desc_of(const range_servers *s) {
    tti_server_desc d = server_desc(&s->workers, 1, s->n_backup ? 0 : TTI_UNBOUNDED);
    d.n_ranges = s->n_ranges;
    d.n_backup = s->n_backup;
    if (s->fails) d.timeout_ms = 1;
    return d;
}

/* One that cannot compute its batch, before anybody else has one; its process goes on. */
static tutti_status take_and_leave(tti_exec *exec, tti_server *server) {
    tti_lease lease;
    TTI_TRY(tti_server_open(server, 0, BATCHES));
    TTI_TRY(tti_server_lease(exec, &lease));
    if (lease.any && tti_server_leave(exec, "it has no memory")) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "worker %d has no batch that it could leave",
                    tti_setup_of(exec)->desc.server_worker);
}

static tutti_status look_on(tti_exec *exec) {
    int64_t n_updates = -1;
    for (bool over = false; !over;) TTI_TRY(tti_server_watch(exec, &n_updates, &over));
    return TUTTI_OK;
}

static tutti_status make_batches(const range_servers *s, tti_exec *exec, tti_server *server) {
    tti_members members;
    bool leaves = s->leaves && tti_setup_of(exec)->desc.server_worker == s->leaver;
    tti_server_rate(server, rate, NULL);
    TTI_TRY(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    if (leaves) TTI_TRY(take_and_leave(exec, server));
    if (s->leaves) TTI_TRY(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    if (leaves) return look_on(exec);
    TTI_TRY(tti_server_open(server, 0, BATCHES));
    workers_batch *batch = workers_batch_new();
    tutti_status st = run_step(exec, batch);
    free(batch);
    return st;
}

static const char *keep(range_servers *s, tti_exec *exec, int rank) {
    tti_members members;
    int64_t n_updates;
    size_t n_bytes = s->workers.plan->n_flat * sizeof(float);
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    COMM_OK(tti_server_pull(exec, &n_updates));
    COMM_TRUE(n_updates == BATCHES);
    s->ema[rank] = malloc(n_bytes);
    memcpy(s->ema[rank], tti_exec_ema(exec), n_bytes);
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members)); /* all have them */
    if (rank == 0)
        COMM_OK(tti_server_range_traffic(tti_setup_of(exec)->desc.server, &s->held, &s->n_held));
    if (s->also) {
        const char *failure = s->also(s, exec);
        if (failure) return failure;
    }
    return workers_keep(&s->workers, exec, rank);
}

/* The odd one has channels, but no server and nothing after them. */
static const char *be_odd(range_servers *s, tutti_comm *comm) {
    tti_channel *all[N_RANKS + 1][N_RANKS] = {{NULL}};
    tti_server_desc d = desc_of(s);
    size_t sizes[TTI_N_KEY_AREAS];
    size_t control[] = {2 * (size_t)d.exec.plan->n_updates * sizeof(double),
                        TTI_MIN(d.exec.plan->n_flat, (size_t)TTI_FETCH_ELEMS) * sizeof(float)};
    tti_server_area_bytes(&d, 0, sizes);
    COMM_OK(tti_channels_open(comm, 0, sizes, TTI_N_KEY_AREAS, all[0]));
    COMM_OK(tti_channels_open(comm, 0, control, TTI_COUNT(control), all[N_RANKS]));
    for (int r = 1; r < s->n_ranges; r++) {
        tti_server_area_bytes(&d, r, sizes);
        COMM_OK(tti_channels_open(comm, r, sizes, TTI_N_KEY_AREAS, all[r]));
    }
    const char *failure = s->odd(all[0][0]);
    for (int i = 0; i <= N_RANKS; i++)
        for (int r = 0; r < N_RANKS; r++) tti_channel_close(all[i][r]);
    return failure;
}

static const char *work(range_servers *s, tti_exec *exec, tti_server *server, int rank) {
    if (s->fails) {
        tti_server_abort(server, TUTTI_E_IO, "it has no data");
        return NULL;
    }
    tutti_status st = make_batches(s, exec, server);
    if (!s->text) {
        COMM_OK(st);
        return keep(s, exec, rank);
    }
    COMM_FAILS(st, TUTTI_E_PEER, s->text);
    tti_server_abort(server, st, tutti_last_error()); /* as sessions do */
    return NULL;
}

static const char *serve_and_train(tutti_comm *comm, void *arg) {
    range_servers *s = arg;
    int rank = tutti_comm_rank(comm);
    tti_server_desc d = desc_of(s);
    tti_server *server = s->server;
    tti_exec *exec;
    if (s->odd && rank == s->odd_rank) return be_odd(s, comm);
    if (rank == 0)
        COMM_OK(tti_server_admit(server, comm));
    else
        COMM_OK(tti_server_connect(&d, comm, &server));
    COMM_TRUE(tti_server_has_ranges(server) == (s->n_ranges > 1));
    d.exec.server = server;
    d.exec.server_worker = rank;
    COMM_OK(tti_exec_create(&d.exec, &exec));
    const char *failure = work(s, exec, server, rank);
    tti_exec_destroy(exec);
    /* Range servers wait for the first, which is here, not at the end of a process. */
    if (rank > 0) tti_server_destroy(server);
    if (s->ended) sem_post(s->ended);
    if (rank == 0) {
        while (s->n_arrivals < MAX_UPDATES && tti_server_next(server, &s->arrivals[s->n_arrivals]))
            s->n_arrivals++;
        tti_server_destroy(server);
    }
    return failure;
}

/* replay: arrivals, NULL: as they come. */
static void run_range_servers(range_servers *s, const tti_arrival *replay) {
    s->workers = new_workers(s->optimizer ? s->optimizer : "adamw", N_RANKS);
    s->workers.exec.clip_norm = 1;
    s->workers.exec.ema = 0.9;
    tti_server_desc d = desc_of(s);
    d.replay = replay;
    d.n_replay = replay ? BATCHES : 0;
    T_OK(tti_server_create(&d, &s->server));
    comm_run(N_RANKS, serve_and_train, s);
}

static void end(range_servers *s) {
    for (int r = 0; r < N_RANKS; r++) free(s->ema[r]);
    free(s->held);
    workers_fini(&s->workers);
}

static void expect_whole(const range_servers *s) {
    bool seen[BATCHES] = {false};
    T_EQ(s->n_arrivals, BATCHES);
    for (int i = 0; i < BATCHES; i++) {
        T_EQ(s->arrivals[i].step, i + 1);
        assert_false(seen[s->arrivals[i].batch]);
        seen[s->arrivals[i].batch] = true;
    }
}

static void expect_same(const range_servers *a, const range_servers *b) {
    size_t n_bytes = a->workers.plan->n_flat * sizeof(float);
    for (int r = 0; r < N_RANKS; r++) {
        assert_memory_equal(a->workers.params[r], b->workers.params[0], n_bytes);
        assert_memory_equal(a->ema[r], b->ema[0], n_bytes);
    }
    assert_memory_equal(a->workers.states[0], b->workers.states[0], n_bytes);
    for (int i = 0; i < BATCHES; i++) {
        const tti_arrival *one = &a->arrivals[i], *two = &b->arrivals[i];
        assert_true(one->worker == two->worker && one->version == two->version);
        assert_true(one->result.params_hash == two->result.params_hash &&
                    one->result.grad_norm == two->result.grad_norm);
    }
}

/* ---- the same bits ---- */

/* Worker after worker, each with parameters that lack the update before. */
static void fill_order(tti_arrival order[BATCHES]) {
    for (int i = 0; i < BATCHES; i++)
        order[i] = (tti_arrival){
            .step = i + 1, .batch = i, .version = i > 0 ? i - 1 : 0, .worker = i % N_RANKS};
}

T_CASE(bits_do_not_know_who_holds_what) {
    T_UNUSED;
    static const char *const optimizers[] = {"sgd", "adamw", "lamb"};
    tti_arrival order[BATCHES];
    fill_order(order);
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++) {
        range_servers one = {.optimizer = optimizers[i], .n_ranges = 1};
        run_range_servers(&one, order);
        expect_whole(&one);
        assert_true(one.arrivals[BATCHES - 1].result.grad_norm > 0);
        for (int n = 2; n <= N_RANKS; n++) {
            range_servers more = {.optimizer = optimizers[i], .n_ranges = n};
            run_range_servers(&more, order);
            expect_same(&more, &one);
            end(&more);
        }
        end(&one);
    }
}

T_CASE(what_was_recorded_is_repeated) {
    T_UNUSED;
    range_servers first = {.n_ranges = 2}, again = {.n_ranges = 3};
    run_range_servers(&first, NULL);
    expect_whole(&first);
    run_range_servers(&again, first.arrivals);
    expect_same(&again, &first);
    end(&first);
    end(&again);
}

T_CASE(between_hosts) {
    T_UNUSED;
    tti_arrival order[BATCHES];
    fill_order(order);
    range_servers here = {.n_ranges = 1}, far = {.n_ranges = 3}, mixed = {.n_ranges = 2};
    run_range_servers(&here, order);
    setenv("TUTTI_TEST_TRANSPORT", "tcp", 1);
    setenv("TUTTI_TEST_HOSTS", "a,b,c", 1);
    run_range_servers(&far, order);
    setenv("TUTTI_TEST_HOSTS", "a,b,b", 1);
    run_range_servers(&mixed, order);
    unsetenv("TUTTI_TEST_HOSTS");
    unsetenv("TUTTI_TEST_TRANSPORT");
    expect_same(&far, &here);
    expect_same(&mixed, &here);
    end(&here);
    end(&far);
    end(&mixed);
}

/* A plan of less blocks than ranges: some hold nothing. */
T_CASE(a_range_may_be_empty) {
    T_UNUSED;
    tti_plan *plan = workers_plan(net_wide, "sgd", 1 << 20);
    size_t n = 0;
    for (int r = 0; r < 64; r++) {
        tti_range keys = tti_share_range(plan, r, 64);
        tti_share share;
        T_EQ(keys.first, n);
        T_OK(tti_share_init_range(plan, r, 64, &share));
        T_EQ(share.n_elems, keys.last - keys.first);
        T_EQ(share.n_blocks > 0, keys.last > keys.first);
        for (int i = 0; i < share.n_blocks; i++)
            T_EQ(share.blocks[i].state, plan->updates[share.blocks[i].update].first - keys.first);
        tti_share_fini(&share);
        n = keys.last;
    }
    T_EQ(n, plan->n_flat);
    tti_plan_destroy(plan);
}

/* ---- backup workers: bits depend on who is first, but not from where parameters are taken ---- */

T_CASE(steps_without_the_slowest) {
    T_UNUSED;
    for (int n = 2; n <= N_RANKS; n++) {
        range_servers s = {.n_ranges = n, .n_backup = 1};
        run_range_servers(&s, NULL);
        T_EQ(s.n_arrivals, BATCHES);
        for (int r = 1; r < N_RANKS; r++)
            assert_memory_equal(s.workers.params[r], s.workers.params[0],
                                s.workers.plan->n_flat * sizeof(float));
        end(&s);
    }
}

/* ---- bytes ---- */

/* A batch is a gradient, and with the last pull each worker has parameters and averages; those of a
 * range server's own worker go nowhere. */
T_CASE(each_range_server_has_its_part_of_the_bytes) {
    T_UNUSED;
    tti_arrival order[BATCHES];
    fill_order(order);
    for (int n = 1; n <= N_RANKS; n++) {
        range_servers s = {.n_ranges = n};
        run_range_servers(&s, order);
        T_EQ(s.n_held, n);
        for (int r = 0; r < n; r++) {
            tti_range keys = tti_share_range(s.workers.plan, r, n);
            int64_t far = 0;
            for (int i = 0; i < BATCHES; i++) far += 2 * (order[i].worker != r);
            far += 2 * (N_RANKS - 1);
            T_EQ(s.held[r].keys.first, keys.first);
            T_EQ(s.held[r].keys.last, keys.last);
            T_EQ(s.held[r].n_bytes, far * (int64_t)((keys.last - keys.first) * sizeof(float)));
        }
        end(&s);
    }
}

/* ---- what is stored comes back ---- */

static const char *store_and_look(range_servers *s, tti_exec *exec) {
    const tti_plan *plan = s->workers.plan;
    tti_members members;
    int64_t n_updates;
    float *data = malloc(plan->n_flat * sizeof *data);
    for (int k = TTI_STATE_PARAMS; k < plan->n_states; k++) {
        for (size_t i = 0; i < plan->n_flat; i++) data[i] = (float)(i + 1) + 100 * (float)k;
        for (int i = 0; i < plan->n_slots; i++)
            tti_exec_store(exec, k, plan->slots[i].first, plan->slots[i].n_elems,
                           data + plan->slots[i].first);
    }
    COMM_OK(tti_exec_push(exec));
    memset(tti_exec_params(exec), 0, plan->n_flat * sizeof *data);
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    COMM_OK(tti_server_pull(exec, &n_updates));
    for (int i = 0; i < plan->n_slots; i++)
        for (size_t e = 0; e < plan->slots[i].n_elems; e++) {
            size_t at = plan->slots[i].first + e;
            COMM_TRUE(tti_exec_params(exec)[at] == (float)(at + 1) - 200);
            COMM_TRUE(tti_exec_ema(exec)[at] == (float)(at + 1) - 100);
        }
    free(data);
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members)); /* all have pulled */
    return NULL;
}

T_CASE(every_range_server_takes_its_part_of_a_checkpoint) {
    T_UNUSED;
    range_servers s = {.n_ranges = 3, .also = store_and_look};
    run_range_servers(&s, NULL);
    for (int i = 0; i < s.workers.plan->n_slots; i++) {
        const tti_slot *slot = &s.workers.plan->slots[i];
        if (!slot->buffer)
            assert_true(s.workers.states[0][slot->first] == (float)(slot->first + 1) &&
                        s.workers.params[0][slot->first] == (float)(slot->first + 1) - 200);
    }
    end(&s);
}

/* ---- who goes ---- */

static const char *takes_and_goes(tti_channel *first) {
    static const int64_t kinds[] = {TTI_WIRE_COMBINE, TTI_WIRE_OPEN, TTI_WIRE_LEASE};
    for (size_t i = 0; i < TTI_COUNT(kinds); i++) {
        tti_wire_message m = {.kind = kinds[i]};
        size_t n_bytes = sizeof m;
        if (m.kind == TTI_WIRE_COMBINE) m.number[1] = TTI_COMBINE_MAX;
        if (m.kind == TTI_WIRE_OPEN) m.number[1] = BATCHES;
        COMM_OK(tti_channel_send(first, &m, tti_wire_bytes(&m), 0));
        COMM_OK(tti_channel_recv(first, &m, &n_bytes, ~0u, 20000));
        COMM_TRUE(m.kind == kinds[i]);
    }
    return NULL;
}

static const char *goes_at_once(tti_channel *first) {
    (void)first;
    return NULL;
}

T_CASE(the_others_go_on_without_a_worker) {
    T_UNUSED;
    const char *(*const odd[])(tti_channel *) = {takes_and_goes, goes_at_once};
    for (size_t i = 0; i < TTI_COUNT(odd); i++) {
        range_servers s = {.n_ranges = 2, .odd = odd[i], .odd_rank = 2};
        run_range_servers(&s, NULL);
        expect_whole(&s);
        assert_memory_equal(s.workers.params[1], s.workers.params[0],
                            s.workers.plan->n_flat * sizeof(float));
        end(&s);
    }
}

/* Its worker may leave as any other: the range is kept. */
T_CASE(a_range_server_goes_on_without_its_worker) {
    T_UNUSED;
    for (int w = 0; w < N_RANKS; w++) {
        range_servers s = {.n_ranges = 2, .leaves = true, .leaver = w}, again = {.n_ranges = 3};
        run_range_servers(&s, NULL);
        expect_whole(&s);
        for (int i = 0; i < BATCHES; i++) assert_true(s.arrivals[i].worker != w);
        run_range_servers(&again, s.arrivals);
        expect_same(&again, &s);
        end(&s);
        end(&again);
    }
}

T_CASE(a_range_server_that_goes_ends_all) {
    T_UNUSED;
    range_servers s = {.n_ranges = 2, .odd = goes_at_once, .odd_rank = 1, .text = "rank 1"};
    run_range_servers(&s, NULL);
    end(&s);
    range_servers with_batch = {.n_ranges = 3, .odd = takes_and_goes, .odd_rank = 2};
    with_batch.text = "rank 2";
    run_range_servers(&with_batch, NULL);
    end(&with_batch);
}

static sem_t others_ended;

static const char *says_nothing(tti_channel *first) {
    struct timespec end;
    (void)first;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 30;
    for (int i = 1; i < N_RANKS; i++)
        if (sem_timedwait(&others_ended, &end) != 0) return "the others wait for the first";
    return NULL;
}

/* Nothing moves there, but its connections are open: those who failed end all the same. */
T_CASE(who_fails_does_not_wait_for_the_first_for_ever) {
    T_UNUSED;
    range_servers s = {.n_ranges = 3, .odd = says_nothing, .fails = true, .ended = &others_ended};
    assert_int_equal(sem_init(&others_ended, 0, 0), 0);
    run_range_servers(&s, NULL);
    tti_server_destroy(s.server);
    sem_destroy(&others_ended);
    end(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_know_who_holds_what),
        cmocka_unit_test(what_was_recorded_is_repeated),
        cmocka_unit_test(between_hosts),
        cmocka_unit_test(a_range_may_be_empty),
        cmocka_unit_test(steps_without_the_slowest),
        cmocka_unit_test(each_range_server_has_its_part_of_the_bytes),
        cmocka_unit_test(every_range_server_takes_its_part_of_a_checkpoint),
        cmocka_unit_test(the_others_go_on_without_a_worker),
        cmocka_unit_test(a_range_server_goes_on_without_its_worker),
        cmocka_unit_test(a_range_server_that_goes_ends_all),
        cmocka_unit_test(who_fails_does_not_wait_for_the_first_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

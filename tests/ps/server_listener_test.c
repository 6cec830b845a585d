/* server_listener_test.c - workers that come to a server through channels, as processes do: what
 * threads come to, meetings, and workers that go or talk nonsense.  Each is a thread here, with a
 * server of its own to speak with. */
#include "base/clock.h"
#include "base/fault.h"
#include "comm/channel.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"
#include "ps/server_workers.h"

enum { LIMIT_MS = 4000 };

/* Workers whose rank 0 has the server.  odd: what the last rank does instead of working. */
typedef struct apart {
    workers workers;
    tti_server *server;
    const char *(*odd)(struct apart *a, tti_channel *c);
    int64_t staleness;
    bool fails; /* all hear the text instead of coming to the end */
    const char *text;
    tti_arrival arrivals[MAX_UPDATES];
    int n_arrivals;
    double sums[3];
    tti_members members;           /* of the last call of combine, as rank 0 received them */
    _Atomic bool waits, has_ended; /* rank 0, in its last synchronization */
} apart;

static bool is_odd(const apart *a, int rank) { return a->odd && rank == a->workers.n_ranks - 1; }

/* Sums of numbers of all, and the largest. */
static const char *synchronize(apart *a, tti_exec *exec, int rank) {
    double sums[3] = {rank == 1 ? 0.25 : 0, rank + 1, 1};
    int64_t largest = rank == 1 ? INT64_MAX : rank - 100;
    tti_members members;
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_SUM, sums, 3, &members));
    if (rank == 0) memcpy(a->sums, sums, sizeof sums);
    COMM_TRUE(sums[0] == 0.25 && tti_set_is_within(&members.all, &members.live));
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_MAX, &largest, 1, &members));
    COMM_TRUE(largest == INT64_MAX);
    if (rank == 0) a->members = members;
    return NULL;
}

static tutti_status make_batches(tti_exec *exec, tti_server *server) {
    tti_members members;
    tti_server_rate(server, rate, NULL);
    TTI_TRY(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    TTI_TRY(tti_server_open(server, 0, BATCHES));
    workers_batch *batch = workers_batch_new();
    tutti_status st = run_step(exec, batch);
    free(batch);
    return st;
}

static const char *work(apart *a, tti_exec *exec, tti_server *server, int rank) {
    tti_members members;
    int64_t n_updates;
    tutti_status st = make_batches(exec, server);
    if (a->fails) { /* wherever it hears of it */
        COMM_FAILS(st, TUTTI_E_PEER, a->text);
        return NULL;
    }
    COMM_OK(st);
    COMM_OK(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    COMM_OK(tti_server_pull(exec, &n_updates));
    COMM_TRUE(n_updates == BATCHES);
    const char *failure = synchronize(a, exec, rank);
    return failure ? failure : workers_keep(&a->workers, exec, rank);
}

/* The odd one has no server, but its channel. */
static const char *be_odd(apart *a, tutti_comm *comm) {
    tti_channel *channels[WORKERS_MAX_RANKS];
    size_t n_bytes = a->workers.plan->n_flat * sizeof(float), sizes[] = {n_bytes, n_bytes, n_bytes};
    COMM_OK(tti_channels_open(comm, 0, sizes, TTI_COUNT(sizes), channels));
    const char *failure = a->odd(a, channels[0]);
    tti_channel_close(channels[0]);
    return failure;
}

/* This rank's server, that of rank 0 or one that asks it, and a worker of it. */
static const char *come(const apart *a, tutti_comm *comm, tti_server_desc *d, tti_exec **exec) {
    int rank = tutti_comm_rank(comm);
    tti_server *server = a->server;
    if (rank == 0)
        COMM_OK(tti_server_admit(server, comm));
    else
        COMM_OK(tti_server_connect(d, comm, &server));
    COMM_TRUE(tti_server_has_processes(server) && tti_server_is_async(server));
    d->exec.server = server;
    d->exec.server_worker = rank;
    COMM_OK(tti_exec_create(&d->exec, exec));
    return NULL;
}

static void go(const tti_server_desc *d, tti_exec *exec) {
    tti_exec_destroy(exec);
    if (d->exec.server_worker > 0) tti_server_destroy(d->exec.server);
}

static const char *rank_apart(tutti_comm *comm, void *arg) {
    apart *a = arg;
    int rank = tutti_comm_rank(comm);
    tti_server_desc d = server_desc(&a->workers, 2, a->staleness);
    tti_exec *exec;
    if (is_odd(a, rank)) return be_odd(a, comm);
    const char *failure = come(a, comm, &d, &exec);
    if (failure) return failure;
    failure = work(a, exec, d.exec.server, rank);
    go(&d, exec);
    return failure;
}

/* replay: arrivals of another run, NULL: none. */
static void run_apart(apart *a, int n_ranks, const tti_arrival *replay) {
    a->workers = new_workers("adamw", n_ranks);
    a->workers.exec.clip_norm = 1;
    a->workers.exec.ema = 0.9;
    if (a->staleness == 0) a->staleness = TTI_UNBOUNDED;
    tti_server_desc d = server_desc(&a->workers, 2, a->staleness);
    d.replay = replay;
    d.n_replay = replay ? BATCHES : 0;
    T_OK(tti_server_create(&d, &a->server));
    comm_run(n_ranks, rank_apart, a);
    while (a->n_arrivals < MAX_UPDATES && tti_server_next(a->server, &a->arrivals[a->n_arrivals]))
        a->n_arrivals++;
}

static void end(apart *a) {
    tti_server_destroy(a->server);
    workers_fini(&a->workers);
}

static void expect_whole(const apart *a) {
    bool seen[BATCHES] = {false};
    T_EQ(a->n_arrivals, BATCHES);
    for (int i = 0; i < BATCHES; i++) {
        T_EQ(a->arrivals[i].step, i + 1);
        assert_true(a->arrivals[i].lr == rate(NULL, i));
        assert_false(seen[a->arrivals[i].batch]);
        seen[a->arrivals[i].batch] = true;
    }
}

static void expect_same(const apart *a, const apart *b) {
    size_t n_bytes = a->workers.plan->n_flat * sizeof(float);
    for (int r = 0; r < a->workers.n_ranks; r++)
        assert_memory_equal(a->workers.params[r], b->workers.params[0], n_bytes);
    assert_memory_equal(a->workers.states[0], b->workers.states[0], n_bytes);
}

T_CASE(what_was_recorded_is_repeated) {
    T_UNUSED;
    for (int w = 2; w <= 4; w++) {
        apart first = {0}, again = {0};
        T_OK(tti_fault_set("exec.compute:delay_ms=3@rank=1"));
        run_apart(&first, w, NULL);
        T_OK(tti_fault_set("exec.compute:delay_ms=2@rank=0"));
        run_apart(&again, w, first.arrivals);
        T_OK(tti_fault_set(NULL));
        expect_whole(&first);
        expect_same(&again, &first);
        assert_true(first.sums[1] == w * (w + 1) / 2 && first.sums[2] == w);
        assert_true(tti_set_count_below(&first.members.all, w) == w &&
                    tti_set_count(&first.members.all) == w);
        for (int i = 0; i < BATCHES; i++)
            assert_true(first.arrivals[i].worker == again.arrivals[i].worker &&
                        first.arrivals[i].batch == again.arrivals[i].batch &&
                        first.arrivals[i].version == again.arrivals[i].version);
        end(&first);
        end(&again);
    }
}

T_CASE(staleness_is_bounded) {
    T_UNUSED;
    apart a = {.staleness = 1};
    run_apart(&a, 3, NULL);
    expect_whole(&a);
    for (int i = 0; i < BATCHES; i++) {
        int64_t lacks = a.arrivals[i].step - 1 - a.arrivals[i].version;
        assert_in_range(lacks, 0, (1 + 1) * (3 - 1));
    }
    end(&a);
}

/* ---- odd ones ---- */

static const char *ask(tti_channel *c, tti_wire_message *m, unsigned areas) {
    size_t n_bytes = sizeof *m;
    COMM_OK(tti_channel_send(c, m, tti_wire_bytes(m), areas));
    COMM_OK(tti_channel_recv(c, m, &n_bytes, ~0u, 20000));
    COMM_OK(tti_wire_check(m, n_bytes));
    return NULL;
}

static const char *ask_for(tti_channel *c, int64_t kind, int64_t a, int64_t b,
                           tti_wire_message *m) {
    *m = (tti_wire_message){.kind = kind, .number = {a, b}};
    const char *failure = ask(c, m, kind == TTI_WIRE_GRADIENT ? 1u << TTI_WIRE_GRADS : 0);
    if (!failure && m->kind != kind)
        return comm_text("an answer of kind %d: %s", (int)m->kind,
                         m->kind == TTI_WIRE_FAIL ? m->more.text : "");
    return failure;
}

/* It has a batch, and goes. */
static const char *takes_and_goes(apart *a, tti_channel *c) {
    tti_wire_message m;
    (void)a;
    const char *failure = ask_for(c, TTI_WIRE_COMBINE, 0, TTI_COMBINE_MAX, &m);
    if (!failure) failure = ask_for(c, TTI_WIRE_OPEN, 0, BATCHES, &m);
    if (!failure) failure = ask_for(c, TTI_WIRE_LEASE, 0, 0, &m);
    return failure;
}

/* The others may have called combine, or not yet: either way they do not wait for it. */
static const char *goes_at_once(apart *a, tti_channel *c) {
    (void)a;
    (void)c;
    return NULL;
}

static const char *says_nonsense(apart *a, tti_channel *c) {
    tti_wire_message m;
    const char *failure = takes_and_goes(a, c);
    if (failure) return failure;
    m = (tti_wire_message){.kind = TTI_WIRE_LEASE}; /* it has one */
    failure = ask(c, &m, 0);
    if (failure) return failure;
    COMM_TRUE(m.kind == TTI_WIRE_FAIL && strstr(m.more.text, "out of turn"));
    m.kind = 99;
    COMM_OK(tti_channel_send(c, &m, 77, 0));
    return NULL;
}

/* More than there is room for where the server takes messages. */
static const char *says_too_much(apart *a, tti_channel *c) {
    static const char bytes[TTI_CHANNEL_BYTES];
    const char *failure = takes_and_goes(a, c);
    if (!failure) COMM_OK(tti_channel_send(c, bytes, sizeof bytes, 0));
    return failure;
}

T_CASE(the_others_go_on) {
    T_UNUSED;
    static const struct {
        const char *(*odd)(apart *a, tti_channel *c);
        bool has_batch;
        const char *why;
    } cases[] = {{takes_and_goes, true, "rank 2 has left"},
                 {goes_at_once, false, "rank 2 has left"},
                 {says_nonsense, true, "77 bytes that are not one of its messages"},
                 {says_too_much, true, "sent an invalid message"}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        apart a = {.odd = cases[i].odd};
        tti_leave left;
        run_apart(&a, 3, NULL);
        expect_whole(&a);
        assert_true(tti_set_count_below(&a.members.all, 2) == 2 &&
                    tti_set_count(&a.members.all) == 2 && a.sums[2] == 2);
        assert_true(tti_server_next_leave(a.server, &left));
        T_EQ(left.worker, 2);
        T_EQ(left.batch >= 0, cases[i].has_batch);
        assert_non_null(strstr(left.why, cases[i].why));
        assert_false(tti_server_next_leave(a.server, &left));
        end(&a);
    }
}

/* ---- what ends all ---- */

/* One after the other, nobody lacks anything: the third update is the odd one's, who goes instead.
 */
T_CASE(an_order_that_is_repeated_needs_all) {
    T_UNUSED;
    tti_arrival in_turn[BATCHES];
    apart a = {.odd = takes_and_goes, .fails = true};
    a.text = "worker 2 has left, and a replay needs all workers";
    for (int i = 0; i < BATCHES; i++)
        in_turn[i] = (tti_arrival){.step = i + 1, .batch = i, .version = i, .worker = i % 3};
    run_apart(&a, 3, in_turn);
    T_EQ(a.n_arrivals, 2);
    end(&a);
}

/* One that cannot go on for a reason that is everybody's says so. */
static const char *fails_for_all(apart *a, tti_channel *c) {
    tti_wire_message m = {.kind = TTI_WIRE_FAIL};
    const char *failure = takes_and_goes(a, c);
    if (failure) return failure;
    snprintf(m.more.text, sizeof m.more.text, "%s", a->text);
    COMM_OK(tti_channel_send(c, &m, tti_wire_bytes(&m), 0));
    return NULL;
}

T_CASE(a_failure_that_is_everybodys) {
    T_UNUSED;
    apart a = {.odd = fails_for_all, .fails = true, .text = "the data are of another world"};
    run_apart(&a, 3, NULL);
    end(&a);
}

/* The server goes while a worker waits for it, or before it asks: it hears why. */
static const char *server_goes(tutti_comm *comm, void *arg) {
    apart *a = arg;
    tti_server_desc d = server_desc(&a->workers, 1, TTI_UNBOUNDED);
    tti_members members;
    tti_exec *exec;
    if (tutti_comm_rank(comm) == 0) {
        COMM_OK(tti_server_admit(a->server, comm));
        tti_server_abort(a->server, TUTTI_E_DATA, "the host of the server is on fire");
        tti_server_destroy(a->server);
        return NULL;
    }
    COMM_OK(tti_server_connect(&d, comm, &d.exec.server));
    d.exec.server_worker = tutti_comm_rank(comm);
    COMM_OK(tti_exec_create(&d.exec, &exec));
    COMM_FAILS(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members), TUTTI_E_PEER,
               "the host of the server is on fire");
    tti_exec_destroy(exec);
    tti_server_destroy(d.exec.server);
    return NULL;
}

T_CASE(the_server_goes) {
    T_UNUSED;
    apart a = {.workers = new_workers("adamw", 3)};
    tti_server_desc d = server_desc(&a.workers, 1, TTI_UNBOUNDED);
    T_OK(tti_server_create(&d, &a.server));
    comm_run(3, server_goes, &a);
    workers_fini(&a.workers);
}

/* Rank 1 gives a gradient that cannot be applied, which is the run's failure as among threads. */
static const char *gives_no_number(tti_exec *exec, tti_server *server) {
    size_t n_flat = tti_setup_of(exec)->desc.plan->n_flat;
    tti_lease lease;
    tti_arrival arrival;
    float *grads = aligned_alloc(64, (n_flat * sizeof *grads + 63) / 64 * 64);
    COMM_TRUE(grads);
    for (size_t i = 0; i < n_flat; i++) grads[i] = NAN;
    tti_push b = {.partials = {grads}, .n_partials = 1, .result = {.count = 1}};
    COMM_OK(tti_server_open(server, 0, BATCHES));
    COMM_OK(tti_server_lease(exec, &lease));
    tutti_status st = tti_client_push_gradient(server, exec, &b, &arrival);
    free(grads);
    COMM_FAILS(st, TUTTI_E_NUMERICS, "finite");
    tti_server_abort(server, st, tutti_last_error());
    return NULL;
}

static const char *no_number(tutti_comm *comm, void *arg) {
    apart *a = arg;
    int rank = tutti_comm_rank(comm);
    tti_server_desc d = server_desc(&a->workers, 1, TTI_UNBOUNDED);
    tti_members members;
    tti_exec *exec;
    const char *failure = come(a, comm, &d, &exec);
    if (failure) return failure;
    failure = rank == 1 ? gives_no_number(exec, d.exec.server) : NULL;
    if (rank == 0)
        COMM_FAILS(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members), TUTTI_E_NUMERICS,
                   "finite");
    go(&d, exec);
    return failure;
}

T_CASE(a_gradient_that_is_no_number_ends_all) {
    T_UNUSED;
    apart a = {.workers = new_workers("sgd", 2)};
    a.workers.exec.clip_norm = 1;
    tti_server_desc d = server_desc(&a.workers, 1, TTI_UNBOUNDED);
    T_OK(tti_server_create(&d, &a.server));
    tti_server_rate(a.server, rate, NULL);
    comm_run(2, no_number, &a);
    end(&a);
}

/* Rank 1 does not call combine, and computes nothing either: time passes from when rank 0 waits for
 * it until rank 0 gives up. */
static const char *one_meets(tutti_comm *comm, void *arg) {
    apart *a = arg;
    int rank = tutti_comm_rank(comm);
    tti_server_desc d = server_desc(&a->workers, 1, TTI_UNBOUNDED);
    tti_members members;
    tti_exec *exec;
    d.timeout_ms = LIMIT_MS;
    const char *failure = come(a, comm, &d, &exec);
    if (failure) return failure;
    if (rank == 0) {
        a->waits = true;
        tutti_status st = tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members);
        a->has_ended = true;
        COMM_FAILS(st, TUTTI_E_TIMEOUT,
                   " ms for worker 1 (the limit is 4000 ms, by parallel.timeout_ms)");
    } else {
        while (!a->waits) tti_sleep_ms(1);
        COMM_TRUE(t_wait_asleep());
        while (!a->has_ended) comm_let_time_pass(75);
    }
    go(&d, exec);
    return NULL;
}

T_CASE(who_does_not_come_to_a_meeting_is_named) {
    T_UNUSED;
    apart a = {.workers = new_workers("sgd", 2)};
    tti_server_desc d = server_desc(&a.workers, 1, TTI_UNBOUNDED);
    d.timeout_ms = LIMIT_MS;
    T_OK(tti_server_create(&d, &a.server));
    comm_run(2, one_meets, &a);
    end(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_recorded_is_repeated),
        cmocka_unit_test(staleness_is_bounded),
        cmocka_unit_test(the_others_go_on),
        cmocka_unit_test(an_order_that_is_repeated_needs_all),
        cmocka_unit_test(a_failure_that_is_everybodys),
        cmocka_unit_test(the_server_goes),
        cmocka_unit_test(a_gradient_that_is_no_number_ends_all),
        cmocka_unit_test(who_does_not_come_to_a_meeting_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* server_group_test.c - workers that divide a model and do not wait for each other: what was
 * recorded comes again to the same bits, between hosts too, and to the parameters of workers with
 * whole models; state is kept part by part; and who fails ends all. */
#include "exec/worker/worker.h"
#include "ps/server_state.h"

#include "base/clock.h"
#include "exec/grid_workers.h"
#include "ps/server_workers.h"

/* One who fails, or a replica that is late; the text that all then get. */
static const char *const failure_text = "it has no data";
static const char *const late_text =
    " ms for replica 1 (the limit is 3000 ms, by parallel.timeout_ms)";
enum { TIMEOUT_MS = 20000, SHORT_MS = 4000 };

typedef struct replica_group {
    tti_mesh_at size;
    int n_backup;
    bool fails;   /* the last worker */
    bool is_late; /* the last copy, until all of the first have given it up */
    _Atomic int n_gave_up;
    const tti_arrival *replay;
    const tti_plan *whole;
    tti_plan *plans[GRID_MOST];
    tti_arrival arrivals[MAX_UPDATES];
    int n_arrivals, n_held;
    tti_range_traffic *held;
    float *params, *state; /* of the whole, in the places of its plan */
    uint64_t hash;
} replica_group;

static tutti_graph *net(bool training) { return net_same_ends(training, 0); }

static tti_exec_desc exec_desc(const tti_plan *plan) {
    return (tti_exec_desc){.plan = plan,
                           .backend = &tti_backend_cpu,
                           .n_shards = WORKERS_SHARDS,
                           .n_compute_threads = 1,
                           .fast = true,
                           .seed = 7,
                           .clip_norm = 0.5,
                           .ema = 0.9,
                           .beta1 = 0.9,
                           .beta2 = 0.99};
}

static tti_server_desc desc_of(const replica_group *t, int part) {
    tti_server_desc d = {.exec = exec_desc(t->plans[part]),
                         .n_workers = t->size.data,
                         .staleness = t->n_backup > 0 ? 0 : TTI_UNBOUNDED,
                         .n_backup = t->n_backup,
                         .timeout_ms = t->is_late ? SHORT_MS : TIMEOUT_MS};
    d.replay = t->replay;
    d.n_replay = t->replay ? BATCHES : 0;
    return d;
}

static const char *keep_array(tti_exec *exec, const tti_plan *whole, int k, float *to) {
    for (int i = 0; i < whole->n_slots; i++) {
        const tti_slot *slot = &whole->slots[i];
        const float *data;
        COMM_OK(tti_exec_fetch_whole(exec, k, slot->param, &data));
        memcpy(to + slot->first, data, slot->n_elems * sizeof *data);
    }
    return NULL;
}

/* Rank 0 has the whole model and the report. */
static const char *keep(replica_group *t, tti_exec *exec, int rank) {
    uint64_t hash;
    COMM_OK(tti_exec_whole_hash(exec, &hash));
    if (rank > 0) {
        COMM_OK(tti_exec_serve(exec));
        return NULL;
    }
    t->hash = hash;
    while (tti_server_next(tti_setup_of(exec)->desc.server, &t->arrivals[t->n_arrivals]))
        t->n_arrivals++;
    COMM_OK(tti_server_range_traffic(tti_setup_of(exec)->desc.server, &t->held, &t->n_held));
    const char *failure = keep_array(exec, t->whole, TTI_STATE_PARAMS, t->params);
    if (!failure) failure = keep_array(exec, t->whole, 0, t->state);
    if (!failure) COMM_OK(tti_exec_serve_end(exec));
    return failure;
}

static tutti_status make_batches(const replica_group *t, tti_exec *exec, int rank) {
    tti_members members;
    int64_t n_updates;
    tti_server *server = tti_setup_of(exec)->desc.server;
    int64_t numbers[] = {rank, -rank};
    double one = 1;
    tti_server_rate(server, rate, NULL);
    TTI_TRY(tti_server_combine(exec, TTI_COMBINE_MAX, numbers, 2, &members));
    TTI_TRY(tti_server_combine(exec, TTI_COMBINE_SUM, &one, 1, &members));
    int n_ranks = t->size.data * tti_mesh_n_model(&t->size);
    TTI_ASSERT(numbers[0] == n_ranks - 1 && numbers[1] == 0 && one == n_ranks);
    TTI_ASSERT(tti_set_count_below(&members.all, t->size.data) == t->size.data);
    TTI_ASSERT(tti_set_count(&members.all) == t->size.data);
    TTI_TRY(tti_server_open(server, 0, BATCHES));
    if (t->fails && rank == n_ranks - 1) return tti_fail(TUTTI_E_IO, "%s", failure_text);
    bool is_last = tti_setup_of(exec)->desc.server_worker == t->size.data - 1;
    while (t->is_late && is_last && t->n_gave_up < tti_mesh_n_model(&t->size)) tti_sleep_ms(1);
    workers_batch *batch = workers_batch_new();
    tutti_status st = run_step(exec, batch);
    free(batch);
    TTI_TRY(st);
    TTI_TRY(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    TTI_TRY(tti_server_pull(exec, &n_updates));
    TTI_ASSERT(n_updates == BATCHES);
    return tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members);
}

static const char *work(replica_group *t, tti_exec *exec, int rank) {
    tutti_status st = make_batches(t, exec, rank);
    if (!t->fails && !t->is_late) {
        COMM_OK(st);
        return keep(t, exec, rank);
    }
    const char *text = t->fails ? failure_text : late_text;
    bool heard = st != TUTTI_OK && strstr(tutti_last_error(), text);
    const char *failure = heard ? NULL : comm_text("rank %d: %s", rank, tutti_last_error());
    tti_server_abort(tti_setup_of(exec)->desc.server, st, tutti_last_error());
    t->n_gave_up++;
    return failure;
}

static const char *rank_of_replica_group(tutti_comm *comm, void *arg) {
    replica_group *t = arg;
    tti_mesh mesh;
    tti_server *server;
    tti_exec *exec;
    int rank = tutti_comm_rank(comm);
    COMM_OK(tti_mesh_init(comm, &t->size, &mesh));
    tti_server_desc d = desc_of(t, tti_mesh_model_rank(&t->size, &mesh.at));
    COMM_OK(tti_server_create_divided(&d, comm, &t->size, &server));
    COMM_TRUE(tti_server_has_processes(server) && tti_server_has_ranges(server));
    COMM_TRUE(tti_server_sends_requests(server) == (rank % tti_mesh_n_model(&t->size) == 0));
    d.exec.mesh = &mesh;
    d.exec.server = server;
    d.exec.server_worker = mesh.at.data;
    COMM_OK(tti_exec_create(&d.exec, &exec));
    const char *failure = work(t, exec, rank);
    tti_exec_destroy(exec);
    tti_server_destroy(server);
    tti_mesh_fini(&mesh);
    return failure;
}

static void run_replica_group(replica_group *t, const tti_plan *whole) {
    int n_model = tti_mesh_n_model(&t->size);
    t->whole = whole;
    for (int i = 0; i < n_model; i++) {
        tti_mesh_at at = tti_mesh_at_rank(&t->size, i);
        t->plans[i] = grid_plan(net, &t->size, &at, "sgd", 1);
    }
    t->params = calloc(whole->n_flat, sizeof *t->params);
    t->state = calloc(whole->n_flat, sizeof *t->state);
    comm_run_with(t->size.data * n_model, false, t->is_late ? SHORT_MS : TIMEOUT_MS,
                  rank_of_replica_group, t);
}

static void end(replica_group *t) {
    for (int i = 0; i < tti_mesh_n_model(&t->size); i++) tti_plan_destroy(t->plans[i]);
    free(t->params);
    free(t->state);
    free(t->held);
}

static tti_plan *whole_plan(void) {
    const tti_mesh_at one = {1, 1, 1}, at = {0};
    return grid_plan(net, &one, &at, "sgd", 1);
}

static void expect_same(const replica_group *a, const replica_group *b) {
    size_t n_bytes = a->whole->n_flat * sizeof(float);
    assert_true(a->hash == b->hash);
    assert_memory_equal(a->params, b->params, n_bytes);
    assert_memory_equal(a->state, b->state, n_bytes);
    for (int i = 0; i < BATCHES; i++)
        assert_true(a->arrivals[i].result.params_hash == b->arrivals[i].result.params_hash);
}

/* ---- workers with whole models, of one process ---- */

typedef struct reference {
    tti_server *server;
    const tti_plan *plan;
    float *params;
} reference;

static const char *rank_of_reference(tutti_comm *comm, void *arg) {
    reference *f = arg;
    int rank = tutti_comm_rank(comm);
    tti_exec_desc desc = exec_desc(f->plan);
    tti_exec *exec;
    desc.server = f->server;
    desc.server_worker = rank;
    COMM_OK(tti_exec_create(&desc, &exec));
    COMM_OK(tti_server_open(f->server, 0, BATCHES));
    workers_batch *batch = workers_batch_new();
    COMM_OK(run_step(exec, batch));
    COMM_OK(tutti_comm_barrier(comm));
    free(batch);
    if (rank == 0)
        memcpy(f->params, tti_exec_array(tti_server_exec(f->server), TTI_STATE_PARAMS),
               f->plan->n_flat * sizeof(float));
    tti_exec_destroy(exec);
    return NULL;
}

static void expect_whole_models(const replica_group *t) {
    reference f = {.plan = t->whole, .params = calloc(t->whole->n_flat, sizeof(float))};
    tti_server_desc d = {.exec = exec_desc(t->whole),
                         .n_workers = t->size.data,
                         .staleness = TTI_UNBOUNDED,
                         .timeout_ms = 20000,
                         .replay = t->arrivals,
                         .n_replay = BATCHES};
    T_OK(tti_server_create(&d, &f.server));
    comm_run(t->size.data, rank_of_reference, &f);
    for (size_t i = 0; i < t->whole->n_flat; i++) T_NEAR(t->params[i], f.params[i], 1e-4);
    tti_server_destroy(f.server);
    free(f.params);
}

/* ---- cases ---- */

/* A part that two stages have, partials of layers, and both. */
static const tti_mesh_at sizes[] = {{2, 2, 1}, {2, 1, 2}, {2, 2, 2}, {3, 2, 1}};

T_CASE(copies_come_to_what_whole_models_come_to) {
    T_UNUSED;
    tti_plan *whole = whole_plan();
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        replica_group t = {.size = sizes[i]};
        run_replica_group(&t, whole);
        T_EQ(t.n_arrivals, BATCHES);
        for (int a = 0; a < BATCHES; a++) {
            T_EQ(t.arrivals[a].step, a + 1);
            assert_true(t.arrivals[a].worker < sizes[i].data);
        }
        assert_true(t.arrivals[BATCHES - 1].result.params_hash == t.hash);
        expect_whole_models(&t);
        end(&t);
    }
    tti_plan_destroy(whole);
}

T_CASE(what_is_recorded_comes_again_between_hosts) {
    T_UNUSED;
    tti_plan *whole = whole_plan();
    for (size_t i = 0; i < 3; i++) {
        replica_group first = {.size = sizes[i]}, again = {.size = sizes[i]};
        run_replica_group(&first, whole);
        again.replay = first.arrivals;
        setenv("TUTTI_TEST_TRANSPORT", "tcp", 1);
        setenv("TUTTI_TEST_HOSTS", i == 2 ? "a,a,b,b,c,c,b,a" : "a,b,b,c", 1);
        run_replica_group(&again, whole);
        unsetenv("TUTTI_TEST_HOSTS");
        unsetenv("TUTTI_TEST_TRANSPORT");
        expect_same(&again, &first);
        end(&first);
        end(&again);
    }
    tti_plan_destroy(whole);
}

/* Each batch is a gradient of a part and parameters for it, and each pull parameters and averages;
 * of the first copy nothing goes anywhere. */
T_CASE(each_part_is_kept_once) {
    T_UNUSED;
    tti_plan *whole = whole_plan();
    replica_group t = {.size = {2, 2, 1}};
    run_replica_group(&t, whole);
    int64_t far = 2;
    for (int i = 0; i < BATCHES; i++) far += 2 * (t.arrivals[i].worker != 0);
    T_EQ(t.n_held, 2);
    for (int p = 0; p < 2; p++) {
        T_EQ(t.held[p].keys.first, p == 0 ? 0 : t.plans[0]->n_flat);
        T_EQ(t.held[p].keys.last - t.held[p].keys.first, t.plans[p]->n_flat);
        T_EQ(t.held[p].n_bytes, far * (int64_t)(t.plans[p]->n_flat * sizeof(float)));
    }
    end(&t);
    tti_plan_destroy(whole);
}

T_CASE(steps_without_the_slowest_copy) {
    T_UNUSED;
    tti_plan *whole = whole_plan();
    replica_group t = {.size = {3, 2, 1}, .n_backup = 1};
    run_replica_group(&t, whole);
    T_EQ(t.n_arrivals, BATCHES);
    for (int i = 0; i < BATCHES; i++) T_EQ(t.arrivals[i].version, i);
    end(&t);
    tti_plan_destroy(whole);
}

T_CASE(who_fails_ends_all) {
    T_UNUSED;
    tti_plan *whole = whole_plan();
    replica_group t = {.size = {2, 2, 1}, .fails = true};
    run_replica_group(&t, whole);
    end(&t);
    tti_plan_destroy(whole);
}

/* The others of replica 0 wait too, as long, for the answer that its rank 0 gets. */
T_CASE(who_does_not_come_is_named) {
    T_UNUSED;
    tti_plan *whole = whole_plan();
    replica_group t = {.size = {2, 1, 2}, .is_late = true};
    run_replica_group(&t, whole);
    end(&t);
    tti_plan_destroy(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_come_to_what_whole_models_come_to),
        cmocka_unit_test(what_is_recorded_comes_again_between_hosts),
        cmocka_unit_test(each_part_is_kept_once),
        cmocka_unit_test(steps_without_the_slowest_copy),
        cmocka_unit_test(who_fails_ends_all),
        cmocka_unit_test(who_does_not_come_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

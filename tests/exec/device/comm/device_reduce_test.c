/* device_reduce_test.c - sums between workers on devices, on devices that are the host.
 *
 * The stand-in does what a device does, by chunks and in the order it is given, at once; so what is
 * tested is the arithmetic of partial sums and chunks, and that every bucket is summed once. */
#include <stdlib.h>

#include "comm/subgroup.h"
#include "exec/fake_peers.h"
#include "exec/reduce_workers.h"
#include "exec/update_workers.h"
#include "tutti/ops.h"

/* ---- devices that are the host ---- */

/* For a rank: the queue that was ordered last to wait for another one, also at the time of a join
 * and of a fetch; and whether a peer is lost, for which a device would wait without end. */
static _Thread_local tti_queue waiting, joined_in, fetched_in;
static _Thread_local bool is_lost;

static tutti_status noted_order(tti_queue after, tti_queue before) {
    waiting = after;
    return fake_order(after, before);
}

static tutti_status noted_join(void *group, const tti_device_join *join, bool *done) {
    (void)group, (void)join;
    joined_in = waiting;
    waiting = TTI_N_QUEUES;
    *done = true;
    return TUTTI_OK;
}

static tutti_status noted_fetch(void *group, size_t which, int source, float *dst,
                                bool overlapped) {
    fetched_in = waiting;
    return fake_fetch(group, which, source, dst, overlapped);
}

/* Of a rank: what its device was given to meet the others. */
static _Thread_local tti_device_peers met;

/* [n_ranks]: of each rank, whatever the communicator says; NULL: as it says. */
static const int *hosts_of_ranks;

static tutti_status connect_on_hosts(const tti_device_peers *peers, void **group) {
    tti_device_peers given = *peers;
    if (hosts_of_ranks) given.hosts = hosts_of_ranks;
    met = given;
    return fake_connect(&given, group);
}

static tutti_status noted_sync(void) {
    return is_lost ? tti_fail(TUTTI_E_INTERNAL, "it waits for ever") : TUTTI_OK;
}

static tutti_status noted_await(void *group, int mark) {
    (void)group, (void)mark;
    return is_lost ? tti_fail(TUTTI_E_PEER, "a rank is lost") : TUTTI_OK;
}

static bool linked; /* what the devices say of themselves */

static bool are_linked(const void *group) {
    (void)group;
    return linked;
}

static const tti_device_ops fake_ops = {.open = fake_open,
                                        .close = fake_close,
                                        .queues.copy = fake_copy,
                                        .queues.order = noted_order,
                                        .queues.record_event = fake_note,
                                        .queues.wait_event = fake_note,
                                        .queues.record_host_event = fake_note,
                                        .queues.sync = noted_sync,
                                        .collectives.connect = connect_on_hosts,
                                        .collectives.disconnect = fake_disconnect,
                                        .collectives.describe = fake_describe,
                                        .collectives.are_linked = are_linked,
                                        .collectives.all_reduce = fake_sum,
                                        .collectives.reduce_scatter = fake_sum_partitions,
                                        .collectives.all_gather = noted_fetch,
                                        .collectives.join = noted_join,
                                        .collectives.await = noted_await,
                                        .collectives.all_gather_words = fake_all_gather,
                                        .collectives.report_sums = fake_report_sums};

static const tti_backend fake = {.name = "fake",
                                 .device = &fake_ops,
                                 .alloc = fake_alloc,
                                 .release = fake_release,
                                 .accumulate = fake_accumulate,
                                 .accumulate_rounded = fake_accumulate_rounded};

/* ---- cases ---- */

T_CASE(chunks_cover_a_vector_once) {
    T_UNUSED;
    for (size_t n = 0; n < 200; n += 4)
        for (int n_ranks = 1; n_ranks <= 9; n_ranks++) {
            size_t at = 0;
            for (int r = 0; r < n_ranks; r++) {
                tti_chunk c = tti_chunk_of(n, r, n_ranks);
                T_EQ(c.first, at);
                T_EQ(c.first % 4, 0);
                assert_true(c.n_elems <= tti_chunk_of(n, 0, n_ranks).n_elems);
                at += c.n_elems;
            }
            T_EQ(at, n);
        }
}

T_CASE(any_number_of_ranks_has_the_bits_of_the_tree) {
    T_UNUSED;
    static const int shards[] = {2, 8, 64};
    for (int v = 0; v < 3; v++)
        for (int n_ranks = 2; n_ranks <= REDUCE_MAX_RANKS && n_ranks <= shards[v]; n_ranks++)
            for (int n_compute_threads = 1; n_compute_threads <= 4; n_compute_threads += 3) {
                reduce_workers c = {.backend = &fake,
                                    .alg = TUTTI_ALG_DIRECT,
                                    .n_shards = shards[v],
                                    .n_compute_threads = n_compute_threads,
                                    .n_elems = {16, 160, 48}};
                reduce_run(&c, n_ranks);
                c.wire = TUTTI_BF16;
                reduce_run(&c, n_ranks);
            }
}

T_CASE(any_runs_have_the_bits_of_the_tree) {
    T_UNUSED;
    const tti_shard_map shard_maps[] = {
        {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}},
        {.n_ranks = 4, .n_shards = 8, .first = (int[]){0, 5, 6, 7, 8}},
        {.n_ranks = 3, .n_shards = 16, .first = (int[]){0, 1, 14, 16}}};
    for (size_t d = 0; d < TTI_COUNT(shard_maps); d++)
        for (int bits = 0; bits < 4; bits++) {
            reduce_workers c = {.backend = &fake,
                                .alg = TUTTI_ALG_DIRECT,
                                .n_shards = tti_shard_map_n_shards(&shard_maps[d]),
                                .shard_map = &shard_maps[d],
                                .n_compute_threads = 1,
                                .fast = bits & 1,
                                .parts = bits & 2,
                                .n_elems = {16, 160, 48}};
            reduce_run(&c, shard_maps[d].n_ranks);
            c.wire = TUTTI_BF16;
            reduce_run(&c, shard_maps[d].n_ranks);
        }
}

T_CASE(fast_mode_adds_one_sum_of_each_rank) {
    T_UNUSED;
    for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
        reduce_workers c = {.alg = TUTTI_ALG_DIRECT,
                            .backend = &fake,
                            .n_shards = 8,
                            .n_compute_threads = 1,
                            .fast = true,
                            .n_elems = {16, 160, 48}};
        reduce_run(&c, n_ranks);
    }
}

T_CASE(parts_of_sums_and_their_gather) {
    T_UNUSED;
    for (int bits = 0; bits < 4; bits++)
        for (int n_ranks = 2; n_ranks <= REDUCE_MAX_RANKS; n_ranks++) {
            reduce_workers c = {.backend = &fake,
                                .alg = TUTTI_ALG_DIRECT,
                                .n_shards = 16,
                                .n_compute_threads = 1,
                                .fast = bits & 1,
                                .parts = true,
                                .sharded = bits & 2,
                                .n_elems = {16, 160, 48}};
            reduce_run(&c, n_ranks);
            if (!c.fast) c.wire = TUTTI_BF16;
            reduce_run(&c, n_ranks);
        }
}

/* ---- hosts ---- */

typedef struct layout {
    const char *name;
    int n_ranks, hosts[REDUCE_MAX_RANKS];
    int n_boundaries; /* how often the sum of 8 shards crosses for all, the way back left out */
} layout;

/* A host with 2^k shards in a row sends one term for each other host's parts. */
static const layout layouts[] = {
    {"two of two", 4, {0, 0, 1, 1}, 1},
    {"two of four", 8, {0, 0, 0, 0, 1, 1, 1, 1}, 1},
    {"four of two", 8, {0, 0, 1, 1, 2, 2, 3, 3}, 3},
    {"in turns", 4, {0, 1, 0, 1}, 2},
    {"one and three", 4, {0, 1, 1, 1}, 0},
    {"two and one", 3, {0, 0, 1}, 0},
    {"odd ones", 7, {0, 1, 1, 2, 2, 0, 1}, 0},
};

static void run_layout(const layout *l, reduce_workers c) {
    c.backend = &fake;
    c.alg = TUTTI_ALG_AUTO;
    c.n_elems[0] = 16, c.n_elems[1] = 160, c.n_elems[2] = 48;
    hosts_of_ranks = l->hosts;
    reduce_run(&c, l->n_ranks);
    hosts_of_ranks = NULL;
}

T_CASE(any_hosts_have_the_bits_of_the_tree) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++)
        for (int bits = 0; bits < 32; bits++)
            run_layout(&layouts[i], (reduce_workers){.wire = bits & 17 ? TUTTI_F32 : TUTTI_BF16,
                                                     .n_shards = bits & 8 ? 64 : 8,
                                                     .n_compute_threads = bits & 8 ? 3 : 1,
                                                     .fast = bits & 1,
                                                     .parts = bits & 6,
                                                     .sharded = bits & 4});
}

T_CASE(any_runs_on_hosts_have_the_bits_of_the_tree) {
    T_UNUSED;
    const tti_shard_map shard_map = {.n_ranks = 4, .n_shards = 8, .first = (int[]){0, 5, 6, 7, 8}};
    for (size_t i = 0; i < TTI_COUNT(layouts); i++)
        for (int parts = 0; parts < 2 && layouts[i].n_ranks == 4; parts++)
            run_layout(&layouts[i], (reduce_workers){.n_shards = 8,
                                                     .n_compute_threads = 1,
                                                     .shard_map = &shard_map,
                                                     .parts = parts == 1});
}

/* As often as there are leaves, whatever number of devices a host has; and the sum comes back to
 * each other host once.  With partitions that is when it is fetched. */
T_CASE(hosts_send_each_other_a_sum_and_not_the_terms_of_their_devices) {
    T_UNUSED;
    enum { N = 16 + 160 + 48 };
    for (size_t i = 0; i < TTI_COUNT(layouts) && layouts[i].n_boundaries > 0; i++)
        for (int parts = 0; parts < 2; parts++) {
            const layout *l = &layouts[i];
            int n_hosts = l->hosts[l->n_ranks - 1] + 1;
            size_t n = (size_t)(l->n_boundaries + n_hosts - 1) * N;
            fake_n_crossed = 0;
            run_layout(
                l, (reduce_workers){.n_shards = 8, .n_compute_threads = 1, .parts = parts == 1});
            T_EQ(fake_n_crossed, n);
        }
}

/* As ranks of a job learn them. */
T_CASE(hosts_are_those_of_the_communicator) {
    T_UNUSED;
    reduce_workers c = {
        .backend = &fake, .n_shards = 8, .n_compute_threads = 1, .n_elems = {16, 160, 48}};
    reduce_plan(&c);
    fake_n_crossed = 0;
    T_EQ(setenv("TUTTI_TEST_TRANSPORT", "tcp", 1), 0);
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,a,b,b", 1), 0);
    comm_run_with(4, true, 0, reduce_rank_main, &c);
    T_EQ(unsetenv("TUTTI_TEST_TRANSPORT"), 0);
    T_EQ(unsetenv("TUTTI_TEST_HOSTS"), 0);
    T_EQ(fake_n_crossed, 2 * c.plan.n_flat);
}

/* What the recorded step does, as it happens. */
static const char *overlapped(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    if (!failure) failure = reduce_say(&r, 0x123456789ABCDEF0u);
    if (!failure) failure = reduce_shards(&r, true);
    if (!failure) failure = reduce_check(&r);
    if (!failure) failure = reduce_check_reported(&r);
    reduce_free(&r);
    return failure;
}

T_CASE(buckets_beside_the_shards_give_the_same) {
    T_UNUSED;
    for (int fast = 0; fast < 2; fast++)
        for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
            reduce_workers c = {.backend = &fake,
                                .alg = TUTTI_ALG_DIRECT,
                                .n_shards = 16,
                                .n_compute_threads = 3,
                                .fast = fast,
                                .n_elems = {16, 160, 48}};
            reduce_plan(&c);
            comm_run(n_ranks, overlapped, &c);
        }
}

/* Parts over fast links: no sum begins before all gradients are there. */
static const char *sum_after_shards(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    if (failure) return failure;
    tti_device_reduce_begin(r.reduce, true);
    tti_device_reduce_after(r.reduce, REDUCE_STEPS);
    int n = tti_device_reduce_n_summed(r.reduce);
    COMM_TRUE(n == (linked ? 0 : REDUCE_BUCKETS));
    reduce_free(&r);
    return overlapped(comm, arg);
}

T_CASE(partitions_over_links_are_summed_after_the_shards) {
    T_UNUSED;
    for (int bits = 0; bits < 4; bits++)
        for (int n_ranks = 2; n_ranks <= 5; n_ranks++) {
            reduce_workers c = {.backend = &fake,
                                .alg = TUTTI_ALG_DIRECT,
                                .n_shards = 16,
                                .n_compute_threads = 3,
                                .fast = bits & 1,
                                .parts = true,
                                .n_elems = {16, 160, 48}};
            linked = bits & 2;
            reduce_plan(&c);
            comm_run(n_ranks, sum_after_shards, &c);
        }
    linked = false;
}

/* Whole sums come after large products, and beside what waits for memory. */
T_CASE(whole_sums_come_after_products) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *a = tutti_input(g, "a", TUTTI_BF16, &TUTTI_SHAPE(4096, 4096));
    tti_node *steps[] = {tutti_matmul(g, a, a)->node, tutti_add(g, a, a)->node};
    T_OK(tutti_graph_check(g));
    tti_plan plan = {.shard = {.steps = steps, .n_steps = 2}};
    assert_true(tti_device_sums_after(&plan, &tti_weights_gpu, false));
    assert_false(tti_device_sums_after(&plan, NULL, false));
    plan.shard.steps = steps + 1, plan.shard.n_steps = 1;
    assert_false(tti_device_sums_after(&plan, &tti_weights_gpu, false));
    assert_true(tti_device_sums_after(&plan, NULL, true));
    tutti_graph_destroy(g);
}

static tutti_status join(reduce_rank *r) {
    tutti_value value = {.type = {.shape = {.n_dims = 1, .dim = {6}}}};
    const tti_op op = {.name = "sync_sum"};
    bool done;
    return tti_device_reduce_join(r->reduce, &(tti_node){.op = &op, .out = {&value}}, NULL, NULL,
                                  &done);
}

/* A sum, then a join, then a fetch: all of them wait for the other ranks. */
static const char *one_after_the_other(tutti_comm *comm, void *arg) {
    reduce_workers *c = arg;
    reduce_rank r = {.c = c};
    const char *failure = reduce_make(&r, comm);
    if (failure) return failure;
    bool alike = c->shard_map == NULL;
    tti_device_reduce_begin(r.reduce, true);
    tti_device_reduce_after(r.reduce, 1);
    COMM_TRUE(tti_device_reduce_n_summed(r.reduce) == 2);
    waiting = TTI_N_QUEUES;
    COMM_OK(join(&r));
    COMM_TRUE(joined_in == (alike ? TTI_N_QUEUES : TTI_QUEUE_COMPUTE));
    COMM_OK(tti_device_reduce_fetch(r.reduce, 0, 0, r.x->arrays->params, true));
    COMM_TRUE(fetched_in == (alike ? TTI_N_QUEUES : TTI_QUEUE_COMM));
    reduce_free(&r);
    return NULL;
}

T_CASE(captured_graphs_that_differ_wait_for_one_thing_at_a_time) {
    T_UNUSED;
    const tti_shard_map shard_map = {.n_ranks = 2, .n_shards = 4, .first = (int[]){0, 3, 4}};
    for (int differ = 0; differ < 2; differ++) {
        reduce_workers c = {.backend = &fake,
                            .alg = TUTTI_ALG_DIRECT,
                            .n_shards = 4,
                            .shard_map = differ ? &shard_map : NULL,
                            .n_compute_threads = 1,
                            .parts = true,
                            .n_elems = {16, 160, 48}};
        reduce_plan(&c);
        comm_run(2, one_after_the_other, &c);
    }
}

/* Outside of captured graphs, too. */
static const char *lose(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    if (failure) return failure;
    is_lost = true;
    COMM_FAILS(tti_device_reduce_fetched(r.reduce, false), TUTTI_E_PEER, "is lost");
    COMM_FAILS(tti_device_reduce_rest(r.reduce), TUTTI_E_PEER, "is lost");
    is_lost = false;
    reduce_free(&r);
    return NULL;
}

T_CASE(waits_end_with_a_lost_peer) {
    T_UNUSED;
    reduce_workers c = {.backend = &fake,
                        .alg = TUTTI_ALG_DIRECT,
                        .n_shards = 4,
                        .n_compute_threads = 1,
                        .parts = true,
                        .n_elems = {16, 160, 48}};
    reduce_plan(&c);
    comm_run(2, lose, &c);
}

/* A worker of another group is lost, of which this group's communicator hears nothing. */
static const char *lose_elsewhere(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    tti_mesh mesh = {.data = comm};
    const char *failure = reduce_prepare(&r, comm);
    if (failure) return failure;
    COMM_OK(tti_comm_split(comm, 0, &mesh.world));
    r.x->setup.desc.mesh = &mesh;
    COMM_OK(tti_device_reduce_create(r.x, &r.reduce, &r.way));
    COMM_OK(met.check(met.user));
    COMM_OK(tutti_comm_barrier(comm));
    if (r.x->setup.rank == 0) tti_comm_abort(mesh.world, "its device is lost");
    COMM_OK(tutti_comm_barrier(comm));
    COMM_OK(tti_comm_check(comm));
    COMM_TRUE(met.check(met.user) == TUTTI_E_PEER);
    COMM_TRUE(strstr(tutti_last_error(), "rank 0 failed: its device is lost"));
    COMM_OK(tutti_comm_barrier(comm)); /* nobody has left while others look */
    tutti_comm_destroy(mesh.world);
    r.x->setup.desc.mesh = NULL;
    reduce_free(&r);
    return NULL;
}

T_CASE(a_worker_that_is_lost_elsewhere_is_heard_of) {
    T_UNUSED;
    reduce_workers c = {.backend = &fake,
                        .alg = TUTTI_ALG_DIRECT,
                        .n_shards = 4,
                        .n_compute_threads = 1,
                        .n_elems = {16, 160, 48}};
    reduce_plan(&c);
    comm_run(2, lose_elsewhere, &c);
}

static const char *ring(tutti_comm *comm, void *arg) {
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    COMM_TRUE(failure && strstr(failure, "ring"));
    reduce_free(&r);
    return NULL;
}

T_CASE(a_ring_is_refused_in_exact_mode) {
    T_UNUSED;
    reduce_workers c = {.backend = &fake,
                        .alg = TUTTI_ALG_DIRECT,
                        .n_shards = 4,
                        .n_compute_threads = 1,
                        .n_elems = {16, 16, 16}};
    reduce_plan(&c);
    c.alg = TUTTI_ALG_RING;
    comm_run(2, ring, &c);
}

/* ---- sums in the update ---- */

static update_workers workers_of_updates(const char *says) {
    static const double momentum[] = {0.9, 0, 0.01};
    const tti_backend *devices;
    T_EQ(setenv("TUTTI_TEST_DEVICE", says, 1), 0);
    T_OK(tti_backend_find("cuda", &devices));
    return (update_workers){.backend = devices,
                            .optimizer = "sgd",
                            .attrs = momentum,
                            .n_slots = 8,
                            .n_elems = {5, 400, 64, 33, 16, 48, 1, 300}};
}

T_CASE(sums_in_the_update_come_to_the_same) {
    T_UNUSED;
    static const char *const says[] = {"peers=1,joint=1,devices=4",
                                       "peers=1,joint=1,devices=4,late=1"};
    for (int bits = 0; bits < 8; bits++)
        for (int n = 2; n <= UPDATE_MAX_RANKS; n++) {
            update_workers c = workers_of_updates(says[bits & 1]);
            c.ema = bits & 2;
            c.bad = bits & 4;
            c.low_dtype = bits & 4 ? TUTTI_BF16 : TUTTI_F32;
            update_run_workers(&c, n, 8);
        }
}

T_CASE(the_rest_is_summed_in_the_update) {
    T_UNUSED;
    for (int late = 0; late < 2; late++)
        for (int n = 2; n <= UPDATE_MAX_RANKS; n++) {
            update_workers c = workers_of_updates(late ? "peers=1,joint=2,devices=4,late=1"
                                                       : "peers=1,joint=2,devices=4");
            c.n_summed = 3;
            c.bad = late;
            update_run_workers(&c, n, 8);
        }
}

T_CASE(uneven_runs_are_summed_in_the_update) {
    T_UNUSED;
    update_workers c = workers_of_updates("peers=1,joint=1");
    c.shard_map = (tti_shard_map){.n_ranks = 2, .n_shards = 16, .first = (int[]){0, 11, 16}};
    update_run_workers(&c, 2, 16);
}

T_CASE(devices_that_cannot_say_so) {
    T_UNUSED;
    update_workers c = workers_of_updates("peers=1");
    c.stays = true;
    update_run_workers(&c, 2, 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_cover_a_vector_once),
        cmocka_unit_test(any_number_of_ranks_has_the_bits_of_the_tree),
        cmocka_unit_test(any_runs_have_the_bits_of_the_tree),
        cmocka_unit_test(fast_mode_adds_one_sum_of_each_rank),
        cmocka_unit_test(parts_of_sums_and_their_gather),
        cmocka_unit_test(any_hosts_have_the_bits_of_the_tree),
        cmocka_unit_test(any_runs_on_hosts_have_the_bits_of_the_tree),
        cmocka_unit_test(hosts_send_each_other_a_sum_and_not_the_terms_of_their_devices),
        cmocka_unit_test(hosts_are_those_of_the_communicator),
        cmocka_unit_test(buckets_beside_the_shards_give_the_same),
        cmocka_unit_test(partitions_over_links_are_summed_after_the_shards),
        cmocka_unit_test(whole_sums_come_after_products),
        cmocka_unit_test(captured_graphs_that_differ_wait_for_one_thing_at_a_time),
        cmocka_unit_test(waits_end_with_a_lost_peer),
        cmocka_unit_test(a_worker_that_is_lost_elsewhere_is_heard_of),
        cmocka_unit_test(a_ring_is_refused_in_exact_mode),
        cmocka_unit_test(sums_in_the_update_come_to_the_same),
        cmocka_unit_test(the_rest_is_summed_in_the_update),
        cmocka_unit_test(uneven_runs_are_summed_in_the_update),
        cmocka_unit_test(devices_that_cannot_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

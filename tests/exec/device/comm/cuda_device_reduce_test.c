/* cuda_device_reduce_test.c - sums between several GPUs as threads, by every way there is, against
 * the tree over all shards, bit for bit.  Exit code 77 with fewer than two.
 *
 * TUTTI_TEST_TIMES=1 prints how long sums take, by size. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/gpus.h"
#include "comm/sum_order.h"
#include "exec/reduce_workers.h"
#include "exec/update_workers.h"

/* Two ranks, then one for each device: NCCL takes seconds to connect them, so not all numbers. */
static int most_ranks(void) { return TTI_MIN(n_devices, (int)REDUCE_MAX_RANKS); }
static int next_ranks(int w, int most) { return w < most ? most : w + 1; }

static void run_case(int n_ranks, int n_shards, bool fast, tutti_comm_alg alg, size_t n) {
    reduce_workers c = {.backend = cuda,
                        .device = {.exact = !fast},
                        .n_shards = n_shards,
                        .n_compute_threads = 1,
                        .fast = fast,
                        .record = true,
                        .alg = alg,
                        .n_elems = {16, n, 48}};
    reduce_run(&c, n_ranks);
}

T_CASE(memory_of_the_peers) {
    T_UNUSED;
    for (int w = 2; w <= most_ranks(); w++)
        for (int v = 8; v <= 64; v *= 8) {
            run_case(w, v, false, TUTTI_ALG_DIRECT, 64);
            run_case(w, v, false, TUTTI_ALG_DIRECT, 9000 * 16);
            run_case(w, v, true, TUTTI_ALG_DIRECT, 9000 * 16);
        }
    run_case(2, 8, false, TUTTI_ALG_DIRECT, 70000 * 16);
}

T_CASE(the_library_moves_and_adds) {
    T_UNUSED;
    for (int w = 2; w <= most_ranks(); w++) {
        run_case(w, 8, false, TUTTI_ALG_TREE, 64);
        run_case(w, 64, false, TUTTI_ALG_TREE, 9000 * 16);
        run_case(w, 8, true, TUTTI_ALG_RING, 70000 * 16);
    }
}

/* Each device sums its part alone and fetches the others', by either way. */
T_CASE(parts_of_sums_and_their_gather) {
    T_UNUSED;
    for (int w = 2; w <= most_ranks(); w = next_ranks(w, most_ranks()))
        for (int i = 0; i < 4; i++) {
            reduce_workers c = {.backend = cuda,
                                .device = {.exact = true},
                                .n_shards = i % 2 ? 64 : 8,
                                .n_compute_threads = 1,
                                .record = true,
                                .parts = true,
                                .sharded = i == 1 || i == 3,
                                .alg = i < 2 ? TUTTI_ALG_DIRECT : TUTTI_ALG_TREE,
                                .n_elems = {16,
                                            (i % 2    ? 9000
                                             : i == 0 ? 300000
                                                      : 70000) *
                                                16,
                                            48}};
            reduce_run(&c, w);
        }
}

/* ---- hosts ---- */

/* [n_ranks]: of each rank; NULL: as the communicator says. */
static const int *hosts_of_ranks;

static tutti_status connect_on_hosts(const tti_device_peers *peers, void **group) {
    tti_device_peers given = *peers;
    given.hosts = hosts_of_ranks;
    return cuda->device->collectives.connect(&given, group);
}

static void describe_hosts(const void *group, tti_str *str) {
    cuda->device->collectives.describe(group, str);
    if (!strstr(tti_str_text(str), "inside each host")) {
        fprintf(stderr, "another way: %s\n", tti_str_text(str));
        abort();
    }
}

/* Devices of one machine that do not read each other where they are of several hosts. */
T_CASE(hosts_add_inside_before_they_move) {
    T_UNUSED;
    static const int layouts[][4] = {{0, 0, 1, 1}, {0, 1, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}};
    tti_device_ops ops = *cuda->device;
    tti_backend on_hosts = *cuda;
    ops.collectives.connect = connect_on_hosts;
    ops.collectives.describe = describe_hosts;
    on_hosts.device = &ops;
    for (int i = 0; n_devices >= 4 && i < 12; i++) {
        reduce_workers c = {.backend = &on_hosts,
                            .device = {.exact = true},
                            .n_shards = i % 2 ? 64 : 8,
                            .n_compute_threads = 1,
                            .record = true,
                            .wire = i % 3 == 1 ? TUTTI_BF16 : TUTTI_F32,
                            .parts = i >= 4,
                            .sharded = i >= 8,
                            .alg = TUTTI_ALG_TREE,
                            .n_elems = {16, (i % 3 ? 9000 : 300000) * 16, 48}};
        hosts_of_ranks = layouts[i % 4];
        reduce_run(&c, 4);
    }
}

/* Rounded before it travels, by either way; both devices then hold the same sums. */
T_CASE(rounded_sums_are_near) {
    T_UNUSED;
    static const tutti_dtype wires[] = {TUTTI_BF16, TUTTI_F16};
    for (int w = 2; w <= most_ranks(); w = next_ranks(w, most_ranks()))
        for (int i = 0; i < 4; i++) {
            reduce_workers c = {.backend = cuda,
                                .n_shards = 8,
                                .n_compute_threads = 1,
                                .fast = true,
                                .wire = wires[i % 2],
                                .record = true,
                                .alg = i < 2 ? TUTTI_ALG_DIRECT : TUTTI_ALG_RING,
                                .n_elems = {16, 2000 * 16, 48}};
            reduce_run(&c, w);
        }
}

/* Exact mode with partial sums of bf16: the bits of the tree whose sums are rounded one by one, by
 * each way, also in parts and where a worker has several partial sums. */
T_CASE(rounded_partial_sums_have_the_bits_of_the_tree) {
    T_UNUSED;
    const tti_shard_map uneven = {.n_ranks = 2, .n_shards = 8, .first = (int[]){0, 5, 8}};
    for (int w = 2; w <= most_ranks(); w = next_ranks(w, most_ranks()))
        for (int i = 0; i < 12; i++) {
            reduce_workers c = {.backend = cuda,
                                .device = {.exact = true},
                                .n_shards = i % 2 ? 64 : 8,
                                .n_compute_threads = 1,
                                .record = true,
                                .wire = TUTTI_BF16,
                                .parts = i % 6 >= 2,
                                .sharded = i % 6 >= 4,
                                .alg = i < 6 ? TUTTI_ALG_DIRECT : TUTTI_ALG_TREE,
                                .n_elems = {16, (i % 3 ? 9000 : 70000) * 16, 48}};
            reduce_run(&c, w);
            if (w > 2 || i % 2) continue;
            c.shard_map = &uneven;
            reduce_run(&c, w);
        }
}

/* ---- sums in the update ---- */

/* A device that has not been seen to do it right does not offer it. */
static bool updates(void) { return cuda->device->fusions.can_update != NULL; }

static void run_updates(const char *optimizer, int n_ranks, int n_shards, int bits) {
    static const size_t large[8] = {5, 17000, 300, 64, 3000, 48, 1, 9000};
    update_workers c = {.backend = cuda,
                        .optimizer = optimizer,
                        .n_slots = bits & 4 ? 200 : 10,
                        .n_elems = {5, 400, 64, 33, 16, 48, 1, 300},
                        .ema = bits & 1,
                        .low_dtype = bits & 2 ? TUTTI_BF16 : TUTTI_F32,
                        .bad = bits & 2,
                        .wire = bits & 8 ? TUTTI_BF16 : TUTTI_F32};
    if (!(bits & 4)) memcpy(c.n_elems, large, sizeof large);
    update_run_workers(&c, n_ranks, n_shards);
}

T_CASE(sums_in_the_update_come_to_the_same) {
    T_UNUSED;
    static const char *const rules[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad", "lion"};
    int most = TTI_MIN(most_ranks(), (int)UPDATE_MAX_RANKS);
    for (size_t i = 0; updates() && i < TTI_COUNT(rules); i++)
        for (int w = 2; w <= most; w = next_ranks(w, most))
            for (int wire = 0; wire <= 8; wire += 8)
                run_updates(rules[i], w, w == 2 ? 8 : 16, (int)(i + (size_t)w) % 8 + wire);
    for (int bits = 0; updates() && bits < 16; bits++) run_updates("adam", 2, 4, bits);
}

T_CASE(uneven_runs_are_summed_in_the_update) {
    T_UNUSED;
    update_workers c = {.backend = cuda,
                        .optimizer = "adam",
                        .shard_map = {.n_ranks = 2, .n_shards = 16, .first = (int[]){0, 11, 16}},
                        .n_slots = 12,
                        .n_elems = {5, 20000, 300, 64, 10000, 48, 1, 300}};
    if (updates()) update_run_workers(&c, 2, 16);
    c.wire = TUTTI_BF16;
    if (updates()) update_run_workers(&c, 2, 16);
}

/* Norms stand in between, or there is too much of it. */
T_CASE(what_is_not_summed_in_the_update) {
    T_UNUSED;
    update_workers norms = {.backend = cuda,
                            .optimizer = "lamb",
                            .n_slots = 4,
                            .n_elems = {5, 400, 64, 33},
                            .stays = true};
    update_workers large = {
        .backend = cuda, .optimizer = "sgd", .n_slots = 1, .n_elems = {4 << 20}, .stays = true};
    if (updates()) update_run_workers(&norms, 2, 4);
    if (updates()) update_run_workers(&large, 2, 4);
}

/* ---- times ---- */

typedef struct timed_update {
    update_workers workers;
    double us[2];
} timed_update;

/* As often in one captured graph as makes the time of its start small. */
static const char *time_update(update_rank *r, int side, double *us) {
    enum { N = 40, ROUNDS = 7 };
    void *captured_graph;
    double timestamps[2], best = 0;
    const char *failure = update_record(r, side, N, &captured_graph);
    for (int i = 0; i < ROUNDS && !failure; i++) {
        COMM_OK(r->ops->queues.sync());
        COMM_OK(tutti_comm_barrier(r->comm));
        COMM_OK(r->ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 0));
        COMM_OK(r->ops->queues.replay(captured_graph));
        COMM_OK(r->ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 1));
        failure = update_settle(r);
        COMM_OK(r->ops->queues.read_timestamps(2, timestamps));
        if (i == 0 || timestamps[1] < best) best = timestamps[1];
    }
    *us = best / N;
    r->ops->queues.release_captured_graph(captured_graph);
    return failure;
}

static const char *time_updates(tutti_comm *comm, void *arg) {
    timed_update *t = arg;
    update_rank r;
    double us = 0;
    bool can = false;
    const char *failure = update_rank_open(&r, comm, &t->workers);
    for (int side = 0; side < 2 && !failure; side++) {
        failure = update_feed(&r, &r.sides[side], 0);
        if (side) COMM_OK(r.ops->fusions.can_update(r.group, r.sides[side].update, 0, &can));
        if (side && !can) break;
        if (!failure) COMM_OK(update_put(&r, side, true));
        if (!failure) failure = update_settle(&r);
        if (!failure) failure = time_update(&r, side, &us);
        if (r.rank == 0) t->us[side] = us;
    }
    if (!failure) COMM_OK(tutti_comm_barrier(comm));
    update_free(&r);
    r.ops->close();
    return failure;
}

T_CASE(updates_take_time) {
    T_UNUSED;
    static const size_t sizes[] = {1 << 10, 1 << 14, 1 << 16, 1 << 18, 412 << 10};
    if (!getenv("TUTTI_TEST_TIMES") || !updates()) return;
    printf("adam, us: elements, sums then update, sums in the update; then with bf16\n");
    for (size_t i = 0; i < 2 * TTI_COUNT(sizes); i++) {
        size_t n = sizes[i % TTI_COUNT(sizes)];
        timed_update t = {.workers = {.backend = cuda, .optimizer = "adam", .n_slots = 8}};
        t.workers.wire = i < TTI_COUNT(sizes) ? TUTTI_F32 : TUTTI_BF16;
        for (int s = 0; s < 8; s++) t.workers.n_elems[s] = n / 8;
        tti_shard_map_equally(2, 2, &t.workers.shard_map);
        comm_run(2, time_updates, &t);
        printf("%9zu %8.1f %8.1f\n", n, t.us[0], t.us[1]);
    }
}

typedef struct timed {
    tutti_comm_alg alg;
    bool fast, overlapped;
    double us[16];
} timed;

static const size_t timed_elems[] = {1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};

static tutti_status gather_all(void *user, const void *src, void *dst, size_t n_bytes) {
    return tutti_comm_all_gather(user, src, dst, n_bytes, TUTTI_U8);
}

static tutti_status check_all(void *user) { return tti_comm_check(user); }

static const char *time_size(const tti_device_ops *ops, tutti_comm *comm, void *group, size_t n,
                             bool overlapped, double *us) {
    enum { N = 20 };
    double timestamps[2];
    for (int round = 0; round < 2; round++) {
        COMM_OK(ops->queues.sync());
        COMM_OK(tutti_comm_barrier(comm));
        COMM_OK(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 0));
        COMM_OK(ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
        for (int i = 0; i < N; i++) COMM_OK(ops->collectives.all_reduce(group, 0, n, overlapped));
        COMM_OK(ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
        COMM_OK(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 1));
        COMM_OK(ops->queues.read_timestamps(2, timestamps));
    }
    *us = timestamps[1] / N;
    return NULL;
}

/* The device of this rank, whose one partial sum has most elements, and the others. */
static const char *connect_group(tutti_comm *comm, const timed *t, size_t most, float **out,
                                 void **group) {
    const tti_device_ops *ops = cuda->device;
    int rank = tutti_comm_rank(comm), w = tutti_comm_n_ranks(comm);
    tti_device_term terms[REDUCE_MAX_RANKS];
    tti_sum_order order;
    COMM_OK(ops->open(&(tti_device_desc){.index = rank}));
    COMM_OK(tti_sum_order_ranks(w, &order));
    tti_device_terms(&order, terms);
    tti_sum_order_free(&order);
    float *partial = *out = cuda->alloc(most * sizeof(float));
    COMM_TRUE(partial);
    COMM_OK(ops->collectives.connect(
        &(tti_device_peers){
            .rank = rank,
            .n_ranks = w,
            .timeout_ms = 20000,
            .shown = rank,
            .terms = terms,
            .n_terms = w,
            .partials = &partial,
            .n_partials = 1,
            .n_flat = most,
            .n_most = most,
            .n_words = 64,
            .fast = t->fast,
            .algorithm = t->alg == TUTTI_ALG_AUTO ? TTI_DEVICE_AUTO : TTI_DEVICE_LIBRARY,
            .user = comm,
            .all_gather = gather_all,
            .check = check_all},
        group));
    return NULL;
}

static const char *part(tutti_comm *comm, float *partial, size_t most, void *group) {
    COMM_OK(tutti_comm_barrier(comm));
    cuda->device->collectives.disconnect(group);
    cuda->release(partial, most * sizeof(float));
    cuda->device->close();
    return NULL;
}

static const char *time_rank(tutti_comm *comm, void *arg) {
    timed *t = arg;
    const tti_device_ops *ops = cuda->device;
    int rank = tutti_comm_rank(comm);
    size_t most = timed_elems[TTI_COUNT(timed_elems) - 1];
    float *partial;
    void *group;
    const char *failure = connect_group(comm, t, most, &partial, &group);
    for (size_t i = 0; i < TTI_COUNT(timed_elems) && !failure; i++) {
        double us = 0;
        failure = time_size(ops, comm, group, timed_elems[i], t->overlapped, &us);
        if (rank == 0) t->us[i] = us;
    }
    return failure ? failure : part(comm, partial, most, group);
}

/* ---- waits ---- */

enum { LATE_MS = 200 };

/* The last rank comes so much later than the others; arg: ms that each waited, -1: not known. */
static const char *come_late(tutti_comm *comm, void *arg) {
    const tti_device_ops *ops = cuda->device;
    const timed way = {.alg = *(tutti_comm_alg *)arg};
    int rank = tutti_comm_rank(comm), w = tutti_comm_n_ranks(comm);
    double ms, all[REDUCE_MAX_RANKS];
    int64_t before, after;
    float *partial;
    void *group;
    const char *failure = connect_group(comm, &way, 1024, &partial, &group);
    if (failure) return failure;
    for (int round = 0; round < 2; round++) {
        COMM_OK(ops->collectives.get_waited_ns(group, &before));
        COMM_OK(tutti_comm_barrier(comm));
        if (rank == w - 1 && round == 1) usleep(LATE_MS * 1000);
        COMM_OK(ops->collectives.all_gather_words(group, partial, 64, 0, rank == 0 ? 64 : 0));
        COMM_OK(ops->queues.sync());
        COMM_OK(ops->collectives.get_waited_ns(group, &after));
    }
    ms = before < 0 ? -1 : (double)(after - before) * 1e-6;
    COMM_OK(tutti_comm_all_gather(comm, &ms, all, 1, TUTTI_F64));
    for (int r = 0; r < w - 1; r++)
        COMM_TRUE(way.alg == TUTTI_ALG_AUTO ? all[r] > all[w - 1] + LATE_MS / 4.0 : all[r] == -1);
    return part(comm, partial, 1024, group);
}

T_CASE(who_comes_late_is_waited_for) {
    T_UNUSED;
    tutti_comm_alg ways[] = {TUTTI_ALG_AUTO, TUTTI_ALG_TREE}; /* the library does not say */
    for (int w = 2; w <= most_ranks(); w = next_ranks(w, most_ranks()))
        comm_run(w, come_late, &ways[0]);
    comm_run(2, come_late, &ways[1]);
}

T_CASE(sums_take_time) {
    T_UNUSED;
    timed direct = {0}, overlapped = {.overlapped = true}, moved = {.alg = TUTTI_ALG_TREE};
    timed vendor = {.alg = TUTTI_ALG_RING, .fast = true};
    if (!getenv("TUTTI_TEST_TIMES")) return;
    comm_run(n_devices, time_rank, &direct);
    comm_run(n_devices, time_rank, &overlapped);
    comm_run(n_devices, time_rank, &moved);
    comm_run(n_devices, time_rank, &vendor);
    printf(
        "%d devices, us: bytes, peers' memory, the same on few blocks, NCCL moves, ncclAllReduce\n",
        n_devices);
    for (size_t i = 0; i < TTI_COUNT(timed_elems); i++)
        printf("%12zu %10.1f %10.1f %10.1f %10.1f\n", timed_elems[i] * sizeof(float), direct.us[i],
               overlapped.us[i], moved.us[i], vendor.us[i]);
}

int main(void) {
    int code = find_gpus(2);
    if (code) return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_of_the_peers),

        cmocka_unit_test(the_library_moves_and_adds),
        cmocka_unit_test(parts_of_sums_and_their_gather),
        cmocka_unit_test(hosts_add_inside_before_they_move),
        cmocka_unit_test(rounded_sums_are_near),
        cmocka_unit_test(rounded_partial_sums_have_the_bits_of_the_tree),
        cmocka_unit_test(sums_in_the_update_come_to_the_same),
        cmocka_unit_test(uneven_runs_are_summed_in_the_update),
        cmocka_unit_test(what_is_not_summed_in_the_update),
        cmocka_unit_test(updates_take_time),
        cmocka_unit_test(who_comes_late_is_waited_for),
        cmocka_unit_test(sums_take_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

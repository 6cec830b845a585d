/* bucket_algorithms_test.c - which buckets go by the library, as the table in the cache says: kept
 * by rank 0 alone, for these devices, whole; and in exact mode only by a way of fixed order. */
#include "exec/device/comm/device_reduce.h"

#include <stdatomic.h>
#include <stdio.h>

#include "base/cache_folder.h"
#include "base/error.h"
#include "exec/fake_peers.h"
#include "exec/reduce_workers.h"

/* ---- devices that are the host ---- */

static const char *library = "library of 2";              /* there is */
static bool no_library, no_peers;                         /* is there; is reached */
static _Atomic int n_met, n_sums[TTI_DEVICE_LIBRARY + 1]; /* of all ranks, by way */
static _Atomic int n_parted;

static tutti_status connect_algorithms(const tti_device_peers *peers, void **group) {
    tti_device_peers given = *peers;
    if (peers->algorithm == TTI_DEVICE_LIBRARY && no_library)
        return tti_fail(TUTTI_E_UNSUPPORTED, "there is no library");
    if (no_peers) given.algorithm = TTI_DEVICE_LIBRARY;
    n_met++;
    return fake_connect(&given, group);
}

static void ways_part(void *group) {
    n_parted += group != NULL;
    fake_disconnect(group);
}

static void ways_describe(const void *group, tti_str *str) {
    tti_device_algorithm algorithm = ((const fake_group *)group)->peers.algorithm;
    tti_str_add(str, algorithm == TTI_DEVICE_LIBRARY ? library : "over memory");
}

static tutti_status ways_sum(void *group, size_t first, size_t n_elems, bool overlapped) {
    n_sums[((fake_group *)group)->peers.algorithm]++;
    return fake_sum(group, first, n_elems, overlapped);
}

static tutti_status no_wait(void *group, int mark) {
    (void)group, (void)mark;
    return TUTTI_OK;
}

static void kind(int index, tti_str *str) { tti_str_printf(str, "kind %d", index / 4); }

static void describe(tti_str *str) { tti_str_add(str, "fakes"); }

static const tti_device_ops ops = {.open = fake_open,
                                   .close = fake_close,
                                   .queues.copy = fake_copy,
                                   .queues.order = fake_order,
                                   .queues.record_event = fake_note,
                                   .queues.wait_event = fake_note,
                                   .queues.record_host_event = fake_note,
                                   .queues.sync = fake_sync,
                                   .kind = kind,
                                   .collectives.connect = connect_algorithms,
                                   .collectives.mixes_algorithms = true,
                                   .collectives.disconnect = ways_part,
                                   .collectives.describe = ways_describe,
                                   .collectives.all_reduce = ways_sum,
                                   .collectives.all_gather_words = fake_all_gather,
                                   .collectives.report_sums = fake_report_sums,
                                   .collectives.await = no_wait};

static const tti_backend fake = {.name = "fake",
                                 .device = &ops,
                                 .alloc = fake_alloc,
                                 .release = fake_release,
                                 .accumulate = fake_accumulate,
                                 .describe = describe};

/* ---- the workers ---- */

typedef struct algorithms_workers {
    reduce_workers workers; /* first: what comm_run gives is read as both */
    const char *way;        /* of each rank */
} algorithms_workers;

/* After shards and beside them, with the sums of the tree both times. */
static const char *ways_rank_main(tutti_comm *comm, void *arg) {
    const algorithms_workers *c = arg;
    reduce_rank r = {.c = arg};
    const char *failure = reduce_make(&r, comm);
    if (!failure && strcmp(tti_str_text(&r.way), c->way) != 0)
        failure = comm_text("'%s', not '%s'", tti_str_text(&r.way), c->way);
    for (int overlapped = 0; overlapped < 2 && !failure; overlapped++) {
        failure = reduce_say(&r, 1);
        if (!failure) failure = reduce_shards(&r, overlapped != 0);
        if (!failure) failure = reduce_check(&r);
    }
    if (!failure) COMM_OK(tutti_comm_barrier(comm));
    reduce_free(&r);
    return failure;
}

/* Three buckets of 64 bytes, 40 KB and 4 KB between two ranks; n_by_library of them go by it. */
static void workers_run(algorithms_workers *c, const char *way, int n_by_library) {
    n_met = n_parted = 0;
    memset(n_sums, 0, sizeof n_sums);
    c->workers.backend = &fake;
    c->workers.n_shards = 4;
    c->workers.n_compute_threads = 1;
    c->workers.n_elems[0] = 16, c->workers.n_elems[1] = 10240, c->workers.n_elems[2] = 1024;
    c->way = way;
    reduce_plan(&c->workers);
    comm_run(2, ways_rank_main, c);
    T_EQ(n_sums[TTI_DEVICE_LIBRARY], 2 * 2 * n_by_library);
    T_EQ(n_met, n_parted);
}

static void keep(int first_device, const char *name, const char *rows) {
    tti_sum_table table;
    tti_sum_kind kinds[2];
    char key[TTI_SUM_KEY], text[512];
    snprintf(text, sizeof text, "library %s\nbytes direct tree ring\n%s", name, rows);
    T_OK(tti_sum_table_parse(text, strlen(text), &table));
    for (int i = 0; i < 2; i++) tti_sum_table_kind(&fake, first_device + i, &kinds[i]);
    tti_sum_table_key(&fake, kinds, 2, key);
    assert_true(tti_sum_table_save(key, 2, &table));
}

static const char both_ways[] = "1024 5 9 9\n65536 50 90 20\n"; /* ring: from 6 KB on */

/* ---- cases ---- */

T_CASE(without_a_table_it_is_as_it_was) {
    T_UNUSED;
    workers_run(&(algorithms_workers){.workers.fast = true}, "over memory", 0);
    T_EQ(n_met, 2);
}

T_CASE(large_buckets_go_by_the_library) {
    T_UNUSED;
    keep(0, "library of 2", both_ways);
    workers_run(&(algorithms_workers){.workers.fast = true},
                "over memory, 1 of 3 buckets by library of 2, by the table of tutti doctor", 1);
    T_EQ(n_met, 4);
    keep(0, "library of 2", "1024 5 9 3\n65536 50 90 20\n");
    workers_run(&(algorithms_workers){.workers.fast = true},
                "over memory, 3 of 3 buckets by library of 2, by the table of tutti doctor", 3);
    /* of 16 bits half as many bytes travel */
    keep(0, "library of 2", "1024 5 9 9\n20000 20 90 21\n65536 90 90 20\n");
    workers_run(&(algorithms_workers){.workers.fast = true},
                "over memory, 1 of 3 buckets by library of 2, by the table of tutti doctor", 1);
    workers_run(&(algorithms_workers){.workers.fast = true, .workers.wire = TUTTI_BF16},
                "over memory, by the table of tutti doctor", 0);
}

T_CASE(exact_mode_takes_no_way_without_a_fixed_order) {
    T_UNUSED;
    keep(0, "library of 2", "1024 5 9 1\n65536 50 90 1\n");
    workers_run(&(algorithms_workers){0}, "over memory, by the table of tutti doctor", 0);
    T_EQ(n_met, 2);
    keep(0, "library of 2", "1024 5 9 90\n65536 50 20 90\n");
    workers_run(&(algorithms_workers){0},
                "over memory, 1 of 3 buckets by library of 2, by the table of tutti doctor", 1);
}

T_CASE(a_way_that_was_asked_for_is_taken) {
    T_UNUSED;
    keep(0, "library of 2", both_ways);
    workers_run(&(algorithms_workers){.workers = {.fast = true, .alg = TUTTI_ALG_DIRECT}},
                "over memory", 0);
    workers_run(&(algorithms_workers){.workers = {.fast = true, .alg = TUTTI_ALG_RING}},
                "library of 2", 3);
}

T_CASE(tables_of_others) {
    T_UNUSED;
    static const char foreign[] =
        "over memory (the table of tutti doctor is of other devices or "
        "libraries: run it again)";
    keep(3, "library of 2", both_ways); /* a new and an old device */
    workers_run(&(algorithms_workers){.workers.fast = true}, foreign, 0);
    workers_run(&(algorithms_workers){.workers = {.fast = true, .device.index = 3}},
                "over memory, 1 of 3 buckets by library of 2, by the table of tutti doctor", 1);
    keep(0, "library of old", both_ways); /* which is seen when it is met */
    workers_run(&(algorithms_workers){.workers.fast = true}, foreign, 0);
    T_EQ(n_met, 4);
}

T_CASE(a_damaged_table) {
    T_UNUSED;
    char path[128];
    keep(0, "library of 2", both_ways);
    snprintf(path, sizeof path, "%s/sums-of-2-devices", cache_folder);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_true(fseek(file, -4, SEEK_END) == 0 && fputc('7', file) == '7' && fclose(file) == 0);
    workers_run(&(algorithms_workers){.workers.fast = true},
                "over memory (the table of tutti doctor is damaged: run it again)", 0);
}

/* What the table knows of is not there: no bucket waits for it. */
T_CASE(ways_that_are_not_there) {
    T_UNUSED;
    keep(0, "library of 2", both_ways);
    no_library = true;
    workers_run(&(algorithms_workers){.workers.fast = true},
                "over memory, by the table of tutti doctor", 0);
    no_library = false;
    no_peers = true;
    workers_run(&(algorithms_workers){.workers.fast = true}, "library of 2", 3);
    T_EQ(n_met, 2);
    no_peers = false;
}

/* Partitioned sums are not what was measured. */
T_CASE(parts_have_their_own_way) {
    T_UNUSED;
    tti_exec *x = tti_exec_alloc();
    assert_non_null(x);
    x->setup.desc.backend = &fake;
    x->setup.n_ranks = 2;
    x->offload = (tti_offload *)x;
    tti_bucket_algorithms ways;
    T_OK(tti_bucket_algorithms_init(x, &ways));
    T_EQ(ways.found, TTI_CACHE_ABSENT);
    assert_null(ways.by_library);
    tti_bucket_algorithms_forget(&ways);
    tti_exec_free(x);
}

int main(void) {
    /* without_a_table comes first. */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_table_it_is_as_it_was),
        cmocka_unit_test(large_buckets_go_by_the_library),
        cmocka_unit_test(exact_mode_takes_no_way_without_a_fixed_order),
        cmocka_unit_test(a_way_that_was_asked_for_is_taken),
        cmocka_unit_test(tables_of_others),
        cmocka_unit_test(a_damaged_table),
        cmocka_unit_test(ways_that_are_not_there),
        cmocka_unit_test(parts_have_their_own_way),
    };
    return cmocka_run_group_tests(tests, cache_folder_enter, cache_folder_leave);
}

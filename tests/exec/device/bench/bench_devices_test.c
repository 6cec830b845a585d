/* bench_devices_test.c - rows of sums between devices that are the host: sizes, ways, bandwidth;
 * a wrong sum is found, and ends all ranks. */
#include "exec/device/bench/sum_table.h"

#include "base/clock.h"
#include "exec/fake_peers.h"
#include "t.h"

static _Thread_local int64_t timestamps[2];
static bool has_peers, sums_wrong;

static int two_devices(void) { return 2; }

static tutti_status connect_one_way(const tti_device_peers *peers, void **out) {
    if (peers->algorithm == TTI_DEVICE_PEERS && !has_peers)
        return tti_fail(TUTTI_E_UNSUPPORTED, "no memory of peers");
    return fake_connect(peers, out);
}

static tutti_status sum(void *group, size_t first, size_t n_elems, bool overlapped) {
    TTI_TRY(fake_sum(group, first, n_elems, overlapped));
    fake_group *g = group;
    if (sums_wrong && g->peers.rank == 1 && n_elems > 1024)
        g->partials[1][0][first + n_elems - 1] += 1;
    return TUTTI_OK;
}

static tutti_status stamp(tti_queue queue, int timestamp) {
    (void)queue;
    timestamps[timestamp] = tti_now_ns();
    return TUTTI_OK;
}

static tutti_status read_stamps(int n, double *us) {
    for (int i = 0; i < n; i++) us[i] = (double)(timestamps[i] - timestamps[0]) * 1e-3;
    return TUTTI_OK;
}

static tutti_status record_begin(void) { return TUTTI_OK; }

static tutti_status record_end(void **captured_graph) {
    *captured_graph = NULL;
    return TUTTI_OK;
}

static tutti_status replay(void *captured_graph) {
    (void)captured_graph;
    int64_t start = tti_now_ns();
    while (tti_now_ns() - start < 20000) {
    } /* 20 us for 20 sums */
    return TUTTI_OK;
}

static void release_captured_graph(void *captured_graph) { (void)captured_graph; }

/* 1 GB/s: 4096 bytes of a vector take 4.096 us. */
static tutti_status link_of(int other, tti_device_link *out) {
    assert_int_equal(other, 1);
    *out = (tti_device_link){true, true, 1e9, 1};
    return TUTTI_OK;
}

static const tti_device_ops ops = {.count = two_devices,
                                   .open = fake_open,
                                   .close = fake_close,
                                   .queues.copy = fake_copy,
                                   .queues.order = fake_order,
                                   .queues.sync = fake_sync,
                                   .queues.record_timestamp = stamp,
                                   .queues.read_timestamps = read_stamps,
                                   .queues.capture_begin = record_begin,
                                   .queues.capture_end = record_end,
                                   .queues.replay = replay,
                                   .queues.release_captured_graph = release_captured_graph,
                                   .collectives.connect = connect_one_way,
                                   .collectives.disconnect = fake_disconnect,
                                   .collectives.describe = fake_describe,
                                   .collectives.all_reduce = sum,
                                   .link = link_of};

static const tti_backend fake = {
    .name = "fake", .device = &ops, .alloc = fake_alloc, .release = fake_release};

typedef struct rows {
    int n;
    tutti_bench_devices_row row[32];
} rows;

static void take(const tutti_bench_devices_row *row, void *user) {
    rows *r = user;
    r->row[r->n++] = *row;
}

T_CASE(every_way_and_size_has_a_row) {
    T_UNUSED;
    for (int peers = 0; peers < 2; peers++) {
        rows r = {0};
        has_peers = peers != 0;
        T_OK(tti_bench_devices(&fake, &(tutti_bench_devices_desc){.max_bytes = 65536}, take, &r));
        T_EQ(r.n, 3 * (3 + 2 * peers)); /* 4, 16, 64 KiB */
        T_EQ(r.row[r.n - 1].wire, TUTTI_BF16);
        assert_string_equal(r.row[0].algorithm, peers ? "direct" : "tree");
        for (int i = 0; i < r.n; i++) {
            double moved = (double)r.row[i].n_bytes; /* 2(n-1)/n of it */
            assert_true(r.row[i].us >= 1.0);
            assert_true(r.row[i].bus_gb_s * r.row[i].us * 1e3 > 0.999 * moved);
            assert_true(r.row[i].bus_gb_s * r.row[i].us * 1e3 < 1.001 * moved);
            assert_true(r.row[i].link_us > 0.999e-3 * moved && r.row[i].link_us < 1.001e-3 * moved);
        }
    }
}

T_CASE(a_wrong_sum_is_reported) {
    T_UNUSED;
    rows r = {0};
    sums_wrong = has_peers = true;
    T_FAILS(tti_bench_devices(&fake, &(tutti_bench_devices_desc){.max_bytes = 65536}, take, &r),
            TUTTI_E_NUMERICS, "device 1: element 4095 of a sum is");
    sums_wrong = false;
    T_EQ(r.n, 1); /* the sizes before */
}

T_CASE(bad_requests_are_refused) {
    T_UNUSED;
    rows r = {0};
    T_FAILS(tti_bench_devices(&fake, &(tutti_bench_devices_desc){.n_devices = 3}, take, &r),
            TUTTI_E_INVALID, "3 devices were requested");
    T_FAILS(tti_bench_devices(
                &fake, &(tutti_bench_devices_desc){.min_bytes = 4096, .max_bytes = 64}, take, &r),
            TUTTI_E_INVALID, "min <= max");
    T_FAILS(tutti_bench_devices(NULL, take, &r), TUTTI_E_INVALID, "desc or report is NULL");
}

T_CASE(devices_that_do_not_add_are_refused) {
    T_UNUSED;
    static const tti_device_ops apart = {.count = two_devices};
    static const tti_backend none = {.name = "apart", .device = &apart};
    rows r = {0};
    T_FAILS(tti_bench_devices(&none, &(tutti_bench_devices_desc){0}, take, &r), TUTTI_E_UNSUPPORTED,
            "backend apart do not add between each other");
    T_EQ(r.n, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_and_size_has_a_row),
        cmocka_unit_test(a_wrong_sum_is_reported),
        cmocka_unit_test(bad_requests_are_refused),
        cmocka_unit_test(devices_that_do_not_add_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

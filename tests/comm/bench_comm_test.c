/* bench_comm_test.c - rows come in order of size, with the figures that follow from each other. */
#include "tutti/bench.h"

#include "t.h"

typedef struct rows {
    tutti_bench_comm_row row[16];
    int n;
} rows;

static void keep(const tutti_bench_comm_row *row, void *user) {
    rows *r = user;
    if (r->n < 16) r->row[r->n++] = *row;
}

static void check(const rows *r, int n_ranks) {
    T_EQ(r->n, 3); /* 256, 1024, 4096 */
    for (int i = 0; i < 3; i++) {
        const tutti_bench_comm_row *row = &r->row[i];
        T_EQ(row->n_bytes, 256u << (2 * i));
        T_EQ(row->n_ranks, n_ranks);
        assert_true(row->latency_us > 0);
        T_NEAR(row->alg_gb_s, (double)row->n_bytes / row->latency_us * 1e-3, 1e-9);
        T_NEAR(row->bus_gb_s, row->alg_gb_s * 2 * (n_ranks - 1) / n_ranks, 1e-9);
    }
}

T_CASE(threads) {
    T_UNUSED;
    for (int n = 1; n <= 3; n++) {
        rows r = {.n = 0};
        tutti_bench_comm_desc desc = {
            .n_ranks = n, .min_bytes = 256, .max_bytes = 4096, .min_ms = 1, .plain = n == 3};
        T_OK(tutti_bench_comm(&desc, keep, &r));
        check(&r, n);
        for (int i = 0; i < r.n; i++) T_EQ(r.row[i].memcpy_us > 0, n > 1);
    }
}

T_CASE(no_memcpy) {
    T_UNUSED;
    rows r = {.n = 0};
    tutti_bench_comm_desc desc = {
        .n_ranks = 2, .min_bytes = 256, .max_bytes = 4096, .min_ms = 1, .no_memcpy = true};
    T_OK(tutti_bench_comm(&desc, keep, &r));
    check(&r, 2);
    for (int i = 0; i < r.n; i++) {
        T_EQ(r.row[i].memcpy_us, 0);
        T_EQ(r.row[i].memcpy_ratio, 0);
    }
}

T_CASE(given_communicator) {
    T_UNUSED;
    rows r = {.n = 0};
    tutti_comm *comm;
    tutti_bench_comm_desc desc = {.min_bytes = 256, .max_bytes = 4096, .min_ms = 1};
    T_OK(tutti_comm_create(&(tutti_comm_desc){.n_ranks = 1}, &comm));
    T_OK(tutti_bench_comm_run(comm, &desc, keep, &r));
    check(&r, 1);
    tutti_comm_destroy(comm);
}

T_CASE(bad_descs) {
    T_UNUSED;
    T_FAILS(tutti_bench_comm(NULL, NULL, NULL), TUTTI_E_INVALID, "desc is NULL");
    tutti_bench_comm_desc desc = {.min_bytes = 8, .max_bytes = 4};
    T_FAILS(tutti_bench_comm(&desc, NULL, NULL), TUTTI_E_INVALID, "min <= max, got 8 and 4");
    desc = (tutti_bench_comm_desc){.n_ranks = 4097};
    T_FAILS(tutti_bench_comm(&desc, NULL, NULL), TUTTI_E_INVALID, "n_ranks");
    desc = (tutti_bench_comm_desc){.n_ranks = -1};
    T_FAILS(tutti_bench_comm(&desc, NULL, NULL), TUTTI_E_INVALID, "n_ranks -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads),
        cmocka_unit_test(no_memcpy),
        cmocka_unit_test(given_communicator),
        cmocka_unit_test(bad_descs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

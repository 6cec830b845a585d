/* alg_hosts_test.c - a sum inside hosts and then between them has the bits of the serial tree,
 * however ranks lie on hosts and whatever the numbers are. */
#include "base/dtype.h"
#include "base/error.h"
#include "comm/partitions.h"
#include "comm/ranks.h"
#include "comm/transport.h"

typedef struct job {
    size_t n_elems;
    tutti_dtype dtype;
    tutti_reduce_op op;
    int n_hosts;
} job;

static double term(size_t i, int rank) {
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(rank + 1) * 0xD1B54A32D192ED03u;
    x ^= x >> 31;
    return (double)(x % 4001) / 16 - 125;
}

static double add(double a, double b, const job *j) {
    if (j->op == TUTTI_MIN) return a < b ? a : b;
    if (j->op == TUTTI_MAX) return a > b ? a : b;
    return j->dtype == TUTTI_F64 ? a + b : (double)((float)a + (float)b);
}

/* ((0+1)+(2+3))+4: what comm/sum_order.h promises. */
static double tree(size_t i, int n_ranks, const job *j, void *one) {
    double stack[8], values[8];
    for (int r = 0; r < n_ranks; r++) { /* as stored in the dtype */
        tti_store_elem(j->dtype, one, 0, term(i, r));
        values[r] = tti_load_elem(j->dtype, one, 0);
    }
    int n = 0;
    for (int r = 0; r < n_ranks; r++) {
        stack[n++] = values[r];
        for (int k = r + 1; k % 2 == 0; k /= 2, n--)
            stack[n - 2] = add(stack[n - 2], stack[n - 1], j);
    }
    for (; n > 1; n--) stack[n - 2] = add(stack[n - 2], stack[n - 1], j);
    tti_store_elem(j->dtype, one, 0, stack[0]);
    return tti_load_elem(j->dtype, one, 0);
}

static const char *reduce_rank(tutti_comm *comm, void *arg) {
    const job *j = arg;
    void *src, *dst;
    double one[2];
    tti_comm_place place;
    tti_comm_get_place(comm, &place);
    COMM_TRUE(place.n_hosts == j->n_hosts);
    COMM_OK(tutti_comm_alloc(comm, j->n_elems * 8, &src));
    COMM_OK(tutti_comm_alloc(comm, j->n_elems * 8, &dst));
    for (int in_place = 0; in_place < 2; in_place++) {
        void *to = in_place ? src : dst;
        for (size_t i = 0; i < j->n_elems; i++)
            tti_store_elem(j->dtype, src, i, term(i, tutti_comm_rank(comm)));
        COMM_OK(
            tutti_comm_all_reduce(comm, src, to, j->n_elems, j->dtype, j->op, TUTTI_ALG_DIRECT));
        for (size_t i = 0; i < j->n_elems; i += 1 + j->n_elems / 997) {
            double want = tree(i, tutti_comm_n_ranks(comm), j, one);
            double got = tti_load_elem(j->dtype, to, i);
            if (got != want)
                return comm_text("%zu of %zu: got %.9g, want %.9g", i, j->n_elems, got, want);
        }
    }
    return NULL;
}

typedef struct layout {
    const char *hosts;
    int n_ranks, n_hosts;
} layout;

static const layout layouts[] = {{"a,a,b,b", 4, 2},         {"a,a,a,b", 4, 2},
                                 {"a,b,a,b", 4, 2},         {"a,a,b", 3, 2},
                                 {"a,a,b,b,c,c", 6, 3},     {"a,b,b,b,b,c,a", 7, 3},
                                 {"a,a,a,a,b,b,b,b", 8, 2}, {"a,b,c,d,d,d,e,e", 8, 5}};

static void run(const layout *l, job j) {
    T_EQ(setenv("TUTTI_TEST_HOSTS", l->hosts, 1), 0);
    j.n_hosts = l->n_hosts;
    comm_run_with(l->n_ranks, true, 0, reduce_rank, &j);
}

T_CASE(every_layout) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++)
        for (size_t n = 1025; n < 20000; n = n * 7 + 1)
            run(&layouts[i], (job){n, TUTTI_F32, TUTTI_SUM, 0});
}

T_CASE(every_kind_of_number) {
    T_UNUSED;
    const tutti_dtype dtypes[] = {TUTTI_F64, TUTTI_BF16, TUTTI_F16, TUTTI_I64};
    for (size_t i = 0; i < TTI_COUNT(dtypes); i++) {
        tutti_dtype dtype = dtypes[i];
        run(&layouts[5], (job){5000, dtype, TUTTI_MIN, 0});
        run(&layouts[5], (job){5000, dtype, TUTTI_MAX, 0});
        if (dtype != TUTTI_I64) run(&layouts[7], (job){5000, dtype, TUTTI_SUM, 0});
    }
}

/* More than one block of 4 MiB, with a ragged end. */
T_CASE(many_blocks) {
    T_UNUSED;
    run(&layouts[1], (job){2500001, TUTTI_F32, TUTTI_SUM, 0});
    run(&layouts[4], (job){2200003, TUTTI_BF16, TUTTI_SUM, 0});
}

/* ---- bytes ---- */

enum { N_WIRE = 4 * 30000 };

/* Bytes of vectors that one call moves on all ranks, without the agreement. */
typedef struct wire {
    int n_remote; /* pairs of ranks of different hosts, each twice */
    uint64_t reduce_between, scatter_between, gather_between, gather_inside;
} wire;

/* Bytes of all ranks since `before`, without agreements between hosts. */
static const char *moved_since(tutti_comm *comm, const tti_comm_bytes *before, int n_remote,
                               uint64_t *inside, uint64_t *between) {
    tti_comm_bytes now = tti_comm_get_bytes(comm);
    double sums[2] = {(double)(now.inside - before->inside),
                      (double)(now.between - before->between)};
    COMM_OK(tutti_comm_all_reduce(comm, sums, sums, 2, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    *inside = (uint64_t)sums[0];
    *between = (uint64_t)sums[1] - (uint64_t)n_remote * TTI_CALL_BYTES;
    return NULL;
}

static const char *wire_rank(tutti_comm *comm, void *arg) {
    const wire *want = arg;
    void *memory;
    uint64_t inside, between;
    size_t bounds[5];
    int rank = tutti_comm_rank(comm), n = tutti_comm_n_ranks(comm);
    const char *failure;
    COMM_OK(tutti_comm_alloc(comm, N_WIRE * sizeof(float), &memory));
    memset(memory, 0, N_WIRE * sizeof(float));
    for (int r = 0; r <= n; r++) bounds[r] = (size_t)r * N_WIRE / (size_t)n;
    tti_comm_bytes before = tti_comm_get_bytes(comm);
    COMM_OK(tutti_comm_all_reduce(comm, memory, memory, N_WIRE, TUTTI_F32, TUTTI_SUM,
                                  TUTTI_ALG_DIRECT));
    if ((failure = moved_since(comm, &before, want->n_remote, &inside, &between))) return failure;
    if (between != want->reduce_between) return comm_text("reduce: %llu", (long long)between);
    tti_partial partial;
    COMM_TRUE(tti_shard_partials(rank, rank + 1, &partial) == 1);
    partial.data = memory;
    before = tti_comm_get_bytes(comm);
    COMM_OK(tti_comm_reduce_shards(comm, &(tti_reduce_desc){.partials = &partial,
                                                            .n_partials = 1,
                                                            .dst = memory,
                                                            .n_elems = N_WIRE,
                                                            .dtype = TUTTI_F32,
                                                            .n_shards = n,
                                                            .bounds = bounds}));
    if ((failure = moved_since(comm, &before, want->n_remote, &inside, &between))) return failure;
    if (between != want->scatter_between) return comm_text("scatter: %llu", (long long)between);
    before = tti_comm_get_bytes(comm); /* partial sums of 16 bits are half as long everywhere */
    COMM_OK(tti_comm_reduce_shards(comm, &(tti_reduce_desc){.partials = &partial,
                                                            .n_partials = 1,
                                                            .dst = memory,
                                                            .n_elems = N_WIRE,
                                                            .dtype = TUTTI_BF16,
                                                            .rounds = true,
                                                            .n_shards = n,
                                                            .bounds = bounds}));
    if ((failure = moved_since(comm, &before, want->n_remote, &inside, &between))) return failure;
    if (between != want->scatter_between / 2) return comm_text("bf16: %llu", (long long)between);
    const tti_partitions_desc parts = {
        .src = memory, .dst = memory, .bounds = bounds, .n_groups = 1, .dtype = TUTTI_F32};
    COMM_OK(tti_comm_gather_partitions(comm, &parts)); /* takes the stage, the first time */
    before = tti_comm_get_bytes(comm);
    COMM_OK(tti_comm_gather_partitions(comm, &parts));
    if ((failure = moved_since(comm, &before, want->n_remote, &inside, &between))) return failure;
    if (between != want->gather_between) return comm_text("gather: %llu", (long long)between);
    if (want->gather_inside && inside / 1000 != want->gather_inside / 1000)
        return comm_text("inside: %llu", (long long)inside);
    return NULL;
}

/* With v bytes of a vector: two hosts send v to each other's owners, and v back; each part crosses
 * once.  As four hosts everybody sends to everybody. */
T_CASE(bytes_of_each_level) {
    T_UNUSED;
    const uint64_t v = N_WIRE * sizeof(float);
    wire two = {.n_remote = 8,
                .reduce_between = 2 * v,
                .scatter_between = v,
                .gather_between = v,
                .gather_inside = 2 * v}; /* a neighbour's own part, and what it took */
    wire four = {
        .n_remote = 12, .reduce_between = 6 * v, .scatter_between = 3 * v, .gather_between = 3 * v};
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,a,b,b", 1), 0);
    comm_run_with(4, true, 0, wire_rank, &two);
    T_EQ(setenv("TUTTI_TEST_HOSTS", "a,b,c,d", 1), 0);
    comm_run_with(4, true, 0, wire_rank, &four);
}

int main(void) {
    setenv("TUTTI_TEST_TRANSPORT", "tcp", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout),
        cmocka_unit_test(every_kind_of_number),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(bytes_of_each_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* comm_test.c - the reductions over ranks x elements x dtypes x operations x algorithms x memory
 * (threads that see each other's memory, and ranks apart that see only registered memory), against
 * a plain sum in tree order; then the ways in which calls fail. */
#include "base/dtype.h"
#include "comm/ranks.h"

/* ---- values: small integers, exact in every dtype, so that any order gives the same sum ---- */

enum { PERIOD = 11 }; /* in elements */

static double value_of(int rank, size_t i) {
    return (double)((i * 7 + (size_t)rank * 13) % PERIOD) + rank % 3;
}

static double expected(int n_ranks, size_t i, tutti_reduce_op op) {
    double sum = value_of(0, i);
    for (int r = 1; r < n_ranks; r++) {
        double x = value_of(r, i);
        sum = op == TUTTI_SUM ? sum + x : op == TUTTI_MIN ? fmin(sum, x) : fmax(sum, x);
    }
    return sum;
}

/* ---- the grid ---- */

typedef struct grid {
    size_t n_elems;
    tutti_comm_alg alg;
    bool registered, in_place;
    bool few; /* only some dtypes and operations */
} grid;

typedef struct grid_sizes {
    int n;
    size_t n_elems[3];
} grid_sizes;

static const char *check_all_reduce(tutti_comm *comm, const grid *g, tutti_dtype dtype,
                                    tutti_reduce_op op, void *src, void *dst) {
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    double values[PERIOD], sums[PERIOD];
    for (size_t i = 0; i < PERIOD; i++)
        values[i] = value_of(rank, i), sums[i] = expected(n_ranks, i, op);
    memset(dst, 0x5a, g->n_elems * tutti_dtype_bytes(dtype)); /* nothing of an earlier call */
    for (size_t i = 0; i < g->n_elems; i++) tti_store_elem(dtype, src, i, values[i % PERIOD]);
    COMM_OK(tutti_comm_all_reduce(comm, src, dst, g->n_elems, dtype, op, g->alg));
    for (size_t i = 0; i < g->n_elems; i++) {
        double want = sums[i % PERIOD], got = tti_load_elem(dtype, dst, i);
        if (got != want)
            return comm_text("%s op %d alg %d n %zu element %zu: got %g, want %g",
                             tutti_dtype_text(dtype), (int)op, (int)g->alg, g->n_elems, i, got,
                             want);
        if (src != dst && tti_load_elem(dtype, src, i) != values[i % PERIOD])
            return comm_text("src was changed at %zu", i);
    }
    return NULL;
}

static const char *grid_rank(tutti_comm *comm, void *arg) {
    const grid *g = arg;
    size_t n_bytes = g->n_elems * 8 + 8;
    void *src, *dst;
    if (g->registered) {
        COMM_OK(tutti_comm_alloc(comm, n_bytes, &src));
        COMM_OK(tutti_comm_alloc(comm, n_bytes, &dst));
    } else {
        src = malloc(n_bytes);
        dst = malloc(n_bytes);
    }
    const char *failure = NULL;
    for (int d = 0; d < TUTTI_N_DTYPES && !failure; d++)
        for (int op = 0; op < TUTTI_N_REDUCE_OPS && !failure; op++) {
            bool skip = g->few && d != TUTTI_F32 && !(d == TUTTI_BF16 && op == TUTTI_SUM);
            if (!skip)
                failure = check_all_reduce(comm, g, (tutti_dtype)d, (tutti_reduce_op)op, src,
                                           g->in_place ? src : dst);
        }
    if (!g->registered) {
        free(src);
        free(dst);
    }
    return failure;
}

static const int rank_counts[] = {1, 2, 3, 4, 7, 8};

/* Every algorithm and kind of memory on one group: what a call leaves there must not reach the
 * next. */
static const char *sizes_rank(tutti_comm *comm, void *arg) {
    const grid_sizes *sizes = arg;
    for (int s = 0; s < sizes->n; s++)
        for (int alg = 0; alg < TUTTI_N_ALGS; alg++)
            for (int bits = 0; bits < 4; bits++) {
                grid g = {sizes->n_elems[s], (tutti_comm_alg)alg, bits & 1, bits & 2, false};
                const char *failure = grid_rank(comm, &g);
                if (failure) return failure;
            }
    return NULL;
}

static void run_grid(grid_sizes sizes) {
    for (size_t r = 0; r < sizeof rank_counts / sizeof *rank_counts; r++)
        for (int apart = 0; apart < (comm_is_over_net() ? 1 : 2); apart++)
            comm_run_with(rank_counts[r], apart, 0, sizes_rank, &sizes);
}

T_CASE(all_reduce_tiny) {
    T_UNUSED;
    run_grid((grid_sizes){3, {7, 0, 1}});
}

T_CASE(all_reduce_small) {
    T_UNUSED;
    run_grid((grid_sizes){1, {1000}});
}

T_CASE(all_reduce_large) {
    T_UNUSED;
    for (int alg = 0; alg < TUTTI_N_ALGS; alg++)
        for (int bits = 0; bits < (comm_is_over_net() ? 2 : 4); bits++) {
            grid g = {1 << 18, (tutti_comm_alg)alg, bits & 1, true, true};
            comm_run_with(2, bits & 2, 0, grid_rank, &g);
            g.in_place = false;
            comm_run_with(3 + alg, bits & 2, 0, grid_rank, &g);
        }
}

/* ---- bits: direct and tree add in the canonical order, whatever memory carries them ---- */

typedef struct exact {
    size_t n_elems;
    tutti_dtype dtype;
    bool apart;
} exact;

static float noise(uint64_t i, int rank) {
    uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u ^ (uint64_t)(rank + 1) * 0xD1B54A32D192ED03u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    return ((float)(x & 0xFFFFFF) / 8388608.0f - 1.0f) * (1.0f + (float)(x >> 56));
}

/* ((0+1)+(2+3))+((4+5)+6) and so on, in f32 */
static float tree_sum(uint64_t i, int lo, int hi, tutti_dtype dtype) {
    if (hi - lo == 1) {
        uint16_t h = tti_f32_to_bf16(noise(i, lo));
        return dtype == TUTTI_BF16 ? tti_bf16_to_f32(h) : noise(i, lo);
    }
    int half = 1;
    while (half * 2 < hi - lo) half *= 2;
    return tree_sum(i, lo, lo + half, dtype) + tree_sum(i, lo + half, hi, dtype);
}

static const char *exact_rank(tutti_comm *comm, void *arg) {
    const exact *e = arg;
    void *buf = malloc(e->n_elems * 4);
    const tutti_comm_alg algs[] = {TUTTI_ALG_DIRECT, TUTTI_ALG_TREE, TUTTI_ALG_AUTO};
    for (int a = 0; a < 3; a++) {
        for (size_t i = 0; i < e->n_elems; i++)
            tti_store_elem(e->dtype, buf, i, noise(i, tutti_comm_rank(comm)));
        COMM_OK(tutti_comm_all_reduce(comm, buf, buf, e->n_elems, e->dtype, TUTTI_SUM, algs[a]));
        for (size_t i = 0; i < e->n_elems; i++) {
            float want = tree_sum(i, 0, tutti_comm_n_ranks(comm), e->dtype);
            if (e->dtype == TUTTI_BF16) want = tti_bf16_to_f32(tti_f32_to_bf16(want));
            COMM_TRUE((float)tti_load_elem(e->dtype, buf, i) == want);
        }
    }
    free(buf);
    return NULL;
}

T_CASE(exact_algorithms_follow_the_tree) {
    T_UNUSED;
    for (int n = 1; n <= 9; n++)
        for (int bits = 0; bits < (comm_is_over_net() ? 2 : 4); bits++) {
            exact e = {3001, bits & 1 ? TUTTI_BF16 : TUTTI_F32, bits & 2};
            comm_run_with(n, bits & 2, 0, exact_rank, &e);
        }
}

/* ---- reduce_scatter ---- */

static const char *scatter_rank(tutti_comm *comm, void *arg) {
    const grid *g = arg;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t n = g->n_elems, all = n * (size_t)n_ranks;
    void *plain = malloc(all * 4 + 8), *src = plain;
    float *dst = malloc(n * 4 + 4);
    memset(dst, 0x5a, n * 4 + 4); /* nothing of an earlier call */
    if (g->registered) COMM_OK(tutti_comm_alloc(comm, all * 4 + 8, &src));
    double values[PERIOD], sums[PERIOD];
    for (size_t i = 0; i < PERIOD; i++)
        values[i] = value_of(rank, i), sums[i] = expected(n_ranks, i, TUTTI_SUM);
    for (size_t i = 0; i < all; i++) ((float *)src)[i] = (float)values[i % PERIOD];
    float *out = g->in_place ? (float *)src + n * (size_t)rank : dst;
    COMM_OK(tutti_comm_reduce_scatter(comm, src, out, n, TUTTI_F32, TUTTI_SUM));
    for (size_t i = 0; i < n; i++) COMM_TRUE(out[i] == sums[(n * (size_t)rank + i) % PERIOD]);
    free(plain);
    free(dst);
    return NULL;
}

/* Each number of ranks begins with another size. */
static const char *scatters_rank(tutti_comm *comm, void *arg) {
    static const size_t sizes[] = {0, 1, 7, 1000, 100000};
    (void)arg;
    for (int bits = 0; bits < 4; bits++)
        for (int s = 0; s < 5; s++) {
            grid g = {sizes[(s + tutti_comm_n_ranks(comm)) % 5], TUTTI_ALG_AUTO, bits & 1, bits & 2,
                      false};
            const char *failure = scatter_rank(comm, &g);
            if (failure) return failure;
        }
    return NULL;
}

T_CASE(reduce_scatter) {
    T_UNUSED;
    for (int r = 0; r < 6; r++)
        for (int apart = 0; apart < (comm_is_over_net() ? 1 : 2); apart++)
            comm_run_with(rank_counts[r], apart, 0, scatters_rank, NULL);
}

/* ---- arguments ---- */

static const char *invalid_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    float a[8] = {0};
    COMM_FAILS(tutti_comm_all_reduce(NULL, a, a, 1, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO),
               TUTTI_E_INVALID, "comm is NULL");
    COMM_FAILS(tutti_comm_all_reduce(comm, a, a, 1, TUTTI_N_DTYPES, TUTTI_SUM, TUTTI_ALG_AUTO),
               TUTTI_E_INVALID, "no dtype 7");
    COMM_FAILS(tutti_comm_all_reduce(comm, a, a, 1, TUTTI_F32, TUTTI_N_REDUCE_OPS, TUTTI_ALG_AUTO),
               TUTTI_E_INVALID, "no operation 3");
    COMM_FAILS(tutti_comm_all_reduce(comm, a, a, 1, TUTTI_F32, TUTTI_SUM, TUTTI_N_ALGS),
               TUTTI_E_INVALID, "no algorithm 4");
    COMM_FAILS(tutti_comm_all_reduce(comm, a, NULL, 1, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO),
               TUTTI_E_INVALID, "dst is NULL");
    COMM_FAILS(tutti_comm_all_reduce(comm, a, a + 1, 4, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO),
               TUTTI_E_INVALID, "overlap");
    COMM_FAILS(
        tutti_comm_all_reduce(comm, a, a, SIZE_MAX / 2, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO),
        TUTTI_E_INVALID, "have no size");
    COMM_FAILS(tutti_comm_broadcast(comm, a, 1, TUTTI_F32, 2), TUTTI_E_INVALID, "root must be");
    COMM_FAILS(tutti_comm_send(comm, a, 1, TUTTI_F32, tutti_comm_rank(comm)), TUTTI_E_INVALID,
               "peer must be another rank");
    COMM_FAILS(tutti_comm_alloc(comm, SIZE_MAX, &(void *){NULL}), TUTTI_E_INVALID, "too many");
    /* none of these has broken the group */
    COMM_OK(tutti_comm_all_reduce(comm, a, a, 8, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    return NULL;
}

T_CASE(invalid_arguments_break_nothing) {
    T_UNUSED;
    comm_run(2, invalid_rank, NULL);
}

T_CASE(bad_descs) {
    T_UNUSED;
    tutti_comm *comm = (tutti_comm *)&state;
    tutti_comm_group *group;
    T_FAILS(tutti_comm_create(NULL, &comm), TUTTI_E_INVALID, "desc is NULL");
    assert_null(comm);
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){0}, &comm), TUTTI_E_INVALID, "n_ranks must be");
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){.n_ranks = 2, .rank = 2}, &comm), TUTTI_E_INVALID,
            "rank must be in 0 .. 1, got 2");
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){.n_ranks = 2}, &comm), TUTTI_E_UNSUPPORTED,
            "no group was given");
    T_FAILS(
        tutti_comm_create(&(tutti_comm_desc){.n_ranks = 1, .transport = "carrier-pigeon"}, &comm),
        TUTTI_E_INVALID, "no transport \"carrier-pigeon\"; there is: shm");
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){.n_ranks = 1, .timeout_ms = -1}, &comm),
            TUTTI_E_INVALID, "timeout_ms");
    T_OK(tutti_comm_group_create(2, &group));
    T_FAILS(tutti_comm_create(&(tutti_comm_desc){.n_ranks = 3, .group = group}, &comm),
            TUTTI_E_INVALID, "the group is for 2 ranks, not 3");
    tutti_comm_group_destroy(group);
    T_EQ(strcmp(tutti_comm_transport_name(0), "shm"), 0);
    T_EQ(strcmp(tutti_comm_transport_name(1), "tcp"), 0);
    T_EQ(strcmp(tutti_comm_transport_name(3), "mpi-mpich"), 0);
    assert_null(tutti_comm_transport_name(4));
    assert_null(tutti_comm_transport_name(-1));
}

T_CASE(one_rank_needs_no_group) {
    T_UNUSED;
    tutti_comm *comm;
    float x[2] = {1, 2}, y[2];
    T_OK(tutti_comm_create(&(tutti_comm_desc){.n_ranks = 1}, &comm));
    T_OK(tutti_comm_all_reduce(comm, x, y, 2, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_RING));
    T_EQ(memcmp(x, y, sizeof x), 0);
    tutti_comm_destroy(comm);
    tutti_comm_destroy(NULL);
}

/* ---- mismatches ---- */

static const char *other_call_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    float a[20] = {0};
    const char *text =
        "rank 1 called broadcast(n_elems=10, f32, root=0) where rank 0 called "
        "all_reduce(n_elems=20, f32, sum, auto)";
    tutti_status st = tutti_comm_rank(comm) == 1 ? tutti_comm_broadcast(comm, a, 10, TUTTI_F32, 0)
                                                 : tutti_comm_all_reduce(comm, a, a, 20, TUTTI_F32,
                                                                         TUTTI_SUM, TUTTI_ALG_AUTO);
    COMM_FAILS(st, TUTTI_E_MISMATCH, text);
    COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_MISMATCH, "an earlier call failed: rank 1 called");
    return NULL;
}

/* Differs from rank 0 in one argument, by case. */
static const char *argument_rank(tutti_comm *comm, void *arg) {
    int what = *(int *)arg;
    bool odd = tutti_comm_rank(comm) == tutti_comm_n_ranks(comm) - 1;
    float *mine = calloc(20000, 4);
    size_t n = odd && what == 0 ? 19000 : 20000;
    tutti_dtype dtype = odd && what == 1 ? TUTTI_I32 : TUTTI_F32;
    tutti_reduce_op op = odd && what == 2 ? TUTTI_MAX : TUTTI_SUM;
    tutti_comm_alg alg = odd && what == 3 ? TUTTI_ALG_TREE : TUTTI_ALG_RING;
    if (odd && what == 4) n = 0;
    tutti_status st = tutti_comm_all_reduce(comm, mine, mine, n, dtype, op, alg);
    free(mine);
    COMM_FAILS(st, TUTTI_E_MISMATCH,
               "where rank 0 called all_reduce(n_elems=20000, f32, sum, ring)");
    return NULL;
}

static const char *p2p_rank(tutti_comm *comm, void *arg) {
    float a[20] = {0};
    int rank = tutti_comm_rank(comm), what = *(int *)arg;
    tutti_status st;
    if (what == 0)
        st = rank ? tutti_comm_recv(comm, a, 20, TUTTI_F32, 0)
                  : tutti_comm_send(comm, a, 10, TUTTI_F32, 1);
    else if (what == 1)
        st = tutti_comm_send(comm, a, 10, TUTTI_F32, 1 - rank);
    else
        st = rank ? tutti_comm_barrier(comm) : tutti_comm_recv(comm, a, 10, TUTTI_F32, 1);
    COMM_FAILS(st, TUTTI_E_MISMATCH, "rank 1 called ");
    COMM_FAILS(st, TUTTI_E_MISMATCH, " where rank 0 called ");
    return NULL;
}

T_CASE(mismatches_name_rank_and_both_calls) {
    T_UNUSED;
    comm_run(2, other_call_rank, NULL);
    comm_run(4, other_call_rank, NULL);
    comm_run_with(3, true, 0, other_call_rank, NULL);
    for (int what = 0; what < 5; what++) comm_run(3, argument_rank, &what);
    for (int what = 0; what < 3; what++) comm_run(2, p2p_rank, &what);
}

/* Rank 1 leaves; the others see it without taking part in a call. */
static const char *look_around(tutti_comm *comm, void *arg) {
    (void)arg;
    COMM_TRUE(tti_comm_timeout_ms(comm) == 20000);
    COMM_OK(tti_comm_check(comm));
    COMM_OK(tutti_comm_barrier(comm));
    if (tutti_comm_rank(comm) == 1) return NULL;
    for (int i = 0; i < 2000 && tti_comm_check(comm) == TUTTI_OK; i++) usleep(5000);
    COMM_FAILS(tti_comm_check(comm), TUTTI_E_PEER, "which left the group");
    COMM_OK(tti_comm_check_reported(comm)); /* it had nothing to say */
    return NULL;
}

T_CASE(a_rank_that_left_is_seen_outside_of_calls) {
    T_UNUSED;
    for (int apart = 0; apart < 2; apart++) comm_run_with(2, apart, 0, look_around, NULL);
}

/* A rank reads the pages of its own host, also when the communicator has failed. */
static const char *look_at_pages(tutti_comm *comm, void *arg) {
    (void)arg;
    tti_progress page;
    tti_comm_place place;
    int n = 0;
    tti_comm_get_place(comm, &place);
    tti_comm_note(comm, 3, "resting");
    /* The failure of rank 0 may reach the others before the barrier ends for them. */
    tutti_status st = tutti_comm_barrier(comm);
    COMM_TRUE(st == TUTTI_OK || (st == TUTTI_E_PEER && tutti_comm_rank(comm) != 0));
    if (tutti_comm_rank(comm) == 0) tti_comm_abort(comm, "rank 0 gives up");
    for (int i = 0; i < 2000 && tti_comm_check(comm) == TUTTI_OK; i++) usleep(5000);
    for (; tti_comm_get_progress_here(comm, n, &page); n++)
        COMM_TRUE(page.joined && page.pid > 0 && strcmp(page.phase, "resting") == 0);
    COMM_TRUE(n == place.local_n_ranks);
    return NULL;
}

T_CASE(ranks_see_what_those_of_their_host_do) {
    T_UNUSED;
    for (int apart = 0; apart < 2; apart++) comm_run_with(4, apart, 0, look_at_pages, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_tiny),
        cmocka_unit_test(all_reduce_small),
        cmocka_unit_test(all_reduce_large),
        cmocka_unit_test(exact_algorithms_follow_the_tree),
        cmocka_unit_test(reduce_scatter),
        cmocka_unit_test(invalid_arguments_break_nothing),
        cmocka_unit_test(bad_descs),
        cmocka_unit_test(one_rank_needs_no_group),
        cmocka_unit_test(mismatches_name_rank_and_both_calls),
        cmocka_unit_test(a_rank_that_left_is_seen_outside_of_calls),
        cmocka_unit_test(ranks_see_what_those_of_their_host_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

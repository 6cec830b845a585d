/* move_test.c - all_gather, broadcast, all_to_all, send and recv, in every kind of memory. */
#include "comm/ranks.h"

typedef struct grid {
    size_t n_elems;
    bool registered, in_place;
} grid;

static int32_t value_of(int from, int to, size_t i) {
    return (int32_t)(from * 1000003 + to * 10007 + (int)i);
}

/* Two arrays of n_elems each. */
static const char *take(tutti_comm *comm, const grid *g, size_t n_elems, int32_t *out[2]) {
    for (int k = 0; k < 2; k++) {
        void *memory = NULL;
        if (g->registered)
            COMM_OK(tutti_comm_alloc(comm, n_elems * 4 + 4, &memory));
        else
            memory = malloc(n_elems * 4 + 4);
        memset(memory, 0x5a, n_elems * 4 + 4); /* nothing of an earlier call */
        out[k] = memory;
    }
    return NULL;
}

static void give_back(const grid *g, int32_t *arrays[2]) {
    if (g->registered) return;
    free(arrays[0]);
    free(arrays[1]);
}

static const char *gather_rank(tutti_comm *comm, void *arg) {
    const grid *g = arg;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t n = g->n_elems;
    int32_t *a[2];
    const char *failure = take(comm, g, n * (size_t)n_ranks, a);
    if (failure) return failure;
    int32_t *src = g->in_place ? a[1] + n * (size_t)rank : a[0];
    for (size_t i = 0; i < n; i++) src[i] = value_of(rank, 0, i);
    COMM_OK(tutti_comm_all_gather(comm, src, a[1], n, TUTTI_I32));
    for (int r = 0; r < n_ranks; r++)
        for (size_t i = 0; i < n; i++) COMM_TRUE(a[1][(size_t)r * n + i] == value_of(r, 0, i));
    give_back(g, a);
    return NULL;
}

static const char *broadcast_rank(tutti_comm *comm, void *arg) {
    const grid *g = arg;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    int32_t *a[2];
    const char *failure = take(comm, g, g->n_elems, a);
    if (failure) return failure;
    for (int root = 0; root < n_ranks; root++) {
        for (size_t i = 0; i < g->n_elems; i++) a[0][i] = rank == root ? value_of(root, 1, i) : -1;
        COMM_OK(tutti_comm_broadcast(comm, a[0], g->n_elems, TUTTI_I32, root));
        for (size_t i = 0; i < g->n_elems; i++) COMM_TRUE(a[0][i] == value_of(root, 1, i));
    }
    give_back(g, a);
    return NULL;
}

static const char *all_to_all_rank(tutti_comm *comm, void *arg) {
    const grid *g = arg;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    size_t n = g->n_elems;
    int32_t *a[2];
    const char *failure = take(comm, g, n * (size_t)n_ranks, a);
    if (failure) return failure;
    for (int p = 0; p < n_ranks; p++)
        for (size_t i = 0; i < n; i++) a[0][(size_t)p * n + i] = value_of(rank, p, i);
    COMM_OK(tutti_comm_all_to_all(comm, a[0], a[1], n, TUTTI_I32));
    for (int p = 0; p < n_ranks; p++)
        for (size_t i = 0; i < n; i++) COMM_TRUE(a[1][(size_t)p * n + i] == value_of(p, rank, i));
    give_back(g, a);
    return NULL;
}

/* Around the ring, even ranks send first; the last of an odd ring receives first. */
static const char *send_rank(tutti_comm *comm, void *arg) {
    const grid *g = arg;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    int right = (rank + 1) % n_ranks, left = (rank + n_ranks - 1) % n_ranks;
    int32_t *a[2];
    const char *failure = take(comm, g, g->n_elems, a);
    if (failure || n_ranks == 1) return failure;
    for (size_t i = 0; i < g->n_elems; i++) a[0][i] = value_of(rank, right, i);
    bool first = rank % 2 == 0 && rank != n_ranks - 1;
    if (first) COMM_OK(tutti_comm_send(comm, a[0], g->n_elems, TUTTI_I32, right));
    COMM_OK(tutti_comm_recv(comm, a[1], g->n_elems, TUTTI_I32, left));
    if (!first) COMM_OK(tutti_comm_send(comm, a[0], g->n_elems, TUTTI_I32, right));
    for (size_t i = 0; i < g->n_elems; i++) COMM_TRUE(a[1][i] == value_of(left, rank, i));
    COMM_OK(tutti_comm_barrier(comm));
    if (n_ranks > 1) give_back(g, a);
    return NULL;
}

/* One of the calls with every size and kind of memory, on one group: what a call leaves there must
 * not reach the next.  Each number of ranks begins with another size. */
static const char *sizes_rank(tutti_comm *comm, void *arg) {
    static const size_t sizes[] = {0, 1, 7, 1000, 4097, 50000};
    const comm_fn *fn = arg;
    for (int bits = 0; bits < 4; bits++)
        for (int s = 0; s < 6; s++) {
            grid g = {sizes[(s + tutti_comm_n_ranks(comm)) % 6], bits & 1, bits & 2};
            const char *failure = (*fn)(comm, &g);
            if (failure) return failure;
        }
    return NULL;
}

static void run_all(comm_fn fn) {
    static const int rank_counts[] = {1, 2, 3, 4, 7, 8};
    for (int r = 0; r < 6; r++)
        for (int apart = 0; apart < (comm_is_over_net() ? 1 : 2); apart++) {
            if (fn == send_rank && rank_counts[r] == 1) continue;
            comm_run_with(rank_counts[r], apart, 0, sizes_rank, &fn);
        }
}

T_CASE(all_gather) {
    T_UNUSED;
    run_all(gather_rank);
}

T_CASE(broadcast) {
    T_UNUSED;
    run_all(broadcast_rank);
}

T_CASE(all_to_all) {
    T_UNUSED;
    run_all(all_to_all_rank);
}

T_CASE(send_and_recv) {
    T_UNUSED;
    run_all(send_rank);
}

static const char *in_place_rank(tutti_comm *comm, void *arg) {
    (void)arg;
    int32_t a[8] = {0};
    if (tutti_comm_rank(comm) == 1) {
        COMM_FAILS(tutti_comm_all_gather(comm, a, a, 2, TUTTI_I32), TUTTI_E_INVALID,
                   "in place is dst + rank*n_elems");
        COMM_FAILS(tutti_comm_all_gather(comm, a + 1, a, 2, TUTTI_I32), TUTTI_E_INVALID, "overlap");
        COMM_FAILS(tutti_comm_all_to_all(comm, a, a, 2, TUTTI_I32), TUTTI_E_INVALID, "same place");
        COMM_FAILS(tutti_comm_broadcast(comm, NULL, 2, TUTTI_I32, 0), TUTTI_E_INVALID, "NULL");
    }
    COMM_OK(tutti_comm_barrier(comm));
    return NULL;
}

T_CASE(wrong_places_break_nothing) {
    T_UNUSED;
    comm_run(2, in_place_rank, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_gather),
        cmocka_unit_test(broadcast),
        cmocka_unit_test(all_to_all),
        cmocka_unit_test(send_and_recv),
        cmocka_unit_test(wrong_places_break_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

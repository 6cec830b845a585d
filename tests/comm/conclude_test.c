/* Conclusions of few ranks, of which each adds up, and of many, of which rank 0 does; and memory
 * that the ranks of a process have in common. */
#include "comm/conclude.h"

#include <string.h>

#include "base/error.h"
#include "comm/common.h"
#include "comm/ranks.h"

typedef struct gathered {
    uint64_t digest; /* of what was added, in order */
    int n;
} gathered;

static void add(void *user, int rank, const void *theirs) {
    gathered *g = user;
    double x;
    memcpy(&x, theirs, sizeof x);
    g->digest = g->digest * 31 + (uint64_t)(x * 2) + (uint64_t)rank;
    g->n++;
}

static void finish(void *user, void *result) { memcpy(result, user, sizeof(gathered)); }

static const char *concludes(tutti_comm *comm, void *arg) {
    int n_ranks = tutti_comm_n_ranks(comm), rank = tutti_comm_rank(comm);
    gathered want = {0}, mine, result;
    bool adds = rank == 0 || !tti_comm_concludes_alone(comm);
    (void)arg;
    COMM_TRUE(tti_comm_concludes_alone(comm) == (n_ranks > 64 && !comm_is_over_net()));
    for (int turn = 0; turn < 3; turn++) {
        double x = 1.5 * rank + turn;
        want = mine = (gathered){0};
        for (int r = 0; r < n_ranks; r++) add(&want, r, &(double){1.5 * r + turn});
        COMM_OK(tti_comm_conclude(comm, &(tti_conclusion){.mine = &x,
                                                          .n_bytes = sizeof x,
                                                          .result = &result,
                                                          .n_result = sizeof result,
                                                          .add = add,
                                                          .finish = finish,
                                                          .user = &mine}));
        COMM_TRUE(result.digest == want.digest && result.n == n_ranks);
        COMM_TRUE(mine.n == (adds ? n_ranks : 0));
    }
    return NULL;
}

T_CASE(every_rank_gets_the_conclusion) {
    T_UNUSED;
    comm_run(1, concludes, NULL);
    comm_run(5, concludes, NULL);
    comm_run_with(70, false, 60000, concludes, NULL);
}

static const char *too_long(tutti_comm *comm, void *arg) {
    char bytes[TTI_CONCLUDE_BYTES + 1] = {0}, result;
    tti_conclusion c = {
        .mine = bytes, .n_bytes = sizeof bytes, .result = &result, .add = add, .finish = finish};
    (void)arg;
    COMM_FAILS(tti_comm_conclude(comm, &c), TUTTI_E_INVALID, "at most 4096");
    return NULL;
}

T_CASE(long_values_are_refused) {
    T_UNUSED;
    comm_run(2, too_long, NULL);
}

static const char *differs(tutti_comm *comm, void *arg) {
    char bytes[8] = {0};
    gathered result;
    tti_conclusion c = {.mine = bytes,
                        .n_bytes = tutti_comm_rank(comm) == 1 ? 4 : 8,
                        .result = &result,
                        .n_result = sizeof result,
                        .add = add,
                        .finish = finish,
                        .user = &(gathered){0}};
    (void)arg;
    COMM_FAILS(tti_comm_conclude(comm, &c), TUTTI_E_MISMATCH, "conclude(n_bytes=4)");
    return NULL;
}

T_CASE(other_lengths_are_found) {
    T_UNUSED;
    comm_run(2, differs, NULL);
    comm_run_with(66, false, 60000, differs, NULL);
}

/* ---- common memory ---- */

typedef struct counts {
    _Atomic int n_made, n_released;
} counts;

static counts made;

static tutti_status make(const void *user, void **out) {
    int *object = malloc(sizeof *object);
    if (!object) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    *object = *(const int *)user;
    *out = object;
    made.n_made++;
    return TUTTI_OK;
}

static void release(void *object) {
    free(object);
    made.n_released++;
}

static tutti_status refuse(const void *user, void **out) {
    (void)user;
    (void)out;
    return tti_fail(TUTTI_E_NOMEM, "cannot make it");
}

static const char *asks(tutti_comm *comm, void *arg) {
    const void *object, *again;
    int seven = 7, eight = 8;
    tti_common_desc desc = {
        .kind = "number", .key = 7, .make = make, .release = release, .user = &seven};
    (void)arg;
    COMM_OK(tti_comm_common(comm, &desc, &object));
    COMM_OK(tti_comm_common(comm, &desc, &again));
    COMM_TRUE(object == again && *(const int *)object == 7);
    desc.key = 8, desc.user = &eight;
    COMM_OK(tti_comm_common(comm, &desc, &again));
    COMM_TRUE(*(const int *)again == 8);
    desc.kind = "other", desc.make = refuse;
    COMM_FAILS(tti_comm_common(comm, &desc, &again), TUTTI_E_NOMEM, "cannot make it");
    COMM_OK(tutti_comm_barrier(comm));
    return NULL;
}

T_CASE(ranks_of_a_process_share_objects) {
    T_UNUSED;
    int n = comm_is_over_net() ? 3 : 1; /* there each rank has its own */
    made = (counts){0};
    comm_run(3, asks, NULL);
    assert_int_equal(made.n_made, 2 * n);
    assert_int_equal(made.n_released, 2 * n);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rank_gets_the_conclusion),
        cmocka_unit_test(long_values_are_refused),
        cmocka_unit_test(other_lengths_are_found),
        cmocka_unit_test(ranks_of_a_process_share_objects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* mesh_test.c - subgroups of a group: who is in them, that they work at once, and how they fail. */
#include "comm/mesh.h"

#include "base/clock.h"
#include "comm/ranks.h"
#include "comm/subgroup.h"

T_CASE(places_and_ranks) {
    T_UNUSED;
    tti_mesh_at size;
    assert_true(tti_mesh_shape(24, 3, 4, &size));
    T_EQ(size.data, 2);
    for (int r = 0; r < 24; r++) {
        tti_mesh_at at = tti_mesh_at_rank(&size, r);
        assert_true(at.data < 2 && at.stage < 3 && at.tensor < 4);
        T_EQ(tti_mesh_rank(&size, &at), r);
        T_EQ(tti_mesh_model_rank(&size, &at), r % 12);
    }
    assert_false(tti_mesh_shape(6, 4, 1, &size));
    assert_false(tti_mesh_shape(6, 2, 2, &size));
    assert_false(tti_mesh_shape(6, 0, 1, &size));
    assert_false(tti_mesh_shape(2, 1 << 30, 4, &size));
}

/* Each rank gets the sum of the ranks of its subgroup; a rank alone gets its own number. */
static const char *sum_ranks(tutti_comm *subgroup, int rank, double *sum) {
    double mine = rank;
    *sum = mine;
    if (subgroup)
        COMM_OK(
            tutti_comm_all_reduce(subgroup, &mine, sum, 1, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    return NULL;
}

static double want_sum(const tti_mesh_at *size, const tti_mesh_at *at, bool data, bool stage,
                       bool tensor) {
    double sum = 0;
    int n = size->data * tti_mesh_n_model(size);
    for (int r = 0; r < n; r++) {
        tti_mesh_at other = tti_mesh_at_rank(size, r);
        if (!data && other.data != at->data) continue;
        if (!stage && other.stage != at->stage) continue;
        if (!tensor && other.tensor != at->tensor) continue;
        sum += r;
    }
    return sum;
}

/* Large ones too, in memory of the subgroup, which peers look into. */
static const char *sum_many(tutti_comm *subgroup, int index) {
    enum { N = 100000 };
    void *memory;
    if (!subgroup) return NULL;
    int n = tutti_comm_n_ranks(subgroup);
    COMM_TRUE(tutti_comm_rank(subgroup) == index);
    COMM_OK(tutti_comm_alloc(subgroup, N * sizeof(float), &memory));
    float *x = memory;
    for (int i = 0; i < N; i++) x[i] = (float)(index * 10 + i % 7);
    COMM_OK(tutti_comm_all_reduce(subgroup, x, x, N, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    for (int i = 0; i < N; i++) COMM_TRUE(x[i] == (float)(10 * n * (n - 1) / 2 + n * (i % 7)));
    return NULL;
}

static const char *axes_rank(tutti_comm *comm, void *arg) {
    const tti_mesh_at *size = arg;
    tti_mesh m;
    int rank = tutti_comm_rank(comm);
    double sum;
    COMM_OK(tti_mesh_init(comm, size, &m));
    COMM_TRUE(tti_mesh_rank(&m.size, &m.at) == rank);
    const struct {
        tutti_comm *subgroup;
        bool data, stage, tensor;
        int index;
    } axes[] = {{m.data, true, false, false, m.at.data},
                {m.tensor, false, false, true, m.at.tensor},
                {m.pipeline, false, true, false, m.at.stage},
                {m.model, false, true, true, tti_mesh_model_rank(size, &m.at)}};
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 4; i++) {
            const char *failure = sum_ranks(axes[i].subgroup, rank, &sum);
            if (failure) return failure;
            COMM_TRUE(sum == want_sum(size, &m.at, axes[i].data, axes[i].stage, axes[i].tensor));
        }
    for (int i = 0; i < 4; i++) {
        const char *failure = sum_many(axes[i].subgroup, axes[i].index);
        if (failure) return failure;
    }
    tti_mesh_fini(&m);
    return NULL;
}

T_CASE(every_axis_sums) {
    T_UNUSED;
    static tti_mesh_at sizes[] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 1},
                                  {2, 1, 2}, {1, 2, 2}, {2, 2, 2}, {1, 4, 1}, {3, 1, 2}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int apart = 0; apart < 2; apart++)
            comm_run_with(sizes[i].data * tti_mesh_n_model(&sizes[i]), apart, 0, axes_rank,
                          &sizes[i]);
}

/* Rank 0 fails the whole group, once all have their subgroups, while others wait in subgroups that
 * it is not in. */
static const char *whole_fails_rank(tutti_comm *comm, void *arg) {
    _Atomic int *n_divided = arg;
    tutti_comm *subgroup;
    int rank = tutti_comm_rank(comm);
    COMM_OK(tti_comm_split(comm, rank < 2, &subgroup));
    (*n_divided)++;
    if (rank == 0) {
        while (*n_divided < tutti_comm_n_ranks(comm)) tti_sleep_ms(1);
        tti_comm_abort(comm, "the disk is full");
    } else if (rank > 2) {
        COMM_FAILS(tutti_comm_barrier(subgroup), TUTTI_E_PEER, "the disk is full");
        COMM_FAILS(tti_comm_check(subgroup), TUTTI_E_PEER, "the disk is full");
    } else {
        COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, "the disk is full");
    }
    /* On its way to another host it may be after what the subgroup has said. */
    for (int i = 0; i < 2000 && tti_comm_check_reported(comm) == TUTTI_OK; i++) tti_sleep_ms(5);
    COMM_FAILS(tti_comm_check_reported(comm), TUTTI_E_PEER, "the disk is full");
    COMM_FAILS(tti_comm_check_reported(subgroup), TUTTI_E_PEER, "the disk is full");
    tutti_comm_destroy(subgroup);
    return NULL;
}

T_CASE(a_failure_of_the_whole_reaches_the_parts) {
    T_UNUSED;
    for (int apart = 0; apart < 2; apart++) {
        _Atomic int n_divided = 0;
        comm_run_with(5, apart, 0, whole_fails_rank, &n_divided);
    }
}

/* A subgroup breaks alone, and its texts name the ranks of the whole. */
static const char *part_fails_rank(tutti_comm *comm, void *arg) {
    tutti_comm *subgroup;
    _Atomic int *n_gave_up = arg;
    int rank = tutti_comm_rank(comm);
    COMM_OK(tti_comm_split(comm, rank % 2, &subgroup));
    if (rank == 1) {
        tti_comm_set_timeout(subgroup, 200);
        tutti_status st = tutti_comm_barrier(subgroup);
        (*n_gave_up)++;
        COMM_TRUE(comm_waited_ms() >= 200);
        COMM_FAILS(st, TUTTI_E_TIMEOUT, "rank 1 waited ");
        COMM_FAILS(st, TUTTI_E_TIMEOUT, "ms (parallel.timeout_ms=200) for rank 3");
    }
    if (rank % 2 == 0) COMM_OK(tutti_comm_barrier(subgroup));
    while (*n_gave_up < 1) tti_sleep_ms(1);
    COMM_OK(tutti_comm_barrier(comm));
    tutti_comm_destroy(subgroup);
    return NULL;
}

/* A subgroup that is given less time has it from then on, and so have its subgroups; the whole has
 * not. */
static const char *part_waits_less_rank(tutti_comm *comm, void *arg) {
    tutti_comm *subgroup, *below;
    _Atomic int *n_gave_up = arg;
    tutti_status st = TUTTI_OK;
    int rank = tutti_comm_rank(comm);
    COMM_OK(tti_comm_split(comm, rank % 2, &subgroup));
    tti_comm_set_timeout(subgroup, 5000);
    COMM_OK(tti_comm_split(subgroup, 0, &below));
    COMM_TRUE(tti_comm_timeout_ms(below) == 5000 && tti_comm_timeout_ms(comm) > 5000);
    tti_comm_set_timeout(subgroup, 200);
    tti_comm_set_timeout(below, 200);
    if (rank < 2) st = tutti_comm_barrier(rank == 1 ? below : subgroup);
    if (rank < 2) (*n_gave_up)++;
    if (rank < 2) COMM_TRUE(comm_waited_ms() >= 200);
    if (rank == 1) COMM_FAILS(st, TUTTI_E_TIMEOUT, "rank 1 waited ");
    if (rank == 0) COMM_FAILS(st, TUTTI_E_TIMEOUT, "rank 0 waited ");
    if (rank == 1) COMM_FAILS(st, TUTTI_E_TIMEOUT, "ms (parallel.timeout_ms=200) for rank 3");
    if (rank == 0) COMM_FAILS(st, TUTTI_E_TIMEOUT, "ms (parallel.timeout_ms=200) for rank 2");
    while (*n_gave_up < 2) tti_sleep_ms(1);
    COMM_OK(tutti_comm_barrier(comm));
    tutti_comm_destroy(below);
    tutti_comm_destroy(subgroup);
    return NULL;
}

static const char *odd_call_rank(tutti_comm *comm, void *arg) {
    tutti_comm *subgroup;
    (void)arg;
    if (tutti_comm_rank(comm) == 1)
        COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_MISMATCH, "rank 1 called barrier()");
    else
        COMM_FAILS(tti_comm_split(comm, 0, &subgroup), TUTTI_E_MISMATCH, "rank 1 called barrier()");
    return NULL;
}

T_CASE(parts_fail_by_themselves) {
    T_UNUSED;
    _Atomic int n_gave_up = 0;
    comm_run(4, part_fails_rank, (void *)&n_gave_up);
}

T_CASE(parts_may_wait_less) {
    T_UNUSED;
    _Atomic int n_gave_up = 0;
    comm_run(4, part_waits_less_rank, (void *)&n_gave_up);
}

T_CASE(another_call_is_a_mismatch) {
    T_UNUSED;
    comm_run(3, odd_call_rank, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_and_ranks),
        cmocka_unit_test(every_axis_sums),
        cmocka_unit_test(a_failure_of_the_whole_reaches_the_parts),
        cmocka_unit_test(parts_fail_by_themselves),
        cmocka_unit_test(parts_may_wait_less),
        cmocka_unit_test(another_call_is_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* times_test.c - what a worker spent comes to all of them, whole, at steps they agree on. */
#include "train/report/times.h"

#include "comm/ranks.h"

static tti_step_result result_of(int64_t compute, int64_t comm, int64_t update) {
    return (tti_step_result){.compute_ns = compute, .comm_ns = comm, .update_ns = update};
}

T_CASE(often_at_first_and_then_rarely) {
    T_UNUSED;
    tti_times t;
    int n = 0, most = 0;
    int64_t last = 100;
    T_OK(tti_times_init(&t, NULL, 1, 100, false));
    assert_false(tti_times_is_due(&t, 100));
    for (int64_t step = 101; step <= 100 + 1000000; step++) {
        if (!tti_times_is_due(&t, step)) continue;
        most = TTI_MAX(most, (int)((step - last) * 16 / TTI_MAX(step - 100, 16)));
        last = step;
        n++;
    }
    assert_true(tti_times_is_due(&t, 101) && tti_times_is_due(&t, 116));
    assert_true(n > 200 && n < 400); /* 16 for each doubling of a million */
    T_EQ(most, 1);                   /* never a longer way than a sixteenth of what was gone */
    tti_times_fini(&t);
}

T_CASE(alone) {
    T_UNUSED;
    tti_times t;
    tti_step_result r = result_of(2000, 300, 40);
    T_OK(tti_times_init(&t, NULL, 1, 0, false));
    tti_times_add(&t, &r, 50000, 900000);
    tti_times_add(&t, &r, 50000, 900000);
    T_OK(tti_times_gather(&t));
    T_EQ(t.n_ranks, 1);
    T_NEAR(t.all[0][TTI_TIME_DATA] * 1e9, 100000, 1e-9);
    T_NEAR(t.all[0][TTI_TIME_COMPUTE] * 1e9, 4000, 1e-9);
    T_NEAR(t.all[0][TTI_TIME_COMM] * 1e9, 600, 1e-9);
    T_NEAR(t.all[0][TTI_TIME_UPDATE] * 1e9, 80, 1e-9);
    T_NEAR(t.all[0][TTI_TIME_SPENT] * 1e9, 1800000, 1e-9);
    T_OK(tti_times_gather(&t));
    for (int part = 0; part < TTI_N_TIME_PARTS; part++) assert_true(t.all[0][part] == 0);
    tti_times_fini(&t);
}

static const char *gather(tutti_comm *comm, void *arg) {
    (void)arg;
    tti_times t;
    int rank = tutti_comm_rank(comm);
    COMM_OK(tti_times_init(&t, comm, tutti_comm_n_ranks(comm), 0, false));
    for (int round = 1; round <= 3; round++) {
        tti_step_result r = result_of(1000 * round, 100 * (rank + 1), 10);
        tti_times_add(&t, &r, 7 * rank, 5000);
        COMM_OK(tti_times_gather(&t));
        for (int i = 0; i < t.n_ranks; i++) {
            COMM_TRUE(fabs(t.all[i][TTI_TIME_COMPUTE] * 1e9 - 1000 * round) < 1e-6);
            COMM_TRUE(fabs(t.all[i][TTI_TIME_COMM] * 1e9 - 100 * (i + 1)) < 1e-6);
            COMM_TRUE(fabs(t.all[i][TTI_TIME_DATA] * 1e9 - 7 * i) < 1e-6);
        }
    }
    tti_times_fini(&t);
    return NULL;
}

T_CASE(of_all_ranks) {
    T_UNUSED;
    for (int n = 2; n <= 5; n++) comm_run_with(n, false, 0, gather, NULL);
    comm_run_with(2, true, 0, gather, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(often_at_first_and_then_rarely),
                                       cmocka_unit_test(alone), cmocka_unit_test(of_all_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* session_async_test.c - steps whose result is read later, on the host: tickets, errors, and the
 * bits of steps that wait. */
#include <math.h>

#include "session/batches.h"

static tutti_session *open_small(const char *more) {
    tutti_job *job = SMALL_JOB(more);
    tutti_session *s = open_session(job);
    tutti_job_destroy(job);
    return s;
}

static uint64_t async_hash(tutti_job *job, bool waits) {
    tutti_session *s = open_session(job);
    tutti_session_result r;
    uint64_t hash;
    int64_t ticket = 0;
    for (unsigned i = 0; i < 5; i++) {
        batch *b = make_batch(i, i == 4 ? 13 : BATCH);
        T_OK(tutti_session_step_async(s, b->tensors, 2, 0.01, &ticket));
        memset(b, 255, sizeof *b); /* the caller's memory again */
        free(b);
        T_EQ(ticket, i + 1);
        if (waits) T_OK(tutti_session_wait(s, ticket, NULL));
    }
    T_OK(tutti_session_wait(s, ticket, &r));
    T_EQ(r.step, 5);
    T_EQ(r.n_rows, 13);
    T_NEAR(r.lr, 0.01, 0);
    T_OK(tutti_session_hash(s, &hash));
    T_EQ(hash, r.params_hash);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

T_CASE(asynchronous_steps_have_the_bits_of_steps) {
    static const char *const layouts[] = {"parallel.workers=1", "parallel.workers=4",
                                          "parallel.zero=1"};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        uint64_t want = hash_of(SMALL_JOB("parallel.workers=2", layouts[i]));
        T_EQ(async_hash(SMALL_JOB("parallel.workers=2", layouts[i]), false), want);
        T_EQ(async_hash(SMALL_JOB("parallel.workers=2", layouts[i]), true), want);
    }
}

T_CASE(results_are_kept_for_a_while) {
    enum { MORE = 3, N = TUTTI_SESSION_N_RESULTS + MORE };
    tutti_session *s = open_small("optimizer.lr=0.01");
    batch *b = make_batch(1, 1);
    tutti_session_result r;
    double *losses = calloc(N + 1, sizeof *losses);
    int64_t ticket;
    T_UNUSED;
    T_FAILS(tutti_session_wait(s, 1, &r), TUTTI_E_INVALID, "tutti_session_step_async was not");
    for (int k = 1; k <= N; k++) {
        T_OK(tutti_session_step_async(s, b->tensors, 2, 0.01, &ticket));
        T_EQ(ticket, k);
        T_OK(tutti_session_wait(s, k, &r));
        losses[k] = r.loss_sum / r.count;
    }
    assert_true(losses[N] < losses[1]);
    T_FAILS(tutti_session_wait(s, MORE, &r), TUTTI_E_INVALID, "ticket is 3; the session has");
    T_FAILS(tutti_session_wait(s, N + 1, &r), TUTTI_E_INVALID, "ticket is 260");
    T_FAILS(tutti_session_wait(s, 0, &r), TUTTI_E_INVALID, "ticket is 0");
    for (int k = MORE + 1; k <= N; k++) {
        T_OK(tutti_session_wait(s, k, &r));
        T_NEAR(r.loss_sum / r.count, losses[k], 0);
        T_EQ(r.step, k);
    }
    free(losses);
    free(b);
    tutti_session_destroy(s);
}

T_CASE(bad_arguments_make_no_ticket) {
    tutti_session *s = open_small("optimizer.lr=0.01");
    batch *b = make_batch(1, BATCH);
    int64_t ticket = 77;
    T_UNUSED;
    T_FAILS(tutti_session_step_async(s, b->tensors, 2, 0.1, NULL), TUTTI_E_INVALID, "ticket");
    T_FAILS(tutti_session_step_async(NULL, b->tensors, 2, 0.1, &ticket), TUTTI_E_INVALID, "NULL");
    T_FAILS(tutti_session_step_async(s, b->tensors, 1, 0.1, &ticket), TUTTI_E_INVALID, "'y'");
    T_FAILS(tutti_session_step_async(s, b->tensors, 2, NAN, &ticket), TUTTI_E_INVALID, "lr is nan");
    T_EQ(ticket, 77);
    T_OK(tutti_session_step_async(s, b->tensors, 2, 0.1, &ticket));
    T_EQ(ticket, 1);
    b->x[0] = NAN;
    T_FAILS(tutti_session_step_async(s, b->tensors, 2, 0.1, &ticket), TUTTI_E_NUMERICS, "step 2");
    b->x[0] = 0;
    T_OK(tutti_session_step_async(s, b->tensors, 2, 0.1, &ticket));
    T_EQ(ticket, 2);
    tutti_session_close(s);
    T_FAILS(tutti_session_wait(s, 1, NULL), TUTTI_E_INVALID, "closed");
    T_FAILS(tutti_session_step_async(s, b->tensors, 2, 0.1, &ticket), TUTTI_E_INVALID, "closed");
    tutti_session_destroy(s);
    free(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(asynchronous_steps_have_the_bits_of_steps),
                                       cmocka_unit_test(results_are_kept_for_a_while),
                                       cmocka_unit_test(bad_arguments_make_no_ticket)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

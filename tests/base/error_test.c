/* error_test.c - texts are kept per thread, cut but never lost, and statuses have exit codes. */
#include "base/error.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "t.h"

T_CASE(text_with_values) {
    T_UNUSED;
    T_EQ(tti_fail(TUTTI_E_DATA, "idx: %s: %d labels", "a.gz", 3), TUTTI_E_DATA);
    assert_string_equal(tutti_last_error(), "idx: a.gz: 3 labels");
    tti_fail_context("job '%s': ", "x");
    assert_string_equal(tutti_last_error(), "job 'x': idx: a.gz: 3 labels");
    T_EQ(tti_fail(TUTTI_E_IO, "again: %s", tutti_last_error()), TUTTI_E_IO); /* of itself */
    assert_string_equal(tutti_last_error(), "again: job 'x': idx: a.gz: 3 labels");
    tti_clear_error();
    assert_string_equal(tutti_last_error(), "");
}

T_CASE(long_text_is_cut) {
    T_UNUSED;
    char *text = malloc(100001);
    assert_non_null(text);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    (void)tti_fail(TUTTI_E_IO, "%s", text);
    size_t n_bytes = strlen(tutti_last_error());
    assert_true(n_bytes > 1000 && n_bytes < 100000);
    tti_fail_context("%s", text);
    assert_true(strlen(tutti_last_error()) <= n_bytes);
    free(text);
}

static const char *each_has_its_own(int rank, int n_ranks, void *arg) {
    (void)n_ranks, (void)arg;
    if (tutti_last_error()[0]) return "a thread starts with a text";
    for (int i = 0; i < 1000; i++) {
        char want[32];
        snprintf(want, sizeof want, "rank %d, %d", rank, i);
        (void)tti_fail(TUTTI_E_IO, "rank %d, %d", rank, i);
        if (strcmp(tutti_last_error(), want) != 0) return "the text of another thread";
    }
    return NULL;
}

T_CASE(per_thread) {
    T_UNUSED;
    (void)tti_fail(TUTTI_E_IO, "mine");
    t_ranks(4, each_has_its_own, NULL);
    assert_string_equal(tutti_last_error(), "mine");
}

T_CASE(status_table) {
    T_UNUSED;
    assert_string_equal(tutti_status_text(TUTTI_OK), "ok");
    T_EQ(tutti_status_exit_code(TUTTI_OK), 0);
    T_EQ(tutti_status_exit_code(TUTTI_E_CONFIG), 2);
    T_EQ(tutti_status_exit_code(TUTTI_E_INTERRUPTED), 130);
    T_EQ(tutti_status_exit_code(TUTTI_E_DEVICE), 10);
    assert_string_equal(tutti_status_text((tutti_status)1000), "unknown status");
    T_EQ(tutti_status_exit_code((tutti_status)-1), 1);
    for (int s = 1; s < TUTTI_N_STATUS; s++) {
        int code = tutti_status_exit_code((tutti_status)s);
        assert_true(code > 0 && code < 256);
    }
}

static tutti_status two_tries(int which, int *reached) {
    TTI_TRY(which == 1 ? tti_fail(TUTTI_E_IO, "first") : TUTTI_OK);
    *reached = 1;
    TTI_TRY(which == 2 ? tti_fail(TUTTI_E_DATA, "second") : TUTTI_OK);
    *reached = 2;
    return TUTTI_OK;
}

T_CASE(try_returns_at_the_first_failure) {
    T_UNUSED;
    int reached = 0;
    T_FAILS(two_tries(1, &reached), TUTTI_E_IO, "first");
    T_EQ(reached, 0);
    T_FAILS(two_tries(2, &reached), TUTTI_E_DATA, "second");
    T_EQ(reached, 1);
    T_OK(two_tries(0, &reached));
    T_EQ(reached, 2);
}

T_CASE(assertion_aborts) {
    T_UNUSED;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        TTI_ASSERT(1 + 1 == 2);
        TTI_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    int how;
    T_EQ(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_with_values), cmocka_unit_test(long_text_is_cut),
        cmocka_unit_test(per_thread),       cmocka_unit_test(status_table),
        cmocka_unit_test(assertion_aborts), cmocka_unit_test(try_returns_at_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

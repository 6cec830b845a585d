/* session_cycles_slow_test.c - 1,000 sessions, one after the other: no memory, thread or file
 * stays. A build with sanitizers looks for leaks as well. */
#include <dirent.h>
#include <malloc.h>

#include "session/device_cases.h"

enum { WARM = 100, CYCLES = 1000 };

static void use_session(int i) {
    static const char *const layouts[] = {"parallel.workers=1", "parallel.workers=2",
                                          "parallel.zero=3", "parallel.pipeline=2"};
    const char *layout = layouts[i % 4];
    tutti_job *job = SMALL_JOB(i % 4 ? "parallel.workers=2" : NULL, layout);
    tutti_session *s = open_case(job, i % 8 == 0 ? cross_entropy_of_caller : NULL);
    tutti_parameter p;
    void *managed;
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    T_OK(tutti_session_gradients(s, case_batch, 2, NULL));
    T_OK(tutti_session_apply(s, 0.1, NULL));
    T_OK(tutti_session_parameter_at(s, 0, &p));
    T_OK(tutti_session_read_dlpack(s, TUTTI_PARAMETER, p.name, 0, i % 2, &managed));
    if (i % 3 == 0) tutti_session_close(s);
    tutti_session_destroy(s);
    tutti_dlpack_release(managed, i % 2);
    tutti_job_destroy(job);
}

static int count_entries(const char *folder) {
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

T_CASE(sessions_leave_nothing) {
    T_UNUSED;
    for (int i = 0; i < WARM; i++) use_session(i);
    struct mallinfo2 before = mallinfo2();
    int n_files = count_entries("/proc/self/fd"), n_threads = count_entries("/proc/self/task");
    for (int i = 0; i < CYCLES; i++) use_session(i);
    struct mallinfo2 after = mallinfo2();
    T_EQ(count_entries("/proc/self/fd"), n_files);
    T_EQ(count_entries("/proc/self/task"), n_threads);
    int64_t grown = (int64_t)(after.uordblks + after.hblkhd - before.uordblks - before.hblkhd);
    if (grown > 16 * CYCLES)
        fail_msg("%lld bytes more after %d sessions", (long long)grown, CYCLES);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sessions_leave_nothing)};
    make_case_batch();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

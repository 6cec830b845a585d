/* cause_test.c - endings, their weight, their text and the error file. */
#include "launch/cause.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "t.h"

static siginfo_t ending(int code, int status) {
    siginfo_t info = {.si_code = code};
    info.si_pid = 71;
    info.si_status = status;
    return info;
}

T_CASE(severity) {
    T_UNUSED;
    static const struct {
        int code, status;
        tti_severity severity;
    } rows[] = {
        {CLD_EXITED, 0, TTI_FINE},         {CLD_EXITED, 75, TTI_ORDERLY},
        {CLD_EXITED, 130, TTI_ORDERLY},    {CLD_EXITED, 143, TTI_ORDERLY},
        {CLD_EXITED, 5, TTI_VICTIM},       {CLD_EXITED, 1, TTI_FAILED},
        {CLD_EXITED, 137, TTI_FAILED},     {CLD_KILLED, SIGKILL, TTI_KILLED},
        {CLD_DUMPED, SIGSEGV, TTI_KILLED}, {CLD_STOPPED, SIGSTOP, TTI_KILLED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        siginfo_t info = ending(rows[i].code, rows[i].status);
        T_EQ(tti_cause_severity(&info), rows[i].severity);
    }
}

static void expect(int code, int status, const char *text, int exit_code) {
    siginfo_t info = ending(code, status);
    tti_supervisor_report report = {0};
    tti_cause_fill(&info, 2, &report);
    assert_string_equal(report.text, text);
    T_EQ(report.exit_code, exit_code);
    T_EQ(report.rank, 2);
    T_EQ(report.pid, 71);
}

T_CASE(text_and_code) {
    T_UNUSED;
    expect(CLD_EXITED, 3, "rank 2 (pid 71) exited with code 3", 3);
    expect(CLD_KILLED, 9, "rank 2 (pid 71) was killed by signal 9 (Killed)", 5);
    expect(CLD_DUMPED, 11,
           "rank 2 (pid 71) was killed by signal 11 (Segmentation fault), core dumped", 5);
    expect(CLD_STOPPED, 19, "rank 2 (pid 71) was stopped (signal 19)", 5);
}

/* Only a SIGKILL beside a new victim of the kernel is taken for the kernel's. */
T_CASE(out_of_memory) {
    T_UNUSED;
    static const struct {
        int signal;
        int64_t before, now;
        int exit_code;
    } rows[] = {{9, 4, 5, 8}, {9, 4, 4, 5}, {9, -1, 3, 5}, {9, 3, -1, 5}, {11, 4, 5, 5}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        siginfo_t info = ending(CLD_KILLED, rows[i].signal);
        tti_supervisor_report report = {0};
        tti_cause_fill(&info, 2, &report);
        tti_cause_name_killer(&report, rows[i].before, rows[i].now);
        T_EQ(report.exit_code, rows[i].exit_code);
        T_EQ(strstr(report.text, "the kernel's OOM killer") != NULL, rows[i].exit_code == 8);
    }
    assert_true(tti_cause_oom_kills() >= -1);
}

T_CASE(json) {
    T_UNUSED;
    tti_supervisor_report report = {.exit_code = 5,
                                    .rank = 2,
                                    .pid = 71,
                                    .worker_code = -1,
                                    .worker_signal = 9,
                                    .noticed_ns = 10,
                                    .gone_ns = 20,
                                    .last_step = 40,
                                    .text = "a \"quoted\" text"};
    const char *expected =
        "{\"event\":\"failure\",\"text\":\"a \\\"quoted\\\" text\",\"rank\":2,\"pid\":71,"
        "\"worker_signal\":9,\"exit_code\":5,\"last_step\":40,\"noticed_ns\":10,\"gone_ns\":20}\n";
    tti_str text = {0};
    tti_cause_json(&report, &text);
    assert_string_equal(tti_str_text(&text), expected);
    tti_str_free(&text);
    char dir[] = "/tmp/tutti_cause_XXXXXX", path[64], back[512] = "";
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/error.json", dir);
    T_OK(tti_cause_write(&report, path));
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_true(fread(back, 1, sizeof back - 1, f) > 0);
    fclose(f);
    assert_string_equal(back, expected);
    unlink(path);
    T_EQ(rmdir(dir), 0); /* nothing else was left in it */
    T_FAILS(tti_cause_write(&report, path), TUTTI_E_IO, path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(severity),
        cmocka_unit_test(text_and_code),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* append_test.c - records come whole or not at all; a torn line is cut off. */
#include "base/files/append.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"

static int open_file(const char *text) {
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    T_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

/* Checks the contents of the file, and closes it. */
static void holds(int fd, const char *text) {
    char found[16384];
    ssize_t n = pread(fd, found, sizeof found - 1, 0);
    assert_true(n >= 0);
    found[n] = '\0';
    assert_string_equal(found, text);
    close(fd);
}

T_CASE(a_record_that_does_not_fit_leaves_nothing) {
    T_UNUSED;
    struct rlimit before, small = {.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
    int fd = open_file("one\n");
    signal(SIGXFSZ, SIG_IGN);
    T_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    T_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    tutti_status first = tti_append(fd, "file", "two, too long\n", 14);
    tutti_status second = tti_append(fd, "file", "two\n", 4);
    T_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    T_EQ(first, TUTTI_E_IO);
    T_OK(second);
    holds(fd, "one\ntwo\n");
    T_FAILS(tti_append(-1, "gone", "x", 1), TUTTI_E_IO, "gone: Bad file descriptor");
}

T_CASE(a_torn_line_is_cut_off) {
    T_UNUSED;
    char text[9001]; /* longer than what is read at once */
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    static const struct {
        const char *file, *left;
    } cases[] = {{"", ""}, {"torn", ""}, {"one\n", "one\n"}, {"one\ntwo\nto", "one\ntwo\n"}};
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        int fd = open_file(cases[i].file);
        T_OK(tti_cut_torn_line(fd, "file"));
        T_OK(tti_append(fd, "file", "next\n", 5));
        char left[64];
        snprintf(left, sizeof left, "%snext\n", cases[i].left);
        holds(fd, left);
    }
    text[99] = '\n';
    int fd = open_file(text);
    T_OK(tti_cut_torn_line(fd, "file"));
    text[100] = '\0';
    holds(fd, text);
    T_FAILS(tti_cut_torn_line(-1, "gone"), TUTTI_E_IO, "gone: ");
}

/* A process that has written the first half of its record when another opens the file. */
T_CASE(an_unfinished_record_is_not_cut_off) {
    T_UNUSED;
    int writer = open_file("one\ntw");
    int other = open("file", O_RDWR | O_APPEND | O_CLOEXEC);
    T_EQ(flock(writer, LOCK_EX), 0);
    T_OK(tti_cut_torn_line(other, "file"));
    T_EQ(write(writer, "o\n", 2), 2);
    T_OK(tti_append(other, "file", "three\n", 6)); /* the writer is stopped and is not waited for */
    T_EQ(flock(writer, LOCK_UN), 0);
    close(other);
    holds(writer, "one\ntwo\nthree\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_that_does_not_fit_leaves_nothing),
        cmocka_unit_test(a_torn_line_is_cut_off),
        cmocka_unit_test(an_unfinished_record_is_not_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

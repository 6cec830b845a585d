/* relay_test.c - slow readers, terminals and log files; what lines look like is line_merge_test. */
#include "launch/relay.h"

#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "t.h"

/* A pipe as the relay's two outputs. */
typedef struct outlet {
    int read_fd, write_fd;
} outlet;

static outlet make_outlet(void) {
    int ends[2];
    T_EQ(pipe2(ends, O_CLOEXEC), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return (outlet){ends[0], ends[1]};
}

static tti_relay *make_relay(int n_ranks, int fd, const char *log_dir) {
    tti_relay *relay;
    tti_relay_desc desc = {n_ranks, {fd, fd}, log_dir};
    T_OK(tti_relay_create(&desc, &relay));
    return relay;
}

/* What is written to a terminal arrives in parts, some time later. */
static void expect_text(int fd, const char *expected) {
    char text[512];
    size_t n = 0;
    struct pollfd there = {.fd = fd, .events = POLLIN};
    do {
        ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    } while (n < strlen(expected) && poll(&there, 1, 10000) > 0);
    text[n] = '\0';
    assert_string_equal(text, expected);
}

T_CASE(lines_come_through) {
    T_UNUSED;
    outlet o = make_outlet();
    tti_relay *relay = make_relay(1, o.write_fd, NULL);
    int fd[2];
    T_OK(tti_relay_open(relay, 0, fd));
    struct pollfd fds[4];
    T_EQ(tti_relay_poll_fds(relay, fds), 2);
    T_EQ(write(fd[TTI_STDOUT], "a\nb", 3), 3);
    tti_relay_move(relay);
    expect_text(o.read_fd, "a\n");
    close(fd[TTI_STDOUT]);
    tti_relay_move(relay); /* the end makes a line of the rest */
    expect_text(o.read_fd, "b\n");
    T_EQ(tti_relay_poll_fds(relay, fds), 1);
    T_EQ(write(fd[TTI_STDERR], "last", 4), 4);
    tti_relay_finish(relay, 1000); /* does not wait for the open end */
    expect_text(o.read_fd, "last\n");
    close(fd[TTI_STDERR]);
    tti_relay_destroy(relay);
    close(o.read_fd);
    close(o.write_fd);
}

/* Nobody reads: the relay stops taking input after a bounded amount, and never waits. */
T_CASE(a_slow_reader_makes_workers_wait) {
    T_UNUSED;
    outlet o = make_outlet();
    tti_relay *relay = make_relay(1, o.write_fd, NULL);
    int fd[2];
    static char bytes[4096];
    T_OK(tti_relay_open(relay, 0, fd));
    fcntl(fd[TTI_STDOUT], F_SETFL, O_NONBLOCK);
    memset(bytes, 'x', sizeof bytes);
    bytes[sizeof bytes - 1] = '\n';
    size_t n_written = 0;
    for (int i = 0; i < 2000; i++) {
        ssize_t n = write(fd[TTI_STDOUT], bytes, sizeof bytes);
        if (n > 0) n_written += (size_t)n;
        tti_relay_move(relay);
    }
    assert_true(n_written > 1 << 20 && n_written < 2 << 20);
    struct pollfd fds[4];
    T_EQ(tti_relay_poll_fds(relay, fds), 1); /* only the output is waited for */
    T_EQ(fds[0].events, POLLOUT);
    size_t n_read = 0; /* the reader wakes up: everything is there */
    for (int i = 0; i < 1000; i++) {
        ssize_t n = read(o.read_fd, bytes, sizeof bytes);
        if (n > 0) n_read += (size_t)n;
        tti_relay_move(relay);
    }
    T_EQ(n_read, n_written);
    for (int i = 0; i < 100; i++) {
        T_EQ(write(fd[TTI_STDOUT], bytes, sizeof bytes), (int)sizeof bytes);
        tti_relay_move(relay);
    }
    tti_relay_finish(relay, 50); /* gives up on a reader that sleeps, or never ends */
    close(fd[0]);
    close(fd[1]);
    tti_relay_destroy(relay);
    close(o.read_fd);
    close(o.write_fd);
}

T_CASE(rank_0_has_the_terminal) {
    T_UNUSED;
    int terminal, slave;
    T_EQ(openpty(&terminal, &slave, NULL, NULL, NULL), 0);
    fcntl(terminal, F_SETFL, O_NONBLOCK);
    tti_relay *relay = make_relay(2, slave, NULL);
    int fd[2];
    T_OK(tti_relay_open(relay, 0, fd));
    T_EQ(fd[TTI_STDERR], -1); /* the caller gives it the terminal itself */
    close(fd[TTI_STDOUT]);
    T_OK(tti_relay_open(relay, 1, fd));
    assert_true(fd[TTI_STDERR] >= 0);
    T_EQ(write(fd[TTI_STDERR], "oops\n", 5), 5);
    tti_relay_finish(relay, 1000);
    expect_text(terminal, "\r\033[K[rank 1] oops\r\n"); /* over the progress line */
    close(fd[0]);
    close(fd[1]);
    tti_relay_destroy(relay);
    struct termios t; /* one that stops background writers is not shared */
    T_EQ(tcgetattr(slave, &t), 0);
    t.c_lflag |= TOSTOP;
    T_EQ(tcsetattr(slave, TCSANOW, &t), 0);
    relay = make_relay(2, slave, NULL);
    T_OK(tti_relay_open(relay, 0, fd));
    assert_true(fd[TTI_STDERR] >= 0);
    close(fd[0]);
    close(fd[1]);
    tti_relay_destroy(relay);
    close(terminal);
    close(slave);
}

T_CASE(logs_are_kept_and_appended) {
    T_UNUSED;
    char dir[] = "/tmp/tutti_relay_XXXXXX", log_dir[64], path[96];
    assert_non_null(mkdtemp(dir));
    snprintf(log_dir, sizeof log_dir, "%s/log", dir);
    snprintf(path, sizeof path, "%s/rank-0.txt", log_dir);
    outlet o = make_outlet();
    for (int i = 0; i < 2; i++) {
        int fd[2];
        tti_relay *relay = make_relay(1, o.write_fd, log_dir);
        T_OK(tti_relay_open(relay, 0, fd));
        T_EQ(write(fd[TTI_STDOUT], "x\ry\n", 4), 4);
        tti_relay_finish(relay, 1000);
        close(fd[0]);
        close(fd[1]);
        tti_relay_destroy(relay);
    }
    int log = open(path, O_RDONLY);
    assert_true(log >= 0);
    expect_text(log, "x\ry\nx\ry\n");
    close(log);
    unlink(path);
    T_EQ(mkdir(path, 0700), 0); /* something else is in the way */
    tti_relay *relay;
    T_FAILS(tti_relay_create(&(tti_relay_desc){1, {1, 2}, log_dir}, &relay), TUTTI_E_IO, path);
    assert_null(relay);
    rmdir(path);
    rmdir(log_dir);
    rmdir(dir);
    close(o.read_fd);
    close(o.write_fd);
}

/* Empties a pipe that is full, after the relay has waited for it longer than lines wait for each
 * other. */
static void *empty_late(void *arg) {
    static char bytes[1 << 16];
    if (!t_wait_asleep()) return NULL;
    tti_clock_advance_ms(250);
    if (read(*(int *)arg, bytes, sizeof bytes) < 0) return NULL;
    return arg;
}

/* Puts a pipe in the place of the file that this process has open under path. */
static void slow_down(const char *path, int pipe_end) {
    char link[64], target[256];
    for (int fd = 3; fd < 256; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, target, sizeof target - 1);
        if (n < 0 || strncmp(target, path, (size_t)n) != 0 || path[n]) continue;
        T_EQ(dup2(pipe_end, fd), fd);
        return;
    }
    fail_msg("%s is not open", path);
}

/* The log of rank 0 takes its time; what the ranks have said lay in the pipes before. */
T_CASE(one_turn_is_one_moment) {
    T_UNUSED;
    char dir[] = "/tmp/tutti_relay_XXXXXX", path[64];
    outlet o = make_outlet();
    pthread_t thread;
    int fd[3][2], log[2], flags;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/rank-0.txt", dir);
    T_EQ(mkfifo(path, 0600), 0);
    tti_relay *refused;
    T_FAILS(tti_relay_create(&(tti_relay_desc){1, {1, 2}, dir}, &refused), TUTTI_E_IO,
            "rank-0.txt: is not a regular file");
    unlink(path);
    tti_relay *relay = make_relay(3, o.write_fd, dir);
    T_EQ(pipe(log), 0);
    flags = fcntl(log[1], F_GETFL);
    T_EQ(fcntl(log[1], F_SETFL, flags | O_NONBLOCK), 0);
    while (write(log[1], "full", 4) > 0) continue;
    T_EQ(fcntl(log[1], F_SETFL, flags), 0);
    slow_down(path, log[1]);
    for (int r = 0; r < 3; r++) {
        T_OK(tti_relay_open(relay, r, fd[r]));
        T_EQ(write(fd[r][TTI_STDOUT], "hello\n", 6), 6);
    }
    T_EQ(pthread_create(&thread, NULL, empty_late, &log[0]), 0);
    tti_relay_move(relay);
    void *emptied;
    pthread_join(thread, &emptied);
    assert_non_null(emptied);
    expect_text(o.read_fd, "[rank 0-2] hello\n");
    tti_relay_destroy(relay);
    for (int r = 0; r < 3; r++) close(fd[r][0]), close(fd[r][1]);
    for (int r = 0; r < 3; r++) {
        snprintf(path, sizeof path, "%s/rank-%d.txt", dir, r);
        unlink(path);
    }
    T_EQ(rmdir(dir), 0);
    close(log[0]);
    close(log[1]);
    close(o.read_fd);
    close(o.write_fd);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_through),
        cmocka_unit_test(a_slow_reader_makes_workers_wait),
        cmocka_unit_test(rank_0_has_the_terminal),
        cmocka_unit_test(logs_are_kept_and_appended),
        cmocka_unit_test(one_turn_is_one_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

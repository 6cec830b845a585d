/* supervisor_test.c - real processes that fail in every way, watched by a real supervisor.
 *
 * The program starts itself again as worker ("worker MODE ...") or as supervisor in a process of
 * its own ("supervise N GRACE_MS MODE ..."); see worker_main. */
#include "launch/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/philox.h"
#include "launch/stop.h"
#include "launch/supervised.h"
#include "t.h"

static char self[4096];

/* ---- the worker program ---- */

enum { LONG_MS = 60000, SOON_MS = 20000 };
/* Sleeps until killed, but not for ever if a test goes wrong. */
static int sleep_long(void) {
    tti_sleep_ms(LONG_MS);
    return 99;
}

/* Tells the test through the inherited pipe that this rank runs, and its process. */
static void say_ready(void) {
    const char *fd = getenv("TEST_FD");
    int pid = (int)getpid();
    if (fd && write(atoi(fd), &pid, sizeof pid) < 0) exit(98);
}

static void go_on(int sig) { (void)sig; }

/* Prints after a signal of the test, and reports that it has; without TEST_FD it prints at once. */
static int print_when_received(int rank) {
    sigset_t received, before;
    sigemptyset(&received);
    sigaddset(&received, SIGUSR1);
    sigprocmask(SIG_BLOCK, &received, &before);
    signal(SIGUSR1, go_on);
    say_ready();
    if (getenv("TEST_FD")) sigsuspend(&before);
    printf("hello\nI am %d of %s\n", rank, getenv("WORLD_SIZE"));
    fflush(stdout);
    fprintf(stderr, "10%%\r20%%\nlocal %s of %s", getenv("LOCAL_RANK"), getenv("LOCAL_WORLD_SIZE"));
    say_ready();
    return 0;
}

static void tell_signal(int sig) {
    (void)sig;
    say_ready();
}

/* A trainer in small: steps until asked to stop, then "saves". */
static int run_steps(void) {
    tti_stop stop;
    if (tti_stop_shield(&stop) != TUTTI_OK || tti_stop_install(&stop) != TUTTI_OK) return 97;
    say_ready();
    for (int i = 0; i < 2000 && !tti_stop_requested(); i++) tti_sleep_ms(5);
    tti_sleep_ms(20); /* in place of a checkpoint: the supervisor must wait for it */
    printf("saved\n");
    int code = 128 + tti_stop_signal();
    tti_stop_remove(&stop);
    return code;
}

/* Rank 2 stops in order when rank 0 waits for rank 1, which has not taken signals over yet. */
static int stop_early(int rank) {
    eventfd_t n;
    int ready = atoi(getenv("TEST_READY")), left = atoi(getenv("TEST_LEFT"));
    if (rank == 2) return eventfd_read(ready, &n) == 0 ? 143 : 98;
    signal(SIGTERM, SIG_IGN), alarm(60);
    return eventfd_write(ready, 1) == 0 && eventfd_read(left, &n) == 0 ? 5 : 98;
}

static int worker_main(int rank, char **argv) {
    const char *mode = argv[0];
    if (strcmp(mode, "codes") == 0) { /* codes C0 C1 ...: exit codes by rank, "-": stay */
        if (strcmp(argv[1 + rank], "-") == 0) return sleep_long();
        return atoi(argv[1 + rank]);
    }
    if (strcmp(mode, "victim") == 0) { /* rank 0 loses a peer before rank 1 says why */
        if (rank == 0) return 5;
        tti_sleep_ms(60); /* the culprit ends after its victim: the delay is what is tested */
        return 3;
    }
    if (strcmp(mode, "stubborn") == 0) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, argv[1] ? SIG_IGN : tell_signal);
        say_ready();
        if (rank == 1 && argv[1]) return 3;
        return sleep_long();
    }
    if (strcmp(mode, "stop") == 0) {
        if (rank == 1) raise(SIGSTOP);
        return rank == 1 || argv[1] ? 0 : sleep_long();
    }
    if (strcmp(mode, "print") == 0) return print_when_received(rank);
    if (strcmp(mode, "flood") == 0) {
        for (int i = 0; i < 20000; i++) printf("line %d of some length\n", i);
        return 0;
    }
    if (strcmp(mode, "grandchild") == 0) {
        if (fork() == 0) return sleep_long();
        return 0;
    }
    if (strcmp(mode, "commit") == 0) {
        tti_worker_report_step(40 + (uint64_t)rank);
        return 0;
    }
    if (strcmp(mode, "spare") == 0) { /* the last one says who is needed, and ends */
        if (rank < 2) return 0;
        tti_sleep_ms(50); /* the supervisor sees them end first; it does not report that */
        tti_worker_report_needed(atoi(argv[1]));
        if (argv[2] && strcmp(argv[2], "stop") != 0) return atoi(argv[2]);
        raise(argv[2] ? SIGSTOP : SIGKILL);
        return sleep_long();
    }
    if (strcmp(mode, "steps") == 0) return run_steps();
    if (strcmp(mode, "early") == 0) return rank == 1 ? sleep_long() : stop_early(rank);
    if (strcmp(mode, "below-a-shell") == 0) /* the worker is not a child of the supervisor */
        return execlp("sh", "sh", "-c", "\"$0\" worker linked; true", self, (char *)NULL);
    if (strcmp(mode, "linked") == 0) {
        if (tti_worker_init() != TUTTI_OK) return 96;
        say_ready();
        return sleep_long();
    }
    say_ready(); /* "sleep" */
    return sleep_long();
}

/* ---- the supervisor, here and in a process of its own ---- */

enum { MAX_ARGS = 16 };

static int out_fd, err_fd;

static tti_supervisor_desc with_args(char **argv, int n_workers, int grace_ms,
                                     const char *const *args) {
    int n = 0;
    argv[n++] = self;
    argv[n++] = (char *)"worker";
    while (*args) argv[n++] = (char *)*args++;
    argv[n] = NULL;
    return (tti_supervisor_desc){.n_workers = n_workers,
                                 .argv = argv,
                                 .grace_ms = grace_ms,
                                 .stopped_ms = 80,
                                 .out_fd = out_fd,
                                 .err_fd = err_fd};
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* supervise N GRACE_MS READY_FD MODE ...; READY_FD is handed down to the workers. */
static int supervise_main(char **argv) {
    char *worker_argv[MAX_ARGS];
    out_fd = 1, err_fd = 2;
    tti_supervisor_desc desc =
        with_args(worker_argv, atoi(argv[0]), atoi(argv[1]), (const char *const *)argv + 3);
    tti_spawn_fd ready = {"TEST_FD", atoi(argv[2])};
    desc.fds = &ready;
    desc.n_fds = 1;
    tti_supervisor_report report;
    if (tti_supervisor_run(&desc, &report) != TUTTI_OK) return 95;
    return report.exit_code;
}

static tti_supervisor_report run(int n_workers, int grace_ms, const char *const *args) {
    char *argv[MAX_ARGS];
    tti_supervisor_desc desc = with_args(argv, n_workers, grace_ms, args);
    tti_supervisor_report report;
    T_OK(tti_supervisor_run(&desc, &report));
    return report;
}

/* Output goes to files in memory, which expect_output reads and empties. */
static int setup(void **state) {
    T_UNUSED;
    out_fd = memfd_create("out", MFD_CLOEXEC);
    err_fd = memfd_create("err", MFD_CLOEXEC);
    return out_fd < 0 || err_fd < 0;
}

static int teardown(void **state) {
    T_UNUSED;
    close(out_fd);
    close(err_fd);
    return 0;
}

static void expect_lines(int fd, const char *const *lines) {
    static char text[1 << 16];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    size_t n_expected = 0;
    for (; *lines; lines++) {
        n_expected += strlen(*lines);
        if (!strstr(text, *lines)) fail_msg("no '%s' in '%s'", *lines, text);
    }
    T_EQ(n, n_expected);
}

/* Ranks of "[rank 0,2-4] text" as bits; 0: the line is another one. */
static unsigned ranks_of(const char *line, const char *text) {
    unsigned ranks = 0;
    const char *at = line + strlen("[rank");
    char *end;
    if (strncmp(line, "[rank ", strlen("[rank ")) != 0) return 0;
    do {
        long first = strtol(at + 1, &end, 10),
             last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long r = first; r <= last && r < 32; r++) ranks |= 1u << r;
        at = end;
    } while (*at == ',');
    return strncmp(at, "] ", 2) == 0 && strcmp(at + 2, text) == 0 ? ranks : 0;
}

/* Each rank has said the line once, and nothing else is there; merged as it came. */
static void expect_said_by_all(int fd, int n_ranks, const char *text) {
    char all[1024];
    unsigned said = 0;
    ssize_t n = pread(fd, all, sizeof all - 1, 0);
    assert_true(n >= 0);
    all[n] = '\0';
    for (char *line = strtok(all, "\n"); line; line = strtok(NULL, "\n")) {
        unsigned ranks = ranks_of(line, text);
        if (ranks == 0 || (ranks & said)) fail_msg("'%s'", line);
        said |= ranks;
    }
    T_EQ(said, (1u << n_ranks) - 1);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n) { /* sorts them */
    qsort(x, n, sizeof *x, by_size);
    return x[n / 2];
}

/* ---- how it can end ---- */

T_CASE(all_well) {
    T_UNUSED;
    tti_supervisor_report report = run(3, 0, ARGS("codes", "0", "0", "0"));
    T_EQ(report.exit_code, 0);
    T_EQ(report.rank, -1);
    T_EQ(report.noticed_ns, 0);
    assert_string_equal(report.text, "");
    assert_false(report.stopped_by_user);
}

T_CASE(a_code_is_passed_on) {
    T_UNUSED;
    tti_supervisor_report report = run(3, 100, ARGS("codes", "-", "-", "7"));
    T_EQ(report.exit_code, 7);
    T_EQ(report.rank, 2);
    T_EQ(report.worker_code, 7);
    T_EQ(report.worker_signal, 0);
    assert_non_null(strstr(report.text, "rank 2 (pid "));
    assert_non_null(strstr(report.text, "exited with code 7"));
}

T_CASE(a_victim_is_not_the_cause) {
    T_UNUSED;
    tti_supervisor_report report = run(2, 0, ARGS("victim"));
    T_EQ(report.rank, 1);
    T_EQ(report.exit_code, 3);
    report = run(2, 100, ARGS("codes", "-", "5"));
    T_EQ(report.rank, 1);
    T_EQ(report.exit_code, 5);
}

T_CASE(a_stubborn_worker_is_killed) {
    T_UNUSED;
    tti_supervisor_report report = run(3, 200, ARGS("stubborn", "fail"));
    T_EQ(report.exit_code, 3);
    T_EQ(report.rank, 1);
    int64_t t_ms = (report.gone_ns - report.noticed_ns) / TTI_NS_PER_MS;
    assert_true(t_ms >= 190 && t_ms < SOON_MS);
}

T_CASE(a_stopped_worker_is_a_failure) {
    T_UNUSED;
    tti_supervisor_report report = run(2, 100, ARGS("stop"));
    T_EQ(report.exit_code, 5);
    T_EQ(report.rank, 1);
    T_EQ(report.worker_signal, SIGSTOP);
    assert_non_null(strstr(report.text, "was stopped (signal 19)"));
}

T_CASE(a_stopped_worker_can_be_resumed) {
    T_UNUSED;
    char *argv[MAX_ARGS];
    tti_supervisor_desc desc = with_args(argv, 2, 0, ARGS("stop", "both"));
    desc.resume_stopped = true;
    tti_supervisor_report report;
    T_OK(tti_supervisor_run(&desc, &report));
    T_EQ(report.exit_code, 0);
}

static int n_failures;

static void count_failure(void *user, int rank, const char *text) {
    T_EQ(user == &n_failures, 1);
    T_EQ(rank, 1);
    assert_non_null(strstr(text, "code 4, in a test"));
    n_failures++;
}

static void describe(void *user, int rank, tti_str *text) {
    (void)user;
    (void)rank;
    tti_str_add(text, ", in a test");
}

T_CASE(hooks_are_called_once) {
    T_UNUSED;
    char *argv[MAX_ARGS];
    tti_supervisor_desc desc = with_args(argv, 4, 100, ARGS("codes", "-", "4", "-", "-"));
    desc.on_failure = count_failure;
    desc.describe = describe;
    desc.user = &n_failures;
    tti_supervisor_report report;
    n_failures = 0;
    T_OK(tti_supervisor_run(&desc, &report));
    T_EQ(n_failures, 1);
    assert_non_null(strstr(report.text, ", in a test"));
}

static void tell_of_rank_1(void *user, int rank, const char *text) {
    T_EQ(rank, 1);
    assert_non_null(strstr(text, "before rank 1 (pid "));
    T_EQ(eventfd_write(((const tti_spawn_fd *)user)->fd, 1), 0);
}

/* A worker that waits for one that a forwarded signal ended is notified, and is not a failure. */
T_CASE(a_stop_before_all_have_come) {
    T_UNUSED;
    char *argv[MAX_ARGS];
    tti_spawn_fd fds[] = {{"TEST_READY", eventfd(0, 0)}, {"TEST_LEFT", eventfd(0, 0)}};
    tti_supervisor_desc desc = with_args(argv, 3, 0, ARGS("early"));
    desc.fds = fds, desc.n_fds = 2, desc.on_failure = tell_of_rank_1, desc.user = &fds[1];
    tti_supervisor_report report;
    T_OK(tti_supervisor_run(&desc, &report));
    T_EQ(report.exit_code, 143);
    for (int i = 0; i < 2; i++) close(fds[i].fd);
}

/* The lowest free descriptor, which rises when one is leaked. */
static int lowest_free_fd(void) {
    int fd = dup(0);
    close(fd);
    return fd;
}

static void expect_signals_untouched(void) {
    sigset_t mask;
    struct sigaction child;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    T_EQ(sigismember(&mask, SIGINT) + sigismember(&mask, SIGCHLD) + sigismember(&mask, SIGPIPE), 0);
    sigaction(SIGCHLD, NULL, &child);
    assert_true(child.sa_handler == SIG_IGN);
}

/* A caller that ignores SIGCHLD would otherwise never learn how a child ended. */
T_CASE(nothing_is_left_behind) {
    T_UNUSED;
    int before = lowest_free_fd();
    signal(SIGCHLD, SIG_IGN);
    T_EQ(run(3, 100, ARGS("codes", "-", "4", "0")).exit_code, 4);
    expect_signals_untouched();
    signal(SIGCHLD, SIG_DFL);
    T_EQ(lowest_free_fd(), before);
    T_EQ(waitpid(-1, NULL, WNOHANG), -1);
}

T_CASE(what_cannot_start) {
    T_UNUSED;
    int before = lowest_free_fd();
    char *argv[] = {(char *)"/nonexistent/program", NULL}, *none[] = {NULL};
    tti_supervisor_desc desc = {.n_workers = 3, .argv = argv, .out_fd = out_fd, .err_fd = err_fd};
    tti_supervisor_report report = {.exit_code = 77};
    T_FAILS(tti_supervisor_run(&desc, &report), TUTTI_E_IO, "cannot start '/nonexistent/program'");
    desc.argv = none;
    T_FAILS(tti_supervisor_run(&desc, &report), TUTTI_E_INVALID, "no program");
    desc.n_workers = 0;
    T_FAILS(tti_supervisor_run(&desc, &report), TUTTI_E_INVALID, "0 workers");
    char *again[MAX_ARGS];
    desc = with_args(again, 2, 0, ARGS("codes", "0", "0"));
    desc.log_dir = "/nonexistent/a/b";
    T_FAILS(tti_supervisor_run(&desc, &report), TUTTI_E_IO, "log folder");
    T_EQ(report.exit_code, 77);
    T_EQ(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    T_EQ(lowest_free_fd(), before);
}

T_CASE(children_of_workers_go_too) {
    T_UNUSED;
    int64_t t0 = tti_now_ns();
    T_EQ(run(2, 0, ARGS("grandchild")).exit_code, 0);
    assert_true(tti_now_ns() - t0 < SOON_MS * TTI_NS_PER_MS);
}

T_CASE(progress_is_reported) {
    T_UNUSED;
    T_EQ(run(3, 0, ARGS("commit")).last_step, 42);
}

/* A worker's report counts before its death. A worker that fails by itself is a failure. */
T_CASE(who_is_not_needed_may_die) {
    T_UNUSED;
    tti_supervisor_report report = run(3, 0, ARGS("spare", "2"));
    T_EQ(report.exit_code, 0);
    T_EQ(report.rank, -1);
    report = run(3, 0, ARGS("spare", "3"));
    T_EQ(report.exit_code, 5);
    T_EQ(report.rank, 2);
    T_EQ(report.worker_signal, SIGKILL);
    report = run(3, 0, ARGS("spare", "2", "7"));
    T_EQ(report.exit_code, 7);
    T_EQ(report.rank, 2);
}

typedef struct words {
    int n;
    char last[200];
} words;

static void note_words(void *user, const char *text) {
    words *w = user;
    snprintf(w->last, sizeof w->last, "%s", text);
    w->n++;
}

/* A stopped worker counts as a killed one: it is reported once, with the first reason. */
T_CASE(who_is_not_needed_may_be_stopped) {
    T_UNUSED;
    static const char *const why[] = {"was killed by signal 9", "was stopped (signal 19)"};
    for (int i = 0; i < 4; i++) {
        char *argv[MAX_ARGS];
        words received = {0};
        tti_supervisor_desc desc = with_args(argv, 3, 0, ARGS("spare", "2", i % 2 ? "stop" : NULL));
        desc.on_leave = note_words, desc.user = &received;
        tti_supervisor_report report; /* word and end may come when it has begun to look */
        T_OK(tti_fault_set(i < 2 ? "supervisor.look:delay_ms=200@1,rank=2" : NULL));
        T_OK(tti_supervisor_run(&desc, &report));
        T_EQ(report.exit_code, 0), T_EQ(report.rank, -1);
        T_EQ(received.n, 1);
        assert_ptr_equal(strstr(received.last, "rank 2 (pid "), received.last);
        assert_non_null(strstr(received.last, why[i % 2]));
    }
    tti_supervisor_report report = run(3, 0, ARGS("spare", "3", "stop"));
    T_EQ(report.exit_code, 5);
    T_EQ(report.rank, 2);
    assert_non_null(strstr(report.text, "was stopped (signal 19)"));
}

/* ---- output ---- */

T_CASE(nothing_is_lost) {
    T_UNUSED;
    T_EQ(run(2, 0, ARGS("flood")).exit_code, 0);
    off_t n_bytes = lseek(out_fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)n_bytes + 1);
    assert_non_null(text);
    T_EQ(pread(out_fd, text, (size_t)n_bytes, 0), n_bytes);
    int next[2] = {0, 0};
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        int i, r, used;
        if (sscanf(line, "[rank 0-1] line %d of some length%n", &i, &used) == 1) {
            T_EQ(i, next[0]++);
            T_EQ(i, next[1]++);
        } else {
            T_EQ(sscanf(line, "[rank %d] line %d of some length%n", &r, &i, &used), 2);
            T_EQ(i, next[r]++);
        }
    }
    T_EQ(next[0], 20000);
    T_EQ(next[1], 20000);
    free(text);
}

T_CASE(logs_hold_the_raw_bytes) {
    T_UNUSED;
    char dir[] = "/tmp/tutti_supervisor_XXXXXX", path[64], text[256] = "";
    assert_non_null(mkdtemp(dir));
    char *argv[MAX_ARGS];
    tti_supervisor_desc desc = with_args(argv, 2, 0, ARGS("print"));
    desc.log_dir = dir;
    tti_supervisor_report report;
    T_OK(tti_supervisor_run(&desc, &report));
    for (int r = 0; r < 2; r++) {
        snprintf(path, sizeof path, "%s/rank-%d.txt", dir, r);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        assert_true(fread(text, 1, sizeof text - 1, f) > 0);
        fclose(f);
        assert_non_null(strstr(text, "10%\r20%\n"));
        assert_non_null(strstr(text, "hello\n"));
        unlink(path);
    }
    rmdir(dir);
}

/* A reader that goes away costs the output, not the run; SIGPIPE is ignored. */
T_CASE(a_broken_output_is_survived) {
    T_UNUSED;
    int ends[2], old = out_fd;
    T_EQ(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    out_fd = ends[1];
    T_EQ(run(2, 0, ARGS("flood")).exit_code, 0);
    close(ends[1]);
    out_fd = old;
}

/* ---- kill -9, fifty times ---- */

enum { N_KILLS = 50, KILL_RANKS = 3 };

typedef struct killer {
    pthread_t thread;
    int ready_fd; /* the workers' pids come from here */
    uint32_t random;
    int64_t killed_ns, seen_ns; /* seen: by who only waits for it, on this machine as it is now */
    int victim_pid;
} killer;

static void *kill_one(void *arg) {
    killer *k = arg;
    int pids[KILL_RANKS];
    for (int i = 0; i < KILL_RANKS; i++)
        if (read(k->ready_fd, &pids[i], sizeof pids[i]) != sizeof pids[i]) return NULL;
    usleep(k->random >> 8 & 0xFFF); /* kills at a random time, not to wait for something */
    k->victim_pid = pids[k->random % KILL_RANKS];
    struct pollfd victim = {.fd = (int)syscall(SYS_pidfd_open, k->victim_pid, 0), .events = POLLIN};
    k->killed_ns = tti_now_ns();
    kill(k->victim_pid, SIGKILL);
    if (victim.fd >= 0) poll(&victim, 1, SOON_MS);
    k->seen_ns = tti_now_ns();
    if (victim.fd >= 0) close(victim.fd);
    return NULL;
}

/* A thread beside the supervisor must not take its signals. */
static void start_killer(killer *k) {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    T_EQ(pthread_create(&k->thread, NULL, kill_one, k), 0);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Without the signal, a supervisor would look once a second: half a second in the median. */
T_CASE(kills_are_noticed_at_once) {
    T_UNUSED;
    double noticed_ms[N_KILLS], later_ms[N_KILLS], gone_ms[N_KILLS];
    for (int i = 0; i < N_KILLS; i++) {
        int ends[2];
        T_EQ(pipe2(ends, O_CLOEXEC), 0);
        killer k = {.ready_fd = ends[0], .random = tti_philox_draw(1, 2, (uint64_t)i).v[0]};
        start_killer(&k);
        char *argv[MAX_ARGS];
        tti_supervisor_desc desc = with_args(argv, KILL_RANKS, 60, ARGS("sleep"));
        tti_spawn_fd ready = {"TEST_FD", ends[1]};
        desc.fds = &ready;
        desc.n_fds = 1;
        tti_supervisor_report report;
        T_OK(tti_supervisor_run(&desc, &report));
        pthread_join(k.thread, NULL);
        T_EQ(report.exit_code, 5);
        T_EQ(report.worker_signal, SIGKILL);
        T_EQ(report.pid, k.victim_pid);
        noticed_ms[i] = (double)(report.noticed_ns - k.killed_ns) / 1e6;
        later_ms[i] = (double)(report.noticed_ns - k.seen_ns) / 1e6;
        gone_ms[i] = (double)(report.gone_ns - report.noticed_ns) / 1e6;
        close(ends[0]);
        close(ends[1]);
    }
    double noticed = median(noticed_ms, N_KILLS), gone = median(gone_ms, N_KILLS);
    print_message(
        "kill -9: noticed after %.2f ms in the median, %.2f at most; gone after %.0f, %.0f\n",
        noticed, noticed_ms[N_KILLS - 1], gone, gone_ms[N_KILLS - 1]);
    assert_true(median(later_ms, N_KILLS) < 250);
    assert_true(later_ms[0] < 20 && gone_ms[0] < 500); /* the fastest waited for no core */
    assert_true(gone >= 15);                           /* asked to go after a quarter of 60 ms */
    assert_true(gone_ms[N_KILLS - 1] < SOON_MS);
}

/* ---- a supervisor in a process of its own ---- */

typedef struct remote {
    pid_t pid;
    int ready_fd; /* pids of workers; ends when every process below is gone */
} remote;

static remote start_remote(const char *n, const char *grace_ms, const char *const *args) {
    int ends[2], n_args = 0;
    char fd[16], *argv[MAX_ARGS];
    remote r;
    T_EQ(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    snprintf(fd, sizeof fd, "%d", ends[1]);
    const char *const head[] = {self, "supervise", n, grace_ms, fd};
    for (size_t i = 0; i < TTI_COUNT(head); i++) argv[n_args++] = (char *)head[i];
    while (*args) argv[n_args++] = (char *)*args++;
    argv[n_args] = NULL;
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out_fd, 1);
    posix_spawn_file_actions_adddup2(&files, err_fd, 2);
    T_EQ(posix_spawn(&r.pid, self, &files, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    r.ready_fd = ends[0];
    return r;
}

static int read_pid(const remote *r) {
    int pid;
    T_EQ(read(r->ready_fd, &pid, sizeof pid), (int)sizeof pid);
    return pid;
}

static void wait_ready(const remote *r, int n) {
    for (int i = 0; i < n; i++) read_pid(r);
}

/* Milliseconds until every process that holds the pipe is gone. */
static double wait_gone(const remote *r) {
    int64_t t0 = tti_now_ns(), deadline_ns = t0 + SOON_MS * TTI_NS_PER_MS;
    char bytes[256];
    struct pollfd p = {.fd = r->ready_fd, .events = POLLIN};
    while (poll(&p, 1, tti_ms_until(deadline_ns)) == 1)
        if (read(r->ready_fd, bytes, sizeof bytes) == 0) return (double)(tti_now_ns() - t0) / 1e6;
    fail_msg("workers are left after %d ms", SOON_MS);
    return 0;
}

static int exit_code_of(remote *r) {
    int status;
    T_EQ(waitpid(r->pid, &status, 0), r->pid);
    close(r->ready_fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* The supervisor is stopped while its workers print, so that equal lines arrive together. */
T_CASE(lines_are_prefixed_and_merged) {
    T_UNUSED;
    enum { N = 2 };
    int pids[N], status;
    remote r = start_remote("2", "0", ARGS("print"));
    for (int i = 0; i < N; i++) pids[i] = read_pid(&r);
    T_EQ(kill(r.pid, SIGSTOP), 0);
    T_EQ(waitpid(r.pid, &status, WUNTRACED), r.pid);
    assert_true(WIFSTOPPED(status));
    for (int i = 0; i < N; i++) T_EQ(kill(pids[i], SIGUSR1), 0);
    wait_ready(&r, N);
    T_EQ(kill(r.pid, SIGCONT), 0);
    T_EQ(exit_code_of(&r), 0);
    expect_lines(out_fd,
                 ARGS("[rank 0-1] hello\n", "[rank 0] I am 0 of 2\n", "[rank 1] I am 1 of 2\n"));
    expect_lines(err_fd,
                 ARGS("[rank 0-1] 20%\n", "[rank 0] local 0 of 2\n", "[rank 1] local 1 of 2\n"));
}

T_CASE(no_orphans) {
    T_UNUSED;
    double all_ms[N_KILLS];
    for (int i = 0; i < N_KILLS; i++) {
        remote r = start_remote("3", "100", ARGS("linked"));
        uint32_t random = tti_philox_draw(3, 4, (uint64_t)i).v[0];
        if (i % 2) wait_ready(&r, 3);
        usleep(random & 0x3FFF); /* also while the workers are being started */
        kill(r.pid, SIGKILL);
        all_ms[i] = wait_gone(&r);
        T_EQ(exit_code_of(&r), 1000 + SIGKILL);
    }
    assert_true(median(all_ms, N_KILLS) < 2000);
    assert_true(all_ms[0] < 100); /* the fastest waited for no core */
}

T_CASE(no_orphans_below_a_shell) {
    T_UNUSED;
    for (int i = 0; i < 5; i++) {
        remote r = start_remote("2", "100", ARGS("below-a-shell"));
        wait_ready(&r, 2);
        kill(r.pid, SIGKILL);
        wait_gone(&r);
        T_EQ(exit_code_of(&r), 1000 + SIGKILL);
    }
}

T_CASE(first_signal_stops_in_order) {
    T_UNUSED;
    static const int signals[][2] = {{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 143}};
    for (size_t i = 0; i < TTI_COUNT(signals); i++) {
        T_EQ(ftruncate(out_fd, 0), 0);
        lseek(out_fd, 0, SEEK_SET);
        remote r = start_remote("3", "0", ARGS("steps"));
        wait_ready(&r, 3);
        kill(r.pid, signals[i][0]);
        kill(r.pid, signals[i][0]); /* one more at once counts for nothing */
        T_EQ(exit_code_of(&r), signals[i][1]);
        expect_said_by_all(out_fd, 3, "saved");
    }
}

T_CASE(one_worker_stopped_stops_all) {
    T_UNUSED;
    remote r = start_remote("3", "0", ARGS("steps"));
    int pid = read_pid(&r);
    wait_ready(&r, 2);
    kill(pid, SIGTERM);
    T_EQ(exit_code_of(&r), 143);
    expect_lines(err_fd, ARGS(""));
}

T_CASE(second_signal_kills) {
    T_UNUSED;
    setenv("TUTTI_FAULT", "supervisor.signal:advance_ms=150@2", 1);
    remote r = start_remote("2", "0", ARGS("stubborn"));
    unsetenv("TUTTI_FAULT");
    wait_ready(&r, 2);
    kill(r.pid, SIGINT);
    wait_ready(&r, 2); /* the first signal is forwarded; others within 100 ms would be ignored */
    kill(r.pid, SIGINT);
    wait_gone(&r);
    T_EQ(exit_code_of(&r), 130);
}

T_CASE(programs_without_a_handler) {
    T_UNUSED;
    remote r = start_remote("2", "0", ARGS("sleep"));
    wait_ready(&r, 2);
    kill(r.pid, SIGTERM);
    wait_gone(&r);
    T_EQ(exit_code_of(&r), 143);
}

int main(int argc, char **argv) {
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
    if (argc > 2 && strcmp(argv[1], "worker") == 0)
        return worker_main(atoi(getenv("RANK")), argv + 2);
    if (argc > 5 && strcmp(argv[1], "supervise") == 0) return supervise_main(argv + 2);
    signal(SIGHUP, SIG_DFL); /* nohup and a shell's & leave some ignored */
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(all_well),
        CASE(a_code_is_passed_on),
        CASE(a_victim_is_not_the_cause),
        CASE(a_stubborn_worker_is_killed),
        CASE(a_stopped_worker_is_a_failure),
        CASE(a_stopped_worker_can_be_resumed),
        CASE(hooks_are_called_once),
        CASE(a_stop_before_all_have_come),
        CASE(nothing_is_left_behind),
        CASE(what_cannot_start),
        CASE(children_of_workers_go_too),
        CASE(progress_is_reported),
        CASE(who_is_not_needed_may_die),
        CASE(who_is_not_needed_may_be_stopped),
        CASE(nothing_is_lost),
        CASE(logs_hold_the_raw_bytes),
        CASE(a_broken_output_is_survived),
        CASE(kills_are_noticed_at_once),
        CASE(lines_are_prefixed_and_merged),
        CASE(no_orphans),
        CASE(no_orphans_below_a_shell),
        CASE(first_signal_stops_in_order),
        CASE(one_worker_stopped_stops_all),
        CASE(second_signal_kills),
        CASE(programs_without_a_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

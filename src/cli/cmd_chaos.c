/* cmd_chaos.c - `tutti chaos JOB`: disturbs elastic runs of a job, and compares their result with
 * that of an undisturbed run.
 *
 * Faults come from outside, as real ones do, so the program is the one that is used: signals,
 * limits of file sizes, sockets that are shut down, a competing writer.  The seed decides which
 * faults come in which order; the moments depend on the machine. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/launch.h"

enum { MAX_ARGS = 200, MAX_WORKERS = 4096, PATH_BYTES = 600, HASH_BYTES = 17, MAX_RESUMES = 20 };
enum { EXIT_DIFFERS = 9 };

static const char usage[] =
    "usage: tutti chaos JOB.yaml [KEY=VALUE...] [-n N] [--for TIME] [--seed N] [--out DIR]\n"
    "\n"
    "Trains the job once without faults.  Then, for TIME (such as 90s or 5m; default 1m), trains "
    "it\n"
    "repeatedly as an elastic run of worker processes on this host and injects random faults: "
    "workers\n"
    "are killed or paused, connections break, the disk is slow or full, workers leave and join.\n"
    "A run that ends with an error is resumed.  The final hashes of all runs must be equal.  DIR\n"
    "(default: chaos-runs) receives the run folders and must not exist.\n"
    "\n"
    "Exit code: 0 equal; 9 a run has another hash; 2 wrong usage or job; else that of a run that\n"
    "could not be completed.\n";

typedef struct chaos {
    char *args[MAX_ARGS]; /* of tutti train */
    int n_args, n_workers;
    const char *dir;
    int64_t end_ms;
    uint64_t random;
    int n_faults, n_runs, n_resumes;
    char expected[HASH_BYTES];
} chaos;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000;
}

static void sleep_ms(int64_t t_ms) {
    nanosleep(&(struct timespec){t_ms / 1000, t_ms % 1000 * 1000000}, NULL);
}

/* 0 .. n-1, by splitmix64. */
static int draw(chaos *c, int n) {
    uint64_t z = c->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (int)((z ^ z >> 31) % (uint64_t)n);
}

/* ---- the ranks of a run ---- */

typedef struct ranks {
    int *pid, n; /* pid [n], freed by the caller */
} ranks;

/* Those that have committed a step. */
static ranks find_ranks(const char *run) {
    ranks found = {0};
    char *text, *rest = NULL;
    size_t n_lines = 1;
    if (tutti_run_ps(run, &text) != TUTTI_OK) return found;
    for (const char *c = text; *c; c++) n_lines += *c == '\n';
    found.pid = calloc(n_lines, sizeof *found.pid);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        int rank, pid;
        long long steps;
        bool is_one = sscanf(line, "%d %d %lld", &rank, &pid, &steps) == 3;
        if (is_one && pid > 1 && steps > 0 && found.pid) found.pid[found.n++] = pid;
    }
    free(text);
    return found;
}

/* ---- faults ---- */

typedef void fault_fn(chaos *c, const char *run, const ranks *at);

static int victim(chaos *c, const ranks *at) { return at->pid[draw(c, at->n)]; }

static void kill_one(chaos *c, const char *run, const ranks *at) {
    (void)run;
    kill(victim(c, at), SIGKILL);
}

/* For a moment, or for longer than a worker may be stopped. */
static void stop_one(chaos *c, const char *run, const ranks *at) {
    int pid = victim(c, at);
    (void)run;
    kill(pid, SIGSTOP);
    sleep_ms(draw(c, 2) ? 100 : 1500);
    kill(pid, SIGCONT);
}

/* If workers divide the model, only whole replicas are accepted. */
static void scale(chaos *c, const char *run, const ranks *at) {
    int n = 1 + draw(c, c->n_workers);
    (void)at;
    while (n <= c->n_workers && tutti_run_scale(run, n, 1) == TUTTI_E_CONFIG) n++;
}

static void join(chaos *c, const char *run, const ranks *at) {
    (void)at;
    (void)!tutti_run_scale(run, c->n_workers, 1);
}

/* No file may grow, as with ulimit -f. */
static void fill_disk(chaos *c, const char *run, const ranks *at) {
    struct rlimit *old = calloc((size_t)at->n, sizeof *old);
    (void)run;
    for (int i = 0; old && i < at->n; i++) {
        if (prlimit(at->pid[i], RLIMIT_FSIZE, NULL, &old[i]) != 0) old[i].rlim_max = 0;
        if (old[i].rlim_max == 0) continue;
        prlimit(at->pid[i], RLIMIT_FSIZE, &(struct rlimit){1, old[i].rlim_max}, NULL);
    }
    sleep_ms(100 + draw(c, 300));
    for (int i = 0; old && i < at->n; i++)
        if (old[i].rlim_max > 0) prlimit(at->pid[i], RLIMIT_FSIZE, &old[i], NULL);
    free(old);
}

/* Another program writes as fast as it can. */
static void slow_disk(chaos *c, const char *run, const ranks *at) {
    static char block[1 << 20];
    char path[PATH_BYTES];
    int64_t end_ms = now_ms() + 300 + draw(c, 700);
    (void)run;
    (void)at;
    snprintf(path, sizeof path, "%s/competing-writer", c->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (int i = 0; fd >= 0 && now_ms() < end_ms; i++) {
        if (pwrite(fd, block, sizeof block, (off_t)(i % 64) * (off_t)sizeof block) < 0) break;
        fdatasync(fd);
    }
    if (fd >= 0) close(fd);
    unlink(path);
}

/* A socket of a process, as a descriptor of this one; -1: it has none, or it may not be taken. */
static int take_socket(chaos *c, int pid) {
    char path[PATH_BYTES], target[64];
    int fds[256], n = 0, fd = -1;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        ssize_t n_bytes = readlinkat(dirfd(dir), e->d_name, target, sizeof target);
        if (n_bytes > 7 && memcmp(target, "socket:", 7) == 0 && n < 256) fds[n++] = atoi(e->d_name);
    }
    if (dir) closedir(dir);
    int pidfd = n > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    if (pidfd < 0) return -1;
    fd = (int)syscall(SYS_pidfd_getfd, pidfd, fds[draw(c, n)], 0);
    close(pidfd);
    return fd;
}

static void cut_link(chaos *c, const char *run, const ranks *at) {
    int fd = take_socket(c, victim(c, at));
    (void)run;
    if (fd < 0) return;
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

static const struct {
    const char *name;
    fault_fn *inject;
} faults[] = {
    {"kill", kill_one},       {"stop", stop_one}, {"lost link", cut_link}, {"full disk", fill_disk},
    {"slow disk", slow_disk}, {"scale", scale},   {"join", join}};
enum { N_FAULTS = sizeof faults / sizeof faults[0] };

/* ---- runs ---- */

static pid_t start(const char *const *args, const char *log) {
    pid_t pid = fork();
    if (pid != 0) return pid;
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (out >= 0) dup2(out, 1), dup2(out, 2);
    if (null >= 0) dup2(null, 0);
    execv("/proc/self/exe", (char *const *)(uintptr_t)args);
    _exit(127);
}

static int code_of(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 5; }

/* Injects faults while the process runs and there is time; returns its exit code. */
static int disturb(chaos *c, const char *run, pid_t pid) {
    int status;
    int64_t next_ms = now_ms() + 200;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        sleep_ms(20);
        if (now_ms() < next_ms || now_ms() >= c->end_ms) continue;
        ranks at = find_ranks(run);
        if (at.n > 0) {
            int f = draw(c, N_FAULTS);
            printf("%s: %s\n", run, faults[f].name);
            fflush(stdout);
            faults[f].inject(c, run, &at);
            c->n_faults++;
            next_ms = now_ms() + 100 + draw(c, 600);
        }
        free(at.pid);
    }
    return code_of(status);
}

/* The hash of a run that has ended; false: it has not. */
static bool read_hash(const char *run, char hash[HASH_BYTES]) {
    char path[PATH_BYTES], line[1 << 16];
    bool any = false;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        const char *at = strstr(line, "\"params_hash\":\"");
        if (strstr(line, "\"event\":\"end\"") && at)
            any = sscanf(at + 15, "%16[0-9a-f]", hash) == 1;
    }
    if (file) fclose(file);
    return any;
}

/* Trains to the end; a run that fails is resumed. Returns an exit code. */
static int train(chaos *c, int number, bool disturbed, char hash[HASH_BYTES]) {
    char run[PATH_BYTES], log[PATH_BYTES + 8], dir[PATH_BYTES + 16], n[16];
    const char *args[MAX_ARGS + 16] = {"tutti", "train"};
    int k = 2;
    snprintf(run, sizeof run, "%s/run-%d", c->dir, number);
    snprintf(log, sizeof log, "%s.log", run);
    snprintf(dir, sizeof dir, "run.dir=%s", run);
    snprintf(n, sizeof n, "%d", c->n_workers);
    for (int i = 0; i < c->n_args; i++) args[k++] = c->args[i];
    args[k++] = "-n", args[k++] = n, args[k++] = dir, args[k++] = "parallel.place=processes";
    if (disturbed) args[k++] = "parallel.min_workers=1", args[k++] = "run.restarts=1000";
    const char *again[] = {"tutti", "train", "--resume", run, NULL};
    for (int i = 0, code; i <= MAX_RESUMES; i++) {
        pid_t pid = start(i > 0 && access(run, F_OK) == 0 ? again : args, log);
        if (pid < 0) return 1;
        code = disturb(c, run, pid);
        if (code == 0) return read_hash(run, hash) ? 0 : 1;
        if (!disturbed || code == 2 || i == MAX_RESUMES) {
            fprintf(stderr, "tutti: error: %s ended with exit code %d; see %s\n", run, code, log);
            return code;
        }
        c->n_resumes++;
    }
    return 1;
}

static int run_all(chaos *c, int64_t for_ms) {
    char hash[HASH_BYTES];
    if (mkdir(c->dir, 0777) != 0) {
        fprintf(stderr, "tutti: error: %s: %s\n", c->dir, strerror(errno));
        return 2;
    }
    int code = train(c, 0, false, c->expected); /* before end_ms: no faults */
    if (code != 0) return code;
    c->end_ms = now_ms() + for_ms;
    while (now_ms() < c->end_ms) {
        code = train(c, ++c->n_runs, true, hash);
        if (code != 0) return code;
        if (strcmp(hash, c->expected) == 0) continue;
        fprintf(stderr, "tutti: error: %s/run-%d: hash %s, but the undisturbed run has %s\n",
                c->dir, c->n_runs, hash, c->expected);
        return EXIT_DIFFERS;
    }
    printf("%d faults in %d runs, %d times resumed: all have hash %s\n", c->n_faults, c->n_runs,
           c->n_resumes, c->expected);
    return 0;
}

/* ---- arguments ---- */

/* "90s", "5m", "1h", "90"; 0: none of them. */
static int64_t read_time(const char *text) {
    char *end;
    long long n = strtoll(text, &end, 10);
    int64_t unit = strcmp(end, "m") == 0 ? 60000 : strcmp(end, "h") == 0 ? 3600000 : 1000;
    bool ok = n > 0 && n < 1000000 && (!*end || (strchr("smh", *end) && !end[1]));
    return ok ? n * unit : 0;
}

static bool read_seed(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return end > text && !*end && text[0] != '-' && errno == 0;
}

int tutti_cmd_chaos(int argc, char **argv) {
    chaos c = {.n_workers = 4, .dir = "chaos-runs", .random = 1};
    int64_t for_ms = 60000;
    bool ok = argc > 1 && argc < MAX_ARGS;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    for (int i = 1; ok && i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool takes = true;
        if (strcmp(argv[i], "-n") == 0)
            ok = read_count(value, 1, MAX_WORKERS, &c.n_workers);
        else if (strcmp(argv[i], "--for") == 0)
            ok = (for_ms = read_time(value)) > 0;
        else if (strcmp(argv[i], "--seed") == 0)
            ok = read_seed(value, &c.random);
        else if (strcmp(argv[i], "--out") == 0)
            ok = *(c.dir = value) && strlen(value) < PATH_BYTES - 64;
        else
            takes = false, ok = argv[i][0] != '-', c.args[c.n_args++] = argv[i];
        i += takes;
    }
    if (!ok) {
        fputs(usage, stderr);
        return 2;
    }
    return run_all(&c, for_ms);
}

/* live.c - writes RUN/live, finds runs with it, and prints the state of their ranks. */
#include "launch/live.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/files/plain_file.h"
#include "base/process.h"
#include "base/str.h"
#include "launch/supervised.h"
#include "launch/symbols.h"
#include "launch/watch.h"
#include "tutti/launch.h"

#define OF_HOST "-host-"

enum { PATH_BYTES = 700, STACK_MS = 200 };

static void path_of(const char *run_dir, int node, char path[PATH_BYTES]) {
    int n = snprintf(path, PATH_BYTES, "%s/" TTI_LIVE_FILE, run_dir);
    if (node >= 0 && n < PATH_BYTES) snprintf(path + n, PATH_BYTES - (size_t)n, OF_HOST "%d", node);
}

tutti_status tti_live_write(const char *run_dir, int node, const tti_flight_memory *memory) {
    char path[PATH_BYTES], text[64];
    if (tti_flight_fd(memory) < 0) return TUTTI_OK;
    path_of(run_dir, node, path);
    snprintf(text, sizeof text, "%d %d\n", (int)getpid(), tti_flight_fd(memory));
    return tti_atomic_file_save(path, text, strlen(text));
}

void tti_live_remove(const char *run_dir, int node) {
    char path[PATH_BYTES];
    path_of(run_dir, node, path);
    unlink(path);
}

static tutti_status none(const char *run_dir) {
    return tti_fail(TUTTI_E_CONFIG, "%s: no process of this host trains in this folder", run_dir);
}

/* Opens the recorder that a file names. live: path of the file. */
static tutti_status open_file(const char *run_dir, const char *live, tti_flight_memory **out) {
    char path[64], text[64] = "";
    int pid = 0, number = -1, fd;
    if (tti_plain_file_open(live, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, &fd) != TUTTI_OK)
        return none(run_dir);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0 || sscanf(text, "%d %d", &pid, &number) != 2 || pid < 1 || number < 0)
        return none(run_dir);
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == EACCES)
        return tti_fail(TUTTI_E_IO, "%s: the run belongs to another user (pid %d)", run_dir, pid);
    if (fd < 0) return none(run_dir);
    tutti_status st = tti_flight_open(fd, out);
    close(fd);
    return st == TUTTI_OK ? TUTTI_OK : none(run_dir);
}

/* Returns the host number in a file name live-host-K; -1: another file. */
static int host_of(const char *name) {
    static const char prefix[] = TTI_LIVE_FILE OF_HOST;
    size_t n = sizeof prefix - 1;
    return strncmp(name, prefix, n) == 0 && isdigit((unsigned char)name[n]) ? atoi(name + n) : -1;
}

static tutti_status find(const char *run_dir, char path[PATH_BYTES], tti_flight_memory **out) {
    *out = NULL;
    if (access(run_dir, F_OK) != 0)
        return tti_fail(TUTTI_E_CONFIG, "%s: %s", run_dir, strerror(errno));
    path_of(run_dir, -1, path);
    tutti_status st = open_file(run_dir, path, out);
    DIR *files = st != TUTTI_OK ? opendir(run_dir) : NULL;
    for (const struct dirent *entry; st != TUTTI_OK && files && (entry = readdir(files));) {
        int node = host_of(entry->d_name);
        if (node < 0) continue;
        path_of(run_dir, node, path);
        st = open_file(run_dir, path, out);
    }
    if (files) closedir(files);
    return st;
}

tutti_status tti_live_open(const char *run_dir, tti_flight_memory **out) {
    char path[PATH_BYTES];
    return find(run_dir, path, out);
}

tutti_status tti_live_inherit(tti_flight_memory **out) {
    int fd = tti_worker_fd("TUTTI_FLIGHT_FD");
    *out = NULL;
    return fd < 0 ? TUTTI_OK : tti_flight_open(fd, out);
}

/* ---- tutti ps, tutti stacks ---- */

/* Appends the text of a rank. */
typedef void add_fn(tti_flight_memory *memory, int rank, tti_str *out);

static void add_rank(tti_flight_memory *memory, int rank, tti_str *out) {
    const tti_flight *f = tti_flight_of(memory, rank);
    tti_flight_state state;
    tti_str what = {0};
    int64_t now = tti_now_ns();
    tti_flight_read(f, &state);
    bool is_elastic = tti_flight_get_workers(memory).least > 0;
    if (state.pid == 0 && is_elastic) return; /* an unused rank of an elastic run */
    if (state.pid == 0) {
        tti_str_printf(out, "%4d  %7s  not running\n", rank, "-");
        return;
    }
    tti_watch_describe(f, &what);
    int64_t since = state.phase_ns ? state.phase_ns : state.last_ns;
    tti_str_printf(out, "%4d  %7d  %6" PRIu64 "  %8.3f s  %s%s\n", rank, state.pid, state.steps,
                   since ? (double)(now - since) * 1e-9 : 0.0, tti_str_text(&what),
                   tti_process_state(state.pid) ? "" : " (the process has ended)");
    tti_str_free(&what);
}

static void add_thread(tti_flight_memory *memory, int rank, int pid, int tid, tti_str *out) {
    uint64_t pc[TTI_FLIGHT_FRAMES];
    char path[64], name[160] = "";
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", pid, tid);
    FILE *file = fopen(path, "re");
    if (file && fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = '\0';
    if (file) fclose(file);
    int n = tti_flight_stack(memory, rank, tid, STACK_MS, pc);
    if (n == 0) return; /* a helper thread that records no stack */
    tti_str_printf(out, "  thread %d (%s)\n", tid, name);
    for (int i = 2; i < n; i++) { /* skip the frames of the signal handler */
        tti_symbol_of(pid, pc[i], name, sizeof name);
        tti_str_printf(out, "    %s\n", name);
    }
}

/* True for the first rank of a process.  Ranks that are threads of one process have the same
 * stacks, which are printed once. */
static bool is_first_of_process(tti_flight_memory *memory, int rank) {
    tti_flight_state mine, other;
    tti_flight_read(tti_flight_of(memory, rank), &mine);
    for (int r = 0; r < rank; r++) {
        tti_flight_read(tti_flight_of(memory, r), &other);
        if (other.pid == mine.pid && mine.pid != 0) return false;
    }
    return true;
}

static void add_stacks(tti_flight_memory *memory, int rank, tti_str *out) {
    const tti_flight *f = tti_flight_of(memory, rank);
    tti_flight_state state;
    char path[64];
    if (!is_first_of_process(memory, rank)) return;
    tti_flight_read(f, &state);
    if (state.pid == 0) return;
    tti_str_printf(out, "rank %d (pid %d): ", rank, state.pid);
    tti_watch_describe(f, out);
    tti_str_add(out, "\n");
    snprintf(path, sizeof path, "/proc/%d/task", state.pid);
    DIR *tasks = opendir(path);
    for (const struct dirent *entry; tasks && (entry = readdir(tasks));) {
        int tid = atoi(entry->d_name);
        if (tid > 0) add_thread(memory, rank, state.pid, tid, out);
    }
    if (tasks) closedir(tasks);
}

static tutti_status give_text(tti_str *text, char **out) {
    if (text->failed || !text->text) {
        tti_str_free(text);
        return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    }
    *out = text->text;
    return TUTTI_OK;
}

/* Prints the header, then the text of each rank. */
static tutti_status describe_ranks(const char *run_dir, const char *header, add_fn *add,
                                   char **out) {
    tti_flight_memory *memory;
    tti_str text = {0};
    *out = NULL;
    TTI_TRY(tti_live_open(run_dir, &memory));
    tti_str_add(&text, header);
    for (int r = 0; r < tti_flight_n_ranks(memory); r++) add(memory, r, &text);
    if (!tti_str_text(&text)[0]) tti_str_add(&text, "no rank is running\n");
    tti_flight_close(memory);
    return give_text(&text, out);
}

tutti_status tutti_run_ps(const char *run_dir, char **out) {
    return describe_ranks(run_dir, "rank      pid   steps       since  phase, operation\n",
                          add_rank, out);
}

tutti_status tutti_run_stacks(const char *run_dir, char **out) {
    return describe_ranks(run_dir, "", add_stacks, out);
}

/* True if the current group has the requested number of workers, and those of this host compute. */
static bool has_workers(tti_flight_memory *memory, int n) {
    tti_flight_workers now = tti_flight_get_workers(memory);
    int n_now = 0;
    if (now.members != n || now.wanted != 0) return false;
    for (int r = 0; r < tti_flight_n_ranks(memory); r++) {
        tti_flight_state state;
        tti_flight_read(tti_flight_of(memory, r), &state);
        char process = state.pid ? tti_process_state(state.pid) : 0;
        n_now += process != 0 && process != 'Z' && !state.phase[0];
    }
    return n_now == now.n_here;
}

/* Requests the number of workers and waits for it. path: the file by which the run was found. */
static tutti_status scale(tti_flight_memory *memory, const char *run_dir, const char *path,
                          int n_workers, int wait_ms) {
    tti_flight_workers may = tti_flight_get_workers(memory);
    int64_t end_ns = tti_now_ns() + wait_ms * TTI_NS_PER_MS;
    if (may.least == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "%s: the workers of this run stay the same; it was started without "
                        "parallel.min_workers",
                        run_dir);
    if (n_workers < may.least || n_workers > may.most)
        return tti_fail(TUTTI_E_CONFIG,
                        "%s: %d workers: this run may have %d (parallel.min_workers) to %d "
                        "(parallel.max_workers)",
                        run_dir, n_workers, may.least, may.most);
    if (n_workers % may.n_per_replica != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "%s: %d workers: %d workers have a replica of the model together "
                        "(parallel.tensor x parallel.pipeline); give a multiple of %d",
                        run_dir, n_workers, may.n_per_replica, may.n_per_replica);
    tti_flight_want(memory, n_workers);
    for (;;) {
        if (has_workers(memory, n_workers)) return TUTTI_OK;
        if (access(path, F_OK) != 0)
            return tti_fail(TUTTI_E_CONFIG, "%s: the run has ended", run_dir);
        if (tti_now_ns() >= end_ns)
            return tti_fail(TUTTI_E_TIMEOUT, "%s: does not have %d workers after %d ms", run_dir,
                            n_workers, wait_ms);
        tti_sleep_ms(5);
    }
}

tutti_status tutti_run_scale(const char *run_dir, int n_workers, int wait_ms) {
    tti_flight_memory *memory;
    char path[PATH_BYTES];
    TTI_TRY(find(run_dir, path, &memory));
    tutti_status st = scale(memory, run_dir, path, n_workers, wait_ms);
    tti_flight_close(memory);
    return st;
}

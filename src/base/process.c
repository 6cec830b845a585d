/* process.c - reads the state of a process, one letter of /proc/PID/stat: "71 (any name, brackets
 * too) T 1 ...". */
#include "base/process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static char state_in(const char *path) {
    char line[512], *end = NULL;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fgets(line, sizeof line, file)) end = strrchr(line, ')');
    fclose(file);
    return (char)(end && end[1] == ' ' ? end[2] : 0);
}

char tti_process_state(int pid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    return state_in(path);
}

char tti_thread_state(int pid, int tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, tid);
    return state_in(path);
}

static uint64_t io_in(const char *path) {
    uint64_t n_read = 0, n_written = 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    int n = fscanf(file, "rchar: %" SCNu64 " wchar: %" SCNu64, &n_read, &n_written);
    fclose(file);
    return n == 2 ? n_read + n_written : 0;
}

/* The calling thread looks at files of /proc meanwhile, which counts as reading. */
static uint64_t io_of_other_threads(void) {
    uint64_t sum = 0;
    int own = (int)syscall(SYS_gettid);
    char path[64];
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return 0;
    for (struct dirent *task; (task = readdir(tasks));) {
        int tid = atoi(task->d_name);
        snprintf(path, sizeof path, "/proc/self/task/%d/io", tid);
        if (tid > 0 && tid != own) sum += io_in(path);
    }
    closedir(tasks);
    return sum;
}

uint64_t tti_process_io(int pid) {
    char path[64];
    if (pid == (int)getpid()) return io_of_other_threads();
    snprintf(path, sizeof path, "/proc/%d/io", pid);
    return io_in(path);
}

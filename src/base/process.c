/* process.c - one letter of /proc/PID/stat: "71 (any name, brackets too) T 1 ...". */
#include "base/process.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

uint64_t tti_process_io(int pid) {
    char path[64];
    uint64_t n_read = 0, n_written = 0;
    snprintf(path, sizeof path, "/proc/%d/io", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    int n = fscanf(file, "rchar: %" SCNu64 " wchar: %" SCNu64, &n_read, &n_written);
    fclose(file);
    return n == 2 ? n_read + n_written : 0;
}

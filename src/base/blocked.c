/* blocked.c - reads /proc/self/task/TID/syscall: the call's number and its arguments. */
#include "base/blocked.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

void tti_blocked_file(int tid, char *out, size_t n_bytes) {
    char path[64];
    long call = -1;
    unsigned long fd = 0;
    out[0] = '\0';
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
    FILE *file = fopen(path, "re");
    if (!file) return;
    int n = fscanf(file, "%ld %lx", &call, &fd); /* NOLINT: numbers of the kernel's own */
    fclose(file);
    bool reads = call == SYS_read || call == SYS_pread64 || call == SYS_readv || call == SYS_lseek;
    if (n != 2 || !reads) return;
    snprintf(path, sizeof path, "/proc/self/fd/%lu", fd);
    ssize_t n_read = readlink(path, out, n_bytes - 1);
    out[n_read > 0 ? n_read : 0] = '\0';
}

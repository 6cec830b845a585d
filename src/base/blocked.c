/* blocked.c - reads /proc/PID/task/TID/syscall: the call's number and its arguments. */
#include "base/blocked.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool takes_a_file(long call) {
    return call == SYS_read || call == SYS_pread64 || call == SYS_readv || call == SYS_lseek ||
           call == SYS_write || call == SYS_pwrite64 || call == SYS_fsync || call == SYS_fdatasync;
}

void tti_blocked_file(int pid, int tid, char *out, size_t n_bytes) {
    char path[64];
    long call = -1;
    unsigned long fd = 0;
    if (pid == 0) pid = (int)getpid();
    out[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/task/%d/syscall", pid, tid);
    FILE *file = fopen(path, "re");
    if (!file) return;
    int n = fscanf(file, "%ld %lx", &call, &fd); /* NOLINT: numbers of the kernel's own */
    fclose(file);
    if (n != 2 || !takes_a_file(call)) return;
    snprintf(path, sizeof path, "/proc/%d/fd/%lu", pid, fd);
    ssize_t n_read = readlink(path, out, n_bytes - 1);
    out[n_read > 0 ? n_read : 0] = '\0';
}

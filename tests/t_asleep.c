/* t_asleep.c - waits until the other threads of this process have nothing to do. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "t.h"

/* The letter after the name in parentheses, which may hold any character: "7 (a) b) S 1 ...". */
static bool is_asleep(long tid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
    FILE *file = fopen(path, "re");
    if (!file) return true; /* it has ended */
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && strncmp(name_end, ") S", 3) == 0;
}

static bool are_asleep(void) {
    DIR *tasks = opendir("/proc/self/task");
    bool all = tasks != NULL;
    for (struct dirent *e; all && (e = readdir(tasks));) {
        long tid = strtol(e->d_name, NULL, 10);
        if (isdigit((unsigned char)e->d_name[0]) && tid != syscall(SYS_gettid))
            all = is_asleep(tid);
    }
    if (tasks) closedir(tasks);
    return all;
}

bool t_wait_asleep(void) {
    enum { LIMIT_MS = 20000, LOOKS = 2 }; /* one look may meet threads between two sleeps */
    int n_looks = 0;
    for (int ms = 0; ms < LIMIT_MS && n_looks < LOOKS; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        n_looks = are_asleep() ? n_looks + 1 : 0;
    }
    return n_looks == LOOKS;
}

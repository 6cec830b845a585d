/* run_dir.c - creates the run folder and never writes into an older one. */
#include "train/setup/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/plain_file.h"

enum { MAX_RUNS = 100000 };

/* Creates path and its parents; an existing folder is fine. */
static tutti_status make_dirs(const char *path) {
    char part[600];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) return tti_fail(TUTTI_E_IO, "run folder '%s': bad path", path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0') continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return tti_fail(TUTTI_E_IO, "run folder '%s': %s", part, strerror(errno));
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return tti_fail(TUTTI_E_IO, "run folder '%s': not a folder", path);
    if (access(path, W_OK | X_OK) != 0)
        return tti_fail(TUTTI_E_IO, "run folder '%s': not writable", path);
    return TUTTI_OK;
}

tutti_status tti_run_dir_lock(const char *dir, int *lock) {
    enum { TRIES = 100 };
    const struct timespec pause = {.tv_nsec = 10000000};
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tti_fail(TUTTI_E_IO, "run folder '%s': %s", dir, strerror(errno));
    bool taken = true;
    for (int i = 0; taken && i < TRIES; i++) {
        if (i > 0) nanosleep(&pause, NULL);
        taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    }
    if (!taken) {
        *lock = fd;
        return TUTTI_OK;
    }
    close(fd);
    return tti_fail(TUTTI_E_CONFIG,
                    "run folder '%s': another process trains in it; wait until it ends, stop it, "
                    "or choose another run.dir",
                    dir);
}

void tti_run_dir_unlock(int lock) {
    if (lock < 0) return;
    flock(lock,
          LOCK_UN); /* also releases the lock of children that have inherited the descriptor */
    close(lock);
}

bool tti_run_dir_exists(const char *dir) {
    char path[700];
    snprintf(path, sizeof path, "%s/metrics.jsonl", dir);
    return access(path, F_OK) == 0;
}

static tutti_status make_inside(const char *dir) {
    static const char *const parts[] = {"checkpoints", "log"};
    for (size_t i = 0; i < TTI_COUNT(parts); i++) {
        char path[700];
        int fd;
        snprintf(path, sizeof path, "%s/%s", dir, parts[i]);
        TTI_TRY(make_dirs(path));
        TTI_TRY(tti_plain_folder_open(path, &fd));
        close(fd);
    }
    return TUTTI_OK;
}

/* Removes dir/log and the logs in it. */
static void discard_logs(const char *dir) {
    char path[700];
    snprintf(path, sizeof path, "%s/log", dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *log = fd >= 0 ? fdopendir(fd) : NULL;
    if (!log && fd >= 0) close(fd);
    for (struct dirent *entry; log && (entry = readdir(log));)
        if (strncmp(entry->d_name, "rank-", 5) == 0) unlinkat(dirfd(log), entry->d_name, 0);
    if (log) closedir(log);
    rmdir(path);
}

void tti_run_dir_discard(const char *dir) {
    static const char *const files[] = {"job.yaml", "error.json", "data.json", "samples.txt",
                                        "tokenizer.json"};
    char path[700];
    if (tti_run_dir_exists(dir)) return;
    for (size_t i = 0; i < TTI_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        unlink(path);
    }
    discard_logs(dir);
    snprintf(path, sizeof path, "%s/checkpoints", dir);
    rmdir(path);
    rmdir(dir);
}

/* Creates the first free runs/NAME-N. mkdir is atomic, so two concurrent runs get two folders. */
static tutti_status make_next(const char *name, char *out, size_t n_bytes) {
    TTI_TRY(make_dirs("runs"));
    for (int i = 1; i < MAX_RUNS; i++) {
        snprintf(out, n_bytes, "runs/%s-%d", name, i);
        if (mkdir(out, 0777) == 0) return make_inside(out);
        if (errno != EEXIST)
            return tti_fail(TUTTI_E_IO, "run folder '%s': %s", out, strerror(errno));
    }
    return tti_fail(TUTTI_E_IO, "run folder runs/%s-*: none is free", name);
}

tutti_status tti_run_dir_refuse(const char *dir) {
    return tti_fail(TUTTI_E_CONFIG,
                    "run.dir: '%s' already holds a run; continue it with --resume %s, or choose "
                    "another folder",
                    dir, dir);
}

tutti_status tti_run_dir_create(const char *dir, const char *name, char *out, size_t n_bytes) {
    if (strcmp(dir, "auto") == 0) return make_next(name, out, n_bytes);
    if (tti_run_dir_exists(dir)) return tti_run_dir_refuse(dir);
    if (strlen(dir) >= n_bytes) return tti_fail(TUTTI_E_IO, "run folder '%s': bad path", dir);
    snprintf(out, n_bytes, "%s", dir);
    TTI_TRY(make_dirs(out));
    return make_inside(out);
}

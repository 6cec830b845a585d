/* atomic_file.c - writes to a temporary name, then fsync, rename, fsync of the directory.
 *
 * It does not verify what was written: code that reads back and knows the checksum (ckpt/) finds a
 * disk that corrupts data.  The rename is the commit; before it nothing has the final name, after
 * it everything has been on disk already. */
#include "base/files/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fault.h"

struct tti_atomic_file {
    int fd; /* -1: closed */
    uint64_t n_reserved, n_written;
    char *path, *temporary; /* owned; temporary is removed by destroy while not NULL */
    tutti_status failed;    /* lasting */
};

static tutti_status fail_full(const tti_atomic_file *f, const char *call, uint64_t n_bytes) {
    int code = errno;
    struct statvfs fs;
    uint64_t n_free = 0;
    if (fstatvfs(f->fd, &fs) == 0) n_free = (uint64_t)fs.f_bavail * fs.f_frsize;
    return tti_fail(TUTTI_E_IO, "%s: %s: %s: %llu bytes needed, %llu free", f->path, call,
                    strerror(code), (unsigned long long)n_bytes, (unsigned long long)n_free);
}

static tutti_status fail_call(tti_atomic_file *f, const char *call, uint64_t n_bytes) {
    bool full = errno == ENOSPC || errno == EDQUOT;
    f->failed = full ? fail_full(f, call, n_bytes)
                     : tti_fail(TUTTI_E_IO, "%s: %s: %s", f->path, call, strerror(errno));
    return f->failed;
}

static tutti_status open_new(tti_atomic_file *f) {
    for (int attempt = 0; attempt < 100; attempt++) {
        free(f->temporary);
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (asprintf(&f->temporary, "%s.%ld-%ld.tmp", f->path, (long)getpid(), now.tv_nsec) < 0) {
            f->temporary = NULL;
            return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", f->path);
        }
        if (TTI_FAULT("file.create")) break;
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (f->fd >= 0) return TUTTI_OK;
        if (errno != EEXIST) break;
    }
    int code = errno;
    free(f->temporary); /* not ours */
    f->temporary = NULL;
    return tti_fail(TUTTI_E_IO, "%s: cannot create: %s", f->path, strerror(code));
}

/* Not posix_fallocate: where the file system cannot reserve, that writes zeros instead. */
static tutti_status reserve(tti_atomic_file *f, uint64_t n_bytes) {
    if (n_bytes == 0) return TUTTI_OK;
    if (n_bytes > INT64_MAX) return tti_fail(TUTTI_E_INVALID, "%s: too many bytes", f->path);
    int failed;
    do failed = TTI_FAULT("file.reserve") ? -1 : fallocate(f->fd, 0, 0, (off_t)n_bytes);
    while (failed && errno == EINTR);
    if (failed && errno != EOPNOTSUPP && errno != ENOSYS) return fail_call(f, "reserve", n_bytes);
    if (!failed) f->n_reserved = n_bytes;
    return TUTTI_OK;
}

tutti_status tti_atomic_file_create(const char *path, uint64_t n_bytes, tti_atomic_file **out) {
    *out = NULL;
    tti_atomic_file *f = calloc(1, sizeof *f);
    if (!f) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    f->fd = -1;
    tutti_status st = TUTTI_OK;
    f->path = strdup(path);
    if (!f->path) {
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
        goto cleanup;
    }
    TTI_TRY_GOTO(open_new(f), cleanup);
    TTI_TRY_GOTO(reserve(f, n_bytes), cleanup);
    *out = f;
cleanup:
    if (st != TUTTI_OK) tti_atomic_file_destroy(f);
    return st;
}

tutti_status tti_atomic_file_write(tti_atomic_file *f, const void *data, size_t n_bytes) {
    enum { MAX_AT_ONCE = 1 << 26 };
    if (f->failed) return tti_fail(f->failed, "%s: write after a failure", f->path);
    const char *p = data;
    while (n_bytes) {
        ssize_t n = TTI_FAULT("file.write") ? -1 : write(f->fd, p, TTI_MIN(n_bytes, MAX_AT_ONCE));
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO;
        if (n <= 0) return fail_call(f, "write", TTI_MAX(f->n_written + n_bytes, f->n_reserved));
        p += n;
        n_bytes -= (size_t)n;
        f->n_written += (uint64_t)n;
    }
    return TUTTI_OK;
}

/* Makes the bytes durable; the descriptor is closed in any case. */
static tutti_status finish_bytes(tti_atomic_file *f) {
    tutti_status st = TUTTI_OK;
    if (f->n_reserved > f->n_written && ftruncate(f->fd, (off_t)f->n_written))
        st = fail_call(f, "truncate", f->n_written);
    else if (TTI_FAULT("file.fsync") || fsync(f->fd))
        st = fail_call(f, "fsync", f->n_written);
    int failed = close(f->fd);
    f->fd = -1;
    if (st == TUTTI_OK && (TTI_FAULT("file.close") || failed))
        st = f->failed = tti_fail(TUTTI_E_IO, "%s: close: %s", f->path, strerror(errno));
    return st;
}

static tutti_status sync_parent(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return tti_dir_sync(".");
    char *dir = strndup(path, TTI_MAX((size_t)(slash - path), 1));
    if (!dir) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    tutti_status st = tti_dir_sync(dir);
    free(dir);
    return st;
}

tutti_status tti_atomic_file_commit_unsynced(tti_atomic_file *f) {
    if (f->failed) return tti_fail(f->failed, "%s: commit after a failure", f->path);
    if (f->fd < 0) return tti_fail(TUTTI_E_INVALID, "%s: committed twice", f->path);
    TTI_TRY(finish_bytes(f));
    if (TTI_FAULT("file.rename") || rename(f->temporary, f->path)) {
        f->failed = tti_fail(TUTTI_E_IO, "%s: rename: %s", f->path, strerror(errno));
        return f->failed;
    }
    free(f->temporary);
    f->temporary = NULL;
    return TUTTI_OK;
}

tutti_status tti_atomic_file_commit(tti_atomic_file *f) {
    TTI_TRY(tti_atomic_file_commit_unsynced(f));
    return sync_parent(f->path);
}

void tti_atomic_file_destroy(tti_atomic_file *f) {
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    if (f->temporary) unlink(f->temporary);
    free(f->temporary);
    free(f->path);
    free(f);
}

tutti_status tti_atomic_file_save(const char *path, const void *data, size_t n_bytes) {
    tti_atomic_file *f;
    TTI_TRY(tti_atomic_file_create(path, n_bytes, &f));
    tutti_status st = tti_atomic_file_write(f, data, n_bytes);
    if (st == TUTTI_OK) st = tti_atomic_file_commit(f);
    tti_atomic_file_destroy(f);
    return st;
}

tutti_status tti_dir_sync(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return tti_fail(TUTTI_E_IO, "%s: cannot open the folder: %s", path, strerror(errno));
    /* EINVAL: this file system has no fsync of folders and orders renames itself. */
    bool failed = TTI_FAULT("file.dirsync") || (fsync(fd) && errno != EINVAL);
    int code = errno;
    close(fd);
    if (failed) return tti_fail(TUTTI_E_IO, "%s: fsync of the folder: %s", path, strerror(code));
    return TUTTI_OK;
}

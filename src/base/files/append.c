/* append.c - appends a record with one write(2), and truncates a record that a full disk cut short.
 */
#include "base/files/append.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

enum { LOCK_TRIES = 100 }; /* one millisecond apart */

/* Waits for others that append to the file or repair it: on some file systems O_APPEND alone lets
 * two records go to the same place, and a repair must not see half a record of a process that
 * writes.  False: another process has had the lock for 0.1 s, so it is stopped or dead on its host;
 * no process waits longer.  True also where the file system has no locks. */
static bool lock(int fd) {
    for (int i = 0; i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && errno != EINTR))
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

/* Unless another process has written meanwhile. */
static void take_back(int fd, off_t n_before, size_t n_written) {
    struct stat now;
    if (n_written == 0 || fstat(fd, &now) != 0 || now.st_size != n_before + (off_t)n_written)
        return;
    int error = ftruncate(fd, n_before);
    (void)error; /* the write has failed already, and says so */
}

static tutti_status write_all(int fd, const char *name, const char *record, size_t n_bytes) {
    struct stat before;
    if (fstat(fd, &before) != 0) return tti_fail(TUTTI_E_IO, "%s: %s", name, strerror(errno));
    for (size_t done = 0; done < n_bytes;) {
        ssize_t n = write(fd, record + done, n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            int error = errno;
            take_back(fd, before.st_size, done);
            return tti_fail(TUTTI_E_IO, "%s: %s", name, strerror(error));
        }
        done += (size_t)n;
    }
    return TUTTI_OK;
}

tutti_status tti_append(int fd, const char *name, const void *record, size_t n_bytes) {
    bool is_locked = lock(fd);
    tutti_status st = write_all(fd, name, record, n_bytes);
    if (is_locked) flock(fd, LOCK_UN);
    return st;
}

/* How many bytes there are up to the last '\n', that included. */
static tutti_status end_of_lines(int fd, const char *name, off_t n_bytes, off_t *out) {
    char part[4096];
    while (n_bytes > 0) {
        off_t first = TTI_MAX(n_bytes - (off_t)sizeof part, 0);
        ssize_t n = pread(fd, part, (size_t)(n_bytes - first), first);
        if (n <= 0) return tti_fail(TUTTI_E_IO, "%s: %s", name, n ? strerror(errno) : "cut short");
        const char *end = memrchr(part, '\n', (size_t)n);
        n_bytes = end ? first + (end - part) + 1 : first;
        if (end) break;
    }
    *out = n_bytes;
    return TUTTI_OK;
}

static tutti_status cut(int fd, const char *name) {
    struct stat now;
    off_t whole;
    if (fstat(fd, &now) != 0) return tti_fail(TUTTI_E_IO, "%s: %s", name, strerror(errno));
    TTI_TRY(end_of_lines(fd, name, now.st_size, &whole));
    if (whole == now.st_size || ftruncate(fd, whole) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "%s: %s", name, strerror(errno));
}

tutti_status tti_cut_torn_line(int fd, const char *name) {
    if (!lock(fd)) return TUTTI_OK; /* a process is writing: the line is not torn, but unfinished */
    tutti_status st = cut(fd, name);
    flock(fd, LOCK_UN);
    return st;
}

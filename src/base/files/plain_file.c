/* plain_file.c - refuses links, pipes and devices where a regular file or a folder belongs. */
#include "base/files/plain_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Keeps errno. */
static tutti_status fail_open(const char *path) {
    int error = errno;
    struct stat info;
    bool link =
        (error == ELOOP || error == ENOTDIR) && lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    tutti_status st =
        link ? tti_fail(TUTTI_E_IO,
                        "%s: is a symbolic link, and nothing inside a run folder is written "
                        "through a link; remove it, or replace it by its target",
                        path)
             : tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(error));
    errno = error;
    return st;
}

tutti_status tti_plain_file_open(const char *path, int flags, int *out_fd) {
    struct stat info;
    /* O_NONBLOCK: opening a pipe must not wait for its other end. */
    int fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0 && errno != ENXIO) return fail_open(path); /* ENXIO: a pipe without a reader */
    bool regular = fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    if (!regular) {
        if (fd >= 0) close(fd);
        return tti_fail(TUTTI_E_IO, "%s: is not a regular file", path);
    }
    *out_fd = fd;
    return TUTTI_OK;
}

tutti_status tti_plain_folder_open(const char *path, int *out_fd) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return fail_open(path);
    *out_fd = fd;
    return TUTTI_OK;
}

tutti_status tti_new_folder(const char *path) {
    if (mkdir(path, 0777) && errno != EEXIST)
        return tti_fail(TUTTI_E_IO, "%s: cannot create: %s", path, strerror(errno));
    DIR *open = opendir(path);
    if (!open) return tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(errno));
    int n = 0;
    for (const struct dirent *d = readdir(open); d; d = readdir(open))
        n += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0;
    closedir(open);
    if (n == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "%s: is not empty; give a new or empty folder", path);
}

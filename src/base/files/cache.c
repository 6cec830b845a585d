/* cache.c - keeps tuned or compiled results on disk for later processes.
 *
 * A file is "tutti-cache", the key, a checksum, the data.  A file that does not match counts as
 * absent: its contents are made again and overwritten.  A failed write does not fail the run. */
#include "base/files/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/files/atomic_file.h"

enum { MAX_PATH = 1024, MAX_BYTES = 256 << 20 };

typedef struct header {
    char magic[12]; /* "tutti-cache" */
    uint32_t version, key_bytes, crc;
    uint64_t data_bytes;
} header;

static char folder[MAX_PATH];

static bool make_folder(const char *path) { return mkdir(path, 0700) == 0 || errno == EEXIST; }

static void find_folder(void) {
    const char *own = getenv("TUTTI_CACHE"), *xdg = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    char parent[MAX_PATH / 2] = "", path[MAX_PATH] = "";
    if (own && *own) {
        snprintf(path, sizeof path, "%s", own);
    } else {
        if (xdg && *xdg)
            snprintf(parent, sizeof parent, "%s", xdg);
        else if (home && *home)
            snprintf(parent, sizeof parent, "%s/.cache", home);
        if (!*parent || !make_folder(parent)) return;
        snprintf(path, sizeof path, "%s/tutti", parent);
    }
    if (make_folder(path)) memcpy(folder, path, sizeof folder);
}

const char *tti_cache_dir(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_folder);
    return folder;
}

static bool path_of(const char *name, char *path, size_t n) {
    const char *dir = tti_cache_dir();
    return *dir && snprintf(path, n, "%s/%s", dir, name) < (int)n;
}

/* The whole file, NULL when it cannot be had. */
static char *read_all(const char *path, size_t *n_bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block */
    FILE *file = fd >= 0 ? fdopen(fd, "rb") : NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return NULL;
    }
    struct stat info;
    char *data = NULL;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
        info.st_size <= MAX_BYTES)
        data = malloc((size_t)info.st_size);
    *n_bytes = data ? fread(data, 1, (size_t)info.st_size, file) : 0;
    if (data && *n_bytes != (size_t)info.st_size) {
        free(data);
        data = NULL;
    }
    fclose(file);
    return data;
}

/* Finds the begin of the data. */
static tti_cache_found check(const char *file, size_t n_bytes, const char *key, size_t *at,
                             size_t *n_data) {
    header h;
    size_t n_key = strlen(key);
    if (n_bytes < sizeof h) return TTI_CACHE_DAMAGED;
    memcpy(&h, file, sizeof h);
    bool fits = memcmp(h.magic, "tutti-cache", 12) == 0 && h.version == 1 &&
                h.data_bytes <= MAX_BYTES &&
                n_bytes == sizeof h + (uint64_t)h.key_bytes + h.data_bytes;
    if (!fits) return TTI_CACHE_DAMAGED;
    if (tti_crc32c(0, file + sizeof h + h.key_bytes, h.data_bytes) != h.crc)
        return TTI_CACHE_DAMAGED;
    *at = sizeof h + h.key_bytes;
    *n_data = h.data_bytes;
    bool same = h.key_bytes == n_key && memcmp(file + sizeof h, key, n_key) == 0;
    return same ? TTI_CACHE_GOOD : TTI_CACHE_FOREIGN;
}

tti_cache_found tti_cache_find(const char *name, const char *key, char **data, size_t *n_bytes) {
    char path[MAX_PATH + 64];
    size_t n_file = 0, n_data = 0, at = 0;
    *data = NULL;
    *n_bytes = 0;
    if (!path_of(name, path, sizeof path)) return TTI_CACHE_ABSENT;
    if (access(path, F_OK) != 0) return TTI_CACHE_ABSENT;
    char *file = read_all(path, &n_file);
    if (!file) return TTI_CACHE_DAMAGED;
    tti_cache_found found = check(file, n_file, key, &at, &n_data);
    if (found != TTI_CACHE_GOOD) {
        free(file);
        return found;
    }
    memmove(file, file + at, n_data);
    *data = file;
    *n_bytes = n_data;
    return TTI_CACHE_GOOD;
}

char *tti_cache_read(const char *name, const char *key, size_t *n_bytes) {
    char *data;
    (void)tti_cache_find(name, key, &data, n_bytes);
    return data;
}

bool tti_cache_write(const char *name, const char *key, const void *data, size_t n_bytes) {
    char path[MAX_PATH + 64];
    header h = {.magic = "tutti-cache", .version = 1, .key_bytes = (uint32_t)strlen(key)};
    if (n_bytes > MAX_BYTES || !path_of(name, path, sizeof path)) return false;
    h.crc = tti_crc32c(0, data, n_bytes);
    h.data_bytes = n_bytes;
    tti_str file = {0};
    tti_str_add_bytes(&file, &h, sizeof h);
    tti_str_add(&file, key);
    tti_str_add_bytes(&file, data, n_bytes);
    bool saved = !file.failed && tti_atomic_file_save(path, file.text, file.n_bytes) == TUTTI_OK;
    if (!saved) tti_clear_error();
    tti_str_free(&file);
    return saved;
}

/* ---- locks ---- */

static const char lock_end[] = ".lock";

/* Locks one byte: a lock belongs to the open file, so threads exclude each other too, and it ends
 * with a process that is killed. */
int tti_cache_lock(const char *name, uint64_t what, int timeout_ms) {
    char file[128], path[MAX_PATH + 128];
    struct flock byte = {.l_type = F_WRLCK,
                         .l_whence = SEEK_SET,
                         .l_start = (off_t)(what >> 2), /* a position in a file is signed */
                         .l_len = 1};
    int64_t end_ns = tti_now_ns() + timeout_ms * TTI_NS_PER_MS;
    if (snprintf(file, sizeof file, "%s%s", name, lock_end) >= (int)sizeof file) return -1;
    if (!path_of(file, path, sizeof path)) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    while (fd >= 0 && fcntl(fd, F_OFD_SETLK, &byte) != 0) {
        bool is_held = errno == EAGAIN || errno == EACCES || errno == EINTR;
        if (is_held && tti_now_ns() < end_ns) {
            tti_sleep_ms(1);
            continue;
        }
        close(fd);
        fd = -1;
    }
    return fd;
}

void tti_cache_unlock(int lock) {
    if (lock >= 0) close(lock);
}

/* ---- damaged files ---- */

static bool is_lock(const char *name) {
    size_t n = strlen(name), n_end = sizeof lock_end - 1;
    return n > n_end && strcmp(name + n - n_end, lock_end) == 0;
}

int tti_cache_find_damaged(tti_str *names) {
    enum { MAX_LISTED = 10 };
    char *data;
    size_t n_bytes;
    int n = 0;
    DIR *dir = *tti_cache_dir() ? opendir(tti_cache_dir()) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (entry->d_type == DT_DIR || is_lock(name) || strstr(name, ".tmp")) continue;
        if (tti_cache_find(name, "", &data, &n_bytes) == TTI_CACHE_DAMAGED && n++ < MAX_LISTED)
            tti_str_printf(names, "%s%s", n > 1 ? ", " : "", name);
        free(data);
    }
    if (dir) closedir(dir);
    return n;
}

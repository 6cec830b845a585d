/* user_key.c - reads the user's key from the cache folder, or creates it.
 *
 * Ranks that start together may all find no file.  Each writes a temporary file and links it to the
 * common name; link() succeeds for one of them, and all read that file.  They may also all find a
 * damaged file: then a lock on that file selects the rank that replaces it. */
#include "launch/user_key.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/cache.h"

enum { KEY_BYTES = 32, KEY_CHARS = 2 * KEY_BYTES, PATH_BYTES = 1024 + 64 };

enum { OPEN_FLAGS = O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY };

static bool is_private(const struct stat *info) {
    return !(info->st_mode & 077) && info->st_size == KEY_CHARS;
}

/* True if the file belongs to this user, is private, and has a complete key. */
static bool read_key(const char *path, char key[KEY_CHARS + 1]) {
    struct stat info;
    int fd = open(path, O_RDONLY | OPEN_FLAGS);
    if (fd < 0) return false;
    bool good = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
                is_private(&info) && read(fd, key, KEY_CHARS) == KEY_CHARS;
    close(fd);
    key[KEY_CHARS] = '\0';
    return good && strspn(key, "0123456789abcdef") == KEY_CHARS;
}

static bool write_key(int fd) {
    unsigned char bytes[KEY_BYTES];
    char text[KEY_CHARS + 1];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    for (int i = 0; i < KEY_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return write(fd, text, KEY_CHARS) == KEY_CHARS && fsync(fd) == 0;
}

/* Writes a new key to a temporary file next to path, then moves it there with `place`, which is
 * link() or rename(). */
static bool make_key(const char *path, int (*place)(const char *, const char *)) {
    char draft[PATH_BYTES + 8];
    snprintf(draft, sizeof draft, "%s.XXXXXX", path);
    int fd = mkostemp(draft, O_CLOEXEC); /* creates the file with mode 0600 */
    if (fd < 0) return false;
    bool written = write_key(fd);
    bool placed = close(fd) == 0 && written && place(draft, path) == 0;
    unlink(draft);
    return placed;
}

static tutti_status refuse(const char *path, const char *why) {
    return tti_fail(TUTTI_E_CONFIG,
                    "launch: %s: %s; this file protects the job from other users. Delete it, or "
                    "set TUTTI_CACHE to a folder of your own",
                    path, why);
}

/* Replaces the damaged file behind fd, unless another process has done so: then fd is the new file,
 * or no longer the file at path. */
static tutti_status replace_file(const char *path, int fd) {
    struct stat info, named;
    char key[KEY_CHARS + 1];
    if (fstat(fd, &info) != 0) return refuse(path, strerror(errno));
    if (!S_ISREG(info.st_mode)) return refuse(path, "is not a regular file");
    if (info.st_uid != geteuid()) return refuse(path, "belongs to another user");
    if (flock(fd, LOCK_EX) != 0) return refuse(path, "is damaged and cannot be locked");
    bool is_named =
        lstat(path, &named) == 0 && named.st_dev == info.st_dev && named.st_ino == info.st_ino;
    if (is_named && !read_key(path, key) && !make_key(path, rename))
        return refuse(path, "is damaged and cannot be replaced");
    return TUTTI_OK;
}

static tutti_status replace_key(const char *path) {
    int fd = open(path, O_RDWR | OPEN_FLAGS); /* O_RDWR because NFS requires it for a lock */
    if (fd < 0) fd = open(path, O_RDONLY | OPEN_FLAGS);
    if (fd < 0 && errno == ENOENT) return TUTTI_OK; /* the folder is not writable */
    if (fd < 0) return refuse(path, errno == ELOOP ? "is a symbolic link" : strerror(errno));
    tutti_status status = replace_file(path, fd);
    close(fd);
    return status;
}

tutti_status tti_user_key(char *key, size_t n_bytes) {
    char path[PATH_BYTES], found[KEY_CHARS + 1];
    const char *dir = tti_cache_dir();
    TTI_ASSERT(n_bytes > KEY_CHARS);
    key[0] = '\0';
    if (!*dir) return TUTTI_OK;
    snprintf(path, sizeof path, "%s/rendezvous-key-%u", dir, (unsigned)geteuid());
    bool good = read_key(path, found);
    if (!good) (void)make_key(path, link);
    if (!good) good = read_key(path, found);
    if (!good) TTI_TRY(replace_key(path));
    if (!good) good = read_key(path, found);
    if (good) memcpy(key, found, sizeof found);
    return TUTTI_OK;
}

/* user_key.c - reads the user's key from the cache folder, or makes it.
 *
 * Ranks that start together may all find no file.  Each writes one under a unique name and links it
 * to the common name; link() succeeds for one of them, and all read the file of that one. */
#include "launch/user_key.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cache.h"

enum { KEY_BYTES = 32, KEY_CHARS = 2 * KEY_BYTES, PATH_BYTES = 1024 + 64 };

static bool is_private(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
           !(info.st_mode & 077) && info.st_size == KEY_CHARS;
}

static bool read_key(const char *path, char key[KEY_CHARS + 1]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    if (fd < 0) return false;
    bool good = is_private(fd) && read(fd, key, KEY_CHARS) == KEY_CHARS;
    close(fd);
    key[KEY_CHARS] = '\0';
    return good && strlen(key) == KEY_CHARS;
}

static bool write_key(int fd) {
    unsigned char bytes[KEY_BYTES];
    char text[KEY_CHARS + 1];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return false;
    for (int i = 0; i < KEY_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return write(fd, text, KEY_CHARS) == KEY_CHARS && fsync(fd) == 0;
}

/* Makes the file unless another process has made it meanwhile. */
static void make_key(const char *path) {
    char draft[PATH_BYTES + 8];
    snprintf(draft, sizeof draft, "%s.XXXXXX", path);
    int fd = mkostemp(draft, O_CLOEXEC); /* with the mode 0600 */
    if (fd < 0) return;
    bool written = write_key(fd);
    if (close(fd) == 0 && written) (void)!link(draft, path);
    unlink(draft);
}

bool tti_user_key(char *key, size_t n_bytes) {
    char path[PATH_BYTES], found[KEY_CHARS + 1];
    const char *dir = tti_cache_dir();
    key[0] = '\0';
    if (!*dir || n_bytes <= KEY_CHARS) return false;
    snprintf(path, sizeof path, "%s/rendezvous-key-%u", dir, (unsigned)geteuid());
    bool good = read_key(path, found);
    if (!good) {
        make_key(path);
        good = read_key(path, found);
    }
    if (good) memcpy(key, found, sizeof found);
    return good;
}

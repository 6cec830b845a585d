/* host_file.c - reads the file of hosts. */
#include "launch/host_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/files/plain_file.h"

enum { LOOK_MS = 250, MAX_BYTES = 64 << 10, MAX_SLOTS = 4096, LINE_BYTES = 300 };

static const char blanks[] = " \t\r";

/* name may have a domain that host has not, or the other way round. */
static bool is_here(const char *name, const char *host) {
    size_t n = strcspn(host, "."), n_name = strcspn(name, ".");
    bool is_address = name[strspn(name, "0123456789.")] == '\0';
    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0) return true;
    if (strcmp(name, host) == 0) return true;
    bool has_domains = name[n_name] && host[n];
    return !is_address && !has_domains && n == n_name && strncmp(name, host, n) == 0;
}

/* The slots of one line without its comment; 0: another host, or an empty line. */
static int slots_of(char *line, const char *host) {
    char *rest, *end;
    const char *name = strtok_r(line, blanks, &rest);
    const char *word = name ? strtok_r(NULL, blanks, &rest) : NULL;
    long n = 1;
    if (!name) return 0;
    if (word && strncmp(word, "slots=", 6) != 0) return -1;
    if (word) {
        n = strtol(word + 6, &end, 10);
        if (end == word + 6 || *end || n < 0 || n > MAX_SLOTS) return -1;
    }
    return is_here(name, host) ? (int)n : 0;
}

int tti_host_file_slots(const char *text, const char *host) {
    char line[LINE_BYTES];
    int n = 0;
    for (int at = 1; *text; at++) {
        size_t n_line = strcspn(text, "\n"), n_code = strcspn(text, "#\n");
        size_t n_kept = TTI_MIN(n_code, sizeof line - 1);
        memcpy(line, text, n_kept);
        line[n_kept] = '\0';
        int slots = n_code < sizeof line ? slots_of(line, host) : -1;
        if (slots < 0 || n + slots > MAX_SLOTS) {
            (void)tti_fail(TUTTI_E_CONFIG, "line %d: expected HOST or HOST slots=N, up to %d slots",
                           at, MAX_SLOTS);
            return -1;
        }
        n += slots;
        text += n_line + (text[n_line] == '\n');
    }
    return n;
}

static int read_slots(int fd, const char *path) {
    char host[256] = "";
    char *text = malloc(MAX_BYTES + 1);
    ssize_t n = text ? read(fd, text, MAX_BYTES) : -1;
    int slots = -1;
    gethostname(host, sizeof host - 1);
    if (n >= 0) {
        text[n] = '\0';
        slots = tti_host_file_slots(text, host);
        if (slots < 0) (void)tti_fail(TUTTI_E_CONFIG, "%s: %s", path, tutti_last_error());
        if (slots == 0)
            (void)tti_fail(TUTTI_E_CONFIG, "%s: has no slots for this host (%s)", path, host);
    } else {
        (void)tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(errno));
    }
    free(text);
    return slots > 0 ? slots : -1;
}

int tti_host_file_look(tti_host_file *file) {
    struct stat info;
    int64_t now = tti_now_ns();
    int fd;
    if (now - file->looked_ns < LOOK_MS * TTI_NS_PER_MS) return 0;
    file->looked_ns = now;
    if (stat(file->path, &info) != 0) return 0;
    bool is_same = info.st_ino == file->inode && info.st_size == file->n_bytes &&
                   info.st_mtim.tv_sec == file->changed.tv_sec &&
                   info.st_mtim.tv_nsec == file->changed.tv_nsec;
    if (is_same) return 0;
    file->inode = info.st_ino;
    file->n_bytes = info.st_size;
    file->changed = info.st_mtim;
    if (tti_plain_file_open(file->path, O_RDONLY | O_CLOEXEC, &fd) != TUTTI_OK) return -1;
    int n = read_slots(fd, file->path);
    close(fd);
    return n;
}

int tti_host_file_workers(tti_host_file *file, const tti_host_file_range *may, char *text,
                          size_t n_bytes) {
    int n = file->path ? tti_host_file_look(file) : 0;
    int able = TTI_MIN(TTI_MAX(n, may->least), may->most) / may->step * may->step;
    text[0] = '\0';
    if (n < 0) snprintf(text, n_bytes, "%s", tutti_last_error());
    if (n <= 0) return 0;
    if (n != able)
        snprintf(text, n_bytes, "%s asks for %d workers; this run has %d to %d%s", file->path, n,
                 may->least, may->most, may->step > 1 ? ", in whole replicas" : "");
    return able;
}

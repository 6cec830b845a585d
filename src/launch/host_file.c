/* host_file.c - parses the host file, and reads it again when it changes. */
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

/* True if the names are equal; one of them may lack the domain. */
static bool is_host(const char *name, const char *host) {
    size_t n = strcspn(host, "."), n_name = strcspn(name, ".");
    bool is_address = name[strspn(name, "0123456789.")] == '\0';
    if (!*host) return false;
    if (strcmp(name, host) == 0) return true;
    bool has_domains = name[n_name] && host[n];
    return !is_address && !has_domains && n == n_name && strncmp(name, host, n) == 0;
}

static bool is_named(const char *name, const tti_host_names *names) {
    if (strcmp(name, "localhost") == 0 || strcmp(name, "127.0.0.1") == 0) return names->is_local;
    return is_host(name, names->host) || (*names->address && strcmp(name, names->address) == 0);
}

/* A line: its name, which points into it, and its slots; slots 0: the line is empty; -1: it is
 * invalid. */
typedef struct host_line {
    char text[LINE_BYTES];
    const char *name;
    int slots;
} host_line;

static void split_line(host_line *line) {
    char *rest, *end;
    line->name = strtok_r(line->text, blanks, &rest);
    const char *word = line->name ? strtok_r(NULL, blanks, &rest) : NULL;
    long n = 1;
    line->slots = line->name ? -1 : 0;
    if (!line->name || (word && strncmp(word, "slots=", 6) != 0)) return;
    if (word) {
        n = strtol(word + 6, &end, 10);
        if (end == word + 6 || *end || n < 0 || n > MAX_SLOTS) return;
    }
    line->slots = (int)n;
}

/* Parses the line at text, without its comment, and returns the start of the next line. */
static const char *read_line(const char *text, host_line *line) {
    size_t n_line = strcspn(text, "\n"), n_code = strcspn(text, "#\n");
    size_t n_kept = TTI_MIN(n_code, sizeof line->text - 1);
    memcpy(line->text, text, n_kept);
    line->text[n_kept] = '\0';
    split_line(line);
    if (n_code >= sizeof line->text) line->slots = -1;
    return text + n_line + (text[n_line] == '\n');
}

int tti_host_file_slots(const char *text, const tti_host_names *names) {
    host_line line;
    int n = 0;
    for (int at = 1; *text; at++) {
        text = read_line(text, &line);
        bool is_its = line.slots > 0 && is_named(line.name, names);
        if (line.slots < 0 || (is_its && n + line.slots > MAX_SLOTS)) {
            (void)tti_fail(TUTTI_E_CONFIG, "line %d: expected HOST or HOST slots=N, up to %d slots",
                           at, MAX_SLOTS);
            return -1;
        }
        if (is_its) n += line.slots;
    }
    return n;
}

void tti_host_file_find_unknown(const char *text, const tti_host_names *hosts, int n, char *name,
                                size_t n_bytes) {
    host_line line;
    name[0] = '\0';
    while (*text) {
        bool is_known = false;
        text = read_line(text, &line);
        for (int k = 0; k < n && line.slots > 0; k++) is_known |= is_named(line.name, &hosts[k]);
        if (line.slots <= 0 || is_known) continue;
        snprintf(name, n_bytes, "%s", line.name);
        return;
    }
}

static char *read_text(int fd, const char *path) {
    char *text = malloc(MAX_BYTES + 1);
    ssize_t n = text ? read(fd, text, MAX_BYTES) : -1;
    if (n >= 0) {
        text[n] = '\0';
        return text;
    }
    (void)tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(errno));
    free(text);
    return NULL;
}

int tti_host_file_look(tti_host_file *file) {
    char host[256] = "", *text;
    int n = tti_host_file_read(file, &text);
    if (n <= 0) return n;
    gethostname(host, sizeof host - 1);
    n = tti_host_file_slots(text, &(tti_host_names){.host = host, .address = "", .is_local = true});
    free(text);
    if (n < 0) (void)tti_fail(TUTTI_E_CONFIG, "%s: %s", file->path, tutti_last_error());
    if (n == 0)
        (void)tti_fail(TUTTI_E_CONFIG, "%s: has no slots for this host (%s)", file->path, host);
    return n > 0 ? n : -1;
}

int tti_host_file_read(tti_host_file *file, char **text) {
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
    *text = read_text(fd, file->path);
    close(fd);
    return *text ? 1 : -1;
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

/* archive.c - reads the directory at the end of a zip archive into a sorted table, and entries by
 * position.
 *
 * Also reads ZIP64, which PyTorch uses from 4 GiB on. Every number of the file is read with take(),
 * which fails outside of the bytes that were read. */
#include "import/program/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32.h"
#include "base/error.h"

enum {
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT = 65535,
    MAX_DIRECTORY = 64 << 20,
    MAX_ENTRIES = 1 << 20,
    MAX_NAME = 1024
};

typedef struct entry {
    char *name;
    uint64_t header, n_bytes; /* header: offset of its local header */
    uint32_t crc;
} entry;

struct tti_archive {
    char *path;
    int fd;               /* -1: memory */
    const uint8_t *bytes; /* borrowed   */
    uint64_t n_file;
    entry *entries; /* in order of names */
    int n_entries;
};

static tutti_status damaged(const tti_archive *a, const char *what) {
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot be read as a zip archive: %s", a->path, what);
}

static tutti_status unsupported(const tti_archive *a, const char *name, const char *what) {
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: entry '%s' %s; save the model with torch.export.save",
                    a->path, name, what);
}

static tutti_status read_at(const tti_archive *a, void *dst, uint64_t n_bytes, uint64_t at) {
    if (at > a->n_file || n_bytes > a->n_file - at) return damaged(a, "it is truncated");
    if (a->fd < 0) {
        memcpy(dst, a->bytes + at, n_bytes);
        return TUTTI_OK;
    }
    for (uint64_t done = 0; done < n_bytes;) {
        ssize_t n = pread(a->fd, (char *)dst + done, n_bytes - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot read: %s", a->path, strerror(errno));
        if (n == 0) return damaged(a, "it became shorter while it was read");
        done += (uint64_t)n;
    }
    return TUTTI_OK;
}

static uint64_t little(const uint8_t *p, int n_bytes) {
    uint64_t x = 0;
    for (int i = n_bytes - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}
static uint32_t u16(const uint8_t *p) { return (uint32_t)little(p, 2); }
static uint32_t u32(const uint8_t *p) { return (uint32_t)little(p, 4); }
static uint64_t u64(const uint8_t *p) { return little(p, 8); }

/* ---- the directory ---- */

typedef struct directory {
    uint64_t offset, n_bytes, n_entries;
} directory;

/* Reads the ZIP64 directory, whose locator precedes the end record at `end`. */
static tutti_status read_end64(const tti_archive *a, uint64_t end, directory *out) {
    uint8_t locator[LOCATOR_BYTES] = {0}, record[END64_BYTES] = {0};
    if (end < LOCATOR_BYTES) return damaged(a, "its directory is damaged");
    TTI_TRY(read_at(a, locator, sizeof locator, end - LOCATOR_BYTES));
    if (memcmp(locator, "PK\6\7", 4) != 0) return damaged(a, "its directory is damaged");
    TTI_TRY(read_at(a, record, sizeof record, u64(locator + 8)));
    if (memcmp(record, "PK\6\6", 4) != 0) return damaged(a, "its directory is damaged");
    *out = (directory){u64(record + 48), u64(record + 40), u64(record + 32)};
    return TUTTI_OK;
}

/* Finds the end record, which a comment of up to 64 KiB may follow. */
static tutti_status find_directory(const tti_archive *a, directory *out) {
    uint64_t n = TTI_MIN(a->n_file, (uint64_t)(END_BYTES + MAX_COMMENT));
    if (n < END_BYTES) return damaged(a, "it is too short");
    uint8_t *tail = malloc(n);
    if (!tail) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->path);
    tutti_status st = read_at(a, tail, n, a->n_file - n);
    uint64_t at = n - END_BYTES + 1;
    bool found = false;
    while (st == TUTTI_OK && !found && at-- > 0)
        found = memcmp(tail + at, "PK\5\6", 4) == 0 && at + END_BYTES + u16(tail + at + 20) == n;
    if (found) {
        const uint8_t *end = tail + at;
        *out = (directory){u32(end + 16), u32(end + 12), u16(end + 10)};
        bool is_64 =
            out->offset == UINT32_MAX || out->n_bytes == UINT32_MAX || out->n_entries == UINT16_MAX;
        if (u16(end + 4) != 0 && u16(end + 4) != UINT16_MAX)
            st = damaged(a, "it is split over several files");
        else if (is_64)
            st = read_end64(a, a->n_file - n + at, out);
    }
    free(tail);
    if (st == TUTTI_OK && !found) st = damaged(a, "the directory at its end is missing");
    return st;
}

/* Reads sizes that do not fit into 32 bits from an extra field, in this order. */
static bool take_extra(const uint8_t *extra, uint32_t n, uint64_t *const v[3]) {
    for (uint32_t at = 0; at + 4 <= n;) {
        uint32_t id = u16(extra + at), size = u16(extra + at + 2);
        if (size > n - at - 4) return false;
        const uint8_t *p = extra + at + 4, *end = p + size;
        for (int i = 0; id == 1 && i < 3; i++) {
            if (*v[i] != UINT32_MAX) continue;
            if (end - p < 8) return false;
            *v[i] = u64(p);
            p += 8;
        }
        at += 4 + size;
    }
    return true;
}

static bool name_is_good(const char *name, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 32 || name[i] == 127 || name[i] == '\\') return false;
    return n > 0 && name[0] != '/' && strcmp(name, "..") != 0 && strncmp(name, "../", 3) != 0 &&
           !strstr(name, "/../");
}

/* Reads one record of the directory, of which `left` bytes remain; sets *size to its length. */
static tutti_status read_entry(tti_archive *a, const uint8_t *p, uint64_t left, uint64_t *size) {
    if (left < ENTRY_BYTES || memcmp(p, "PK\1\2", 4) != 0)
        return damaged(a, "its directory is damaged");
    uint32_t n_name = u16(p + 28), n_extra = u16(p + 30);
    *size = (uint64_t)ENTRY_BYTES + n_name + n_extra + u16(p + 32);
    if (*size > left || n_name > MAX_NAME) return damaged(a, "its directory is damaged");
    uint64_t n_packed = u32(p + 20), n_bytes = u32(p + 24), header = u32(p + 42);
    if (!take_extra(p + ENTRY_BYTES + n_name, n_extra,
                    (uint64_t *const[]){&n_bytes, &n_packed, &header}))
        return damaged(a, "its directory is damaged");
    char *name = calloc(1, n_name + 1u);
    if (!name) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->path);
    memcpy(name, p + ENTRY_BYTES, n_name);
    a->entries[a->n_entries++] = (entry){name, header, n_bytes, u32(p + 16)};
    if (!name_is_good(name, n_name))
        return damaged(a, "an entry's name is not a path inside the archive");
    if (u16(p + 8) & 1) return unsupported(a, name, "is encrypted");
    if (u16(p + 10) != 0 || n_packed != n_bytes) return unsupported(a, name, "is compressed");
    if (header > a->n_file || n_bytes > a->n_file - header)
        return damaged(a, "an entry lies outside the file");
    return TUTTI_OK;
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const entry *)x)->name, ((const entry *)y)->name);
}

static tutti_status read_entries(tti_archive *a, const directory *d, const uint8_t *bytes) {
    for (uint64_t at = 0; at < d->n_bytes;) {
        uint64_t size = 0;
        if ((uint64_t)a->n_entries == d->n_entries) return damaged(a, "its directory is damaged");
        TTI_TRY(read_entry(a, bytes + at, d->n_bytes - at, &size));
        at += size;
    }
    if ((uint64_t)a->n_entries != d->n_entries) return damaged(a, "its directory is damaged");
    qsort(a->entries, (size_t)a->n_entries, sizeof *a->entries, by_name);
    for (int i = 1; i < a->n_entries; i++)
        if (strcmp(a->entries[i - 1].name, a->entries[i].name) == 0)
            return damaged(a, "two entries have the same name");
    return TUTTI_OK;
}

static tutti_status read_directory(tti_archive *a) {
    directory d = {0};
    TTI_TRY(find_directory(a, &d));
    if (d.n_bytes > MAX_DIRECTORY || d.n_entries > MAX_ENTRIES ||
        d.n_entries > d.n_bytes / ENTRY_BYTES || d.offset > a->n_file ||
        d.n_bytes > a->n_file - d.offset)
        return damaged(a, "its directory lies outside the file");
    uint8_t *bytes = malloc(d.n_bytes + 1);
    a->entries = calloc(d.n_entries + 1, sizeof *a->entries);
    tutti_status st = TUTTI_OK;
    if (!bytes || !a->entries) st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->path);
    if (st == TUTTI_OK) st = read_at(a, bytes, d.n_bytes, d.offset);
    if (st == TUTTI_OK) st = read_entries(a, &d, bytes);
    free(bytes);
    return st;
}

/* ---- opening ---- */

static tutti_status open_archive(const tti_archive *from, const char *path, tti_archive **out) {
    tti_archive *a = malloc(sizeof *a);
    char *copy = strdup(path);
    *out = NULL;
    if (!a || !copy) {
        free(a), free(copy);
        if (from->fd >= 0) close(from->fd);
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    }
    *a = *from;
    a->path = copy;
    tutti_status st = read_directory(a);
    if (st != TUTTI_OK) {
        tti_archive_close(a);
        return st;
    }
    *out = a;
    return TUTTI_OK;
}

tutti_status tti_archive_open(const char *path, tti_archive **out) {
    struct stat info;
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block */
    if (fd < 0) return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: is not a regular file", path);
    }
    return open_archive(&(tti_archive){.fd = fd, .n_file = (uint64_t)info.st_size}, path, out);
}

tutti_status tti_archive_open_memory(const void *bytes, uint64_t n_bytes, const char *path,
                                     tti_archive **out) {
    return open_archive(&(tti_archive){.fd = -1, .bytes = bytes, .n_file = n_bytes}, path, out);
}

void tti_archive_close(tti_archive *a) {
    if (!a) return;
    for (int i = 0; i < a->n_entries; i++) free(a->entries[i].name);
    free(a->entries);
    free(a->path);
    if (a->fd >= 0) close(a->fd);
    free(a);
}

/* ---- entries ---- */

const char *tti_archive_path(const tti_archive *a) { return a->path; }
int tti_archive_n(const tti_archive *a) { return a->n_entries; }
const char *tti_archive_name(const tti_archive *a, int i) { return a->entries[i].name; }
uint64_t tti_archive_size(const tti_archive *a, int i) { return a->entries[i].n_bytes; }

int tti_archive_find(const tti_archive *a, const char *name) {
    int low = 0, high = a->n_entries - 1;
    while (low <= high) {
        int middle = (low + high) / 2, order = strcmp(a->entries[middle].name, name);
        if (order == 0) return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle - 1;
    }
    return -1;
}

int tti_archive_find_ending(const tti_archive *a, const char *end) {
    int found = -1;
    size_t n_end = strlen(end);
    for (int i = 0; i < a->n_entries; i++) {
        size_t n = strlen(a->entries[i].name);
        if (n <= n_end || a->entries[i].name[n - n_end - 1] != '/') continue;
        if (strcmp(a->entries[i].name + n - n_end, end) != 0) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* Checks the entry's local header against the directory. */
tutti_status tti_archive_locate(const tti_archive *a, int i, uint64_t *begin) {
    const entry *e = &a->entries[i];
    uint8_t local[LOCAL_BYTES] = {0};
    TTI_TRY(read_at(a, local, sizeof local, e->header));
    size_t n_name = strlen(e->name);
    if (memcmp(local, "PK\3\4", 4) != 0 || u16(local + 26) != n_name || u16(local + 8) != 0)
        return damaged(a, "an entry's header differs from the directory");
    char name[MAX_NAME];
    TTI_TRY(read_at(a, name, n_name, e->header + LOCAL_BYTES));
    if (memcmp(name, e->name, n_name) != 0)
        return damaged(a, "an entry's header differs from the directory");
    uint64_t at = e->header + LOCAL_BYTES + n_name + u16(local + 28);
    if (at > a->n_file || e->n_bytes > a->n_file - at)
        return damaged(a, "an entry lies outside the file");
    *begin = at;
    return TUTTI_OK;
}

tutti_status tti_archive_read_part(const tti_archive *a, uint64_t begin, uint64_t first,
                                   size_t n_bytes, void *dst) {
    return read_at(a, dst, n_bytes, begin + first);
}

tutti_status tti_archive_compare(const tti_archive *a, int i, uint32_t crc) {
    const entry *e = &a->entries[i];
    if (crc == e->crc) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: entry '%s' is damaged: its checksum differs", a->path,
                    e->name);
}

tutti_status tti_archive_read(const tti_archive *a, int i, uint64_t max_bytes, char **out,
                              size_t *n_bytes) {
    const entry *e = &a->entries[i];
    uint64_t begin = 0;
    *out = NULL;
    if (e->n_bytes > max_bytes)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: entry '%s' has %llu bytes, at most %llu are read",
                        a->path, e->name, (unsigned long long)e->n_bytes,
                        (unsigned long long)max_bytes);
    TTI_TRY(tti_archive_locate(a, i, &begin));
    char *bytes = malloc(e->n_bytes + 1);
    if (!bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->path);
    tutti_status st = read_at(a, bytes, e->n_bytes, begin);
    if (st == TUTTI_OK) st = tti_archive_compare(a, i, tti_crc32(0, bytes, e->n_bytes));
    if (st != TUTTI_OK) {
        free(bytes);
        return st;
    }
    bytes[e->n_bytes] = '\0';
    *out = bytes;
    *n_bytes = (size_t)e->n_bytes;
    return TUTTI_OK;
}

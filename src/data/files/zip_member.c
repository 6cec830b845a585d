/* zip_member.c - reads one name from the directory at the end of a zip archive and compares it with
 * the headers of all members.  Nothing is extracted, and no name of the archive becomes a path. */
#include "data/files/zip_member.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/error.h"

enum {
    END_BYTES = 22,
    MAX_COMMENT = 65535,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_DIRECTORY = 16 << 20,
    MAX_NAME = 4096,
    STORED = 0,
    DEFLATED = 8
};

static uint32_t u16(const uint8_t *p) { return (uint32_t)(p[0] | p[1] << 8); }
static uint32_t u32(const uint8_t *p) { return u16(p) | u16(p + 2) << 16; }

static tutti_status damaged(const char *path, const char *what) {
    return tti_fail(TUTTI_E_DATA, "%s: cannot be read as a zip archive (.npz): %s", path, what);
}

typedef struct archive {
    const char *path;
    int fd;
    uint64_t n_file;
    uint8_t *directory; /* owned */
    uint32_t n_directory, n_entries;
} archive;

/* The last record that says where the directory is. */
static tutti_status read_end(const archive *a, uint8_t out[END_BYTES]) {
    size_t n = (size_t)TTI_MIN(a->n_file, (uint64_t)(END_BYTES + MAX_COMMENT));
    if (n < END_BYTES) return damaged(a->path, "it is too short");
    uint8_t *tail = malloc(n);
    if (!tail) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->path);
    tutti_status st = tti_pread_all(a->fd, a->path, tail, n, a->n_file - n);
    bool found = false;
    for (size_t at = n - END_BYTES + 1; st == TUTTI_OK && !found && at-- > 0;) {
        found = memcmp(tail + at, "PK\5\6", 4) == 0 && at + END_BYTES + u16(tail + at + 20) == n;
        if (found) memcpy(out, tail + at, END_BYTES);
    }
    free(tail);
    if (st == TUTTI_OK && !found) st = damaged(a->path, "the directory at its end is missing");
    return st;
}

static tutti_status read_directory(archive *a) {
    uint8_t end[END_BYTES] = {0};
    TTI_TRY(read_end(a, end));
    uint32_t offset = u32(end + 16);
    a->n_directory = u32(end + 12);
    a->n_entries = u16(end + 10);
    if (offset == UINT32_MAX || u16(end + 10) == UINT16_MAX)
        return damaged(a->path, "ZIP64 is not supported; save the arrays as .npy");
    if (u16(end + 4) != 0 || u16(end + 8) != u16(end + 10)) return damaged(a->path, "it is split");
    if (a->n_directory > MAX_DIRECTORY || offset > a->n_file || a->n_directory > a->n_file - offset)
        return damaged(a->path, "its directory lies outside the file");
    a->directory = malloc(a->n_directory + 1u);
    if (!a->directory) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->path);
    return tti_pread_all(a->fd, a->path, a->directory, a->n_directory, offset);
}

/* Sizes of a local header; NumPy keeps them in the extra field of the 64-bit kind, whatever they
 * are. */
static tutti_status local_sizes(const archive *a, const uint8_t *local, uint64_t at,
                                uint64_t *n_packed, uint64_t *n_unpacked) {
    uint8_t extra[20];
    *n_packed = u32(local + 18);
    *n_unpacked = u32(local + 22);
    if (*n_packed != UINT32_MAX || *n_unpacked != UINT32_MAX) return TUTTI_OK;
    if (u16(local + 28) < sizeof extra || at > a->n_file - sizeof extra)
        return damaged(a->path, "a member's header is damaged");
    TTI_TRY(tti_pread_all(a->fd, a->path, extra, sizeof extra, at));
    if (u16(extra) != 1 || u16(extra + 2) < 16)
        return damaged(a->path, "a member's header is damaged");
    *n_unpacked = u32(extra + 4) | (uint64_t)u32(extra + 8) << 32;
    *n_packed = u32(extra + 12) | (uint64_t)u32(extra + 16) << 32;
    return TUTTI_OK;
}

/* The local header must agree with the directory; a writer to a pipe leaves sizes and checksum out
 * of it. */
static tutti_status compare_headers(const archive *a, const uint8_t *entry, const uint8_t *local,
                                    uint64_t at) {
    enum { SIZES_FOLLOW = 8 };
    uint32_t n_name = u16(entry + 28);
    char name[MAX_NAME];
    uint64_t n_packed, n_unpacked;
    bool same = memcmp(local, "PK\3\4", 4) == 0 && memcmp(local + 6, entry + 8, 4) == 0 &&
                u16(local + 26) == n_name;
    if (!same || n_name > MAX_NAME || at > a->n_file - n_name)
        return damaged(a->path, "a member's header is damaged");
    TTI_TRY(tti_pread_all(a->fd, a->path, name, n_name, at));
    TTI_TRY(local_sizes(a, local, at + n_name, &n_packed, &n_unpacked));
    same = memcmp(name, entry + ENTRY_BYTES, n_name) == 0;
    if (!(u16(entry + 8) & SIZES_FOLLOW))
        same = same && u32(local + 14) == u32(entry + 16) && n_packed == u32(entry + 20) &&
               n_unpacked == u32(entry + 24);
    return same ? TUTTI_OK : damaged(a->path, "a member's header differs from the directory");
}

/* Finds the bytes of a directory entry. */
static tutti_status locate(const archive *a, const uint8_t *entry, tti_file_part *out) {
    uint32_t flags = u16(entry + 8), method = u16(entry + 10), offset = u32(entry + 42);
    uint8_t local[LOCAL_BYTES];
    if (flags & 1) return damaged(a->path, "a member is encrypted");
    if (method != STORED && method != DEFLATED)
        return damaged(a->path, "a member is compressed with another method than deflate");
    if (offset == UINT32_MAX || u32(entry + 20) == UINT32_MAX || u32(entry + 24) == UINT32_MAX)
        return damaged(a->path,
                       "a member uses ZIP64, which is not supported; save the arrays as .npy");
    if (method == STORED && u32(entry + 20) != u32(entry + 24))
        return damaged(a->path, "a member's sizes contradict each other");
    if (a->n_file < LOCAL_BYTES || offset > a->n_file - LOCAL_BYTES)
        return damaged(a->path, "a member lies outside the file");
    TTI_TRY(tti_pread_all(a->fd, a->path, local, LOCAL_BYTES, offset));
    TTI_TRY(compare_headers(a, entry, local, (uint64_t)offset + LOCAL_BYTES));
    uint64_t at = (uint64_t)offset + LOCAL_BYTES + u16(local + 26) + u16(local + 28);
    uint64_t n_bytes = u32(entry + 20);
    if (at > a->n_file || n_bytes > a->n_file - at)
        return damaged(a->path, "a member lies outside the file");
    *out = (tti_file_part){at, n_bytes, method == DEFLATED, u32(entry + 16)};
    return TUTTI_OK;
}

typedef tutti_status (*entry_fn)(void *user, const char *name, size_t n_name,
                                 const tti_file_part *part);

/* Every entry of the directory, checked against its local header. */
static tutti_status each_entry(const archive *a, entry_fn fn, void *user) {
    size_t n_entries = 0;
    for (uint32_t at = 0; at < a->n_directory; n_entries++) {
        const uint8_t *entry = a->directory + at;
        uint32_t left = a->n_directory - at;
        if (left < ENTRY_BYTES || memcmp(entry, "PK\1\2", 4) != 0)
            return damaged(a->path, "its directory is damaged");
        uint32_t n = u16(entry + 28), size = ENTRY_BYTES + n + u16(entry + 30) + u16(entry + 32);
        if (size > left) return damaged(a->path, "its directory is damaged");
        tti_file_part part;
        TTI_TRY(locate(a, entry, &part));
        TTI_TRY(fn(user, (const char *)entry + ENTRY_BYTES, n, &part));
        at += size;
    }
    return n_entries == a->n_entries ? TUTTI_OK : damaged(a->path, "its directory is damaged");
}

/* A search for a name: the member that is called so, and those that differ only in case. */
typedef struct search {
    const archive *a;
    const char *name;
    bool found;
    size_t n_similar;
    tti_file_part exact, similar;
} search;

static tutti_status compare_entry(void *user, const char *stored, size_t n,
                                  const tti_file_part *part) {
    search *s = user;
    bool same_length = n == strlen(s->name);
    bool exact = same_length && memcmp(stored, s->name, n) == 0;
    bool alike = same_length && strncasecmp(stored, s->name, n) == 0;
    if (exact && s->found) return damaged(s->a->path, "two members have the same name");
    if (exact) s->exact = *part;
    if (alike) s->similar = *part;
    s->found |= exact;
    s->n_similar += alike;
    return TUTTI_OK;
}

static tutti_status find(const archive *a, const char *name, bool *found, tti_file_part *out) {
    search s = {.a = a, .name = name};
    TTI_TRY(each_entry(a, compare_entry, &s));
    if (s.n_similar > 1)
        return tti_fail(TUTTI_E_DATA, "%s: %zu members are called %s, in upper or lower case",
                        a->path, s.n_similar, name);
    *found = s.n_similar == 1;
    if (*found) *out = s.found ? s.exact : s.similar;
    return TUTTI_OK;
}

tutti_status tti_zip_find(const char *path, const char *name, bool *found, tti_file_part *out) {
    archive a = {.path = path};
    *found = false;
    TTI_TRY(tti_open_regular(path, &a.fd, &a.n_file));
    tutti_status st = read_directory(&a);
    if (st == TUTTI_OK) st = find(&a, name, found, out);
    free(a.directory);
    close(a.fd);
    return st;
}

typedef struct listing {
    const archive *a;
    tti_zip_member_fn fn;
    void *user;
} listing;

static tutti_status list_entry(void *user, const char *stored, size_t n,
                               const tti_file_part *part) {
    const listing *l = user;
    char name[MAX_NAME + 1];
    (void)part;
    if (memchr(stored, '\0', n)) return damaged(l->a->path, "the name of a member is damaged");
    memcpy(name, stored, n); /* n <= MAX_NAME: the local header was compared */
    name[n] = '\0';
    return l->fn(l->user, name);
}

tutti_status tti_zip_each(const char *path, tti_zip_member_fn fn, void *user) {
    archive a = {.path = path};
    listing l = {&a, fn, user};
    TTI_TRY(tti_open_regular(path, &a.fd, &a.n_file));
    tutti_status st = read_directory(&a);
    if (st == TUTTI_OK) st = each_entry(&a, list_entry, &l);
    free(a.directory);
    close(a.fd);
    return st;
}

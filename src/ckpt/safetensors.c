/* safetensors.c - reads safetensors files; safetensors_write.c writes them.
 *
 * The whole header is checked before any of its numbers is used: sorted by offset, the tensors must
 * cover the rest of the file exactly, each with the bytes that its shape requires. */
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/json_read.h"

#define MAX_OFFSET (INT64_MAX / 2)

tutti_status tti_ckpt_open_file(const char *path, int *fd, uint64_t *n_bytes) {
    int opened =
        TTI_FAULT("ckpt.open") ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (opened < 0 && errno != ENXIO) /* ENXIO: a socket */
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot open: %s", path,
                        errno == ELOOP ? "a symbolic link, which is not followed here; put the "
                                         "file in its place"
                                       : strerror(errno));
    if (opened < 0 || fstat(opened, &info) || !S_ISREG(info.st_mode)) {
        if (opened >= 0) close(opened);
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: not a regular file", path);
    }
    *fd = opened;
    *n_bytes = (uint64_t)info.st_size;
    return TUTTI_OK;
}

tutti_status tti_ckpt_pread(const char *path, int fd, void *dst, size_t n_bytes, uint64_t offset) {
    char *p = dst;
    while (n_bytes) {
        ssize_t n = TTI_FAULT("ckpt.read") ? -1 : pread(fd, p, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: read at byte %llu: %s", path,
                            (unsigned long long)offset, strerror(errno));
        if (n == 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: ends at byte %llu, %zu more were expected",
                            path, (unsigned long long)offset, n_bytes);
        p += n;
        n_bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return TUTTI_OK;
}

void tti_safetensors_type(tti_str *str, const tutti_type *type) {
    tti_str_printf(str, "%s [", tti_safetensors_dtype(type->dtype));
    for (int i = 0; i < type->shape.n_dims; i++)
        tti_str_printf(str, "%s%lld", i ? "," : "", (long long)type->shape.dim[i]);
    tti_str_add(str, "]");
}

static tutti_status read_offsets(const char *what, const json_t *info,
                                 tti_safetensors_entry *entry) {
    json_t *offsets;
    TTI_TRY(tti_json_member(what, info, "data_offsets", JSON_ARRAY, &offsets));
    int64_t at[2] = {-1, -1};
    for (size_t i = 0; i < 2; i++) {
        const json_t *offset = json_array_get(offsets, i);
        if (json_is_integer(offset)) at[i] = json_integer_value(offset);
    }
    if (json_array_size(offsets) != 2 || at[0] < 0 || at[1] < at[0] || at[1] > MAX_OFFSET)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"data_offsets\" is not [begin,end]", what);
    if ((uint64_t)(at[1] - at[0]) != entry->n_bytes)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: \"data_offsets\" span %lld bytes, dtype and shape need %llu", what,
                        (long long)(at[1] - at[0]), (unsigned long long)entry->n_bytes);
    entry->offset = (uint64_t)at[0];
    return TUTTI_OK;
}

/* Dtypes of the format that Tutti does not have, and their bits. */
static const struct {
    const char *name;
    int bits;
} foreign[] = {{"BOOL", 8},        {"I8", 8},          {"I16", 16},    {"U16", 16},
               {"U32", 32},        {"U64", 64},        {"C64", 64},    {"F8_E5M2", 8},
               {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"F6_E2M3", 6}, {"F6_E3M2", 6},
               {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4}};

static tutti_status read_foreign(const char *what, const json_t *info, int i,
                                 tti_safetensors_entry *entry) {
    uint64_t n_elems, n_bits;
    TTI_TRY(tti_json_read_shape(what, info, TUTTI_U8, &entry->type, &n_elems));
    if (__builtin_mul_overflow(n_elems, (uint64_t)foreign[i].bits, &n_bits) || n_bits % 8 != 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: its elements do not fill whole bytes", what);
    entry->foreign = foreign[i].name;
    entry->n_bytes = n_bits / 8;
    return TUTTI_OK;
}

static tutti_status read_type(const char *what, const json_t *info, tti_safetensors_entry *entry) {
    const char *name = json_string_value(json_object_get(info, "dtype"));
    for (size_t i = 0; name && i < TTI_COUNT(foreign); i++)
        if (strcmp(name, foreign[i].name) == 0) return read_foreign(what, info, (int)i, entry);
    return tti_json_read_type(what, info, &entry->type, &entry->n_bytes);
}

static tutti_status read_entry(tti_safetensors *file, const char *name, const json_t *info) {
    TTI_TRY(tti_ckpt_check_name("header", name));
    char what[TTI_CKPT_MAX_NAME + 16];
    snprintf(what, sizeof what, "tensor '%s'", name);
    if (!json_is_object(info) || json_object_size(info) != 3)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: not an object of \"dtype\", \"shape\" and \"data_offsets\"", what);
    tti_safetensors_entry *entry = &file->entries[file->n_entries];
    TTI_TRY(read_type(what, info, entry));
    TTI_TRY(read_offsets(what, info, entry));
    entry->name = tti_arena_strdup(&file->arena, name);
    if (!entry->name) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
    file->n_entries++;
    return TUTTI_OK;
}

static tutti_status read_metadata(tti_safetensors *file, json_t *metadata) {
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) good &= json_is_string(value);
    if (!good) return tti_fail(TUTTI_E_CHECKPOINT, "\"__metadata__\" is not an object of texts");
    size_t n = json_object_size(metadata);
    file->aliases = tti_arena_alloc(&file->arena, (n + 1) * sizeof *file->aliases);
    if (!file->aliases) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    json_object_foreach(metadata, key, value) {
        tti_safetensors_alias *alias = &file->aliases[file->n_aliases++];
        alias->name = tti_arena_strdup(&file->arena, key);
        alias->stored = tti_arena_strdup(&file->arena, json_string_value(value));
    }
    return tti_arena_failed(&file->arena) ? tti_fail(TUTTI_E_NOMEM, "out of memory") : TUTTI_OK;
}

static tutti_status read_entries(tti_safetensors *file, json_t *root) {
    size_t n = json_object_size(root);
    if (n > TTI_SAFETENSORS_MAX_TENSORS)
        return tti_fail(TUTTI_E_CHECKPOINT, "%zu tensors, at most %d are allowed", n,
                        TTI_SAFETENSORS_MAX_TENSORS);
    file->entries = tti_arena_alloc(&file->arena, (n + 1) * sizeof *file->entries);
    if (!file->entries) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            TTI_TRY(read_metadata(file, value));
        else
            TTI_TRY(read_entry(file, name, value));
    }
    return TUTTI_OK;
}

static int by_offset(const void *a, const void *b) {
    const tti_safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Converts offsets in the buffer to offsets in the file. */
static tutti_status place_entries(tti_safetensors *file) {
    qsort(file->entries, file->n_entries, sizeof *file->entries, by_offset);
    uint64_t end = 0; /* cannot overflow: each end is at most MAX_OFFSET */
    for (size_t i = 0; i < file->n_entries; i++) {
        tti_safetensors_entry *entry = &file->entries[i];
        if (entry->offset != end)
            return tti_fail(TUTTI_E_CHECKPOINT,
                            "tensor '%s': begins at %llu of the data, the one before it ends at "
                            "%llu",
                            entry->name, (unsigned long long)entry->offset,
                            (unsigned long long)end);
        end += entry->n_bytes;
        entry->offset += file->n_header_bytes;
    }
    if (end + file->n_header_bytes == file->n_bytes) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "the file has %llu bytes, its header describes %llu (%s)",
                    (unsigned long long)file->n_bytes,
                    (unsigned long long)(end + file->n_header_bytes),
                    end + file->n_header_bytes > file->n_bytes ? "truncated" : "trailing bytes");
}

static uint64_t load_u64(const uint8_t *p) {
    uint64_t x = 0;
    for (int i = 7; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

/* The 8 bytes give the header's length; it must fit into the file and into our limit. */
static tutti_status check_length(const uint8_t *head, size_t n_bytes, uint64_t n_file_bytes,
                                 uint64_t *n_json) {
    if (n_bytes < 8)
        return tti_fail(TUTTI_E_CHECKPOINT, "%zu bytes are too few for a safetensors file",
                        n_bytes);
    uint64_t n = load_u64(head);
    if (n < 2 || n > n_file_bytes - 8)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "a header of %llu bytes does not fit into a file of %llu",
                        (unsigned long long)n, (unsigned long long)n_file_bytes);
    if (n > TTI_SAFETENSORS_MAX_HEADER)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "the header has %llu bytes, at most %d are allowed here (the format allows "
                        "100000000)",
                        (unsigned long long)n, TTI_SAFETENSORS_MAX_HEADER);
    *n_json = n;
    return TUTTI_OK;
}

static tutti_status parse(tti_safetensors *file, const uint8_t *head, size_t n_bytes) {
    uint64_t n_json = 0;
    TTI_TRY(check_length(head, n_bytes, file->n_bytes, &n_json));
    if (n_json > n_bytes - 8) return tti_fail(TUTTI_E_INVALID, "the header is truncated");
    const char *text = (const char *)head + 8;
    uint64_t end = n_json;
    while (end && text[end - 1] == ' ') end--;
    if (end < 2 || text[0] != '{' || text[end - 1] != '}')
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "the header is not a JSON object padded with spaces at its end");
    file->n_header_bytes = n_json + 8;
    file->header_crc = tti_crc32c(0, head, file->n_header_bytes);
    json_t *root;
    TTI_TRY(tti_json_parse("header", text, end, &root));
    tutti_status st = read_entries(file, root);
    json_decref(root);
    return st == TUTTI_OK ? place_entries(file) : st;
}

static tutti_status new_file(const char *path, uint64_t n_bytes, tti_safetensors **out) {
    tti_safetensors *file = calloc(1, sizeof *file);
    if (file) file->path = strdup(path);
    if (!file || !file->path) {
        free(file);
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    }
    file->fd = -1;
    file->n_bytes = n_bytes;
    *out = file;
    return TUTTI_OK;
}

tutti_status tti_safetensors_parse(const char *path, const void *head, size_t n_bytes,
                                   uint64_t n_file_bytes, tti_safetensors **out) {
    *out = NULL;
    tti_safetensors *file;
    TTI_TRY(new_file(path, n_file_bytes, &file));
    tutti_status st = n_file_bytes < n_bytes ? tti_fail(TUTTI_E_INVALID, "sizes") : TUTTI_OK;
    if (st == TUTTI_OK) st = parse(file, head, n_bytes);
    if (st != TUTTI_OK) {
        tti_fail_context("%s: ", path);
        tti_safetensors_close(file);
        return st;
    }
    *out = file;
    return TUTTI_OK;
}

/* The 8 bytes and the header of an open file, in memory of the caller. */
static tutti_status read_head(const char *path, int fd, uint64_t n_file_bytes, uint8_t **out,
                              size_t *n_bytes) {
    uint8_t length[8] = {0};
    uint64_t n_json = 0;
    size_t n_start = n_file_bytes < 8 ? (size_t)n_file_bytes : 8;
    TTI_TRY(tti_ckpt_pread(path, fd, length, n_start, 0));
    tutti_status st = check_length(length, n_start, n_file_bytes, &n_json);
    if (st != TUTTI_OK) {
        tti_fail_context("%s: ", path);
        return st;
    }
    uint8_t *head = malloc(n_json + 8);
    if (!head) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    st = tti_ckpt_pread(path, fd, head, n_json + 8, 0);
    if (st != TUTTI_OK) {
        free(head);
        return st;
    }
    *out = head;
    *n_bytes = n_json + 8;
    return TUTTI_OK;
}

tutti_status tti_safetensors_open(const char *path, tti_safetensors **out) {
    *out = NULL;
    int fd;
    uint64_t n_file_bytes;
    TTI_TRY(tti_ckpt_open_file(path, &fd, &n_file_bytes));
    uint8_t *head = NULL;
    size_t n_bytes = 0;
    tti_safetensors *file = NULL;
    tutti_status st = read_head(path, fd, n_file_bytes, &head, &n_bytes);
    if (st == TUTTI_OK) st = tti_safetensors_parse(path, head, n_bytes, n_file_bytes, &file);
    free(head);
    if (st != TUTTI_OK) {
        close(fd);
        return st;
    }
    file->fd = fd;
    *out = file;
    return TUTTI_OK;
}

tutti_status tti_safetensors_read(const tti_safetensors *file, const tti_safetensors_entry *entry,
                                  void *dst, uint32_t *crc) {
    enum { CHUNK = 1 << 18 }; /* in the cache: the checksum does not go to memory again */
    uint8_t *buffer = dst ? NULL : malloc(CHUNK);
    if (!dst && !buffer) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", file->path);
    tutti_status st = TUTTI_OK;
    uint32_t sum = 0;
    for (uint64_t at = 0; at < entry->n_bytes && st == TUTTI_OK; at += CHUNK) {
        size_t n = (size_t)TTI_MIN(entry->n_bytes - at, (uint64_t)CHUNK);
        uint8_t *place = dst ? (uint8_t *)dst + at : buffer;
        st = tti_ckpt_pread(file->path, file->fd, place, n, entry->offset + at);
        if (st == TUTTI_OK) sum = tti_crc32c(sum, place, n);
    }
    free(buffer);
    if (st != TUTTI_OK) return st;
    *crc = sum;
    return TUTTI_OK;
}

void tti_safetensors_close(tti_safetensors *file) {
    if (!file) return;
    if (file->fd >= 0) close(file->fd);
    tti_arena_free(&file->arena);
    free(file->path);
    free(file);
}

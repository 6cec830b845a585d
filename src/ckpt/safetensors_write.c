/* safetensors_write.c - writes safetensors files in the order and form of the reference writer.
 *
 * Nothing is converted or collected: names and types determine the header, and the tensors stream
 * from the caller's memory, or one by one through tti_ckpt_access, while their checksums are
 * computed. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json.h"
#include "base/json_read.h"
#include "ckpt/safetensors.h"

typedef struct item {
    tti_safetensors_entry entry;
    const tti_ckpt_tensor *tensor;
} item;

/* Place in the reference's list of dtypes, which is sorted by alignment. */
static int dtype_rank(tutti_dtype dtype) {
    static const tutti_dtype order[] = {TUTTI_U8,  TUTTI_F16, TUTTI_BF16, TUTTI_I32,
                                        TUTTI_F32, TUTTI_F64, TUTTI_I64};
    for (int i = 0; i < (int)TTI_COUNT(order); i++)
        if (order[i] == dtype) return i;
    return -1;
}

static int by_rank_and_name(const void *a, const void *b) {
    const item *x = a, *y = b;
    int rank = dtype_rank(y->entry.type.dtype) - dtype_rank(x->entry.type.dtype);
    return rank ? rank : strcmp(x->entry.name, y->entry.name);
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static tutti_status check_unique(const char *path, const item *items, size_t n) {
    const char **names = malloc((n + 1) * sizeof *names);
    if (!names) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < n; i++) names[i] = items[i].entry.name;
    qsort(names, n, sizeof *names, by_name);
    tutti_status st = TUTTI_OK;
    for (size_t i = 1; i < n && st == TUTTI_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            st = tti_fail(TUTTI_E_INVALID, "%s: two tensors are named '%s'", path, names[i]);
    free(names);
    return st;
}

static tutti_status make_item(const char *path, const tti_ckpt_tensor *tensor, tti_arena *arena,
                              item *out) {
    TTI_TRY(tti_ckpt_check_name(path, tensor->name));
    if (strcmp(tensor->name, "__metadata__") == 0)
        return tti_fail(TUTTI_E_INVALID, "%s: no tensor can be named __metadata__", path);
    out->tensor = tensor;
    out->entry.type = tensor->type;
    out->entry.name = tti_arena_strdup(arena, tensor->name);
    if (!out->entry.name) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    return tti_ckpt_type_bytes(tensor->name, &tensor->type, &out->entry.n_bytes);
}

void tti_safetensors_header(const tti_safetensors_entry *entries, size_t n_entries, tti_str *out) {
    tti_str_add_bytes(out, "\0\0\0\0\0\0\0", 8);
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_object(&j, "__metadata__");
    tti_json_text(&j, "format", "pt");
    tti_json_end(&j);
    uint64_t begin = 0;
    for (size_t i = 0; i < n_entries; begin += entries[i++].n_bytes) {
        const tutti_type *type = &entries[i].type;
        tti_json_object(&j, entries[i].name);
        const char *foreign = entries[i].foreign;
        tti_json_text(&j, "dtype", foreign ? foreign : tti_safetensors_dtype(type->dtype));
        tti_json_array(&j, "shape");
        for (int d = 0; d < type->shape.n_dims; d++) tti_json_int(&j, NULL, type->shape.dim[d]);
        tti_json_end(&j);
        tti_json_array(&j, "data_offsets");
        tti_json_int(&j, NULL, (int64_t)begin);
        tti_json_int(&j, NULL, (int64_t)(begin + entries[i].n_bytes));
        tti_json_end(&j);
        tti_json_end(&j);
    }
    tti_json_end(&j);
    while (out->n_bytes % 8 && !out->failed) tti_str_add(out, " ");
    for (int i = 0; i < 8 && out->n_bytes >= 8; i++)
        out->text[i] = (char)((out->n_bytes - 8) >> (8 * i) & 0xFF);
}

/* Sizes, places and the header, before anything is written. */
static tutti_status lay_out(tti_safetensors *file, item *items, tti_str *header) {
    for (size_t i = 0; i < file->n_entries; i++) file->entries[i] = items[i].entry;
    tti_safetensors_header(file->entries, file->n_entries, header);
    if (header->failed) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", file->path);
    if (header->n_bytes > TTI_SAFETENSORS_MAX_HEADER)
        return tti_fail(TUTTI_E_INVALID, "%s: the header would have %zu bytes, at most %d fit",
                        file->path, header->n_bytes, TTI_SAFETENSORS_MAX_HEADER);
    file->n_bytes = file->n_header_bytes = header->n_bytes;
    for (size_t i = 0; i < file->n_entries; i++) {
        file->entries[i].offset = file->n_bytes;
        if (__builtin_add_overflow(file->n_bytes, file->entries[i].n_bytes, &file->n_bytes) ||
            file->n_bytes > INT64_MAX)
            return tti_fail(TUTTI_E_INVALID, "%s: too many bytes", file->path);
    }
    return TUTTI_OK;
}

static tutti_status write_tensor(tti_atomic_file *out, const item *it,
                                 const tti_ckpt_access *access, tti_safetensors_entry *entry) {
    enum { CHUNK = 1 << 18 }; /* in the cache between the checksum and the copy */
    const void *bytes = it->tensor->data;
    if (access) TTI_TRY(access->get(access->user, it->tensor, &bytes));
    const uint8_t *data = bytes;
    for (uint64_t at = 0; at < entry->n_bytes; at += CHUNK) {
        size_t n = (size_t)TTI_MIN(entry->n_bytes - at, (uint64_t)CHUNK);
        entry->crc = tti_crc32c(entry->crc, data + at, n);
        TTI_TRY(tti_atomic_file_write(out, data + at, n));
    }
    return TUTTI_OK;
}

static tutti_status write_bytes(tti_safetensors *file, const item *items, const tti_str *header,
                                const tti_ckpt_access *access) {
    tti_atomic_file *out;
    TTI_TRY(tti_atomic_file_create(file->path, file->n_bytes, &out));
    file->crc = file->header_crc = tti_crc32c(0, header->text, header->n_bytes);
    tutti_status st = tti_atomic_file_write(out, header->text, header->n_bytes);
    for (size_t i = 0; i < file->n_entries && st == TUTTI_OK; i++) {
        tti_safetensors_entry *entry = &file->entries[i];
        st = write_tensor(out, &items[i], access, entry);
        file->crc = tti_crc32c_join(file->crc, entry->crc, entry->n_bytes);
    }
    if (st == TUTTI_OK) st = tti_atomic_file_commit_unsynced(out);
    tti_atomic_file_destroy(out);
    return st;
}

tutti_status tti_safetensors_write(const char *path, const tti_ckpt_tensor *tensors,
                                   size_t n_tensors, tti_safetensors **out) {
    return tti_safetensors_write_by(path, tensors, n_tensors, NULL, out);
}

tutti_status tti_safetensors_write_by(const char *path, const tti_ckpt_tensor *tensors,
                                      size_t n_tensors, const tti_ckpt_access *access,
                                      tti_safetensors **out) {
    *out = NULL;
    if (n_tensors > TTI_SAFETENSORS_MAX_TENSORS)
        return tti_fail(TUTTI_E_INVALID, "%s: %zu tensors are too many", path, n_tensors);
    tutti_status st = TUTTI_OK;
    tti_str header = {0};
    item *items = calloc(n_tensors + 1, sizeof *items);
    tti_safetensors *file = calloc(1, sizeof *file);
    if (!items || !file) {
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
        goto cleanup;
    }
    file->fd = -1;
    file->n_entries = n_tensors;
    file->path = strdup(path);
    file->entries = tti_arena_alloc(&file->arena, (n_tensors + 1) * sizeof *file->entries);
    if (!file->path || !file->entries) {
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
        goto cleanup;
    }
    for (size_t i = 0; i < n_tensors; i++)
        TTI_TRY_GOTO(make_item(path, &tensors[i], &file->arena, &items[i]), cleanup);
    TTI_TRY_GOTO(check_unique(path, items, n_tensors), cleanup);
    qsort(items, n_tensors, sizeof *items, by_rank_and_name);
    TTI_TRY_GOTO(lay_out(file, items, &header), cleanup);
    TTI_TRY_GOTO(write_bytes(file, items, &header, access), cleanup);
    *out = file;
    file = NULL;
cleanup:
    tti_safetensors_close(file);
    tti_str_free(&header);
    free(items);
    return st;
}

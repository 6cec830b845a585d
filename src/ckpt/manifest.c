/* manifest.c - prints and reads manifest.json.
 *
 * File names in the manifest are not trusted: there is one object for each file, and paths are
 * built from constants. ckpt_load.c checks whether the manifest matches the files. */
#include "ckpt/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_crc.h"
#include "base/json_read.h"

#define FORMAT "tutti-checkpoint"
#define MAX_STEP ((int64_t)1000000000000000)

#define CRC_KEY "manifest_crc32c"

const char *tti_ckpt_file_name(tti_ckpt_file which) {
    return which == TTI_CKPT_MODEL ? "model.safetensors" : "optimizer.safetensors";
}

/* ---- printing ---- */

static void add_crc(tti_json *j, const char *key, uint32_t crc) {
    char digits[9];
    snprintf(digits, sizeof digits, "%08" PRIx32, crc);
    tti_json_text(j, key, digits);
}

static void add_entry(tti_json *j, const tti_safetensors_entry *entry) {
    tti_json_object(j, NULL);
    tti_json_text(j, "name", entry->name);
    tti_json_text(j, "dtype", tti_safetensors_dtype(entry->type.dtype));
    tti_json_array(j, "shape");
    for (int i = 0; i < entry->type.shape.n_dims; i++)
        tti_json_int(j, NULL, entry->type.shape.dim[i]);
    tti_json_end(j);
    add_crc(j, "crc32c", entry->crc);
    tti_json_end(j);
}

static void add_file(tti_json *j, tti_ckpt_file which, const tti_manifest_file *file) {
    tti_json_object(j, tti_ckpt_file_name(which));
    tti_json_int(j, "bytes", (int64_t)file->n_bytes);
    add_crc(j, "crc32c", file->crc);
    tti_json_int(j, "header_bytes", (int64_t)file->n_header_bytes);
    add_crc(j, "header_crc32c", file->header_crc);
    tti_json_array(j, "tensors");
    for (size_t i = 0; i < file->n_entries; i++) add_entry(j, &file->entries[i]);
    tti_json_end(j);
    tti_json_end(j);
}

static void add_meta(tti_json *j, const tti_ckpt_meta *meta) {
    tti_json_text(j, "format", FORMAT);
    tti_json_int(j, "version", TTI_MANIFEST_VERSION);
    tti_json_int(j, "step", meta->step);
    tti_json_int(j, "epoch", meta->epoch);
    tti_json_int(j, "position", meta->position);
    tti_json_int(j, "n_shards", meta->n_shards);
    tti_json_int(j, "seed", meta->seed);
    tti_json_hex64(j, "job_digest", meta->job_digest);
    tti_json_hex64(j, "params_hash", meta->params_hash);
    tti_json_text(j, "backend", meta->backend ? meta->backend : "");
}

tutti_status tti_manifest_print(const tti_manifest *m, tti_str *out) {
    tti_str body = {0};
    tti_json j = tti_json_begin(&body, 1);
    tti_json_object(&j, NULL);
    add_meta(&j, &m->meta);
    tti_json_object(&j, "texts");
    for (size_t i = 0; i < m->n_texts; i++) tti_json_text(&j, m->texts[i].key, m->texts[i].text);
    tti_json_end(&j);
    tti_json_object(&j, "files");
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) add_file(&j, (tti_ckpt_file)p, &m->files[p]);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(&body, "\n");
    tutti_status st = tti_json_crc_print(CRC_KEY, &body, out);
    tti_str_free(&body);
    return st;
}

/* ---- reading ---- */

static tutti_status read_crc(const char *what, const json_t *object, const char *key,
                             uint32_t *out) {
    uint64_t x;
    TTI_TRY(tti_json_read_hex(what, object, key, 8, &x));
    *out = (uint32_t)x;
    return TUTTI_OK;
}

static tutti_status copy_text(tti_arena *arena, const char *text, const char **out) {
    *out = tti_arena_strdup(arena, text);
    return *out ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "out of memory");
}

static tutti_status read_entry(tti_arena *arena, const json_t *json, tti_safetensors_entry *out) {
    const char *name;
    TTI_TRY(tti_json_read_text("a tensor", json, "name", &name));
    TTI_TRY(tti_ckpt_check_name("manifest", name));
    char what[TTI_CKPT_MAX_NAME + 16];
    snprintf(what, sizeof what, "tensor '%s'", name);
    TTI_TRY(tti_json_read_type(what, json, &out->type, &out->n_bytes));
    TTI_TRY(read_crc(what, json, "crc32c", &out->crc));
    return copy_text(arena, name, &out->name);
}

static tutti_status read_sizes(const char *what, const json_t *json, tti_manifest_file *out) {
    int64_t n_bytes, n_header_bytes;
    TTI_TRY(tti_json_read_int(what, json, "bytes", 10, INT64_MAX, &n_bytes));
    TTI_TRY(tti_json_read_int(what, json, "header_bytes", 10,
                              TTI_MIN(n_bytes, TTI_SAFETENSORS_MAX_HEADER + 8), &n_header_bytes));
    out->n_bytes = (uint64_t)n_bytes;
    out->n_header_bytes = (uint64_t)n_header_bytes;
    TTI_TRY(read_crc(what, json, "crc32c", &out->crc));
    return read_crc(what, json, "header_crc32c", &out->header_crc);
}

static tutti_status read_file(const json_t *files, tti_ckpt_file which, tti_manifest *m) {
    const char *name = tti_ckpt_file_name(which);
    tti_manifest_file *file = &m->files[which];
    json_t *json, *tensors;
    TTI_TRY(tti_json_member("files", files, name, JSON_OBJECT, &json));
    TTI_TRY(read_sizes(name, json, file));
    TTI_TRY(tti_json_member(name, json, "tensors", JSON_ARRAY, &tensors));
    size_t n = json_array_size(tensors);
    if (n > TTI_SAFETENSORS_MAX_TENSORS)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %zu tensors are too many", name, n);
    file->entries = tti_arena_alloc(&m->arena, (n + 1) * sizeof *file->entries);
    if (!file->entries) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    file->n_entries = n;
    for (size_t i = 0; i < n; i++)
        TTI_TRY(read_entry(&m->arena, json_array_get(tensors, i), &file->entries[i]));
    return TUTTI_OK;
}

static tutti_status read_meta(const json_t *root, tti_manifest *m) {
    tti_ckpt_meta *meta = &m->meta;
    int64_t version;
    const char *text;
    TTI_TRY(tti_json_read_text("manifest", root, "format", &text));
    if (strcmp(text, FORMAT) != 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "its format is not \"" FORMAT "\"");
    TTI_TRY(tti_json_read_int("manifest", root, "version", 1, INT64_MAX, &version));
    if (version > TTI_MANIFEST_VERSION)
        return tti_fail(TUTTI_E_CHECKPOINT, "version %lld: made by a newer Tutti (this one: %d)",
                        (long long)version, TTI_MANIFEST_VERSION);
    TTI_TRY(tti_json_read_int("manifest", root, "step", 0, MAX_STEP, &meta->step));
    TTI_TRY(tti_json_read_int("manifest", root, "epoch", 0, INT64_MAX, &meta->epoch));
    TTI_TRY(tti_json_read_int("manifest", root, "position", 0, INT64_MAX, &meta->position));
    TTI_TRY(tti_json_read_int("manifest", root, "n_shards", 0, INT64_MAX, &meta->n_shards));
    TTI_TRY(tti_json_read_int("manifest", root, "seed", INT64_MIN, INT64_MAX, &meta->seed));
    TTI_TRY(tti_json_read_hex("manifest", root, "job_digest", 16, &meta->job_digest));
    TTI_TRY(tti_json_read_hex("manifest", root, "params_hash", 16, &meta->params_hash));
    TTI_TRY(tti_json_read_text("manifest", root, "backend", &text));
    return copy_text(&m->arena, text, &meta->backend);
}

static tutti_status read_texts(const json_t *root, tti_manifest *m) {
    json_t *texts, *value;
    const char *key;
    TTI_TRY(tti_json_member("manifest", root, "texts", JSON_OBJECT, &texts));
    if (json_object_size(texts) > TTI_MANIFEST_MAX_TEXTS)
        return tti_fail(TUTTI_E_CHECKPOINT, "more than %d texts", TTI_MANIFEST_MAX_TEXTS);
    m->texts = tti_arena_alloc(&m->arena, (json_object_size(texts) + 1) * sizeof *m->texts);
    if (!m->texts) return tti_fail(TUTTI_E_NOMEM, "out of memory");
    json_object_foreach(texts, key, value) {
        if (!json_is_string(value)) return tti_fail(TUTTI_E_CHECKPOINT, "a text is not a string");
        tti_ckpt_text *text = &m->texts[m->n_texts++];
        TTI_TRY(copy_text(&m->arena, key, &text->key));
        TTI_TRY(copy_text(&m->arena, json_string_value(value), &text->text));
    }
    return TUTTI_OK;
}

static tutti_status read_all(const json_t *root, tti_manifest *m) {
    json_t *files;
    TTI_TRY(read_meta(root, m));
    TTI_TRY(read_texts(root, m));
    TTI_TRY(tti_json_member("manifest", root, "files", JSON_OBJECT, &files));
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) TTI_TRY(read_file(files, (tti_ckpt_file)p, m));
    return TUTTI_OK;
}

tutti_status tti_manifest_parse_body(const char *json, size_t n_bytes, tti_manifest *out) {
    *out = (tti_manifest){0};
    json_t *root;
    TTI_TRY(tti_json_parse("manifest", json, n_bytes, &root));
    tutti_status st = read_all(root, out);
    json_decref(root);
    if (st != TUTTI_OK) tti_manifest_free(out);
    return st;
}

tutti_status tti_manifest_parse(const char *text, size_t n_bytes, tti_manifest *out) {
    *out = (tti_manifest){0};
    TTI_TRY(tti_json_crc_check("manifest", CRC_KEY, text, n_bytes));
    return tti_manifest_parse_body(text, n_bytes, out);
}

void tti_manifest_free(tti_manifest *m) {
    tti_arena_free(&m->arena);
    *m = (tti_manifest){0};
}

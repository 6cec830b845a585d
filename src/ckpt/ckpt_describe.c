/* ckpt_describe.c - prints checkpoints as text, for `tutti inspect`. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "ckpt/ckpt.h"
#include "ckpt/ckpt_dir.h"
#include "ckpt/manifest.h"
#include "tutti/ckpt.h"

static void add_entry(tti_str *out, const tti_safetensors_entry *entry, uint32_t crc) {
    tti_str_printf(out, "  %-40s ", entry->name);
    tti_safetensors_type(out, &entry->type);
    tti_str_printf(out, "  %" PRIu64 " bytes, CRC-32C %08" PRIx32 "\n", entry->n_bytes, crc);
}

static tutti_status describe_file(const char *path, tti_str *out) {
    tti_safetensors *file;
    TTI_TRY(tti_safetensors_open(path, &file));
    tti_str_printf(out, "%s: %zu tensors, %" PRIu64 " bytes\n", path, file->n_entries,
                   file->n_bytes);
    tutti_status st = TUTTI_OK;
    for (size_t i = 0; i < file->n_entries && st == TUTTI_OK; i++) {
        uint32_t crc = 0;
        st = tti_safetensors_read(file, &file->entries[i], NULL, &crc);
        add_entry(out, &file->entries[i], crc);
    }
    tti_safetensors_close(file);
    return st;
}

static void add_file(const tti_ckpt *ckpt, tti_ckpt_file which, tti_str *out) {
    size_t n = tti_ckpt_n_tensors(ckpt, which);
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < n; i++) n_bytes += tti_ckpt_tensor_at(ckpt, which, i)->n_bytes;
    tti_str_printf(out, "%s: %zu tensors, %" PRIu64 " bytes\n", tti_ckpt_file_name(which), n,
                   n_bytes);
    for (size_t i = 0; i < n; i++) {
        const tti_safetensors_entry *entry = tti_ckpt_tensor_at(ckpt, which, i);
        add_entry(out, entry, entry->crc);
    }
}

static void add_ckpt(const tti_ckpt *ckpt, tti_str *out) {
    const tti_ckpt_meta *meta = tti_ckpt_get_meta(ckpt);
    tti_str_printf(out, "%s: good, every checksum compared\n", tti_ckpt_dir(ckpt));
    tti_str_printf(out,
                   "step %" PRId64 ", epoch %" PRId64 ", position %" PRId64 ", %" PRId64
                   " shards, seed %" PRId64 "\n",
                   meta->step, meta->epoch, meta->position, meta->n_shards, meta->seed);
    tti_str_printf(out, "params_hash %016" PRIx64 ", job %016" PRIx64 "\n", meta->params_hash,
                   meta->job_digest);
    if (meta->backend[0]) tti_str_printf(out, "backend: %s\n", meta->backend);
    for (int p = 0; p < TTI_CKPT_N_FILES; p++) add_file(ckpt, (tti_ckpt_file)p, out);
}

static tutti_status describe_dir(const char *path, tti_str *out) {
    tti_ckpt *ckpt;
    TTI_TRY(tti_ckpt_open_dir(path, true, &ckpt));
    add_ckpt(ckpt, out);
    tti_ckpt_close(ckpt);
    return TUTTI_OK;
}

/* One line for each generation, then the newest good one in full. */
static tutti_status describe_generations(const char *run_dir, const tti_generation *list, size_t n,
                                         tti_str *out) {
    tti_arena arena = {0};
    tti_str full = {0};
    tutti_status st = TUTTI_OK;
    for (size_t i = 0; i < n && st != TUTTI_E_NOMEM; i++) {
        tti_ckpt *ckpt;
        const char *dir =
            tti_arena_printf(&arena, "%s/" TTI_CKPT_FOLDER "/%s", run_dir, list[i].name);
        st = dir ? tti_ckpt_open_dir(dir, true, &ckpt)
                 : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", run_dir);
        tti_str_printf(out, "%s: %s\n", list[i].name, st ? tutti_last_error() : "good");
        if (st != TUTTI_OK) continue;
        if (full.n_bytes == 0) add_ckpt(ckpt, &full);
        tti_ckpt_close(ckpt);
    }
    if (st != TUTTI_E_NOMEM)
        st = full.n_bytes ? TUTTI_OK
                          : tti_fail(TUTTI_E_CHECKPOINT, "%s: no good checkpoint\n%s", run_dir,
                                     tti_str_text(out));
    tti_str_add(out, tti_str_text(&full));
    tti_str_free(&full);
    tti_arena_free(&arena);
    return st;
}

static tutti_status describe_run(const char *path, tti_str *out) {
    tti_generation *list;
    size_t n;
    TTI_TRY(tti_ckpt_scan(path, &list, &n));
    tutti_status st = describe_generations(path, list, n, out);
    free(list);
    return st;
}

static tutti_status describe(const char *path, tti_str *out) {
    struct stat info;
    if (stat(path, &info)) return tti_fail(TUTTI_E_CHECKPOINT, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(info.st_mode)) return describe_file(path, out);
    tti_arena arena = {0};
    const char *manifest = tti_ckpt_path(&arena, path, TTI_MANIFEST_NAME);
    bool is_ckpt = manifest && stat(manifest, &info) == 0;
    tti_arena_free(&arena);
    return is_ckpt ? describe_dir(path, out) : describe_run(path, out);
}

tutti_status tutti_ckpt_describe(const char *path, char **out) {
    *out = NULL;
    tti_str text = {0};
    tutti_status st = describe(path, &text);
    if (st == TUTTI_OK && text.failed) st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    if (st != TUTTI_OK) {
        tti_str_free(&text);
        return st;
    }
    *out = text.text;
    return TUTTI_OK;
}

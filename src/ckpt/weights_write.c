/* weights_write.c - writes tensors to one safetensors file, or to several with an index.
 *
 * Files are filled in the order of the tensors.  The index is written last, so a folder with an
 * index is whole. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json.h"
#include "ckpt/weights.h"

enum { PATH_BYTES = 4096, NAME_BYTES = 64 };

static uint64_t n_bytes_of(const tti_ckpt_tensor *t) {
    return (uint64_t)tutti_shape_n_elems(&t->type.shape) * tutti_dtype_bytes(t->type.dtype);
}

/* How many of the tensors the next file takes. */
static size_t run_length(const tti_ckpt_tensor *tensors, size_t n, uint64_t max_bytes) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += n_bytes_of(&tensors[i]);
        if (i > 0 && max_bytes > 0 && sum > max_bytes) return i;
    }
    return n;
}

static int count_files(const tti_ckpt_tensor *tensors, size_t n, uint64_t max_bytes) {
    int n_files = 0;
    for (size_t at = 0; at < n; at += run_length(tensors + at, n - at, max_bytes)) n_files++;
    return n_files ? n_files : 1;
}

static void file_name(char name[NAME_BYTES], int i, int n_files) {
    if (n_files == 1)
        snprintf(name, NAME_BYTES, "model.safetensors");
    else
        snprintf(name, NAME_BYTES, "model-%05d-of-%05d.safetensors", i + 1, n_files);
}

static tutti_status path_in(const char *dir, const char *name, char path[PATH_BYTES]) {
    int n = snprintf(path, PATH_BYTES, "%s/%s", dir, name);
    if (n > 0 && n < PATH_BYTES) return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "%.80s...: the path is too long", dir);
}

static tutti_status write_file(const char *dir, const char *name, const tti_ckpt_tensor *tensors,
                               size_t n) {
    char path[PATH_BYTES];
    tti_safetensors *file;
    TTI_TRY(path_in(dir, name, path));
    TTI_TRY(tti_safetensors_write(path, tensors, n, &file));
    tti_safetensors_close(file);
    return TUTTI_OK;
}

static tutti_status write_index(const char *dir, const tti_str *map, uint64_t n_bytes) {
    char path[PATH_BYTES];
    tti_str text = {0};
    TTI_TRY(path_in(dir, "model.safetensors.index.json", path));
    tti_str_printf(&text, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": %s\n}\n",
                   (unsigned long long)n_bytes, tti_str_text(map));
    tutti_status st = text.failed || map->failed
                          ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path)
                          : tti_atomic_file_save(path, text.text, text.n_bytes);
    tti_str_free(&text);
    return st;
}

tutti_status tti_weights_write(const char *dir, const tti_ckpt_tensor *tensors, size_t n_tensors,
                               uint64_t max_file_bytes, tti_weights_written *out) {
    tti_weights_written done = {.n_files = count_files(tensors, n_tensors, max_file_bytes)};
    tti_str map = {0};
    tti_json j = tti_json_begin(&map, 0);
    tutti_status st = TUTTI_OK;
    size_t at = 0;
    tti_json_object(&j, NULL);
    for (int f = 0; f < done.n_files && st == TUTTI_OK; f++) {
        char name[NAME_BYTES];
        size_t n = run_length(tensors + at, n_tensors - at, max_file_bytes);
        file_name(name, f, done.n_files);
        st = write_file(dir, name, tensors + at, n);
        for (size_t end = at + n; at < end; at++) {
            done.n_bytes += n_bytes_of(&tensors[at]);
            tti_json_text(&j, tensors[at].name, name);
        }
    }
    tti_json_end(&j);
    if (st == TUTTI_OK && done.n_files > 1) st = write_index(dir, &map, done.n_bytes);
    if (st == TUTTI_OK) st = tti_dir_sync(dir);
    tti_str_free(&map);
    if (st == TUTTI_OK) *out = done;
    return st;
}

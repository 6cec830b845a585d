/* weights.c - opens a folder of weights: one file, or those that an index names.
 *
 * The index only says which files exist; their own headers say what is in them, and both must
 * agree. */
#include "ckpt/weights.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/json_read.h"

enum { MAX_JSON = 64 << 20 };

typedef struct place {
    const tti_safetensors_entry *entry;
    int file;
} place;

struct tti_weights {
    tti_arena arena;
    char *dir; /* of all files, and of config.json */
    int n_files;
    tti_safetensors *files[TTI_WEIGHTS_MAX_FILES];
    const char *file_names[TTI_WEIGHTS_MAX_FILES];
    size_t n;
    place *places; /* [n], sorted by name */
};

/* ---- files ---- */

static tutti_status out_of_memory(const char *path) {
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
}

/* DIR/NAME without symbolic links, freed with free(). */
static tutti_status real_path(const char *dir, const char *name, char **out) {
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", dir, *name ? "/" : "", name) < 0) return out_of_memory(dir);
    *out = realpath(joined, NULL);
    tutti_status st =
        *out ? TUTTI_OK
             : tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot open: %s", joined, strerror(errno));
    free(joined);
    return st;
}

/* A link that leads nowhere counts: opening it fails with its name. */
static bool is_there(const char *dir, const char *name) {
    char path[PATH_MAX];
    struct stat info;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && n < (int)sizeof path && lstat(path, &info) == 0;
}

/* A JSON file of the folder. */
static tutti_status read_json(const tti_weights *w, const char *name, json_t **out) {
    char *path, *text = NULL;
    int fd = -1;
    uint64_t n_bytes = 0;
    TTI_TRY(real_path(w->dir, name, &path));
    tutti_status st = tti_ckpt_open_file(path, &fd, &n_bytes);
    if (st == TUTTI_OK && n_bytes > MAX_JSON)
        st = tti_fail(TUTTI_E_CHECKPOINT, "%s: more than %d bytes", path, MAX_JSON);
    if (st == TUTTI_OK && !(text = malloc((size_t)n_bytes + 1))) st = out_of_memory(path);
    if (st == TUTTI_OK) st = tti_ckpt_pread(path, fd, text, (size_t)n_bytes, 0);
    if (st == TUTTI_OK) st = tti_json_parse(path, text, (size_t)n_bytes, out);
    if (fd >= 0) close(fd);
    free(text);
    free(path);
    return st;
}

static tutti_status add_file(tti_weights *w, const char *name) {
    char *path;
    if (w->n_files == TTI_WEIGHTS_MAX_FILES)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: more than %d files of weights", w->dir,
                        TTI_WEIGHTS_MAX_FILES);
    TTI_TRY(real_path(w->dir, name, &path));
    w->file_names[w->n_files] = tti_arena_strdup(&w->arena, name);
    tutti_status st = w->file_names[w->n_files] ? tti_safetensors_open(path, &w->files[w->n_files])
                                                : out_of_memory(path);
    if (st == TUTTI_OK) w->n += w->files[w->n_files++]->n_entries;
    free(path);
    return st;
}

static bool has_file(const tti_weights *w, const char *name) {
    for (int i = w->n_files - 1; i >= 0; i--)
        if (strcmp(w->file_names[i], name) == 0) return true;
    return false;
}

/* ---- tensors ---- */

static int by_name(const void *a, const void *b) {
    const place *x = a, *y = b;
    return strcmp(x->entry->name, y->entry->name);
}

static tutti_status list_tensors(tti_weights *w) {
    w->places = tti_arena_alloc(&w->arena, (w->n + 1) * sizeof *w->places);
    if (!w->places) return out_of_memory(w->dir);
    size_t at = 0;
    for (int f = 0; f < w->n_files; f++)
        for (size_t i = 0; i < w->files[f]->n_entries; i++)
            w->places[at++] = (place){&w->files[f]->entries[i], f};
    qsort(w->places, w->n, sizeof *w->places, by_name);
    for (size_t i = 1; i < w->n; i++)
        if (by_name(&w->places[i - 1], &w->places[i]) == 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: tensor '%s' is in two files", w->dir,
                            w->places[i].entry->name);
    return TUTTI_OK;
}

/* ---- the index ---- */

static const char index_name[] = "model.safetensors.index.json";
static const char whole_name[] = "model.safetensors"; /* if there is no index */

static tutti_status check_file_name(const char *what, const char *name) {
    size_t n = strlen(name), n_end = strlen(".safetensors");
    bool good = n > n_end && n <= NAME_MAX && !strchr(name, '/') && name[0] != '.' &&
                strcmp(name + n - n_end, ".safetensors") == 0;
    if (good) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: '%.80s' is not a .safetensors file of this folder",
                    what, name);
}

static tutti_status open_mapped(tti_weights *w, const char *what, json_t *map) {
    const char *tensor;
    json_t *file;
    json_object_foreach(map, tensor, file) {
        if (!json_is_string(file))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: tensor '%.80s': not the name of a file", what,
                            tensor);
        const char *name = json_string_value(file);
        if (has_file(w, name)) continue;
        TTI_TRY(check_file_name(what, name));
        if (!is_there(w->dir, name))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: names '%s', which is not in the folder", what,
                            name);
        TTI_TRY(add_file(w, name));
    }
    TTI_TRY(list_tensors(w));
    json_object_foreach(map, tensor, file) {
        int64_t at = tti_weights_find(w, tensor);
        if (at < 0 || strcmp(w->file_names[w->places[at].file], json_string_value(file)) != 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: tensor '%.80s' is not in '%.80s'", what,
                            tensor, json_string_value(file));
    }
    return TUTTI_OK;
}

static tutti_status open_index(tti_weights *w) {
    json_t *root, *map;
    char *what = tti_arena_printf(&w->arena, "%s/%s", w->dir, index_name);
    if (!what) return out_of_memory(w->dir);
    TTI_TRY(read_json(w, index_name, &root));
    tutti_status st = tti_json_member(what, root, "weight_map", JSON_OBJECT, &map);
    if (st == TUTTI_OK) st = open_mapped(w, what, map);
    json_decref(root);
    if (st != TUTTI_OK || has_file(w, whole_name) || !is_there(w->dir, whole_name)) return st;
    return tti_fail(TUTTI_E_CHECKPOINT,
                    "%s: has both %s and %s, which may be different weights; remove one of them",
                    w->dir, whole_name, index_name);
}

/* ---- open, close, read ---- */

static tutti_status open_at(tti_weights *w, const char *path) {
    struct stat info;
    if (stat(path, &info))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot open: %s", path, strerror(errno));
    w->dir = strdup(path);
    if (!w->dir) return out_of_memory(path);
    if (S_ISDIR(info.st_mode)) {
        if (is_there(path, index_name)) return open_index(w);
        if (!is_there(path, whole_name))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: has neither %s nor %s", path, whole_name,
                            index_name);
        TTI_TRY(add_file(w, whole_name));
        return list_tensors(w);
    }
    TTI_TRY(add_file(w, ""));
    char *slash = strrchr(w->dir, '/');
    if (slash)
        slash[slash == w->dir] = 0;
    else
        strcpy(w->dir, ".");
    return list_tensors(w);
}

tutti_status tti_weights_open(const char *path, tti_weights **out) {
    *out = NULL;
    if (!*path) return tti_fail(TUTTI_E_INVALID, "weights: the path is empty");
    tti_weights *w = calloc(1, sizeof *w);
    if (!w) return out_of_memory(path);
    tutti_status st = open_at(w, path);
    if (st != TUTTI_OK) {
        tti_weights_close(w);
        return st;
    }
    *out = w;
    return TUTTI_OK;
}

void tti_weights_close(tti_weights *w) {
    if (!w) return;
    for (int i = 0; i < w->n_files; i++) tti_safetensors_close(w->files[i]);
    tti_arena_free(&w->arena);
    free(w->dir);
    free(w);
}

size_t tti_weights_n(const tti_weights *w) { return w->n; }

const tti_safetensors_entry *tti_weights_at(const tti_weights *w, size_t i) {
    TTI_ASSERT(i < w->n);
    return w->places[i].entry;
}

static int64_t find_stored(const tti_weights *w, const char *name) {
    place key = {&(tti_safetensors_entry){.name = name}, 0};
    const place *found = bsearch(&key, w->places, w->n, sizeof key, by_name);
    return found ? found - w->places : -1;
}

int64_t tti_weights_find(const tti_weights *w, const char *name) {
    int64_t at = find_stored(w, name);
    for (int f = 0; f < w->n_files && at < 0; f++)
        for (size_t i = 0; i < w->files[f]->n_aliases && at < 0; i++)
            if (strcmp(w->files[f]->aliases[i].name, name) == 0)
                at = find_stored(w, w->files[f]->aliases[i].stored);
    return at;
}

static bool is_float(tutti_dtype dtype) {
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

/* Elements first .. first + n_elems - 1 of a tensor; any thread. */
static tutti_status read_elems(const tti_weights *w, const place *at, size_t first, size_t n_elems,
                               float *dst) {
    const tti_safetensors *file = w->files[at->file];
    tutti_dtype dtype = at->entry->type.dtype;
    if (at->entry->foreign || !is_float(dtype))
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: tensor '%s' has the dtype %s; weights are read from F32, F64, F16 and "
                        "BF16",
                        file->path, at->entry->name,
                        at->entry->foreign ? at->entry->foreign : tti_safetensors_dtype(dtype));
    size_t n_bytes = n_elems * tutti_dtype_bytes(dtype);
    uint64_t begin = at->entry->offset + first * tutti_dtype_bytes(dtype);
    if (dtype == TUTTI_F32) return tti_ckpt_pread(file->path, file->fd, dst, n_bytes, begin);
    void *raw = malloc(n_bytes + 1);
    if (!raw) return out_of_memory(file->path);
    tutti_status st = tti_ckpt_pread(file->path, file->fd, raw, n_bytes, begin);
    for (size_t k = 0; st == TUTTI_OK && k < n_elems; k++) {
        double x = tti_load_elem(dtype, raw, k);
        dst[k] = (float)x;
        if (isinf(dst[k]) && isfinite(x))
            st = tti_fail(TUTTI_E_CHECKPOINT,
                          "%s: tensor '%s': element %zu, %g, is too large for the 32-bit floats of "
                          "the model",
                          file->path, at->entry->name, first + k, x);
    }
    free(raw);
    return st;
}

tutti_status tti_weights_read(const tti_weights *w, size_t i, float *dst) {
    TTI_ASSERT(i < w->n);
    size_t n_elems = (size_t)tutti_shape_n_elems(&w->places[i].entry->type.shape);
    return read_elems(w, &w->places[i], 0, n_elems, dst);
}

/* ---- many tensors ---- */

typedef struct reading {
    const tti_weights *weights;
    const size_t *at;
    tti_take_part_fn take;
    void *user;
} reading;

static size_t n_elems_of(const void *user, int tensor, bool *is_whole) {
    const reading *r = user;
    (void)is_whole;
    return (size_t)tutti_shape_n_elems(&r->weights->places[r->at[tensor]].entry->type.shape);
}

static tutti_status read_part(void *user, tti_part *part, float *memory) {
    const reading *r = user;
    return read_elems(r->weights, &r->weights->places[r->at[part->tensor]], part->first,
                      part->n_elems, memory);
}

static tutti_status take_part(void *user, const tti_part *part, const float *memory) {
    const reading *r = user;
    return r->take(r->user, part->tensor, part->first, part->n_elems, memory);
}

tutti_status tti_weights_read_parts(const tti_weights *w, const size_t *at, int n,
                                    const tti_readers *readers, tti_take_part_fn take, void *user) {
    reading r = {w, at, take, user};
    return tti_read_parts(readers, n, n_elems_of, read_part, take_part, &r);
}

tutti_status tti_weights_config(const tti_weights *w, json_t **root) {
    *root = NULL;
    return is_there(w->dir, "config.json") ? read_json(w, "config.json", root) : TUTTI_OK;
}

/* folder.c - reads a program from a folder that folder_save.c wrote: graph.json and
 * model.safetensors. */
#include "import/folder/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "ckpt/safetensors.h"
#include "import/pt2/pt2.h"

enum { VERSION = 1, MAX_PATH = 4096 };

static tutti_status no_memory(const char *what) {
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
}

/* ---- tensors ---- */

static const tti_safetensors_entry *find_entry(const tti_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->n_entries; i++)
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    return NULL;
}

/* Sets the position of a tensor's elements in the file, as its JSON entry states. */
static tutti_status place_tensor(tti_program_file *p, const tti_safetensors *file,
                                 const json_t *line, tti_input_spec *spec) {
    const char *stored;
    int64_t code, stride = 1;
    char what[600];
    snprintf(what, sizeof what, "%.300s: tensor '%.200s'", p->path, spec->name);
    TTI_TRY(tti_json_read_text(what, line, "path_name", &stored));
    TTI_TRY(tti_json_read_int(what, line, "dtype", 0, 1000, &code));
    TTI_TRY(tti_pt2_elem(what, code, &spec->elem));
    const tti_safetensors_entry *entry = find_entry(file, stored);
    if (!entry)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: model.safetensors has no tensor '%s'", what,
                        stored);
    const tutti_shape *shape = &entry->type.shape;
    uint64_t n = (uint64_t)tutti_shape_n_elems(shape);
    if (entry->foreign || entry->n_bytes != n * (uint64_t)tti_elem_bytes(spec->elem))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: model.safetensors has it in another type", what);
    spec->shape = (tti_import_shape){.n_dims = shape->n_dims};
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        spec->shape.dim[d] = shape->dim[d];
        spec->stride[d] = stride;
        stride *= TTI_MAX(shape->dim[d], 1);
    }
    spec->entry = 0;
    spec->at = entry->offset;
    return TUTTI_OK;
}

static tutti_status place_tensors(tti_program_file *p, const tti_safetensors *file,
                                  const json_t *tensors) {
    for (int i = 0; i < p->main.n_inputs; i++) {
        tti_input_spec *spec = &p->inputs[i];
        if (spec->kind == TTI_SPEC_INPUT || spec->kind == TTI_SPEC_NOTHING) continue;
        const json_t *line = json_object_get(tensors, spec->name);
        if (!json_is_object(line))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: graph.json does not say where tensor '%s' is",
                            p->path, spec->name);
        TTI_TRY(place_tensor(p, file, line, spec));
    }
    return TUTTI_OK;
}

static tutti_status place_extras(tti_program_file *p, const tti_safetensors *file,
                                 json_t *tensors) {
    TTI_TRY(tti_pt2_list_extras(p, tensors));
    for (int i = 0; i < p->n_extras; i++) {
        const json_t *line = json_object_get(tensors, p->extras[i].name);
        TTI_TRY(place_tensor(p, file, line, &p->extras[i]));
    }
    return TUTTI_OK;
}

/* ---- the graph ---- */

static tutti_status copy_member(tti_program_file *p, const json_t *root, const char *key,
                                const char **out) {
    const char *text = json_string_value(json_object_get(root, key));
    *out = text ? tti_arena_strdup(&p->arena, text) : NULL;
    return text && !*out ? no_memory(p->path) : TUTTI_OK;
}

static tutti_status read_root(tti_program_file *p, json_t *root, const tti_safetensors *file) {
    json_t *graph, *tensors;
    int64_t version;
    TTI_TRY(tti_json_read_int(p->path, root, "version", 0, INT32_MAX, &version));
    if (version != VERSION)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: version %d of an imported model is not supported, only %d; import "
                        "the model again",
                        p->path, (int)version, VERSION);
    TTI_TRY(copy_member(p, root, "exporter", &p->exporter));
    TTI_TRY(copy_member(p, root, "note", &p->note));
    if (!p->exporter) p->exporter = "an unknown program";
    TTI_TRY(tti_json_member(p->path, root, "graph", JSON_OBJECT, &graph));
    TTI_TRY(tti_json_member(p->path, root, "tensors", JSON_OBJECT, &tensors));
    TTI_TRY(tti_pt2_block(p->path, &p->arena, graph, 0, &p->main));
    TTI_TRY(tti_pt2_signature(p, root, graph));
    TTI_TRY(place_tensors(p, file, tensors));
    return place_extras(p, file, tensors);
}

/* Reads a small file as a whole. The caller frees *out with free(). */
static tutti_status read_text(const char *path, char **out, size_t *n_bytes) {
    int fd = -1;
    uint64_t size = 0;
    *out = NULL;
    TTI_TRY(tti_ckpt_open_file(path, &fd, &size));
    tutti_status st = TUTTI_OK;
    if (size > TTI_PT2_MAX_JSON)
        st = tti_fail(TUTTI_E_UNSUPPORTED, "%s: has more than %d bytes", path, TTI_PT2_MAX_JSON);
    if (st == TUTTI_OK && !(*out = malloc((size_t)size + 1))) st = no_memory(path);
    if (st == TUTTI_OK) st = tti_ckpt_pread(path, fd, *out, (size_t)size, 0);
    close(fd);
    *n_bytes = (size_t)size;
    if (st == TUTTI_OK) return TUTTI_OK;
    free(*out);
    *out = NULL;
    return st;
}

static tutti_status open_files(tti_program_file *p, const char *path) {
    char file[MAX_PATH], *text;
    size_t n_bytes;
    json_t *root = NULL;
    tti_safetensors *tensors = NULL;
    if (snprintf(file, sizeof file, "%s/model.safetensors", path) >= (int)sizeof file)
        return tti_fail(TUTTI_E_CONFIG, "%.100s...: the path is too long", path);
    TTI_TRY(tti_safetensors_open(file, &tensors));
    p->files = malloc(sizeof *p->files);
    if (p->files) p->files[0] = fcntl(tensors->fd, F_DUPFD_CLOEXEC, 0);
    p->n_files = p->files && p->files[0] >= 0;
    snprintf(file, sizeof file, "%s/graph.json", path);
    tutti_status st = p->n_files ? read_text(file, &text, &n_bytes) : no_memory(file);
    if (st == TUTTI_OK) {
        st = tti_json_parse(file, text, n_bytes, &root);
        free(text);
    }
    if (st == TUTTI_OK) st = read_root(p, root, tensors);
    json_decref(root);
    tti_safetensors_close(tensors);
    return st;
}

tutti_status tti_folder_open(const char *path, tti_program_file **out) {
    *out = NULL;
    tti_program_file *p = calloc(1, sizeof *p);
    if (!p) return no_memory(path);
    p->path = tti_arena_strdup(&p->arena, path);
    tutti_status st = p->path ? open_files(p, path) : no_memory(path);
    if (st == TUTTI_OK)
        *out = p;
    else
        tti_program_close(p);
    return st;
}

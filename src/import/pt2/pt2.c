/* pt2.c - reads the archive that torch.export.save writes: its entries, the signature of the graph,
 * and the position of each tensor's elements.
 *
 *     ROOT/models/NAME.json                                  the graph
 *     ROOT/data/weights/NAME_weights_config.json, weight_0   parameters and persistent buffers
 *     ROOT/data/constants/NAME_constants_config.json, tensor_0    other buffers and constants
 *     ROOT/byteorder                                         "little"
 *
 * Pickled entries (sample inputs) are not read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/pt2/pt2.h"

enum { SCHEMA_MAJOR = 8, MAX_TEXT = 600 };

static tutti_status no_memory(const char *what) {
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
}

/* ---- tensor metadata ---- */

/* Finds the symbol s77 in "Symbol('s77', positive=True)" or "s77". *n: its length, at most 64; 0:
 * the text is not a single symbol. */
static const char *find_symbol(const char *text, size_t *n) {
    if (strncmp(text, "Symbol(", 7) == 0) text += 7;
    if (*text == '\'') text++;
    *n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (text[*n] != '\0' && !strchr("',)", text[*n])) *n = 0;
    *n = TTI_MIN(*n, 64);
    return text;
}

/* Copies that symbol to the arena; NULL: there is none. */
static const char *symbol_of(tti_arena *arena, const char *text) {
    size_t n;
    const char *symbol = find_symbol(text, &n);
    return n > 0 ? tti_arena_printf(arena, "%.*s", (int)n, symbol) : NULL;
}

/* Reads a size: a number or, if symbol is not NULL, a symbol. */
static tutti_status read_size(const char *what, tti_arena *arena, const json_t *object,
                              int64_t *out, const char **symbol) {
    const json_t *number = json_object_get(object, "as_int");
    const json_t *expr = json_object_get(json_object_get(object, "as_expr"), "expr_str");
    if (json_is_integer(number) && json_integer_value(number) >= 0) {
        *out = json_integer_value(number);
        return TUTTI_OK;
    }
    if (!symbol || !json_is_string(expr))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: a size of a tensor is not a number", what);
    *out = -1;
    *symbol = symbol_of(arena, json_string_value(expr));
    if (*symbol) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "%s: a dimension is the expression %s; only whole dimensions may be dynamic",
                    what, json_string_value(expr));
}

static tutti_status read_sizes(const char *what, tti_arena *arena, const json_t *object,
                               tti_pt2_meta *out) {
    json_t *sizes;
    TTI_TRY(tti_json_member(what, object, "sizes", JSON_ARRAY, &sizes));
    size_t n = json_array_size(sizes);
    if (n > TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: a tensor has %zu dimensions, %d are supported",
                        what, n, TUTTI_MAX_DIMS);
    out->shape.n_dims = (int)n;
    for (size_t d = 0; d < n; d++)
        TTI_TRY(read_size(what, arena, json_array_get(sizes, d), &out->shape.dim[d],
                          &out->shape.symbol[d]));
    return TUTTI_OK;
}

/* Reads strides and offset, which are only used if all sizes are numbers. */
static tutti_status read_strides(const char *what, tti_arena *arena, const json_t *object,
                                 tti_pt2_meta *out) {
    json_t *strides, *offset;
    TTI_TRY(tti_json_member(what, object, "strides", JSON_ARRAY, &strides));
    TTI_TRY(tti_json_member(what, object, "storage_offset", JSON_OBJECT, &offset));
    if ((int)json_array_size(strides) != out->shape.n_dims)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: a tensor has another number of strides", what);
    for (int d = 0; d < out->shape.n_dims; d++)
        if (out->shape.symbol[d]) return TUTTI_OK;
    for (int d = 0; d < out->shape.n_dims; d++)
        TTI_TRY(read_size(what, arena, json_array_get(strides, (size_t)d), &out->stride[d], NULL));
    return read_size(what, arena, offset, &out->offset, NULL);
}

tutti_status tti_pt2_read_meta(const char *what, tti_arena *arena, const json_t *object,
                               tti_pt2_meta *out) {
    int64_t code;
    *out = (tti_pt2_meta){0};
    TTI_TRY(tti_json_read_int(what, object, "dtype", 0, 1000, &code));
    TTI_TRY(tti_pt2_elem(what, code, &out->elem));
    TTI_TRY(read_sizes(what, arena, object, out));
    return read_strides(what, arena, object, out);
}

/* ---- weights ---- */

/* Checks once that all elements of a tensor are within its entry, so that loading need not
 * check. */
static tutti_status check_extent(const char *what, const tti_program_file *p,
                                 const tti_input_spec *spec) {
    uint64_t last = (uint64_t)spec->offset, n = 1, n_bytes;
    bool overflow = false, empty = false;
    for (int d = 0; d < spec->shape.n_dims; d++) {
        uint64_t size = (uint64_t)spec->shape.dim[d], step;
        empty |= size == 0;
        overflow |= __builtin_mul_overflow(n, TTI_MAX(size, 1), &n);
        overflow |= __builtin_mul_overflow(TTI_MAX(size, 1) - 1, (uint64_t)spec->stride[d], &step);
        overflow |= __builtin_add_overflow(last, step, &last);
    }
    overflow |= __builtin_add_overflow(last, 1, &last);
    overflow |= __builtin_mul_overflow(last, (uint64_t)tti_elem_bytes(spec->elem), &n_bytes);
    if (overflow || n > TTI_MAX_TENSOR_BYTES / sizeof(double))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: the shape has too many elements", what);
    if (empty) return TUTTI_OK;
    if (spec->entry < 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: its elements are not in the archive", what);
    if (n_bytes > tti_archive_size(p->archive, spec->entry))
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: its elements end at byte %llu, entry '%s' has %llu", what,
                        (unsigned long long)n_bytes, tti_archive_name(p->archive, spec->entry),
                        (unsigned long long)tti_archive_size(p->archive, spec->entry));
    return TUTTI_OK;
}

/* Fills a spec from its JSON entry of a config; folder has the files that the config names. */
static tutti_status read_weight(tti_program_file *p, const char *folder, const json_t *line,
                                tti_input_spec *spec) {
    const char *path;
    json_t *meta;
    char what[MAX_TEXT], entry[MAX_TEXT];
    tti_pt2_meta read;
    snprintf(what, sizeof what, "%.300s: tensor '%.200s'", p->path, spec->name);
    TTI_TRY(tti_json_read_text(what, line, "path_name", &path));
    TTI_TRY(tti_json_member(what, line, "tensor_meta", JSON_OBJECT, &meta));
    TTI_TRY(tti_pt2_read_meta(what, &p->arena, meta, &read));
    if (json_is_true(json_object_get(line, "use_pickle")))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: it is stored by pickle, which may run code and is not read; it is not "
                        "a plain CPU tensor",
                        what);
    for (int d = 0; d < read.shape.n_dims; d++)
        if (read.shape.symbol[d])
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: its shape is not a list of numbers", what);
    snprintf(entry, sizeof entry, "%.400s%.190s", folder, path);
    spec->elem = read.elem;
    spec->shape = read.shape;
    spec->offset = read.offset;
    memcpy(spec->stride, read.stride, sizeof spec->stride);
    spec->entry = strchr(path, '/') ? -1 : tti_archive_find(p->archive, entry);
    return check_extent(what, p, spec);
}

typedef struct config {
    json_t *root, *lines; /* NULL: the archive has no config */
    char folder[MAX_TEXT];
} config;

static tutti_status read_json(const tti_program_file *p, int entry, json_t **out) {
    char *text, what[MAX_TEXT];
    size_t n_bytes;
    TTI_TRY(tti_archive_read(p->archive, entry, TTI_PT2_MAX_JSON, &text, &n_bytes));
    snprintf(what, sizeof what, "%.300s: %.200s", p->path, tti_archive_name(p->archive, entry));
    tutti_status st = tti_json_parse(what, text, n_bytes, out);
    free(text);
    return st;
}

/* Finds the entry in a folder whose name ends with `end`; direct: ignores subfolders. Sets *out to
 * -1 if there is none. TUTTI_E_UNSUPPORTED: there are several. */
static tutti_status find_one(const tti_program_file *p, const char *folder, const char *end,
                             bool direct, int *out) {
    *out = -1;
    for (int i = 0; i < tti_archive_n(p->archive); i++) {
        const char *name = tti_archive_name(p->archive, i), *at = strstr(name, folder);
        size_t n = strlen(name), n_end = strlen(end);
        if (!at || n < n_end || strcmp(name + n - n_end, end) != 0) continue;
        if (direct && strchr(at + strlen(folder), '/')) continue;
        if (*out >= 0)
            return tti_fail(TUTTI_E_UNSUPPORTED,
                            "%s: it holds several models; save one with "
                            "torch.export.save(program, FILE)",
                            p->path);
        *out = i;
    }
    return TUTTI_OK;
}

/* Reads the config in a folder whose name ends with `end`; *out is all zero if there is none. */
static tutti_status open_config(const tti_program_file *p, const char *folder, const char *end,
                                config *out) {
    int found;
    *out = (config){0};
    TTI_TRY(find_one(p, folder, end, false, &found));
    if (found < 0) return TUTTI_OK;
    const char *name = tti_archive_name(p->archive, found), *at = strstr(name, folder);
    snprintf(out->folder, sizeof out->folder, "%.*s", (int)(at - name + (int)strlen(folder)), name);
    TTI_TRY(read_json(p, found, &out->root));
    return tti_json_member(p->path, out->root, "config", JSON_OBJECT, &out->lines);
}

static tutti_status place_tensors(tti_program_file *p, const config *weights,
                                  const config *constants) {
    const config *const configs[] = {weights, constants};
    for (int i = 0; i < p->main.n_inputs; i++) {
        tti_input_spec *spec = &p->inputs[i];
        bool found = spec->kind == TTI_SPEC_INPUT || spec->kind == TTI_SPEC_NOTHING;
        for (size_t c = 0; c < TTI_COUNT(configs) && !found; c++) {
            const json_t *line =
                configs[c]->lines ? json_object_get(configs[c]->lines, spec->name) : NULL;
            if (!line) continue;
            TTI_TRY(read_weight(p, configs[c]->folder, line, spec));
            found = true;
        }
        if (!found)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: tensor '%s' is not in the archive", p->path,
                            spec->name);
    }
    return TUTTI_OK;
}

tutti_status tti_pt2_list_extras(tti_program_file *p, json_t *lines) {
    const char *name;
    json_t *line;
    size_t n = lines ? json_object_size(lines) : 0;
    p->extras = tti_arena_alloc(&p->arena, (n + 1) * sizeof *p->extras);
    if (!p->extras) return no_memory(p->path);
    json_object_foreach(lines, name, line) {
        bool known = false;
        for (int i = 0; i < p->main.n_inputs && !known; i++)
            known = strcmp(p->inputs[i].name, name) == 0;
        if (known) continue;
        tti_input_spec *spec = &p->extras[p->n_extras++];
        bool is_param = json_is_true(json_object_get(line, "is_param"));
        *spec = (tti_input_spec){.kind = is_param ? TTI_SPEC_PARAM : TTI_SPEC_BUFFER,
                                 .persistent = true};
        TTI_TRY(tti_ckpt_check_name(p->path, name));
        spec->name = tti_arena_strdup(&p->arena, name);
        if (!spec->name) return no_memory(p->path);
    }
    return TUTTI_OK;
}

static tutti_status place_extras(tti_program_file *p, const config *weights) {
    TTI_TRY(tti_pt2_list_extras(p, weights->lines));
    for (int i = 0; i < p->n_extras; i++) {
        const json_t *line = json_object_get(weights->lines, p->extras[i].name);
        TTI_TRY(read_weight(p, weights->folder, line, &p->extras[i]));
    }
    return TUTTI_OK;
}

/* ---- signature ---- */

static tutti_status copy_text(tti_program_file *p, const char *text, const char **out) {
    *out = tti_arena_strdup(&p->arena, text);
    return *out ? TUTTI_OK : no_memory(p->path);
}

/* True if a parameter has requires_grad=False. The tensor's type states it; in folders that Tutti
 * wrote, the spec does. */
static bool is_fixed(const json_t *spec, const json_t *type) {
    const char key[] = "requires_grad";
    return json_is_false(json_object_get(spec, key)) || json_is_false(json_object_get(type, key));
}

/* Reads an input spec: its key states the kind, and its value the name. */
static tutti_status read_input_spec(tti_program_file *p, const json_t *object, int i,
                                    const json_t *tensor_values) {
    static const struct {
        const char *key, *name;
        tti_spec_kind kind;
    } kinds[] = {{"parameter", "parameter_name", TTI_SPEC_PARAM},
                 {"buffer", "buffer_name", TTI_SPEC_BUFFER},
                 {"tensor_constant", "tensor_constant_name", TTI_SPEC_CONSTANT}};
    const char *key, *name;
    json_t *value;
    tti_input_spec *spec = &p->inputs[i];
    TTI_TRY(tti_pt2_union(p->path, object, &key, &value));
    *spec = (tti_input_spec){.kind = TTI_SPEC_NOTHING, .name = "", .entry = -1};
    for (size_t k = 0; k < TTI_COUNT(kinds); k++) {
        if (strcmp(key, kinds[k].key) != 0) continue;
        if (p->main.inputs[i] < 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: input %d of the graph is not a tensor",
                            p->path, i);
        spec->kind = kinds[k].kind;
        spec->persistent = json_is_true(json_object_get(value, "persistent"));
        const json_t *type = json_object_get(tensor_values, p->main.names[p->main.inputs[i]]);
        spec->fixed = spec->kind == TTI_SPEC_PARAM && is_fixed(value, type);
        TTI_TRY(tti_json_read_text(p->path, value, kinds[k].name, &name));
        TTI_TRY(tti_ckpt_check_name(p->path, name));
        return copy_text(p, name, &spec->name);
    }
    if (strcmp(key, "user_input") != 0 || p->main.inputs[i] < 0) return TUTTI_OK;
    spec->kind = TTI_SPEC_INPUT;
    spec->name = p->main.names[p->main.inputs[i]];
    const json_t *meta = json_object_get(tensor_values, spec->name);
    char what[MAX_TEXT];
    tti_pt2_meta read;
    snprintf(what, sizeof what, "%.300s: input '%.200s'", p->path, spec->name);
    if (!json_is_object(meta)) return tti_fail(TUTTI_E_CHECKPOINT, "%s: its type is missing", what);
    TTI_TRY(tti_pt2_read_meta(what, &p->arena, meta, &read));
    spec->elem = read.elem;
    spec->shape = read.shape;
    return TUTTI_OK;
}

static tutti_status read_output_spec(tti_program_file *p, const json_t *object, int i) {
    static const struct {
        const char *key;
        tti_result_kind kind;
    } kinds[] = {{"user_output", TTI_RESULT_OUTPUT},
                 {"loss_output", TTI_RESULT_LOSS},
                 {"buffer_mutation", TTI_RESULT_MUTATION}};
    const char *key, *name;
    json_t *value;
    tti_output_spec *spec = &p->outputs[i];
    TTI_TRY(tti_pt2_union(p->path, object, &key, &value));
    *spec = (tti_output_spec){TTI_RESULT_OTHER, ""};
    for (size_t k = 0; k < TTI_COUNT(kinds); k++)
        if (strcmp(key, kinds[k].key) == 0) spec->kind = kinds[k].kind;
    if (spec->kind == TTI_RESULT_OTHER) return TUTTI_OK;
    if (spec->kind != TTI_RESULT_MUTATION) { /* folders that Tutti wrote have the name here */
        const char *own = json_string_value(json_object_get(value, "name"));
        return own ? copy_text(p, own, &spec->name) : TUTTI_OK;
    }
    TTI_TRY(tti_json_read_text(p->path, value, "buffer_name", &name));
    return copy_text(p, name, &spec->name);
}

/* Returns the symbol of the batch size, which is dimension 0 of the first input with a symbol
 * there; NULL: none. */
static const char *batch_symbol(const tti_program_file *p) {
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].kind == TTI_SPEC_INPUT && p->inputs[i].shape.n_dims > 0 &&
            p->inputs[i].shape.symbol[0])
            return p->inputs[i].shape.symbol[0];
    return NULL;
}

/* Returns the text of a size that is a single symbol; *n: its length, 0 for any other size. */
static const char *symbol_text(const json_t *size, size_t *n) {
    const json_t *expr = json_object_get(json_object_get(size, "as_expr"), "expr_str");
    const char *text = json_string_value(expr);
    *n = 0;
    return text ? find_symbol(text, n) : "";
}

static tti_known_dims known_dims_of(const json_t *meta, const char *symbol) {
    const json_t *sizes = json_object_get(meta, "sizes");
    size_t n = json_array_size(sizes), n_symbol = symbol ? strlen(symbol) : 0;
    tti_known_dims known = {0};
    if (n > TUTTI_MAX_DIMS) return known;
    known.n_dims = (uint8_t)n;
    for (size_t d = 0; d < n; d++) {
        const json_t *size = json_array_get(sizes, d);
        size_t n_text;
        const char *text = symbol_text(size, &n_text);
        bool same = n_symbol > 0 && n_text == n_symbol && memcmp(text, symbol, n_symbol) == 0;
        if (same) known.of_batch |= (uint8_t)(1u << d);
        if (json_is_integer(json_object_get(size, "as_int"))) known.fixed |= (uint8_t)(1u << d);
    }
    return known;
}

/* Parses known dimensions in folders that Tutti wrote, one character each: "b" the batch, "n" a
 * number, "?" unknown. */
static tti_known_dims known_dims_of_text(const char *text) {
    tti_known_dims known = {0};
    if (strlen(text) > TUTTI_MAX_DIMS) return known;
    for (; text[known.n_dims]; known.n_dims++) {
        if (text[known.n_dims] == 'b') known.of_batch |= (uint8_t)(1u << known.n_dims);
        if (text[known.n_dims] == 'n') known.fixed |= (uint8_t)(1u << known.n_dims);
    }
    return known;
}

/* Reads which dimensions of the main block's values are the batch. */
static tutti_status read_known_dims(tti_program_file *p, const json_t *tensor_values,
                                    const json_t *own) {
    const char *symbol = batch_symbol(p);
    if (!symbol) return TUTTI_OK; /* a fixed batch */
    tti_known_dims *dims =
        tti_arena_alloc(&p->arena, ((size_t)p->main.n_values + 1) * sizeof *dims);
    if (!dims) return no_memory(p->path);
    for (int i = 0; i < p->main.n_values; i++) {
        const char *text = json_string_value(json_object_get(own, p->main.names[i]));
        dims[i] = text ? known_dims_of_text(text)
                       : known_dims_of(json_object_get(tensor_values, p->main.names[i]), symbol);
    }
    p->main.dims = dims;
    return TUTTI_OK;
}

tutti_status tti_pt2_signature(tti_program_file *p, const json_t *module, const json_t *graph) {
    json_t *signature, *inputs, *outputs, *values;
    TTI_TRY(tti_json_member(p->path, module, "signature", JSON_OBJECT, &signature));
    TTI_TRY(tti_json_member(p->path, signature, "input_specs", JSON_ARRAY, &inputs));
    TTI_TRY(tti_json_member(p->path, signature, "output_specs", JSON_ARRAY, &outputs));
    TTI_TRY(tti_json_member(p->path, graph, "tensor_values", JSON_OBJECT, &values));
    if (json_array_size(inputs) != (size_t)p->main.n_inputs ||
        json_array_size(outputs) != (size_t)p->main.n_outputs)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: the signature does not fit the graph", p->path);
    p->inputs = tti_arena_alloc(&p->arena, ((size_t)p->main.n_inputs + 1) * sizeof *p->inputs);
    p->outputs = tti_arena_alloc(&p->arena, ((size_t)p->main.n_outputs + 1) * sizeof *p->outputs);
    if (!p->inputs || !p->outputs) return no_memory(p->path);
    for (int i = 0; i < p->main.n_inputs; i++)
        TTI_TRY(read_input_spec(p, json_array_get(inputs, (size_t)i), i, values));
    for (int i = 0; i < p->main.n_outputs; i++)
        TTI_TRY(read_output_spec(p, json_array_get(outputs, (size_t)i), i));
    return read_known_dims(p, values, json_object_get(graph, "dims"));
}

/* ---- the whole file ---- */

static tutti_status check_version(tti_program_file *p, const json_t *root) {
    json_t *version;
    int64_t major, minor;
    TTI_TRY(tti_json_member(p->path, root, "schema_version", JSON_OBJECT, &version));
    TTI_TRY(tti_json_read_int(p->path, version, "major", 0, INT32_MAX, &major));
    TTI_TRY(tti_json_read_int(p->path, version, "minor", 0, INT32_MAX, &minor));
    const char *torch = json_string_value(json_object_get(root, "torch_version"));
    if (!torch) torch = "?";
    p->exporter = tti_arena_printf(&p->arena, "PyTorch %.100s", torch);
    if (!p->exporter) return no_memory(p->path);
    if (major == SCHEMA_MAJOR) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_UNSUPPORTED,
        "%s: schema version %lld.%lld (PyTorch %.100s) is not supported, only %d; export "
        "the model with a PyTorch that writes version %d",
        p->path, (long long)major, (long long)minor, torch, SCHEMA_MAJOR, SCHEMA_MAJOR);
}

static tutti_status name_outputs(tti_program_file *p, const json_t *module) {
    int n = 0, at = 0;
    for (int i = 0; i < p->main.n_outputs; i++) n += tti_is_user_output(&p->outputs[i]);
    const char **names = tti_arena_alloc(&p->arena, ((size_t)n + 1) * sizeof *names);
    if (!names) return no_memory(p->path);
    tti_pt2_output_names(&p->arena, module, n, names);
    for (int i = 0; i < p->main.n_outputs; i++) {
        if (!tti_is_user_output(&p->outputs[i])) continue;
        if (names[at]) p->outputs[i].name = names[at];
        at++;
    }
    return TUTTI_OK;
}

static tutti_status read_model(tti_program_file *p, const json_t *root) {
    json_t *module, *graph;
    TTI_TRY(check_version(p, root));
    TTI_TRY(tti_json_member(p->path, root, "graph_module", JSON_OBJECT, &module));
    TTI_TRY(tti_json_member(p->path, module, "graph", JSON_OBJECT, &graph));
    TTI_TRY(tti_pt2_block(p->path, &p->arena, graph, 0, &p->main));
    TTI_TRY(tti_pt2_signature(p, module, graph));
    return name_outputs(p, module);
}

static tutti_status find_model(const tti_program_file *p, int *out) {
    TTI_TRY(find_one(p, "/models/", ".json", true, out));
    if (*out >= 0) return TUTTI_OK;
    if (tti_archive_find(p->archive, "serialized_exported_program.json") >= 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: it was written by PyTorch 2.7 or older, whose files hold weights as "
                        "pickle; export the model with PyTorch 2.8 or newer",
                        p->path);
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "%s: it is a zip archive, but not one of torch.export.save: it has no entry "
                    "models/model.json (TorchScript files and torch.save are not supported)",
                    p->path);
}

static tutti_status check_byte_order(const tti_program_file *p) {
    char *text;
    size_t n_bytes;
    int entry = tti_archive_find_ending(p->archive, "byteorder");
    if (entry < 0) return TUTTI_OK;
    TTI_TRY(tti_archive_read(p->archive, entry, 64, &text, &n_bytes));
    bool is_little = strcmp(text, "little") == 0;
    free(text);
    return is_little
               ? TUTTI_OK
               : tti_fail(TUTTI_E_UNSUPPORTED, "%s: its byte order is not little endian", p->path);
}

static tutti_status read_program(tti_program_file *p) {
    int entry = -1;
    json_t *root;
    config weights = {0}, constants = {0};
    TTI_TRY(find_model(p, &entry));
    TTI_TRY(check_byte_order(p));
    TTI_TRY(read_json(p, entry, &root));
    tutti_status st = read_model(p, root);
    json_decref(root);
    if (st == TUTTI_OK) st = open_config(p, "/data/weights/", "_weights_config.json", &weights);
    if (st == TUTTI_OK)
        st = open_config(p, "/data/constants/", "_constants_config.json", &constants);
    if (st == TUTTI_OK) st = place_tensors(p, &weights, &constants);
    if (st == TUTTI_OK) st = place_extras(p, &weights);
    json_decref(weights.root);
    json_decref(constants.root);
    return st;
}

tutti_status tti_pt2_read(tti_archive *archive, tti_program_file **out) {
    *out = NULL;
    tti_program_file *p = calloc(1, sizeof *p);
    if (!p) {
        tti_archive_close(archive);
        return tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    }
    p->archive = archive;
    p->path = tti_archive_path(archive);
    tutti_status st = read_program(p);
    if (st != TUTTI_OK) {
        tti_program_close(p);
        return st;
    }
    *out = p;
    return TUTTI_OK;
}

tutti_status tti_pt2_open(const char *path, tti_program_file **out) {
    tti_archive *archive;
    *out = NULL;
    TTI_TRY(tti_archive_open(path, &archive));
    return tti_pt2_read(archive, out);
}

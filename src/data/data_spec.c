/* data_spec.c - prints the data specification as JSON and reads it from files that may be hostile.
 *
 * The first line holds a checksum of the rest (base/json_crc.h), as in a checkpoint's manifest. */
#include "data/data_spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json.h"
#include "base/json_crc.h"
#include "base/json_read.h"
#include "base/problem.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/files/byte_reader.h"

enum { MAX_FILE_BYTES = 64 << 20, VERSION = 1, PATH_BYTES = 4096 };
#define MAX_CLASSES ((int64_t)INT32_MAX)
#define MAX_SAMPLE_BYTES ((uint64_t)1 << 32)
#define CRC_KEY "data_crc32c"

static const char *const fit_names[TTI_N_FITS] = {"middle", "square", "fill"};

tti_data_spec *tti_data_spec_create(void) {
    tti_data_spec *spec = calloc(1, sizeof *spec);
    if (spec) spec->n_owners = 1;
    return spec;
}

const tti_data_spec *tti_data_spec_share(const tti_data_spec *spec) {
    if (spec) ((tti_data_spec *)(uintptr_t)spec)->n_owners++;
    return spec;
}

void tti_data_spec_release(const tti_data_spec *shared) {
    tti_data_spec *spec = (tti_data_spec *)(uintptr_t)shared;
    if (!spec || --spec->n_owners > 0) return;
    tutti_tokenizer_destroy(spec->tokenizer);
    tti_arena_free(&spec->arena);
    free(spec);
}

tutti_status tti_data_spec_alloc_targets(tti_data_spec *spec, int64_t n) {
    tti_target_spec *t = &spec->target;
    t->mean = tti_arena_alloc(&spec->arena, (size_t)n * sizeof *t->mean);
    t->std = tti_arena_alloc(&spec->arena, (size_t)n * sizeof *t->std);
    if (!t->mean || !t->std) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    t->n = n;
    return TUTTI_OK;
}

tutti_status tti_data_spec_alloc_fields(tti_data_spec *spec, int n) {
    spec->fields = tti_arena_alloc(&spec->arena, (size_t)n * sizeof *spec->fields);
    if (!spec->fields) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    spec->n_fields = n;
    return TUTTI_OK;
}

const char *tti_data_spec_target_name(const tti_data_spec *spec, int64_t k) {
    const tti_table_spec *t = spec->table;
    return t && t->has_names && k < t->n_labels ? t->column[t->label[k]].name : NULL;
}

/* ---- printing ---- */

static void add_type(tti_json *j, const char *key, const tutti_type *type) {
    tti_json_object(j, key);
    tti_json_text(j, "dtype", tti_safetensors_dtype(type->dtype));
    tti_json_array(j, "shape");
    for (int i = 0; i < type->shape.n_dims; i++) tti_json_int(j, NULL, type->shape.dim[i]);
    tti_json_end(j);
    tti_json_end(j);
}

static void add_pixels(tti_json *j, const tti_pixel_spec *pixels) {
    tti_json_object(j, "pixels");
    tti_json_array(j, "mean");
    for (int i = 0; i < pixels->n_channels; i++) tti_json_double(j, NULL, pixels->mean[i]);
    tti_json_end(j);
    tti_json_array(j, "std");
    for (int i = 0; i < pixels->n_channels; i++) tti_json_double(j, NULL, pixels->std[i]);
    tti_json_end(j);
    tti_json_text(j, "fit", fit_names[pixels->fit]);
    tti_json_end(j);
}

/* Adds one number, or a list of several. */
static void add_numbers(tti_json *j, const char *key, const double *x, int64_t n) {
    if (n > 1) tti_json_array(j, key);
    for (int64_t i = 0; i < n; i++) tti_json_double(j, n > 1 ? NULL : key, x[i]);
    if (n > 1) tti_json_end(j);
}

static void add_target(tti_json *j, const tti_target_spec *target) {
    tti_json_object(j, "target");
    add_numbers(j, "mean", target->mean, target->n);
    add_numbers(j, "std", target->std, target->n);
    tti_json_end(j);
}

static void add_fields(tti_json *j, const tti_data_spec *spec) {
    tti_json_array(j, "fields");
    for (int i = 0; i < spec->n_fields; i++) {
        tti_json_object(j, NULL);
        tti_json_text(j, "name", spec->fields[i].name);
        add_type(j, "type", &spec->fields[i].type);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void add_members(tti_json *j, const tti_data_spec *spec) {
    tti_json_int(j, "version", VERSION);
    tti_json_text(j, "format", spec->format);
    add_type(j, "stored", &spec->stored);
    add_type(j, "x", &spec->x);
    add_type(j, "y", &spec->y);
    if (spec->n_fields > 0) add_fields(j, spec);
    tti_json_int(j, "classes", spec->n_classes);
    tti_json_int(j, "tokens", spec->n_tokens);
    tti_json_bool(j, "tokenizer", spec->tokenizer != NULL);
    if (spec->class_names) tti_json_array(j, "class_names");
    for (int64_t i = 0; spec->class_names && i < spec->n_classes; i++)
        tti_json_text(j, NULL, spec->class_names[i]);
    if (spec->class_names) tti_json_end(j);
    if (spec->pixels.n_channels > 0) add_pixels(j, &spec->pixels);
    if (spec->target.n > 0) add_target(j, &spec->target);
    if (!spec->table) return;
    tti_json_object(j, "table");
    tti_table_spec_print(spec->table, j);
    tti_json_end(j);
}

tutti_status tti_data_spec_print(const tti_data_spec *spec, tti_str *out) {
    tti_str body = {0};
    tti_json j = tti_json_begin(&body, 1);
    tti_json_object(&j, NULL);
    add_members(&j, spec);
    tti_json_end(&j);
    tti_str_add(&body, "\n");
    tutti_status st = tti_json_crc_print(CRC_KEY, &body, out);
    tti_str_free(&body);
    return st;
}

/* ---- reading ---- */

static tutti_status read_type(const char *what, const json_t *root, const char *key,
                              tutti_type *out) {
    json_t *json;
    uint64_t n_bytes;
    TTI_TRY(tti_json_member(what, root, key, JSON_OBJECT, &json));
    TTI_TRY(tti_json_read_type(what, json, out, &n_bytes));
    if (n_bytes > 0 && n_bytes <= MAX_SAMPLE_BYTES) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\": a sample of %" PRIu64 " bytes is not possible",
                    what, key, n_bytes);
}

static tutti_status read_field(const char *what, const json_t *json, tti_data_spec *spec, int i) {
    const char *name;
    tutti_field *field = &spec->fields[i];
    TTI_TRY(tti_json_read_text(what, json, "name", &name));
    TTI_TRY(read_type(what, json, "type", &field->type));
    if (!name[0] || strlen(name) >= TTI_MAX_FIELD_NAME ||
        tti_field_find(spec->fields, i, name) >= 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: the name of field %d is empty, too long or taken",
                        what, i);
    if (field->type.dtype != TUTTI_F32 && field->type.dtype != TUTTI_I32)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: field '%s' is neither f32 nor i32", what, name);
    field->name = tti_arena_strdup(&spec->arena, name);
    return field->name ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
}

/* The fields together are the bytes of a stored sample. */
static tutti_status read_fields(const char *what, const json_t *root, tti_data_spec *spec) {
    json_t *fields = json_object_get(root, "fields");
    if (!fields) return TUTTI_OK;
    TTI_TRY(tti_json_member(what, root, "fields", JSON_ARRAY, &fields));
    size_t n = json_array_size(fields);
    if (n < 1 || n > TTI_MAX_FIELDS)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %zu fields, 1 to %d are supported", what, n,
                        TTI_MAX_FIELDS);
    TTI_TRY(tti_data_spec_alloc_fields(spec, (int)n));
    for (int i = 0; i < spec->n_fields; i++)
        TTI_TRY(read_field(what, json_array_get(fields, (size_t)i), spec, i));
    const tutti_type *stored = &spec->stored;
    int64_t n_bytes = (int64_t)tti_fields_bytes(spec->fields, spec->n_fields);
    if (stored->dtype == TUTTI_U8 && stored->shape.n_dims == 1 && stored->shape.dim[0] == n_bytes)
        return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"fields\" do not match \"stored\"", what);
}

static tutti_status read_names(const char *what, const json_t *root, tti_data_spec *spec) {
    json_t *names = json_object_get(root, "class_names");
    if (!names) return TUTTI_OK;
    TTI_TRY(tti_json_member(what, root, "class_names", JSON_ARRAY, &names));
    size_t n = json_array_size(names);
    if ((int64_t)n != spec->n_classes || n > TTI_MAX_CLASS_NAMES)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %zu class names for %lld classes", what, n,
                        (long long)spec->n_classes);
    spec->class_names = tti_arena_alloc(&spec->arena, (n + 1) * sizeof *spec->class_names);
    for (size_t i = 0; i < n && !tti_arena_failed(&spec->arena); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        if (!name) return tti_fail(TUTTI_E_CHECKPOINT, "%s: class name %zu is not text", what, i);
        spec->class_names[i] = tti_arena_strdup(&spec->arena, name);
    }
    return tti_arena_failed(&spec->arena) ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what)
                                          : TUTTI_OK;
}

static tutti_status read_numbers(const char *what, const json_t *pixels, const char *key,
                                 double out[3], size_t *n) {
    json_t *list;
    TTI_TRY(tti_json_member(what, pixels, key, JSON_ARRAY, &list));
    *n = json_array_size(list);
    for (size_t i = 0; i < TTI_MIN(*n, (size_t)3); i++) {
        const json_t *number = json_array_get(list, i);
        out[i] = json_is_number(number) ? json_number_value(number) : NAN;
        if (!isfinite(out[i]))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" is not a list of numbers", what, key);
    }
    return TUTTI_OK;
}

/* Pixels are u8, and of three channels square: what follows makes a table and planes of them. */
static tutti_status check_pixels(const char *what, const tti_data_spec *spec) {
    const tti_pixel_spec *p = &spec->pixels;
    const tutti_shape *s = &spec->stored.shape;
    bool square = s->n_dims == 3 && s->dim[0] == s->dim[1] && s->dim[2] == 3 && s->dim[0] <= 4096;
    const tutti_field *image = spec->fields;
    const tutti_shape *field = spec->n_fields == 2 ? &image->type.shape : NULL;
    bool has_mask = field && image->type.dtype == TUTTI_F32 && field->n_dims == 3 &&
                    field->dim[0] == 3 && field->dim[1] == field->dim[2] && field->dim[1] <= 4096;
    bool good =
        spec->stored.dtype == TUTTI_U8 &&
        (spec->n_fields > 0 ? has_mask && p->n_channels == 3 : p->n_channels == 1 || square);
    for (int i = 0; i < p->n_channels; i++) good &= p->std[i] >= 0;
    if (good) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"pixels\" does not match \"stored\"", what);
}

static tutti_status read_pixels(const char *what, const json_t *root, tti_data_spec *spec) {
    json_t *pixels = json_object_get(root, "pixels");
    const char *fit;
    size_t n_mean, n_std;
    if (!pixels) return TUTTI_OK;
    TTI_TRY(tti_json_member(what, root, "pixels", JSON_OBJECT, &pixels));
    TTI_TRY(read_numbers(what, pixels, "mean", spec->pixels.mean, &n_mean));
    TTI_TRY(read_numbers(what, pixels, "std", spec->pixels.std, &n_std));
    TTI_TRY(tti_json_read_text(what, pixels, "fit", &fit));
    if (n_mean != n_std || (n_mean != 1 && n_mean != 3))
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: \"pixels\": expected 1 or 3 numbers in mean and std", what);
    spec->pixels.n_channels = (int)n_mean;
    for (int i = 0; i < TTI_N_FITS; i++)
        if (strcmp(fit, fit_names[i]) == 0) {
            spec->pixels.fit = (tti_fit)i;
            return check_pixels(what, spec);
        }
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"fit\" is not middle, square or fill", what);
}

/* Reads element i of what add_numbers writes; NAN: none. */
static double number_at(const json_t *json, size_t i) {
    const json_t *one = json_is_array(json) ? json_array_get(json, i) : json;
    return json_is_number(one) ? json_number_value(one) : NAN;
}

static size_t n_numbers(const json_t *json) {
    return json_is_array(json) ? json_array_size(json) : json_is_number(json);
}

/* There are as many values as "y" has elements and the model has outputs. */
static tutti_status read_target(const char *what, const json_t *root, tti_data_spec *spec) {
    const json_t *target = json_object_get(root, "target");
    if (!target) return TUTTI_OK;
    const json_t *mean = json_object_get(target, "mean"), *std = json_object_get(target, "std");
    int64_t n = tutti_shape_n_elems(&spec->y.shape);
    if (n != spec->n_classes || n_numbers(mean) != (size_t)n || n_numbers(std) != (size_t)n)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: \"target\" has not one mean and std for each of %lld targets", what,
                        (long long)n);
    TTI_TRY(tti_data_spec_alloc_targets(spec, n));
    for (int64_t i = 0; i < n; i++) {
        double m = number_at(mean, (size_t)i), s = number_at(std, (size_t)i);
        if (!isfinite(m) || !isfinite(s) || !(s > 0))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"target\" has no mean and std", what);
        spec->target.mean[i] = m, spec->target.std[i] = s;
    }
    return TUTTI_OK;
}

/* The columns must have as many features and labels as a sample. */
static bool fits_table(const tti_data_spec *spec) {
    const tti_table_spec *t = spec->table;
    bool values = t->labels == TTI_LABEL_VALUE, yes_no = t->labels == TTI_LABEL_YES_NO;
    const tutti_type *x = &spec->stored;
    if (values != (spec->target.n > 0) || yes_no != (spec->n_fields > 0)) return false;
    if (yes_no) return tti_table_has_fields(t, spec->fields, spec->n_fields);
    return x->dtype == TUTTI_F32 && x->shape.n_dims == 1 &&
           (values ? t->n_labels == spec->target.n : spec->class_names != NULL) &&
           x->shape.dim[0] == tti_table_n_features(t);
}

static tutti_status read_table(const char *what, const json_t *root, tti_data_spec *spec) {
    json_t *table = json_object_get(root, "table");
    if (!table) return TUTTI_OK;
    TTI_TRY(tti_json_member(what, root, "table", JSON_OBJECT, &table));
    TTI_TRY(tti_table_spec_parse(what, table, &spec->arena, &spec->table));
    if (fits_table(spec)) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"table\" does not match \"stored\" and the target",
                    what);
}

static tutti_status read_format(const char *what, const json_t *root, tti_data_spec *spec) {
#define NAME(name) #name,
    static const char *const known[] = {TTI_FORMATS(NAME)};
#undef NAME
    const char *name;
    TTI_TRY(tti_json_read_text(what, root, "format", &name));
    for (size_t i = 0; i < TTI_COUNT(known); i++)
        if (strcmp(name, known[i]) == 0) {
            spec->format = known[i];
            return TUTTI_OK;
        }
    char shown[TTI_CLIP];
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"format\": there is no data format '%s'", what,
                    tti_clip(shown, name));
}

static tutti_status read_members(const char *what, const json_t *root, tti_data_spec *spec,
                                 bool *has_tokenizer) {
    int64_t version;
    TTI_TRY(tti_json_read_int(what, root, "version", VERSION, VERSION, &version));
    TTI_TRY(read_format(what, root, spec));
    TTI_TRY(read_type(what, root, "stored", &spec->stored));
    TTI_TRY(read_type(what, root, "x", &spec->x));
    TTI_TRY(read_type(what, root, "y", &spec->y));
    TTI_TRY(tti_json_read_int(what, root, "classes", 0, MAX_CLASSES, &spec->n_classes));
    TTI_TRY(tti_json_read_int(what, root, "tokens", 0, MAX_CLASSES, &spec->n_tokens));
    const json_t *tokenizer = json_object_get(root, "tokenizer");
    if (!json_is_boolean(tokenizer))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"tokenizer\" is not true or false", what);
    *has_tokenizer = json_is_true(tokenizer);
    TTI_TRY(read_fields(what, root, spec));
    TTI_TRY(read_names(what, root, spec));
    TTI_TRY(read_target(what, root, spec));
    TTI_TRY(read_table(what, root, spec));
    return read_pixels(what, root, spec);
}

tutti_status tti_data_spec_parse_body(const char *what, const char *text, size_t n_bytes,
                                      tti_data_spec **out, bool *has_tokenizer) {
    json_t *root;
    *out = NULL;
    TTI_TRY(tti_json_parse(what, text, n_bytes, &root));
    tti_data_spec *spec = tti_data_spec_create();
    tutti_status st = spec ? read_members(what, root, spec, has_tokenizer)
                           : tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
    json_decref(root);
    if (st == TUTTI_OK)
        *out = spec;
    else
        tti_data_spec_release(spec);
    return st;
}

tutti_status tti_data_spec_parse(const char *what, const char *text, size_t n_bytes,
                                 tti_data_spec **out, bool *has_tokenizer) {
    *out = NULL;
    TTI_TRY(tti_json_crc_check(what, CRC_KEY, text, n_bytes));
    return tti_data_spec_parse_body(what, text, n_bytes, out, has_tokenizer);
}

/* ---- files ---- */

static tutti_status path_of(const char *dir, const char *file, char out[PATH_BYTES]) {
    int n = snprintf(out, PATH_BYTES, "%s/%s", dir, file);
    if (n >= 0 && n < PATH_BYTES) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "%.80s...: the path is too long", dir);
}

tutti_status tti_data_spec_save(const tti_data_spec *spec, const char *dir) {
    char path[PATH_BYTES];
    tti_str text = {0};
    TTI_TRY(path_of(dir, TTI_TOKENIZER_FILE, path));
    if (spec->tokenizer) TTI_TRY(tutti_tokenizer_save(spec->tokenizer, path));
    TTI_TRY(path_of(dir, TTI_DATA_SPEC_FILE, path));
    tutti_status st = tti_data_spec_print(spec, &text);
    if (st == TUTTI_OK) st = tti_atomic_file_save(path, text.text, text.n_bytes);
    tti_str_free(&text);
    return st;
}

/* A file of the run that cannot be read is a damaged run, not bad data. */
static tutti_status as_damaged(tutti_status st) {
    char text[512];
    if (st != TUTTI_E_DATA) return st;
    snprintf(text, sizeof text, "%s", tutti_last_error());
    return tti_fail(TUTTI_E_CHECKPOINT, "%s", text);
}

static tutti_status load_tokenizer(const char *dir, tti_data_spec *spec) {
    char path[PATH_BYTES];
    TTI_TRY(path_of(dir, TTI_TOKENIZER_FILE, path));
    return as_damaged(tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = path}, &spec->tokenizer));
}

tutti_status tti_data_spec_load(const char *dir, tti_data_spec **out) {
    char path[PATH_BYTES], *text = NULL;
    size_t n_bytes = 0;
    struct stat info;
    bool has_tokenizer;
    *out = NULL;
    TTI_TRY(path_of(dir, TTI_DATA_SPEC_FILE, path));
    if (stat(path, &info) != 0)
        return tti_fail(
            TUTTI_E_CHECKPOINT,
            "%s: is missing, because an earlier version of Tutti trained this run; `tutti train "
            "--resume %s` writes the file if the training data is available",
            path, dir);
    TTI_TRY(as_damaged(tti_read_file(path, MAX_FILE_BYTES, &text, &n_bytes)));
    tutti_status st = tti_data_spec_parse(path, text, n_bytes, out, &has_tokenizer);
    free(text);
    if (st == TUTTI_OK && has_tokenizer) st = load_tokenizer(dir, *out);
    if (st == TUTTI_OK) return TUTTI_OK;
    tti_data_spec_release(*out);
    *out = NULL;
    return st;
}

/* ---- comparing ---- */

/* The next line of *text, without its indent and the comma at its end. */
static bool next_line(const char **text, char out[TTI_CLIP]) {
    const char *end = strchr(*text, '\n');
    if (!end) return false;
    while (**text == ' ') ++*text;
    int n = (int)(end - *text) - (end > *text && end[-1] == ',');
    snprintf(out, TTI_CLIP, "%.*s", n, *text);
    *text = end + 1;
    return true;
}

/* The keys that enclose a line, each with ": " behind it, or empty. */
typedef struct enclosing {
    char object[TTI_CLIP], column[TTI_CLIP], list[TTI_CLIP];
} enclosing;

static void follow_line(enclosing *in, const char *line) {
    const char *key_end = strstr(line, "\": ");
    int n = key_end ? (int)(key_end + 1 - line) : 0;
    bool opens = strcmp(line, "{") == 0;
    if (key_end && strcmp(key_end + 3, "{") == 0)
        snprintf(in->object, TTI_CLIP, "%.*s: ", n, line);
    else if (key_end && key_end[3] == '[')
        snprintf(in->list, TTI_CLIP, "%.*s: ", n, line);
    else if (strncmp(line, "\"name\": ", 8) == 0)
        snprintf(in->column, TTI_CLIP, "column %.*s: ", TTI_CLIP - 10, line + 8);
    if (opens || line[0] == '}') in->object[0] = in->column[0] = '\0';
    if (opens || line[0] == ']') in->list[0] = '\0';
}

/* The first lines that differ, with the keys around them. */
typedef struct difference {
    char was[TTI_CLIP], now[TTI_CLIP], where[3 * TTI_CLIP];
    bool in_shape;
} difference;

static difference find_difference(const char *was, const char *now) {
    difference d = {.in_shape = false};
    enclosing in = {.object = ""};
    while (next_line(&was, d.was) && next_line(&now, d.now) && strcmp(d.was, d.now) == 0)
        follow_line(&in, d.was);
    snprintf(d.where, sizeof d.where, "%s%s%s", in.object, in.column, in.list);
    d.in_shape = strcmp(in.list, "\"shape\": ") == 0;
    return d;
}

/* Classes and columns say more than the shapes, which come first and follow from them. */
static tutti_status compare_texts(const char *was, const char *now) {
    static const char after_shapes[] = "\n \"classes\": ";
    if (strcmp(was, now) == 0) return TUTTI_OK;
    difference d = find_difference(strchr(was, '\n') + 1, strchr(now, '\n') + 1); /* no checksums */
    const char *a = strstr(was, after_shapes), *b = strstr(now, after_shapes);
    if (d.in_shape && a && b && strcmp(a, b) != 0) d = find_difference(a + 1, b + 1);
    return tti_fail(TUTTI_E_DATA,
                    "data: this run was trained on other data: it was %s%s, and now it is %s%s; "
                    "restore the data of the run, or start a new run",
                    d.where, d.was, d.where, d.now);
}

tutti_status tti_data_spec_compare(const tti_data_spec *was, const tti_data_spec *now) {
    tti_str a = {0}, b = {0};
    tutti_status st = tti_data_spec_print(was, &a);
    if (st == TUTTI_OK) st = tti_data_spec_print(now, &b);
    if (st == TUTTI_OK) st = compare_texts(a.text, b.text);
    if (st == TUTTI_OK && was->tokenizer && !tti_tokenizer_equal(was->tokenizer, now->tokenizer))
        st =
            tti_fail(TUTTI_E_DATA,
                     "data: the training data has another tokenizer than this run was trained with "
                     "(" TTI_TOKENIZER_FILE
                     " in the run folder); restore the data of the run, or start a new run");
    tti_str_free(&a);
    tti_str_free(&b);
    return st;
}

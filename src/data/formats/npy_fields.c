/* npy_fields.c - NumPy arrays as the fields of samples: row i of every array is sample i.
 *
 * An array is called like its field, with or without the word of a split: x, mask_train, test_y.
 * Floats become f32, whole numbers and booleans i32.  Arrays up to SCANNED_BYTES are read once
 * while the data set is opened, so that a bad row does not end a run in its middle. */
#include "data/formats/npy_fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "data/fields.h"
#include "data/formats/npy_place.h"
#include "data/samples.h"
#include "data/table/row_split.h"
#include "ir/graph.h"

enum { SCANNED_BYTES = 1 << 30, MAX_FILES = 3 * TTI_MAX_FIELDS };

/* The split that the name of an array chooses. */
typedef enum of_split { OF_BOTH, OF_TRAIN, OF_TEST, N_OF } of_split;

/* An array that is there. */
typedef struct found_array {
    char file[TTI_MAX_FIELD_NAME + 32]; /* in its place */
    char field[TTI_MAX_FIELD_NAME];
    of_split split;
} found_array;

typedef struct found_arrays {
    const tutti_dataset_desc *desc;
    const char *path;
    bool in_archive;
    found_array at[MAX_FILES];
    int n, n_of[N_OF];
} found_arrays;

typedef struct fields_state {
    tti_npy_array array[TTI_MAX_FIELDS];
    int n;
    tti_row_split rows;
    tutti_samples *samples;     /* of the program; owned; NULL: files */
    tti_expected_labels labels; /* n_classes 0: any labels are expected */
} fields_state;

bool tti_npy_wants_fields(const tutti_dataset_desc *desc) {
    if (desc->spec) return desc->spec->n_fields > 0;
    return desc->fields && desc->fields[0];
}

/* ---- names ---- */

/* Removes "train_" or "_train" and the like. */
static bool strip_word(char *name, const char *const *word) {
    size_t n = strlen(name);
    for (; *word; word++) {
        size_t n_word = strlen(*word);
        if (n <= n_word + 1) continue;
        if (strncasecmp(name, *word, n_word) == 0 && name[n_word] == '_') {
            memmove(name, name + n_word + 1, n - n_word);
            return true;
        }
        if (strcasecmp(name + n - n_word, *word) == 0 && name[n - n_word - 1] == '_') {
            name[n - n_word - 1] = '\0';
            return true;
        }
    }
    return false;
}

/* Whether data.fields names it: item of a list between commas, or the list is "all". */
static bool is_wanted(const found_arrays *f, const char *field) {
    const tutti_dataset_desc *desc = f->desc;
    if (desc->spec) return tti_field_find(desc->spec->fields, desc->spec->n_fields, field) >= 0;
    if (strcmp(desc->fields, "all") == 0) return true;
    for (const char *at = desc->fields; *at;) {
        size_t n = strcspn(at, ",");
        size_t first = strspn(at, " "), last = n;
        while (last > first && at[last - 1] == ' ') last--;
        if (last - first == strlen(field) && memcmp(at + first, field, last - first) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static tutti_status take_file(void *user, const char *file) {
    found_arrays *f = user;
    found_array found = {.split = OF_BOTH};
    size_t n = tti_npy_stem(file);
    bool is_packed = n > 0 && file[n + strlen(".npy")];
    if (n == 0 || (is_packed && f->in_archive)) return TUTTI_OK;       /* not unpacked twice */
    if (n >= TTI_MAX_FIELD_NAME || strchr(file, ',')) return TUTTI_OK; /* no field is called so */
    snprintf(found.file, sizeof found.file, "%s", file);
    snprintf(found.field, sizeof found.field, "%.*s", (int)n, file);
    if (strip_word(found.field, tti_npy_train_words))
        found.split = OF_TRAIN;
    else if (strip_word(found.field, tti_npy_test_words))
        found.split = OF_TEST;
    if (!is_wanted(f, found.field)) return TUTTI_OK;
    if (f->n == MAX_FILES)
        return tti_fail(TUTTI_E_DATA, "%s: more than %d arrays; name the fields in data.fields",
                        f->path, MAX_FILES);
    f->at[f->n++] = found;
    f->n_of[found.split]++;
    return TUTTI_OK;
}

static int by_field(const void *a, const void *b) {
    return strcmp(((const found_array *)a)->field, ((const found_array *)b)->field);
}

/* Keeps the arrays of one kind of name, in the order of their fields. */
static tutti_status keep(found_arrays *f, of_split split) {
    int n = 0;
    for (int i = 0; i < f->n; i++)
        if (f->at[i].split == split) f->at[n++] = f->at[i];
    f->n = n;
    qsort(f->at, (size_t)n, sizeof f->at[0], by_field);
    for (int i = 1; i < n; i++)
        if (strcmp(f->at[i - 1].field, f->at[i].field) == 0)
            return tti_fail(TUTTI_E_DATA, "%s: %s and %s are both the field '%s'", f->path,
                            f->at[i - 1].file, f->at[i].file, f->at[i].field);
    if (n <= TTI_MAX_FIELDS) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: %d fields, at most %d are supported; name the ones to use in data.fields",
                    f->path, n, TTI_MAX_FIELDS);
}

/* *both: the arrays hold both splits. */
static tutti_status choose(const tutti_dataset_desc *desc, found_arrays *f, bool *both) {
    bool has_train = f->n_of[OF_TRAIN] > 0, has_test = f->n_of[OF_TEST] > 0;
    *both = !has_test && !desc->takes_all;
    if (has_test && desc->split == TUTTI_TEST) return keep(f, OF_TEST);
    return keep(f, has_train ? OF_TRAIN : OF_BOTH);
}

/* ---- samples ---- */

static bool is_float(const tti_npy_array *a) { return a->kind == 'f'; }

static tutti_status read_floats(const tti_npy_array *a, int64_t row, float *out) {
    TTI_TRY(tti_npy_read_f32(a, row, out));
    for (size_t i = 0; i < a->row_elems; i++)
        if (!isfinite(out[i]))
            return tti_fail(TUTTI_E_DATA,
                            "%s: row %lld has a value that is not finite (element %zu); "
                            "data.on_error=skip leaves such rows out",
                            a->name, (long long)row, i);
    return TUTTI_OK;
}

static tutti_status read_labels(const tti_npy_array *a, const tti_expected_labels *range,
                                int64_t row, int32_t *out) {
    TTI_TRY(tti_npy_read_i32(a, row, out));
    for (size_t i = 0; i < a->row_elems; i++) {
        if (out[i] >= 0 && out[i] < range->n_classes) continue;
        if (range->has_ignored && out[i] == range->ignored) continue;
        char advice[96] = "train.ignore_index names a label that does not count";
        if (range->is_of_model)
            snprintf(advice, sizeof advice, "the model's own loss ignores only label %lld",
                     (long long)range->ignored);
        return tti_fail(TUTTI_E_DATA,
                        "%s: label %d of row %lld is out of range, 0 .. %lld, the classes of the "
                        "model's output; %s",
                        a->name, out[i], (long long)row, (long long)range->n_classes - 1, advice);
    }
    return TUTTI_OK;
}

static tutti_status read_row(const tti_source *source, const tti_npy_array *arrays, int64_t row,
                             void *x) {
    const fields_state *s = source->state;
    char *to = x;
    for (int i = 0; i < s->n; i++) {
        const tti_npy_array *a = &arrays[i];
        if (is_float(a))
            TTI_TRY(read_floats(a, row, (float *)(void *)to));
        else if (i == s->labels.field && s->labels.n_classes > 0)
            TTI_TRY(read_labels(a, &s->labels, row, (int32_t *)(void *)to));
        else
            TTI_TRY(tti_npy_read_i32(a, row, (int32_t *)(void *)to));
        to += tti_field_bytes(&source->info.fields[i]);
    }
    return TUTTI_OK;
}

static tutti_status fields_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const fields_state *s = source->state;
    int64_t row = tti_row_at(&s->rows, index);
    tti_npy_array rows[TTI_MAX_FIELDS];
    void *memory;
    *y = 0;
    if (!s->samples || !s->samples->get) return read_row(source, s->array, row, x);
    TTI_TRY(tti_npy_get_row(s->array, s->n, row, rows, &memory));
    tutti_status st = read_row(source, rows, 0, x);
    free(memory);
    return st;
}

static void fields_close(tti_source *source) {
    fields_state *s = source->state;
    for (int i = 0; i < s->n; i++) tti_npy_close(&s->array[i]);
    tti_samples_free(s->samples);
    free(s);
}

/* ---- opening ---- */

static tutti_type type_of(const tti_npy_array *a) {
    tutti_type type = {.dtype = is_float(a) ? TUTTI_F32 : TUTTI_I32,
                       .shape.n_dims = a->shape.n_dims - 1};
    for (int i = 0; i < type.shape.n_dims; i++) type.shape.dim[i] = a->shape.dim[i + 1];
    return type;
}

static tutti_status make_spec(const found_arrays *f, const fields_state *s, tti_data_spec *spec) {
    TTI_TRY(tti_data_spec_alloc_fields(spec, f->n));
    for (int i = 0; i < f->n; i++) {
        spec->fields[i] =
            (tutti_field){tti_arena_strdup(&spec->arena, f->at[i].field), type_of(&s->array[i])};
        if (!spec->fields[i].name) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    }
    return TUTTI_OK;
}

/* The fields are those of the training data, whatever else the place has. */
static tutti_status check_field(const found_arrays *f, const fields_state *s, int i,
                                const tutti_field *want) {
    char a[64], b[64];
    if (i >= f->n || strcmp(f->at[i].field, want->name) != 0)
        return tti_fail(TUTTI_E_DATA, "%s: the array '%s' is missing", f->path, want->name);
    tutti_type type = type_of(&s->array[i]);
    if (type.dtype == want->type.dtype && tti_shape_equal(&type.shape, &want->type.shape))
        return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: rows are %s, and the model was trained on %s",
                    s->array[i].name, tti_type_text(&type, a, sizeof a),
                    tti_type_text(&want->type, b, sizeof b));
}

/* Every name of a given list must be there. */
static tutti_status check_list(const found_arrays *f) {
    if (strcmp(f->desc->fields, "all") == 0) return TUTTI_OK;
    for (const char *at = f->desc->fields; *at;) {
        size_t n = strcspn(at, ","), first = strspn(at, " "), last = n;
        bool found = false;
        while (last > first && at[last - 1] == ' ') last--;
        for (int i = 0; i < f->n; i++)
            found |= strlen(f->at[i].field) == last - first &&
                     memcmp(f->at[i].field, at + first, last - first) == 0;
        if (!found)
            return tti_fail(TUTTI_E_DATA,
                            "%s: data.fields names '%.*s', and there is no such array", f->path,
                            (int)(last - first), at + first);
        at += n + (at[n] == ',');
    }
    return TUTTI_OK;
}

static tutti_status check_rows(const fields_state *s) {
    int64_t n = s->array[0].shape.dim[0];
    for (int i = 1; i < s->n; i++)
        if (s->array[i].shape.dim[0] != n)
            return tti_fail(TUTTI_E_DATA,
                            "%s has %lld rows and %s %lld: each row is a sample (data.fields names "
                            "the arrays to use)",
                            s->array[0].name, (long long)n, s->array[i].name,
                            (long long)s->array[i].shape.dim[0]);
    return TUTTI_OK;
}

/* Reads every sample of the split once. */
static tutti_status scan(const tutti_dataset_desc *desc, const tti_source *source) {
    size_t n_bytes = tti_fields_bytes(source->info.fields, source->info.n_fields);
    int32_t y;
    const fields_state *s = source->state;
    bool is_got = s->samples && s->samples->get;
    if (desc->skip_bad || is_got || (uint64_t)source->info.n_samples > SCANNED_BYTES / n_bytes)
        return TUTTI_OK;
    void *x = malloc(n_bytes);
    if (!x) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; i < source->info.n_samples && st == TUTTI_OK; i++)
        st = fields_read(source, i, x, &y);
    free(x);
    return st;
}

static tutti_status expect_labels(tti_source *source, const tti_expected_labels *range,
                                  bool checks) {
    fields_state *s = source->state;
    const tti_npy_array *a = &s->array[range->field];
    bool is_got = s->samples && s->samples->get;
    size_t n_bytes = TTI_MAX(a->row_elems, 1) * sizeof(int32_t);
    s->labels = *range;
    if (!checks || is_got || (uint64_t)source->info.n_samples > SCANNED_BYTES / n_bytes)
        return TUTTI_OK;
    int32_t *labels = malloc(n_bytes);
    if (!labels) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; i < source->info.n_samples && st == TUTTI_OK; i++)
        st = read_labels(a, range, tti_row_at(&s->rows, i), labels);
    free(labels);
    return st;
}

static tutti_status open_arrays(const tutti_dataset_desc *desc, const tti_npy_place *where,
                                const found_arrays *f, fields_state *s) {
    for (int i = 0; i < f->n; i++) {
        tutti_status st =
            tti_npy_open_at(where, f->at[i].file, desc->max_unpacked, &s->array[s->n]);
        if (st == TUTTI_E_DATA && !desc->spec && strcmp(desc->fields, "all") == 0)
            return tti_fail(st, "%s (data.fields names the arrays to use)", tutti_last_error());
        TTI_TRY(st);
        s->n++;
    }
    return TUTTI_OK;
}

static tutti_status describe(const tutti_dataset_desc *desc, const found_arrays *f,
                             tti_source *source) {
    const fields_state *s = source->state;
    if (!desc->spec) {
        TTI_TRY(check_list(f));
        TTI_TRY(make_spec(f, s, source->new_spec));
    }
    for (int i = 0; i < source->spec->n_fields; i++)
        TTI_TRY(check_field(f, s, i, &source->spec->fields[i]));
    source->info.n_fields = source->spec->n_fields;
    source->info.fields = source->spec->fields;
    source->expect_labels = expect_labels;
    size_t n_bytes = tti_fields_bytes(source->info.fields, source->info.n_fields);
    source->stored = (tutti_type){TUTTI_U8, TUTTI_SHAPE((int64_t)n_bytes)};
    source->info.y = (tutti_type){TUTTI_I32, {0}};
    TTI_TRY(tti_count_samples(desc, s->rows.n, &source->info.n_samples));
    return scan(desc, source);
}

static tutti_status open_at(const tutti_dataset_desc *desc, const tti_npy_place *where,
                            bool by_name, found_arrays *f, tti_source *source) {
    bool both;
    f->desc = desc;
    f->path = where->path;
    f->in_archive = where->archive;
    TTI_TRY(tti_npy_each(where, take_file, f));
    TTI_TRY(choose(desc, f, &both));
    if (f->n == 0)
        return tti_fail(TUTTI_E_DATA, "%s: the %s split has no arrays (.npy)", where->path,
                        desc->split == TUTTI_TEST ? "test" : "training");
    fields_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    source->state = s;
    source->read = fields_read;
    source->close = fields_close;
    tutti_status st;
    TTI_TRY_GOTO(open_arrays(desc, where, f, s), cleanup);
    TTI_TRY_GOTO(check_rows(s), cleanup);
    s->rows = tti_row_split_make(desc, s->array[0].shape.dim[0], by_name || !both);
    st = describe(desc, f, source);
cleanup:
    if (st != TUTTI_OK) fields_close(source);
    return st;
}

/* The wanted fields of samples of the program, in the order of their names. */
static tutti_status take_samples(const tutti_dataset_desc *desc, found_arrays *f, fields_state *s) {
    bool is_test = desc->samples[TUTTI_TEST] && desc->split == TUTTI_TEST;
    TTI_TRY(tti_samples_copy(desc->samples[is_test ? TUTTI_TEST : TUTTI_TRAIN], &s->samples));
    for (int i = 0; i < s->samples->n_fields; i++) {
        if (!is_wanted(f, s->samples->fields[i].name)) continue;
        snprintf(f->at[f->n].field, sizeof f->at[0].field, "%s", s->samples->fields[i].name);
        f->at[f->n++].split = OF_BOTH;
    }
    TTI_TRY(keep(f, OF_BOTH));
    if (f->n == 0) return tti_fail(TUTTI_E_INVALID, "samples: data.fields names none of them");
    for (; s->n < f->n; s->n++) {
        int at = tti_field_find(s->samples->fields, s->samples->n_fields, f->at[s->n].field);
        TTI_TRY(tti_npy_of_samples(s->samples, at, &s->array[s->n]));
    }
    return TUTTI_OK;
}

static tutti_status open_samples(const tutti_dataset_desc *desc, found_arrays *f,
                                 tti_source *source) {
    fields_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    f->desc = desc;
    f->path = "samples";
    source->state = s;
    source->read = fields_read;
    source->close = fields_close;
    tutti_status st = take_samples(desc, f, s);
    if (st == TUTTI_OK) {
        bool whole = desc->samples[TUTTI_TEST] || desc->takes_all;
        s->rows = tti_row_split_make(desc, s->array[0].shape.dim[0], whole);
        st = describe(desc, f, source);
    }
    if (st != TUTTI_OK) fields_close(source);
    return st;
}

tutti_status tti_npy_fields_open(const tutti_dataset_desc *desc, tti_source *source) {
    bool has_samples = desc->samples[TUTTI_TRAIN] || desc->samples[TUTTI_TEST];
    if (has_samples) {
        found_arrays *given = calloc(1, sizeof *given);
        if (!given) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
        tutti_status st = open_samples(desc, given, source);
        free(given);
        return st;
    }
    tti_npy_place where;
    bool by_name;
    TTI_TRY(tti_npy_find_place(desc, &where, &by_name));
    found_arrays *f = calloc(1, sizeof *f);
    if (!f) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    tutti_status st = open_at(desc, &where, by_name, f, source);
    free(f);
    return st;
}

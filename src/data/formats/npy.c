/* npy.c - the format "npy": NumPy arrays of samples and labels, as .npy files in a folder or in an
 * .npz archive.
 *
 * Names, in any case: x_train y_train x_test y_test (or val), train_x ...; or x and y, which are
 * divided; or archives with train and test in their names, each with x and y. u8 is treated as
 * pixels.
 *
 * Labels are classes, tokens or the values of a regression; values are standardized and stored
 * (target.h) when the data set is opened. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/data_spec.h"
#include "data/fields.h"
#include "data/formats/npy_array.h"
#include "data/formats/npy_fields.h"
#include "data/formats/npy_place.h"
#include "data/samples.h"
#include "data/table/label_range.h"
#include "data/table/row_split.h"
#include "data/target.h"
#include "ir/graph.h"

typedef struct npy_state {
    tti_npy_array x, y;
    tti_row_split rows;
    int64_t n_classes;
    int32_t
        *value; /* [rows of the split, targets], -1: a row without values; NULL: no regression */
    tutti_samples *samples; /* of the program; owned; NULL: files */
    int32_t *label; /* [n_classes], ascending: the labels in the array; NULL: they are 0, 1, ... */
} npy_state;

/* ---- which arrays ---- */

typedef struct names {
    char x[32], y[32]; /* without .npy */
} names;

static tutti_status open_array(const tutti_dataset_desc *desc, const tti_npy_place *where,
                               const char *name, tti_npy_array *out) {
    char path[TTI_NPY_PATH];
    bool found;
    TTI_TRY(tti_npy_find(where, name, &found, path));
    if (!found)
        return tti_fail(TUTTI_E_DATA, "%s: %s.npy is missing, the labels of the samples",
                        where->path, name);
    return where->archive ? tti_npy_open(where->path, path, desc->max_unpacked, out)
                          : tti_npy_open(path, NULL, desc->max_unpacked, out);
}

/* The first of x_WORD and WORD_x that is there. */
static tutti_status first_of(const tti_npy_place *where, const char *const *word, bool *found,
                             names *out) {
    char path[TTI_NPY_PATH];
    size_t n_words = 0;
    *found = false;
    while (word[n_words]) n_words++;
    for (size_t i = 0; i < 2 * n_words && !*found; i++) {
        bool last = i >= n_words; /* x or y follows the word */
        const char *w = word[i % n_words];
        snprintf(out->x, sizeof out->x, "%s_%s", last ? w : "x", last ? "x" : w);
        snprintf(out->y, sizeof out->y, "%s_%s", last ? w : "y", last ? "y" : w);
        TTI_TRY(tti_npy_find(where, out->x, found, path));
    }
    return TUTTI_OK;
}

/* *both: the arrays hold both splits. */
static tutti_status choose(const tutti_dataset_desc *desc, const tti_npy_place *where, names *out,
                           bool *both) {
    names train, test;
    bool has_train, has_test, is_plain = false;
    char path[TTI_NPY_PATH];
    TTI_TRY(first_of(where, tti_npy_train_words, &has_train, &train));
    TTI_TRY(first_of(where, tti_npy_test_words, &has_test, &test));
    if (!has_train) {
        TTI_TRY(tti_npy_find(where, "x", &is_plain, path));
        train = (names){"x", "y"};
    }
    *both = !has_test && !desc->takes_all;
    bool is_test = has_test && desc->split == TUTTI_TEST;
    *out = is_test ? test : train;
    if (is_test || has_train || is_plain) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: no arrays were found; expected x_train and y_train, or train_x and "
                    "train_y, or x and y, and the same with test or val",
                    where->path);
}

/* ---- the data set ---- */

static tutti_status check_classes(const npy_state *s, int64_t row, const int32_t *y) {
    for (size_t i = 0; i < s->y.row_elems; i++)
        if (y[i] < 0 || y[i] >= s->n_classes)
            return tti_fail(TUTTI_E_DATA, "%s: label %d of row %lld is out of range, 0 .. %lld",
                            s->y.name, y[i], (long long)row, (long long)s->n_classes - 1);
    return TUTTI_OK;
}

static int compare_labels(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* A label in the array becomes its class. */
static tutti_status find_class(const npy_state *s, int64_t row, int32_t *y) {
    const int32_t *at =
        bsearch(y, s->label, (size_t)s->n_classes, sizeof *s->label, compare_labels);
    if (!at)
        return tti_fail(TUTTI_E_DATA, "%s: label %d of row %lld does not occur in training",
                        s->y.name, *y, (long long)row);
    *y = (int32_t)(at - s->label);
    return TUTTI_OK;
}

static tutti_status bad_value(const npy_state *s, int64_t row) {
    return tti_fail(TUTTI_E_DATA,
                    "%s: row %lld has a label that is not a finite number, or farther than %d "
                    "standard deviations from the mean (data.on_error=skip leaves such rows out)",
                    s->y.name, (long long)row, TTI_TARGET_MOST);
}

/* The values of a regression alone. */
static tutti_status npy_label(const tti_source *source, int64_t index, int32_t *y) {
    const npy_state *s = source->state;
    size_t n = s->y.row_elems;
    memcpy(y, s->value + (size_t)index * n, n * sizeof *y);
    return y[0] != -1 ? TUTTI_OK : bad_value(s, tti_row_at(&s->rows, index));
}

/* A row of arrays x and y. */
static tutti_status read_row(const tti_source *source, const tti_npy_array pair[2], int64_t row,
                             void *x, int32_t *y) {
    const npy_state *s = source->state;
    if (!s->value) TTI_TRY(tti_npy_read_i32(&pair[1], row, y));
    if (source->stored.dtype == TUTTI_U8) return tti_npy_read_u8(&pair[0], row, x);
    if (source->stored.dtype == TUTTI_I32) return tti_npy_read_i32(&pair[0], row, x);
    return tti_npy_read_f32(&pair[0], row, x);
}

/* Both from one call of the program's function. */
static tutti_status read_got_row(const tti_source *source, int64_t row, void *x, int32_t *y) {
    const npy_state *s = source->state;
    const tti_npy_array pair[2] = {s->x, s->y};
    tti_npy_array rows[2];
    void *memory;
    TTI_TRY(tti_npy_get_row(pair, 2, row, rows, &memory));
    tutti_status st = read_row(source, rows, 0, x, y);
    free(memory);
    return st;
}

static tutti_status npy_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const npy_state *s = source->state;
    int64_t row = tti_row_at(&s->rows, index);
    if (s->samples && s->samples->get)
        TTI_TRY(read_got_row(source, row, x, y));
    else
        TTI_TRY(read_row(source, (const tti_npy_array[2]){s->x, s->y}, row, x, y));
    if (s->value) return npy_label(source, index, y);
    return s->label ? find_class(s, row, y) : check_classes(s, row, y);
}

static void close_arrays(npy_state *s) {
    tti_npy_close(&s->x);
    tti_npy_close(&s->y);
    tti_samples_free(s->samples);
    free(s->value);
    free(s->label);
    free(s);
}

static void npy_close(tti_source *source) { close_arrays(source->state); }

enum { USUAL_CLASSES = 1024, USUAL_TOKENS = 1 << 18 };

static tutti_status range_of(const tti_npy_array *a, tti_label_range *out) {
    int32_t *row = malloc(a->row_elems * sizeof *row);
    *out = (tti_label_range){0};
    if (!row) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; i < a->shape.dim[0] && st == TUTTI_OK; i++) {
        st = tti_npy_read_i32(a, i, row);
        for (size_t k = 0; k < a->row_elems && st == TUTTI_OK; k++)
            tti_label_range_add(out, row[k], i);
    }
    free(row);
    return st;
}

/* ---- labels such as -1 and 1, which are mapped to classes in ascending order ---- */

/* The class names of the run, if they are such labels. */
static tutti_status take_labels(const tti_data_spec *spec, npy_state *s) {
    bool are_labels = spec->class_names && strcmp(spec->format, "npy") == 0;
    if (!are_labels) return TUTTI_OK;
    s->n_classes = spec->n_classes;
    s->label = calloc((size_t)spec->n_classes + 1, sizeof *s->label);
    if (!s->label) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    for (int64_t i = 0; i < spec->n_classes; i++)
        s->label[i] = (int32_t)strtol(spec->class_names[i], NULL, 10);
    return TUTTI_OK;
}

/* Adds a label to the ascending list; false: there are too many. */
static bool add_label(npy_state *s, int32_t label) {
    int64_t i = s->n_classes;
    if (bsearch(&label, s->label, (size_t)i, sizeof label, compare_labels)) return true;
    if (i == USUAL_CLASSES) return false;
    for (; i > 0 && s->label[i - 1] > label; i--) s->label[i] = s->label[i - 1];
    s->label[i] = label;
    s->n_classes++;
    return true;
}

static tutti_status learn_labels(npy_state *s, tti_data_spec *spec) {
    s->n_classes = 0;
    s->label = calloc(USUAL_CLASSES, sizeof *s->label);
    if (!s->label) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    for (int64_t i = 0; i < s->y.shape.dim[0]; i++) {
        int32_t label;
        TTI_TRY(tti_npy_read_i32(&s->y, i, &label));
        if (!add_label(s, label))
            return tti_fail(TUTTI_E_DATA,
                            "%s: some labels are negative, and there are more than %d different "
                            "ones; classes are numbered from 0",
                            s->y.name, USUAL_CLASSES);
    }
    spec->class_names =
        tti_arena_alloc(&spec->arena, ((size_t)s->n_classes + 1) * sizeof *spec->class_names);
    for (int64_t i = 0; i < s->n_classes && !spec->arena.failed; i++)
        spec->class_names[i] = tti_arena_printf(&spec->arena, "%d", s->label[i]);
    return spec->arena.failed ? tti_fail(TUTTI_E_NOMEM, "npy: out of memory") : TUTTI_OK;
}

static tutti_status check_labels(const npy_state *s) {
    for (int64_t i = 0; i < s->y.shape.dim[0]; i++) {
        int32_t label;
        TTI_TRY(tti_npy_read_i32(&s->y, i, &label));
        TTI_TRY(find_class(s, i, &label));
    }
    return TUTTI_OK;
}

/* All labels are looked at, whatever the split, so that none fails in the middle of a run. */
static tutti_status count_classes(const tutti_dataset_desc *desc, tti_source *source) {
    npy_state *s = source->state;
    tti_label_range range;
    bool are_tokens = s->y.row_elems > 1;
    s->n_classes = desc->n_classes;
    if (s->samples && s->samples->get && s->n_classes > 0) return TUTTI_OK; /* checked when read */
    if (desc->spec) TTI_TRY(take_labels(desc->spec, s));
    if (s->label) return check_labels(s);
    TTI_TRY(range_of(&s->y, &range));
    if (range.least < 0 && !desc->spec && desc->n_classes == 0 && !are_tokens)
        return learn_labels(s, source->new_spec);
    if (!are_tokens) tti_label_range_note(&range, s->y.name, desc, &source->notices);
    return tti_label_range_check(&range, s->y.name, "data.classes",
                                 are_tokens ? USUAL_TOKENS : USUAL_CLASSES, &s->n_classes);
}

/* Whole numbers are tokens.  Targets of the same shape are tokens too, of the same vocabulary. */
static tutti_status count_tokens(const tutti_dataset_desc *desc, tti_source *source) {
    npy_state *s = source->state;
    tti_label_range range;
    bool targets = !s->value && tti_shape_equal(&source->stored.shape, &source->info.y.shape);
    if (source->stored.dtype != TUTTI_I32) return TUTTI_OK;
    TTI_TRY(range_of(&s->x, &range));
    if (range.least < 0)
        return tti_fail(TUTTI_E_DATA,
                        "%s: %lld of row %lld is not a token: tokens are 0 or more; give other "
                        "numbers as floats, such as x.astype('float32')",
                        s->x.name, (long long)range.least, (long long)range.least_at);
    int64_t most = desc->spec ? desc->spec->n_tokens : 0;
    TTI_TRY(tti_label_range_check(&range, s->x.name, "data.classes", USUAL_TOKENS, &most));
    source->info.n_tokens = desc->spec ? most : range.most + 1;
    if (desc->n_classes == 0 && targets)
        s->n_classes = source->info.n_classes = TTI_MAX(s->n_classes, source->info.n_tokens);
    return TUTTI_OK;
}

/* ---- the arrays ---- */

static tutti_status check_arrays(const npy_state *s, bool values) {
    if (s->y.kind == 'f' && !values)
        return tti_fail(
            TUTTI_E_DATA,
            "%s: labels are floats; to predict values give train.loss=mse (or mae, "
            "huber, smooth_l1); for classes give whole numbers, such as y.astype('int64')",
            s->y.name);
    if (s->x.shape.dim[0] != s->y.shape.dim[0])
        return tti_fail(TUTTI_E_DATA, "%s: %lld labels for the %lld samples of %s", s->y.name,
                        (long long)s->y.shape.dim[0], (long long)s->x.shape.dim[0], s->x.name);
    return TUTTI_OK;
}

static tutti_status take_samples(const tutti_samples *given, npy_state *s) {
    int x = -1, y = -1;
    TTI_TRY(tti_samples_copy(given, &s->samples));
    x = tti_field_find(s->samples->fields, s->samples->n_fields, "x");
    y = tti_field_find(s->samples->fields, s->samples->n_fields, "y");
    if (x < 0 || y < 0)
        return tti_fail(TUTTI_E_INVALID,
                        "samples: there is no field '%s'; or give data.fields for samples of named "
                        "fields",
                        x < 0 ? "x" : "y");
    TTI_TRY(tti_npy_of_samples(s->samples, x, &s->x));
    return tti_npy_of_samples(s->samples, y, &s->y);
}

/* The program's samples of the test split if it has one, else of the training split for both. */
static tutti_status open_samples(const tutti_dataset_desc *desc, npy_state **out) {
    bool has_test = desc->samples[TUTTI_TEST] != NULL;
    bool is_test = has_test && desc->split == TUTTI_TEST;
    npy_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    s->x.fd = s->y.fd = -1;
    tutti_status st = take_samples(desc->samples[is_test ? TUTTI_TEST : TUTTI_TRAIN], s);
    if (st != TUTTI_OK) {
        close_arrays(s);
        return st;
    }
    s->rows = tti_row_split_make(desc, s->x.shape.dim[0], has_test || desc->takes_all);
    *out = s;
    return TUTTI_OK;
}

static tutti_status open_arrays(const tutti_dataset_desc *desc, npy_state **out) {
    if (desc->samples[TUTTI_TRAIN] || desc->samples[TUTTI_TEST]) return open_samples(desc, out);
    tti_npy_place where;
    names pair;
    bool by_name, both;
    TTI_TRY(tti_npy_find_place(desc, &where, &by_name));
    TTI_TRY(choose(desc, &where, &pair, &both));
    npy_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    s->x.fd = s->y.fd = -1;
    tutti_status st = open_array(desc, &where, pair.x, &s->x);
    if (st == TUTTI_OK) st = open_array(desc, &where, pair.y, &s->y);
    if (st != TUTTI_OK) {
        close_arrays(s);
        return st;
    }
    s->rows = tti_row_split_make(desc, s->x.shape.dim[0], by_name || !both);
    *out = s;
    return TUTTI_OK;
}

/* ---- values ---- */

/* As in the training of the model, or as data.target says; "auto": floats are values. */
static bool wants_values(const tutti_dataset_desc *desc, const tti_npy_array *y) {
    const char *target = desc->target ? desc->target : "class";
    if (desc->spec) return desc->spec->target.n > 0;
    return strcmp(target, "value") == 0 || (strcmp(target, "auto") == 0 && y->kind == 'f');
}

static bool are_finite(const double *x, size_t n) {
    bool good = true;
    for (size_t k = 0; k < n; k++) good = good && isfinite(x[k]);
    return good;
}

/* Statistics of one target over the training rows.  Distances are divided by the largest one, so
 * that their squares stay in the range of f64. */
typedef struct target_sums {
    double sum, least, most, squares;
} target_sums;

static double largest_distance(const target_sums *s, double mean) {
    return fmax(s->most - mean, mean - s->least);
}

static void add_to_sums(target_sums *s, double x) {
    s->sum += x, s->least = fmin(s->least, x), s->most = fmax(s->most, x);
}

static void add_to_squares(target_sums *s, double x, double mean) {
    double largest = largest_distance(s, mean);
    double distance = largest > 0 ? (x - mean) / largest : 0;
    s->squares += distance * distance;
}

/* One pass over the training rows with finite values; *n counts them. */
static tutti_status sum_rows(const tutti_dataset_desc *desc, const npy_state *s,
                             const tti_row_split *rows, const double *mean, double *row,
                             target_sums *sums, int64_t *n) {
    *n = 0;
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t at = tti_row_at(rows, i);
        TTI_TRY(tti_npy_read_f64(&s->y, at, row));
        bool good = are_finite(row, s->y.row_elems);
        if (!good && !desc->skip_bad) return bad_value(s, at);
        for (size_t k = 0; k < s->y.row_elems && good; k++)
            if (mean)
                add_to_squares(&sums[k], row[k], mean[k]);
            else
                add_to_sums(&sums[k], row[k]);
        *n += good;
    }
    if (*n > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: no training row has finite values", s->y.name);
}

static tutti_status take_target(const npy_state *s, const target_sums *sums, size_t k, int64_t n,
                                tti_target_spec *out) {
    out->std[k] = largest_distance(sums, out->mean[k]) * sqrt(sums->squares / (double)n);
    if (isfinite(out->mean[k]) && isfinite(out->std[k]) && out->std[k] > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: target %zu has %s", s->y.name, k,
                    sums->least == sums->most
                        ? "only one value in the training rows, so there is nothing to learn"
                        : "numbers that are too large or too close together");
}

static tutti_status measure_targets(const tutti_dataset_desc *desc, const npy_state *s,
                                    const tti_row_split *rows, double *row, target_sums *sums,
                                    tti_target_spec *out) {
    int64_t n;
    for (size_t k = 0; k < s->y.row_elems; k++)
        sums[k] = (target_sums){.least = INFINITY, .most = -INFINITY};
    TTI_TRY(sum_rows(desc, s, rows, NULL, row, sums, &n));
    for (size_t k = 0; k < s->y.row_elems; k++) {
        bool same = sums[k].least == sums[k].most;
        out->mean[k] = same ? sums[k].least : sums[k].sum / (double)n;
    }
    TTI_TRY(sum_rows(desc, s, rows, out->mean, row, sums, &n));
    for (size_t k = 0; k < s->y.row_elems; k++) TTI_TRY(take_target(s, &sums[k], k, n, out));
    return TUTTI_OK;
}

/* The mean and standard deviation of each target, from the training rows. */
static tutti_status learn_values(const tutti_dataset_desc *desc, const npy_state *s,
                                 const tti_row_split *rows, tti_data_spec *spec) {
    TTI_TRY(tti_data_spec_alloc_targets(spec, (int64_t)s->y.row_elems));
    target_sums *sums = calloc(s->y.row_elems, sizeof *sums);
    double *row = malloc(s->y.row_elems * sizeof *row);
    tutti_status st = sums && row ? measure_targets(desc, s, rows, row, sums, &spec->target)
                                  : tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    free(sums);
    free(row);
    return st;
}

/* Row i of the split; -1 everywhere if the row cannot be used. */
static tutti_status encode_row(const tutti_dataset_desc *desc, npy_state *s,
                               const tti_target_spec *target, int64_t i, double *row) {
    int32_t *out = s->value + (size_t)i * s->y.row_elems;
    int64_t at = tti_row_at(&s->rows, i);
    bool good = true;
    TTI_TRY(tti_npy_read_f64(&s->y, at, row));
    for (size_t k = 0; k < s->y.row_elems && good; k++)
        good = tti_target_encode((row[k] - target->mean[k]) / target->std[k], &out[k]);
    for (size_t k = 0; k < s->y.row_elems && !good; k++) out[k] = -1;
    return good || desc->skip_bad ? TUTTI_OK : bad_value(s, at);
}

static tutti_status encode_values(const tutti_dataset_desc *desc, npy_state *s,
                                  const tti_target_spec *target) {
    double *row = malloc(s->y.row_elems * sizeof *row);
    s->value = calloc((size_t)s->rows.n, s->y.row_elems * sizeof *s->value);
    tutti_status st = TUTTI_OK;
    if (!row || !s->value)
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory for the values of %lld rows", s->y.name,
                      (long long)s->rows.n);
    for (int64_t i = 0; i < s->rows.n && st == TUTTI_OK; i++)
        st = encode_row(desc, s, target, i, row);
    free(row);
    return st;
}

/* The mean and standard deviation of each target of the training split, whose arrays differ from
 * those of source. */
static tutti_status learn_from_training(const tutti_dataset_desc *desc, tti_data_spec *spec) {
    tutti_dataset_desc train = *desc;
    npy_state *s;
    int64_t n;
    train.split = TUTTI_TRAIN;
    train.n_samples = 0;
    TTI_TRY(open_arrays(&train, &s));
    tutti_status st = check_arrays(s, true);
    if (st == TUTTI_OK) st = tti_count_samples(&train, s->rows.n, &n);
    if (st == TUTTI_OK) st = learn_values(&train, s, &s->rows, spec);
    close_arrays(s);
    return st;
}

static tutti_status open_values(const tutti_dataset_desc *desc, tti_source *source) {
    npy_state *s = source->state;
    if (!desc->spec)
        TTI_TRY(desc->split == TUTTI_TRAIN ? learn_values(desc, s, &s->rows, source->new_spec)
                                           : learn_from_training(desc, source->new_spec));
    int64_t n = source->spec->target.n;
    if ((int64_t)s->y.row_elems != n)
        return tti_fail(TUTTI_E_DATA, "%s: %zu values for each sample, and the model predicts %lld",
                        s->y.name, s->y.row_elems, (long long)n);
    TTI_TRY(encode_values(desc, s, &source->spec->target));
    source->info.n_classes = n;
    source->info.y = tti_target_type(n);
    source->label = npy_label;
    return TUTTI_OK;
}

/* The type of a row. */
static tutti_type type_of(const tti_npy_array *a, tutti_dtype dtype) {
    tutti_type type = {.dtype = dtype, .shape.n_dims = a->shape.n_dims - 1};
    for (int i = 0; i < type.shape.n_dims; i++) type.shape.dim[i] = a->shape.dim[i + 1];
    return type;
}

static tutti_status describe(const tutti_dataset_desc *desc, tti_source *source) {
    npy_state *s = source->state;
    bool pixels = s->x.kind == 'u' && s->x.width == 1;
    bool values = wants_values(desc, &s->y);
    TTI_TRY(check_arrays(s, values));
    TTI_TRY(tti_count_samples(desc, s->rows.n, &source->info.n_samples));
    if (values) {
        TTI_TRY(open_values(desc, source));
    } else {
        TTI_TRY(count_classes(desc, source));
        source->info.n_classes = s->n_classes;
        source->info.y = type_of(&s->y, TUTTI_I32);
    }
    source->stored = type_of(&s->x, pixels ? TUTTI_U8 : s->x.kind == 'f' ? TUTTI_F32 : TUTTI_I32);
    if (!pixels) return count_tokens(desc, source);
    TTI_TRY(tti_source_normalise(desc, source));
    return TUTTI_OK;
}

static tutti_status npy_open(const tutti_dataset_desc *desc, tti_source *source) {
    npy_state *s;
    if (tti_npy_wants_fields(desc)) return tti_npy_fields_open(desc, source);
    TTI_TRY(open_arrays(desc, &s));
    source->state = s;
    source->read = npy_read;
    source->close = npy_close;
    tutti_status st = describe(desc, source);
    if (st != TUTTI_OK) npy_close(source);
    return st;
}

const tti_format tti_format_npy = {
    .name = "npy",
    .doc = "NumPy arrays x and y, or named fields, as .npy files or in an .npz",
    .open = npy_open,
};

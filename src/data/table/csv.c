/* csv.c - the format "csv": tables, read with the column types of the training rows (table_spec.h).
 *
 * A cell is stored as one float: a standardized number, or the number of a category, which becomes
 * its features when the sample is read. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/problem.h"
#include "data/fields.h"
#include "data/files/byte_reader.h"
#include "data/files/file_list.h"
#include "data/similar_names.h"
#include "data/table/csv_text.h"
#include "data/table/csv_value.h"
#include "data/table/row_split.h"
#include "data/table/table_cell.h"
#include "data/table/table_learn.h"
#include "data/target.h"

#define MAX_CSV_BYTES ((size_t)1 << 34)

enum { NO_LABEL = -1 };

typedef struct csv_state {
    const tti_table_spec *table; /* of the specification */
    int n_active;                /* columns that have features */
    int *active;                 /* [n_active] */
    float *code;                 /* [n_rows, n_active] */
    int64_t n_targets;           /* of a row */
    int32_t *y;                  /* [n_rows, n_targets]; NO_LABEL: of no known class; or values
                                    (target.h), or 0 and 1 */
    int64_t *line;               /* [n_rows] */
    double *class_value;         /* [n_classes], ascending, of labels that are numbers */
    char *path;
    bool rows_only; /* labels are not looked at */
} csv_state;

/* A file on its way into the state. */
typedef struct encoder {
    const tutti_dataset_desc *desc;
    const tti_csv_text *csv;
    const tti_row_split *rows;
    const tti_data_spec *spec;
    csv_state *state;
    tti_str *notices;
    int *at; /* [columns of the specification]: where it is in the file, -1: nowhere */
} encoder;

/* ---- reading ---- */

static int64_t line_at(const encoder *e, int64_t i) { return e->csv->line[tti_row_at(e->rows, i)]; }

static tutti_status parse_csv(const char *path, char *text, size_t n_bytes, bool keeps_empty,
                              const tti_table_spec *known, tti_csv_text *out) {
    int n_names = known && known->has_names ? known->n_columns : 0;
    const char **names = malloc(((size_t)n_names + 1) * sizeof *names);
    if (!names) {
        free(text);
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    }
    for (int i = 0; i < n_names; i++) names[i] = known->column[i].name;
    const tti_csv_desc desc = {path, names, n_names, keeps_empty};
    tutti_status st = tti_csv_text_parse(&desc, text, n_bytes, out);
    free(names);
    return st;
}

static tutti_status read_csv(const tutti_dataset_desc *desc, const char *path,
                             const tti_table_spec *known, tti_csv_text *out) {
    tti_reader *reader;
    char *text;
    size_t n_bytes;
    bool in_memory = desc->rows_only && desc->rows;
    TTI_TRY(in_memory ? tti_reader_open_memory(desc->rows, desc->n_row_bytes, path, &reader)
                      : tti_reader_open(path, &reader));
    tti_reader_allow(reader, desc->max_unpacked);
    tutti_status st = tti_reader_read_all(reader, MAX_CSV_BYTES, &text, &n_bytes);
    tti_reader_close(reader);
    return st == TUTTI_OK ? parse_csv(path, text, n_bytes, desc->rows_only, known, out) : st;
}

/* The one file of a split. */
static tutti_status read_split(const tutti_dataset_desc *desc, const tti_table_spec *known,
                               tti_csv_text *csv, bool *both) {
    tti_file_list list;
    *both = false;
    if (desc->rows_only) return read_csv(desc, desc->dir, known, csv);
    TTI_TRY(tti_file_list_make(desc, "csv", ".csv", &list));
    tutti_status st =
        list.n == 1
            ? read_csv(desc, list.path[0], known, csv)
            : tti_fail(TUTTI_E_DATA, "%s: csv: %zu files for a split (%s, %s), expected one",
                       desc->dir, list.n, list.path[0], list.path[1]);
    *both = list.both;
    tti_file_list_free(&list);
    return st;
}

/* ---- columns of a file ---- */

/* Column i of the training table; -1: none.  Columns without a name are found by their order. */
static int find_name(const tti_csv_text *csv, const tti_table_spec *t, int column) {
    const char *name = t->column[column].name;
    int n_before = 0;
    for (int i = 0; i < column && !name[0]; i++) n_before += !t->column[i].name[0];
    for (int i = 0; i < csv->n_columns; i++)
        if (strcmp(csv->header[i], name) == 0 && n_before-- == 0) return i;
    return -1;
}

static bool is_label(const tti_table_spec *t, int column) {
    return t->column[column].kind == TTI_COLUMN_LABEL;
}

/* Columns that the training table does not have. */
static void report_extra(const encoder *e) {
    const tti_table_spec *t = e->spec->table;
    char clipped[TTI_CLIP];
    for (int i = 0; i < e->csv->n_columns; i++) {
        bool known = false;
        for (int k = 0; k < t->n_columns && !known; k++) known = e->at[k] == i;
        if (!known)
            tti_str_printf(e->notices, "%s: column '%s' is ignored: the training rows have none\n",
                           e->csv->name, tti_clip(clipped, e->csv->header[i]));
    }
}

static tutti_status fail_missing_column(const encoder *e, const char *name) {
    char clipped[TTI_CLIP], found[TTI_CLIP];
    for (int i = 0; i < e->csv->n_columns; i++)
        if (name[0] && tti_names_look_alike(name, e->csv->header[i]))
            return tti_fail(TUTTI_E_DATA,
                            "%s: column '%s' of the training rows is missing; '%s' differs from it "
                            "in case, accents, blanks or the Unicode form of letters",
                            e->csv->name, tti_clip(clipped, name),
                            tti_clip(found, e->csv->header[i]));
    return tti_fail(TUTTI_E_DATA, "%s: column '%s' of the training rows is missing", e->csv->name,
                    tti_clip(clipped, name));
}

static tutti_status match_by_name(const encoder *e) {
    const tti_table_spec *t = e->spec->table;
    char clipped[TTI_CLIP];
    if (!e->csv->header)
        return tti_fail(TUTTI_E_DATA,
                        "%s: no column has a name of the training table, such as '%s'; give the "
                        "file the first line with names that the training file has",
                        e->csv->name, tti_clip(clipped, t->column[0].name));
    for (int i = 0; i < t->n_columns; i++) {
        e->at[i] = find_name(e->csv, t, i);
        bool needed =
            t->column[i].kind != TTI_COLUMN_IGNORE && !(e->desc->rows_only && is_label(t, i));
        if (e->at[i] < 0 && needed) return fail_missing_column(e, t->column[i].name);
    }
    report_extra(e);
    return TUTTI_OK;
}

static tutti_status match_columns(const encoder *e) {
    const tti_table_spec *t = e->spec->table;
    if (t->has_names) return match_by_name(e);
    if (e->csv->header)
        return tti_fail(TUTTI_E_DATA,
                        "%s:1: the first line has names, but the training file has none",
                        e->csv->name);
    bool lacks_label = e->desc->rows_only && e->csv->n_columns == t->n_columns - t->n_labels;
    if (e->csv->n_columns != t->n_columns && !lacks_label)
        return tti_fail(TUTTI_E_DATA, "%s: csv: %d columns for training, %d here", e->csv->name,
                        t->n_columns, e->csv->n_columns);
    for (int i = 0, at = 0; i < t->n_columns; i++)
        e->at[i] = lacks_label && is_label(t, i) ? -1 : at++;
    return TUTTI_OK;
}

/* If the training file has decimal commas and this file has none, a number such as 1.234 is
 * ambiguous: it may mean 1234. */
static tutti_status check_points(const encoder *e) {
    const tti_table_spec *t = e->spec->table;
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP];
    if (!t->decimal_comma || e->csv->decimal_comma || e->csv->separator != ';') return TUTTI_OK;
    for (int i = 0; i < t->n_columns; i++) {
        if (e->at[i] < 0 || t->column[i].kind == TTI_COLUMN_IGNORE ||
            t->column[i].kind == TTI_COLUMN_CATEGORY || (e->desc->rows_only && is_label(t, i)))
            continue; /* it is not read as a number */
        for (int64_t k = 0; k < e->rows->n; k++) {
            const char *cell = tti_csv_cell(e->csv, tti_row_at(e->rows, k), e->at[i]);
            if (tti_value_has_points_of_thousands(cell))
                return tti_fail(TUTTI_E_DATA,
                                "%s:%" PRId64
                                ": %s: '%s' has a point, and the training file has "
                                "decimal commas; write numbers as there, without points",
                                e->csv->name, line_at(e, k), tti_column_text(t, i, text),
                                tti_clip(clipped, cell));
        }
    }
    return TUTTI_OK;
}

/* ---- cells ---- */

static int compare_text(const void *key, const void *entry) {
    return strcmp(key, *(const char *const *)entry);
}

/* The number of a text in a sorted list, -1: it is not there. */
static int64_t find_text(const char *text, const char *const *list, int64_t n) {
    const char *const *found = bsearch(text, list, (size_t)n, sizeof *list, compare_text);
    return found ? found - list : -1;
}

static tutti_status scale(const encoder *e, int64_t i, int column, double value, float *out) {
    const tti_column *c = &e->spec->table->column[column];
    char text[TTI_COLUMN_TEXT];
    *out = c->std > 0 ? (float)((value - c->mean) / c->std) : 0;
    if (isfinite(*out)) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s:%" PRId64 ": %s: %g is too far from the training rows",
                    e->csv->name, line_at(e, i), tti_column_text(e->spec->table, column, text),
                    value);
}

typedef struct column_count {
    int64_t n_missing, n_unknown, unknown_line;
    const char *unknown;
} column_count;

static tutti_status encode_cell(const encoder *e, int64_t i, int column, column_count *n,
                                float *out) {
    const tti_column *c = &e->spec->table->column[column];
    const char *cell = tti_csv_cell(e->csv, tti_row_at(e->rows, i), e->at[column]);
    bool missing = tti_value_is_missing(cell);
    double value = c->fill;
    char text[TTI_COLUMN_TEXT];
    n->n_missing += missing;
    if (missing && e->desc->refuse_missing)
        return tti_fail(TUTTI_E_DATA, "%s:%" PRId64 ": %s has no value (data.missing=refuse)",
                        e->csv->name, line_at(e, i), tti_column_text(e->spec->table, column, text));
    if (c->kind != TTI_COLUMN_CATEGORY) {
        if (!missing && !tti_table_value(e->csv, c->kind, cell, &value))
            return tti_table_bad_cell(e->csv, e->spec->table, column, tti_row_at(e->rows, i), cell,
                                      !e->desc->rows_only);
        return scale(e, i, column, value, out);
    }
    int64_t category = missing ? (int64_t)c->fill
                               : find_text(cell, (const char *const *)c->category, c->n_categories);
    if (category < 0 && n->n_unknown++ == 0) n->unknown = cell, n->unknown_line = line_at(e, i);
    *out = (float)category;
    return TUTTI_OK;
}

/* Training rows say how many values are missing when they are learned from. */
static void report_column(const encoder *e, int column, const column_count *n) {
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP];
    tti_column_text(e->spec->table, column, text);
    if (n->n_missing > 0 && e->desc->split == TUTTI_TEST)
        tti_str_printf(e->notices,
                       "%s: %s has no value in %" PRId64 " of %" PRId64
                       " rows, filled with the value from the training rows\n",
                       e->csv->name, text, n->n_missing, e->rows->n);
    if (n->n_unknown > 0)
        tti_str_printf(e->notices,
                       "%s: %s: %" PRId64 " of %" PRId64
                       " rows have a category that the training "
                       "rows do not have (the first: '%s', line %" PRId64 "); its features are 0\n",
                       e->csv->name, text, n->n_unknown, e->rows->n, tti_clip(clipped, n->unknown),
                       n->unknown_line);
}

static tutti_status encode_columns(const encoder *e) {
    csv_state *s = e->state;
    for (int k = 0; k < s->n_active; k++) {
        column_count n = {0};
        for (int64_t i = 0; i < e->rows->n; i++)
            TTI_TRY(encode_cell(e, i, s->active[k], &n, &s->code[i * s->n_active + k]));
        report_column(e, s->active[k], &n);
    }
    return TUTTI_OK;
}

/* ---- labels ---- */

static int compare_number(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static tutti_status number_classes(const tti_data_spec *spec, csv_state *s) {
    if (spec->table->labels != TTI_LABEL_NUMBER) return TUTTI_OK;
    s->class_value = malloc((size_t)spec->n_classes * sizeof *s->class_value + 1);
    if (!s->class_value) return tti_fail(TUTTI_E_NOMEM, "csv: out of memory");
    for (int64_t i = 0; i < spec->n_classes; i++)
        if (!tti_value_number(spec->class_names[i], false, &s->class_value[i]))
            return tti_fail(TUTTI_E_CHECKPOINT, "data.json: class %" PRId64 " is not a number", i);
    return TUTTI_OK;
}

static int64_t class_of(const encoder *e, const char *label) {
    const tti_data_spec *spec = e->spec;
    const csv_state *s = e->state;
    char word[16];
    double x;
    if (spec->table->labels != TTI_LABEL_NUMBER) {
        if (spec->table->labels == TTI_LABEL_BOOLEAN && strlen(label) < sizeof word)
            label = tti_table_class_text(TTI_LABEL_BOOLEAN, label, word, sizeof word);
        return find_text(label, (const char *const *)spec->class_names, spec->n_classes);
    }
    if (!tti_value_number(label, e->csv->decimal_comma, &x)) return NO_LABEL;
    const double *found = bsearch(&x, s->class_value, (size_t)spec->n_classes,
                                  sizeof *s->class_value, compare_number);
    return found ? found - s->class_value : NO_LABEL;
}

static tutti_status bad_label(const encoder *e, int64_t i, int column, const char *label) {
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP];
    const tti_table_spec *t = e->spec->table;
    const char *why = t->labels == TTI_LABEL_VALUE && tti_value_is_tiny(label)
                          ? "' is too small and would be read as 0; write 0 if that is meant"
                      : t->labels == TTI_LABEL_VALUE
                          ? "' is not a finite number, or farther than 500 standard deviations "
                            "from the mean"
                      : t->labels == TTI_LABEL_YES_NO ? "' is not 0 or 1 (or true, false, yes, no)"
                      : t->labels == TTI_LABEL_NUMBER
                          ? "' is not a class of the training rows; to predict numbers give "
                            "train.loss=mse data.target=value"
                          : "' is not a class of the training rows";
    bool is_there = !tti_value_is_missing(label);
    return tti_fail(TUTTI_E_DATA,
                    "%s:%" PRId64 ": %s: %s%s%s (data.on_error=skip leaves such rows out)",
                    e->csv->name, line_at(e, i), tti_column_text(t, column, text),
                    is_there ? "'" : "the label is missing",
                    is_there ? tti_clip(clipped, label) : "", is_there ? why : "");
}

/* Label k of row i; NO_LABEL if the policy is to leave such rows out. */
static tutti_status encode_label(const encoder *e, int64_t i, int k, int32_t *out) {
    const tti_table_spec *t = e->spec->table;
    const tti_target_spec *target = &e->spec->target;
    const char *label = tti_csv_cell(e->csv, tti_row_at(e->rows, i), e->at[t->label[k]]);
    bool missing = tti_value_is_missing(label);
    bool yes;
    double x;
    *out = NO_LABEL;
    if (t->labels == TTI_LABEL_YES_NO) {
        if (!missing && tti_table_yes_no(e->csv, label, &yes)) *out = yes;
    } else if (t->labels != TTI_LABEL_VALUE) {
        if (!missing) *out = (int32_t)class_of(e, label);
    } else if (!missing) {
        if (!tti_value_number(label, e->csv->decimal_comma, &x) ||
            !tti_target_encode((x - target->mean[k]) / target->std[k], out))
            *out = NO_LABEL;
    }
    if (*out != NO_LABEL || e->desc->skip_bad) return TUTTI_OK;
    return bad_label(e, i, t->label[k], label);
}

/* A row that lacks one of its labels is left out. */
static tutti_status encode_row_labels(const encoder *e, int64_t i, int32_t *y) {
    bool whole = true;
    for (int k = 0; k < e->state->n_targets; k++) {
        TTI_TRY(encode_label(e, i, k, &y[k]));
        whole = whole && y[k] != NO_LABEL;
    }
    for (int k = 0; k < e->state->n_targets && !whole; k++) y[k] = NO_LABEL;
    return TUTTI_OK;
}

static tutti_status encode_labels(const encoder *e) {
    int64_t n = e->state->n_targets;
    for (int64_t i = 0; i < n * e->rows->n && e->desc->rows_only; i++) e->state->y[i] = NO_LABEL;
    for (int64_t i = 0; i < e->rows->n && !e->desc->rows_only; i++)
        TTI_TRY(encode_row_labels(e, i, &e->state->y[i * n]));
    return TUTTI_OK;
}

/* ---- the data set ---- */

static tutti_status check_labels(const csv_state *s, int64_t index) {
    if (s->y[index * s->n_targets] != NO_LABEL || s->rows_only) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_DATA,
        "%s:%" PRId64
        ": a label is missing, is not a class of the training rows, or is not a finite number",
        s->path, s->line[index]);
}

static tutti_status csv_label(const tti_source *source, int64_t index, int32_t *y) {
    const csv_state *s = source->state;
    memcpy(y, s->y + index * s->n_targets, (size_t)s->n_targets * sizeof *y);
    return check_labels(s, index);
}

/* Returns the place after the features of the row. */
static float *read_features(const csv_state *s, int64_t index, float *to) {
    const float *code = s->code + index * s->n_active;
    for (int k = 0; k < s->n_active; k++) {
        const tti_column *c = &s->table->column[s->active[k]];
        bool one_hot = c->kind == TTI_COLUMN_CATEGORY;
        int n = one_hot ? c->n_categories : 1;
        for (int i = 0; i < n; i++) to[i] = one_hot ? (float)(code[k] == (float)i) : code[k];
        to += n;
    }
    return to;
}

static tutti_status csv_read(const tti_source *source, int64_t index, void *out, int32_t *y) {
    read_features(source->state, index, out);
    return csv_label(source, index, y);
}

/* The fields x and y of a row with labels of 0 and 1. */
static tutti_status csv_read_fields(const tti_source *source, int64_t index, void *out,
                                    int32_t *y) {
    const csv_state *s = source->state;
    float *to = read_features(s, index, out);
    for (int64_t k = 0; k < s->n_targets; k++)
        to[k] = (float)TTI_MAX(s->y[index * s->n_targets + k], 0);
    *y = s->rows_only ? NO_LABEL : 0;
    return check_labels(s, index);
}

static void csv_close(tti_source *source) {
    csv_state *s = source->state;
    free(s->active);
    free(s->code);
    free(s->y);
    free(s->line);
    free(s->class_value);
    free(s->path);
    free(s);
}

static tutti_status alloc_memory(const encoder *e) {
    csv_state *s = e->state;
    const tti_table_spec *t = e->spec->table;
    size_t n = (size_t)e->rows->n;
    s->table = t;
    s->n_targets = t->n_labels;
    s->rows_only = e->desc->rows_only;
    s->active = malloc((size_t)t->n_columns * sizeof *s->active);
    for (int i = 0; i < t->n_columns && s->active; i++)
        if (tti_column_n_features(&t->column[i]) > 0) s->active[s->n_active++] = i;
    s->code = calloc(n * (size_t)s->n_active + 1, sizeof *s->code);
    s->y = calloc(n * (size_t)s->n_targets + 1, sizeof *s->y);
    s->line = calloc(n + 1, sizeof *s->line);
    s->path = strdup(e->csv->name);
    if (!s->active || !s->code || !s->y || !s->line || !s->path)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %zu rows", e->csv->name, n);
    for (int64_t i = 0; i < e->rows->n; i++) s->line[i] = line_at(e, i);
    return TUTTI_OK;
}

static tutti_status encode(const encoder *e) {
    TTI_TRY(alloc_memory(e));
    TTI_TRY(match_columns(e));
    TTI_TRY(check_points(e));
    TTI_TRY(number_classes(e->spec, e->state));
    TTI_TRY(encode_columns(e));
    return encode_labels(e);
}

static const char *class_name(const tti_source *source, int64_t label) {
    return source->spec->class_names[label];
}

static tutti_status describe(const encoder *e, tti_source *source) {
    const tti_data_spec *spec = e->spec;
    TTI_TRY(tti_count_samples(e->desc, e->rows->n, &source->info.n_samples));
    source->info.n_classes = spec->n_classes;
    source->info.y = tti_target_type(spec->target.n);
    source->stored = (tutti_type){TUTTI_F32, TUTTI_SHAPE(tti_table_n_features(spec->table))};
    if (spec->class_names) source->class_name = class_name;
    if (spec->n_fields == 0) return TUTTI_OK;
    size_t n_bytes = tti_fields_bytes(spec->fields, spec->n_fields);
    source->stored = (tutti_type){TUTTI_U8, TUTTI_SHAPE((int64_t)n_bytes)};
    source->info.n_fields = spec->n_fields;
    source->info.fields = spec->fields;
    source->read = csv_read_fields;
    source->label = NULL;
    return TUTTI_OK;
}

/* Learns from the training rows unless the specification is given. */
static tutti_status learn(const tutti_dataset_desc *desc, const tti_csv_text *csv, bool both,
                          tti_source *source) {
    tutti_dataset_desc train = *desc;
    train.split = TUTTI_TRAIN;
    tti_row_split rows = tti_row_split_make(&train, csv->n_rows, !both);
    if (rows.n < 1) return tti_count_samples(&train, rows.n, &rows.n);
    return tti_table_learn(desc, csv, &rows, source->new_spec, &source->notices);
}

/* The file of the training split alone, where only its specification is missing. */
static tutti_status learn_elsewhere(const tutti_dataset_desc *desc, tti_source *source) {
    tutti_dataset_desc train = *desc;
    tti_csv_text csv;
    bool both;
    train.split = TUTTI_TRAIN;
    TTI_TRY(read_split(&train, NULL, &csv, &both));
    tutti_status st = learn(desc, &csv, both, source);
    tti_csv_text_free(&csv);
    return st;
}

static tutti_status fill(const tutti_dataset_desc *desc, const tti_csv_text *csv, bool both,
                         tti_source *source) {
    if (!desc->spec && desc->split == TUTTI_TRAIN) TTI_TRY(learn(desc, csv, both, source));
    if (!source->spec->table)
        return tti_fail(TUTTI_E_DATA, "%s: the model was not trained on a table", csv->name);
    if (csv->n_empty > 0 && (desc->split == TUTTI_TRAIN || !both))
        tti_str_printf(&source->notices, "%s: %" PRId64 " row%s without any value %s left out\n",
                       csv->name, csv->n_empty, csv->n_empty == 1 ? "" : "s",
                       csv->n_empty == 1 ? "is" : "are");
    tti_row_split rows = tti_row_split_make(desc, csv->n_rows, !both);
    int *at = malloc((size_t)source->spec->table->n_columns * sizeof *at);
    encoder e = {desc, csv, &rows, source->spec, source->state, &source->notices, at};
    tutti_status st = at ? encode(&e) : tti_fail(TUTTI_E_NOMEM, "csv: out of memory");
    if (st == TUTTI_OK) st = describe(&e, source);
    free(at);
    return st;
}

static tutti_status csv_open(const tutti_dataset_desc *desc, tti_source *source) {
    csv_state *s = calloc(1, sizeof *s);
    tti_csv_text csv = {0};
    bool both;
    if (!s) return tti_fail(TUTTI_E_NOMEM, "csv: out of memory");
    source->state = s;
    source->read = csv_read;
    source->label = csv_label;
    source->close = csv_close;
    tutti_status st = TUTTI_OK;
    if (!desc->spec && desc->split == TUTTI_TEST) st = learn_elsewhere(desc, source);
    if (st == TUTTI_OK) st = read_split(desc, source->spec->table, &csv, &both);
    if (st == TUTTI_OK) st = fill(desc, &csv, both, source);
    tti_csv_text_free(&csv);
    if (st != TUTTI_OK) csv_close(source);
    return st;
}

const tti_format tti_format_csv = {
    .name = "csv",
    .doc = "tables (.csv, .csv.gz) of numbers, dates and texts with a column of labels or values",
    .open = csv_open,
};

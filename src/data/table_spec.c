/* table_spec.c - prints and reads the columns of a table as JSON. */
#include "data/table_spec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/json_read.h"
#include "base/problem.h"
#include "ir/graph.h"

const char *const tti_column_kind_names[TTI_N_COLUMN_KINDS] = {"ignore", "number",   "boolean",
                                                               "date",   "category", "label"};
static const char *const label_names[TTI_N_LABEL_KINDS] = {"text", "boolean", "number", "value",
                                                           "yes_no"};

int64_t tti_column_n_features(const tti_column *column) {
    switch (column->kind) {
        case TTI_COLUMN_NUMBER:
        case TTI_COLUMN_BOOLEAN:
        case TTI_COLUMN_DATE:
            return 1;
        case TTI_COLUMN_CATEGORY:
            return column->n_categories;
        default:
            return 0;
    }
}

int64_t tti_table_n_features(const tti_table_spec *table) {
    int64_t n = 0;
    for (int i = 0; i < table->n_columns; i++) n += tti_column_n_features(&table->column[i]);
    return n;
}

void tti_table_list_fields(const tti_table_spec *table, tutti_field fields[TTI_TABLE_FIELDS]) {
    fields[0] = (tutti_field){"x", {TUTTI_F32, TUTTI_SHAPE(tti_table_n_features(table))}};
    fields[1] = (tutti_field){"y", {TUTTI_F32, TUTTI_SHAPE(table->n_labels)}};
}

bool tti_table_has_fields(const tti_table_spec *table, const tutti_field *fields, int n_fields) {
    tutti_field want[TTI_TABLE_FIELDS];
    tti_table_list_fields(table, want);
    bool same = n_fields == TTI_TABLE_FIELDS;
    for (int i = 0; same && i < TTI_TABLE_FIELDS; i++)
        same = strcmp(fields[i].name, want[i].name) == 0 &&
               fields[i].type.dtype == want[i].type.dtype &&
               tti_shape_equal(&fields[i].type.shape, &want[i].type.shape);
    return same;
}

const char *tti_column_text(const tti_table_spec *table, int column, char out[TTI_COLUMN_TEXT]) {
    char clipped[TTI_CLIP];
    if (table->has_names && table->column[column].name[0])
        snprintf(out, TTI_COLUMN_TEXT, "column '%s'",
                 tti_clip(clipped, table->column[column].name));
    else
        snprintf(out, TTI_COLUMN_TEXT, "column %d", column);
    return out;
}

/* ---- printing ---- */

static void print_column(const tti_column *c, tti_json *j) {
    tti_json_object(j, NULL);
    tti_json_text(j, "name", c->name);
    tti_json_text(j, "kind", tti_column_kind_names[c->kind]);
    tti_json_double(j, "mean", c->mean);
    tti_json_double(j, "std", c->std);
    tti_json_double(j, "min", c->min);
    tti_json_double(j, "max", c->max);
    tti_json_double(j, "fill", c->fill);
    tti_json_int(j, "missing", c->n_missing);
    tti_json_array(j, "categories");
    for (int i = 0; i < c->n_categories; i++) tti_json_text(j, NULL, c->category[i]);
    tti_json_end(j);
    tti_json_end(j);
}

void tti_table_spec_print(const tti_table_spec *table, tti_json *j) {
    tti_json_bool(j, "names", table->has_names);
    if (table->decimal_comma) tti_json_bool(j, "decimal_comma", true);
    tti_json_int(j, "rows", table->n_rows);
    if (table->n_labels > 1) tti_json_array(j, "label");
    for (int i = 0; i < table->n_labels; i++)
        tti_json_int(j, table->n_labels > 1 ? NULL : "label", table->label[i]);
    if (table->n_labels > 1) tti_json_end(j);
    tti_json_text(j, "labels", label_names[table->labels]);
    tti_json_array(j, "columns");
    for (int i = 0; i < table->n_columns; i++) print_column(&table->column[i], j);
    tti_json_end(j);
}

/* ---- reading ---- */

static tutti_status read_word(const char *what, const json_t *json, const char *key,
                              const char *const *words, int n, int *out) {
    const char *word;
    TTI_TRY(tti_json_read_text(what, json, key, &word));
    for (*out = 0; *out < n; ++*out)
        if (strcmp(word, words[*out]) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" has an unknown value", what, key);
}

static tutti_status read_number(const char *what, const json_t *json, const char *key,
                                double *out) {
    const json_t *number = json_object_get(json, key);
    *out = json_is_number(number) ? json_number_value(number) : NAN;
    if (isfinite(*out)) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" is not a number", what, key);
}

static tutti_status read_categories(const char *what, const json_t *json, tti_arena *arena,
                                    tti_column *c) {
    json_t *list;
    TTI_TRY(tti_json_member(what, json, "categories", JSON_ARRAY, &list));
    size_t n = json_array_size(list);
    if (n > TTI_MAX_CATEGORIES || (n > 0) != (c->kind == TTI_COLUMN_CATEGORY))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %zu categories are not supported", what, n);
    c->n_categories = (int)n;
    c->category = tti_arena_alloc(arena, (n + 1) * sizeof *c->category);
    for (size_t i = 0; i < n && c->category; i++) {
        const char *text = json_string_value(json_array_get(list, i));
        if (!text || (i > 0 && c->category[i - 1] && strcmp(c->category[i - 1], text) >= 0))
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: the categories are not sorted texts", what);
        c->category[i] = tti_arena_strdup(arena, text);
    }
    bool fills = c->kind != TTI_COLUMN_CATEGORY || (c->fill >= 0 && c->fill < (double)n);
    return fills ? TUTTI_OK : tti_fail(TUTTI_E_CHECKPOINT, "%s: \"fill\" is not a category", what);
}

static tutti_status read_column(const char *what, const json_t *json, tti_arena *arena,
                                tti_column *c) {
    const char *name;
    int kind;
    if (!json_is_object(json)) return tti_fail(TUTTI_E_CHECKPOINT, "%s: no column", what);
    TTI_TRY(tti_json_read_text(what, json, "name", &name));
    TTI_TRY(read_word(what, json, "kind", tti_column_kind_names, TTI_N_COLUMN_KINDS, &kind));
    TTI_TRY(read_number(what, json, "mean", &c->mean));
    TTI_TRY(read_number(what, json, "std", &c->std));
    TTI_TRY(read_number(what, json, "min", &c->min));
    TTI_TRY(read_number(what, json, "max", &c->max));
    TTI_TRY(read_number(what, json, "fill", &c->fill));
    TTI_TRY(tti_json_read_int(what, json, "missing", 0, INT64_MAX, &c->n_missing));
    c->name = tti_arena_strdup(arena, name);
    c->kind = (tti_column_kind)kind;
    if (c->std < 0) return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"std\" is negative", what);
    return read_categories(what, json, arena, c);
}

/* One column, or a list of several. */
static tutti_status read_label(const char *what, const json_t *json, tti_arena *arena,
                               tti_table_spec *t) {
    const json_t *label = json_object_get(json, "label");
    bool is_list = json_is_array(label);
    size_t n = is_list ? json_array_size(label) : 1;
    if (n < 1 || n > TTI_MAX_LABEL_COLUMNS)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %zu label columns are not supported", what, n);
    t->n_labels = (int)n;
    t->label = tti_arena_alloc(arena, n * sizeof *t->label);
    for (size_t i = 0; i < n && t->label; i++) {
        const json_t *one = is_list ? json_array_get(label, i) : label;
        json_int_t column = json_is_integer(one) ? json_integer_value(one) : -1;
        if (column < 0 || column >= t->n_columns)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"label\" is not a column", what);
        t->label[i] = (int)column;
    }
    return TUTTI_OK;
}

/* The label columns must be of the label kind, each listed once. */
static tutti_status check_label(const char *what, const tti_table_spec *table) {
    int n_of_kind = 0;
    bool good = true;
    for (int i = 0; i < table->n_columns; i++)
        n_of_kind += table->column[i].kind == TTI_COLUMN_LABEL;
    for (int i = 0; i < table->n_labels && good; i++) {
        good = table->column[table->label[i]].kind == TTI_COLUMN_LABEL;
        for (int k = 0; k < i && good; k++) good = table->label[k] != table->label[i];
    }
    good = good && n_of_kind == table->n_labels &&
           (table->n_labels == 1 || table->labels == TTI_LABEL_VALUE ||
            table->labels == TTI_LABEL_YES_NO);
    if (good) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"label\" is not the label column", what);
}

tutti_status tti_table_spec_parse(const char *what, const json_t *json, tti_arena *arena,
                                  tti_table_spec **out) {
    json_t *columns;
    int labels;
    tti_table_spec *t = tti_arena_alloc(arena, sizeof *t);
    TTI_TRY(tti_json_member(what, json, "columns", JSON_ARRAY, &columns));
    size_t n = json_array_size(columns);
    if (n < 1 || n > TTI_MAX_TABLE_COLUMNS)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %zu columns are not supported", what, n);
    tti_column *column = tti_arena_alloc(arena, n * sizeof *column);
    if (!t || !column) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
    TTI_TRY(tti_json_read_int(what, json, "rows", 0, INT64_MAX, &t->n_rows));
    TTI_TRY(read_word(what, json, "labels", label_names, TTI_N_LABEL_KINDS, &labels));
    const json_t *names = json_object_get(json, "names");
    const json_t *comma = json_object_get(json, "decimal_comma"); /* absent: false */
    if (comma && !json_is_true(comma))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"decimal_comma\" is not true", what);
    if (!json_is_boolean(names))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"names\" is not true or false", what);
    *t = (tti_table_spec){.has_names = json_is_true(names),
                          .decimal_comma = comma != NULL,
                          .n_columns = (int)n,
                          .column = column,
                          .labels = (tti_label_kind)labels,
                          .n_rows = t->n_rows};
    TTI_TRY(read_label(what, json, arena, t));
    for (size_t i = 0; i < n; i++)
        TTI_TRY(read_column(what, json_array_get(columns, i), arena, &column[i]));
    *out = t;
    return tti_arena_failed(arena) ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what)
                                   : check_label(what, t);
}

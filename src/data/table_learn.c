/* table_learn.c - kinds, statistics and categories of the columns of a table.
 *
 * All is computed in f64 over the training rows alone; the mean is subtracted before a value is
 * rounded to f32, so that large numbers such as times stay apart. */
#include "data/table_learn.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/number.h"
#include "base/problem.h"
#include "data/csv_value.h"

enum { MANY = 50, FEW_ROWS = 10 };

typedef struct learner {
    const tutti_dataset_desc *desc;
    const tti_csv_text *csv;
    const tti_row_split *rows;
    tti_data_spec *spec;
    tti_table_spec *table;
    tti_str *notices;
    double *value;     /* [rows] */
    const char **text; /* [rows] */
} learner;

static tutti_status no_memory(const learner *l) {
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", l->csv->name);
}

static const char *cell_at(const learner *l, int column, int64_t i) {
    return tti_csv_cell(l->csv, tti_row_at(l->rows, i), column);
}

static void add_notice(const learner *l, int column, const char *what) {
    char text[TTI_COLUMN_TEXT];
    tti_str_printf(l->notices, "%s: %s %s\n", l->csv->name, tti_column_text(l->table, column, text),
                   what);
}

bool tti_table_value(const tti_csv_text *csv, tti_column_kind kind, const char *cell, double *out) {
    bool truth = false;
    if (kind == TTI_COLUMN_NUMBER) return tti_value_number(cell, csv->decimal_comma, out);
    if (kind == TTI_COLUMN_DATE) return tti_value_date(cell, out);
    bool digit = strcmp(cell, "0") == 0 || strcmp(cell, "1") == 0;
    bool good = tti_value_boolean(cell, &truth) || digit;
    *out = digit ? cell[0] - '0' : truth;
    return good;
}

tutti_status tti_table_bad_cell(const tti_csv_text *csv, const tti_table_spec *table, int column,
                                int64_t row, const char *cell) {
    static const char *const wanted[TTI_N_COLUMN_KINDS] = {
        [TTI_COLUMN_NUMBER] = "a finite number written as 1234.5",
        [TTI_COLUMN_BOOLEAN] = "true or false",
        [TTI_COLUMN_DATE] = "a date such as 2024-02-29 or 2024-02-29T12:30:00Z"};
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP];
    return tti_fail(TUTTI_E_DATA,
                    "%s:%lld: %s: '%s' is not %s; correct it, or say what the column is, such as "
                    "data.columns='%s: category' or ignore",
                    csv->name, (long long)csv->line[row], tti_column_text(table, column, text),
                    tti_clip(clipped, cell), wanted[table->column[column].kind],
                    table->column[column].name[0] ? table->column[column].name : "NUMBER");
}

/* ---- the columns that a job names ---- */

/* "a: ignore, b: date", from *at on: the next name and kind.  false: there is none. */
static bool next_item(const char **at, char name[TTI_CLIP * 8], char kind[TTI_CLIP]) {
    const char *end = *at + strcspn(*at, ",");
    while (*at < end && isspace((unsigned char)**at)) ++*at;
    if (*at == end && !*end) return false;
    const char *colon = end;
    for (const char *p = *at; p < end; p++)
        if (*p == ':') colon = p;
    snprintf(name, TTI_CLIP * 8, "%.*s", (int)(colon - *at), *at);
    const char *word = colon < end ? colon + 1 : end;
    while (word < end && isspace((unsigned char)*word)) word++;
    snprintf(kind, TTI_CLIP, "%.*s", (int)(end - word), word);
    for (size_t n = strlen(name); n > 0 && isspace((unsigned char)name[n - 1]);) name[--n] = '\0';
    for (size_t n = strlen(kind); n > 0 && isspace((unsigned char)kind[n - 1]);) kind[--n] = '\0';
    *at = *end ? end + 1 : end;
    return true;
}

/* The column of a name, or of a number from 0; -1: none. */
static int find_column(const tti_table_spec *table, const char *name) {
    int64_t number;
    for (int i = 0; table->has_names && i < table->n_columns; i++)
        if (strcmp(table->column[i].name, name) == 0) return i;
    if (tti_parse_int(name, &number) != TTI_NUMBER_OK) return -1;
    return number >= 0 && number < table->n_columns ? (int)number : -1;
}

static tutti_status apply_columns(learner *l, bool *given) {
    const char *at = l->desc->columns ? l->desc->columns : "";
    char name[TTI_CLIP * 8], kind[TTI_CLIP], clipped[TTI_CLIP];
    while (next_item(&at, name, kind)) {
        int column = find_column(l->table, name), k = 0;
        if (column < 0)
            return tti_fail(TUTTI_E_DATA, "%s: data.columns: there is no column '%s'", l->csv->name,
                            tti_clip(clipped, name));
        while (k < TTI_COLUMN_LABEL && strcmp(kind, tti_column_kind_names[k]) != 0) k++;
        if (k == TTI_COLUMN_LABEL)
            return tti_fail(TUTTI_E_INVALID,
                            "data.columns: '%s' is not a kind of column; these are number, "
                            "boolean, date, category and ignore, as in \"zip: category, id: "
                            "ignore\"",
                            tti_clip(clipped, kind));
        if (column == l->table->label)
            return tti_fail(TUTTI_E_INVALID,
                            "data.columns: column '%s' has the labels; data.label names another",
                            tti_clip(clipped, name));
        l->table->column[column].kind = (tti_column_kind)k;
        given[column] = true;
    }
    return TUTTI_OK;
}

/* ---- numbers ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The present values of a column, in l->value, in the order of the rows. */
static tutti_status take_values(const learner *l, int column, int64_t *n) {
    *n = 0;
    for (int64_t i = 0; i < l->rows->n; i++) {
        const char *cell = cell_at(l, column, i);
        if (tti_value_is_missing(cell)) continue;
        if (!tti_table_value(l->csv, l->table->column[column].kind, cell, &l->value[*n]))
            return tti_table_bad_cell(l->csv, l->table, column, tti_row_at(l->rows, i), cell);
        ++*n;
    }
    return TUTTI_OK;
}

/* Mean and deviation in two passes. */
static void measure(const double *value, int64_t n, double *mean, double *std) {
    double sum = 0, squares = 0, count = (double)n;
    for (int64_t i = 0; i < n; i++) sum += value[i];
    *mean = sum / count;
    for (int64_t i = 0; i < n; i++) squares += (value[i] - *mean) * (value[i] - *mean);
    *std = sqrt(squares / count);
}

static tutti_status learn_values(learner *l, int column) {
    tti_column *c = &l->table->column[column];
    int64_t n;
    char text[TTI_COLUMN_TEXT];
    TTI_TRY(take_values(l, column, &n));
    if (n == 0)
        return tti_fail(TUTTI_E_DATA, "%s: %s has no values in the training rows", l->csv->name,
                        tti_column_text(l->table, column, text));
    measure(l->value, n, &c->mean, &c->std);
    qsort(l->value, (size_t)n, sizeof *l->value, compare_doubles);
    c->min = l->value[0];
    c->max = l->value[n - 1];
    c->fill = n % 2 ? l->value[n / 2] : l->value[n / 2 - 1] / 2 + l->value[n / 2] / 2;
    if (c->min == c->max) c->std = 0, c->mean = c->min;
    if (!isfinite(c->std) || !isfinite(c->mean))
        return tti_fail(TUTTI_E_DATA, "%s: %s: the numbers are too large (%g to %g)", l->csv->name,
                        tti_column_text(l->table, column, text), c->min, c->max);
    if (c->kind == TTI_COLUMN_BOOLEAN) c->fill = 2 * c->mean > 1;
    if (c->std == 0) add_notice(l, column, "has one value only and carries no information");
    return TUTTI_OK;
}

/* ---- texts ---- */

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Sorts the n texts of l->text and keeps one of each; *most is the most frequent of them. */
static int64_t distinct_texts(const learner *l, int64_t n, int64_t *most) {
    int64_t n_distinct = 0, run = 0, longest = 0;
    qsort(l->text, (size_t)n, sizeof *l->text, compare_texts);
    for (int64_t i = 0; i < n; i++) {
        bool same = n_distinct > 0 && strcmp(l->text[n_distinct - 1], l->text[i]) == 0;
        if (!same) l->text[n_distinct++] = l->text[i];
        run = same ? run + 1 : 1;
        if (run > longest) longest = run, *most = n_distinct - 1;
    }
    return n_distinct;
}

static tutti_status copy_texts(const learner *l, int64_t n, const char ***out) {
    *out = tti_arena_alloc(&l->spec->arena, (size_t)(n + 1) * sizeof **out);
    for (int64_t i = 0; i < n && *out; i++)
        (*out)[i] = tti_arena_strdup(&l->spec->arena, l->text[i]);
    return l->spec->arena.failed ? no_memory(l) : TUTTI_OK;
}

/* Names of people and the like tell nothing of other rows. */
static bool tells_rows_apart(int64_t n_distinct, int64_t n) {
    return (n_distinct == n && n >= FEW_ROWS) || (2 * n_distinct > n && n_distinct >= MANY) ||
           n_distinct > TTI_MAX_CATEGORIES;
}

static tutti_status learn_texts(learner *l, int column, bool given) {
    tti_column *c = &l->table->column[column];
    int64_t n = 0, most = 0;
    char text[TTI_COLUMN_TEXT], why[TTI_COLUMN_TEXT];
    for (int64_t i = 0; i < l->rows->n; i++)
        if (!tti_value_is_missing(cell_at(l, column, i))) l->text[n++] = cell_at(l, column, i);
    int64_t n_distinct = distinct_texts(l, n, &most);
    if (given && (n_distinct > TTI_MAX_CATEGORIES || n == 0))
        return tti_fail(TUTTI_E_DATA, "%s: %s has %" PRId64 " categories, 1 to %d are possible",
                        l->csv->name, tti_column_text(l->table, column, text), n_distinct,
                        TTI_MAX_CATEGORIES);
    if (!given && (n_distinct == 1 || tells_rows_apart(n_distinct, n))) {
        snprintf(why, sizeof why,
                 "is ignored: %" PRId64 " different text%s in %" PRId64 " training rows",
                 n_distinct, n_distinct == 1 ? "" : "s", n);
        c->kind = TTI_COLUMN_IGNORE;
        add_notice(l, column, why);
        return TUTTI_OK;
    }
    c->n_categories = (int)n_distinct;
    c->fill = (double)most;
    return copy_texts(l, n_distinct, &c->category);
}

/* ---- kinds ---- */

typedef struct counts {
    int64_t n, numbers, odd, booleans, dates;
    int64_t other_than_number, other_than_date; /* a row with such a value */
} counts;

static counts count_kinds(const learner *l, int column) {
    counts k = {0};
    for (int64_t i = 0; i < l->rows->n; i++) {
        const char *cell = cell_at(l, column, i);
        double x;
        bool truth;
        if (tti_value_is_missing(cell)) continue;
        bool number = tti_value_number(cell, l->csv->decimal_comma, &x);
        bool date = !number && tti_value_date(cell, &x);
        k.n++;
        k.numbers += number;
        k.dates += date;
        k.odd += !number && tti_value_is_odd_number(cell);
        k.booleans += !number && tti_value_boolean(cell, &truth);
        if (!number) k.other_than_number = tti_row_at(l->rows, i);
        if (!date) k.other_than_date = tti_row_at(l->rows, i);
    }
    return k;
}

/* The number of the row, as spreadsheets and data frames add it. */
static bool counts_rows(const learner *l, int column) {
    static const char *const names[] = {"", "id", "index", "unnamed: 0", "rownames", "row"};
    double first, x;
    bool named = false;
    for (size_t i = 0; i < TTI_COUNT(names); i++)
        named |= strcasecmp(l->table->column[column].name, names[i]) == 0;
    if (!l->table->has_names || !named || l->csv->n_rows < 3) return false;
    for (int64_t i = 0; i < l->csv->n_rows; i++) {
        if (!tti_value_number(tti_csv_cell(l->csv, i, column), false, &x)) return false;
        if (i == 0) first = x;
        if (x != first + (double)i) return false;
    }
    return true;
}

static tutti_status choose_kind(const learner *l, int column) {
    tti_column *c = &l->table->column[column];
    counts k = count_kinds(l, column);
    int64_t row = k.other_than_number;
    c->kind = TTI_COLUMN_IGNORE;
    if (k.n == 0) {
        add_notice(l, column, "is ignored: it has no values in the training rows");
        return TUTTI_OK;
    }
    if (counts_rows(l, column)) {
        add_notice(l, column, "is ignored: it only numbers the rows");
        return TUTTI_OK;
    }
    c->kind = k.numbers == k.n    ? TTI_COLUMN_NUMBER
              : k.booleans == k.n ? TTI_COLUMN_BOOLEAN
              : k.dates == k.n    ? TTI_COLUMN_DATE
                                  : TTI_COLUMN_CATEGORY;
    if (c->kind != TTI_COLUMN_CATEGORY) return TUTTI_OK;
    /* A few values that are none among many numbers are mistakes, no categories. */
    bool numbers = 5 * (k.numbers + k.odd) >= 4 * k.n, dates = 5 * k.dates >= 4 * k.n;
    if (!numbers && !dates) return TUTTI_OK;
    c->kind = numbers ? TTI_COLUMN_NUMBER : TTI_COLUMN_DATE;
    if (dates) row = k.other_than_date;
    return tti_table_bad_cell(l->csv, l->table, column, row, tti_csv_cell(l->csv, row, column));
}

static tutti_status learn_column(learner *l, int column, bool given) {
    tti_column *c = &l->table->column[column];
    for (int64_t i = 0; i < l->rows->n; i++)
        c->n_missing += tti_value_is_missing(cell_at(l, column, i));
    if (!given) TTI_TRY(choose_kind(l, column));
    if (c->kind == TTI_COLUMN_IGNORE) return TUTTI_OK;
    if (c->kind == TTI_COLUMN_CATEGORY) return learn_texts(l, column, given);
    return learn_values(l, column);
}

/* ---- labels ---- */

/* Lines that end in a separator have one more column, of nothing. */
static bool is_column_empty(const learner *l, int column) {
    for (int64_t i = 0; i < l->csv->n_rows; i++)
        if (tti_csv_cell(l->csv, i, column)[0]) return false;
    return !l->csv->header || !l->csv->header[column][0];
}

static tutti_status find_label(learner *l) {
    static const char *const usual[] = {"label", "class", "target", "y"};
    const tti_table_spec *t = l->table;
    char wanted[TTI_CLIP * 8] = "", clipped[TTI_CLIP];
    if (l->desc->label)
        snprintf(wanted, sizeof wanted, "%s", l->desc->label + strspn(l->desc->label, " \t"));
    for (size_t n = strlen(wanted); n > 0 && isspace((unsigned char)wanted[n - 1]);)
        wanted[--n] = '\0';
    if (wanted[0]) {
        l->table->label = find_column(t, wanted);
        if (t->label >= 0) return TUTTI_OK;
        return tti_fail(TUTTI_E_DATA,
                        "%s: data.label: no column is called '%s', and it is no number below %d",
                        l->csv->name, tti_clip(clipped, wanted), t->n_columns);
    }
    for (size_t k = 0; k < TTI_COUNT(usual) && t->has_names; k++)
        for (int i = 0; i < t->n_columns; i++)
            if (strcasecmp(t->column[i].name, usual[k]) == 0) return l->table->label = i, TUTTI_OK;
    l->table->label = t->n_columns - 1;
    while (t->label > 0 && is_column_empty(l, t->label)) l->table->label--;
    return TUTTI_OK;
}

static const char *label_at(const learner *l, int64_t i) { return cell_at(l, l->table->label, i); }

/* The labels of the training rows, without those that are missing. */
static tutti_status take_labels(const learner *l, int64_t *n, bool *whole) {
    bool numbers = true, booleans = true, truth;
    double x = 0;
    *n = 0;
    *whole = true;
    for (int64_t i = 0; i < l->rows->n; i++) {
        const char *label = label_at(l, i);
        if (tti_value_is_missing(label)) {
            if (l->desc->skip_bad) continue;
            return tti_fail(TUTTI_E_DATA,
                            "%s:%lld: the label is missing (data.on_error=skip leaves such rows "
                            "out)",
                            l->csv->name, (long long)l->csv->line[tti_row_at(l->rows, i)]);
        }
        numbers = numbers && tti_value_number(label, l->csv->decimal_comma, &x);
        booleans = booleans && tti_value_boolean(label, &truth);
        if (numbers) *whole = *whole && x == nearbyint(x);
        if (numbers) l->value[*n] = x;
        l->text[(*n)++] = label;
    }
    l->table->labels = numbers ? TTI_LABEL_NUMBER : booleans ? TTI_LABEL_BOOLEAN : TTI_LABEL_TEXT;
    if (*n > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: the training rows have no labels", l->csv->name);
}

const char *tti_table_class_text(tti_label_kind kind, const char *label, char *out,
                                 size_t n_bytes) {
    if (kind != TTI_LABEL_BOOLEAN) return label;
    snprintf(out, n_bytes, "%s", label);
    for (char *p = out; *p; p++) *p = (char)tolower((unsigned char)*p);
    return out;
}

/* Numbers become the texts of their distinct values, in their order. */
static tutti_status number_classes(learner *l, int64_t n, int64_t *n_classes) {
    int64_t n_distinct = 0;
    char text[TTI_NUMBER_TEXT];
    qsort(l->value, (size_t)n, sizeof *l->value, compare_doubles);
    for (int64_t i = 0; i < n; i++)
        if (n_distinct == 0 || l->value[n_distinct - 1] != l->value[i])
            l->value[n_distinct++] = l->value[i];
    *n_classes = n_distinct;
    if (n_distinct > TTI_MAX_TABLE_CLASSES) return TUTTI_OK;
    for (int64_t i = 0; i < n_distinct; i++) {
        l->text[i] = tti_arena_strdup(&l->spec->arena, tti_value_text(text, l->value[i]));
        if (!l->text[i]) return no_memory(l);
    }
    return TUTTI_OK;
}

static tutti_status text_classes(learner *l, int64_t n, int64_t *n_classes) {
    int64_t most;
    for (int64_t i = 0; i < n && l->table->labels == TTI_LABEL_BOOLEAN; i++) {
        char word[16];
        tti_table_class_text(TTI_LABEL_BOOLEAN, l->text[i], word, sizeof word);
        l->text[i] = strcmp(word, "true") == 0    ? "true"
                     : strcmp(word, "false") == 0 ? "false"
                     : strcmp(word, "yes") == 0   ? "yes"
                     : strcmp(word, "no") == 0    ? "no"
                     : strcmp(word, "t") == 0     ? "t"
                                                  : "f";
    }
    *n_classes = distinct_texts(l, n, &most);
    return TUTTI_OK;
}

static tutti_status check_classes(const learner *l, int64_t n_classes, int64_t n, bool whole) {
    bool asked = l->desc->target && strcmp(l->desc->target, "class") == 0;
    bool numbers = l->table->labels == TTI_LABEL_NUMBER;
    bool values = numbers && (!whole || (!asked && n_classes > 100 && 2 * n_classes > n));
    if (!values && n_classes <= TTI_MAX_TABLE_CLASSES) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the label column has %" PRId64 " different %s in %" PRId64
                    " training rows, which are no classes%s",
                    l->csv->name, n_classes, numbers ? "numbers" : "texts", n,
                    numbers ? "; to predict the number give train.loss=mse data.target=value"
                            : "; data.label names another column");
}

static tutti_status learn_classes(learner *l, int64_t n, bool whole) {
    int64_t n_classes;
    if (l->table->labels == TTI_LABEL_NUMBER)
        TTI_TRY(number_classes(l, n, &n_classes));
    else
        TTI_TRY(text_classes(l, n, &n_classes));
    TTI_TRY(check_classes(l, n_classes, n, whole));
    l->spec->n_classes = n_classes;
    if (l->desc->n_classes > 0 && l->desc->n_classes != n_classes)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the training rows have %" PRId64 " different labels, and %" PRId64
                        " classes are asked for (data.classes)",
                        l->csv->name, n_classes, l->desc->n_classes);
    return copy_texts(l, n_classes, &l->spec->class_names);
}

static tutti_status learn_target(learner *l, int64_t n) {
    tti_target_spec *t = &l->spec->target;
    if (l->table->labels != TTI_LABEL_NUMBER)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the label column has texts, and the job asks for numbers to predict "
                        "(train.loss, data.target)",
                        l->csv->name);
    l->table->labels = TTI_LABEL_VALUE;
    l->spec->n_classes = 1;
    t->is_value = true;
    measure(l->value, n, &t->mean, &t->std);
    if (isfinite(t->mean) && isfinite(t->std) && t->std > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: the target has %s", l->csv->name,
                    t->std == 0 ? "one value only in the training rows" : "too large numbers");
}

/* A value is predicted if the job says so, or, under "auto", if some label is not whole. */
static tutti_status learn_labels(learner *l) {
    int64_t n;
    bool whole;
    TTI_TRY(take_labels(l, &n, &whole));
    const char *target = l->desc->target ? l->desc->target : "class";
    bool numbers = l->table->labels == TTI_LABEL_NUMBER;
    bool value = strcmp(target, "value") == 0 || (strcmp(target, "auto") == 0 && numbers && !whole);
    l->table->column[l->table->label].kind = TTI_COLUMN_LABEL;
    TTI_TRY(value ? learn_target(l, n) : learn_classes(l, n, whole));
    if (value || strcmp(target, "auto") == 0)
        add_notice(l, l->table->label,
                   value ? "is a value to predict (data.target)"
                         : "has classes: all labels are whole numbers or texts; to predict the "
                           "number give data.target=value");
    return TUTTI_OK;
}

/* ---- all of it ---- */

static tutti_status name_columns(learner *l) {
    tti_table_spec *t = l->table;
    for (int i = 0; i < t->n_columns && t->column; i++)
        t->column[i].name =
            tti_arena_strdup(&l->spec->arena, l->csv->header ? l->csv->header[i] : "");
    return l->spec->arena.failed ? no_memory(l) : TUTTI_OK;
}

static void report_missing(const learner *l, int column) {
    const tti_column *c = &l->table->column[column];
    char what[TTI_CLIP * 4], clipped[TTI_CLIP], number[TTI_NUMBER_TEXT];
    if (c->n_missing == 0 || tti_column_n_features(c) == 0) return;
    snprintf(what, sizeof what, "has no value in %" PRId64 " training row%s; %s %s stands for it",
             c->n_missing, c->n_missing == 1 ? "" : "s",
             c->kind == TTI_COLUMN_NUMBER || c->kind == TTI_COLUMN_DATE ? "the median"
                                                                        : "the most frequent,",
             c->kind == TTI_COLUMN_CATEGORY ? tti_clip(clipped, c->category[(int)c->fill])
                                            : tti_value_text(number, c->fill));
    add_notice(l, column, what);
}

static tutti_status learn(learner *l, bool *given) {
    TTI_TRY(name_columns(l));
    TTI_TRY(find_label(l));
    TTI_TRY(apply_columns(l, given));
    for (int i = 0; i < l->table->n_columns; i++)
        if (i != l->table->label) {
            TTI_TRY(learn_column(l, i, given[i]));
            report_missing(l, i);
        }
    TTI_TRY(learn_labels(l));
    int64_t n = tti_table_n_features(l->table);
    if (n > 0 && n <= TTI_MAX_TABLE_COLUMNS) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: the columns have %" PRId64 " features, 1 to %d are possible",
                    l->csv->name, n, TTI_MAX_TABLE_COLUMNS);
}

tutti_status tti_table_learn(const tutti_dataset_desc *desc, const tti_csv_text *csv,
                             const tti_row_split *rows, tti_data_spec *spec, tti_str *notices) {
    size_t n = (size_t)csv->n_columns, n_rows = (size_t)rows->n + 1;
    if (n < 2)
        return tti_fail(TUTTI_E_DATA, "%s: %zu columns, a feature and a label are needed",
                        csv->name, n);
    learner l = {.desc = desc, .csv = csv, .rows = rows, .spec = spec, .notices = notices};
    l.table = spec->table = tti_arena_alloc(&spec->arena, sizeof *l.table);
    l.value = malloc(n_rows * sizeof *l.value);
    l.text = malloc(n_rows * sizeof *l.text);
    bool *given = calloc(n, sizeof *given);
    if (l.table) {
        *l.table = (tti_table_spec){
            .has_names = csv->header != NULL, .n_columns = csv->n_columns, .n_rows = rows->n};
        l.table->column = tti_arena_alloc(&spec->arena, n * sizeof *l.table->column);
    }
    tutti_status st =
        given && l.value && l.text && !spec->arena.failed ? learn(&l, given) : no_memory(&l);
    free(given);
    free(l.value);
    free(l.text);
    return st;
}

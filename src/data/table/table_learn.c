/* table_learn.c - learns types, statistics and categories of a table's columns.
 *
 * Everything is computed in f64 over the training rows alone; the mean is subtracted before a value
 * is rounded to f32, so that large numbers such as times stay distinct. */
#include "data/table/table_learn.h"

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
#include "data/table/column_kind.h"
#include "data/table/csv_value.h"
#include "data/table/table_cell.h"
#include "data/target.h"

#define MAX_EXACT 9007199254740992.0 /* 2^53: smaller whole numbers are exact in f64 */

enum { MANY = 50, FEW_ROWS = 10 };

typedef struct learner {
    const tutti_dataset_desc *desc;
    const tti_csv_text *csv;
    const tti_row_split *rows;
    tti_data_spec *spec;
    tti_table_spec *table;
    tti_str *notices;
    bool drops_texts;  /* data.on_error=skip leaves out rows with a label that is not a number, */
    bool drops_others; /* or neither 0 nor 1                                                  */
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
    tti_table_notice(l->csv, l->table, column, what, l->notices);
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
        if (l->table->column[column].kind == TTI_COLUMN_LABEL)
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
            return tti_table_bad_cell(l->csv, l->table, column, tti_row_at(l->rows, i), cell, true);
        ++*n;
    }
    return TUTTI_OK;
}

static tutti_status learn_values(learner *l, int column) {
    tti_column *c = &l->table->column[column];
    int64_t n;
    char text[TTI_COLUMN_TEXT];
    TTI_TRY(take_values(l, column, &n));
    if (n == 0)
        return tti_fail(TUTTI_E_DATA, "%s: %s has no values in the training rows", l->csv->name,
                        tti_column_text(l->table, column, text));
    tti_target_measure(l->value, n, &c->mean, &c->std);
    qsort(l->value, (size_t)n, sizeof *l->value, compare_doubles);
    c->min = l->value[0];
    c->max = l->value[n - 1];
    c->fill = n % 2 ? l->value[n / 2] : l->value[n / 2 - 1] / 2 + l->value[n / 2] / 2;
    if (!isfinite(c->std * c->std) || !isfinite(c->mean))
        return tti_fail(TUTTI_E_DATA, "%s: %s: the numbers are too large (%g to %g)", l->csv->name,
                        tti_column_text(l->table, column, text), c->min, c->max);
    if (c->kind == TTI_COLUMN_BOOLEAN) c->fill = 2 * c->mean > 1;
    if (c->std == 0) add_notice(l, column, "has only one value and carries no information");
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
    return tti_arena_failed(&l->spec->arena) ? no_memory(l) : TUTTI_OK;
}

/* Names of people and similar columns identify rows and predict nothing about other rows. */
static bool tells_rows_apart(int64_t n_distinct, int64_t n) {
    return (n_distinct == n && n >= FEW_ROWS) || (2 * n_distinct > n && n_distinct >= MANY) ||
           n_distinct > TTI_MAX_CATEGORIES;
}

static tutti_status learn_texts(learner *l, int column, bool given) {
    tti_column *c = &l->table->column[column];
    int64_t n = 0, most = 0;
    char text[TTI_COLUMN_TEXT], why[TTI_COLUMN_TEXT + TTI_CLIP], clipped[TTI_CLIP];
    for (int64_t i = 0; i < l->rows->n; i++)
        if (!tti_value_is_missing(cell_at(l, column, i))) l->text[n++] = cell_at(l, column, i);
    int64_t n_distinct = distinct_texts(l, n, &most);
    if (given && (n_distinct > TTI_MAX_CATEGORIES || n == 0))
        return tti_fail(TUTTI_E_DATA, "%s: %s has %" PRId64 " categories, 1 to %d are supported",
                        l->csv->name, tti_column_text(l->table, column, text), n_distinct,
                        TTI_MAX_CATEGORIES);
    if (!given && (n_distinct == 1 || tells_rows_apart(n_distinct, n))) {
        snprintf(why, sizeof why,
                 "is ignored: %" PRId64 " different text%s in %" PRId64
                 " training rows, such as '%s'",
                 n_distinct, n_distinct == 1 ? "" : "s", n, tti_clip(clipped, l->text[0]));
        c->kind = TTI_COLUMN_IGNORE;
        add_notice(l, column, why);
        return TUTTI_OK;
    }
    c->n_categories = (int)n_distinct;
    c->fill = (double)most;
    return copy_texts(l, n_distinct, &c->category);
}

/* ---- columns ---- */

static tutti_status learn_column(learner *l, int column, bool given) {
    tti_column *c = &l->table->column[column];
    for (int64_t i = 0; i < l->rows->n; i++)
        c->n_missing += tti_value_is_missing(cell_at(l, column, i));
    if (!given) TTI_TRY(tti_column_choose_kind(l->csv, l->rows, l->table, column, l->notices));
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

/* The n bytes at text, without the blanks around them. */
static void copy_trimmed(const char *text, size_t n, char out[TTI_CLIP * 8]) {
    while (n > 0 && isspace((unsigned char)*text)) text++, n--;
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    snprintf(out, TTI_CLIP * 8, "%.*s", (int)n, text);
}

static tutti_status add_label(learner *l, const char *name) {
    tti_table_spec *t = l->table;
    char clipped[TTI_CLIP];
    int column = find_column(t, name);
    tti_clip(clipped, name);
    if (column < 0)
        return tti_fail(TUTTI_E_DATA,
                        "%s: data.label: no column is called '%s', and it is not a number below %d",
                        l->csv->name, clipped, t->n_columns);
    if (t->column[column].kind == TTI_COLUMN_LABEL)
        return tti_fail(TUTTI_E_INVALID, "data.label: column '%s' is named twice", clipped);
    if (t->n_labels == TTI_MAX_LABEL_COLUMNS)
        return tti_fail(TUTTI_E_INVALID, "data.label: more than %d columns", TTI_MAX_LABEL_COLUMNS);
    t->column[column].kind = TTI_COLUMN_LABEL;
    t->label[t->n_labels++] = column;
    return TUTTI_OK;
}

/* "a, b": columns a and b, unless one column is called so. */
static tutti_status find_given_labels(learner *l, const char *given) {
    char name[TTI_CLIP * 8];
    copy_trimmed(given, strlen(given), name);
    if (!strchr(given, ',') || find_column(l->table, name) >= 0) return add_label(l, name);
    for (size_t n; *given; given += n + (given[n] == ',')) {
        n = strcspn(given, ",");
        copy_trimmed(given, n, name);
        TTI_TRY(add_label(l, name));
    }
    return TUTTI_OK;
}

/* The label column if the job names none. */
static int usual_label(const learner *l) {
    static const char *const usual[] = {"label", "class", "target", "y"};
    const tti_table_spec *t = l->table;
    for (size_t k = 0; k < TTI_COUNT(usual) && t->has_names; k++)
        for (int i = 0; i < t->n_columns; i++)
            if (strcasecmp(t->column[i].name, usual[k]) == 0) return i;
    int last = t->n_columns - 1;
    while (last > 0 && is_column_empty(l, last)) last--;
    if (t->has_names)
        add_notice(l, last,
                   "is taken for the label: it is the last one, and none is called label, class, "
                   "target or y (data.label)");
    return last;
}

static tutti_status find_label(learner *l) {
    tti_table_spec *t = l->table;
    const char *given = l->desc->label ? l->desc->label : "";
    if (given[strspn(given, " \t")]) {
        TTI_TRY(find_given_labels(l, given));
    } else {
        t->label[t->n_labels++] = usual_label(l);
        t->column[t->label[0]].kind = TTI_COLUMN_LABEL;
    }
    if (t->n_labels < t->n_columns) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: data.label: all columns are labels, and none is a feature",
                    l->csv->name);
}

/* Whether row i has all of its labels.  Without data.on_error=skip a missing one is an error. */
static tutti_status check_row_labels(const learner *l, int64_t i, bool *whole) {
    const tti_table_spec *t = l->table;
    char text[TTI_COLUMN_TEXT];
    double x;
    bool yes;
    *whole = true;
    for (int k = 0; k < t->n_labels && *whole; k++) {
        const char *label = cell_at(l, t->label[k], i);
        *whole = !tti_value_is_missing(label) &&
                 (!l->drops_texts || tti_value_number(label, l->csv->decimal_comma, &x)) &&
                 (!l->drops_others || tti_table_yes_no(l->csv, label, &yes));
        if (!*whole && !l->desc->skip_bad)
            return tti_fail(TUTTI_E_DATA,
                            "%s:%lld: %s: the label is missing (data.on_error=skip leaves such "
                            "rows out)",
                            l->csv->name, (long long)l->csv->line[tti_row_at(l->rows, i)],
                            tti_column_text(t, t->label[k], text));
    }
    return TUTTI_OK;
}

/* The kinds of a column's labels, over the training rows that have all of their labels. */
typedef struct label_kinds {
    int64_t n, n_numbers;
    int64_t bad_row;               /* of a label that is not a number */
    bool numbers, booleans, whole; /* all of them are; whole: as far as they are numbers */
    bool huge; /* a number of 2^53 or more: different numbers may be the same double */
} label_kinds;

/* The labels of a column go into l->text and, as far as all are numbers, into l->value. */
static tutti_status take_labels(const learner *l, int column, label_kinds *k) {
    bool truth, has_labels;
    double x = 0;
    *k = (label_kinds){.numbers = true, .booleans = true, .whole = true};
    for (int64_t i = 0; i < l->rows->n; i++) {
        const char *label = cell_at(l, column, i);
        TTI_TRY(check_row_labels(l, i, &has_labels));
        if (!has_labels) continue;
        bool number = tti_value_number(label, l->csv->decimal_comma, &x);
        if (!number && k->numbers) k->bad_row = tti_row_at(l->rows, i);
        k->n_numbers += number;
        k->numbers = k->numbers && number;
        k->booleans = k->booleans && tti_value_boolean(label, &truth);
        if (number) k->whole = k->whole && x == nearbyint(x);
        if (number) k->huge = k->huge || fabs(x) >= MAX_EXACT;
        if (k->numbers) l->value[k->n] = x;
        l->text[k->n++] = label;
    }
    l->table->labels = k->numbers    ? TTI_LABEL_NUMBER
                       : k->booleans ? TTI_LABEL_BOOLEAN
                                     : TTI_LABEL_TEXT;
    if (k->n > 0) return TUTTI_OK;
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

/* Two spellings of yes or of no are two classes. */
static void report_spellings(const learner *l, int64_t n_classes) {
    static const char *const words[2][5] = {{"false", "no", "f", "n", "0"},
                                            {"true", "yes", "t", "y", "1"}};
    char what[TTI_CLIP * 4], clipped[2][TTI_CLIP];
    for (int truth = 0; truth < 2; truth++) {
        const char *first = NULL, *second = NULL;
        for (int64_t i = 0; i < n_classes; i++)
            for (size_t k = 0; k < TTI_COUNT(words[truth]); k++) {
                if (strcasecmp(l->text[i], words[truth][k]) != 0) continue;
                second = first ? l->text[i] : NULL;
                first = first ? first : l->text[i];
            }
        if (!second) continue;
        snprintf(what, sizeof what,
                 "has the classes '%s' and '%s'; if they mean the same, give them one name",
                 tti_clip(clipped[0], first), tti_clip(clipped[1], second));
        add_notice(l, l->table->label[0], what);
    }
}

static tutti_status check_classes(const learner *l, int64_t n_classes, int64_t n, bool whole) {
    bool asked = l->desc->target && strcmp(l->desc->target, "class") == 0;
    bool numbers = l->table->labels == TTI_LABEL_NUMBER;
    bool values = numbers && (!whole || (!asked && n_classes > 100 && 2 * n_classes > n));
    if (!values && n_classes <= TTI_MAX_TABLE_CLASSES) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the label column has %" PRId64 " different %s in %" PRId64
                    " training rows, which are not classes%s",
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
    if (l->table->labels != TTI_LABEL_NUMBER) report_spellings(l, n_classes);
    TTI_TRY(check_classes(l, n_classes, n, whole));
    l->spec->n_classes = n_classes;
    if (l->desc->n_classes > 0 && l->desc->n_classes != n_classes)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the training rows have %" PRId64 " different labels, and %" PRId64
                        " classes are asked for (data.classes)",
                        l->csv->name, n_classes, l->desc->n_classes);
    if (n_classes == 1)
        add_notice(l, l->table->label[0], "has one value only, so there is nothing to learn");
    return copy_texts(l, n_classes, &l->spec->class_names);
}

static tutti_status not_a_number(const learner *l, int column, int64_t row) {
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP];
    if (tti_value_is_tiny(tti_csv_cell(l->csv, row, column)))
        return tti_fail(TUTTI_E_DATA,
                        "%s:%lld: %s: the label '%s' is too small and would be read as 0; write 0 "
                        "if that is meant",
                        l->csv->name, (long long)l->csv->line[row],
                        tti_column_text(l->table, column, text),
                        tti_clip(clipped, tti_csv_cell(l->csv, row, column)));
    return tti_fail(TUTTI_E_DATA,
                    "%s:%lld: %s: the label '%s' is not a finite number, and the job asks for "
                    "numbers to predict (train.loss, data.target); data.on_error=skip leaves such "
                    "rows out",
                    l->csv->name, (long long)l->csv->line[row],
                    tti_column_text(l->table, column, text),
                    tti_clip(clipped, tti_csv_cell(l->csv, row, column)));
}

static tutti_status learn_target(learner *l, int64_t k) {
    int column = l->table->label[k];
    char text[TTI_COLUMN_TEXT];
    label_kinds kinds;
    TTI_TRY(take_labels(l, column, &kinds));
    if (!kinds.numbers) return not_a_number(l, column, kinds.bad_row);
    double *mean = &l->spec->target.mean[k], *std = &l->spec->target.std[k];
    tti_target_measure(l->value, kinds.n, mean, std);
    if (isfinite(*mean) && isfinite(*std) && *std > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: %s: the target has %s", l->csv->name,
                    tti_column_text(l->table, column, text),
                    *std == 0 ? "only one value in the training rows, so there is nothing to learn"
                              : "numbers that are too large");
}

static tutti_status learn_targets(learner *l) {
    tti_table_spec *t = l->table;
    l->drops_texts = l->desc->skip_bad;
    TTI_TRY(tti_data_spec_alloc_targets(l->spec, t->n_labels));
    for (int64_t k = 0; k < t->n_labels; k++) TTI_TRY(learn_target(l, k));
    if (t->n_labels == 1)
        add_notice(l, t->label[0], "is a value to predict (data.target)");
    else
        tti_str_printf(l->notices, "%s: %d columns are values to predict (data.label)\n",
                       l->csv->name, t->n_labels);
    t->labels = TTI_LABEL_VALUE;
    l->spec->n_classes = t->n_labels;
    return TUTTI_OK;
}

/* ---- labels of 0 and 1 ---- */

static tutti_status learn_yes_no(learner *l, int column) {
    tti_column *c = &l->table->column[column];
    int64_t n = 0, n_yes = 0;
    bool yes = false, whole;
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP];
    for (int64_t i = 0; i < l->rows->n; i++) {
        TTI_TRY(check_row_labels(l, i, &whole));
        if (!whole) continue;
        const char *label = cell_at(l, column, i);
        if (!tti_table_yes_no(l->csv, label, &yes))
            return tti_fail(TUTTI_E_DATA,
                            "%s:%lld: %s: the label '%s' is not 0 or 1 (or true, false, yes, no), "
                            "and data.target=labels asks for these; data.on_error=skip leaves such "
                            "rows out",
                            l->csv->name, (long long)l->csv->line[tti_row_at(l->rows, i)],
                            tti_column_text(l->table, column, text), tti_clip(clipped, label));
        n++, n_yes += yes;
    }
    if (n == 0) return tti_fail(TUTTI_E_DATA, "%s: the training rows have no labels", l->csv->name);
    c->mean = (double)n_yes / (double)n;
    if (n_yes == 0 || n_yes == n)
        add_notice(l, column,
                   n_yes ? "is 1 in all training rows, so there is nothing to learn"
                         : "is 0 in all training rows, so there is nothing to learn");
    return TUTTI_OK;
}

/* Each label is a question of its own, and the labels of a sample are its field y. */
static tutti_status learn_yes_no_labels(learner *l) {
    tti_table_spec *t = l->table;
    if (l->desc->n_classes > 0)
        return tti_fail(TUTTI_E_INVALID,
                        "data.classes: labels of 0 and 1 (data.target=labels) have no classes; "
                        "leave it out");
    l->drops_others = l->desc->skip_bad;
    t->labels = TTI_LABEL_YES_NO;
    for (int k = 0; k < t->n_labels; k++) TTI_TRY(learn_yes_no(l, t->label[k]));
    tti_str_printf(l->notices, "%s: %d column%s of 0 and 1 %s (data.target=labels)\n", l->csv->name,
                   t->n_labels, t->n_labels == 1 ? "" : "s",
                   t->n_labels == 1 ? "is a label" : "are labels");
    TTI_TRY(tti_data_spec_alloc_fields(l->spec, TTI_TABLE_FIELDS));
    tti_table_list_fields(t, l->spec->fields);
    return TUTTI_OK;
}

/* Under "auto" values are predicted if some label is not whole, or if there are several columns.  A
 * few texts among many numbers are mistakes, no classes. */
static tutti_status choose_values(learner *l, const label_kinds *kinds, bool *out) {
    const tti_table_spec *t = l->table;
    const char *target = l->desc->target ? l->desc->target : "class";
    bool is_auto = strcmp(target, "auto") == 0;
    bool has_mistakes = !kinds->numbers && 5 * kinds->n_numbers >= 4 * kinds->n;
    bool are_numbers = kinds->numbers || (has_mistakes && l->desc->skip_bad);
    *out = strcmp(target, "value") == 0 ||
           (is_auto && (t->n_labels > 1 || (are_numbers && !kinds->whole)));
    if (t->n_labels > 1 && !*out)
        return tti_fail(
            TUTTI_E_INVALID,
            "data.label: %d columns are named, but several targets must be values or 0 and 1; "
            "give train.loss=mse, mae, huber or smooth_l1 for values, train.loss=bce "
            "for labels of 0 and 1, or name one column",
            t->n_labels);
    if (is_auto && !*out && has_mistakes) return not_a_number(l, t->label[0], kinds->bad_row);
    return TUTTI_OK;
}

static tutti_status learn_labels(learner *l) {
    label_kinds kinds;
    bool values;
    if (l->desc->target && strcmp(l->desc->target, "labels") == 0) return learn_yes_no_labels(l);
    TTI_TRY(take_labels(l, l->table->label[0], &kinds));
    TTI_TRY(choose_values(l, &kinds, &values));
    if (values) return learn_targets(l);
    if (kinds.huge && l->table->labels == TTI_LABEL_NUMBER) l->table->labels = TTI_LABEL_TEXT;
    TTI_TRY(learn_classes(l, kinds.n, kinds.whole));
    if (l->desc->target && strcmp(l->desc->target, "auto") == 0)
        add_notice(l, l->table->label[0],
                   "has classes: all labels are whole numbers or texts; to predict the number give "
                   "data.target=value");
    return TUTTI_OK;
}

/* ---- all of it ---- */

static tutti_status name_columns(learner *l) {
    tti_table_spec *t = l->table;
    for (int i = 0; i < t->n_columns && t->column; i++)
        t->column[i].name =
            tti_arena_strdup(&l->spec->arena, l->csv->header ? l->csv->header[i] : "");
    return tti_arena_failed(&l->spec->arena) ? no_memory(l) : TUTTI_OK;
}

static void report_missing(const learner *l, int column) {
    const tti_column *c = &l->table->column[column];
    char what[TTI_CLIP * 4], clipped[TTI_CLIP], number[TTI_NUMBER_TEXT];
    if (c->n_missing == 0 || tti_column_n_features(c) == 0) return;
    snprintf(what, sizeof what, "has no value in %" PRId64 " training row%s; filled with %s %s",
             c->n_missing, c->n_missing == 1 ? "" : "s",
             c->kind == TTI_COLUMN_NUMBER || c->kind == TTI_COLUMN_DATE ? "the median"
                                                                        : "the most frequent,",
             c->kind == TTI_COLUMN_CATEGORY ? tti_clip(clipped, c->category[(int)c->fill])
                                            : tti_value_text(number, c->fill));
    add_notice(l, column, what);
}

static tutti_status learn(learner *l, bool *given) {
    char first[TTI_CLIP], second[TTI_CLIP];
    if (l->csv->counts_names)
        tti_str_printf(l->notices, "%s: the first line, %s, %s ..., is taken for names\n",
                       l->csv->name,
                       l->csv->header[0][0] ? tti_clip(first, l->csv->header[0]) : "(empty)",
                       tti_clip(second, l->csv->header[1]));
    TTI_TRY(name_columns(l));
    TTI_TRY(find_label(l));
    TTI_TRY(apply_columns(l, given));
    for (int i = 0; i < l->table->n_columns; i++)
        if (l->table->column[i].kind != TTI_COLUMN_LABEL) {
            TTI_TRY(learn_column(l, i, given[i]));
            report_missing(l, i);
        }
    TTI_TRY(learn_labels(l));
    int64_t n = tti_table_n_features(l->table);
    if (n > 0 && n <= TTI_MAX_TABLE_COLUMNS) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the columns have %" PRId64 " features, 1 to %d are supported",
                    l->csv->name, n, TTI_MAX_TABLE_COLUMNS);
}

tutti_status tti_table_learn(const tutti_dataset_desc *desc, const tti_csv_text *csv,
                             const tti_row_split *rows, tti_data_spec *spec, tti_str *notices) {
    size_t n = (size_t)csv->n_columns, n_rows = (size_t)rows->n + 1;
    if (n < 2)
        return tti_fail(TUTTI_E_DATA,
                        "%s: one column: the first line has no comma, semicolon, tab or | outside "
                        "quotes; a feature and a label are needed",
                        csv->name);
    learner l = {.desc = desc, .csv = csv, .rows = rows, .spec = spec, .notices = notices};
    l.table = spec->table = tti_arena_alloc(&spec->arena, sizeof *l.table);
    l.value = malloc(n_rows * sizeof *l.value);
    l.text = malloc(n_rows * sizeof *l.text);
    bool *given = calloc(n, sizeof *given);
    if (l.table) {
        *l.table = (tti_table_spec){.has_names = csv->header != NULL,
                                    .decimal_comma = csv->decimal_comma,
                                    .n_columns = csv->n_columns,
                                    .n_rows = rows->n};
        l.table->column = tti_arena_alloc(&spec->arena, n * sizeof *l.table->column);
        l.table->label = tti_arena_alloc(&spec->arena, n * sizeof *l.table->label);
    }
    tutti_status st = given && l.value && l.text && !tti_arena_failed(&spec->arena)
                          ? learn(&l, given)
                          : no_memory(&l);
    free(given);
    free(l.value);
    free(l.text);
    return st;
}

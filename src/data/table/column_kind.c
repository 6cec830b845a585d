/* column_kind.c - decides what a column of features is, by the values of its training rows.
 *
 * A column of texts that look like numbers or dates is never a category without a word: it is
 * refused with the place of such a value, or a notice says what would make it a number or a date.
 */
#include "data/table/column_kind.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error.h"
#include "base/problem.h"
#include "data/table/csv_value.h"
#include "data/table/table_cell.h"

enum { FEW_ROWS = 10 };

typedef struct chooser {
    const tti_csv_text *csv;
    const tti_row_split *rows;
    tti_table_spec *table;
    int column;
    tti_str *notices;
} chooser;

typedef struct counts {
    int64_t n, numbers, odd, booleans, digits, dates, like_dates, with_unit, begin, huge;
    int64_t other_than_number, other_than_date; /* a row with such a value */
    const char *unit;                           /* of the first value */
} counts;

static const char *cell_at(const chooser *c, int64_t i) {
    return tti_csv_cell(c->csv, tti_row_at(c->rows, i), c->column);
}

static void add_notice(const chooser *c, const char *what) {
    tti_table_notice(c->csv, c->table, c->column, what, c->notices);
}

static void count_text(counts *k, const char *cell) {
    bool truth;
    const char *unit = tti_value_unit(cell);
    k->odd += tti_value_is_odd_number(cell) || tti_value_has_marks(cell);
    k->booleans += tti_value_boolean(cell, &truth);
    k->like_dates += tti_value_looks_like_date(cell);
    if (k->n == 0) k->unit = unit;
    k->with_unit += unit && k->unit && strcmp(unit, k->unit) == 0;
}

static counts count_kinds(const chooser *c) {
    counts k = {0};
    for (int64_t i = 0; i < c->rows->n; i++) {
        const char *cell = cell_at(c, i);
        double x;
        if (tti_value_is_missing(cell)) continue;
        bool number = tti_value_number(cell, c->csv->decimal_comma, &x);
        bool date = !number && tti_value_date(cell, &x);
        k.numbers += number;
        k.dates += date;
        k.digits += number && (x == 0 || x == 1);
        k.huge += number && tti_value_is_rounded(cell);
        if (!number) count_text(&k, cell);
        k.begin += tti_value_begins_with_number(cell);
        if (!number) k.other_than_number = tti_row_at(c->rows, i);
        if (!date) k.other_than_date = tti_row_at(c->rows, i);
        k.n++;
    }
    return k;
}

/* ---- row numbers ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool has_name_of_index(const chooser *c) {
    static const char *const names[] = {"", "id", "index", "unnamed: 0", "rownames", "row"};
    bool named = false;
    for (size_t i = 0; i < TTI_COUNT(names); i++)
        named |= strcasecmp(c->table->column[c->column].name, names[i]) == 0;
    return c->table->has_names && named;
}

/* The number of the row, as spreadsheets and data frames add it; in a shuffled or divided table
 * the rows keep the numbers that they had. */
static tutti_status counts_rows(const chooser *c, bool *in_order, bool *all_differ) {
    int64_t n = c->csv->n_rows;
    *in_order = *all_differ = false;
    if (!has_name_of_index(c) || n < 3) return TUTTI_OK;
    double *x = malloc((size_t)n * sizeof *x);
    if (!x) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", c->csv->name);
    bool whole = true, ordered = true;
    for (int64_t i = 0; i < n && whole; i++) {
        whole = tti_value_number(tti_csv_cell(c->csv, i, c->column), false, &x[i]) &&
                x[i] == nearbyint(x[i]);
        ordered = ordered && whole && x[i] == x[0] + (double)i;
    }
    *in_order = whole && ordered;
    *all_differ = whole && n >= FEW_ROWS;
    if (whole) qsort(x, (size_t)n, sizeof *x, compare_doubles);
    for (int64_t i = 1; i < n && *all_differ; i++) *all_differ = x[i - 1] < x[i];
    *all_differ = *all_differ && x[0] >= 0;
    free(x);
    return TUTTI_OK;
}

/* ---- texts that look like something else ---- */

static void report_texts(const chooser *c, const counts *k) {
    char what[TTI_CLIP * 6], clipped[TTI_CLIP];
    bool dates = 5 * k->like_dates >= 4 * k->n;
    int64_t row = dates ? k->other_than_date : k->other_than_number;
    tti_clip(clipped, tti_csv_cell(c->csv, row, c->column));
    if (dates)
        snprintf(what, sizeof what,
                 "has dates such as '%s', which are read as texts; write them as 2024-02-29",
                 clipped);
    else if (2 * (k->numbers + k->odd) >= k->n)
        snprintf(what, sizeof what,
                 "has numbers in %" PRId64 " of %" PRId64
                 " training rows and texts such as '%s' in the others, so it is read as texts; "
                 "leave cells without a number empty to read it as numbers",
                 k->numbers + k->odd, k->n, clipped);
    else if (k->with_unit == k->n)
        snprintf(what, sizeof what,
                 "has numbers with a unit, such as '%s', which are read as texts; remove the unit "
                 "to read them as numbers",
                 clipped);
    else if (k->begin == k->n)
        snprintf(what, sizeof what,
                 "has texts that begin with a number, such as '%s', and each is a category; write "
                 "plain numbers such as 1234.5 to read them as numbers",
                 clipped);
    else
        return;
    add_notice(c, what);
}

/* ---- all of it ---- */

static tti_column_kind kind_of(const counts *k) {
    if (k->numbers == k->n) return TTI_COLUMN_NUMBER;
    if (k->booleans > 0 && k->booleans + k->digits == k->n) return TTI_COLUMN_BOOLEAN;
    return k->dates == k->n ? TTI_COLUMN_DATE : TTI_COLUMN_CATEGORY;
}

static tutti_status ignore(tti_column *column, const chooser *c, const char *why) {
    column->kind = TTI_COLUMN_IGNORE;
    add_notice(c, why);
    return TUTTI_OK;
}

tutti_status tti_column_choose_kind(const tti_csv_text *csv, const tti_row_split *rows,
                                    tti_table_spec *table, int column, tti_str *notices) {
    const chooser c = {csv, rows, table, column, notices};
    tti_column *out = &table->column[column];
    counts k = count_kinds(&c);
    bool in_order, all_differ;
    if (k.n == 0) return ignore(out, &c, "is ignored: it has no values in the training rows");
    TTI_TRY(counts_rows(&c, &in_order, &all_differ));
    if (in_order) return ignore(out, &c, "is ignored: it only counts the rows");
    if (all_differ)
        return ignore(out, &c,
                      "is ignored: it has a different whole number in each row, as row numbers do; "
                      "data.columns can say that it is a number");
    out->kind = kind_of(&k);
    if (k.huge > 0 && out->kind == TTI_COLUMN_NUMBER)
        add_notice(
            &c,
            "has whole numbers of 2^53 or more, which are rounded; if they are identifiers, say "
            "category or ignore in data.columns");
    if (out->kind != TTI_COLUMN_CATEGORY) return TUTTI_OK;
    /* A few values that are none among many numbers are mistakes, no categories. */
    bool numbers = 5 * (k.numbers + k.odd) >= 4 * k.n, dates = 5 * k.dates >= 4 * k.n;
    if (!numbers && !dates) {
        report_texts(&c, &k);
        return TUTTI_OK;
    }
    int64_t row = dates ? k.other_than_date : k.other_than_number;
    out->kind = numbers ? TTI_COLUMN_NUMBER : TTI_COLUMN_DATE;
    return tti_table_bad_cell(csv, table, column, row, tti_csv_cell(csv, row, column), true);
}

/* csv.c - the format "csv": a table of numbers with a column of labels.
 *
 * Each column is made to have mean 0 and standard deviation 1 over the training rows; so the
 * training rows are read for the test split too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/byte_reader.h"
#include "data/csv_table.h"
#include "data/file_list.h"
#include "data/row_split.h"

#define MAX_CSV_BYTES ((size_t)1 << 34)

typedef struct csv_state {
    tti_csv_table table;
    tti_row_split rows;
    float *mean, *scale; /* [n_columns] */
} csv_state;

/* ---- reading ---- */

static tutti_status read_csv(const char *path, const char *label, tti_csv_table *out) {
    tti_reader *reader;
    char *text;
    size_t n_bytes;
    TTI_TRY(tti_reader_open(path, &reader));
    tutti_status st = tti_reader_read_all(reader, MAX_CSV_BYTES, &text, &n_bytes);
    tti_reader_close(reader);
    TTI_TRY(st);
    st = tti_csv_parse(path, text, n_bytes, label, out);
    free(text);
    return st;
}

/* The one file of a split. */
static tutti_status read_split(const tutti_dataset_desc *desc, tti_csv_table *table, bool *both) {
    tti_file_list list;
    TTI_TRY(tti_file_list_make(desc, "csv", ".csv", &list));
    tutti_status st = list.n == 1 ? read_csv(list.path[0], desc->label, table)
                                  : tti_fail(TUTTI_E_DATA,
                                             "%s: csv: %zu files for a split (%s, "
                                             "%s), one is possible",
                                             desc->dir, list.n, list.path[0], list.path[1]);
    *both = list.both;
    tti_file_list_free(&list);
    return st;
}

/* ---- the scale of the columns ---- */

static void add_column(const csv_state *s, const tti_row_split *rows, int column, float *mean,
                       float *scale) {
    const float *x = s->table.x + column;
    size_t step = (size_t)s->table.n_columns;
    double sum = 0, squares = 0, n = (double)rows->n;
    for (int64_t i = 0; i < rows->n; i++) sum += (double)x[(size_t)tti_row_at(rows, i) * step];
    for (int64_t i = 0; i < rows->n; i++) {
        double d = (double)x[(size_t)tti_row_at(rows, i) * step] - sum / n;
        squares += d * d;
    }
    *mean = (float)(sum / n);
    *scale = squares > 0 ? (float)(1 / sqrt(squares / n)) : 1.0f;
}

static tutti_status fit(csv_state *s, const tutti_dataset_desc *desc, bool both) {
    tutti_dataset_desc train = *desc;
    train.split = TUTTI_TRAIN;
    tti_row_split rows = tti_row_split_make(&train, s->table.n_rows, !both);
    size_t n = (size_t)s->table.n_columns;
    s->mean = malloc(n * sizeof *s->mean);
    s->scale = malloc(n * sizeof *s->scale);
    if (!s->mean || !s->scale) return tti_fail(TUTTI_E_NOMEM, "csv: out of memory");
    for (int i = 0; i < s->table.n_columns; i++) add_column(s, &rows, i, &s->mean[i], &s->scale[i]);
    return TUTTI_OK;
}

/* ---- the data set ---- */

static tutti_status csv_read(const tutti_dataset *ds, int64_t index, void *out, int32_t *y) {
    const csv_state *s = ds->state;
    size_t row = (size_t)tti_row_at(&s->rows, index), n = (size_t)s->table.n_columns;
    const float *x = s->table.x + row * n;
    float *to = out;
    for (size_t i = 0; i < n; i++) to[i] = (x[i] - s->mean[i]) * s->scale[i];
    *y = s->table.y[row];
    return TUTTI_OK;
}

static void csv_close(tutti_dataset *ds) {
    csv_state *s = ds->state;
    tti_csv_table_free(&s->table);
    free(s->mean);
    free(s->scale);
    free(s);
}

static tutti_status count_classes(const tutti_dataset_desc *desc, const tti_csv_table *table,
                                  int64_t *out) {
    int64_t n = desc->n_classes;
    for (int64_t i = 0; i < table->n_rows; i++) {
        if (desc->n_classes > 0 && table->y[i] >= desc->n_classes)
            return tti_fail(TUTTI_E_DATA, "%s: label %d of row %lld is out of range, 0 .. %lld",
                            desc->dir, table->y[i], (long long)i, (long long)desc->n_classes - 1);
        n = TTI_MAX(n, (int64_t)table->y[i] + 1);
    }
    *out = n;
    return TUTTI_OK;
}

/* Training rows first, for the scale; then those of another file for testing. */
static tutti_status load(const tutti_dataset_desc *desc, csv_state *s) {
    tutti_dataset_desc train = *desc;
    train.split = TUTTI_TRAIN;
    bool both;
    TTI_TRY(read_split(&train, &s->table, &both));
    TTI_TRY(fit(s, desc, both));
    if (desc->split == TUTTI_TEST && !both) {
        int n_columns = s->table.n_columns;
        tti_csv_table_free(&s->table);
        TTI_TRY(read_split(desc, &s->table, &both));
        if (s->table.n_columns != n_columns)
            return tti_fail(TUTTI_E_DATA, "%s: csv: %d features for training, %d for testing",
                            desc->dir, n_columns, s->table.n_columns);
        both = false;
    }
    s->rows = tti_row_split_make(desc, s->table.n_rows, !both);
    return TUTTI_OK;
}

static tutti_status csv_open(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    csv_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "csv: out of memory");
    ds->state = s;
    ds->read = csv_read;
    ds->close = csv_close;
    tutti_status st;
    TTI_TRY_GOTO(load(desc, s), cleanup);
    TTI_TRY_GOTO(tti_count_samples(desc, s->rows.n, &ds->info.n_samples), cleanup);
    TTI_TRY_GOTO(count_classes(desc, &s->table, &ds->info.n_classes), cleanup);
    ds->info.y = (tutti_type){TUTTI_I32, {0}};
    ds->stored = (tutti_type){TUTTI_F32, TUTTI_SHAPE(s->table.n_columns)};
cleanup:
    if (st != TUTTI_OK) csv_close(ds);
    return st;
}

const tti_format tti_format_csv = {
    .name = "csv",
    .doc = "tables of numbers (.csv, .csv.gz) with a column of labels; columns are standardised",
    .open = csv_open,
};

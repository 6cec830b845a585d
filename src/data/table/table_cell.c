/* table_cell.c - the value of a cell by the kind of its column, and messages about cells and
 * columns. */
#include "data/table/table_cell.h"

#include <string.h>

#include "base/error.h"
#include "base/problem.h"
#include "data/table/csv_value.h"

void tti_table_notice(const tti_csv_text *csv, const tti_table_spec *table, int column,
                      const char *what, tti_str *notices) {
    char text[TTI_COLUMN_TEXT];
    tti_str_printf(notices, "%s: %s %s\n", csv->name, tti_column_text(table, column, text), what);
}

bool tti_table_value(const tti_csv_text *csv, tti_column_kind kind, const char *cell, double *out) {
    bool truth = false;
    if (kind == TTI_COLUMN_NUMBER) return tti_value_number(cell, csv->decimal_comma, out);
    if (kind == TTI_COLUMN_DATE) return tti_value_date(cell, out);
    bool good = tti_table_yes_no(csv, cell, &truth);
    *out = truth;
    return good;
}

bool tti_table_yes_no(const tti_csv_text *csv, const char *cell, bool *out) {
    double x;
    if (!tti_value_number(cell, csv->decimal_comma, &x)) return tti_value_boolean(cell, out);
    *out = x == 1;
    return x == 0 || x == 1;
}

tutti_status tti_table_bad_cell(const tti_csv_text *csv, const tti_table_spec *table, int column,
                                int64_t row, const char *cell, bool may_choose) {
    static const char *const wanted[TTI_N_COLUMN_KINDS] = {
        [TTI_COLUMN_NUMBER] = "a finite number written as 1234.5",
        [TTI_COLUMN_BOOLEAN] = "true or false",
        [TTI_COLUMN_DATE] = "a date such as 2024-02-29 or 2024-02-29T12:30:00Z"};
    const tti_column *c = &table->column[column];
    char text[TTI_COLUMN_TEXT], clipped[TTI_CLIP], number[16];
    snprintf(number, sizeof number, "%d", column);
    tti_column_text(table, column, text);
    tti_clip(clipped, cell);
    if (c->kind == TTI_COLUMN_NUMBER && tti_value_is_tiny(cell))
        return tti_fail(TUTTI_E_DATA,
                        "%s:%lld: %s: '%s' is too small and would be read as 0; write 0 if that is "
                        "meant",
                        csv->name, (long long)csv->line[row], text, clipped);
    if (!may_choose)
        return tti_fail(TUTTI_E_DATA, "%s:%lld: %s: '%s' is not %s", csv->name,
                        (long long)csv->line[row], text, clipped, wanted[c->kind]);
    return tti_fail(TUTTI_E_DATA,
                    "%s:%lld: %s: '%s' is not %s; correct it, or say what the column is, such as "
                    "data.columns='%s: category' or ignore",
                    csv->name, (long long)csv->line[row], text, clipped, wanted[c->kind],
                    c->name[0] ? c->name : number);
}

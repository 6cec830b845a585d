/* table_cell.h - the value of a cell by the kind of its column, and messages about cells and
 * columns. */
#ifndef TTI_DATA_TABLE_CELL_H
#define TTI_DATA_TABLE_CELL_H

#include "base/str.h"
#include "data/table/csv_text.h"
#include "data/table_spec.h"

/* Adds the line "t.csv: column 'age' WHAT". */
void tti_table_notice(const tti_csv_text *csv, const tti_table_spec *table, int column,
                      const char *what, tti_str *notices);

/* The value of a cell by the kind of its column (number, boolean, date); false: it has none. */
bool tti_table_value(const tti_csv_text *csv, tti_column_kind kind, const char *cell, double *out);

/* 0 or 1, or true or false in any spelling; false: it is something else. */
bool tti_table_yes_no(const tti_csv_text *csv, const char *cell, bool *out);

/* TUTTI_E_DATA: "t.csv:12: column 'age': 'old' is not a number".  may_choose: the kinds of the
 * columns may still be chosen, which the message then says. */
tutti_status tti_table_bad_cell(const tti_csv_text *csv, const tti_table_spec *table, int column,
                                int64_t row, const char *cell, bool may_choose);

#endif /* TTI_DATA_TABLE_CELL_H */

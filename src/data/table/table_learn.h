/* table_learn.h - what the training rows of a table determine about its columns. */
#ifndef TTI_DATA_TABLE_LEARN_H
#define TTI_DATA_TABLE_LEARN_H

#include "base/str.h"
#include "data/data_spec.h"
#include "data/table/csv_text.h"
#include "data/table/row_split.h"

/* Fills spec->table, spec->target, spec->fields, spec->n_classes and spec->class_names from the
 * rows of csv.
 * notices gets a line for each column that is ignored or filled.  TUTTI_E_DATA says where. */
tutti_status tti_table_learn(const tutti_dataset_desc *desc, const tti_csv_text *csv,
                             const tti_row_split *rows, tti_data_spec *spec, tti_str *notices);

/* The value of a cell by the kind of its column (number, boolean, date); false: it has none. */
bool tti_table_value(const tti_csv_text *csv, tti_column_kind kind, const char *cell, double *out);

/* 0 or 1, or true or false in any spelling; false: it is something else. */
bool tti_table_yes_no(const tti_csv_text *csv, const char *cell, bool *out);

/* TUTTI_E_DATA: "t.csv:12: column 'age': 'old' is not a number".  may_choose: the kinds of the
 * columns may still be chosen, which the message then says. */
tutti_status tti_table_bad_cell(const tti_csv_text *csv, const tti_table_spec *table, int column,
                                int64_t row, const char *cell, bool may_choose);

/* A label as class names write it.  Returns out or label itself. */
const char *tti_table_class_text(tti_label_kind kind, const char *label, char *out, size_t n_bytes);

#endif /* TTI_DATA_TABLE_LEARN_H */

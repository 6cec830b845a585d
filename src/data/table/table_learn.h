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

/* A label as class names write it.  Returns out or label itself. */
const char *tti_table_class_text(tti_label_kind kind, const char *label, char *out, size_t n_bytes);

#endif /* TTI_DATA_TABLE_LEARN_H */

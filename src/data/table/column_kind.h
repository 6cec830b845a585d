/* column_kind.h - decides what a column of features is, by the values of its training rows. */
#ifndef TTI_DATA_COLUMN_KIND_H
#define TTI_DATA_COLUMN_KIND_H

#include "base/str.h"
#include "data/table/csv_text.h"
#include "data/table/row_split.h"
#include "data/table_spec.h"

/* Sets the kind of a column.  notices gets a line if the column is ignored, or if many of its
 * values look like numbers or dates and are read as texts.  TUTTI_E_DATA says where: among
 * numbers or dates is a value that is none, or numbers are written in another way. */
tutti_status tti_column_choose_kind(const tti_csv_text *csv, const tti_row_split *rows,
                                    tti_table_spec *table, int column, tti_str *notices);

#endif /* TTI_DATA_COLUMN_KIND_H */

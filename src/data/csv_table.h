/* csv_table.h - a CSV text as numbers: the columns that are features, and the label. */
#ifndef TTI_DATA_CSV_TABLE_H
#define TTI_DATA_CSV_TABLE_H

#include "tutti/types.h"

typedef struct tti_csv_table {
    int64_t n_rows;
    int n_columns; /* without the label */
    float *x;      /* [n_rows, n_columns]; owned */
    int32_t *y;    /* [n_rows]; owned */
} tti_csv_table;

/* Fields between commas (semicolons or tabs, if the first line has no comma), in quotes where
 * needed (RFC 4180).  A first line with a field that is no number is a header.  label: a name of
 * the header or a number from 0; "": the column called label, class, target or y, or else the last.
 * Labels are whole numbers >= 0, all else is a finite number.  text is changed.  TUTTI_E_DATA says
 * where: "name:line: ...". */
tutti_status tti_csv_parse(const char *name, char *text, size_t n_bytes, const char *label,
                           tti_csv_table *out);

void tti_csv_table_free(tti_csv_table *table);

#endif /* TTI_DATA_CSV_TABLE_H */

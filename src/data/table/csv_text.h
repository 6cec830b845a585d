/* csv_text.h - a CSV text divided into cells (RFC 4180), before its columns are known. */
#ifndef TTI_DATA_CSV_TEXT_H
#define TTI_DATA_CSV_TEXT_H

#include "tutti/types.h"

enum { TTI_CSV_MAX_COLUMNS = 1 << 16 };

typedef struct tti_csv_text {
    char *name;     /* of the file, for messages; owned    */
    int64_t n_rows; /* without the header and blank lines  */
    int n_columns;
    char **cell;        /* [n_rows, n_columns], blanks around a value removed; owned */
    int64_t *line;      /* [n_rows], from 1; owned                                   */
    char **header;      /* [n_columns], NULL: the file has no header; owned          */
    char separator;     /* , ; tab |                                                 */
    int64_t n_empty;    /* rows of empty cells that were left out                    */
    bool counts_names;  /* the names of the header are 0, 1, 2, ... or the like      */
    bool decimal_comma; /* numbers are written 1,5 (possible with ; only)            */
    char *text;         /* what cells point into; owned                              */
} tti_csv_text;

/* Facts that are known before a table is read. */
typedef struct tti_csv_desc {
    const char *name;         /* of the file, for messages                                   */
    const char *const *names; /* [n_names]: columns of the training table                    */
    int n_names;
    bool keeps_empty; /* a row of empty cells counts, as in pandas; a blank line never does */
} tti_csv_desc;

/* Divides text, which the result owns also on failure; text[n_bytes] is writable.  The separator is
 * the one that a first line "sep=;" of a spreadsheet names, else the one that divides the first
 * lines outside quotes in the same way.  With names the first line is a header if it has one of
 * them.  Without names a first line is a header if it has a text above a column of numbers or
 * dates, or only texts that their columns do not repeat, or numbers that count the columns.
 * TUTTI_E_DATA gives the place: "name:line: ...". */
tutti_status tti_csv_text_parse(const tti_csv_desc *desc, char *text, size_t n_bytes,
                                tti_csv_text *out);

void tti_csv_text_free(tti_csv_text *csv);

static inline const char *tti_csv_cell(const tti_csv_text *csv, int64_t row, int column) {
    return csv->cell[(size_t)row * (size_t)csv->n_columns + (size_t)column];
}

#endif /* TTI_DATA_CSV_TEXT_H */

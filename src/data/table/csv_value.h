/* csv_value.h - the possible values of a table cell: missing, a number, a date, true or false. */
#ifndef TTI_DATA_CSV_VALUE_H
#define TTI_DATA_CSV_VALUE_H

#include <stdbool.h>

#include "base/number.h"

/* Empty, NA, N/A, nan, null, none or ?, in any case, and what pandas and spreadsheets write: #N/A,
 * <NA>, -nan, 1.#IND and the like. */
bool tti_value_is_missing(const char *cell);

/* A finite number; with decimal_comma 1,5 is one. */
bool tti_value_number(const char *cell, bool decimal_comma, double *out);

/* A number that cannot be used as it is written: infinite, too large, too small, or with separators
 * of thousands or another minus sign than - (1'234.5). */
bool tti_value_is_odd_number(const char *cell);

/* A number with marks that it cannot be read with: $1,234.50, 5%, (1.50), 1 234, 1_234, '5'. */
bool tti_value_has_marks(const char *cell);

/* A whole number of 2^53 or more, so that different ones may be read as the same number. */
bool tti_value_is_rounded(const char *cell);

/* The text after the number that the cell begins with: " kg" of "12 kg".  NULL: it is no such text,
 * or has further digits. */
const char *tti_value_unit(const char *cell);

/* A number, or a text such as 12:30, 1k, 0x1F, 2024-02 or USD 5. */
bool tti_value_begins_with_number(const char *cell);

/* A number other than 0 that would be read as 0, such as 1e-400. */
bool tti_value_is_tiny(const char *cell);

/* 1.234 or -1.234.567: in a table with decimal commas a whole number with separators of thousands.
 */
bool tti_value_has_points_of_thousands(const char *cell);

/* A date 2024-02-29 or 2024/02/29, or with a time 2024-02-29T12:30:00.5+01:00 (without a zone:
 * UTC), as seconds since 1970.  T may be a blank, and the zone Z, UTC, GMT or +0100. */
bool tti_value_date(const char *cell, double *out);

/* A text such as 29/2/2024, 29.02.2024, 29-Feb-2024 or Feb 29, 2024, also with a time. */
bool tti_value_looks_like_date(const char *cell);

/* true, yes and t, or false, no and f, in any case. */
bool tti_value_boolean(const char *cell, bool *out);

/* A number as text that reads back to the same one: 1704067200, 0.5.  Returns out. */
char *tti_value_text(char out[TTI_NUMBER_TEXT], double x);

#endif /* TTI_DATA_CSV_VALUE_H */

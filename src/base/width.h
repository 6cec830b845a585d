/* width.h - columns of text on a terminal, where characters are one, two or none wide. */
#ifndef TTI_BASE_WIDTH_H
#define TTI_BASE_WIDTH_H

#include "base/str.h"

/* Columns that text takes: East Asian characters and emoji two, combining marks none, a byte that
 * is not UTF-8 one. */
int tti_text_width(const char *text);

/* Appends text, truncated to whole characters and padded to n_columns: after it, or before it if
 * n_columns is negative. */
void tti_str_add_column(tti_str *out, const char *text, int n_columns);

#endif /* TTI_BASE_WIDTH_H */

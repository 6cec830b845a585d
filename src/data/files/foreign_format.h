/* foreign_format.h - names files of other programs by their first bytes. */
#ifndef TTI_DATA_FOREIGN_FORMAT_H
#define TTI_DATA_FOREIGN_FORMAT_H

#include <stddef.h>

#include "tutti/status.h"

/* The format of a file that begins with these bytes, as messages name it ("a Parquet file"); NULL
 * if it is none of the formats in which people keep tables and tokens.  The text is static. */
const char *tti_foreign_format(const void *bytes, size_t n_bytes);

/* TUTTI_E_DATA if the contents of the file path are such a format, or UTF-16 without a byte order
 * mark: a quarter of the first bytes is NUL. */
tutti_status tti_check_plain_text(const char *path, const char *text, size_t n_bytes);

#endif /* TTI_DATA_FOREIGN_FORMAT_H */

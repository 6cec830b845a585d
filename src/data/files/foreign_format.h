/* foreign_format.h - names files of other programs by their first bytes. */
#ifndef TTI_DATA_FOREIGN_FORMAT_H
#define TTI_DATA_FOREIGN_FORMAT_H

#include <stddef.h>

/* The format of a file that begins with these bytes, as messages name it ("a Parquet file"); NULL
 * if it is none of the formats in which people keep tables and tokens.  The text is static. */
const char *tti_foreign_format(const void *bytes, size_t n_bytes);

#endif /* TTI_DATA_FOREIGN_FORMAT_H */

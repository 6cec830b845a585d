/* append.h - files that grow only by whole records, even on a full disk. */
#ifndef TTI_BASE_APPEND_H
#define TTI_BASE_APPEND_H

#include <stddef.h>

#include "tutti/status.h"

/* Appends a record to a file that was opened with O_APPEND, all of it or nothing.  Other processes
 * may append to the file and repair it at the same time.  TUTTI_E_IO:
 * "name: No space left on device", and the file is unchanged. */
TUTTI_NODISCARD tutti_status tti_append(int fd, const char *name, const void *record,
                                        size_t n_bytes);

/* Cuts off what follows the last '\n': a machine that went down while it wrote a line leaves a part
 * of it, which the next line would continue.  fd is open for reading too. */
TUTTI_NODISCARD tutti_status tti_cut_torn_line(int fd, const char *name);

#endif /* TTI_BASE_APPEND_H */

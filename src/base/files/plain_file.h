/* plain_file.h - opens files in folders that may be hostile.
 *
 * A run folder that was copied or unpacked can hold a symbolic link or a pipe under any name that a
 * run writes to.  Nothing inside a run folder is written or removed through a link, and opening a
 * pipe never waits. */
#ifndef TTI_BASE_PLAIN_FILE_H
#define TTI_BASE_PLAIN_FILE_H

#include "tutti/status.h"

/* Calls open(2) with mode 0666; accepts only regular files.  With O_NOFOLLOW in flags it also
 * refuses a path whose last part is a symbolic link; writers must pass O_NOFOLLOW.  TUTTI_E_IO:
 * "path: is a symbolic link", "path: is not a regular file", or the system's reason.  On success
 * the caller owns *out_fd. */
TUTTI_NODISCARD tutti_status tti_plain_file_open(const char *path, int flags, int *out_fd);

/* Opens a folder to work in, not through a symbolic link in the last place of the path.  TUTTI_E_IO
 * as above; ENOENT stays in errno. */
TUTTI_NODISCARD tutti_status tti_plain_folder_open(const char *path, int *out_fd);

/* Makes a folder, or accepts one that is empty.  TUTTI_E_IO: it cannot be made, or is not empty. */
TUTTI_NODISCARD tutti_status tti_new_folder(const char *path);

#endif /* TTI_BASE_PLAIN_FILE_H */

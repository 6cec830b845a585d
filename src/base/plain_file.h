/* plain_file.h - opens files whose folder may come from somebody else.
 *
 * A run folder that was copied or unpacked can hold a symbolic link or a pipe under any name that a
 * run writes to.  Nothing inside a run folder is written or removed through a link, and opening a
 * pipe never waits. */
#ifndef TTI_BASE_PLAIN_FILE_H
#define TTI_BASE_PLAIN_FILE_H

#include "tutti/status.h"

/* open(2) with the mode 0666, for regular files alone.  flags with O_NOFOLLOW: also not through a
 * symbolic link in the last place of the path; whoever writes gives it.  TUTTI_E_IO: "path: is a
 * symbolic link", "path: is not a regular file", or the system's reason.  On success *out_fd is
 * owned by the caller. */
TUTTI_NODISCARD tutti_status tti_plain_file_open(const char *path, int flags, int *out_fd);

/* Opens a folder to work in, not through a symbolic link in the last place of the path.  TUTTI_E_IO
 * as above; ENOENT stays in errno. */
TUTTI_NODISCARD tutti_status tti_plain_folder_open(const char *path, int *out_fd);

#endif /* TTI_BASE_PLAIN_FILE_H */

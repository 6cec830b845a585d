/* atomic_file.h - files that appear complete or not at all.
 *
 * The bytes go to a new name in the same directory; commit makes them durable (fsync), gives them
 * the requested name (rename) and makes that durable (fsync of the directory).  Whatever fails or
 * is killed meanwhile, a previous file at the path stays complete. destroy removes a file that was
 * not committed; only a killed process leaves something behind, "NAME.PID-N.tmp".
 *
 * Errors:  TUTTI_E_IO with path, call and reason; when the disk is full also the bytes needed and
 *          free.  A failed write or fsync is final for the object: the kernel may have dropped
 *          the bytes, so the caller starts again with a new file.
 * Threads: one object is used by one thread at a time. */
#ifndef TTI_BASE_ATOMIC_FILE_H
#define TTI_BASE_ATOMIC_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/status.h"

typedef struct tti_atomic_file tti_atomic_file;

/* Opens a new file that will stand at path and reserves n_bytes on disk (0: unknown), where the
 * file system can.  On success *out is owned by the caller; on failure it is NULL. */
TUTTI_NODISCARD tutti_status tti_atomic_file_create(const char *path, uint64_t n_bytes,
                                                    tti_atomic_file **out);

/* Appends. */
TUTTI_NODISCARD tutti_status tti_atomic_file_write(tti_atomic_file *file, const void *data,
                                                   size_t n_bytes);

/* Puts the file in its place.  To be called once; afterwards only destroy remains.  If only the
 * last step fails, the file stands at path but may not survive a power loss. */
TUTTI_NODISCARD tutti_status tti_atomic_file_commit(tti_atomic_file *file);

/* The same without the last step, for several files in one folder: the caller ends with
 * tti_dir_sync.
 */
TUTTI_NODISCARD tutti_status tti_atomic_file_commit_unsynced(tti_atomic_file *file);

/* Frees file, and removes the temporary file if it was not committed.  NULL is a no-op. */
void tti_atomic_file_destroy(tti_atomic_file *file);

/* The four calls above for bytes that are all there. */
TUTTI_NODISCARD tutti_status tti_atomic_file_save(const char *path, const void *data,
                                                  size_t n_bytes);

/* Makes names made, removed or changed in a directory durable. */
TUTTI_NODISCARD tutti_status tti_dir_sync(const char *path);

#endif /* TTI_BASE_ATOMIC_FILE_H */

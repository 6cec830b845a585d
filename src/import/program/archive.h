/* archive.h - the entries of an uncompressed zip archive, as torch.export.save writes it.
 *
 * Nothing is extracted to disk, and names are never used as paths. Sizes are checked against the
 * file before memory is allocated. The CRC-32 of every entry that is read whole is checked.
 *
 * Errors:  TUTTI_E_CHECKPOINT (missing, no zip archive, damaged), TUTTI_E_UNSUPPORTED (compressed,
 *          encrypted or split), TUTTI_E_NOMEM, with the path.
 * Threads: an open archive may be read by several threads at once. */
#ifndef TTI_IMPORT_ARCHIVE_H
#define TTI_IMPORT_ARCHIVE_H

#include "tutti/types.h"

typedef struct tti_archive tti_archive;

/* Opens a regular file, or n_bytes at bytes (borrowed), for which messages use path. Reads only the
 * directory. *out is owned by the caller and NULL on failure. */
tutti_status tti_archive_open(const char *path, tti_archive **out);
tutti_status tti_archive_open_memory(const void *bytes, uint64_t n_bytes, const char *path,
                                     tti_archive **out);
void tti_archive_close(tti_archive *archive); /* NULL is a no-op */

const char *tti_archive_path(const tti_archive *archive);

/* The entries in order of their names, 0 <= i < n. Names contain no control characters but may be
 * invalid UTF-8. Sizes are in bytes. */
int tti_archive_n(const tti_archive *archive);
const char *tti_archive_name(const tti_archive *archive, int i);
uint64_t tti_archive_size(const tti_archive *archive, int i);

/* Find: the index of the entry with that name, or -1. Find_ending: the only entry whose name ends
 * in "/" followed by end; -1: none or several. */
int tti_archive_find(const tti_archive *archive, const char *name);
int tti_archive_find_ending(const tti_archive *archive, const char *end);

/* Reads a whole entry, checks its checksum and appends a NUL. The caller frees *out with free().
 * TUTTI_E_UNSUPPORTED: it has more than max_bytes. */
tutti_status tti_archive_read(const tti_archive *archive, int i, uint64_t max_bytes, char **out,
                              size_t *n_bytes);

/* Read an entry in parts, on several threads. Locate: the offset of its bytes in the file.
 * Read_part: n_bytes from byte `first` of the entry. Compare: fails if crc, the checksum of all its
 * bytes, differs from the stored one. */
tutti_status tti_archive_locate(const tti_archive *archive, int i, uint64_t *begin);
tutti_status tti_archive_read_part(const tti_archive *archive, uint64_t begin, uint64_t first,
                                   size_t n_bytes, void *dst);
tutti_status tti_archive_compare(const tti_archive *archive, int i, uint32_t crc);

#endif /* TTI_IMPORT_ARCHIVE_H */

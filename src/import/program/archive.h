/* archive.h - the entries of an uncompressed zip archive, as torch.export.save writes it.
 *
 * Nothing is extracted, and no name becomes a path.  Sizes are checked against the file before
 * memory is taken, and every entry that is read whole is compared with its CRC-32.
 *
 * Errors:  TUTTI_E_CHECKPOINT (missing, no zip archive, damaged), TUTTI_E_UNSUPPORTED (compressed,
 *          encrypted or split), TUTTI_E_NOMEM, with the path.
 * Threads: an open archive may be read by several threads at once. */
#ifndef TTI_IMPORT_ARCHIVE_H
#define TTI_IMPORT_ARCHIVE_H

#include "tutti/types.h"

typedef struct tti_archive tti_archive;

/* Opens a regular file, or n_bytes at bytes (borrowed) that are called path in messages.  Only the
 * directory is read.  *out is NULL on failure. */
tutti_status tti_archive_open(const char *path, tti_archive **out);
tutti_status tti_archive_open_memory(const void *bytes, uint64_t n_bytes, const char *path,
                                     tti_archive **out);
void tti_archive_close(tti_archive *archive); /* NULL is a no-op */

const char *tti_archive_path(const tti_archive *archive);

/* Entries in order of their names: i < n.  Names are UTF-8 or whatever the file has, without
 * control characters. */
int tti_archive_n(const tti_archive *archive);
const char *tti_archive_name(const tti_archive *archive, int i);
uint64_t tti_archive_size(const tti_archive *archive, int i);

/* The entry of that name, -1 if there is none; and the one whose name ends in "/" and that text,
 * -1 if none or several do. */
int tti_archive_find(const tti_archive *archive, const char *name);
int tti_archive_find_ending(const tti_archive *archive, const char *end);

/* All of an entry, with a NUL after it, freed with free(), and its checksum compared.  More than
 * max_bytes: TUTTI_E_UNSUPPORTED. */
tutti_status tti_archive_read(const tti_archive *archive, int i, uint64_t max_bytes, char **out,
                              size_t *n_bytes);

/* An entry in parts, for several threads: where its bytes begin in the file, and n_bytes of them
 * from first on.  tti_archive_compare fails if crc, that of all of its bytes, is not the stored
 * one. */
tutti_status tti_archive_locate(const tti_archive *archive, int i, uint64_t *begin);
tutti_status tti_archive_read_part(const tti_archive *archive, uint64_t begin, uint64_t first,
                                   size_t n_bytes, void *dst);
tutti_status tti_archive_compare(const tti_archive *archive, int i, uint32_t crc);

#endif /* TTI_IMPORT_ARCHIVE_H */

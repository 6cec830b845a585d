/* byte_reader.h - sequential bytes of an untrusted file, plain or gzipped, never more than
 * requested.
 *
 * The first bytes of a file decide whether it is gzipped, not its name.  A gzipped file may have
 * several members, whose contents are concatenated, and zeros after the last one.  Every failure
 * names the file.  One reader is used by one thread at a time. */
#ifndef TTI_DATA_BYTE_READER_H
#define TTI_DATA_BYTE_READER_H

#include "tutti/types.h"

typedef struct tti_reader tti_reader;

/* The default limit on the unpacked size of a gzipped file: the larger of TTI_MAX_UNPACKED bytes
 * and TTI_MAX_UNPACKED_RATIO times the file's size.  tti_reader_allow sets another limit. */
#define TTI_MAX_UNPACKED ((uint64_t)1 << 30)
enum { TTI_MAX_UNPACKED_RATIO = 32 };

/* Opens a regular file, or a symbolic link to one.  A folder, a pipe or a device is TUTTI_E_DATA,
 * and so are a missing file, a link to one and a loop of links (TUTTI_E_IO for any other reason).
 * *out is NULL on failure. */
tutti_status tti_reader_open(const char *path, tti_reader **out);

/* The same over n_bytes at bytes, borrowed as long as the reader; name stands for the path. */
tutti_status tti_reader_open_memory(const void *bytes, size_t n_bytes, const char *name,
                                    tti_reader **out);

/* The next n_bytes.  Fewer left, or damaged compression: TUTTI_E_DATA; what names the part that was
 * being read, as in "truncated in the header". */
tutti_status tti_reader_read(tti_reader *reader, void *dst, size_t n_bytes, const char *what);

/* Checks that nothing follows, and the checksum of a gzipped file. */
tutti_status tti_reader_finish(tti_reader *reader);

/* TUTTI_E_DATA unless n_bytes more can exist: exact for a plain file; for a gzipped one from its
 * remaining bytes and their largest expansion.  Call before allocating memory for a size that the
 * file declares. */
tutti_status tti_reader_expect(const tti_reader *reader, uint64_t n_bytes);

/* The most bytes that a gzipped file may unpack to; more is TUTTI_E_DATA.  0: as it is. */
void tti_reader_allow(tti_reader *reader, int64_t max_unpacked);

const char *tti_reader_path(const tti_reader *reader);
bool tti_reader_is_gzip(const tti_reader *reader);

/* The descriptor of a plain file, for random access from here on, now the caller's to close; the
 * reader is at its end.  Fails unless exactly n_bytes were left. */
tutti_status tti_reader_release_fd(tti_reader *reader, uint64_t n_bytes, int *out);

/* Reads all remaining bytes and appends a NUL, in memory that is freed with free(); the reader is
 * then at its end.  More than max_bytes: TUTTI_E_DATA. */
tutti_status tti_reader_read_all(tti_reader *reader, size_t max_bytes, char **out, size_t *n_bytes);

/* The same for a text in UTF-8, without its byte order mark.  UTF-16 is TUTTI_E_DATA: its bytes
 * would be taken for characters. */
tutti_status tti_reader_read_text(tti_reader *reader, size_t max_bytes, char **out,
                                  size_t *n_bytes);

/* Opens the file at path, reads all of it as tti_reader_read_all does, and closes it. */
tutti_status tti_read_file(const char *path, size_t max_bytes, char **out, size_t *n_bytes);

/* A part of a file: n_bytes from offset, stored or deflated without any header (a member of a zip
 * archive), and the CRC-32 of the unpacked bytes. */
typedef struct tti_file_part {
    uint64_t offset, n_bytes;
    bool deflated;
    uint32_t crc32;
} tti_file_part;

/* Reads a part as if it were a file; tti_reader_finish and tti_reader_release_fd check its CRC-32.
 */
tutti_status tti_reader_open_part(const char *path, const tti_file_part *part, tti_reader **out);

/* The descriptor of a file to read with pread, by the rules of tti_reader_open, and its size. */
tutti_status tti_open_regular(const char *path, int *out_fd, uint64_t *out_n_bytes);

/* n_bytes at offset of such a file; TUTTI_E_DATA if they are not there (any more). */
tutti_status tti_pread_all(int fd, const char *path, void *dst, size_t n_bytes, uint64_t offset);

/* NULL is a no-op. */
void tti_reader_close(tti_reader *reader);

#endif /* TTI_DATA_BYTE_READER_H */

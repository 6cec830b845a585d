/* tar_index.h - where the samples of a tar archive lie: read once, front to back, never extracted.
 *
 * WebDataset's naming: consecutive members whose names are equal up to the first dot of the file
 * name are one sample; the extension after the dot says what the member is.  Needed are an image
 * (jpg, jpeg, png) and a label (cls: a whole number as text); other members are ignored, and so are
 * hidden and system files and folders ("._1.jpg" of macOS). */
#ifndef TTI_DATA_TAR_INDEX_H
#define TTI_DATA_TAR_INDEX_H

#include <stdint.h>

#include "data/files/byte_reader.h"

typedef struct tti_tar_sample {
    uint64_t offset; /* of the image's bytes */
    uint32_t n_bytes;
    int32_t label;
    uint64_t key; /* hash of the name up to the dot */
    int shard;    /* number of the archive, for callers that join archives */
} tti_tar_sample;

typedef struct tti_tar_index {
    int64_t n, capacity;
    tti_tar_sample *samples; /* owned */
    int64_t n_ignored;       /* hidden and system files */
} tti_tar_index;

/* How the parser gets at the archive: n_bytes at offset. */
typedef struct tti_tar_source {
    tutti_status (*read)(const struct tti_tar_source *source, uint64_t offset, void *dst,
                         size_t n_bytes);
    const char *name; /* of the archive, for messages */
    uint64_t n_bytes; /* of the archive               */
    int fd;
    const uint8_t *bytes; /* fd or bytes, as read knows */
} tti_tar_source;

tti_tar_source tti_tar_from_fd(int fd, const char *name, uint64_t n_bytes);
tti_tar_source tti_tar_from_memory(const void *bytes, const char *name, uint64_t n_bytes);

/* Appends the samples of the archive, whose number is shard.  TUTTI_E_DATA with archive, member and
 * byte for: a wrong checksum or number, a link, device or sparse file, an absolute name or one with
 * "..", a name of more than 512 bytes, a truncated member, a missing end mark, bytes after it, a
 * sample without image or label or with two, a label outside of 0 .. 2^31-1.  On failure the index
 * is unchanged, except for its capacity. */
tutti_status tti_tar_index_add(tti_tar_index *index, const tti_tar_source *source, int shard);

/* The name of the member whose bytes begin at offset, as its header says it; for messages. */
void tti_tar_member_name(const tti_tar_source *source, uint64_t offset, char *out, size_t n_bytes);

void tti_tar_index_free(tti_tar_index *index);

#endif /* TTI_DATA_TAR_INDEX_H */

/* token_stream.h - a sequence of tokens in memory or in files, read from any position.
 *
 * Tokens are stored in 1, 2 or 4 bytes each, little endian.  Files are read with pread in small
 * windows and never held in memory.  Read-only once made: any thread may read. */
#ifndef TTI_DATA_TOKEN_STREAM_H
#define TTI_DATA_TOKEN_STREAM_H

#include "data/format.h"

typedef struct tti_token_part {
    char *path;     /* for messages; owned */
    int fd;         /* -1: memory          */
    uint8_t *bytes; /* owned               */
    uint64_t offset;
    int64_t n_tokens;
    int width; /* bytes of a token */
} tti_token_part;

typedef struct tti_token_stream {
    size_t n_parts;
    tti_token_part *part;
    int64_t first, n_tokens; /* the stream begins at token first of the parts in a row */
    int64_t vocabulary;      /* a token must be below this; 0: not known, anything goes */
} tti_token_stream;

/* Appends a part and takes ownership of its resources, also on failure. */
tutti_status tti_token_stream_add(tti_token_stream *stream, tti_token_part part);

/* The tokens of one file (token_files.c) as a stream, which is freed by its owner; on failure it is
 * empty. */
tutti_status tti_token_file_open(const char *path, tti_token_stream *stream);

/* n tokens from place at; both within the stream.  TUTTI_E_DATA for one outside the vocabulary,
 * with file and place. */
tutti_status tti_token_stream_read(const tti_token_stream *stream, int64_t at, int64_t n,
                                   int32_t *out);

/* The largest token. */
tutti_status tti_token_stream_max(const tti_token_stream *stream, int32_t *out);

void tti_token_stream_free(tti_token_stream *stream);

/* Bytes of a token of a vocabulary: 1, 2 or 4. */
int tti_token_width(int64_t vocabulary);

/* Cuts the stream down to the split that desc asks for. */
void tti_token_stream_split(tti_token_stream *stream, const tutti_dataset_desc *desc);

/* Makes source the windows over a stream, whose ownership is taken, also on failure: sample i is
 * tokens i*stride .. i*stride + context, the last one only as a target.  Test windows never
 * overlap.  With desc->mask_prob there is no such last one: targets are the sample's own tokens, of
 * which tti_dataset_read masks some.  TUTTI_E_DATA if not one window fits; name begins error
 * messages. */
tutti_status tti_token_windows(const tutti_dataset_desc *desc, const char *name,
                               tti_token_stream *stream, tti_source *source);

/* Writes the stream as files of llm.c, dir/text_SPLIT_NNNNNN.bin, a line each into report. */
tutti_status tti_token_files_write(const tti_token_stream *stream, const tutti_pack_desc *desc,
                                   tutti_data_split split, tti_str *report);

#endif /* TTI_DATA_TOKEN_STREAM_H */

/* token_stream.c - windows of tokens over memory and files.
 *
 * A read goes through a small buffer on the stack, whatever the width of the stored tokens, so each
 * window costs one pread for files of any size. */
#include "data/formats/token_stream.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/files/byte_reader.h"
#include "data/files/file_list.h"

enum { BUFFER_BYTES = 8192, SCAN_TOKENS = 4096 };

static void free_part(tti_token_part *part) {
    if (part->fd >= 0) close(part->fd);
    free(part->bytes);
    free(part->path);
}

tutti_status tti_token_stream_add(tti_token_stream *stream, tti_token_part part) {
    tti_token_part *more = realloc(stream->part, (stream->n_parts + 1) * sizeof *more);
    if (more) stream->part = more;
    int64_t n_tokens;
    bool too_many = __builtin_add_overflow(stream->n_tokens, part.n_tokens, &n_tokens);
    if (!more || too_many || !part.path) {
        free_part(&part);
        return too_many ? tti_fail(TUTTI_E_DATA, "data: too many tokens")
                        : tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    }
    stream->part[stream->n_parts++] = part;
    stream->n_tokens = n_tokens;
    return TUTTI_OK;
}

void tti_token_stream_free(tti_token_stream *stream) {
    for (size_t i = 0; i < stream->n_parts; i++) free_part(&stream->part[i]);
    free(stream->part);
    *stream = (tti_token_stream){0};
}

int tti_token_width(int64_t vocabulary) {
    return vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4;
}

void tti_token_stream_split(tti_token_stream *stream, const tutti_dataset_desc *desc) {
    int64_t at = tti_split_at(desc, stream->n_tokens);
    if (desc->split == TUTTI_TRAIN) {
        stream->n_tokens = at;
    } else {
        stream->first += at;
        stream->n_tokens -= at;
    }
}

static uint32_t load_token(const uint8_t *p, int width) {
    if (width == 1) return p[0];
    if (width == 2) return (uint32_t)(p[0] | p[1] << 8);
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void widen(const uint8_t *bytes, int width, size_t n, int32_t *out) {
    if (width == 1)
        for (size_t i = 0; i < n; i++) out[i] = bytes[i];
    else if (width == 2)
        for (size_t i = 0; i < n; i++) out[i] = bytes[2 * i] | bytes[2 * i + 1] << 8;
    else
        for (size_t i = 0; i < n; i++) out[i] = (int32_t)load_token(bytes + 4 * i, 4);
}

/* Without a vocabulary only tokens that do not fit into i32 are refused. */
static tutti_status check_tokens(const tti_token_stream *stream, const tti_token_part *part,
                                 int64_t at, size_t n, const int32_t *token) {
    uint32_t most = 0, end = stream->vocabulary > 0 ? (uint32_t)stream->vocabulary : 1u << 31;
    for (size_t i = 0; i < n; i++) most = TTI_MAX(most, (uint32_t)token[i]);
    if (most < end) return TUTTI_OK;
    size_t i = 0;
    while ((uint32_t)token[i] < end) i++;
    return tti_fail(TUTTI_E_DATA,
                    "%s: token %u at position %lld is outside the vocabulary, 0 .. %u", part->path,
                    (uint32_t)token[i], (long long)(at + (int64_t)i), end - 1);
}

/* n tokens from place at of a part. */
static tutti_status read_part(const tti_token_stream *stream, const tti_token_part *part,
                              int64_t at, size_t n, int32_t *out) {
    uint8_t buffer[BUFFER_BYTES];
    size_t width = (size_t)part->width;
    for (size_t done = 0; done < n;) {
        size_t now = TTI_MIN(n - done, BUFFER_BYTES / width);
        uint64_t offset = ((uint64_t)at + done) * width;
        const uint8_t *bytes = buffer;
        if (part->fd < 0)
            bytes = part->bytes + offset;
        else
            TTI_TRY(
                tti_pread_all(part->fd, part->path, buffer, now * width, part->offset + offset));
        widen(bytes, part->width, now, out + done);
        TTI_TRY(check_tokens(stream, part, at + (int64_t)done, now, out + done));
        done += now;
    }
    return TUTTI_OK;
}

tutti_status tti_token_stream_read(const tti_token_stream *stream, int64_t at, int64_t n,
                                   int32_t *out) {
    TTI_ASSERT(at >= 0 && n >= 0 && at <= stream->n_tokens - n);
    at += stream->first;
    for (size_t i = 0; n > 0; i++) {
        TTI_ASSERT(i < stream->n_parts);
        const tti_token_part *part = &stream->part[i];
        if (at >= part->n_tokens) {
            at -= part->n_tokens;
            continue;
        }
        int64_t now = TTI_MIN(n, part->n_tokens - at);
        TTI_TRY(read_part(stream, part, at, (size_t)now, out));
        out += now;
        n -= now;
        at = 0;
    }
    return TUTTI_OK;
}

tutti_status tti_token_stream_max(const tti_token_stream *stream, int32_t *out) {
    int32_t token[SCAN_TOKENS], most = 0;
    for (int64_t at = 0; at < stream->n_tokens; at += SCAN_TOKENS) {
        int64_t n = TTI_MIN(stream->n_tokens - at, SCAN_TOKENS);
        TTI_TRY(tti_token_stream_read(stream, at, n, token));
        for (int64_t i = 0; i < n; i++) most = TTI_MAX(most, token[i]);
    }
    *out = most;
    return TUTTI_OK;
}

/* ---- windows ---- */

typedef struct windows {
    tti_token_stream stream;
    int64_t context, stride;
} windows;

static tutti_status windows_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    const windows *w = source->state;
    int32_t *token = x;
    int64_t at = index * w->stride, n = w->context;
    TTI_TRY(tti_token_stream_read(&w->stream, at, n, token));
    if (source->masking.prob > 0) return TUTTI_OK; /* masking makes the targets */
    memcpy(y, token + 1, (size_t)(n - 1) * sizeof *y);
    return tti_token_stream_read(&w->stream, at + n, 1, &y[n - 1]);
}

static void windows_close(tti_source *source) {
    windows *w = source->state;
    tti_token_stream_free(&w->stream);
    free(w);
}

static tutti_status count_windows(const tutti_dataset_desc *desc, const char *name, windows *w,
                                  int64_t *out) {
    enum { MAX_CONTEXT = 1 << 24 };
    w->context = desc->context > 0 ? desc->context : 256;
    w->stride = desc->stride > 0 && desc->split == TUTTI_TRAIN ? desc->stride : w->context;
    if (desc->context < 0 || desc->stride < 0 || w->context > MAX_CONTEXT)
        return tti_fail(TUTTI_E_INVALID, "%s: context %lld or stride %lld is out of range", name,
                        (long long)desc->context, (long long)desc->stride);
    bool follows = desc->mask_prob == 0; /* a target follows the last token */
    int64_t n = w->stream.n_tokens, n_needed = w->context + follows;
    if (n < n_needed)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the %s part has %lld tokens, a sample needs data.context%s = %lld",
                        name, desc->split == TUTTI_TRAIN ? "training" : "test", (long long)n,
                        follows ? " + 1" : "", (long long)n_needed);
    int64_t n_windows = (n - n_needed) / w->stride + 1;
    if (desc->n_samples > n_windows)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, there are %lld", name,
                        (long long)desc->n_samples, (long long)n_windows);
    *out = desc->n_samples > 0 ? desc->n_samples : n_windows;
    return TUTTI_OK;
}

/* Without a mask token in the vocabulary, one is added. */
static tutti_status set_masking(const tutti_dataset_desc *desc, const char *name,
                                tti_source *source) {
    int64_t n = source->info.n_classes, token = desc->mask_token < 0 ? n : desc->mask_token;
    if (desc->mask_prob == 0) return TUTTI_OK;
    if (n >= INT32_MAX || desc->mask_token >= n)
        return tti_fail(TUTTI_E_INVALID,
                        "%s: data.mask_token %lld is outside the vocabulary, 0 .. %lld; auto "
                        "adds one for it",
                        name, (long long)desc->mask_token, (long long)(n - 1));
    source->masking = (tti_masking){desc->mask_prob, (int32_t)token, (int32_t)n};
    source->info.n_classes = TTI_MAX(n, token + 1);
    return TUTTI_OK;
}

tutti_status tti_token_windows(const tutti_dataset_desc *desc, const char *name,
                               tti_token_stream *stream, tti_source *source) {
    windows *w = calloc(1, sizeof *w);
    if (!w) {
        tti_token_stream_free(stream);
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", name);
    }
    w->stream = *stream;
    *stream = (tti_token_stream){0};
    source->state = w;
    source->read = windows_read;
    source->close = windows_close;
    source->info.n_classes = w->stream.vocabulary;
    tutti_status st = count_windows(desc, name, w, &source->info.n_samples);
    if (st == TUTTI_OK) st = set_masking(desc, name, source);
    if (st != TUTTI_OK) {
        windows_close(source);
        return st;
    }
    source->stored = source->info.y = (tutti_type){TUTTI_I32, TUTTI_SHAPE(w->context)};
    return TUTTI_OK;
}

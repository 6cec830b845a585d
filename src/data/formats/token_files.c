/* token_files.c - the format "tokens": token files of nanoGPT and llm.c.
 *
 *   nanoGPT   u16 tokens, nothing else
 *   llm.c     256 i32: 20240520, 1, n; then n u16      (GPT-2)
 *             256 i32: 20240801, 7, n; then n u32      (Llama 3)
 *
 * all little endian.  A file is opened and its size checked; none of it is held in memory.  A magic
 * number cannot be mistaken for nanoGPT's tokens of a usual vocabulary: its lower half is above
 * 55000. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "data/files/byte_reader.h"
#include "data/files/file_list.h"
#include "data/files/foreign_format.h"
#include "data/formats/token_stream.h"
#include "data/tokenizer/tokenizer.h"

enum {
    HEADER_BYTES = 1024,
    MAGIC_16 = 20240520,
    VERSION_16 = 1,
    MAGIC_32 = 20240801,
    VERSION_32 = 7,
    MIN_PAIRS = 16,
    SHARD_TOKENS = 100000000,
    COPY_TOKENS = 16384,
    USUAL_TOKENS = 1 << 20,
    SCAN_TOKENS = 1 << 28
};

static uint32_t load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store_u32(uint8_t *p, uint32_t x) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> 8 * i);
}

/* ---- reading ---- */

static tutti_status check_header(const char *path, const uint8_t *header, uint64_t n_file,
                                 tti_token_part *part) {
    bool wide = load_u32(header) == MAGIC_32;
    uint32_t version = load_u32(header + 4), n = load_u32(header + 8);
    uint32_t wanted = wide ? VERSION_32 : VERSION_16;
    part->width = wide ? 4 : 2;
    part->offset = HEADER_BYTES;
    part->n_tokens = n;
    if (version != wanted)
        return tti_fail(TUTTI_E_DATA, "%s: version %u of llm.c's format is not supported, only %u",
                        path, version, wanted);
    uint64_t n_bytes = HEADER_BYTES + (uint64_t)n * (uint64_t)part->width;
    if (n > INT32_MAX || n_bytes != n_file)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the header says %u tokens, that is %llu bytes in all; the file has "
                        "%llu",
                        path, n, (unsigned long long)n_bytes, (unsigned long long)n_file);
    return TUTTI_OK;
}

/* Whether the numbers of 16 bits are halves of wider tokens: the upper ones are 0, or far smaller
 * than the lower ones. */
static bool has_wide_tokens(const uint8_t *bytes, size_t n_bytes) {
    size_t n = n_bytes / 4;
    uint32_t lower = 0, upper = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t pair = load_u32(bytes + 4 * i);
        lower = TTI_MAX(lower, pair & 0xFFFF);
        upper = TTI_MAX(upper, pair >> 16);
    }
    return n >= MIN_PAIRS && lower > 0 && (upper == 0 || (upper <= 16 && lower >= 1024));
}

/* A file without a header of llm.c could be anything. */
static tutti_status check_plain(const char *path, const uint8_t *bytes, size_t n_bytes) {
    const char *other = tti_foreign_format(bytes, n_bytes);
    if (other) return tti_fail(TUTTI_E_DATA, "%s: is %s and not a file of tokens", path, other);
    if (!has_wide_tokens(bytes, n_bytes)) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: every second number of 16 bits is 0 or small, so the tokens seem to have "
                    "32 or 64 bits; write them as uint16, or with the header of llm.c for 32 bits: "
                    "256 int32 that begin with 20240801, 7 and the number of tokens",
                    path);
}

static tutti_status look_at(const char *path, uint64_t n_file, tti_token_part *part) {
    uint8_t header[HEADER_BYTES] = {0};
    size_t n_head = (size_t)TTI_MIN(n_file, (uint64_t)HEADER_BYTES);
    TTI_TRY(tti_pread_all(part->fd, path, header, n_head, 0));
    uint32_t magic = load_u32(header);
    if (n_file >= HEADER_BYTES && (magic == MAGIC_16 || magic == MAGIC_32))
        return check_header(path, header, n_file, part);
    if (n_file >= 3 && header[0] == 0x1F && header[1] == 0x8B && header[2] == 8)
        return tti_fail(
            TUTTI_E_DATA,
            "%s: is compressed, but tokens are read in random order; decompress it with gunzip",
            path);
    if (n_file % 2 != 0)
        return tti_fail(TUTTI_E_DATA,
                        "%s: %llu bytes are not a whole number of 2-byte tokens (nanoGPT), and the "
                        "file has no header of llm.c",
                        path, (unsigned long long)n_file);
    part->width = 2;
    part->offset = 0;
    part->n_tokens = (int64_t)(n_file / 2);
    return check_plain(path, header, n_head);
}

static tutti_status add_file(const char *path, tti_token_stream *stream) {
    tti_token_part part = {.fd = -1};
    uint64_t n_file;
    TTI_TRY(tti_open_regular(path, &part.fd, &n_file));
    tutti_status st = look_at(path, n_file, &part);
    if (st != TUTTI_OK) {
        close(part.fd);
        return st;
    }
    part.path = strdup(path);
    return tti_token_stream_add(stream, part);
}

tutti_status tti_token_file_open(const char *path, tti_token_stream *stream) {
    *stream = (tti_token_stream){0};
    tutti_status st = add_file(path, stream);
    if (st != TUTTI_OK) tti_token_stream_free(stream);
    return st;
}

/* ---- the tokenizer in the folder of the files ---- */

static bool is_there(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

/* data.tokenizer_dir, or tokenizer.json in the folder of the files; none is not a failure. */
static tutti_status find_tokenizer(const tutti_dataset_desc *desc, const char *file,
                                   tutti_tokenizer **out) {
    *out = NULL;
    if (desc->tokenizer_dir && desc->tokenizer_dir[0])
        return tutti_tokenizer_open(
            &(tutti_tokenizer_desc){.name = desc->tokenizer, .dir = desc->tokenizer_dir}, out);
    const char *slash = strrchr(file, '/');
    tti_str path = {0};
    tti_str_printf(&path, "%.*s%s", slash ? (int)(slash - file + 1) : 0, file, TTI_TOKENIZER_FILE);
    tutti_status st = TUTTI_OK;
    if (path.failed) st = tti_fail(TUTTI_E_NOMEM, "tokens: out of memory");
    if (st == TUTTI_OK && is_there(path.text))
        st = tutti_tokenizer_open(&(tutti_tokenizer_desc){.dir = path.text}, out);
    tti_str_free(&path);
    return st;
}

/* A trained model has its own tokenizer; a different one in the folder means different tokens. */
static tutti_status choose_tokenizer(const tutti_dataset_desc *desc, const char *file,
                                     tutti_tokenizer **out) {
    tutti_tokenizer *known = desc->spec ? desc->spec->tokenizer : NULL;
    tutti_dataset_desc beside = *desc;
    if (!known) return find_tokenizer(desc, file, out);
    beside.tokenizer_dir = NULL;
    TTI_TRY(find_tokenizer(&beside, file, out));
    bool same = !*out || tti_tokenizer_equal(known, *out);
    tutti_tokenizer_destroy(*out);
    *out = same ? tti_tokenizer_share(known) : NULL;
    if (same) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the " TTI_TOKENIZER_FILE
                    " next to it is not the tokenizer that the model was trained with, so its "
                    "tokens have other meanings",
                    file);
}

static tutti_status set_vocabulary(const tutti_dataset_desc *desc, const tutti_tokenizer *t,
                                   tti_token_stream *stream) {
    int64_t n = t ? t->pieces.n : 0;
    if (desc->n_classes > 0 && desc->n_classes < n)
        return tti_fail(TUTTI_E_DATA,
                        "%s: a vocabulary of %lld is too small for the tokenizer's %lld tokens",
                        desc->dir, (long long)desc->n_classes, (long long)n);
    stream->vocabulary = TTI_MAX(desc->n_classes, n);
    if (stream->vocabulary > 0) return TUTTI_OK;
    int32_t most;
    TTI_TRY(tti_token_stream_max(stream, &most));
    if (most >= USUAL_TOKENS)
        return tti_fail(TUTTI_E_DATA,
                        "%s: token %d would make a vocabulary of %lld; if it is right, give "
                        "data.vocabulary=%lld",
                        desc->dir, most, (long long)most + 1, (long long)most + 1);
    stream->vocabulary = (int64_t)most + 1;
    return TUTTI_OK;
}

/* Finds tokens outside of a given vocabulary before the first step: in the test split, and in
 * training files that can be read in a second.  In larger ones the window that has them reports
 * them. */
static tutti_status scan_tokens(const tutti_dataset_desc *desc, const tti_token_stream *stream) {
    int32_t most;
    bool is_short = desc->split == TUTTI_TEST || stream->n_tokens <= SCAN_TOKENS;
    return is_short ? tti_token_stream_max(stream, &most) : TUTTI_OK;
}

static tutti_status tokens_open(const tutti_dataset_desc *desc, tti_source *source) {
    tti_file_list list;
    tti_token_stream stream = {0};
    tutti_tokenizer *tokenizer = NULL;
    TTI_TRY(tti_file_list_make(desc, "tokens", ".bin", &list));
    tutti_status st = TUTTI_OK;
    for (size_t i = 0; i < list.n && st == TUTTI_OK; i++) st = add_file(list.path[i], &stream);
    if (st == TUTTI_OK) st = choose_tokenizer(desc, list.path[0], &tokenizer);
    if (st == TUTTI_OK) st = set_vocabulary(desc, tokenizer, &stream);
    if (st == TUTTI_OK && list.both) tti_token_stream_split(&stream, desc);
    if (st == TUTTI_OK) st = scan_tokens(desc, &stream);
    if (st == TUTTI_OK) st = tti_token_windows(desc, desc->dir, &stream, source);
    source->info.n_ignored = list.n_ignored;
    tti_file_list_free(&list);
    if (st != TUTTI_OK) {
        tti_token_stream_free(&stream);
        tutti_tokenizer_destroy(tokenizer);
        return st;
    }
    source->tokenizer = tokenizer;
    return TUTTI_OK;
}

/* ---- writing ---- */

static tutti_status write_tokens(const tti_token_stream *stream, int64_t at, int64_t n, int width,
                                 tti_atomic_file *file) {
    int32_t token[COPY_TOKENS];
    uint8_t bytes[COPY_TOKENS * 4];
    for (int64_t end = at + n; at < end;) {
        int64_t now = TTI_MIN(end - at, COPY_TOKENS);
        TTI_TRY(tti_token_stream_read(stream, at, now, token));
        for (int64_t i = 0; i < now; i++)
            for (int k = 0; k < width; k++)
                bytes[i * width + k] = (uint8_t)((uint32_t)token[i] >> 8 * k);
        TTI_TRY(tti_atomic_file_write(file, bytes, (size_t)(now * width)));
        at += now;
    }
    return TUTTI_OK;
}

static tutti_status write_file(const tti_token_stream *stream, const char *path, int64_t at,
                               int64_t n) {
    uint8_t header[HEADER_BYTES] = {0};
    bool wide = stream->vocabulary > 1 << 16;
    int width = wide ? 4 : 2;
    store_u32(header, wide ? MAGIC_32 : MAGIC_16);
    store_u32(header + 4, wide ? VERSION_32 : VERSION_16);
    store_u32(header + 8, (uint32_t)n);
    tti_atomic_file *file;
    TTI_TRY(tti_atomic_file_create(path, HEADER_BYTES + (uint64_t)(n * width), &file));
    tutti_status st = tti_atomic_file_write(file, header, sizeof header);
    if (st == TUTTI_OK) st = write_tokens(stream, at, n, width, file);
    if (st == TUTTI_OK) st = tti_atomic_file_commit(file);
    tti_atomic_file_destroy(file);
    return st;
}

tutti_status tti_token_files_write(const tti_token_stream *stream, const tutti_pack_desc *desc,
                                   tutti_data_split split, tti_str *report) {
    int64_t most = desc->shard_tokens > 0 ? desc->shard_tokens : SHARD_TOKENS;
    if (most > INT32_MAX)
        return tti_fail(TUTTI_E_INVALID, "tokens: %lld tokens per file, at most %d are supported",
                        (long long)most, INT32_MAX);
    int number = 0;
    for (int64_t at = 0; at < stream->n_tokens; at += most, number++) {
        int64_t n = TTI_MIN(most, stream->n_tokens - at);
        tti_str path = {0};
        tti_str_printf(&path, "%s/text_%s_%06d.bin", desc->dir,
                       split == TUTTI_TRAIN ? "train" : "val", number);
        tutti_status st = path.failed ? tti_fail(TUTTI_E_NOMEM, "tokens: out of memory")
                                      : write_file(stream, path.text, at, n);
        if (st == TUTTI_OK) tti_str_printf(report, "%s: %lld tokens\n", path.text, (long long)n);
        tti_str_free(&path);
        TTI_TRY(st);
    }
    return TUTTI_OK;
}

const tti_format tti_format_tokens = {
    .name = "tokens",
    .doc = "files of tokens (.bin) as nanoGPT or llm.c write them, or tutti data pack",
    .open = tokens_open,
};

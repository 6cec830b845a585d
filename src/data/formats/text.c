/* text.c - the format "text": plain files, tokenized when they are opened.
 *
 * Tokens are stored in as few bytes as the vocabulary allows, so a text of characters takes no more
 * memory than its file.  Pack larger texts first (tutti data pack) and read them as "tokens". */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/files/byte_reader.h"
#include "data/files/file_list.h"
#include "data/files/foreign_format.h"
#include "data/formats/token_stream.h"
#include "data/tokenizer/tokenizer.h"

#define MAX_TEXT_BYTES ((size_t)1 << 36)

/* any_bytes: the tokenizer reads files of any kind. */
static tutti_status read_text(const tutti_dataset_desc *desc, const char *path, bool any_bytes,
                              char **out, size_t *n_bytes) {
    tti_reader *reader;
    TTI_TRY(tti_reader_open(path, &reader));
    tti_reader_allow(reader, desc->max_unpacked);
    tutti_status st = tti_reader_read_text(reader, MAX_TEXT_BYTES, out, n_bytes);
    tti_reader_close(reader);
    if (st != TUTTI_OK || any_bytes) return st;
    st = tti_check_plain_text(path, *out, *n_bytes);
    if (st != TUTTI_OK) free(*out);
    return st;
}

/* ---- tokens in few bytes ---- */

typedef struct narrow {
    uint8_t *bytes;
    size_t n, capacity; /* tokens */
    int width;
} narrow;

static tutti_status take(void *user, const int32_t *token, size_t n) {
    narrow *to = user;
    size_t width = (size_t)to->width;
    if (n > to->capacity - to->n) {
        size_t wanted = TTI_MAX(to->n + n, to->capacity + to->capacity / 2);
        uint8_t *more = realloc(to->bytes, wanted * width);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "out of memory for %zu tokens", wanted);
        to->bytes = more;
        to->capacity = wanted;
    }
    uint8_t *p = to->bytes + to->n * width;
    for (size_t i = 0; i < n; i++, p += width)
        for (size_t k = 0; k < width; k++) p[k] = (uint8_t)((uint32_t)token[i] >> 8 * k);
    to->n += n;
    return TUTTI_OK;
}

/* Appends a text as a part; the token that ends a text, if there is one, goes before it. */
static tutti_status add_text(const tutti_tokenizer *t, const char *path, const char *text,
                             size_t n_bytes, bool many, tti_token_stream *stream) {
    narrow to = {.width = tti_token_width(t->pieces.n), .capacity = 64};
    bool is_gpt2 = t->kind == &tti_tokenizer_gpt2;
    to.capacity += is_gpt2 ? n_bytes / 4 : n_bytes;
    to.bytes = malloc(to.capacity * (size_t)to.width);
    if (!to.bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    int32_t end = t->end;
    tutti_status st = many && end >= 0 ? take(&to, &end, 1) : TUTTI_OK;
    if (st == TUTTI_OK)
        st = tti_tokenizer_encode_to(t, text, n_bytes, &(tti_token_sink){take, &to});
    if (st != TUTTI_OK) {
        tti_fail_context("%s: ", path);
        free(to.bytes);
        return st;
    }
    uint8_t *fit = realloc(to.bytes, (to.n + 1) * (size_t)to.width);
    return tti_token_stream_add(stream, (tti_token_part){.path = strdup(path),
                                                         .fd = -1,
                                                         .bytes = fit ? fit : to.bytes,
                                                         .n_tokens = (int64_t)to.n,
                                                         .width = to.width});
}

/* ---- the tokenizer ---- */

/* Joins all files of the training split, from which the vocabulary of characters is made. */
static tutti_status join_texts(const tutti_dataset_desc *desc, char **out, size_t *n_bytes) {
    tti_file_list list;
    tutti_dataset_desc train = *desc;
    train.split = TUTTI_TRAIN;
    tti_str all = {0};
    tutti_status st = TUTTI_OK;
    TTI_TRY(tti_file_list_make(&train, "text", ".txt", &list));
    if (list.n == 1) {
        st = read_text(desc, list.path[0], false, out, n_bytes);
        tti_file_list_free(&list);
        return st;
    }
    for (size_t i = 0; i < list.n && st == TUTTI_OK; i++) {
        char *text;
        size_t n;
        st = read_text(desc, list.path[i], false, &text, &n);
        if (st != TUTTI_OK) break;
        tti_str_add_bytes(&all, text, n);
        free(text);
    }
    tti_file_list_free(&list);
    if (st == TUTTI_OK && all.failed) st = tti_fail(TUTTI_E_NOMEM, "text: out of memory");
    if (st != TUTTI_OK) {
        tti_str_free(&all);
        return st;
    }
    *out = all.text;
    *n_bytes = all.n_bytes;
    return TUTTI_OK;
}

static tutti_status open_tokenizer(const tutti_dataset_desc *desc, tutti_tokenizer **out) {
    if (desc->spec && desc->spec->tokenizer) {
        *out = tti_tokenizer_share(desc->spec->tokenizer);
        return TUTTI_OK;
    }
    bool has_dir = desc->tokenizer_dir && desc->tokenizer_dir[0];
    bool automatic =
        !desc->tokenizer || !desc->tokenizer[0] || strcmp(desc->tokenizer, "auto") == 0;
    const char *name = automatic && !has_dir ? "chars" : desc->tokenizer;
    tutti_tokenizer_desc how = {.name = name, .dir = desc->tokenizer_dir};
    char *text = NULL;
    if (!has_dir && strcmp(name, "chars") == 0) TTI_TRY(join_texts(desc, &text, &how.n_text_bytes));
    how.text = text;
    tutti_status st = tutti_tokenizer_open(&how, out);
    if (st != TUTTI_OK && text) tti_fail_context("%s: ", desc->dir);
    free(text);
    return st;
}

/* ---- the data set ---- */

static tutti_status load_texts(const tutti_dataset_desc *desc, const tutti_tokenizer *t,
                               tti_token_stream *stream, int64_t *n_ignored) {
    tti_file_list list;
    TTI_TRY(tti_file_list_make(desc, "text", ".txt", &list));
    tutti_status st = TUTTI_OK;
    for (size_t i = 0; i < list.n && st == TUTTI_OK; i++) {
        char *text;
        size_t n_bytes;
        st = read_text(desc, list.path[i], t->kind == &tti_tokenizer_bytes, &text, &n_bytes);
        if (st != TUTTI_OK) break;
        st = add_text(t, list.path[i], text, n_bytes, list.n > 1, stream);
        free(text);
    }
    *n_ignored = list.n_ignored;
    stream->vocabulary = TTI_MAX(desc->n_classes, t->pieces.n);
    if (st == TUTTI_OK && desc->n_classes > 0 && desc->n_classes < t->pieces.n)
        st = tti_fail(TUTTI_E_DATA,
                      "%s: data.vocabulary, %lld, is too small for the tokenizer's %lld tokens",
                      desc->dir, (long long)desc->n_classes, (long long)t->pieces.n);
    if (st == TUTTI_OK && list.both) tti_token_stream_split(stream, desc);
    tti_file_list_free(&list);
    if (st != TUTTI_OK) tti_token_stream_free(stream);
    return st;
}

static tutti_status text_open(const tutti_dataset_desc *desc, tti_source *source) {
    tutti_tokenizer *tokenizer;
    tti_token_stream stream = {0};
    TTI_TRY(open_tokenizer(desc, &tokenizer));
    tutti_status st = load_texts(desc, tokenizer, &stream, &source->info.n_ignored);
    if (st == TUTTI_OK) st = tti_token_windows(desc, desc->dir, &stream, source);
    if (st != TUTTI_OK) {
        tutti_tokenizer_destroy(tokenizer);
        return st;
    }
    source->tokenizer = tokenizer;
    return TUTTI_OK;
}

/* ---- packing ---- */

static tutti_status pack_split(const tutti_dataset_desc *source, const tutti_pack_desc *desc,
                               const tutti_tokenizer *t, tti_str *report) {
    tti_token_stream stream = {0};
    int64_t n_ignored;
    TTI_TRY(load_texts(source, t, &stream, &n_ignored));
    tutti_status st = tti_token_files_write(&stream, desc, source->split, report);
    tti_token_stream_free(&stream);
    return st;
}

static tutti_status text_pack(const tutti_dataset_desc *source, const tutti_pack_desc *desc,
                              tti_str *report) {
    tutti_tokenizer *tokenizer;
    tutti_dataset_desc part = *source;
    tti_str path = {0};
    TTI_TRY(open_tokenizer(source, &tokenizer));
    tutti_status st = TUTTI_OK;
    for (int split = 0; split < TUTTI_N_SPLITS && st == TUTTI_OK; split++) {
        part.split = (tutti_data_split)split;
        st = pack_split(&part, desc, tokenizer, report);
    }
    tti_str_printf(&path, "%s/" TTI_TOKENIZER_FILE, desc->dir);
    if (st == TUTTI_OK && path.failed) st = tti_fail(TUTTI_E_NOMEM, "text: out of memory");
    if (st == TUTTI_OK) st = tutti_tokenizer_save(tokenizer, path.text);
    if (st == TUTTI_OK)
        tti_str_printf(report, "%s: %s, %lld tokens\n", path.text, tokenizer->kind->name,
                       (long long)tokenizer->pieces.n);
    tti_str_free(&path);
    tutti_tokenizer_destroy(tokenizer);
    return st;
}

const tti_format tti_format_text = {
    .name = "text",
    .doc = "plain text files (.txt, .txt.gz), made into tokens by data.tokenizer",
    .open = text_open,
    .pack = text_pack,
};

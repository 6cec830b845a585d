/* tokenizer.c - the table of tokenizers and their common code: opening, decoding, saving.  To add a
 * kind: write tokenizer_NAME.c with one tti_tokenizer_kind, list it below, and read its file in
 * tokenizer_json.c. */
#include "data/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/files/atomic_file.h"

static const tti_tokenizer_kind *const kinds[] = {
    &tti_tokenizer_bytes,
    &tti_tokenizer_chars,
    &tti_tokenizer_gpt2,
};

const tti_tokenizer_kind *tti_tokenizer_kind_at(int i) {
    return i >= 0 && i < (int)TTI_COUNT(kinds) ? kinds[i] : NULL;
}

/* ---- opening ---- */

static bool is(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

static bool is_given(const char *text) { return text && text[0]; }

/* The file or the files of the folder at path. */
static tutti_status read_path(const char *path, tutti_tokenizer *t) {
    struct stat info;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    return folder ? tti_tokenizer_read_dir(path, t) : tti_tokenizer_read(path, t);
}

static tutti_status make(const tutti_tokenizer_desc *desc, tutti_tokenizer *t) {
    const char *name = is_given(desc->name) && !is(desc->name, "auto") ? desc->name : NULL;
    bool known = !name;
    for (size_t i = 0; i < TTI_COUNT(kinds); i++) known |= is(name, kinds[i]->name);
    if (!known)
        return tti_fail(TUTTI_E_INVALID,
                        "tokenizer: unknown tokenizer '%s' (known: bytes, chars, gpt2)", name);
    if (is_given(desc->dir)) {
        TTI_TRY(read_path(desc->dir, t));
        if (!name || is(name, t->kind->name)) return TUTTI_OK;
        return tti_fail(TUTTI_E_DATA, "%s: holds the tokenizer %s, not %s", desc->dir,
                        t->kind->name, name);
    }
    if (is(name, "bytes")) return tti_bytes_make(t);
    if (is(name, "chars") && desc->text)
        return tti_chars_make_of(t, desc->text, desc->n_text_bytes);
    return tti_fail(TUTTI_E_INVALID,
                    "tokenizer: %s needs %s: a tokenizer.json, or a folder with one or with "
                    "vocab.json and merges.txt",
                    name ? name : "auto", is(name, "chars") ? "a text or a dir" : "a dir");
}

tutti_status tutti_tokenizer_open(const tutti_tokenizer_desc *desc, tutti_tokenizer **out) {
    *out = NULL;
    tutti_tokenizer *t = calloc(1, sizeof *t);
    if (!t) return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
    t->n_owners = 1;
    t->end = -1;
    tutti_status st = make(desc, t);
    if (st == TUTTI_OK)
        *out = t;
    else
        tutti_tokenizer_destroy(t);
    if (st == TUTTI_E_IO) return tti_fail(TUTTI_E_DATA, "%s", tutti_last_error());
    return st;
}

tutti_tokenizer *tti_tokenizer_share(tutti_tokenizer *t) {
    if (t) t->n_owners++;
    return t;
}

bool tti_tokenizer_equal(const tutti_tokenizer *a, const tutti_tokenizer *b) {
    const tti_pieces *p = &a->pieces, *q = &b->pieces;
    size_t n_starts = ((size_t)p->n + 1) * sizeof *p->start;
    return a->kind == b->kind && p->n == q->n && memcmp(p->start, q->start, n_starts) == 0 &&
           memcmp(p->bytes, q->bytes, p->start[p->n]) == 0 &&
           (!a->kind->equal || a->kind->equal(a, b));
}

void tutti_tokenizer_destroy(tutti_tokenizer *t) {
    if (!t || --t->n_owners > 0) return;
    if (t->kind && t->kind->close) t->kind->close(t->state);
    tti_pieces_free(&t->pieces);
    free(t);
}

const char *tutti_tokenizer_get_name(const tutti_tokenizer *t) { return t->kind->name; }

int64_t tutti_tokenizer_get_size(const tutti_tokenizer *t) { return t->pieces.n; }

int32_t tutti_tokenizer_get_end(const tutti_tokenizer *t) { return t->end; }

/* ---- text to tokens and back ---- */

typedef struct token_list {
    int32_t *token;
    size_t n, capacity;
} token_list;

static tutti_status append(void *user, const int32_t *token, size_t n) {
    token_list *list = user;
    if (n > list->capacity - list->n) {
        size_t wanted = TTI_MAX(list->n + n, 2 * list->capacity);
        int32_t *more = realloc(list->token, wanted * sizeof *more);
        if (!more)
            return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory for %zu tokens", wanted);
        list->token = more;
        list->capacity = wanted;
    }
    memcpy(list->token + list->n, token, n * sizeof *token);
    list->n += n;
    return TUTTI_OK;
}

tutti_status tti_tokenizer_encode_to(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                                     const tti_token_sink *sink) {
    return t->kind->encode(t, text, n_bytes, sink);
}

tutti_status tutti_tokenizer_encode(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                                    int32_t **tokens, int64_t *n_tokens) {
    token_list list = {.token = malloc(64 * sizeof(int32_t)), .capacity = 64};
    if (!list.token) return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
    tutti_status st =
        t->kind->encode(t, text, n_bytes, &(tti_token_sink){.take = append, .user = &list});
    if (st != TUTTI_OK) {
        free(list.token);
        tti_fail_context("text: ");
        return st;
    }
    *tokens = list.token;
    *n_tokens = (int64_t)list.n;
    return TUTTI_OK;
}

tutti_status tutti_tokenizer_decode(const tutti_tokenizer *t, const int32_t *tokens,
                                    int64_t n_tokens, char **text, size_t *n_bytes) {
    const tti_pieces *p = &t->pieces;
    size_t n = 0;
    for (int64_t i = 0; i < n_tokens; i++) {
        int32_t token = tokens[i];
        if (token < 0 || token >= p->n || p->start[token] == p->start[token + 1])
            return tti_fail(TUTTI_E_DATA,
                            "tokenizer: token %d at position %lld is not one of 0 .. %lld", token,
                            (long long)i, (long long)(p->n - 1));
        n += p->start[token + 1] - p->start[token];
    }
    char *out = malloc(n + 1);
    if (!out) return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory for %zu bytes", n);
    size_t at = 0;
    for (int64_t i = 0; i < n_tokens; i++) {
        uint32_t start = p->start[tokens[i]], n_piece = p->start[tokens[i] + 1] - start;
        memcpy(out + at, p->bytes + start, n_piece);
        at += n_piece;
    }
    out[n] = '\0';
    *text = out;
    *n_bytes = n;
    return TUTTI_OK;
}

static tutti_status save(const tutti_tokenizer *t, const char *path, bool for_transformers) {
    tti_str text = {0};
    tutti_status st = TUTTI_OK;
    tti_json j = tti_json_begin(&text, 0);
    tti_json_object(&j, NULL);
    if (for_transformers && t->kind->save_for_transformers)
        st = t->kind->save_for_transformers(t, &j);
    else
        t->kind->save(t, &j);
    tti_json_end(&j);
    tti_str_add(&text, "\n");
    if (st == TUTTI_OK)
        st = text.failed ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path)
                         : tti_atomic_file_save(path, text.text, text.n_bytes);
    tti_str_free(&text);
    return st;
}

tutti_status tutti_tokenizer_save(const tutti_tokenizer *t, const char *path) {
    return save(t, path, false);
}

tutti_status tti_tokenizer_save_for_transformers(const tutti_tokenizer *t, const char *path) {
    return save(t, path, true);
}

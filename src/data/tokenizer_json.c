/* tokenizer_json.c - the files of tokenizers: what tutti_tokenizer_save writes, Hugging Face's
 * tokenizer.json, and vocab.json with merges.txt.
 *
 * Texts are borrowed from the parsed JSON until the tokenizer is made.  What would give other
 * tokens than the file's author meant (another way of cutting, a normalizer) is refused. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/problem.h"
#include "data/byte_reader.h"
#include "data/tokenizer_gpt2.h"

enum { MAX_FILE_BYTES = 64 << 20, MAX_MERGES = 1 << 22 };

static tutti_status read_file(const char *path, char **out, size_t *n_bytes) {
    tti_reader *reader;
    TTI_TRY(tti_reader_open(path, &reader));
    tutti_status st = tti_reader_read_all(reader, MAX_FILE_BYTES, out, n_bytes);
    tti_reader_close(reader);
    return st;
}

static tutti_status read_json(const char *path, json_t **out) {
    char *text;
    size_t n_bytes;
    json_error_t error;
    TTI_TRY(read_file(path, &text, &n_bytes));
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    char why[TTI_CLIP];
    if (!root)
        return tti_fail(TUTTI_E_DATA, "%s:%d:%d: not valid JSON: %s", path, error.line,
                        error.column, tti_clip(why, error.text));
    if (!json_is_object(root)) {
        json_decref(root);
        return tti_fail(TUTTI_E_DATA, "%s: not a JSON object", path);
    }
    *out = root;
    return TUTTI_OK;
}

/* ---- chars ---- */

static tutti_status read_chars(const char *path, const json_t *root, tutti_tokenizer *t) {
    const json_t *list = json_object_get(root, "characters");
    size_t n = json_array_size(list);
    if (n == 0 || n > TTI_MAX_TOKENS)
        return tti_fail(TUTTI_E_DATA, "%s: \"characters\" must be a list of 1 .. %d numbers", path,
                        TTI_MAX_TOKENS);
    uint32_t *character = malloc(n * sizeof *character);
    if (!character) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    tutti_status st = TUTTI_OK;
    json_int_t last = -1;
    for (size_t i = 0; i < n && st == TUTTI_OK; i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t c = json_is_integer(item) ? json_integer_value(item) : -1;
        if (c <= last || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
            st = tti_fail(TUTTI_E_DATA,
                          "%s: \"characters\": item %zu is not a Unicode character above the last",
                          path, i);
        last = c;
        character[i] = (uint32_t)c;
    }
    if (st == TUTTI_OK) st = tti_chars_make(t, character, n);
    free(character);
    return st;
}

/* ---- gpt2: the vocabulary ---- */

static bool has(const json_t *object, const char *key) {
    const json_t *member = json_object_get(object, key);
    return member && !json_is_null(member) && !json_is_false(member);
}

static bool is_text(const json_t *value, const char *wanted) {
    return json_is_string(value) && strcmp(json_string_value(value), wanted) == 0;
}

/* Both lists into one; added may be NULL. */
static tutti_status read_tokens(const char *path, json_t *vocab, const json_t *added,
                                tti_gpt2_source *out) {
    size_t n_vocab = json_object_size(vocab), n_added = json_array_size(added), n = 0;
    if (n_vocab == 0 || n_vocab > TTI_MAX_TOKENS || n_added > TTI_MAX_TOKENS)
        return tti_fail(TUTTI_E_DATA, "%s: %zu tokens and %zu added ones, 1 .. %d are possible",
                        path, n_vocab, n_added, TTI_MAX_TOKENS);
    tti_gpt2_token *token = calloc(n_vocab + n_added, sizeof *token);
    if (!token) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        token[n++] = (tti_gpt2_token){.text = key, .id = id};
    }
    for (size_t i = 0; i < n_added; i++) {
        const json_t *item = json_array_get(added, i);
        const json_t *id = json_object_get(item, "id");
        const char *content = json_string_value(json_object_get(item, "content"));
        token[n++] = (tti_gpt2_token){.text = content ? content : "",
                                      .id = json_is_integer(id) ? json_integer_value(id) : -1,
                                      .plain = true};
    }
    out->token = token; /* ids and texts are checked where the tokenizer is made */
    out->n_tokens = n;
    return TUTTI_OK;
}

/* ---- gpt2: the merges ---- */

static bool cut_at_blank(const char *text, size_t n_bytes, tti_gpt2_merge *out) {
    const char *blank = memchr(text, ' ', n_bytes);
    if (!blank) return false;
    size_t n_left = (size_t)(blank - text), n_right = n_bytes - n_left - 1;
    *out = (tti_gpt2_merge){text, blank + 1, n_left, n_right};
    return n_left > 0 && n_right > 0 && !memchr(blank + 1, ' ', n_right);
}

/* "left right", or since 2024 ["left", "right"]. */
static bool read_merge(const json_t *item, tti_gpt2_merge *out) {
    if (json_is_string(item))
        return cut_at_blank(json_string_value(item), json_string_length(item), out);
    const json_t *left = json_array_get(item, 0), *right = json_array_get(item, 1);
    if (json_array_size(item) != 2 || !json_is_string(left) || !json_is_string(right)) return false;
    *out = (tti_gpt2_merge){json_string_value(left), json_string_value(right),
                            json_string_length(left), json_string_length(right)};
    return true;
}

static tutti_status read_merges(const char *path, const json_t *list, tti_gpt2_source *out) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MAX_MERGES)
        return tti_fail(TUTTI_E_DATA, "%s: \"merges\" must be a list of at most %d", path,
                        MAX_MERGES);
    tti_gpt2_merge *merge = calloc(n + 1, sizeof *merge);
    if (!merge) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    for (size_t i = 0; i < n; i++)
        if (!read_merge(json_array_get(list, i), &merge[i])) {
            free(merge);
            return tti_fail(TUTTI_E_DATA, "%s: merge %zu is not a pair", path, i + 1);
        }
    out->merge = merge;
    out->n_merges = n;
    return TUTTI_OK;
}

/* Lines "left right", borrowed from text; the first may be a comment. */
static tutti_status read_merge_lines(const char *path, const char *text, size_t n_bytes,
                                     tti_gpt2_source *out) {
    size_t n_lines = 1, n = 0, line = 0;
    for (size_t i = 0; i < n_bytes; i++) n_lines += text[i] == '\n';
    tti_gpt2_merge *merge = n_lines <= MAX_MERGES ? calloc(n_lines, sizeof *merge) : NULL;
    if (!merge)
        return tti_fail(TUTTI_E_NOMEM, "%s: no memory for %zu lines (at most %d are possible)",
                        path, n_lines, MAX_MERGES);
    for (size_t at = 0; at < n_bytes;) {
        const char *start = text + at, *newline = memchr(start, '\n', n_bytes - at);
        size_t n_line = newline ? (size_t)(newline - start) : n_bytes - at;
        at += n_line + 1;
        line++;
        if (n_line > 0 && start[n_line - 1] == '\r') n_line--;
        if (n_line == 0 || (line == 1 && n_line >= 8 && memcmp(start, "#version", 8) == 0))
            continue;
        if (!cut_at_blank(start, n_line, &merge[n++])) {
            free(merge);
            return tti_fail(TUTTI_E_DATA, "%s:%zu: not a pair of tokens with one blank between",
                            path, line);
        }
    }
    out->merge = merge;
    out->n_merges = n;
    return TUTTI_OK;
}

/* ---- gpt2: the files ---- */

static tutti_status check_gpt2(const char *path, const json_t *root, const json_t *model) {
    const char *what = NULL;
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *regex = json_object_get(pre, "use_regex");
    if (!is_text(json_object_get(model, "type"), "BPE"))
        what = "a model that is not BPE";
    else if (has(root, "normalizer"))
        what = "a normalizer";
    else if (!is_text(json_object_get(pre, "type"), "ByteLevel") || (regex && !json_is_true(regex)))
        what = "a pre_tokenizer other than GPT-2's ByteLevel";
    else if (has(pre, "add_prefix_space"))
        what = "add_prefix_space";
    else if (has(model, "byte_fallback") || has(model, "ignore_merges") || has(model, "dropout"))
        what = "byte_fallback, ignore_merges or dropout";
    if (what)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: it has %s, and only GPT-2's way of cutting text is known", path, what);
    return TUTTI_OK;
}

static void free_source(tti_gpt2_source *source) {
    free((void *)(uintptr_t)source->token);
    free((void *)(uintptr_t)source->merge);
}

static tutti_status read_gpt2(const char *path, const json_t *root, tutti_tokenizer *t) {
    tti_gpt2_source source = {.path = path, .merges_path = path};
    json_t *model = json_object_get(root, "model");
    tutti_status st;
    TTI_TRY_GOTO(check_gpt2(path, root, model), cleanup);
    TTI_TRY_GOTO(read_tokens(path, json_object_get(model, "vocab"),
                             json_object_get(root, "added_tokens"), &source),
                 cleanup);
    TTI_TRY_GOTO(read_merges(path, json_object_get(model, "merges"), &source), cleanup);
    st = tti_gpt2_make(t, &source);
cleanup:
    free_source(&source);
    return st;
}

tutti_status tti_tokenizer_read(const char *path, tutti_tokenizer *t) {
    json_t *root;
    TTI_TRY(read_json(path, &root));
    const json_t *name = json_object_get(root, "tokenizer");
    tutti_status st;
    if (json_is_object(json_object_get(root, "model")))
        st = read_gpt2(path, root, t);
    else if (is_text(name, "bytes"))
        st = tti_bytes_make(t);
    else if (is_text(name, "chars"))
        st = read_chars(path, root, t);
    else
        st = tti_fail(TUTTI_E_DATA,
                      "%s: is no tokenizer: neither \"model\" nor a known \"tokenizer\" is there",
                      path);
    json_decref(root);
    return st;
}

tutti_status tti_tokenizer_read_pair(const char *dir, tutti_tokenizer *t) {
    char vocab_path[4096], merges_path[4096];
    if (snprintf(vocab_path, sizeof vocab_path, "%s/vocab.json", dir) >= (int)sizeof vocab_path ||
        snprintf(merges_path, sizeof merges_path, "%s/merges.txt", dir) >= (int)sizeof merges_path)
        return tti_fail(TUTTI_E_INVALID, "tokenizer: the name of the folder is too long");
    tti_gpt2_source source = {.path = vocab_path, .merges_path = merges_path};
    json_t *root;
    char *text = NULL;
    size_t n_bytes;
    TTI_TRY(read_json(vocab_path, &root));
    tutti_status st;
    TTI_TRY_GOTO(read_file(merges_path, &text, &n_bytes), cleanup);
    TTI_TRY_GOTO(read_tokens(vocab_path, root, NULL, &source), cleanup);
    TTI_TRY_GOTO(read_merge_lines(merges_path, text, n_bytes, &source), cleanup);
    st = tti_gpt2_make(t, &source);
cleanup:
    free_source(&source);
    json_decref(root);
    free(text);
    return st;
}

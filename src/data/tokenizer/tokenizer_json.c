/* tokenizer_json.c - the files of tokenizers: those of tutti_tokenizer_save, Hugging Face's
 * tokenizer.json, and vocab.json with merges.txt.
 *
 * Texts are borrowed from the parsed JSON until the tokenizer is made.  Every field is in a table
 * below: it is honored, has no influence on the tokens, or is refused with its value. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/problem.h"
#include "data/files/byte_reader.h"
#include "data/tokenizer/tokenizer_gpt2.h"

enum { MAX_FILE_BYTES = 64 << 20, MAX_MERGES = 1 << 22 };

static tutti_status parse_file(const char *path, size_t flags, json_t **out) {
    char *text;
    size_t n_bytes;
    json_error_t error;
    TTI_TRY(tti_read_file(path, MAX_FILE_BYTES, &text, &n_bytes));
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | flags, &error);
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

static bool is_text(const json_t *value, const char *wanted) {
    return json_is_string(value) && strcmp(json_string_value(value), wanted) == 0;
}

/* The source of a tokenizer: tokens from several files, whose JSON is kept until it is made. */
typedef struct reading {
    json_t *roots[5]; /* of parsed files */
    int n_roots;
    const json_t *vocab;
    tti_gpt2_token *token;
    size_t n_tokens, capacity;
    json_t *added; /* by text: the place in token where an added token is first listed */
} reading;

static tutti_status open_json(reading *r, const char *path, size_t flags, json_t **root) {
    TTI_ASSERT(r->n_roots < (int)TTI_COUNT(r->roots));
    TTI_TRY(parse_file(path, flags, root));
    r->roots[r->n_roots++] = *root;
    return TUTTI_OK;
}

static tutti_status add_token(reading *r, const char *path, const tti_gpt2_token *token) {
    if (r->n_tokens == r->capacity) {
        size_t more = 2 * r->capacity + 64;
        tti_gpt2_token *wider = realloc(r->token, more * sizeof *wider);
        if (!wider) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
        r->token = wider;
        r->capacity = more;
    }
    if (token->added && !r->added) r->added = json_object();
    if (token->added && !json_object_get(r->added, token->text) &&
        json_object_set_new(r->added, token->text, json_integer((json_int_t)r->n_tokens)) != 0)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    r->token[r->n_tokens++] = *token; /* ids and texts are checked when the tokenizer is made */
    return TUTTI_OK;
}

static tutti_status check_count(const char *path, size_t n) {
    if (n <= TTI_MAX_TOKENS) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "%s: %zu tokens, at most %d are supported", path, n,
                    TTI_MAX_TOKENS);
}

static tutti_status read_vocab(reading *r, const char *path, json_t *vocab) {
    const char *key;
    json_t *value;
    size_t n = json_object_size(vocab);
    if (n == 0) return tti_fail(TUTTI_E_DATA, "%s: has no tokens", path);
    TTI_TRY(check_count(path, n));
    r->vocab = vocab;
    json_object_foreach(vocab, key, value) {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        TTI_TRY(add_token(r, path, &(tti_gpt2_token){.text = key, .id = id}));
    }
    return TUTTI_OK;
}

/* ---- gpt2: fields ---- */

static bool is_any(const json_t *value) { return value != NULL; }
static bool is_off(const json_t *value) { return json_is_null(value) || json_is_false(value); }
static bool is_bool(const json_t *value) { return json_is_boolean(value); }
static bool is_zero(const json_t *value) {
    return json_is_null(value) || (json_is_number(value) && json_number_value(value) == 0);
}
static bool is_version_1(const json_t *value) { return is_text(value, "1.0"); }
static bool is_empty(const json_t *value) { return json_is_null(value) || is_text(value, ""); }
static bool is_bpe(const json_t *value) { return is_text(value, "BPE"); }
static bool is_byte_level_type(const json_t *value) { return is_text(value, "ByteLevel"); }

static bool is_byte_level(const json_t *value) {
    return json_is_null(value) || is_byte_level_type(json_object_get(value, "type"));
}

/* A template that adds nothing to the text itself. */
static bool is_bare_template(const json_t *value) {
    const json_t *single = json_object_get(value, "single");
    bool bare = is_text(json_object_get(value, "type"), "TemplateProcessing");
    bare &= json_array_size(single) == 1;
    return bare && json_is_object(json_object_get(json_array_get(single, 0), "Sequence"));
}

static bool adds_nothing(const json_t *value) {
    const json_t *list = json_object_get(value, "processors");
    bool fine = is_byte_level(value) || is_bare_template(value);
    if (fine || !is_text(json_object_get(value, "type"), "Sequence")) return fine;
    fine = json_is_array(list);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        fine &= is_byte_level(item) || is_bare_template(item);
    }
    return fine;
}

/* Null, or a sequence of no normalizers. */
static bool is_no_normalizer(const json_t *value) {
    const json_t *list = json_object_get(value, "normalizers");
    bool empty = is_text(json_object_get(value, "type"), "Sequence") && json_is_array(list) &&
                 json_array_size(list) == 0;
    return json_is_null(value) || empty;
}

typedef struct field {
    const char *key;
    bool (*fine)(const json_t *value);
    const char *supported; /* for the message */
} field;

static const field file_fields[] = {
    {"version", is_version_1, "1.0"},
    {"truncation", is_off, "null: texts are not cut"},
    {"padding", is_off, "null: texts are not filled up"},
    {"added_tokens", is_any, NULL},
    {"normalizer", is_no_normalizer, "null: texts are encoded as they are"},
    {"pre_tokenizer", is_any, NULL},
    {"post_processor", adds_nothing, "what adds no tokens to a text"},
    {"decoder", is_byte_level, "null or ByteLevel"},
    {"model", is_any, NULL},
    {0}};

static const field model_fields[] = {
    {"type", is_bpe, "BPE"},
    {"vocab", is_any, NULL},
    {"merges", is_any, NULL},
    {"unk_token", is_any, NULL}, /* a byte without a token is an error when a text has it */
    {"fuse_unk", is_any, NULL},
    {"dropout", is_zero, "null or 0"},
    {"continuing_subword_prefix", is_empty, "null or an empty text"},
    {"end_of_word_suffix", is_empty, "null or an empty text"},
    {"byte_fallback", is_off, "false"},
    {"ignore_merges", is_bool, "true, false"},
    {0}};

static const field pre_tokenizer_fields[] = {{"type", is_byte_level_type, "ByteLevel"},
                                             {"add_prefix_space", is_off, "false"},
                                             {"trim_offsets", is_any, NULL},
                                             {"use_regex", is_bool, "true, false"},
                                             {0}};

static const field added_fields[] = {{"id", is_any, NULL},
                                     {"content", is_any, NULL},
                                     {"__type", is_any, NULL},
                                     {"single_word", is_off, "false"},
                                     {"lstrip", is_bool, "true, false"},
                                     {"rstrip", is_bool, "true, false"},
                                     {"normalized", is_bool, "true, false"},
                                     {"special", is_bool, "true, false"},
                                     {0}};

/* The keys of tokenizer_config.json that change the tokens; other keys are ignored. */
static const field config_fields[] = {{"add_prefix_space", is_off, "false"},
                                      {"split_special_tokens", is_off, "false"},
                                      {"add_bos_token", is_off, "false"},
                                      {"add_eos_token", is_off, "false"},
                                      {0}};

static const field *find_field(const field *fields, const char *key) {
    while (fields->key && strcmp(fields->key, key) != 0) fields++;
    return fields->key ? fields : NULL;
}

/* where: "model.", for messages. */
static tutti_status check_fields(const char *path, const char *where, const json_t *object,
                                 const field *fields, bool all) {
    enum { SHOWN = 80 };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        char shown[SHOWN], clipped[TTI_CLIP];
        const field *f = find_field(fields, key);
        if (f ? f->fine(value) : !all) continue;
        size_t n = json_dumpb(value, shown, SHOWN - 1, JSON_ENCODE_ANY | JSON_COMPACT);
        shown[TTI_MIN(n, (size_t)SHOWN - 1)] = '\0';
        if (!f)
            return tti_fail(TUTTI_E_UNSUPPORTED,
                            "%s: \"%s%s\" is not known and may change the tokens", path, where,
                            tti_clip(clipped, key));
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: \"%s%s\" is %s, which would change the tokens; supported: %s", path,
                        where, f->key, tti_clip(clipped, shown), f->supported);
    }
    return TUTTI_OK;
}

/* ---- gpt2: added tokens ---- */

static bool flag_of(const json_t *item, const char *key) {
    return json_is_true(json_object_get(item, key));
}

/* item: an object with the content and its flags, or the content alone. */
static tutti_status add_added(reading *r, const char *path, const json_t *item, int64_t id) {
    const json_t *content = json_is_object(item) ? json_object_get(item, "content") : item;
    const char *text = json_string_value(content);
    TTI_TRY(check_fields(path, "added_tokens.", item, added_fields, true));
    return add_token(r, path,
                     &(tti_gpt2_token){.text = text ? text : "",
                                       .id = id,
                                       .added = true,
                                       .flags = {.lstrip = flag_of(item, "lstrip"),
                                                 .rstrip = flag_of(item, "rstrip"),
                                                 .normalized = flag_of(item, "normalized"),
                                                 .special = flag_of(item, "special")}});
}

static const tti_gpt2_token *find_added(const reading *r, const char *text) {
    const json_t *place = json_object_get(r->added, text);
    return place ? &r->token[json_integer_value(place)] : NULL;
}

static bool is_added(const reading *r, const char *text) { return find_added(r, text) != NULL; }

/* tokenizers gives added tokens that the vocabulary lacks the next numbers, whatever the file says.
 */
static tutti_status refuse_number(const char *path, const tti_gpt2_token *token, int64_t next) {
    char clipped[TTI_CLIP];
    return tti_fail(TUTTI_E_DATA,
                    "%s: the added token '%s' has the number %lld, but tokenizers gives it %lld, "
                    "the next one after the vocabulary; correct the number or the order of the "
                    "added tokens, or list the token in the vocabulary",
                    path, tti_clip(clipped, token->text), (long long)token->id, (long long)next);
}

/* Those of tokenizer.json are numbered in the order of the file. */
static tutti_status read_added(reading *r, const char *path, const json_t *list) {
    size_t n_new = 0;
    TTI_TRY(check_count(path, json_array_size(list)));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i), *id = json_object_get(item, "id");
        const char *text = json_string_value(json_object_get(item, "content"));
        bool is_new = text && !is_added(r, text) && !json_object_get(r->vocab, text);
        TTI_TRY(add_added(r, path, item, json_is_integer(id) ? json_integer_value(id) : -1));
        if (!is_new) continue;
        int64_t next = (int64_t)(json_object_size(r->vocab) + n_new++);
        const tti_gpt2_token *token = &r->token[r->n_tokens - 1];
        if (token->id >= 0 && token->id != next) return refuse_number(path, token, next);
    }
    return TUTTI_OK;
}

/* Another file lists the added token again. */
static tutti_status check_again(const char *path, const tti_gpt2_token *token, int64_t id,
                                bool lstrip, bool rstrip) {
    char clipped[TTI_CLIP];
    if (token->id != id)
        return tti_fail(TUTTI_E_DATA,
                        "%s: the added token '%s' has the number %lld, in another file %lld", path,
                        tti_clip(clipped, token->text), (long long)id, (long long)token->id);
    if (token->flags.lstrip == lstrip && token->flags.rstrip == rstrip) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: the added token '%s' has other values of lstrip and rstrip than in "
                    "another file; make them equal",
                    path, tti_clip(clipped, token->text));
}

/* DIR/name parsed, if it is there; *root stays NULL if not. */
static tutti_status open_in_folder(reading *r, const char *dir, const char *name, char path[4096],
                                   json_t **root) {
    /* A config may have a "model_max_length" of 10^30; numbers of tokens are integers. */
    size_t flags = strcmp(name, "tokenizer_config.json") == 0 ? JSON_DECODE_INT_AS_REAL : 0;
    struct stat info;
    *root = NULL;
    if (snprintf(path, 4096, "%s/%s", dir, name) >= 4096)
        return tti_fail(TUTTI_E_INVALID, "tokenizer: the name of the folder is too long");
    return lstat(path, &info) == 0 ? open_json(r, path, flags, root) : TUTTI_OK;
}

/* tokenizer_config.json: "added_tokens_decoder": {"NUMBER": {"content": ...}}. */
static tutti_status read_decoder(reading *r, const char *path, json_t *decoder) {
    json_t *item;
    const char *number;
    TTI_TRY(check_count(path, json_object_size(decoder)));
    json_object_foreach(decoder, number, item) {
        char *end;
        long long id = strtoll(number, &end, 10);
        const char *text = json_string_value(json_object_get(item, "content"));
        const tti_gpt2_token *there = text ? find_added(r, text) : NULL;
        if (!*number || *end) id = -1;
        if (there)
            TTI_TRY(check_again(path, there, id, flag_of(item, "lstrip"), flag_of(item, "rstrip")));
        else
            TTI_TRY(add_added(r, path, item, id));
    }
    return TUTTI_OK;
}

/* added_tokens.json: {"CONTENT": NUMBER}. */
static tutti_status read_added_file(reading *r, const char *dir) {
    char path[4096];
    json_t *root, *id;
    const char *text;
    TTI_TRY(open_in_folder(r, dir, "added_tokens.json", path, &root));
    TTI_TRY(check_count(path, json_object_size(root)));
    json_object_foreach(root, text, id) {
        const tti_gpt2_token token = {
            .text = text, .id = json_is_integer(id) ? json_integer_value(id) : -1, .added = true};
        const tti_gpt2_token *there = find_added(r, text);
        if (there)
            TTI_TRY(check_again(path, there, token.id, there->flags.lstrip, there->flags.rstrip));
        else
            TTI_TRY(add_token(r, path, &token));
    }
    return TUTTI_OK;
}

static tutti_status add_special(reading *r, const char *path, const json_t *item) {
    char clipped[TTI_CLIP];
    const json_t *content = json_is_object(item) ? json_object_get(item, "content") : item;
    const char *text = json_string_value(content);
    const json_t *id = text ? json_object_get(r->vocab, text) : NULL;
    if (!text || !*text || is_added(r, text)) return TUTTI_OK;
    if (json_is_integer(id)) return add_added(r, path, item, json_integer_value(id));
    return tti_fail(
        TUTTI_E_DATA,
        "%s: the special token '%s' has no number in any file; save the tokenizer again "
        "with save_pretrained of transformers",
        path, tti_clip(clipped, text));
}

/* CONTENT, [CONTENT, ...] or {"NAME": CONTENT, ...}. */
static tutti_status add_specials(reading *r, const char *path, json_t *value) {
    json_t *item;
    const char *name;
    bool named = json_is_object(value) && !json_object_get(value, "content");
    if (!json_is_array(value) && !named) return add_special(r, path, value);
    for (size_t i = 0; i < json_array_size(value); i++)
        TTI_TRY(add_special(r, path, json_array_get(value, i)));
    json_object_foreach(named ? value : NULL, name, item) TTI_TRY(add_special(r, path, item));
    return TUTTI_OK;
}

/* special_tokens_map.json: {"eos_token": CONTENT, "additional_special_tokens": [CONTENT, ...]}. */
static tutti_status read_special(reading *r, const char *dir) {
    char path[4096];
    json_t *root, *item;
    const char *name;
    TTI_TRY(open_in_folder(r, dir, "special_tokens_map.json", path, &root));
    TTI_TRY(check_count(path, json_object_size(root)));
    json_object_foreach(root, name, item) TTI_TRY(add_specials(r, path, item));
    return TUTTI_OK;
}

/* Those of all files are numbered without a gap. */
static tutti_status check_gaps(const reading *r, const char *path) {
    int64_t n = (int64_t)json_object_size(r->vocab), highest = -1;
    const tti_gpt2_token *last = NULL;
    for (size_t i = 0; i < r->n_tokens; i++) {
        const tti_gpt2_token *token = &r->token[i];
        if (!token->added || json_object_get(r->vocab, token->text)) continue;
        if (find_added(r, token->text) == token) n++; /* not listed twice */
        if (token->id > highest) highest = (last = token)->id;
    }
    return last && highest >= n ? refuse_number(path, last, n - 1) : TUTTI_OK;
}

/* The files beside the vocabulary, all of which may name added tokens. */
static tutti_status read_beside(reading *r, const char *dir) {
    static const char *const keys[] = {
        "bos_token",           "eos_token", "unk_token",  "sep_token",
        "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
        "extra_special_tokens"};
    char path[4096];
    json_t *root;
    TTI_TRY(open_in_folder(r, dir, "tokenizer_config.json", path, &root));
    TTI_TRY(check_fields(path, "", root, config_fields, false));
    TTI_TRY(read_decoder(r, path, json_object_get(root, "added_tokens_decoder")));
    TTI_TRY(read_added_file(r, dir));
    for (size_t i = 0; i < TTI_COUNT(keys); i++)
        TTI_TRY(add_specials(r, path, json_object_get(root, keys[i])));
    TTI_TRY(check_gaps(r, dir));
    return read_special(r, dir);
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
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %zu lines (at most %d are supported)",
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
            return tti_fail(TUTTI_E_DATA, "%s:%zu: expected two tokens separated by one space",
                            path, line);
        }
    }
    out->merge = merge;
    out->n_merges = n;
    return TUTTI_OK;
}

/* ---- gpt2: the files ---- */

/* A sequence of one step is that step. */
static const json_t *pre_tokenizer_of(const json_t *root) {
    const json_t *pre = json_object_get(root, "pre_tokenizer");
    const json_t *list = json_object_get(pre, "pretokenizers");
    bool one = is_text(json_object_get(pre, "type"), "Sequence") && json_array_size(list) == 1;
    return one ? json_array_get(list, 0) : pre;
}

static tutti_status check_gpt2(const char *path, const json_t *root, const json_t *model) {
    const json_t *pre = pre_tokenizer_of(root);
    TTI_TRY(check_fields(path, "", root, file_fields, true));
    TTI_TRY(check_fields(path, "model.", model, model_fields, true));
    TTI_TRY(check_fields(path, "pre_tokenizer.", pre, pre_tokenizer_fields, true));
    if (is_bpe(json_object_get(model, "type")) && is_byte_level_type(json_object_get(pre, "type")))
        return TUTTI_OK;
    return tti_fail(
        TUTTI_E_UNSUPPORTED,
        "%s: only a model of type BPE with a pre_tokenizer of type ByteLevel is supported", path);
}

static void close_reading(reading *r, tti_gpt2_source *source) {
    free(r->token);
    json_decref(r->added);
    free((void *)(uintptr_t)source->merge);
    for (int i = 0; i < r->n_roots; i++) json_decref(r->roots[i]);
}

static tutti_status make_gpt2(reading *r, tti_gpt2_source *source, tutti_tokenizer *t) {
    source->token = r->token;
    source->n_tokens = r->n_tokens;
    return tti_gpt2_make(t, source);
}

/* dir: where tokenizer_config.json and other files may be, NULL: they are not looked at. */
static tutti_status read_gpt2(reading *r, const char *path, const char *dir, const json_t *root,
                              tutti_tokenizer *t) {
    json_t *model = json_object_get(root, "model");
    const json_t *regex = json_object_get(pre_tokenizer_of(root), "use_regex");
    tti_gpt2_source source = {.path = path,
                              .merges_path = path,
                              .whole = json_is_false(regex),
                              .ignore_merges = flag_of(model, "ignore_merges")};
    tutti_status st;
    TTI_TRY_GOTO(check_gpt2(path, root, model), cleanup);
    TTI_TRY_GOTO(read_vocab(r, path, json_object_get(model, "vocab")), cleanup);
    TTI_TRY_GOTO(read_added(r, path, json_object_get(root, "added_tokens")), cleanup);
    if (dir) TTI_TRY_GOTO(read_beside(r, dir), cleanup);
    TTI_TRY_GOTO(read_merges(path, json_object_get(model, "merges"), &source), cleanup);
    st = make_gpt2(r, &source, t);
cleanup:
    close_reading(r, &source);
    return st;
}

static tutti_status read_any(const char *path, const char *dir, tutti_tokenizer *t) {
    reading r = {0};
    json_t *root;
    TTI_TRY(open_json(&r, path, 0, &root));
    const json_t *name = json_object_get(root, "tokenizer");
    if (json_is_object(json_object_get(root, "model"))) return read_gpt2(&r, path, dir, root, t);
    tutti_status st;
    if (is_text(name, "bytes"))
        st = tti_bytes_make(t);
    else if (is_text(name, "chars"))
        st = read_chars(path, root, t);
    else
        st = tti_fail(
            TUTTI_E_DATA,
            "%s: is not a tokenizer: neither \"model\" nor a known \"tokenizer\" is there", path);
    json_decref(root);
    return st;
}

tutti_status tti_tokenizer_read(const char *path, tutti_tokenizer *t) {
    return read_any(path, NULL, t);
}

/* <|endoftext|> is an added token of every GPT-2, also where no file says so. */
static tutti_status read_pair_tokens(reading *r, const char *dir, const char *path, json_t *vocab) {
    const json_t *end = json_object_get(vocab, "<|endoftext|>");
    TTI_TRY(read_vocab(r, path, vocab));
    TTI_TRY(read_beside(r, dir));
    if (!json_is_integer(end) || is_added(r, "<|endoftext|>")) return TUTTI_OK;
    return add_token(r, path,
                     &(tti_gpt2_token){.text = "<|endoftext|>",
                                       .id = json_integer_value(end),
                                       .added = true,
                                       .flags = {.special = true}});
}

static tutti_status read_pair(const char *dir, tutti_tokenizer *t) {
    char vocab_path[4096], merges_path[4096];
    if (snprintf(vocab_path, sizeof vocab_path, "%s/vocab.json", dir) >= (int)sizeof vocab_path ||
        snprintf(merges_path, sizeof merges_path, "%s/merges.txt", dir) >= (int)sizeof merges_path)
        return tti_fail(TUTTI_E_INVALID, "tokenizer: the name of the folder is too long");
    tti_gpt2_source source = {.path = vocab_path, .merges_path = merges_path};
    reading r = {0};
    json_t *vocab;
    char *text = NULL;
    size_t n_bytes;
    tutti_status st;
    TTI_TRY_GOTO(open_json(&r, vocab_path, 0, &vocab), cleanup);
    TTI_TRY_GOTO(tti_read_file(merges_path, MAX_FILE_BYTES, &text, &n_bytes), cleanup);
    TTI_TRY_GOTO(read_pair_tokens(&r, dir, vocab_path, vocab), cleanup);
    TTI_TRY_GOTO(read_merge_lines(merges_path, text, n_bytes, &source), cleanup);
    st = make_gpt2(&r, &source, t);
cleanup:
    close_reading(&r, &source);
    free(text);
    return st;
}

tutti_status tti_tokenizer_read_dir(const char *dir, tutti_tokenizer *t) {
    char path[4096];
    struct stat info;
    if (snprintf(path, sizeof path, "%s/" TTI_TOKENIZER_FILE, dir) >= (int)sizeof path)
        return tti_fail(TUTTI_E_INVALID, "tokenizer: the name of the folder is too long");
    return lstat(path, &info) == 0 ? read_any(path, dir, t) : read_pair(dir, t);
}

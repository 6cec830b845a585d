/* tokenizer_chars.c - one token per byte, and one token per character of a text.
 *
 * The sorted characters of a text are the vocabulary; ASCII is looked up in a table of 128, all
 * others by bisection. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/tokenizer.h"

enum { BLOCK = 4096, N_ASCII = 128, N_UNICODE = 0x110000 };

/* out has room for 4 bytes. */
static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x80) return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)((0xF00 >> n & 0xFF) | c);
    return n;
}

/* ---- bytes ---- */

tutti_status tti_bytes_make(tutti_tokenizer *t) {
    TTI_TRY(tti_pieces_init(&t->pieces, 256, 256));
    for (int i = 0; i < 256; i++) {
        t->pieces.bytes[i] = (char)i;
        t->pieces.start[i + 1] = (uint32_t)i + 1;
    }
    t->pieces.n = 256;
    t->kind = &tti_tokenizer_bytes;
    return TUTTI_OK;
}

static tutti_status bytes_encode(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                                 const tti_token_sink *sink) {
    (void)t;
    int32_t block[BLOCK];
    for (size_t at = 0; at < n_bytes;) {
        size_t n = TTI_MIN(n_bytes - at, BLOCK);
        for (size_t i = 0; i < n; i++) block[i] = (uint8_t)text[at + i];
        TTI_TRY(sink->take(sink->user, block, n));
        at += n;
    }
    return TUTTI_OK;
}

static void bytes_save(const tutti_tokenizer *t, tti_json *j) {
    tti_json_text(j, "tokenizer", t->kind->name);
}

/* Byte pairs without merges, where the number of a token is its byte. */
static tutti_status bytes_save_for_transformers(const tutti_tokenizer *t, tti_json *j) {
    (void)t;
    tti_json_text(j, "version", "1.0");
    tti_json_array(j, "added_tokens");
    tti_json_end(j);
    tti_tokenizer_save_byte_level(j, "pre_tokenizer", false);
    tti_tokenizer_save_byte_level(j, "decoder", false);
    tti_json_object(j, "model");
    tti_json_text(j, "type", "BPE");
    tti_json_object(j, "vocab");
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8] = {0};
        put_utf8(text, tti_gpt2_letter(byte));
        tti_json_int(j, text, byte);
    }
    tti_json_end(j);
    tti_json_array(j, "merges");
    tti_json_end(j);
    tti_json_end(j);
    return TUTTI_OK;
}

const tti_tokenizer_kind tti_tokenizer_bytes = {
    .name = "bytes",
    .doc = "one token per byte, 256 in all: any file",
    .encode = bytes_encode,
    .save = bytes_save,
    .save_for_transformers = bytes_save_for_transformers,
};

/* ---- characters ---- */

typedef struct chars_state {
    int32_t ascii[N_ASCII]; /* token, -1: not in the vocabulary */
    size_t n;
    uint32_t *character; /* [n], rising: the token is the place */
} chars_state;

static void chars_close(void *p) {
    chars_state *state = p;
    if (state) free(state->character);
    free(state);
}

static tutti_status make_pieces(const chars_state *state, tti_pieces *pieces) {
    TTI_TRY(tti_pieces_init(pieces, state->n, 4 * state->n));
    uint32_t at = 0;
    for (size_t i = 0; i < state->n; i++) {
        at += (uint32_t)put_utf8(pieces->bytes + at, state->character[i]);
        pieces->start[i + 1] = at;
    }
    pieces->n = (int64_t)state->n;
    return TUTTI_OK;
}

tutti_status tti_chars_make(tutti_tokenizer *t, const uint32_t *character, size_t n) {
    if (n == 0) return tti_fail(TUTTI_E_DATA, "tokenizer: the text has no characters");
    chars_state *state = calloc(1, sizeof *state);
    if (state) state->character = malloc(n * sizeof *character);
    if (!state || !state->character) {
        chars_close(state);
        return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
    }
    memcpy(state->character, character, n * sizeof *character);
    state->n = n;
    for (int i = 0; i < N_ASCII; i++) state->ascii[i] = -1;
    for (size_t i = 0; i < n && character[i] < N_ASCII; i++)
        state->ascii[character[i]] = (int32_t)i;
    tutti_status st = make_pieces(state, &t->pieces);
    if (st != TUTTI_OK) {
        chars_close(state);
        return st;
    }
    t->kind = &tti_tokenizer_chars;
    t->state = state;
    return TUTTI_OK;
}

static tutti_status mark(const char *text, size_t n_bytes, uint8_t *seen) {
    for (size_t at = 0; at < n_bytes;) {
        uint32_t c = (uint8_t)text[at];
        size_t n = c < N_ASCII ? 1 : tti_utf8_decode(text + at, n_bytes - at, &c);
        if (n == 0) return tti_not_utf8(text, n_bytes, at);
        seen[c] = 1;
        at += n;
    }
    return TUTTI_OK;
}

tutti_status tti_chars_make_of(tutti_tokenizer *t, const char *text, size_t n_bytes) {
    uint8_t *seen = calloc(N_UNICODE, 1);
    uint32_t *character = NULL;
    size_t n = 0, k = 0;
    if (!seen) return tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
    tutti_status st;
    TTI_TRY_GOTO(mark(text, n_bytes, seen), cleanup);
    for (uint32_t c = 0; c < N_UNICODE; c++) n += seen[c];
    character = malloc((n + 1) * sizeof *character);
    if (!character) {
        st = tti_fail(TUTTI_E_NOMEM, "tokenizer: out of memory");
        goto cleanup;
    }
    for (uint32_t c = 0; c < N_UNICODE; c++)
        if (seen[c]) character[k++] = c;
    st = tti_chars_make(t, character, n);
cleanup:
    free(character);
    free(seen);
    return st;
}

static int32_t find_char(const chars_state *state, uint32_t c) {
    size_t low = 0, high = state->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (state->character[mid] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < state->n && state->character[low] == c ? (int32_t)low : -1;
}

static tutti_status chars_encode(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                                 const tti_token_sink *sink) {
    const chars_state *state = t->state;
    int32_t block[BLOCK];
    size_t n_block = 0;
    for (size_t at = 0; at < n_bytes;) {
        uint32_t c = (uint8_t)text[at];
        bool ascii = c < N_ASCII;
        size_t n = ascii ? 1 : tti_utf8_decode(text + at, n_bytes - at, &c);
        if (n == 0) return tti_not_utf8(text, n_bytes, at);
        int32_t token = ascii ? state->ascii[c] : find_char(state, c);
        if (token < 0)
            return tti_fail(TUTTI_E_DATA,
                            "character U+%04X at byte %zu is not in the vocabulary of %zu", c, at,
                            state->n);
        block[n_block++] = token;
        at += n;
        if (n_block == BLOCK || at == n_bytes) {
            TTI_TRY(sink->take(sink->user, block, n_block));
            n_block = 0;
        }
    }
    return TUTTI_OK;
}

static void chars_save(const tutti_tokenizer *t, tti_json *j) {
    const chars_state *state = t->state;
    tti_json_text(j, "tokenizer", t->kind->name);
    tti_json_array(j, "characters"); /* as numbers: JSON text has trouble with some */
    for (size_t i = 0; i < state->n; i++) tti_json_int(j, NULL, state->character[i]);
    tti_json_end(j);
}

/* Byte pairs without merges over whole characters.  The unknown token is not in the vocabulary, so
 * that transformers fails for a foreign character, as chars_encode does, instead of dropping it. */
static tutti_status chars_save_for_transformers(const tutti_tokenizer *t, tti_json *j) {
    const chars_state *state = t->state;
    if (state->character[0] == 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "export: the vocabulary has the character U+0000, which Hugging Face's "
                        "tokenizer.json cannot represent");
    tti_json_text(j, "version", "1.0");
    tti_json_array(j, "added_tokens");
    tti_json_end(j);
    tti_json_object(j, "decoder");
    tti_json_text(j, "type", "Fuse");
    tti_json_end(j);
    tti_json_object(j, "model");
    tti_json_text(j, "type", "BPE");
    tti_json_text(j, "unk_token", "<a character that the training text does not have>");
    tti_json_object(j, "vocab");
    for (size_t i = 0; i < state->n; i++) {
        char text[8] = {0};
        put_utf8(text, state->character[i]);
        tti_json_int(j, text, (int64_t)i);
    }
    tti_json_end(j);
    tti_json_array(j, "merges");
    tti_json_end(j);
    tti_json_end(j);
    return TUTTI_OK;
}

const tti_tokenizer_kind tti_tokenizer_chars = {
    .name = "chars",
    .doc = "one token per Unicode character of the training text",
    .encode = chars_encode,
    .save = chars_save,
    .save_for_transformers = chars_save_for_transformers,
    .close = chars_close,
};

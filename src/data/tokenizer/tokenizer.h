/* tokenizer.h - the interface of a kind of tokenizer, and the table of kinds.
 *
 * Every tokenizer knows the bytes of each of its tokens (pieces), so decoding is the same for all;
 * a kind defines how text is divided. */
#ifndef TTI_DATA_TOKENIZER_H
#define TTI_DATA_TOKENIZER_H

#include "base/json.h"
#include "tutti/data.h"

#define TTI_TOKENIZER_FILE "tokenizer.json"
#define TTI_MAX_TOKENS (1 << 20)

/* The bytes of token i: bytes[start[i]] .. bytes[start[i+1]-1]; none: there is no such token. */
typedef struct tti_pieces {
    int64_t n;
    uint32_t *start; /* [n+1] */
    char *bytes;
} tti_pieces;

/* Receives tokens as they are made, one block at a time. */
typedef struct tti_token_sink {
    tutti_status (*take)(void *user, const int32_t *token, size_t n);
    void *user;
} tti_token_sink;

typedef struct tti_tokenizer_kind {
    const char *name, *doc;
    /* A failure says at which byte of text. */
    tutti_status (*encode)(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                           const tti_token_sink *sink);
    /* Adds members to the open object of the tokenizer's file. */
    void (*save)(const tutti_tokenizer *t, tti_json *j);
    /* The same as a tokenizer.json of Hugging Face that gives equal tokens; NULL: save does it.
     * Fails for a vocabulary that such a file cannot hold. */
    tutti_status (*save_for_transformers)(const tutti_tokenizer *t, tti_json *j);
    /* Whether two tokenizers of the kind with the same pieces encode equally; NULL: always. */
    bool (*equal)(const tutti_tokenizer *a, const tutti_tokenizer *b);
    void (*close)(void *state);
} tti_tokenizer_kind;

struct tutti_tokenizer {
    const tti_tokenizer_kind *kind;
    tti_pieces pieces;
    _Atomic int n_owners;
    int32_t end; /* -1: none      */
    void *state; /* of the kind   */
};

extern const tti_tokenizer_kind tti_tokenizer_bytes;
extern const tti_tokenizer_kind tti_tokenizer_chars;
extern const tti_tokenizer_kind tti_tokenizer_gpt2;

/* Adds an owner, which must call tutti_tokenizer_destroy; NULL is a no-op.  Any thread. */
tutti_tokenizer *tti_tokenizer_share(tutti_tokenizer *t);

/* Whether both have the same tokens with the same numbers. */
bool tti_tokenizer_equal(const tutti_tokenizer *a, const tutti_tokenizer *b);

/* Writes a tokenizer.json of Hugging Face, which gives the same tokens for every text that t can
 * encode.  TUTTI_E_UNSUPPORTED if there is none. */
TUTTI_NODISCARD tutti_status tti_tokenizer_save_for_transformers(const tutti_tokenizer *t,
                                                                 const char *path);

/* Writes {"type":"ByteLevel", ...} as a member. */
void tti_tokenizer_save_byte_level(tti_json *j, const char *key, bool use_regex);

/* The character of GPT-2's alphabet that stands for a byte, below 0x800. */
uint32_t tti_gpt2_letter(unsigned byte);

/* Kinds in order of the table: i = 0, 1, ... until NULL. */
const tti_tokenizer_kind *tti_tokenizer_kind_at(int i);

/* ---- making one: each fills a zeroed t, or leaves it zeroed ---- */

tutti_status tti_bytes_make(tutti_tokenizer *t);

/* The n characters in strictly rising order, none a surrogate. */
tutti_status tti_chars_make(tutti_tokenizer *t, const uint32_t *character, size_t n);

/* The characters of a text; name is what messages begin with. */
tutti_status tti_chars_make_of(tutti_tokenizer *t, const char *text, size_t n_bytes);

/* A file that was saved, or a tokenizer.json. */
tutti_status tti_tokenizer_read(const char *path, tutti_tokenizer *t);

/* Reads a folder with tokenizer.json, or with vocab.json and merges.txt.  Also reads
 * tokenizer_config.json and, for the latter, added_tokens.json and special_tokens_map.json. */
tutti_status tti_tokenizer_read_dir(const char *dir, tutti_tokenizer *t);

/* ---- for kinds ---- */

/* The error for text that is not UTF-8 at position at. */
tutti_status tti_not_utf8(const char *text, size_t n_bytes, size_t at);

/* n bytes as one more piece; pieces->n counts up to n_max, for which start has room. */
tutti_status tti_pieces_init(tti_pieces *pieces, size_t n_max, size_t n_bytes_max);
void tti_pieces_free(tti_pieces *pieces);

/* As tutti_tokenizer_encode, in blocks. */
tutti_status tti_tokenizer_encode_to(const tutti_tokenizer *t, const char *text, size_t n_bytes,
                                     const tti_token_sink *sink);

#endif /* TTI_DATA_TOKENIZER_H */

/* added_tokens.h - tokens that are searched in a text before it is divided into words.
 *
 * The rules are those of Hugging Face's tokenizers: the leftmost match wins, at one position the
 * longest.  Tokens that are not "normalized" are searched first, in the whole text, the others in
 * the text between them. */
#ifndef TTI_DATA_ADDED_TOKENS_H
#define TTI_DATA_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/status.h"
#include "tutti/types.h"

typedef struct tti_added_flags {
    bool lstrip, rstrip; /* the white space before, after it belongs to the token */
    bool normalized;     /* looked for in the second pass */
    bool special;        /* kept for saving; it has no influence on encoding */
} tti_added_flags;

typedef struct tti_added_token {
    char *text; /* owned */
    size_t n_bytes;
    int32_t id;
    tti_added_flags flags;
} tti_added_token;

typedef struct tti_added_tokens {
    size_t n;
    tti_added_token *token; /* those of the first pass, then those of the second, each sorted */
    size_t begin[3];        /* of pass i: begin[i] .. begin[i+1] */
    bool starts[2][256];    /* some token of a pass begins with this byte */
} tti_added_tokens;

/* Takes what encoding finds, in order. */
typedef struct tti_added_sink {
    tutti_status (*take_token)(void *user, int32_t id);
    tutti_status (*take_text)(void *user, size_t begin, size_t end); /* no added token is in it */
    void *user;
} tti_added_sink;

/* Adds a token, which must not be empty; a text that is added twice is one token.  Fails only
 * without memory. */
tutti_status tti_added_tokens_add(tti_added_tokens *all, const tti_added_token *token);

/* After the last one was added. */
void tti_added_tokens_sort(tti_added_tokens *all);

/* Frees what was added; a zeroed one is fine. */
void tti_added_tokens_free(tti_added_tokens *all);

/* Whether both have the same tokens with the same flags. */
bool tti_added_tokens_equal(const tti_added_tokens *a, const tti_added_tokens *b);

/* The token with that text, NULL if there is none. */
const tti_added_token *tti_added_tokens_find(const tti_added_tokens *all, const char *text);

/* Cuts n_bytes of text at the added tokens. */
tutti_status tti_added_tokens_cut(const tti_added_tokens *all, const char *text, size_t n_bytes,
                                  const tti_added_sink *sink);

#endif /* TTI_DATA_ADDED_TOKENS_H */

/* tokenizer_gpt2.h - makes a byte-pair tokenizer from the contents of its files. */
#ifndef TTI_DATA_TOKENIZER_GPT2_H
#define TTI_DATA_TOKENIZER_GPT2_H

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/tokenizer.h"

/* One token of the vocabulary, whose text is in GPT-2's alphabet, which shows each byte as a
 * printable character; or an added token, whose text is searched literally, before everything else.
 * A token may be listed as both. */
typedef struct tti_gpt2_token {
    const char *text; /* borrowed, UTF-8 */
    int64_t id;
    bool added;
    tti_added_flags flags; /* of an added one */
} tti_gpt2_token;

/* Merge number i joins left and right, both in the alphabet; not NUL-terminated, borrowed. */
typedef struct tti_gpt2_merge {
    const char *left, *right;
    size_t n_left, n_right;
} tti_gpt2_merge;

typedef struct tti_gpt2_source {
    const char *path, *merges_path; /* for messages */
    size_t n_tokens, n_merges;
    const tti_gpt2_token *token;
    const tti_gpt2_merge *merge;
    bool whole;         /* text between added tokens is one word: ByteLevel without its pattern */
    bool ignore_merges; /* a word that is a token stays whole */
} tti_gpt2_source;

/* Fills a zeroed t. */
tutti_status tti_gpt2_make(tutti_tokenizer *t, const tti_gpt2_source *source);

/* Joins the tokens of one word in place, as GPT-2 does: all occurrences of the pair with the lowest
 * rank, from left to right, until no pair has one.  Returns how many are left; 0: out of memory.
 * Short words take a simple way, long ones (or by_heap) one whose time is n log n. */
size_t tti_gpt2_join(const tutti_tokenizer *t, int32_t *token, size_t n, bool by_heap);

#endif /* TTI_DATA_TOKENIZER_GPT2_H */

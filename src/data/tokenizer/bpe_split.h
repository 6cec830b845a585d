/* bpe_split.h - divides text into words as GPT-2 does before it merges bytes, by the pattern
 *
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
#ifndef TTI_DATA_BPE_SPLIT_H
#define TTI_DATA_BPE_SPLIT_H

#include <stddef.h>
#include <stdint.h>

typedef enum tti_char_class {
    TTI_CHAR_OTHER,
    TTI_CHAR_LETTER, /* \p{L} */
    TTI_CHAR_NUMBER, /* \p{N} */
    TTI_CHAR_SPACE   /* \s    */
} tti_char_class;

tti_char_class tti_classify(uint32_t character);

/* Bytes of the first word of n_bytes >= 1 of text; 0 if it does not begin with valid UTF-8. */
size_t tti_bpe_next(const char *text, size_t n_bytes);

#endif /* TTI_DATA_BPE_SPLIT_H */

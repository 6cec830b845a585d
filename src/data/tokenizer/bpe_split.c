/* bpe_split.c - GPT-2's pattern by hand.
 *
 * Every alternative of the pattern is a run of one class of characters, with at most one space
 * before it; only runs of spaces look one character ahead. */
#include "data/tokenizer/bpe_split.h"

#include <string.h>

#include "base/error.h"
#include "base/utf8.h"
#include "data/tokenizer/unicode_ranges.h"

static tti_char_class bisect(uint32_t c) {
    size_t low = 0, high = TTI_COUNT(tti_unicode_ranges);
    while (low < high) {
        size_t mid = (low + high) / 2;
        uint32_t last = tti_unicode_ranges[mid][1] & 0xFFFFFF;
        if (c < tti_unicode_ranges[mid][0])
            high = mid;
        else if (c > last)
            low = mid + 1;
        else
            return (tti_char_class)(tti_unicode_ranges[mid][1] >> 24);
    }
    return TTI_CHAR_OTHER;
}

tti_char_class tti_classify(uint32_t c) {
    if (c >= 0x80) return bisect(c);
    if ((c | 32) >= 'a' && (c | 32) <= 'z') return TTI_CHAR_LETTER;
    if (c >= '0' && c <= '9') return TTI_CHAR_NUMBER;
    return c == ' ' || (c >= 9 && c <= 13) ? TTI_CHAR_SPACE : TTI_CHAR_OTHER;
}

/* Bytes of the character at text, 0 at the end and where it is not UTF-8. */
static size_t next_char(const char *text, size_t n_bytes, tti_char_class *out) {
    if (n_bytes == 0) return 0;
    uint32_t c = (uint8_t)text[0];
    size_t n = c < 0x80 ? 1 : tti_utf8_decode(text, n_bytes, &c);
    if (n > 0) *out = tti_classify(c);
    return n;
}

/* The end of the run of a class that includes position at. */
static size_t run_end(const char *text, size_t n_bytes, size_t at, tti_char_class wanted) {
    tti_char_class class = wanted;
    for (size_t n; (n = next_char(text + at, n_bytes - at, &class)) > 0 && class == wanted;)
        at += n;
    return at;
}

static size_t contraction(const char *text, size_t n_bytes) {
    static const char *const ends[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < TTI_COUNT(ends); i++) {
        size_t n = strlen(ends[i]);
        if (n <= n_bytes && memcmp(text, ends[i], n) == 0) return n;
    }
    return 0;
}

/* A run of spaces leaves its last one to the word that follows, unless it is the only one. */
static size_t spaces(const char *text, size_t n_bytes) {
    size_t at = 0, last = 0;
    tti_char_class class = TTI_CHAR_OTHER;
    for (size_t n;
         (n = next_char(text + at, n_bytes - at, &class)) > 0 && class == TTI_CHAR_SPACE;) {
        last = at;
        at += n;
    }
    return at == n_bytes || last == 0 ? at : last;
}

size_t tti_bpe_next(const char *text, size_t n_bytes) {
    tti_char_class class = TTI_CHAR_OTHER, second = TTI_CHAR_SPACE;
    size_t n = next_char(text, n_bytes, &class);
    if (n == 0) return 0;
    if (text[0] == '\'') {
        size_t n_end = contraction(text, n_bytes);
        if (n_end > 0) return n_end;
    }
    if (class != TTI_CHAR_SPACE) return run_end(text, n_bytes, n, class);
    size_t n_second = text[0] == ' ' ? next_char(text + 1, n_bytes - 1, &second) : 0;
    if (n_second > 0 && second != TTI_CHAR_SPACE)
        return run_end(text, n_bytes, 1 + n_second, second);
    return spaces(text, n_bytes);
}

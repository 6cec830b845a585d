/* utf8.h - reading one character of UTF-8, strictly: no overlong forms, no surrogates. */
#ifndef TTI_BASE_UTF8_H
#define TTI_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at text (1 .. 4), its number in *out; 0 if the first of the n_bytes do
 * not start a valid character. */
size_t tti_utf8_decode(const char *text, size_t n_bytes, uint32_t *out);

/* The first byte of text that is not valid UTF-8; n_bytes if all of it is. */
size_t tti_utf8_check(const char *text, size_t n_bytes);

/* "UTF-16" or "UTF-32" if text begins with its byte order mark, else NULL. */
const char *tti_utf8_other_mark(const char *text, size_t n_bytes);

/* Whether a character may appear in a name, a path or a message: neither a control character, nor a
 * line break of any kind, nor one that YAML forbids. */
bool tti_utf8_printable(uint32_t character);

/* Whether text is valid UTF-8 of such characters only. */
bool tti_utf8_is_line(const char *text);

#endif /* TTI_BASE_UTF8_H */

/* str.h - a growing string for building text.  Running out of memory is sticky: the text stays
 * unchanged and failed is set. */
#ifndef TTI_BASE_STR_H
#define TTI_BASE_STR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct tti_str {
    char *text;     /* owned; NUL-terminated once anything was added; NULL: empty */
    size_t n_bytes; /* without the NUL */
    size_t capacity;
    bool failed;
} tti_str;

void tti_str_add(tti_str *str, const char *text);
void tti_str_add_bytes(tti_str *str, const void *bytes, size_t n_bytes);
void tti_str_printf(tti_str *str, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The text, "" when empty.  Borrowed until the next call on str. */
const char *tti_str_text(const tti_str *str);

/* Back to empty, keeping the memory. */
void tti_str_clear(tti_str *str);
void tti_str_free(tti_str *str);

#endif /* TTI_BASE_STR_H */

/* str.c - a growing string. */
#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(tti_str *str, size_t n_more) {
    size_t need = str->n_bytes + n_more + 1;
    if (str->failed || need < n_more) return false;
    if (need <= str->capacity) return true;
    size_t capacity = need < 64 ? 64 : need + need / 2;
    char *text = realloc(str->text, capacity);
    if (!text) {
        str->failed = true;
        return false;
    }
    str->text = text;
    str->capacity = capacity;
    return true;
}

void tti_str_add_bytes(tti_str *str, const void *bytes, size_t n_bytes) {
    if (!reserve(str, n_bytes)) return;
    if (n_bytes > 0) memcpy(str->text + str->n_bytes, bytes, n_bytes);
    str->n_bytes += n_bytes;
    str->text[str->n_bytes] = '\0';
}

void tti_str_add(tti_str *str, const char *text) { tti_str_add_bytes(str, text, strlen(text)); }

void tti_str_printf(tti_str *str, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    if (n >= 0 && reserve(str, (size_t)n)) {
        vsnprintf(str->text + str->n_bytes, (size_t)n + 1, format, again);
        str->n_bytes += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

const char *tti_str_text(const tti_str *str) { return str->text ? str->text : ""; }

void tti_str_clear(tti_str *str) {
    str->n_bytes = 0;
    if (str->text) str->text[0] = '\0';
}

void tti_str_free(tti_str *str) {
    free(str->text);
    *str = (tti_str){0};
}

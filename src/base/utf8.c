/* utf8.c - a strict UTF-8 reader.  The table gives, by the first byte, how many bytes follow and
 * the smallest character that needs so many; smaller ones are invalid overlong forms (RFC 3629,
 * section 10). */
#include "base/utf8.h"

#include <string.h>

static const struct {
    uint8_t mask, lead; /* first byte & mask == lead */
    uint32_t smallest;
} forms[] = {{0x80, 0x00, 0}, {0xE0, 0xC0, 0x80}, {0xF0, 0xE0, 0x800}, {0xF8, 0xF0, 0x10000}};

size_t tti_utf8_decode(const char *text, size_t n_bytes, uint32_t *out) {
    if (n_bytes == 0) return 0;
    uint8_t first = (uint8_t)text[0];
    for (size_t n_more = 0; n_more < 4; n_more++) {
        if ((first & forms[n_more].mask) != forms[n_more].lead) continue;
        if (n_bytes < n_more + 1) return 0;
        uint32_t c = first & (uint8_t)~forms[n_more].mask;
        for (size_t i = 1; i <= n_more; i++) {
            uint8_t byte = (uint8_t)text[i];
            if ((byte & 0xC0) != 0x80) return 0;
            c = c << 6 | (byte & 0x3F);
        }
        bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        if (c < forms[n_more].smallest || c > 0x10FFFF || surrogate) return 0;
        *out = c;
        return n_more + 1;
    }
    return 0;
}

size_t tti_utf8_check(const char *text, size_t n_bytes) {
    size_t at = 0;
    while (at < n_bytes) {
        uint32_t c;
        size_t n = tti_utf8_decode(text + at, n_bytes - at, &c);
        if (n == 0) return at;
        at += n;
    }
    return n_bytes;
}

const char *tti_utf8_other_mark(const char *text, size_t n_bytes) {
    bool little = n_bytes >= 2 && memcmp(text, "\xFF\xFE", 2) == 0;
    if (little && n_bytes >= 4 && text[2] == 0 && text[3] == 0) return "UTF-32";
    if (n_bytes >= 4 && memcmp(text, "\0\0\xFE\xFF", 4) == 0) return "UTF-32";
    return little || (n_bytes >= 2 && memcmp(text, "\xFE\xFF", 2) == 0) ? "UTF-16" : NULL;
}

bool tti_utf8_printable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7F && c <= 0x9F)) return false;
    if (c == 0x2028 || c == 0x2029 || c == 0xFEFF) return false;
    return c != 0xFFFE && c != 0xFFFF;
}

bool tti_utf8_is_line(const char *text) {
    size_t n_bytes = strlen(text), at = 0;
    while (at < n_bytes) {
        uint32_t c;
        size_t n = tti_utf8_decode(text + at, n_bytes - at, &c);
        if (n == 0 || !tti_utf8_printable(c)) return false;
        at += n;
    }
    return true;
}

/* json_crc.c - prints and compares the first line of a JSON file with a checksum.
 *
 * The bytes around the eight digits are compared first, then the digits, so the message can say
 * whether the file is of another kind or damaged.  The digits of a damaged file may be any bytes;
 * the message prints them only as far as they are UTF-8. */
#include "base/json_crc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/utf8.h"

enum { N_DIGITS = 8, MAX_LINE = 64 };

/* Returns the number of bytes of the line. */
static size_t print_line(char line[MAX_LINE], const char *key, uint32_t crc) {
    int n = snprintf(line, MAX_LINE, "{\"%s\":\"%08" PRIx32 "\",\n", key, crc);
    TTI_ASSERT(n > 0 && n < MAX_LINE);
    return (size_t)n;
}

tutti_status tti_json_crc_print(const char *key, const tti_str *body, tti_str *out) {
    if (!body->failed) { /* the first line replaces the "{" of body */
        char line[MAX_LINE];
        print_line(line, key, tti_crc32c(0, body->text + 1, body->n_bytes - 1));
        tti_str_add(out, line);
        tti_str_add_bytes(out, body->text + 1, body->n_bytes - 1);
    }
    return body->failed || out->failed ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory", key)
                                       : TUTTI_OK;
}

tutti_status tti_json_crc_check(const char *what, const char *key, const char *text,
                                size_t n_bytes) {
    char line[MAX_LINE];
    size_t n_line = print_line(line, key, 0);
    size_t digits_at = strlen(key) + 5; /* {"KEY":" */
    size_t tail_at = digits_at + N_DIGITS;
    if (n_bytes <= n_line || memcmp(text, line, digits_at) != 0 ||
        memcmp(text + tail_at, line + tail_at, n_line - tail_at) != 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: damaged: its first line is not {\"%s\":\"...\",",
                        what, key);
    uint32_t crc = tti_crc32c(0, text + n_line, n_bytes - n_line);
    print_line(line, key, crc);
    if (memcmp(text, line, n_line) == 0) return TUTTI_OK;
    const char *digits = text + digits_at;
    return tti_fail(TUTTI_E_CHECKPOINT,
                    "%s: damaged: its contents have the checksum %08" PRIx32
                    ", its first line says %.*s",
                    what, crc, (int)tti_utf8_check(digits, N_DIGITS), digits);
}

/* json.c - a JSON writer into a growing string.
 * Two bit masks remember, for each open level, whether it is an array and whether a comma is due;
 * that is all the state a writer needs. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/utf8.h"

tti_json tti_json_begin(tti_str *out, int indent) {
    return (tti_json){.out = out, .indent = indent};
}

static void add_quoted(tti_str *out, const char *text) {
    size_t n_bytes = strlen(text), at = 0;
    tti_str_add(out, "\"");
    while (at < n_bytes) {
        uint32_t c;
        size_t n = tti_utf8_decode(text + at, n_bytes - at, &c);
        if (n == 0) {
            tti_str_add(out, "\xEF\xBF\xBD");
            n = 1;
        } else if (c == '"' || c == '\\') {
            tti_str_printf(out, "\\%c", (int)c);
        } else if (c == '\n') {
            tti_str_add(out, "\\n");
        } else if (c < 0x20 || c == 0x7F) {
            tti_str_printf(out, "\\u%04x", c);
        } else {
            tti_str_add_bytes(out, text + at, n);
        }
        at += n;
    }
    tti_str_add(out, "\"");
}

static void new_line(const tti_json *j) {
    if (j->indent > 0) tti_str_printf(j->out, "\n%*s", j->indent * j->depth, "");
}

/* The comma, the line and the key before a value. */
static void before_value(tti_json *j, const char *key) {
    if (j->depth == 0) {
        TTI_ASSERT(!key);
        return;
    }
    uint32_t level = 1u << (j->depth - 1);
    TTI_ASSERT(!key == ((j->arrays & level) != 0));
    if (j->filled & level) tti_str_add(j->out, ",");
    j->filled |= level;
    new_line(j);
    if (!key) return;
    add_quoted(j->out, key);
    tti_str_add(j->out, j->indent > 0 ? ": " : ":");
}

static void open_level(tti_json *j, const char *key, bool array) {
    before_value(j, key);
    TTI_ASSERT(j->depth < TTI_JSON_MAX_DEPTH);
    uint32_t level = 1u << j->depth++;
    j->filled &= ~level;
    j->arrays = array ? j->arrays | level : j->arrays & ~level;
    tti_str_add(j->out, array ? "[" : "{");
}

void tti_json_object(tti_json *j, const char *key) { open_level(j, key, false); }

void tti_json_array(tti_json *j, const char *key) { open_level(j, key, true); }

void tti_json_end(tti_json *j) {
    TTI_ASSERT(j->depth > 0);
    uint32_t level = 1u << --j->depth;
    if (j->filled & level) new_line(j);
    tti_str_add(j->out, j->arrays & level ? "]" : "}");
}

void tti_json_text(tti_json *j, const char *key, const char *text) {
    before_value(j, key);
    add_quoted(j->out, text);
}

void tti_json_int(tti_json *j, const char *key, int64_t x) {
    before_value(j, key);
    tti_str_printf(j->out, "%" PRId64, x);
}

void tti_json_bool(tti_json *j, const char *key, bool x) {
    before_value(j, key);
    tti_str_add(j->out, x ? "true" : "false");
}

void tti_json_null(tti_json *j, const char *key) {
    before_value(j, key);
    tti_str_add(j->out, "null");
}

void tti_json_double(tti_json *j, const char *key, double x) {
    char text[TTI_NUMBER_TEXT];
    before_value(j, key);
    tti_str_add(j->out, isfinite(x) ? tti_format_double(text, x) : "null");
}

void tti_json_float(tti_json *j, const char *key, float x) {
    char text[TTI_NUMBER_TEXT];
    before_value(j, key);
    tti_str_add(j->out, isfinite(x) ? tti_format_float(text, x) : "null");
}

void tti_json_hex64(tti_json *j, const char *key, uint64_t x) {
    before_value(j, key);
    tti_str_printf(j->out, "\"%016" PRIx64 "\"", x);
}

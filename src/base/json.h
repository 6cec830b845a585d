/* json.h - writes JSON: metrics lines, manifests, reports.
 *
 *     tti_json j = tti_json_begin(&str, 0);
 *     tti_json_object(&j, NULL);
 *     tti_json_text(&j, "event", "end");
 *     tti_json_double(&j, "accuracy", 0.991);
 *     tti_json_end(&j);                          {"event":"end","accuracy":0.991}
 *
 * key is the name inside an object and NULL inside an array or at the top.  Text that is not UTF-8
 * gets U+FFFD in place of each bad byte, so the result is always valid.  Out of memory is sticky in
 * the string.  A call that does not fit where it stands (a missing key) is a bug and asserted. */
#ifndef TTI_BASE_JSON_H
#define TTI_BASE_JSON_H

#include <stdint.h>

#include "base/str.h"

enum { TTI_JSON_MAX_DEPTH = 32 };

typedef struct tti_json {
    tti_str *out;    /* borrowed */
    int indent;      /* spaces per level; 0: all on one line */
    int depth;       /* open objects and arrays */
    uint32_t arrays; /* bit d: the level d+1 is an array */
    uint32_t filled; /* bit d: the level d+1 has a value already */
} tti_json;

/* A writer at the end of out. */
tti_json tti_json_begin(tti_str *out, int indent);

void tti_json_object(tti_json *j, const char *key);
void tti_json_array(tti_json *j, const char *key);

/* Closes the innermost object or array. */
void tti_json_end(tti_json *j);

void tti_json_text(tti_json *j, const char *key, const char *text);
void tti_json_int(tti_json *j, const char *key, int64_t x);
void tti_json_bool(tti_json *j, const char *key, bool x);
void tti_json_null(tti_json *j, const char *key);

/* Numbers read back to the same value; NaN and infinities become null. */
void tti_json_double(tti_json *j, const char *key, double x);
void tti_json_float(tti_json *j, const char *key, float x);

/* 64 bits as 16 hex digits in quotes: hashes, which a double would round. */
void tti_json_hex64(tti_json *j, const char *key, uint64_t x);

#endif /* TTI_BASE_JSON_H */

/* json_read.c - the only file that parses JSON text; jansson does it, within limits set here.
 *
 * The one idea to know: jansson recurses once per level, so the depth is counted before jansson
 * parses the text. */
#include "base/json_read.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "base/utf8.h"

enum { MAX_DEPTH = 64, MAX_NUMBER = 1024 };
#define MAX_DIM ((int64_t)1 << 40)
#define MAX_TENSOR_BYTES ((uint64_t)1 << 62)

/* Counts brackets outside of strings; jansson rejects text that is not JSON. */
static bool too_deep(const char *text, size_t n_bytes) {
    bool in_string = false;
    int depth = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (c == '"')
            in_string = !in_string;
        else if (in_string && c == '\\')
            i++; /* whatever is escaped, it does not end the string */
        else if (!in_string && (c == '{' || c == '['))
            depth++;
        else if (!in_string && (c == '}' || c == ']'))
            depth--;
        if (depth > MAX_DEPTH) return true;
    }
    return false;
}

/* Only a number with an exponent, or with more digits than a double has, can be so small. */
static bool is_tiny(const char *number, size_t n_bytes) {
    char copy[MAX_NUMBER];
    double x;
    bool has_exponent = memchr(number, 'e', n_bytes) || memchr(number, 'E', n_bytes);
    if (n_bytes >= sizeof copy || (!has_exponent && n_bytes < 300)) return false;
    memcpy(copy, number, n_bytes);
    copy[n_bytes] = '\0';
    return tti_parse_double(copy, &x) == TTI_NUMBER_TINY;
}

tutti_status tti_json_check_numbers(const char *what, const char *text, size_t n_bytes) {
    bool in_string = false;
    for (size_t i = 0, n; i < n_bytes; i += n) {
        n = 1;
        if (text[i] == '"') in_string = !in_string;
        if (in_string && text[i] == '\\') n = 2;
        if (in_string || !strchr("-0123456789", text[i]) || !text[i]) continue;
        while (i + n < n_bytes && text[i + n] && strchr("0123456789+-.eE", text[i + n])) n++;
        if (is_tiny(text + i, n))
            return tti_fail(TUTTI_E_CHECKPOINT,
                            "%s: byte %zu: %.*s is too small and would be read as 0; write 0 if "
                            "that is meant",
                            what, i, (int)TTI_MIN(n, (size_t)32), text + i);
    }
    return TUTTI_OK;
}

tutti_status tti_json_parse(const char *what, const char *text, size_t n_bytes, json_t **out) {
    *out = NULL;
    if (too_deep(text, n_bytes))
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: nested more than %d deep", what, MAX_DEPTH);
    TTI_TRY(tti_json_check_numbers(what, text, n_bytes));
    json_error_t error;
    json_t *root = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
    if (!root)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: not valid JSON: byte %d: %s", what, error.position,
                        error.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: not a JSON object", what);
    }
    *out = root;
    return TUTTI_OK;
}

static const char *type_name(json_type type) {
    static const char *const names[] = {"an object", "a list",  "text",    "an integer",
                                        "a real",    "boolean", "boolean", "null"};
    return (unsigned)type < TTI_COUNT(names) ? names[type] : "something else";
}

tutti_status tti_json_member(const char *what, const json_t *object, const char *key,
                             json_type type, json_t **out) {
    json_t *member = json_object_get(object, key);
    if (!member) return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" is missing", what, key);
    if (json_typeof(member) != type)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" is %s, not %s", what, key,
                        type_name(json_typeof(member)), type_name(type));
    *out = member;
    return TUTTI_OK;
}

tutti_status tti_json_read_int(const char *what, const json_t *object, const char *key, int64_t min,
                               int64_t max, int64_t *out) {
    json_t *member;
    TTI_TRY(tti_json_member(what, object, key, JSON_INTEGER, &member));
    int64_t x = json_integer_value(member);
    if (x < min || x > max)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" is %lld, outside of %lld .. %lld", what,
                        key, (long long)x, (long long)min, (long long)max);
    *out = x;
    return TUTTI_OK;
}

tutti_status tti_json_read_text(const char *what, const json_t *object, const char *key,
                                const char **out) {
    json_t *member;
    TTI_TRY(tti_json_member(what, object, key, JSON_STRING, &member));
    *out = json_string_value(member);
    return TUTTI_OK;
}

tutti_status tti_json_read_hex(const char *what, const json_t *object, const char *key,
                               int n_digits, uint64_t *out) {
    static const char digits[] = "0123456789abcdef";
    const char *text;
    TTI_TRY(tti_json_read_text(what, object, key, &text));
    uint64_t x = 0;
    bool good = strlen(text) == (size_t)n_digits;
    for (int i = 0; good && i < n_digits; i++) {
        const char *digit = strchr(digits, text[i]);
        good = digit != NULL;
        if (good) x = x << 4 | (uint64_t)(digit - digits);
    }
    if (!good)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: \"%s\" is not %d lower-case hex digits", what, key,
                        n_digits);
    *out = x;
    return TUTTI_OK;
}

/* In the order of tutti_dtype. */
static const char *const dtype_names[] = {"F32", "F64", "F16", "BF16", "I32", "I64", "U8"};
_Static_assert(TTI_COUNT(dtype_names) == TUTTI_N_DTYPES, "a name for every dtype");

const char *tti_safetensors_dtype(tutti_dtype dtype) {
    return (unsigned)dtype < TUTTI_N_DTYPES ? dtype_names[dtype] : "?";
}

static tutti_status read_dtype(const char *what, const json_t *object, tutti_dtype *out) {
    const char *name;
    TTI_TRY(tti_json_read_text(what, object, "dtype", &name));
    for (int i = 0; i < TUTTI_N_DTYPES; i++)
        if (strcmp(name, dtype_names[i]) == 0) {
            *out = (tutti_dtype)i;
            return TUTTI_OK;
        }
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: its dtype is not one of F32 F64 F16 BF16 I32 I64 U8",
                    what);
}

tutti_status tti_ckpt_type_bytes(const char *what, const tutti_type *type, uint64_t *n_bytes) {
    const tutti_shape *shape = &type->shape;
    uint64_t n = tutti_dtype_bytes(type->dtype);
    if (n == 0) return tti_fail(TUTTI_E_CHECKPOINT, "%s: no such dtype", what);
    if (shape->n_dims < 0 || shape->n_dims > TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: %d dimensions, at most %d are allowed", what,
                        shape->n_dims, TUTTI_MAX_DIMS);
    bool empty = false, overflow = false;
    for (int i = 0; i < shape->n_dims; i++) {
        int64_t x = shape->dim[i];
        if (x < 0 || x > MAX_DIM)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: dimension %d is not in 0 .. 2^40", what, i);
        empty |= x == 0;
        overflow |= __builtin_mul_overflow(n, (uint64_t)TTI_MAX(x, 1), &n);
    }
    if (overflow || n > MAX_TENSOR_BYTES) /* also of an empty tensor: its other dimensions count */
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: the shape has too many elements", what);
    *n_bytes = empty ? 0 : n;
    return TUTTI_OK;
}

tutti_status tti_json_read_shape(const char *what, const json_t *object, tutti_dtype dtype,
                                 tutti_type *out, uint64_t *n_bytes) {
    tutti_type type = {.dtype = dtype};
    json_t *shape;
    TTI_TRY(tti_json_member(what, object, "shape", JSON_ARRAY, &shape));
    size_t n_dims = json_array_size(shape);
    type.shape.n_dims = (int)TTI_MIN(n_dims, TUTTI_MAX_DIMS + 1);
    for (size_t i = 0; i < TTI_MIN(n_dims, TUTTI_MAX_DIMS); i++) {
        const json_t *dim = json_array_get(shape, i);
        type.shape.dim[i] = json_is_integer(dim) ? json_integer_value(dim) : -1;
    }
    TTI_TRY(tti_ckpt_type_bytes(what, &type, n_bytes));
    *out = type;
    return TUTTI_OK;
}

tutti_status tti_json_read_type(const char *what, const json_t *object, tutti_type *out,
                                uint64_t *n_bytes) {
    tutti_dtype dtype;
    TTI_TRY(read_dtype(what, object, &dtype));
    return tti_json_read_shape(what, object, dtype, out, n_bytes);
}

tutti_status tti_ckpt_check_name(const char *what, const char *name) {
    size_t n_bytes = strnlen(name, TTI_CKPT_MAX_NAME + 1);
    if (n_bytes == 0 || n_bytes > TTI_CKPT_MAX_NAME)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: a tensor's name has %s bytes, 1 .. %d are allowed",
                        what, n_bytes ? "too many" : "no", TTI_CKPT_MAX_NAME);
    bool good = tti_utf8_check(name, n_bytes) == n_bytes;
    for (size_t i = 0; i < n_bytes; i++) good &= (unsigned char)name[i] >= 32 && name[i] != 127;
    if (!good)
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: a tensor's name has control characters or is not UTF-8", what);
    return TUTTI_OK;
}

/* type.c - shapes and types: checks, comparison, text. */
#include <stdio.h>

#include "base/dtype.h"
#include "ir/graph.h"

/* Far above any real tensor, far below where products of bytes overflow. */
static const int64_t max_elems = (int64_t)1 << 40;

tutti_status tti_shape_check(const tutti_shape *shape) {
    if (shape->n_dims < 0 || shape->n_dims > TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_INVALID, "shape: %d dimensions, 0 to %d are allowed", shape->n_dims,
                        TUTTI_MAX_DIMS);
    int64_t n = 1;
    bool empty = false;
    for (int i = 0; i < shape->n_dims; i++) {
        int64_t d = shape->dim[i];
        if (d < 0) return tti_fail(TUTTI_E_INVALID, "shape: dimension %d is negative", i);
        if (d == 0) empty = true;
        int64_t factor = d > 0 ? d : 1;
        if (n > max_elems / factor) return tti_fail(TUTTI_E_INVALID, "shape: over 2^40 elements");
        n *= factor;
    }
    (void)empty; /* an empty shape must be sane in its other dimensions, too */
    return TUTTI_OK;
}

bool tti_shape_equal(const tutti_shape *a, const tutti_shape *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int i = 0; i < a->n_dims; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

void tti_shape_print(tti_str *str, const tutti_shape *shape) {
    tti_str_add(str, "[");
    for (int i = 0; i < shape->n_dims; i++)
        tti_str_printf(str, "%s%lld", i ? "," : "", (long long)shape->dim[i]);
    tti_str_add(str, "]");
}

void tti_type_print(tti_str *str, const tutti_type *type) {
    tti_str_add(str, tutti_dtype_text(type->dtype));
    tti_shape_print(str, &type->shape);
}

const char *tti_type_text(const tutti_type *type, char *buf, size_t n_bytes) {
    tti_str str = {0};
    tti_type_print(&str, type);
    snprintf(buf, n_bytes, "%s", tti_str_text(&str));
    tti_str_free(&str);
    return buf;
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A non-negative integer of at most 15 digits; moves *text past it. */
static bool parse_dim(const char **text, int64_t *out) {
    const char *p = *text;
    int64_t x = 0;
    for (; is_digit(*p); p++) {
        if (p - *text >= 15) return false;
        x = x * 10 + (*p - '0');
    }
    if (p == *text) return false;
    *text = p;
    *out = x;
    return true;
}

tutti_status tti_type_parse(const char **text, tutti_type *out) {
    const char *p = *text, *start = p;
    while ((*p >= 'a' && *p <= 'z') || is_digit(*p)) p++;
    tutti_type type = {0};
    if (!tti_dtype_find(start, (size_t)(p - start), &type.dtype))
        return tti_fail(TUTTI_E_INVALID, "unknown dtype '%.*s'", (int)(p - start), start);
    if (*p++ != '[') return tti_fail(TUTTI_E_INVALID, "expected '[' after the dtype");
    while (*p != ']') {
        if (type.shape.n_dims == TUTTI_MAX_DIMS)
            return tti_fail(TUTTI_E_INVALID, "more than %d dimensions", TUTTI_MAX_DIMS);
        if (!parse_dim(&p, &type.shape.dim[type.shape.n_dims++]))
            return tti_fail(TUTTI_E_INVALID, "expected a dimension, a number of 1 to 15 digits");
        if (*p == ',')
            p++;
        else if (*p != ']')
            return tti_fail(TUTTI_E_INVALID, "expected ',' or ']' in a shape");
    }
    TTI_TRY(tti_shape_check(&type.shape));
    *text = p + 1;
    *out = type;
    return TUTTI_OK;
}

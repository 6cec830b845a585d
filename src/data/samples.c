/* samples.c - checks, copies and reads samples in the memory of the program. */
#include "data/samples.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/fields.h"

enum { ALIGN = 64 };

/* ---- checks ---- */

static tutti_status check_name(const tutti_samples *s, int i) {
    const char *name = s->fields[i].name;
    if (!name || !name[0] || strlen(name) >= TTI_MAX_FIELD_NAME || strchr(name, ','))
        return tti_fail(TUTTI_E_INVALID,
                        "samples: fields[%d] needs a name of 1 .. %d bytes without commas", i,
                        TTI_MAX_FIELD_NAME - 1);
    for (int k = 0; k < i; k++)
        if (strcmp(s->fields[k].name, name) == 0)
            return tti_fail(TUTTI_E_INVALID, "samples: there are two fields '%s'", name);
    return TUTTI_OK;
}

static tutti_status check_type(const tutti_samples *s, int i) {
    const tutti_field *f = &s->fields[i];
    size_t n_bytes = tutti_dtype_bytes(f->type.dtype);
    if (n_bytes == 0 || f->type.dtype == TUTTI_BF16)
        return tti_fail(TUTTI_E_INVALID, "samples: field '%s' has dtype %s", f->name,
                        tutti_dtype_text(f->type.dtype));
    if (f->type.shape.n_dims < 0 || f->type.shape.n_dims >= TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_INVALID, "samples: field '%s' has %d dimensions, not 0 .. %d",
                        f->name, f->type.shape.n_dims, TUTTI_MAX_DIMS - 1);
    for (int k = 0; k < f->type.shape.n_dims; k++)
        if (f->type.shape.dim[k] < 1 ||
            __builtin_mul_overflow(n_bytes, (size_t)f->type.shape.dim[k], &n_bytes) ||
            n_bytes > (size_t)1 << 28)
            return tti_fail(TUTTI_E_INVALID, "samples: field '%s': dimension %d is %" PRId64,
                            f->name, k, f->type.shape.dim[k]);
    return TUTTI_OK;
}

static tutti_status check_data(const tutti_samples *s, int i) {
    const tutti_field *f = &s->fields[i];
    size_t n_bytes;
    if (!s->data[i])
        return tti_fail(TUTTI_E_INVALID, "samples: the data of field '%s' is NULL", f->name);
    if ((uintptr_t)s->data[i] % tutti_dtype_bytes(f->type.dtype) != 0)
        return tti_fail(TUTTI_E_INVALID, "samples: the data of field '%s' is not aligned", f->name);
    if (__builtin_mul_overflow(tti_field_bytes(f), (size_t)s->n_samples, &n_bytes) ||
        n_bytes > INT64_MAX)
        return tti_fail(TUTTI_E_INVALID, "samples: n_samples is %" PRId64, s->n_samples);
    return TUTTI_OK;
}

static tutti_status check(const tutti_samples *s) {
    if (!s) return tti_fail(TUTTI_E_INVALID, "samples: NULL");
    if (s->n_samples < 1)
        return tti_fail(TUTTI_E_INVALID, "samples: n_samples is %" PRId64, s->n_samples);
    if (!s->fields || s->n_fields < 1 || s->n_fields > TTI_MAX_FIELDS)
        return tti_fail(TUTTI_E_INVALID, "samples: n_fields is %d, not 1 .. %d%s", s->n_fields,
                        TTI_MAX_FIELDS, s->fields ? "" : ", and fields is NULL");
    if (!s->data == !s->get)
        return tti_fail(TUTTI_E_INVALID, "samples: give data or get%s",
                        s->data ? ", not both" : "");
    for (int i = 0; i < s->n_fields; i++) {
        TTI_TRY(check_name(s, i));
        TTI_TRY(check_type(s, i));
        if (s->data) TTI_TRY(check_data(s, i));
    }
    return TUTTI_OK;
}

/* ---- copies ---- */

/* One block: the struct, its lists, its names. */
tutti_status tti_samples_copy(const tutti_samples *s, tutti_samples **out) {
    *out = NULL;
    TTI_TRY(check(s));
    size_t n = (size_t)s->n_fields, n_names = 0;
    for (size_t i = 0; i < n; i++) n_names += strlen(s->fields[i].name) + 1;
    tutti_samples *copy =
        calloc(1, sizeof *copy + n * (sizeof *s->fields + sizeof *s->data) + n_names);
    if (!copy) return tti_fail(TUTTI_E_NOMEM, "samples: out of memory");
    tutti_field *fields = (tutti_field *)(copy + 1);
    const void **data = (const void **)(fields + n);
    char *name = (char *)(data + n);
    *copy = *s;
    copy->fields = fields;
    copy->data = s->data ? data : NULL;
    for (size_t i = 0; i < n; i++) {
        fields[i] = (tutti_field){name, s->fields[i].type};
        if (s->data) data[i] = s->data[i];
        name = stpcpy(name, s->fields[i].name) + 1;
    }
    *out = copy;
    return TUTTI_OK;
}

void tti_samples_free(tutti_samples *s) { free(s); }

/* ---- reading ---- */

size_t tti_samples_bytes(const tutti_samples *s) {
    return tti_field_offset(s->fields, s->n_fields, 1);
}

tutti_status tti_samples_get(const tutti_samples *s, int64_t index, void *memory, void **fields) {
    for (int i = 0; i < s->n_fields; i++)
        fields[i] = (char *)memory + tti_field_offset(s->fields, i, 1);
    int code = s->get(s->user, index, fields);
    if (code == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA, "samples: get returned %d for sample %" PRId64, code, index);
}

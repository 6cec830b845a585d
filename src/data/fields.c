/* fields.c - where the fields of samples lie. */
#include "data/fields.h"

#include <string.h>

size_t tti_field_bytes(const tutti_field *field) {
    return (size_t)tutti_shape_n_elems(&field->type.shape) * tutti_dtype_bytes(field->type.dtype);
}

size_t tti_field_offset(const tutti_field *fields, int i, int64_t rows) {
    size_t at = 0;
    for (int k = 0; k < i; k++) {
        size_t n_bytes = tti_field_bytes(&fields[k]) * (size_t)rows;
        at += (n_bytes + TTI_FIELD_ALIGN - 1) / TTI_FIELD_ALIGN * TTI_FIELD_ALIGN;
    }
    return at;
}

size_t tti_fields_bytes(const tutti_field *fields, int n_fields) {
    size_t n_bytes = 0;
    for (int i = 0; i < n_fields; i++) n_bytes += tti_field_bytes(&fields[i]);
    return n_bytes;
}

void tti_fields_put(const tutti_field *fields, int n_fields, const void *sample, int64_t row,
                    int64_t rows, void *shard) {
    const char *from = sample;
    for (int i = 0; i < n_fields; i++) {
        size_t n_bytes = tti_field_bytes(&fields[i]);
        char *block = (char *)shard + tti_field_offset(fields, i, rows);
        memcpy(block + (size_t)row * n_bytes, from, n_bytes);
        from += n_bytes;
    }
}

int tti_field_find(const tutti_field *fields, int n_fields, const char *name) {
    for (int i = 0; i < n_fields; i++)
        if (strcmp(fields[i].name, name) == 0) return i;
    return -1;
}

/* fields.c - where the fields of samples lie. */
#include "data/fields.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "ir/graph.h"

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

int tti_field_find_target(const tutti_field *fields, int n_fields, const char *name) {
    static const char *const usual[] = {"y", "label", "labels", "target", "targets", "mask"};
    int found = name[0] ? tti_field_find(fields, n_fields, name) : -1;
    for (size_t i = 0; !name[0] && found < 0 && i < TTI_COUNT(usual); i++)
        found = tti_field_find(fields, n_fields, usual[i]);
    return found;
}

/* ---- for people ---- */

typedef struct field_range {
    double least, most;
} field_range;

/* Counts the elements of each class in a field of whole numbers. */
static void count_classes(const tutti_field *field, const char *from, int64_t n_classes,
                          int64_t *count) {
    for (int64_t k = 0; k < tutti_shape_n_elems(&field->type.shape); k++) {
        int32_t label;
        memcpy(&label, from + 4 * k, sizeof label);
        if (label >= 0 && label < n_classes) count[label]++;
    }
}

static void widen(const tutti_field *field, const char *from, field_range *range) {
    for (int64_t k = 0; k < tutti_shape_n_elems(&field->type.shape); k++) {
        int32_t whole;
        float x;
        memcpy(&whole, from + 4 * k, sizeof whole);
        memcpy(&x, from + 4 * k, sizeof x);
        double value = field->type.dtype == TUTTI_F32 ? (double)x : (double)whole;
        range->least = fmin(range->least, value), range->most = fmax(range->most, value);
    }
}

/* Returns the number of samples that cannot be read; why: what is wrong with the first of them. */
static int64_t find_ranges(const tutti_dataset *ds, char *sample, field_range *range,
                           int64_t *count, char why[512]) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    int64_t n_bad = 0;
    for (int64_t i = 0; i < info->n_samples; i++) {
        int32_t y = 0;
        bool bad = tutti_dataset_get(ds, i, sample, &y) != TUTTI_OK;
        if (bad && n_bad == 0) snprintf(why, 512, "%s", tutti_last_error());
        n_bad += bad;
        if (bad || y < 0) continue;
        const char *at = sample;
        for (int k = 0; k < info->n_fields; k++) {
            widen(&info->fields[k], at, &range[k]);
            if (info->fields[k].type.dtype == TUTTI_I32)
                count_classes(&info->fields[k], at, info->n_classes, count);
            at += tti_field_bytes(&info->fields[k]);
        }
    }
    tti_clear_error();
    return n_bad;
}

static void print_classes(const tutti_dataset *ds, const int64_t *count, tti_str *out) {
    int64_t n = tutti_dataset_get_info(ds)->n_classes, sum = 0;
    for (int64_t i = 0; i < n; i++) sum += count[i];
    if (n > 0) tti_str_add(out, "class             elements      share  name\n");
    for (int64_t i = 0; i < n; i++) {
        const char *name = tutti_dataset_class_name(ds, i);
        tti_str_printf(out, "%5lld  %19lld  %8.4f%%  %s\n", (long long)i, (long long)count[i],
                       100 * (double)count[i] / (double)TTI_MAX(sum, 1), name ? name : "");
    }
}

char *tti_fields_print(const tutti_dataset *ds) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    field_range range[TTI_MAX_FIELDS];
    char type[64], *sample = malloc(tti_fields_bytes(info->fields, info->n_fields));
    int64_t *count = calloc((size_t)info->n_classes + 1, sizeof *count);
    tti_str out = {0};
    if (!sample || !count) {
        free(sample);
        free(count);
        return NULL;
    }
    for (int k = 0; k < info->n_fields; k++) range[k] = (field_range){INFINITY, -INFINITY};
    char why[512];
    int64_t n_bad = find_ranges(ds, sample, range, count, why);
    free(sample);
    tti_str_add(&out, "field             type                  range\n");
    for (int k = 0; k < info->n_fields; k++)
        tti_str_printf(&out, "%-16s  %-20s  %g .. %g\n", info->fields[k].name,
                       tti_type_text(&info->fields[k].type, type, sizeof type), range[k].least,
                       range[k].most);
    print_classes(ds, count, &out);
    if (n_bad > 0)
        tti_str_printf(&out, "warning: %lld samples cannot be read, the first of them: %s\n",
                       (long long)n_bad, why);
    free(count);
    if (out.failed) tti_str_free(&out);
    return out.text;
}

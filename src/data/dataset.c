/* dataset.c - what every open data set can do, whatever its format: read samples, count classes,
 * name them, close. */
#include "data/dataset_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "data/target.h"
#include "ir/graph.h"

/* ---- pixels ---- */

static bool same_pixels(const tti_pixel_spec *a, const tti_pixel_spec *b) {
    bool same = a->n_channels == b->n_channels;
    for (int i = 0; i < a->n_channels && same; i++)
        same = a->mean[i] == b->mean[i] && a->std[i] == b->std[i];
    return same; /* how an image is cut may differ: packed ones are cut already */
}

tutti_status tti_source_set_pixels(const tutti_dataset_desc *desc, const tti_pixel_spec *pixels,
                                   tti_source *source) {
    const tti_pixel_spec *known = &source->spec->pixels;
    if (source->new_spec) source->new_spec->pixels = *pixels;
    if (same_pixels(known, pixels)) return TUTTI_OK;
    if (known->n_channels != pixels->n_channels)
        return tti_fail(TUTTI_E_DATA,
                        "data: samples of data.format=%s are %s, and the model was trained on %s",
                        desc->format, pixels->n_channels == 3 ? "colour images" : "grey pixels",
                        known->n_channels == 3   ? "colour images"
                        : known->n_channels == 1 ? "grey pixels"
                                                 : "samples that are not pixels");
    return tti_fail(
        TUTTI_E_INVALID,
        "%s: the model was trained with a mean of %g and a std of %g, but %g and %g are requested; "
        "leave these keys as in the run",
        known->n_channels == 3 ? "data.channel_mean, data.channel_std" : "data.mean, data.std",
        known->mean[0], known->std[0], pixels->mean[0], pixels->std[0]);
}

tutti_status tti_source_normalise(const tutti_dataset_desc *desc, tti_source *source) {
    const tti_pixel_spec pixels = {.n_channels = 1, .mean = {desc->mean}, .std = {desc->std}};
    TTI_TRY(tti_source_set_pixels(desc, &pixels, source));
    TTI_TRY(tti_normalise_create(desc->mean, desc->std, &source->stored.shape,
                                 &source->decode.step[0]));
    source->decode.n = 1;
    return TUTTI_OK;
}

/* ---- samples ---- */

tutti_status tti_as_data_error(tutti_status st) {
    return st == TUTTI_E_IO ? tti_fail(TUTTI_E_DATA, "%s", tutti_last_error()) : st;
}

tutti_status tti_dataset_fetch(const tutti_dataset *ds, int64_t index, tti_workspace *ws, void *x,
                               int32_t *y, const void **bytes, size_t *n_bytes) {
    const tti_source *source = &ds->source;
    if (source->read) {
        TTI_TRY(source->read(source, index, x, y));
        *bytes = x;
        *n_bytes = tti_type_bytes(&source->stored);
        return TUTTI_OK;
    }
    TTI_TRY(source->fetch(source, index, ws, y));
    *bytes = ws->file.bytes;
    *n_bytes = ws->file.n_bytes;
    return TUTTI_OK;
}

tutti_status tti_dataset_unpack(const tutti_dataset *ds, const tti_sample_key *key,
                                tti_workspace *ws, void *x) {
    return ds->source.read ? TUTTI_OK : ds->source.unpack(&ds->source, key, ws, x);
}

/* A disk that fails is not a damaged sample. */
bool tti_dataset_skips(const tutti_dataset *ds, tutti_status st) {
    return st == TUTTI_E_DATA && ds->skips;
}

tutti_status tti_dataset_read(const tutti_dataset *ds, const tti_sample_key *key, tti_workspace *ws,
                              void *x, int32_t *y, bool *skipped) {
    const tti_source *source = &ds->source;
    int64_t index = (int64_t)key->index;
    const void *bytes;
    size_t n_bytes;
    tutti_status st = tti_dataset_fetch(ds, index, ws, x, y, &bytes, &n_bytes);
    if (st == TUTTI_OK) st = tti_dataset_unpack(ds, key, ws, x);
    if (st == TUTTI_OK && source->masking.prob > 0)
        tti_masking_apply(&source->masking, key, tutti_shape_n_elems(&source->stored.shape), x, y);
    *skipped = tti_dataset_skips(ds, st);
    if (*skipped) tti_skip_list_add(ds->skips, index, tutti_last_error());
    return *skipped ? TUTTI_OK : tti_as_data_error(st);
}

tutti_status tti_dataset_expect_labels(tutti_dataset *ds, const tti_expected_labels *range) {
    tti_source *source = &ds->source;
    return source->expect_labels ? source->expect_labels(source, range, !ds->skips) : TUTTI_OK;
}

const tti_data_spec *tti_dataset_spec(const tutti_dataset *ds) { return ds->source.spec; }
const tutti_type *tti_dataset_stored(const tutti_dataset *ds) { return &ds->source.stored; }
const tti_chain *tti_dataset_decode(const tutti_dataset *ds) { return &ds->source.decode; }
size_t tti_dataset_late_bytes(const tutti_dataset *ds) { return ds->source.late_bytes; }
uint32_t tti_dataset_listing(const tutti_dataset *ds) { return ds->source.listing; }
void *tti_dataset_state(const tutti_dataset *ds) { return ds->source.state; }
bool tti_dataset_is_flat(const tutti_dataset *ds) { return ds->source.read != NULL; }
bool tti_dataset_is_drawn(const tutti_dataset *ds) { return ds->source.is_drawn; }
bool tti_dataset_is_fixed(const tutti_dataset *ds) { return ds->source.is_fixed && !ds->skips; }

const tutti_dataset_info *tutti_dataset_get_info(const tutti_dataset *ds) {
    return &ds->source.info;
}

static void mask_sample(const tutti_dataset *ds, void *x, int32_t *y) {
    memset(x, 0, tti_type_bytes(&ds->source.info.x));
    for (int64_t i = 0; i < tutti_shape_n_elems(&ds->source.info.y.shape); i++) y[i] = -1;
}

tutti_status tutti_dataset_get(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    if (index < 0 || index >= ds->source.info.n_samples)
        return tti_fail(TUTTI_E_INVALID, "data: sample %lld does not exist, there are %lld",
                        (long long)index, (long long)ds->source.info.n_samples);
    tutti_type type;
    size_t max_bytes;
    TTI_TRY(tti_chain_infer(&ds->source.decode, &ds->source.stored, &type, &max_bytes));
    char *memory = malloc(2 * max_bytes);
    if (!memory) return tti_fail(TUTTI_E_NOMEM, "data: out of memory for a sample");
    void *const scratch[2] = {memory, memory + max_bytes};
    const tti_sample_key key = {.index = (uint64_t)index};
    tti_workspace ws = {0};
    bool skipped;
    tutti_status st = tti_dataset_read(ds, &key, &ws, scratch[0], y, &skipped);
    if (st == TUTTI_OK && skipped)
        mask_sample(ds, x, y);
    else if (st == TUTTI_OK)
        tti_chain_apply(&ds->source.decode, &key, scratch, tti_type_bytes(&ds->source.stored), x);
    tti_workspace_free(&ws);
    free(memory);
    return st;
}

int64_t tutti_dataset_n_skipped(const tutti_dataset *ds) {
    return ds->skips ? tti_skip_list_count(ds->skips) : 0;
}

const char *tutti_dataset_skip_reason(const tutti_dataset *ds, int64_t i) {
    return ds->skips ? tti_skip_list_text(ds->skips, i) : NULL;
}

/* Adds (value - mean)^power of each target over the samples that have labels; *n counts them. */
static tutti_status add_powers(const tutti_dataset *ds, const double *mean, int power, int32_t *y,
                               double *sums, int64_t *n) {
    *n = 0;
    for (int64_t i = 0; i < ds->source.info.n_samples; i++) {
        tutti_status st = ds->source.label(&ds->source, i, y);
        if (st == TUTTI_E_DATA && ds->skips) continue;
        TTI_TRY(st);
        for (int64_t k = 0; k < ds->source.spec->target.n; k++) {
            double x = tti_target_decode(y[k]) - (mean ? mean[k] : 0);
            sums[k] += power == 2 ? x * x : x;
        }
        ++*n;
    }
    return TUTTI_OK;
}

tutti_status tti_target_r2(const tutti_dataset *ds, const double *squared_errors, double *out) {
    int64_t n, n_targets = ds->source.spec->target.n;
    double *mean = calloc((size_t)n_targets, sizeof *mean);
    double *deviations = calloc((size_t)n_targets, sizeof *deviations);
    int32_t *y = calloc((size_t)n_targets, sizeof *y);
    tutti_status st = mean && deviations && y ? add_powers(ds, NULL, 1, y, mean, &n)
                                              : tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    for (int64_t k = 0; st == TUTTI_OK && k < n_targets; k++) mean[k] /= (double)TTI_MAX(n, 1);
    if (st == TUTTI_OK) st = add_powers(ds, mean, 2, y, deviations, &n);
    for (int64_t k = 0; st == TUTTI_OK && k < n_targets; k++)
        out[k] = deviations[k] > 0 ? 1 - squared_errors[k] / deviations[k] : NAN;
    free(mean);
    free(deviations);
    free(y);
    return st;
}

/* Any sample of a format with read; x is memory for one. */
static tutti_status read_label(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    if (ds->source.label) return ds->source.label(&ds->source, index, y);
    tti_workspace ws = {0};
    const void *bytes;
    size_t n_bytes;
    tutti_status st = tti_dataset_fetch(ds, index, &ws, x, y, &bytes, &n_bytes);
    tti_workspace_free(&ws);
    return st;
}

tutti_status tutti_dataset_count_classes(const tutti_dataset *ds, int64_t *counts) {
    const tutti_dataset_info *info = &ds->source.info;
    if (info->is_value || info->y.shape.n_dims > 0 || info->n_classes < 1 || info->n_fields > 0)
        return tti_fail(TUTTI_E_UNSUPPORTED, "data: the samples have no classes");
    void *x = malloc(tti_type_bytes(&ds->source.stored) + 1);
    if (!x) return tti_fail(TUTTI_E_NOMEM, "data: out of memory for a sample");
    memset(counts, 0, (size_t)ds->source.info.n_classes * sizeof *counts);
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < ds->source.info.n_samples; i++) {
        int32_t y = -1;
        st = read_label(ds, i, x, &y);
        if (st == TUTTI_OK && y >= 0 && y < ds->source.info.n_classes) counts[y]++;
    }
    free(x);
    return st;
}

const char *tutti_dataset_notices(const tutti_dataset *ds) {
    return tti_str_text(&ds->source.notices);
}

const char *tutti_dataset_class_name(const tutti_dataset *ds, int64_t label) {
    if (!ds->source.spec->class_names || label < 0 || label >= ds->source.info.n_classes)
        return NULL;
    return ds->source.spec->class_names[label];
}

void tti_dataset_keep(const tutti_dataset *ds) { ((tutti_dataset *)(uintptr_t)ds)->is_kept = true; }

void tutti_dataset_destroy(tutti_dataset *ds) {
    if (!ds || ds->is_kept) return;
    ds->source.close(&ds->source);
    tti_chain_destroy(&ds->source.decode);
    tti_skip_list_destroy(ds->skips);
    tti_str_free(&ds->source.notices);
    tutti_tokenizer_destroy(ds->source.tokenizer);
    tti_data_spec_release(ds->source.spec);
    free(ds);
}

const tutti_tokenizer *tutti_dataset_get_tokenizer(const tutti_dataset *ds) {
    return ds->source.tokenizer;
}

/* dataset.c - opens a data set by the name of its format, and reads single samples.
 * To add a format: write formats/NAME.c with one tti_format and list it below. */
#include "data/dataset.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/str.h"
#include "data/target.h"
#include "ir/graph.h"

static const tti_format *const formats[] = {
    &tti_format_digits,        &tti_format_idx, &tti_format_text,   &tti_format_tokens,
    &tti_format_npy,           &tti_format_csv, &tti_format_images, &tti_format_cifar10,
    &tti_format_cifar100,      &tti_format_tar, &tti_format_packed, &tti_format_random_images,
    &tti_format_random_tokens,
};

const tti_format *tti_format_at(int i) {
    return i >= 0 && i < (int)TTI_COUNT(formats) ? formats[i] : NULL;
}

static tutti_status find_format(const char *name, const tti_format **out) {
    tti_str known = {0};
    for (size_t i = 0; i < TTI_COUNT(formats); i++) {
        if (name && strcmp(formats[i]->name, name) == 0) {
            *out = formats[i];
            tti_str_free(&known);
            return TUTTI_OK;
        }
        tti_str_printf(&known, "%s%s", i ? ", " : "", formats[i]->name);
    }
    tutti_status st = tti_fail(TUTTI_E_INVALID, "data: unknown format '%s' (there are: %s)",
                               name ? name : "", tti_str_text(&known));
    tti_str_free(&known);
    return st;
}

static tutti_status check_desc(const tutti_dataset_desc *desc) {
    if ((unsigned)desc->split >= TUTTI_N_SPLITS)
        return tti_fail(TUTTI_E_INVALID, "data: split %d does not exist", (int)desc->split);
    if (!(desc->val_fraction >= 0 && desc->val_fraction < 1))
        return tti_fail(TUTTI_E_INVALID, "data: val_fraction %g is not in [0, 1)",
                        desc->val_fraction);
    if (!(desc->mask_prob >= 0 && desc->mask_prob <= 1))
        return tti_fail(TUTTI_E_INVALID, "data: mask_prob %g is not in [0, 1]", desc->mask_prob);
    if (desc->n_samples < 0 || desc->n_classes < 0 || desc->n_classes > INT32_MAX)
        return tti_fail(TUTTI_E_INVALID, "data: n_samples %lld or n_classes %lld is out of range",
                        (long long)desc->n_samples, (long long)desc->n_classes);
    return TUTTI_OK;
}

/* ---- the specification ---- */

static bool same_pixels(const tti_pixel_spec *a, const tti_pixel_spec *b) {
    bool same = a->n_channels == b->n_channels;
    for (int i = 0; i < a->n_channels && same; i++)
        same = a->mean[i] == b->mean[i] && a->std[i] == b->std[i];
    return same; /* how an image is cut may differ: packed ones are cut already */
}

tutti_status tti_dataset_set_pixels(const tutti_dataset_desc *desc, const tti_pixel_spec *pixels,
                                    tutti_dataset *ds) {
    tti_pixel_spec *known = &ds->spec->pixels;
    if (!desc->spec) *known = *pixels;
    if (same_pixels(known, pixels)) return TUTTI_OK;
    if (known->n_channels != pixels->n_channels)
        return tti_fail(TUTTI_E_DATA,
                        "data: samples of data.format=%s are %s, and the model was trained on %s",
                        desc->format, pixels->n_channels == 3 ? "colour images" : "grey pixels",
                        known->n_channels == 3   ? "colour images"
                        : known->n_channels == 1 ? "grey pixels"
                                                 : "samples that are no pixels");
    return tti_fail(
        TUTTI_E_INVALID,
        "%s: the model was trained with a mean of %g and a std of %g, but %g and %g are requested; "
        "leave these keys as in the run",
        known->n_channels == 3 ? "data.channel_mean, data.channel_std" : "data.mean, data.std",
        known->mean[0], known->std[0], pixels->mean[0], pixels->std[0]);
}

tutti_status tti_dataset_normalise(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    const tti_pixel_spec pixels = {.n_channels = 1, .mean = {desc->mean}, .std = {desc->std}};
    TTI_TRY(tti_dataset_set_pixels(desc, &pixels, ds));
    TTI_TRY(tti_normalise_create(desc->mean, desc->std, &ds->stored.shape, &ds->decode.step[0]));
    ds->decode.n = 1;
    return TUTTI_OK;
}

/* Fills the fields that do not depend on the format. */
static tutti_status complete_spec(const tti_format *format, const tutti_dataset *ds) {
    tti_data_spec *spec = ds->spec;
    int64_t n = ds->info.n_classes;
    spec->format = format->name;
    spec->stored = ds->stored;
    spec->x = ds->info.x;
    spec->y = ds->info.y;
    spec->n_classes = n;
    spec->n_tokens = ds->info.n_tokens;
    spec->tokenizer = tti_tokenizer_share(ds->tokenizer);
    if (!ds->class_name || spec->class_names || n > TTI_MAX_CLASS_NAMES) return TUTTI_OK;
    spec->class_names = tti_arena_alloc(&spec->arena, ((size_t)n + 1) * sizeof(char *));
    for (int64_t i = 0; i < n && !spec->arena.failed; i++)
        spec->class_names[i] = tti_arena_strdup(&spec->arena, ds->class_name(ds, i));
    return spec->arena.failed ? tti_fail(TUTTI_E_NOMEM, "data: out of memory") : TUTTI_OK;
}

static bool same_type(const tutti_type *a, const tutti_type *b) {
    return a->dtype == b->dtype && tti_shape_equal(&a->shape, &b->shape);
}

/* The names of a format that does not take them from the specification. */
static tutti_status check_names(const tutti_dataset_desc *desc, const tutti_dataset *ds) {
    const char *const *names = (const char *const *)ds->spec->class_names;
    for (int64_t i = 0; names && ds->class_name && i < ds->info.n_classes; i++)
        if (strcmp(names[i], ds->class_name(ds, i)) != 0)
            return tti_fail(TUTTI_E_DATA,
                            "data: class %lld of data.format=%s is %s, and the model was trained "
                            "with %s there",
                            (long long)i, desc->format, ds->class_name(ds, i), names[i]);
    return TUTTI_OK;
}

/* The samples must have the type that the model was trained on. */
static tutti_status check_spec(const tutti_dataset_desc *desc, const tutti_dataset *ds) {
    const tti_data_spec *spec = ds->spec;
    const tutti_type *pair[][2] = {
        {&ds->info.x, &spec->x}, {&ds->info.y, &spec->y}, {&ds->stored, &spec->stored}};
    static const char *const what[] = {"samples", "targets", "stored samples"};
    char a[64], b[64];
    for (size_t i = 0; i < TTI_COUNT(pair); i++)
        if (!same_type(pair[i][0], pair[i][1]))
            return tti_fail(TUTTI_E_DATA, "%s: %s are %s, and the model was trained on %s",
                            desc->dir && desc->dir[0] ? desc->dir : "data", what[i],
                            tti_type_text(pair[i][0], a, sizeof a),
                            tti_type_text(pair[i][1], b, sizeof b));
    if (ds->info.n_classes != spec->n_classes)
        return tti_fail(TUTTI_E_DATA, "%s: %lld classes, and the model was trained with %lld",
                        desc->dir && desc->dir[0] ? desc->dir : "data",
                        (long long)ds->info.n_classes, (long long)spec->n_classes);
    return check_names(desc, ds);
}

/* A specification of pixels fits every format of images; any other fits only its own format. */
static tutti_status check_format(const tutti_dataset_desc *desc) {
    const tti_data_spec *spec = desc->spec;
    if (!spec || desc->no_files || spec->pixels.n_channels > 0) return TUTTI_OK;
    if (strcmp(desc->format, spec->format) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "data.format: the model was trained on data.format=%s, and what was learned "
                    "from that data does not fit data.format=%s",
                    spec->format, desc->format);
}

/* ---- opening ---- */

/* Applies the label and token ranges of the specification.  The added mask token is not a token of
 * the data. */
static tutti_dataset_desc with_spec(const tutti_dataset_desc *desc) {
    tutti_dataset_desc out = *desc;
    bool adds_mask = desc->mask_prob > 0 && desc->mask_token < 0;
    if (desc->spec) out.n_classes = desc->spec->n_classes - adds_mask;
    return out;
}

static tutti_status finish_open(const tutti_dataset_desc *desc, const tti_format *format,
                                tutti_dataset *ds) {
    size_t max_bytes;
    if (desc->mask_prob > 0 && ds->masking.prob == 0 && !desc->no_files)
        return tti_fail(TUTTI_E_INVALID, "data: %s has no tokens to mask", desc->format);
    TTI_TRY(tti_chain_infer(&ds->decode, &ds->stored, &ds->info.x, &max_bytes));
    ds->info.is_value = ds->spec->target.n > 0;
    if (ds->info.is_value && !desc->spec && desc->n_classes > 0)
        return tti_fail(TUTTI_E_INVALID,
                        "data.classes: the targets of this data are values to predict, which have "
                        "no classes; leave it out");
    if (desc->skip_bad) TTI_TRY(tti_skip_list_create(ds->info.n_samples, &ds->skips));
    if (!desc->spec) return complete_spec(format, ds);
    return desc->no_files ? TUTTI_OK : check_spec(desc, ds);
}

/* Data that cannot be read is a failure of the data, whatever the system says. */
static tutti_status as_data(tutti_status st) {
    return st == TUTTI_E_IO ? tti_fail(TUTTI_E_DATA, "%s", tutti_last_error()) : st;
}

tutti_status tutti_dataset_open(const tutti_dataset_desc *given, tutti_dataset **out) {
    *out = NULL;
    const tti_format *format = &tti_format_no_files;
    if (!given->no_files) TTI_TRY(find_format(given->format, &format));
    TTI_TRY(check_desc(given));
    TTI_TRY(check_format(given));
    TTI_ASSERT(given->spec || !given->no_files);
    const tutti_dataset_desc desc = with_spec(given);
    tutti_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    ds->spec = desc.spec ? tti_data_spec_share(desc.spec) : tti_data_spec_create();
    tutti_status st =
        ds->spec ? format->open(&desc, ds) : tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    if (st != TUTTI_OK) {
        tti_str_free(&ds->notices);
        tti_data_spec_release(ds->spec);
        free(ds);
        return as_data(st);
    }
    TTI_TRY_GOTO(finish_open(&desc, format, ds), cleanup);
    tti_clear_error(); /* a format may try files that do not exist */
    *out = ds;
cleanup:
    if (st != TUTTI_OK) tutti_dataset_destroy(ds);
    return st;
}

tutti_status tti_dataset_read(const tutti_dataset *ds, const tti_sample_key *key, tti_workspace *ws,
                              void *x, int32_t *y, bool *skipped) {
    int64_t index = (int64_t)key->index;
    tutti_status st = ds->read ? ds->read(ds, index, x, y) : ds->fetch(ds, index, ws, y);
    if (st == TUTTI_OK && !ds->read) st = ds->unpack(ds, key, ws, x);
    if (st == TUTTI_OK && ds->masking.prob > 0)
        tti_masking_apply(&ds->masking, key, tutti_shape_n_elems(&ds->stored.shape), x, y);
    *skipped = st == TUTTI_E_DATA && ds->skips; /* a disk that fails is no damaged sample */
    if (*skipped) tti_skip_list_add(ds->skips, index, tutti_last_error());
    return *skipped ? TUTTI_OK : as_data(st);
}

const tutti_dataset_info *tutti_dataset_get_info(const tutti_dataset *ds) { return &ds->info; }

static void mask_sample(const tutti_dataset *ds, void *x, int32_t *y) {
    memset(x, 0, tti_type_bytes(&ds->info.x));
    for (int64_t i = 0; i < tutti_shape_n_elems(&ds->info.y.shape); i++) y[i] = -1;
}

tutti_status tutti_dataset_get(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    if (index < 0 || index >= ds->info.n_samples)
        return tti_fail(TUTTI_E_INVALID, "data: sample %lld does not exist, there are %lld",
                        (long long)index, (long long)ds->info.n_samples);
    tutti_type type;
    size_t max_bytes;
    TTI_TRY(tti_chain_infer(&ds->decode, &ds->stored, &type, &max_bytes));
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
        tti_chain_apply(&ds->decode, &key, scratch, tti_type_bytes(&ds->stored), x);
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
    for (int64_t i = 0; i < ds->info.n_samples; i++) {
        tutti_status st = ds->label(ds, i, y);
        if (st == TUTTI_E_DATA && ds->skips) continue;
        TTI_TRY(st);
        for (int64_t k = 0; k < ds->spec->target.n; k++) {
            double x = tti_target_decode(y[k]) - (mean ? mean[k] : 0);
            sums[k] += power == 2 ? x * x : x;
        }
        ++*n;
    }
    return TUTTI_OK;
}

tutti_status tti_target_r2(const tutti_dataset *ds, const double *squared_errors, double *out) {
    int64_t n, n_targets = ds->spec->target.n;
    double *mean = calloc((size_t)n_targets, sizeof *mean);
    double *spread = calloc((size_t)n_targets, sizeof *spread);
    int32_t *y = calloc((size_t)n_targets, sizeof *y);
    tutti_status st = mean && spread && y ? add_powers(ds, NULL, 1, y, mean, &n)
                                          : tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    for (int64_t k = 0; st == TUTTI_OK && k < n_targets; k++) mean[k] /= (double)TTI_MAX(n, 1);
    if (st == TUTTI_OK) st = add_powers(ds, mean, 2, y, spread, &n);
    for (int64_t k = 0; st == TUTTI_OK && k < n_targets; k++)
        out[k] = spread[k] > 0 ? 1 - squared_errors[k] / spread[k] : NAN;
    free(mean);
    free(spread);
    free(y);
    return st;
}

/* Any sample of a format with read; x is memory for one. */
static tutti_status read_label(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    if (ds->label) return ds->label(ds, index, y);
    tti_workspace ws = {0};
    tutti_status st = ds->read ? ds->read(ds, index, x, y) : ds->fetch(ds, index, &ws, y);
    tti_workspace_free(&ws);
    return st;
}

tutti_status tutti_dataset_count_classes(const tutti_dataset *ds, int64_t *counts) {
    if (ds->info.is_value || ds->info.y.shape.n_dims > 0 || ds->info.n_classes < 1)
        return tti_fail(TUTTI_E_UNSUPPORTED, "data: the samples have no classes");
    void *x = malloc(tti_type_bytes(&ds->stored) + 1);
    if (!x) return tti_fail(TUTTI_E_NOMEM, "data: out of memory for a sample");
    memset(counts, 0, (size_t)ds->info.n_classes * sizeof *counts);
    tutti_status st = TUTTI_OK;
    for (int64_t i = 0; st == TUTTI_OK && i < ds->info.n_samples; i++) {
        int32_t y = -1;
        st = read_label(ds, i, x, &y);
        if (st == TUTTI_OK && y >= 0 && y < ds->info.n_classes) counts[y]++;
    }
    free(x);
    return st;
}

const char *tutti_dataset_notices(const tutti_dataset *ds) { return tti_str_text(&ds->notices); }

const char *tutti_dataset_class_name(const tutti_dataset *ds, int64_t label) {
    if (!ds->spec->class_names || label < 0 || label >= ds->info.n_classes) return NULL;
    return ds->spec->class_names[label];
}

void tti_dataset_keep(const tutti_dataset *ds) { ((tutti_dataset *)(uintptr_t)ds)->is_kept = true; }

void tutti_dataset_destroy(tutti_dataset *ds) {
    if (!ds || ds->is_kept) return;
    ds->close(ds);
    tti_chain_destroy(&ds->decode);
    tti_skip_list_destroy(ds->skips);
    tti_str_free(&ds->notices);
    tutti_tokenizer_destroy(ds->tokenizer);
    tti_data_spec_release(ds->spec);
    free(ds);
}

const tutti_tokenizer *tutti_dataset_get_tokenizer(const tutti_dataset *ds) {
    return ds->tokenizer;
}

tutti_status tutti_dataset_pack(const tutti_dataset_desc *source, const tutti_pack_desc *desc,
                                char **report) {
    *report = NULL;
    const tti_format *format = NULL;
    TTI_TRY(find_format(source->format, &format));
    TTI_TRY(check_desc(source));
    if (!desc->dir || !desc->dir[0] || desc->shard_tokens < 0)
        return tti_fail(TUTTI_E_INVALID, "data: pack needs a folder, and shard_tokens >= 0");
    if (!format->pack)
        return tti_fail(TUTTI_E_UNSUPPORTED, "data: the format %s has no packed form",
                        format->name);
    if (mkdir(desc->dir, 0777) != 0 && errno != EEXIST)
        return tti_fail(TUTTI_E_IO, "%s: cannot make the folder: %s", desc->dir, strerror(errno));
    tti_str text = {0};
    tutti_status st = format->pack(source, desc, &text);
    if (st == TUTTI_OK && text.failed) st = tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    if (st == TUTTI_OK)
        *report = text.text;
    else
        tti_str_free(&text);
    return st;
}

/* format_table.c - opens a data set by the name of its format, and checks it against the data
 * specification.  To add a format: write NAME.c with one tti_format, and add the name to
 * TTI_FORMATS. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "data/dataset_state.h"
#include "data/similar_names.h"
#include "ir/graph.h"

#define ROW(name) &tti_format_##name,
static const tti_format *const formats[] = {TTI_FORMATS(ROW)};
#undef ROW

const tti_format *tti_format_at(int i) {
    return i >= 0 && i < (int)TTI_COUNT(formats) ? formats[i] : NULL;
}

tutti_status tti_format_find(const char *name, const tti_format **out) {
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

tutti_status tti_dataset_check_desc(const tutti_dataset_desc *desc) {
    if ((unsigned)desc->split >= TUTTI_N_SPLITS)
        return tti_fail(TUTTI_E_INVALID, "data: split %d does not exist", (int)desc->split);
    if (!(desc->val_fraction >= 0 && desc->val_fraction < 1) && desc->val_fraction != -1)
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

/* Fills the fields that do not depend on the format. */
static tutti_status complete_spec(const tti_format *format, tti_source *source) {
    tti_data_spec *spec = source->new_spec;
    int64_t n = source->info.n_classes;
    spec->format = format->name;
    spec->stored = source->stored;
    spec->x = source->info.x;
    spec->y = source->info.y;
    spec->n_classes = n;
    spec->n_tokens = source->info.n_tokens;
    spec->tokenizer = tti_tokenizer_share(source->tokenizer);
    if (!source->class_name || spec->class_names || n > TTI_MAX_CLASS_NAMES) return TUTTI_OK;
    spec->class_names = tti_arena_alloc(&spec->arena, ((size_t)n + 1) * sizeof(char *));
    for (int64_t i = 0; i < n && !tti_arena_failed(&spec->arena); i++)
        spec->class_names[i] = tti_arena_strdup(&spec->arena, source->class_name(source, i));
    return tti_arena_failed(&spec->arena) ? tti_fail(TUTTI_E_NOMEM, "data: out of memory")
                                          : TUTTI_OK;
}

static bool same_type(const tutti_type *a, const tutti_type *b) {
    return a->dtype == b->dtype && tti_shape_equal(&a->shape, &b->shape);
}

/* The names of a format that does not take them from the specification. */
static tutti_status check_names(const tutti_dataset_desc *desc, const tti_source *source) {
    const char *const *names = (const char *const *)source->spec->class_names;
    for (int64_t i = 0; names && source->class_name && i < source->info.n_classes; i++)
        if (strcmp(names[i], source->class_name(source, i)) != 0)
            return tti_fail(TUTTI_E_DATA,
                            "data: class %lld of data.format=%s is %s, and the model was trained "
                            "with %s there",
                            (long long)i, desc->format, source->class_name(source, i), names[i]);
    return TUTTI_OK;
}

/* The samples must have the type that the model was trained on. */
static tutti_status check_spec(const tutti_dataset_desc *desc, const tti_source *source) {
    const tti_data_spec *spec = source->spec;
    const tutti_type *pair[][2] = {
        {&source->info.x, &spec->x}, {&source->info.y, &spec->y}, {&source->stored, &spec->stored}};
    static const char *const what[] = {"samples", "targets", "stored samples"};
    char a[64], b[64];
    for (size_t i = 0; i < TTI_COUNT(pair); i++)
        if (!same_type(pair[i][0], pair[i][1]))
            return tti_fail(TUTTI_E_DATA, "%s: %s are %s, and the model was trained on %s",
                            desc->dir && desc->dir[0] ? desc->dir : "data", what[i],
                            tti_type_text(pair[i][0], a, sizeof a),
                            tti_type_text(pair[i][1], b, sizeof b));
    if (source->info.n_classes != spec->n_classes)
        return tti_fail(TUTTI_E_DATA, "%s: %lld classes, and the model was trained with %lld",
                        desc->dir && desc->dir[0] ? desc->dir : "data",
                        (long long)source->info.n_classes, (long long)spec->n_classes);
    return check_names(desc, source);
}

/* A specification of pixels fits every format of images; any other fits only its own format. */
static tutti_status check_format(const tutti_dataset_desc *desc) {
    const tti_data_spec *spec = desc->spec;
    if (!spec || desc->no_files || spec->pixels.n_channels > 0) return TUTTI_OK;
    if (strcmp(desc->format, spec->format) == 0) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_DATA,
        "data.format: the model was trained on data.format=%s and cannot read data.format=%s",
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

/* A class of few files may have all of them in the test split. */
static tutti_status note_empty_classes(tutti_dataset *ds) {
    tti_source *source = &ds->source;
    const tti_data_spec *spec = source->spec;
    int64_t n_empty = 0, first = 0;
    if (!spec->class_names || !source->label || source->info.n_classes < 1) return TUTTI_OK;
    int64_t *counts = calloc((size_t)source->info.n_classes, sizeof *counts);
    if (!counts) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    tutti_status st = tutti_dataset_count_classes(ds, counts);
    for (int64_t i = source->info.n_classes - 1; st == TUTTI_OK && i >= 0; i--)
        if (counts[i] == 0) first = i, n_empty++;
    free(counts);
    if (n_empty > 0)
        tti_str_printf(
            &source->notices, "%lld of %lld classes have no training samples, such as '%s'\n",
            (long long)n_empty, (long long)source->info.n_classes, spec->class_names[first]);
    return st;
}

static tutti_status finish_open(const tutti_dataset_desc *desc, const tti_format *format,
                                tutti_dataset *ds) {
    tti_source *source = &ds->source;
    size_t max_bytes;
    if (desc->mask_prob > 0 && source->masking.prob == 0 && !desc->no_files)
        return tti_fail(TUTTI_E_INVALID, "data: %s has no tokens to mask", desc->format);
    TTI_TRY(tti_chain_infer(&source->decode, &source->stored, &source->info.x, &max_bytes));
    source->info.is_value = source->spec->target.n > 0;
    if (source->info.is_value && !desc->spec && desc->n_classes > 0)
        return tti_fail(TUTTI_E_INVALID,
                        "data.classes: the targets of this data are values to predict, which have "
                        "no classes; leave it out");
    if (desc->skip_bad) TTI_TRY(tti_skip_list_create(source->info.n_samples, &ds->skips));
    if (!desc->spec) {
        TTI_TRY(complete_spec(format, source));
        const char *const *names = (const char *const *)source->spec->class_names;
        if (names) tti_note_similar_names(names, source->spec->n_classes, &source->notices);
        return desc->split == TUTTI_TRAIN ? note_empty_classes(ds) : TUTTI_OK;
    }
    return desc->no_files ? TUTTI_OK : check_spec(desc, source);
}

tutti_status tutti_dataset_open(const tutti_dataset_desc *given, tutti_dataset **out) {
    *out = NULL;
    const tti_format *format = &tti_format_no_files;
    if (!given->no_files) TTI_TRY(tti_format_find(given->format, &format));
    TTI_TRY(tti_dataset_check_desc(given));
    TTI_TRY(check_format(given));
    TTI_ASSERT(given->spec || !given->no_files);
    const tutti_dataset_desc desc = with_spec(given);
    tutti_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    ds->source.new_spec = desc.spec ? NULL : tti_data_spec_create();
    ds->source.spec = desc.spec ? tti_data_spec_share(desc.spec) : ds->source.new_spec;
    tutti_status st = ds->source.spec ? format->open(&desc, &ds->source)
                                      : tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    if (st != TUTTI_OK) {
        tti_str_free(&ds->source.notices);
        tti_data_spec_release(ds->source.spec);
        free(ds);
        return tti_as_data_error(st);
    }
    TTI_TRY_GOTO(finish_open(&desc, format, ds), cleanup);
    tti_clear_error(); /* a format may try files that do not exist */
    *out = ds;
cleanup:
    if (st != TUTTI_OK) tutti_dataset_destroy(ds);
    return st;
}

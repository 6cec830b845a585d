/* dataset.c - opening a data set by the name of its format, and the plain way to read one sample.
 * To add a format: write NAME.c with one tti_format and list it below. */
#include "data/dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/str.h"

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

tutti_status tutti_dataset_open(const tutti_dataset_desc *desc, tutti_dataset **out) {
    *out = NULL;
    const tti_format *format = NULL;
    TTI_TRY(find_format(desc->format, &format));
    TTI_TRY(check_desc(desc));
    tutti_dataset *ds = calloc(1, sizeof *ds);
    if (!ds) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    tutti_status st = format->open(desc, ds);
    if (st != TUTTI_OK) {
        free(ds);
        return st;
    }
    size_t max_bytes;
    if (desc->mask_prob > 0 && ds->masking.prob == 0)
        TTI_TRY_GOTO(tti_fail(TUTTI_E_INVALID, "data: %s has no tokens to mask", desc->format),
                     cleanup);
    TTI_TRY_GOTO(tti_chain_infer(&ds->decode, &ds->stored, &ds->info.x, &max_bytes), cleanup);
    if (desc->skip_bad) TTI_TRY_GOTO(tti_skip_list_create(ds->info.n_samples, &ds->skips), cleanup);
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
    *skipped = st == TUTTI_E_DATA && ds->skips;
    if (*skipped) tti_skip_list_add(ds->skips, index, tutti_last_error());
    return *skipped ? TUTTI_OK : st;
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

const char *tutti_dataset_class_name(const tutti_dataset *ds, int64_t label) {
    if (!ds->class_name || label < 0 || label >= ds->info.n_classes) return NULL;
    return ds->class_name(ds, label);
}

void tutti_dataset_destroy(tutti_dataset *ds) {
    if (!ds) return;
    ds->close(ds);
    tti_chain_destroy(&ds->decode);
    tti_skip_list_destroy(ds->skips);
    tutti_tokenizer_destroy(ds->tokenizer);
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

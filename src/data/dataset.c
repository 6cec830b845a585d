/* dataset.c - opening a data set by the name of its format, and the plain way to read one sample.
 * To add a format: write NAME.c with one tti_format and list it below. */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"

static const tti_format *const formats[] = {
    &tti_format_digits,
    &tti_format_idx,
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
    TTI_TRY_GOTO(tti_chain_infer(&ds->decode, &ds->stored, &ds->info.x, &max_bytes), cleanup);
    *out = ds;
cleanup:
    if (st != TUTTI_OK) tutti_dataset_destroy(ds);
    return st;
}

const tutti_dataset_info *tutti_dataset_get_info(const tutti_dataset *ds) { return &ds->info; }

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
    tutti_status st = ds->read(ds, index, scratch[0], y);
    if (st == TUTTI_OK)
        tti_chain_apply(&ds->decode, &(tti_sample_key){.index = (uint64_t)index}, scratch,
                        tti_type_bytes(&ds->stored), x);
    free(memory);
    return st;
}

void tutti_dataset_destroy(tutti_dataset *ds) {
    if (!ds) return;
    ds->close(ds);
    tti_chain_destroy(&ds->decode);
    free(ds);
}

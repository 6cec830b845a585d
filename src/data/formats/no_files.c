/* no_files.c - a data set without samples, for reading new samples with a trained model.
 *
 * It has the types, the decode chain, the class names and the tokenizer of the training data, all
 * from the specification. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image/image_set.h"

static tutti_status no_read(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    (void)ds, (void)index, (void)x, (void)y;
    return tti_fail(TUTTI_E_INVALID, "data: a data set without files has no samples");
}

static void no_close(tutti_dataset *ds) {
    tti_image_set *set = ds->state;
    tti_chain_destroy(&set->chain);
    free(set);
}

/* If the training needed no tokenizer, because its data was tokens already, uses the one that is
 * given now. */
static tutti_status add_tokenizer(const tutti_dataset_desc *desc, tutti_tokenizer **out) {
    bool is_text = desc->spec->stored.dtype == TUTTI_I32;
    if (!is_text || !desc->tokenizer_dir || !desc->tokenizer_dir[0]) return TUTTI_OK;
    return tutti_tokenizer_open(
        &(tutti_tokenizer_desc){.name = desc->tokenizer, .dir = desc->tokenizer_dir}, out);
}

static tutti_status no_files_open(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    const tti_data_spec *spec = ds->spec;
    tti_image_set *set = calloc(1, sizeof *set);
    if (!set) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    ds->state = set;
    ds->read = no_read;
    ds->close = no_close;
    ds->stored = spec->stored;
    ds->info.n_classes = spec->n_classes;
    ds->info.n_tokens = spec->n_tokens;
    ds->info.y = spec->y;
    ds->info.n_fields = spec->n_fields;
    ds->info.fields = spec->fields;
    ds->tokenizer = tti_tokenizer_share(spec->tokenizer);
    tutti_status st = spec->tokenizer ? TUTTI_OK : add_tokenizer(desc, &ds->tokenizer);
    tutti_dataset_desc pixels = {
        .spec = desc->spec, .mean = spec->pixels.mean[0], .std = spec->pixels.std[0]};
    if (st == TUTTI_OK && spec->pixels.n_channels == 3) st = tti_image_set_init_from_spec(ds, set);
    if (st == TUTTI_OK && spec->pixels.n_channels == 3 && spec->n_fields > 0)
        st = tti_image_set_keep_chain(ds, set);
    if (st == TUTTI_OK && spec->pixels.n_channels == 1) st = tti_dataset_normalise(&pixels, ds);
    if (st == TUTTI_OK) return TUTTI_OK;
    no_close(ds);
    tutti_tokenizer_destroy(ds->tokenizer);
    return st;
}

const tti_format tti_format_no_files = {.name = "no files", .open = no_files_open};

/* no_files.c - a data set without samples: what a trained model needs of one to read new samples.
 *
 * It has the types, the way from a stored sample to what the model is fed, the class names and the
 * tokenizer of the training data, all from the specification. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image_set.h"

static tutti_status no_read(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    (void)ds, (void)index, (void)x, (void)y;
    return tti_fail(TUTTI_E_INVALID, "data: a data set without files has no samples");
}

static void no_close(tutti_dataset *ds) { free(ds->state); }

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
    ds->tokenizer = tti_tokenizer_share(spec->tokenizer);
    tutti_status st = TUTTI_OK;
    tutti_dataset_desc pixels = {
        .spec = desc->spec, .mean = spec->pixels.mean[0], .std = spec->pixels.std[0]};
    if (spec->pixels.n_channels == 3) st = tti_image_set_init_from_spec(ds, set);
    if (spec->pixels.n_channels == 1) st = tti_dataset_normalise(&pixels, ds);
    if (st == TUTTI_OK) return TUTTI_OK;
    free(set);
    tutti_tokenizer_destroy(ds->tokenizer);
    return st;
}

const tti_format tti_format_no_files = {.name = "no files", .open = no_files_open};

/* no_files.c - a data set without samples, for reading new samples with a trained model.
 *
 * It has the types, the decode chain, the class names and the tokenizer of the training data, all
 * from the specification. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image/image_set.h"

static tutti_status no_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    (void)source, (void)index, (void)x, (void)y;
    return tti_fail(TUTTI_E_INVALID, "data: a data set without files has no samples");
}

static void no_close(tti_source *source) {
    tti_image_set *set = source->state;
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

static tutti_status no_files_open(const tutti_dataset_desc *desc, tti_source *source) {
    const tti_data_spec *spec = source->spec;
    tti_image_set *set = calloc(1, sizeof *set);
    if (!set) return tti_fail(TUTTI_E_NOMEM, "data: out of memory");
    source->state = set;
    source->read = no_read;
    source->close = no_close;
    source->stored = spec->stored;
    source->info.n_classes = spec->n_classes;
    source->info.n_tokens = spec->n_tokens;
    source->info.y = spec->y;
    source->info.n_fields = spec->n_fields;
    source->info.fields = spec->fields;
    source->tokenizer = tti_tokenizer_share(spec->tokenizer);
    tutti_status st = spec->tokenizer ? TUTTI_OK : add_tokenizer(desc, &source->tokenizer);
    tutti_dataset_desc pixels = {
        .spec = desc->spec, .mean = spec->pixels.mean[0], .std = spec->pixels.std[0]};
    if (st == TUTTI_OK && spec->pixels.n_channels == 3)
        st = tti_image_set_init_from_spec(source, set);
    if (st == TUTTI_OK && spec->pixels.n_channels == 3 && spec->n_fields > 0)
        st = tti_image_set_keep_chain(source, set);
    if (st == TUTTI_OK && spec->pixels.n_channels == 1) st = tti_source_normalise(&pixels, source);
    if (st == TUTTI_OK) return TUTTI_OK;
    no_close(source);
    tutti_tokenizer_destroy(source->tokenizer);
    return st;
}

const tti_format tti_format_no_files = {.name = "no files", .open = no_files_open};

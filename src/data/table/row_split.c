/* row_split.c - shuffles the rows of a table by a fixed key and splits them in two.  Tables are
 * often sorted by class, so their end would be a biased test set. */
#include "data/table/row_split.h"

#include "base/error.h"
#include "data/files/file_list.h"

enum { SPLIT_KEY = 0x5911 };

tti_row_split tti_row_split_make(const tutti_dataset_desc *desc, int64_t n, bool whole) {
    tti_row_split split = {.n = n, .shuffled = !whole};
    if (whole) return split;
    int64_t at = tti_split_at(desc, n);
    split.order = tti_sampler_epoch((uint64_t)n, SPLIT_KEY, 0);
    split.first = desc->split == TUTTI_TRAIN ? 0 : at;
    split.n = desc->split == TUTTI_TRAIN ? at : n - at;
    return split;
}

tutti_status tti_count_samples(const tutti_dataset_desc *desc, int64_t n, int64_t *out) {
    if (n < 1)
        return tti_fail(TUTTI_E_DATA,
                        "%s: no rows for the %s split; more rows are needed, files of both splits, "
                        "or another data.val_fraction",
                        desc->dir, desc->split == TUTTI_TRAIN ? "training" : "test");
    if (desc->n_samples > n)
        return tti_fail(TUTTI_E_DATA, "%s: %lld samples are requested, there are %lld", desc->dir,
                        (long long)desc->n_samples, (long long)n);
    *out = desc->n_samples > 0 ? desc->n_samples : n;
    return TUTTI_OK;
}

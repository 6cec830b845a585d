/* row_split.h - divides the rows of a table into training and test rows, if the files do not. */
#ifndef TTI_DATA_ROW_SPLIT_H
#define TTI_DATA_ROW_SPLIT_H

#include "data/dataset.h"
#include "data/loader/sampler.h"

/* Row i of a split is row tti_row_at(split, i) of the table. */
typedef struct tti_row_split {
    int64_t first, n; /* of the shuffled rows */
    bool shuffled;
    tti_permutation order;
} tti_row_split;

/* The split that desc asks for of n >= 1 rows; whole: all of them, in order.  The shuffle is always
 * the same one, so that another seed trains on the same rows. */
tti_row_split tti_row_split_make(const tutti_dataset_desc *desc, int64_t n, bool whole);

static inline int64_t tti_row_at(const tti_row_split *split, int64_t i) {
    if (!split->shuffled) return i;
    return (int64_t)tti_permutation_at(&split->order, (uint64_t)(split->first + i));
}

/* n_samples of desc against n rows: 0 means all; more than there are: TUTTI_E_DATA. */
tutti_status tti_count_samples(const tutti_dataset_desc *desc, int64_t n, int64_t *out);

#endif /* TTI_DATA_ROW_SPLIT_H */

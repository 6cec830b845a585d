/* label_range.h - the number of classes (or tokens) that labels imply, and which labels are
 * invalid.
 *
 * Without a given number of classes the largest label + 1 is used.  One wrong label must not make a
 * model with a million outputs, so a label far above the number of samples is refused. */
#ifndef TTI_DATA_LABEL_RANGE_H
#define TTI_DATA_LABEL_RANGE_H

#include "base/str.h"
#include "tutti/data.h"

typedef struct tti_label_range {
    int64_t n, most, most_at, least, least_at; /* labels seen, extremes and their rows */
} tti_label_range;

/* Adds one label; zero to begin with. */
void tti_label_range_add(tti_label_range *range, int64_t label, int64_t row);

/* n_classes 0 becomes the largest label + 1; floor: so many classes are never too many.  key: the
 * job key that gives the number.  TUTTI_E_DATA with file, row and value for a label below 0, one
 * that is not below a given n_classes, and one that is above both floor and 4 times the number of
 * labels. */
tutti_status tti_label_range_check(const tti_label_range *range, const char *file, const char *key,
                                   int64_t floor, int64_t *n_classes);

/* Adds a notice if no label of the training split is 0, so that the first classes of the model have
 * no samples: labels counted from 1. */
void tti_label_range_note(const tti_label_range *range, const char *file,
                          const tutti_dataset_desc *desc, tti_str *notices);

#endif /* TTI_DATA_LABEL_RANGE_H */

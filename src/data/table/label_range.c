/* label_range.c - finds the range of labels and checks it. */
#include "data/table/label_range.h"

#include "base/error.h"

enum { MAX_PER_SAMPLE = 4 };

void tti_label_range_add(tti_label_range *r, int64_t label, int64_t row) {
    if (r->n == 0 || label > r->most) r->most = label, r->most_at = row;
    if (r->n == 0 || label < r->least) r->least = label, r->least_at = row;
    r->n++;
}

tutti_status tti_label_range_check(const tti_label_range *r, const char *file, const char *key,
                                   int64_t floor, int64_t *n_classes) {
    if (r->n == 0) return TUTTI_OK;
    if (r->least < 0)
        return tti_fail(TUTTI_E_DATA, "%s: label %lld of row %lld is negative; labels begin at 0",
                        file, (long long)r->least, (long long)r->least_at);
    if (*n_classes > 0 && r->most >= *n_classes)
        return tti_fail(TUTTI_E_DATA, "%s: label %lld of row %lld is out of range, 0 .. %lld", file,
                        (long long)r->most, (long long)r->most_at, (long long)(*n_classes - 1));
    if (*n_classes == 0 && r->most >= floor && r->most / MAX_PER_SAMPLE >= r->n)
        return tti_fail(TUTTI_E_DATA,
                        "%s: label %lld of row %lld would make %lld classes of %lld labels; if it "
                        "is right, give %s=%lld",
                        file, (long long)r->most, (long long)r->most_at, (long long)r->most + 1,
                        (long long)r->n, key, (long long)r->most + 1);
    if (*n_classes == 0) *n_classes = r->most + 1;
    return TUTTI_OK;
}

void tti_label_range_note(const tti_label_range *r, const char *file,
                          const tutti_dataset_desc *desc, tti_str *notices) {
    bool learns = desc->split == TUTTI_TRAIN && !desc->spec && desc->n_classes == 0;
    if (!learns || r->n == 0 || r->least <= 0) return;
    tti_str_printf(notices,
                   "%s: labels begin at %lld, so no sample has a class below; subtract %lld from "
                   "the labels to leave such classes out\n",
                   file, (long long)r->least, (long long)r->least);
}

/* mixup.h - pairs of samples, mixed (Zhang et al. 2018).
 *
 *     x = w x_own + (1 - w) x_other,  w ~ Beta(alpha, alpha);  labels likewise
 *
 * Both samples are of the same virtual shard: its real rows are grouped into pairs, and both rows
 * of a pair are mixed, each with its own weight.  Weights and pairs depend on seed, epoch and
 * position in the epoch's order: never on workers, threads or time. */
#ifndef TTI_DATA_MIXUP_H
#define TTI_DATA_MIXUP_H

#include <stddef.h>
#include <stdint.h>

/* Labels of a row: its own, the other's, and w in parts of TTI_MIXUP_ONE, which is exact in f32.
 * A row that is missing has -1 in all three. */
enum { TTI_MIXUP_LABELS = 3, TTI_MIXUP_ONE = 1 << 24 };

/* One shard to be mixed in place. */
typedef struct tti_mixup {
    double alpha; /* > 0 */
    uint64_t seed, epoch;
    uint64_t position; /* of row 0 in the epoch's order */
    int64_t n_rows;    /* real ones, the first; a label of -1 among them: a row that stays alone */
    size_t row_elems;
    float *x;   /* [n_rows, row_elems] */
    int32_t *y; /* [n_rows, TTI_MIXUP_LABELS]; label 0 is given, the others are filled in */
} tti_mixup;

void tti_mixup_apply(const tti_mixup *mixup);

/* w of a row, 0 .. TTI_MIXUP_ONE. */
int32_t tti_mixup_weight(double alpha, uint64_t seed, uint64_t epoch, uint64_t position);

#endif /* TTI_DATA_MIXUP_H */

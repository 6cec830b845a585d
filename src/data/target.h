/* target.h - the value that a regression predicts, as an i32 target of a sample.
 *
 * A standardized value is a fixed-point number: an even multiple of 2^-22, so the -1 of a missing
 * row is never a value, and all code that handles labels can carry it.  The step of 2^-21 standard
 * deviations is that of an f32 near 4. */
#ifndef TTI_DATA_TARGET_H
#define TTI_DATA_TARGET_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

enum { TTI_TARGET_ONE = 1 << 22, TTI_TARGET_MOST = 500 /* standard deviations from the mean */ };

/* false: value is not finite, or too far away. */
static inline bool tti_target_encode(double value, int32_t *out) {
    if (!(fabs(value) <= TTI_TARGET_MOST)) return false;
    *out = 2 * (int32_t)lrint(value * (TTI_TARGET_ONE / 2));
    return true;
}

static inline double tti_target_decode(int32_t target) { return (double)target / TTI_TARGET_ONE; }

/* Mean and standard deviation of n >= 1 values; std is 0 if they are all the same, and one of both
 * is infinite if they are too large. */
void tti_target_measure(const double *value, int64_t n, double *mean, double *std);

#endif /* TTI_DATA_TARGET_H */

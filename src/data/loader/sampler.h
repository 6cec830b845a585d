/* sampler.h - which sample is at which position of which epoch: pure functions.
 *
 * The order of an epoch is a keyed permutation of 0 .. n-1 that is computed at any position, so
 * nothing is shuffled, stored, sent between workers or restored on resume.  Step t of an epoch
 * covers positions t*batch .. of that order; the last step may be short. */
#ifndef TTI_DATA_SAMPLER_H
#define TTI_DATA_SAMPLER_H

#include <stdint.h>

enum { TTI_SAMPLER_ROUNDS = 8 };

/* One epoch's permutation of 0 .. n-1. */
typedef struct tti_permutation {
    uint64_t n;
    unsigned left_bits, right_bits; /* of a domain of less than 2n numbers */
    uint64_t key[TTI_SAMPLER_ROUNDS];
} tti_permutation;

/* n >= 1. */
tti_permutation tti_sampler_epoch(uint64_t n, uint64_t seed, uint64_t epoch);

/* The sample at position, 0 .. n-1; every sample stands at exactly one position. */
uint64_t tti_permutation_at(const tti_permutation *perm, uint64_t position);

/* Both in one call. */
uint64_t tti_sampler_at(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t position);

/* Steps in an epoch of n samples: ceil(n / batch), batch >= 1. */
int64_t tti_steps_per_epoch(int64_t n, int64_t batch);

/* Real samples in step (0 .. steps-1) of an epoch: batch, or the remaining ones in the last step.
 */
int64_t tti_batch_n_rows(int64_t n, int64_t batch, int64_t step);

#endif /* TTI_DATA_SAMPLER_H */

/* sampler.c - the epoch's order as a Feistel network with cycle walking.
 *
 * A Feistel network is a permutation of 2^bits numbers for any round function.  A result outside 0
 * .. n-1 is sent through again until it falls inside, which gives a permutation of 0 .. n-1 (Black,
 * Rogaway: Ciphers with Arbitrary Finite Domains, 2002).  The domain is smaller than 2n, so fewer
 * than two walks are expected.  Round keys are Philox draws from (seed, epoch). */
#include "data/loader/sampler.h"

#include "base/error.h"
#include "base/philox.h"

static uint64_t low_bits(uint64_t x, unsigned n_bits) { return x & ((UINT64_C(1) << n_bits) - 1); }

tti_permutation tti_sampler_epoch(uint64_t n, uint64_t seed, uint64_t epoch) {
    TTI_ASSERT(n >= 1 && n <= INT64_MAX);
    unsigned bits = 0;
    while (bits < 63 && (UINT64_C(1) << bits) < n) bits++;
    tti_permutation perm = {.n = n, .left_bits = bits / 2, .right_bits = bits - bits / 2};
    uint64_t key = tti_mix64(seed, tti_hash_name("sampler"));
    for (unsigned i = 0; i < TTI_SAMPLER_ROUNDS; i += 2) {
        tti_philox draw = tti_philox_draw(key, epoch, i);
        perm.key[i] = (uint64_t)draw.v[1] << 32 | draw.v[0];
        perm.key[i + 1] = (uint64_t)draw.v[3] << 32 | draw.v[2];
    }
    return perm;
}

/* Each half is changed by the other one in turn: invertible by construction. */
static uint64_t feistel(const tti_permutation *perm, uint64_t x) {
    uint64_t left = x >> perm->right_bits, right = low_bits(x, perm->right_bits);
    for (int i = 0; i < TTI_SAMPLER_ROUNDS; i += 2) {
        left ^= low_bits(tti_mix64(perm->key[i], right), perm->left_bits);
        right ^= low_bits(tti_mix64(perm->key[i + 1], left), perm->right_bits);
    }
    return left << perm->right_bits | right;
}

uint64_t tti_permutation_at(const tti_permutation *perm, uint64_t position) {
    TTI_ASSERT(position < perm->n);
    uint64_t x = position;
    do {
        x = feistel(perm, x);
    } while (x >= perm->n);
    return x;
}

uint64_t tti_sampler_at(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t position) {
    tti_permutation perm = tti_sampler_epoch(n, seed, epoch);
    return tti_permutation_at(&perm, position);
}

int64_t tti_steps_per_epoch(int64_t n, int64_t batch) {
    TTI_ASSERT(n >= 0 && batch >= 1);
    return n / batch + (n % batch != 0);
}

int64_t tti_batch_n_rows(int64_t n, int64_t batch, int64_t step) {
    TTI_ASSERT(step >= 0 && step < tti_steps_per_epoch(n, batch));
    return TTI_MIN(batch, n - step * batch);
}

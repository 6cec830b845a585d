/* masking.c - masks tokens for BERT, with one Philox draw per token. */
#include "data/masking.h"

#include "base/philox.h"

static const float share_masked = 0.8F, share_random = 0.1F; /* of the chosen ones */

static int32_t replaced(const tti_masking *m, const tti_philox *draw, int32_t token) {
    float u = tti_philox_unit(draw->v[1]);
    if (u < share_masked) return m->token;
    if (u >= share_masked + share_random) return token;
    return (int32_t)((uint64_t)draw->v[2] * (uint64_t)m->vocabulary >> 32);
}

void tti_masking_apply(const tti_masking *m, const tti_sample_key *key, int64_t n, int32_t *x,
                       int32_t *y) {
    uint64_t seed = tti_mix64(key->seed, tti_hash_name("masking"));
    uint64_t mixed = tti_mix64(seed, key->index);
    for (int64_t i = 0; i < n; i++) {
        tti_philox draw = tti_philox_draw(mixed, key->epoch, (uint64_t)i);
        bool chosen = tti_philox_unit(draw.v[0]) < (float)m->prob;
        y[i] = chosen ? x[i] : -1;
        if (chosen) x[i] = replaced(m, &draw, x[i]);
    }
}

/* mixup.c - mixes pairs of samples in place.
 *
 * Pairs are symmetric, so a shard needs no copy of itself and no sample is loaded twice.  An odd
 * row is left unchanged.
 *
 * Beta(a, a) is G1 / (G1 + G2) of two draws of Gamma(a) (Marsaglia, Tsang: A Simple Method for
 * Generating Gamma Variables, 2000), computed with logarithms: for small a both would be 0. */
#include "data/loader/mixup.h"

#include <math.h>

#include "base/philox.h"
#include "data/loader/sampler.h"

enum { MAX_TRIES = 64 }; /* one in 10^80 draws needs more, and gets the mean */

/* Uniform in (0, 1). */
static double open_unit(uint32_t bits) { return ((double)bits + 0.5) * 0x1p-32; }

/* ln of a draw of Gamma(shape + 1); which: 0, 1, ... different draws of one key. */
static double log_gamma_above_one(double shape, uint64_t key, uint64_t epoch, uint64_t which) {
    const double tau = 6.283185307179586;
    double d = shape + 2.0 / 3, c = 1 / sqrt(9 * d);
    for (uint64_t i = 0; i < MAX_TRIES; i++) {
        tti_philox draw = tti_philox_draw(key, epoch, which * MAX_TRIES + i);
        double length = sqrt(-2 * log(open_unit(draw.v[0])));
        double normal = length * cos(tau * open_unit(draw.v[1]));
        double root = 1 + c * normal;
        if (root <= 0) continue;
        double v = root * root * root;
        if (log(open_unit(draw.v[2])) < 0.5 * normal * normal + d - d * v + d * log(v))
            return log(d * v);
    }
    return log(d);
}

/* Gamma(a) = Gamma(a + 1) U^(1/a). */
static double log_gamma(double alpha, uint64_t key, uint64_t epoch, uint64_t which) {
    tti_philox draw = tti_philox_draw(key, epoch, (2 + which) * MAX_TRIES);
    return log_gamma_above_one(alpha, key, epoch, which) + log(open_unit(draw.v[0])) / alpha;
}

int32_t tti_mixup_weight(double alpha, uint64_t seed, uint64_t epoch, uint64_t position) {
    uint64_t key = tti_mix64(tti_mix64(seed, tti_hash_name("mixup")), position);
    double own = log_gamma(alpha, key, epoch, 0), other = log_gamma(alpha, key, epoch, 1);
    return (int32_t)lround(TTI_MIXUP_ONE / (1 + exp(other - own)));
}

static float share(int32_t weight) { return (float)weight * 0x1p-24f; }

static void mix_pair(const tti_mixup *m, uint64_t a, uint64_t b) {
    int32_t *ya = m->y + a * TTI_MIXUP_LABELS, *yb = m->y + b * TTI_MIXUP_LABELS;
    if (ya[0] < 0 || yb[0] < 0) return;
    ya[1] = yb[0];
    yb[1] = ya[0];
    ya[2] = tti_mixup_weight(m->alpha, m->seed, m->epoch, m->position + a);
    yb[2] = tti_mixup_weight(m->alpha, m->seed, m->epoch, m->position + b);
    float wa = share(ya[2]), wb = share(yb[2]), rest_a = 1 - wa, rest_b = 1 - wb;
    float *xa = m->x + a * m->row_elems, *xb = m->x + b * m->row_elems;
    for (size_t i = 0; i < m->row_elems; i++) {
        float own = xa[i], other = xb[i];
        xa[i] = wa * own + rest_a * other;
        xb[i] = wb * other + rest_b * own;
    }
}

void tti_mixup_apply(const tti_mixup *m) {
    for (int64_t i = 0; i < m->n_rows; i++) {
        int32_t *y = m->y + i * TTI_MIXUP_LABELS;
        y[1] = y[0];
        y[2] = y[0] < 0 ? y[0] : TTI_MIXUP_ONE;
    }
    if (m->n_rows < 2) return;
    uint64_t n = (uint64_t)m->n_rows, seed = tti_mix64(m->seed, tti_hash_name("mixup.pairs"));
    tti_permutation order = tti_sampler_epoch(n, tti_mix64(seed, m->position), m->epoch);
    for (uint64_t i = 0; i + 1 < n; i += 2)
        mix_pair(m, tti_permutation_at(&order, i), tti_permutation_at(&order, i + 1));
}

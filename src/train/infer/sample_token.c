/* sample_token.c - draws a token after temperature, top-k and top-p. */
#include "train/infer/sample_token.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/philox.h"

static int by_weight(const void *a, const void *b) {
    const tti_candidate *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* Returns the length of the shortest prefix with at least the fraction top_p of the sum. */
static int64_t front_of(const tti_candidate *c, int64_t n, double top_p, double sum) {
    double so_far = 0;
    for (int64_t i = 0; i < n; i++) {
        so_far += c[i].weight;
        if (so_far >= top_p * sum) return i + 1;
    }
    return n;
}

static double sum_of(const tti_candidate *c, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += c[i].weight;
    return sum;
}

static double draw(uint64_t seed, uint64_t position) {
    tti_philox bits = tti_philox_draw(tti_mix64(seed, tti_hash_name("generate")), 0, position);
    return ((double)(bits.v[0] >> 5) * 0x1p26 + (double)(bits.v[1] >> 6)) * 0x1p-53;
}

int32_t tti_sample_token(const tti_sampling *how, const float *logits, int64_t n, uint64_t position,
                         tti_candidate *room) {
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++) most = fmaxf(most, logits[i]);
    for (int64_t i = 0; i < n; i++) {
        double above = (double)logits[i] - (double)most;
        double t = how->temperature > 0 ? how->temperature : 1;
        room[i] = (tti_candidate){isnan(above) ? 0 : exp(above / t), (int32_t)i};
    }
    qsort(room, (size_t)n, sizeof *room, by_weight);
    if (how->temperature < 0) return room[0].token;
    if (how->top_k > 0) n = TTI_MIN(n, how->top_k);
    if (how->top_p > 0 && how->top_p < 1) n = front_of(room, n, how->top_p, sum_of(room, n));
    double left = draw(how->seed, position) * sum_of(room, n);
    for (int64_t i = 0; i < n; i++) {
        left -= room[i].weight;
        if (left < 0) return room[i].token;
    }
    return room[0].token;
}

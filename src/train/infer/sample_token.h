/* sample_token.h - samples the next token from logits with temperature, top-k and top-p, by one
 * keyed draw. */
#ifndef TTI_TRAIN_SAMPLE_TOKEN_H
#define TTI_TRAIN_SAMPLE_TOKEN_H

#include <stdint.h>

typedef struct tti_sampling {
    double temperature; /* > 0; below 0: greedy */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 0 or 1: all */
    uint64_t seed;
} tti_sampling;

typedef struct tti_candidate {
    double weight;
    int32_t token;
} tti_candidate;

/* Draws one of n tokens, keyed only by the seed and the position.  room [n] is
 * scratch.  For equal logits the lower token comes first; NaN is never chosen if there is another.
 */
int32_t tti_sample_token(const tti_sampling *how, const float *logits, int64_t n, uint64_t position,
                         tti_candidate *room);

#endif /* TTI_TRAIN_SAMPLE_TOKEN_H */

/* masking.h - masked tokens (Devlin et al. 2018, BERT).
 *
 * Each token is chosen with a probability; 80 % of the chosen tokens become the mask token, 10 % a
 * random token, 10 % stay unchanged.  The original token is the target; all other targets are -1.
 * All draws depend on the sample's key: another epoch masks other tokens; evaluation, whose epoch
 * is 0, always masks the same ones. */
#ifndef TTI_DATA_MASKING_H
#define TTI_DATA_MASKING_H

#include "data/transform.h"

typedef struct tti_masking {
    double prob;        /* 0: nothing is masked                      */
    int32_t token;      /* that stands for a masked one              */
    int32_t vocabulary; /* random tokens are 0 .. vocabulary-1, >= 1 */
} tti_masking;

/* Masks tokens x [n] in place and writes targets y [n].  Any thread. */
void tti_masking_apply(const tti_masking *masking, const tti_sample_key *key, int64_t n, int32_t *x,
                       int32_t *y);

#endif /* TTI_DATA_MASKING_H */

/* sdpa.h - the sizes of an attention with separate queries, keys and values, for its kernels. */
#ifndef TTI_OPS_SDPA_H
#define TTI_OPS_SDPA_H

#include "base/philox.h" /* TTI_BOTH_SIDES */
#include "ir/graph.h"

enum { TTI_SDPA_BIAS = 1, TTI_SDPA_SEGMENTS = 2 }; /* attribute "with": which inputs there are */

typedef struct tti_sdpa {
    size_t n_batch, n_t, n_s; /* samples, queries, keys                                    */
    size_t heads, kv_heads;   /* kv_heads divides heads                                    */
    size_t dim, v_dim;        /* widths of a query and key, and of a value                 */
    bool causal;              /* query t sees keys 0 .. t                                  */
    size_t window;            /* .. and keys fewer positions away than this; 0: all        */
    double scale, softcap;    /* of the scores; softcap 0: none                            */
    double p;                 /* probability that a weight is dropped                      */
    uint64_t key;             /* of the random numbers                                     */
    size_t first_head;        /* of head 0 in the whole op, of which this is a shard       */
    int bias, segments;       /* inputs: bias, and those of queries (keys follow); -1: none */
    int saved;                /* of the gradient: input y; max, log_sum and dy follow      */
    size_t bias_rows;         /* sample b has row b % bias_rows of the bias             */
    size_t bias_step[4];      /* elements from one sample, head, query, key to the next    */
    bool replaces;            /* a very low bias replaces the score: tti_sdpa_is_replaced  */
} tti_sdpa;

/* The sizes of a node that was inferred. */
tti_sdpa tti_sdpa_of(const tti_node *node);

/* Keys that query t may see by its place: first .. end-1. */
TTI_BOTH_SIDES static inline void tti_sdpa_range(const tti_sdpa *v, size_t t, size_t *first,
                                                 size_t *end) {
    *first = v->window > 0 && t + 1 > v->window ? t + 1 - v->window : 0;
    *end = v->n_s;
    if (v->causal && t + 1 < *end) *end = t + 1;
    if (v->window > 0 && t + v->window < *end) *end = t + v->window;
    if (*first > *end) *first = *end;
}

/* Whether a bias replaces a score instead of being added, so that the score has no gradient.  Masks
 * that do so are -1e9 or lower, and 16 bits round them by less than a hundredth. */
TTI_BOTH_SIDES static inline bool tti_sdpa_is_replaced(bool replaces, float bias) {
    return replaces && bias <= -5e8f;
}

/* The element of the bias of sample b, head h, query t and key 0. */
TTI_BOTH_SIDES static inline size_t tti_sdpa_bias_at(const tti_sdpa *v, size_t b, size_t h,
                                                     size_t t) {
    return b % v->bias_rows * v->bias_step[0] + h * v->bias_step[1] + t * v->bias_step[2];
}

/* The number of weight (t, 0) of head h inside a sample: dropout's masks are those of a value
 * [B,H,T,S]. */
TTI_BOTH_SIDES static inline uint64_t tti_sdpa_weight(const tti_sdpa *v, size_t h, size_t t) {
    return ((uint64_t)(v->first_head + h) * v->n_t + t) * v->n_s;
}

#endif /* TTI_OPS_SDPA_H */

/* attention.h - the parts of a written-out attention, for the rows that replace it and for the
 * report. */
#ifndef TTI_PASSES_RECOGNIZE_ATTENTION_H
#define TTI_PASSES_RECOGNIZE_ATTENTION_H

#include "passes/recognize/match.h"

/* Queries, keys or values: base is what the product reads but for a factor, a transposition of its
 * last two dimensions, and repeated heads. */
typedef struct tti_attention_operand {
    tutti_value *base;
    double scale;
    bool swapped;
    int64_t times; /* each head of base stands for so many */
    /* A factor, part of scale, follows views of base: it turns `instead` into `scaled`. */
    const tutti_value *scaled, *instead;
} tti_attention_operand;

enum { TTI_MAX_BIASES = 4 };

/* factor times a value that is added to the scores. */
typedef struct tti_attention_bias {
    const tutti_value *value;
    tutti_shape scores; /* of the values that it is added to: [..,T,S] */
    tutti_shape shape;  /* of the value as [P,1|H,1|T,1|S]: row b of the scores has row b % P */
    double factor;
    double filled; /* the number, if the bias replaces scores by one; 0: it is added */
    int n_seen;    /* the bias counts where the first n_seen masks of tti_attention.seen are 1 */
} tti_attention_bias;

typedef struct tti_attention {
    tti_attention_operand q, k, v;
    int64_t b, h, kv, t, s, d, e; /* batch, heads of queries and of keys, queries, keys, widths of
                                     a key and of a value */
    double scale, softcap;        /* softcap 0: none */
    bool causal;
    int64_t window;    /* keys fewer positions away are seen; 0: all */
    const float *mask; /* [t,s], added to the scores; NULL: none */
    bool replaces;     /* a bias replaces the scores that it hides, instead of being added */
    tti_attention_bias bias[TTI_MAX_BIASES];
    int n_bias;
    tti_attention_bias seen[TTI_MAX_BIASES]; /* masks: 0 where a score is replaced, else 1 */
    int n_seen, mask_seen;                   /* mask_seen: as n_seen of a bias, for mask */
    int64_t bias_period;  /* rows of the sum of the biases where they repeat; 0: they do not */
    const tti_node *drop; /* dropout of the weights; NULL: none */
    int64_t n_scores;     /* elements of the softmax */
    const char *why;      /* it cannot be an op: the reason; NULL: it can */
} tti_attention;

/* Whether m->root is the product of a softmax's result with values; fills m->inner. */
bool tti_attention_read(tti_match *m, tti_attention *a);

/* The product of queries and keys that `at`, which a softmax reads, is made of; NULL: there is none
 * alone.  Fills scale, softcap, the masks and the values of the biases, or why. */
const tti_node *tti_attention_scores(tti_match *m, tutti_value *at, tti_attention *a);

/* Finds the shapes of the biases and their period, for b and h; or sets why. */
void tti_attention_place_biases(const tti_match *m, tti_attention *a);

/* A reshape that rows may move or drop. */
bool tti_is_plain_reshape(const tti_node *node);

/* [B,H,T,S] and [B H,T,S] are the same matrices. */
bool tti_keeps_matrices(const tti_node *node);

#endif /* TTI_PASSES_RECOGNIZE_ATTENTION_H */

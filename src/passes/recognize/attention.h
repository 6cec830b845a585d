/* attention.h - an attention that is written out, as the rows and the report read it. */
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
    /* A factor, part of scale, lies behind views of base: it makes `behind` of `instead`. */
    const tutti_value *behind, *instead;
} tti_attention_operand;

typedef struct tti_attention {
    tti_attention_operand q, k, v;
    int64_t b, h, kv, t, d; /* batch, heads of queries and of keys, positions, width of a head */
    double scale;
    bool causal;
    int64_t n_scores; /* elements of the softmax */
    const char *why;  /* it cannot be the op: the reason; NULL: it can */
} tti_attention;

/* Whether m->root is the product of a softmax's result with values; fills m->inner. */
bool tti_attention_read(tti_match *m, tti_attention *a);

#endif /* TTI_PASSES_RECOGNIZE_ATTENTION_H */

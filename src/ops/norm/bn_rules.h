/* bn_rules.h - code shared by the records of batch norm, forward (batch_norm.c) and backward
 * (batch_norm_grad.c). */
#ifndef TTI_OPS_BN_RULES_H
#define TTI_OPS_BN_RULES_H

#include <math.h>

#include "ops/rules.h"

/* x[N,C,..]: element (n, c, s) is n * C * S + c * S + s. */
typedef struct planes {
    size_t n, c, s;
} planes;

static inline planes planes_of(const tti_node *node) {
    const tutti_shape *x = tti_in_shape(node, 0);
    planes p = {(size_t)x->dim[0], (size_t)x->dim[1], 1};
    for (int d = 2; d < x->n_dims; d++) p.s *= (size_t)x->dim[d];
    return p;
}

static inline tutti_status need_planes(const tti_node *node) {
    char text[128];
    TTI_TRY(tti_need_floats(node, 0, 1));
    if (tti_in_shape(node, 0)->n_dims >= 2) return TUTTI_OK;
    return tti_node_fail(node, "input 0 must be [N,C,..], is %s",
                         tti_type_text(&node->in[0]->type, text, sizeof text));
}

/* Input i is f32[n]. */
static inline tutti_status need_vector(const tti_node *node, int i, int64_t n) {
    TTI_TRY(tti_need_dtype(node, i, TUTTI_F32));
    TTI_TRY(tti_need_n_dims(node, i, 1));
    if (tti_in_dim(node, i, 0) == n) return TUTTI_OK;
    return tti_node_fail(node, "input %d must have %lld elements, has %lld", i, (long long)n,
                         (long long)tti_in_dim(node, i, 0));
}

/* Input i, if it is there, is the count of real samples, i32[]. */
static inline tutti_status check_rows(const tti_node *node, int i) {
    if (i >= node->n_in) return TUTTI_OK;
    TTI_TRY(tti_need_dtype(node, i, TUTTI_I32));
    return tti_need_n_dims(node, i, 0);
}

static inline bool has_act(const tti_node *node) {
    return tti_attr_int(node, "act") == TTI_EPILOGUE_RELU;
}

static inline tutti_status check_attrs(const tti_node *node) {
    int64_t act = tti_attr_int(node, "act");
    TTI_TRY(tti_need_eps(node));
    if (act == TTI_EPILOGUE_NONE || act == TTI_EPILOGUE_RELU) return TUTTI_OK;
    return tti_node_fail(node, "act must be 0 or 1, is %lld", (long long)act);
}

/* Input i, if it is there, has the type of input 0. */
static inline tutti_status check_like_first(const tti_node *node, int i) {
    if (i >= node->n_in) return TUTTI_OK;
    TTI_TRY(tti_need_dtype(node, i, node->in[0]->type.dtype));
    return tti_need_same_shape(node, 0, i);
}

/* A mask of where a value like input 0 is above 0: 8 channels at one position are a byte, the first
 * channel its lowest bit. */
enum { TTI_MASK_CHANNELS = 8 };

static inline tutti_type mask_type(const tti_node *node) {
    tutti_type type = {TUTTI_U8, *tti_in_shape(node, 0)};
    type.shape.dim[1] /= TTI_MASK_CHANNELS;
    return type;
}

static inline tutti_status need_masked(const tti_node *node) {
    if (tti_in_dim(node, 0, 1) % TTI_MASK_CHANNELS == 0) return TUTTI_OK;
    return tti_node_fail(node, "a mask has bits of %d channels, but there are %lld channels",
                         TTI_MASK_CHANNELS, (long long)tti_in_dim(node, 0, 1));
}

/* The byte of element i, and its bit there. */
static inline size_t mask_byte(const planes *p, size_t i) {
    return i / p->s / TTI_MASK_CHANNELS * p->s + i % p->s;
}
static inline int mask_bit(const planes *p, size_t i) {
    return (int)(i / p->s % TTI_MASK_CHANNELS);
}

static inline tutti_type stats_type(int64_t n_channels) {
    return (tutti_type){TUTTI_F32, TUTTI_SHAPE(2 * n_channels + 1)};
}

/* The samples that count: input i if it is there, within 0 .. N. */
static inline size_t rows_of(const tti_args *a, int i, size_t n) {
    if (i >= a->node->n_in) return n;
    double rows = a->in[i][0];
    return rows <= 0 ? 0 : (size_t)fmin(rows, (double)n);
}

/* 0 without samples: the values of an empty shard become beta. 1 / sqrt(eps) instead would grow
 * from layer to layer until it is infinite, and its product with a gradient of 0 would be NaN. */
static inline double rstd_of(double count, double m2, double eps) {
    return count > 0 ? 1 / sqrt(m2 / count + eps) : 0;
}

/* {count, mean[C], M2[C]} of the first `rows` samples of x. */
static inline void put_moments(const double *x, const planes *p, size_t rows, double *stats) {
    double count = (double)(rows * p->s);
    stats[0] = count;
    for (size_t c = 0; c < p->c; c++) {
        double sum = 0, m2 = 0;
        for (size_t i = 0; i < rows * p->s; i++) sum += x[(i / p->s * p->c + c) * p->s + i % p->s];
        double mean = count > 0 ? sum / count : 0;
        for (size_t i = 0; i < rows * p->s; i++) {
            double d = x[(i / p->s * p->c + c) * p->s + i % p->s] - mean;
            m2 += d * d;
        }
        stats[1 + c] = mean;
        stats[1 + p->c + c] = m2;
    }
}

/* Channel c of {count, sum, dot}, out [3] of the ops that give it. */
static inline void put_sums(double *const *out, size_t n_channels, size_t c, double sum,
                            double dot) {
    out[0][1 + c] = out[2][c] = sum;
    out[0][1 + n_channels + c] = out[1][c] = dot;
}

static const char planes_why[] =
    "only samples can be split, and statistics are a shard's own or joined";

static inline void bn_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 5.0 * (double)tti_in_n(node, 0), cost);
}

/* One flop for the mask, the residual or the activation each. */
static inline void fusable_cost(const tti_node *node, tti_cost *cost) {
    bool takes_mask = (node->op->traits & TTI_TAKES_MASK) != 0;
    int more = has_act(node) + (!takes_mask && node->n_in == node->op->n_in_max);
    tti_cost_flops(node, (5.0 + more) * (double)tti_in_n(node, 0), cost);
}

#endif /* TTI_OPS_BN_RULES_H */

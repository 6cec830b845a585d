/* patterns.h - what the tests of patterns share: short names for builders, an attention that is
 * spelled out in many ways, and the comparison of a graph before and after the pass. */
#ifndef TTI_TESTS_PATTERNS_H
#define TTI_TESTS_PATTERNS_H

#include <math.h>

#include "passes/nets.h"
#include "passes/recognize/recognize.h"

typedef tutti_graph G;
typedef tutti_value V;

enum { B = 2, T = 4, H = 4, D = 6, K = 6 };

/* ---- short names ---- */

static inline V *affine(G *g, V *x, double a, double b) { return tutti_affine(g, x, a, b); }
static inline V *number(G *g, double c) {
    return tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, c);
}
static inline V *add(G *g, V *a, V *b) { return tutti_add(g, a, b); }
static inline V *mul(G *g, V *a, V *b) { return tutti_mul(g, a, b); }
static inline V *sub(G *g, V *a, V *b) { return tutti_sub(g, a, b); }
static inline V *over(G *g, V *a, V *b) { return tutti_div(g, a, b); }
static inline V *power(G *g, V *x, double p) { return tutti_pow(g, x, number(g, p)); }
static inline V *rsqrt(G *g, V *x) { return over(g, number(g, 1), tutti_sqrt(g, x)); }
static inline V *mean(G *g, V *x, int axis) {
    return tutti_mean(g, x, &(tutti_axes){.n = 1, .axis = {axis}, .keep = true});
}
static inline V *total(G *g, V *x, int axis) {
    return tutti_sum(g, x, &(tutti_axes){.n = 1, .axis = {axis}, .keep = true});
}
static inline V *largest(G *g, V *x, int axis) {
    return tutti_max(g, x, &(tutti_axes){.n = 1, .axis = {axis}, .keep = true});
}
static inline V *weights(G *g, const char *name, const tutti_shape *shape) {
    const tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 1};
    return tutti_param(g, name, shape, &normal, true);
}
/* ---- attention ---- */

typedef struct spelled {
    int64_t kv;
    double q_scale, s_scale;
    int mask; /* see masks */
    bool by_keep, flat, dropout, spills, tiled, other_softmax, wide_values;
    V *(*biased)(G *g, V *scores); /* adds a bias of its own; NULL: none */
} spelled;

enum { NONE, CAUSAL, WINDOW, BAND, STRICT, PER_HEAD, FULL };

static inline V *mask_of(G *g, int kind, double open, double closed) {
    float x[H * T * T];
    for (int i = 0; i < H * T * T; i++) {
        int h = i / (T * T), t = i / T % T, s = i % T;
        bool seen = kind == CAUSAL     ? s <= t
                    : kind == WINDOW   ? s <= t && s > t - 2
                    : kind == BAND     ? s < t + 2 && s > t - 2
                    : kind == STRICT   ? s < t || t == 0
                    : kind == PER_HEAD ? s <= t || h == 1
                                       : true;
        x[i] = (float)(seen ? open : closed);
    }
    if (kind == PER_HEAD) return tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(H, T, T), x);
    return tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(T, T), x);
}

static inline V *heads_of(G *g, V *x, int64_t heads, const char *name) {
    x = tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = heads * D, .no_bias = true}, name);
    x = tutti_reshape(g, x, &TUTTI_SHAPE(B, T, heads, D));
    return tutti_transpose(g, x, 1, 2);
}

static inline V *repeat(G *g, V *x, int64_t kv, bool tiled) {
    int64_t n = H / kv;
    if (n == 1) return x;
    x = tutti_reshape(g, x, tiled ? &TUTTI_SHAPE(B, 1, kv, T, D) : &TUTTI_SHAPE(B, kv, 1, T, D));
    x = tutti_broadcast_to(g, x,
                           tiled ? &TUTTI_SHAPE(B, n, kv, T, D) : &TUTTI_SHAPE(B, kv, n, T, D));
    return tutti_reshape(g, x, &TUTTI_SHAPE(B, H, T, D));
}

static inline V *flat_heads(G *g, V *x, int64_t rows, int64_t columns) {
    return tutti_reshape(g, x, &TUTTI_SHAPE(B * H, rows, columns));
}

static inline V *masked_scores(G *g, V *s, const spelled *a) {
    if (a->mask == NONE) return s;
    if (!a->by_keep) return add(g, s, mask_of(g, a->mask, 0, -INFINITY));
    return add(g, tutti_keep(g, number(g, -1e9), mask_of(g, a->mask, 0, 1)),
               tutti_keep(g, s, mask_of(g, a->mask, 1, 0)));
}

static inline V *attention(G *g, V *x, const spelled *a) {
    int64_t kv = a->kv ? a->kv : H;
    V *q = heads_of(g, x, H, "q"), *k = heads_of(g, x, kv, "k"), *v = heads_of(g, x, kv, "v");
    k = repeat(g, k, kv, a->tiled), v = repeat(g, v, kv, a->tiled);
    if (a->q_scale != 0) q = affine(g, q, a->q_scale, 0);
    k = tutti_transpose(g, k, 2, 3);
    if (a->flat) {
        q = flat_heads(g, q, T, D), k = flat_heads(g, k, D, T), v = flat_heads(g, v, T, D);
    }
    if (a->wide_values) v = tutti_concat(g, (V *[]){v, v}, 2, 3);
    V *s = tutti_matmul(g, q, k);
    if (a->s_scale != 0) s = over(g, s, number(g, 1 / a->s_scale));
    s = masked_scores(g, s, a);
    if (a->biased) s = a->biased(g, s);
    V *p = tutti_softmax(g, s, a->other_softmax ? -2 : -1);
    V *w = a->dropout ? tutti_dropout(g, p, 0.3, "drop") : p;
    V *y = tutti_matmul(g, w, v);
    if (a->flat) y = tutti_reshape(g, y, &TUTTI_SHAPE(B, H, T, D));
    int64_t width = a->wide_values ? 2 * D : D;
    y = tutti_reshape(g, tutti_transpose(g, y, 1, 2), &TUTTI_SHAPE(B, T, H * width));
    return a->spills ? add(g, y, tutti_sum(g, p, NULL)) : y;
}

/* ---- the cases ---- */

typedef struct pattern_case {
    const char *name;
    V *(*build)(G *g, V *x); /* of x[B,T,K] */
    const char *op;          /* that is there afterwards; NULL: the graph stays as it is */
    const char *gone;        /* of which none is left; NULL: do not ask */
} pattern_case;

/* The loss is a sum of the result with different factors. */
static inline tutti_graph *graph_of(const pattern_case *c, bool training) {
    tutti_graph *g = tutti_graph_create(training);
    V *y = c->build(g, weights(g, "x", &TUTTI_SHAPE(B, T, K)));
    if (!y) T_OK(tutti_graph_check(g));
    tutti_shape shape = tutti_value_type(y).shape;
    int64_t n = tutti_shape_n_elems(&shape);
    float factor[B * T * H * D * 2];
    assert_true(n <= (int64_t)TTI_COUNT(factor));
    for (int64_t i = 0; i < n; i++) factor[i] = (float)((i * 7 + 3) % 11) / 5 - 1.1f;
    V *loss = y;
    if (shape.n_dims > 0) {
        loss = tutti_matmul(g, tutti_reshape(g, y, &TUTTI_SHAPE(1, n)),
                            tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(n, 1), factor));
        loss = tutti_reshape(g, loss, &(tutti_shape){0});
    }
    tutti_output(g, "loss_sum", loss);
    if (shape.n_dims > 0) tutti_output(g, "y", y);
    T_OK(tutti_graph_check(g));
    T_OK(tti_pass_simplify(&g, &net_plain));
    return g;
}

static inline void expect_close(const pattern_case *c, const tutti_graph *g,
                                const tutti_graph *other) {
    t_reference *r = net_evaluate(g), *s = net_evaluate(other);
    T_EQ(g->n_outputs, other->n_outputs);
    for (int i = 0; i < g->n_outputs; i++) {
        const tutti_value *a = g->outputs[i].value;
        const tutti_value *b = tti_graph_output(other, g->outputs[i].name);
        assert_non_null(b);
        assert_true(tti_shape_equal(&a->type.shape, &b->type.shape));
        for (int64_t e = 0; e < tti_value_n_elems(a); e++) {
            double x = t_reference_of(r, a)[e], y = t_reference_of(s, b)[e];
            if (!(fabs(x - y) <= 2e-6 * (1 + fabs(x))))
                fail_msg("%s: %s[%d] is %.9g, was %.9g", c->name, g->outputs[i].name, (int)e, y, x);
        }
    }
    t_reference_destroy(r);
    t_reference_destroy(s);
}

static inline void check_case(const pattern_case *c, bool training) {
    tutti_graph *before = graph_of(c, training), *after = graph_of(c, training);
    T_OK(tti_recognize(&after, NULL));
    T_OK(tti_graph_verify(after));
    if (!c->op && after->n_nodes != before->n_nodes) fail_msg("%s: it was changed", c->name);
    if (c->op && training && net_count_ops(after, c->op) != 1)
        fail_msg("%s: %d %s", c->name, net_count_ops(after, c->op), c->op);
    if (c->gone && training && net_count_ops(after, c->gone) != 0)
        fail_msg("%s: %d %s are left", c->name, net_count_ops(after, c->gone), c->gone);
    T_OK(tti_pass_autodiff(&before, &net_plain));
    T_OK(tti_pass_autodiff(&after, &net_plain));
    expect_close(c, before, after);
    tutti_graph_destroy(before);
    tutti_graph_destroy(after);
}

static inline const char *why_of(V *(*build)(G *g, V *x), tti_findings *found) {
    const pattern_case c = {"why", build, NULL, NULL};
    tutti_graph *g = graph_of(&c, true);
    *found = (tti_findings){0};
    T_OK(tti_recognize(&g, NULL));
    T_OK(tti_find_unrecognized(g, B, found));
    tutti_graph_destroy(g);
    return found->n == 1 ? found->v[0].why : "";
}

#endif /* TTI_TESTS_PATTERNS_H */

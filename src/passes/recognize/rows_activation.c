/* rows_activation.c - activations, gates of one activation and one value, stochastic depth. */
#include <math.h>

#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"

static const double sqrt_2_pi = 0.79788456080286535588, sqrt_1_2 = 0.70710678118654752440;
static const double bend = 0.044715, quick = 1.702;

static bool has_shape_of_x(const tti_match *m) {
    return tti_shape_equal(&TTI_VAR(m, 'x')->type.shape, &m->root->out[0]->type.shape);
}

/* ---- gelu ---- */

/* L1 of L2 x times L3 of erf of L4 x: 0.5 x (1 + erf(x / sqrt 2)). */
static bool gelu_fits(tti_match *m) {
    const double *f = m->factor, *s = m->shift;
    return s[1] == 0 && s[2] == 0 && s[4] == 0 && tti_close_to(f[4], sqrt_1_2) &&
           tti_close_to(s[3], f[3]) && tti_close_to(f[1] * f[2] * f[3], 0.5) && has_shape_of_x(m);
}

/* The same with tanh of L4 (L5 x^3 + L6 x); scale: 1, or 2 where it is a sigmoid.  L7 is in front
 * of the first x of a product that L5 ends. */
static bool tanh_parts_fit(const tti_match *m, double scale) {
    const double *f = m->factor, *s = m->shift;
    double first = f[7] != 0 ? f[7] : 1;
    return s[7] == 0 && s[1] == 0 && s[2] == 0 && s[4] == 0 && s[6] == 0 &&
           tti_close_to(f[4] * f[6], scale * sqrt_2_pi) &&
           tti_close_to(f[4] * f[5] * first, scale * sqrt_2_pi * bend) && has_shape_of_x(m);
}

static bool by_tanh(tti_match *m) {
    const double *f = m->factor, *s = m->shift;
    return tti_close_to(s[3], f[3]) && tti_close_to(f[1] * f[2] * f[3], 0.5);
}

static bool tanh_fits(tti_match *m) {
    return by_tanh(m) && m->shift[5] == 0 && tanh_parts_fit(m, 1);
}

static bool sigmoid_fits(tti_match *m) {
    return tti_close_to(m->factor[1] * m->factor[2], 1) && m->shift[5] == 0 && tanh_parts_fit(m, 2);
}

/* The argument is L6 x times L5 x^2, which is factor[5] x^2 + shift[5]. */
static bool factored(const tti_match *m, double scale) {
    tti_match sum = *m;
    sum.factor[6] = m->factor[6] * m->shift[5];
    sum.factor[5] = m->factor[6] * m->factor[5];
    return tanh_parts_fit(&sum, scale);
}

static bool tanh_factored_fits(tti_match *m) { return by_tanh(m) && factored(m, 1); }

static bool sigmoid_factored_fits(tti_match *m) {
    return tti_close_to(m->factor[1] * m->factor[2], 1) && factored(m, 2);
}

static tutti_value *emit_gelu(tti_rewrite *rw, const tti_match *m, bool approximate) {
    tutti_value *x = tti_mapped(rw, TTI_VAR(m, 'x'));
    return tti_emit(tti_new_graph(rw), "gelu", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INT("approximate", approximate), {0}});
}

static tutti_value *build_gelu(tti_rewrite *rw, const tti_match *m) {
    return emit_gelu(rw, m, false);
}

static tutti_value *build_gelu_tanh(tti_rewrite *rw, const tti_match *m) {
    return emit_gelu(rw, m, true);
}

/* ---- silu, and the gelu that is one of 1.702 x ---- */

/* x times sigmoid of L4 x. */
static bool silu_fits(tti_match *m) {
    return m->factor[4] == 1 && m->shift[4] == 0 && has_shape_of_x(m);
}

static bool quick_fits(tti_match *m) {
    return tti_close_to(m->factor[4], quick) && m->shift[4] == 0 && has_shape_of_x(m);
}

/* x over L1 of e^(L2 x), which is 1 + e^-x. */
static bool silu_by_exp_fits(tti_match *m) {
    return m->factor[1] == 1 && m->shift[1] == 1 && m->factor[2] == -1 && m->shift[2] == 0 &&
           has_shape_of_x(m);
}

static tutti_value *build_silu(tti_rewrite *rw, const tti_match *m) {
    tutti_value *x = tti_mapped(rw, TTI_VAR(m, 'x'));
    return tti_emit(tti_new_graph(rw), "silu", NULL, &x, 1, NULL);
}

/* x s(c x) = silu(c x) / c */
static tutti_value *build_quick(tti_rewrite *rw, const tti_match *m) {
    tutti_value *x = tti_new_affine(rw, tti_mapped(rw, TTI_VAR(m, 'x')), m->factor[4], 0);
    x = tti_emit(tti_new_graph(rw), "silu", NULL, &x, 1, NULL);
    return tti_new_affine(rw, x, 1 / m->factor[4], 0);
}

/* ---- gates ---- */

/* Two linear layers of one input, which become one, or the halves of one value in their order. */
static bool are_side_by_side(const tutti_value *a, const tutti_value *b) {
    const tti_node *x = a->node, *y = b->node;
    if (x->op != y->op || x->in[0] != y->in[0] || a == b) return false;
    if (tti_is_op(x, "linear"))
        return x->n_in == y->n_in && !tti_attr_int(x, "act") && !tti_attr_int(y, "act");
    if (!tti_is_op(x, "slice")) return false;
    int last = a->type.shape.n_dims - 1;
    int64_t axis = tti_attr_int(x, "axis"), len = tti_attr_int(x, "len");
    const tutti_shape *whole = &x->in[0]->type.shape;
    return (axis == last || axis == -1) && tti_attr_int(y, "axis") == axis &&
           tti_attr_int(x, "start") == 0 && tti_attr_int(y, "start") == len &&
           tti_attr_int(y, "len") == len && whole->dim[last] == 2 * len;
}

static bool gate_fits(tti_match *m) {
    const tutti_value *a = TTI_VAR(m, 'a'), *b = TTI_VAR(m, 'b');
    return tti_shape_equal(&a->type.shape, &b->type.shape) && a->type.shape.n_dims > 0 &&
           are_side_by_side(a, b);
}

/* Both side by side. */
static tutti_value *new_halves(tti_rewrite *rw, const tti_match *m) {
    tutti_value *in[2] = {tti_mapped(rw, TTI_VAR(m, 'a')), tti_mapped(rw, TTI_VAR(m, 'b'))};
    tti_attr_arg axis = TTI_INT("axis", TTI_VAR(m, 'a')->type.shape.n_dims - 1);
    return tti_emit(tti_new_graph(rw), "concat", NULL, in, 2, (tti_attr_arg[]){axis, {0}});
}

static tutti_value *build_swiglu(tti_rewrite *rw, const tti_match *m) {
    tutti_value *x = new_halves(rw, m);
    return tti_emit(tti_new_graph(rw), "swiglu", NULL, &x, 1, NULL);
}

static tutti_value *build_geglu(tti_rewrite *rw, const tti_match *m) {
    tutti_value *x = new_halves(rw, m);
    int64_t by_tanh = tti_attr_int(m->node[1], "approximate");
    return tti_emit(tti_new_graph(rw), "geglu", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INT("approximate", by_tanh), {0}});
}

/* ---- stochastic depth ---- */

/* Exporters draw one number for each sample and multiply the branch of a residual block by it.  The
 * import makes that number as drop_path of ones; here the branch itself becomes the input of
 * drop_path, so that it keeps its dtype and is read once. */

/* Views, and lookups in a table of one row, leave ones as they are. */
static bool are_ones(tti_match *m, const tutti_value *value) {
    double x;
    for (int depth = 0; depth < 8; depth++) {
        const tti_node *node = value->node;
        if (tti_is_uniform(m->scene, value, &x)) return x == 1;
        bool is_row = tti_is_op(node, "embedding") && node->in[0]->type.shape.dim[0] == 1;
        if (!is_row && !(node->op->traits & TTI_VIEW)) return false;
        value = node->in[0];
    }
    return false;
}

/* One number for each sample of x, in as many dimensions. */
static bool drop_fits(tti_match *m) {
    const tutti_value *x = TTI_VAR(m, 'x'), *drawn = m->node[2]->out[0];
    const tutti_shape *s = &x->type.shape, *d = &drawn->type.shape;
    return s->n_dims == d->n_dims && s->n_dims > 0 && s->dim[0] == d->dim[0] &&
           tutti_shape_n_elems(d) == d->dim[0] && x->type.dtype == TUTTI_F32 && m->shift[1] == 0 &&
           tti_shape_equal(s, &m->root->out[0]->type.shape) && are_ones(m, TTI_VAR(m, 'o'));
}

static tutti_value *build_drop(tti_rewrite *rw, const tti_match *m) {
    tutti_value *x = tti_mapped(rw, TTI_VAR(m, 'x'));
    tutti_value *y = tti_new_like(rw, m->node[2], &x);
    return tti_close_to(m->factor[1], 1) ? y : tti_new_affine(rw, y, m->factor[1], 0);
}

#define SUM "L4(add(L6(x), L5(cube(x))))"
#define SUM_7 "L4(add(L6(x), L5(mul(mul(L7(x), x), x))))"
#define PRODUCT "L4(mul(L6(x), L5(sq(x))))"
#define PRODUCT_7 "L4(mul(L6(x), L5(mul(L7(x), x))))"

const tti_row tti_rows_activation[] = {
    {.name = "GELU",
     .spellings = {"L1(mul(L2(x), L3(erf(L4(x)))))"},
     .fits = gelu_fits,
     .build = build_gelu},
    {.name = "GELU (tanh)",
     .spellings = {"L1(mul(L2(x), L3(tanh(" SUM "))))", "L1(mul(L2(x), L3(tanh(" SUM_7 "))))"},
     .fits = tanh_fits,
     .build = build_gelu_tanh},
    {.name = "GELU (tanh)",
     .spellings = {"L1(mul(L2(x), L3(tanh(" PRODUCT "))))",
                   "L1(mul(L2(x), L3(tanh(" PRODUCT_7 "))))"},
     .fits = tanh_factored_fits,
     .build = build_gelu_tanh},
    {.name = "GELU (tanh)",
     .spellings = {"L1(mul(L2(x), sigmoid(" SUM ")))", "L1(mul(L2(x), sigmoid(" SUM_7 ")))"},
     .fits = sigmoid_fits,
     .build = build_gelu_tanh},
    {.name = "GELU (tanh)",
     .spellings = {"L1(mul(L2(x), sigmoid(" PRODUCT ")))",
                   "L1(mul(L2(x), sigmoid(" PRODUCT_7 ")))"},
     .fits = sigmoid_factored_fits,
     .build = build_gelu_tanh},
    {.name = "GELU (quick)",
     .spellings = {"mul(x, sigmoid(L4(x)))"},
     .fits = quick_fits,
     .build = build_quick},
    {.name = "SiLU",
     .spellings = {"mul(x, sigmoid(L4(x)))"},
     .fits = silu_fits,
     .build = build_silu},
    {.name = "SiLU",
     .spellings = {"div(x, L1(exp(L2(x))))"},
     .fits = silu_by_exp_fits,
     .build = build_silu},
    {.name = "SwiGLU", .spellings = {"mul(silu(a), b)"}, .fits = gate_fits, .build = build_swiglu},
    {.name = "GeGLU", .spellings = {"mul(gelu@1(a), b)"}, .fits = gate_fits, .build = build_geglu},
    {.name = "stochastic depth",
     .spellings = {"mul(x, L1(drop_path@2(o)))"},
     .fits = drop_fits,
     .build = build_drop},
    {0},
};

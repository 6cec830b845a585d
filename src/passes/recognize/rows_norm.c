/* rows_norm.c - layer norm and RMS norm.
 *
 * The normalization itself is one row; later rows merge a weight and a bias that follow, so each
 * row has few spellings. */
#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"

static int64_t width_of(const tutti_value *x) {
    const tutti_shape *s = &x->type.shape;
    return s->n_dims > 0 ? s->dim[s->n_dims - 1] : 0;
}

/* One number for each element of a row of x, the same for all rows and samples. */
static bool is_row_of(const tti_match *m, const tutti_value *w, const tutti_value *x) {
    return w->type.dtype == TUTTI_F32 && width_of(w) == width_of(x) &&
           tti_value_n_elems(w) == width_of(x) && !m->scene->of_input[w->id];
}

/* ---- the normalization ---- */

/* L1: mean of squares plus eps; M2: its mean; L3, M4: the mean; w: a weight. */
static bool norm_fits(tti_match *m) {
    const tutti_value *x = TTI_VAR(m, 'x'), *w = TTI_VAR(m, 'w');
    if (x->type.dtype != TUTTI_F32 || width_of(x) < 1) return false;
    if (!tti_shape_equal(&x->type.shape, &m->root->out[0]->type.shape)) return false;
    if (w && !is_row_of(m, w, x)) return false;
    return tti_close_to(m->factor[1] * m->factor[2], 1) && m->shift[1] > 0;
}

static bool layer_norm_fits(tti_match *m) {
    return norm_fits(m) && tti_close_to(m->factor[3] * m->factor[4], 1) && m->shift[3] == 0;
}

/* L1 of the variance as a whole; L5, M6: the mean of x^2; K7: the least variance. */
static bool difference_fits(tti_match *m) {
    tti_match as_mean = *m;
    as_mean.factor[2] = 1;
    return layer_norm_fits(&as_mean) && tti_close_to(m->factor[5] * m->factor[6], 1) &&
           m->shift[5] == 0 && m->factor[7] == 0;
}

static tutti_value *vector_of(tti_rewrite *rw, tutti_value *w) {
    return tti_new_reshape(rw, w, &TUTTI_SHAPE(w ? tti_value_n_elems(w) : 0));
}

static tutti_value *build_norm(tti_rewrite *rw, const tti_match *m, const char *op) {
    const tutti_value *x = TTI_VAR(m, 'x'), *w = TTI_VAR(m, 'w');
    tutti_value *weight =
        w ? vector_of(rw, tti_mapped(rw, w))
          : tutti_constant(tti_new_graph(rw), TUTTI_F32, &TUTTI_SHAPE(width_of(x)), 1);
    return tti_emit(tti_new_graph(rw), op, NULL, (tutti_value *[]){tti_mapped(rw, x), weight}, 2,
                    (tti_attr_arg[]){TTI_FLOAT("eps", m->shift[1]), {0}});
}

static tutti_value *build_layer_norm(tti_rewrite *rw, const tti_match *m) {
    return build_norm(rw, m, "layer_norm");
}

static tutti_value *build_rms_norm(tti_rewrite *rw, const tti_match *m) {
    return build_norm(rw, m, "rms_norm");
}

/* ---- weight and bias ---- */

static bool weight_fits(tti_match *m) {
    double g;
    return is_row_of(m, TTI_VAR(m, 'w'), TTI_VAR(m, 'x')) &&
           tti_is_uniform(m->scene, TTI_VAR(m, 'g'), &g) && g == 1;
}

static bool bias_fits(tti_match *m) { return is_row_of(m, TTI_VAR(m, 'b'), TTI_VAR(m, 'x')); }

/* The norm of the match with another weight, or with a bias. */
static tutti_value *build_again(tti_rewrite *rw, const tti_match *m) {
    const tti_node *norm = m->node[1];
    const tutti_value *w = TTI_VAR(m, 'w'), *b = TTI_VAR(m, 'b');
    tutti_value *in[3] = {tti_mapped(rw, norm->in[0])};
    in[1] = w ? vector_of(rw, tti_mapped(rw, w)) : tti_mapped(rw, norm->in[1]);
    if (b) in[2] = vector_of(rw, tti_mapped(rw, b));
    return tti_emit(tti_new_graph(rw), norm->op->name, norm->name, in, b ? 3 : 2,
                    (tti_attr_arg[]){TTI_FLOAT("eps", tti_attr_float(norm, "eps")), {0}});
}

#define CENTRED "sub(x, L3(M4(x)))"
#define VARIANCE "L1(M2(sq(" CENTRED ")))"
#define DIFFERENCE "sub(L5(M6(sq(x))), sq(L3(M4(x))))"

const tti_row tti_rows_norm[] = {
    {.name = "layer norm",
     .spellings = {"mul(" CENTRED ", rsqrt(" VARIANCE "))", "div(" CENTRED ", sqrt(" VARIANCE "))",
                   "mul(" CENTRED ", mul(rsqrt(" VARIANCE "), w))"},
     .fits = layer_norm_fits,
     .build = build_layer_norm},
    {.name = "layer norm",
     .spellings = {"mul(" CENTRED ", rsqrt(L1(" DIFFERENCE ")))",
                   "div(" CENTRED ", sqrt(L1(" DIFFERENCE ")))",
                   "mul(" CENTRED ", mul(rsqrt(L1(" DIFFERENCE ")), w))",
                   "mul(" CENTRED ", rsqrt(L1(maximum(" DIFFERENCE ", K7))))",
                   "mul(" CENTRED ", mul(rsqrt(L1(maximum(" DIFFERENCE ", K7))), w))"},
     .fits = difference_fits,
     .build = build_layer_norm},
    {.name = "RMS norm",
     .spellings = {"mul(x, rsqrt(L1(M2(sq(x)))))", "div(x, sqrt(L1(M2(sq(x)))))",
                   "mul(x, mul(rsqrt(L1(M2(sq(x)))), w))"},
     .fits = norm_fits,
     .build = build_rms_norm},
    {.spellings = {"mul(layer_norm@1(x, g), w)", "mul(rms_norm@1(x, g), w)"},
     .fits = weight_fits,
     .build = build_again},
    {.spellings = {"add(layer_norm@1(x, g), b)"}, .fits = bias_fits, .build = build_again},
    {0},
};

/* recognize_test.c - each pattern in several spellings, with the same results and gradients as
 * before; and near misses, which stay as they are. */
#include "passes/recognize/patterns.h"

static V *row(G *g, const char *name) { return weights(g, name, &TUTTI_SHAPE(K)); }

/* ---- layer norm ---- */

static V *centred(G *g, V *x) { return sub(g, x, mean(g, x, -1)); }
static V *variance(G *g, V *x) { return mean(g, tutti_square(g, centred(g, x)), -1); }

static V *norm_plain(G *g, V *x) {
    return over(g, centred(g, x), tutti_sqrt(g, affine(g, variance(g, x), 1, 1e-5)));
}
static V *norm_full(G *g, V *x) {
    V *y = mul(g, centred(g, x), rsqrt(g, affine(g, variance(g, x), 1, 1e-5)));
    return add(g, mul(g, row(g, "w"), y), row(g, "b"));
}
static V *norm_by_pow(G *g, V *x) {
    V *d = centred(g, x), *v = mean(g, power(g, d, 2), 2);
    V *y = mul(g, power(g, add(g, v, number(g, 1e-3)), -0.5), d);
    return add(g, row(g, "b"), mul(g, y, row(g, "w")));
}
static V *norm_by_sum(G *g, V *x) {
    V *d = sub(g, x, over(g, total(g, x, -1), number(g, K)));
    V *v = affine(g, total(g, mul(g, d, d), -1), 1.0 / K, 1e-5);
    return mul(g, over(g, d, tutti_sqrt(g, v)), row(g, "w"));
}
static V *norm_by_difference(G *g, V *x) {
    V *m = mean(g, x, -1), *v = sub(g, mean(g, tutti_square(g, x), -1), mul(g, m, m));
    V *scale = mul(g, rsqrt(g, affine(g, tutti_maximum(g, v, number(g, 0)), 1, 1e-5)), row(g, "w"));
    return add(g, mul(g, sub(g, x, m), scale), row(g, "b"));
}
static V *norm_wrong_axis(G *g, V *x) {
    V *d = sub(g, x, mean(g, x, 1));
    return over(g, d, tutti_sqrt(g, affine(g, mean(g, tutti_square(g, d), 1), 1, 1e-5)));
}
static V *norm_mixed_axes(G *g, V *x) {
    V *d = sub(g, x, mean(g, x, 1));
    return over(g, d, tutti_sqrt(g, affine(g, mean(g, tutti_square(g, d), -1), 1, 1e-5)));
}
static V *norm_eps_outside(G *g, V *x) {
    return over(g, centred(g, x), affine(g, tutti_sqrt(g, variance(g, x)), 1, 1e-5));
}
static V *norm_no_eps(G *g, V *x) { return over(g, centred(g, x), tutti_sqrt(g, variance(g, x))); }
static V *norm_unbiased(G *g, V *x) {
    V *v = affine(g, total(g, tutti_square(g, centred(g, x)), -1), 1.0 / (K - 1), 1e-5);
    return over(g, centred(g, x), tutti_sqrt(g, v));
}
static V *norm_of_two(G *g, V *x) { /* the variance is another value's */
    V *v = variance(g, tutti_tanh(g, x));
    return over(g, centred(g, x), tutti_sqrt(g, affine(g, v, 1, 1e-5)));
}
static V *norm_used_elsewhere(G *g, V *x) {
    V *d = centred(g, x), *v = mean(g, tutti_square(g, d), -1);
    return add(g, over(g, d, tutti_sqrt(g, affine(g, v, 1, 1e-5))), tutti_tanh(g, v));
}

/* ---- RMS norm ---- */

static V *rms(G *g, V *x) { return rsqrt(g, affine(g, mean(g, tutti_square(g, x), -1), 1, 1e-6)); }
static V *rms_plain(G *g, V *x) { return mul(g, row(g, "w"), mul(g, x, rms(g, x))); }
static V *rms_one_plus(G *g, V *x) {
    return mul(g, mul(g, x, rms(g, x)), affine(g, row(g, "w"), 1, 1));
}
static V *rms_by_div(G *g, V *x) {
    V *m = add(g, mean(g, mul(g, x, x), -1), number(g, 1e-6));
    return mul(g, over(g, x, tutti_sqrt(g, m)), row(g, "w"));
}
static V *rms_weight_first(G *g, V *x) { return mul(g, x, mul(g, rms(g, x), row(g, "w"))); }
static V *rms_of_another(G *g, V *x) { return mul(g, tutti_tanh(g, x), rms(g, x)); }
static V *rms_over_positions(G *g, V *x) {
    V *m = affine(g, mean(g, tutti_square(g, x), 1), 1, 1e-6);
    return mul(g, x, rsqrt(g, m));
}
static V *rms_weight_per_position(G *g, V *x) { /* the norm is one, the weight is not its own */
    return mul(g, mul(g, x, rms(g, x)), weights(g, "w", &TUTTI_SHAPE(T, 1)));
}

/* ---- activations ---- */

static const double s12 = 0.70710678118654752440, s2p = 0.79788456080286535588;

static V *gelu_a(G *g, V *x) {
    return mul(g, affine(g, x, 0.5, 0), affine(g, tutti_erf(g, affine(g, x, s12, 0)), 1, 1));
}
static V *gelu_b(G *g, V *x) {
    V *e = add(g, number(g, 1), tutti_erf(g, over(g, x, number(g, 1.4142135623730951))));
    return mul(g, number(g, 0.5), mul(g, e, x));
}
static V *gelu_c(G *g, V *x) {
    return mul(g, affine(g, tutti_erf(g, affine(g, x, s12, 0)), 0.5, 0.5), x);
}
static V *gelu_wrong_constant(G *g, V *x) {
    return mul(g, affine(g, x, 0.5, 0), affine(g, tutti_erf(g, affine(g, x, 0.7071, 0)), 1, 1));
}
static V *gelu_of_two(G *g, V *x) {
    V *e = affine(g, tutti_erf(g, affine(g, x, s12, 0)), 1, 1);
    return mul(g, affine(g, tutti_tanh(g, x), 0.5, 0), e);
}
static V *gelu_without_one(G *g, V *x) {
    return mul(g, affine(g, x, 0.5, 0), tutti_erf(g, affine(g, x, s12, 0)));
}
static V *tanh_a(G *g, V *x) {
    V *cube = mul(g, x, mul(g, x, x));
    V *in = affine(g, add(g, x, affine(g, cube, 0.044715, 0)), s2p, 0);
    return mul(g, affine(g, x, 0.5, 0), affine(g, tutti_tanh(g, in), 1, 1));
}
static V *tanh_b(G *g, V *x) {
    V *in = affine(g, add(g, x, affine(g, power(g, x, 3), 0.044715, 0)), s2p, 0);
    return affine(g, mul(g, x, affine(g, tutti_tanh(g, in), 1, 1)), 0.5, 0);
}
static V *tanh_c(G *g, V *x) {
    V *in = mul(g, affine(g, x, s2p, 0), affine(g, tutti_square(g, x), 0.044715, 1));
    return mul(g, x, affine(g, affine(g, tutti_tanh(g, in), 1, 1), 0.5, 0));
}
static V *tanh_d(G *g, V *x) { /* by a sigmoid */
    V *in = add(g, x, affine(g, mul(g, mul(g, x, x), x), 0.044715, 0));
    return mul(g, x, tutti_sigmoid(g, affine(g, in, 2 * s2p, 0)));
}
static V *tanh_e(G *g, V *x) { /* 0.044715 x times x */
    V *in = mul(g, affine(g, x, s2p, 0), affine(g, mul(g, affine(g, x, 0.044715, 0), x), 1, 1));
    return mul(g, affine(g, x, 0.5, 0), affine(g, tutti_tanh(g, in), 1, 1));
}
static V *tanh_wrong_constant(G *g, V *x) {
    V *in = affine(g, add(g, x, affine(g, power(g, x, 3), 0.0447, 0)), s2p, 0);
    return mul(g, affine(g, x, 0.5, 0), affine(g, tutti_tanh(g, in), 1, 1));
}
static V *tanh_square(G *g, V *x) {
    V *in = affine(g, add(g, x, affine(g, power(g, x, 2), 0.044715, 0)), s2p, 0);
    return mul(g, affine(g, x, 0.5, 0), affine(g, tutti_tanh(g, in), 1, 1));
}
static V *quick(G *g, V *x) { return mul(g, x, tutti_sigmoid(g, affine(g, x, 1.702, 0))); }
static V *quick_wrong(G *g, V *x) { return mul(g, x, tutti_sigmoid(g, affine(g, x, 1.7, 0))); }
static V *silu_a(G *g, V *x) { return mul(g, tutti_sigmoid(g, x), x); }
static V *silu_b(G *g, V *x) {
    return over(g, x, affine(g, tutti_exp(g, affine(g, x, -1, 0)), 1, 1));
}
static V *silu_shifted(G *g, V *x) { return mul(g, x, tutti_sigmoid(g, affine(g, x, 1, 0.5))); }
static V *gate(G *g, V *x, V *(*act)(G *g, V *x)) {
    const tutti_linear_desc layer = {.n_out = 5, .no_bias = true};
    V *a = tutti_linear_with(g, x, &layer, "gate"), *b = tutti_linear_with(g, x, &layer, "up");
    return mul(g, act(g, a), b);
}
static V *swiglu_a(G *g, V *x) { return gate(g, x, tutti_silu); }
static V *swiglu_b(G *g, V *x) { return gate(g, x, silu_a); }
static V *swiglu_halves(G *g, V *x) {
    V *y = tutti_linear(g, x, 10, "both");
    return mul(g, tutti_silu(g, tutti_slice(g, y, 2, 0, 5)), tutti_slice(g, y, 2, 5, 5));
}
static V *geglu_a(G *g, V *x) { return gate(g, x, tutti_gelu); }
static V *geglu_tanh(G *g, V *x) { return gate(g, x, tanh_a); }
static V *geglu_halves(G *g, V *x) {
    V *y = tutti_linear(g, x, 10, "both");
    return mul(g, tutti_slice(g, y, 2, 5, 5), tutti_gelu(g, tutti_slice(g, y, 2, 0, 5)));
}
static V *geglu_of_two(G *g, V *x) { /* layers of two inputs */
    V *a = tutti_linear(g, x, 5, "gate"), *b = tutti_linear(g, tutti_tanh(g, x), 5, "up");
    return mul(g, tutti_gelu(g, a), b);
}
static V *swiglu_swapped(G *g, V *x) { /* the gate is the second half */
    V *y = tutti_linear(g, x, 10, "both");
    return mul(g, tutti_silu(g, tutti_slice(g, y, 2, 5, 5)), tutti_slice(g, y, 2, 0, 5));
}
static V *swiglu_broadcast(G *g, V *x) {
    V *a = tutti_linear(g, x, 5, "gate"), *b = tutti_linear(g, x, 1, "up");
    return mul(g, tutti_silu(g, a), b);
}

/* ---- softmax ---- */

static V *softmax_a(G *g, V *x) {
    V *e = tutti_exp(g, sub(g, x, largest(g, x, -1)));
    return over(g, e, total(g, e, -1));
}
static V *softmax_other_axis(G *g, V *x) {
    V *e = tutti_exp(g, sub(g, x, largest(g, x, -1)));
    return over(g, e, total(g, e, 1));
}
static V *log_softmax_a(G *g, V *x) { return tutti_log(g, tutti_softmax(g, x, -1)); }
static V *log_softmax_b(G *g, V *x) {
    V *d = sub(g, x, largest(g, x, -1));
    return sub(g, d, tutti_log(g, total(g, tutti_exp(g, d), -1)));
}

/* ---- rotary positions ---- */

typedef struct turn {
    double base, stretch;
    int64_t width; /* of the tables */
    bool swapped, positions_first;
} turn;

static void tables_of(G *g, const turn *r, V **cos_table, V **sin_table) {
    float c[T * D], s[T * D];
    for (int t = 0; t < T; t++)
        for (int64_t i = 0; i < r->width; i++) {
            double angle = t * r->stretch * pow(r->base, -2.0 * (double)(i % (D / 2)) / D);
            c[t * r->width + i] = cosf((float)angle), s[t * r->width + i] = sinf((float)angle);
        }
    tutti_shape shape =
        r->positions_first ? TUTTI_SHAPE(1, T, 1, r->width) : TUTTI_SHAPE(1, 1, T, r->width);
    *cos_table = tutti_constant_array(g, TUTTI_F32, &shape, c);
    *sin_table = tutti_constant_array(g, TUTTI_F32, &shape, s);
}

static V *rotate(G *g, V *x, const turn *r) {
    V *c, *s;
    tables_of(g, r, &c, &s);
    V *a = tutti_slice(g, x, 3, 0, D / 2), *b = tutti_slice(g, x, 3, D / 2, D / 2);
    V *turned = r->swapped ? tutti_concat(g, (V *[]){b, tutti_neg(g, a)}, 2, 3)
                           : tutti_concat(g, (V *[]){tutti_neg(g, b), a}, 2, 3);
    return add(g, mul(g, x, c), mul(g, turned, s));
}

static V *rotate_halves(G *g, V *x, const turn *r) {
    V *c, *s;
    tables_of(g, r, &c, &s);
    V *a = tutti_slice(g, x, 3, 0, D / 2), *b = tutti_slice(g, x, 3, D / 2, D / 2);
    V *y[2] = {sub(g, mul(g, a, c), mul(g, b, s)), add(g, mul(g, s, a), mul(g, b, c))};
    return tutti_concat(g, y, 2, 3);
}

static V *as_heads(G *g, V *x) {
    return tutti_reshape(g, heads_of(g, x, H, "q"), &TUTTI_SHAPE(B, H, T, D));
}

static V *turn_a(G *g, V *x) {
    return rotate(g, as_heads(g, x), &(turn){.base = 10000, .stretch = 1, .width = D});
}
static V *turn_b(G *g, V *x) {
    return rotate_halves(g, as_heads(g, x), &(turn){.base = 500, .stretch = 1, .width = D / 2});
}
static V *turn_positions_first(G *g, V *x) {
    V *y = tutti_transpose(g, as_heads(g, x), 1, 2);
    return rotate(g, y, &(turn){.base = 10000, .stretch = 1, .width = D, .positions_first = true});
}
static V *turn_stretched(G *g, V *x) {
    return rotate(g, as_heads(g, x), &(turn){.base = 10000, .stretch = 0.5, .width = D});
}
static V *turn_back(G *g, V *x) { /* the other direction */
    return rotate(g, as_heads(g, x),
                  &(turn){.base = 10000, .stretch = 1, .width = D, .swapped = true});
}

/* ---- cross entropy ---- */

static V *labels_of(G *g) { return tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(B * T)); }
static V *as_rows(G *g, V *x) { return tutti_reshape(g, x, &TUTTI_SHAPE(B * T, K)); }

static V *entropy_picked(G *g, V *x) {
    V *l = tutti_log_softmax(g, as_rows(g, x), -1);
    V *at = tutti_reshape(g, labels_of(g), &TUTTI_SHAPE(B * T, 1));
    return tutti_neg(g, tutti_mean(g, tutti_take_along(g, l, at, 1), NULL));
}
static V *entropy_of_views(G *g, V *x) { /* the rows are joined after the logarithm */
    V *l = as_rows(g, tutti_log_softmax(g, x, -1));
    V *at = tutti_reshape(g, labels_of(g), &TUTTI_SHAPE(B * T, 1));
    return tutti_neg(g, tutti_mean(g, tutti_take_along(g, l, at, 1), NULL));
}
static V *log_sum(G *g, V *x) {
    V *top = tutti_stop_gradient(g, largest(g, x, -1));
    return add(g, tutti_log(g, total(g, tutti_exp(g, sub(g, x, top)), -1)), top);
}
static V *picked_of(G *g, V *x) {
    return tutti_take_along(g, x, tutti_reshape(g, labels_of(g), &TUTTI_SHAPE(B, T, 1)), 2);
}
static V *entropy_by_sums(G *g, V *x) {
    V *e = sub(g, log_sum(g, x), picked_of(g, x));
    return tutti_mean(g, tutti_reshape(g, e, &TUTTI_SHAPE(B, T)), NULL);
}
static V *entropy_negative(G *g, V *x) {
    return tutti_sum(g, tutti_neg(g, sub(g, picked_of(g, x), log_sum(g, x))), NULL);
}
static V *entropy_of_two(G *g, V *x) { /* another value's element */
    return tutti_mean(g, sub(g, log_sum(g, x), picked_of(g, tutti_tanh(g, x))), NULL);
}
static V *sum_of_source(G *g, V *x) { /* nothing lies before it */
    return add(g, tutti_sum(g, row(g, "w"), NULL), tutti_sum(g, tutti_tanh(g, x), NULL));
}
static V *entropy_one_hot(G *g, V *x) {
    V *l = tutti_log(g, tutti_softmax(g, as_rows(g, x), -1));
    V *p = mul(g, tutti_one_hot(g, labels_of(g), K), l);
    return tutti_sum(g, tutti_neg(g, tutti_sum(g, p, &(tutti_axes){.n = 1, .axis = {1}})), NULL);
}
static V *entropy_kept(G *g, V *x) { /* rows with label 2 do not count */
    V *l = tutti_log_softmax(g, as_rows(g, x), -1), *label = labels_of(g);
    V *at = tutti_reshape(g, label, &TUTTI_SHAPE(B * T, 1));
    V *is_two = tutti_equal(g, tutti_cast(g, label, TUTTI_F32), number(g, 2));
    V *kept = tutti_reshape(g, affine(g, is_two, -1, 1), &TUTTI_SHAPE(B * T, 1));
    return tutti_sum(g, mul(g, tutti_neg(g, tutti_take_along(g, l, at, 1)), kept), NULL);
}
static V *entropy_weighted(G *g, V *x) {
    V *l = tutti_log_softmax(g, as_rows(g, x), -1);
    V *at = tutti_reshape(g, labels_of(g), &TUTTI_SHAPE(B * T, 1));
    V *w = weights(g, "w", &TUTTI_SHAPE(B * T, 1));
    return tutti_sum(g, mul(g, tutti_neg(g, tutti_take_along(g, l, at, 1)), w), NULL);
}
static V *entropy_other_axis(G *g, V *x) {
    V *l = tutti_log_softmax(g, as_rows(g, x), 0);
    V *at = tutti_reshape(g, labels_of(g), &TUTTI_SHAPE(B * T, 1));
    return tutti_neg(g, tutti_sum(g, tutti_take_along(g, l, at, 1), NULL));
}
static V *rows_of_table(G *g, V *x) { /* positions 1 .. T, looked up */
    int32_t ids[T];
    for (int i = 0; i < T; i++) ids[i] = i + 1;
    V *at = tutti_constant_array(g, TUTTI_I32, &TUTTI_SHAPE(1, T), ids);
    return add(g, x, tutti_lookup(g, weights(g, "table", &TUTTI_SHAPE(T + 2, K)), at));
}
static V *rows_in_another_order(G *g, V *x) {
    int32_t ids[T];
    for (int i = 0; i < T; i++) ids[i] = T - i;
    V *at = tutti_constant_array(g, TUTTI_I32, &TUTTI_SHAPE(1, T), ids);
    return add(g, x, tutti_lookup(g, weights(g, "table", &TUTTI_SHAPE(T + 2, K)), at));
}
static V *entropy_head(G *g, V *x) {
    V *y = tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = K, .no_bias = true}, "head");
    return tutti_cross_entropy(g, as_rows(g, y), labels_of(g), 0, -1).sum;
}

/* ---- stochastic depth: a number for each sample, as imports make it ---- */

static V *drawn(G *g, V *x, double one, double p) {
    V *ones = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(x->type.shape.dim[0], 1, 1), one);
    return tutti_drop_path(g, ones, p, "drop");
}
static V *depth(G *g, V *x) {
    V *mask = affine(g, drawn(g, x, 1, 0.25), 0.75, 0);
    return add(g, x, mul(g, tutti_tanh(g, x), over(g, mask, number(g, 0.75))));
}
static V *depth_unscaled(G *g, V *x) {
    return add(g, x, mul(g, affine(g, drawn(g, x, 1, 0.25), 0.75, 0), tutti_tanh(g, x)));
}
static V *depth_of_twos(G *g, V *x) { return mul(g, tutti_tanh(g, x), drawn(g, x, 2, 0.25)); }
static V *depth_shifted(G *g, V *x) {
    return mul(g, tutti_tanh(g, x), affine(g, drawn(g, x, 1, 0.25), 1, 0.5));
}

/* ---- the cases ---- */

static const pattern_case cases[] = {
    {"norm_plain", norm_plain, "layer_norm", "sqrt"},
    {"depth", depth, "drop_path", "mul"},
    {"depth_unscaled", depth_unscaled, "drop_path", "mul"},
    {"depth_of_twos", depth_of_twos, NULL, NULL},
    {"depth_shifted", depth_shifted, NULL, NULL},
    {"norm_full", norm_full, "layer_norm", "add"},
    {"norm_by_pow", norm_by_pow, "layer_norm", "mul"},
    {"norm_by_sum", norm_by_sum, "layer_norm", "mul"},
    {"norm_by_difference", norm_by_difference, "layer_norm", "mul"},
    {"norm_wrong_axis", norm_wrong_axis, NULL, NULL},
    {"norm_mixed_axes", norm_mixed_axes, "rms_norm", "layer_norm"}, /* of what is centred */
    {"norm_eps_outside", norm_eps_outside, NULL, NULL},
    {"norm_no_eps", norm_no_eps, NULL, NULL},
    {"norm_unbiased", norm_unbiased, NULL, NULL},
    {"norm_of_two", norm_of_two, NULL, NULL},
    {"norm_used_elsewhere", norm_used_elsewhere, NULL, NULL},
    {"rms_plain", rms_plain, "rms_norm", "mul"},
    {"rms_one_plus", rms_one_plus, "rms_norm", "mul"},
    {"rms_by_div", rms_by_div, "rms_norm", "mul"},
    {"rms_weight_first", rms_weight_first, "rms_norm", "mul"},
    {"rms_of_another", rms_of_another, NULL, NULL},
    {"rms_over_positions", rms_over_positions, NULL, NULL},
    {"rms_weight_per_position", rms_weight_per_position, "mul", "sqrt"},
    {"gelu_a", gelu_a, "gelu", "mul"},
    {"gelu_b", gelu_b, "gelu", "mul"},
    {"gelu_c", gelu_c, "gelu", "mul"},
    {"gelu_wrong_constant", gelu_wrong_constant, NULL, NULL},
    {"gelu_of_two", gelu_of_two, NULL, NULL},
    {"gelu_without_one", gelu_without_one, NULL, NULL},
    {"tanh_a", tanh_a, "gelu", "tanh"},
    {"tanh_b", tanh_b, "gelu", "tanh"},
    {"tanh_c", tanh_c, "gelu", "tanh"},
    {"tanh_d", tanh_d, "gelu", "sigmoid"},
    {"tanh_e", tanh_e, "gelu", "tanh"},
    {"tanh_wrong_constant", tanh_wrong_constant, NULL, NULL},
    {"tanh_square", tanh_square, NULL, NULL},
    {"quick", quick, "silu", "sigmoid"},
    {"quick_wrong", quick_wrong, NULL, NULL},
    {"silu_a", silu_a, "silu", "mul"},
    {"silu_b", silu_b, "silu", "div"},
    {"silu_shifted", silu_shifted, NULL, NULL},
    {"swiglu_a", swiglu_a, "swiglu", "mul"},
    {"swiglu_b", swiglu_b, "swiglu", "mul"},
    {"swiglu_halves", swiglu_halves, "swiglu", "slice"},
    {"swiglu_swapped", swiglu_swapped, NULL, NULL},
    {"geglu_a", geglu_a, "geglu", "mul"},
    {"geglu_tanh", geglu_tanh, "geglu", "gelu"},
    {"geglu_halves", geglu_halves, "geglu", "slice"},
    {"geglu_of_two", geglu_of_two, NULL, NULL},
    {"swiglu_broadcast", swiglu_broadcast, NULL, NULL},
    {"softmax_a", softmax_a, "softmax", "div"},
    {"softmax_other_axis", softmax_other_axis, "softmax", "div"}, /* of what is less the maximum */
    {"log_softmax_a", log_softmax_a, "log_softmax", "softmax"},
    {"log_softmax_b", log_softmax_b, "log_softmax", "sub"},
    {"turn_a", turn_a, "rotary", "mul"},
    {"turn_b", turn_b, "rotary", "concat"},
    {"turn_positions_first", turn_positions_first, "rotary", "transpose"},
    {"turn_stretched", turn_stretched, "neg", "rotary"},
    {"turn_back", turn_back, "neg", "rotary"},
    {"entropy_picked", entropy_picked, "cross_entropy", "log_softmax"},
    {"entropy_one_hot", entropy_one_hot, "cross_entropy", "one_hot"},
    {"entropy_of_views", entropy_of_views, "cross_entropy", "log_softmax"},
    {"entropy_by_sums", entropy_by_sums, "cross_entropy", "exp"},
    {"entropy_negative", entropy_negative, "cross_entropy", "exp"},
    {"entropy_of_two", entropy_of_two, NULL, NULL},
    {"sum_of_source", sum_of_source, NULL, NULL},
    {"entropy_kept", entropy_kept, "cross_entropy", "log_softmax"},
    {"entropy_weighted", entropy_weighted, NULL, NULL},
    {"entropy_other_axis", entropy_other_axis, NULL, NULL},
    {"rows_of_table", rows_of_table, "slice", "embedding"},
    {"rows_in_another_order", rows_in_another_order, NULL, NULL},
    {"entropy_head", entropy_head, "matmul", "linear"},
};

T_CASE(patterns_become_ops_and_near_misses_stay) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check_case(&cases[i], true);
}

T_CASE(evaluation_has_the_same_results) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check_case(&cases[i], false);
}

/* What the samples go through can still be divided over workers. */
T_CASE(the_batch_stays_in_front) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    V *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(B, T, K));
    V *y = attention(g, x, &(spelled){.s_scale = 0.4, .flat = true});
    y = tutti_matmul(g, y, weights(g, "w", &TUTTI_SHAPE(H * D, H * D)));
    y = rotate(g, tutti_transpose(g, tutti_reshape(g, y, &TUTTI_SHAPE(B, T, H, D)), 1, 2),
               &(turn){.base = 10000, .stretch = 1, .width = D});
    tutti_output(g, "loss_sum", tutti_sum(g, tutti_square(g, y), NULL));
    T_OK(tti_recognize(&g, NULL));
    T_EQ(net_count_ops(g, "attention"), 1);
    T_EQ(net_count_ops(g, "rotary"), 1);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_OK(tti_pass_split(&g, &net_plain));
    tutti_graph_destroy(g);
}

/* A scale that is computed from the samples is no weight of a norm, whatever its shape. */
T_CASE(a_weight_of_the_samples_is_no_weight) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    V *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, K));
    V *y = norm_plain(g, tutti_matmul(g, x, weights(g, "w", &TUTTI_SHAPE(K, K))));
    tutti_output(g, "loss_sum", tutti_sum(g, mul(g, y, tutti_tanh(g, x)), NULL));
    T_OK(tti_recognize(&g, NULL));
    T_EQ(net_count_ops(g, "layer_norm"), 1);
    T_EQ(net_count_ops(g, "mul"), 1);
    tutti_graph_destroy(g);
}

/* ---- the report ---- */

T_CASE(the_report_counts_by_module) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    V *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(B, T, K));
    char name[3][32];
    for (int i = 0; i < 3; i++) {
        snprintf(name[0], sizeof name[0], "h.%d.act", i);
        tutti_graph_set_module(g, name[0]);
        x = gelu_a(g, x);
    }
    tutti_graph_set_module(g, "last.attn");
    x = attention(g, x, &(spelled){.s_scale = -0.4});
    tutti_output(g, "y", x);
    tti_str out = {0};
    T_OK(tti_recognize_report(&g, B, &out));
    assert_string_equal(tti_str_text(&out),
                        "recognized and replaced by one operation each:\n"
                        "      3  GELU  h.*.act\n"
                        "not recognized, computed as written:\n"
                        "      1  attention  last.attn: the scale is not positive; 256 more bytes "
                        "per sample\n");
    tti_str_free(&out);
    tutti_graph_destroy(g);
}

T_CASE(the_report_says_why) {
    T_UNUSED;
    static const struct {
        V *(*build)(G *g, V *x);
        const char *why;
    } rows[] = {
        {norm_wrong_axis, ""}, /* of parameters alone */
        {turn_stretched, "its angles do not follow from one base, or are not constant"},
        {entropy_weighted, "its rows are weighted or not summed"},
        {gelu_wrong_constant, "its constants are not those of GELU"},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_findings found;
        assert_string_equal(why_of(rows[i].build, &found), rows[i].why);
        tti_findings_fini(&found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_become_ops_and_near_misses_stay),
        cmocka_unit_test(evaluation_has_the_same_results),
        cmocka_unit_test(the_batch_stays_in_front),
        cmocka_unit_test(a_weight_of_the_samples_is_no_weight),
        cmocka_unit_test(the_report_counts_by_module),
        cmocka_unit_test(the_report_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* aten_divide.c - integer quotients and remainders. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* ---- on the host ---- */

double tti_floor_remainder(double x, double y) {
    double rest = fmod(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

double tti_floor_quotient(double x, double y) {
    double rest = tti_floor_remainder(x, y);
    return isfinite(x / y) ? round((x - rest) / y) : x / y;
}

static double cut_quotient(double x, double y) { return trunc(x / y); }

/* ---- in the graph ---- */

static tutti_value *less_than_0(tutti_graph *g, tutti_value *x) {
    return tutti_less(g, x, tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0));
}

/* Truncates towards zero, without a gradient. */
static tutti_value *cut(tutti_graph *g, tutti_value *x) {
    return tutti_mul(g, tutti_sign(g, x), tutti_floor(g, tutti_abs(g, x)));
}

/* x with the upper 12 bits of its fraction. */
static tutti_value *upper_half(tutti_graph *g, tutti_value *x) {
    tutti_value *wide = tutti_affine(g, x, 4097, 0);
    return tutti_sub(g, wide, tutti_sub(g, wide, x));
}

/* Returns x - y q with an exact product y q = p + rounding error (Dekker). */
static tutti_value *exact_rest(tutti_graph *g, tutti_value *x, tutti_value *y, tutti_value *q) {
    tutti_value *p = tutti_mul(g, y, q);
    tutti_value *y1 = upper_half(g, y), *q1 = upper_half(g, q);
    tutti_value *y2 = tutti_sub(g, y, y1), *q2 = tutti_sub(g, q, q1);
    tutti_value *error = tutti_sub(g, tutti_mul(g, y1, q1), p);
    error = tutti_add(g, error, tutti_mul(g, y1, q2));
    error = tutti_add(g, error, tutti_mul(g, y2, q1));
    error = tutti_add(g, error, tutti_mul(g, y2, q2));
    return tutti_sub(g, tutti_sub(g, x, p), error);
}

/* The integer quotient of floats, rounded down if floors, else towards zero. x / y is rounded, so
 * the first estimate may be off by one and is corrected. */
static tutti_value *whole_quotient(tutti_graph *g, tutti_value *x, tutti_value *y, bool floors) {
    x = tutti_stop_gradient(g, x), y = tutti_stop_gradient(g, y);
    tutti_value *ratio = tutti_div(g, x, y);
    tutti_value *sign = floors ? NULL : tutti_sign(g, ratio);
    if (!floors) /* both are positive, so truncation is floor */
        x = tutti_abs(g, x), y = tutti_abs(g, y), ratio = tutti_abs(g, ratio);
    tutti_value *q = tutti_floor(g, ratio);
    tutti_value *rest = tutti_div(g, exact_rest(g, x, y, q), y);
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    q = tutti_sub(g, q, less_than_0(g, rest));
    q = tutti_add(g, q, tutti_less_equal(g, one, rest));
    return sign ? tutti_mul(g, q, sign) : q;
}

/* The exact x - y q, with PyTorch's gradients 1 and -q. */
static tutti_value *rest_of(tutti_graph *g, tutti_value *x, tutti_value *y, tutti_value *q) {
    tutti_value *rounded = tutti_sub(g, x, tutti_mul(g, y, q));
    tutti_value *exact = exact_rest(g, tutti_stop_gradient(g, x), tutti_stop_gradient(g, y), q);
    return tutti_add(g, rounded, tutti_sub(g, exact, tutti_stop_gradient(g, rounded)));
}

/* self other. f32 represents integers and floors of their quotients exactly. */
static void divide_whole(tti_building *b, const tti_call *c, bool floors, bool is_rest) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    tutti_graph *g = tti_graph_of(b);
    tutti_value *p = tti_compact_value(b, x), *d = tti_compact_value(b, y), *q;
    bool of_floats = tti_elem_is_float(tti_promote(x, y));
    if (of_floats && (floors || is_rest))
        q = whole_quotient(g, p, d, floors);
    else
        q = floors ? tutti_floor(g, tutti_div(g, p, d)) : cut(g, tutti_div(g, p, d));
    if (is_rest) q = of_floats ? rest_of(g, p, d, q) : tutti_sub(g, p, tutti_mul(g, d, q));
    tti_set_pair(b, c->out[0], q, tti_promote(x, y), x, y);
}

static void floor_divide(tti_building *b, const tti_call *c) { divide_whole(b, c, true, false); }
static void remainder_of(tti_building *b, const tti_call *c) { divide_whole(b, c, true, true); }
static void fmod_of(tti_building *b, const tti_call *c) { divide_whole(b, c, false, true); }

static void fold_two(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (tti_good(b)) tti_fold_pair(b, x, y, TTI_ELEM_NONE, tti_row_of(b)->f2, c->out[0]);
}

/* self other rounding_mode */
static void divide_mode(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    const char *mode = tti_has(c, 2) ? tti_text_at(b, c, 2) : "";
    bool floors = strcmp(mode, "floor") == 0, cuts = strcmp(mode, "trunc") == 0;
    if (!tti_good(b)) return;
    if (!floors && !cuts)
        tti_call_row(b, "aten.div.Tensor", (tti_arg[]){*c->arg[0], *c->arg[1]}, 2, c->out, 1);
    else if (tti_on_host(x) && tti_on_host(y))
        tti_fold_pair(b, x, y, TTI_ELEM_NONE, floors ? tti_floor_quotient : cut_quotient,
                      c->out[0]);
    else
        divide_whole(b, c, floors, false);
}

#define PAIR(op, fn, builder)                                                                \
    {                                                                                        \
        .target = "aten." op, .signature = "self other", .build = builder, .fold = fold_two, \
        .f2 = fn                                                                             \
    }

const tti_operator tti_operators_divide[] = {
    PAIR("floor_divide.default", tti_floor_quotient, floor_divide),
    PAIR("floor_divide.Scalar", tti_floor_quotient, floor_divide),
    PAIR("remainder.Scalar", tti_floor_remainder, remainder_of),
    PAIR("remainder.Tensor", tti_floor_remainder, remainder_of),
    PAIR("fmod.Scalar", fmod, fmod_of),
    PAIR("fmod.Tensor", fmod, fmod_of),
    TTI_BOTH("div.Tensor_mode", "self other rounding_mode=None", divide_mode),
    TTI_BOTH("div.Scalar_mode", "self other rounding_mode=None", divide_mode),
    {0},
};

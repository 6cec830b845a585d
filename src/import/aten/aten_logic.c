/* aten_logic.c - comparisons, logic, and selection by masks.
 *
 * A boolean that depends on inputs is f32 in the graph, 0 or 1. */
#include <math.h>

#include "base/error.h"
#include "import/aten/aten.h"

static double f_eq(double x, double y) { return x == y; }
static double f_ne(double x, double y) { return x != y; }
static double f_lt(double x, double y) { return x < y; }
static double f_le(double x, double y) { return x <= y; }
static double f_gt(double x, double y) { return x > y; }
static double f_ge(double x, double y) { return x >= y; }
static double f_and(double x, double y) { return (double)(tti_to_int(x) & tti_to_int(y)); }
static double f_or(double x, double y) { return (double)(tti_to_int(x) | tti_to_int(y)); }
static double f_xor(double x, double y) { return (double)(tti_to_int(x) ^ tti_to_int(y)); }
static double f_logical_and(double x, double y) { return x != 0 && y != 0; }
static double f_logical_or(double x, double y) { return x != 0 || y != 0; }
static double f_logical_xor(double x, double y) { return (x != 0) != (y != 0); }

/* ---- comparisons ---- */

static tutti_value *not_of(tutti_graph *g, tutti_value *x) { return tutti_affine(g, x, -1, 1); }

static tutti_value *differ(tutti_graph *g, tutti_value *x, tutti_value *y) {
    return not_of(g, tutti_equal(g, x, y));
}
static tutti_value *greater(tutti_graph *g, tutti_value *x, tutti_value *y) {
    return tutti_less(g, y, x);
}
static tutti_value *greater_equal(tutti_graph *g, tutti_value *x, tutti_value *y) {
    return tutti_less_equal(g, y, x);
}

static void compare(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    tutti_value *value =
        tti_row_of(b)->b2(tti_graph_of(b), tti_compact_value(b, x), tti_compact_value(b, y));
    tti_set_pair(b, c->out[0], value, TTI_ELEM_BOOL, x, y);
}

static void fold_compare(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (tti_good(b)) tti_fold_pair(b, x, y, TTI_ELEM_BOOL, tti_row_of(b)->f2, c->out[0]);
}

/* ---- logic ---- */

tutti_value *tti_nonzero(tti_building *b, const tti_operand *x) {
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_compact_value(b, x);
    if (tti_elem_of(x) == TTI_ELEM_BOOL) return value;
    return differ(g, value, tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0));
}

static tutti_value *both(tutti_graph *g, tutti_value *x, tutti_value *y) {
    return tutti_mul(g, x, y);
}
static tutti_value *one_of(tutti_graph *g, tutti_value *x, tutti_value *y) {
    return tutti_abs(g, tutti_sub(g, x, y));
}

static void join_truths(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    tutti_value *p = tti_nonzero(b, x), *q = tti_nonzero(b, y);
    tti_set_pair(b, c->out[0], tti_row_of(b)->b2(tti_graph_of(b), p, q), TTI_ELEM_BOOL, x, y);
}

/* integer & boolean: the boolean and the integer's last bit, which is the remainder by 2. */
static void join_last_bit(tti_building *b, const tti_call *c, const tti_operand *x,
                          const tti_operand *truth) {
    tutti_graph *g = tti_graph_of(b);
    tutti_value *whole = tti_compact_value(b, x), *q = tti_nonzero(b, truth);
    tutti_value *halves = tutti_floor(g, tutti_affine(g, whole, 0.5, 0));
    tutti_value *last = tutti_sub(g, whole, tutti_affine(g, halves, 2, 0));
    double (*f)(double, double) = tti_row_of(b)->f2;
    tutti_value *value = tutti_mul(g, last, q);
    if (f == f_or) value = tutti_add(g, whole, tutti_mul(g, q, not_of(g, last)));
    if (f == f_xor) value = tutti_add(g, whole, tutti_mul(g, q, tutti_affine(g, last, -2, 1)));
    tti_set_pair(b, c->out[0], value, tti_elem_of(x), x, truth);
}

/* self other. Bitwise operators on two integers that depend on inputs are not supported. */
static void join_bits(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    bool truths[2] = {tti_elem_of(x) == TTI_ELEM_BOOL, tti_elem_of(y) == TTI_ELEM_BOOL};
    if (tti_elem_is_float(tti_elem_of(x)) || tti_elem_is_float(tti_elem_of(y)))
        tti_refuse(b, "bitwise operations need integers");
    else if (truths[0] && truths[1])
        join_truths(b, c);
    else if (truths[0] || truths[1])
        join_last_bit(b, c, truths[0] ? y : x, truths[0] ? x : y);
    else
        tti_refuse(b, "bits of integers that depend on inputs are not supported");
}

static void fold_bits(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (tti_good(b)) tti_fold_pair(b, x, y, TTI_ELEM_NONE, tti_row_of(b)->f2, c->out[0]);
}

/* Logical not of any type. */
static void logical_not(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_operand zero = {0};
    tti_set_number(&zero, 0, TTI_ELEM_I64, false);
    if (!tti_good(b)) return;
    if (tti_on_host(x))
        tti_fold_pair(b, x, &zero, TTI_ELEM_BOOL, f_eq, c->out[0]);
    else
        tti_set_pair(b, c->out[0], not_of(tti_graph_of(b), tti_nonzero(b, x)), TTI_ELEM_BOOL, x,
                     &zero);
}

/* ~x = -x - 1 for signed integers, 255 - x for uint8. */
static void bitwise_not(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_operand ones = {0};
    tti_elem elem = tti_elem_of(x);
    double all = elem == TTI_ELEM_U8 ? 255 : -1;
    tti_set_number(&ones, all, TTI_ELEM_I64, false);
    if (!tti_good(b)) return;
    if (elem == TTI_ELEM_BOOL)
        logical_not(b, c);
    else if (tti_on_host(x))
        tti_fold_pair(b, x, &ones, elem, f_xor, c->out[0]);
    else
        tti_set_pair(b, c->out[0], tutti_affine(tti_graph_of(b), tti_compact_value(b, x), -1, all),
                     elem, x, &ones);
}

static double f_isnan(double x, double y) { return (void)y, isnan(x); }
static double f_isinf(double x, double y) { return (void)y, isinf(x); }
static double f_isfinite(double x, double y) { return (void)y, isfinite(x); }

static tutti_value *is_nan(tutti_graph *g, tutti_value *x, tutti_value *infinity) {
    return (void)infinity, differ(g, x, x);
}
static tutti_value *is_inf(tutti_graph *g, tutti_value *x, tutti_value *infinity) {
    return tutti_equal(g, tutti_abs(g, x), infinity);
}
static tutti_value *is_finite(tutti_graph *g, tutti_value *x, tutti_value *infinity) {
    return tutti_less(g, tutti_abs(g, x), infinity);
}

static void classify(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    const tti_operator *row = tti_row_of(b);
    tti_operand infinity = {0};
    tti_set_number(&infinity, INFINITY, TTI_ELEM_F64, false);
    if (!tti_good(b)) return;
    if (tti_on_host(x)) {
        tti_fold_pair(b, x, &infinity, TTI_ELEM_BOOL, row->f2, c->out[0]);
        return;
    }
    tutti_value *value = tti_compact_value(b, x), *limit = tti_value_of(b, &infinity);
    tti_set_pair(b, c->out[0], row->b2(tti_graph_of(b), value, limit), TTI_ELEM_BOOL, x, &infinity);
}

/* ---- choosing ---- */

/* condition ? x : y of host tensors and numbers. */
static void choose(tti_building *b, const tti_operand *m, const tti_operand *x,
                   const tti_operand *y, tti_operand *out) {
    tutti_shape sm = tti_shape_of(m), sx = tti_shape_of(x), sy = tti_shape_of(y), shape;
    tti_host made, whole, p = {0}, q = {0}, r; /* a number is used for all elements */
    if (!tti_good(b) || !tti_host_broadcast(b, &sm, &sx, &shape)) return;
    if (!tti_host_broadcast(b, &shape, &sy, &shape)) return;
    p.shape = q.shape = shape;
    if (!tti_host_expand(b, &m->host, &shape, &r)) return;
    if (x->kind == TTI_OPERAND_HOST && !tti_host_expand(b, &x->host, &shape, &p)) return;
    if (y->kind == TTI_OPERAND_HOST && !tti_host_expand(b, &y->host, &shape, &q)) return;
    if (!tti_host_new_like(b, tti_promote(x, y), (tti_host *[]){&r, &p, &q}, 3, &made, &whole))
        return;
    int64_t n = tti_host_n(&made);
    tti_host_walk wm = tti_host_begin(&r), wx = tti_elements(x, &p), wy = tti_elements(y, &q);
    double k[TTI_HOST_GROUP], u[TTI_HOST_GROUP], v[TTI_HOST_GROUP];
    for (int64_t i = 0; i < n; i += TTI_HOST_GROUP) {
        int64_t n_group = TTI_MIN(n - i, TTI_HOST_GROUP);
        tti_host_copy_next(&wm, k, n_group);
        tti_host_copy_next(&wx, u, n_group);
        tti_host_copy_next(&wy, v, n_group);
        for (int64_t j = 0; j < n_group; j++) made.data[i + j] = k[j] != 0 ? u[j] : v[j];
        tti_round_all(made.elem, made.data + i, n_group);
    }
    tti_set_host(out, &whole);
}

static void fold_where(tti_building *b, const tti_call *c) {
    const tti_operand *m = tti_operand_at(b, c, 0);
    choose(b, m, tti_operand_at(b, c, 1), tti_operand_at(b, c, 2), c->out[0]);
}

static void choose_values(tti_building *b, const tti_operand *m, const tti_operand *x,
                          const tti_operand *y, tti_elem elem, tti_operand *out) {
    tti_operand part = {0};
    if (!tti_good(b)) return;
    tutti_value *mask = tti_nonzero(b, m);
    tutti_value *p = tti_compact_value(b, x), *q = tti_compact_value(b, y);
    tutti_value *value = tutti_where(tti_graph_of(b), mask, p, q);
    tti_set_pair(b, &part, p, elem, x, m); /* only for its shape and rows */
    if (tti_good(b)) tti_set_pair(b, out, value, elem, &part, y);
}

/* condition self other */
static void where(tti_building *b, const tti_call *c) {
    const tti_operand *m = tti_operand_at(b, c, 0);
    const tti_operand *x = tti_operand_at(b, c, 1), *y = tti_operand_at(b, c, 2);
    if (tti_good(b)) choose_values(b, m, x, y, tti_promote(x, y), c->out[0]);
}

/* self mask value: value for elements whose mask is true. */
static void masked_fill(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *mask = tti_operand_at(b, c, 1);
    if (tti_good(b)) choose_values(b, mask, tti_operand_at(b, c, 2), x, tti_elem_of(x), c->out[0]);
}

static void fold_masked_fill(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *mask = tti_operand_at(b, c, 1);
    double value = tti_number_at(b, c, 2);
    tutti_shape sx = tti_shape_of(x), sm = tti_shape_of(mask), shape;
    tti_host made, whole, p, q;
    if (!tti_good(b) || !tti_host_broadcast(b, &sx, &sm, &shape)) return;
    if (!tti_host_expand(b, &x->host, &shape, &p) || !tti_host_expand(b, &mask->host, &shape, &q))
        return;
    if (!tti_host_new_like(b, x->host.elem, (tti_host *[]){&p, &q}, 2, &made, &whole)) return;
    int64_t n = tti_host_n(&made);
    tti_host_walk wx = tti_host_begin(&p), wm = tti_host_begin(&q);
    double k[TTI_HOST_GROUP];
    value = tti_round(made.elem, value);
    for (int64_t i = 0; i < n; i += TTI_HOST_GROUP) {
        int64_t n_group = TTI_MIN(n - i, TTI_HOST_GROUP);
        double *x_group = made.data + i;
        tti_host_copy_next(&wx, x_group, n_group);
        tti_host_copy_next(&wm, k, n_group);
        for (int64_t j = 0; j < n_group; j++) x_group[j] = k[j] != 0 ? value : x_group[j];
    }
    tti_set_host(c->out[0], &whole);
}

/* ---- compared with a number ---- */

static tutti_value *constant(tutti_graph *g, double x) {
    return tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, x);
}

/* self threshold value: elements above the threshold, else value. */
static void threshold(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double limit = tti_number_at(b, c, 1), other = tti_number_at(b, c, 2);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (!tti_good(b)) return;
    tutti_value *below = tutti_less_equal(g, value, constant(g, limit));
    value = tutti_where(g, below, constant(g, other), value);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

/* self lambd: moves elements towards 0 by lambd, at most to 0. */
static void softshrink(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double by = tti_number_at(b, c, 1);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (!tti_good(b)) return;
    tutti_value *above = tutti_relu(g, tutti_affine(g, value, 1, -by));
    tutti_value *below = tutti_relu(g, tutti_affine(g, value, -1, -by));
    tti_set_value(b, c->out[0], tutti_sub(g, above, below), tti_elem_of(x), tti_of_batch(x));
}

/* self lambd: 0 for elements within -lambd .. lambd. */
static void hardshrink(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double by = tti_number_at(b, c, 1);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (!tti_good(b)) return;
    tutti_value *beyond = tutti_less(g, constant(g, by), tutti_abs(g, value));
    tti_set_value(b, c->out[0], tutti_keep(g, value, beyond), tti_elem_of(x), tti_of_batch(x));
}

#define COMPARE(op, fn, builder)                                                                 \
    {                                                                                            \
        .target = "aten." op, .signature = "self other", .build = compare, .fold = fold_compare, \
        .f2 = fn, .b2 = builder                                                                  \
    }
#define COMPARES(op, fn, builder) \
    COMPARE(op ".Tensor", fn, builder), COMPARE(op ".Scalar", fn, builder)
#define LOGIC(op, fn, builder)                                                            \
    {                                                                                     \
        .target = "aten." op ".default", .signature = "self other", .build = join_truths, \
        .fold = fold_compare, .f2 = fn, .b2 = builder                                     \
    }
#define BITS(op, fn, builder)                                                                   \
    {                                                                                           \
        .target = "aten." op, .signature = "self other", .build = join_bits, .fold = fold_bits, \
        .f2 = fn, .b2 = builder                                                                 \
    }
#define CLASSIFY(op, fn, builder)                                                                  \
    {                                                                                              \
        .target = "aten." op ".default", .signature = "self", .build = classify, .fold = classify, \
        .f2 = fn, .b2 = builder                                                                    \
    }
#define NUMBERS(op, fn) \
    { .target = "_operator." op, .signature = "a b", .fold = tti_fold_numbers, .f2 = fn }
#define CHOICE(op, args, built, folded) \
    { .target = "aten." op, .signature = args, .build = built, .fold = folded }

const tti_operator tti_operators_logic[] = {
    COMPARES("eq", f_eq, tutti_equal),
    COMPARES("ne", f_ne, differ),
    COMPARES("lt", f_lt, tutti_less),
    COMPARES("le", f_le, tutti_less_equal),
    COMPARES("gt", f_gt, greater),
    COMPARES("ge", f_ge, greater_equal),
    NUMBERS("eq", f_eq),
    NUMBERS("ne", f_ne),
    NUMBERS("lt", f_lt),
    NUMBERS("le", f_le),
    NUMBERS("gt", f_gt),
    NUMBERS("ge", f_ge),
    LOGIC("logical_and", f_logical_and, both),
    LOGIC("logical_or", f_logical_or, tutti_maximum),
    LOGIC("logical_xor", f_logical_xor, one_of),
    BITS("__and__.Tensor", f_and, both),
    BITS("__or__.Tensor", f_or, tutti_maximum),
    BITS("__xor__.Tensor", f_xor, one_of),
    BITS("bitwise_and.Tensor", f_and, both),
    BITS("bitwise_or.Tensor", f_or, tutti_maximum),
    BITS("bitwise_xor.Tensor", f_xor, one_of),
    BITS("bitwise_and.Scalar", f_and, both),
    BITS("bitwise_or.Scalar", f_or, tutti_maximum),
    BITS("bitwise_xor.Scalar", f_xor, one_of),
    TTI_BOTH("logical_not.default", "self", logical_not),
    TTI_BOTH("bitwise_not.default", "self", bitwise_not),
    CLASSIFY("isnan", f_isnan, is_nan),
    CLASSIFY("isinf", f_isinf, is_inf),
    CLASSIFY("isfinite", f_isfinite, is_finite),
    CHOICE("masked_fill.Scalar", "self mask value", masked_fill, fold_masked_fill),
    CHOICE("masked_fill.Tensor", "self mask value", masked_fill, fold_masked_fill),
    CHOICE("where.self", "condition self other", where, fold_where),
    CHOICE("where.ScalarOther", "condition self other", where, fold_where),
    CHOICE("where.ScalarSelf", "condition self other", where, fold_where),
    CHOICE("where.Scalar", "condition self other", where, fold_where),
    CHOICE("threshold.default", "self threshold value", threshold, NULL),
    CHOICE("softshrink.default", "self lambd=0.5", softshrink, NULL),
    CHOICE("hardshrink.default", "self lambd=0.5", hardshrink, NULL),
    {0},
};

/* aten_reduce.c - reductions: sums, means, extremes, norms, softmax. */
#include <math.h>

#include "base/error.h"
#include "import/aten/aten.h"

static double f_add(double x, double y) { return x + y; }
static double f_max(double x, double y) { return isnan(x) || x > y ? x : y; }
static double f_min(double x, double y) { return isnan(x) || x < y ? x : y; }

/* ---- reductions ---- */

/* Returns the dimensions in argument k as a bit mask; None or an empty list: all. */
static unsigned axes_at(tti_building *b, const tti_call *c, int k, int n_dims) {
    int64_t list[TUTTI_MAX_DIMS];
    unsigned axes = 0;
    int n = k >= 0 && tti_has(c, k) ? tti_ints_at(b, c, k, list) : 0;
    for (int i = 0; i < n; i++) axes |= 1u << tti_wrap_dim(b, list[i], n_dims);
    return n == 0 ? (1u << n_dims) - 1 : axes;
}

static tutti_axes axes_of(unsigned bits, bool keep) {
    tutti_axes axes = {.keep = keep};
    for (int d = 0; d < TUTTI_MAX_DIMS; d++)
        if (bits >> d & 1u) axes.axis[axes.n++] = d;
    return axes;
}

typedef struct reducing {
    unsigned axes;
    bool keep;
    double start;
    double (*join)(double so_far, double x);
    bool mean;
    tti_elem elem;
} reducing;

/* The result for zero elements. An extreme is the end of the type's range (as in ONNX; PyTorch
 * refuses). */
static double start_of(const reducing *r) {
    static const struct {
        double low, high;
    } ends[] = {
        [TTI_ELEM_BOOL] = {0, 1},
        [TTI_ELEM_U8] = {0, UINT8_MAX},
        [TTI_ELEM_I8] = {INT8_MIN, INT8_MAX},
        [TTI_ELEM_I16] = {INT16_MIN, INT16_MAX},
        [TTI_ELEM_I32] = {INT32_MIN, INT32_MAX},
        [TTI_ELEM_I64] = {-0x1p63, 0x1p63},
    };
    if (!isinf(r->start) || tti_elem_is_float(r->elem)) return r->start;
    return r->start < 0 ? ends[r->elem].low : ends[r->elem].high;
}

static void fold_reduce(tti_building *b, const tti_host *x, const reducing *r, tti_operand *out) {
    tutti_shape kept = x->shape, shape = {0};
    tti_host made, at;
    for (int d = 0; d < kept.n_dims; d++) {
        if (r->axes >> d & 1u) kept.dim[d] = 1;
        if (!(r->axes >> d & 1u) || r->keep) shape.dim[shape.n_dims++] = kept.dim[d];
    }
    if (!tti_host_new(b, r->elem, &kept, &made)) return;
    int64_t n_out = tti_host_n(&made), n = tti_host_n(x);
    for (int64_t i = 0; i < n_out; i++) made.data[i] = start_of(r);
    if (!tti_host_expand(b, &made, &x->shape, &at)) return;
    if (!tti_add_work(b, (double)n)) return;
    tti_host_walk to = tti_host_begin(&at), from = tti_host_begin(x);
    for (int64_t i = 0; i < n; i++) {
        int64_t place = tti_host_next_offset(&to);
        made.data[place] = r->join(made.data[place], tti_host_next(&from));
    }
    double share = n_out > 0 ? (double)n / (double)n_out : 1;
    for (int64_t i = 0; i < n_out; i++)
        made.data[i] = tti_round(r->elem, r->mean ? made.data[i] / share : made.data[i]);
    tti_operand kept_operand = {.kind = TTI_OPERAND_HOST, .host = made};
    tti_do_reshape(b, &kept_operand, &shape, out);
}

/* The type of a sum: integers are summed as i64, unless argument k names a type. */
static tti_elem sum_elem(tti_building *b, const tti_call *c, int k) {
    tti_elem elem = tti_elem_of(tti_operand_at(b, c, 0));
    if (tti_has(c, k)) return (tti_elem)tti_int_at(b, c, k);
    return tti_elem_is_float(elem) ? elem : TTI_ELEM_I64;
}

static tti_elem mean_elem(tti_building *b, const tti_call *c, int k) {
    return tti_float_elem(tti_has(c, k) ? (tti_elem)tti_int_at(b, c, k)
                                        : tti_elem_of(tti_operand_at(b, c, 0)));
}

typedef tutti_value *(*reduce_fn)(tutti_graph *g, tutti_value *x, const tutti_axes *axes);

static tutti_value *min_of(tutti_graph *g, tutti_value *x, const tutti_axes *axes) {
    return tutti_neg(g, tutti_max(g, tutti_neg(g, x), axes));
}

/* Reduces x without padding rows. */
static tutti_value *reduce_present(tti_building *b, tutti_value *x, unsigned bits, bool keep,
                                   reduce_fn fn) {
    tutti_graph *g = tti_graph_of(b);
    tutti_axes axes = axes_of(bits, keep);
    if (fn == tutti_max) return tutti_max(g, tti_fill_padding(b, x, bits, -INFINITY), &axes);
    if (fn == min_of)
        return tutti_neg(
            g, tutti_max(g, tti_fill_padding(b, tutti_neg(g, x), bits, -INFINITY), &axes));
    tutti_value *sum = tutti_sum(g, tti_present_in(b, x, bits), &axes);
    return fn == tutti_mean ? tti_per_present(b, sum, x, bits) : sum;
}

/* True if the result of reducing x still has a row for each sample. value: the elements of x. */
static bool stays_of_batch(tti_building *b, const tti_operand *x, const tutti_value *value,
                           unsigned bits) {
    const tutti_batch at = tti_batch_of(b, value);
    if (!tti_of_batch(x) || at.mixed_by) return tti_of_batch(x) && !(bits & 1u);
    return tti_sample_dims(b, value, ~bits) != 0;
}

static void reduce(tti_building *b, const tti_call *c, int dims, int keep, reduce_fn fn,
                   reducing r) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n_dims = tti_shape_of(x).n_dims;
    r.axes = axes_at(b, c, dims, n_dims);
    r.keep = keep >= 0 && tti_bool_at(b, c, keep);
    if (!tti_good(b)) return;
    if (x->kind == TTI_OPERAND_HOST) {
        fold_reduce(b, &x->host, &r, c->out[0]);
        return;
    }
    tutti_axes axes = axes_of(r.axes, r.keep);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    bool any = n_dims > 0 ? stays_of_batch(b, x, value, r.axes) : tti_of_batch(x);
    if (tti_has_padding(b) && n_dims > 0 && tti_sample_dims(b, value, r.axes) != 0)
        value = reduce_present(b, value, r.axes, r.keep, fn);
    else if (tti_good(b) && n_dims > 0)
        value = fn(tti_graph_of(b), value, &axes);
    tti_set_value(b, c->out[0], value, r.elem, any);
}

static void sum_dim(tti_building *b, const tti_call *c) {
    tti_elem elem = sum_elem(b, c, 3);
    reduce(b, c, 1, 2, tutti_sum, (reducing){.join = f_add, .elem = elem});
}
static void sum_all(tti_building *b, const tti_call *c) {
    tti_elem elem = sum_elem(b, c, 1);
    reduce(b, c, -1, -1, tutti_sum, (reducing){.join = f_add, .elem = elem});
}
static void mean_dim(tti_building *b, const tti_call *c) {
    tti_elem elem = mean_elem(b, c, 3);
    reduce(b, c, 1, 2, tutti_mean, (reducing){.join = f_add, .mean = true, .elem = elem});
}
static void mean_all(tti_building *b, const tti_call *c) {
    tti_elem elem = mean_elem(b, c, 1);
    reduce(b, c, -1, -1, tutti_mean, (reducing){.join = f_add, .mean = true, .elem = elem});
}
static void amax(tti_building *b, const tti_call *c) {
    tti_elem elem = tti_elem_of(tti_operand_at(b, c, 0));
    reduce(b, c, 1, 2, tutti_max, (reducing){.join = f_max, .start = -INFINITY, .elem = elem});
}
static void max_all(tti_building *b, const tti_call *c) {
    tti_elem elem = tti_elem_of(tti_operand_at(b, c, 0));
    reduce(b, c, -1, -1, tutti_max, (reducing){.join = f_max, .start = -INFINITY, .elem = elem});
}
static void min_all(tti_building *b, const tti_call *c) {
    tti_elem elem = tti_elem_of(tti_operand_at(b, c, 0));
    reduce(b, c, -1, -1, min_of, (reducing){.join = f_min, .start = INFINITY, .elem = elem});
}
static void amin(tti_building *b, const tti_call *c) {
    tti_elem elem = tti_elem_of(tti_operand_at(b, c, 0));
    reduce(b, c, 1, 2, min_of, (reducing){.join = f_min, .start = INFINITY, .elem = elem});
}

/* Square root with gradient 0 at 0, as in PyTorch's norms and deviations. */
static tutti_value *root_of(tutti_graph *g, tutti_value *x) {
    tutti_value *zero = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
    tutti_value *safe = tutti_add(g, x, tutti_equal(g, x, zero));
    return tutti_keep(g, tutti_sqrt(g, safe), x);
}

/* Returns the mean over dims, which are kept with size 1 if keep. */
static tutti_value *mean_of(tti_building *b, tutti_value *x, unsigned dims, bool keep) {
    tutti_axes axes = axes_of(dims, keep);
    if (!tti_has_padding(b) || tti_sample_dims(b, x, dims) == 0)
        return tutti_mean(tti_graph_of(b), x, &axes);
    tutti_value *sum = tutti_sum(tti_graph_of(b), tti_present_in(b, x, dims), &axes);
    return tutti_div(tti_graph_of(b), sum, tti_n_present_in(b, x, dims));
}

/* Returns the variance, divided by the number of elements - correction. */
static tutti_value *variance(tti_building *b, const tti_operand *x, unsigned axes, bool keep,
                             double correction) {
    tutti_graph *g = tti_graph_of(b);
    tutti_axes wanted = axes_of(axes, keep);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    tutti_shape shape = tti_shape_of(x);
    double n = 1;
    for (int d = 0; d < shape.n_dims; d++)
        if (axes >> d & 1u) n *= (double)shape.dim[d];
    if (tti_good(b) && shape.n_dims < 1) tti_refuse(b, "a scalar is not supported");
    bool counts = tti_has_padding(b) && tti_sample_dims(b, value, axes) != 0;
    if (tti_good(b) && n <= correction)
        tti_refuse(b, "the variance of %g elements with correction %g is not defined", n,
                   correction);
    if (!tti_good(b)) return NULL;
    tutti_value *rest = tutti_sub(g, value, mean_of(b, value, axes, true));
    tutti_value *squares = tutti_square(g, rest);
    if (!counts) return tutti_affine(g, tutti_sum(g, squares, &wanted), 1 / (n - correction), 0);
    /* Avoids a division by 0 for one element and a correction of 1. */
    tutti_value *least = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1e-6);
    tutti_value *by = tutti_affine(g, tti_n_present_in(b, value, axes), 1, -correction);
    value = tutti_sum(g, tti_present_in(b, squares, axes), &wanted);
    return tutti_div(g, value, tutti_maximum(g, by, least));
}

/* correct: index of the correction, a number or True or None for 1. Also sets the mean if there are
 * two results. */
static void var_at(tti_building *b, const tti_call *c, int dims, int correct, int keep, bool root) {
    const tti_operand own = *tti_operand_at(b, c, 0), *x = &own;
    unsigned axes = axes_at(b, c, dims, tti_shape_of(x).n_dims);
    double correction = correct >= 0 && tti_has(c, correct) ? tti_number_at(b, c, correct) : 1;
    bool keeps = keep >= 0 && tti_bool_at(b, c, keep);
    tutti_value *from = tti_as_float(b, tti_value_of(b, x));
    tutti_value *value = variance(b, x, axes, keeps, correction);
    bool any = stays_of_batch(b, x, from, axes);
    if (root) value = root_of(tti_graph_of(b), value);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), any);
    if (c->n_outs < 2 || !c->out[1] || !tti_good(b)) return;
    tti_set_value(b, c->out[1], mean_of(b, from, axes, keeps), tti_elem_of(x), any);
}
static void var_correction(tti_building *b, const tti_call *c) { var_at(b, c, 1, 2, 3, false); }
static void std_correction(tti_building *b, const tti_call *c) { var_at(b, c, 1, 2, 3, true); }
static void var_all(tti_building *b, const tti_call *c) { var_at(b, c, -1, 1, -1, false); }
static void std_all(tti_building *b, const tti_call *c) { var_at(b, c, -1, 1, -1, true); }

/* Returns the norm of an order above 1; its gradient at 0 is 0. */
static tutti_value *norm_of(tutti_graph *g, tutti_value *x, double order, const tutti_axes *axes) {
    tutti_value *zero = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
    tutti_value *size = tutti_abs(g, x);
    size = tutti_keep(g,
                      tutti_pow(g, tutti_add(g, size, tutti_equal(g, size, zero)),
                                tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, order)),
                      size);
    tutti_value *sum = tutti_sum(g, size, axes);
    tutti_value *root = tutti_pow(g, tutti_add(g, sum, tutti_equal(g, sum, zero)),
                                  tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1 / order));
    return tutti_keep(g, root, sum);
}

static void norm_at(tti_building *b, const tti_call *c, int order, int dims, int keep) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double ord = tti_has(c, order) ? tti_number_at(b, c, order) : 2;
    bool keeps = keep >= 0 && tti_bool_at(b, c, keep);
    unsigned bits = axes_at(b, c, dims, tti_shape_of(x).n_dims);
    tutti_axes axes = axes_of(bits, keeps);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (tti_good(b) && tti_shape_of(x).n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (!tti_good(b)) return;
    bool any = stays_of_batch(b, x, value, bits);
    value = tti_present_in(b, value, bits);
    if (ord == 2)
        value = root_of(g, tutti_sum(g, tutti_square(g, value), &axes));
    else if (ord == 1)
        value = tutti_sum(g, tutti_abs(g, value), &axes);
    else if (ord == INFINITY)
        value = tutti_max(g, tutti_abs(g, value), &axes);
    else if (ord > 1 && ord < 64)
        value = norm_of(g, value, ord, &axes);
    else
        tti_refuse(b, "a norm of order %g is not supported", ord);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), any);
}
static void vector_norm(tti_building *b, const tti_call *c) { norm_at(b, c, 1, 2, 3); }
static void norm_all(tti_building *b, const tti_call *c) { norm_at(b, c, 1, -1, -1); }

/* A number that has no weight in a softmax with any other; finite, because it may be multiplied by
 * 0. */
#define LOW (-1e30)

/* ln(sum(e^x)), computed relative to the largest x. */
static void logsumexp(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_graph *g = tti_graph_of(b);
    unsigned bits = axes_at(b, c, 1, tti_shape_of(x).n_dims);
    tutti_axes kept = axes_of(bits, true), wanted = axes_of(bits, tti_bool_at(b, c, 2));
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (tti_good(b) && tti_shape_of(x).n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (!tti_good(b)) return;
    bool any = stays_of_batch(b, x, value, bits);
    value = tti_fill_padding(b, value, bits, LOW);
    tutti_value *top = tutti_stop_gradient(g, tutti_max(g, value, &kept));
    tutti_value *sum = tutti_sum(g, tutti_exp(g, tutti_sub(g, value, top)), &wanted);
    tutti_shape shape = tutti_value_type(sum).shape;
    value = tutti_add(g, tutti_log(g, sum), tutti_reshape(g, top, &shape));
    tti_set_value(b, c->out[0], value, tti_float_elem(tti_elem_of(x)), any);
}

/* ---- indices of extremes ---- */

/* Returns the index of the largest (or smallest) x along dim; x may be an integer. */
static tutti_value *place_of(tti_building *b, tutti_value *x, int dim, bool smallest, bool keep) {
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tutti_value_type(x).shape;
    x = tti_fill_padding(b, smallest ? tutti_neg(g, x) : x, 1u << dim, -INFINITY);
    tutti_value *value = tutti_argmax(g, x, dim);
    if (!keep || shape.n_dims < 1) return value;
    shape.dim[dim] = 1;
    return tutti_reshape(g, value, &shape);
}

static void arg_extreme(tti_building *b, const tti_call *c, bool smallest) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_good(b) && (!tti_has(c, 1) || tti_shape_of(x).n_dims < 1))
        tti_refuse(b, "a dimension must be given");
    if (!tti_good(b)) return;
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    bool keep = tti_bool_at(b, c, 2);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    bool any = stays_of_batch(b, x, value, 1u << dim);
    if (tti_good(b))
        tti_set_value(b, c->out[0], place_of(b, value, dim, smallest, keep), TTI_ELEM_I64, any);
}
static void argmax(tti_building *b, const tti_call *c) { arg_extreme(b, c, false); }
static void argmin(tti_building *b, const tti_call *c) { arg_extreme(b, c, true); }

/* self dim keepdim: the extreme and its index. Only that element gets the gradient. */
static void extreme_along(tti_building *b, const tti_call *c, bool smallest) {
    const tti_operand own = *tti_operand_at(b, c, 0), *x = &own;
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tti_shape_of(x), to = {0};
    int dim = tti_dim_at(b, c, 1, shape.n_dims);
    bool keep = tti_bool_at(b, c, 2);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (tti_good(b) && shape.n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (!tti_good(b)) return;
    bool any = stays_of_batch(b, x, value, 1u << dim);
    tutti_value *place = place_of(b, value, dim, smallest, true);
    value = tutti_take_along(g, value, place, dim);
    for (int d = 0; d < shape.n_dims; d++)
        if (d != dim || keep) to.dim[to.n_dims++] = d == dim ? 1 : shape.dim[d];
    value = tutti_reshape(g, value, &to);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), any);
    if (c->n_outs > 1 && tti_good(b))
        tti_set_value(b, c->out[1], tutti_reshape(g, place, &to), TTI_ELEM_I64, any);
}
static void max_along(tti_building *b, const tti_call *c) { extreme_along(b, c, false); }
static void min_along(tti_building *b, const tti_call *c) { extreme_along(b, c, true); }

/* ---- any and all ---- */

static double f_any(double x, double y) { return x != 0 || y != 0; }
static double f_all(double x, double y) { return x != 0 && y != 0; }

static void truths(tti_building *b, const tti_call *c, int dims, int keep, bool all) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_graph *g = tti_graph_of(b);
    reducing r = {.axes = axes_at(b, c, dims, tti_shape_of(x).n_dims),
                  .keep = keep >= 0 && tti_bool_at(b, c, keep),
                  .start = all,
                  .join = all ? f_all : f_any,
                  .elem = TTI_ELEM_BOOL};
    if (!tti_good(b)) return;
    if (x->kind == TTI_OPERAND_HOST) {
        fold_reduce(b, &x->host, &r, c->out[0]);
        return;
    }
    tutti_axes axes = axes_of(r.axes, r.keep);
    tutti_shape shape = tti_shape_of(x);
    tutti_value *value = tti_nonzero(b, x);
    tutti_shape own = tutti_value_type(value).shape;
    if (own.n_dims == shape.n_dims && own.n_dims > 0 && own.dim[0] != shape.dim[0])
        value = tutti_broadcast_to(g, value, &shape);
    bool any = shape.n_dims > 0 ? stays_of_batch(b, x, value, r.axes) : tti_of_batch(x);
    if (all) value = tutti_affine(g, value, -1, 1);
    if (shape.n_dims > 0) value = tutti_max(g, tti_present_in(b, value, r.axes), &axes);
    if (all) value = tutti_affine(g, value, -1, 1);
    tti_set_value(b, c->out[0], value, TTI_ELEM_BOOL, any);
}
static void any_all(tti_building *b, const tti_call *c) { truths(b, c, -1, -1, false); }
static void any_dim(tti_building *b, const tti_call *c) { truths(b, c, 1, 2, false); }
static void all_all(tti_building *b, const tti_call *c) { truths(b, c, -1, -1, true); }
static void all_dim(tti_building *b, const tti_call *c) { truths(b, c, 1, 2, true); }

/* ---- softmax ---- */

static void softmax_of(tti_building *b, const tti_call *c, bool is_log) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    tutti_value *value = tti_fill_padding(b, tti_as_float(b, tti_value_of(b, x)), 1u << dim, LOW);
    value = is_log ? tutti_log_softmax(tti_graph_of(b), value, dim)
                   : tutti_softmax(tti_graph_of(b), value, dim);
    tti_set_value(b, c->out[0], value, tti_float_elem(tti_elem_of(x)), tti_of_batch(x));
    if (c->out[0] && tti_good(b)) c->out[0]->is_softmax = !is_log;
}
static void softmax(tti_building *b, const tti_call *c) { softmax_of(b, c, false); }
static void log_softmax(tti_building *b, const tti_call *c) { softmax_of(b, c, true); }

#define BUILD(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }

const tti_operator tti_operators_reduce[] = {
    TTI_BOTH("sum.default", "self dtype=None", sum_all),
    TTI_BOTH("sum.dim_IntList", "self dim keepdim=False dtype=None", sum_dim),
    TTI_BOTH("mean.default", "self dtype=None", mean_all),
    TTI_BOTH("mean.dim", "self dim keepdim=False dtype=None", mean_dim),
    TTI_BOTH("amax.default", "self dim=[] keepdim=False", amax),
    TTI_BOTH("amin.default", "self dim=[] keepdim=False", amin),
    BUILD("var.dim", "self dim unbiased=True keepdim=False", var_correction),
    BUILD("std.dim", "self dim unbiased=True keepdim=False", std_correction),
    BUILD("var.correction", "self dim=None correction=None keepdim=False", var_correction),
    BUILD("std.correction", "self dim=None correction=None keepdim=False", std_correction),
    BUILD("linalg_vector_norm.default", "self ord=2 dim=None keepdim=False dtype!=None",
          vector_norm),
    BUILD("norm.ScalarOpt_dim", "self p dim keepdim=False", vector_norm),
    BUILD("norm.Scalar", "self p=2", norm_all),
    BUILD("logsumexp.default", "self dim keepdim=False", logsumexp),
    BUILD("var.default", "self unbiased=True", var_all),
    BUILD("std.default", "self unbiased=True", std_all),
    BUILD("var_mean.dim", "self dim unbiased=True keepdim=False", var_correction),
    BUILD("std_mean.dim", "self dim unbiased=True keepdim=False", std_correction),
    BUILD("var_mean.correction", "self dim=None correction=None keepdim=False", var_correction),
    BUILD("std_mean.correction", "self dim=None correction=None keepdim=False", std_correction),
    BUILD("argmax.default", "self dim=None keepdim=False", argmax),
    BUILD("argmin.default", "self dim=None keepdim=False", argmin),
    TTI_BOTH("max.default", "self", max_all),
    TTI_BOTH("min.default", "self", min_all),
    BUILD("max.dim", "self dim keepdim=False", max_along),
    BUILD("min.dim", "self dim keepdim=False", min_along),
    TTI_BOTH("any.default", "self", any_all),
    TTI_BOTH("any.dim", "self dim keepdim=False", any_dim),
    TTI_BOTH("any.dims", "self dim=[] keepdim=False", any_dim),
    TTI_BOTH("all.default", "self", all_all),
    TTI_BOTH("all.dim", "self dim keepdim=False", all_dim),
    BUILD("softmax.int", "self dim dtype!=None", softmax),
    BUILD("_softmax.default", "self dim half_to_float!", softmax),
    BUILD("log_softmax.int", "self dim dtype!=None", log_softmax),
    BUILD("_log_softmax.default", "self dim half_to_float!", log_softmax),
    {0},
};

/* aten_math.c - element-wise operators: arithmetic, activations, powers and type conversions. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* ---- one input ---- */

static double f_same(double x) { return x; }

static void fold_map(tti_building *b, const tti_operand *x, tti_elem elem, double (*f)(double),
                     tti_operand *out) {
    if (x->kind == TTI_OPERAND_NUMBER) {
        tutti_value *(*build)(tutti_graph *, tutti_value *) = tti_row_of(b)->b1;
        tutti_value *live = x->live && build ? build(tti_graph_of(b), x->live) : x->live;
        tti_set_number(out, f(x->number), elem == TTI_ELEM_F32 ? TTI_ELEM_F64 : elem, false);
        if (build || f == f_same) tti_set_live(b, out, live);
        return;
    }
    tti_host made, whole, from = x->host;
    if (!tti_host_new_like(b, elem, (tti_host *[]){&from}, 1, &made, &whole)) return;
    int64_t n = tti_host_n(&made);
    tti_host_walk w = tti_host_begin(&from);
    for (int64_t i = 0; i < n; i += TTI_HOST_GROUP) {
        int64_t n_group = TTI_MIN(n - i, TTI_HOST_GROUP);
        double *x_group = made.data + i;
        tti_host_copy_next(&w, x_group, n_group);
        for (int64_t k = 0; k < n_group; k++) x_group[k] = f(x_group[k]);
        tti_round_all(elem, x_group, n_group);
    }
    tti_set_host(out, &whole);
}

static void fold_float(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_good(b)) fold_map(b, x, tti_float_elem(tti_elem_of(x)), tti_row_of(b)->f1, c->out[0]);
}

static void fold_same(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_good(b)) fold_map(b, x, tti_elem_of(x), tti_row_of(b)->f1, c->out[0]);
}

/* Sets the result of an element-wise function, for which equal rows stay equal. */
static void set_like(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                     const tti_operand *x) {
    tti_set_value(b, out, value, elem, x->of_input);
    if (out && tti_good(b)) out->rows = x->rows;
}

static double f_round(double x) { return nearbyint(x); }
static double f_expm1(double x) { return expm1(x); }
static double f_frac(double x) { return x - trunc(x); }
static double f_exp2(double x) { return exp2(x); }

static void build_map(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (!tti_good(b)) return;
    bool to_float = tti_row_of(b)->fold == fold_float;
    tti_elem elem = to_float ? tti_float_elem(tti_elem_of(x)) : tti_elem_of(x);
    tutti_value *value = tti_compact_value(b, x);
    set_like(b, c->out[0], tti_row_of(b)->b1(tti_graph_of(b), value), elem, x);
}

static tutti_value *scalar(tutti_graph *g, double x) {
    return tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, x);
}

static tutti_value *reciprocal(tutti_graph *g, tutti_value *x) {
    return tutti_div(g, scalar(g, 1), x);
}
static tutti_value *rsqrt(tutti_graph *g, tutti_value *x) {
    return reciprocal(g, tutti_sqrt(g, x));
}
static tutti_value *negative_part(tutti_graph *g, tutti_value *x) { /* max(-x, 0) */
    return tutti_relu(g, tutti_neg(g, x));
}
static tutti_value *hardsigmoid(tutti_graph *g, tutti_value *x) {
    return tutti_affine(g, tutti_relu6(g, tutti_affine(g, x, 1, 3)), 1.0 / 6, 0);
}
static tutti_value *hardswish(tutti_graph *g, tutti_value *x) {
    return tutti_mul(g, x, hardsigmoid(g, x));
}
/* max(x, 0) + ln(1 + e^-|x|) */
static tutti_value *softplus_of(tutti_graph *g, tutti_value *x) {
    tutti_value *small = tutti_exp(g, tutti_neg(g, tutti_abs(g, x)));
    return tutti_add(g, tutti_relu(g, x), tutti_log1p(g, small));
}
static tutti_value *mish(tutti_graph *g, tutti_value *x) {
    return tutti_mul(g, x, tutti_tanh(g, softplus_of(g, x)));
}
static tutti_value *log_sigmoid(tutti_graph *g, tutti_value *x) {
    return tutti_neg(g, softplus_of(g, tutti_neg(g, x)));
}

static tutti_value *trunc_of(tutti_graph *g, tutti_value *x) {
    return tutti_mul(g, tutti_sign(g, x), tutti_floor(g, tutti_abs(g, x)));
}
static tutti_value *frac_of(tutti_graph *g, tutti_value *x) {
    return tutti_sub(g, x, trunc_of(g, x));
}
static tutti_value *tan_of(tutti_graph *g, tutti_value *x) {
    return tutti_div(g, tutti_sin(g, x), tutti_cos(g, x));
}
static tutti_value *exp2_of(tutti_graph *g, tutti_value *x) {
    return tutti_pow(g, scalar(g, 2), x);
}
static tutti_value *log2_of(tutti_graph *g, tutti_value *x) {
    return tutti_affine(g, tutti_log(g, x), 1.4426950408889634, 0);
}
static tutti_value *log10_of(tutti_graph *g, tutti_value *x) {
    return tutti_affine(g, tutti_log(g, x), 0.43429448190325183, 0);
}
static tutti_value *ceil_of(tutti_graph *g, tutti_value *x) {
    return tutti_neg(g, tutti_floor(g, tutti_neg(g, x)));
}

/* floor(rand + p) is a random mask: see aten_random.c. */
static void floor_of(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_good(b) && x->is_noise && x->noise_shift > 0 && x->noise_shift <= 1)
        tti_set_floor_of_noise(b, x, c->out[0]);
    else
        build_map(b, c);
}

static double f_neg(double x) { return -x; }
static double f_relu(double x) { return x > 0 || isnan(x) ? x : 0; }
static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double f_silu(double x) { return x * f_sigmoid(x); }
static double f_rsqrt(double x) { return 1 / sqrt(x); }
static double f_reciprocal(double x) { return 1 / x; }
static double f_square(double x) { return x * x; }
static double f_sign(double x) { return (double)((x > 0) - (x < 0)); }

/* PyTorch's sign of NaN is 0. */
static tutti_value *sign_of(tutti_graph *g, tutti_value *x) {
    return tutti_keep(g, tutti_sign(g, x), tutti_equal(g, x, x));
}

/* ---- activations with numbers ---- */

static void gelu(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    const char *how = tti_text_at(b, c, 1);
    bool by_tanh = strcmp(how, "tanh") == 0;
    if (!by_tanh && strcmp(how, "none") != 0) tti_refuse(b, "approximate='%s'", how);
    tutti_value *value = tti_value_of(b, x);
    value = by_tanh ? tutti_gelu_tanh(tti_graph_of(b), value) : tutti_gelu(tti_graph_of(b), value);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

static void leaky_relu(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double slope = tti_number_at(b, c, 1);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_value_of(b, x);
    value = tutti_sub(g, tutti_relu(g, value), tutti_affine(g, negative_part(g, value), slope, 0));
    tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

/* scale (max(x, 0) + alpha (e^(input_scale min(x, 0)) - 1)) */
static void elu(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double alpha = tti_number_at(b, c, 1), scale = tti_number_at(b, c, 2);
    double input_scale = tti_number_at(b, c, 3);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_value_of(b, x);
    tutti_value *low = tutti_exp(g, tutti_affine(g, negative_part(g, value), -input_scale, 0));
    low = tutti_affine(g, low, scale * alpha, -scale * alpha);
    value = tutti_affine(g, tutti_relu(g, value), scale, 0);
    tti_set_value(b, c->out[0], tutti_add(g, value, low), tti_elem_of(x), tti_of_batch(x));
}

/* max(x, 0) + alpha (e^(min(x, 0) / alpha) - 1) */
static void celu(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double alpha = tti_number_at(b, c, 1);
    tutti_graph *g = tti_graph_of(b);
    if (tti_good(b) && alpha == 0) tti_refuse(b, "alpha=0");
    tutti_value *value = tti_value_of(b, x);
    tutti_value *low = tutti_exp(g, tutti_affine(g, negative_part(g, value), -1 / alpha, 0));
    value = tutti_add(g, tutti_relu(g, value), tutti_affine(g, low, alpha, -alpha));
    tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

static tutti_value *selu(tutti_graph *g, tutti_value *x) {
    const double alpha = 1.6732632423543772848170429916717,
                 scale = 1.0507009873554804934193349852946;
    tutti_value *low = tutti_exp(g, tutti_neg(g, negative_part(g, x)));
    low = tutti_affine(g, low, scale * alpha, -scale * alpha);
    return tutti_add(g, tutti_affine(g, tutti_relu(g, x), scale, 0), low);
}

static void softplus(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double beta = tti_number_at(b, c, 1), threshold = tti_number_at(b, c, 2);
    if (beta * threshold < 15) /* below 15, softplus differs from the line in f32 */
        tti_refuse(b, "the threshold %g is not supported", threshold);
    tutti_value *value = tutti_affine(tti_graph_of(b), tti_value_of(b, x), beta, 0);
    value = tutti_affine(tti_graph_of(b), softplus_of(tti_graph_of(b), value), 1 / beta, 0);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

/* Clamps x to the bounds. The gradient is 0 outside of them and, if excludes, at the bounds. */
static tutti_value *clamp_value(tutti_graph *g, tutti_value *x, double least, double most,
                                bool excludes) {
    tutti_value *(*before)(tutti_graph *, tutti_value *, tutti_value *) =
        excludes ? tutti_less_equal : tutti_less;
    tutti_value *y = NULL, *out = NULL;
    if (excludes && least == 0 && most == 6) return tutti_relu6(g, x);
    if (excludes && least == 0) x = tutti_relu(g, x);
    for (int i = 0; i < 2; i++) {
        double bound = i ? most : least;
        if (isinf(bound) || (i == 0 && excludes && least == 0)) continue;
        tutti_value *at = scalar(g, bound);
        tutti_value *beyond = i ? before(g, at, x) : before(g, x, at);
        tutti_value *held_at = tutti_affine(g, beyond, bound, 0);
        out = out ? tutti_add(g, out, beyond) : beyond;
        y = y ? tutti_add(g, y, held_at) : held_at;
    }
    if (!out) return x;
    return tutti_add(g, tutti_keep(g, x, tutti_affine(g, out, -1, 1)), y);
}

static void clamp_to(tti_building *b, const tti_call *c, int lo, int hi) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double least = -INFINITY, most = INFINITY;
    tti_elem elem = tti_elem_of(x);
    if (lo >= 0 && tti_has(c, lo)) least = tti_number_at(b, c, lo);
    if (hi >= 0 && tti_has(c, hi)) most = tti_number_at(b, c, hi);
    if (!tti_good(b)) return;
    if (x->kind == TTI_OPERAND_HOST) {
        tti_host made;
        int64_t n = tti_host_n(&x->host);
        if (!tti_host_new(b, elem, &x->host.shape, &made)) return;
        tti_host_walk w = tti_host_begin(&x->host);
        tti_host_copy_next(&w, made.data, n);
        for (int64_t i = 0; i < n; i++) {
            double e = made.data[i];
            made.data[i] = isnan(e) ? e : tti_round(elem, fmin(fmax(e, least), most));
        }
        tti_set_host(c->out[0], &made);
        return;
    }
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (isnan(least) || isnan(most) || least > most)
        tti_refuse(b, "the bounds %g and %g are not supported", least, most);
    value = clamp_value(tti_graph_of(b), value, least, most,
                        strncmp(tti_row_of(b)->target, "aten.hardtanh", 13) == 0);
    tti_set_value(b, c->out[0], value, elem, tti_of_batch(x));
}

static void clamp(tti_building *b, const tti_call *c) { clamp_to(b, c, 1, 2); }
static void clamp_min(tti_building *b, const tti_call *c) { clamp_to(b, c, 1, -1); }
static void clamp_max(tti_building *b, const tti_call *c) { clamp_to(b, c, -1, 1); }

/* ---- two inputs ---- */

tti_host_walk tti_elements(const tti_operand *x, const tti_host *view) {
    if (x->kind != TTI_OPERAND_NUMBER) return tti_host_begin(view);
    return (tti_host_walk){.data = &x->number}; /* no dimensions: always this element */
}

static double f_add(double x, double y) { return x + y; }
static double f_sub(double x, double y) { return x - y; }
static double f_mul(double x, double y) { return x * y; }
static double f_div(double x, double y) { return x / y; }

/* Computes the result of two numbers from the present rows, if one of the numbers depends on the
 * batch size. NULL: neither does, or the function is not supported. */
static tutti_value *live_pair(tti_building *b, const tti_operand *x, const tti_operand *y,
                              double (*f)(double, double)) {
    static const struct {
        double (*f)(double, double);
        tutti_value *(*build)(tutti_graph *g, tutti_value *x, tutti_value *y);
    } rows[] = {{f_add, tutti_add},
                {f_sub, tutti_sub},
                {f_mul, tutti_mul},
                {f_div, tutti_div},
                {pow, tutti_pow}};
    for (size_t i = 0; (x->live || y->live) && i < TTI_COUNT(rows); i++)
        if (rows[i].f == f)
            return rows[i].build(tti_graph_of(b), tti_value_of(b, x), tti_value_of(b, y));
    return NULL;
}

/* elem: type of the result; NONE: by promotion. */
void tti_fold_pair(tti_building *b, const tti_operand *x, const tti_operand *y, tti_elem elem,
                   double (*f)(double, double), tti_operand *out) {
    tti_host made, whole, p = {0}, q = {0}; /* a number is used for all elements */
    tutti_shape sx = tti_shape_of(x), sy = tti_shape_of(y), shape;
    if (!tti_good(b)) return;
    if (elem == TTI_ELEM_NONE) elem = tti_promote(x, y);
    if (x->kind == TTI_OPERAND_NUMBER && y->kind == TTI_OPERAND_NUMBER) {
        bool is_float = x->elem == TTI_ELEM_F64 || y->elem == TTI_ELEM_F64;
        tutti_value *live = live_pair(b, x, y, f);
        tti_set_number(out, f(x->number, y->number), is_float ? TTI_ELEM_F64 : TTI_ELEM_I64, false);
        tti_set_live(b, out, live);
        return;
    }
    if (!tti_host_broadcast(b, &sx, &sy, &shape)) return;
    p.shape = q.shape = shape;
    if (x->kind == TTI_OPERAND_HOST && !tti_host_expand(b, &x->host, &shape, &p)) return;
    if (y->kind == TTI_OPERAND_HOST && !tti_host_expand(b, &y->host, &shape, &q)) return;
    if (!tti_host_new_like(b, elem, (tti_host *[]){&p, &q}, 2, &made, &whole)) return;
    int64_t n = tti_host_n(&made);
    tti_host_walk wx = tti_elements(x, &p), wy = tti_elements(y, &q);
    double u[TTI_HOST_GROUP], v[TTI_HOST_GROUP];
    for (int64_t i = 0; i < n; i += TTI_HOST_GROUP) {
        int64_t n_group = TTI_MIN(n - i, TTI_HOST_GROUP);
        tti_host_copy_next(&wx, u, n_group);
        tti_host_copy_next(&wy, v, n_group);
        for (int64_t k = 0; k < n_group; k++) made.data[i + k] = f(u[k], v[k]);
        tti_round_all(elem, made.data + i, n_group);
    }
    tti_set_host(out, &whole);
}

/* Returns the dimension of a result with that shape along which constant x repeats for the samples;
 * 0: none. */
static int batch_dim_in(const tti_operand *x, const tutti_shape *shape) {
    if (x->kind != TTI_OPERAND_HOST || x->host.batch_dim == 0) return 0;
    return x->host.batch_dim + shape->n_dims - x->host.shape.n_dims;
}

/* Sets a result, and finds whether it has a row for each sample, equal rows, or neither. */
void tti_set_pair(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                  const tti_operand *x, const tti_operand *y) {
    bool of_input = x->of_input || y->of_input;
    int64_t rows = of_input ? 0 : TTI_MAX(x->rows, y->rows);
    tutti_shape sx = tti_shape_of(x), sy = tti_shape_of(y), shape;
    if (!tti_good(b) || !tti_host_broadcast(b, &sx, &sy, &shape)) return;
    /* Dimensions that are 1 in both values are only repeated if the result needs them. */
    tutti_shape want = shape;
    tutti_type type = tutti_value_type(value);
    int batch_dim =
        of_input || rows > 0 ? 0 : TTI_MAX(batch_dim_in(x, &shape), batch_dim_in(y, &shape));
    int own = batch_dim - (shape.n_dims - type.shape.n_dims); /* the dimension in value */
    if (batch_dim > 0 && own >= 0 && type.shape.dim[own] != 1) batch_dim = 0;
    if (rows > 0 || batch_dim > 0) want.dim[batch_dim] = 1;
    if (type.shape.n_dims != want.n_dims || memcmp(type.shape.dim, want.dim, sizeof want.dim) != 0)
        value = tutti_broadcast_to(tti_graph_of(b), value, &want);
    if (batch_dim > 0) value = tti_repeat_along(b, value, batch_dim);
    tti_set_value(b, out, value, elem, of_input || batch_dim > 0);
    if (out && tti_good(b)) out->rows = rows;
}

/* True if a constant has integers that f32 cannot represent, other than powers of two; hashes and
 * counters have such integers. */
static bool is_wide(tti_building *b, const tti_operand *x) {
    if (!tti_on_host(x)) return false;
    int64_t n = x->kind == TTI_OPERAND_HOST ? tti_host_n(&x->host) : 1;
    int exponent;
    if (!tti_add_work(b, (double)n)) return false;
    for (int64_t i = 0; i < n; i++) {
        double e = x->kind == TTI_OPERAND_HOST ? tti_host_at(&x->host, i) : x->number;
        if (isfinite(e) && fabs(e) > 0x1p24 && fabs(frexp(e, &exponent)) != 0.5) return true;
    }
    return false;
}

/* Integers that depend on inputs are f32 in the graph, so results above 2^24 would be rounded;
 * refuses them. */
static void check_integers(tti_building *b, const tti_operand *x, const tti_operand *y) {
    tti_elem elem = tti_promote(x, y);
    bool are_whole = !tti_elem_is_float(elem) && elem != TTI_ELEM_BOOL &&
                     tti_elem_of(x) != TTI_ELEM_BOOL && tti_elem_of(y) != TTI_ELEM_BOOL;
    if (tti_good(b) && are_whole && (is_wide(b, x) || is_wide(b, y)))
        tti_refuse(b, "integers beyond 2^24 that depend on inputs are not supported");
}

/* x + factor y, without separate nodes for numbers. */
static tutti_value *add_scaled(tti_building *b, const tti_operand *x, const tti_operand *y,
                               double factor) {
    tutti_graph *g = tti_graph_of(b);
    if (y->kind == TTI_OPERAND_NUMBER && !y->live)
        return tutti_affine(g, tti_compact_value(b, x), 1, factor * y->number);
    if (x->kind == TTI_OPERAND_NUMBER && !x->live)
        return tutti_affine(g, tti_compact_value(b, y), factor, x->number);
    tutti_value *p = tti_compact_value(b, x), *q = tti_compact_value(b, y);
    if (factor == -1) return tutti_sub(g, p, q);
    if (factor != 1) q = tutti_affine(g, q, factor, 0);
    return tutti_add(g, p, q);
}

static double f_max(double x, double y) { return isnan(x) || x > y ? x : y; }
static double f_min(double x, double y) { return isnan(x) || x < y ? x : y; }

/* add and sub: self + sign * alpha * other. */
static void add_or_sub(tti_building *b, const tti_call *c, double sign,
                       double (*f)(double, double)) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    double alpha = tti_number_at(b, c, 2);
    if (!tti_good(b)) return;
    if (tti_on_host(x) && tti_on_host(y) && alpha == 1) {
        tti_fold_pair(b, x, y, TTI_ELEM_NONE, f, c->out[0]);
        return;
    }
    check_integers(b, x, y);
    tti_operand own = *x; /* out may be x */
    double shift = y->kind == TTI_OPERAND_NUMBER ? sign * alpha * y->number : 0;
    bool is_noise = x->is_noise && y->kind == TTI_OPERAND_NUMBER;
    tti_set_pair(b, c->out[0], add_scaled(b, x, y, sign * alpha), tti_promote(x, y), x, y);
    if (!is_noise || !c->out[0] || !tti_good(b)) return;
    c->out[0]->is_noise = true;
    c->out[0]->noise_shift = own.noise_shift + shift;
}

static void add(tti_building *b, const tti_call *c) { add_or_sub(b, c, 1, f_add); }
static void sub(tti_building *b, const tti_call *c) { add_or_sub(b, c, -1, f_sub); }

static void rsub(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    double alpha = tti_number_at(b, c, 2);
    if (tti_good(b) && alpha != 1) tti_refuse(b, "alpha=%g", alpha);
    if (!tti_good(b)) return;
    if (tti_on_host(x) && tti_on_host(y))
        tti_fold_pair(b, y, x, TTI_ELEM_NONE, f_sub, c->out[0]);
    else
        tti_set_pair(b, c->out[0], add_scaled(b, y, x, -1), tti_promote(x, y), x, y);
}

static void mul(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    check_integers(b, x, y);
    if (!tti_good(b)) return;
    tutti_value *value;
    if (x->kind == TTI_OPERAND_NUMBER && !x->live)
        value = tutti_affine(tti_graph_of(b), tti_compact_value(b, y), x->number, 0);
    else if (y->kind == TTI_OPERAND_NUMBER && !y->live)
        value = tutti_affine(tti_graph_of(b), tti_compact_value(b, x), y->number, 0);
    else
        value = tutti_mul(tti_graph_of(b), tti_compact_value(b, x), tti_compact_value(b, y));
    tti_set_pair(b, c->out[0], value, tti_promote(x, y), x, y);
}

static void divide(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    tutti_value *value =
        tutti_div(tti_graph_of(b), tti_compact_value(b, x), tti_compact_value(b, y));
    tti_set_pair(b, c->out[0], value, tti_float_elem(tti_promote(x, y)), x, y);
}

static void fold_divide(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (tti_good(b)) tti_fold_pair(b, x, y, tti_float_elem(tti_promote(x, y)), f_div, c->out[0]);
}

static void fold_two(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (tti_good(b)) tti_fold_pair(b, x, y, TTI_ELEM_NONE, tti_row_of(b)->f2, c->out[0]);
}

static void build_two(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    tutti_value *value =
        tti_row_of(b)->b2(tti_graph_of(b), tti_compact_value(b, x), tti_compact_value(b, y));
    tti_set_pair(b, c->out[0], value, tti_promote(x, y), x, y);
}

void tti_fold_numbers(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    tti_fold_pair(b, x, y, TTI_ELEM_NONE, tti_row_of(b)->f2, c->out[0]);
}

/* ---- powers ---- */

static void fold_pow(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (tti_good(b)) tti_fold_pair(b, x, y, TTI_ELEM_NONE, pow, c->out[0]);
}

/* x^n for integer n >= 1, by repeated squaring. */
static tutti_value *whole_power(tutti_graph *g, tutti_value *x, int n) {
    tutti_value *result = NULL;
    for (; n > 0; n /= 2) {
        if (n % 2) result = result ? tutti_mul(g, result, x) : x;
        if (n > 1) x = tutti_square(g, x);
    }
    return result;
}

static void pow_scalar(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    double y = tti_number_at(b, c, 1), size = fabs(y);
    tutti_graph *g = tti_graph_of(b);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (!tti_good(b)) return;
    if (size > 0 && size <= 64 && size == trunc(size)) {
        value = whole_power(g, value, (int)size);
    } else if (2 * size == trunc(2 * size) && size > 0 && size < 64) {
        tutti_value *root = tutti_sqrt(g, value);
        value = size < 1 ? root : tutti_mul(g, whole_power(g, value, (int)size), root);
    } else if (y == 0) {
        value = tutti_affine(g, tutti_stop_gradient(g, value), 0, 1);
    } else {
        tti_set_value(b, c->out[0], tutti_pow(g, value, scalar(g, y)),
                      tti_float_elem(tti_elem_of(x)), tti_of_batch(x));
        return;
    }
    if (y < 0) value = reciprocal(g, value);
    bool whole = y >= 0 && y == trunc(y);
    tti_elem elem = whole ? tti_elem_of(x) : tti_float_elem(tti_elem_of(x));
    tti_set_value(b, c->out[0], value, elem, tti_of_batch(x));
}

static void pow_pair(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    if (!tti_elem_is_float(tti_promote(x, y)))
        tti_refuse(b, "powers of integers that depend on inputs are not supported");
    tutti_value *value =
        tutti_pow(tti_graph_of(b), tti_compact_value(b, x), tti_compact_value(b, y));
    tti_set_pair(b, c->out[0], value, tti_promote(x, y), x, y);
}

/* ---- three inputs ---- */

/* self tensor1 tensor2 value: self + value * tensor1 * tensor2, or / tensor2. */
static void add_product(tti_building *b, const tti_call *c, bool divides) {
    const tti_operand *x = tti_operand_at(b, c, 0), *p = tti_operand_at(b, c, 1);
    const tti_operand *q = tti_operand_at(b, c, 2);
    double factor = tti_number_at(b, c, 3);
    tutti_graph *g = tti_graph_of(b);
    tti_operand term = {0};
    if (!tti_good(b)) return;
    tutti_value *u = tti_compact_value(b, p), *v = tti_compact_value(b, q);
    tutti_value *value = divides ? tutti_div(g, u, v) : tutti_mul(g, u, v);
    tti_elem elem = tti_promote(p, q);
    tti_set_pair(b, &term, tutti_affine(g, value, factor, 0), divides ? tti_float_elem(elem) : elem,
                 p, q);
    if (!tti_good(b)) return;
    value = tutti_add(g, tti_compact_value(b, x), tti_compact_value(b, &term));
    tti_set_pair(b, c->out[0], value, tti_promote(x, &term), x, &term);
}
static void addcmul(tti_building *b, const tti_call *c) { add_product(b, c, false); }
static void addcdiv(tti_building *b, const tti_call *c) { add_product(b, c, true); }

/* self end weight: self + weight (end - self) */
static void lerp(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    const tti_operand *w = tti_operand_at(b, c, 2);
    tutti_graph *g = tti_graph_of(b);
    tti_operand way = {0};
    if (!tti_good(b)) return;
    tti_set_pair(b, &way, tutti_sub(g, tti_compact_value(b, y), tti_compact_value(b, x)),
                 tti_promote(x, y), x, y);
    if (!tti_good(b)) return;
    tutti_value *part = tutti_mul(g, tti_compact_value(b, &way), tti_compact_value(b, w));
    tutti_value *value = tutti_add(g, tti_compact_value(b, x), part);
    tti_set_pair(b, c->out[0], value, tti_promote(x, y), &way, w);
}

/* self dim: the first half times the logistic function of the second. */
static void glu(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, shape.n_dims);
    if (tti_good(b) && (shape.n_dims < 1 || shape.dim[dim] % 2 != 0))
        tti_refuse(b, "the dimension is odd and has no halves");
    if (!tti_good(b)) return;
    tutti_value *parts[2] = {NULL, NULL};
    tutti_split(g, tti_as_float(b, tti_value_of(b, x)), dim, 2, parts);
    tti_set_value(b, c->out[0], tutti_mul(g, parts[0], tutti_sigmoid(g, parts[1])), tti_elem_of(x),
                  tti_of_batch(x));
}

/* ---- types ---- */

/* Converts x to elem. Floats of any width are f32 in the graph; integer types truncate. */
static void convert(tti_building *b, const tti_call *c, tti_elem elem) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_operand *out = c->out[0];
    if (!tti_good(b)) return;
    tti_elem from = tti_elem_of(x);
    if (x->kind == TTI_OPERAND_HOST) {
        tti_host made, whole, old = x->host;
        if (elem == from) {
            tti_set(out, x);
            tti_record_whole_view(b, c);
            return;
        }
        if (!tti_host_new_like(b, elem, (tti_host *[]){&old}, 1, &made, &whole)) return;
        int64_t n = tti_host_n(&made);
        tti_host_walk w = tti_host_begin(&old);
        tti_host_copy_next(&w, made.data, n);
        tti_round_all(elem, made.data, n);
        tti_set_host(out, &whole);
        return;
    }
    if (x->kind != TTI_OPERAND_GRAPH) {
        tutti_value *live = x->live;
        tti_set_number(out, tti_round(elem, x->number), elem, x->is_batch);
        tti_set_live(b, out, live);
        return;
    }
    tutti_value *value = x->rows > 0 ? x->value : tti_value_of(b, x), *own = value;
    if (elem == TTI_ELEM_BOOL && from != TTI_ELEM_BOOL) {
        set_like(b, out, tti_nonzero(b, x), elem, x);
        return;
    }
    bool cuts = tti_elem_is_float(from) && !tti_elem_is_float(elem);
    if (cuts) value = tutti_cast(tti_graph_of(b), value, TUTTI_I32);
    if (tti_elem_is_float(elem)) value = tti_as_float(b, value);
    if (value != own || elem != from) {
        set_like(b, out, value, elem, x);
        return;
    }
    tti_set(out, x);
    tti_record_whole_view(b, c);
}

/* self dtype copy: x itself if it already has that type and copy is false. */
static void to_dtype(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_elem elem = tti_has(c, 1) ? (tti_elem)tti_int_at(b, c, 1) : tti_elem_of(x);
    bool copies = c->n_args > 2 && tti_bool_at(b, c, 2);
    if (copies && tti_good(b) && elem == tti_elem_of(x) && x->kind != TTI_OPERAND_NUMBER)
        tti_call_row(b, "aten.clone.default", c->arg[0], 1, c->out, 1);
    else
        convert(b, c, elem);
}

static void to_copy(tti_building *b, const tti_call *c) {
    tti_call own = *c;
    tti_arg copies = tti_bool_arg(true);
    own.arg[2] = &copies;
    own.n_args = 3;
    to_dtype(b, &own);
}

static void type_as(tti_building *b, const tti_call *c) {
    convert(b, c, tti_elem_of(tti_operand_at(b, c, 1)));
}

/* ---- rows ---- */

#define MAP(op, fn, builder)                                                      \
    {                                                                             \
        .target = "aten." op ".default", .signature = "self", .build = build_map, \
        .fold = fold_float, .f1 = fn, .b1 = builder                               \
    }
#define SAME(op, fn, builder)                                                     \
    {                                                                             \
        .target = "aten." op ".default", .signature = "self", .build = build_map, \
        .fold = fold_same, .f1 = fn, .b1 = builder                                \
    }
#define GRAPH_ONLY(op, builder) \
    { .target = "aten." op ".default", .signature = "self", .build = build_map, .b1 = builder }
#define BUILD(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }
#define PAIR(op, fn, builder)                                                                  \
    {                                                                                          \
        .target = "aten." op, .signature = "self other", .build = build_two, .fold = fold_two, \
        .f2 = fn, .b2 = builder                                                                \
    }
#define HOST(op, folded, fn) \
    { .target = "aten." op, .signature = "self other", .fold = folded, .f2 = fn }
#define NUMBERS(op, fn) \
    { .target = "_operator." op, .signature = "a b", .fold = tti_fold_numbers, .f2 = fn }

const tti_operator tti_operators_math[] = {
    MAP("exp", exp, tutti_exp),
    MAP("log", log, tutti_log),
    MAP("sqrt", sqrt, tutti_sqrt),
    MAP("rsqrt", f_rsqrt, rsqrt),
    MAP("reciprocal", f_reciprocal, reciprocal),
    MAP("tanh", tanh, tutti_tanh),
    MAP("sigmoid", f_sigmoid, tutti_sigmoid),
    MAP("silu", f_silu, tutti_silu),
    SAME("neg", f_neg, tutti_neg),
    SAME("abs", fabs, tutti_abs),
    SAME("relu", f_relu, tutti_relu),
    SAME("square", f_square, tutti_square),
    SAME("sign", f_sign, sign_of),
    MAP("sin", sin, tutti_sin),
    MAP("cos", cos, tutti_cos),
    MAP("tan", tan, tan_of),
    MAP("erf", erf, tutti_erf),
    MAP("log1p", log1p, tutti_log1p),
    MAP("expm1", f_expm1, tutti_expm1),
    MAP("exp2", f_exp2, exp2_of),
    MAP("log2", log2, log2_of),
    MAP("log10", log10, log10_of),
    SAME("frac", f_frac, frac_of),
    SAME("round", f_round, tutti_round),
    SAME("ceil", ceil, ceil_of),
    SAME("trunc", trunc, trunc_of),
    SAME("sgn", f_sign, sign_of),
    {.target = "aten.floor.default",
     .signature = "self",
     .build = floor_of,
     .fold = fold_same,
     .f1 = floor,
     .b1 = tutti_floor},
    GRAPH_ONLY("hardsigmoid", hardsigmoid),
    GRAPH_ONLY("hardswish", hardswish),
    GRAPH_ONLY("relu6", tutti_relu6),
    GRAPH_ONLY("mish", mish),
    GRAPH_ONLY("selu", selu),
    GRAPH_ONLY("log_sigmoid", log_sigmoid),
    BUILD("gelu.default", "self approximate=none", gelu),
    BUILD("leaky_relu.default", "self negative_slope=0.01", leaky_relu),
    BUILD("elu.default", "self alpha=1 scale=1 input_scale=1", elu),
    BUILD("celu.default", "self alpha=1", celu),
    BUILD("softplus.default", "self beta=1 threshold=20", softplus),
    TTI_BOTH("hardtanh.default", "self min_val=-1 max_val=1", clamp),
    TTI_BOTH("clamp.default", "self min=None max=None", clamp),
    TTI_BOTH("clamp_min.default", "self min", clamp_min),
    TTI_BOTH("clamp_max.default", "self max", clamp_max),
    TTI_BOTH("add.Tensor", "self other alpha=1", add),
    TTI_BOTH("add.Scalar", "self other alpha=1", add),
    TTI_BOTH("sub.Tensor", "self other alpha=1", sub),
    TTI_BOTH("sub.Scalar", "self other alpha=1", sub),
    TTI_BOTH("rsub.Tensor", "self other alpha=1", rsub),
    TTI_BOTH("rsub.Scalar", "self other alpha=1", rsub),
    {.target = "aten.mul.Tensor",
     .signature = "self other",
     .build = mul,
     .fold = fold_two,
     .f2 = f_mul},
    {.target = "aten.mul.Scalar",
     .signature = "self other",
     .build = mul,
     .fold = fold_two,
     .f2 = f_mul},
    {.target = "aten.div.Tensor", .signature = "self other", .build = divide, .fold = fold_divide},
    {.target = "aten.div.Scalar", .signature = "self other", .build = divide, .fold = fold_divide},
    PAIR("max.other", f_max, tutti_maximum),
    PAIR("min.other", f_min, tutti_minimum),
    PAIR("maximum.default", f_max, tutti_maximum),
    PAIR("minimum.default", f_min, tutti_minimum),
    BUILD("addcmul.default", "self tensor1 tensor2 value=1", addcmul),
    BUILD("addcdiv.default", "self tensor1 tensor2 value=1", addcdiv),
    BUILD("lerp.Scalar", "self end weight", lerp),
    BUILD("lerp.Tensor", "self end weight", lerp),
    BUILD("glu.default", "self dim=-1", glu),
    NUMBERS("add", f_add),
    NUMBERS("sub", f_sub),
    NUMBERS("mul", f_mul),
    NUMBERS("floordiv", tti_floor_quotient),
    NUMBERS("mod", tti_floor_remainder),
    NUMBERS("truediv", f_div),
    NUMBERS("pow", pow),
    {.target = "_operator.neg", .signature = "a", .fold = fold_same, .f1 = f_neg},
    {.target = "math.trunc", .signature = "a", .fold = fold_same, .f1 = trunc},
    {.target = "torch.sym_float", .signature = "a", .fold = fold_float, .f1 = f_same},
    {.target = "aten.pow.Tensor_Scalar",
     .signature = "self exponent",
     .build = pow_scalar,
     .fold = fold_pow},
    {.target = "aten.pow.Scalar",
     .signature = "self exponent",
     .build = pow_pair,
     .fold = fold_pow},
    {.target = "aten.pow.Tensor_Tensor",
     .signature = "self exponent",
     .build = pow_pair,
     .fold = fold_pow},
    {.target = "aten.to.dtype",
     .signature = "self dtype non_blocking!=False copy=False memory_format!",
     .build = to_dtype,
     .fold = to_dtype,
     .view = true},
    {.target = "aten.to.dtype_layout",
     .signature = "self dtype=None layout!=None device!=None pin_memory!=None non_blocking!=False "
                  "copy=False memory_format!=None",
     .build = to_dtype,
     .fold = to_dtype,
     .view = true},
    {.target = "aten.to.device",
     .signature = "self dtype=None device! non_blocking!=False copy=False memory_format!=None",
     .build = to_dtype,
     .fold = to_dtype,
     .view = true},
    {.target = "aten._to_copy.default",
     .signature = "self dtype=None layout!=None device!=None pin_memory!=None non_blocking!=False "
                  "memory_format!=None",
     .build = to_copy,
     .fold = to_copy},
    {.target = "aten.type_as.default",
     .signature = "self other",
     .build = type_as,
     .fold = type_as,
     .view = true},
    {0},
};

/* softmax.c - softmax and its logarithm along one axis.
 *
 * The largest element is subtracted first, so no exponent overflows; a row of nothing but -inf
 * gives NaN.  The idea to know: both gradients need only the output y. */
#include <math.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec axis_attrs[] = {{"axis", TTI_ATTR_INT, -1, "negative: from the end"},
                                           {0}};

static tutti_status softmax_infer(const tti_node *node, tutti_type *out) {
    int axis;
    TTI_TRY(tti_infer_same(node, out));
    return tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis);
}

static int axis_of(const tti_node *node) {
    int axis = 0;
    TTI_ASSERT(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis) == TUTTI_OK);
    return axis;
}

/* One row: elements first, first + step, .. of each array. */
typedef struct row {
    size_t first, n, step;
} row;
typedef void (*row_fn)(const tti_args *a, const row *r);

static void each_row(const tti_args *a, row_fn fn) {
    tti_axis_view v = tti_view_axis(tti_in_shape(a->node, 0), axis_of(a->node));
    for (size_t i = 0; i < v.outer; i++)
        for (size_t j = 0; j < v.inner; j++) fn(a, &(row){i * v.n * v.inner + j, v.n, v.inner});
}

/* The maximum of a row, and the sum of e^(x - maximum).  The logarithm of all e^x is not used:
 * where all elements are huge, it lacks the digits of that of the sum. */
static double sum_exponents(const double *x, const row *r, double *max) {
    double sum = 0;
    *max = -INFINITY;
    for (size_t k = 0; k < r->n; k++) *max = fmax(*max, x[r->first + k * r->step]);
    for (size_t k = 0; k < r->n; k++) sum += exp(x[r->first + k * r->step] - *max);
    return sum;
}

static void softmax_row(const tti_args *a, const row *r) {
    double max, sum = sum_exponents(a->in[0], r, &max);
    for (size_t k = 0, i = r->first; k < r->n; k++, i += r->step)
        a->out[0][i] = exp(a->in[0][i] - max) / sum;
}

static void log_softmax_row(const tti_args *a, const row *r) {
    double max, sum = sum_exponents(a->in[0], r, &max);
    for (size_t k = 0, i = r->first; k < r->n; k++, i += r->step)
        a->out[0][i] = a->in[0][i] - max - log(sum);
}

static void softmax_grad_row(const tti_args *a, const row *r) {
    double dot = 0;
    for (size_t k = 0, i = r->first; k < r->n; k++, i += r->step) dot += a->in[0][i] * a->in[1][i];
    for (size_t k = 0, i = r->first; k < r->n; k++, i += r->step)
        a->out[0][i] = a->in[0][i] * (a->in[1][i] - dot);
}

static void log_softmax_grad_row(const tti_args *a, const row *r) {
    double sum = 0;
    for (size_t k = 0, i = r->first; k < r->n; k++, i += r->step) sum += a->in[1][i];
    for (size_t k = 0, i = r->first; k < r->n; k++, i += r->step)
        a->out[0][i] = a->in[1][i] - exp(a->in[0][i]) * sum;
}

static void softmax_reference(const tti_args *a) { each_row(a, softmax_row); }
static void log_softmax_reference(const tti_args *a) { each_row(a, log_softmax_row); }
static void softmax_grad_reference(const tti_args *a) { each_row(a, softmax_grad_row); }
static void log_softmax_grad_reference(const tti_args *a) { each_row(a, log_softmax_grad_row); }

static tutti_status by_output(tutti_graph *g, const tti_node *node, const char *op, tutti_value *dy,
                              tutti_value **dx) {
    tti_attr_arg attrs[] = {tti_same_attr(node, "axis"), {0}};
    *dx = tti_grad_emit(g, node, op, (tutti_value *[]){node->out[0], dy}, 2, attrs);
    return tutti_graph_check(g);
}

static tutti_status softmax_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    return need[0] ? by_output(g, node, "softmax_grad", dy[0], &dx[0]) : TUTTI_OK;
}

static tutti_status log_softmax_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                     const bool *need, tutti_value **dx) {
    return need[0] ? by_output(g, node, "log_softmax_grad", dy[0], &dx[0]) : TUTTI_OK;
}

static tutti_status softmax_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    if (tti_is_split(in[0], axis_of(node)))
        return tti_shard_refuse(node, in, "a row must lie on one worker");
    return node->n_in == 2 ? tti_shard_grad(node, in, out) : tti_shard_same(node, in, out);
}

static void softmax_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 20.0 * (double)tti_out_n(node, 0), cost); /* exp is about 16 of them */
}

/* ---- builders ---- */

tutti_value *tutti_softmax(tutti_graph *g, tutti_value *x, int axis) {
    return tti_build1(g, "softmax", x, (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}
tutti_value *tutti_log_softmax(tutti_graph *g, tutti_value *x, int axis) {
    return tti_build1(g, "log_softmax", x, (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

/* ---- records ---- */

static const tti_sample samples[] = {
    {.in = "f32[4,6]", .lo = -5, .hi = 5},
    {.in = "f32[2,3,4]", .attrs = "axis=1"},
    {.in = "f32[4,10]", .lo = 500, .hi = 900},
    {.in = "f32[4,10]", .shift = -0x1.1p20, .shifted = 1 << 0}, /* e.g. by a mask, all elements */
    {.in = "f32[2,3,4]", .attrs = "axis=1", .shift = 0x1.1p20, .shifted = 1 << 0},
    {.in = "f64[2,1]"},
    {.in = "f32[0,6]"},
    {.in = "f32[4,0]"},
    {.in = "f32[4,6]", .attrs = "axis=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_samples[] = {
    {.in = "f32[4,6] f32[4,6]"},
    {.in = "f32[2,3,4] f32[2,3,4]", .attrs = "axis=1"},
    {.in = "f32[0,6] f32[0,6]"},
    {.in = "f32[4,6] f32[4,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6]", .attrs = "axis=-3", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of this family's records; n is the number of inputs. */
#define SOFTMAX(op_name, n)                                                          \
    .name = #op_name, .n_in_min = n, .n_in_max = n, .n_out = 1, .attrs = axis_attrs, \
    .infer = softmax_infer, .shard = softmax_shard, .cost = softmax_cost,            \
    .reference = op_name##_reference

const tti_op tti_ops_softmax[] = {
    {SOFTMAX(softmax, 1), .doc = "y_i = e^x_i / sum_j e^x_j along axis", .grad = softmax_grad,
     .samples = samples},
    {SOFTMAX(softmax_grad, 2), .doc = "dx = y (dy - sum dy y); inputs y, dy",
     .samples = grad_samples},
    {SOFTMAX(log_softmax, 1), .doc = "y_i = x_i - ln sum_j e^x_j along axis",
     .grad = log_softmax_grad, .samples = samples},
    {SOFTMAX(log_softmax_grad, 2), .doc = "dx = dy - e^y sum dy; inputs y, dy",
     .samples = grad_samples},
    {0},
};

/* reduce.c - sums, means, maxima and the index of the maximum, over some axes.
 *
 * A reduction is first computed with the reduced dimensions kept as 1, where it is the opposite of
 * broadcasting; "keep" decides only whether they stay in the shape. */
#include <math.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec reduce_attrs[] = {
    {"axes", TTI_ATTR_INTS, 0, "empty: all; negative: from the end"},
    {"keep", TTI_ATTR_INT, 0, "1: reduced dimensions stay as 1"},
    {0},
};
static const tti_attr_spec argmax_attrs[] = {{"axis", TTI_ATTR_INT, -1, "negative: from the end"},
                                             {0}};

/* Which dimensions are reduced, as bits, or why the axes are wrong. */
static tutti_status read_axes(const tti_node *node, unsigned *reduced) {
    const tti_attr *axes = tti_attr_get(node, "axes");
    int n_dims = tti_in_shape(node, 0)->n_dims;
    *reduced = axes->n ? 0 : (1u << n_dims) - 1;
    for (int i = 0; i < axes->n; i++) {
        int64_t axis = axes->v[i] < 0 ? axes->v[i] + n_dims : axes->v[i];
        if (axis < 0 || axis >= n_dims)
            return tti_node_fail(node, "axis %lld is outside a shape of %d dimensions",
                                 (long long)axes->v[i], n_dims);
        if (*reduced & 1u << axis)
            return tti_node_fail(node, "axis %lld is named twice", (long long)axes->v[i]);
        *reduced |= 1u << axis;
    }
    return TUTTI_OK;
}

static unsigned reduced_dims(const tti_node *node) {
    unsigned reduced = 0;
    TTI_ASSERT(read_axes(node, &reduced) == TUTTI_OK);
    return reduced;
}

/* The input's shape with the reduced dimensions as 1. */
static tutti_shape kept_shape(const tti_node *node, unsigned reduced) {
    tutti_shape shape = *tti_in_shape(node, 0);
    for (int d = 0; d < shape.n_dims; d++)
        if (reduced & 1u << d) shape.dim[d] = 1;
    return shape;
}

static tutti_status reduce_infer(const tti_node *node, tutti_type *out) {
    unsigned reduced;
    int64_t keep = tti_attr_int(node, "keep");
    TTI_TRY(tti_need_floats(node, 0, node->n_in));
    TTI_TRY(read_axes(node, &reduced));
    if (keep != 0 && keep != 1)
        return tti_node_fail(node, "keep must be 0 or 1, is %lld", (long long)keep);
    tutti_shape kept = kept_shape(node, reduced), bare = {0};
    for (int d = 0; d < kept.n_dims; d++)
        if (!(reduced & 1u << d)) bare.dim[bare.n_dims++] = kept.dim[d];
    out[0] = (tutti_type){node->in[0]->type.dtype, keep ? kept : bare};
    return TUTTI_OK;
}

/* Elements of x that go into one of y. */
static double group_elems(const tti_node *node, unsigned reduced) {
    double n = 1;
    for (int d = 0; d < tti_in_shape(node, 0)->n_dims; d++)
        if (reduced & 1u << d) n *= (double)tti_in_dim(node, 0, d);
    return n;
}

/* ---- references ---- */

static void add_up(const tti_args *a) {
    tutti_shape kept = kept_shape(a->node, reduced_dims(a->node));
    const tutti_shape *x = tti_in_shape(a->node, 0);
    size_t n = tti_in_n(a->node, 0), n_out = tti_out_n(a->node, 0);
    for (size_t i = 0; i < n_out; i++) a->out[0][i] = 0;
    for (size_t i = 0; i < n; i++) a->out[0][tti_broadcast_index(x, &kept, i)] += a->in[0][i];
}

static void sum_reference(const tti_args *a) { add_up(a); }

static void mean_reference(const tti_args *a) {
    double n = group_elems(a->node, reduced_dims(a->node));
    size_t n_out = tti_out_n(a->node, 0);
    add_up(a);
    for (size_t i = 0; i < n_out; i++) a->out[0][i] /= n;
}

/* The maximum of no elements is -inf; NaN if any element is NaN. */
static void max_reduce_reference(const tti_args *a) {
    tutti_shape kept = kept_shape(a->node, reduced_dims(a->node));
    const tutti_shape *x = tti_in_shape(a->node, 0);
    size_t n = tti_in_n(a->node, 0), n_out = tti_out_n(a->node, 0);
    for (size_t i = 0; i < n_out; i++) a->out[0][i] = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        double *best = &a->out[0][tti_broadcast_index(x, &kept, i)];
        if (a->in[0][i] > *best || isnan(a->in[0][i])) *best = a->in[0][i];
    }
}

static double max_slope(double x, double y, double share) {
    return isnan(y) ? y : x == y ? share : 0;
}

/* Inputs x, y, dy.  dx = dy / ties where x equals y, else 0; all NaN where y is, as in PyTorch. */
static void max_reduce_grad_reference(const tti_args *a) {
    tutti_shape kept = kept_shape(a->node, reduced_dims(a->node));
    const tutti_shape *x = tti_in_shape(a->node, 0);
    size_t n = tti_in_n(a->node, 0), n_groups = tti_in_n(a->node, 1);
    for (size_t k = 0; k < n_groups; k++) {
        double ties = 0;
        for (size_t i = 0; i < n; i++)
            ties += tti_broadcast_index(x, &kept, i) == k && a->in[0][i] == a->in[1][k];
        for (size_t i = 0; i < n; i++)
            if (tti_broadcast_index(x, &kept, i) == k)
                a->out[0][i] = max_slope(a->in[0][i], a->in[1][k], a->in[2][k] / ties);
    }
}

static tutti_status argmax_infer(const tti_node *node, tutti_type *out) {
    int axis;
    const tutti_shape *x = tti_in_shape(node, 0);
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_get_axis(node, x->n_dims, &axis));
    if (x->dim[axis] < 1 || x->dim[axis] > INT32_MAX)
        return tti_node_fail(node, "a dimension of %lld is too large for i32 indices",
                             (long long)x->dim[axis]);
    out[0] = (tutti_type){TUTTI_I32, {.n_dims = x->n_dims - 1}};
    for (int d = 0, e = 0; d < x->n_dims; d++)
        if (d != axis) out[0].shape.dim[e++] = x->dim[d];
    return TUTTI_OK;
}

static int axis_of(const tti_node *node) {
    int axis = 0;
    TTI_ASSERT(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis) == TUTTI_OK);
    return axis;
}

static void argmax_reference(const tti_args *a) {
    tti_axis_view v = tti_view_axis(tti_in_shape(a->node, 0), axis_of(a->node));
    for (size_t i = 0; i < v.outer; i++)
        for (size_t j = 0; j < v.inner; j++) {
            const double *x = a->in[0] + i * v.n * v.inner + j;
            size_t best = 0;
            for (size_t k = 1; k < v.n; k++) {
                double now = x[k * v.inner], top = x[best * v.inner];
                if (now > top || (isnan(now) && !isnan(top))) best = k;
            }
            a->out[0][i * v.inner + j] = (double)best;
        }
}

/* ---- gradients ---- */

/* dy broadcast to the shape of x, by way of the shape with the reduced dimensions as 1. */
static tutti_value *broadcast_grad(tutti_graph *g, const tti_node *node, tutti_value *dy) {
    tutti_shape kept = kept_shape(node, reduced_dims(node));
    const tutti_shape *x = tti_in_shape(node, 0);
    tti_attr_arg as_kept[] = {TTI_INTS("dims", kept.n_dims, kept.dim), {0}};
    tti_attr_arg as_x[] = {TTI_INTS("dims", x->n_dims, x->dim), {0}};
    tutti_value *column = tti_grad_emit(g, node, "reshape", &dy, 1, as_kept);
    return tti_grad_emit(g, node, "broadcast_to", &column, 1, as_x);
}

static tutti_status sum_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = broadcast_grad(g, node, dy[0]);
    return tutti_graph_check(g);
}

static tutti_status mean_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    double n = group_elems(node, reduced_dims(node));
    tti_attr_arg share[] = {TTI_FLOAT("alpha", n > 0 ? 1 / n : 0), {0}};
    dx[0] = broadcast_grad(g, node, tti_grad_emit(g, node, "affine", dy, 1, share));
    return tutti_graph_check(g);
}

static tutti_status max_reduce_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                    const bool *need, tutti_value **dx) {
    if (!need[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "axes"), tti_same_attr(node, "keep"), {0}};
    dx[0] = tti_grad_emit(g, node, "max_reduce_grad",
                          (tutti_value *[]){node->in[0], node->out[0], dy[0]}, 3, attrs);
    return tutti_graph_check(g);
}

static tutti_status max_reduce_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(reduce_infer(node, out));
    if (!tti_shape_equal(&out[0].shape, tti_in_shape(node, 1)))
        return tti_node_fail(node, "y does not have the shape of the maximum of x");
    TTI_TRY(tti_need_same_shape(node, 1, 2));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* ---- shard ---- */

/* The dimension of y that corresponds to the kept dimension dim of x. */
static int dim_in_output(const tti_node *node, unsigned reduced, int dim) {
    int e = dim;
    if (tti_attr_int(node, "keep")) return e;
    for (int d = 0; d < dim; d++) e -= (reduced & 1u << d) != 0;
    return e;
}

static tutti_status sum_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    unsigned reduced = reduced_dims(node);
    out[0] = in[0];
    if (in[0].kind != TTI_SPLIT) return TUTTI_OK;
    bool is_reduced = reduced & 1u << in[0].dim;
    out[0] = is_reduced ? (tti_placement){TTI_PARTIAL, 0}
                        : tti_split_along(dim_in_output(node, reduced, in[0].dim));
    return TUTTI_OK;
}

/* The sum of the means of the shards is not the mean of all elements. */
static tutti_status mean_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    if (in[0].kind == TTI_SPLIT && reduced_dims(node) & 1u << in[0].dim)
        return tti_shard_refuse(node, in, "a mean over a split dimension: use a sum and a count");
    return sum_shard(node, in, out);
}

static tutti_status max_reduce_shard(const tti_node *node, const tti_placement *in,
                                     tti_placement *out) {
    unsigned reduced = reduced_dims(node);
    if (in[0].kind == TTI_PARTIAL || (in[0].kind == TTI_SPLIT && reduced & 1u << in[0].dim))
        return tti_shard_refuse(node, in, "a maximum over parts on different workers");
    return sum_shard(node, in, out);
}

static tutti_status max_reduce_grad_shard(const tti_node *node, const tti_placement *in,
                                          tti_placement *out) {
    static const tti_shard_rule rules[] = {{"WWP", "P"}};
    unsigned reduced = reduced_dims(node);
    out[0] = in[0];
    if (in[0].kind != TTI_SPLIT) return tti_shard_match(node, rules, 1, in, out, "all alike");
    int e = dim_in_output(node, reduced, in[0].dim);
    if (reduced & 1u << in[0].dim || !tti_is_split(in[1], e) || !tti_is_split(in[2], e))
        return tti_shard_refuse(node, in, "a maximum over parts on different workers");
    return TUTTI_OK;
}

static tutti_status argmax_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    int axis = axis_of(node);
    if (in[0].kind == TTI_PARTIAL || tti_is_split(in[0], axis))
        return tti_shard_refuse(node, in, "a maximum over parts on different workers");
    out[0] = in[0];
    if (out[0].kind == TTI_SPLIT && out[0].dim > axis) out[0].dim--;
    return TUTTI_OK;
}

static void reduce_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, (double)tti_in_n(node, 0), cost);
}

/* ---- builders ---- */

static tutti_value *build_reduce(tutti_graph *g, const char *op, tutti_value *x,
                                 const tutti_axes *axes) {
    const tutti_axes all = {0};
    if (!axes) axes = &all;
    if (axes->n < 0 || axes->n > TUTTI_MAX_DIMS)
        return tti_build_fail(g, "%s: 0 to %d axes are allowed, got %d", op, TUTTI_MAX_DIMS,
                              axes->n);
    int64_t list[TUTTI_MAX_DIMS];
    for (int i = 0; i < axes->n; i++) list[i] = axes->axis[i];
    return tti_build1(
        g, op, x,
        (tti_attr_arg[]){TTI_INTS("axes", axes->n, list), TTI_INT("keep", axes->keep), {0}});
}

tutti_value *tutti_sum(tutti_graph *g, tutti_value *x, const tutti_axes *axes) {
    return build_reduce(g, "sum", x, axes);
}
tutti_value *tutti_mean(tutti_graph *g, tutti_value *x, const tutti_axes *axes) {
    return build_reduce(g, "mean", x, axes);
}
tutti_value *tutti_max(tutti_graph *g, tutti_value *x, const tutti_axes *axes) {
    return build_reduce(g, "max_reduce", x, axes);
}
tutti_value *tutti_argmax(tutti_graph *g, tutti_value *x, int axis) {
    return tti_build1(g, "argmax", x, (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

/* ---- records ---- */

static const tti_sample samples[] = {
    {.in = "f32[4,6]"},
    {.in = "f32[4,6]", .attrs = "axes=[0]"},
    {.in = "f32[2,3,4,5]", .attrs = "axes=[0,2,-1] keep=1"},
    {.in = "f32[2,3,4]", .attrs = "axes=[1]"},
    {.in = "f64[]"},
    {.in = "f32[0,6]", .attrs = "axes=[1]"},
    {.in = "f32[4,6]", .attrs = "axes=[2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "axes=[1,-1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "keep=2", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample max_grad_samples[] = {
    {.in = "f32[4,6] f32[4] f32[4]", .attrs = "axes=[1]"},
    {.in = "f32[2,3,4] f32[1,3,1] f32[1,3,1]", .attrs = "axes=[0,2] keep=1"},
    {.in = "f32[0,6] f32[0] f32[0]", .attrs = "axes=[1]"},
    {.in = "f32[4,6] f32[6] f32[6]", .attrs = "axes=[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4] f32[6]", .attrs = "axes=[1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample argmax_samples[] = {
    {.in = "f32[4,6]"},
    {.in = "f32[2,3,4]", .attrs = "axis=1"},
    {.in = "f64[5]", .attrs = "axis=0"},
    {.in = "f32[0,6]"},
    {.in = "f32[4,0]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "axis=2", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of reductions. */
#define REDUCE(op_name)                                                                \
    .name = #op_name, .n_in_min = 1, .n_in_max = 1, .n_out = 1, .attrs = reduce_attrs, \
    .traits = TTI_READS_STRIDED, .infer = reduce_infer, .grad = op_name##_grad,        \
    .shard = op_name##_shard, .cost = reduce_cost, .reference = op_name##_reference,   \
    .samples = samples

const tti_op tti_ops_reduce[] = {
    {REDUCE(sum), .doc = "y = sum of x over axes"},
    {REDUCE(mean), .doc = "y = mean of x over axes"},
    {REDUCE(max_reduce), .doc = "y = maximum of x over axes; ties share the gradient"},
    {.name = "max_reduce_grad",
     .doc = "dx of max_reduce; inputs x, y, dy",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = reduce_attrs,
     .infer = max_reduce_grad_infer,
     .shard = max_reduce_grad_shard,
     .cost = reduce_cost,
     .reference = max_reduce_grad_reference,
     .samples = max_grad_samples},
    {.name = "argmax",
     .doc = "y = index of the first maximum of x along axis, i32",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = argmax_attrs,
     .traits = TTI_READS_STRIDED,
     .infer = argmax_infer,
     .shard = argmax_shard,
     .cost = reduce_cost,
     .reference = argmax_reference,
     .samples = argmax_samples},
    {0},
};

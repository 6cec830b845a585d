/* along.c - ops along one axis that need the order or the place of its elements: running sums,
 * sorting, and elements selected by index.
 *
 * The axis may not be divided; any other dimension may. */
#include <math.h>
#include <stdlib.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec cumsum_attrs[] = {
    {"axis", TTI_ATTR_INT, -1, "negative: from the end"},
    {"reverse", TTI_ATTR_INT, 0, "1: starts at the last element"},
    {0}};
static const tti_attr_spec sort_attrs[] = {{"axis", TTI_ATTR_INT, -1, "negative: from the end"},
                                           {"descending", TTI_ATTR_INT, 0, "1: the largest first"},
                                           {0}};
static const tti_attr_spec take_attrs[] = {{"axis", TTI_ATTR_INT, -1, "negative: from the end"},
                                           {0}};
static const tti_attr_spec put_attrs[] = {{"axis", TTI_ATTR_INT, -1, "negative: from the end"},
                                          {"n", TTI_ATTR_INT, 0, "elements of dx along axis"},
                                          {0}};

static int axis_of(const tti_node *node) {
    int axis = (int)tti_attr_int(node, "axis");
    return axis < 0 ? axis + tti_in_shape(node, 0)->n_dims : axis;
}

/* x floating; *axis is one of its dimensions. */
static tutti_status check_x(const tti_node *node, int *axis) {
    const tutti_shape *x = tti_in_shape(node, 0);
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_get_axis(node, x->n_dims, axis));
    if (x->dim[*axis] > INT32_MAX)
        return tti_node_fail(node, "a dimension of %lld is too large for i32 indices",
                             (long long)x->dim[*axis]);
    return TUTTI_OK;
}

/* ids i32, of the shape of input 0 but for the axis. */
static tutti_status check_ids(const tti_node *node, int axis) {
    const tutti_shape *x = tti_in_shape(node, 0), *ids = tti_in_shape(node, 1);
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, 1, x->n_dims));
    for (int d = 0; d < x->n_dims; d++)
        if (d != axis && x->dim[d] != ids->dim[d])
            return tti_node_fail(node, "dimension %d is %lld in the values and %lld in the indices",
                                 d, (long long)x->dim[d], (long long)ids->dim[d]);
    return TUTTI_OK;
}

/* ---- cumsum ---- */

static tutti_status cumsum_infer(const tti_node *node, tutti_type *out) {
    int axis;
    TTI_TRY(check_x(node, &axis));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

static void cumsum_reference(const tti_args *a) {
    tti_axis_view v = tti_view_axis(tti_in_shape(a->node, 0), axis_of(a->node));
    bool reverse = tti_attr_int(a->node, "reverse") != 0;
    for (size_t i = 0; i < v.outer; i++)
        for (size_t j = 0; j < v.inner; j++) {
            double sum = 0;
            for (size_t k = 0; k < v.n; k++) {
                size_t at = (i * v.n + (reverse ? v.n - 1 - k : k)) * v.inner + j;
                a->out[0][at] = sum += a->in[0][at];
            }
        }
}

static tutti_status cumsum_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {
        tti_same_attr(node, "axis"), TTI_INT("reverse", !tti_attr_int(node, "reverse")), {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "cumsum", dy, 1, attrs);
    return tutti_graph_check(g);
}

/* ---- sort ---- */

static tutti_status sort_infer(const tti_node *node, tutti_type *out) {
    int axis;
    TTI_TRY(check_x(node, &axis));
    out[0] = node->in[0]->type;
    out[1] = (tutti_type){TUTTI_I32, out[0].shape};
    return TUTTI_OK;
}

typedef struct placed {
    double x;
    size_t at;
    bool descending;
} placed;

/* NaN counts as the largest; equal elements keep their order. */
static int compare(const void *p, const void *q) {
    const placed *a = p, *b = q;
    bool a_nan = isnan(a->x), b_nan = isnan(b->x);
    int order = a_nan || b_nan ? a_nan - b_nan : (a->x > b->x) - (a->x < b->x);
    if (a->descending) order = -order;
    return order ? order : (a->at > b->at) - (a->at < b->at);
}

static void sort_reference(const tti_args *a) {
    tti_axis_view v = tti_view_axis(tti_in_shape(a->node, 0), axis_of(a->node));
    bool descending = tti_attr_int(a->node, "descending") != 0;
    placed *list = malloc((v.n + 1) * sizeof *list);
    TTI_ASSERT(list);
    for (size_t i = 0; i < v.outer; i++)
        for (size_t j = 0; j < v.inner; j++) {
            size_t first = i * v.n * v.inner + j;
            for (size_t k = 0; k < v.n; k++)
                list[k] = (placed){a->in[0][first + k * v.inner], k, descending};
            qsort(list, v.n, sizeof *list, compare);
            for (size_t k = 0; k < v.n; k++) {
                a->out[0][first + k * v.inner] = list[k].x;
                a->out[1][first + k * v.inner] = (double)list[k].at;
            }
        }
    free(list);
}

static tutti_value *put(tutti_graph *g, const tti_node *node, tutti_value *dy, tutti_value *ids) {
    tti_attr_arg attrs[] = {
        tti_same_attr(node, "axis"), TTI_INT("n", tti_in_dim(node, 0, axis_of(node))), {0}};
    return tti_grad_emit(g, node, "put_along", (tutti_value *[]){dy, ids}, 2, attrs);
}

static tutti_status sort_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (need[0] && dy[0]) dx[0] = put(g, node, dy[0], node->out[1]);
    return tutti_graph_check(g);
}

static void sort_cost(const tti_node *node, tti_cost *cost) {
    double n = (double)tti_in_dim(node, 0, axis_of(node));
    tti_cost_flops(node, (double)tti_in_n(node, 0) * log2(n + 2), cost);
}

/* ---- take_along, put_along ---- */

static tutti_status take_infer(const tti_node *node, tutti_type *out) {
    int axis;
    TTI_TRY(check_x(node, &axis));
    TTI_TRY(check_ids(node, axis));
    out[0] = (tutti_type){node->in[0]->type.dtype, *tti_in_shape(node, 1)};
    return TUTTI_OK;
}

static tutti_status put_infer(const tti_node *node, tutti_type *out) {
    int axis;
    int64_t n = tti_attr_int(node, "n");
    TTI_TRY(check_x(node, &axis));
    TTI_TRY(check_ids(node, axis));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    if (n < 0 || n > INT32_MAX) return tti_node_fail(node, "n is %lld", (long long)n);
    out[0] = node->in[0]->type;
    out[0].shape.dim[axis] = n;
    return TUTTI_OK;
}

/* Calls for each place: element `at` of ids belongs to element `from` of the wide value; from is
 * SIZE_MAX for a place outside of it. */
static size_t wide_at(size_t at, const tti_axis_view *ids, const tti_axis_view *wide, double id) {
    if (!(id >= 0 && id < (double)wide->n)) return SIZE_MAX;
    size_t inner = at % ids->inner, outer = at / ids->inner / ids->n;
    return (outer * wide->n + (size_t)id) * wide->inner + inner;
}

static void take_reference(const tti_args *a) {
    int axis = axis_of(a->node);
    tti_axis_view ids = tti_view_axis(tti_in_shape(a->node, 1), axis);
    tti_axis_view wide = tti_view_axis(tti_in_shape(a->node, 0), axis);
    size_t n = tti_in_n(a->node, 1);
    for (size_t i = 0; i < n; i++) {
        size_t from = wide_at(i, &ids, &wide, a->in[1][i]);
        a->out[0][i] = from == SIZE_MAX ? 0 : a->in[0][from];
    }
}

static void put_reference(const tti_args *a) {
    int axis = axis_of(a->node);
    tti_axis_view ids = tti_view_axis(tti_in_shape(a->node, 1), axis);
    tti_axis_view wide = tti_view_axis(&a->node->out[0]->type.shape, axis);
    size_t n = tti_in_n(a->node, 1), n_out = tti_out_n(a->node, 0);
    for (size_t i = 0; i < n_out; i++) a->out[0][i] = 0;
    for (size_t i = 0; i < n; i++) {
        size_t to = wide_at(i, &ids, &wide, a->in[1][i]);
        if (to != SIZE_MAX) a->out[0][to] += a->in[0][i];
    }
}

static tutti_status take_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = put(g, node, dy[0], node->in[1]);
    return tutti_graph_check(g);
}

static tutti_status put_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (need[0])
        dx[0] = tti_grad_emit(g, node, "take_along", (tutti_value *[]){dy[0], node->in[1]}, 2,
                              (tti_attr_arg[]){tti_same_attr(node, "axis"), {0}});
    return tutti_graph_check(g);
}

/* ---- shard ---- */

/* All inputs divided alike, but not along the axis. */
static tutti_status along_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const char why[] = "the axis cannot be split, and all inputs must be split alike";
    int axis = axis_of(node);
    for (int i = 0; i < node->n_in; i++)
        if (tti_is_split(in[i], axis)) return tti_shard_refuse(node, in, why);
    static const tti_shard_rule rules[] = {{"aa", "aa"}};
    return tti_shard_match(node, rules, 1, in, out, why);
}

/* The same, and linear in input 0. */
static tutti_status linear_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    bool is_term = in[0].kind == TTI_PARTIAL && (node->n_in < 2 || in[1].kind == TTI_WHOLE);
    if (!is_term) return along_shard(node, in, out);
    out[0] = in[0];
    return TUTTI_OK;
}

/* ---- builders ---- */

tutti_value *tutti_cumsum(tutti_graph *g, tutti_value *x, int axis) {
    return tti_build1(g, "cumsum", x, (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

tutti_sorted tutti_sort(tutti_graph *g, tutti_value *x, int axis, bool descending) {
    tutti_value *values =
        tti_build1(g, "sort", x,
                   (tti_attr_arg[]){TTI_INT("axis", axis), TTI_INT("descending", descending), {0}});
    return (tutti_sorted){values, values ? values->node->out[1] : NULL};
}

tutti_value *tutti_take_along(tutti_graph *g, tutti_value *x, tutti_value *ids, int axis) {
    return tti_build2(g, "take_along", x, ids, (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

tutti_value *tutti_put_along(tutti_graph *g, tutti_value *x, tutti_value *ids, int axis,
                             int64_t n) {
    return tti_build2(g, "put_along", x, ids,
                      (tti_attr_arg[]){TTI_INT("axis", axis), TTI_INT("n", n), {0}});
}

/* ---- records ---- */

static const tti_sample cumsum_samples[] = {
    {.in = "f32[4,6]"},
    {.in = "f32[2,3,4]", .attrs = "axis=1 reverse=1"},
    {.in = "f64[5]", .attrs = "axis=0"},
    {.in = "f32[0,6]"},
    {.in = "f32[4,0]"},
    {.in = "bf16[3,7]", .attrs = "axis=0"},
    {.in = "f32[4,6]", .attrs = "axis=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample sort_samples[] = {
    {.in = "f32[4,6]"},
    {.in = "f32[2,7,4]", .attrs = "axis=1 descending=1"},
    {.in = "f64[5]", .attrs = "axis=0"},
    {.in = "f32[3,20]", .attrs = "descending=1"},
    {.in = "f32[2,70]"},
    {.in = "f32[2,40,2]", .attrs = "axis=1 descending=1"},
    {.in = "f32[0,6]"},
    {.in = "f32[4,0]"},
    {.in = "i32[4]", .int_hi = 3, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample take_samples[] = {
    {.in = "f32[4,6] i32[4,3]", .int_hi = 5},
    {.in = "f32[2,3,4] i32[2,5,4]", .attrs = "axis=1", .int_lo = -1, .int_hi = 3},
    {.in = "f64[5] i32[9]", .attrs = "axis=0", .int_hi = 4},
    {.in = "f32[0,6] i32[0,2]"},
    {.in = "f32[4,6] i32[3,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] i32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample put_samples[] = {
    {.in = "f32[4,3] i32[4,3]", .attrs = "n=6", .int_hi = 5},
    {.in = "f32[2,5,4] i32[2,5,4]", .attrs = "axis=1 n=3", .int_lo = -1, .int_hi = 3},
    {.in = "f64[9] i32[9]", .attrs = "axis=0 n=5", .int_hi = 4},
    {.in = "f32[0,6] i32[0,6]", .attrs = "n=2"},
    {.in = "f32[4,3] i32[4,2]", .attrs = "n=6", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3] i32[4,3]", .attrs = "n=-1", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_along[] = {
    {.name = "cumsum",
     .doc = "y_i = x_0 + .. + x_i along axis",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = cumsum_attrs,
     .traits = TTI_WIDE,
     .infer = cumsum_infer,
     .grad = cumsum_grad,
     .shard = linear_shard,
     .cost = tti_cost_elementwise,
     .reference = cumsum_reference,
     .samples = cumsum_samples},
    {.name = "sort",
     .doc = "y, index = x sorted along axis, and where each element was; NaN is the largest",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 2,
     .attrs = sort_attrs,
     .saved_out = 2,
     .infer = sort_infer,
     .grad = sort_grad,
     .shard = along_shard,
     .cost = sort_cost,
     .reference = sort_reference,
     .samples = sort_samples},
    {.name = "take_along",
     .doc = "y = x at indices along axis; an index outside gives 0; inputs x, i32 indices",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = take_attrs,
     .infer = take_infer,
     .grad = take_grad,
     .shard = linear_shard,
     .cost = tti_cost_move,
     .reference = take_reference,
     .samples = take_samples},
    {.name = "put_along",
     .doc = "zeros, to which x is added at indices along axis; inputs x, i32 indices",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = put_attrs,
     .infer = put_infer,
     .grad = put_grad,
     .shard = linear_shard,
     .cost = tti_cost_elementwise,
     .reference = put_reference,
     .samples = put_samples},
    {0},
};

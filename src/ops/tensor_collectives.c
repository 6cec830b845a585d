/* tensor_collectives.c - the collectives of a tensor axis inside a step: sums, gathers, scatters.
 *
 * Every worker runs its own graph over the same samples; a pass adds these ops where a value
 * changes from one placement to another (passes/tensor/tensor.c).  Their gradients are each other,
 * so autodiff makes the collectives of the backward pass. tensor_copy marks a value that all
 * workers have and whose readers divide the work: forward nothing happens, backward the workers'
 * terms of its gradient are summed.  If a value is gathered for such work only (terms), each worker
 * gets its part of that sum.  With one worker, as in the reference, the other workers' values are
 * 0. */
#include <string.h>

#include "ops/rules.h"

#define AXIS_ATTRS                                             \
    {"n", TTI_ATTR_INT, 1, "number of workers of the axis"}, { \
        "index", TTI_ATTR_INT, 0, "index of this worker"       \
    }

static const tti_attr_spec axis_attrs[] = {AXIS_ATTRS, {0}};
static const tti_attr_spec gather_attrs[] = {
    AXIS_ATTRS,
    {"dim", TTI_ATTR_INT, 0, "dimension of which each worker has a part"},
    {"terms", TTI_ATTR_INT, 0,
     "1: readers divide the work, so the gradients of y are partial sums"},
    {0},
};
static const tti_attr_spec dim_attrs[] = {
    AXIS_ATTRS, {"dim", TTI_ATTR_INT, 0, "dimension of which each worker has a part"}, {0}};

static tutti_status check_axis(const tti_node *node) {
    int64_t n = tti_attr_int(node, "n"), index = tti_attr_int(node, "index");
    if (n >= 1 && n <= 1 << 16 && index >= 0 && index < n) return TUTTI_OK;
    return tti_node_fail(node, "worker %lld of %lld does not exist", (long long)index,
                         (long long)n);
}

static tutti_status same_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_axis(node));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* n and dim of a node whose dim is checked. */
static tutti_status read_dim(const tti_node *node, int *dim, int64_t *n) {
    int64_t d = tti_attr_int(node, "dim");
    TTI_TRY(check_axis(node));
    if (d < 0 || d >= tti_in_shape(node, 0)->n_dims)
        return tti_node_fail(node, "dimension %lld of %d does not exist", (long long)d,
                             tti_in_shape(node, 0)->n_dims);
    *dim = (int)d, *n = tti_attr_int(node, "n");
    return TUTTI_OK;
}

static tutti_status gather_infer(const tti_node *node, tutti_type *out) {
    int dim;
    int64_t n;
    TTI_TRY(read_dim(node, &dim, &n));
    out[0] = node->in[0]->type;
    out[0].shape.dim[dim] *= n;
    return TUTTI_OK;
}

static tutti_status part_infer(const tti_node *node, tutti_type *out) {
    int dim;
    int64_t n;
    TTI_TRY(read_dim(node, &dim, &n));
    out[0] = node->in[0]->type;
    if (out[0].shape.dim[dim] % n)
        return tti_node_fail(node, "%lld elements cannot be divided into %lld equal parts",
                             (long long)out[0].shape.dim[dim], (long long)n);
    out[0].shape.dim[dim] /= n;
    return TUTTI_OK;
}

/* ---- references: alone, with zeros of the others ---- */

static void same_reference(const tti_args *a) {
    memcpy(a->out[0], a->in[0], tti_out_n(a->node, 0) * sizeof(double));
}

/* Copies the own part of whole [outer,n,part] to or from part [outer,part]. */
static void copy_parts(const tti_args *a, const tutti_shape *part_shape, bool to_whole) {
    size_t n = (size_t)tti_attr_int(a->node, "n"), index = (size_t)tti_attr_int(a->node, "index");
    tti_axis_view v = tti_view_axis(part_shape, (int)tti_attr_int(a->node, "dim"));
    size_t part = v.n * v.inner;
    for (size_t i = 0; i < v.outer && part > 0; i++)
        if (to_whole)
            memcpy(a->out[0] + (i * n + index) * part, a->in[0] + i * part, part * sizeof(double));
        else
            memcpy(a->out[0] + i * part, a->in[0] + (i * n + index) * part, part * sizeof(double));
}

static void gather_reference(const tti_args *a) {
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    copy_parts(a, tti_in_shape(a->node, 0), true);
}

static void part_reference(const tti_args *a) {
    copy_parts(a, &a->node->out[0]->type.shape, false);
}

/* ---- gradients ---- */

static tutti_status emit_grad(tutti_graph *g, const tti_node *node, const char *op,
                              tutti_value *const *dy, tutti_value **dx) {
    tti_attr_arg attrs[4] = {tti_same_attr(node, "n"), tti_same_attr(node, "index")};
    if (tti_attr_has(node, "dim")) attrs[2] = tti_same_attr(node, "dim");
    dx[0] = tti_grad_emit(g, node, op, dy, 1, attrs);
    return tutti_graph_check(g);
}

static tutti_status copy_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    return need[0] ? emit_grad(g, node, "tensor_all_reduce", dy, dx) : TUTTI_OK;
}

/* All workers have the whole dy, which is the gradient of every term. */
static tutti_status sum_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    (void)node;
    if (need[0]) dx[0] = dy[0];
    return tutti_graph_check(g);
}

static tutti_status gather_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    const char *op = tti_attr_int(node, "terms") ? "tensor_reduce_scatter" : "tensor_slice";
    return need[0] ? emit_grad(g, node, op, dy, dx) : TUTTI_OK;
}

static tutti_status part_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    return need[0] ? emit_grad(g, node, "tensor_all_gather", dy, dx) : TUTTI_OK;
}

/* ---- shard: along the batch, another axis ---- */

static tutti_status across_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    if (tti_is_split(in[0], (int)tti_attr_int(node, "dim")))
        return tti_shard_refuse(node, in, "the dimension is already divided along another axis");
    return tti_shard_linear(node, in, out);
}

/* ---- own_rows: the numbers of the own rows of a table that is cut; others have none ---- */

static const tti_attr_spec rows_attrs[] = {{"first", TTI_ATTR_INT, 0, "row that becomes number 0"},
                                           {"n", TTI_ATTR_INT, 1, "own rows"},
                                           {0}};

static tutti_status own_rows_infer(const tti_node *node, tutti_type *out) {
    int64_t first = tti_attr_int(node, "first"), n = tti_attr_int(node, "n");
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_I32));
    if (first < 0 || first > INT32_MAX || n < 0 || n > INT32_MAX)
        return tti_node_fail(node, "%lld rows from row %lld are not valid", (long long)n,
                             (long long)first);
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

static void own_rows_reference(const tti_args *a) {
    double first = (double)tti_attr_int(a->node, "first"), n = (double)tti_attr_int(a->node, "n");
    for (size_t i = 0; i < tti_out_n(a->node, 0); i++) {
        double own = a->in[0][i] - first;
        a->out[0][i] = own >= 0 && own < n ? own : -1;
    }
}

/* ---- records ---- */

static const tti_sample same_samples[] = {
    {.in = "f32[4,6]"},
    {.in = "f32[4,2,3]", .attrs = "n=4 index=3"},
    {.in = "i32[5]", .attrs = "n=2", .int_hi = 7},
    {.in = "f32[0,6]"},
    {.in = "f32[4]", .attrs = "n=2 index=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4]", .attrs = "n=0", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample gather_samples[] = {
    {.in = "f32[4,6]", .attrs = "n=3 index=1 dim=1"},
    {.in = "f32[2,4,3]", .attrs = "n=2 index=0 dim=1"},
    {.in = "f32[2,4,3]", .attrs = "n=2 index=1 dim=1 terms=1"},
    {.in = "f32[6]"},
    {.in = "f32[0,6]", .attrs = "n=2 dim=1"},
    {.in = "f32[4]", .attrs = "dim=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[1073741824]", .attrs = "n=65536", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample part_samples[] = {
    {.in = "f32[4,6]", .attrs = "n=3 index=1 dim=1"},
    {.in = "f32[2,4,3]", .attrs = "n=2 index=1 dim=1"},
    {.in = "f32[6]"},
    {.in = "f32[0,6]", .attrs = "n=2 dim=1"},
    {.in = "f32[4,6]", .attrs = "n=4 dim=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4]", .attrs = "dim=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample rows_samples[] = {
    {.in = "i32[7]", .attrs = "first=2 n=3", .int_lo = -1, .int_hi = 6},
    {.in = "i32[2,4]", .attrs = "n=4", .int_hi = 5},
    {.in = "i32[0]"},
    {.in = "f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .attrs = "first=-1", .expect = TUTTI_E_INVALID},
    {0},
};

#define ONE_TO_ONE .n_in_min = 1, .n_in_max = 1, .n_out = 1, .cost = tti_cost_move

const tti_op tti_ops_tensor_collectives[] = {
    {.name = "tensor_copy",
     .doc = "y = x on every worker; its gradient is the sum of the workers' dy",
     ONE_TO_ONE,
     .attrs = axis_attrs,
     .traits = TTI_VIEW | TTI_TURNS,
     .infer = same_infer,
     .grad = copy_grad,
     .shard = tti_shard_linear,
     .reference = same_reference,
     .samples = same_samples},
    {.name = "tensor_slice",
     .doc = "this worker's part of x along dim",
     ONE_TO_ONE,
     .attrs = dim_attrs,
     .traits = TTI_FOLLOWS,
     .infer = part_infer,
     .grad = part_grad,
     .shard = across_shard,
     .reference = part_reference,
     .samples = part_samples},
    {.name = "tensor_all_reduce",
     .doc = "the sum of the workers' x",
     ONE_TO_ONE,
     .attrs = axis_attrs,
     .traits = TTI_COLLECTIVE | TTI_FOLLOWS | TTI_IN_PLACE,
     .collective = TTI_COLLECTIVE_SUM,
     .infer = same_infer,
     .grad = sum_grad,
     .shard = tti_shard_linear,
     .reference = same_reference,
     .samples = same_samples},
    {.name = "tensor_all_gather",
     .doc = "the workers' x side by side along dim",
     ONE_TO_ONE,
     .attrs = gather_attrs,
     .traits = TTI_COLLECTIVE | TTI_FOLLOWS,
     .collective = TTI_COLLECTIVE_GATHER,
     .infer = gather_infer,
     .grad = gather_grad,
     .shard = across_shard,
     .reference = gather_reference,
     .samples = gather_samples},
    {.name = "tensor_reduce_scatter",
     .doc = "this worker's part along dim of the sum of the workers' x",
     ONE_TO_ONE,
     .attrs = dim_attrs,
     .traits = TTI_COLLECTIVE | TTI_FOLLOWS,
     .collective = TTI_COLLECTIVE_SCATTER,
     .infer = part_infer,
     .grad = part_grad,
     .shard = across_shard,
     .reference = part_reference,
     .samples = part_samples},
    {.name = "own_rows",
     .doc = "y = x - first where that is 0 .. n-1, else -1",
     ONE_TO_ONE,
     .attrs = rows_attrs,
     .infer = own_rows_infer,
     .shard = tti_shard_same,
     .reference = own_rows_reference,
     .samples = rows_samples},
    {0},
};

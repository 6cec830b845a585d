/* embed.c - from integers to vectors: one_hot, embedding, gather and their gradients.
 *
 * The idea to know: an integer outside 0 .. n-1, such as the -1 of a missing row, gives zeros and
 * gets no gradient.  Gradients add rows in order of position, so equal integers always sum alike.
 */
#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

/* ---- one_hot ---- */

static const tti_attr_spec one_hot_attrs[] = {{"n", TTI_ATTR_INT, 1, "classes, >= 1"}, {0}};

static tutti_status one_hot_infer(const tti_node *node, tutti_type *out) {
    const tutti_shape *labels = tti_in_shape(node, 0);
    int64_t n = tti_attr_int(node, "n");
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_I32));
    if (labels->n_dims == TUTTI_MAX_DIMS)
        return tti_node_fail(node, "labels have %d dimensions, so the result has too many",
                             labels->n_dims);
    if (n < 1) return tti_node_fail(node, "n must be >= 1, got %lld", (long long)n);
    out[0] = (tutti_type){TUTTI_F32, *labels};
    out[0].shape.dim[out[0].shape.n_dims++] = n;
    return TUTTI_OK;
}

static void one_hot_reference(const tti_args *a) {
    int64_t n = tti_attr_int(a->node, "n");
    for (size_t i = 0; i < tti_in_n(a->node, 0); i++)
        for (int64_t c = 0; c < n; c++)
            a->out[0][(int64_t)i * n + c] = a->in[0][i] == (double)c ? 1 : 0;
}

/* ---- gather: x's elements at ids along axis, ids' shape in place of the axis; scatter_add adds
 * them back.  embedding is gather along axis 0 of a table ---- */

static const tti_attr_spec gather_attrs[] = {{"axis", TTI_ATTR_INT, 0, "negative: from the end"},
                                             {0}};
static const tti_attr_spec scatter_attrs[] = {
    {"axis", TTI_ATTR_INT, 0, "of dx; negative: from the end"},
    {"total", TTI_ATTR_INT, 0, "elements of dx along axis"},
    {0},
};
static const tti_attr_spec rows_attrs[] = {{"rows", TTI_ATTR_INT, 0, "of the table"}, {0}};

/* shape with dimensions axis .. axis + n_out - 1 replaced by those of put. */
static tutti_status replace_dims(const tti_node *node, const tutti_shape *shape, int axis,
                                 int n_out, const tutti_shape *put, tutti_shape *out) {
    tutti_shape made = {.n_dims = shape->n_dims - n_out + put->n_dims};
    if (made.n_dims > TUTTI_MAX_DIMS)
        return tti_node_fail(node, "the result has %d dimensions, %d are allowed", made.n_dims,
                             TUTTI_MAX_DIMS);
    int n = 0;
    for (int d = 0; d < axis; d++) made.dim[n++] = shape->dim[d];
    for (int d = 0; d < put->n_dims; d++) made.dim[n++] = put->dim[d];
    for (int d = axis + n_out; d < shape->n_dims; d++) made.dim[n++] = shape->dim[d];
    *out = made;
    return TUTTI_OK;
}

static tutti_status gather_infer(const tti_node *node, tutti_type *out) {
    int axis;
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
    TTI_TRY(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis));
    out[0].dtype = node->in[0]->type.dtype;
    return replace_dims(node, tti_in_shape(node, 0), axis, 1, tti_in_shape(node, 1), &out[0].shape);
}

static tutti_status embedding_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
    out[0].dtype = node->in[0]->type.dtype;
    return replace_dims(node, tti_in_shape(node, 0), 0, 1, tti_in_shape(node, 1), &out[0].shape);
}

/* The axis of dx that ids were taken along; 0 for embedding_grad. */
static tutti_status scatter_axis(const tti_node *node, int *axis) {
    int n_dims = tti_in_shape(node, 0)->n_dims - tti_in_shape(node, 1)->n_dims + 1;
    *axis = 0;
    return tti_attr_has(node, "axis") ? tti_get_axis(node, n_dims, axis) : TUTTI_OK;
}

/* dy, ids -> dx with n elements along the axis. */
static tutti_status check_scatter(const tti_node *node, int64_t n, tutti_type *out) {
    const tutti_shape *dy = tti_in_shape(node, 0), *ids = tti_in_shape(node, 1);
    char a[128], b[128];
    int axis = 0;
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
    if (n < 0)
        return tti_node_fail(node, "a dimension of %lld elements is not valid", (long long)n);
    bool fits = dy->n_dims >= ids->n_dims;
    if (fits) TTI_TRY(scatter_axis(node, &axis));
    fits = fits && axis + ids->n_dims <= dy->n_dims;
    for (int d = 0; fits && d < ids->n_dims; d++) fits = dy->dim[axis + d] == ids->dim[d];
    if (!fits)
        return tti_node_fail(node, "%s does not have the shape of a gather by indices %s",
                             tti_type_text(&node->in[0]->type, a, sizeof a),
                             tti_type_text(&node->in[1]->type, b, sizeof b));
    out[0].dtype = node->in[0]->type.dtype;
    return replace_dims(node, dy, axis, ids->n_dims, &TUTTI_SHAPE(n), &out[0].shape);
}

static tutti_status scatter_add_infer(const tti_node *node, tutti_type *out) {
    return check_scatter(node, tti_attr_int(node, "total"), out);
}

static tutti_status embedding_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_scatter(node, tti_attr_int(node, "rows"), out));
    if (out[0].shape.n_dims == 2) return TUTTI_OK;
    return tti_node_fail(node, "dy must have one dimension more than ids");
}

/* x seen as [outer, n, inner] around the axis, the selected elements as [outer, n_ids, inner]. */
static void gather(const tti_args *a, int axis) {
    tti_axis_view x = tti_view_axis(tti_in_shape(a->node, 0), axis);
    size_t n_ids = tti_in_n(a->node, 1);
    for (size_t o = 0; o < x.outer; o++)
        for (size_t j = 0; j < n_ids; j++) {
            double id = a->in[1][j];
            double *y = a->out[0] + (o * n_ids + j) * x.inner;
            if (id >= 0 && id < (double)x.n)
                memcpy(y, a->in[0] + (o * x.n + (size_t)id) * x.inner, x.inner * sizeof *y);
            else
                memset(y, 0, x.inner * sizeof *y);
        }
}

static void scatter(const tti_args *a, int axis) {
    tti_axis_view x = tti_view_axis(&a->node->out[0]->type.shape, axis);
    size_t n_ids = tti_in_n(a->node, 1);
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    for (size_t o = 0; o < x.outer; o++)
        for (size_t j = 0; j < n_ids; j++) {
            double id = a->in[1][j];
            if (!(id >= 0 && id < (double)x.n)) continue;
            for (size_t i = 0; i < x.inner; i++)
                a->out[0][(o * x.n + (size_t)id) * x.inner + i] +=
                    a->in[0][(o * n_ids + j) * x.inner + i];
        }
}

static int gather_axis(const tti_node *node) {
    int axis = 0;
    TTI_ASSERT(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis) == TUTTI_OK);
    return axis;
}

static void gather_reference(const tti_args *a) { gather(a, gather_axis(a->node)); }
static void embedding_reference(const tti_args *a) { gather(a, 0); }
static void embedding_grad_reference(const tti_args *a) { scatter(a, 0); }
static void scatter_add_reference(const tti_args *a) {
    int axis = 0;
    TTI_ASSERT(scatter_axis(a->node, &axis) == TUTTI_OK);
    scatter(a, axis);
}

/* The index of each of 0 .. n-1 in the constant ids; NULL: ids are not each number once. */
static tutti_value *inverse_of(tutti_graph *g, const tutti_value *ids, int64_t n) {
    bool is_constant = (ids->node->op->traits & TTI_CONSTANT) && ids->type.shape.n_dims == 1;
    if (!is_constant || ids->type.shape.dim[0] != n || n == 0) return NULL;
    int32_t *place = malloc((size_t)n * sizeof *place);
    for (int64_t i = 0; place && i < n; i++) place[i] = -1;
    bool fits = place != NULL;
    for (int64_t i = 0; fits && i < n; i++) {
        double id = tti_constant_elem(ids->node, (size_t)i);
        fits = id >= 0 && id < (double)n && place[(int64_t)id] < 0;
        if (fits) place[(int64_t)id] = (int32_t)i;
    }
    tutti_value *made = fits ? tutti_constant_array(g, TUTTI_I32, &ids->type.shape, place) : NULL;
    free(place);
    return made;
}

/* Elements that were only put in another order are put back. */
static tutti_status gather_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    int axis = gather_axis(node);
    tti_attr_arg attrs[] = {
        TTI_INT("axis", axis), TTI_INT("total", tti_in_dim(node, 0, axis)), {0}};
    tutti_value *back = need[0] ? inverse_of(g, node->in[1], tti_in_dim(node, 0, axis)) : NULL;
    if (back)
        dx[0] = tti_grad_emit(g, node, "gather", (tutti_value *[]){dy[0], back}, 2,
                              (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
    else if (need[0])
        dx[0] =
            tti_grad_emit(g, node, "scatter_add", (tutti_value *[]){dy[0], node->in[1]}, 2, attrs);
    return tutti_graph_check(g);
}

static tutti_status embedding_gradient(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                       const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {TTI_INT("rows", tti_in_dim(node, 0, 0)), {0}};
    if (need[0])
        dx[0] = tti_grad_emit(g, node, "embedding_grad", (tutti_value *[]){dy[0], node->in[1]}, 2,
                              attrs);
    return tutti_graph_check(g);
}

static const char gather_why[] = "x may be split, but not along the axis, or the indices; not both";

static tutti_status gather_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"PW", "P"}};
    int axis = gather_axis(node), n_ids = tti_in_shape(node, 1)->n_dims;
    if (in[0].kind == TTI_WHOLE && in[1].kind == TTI_SPLIT)
        out[0] = tti_split_along(axis + in[1].dim);
    else if (in[0].kind == TTI_SPLIT && in[0].dim != axis && in[1].kind == TTI_WHOLE)
        out[0] = tti_split_along(in[0].dim < axis ? in[0].dim : in[0].dim + n_ids - 1);
    else
        return tti_shard_match(node, rules, 1, in, out, gather_why);
    return TUTTI_OK;
}

static tutti_status scatter_add_shard(const tti_node *node, const tti_placement *in,
                                      tti_placement *out) {
    static const tti_shard_rule rules[] = {{"PW", "P"}};
    int axis = 0, n_ids = tti_in_shape(node, 1)->n_dims;
    TTI_ASSERT(scatter_axis(node, &axis) == TUTTI_OK);
    int at = in[0].dim - axis; /* which of the dimensions of ids, if 0 .. n_ids-1 */
    bool cut = in[0].kind == TTI_SPLIT;
    if (cut && at >= 0 && at < n_ids && tti_is_split(in[1], at))
        out[0] = (tti_placement){TTI_PARTIAL, 0};
    else if (cut && (at < 0 || at >= n_ids) && in[1].kind == TTI_WHOLE)
        out[0] = tti_split_along(at < 0 ? in[0].dim : in[0].dim - n_ids + 1);
    else
        return tti_shard_match(node, rules, 1, in, out, gather_why);
    return TUTTI_OK;
}

static tutti_status embedding_shard(const tti_node *node, const tti_placement *in,
                                    tti_placement *out) {
    static const tti_shard_rule rules[] = {{"Wa", "a"}, {"1W", "L"}, {"PW", "P"}};
    return tti_shard_match(node, rules, 3, in, out, "the rows of a table must lie on one worker");
}

static tutti_status embedding_grad_shard(const tti_node *node, const tti_placement *in,
                                         tti_placement *out) {
    static const tti_shard_rule rules[] = {{"da", "P"}, {"LW", "L"}, {"PW", "P"}};
    return tti_shard_match(node, rules, 3, in, out, "dy and ids must be split alike");
}

/* Every worker has some rows of the table: those that it does not have are zeros. */
static bool embedding_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    return tti_cut_match(node, "0W", "P", in, out);
}

static void embedding_emit_cut(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                               const tti_cut *cut, tutti_value *const *in, tutti_value **out) {
    (void)cut;
    int64_t n_rows = in[0] ? in[0]->type.shape.dim[0] : 0;
    tti_attr_arg attrs[] = {TTI_INT("first", n_rows * axis->index), TTI_INT("n", n_rows), {0}};
    tutti_value *ids = tti_emit(g, "own_rows", node->name, &in[1], 1, attrs);
    out[0] = tti_emit(g, "embedding", node->name, (tutti_value *[]){in[0], ids}, 2, NULL);
}

/* ---- builders ---- */

tutti_value *tutti_one_hot(tutti_graph *g, tutti_value *labels, int64_t n_classes) {
    return tti_build1(g, "one_hot", labels, (tti_attr_arg[]){TTI_INT("n", n_classes), {0}});
}

tutti_value *tutti_embedding(tutti_graph *g, tutti_value *ids, const tutti_embedding_desc *desc,
                             const char *name) {
    if (!tti_can_build(g, "embedding", ids, name)) return NULL;
    if (!desc || desc->n_rows < 1 || desc->n_out < 1)
        return tti_build_fail(g, "embedding '%s': n_rows %lld and n_out %lld must be >= 1", name,
                              desc ? (long long)desc->n_rows : 0LL,
                              desc ? (long long)desc->n_out : 0LL);
    const tutti_init usual = {.kind = TUTTI_INIT_NORMAL, .a = 0, .b = 1};
    tutti_value *table = tti_layer_param(g, name, "weight", &TUTTI_SHAPE(desc->n_rows, desc->n_out),
                                         desc->init ? desc->init : &usual);
    return tti_emit(g, "embedding", name, (tutti_value *[]){table, ids}, 2, NULL);
}

tutti_value *tutti_lookup(tutti_graph *g, tutti_value *table, tutti_value *ids) {
    return tti_build2(g, "embedding", table, ids, NULL);
}

tutti_value *tutti_gather(tutti_graph *g, tutti_value *x, tutti_value *ids, int axis) {
    return tti_build2(g, "gather", x, ids, (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

/* ---- records ---- */

static const tti_sample one_hot_samples[] = {
    {.in = "i32[7]", .attrs = "n=4", .int_lo = -1, .int_hi = 4},
    {.in = "i32[2,3]", .attrs = "n=2", .int_lo = 0, .int_hi = 1},
    {.in = "i32[]", .attrs = "n=3", .int_lo = 0, .int_hi = 2},
    {.in = "i32[0]", .attrs = "n=3"},
    {.in = "i32[4]", .attrs = "n=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[4]", .attrs = "n=3", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample embedding_samples[] = {
    {.in = "f32[5,4] i32[6]", .int_hi = 4},
    {.in = "f32[4,6] i32[2,4]", .int_lo = -1, .int_hi = 4}, /* some outside, some twice */
    {.in = "bf16[3,2] i32[]", .int_hi = 2},
    {.in = "f32[1,1] i32[0]"},
    {.in = "f32[0,3] i32[2]"},
    {.in = "f32[5] i32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[5,4] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "i32[5,4] i32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[5,4] i32[1,1,1,1,1,1,1,1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample embedding_grad_samples[] = {
    {.in = "f32[6,4] i32[6]", .attrs = "rows=5", .int_hi = 4},
    {.in = "f32[2,4,6] i32[2,4]", .attrs = "rows=3", .int_lo = -1, .int_hi = 3},
    {.in = "f32[0,4] i32[0]", .attrs = "rows=2"},
    {.in = "f32[4] i32[]", .attrs = "rows=2"},
    {.in = "f32[6,4] i32[5]", .attrs = "rows=5", .expect = TUTTI_E_INVALID},
    {.in = "f32[6,4] i32[6,4]", .attrs = "rows=5", .expect = TUTTI_E_INVALID},
    {.in = "f32[6,4] i32[6]", .attrs = "rows=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample gather_samples[] = {
    {.in = "f32[4,5,2] i32[6]", .attrs = "axis=1", .int_lo = -1, .int_hi = 5},
    {.in = "f32[3,4] i32[2,2]", .attrs = "axis=-1", .int_hi = 3},
    {.in = "f32[4] i32[]", .int_hi = 3},
    {.in = "f32[4,0] i32[0]"},
    {.in = "f32[4,5] i32[6]", .attrs = "axis=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[] i32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[2]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample scatter_add_samples[] = {
    {.in = "f32[4,6,2] i32[6]", .attrs = "axis=1 total=5", .int_lo = -1, .int_hi = 5},
    {.in = "f32[3,2,2] i32[2,2]", .attrs = "axis=1 total=4", .int_hi = 3},
    {.in = "f32[] i32[]", .attrs = "total=3", .int_hi = 2},
    {.in = "f32[4,6] i32[5]", .attrs = "axis=1 total=5", .expect = TUTTI_E_INVALID},
    {.in = "f32[6] i32[6]", .attrs = "total=-2", .expect = TUTTI_E_INVALID},
    {.in = "f32[6] i32[6,1]", .attrs = "total=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[6] i32[6]", .attrs = "axis=1 total=2", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of lookup records. */
#define LOOKUP(op_name, op_doc)                                                \
    .name = #op_name, .doc = op_doc, .n_in_min = 2, .n_in_max = 2, .n_out = 1, \
    .infer = op_name##_infer, .shard = op_name##_shard, .cost = tti_cost_move, \
    .reference = op_name##_reference, .samples = op_name##_samples

const tti_op tti_ops_embed[] = {
    {.name = "one_hot",
     .doc = "y[..,c] = [x = c] for c in 0 .. n-1; a label outside gives zeros",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = one_hot_attrs,
     .infer = one_hot_infer,
     .shard = tti_shard_same,
     .cost = tti_cost_move,
     .reference = one_hot_reference,
     .samples = one_hot_samples},
    {LOOKUP(embedding, "y[..,C] = table[ids[..],C], zeros where an id is outside"),
     .traits = TTI_STREAM, .grad = embedding_gradient, .cut = embedding_cut,
     .emit_cut = embedding_emit_cut},
    {LOOKUP(embedding_grad, "dtable[rows,C] = sum of dy[..,C] at each id"), .attrs = rows_attrs},
    {LOOKUP(gather, "y = x at ids along axis, zeros where an id is outside"), .attrs = gather_attrs,
     .traits = TTI_FOLLOWS, .grad = gather_grad},
    {LOOKUP(scatter_add, "dx = sum of dy at each id along axis"), .attrs = scatter_attrs},
    {0},
};

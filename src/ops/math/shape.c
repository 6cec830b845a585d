/* shape.c - the same elements with another shape, order or layout; slices and concatenation.
 *
 * There is no arithmetic here, except that slice_grad surrounds with zeros. reshape is a view
 * (TTI_VIEW), so flatten costs nothing; to_layout changes only where bytes lie, never a value, and
 * is added by a pass. */
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static void copy_reference(const tti_args *a) {
    memcpy(a->out[0], a->in[0], tti_in_n(a->node, 0) * sizeof(double));
}

static tti_attr_arg dims_of(const char *key, const tutti_value *value) {
    return TTI_INTS(key, value->type.shape.n_dims, value->type.shape.dim);
}

/* ---- reshape ---- */

static const tti_attr_spec reshape_attrs[] = {
    {"dims", TTI_ATTR_INTS, 0, "the new shape"},
    {"one_row", TTI_ATTR_INT, 0,
     "1: dimension 0, of size 1, is the batch, not dimension 1; -1: in x it is not the batch"},
    {0}};

static tutti_status reshape_infer(const tti_node *node, tutti_type *out) {
    tutti_type to = {node->in[0]->type.dtype, tti_get_shape(node, "dims")};
    char a[128], b[128];
    if (tti_shape_check(&to.shape) != TUTTI_OK ||
        tutti_shape_n_elems(&to.shape) != tti_value_n_elems(node->in[0]))
        return tti_node_fail(node, "%s does not have as many elements as %s",
                             tti_type_text(&node->in[0]->type, a, sizeof a),
                             tti_type_text(&to, b, sizeof b));
    out[0] = to;
    return TUTTI_OK;
}

/* Sizes alone do not say whether a dimension of 1 was the batch. */
static tutti_status reshape_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    const tutti_shape *x = tti_in_shape(node, 0);
    bool one_row = x->n_dims > 0 && x->dim[0] == 1 && tti_attr_int(node, "one_row") >= 0;
    tti_attr_arg attrs[] = {dims_of("dims", node->in[0]), TTI_INT("one_row", one_row), {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "reshape", dy, 1, attrs);
    return tutti_graph_check(g);
}

/* The output dimension that starts where dimension d of the input starts and is a multiple or a
 * divisor of it; -1: none.  Contiguous parts of one are then contiguous parts of the other.  A
 * dimension of the same size comes first: a batch of one row is not part of the axis after it. */
static int matching_dim(const tutti_shape *from, int d, const tutti_shape *to) {
    int64_t before = 1, wanted = 1, x = from->dim[d];
    int same = -1, other = -1;
    for (int i = 0; i < d; i++) wanted *= from->dim[i];
    for (int e = 0; e < to->n_dims; before *= to->dim[e++]) {
        int64_t y = to->dim[e];
        if (before != wanted || (y == 1 && x != 1)) continue;
        if (x == y && (same < 0 || e == d))
            same = e;
        else if (x > 0 && y > 0 && (x % y == 0 || y % x == 0))
            other = e;
    }
    return same >= 0 ? same : other;
}

static tutti_status reshape_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    out[0] = in[0];
    if (in[0].kind != TTI_SPLIT) return TUTTI_OK;
    const tutti_shape *to = &node->out[0]->type.shape;
    if (in[0].dim == 0 && tti_attr_int(node, "one_row") > 0 && to->n_dims > 0 && to->dim[0] == 1)
        return TUTTI_OK;
    int d = matching_dim(tti_in_shape(node, 0), in[0].dim, to);
    if (d < 0) return tti_shard_refuse(node, in, "the split dimension is merged with others");
    out[0] = tti_split_along(d);
    return TUTTI_OK;
}

/* ---- to_layout ---- */

static const tti_attr_spec layout_attrs[] = {
    {"layout", TTI_ATTR_INT, TTI_PLAIN, "tti_layout: 0 plain, 1 channels last"}, {0}};

static tutti_status to_layout_infer(const tti_node *node, tutti_type *out) {
    int64_t layout = tti_attr_int(node, "layout");
    if (layout != TTI_PLAIN && layout != TTI_CHANNELS_LAST_BYTES)
        return tti_node_fail(node, "layout must be 0 or 1, is %lld", (long long)layout);
    if (layout == TTI_CHANNELS_LAST_BYTES) TTI_TRY(tti_need_n_dims(node, 0, 4));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* Layouts are chosen after differentiation; as mathematics this is y = x. */
static tutti_status to_layout_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                   const bool *need, tutti_value **dx) {
    (void)node;
    if (need[0]) dx[0] = dy[0];
    return tutti_graph_check(g);
}

/* ---- transpose: y's dimension d is x's dimension perm[d] ---- */

static const tti_attr_spec transpose_attrs[] = {
    {"perm", TTI_ATTR_INTS, 0, "for each dimension of y, the one of x"}, {0}};

static tutti_status transpose_infer(const tti_node *node, tutti_type *out) {
    const tti_attr *perm = tti_attr_get(node, "perm");
    const tutti_shape *x = tti_in_shape(node, 0);
    unsigned seen = 0;
    out[0] = node->in[0]->type;
    bool fits = perm->n == x->n_dims;
    for (int d = 0; fits && d < perm->n; d++) {
        fits = perm->v[d] >= 0 && perm->v[d] < x->n_dims && !(seen & 1u << perm->v[d]);
        if (!fits) break;
        seen |= 1u << perm->v[d];
        out[0].shape.dim[d] = x->dim[perm->v[d]];
    }
    if (!fits) return tti_node_fail(node, "perm is not a permutation of %d dimensions", x->n_dims);
    return TUTTI_OK;
}

static void transpose_reference(const tti_args *a) {
    const tti_attr *perm = tti_attr_get(a->node, "perm");
    const tutti_shape *x = tti_in_shape(a->node, 0), *y = &a->node->out[0]->type.shape;
    size_t stride[TUTTI_MAX_DIMS] = {0}, n = tti_in_n(a->node, 0), step = 1;
    for (int d = x->n_dims - 1; d >= 0; d--) stride[d] = step, step *= (size_t)x->dim[d];
    for (size_t i = 0; i < n; i++) {
        size_t from = 0, rest = i;
        for (int d = y->n_dims - 1; d >= 0; d--) {
            from += rest % (size_t)y->dim[d] * stride[perm->v[d]];
            rest /= (size_t)y->dim[d];
        }
        a->out[0][i] = a->in[0][from];
    }
}

tutti_value *tti_turned_matrix(const tutti_value *value) {
    if (strcmp(value->node->op->name, "transpose") != 0) return NULL;
    const tti_attr *perm = tti_attr_get(value->node, "perm");
    return perm->n == 2 && perm->v[0] == 1 ? value->node->in[0] : NULL;
}

/* The gradient of a weight that was transposed for its layer is transposed by the layer's gradient:
 * this is undone, not repeated. */
static tutti_status transpose_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                   const bool *need, tutti_value **dx) {
    const tti_attr *perm = tti_attr_get(node, "perm");
    int64_t back[TUTTI_MAX_DIMS];
    if (need[0] && tti_turned_matrix(node->out[0]) && (dx[0] = tti_turned_matrix(dy[0])))
        return TUTTI_OK;
    for (int d = 0; d < perm->n; d++) back[perm->v[d]] = d;
    tti_attr_arg attrs[] = {TTI_INTS("perm", perm->n, back), {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "transpose", dy, 1, attrs);
    return tutti_graph_check(g);
}

static tutti_status transpose_shard(const tti_node *node, const tti_placement *in,
                                    tti_placement *out) {
    const tti_attr *perm = tti_attr_get(node, "perm");
    out[0] = in[0];
    for (int d = 0; d < perm->n; d++)
        if (tti_is_split(in[0], (int)perm->v[d])) out[0] = tti_split_along(d);
    return TUTTI_OK;
}

/* ---- slice: len elements from start along axis; slice_grad puts them back ---- */

static const tti_attr_spec slice_attrs[] = {{"axis", TTI_ATTR_INT, 0, "negative: from the end"},
                                            {"start", TTI_ATTR_INT, 0, "first element taken"},
                                            {"len", TTI_ATTR_INT, 0, "elements taken"},
                                            {0}};
static const tti_attr_spec slice_grad_attrs[] = {
    {"axis", TTI_ATTR_INT, 0, "negative: from the end"},
    {"start", TTI_ATTR_INT, 0, "where dy goes"},
    {"total", TTI_ATTR_INT, 0, "elements of dx along axis"},
    {0}};

/* 0 <= start, 0 <= len, start + len <= total. */
static tutti_status check_range(const tti_node *node, int64_t start, int64_t len, int64_t total) {
    if (start >= 0 && len >= 0 && start <= total && len <= total - start) return TUTTI_OK;
    return tti_node_fail(node, "%lld elements from %lld are outside a dimension of %lld",
                         (long long)len, (long long)start, (long long)total);
}

static tutti_status slice_infer(const tti_node *node, tutti_type *out) {
    int axis;
    int64_t len = tti_attr_int(node, "len");
    TTI_TRY(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis));
    TTI_TRY(check_range(node, tti_attr_int(node, "start"), len, tti_in_dim(node, 0, axis)));
    out[0] = node->in[0]->type;
    out[0].shape.dim[axis] = len;
    return TUTTI_OK;
}

static tutti_status slice_grad_infer(const tti_node *node, tutti_type *out) {
    int axis;
    int64_t total = tti_attr_int(node, "total");
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis));
    TTI_TRY(check_range(node, tti_attr_int(node, "start"), tti_in_dim(node, 0, axis), total));
    out[0] = node->in[0]->type;
    out[0].shape.dim[axis] = total;
    return TUTTI_OK;
}

static int axis_of(const tti_node *node) {
    int axis = 0;
    TTI_ASSERT(tti_get_axis(node, tti_in_shape(node, 0)->n_dims, &axis) == TUTTI_OK);
    return axis;
}

/* Copies [outer, n, inner] of src, from src_start on, to dst, from dst_start on. */
typedef struct strip {
    double *dst;
    size_t dst_n, dst_start;
    const double *src;
    size_t src_n, src_start;
    size_t outer, n, inner;
} strip;

static void copy_strip(const strip *s) {
    if (s->n * s->inner == 0) return;
    for (size_t i = 0; i < s->outer; i++)
        memcpy(s->dst + (i * s->dst_n + s->dst_start) * s->inner,
               s->src + (i * s->src_n + s->src_start) * s->inner, s->n * s->inner * sizeof(double));
}

static void slice_reference(const tti_args *a) {
    tti_axis_view x = tti_view_axis(tti_in_shape(a->node, 0), axis_of(a->node));
    size_t len = (size_t)tti_attr_int(a->node, "len");
    size_t start = (size_t)tti_attr_int(a->node, "start");
    copy_strip(&(strip){a->out[0], len, 0, a->in[0], x.n, start, x.outer, len, x.inner});
}

static void slice_grad_reference(const tti_args *a) {
    tti_axis_view dy = tti_view_axis(tti_in_shape(a->node, 0), axis_of(a->node));
    size_t total = (size_t)tti_attr_int(a->node, "total");
    size_t start = (size_t)tti_attr_int(a->node, "start");
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    copy_strip(&(strip){a->out[0], total, start, a->in[0], dy.n, 0, dy.outer, dy.n, dy.inner});
}

static tutti_status slice_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                               const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {tti_same_attr(node, "axis"),
                            tti_same_attr(node, "start"),
                            TTI_INT("total", tti_in_dim(node, 0, axis_of(node))),
                            {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "slice_grad", dy, 1, attrs);
    return tutti_graph_check(g);
}

static tutti_status slice_grad_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                    const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {tti_same_attr(node, "axis"),
                            tti_same_attr(node, "start"),
                            TTI_INT("len", tti_in_dim(node, 0, axis_of(node))),
                            {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "slice", dy, 1, attrs);
    return tutti_graph_check(g);
}

/* slice, slice_grad and concat: any split but along the axis itself. */
static tutti_status across_axis_shard(const tti_node *node, const tti_placement *in,
                                      tti_placement *out) {
    static const tti_shard_rule rules[] = {{"aaaaaaaaaaaaaaaa", "a"}, {"PPPPPPPPPPPPPPPP", "P"}};
    if (tti_is_split(in[0], axis_of(node)))
        return tti_shard_refuse(node, in, "the parts of a split axis lie on different workers");
    return tti_shard_match(node, rules, 2, in, out, "all inputs must be split alike");
}

/* ---- concat ---- */

static const tti_attr_spec axis_attrs[] = {{"axis", TTI_ATTR_INT, 0, "negative: from the end"},
                                           {0}};

static tutti_status concat_infer(const tti_node *node, tutti_type *out) {
    int axis;
    const tutti_type *first = &node->in[0]->type;
    TTI_TRY(tti_get_axis(node, first->shape.n_dims, &axis));
    out[0] = *first;
    for (int i = 1; i < node->n_in; i++) {
        tutti_type now = node->in[i]->type;
        int64_t n = now.shape.n_dims > axis ? now.shape.dim[axis] : 0;
        if (now.shape.n_dims == first->shape.n_dims) now.shape.dim[axis] = first->shape.dim[axis];
        if (now.dtype != first->dtype || !tti_shape_equal(&now.shape, &first->shape)) {
            char a[128], b[128];
            return tti_node_fail(node, "%s and %s cannot be joined along %d",
                                 tti_type_text(first, a, sizeof a),
                                 tti_type_text(&node->in[i]->type, b, sizeof b), axis);
        }
        out[0].shape.dim[axis] += n;
    }
    return TUTTI_OK;
}

static void concat_reference(const tti_args *a) {
    int axis = axis_of(a->node);
    tti_axis_view y = tti_view_axis(&a->node->out[0]->type.shape, axis);
    size_t start = 0;
    for (int i = 0; i < a->node->n_in; i++) {
        size_t n = (size_t)tti_in_dim(a->node, i, axis);
        copy_strip(&(strip){a->out[0], y.n, start, a->in[i], n, 0, y.outer, n, y.inner});
        start += n;
    }
}

static tutti_status concat_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    int axis = axis_of(node);
    int64_t start = 0;
    for (int i = 0; i < node->n_in; i++) {
        int64_t n = tti_in_dim(node, i, axis);
        tti_attr_arg attrs[] = {
            TTI_INT("axis", axis), TTI_INT("start", start), TTI_INT("len", n), {0}};
        if (need[i]) dx[i] = tti_grad_emit(g, node, "slice", dy, 1, attrs);
        start += n;
    }
    return tutti_graph_check(g);
}

/* Equal parts, each cut along the axis, are packed in it. */
static bool concat_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    int axis = axis_of(node);
    (void)n;
    for (int i = 0; i < node->n_in; i++)
        if (!tti_is_cut(in[i], axis) || tti_in_dim(node, i, axis) != tti_in_dim(node, 0, axis))
            return false;
    out[0] = (tti_cut){TTI_SPLIT, axis, node->n_in};
    return true;
}

/* ---- stop_gradient ---- */

static tutti_status stop_infer(const tti_node *node, tutti_type *out) {
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* ---- builders ---- */

/* One dimension may be -1: it is computed from the others. */
static bool resolve_dims(const tutti_value *x, tutti_shape *to) {
    int64_t known = 1, total = tti_value_n_elems(x);
    int open = -1;
    for (int d = 0; d < to->n_dims; d++) {
        if (to->dim[d] == -1) {
            if (open >= 0) return false;
            open = d;
        } else if (to->dim[d] < 0 || __builtin_mul_overflow(known, to->dim[d], &known)) {
            return false;
        }
    }
    if (open < 0) return true;
    if (known == 0 || total % known) return false;
    to->dim[open] = total / known;
    return true;
}

tutti_value *tutti_reshape(tutti_graph *g, tutti_value *x, const tutti_shape *shape) {
    if (!shape || shape->n_dims < 0 || shape->n_dims > TUTTI_MAX_DIMS)
        return tti_build_fail(g, "reshape: a shape of 0 to %d dimensions is needed",
                              TUTTI_MAX_DIMS);
    tutti_shape to = *shape;
    if (x && !resolve_dims(x, &to)) {
        char a[128], b[128];
        return tti_build_fail(g, "reshape: %s cannot become %s",
                              tti_type_text(&x->type, a, sizeof a),
                              tti_type_text(&(tutti_type){x->type.dtype, *shape}, b, sizeof b));
    }
    return tti_build1(g, "reshape", x, (tti_attr_arg[]){TTI_INTS("dims", to.n_dims, to.dim), {0}});
}

tutti_value *tutti_flatten(tutti_graph *g, tutti_value *x) {
    int64_t inner = 1;
    if (x && x->type.shape.n_dims < 1) return tti_build_fail(g, "flatten: a scalar has no samples");
    for (int d = 1; x && d < x->type.shape.n_dims; d++) inner *= x->type.shape.dim[d];
    int64_t n = x ? x->type.shape.dim[0] : 0;
    return tti_build1(g, "reshape", x,
                      (tti_attr_arg[]){TTI_INTS("dims", 2, (int64_t[]){n, inner}), {0}});
}

tutti_value *tutti_permute(tutti_graph *g, tutti_value *x, const int *perm, int n_perm) {
    int64_t order[TUTTI_MAX_DIMS];
    if (!perm || n_perm < 0 || n_perm > TUTTI_MAX_DIMS)
        return tti_build_fail(g, "transpose: a permutation of 0 to %d dimensions is needed",
                              TUTTI_MAX_DIMS);
    for (int d = 0; d < n_perm; d++) order[d] = perm[d];
    return tti_build1(g, "transpose", x, (tti_attr_arg[]){TTI_INTS("perm", n_perm, order), {0}});
}

tutti_value *tutti_transpose(tutti_graph *g, tutti_value *x, int dim_a, int dim_b) {
    int perm[TUTTI_MAX_DIMS];
    int n = x ? x->type.shape.n_dims : 0;
    if (x && (dim_a < -n || dim_a >= n || dim_b < -n || dim_b >= n))
        return tti_build_fail(g, "transpose: dimensions %d and %d of a shape of %d", dim_a, dim_b,
                              n);
    for (int d = 0; d < n; d++) perm[d] = d;
    if (x) {
        int a = dim_a < 0 ? dim_a + n : dim_a, b = dim_b < 0 ? dim_b + n : dim_b;
        perm[a] = b, perm[b] = a;
    }
    return tutti_permute(g, x, perm, n);
}

tutti_value *tutti_concat(tutti_graph *g, tutti_value *const *values, int n_values, int axis) {
    if (!values || n_values < 1 || n_values > TTI_MAX_IN)
        return tti_build_fail(g, "concat: 1 to %d values are needed, got %d", TTI_MAX_IN, n_values);
    return tti_emit(g, "concat", NULL, values, n_values,
                    (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

tutti_value *tutti_slice(tutti_graph *g, tutti_value *x, int axis, int64_t start, int64_t len) {
    return tti_build1(
        g, "slice", x,
        (tti_attr_arg[]){TTI_INT("axis", axis), TTI_INT("start", start), TTI_INT("len", len), {0}});
}

tutti_value *tutti_pad(tutti_graph *g, tutti_value *x, int axis, int64_t before, int64_t after) {
    int n_dims = x ? x->type.shape.n_dims : 0, at = axis < 0 ? axis + n_dims : axis;
    int64_t total = 0;
    if (x && (at < 0 || at >= n_dims || before < 0 || after < 0 ||
              __builtin_add_overflow(before, after, &total) ||
              __builtin_add_overflow(total, x->type.shape.dim[at], &total)))
        return tti_build_fail(g, "pad: %lld and %lld zeros along axis %d of %d dimensions",
                              (long long)before, (long long)after, axis, n_dims);
    return tti_build1(
        g, "slice_grad", x,
        (tti_attr_arg[]){
            TTI_INT("axis", axis), TTI_INT("start", before), TTI_INT("total", total), {0}});
}

tutti_value *tutti_stop_gradient(tutti_graph *g, tutti_value *x) {
    return tti_build1(g, "stop_gradient", x, NULL);
}

tutti_value *tutti_select(tutti_graph *g, tutti_value *x, int axis, int64_t index) {
    int n_dims = x ? x->type.shape.n_dims : 0, at = axis < 0 ? axis + n_dims : axis;
    if (x && (at < 0 || at >= n_dims))
        return tti_build_fail(g, "select: axis %d of %d dimensions", axis, n_dims);
    tutti_value *part = tutti_slice(g, x, axis, index, 1);
    tutti_shape to = {0};
    for (int d = 0; d < n_dims; d++)
        if (d != at) to.dim[to.n_dims++] = x->type.shape.dim[d];
    return tti_build1(
        g, "reshape", part,
        (tti_attr_arg[]){
            TTI_INTS("dims", to.n_dims, to.dim), TTI_INT("one_row", at == 0 ? -1 : 0), {0}});
}

void tutti_split(tutti_graph *g, tutti_value *x, int axis, int n_parts, tutti_value **out) {
    int n_dims = x ? x->type.shape.n_dims : 0;
    for (int i = 0; i < n_parts; i++) out[i] = NULL;
    if (x && (axis < -n_dims || axis >= n_dims || n_parts < 1 ||
              x->type.shape.dim[axis < 0 ? axis + n_dims : axis] % n_parts)) {
        char a[128];
        tti_build_fail(g, "split: %s cannot be cut in %d equal parts along %d",
                       tti_type_text(&x->type, a, sizeof a), n_parts, axis);
        return;
    }
    int64_t len = x ? x->type.shape.dim[axis < 0 ? axis + n_dims : axis] / n_parts : 0;
    for (int i = 0; i < n_parts; i++) out[i] = tutti_slice(g, x, axis, i * len, len);
}

/* ---- records ---- */

static const tti_sample reshape_samples[] = {
    {.in = "f32[4,6]", .attrs = "dims=[2,2,6]"},
    {.in = "f32[2,4,6,2]", .attrs = "dims=[2,48]"},
    {.in = "f32[8,3]", .attrs = "dims=[2,4,3]"},
    {.in = "i32[6]", .attrs = "dims=[1,6]", .int_hi = 9},
    {.in = "f64[1]"},
    {.in = "f32[0,6]", .attrs = "dims=[0,2,3]"},
    {.in = "f32[4,6]", .attrs = "dims=[5,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "dims=[-4,-6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[0]",
     .attrs = "dims=[0,9223372036854775807,9223372036854775807]",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample layout_samples[] = {
    {.in = "f32[2,4,6,2]", .attrs = "layout=1"},
    {.in = "f32[2,3,5,7]", .attrs = "layout=0"},
    {.in = "f32[0,3,5,7]", .attrs = "layout=1"},
    {.in = "f32[2,3]", .attrs = "layout=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,5,7]", .attrs = "layout=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample transpose_samples[] = {
    {.in = "f32[4,6]", .attrs = "perm=[1,0]"},
    {.in = "f32[2,3,4,5]", .attrs = "perm=[0,2,3,1]"},
    {.in = "f32[2,16,24,16]", .attrs = "perm=[0,3,1,2]"},
    {.in = "f64[2,4,6]", .attrs = "perm=[2,0,1]"},
    {.in = "u8[3]", .attrs = "perm=[0]", .int_hi = 255},
    {.in = "f32[]"},
    {.in = "f32[0,6]", .attrs = "perm=[1,0]"},
    {.in = "f32[4,6]", .attrs = "perm=[0,0]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "perm=[0]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "perm=[0,64]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample slice_samples[] = {
    {.in = "f32[4,6]", .attrs = "axis=1 start=2 len=3"},
    {.in = "f32[2,5,4]", .attrs = "axis=-2 start=0 len=2"},
    {.in = "i32[6]", .attrs = "axis=0 start=5 len=1", .int_hi = 9},
    {.in = "f32[0,6]", .attrs = "axis=1 start=1 len=2"},
    {.in = "f32[4,6]", .attrs = "axis=0 start=4 len=0"},
    {.in = "f32[4,6]", .attrs = "axis=1 start=5 len=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "axis=1 start=-1 len=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "axis=2 start=0 len=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4]", .attrs = "start=1 len=9223372036854775807", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample slice_grad_samples[] = {
    {.in = "f32[4,3]", .attrs = "axis=1 start=2 total=6"},
    {.in = "f32[2,2,4]", .attrs = "axis=-2 start=0 total=5"},
    {.in = "f32[0,2]", .attrs = "axis=1 start=1 total=6"},
    {.in = "f32[4,3]", .attrs = "axis=1 start=4 total=6", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3]", .attrs = "axis=1 start=-1 total=6", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample stop_samples[] = {
    {.in = "f32[4,3]"}, {.in = "i32[2,2]", .int_hi = 9}, {.in = "f64[]"}, {.in = "f32[0,2]"}, {0},
};

static const tti_sample concat_samples[] = {
    {.in = "f32[4,6] f32[4,2]", .attrs = "axis=1"},
    {.in = "f32[2,3,4] f32[2,1,4] f32[2,2,4]", .attrs = "axis=-2"},
    {.in = "i32[3] i32[2]", .int_hi = 9},
    {.in = "f32[4,2]"},
    {.in = "f32[0,6] f32[0,2]", .attrs = "axis=1"},
    {.in = "f32[0,6] f32[2,6]"},
    {.in = "f32[4,6] f32[3,2]", .attrs = "axis=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f64[4,2]", .attrs = "axis=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4]", .attrs = "axis=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[] f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample permute_view_samples[] = {
    {.in = "f32[2,3,1,1]", .attrs = "perm=[0,2,3,1]"},
    {.in = "f32[2,1,1,3]", .attrs = "perm=[0,3,1,2]"},
    {.in = "f32[2,3,4,5]", .attrs = "perm=[0,0,1,2]", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of records with one input. */
#define MOVE .n_in_min = 1, .n_in_max = 1, .n_out = 1, .cost = tti_cost_move

const tti_op tti_ops_shape[] = {
    {.name = "reshape",
     .doc = "the same elements in row-major order under another shape",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .cost = tti_cost_free,
     .attrs = reshape_attrs,
     .traits = TTI_VIEW,
     .infer = reshape_infer,
     .grad = reshape_grad,
     .shard = reshape_shard,
     .reference = copy_reference,
     .samples = reshape_samples},
    {.name = "to_layout",
     .doc = "y = x, its bytes in another order",
     MOVE,
     .traits = TTI_FOLLOWS,
     .attrs = layout_attrs,
     .infer = to_layout_infer,
     .grad = to_layout_grad,
     .shard = tti_shard_linear,
     .reference = copy_reference,
     .samples = layout_samples},
    {.name = "transpose",
     .doc = "y's dimension d is x's dimension perm[d]",
     MOVE,
     .traits = TTI_FOLLOWS | TTI_PERMUTES,
     .attrs = transpose_attrs,
     .infer = transpose_infer,
     .grad = transpose_grad,
     .shard = transpose_shard,
     .reference = transpose_reference,
     .samples = transpose_samples},
    {.name = "permute_view",
     .doc = "transpose where the layouts of x and y make their bytes the same; added by a pass",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .cost = tti_cost_free,
     .attrs = transpose_attrs,
     .traits = TTI_VIEW | TTI_FOLLOWS,
     .infer = transpose_infer,
     .grad = transpose_grad,
     .shard = transpose_shard,
     .reference = transpose_reference,
     .samples = permute_view_samples},
    {.name = "slice",
     .doc = "y = x[.., start .. start+len-1, ..] along axis",
     MOVE,
     .traits = TTI_FOLLOWS | TTI_EITHER_LAYOUT,
     .attrs = slice_attrs,
     .infer = slice_infer,
     .grad = slice_grad,
     .shard = across_axis_shard,
     .reference = slice_reference,
     .samples = slice_samples},
    {.name = "slice_grad",
     .doc = "dx = dy from start on along axis, 0 outside",
     MOVE,
     .traits = TTI_FOLLOWS | TTI_EITHER_LAYOUT,
     .attrs = slice_grad_attrs,
     .infer = slice_grad_infer,
     .grad = slice_grad_grad,
     .shard = across_axis_shard,
     .reference = slice_grad_reference,
     .samples = slice_grad_samples},
    {.name = "concat",
     .doc = "the inputs one after the other along axis",
     .n_in_min = 1,
     .n_in_max = TTI_MAX_IN,
     .n_out = 1,
     .cost = tti_cost_move,
     .traits = TTI_FOLLOWS | TTI_EITHER_LAYOUT,
     .attrs = axis_attrs,
     .infer = concat_infer,
     .grad = concat_grad,
     .shard = across_axis_shard,
     .cut = concat_cut,
     .reference = concat_reference,
     .samples = concat_samples},
    {.name = "stop_gradient",
     .doc = "y = x; no gradient flows to x",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .cost = tti_cost_free,
     .traits = TTI_VIEW | TTI_TURNS,
     .infer = stop_infer,
     .grad = tti_grad_none,
     .shard = tti_shard_linear,
     .reference = copy_reference,
     .samples = stop_samples},
    {0},
};

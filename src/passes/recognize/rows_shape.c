/* rows_shape.c - steps that undo each other: views of views, slices that are joined again.
 *
 * Exporters take layers apart into heads and put them together again around every operation.  The
 * rows that replace these operations do the same in the order of our ops, and the rows of this
 * file remove the steps that cancel.  Each of them moves a slice nearer to its source or makes
 * the graph smaller, so matching ends. */
#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"
#include "tutti/ops.h"

tutti_value *tti_new_reshape(tti_rewrite *rw, tutti_value *x, const tutti_shape *to) {
    if (!x || tti_shape_equal(&x->type.shape, to)) return x;
    return tti_emit(tti_new_graph(rw), "reshape", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INTS("dims", to->n_dims, to->dim), {0}});
}

tutti_value *tti_new_permute(tti_rewrite *rw, tutti_value *x, const int *perm, int n) {
    int64_t order[TUTTI_MAX_DIMS] = {0};
    bool moves = false;
    for (int d = 0; d < n; d++) order[d] = perm[d], moves = moves || perm[d] != d;
    if (!x || !moves) return x;
    return tti_emit(tti_new_graph(rw), "transpose", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INTS("perm", n, order), {0}});
}

tutti_value *tti_new_affine(tti_rewrite *rw, tutti_value *x, double alpha, double beta) {
    if (alpha == 1 && beta == 0) return x;
    return tti_emit(tti_new_graph(rw), "affine", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_FLOAT("alpha", alpha), TTI_FLOAT("beta", beta), {0}});
}

tutti_value *tti_new_like(tti_rewrite *rw, const tti_node *node, tutti_value *const *in) {
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        attrs[i] = (tti_attr_arg){node->op->attrs[i].name, node->attrs[i]};
    return tti_emit(tti_new_graph(rw), node->op->name, node->name, in, node->n_in, attrs);
}

tutti_value *tti_new_gather(tti_rewrite *rw, tutti_value *x, const int32_t *rows) {
    if (!x) return NULL;
    tutti_shape n = TUTTI_SHAPE(x->type.shape.dim[1]);
    return tutti_gather(tti_new_graph(rw), x,
                        tutti_constant_array(tti_new_graph(rw), TUTTI_I32, &n, rows), 1);
}

static tutti_value *new_slice(tti_rewrite *rw, tutti_value *x, int axis, int64_t start,
                              int64_t len) {
    if (x && start == 0 && len == x->type.shape.dim[axis]) return x;
    return tti_emit(
        tti_new_graph(rw), "slice", NULL, &x, 1,
        (tti_attr_arg[]){TTI_INT("axis", axis), TTI_INT("start", start), TTI_INT("len", len), {0}});
}

static const tti_node *maker_of_input(const tti_match *m) { return m->root->in[0]->node; }

static int axis_of(const tti_node *node) {
    int64_t axis = tti_attr_int(node, "axis");
    return (int)(axis < 0 ? axis + node->in[0]->type.shape.n_dims : axis);
}

/* ---- views of views ---- */

/* "one_row" says what sizes alone do not: such a reshape stays. */
static bool is_plain_reshape(const tti_node *node) {
    return tti_is_op(node, "reshape") && tti_attr_int(node, "one_row") == 0;
}

static bool find_two_reshapes(tti_match *m) {
    return is_plain_reshape(m->root) && is_plain_reshape(maker_of_input(m));
}

static tutti_value *build_one_reshape(tti_rewrite *rw, const tti_match *m) {
    return tti_new_reshape(rw, tti_mapped(rw, maker_of_input(m)->in[0]),
                           &m->root->out[0]->type.shape);
}

static bool find_two_permutes(tti_match *m) {
    return tti_is_op(m->root, "transpose") && tti_is_op(maker_of_input(m), "transpose");
}

static tutti_value *build_one_permute(tti_rewrite *rw, const tti_match *m) {
    const tti_attr *outer = tti_attr_get(m->root, "perm");
    const tti_attr *inner = tti_attr_get(maker_of_input(m), "perm");
    int perm[TUTTI_MAX_DIMS] = {0};
    for (int d = 0; d < outer->n; d++) perm[d] = (int)inner->v[outer->v[d]];
    return tti_new_permute(rw, tti_mapped(rw, maker_of_input(m)->in[0]), perm, outer->n);
}

/* Dimensions of 1 that a reshape of a permute leaves out, as bits by dimension of the permute's
 * input: dimension 0, the batch, last.  0: it does something else. */
static unsigned dropped_dims(const tti_node *reshape) {
    const tti_node *permute = reshape->in[0]->node;
    const tutti_shape *from = &permute->in[0]->type.shape, *to = &reshape->out[0]->type.shape;
    const tti_attr *perm = tti_attr_get(permute, "perm");
    unsigned dropped = 0;
    int n = from->n_dims - to->n_dims, e = 0;
    for (int d = from->n_dims - 1; d >= 0 && n > 0; d--)
        if (from->dim[d] == 1) dropped |= 1u << d, n--;
    if (n != 0) return 0;
    for (int d = 0; d < from->n_dims; d++) {
        if (dropped >> perm->v[d] & 1u) continue;
        if (from->dim[perm->v[d]] != to->dim[e++]) return 0;
    }
    return dropped;
}

static bool find_squeezed_permute(tti_match *m) {
    return is_plain_reshape(m->root) && tti_is_op(maker_of_input(m), "transpose") &&
           dropped_dims(m->root) != 0;
}

/* The dimensions are left out before. */
static tutti_value *build_permute_of_squeezed(tti_rewrite *rw, const tti_match *m) {
    const tti_node *permute = maker_of_input(m);
    const tutti_shape *from = &permute->in[0]->type.shape;
    const tti_attr *order = tti_attr_get(permute, "perm");
    unsigned dropped = dropped_dims(m->root);
    tutti_shape to = {0};
    int at[TUTTI_MAX_DIMS] = {0}, perm[TUTTI_MAX_DIMS] = {0}, n = 0;
    for (int d = 0; d < from->n_dims; d++) {
        at[d] = to.n_dims;
        if (!(dropped >> d & 1u)) to.dim[to.n_dims++] = from->dim[d];
    }
    for (int d = 0; d < order->n; d++)
        if (!(dropped >> order->v[d] & 1u)) perm[n++] = at[order->v[d]];
    return tti_new_permute(rw, tti_new_reshape(rw, tti_mapped(rw, permute->in[0]), &to), perm, n);
}

static bool find_still_permute(tti_match *m) {
    if (!tti_is_op(m->root, "transpose")) return false;
    const tti_attr *perm = tti_attr_get(m->root, "perm");
    for (int d = 0; d < perm->n; d++)
        if (perm->v[d] != d) return false;
    return true;
}

static tutti_value *build_input(tti_rewrite *rw, const tti_match *m) {
    return tti_mapped(rw, m->root->in[0]);
}

static bool find_whole_slice(tti_match *m) {
    return tti_is_op(m->root, "slice") &&
           tti_shape_equal(&m->root->in[0]->type.shape, &m->root->out[0]->type.shape);
}

/* ---- products and tables ---- */

static bool swaps_last_two(const tti_node *node) {
    if (!tti_is_op(node, "transpose")) return false;
    const tti_attr *perm = tti_attr_get(node, "perm");
    for (int d = 0; d < perm->n - 2; d++)
        if (perm->v[d] != d) return false;
    return perm->n >= 2 && perm->v[perm->n - 1] == perm->n - 2;
}

/* A product reads its second operand in either order. */
static bool find_turned_operand(tti_match *m) {
    return tti_is_op(m->root, "matmul") && swaps_last_two(m->root->in[1]->node);
}

static tutti_value *build_turned_operand(tti_rewrite *rw, const tti_match *m) {
    tutti_value *in[2] = {tti_mapped(rw, m->root->in[0]),
                          tti_mapped(rw, m->root->in[1]->node->in[0])};
    return tti_emit(tti_new_graph(rw), "matmul", m->root->name, in, 2,
                    (tti_attr_arg[]){TTI_INT("trans_a", tti_attr_int(m->root, "trans_a")),
                                     TTI_INT("trans_b", !tti_attr_int(m->root, "trans_b")),
                                     {0}});
}

/* Rows start, start + 1, .. of a table, as positions are looked up; -1: they are others. */
static int64_t first_of_rows(const tti_match *m) {
    if (!tti_is_op(m->root, "embedding")) return -1;
    int64_t n = tti_value_n_elems(m->root->in[1]), rows = m->root->in[0]->type.shape.dim[0];
    const double *id = n > 0 ? tti_constant_of(m->scene, m->root->in[1]) : NULL;
    if (!id || id[0] < 0 || id[n - 1] >= (double)rows) return -1;
    for (int64_t i = 1; i < n; i++)
        if (id[i] != id[0] + (double)i) return -1;
    return (int64_t)id[0];
}

static bool find_rows_of_table(tti_match *m) { return first_of_rows(m) >= 0; }

static tutti_value *build_rows_of_table(tti_rewrite *rw, const tti_match *m) {
    tutti_value *part = new_slice(rw, tti_mapped(rw, m->root->in[0]), 0, first_of_rows(m),
                                  tti_value_n_elems(m->root->in[1]));
    return tti_new_reshape(rw, part, &m->root->out[0]->type.shape);
}

/* ---- slices ---- */

static bool find_slice_of(const tti_match *m, const char *op) {
    return tti_is_op(m->root, "slice") && tti_is_op(maker_of_input(m), op);
}

static bool find_slice_of_permute(tti_match *m) { return find_slice_of(m, "transpose"); }

static tutti_value *build_permute_of_slice(tti_rewrite *rw, const tti_match *m) {
    const tti_node *permute = maker_of_input(m);
    const tti_attr *order = tti_attr_get(permute, "perm");
    int perm[TUTTI_MAX_DIMS] = {0};
    for (int d = 0; d < order->n; d++) perm[d] = (int)order->v[d];
    tutti_value *part = new_slice(rw, tti_mapped(rw, permute->in[0]), perm[axis_of(m->root)],
                                  tti_attr_int(m->root, "start"), tti_attr_int(m->root, "len"));
    return tti_new_permute(rw, part, perm, order->n);
}

/* The dimension of the reshape's input that begins with dimension axis of its output and consists
 * of it and whole dimensions after it, of *step elements together; -1: none. */
static int dim_split_at(const tti_node *reshape, int axis, int64_t *step) {
    const tutti_shape *from = &reshape->in[0]->type.shape, *to = &reshape->out[0]->type.shape;
    int64_t before = 1, after = 1;
    int d = 0, e = axis + 1;
    for (int i = 0; i < axis; i++) before *= to->dim[i];
    for (; d < from->n_dims && before > 1 && before % from->dim[d] == 0; d++)
        before /= from->dim[d];
    while (d < from->n_dims && from->dim[d] == 1 && to->dim[axis] != 1) d++;
    if (before != 1 || d == from->n_dims) return -1;
    while (e < to->n_dims && to->dim[axis] * after < from->dim[d]) after *= to->dim[e++];
    *step = after;
    return to->dim[axis] * after == from->dim[d] ? d : -1;
}

/* The batch keeps its dimension: a slice of the others alone is moved. */
static bool find_slice_of_reshape(tti_match *m) {
    int64_t step;
    if (!find_slice_of(m, "reshape") || !is_plain_reshape(maker_of_input(m))) return false;
    const tutti_value *x = maker_of_input(m)->in[0];
    if (tti_value_n_elems(x) == 0 || axis_of(m->root) == 0) return false;
    return dim_split_at(maker_of_input(m), axis_of(m->root), &step) > 0;
}

static tutti_value *build_reshape_of_slice(tti_rewrite *rw, const tti_match *m) {
    int64_t step;
    int d = dim_split_at(maker_of_input(m), axis_of(m->root), &step);
    tutti_value *part =
        new_slice(rw, tti_mapped(rw, maker_of_input(m)->in[0]), d,
                  tti_attr_int(m->root, "start") * step, tti_attr_int(m->root, "len") * step);
    return tti_new_reshape(rw, part, &m->root->out[0]->type.shape);
}

static bool find_slice_of_slice(tti_match *m) {
    return find_slice_of(m, "slice") && axis_of(m->root) == axis_of(maker_of_input(m));
}

static tutti_value *build_one_slice(tti_rewrite *rw, const tti_match *m) {
    const tti_node *inner = maker_of_input(m);
    return new_slice(rw, tti_mapped(rw, inner->in[0]), axis_of(m->root),
                     tti_attr_int(m->root, "start") + tti_attr_int(inner, "start"),
                     tti_attr_int(m->root, "len"));
}

/* ---- parts that are joined again ---- */

/* Neighbours of one value, in their order. */
static bool find_joined_slices(tti_match *m) {
    const tti_node *first = maker_of_input(m);
    int64_t end = 0;
    if (!tti_is_op(m->root, "concat") || !tti_is_op(first, "slice")) return false;
    int axis = axis_of(m->root);
    for (int i = 0; i < m->root->n_in; i++) {
        const tti_node *part = m->root->in[i]->node;
        if (!tti_is_op(part, "slice") || part->in[0] != first->in[0] || axis_of(part) != axis)
            return false;
        if (i > 0 && tti_attr_int(part, "start") != end) return false;
        end = tti_attr_int(part, "start") + tti_attr_int(part, "len");
    }
    return true;
}

static tutti_value *build_joined_slices(tti_rewrite *rw, const tti_match *m) {
    const tti_node *first = maker_of_input(m);
    int axis = axis_of(m->root);
    return new_slice(rw, tti_mapped(rw, first->in[0]), axis, tti_attr_int(first, "start"),
                     m->root->out[0]->type.shape.dim[axis]);
}

/* ---- slices of results without other readers ---- */

/* If only a slice of a product or linear layer is read, its other rows need not be computed:
 * language models drop the last position's logits so. */
static bool find_slice_of_rows(tti_match *m) {
    if (!tti_is_op(m->root, "slice")) return false;
    const tti_node *product = maker_of_input(m);
    bool is_linear = tti_is_op(product, "linear");
    bool is_matmul = tti_is_op(product, "matmul") && product->in[1]->type.shape.n_dims == 2 &&
                     !tti_attr_int(product, "trans_a");
    int axis = axis_of(m->root);
    if ((!is_linear && !is_matmul) || axis == 0 || axis == product->out[0]->type.shape.n_dims - 1)
        return false;
    return tti_match_take(m, m->root) && tti_match_take(m, product);
}

static tutti_value *build_product_of_slice(tti_rewrite *rw, const tti_match *m) {
    const tti_node *product = maker_of_input(m);
    tutti_value *in[3] = {new_slice(rw, tti_mapped(rw, product->in[0]), axis_of(m->root),
                                    tti_attr_int(m->root, "start"), tti_attr_int(m->root, "len"))};
    for (int i = 1; i < product->n_in; i++) in[i] = tti_mapped(rw, product->in[i]);
    return tti_new_like(rw, product, in);
}

const tti_row tti_rows_view[] = {
    {.find = find_still_permute, .build = build_input},
    {.find = find_whole_slice, .build = build_input},
    {.find = find_two_reshapes, .build = build_one_reshape},
    {.find = find_two_permutes, .build = build_one_permute},
    {.find = find_squeezed_permute, .build = build_permute_of_squeezed},
    {.find = find_turned_operand, .build = build_turned_operand},
    {.find = find_rows_of_table, .build = build_rows_of_table},
    {0},
};

const tti_row tti_rows_slice[] = {
    {.find = find_slice_of_permute, .build = build_permute_of_slice},
    {.find = find_slice_of_slice, .build = build_one_slice},
    {.find = find_slice_of_reshape, .build = build_reshape_of_slice},
    {.find = find_joined_slices, .build = build_joined_slices},
    {.find = find_slice_of_rows, .build = build_product_of_slice},
    {0},
};

/* rows_turn.c - transpositions that exporters write around layers and heads, and other orders of
 * rows.
 *
 * A chain of reshapes and transpositions is one order of the factors of its input's dimensions,
 * so it becomes one transposition, or none if that order is the input's own.  A transposition in
 * front of a linear layer moves after it where it meets its inverse on every path: models with
 * positions first, as nn.MultiheadAttention has them inside, become models with the batch first. */
#include <string.h>

#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"

enum { MAX_FACTORS = 24, MAX_CHAIN = 12, MAX_PATH = 8 };
enum { LEAST_WIDTH = 8 }; /* elements of a row: a gather of fewer is slow */

static bool is_transpose(const tti_node *node) { return tti_is_op(node, "transpose"); }
static bool is_reshape(const tti_node *node) { return tti_is_op(node, "reshape"); }

/* ---- chains ---- */

/* Dimensions of a value as products of factors of the first value's dimensions. */
typedef struct factors {
    int64_t size[MAX_FACTORS]; /* by number; a split factor's inner part gets the next number */
    int order[MAX_FACTORS];    /* numbers, in the order of the value's dimensions */
    int n_of_dim[TUTTI_MAX_DIMS];
    int n;
} factors;

/* Splits the factor at place i of the order into `outer` and the rest after it. */
static bool split_factor(factors *f, int i, int64_t outer) {
    int at = f->order[i];
    if (f->n == MAX_FACTORS) return false;
    for (int k = 0; k < f->n; k++)
        if (f->order[k] > at) f->order[k]++;
    memmove(&f->size[at + 2], &f->size[at + 1], (size_t)(f->n - at - 1) * sizeof f->size[0]);
    memmove(&f->order[i + 2], &f->order[i + 1], (size_t)(f->n - i - 1) * sizeof f->order[0]);
    f->size[at + 1] = f->size[at] / outer;
    f->size[at] = outer;
    f->order[i + 1] = at + 1;
    f->n++;
    return true;
}

/* Groups the factors into the dimensions of a shape; false: they cannot be. */
static bool regroup(factors *f, const tutti_shape *to) {
    int i = 0;
    for (int d = 0; d < to->n_dims; d++) {
        int64_t rest = to->dim[d];
        for (f->n_of_dim[d] = 0; rest > 1; f->n_of_dim[d]++, i++) {
            if (i == f->n) return false;
            int64_t size = f->size[f->order[i]];
            if (size > rest && (size % rest || !split_factor(f, i, rest))) return false;
            if (size < rest && rest % size) return false;
            rest /= f->size[f->order[i]];
        }
    }
    return i == f->n;
}

static void reorder(factors *f, const tti_attr *perm) {
    factors old = *f;
    int first[TUTTI_MAX_DIMS] = {0}, n = 0;
    for (int d = 1; d < perm->n; d++) first[d] = first[d - 1] + old.n_of_dim[d - 1];
    for (int d = 0; d < perm->n; d++) {
        int from = (int)perm->v[d];
        f->n_of_dim[d] = old.n_of_dim[from];
        for (int k = 0; k < old.n_of_dim[from]; k++) f->order[n++] = old.order[first[from] + k];
    }
}

/* A chain as reshape(permute(reshape(x, from), perm)). */
typedef struct view {
    tutti_value *x;
    tutti_shape from;
    int perm[TUTTI_MAX_DIMS];
    bool moves;
    int n_nodes; /* of the chain */
} view;

/* The dimension of the batch; -1: all samples share the value, or it is not known. */
static int batch_dim(const tti_scene *s, const tutti_value *value) {
    if (!s->placed || s->placed[value->id].kind != TTI_SPLIT) return -1;
    return s->placed[value->id].dim;
}

/* Neighbours in both orders are one dimension. */
static bool join_factors(const factors *f, view *v) {
    int rank[MAX_FACTORS], begin[MAX_FACTORS] = {0}, n = 0;
    for (int i = 0; i < f->n; i++) rank[f->order[i]] = i;
    for (int k = 0; k < f->n; k++)
        if (k == 0 || rank[k] != rank[k - 1] + 1) {
            if (v->from.n_dims == TUTTI_MAX_DIMS) return false;
            begin[n++] = k;
            v->from.dim[v->from.n_dims++] = f->size[k];
        } else {
            v->from.dim[v->from.n_dims - 1] *= f->size[k];
        }
    int at = v->from.n_dims - n; /* 1 where a batch of one row comes first */
    for (int i = 0; i < at; i++) v->perm[i] = i;
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < n; k++)
            if (begin[k] == f->order[i]) v->perm[at++] = v->from.n_dims - n + k;
    v->moves = n > 1;
    return true;
}

/* Whether the batch has one row there, so that the size of a dimension does not show whether it is
 * the batch. */
static bool has_one_row(const tti_scene *s, const tutti_value *value) {
    int batch = batch_dim(s, value);
    return !s->placed || (batch >= 0 && value->type.shape.dim[batch] == 1);
}

/* A reshape says which dimension of 1 is the batch where sizes do not. */
static bool is_view(const tti_node *node, bool plain) {
    return is_transpose(node) || (is_reshape(node) && (!plain || !tti_attr_int(node, "one_row")));
}

static factors factors_of(const tutti_shape *shape) {
    factors f = {.n = 0};
    for (int d = 0; d < shape->n_dims; d++) {
        if (shape->dim[d] > 1) f.order[f.n] = f.n, f.size[f.n++] = shape->dim[d];
        f.n_of_dim[d] = shape->dim[d] > 1;
    }
    return f;
}

/* The chain that ends at root.  A batch of one row stays dimension 0. */
static bool read_view(const tti_scene *s, const tti_node *root, view *v) {
    const tti_node *chain[MAX_CHAIN];
    bool one_row = has_one_row(s, root->out[0]);
    *v = (view){.x = root->out[0]};
    while (v->n_nodes < MAX_CHAIN && is_view(v->x->node, one_row)) {
        chain[v->n_nodes++] = v->x->node;
        v->x = v->x->node->in[0];
    }
    if (v->n_nodes == 0 || tti_value_n_elems(v->x) == 0) return false;
    if (one_row && s->placed) {
        if (batch_dim(s, v->x) != 0 || batch_dim(s, root->out[0]) != 0) return false;
        v->from = TUTTI_SHAPE(1);
    }
    factors f = factors_of(&v->x->type.shape);
    for (int i = v->n_nodes - 1; i >= 0; i--) {
        if (is_transpose(chain[i]))
            reorder(&f, tti_attr_get(chain[i], "perm"));
        else if (!regroup(&f, &chain[i]->out[0]->type.shape))
            return false;
    }
    return join_factors(&f, v);
}

/* Nodes that the view takes. */
static int n_needed(const view *v, const tutti_shape *to) {
    tutti_shape turned = {.n_dims = v->from.n_dims};
    if (!v->moves) return !tti_shape_equal(&v->x->type.shape, to);
    for (int d = 0; d < turned.n_dims; d++) turned.dim[d] = v->from.dim[v->perm[d]];
    return !tti_shape_equal(&v->x->type.shape, &v->from) + 1 + !tti_shape_equal(&turned, to);
}

static bool find_shorter_view(tti_match *m) {
    view v;
    return is_view(m->root, false) && read_view(m->scene, m->root, &v) &&
           n_needed(&v, &m->root->out[0]->type.shape) < v.n_nodes;
}

static tutti_value *build_view(tti_rewrite *rw, const tti_match *m) {
    view v;
    if (!read_view(m->scene, m->root, &v)) return NULL;
    const tutti_shape *to = &m->root->out[0]->type.shape;
    tutti_value *x = tti_mapped(rw, v.x);
    if (v.moves) x = tti_new_permute(rw, tti_new_reshape(rw, x, &v.from), v.perm, v.from.n_dims);
    return tti_new_reshape(rw, x, to);
}

/* ---- through linear layers ---- */

/* A transposition of leading dimensions. */
static bool keeps_rows(const tti_node *node) {
    if (!is_transpose(node)) return false;
    const tti_attr *perm = tti_attr_get(node, "perm");
    return perm->n > 1 && perm->v[perm->n - 1] == perm->n - 1;
}

/* Whether node puts the leading dimensions back that `turn` moved, and moves no others. */
static bool turns_back(const tti_node *node, const tti_node *turn) {
    const tti_attr *there = tti_attr_get(turn, "perm"), *back = tti_attr_get(node, "perm");
    for (int d = 0; d < back->n; d++)
        if (d < there->n - 1 ? there->v[back->v[d]] != d : back->v[d] != d) return false;
    return back->n >= there->n - 1;
}

/* The dimensions that `turn` moved, in front of a value: as they are, or as one. */
static bool has_leading_dims(const tutti_value *value, const tti_node *turn) {
    const tutti_shape *moved = &turn->out[0]->type.shape, *shape = &value->type.shape;
    if (shape->n_dims < moved->n_dims - 1) return false;
    for (int d = 0; d < moved->n_dims - 1; d++)
        if (shape->dim[d] != moved->dim[d]) return false;
    return true;
}

static bool has_joined_dims(const tutti_value *value, const tti_node *turn) {
    const tutti_shape *moved = &turn->out[0]->type.shape;
    int64_t rows = 1;
    for (int d = 0; d < moved->n_dims - 1; d++) rows *= moved->dim[d];
    return value->type.shape.n_dims > 1 && value->type.shape.dim[0] == rows;
}

static bool is_unary(const tti_node *node) {
    return (node->op->traits & TTI_ELEMENTWISE) && node->n_in == 1 && node->op->n_out == 1 &&
           !(node->op->traits & (TTI_RANDOM | TTI_SOURCE));
}

/* Whether a reader of value passes rows on in their order: an activation, a view, a slice. */
static bool passes_rows(const tti_node *user, const tutti_value *value, const tti_node *turn) {
    const tutti_value *y = user->out[0];
    bool whole = has_leading_dims(value, turn);
    if (is_reshape(user)) return has_leading_dims(y, turn) || has_joined_dims(y, turn);
    int n_leading = whole ? tti_attr_get(turn, "perm")->n - 1 : 1;
    return is_unary(user) || (tti_is_op(user, "slice") && tti_attr_int(user, "axis") >= n_leading);
}

/* Whether each reader of value, after such steps, turns back. */
static bool all_turn_back(const tti_scene *s, const tutti_value *value, const tti_node *turn,
                          int depth) {
    if (s->is_output[value->id] || depth == MAX_PATH) return false;
    int n = s->first_user[value->id + 1] - s->first_user[value->id];
    for (int i = 0; i < n; i++) {
        const tti_node *user = s->user[s->first_user[value->id] + i];
        bool back = is_transpose(user) && has_leading_dims(value, turn) && turns_back(user, turn);
        bool passes = !back && passes_rows(user, value, turn);
        if (!back && (!passes || !all_turn_back(s, user->out[0], turn, depth + 1))) return false;
    }
    return n > 0;
}

/* The transposition before a node, after a reshape that joins its rows or none; NULL: none. */
static const tti_node *turn_before(const tti_node *node) {
    const tutti_value *x = node->in[0];
    if (is_reshape(x->node)) {
        const tti_node *turn = x->node->in[0]->node;
        bool joins = keeps_rows(turn) && x->type.shape.n_dims == 2 && has_joined_dims(x, turn) &&
                     tti_attr_int(x->node, "one_row") == 0;
        return joins ? turn : NULL;
    }
    return keeps_rows(x->node) ? x->node : NULL;
}

static bool find_turned_rows(tti_match *m) {
    const tti_node *root = m->root;
    if (root->n_in == 0 || !(tti_is_op(root, "linear") || is_unary(root))) return false;
    const tti_node *turn = turn_before(root);
    return turn && all_turn_back(m->scene, root->out[0], turn, 0);
}

static tutti_value *build_turned_result(tti_rewrite *rw, const tti_match *m) {
    const tti_node *root = m->root, *turn = turn_before(root);
    const tti_attr *order = tti_attr_get(turn, "perm");
    tutti_value *in[TTI_MAX_IN] = {tti_mapped(rw, turn->in[0])};
    int perm[TUTTI_MAX_DIMS] = {0};
    for (int d = 0; d < order->n; d++) perm[d] = (int)order->v[d];
    for (int i = 1; i < root->n_in; i++) in[i] = tti_mapped(rw, root->in[i]);
    tutti_value *y = tti_new_permute(rw, tti_new_like(rw, root, in), perm, order->n);
    return tti_new_reshape(rw, y, &root->out[0]->type.shape);
}

/* ---- slices, joins and transpositions that put rows in another order ---- */

/* A shifted window of Swin, and its way back, are two rolls of two parts each and a transposition;
 * merging patches are twelve slices and a join.  One gather of rows does the same, and so does its
 * gradient.  A row is a whole last dimension of the source; the steps keep rows whole, so that the
 * row of the source for each row of the result can be followed step by step. */
typedef struct order {
    tutti_value *source;
    int64_t width, n_samples, n_rows; /* rows of a sample */
    int n_copies;                     /* steps that move bytes */
    bool cuts;                        /* .. that are not transpositions alone */
    int32_t *from;                    /* [n_rows]: row of the source */
} order;

static int axis_of(const tti_node *node) {
    int64_t axis = tti_attr_int(node, "axis");
    return (int)(axis < 0 ? axis + node->in[0]->type.shape.n_dims : axis);
}

static bool cuts_along_axis(const tti_node *node) {
    return tti_is_op(node, "slice") || tti_is_op(node, "slice_grad") || tti_is_op(node, "concat");
}

static bool is_step(const tti_node *node) {
    return tti_is_op(node, "reshape") || tti_is_op(node, "transpose") || cuts_along_axis(node);
}

static bool is_inside(const tti_match *m, const tti_node *node) {
    for (int i = 0; i < m->n_inner; i++)
        if (m->inner[i] == node) return true;
    return false;
}

/* Takes the steps before value; all begin at one source, of which others may read views. */
static bool collect(tti_match *m, order *o, tutti_value *value) {
    const tti_node *node = value->node;
    if (is_reshape(node) && !is_step(node->in[0]->node)) return collect(m, o, node->in[0]);
    if (!is_step(node)) {
        if (!o->source) o->source = value;
        return o->source == value;
    }
    if (is_inside(m, node)) return true;
    if (!tti_match_take(m, node)) return false;
    o->n_copies += !tti_is_op(node, "reshape");
    o->cuts = o->cuts || cuts_along_axis(node);
    for (int i = 0; i < node->n_in; i++)
        if (!collect(m, o, node->in[i])) return false;
    return true;
}

static bool has_whole_rows(const tutti_value *value, int64_t width) {
    const tutti_shape *s = &value->type.shape;
    return s->n_dims > 1 && s->dim[s->n_dims - 1] % width == 0;
}

static bool keeps_whole_rows(const tti_node *node, int64_t width) {
    int last = node->in[0]->type.shape.n_dims - 1;
    for (int i = 0; i < node->n_in; i++)
        if (!has_whole_rows(node->in[i], width)) return false;
    if (!has_whole_rows(node->out[0], width)) return false;
    if (tti_is_op(node, "transpose")) return tti_attr_get(node, "perm")->v[last] == last;
    bool has_start = tti_is_op(node, "slice") || tti_is_op(node, "slice_grad");
    return !has_start || axis_of(node) != last || tti_attr_int(node, "start") % width == 0;
}

/* ---- following a row ---- */

/* A shape whose last dimension counts rows. */
static tutti_shape in_rows(const tutti_value *value, int64_t width) {
    tutti_shape s = value->type.shape;
    s.dim[s.n_dims - 1] /= width;
    return s;
}

/* The step's input that has place at[] of its output; at becomes the place there.  -1: none. */
static int step_back(const tti_node *node, int64_t width, int64_t *at) {
    int64_t before[TUTTI_MAX_DIMS];
    if (tti_is_op(node, "transpose")) {
        const tti_attr *perm = tti_attr_get(node, "perm");
        for (int d = 0; d < perm->n; d++) before[d] = at[d];
        for (int d = 0; d < perm->n; d++) at[perm->v[d]] = before[d];
        return 0;
    }
    int axis = axis_of(node), last = node->in[0]->type.shape.n_dims - 1;
    if (tti_is_op(node, "concat")) {
        for (int i = 0; i < node->n_in; i++) {
            int64_t n = in_rows(node->in[i], width).dim[axis];
            if (at[axis] < n) return i;
            at[axis] -= n;
        }
        return -1;
    }
    int64_t start = tti_attr_int(node, "start") / (axis == last ? width : 1);
    at[axis] += tti_is_op(node, "slice") ? start : -start;
    return at[axis] >= 0 && at[axis] < in_rows(node->in[0], width).dim[axis] ? 0 : -1;
}

/* The row of the source that a row of value is; -1: none. */
static int64_t follow(const order *o, const tutti_value *value, int64_t row) {
    while (value != o->source) {
        const tti_node *node = value->node;
        int64_t at[TUTTI_MAX_DIMS];
        int which = 0;
        if (!tti_is_op(node, "reshape")) {
            tutti_shape s = in_rows(value, o->width);
            for (int d = s.n_dims - 1; d >= 0; d--) at[d] = row % s.dim[d], row /= s.dim[d];
            which = step_back(node, o->width, at);
            if (which < 0) return -1;
            s = in_rows(node->in[which], o->width);
            for (int d = 0; d < s.n_dims; d++) row = row * s.dim[d] + at[d];
        }
        value = node->in[which];
    }
    return row;
}

static bool is_split_in_front(const tti_scene *s, const tutti_value *value) {
    return s->placed[value->id].kind == TTI_SPLIT && s->placed[value->id].dim == 0;
}

/* Reads the order of a sample's rows; false: it is none, or samples differ. */
static bool read_order(tti_scene *s, order *o, const tutti_value *y) {
    int64_t last = (o->n_samples - 1) * o->n_rows;
    o->from = tti_arena_alloc(&s->arena, (size_t)o->n_rows * sizeof *o->from);
    bool *seen = tti_arena_alloc(&s->arena, (size_t)o->n_rows);
    for (int64_t i = 0; o->from && seen && i < o->n_rows; i++) {
        int64_t from = follow(o, y, i);
        if (from < 0 || from >= o->n_rows || seen[from]) return false;
        if (follow(o, y, last + i) != last + from) return false;
        seen[from] = true;
        o->from[i] = (int32_t)from;
    }
    return o->from && seen;
}

static bool find_order(tti_match *m) {
    order *o = tti_arena_alloc(&m->scene->arena, sizeof *o);
    const tutti_value *y = m->root->out[0];
    m->found = o;
    if (!o || !is_step(m->root) || tti_is_op(m->root, "reshape")) return false;
    *o = (order){.n_samples = tti_scene_samples(m->scene)};
    if (o->n_samples == 0 || !collect(m, o, m->root->out[0])) return false;
    int64_t n_elems = tti_value_n_elems(o->source);
    if (!o->cuts || o->n_copies < 2 || n_elems == 0 || tti_value_n_elems(y) != n_elems ||
        o->source->type.shape.n_dims < 2 || !is_split_in_front(m->scene, o->source) ||
        !is_split_in_front(m->scene, y))
        return false;
    o->width = o->source->type.shape.dim[o->source->type.shape.n_dims - 1];
    for (int i = 0; i < m->n_inner; i++)
        if (!keeps_whole_rows(m->inner[i], o->width)) return false;
    if (o->width < LEAST_WIDTH || n_elems % (o->width * o->n_samples)) return false;
    o->n_rows = n_elems / o->width / o->n_samples;
    return o->n_rows <= INT32_MAX && tti_match_is_closed(m) && read_order(m->scene, o, y);
}

static tutti_value *build_gather(tti_rewrite *rw, const tti_match *m) {
    const order *o = m->found;
    tutti_value *x = tti_new_reshape(rw, tti_mapped(rw, o->source),
                                     &TUTTI_SHAPE(o->n_samples, o->n_rows, o->width));
    return tti_new_reshape(rw, tti_new_gather(rw, x, o->from), &m->root->out[0]->type.shape);
}

const tti_row tti_rows_turn[] = {
    {.name = "rows in another order", .find = find_order, .build = build_gather},
    {.find = find_shorter_view, .build = build_view},
    {.find = find_turned_rows, .build = build_turned_result},
    {0},
};

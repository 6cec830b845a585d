/* rows_turn.c - transpositions that exporters write around layers and heads.
 *
 * A chain of reshapes and transpositions is one order of the factors of its input's dimensions: at
 * most one transposition, and none where that order is the input's own.  A transposition in front
 * of a linear layer moves behind it where it meets its inverse on every path: models with positions
 * first, as nn.MultiheadAttention has them inside, become models with the batch first. */
#include <string.h>

#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"

enum { MAX_FACTORS = 24, MAX_CHAIN = 12, MAX_PATH = 8 };

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

/* Splits the factor at place i of the order into `outer` and the rest behind it. */
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

/* Where the batch lies; -1: all samples share the value, or nobody knows. */
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

/* Whether the batch has one row there, so that its dimension cannot be told by its size. */
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
    tutti_value *x = tti_new(rw, v.x);
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

/* Whether each reader of value, behind such steps, turns back. */
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

/* The transposition before a node, behind a reshape that joins its rows or none; NULL: none. */
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
    tutti_value *in[TTI_MAX_IN] = {tti_new(rw, turn->in[0])};
    int perm[TUTTI_MAX_DIMS] = {0};
    for (int d = 0; d < order->n; d++) perm[d] = (int)order->v[d];
    for (int i = 1; i < root->n_in; i++) in[i] = tti_new(rw, root->in[i]);
    tutti_value *y = tti_new_permute(rw, tti_new_like(rw, root, in), perm, order->n);
    return tti_new_reshape(rw, y, &root->out[0]->type.shape);
}

const tti_row tti_rows_turn[] = {
    {.find = find_shorter_view, .build = build_view},
    {.find = find_turned_rows, .build = build_turned_result},
    {0},
};

/* aten_order.c - operators for mixtures of experts: counting keys, writing and adding rows by
 * index, and products of rows with one of several matrices. Rows sorted by expert are only sorted
 * virtually (graph/order.h). */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"
#include "import/graph/order.h"

/* ---- host tensors that enumerate ---- */

/* True if x has one dimension and element i is i / k; sets *k. */
static bool counts_by(const tti_operand *x, int64_t *k) {
    if (x->kind != TTI_OPERAND_HOST || x->host.elem == TTI_ELEM_BOOL) return false;
    tutti_shape shape = x->host.shape;
    if (shape.n_dims != 1 || shape.dim[0] < 1) return false;
    *k = 1;
    while (*k < shape.dim[0] && tti_host_at(&x->host, *k) == 0) ++*k;
    for (int64_t i = 0; i < shape.dim[0]; i++)
        if (tti_host_at(&x->host, i) != (double)(i / *k)) return false;
    return true;
}

static bool counts(const tti_operand *x) {
    int64_t k;
    return counts_by(x, &k) && (k == 1 || x->host.shape.dim[0] == 1);
}

bool tti_repeat_each(tti_building *b, const tti_operand *x, const tti_operand *ids,
                     tti_operand *out) {
    tutti_shape from = tti_shape_of(x), to = from, wide = {.n_dims = from.n_dims + 1};
    int64_t k;
    if (!counts_by(ids, &k) || from.n_dims < 1 || from.n_dims == TUTTI_MAX_DIMS) return false;
    if (ids->host.shape.dim[0] != from.dim[0] * k) return false;
    if (k == 1) {
        tti_set(out, x);
        return true;
    }
    for (int d = 0; d < from.n_dims; d++) wide.dim[d ? d + 1 : 0] = from.dim[d];
    wide.dim[1] = 1;
    tutti_value *value = tutti_reshape(tti_graph_of(b), tti_as_float(b, tti_value_of(b, x)), &wide);
    wide.dim[1] = k;
    to.dim[0] *= k;
    value = tutti_reshape(tti_graph_of(b), tutti_broadcast_to(tti_graph_of(b), value, &wide), &to);
    tti_set_value(b, out, value, tti_elem_of(x), true);
    return true;
}

/* ---- calls with virtually sorted rows ---- */

/* Returns the operand of argument k, and its role; NULL: not a tensor. */
static const tti_operand *operand_in(const tti_building *b, const tti_call *c, int k,
                                     tti_order_role *role) {
    const tti_operand *x = tti_operand_named(b, tti_arg_at(c, k));
    *role = x ? x->role : TTI_ORDER_NONE;
    return x;
}

static bool in_order(tti_order_role role) {
    return role == TTI_ORDER_ROWS || role == TTI_ORDER_KEYS;
}

/* Returns the only index of a list, which is for dimension 0; NULL: there are others. */
static const tti_operand *only_index(const tti_building *b, const tti_arg *list) {
    if (list->kind != TTI_ARG_LIST || list->n != 1) return NULL;
    return tti_operand_named(b, &list->items[0]);
}

bool tti_index_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role;
    const tti_operand *x = operand_in(b, c, 0, &role), *ids = only_index(b, tti_arg_at(c, 1));
    if (!x || !ids) return false;
    if (in_order(role) && ids->role == TTI_ORDER_INVERSE && ids->order == x->order) {
        tti_operand before = tti_unordered(tti_operand_at(b, c, 0));
        tti_set(c->out[0], &before);
        return true;
    }
    return role == TTI_ORDER_NONE && in_order(ids->role) &&
           tti_apply_unordered(b, c, ids->order, TTI_ORDER_ROWS);
}

/* argsort of the original positions gives the inverse: the sorted position of each row. */
bool tti_argsort_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role;
    const tti_operand *x = operand_in(b, c, 0, &role);
    if (role != TTI_ORDER_ROWS || !counts(x) || tti_bool_at(b, c, 2)) return false;
    tti_operand made = *x;
    made.role = TTI_ORDER_INVERSE;
    tti_set(c->out[0], &made);
    return true;
}

bool tti_cumsum_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role;
    const tti_operand *x = operand_in(b, c, 0, &role);
    return role == TTI_ORDER_COUNTS && tti_apply_unordered(b, c, x->order, TTI_ORDER_ENDS);
}

/* ---- histc ---- */

/* self bins min max: counts the elements in each of `bins` equal parts of min .. max. */
static void histc(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_graph *g = tti_graph_of(b);
    int64_t bins = tti_int_at(b, c, 1);
    double min = tti_number_at(b, c, 2), max = tti_number_at(b, c, 3);
    if (bins < 1 || bins > INT32_MAX) tti_refuse(b, "bins is out of range");
    if (!(isfinite(min) && isfinite(max) && min < max))
        tti_refuse(b, "min and max must be numbers, min below max");
    if (!tti_good(b)) return;
    tutti_shape shape = tti_shape_of(x);
    int64_t n = tutti_shape_n_elems(&shape);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x)), *scalar[3];
    double limit[3] = {(double)bins - 1, max, -1};
    value = tutti_reshape(g, value, &TUTTI_SHAPE(n));
    for (int i = 0; i < 3; i++)
        scalar[i] = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, limit[i]);
    tutti_value *part =
        tutti_affine(g, value, (double)bins / (max - min), -min * (double)bins / (max - min));
    part = tutti_minimum(g, tutti_floor(g, part), scalar[0]); /* the last part includes max */
    part = tutti_where(g, tutti_less_equal(g, value, scalar[1]), part, scalar[2]);
    value = tutti_one_hot(g, tutti_cast(g, part, TUTTI_I32), bins);
    value = tti_present_in(b, value, 1u << 0);
    value = tutti_sum(g, value, &(tutti_axes){.n = 1, .axis = {0}});
    tti_set_value(b, c->out[0], value, TTI_ELEM_F32, false);
}

/* Counts do not depend on the order of the elements. */
static bool histc_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role;
    const tti_operand *x = operand_in(b, c, 0, &role);
    if (!in_order(role)) return false;
    bool each = role == TTI_ORDER_KEYS && !x->order->descending && tti_number_at(b, c, 2) == 0 &&
                tti_number_at(b, c, 3) == (double)tti_int_at(b, c, 1) - 1;
    return tti_apply_unordered(b, c, x->order, each ? TTI_ORDER_COUNTS : TTI_ORDER_NONE);
}

/* ---- writing and adding rows by index ---- */

/* Reshapes ids [n] to the dimensions of `shape`, with n at dim and 1 elsewhere; negative ids count
 * from the end. */
static tutti_value *flat_places(tti_building *b, const tti_operand *ids, const tutti_shape *shape,
                                int dim) {
    tutti_graph *g = tti_graph_of(b);
    tutti_shape flat = *shape;
    for (int d = 0; d < shape->n_dims; d++) flat.dim[d] = d == dim ? tti_shape_of(ids).dim[0] : 1;
    tutti_value *zero = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
    tutti_value *x = tti_as_float(b, tti_value_of(b, ids));
    x = tutti_add(g, x, tutti_affine(g, tutti_less(g, x, zero), (double)shape->dim[dim], 0));
    return tutti_reshape(g, x, &flat);
}

typedef struct row_update {
    const tti_operand *x, *ids,
        *source;   /* rows of source [n,..] are written to rows ids [n] of x */
    int dim;       /* the dimension of x that ids index */
    double factor; /* factor of source */
    bool adds;     /* adds to the old elements instead of replacing them */
} row_update;

static void put_rows(tti_building *b, const row_update *u, tti_operand *out) {
    const tti_operand *x = u->x, *ids = u->ids, *source = u->source;
    int dim = u->dim;
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tti_shape_of(x), to = shape, one;
    if (tti_good(b) && (tti_elem_of(ids) == TTI_ELEM_BOOL || tti_shape_of(ids).n_dims != 1))
        tti_refuse(b, "the index must be a vector of integers");
    if (!tti_good(b)) return;
    to.dim[dim] = tti_shape_of(ids).dim[0];
    one = to;
    bool any = tti_of_batch(x) || tti_of_batch(ids) || tti_of_batch(source);
    bool by_sample = any && dim > 0 && !tti_of_batch(ids); /* the same indices in each sample */
    if (by_sample) one.dim[0] = 1;
    tutti_value *flat = flat_places(b, ids, &shape, dim), *places;
    places = tutti_broadcast_to(g, flat, &one);
    places = tutti_cast(g, by_sample ? tti_repeat_rows(b, places) : places, TUTTI_I32);
    tutti_value *self = tti_as_float(b, any ? tti_batch_value(b, x) : tti_value_of(b, x));
    tutti_value *value = tti_as_float(b, tti_compact_value(b, source));
    value = tutti_affine(g, tutti_broadcast_to(g, value, &to), u->factor, 0);
    value = tti_put_present(b, value, places, dim, shape.dim[dim]);
    if (u->adds) {
        value = tutti_add(g, self, value);
    } else {
        tutti_value *ones = tutti_affine(g, flat, 0, 1), *zero;
        zero = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
        ones = tti_put_present(b, ones, tutti_cast(g, flat, TUTTI_I32), dim, shape.dim[dim]);
        /* A repeated index gets the mean of its elements, which is right if they are equal. */
        tutti_value *once = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
        value = tutti_div(g, value, tutti_maximum(g, ones, once));
        value = tutti_where(g, tutti_less(g, zero, ones), value, self);
    }
    tti_set_value(b, out, value, tti_elem_of(x), any);
}

/* self indices values accumulate */
static void index_put(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *values = tti_operand_at(b, c, 2), *ids = NULL;
    const tti_arg *list = c->arg[1];
    bool adds = tti_bool_at(b, c, 3);
    tti_operand *all[TUTTI_MAX_DIMS];
    int dim = 0, n = 0;
    for (int i = 0; list->kind == TTI_ARG_LIST && i < list->n && i < TUTTI_MAX_DIMS; i++) {
        if (list->items[i].kind == TTI_ARG_NONE) continue;
        if (n > 0 && dim != i - 1) tti_refuse(b, "indices with a slice between them");
        ids = all[n++] = tti_operand_of(b, &list->items[i]);
        dim = i;
    }
    if (n < 1 || dim >= tti_shape_of(x).n_dims) tti_refuse(b, "the indices do not fit the tensor");
    if (!tti_good(b)) return;
    if (n > 1) {
        tti_put_joined(b, c, all, dim - n + 1, n);
        return;
    }
    if (tti_elem_of(ids) != TTI_ELEM_BOOL) {
        put_rows(b, &(row_update){x, ids, values, dim, 1, adds}, c->out[0]);
        return;
    }
    tutti_shape shape = tti_shape_of(values), mask = tti_shape_of(ids);
    tti_operand wide = *ids;
    if (adds || tutti_shape_n_elems(&shape) != 1 || dim != 0)
        tti_refuse(b, "a boolean index takes one value, which replaces the elements");
    for (int d = mask.n_dims; d < tti_shape_of(x).n_dims; d++) mask.dim[mask.n_dims++] = 1;
    if (tti_good(b)) tti_do_reshape(b, ids, &mask, &wide);
    if (tti_good(b))
        tti_call_row(
            b, "aten.where.self",
            (tti_arg[]){tti_operand_arg(&wide), tti_operand_arg(values), tti_operand_arg(x)}, 3,
            c->out, 1);
}

/* Handles inverse[places] = 0, 1, .. and x[places] = virtually sorted rows. */
static bool index_put_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role, role_values;
    const tti_operand *x = operand_in(b, c, 0, &role);
    const tti_operand *values = operand_in(b, c, 2, &role_values);
    const tti_operand *ids = only_index(b, tti_arg_at(c, 1));
    if (!x || !ids || !values || ids->role != TTI_ORDER_ROWS || !counts(ids)) return false;
    tutti_shape own = tti_shape_of(x), from = tti_shape_of(values);
    bool same = own.n_dims == from.n_dims &&
                memcmp(own.dim, from.dim, (size_t)own.n_dims * sizeof own.dim[0]) == 0;
    if (!same || own.dim[0] != ids->order->n || tti_bool_at(b, c, 3)) return false;
    tti_operand made = *ids;
    made.role = TTI_ORDER_INVERSE;
    if (in_order(role_values) && values->order == ids->order)
        made = tti_unordered(tti_operand_at(b, c, 2));
    else if (role_values != TTI_ORDER_NONE || !counts(values))
        return false;
    tti_set(c->out[0], &made);
    return true;
}

/* self dim index source alpha */
static void index_add(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 2);
    const tti_operand *source = tti_operand_at(b, c, 3);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    put_rows(b, &(row_update){x, ids, source, dim, tti_number_at(b, c, 4), true}, c->out[0]);
}

/* self dim index source: replaces elements by rows or by one number. */
static void index_copy(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 2);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    put_rows(b, &(row_update){x, ids, tti_operand_at(b, c, 3), dim, 1, false}, c->out[0]);
}

/* Adds virtually sorted rows to the rows from which they were made, k for each: sums of k rows. */
static bool index_add_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role, role_ids, role_source;
    const tti_operand *x = operand_in(b, c, 0, &role), *ids = operand_in(b, c, 2, &role_ids);
    const tti_operand *source = operand_in(b, c, 3, &role_source);
    int64_t k;
    if (role != TTI_ORDER_NONE || role_ids != TTI_ORDER_ROWS || !in_order(role_source))
        return false;
    tutti_shape own = tti_shape_of(x), wide = {.n_dims = own.n_dims + 1};
    if (ids->order != source->order || own.n_dims < 1 || own.n_dims == TUTTI_MAX_DIMS ||
        tti_int_at(b, c, 1) != 0 || !counts_by(ids, &k) || own.dim[0] * k != ids->order->n)
        return false;
    for (int d = 0; d < own.n_dims; d++) wide.dim[d ? d + 1 : 0] = own.dim[d];
    wide.dim[1] = k;
    tti_operand rows = tti_unordered(source), many = {0}, sums = {0};
    tti_do_reshape(b, &rows, &wide, &many);
    if (!tti_good(b)) return true;
    tti_call_row(b, "aten.sum.dim_IntList",
                 (tti_arg[]){tti_operand_arg(&many), tti_ints_arg(b, (int64_t[]){1}, 1)}, 2,
                 (tti_operand *[]){&sums}, 1);
    tti_call_row(b, "aten.add.Tensor",
                 (tti_arg[]){tti_operand_arg(x), tti_operand_arg(&sums), *tti_arg_at(c, 4)}, 3,
                 c->out, 1);
    return true;
}

/* ---- products of rows with one of several matrices ---- */

/* Matrices [E,K,N], or [E,N,K] with *trans. */
static tutti_value *matrices_of(tti_building *b, const tti_operand *w, bool *trans) {
    *trans = w->transpose_of != NULL;
    return tti_as_float(b, *trans ? w->transpose_of : tti_value_of(b, w));
}

static void multiply(tti_building *b, const tti_operand *x, const tti_operand *w, tutti_value *ids,
                     tti_operand *out) {
    bool trans;
    tutti_value *rows = tti_as_float(b, tti_value_of(b, x)), *matrices = matrices_of(b, w, &trans);
    if (!tti_good(b)) return;
    tti_set_value(b, out, tutti_grouped_matmul(tti_graph_of(b), rows, matrices, ids, trans),
                  TTI_ELEM_F32, tti_of_batch(x));
}

/* self mat2 offs bias out_dtype: multiplies rows below offs[0] by matrix 0, rows below offs[1] by
 * matrix 1, .. */
static void grouped_mm(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *w = tti_operand_at(b, c, 1);
    tutti_graph *g = tti_graph_of(b);
    if (tti_has(c, 3)) tti_refuse(b, "a bias is not supported");
    if (tti_good(b) &&
        (tti_shape_of(x).n_dims != 2 || tti_shape_of(w).n_dims != 3 || !tti_has(c, 2)))
        tti_refuse(b, "only rows [S,K], matrices [E,K,N] and offsets are supported");
    if (!tti_good(b)) return;
    const tti_operand *ends = tti_operand_at(b, c, 2);
    int64_t n = tti_shape_of(x).dim[0], n_w = tti_shape_of(w).dim[0];
    tti_host rows;
    if (tti_shape_of(ends).n_dims != 1 || tti_shape_of(ends).dim[0] != n_w)
        tti_refuse(b, "the numbers of offsets and matrices differ");
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_F32, &TUTTI_SHAPE(n, 1), &rows)) return;
    for (int64_t i = 0; i < n; i++) rows.data[i] = (double)i;
    tti_operand places = {.kind = TTI_OPERAND_HOST, .host = rows};
    tutti_value *value = tti_as_float(b, tti_value_of(b, ends));
    value = tutti_reshape(g, value, &TUTTI_SHAPE(1, n_w));
    value = tutti_less_equal(g, value, tti_value_of(b, &places));
    value = tutti_sum(g, value, &(tutti_axes){.n = 1, .axis = {1}});
    multiply(b, x, w, tutti_cast(g, value, TUTTI_I32), c->out[0]);
}

/* If rows are virtually sorted by keys and offs are the ends of the keys, each row's key selects
 * its matrix. */
static bool grouped_mm_ordered(tti_building *b, const tti_call *c) {
    tti_order_role role, role_ends;
    const tti_operand *x = operand_in(b, c, 0, &role), *ends = operand_in(b, c, 2, &role_ends);
    const tti_operand *w = tti_operand_at(b, c, 1);
    if (!in_order(role) || role_ends != TTI_ORDER_ENDS || ends->order != x->order || !w ||
        w->role != TTI_ORDER_NONE || tti_has(c, 3))
        return false;
    tti_operand rows = tti_unordered(tti_operand_at(b, c, 0));
    const tti_order *order = x->order;
    if (!tti_good(b) || tti_shape_of(&rows).n_dims != 2 || tti_shape_of(w).n_dims != 3 ||
        tti_shape_of(ends).dim[0] != tti_shape_of(w).dim[0])
        return false;
    multiply(b, &rows, w, tti_as_index(b, &order->keys), c->out[0]);
    if (tti_good(b) && c->out[0]) {
        c->out[0]->order = order;
        c->out[0]->role = TTI_ORDER_ROWS;
    }
    return true;
}

#define ORDERED(op, args, fn, in_an_order) \
    { .target = op, .signature = args, .build = fn, .ordered = in_an_order }

const tti_operator tti_operators_order[] = {
    ORDERED("aten.histc.default", "self bins=100 min=0 max=0", histc, histc_ordered),
    ORDERED("aten.index_put.default", "self indices values accumulate=False", index_put,
            index_put_ordered),
    ORDERED("aten.index_add.default", "self dim index source alpha=1", index_add,
            index_add_ordered),
    ORDERED("aten.index_copy.default", "self dim index source", index_copy, NULL),
    ORDERED("aten.index_fill.int_Scalar", "self dim index value", index_copy, NULL),
    ORDERED("aten.index_fill.int_Tensor", "self dim index value", index_copy, NULL),
    ORDERED("aten._grouped_mm.default", "self mat2 offs=None bias=None out_dtype!=None", grouped_mm,
            grouped_mm_ordered),
    ORDERED("transformers.grouped_mm_fallback.default", "input weight offs bias=None", grouped_mm,
            grouped_mm_ordered),
    {0},
};

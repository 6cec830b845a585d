/* aten_index.c - elements by index: indexing, gathering, scattering, sorting, running sums. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"
#include "import/graph/order.h"

/* ---- constants indexed in several dimensions ---- */

/* The index tensors of a list, broadcast to one shape; None entries are omitted. */
typedef struct indices {
    int dim[TUTTI_MAX_DIMS], n; /* indexed dimensions of x */
    tti_host at[TUTTI_MAX_DIMS];
    tutti_shape shape;
} indices;

static bool read_host_indices(tti_building *b, const tti_call *c, const tutti_shape *x,
                              indices *out) {
    const tti_arg *list = c->arg[1];
    *out = (indices){0};
    if (list->kind != TTI_ARG_LIST || list->n > x->n_dims)
        tti_refuse(b, "the shapes of the indices do not match");
    for (int i = 0; tti_good(b) && i < list->n; i++) {
        if (list->items[i].kind == TTI_ARG_NONE) continue;
        const tti_operand *index = tti_operand_of(b, &list->items[i]);
        if (index->kind != TTI_OPERAND_HOST)
            tti_refuse(b, "indices that depend on inputs are not supported");
        else if (index->host.elem == TTI_ELEM_BOOL)
            tti_refuse(b, "a boolean index is not supported");
        if (!tti_good(b)) return false;
        tutti_shape shape = tti_shape_of(index);
        if (!tti_host_broadcast(b, &out->shape, &shape, &out->shape)) return false;
        out->dim[out->n] = i;
        out->at[out->n++] = index->host;
    }
    for (int i = 0; i < out->n; i++)
        if (!tti_host_expand(b, &out->at[i], &out->shape, &out->at[i])) return false;
    return tti_good(b);
}

/* Computes the shape of the result: the dimensions of the indices replace the indexed ones at the
 * first of these, or come first if the indexed dimensions are not adjacent. */
static void index_shape(const tutti_shape *x, const indices *ids, tutti_shape *out, int *place) {
    bool side_by_side = true;
    for (int i = 1; i < ids->n; i++) side_by_side &= ids->dim[i] == ids->dim[i - 1] + 1;
    *place = side_by_side && ids->n > 0 ? ids->dim[0] : 0;
    *out = (tutti_shape){0};
    for (int d = 0, k = 0; d <= x->n_dims; d++) {
        if (out->n_dims == *place && k >= 0) {
            for (int e = 0; e < ids->shape.n_dims && out->n_dims < TUTTI_MAX_DIMS; e++)
                out->dim[out->n_dims++] = ids->shape.dim[e];
            k = -1;
        }
        bool indexed = false;
        for (int i = 0; i < ids->n; i++) indexed |= ids->dim[i] == d;
        if (d < x->n_dims && !indexed && out->n_dims < TUTTI_MAX_DIMS)
            out->dim[out->n_dims++] = x->dim[d];
    }
}

static void fold_index(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    indices ids;
    tutti_shape from = tti_shape_of(x), shape;
    tti_host made;
    int place;
    if (!tti_good(b) || !read_host_indices(b, c, &from, &ids)) return;
    if (from.n_dims - ids.n + ids.shape.n_dims > TUTTI_MAX_DIMS) {
        tti_refuse(b, "the result has too many dimensions");
        return;
    }
    index_shape(&from, &ids, &shape, &place);
    if (!tti_host_new(b, x->host.elem, &shape, &made)) return;
    int64_t n = tti_host_n(&made);
    for (int64_t i = 0; i < n; i++) {
        int64_t at[TUTTI_MAX_DIMS], left = i, flat = 0, source = x->host.offset;
        for (int d = shape.n_dims - 1; d >= 0; d--)
            at[d] = left % shape.dim[d], left /= shape.dim[d];
        for (int e = 0; e < ids.shape.n_dims; e++) flat = flat * ids.shape.dim[e] + at[place + e];
        for (int d = 0, k = 0; d < from.n_dims; d++) {
            int64_t where = -1;
            for (int q = 0; q < ids.n; q++)
                if (ids.dim[q] == d) where = tti_to_int(tti_host_at(&ids.at[q], flat));
            if (where == -1 && k == place && ids.n > 0) k += ids.shape.n_dims;
            bool indexed = false;
            for (int q = 0; q < ids.n; q++) indexed |= ids.dim[q] == d;
            if (!indexed) where = at[k++];
            if (indexed && where < 0) where += from.dim[d];
            if (where < 0 || where >= from.dim[d]) {
                tti_refuse(b, "an index is outside the tensor");
                return;
            }
            source += where * x->host.stride[d];
        }
        made.data[i] = x->host.data[source];
    }
    /* The rows of a batch are often equal; then later operators compute only one of them. */
    for (int d = 0; d < shape.n_dims && !b->keeps_repeats; d++)
        if (tti_host_repeats(&made, d)) made.stride[d] = 0;
    tti_set_host(c->out[0], &made);
}

/* self dim index, for constants: the elements of self at index along dim. */
static void fold_gather(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *index = tti_operand_at(b, c, 2);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    tti_host made;
    if (!tti_good(b)) return;
    tutti_shape shape = tti_shape_of(index), from = tti_shape_of(x);
    bool fits = shape.n_dims == from.n_dims;
    for (int d = 0; d < shape.n_dims && fits; d++) fits = d == dim || shape.dim[d] <= from.dim[d];
    if (!fits) tti_refuse(b, "the index does not fit the tensor");
    if (!tti_good(b) || !tti_host_new(b, x->host.elem, &shape, &made)) return;
    int64_t n = tti_host_n(&made);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, source = x->host.offset;
        double where = tti_host_at(&index->host, i);
        if (!(where >= 0 && where < (double)from.dim[dim])) {
            tti_refuse(b, "an index is outside the tensor");
            return;
        }
        for (int d = shape.n_dims - 1; d >= 0; d--) {
            source += (d == dim ? (int64_t)where : left % shape.dim[d]) * x->host.stride[d];
            left /= shape.dim[d];
        }
        made.data[i] = x->host.data[source];
    }
    tti_set_host(c->out[0], &made);
}

/* ---- indices that depend on inputs, or into values that do ---- */

/* Converts ids to i32 in the graph; negative ids count from the end of a dimension of size n.
 * Constant ids are checked. of_batch: each row belongs to a sample. */
static tutti_value *places_of(tti_building *b, const tti_operand *ids, int64_t n, bool of_batch) {
    tutti_graph *g = tti_graph_of(b);
    tti_host own;
    if (!tti_good(b)) return NULL;
    if (tti_elem_of(ids) == TTI_ELEM_BOOL) tti_refuse(b, "a boolean index is not supported");
    if (ids->kind == TTI_OPERAND_HOST) {
        if (!tti_host_copy(b, &ids->host, &own)) return NULL;
        int64_t n_ids = tti_host_n(&own);
        for (int64_t i = 0; i < n_ids && tti_good(b); i++) {
            if (own.data[i] < 0) own.data[i] += (double)n;
            if (own.data[i] < 0 || own.data[i] >= (double)n)
                tti_refuse(b, "an index is outside the tensor");
        }
        tti_operand index = {.kind = TTI_OPERAND_HOST, .host = own};
        if (!of_batch) return tti_as_index(b, &index);
        return tutti_cast(g, tti_batch_value(b, &index), TUTTI_I32);
    }
    if (n > 1 << 24) /* integers are f32 in the graph */
        tti_refuse(b, "computed indices into %lld places, at most 2^24 are supported",
                   (long long)n);
    tutti_value *value = tti_as_float(b, tti_value_of(b, ids));
    tutti_value *zero = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
    value = tutti_add(g, value, tutti_affine(g, tutti_less(g, value, zero), (double)n, 0));
    return tutti_cast(g, value, TUTTI_I32);
}

/* Selects ids of x along dim: the shape of ids replaces the dimension. */
static void pick(tti_building *b, const tti_operand *x, const tti_operand *ids, int dim,
                 tti_operand *out) {
    tti_operand own = *ids;
    tutti_shape from = tti_shape_of(x), shape = tti_shape_of(ids);
    int64_t rows = 0;
    if (!tti_good(b)) return;
    if (from.n_dims - 1 + shape.n_dims > TUTTI_MAX_DIMS)
        tti_refuse(b, "the result has too many dimensions");
    if (dim == 0 && tti_of_batch(x) && tti_good(b) && tti_repeat_each(b, x, ids, out)) return;
    /* If a constant has equal rows for all samples, one row is used. */
    bool repeats = dim == 0 && !tti_of_batch(x) && ids->kind == TTI_OPERAND_HOST &&
                   shape.n_dims > 1 && shape.dim[0] == tti_batch_rows(b) &&
                   (tti_batch_rows(b) == 1 || tti_host_repeats(&ids->host, 0));
    if (repeats) {
        rows = tti_batch_rows(b);
        own.host.shape.dim[0] = 1;
    }
    tutti_value *places = places_of(b, &own, from.dim[dim], false);
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    tti_set_value(b, out, tutti_gather(tti_graph_of(b), value, places, dim), tti_elem_of(x),
                  rows == 0 && (tti_of_batch(x) || tti_of_batch(ids)));
    if (out && tti_good(b)) out->rows = rows;
}

/* True if each element of x [N, ..] is the index of its row, which is a sample. */
static bool numbers_samples(tti_building *b, const tti_host *x) {
    int64_t rows = tti_batch_rows(b), n = tti_host_n(x);
    if (x->shape.n_dims < 1 || x->shape.dim[0] != rows || n < 1) return false;
    if (x->elem == TTI_ELEM_BOOL || !tti_add_work(b, (double)n)) return false;
    for (int64_t i = 0; i < n; i++)
        if (tti_host_at(x, i) != (double)(i / (n / rows))) return false;
    return true;
}

/* x[arange(batch), ids]: selects one index of dimension 1 for each sample. */
static void pick_rows(tti_building *b, const tti_operand *x, const tti_operand *ids,
                      tti_operand *out) {
    tutti_graph *g = tti_graph_of(b);
    tutti_shape from = tti_shape_of(x), one = from, flat = from;
    tutti_value *places = places_of(b, ids, from.dim[1], true);
    tutti_value *value = tti_as_float(b, tti_batch_value(b, x));
    if (!tti_good(b)) return;
    for (int d = 1; d < from.n_dims; d++) one.dim[d] = 1;
    flat.dim[1] = 1;
    places = tutti_reshape(g, tutti_cast(g, places, TUTTI_F32), &one);
    places = tutti_cast(g, tutti_broadcast_to(g, places, &flat), TUTTI_I32);
    value = tutti_take_along(g, value, places, 1);
    tutti_shape to = {.n_dims = from.n_dims - 1, .dim = {from.dim[0]}};
    for (int d = 2; d < from.n_dims; d++) to.dim[d - 1] = from.dim[d];
    tti_set_value(b, out, tutti_reshape(g, value, &to), tti_elem_of(x), true);
}

/* True if index 0 is the index of the sample, along a first dimension in which the other indices
 * repeat. */
static bool is_by_sample(tti_building *b, const indices *ids) {
    bool is_first = ids->n > 1 && ids->dim[0] == 0;
    if (!is_first || !numbers_samples(b, &ids->at[0])) return false;
    for (int k = 1; k < ids->n; k++)
        if (ids->shape.dim[0] > 1 && !tti_host_repeats(&ids->at[k], 0)) return false;
    return true;
}

static void drop_first(tutti_shape *shape, int64_t *stride) {
    shape->n_dims--;
    for (int d = 0; d < shape->n_dims; d++) shape->dim[d] = shape->dim[d + 1];
    for (int d = 0; stride && d < shape->n_dims; d++) stride[d] = stride[d + 1];
}

/* Drops index 0: the other indices are the same for every sample. */
static void drop_sample(indices *ids) {
    drop_first(&ids->shape, NULL);
    ids->n--;
    for (int k = 0; k < ids->n; k++) {
        ids->at[k] = ids->at[k + 1];
        ids->dim[k] = ids->dim[k + 1];
        drop_first(&ids->at[k].shape, ids->at[k].stride);
    }
}

/* Selects with constant indices of adjacent dimensions, as one index into the merged dimension. */
static void pick_joined(tti_building *b, const tti_call *c, const tti_operand *x,
                        tti_operand *out) {
    indices ids;
    tti_host flat;
    tti_operand joined = {0}, index = {0};
    tutti_shape from = tti_shape_of(x), to = {0};
    if (!read_host_indices(b, c, &from, &ids)) return;
    if (tti_of_batch(x) && is_by_sample(b, &ids)) drop_sample(&ids);
    int first = ids.dim[0], last = ids.dim[ids.n - 1];
    if (last - first != ids.n - 1 || (first == 0 && tti_of_batch(x)))
        tti_refuse(b, "indices must be for adjacent dimensions, without the batch");
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &ids.shape, &flat)) return;
    int64_t n = tti_host_n(&flat), size = 1;
    for (int k = 0; k < ids.n; k++) {
        int64_t dim = from.dim[ids.dim[k]];
        size *= dim;
        for (int64_t i = 0; i < n && tti_good(b); i++) {
            double at = tti_host_at(&ids.at[k], i);
            if (at < 0) at += (double)dim;
            if (!(at >= 0 && at < (double)dim)) tti_refuse(b, "an index is outside the tensor");
            flat.data[i] = flat.data[i] * (double)dim + at;
        }
    }
    for (int d = 0; d < from.n_dims; d++)
        if (d <= first || d > last) to.dim[to.n_dims++] = d == first ? size : from.dim[d];
    if (tti_good(b)) tti_do_reshape(b, x, &to, &joined);
    tti_set_host(&index, &flat);
    pick(b, &joined, &index, first, out);
}

/* Runs a row with two arguments on *x, and stores the result in *x. */
static void apply(tti_building *b, const char *target, tti_arg other, tti_operand *x) {
    tti_operand made = {0};
    if (!tti_good(b)) return;
    tti_call_row(b, target, (tti_arg[]){tti_operand_arg(x), other}, 2, (tti_operand *[]){&made}, 1);
    *x = made;
}

/* Selects with indices that depend on inputs, in the merged adjacent dimensions of x. Negative
 * indices count from the end. */
static void pick_values(tti_building *b, const tti_operand *x, const tti_operand *const *ids,
                        const int *dim, int n, tti_operand *out) {
    tutti_shape from = tti_shape_of(x), to = {0};
    tti_operand joined = {0}, flat = {0};
    int first = dim[0], last = dim[n - 1];
    int64_t size = 1;
    if (last - first != n - 1 || (first == 0 && tti_of_batch(x)))
        tti_refuse(b, "indices must be for adjacent dimensions, without the batch");
    for (int k = 0; k < n && tti_good(b); k++) {
        tti_operand own = *ids[k], negative = own;
        if (tti_elem_of(&own) == TTI_ELEM_BOOL)
            tti_refuse(b, "a boolean index among several is not supported");
        int64_t len = from.dim[dim[k]];
        apply(b, "aten.lt.Scalar", tti_int_arg(0), &negative);
        apply(b, "aten.mul.Scalar", tti_int_arg(len), &negative);
        apply(b, "aten.add.Tensor", tti_operand_arg(&negative), &own);
        if (k > 0) apply(b, "aten.mul.Scalar", tti_int_arg(len), &flat);
        if (k > 0) apply(b, "aten.add.Tensor", tti_operand_arg(&flat), &own);
        flat = own;
        size *= len;
    }
    for (int d = 0; d < from.n_dims; d++)
        if (d <= first || d > last) to.dim[to.n_dims++] = d == first ? size : from.dim[d];
    if (tti_good(b)) tti_do_reshape(b, x, &to, &joined);
    if (tti_good(b)) pick(b, &joined, &flat, first, out);
}

/* Selects for each sample its own indices ids [N,K] of dimension 1. */
static void pick_own(tti_building *b, const tti_operand *x, const tti_operand *ids,
                     tti_operand *out) {
    tutti_shape to = tti_shape_of(x), wide = to;
    tti_operand own = {0}, index = {0};
    wide.dim[1] = to.dim[1] = tti_shape_of(ids).dim[1];
    for (int d = 2; d < wide.n_dims; d++) wide.dim[d] = 1;
    tti_do_reshape(b, ids, &wide, &own);
    if (tti_good(b))
        tti_call_row(b, "aten.expand.default",
                     (tti_arg[]){tti_operand_arg(&own), tti_ints_arg(b, to.dim, to.n_dims)}, 2,
                     (tti_operand *[]){&index}, 1);
    if (tti_good(b))
        tti_call_row(b, "aten.gather.default",
                     (tti_arg[]){tti_operand_arg(x), tti_int_arg(1), tti_operand_arg(&index)}, 3,
                     &out, 1);
}

static void index_tensor(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids[TUTTI_MAX_DIMS];
    const tti_arg *list = c->arg[1];
    int dim[TUTTI_MAX_DIMS], n = 0;
    bool constant = true;
    tutti_shape from = tti_shape_of(x);
    if (list->kind != TTI_ARG_LIST || list->n > from.n_dims)
        tti_refuse(b, "the shapes of the indices do not match");
    for (int i = 0; tti_good(b) && i < list->n; i++) {
        if (list->items[i].kind == TTI_ARG_NONE) continue;
        ids[n] = tti_operand_of(b, &list->items[i]);
        constant &= ids[n]->kind == TTI_OPERAND_HOST;
        dim[n++] = i;
    }
    if (!tti_good(b)) return;
    bool by_sample = n == 2 && dim[0] == 0 && dim[1] == 1 && from.dim[0] == tti_batch_rows(b) &&
                     ids[0]->kind == TTI_OPERAND_HOST && numbers_samples(b, &ids[0]->host);
    if (!tti_good(b)) return;
    int n_dims = by_sample ? ids[0]->host.shape.n_dims : 0;
    if (n == 1)
        pick(b, x, ids[0], dim[0], c->out[0]);
    else if (n_dims == 1 && tti_shape_of(ids[1]).n_dims == 1)
        pick_rows(b, x, ids[1], c->out[0]);
    else if (n_dims == 2 && tti_of_batch(ids[1]) && tti_elem_of(ids[1]) != TTI_ELEM_BOOL &&
             tti_shape_of(ids[1]).n_dims == 2)
        pick_own(b, x, ids[1], c->out[0]);
    else if (n > 1 && constant)
        pick_joined(b, c, x, c->out[0]);
    else
        pick_values(b, x, ids, dim, n, c->out[0]);
}

static void index_select(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    pick(b, x, tti_operand_at(b, c, 2), dim, c->out[0]);
}

/* Cuts x to the size of ids in all dimensions but dim; ids must not be larger. */
static tutti_value *cut_to(tti_building *b, tutti_value *x, const tutti_shape *ids, int dim) {
    tutti_shape shape = tutti_value_type(x).shape;
    if (tti_good(b) && shape.n_dims != ids->n_dims) tti_refuse(b, "the index does not fit");
    for (int d = 0; tti_good(b) && d < shape.n_dims; d++) {
        if (d == dim || shape.dim[d] == ids->dim[d]) continue;
        if (ids->dim[d] > shape.dim[d]) tti_refuse(b, "the index does not fit");
        x = tutti_slice(tti_graph_of(b), x, d, 0, ids->dim[d]);
    }
    return x;
}

/* self dim index */
static void gather(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 2);
    tutti_shape shape = tti_shape_of(ids), from = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, from.n_dims);
    bool any = tti_of_batch(x) || tti_of_batch(ids);
    tutti_value *places = places_of(b, ids, from.dim[dim], any);
    tutti_value *value = any ? tti_batch_value(b, x) : tti_value_of(b, x);
    value = cut_to(b, tti_as_float(b, value), &shape, dim);
    if (!tti_good(b)) return;
    value = tutti_take_along(tti_graph_of(b), value, places, dim);
    tti_set_value(b, c->out[0], value, tti_elem_of(x), any);
}

typedef enum scatter_kind { SCATTER_SET, SCATTER_ADD } scatter_kind;

/* self dim index src: writes src, a tensor or a number, to indices of self. */
static void scatter(tti_building *b, const tti_call *c, scatter_kind kind) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 2);
    const tti_operand *src = tti_operand_at(b, c, 3);
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tti_shape_of(ids), to = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, to.n_dims);
    tutti_value *places = places_of(b, ids, to.dim[dim], true);
    tutti_value *self = tti_as_float(b, tti_batch_value(b, x)), *value;
    if (!tti_good(b)) return;
    for (int d = 0; d < to.n_dims; d++)
        if (d != dim && shape.n_dims == to.n_dims && shape.dim[d] != to.dim[d])
            tti_refuse(b, "an index that is smaller than the tensor is not supported");
    if (src->kind == TTI_OPERAND_NUMBER) {
        tutti_value *one = tutti_affine(g, tutti_cast(g, places, TUTTI_F32), 0, src->number);
        value = one;
    } else {
        value = cut_to(b, tti_as_float(b, tti_batch_value(b, src)), &shape, dim);
        if (tti_good(b) && tti_shape_of(src).dim[dim] != shape.dim[dim])
            value = tutti_slice(g, value, dim, 0, shape.dim[dim]);
    }
    if (!tti_good(b)) return;
    tutti_value *put = tti_put_present(b, value, places, dim, to.dim[dim]);
    if (kind == SCATTER_ADD) {
        value = tutti_add(g, self, put);
    } else {
        tutti_value *ones = tutti_affine(g, tutti_cast(g, places, TUTTI_F32), 0, 1);
        tutti_value *hit = tti_put_present(b, ones, places, dim, to.dim[dim]);
        tutti_value *once = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
        put = tutti_div(g, put, tutti_maximum(g, hit, once)); /* a repeated index gets the mean */
        value = tutti_where(g, tutti_minimum(g, hit, once), put, self);
    }
    tti_set_value(b, c->out[0], value, tti_elem_of(x), true);
}
static void scatter_set(tti_building *b, const tti_call *c) { scatter(b, c, SCATTER_SET); }
static void scatter_add(tti_building *b, const tti_call *c) { scatter(b, c, SCATTER_ADD); }

/* ---- sorting ---- */

static tutti_sorted sorted_of(tti_building *b, const tti_operand *x, int dim, bool descending) {
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (tti_good(b) && tti_shape_of(x).n_dims < 1) tti_refuse(b, "a scalar is not supported");
    return tti_good(b) ? tutti_sort(tti_graph_of(b), value, dim, descending)
                       : (tutti_sorted){NULL, NULL};
}

static void set_sorted(tti_building *b, const tti_call *c, const tti_operand *x, tutti_sorted s) {
    tti_operand own = *x;
    tti_set_value(b, c->out[0], s.values, tti_elem_of(&own), tti_of_batch(&own));
    if (c->n_outs > 1) tti_set_value(b, c->out[1], s.places, TTI_ELEM_I64, tti_of_batch(&own));
}

/* self dim descending */
static void sort(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    tti_operand *places = c->n_outs > 1 ? c->out[1] : NULL;
    if (!tti_good(b) || tti_sort_virtually(b, x, tti_bool_at(b, c, 2), c->out[0], places)) return;
    set_sorted(b, c, x, sorted_of(b, x, dim, tti_bool_at(b, c, 2)));
}

/* self k dim largest sorted */
static void topk(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t k = tti_int_at(b, c, 1);
    tutti_shape shape = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 2, shape.n_dims);
    if (tti_good(b) && (k < 0 || shape.n_dims < 1 || k > shape.dim[dim]))
        tti_refuse(b, "k is out of range");
    tutti_sorted s = sorted_of(b, x, dim, tti_bool_at(b, c, 3));
    if (!tti_good(b)) return;
    s.values = tutti_slice(tti_graph_of(b), s.values, dim, 0, k);
    s.places = tutti_slice(tti_graph_of(b), s.places, dim, 0, k);
    set_sorted(b, c, x, s);
}

/* self dim descending */
static void argsort(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    if (!tti_good(b) || tti_sort_virtually(b, x, tti_bool_at(b, c, 2), NULL, c->out[0])) return;
    tutti_sorted s = sorted_of(b, x, dim, tti_bool_at(b, c, 2));
    tti_set_value(b, c->out[0], s.places, TTI_ELEM_I64, tti_of_batch(x));
}

/* self num_classes */
static void one_hot(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t n = tti_int_at(b, c, 1);
    if (tti_good(b) && n < 1) tti_refuse(b, "num_classes must be given");
    if (!tti_good(b)) return;
    tutti_value *value = tutti_one_hot(tti_graph_of(b), tti_as_index(b, x), n);
    tti_set_value(b, c->out[0], value, TTI_ELEM_I64, tti_of_batch(x));
}

/* ---- running sums ---- */

static void fold_cumsum(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    tti_elem own = tti_elem_of(x);
    tti_elem elem = tti_has(c, 2)            ? (tti_elem)tti_int_at(b, c, 2)
                    : tti_elem_is_float(own) ? own
                                             : TTI_ELEM_I64;
    tti_host made;
    if (!tti_good(b) || !tti_host_copy(b, &x->host, &made)) return;
    made.elem = elem;
    int64_t n = tti_host_n(&made), step = made.stride[dim], size = made.shape.dim[dim];
    for (int64_t i = 0; i < n; i++)
        if (i / step % size > 0) made.data[i] = tti_round(elem, made.data[i] + made.data[i - step]);
    tti_set_host(c->out[0], &made);
}

static void cumsum(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    tti_elem own = tti_elem_of(x), elem = tti_elem_is_float(own) ? own : TTI_ELEM_I64;
    if (tti_has(c, 2)) elem = (tti_elem)tti_int_at(b, c, 2);
    if (tti_good(b) && tti_shape_of(x).n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (!tti_good(b)) return;
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    if (tti_elem_is_float(own) && !tti_elem_is_float(elem)) /* truncates the terms */
        value = tti_as_float(b, tutti_cast(tti_graph_of(b), value, TUTTI_I32));
    value = tutti_cumsum(tti_graph_of(b), tti_present_in(b, value, 1u << dim), dim);
    tti_set_value(b, c->out[0], value, elem, tti_of_batch(x));
}

#define ROW(op, args, built, folded) \
    { .target = "aten." op, .signature = args, .build = built, .fold = folded }
#define BUILD(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }
#define ORDERED(op, args, built, folded, in_an_order)                            \
    {                                                                            \
        .target = "aten." op, .signature = args, .build = built, .fold = folded, \
        .ordered = in_an_order                                                   \
    }

const tti_operator tti_operators_index[] = {
    ORDERED("index.Tensor", "self indices", index_tensor, fold_index, tti_index_ordered),
    ROW("_unsafe_index.Tensor", "self indices", index_tensor, fold_index),
    BUILD("index_select.default", "self dim index", index_select),
    ROW("gather.default", "self dim index sparse_grad!=False", gather, fold_gather),
    ROW("scatter.src", "self dim index src", scatter_set, tti_fold_scatter),
    ROW("scatter.value", "self dim index value", scatter_set, tti_fold_scatter),
    ROW("scatter_add.default", "self dim index src", scatter_add, tti_fold_scatter_add),
    BUILD("sort.default", "self dim=-1 descending=False", sort),
    BUILD("sort.stable", "self stable! dim=-1 descending=False", sort),
    BUILD("topk.default", "self k dim=-1 largest=True sorted!=True", topk),
    ORDERED("argsort.default", "self dim=-1 descending=False", argsort, NULL, tti_argsort_ordered),
    BUILD("one_hot.default", "self num_classes=-1", one_hot),
    ORDERED("cumsum.default", "self dim dtype=None", cumsum, fold_cumsum, tti_cumsum_ordered),
    {0},
};

/* aten_scatter.c - writes elements to indices of a tensor: scatter for constants, scatter_reduce,
 * and writes with several indices. aten_index.c has the other scatter operators for graph
 * values. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

typedef enum put_kind { PUT_SET, PUT_SUM, PUT_MEAN, PUT_MAX, PUT_MIN, PUT_PRODUCT } put_kind;

/* Combines an element with the old value at its index. */
static double put(put_kind kind, double old, double x) {
    switch (kind) {
        case PUT_SUM:
        case PUT_MEAN:
            return old + x;
        case PUT_MAX:
            return isnan(x) || x > old ? x : old;
        case PUT_MIN:
            return isnan(x) || x < old ? x : old;
        case PUT_PRODUCT:
            return old * x;
        default:
            return x;
    }
}

/* True if index is no larger than the tensor (except along dim) and than src. */
static bool fits(const tti_operand *src, const tutti_shape *ids, const tutti_shape *to, int dim) {
    bool good = ids->n_dims == to->n_dims;
    tutti_shape from = tti_shape_of(src);
    good &= src->kind == TTI_OPERAND_NUMBER || from.n_dims == ids->n_dims;
    for (int d = 0; d < ids->n_dims && good; d++) {
        good = d == dim || ids->dim[d] <= to->dim[d];
        good &= src->kind == TTI_OPERAND_NUMBER || ids->dim[d] <= from.dim[d];
    }
    return good;
}

/* self dim index src ..: reduces into self. has_own: the old elements of self are included at the
 * indices that are written. */
static void fold_put(tti_building *b, const tti_call *c, put_kind kind, bool has_own) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 2);
    const tti_operand *src = tti_operand_at(b, c, 3);
    tutti_shape shape = tti_shape_of(ids), to = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, to.n_dims);
    tti_host made, counts;
    if (tti_good(b) && x->kind == TTI_OPERAND_NUMBER) tti_refuse(b, "a tensor is expected");
    if (tti_good(b) && (to.n_dims < 1 || !fits(src, &shape, &to, dim)))
        tti_refuse(b, "the index does not fit the tensor");
    if (!tti_good(b) || !tti_host_copy(b, &x->host, &made)) return;
    if (!tti_host_new(b, TTI_ELEM_I64, &to, &counts)) return;
    int64_t n = tutti_shape_n_elems(&shape), n_to = tti_host_n(&made);
    if (!tti_add_work(b, (double)n)) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, place = 0, from = src->kind == TTI_OPERAND_HOST ? src->host.offset : 0;
        double where = tti_host_at(&ids->host, i);
        if (!(where >= 0 && where < (double)to.dim[dim])) {
            tti_refuse(b, "an index is outside the tensor");
            return;
        }
        for (int d = shape.n_dims - 1; d >= 0; d--) {
            int64_t at = left % shape.dim[d];
            left /= shape.dim[d];
            place += (d == dim ? (int64_t)where : at) * made.stride[d];
            if (src->kind == TTI_OPERAND_HOST) from += at * src->host.stride[d];
        }
        double e = src->kind == TTI_OPERAND_HOST ? src->host.data[from] : src->number;
        bool is_first = counts.data[place]++ == 0 && !has_own;
        made.data[place] = is_first ? e : put(kind, made.data[place], e);
    }
    for (int64_t i = 0; i < n_to; i++) {
        double n_put = counts.data[i] + has_own;
        if (kind == PUT_MEAN && counts.data[i] > 0) made.data[i] /= n_put;
        made.data[i] = tti_round(made.elem, made.data[i]);
    }
    tti_set_host(c->out[0], &made);
}

void tti_fold_scatter(tti_building *b, const tti_call *c) { fold_put(b, c, PUT_SET, true); }
void tti_fold_scatter_add(tti_building *b, const tti_call *c) { fold_put(b, c, PUT_SUM, true); }

static put_kind kind_at(tti_building *b, const tti_call *c, int k) {
    static const struct {
        const char *name;
        put_kind kind;
    } known[] = {{"sum", PUT_SUM},
                 {"mean", PUT_MEAN},
                 {"amax", PUT_MAX},
                 {"amin", PUT_MIN},
                 {"prod", PUT_PRODUCT}};
    const char *reduce = tti_text_at(b, c, k);
    for (size_t i = 0; i < TTI_COUNT(known) && tti_good(b); i++)
        if (strcmp(reduce, known[i].name) == 0) return known[i].kind;
    tti_refuse(b, "reduce=%.20s", reduce);
    return PUT_SUM;
}

/* self dim index src reduce include_self */
void tti_fold_scatter_reduce(tti_building *b, const tti_call *c) {
    put_kind kind = kind_at(b, c, 4);
    if (tti_good(b)) fold_put(b, c, kind, tti_bool_at(b, c, 5));
}

/* ---- scatter_reduce of graph values ---- */

/* Largest number of (element, index) pairs in the table of pairs_of. */
static const double max_pairs = 0x1p28;

/* Runs a row and returns its result as a new operand; x itself after a failure. */
static tti_operand *made_by(tti_building *b, const char *target, const tti_arg *args, int n,
                            tti_operand *x) {
    tti_operand *out = tti_build_alloc(b, sizeof *out);
    if (out && tti_good(b)) tti_call_row(b, target, args, n, &out, 1);
    return out && tti_good(b) ? out : x;
}

static tti_operand *pair(tti_building *b, const char *target, tti_operand *x, tti_arg y) {
    return made_by(b, target, (tti_arg[]){tti_operand_arg(x), y}, 2, x);
}

static tti_operand *with_last(tti_building *b, tti_operand *x, int dim) {
    return made_by(b, "aten.transpose.int",
                   (tti_arg[]){tti_operand_arg(x), tti_int_arg(dim), tti_int_arg(-1)}, 3, x);
}

static tti_operand *chosen(tti_building *b, tti_operand *c, tti_arg x, tti_arg y) {
    return made_by(b, "aten.where.self", (tti_arg[]){tti_operand_arg(c), x, y}, 3, c);
}

/* Returns [..,N,E]: 1 if element e is written to index n, else 0. index [..,E]. */
static tti_operand *pairs_of(tti_building *b, tti_operand *index, int64_t n) {
    tti_host places;
    tti_operand *row = tti_build_alloc(b, sizeof *row);
    if (!row || !tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(n, 1), &places)) return index;
    for (int64_t i = 0; i < n; i++) places.data[i] = (double)i;
    tti_set_host(row, &places);
    index = pair(b, "aten.unsqueeze.default", index, tti_int_arg(-2));
    return pair(b, "aten.eq.Tensor", index, tti_operand_arg(row));
}

/* Returns the maximum, minimum or product of the elements written to each index: src [..,E], self
 * [..,N]. */
static tti_operand *reduce_pairs(tti_building *b, put_kind kind, bool has_own, tti_operand *self,
                                 tti_operand *pairs, tti_operand *src) {
    double none = kind == PUT_PRODUCT ? 1 : kind == PUT_MAX ? -INFINITY : INFINITY;
    tti_operand *x = pair(b, "aten.unsqueeze.default", src, tti_int_arg(-2));
    x = chosen(b, pairs, tti_operand_arg(x), tti_float_arg(none));
    if (has_own) {
        tti_operand *own = pair(b, "aten.unsqueeze.default", self, tti_int_arg(-1));
        const tti_arg both[] = {tti_operand_arg(own), tti_operand_arg(x)};
        const tti_arg list = {.kind = TTI_ARG_LIST, .items = both, .n = 2};
        x = made_by(b, "aten.cat.default", (tti_arg[]){list, tti_int_arg(-1)}, 2, x);
    }
    return pair(b,
                kind == PUT_PRODUCT ? "aten.prod.dim_int"
                : kind == PUT_MAX   ? "aten.amax.default"
                                    : "aten.amin.default",
                x, kind == PUT_PRODUCT ? tti_int_arg(-1) : tti_ints_arg(b, (int64_t[]){-1}, 1));
}

/* Returns the sum or mean of the elements written to each index, along the last dimension; *n:
 * their number. */
static tti_operand *add_up(tti_building *b, put_kind kind, bool has_own, tti_operand *self,
                           tti_operand *index, tti_operand *src, tti_operand **n) {
    tti_operand *none =
        made_by(b, "aten.zeros_like.default", (tti_arg[]){tti_operand_arg(self)}, 1, self);
    tti_operand *ones =
        made_by(b, "aten.ones_like.default", (tti_arg[]){tti_operand_arg(src)}, 1, src);
    const char row[] = "aten.scatter_add.default";
    const tti_arg dim = tti_int_arg(-1), ids = tti_operand_arg(index);
    *n = made_by(b, row, (tti_arg[]){tti_operand_arg(none), dim, ids, tti_operand_arg(ones)}, 4,
                 self);
    tti_operand *x = made_by(
        b, row, (tti_arg[]){tti_operand_arg(has_own ? self : none), dim, ids, tti_operand_arg(src)},
        4, self);
    if (kind == PUT_SUM) return x;
    tti_operand *count = has_own ? pair(b, "aten.add.Tensor", *n, tti_int_arg(1))
                                 : pair(b, "aten.clamp_min.default", *n, tti_int_arg(1));
    return pair(b, "aten.div.Tensor", x, tti_operand_arg(count));
}

void tti_scatter_reduce(tti_building *b, const tti_call *c) {
    tti_operand *self = tti_operand_at(b, c, 0), *index = tti_operand_at(b, c, 2);
    tti_operand *src = tti_operand_at(b, c, 3), *hit;
    tutti_shape to = tti_shape_of(self), ids = tti_shape_of(index), from = tti_shape_of(src);
    int dim = tti_dim_at(b, c, 1, to.n_dims);
    put_kind kind = kind_at(b, c, 4);
    bool has_own = tti_bool_at(b, c, 5), adds = kind == PUT_SUM || kind == PUT_MEAN;
    bool same = to.n_dims == ids.n_dims && ids.n_dims == from.n_dims && to.n_dims > 0;
    for (int d = 0; d < to.n_dims && same; d++)
        same = ids.dim[d] == from.dim[d] && (d == dim || ids.dim[d] == to.dim[d]);
    if (!same) tti_refuse(b, "an index that is smaller than the tensors is not supported");
    if (!tti_good(b)) return;
    if (!adds && (double)tutti_shape_n_elems(&ids) * (double)to.dim[dim] > max_pairs)
        tti_refuse(b, "reduce='%.20s' of %lld elements into %lld places is too much",
                   tti_text_at(b, c, 4), (long long)ids.dim[dim], (long long)to.dim[dim]);
    self = with_last(b, self, dim);
    index = with_last(b, index, dim);
    src = with_last(b, src, dim);
    tti_operand *x;
    if (adds) {
        x = add_up(b, kind, has_own, self, index, src, &hit);
        hit = pair(b, "aten.gt.Scalar", hit, tti_int_arg(0));
    } else {
        tti_operand *pairs = pairs_of(b, index, to.dim[dim]);
        x = reduce_pairs(b, kind, has_own, self, pairs, src);
        hit = pair(b, "aten.any.dim", pairs, tti_int_arg(-1));
    }
    if (!has_own) x = chosen(b, hit, tti_operand_arg(x), tti_operand_arg(self));
    x = with_last(b, x, dim);
    if (tti_good(b)) tti_set(c->out[0], x);
}

/* ---- x[.., i, j, ..] = values ---- */

/* True if a constant has a row for each sample, and each element is the index of its row. */
static bool counts_samples(tti_building *b, const tti_operand *x) {
    tutti_shape s = tti_shape_of(x);
    if (x->kind != TTI_OPERAND_HOST || s.n_dims < 1 || s.dim[0] != tti_batch_rows(b)) return false;
    int64_t n = tti_host_n(&x->host), n_row = n / TTI_MAX(s.dim[0], 1);
    if (!tti_add_work(b, (double)n)) return false;
    for (int64_t i = 0; i < n; i++)
        if (tti_host_at(&x->host, i) != (double)(i / n_row)) return false;
    return true;
}

/* Merges the indices of n adjacent dimensions with sizes dim into one index. */
static tti_operand *join_indices(tti_building *b, tti_operand *const *ids, const int64_t *dim,
                                 int n) {
    tti_operand *sum = NULL;
    for (int k = 0; k < n; k++) {
        tti_operand *low = pair(b, "aten.lt.Scalar", ids[k], tti_int_arg(0));
        low = pair(b, "aten.mul.Tensor", low, tti_int_arg(dim[k]));
        tti_operand *id = pair(b, "aten.add.Tensor", low, tti_operand_arg(ids[k]));
        if (sum) {
            sum = pair(b, "aten.mul.Tensor", sum, tti_int_arg(dim[k]));
            id = pair(b, "aten.add.Tensor", sum, tti_operand_arg(id));
        }
        sum = id;
    }
    return sum;
}

static tti_operand *shaped(tti_building *b, const char *target, tti_operand *x,
                           const tutti_shape *to) {
    return pair(b, target, x, tti_ints_arg(b, to->dim, to->n_dims));
}

/* index_put with indices ids [n] of adjacent dimensions from `first` on. */
void tti_put_joined(tti_building *b, const tti_call *c, tti_operand *const *ids, int first, int n) {
    tti_operand *x = tti_operand_at(b, c, 0), *values = tti_operand_at(b, c, 2);
    tutti_shape from = tti_shape_of(x), at = {0}, own = {0}, flat = {0}, wide = {0};
    bool adds = tti_bool_at(b, c, 3), by_sample = first == 0 && counts_samples(b, ids[0]);
    for (int k = 0; k < n && tti_good(b); k++) {
        tutti_shape one = tti_shape_of(ids[k]);
        if (tti_elem_of(ids[k]) == TTI_ELEM_BOOL)
            tti_refuse(b, "boolean indices beside others are not supported");
        if (tti_of_batch(ids[k]) && !by_sample)
            tti_refuse(b, "indices that depend on inputs are supported beside one of the samples");
        if (tti_good(b)) tti_host_broadcast(b, &at, &one, &at);
    }
    if (by_sample && (at.n_dims < 1 || at.dim[0] != tti_batch_rows(b)))
        tti_refuse(b, "the indices do not fit the samples");
    if (!tti_good(b)) return;
    int skip = by_sample, end = first + n; /* the dimension of the samples is kept */
    int64_t n_places = 1, n_ids = tutti_shape_n_elems(&at);
    for (int d = 0; d < first + skip; d++) own.dim[own.n_dims++] = from.dim[d];
    for (int d = first + skip; d < end; d++) n_places *= from.dim[d];
    flat = own, wide = own;
    own.dim[own.n_dims++] = n_places;
    flat.dim[flat.n_dims++] = by_sample ? n_ids / at.dim[0] : n_ids;
    wide.n_dims = first;
    for (int d = 0; d < at.n_dims; d++) wide.dim[wide.n_dims++] = at.dim[d];
    for (int d = end; d < from.n_dims; d++) {
        own.dim[own.n_dims++] = flat.dim[flat.n_dims++] = from.dim[d];
        if (wide.n_dims < TUTTI_MAX_DIMS) wide.dim[wide.n_dims++] = from.dim[d];
    }
    tti_operand *places = join_indices(b, ids + skip, from.dim + first + skip, n - skip);
    places = shaped(b, "aten.expand.default", places, &at);
    if (x->kind == TTI_OPERAND_HOST) /* a view would count as another reader of x */
        x = made_by(b, "aten.clone.default", (tti_arg[]){tti_operand_arg(x)}, 1, x);
    x = shaped(b, "aten.reshape.default", x, &own);
    values = shaped(b, "aten.expand.default", values, &wide);
    values = shaped(b, "aten.reshape.default", values, &flat);
    const int dim = first + skip;
    const char *row = adds ? "aten.index_add.default" : "aten.index_copy.default";
    if (by_sample) {
        tutti_shape each = flat; /* an index for each element of the first two dimensions */
        for (int d = 2; d < each.n_dims; d++) each.dim[d] = 1;
        places = shaped(b, "aten.reshape.default", places, &each);
        places = shaped(b, "aten.expand.default", places, &flat);
        row = adds ? "aten.scatter_add.default" : "aten.scatter.src";
    } else {
        places = shaped(b, "aten.reshape.default", places, &TUTTI_SHAPE(n_ids));
    }
    x = made_by(b, row,
                (tti_arg[]){tti_operand_arg(x), tti_int_arg(dim), tti_operand_arg(places),
                            tti_operand_arg(values)},
                4, x);
    x = shaped(b, "aten.reshape.default", x, &from);
    if (tti_good(b)) tti_set(c->out[0], x);
}

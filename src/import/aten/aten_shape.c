/* aten_shape.c - operators that move elements, for graph values and host tensors: views, parts,
 * concatenation. aten_repeat.c has those that repeat elements. */
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* ---- helpers for graph values and host tensors ---- */

static void set_view(tti_building *b, tti_operand *out, tutti_value *value, const tti_operand *x) {
    tti_set_value(b, out, value, x->elem, x->of_input || x->rows > 0);
}

/* Sets the result to a view of host tensor x with other strides. */
static void set_host_view(tti_operand *out, const tti_host *x) {
    x->use->shared = true;
    tti_set_host(out, x);
}

static bool is_dense(const tti_host *x) {
    int64_t n = 1;
    for (int d = x->shape.n_dims - 1; d >= 0; d--) {
        if (x->shape.dim[d] != 1 && x->stride[d] != n) return false;
        n *= x->shape.dim[d];
    }
    return true;
}

/* Resolves a dimension of -1, of which there may be one. */
static bool resolve(tti_building *b, const tutti_shape *from, tutti_shape *to) {
    int64_t known = 1, total = tutti_shape_n_elems(from);
    int open = -1;
    bool good = true;
    for (int d = 0; d < to->n_dims; d++) {
        if (to->dim[d] == -1 && open < 0)
            open = d;
        else
            good = good && to->dim[d] >= 0 && !__builtin_mul_overflow(known, to->dim[d], &known);
    }
    if (good && open >= 0) {
        good = known > 0 && total % known == 0;
        if (good) to->dim[open] = total / known;
    }
    if (!good || (open < 0 && known != total))
        tti_refuse(b, "the new shape has another number of elements");
    return tti_good(b);
}

/* Records that the batch repeats along dimension d; -1: along none. */
static void set_batch_dim(tti_host *x, int d) {
    x->of_batch = x->of_batch || d == 0;
    x->batch_dim = d > 0 ? d : 0;
}

/* Returns the dimension of `to` that is dimension d of `from`; -1: none. */
static int place_after(const tutti_shape *from, const tutti_shape *to, int d) {
    int64_t ahead = 1, n = 1;
    for (int i = 0; i < d; i++) ahead *= from->dim[i];
    for (int i = 0; i < to->n_dims; n *= to->dim[i++])
        if (n == ahead && to->dim[i] == from->dim[d] && from->dim[d] > 1) return i;
    return -1;
}

static void host_reshape(tti_building *b, const tti_host *x, const tutti_shape *to,
                         tti_operand *out) {
    tti_host made;
    int64_t stride[TUTTI_MAX_DIMS], n = 1;
    bool is_view = tti_host_n(x) > 0 && tti_host_view_strides(x, to, stride);
    if (is_view) {
        made = *x;
        x->use->shared = true;
    } else if (!tti_host_copy(b, x, &made)) {
        return;
    }
    made.of_batch = x->of_batch && to->n_dims > 0 && to->dim[0] % b->batch == 0;
    set_batch_dim(&made, x->batch_dim > 0 ? place_after(&x->shape, to, x->batch_dim) : -1);
    made.shape = *to;
    for (int d = to->n_dims - 1; d >= 0; d--) {
        made.stride[d] = is_view ? stride[d] : n;
        n *= to->dim[d];
    }
    tti_set_host(out, &made);
}

static bool same_shape(const tutti_shape *x, const tutti_shape *y) {
    return x->n_dims == y->n_dims &&
           memcmp(x->dim, y->dim, (size_t)x->n_dims * sizeof x->dim[0]) == 0;
}

/* Returns the leading dimensions of `own` followed by the last dimension of `to`; `to` itself if
 * the last dimension has no such counterpart. */
static tutti_shape unfold(const tutti_shape *own, const tutti_shape *to) {
    int64_t last = to->dim[to->n_dims - 1], n = 1;
    int d = own->n_dims;
    while (d > 0 && n < last) n *= own->dim[--d];
    tutti_shape wide = {.n_dims = d + 1};
    if (n != last || d + 1 <= to->n_dims || d == TUTTI_MAX_DIMS) return *to;
    for (int i = 0; i < d; i++) wide.dim[i] = own->dim[i];
    wide.dim[d] = last;
    return wide;
}

/* Merging leading dimensions is deferred (folded) until an operator needs it: [T,B,C] reshaped to
 * [T B,C] has no dimension along which the batch could be divided, and a linear layer between two
 * such reshapes does not need one. */
static void graph_reshape(tti_building *b, const tti_operand *x, const tutti_shape *to,
                          tti_operand *out) {
    tutti_value *value = x->folded ? x->value : tti_value_of(b, x);
    tutti_shape own = tutti_value_type(value).shape;
    tutti_shape wide = to->n_dims >= 2 ? unfold(&own, to) : *to;
    bool folds = wide.n_dims > to->n_dims;
    if (!same_shape(&wide, &own)) value = tutti_reshape(b->graph, value, &wide);
    set_view(b, out, value, x);
    if (!folds || !out || !tti_good(b)) return;
    out->folded = true;
    out->shape = *to;
}

void tti_do_reshape(tti_building *b, const tti_operand *x, const tutti_shape *shape,
                    tti_operand *out) {
    tutti_shape to = *shape, from = tti_shape_of(x);
    if (!tti_good(b) || !resolve(b, &from, &to)) return;
    if (x->kind == TTI_OPERAND_HOST)
        host_reshape(b, &x->host, &to, out);
    else
        graph_reshape(b, x, &to, out);
}

void tti_do_permute(tti_building *b, const tti_operand *x, const int *perm, tti_operand *out) {
    tutti_shape from = tti_shape_of(x);
    if (!tti_good(b)) return;
    if (x->kind == TTI_OPERAND_HOST) {
        tti_host made = x->host;
        int batch = x->host.batch_dim, place = -1; /* batch: repeats for the samples */
        bool repeats = batch > 0 || (made.of_batch && perm[0] != 0 && from.dim[0] == b->batch &&
                                     tti_host_repeats(&x->host, 0));
        made.of_batch = made.of_batch && perm[0] == 0;
        for (int d = 0; d < from.n_dims; d++) {
            made.shape.dim[d] = from.dim[perm[d]];
            made.stride[d] = x->host.stride[perm[d]];
            if (repeats && perm[d] == batch) place = d;
        }
        set_batch_dim(&made, place);
        set_host_view(out, &made);
        return;
    }
    /* If dimension 0 is no longer the batch, the split rules track the batch dimension. */
    set_view(b, out, tutti_permute(b->graph, tti_value_of(b, x), perm, from.n_dims), x);
}

void tti_do_slice(tti_building *b, const tti_operand *x, int dim, int64_t start, int64_t len,
                  int64_t step, tti_operand *out) {
    if (!tti_good(b)) return;
    if (x->kind == TTI_OPERAND_HOST) {
        tti_host made = x->host;
        made.offset += start * made.stride[dim];
        made.stride[dim] *= step;
        made.shape.dim[dim] = len;
        made.of_batch = made.of_batch && dim > 0;
        if (made.batch_dim == dim) made.batch_dim = 0;
        set_host_view(out, &made);
        return;
    }
    tutti_value *value = tti_value_of(b, x);
    if (step == 1) {
        bool all = start == 0 && tutti_value_type(value).shape.dim[dim] == len;
        set_view(b, out, all ? value : tutti_slice(b->graph, value, dim, start, len), x);
        return;
    }
    /* Selects every step-th element: one element of each row of `step` elements. */
    tutti_shape shape = tutti_value_type(value).shape;
    int64_t left = shape.dim[dim] - start, padded = len * step;
    if (shape.n_dims == TUTTI_MAX_DIMS || len == 0) {
        tti_refuse(b, "a slice with a step, of that shape, is not supported");
        return;
    }
    value = tutti_slice(b->graph, value, dim, start, TTI_MIN(left, padded));
    if (left < padded) value = tutti_pad(b->graph, value, dim, 0, padded - left);
    tutti_shape rows = {.n_dims = shape.n_dims + 1};
    for (int d = 0, k = 0; d < shape.n_dims; d++) {
        rows.dim[k++] = d == dim ? len : shape.dim[d];
        if (d == dim) rows.dim[k++] = step;
    }
    value = tutti_slice(b->graph, tutti_reshape(b->graph, value, &rows), dim + 1, 0, 1);
    shape.dim[dim] = len;
    set_view(b, out, tutti_reshape(b->graph, value, &shape), x);
}

/* ---- views ---- */

/* Records which elements of argument 0 the result shares, so that a write to the result changes
 * argument 0. */
static void record_view(const tti_building *b, const tti_call *c, tti_view_part part) {
    tti_operand *out = c->out[0];
    if (!tti_good(b) || !out || out->kind == TTI_OPERAND_NUMBER || c->arg[0]->kind != TTI_ARG_VALUE)
        return;
    out->part = part;
    out->part.base = c->arg[0]->value + 1;
}

void tti_record_whole_view(const tti_building *b, const tti_call *c) {
    record_view(b, c, (tti_view_part){.is_whole = true});
}

static void note_part(const tti_building *b, const tti_call *c, int dim, int64_t start,
                      int64_t step) {
    record_view(b, c, (tti_view_part){.dim = dim, .start = start, .step = step});
}

static void note_permuted(const tti_building *b, const tti_call *c, const int *perm, int n) {
    tti_view_part part = {.is_whole = true, .is_permuted = true};
    for (int d = 0; d < n; d++) part.perm[d] = (int8_t)perm[d];
    record_view(b, c, part);
}

/* Reads list argument k as a shape. */
static tutti_shape shape_at(tti_building *b, const tti_call *c, int k) {
    tutti_shape shape = {0};
    shape.n_dims = tti_ints_at(b, c, k, shape.dim);
    return shape;
}

static void view(tti_building *b, const tti_call *c) {
    tutti_shape to = shape_at(b, c, 1);
    tti_do_reshape(b, tti_operand_at(b, c, 0), &to, c->out[0]);
    tti_record_whole_view(b, c);
}

/* self shape: a view if possible; PyTorch copies elements that are not contiguous. */
static void reshape(tti_building *b, const tti_call *c) {
    tutti_shape to = shape_at(b, c, 1);
    tti_do_reshape(b, tti_operand_at(b, c, 0), &to, c->out[0]);
}

static void alias(tti_building *b, const tti_call *c) {
    tti_set(c->out[0], tti_operand_at(b, c, 0));
    tti_record_whole_view(b, c);
}

static void detach(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_on_host(x))
        tti_set(c->out[0], x);
    else
        set_view(b, c->out[0], tutti_stop_gradient(b->graph, tti_value_of(b, x)), x);
}

static void clone(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_host copy;
    if (x->kind == TTI_OPERAND_HOST) {
        if (tti_host_copy(b, &x->host, &copy)) tti_set_host(c->out[0], &copy);
        return;
    }
    tti_set_value(b, c->out[0], tti_value_of(b, x), x->elem, x->of_input || x->rows > 0);
}

static void contiguous(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (x->kind == TTI_OPERAND_HOST && !is_dense(&x->host))
        clone(b, c);
    else
        tti_set(c->out[0], x);
}

static void flatten(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape from = tti_shape_of(x), to = {0};
    int first = tti_dim_at(b, c, 1, from.n_dims), last = tti_dim_at(b, c, 2, from.n_dims);
    int64_t n = 1;
    if (last < first) tti_refuse(b, "end_dim is before start_dim");
    for (int d = 0; d < from.n_dims; d++) {
        n *= from.dim[d];
        if (d >= first && d < last) continue;
        to.dim[to.n_dims++] = n;
        n = 1;
    }
    if (from.n_dims == 0) to = TUTTI_SHAPE(1);
    tti_do_reshape(b, x, &to, c->out[0]);
}

static void unflatten(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape from = tti_shape_of(x), sizes = shape_at(b, c, 2), to = {0};
    int dim = tti_dim_at(b, c, 1, from.n_dims), open = -1;
    int64_t known = 1;
    if (from.n_dims - 1 + sizes.n_dims > TUTTI_MAX_DIMS)
        tti_refuse(b, "the result has too many dimensions");
    if (!tti_good(b)) return;
    for (int i = 0; i < sizes.n_dims; i++) {
        if (sizes.dim[i] == -1)
            open = i;
        else if (sizes.dim[i] < 0 || __builtin_mul_overflow(known, sizes.dim[i], &known))
            tti_refuse(b, "a size is out of range");
    }
    if (open >= 0 && known > 0) sizes.dim[open] = from.dim[dim] / known;
    for (int d = 0; d < from.n_dims; d++)
        for (int i = 0; i < (d == dim ? sizes.n_dims : 1); i++)
            to.dim[to.n_dims++] = d == dim ? sizes.dim[i] : from.dim[d];
    tti_do_reshape(b, x, &to, c->out[0]);
    tti_record_whole_view(b, c);
}

/* Inserts a dimension of size 1. */
static void add_dim(tti_building *b, const tti_operand *x, int dim, tti_operand *out) {
    tutti_shape from = tti_shape_of(x), to = {0};
    if (from.n_dims == TUTTI_MAX_DIMS) tti_refuse(b, "the result has too many dimensions");
    if (!tti_good(b)) return;
    for (int d = 0; d <= from.n_dims; d++) {
        if (d == dim) to.dim[to.n_dims++] = 1;
        if (d < from.n_dims) to.dim[to.n_dims++] = from.dim[d];
    }
    tti_do_reshape(b, x, &to, out);
}

static void unsqueeze(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    add_dim(b, x, tti_dim_at(b, c, 1, tti_shape_of(x).n_dims + 1), c->out[0]);
    tti_record_whole_view(b, c);
}

static void select_at(tti_building *b, const tti_operand *x, int dim, int64_t index,
                      tti_operand *out);

/* Removes the dimensions of size 1 in bit mask drop. */
static void squeeze_dims(tti_building *b, const tti_operand *x, unsigned drop, tti_operand *out) {
    tutti_shape from = tti_shape_of(x), to = {0};
    for (int d = 0; d < from.n_dims; d++)
        if (!(drop >> d & 1u && from.dim[d] == 1)) to.dim[to.n_dims++] = from.dim[d];
    bool front_alone = x->kind == TTI_OPERAND_GRAPH && drop & 1u && to.n_dims == from.n_dims - 1 &&
                       from.dim[0] == 1;
    if (front_alone) /* a leading dimension of size 1 that is not the batch */
        select_at(b, x, 0, 0, out);
    else
        tti_do_reshape(b, x, &to, out);
}

static void squeeze(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t list[TUTTI_MAX_DIMS];
    unsigned drop = c->n_args > 1 ? 0 : ~0u;
    int n = c->n_args > 1 ? tti_ints_at(b, c, 1, list) : 0;
    for (int i = 0; i < n; i++) drop |= 1u << tti_wrap_dim(b, list[i], tti_shape_of(x).n_dims);
    if (drop & 1u && x->of_input && tti_shape_of(x).n_dims > 0 && tti_shape_of(x).dim[0] == 1 &&
        c->n_args < 2)
        drop &= ~1u; /* a batch of one row stays a batch */
    squeeze_dims(b, x, drop, c->out[0]);
    tti_record_whole_view(b, c);
}

static void permute(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t list[TUTTI_MAX_DIMS];
    int perm[TUTTI_MAX_DIMS], n = tti_ints_at(b, c, 1, list), n_dims = tti_shape_of(x).n_dims;
    unsigned seen = 0;
    for (int i = 0; i < n; i++) {
        perm[i] = tti_wrap_dim(b, list[i], n_dims);
        seen |= 1u << perm[i];
    }
    if (n != n_dims || seen != (1u << n_dims) - 1)
        tti_refuse(b, "dims is not a permutation of %d dimensions", n_dims);
    tti_do_permute(b, x, perm, c->out[0]);
    note_permuted(b, c, perm, n_dims);
}

/* self source destination: moves one dimension. */
static void movedim(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int perm[TUTTI_MAX_DIMS], n = tti_shape_of(x).n_dims, k = 0;
    int from = tti_dim_at(b, c, 1, n), to = tti_dim_at(b, c, 2, n);
    for (int d = 0; d < n; d++) {
        if (k == from) k++;
        perm[d] = d == to ? from : k++;
    }
    tti_do_permute(b, x, perm, c->out[0]);
    note_permuted(b, c, perm, n);
}

static void swap_dims(tti_building *b, const tti_operand *x, int p, int q, tti_operand *out) {
    int perm[TUTTI_MAX_DIMS], n_dims = tti_shape_of(x).n_dims;
    for (int d = 0; d < TUTTI_MAX_DIMS; d++) perm[d] = d;
    if (n_dims > 0) perm[p] = q, perm[q] = p;
    tti_operand from = *x;
    tti_do_permute(b, x, perm, out);
    bool matrices = n_dims == 3 && p + q == 3 && p != 0 && q != 0;
    if (matrices && tti_good(b) && out && from.kind == TTI_OPERAND_GRAPH && !tti_of_batch(&from))
        out->transpose_of = from.value;
}

static void transpose_dims(tti_building *b, const tti_call *c, int p, int q) {
    int perm[TUTTI_MAX_DIMS], n = tti_shape_of(tti_operand_at(b, c, 0)).n_dims;
    for (int d = 0; d < n; d++) perm[d] = d == p ? q : d == q ? p : d;
    swap_dims(b, tti_operand_at(b, c, 0), p, q, c->out[0]);
    note_permuted(b, c, perm, n);
}

static void transpose(tti_building *b, const tti_call *c) {
    int n = tti_shape_of(tti_operand_at(b, c, 0)).n_dims;
    transpose_dims(b, c, tti_dim_at(b, c, 1, n), tti_dim_at(b, c, 2, n));
}

/* t: at most two dimensions; numpy_T: reverses all dimensions; mT: swaps the last two. */
static void t(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_shape_of(x).n_dims == 2)
        transpose_dims(b, c, 0, 1);
    else
        alias(b, c);
}

static void reverse(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int perm[TUTTI_MAX_DIMS], n = tti_shape_of(x).n_dims;
    for (int d = 0; d < n; d++) perm[d] = n - 1 - d;
    tti_do_permute(b, x, perm, c->out[0]);
}

static void swap_last(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n = tti_shape_of(x).n_dims;
    if (n < 2)
        tti_refuse(b, "a tensor of %d dimensions is not supported", n);
    else
        transpose_dims(b, c, n - 2, n - 1);
}

/* ---- parts ---- */

/* self dim start end step, as in Python. */
static void slice(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    int64_t n = tti_shape_of(x).dim[dim];
    int64_t start = tti_has(c, 2) ? tti_int_at(b, c, 2) : 0;
    int64_t end = tti_has(c, 3) ? tti_int_at(b, c, 3) : n;
    int64_t step = tti_int_at(b, c, 4);
    if (step < 1) tti_refuse(b, "step %lld", (long long)step);
    if (!tti_good(b)) return;
    if (start < 0) start = TTI_MAX(start + n, 0);
    if (end < 0) end = TTI_MAX(end + n, 0);
    start = TTI_MIN(start, n);
    end = TTI_MAX(TTI_MIN(end, n), start);
    step = TTI_MIN(step, TTI_MAX(n, 1));
    tti_do_slice(b, x, dim, start, (end - start + step - 1) / step, step, c->out[0]);
    note_part(b, c, dim, start, step);
}

static void narrow(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    int64_t n = tti_shape_of(x).dim[dim], start = tti_int_at(b, c, 2), len = tti_int_at(b, c, 3);
    if (start < 0) start += n;
    if (start < 0 || len < 0 || start > n || len > n - start) tti_refuse(b, "outside the tensor");
    tti_do_slice(b, x, dim, start, len, 1, c->out[0]);
    note_part(b, c, dim, start, 1);
}

/* Selects element `index` of dim and drops that dimension. */
static void select_at(tti_building *b, const tti_operand *x, int dim, int64_t index,
                      tti_operand *out) {
    tti_operand part = {0};
    tutti_shape from = tti_shape_of(x), to = {0};
    if (index < 0) index += from.dim[dim];
    if (from.n_dims < 1 || index < 0 || index >= from.dim[dim])
        tti_refuse(b, "index %lld is outside the tensor", (long long)index);
    if (x->kind == TTI_OPERAND_GRAPH && tti_good(b)) {
        set_view(b, out, tutti_select(b->graph, tti_value_of(b, x), dim, index), x);
        return;
    }
    tti_do_slice(b, x, dim, index, 1, 1, &part);
    for (int d = 0; d < from.n_dims; d++)
        if (d != dim) to.dim[to.n_dims++] = from.dim[d];
    if (!tti_good(b)) return;
    tti_host made = part.host; /* a view, even if it is not contiguous */
    made.shape = to;
    made.of_batch = made.of_batch && dim > 0;
    if (made.batch_dim > 0) set_batch_dim(&made, made.batch_dim - (dim < made.batch_dim));
    for (int d = dim; d < to.n_dims; d++) made.stride[d] = part.host.stride[d + 1];
    tti_set_host(out, &made);
}

static void select_int(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, shape.n_dims);
    int64_t index = tti_int_at(b, c, 2);
    select_at(b, x, dim, index, c->out[0]);
    if (index < 0) index += shape.dim[dim];
    record_view(b, c, (tti_view_part){.dim = dim, .start = index, .step = 1, .selected = true});
}

static void unbind(tti_building *b, const tti_call *c) {
    const tti_operand x = *tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(&x).n_dims);
    for (int i = 0; i < c->n_outs && tti_good(b); i++) select_at(b, &x, dim, i, c->out[i]);
}

/* Cuts into parts of `size`; the last one may be smaller. */
static void cut(tti_building *b, const tti_call *c, int dim, int64_t size) {
    const tti_operand x = *tti_operand_at(b, c, 0);
    int64_t n = tti_shape_of(&x).dim[dim];
    if (size < 1) tti_refuse(b, "a part of %lld elements is not possible", (long long)size);
    for (int i = 0; i < c->n_outs && tti_good(b); i++) {
        int64_t start = TTI_MIN(i * size, n);
        tti_do_slice(b, &x, dim, start, TTI_MIN(size, n - start), 1, c->out[i]);
    }
}

static void chunk(tti_building *b, const tti_call *c) {
    tutti_shape shape = tti_shape_of(tti_operand_at(b, c, 0));
    int dim = tti_dim_at(b, c, 2, shape.n_dims);
    int64_t chunks = tti_int_at(b, c, 1);
    if (chunks < 1) tti_refuse(b, "%lld chunks", (long long)chunks);
    if (tti_good(b)) cut(b, c, dim, TTI_MAX((shape.dim[dim] + chunks - 1) / chunks, 1));
}

static void split(tti_building *b, const tti_call *c) {
    cut(b, c, tti_dim_at(b, c, 2, tti_shape_of(tti_operand_at(b, c, 0)).n_dims),
        tti_int_at(b, c, 1));
}

static void split_with_sizes(tti_building *b, const tti_call *c) {
    const tti_operand x = *tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 2, tti_shape_of(&x).n_dims);
    int64_t start = 0, n = tti_shape_of(&x).dim[dim];
    const tti_arg *sizes = c->arg[1];
    for (int i = 0; i < c->n_outs && tti_good(b); i++) {
        int64_t len =
            sizes->kind == TTI_ARG_LIST && i < sizes->n && sizes->items[i].kind == TTI_ARG_INT
                ? sizes->items[i].i
                : -1;
        if (len < 0 || len > n - start) tti_refuse(b, "sizes do not fit the tensor");
        tti_do_slice(b, &x, dim, start, len, 1, c->out[i]);
        start += len;
    }
}

/* ---- joining ---- */

enum { MAX_JOINED = 16 };

static bool join_shape(tti_building *b, tti_operand *const *parts, int n, int dim,
                       tutti_shape *out) {
    *out = tti_shape_of(parts[0]);
    out->dim[dim] = 0;
    for (int i = 0; i < n && tti_good(b); i++) {
        tutti_shape part = tti_shape_of(parts[i]);
        bool fits = part.n_dims == out->n_dims;
        for (int d = 0; d < part.n_dims && fits; d++) fits = d == dim || part.dim[d] == out->dim[d];
        if (!fits) tti_refuse(b, "the shapes do not match");
        out->dim[dim] += part.dim[dim];
    }
    return tti_good(b);
}

static void join_host(tti_building *b, tti_operand *const *parts, int n, int dim, tti_elem elem,
                      tti_operand *out) {
    tutti_shape shape;
    tti_host made;
    if (!join_shape(b, parts, n, dim, &shape)) return;
    if (!tti_host_new(b, elem, &shape, &made)) return;
    tti_host at = made;
    for (int i = 0; i < n; i++) {
        const tti_host *part = &parts[i]->host;
        at.shape = part->shape;
        int64_t n_part = tti_host_n(part);
        tti_host_walk to = tti_host_begin(&at), from = tti_host_begin(part);
        for (int64_t k = 0; k < n_part; k++)
            made.data[tti_host_next_offset(&to)] = tti_host_next(&from);
        at.offset += part->shape.dim[dim] * at.stride[dim];
    }
    tti_set_host(out, &made);
}

static bool is_i32(const tti_operand *x) {
    return x->kind == TTI_OPERAND_GRAPH && tutti_value_type(x->value).dtype == TUTTI_I32;
}

/* Concatenates parts along dim. If one of them has samples, all are expanded to the batch. */
static void join(tti_building *b, tti_operand *const *parts, int n, int dim, tti_operand *out) {
    tutti_value *value[MAX_JOINED];
    bool of_input = false, on_host = true, is_int = true;
    tti_elem elem = TTI_ELEM_NONE;
    const tti_operand *widest = parts[0];
    int n_values = 0;
    for (int i = 0; i < n; i++) {
        of_input |= parts[i]->of_input || parts[i]->rows > 0;
        on_host &= parts[i]->kind == TTI_OPERAND_HOST;
        is_int &= is_i32(parts[i]);
        elem = i == 0 ? tti_elem_of(parts[0]) : tti_promote(widest, parts[i]);
        if (elem != tti_elem_of(widest)) widest = parts[i];
    }
    if (on_host) {
        join_host(b, parts, n, dim, elem, out);
        return;
    }
    for (int i = 0; i < n && tti_good(b); i++) {
        tutti_value *x = of_input ? tti_batch_value(b, parts[i]) : tti_value_of(b, parts[i]);
        value[n_values++] = is_int ? x : tti_as_float(b, x);
        if (n_values < MAX_JOINED) continue;
        value[0] = tutti_concat(b->graph, value, n_values, dim);
        n_values = 1;
    }
    if (!tti_good(b)) return;
    tutti_value *joined = n_values == 1 ? value[0] : tutti_concat(b->graph, value, n_values, dim);
    tti_set_value(b, out, joined, elem, of_input);
}

/* True for an empty vector, which torch.cat ignores. */
static bool is_skipped(const tti_operand *x) {
    tutti_shape shape = tti_shape_of(x);
    return shape.n_dims == 1 && shape.dim[0] == 0;
}

/* Returns the operands of list argument k, [*n] in the arena; NULL after a failure. */
static tti_operand **list_at(tti_building *b, const tti_call *c, int k, int *n) {
    const tti_arg *list = c->arg[k];
    int most = list->kind == TTI_ARG_LIST ? list->n : 0;
    tti_operand **parts = tti_arena_alloc(&b->arena, ((size_t)most + 1) * sizeof(tti_operand *));
    *n = 0;
    if (most < 1 || !parts) tti_refuse(b, "tensors are expected");
    for (int i = 0; i < most && tti_good(b); i++) {
        tti_operand *x = tti_operand_of(b, &list->items[i]);
        if (x->kind == TTI_OPERAND_NUMBER) tti_refuse(b, "tensors are expected");
        parts[(*n)++] = x;
    }
    return tti_good(b) ? parts : NULL;
}

static void cat(tti_building *b, const tti_call *c) {
    int n, n_kept = 0;
    tti_operand **parts = list_at(b, c, 0, &n);
    if (!parts) return;
    for (int i = 0; i < n; i++)
        if (n == 1 || !is_skipped(parts[i])) parts[n_kept++] = parts[i];
    if (n_kept == 0) n_kept = 1;
    int dim = tti_dim_at(b, c, 1, tti_shape_of(parts[0]).n_dims);
    if (tti_good(b)) join(b, parts, n_kept, dim, c->out[0]);
}

static void broadcast_tensors(tti_building *b, const tti_call *c) {
    int n;
    tti_operand **parts = list_at(b, c, 0, &n);
    if (!parts || n < 1) return;
    tutti_shape wide = tti_shape_of(parts[0]);
    for (int i = 1; i < n && tti_good(b); i++) {
        tutti_shape own = tti_shape_of(parts[i]), so_far = wide;
        if (!tti_host_broadcast(b, &so_far, &own, &wide)) return;
    }
    for (int i = 0; i < n && i < c->n_outs && tti_good(b); i++) {
        tutti_shape own = tti_shape_of(parts[i]);
        if (!c->out[i]) continue;
        if (same_shape(&wide, &own))
            tti_set(c->out[i], parts[i]);
        else
            tti_call_row(
                b, "aten.expand.default",
                (tti_arg[]){tti_operand_arg(parts[i]), tti_ints_arg(b, wide.dim, wide.n_dims)}, 2,
                &c->out[i], 1);
    }
}

static void stack(tti_building *b, const tti_call *c) {
    int n;
    tti_operand **parts = list_at(b, c, 0, &n);
    if (!parts) return;
    int dim = tti_dim_at(b, c, 1, tti_shape_of(parts[0]).n_dims + 1);
    tti_operand *wide = tti_arena_alloc(&b->arena, (size_t)n * sizeof *wide);
    if (!wide) tti_refuse(b, "out of memory");
    for (int i = 0; i < n && tti_good(b); i++) {
        add_dim(b, parts[i], dim, &wide[i]);
        parts[i] = &wide[i];
    }
    if (tti_good(b)) join(b, parts, n, dim, c->out[0]);
}

static void roll(tti_building *b, const tti_call *c) {
    tti_operand now = *tti_operand_at(b, c, 0);
    int64_t shifts[TUTTI_MAX_DIMS], dims[TUTTI_MAX_DIMS];
    int n = tti_ints_at(b, c, 1, shifts), n_dims = tti_ints_at(b, c, 2, dims);
    tutti_shape shape = tti_shape_of(&now), flat = TUTTI_SHAPE(-1);
    bool flattens = n_dims == 0 && n == 1; /* flattens x to a vector */
    if (flattens) {
        tti_operand given = now;
        tti_do_reshape(b, &given, &flat, &now);
        dims[0] = 0;
        n_dims = 1;
    }
    if (n != n_dims) tti_refuse(b, "a shift without a dimension is not supported");
    for (int i = 0; i < n && tti_good(b); i++) {
        int dim = tti_wrap_dim(b, dims[i], tti_shape_of(&now).n_dims);
        int64_t size = tti_shape_of(&now).dim[dim];
        int64_t shift = size > 0 ? (shifts[i] % size + size) % size : 0;
        tti_operand part[2] = {{0}}, joined = {0};
        if (shift == 0 || !tti_good(b)) continue;
        tti_do_slice(b, &now, dim, size - shift, shift, 1, &part[0]);
        tti_do_slice(b, &now, dim, 0, size - shift, 1, &part[1]);
        if (tti_good(b)) join(b, (tti_operand *[]){&part[0], &part[1]}, 2, dim, &joined);
        now = joined;
    }
    if (flattens && tti_good(b))
        tti_do_reshape(b, &now, &shape, c->out[0]);
    else if (tti_good(b))
        tti_set(c->out[0], &now);
}

static void flip(tti_building *b, const tti_call *c) {
    tti_operand now = *tti_operand_at(b, c, 0);
    int64_t dims[TUTTI_MAX_DIMS];
    int n = tti_ints_at(b, c, 1, dims);
    for (int i = 0; i < n && tti_good(b); i++) {
        int dim = tti_wrap_dim(b, dims[i], tti_shape_of(&now).n_dims);
        int64_t size = tti_shape_of(&now).dim[dim];
        if (now.kind == TTI_OPERAND_HOST) {
            now.host.offset += (size - 1) * now.host.stride[dim];
            now.host.stride[dim] = -now.host.stride[dim];
            continue;
        }
        tti_host order;
        if (!tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(size), &order)) return;
        for (int64_t k = 0; k < size; k++) order.data[k] = (double)(size - 1 - k);
        tti_operand ids = {.kind = TTI_OPERAND_HOST, .host = order};
        tutti_value *x = tti_as_float(b, tti_value_of(b, &now));
        tti_set_value(b, &now, tutti_gather(b->graph, x, tti_as_index(b, &ids), dim), now.elem,
                      now.of_input || now.rows > 0);
    }
    tti_host copy;
    if (!tti_good(b)) return;
    if (now.kind != TTI_OPERAND_HOST)
        tti_set(c->out[0], &now);
    else if (tti_host_copy(b, &now.host, &copy))
        tti_set_host(c->out[0], &copy);
}

#define VIEW(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn, .fold = fn, .view = true }
#define MOVE(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn, .fold = fn }

const tti_operator tti_operators_shape[] = {
    VIEW("view.default", "self size", view),
    VIEW("reshape.default", "self shape", reshape),
    VIEW("_unsafe_view.default", "self size", reshape),
    VIEW("flatten.using_ints", "self start_dim=0 end_dim=-1", flatten),
    VIEW("unflatten.int", "self dim sizes", unflatten),
    VIEW("unsqueeze.default", "self dim", unsqueeze),
    VIEW("squeeze.default", "self", squeeze),
    VIEW("squeeze.dim", "self dim", squeeze),
    VIEW("squeeze.dims", "self dim", squeeze),
    VIEW("permute.default", "self dims", permute),
    VIEW("transpose.int", "self dim0 dim1", transpose),
    VIEW("movedim.int", "self source destination", movedim),
    VIEW("swapaxes.default", "self axis0 axis1", transpose),
    VIEW("swapdims.default", "self dim0 dim1", transpose),
    VIEW("t.default", "self", t),
    VIEW("numpy_T.default", "self", reverse),
    VIEW("mT.default", "self", swap_last),
    VIEW("matrix_H.default", "self", swap_last),
    VIEW("adjoint.default", "self", swap_last),
    VIEW("alias.default", "self", alias),
    VIEW("contiguous.default", "self memory_format!", contiguous),
    VIEW("detach.default", "self", detach),
    VIEW("slice.Tensor", "self dim=0 start=None end=None step=1", slice),
    VIEW("narrow.default", "self dim start length", narrow),
    VIEW("select.int", "self dim index", select_int),
    VIEW("unbind.int", "self dim=0", unbind),
    VIEW("chunk.default", "self chunks dim=0", chunk),
    VIEW("split.Tensor", "self split_size dim=0", split),
    VIEW("unsafe_chunk.default", "self chunks dim=0", chunk),
    VIEW("unsafe_split.Tensor", "self split_size dim=0", split),
    VIEW("unsafe_split_with_sizes.default", "self split_sizes dim=0", split_with_sizes),
    VIEW("split_with_sizes.default", "self split_sizes dim=0", split_with_sizes),
    VIEW("split.sizes", "self split_size dim=0", split_with_sizes),
    MOVE("clone.default", "self memory_format!", clone),
    MOVE("lift_fresh_copy.default", "self", clone),
    MOVE("cat.default", "tensors dim=0", cat),
    MOVE("concat.default", "tensors dim=0", cat),
    MOVE("broadcast_tensors.default", "tensors", broadcast_tensors),
    MOVE("stack.default", "tensors dim=0", stack),
    MOVE("roll.default", "self shifts dims=[]", roll),
    MOVE("flip.default", "self dims", flip),
    {0},
};

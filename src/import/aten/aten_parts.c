/* aten_parts.c - operators that call other operators, depending on shapes: parts of tensors,
 * repeated elements, products, recurrences without gates. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

enum { MAX_UNROLLED = 1024 };

static tti_operand *new_operand(tti_building *b) { return tti_build_alloc(b, sizeof(tti_operand)); }

/* Runs a row and returns its first result. */
static tti_operand *op(tti_building *b, const char *target, int n, const tti_arg *args) {
    tti_operand *out = new_operand(b);
    if (tti_good(b) && out) tti_call_row(b, target, args, n, &out, 1);
    return out;
}

#define ARGS(...) \
    (int)TTI_COUNT(((tti_arg[]){__VA_ARGS__})), (tti_arg[]) { __VA_ARGS__ }

static tti_arg of(const tti_operand *x) { return tti_operand_arg(x); }
static tti_arg num(int64_t i) { return tti_int_arg(i); }

static tti_arg list_of(tti_building *b, tti_operand *const *parts, int n) {
    tti_arg *items = tti_build_alloc(b, ((size_t)n + 1) * sizeof *items);
    for (int i = 0; items && i < n; i++) items[i] = of(parts[i]);
    return (tti_arg){.kind = TTI_ARG_LIST, .items = items, .n = items ? n : 0};
}

static tti_operand *slice_of(tti_building *b, const tti_operand *x, int dim, int64_t start,
                             int64_t end) {
    return op(b, "aten.slice.Tensor", ARGS(of(x), num(dim), num(start), num(end)));
}
static tti_operand *select_of(tti_building *b, const tti_operand *x, int dim, int64_t index) {
    return op(b, "aten.select.int", ARGS(of(x), num(dim), num(index)));
}
static tti_operand *pair(tti_building *b, const char *target, const tti_operand *x,
                         const tti_operand *y) {
    return op(b, target, ARGS(of(x), of(y)));
}

static void set_result(tti_building *b, const tti_call *c, const tti_operand *x) {
    if (tti_good(b) && x) tti_set(c->out[0], x);
}

/* ---- parts ---- */

/* Cuts at increasing positions [n] into n + 1 parts. */
static void cut_at(tti_building *b, const tti_call *c, const tti_operand *given, int dim,
                   const int64_t *places, int n) {
    const tti_operand x = *given;
    int64_t size = tti_shape_of(&x).dim[dim], start = 0;
    for (int i = 0; i <= n && i < c->n_outs && tti_good(b); i++) {
        int64_t end = i < n ? places[i] : size;
        if (end < 0) end += size;
        end = TTI_MAX(TTI_MIN(end, size), 0);
        if (end < start) tti_refuse(b, "the selected elements must be in ascending order");
        if (tti_good(b)) tti_do_slice(b, &x, dim, start, end - start, 1, c->out[i]);
        start = end;
    }
}

/* Cuts x into n parts; if they cannot be equal, the first ones have one element more. */
static void cut_in(tti_building *b, const tti_call *c, const tti_operand *x, int dim, int64_t n) {
    int64_t places[TTI_COUNT(c->out)] = {0}, size = tti_shape_of(x).dim[dim];
    if (n < 1 || n > (int64_t)TTI_COUNT(places)) tti_refuse(b, "%lld parts", (long long)n);
    for (int64_t i = 0; i < n && tti_good(b); i++)
        places[i] = (i ? places[i - 1] : 0) + size / n + (i < size % n);
    if (tti_good(b)) cut_at(b, c, x, dim, places, (int)n - 1);
}

static void split_sections(tti_building *b, const tti_call *c, int dim) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    cut_in(b, c, x, tti_wrap_dim(b, dim, tti_shape_of(x).n_dims), tti_int_at(b, c, 1));
}
static void split_places(tti_building *b, const tti_call *c, int dim) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n;
    const int64_t *places = tti_list_at(b, c, 1, &n);
    if (places) cut_at(b, c, x, tti_wrap_dim(b, dim, tti_shape_of(x).n_dims), places, n);
}
static int given_dim(tti_building *b, const tti_call *c) {
    return tti_dim_at(b, c, 2, tti_shape_of(tti_operand_at(b, c, 0)).n_dims);
}
static void tensor_split(tti_building *b, const tti_call *c) {
    split_sections(b, c, given_dim(b, c));
}
static void tensor_split_at(tti_building *b, const tti_call *c) {
    split_places(b, c, given_dim(b, c));
}
/* The dimension of hsplit: 1, or 0 for a vector. */
static int second_dim(tti_building *b, const tti_call *c) {
    return tti_shape_of(tti_operand_at(b, c, 0)).n_dims > 1;
}
static void hsplit(tti_building *b, const tti_call *c) { split_sections(b, c, second_dim(b, c)); }
static void hsplit_at(tti_building *b, const tti_call *c) { split_places(b, c, second_dim(b, c)); }
static void vsplit(tti_building *b, const tti_call *c) { split_sections(b, c, 0); }
static void vsplit_at(tti_building *b, const tti_call *c) { split_places(b, c, 0); }

/* Takes the diagonal of a matrix that compares all samples with each other: each row's own column.
 * False: x is no such matrix. */
static bool sample_diagonal(tti_building *b, const tti_operand *x, int64_t offset,
                            tti_operand *out) {
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tti_shape_of(x);
    if (x->kind != TTI_OPERAND_GRAPH || shape.n_dims != 2 || offset != 0 ||
        shape.dim[0] != shape.dim[1])
        return false;
    tutti_value *value = tti_value_of(b, x);
    if (tti_sample_dims(b, value, ~0u) != 3) return false;
    int32_t *places = tti_build_alloc(b, (size_t)shape.dim[0] * sizeof *places);
    for (int64_t i = 0; places && i < shape.dim[0]; i++) places[i] = (int32_t)i;
    if (!tti_good(b)) return true;
    tutti_value *ids = tutti_constant_array(g, TUTTI_I32, &TUTTI_SHAPE(shape.dim[0], 1), places);
    value = tutti_reshape(g, tutti_take_along(g, value, ids, 1), &TUTTI_SHAPE(shape.dim[0]));
    tti_set_value(b, out, value, tti_elem_of(x), true);
    return true;
}

/* Takes the diagonal of a constant, as a view. perm: moves its two dimensions to the end; from:
 * first row, first column and number of elements. */
static void host_diagonal(const tti_operand *x, const int64_t *perm, const int64_t from[3],
                          tti_operand *out) {
    tti_host made = x->host;
    int k = made.shape.n_dims - 2;
    for (int d = 0; d < k; d++) {
        made.shape.dim[d] = x->host.shape.dim[perm[d]];
        made.stride[d] = x->host.stride[perm[d]];
    }
    int64_t down = x->host.stride[perm[k]], across = x->host.stride[perm[k + 1]];
    made.offset += from[0] * down + from[1] * across;
    made.shape.n_dims = k + 1;
    made.shape.dim[k] = from[2];
    made.stride[k] = down + across;
    made.of_batch = made.of_batch && k > 0 && perm[0] == 0;
    made.batch_dim = 0;
    x->host.use->shared = true;
    tti_set_host(out, &made);
}

/* self offset dim1 dim2: replaces the two dimensions by one, which is the last. */
static void diagonal(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    int64_t offset = tti_int_at(b, c, 1), ids[2] = {0};
    int p = tti_dim_at(b, c, 2, shape.n_dims), q = tti_dim_at(b, c, 3, shape.n_dims), k = 0;
    int64_t perm[TUTTI_MAX_DIMS];
    if (tti_good(b) && (p == q || shape.n_dims < 2))
        tti_refuse(b, "the two dimensions must differ");
    if (offset < -INT32_MAX || offset > INT32_MAX) tti_refuse(b, "the offset is out of range");
    if (!tti_good(b) || sample_diagonal(b, x, offset, c->out[0])) return;
    int64_t rows = shape.dim[p], columns = shape.dim[q];
    for (int d = 0; d < shape.n_dims; d++)
        if (d != p && d != q) perm[k++] = d;
    perm[k++] = p, perm[k] = q;
    ids[offset >= 0] = offset >= 0 ? offset : -offset;
    int64_t n = TTI_MIN(rows - ids[0], columns - ids[1]);
    tti_host places;
    if (n < 1) tti_refuse(b, "the offset is out of range");
    if (tti_good(b) && x->kind == TTI_OPERAND_HOST) {
        host_diagonal(x, perm, (int64_t[]){ids[0], ids[1], n}, c->out[0]);
        return;
    }
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(n), &places)) return;
    for (int64_t i = 0; i < n; i++) places.data[i] = (double)((ids[0] + i) * columns + ids[1] + i);
    tti_operand index = {.kind = TTI_OPERAND_HOST, .host = places};
    tti_operand *flat =
        op(b, "aten.permute.default", ARGS(of(x), tti_ints_arg(b, perm, shape.n_dims)));
    flat = op(b, "aten.flatten.using_ints", ARGS(of(flat), num(-2), num(-1)));
    tti_arg *items = tti_build_alloc(b, (size_t)shape.n_dims * sizeof *items);
    if (!tti_good(b)) return;
    items[shape.n_dims - 2] = of(&index);
    tti_arg list = {.kind = TTI_ARG_LIST, .items = items, .n = shape.n_dims - 1};
    set_result(b, c, op(b, "aten.index.Tensor", ARGS(of(flat), list)));
}

/* ---- writing parts ---- */

/* Replaces the elements of x from start on along dim by those of source. */
static void put_part(tti_building *b, const tti_call *c, const tti_operand *x,
                     const tti_operand *source, int dim, int64_t start) {
    tutti_shape shape = tti_shape_of(x), part = tti_shape_of(source);
    tti_operand *parts[3];
    int n = 0;
    if (part.n_dims != shape.n_dims) tti_refuse(b, "the shape of the source does not match");
    if (!tti_good(b)) return;
    int64_t end = start + part.dim[dim];
    if (start > 0) parts[n++] = slice_of(b, x, dim, 0, start);
    parts[n++] = op(b, "aten.alias.default", ARGS(of(source)));
    if (end < shape.dim[dim]) parts[n++] = slice_of(b, x, dim, end, shape.dim[dim]);
    if (end > shape.dim[dim]) tti_refuse(b, "the shape of the source does not match");
    if (tti_good(b))
        set_result(b, c, op(b, "aten.cat.default", ARGS(list_of(b, parts, n), num(dim))));
}

/* The same for every step-th element from start on: replaces the first element of each row of
 * `step` elements; the last row may be shorter. */
static void put_steps(tti_building *b, const tti_call *c, const tti_operand *x,
                      const tti_operand *source, int dim, const int64_t range[2]) {
    int64_t start = range[0], step = range[1], n = tti_shape_of(source).dim[dim];
    tutti_shape shape = tti_shape_of(x), wide = shape;
    tti_operand *parts[4];
    int k = 0;
    if (shape.n_dims == TUTTI_MAX_DIMS)
        tti_refuse(b, "a step in a tensor of %d dimensions is not supported", shape.n_dims);
    if (!tti_good(b)) return;
    int64_t n_rows = TTI_MIN(n, (shape.dim[dim] - start) / step), at = start + n_rows * step;
    if (start > 0) parts[k++] = slice_of(b, x, dim, 0, start);
    if (n_rows > 0) {
        wide.n_dims++;
        for (int d = wide.n_dims - 1; d > dim; d--) wide.dim[d] = shape.dim[d - 1];
        wide.dim[dim] = n_rows;
        wide.dim[dim + 1] = step;
        tti_operand *rows = slice_of(b, x, dim, start, at), *joined[2];
        rows =
            op(b, "aten.reshape.default", ARGS(of(rows), tti_ints_arg(b, wide.dim, wide.n_dims)));
        joined[0] = op(b, "aten.unsqueeze.default",
                       ARGS(of(slice_of(b, source, dim, 0, n_rows)), num(dim + 1)));
        joined[1] = slice_of(b, rows, dim + 1, 1, step);
        rows = op(b, "aten.cat.default", ARGS(list_of(b, joined, 2), num(dim + 1)));
        parts[k++] = op(b, "aten.flatten.using_ints", ARGS(of(rows), num(dim), num(dim + 1)));
    }
    if (n > n_rows) parts[k++] = slice_of(b, source, dim, n_rows, n), at++;
    if (at < shape.dim[dim]) parts[k++] = slice_of(b, x, dim, at, shape.dim[dim]);
    if (tti_good(b))
        set_result(b, c, op(b, "aten.cat.default", ARGS(list_of(b, parts, k), num(dim))));
}

/* self src dim start end step */
static void slice_scatter(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *source = tti_operand_at(b, c, 1);
    int dim = tti_dim_at(b, c, 2, tti_shape_of(x).n_dims);
    int64_t n = tti_shape_of(x).dim[dim], start = tti_has(c, 3) ? tti_int_at(b, c, 3) : 0;
    int64_t end = tti_has(c, 4) ? tti_int_at(b, c, 4) : n;
    if (start < 0) start = TTI_MAX(start + n, 0);
    if (end < 0) end = TTI_MAX(end + n, 0);
    start = TTI_MIN(start, n);
    end = TTI_MAX(TTI_MIN(end, n), start);
    int64_t step = tti_int_at(b, c, 5);
    if (step < 1) tti_refuse(b, "step %lld", (long long)step);
    if (!tti_good(b)) return;
    step = TTI_MIN(step, TTI_MAX(n, 1));
    int64_t count = (end - start + step - 1) / step;
    if (tti_shape_of(source).n_dims != tti_shape_of(x).n_dims ||
        tti_shape_of(source).dim[dim] != count)
        tti_refuse(b, "the shape of the source does not match");
    if (!tti_good(b)) return;
    if (count == 0)
        tti_set(c->out[0], x);
    else if (step == 1)
        put_part(b, c, x, source, dim, start);
    else
        put_steps(b, c, x, source, dim, (int64_t[]){start, step});
}

/* self src dim index */
static void select_scatter(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *source = tti_operand_at(b, c, 1);
    int dim = tti_dim_at(b, c, 2, tti_shape_of(x).n_dims);
    int64_t n = tti_shape_of(x).dim[dim], index = tti_int_at(b, c, 3);
    if (index < 0) index += n;
    if (index < 0 || index >= n) tti_refuse(b, "the index is outside the tensor");
    tti_operand *wide = op(b, "aten.unsqueeze.default", ARGS(of(source), num(dim)));
    if (tti_good(b)) put_part(b, c, x, wide, dim, index);
}

/* ---- repeating ---- */

/* self repeats dim: repeats each element; without dim, of the flattened tensor. */
static void repeat_interleave(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t repeats = tti_int_at(b, c, 1), times[TUTTI_MAX_DIMS + 1];
    if (!tti_has(c, 2)) x = op(b, "aten.flatten.using_ints", ARGS(of(x)));
    int n = tti_shape_of(x).n_dims, dim = tti_has(c, 2) ? tti_dim_at(b, c, 2, n) : 0;
    if (repeats < 1) tti_refuse(b, "%lld times", (long long)repeats);
    if (tti_good(b) && n >= TUTTI_MAX_DIMS) tti_refuse(b, "the result has too many dimensions");
    if (!tti_good(b)) return;
    for (int d = 0; d <= n; d++) times[d] = d == dim + 1 ? repeats : 1;
    tti_operand *wide = op(b, "aten.unsqueeze.default", ARGS(of(x), num(dim + 1)));
    wide = op(b, "aten.repeat.default", ARGS(of(wide), tti_ints_arg(b, times, n + 1)));
    set_result(b, c, op(b, "aten.flatten.using_ints", ARGS(of(wide), num(dim), num(dim + 1))));
}

/* self repeats dim: repeats element i repeats[i] times. */
static void repeat_each(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *repeats = tti_operand_at(b, c, 1);
    int n_times, dim;
    tti_host places;
    if (!tti_has(c, 2)) x = op(b, "aten.flatten.using_ints", ARGS(of(x)));
    if (repeats->kind != TTI_OPERAND_HOST)
        tti_refuse(b, "repeats that depend on inputs are not supported");
    const int64_t *times = tti_list_at(b, c, 1, &n_times);
    dim = tti_has(c, 2) ? tti_dim_at(b, c, 2, tti_shape_of(x).n_dims) : 0;
    if (!tti_good(b)) return;
    int64_t size = tti_shape_of(x).dim[dim], n = 0, at = 0;
    if (n_times != size && n_times != 1) tti_refuse(b, "repeats does not fit the tensor");
    for (int64_t i = 0; i < size && tti_good(b); i++) {
        int64_t t = times[n_times > 1 ? i : 0];
        if (t < 0 || t > INT32_MAX) tti_refuse(b, "%lld times", (long long)t);
        n += t;
    }
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(n), &places)) return;
    for (int64_t i = 0; i < size; i++)
        for (int64_t k = 0; k < times[n_times > 1 ? i : 0]; k++) places.data[at++] = (double)i;
    tti_operand index = {.kind = TTI_OPERAND_HOST, .host = places};
    set_result(b, c, op(b, "aten.index_select.default", ARGS(of(x), num(dim), of(&index))));
}

/* self dims: repeat, with possibly fewer dims than dimensions. */
static void tile(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t given[TUTTI_MAX_DIMS], times[TUTTI_MAX_DIMS];
    int n = tti_ints_at(b, c, 1, given), n_dims = TTI_MAX(n, tti_shape_of(x).n_dims);
    for (int d = 0; d < n_dims; d++) times[d] = d < n_dims - n ? 1 : given[d - (n_dims - n)];
    if (tti_good(b))
        set_result(b, c, op(b, "aten.repeat.default", ARGS(of(x), tti_ints_arg(b, times, n_dims))));
}

/* tensors indexing: expands each along the dimensions of the others; "xy" swaps the first two. */
static void meshgrid(tti_building *b, const tti_call *c) {
    const tti_arg *list = tti_arg_at(c, 0);
    bool swaps = c->n_args > 1 && strcmp(tti_text_at(b, c, 1), "xy") == 0;
    int n = list->kind == TTI_ARG_LIST ? list->n : 0;
    int64_t to[TUTTI_MAX_DIMS], own[TUTTI_MAX_DIMS];
    if (n < 1 || n > TUTTI_MAX_DIMS) tti_refuse(b, "%d tensors", n);
    for (int i = 0; i < n && tti_good(b); i++) {
        int place = swaps && n > 1 && i < 2 ? 1 - i : i;
        tutti_shape shape = tti_shape_of(tti_operand_of(b, &list->items[i]));
        if (shape.n_dims > 1)
            tti_refuse(b, "a tensor of %d dimensions is not supported", shape.n_dims);
        to[place] = shape.n_dims ? shape.dim[0] : 1;
    }
    for (int i = 0; i < n && i < c->n_outs && tti_good(b); i++) {
        int place = swaps && n > 1 && i < 2 ? 1 - i : i;
        for (int d = 0; d < n; d++) own[d] = d == place ? to[d] : 1;
        tti_operand *wide =
            op(b, "aten.reshape.default", ARGS(list->items[i], tti_ints_arg(b, own, n)));
        wide = op(b, "aten.expand.default", ARGS(of(wide), tti_ints_arg(b, to, n)));
        if (tti_good(b) && c->out[i]) tti_set(c->out[i], wide);
    }
}

/* self other: the elements in the shape of other. */
static void view_as(tti_building *b, const tti_call *c) {
    tutti_shape to = tti_shape_of(tti_operand_at(b, c, 1));
    tti_do_reshape(b, tti_operand_at(b, c, 0), &to, c->out[0]);
}

/* self source destination: moves several dimensions. */
static void movedims(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n_dims = tti_shape_of(x).n_dims, perm[TUTTI_MAX_DIMS], next = 0;
    int64_t from[TUTTI_MAX_DIMS], to[TUTTI_MAX_DIMS];
    int n = tti_ints_at(b, c, 1, from), n_to = tti_ints_at(b, c, 2, to);
    unsigned moved = 0;
    if (n != n_to) tti_refuse(b, "source and destination differ in length");
    for (int d = 0; d < n_dims; d++) perm[d] = -1;
    for (int i = 0; i < n && tti_good(b); i++) {
        int source = tti_wrap_dim(b, from[i], n_dims), place = tti_wrap_dim(b, to[i], n_dims);
        if (moved >> source & 1u || perm[place] >= 0) tti_refuse(b, "a dimension is given twice");
        moved |= 1u << source;
        perm[place] = source;
    }
    for (int d = 0; d < n_dims && tti_good(b); d++) {
        if (perm[d] >= 0) continue;
        while (moved >> next & 1u) next++;
        perm[d] = next++;
    }
    if (tti_good(b)) tti_do_permute(b, x, perm, c->out[0]);
}

/* ---- products ---- */

/* The product along dim, computed by repeatedly multiplying two halves; keeps the dimension. */
static tti_operand *product_along(tti_building *b, tti_operand *x, int dim) {
    while (tti_good(b) && tti_shape_of(x).dim[dim] > 1) {
        int64_t n = tti_shape_of(x).dim[dim], half = n / 2;
        tti_operand *joined = pair(b, "aten.mul.Tensor", slice_of(b, x, dim, 0, half),
                                   slice_of(b, x, dim, half, 2 * half));
        if (n % 2) {
            tti_operand *parts[2] = {joined, slice_of(b, x, dim, n - 1, n)};
            joined = op(b, "aten.cat.default", ARGS(list_of(b, parts, 2), num(dim)));
        }
        x = joined;
    }
    return x;
}

/* self dim keepdim */
static void prod_dim(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    bool keep = tti_bool_at(b, c, 2);
    if (tti_good(b) && (tti_shape_of(x).n_dims < 1 || tti_shape_of(x).dim[dim] < 1))
        tti_refuse(b, "a scalar or an empty tensor is not supported");
    tti_operand *all = op(b, "aten.alias.default", ARGS(of(x)));
    all = product_along(b, all, dim);
    if (tti_good(b) && !keep) all = select_of(b, all, dim, 0);
    set_result(b, c, all);
}

static void prod_all(tti_building *b, const tti_call *c) {
    tti_operand *x = op(b, "aten.alias.default", ARGS(*tti_arg_at(c, 0)));
    for (int d = 0; tti_good(b) && d < tti_shape_of(x).n_dims; d++) x = product_along(b, x, d);
    if (tti_good(b))
        set_result(b, c, op(b, "aten.reshape.default", ARGS(of(x), tti_ints_arg(b, NULL, 0))));
}

/* self dim: running products, with one step for each element. */
static void cumprod(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 1, tti_shape_of(x).n_dims);
    int64_t n = tti_shape_of(x).n_dims > 0 ? tti_shape_of(x).dim[dim] : 0;
    if (tti_good(b) && (n < 1 || n > MAX_UNROLLED))
        tti_refuse(b, "a dimension of %lld elements is not supported, only 1 to %d", (long long)n,
                   MAX_UNROLLED);
    tti_operand **parts = tti_build_alloc(b, ((size_t)TTI_MAX(n, 1)) * sizeof *parts);
    for (int64_t i = 0; i < n && tti_good(b); i++) {
        parts[i] = slice_of(b, x, dim, i, i + 1);
        if (i > 0) parts[i] = pair(b, "aten.mul.Tensor", parts[i - 1], parts[i]);
    }
    if (tti_good(b))
        set_result(b, c, op(b, "aten.cat.default", ARGS(list_of(b, parts, (int)n), num(dim))));
}

/* v pow dim: the norm of all elements with the same index in dim; -1: of all elements. */
static void norm_except_dim(tti_building *b, const tti_call *c) {
    const tti_operand *v = tti_operand_at(b, c, 0);
    int64_t dims[TUTTI_MAX_DIMS], dim = tti_int_at(b, c, 2);
    int n = 0, n_dims = tti_shape_of(v).n_dims;
    for (int d = 0; d < n_dims; d++)
        if (d != dim) dims[n++] = d;
    if (!tti_good(b)) return;
    if (dim < -1 || dim >= n_dims || n_dims < 2)
        tti_refuse(b, "there is no dimension %lld", (long long)dim);
    tti_arg axes = dim == -1 ? (tti_arg){0} : tti_ints_arg(b, dims, n);
    set_result(b, c,
               op(b, "aten.linalg_vector_norm.default",
                  ARGS(of(v), *tti_arg_at(c, 1), axes, tti_bool_arg(dim != -1))));
}

/* ---- recurrences without gates ---- */

static bool is_zero(const tti_operand *x) {
    double value;
    return x->kind == TTI_OPERAND_HOST && tti_host_uniform(&x->host, &value) && value == 0;
}

/* input hx params has_biases num_layers dropout train bidirectional batch_first */
static void rnn(tti_building *b, const tti_call *c, const char *function) {
    const tti_operand *x = tti_operand_at(b, c, 0), *start = tti_operand_at(b, c, 1);
    const tti_arg *params = tti_arg_at(c, 2);
    bool biases = tti_bool_at(b, c, 3), both = tti_bool_at(b, c, 7), first = tti_bool_at(b, c, 8);
    int64_t layers = tti_int_at(b, c, 4);
    int of_one = biases ? 4 : 2, ways = both ? 2 : 1, time = first ? 1 : 0;
    tutti_shape shape = tti_shape_of(x);
    if (tti_good(b) && (layers < 1 || layers > 64 || params->kind != TTI_ARG_LIST ||
                        params->n != layers * ways * of_one || shape.n_dims != 3))
        tti_refuse(b, "its arguments do not match");
    if (tti_good(b) && tti_number_at(b, c, 5) > 0 && tti_bool_at(b, c, 6))
        tti_refuse(b, "dropout between layers is not supported");
    if (!tti_good(b)) return;
    int64_t n = shape.dim[time];
    if (n < 1 || n > MAX_UNROLLED) {
        tti_refuse(b, "sequences of %lld steps are not supported, at most %d", (long long)n,
                   MAX_UNROLLED);
        return;
    }
    tti_operand *now = op(b, "aten.alias.default", ARGS(of(x)));
    tti_operand **last = tti_build_alloc(b, (size_t)(layers * ways) * sizeof *last);
    tti_operand **steps = tti_build_alloc(b, (size_t)n * sizeof *steps);
    for (int64_t layer = 0; layer < layers && tti_good(b); layer++) {
        tti_operand *outs[2] = {NULL};
        for (int way = 0; way < ways && tti_good(b); way++) {
            const tti_arg *p = params->items + (layer * ways + way) * of_one;
            tti_arg none = {0};
            tti_operand *in =
                op(b, "aten.linear.default", ARGS(of(now), p[0], biases ? p[2] : none));
            tti_operand *h = select_of(b, start, 0, layer * ways + way);
            for (int64_t i = 0; i < n && tti_good(b); i++) {
                int64_t t = way ? n - 1 - i : i;
                tti_operand *own = select_of(b, in, time, t);
                if (!is_zero(h))
                    own =
                        pair(b, "aten.add.Tensor", own,
                             op(b, "aten.linear.default", ARGS(of(h), p[1], biases ? p[3] : none)));
                else if (biases)
                    own = op(b, "aten.add.Tensor", ARGS(of(own), p[3]));
                h = steps[t] = op(b, function, ARGS(of(own)));
            }
            last[layer * ways + way] = h;
            outs[way] = op(b, "aten.stack.default", ARGS(list_of(b, steps, (int)n), num(time)));
        }
        now = both && tti_good(b) ? op(b, "aten.cat.default", ARGS(list_of(b, outs, 2), num(2)))
                                  : outs[0];
    }
    set_result(b, c, now);
    if (tti_good(b) && c->n_outs > 1 && c->out[1])
        tti_set(c->out[1],
                op(b, "aten.stack.default", ARGS(list_of(b, last, (int)layers * ways), num(0))));
}
static void rnn_tanh(tti_building *b, const tti_call *c) { rnn(b, c, "aten.tanh.default"); }
static void rnn_relu(tti_building *b, const tti_call *c) { rnn(b, c, "aten.relu.default"); }

/* ---- bags of embeddings ---- */

/* weight indices offsets scale_grad_by_freq mode sparse per_sample_weights include_last_offset
 * padding_idx: sums, means or maxima of rows in bags of equal size. */
static void embedding_bag(tti_building *b, const tti_call *c) {
    const tti_operand *ids = tti_operand_at(b, c, 1), *offsets = tti_operand_at(b, c, 2);
    int64_t mode = tti_int_at(b, c, 4), n = tti_shape_of(ids).dim[0];
    int64_t bags = tti_shape_of(offsets).dim[0], size = bags > 0 ? n / bags : 0;
    bool fits = tti_good(b) && tti_shape_of(ids).n_dims == 1 && bags > 0 && size * bags == n;
    if (tti_bool_at(b, c, 3) || tti_bool_at(b, c, 5) || tti_bool_at(b, c, 7) ||
        (tti_has(c, 8) && tti_int_at(b, c, 8) >= 0))
        tti_refuse(b,
                   "scale_grad_by_freq, sparse, include_last_offset and padding_idx are not "
                   "supported");
    if (offsets->kind != TTI_OPERAND_HOST)
        tti_refuse(b, "offsets that depend on inputs are not supported");
    for (int64_t i = 0; tti_good(b) && i < bags && fits; i++)
        fits = tti_host_at(&offsets->host, i) == (double)(i * size);
    if (tti_good(b) && (!fits || size < 1))
        tti_refuse(b, "bags of several sizes are not supported");
    if (!tti_good(b)) return;
    tti_arg to = tti_ints_arg(b, (int64_t[]){bags, size}, 2);
    tti_operand *table = op(b, "aten.reshape.default", ARGS(of(ids), to));
    tti_operand *rows = op(b, "aten.embedding.default", ARGS(*tti_arg_at(c, 0), of(table)));
    if (tti_has(c, 6)) {
        tti_operand *share = op(b, "aten.reshape.default", ARGS(*tti_arg_at(c, 6), to));
        share = op(b, "aten.unsqueeze.default", ARGS(of(share), num(-1)));
        rows = pair(b, "aten.mul.Tensor", rows, share);
    }
    if (mode == 2)
        rows = op(b, "aten.max.dim", ARGS(of(rows), num(1)));
    else
        rows = op(b, mode == 1 ? "aten.mean.dim" : "aten.sum.dim_IntList",
                  ARGS(of(rows), tti_ints_arg(b, (int64_t[]){1}, 1)));
    set_result(b, c, rows);
}

/* ---- rows ---- */

#define VIEW(target_, args, fn) \
    { .target = "aten." target_, .signature = args, .build = fn, .fold = fn, .view = true }

const tti_operator tti_operators_parts[] = {
    VIEW("tensor_split.sections", "self sections dim=0", tensor_split),
    VIEW("tensor_split.indices", "self indices dim=0", tensor_split_at),
    VIEW("hsplit.int", "self sections", hsplit),
    VIEW("hsplit.array", "self indices", hsplit_at),
    VIEW("vsplit.int", "self sections", vsplit),
    VIEW("vsplit.array", "self indices", vsplit_at),
    VIEW("diagonal.default", "self offset=0 dim1=0 dim2=1", diagonal),
    VIEW("view_as.default", "self other", view_as),
    VIEW("reshape_as.default", "self other", view_as),
    VIEW("movedim.intlist", "self source destination", movedims),
    VIEW("moveaxis.intlist", "self source destination", movedims),
    VIEW("moveaxis.int", "self source destination", movedims),
    VIEW("meshgrid.default", "tensors", meshgrid),
    VIEW("meshgrid.indexing", "tensors indexing", meshgrid),
    TTI_BOTH("slice_scatter.default", "self src dim=0 start=None end=None step=1", slice_scatter),
    TTI_BOTH("select_scatter.default", "self src dim index", select_scatter),
    TTI_BOTH("repeat_interleave.self_int", "self repeats dim=None output_size!=None",
             repeat_interleave),
    TTI_BOTH("repeat_interleave.self_Tensor", "self repeats dim=None output_size!=None",
             repeat_each),
    TTI_BOTH("tile.default", "self dims", tile),
    TTI_BOTH("prod.dim_int", "self dim keepdim=False dtype!=None", prod_dim),
    TTI_BOTH("prod.default", "self dtype!=None", prod_all),
    TTI_BOTH("cumprod.default", "self dim dtype!=None", cumprod),
    TTI_BOTH("norm_except_dim.default", "v pow=2 dim=0", norm_except_dim),
    TTI_BOTH("rnn_tanh.input",
             "input hx params has_biases num_layers dropout train bidirectional batch_first",
             rnn_tanh),
    TTI_BOTH("rnn_relu.input",
             "input hx params has_biases num_layers dropout train bidirectional batch_first",
             rnn_relu),
    TTI_BOTH("embedding_bag.padding_idx",
             "weight indices offsets scale_grad_by_freq mode sparse per_sample_weights "
             "include_last_offset padding_idx",
             embedding_bag),
    TTI_BOTH("embedding_bag.default",
             "weight indices offsets scale_grad_by_freq=False mode=0 sparse=False "
             "per_sample_weights=None include_last_offset=False",
             embedding_bag),
    {0},
};

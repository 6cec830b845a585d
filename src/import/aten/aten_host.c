/* aten_host.c - operators that create or read constants: filled tensors, ranges, triangles, running
 * sums, indices. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* Returns the element type in argument k, or fallback if it is omitted. */
static tti_elem elem_at(tti_building *b, const tti_call *c, int k, tti_elem fallback) {
    return tti_has(c, k) ? (tti_elem)tti_int_at(b, c, k) : fallback;
}

static void fill(tti_building *b, const tutti_shape *shape, tti_elem elem, double value,
                 tti_operand *out) {
    tti_host made;
    if (!tti_good(b) || !tti_host_new(b, elem, shape, &made)) return;
    int64_t n = tti_host_n(&made);
    for (int64_t i = 0; i < n; i++) made.data[i] = tti_round(elem, value);
    tti_set_host(out, &made);
}

static tutti_shape shape_at(tti_building *b, const tti_call *c, int k) {
    tutti_shape shape = {0};
    shape.n_dims = tti_ints_at(b, c, k, shape.dim);
    return shape;
}

/* Marks a tensor as having a row for each sample if its first size, in argument k, is the batch
 * size. */
static void mark_batch(tti_building *b, const tti_call *c, int k) {
    if (tti_good(b) && c->out[0] && tti_is_batch_item(b, c, k, 0)) c->out[0]->host.of_batch = true;
}

/* zeros, ones: size dtype */
static void filled(tti_building *b, const tti_call *c, double value) {
    tutti_shape shape = shape_at(b, c, 0);
    fill(b, &shape, elem_at(b, c, 1, TTI_ELEM_F32), value, c->out[0]);
    mark_batch(b, c, 0);
}
static void zeros(tti_building *b, const tti_call *c) { filled(b, c, 0); }
static void ones(tti_building *b, const tti_call *c) { filled(b, c, 1); }

/* new_zeros, new_ones: self size dtype */
static void new_filled(tti_building *b, const tti_call *c, double value) {
    tutti_shape shape = shape_at(b, c, 1);
    tti_elem elem = elem_at(b, c, 2, tti_elem_of(tti_operand_at(b, c, 0)));
    fill(b, &shape, elem, value, c->out[0]);
    mark_batch(b, c, 1);
}
static void new_zeros(tti_building *b, const tti_call *c) { new_filled(b, c, 0); }
static void new_ones(tti_building *b, const tti_call *c) { new_filled(b, c, 1); }

/* self size fill_value dtype */
static void new_full(tti_building *b, const tti_call *c) {
    tutti_shape shape = shape_at(b, c, 1);
    tti_elem elem = elem_at(b, c, 3, tti_elem_of(tti_operand_at(b, c, 0)));
    fill(b, &shape, elem, tti_number_at(b, c, 2), c->out[0]);
    mark_batch(b, c, 1);
}

static tti_elem elem_of_number(const tti_call *c, int k) {
    return c->arg[k]->kind == TTI_ARG_FLOAT  ? TTI_ELEM_F32
           : c->arg[k]->kind == TTI_ARG_BOOL ? TTI_ELEM_BOOL
                                             : TTI_ELEM_I64;
}

/* size fill_value dtype */
static void full(tti_building *b, const tti_call *c) {
    tutti_shape shape = shape_at(b, c, 0);
    fill(b, &shape, elem_at(b, c, 2, elem_of_number(c, 1)), tti_number_at(b, c, 1), c->out[0]);
    mark_batch(b, c, 0);
}

/* self dtype. The shape is known even if self depends on inputs. */
static void like(tti_building *b, const tti_call *c, int dtype, double value) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    int batch_dim = tti_batch_dim_of(b, x);
    fill(b, &shape, elem_at(b, c, dtype, tti_elem_of(x)), value, c->out[0]);
    if (!tti_good(b) || !c->out[0] || batch_dim < 0) return;
    c->out[0]->host.of_batch = batch_dim == 0;
    c->out[0]->host.batch_dim = batch_dim;
}
static void zeros_like(tti_building *b, const tti_call *c) { like(b, c, 1, 0); }
static void ones_like(tti_building *b, const tti_call *c) { like(b, c, 1, 1); }
static void full_like(tti_building *b, const tti_call *c) { like(b, c, 2, tti_number_at(b, c, 1)); }

static void scalar_tensor(tti_building *b, const tti_call *c) {
    fill(b, &(tutti_shape){0}, elem_at(b, c, 1, elem_of_number(c, 0)), tti_number_at(b, c, 0),
         c->out[0]);
}

static void range(tti_building *b, double start, double end, double step, tti_elem elem,
                  tti_operand *out) {
    tti_host made;
    double n = ceil((end - start) / step);
    if (!tti_good(b)) return;
    if (!(step != 0 && n < 0x1p40)) {
        tti_refuse(b, "the range does not end");
        return;
    }
    if (!tti_host_new(b, elem, &TUTTI_SHAPE((int64_t)fmax(n, 0)), &made)) return;
    int64_t count = tti_host_n(&made);
    for (int64_t i = 0; i < count; i++) made.data[i] = tti_round(elem, start + (double)i * step);
    tti_set_host(out, &made);
}

static bool is_float_arg(const tti_call *c, int k) { return c->arg[k]->kind == TTI_ARG_FLOAT; }

static void arange(tti_building *b, const tti_call *c) {
    tti_elem elem = elem_at(b, c, 1, is_float_arg(c, 0) ? TTI_ELEM_F32 : TTI_ELEM_I64);
    range(b, 0, tti_number_at(b, c, 0), 1, elem, c->out[0]);
}
static void arange_start(tti_building *b, const tti_call *c) {
    bool floats = is_float_arg(c, 0) || is_float_arg(c, 1);
    range(b, tti_number_at(b, c, 0), tti_number_at(b, c, 1), 1,
          elem_at(b, c, 2, floats ? TTI_ELEM_F32 : TTI_ELEM_I64), c->out[0]);
}
static void arange_step(tti_building *b, const tti_call *c) {
    bool floats = is_float_arg(c, 0) || is_float_arg(c, 1) || is_float_arg(c, 2);
    range(b, tti_number_at(b, c, 0), tti_number_at(b, c, 1), tti_number_at(b, c, 2),
          elem_at(b, c, 3, floats ? TTI_ELEM_F32 : TTI_ELEM_I64), c->out[0]);
}

/* n numbers from start to end, or base to the power of these. */
static void spaced(tti_building *b, const tti_call *c, double base, int dtype) {
    double start = tti_number_at(b, c, 0), end = tti_number_at(b, c, 1);
    int64_t n = tti_int_at(b, c, 2);
    tti_elem elem = elem_at(b, c, dtype, TTI_ELEM_F32);
    tti_host made;
    if (tti_good(b) && n < 0) tti_refuse(b, "%lld steps", (long long)n);
    if (!tti_good(b) || !tti_host_new(b, elem, &TUTTI_SHAPE(n), &made)) return;
    double step = n > 1 ? (end - start) / (double)(n - 1) : 0;
    for (int64_t i = 0; i < n; i++) { /* computed from both ends, as in PyTorch */
        double x =
            i < n / 2 || n == 1 ? start + step * (double)i : end - step * (double)(n - 1 - i);
        made.data[i] = tti_round(elem, base > 0 ? pow(base, x) : x);
    }
    tti_set_host(c->out[0], &made);
}
static void linspace(tti_building *b, const tti_call *c) { spaced(b, c, 0, 3); }
static void logspace(tti_building *b, const tti_call *c) {
    double base = tti_number_at(b, c, 3);
    if (tti_good(b) && !(base > 0)) tti_refuse(b, "the base %g is not supported", base);
    if (tti_good(b)) spaced(b, c, base, 4);
}

static void identity(tti_building *b, const tti_call *c, int64_t m, int dtype) {
    int64_t n = tti_int_at(b, c, 0);
    tti_host made;
    if (tti_good(b) && (n < 0 || m < 0)) tti_refuse(b, "a size is negative");
    if (!tti_good(b) ||
        !tti_host_new(b, elem_at(b, c, dtype, TTI_ELEM_F32), &TUTTI_SHAPE(n, m), &made))
        return;
    for (int64_t i = 0; i < TTI_MIN(n, m); i++) made.data[i * m + i] = 1;
    tti_set_host(c->out[0], &made);
}
static void eye(tti_building *b, const tti_call *c) { identity(b, c, tti_int_at(b, c, 0), 1); }
static void eye_m(tti_building *b, const tti_call *c) { identity(b, c, tti_int_at(b, c, 1), 2); }

/* ---- functions of constants ---- */

static void triangle(tti_building *b, const tti_call *c, bool upper) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t diagonal = tti_int_at(b, c, 1);
    tti_host made;
    int n_dims = tti_shape_of(x).n_dims;
    if (n_dims < 2) tti_refuse(b, "the tensor has fewer than two dimensions");
    if (!tti_good(b) || !tti_host_copy(b, &x->host, &made)) return;
    int64_t rows = made.shape.dim[n_dims - 2], columns = made.shape.dim[n_dims - 1];
    int64_t n = tti_host_n(&made);
    for (int64_t i = 0; i < n; i++) {
        int64_t above = i % columns - i / columns % rows;
        bool kept = upper ? above >= diagonal : above <= diagonal;
        if (!kept) made.data[i] = 0;
    }
    tti_set_host(c->out[0], &made);
}

/* For graph values: multiplies by a constant mask of the kept elements. */
static void keep_triangle(tti_building *b, const tti_call *c, bool upper) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t diagonal = tti_int_at(b, c, 1);
    tutti_shape shape = tti_shape_of(x);
    tti_host mask;
    if (tti_good(b) && shape.n_dims < 2) tti_refuse(b, "the tensor has fewer than two dimensions");
    if (!tti_good(b)) return;
    int64_t rows = shape.dim[shape.n_dims - 2], columns = shape.dim[shape.n_dims - 1];
    if (!tti_host_new(b, TTI_ELEM_F32, &TUTTI_SHAPE(rows, columns), &mask)) return;
    for (int64_t i = 0; i < rows * columns; i++) {
        int64_t above = i % columns - i / columns;
        mask.data[i] = upper ? above >= diagonal : above <= diagonal;
    }
    tti_operand own = {.kind = TTI_OPERAND_HOST, .host = mask};
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    tti_set_value(b, c->out[0], tutti_keep(tti_graph_of(b), value, tti_value_of(b, &own)),
                  tti_elem_of(x), tti_of_batch(x));
}
static void keep_triu(tti_building *b, const tti_call *c) { keep_triangle(b, c, true); }
static void keep_tril(tti_building *b, const tti_call *c) { keep_triangle(b, c, false); }
static void triu(tti_building *b, const tti_call *c) { triangle(b, c, true); }
static void tril(tti_building *b, const tti_call *c) { triangle(b, c, false); }

/* row col offset: the indices of a triangle of [rows, cols], as two rows. */
static void triangle_places(tti_building *b, const tti_call *c, bool upper) {
    int64_t rows = tti_int_at(b, c, 0), cols = tti_int_at(b, c, 1), offset = tti_int_at(b, c, 2);
    tti_elem elem = elem_at(b, c, 3, TTI_ELEM_I64);
    int64_t n = 0, most = (int64_t)1 << 14;
    tti_host made;
    if (rows < 0 || cols < 0 || rows > most || cols > most)
        tti_refuse(b, "a matrix of %lld x %lld is not supported", (long long)rows, (long long)cols);
    for (int pass = 0; pass < 2 && tti_good(b); pass++) {
        if (pass == 1 && !tti_host_new(b, elem, &TUTTI_SHAPE(2, n), &made)) return;
        int64_t at = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++) {
                if (upper ? j - i < offset : j - i > offset) continue;
                if (pass == 1) made.data[at] = (double)i, made.data[n + at] = (double)j;
                at++;
            }
        n = at;
    }
    if (tti_good(b)) tti_set_host(c->out[0], &made);
}
static void tril_places(tti_building *b, const tti_call *c) { triangle_places(b, c, false); }
static void triu_places(tti_building *b, const tti_call *c) { triangle_places(b, c, true); }

/* self n dim prepend append: differences of neighbours, for n = 1. */
static void diff(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int dim = tti_dim_at(b, c, 2, tti_shape_of(x).n_dims);
    if (tti_int_at(b, c, 1) != 1 || tti_has(c, 4))
        tti_refuse(b, "n other than 1 and append are not supported");
    const tti_operand *before = tti_has(c, 3) ? tti_operand_at(b, c, 3) : NULL;
    tti_host made;
    if (!tti_good(b)) return;
    tutti_shape shape = tti_shape_of(x);
    int64_t ahead = before ? tti_shape_of(before).dim[dim] : 0, own = shape.dim[dim];
    if (before && tti_shape_of(before).n_dims != shape.n_dims)
        tti_refuse(b, "prepend does not fit");
    shape.dim[dim] = TTI_MAX(own + ahead - 1, 0);
    if (!tti_good(b) || !tti_host_new(b, x->host.elem, &shape, &made)) return;
    int64_t n = tti_host_n(&made), step = made.stride[dim];
    tti_host p = x->host, q = before ? before->host : x->host;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / step % shape.dim[dim], rest[TUTTI_MAX_DIMS], left = i;
        for (int d = shape.n_dims - 1; d >= 0; d--)
            rest[d] = left % shape.dim[d], left /= shape.dim[d];
        double value[2];
        for (int k = 0; k < 2; k++) {
            const tti_host *h = at + k < ahead ? &q : &p;
            rest[dim] = at + k < ahead ? at + k : at + k - ahead;
            int64_t place = h->offset;
            for (int d = 0; d < shape.n_dims; d++)
                place += (h->shape.dim[d] == 1 ? 0 : rest[d]) * h->stride[d];
            value[k] = h->data[place];
        }
        made.data[i] = tti_round(made.elem, value[1] - value[0]);
    }
    tti_set_host(c->out[0], &made);
}

/* The same for graph values. */
static void diff_values(tti_building *b, const tti_call *c) {
    tti_operand joined = {0}, part[2] = {0};
    tti_arg x = *c->arg[0];
    int dim = tti_dim_at(b, c, 2, tti_shape_of(tti_operand_at(b, c, 0)).n_dims);
    if (tti_int_at(b, c, 1) != 1 || tti_has(c, 4))
        tti_refuse(b, "n other than 1 and append are not supported");
    if (tti_good(b) && tti_has(c, 3)) {
        const tti_arg both[] = {*c->arg[3], x};
        tti_call_row(b, "aten.cat.default",
                     (tti_arg[]){{.kind = TTI_ARG_LIST, .items = both, .n = 2}, tti_int_arg(dim)},
                     2, (tti_operand *[]){&joined}, 1);
        x = tti_operand_arg(&joined);
    }
    if (!tti_good(b)) return;
    int64_t n = tti_shape_of(tti_operand_of(b, &x)).dim[dim];
    for (int k = 0; k < 2 && tti_good(b); k++)
        tti_call_row(b, "aten.narrow.default",
                     (tti_arg[]){x, tti_int_arg(dim), tti_int_arg(1 - k), tti_int_arg(n - 1)}, 4,
                     (tti_operand *[]){&part[k]}, 1);
    if (tti_good(b))
        tti_call_row(b, "aten.sub.Tensor",
                     (tti_arg[]){tti_operand_arg(&part[0]), tti_operand_arg(&part[1])}, 2, c->out,
                     1);
}

/* ---- sizes, and operators without an effect ---- */

/* Returns the number of elements along dims that belong to present rows; NULL: there is no
 * padding. */
static tutti_value *live_size(tti_building *b, const tti_operand *x, unsigned dims) {
    if (x->kind != TTI_OPERAND_GRAPH || !tti_of_batch(x)) return NULL;
    tutti_value *value = tti_value_of(b, x);
    return tti_sample_dims(b, value, dims) != 0 ? tti_n_present_in(b, value, dims) : NULL;
}

static void sym_size(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, shape.n_dims);
    if (!tti_good(b)) return;
    bool is_batch = dim == 0 && tti_of_batch(x) && shape.dim[0] == tti_batch_rows(b);
    tutti_value *live = live_size(b, x, 1u << dim);
    tti_set_number(c->out[0], (double)shape.dim[dim], TTI_ELEM_I64, is_batch);
    tti_set_live(b, c->out[0], live);
}

static void sym_numel(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    tutti_value *live = live_size(b, x, ~0u);
    bool is_batch = shape.n_dims == 1 && tti_of_batch(x) && shape.dim[0] == tti_batch_rows(b);
    tti_set_number(c->out[0], (double)tutti_shape_n_elems(&shape), TTI_ELEM_I64, is_batch);
    tti_set_live(b, c->out[0], live);
}

static void nothing(tti_building *b, const tti_call *c) { (void)b, (void)c; }

static void item(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_good(b)) tti_set_number(c->out[0], tti_number_at(b, c, 0), tti_elem_of(x), false);
}

/* self value: fills self, whose old elements are not read. */
static void fill_with(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    fill(b, &shape, tti_elem_of(x), tti_number_at(b, c, 1), c->out[0]);
}
static void zero(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    fill(b, &shape, tti_elem_of(x), 0, c->out[0]);
}
static void copy(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *source = tti_operand_at(b, c, 1);
    tutti_shape shape = tti_shape_of(x), own = tti_shape_of(source);
    tti_host view;
    if (!tti_good(b)) return;
    if (source->kind == TTI_OPERAND_HOST) {
        if (tti_host_expand(b, &source->host, &shape, &view)) tti_set_host(c->out[0], &view);
        return;
    }
    if (own.n_dims != shape.n_dims || memcmp(own.dim, shape.dim, sizeof own.dim) != 0)
        tti_refuse(b, "the shapes differ");
    tti_set_value(b, c->out[0], tti_value_of(b, source), tti_elem_of(x), tti_of_batch(source));
}

#define MAKE(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn, .fold = fn }
#define WHERE " layout!=None device!=None pin_memory!=None"

const tti_operator tti_operators_host[] = {
    MAKE("zeros.default", "size dtype=None" WHERE, zeros),
    MAKE("ones.default", "size dtype=None" WHERE, ones),
    MAKE("empty.memory_format", "size dtype=None" WHERE " memory_format!=None", zeros),
    MAKE("full.default", "size fill_value dtype=None" WHERE, full),
    MAKE("new_zeros.default", "self size dtype=None" WHERE, new_zeros),
    MAKE("new_empty.default", "self size dtype=None" WHERE, new_zeros),
    MAKE("new_ones.default", "self size dtype=None" WHERE, new_ones),
    MAKE("new_full.default", "self size fill_value dtype=None" WHERE, new_full),
    MAKE("zeros_like.default", "self dtype=None" WHERE " memory_format!=None", zeros_like),
    MAKE("ones_like.default", "self dtype=None" WHERE " memory_format!=None", ones_like),
    MAKE("full_like.default", "self fill_value dtype=None" WHERE " memory_format!=None", full_like),
    MAKE("scalar_tensor.default", "s dtype=None" WHERE, scalar_tensor),
    MAKE("arange.default", "end dtype=None" WHERE, arange),
    MAKE("arange.start", "start end dtype=None" WHERE, arange_start),
    MAKE("arange.start_step", "start end step=1 dtype=None" WHERE, arange_step),
    MAKE("linspace.default", "start end steps dtype=None" WHERE, linspace),
    MAKE("logspace.default", "start end steps base=10.0 dtype=None" WHERE, logspace),
    MAKE("eye.default", "n dtype=None" WHERE, eye),
    MAKE("eye.m", "n m dtype=None" WHERE, eye_m),
    {.target = "aten.triu.default",
     .signature = "self diagonal=0",
     .build = keep_triu,
     .fold = triu},
    {.target = "aten.tril.default",
     .signature = "self diagonal=0",
     .build = keep_tril,
     .fold = tril},
    {.target = "aten.diff.default",
     .signature = "self n=1 dim=-1 prepend=None append=None",
     .build = diff_values,
     .fold = diff},
    MAKE("tril_indices.default", "row col offset=0 dtype=None" WHERE, tril_places),
    MAKE("triu_indices.default", "row col offset=0 dtype=None" WHERE, triu_places),
    MAKE("sym_size.int", "self dim", sym_size),
    MAKE("sym_numel.default", "self", sym_numel),
    MAKE("item.default", "self", item),
    MAKE("_assert_tensor_metadata.default",
         "a! size!=None stride!=None dtype!=None device!=None layout!=None", nothing),
    MAKE("_assert_scalar.default", "self! assert_msg!", nothing),
    MAKE("_assert_async.default", "self!", nothing),
    MAKE("_assert_async.msg", "self! assert_msg!", nothing),
    MAKE("fill.Tensor", "self value", fill_with),
    MAKE("fill.Scalar", "self value", fill_with),
    MAKE("empty_like.default", "self dtype=None" WHERE " memory_format!=None", zeros_like),
    MAKE("zero.default", "self", zero),
    MAKE("copy.default", "self src non_blocking!=False", copy),
    {0},
};

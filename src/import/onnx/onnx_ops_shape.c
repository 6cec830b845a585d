/* onnx_ops_shape.c - ONNX operators that move elements or compute shapes, as equivalent PyTorch
 * operators. ONNX computes shapes with nodes; here they are host tensors. */
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx.h"
#include "import/onnx/onnx_ops.h"

/* ---- shapes ---- */

static void set_ints(tti_building *b, const int64_t *list, int n, tti_operand *out) {
    tti_host made;
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(n), &made)) return;
    for (int i = 0; i < n; i++) made.data[i] = (double)list[i];
    tti_set_host(out, &made);
}

/* data start end */
static void shape(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape s = tti_shape_of(x);
    int64_t start = tti_int_at(b, c, 1), end = tti_has(c, 2) ? tti_int_at(b, c, 2) : s.n_dims;
    if (start < 0) start += s.n_dims;
    if (end < 0) end += s.n_dims;
    start = TTI_MIN(TTI_MAX(start, 0), s.n_dims);
    end = TTI_MIN(TTI_MAX(end, start), s.n_dims);
    set_ints(b, s.dim + start, (int)(end - start), c->out[0]);
    if (c->out[0] && tti_good(b)) c->out[0]->of_shape = tti_of_batch(x) || x->of_shape;
}

static void size(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape s = tti_shape_of(x);
    tti_host made;
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &(tutti_shape){0}, &made)) return;
    made.data[0] = (double)tutti_shape_n_elems(&s);
    tti_set_host(c->out[0], &made);
}

/* Reads a list as a shape. */
static bool read_shape(tti_building *b, const tti_call *c, int k, tutti_shape *out) {
    int n;
    const int64_t *list = tti_list_at(b, c, k, &n);
    *out = (tutti_shape){.n_dims = n};
    if (n > TUTTI_MAX_DIMS) tti_refuse(b, "a shape of %d dimensions is not supported", n);
    if (!tti_good(b)) return false;
    for (int d = 0; d < n; d++) out->dim[d] = list[d];
    return true;
}

/* data shape allowzero: 0 keeps a dimension. */
static void reshape(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape from = tti_shape_of(x), to;
    if (!read_shape(b, c, 1, &to)) return;
    bool keeps = !tti_bool_at(b, c, 2);
    for (int d = 0; d < to.n_dims; d++) {
        if (to.dim[d] != 0 || !keeps) continue;
        if (d >= from.n_dims)
            tti_refuse(b, "the new shape copies a dimension that the tensor does not have");
        to.dim[d] = from.dim[d];
    }
    tti_do_reshape(b, x, &to, c->out[0]);
}

/* input axis: the result is [dimensions before axis, the rest] */
static void flatten(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape from = tti_shape_of(x), to = TUTTI_SHAPE(1, 1);
    int64_t axis = tti_int_at(b, c, 1);
    if (axis < 0) axis += from.n_dims;
    if (axis < 0 || axis > from.n_dims) tti_refuse(b, "axis %lld", (long long)axis);
    for (int d = 0; d < from.n_dims; d++) to.dim[d >= axis] *= from.dim[d];
    tti_do_reshape(b, x, &to, c->out[0]);
}

/* data perm: by default all dimensions are reversed. */
static void transpose(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n_dims = tti_shape_of(x).n_dims, perm[TUTTI_MAX_DIMS], n = n_dims;
    unsigned seen = 0;
    const int64_t *list = tti_has(c, 1) ? tti_list_at(b, c, 1, &n) : NULL;
    if (n != n_dims) tti_refuse(b, "perm has %d dimensions, the tensor %d", n, n_dims);
    for (int d = 0; tti_good(b) && d < n_dims; d++) {
        perm[d] = list ? tti_wrap_dim(b, list[d], n_dims) : n_dims - 1 - d;
        seen |= 1u << perm[d];
    }
    if (tti_good(b) && seen != (1u << n_dims) - 1) tti_refuse(b, "perm is not a permutation");
    tti_do_permute(b, x, perm, c->out[0]);
    bool is_matrix = tti_good(b) && n_dims == 2 && perm[0] == 1 && x->kind == TTI_OPERAND_GRAPH;
    if (is_matrix && c->out[0] && !x->of_input && x->rows == 0) c->out[0]->transpose_of = x->value;
}

/* data axes */
static void squeeze(tti_building *b, const tti_call *c) {
    int n = 0;
    const int64_t *axes = tti_has(c, 1) ? tti_list_at(b, c, 1, &n) : NULL;
    tti_arg args[2] = {*c->arg[0], tti_ints_arg(b, axes, n)};
    if (tti_good(b))
        tti_call_row(b, axes ? "aten.squeeze.dims" : "aten.squeeze.default", args, axes ? 2 : 1,
                     c->out, 1);
}

/* data axes: axes of the result */
static void unsqueeze(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n, n_dims = tti_shape_of(x).n_dims;
    const int64_t *axes = tti_list_at(b, c, 1, &n);
    unsigned added = 0;
    if (n + n_dims > TUTTI_MAX_DIMS) tti_refuse(b, "the result has too many dimensions");
    for (int i = 0; tti_good(b) && i < n; i++) added |= 1u << tti_wrap_dim(b, axes[i], n + n_dims);
    if (tti_good(b) && __builtin_popcount(added) != n) tti_refuse(b, "an axis is given twice");
    if (!tti_good(b)) return;
    tti_operand now = *x;
    for (int d = 0; d < n + n_dims && tti_good(b); d++) {
        tti_operand next = {0};
        if (!(added >> d & 1u)) continue;
        tti_call_row(b, "aten.unsqueeze.default",
                     (tti_arg[]){tti_operand_arg(&now), tti_int_arg(d)}, 2,
                     (tti_operand *[]){&next}, 1);
        now = next;
    }
    if (tti_good(b)) tti_set(c->out[0], &now);
}

/* ---- repeating ---- */

/* Returns a bit mask of the sizes in argument k, a shape, that are the batch size: those that the
 * file states for the result, or the first one if it was computed from a shape. */
static unsigned batch_items(const tti_building *b, const tti_call *c, int k, int n) {
    const tti_operand *x = tti_operand_named(b, c->arg[k]);
    tti_known_dims known = tti_known_result(b, 0);
    unsigned guessed = tti_has_fixed_batch(b) || (x && x->of_shape);
    return known.n_dims == n ? known.of_batch | (guessed & ~(unsigned)known.fixed) : guessed;
}

/* Returns a shape as a list, whose sizes in bit mask of_batch may be the batch size. */
static tti_arg shape_arg(tti_building *b, const tutti_shape *s, unsigned of_batch) {
    tti_arg list = tti_ints_arg(b, s->dim, s->n_dims);
    for (int d = 0; d < s->n_dims && tti_good(b); d++) {
        if (!(of_batch >> d & 1u) || s->dim[d] != tti_batch_rows(b)) continue;
        tti_operand *size = tti_build_alloc(b, sizeof *size);
        if (!size) return list;
        tti_set_number(size, (double)s->dim[d], TTI_ELEM_I64, true);
        ((tti_arg *)(uintptr_t)list.items)[d] = tti_operand_arg(size);
    }
    return list;
}

/* input shape: both broadcast to each other */
static void expand(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape from = tti_shape_of(x), to;
    if (!read_shape(b, c, 1, &to)) return;
    tutti_shape asked = to;
    if (!tti_host_broadcast(b, &from, &asked, &to)) return;
    tti_arg list = shape_arg(b, &to, batch_items(b, c, 1, to.n_dims));
    if (tti_good(b))
        tti_call_row(b, "aten.expand.default", (tti_arg[]){*c->arg[0], list}, 2, c->out, 1);
}

/* input repeats */
static void tile(tti_building *b, const tti_call *c) {
    tutti_shape times;
    if (!read_shape(b, c, 1, &times)) return;
    tti_arg list = shape_arg(b, &times, batch_items(b, c, 1, times.n_dims));
    if (tti_good(b))
        tti_call_row(b, "aten.repeat.default", (tti_arg[]){*c->arg[0], list}, 2, c->out, 1);
}

/* ---- parts ---- */

/* Slices one dimension. For a negative step, reverses the elements first and counts from the other
 * end. */
static void slice_one(tti_building *b, tti_operand *x, int dim, int64_t range[2], int64_t step) {
    tti_operand transpose_of = *x, part = {0};
    int64_t n = tti_shape_of(x).dim[dim], start = range[0], end = range[1];
    if (step < 0) {
        start = start < 0 ? start + n : start;
        end = end < 0 ? end + n : end;
        start = n - 1 - TTI_MIN(TTI_MAX(start, -1), n - 1);
        end = n - 1 - TTI_MIN(TTI_MAX(end, -1), n - 1);
        step = -TTI_MAX(step, -((int64_t)1 << 53));
        tti_call_row(b, "aten.flip.default", (tti_arg[]){tti_operand_arg(x), tti_int_arg(dim)}, 2,
                     (tti_operand *[]){&transpose_of}, 1);
    }
    tti_call_row(b, "aten.slice.Tensor",
                 (tti_arg[]){tti_operand_arg(&transpose_of), tti_int_arg(dim), tti_int_arg(start),
                             tti_int_arg(end), tti_int_arg(step)},
                 5, (tti_operand *[]){&part}, 1);
    *x = part;
}

/* input sequence_lens batch_axis time_axis. The lengths must cover the whole axis, as in an
 * exported flip. */
static void reverse_sequence(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *n = tti_operand_at(b, c, 1);
    int axis = tti_dim_at(b, c, 3, tti_shape_of(x).n_dims);
    double length = -1;
    if (!tti_good(b)) return;
    bool uniform = n->kind == TTI_OPERAND_HOST && tti_host_uniform(&n->host, &length);
    if (!uniform || length != (double)tti_shape_of(x).dim[axis])
        tti_refuse(b, "sequence_lens other than the whole axis is not supported");
    if (tti_good(b))
        tti_call_row(b, "aten.flip.default", (tti_arg[]){*c->arg[0], tti_int_arg(axis)}, 2, c->out,
                     1);
}

/* data starts ends axes steps */
static void slice(tti_building *b, const tti_call *c) {
    tti_operand now = *tti_operand_at(b, c, 0);
    int n_starts, n_ends, n_axes = 0, n_steps = 0, n_dims = tti_shape_of(&now).n_dims;
    const int64_t *starts = tti_list_at(b, c, 1, &n_starts), *ends = tti_list_at(b, c, 2, &n_ends);
    const int64_t *axes = tti_has(c, 3) ? tti_list_at(b, c, 3, &n_axes) : NULL;
    const int64_t *steps = tti_has(c, 4) ? tti_list_at(b, c, 4, &n_steps) : NULL;
    if (n_starts != n_ends || (axes && n_axes != n_starts) || (steps && n_steps != n_starts) ||
        n_starts > n_dims)
        tti_refuse(b, "starts, ends, axes and steps differ in length");
    for (int i = 0; tti_good(b) && i < n_starts; i++) {
        int dim = tti_wrap_dim(b, axes ? axes[i] : i, n_dims);
        if (tti_good(b))
            slice_one(b, &now, dim, (int64_t[]){starts[i], ends[i]}, steps ? steps[i] : 1);
    }
    if (tti_good(b)) tti_set(c->out[0], &now);
}

/* input split axis num_outputs */
static void split(tti_building *b, const tti_call *c) {
    const tti_operand x = *tti_operand_at(b, c, 0);
    tutti_shape s = tti_shape_of(&x);
    int dim = tti_dim_at(b, c, 2, s.n_dims), n = 0;
    const int64_t *sizes = tti_has(c, 1) ? tti_list_at(b, c, 1, &n) : NULL;
    int64_t parts = tti_has(c, 3) ? tti_int_at(b, c, 3) : c->n_outs, start = 0;
    if (sizes ? n != c->n_outs : parts != c->n_outs)
        tti_refuse(b, "the sizes of the parts do not match the tensor");
    if (s.n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (!tti_good(b)) return;
    int64_t each = (s.dim[dim] + parts - 1) / parts;
    for (int i = 0; i < c->n_outs && tti_good(b); i++) {
        int64_t len = sizes ? sizes[i] : TTI_MIN(each, s.dim[dim] - start);
        if (len < 0 || len > s.dim[dim] - start) tti_refuse(b, "the sizes do not match the tensor");
        tti_do_slice(b, &x, dim, start, len, 1, c->out[i]);
        start += len;
    }
}

/* ---- sequences ---- */

static void set_list(tti_building *b, tti_operand *items, int n, tti_operand *out) {
    if (!out || !tti_good(b)) return;
    *out = (tti_operand){.kind = TTI_OPERAND_LIST, .items = items, .n_items = n};
}

static tti_operand *new_items(tti_building *b, int64_t n) {
    tti_operand *items =
        n >= 0 && n < 1 << 20 ? tti_build_alloc(b, ((size_t)n + 1) * sizeof *items) : NULL;
    if (!items) tti_refuse(b, "a sequence of %lld tensors is not supported", (long long)n);
    return items;
}

/* True for indices [..,1] of which some are constants that differ between samples, and others
 * depend on inputs: x[arange(N), ids]. */
static bool are_indices_by_sample(tti_building *b, const tti_arg *list, int64_t axis) {
    int64_t rows = tti_batch_rows(b);
    bool any = false, of_batch = false;
    if (list->kind != TTI_ARG_LIST || list->n < 2) return false;
    for (int i = 0; i < list->n; i++) {
        const tti_operand *x = tti_operand_named(b, &list->items[i]);
        tutti_shape s = x ? tti_shape_of(x) : (tutti_shape){0};
        int last = s.n_dims - 1;
        if (last < 1 || s.dim[last] != 1 || (axis != -1 && axis != last)) return false;
        if (tti_elem_is_float(tti_elem_of(x))) return false;
        of_batch |= tti_of_batch(x);
        any |= x->kind == TTI_OPERAND_HOST && s.dim[0] == rows && rows > 1 &&
               !tti_host_repeats(&x->host, 0);
    }
    return any && of_batch;
}

/* *inputs axis. Such indices remain a list, which GatherND and ScatterND accept. */
static void concat(tti_building *b, const tti_call *c) {
    const tti_arg *list = tti_arg_at(c, 0);
    int64_t axis = tti_int_at(b, c, 1);
    if (!tti_good(b)) return;
    if (!are_indices_by_sample(b, list, axis)) {
        tti_call_row(b, "aten.cat.default", (tti_arg[]){*list, *c->arg[1]}, 2, c->out, 1);
        return;
    }
    tti_operand *items = new_items(b, list->n);
    for (int i = 0; items && i < list->n; i++) items[i] = *tti_operand_of(b, &list->items[i]);
    set_list(b, items, list->n, c->out[0]);
}

/* input split axis keepdims */
static void split_to_sequence(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape s = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 2, s.n_dims), n_sizes = 0;
    const int64_t *sizes = tti_has(c, 1) ? tti_list_at(b, c, 1, &n_sizes) : NULL;
    if (s.n_dims < 1 || (!sizes && !tti_bool_at(b, c, 3))) tti_refuse(b, "keepdims=0");
    if (!tti_good(b)) return;
    const tti_operand *by = sizes ? tti_operand_named(b, c->arg[1]) : NULL;
    bool is_list = by && tti_shape_of(by).n_dims == 1;
    int64_t each = sizes && !is_list && n_sizes == 1 ? sizes[0] : 1;
    if (each < 1) tti_refuse(b, "a part of %lld elements is not possible", (long long)each);
    if (!tti_good(b)) return;
    int64_t n = is_list ? n_sizes : (s.dim[dim] + each - 1) / each, start = 0;
    tti_operand *items = new_items(b, n);
    for (int i = 0; items && i < n && tti_good(b); i++) {
        int64_t len = is_list ? sizes[i] : TTI_MIN(each, s.dim[dim] - start);
        if (len < 0 || len > s.dim[dim] - start) tti_refuse(b, "the sizes do not match the tensor");
        tti_do_slice(b, x, dim, start, len, 1, &items[i]);
        start += len;
    }
    if (tti_good(b)) set_list(b, items, (int)n, c->out[0]);
}

static const tti_operand *sequence_at(tti_building *b, const tti_call *c, int k) {
    const tti_operand *list = tti_operand_at(b, c, k);
    if (list->kind != TTI_OPERAND_LIST) tti_refuse(b, "an input is not a sequence");
    return tti_good(b) ? list : NULL;
}

/* input_sequence position */
static void sequence_item(tti_building *b, const tti_call *c) {
    const tti_operand *list = sequence_at(b, c, 0);
    int64_t at = tti_int_at(b, c, 1);
    if (!list || !tti_good(b)) return;
    if (at < 0) at += list->n_items;
    if (at < 0 || at >= list->n_items)
        tti_refuse(b, "there is no item %lld in a sequence of %d", (long long)at, list->n_items);
    else
        tti_set(c->out[0], &list->items[at]);
}

static void sequence_construct(tti_building *b, const tti_call *c) {
    tti_operand *items = new_items(b, c->arg[0]->n);
    for (int i = 0; items && i < c->arg[0]->n && tti_good(b); i++)
        items[i] = *tti_operand_of(b, &c->arg[0]->items[i]);
    set_list(b, items, c->arg[0]->n, c->out[0]);
}

/* input_sequence axis new_axis */
static void concat_from_sequence(tti_building *b, const tti_call *c) {
    const tti_operand *list = sequence_at(b, c, 0);
    bool stacks = tti_bool_at(b, c, 2);
    tti_arg *items = list ? tti_build_alloc(b, ((size_t)list->n_items + 1) * sizeof *items) : NULL;
    if (!items || !tti_good(b)) return;
    for (int i = 0; i < list->n_items; i++) items[i] = tti_operand_arg(&list->items[i]);
    tti_arg all = {.kind = TTI_ARG_LIST, .items = items, .n = list->n_items};
    tti_call_row(b, stacks ? "aten.stack.default" : "aten.cat.default",
                 (tti_arg[]){all, *c->arg[1]}, 2, c->out, 1);
}

static void sequence_length(tti_building *b, const tti_call *c) {
    const tti_operand *list = sequence_at(b, c, 0);
    if (list) tti_set_number(c->out[0], list->n_items, TTI_ELEM_I64, false);
}

/* ---- padding and blocks ---- */

/* data pads constant_value axes mode. pads lists all beginnings, then all ends. */
static void pad(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int n_dims = tti_shape_of(x).n_dims, n, n_axes = 0;
    const int64_t *pads = tti_list_at(b, c, 1, &n);
    const int64_t *axes = tti_has(c, 3) ? tti_list_at(b, c, 3, &n_axes) : NULL;
    const char *mode = tti_text_at(b, c, 4);
    int64_t list[2 * TUTTI_MAX_DIMS] = {0};
    int n_each = axes ? n_axes : n_dims;
    if (n != 2 * n_each || n_each > n_dims) tti_refuse(b, "pads do not fit the tensor");
    int first = n_dims;
    for (int i = 0; tti_good(b) && i < n_each; i++) {
        int d = tti_wrap_dim(b, axes ? axes[i] : i, n_dims), from_end = n_dims - 1 - d;
        list[2 * from_end] = pads[i];
        list[2 * from_end + 1] = pads[n_each + i];
        if (pads[i] != 0 || pads[n_each + i] != 0) first = TTI_MIN(first, d);
    }
    if (!tti_good(b)) return;
    if (strcmp(mode, "edge") == 0) mode = "replicate";
    if (strcmp(mode, "wrap") == 0) mode = "circular";
    tti_arg args[4] = {*c->arg[0], tti_ints_arg(b, list, 2 * (n_dims - first)), tti_text_arg(mode)};
    if (tti_has(c, 2)) args[3] = tti_float_arg(tti_number_at(b, c, 2));
    if (tti_good(b)) tti_call_row(b, "aten.pad.default", args, 4, c->out, 1);
}

/* Reshapes x to `wide`, permutes by perm, and reshapes to `to`. */
static void rearrange(tti_building *b, const tti_call *c, const tutti_shape *wide, const int *perm,
                      const tutti_shape *to) {
    tti_operand split = {0}, transpose_of = {0};
    tti_do_reshape(b, tti_operand_at(b, c, 0), wide, &split);
    if (tti_good(b)) tti_do_permute(b, &split, perm, &transpose_of);
    if (tti_good(b)) tti_do_reshape(b, &transpose_of, to, c->out[0]);
}

static bool read_block(tti_building *b, const tti_call *c, tutti_shape *s, int64_t *block) {
    *s = tti_shape_of(tti_operand_at(b, c, 0));
    *block = tti_int_at(b, c, 1);
    if (s->n_dims != 4 || *block < 1 || *block > 1 << 20) tti_refuse(b, "the shape does not match");
    return tti_good(b);
}

/* input blocksize mode */
static void depth_to_space(tti_building *b, const tti_call *c) {
    tutti_shape s;
    int64_t k;
    if (!read_block(b, c, &s, &k)) return;
    int64_t n = s.dim[0], depth = s.dim[1] / (k * k), h = s.dim[2], w = s.dim[3];
    bool rows_first = strcmp(tti_text_at(b, c, 2), "CRD") == 0;
    tutti_shape wide =
        rows_first ? TUTTI_SHAPE(n, depth, k, k, h, w) : TUTTI_SHAPE(n, k, k, depth, h, w);
    const int crd[] = {0, 1, 4, 2, 5, 3}, dcr[] = {0, 3, 4, 1, 5, 2};
    rearrange(b, c, &wide, rows_first ? crd : dcr, &TUTTI_SHAPE(n, depth, h * k, w * k));
}

static void space_to_depth(tti_building *b, const tti_call *c) {
    tutti_shape s;
    int64_t k;
    if (!read_block(b, c, &s, &k)) return;
    int64_t n = s.dim[0], depth = s.dim[1], h = s.dim[2] / k, w = s.dim[3] / k;
    rearrange(b, c, &TUTTI_SHAPE(n, depth, h, k, w, k), (int[]){0, 3, 5, 1, 2, 4},
              &TUTTI_SHAPE(n, depth * k * k, h, w));
}

#define OWN(op, args, fn) \
    { .target = "onnx." op, .signature = args, .build = fn }

const tti_operator tti_operators_onnx_shape[] = {
    OWN("Shape", "data start=0 end=None", shape),
    OWN("Size", "data", size),
    OWN("Reshape", "data shape allowzero=0", reshape),
    OWN("Flatten", "input axis=1", flatten),
    OWN("Transpose", "data perm=None", transpose),
    OWN("Squeeze", "data axes=None", squeeze),
    OWN("Unsqueeze", "data axes", unsqueeze),
    OWN("Expand", "input shape", expand),
    OWN("Tile", "input repeats", tile),
    OWN("Slice", "data starts ends axes=None steps=None", slice),
    OWN("ReverseSequence", "input sequence_lens batch_axis=1 time_axis=0", reverse_sequence),
    OWN("Split", "input split=None axis=0 num_outputs=None", split),
    OWN("Concat", "*inputs axis", concat),
    OWN("SplitToSequence", "input split=None axis=0 keepdims=1", split_to_sequence),
    OWN("SequenceAt", "input_sequence position", sequence_item),
    OWN("SequenceConstruct", "*inputs", sequence_construct),
    OWN("SequenceLength", "input_sequence", sequence_length),
    OWN("ConcatFromSequence", "input_sequence axis new_axis=0", concat_from_sequence),
    OWN("Pad", "data pads constant_value=None axes=None mode=constant", pad),
    OWN("DepthToSpace", "input blocksize mode=DCR", depth_to_space),
    OWN("SpaceToDepth", "input blocksize", space_to_depth),
    {0},
};

/* aten_layers.c - operators with weights, pooling, lookups and recurrent layers. Weights are
 * arguments, so the builders are those of tutti/functional.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

tutti_value *tti_weight_at(tti_building *b, const tti_call *c, int k) {
    return tti_has(c, k) ? tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, k))) : NULL;
}

tutti_value *tti_float_at(tti_building *b, const tti_call *c, int k) {
    return tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, k)));
}

void tti_set_result_like(tti_building *b, const tti_call *c, tutti_value *value) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (!tti_good(b)) return;
    tti_set_value(b, c->out[0], value, x->kind == TTI_OPERAND_GRAPH ? x->elem : x->host.elem,
                  tti_of_batch(x));
}

static void linear(tti_building *b, const tti_call *c) {
    tti_operand own = tti_repeat_over_batch(b, tti_operand_at(b, c, 0)), *x = &own;
    bool is_state = x->kind == TTI_OPERAND_HOST && x->host.of_batch && x->host.shape.n_dims > 0 &&
                    x->host.shape.dim[0] == b->batch; /* zeros for each sample */
    tutti_value *value =
        is_state ? tti_as_float(b, tti_batch_value(b, x)) : tti_row_wise_value(b, x);
    tutti_value *weight = tti_weight_at(b, c, 1);
    value = tutti_linear_of(b->graph, value, weight, tti_weight_at(b, c, 2));
    own.elem = tti_elem_of(x);
    own.of_input = own.of_input || is_state;
    tti_set_row_wise(b, c->out[0], value, x);
}

/* beta self + alpha (mat1 mat2) */
static void addmm(tti_building *b, const tti_call *c) {
    const tti_operand own = tti_repeat_over_batch(b, tti_operand_at(b, c, 1)), *x = &own;
    tutti_graph *g = b->graph;
    double beta = tti_number_at(b, c, 3), alpha = tti_number_at(b, c, 4);
    const tti_operand *term = tti_operand_at(b, c, 0);
    bool row_wise = tti_shape_of(term).n_dims == 1;
    tutti_value *y = row_wise ? tti_row_wise_value(b, x) : tti_as_float(b, tti_value_of(b, x));
    y = tti_product(b, y, tti_float_at(b, c, 2));
    tutti_value *bias = tti_compact_value(b, term);
    if (alpha != 1) y = tutti_affine(g, y, alpha, 0);
    if (beta != 1) bias = tutti_affine(g, bias, beta, 0);
    y = tutti_add(g, y, bias);
    if (row_wise)
        tti_set_row_wise(b, c->out[0], y, x);
    else
        tti_set_value(b, c->out[0], y, tti_elem_of(x), tti_of_batch(x));
}

/* ---- convolutions ---- */

/* Reads the padding in argument k: numbers, "valid" or "same" (the result has the size of x). For
 * an odd number of zeros, x itself is padded with the extra zero at the end. */
static tutti_value *take_padding(tti_building *b, const tti_call *c, int k, tutti_value *x,
                                 const tutti_shape *weight, tutti_window *w) {
    const tti_arg *arg = c->arg[k];
    if (arg->kind != TTI_ARG_TEXT) {
        tti_pair_at(b, c, k, w->pad);
        return x;
    }
    if (strcmp(arg->text, "valid") == 0) return x;
    if (strcmp(arg->text, "same") != 0) tti_refuse(b, "padding='%s'", arg->text);
    for (int d = 0; d < 2 && tti_good(b); d++) {
        int64_t total = w->dilation[d] * (weight->dim[2 + d] - 1);
        if (w->stride[d] != 1) tti_refuse(b, "padding='same' with a stride is not supported");
        w->pad[d] = total / 2;
        if (total % 2 != 0) x = tutti_pad(b->graph, x, 2 + d, 0, 1);
    }
    return x;
}

static void conv2d(tti_building *b, const tti_call *c) {
    tutti_window w = {.groups = tti_int_at(b, c, 6)};
    tutti_value *x = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, 1);
    tutti_shape shape = tutti_value_type(weight).shape;
    if (tti_good(b) && (shape.n_dims != 4 || tutti_value_type(x).shape.n_dims != 4))
        tti_refuse(b, "the weight has %d dimensions, the input %d; 4 are expected of both",
                   shape.n_dims, tutti_value_type(x).shape.n_dims);
    if (!tti_good(b)) return;
    tti_pair_at(b, c, 3, w.stride);
    tti_pair_at(b, c, 5, w.dilation);
    x = take_padding(b, c, 4, x, &shape, &w);
    if (tti_good(b))
        tti_set_result_like(b, c, tutti_conv2d_of(b->graph, x, weight, tti_weight_at(b, c, 2), &w));
}

/* Converts x[N,C,L] to [N,C,1,L]; the next function converts back. */
static tutti_value *lift(tti_building *b, tutti_value *x) {
    tutti_shape s = tutti_value_type(x).shape;
    if (s.n_dims == 3)
        return tutti_reshape(b->graph, x, &TUTTI_SHAPE(s.dim[0], s.dim[1], 1, s.dim[2]));
    tti_refuse(b, "a tensor of 3 dimensions is expected, not of %d", s.n_dims);
    return NULL;
}
static tutti_value *lower(tti_building *b, tutti_value *y) {
    tutti_shape s = tutti_value_type(y).shape;
    if (s.n_dims != 4) return NULL;
    return tutti_reshape(b->graph, y, &TUTTI_SHAPE(s.dim[0], s.dim[1], s.dim[3]));
}

/* Reads a number for the last dimension, as the pair {first, number}. */
static void single_at(tti_building *b, const tti_call *c, int k, int64_t first, int64_t out[2]) {
    int64_t pair[2];
    tti_pair_at(b, c, k, pair);
    out[0] = first;
    out[1] = pair[0];
}

static void conv1d(tti_building *b, const tti_call *c) {
    tutti_window w = {.groups = tti_int_at(b, c, 6)};
    tutti_value *x = lift(b, tti_float_at(b, c, 0)), *weight = lift(b, tti_weight_at(b, c, 1));
    if (!tti_good(b)) return;
    tutti_shape shape = tutti_value_type(weight).shape;
    single_at(b, c, 3, 1, w.stride);
    single_at(b, c, 5, 1, w.dilation);
    if (c->arg[4]->kind == TTI_ARG_TEXT)
        x = take_padding(b, c, 4, x, &shape, &w);
    else
        single_at(b, c, 4, 0, w.pad);
    tutti_value *y = tutti_conv2d_of(b->graph, x, weight, tti_weight_at(b, c, 2), &w);
    if (tti_good(b)) tti_set_result_like(b, c, lower(b, y));
}

/* input weight bias stride padding output_padding groups dilation */
static void conv_transpose2d(tti_building *b, const tti_call *c) {
    tutti_window w = {.groups = tti_int_at(b, c, 6)};
    int64_t extra[2];
    tti_pair_at(b, c, 3, w.stride);
    tti_pair_at(b, c, 4, w.pad);
    tti_pair_at(b, c, 5, extra);
    tti_pair_at(b, c, 7, w.dilation);
    tutti_value *x = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, 1),
                *bias = tti_weight_at(b, c, 2);
    if (tti_good(b))
        tti_set_result_like(b, c, tutti_conv_transpose2d_of(b->graph, x, weight, bias, &w, extra));
}

static void conv_transpose1d(tti_building *b, const tti_call *c) {
    tutti_window w = {.groups = tti_int_at(b, c, 6)};
    int64_t extra[2];
    single_at(b, c, 3, 1, w.stride);
    single_at(b, c, 4, 0, w.pad);
    single_at(b, c, 5, 0, extra);
    single_at(b, c, 7, 1, w.dilation);
    tutti_value *x = lift(b, tti_float_at(b, c, 0)), *weight = lift(b, tti_weight_at(b, c, 1));
    if (!tti_good(b)) return;
    tutti_value *y =
        tutti_conv_transpose2d_of(b->graph, x, weight, tti_weight_at(b, c, 2), &w, extra);
    if (tti_good(b)) tti_set_result_like(b, c, lower(b, y));
}

/* input weight bias stride padding dilation transposed output_padding groups: any convolution. */
static void convolution(tti_building *b, const tti_call *c) {
    int n_dims = tti_shape_of(tti_operand_at(b, c, 1)).n_dims;
    if (tti_good(b) && (n_dims < 3 || n_dims > 5))
        tti_refuse(b, "convolutions of %d dimensions are not supported", n_dims - 2);
    if (!tti_good(b)) return;
    bool is_2d = n_dims == 4, transposed = tti_bool_at(b, c, 6);
    tti_call own = *c;
    const tti_arg *const a[] = {c->arg[3], c->arg[4], c->arg[5], c->arg[7], c->arg[8]};
    /* Argument order of the rows below: stride padding dilation groups, or stride padding
     * output_padding groups dilation. */
    static const int forth[] = {0, 1, 2, 4, 4}, back[] = {0, 1, 3, 4, 2};
    for (int i = 0; i < 5; i++) own.arg[3 + i] = a[transposed ? back[i] : forth[i]];
    tti_arg args[8];
    for (int i = 0; i < 8; i++) args[i] = *tti_arg_at(&own, i);
    if (n_dims == 5)
        tti_call_row(b, transposed ? "aten.conv_transpose3d.input" : "aten.conv3d.default", args,
                     transposed ? 8 : 7, c->out, 1);
    else if (transposed)
        (is_2d ? conv_transpose2d : conv_transpose1d)(b, &own);
    else
        (is_2d ? conv2d : conv1d)(b, &own);
}

/* ---- pooling ---- */

/* Reads kernel, stride and padding from arguments 1, 2, 3; an empty stride means the kernel
 * size. */
static tutti_window pool_window(tti_building *b, const tti_call *c) {
    tutti_window w = {0};
    tti_pair_at(b, c, 1, w.kernel);
    memcpy(w.stride, w.kernel, sizeof w.stride);
    bool has_stride = tti_has(c, 2) && !(c->arg[2]->kind == TTI_ARG_LIST && c->arg[2]->n == 0);
    if (has_stride) tti_pair_at(b, c, 2, w.stride);
    tti_pair_at(b, c, 3, w.pad);
    return w;
}

/* Computes the rows and columns beyond the padding that the last windows need if the size is
 * rounded up. A window must begin inside x or its leading padding. */
static void ceil_extra(tti_building *b, const tti_call *c, int k, const tutti_window *w,
                       const tutti_value *x, int64_t extra[2]) {
    tutti_shape s = tutti_value_type(x).shape;
    extra[0] = extra[1] = 0;
    if (!tti_good(b) || !tti_bool_at(b, c, k) || s.n_dims != 4) return;
    for (int d = 0; d < 2; d++) {
        int64_t size = s.dim[2 + d] + 2 * w->pad[d] - w->kernel[d];
        if (w->stride[d] < 1 || size < 0 || size % w->stride[d] == 0) continue;
        int64_t windows = size / w->stride[d] + 2;
        if ((windows - 1) * w->stride[d] >= s.dim[2 + d] + w->pad[d]) continue;
        extra[d] = w->stride[d] - size % w->stride[d];
    }
}

/* Appends extra rows and columns of a value to x. */
static tutti_value *extended(tti_building *b, tutti_value *x, const int64_t extra[2],
                             double value) {
    for (int d = 0; d < 2; d++) {
        if (extra[d] == 0 || !tti_good(b)) continue;
        tutti_shape shape = tutti_value_type(x).shape;
        shape.dim[2 + d] = extra[d];
        tutti_value *more = tutti_constant(b->graph, TUTTI_F32, &shape, value);
        x = tutti_concat(b->graph, (tutti_value *[]){x, more}, 2, 2 + d);
    }
    return x;
}

/* If the window is dilated, lays the windows of x next to each other and removes the dilation. */
static tutti_value *undilated(tti_building *b, const tti_call *c, tutti_value *x, tutti_window *w) {
    int64_t pair[2];
    tti_pair_at(b, c, 4, pair);
    tti_operand laid = {0};
    if (!tti_good(b) || (pair[0] == 1 && pair[1] == 1)) return x;
    if (pair[0] < 1 || pair[1] < 1 || w->stride[0] < 1 || w->stride[1] < 1)
        tti_refuse(b, "a dilation or a stride is out of range");
    tti_set_value(b, &laid, x, TTI_ELEM_F32, true);
    for (int d = 0; d < 2 && tti_good(b); d++) {
        tti_dilated_window own = {w->kernel[d], w->stride[d], w->pad[d], pair[d]};
        tti_unfold_windows(b, &laid, 2 + d, &own, tti_bool_at(b, c, 5));
        w->stride[d] = own.stride, w->pad[d] = own.pad;
    }
    return tti_good(b) ? tti_as_float(b, tti_value_of(b, &laid)) : NULL;
}

static tutti_value *max_pool(tti_building *b, const tti_call *c, tutti_value *x, tutti_window *w) {
    int64_t extra[2];
    x = undilated(b, c, x, w);
    ceil_extra(b, c, 5, w, x, extra);
    if (c->n_outs > 1 && c->out[1]) c->out[1]->kind = TTI_OPERAND_NONE; /* no indices */
    x = extended(b, x, extra, -INFINITY);
    return tti_good(b) ? tutti_max_pool2d_of(b->graph, x, w) : NULL;
}

static void max_pool2d(tti_building *b, const tti_call *c) {
    tutti_window w = pool_window(b, c);
    tutti_value *y = max_pool(b, c, tti_float_at(b, c, 0), &w);
    if (tti_good(b)) tti_set_result_like(b, c, y);
}

static void lower_window(tutti_window *w) {
    w->kernel[0] = w->stride[0] = 1;
    w->pad[0] = 0;
}

/* self kernel_size stride padding dilation ceil_mode, as a pooling over [1, kernel]. */
static void max_pool1d(tti_building *b, const tti_call *c) {
    tutti_window w = pool_window(b, c);
    tutti_value *x = lift(b, tti_float_at(b, c, 0));
    int64_t pair[2];
    tti_call own = *c;
    lower_window(&w);
    single_at(b, c, 4, 1, pair);
    tti_arg dilation = tti_ints_arg(b, pair, 2);
    own.arg[4] = &dilation;
    if (!tti_good(b)) return;
    tutti_value *y = max_pool(b, &own, x, &w);
    if (tti_good(b)) tti_set_result_like(b, c, lower(b, y));
}

/* Returns the divisor of the window at position p along one dimension of size n: its number of
 * elements inside x, or inside x and its padding. */
static int64_t divisor_at(const tutti_window *w, int d, int64_t p, int64_t n, bool counts_pad) {
    int64_t first = p * w->stride[d] - w->pad[d];
    int64_t end = TTI_MIN(first + w->kernel[d], n + w->pad[d]);
    if (counts_pad) return end - first;
    return TTI_MIN(end, n) - TTI_MAX(first, 0);
}

/* Average pooling with windows across the border, or with another divisor: the mean over whole
 * windows times a constant for each position. */
static tutti_value *avg_pool_corrected(tti_building *b, tutti_value *x, const tutti_window *w,
                                       const int64_t extra[2], bool counts_pad, int64_t divisor) {
    tutti_shape from = tutti_value_type(x).shape;
    x = tutti_avg_pool2d_of(b->graph, extended(b, x, extra, 0), w, false);
    tutti_shape to = tutti_value_type(x).shape;
    if (!x || to.n_dims != 4) return x;
    int64_t n = to.dim[2] * to.dim[3], area = w->kernel[0] * w->kernel[1];
    float *factor = tti_arena_alloc(&b->arena, ((size_t)n + 1) * sizeof *factor);
    if (!factor) tti_no_memory(b);
    for (int64_t i = 0; factor && i < n; i++) {
        int64_t down = divisor_at(w, 0, i / to.dim[3], from.dim[2], counts_pad);
        int64_t across = divisor_at(w, 1, i % to.dim[3], from.dim[3], counts_pad);
        factor[i] = (float)((double)area / (double)(divisor ? divisor : down * across));
    }
    if (!tti_good(b)) return NULL;
    tutti_value *table =
        tutti_constant_array(b->graph, TUTTI_F32, &TUTTI_SHAPE(1, 1, to.dim[2], to.dim[3]), factor);
    return tutti_mul(b->graph, x, table);
}

static tutti_value *avg_pool(tti_building *b, const tti_call *c, tutti_value *x,
                             const tutti_window *w, int64_t divisor) {
    int64_t extra[2];
    bool counts_pad = tti_bool_at(b, c, 5);
    ceil_extra(b, c, 4, w, x, extra);
    if (!tti_good(b)) return NULL;
    if (extra[0] == 0 && extra[1] == 0 && divisor == 0)
        return tutti_avg_pool2d_of(b->graph, x, w, !counts_pad);
    return avg_pool_corrected(b, x, w, extra, counts_pad, divisor);
}

static void avg_pool2d(tti_building *b, const tti_call *c) {
    tutti_window w = pool_window(b, c);
    int64_t divisor = tti_has(c, 6) ? tti_int_at(b, c, 6) : 0;
    if (tti_has(c, 6) && divisor == 0) tti_refuse(b, "divisor_override=0");
    tutti_value *y = avg_pool(b, c, tti_float_at(b, c, 0), &w, divisor);
    if (tti_good(b)) tti_set_result_like(b, c, y);
}

static void avg_pool1d(tti_building *b, const tti_call *c) {
    tutti_window w = pool_window(b, c);
    tutti_value *x = lift(b, tti_float_at(b, c, 0));
    lower_window(&w);
    tutti_value *y = avg_pool(b, c, x, &w, 0);
    if (tti_good(b)) tti_set_result_like(b, c, lower(b, y));
}

/* Reads output size i; None means the size of x. */
static int64_t out_size(tti_building *b, const tti_call *c, int i, int64_t own) {
    const tti_arg *arg = c->arg[1];
    if (arg->kind == TTI_ARG_LIST && arg->n == 1) i = 0;
    if (arg->kind == TTI_ARG_LIST && i < arg->n && arg->items[i].kind == TTI_ARG_NONE) return own;
    int64_t pair[2];
    tti_pair_at(b, c, 1, pair);
    return pair[i];
}

static void adaptive_avg_pool2d(tti_building *b, const tti_call *c) {
    tutti_value *x = tti_float_at(b, c, 0);
    tutti_shape s = tutti_value_type(x).shape;
    if (tti_good(b) && s.n_dims != 4) tti_refuse(b, "a tensor of 4 dimensions is expected");
    if (!tti_good(b)) return;
    int64_t h = out_size(b, c, 0, s.dim[2]), w = out_size(b, c, 1, s.dim[3]);
    if (tti_good(b)) tti_set_result_like(b, c, tutti_adaptive_avg_pool2d(b->graph, x, h, w));
}

static void adaptive_max_pool2d(tti_building *b, const tti_call *c) {
    tutti_value *x = tti_float_at(b, c, 0);
    tutti_shape s = tutti_value_type(x).shape;
    if (tti_good(b) && s.n_dims != 4) tti_refuse(b, "a tensor of 4 dimensions is expected");
    if (!tti_good(b)) return;
    int64_t h = out_size(b, c, 0, s.dim[2]), w = out_size(b, c, 1, s.dim[3]);
    if (tti_good(b)) tti_set_result_like(b, c, tutti_adaptive_max_pool2d(b->graph, x, h, w));
}

static void adaptive_avg_pool1d(tti_building *b, const tti_call *c) {
    tutti_value *x = lift(b, tti_float_at(b, c, 0));
    int64_t n = out_size(b, c, 0, tutti_value_type(x).shape.dim[3]);
    if (tti_good(b))
        tti_set_result_like(b, c, lower(b, tutti_adaptive_avg_pool2d(b->graph, x, 1, n)));
}

/* max(x, 0) - weight max(-x, 0), with a weight for each channel or one for all. */
static void prelu(tti_building *b, const tti_call *c) {
    tutti_graph *g = b->graph;
    tutti_value *x = tti_float_at(b, c, 0), *weight = tti_weight_at(b, c, 1);
    tutti_shape s = tutti_value_type(x).shape, along = {.n_dims = s.n_dims};
    tutti_shape own = tutti_value_type(weight).shape;
    if (tti_good(b) && s.n_dims < 2) tti_refuse(b, "%d dimensions are too few", s.n_dims);
    if (!tti_good(b)) return;
    for (int d = 0; d < s.n_dims; d++) along.dim[d] = d == 1 ? tutti_shape_n_elems(&own) : 1;
    tutti_value *low = tutti_relu(g, tutti_neg(g, x));
    low = tutti_mul(g, low, tutti_reshape(g, weight, &along));
    tti_set_result_like(b, c, tutti_sub(g, tutti_relu(g, x), low));
}

/* ---- lookups ---- */

/* weight indices padding_idx: rows of a table. Row padding_idx gets no gradient from this
 * lookup. */
static void embedding(tti_building *b, const tti_call *c) {
    const tti_operand *table = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 1);
    int64_t pad = tti_int_at(b, c, 2);
    tutti_graph *g = b->graph;
    if (tti_bool_at(b, c, 3)) tti_refuse(b, "scale_grad_by_freq=True is not supported");
    if (tti_bool_at(b, c, 4)) tti_refuse(b, "sparse=True is not supported");
    if (!tti_good(b)) return;
    tutti_value *rows = tti_as_float(b, tti_value_of(b, table));
    int64_t batch = 0;
    tti_operand own = *ids;
    if (ids->kind == TTI_OPERAND_HOST && ids->host.shape.n_dims > 1 &&
        ids->host.shape.dim[0] == b->batch && tti_host_repeats(&ids->host, 0)) {
        batch = ids->host.shape.dim[0];
        own.host.shape.dim[0] = 1;
    }
    tutti_value *index = tti_as_index(b, &own);
    int64_t n_rows = tti_shape_of(table).dim[0];
    if (pad < -1 && pad + n_rows >= 0) pad += n_rows;
    if (pad < 0 || pad >= n_rows || !tutti_graph_is_training(g)) {
        tti_set_value(b, c->out[0], tutti_lookup(g, rows, index), table->elem, tti_of_batch(ids));
    } else {
        /* mask: 1 for padding_idx. There the lookup uses -1, which gives zeros without a gradient,
         * and the row is added. */
        tutti_value *id = tutti_cast(g, index, TUTTI_F32);
        tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
        tutti_value *mask =
            tutti_minimum(g, tutti_abs(g, tutti_affine(g, id, 1, -(double)pad)), one);
        mask = tutti_affine(g, mask, -1, 1);
        tutti_value *moved = tutti_sub(g, id, tutti_affine(g, mask, (double)pad + 1, 0));
        tutti_value *found = tutti_lookup(g, rows, tutti_cast(g, moved, TUTTI_I32));
        tutti_shape wide = tutti_value_type(mask).shape;
        wide.dim[wide.n_dims++] = 1;
        tutti_value *row = tutti_stop_gradient(g, tutti_slice(g, rows, 0, pad, 1));
        row = tutti_reshape(g, row, &TUTTI_SHAPE(tti_shape_of(table).dim[1]));
        found = tutti_add(g, found, tutti_mul(g, tutti_reshape(g, mask, &wide), row));
        tti_set_value(b, c->out[0], found, table->elem, tti_of_batch(ids));
    }
    if (c->out[0] && tti_good(b)) c->out[0]->rows = batch;
}

/* ---- recurrent ---- */

/* Returns item i of list argument k. */
static tti_operand *item_at(tti_building *b, const tti_call *c, int k, int i) {
    static const tti_arg none;
    const tti_arg *list = c->arg[k];
    return tti_operand_of(b, list->kind == TTI_ARG_LIST && i < list->n ? &list->items[i] : &none);
}

/* Returns layer l of a state [layers,B,H]; NULL: it is all zeros. */
static tutti_value *state_of(tti_building *b, const tti_operand *state, int64_t l) {
    double value;
    tutti_shape s = tti_shape_of(state);
    if (state->kind == TTI_OPERAND_HOST && tti_host_uniform(&state->host, &value) && value == 0)
        return NULL;
    tutti_value *x = tti_value_of(b, state);
    if (!state->of_input || s.n_dims != 3) {
        tti_refuse(b, "an initial state that is neither zeros nor of the samples is not supported");
        return NULL;
    }
    return tutti_reshape(b->graph, tutti_slice(b->graph, x, 0, l, 1),
                         &TUTTI_SHAPE(s.dim[1], s.dim[2]));
}

/* Reverses the steps of x[B,T,..]. */
static tutti_value *reversed(tti_building *b, tutti_value *x) {
    int64_t n = tutti_value_type(x).shape.dim[1];
    int32_t *places =
        tti_good(b) ? tti_arena_alloc(&b->arena, ((size_t)n + 1) * sizeof *places) : NULL;
    if (!places) return NULL;
    for (int64_t i = 0; i < n; i++) places[i] = (int32_t)(n - 1 - i);
    tutti_value *ids = tutti_constant_array(b->graph, TUTTI_I32, &TUTTI_SHAPE(n), places);
    return tutti_gather(b->graph, x, ids, 1);
}

/* Runs one layer in one direction: input y; i: index of its weights and state. */
static tutti_value *one_direction(tti_building *b, const tti_call *c, tutti_value *y, int64_t i,
                                  bool is_lstm) {
    int n_weights = tti_bool_at(b, c, 3) ? 4 : 2;
    tutti_value *w[4] = {NULL};
    for (int k = 0; k < n_weights; k++)
        w[k] = tti_as_float(b, tti_value_of(b, item_at(b, c, 2, (int)i * n_weights + k)));
    tutti_recurrent_tensors t = {w[0], w[1], w[2], w[3], NULL, NULL};
    t.h0 = state_of(b, is_lstm ? item_at(b, c, 1, 0) : tti_operand_at(b, c, 1), i);
    if (is_lstm) t.c0 = state_of(b, item_at(b, c, 1, 1), i);
    if (!tti_good(b)) return NULL;
    return is_lstm ? tutti_lstm_of(b->graph, y, &t) : tutti_gru_of(b->graph, y, &t);
}

/* Returns the state [1,B,H] after the last step of a direction. */
static tutti_value *last_of(tti_building *b, tutti_value *way, bool is_reverse) {
    tutti_shape shape = tutti_value_type(way).shape;
    if (!tti_good(b)) return NULL;
    way = tutti_select(b->graph, way, 1, is_reverse ? 0 : shape.dim[1] - 1);
    return tutti_reshape(b->graph, way, &TUTTI_SHAPE(1, shape.dim[0], shape.dim[2]));
}

enum { MAX_STATES = 64 };

/* input hx params has_biases num_layers dropout train bidirectional batch_first */
static void recurrent(tti_building *b, const tti_call *c, bool is_lstm) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    bool batch_first = tti_bool_at(b, c, 8);
    int64_t n_layers = tti_int_at(b, c, 4), n_ways = tti_bool_at(b, c, 7) ? 2 : 1;
    double p = tti_number_at(b, c, 5);
    int n_weights = tti_bool_at(b, c, 3) ? 4 : 2;
    tutti_value *y = tti_float_at(b, c, 0);
    if (tti_good(b) && tti_shape_of(x).n_dims != 3)
        tti_refuse(b, "a batch of sequences is expected");
    if (tti_good(b) && c->arg[2]->n != n_layers * n_ways * n_weights)
        tti_refuse(b, "proj_size is not supported");
    tti_operand own = *x, *last = c->n_outs > 1 ? c->out[1] : NULL;
    tutti_value *states[MAX_STATES];
    int n_states = 0;
    if (n_layers * n_ways > MAX_STATES)
        tti_refuse(b, "more than %d layers are not supported", MAX_STATES);
    if (!batch_first && tti_good(b)) y = tutti_transpose(b->graph, y, 0, 1);
    for (int64_t l = 0; l < n_layers && tti_good(b); l++) {
        if (l > 0 && p > 0) y = tutti_dropout(b->graph, y, p, tti_layer_name_of(b));
        tutti_value *ways[2] = {one_direction(b, c, y, l * n_ways, is_lstm), NULL};
        if (n_ways == 2) {
            ways[1] = one_direction(b, c, reversed(b, y), 2 * l + 1, is_lstm);
            if (tti_good(b)) ways[1] = reversed(b, ways[1]);
        }
        for (int way = 0; way < n_ways && last; way++)
            states[n_states++] = last_of(b, ways[way], way == 1);
        if (tti_good(b)) y = n_ways == 2 ? tutti_concat(b->graph, ways, 2, 2) : ways[0];
    }
    if (!batch_first && tti_good(b)) y = tutti_transpose(b->graph, y, 0, 1);
    tti_set_value(b, c->out[0], y, own.elem, tti_of_batch(&own));
    if (last && tti_good(b)) {
        y = n_states > 1 ? tutti_concat(b->graph, states, n_states, 0) : states[0];
        tti_set_value(b, last, y, own.elem, tti_of_batch(&own));
    }
}

static void lstm(tti_building *b, const tti_call *c) { recurrent(b, c, true); }
static void gru(tti_building *b, const tti_call *c) { recurrent(b, c, false); }

#define LAYER(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }
#define CONV "input weight bias=None stride=[1,1] padding=[0,0] dilation=[1,1] groups=1"
#define CONV1 "input weight bias=None stride=[1] padding=[0] dilation=[1] groups=1"
#define RECURRENT "input hx params has_biases num_layers dropout train bidirectional batch_first"

const tti_operator tti_operators_layers[] = {
    LAYER("linear.default", "input weight bias=None", linear),
    LAYER("addmm.default", "self mat1 mat2 beta=1 alpha=1", addmm),
    LAYER("conv2d.default", CONV, conv2d),
    LAYER("conv2d.padding", CONV, conv2d),
    LAYER("conv1d.default", CONV1, conv1d),
    LAYER("conv1d.padding", CONV1, conv1d),
    LAYER("convolution.default",
          "input weight bias stride padding dilation transposed output_padding groups",
          convolution),
    LAYER("conv_transpose2d.input",
          "input weight bias=None stride=[1,1] padding=[0,0] output_padding=[0,0] groups=1 "
          "dilation=[1,1]",
          conv_transpose2d),
    LAYER("conv_transpose1d.default",
          "input weight bias=None stride=[1] padding=[0] output_padding=[0] groups=1 dilation=[1]",
          conv_transpose1d),
    LAYER("max_pool2d.default",
          "self kernel_size stride=[] padding=[0,0] dilation=[1,1] ceil_mode=False", max_pool2d),
    LAYER("max_pool1d.default",
          "self kernel_size stride=[] padding=[0] dilation=[1] ceil_mode=False", max_pool1d),
    LAYER("max_pool2d_with_indices.default",
          "self kernel_size stride=[] padding=[0,0] dilation=[1,1] ceil_mode=False", max_pool2d),
    LAYER("avg_pool2d.default",
          "self kernel_size stride=[] padding=[0,0] ceil_mode=False count_include_pad=True "
          "divisor_override=None",
          avg_pool2d),
    LAYER("avg_pool1d.default",
          "self kernel_size stride=[] padding=[0] ceil_mode=False count_include_pad=True",
          avg_pool1d),
    LAYER("adaptive_avg_pool2d.default", "self output_size", adaptive_avg_pool2d),
    LAYER("_adaptive_avg_pool2d.default", "self output_size", adaptive_avg_pool2d),
    LAYER("adaptive_avg_pool1d.default", "self output_size", adaptive_avg_pool1d),
    LAYER("adaptive_max_pool2d.default", "self output_size", adaptive_max_pool2d),
    LAYER("prelu.default", "self weight", prelu),
    LAYER("embedding.default",
          "weight indices padding_idx=-1 scale_grad_by_freq=False sparse=False", embedding),
    LAYER("lstm.input", RECURRENT, lstm),
    LAYER("gru.input", RECURRENT, gru),
    {0},
};

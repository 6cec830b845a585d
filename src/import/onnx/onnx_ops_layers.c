/* onnx_ops_layers.c - ONNX layers, norms, pooling and attention, as equivalent PyTorch
 * operators. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx_ops.h"

/* ---- windows of convolutions and pooling ---- */

typedef struct window {
    int n; /* spatial dimensions: 1 to 3 */
    int64_t kernel[3], stride[3], dilation[3], begin[3], end[3];
} window;

/* The arguments of a node with a window. The default is 1, and 0 for pads. */
typedef struct window_args {
    int auto_pad, kernel, strides, dilations, pads; /* argument indices; -1: none */
} window_args;

static void read_numbers(tti_building *b, const tti_call *c, int k, int n, int64_t out[3]) {
    int n_list;
    if (k < 0 || !tti_has(c, k)) return;
    const int64_t *list = tti_list_at(b, c, k, &n_list);
    if (n_list != n) tti_refuse(b, "an attribute has %d numbers, %d are expected", n_list, n);
    for (int d = 0; d < n && tti_good(b); d++) out[d] = list[d];
}

/* Padding for ceil(size / stride) results. "SAME_UPPER" puts an odd element at the end. */
static void pad_same(const tutti_shape *s, bool upper, window *w) {
    for (int d = 0; d < w->n; d++) {
        int64_t size = s->dim[2 + d], out = (size + w->stride[d] - 1) / w->stride[d];
        int64_t reach = (w->kernel[d] - 1) * w->dilation[d] + 1;
        int64_t total = TTI_MAX((out - 1) * w->stride[d] + reach - size, 0);
        w->begin[d] = upper ? total / 2 : total - total / 2;
        w->end[d] = total - w->begin[d];
    }
}

static bool read_window(tti_building *b, const tti_call *c, const window_args *at, window *w) {
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    const char *how = tti_text_at(b, c, at->auto_pad);
    int n_pads = 0;
    w->n = s.n_dims - 2;
    for (int d = 0; d < 3; d++) w->stride[d] = w->dilation[d] = 1, w->begin[d] = w->end[d] = 0;
    if (w->n < 1 || w->n > 3)
        tti_refuse(b, "an input of %d dimensions; 3 to 5 are supported", s.n_dims);
    if (!tti_good(b)) return false;
    read_numbers(b, c, at->kernel, w->n, w->kernel);
    read_numbers(b, c, at->strides, w->n, w->stride);
    read_numbers(b, c, at->dilations, w->n, w->dilation);
    for (int d = 0; d < w->n; d++)
        if (w->stride[d] < 1 || w->dilation[d] < 1 || w->kernel[d] < 1 || w->kernel[d] > 1 << 30 ||
            w->dilation[d] > 1 << 30 || w->stride[d] > 1 << 30)
            tti_refuse(b, "a kernel, stride or dilation is out of range");
    if (!tti_good(b)) return false;
    if (strcmp(how, "SAME_UPPER") == 0 || strcmp(how, "SAME_LOWER") == 0) {
        pad_same(&s, how[5] == 'U', w);
        return true;
    }
    if (strcmp(how, "VALID") != 0 && strcmp(how, "NOTSET") != 0)
        tti_refuse(b, "auto_pad='%s' is not supported", how);
    if (strcmp(how, "VALID") == 0 || !tti_has(c, at->pads)) return tti_good(b);
    const int64_t *pads = tti_list_at(b, c, at->pads, &n_pads);
    if (n_pads != 2 * w->n) tti_refuse(b, "pads has %d numbers", n_pads);
    for (int d = 0; d < w->n && tti_good(b); d++) w->begin[d] = pads[d], w->end[d] = pads[w->n + d];
    return tti_good(b);
}

static bool is_even(const window *w) {
    for (int d = 0; d < w->n; d++)
        if (w->begin[d] != w->end[d] || w->begin[d] < 0) return false;
    return true;
}

/* If the two sides differ, pads x with zeros first, so that the window needs no padding. */
static void pad_explicitly(tti_building *b, const tti_call *c, window *w, tti_operand *out) {
    int64_t list[6];
    *out = *tti_operand_at(b, c, 0);
    if (is_even(w) || !tti_good(b)) return;
    for (int d = 0; d < w->n; d++) {
        list[2 * (w->n - 1 - d)] = w->begin[d];
        list[2 * (w->n - 1 - d) + 1] = w->end[d];
        w->begin[d] = w->end[d] = 0;
    }
    tti_operand padded = {0};
    tti_call_row(b, "aten.pad.default", (tti_arg[]){*c->arg[0], tti_ints_arg(b, list, 2 * w->n)}, 2,
                 (tti_operand *[]){&padded}, 1);
    *out = padded;
}

/* Takes the kernel size from the weight. */
static void kernel_of_weight(tti_building *b, const tti_call *c, window *w) {
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 1));
    for (int d = 0; d < 3; d++) w->kernel[d] = 2 + d < s.n_dims ? s.dim[2 + d] : 1;
}

/* Exporters write a zero bias if there is none; it is dropped. */
static tti_arg bias_arg(tti_building *b, const tti_call *c, int k) {
    double value;
    const tti_operand *x = tti_has(c, k) ? tti_operand_at(b, c, k) : NULL;
    bool none =
        x && x->kind == TTI_OPERAND_HOST && tti_host_uniform(&x->host, &value) && value == 0;
    return none || !x ? (tti_arg){0} : *c->arg[k];
}

/* X W B auto_pad dilations group kernel_shape pads strides */
static void conv(tti_building *b, const tti_call *c) {
    static const window_args at = {3, 6, 8, 4, 7};
    window w;
    tti_operand x;
    kernel_of_weight(b, c, &w);
    if (!read_window(b, c, &at, &w)) return;
    pad_explicitly(b, c, &w, &x);
    static const char *const rows[] = {"aten.conv1d.default", "aten.conv2d.default",
                                       "aten.conv3d.default"};
    tti_call_row(b, rows[w.n - 1],
                 (tti_arg[]){tti_operand_arg(&x), *c->arg[1], bias_arg(b, c, 2),
                             tti_ints_arg(b, w.stride, w.n), tti_ints_arg(b, w.begin, w.n),
                             tti_ints_arg(b, w.dilation, w.n), *c->arg[5]},
                 7, c->out, 1);
}

/* X W B auto_pad dilations group kernel_shape output_padding output_shape pads strides */
static void conv_transpose(tti_building *b, const tti_call *c) {
    static const window_args at = {3, 6, 10, 4, 9};
    window w;
    int64_t extra[3] = {0};
    kernel_of_weight(b, c, &w);
    const char *how = tti_text_at(b, c, 3);
    if (tti_has(c, 8) || strncmp(how, "SAME", 4) == 0)
        tti_refuse(b, "output_shape and auto_pad=SAME are not supported; export pads");
    if (!read_window(b, c, &at, &w)) return;
    read_numbers(b, c, 7, w.n, extra);
    /* More padding at the end than at the beginning: first reduces output_padding, then cuts the
     * result. */
    int64_t cut[3] = {0};
    tti_operand made = {0};
    for (int d = 0; d < w.n; d++) {
        extra[d] += w.begin[d] - w.end[d];
        cut[d] = TTI_MAX(-extra[d], 0);
        extra[d] = TTI_MAX(extra[d], 0);
        if (w.begin[d] < 0) tti_refuse(b, "negative pads are not supported");
    }
    if (!tti_good(b)) return;
    static const char *const rows[] = {"aten.conv_transpose1d.default",
                                       "aten.conv_transpose2d.input",
                                       "aten.conv_transpose3d.input"};
    tti_call_row(
        b, rows[w.n - 1],
        (tti_arg[]){*c->arg[0], *c->arg[1], bias_arg(b, c, 2), tti_ints_arg(b, w.stride, w.n),
                    tti_ints_arg(b, w.begin, w.n), tti_ints_arg(b, extra, w.n), *c->arg[5],
                    tti_ints_arg(b, w.dilation, w.n)},
        8, (tti_operand *[]){&made}, 1);
    for (int d = 0; d < w.n && tti_good(b); d++) {
        tti_operand part = {0};
        int64_t size = tti_shape_of(&made).dim[2 + d] - cut[d];
        if (cut[d] == 0) continue;
        if (size < 1) tti_refuse(b, "the padded input is smaller than the window");
        if (tti_good(b))
            tti_call_row(b, "aten.narrow.default",
                         (tti_arg[]){tti_operand_arg(&made), tti_int_arg(2 + d), tti_int_arg(0),
                                     tti_int_arg(size)},
                         4, (tti_operand *[]){&part}, 1);
        made = part;
    }
    if (tti_good(b)) tti_set(c->out[0], &made);
}

/* ---- pooling ---- */

/* Replaces the zeros of pad_explicitly by a very small number, which is never a maximum. */
static void mask_border(tti_building *b, const window *w, const tutti_shape *inner,
                        tti_operand *x) {
    tutti_shape s = tti_shape_of(x);
    tti_host made;
    tti_operand border = {0}, sum = {0};
    if (!tti_good(b)) return;
    s.dim[0] = s.dim[1] = 1;
    if (!tti_host_new(b, TTI_ELEM_F32, &s, &made)) return;
    int64_t n = tti_host_n(&made);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i;
        for (int d = w->n - 1; d >= 0; left /= s.dim[2 + d--]) {
            int64_t at = left % s.dim[2 + d];
            if (at < w->begin[d] || at >= w->begin[d] + inner->dim[2 + d]) made.data[i] = -1e30;
        }
    }
    tti_set_host(&border, &made);
    tti_call_row(b, "aten.add.Tensor", (tti_arg[]){tti_operand_arg(x), tti_operand_arg(&border)}, 2,
                 (tti_operand *[]){&sum}, 1);
    *x = sum;
}

/* X auto_pad ceil_mode dilations kernel_shape pads strides */
static void max_pool(tti_building *b, const tti_call *c) {
    static const window_args at = {1, 4, 6, 3, 5};
    window w = {0};
    tti_operand x;
    tutti_shape inner = tti_shape_of(tti_operand_at(b, c, 0));
    if (!read_window(b, c, &at, &w)) return;
    window apart = w;
    pad_explicitly(b, c, &apart, &x);
    if (tti_good(b) && !is_even(&w)) mask_border(b, &w, &inner, &x);
    if (!tti_good(b)) return;
    static const char *const rows[] = {"aten.max_pool1d.default", "aten.max_pool2d.default",
                                       "aten.max_pool3d.default"};
    tti_call_row(b, rows[w.n - 1],
                 (tti_arg[]){tti_operand_arg(&x), tti_ints_arg(b, w.kernel, w.n),
                             tti_ints_arg(b, w.stride, w.n), tti_ints_arg(b, apart.begin, w.n),
                             tti_ints_arg(b, w.dilation, w.n), *c->arg[2]},
                 6, c->out, 1);
}

/* Computes along one dimension the ratio of the elements of each window to those that are not
 * padding. */
static bool window_ratios(tti_building *b, const window *w, int d, int64_t n_inner, int64_t n_out,
                          tti_operand *out) {
    tutti_shape s = {.n_dims = 2 + w->n};
    tti_host made;
    int64_t begin = w->begin[d], end = begin + n_inner, size = end + w->end[d];
    for (int k = 0; k < s.n_dims; k++) s.dim[k] = k == 2 + d ? n_out : 1;
    if (!tti_host_new(b, TTI_ELEM_F32, &s, &made)) return false;
    for (int64_t i = 0; i < n_out; i++) {
        int64_t first = i * w->stride[d], last = TTI_MIN(first + w->kernel[d], size);
        int64_t inner = TTI_MIN(last, end) - TTI_MAX(first, begin);
        made.data[i] = (double)(last - first) / (double)TTI_MAX(inner, 1);
    }
    tti_set_host(out, &made);
    return true;
}

/* Converts a mean over windows of a padded x (pad_explicitly) to a mean over the elements that are
 * not padding. */
static void exclude_border(tti_building *b, const window *w, const tutti_shape *inner,
                           tti_operand *y) {
    tutti_shape s = tti_shape_of(y);
    for (int d = 0; d < w->n && tti_good(b); d++) {
        tti_operand ratios = {0}, product = {0};
        if (w->begin[d] == 0 && w->end[d] == 0) continue;
        if (!window_ratios(b, w, d, inner->dim[2 + d], s.dim[2 + d], &ratios)) return;
        tti_call_row(b, "aten.mul.Tensor",
                     (tti_arg[]){tti_operand_arg(y), tti_operand_arg(&ratios)}, 2,
                     (tti_operand *[]){&product}, 1);
        *y = product;
    }
}

/* X auto_pad ceil_mode count_include_pad dilations kernel_shape pads strides */
static void average_pool(tti_building *b, const tti_call *c) {
    static const window_args at = {1, 5, 7, 4, 6};
    window w = {0};
    tti_operand x, y = {0};
    tutti_shape inner = tti_shape_of(tti_operand_at(b, c, 0));
    if (!read_window(b, c, &at, &w)) return;
    for (int d = 0; d < w.n; d++)
        if (w.dilation[d] != 1) tti_refuse(b, "dilations other than 1 are not supported");
    bool leaves_out = !is_even(&w) && !tti_bool_at(b, c, 3);
    window apart = w;
    pad_explicitly(b, c, &apart, &x);
    if (!tti_good(b)) return;
    static const char *const rows[] = {"aten.avg_pool1d.default", "aten.avg_pool2d.default",
                                       "aten.avg_pool3d.default"};
    tti_call_row(b, rows[w.n - 1],
                 (tti_arg[]){tti_operand_arg(&x), tti_ints_arg(b, w.kernel, w.n),
                             tti_ints_arg(b, w.stride, w.n), tti_ints_arg(b, apart.begin, w.n),
                             *c->arg[2], *c->arg[3]},
                 6, (tti_operand *[]){&y}, 1);
    if (leaves_out) exclude_border(b, &w, &inner, &y);
    if (tti_good(b)) tti_set(c->out[0], &y);
}

/* Pools over all but the first two dimensions, which become 1. */
static void global_pool(tti_building *b, const tti_call *c) {
    static const int64_t dims[] = {2, 3, 4, 5, 6, 7};
    int n = tti_shape_of(tti_operand_at(b, c, 0)).n_dims - 2;
    if (n < 1 || n > (int)TTI_COUNT(dims))
        tti_refuse(b, "an input of %d dimensions is not supported", n + 2);
    if (tti_good(b))
        tti_call_row(b, tti_as_of(b),
                     (tti_arg[]){*c->arg[0], tti_ints_arg(b, dims, n), tti_bool_arg(true)}, 3,
                     c->out, 1);
}

/* ---- norms ---- */

/* X scale B mean var epsilon momentum training_mode */
static void batch_norm(tti_building *b, const tti_call *c) {
    double momentum = 1 - tti_number_at(b, c, 6);
    tti_call_row(b, "aten.batch_norm.default",
                 (tti_arg[]){*c->arg[0], *c->arg[1], *c->arg[2], *c->arg[3], *c->arg[4],
                             tti_bool_arg(tti_bool_at(b, c, 7)),
                             tti_float_arg(momentum > 0 ? momentum : 0.1), *c->arg[5]},
                 8, c->out, 1);
}

/* Returns the sizes of x from axis on. */
static tti_arg sizes_from(tti_building *b, const tti_call *c, int k) {
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    int axis = tti_dim_at(b, c, k, s.n_dims);
    return tti_ints_arg(b, s.dim + axis, TTI_MAX(s.n_dims - axis, 0));
}

/* X Scale B axis epsilon */
static void layer_norm(tti_building *b, const tti_call *c) {
    tti_arg sizes = sizes_from(b, c, 3);
    if (tti_good(b))
        tti_call_row(b, "aten.layer_norm.default",
                     (tti_arg[]){*c->arg[0], sizes, *c->arg[1], *c->arg[2], *c->arg[4]}, 5, c->out,
                     1);
}

/* X scale axis epsilon */
static void rms_norm(tti_building *b, const tti_call *c) {
    tti_arg sizes = sizes_from(b, c, 2);
    if (tti_good(b))
        tti_call_row(b, "aten.rms_norm.default",
                     (tti_arg[]){*c->arg[0], sizes, *c->arg[1], *c->arg[3]}, 4, c->out, 1);
}

/* input scale B epsilon */
static void instance_norm(tti_building *b, const tti_call *c) {
    tti_call_row(b, "aten.instance_norm.default",
                 (tti_arg[]){*c->arg[0],
                             *c->arg[1],
                             *c->arg[2],
                             {0},
                             {0},
                             tti_bool_arg(true),
                             tti_float_arg(0.1),
                             *c->arg[3]},
                 8, c->out, 1);
}

/* Before opset 21 scale and bias have one element per group, which is repeated for its channels. */
static void by_channel(tti_building *b, const tti_operand *x, int64_t channels, tti_operand *out) {
    int64_t n = tti_shape_of(x).n_dims == 1 ? tti_shape_of(x).dim[0] : 0;
    tti_operand column = {0}, wide = {0};
    *out = *x;
    if (n == channels || !tti_good(b)) return;
    if (n < 1 || channels % n != 0) tti_refuse(b, "the scale does not fit");
    if (tti_good(b)) tti_do_reshape(b, x, &TUTTI_SHAPE(n, 1), &column);
    int64_t to[2] = {n, n > 0 ? channels / n : 0};
    tti_call_row(b, "aten.expand.default",
                 (tti_arg[]){tti_operand_arg(&column), tti_ints_arg(b, to, 2)}, 2,
                 (tti_operand *[]){&wide}, 1);
    if (tti_good(b)) tti_do_reshape(b, &wide, &TUTTI_SHAPE(channels), out);
}

/* X scale bias epsilon num_groups */
static void group_norm(tti_building *b, const tti_call *c) {
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    tti_operand scale, bias;
    if (s.n_dims < 2) tti_refuse(b, "an input of %d dimensions is not supported", s.n_dims);
    if (!tti_good(b)) return;
    by_channel(b, tti_operand_at(b, c, 1), s.dim[1], &scale);
    by_channel(b, tti_operand_at(b, c, 2), s.dim[1], &bias);
    if (tti_good(b))
        tti_call_row(b, "aten.group_norm.default",
                     (tti_arg[]){*c->arg[0], *c->arg[4], tti_operand_arg(&scale),
                                 tti_operand_arg(&bias), *c->arg[3]},
                     5, c->out, 1);
}

/* data ratio training_mode. Without a mode the node is active in training. */
static void dropout(tti_building *b, const tti_call *c) {
    double p = tti_has(c, 1) ? tti_number_at(b, c, 1) : 0.5;
    bool trains = !tti_has(c, 2) || tti_bool_at(b, c, 2);
    if (tti_good(b))
        tti_call_row(b, "aten.dropout.default",
                     (tti_arg[]){*c->arg[0], tti_float_arg(p), tti_bool_arg(trains)}, 3, c->out, 1);
}

/* ---- products ---- */

/* A matrix that is shared by all rows is the weight of a linear layer, whose gradient does not
 * merge the dimensions of x. Exporters often transpose it before the product. */
static void matmul(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    tti_operand weight = {0};
    if (!tti_good(b)) return;
    bool is_weight = y->kind == TTI_OPERAND_GRAPH && tti_shape_of(y).n_dims == 2 &&
                     !tti_of_batch(y) && (y->transpose_of || tti_shape_of(x).n_dims > 2);
    if (!is_weight || x->kind != TTI_OPERAND_GRAPH || tti_shape_of(x).n_dims < 2) {
        tti_call_row(b, "aten.matmul.default", (tti_arg[]){*c->arg[0], *c->arg[1]}, 2, c->out, 1);
        return;
    }
    if (y->transpose_of)
        tti_set_value(b, &weight, y->transpose_of, y->elem, false);
    else
        tti_do_permute(b, y, (int[]){1, 0}, &weight);
    tti_call_row(b, "aten.linear.default", (tti_arg[]){*c->arg[0], tti_operand_arg(&weight)}, 2,
                 c->out, 1);
}

static const tti_operand *turn(tti_building *b, const tti_operand *x, tti_operand *out) {
    tti_do_permute(b, x, (int[]){1, 0}, out);
    return out;
}

/* A B C alpha beta transA transB */
static void gemm(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    tti_arg term = bias_arg(b, c, 2);
    tti_operand turned_x = {0}, turned_y = {0}, made = {0};
    double alpha = tti_number_at(b, c, 3), beta = tti_number_at(b, c, 4);
    bool turns = tti_bool_at(b, c, 6), has_term = term.kind != TTI_ARG_NONE;
    if (tti_good(b) && (tti_shape_of(x).n_dims != 2 || tti_shape_of(y).n_dims != 2))
        tti_refuse(b, "matrices are expected");
    if (!tti_good(b)) return;
    if (tti_bool_at(b, c, 5)) x = turn(b, x, &turned_x);
    bool plain = has_term && tti_shape_of(tti_operand_of(b, &term)).n_dims == 1;
    if (turns && alpha == 1 && (!has_term || (plain && beta == 1)) &&
        x->kind == TTI_OPERAND_GRAPH) {
        tti_call_row(b, "aten.linear.default", (tti_arg[]){tti_operand_arg(x), *c->arg[1], term}, 3,
                     c->out, 1);
        return;
    }
    if (turns) y = turn(b, y, &turned_y);
    if (has_term && tti_good(b)) {
        tti_call_row(b, "aten.addmm.default",
                     (tti_arg[]){term, tti_operand_arg(x), tti_operand_arg(y), tti_float_arg(beta),
                                 tti_float_arg(alpha)},
                     5, c->out, 1);
        return;
    }
    tti_operand *product = alpha == 1 ? c->out[0] : &made;
    if (tti_good(b))
        tti_call_row(b, "aten.mm.default", (tti_arg[]){tti_operand_arg(x), tti_operand_arg(y)}, 2,
                     &product, 1);
    if (alpha != 1 && tti_good(b))
        tti_call_row(b, "aten.mul.Tensor",
                     (tti_arg[]){tti_operand_arg(&made), tti_float_arg(alpha)}, 2, c->out, 1);
}

/* ---- attention ---- */

/* [B,T,H D] -> [B,H,T,D] */
static void split_heads(tti_building *b, const tti_operand *x, int64_t heads, tti_operand *out) {
    tutti_shape s = tti_shape_of(x);
    tti_operand wide = {0};
    if (heads < 1 || s.dim[2] % heads != 0) tti_refuse(b, "the heads do not fit the width");
    if (!tti_good(b)) return;
    tti_do_reshape(b, x, &TUTTI_SHAPE(s.dim[0], s.dim[1], heads, s.dim[2] / heads), &wide);
    if (tti_good(b)) tti_do_permute(b, &wide, (int[]){0, 2, 1, 3}, out);
}

/* Q K V attn_mask past_key past_value nonpad_kv_seqlen is_causal kv_num_heads q_num_heads
 * scale softcap */
static void attention(tti_building *b, const tti_call *c) {
    const tti_operand *q = tti_operand_at(b, c, 0);
    tti_operand heads[3] = {{0}}, made = {0}, transpose_of = {0};
    int n_dims = tti_shape_of(q).n_dims;
    if (tti_has(c, 4) || tti_has(c, 5) || tti_has(c, 6))
        tti_refuse(b, "past keys and values, and padded lengths, are not supported");
    if (tti_number_at(b, c, 11) != 0) tti_refuse(b, "softcap is not supported");
    if (tti_good(b) && n_dims != 3 && n_dims != 4)
        tti_refuse(b, "queries of %d dimensions are not supported", n_dims);
    if (tti_good(b) && n_dims == 3 && (!tti_has(c, 8) || !tti_has(c, 9)))
        tti_refuse(b, "the number of heads is missing");
    for (int i = 0; i < 3 && tti_good(b); i++) {
        const tti_operand *x = tti_operand_at(b, c, i);
        heads[i] = *x;
        if (n_dims == 3) split_heads(b, x, tti_int_at(b, c, i == 0 ? 9 : 8), &heads[i]);
    }
    if (!tti_good(b)) return;
    tti_operand *out = n_dims == 3 ? &made : c->out[0];
    tti_call_row(b, "aten.scaled_dot_product_attention.default",
                 (tti_arg[]){tti_operand_arg(&heads[0]), tti_operand_arg(&heads[1]),
                             tti_operand_arg(&heads[2]), *c->arg[3], tti_float_arg(0),
                             tti_bool_arg(tti_bool_at(b, c, 7)), *c->arg[10]},
                 7, &out, 1);
    if (n_dims != 3 || !tti_good(b)) return;
    tutti_shape s = tti_shape_of(&made);
    tti_do_permute(b, &made, (int[]){0, 2, 1, 3}, &transpose_of);
    if (tti_good(b))
        tti_do_reshape(b, &transpose_of, &TUTTI_SHAPE(s.dim[0], s.dim[2], s.dim[1] * s.dim[3]),
                       c->out[0]);
}

#define OWN(op, args, fn) \
    { .target = "onnx." op, .signature = args, .build = fn }
#define GLOBAL(op, same) \
    { .target = "onnx." op, .signature = "X", .build = global_pool, .as = "aten." same }

const tti_operator tti_operators_onnx_layers[] = {
    OWN("Conv",
        "X W B=None auto_pad=NOTSET dilations=None group=1 kernel_shape=None pads=None "
        "strides=None",
        conv),
    OWN("ConvTranspose",
        "X W B=None auto_pad=NOTSET dilations=None group=1 kernel_shape=None output_padding=None "
        "output_shape=None pads=None strides=None",
        conv_transpose),
    OWN("MaxPool",
        "X auto_pad=NOTSET ceil_mode=0 dilations=None kernel_shape pads=None storage_order!=0 "
        "strides=None",
        max_pool),
    OWN("AveragePool",
        "X auto_pad=NOTSET ceil_mode=0 count_include_pad=0 dilations=None kernel_shape pads=None "
        "strides=None",
        average_pool),
    GLOBAL("GlobalAveragePool", "mean.dim"),
    GLOBAL("GlobalMaxPool", "amax.default"),
    OWN("BatchNormalization",
        "X scale B input_mean input_var epsilon=0.00001 momentum=0.9 training_mode=0", batch_norm),
    OWN("LayerNormalization", "X Scale B=None axis=-1 epsilon=0.00001 stash_type!=1", layer_norm),
    OWN("RMSNormalization", "X scale axis=-1 epsilon=0.00001 stash_type!=1", rms_norm),
    OWN("SimplifiedLayerNormalization", "X scale axis=-1 epsilon=0.00001 stash_type!=1", rms_norm),
    OWN("InstanceNormalization", "input scale B epsilon=0.00001", instance_norm),
    OWN("GroupNormalization", "X scale bias epsilon=0.00001 num_groups stash_type!=1", group_norm),
    OWN("Dropout", "data ratio=None training_mode=None seed!", dropout),
    OWN("MatMul", "A B", matmul),
    OWN("Gemm", "A B C=None alpha=1 beta=1 transA=0 transB=0", gemm),
    OWN("Attention",
        "Q K V attn_mask=None past_key=None past_value=None nonpad_kv_seqlen=None is_causal=0 "
        "kv_num_heads=None q_num_heads=None qk_matmul_output_mode!=0 scale=None softcap=0 "
        "softmax_precision!",
        attention),
    {0},
};

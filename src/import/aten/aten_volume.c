/* aten_volume.c - convolutions and pooling over three dimensions, composed of those over two, and
 * max pooling with a dilation. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* Reads one number for each of n dimensions, or one for all. */
static void numbers_at(tti_building *b, const tti_call *c, int k, int n, int64_t out[3]) {
    int64_t list[TUTTI_MAX_DIMS] = {0};
    int n_list = tti_ints_at(b, c, k, list);
    if (tti_good(b) && n_list != 1 && n_list != n)
        tti_refuse(b, "one or %d numbers are expected, not %d", n, n_list);
    for (int d = 0; d < n; d++) out[d] = list[n_list == n ? d : 0];
}

/* Reads argument 0, x[N,C,D,H,W], and its shape *s; false: it has another number of dimensions. */
static bool volume_at(tti_building *b, const tti_call *c, tti_operand *x, tutti_shape *s) {
    *x = *tti_operand_at(b, c, 0);
    *s = tti_shape_of(x);
    if (tti_good(b) && s->n_dims != 5)
        tti_refuse(b, "a tensor of 5 dimensions is expected, not of %d", s->n_dims);
    return tti_good(b);
}

static void reshape(tti_building *b, tti_operand *x, const tutti_shape *to) {
    tti_operand made = {0};
    tti_do_reshape(b, x, to, &made);
    *x = made;
}

static void permute(tti_building *b, tti_operand *x, const int *perm) {
    tti_operand made = {0};
    tti_do_permute(b, x, perm, &made);
    *x = made;
}

static void call(tti_building *b, const char *target, const tti_arg *args, int n, tti_operand *x) {
    tti_operand made = {0};
    tti_call_row(b, target, args, n, (tti_operand *[]){&made}, 1);
    *x = made;
}

/* Pads x along dim with `begin` and `end` elements of value. */
static void pad_dim(tti_building *b, tti_operand *x, int dim, int64_t begin, int64_t end,
                    double value) {
    int64_t pads[2 * TUTTI_MAX_DIMS] = {0};
    int n = tti_shape_of(x).n_dims;
    if (!tti_good(b) || (begin == 0 && end == 0)) return;
    pads[2 * (n - 1 - dim)] = begin, pads[2 * (n - 1 - dim) + 1] = end;
    call(
        b, "aten.constant_pad_nd.default",
        (tti_arg[]){tti_operand_arg(x), tti_ints_arg(b, pads, 2 * (n - dim)), tti_float_arg(value)},
        3, x);
}

/* ---- convolution ---- */

typedef struct window {
    int64_t stride[3], pad[3], extra[3], dilation[3];
} window;

/* Converts y[N D,C,..] to [N,C,D,..]. */
static void back_to_volume(tti_building *b, tti_operand *y, int64_t n) {
    tutti_shape s = tti_shape_of(y);
    int64_t depth = n > 0 ? s.dim[0] / n : 0;
    reshape(b, y, &TUTTI_SHAPE(n, depth, s.dim[1], s.dim[2], s.dim[3]));
    permute(b, y, (int[]){0, 2, 1, 3, 4});
}

/* Converts kernel taps along the depth to channels: x[N,C,D,H,W] to [N D',C Kd,H,W]. */
static void taps_to_channels(tti_building *b, tti_operand *x, const window *w, int64_t n_taps) {
    tti_operand taps[64] = {{0}};
    tti_arg items[64];
    tutti_shape s = tti_shape_of(x);
    int64_t reach = (n_taps - 1) * w->dilation[0] + 1, depth;
    if (n_taps < 1 || n_taps > (int)TTI_COUNT(taps))
        tti_refuse(b, "a kernel of %lld along the depth is not supported, at most %d",
                   (long long)n_taps, (int)TTI_COUNT(taps));
    if (tti_good(b) && s.dim[2] < reach) tti_refuse(b, "the kernel is larger than the input");
    if (!tti_good(b)) return;
    depth = (s.dim[2] - reach) / w->stride[0] + 1;
    for (int64_t k = 0; k < n_taps && tti_good(b); k++) {
        tti_do_slice(b, x, 2, k * w->dilation[0], depth, w->stride[0], &taps[k]);
        reshape(b, &taps[k], &TUTTI_SHAPE(s.dim[0], s.dim[1], 1, depth, s.dim[3], s.dim[4]));
        items[k] = tti_operand_arg(&taps[k]);
    }
    tti_arg list = {.kind = TTI_ARG_LIST, .items = items, .n = (int)n_taps};
    if (tti_good(b)) call(b, "aten.cat.default", (tti_arg[]){list, tti_int_arg(2)}, 2, x);
    permute(b, x, (int[]){0, 3, 1, 2, 4, 5});
    reshape(b, x, &TUTTI_SHAPE(s.dim[0] * depth, s.dim[1] * n_taps, s.dim[3], s.dim[4]));
}

/* Converts weight[O,I,Kd,Kh,Kw], with shape *s, to [O,I Kd,Kh,Kw]. */
static bool flat_weight(tti_building *b, const tti_call *c, tti_operand *weight, tutti_shape *s) {
    *weight = *tti_operand_at(b, c, 1);
    *s = tti_shape_of(weight);
    if (tti_good(b) && s->n_dims != 5)
        tti_refuse(b, "the weight has %d dimensions, 5 are expected", s->n_dims);
    reshape(b, weight, &TUTTI_SHAPE(s->dim[0], s->dim[1] * s->dim[2], s->dim[3], s->dim[4]));
    return tti_good(b);
}

/* input weight bias stride padding dilation groups */
static void conv3d(tti_building *b, const tti_call *c) {
    window w = {0};
    tti_operand x, weight;
    tutti_shape s, k;
    numbers_at(b, c, 3, 3, w.stride);
    numbers_at(b, c, 5, 3, w.dilation);
    if (!volume_at(b, c, &x, &s) || !flat_weight(b, c, &weight, &k)) return;
    const tti_arg *padding = tti_arg_at(c, 4);
    bool same = padding->kind == TTI_ARG_TEXT && strcmp(padding->text, "same") == 0;
    if (padding->kind != TTI_ARG_TEXT) numbers_at(b, c, 4, 3, w.pad);
    for (int d = 0; d < 3 && tti_good(b); d++) {
        int64_t total = same ? w.dilation[d] * (k.dim[2 + d] - 1) : 0;
        if (same && w.stride[d] != 1)
            tti_refuse(b, "padding='same' with a stride is not supported");
        if (w.stride[d] < 1 || w.dilation[d] < 1 || w.pad[d] < 0 || w.pad[d] > 1 << 24)
            tti_refuse(b, "a stride, a dilation or a padding is out of range");
        if (same) w.pad[d] = total / 2;
        if (total % 2 != 0) pad_dim(b, &x, 2 + d, 0, 1, 0);
    }
    pad_dim(b, &x, 2, w.pad[0], w.pad[0], 0);
    if (tti_good(b)) taps_to_channels(b, &x, &w, k.dim[2]);
    if (!tti_good(b)) return;
    call(b, "aten.conv2d.default",
         (tti_arg[]){tti_operand_arg(&x), tti_operand_arg(&weight), *tti_arg_at(c, 2),
                     tti_ints_arg(b, w.stride + 1, 2), tti_ints_arg(b, w.pad + 1, 2),
                     tti_ints_arg(b, w.dilation + 1, 2), *tti_arg_at(c, 6)},
         7, &x);
    if (tti_good(b)) back_to_volume(b, &x, s.dim[0]);
    if (tti_good(b)) tti_set(c->out[0], &x);
}

/* Takes tap k of x[N,O,D,Kd,..] and spreads its elements over a depth of `depth`: stride apart,
 * from k * dilation on. */
static void scatter_tap(tti_building *b, const tti_operand *x, int64_t k, const window *w,
                        int64_t depth, tti_operand *out) {
    tutti_shape s = tti_shape_of(x);
    tti_do_slice(b, x, 3, k, 1, 1, out);
    pad_dim(b, out, 3, 0, w->stride[0] - 1, 0);
    reshape(b, out, &TUTTI_SHAPE(s.dim[0], s.dim[1], s.dim[2] * w->stride[0], s.dim[4], s.dim[5]));
    int64_t own = (s.dim[2] - 1) * w->stride[0] + 1, first = k * w->dilation[0];
    tti_operand cut = {0};
    if (tti_good(b)) tti_do_slice(b, out, 2, 0, own, 1, &cut);
    pad_dim(b, &cut, 2, first, depth - own - first, 0);
    *out = cut;
}

/* input weight bias stride padding output_padding groups dilation: weight[C,O/groups,Kd,Kh,Kw] */
static void conv_transpose3d(tti_building *b, const tti_call *c) {
    window w = {0};
    tti_operand x, weight, sum = {0}, tap = {0};
    tutti_shape s, k;
    numbers_at(b, c, 3, 3, w.stride);
    numbers_at(b, c, 4, 3, w.pad);
    numbers_at(b, c, 5, 3, w.extra);
    numbers_at(b, c, 7, 3, w.dilation);
    int64_t groups = tti_int_at(b, c, 6);
    if (!volume_at(b, c, &x, &s) || !flat_weight(b, c, &weight, &k)) return;
    if (groups < 1 || w.stride[0] < 1 || w.dilation[0] < 1 || w.pad[0] < 0 || s.dim[2] < 1)
        tti_refuse(b, "a stride, a dilation, a padding or the groups are out of range");
    permute(b, &x, (int[]){0, 2, 1, 3, 4});
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0] * s.dim[2], s.dim[1], s.dim[3], s.dim[4]));
    if (!tti_good(b)) return;
    call(b, "aten.conv_transpose2d.input",
         (tti_arg[]){tti_operand_arg(&x), tti_operand_arg(&weight), (tti_arg){0},
                     tti_ints_arg(b, w.stride + 1, 2), tti_ints_arg(b, w.pad + 1, 2),
                     tti_ints_arg(b, w.extra + 1, 2), tti_int_arg(groups),
                     tti_ints_arg(b, w.dilation + 1, 2)},
         8, &x);
    if (!tti_good(b)) return;
    tutti_shape made = tti_shape_of(&x);
    int64_t n_out = groups * k.dim[1],
            whole = (s.dim[2] - 1) * w.stride[0] + (k.dim[2] - 1) * w.dilation[0] + 1 + w.extra[0];
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[2], n_out, k.dim[2], made.dim[2], made.dim[3]));
    permute(b, &x, (int[]){0, 2, 1, 3, 4, 5});
    for (int64_t i = 0; i < k.dim[2] && tti_good(b); i++) {
        scatter_tap(b, &x, i, &w, whole, &tap);
        if (i == 0)
            sum = tap;
        else if (tti_good(b))
            call(b, "aten.add.Tensor", (tti_arg[]){tti_operand_arg(&sum), tti_operand_arg(&tap)}, 2,
                 &sum);
    }
    if (tti_good(b) && whole <= 2 * w.pad[0]) tti_refuse(b, "the padded output would be empty");
    if (!tti_good(b)) return;
    tti_do_slice(b, &sum, 2, w.pad[0], whole - 2 * w.pad[0], 1, &x);
    if (tti_has(c, 2)) {
        tti_operand bias = *tti_operand_at(b, c, 2);
        reshape(b, &bias, &TUTTI_SHAPE(1, n_out, 1, 1, 1));
        call(b, "aten.add.Tensor", (tti_arg[]){tti_operand_arg(&x), tti_operand_arg(&bias)}, 2, &x);
    }
    if (tti_good(b)) tti_set(c->out[0], &x);
}

/* ---- pooling ---- */

/* Pools x[N,C,D,H,W] in two passes: over H and W, then over D. target: the pooling over two
 * dimensions. Here its first n_windows arguments after x are lists of three numbers. */
static void pool_twice(tti_building *b, const tti_call *c, const char *target, int n_windows) {
    static const int64_t neutral[] = {1, 1, 0, 1}; /* kernel, stride, padding, dilation */
    tti_operand x;
    tutti_shape s;
    tti_arg args[8];
    if (!volume_at(b, c, &x, &s)) return;
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[1] * s.dim[2], s.dim[3], s.dim[4]));
    for (int pass = 0; pass < 2 && tti_good(b); pass++) {
        args[0] = tti_operand_arg(&x);
        for (int k = 1; k < c->n_args; k++) args[k] = *tti_arg_at(c, k);
        for (int k = 1; k <= n_windows && tti_good(b); k++) {
            int64_t list[3];
            const tti_arg *arg = tti_arg_at(c, k);
            bool none = arg->kind == TTI_ARG_NONE || (arg->kind == TTI_ARG_LIST && arg->n == 0);
            numbers_at(b, c, none ? 1 : k, 3, list); /* the default stride is the kernel */
            int64_t own[2] = {list[pass ? 0 : 1], pass ? neutral[k - 1] : list[2]};
            args[k] = tti_ints_arg(b, own, 2);
        }
        if (tti_good(b)) call(b, target, args, c->n_args, &x);
        if (!tti_good(b) || pass) break;
        tutti_shape made = tti_shape_of(&x);
        reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[1], s.dim[2], made.dim[2] * made.dim[3]));
        s.dim[3] = made.dim[2], s.dim[4] = made.dim[3];
    }
    if (!tti_good(b)) return;
    int64_t depth = tti_shape_of(&x).dim[2];
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[1], depth, s.dim[3], s.dim[4]));
    if (tti_good(b)) tti_set(c->out[0], &x);
}

/* self kernel_size stride padding dilation ceil_mode */
static void max_pool3d(tti_building *b, const tti_call *c) {
    pool_twice(b, c, "aten.max_pool2d.default", 4);
    if (c->n_outs > 1 && c->out[1]) c->out[1]->kind = TTI_OPERAND_NONE; /* no indices */
}

/* self kernel_size stride padding ceil_mode count_include_pad divisor_override */
static void avg_pool3d(tti_building *b, const tti_call *c) {
    if (tti_has(c, 6)) tti_refuse(b, "divisor_override is not supported");
    pool_twice(b, c, "aten.avg_pool2d.default", 3);
}

/* self output_size: None keeps the size. */
static void adaptive_avg_pool3d(tti_building *b, const tti_call *c) {
    tti_operand x;
    tutti_shape s;
    int64_t size[3];
    const tti_arg *arg = tti_arg_at(c, 1);
    if (!volume_at(b, c, &x, &s)) return;
    for (int d = 0; d < 3; d++) {
        bool list = arg->kind == TTI_ARG_LIST && arg->n == 3;
        tti_call one = *c;
        one.arg[1] = list ? &arg->items[d] : arg;
        size[d] = one.arg[1]->kind == TTI_ARG_NONE ? s.dim[2 + d] : tti_int_at(b, &one, 1);
    }
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[1] * s.dim[2], s.dim[3], s.dim[4]));
    if (!tti_good(b)) return;
    call(b, "aten.adaptive_avg_pool2d.default",
         (tti_arg[]){tti_operand_arg(&x), tti_ints_arg(b, size + 1, 2)}, 2, &x);
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[1], s.dim[2], size[1] * size[2]));
    int64_t deep[2] = {size[0], size[1] * size[2]};
    if (!tti_good(b)) return;
    call(b, "aten.adaptive_avg_pool2d.default",
         (tti_arg[]){tti_operand_arg(&x), tti_ints_arg(b, deep, 2)}, 2, &x);
    reshape(b, &x, &TUTTI_SHAPE(s.dim[0], s.dim[1], size[0], size[1], size[2]));
    if (tti_good(b)) tti_set(c->out[0], &x);
}

/* ---- max pooling with a dilation ---- */

void tti_unfold_windows(tti_building *b, tti_operand *x, int dim, tti_dilated_window *w,
                        bool rounds_up) {
    int64_t size = tti_shape_of(x).dim[dim], reach = (w->kernel - 1) * w->dilation + 1;
    int64_t free = size + 2 * w->pad - reach;
    if (free < 0) tti_refuse(b, "the window is larger than the input");
    if (!tti_good(b)) return;
    int64_t n = free / w->stride + 1;
    bool more = rounds_up && free % w->stride != 0 && n * w->stride < size + w->pad;
    n += more;
    tti_host ids;
    pad_dim(b, x, dim, w->pad, w->pad + (more ? w->stride : 0), -INFINITY);
    if (!tti_good(b) || !tti_host_new(b, TTI_ELEM_I64, &TUTTI_SHAPE(n * w->kernel), &ids)) return;
    for (int64_t i = 0; i < n * w->kernel; i++)
        ids.data[i] = (double)(i / w->kernel * w->stride + i % w->kernel * w->dilation);
    tti_operand places = {0};
    tti_set_host(&places, &ids);
    call(b, "aten.index_select.default",
         (tti_arg[]){tti_operand_arg(x), tti_int_arg(dim), tti_operand_arg(&places)}, 3, x);
    *w = (tti_dilated_window){.kernel = w->kernel, .stride = w->kernel, .dilation = 1};
}

#define ROW(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }
#define CONV3 "input weight bias=None stride=[1] padding=[0] dilation=[1] groups=1"

const tti_operator tti_operators_volume[] = {
    ROW("conv3d.default", CONV3, conv3d),
    ROW("conv3d.padding", CONV3, conv3d),
    ROW("conv_transpose3d.input",
        "input weight bias=None stride=[1] padding=[0] output_padding=[0] groups=1 dilation=[1]",
        conv_transpose3d),
    ROW("max_pool3d.default", "self kernel_size stride=[] padding=[0] dilation=[1] ceil_mode=False",
        max_pool3d),
    ROW("max_pool3d_with_indices.default",
        "self kernel_size stride=[] padding=[0] dilation=[1] ceil_mode=False", max_pool3d),
    ROW("avg_pool3d.default",
        "self kernel_size stride=[] padding=[0] ceil_mode=False count_include_pad=True "
        "divisor_override=None",
        avg_pool3d),
    ROW("adaptive_avg_pool3d.default", "self output_size", adaptive_avg_pool3d),
    ROW("_adaptive_avg_pool3d.default", "self output_size", adaptive_avg_pool3d),
    {0},
};

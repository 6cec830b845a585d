/* onnx_rules.c - the rules that convert ops to ONNX; the table is at the end.
 *
 * Attention and recurrent layers are in onnx_layers.c.  A rule may use all operators of operator
 * set 17 and must not fix the number of rows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "train/export/onnx_emit.h"

#define RULE(name) \
    static tutti_status name(tti_onnx_emit *e, const tti_node *node, const char **out)
#define IN(i) tti_onnx_in(e, node, (i))
#define OP(op, ...) TTI_ONNX_OP(e, op, NULL, __VA_ARGS__)

static const tutti_shape *in_shape(const tti_node *node, int i) { return &node->in[i]->type.shape; }

static tutti_status refuse(const tti_node *node, const char *what) {
    return tti_fail(TUTTI_E_UNSUPPORTED, "export: format onnx does not have %s '%s': %s",
                    node->op->name, node->name, what);
}

/* ---- element by element ---- */

/* Ops that differ from ONNX's only in the name. */
static const char *const same[][2] = {{"neg", "Neg"},
                                      {"exp", "Exp"},
                                      {"log", "Log"},
                                      {"sqrt", "Sqrt"},
                                      {"abs", "Abs"},
                                      {"sign", "Sign"},
                                      {"add", "Add"},
                                      {"sub", "Sub"},
                                      {"mul", "Mul"},
                                      {"div", "Div"},
                                      {"maximum", "Max"},
                                      {"minimum", "Min"},
                                      {"relu", "Relu"},
                                      {"sigmoid", "Sigmoid"},
                                      {"tanh", "Tanh"},
                                      {"dropout", "Identity"},
                                      {"drop_path", "Identity"},
                                      {"stop_gradient", "Identity"},
                                      {"erf", "Erf"},
                                      {"sin", "Sin"},
                                      {"cos", "Cos"},
                                      {"pow", "Pow"}};

RULE(renamed) {
    for (size_t i = 0; i < TTI_COUNT(same); i++) {
        if (strcmp(same[i][0], node->op->name) != 0) continue;
        *out = node->n_in == 2 ? OP(same[i][1], IN(0), IN(1)) : OP(same[i][1], IN(0));
        return TUTTI_OK;
    }
    return refuse(node, "no rule");
}

RULE(square) {
    *out = OP("Mul", IN(0), IN(0));
    return TUTTI_OK;
}

RULE(affine) {
    double alpha = tti_attr_float(node, "alpha"), beta = tti_attr_float(node, "beta");
    *out = OP("Mul", IN(0), tti_onnx_number(e, alpha));
    if (beta != 0) *out = OP("Add", *out, tti_onnx_number(e, beta));
    return TUTTI_OK;
}

static const char *cast_to(tti_onnx_emit *e, tutti_dtype dtype, const char *x) {
    tti_onnx_attr attrs[] = {TTI_ONNX_I("to", tti_onnx_dtype(dtype)), {0}};
    return TTI_ONNX_OP(e, "Cast", attrs, x);
}

RULE(cast) {
    *out = cast_to(e, (tutti_dtype)tti_attr_int(node, "dtype"), IN(0));
    return TUTTI_OK;
}

/* Comparisons give 0 or 1 as f32. */
RULE(compare) {
    const char *op = strcmp(node->op->name, "equal") == 0  ? "Equal"
                     : strcmp(node->op->name, "less") == 0 ? "Less"
                                                           : "LessOrEqual";
    *out = cast_to(e, TUTTI_F32, OP(op, IN(0), IN(1)));
    return TUTTI_OK;
}

/* Returns x where the mask is not 0, else 0. */
RULE(keep) {
    const char *closed = OP("Equal", IN(1), tti_onnx_number(e, 0));
    *out = OP("Where", closed, tti_onnx_number(e, 0), IN(0));
    return TUTTI_OK;
}

RULE(relu6) {
    *out = OP("Min", OP("Relu", IN(0)), tti_onnx_number(e, 6));
    return TUTTI_OK;
}

RULE(gelu) {
    const char *x = IN(0), *phi;
    if (tti_attr_int(node, "approximate")) {
        const char *cube = OP("Mul", x, OP("Mul", x, x));
        const char *arg = OP("Add", x, OP("Mul", cube, tti_onnx_number(e, 0.044715)));
        phi = OP("Tanh", OP("Mul", arg, tti_onnx_number(e, sqrt(2 / M_PI))));
    } else {
        phi = OP("Erf", OP("Mul", x, tti_onnx_number(e, M_SQRT1_2)));
    }
    const char *half = OP("Mul", x, tti_onnx_number(e, 0.5));
    *out = OP("Mul", half, OP("Add", phi, tti_onnx_number(e, 1)));
    return TUTTI_OK;
}

RULE(silu) {
    *out = OP("Mul", IN(0), OP("Sigmoid", IN(0)));
    return TUTTI_OK;
}

RULE(swiglu) {
    const tutti_shape *shape = in_shape(node, 0);
    int64_t half = shape->dim[shape->n_dims - 1] / 2;
    const char *part[2];
    tti_onnx_split(e, IN(0), -1, 2, (int64_t[]){half, half}, part);
    *out = OP("Mul", OP("Mul", part[0], OP("Sigmoid", part[0])), part[1]);
    return TUTTI_OK;
}

/* ---- shapes ---- */

RULE(constant) {
    tutti_type type = node->out[0]->type;
    double value = tti_attr_float(node, "value");
    const char *number = tti_onnx_number(e, value);
    if (type.dtype != TUTTI_F32) number = cast_to(e, type.dtype, number);
    *out = type.shape.n_dims == 0 ? number : OP("Expand", number, tti_onnx_shape(e, node, 0));
    return TUTTI_OK;
}

/* Integers are written as f32, which is exact below 2^24, and cast. */
RULE(array) {
    const tutti_type *type = &node->out[0]->type;
    const void *data = tti_attr_get(node, "data")->bytes;
    if (type->dtype == TUTTI_F32) {
        *out = tti_onnx_floats(e, &type->shape, data);
        return TUTTI_OK;
    }
    size_t n = (size_t)tutti_shape_n_elems(&type->shape);
    float *floats = malloc((n + 1) * sizeof *floats);
    if (!floats) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    bool fits = true;
    for (size_t i = 0; i < n; i++) {
        double x = tti_load_elem(type->dtype, data, i);
        fits = fits && fabs(x) <= 0x1p24;
        floats[i] = (float)x;
    }
    if (fits) *out = cast_to(e, type->dtype, tti_onnx_floats(e, &type->shape, floats));
    free(floats);
    return fits ? TUTTI_OK : refuse(node, "integers of 2^24 or more");
}

RULE(broadcast_to) {
    *out = OP("Expand", IN(0), tti_onnx_shape(e, node, 0));
    return TUTTI_OK;
}

RULE(reshape) {
    tutti_shape shape = node->out[0]->type.shape;
    if (tutti_shape_n_elems(&shape) == 0) return refuse(node, "empty values");
    *out = OP("Reshape", IN(0), tti_onnx_shape(e, node, -1));
    return TUTTI_OK;
}

RULE(transpose) {
    const tti_attr *perm = tti_attr_get(node, "perm");
    *out = tti_onnx_transpose(e, IN(0), perm->n, perm->v);
    return TUTTI_OK;
}

RULE(slice) {
    int64_t axis = tti_attr_int(node, "axis"), start = tti_attr_int(node, "start");
    int64_t end = start + tti_attr_int(node, "len");
    const tti_node *twin = tti_onnx_twin(e, node);
    int64_t twin_start = tti_attr_int(twin, "start");
    *out = OP("Slice", IN(0), tti_onnx_place(e, start, twin_start),
              tti_onnx_place(e, end, twin_start + tti_attr_int(twin, "len")),
              tti_onnx_list(e, 1, &axis));
    return TUTTI_OK;
}

RULE(concat) {
    const char *in[TTI_MAX_IN + 1] = {NULL};
    for (int i = 0; i < node->n_in; i++) in[i] = IN(i);
    *out = tti_onnx_op(e, "Concat", in,
                       (tti_onnx_attr[]){TTI_ONNX_I("axis", tti_attr_int(node, "axis")), {0}});
    return TUTTI_OK;
}

RULE(embedding) {
    *out = OP("Gather", IN(0), IN(1));
    return TUTTI_OK;
}

/* ---- sums and products ---- */

/* Pads x with zeros along one axis. */
RULE(slice_grad) {
    int n_dims = in_shape(node, 0)->n_dims;
    int64_t axis = tti_attr_int(node, "axis"), pads[2 * TUTTI_MAX_DIMS] = {0};
    if (axis < 0) axis += n_dims;
    int64_t before = tti_attr_int(node, "start");
    pads[axis] = before;
    pads[n_dims + axis] = tti_attr_int(node, "total") - before - in_shape(node, 0)->dim[axis];
    *out = OP("Pad", IN(0), tti_onnx_list(e, 2 * n_dims, pads));
    return TUTTI_OK;
}

RULE(gather) {
    tti_onnx_attr attrs[] = {TTI_ONNX_I("axis", tti_attr_int(node, "axis")), {0}};
    *out = TTI_ONNX_OP(e, "Gather", attrs, IN(0), IN(1));
    return TUTTI_OK;
}

RULE(sum) {
    const tti_attr *axes = tti_attr_get(node, "axes");
    tti_onnx_attr attrs[] = {TTI_ONNX_I("keepdims", tti_attr_int(node, "keep")), {0}};
    *out = axes->n ? TTI_ONNX_OP(e, "ReduceSum", attrs, IN(0), tti_onnx_list(e, axes->n, axes->v))
                   : TTI_ONNX_OP(e, "ReduceSum", attrs, IN(0));
    return TUTTI_OK;
}

RULE(mean) {
    const tti_attr *axes = tti_attr_get(node, "axes");
    tti_onnx_attr attrs[3] = {TTI_ONNX_I("keepdims", tti_attr_int(node, "keep"))};
    if (axes->n) attrs[1] = tti_onnx_ints("axes", axes->n, axes->v);
    *out = TTI_ONNX_OP(e, "ReduceMean", attrs, IN(0));
    return TUTTI_OK;
}

/* Returns input i with its last two dimensions transposed. */
static const char *turned(tti_onnx_emit *e, const tti_node *node, int i) {
    int n = in_shape(node, i)->n_dims;
    int64_t perm[TUTTI_MAX_DIMS];
    for (int d = 0; d < n; d++) perm[d] = d;
    perm[n - 2] = n - 1;
    perm[n - 1] = n - 2;
    return tti_onnx_transpose(e, IN(i), n, perm);
}

RULE(matmul) {
    const char *a = tti_attr_int(node, "trans_a") ? turned(e, node, 0) : IN(0);
    const char *b = tti_attr_int(node, "trans_b") ? turned(e, node, 1) : IN(1);
    *out = OP("MatMul", a, b);
    return TUTTI_OK;
}

static const char *activate(tti_onnx_emit *e, const tti_node *node, const char *x) {
    return tti_attr_int(node, "act") == TTI_EPILOGUE_RELU ? OP("Relu", x) : x;
}

RULE(linear) {
    tti_onnx_attr attrs[] = {TTI_ONNX_I("transB", 1), {0}};
    if (in_shape(node, 0)->n_dims == 2) {
        *out = node->n_in > 2 ? TTI_ONNX_OP(e, "Gemm", attrs, IN(0), IN(1), IN(2))
                              : TTI_ONNX_OP(e, "Gemm", attrs, IN(0), IN(1));
    } else {
        *out = OP("MatMul", IN(0), turned(e, node, 1));
        if (node->n_in > 2) *out = OP("Add", *out, IN(2));
    }
    *out = activate(e, node, *out);
    return TUTTI_OK;
}

/* ---- images ---- */

/* Reads a pair of integers of a node, or uses the fallback. */
static void pair(const tti_node *node, const char *name, const int64_t *fallback, int64_t *v) {
    const tti_attr *attr = tti_attr_get(node, name);
    for (int i = 0; i < 2; i++) v[i] = attr->n == 2 ? attr->v[i] : fallback[i];
}

static tti_onnx_attr pads(const tti_node *node) {
    int64_t pad[2];
    pair(node, "pad", (int64_t[]){0, 0}, pad);
    return tti_onnx_ints("pads", 4, (int64_t[]){pad[0], pad[1], pad[0], pad[1]});
}

RULE(conv2d) {
    static const int64_t ones[] = {1, 1};
    int64_t stride[2], dilation[2];
    pair(node, "stride", ones, stride);
    pair(node, "dilation", ones, dilation);
    tti_onnx_attr attrs[] = {pads(node),
                             tti_onnx_ints("strides", 2, stride),
                             tti_onnx_ints("dilations", 2, dilation),
                             TTI_ONNX_I("group", tti_attr_int(node, "groups")),
                             {0}};
    *out = node->n_in > 2 ? TTI_ONNX_OP(e, "Conv", attrs, IN(0), IN(1), IN(2))
                          : TTI_ONNX_OP(e, "Conv", attrs, IN(0), IN(1));
    *out = activate(e, node, *out);
    return TUTTI_OK;
}

/* A transposed convolution; if the output is larger than the smallest possible size, it is padded
 * at the end. */
RULE(conv_transpose) {
    static const int64_t ones[] = {1, 1};
    int64_t stride[2], dilation[2], extra[2];
    tti_onnx_attr around = pads(node);
    pair(node, "stride", ones, stride);
    pair(node, "dilation", ones, dilation);
    for (int d = 0; d < 2; d++) {
        int64_t reach = dilation[d] * (in_shape(node, 1)->dim[2 + d] - 1) + 1;
        int64_t least =
            (in_shape(node, 0)->dim[2 + d] - 1) * stride[d] - around.v[d] - around.v[2 + d] + reach;
        extra[d] = node->out[0]->type.shape.dim[2 + d] - least;
    }
    tti_onnx_attr attrs[] = {around,
                             tti_onnx_ints("strides", 2, stride),
                             tti_onnx_ints("dilations", 2, dilation),
                             tti_onnx_ints("output_padding", 2, extra),
                             TTI_ONNX_I("group", tti_attr_int(node, "groups")),
                             {0}};
    *out = TTI_ONNX_OP(e, "ConvTranspose", attrs, IN(0), IN(1));
    return TUTTI_OK;
}

RULE(pool) {
    bool is_max = strcmp(node->op->name, "max_pool2d") == 0;
    const tti_attr *kernel = tti_attr_get(node, "kernel");
    int64_t stride[2];
    pair(node, "stride", kernel->v, stride);
    tti_onnx_attr attrs[5] = {tti_onnx_ints("kernel_shape", 2, kernel->v), pads(node),
                              tti_onnx_ints("strides", 2, stride)};
    if (!is_max) attrs[3] = TTI_ONNX_I("count_include_pad", tti_attr_int(node, "count_pad"));
    *out = TTI_ONNX_OP(e, is_max ? "MaxPool" : "AveragePool", attrs, IN(0));
    return TUTTI_OK;
}

RULE(adaptive_avg_pool) {
    const int64_t *in = in_shape(node, 0)->dim + 2, *to = node->out[0]->type.shape.dim + 2;
    if (in[0] % to[0] || in[1] % to[1]) return refuse(node, "windows of different sizes");
    tti_onnx_attr kernel =
        tti_onnx_ints("kernel_shape", 2, (int64_t[]){in[0] / to[0], in[1] / to[1]});
    tti_onnx_attr strides = kernel;
    strides.name = "strides";
    *out = TTI_ONNX_OP(e, "AveragePool", ((tti_onnx_attr[]){kernel, strides, {0}}), IN(0));
    return TUTTI_OK;
}

/* The interpolation weights of n_in elements in each of n_out, as in ops/image/resample.c:
 * [n_out,n_in], or if turned [n_in,n_out]. */
static const char *line_weights(tti_onnx_emit *e, int64_t n_in, int64_t n_out, bool align,
                                bool turned) {
    float *w = calloc((size_t)(n_in * n_out) + 1, sizeof *w);
    if (!w) return NULL;
    for (int64_t p = 0; p < n_out; p++) {
        double at = align ? (n_out > 1 ? (double)p * (double)(n_in - 1) / (double)(n_out - 1) : 0)
                          : ((double)p + 0.5) * (double)n_in / (double)n_out - 0.5;
        int64_t low = (int64_t)fmax(at, 0), high = low + 1 < n_in ? low + 1 : n_in - 1;
        double part = fmax(at, 0) - (double)low;
        w[turned ? low * n_out + p : p * n_in + low] += (float)(1 - part);
        w[turned ? high * n_out + p : p * n_in + high] += (float)part;
    }
    tutti_shape shape = turned ? TUTTI_SHAPE(n_in, n_out) : TUTTI_SHAPE(n_out, n_in);
    const char *made = tti_onnx_floats(e, &shape, w);
    free(w);
    return made;
}

/* Interpolates along rows and columns with two matrix products, because runtimes differ in their
 * rules for Resize. */
RULE(upsample_bilinear) {
    const int64_t *in = in_shape(node, 0)->dim + 2, *to = node->out[0]->type.shape.dim + 2;
    bool align = tti_attr_int(node, "align") != 0;
    const char *rows = line_weights(e, in[0], to[0], align, false);
    const char *cols = line_weights(e, in[1], to[1], align, true);
    if (!rows || !cols) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    *out = OP("MatMul", rows, OP("MatMul", IN(0), cols));
    return TUTTI_OK;
}

/* ---- norms ---- */

RULE(bn_eval) {
    tti_onnx_attr attrs[] = {TTI_ONNX_F("epsilon", tti_attr_float(node, "eps")), {0}};
    *out = TTI_ONNX_OP(e, "BatchNormalization", attrs, IN(0), IN(3), IN(4), IN(1), IN(2));
    if (node->n_in > 5) *out = OP("Add", *out, IN(5));
    *out = activate(e, node, *out);
    return TUTTI_OK;
}

RULE(layer_norm) {
    tti_onnx_attr attrs[] = {
        TTI_ONNX_I("axis", -1), TTI_ONNX_F("epsilon", tti_attr_float(node, "eps")), {0}};
    *out = node->n_in > 2 ? TTI_ONNX_OP(e, "LayerNormalization", attrs, IN(0), IN(1), IN(2))
                          : TTI_ONNX_OP(e, "LayerNormalization", attrs, IN(0), IN(1));
    return TUTTI_OK;
}

/* Uses an instance norm with each group of a sample as a channel, then applies weight and bias per
 * channel. */
RULE(group_norm) {
    const tutti_shape *s = in_shape(node, 0);
    int64_t groups = tti_attr_int(node, "groups"), along[TUTTI_MAX_DIMS];
    for (int d = 1; d < s->n_dims; d++) along[d - 1] = d == 1 ? s->dim[1] : 1;
    tti_onnx_attr attrs[] = {TTI_ONNX_F("epsilon", tti_attr_float(node, "eps")), {0}};
    const char *of_groups = tti_onnx_list(e, 1, (int64_t[]){groups});
    const char *ones = OP("Expand", tti_onnx_number(e, 1), of_groups);
    const char *zeros = OP("Expand", tti_onnx_number(e, 0), of_groups);
    const char *x = tti_onnx_reshape(e, IN(0), 3, (int64_t[]){0, groups, -1});
    x = OP("Reshape", TTI_ONNX_OP(e, "InstanceNormalization", attrs, x, ones, zeros),
           tti_onnx_shape(e, node, 0));
    x = OP("Mul", x, tti_onnx_reshape(e, IN(1), s->n_dims - 1, along));
    *out = OP("Add", x, tti_onnx_reshape(e, IN(2), s->n_dims - 1, along));
    return TUTTI_OK;
}

RULE(rms_norm) {
    tti_onnx_attr attrs[] = {
        TTI_ONNX_I("keepdims", 1), tti_onnx_ints("axes", 1, (int64_t[]){-1}), {0}};
    const char *square = TTI_ONNX_OP(e, "ReduceMean", attrs, OP("Mul", IN(0), IN(0)));
    square = OP("Add", square, tti_onnx_number(e, tti_attr_float(node, "eps")));
    *out = OP("Mul", OP("Div", IN(0), OP("Sqrt", square)), IN(1));
    return TUTTI_OK;
}

RULE(softmax) {
    tti_onnx_attr attrs[] = {TTI_ONNX_I("axis", tti_attr_int(node, "axis")), {0}};
    bool is_log = strcmp(node->op->name, "log_softmax") == 0;
    *out = TTI_ONNX_OP(e, is_log ? "LogSoftmax" : "Softmax", attrs, IN(0));
    return TUTTI_OK;
}

static const struct {
    const char *op;
    tti_onnx_rule rule;
} rules[] = {
    {"square", square},
    {"affine", affine},
    {"cast", cast},
    {"equal", compare},
    {"less", compare},
    {"less_equal", compare},
    {"keep", keep},
    {"relu6", relu6},
    {"gelu", gelu},
    {"silu", silu},
    {"swiglu", swiglu},
    {"constant", constant},
    {"array", array},
    {"broadcast_to", broadcast_to},
    {"reshape", reshape},
    {"transpose", transpose},
    {"slice", slice},
    {"concat", concat},
    {"embedding", embedding},
    {"gather", gather},
    {"slice_grad", slice_grad},
    {"sum", sum},
    {"mean", mean},
    {"matmul", matmul},
    {"linear", linear},
    {"conv2d", conv2d},
    {"conv2d_grad_x", conv_transpose},
    {"max_pool2d", pool},
    {"avg_pool2d", pool},
    {"adaptive_avg_pool2d", adaptive_avg_pool},
    {"upsample_bilinear2d", upsample_bilinear},
    {"bn_eval", bn_eval},
    {"layer_norm", layer_norm},
    {"group_norm", group_norm},
    {"rms_norm", rms_norm},
    {"softmax", softmax},
    {"log_softmax", softmax},
    {"attention", tti_onnx_attention},
    {"sdpa", tti_onnx_sdpa},
    {"grouped_matmul", tti_onnx_grouped},
    {"lstm", tti_onnx_lstm},
    {"gru", tti_onnx_gru},
};

tti_onnx_rule tti_onnx_find(const char *op) {
    for (size_t i = 0; i < TTI_COUNT(rules); i++)
        if (strcmp(rules[i].op, op) == 0) return rules[i].rule;
    for (size_t i = 0; i < TTI_COUNT(same); i++)
        if (strcmp(same[i][0], op) == 0) return renamed;
    return NULL;
}

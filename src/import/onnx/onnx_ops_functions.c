/* onnx_ops_functions.c - ONNX operators as formulas of PyTorch operators (aten/aten_formula.c),
 * losses, and random numbers. */
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx.h"
#include "import/onnx/onnx_ops.h"

static bool is_text(tti_building *b, const tti_call *c, int k, const char *text) {
    return strcmp(tti_text_at(b, c, k), text) == 0;
}

/* ---- losses ---- */

/* input target weight ignore_index reduction. The input has log probabilities or scores. */
static void loss_of(tti_building *b, const tti_call *c, const char *target,
                    const tti_operand *input) {
    static const char *const reductions[] = {"none", "mean", "sum"};
    int reduction = -1;
    for (int i = 0; i < 3; i++)
        if (is_text(b, c, 4, reductions[i])) reduction = i;
    if (reduction < 0) tti_refuse(b, "reduction='%s'", tti_text_at(b, c, 4));
    if (tti_elem_is_float(tti_elem_of(tti_operand_at(b, c, 1))))
        tti_refuse(b, "labels that are probabilities are not part of ONNX; export .pt2");
    int64_t ignored = tti_has(c, 3) ? tti_int_at(b, c, 3) : -100;
    if (tti_good(b))
        tti_call_row(b, target,
                     (tti_arg[]){tti_operand_arg(input), *c->arg[1], *c->arg[2],
                                 tti_int_arg(reduction), tti_int_arg(ignored)},
                     5, c->out, 1);
}

static void nll_loss(tti_building *b, const tti_call *c) {
    loss_of(b, c, "aten.nll_loss_nd.default", tti_operand_at(b, c, 0));
}

/* The second result is the log probabilities. */
static void cross_entropy(tti_building *b, const tti_call *c) {
    loss_of(b, c, "aten.cross_entropy_loss.default", tti_operand_at(b, c, 0));
    if (tti_good(b) && c->n_outs > 1 && c->out[1])
        tti_call_row(b, "aten.log_softmax.int", (tti_arg[]){*c->arg[0], tti_int_arg(1)}, 2,
                     (tti_operand *[]){c->out[1]}, 1);
}

/* ---- sampling of images ---- */

/* X grid align_corners mode padding_mode */
static void grid_sample(tti_building *b, const tti_call *c) {
    static const char *const pads[] = {"zeros", "border", "reflection"};
    int64_t padding = -1;
    bool linear = is_text(b, c, 3, "linear") || is_text(b, c, 3, "bilinear");
    for (int i = 0; i < 3; i++)
        if (is_text(b, c, 4, pads[i])) padding = i;
    if (!linear) tti_refuse(b, "mode='%s' is not supported, only 'linear'", tti_text_at(b, c, 3));
    if (padding < 0) tti_refuse(b, "padding_mode='%s'", tti_text_at(b, c, 4));
    if (tti_good(b))
        tti_call_row(b, "aten.grid_sampler.default",
                     (tti_arg[]){*c->arg[0], *c->arg[1], tti_int_arg(0), tti_int_arg(padding),
                                 tti_bool_arg(tti_bool_at(b, c, 2))},
                     5, c->out, 1);
}

/* ---- random numbers ---- */

/* input first second: either second + first * noise, or uniform between first and second. */
static void random_like(tti_building *b, const tti_call *c) {
    bool uniform = strstr(tti_as_of(b), "randn") == NULL;
    double p = tti_number_at(b, c, 1), q = tti_number_at(b, c, 2);
    double factor = uniform ? p - q : p;
    tti_operand noise = {0}, scaled = {0};
    if (!tti_good(b)) return;
    tti_call_row(b, tti_as_of(b), (tti_arg[]){*c->arg[0]}, 1, (tti_operand *[]){&noise}, 1);
    if (factor != 1 && tti_good(b)) {
        tti_call_row(b, "aten.mul.Tensor",
                     (tti_arg[]){tti_operand_arg(&noise), tti_float_arg(factor)}, 2,
                     (tti_operand *[]){&scaled}, 1);
        noise = scaled;
    }
    if (q != 0 && tti_good(b))
        tti_call_row(b, "aten.add.Tensor", (tti_arg[]){tti_operand_arg(&noise), tti_float_arg(q)},
                     2, c->out, 1);
    else if (tti_good(b))
        tti_set(c->out[0], &noise);
}

/* ---- quantization ---- */

/* Quantization-aware training: inside the range of the integers the gradient is that of the
 * identity (straight-through estimator), which the term y - y provides. */
static const tti_operator quantized = {
    .target = "onnx.QuantizeLinear",
    .signature = "x scale zero low high",
    .build = tti_build_formula,
    .as =
        "s = x / scale; q = round(s) + zero; y = where.self(logical_and(ge.Scalar(q, low),"
        " le.Scalar(q, high)), s, 0); y - detach(y) + detach(clamp(q, low, high))"};
static const tti_operator restored = {.target = "onnx.DequantizeLinear",
                                      .signature = "x scale zero",
                                      .build = tti_build_formula,
                                      .as = "(x - zero) * scale"};

/* Reshapes scales or zero points [n] of dimension axis so that they broadcast to x. */
static tti_arg along_axis(tti_building *b, const tti_call *c, int k, int64_t axis,
                          tti_operand *room) {
    const tti_operand *x = tti_operand_at(b, c, 0), *given = tti_operand_at(b, c, k);
    tutti_shape shape = tti_shape_of(given), to = {.n_dims = tti_shape_of(x).n_dims};
    if (shape.n_dims > 1) tti_refuse(b, "scales of blocks are not supported");
    if (!tti_good(b) || shape.n_dims == 0 || shape.dim[0] == 1) return *c->arg[k];
    int dim = tti_wrap_dim(b, axis, to.n_dims);
    for (int d = 0; d < to.n_dims; d++) to.dim[d] = d == dim ? shape.dim[0] : 1;
    tti_do_reshape(b, given, &to, room);
    return tti_operand_arg(room);
}

static bool has_zero(tti_building *b, const tti_call *c) {
    if (tti_int_at(b, c, 4) != 0) tti_refuse(b, "scales of blocks are not supported");
    return tti_has(c, 2);
}

/* x scale zero_point axis block_size output_dtype */
static void quantize(tti_building *b, const tti_call *c) {
    tti_operand room[2] = {{0}};
    int64_t axis = tti_int_at(b, c, 3);
    bool given = has_zero(b, c);
    int64_t code = tti_int_at(b, c, 5);
    tti_elem elem = given      ? tti_elem_of(tti_operand_at(b, c, 2))
                    : code > 0 ? tti_onnx_elem_of((uint64_t)code)
                               : TTI_ELEM_U8;
    bool wide = elem == TTI_ELEM_I16;
    if (elem != TTI_ELEM_U8 && elem != TTI_ELEM_I8 && !wide)
        tti_refuse(b, "integers of type %s are not supported", tti_elem_text(elem));
    int64_t low = elem == TTI_ELEM_U8 ? 0 : wide ? INT16_MIN : INT8_MIN;
    int64_t high = elem == TTI_ELEM_U8 ? UINT8_MAX : wide ? INT16_MAX : INT8_MAX;
    const tti_arg args[] = {*c->arg[0], along_axis(b, c, 1, axis, &room[0]),
                            given ? along_axis(b, c, 2, axis, &room[1]) : tti_int_arg(0),
                            tti_int_arg(low), tti_int_arg(high)};
    tti_call own = {.n_args = TTI_COUNT(args), .n_outs = 1, .out = {c->out[0]}};
    for (int k = 0; k < own.n_args; k++) own.arg[k] = &args[k];
    if (tti_good(b)) tti_apply_row(b, &quantized, &own);
}

/* x scale zero_point axis block_size */
static void dequantize(tti_building *b, const tti_call *c) {
    tti_operand room[2] = {{0}};
    int64_t axis = tti_int_at(b, c, 3);
    bool given = has_zero(b, c);
    const tti_arg args[] = {*c->arg[0], along_axis(b, c, 1, axis, &room[0]),
                            given ? along_axis(b, c, 2, axis, &room[1]) : tti_int_arg(0)};
    tti_call own = {.n_args = TTI_COUNT(args), .n_outs = 1, .out = {c->out[0]}};
    for (int k = 0; k < own.n_args; k++) own.arg[k] = &args[k];
    if (tti_good(b)) tti_apply_row(b, &restored, &own);
}

/* ---- rows ---- */

#define OWN(op, args, fn) \
    { .target = "onnx." op, .signature = args, .build = fn }
#define FORMULA(op, args, text) \
    { .target = "onnx." op, .signature = args, .build = tti_build_formula, .as = text }
#define AS(op, args, same) \
    { .target = "onnx." op, .signature = args, .build = tti_build_as, .as = "aten." same }
#define ONE(op, same) AS(op, "X", same ".default")
#define RANDOM(op, args, same) \
    { .target = "onnx." op, .signature = args, .build = random_like, .as = "aten." same }
#define ARG(op, same)                                                \
    FORMULA(op, "data axis=0 keepdims=1 select_last_index=0",        \
            "choose(select_last_index, size(data, axis) - 1 - " same \
            ".default(flip(data, [axis]), axis, keepdims), " same    \
            ".default(data, axis, keepdims))")

const tti_operator tti_operators_onnx_functions[] = {
    ONE("Acos", "acos"),
    ONE("Acosh", "acosh"),
    ONE("Asin", "asin"),
    ONE("Asinh", "asinh"),
    ONE("Atan", "atan"),
    ONE("Atanh", "atanh"),
    ONE("Cosh", "cosh"),
    ONE("Sinh", "sinh"),
    AS("BitwiseAnd", "A B", "bitwise_and.Tensor"),
    AS("BitwiseOr", "A B", "bitwise_or.Tensor"),
    AS("BitwiseXor", "A B", "bitwise_xor.Tensor"),
    ONE("BitwiseNot", "bitwise_not"),
    FORMULA("Mod", "A B fmod=0", "choose(fmod, fmod.Tensor(A, B), remainder.Tensor(A, B))"),
    FORMULA("IsInf", "X detect_negative=1 detect_positive=1",
            "x = choose(detect_negative, X, relu(X)); isinf(choose(detect_positive, x, relu(-x)))"),
    FORMULA("ThresholdedRelu", "X alpha=1", "where.self(gt.Scalar(X, alpha), X, 0.0)"),
    FORMULA("Hardmax", "X axis=-1",
            "places = cumsum(ones_like(X), axis) - 1;"
            "where.self(eq.Tensor(places, argmax(X, axis, True)), 1.0, 0.0)"),
    FORMULA("LpNormalization", "input axis=-1 p=2",
            "n = linalg_vector_norm(input, p, [axis], True);"
            "input / where.self(eq.Scalar(n, 0), 1.0, n)"),
    FORMULA("MeanVarianceNormalization", "X axes=[0,2,3]",
            "d = X - mean.dim(X, axes, True); d / (sqrt(mean.dim(d * d, axes, True)) + 1e-9)"),
    FORMULA("LRN", "X alpha=0.0001 beta=0.75 bias=1 size",
            "_ = only(rank(X), 4); low = floor_divide(size - 1, 2);"
            "p = constant_pad_nd(X * X, [0, 0, 0, 0, size - 1, size - 1]);"
            "s = narrow(sum.dim_IntList(unfold(p, 1, size, 1), [-1]), 1, size - 1 - low,"
            " size(X, 1));"
            "X * pow.Tensor_Scalar(bias + alpha / size * s, -beta)"),
    FORMULA("EyeLike", "input dtype!=None k=0",
            "_ = only(k, 0); eye.m(size(input, 0), size(input, 1))"),
    OWN("NegativeLogLikelihoodLoss", "input target weight=None ignore_index=None reduction=mean",
        nll_loss),
    OWN("SoftmaxCrossEntropyLoss", "scores labels weights=None ignore_index=None reduction=mean",
        cross_entropy),
    OWN("QuantizeLinear",
        "x y_scale y_zero_point=None axis=1 block_size=0 output_dtype=0 precision! saturate!",
        quantize),
    OWN("DequantizeLinear", "x x_scale x_zero_point=None axis=1 block_size=0 output_dtype!",
        dequantize),
    OWN("GridSample", "X grid align_corners=0 mode=linear padding_mode=zeros", grid_sample),
    RANDOM("RandomUniformLike", "input high=1 low=0 dtype!=None seed!", "rand_like.default"),
    RANDOM("RandomNormalLike", "input scale=1 mean=0 dtype!=None seed!", "randn_like.default"),
    RANDOM("RandomUniform", "shape high=1 low=0 dtype!=None seed!", "rand.default"),
    RANDOM("RandomNormal", "shape scale=1 mean=0 dtype!=None seed!", "randn.default"),
    ARG("ArgMax", "argmax"),
    ARG("ArgMin", "argmin"),
    {0},
};

/* onnx_ops_math.c - ONNX operators on elements, reductions and types, as equivalent PyTorch
 * operators. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx.h"
#include "import/onnx/onnx_ops.h"

/* ---- two inputs ---- */

/* Passes a constant with one element as a number if the other operand is a graph value, so that it
 * needs no node. */
static tti_arg plain_arg(const tti_building *b, const tti_call *c, int k) {
    const tti_arg *arg = tti_arg_at(c, k), *other = tti_arg_at(c, 1 - k);
    const tti_operand *x = tti_operand_named(b, arg), *y = tti_operand_named(b, other);
    bool alone = x && y && x->kind == TTI_OPERAND_HOST && y->kind == TTI_OPERAND_GRAPH &&
                 tti_host_n(&x->host) == 1 && x->host.shape.n_dims <= tti_shape_of(y).n_dims;
    if (!alone) return *arg;
    double value = tti_host_at(&x->host, 0);
    return tti_elem_is_float(x->host.elem) ? tti_float_arg(value) : tti_int_arg(tti_to_int(value));
}

static void pair(tti_building *b, const tti_call *c) {
    tti_arg args[2] = {plain_arg(b, c, 0), plain_arg(b, c, 1)};
    tti_call_row(b, tti_as_of(b), args, 2, c->out, 1);
}

/* Integers are divided towards zero. */
static void divide(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return;
    if (tti_elem_is_float(tti_elem_of(x))) {
        pair(b, c);
        return;
    }
    if (!tti_on_host(x) || !tti_on_host(y)) {
        tti_refuse(b, "a division of integers that depend on inputs is not supported");
        return;
    }
    tti_elem elem = tti_elem_of(x);
    tti_operand quotient = {0};
    tti_call_row(b, "aten.div.Tensor", (tti_arg[]){*c->arg[0], *c->arg[1]}, 2,
                 (tti_operand *[]){&quotient}, 1);
    if (tti_good(b) && isinf(tti_host_n(&quotient.host) ? tti_host_at(&quotient.host, 0) : 0))
        tti_refuse(b, "a division by zero");
    tti_call_row(b, "aten.to.dtype",
                 (tti_arg[]){tti_operand_arg(&quotient), {.kind = TTI_ARG_DTYPE, .i = elem}}, 2,
                 c->out, 1);
}

static void power(tti_building *b, const tti_call *c) {
    const tti_operand *y = tti_operand_at(b, c, 1);
    double exponent;
    if (!tti_good(b)) return;
    bool same = y->kind == TTI_OPERAND_HOST && tti_host_uniform(&y->host, &exponent) &&
                !tti_on_host(tti_operand_at(b, c, 0));
    if (same)
        tti_call_row(b, "aten.pow.Tensor_Scalar", (tti_arg[]){*c->arg[0], tti_float_arg(exponent)},
                     2, c->out, 1);
    else
        tti_call_row(b, "aten.pow.Tensor_Tensor", (tti_arg[]){*c->arg[0], *c->arg[1]}, 2, c->out,
                     1);
}

/* Combines any number of inputs, two at a time. */
static void combine_pairs(tti_building *b, const tti_call *c) {
    const tti_arg *list = c->arg[0];
    if (list->n < 1) tti_refuse(b, "it has no inputs");
    if (!tti_good(b)) return;
    tti_operand so_far = *tti_operand_of(b, &list->items[0]);
    for (int i = 1; i < list->n && tti_good(b); i++) {
        tti_operand next = {0};
        tti_call_row(b, tti_as_of(b), (tti_arg[]){tti_operand_arg(&so_far), list->items[i]}, 2,
                     (tti_operand *[]){&next}, 1);
        so_far = next;
    }
    if (tti_good(b)) tti_set(c->out[0], &so_far);
}

static void mean_of(tti_building *b, const tti_call *c) {
    tti_operand sum = {0};
    tti_call inner = *c;
    inner.out[0] = &sum;
    combine_pairs(b, &inner);
    if (tti_good(b))
        tti_call_row(b, "aten.div.Tensor",
                     (tti_arg[]){tti_operand_arg(&sum), tti_float_arg(c->arg[0]->n)}, 2, c->out, 1);
}

/* condition x y. A constant condition with equal elements is decided here. */
static void where(tti_building *b, const tti_call *c) {
    const tti_operand *m = tti_operand_at(b, c, 0);
    double value;
    if (!tti_good(b)) return;
    if (m->kind == TTI_OPERAND_HOST && tti_host_uniform(&m->host, &value)) {
        const tti_operand *x = tti_operand_at(b, c, value != 0 ? 1 : 2), *y, *z;
        y = tti_operand_at(b, c, value != 0 ? 2 : 1);
        z = m;
        tutti_shape s = tti_shape_of(x), sy = tti_shape_of(y), sz = tti_shape_of(z), wide;
        if (tti_good(b) && tti_host_broadcast(b, &s, &sy, &wide) &&
            tti_host_broadcast(b, &wide, &sz, &wide) && wide.n_dims == s.n_dims &&
            memcmp(wide.dim, s.dim, sizeof s.dim) == 0) {
            tti_set(c->out[0], x);
            return;
        }
    }
    if (tti_good(b)) tti_build_as(b, c);
}

/* Exports of attention replace NaN after a softmax. NaN only occurs if a row of the mask hides all
 * keys; then the loss is NaN too, which ends the run. So is_nan of a softmax is false. */
static void is_nan(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    tti_host made;
    if (!tti_good(b)) return;
    if (!x->is_softmax)
        tti_call_row(b, "aten.isnan.default", (tti_arg[]){*c->arg[0]}, 1, c->out, 1);
    else if (tti_host_new(b, TTI_ELEM_BOOL, &shape, &made))
        tti_set_host(c->out[0], &made);
}

/* ---- one input and numbers ---- */

static void call_one(tti_building *b, const tti_call *c, const char *target, int n_numbers,
                     const double *numbers) {
    tti_arg args[4] = {*c->arg[0]};
    for (int i = 0; i < n_numbers; i++) args[1 + i] = tti_float_arg(numbers[i]);
    tti_call_row(b, target, args, 1 + n_numbers, c->out, 1);
}

/* input min max */
static void clip(tti_building *b, const tti_call *c) {
    tti_arg args[3] = {*c->arg[0]};
    for (int k = 1; k < 3; k++)
        if (tti_has(c, k)) args[k] = tti_float_arg(tti_number_at(b, c, k));
    bool relu6 = tti_has(c, 1) && tti_has(c, 2) && tti_number_at(b, c, 1) == 0 &&
                 tti_number_at(b, c, 2) == 6; /* ReLU6, which exporters write as a clip */
    tti_call_row(b, relu6 ? "aten.hardtanh.default" : "aten.clamp.default", args, 3, c->out, 1);
}

/* X alpha */
static void celu(tti_building *b, const tti_call *c) {
    double alpha = tti_number_at(b, c, 1);
    call_one(b, c, "aten.elu.default", 3, (double[]){alpha, 1, 1 / alpha});
}

/* X alpha gamma */
static void selu(tti_building *b, const tti_call *c) {
    call_one(b, c, "aten.elu.default", 2,
             (double[]){tti_number_at(b, c, 1), tti_number_at(b, c, 2)});
}

/* X alpha beta: max(0, min(1, alpha x + beta)) */
static void hard_sigmoid(tti_building *b, const tti_call *c) {
    double alpha = tti_number_at(b, c, 1), beta = tti_number_at(b, c, 2);
    tti_operand scaled = {0}, moved = {0};
    if (fabs(alpha - 1.0 / 6) < 1e-6 && beta == 0.5) {
        call_one(b, c, "aten.hardsigmoid.default", 0, NULL);
        return;
    }
    tti_call_row(b, "aten.mul.Tensor", (tti_arg[]){*c->arg[0], tti_float_arg(alpha)}, 2,
                 (tti_operand *[]){&scaled}, 1);
    tti_call_row(b, "aten.add.Tensor", (tti_arg[]){tti_operand_arg(&scaled), tti_float_arg(beta)},
                 2, (tti_operand *[]){&moved}, 1);
    tti_call_row(b, "aten.clamp.default",
                 (tti_arg[]){tti_operand_arg(&moved), tti_float_arg(0), tti_float_arg(1)}, 3,
                 c->out, 1);
}

/* X alpha: x sigmoid(alpha x) */
static void swish(tti_building *b, const tti_call *c) {
    double alpha = tti_number_at(b, c, 1);
    tti_operand scaled = {0}, gate = {0};
    if (alpha == 1) {
        call_one(b, c, "aten.silu.default", 0, NULL);
        return;
    }
    tti_call_row(b, "aten.mul.Tensor", (tti_arg[]){*c->arg[0], tti_float_arg(alpha)}, 2,
                 (tti_operand *[]){&scaled}, 1);
    tti_call_row(b, "aten.sigmoid.default", (tti_arg[]){tti_operand_arg(&scaled)}, 1,
                 (tti_operand *[]){&gate}, 1);
    tti_call_row(b, "aten.mul.Tensor", (tti_arg[]){*c->arg[0], tti_operand_arg(&gate)}, 2, c->out,
                 1);
}

/* X: x / (1 + |x|) */
static void softsign(tti_building *b, const tti_call *c) {
    tti_operand size = {0}, below = {0};
    tti_call_row(b, "aten.abs.default", (tti_arg[]){*c->arg[0]}, 1, (tti_operand *[]){&size}, 1);
    tti_call_row(b, "aten.add.Tensor", (tti_arg[]){tti_operand_arg(&size), tti_float_arg(1)}, 2,
                 (tti_operand *[]){&below}, 1);
    tti_call_row(b, "aten.div.Tensor", (tti_arg[]){*c->arg[0], tti_operand_arg(&below)}, 2, c->out,
                 1);
}

/* X slope. A slope that broadcasts like [C,1,1] has one element per channel. */
static void prelu(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *slope = tti_operand_at(b, c, 1);
    tutti_shape s = tti_shape_of(slope), sx = tti_shape_of(x);
    tti_operand flat = {0};
    int64_t n = tutti_shape_n_elems(&s);
    bool by_channel = sx.n_dims >= 2 && (n == 1 || n == sx.dim[1]);
    for (int d = 0; d < s.n_dims; d++) by_channel &= s.dim[d] == 1 || s.n_dims - d == sx.n_dims - 1;
    if (tti_good(b) && !by_channel)
        tti_refuse(b, "a slope is needed for each channel, or one for all");
    if (tti_good(b)) tti_do_reshape(b, slope, &TUTTI_SHAPE(n), &flat);
    tti_call_row(b, "aten.prelu.default", (tti_arg[]){*c->arg[0], tti_operand_arg(&flat)}, 2,
                 c->out, 1);
}

/* ---- types ---- */

/* input to */
static void cast(tti_building *b, const tti_call *c) {
    int64_t code = tti_int_at(b, c, 1);
    tti_elem elem = code >= 0 ? tti_onnx_elem_of((uint64_t)code) : TTI_ELEM_NONE;
    if (elem == TTI_ELEM_NONE)
        tti_refuse(b, "a cast to element type %lld is not supported", (long long)code);
    if (!tti_good(b)) return;
    tti_call_row(b, "aten.to.dtype", (tti_arg[]){*c->arg[0], {.kind = TTI_ARG_DTYPE, .i = elem}}, 2,
                 c->out, 1);
}

/* ---- reductions: data axes keepdims noop_with_empty_axes ---- */

/* Reads the axes; without axes, all dimensions. */
static bool read_axes(tti_building *b, const tti_call *c, tti_arg *dims) {
    int n = 0, n_dims = tti_shape_of(tti_operand_at(b, c, 0)).n_dims;
    const int64_t *axes = tti_has(c, 1) ? tti_list_at(b, c, 1, &n) : NULL;
    int64_t all[TUTTI_MAX_DIMS];
    for (int d = 0; d < TUTTI_MAX_DIMS; d++) all[d] = d;
    if (n == 0 && tti_good(b) && tti_bool_at(b, c, 3)) return false;
    *dims = n > 0 ? tti_ints_arg(b, axes, n) : tti_ints_arg(b, all, n_dims);
    return true;
}

static void reduce_as(tti_building *b, const tti_call *c, const char *target, const tti_operand *x,
                      tti_operand *out) {
    tti_arg dims;
    bool keep = tti_bool_at(b, c, 2);
    if (!tti_good(b)) return;
    if (!read_axes(b, c, &dims))
        tti_set(out, x);
    else
        tti_call_row(b, target, (tti_arg[]){tti_operand_arg(x), dims, tti_bool_arg(keep)}, 3, &out,
                     1);
}

static void reduce(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_operand made = {0};
    reduce_as(b, c, tti_as_of(b), x, &made);
    if (tti_good(b)) tti_set(c->out[0], &made);
}

/* Applies a function to the elements, sums them, and applies a function to the sum. */
static void reduce_between(tti_building *b, const tti_call *c, const char *before,
                           const char *after) {
    tti_operand inner = {0}, sum = {0};
    tti_call_row(b, before, (tti_arg[]){*c->arg[0]}, 1, (tti_operand *[]){&inner}, 1);
    if (tti_good(b)) reduce_as(b, c, "aten.sum.dim_IntList", &inner, &sum);
    if (tti_good(b) && !after) tti_set(c->out[0], &sum);
    if (tti_good(b) && after)
        tti_call_row(b, after, (tti_arg[]){tti_operand_arg(&sum)}, 1, c->out, 1);
}
static void reduce_l1(tti_building *b, const tti_call *c) {
    reduce_between(b, c, "aten.abs.default", NULL);
}
static void reduce_l2(tti_building *b, const tti_call *c) {
    reduce_between(b, c, "aten.square.default", "aten.sqrt.default");
}
static void reduce_log_sum(tti_building *b, const tti_call *c) {
    reduce_between(b, c, "aten.alias.default", "aten.log.default");
}
static void reduce_squares(tti_building *b, const tti_call *c) {
    reduce_between(b, c, "aten.square.default", NULL);
}

/* Runs a row with two or three arguments on *x, and stores the result in *x. */
static void call_three(tti_building *b, const char *target, tti_arg second, tti_arg third,
                       tti_operand *x) {
    tti_operand made = {0};
    if (!tti_good(b)) return;
    int n_args = third.kind == TTI_ARG_NONE ? 2 : 3;
    tti_call_row(b, target, (tti_arg[]){tti_operand_arg(x), second, third}, n_args,
                 (tti_operand *[]){&made}, 1);
    *x = made;
}

/* The product of all elements of a constant, such as the sizes of a shape. */
static void product_of_sizes(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tti_host made;
    tutti_shape shape = {.n_dims = tti_bool_at(b, c, 2) ? tti_shape_of(x).n_dims : 0};
    for (int d = 0; d < shape.n_dims; d++) shape.dim[d] = 1;
    if (!tti_good(b) || !tti_host_new(b, tti_elem_of(x), &shape, &made)) return;
    int64_t n = tti_host_n(&x->host);
    made.data[0] = 1;
    for (int64_t i = 0; i < n; i++)
        made.data[0] = tti_round(made.elem, made.data[0] * tti_host_at(&x->host, i));
    tti_set_host(c->out[0], &made);
}

/* Reduces one dimension after the other, and drops them at the end. */
static void reduce_prod(tti_building *b, const tti_call *c) {
    tti_operand now = *tti_operand_at(b, c, 0);
    int n_dims = tti_shape_of(&now).n_dims, n_axes = 0;
    tti_arg dims;
    if (tti_has(c, 1)) tti_list_at(b, c, 1, &n_axes);
    bool keep = tti_bool_at(b, c, 2), any = tti_good(b) && read_axes(b, c, &dims);
    if (any && now.kind == TTI_OPERAND_HOST && (n_axes == 0 || n_axes == n_dims)) {
        product_of_sizes(b, c);
        return;
    }
    for (int i = 0; any && i < dims.n; i++)
        call_three(b, "aten.prod.dim_int", dims.items[i], tti_bool_arg(true), &now);
    if (any && !keep) call_three(b, "aten.squeeze.dims", dims, (tti_arg){0}, &now);
    if (tti_good(b)) tti_set(c->out[0], &now);
}

/* x axis exclusive reverse */
static void cumsum(tti_building *b, const tti_call *c) {
    int64_t axis = tti_int_at(b, c, 1);
    bool exclusive = tti_bool_at(b, c, 2), reverse = tti_bool_at(b, c, 3);
    tti_operand transpose_of = {0}, sum = {0}, back = {0};
    tti_arg x = *c->arg[0], dims = tti_ints_arg(b, &axis, 1);
    if (reverse && tti_good(b)) {
        tti_call_row(b, "aten.flip.default", (tti_arg[]){x, dims}, 2,
                     (tti_operand *[]){&transpose_of}, 1);
        x = tti_operand_arg(&transpose_of);
    }
    if (tti_good(b))
        tti_call_row(b, "aten.cumsum.default", (tti_arg[]){x, tti_int_arg(axis)}, 2,
                     (tti_operand *[]){&sum}, 1);
    if (reverse && tti_good(b)) {
        tti_call_row(b, "aten.flip.default", (tti_arg[]){tti_operand_arg(&sum), dims}, 2,
                     (tti_operand *[]){&back}, 1);
        sum = back;
    }
    if (exclusive && tti_good(b))
        tti_call_row(b, "aten.sub.Tensor", (tti_arg[]){tti_operand_arg(&sum), *c->arg[0]}, 2,
                     c->out, 1);
    else if (tti_good(b))
        tti_set(c->out[0], &sum);
}

/* 1 - erf X, which tf2onnx writes for Keras' gelu. */
static void erfc_of(tti_building *b, const tti_call *c) {
    tti_operand made = {0};
    tti_call_row(b, "aten.erf.default", (tti_arg[]){*c->arg[0]}, 1, (tti_operand *[]){&made}, 1);
    if (tti_good(b))
        tti_call_row(b, "aten.rsub.Scalar", (tti_arg[]){tti_operand_arg(&made), tti_float_arg(1)},
                     2, c->out, 1);
}

/* PyTorch's sign of NaN is 0, that of ONNX is NaN. */
static void sign_of(tti_building *b, const tti_call *c) {
    tti_operand sign = {0}, lost = {0};
    tti_call_row(b, "aten.sign.default", (tti_arg[]){*c->arg[0]}, 1, (tti_operand *[]){&sign}, 1);
    if (tti_good(b))
        tti_call_row(b, "aten.isnan.default", (tti_arg[]){*c->arg[0]}, 1, (tti_operand *[]){&lost},
                     1);
    if (tti_good(b))
        tti_call_row(b, "aten.where.self",
                     (tti_arg[]){tti_operand_arg(&lost), *c->arg[0], tti_operand_arg(&sign)}, 3,
                     c->out, 1);
}

/* *inputs equation */
static void einsum(tti_building *b, const tti_call *c) {
    tti_call_row(b, "aten.einsum.default", (tti_arg[]){*c->arg[1], *c->arg[0]}, 2, c->out, 1);
}

/* X detach. PyTorch's exporter annotates identities that stop gradients. */
static void identity(tti_building *b, const tti_call *c) {
    tti_call_row(b, tti_bool_at(b, c, 1) ? "aten.detach.default" : "aten.alias.default",
                 (tti_arg[]){*c->arg[0]}, 1, c->out, 1);
}

#define AS(op, args, same) \
    { .target = "onnx." op, .signature = args, .build = tti_build_as, .as = "aten." same }
#define ONE(op, same) AS(op, "X", same ".default")
#define PAIR(op, same) \
    { .target = "onnx." op, .signature = "A B", .build = pair, .as = "aten." same }
#define MANY(op, same) \
    { .target = "onnx." op, .signature = "*inputs", .build = combine_pairs, .as = "aten." same }
#define OWN(op, args, fn) \
    { .target = "onnx." op, .signature = args, .build = fn }
#define REDUCE "data axes=None keepdims=1 noop_with_empty_axes=0"
#define REDUCE_AS(op, same) \
    { .target = "onnx." op, .signature = REDUCE, .build = reduce, .as = "aten." same }

const tti_operator tti_operators_onnx_math[] = {
    ONE("Abs", "abs"),
    ONE("Ceil", "ceil"),
    ONE("Cos", "cos"),
    ONE("Erf", "erf"),
    OWN("Erfc", "X", erfc_of),
    ONE("Exp", "exp"),
    ONE("Floor", "floor"),
    ONE("HardSwish", "hardswish"),
    OWN("Identity", "X detach=0", identity),
    ONE("Log", "log"),
    ONE("Mish", "mish"),
    ONE("Neg", "neg"),
    ONE("Not", "logical_not"),
    ONE("Reciprocal", "reciprocal"),
    ONE("Relu", "relu"),
    ONE("Round", "round"),
    ONE("Sigmoid", "sigmoid"),
    OWN("Sign", "input", sign_of),
    ONE("Sin", "sin"),
    ONE("Softplus", "softplus"),
    ONE("Sqrt", "sqrt"),
    ONE("Tan", "tan"),
    ONE("Tanh", "tanh"),
    PAIR("Add", "add.Tensor"),
    PAIR("Sub", "sub.Tensor"),
    PAIR("Mul", "mul.Tensor"),
    {.target = "onnx.Div", .signature = "A B", .build = divide, .as = "aten.div.Tensor"},
    OWN("Pow", "X Y", power),
    AS("And", "A B", "logical_and.default"),
    AS("Or", "A B", "logical_or.default"),
    AS("Xor", "A B", "ne.Tensor"),
    AS("Equal", "A B", "eq.Tensor"),
    AS("Less", "A B", "lt.Tensor"),
    AS("LessOrEqual", "A B", "le.Tensor"),
    AS("Greater", "A B", "gt.Tensor"),
    AS("GreaterOrEqual", "A B", "ge.Tensor"),
    MANY("Max", "maximum.default"),
    MANY("Min", "minimum.default"),
    MANY("Sum", "add.Tensor"),
    {.target = "onnx.Mean", .signature = "*inputs", .build = mean_of, .as = "aten.add.Tensor"},
    {.target = "onnx.Where", .signature = "condition X Y", .build = where, .as = "aten.where.self"},
    OWN("IsNaN", "X", is_nan),
    OWN("Clip", "input min=None max=None", clip),
    AS("LeakyRelu", "X alpha=0.01", "leaky_relu.default"),
    AS("Elu", "X alpha=1", "elu.default"),
    OWN("Celu", "X alpha=1", celu),
    OWN("Selu", "X alpha=1.67326319217681884765625 gamma=1.05070102214813232421875", selu),
    OWN("HardSigmoid", "X alpha=0.2 beta=0.5", hard_sigmoid),
    OWN("Swish", "X alpha=1", swish),
    OWN("Softsign", "X", softsign),
    OWN("PRelu", "X slope", prelu),
    AS("Gelu", "X approximate=none", "gelu.default"),
    AS("Softmax", "X axis=-1", "softmax.int"),
    AS("LogSoftmax", "X axis=-1", "log_softmax.int"),
    OWN("Cast", "input to saturate!=1 round_mode!=up", cast),
    AS("CastLike", "input target_type saturate!=1 round_mode!=up", "type_as.default"),
    REDUCE_AS("ReduceMean", "mean.dim"),
    REDUCE_AS("ReduceSum", "sum.dim_IntList"),
    REDUCE_AS("ReduceMax", "amax.default"),
    REDUCE_AS("ReduceMin", "amin.default"),
    REDUCE_AS("ReduceLogSumExp", "logsumexp.default"),
    OWN("ReduceL1", REDUCE, reduce_l1),
    OWN("ReduceL2", REDUCE, reduce_l2),
    OWN("ReduceLogSum", REDUCE, reduce_log_sum),
    OWN("ReduceSumSquare", REDUCE, reduce_squares),
    OWN("ReduceProd", REDUCE, reduce_prod),
    OWN("CumSum", "x axis exclusive=0 reverse=0", cumsum),
    OWN("Einsum", "*inputs equation", einsum),
    {.target = "com.microsoft.Gelu",
     .signature = "X",
     .build = tti_build_as,
     .as = "aten.gelu.default"},
    {.target = "com.microsoft.QuickGelu", .signature = "X alpha=1.702", .build = swish},
    {0},
};

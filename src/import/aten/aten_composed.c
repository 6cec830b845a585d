/* aten_composed.c - operators as formulas of others (aten_formula.c), and other names of
 * operators. */
#include "base/error.h"
#include "import/aten/aten.h"

#define VIEW(op, args, text)                                                 \
    {                                                                        \
        .target = "aten." op, .signature = args, .build = tti_build_formula, \
        .fold = tti_build_formula, .view = true, .as = text                  \
    }

/* The mean or sum of a loss's terms, or the terms themselves. */
#define REDUCED(x) "choose(reduction, choose(reduction - 1, sum(" x "), mean(" x ")), " x ")"

/* Rounds x to the nearest quantized number. The gradient is 1 inside their range. */
#define QUANTIZED_STEPS(x)                                                \
    "x = " x                                                              \
    "; q = round(x * (1.0 / scale)) + zero_point;"                        \
    "in = logical_and(ge.Scalar(q, quant_min), le.Scalar(q, quant_max));" \
    "v = (clamp(q, quant_min, quant_max) - zero_point) * scale; y = where.self(in, x, 0);"

/* ln p; for p = 0: -100 with gradient 0. */
#define SAFE_LOG(p, at_one, log)                                                              \
    "where.self(le.Scalar(" p ", 0), -100.0, " log "(where.self(le.Scalar(" p ", 0), " at_one \
    "))"                                                                                      \
    ")"

/* The elements of f [N,C,H W] at points [N,P], times 1 for points inside of the image, else 0. */
#define CORNER(x, y)                                                      \
    "gather(f, 2, expand(unsqueeze(clamp(" y ", 0, h - 1) * w + clamp(" x \
    ", 0, w - 1), 1), [-1, size(input, 1), -1]))"
#define INSIDE(x, size) \
    "choose(padding_mode, 1, ge.Scalar(" x ", 0) * le.Scalar(" x ", " size " - 1))"
#define WEIGHTED(x, y, share) \
    CORNER(x, y) " * unsqueeze(" share " * (" INSIDE(x, "w") " * " INSIDE(y, "h") "), 1)"
/* Converts a coordinate in -1 .. 1 to pixels; clamps it for padding mode "border". */
#define PIXELS(g, size)                                                              \
    "choose(align_corners, (" g " + 1) * 0.5 * (" size " - 1), ((" g " + 1) * " size \
    " - 1) * "                                                                       \
    "0.5)"
#define PLACED(p, size) "choose(padding_mode, clamp(" p ", 0, " size " - 1), " p ")"

#define GRID_SAMPLE \
    "_ = only(interpolation_mode, 0); _ = only(rank(input), 4);"                  \
    "_ = choose(padding_mode, only(padding_mode, 1), 0);"                         \
    "h = size(input, 2); w = size(input, 3); f = flatten.using_ints(input, 2, -1);" \
    "gx = flatten.using_ints(select(grid, -1, 0), 1, -1);"                        \
    "gy = flatten.using_ints(select(grid, -1, 1), 1, -1);"                        \
    "px = " PIXELS("gx", "w") "; py = " PIXELS("gy", "h") ";"                     \
    "x = " PLACED("px", "w") "; y = " PLACED("py", "h") ";"                       \
    "x0 = floor(x); y0 = floor(y); x1 = x0 + 1; y1 = y0 + 1;"                     \
    "dx = x - x0; dy = y - y0;"                                                   \
    "s = " WEIGHTED("x0", "y0", "(1 - dx) * (1 - dy)") " + "                      \
    WEIGHTED("x1", "y0", "dx * (1 - dy)") " + "                                   \
    WEIGHTED("x0", "y1", "(1 - dx) * dy") " + " WEIGHTED("x1", "y1", "dx * dy") ";" \
    "unflatten(s, 2, [size(grid, 1), size(grid, 2)])"

/* The gates of a recurrent cell, computed from its input and state. */
#define GATES(h) "linear(input, w_ih, b_ih) + linear(" h ", w_hh, b_hh)"
#define CELL "input hx w_ih w_hh b_ih=None b_hh=None"

const tti_operator tti_operators_composed[] = {
    /* element-wise */
    TTI_FORMULA("erfc.default", "self", "1 - erf(self)"),
    TTI_FORMULA("sinh.default", "self", "0.5 * (expm1(self) - expm1(-self))"),
    TTI_FORMULA("cosh.default", "self", "0.5 * (exp(self) + exp(-self))"),
    TTI_FORMULA("atanh.default", "self", "0.5 * (log1p(self) - log1p(-self))"),
    TTI_FORMULA("acosh.default", "self", "log(self + sqrt(self - 1) * sqrt(self + 1))"),
    TTI_FORMULA("asinh.default", "self",
                "s = where.self(ge.Scalar(self, 0), 1, -1); p = self * s;"
                "s * log1p(p + p * p / (1 + sqrt(p * p + 1)))"),
    TTI_FORMULA("logit.default", "self eps=None",
                "z = given(eps, clamp(self, eps, 1 - eps), self); log(z / (1 - z))"),
    TTI_FORMULA("logaddexp.default", "self other",
                "maximum(self, other) + log1p(exp(-abs(self - other)))"),
    TTI_FORMULA("hypot.default", "self other", "sqrt(self * self + other * other)"),
    TTI_FORMULA("nan_to_num.default", "self nan=None posinf=None neginf=None",
                "x = where.self(isnan(self), given(nan, nan, 0.0), self);"
                "y = where.self(gt.Scalar(x, 3.4028234663852886e38),"
                " given(posinf, posinf, 3.4028234663852886e38), x);"
                "where.self(lt.Scalar(x, -3.4028234663852886e38),"
                " given(neginf, neginf, -3.4028234663852886e38), y)"),
    TTI_FORMULA("isclose.default", "self other rtol=1e-5 atol=1e-8 equal_nan=False",
                "_ = only(equal_nan, False); logical_or(eq.Tensor(self, other),"
                " le.Tensor(abs(self - other), atol + rtol * abs(other)))"),
    TTI_FORMULA("clamp.Tensor", "self min=None max=None",
                "x = given(min, where.self(lt.Tensor(self, min), min, self), self);"
                "given(max, where.self(gt.Tensor(x, max), max, x), x)"),
    TTI_FORMULA("clamp_min.Tensor", "self min", "where.self(lt.Tensor(self, min), min, self)"),
    TTI_FORMULA("clamp_max.Tensor", "self max", "where.self(gt.Tensor(self, max), max, self)"),
    TTI_FORMULA("rrelu.default",
                "self lower=0.125 upper=0.3333333333333333 training=False generator!",
                "_ = only(training, False); leaky_relu(self, (lower + upper) / 2)"),
    TTI_FORMULA("__lshift__.Scalar", "self other", "self * pow.Tensor_Scalar(2, other)"),
    TTI_FORMULA("__rshift__.Scalar", "self other",
                "floor_divide(self, pow.Tensor_Scalar(2, other))"),
    TTI_FORMULA("bitwise_left_shift.Tensor_Scalar", "self other",
                "self * pow.Tensor_Scalar(2, other)"),
    TTI_FORMULA("bitwise_right_shift.Tensor_Scalar", "self other",
                "floor_divide(self, pow.Tensor_Scalar(2, other))"),
    TTI_FORMULA("bucketize.Tensor", "self boundaries out_int32!=False right=False",
                "x = unsqueeze(self, -1); sum.dim_IntList("
                "choose(right, ge.Tensor(x, boundaries), gt.Tensor(x, boundaries)), [-1])"),

    /* reductions */
    TTI_FORMULA("count_nonzero.default", "self dim=None",
                "sum.dim_IntList(ne.Scalar(self, 0), given(dim, [dim], None))"),
    TTI_FORMULA("count_nonzero.dim_IntList", "self dim",
                "sum.dim_IntList(ne.Scalar(self, 0), dim)"),
    TTI_FORMULA("aminmax.default", "self dim=None keepdim=False",
                "amin(self, dim, keepdim), amax(self, dim, keepdim)"),
    TTI_FORMULA("kthvalue.default", "self k dim=-1 keepdim=False",
                "v = narrow(sort(self, dim)[0], dim, k - 1, 1);"
                "p = narrow(sort(self, dim)[1], dim, k - 1, 1);"
                "choose(keepdim, v, squeeze.dim(v, dim)), choose(keepdim, p, squeeze.dim(p, dim))"),
    TTI_FORMULA(
        "median.dim", "self dim keepdim=False",
        "k = floor_divide(size(self, dim) - 1, 2);"
        "v = narrow(sort(self, dim)[0], dim, k, 1); p = narrow(sort(self, dim)[1], dim, k, 1);"
        "choose(keepdim, v, squeeze.dim(v, dim)), choose(keepdim, p, squeeze.dim(p, dim))"),
    TTI_FORMULA("frobenius_norm.dim", "self dim keepdim=False",
                "linalg_vector_norm(self, 2, dim, keepdim)"),
    TTI_FORMULA("linalg_norm.default", "self ord=None dim=None keepdim=False dtype!=None",
                "_ = only(ord, None); linalg_vector_norm(self, 2, dim, keepdim)"),
    TTI_FORMULA("linalg_matrix_norm.str_ord", "self ord=fro dim=[-2,-1] keepdim=False dtype!=None",
                "_ = only(ord, 'fro'); linalg_vector_norm(self, 2, dim, keepdim)"),
    TTI_FORMULA("logcumsumexp.default", "self dim", /* computed from all pairs of positions */
                "x = movedim.int(self, dim, -1); at = arange(size(x, -1));"
                "in = le.Tensor(unsqueeze(at, 0), unsqueeze(at, 1));"
                "x = logsumexp(where.self(in, unsqueeze(x, -2), -3.0e38), [-1]);"
                "movedim.int(x, -1, dim)"),
    TTI_FORMULA("cosine_similarity.default", "x1 x2 dim=1 eps=1e-8",
                "p = broadcast_tensors([x1, x2])[0]; q = broadcast_tensors([x1, x2])[1];"
                "x = p / clamp_min(linalg_vector_norm(p, 2, [dim], True), eps);"
                "y = q / clamp_min(linalg_vector_norm(q, 2, [dim], True), eps);"
                "sum.dim_IntList(x * y, [dim])"),
    TTI_FORMULA("pairwise_distance.default", "x1 x2 p=2 eps=1e-6 keepdim=False",
                "linalg_vector_norm(x1 - x2 + eps, p, [-1], keepdim)"),
    TTI_FORMULA("cdist.default", "x1 x2 p=2 compute_mode!=None",
                "linalg_vector_norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, [-1])"),
    TTI_FORMULA("_weight_norm.default", "v g dim=0", "v * (g / norm_except_dim(v, 2, dim))"),
    TTI_FORMULA("_weight_norm_interface.default", "v g dim=0",
                "n = norm_except_dim(v, 2, dim); v * (g / n), n"),
    TTI_FORMULA("trace.default", "self", "sum(diagonal(self))"),

    /* products */
    TTI_FORMULA("outer.default", "self vec2", "unsqueeze(self, -1) * vec2"),
    TTI_FORMULA("mv.default", "self vec", "matmul(self, vec)"),
    TTI_FORMULA("dot.default", "self tensor", "sum(self * tensor)"),
    TTI_FORMULA("vdot.default", "self other", "sum(self * other)"),
    TTI_FORMULA("inner.default", "self other",
                "choose(rank(other) - 1, matmul(self, mT(other)), matmul(self, other))"),
    TTI_FORMULA("addmv.default", "self mat vec beta=1 alpha=1",
                "beta * self + alpha * matmul(mat, vec)"),
    TTI_FORMULA("baddbmm.default", "self batch1 batch2 beta=1 alpha=1",
                "beta * self + alpha * bmm(batch1, batch2)"),
    TTI_FORMULA("bilinear.default", "input1 input2 weight bias=None",
                "x = einsum('...i,oij,...j->...o', [input1, weight, input2]);"
                "given(bias, x + bias, x)"),
    TTI_FORMULA("linalg_cross.default", "self other dim=-1",
                "roll(self, [-1], [dim]) * roll(other, [1], [dim])"
                " - roll(self, [1], [dim]) * roll(other, [-1], [dim])"),
    TTI_FORMULA("cross.default", "self other dim=None",
                "_ = given(dim, 0, only(0, 1)); linalg_cross(self, other, dim)"),

    /* shapes */
    VIEW("ravel.default", "self", "flatten.using_ints(self)"),
    TTI_FORMULA("fliplr.default", "self", "flip(self, [1])"),
    TTI_FORMULA("flipud.default", "self", "flip(self, [0])"),
    TTI_FORMULA("diag_embed.default", "self offset=0 dim1=-2 dim2=-1",
                "_ = only(offset, 0); _ = only(dim1, -2); _ = only(dim2, -1);"
                "where.self(gt.Scalar(eye(size(self, -1)), 0), unsqueeze(self, -1), 0)"),
    TTI_FORMULA("fill_diagonal.default", "self fill_value wrap=False",
                "_ = only(rank(self), 2); _ = only(wrap, False);"
                "where.self(gt.Scalar(eye.m(size(self, 0), size(self, 1)), 0), fill_value, self)"),
    {.target = "aten.scatter_reduce.two",
     .signature = "self dim index src reduce include_self=True",
     .build = tti_scatter_reduce,
     .fold = tti_fold_scatter_reduce},

    /* layers */
    TTI_FORMULA("adaptive_max_pool1d.default", "self output_size",
                "squeeze.dim(adaptive_max_pool2d(unsqueeze(self, -2), [1, output_size[0]]), -2)"),
    TTI_FORMULA("lstm_cell.default", CELL,
                "g = " GATES("hx[0]") "; c = sigmoid(chunk(g, 4, -1)[1]) * hx[1]"
                                      " + sigmoid(chunk(g, 4, -1)[0]) * tanh(chunk(g, 4, -1)[2]);"
                                      "sigmoid(chunk(g, 4, -1)[3]) * tanh(c), c"),
    TTI_FORMULA("gru_cell.default", CELL,
                "i = linear(input, w_ih, b_ih); h = linear(hx, w_hh, b_hh);"
                "r = sigmoid(chunk(i, 3, -1)[0] + chunk(h, 3, -1)[0]);"
                "z = sigmoid(chunk(i, 3, -1)[1] + chunk(h, 3, -1)[1]);"
                "n = tanh(chunk(i, 3, -1)[2] + r * chunk(h, 3, -1)[2]); n + z * (hx - n)"),
    TTI_FORMULA("rnn_tanh_cell.default", CELL, "tanh(" GATES("hx") ")"),
    TTI_FORMULA("rnn_relu_cell.default", CELL, "relu(" GATES("hx") ")"),
    TTI_FORMULA("grid_sampler.default", "input grid interpolation_mode padding_mode align_corners",
                GRID_SAMPLE),
    TTI_FORMULA("grid_sampler_2d.default",
                "input grid interpolation_mode padding_mode align_corners", GRID_SAMPLE),

    /* losses */
    TTI_FORMULA("binary_cross_entropy.default", "self target weight=None reduction=1",
                "p = " SAFE_LOG("self", "1.0, self",
                                "log") "; r = 1 - self;"
                                       "q = where.self(le.Scalar(r, 0), -100.0,"
                                       " log1p(-where.self(le.Scalar(r, 0), 0.0, self)));"
                                       "t = -(target * p + (1 - target) * q);"
                                       "x = given(weight, t * weight, t); " REDUCED("x")),
    TTI_FORMULA("poisson_nll_loss.default", "input target log_input full eps reduction",
                "y = choose(log_input, exp(input) - target * input,"
                " input - target * log(input + eps)); few = le.Scalar(target, 1);"
                "t = where.self(few, 1.0, target);"
                "x = choose(full, y + where.self(few, 0,"
                " t * log(t) - t + log(t * 6.283185307179586) * 0.5), y); " REDUCED("x")),
    TTI_FORMULA(
        "multi_margin_loss.default", "self target p=1 margin=1 weight=None reduction=1",
        "_ = only(rank(self), 2); _ = choose(p - 1, only(p, 2), only(p, 1));"
        "at = unsqueeze(target, 1);"
        "z = relu(margin - gather(self, 1, at) + self);"
        "z = where.self(eq.Tensor(at, arange(size(self, 1))), 0, choose(p - 1, z * z, z));"
        "z = mean.dim(z, [1]); x = given(weight, z * index_select(weight, 0, target), z); " REDUCED(
            "x")),
    TTI_FORMULA("soft_margin_loss.default", "self target reduction=1",
                "x = softplus(-(target * self)); " REDUCED("x")),
    TTI_FORMULA("hinge_embedding_loss.default", "self target margin=1 reduction=1",
                "x = where.self(ne.Scalar(target, 1), relu(margin - self), 0)"
                " + where.self(ne.Scalar(target, -1), self, 0); " REDUCED("x")),
    TTI_FORMULA("margin_ranking_loss.default", "input1 input2 target margin=0 reduction=1",
                "x = relu(margin - target * (input1 - input2)); " REDUCED("x")),
    TTI_FORMULA("cosine_embedding_loss.default", "input1 input2 target margin=0 reduction=1",
                "_ = only(rank(target), 1); p = sum.dim_IntList(input1 * input1, [1]) + 1e-12;"
                "q = sum.dim_IntList(input2 * input2, [1]) + 1e-12;"
                "c = sum.dim_IntList(input1 * input2, [1]) / sqrt(p * q);"
                "x = where.self(eq.Scalar(target, 1), 1 - c, 0)"
                " + where.self(eq.Scalar(target, -1), relu(c - margin), 0); " REDUCED("x")),
    TTI_FORMULA(
        "triplet_margin_loss.default",
        "anchor positive negative margin=1 p=2 eps=1e-6 swap=False reduction=1",
        "d = pairwise_distance(anchor, negative, p, eps); e = choose(swap,"
        " minimum(d, pairwise_distance(positive, negative, p, eps)), d);"
        "x = relu(margin + pairwise_distance(anchor, positive, p, eps) - e); " REDUCED("x")),

    /* quantization-aware training: inside the range, x - x adds the gradient of the identity */
    TTI_FORMULA("fake_quantize_per_tensor_affine.default",
                "self scale zero_point quant_min quant_max",
                QUANTIZED_STEPS("self") "y - detach(y) + detach(v)"),
    TTI_FORMULA("fake_quantize_per_tensor_affine.tensor_qparams",
                "self scale zero_point quant_min quant_max",
                QUANTIZED_STEPS("self") "y - detach(y) + detach(v)"),
    TTI_FORMULA(
        "fake_quantize_per_channel_affine.default",
        "self scale zero_point axis quant_min quant_max",
        QUANTIZED_STEPS(
            "movedim.int(self, axis, -1)") "movedim.int(y - detach(y) + detach(v), -1, axis)"),
    {0},
};

/* out, then the arguments of the operator that the row names, whose result is written to out. */
static void write_out(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    for (int k = 1; k < c->n_args; k++) args[k - 1] = *c->arg[k];
    tti_call_row(b, tti_as_of(b), args, c->n_args - 1, c->out, c->n_outs);
}

#define OUT(op, args, same)                                                        \
    {                                                                              \
        .target = "aten." op ".out", .signature = "out " args, .build = write_out, \
        .as = "aten." same                                                         \
    }

const tti_operator tti_operators_names[] = {
    OUT("add", "self other alpha=1", "add.Tensor"),
    OUT("sub", "self other alpha=1", "sub.Tensor"),
    OUT("mul", "self other", "mul.Tensor"),
    OUT("div", "self other", "div.Tensor"),
    OUT("mm", "self mat2", "mm.default"),
    OUT("bmm", "self mat2", "bmm.default"),
    OUT("matmul", "self other", "matmul.default"),
    TTI_NAME("__and__.Scalar", "self other", "bitwise_and.Scalar"),
    TTI_NAME("__or__.Scalar", "self other", "bitwise_or.Scalar"),
    TTI_NAME("__xor__.Scalar", "self other", "bitwise_xor.Scalar"),
    TTI_NAME("multiply.Tensor", "self other", "mul.Tensor"),
    TTI_NAME("multiply.Scalar", "self other", "mul.Scalar"),
    TTI_NAME("subtract.Tensor", "self other alpha=1", "sub.Tensor"),
    TTI_NAME("subtract.Scalar", "self other alpha=1", "sub.Scalar"),
    TTI_NAME("true_divide.Tensor", "self other", "div.Tensor"),
    TTI_NAME("true_divide.Scalar", "self other", "div.Scalar"),
    TTI_NAME("divide.Tensor", "self other", "div.Tensor"),
    TTI_NAME("divide.Scalar", "self other", "div.Scalar"),
    TTI_NAME("divide.Tensor_mode", "self other rounding_mode=None", "div.Tensor_mode"),
    TTI_NAME("divide.Scalar_mode", "self other rounding_mode=None", "div.Scalar_mode"),
    TTI_NAME("negative.default", "self", "neg.default"),
    TTI_NAME("absolute.default", "self", "abs.default"),
    TTI_NAME("clip.default", "self min=None max=None", "clamp.default"),
    TTI_NAME("clip.Tensor", "self min=None max=None", "clamp.Tensor"),
    TTI_NAME("fix.default", "self", "trunc.default"),
    TTI_NAME("floor_divide.Tensor", "self other", "floor_divide.default"), /* in place */
    TTI_NAME("greater.Tensor", "self other", "gt.Tensor"),
    TTI_NAME("greater.Scalar", "self other", "gt.Scalar"),
    TTI_NAME("greater_equal.Tensor", "self other", "ge.Tensor"),
    TTI_NAME("greater_equal.Scalar", "self other", "ge.Scalar"),
    TTI_NAME("less.Tensor", "self other", "lt.Tensor"),
    TTI_NAME("less.Scalar", "self other", "lt.Scalar"),
    TTI_NAME("less_equal.Tensor", "self other", "le.Tensor"),
    TTI_NAME("less_equal.Scalar", "self other", "le.Scalar"),
    TTI_NAME("not_equal.Tensor", "self other", "ne.Tensor"),
    TTI_NAME("not_equal.Scalar", "self other", "ne.Scalar"),
    TTI_NAME("special_expit.default", "self", "sigmoid.default"),
    TTI_NAME("special_erf.default", "self", "erf.default"),
    TTI_NAME("special_erfc.default", "self", "erfc.default"),
    TTI_NAME("special_expm1.default", "self", "expm1.default"),
    TTI_NAME("special_exp2.default", "self", "exp2.default"),
    TTI_NAME("special_log1p.default", "self", "log1p.default"),
    TTI_NAME("special_logit.default", "self eps=None", "logit.default"),
    TTI_NAME("special_logsumexp.default", "self dim keepdim=False", "logsumexp.default"),
    TTI_NAME("special_softmax.default", "self dim dtype!=None", "softmax.int"),
    TTI_NAME("special_log_softmax.default", "self dim dtype!=None", "log_softmax.int"),
    TTI_NAME("concatenate.default", "tensors dim=0", "cat.default"),
    TTI_NAME("ger.default", "self vec2", "outer.default"),
    {0},
};

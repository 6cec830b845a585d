/* aten_composed.c - operators as formulas of others (aten_formula.c), and other names of some. */
#include "import/aten/aten.h"

#define FORMULA(op, args, text)                                              \
    {                                                                        \
        .target = "aten." op, .signature = args, .build = tti_build_formula, \
        .fold = tti_build_formula, .as = text                                \
    }
#define VIEW(op, args, text)                                                 \
    {                                                                        \
        .target = "aten." op, .signature = args, .build = tti_build_formula, \
        .fold = tti_build_formula, .view = true, .as = text                  \
    }
#define NAME(op, args, other)                                                                 \
    {                                                                                         \
        .target = "aten." op, .signature = args, .build = tti_build_as, .fold = tti_build_as, \
        .as = "aten." other                                                                   \
    }

/* A mean or a sum of a loss's terms, or the terms themselves. */
#define REDUCED(x) "choose(reduction, choose(reduction - 1, sum(" x "), mean(" x ")), " x ")"

/* ln p, and -100 where p is 0, with a gradient of 0 there. */
#define SAFE_LOG(p, at_one, log)                                                              \
    "where.self(le.Scalar(" p ", 0), -100.0, " log "(where.self(le.Scalar(" p ", 0), " at_one \
    "))"                                                                                      \
    ")"

/* The elements of f [N,C,H W] at points [N,P], and whether the points are inside. */
#define CORNER(x, y)                                                      \
    "gather(f, 2, expand(unsqueeze(clamp(" y ", 0, h - 1) * w + clamp(" x \
    ", 0, w - 1), 1), [-1, size(input, 1), -1]))"
#define INSIDE(x, size) \
    "choose(padding_mode, 1, ge.Scalar(" x ", 0) * le.Scalar(" x ", " size " - 1))"
#define WEIGHTED(x, y, share) \
    CORNER(x, y) " * unsqueeze(" share " * (" INSIDE(x, "w") " * " INSIDE(y, "h") "), 1)"
/* A coordinate in -1 .. 1 as one in pixels; within the border if that is what pads. */
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

/* The gates of a recurrent cell, from its input and its state. */
#define GATES(h) "linear(input, w_ih, b_ih) + linear(" h ", w_hh, b_hh)"
#define CELL "input hx w_ih w_hh b_ih=None b_hh=None"

const tti_operator tti_operators_composed[] = {
    /* of elements */
    FORMULA("erfc.default", "self", "1 - erf(self)"),
    FORMULA("sinh.default", "self", "0.5 * (expm1(self) - expm1(-self))"),
    FORMULA("cosh.default", "self", "0.5 * (exp(self) + exp(-self))"),
    FORMULA("atanh.default", "self", "0.5 * (log1p(self) - log1p(-self))"),
    FORMULA("acosh.default", "self", "log(self + sqrt(self - 1) * sqrt(self + 1))"),
    FORMULA("asinh.default", "self",
            "s = where.self(ge.Scalar(self, 0), 1, -1); p = self * s;"
            "s * log1p(p + p * p / (1 + sqrt(p * p + 1)))"),
    FORMULA("logit.default", "self eps=None",
            "z = given(eps, clamp(self, eps, 1 - eps), self); log(z / (1 - z))"),
    FORMULA("logaddexp.default", "self other",
            "maximum(self, other) + log1p(exp(-abs(self - other)))"),
    FORMULA("hypot.default", "self other", "sqrt(self * self + other * other)"),
    FORMULA("nan_to_num.default", "self nan=None posinf=None neginf=None",
            "x = where.self(isnan(self), given(nan, nan, 0.0), self);"
            "y = where.self(gt.Scalar(x, 3.4028234663852886e38),"
            " given(posinf, posinf, 3.4028234663852886e38), x);"
            "where.self(lt.Scalar(x, -3.4028234663852886e38),"
            " given(neginf, neginf, -3.4028234663852886e38), y)"),
    FORMULA("isclose.default", "self other rtol=1e-5 atol=1e-8 equal_nan=False",
            "_ = only(equal_nan, False); logical_or(eq.Tensor(self, other),"
            " le.Tensor(abs(self - other), atol + rtol * abs(other)))"),
    FORMULA("clamp.Tensor", "self min=None max=None",
            "x = given(min, where.self(lt.Tensor(self, min), min, self), self);"
            "given(max, where.self(gt.Tensor(x, max), max, x), x)"),
    FORMULA("clamp_min.Tensor", "self min", "where.self(lt.Tensor(self, min), min, self)"),
    FORMULA("clamp_max.Tensor", "self max", "where.self(gt.Tensor(self, max), max, self)"),
    FORMULA("rrelu.default", "self lower=0.125 upper=0.3333333333333333 training=False generator!",
            "_ = only(training, False); leaky_relu(self, (lower + upper) / 2)"),
    FORMULA("__lshift__.Scalar", "self other", "self * pow.Tensor_Scalar(2, other)"),
    FORMULA("__rshift__.Scalar", "self other", "floor_divide(self, pow.Tensor_Scalar(2, other))"),
    FORMULA("bitwise_left_shift.Tensor_Scalar", "self other", "self * pow.Tensor_Scalar(2, other)"),
    FORMULA("bitwise_right_shift.Tensor_Scalar", "self other",
            "floor_divide(self, pow.Tensor_Scalar(2, other))"),
    FORMULA("bucketize.Tensor", "self boundaries out_int32!=False right=False",
            "x = unsqueeze(self, -1); sum.dim_IntList("
            "choose(right, ge.Tensor(x, boundaries), gt.Tensor(x, boundaries)), [-1])"),

    /* that join elements */
    FORMULA("count_nonzero.default", "self dim=None",
            "sum.dim_IntList(ne.Scalar(self, 0), given(dim, [dim], None))"),
    FORMULA("count_nonzero.dim_IntList", "self dim", "sum.dim_IntList(ne.Scalar(self, 0), dim)"),
    FORMULA("aminmax.default", "self dim=None keepdim=False",
            "amin(self, dim, keepdim), amax(self, dim, keepdim)"),
    FORMULA("kthvalue.default", "self k dim=-1 keepdim=False",
            "v = narrow(sort(self, dim)[0], dim, k - 1, 1);"
            "p = narrow(sort(self, dim)[1], dim, k - 1, 1);"
            "choose(keepdim, v, squeeze.dim(v, dim)), choose(keepdim, p, squeeze.dim(p, dim))"),
    FORMULA("median.dim", "self dim keepdim=False",
            "k = floor_divide(size(self, dim) - 1, 2);"
            "v = narrow(sort(self, dim)[0], dim, k, 1); p = narrow(sort(self, dim)[1], dim, k, 1);"
            "choose(keepdim, v, squeeze.dim(v, dim)), choose(keepdim, p, squeeze.dim(p, dim))"),
    FORMULA("frobenius_norm.dim", "self dim keepdim=False",
            "linalg_vector_norm(self, 2, dim, keepdim)"),
    FORMULA("linalg_norm.default", "self ord=None dim=None keepdim=False dtype!=None",
            "_ = only(ord, None); linalg_vector_norm(self, 2, dim, keepdim)"),
    FORMULA("linalg_matrix_norm.str_ord", "self ord=fro dim=[-2,-1] keepdim=False dtype!=None",
            "_ = only(ord, 'fro'); linalg_vector_norm(self, 2, dim, keepdim)"),
    FORMULA("cosine_similarity.default", "x1 x2 dim=1 eps=1e-8",
            "p = broadcast_tensors([x1, x2])[0]; q = broadcast_tensors([x1, x2])[1];"
            "x = p / clamp_min(linalg_vector_norm(p, 2, [dim], True), eps);"
            "y = q / clamp_min(linalg_vector_norm(q, 2, [dim], True), eps);"
            "sum.dim_IntList(x * y, [dim])"),
    FORMULA("pairwise_distance.default", "x1 x2 p=2 eps=1e-6 keepdim=False",
            "linalg_vector_norm(x1 - x2 + eps, p, [-1], keepdim)"),
    FORMULA("cdist.default", "x1 x2 p=2 compute_mode!=None",
            "linalg_vector_norm(unsqueeze(x1, -2) - unsqueeze(x2, -3), p, [-1])"),
    FORMULA("_weight_norm.default", "v g dim=0", "v * (g / norm_except_dim(v, 2, dim))"),
    FORMULA("_weight_norm_interface.default", "v g dim=0",
            "n = norm_except_dim(v, 2, dim); v * (g / n), n"),
    FORMULA("trace.default", "self", "sum(diagonal(self))"),

    /* products */
    FORMULA("outer.default", "self vec2", "unsqueeze(self, -1) * vec2"),
    FORMULA("mv.default", "self vec", "matmul(self, vec)"),
    FORMULA("dot.default", "self tensor", "sum(self * tensor)"),
    FORMULA("vdot.default", "self other", "sum(self * other)"),
    FORMULA("inner.default", "self other",
            "choose(rank(other) - 1, matmul(self, mT(other)), matmul(self, other))"),
    FORMULA("addmv.default", "self mat vec beta=1 alpha=1",
            "beta * self + alpha * matmul(mat, vec)"),
    FORMULA("baddbmm.default", "self batch1 batch2 beta=1 alpha=1",
            "beta * self + alpha * bmm(batch1, batch2)"),
    FORMULA("bilinear.default", "input1 input2 weight bias=None",
            "x = einsum('...i,oij,...j->...o', [input1, weight, input2]);"
            "given(bias, x + bias, x)"),
    FORMULA("linalg_cross.default", "self other dim=-1",
            "roll(self, [-1], [dim]) * roll(other, [1], [dim])"
            " - roll(self, [1], [dim]) * roll(other, [-1], [dim])"),
    FORMULA("cross.default", "self other dim=None",
            "_ = given(dim, 0, only(0, 1)); linalg_cross(self, other, dim)"),

    /* shapes */
    VIEW("ravel.default", "self", "flatten.using_ints(self)"),
    FORMULA("fliplr.default", "self", "flip(self, [1])"),
    FORMULA("flipud.default", "self", "flip(self, [0])"),
    FORMULA("diag_embed.default", "self offset=0 dim1=-2 dim2=-1",
            "_ = only(offset, 0); _ = only(dim1, -2); _ = only(dim2, -1);"
            "where.self(gt.Scalar(eye(size(self, -1)), 0), unsqueeze(self, -1), 0)"),
    FORMULA("scatter_reduce.two", "self dim index src reduce include_self=True",
            "_ = only(reduce, 'sum'); _ = only(include_self, True);"
            "scatter_add(self, dim, index, src)"),

    /* layers */
    FORMULA("adaptive_max_pool1d.default", "self output_size",
            "squeeze.dim(adaptive_max_pool2d(unsqueeze(self, -2), [1, output_size[0]]), -2)"),
    FORMULA("lstm_cell.default", CELL,
            "g = " GATES("hx[0]") "; c = sigmoid(chunk(g, 4, -1)[1]) * hx[1]"
                                  " + sigmoid(chunk(g, 4, -1)[0]) * tanh(chunk(g, 4, -1)[2]);"
                                  "sigmoid(chunk(g, 4, -1)[3]) * tanh(c), c"),
    FORMULA("gru_cell.default", CELL,
            "i = linear(input, w_ih, b_ih); h = linear(hx, w_hh, b_hh);"
            "r = sigmoid(chunk(i, 3, -1)[0] + chunk(h, 3, -1)[0]);"
            "z = sigmoid(chunk(i, 3, -1)[1] + chunk(h, 3, -1)[1]);"
            "n = tanh(chunk(i, 3, -1)[2] + r * chunk(h, 3, -1)[2]); n + z * (hx - n)"),
    FORMULA("rnn_tanh_cell.default", CELL, "tanh(" GATES("hx") ")"),
    FORMULA("rnn_relu_cell.default", CELL, "relu(" GATES("hx") ")"),
    FORMULA("grid_sampler.default", "input grid interpolation_mode padding_mode align_corners",
            GRID_SAMPLE),
    FORMULA("grid_sampler_2d.default", "input grid interpolation_mode padding_mode align_corners",
            GRID_SAMPLE),

    /* losses */
    FORMULA("binary_cross_entropy.default", "self target weight=None reduction=1",
            "p = " SAFE_LOG("self", "1.0, self",
                            "log") "; r = 1 - self;"
                                   "q = where.self(le.Scalar(r, 0), -100.0,"
                                   " log1p(-where.self(le.Scalar(r, 0), 0.0, self)));"
                                   "t = -(target * p + (1 - target) * q);"
                                   "x = given(weight, t * weight, t); " REDUCED("x")),
    FORMULA("poisson_nll_loss.default", "input target log_input full eps reduction",
            "_ = only(full, False); x = choose(log_input, exp(input) - target * input,"
            " input - target * log(input + eps)); " REDUCED("x")),
    FORMULA("soft_margin_loss.default", "self target reduction=1",
            "x = softplus(-(target * self)); " REDUCED("x")),
    FORMULA("hinge_embedding_loss.default", "self target margin=1 reduction=1",
            "x = where.self(ne.Scalar(target, 1), relu(margin - self), 0)"
            " + where.self(ne.Scalar(target, -1), self, 0); " REDUCED("x")),
    FORMULA("margin_ranking_loss.default", "input1 input2 target margin=0 reduction=1",
            "x = relu(margin - target * (input1 - input2)); " REDUCED("x")),
    FORMULA("cosine_embedding_loss.default", "input1 input2 target margin=0 reduction=1",
            "_ = only(rank(target), 1); p = sum.dim_IntList(input1 * input1, [1]) + 1e-12;"
            "q = sum.dim_IntList(input2 * input2, [1]) + 1e-12;"
            "c = sum.dim_IntList(input1 * input2, [1]) / sqrt(p * q);"
            "x = where.self(eq.Scalar(target, 1), 1 - c, 0)"
            " + where.self(eq.Scalar(target, -1), relu(c - margin), 0); " REDUCED("x")),
    FORMULA("triplet_margin_loss.default",
            "anchor positive negative margin=1 p=2 eps=1e-6 swap=False reduction=1",
            "_ = only(swap, False); x = relu(margin + pairwise_distance(anchor, positive, p, eps)"
            " - pairwise_distance(anchor, negative, p, eps)); " REDUCED("x")),
    {0},
};

const tti_operator tti_operators_names[] = {
    NAME("__and__.Scalar", "self other", "bitwise_and.Scalar"),
    NAME("__or__.Scalar", "self other", "bitwise_or.Scalar"),
    NAME("__xor__.Scalar", "self other", "bitwise_xor.Scalar"),
    NAME("multiply.Tensor", "self other", "mul.Tensor"),
    NAME("multiply.Scalar", "self other", "mul.Scalar"),
    NAME("subtract.Tensor", "self other alpha=1", "sub.Tensor"),
    NAME("subtract.Scalar", "self other alpha=1", "sub.Scalar"),
    NAME("true_divide.Tensor", "self other", "div.Tensor"),
    NAME("true_divide.Scalar", "self other", "div.Scalar"),
    NAME("divide.Tensor", "self other", "div.Tensor"),
    NAME("divide.Scalar", "self other", "div.Scalar"),
    NAME("divide.Tensor_mode", "self other rounding_mode=None", "div.Tensor_mode"),
    NAME("divide.Scalar_mode", "self other rounding_mode=None", "div.Scalar_mode"),
    NAME("negative.default", "self", "neg.default"),
    NAME("absolute.default", "self", "abs.default"),
    NAME("clip.default", "self min=None max=None", "clamp.default"),
    NAME("clip.Tensor", "self min=None max=None", "clamp.Tensor"),
    NAME("fix.default", "self", "trunc.default"),
    NAME("greater.Tensor", "self other", "gt.Tensor"),
    NAME("greater.Scalar", "self other", "gt.Scalar"),
    NAME("greater_equal.Tensor", "self other", "ge.Tensor"),
    NAME("greater_equal.Scalar", "self other", "ge.Scalar"),
    NAME("less.Tensor", "self other", "lt.Tensor"),
    NAME("less.Scalar", "self other", "lt.Scalar"),
    NAME("less_equal.Tensor", "self other", "le.Tensor"),
    NAME("less_equal.Scalar", "self other", "le.Scalar"),
    NAME("not_equal.Tensor", "self other", "ne.Tensor"),
    NAME("not_equal.Scalar", "self other", "ne.Scalar"),
    NAME("special_expit.default", "self", "sigmoid.default"),
    NAME("special_erf.default", "self", "erf.default"),
    NAME("special_erfc.default", "self", "erfc.default"),
    NAME("special_expm1.default", "self", "expm1.default"),
    NAME("special_exp2.default", "self", "exp2.default"),
    NAME("special_log1p.default", "self", "log1p.default"),
    NAME("special_logit.default", "self eps=None", "logit.default"),
    NAME("special_logsumexp.default", "self dim keepdim=False", "logsumexp.default"),
    NAME("special_softmax.default", "self dim dtype!=None", "softmax.int"),
    NAME("special_log_softmax.default", "self dim dtype!=None", "log_softmax.int"),
    NAME("concatenate.default", "tensors dim=0", "cat.default"),
    NAME("ger.default", "self vec2", "outer.default"),
    {0},
};

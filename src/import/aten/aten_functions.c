/* aten_functions.c - element-wise functions and statistics, as formulas of other operators
 * (aten_formula.c). */
#include "import/aten/aten.h"

#define ALIAS(op)                                                                    \
    {                                                                                \
        .target = "aten." op ".default", .signature = "self", .build = tti_build_as, \
        .fold = tti_build_as, .view = true, .as = "aten.alias.default"               \
    }

/* atan of r >= 0: three ranges, divided at tan(pi/8) and tan(3 pi/8), and a polynomial (Cephes). */
#define ATAN_OF_SIZE                                                                   \
    "high = gt.Scalar(r, 2.414213562373095); some = gt.Scalar(r, 0.4142135623730950);" \
    "t = where.self(high, -1 / where.self(high, r, 1.0),"                              \
    " where.self(some, (r - 1) / (r + 1), r)); z = t * t;"                             \
    "p = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z"       \
    " - 3.33329491539e-1; a = where.self(high, 1.5707963267948966,"                    \
    " where.self(some, 0.7853981633974483, 0.0)) + (p * z * t + t);"

/* Stirling's series for x + 8, reduced to x by the recurrence. */
#define LN_GAMMA                                                                              \
    "y = self + 8; s = 1 / y; q = s * s;"                                                     \
    "u = ((q * 7.936507936507937e-4 - 2.777777777777778e-3) * q + 8.333333333333333e-2) * s;" \
    "w = (self * (self + 1)) * ((self + 2) * (self + 3));"                                    \
    "v = ((self + 4) * (self + 5)) * ((self + 6) * (self + 7));"                              \
    "(y - 0.5) * log(y) - y + 0.9189385332046727 + u - log(abs(w)) - log(abs(v))"
#define DI_GAMMA                                                                              \
    "y = self + 8; s = 1 / y; q = s * s;"                                                     \
    "u = ((q * 3.968253968253968e-3 - 8.333333333333333e-3) * q + 8.333333333333333e-2) * q;" \
    "log(y) - 0.5 * s - u - (1 / self + 1 / (self + 1) + 1 / (self + 2) + 1 / (self + 3)"     \
    " + 1 / (self + 4) + 1 / (self + 5) + 1 / (self + 6) + 1 / (self + 7))"

const tti_operator tti_operators_functions[] = {
    /* angles */
    TTI_FORMULA("atan.default", "self",
                "s = where.self(ge.Scalar(self, 0), 1.0, -1.0); r = self * s;" ATAN_OF_SIZE
                "a * s"),
    TTI_FORMULA("asin.default", "self", "atan(self / sqrt((1 - self) * (1 + self)))"),
    TTI_FORMULA("acos.default", "self", "2 * atan(sqrt((1 - self) / (1 + self)))"),
    TTI_FORMULA("atan2.default", "self other",
                "wide = ge.Tensor(abs(other), abs(self));"
                "below = where.self(wide, other, self);"
                "k = atan(where.self(wide, self, other) /"
                " where.self(eq.Scalar(below, 0), 1.0, below));"
                "half = where.self(lt.Scalar(self, 0), -1.5707963267948966, 1.5707963267948966);"
                "where.self(wide, k + where.self(lt.Scalar(other, 0), 2 * half, 0.0), half - k)"),
    TTI_NAME("arctan.default", "self", "atan.default"),
    TTI_NAME("arcsin.default", "self", "asin.default"),
    TTI_NAME("arccos.default", "self", "acos.default"),
    TTI_NAME("arctan2.default", "self other", "atan2.default"),
    TTI_FORMULA("deg2rad.default", "self", "self * 0.017453292519943295"),
    TTI_FORMULA("rad2deg.default", "self", "self * 57.29577951308232"),
    TTI_FORMULA("sinc.default", "self",
                "zero = eq.Scalar(self, 0); x = where.self(zero, 1.0, self * 3.141592653589793);"
                "where.self(zero, 1.0, sin(x) / x)"),

    /* functions of one and two elements */
    ALIAS("positive"),
    ALIAS("resolve_conj"),
    ALIAS("resolve_neg"),
    ALIAS("conj_physical"),
    TTI_FORMULA("lgamma.default", "self", LN_GAMMA),
    TTI_FORMULA("special_gammaln.default", "self", LN_GAMMA),
    TTI_FORMULA("digamma.default", "self", DI_GAMMA),
    TTI_FORMULA("special_digamma.default", "self", DI_GAMMA),
    TTI_FORMULA("special_ndtr.default", "self", "0.5 * erfc(self * -0.7071067811865476)"),
    TTI_FORMULA("xlogy.Tensor", "self other",
                "zero = eq.Scalar(self, 0); where.self(zero, 0.0, self * log(where.self(zero, 1.0, "
                "other)))"),
    TTI_FORMULA("special_entr.default", "self",
                "zero = eq.Scalar(self, 0);"
                "where.self(zero, 0.0, -(self * log(where.self(zero, 1.0, self))))"),
    TTI_FORMULA("copysign.Tensor", "self other",
                "abs(self) * where.self(lt.Scalar(other, 0), -1.0, 1.0)"),
    TTI_FORMULA("heaviside.default", "self values",
                "where.self(eq.Scalar(self, 0), values, gt.Scalar(self, 0))"),
    TTI_FORMULA(
        "fmax.default", "self other",
        "where.self(isnan(self), other, where.self(isnan(other), self, maximum(self, other)))"),
    TTI_FORMULA(
        "fmin.default", "self other",
        "where.self(isnan(self), other, where.self(isnan(other), self, minimum(self, other)))"),
    TTI_FORMULA("logaddexp2.default", "self other",
                "maximum(self, other)"
                " + 1.4426950408889634 * log1p(exp2(-abs(self - other)))"),
    TTI_FORMULA("ldexp.Tensor", "self other", "self * pow.Scalar(2, other)"),
    TTI_NAME("float_power.Tensor_Scalar", "self exponent", "pow.Tensor_Scalar"),
    TTI_NAME("float_power.Tensor_Tensor", "self exponent", "pow.Tensor_Tensor"),

    /* comparisons */
    TTI_FORMULA(
        "isin.Tensor_Tensor", "elements test_elements assume_unique!=False invert=False",
        "r = any.dim(eq.Tensor(unsqueeze(elements, -1), flatten.using_ints(test_elements)), -1);"
        "choose(invert, logical_not(r), r)"),
    TTI_FORMULA(
        "isin.Tensor_Scalar", "elements test_element assume_unique!=False invert=False",
        "choose(invert, ne.Scalar(elements, test_element), eq.Scalar(elements, test_element))"),
    TTI_NAME("_is_all_true.default", "self", "all.default"),
    TTI_NAME("_is_any_true.default", "self", "any.default"),

    /* sums */
    TTI_FORMULA("nansum.default", "self dim=None keepdim=False dtype!=None",
                "sum.dim_IntList(where.self(isnan(self), 0.0, self), dim, keepdim)"),
    TTI_FORMULA("nanmean.default", "self dim=None keepdim=False dtype!=None",
                "empty = isnan(self); sum.dim_IntList(where.self(empty, 0.0, self), dim, keepdim)"
                " / sum.dim_IntList(logical_not(empty), dim, keepdim)"),
    TTI_FORMULA("median.default", "self", "median.dim(flatten.using_ints(self), 0)[0]"),
    TTI_FORMULA("trapezoid.dx", "y dx=1 dim=-1",
                "n = size(y, dim) - 1;"
                "sum.dim_IntList(narrow(y, dim, 0, n) + narrow(y, dim, 1, n), [dim]) * (dx / 2)"),

    /* products */
    TTI_FORMULA("addbmm.default", "self batch1 batch2 beta=1 alpha=1",
                "beta * self + alpha * sum.dim_IntList(bmm(batch1, batch2), [0])"),
    TTI_FORMULA("addr.default", "self vec1 vec2 beta=1 alpha=1",
                "beta * self + alpha * outer(vec1, vec2)"),
    TTI_FORMULA("linalg_vecdot.default", "x y dim=-1", "sum.dim_IntList(x * y, [dim])"),

    /* shapes */
    TTI_NAME("broadcast_to.default", "self size", "expand.default"),
    TTI_FORMULA("diag.default", "self diagonal=0",
                "choose(rank(self) - 1, diagonal(self, diagonal), diag_embed(self, diagonal))"),
    {0},
};

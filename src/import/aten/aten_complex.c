/* aten_complex.c - complex numbers, as pairs of real numbers in an additional last dimension.
 *
 * The flag is_complex of an operand marks them. If an argument of aten.NAME has the flag, the row
 * complex.NAME runs instead (row_call.c), with the same signature; an operator without such a row
 * refuses complex numbers. Some models use them for rotary positions. */
#include "base/error.h"
#include "import/aten/aten.h"

/* Returns a complex operand as pairs of real numbers. */
static tti_operand *pairs_of(tti_building *b, const tti_operand *x) {
    tti_operand *pairs = tti_build_alloc(b, sizeof *pairs);
    if (!pairs) return NULL;
    tti_set(pairs, x);
    pairs->is_complex = false;
    return pairs;
}

/* Copies the arguments of c, complex ones as pairs. */
static bool take_pairs(tti_building *b, const tti_call *c, tti_arg *args) {
    for (int k = 0; k < c->n_args; k++) {
        const tti_operand *x = tti_operand_named(b, c->arg[k]);
        args[k] = *c->arg[k];
        if (x && x->is_complex) args[k] = tti_operand_arg(pairs_of(b, x));
    }
    return tti_good(b);
}

static void mark(tti_building *b, const tti_call *c) {
    if (tti_good(b) && c->out[0]) c->out[0]->is_complex = true;
}

/* Runs the operator in `as` on pairs. */
static void run_on_pairs(tti_building *b, const tti_call *c, tti_arg *args) {
    tti_call_row(b, tti_as_of(b), args, c->n_args, c->out, 1);
    mark(b, c);
}

static void each_pair(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    if (take_pairs(b, c, args)) run_on_pairs(b, c, args);
}

/* self dim ..: adjusts negative dimensions for the additional last dimension. */
static void along_dim(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    int64_t dim = tti_int_at(b, c, 1);
    if (!take_pairs(b, c, args)) return;
    args[1] = tti_int_arg(dim < 0 ? dim - 1 : dim);
    run_on_pairs(b, c, args);
}

/* self shape: the pairs stay the last dimension. */
static void reshaped(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    if (!take_pairs(b, c, args)) return;
    if (args[1].kind != TTI_ARG_LIST) tti_refuse(b, "its shape is not a list");
    tti_arg *items = tti_build_alloc(b, ((size_t)args[1].n + 1) * sizeof *items);
    if (!tti_good(b) || !items) return;
    for (int i = 0; i < args[1].n; i++) items[i] = args[1].items[i];
    items[args[1].n] = tti_int_arg(2);
    args[1] = (tti_arg){.kind = TTI_ARG_LIST, .items = items, .n = args[1].n + 1};
    run_on_pairs(b, c, args);
}

/* (p + iq)(r + is) = pr - qs + i(ps + qr); a real factor scales both. */
static void product(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    bool is_complex[2];
    for (int k = 0; k < 2; k++) {
        const tti_operand *x = tti_operand_named(b, c->arg[k]);
        is_complex[k] = x && x->is_complex;
    }
    if (!take_pairs(b, c, args)) return;
    const char *how = is_complex[0] && is_complex[1] ? "complex.product.both"
                      : is_complex[0]                ? "complex.product.first"
                                                     : "complex.product.second";
    tti_call_row(b, how, args, 2, c->out, 1);
    mark(b, c);
}

/* self dtype: another complex type, or none. */
static void to_type(tti_building *b, const tti_call *c) {
    tti_arg args[TTI_COUNT(c->arg)];
    if (!take_pairs(b, c, args)) return;
    if (c->arg[1]->kind == TTI_ARG_DTYPE)
        tti_refuse(b, "a conversion of complex numbers to real ones is not supported");
    if (tti_good(b)) tti_call_row(b, tti_as_of(b), args, 1, c->out, 1);
    mark(b, c);
}

static void view_as_complex(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (!tti_good(b)) return;
    tutti_shape shape = tti_shape_of(x);
    if (shape.n_dims < 1 || shape.dim[shape.n_dims - 1] != 2)
        tti_refuse(b, "the last dimension is not 2");
    if (!tti_good(b)) return;
    tti_set(c->out[0], x);
    mark(b, c);
}

static void as_real(tti_building *b, const tti_call *c) {
    tti_operand *pairs = pairs_of(b, tti_operand_at(b, c, 0));
    if (tti_good(b) && pairs) tti_set(c->out[0], pairs);
}

static void not_complex(tti_building *b, const tti_call *c) {
    (void)c;
    tti_refuse(b, "its argument is not complex");
}

static void made_of_parts(tti_building *b, const tti_call *c) {
    tti_build_formula(b, c);
    mark(b, c);
}

#define PARTS(op, args, text)                                                                   \
    {                                                                                           \
        .target = "aten." op, .signature = args, .build = made_of_parts, .fold = made_of_parts, \
        .as = text                                                                              \
    }
#define PAIRS(op, args, fn, view_, other)                                                   \
    {                                                                                       \
        .target = "complex." op, .signature = args, .build = fn, .fold = fn, .view = view_, \
        .as = "aten." other                                                                 \
    }
/* which: bit mask of complex arguments. */
#define FORMULA(which, args, text)                                                         \
    {                                                                                      \
        .target = "complex.product." which, .signature = args, .build = tti_build_formula, \
        .fold = tti_build_formula, .as = text                                              \
    }
#define WHERE "layout!=None device!=None pin_memory!=None non_blocking!=False "

const tti_operator tti_operators_complex[] = {
    PARTS("polar.default", "abs angle", "stack([abs * cos(angle), abs * sin(angle)], -1)"),
    PARTS("complex.default", "real imag", "stack([real, imag], -1)"),
    {.target = "aten.view_as_complex.default",
     .signature = "self",
     .build = view_as_complex,
     .fold = view_as_complex,
     .view = true},
    TTI_BOTH("view_as_real.default", "self", not_complex),
    PAIRS("view_as_real.default", "self", as_real, true, ""),
    PAIRS("mul.Tensor", "self other", product, false, ""),
    PAIRS("view.default", "self size", reshaped, true, "view.default"),
    PAIRS("reshape.default", "self shape", reshaped, true, "reshape.default"),
    PAIRS("unsqueeze.default", "self dim", along_dim, true, "unsqueeze.default"),
    PAIRS("select.int", "self dim index", along_dim, true, "select.int"),
    PAIRS("slice.Tensor", "self dim=0 start=None end=None step=1", along_dim, true, "slice.Tensor"),
    PAIRS("alias.default", "self", each_pair, true, "alias.default"),
    PAIRS("detach.default", "self", each_pair, true, "detach.default"),
    PAIRS("contiguous.default", "self memory_format!", each_pair, true, "alias.default"),
    PAIRS("clone.default", "self memory_format!", each_pair, false, "clone.default"),
    PAIRS("to.dtype", "self dtype non_blocking!=False copy=False memory_format!", to_type, true,
          "alias.default"),
    PAIRS("to.dtype_layout", "self dtype=None " WHERE "copy=False memory_format!=None", to_type,
          true, "alias.default"),
    PAIRS("to.device", "self dtype=None device! non_blocking!=False copy=False memory_format!=None",
          to_type, true, "alias.default"),
    PAIRS("_to_copy.default", "self dtype=None " WHERE "memory_format!=None", to_type, false,
          "clone.default"),
    FORMULA("both", "self other",
            "p = select(self, -1, 0); q = select(self, -1, 1);"
            "r = select(other, -1, 0); s = select(other, -1, 1);"
            "stack([p * r - q * s, p * s + q * r], -1)"),
    FORMULA("first", "self other",
            "choose(rank(other), self * unsqueeze(other, -1), self * other)"),
    FORMULA("second", "self other",
            "choose(rank(self), unsqueeze(self, -1) * other, self * other)"),
    {0},
};

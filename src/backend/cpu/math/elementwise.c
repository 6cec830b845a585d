/* elementwise.c - y = f(x) over the bytes of f32 values, for any shape and common layout.
 *
 * Contains the one kernel that runs every elementwise function of this folder; fused.c runs the
 * same functions block by block.  To add one: a function and a row in a table of functions. */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"
#include "base/dtype.h"

#define UNARY(name, expr)                                                                \
    static void name(const tti_node *node, const float *const *in, float *y, size_t n) { \
        const float *p = in[0];                                                          \
        (void)node;                                                                      \
        TTI_IVDEP                                                                        \
        for (size_t i = 0; i < n; i++) {                                                 \
            float x = p[i];                                                              \
            y[i] = (expr);                                                               \
        }                                                                                \
    }

UNARY(neg, -x)
UNARY(exp_, tti_vexp(x))
UNARY(log_, tti_vlog(x))
UNARY(sqrt_, __builtin_sqrtf(x))
UNARY(abs_, tti_vabs(x))
UNARY(square, x *x)
UNARY(sin_, tti_vturn(x, 0))
UNARY(cos_, tti_vturn(x, 1))
UNARY(erf_, tti_verf(x))
UNARY(log1p_, tti_vlog1p(x))
UNARY(expm1_, tti_vexpm1(x))
UNARY(floor_, __builtin_floorf(x))
UNARY(round_, __builtin_rintf(x))
UNARY(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)

static void affine(const tti_node *node, const float *const *in, float *y, size_t n) {
    const float *x = in[0];
    float alpha = (float)tti_attr_float(node, "alpha"), beta = (float)tti_attr_float(node, "beta");
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = alpha * x[i] + beta;
}

const tti_elem TTI_VARIANT(tti_elems_elementwise)[] = {
    {"neg", neg},      {"exp", exp_},      {"log", log_},     {"sqrt", sqrt_},
    {"abs", abs_},     {"square", square}, {"sign", sign},    {"affine", affine},
    {"sin", sin_},     {"cos", cos_},      {"erf", erf_},     {"log1p", log1p_},
    {"expm1", expm1_}, {"floor", floor_},  {"round", round_}, {0},
};

static tti_elem_fn find_in(const tti_elem *list, const char *op) {
    for (; list->op; list++)
        if (strcmp(list->op, op) == 0) return list->fn;
    return NULL;
}

tti_elem_fn TTI_VARIANT(tti_elem_find)(const tti_node *node) {
    if (node->op->n_out != 1 || !tti_all_f32(node)) return NULL;
    for (int i = 0; i < node->n_in; i++)
        if (!tti_shape_equal(&node->in[i]->type.shape, &node->out[0]->type.shape)) return NULL;
    tti_elem_fn fn = find_in(TTI_VARIANT(tti_elems_elementwise), node->op->name);
    if (!fn) fn = find_in(TTI_VARIANT(tti_elems_activation), node->op->name);
    if (!fn) fn = find_in(TTI_VARIANT(tti_elems_binary), node->op->name);
    return fn;
}

static bool elem_can_run(const tti_node *node) {
    return TTI_VARIANT(tti_elem_find)(node) != NULL && tti_one_layout(node);
}

static tutti_status elem_run(void *state, const tti_kargs *a) {
    (void)state;
    TTI_VARIANT(tti_elem_find)
    (a->node)(a->node, (const float *const *)a->in, a->out[0], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

/* ---- cast: the pairs that training uses; other dtypes go to the reference ---- */

static int cast_pair(const tti_node *node) {
    return (int)node->in[0]->type.dtype * TUTTI_N_DTYPES + (int)node->out[0]->type.dtype;
}

enum {
    F32_TO_F32 = TUTTI_F32 * TUTTI_N_DTYPES + TUTTI_F32,
    F32_TO_BF16 = TUTTI_F32 * TUTTI_N_DTYPES + TUTTI_BF16,
    BF16_TO_F32 = TUTTI_BF16 * TUTTI_N_DTYPES + TUTTI_F32,
    F32_TO_F16 = TUTTI_F32 * TUTTI_N_DTYPES + TUTTI_F16,
    F16_TO_F32 = TUTTI_F16 * TUTTI_N_DTYPES + TUTTI_F32,
    U8_TO_F32 = TUTTI_U8 * TUTTI_N_DTYPES + TUTTI_F32,
    I32_TO_F32 = TUTTI_I32 * TUTTI_N_DTYPES + TUTTI_F32
};

static bool cast_can_run(const tti_node *node) {
    int pair = cast_pair(node);
    bool known = pair == F32_TO_F32 || pair == F32_TO_BF16 || pair == BF16_TO_F32 ||
                 pair == F32_TO_F16 || pair == F16_TO_F32 || pair == U8_TO_F32 ||
                 pair == I32_TO_F32;
    return known && tti_one_layout(node);
}

static void f32_to_bf16(const float *x, uint16_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = tti_f32_to_bf16(x[i]);
}

static void bf16_to_f32(const uint16_t *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = tti_bf16_to_f32(x[i]);
}

static void f32_to_f16(const float *x, uint16_t *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = tti_vf32_to_f16(x[i]);
}

static void f16_to_f32(const uint16_t *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = tti_vf16_to_f32(x[i]);
}

static void u8_to_f32(const uint8_t *x, float *y, size_t n) {
    for (size_t i = 0; i < n; i++) y[i] = (float)x[i];
}

static void i32_to_f32(const int32_t *x, float *y, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = (float)x[i];
}

/* In place, only f32 to f32 and i32 to f32 occur here: elements of one width. */
static tutti_status cast_run(void *state, const tti_kargs *a) {
    size_t n = tti_n_elems(a->node->out[0]);
    (void)state;
    switch (cast_pair(a->node)) {
        case F32_TO_BF16:
            f32_to_bf16(a->in[0], a->out[0], n);
            break;
        case BF16_TO_F32:
            bf16_to_f32(a->in[0], a->out[0], n);
            break;
        case F32_TO_F16:
            f32_to_f16(a->in[0], a->out[0], n);
            break;
        case F16_TO_F32:
            f16_to_f32(a->in[0], a->out[0], n);
            break;
        case U8_TO_F32:
            u8_to_f32(a->in[0], a->out[0], n);
            break;
        case I32_TO_F32:
            i32_to_f32(a->in[0], a->out[0], n);
            break;
        default:
            if (a->in[0] != a->out[0] && n) memcpy(a->out[0], a->in[0], n * sizeof(float));
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_elementwise)[];
const tti_kernel TTI_VARIANT(tti_kernels_elementwise)[] = {
    {.op = "*", .name = TTI_ISA_TEXT, .can_run = elem_can_run, .run = elem_run},
    {.op = "cast", .name = TTI_ISA_TEXT, .can_run = cast_can_run, .run = cast_run},
    {0},
};

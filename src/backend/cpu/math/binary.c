/* binary.c - arithmetic of two values: of one shape as elementwise functions, else with numpy's
 * broadcasting as a loop nest (nd.h) around the same inner loops; and sum_to, broadcast_to.  After
 * joining loops an operand has stride 1 or 0 in the innermost loop, and these cases vectorize. */
#include "backend/cpu/nd.h"
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"

typedef void (*inner_fn)(const float *a, size_t a_step, const float *b, size_t b_step, float *y,
                         size_t n);

#define BINARY(name, expr)                                                                 \
    static void name##_inner(const float *a, size_t a_step, const float *b, size_t b_step, \
                             float *out, size_t n) {                                       \
        if (a_step == 1 && b_step == 1) {                                                  \
            TTI_IVDEP                                                                      \
            for (size_t i = 0; i < n; i++) {                                               \
                float x = a[i], y = b[i];                                                  \
                out[i] = (expr);                                                           \
            }                                                                              \
        } else if (a_step == 1 && b_step == 0) {                                           \
            float y = n ? b[0] : 0.0f;                                                     \
            TTI_IVDEP                                                                      \
            for (size_t i = 0; i < n; i++) {                                               \
                float x = a[i];                                                            \
                out[i] = (expr);                                                           \
            }                                                                              \
        } else {                                                                           \
            for (size_t i = 0; i < n; i++) {                                               \
                float x = a[i * a_step], y = b[i * b_step];                                \
                out[i] = (expr);                                                           \
            }                                                                              \
        }                                                                                  \
    }                                                                                      \
    static void name(const tti_node *node, const float *const *in, float *out, size_t n) { \
        (void)node;                                                                        \
        name##_inner(in[0], 1, in[1], 1, out, n);                                          \
    }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div_, x / y)
BINARY(maximum, x != x || x > y ? x : y)
BINARY(minimum, x != x || x < y ? x : y)
BINARY(pow_, tti_vpow(x, y))
BINARY(equal, x == y ? 1.0f : 0.0f)
BINARY(less, x < y ? 1.0f : 0.0f)
BINARY(less_equal, x <= y ? 1.0f : 0.0f)
BINARY(keep, y != 0.0f ? x : 0.0f)

const tti_elem TTI_VARIANT(tti_elems_binary)[] = {
    {"add", add},         {"sub", sub},
    {"mul", mul},         {"div", div_},
    {"maximum", maximum}, {"minimum", minimum},
    {"pow", pow_},        {"equal", equal},
    {"less", less},       {"less_equal", less_equal},
    {"keep", keep},       {0},
};

typedef struct inner_row {
    const char *op;
    inner_fn fn;
} inner_row;

static const inner_row inner_rows[] = {
    {"add", add_inner},         {"sub", sub_inner},
    {"mul", mul_inner},         {"div", div__inner},
    {"maximum", maximum_inner}, {"minimum", minimum_inner},
    {"pow", pow__inner},        {"equal", equal_inner},
    {"less", less_inner},       {"less_equal", less_equal_inner},
    {"keep", keep_inner},
};

static inner_fn find_inner(const tti_node *node) {
    for (size_t i = 0; i < TTI_COUNT(inner_rows); i++)
        if (strcmp(inner_rows[i].op, node->op->name) == 0) return inner_rows[i].fn;
    return NULL;
}

static bool broadcast_can_run(const tti_node *node) {
    return (node->op->traits & TTI_BROADCAST) != 0 && node->n_in == 2 && tti_all_f32(node) &&
           find_inner(node) != NULL;
}

static tutti_status broadcast_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    const float *x = a->in[0], *y = a->in[1];
    float *out = a->out[0];
    inner_fn fn = find_inner(node);
    tti_nd nd = tti_nd_make(&node->out[0]->type.shape,
                            (const tutti_value *[]){node->out[0], node->in[0], node->in[1]}, 3);
    size_t n_outer = tti_nd_n_outer(&nd, 1), n = nd.dim[nd.n_dims - 1];
    size_t x_step = nd.stride[1][nd.n_dims - 1], y_step = nd.stride[2][nd.n_dims - 1];
    tti_nd_at at = {0};
    (void)state;
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 1, &at))
        fn(x + at.offset[1], x_step, y + at.offset[2], y_step, out + at.offset[0], n);
    return TUTTI_OK;
}

/* ---- sum_to: out stays in cache, x streams by once, always in the same order ---- */

static bool f32_can_run(const tti_node *node) { return tti_all_f32(node); }

static tutti_status sum_to_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    const float *x = a->in[0];
    float *out = a->out[0];
    tti_nd nd = tti_nd_make(&node->in[0]->type.shape,
                            (const tutti_value *[]){node->in[0], node->out[0]}, 2);
    size_t n_outer = tti_nd_n_outer(&nd, 1), n = nd.dim[nd.n_dims - 1];
    size_t step = nd.stride[1][nd.n_dims - 1];
    tti_nd_at at = {0};
    (void)state;
    memset(out, 0, tti_n_elems(node->out[0]) * sizeof *out);
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 1, &at)) {
        const float *row = x + at.offset[0];
        float *y = out + at.offset[1];
        if (step == 0) {
            *y += tti_sum_n(row, n);
        } else if (step == 1) {
            TTI_IVDEP
            for (size_t i = 0; i < n; i++) y[i] += row[i];
        } else {
            for (size_t i = 0; i < n; i++) y[i * step] += row[i];
        }
    }
    return TUTTI_OK;
}

static tutti_status broadcast_to_run(void *state, const tti_kargs *a) {
    const tti_node *node = a->node;
    const float *x = a->in[0];
    float *out = a->out[0];
    tti_nd nd = tti_nd_make(&node->out[0]->type.shape,
                            (const tutti_value *[]){node->out[0], node->in[0]}, 2);
    size_t n_outer = tti_nd_n_outer(&nd, 1), n = nd.dim[nd.n_dims - 1];
    size_t step = nd.stride[1][nd.n_dims - 1];
    tti_nd_at at = {0};
    (void)state;
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 1, &at)) {
        const float *from = x + at.offset[1];
        float *to = out + at.offset[0];
        for (size_t i = 0; i < n; i++) to[i] = from[i * step];
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_binary)[];
const tti_kernel TTI_VARIANT(tti_kernels_binary)[] = {
    {.op = "*", .name = TTI_ISA_TEXT, .can_run = broadcast_can_run, .run = broadcast_run},
    {.op = "sum_to", .name = TTI_ISA_TEXT, .can_run = f32_can_run, .run = sum_to_run},
    {.op = "broadcast_to", .name = TTI_ISA_TEXT, .can_run = f32_can_run, .run = broadcast_to_run},
    {0},
};

/* along.c - running sums, and elements taken and added by places of their own, of f32.  The order
 * of additions is that of the axis.  Sorting is the reference's. */
#include "backend/cpu/simd.h"
#include "ops/rules.h"

static tti_axis_view view_axis(const tti_node *node, const tutti_value *value) {
    int axis = (int)tti_attr_int(node, "axis");
    const tutti_shape *shape = &value->type.shape;
    return tti_view_axis(shape, axis < 0 ? axis + shape->n_dims : axis);
}

static bool cumsum_can_run(const tti_node *node) {
    return tti_all_f32(node) && tti_all_plain(node);
}

static tutti_status cumsum_run(void *state, const tti_kargs *a) {
    tti_axis_view v = view_axis(a->node, a->node->in[0]);
    bool reverse = tti_attr_int(a->node, "reverse") != 0;
    const float *x = a->in[0];
    float *y = a->out[0];
    (void)state;
    for (size_t o = 0; o < v.outer; o++, x += v.n * v.inner, y += v.n * v.inner)
        for (size_t k = 0; k < v.n; k++) {
            size_t at = reverse ? v.n - 1 - k : k, before = reverse ? at + 1 : at - 1;
            if (k == 0) memcpy(y + at * v.inner, x + at * v.inner, v.inner * sizeof *y);
            for (size_t j = 0; k > 0 && j < v.inner; j++)
                y[at * v.inner + j] = y[before * v.inner + j] + x[at * v.inner + j];
        }
    return TUTTI_OK;
}

static bool places_can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && tti_all_plain(node);
}

static bool is_inside(int32_t id, size_t n) { return id >= 0 && (size_t)id < n; }

static tutti_status take_run(void *state, const tti_kargs *a) {
    tti_axis_view v = view_axis(a->node, a->node->in[0]);
    size_t n_ids = view_axis(a->node, a->node->in[1]).n;
    const float *x = a->in[0];
    const int32_t *ids = a->in[1];
    float *y = a->out[0];
    (void)state;
    for (size_t o = 0; o < v.outer; o++, x += v.n * v.inner)
        for (size_t k = 0; k < n_ids; k++, ids += v.inner, y += v.inner)
            for (size_t j = 0; j < v.inner; j++)
                y[j] = is_inside(ids[j], v.n) ? x[(size_t)ids[j] * v.inner + j] : 0.0f;
    return TUTTI_OK;
}

static tutti_status put_run(void *state, const tti_kargs *a) {
    tti_axis_view v = view_axis(a->node, a->node->out[0]);
    size_t n_ids = view_axis(a->node, a->node->in[1]).n;
    const float *x = a->in[0];
    const int32_t *ids = a->in[1];
    float *y = a->out[0];
    (void)state;
    memset(y, 0, tti_n_elems(a->node->out[0]) * sizeof *y);
    for (size_t o = 0; o < v.outer; o++, y += v.n * v.inner)
        for (size_t k = 0; k < n_ids; k++, ids += v.inner, x += v.inner)
            for (size_t j = 0; j < v.inner; j++)
                if (is_inside(ids[j], v.n)) y[(size_t)ids[j] * v.inner + j] += x[j];
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_along)[];
const tti_kernel TTI_VARIANT(tti_kernels_along)[] = {
    {.op = "cumsum", .name = TTI_ISA_TEXT, .can_run = cumsum_can_run, .run = cumsum_run},
    {.op = "take_along", .name = TTI_ISA_TEXT, .can_run = places_can_run, .run = take_run},
    {.op = "put_along", .name = TTI_ISA_TEXT, .can_run = places_can_run, .run = put_run},
    {0},
};

/* embed.c - embedding, gather and their gradients: rows of f32 selected by i32 indices; one_hot.
 *
 * x is [outer, n, inner] around the axis, ids are a list.  The gradient adds rows in order of
 * position, so that its bits depend on nothing else; an id outside of the range gives zeros and
 * receives no gradient. */
#include "backend/cpu/simd.h"
#include "ops/rules.h"

static bool can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_F32 && node->in[1]->type.dtype == TUTTI_I32 &&
           node->out[0]->type.dtype == TUTTI_F32 && tti_all_plain(node);
}

/* The table around the axis of the lookup; dimension 0 unless the node says otherwise. */
static tti_axis_view view_table(const tti_node *node, const tutti_shape *shape) {
    int axis = tti_attr_has(node, "axis") ? (int)tti_attr_int(node, "axis") : 0;
    return tti_view_axis(shape, axis < 0 ? axis + shape->n_dims : axis);
}

static bool is_inside(int32_t id, size_t n) { return id >= 0 && (size_t)id < n; }

static tutti_status gather_run(void *state, const tti_kargs *a) {
    tti_axis_view v = view_table(a->node, &a->node->in[0]->type.shape);
    size_t n_ids = tti_n_elems(a->node->in[1]), n_bytes = v.inner * sizeof(float);
    const float *x = a->in[0];
    const int32_t *ids = a->in[1];
    float *y = a->out[0];
    (void)state;
    for (size_t o = 0; o < v.outer; o++, x += v.n * v.inner)
        for (size_t j = 0; j < n_ids; j++, y += v.inner) {
            if (is_inside(ids[j], v.n))
                memcpy(y, x + (size_t)ids[j] * v.inner, n_bytes);
            else
                memset(y, 0, n_bytes);
        }
    return TUTTI_OK;
}

static void add_row(float *to, const float *from, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) to[i] += from[i];
}

static tutti_status scatter_run(void *state, const tti_kargs *a) {
    tti_axis_view v = view_table(a->node, &a->node->out[0]->type.shape);
    size_t n_ids = tti_n_elems(a->node->in[1]);
    const float *dy = a->in[0];
    const int32_t *ids = a->in[1];
    float *dx = a->out[0];
    (void)state;
    memset(dx, 0, tti_n_elems(a->node->out[0]) * sizeof *dx);
    for (size_t o = 0; o < v.outer; o++, dx += v.n * v.inner)
        for (size_t j = 0; j < n_ids; j++, dy += v.inner)
            if (is_inside(ids[j], v.n)) add_row(dx + (size_t)ids[j] * v.inner, dy, v.inner);
    return TUTTI_OK;
}

static bool one_hot_can_run(const tti_node *node) {
    return node->in[0]->type.dtype == TUTTI_I32 && node->out[0]->type.dtype == TUTTI_F32 &&
           tti_all_plain(node);
}

static tutti_status one_hot_run(void *state, const tti_kargs *a) {
    size_t n = (size_t)tti_attr_int(a->node, "n"), n_ids = tti_n_elems(a->node->in[0]);
    const int32_t *ids = a->in[0];
    float *y = a->out[0];
    (void)state;
    memset(y, 0, n_ids * n * sizeof *y);
    for (size_t i = 0; i < n_ids; i++, y += n)
        if (is_inside(ids[i], n)) y[ids[i]] = 1.0f;
    return TUTTI_OK;
}

#define ROW(op_name, run_fn) \
    { .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_fn }

extern const tti_kernel TTI_VARIANT(tti_kernels_embed)[];
const tti_kernel TTI_VARIANT(tti_kernels_embed)[] = {
    ROW("embedding", gather_run),
    ROW("embedding_grad", scatter_run),
    ROW("gather", gather_run),
    ROW("scatter_add", scatter_run),
    {.op = "one_hot", .name = TTI_ISA_TEXT, .can_run = one_hot_can_run, .run = one_hot_run},
    {0},
};

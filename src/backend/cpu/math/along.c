/* along.c - running sums, sorting, and elements gathered and added by index, of f32.  The order
 * of additions is that of the axis. */
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

/* ---- sort: keys of 32 bits that order as the elements do, each above its place ---- */

enum { FEW = 32, DIGITS = 256 };

static size_t sort_scratch_bytes(const tti_node *node, const void *state) {
    (void)state;
    return 2 * view_axis(node, node->in[0]).n * sizeof(uint64_t);
}

/* NaN is the largest; 0 and -0 are equal. */
static inline uint32_t sort_key(float x) {
    uint32_t bits;
    float plain = x == 0.0f ? 0.0f : x;
    memcpy(&bits, &plain, sizeof bits);
    if (x != x) return UINT32_MAX;
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static void sort_few(uint64_t *list, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint64_t now = list[i];
        size_t at = i;
        for (; at > 0 && list[at - 1] > now; at--) list[at] = list[at - 1];
        list[at] = now;
    }
}

/* By the digits of the keys, the lowest first; equal elements stay in order.  Returns list or rest,
 * where the result is. */
static uint64_t *sort_many(uint64_t *list, uint64_t *rest, size_t n) {
    size_t counts[4][DIGITS] = {0};
    for (size_t i = 0; i < n; i++)
        for (int d = 0; d < 4; d++) counts[d][list[i] >> (32 + 8 * d) & 255u]++;
    for (int d = 0; d < 4; d++) {
        size_t at = 0, *start = counts[d];
        if (start[list[0] >> (32 + 8 * d) & 255u] == n) continue; /* all have this digit */
        for (int k = 0; k < DIGITS; k++) {
            size_t here = start[k];
            start[k] = at;
            at += here;
        }
        for (size_t i = 0; i < n; i++) rest[start[list[i] >> (32 + 8 * d) & 255u]++] = list[i];
        uint64_t *swap = list;
        list = rest;
        rest = swap;
    }
    return list;
}

static tutti_status sort_run(void *state, const tti_kargs *a) {
    tti_axis_view v = view_axis(a->node, a->node->in[0]);
    uint32_t flip = tti_attr_int(a->node, "descending") != 0 ? UINT32_MAX : 0;
    uint64_t *list = a->scratch;
    (void)state;
    for (size_t line = 0; v.n > 0 && line < v.outer * v.inner; line++) {
        size_t first = line / v.inner * v.n * v.inner + line % v.inner;
        const float *x = (const float *)a->in[0] + first;
        float *y = (float *)a->out[0] + first;
        int32_t *places = (int32_t *)a->out[1] + first;
        uint64_t *found = list;
        for (size_t k = 0; k < v.n; k++)
            list[k] = (uint64_t)(sort_key(x[k * v.inner]) ^ flip) << 32 | k;
        if (v.n <= FEW)
            sort_few(list, v.n);
        else
            found = sort_many(list, list + v.n, v.n);
        for (size_t k = 0; k < v.n; k++) {
            uint32_t from = (uint32_t)found[k];
            y[k * v.inner] = x[from * v.inner];
            places[k * v.inner] = (int32_t)from;
        }
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_along)[];
const tti_kernel TTI_VARIANT(tti_kernels_along)[] = {
    {.op = "cumsum", .name = TTI_ISA_TEXT, .can_run = cumsum_can_run, .run = cumsum_run},
    {.op = "sort",
     .name = TTI_ISA_TEXT,
     .can_run = places_can_run,
     .scratch_bytes = sort_scratch_bytes,
     .run = sort_run},
    {.op = "take_along", .name = TTI_ISA_TEXT, .can_run = places_can_run, .run = take_run},
    {.op = "put_along", .name = TTI_ISA_TEXT, .can_run = places_can_run, .run = put_run},
    {0},
};

/* pool.c - max, average and adaptive average pooling with their gradients, f32, both layouts.
 *
 * With the channels innermost, 16 channels at a time pass through a window in registers; in plain
 * layout planes are processed one by one.  A window is always a pair of ranges. */
#include "backend/cpu/simd.h"

typedef uint8_t u8x16 __attribute__((vector_size(16)));

/* Sizes of x [n,c,h,w] and y [n,c,oh,ow]. */
typedef struct shape_2d {
    size_t n, c, size[2], out[2]; /* size: h,w */
    size_t kernel[2], stride[2], pad[2];
    bool adaptive, last, count_pad;
} shape_2d;

/* lo <= i < hi along axis d for output position o. */
typedef struct range {
    size_t lo, hi;
} range;

static inline range window(const shape_2d *s, int d, size_t o) {
    size_t n = s->size[d];
    if (s->adaptive) return (range){o * n / s->out[d], ((o + 1) * n + s->out[d] - 1) / s->out[d]};
    size_t lo = o * s->stride[d], hi = lo + s->kernel[d]; /* both shifted by pad */
    hi = hi < s->pad[d] ? 0 : TTI_MIN(hi - s->pad[d], n);
    lo = lo < s->pad[d] ? 0 : lo - s->pad[d];
    return (range){TTI_MIN(lo, hi), hi};
}

static void read_pair(const tti_node *node, const char *name, size_t fallback_h, size_t fallback_w,
                      size_t out[2]) {
    const tti_attr *attr = tti_attr_get(node, name);
    out[0] = attr->n > 0 ? (size_t)attr->v[0] : fallback_h;
    out[1] = attr->n > 1 ? (size_t)attr->v[1] : attr->n > 0 ? out[0] : fallback_w;
}

static shape_2d read_shape(const tti_node *node, const tutti_value *x, const tutti_value *y) {
    const int64_t *xd = x->type.shape.dim, *yd = y->type.shape.dim;
    shape_2d s = {.n = (size_t)xd[0], .c = (size_t)xd[1], .last = tti_is_last(x)};
    for (int d = 0; d < 2; d++) {
        s.size[d] = (size_t)xd[2 + d];
        s.out[d] = (size_t)yd[2 + d];
    }
    s.adaptive = !tti_attr_has(node, "kernel");
    s.count_pad = tti_attr_has(node, "count_pad") && tti_attr_int(node, "count_pad") != 0;
    if (s.adaptive) return s;
    read_pair(node, "kernel", 1, 1, s.kernel);
    read_pair(node, "stride", s.kernel[0], s.kernel[1], s.stride);
    read_pair(node, "pad", 0, 0, s.pad);
    return s;
}

/* Values 4-D in one layout, floats f32. */
static bool can_run(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.shape.n_dims != 4) return false;
    return node->in[0]->type.dtype == TUTTI_F32 && node->out[0]->type.dtype == TUTTI_F32 &&
           tti_one_layout(node);
}

/* ---- max ---- */

/* The largest of a window and where, for 16 channels at x; NaN counts as the largest. */
static inline void max_16(const shape_2d *s, const float *x, const size_t o[2], float *y,
                          uint8_t *index) {
    range h = window(s, 0, o[0]), w = window(s, 1, o[1]);
    size_t skip_h = h.lo + s->pad[0] - o[0] * s->stride[0];
    size_t skip_w = w.lo + s->pad[1] - o[1] * s->stride[1];
    tti_v16 best = {0};
    tti_v16i where = {0}, fresh = {0};
    fresh = ~fresh;
    for (size_t i = h.lo; i < h.hi; i++) {
        int32_t at = (int32_t)((i - h.lo + skip_h) * s->kernel[1] + skip_w);
        const float *row = x + (i * s->size[1] + w.lo) * s->c;
        for (size_t j = w.lo; j < w.hi; j++, at++, row += s->c) {
            tti_v16 v = tti_load16(row);
            tti_v16i m = fresh | (tti_v16i)(v > best) | ((tti_v16i)(v != v) & (best == best));
            best = tti_select16(m, v, best);
            where = (m & at) | (~m & where);
            fresh = (tti_v16i){0};
        }
    }
    tti_store16(y, best);
    u8x16 bytes = __builtin_convertvector(where, u8x16);
    memcpy(index, &bytes, sizeof bytes);
}

/* The same for one channel, whose neighbours in a row are step apart. */
static inline void max_1(const shape_2d *s, const float *x, size_t step, const size_t o[2],
                         float *y, uint8_t *index) {
    range h = window(s, 0, o[0]), w = window(s, 1, o[1]);
    size_t skip_h = h.lo + s->pad[0] - o[0] * s->stride[0];
    size_t skip_w = w.lo + s->pad[1] - o[1] * s->stride[1];
    float best = 0.0f;
    size_t where = 0;
    bool fresh = true;
    for (size_t i = h.lo; i < h.hi; i++)
        for (size_t j = w.lo; j < w.hi; j++) {
            float v = x[(i * s->size[1] + j) * step];
            bool better = fresh | tti_is_larger(v, best);
            best = better ? v : best;
            where = better ? (i - h.lo + skip_h) * s->kernel[1] + (j - w.lo + skip_w) : where;
            fresh = false;
        }
    *y = best;
    *index = (uint8_t)where;
}

static void max_last(const shape_2d *s, const float *x, float *y, uint8_t *index) {
    size_t o[2];
    for (size_t n = 0; n < s->n; n++, x += s->size[0] * s->size[1] * s->c)
        for (o[0] = 0; o[0] < s->out[0]; o[0]++)
            for (o[1] = 0; o[1] < s->out[1]; o[1]++, y += s->c, index += s->c) {
                size_t c = 0;
                for (; c + TTI_LANES <= s->c; c += TTI_LANES) max_16(s, x + c, o, y + c, index + c);
                for (; c < s->c; c++) max_1(s, x + c, s->c, o, y + c, index + c);
            }
}

static void max_plain(const shape_2d *s, const float *x, float *y, uint8_t *index) {
    size_t o[2];
    for (size_t p = 0; p < s->n * s->c; p++, x += s->size[0] * s->size[1])
        for (o[0] = 0; o[0] < s->out[0]; o[0]++)
            for (o[1] = 0; o[1] < s->out[1]; o[1]++) max_1(s, x, 1, o, y++, index++);
}

static tutti_status max_run(void *state, const tti_kargs *a) {
    shape_2d s = read_shape(a->node, a->node->in[0], a->node->out[0]);
    (void)state;
    (s.last ? max_last : max_plain)(&s, a->in[0], a->out[0], a->out[1]);
    return TUTTI_OK;
}

/* ---- gradient of max: each dy goes to one place of its window ---- */

/* True if windows tile x without gap or overlap: then every place is written exactly once. */
static bool is_tiling(const shape_2d *s) {
    for (int d = 0; d < 2; d++)
        if (s->pad[d] || s->stride[d] != s->kernel[d] || s->out[d] * s->kernel[d] != s->size[d])
            return false;
    return true;
}

static inline __attribute__((always_inline)) void scatter_pixel(const shape_2d *s,
                                                                const size_t o[2], const float *dy,
                                                                const uint8_t *index, float *dx,
                                                                bool add) {
    range h = window(s, 0, o[0]), w = window(s, 1, o[1]);
    size_t skip_h = h.lo + s->pad[0] - o[0] * s->stride[0];
    size_t skip_w = w.lo + s->pad[1] - o[1] * s->stride[1];
    for (size_t i = h.lo; i < h.hi; i++) {
        size_t at = (i - h.lo + skip_h) * s->kernel[1] + skip_w;
        float *row = dx + (i * s->size[1] + w.lo) * s->c;
        for (size_t j = w.lo; j < w.hi; j++, at++, row += s->c) {
            size_t c = 0;
            for (; c + TTI_LANES <= s->c; c += TTI_LANES) {
                u8x16 bytes;
                memcpy(&bytes, index + c, sizeof bytes);
                tti_v16i m = __builtin_convertvector(bytes, tti_v16i) == (int32_t)at;
                tti_v16 v = (tti_v16)(m & (tti_v16i)tti_load16(dy + c));
                tti_store16(row + c, add ? tti_load16(row + c) + v : v);
            }
            for (; c < s->c; c++) {
                float v = index[c] == at ? dy[c] : 0.0f;
                row[c] = add ? row[c] + v : v;
            }
        }
    }
}

static void max_grad_last(const shape_2d *s, const float *dy, const uint8_t *index, float *dx) {
    bool tiling = is_tiling(s);
    size_t o[2], plane = s->size[0] * s->size[1] * s->c;
    if (!tiling) memset(dx, 0, s->n * plane * sizeof *dx);
    for (size_t n = 0; n < s->n; n++, dx += plane)
        for (o[0] = 0; o[0] < s->out[0]; o[0]++)
            for (o[1] = 0; o[1] < s->out[1]; o[1]++, dy += s->c, index += s->c) {
                if (tiling)
                    scatter_pixel(s, o, dy, index, dx, false);
                else
                    scatter_pixel(s, o, dy, index, dx, true);
            }
}

static void max_grad_plain(const shape_2d *s, const float *dy, const uint8_t *index, float *dx) {
    size_t plane = s->size[0] * s->size[1];
    memset(dx, 0, s->n * s->c * plane * sizeof *dx);
    for (size_t p = 0; p < s->n * s->c; p++, dx += plane)
        for (size_t i = 0; i < s->out[0]; i++)
            for (size_t j = 0; j < s->out[1]; j++, dy++, index++) {
                size_t h = i * s->stride[0] + *index / s->kernel[1] - s->pad[0];
                size_t w = j * s->stride[1] + *index % s->kernel[1] - s->pad[1];
                if (h < s->size[0] && w < s->size[1]) dx[h * s->size[1] + w] += *dy;
            }
}

static tutti_status max_grad_run(void *state, const tti_kargs *a) {
    shape_2d s = read_shape(a->node, a->node->out[0], a->node->in[0]);
    (void)state;
    (s.last ? max_grad_last : max_grad_plain)(&s, a->in[0], a->in[1], a->out[0]);
    return TUTTI_OK;
}

/* ---- adaptive max: places are those of a plane ---- */

/* The largest of a window of x, whose neighbours in a row are step apart. */
static void adaptive_max_1(const shape_2d *s, const float *x, size_t step, range h, range w,
                           float *y, int32_t *place) {
    size_t at = h.lo * s->size[1] + w.lo;
    float best = x[at * step];
    for (size_t i = h.lo; i < h.hi; i++)
        for (size_t j = i * s->size[1] + w.lo; j < i * s->size[1] + w.hi; j++) {
            bool better = tti_is_larger(x[j * step], best);
            best = better ? x[j * step] : best;
            at = better ? j : at;
        }
    *y = best;
    *place = (int32_t)at;
}

/* The same of whole rows of a plane, which follow each other in memory: first what it is, then
 * where it is. */
static void adaptive_max_rows(const float *x, size_t first, size_t end, float *y, int32_t *place) {
    float best = tti_max_n(x + first, end - first, x[first]);
    size_t at = first;
    if (best != best)
        while (x[at] == x[at]) at++;
    else
        while (x[at] != best) at++;
    *y = x[at];
    *place = (int32_t)at;
}

/* Element c of output pixel p lies at p * n_channels + c where channels are innermost, else
 * channels are planes. */
static tutti_status adaptive_max_run(void *state, const tti_kargs *a) {
    shape_2d s = read_shape(a->node, a->node->in[0], a->node->out[0]);
    size_t inner = s.last ? s.c : 1, planes = s.last ? s.n : s.n * s.c;
    const float *x = a->in[0];
    float *y = a->out[0];
    int32_t *places = a->out[1];
    (void)state;
    for (size_t p = 0; p < planes; p++, x += s.size[0] * s.size[1] * inner)
        for (size_t o = 0; o < s.out[0] * s.out[1]; o++, y += inner, places += inner) {
            range h = window(&s, 0, o / s.out[1]), w = window(&s, 1, o % s.out[1]);
            if (inner == 1 && w.hi - w.lo == s.size[1]) {
                adaptive_max_rows(x, h.lo * s.size[1], h.hi * s.size[1], y, places);
                continue;
            }
            for (size_t c = 0; c < inner; c++)
                adaptive_max_1(&s, x + c, inner, h, w, y + c, places + c);
        }
    return TUTTI_OK;
}

static tutti_status adaptive_max_grad_run(void *state, const tti_kargs *a) {
    shape_2d s = read_shape(a->node, a->node->out[0], a->node->in[0]);
    size_t inner = s.last ? s.c : 1, planes = s.last ? s.n : s.n * s.c;
    size_t n = s.size[0] * s.size[1];
    const float *dy = a->in[0];
    const int32_t *places = a->in[1];
    float *dx = a->out[0];
    (void)state;
    memset(dx, 0, tti_n_elems(a->node->out[0]) * sizeof *dx);
    for (size_t p = 0; p < planes; p++, dx += n * inner)
        for (size_t o = 0; o < s.out[0] * s.out[1]; o++, dy += inner, places += inner)
            for (size_t c = 0; c < inner; c++)
                if (places[c] >= 0 && (size_t)places[c] < n)
                    dx[(size_t)places[c] * inner + c] += dy[c];
    return TUTTI_OK;
}

/* ---- average ---- */

static float share(const shape_2d *s, range h, range w) {
    size_t n = s->count_pad ? s->kernel[0] * s->kernel[1] : (h.hi - h.lo) * (w.hi - w.lo);
    return n ? 1.0f / (float)n : 0.0f;
}

static void average_last(const shape_2d *s, const float *x, float *y) {
    for (size_t n = 0; n < s->n; n++, x += s->size[0] * s->size[1] * s->c)
        for (size_t p = 0; p < s->out[0] * s->out[1]; p++, y += s->c) {
            range h = window(s, 0, p / s->out[1]), w = window(s, 1, p % s->out[1]);
            float scale = share(s, h, w);
            memset(y, 0, s->c * sizeof *y);
            for (size_t i = h.lo; i < h.hi; i++)
                for (size_t j = w.lo; j < w.hi; j++) {
                    const float *from = x + (i * s->size[1] + j) * s->c;
                    TTI_IVDEP
                    for (size_t c = 0; c < s->c; c++) y[c] += from[c];
                }
            TTI_IVDEP
            for (size_t c = 0; c < s->c; c++) y[c] *= scale;
        }
}

static void average_plain(const shape_2d *s, const float *x, float *y) {
    for (size_t q = 0; q < s->n * s->c; q++, x += s->size[0] * s->size[1])
        for (size_t p = 0; p < s->out[0] * s->out[1]; p++) {
            range h = window(s, 0, p / s->out[1]), w = window(s, 1, p % s->out[1]);
            float sum = 0.0f;
            for (size_t i = h.lo; i < h.hi; i++) {
                const float *row = x + i * s->size[1];
                if (w.hi - w.lo >= TTI_LANES)
                    sum += tti_sum_n(row + w.lo, w.hi - w.lo);
                else
                    for (size_t j = w.lo; j < w.hi; j++) sum += row[j];
            }
            *y++ = sum * share(s, h, w);
        }
}

static tutti_status average_run(void *state, const tti_kargs *a) {
    shape_2d s = read_shape(a->node, a->node->in[0], a->node->out[0]);
    (void)state;
    (s.last ? average_last : average_plain)(&s, a->in[0], a->out[0]);
    return TUTTI_OK;
}

static void average_grad_last(const shape_2d *s, const float *dy, float *dx) {
    size_t plane = s->size[0] * s->size[1] * s->c;
    for (size_t n = 0; n < s->n; n++, dx += plane)
        for (size_t p = 0; p < s->out[0] * s->out[1]; p++, dy += s->c) {
            range h = window(s, 0, p / s->out[1]), w = window(s, 1, p % s->out[1]);
            float scale = share(s, h, w);
            for (size_t i = h.lo; i < h.hi; i++)
                for (size_t j = w.lo; j < w.hi; j++) {
                    float *to = dx + (i * s->size[1] + j) * s->c;
                    TTI_IVDEP
                    for (size_t c = 0; c < s->c; c++) to[c] += dy[c] * scale;
                }
        }
}

static void average_grad_plain(const shape_2d *s, const float *dy, float *dx) {
    for (size_t q = 0; q < s->n * s->c; q++, dx += s->size[0] * s->size[1])
        for (size_t p = 0; p < s->out[0] * s->out[1]; p++, dy++) {
            range h = window(s, 0, p / s->out[1]), w = window(s, 1, p % s->out[1]);
            float part = *dy * share(s, h, w);
            for (size_t i = h.lo; i < h.hi; i++)
                for (size_t j = w.lo; j < w.hi; j++) dx[i * s->size[1] + j] += part;
        }
}

static tutti_status average_grad_run(void *state, const tti_kargs *a) {
    shape_2d s = read_shape(a->node, a->node->out[0], a->node->in[0]);
    (void)state;
    memset(a->out[0], 0, tti_n_elems(a->node->out[0]) * sizeof(float));
    (s.last ? average_grad_last : average_grad_plain)(&s, a->in[0], a->out[0]);
    return TUTTI_OK;
}

#define ROW(op_name, run_fn) \
    { .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .run = run_fn }

extern const tti_kernel TTI_VARIANT(tti_kernels_pool)[];
const tti_kernel TTI_VARIANT(tti_kernels_pool)[] = {
    ROW("max_pool2d", max_run),
    ROW("max_pool2d_grad", max_grad_run),
    ROW("adaptive_max_pool2d", adaptive_max_run),
    ROW("adaptive_max_pool2d_grad", adaptive_max_grad_run),
    ROW("avg_pool2d", average_run),
    ROW("avg_pool2d_grad", average_grad_run),
    ROW("adaptive_avg_pool2d", average_run),
    ROW("adaptive_avg_pool2d_grad", average_grad_run),
    {0},
};

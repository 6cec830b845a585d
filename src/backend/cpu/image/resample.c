/* resample.c - upsampling, nearest and bilinear, with gradients; f32, both layouts.
 *
 * An output row reads two input rows with two weights, an output column two columns
 * (src/ops/image/resample.c); both lists are made once in every run, in scratch.  In N,H,W,C bytes
 * the loops run along the channels.  Gradients add in order of the output's rows and columns. */
#include "backend/cpu/simd.h"

typedef struct points {
    size_t first, second;
    float near, far; /* weights of first and second */
} points;

typedef struct planes {
    size_t n, c;
    size_t in[2], out[2]; /* of x and of y, whichever is the input */
    bool nearest, align, last;
} planes;

static planes read_planes(const tti_node *node, bool is_grad) {
    const tutti_value *x = is_grad ? node->out[0] : node->in[0];
    const tutti_value *y = is_grad ? node->in[0] : node->out[0];
    planes p = {.n = (size_t)x->type.shape.dim[0], .c = (size_t)x->type.shape.dim[1]};
    for (int d = 0; d < 2; d++) {
        p.in[d] = (size_t)x->type.shape.dim[2 + d];
        p.out[d] = (size_t)y->type.shape.dim[2 + d];
    }
    p.nearest = tti_attr_has(node, "scale");
    p.align = !p.nearest && tti_attr_int(node, "align") != 0;
    p.last = tti_is_last(x);
    return p;
}

static bool can_run(const tti_node *node) { return tti_all_f32(node) && tti_one_layout(node); }

static bool is_grad_op(const tti_node *node) {
    size_t n = strlen(node->op->name);
    return n > 5 && strcmp(node->op->name + n - 5, "_grad") == 0;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    planes p = read_planes(node, is_grad_op(node));
    (void)state;
    return (p.out[0] + p.out[1]) * sizeof(points);
}

static points points_of(const planes *p, int d, size_t at) {
    size_t n = p->in[d], m = p->out[d];
    double place;
    if (p->nearest) return (points){at * n / m, at * n / m, 1.0f, 0.0f};
    if (p->align)
        place = m > 1 ? (double)at * (double)(n - 1) / (double)(m - 1) : 0;
    else
        place = ((double)at + 0.5) * (double)n / (double)m - 0.5;
    if (place < 0) place = 0;
    size_t first = TTI_MIN((size_t)place, n - 1);
    double share = place - (double)first;
    return (points){first, TTI_MIN(first + 1, n - 1), (float)(1 - share), (float)share};
}

/* Lists of the rows, then of the columns. */
static const points *make_points(const planes *p, points *list) {
    for (size_t i = 0; i < p->out[0]; i++) list[i] = points_of(p, 0, i);
    for (size_t j = 0; j < p->out[1]; j++) list[p->out[0] + j] = points_of(p, 1, j);
    return list;
}

/* A run of n elements of y (1 in plain bytes) and its four inputs of x, with their weights. */
typedef struct corners {
    size_t at[4];
    float weight[4];
} corners;

static corners corners_of(const planes *p, points r, points c, size_t step) {
    size_t w = p->in[1];
    return (corners){{(r.first * w + c.first) * step, (r.first * w + c.second) * step,
                      (r.second * w + c.first) * step, (r.second * w + c.second) * step},
                     {r.near * c.near, r.near * c.far, r.far * c.near, r.far * c.far}};
}

static inline void gather(const float *x, const corners *k, size_t n, float *y) {
    const float *a = x + k->at[0], *b = x + k->at[1], *c = x + k->at[2], *d = x + k->at[3];
    float wa = k->weight[0], wb = k->weight[1], wc = k->weight[2], wd = k->weight[3];
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) y[i] = a[i] * wa + b[i] * wb + (c[i] * wc + d[i] * wd);
}

static inline void scatter(float *dx, const corners *k, size_t n, const float *dy) {
    for (int q = 0; q < 4; q++) {
        float *to = dx + k->at[q], weight = k->weight[q];
        if (weight == 0.0f) continue;
        TTI_IVDEP
        for (size_t i = 0; i < n; i++) to[i] += dy[i] * weight;
    }
}

static tutti_status forward_run(void *state, const tti_kargs *a) {
    planes p = read_planes(a->node, false);
    const points *rows = make_points(&p, a->scratch), *columns = rows + p.out[0];
    size_t step = p.last ? p.c : 1, n_planes = p.last ? p.n : p.n * p.c;
    const float *x = a->in[0];
    float *y = a->out[0];
    (void)state;
    for (size_t plane = 0; plane < n_planes; plane++, x += p.in[0] * p.in[1] * step)
        for (size_t i = 0; i < p.out[0]; i++)
            for (size_t j = 0; j < p.out[1]; j++, y += step) {
                corners k = corners_of(&p, rows[i], columns[j], step);
                if (p.nearest)
                    memcpy(y, x + k.at[0], step * sizeof *y);
                else
                    gather(x, &k, step, y);
            }
    return TUTTI_OK;
}

static tutti_status grad_run(void *state, const tti_kargs *a) {
    planes p = read_planes(a->node, true);
    const points *rows = make_points(&p, a->scratch), *columns = rows + p.out[0];
    size_t step = p.last ? p.c : 1, n_planes = p.last ? p.n : p.n * p.c;
    const float *dy = a->in[0];
    float *dx = a->out[0];
    (void)state;
    memset(dx, 0, tti_n_elems(a->node->out[0]) * sizeof *dx);
    for (size_t plane = 0; plane < n_planes; plane++, dx += p.in[0] * p.in[1] * step)
        for (size_t i = 0; i < p.out[0]; i++)
            for (size_t j = 0; j < p.out[1]; j++, dy += step) {
                corners k = corners_of(&p, rows[i], columns[j], step);
                scatter(dx, &k, step, dy);
            }
    return TUTTI_OK;
}

#define ROW(op_name, run_fn)                                                                     \
    {                                                                                            \
        .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .scratch_bytes = scratch_bytes, \
        .run = run_fn                                                                            \
    }

extern const tti_kernel TTI_VARIANT(tti_kernels_resample)[];
const tti_kernel TTI_VARIANT(tti_kernels_resample)[] = {
    ROW("upsample_nearest2d", forward_run),
    ROW("upsample_nearest2d_grad", grad_run),
    ROW("upsample_bilinear2d", forward_run),
    ROW("upsample_bilinear2d_grad", grad_run),
    {0},
};

/* pool.c - maximum and average over windows of a plane, and the adaptive forms of PyTorch.
 *
 * Maximum pooling also outputs the position of the maximum, so its gradient needs neither x nor y.
 * In every kernel the first maximum in row-major order wins and a NaN wins over numbers, so that
 * the gradient goes to the same element everywhere. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec max_attrs[] = {
    {"kernel", TTI_ATTR_INTS, 0, "[Kh, Kw], at most 255 elements"},
    {"stride", TTI_ATTR_INTS, 0, "empty: kernel"},
    {"pad", TTI_ATTR_INTS, 0, "empty: 0; at most half the kernel"},
    {0},
};
static const tti_attr_spec max_grad_attrs[] = {
    {"kernel", TTI_ATTR_INTS, 0, "[Kh, Kw]"},
    {"stride", TTI_ATTR_INTS, 0, "empty: kernel"},
    {"pad", TTI_ATTR_INTS, 0, "empty: 0"},
    {"in_hw", TTI_ATTR_INTS, 0, "[H, W] of x"},
    {0},
};
static const tti_attr_spec avg_attrs[] = {
    {"kernel", TTI_ATTR_INTS, 0, "[Kh, Kw]"},
    {"stride", TTI_ATTR_INTS, 0, "empty: kernel"},
    {"pad", TTI_ATTR_INTS, 0, "empty: 0; at most half the kernel"},
    {"count_pad", TTI_ATTR_INT, 1, "1: divide by the whole window, 0: by its elements inside x"},
    {0},
};
static const tti_attr_spec avg_grad_attrs[] = {
    {"kernel", TTI_ATTR_INTS, 0, "[Kh, Kw]"},   {"stride", TTI_ATTR_INTS, 0, "empty: kernel"},
    {"pad", TTI_ATTR_INTS, 0, "empty: 0"},      {"count_pad", TTI_ATTR_INT, 1, "as avg_pool2d"},
    {"in_hw", TTI_ATTR_INTS, 0, "[H, W] of x"}, {0},
};
static const tti_attr_spec adaptive_attrs[] = {{"out", TTI_ATTR_INTS, 0, "[P, Q] of y"}, {0}};
static const tti_attr_spec adaptive_grad_attrs[] = {{"in_hw", TTI_ATTR_INTS, 0, "[H, W] of x"},
                                                    {0}};

static const int64_t zeros[2] = {0, 0};

/* How the windows of one op lie in a plane.  kernel[0] == 0: adaptive windows. */
typedef struct pool_sizes {
    int64_t planes, in[2], out[2], kernel[2], stride[2], pad[2];
    bool count_pad;
} pool_sizes;

/* The elements of x that output element (p, q) looks at. */
typedef struct window {
    int64_t h0, h1, w0, w1; /* inside x */
    int64_t top, left;      /* where the window starts, also outside */
    double divisor;
} window;

static tutti_status read_pool(const tti_node *node, pool_sizes *s) {
    TTI_TRY(tti_get_pair(node, "kernel", 1, NULL, s->kernel));
    TTI_TRY(tti_get_pair(node, "stride", 1, s->kernel, s->stride));
    TTI_TRY(tti_get_pair(node, "pad", 0, zeros, s->pad));
    s->count_pad = !tti_attr_has(node, "count_pad") || tti_attr_int(node, "count_pad") != 0;
    for (int d = 0; d < 2; d++) {
        if (2 * s->pad[d] > s->kernel[d])
            return tti_node_fail(node, "pad %lld is more than half the kernel %lld",
                                 (long long)s->pad[d], (long long)s->kernel[d]);
        if (s->kernel[d] > s->in[d] + 2 * s->pad[d])
            return tti_node_fail(node, "kernel %lldx%lld does not fit an input of %lldx%lld",
                                 (long long)s->kernel[0], (long long)s->kernel[1],
                                 (long long)s->in[0], (long long)s->in[1]);
        s->out[d] = (s->in[d] + 2 * s->pad[d] - s->kernel[d]) / s->stride[d] + 1;
    }
    return TUTTI_OK;
}

/* Fills s for any op of this family; the op is known by its attributes. */
static tutti_status pool_sizes_of(const tti_node *node, pool_sizes *s) {
    bool is_grad = tti_attr_has(node, "in_hw"), adaptive = !tti_attr_has(node, "kernel");
    const tutti_shape *first = tti_in_shape(node, 0);
    *s = (pool_sizes){0};
    TTI_TRY(tti_need_n_dims(node, 0, 4));
    s->planes = first->dim[0] * first->dim[1];
    s->in[0] = first->dim[2], s->in[1] = first->dim[3];
    if (is_grad) TTI_TRY(tti_get_pair(node, "in_hw", 1, NULL, s->in));
    if (s->in[0] < 1 || s->in[1] < 1) /* a window would see nothing but padding */
        return tti_node_fail(node, "a plane of %lldx%lld is empty", (long long)s->in[0],
                             (long long)s->in[1]);
    if (!adaptive) TTI_TRY(read_pool(node, s));
    if (adaptive && !is_grad) TTI_TRY(tti_get_pair(node, "out", 1, NULL, s->out));
    if (!is_grad) return TUTTI_OK;
    if (adaptive) memcpy(s->out, &first->dim[2], sizeof s->out);
    if (s->out[0] != first->dim[2] || s->out[1] != first->dim[3])
        return tti_node_fail(node, "dy must have planes of %lldx%lld, has %lldx%lld",
                             (long long)s->out[0], (long long)s->out[1], (long long)first->dim[2],
                             (long long)first->dim[3]);
    return TUTTI_OK;
}

static window window_at(const pool_sizes *s, int64_t p, int64_t q) {
    int64_t at[2] = {p, q}, lo[2], hi[2];
    for (int d = 0; d < 2; d++) {
        if (s->kernel[0]) {
            lo[d] = at[d] * s->stride[d] - s->pad[d];
            hi[d] = lo[d] + s->kernel[d];
        } else { /* PyTorch's rule: windows may overlap by one */
            lo[d] = at[d] * s->in[d] / s->out[d];
            hi[d] = ((at[d] + 1) * s->in[d] + s->out[d] - 1) / s->out[d];
        }
    }
    window w = {TTI_MAX(lo[0], 0),
                TTI_MIN(hi[0], s->in[0]),
                TTI_MAX(lo[1], 0),
                TTI_MIN(hi[1], s->in[1]),
                lo[0],
                lo[1],
                0};
    int64_t inside = (w.h1 - w.h0) * (w.w1 - w.w0);
    w.divisor = (double)(s->kernel[0] && s->count_pad ? s->kernel[0] * s->kernel[1] : inside);
    return w;
}

/* ---- infer ---- */

/* [N,C] of input 0 with planes of hw. */
static tutti_shape with_plane(const tti_node *node, const int64_t hw[2]) {
    return TUTTI_SHAPE(tti_in_dim(node, 0, 0), tti_in_dim(node, 0, 1), hw[0], hw[1]);
}

static tutti_status pool_infer(const tti_node *node, tutti_type *out) {
    pool_sizes s;
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(pool_sizes_of(node, &s));
    bool is_grad = tti_attr_has(node, "in_hw");
    out[0] = (tutti_type){node->in[0]->type.dtype, with_plane(node, is_grad ? s.in : s.out)};
    return TUTTI_OK;
}

/* A window position must fit the byte of the index. */
static tutti_status max_pool2d_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(pool_infer(node, out));
    const tti_attr *kernel = tti_attr_get(node, "kernel");
    if (kernel->v[0] * kernel->v[1] > 255)
        return tti_node_fail(node, "kernel %lldx%lld has more than 255 elements",
                             (long long)kernel->v[0], (long long)kernel->v[1]);
    out[1] = (tutti_type){TUTTI_U8, out[0].shape};
    return TUTTI_OK;
}

static tutti_status adaptive_max_pool2d_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(pool_infer(node, out));
    if (tti_in_dim(node, 0, 2) * tti_in_dim(node, 0, 3) > INT32_MAX)
        return tti_node_fail(node, "a plane has more than 2^31 - 1 elements");
    out[1] = (tutti_type){TUTTI_I32, out[0].shape};
    return TUTTI_OK;
}

static tutti_status max_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_dtype(node, 1, tti_attr_has(node, "kernel") ? TUTTI_U8 : TUTTI_I32));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    return pool_infer(node, out);
}

/* ---- references ---- */

/* Calls visit for every output element with its window, its plane in x and its own index. */
typedef void (*visit_fn)(const tti_args *a, const pool_sizes *s, const window *w, size_t plane,
                         size_t y);

static void visit_windows(const tti_args *a, visit_fn visit) {
    pool_sizes s;
    TTI_ASSERT(pool_sizes_of(a->node, &s) == TUTTI_OK);
    size_t y = 0, plane_elems = (size_t)(s.in[0] * s.in[1]);
    for (size_t plane = 0; plane < (size_t)s.planes; plane++)
        for (int64_t p = 0; p < s.out[0]; p++)
            for (int64_t q = 0; q < s.out[1]; q++) {
                window w = window_at(&s, p, q);
                visit(a, &s, &w, plane * plane_elems, y++);
            }
}

static void visit_max(const tti_args *a, const pool_sizes *s, const window *w, size_t plane,
                      size_t y) {
    const double *x = a->in[0] + plane;
    int64_t best_h = w->h0, best_w = w->w0;
    double best = x[best_h * s->in[1] + best_w];
    for (int64_t h = w->h0; h < w->h1; h++)
        for (int64_t v = w->w0; v < w->w1; v++) {
            double now = x[h * s->in[1] + v];
            if (now > best || (isnan(now) && !isnan(best))) best = now, best_h = h, best_w = v;
        }
    bool adaptive = s->kernel[0] == 0;
    a->out[0][y] = best;
    a->out[1][y] = adaptive ? (double)(best_h * s->in[1] + best_w)
                            : (double)((best_h - w->top) * s->kernel[1] + best_w - w->left);
}

/* An index from outside that points beyond x is dropped. */
static void visit_max_grad(const tti_args *a, const pool_sizes *s, const window *w, size_t plane,
                           size_t y) {
    int64_t index = (int64_t)a->in[1][y], h, v;
    if (s->kernel[0])
        h = w->top + index / s->kernel[1], v = w->left + index % s->kernel[1];
    else
        h = index / s->in[1], v = index % s->in[1];
    if (h < 0 || h >= s->in[0] || v < 0 || v >= s->in[1]) return;
    a->out[0][plane + (size_t)(h * s->in[1] + v)] += a->in[0][y];
}

static void visit_avg(const tti_args *a, const pool_sizes *s, const window *w, size_t plane,
                      size_t y) {
    double sum = 0;
    for (int64_t h = w->h0; h < w->h1; h++)
        for (int64_t v = w->w0; v < w->w1; v++) sum += a->in[0][plane + (size_t)(h * s->in[1] + v)];
    a->out[0][y] = sum / w->divisor;
}

static void visit_avg_grad(const tti_args *a, const pool_sizes *s, const window *w, size_t plane,
                           size_t y) {
    for (int64_t h = w->h0; h < w->h1; h++)
        for (int64_t v = w->w0; v < w->w1; v++)
            a->out[0][plane + (size_t)(h * s->in[1] + v)] += a->in[0][y] / w->divisor;
}

static void max_reference(const tti_args *a) { visit_windows(a, visit_max); }

static void max_grad_reference(const tti_args *a) {
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    visit_windows(a, visit_max_grad);
}

static void avg_reference(const tti_args *a) { visit_windows(a, visit_avg); }

static void avg_grad_reference(const tti_args *a) {
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    visit_windows(a, visit_avg_grad);
}

/* ---- gradients ---- */

/* OP_grad(dy, index?) with the attributes of node that it has, and in_hw. */
static tutti_status pool_grad(tutti_graph *g, const tti_node *node, const char *op, tutti_value *dy,
                              tutti_value **dx) {
    static const char *const shared[] = {"kernel", "stride", "pad", "count_pad"};
    tti_attr_arg attrs[6] = {TTI_INTS("in_hw", 2, &tti_in_shape(node, 0)->dim[2])};
    int n = 1;
    for (size_t i = 0; i < TTI_COUNT(shared); i++)
        if (tti_attr_has(node, shared[i])) attrs[n++] = tti_same_attr(node, shared[i]);
    *dx = tti_grad_emit(g, node, op, (tutti_value *[]){dy, node->out[1]}, node->op->n_out, attrs);
    return tutti_graph_check(g);
}

static tutti_status max_pool2d_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                    const bool *need, tutti_value **dx) {
    return need[0] && dy[0] ? pool_grad(g, node, "max_pool2d_grad", dy[0], &dx[0]) : TUTTI_OK;
}

static tutti_status avg_pool2d_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                    const bool *need, tutti_value **dx) {
    return need[0] ? pool_grad(g, node, "avg_pool2d_grad", dy[0], &dx[0]) : TUTTI_OK;
}

static tutti_status adaptive_avg_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                      const bool *need, tutti_value **dx) {
    return need[0] ? pool_grad(g, node, "adaptive_avg_pool2d_grad", dy[0], &dx[0]) : TUTTI_OK;
}

static tutti_status adaptive_max_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                      const bool *need, tutti_value **dx) {
    if (!need[0] || !dy[0]) return TUTTI_OK;
    return pool_grad(g, node, "adaptive_max_pool2d_grad", dy[0], &dx[0]);
}

/* ---- shard and cost ---- */

/* Averages are linear: a term of a sum stays one. */
static tutti_status avg_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    if (in[0].kind != TTI_PARTIAL) return tti_shard_planes(node, in, out);
    out[0] = in[0];
    return TUTTI_OK;
}

static void pool_cost(const tti_node *node, tti_cost *cost) {
    pool_sizes s;
    TTI_ASSERT(pool_sizes_of(node, &s) == TUTTI_OK);
    double window_elems = s.kernel[0] ? (double)(s.kernel[0] * s.kernel[1])
                                      : (double)s.in[0] * (double)s.in[1] /
                                            fmax(1, (double)s.out[0] * (double)s.out[1]);
    tti_cost_flops(node, (double)(s.planes * s.out[0] * s.out[1]) * window_elems, cost);
}

/* ---- builders ---- */

/* The window attributes of a desc, ended by {0}; false after a failure. */
static bool pool_window(tutti_graph *g, const char *op, const tutti_pool2d_desc *desc,
                        tti_attr_arg attrs[5]) {
    if (!desc) {
        tti_build_fail(g, "%s: desc is NULL", op);
        return false;
    }
    int64_t kernel[2] = {desc->kernel_h ? desc->kernel_h : desc->kernel,
                         desc->kernel_w ? desc->kernel_w : desc->kernel};
    attrs[0] = TTI_INTS("kernel", 2, kernel);
    attrs[1] = TTI_INTS("stride", desc->stride ? 2 : 0, (int64_t[]){desc->stride, desc->stride});
    attrs[2] = TTI_INTS("pad", 2, (int64_t[]){desc->pad, desc->pad});
    attrs[3] = attrs[4] = (tti_attr_arg){0};
    return true;
}

tutti_value *tutti_max_pool2d_with(tutti_graph *g, tutti_value *x, const tutti_pool2d_desc *desc) {
    tti_attr_arg attrs[5];
    if (!pool_window(g, "max_pool2d", desc, attrs)) return NULL;
    return tti_build1(g, "max_pool2d", x, attrs);
}

tutti_value *tutti_max_pool2d(tutti_graph *g, tutti_value *x, int64_t kernel) {
    return tutti_max_pool2d_with(g, x, &(tutti_pool2d_desc){.kernel = kernel});
}

tutti_value *tutti_avg_pool2d_with(tutti_graph *g, tutti_value *x, const tutti_pool2d_desc *desc) {
    tti_attr_arg attrs[5];
    if (!pool_window(g, "avg_pool2d", desc, attrs)) return NULL;
    attrs[3] = TTI_INT("count_pad", !desc->exclude_pad);
    return tti_build1(g, "avg_pool2d", x, attrs);
}

tutti_value *tutti_avg_pool2d(tutti_graph *g, tutti_value *x, int64_t kernel) {
    return tutti_avg_pool2d_with(g, x, &(tutti_pool2d_desc){.kernel = kernel});
}

static tutti_value *build_adaptive(tutti_graph *g, const char *op, tutti_value *x, int64_t out_h,
                                   int64_t out_w) {
    return tti_build1(g, op, x,
                      (tti_attr_arg[]){TTI_INTS("out", 2, (int64_t[]){out_h, out_w}), {0}});
}

tutti_value *tutti_adaptive_avg_pool2d(tutti_graph *g, tutti_value *x, int64_t out_h,
                                       int64_t out_w) {
    return build_adaptive(g, "adaptive_avg_pool2d", x, out_h, out_w);
}

tutti_value *tutti_adaptive_max_pool2d(tutti_graph *g, tutti_value *x, int64_t out_h,
                                       int64_t out_w) {
    return build_adaptive(g, "adaptive_max_pool2d", x, out_h, out_w);
}

/* ---- records ---- */

static const tti_sample max_samples[] = {
    {.in = "f32[2,4,6,4]", .attrs = "kernel=[2,2]"},
    {.in = "f32[2,3,7,5]", .attrs = "kernel=[3,2] stride=[2,1] pad=[1,1]"},
    {.in = "f32[2,2,5,5]", .attrs = "kernel=[3,3] stride=[1,1] pad=[1,1]"},
    {.in = "f64[1,1,1,1]", .attrs = "kernel=[1,1]"},
    {.in = "f32[0,4,6,4]", .attrs = "kernel=[2,2]"},
    {.in = "f32[1,1,15,17]", .attrs = "kernel=[15,17]"},
    {.in = "f32[1,1,16,16]", .attrs = "kernel=[16,16]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6,4]", .attrs = "kernel=[2,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,0,4]", .attrs = "kernel=[2,2] pad=[1,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6,4]", .attrs = "kernel=[2,2] pad=[2,2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6,4]", .attrs = "kernel=[2,2] stride=[0,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6,4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6,4]", .attrs = "kernel=[2,2]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample max_grad_samples[] = {
    {.in = "f32[2,4,3,2] u8[2,4,3,2]", .attrs = "kernel=[2,2] in_hw=[6,4]", .int_hi = 3},
    {.in = "f32[2,3,4,6] u8[2,3,4,6]",
     .attrs = "kernel=[3,2] stride=[2,1] pad=[1,1] in_hw=[7,5]",
     .int_lo = 3,
     .int_hi = 3},
    {.in = "f32[0,4,3,2] u8[0,4,3,2]", .attrs = "kernel=[2,2] in_hw=[6,4]"},
    {.in = "f32[2,4,3,2] u8[2,4,3,3]",
     .attrs = "kernel=[2,2] in_hw=[6,4]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2] i32[2,4,3,2]",
     .attrs = "kernel=[2,2] in_hw=[6,4]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2] u8[2,4,3,2]",
     .attrs = "kernel=[2,2] in_hw=[9,4]",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample avg_samples[] = {
    {.in = "f32[2,4,6,4]", .attrs = "kernel=[2,2]"},
    {.in = "f32[2,3,7,5]", .attrs = "kernel=[3,2] stride=[2,1] pad=[1,1]"},
    {.in = "f32[2,2,5,5]", .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1] count_pad=0"},
    {.in = "f32[0,4,6,4]", .attrs = "kernel=[2,2]"},
    {.in = "f32[2,4,6,4]", .attrs = "kernel=[7,2]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample avg_grad_samples[] = {
    {.in = "f32[2,4,3,2]", .attrs = "kernel=[2,2] in_hw=[6,4]"},
    {.in = "f32[2,2,3,3]", .attrs = "kernel=[3,3] stride=[2,2] pad=[1,1] count_pad=0 in_hw=[5,5]"},
    {.in = "f32[0,4,3,2]", .attrs = "kernel=[2,2] in_hw=[6,4]"},
    {.in = "f32[2,4,3,2]", .attrs = "kernel=[2,2] in_hw=[6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample adaptive_samples[] = {
    {.in = "f32[2,4,6,4]", .attrs = "out=[1,1]"},
    {.in = "f32[2,2,7,5]", .attrs = "out=[3,2]"},
    {.in = "f32[1,2,2,3]", .attrs = "out=[4,3]"}, /* larger than x */
    {.in = "f32[0,4,6,4]", .attrs = "out=[2,2]"},
    {.in = "f32[2,4,6,4]", .attrs = "out=[0,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,0,4]", .attrs = "out=[1,1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample adaptive_avg_grad_samples[] = {
    {.in = "f32[2,4,1,1]", .attrs = "in_hw=[6,4]"},
    {.in = "f32[2,2,3,2]", .attrs = "in_hw=[7,5]"},
    {.in = "f32[0,4,1,1]", .attrs = "in_hw=[6,4]"},
    {.in = "f32[2,4,1,1]", .attrs = "in_hw=[0,4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample adaptive_max_grad_samples[] = {
    {.in = "f32[2,4,1,1] i32[2,4,1,1]", .attrs = "in_hw=[6,4]", .int_hi = 23},
    {.in = "f32[2,2,3,2] i32[2,2,3,2]", .attrs = "in_hw=[7,5]", .int_hi = 34},
    {.in = "f32[0,4,1,1] i32[0,4,1,1]", .attrs = "in_hw=[6,4]"},
    {.in = "f32[2,4,1,1] u8[2,4,1,1]", .attrs = "in_hw=[6,4]", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of this family's records. */
#define POOL(n, outs) .n_in_min = n, .n_in_max = n, .n_out = outs, .cost = pool_cost

const tti_op tti_ops_pool[] = {
    {.name = "max_pool2d",
     .doc = "y, index = maximum of each window and its index in it",
     POOL(1, 2),
     .traits = TTI_CHANNELS_LAST | TTI_FOLLOWS,
     .attrs = max_attrs,
     .infer = max_pool2d_infer,
     .grad = max_pool2d_grad,
     .shard = tti_shard_planes,
     .reference = max_reference,
     .samples = max_samples},
    {.name = "max_pool2d_grad",
     .doc = "dx of max_pool2d for dy, index",
     POOL(2, 1),
     .traits = TTI_CHANNELS_LAST,
     .attrs = max_grad_attrs,
     .infer = max_grad_infer,
     .shard = tti_shard_planes,
     .reference = max_grad_reference,
     .samples = max_grad_samples},
    {.name = "avg_pool2d",
     .doc = "y = mean of each window, zeros outside x",
     POOL(1, 1),
     .traits = TTI_CHANNELS_LAST,
     .attrs = avg_attrs,
     .infer = pool_infer,
     .grad = avg_pool2d_grad,
     .shard = avg_shard,
     .reference = avg_reference,
     .samples = avg_samples},
    {.name = "avg_pool2d_grad",
     .doc = "dx of avg_pool2d for dy",
     POOL(1, 1),
     .traits = TTI_CHANNELS_LAST,
     .attrs = avg_grad_attrs,
     .infer = pool_infer,
     .shard = avg_shard,
     .reference = avg_grad_reference,
     .samples = avg_grad_samples},
    {.name = "adaptive_avg_pool2d",
     .doc = "y[P,Q] = mean over rows floor(pH/P) .. ceil((p+1)H/P)-1, columns likewise",
     POOL(1, 1),
     .traits = TTI_CHANNELS_LAST | TTI_FOLLOWS, /* sums in f32 all the same */
     .attrs = adaptive_attrs,
     .infer = pool_infer,
     .grad = adaptive_avg_grad,
     .shard = avg_shard,
     .reference = avg_reference,
     .samples = adaptive_samples},
    {.name = "adaptive_avg_pool2d_grad",
     .doc = "dx of adaptive_avg_pool2d for dy",
     POOL(1, 1),
     .traits = TTI_CHANNELS_LAST,
     .attrs = adaptive_grad_attrs,
     .infer = pool_infer,
     .shard = avg_shard,
     .reference = avg_grad_reference,
     .samples = adaptive_avg_grad_samples},
    {.name = "adaptive_max_pool2d",
     .doc = "y, index = maximum of each window, h W + w of it",
     POOL(1, 2),
     .traits = TTI_CHANNELS_LAST | TTI_FOLLOWS,
     .attrs = adaptive_attrs,
     .infer = adaptive_max_pool2d_infer,
     .grad = adaptive_max_grad,
     .shard = tti_shard_planes,
     .reference = max_reference,
     .samples = adaptive_samples},
    {.name = "adaptive_max_pool2d_grad",
     .doc = "dx of adaptive_max_pool2d for dy, index",
     POOL(2, 1),
     .traits = TTI_CHANNELS_LAST,
     .attrs = adaptive_grad_attrs,
     .infer = max_grad_infer,
     .shard = tti_shard_planes,
     .reference = max_grad_reference,
     .samples = adaptive_max_grad_samples},
    {0},
};

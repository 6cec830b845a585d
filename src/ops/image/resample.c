/* resample.c - enlarges planes by repeating elements, or by linear interpolation.
 *
 * Both are linear in x, so a gradient adds with the same weights in the other direction.  An output
 * row (or column) reads two input rows with two weights; nearest has one weight of 0.  Positions
 * are PyTorch's: the edges of the planes coincide, or with align the centres of the corners. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec nearest_attrs[] = {{"scale", TTI_ATTR_INTS, 0, "[rows, columns], >= 1"},
                                              {0}};
static const tti_attr_spec bilinear_attrs[] = {
    {"out", TTI_ATTR_INTS, 0, "[P, Q] of y"},
    {"align", TTI_ATTR_INT, 0, "1: the corners of both planes coincide"},
    {0},
};
static const tti_attr_spec bilinear_grad_attrs[] = {
    {"in_hw", TTI_ATTR_INTS, 0, "[H, W] of x"},
    {"align", TTI_ATTR_INT, 0, "as upsample_bilinear2d"},
    {0},
};

/* Planes of in and out; of x and y, whichever is the op's input. */
typedef struct planes {
    size_t n;
    int64_t in[2], out[2];
    bool nearest, align;
} planes;

/* The planes of any op here; the op is recognized by its attributes and, nearest, by is_grad. */
static tutti_status read_planes(const tti_node *node, bool is_grad, planes *p) {
    const tutti_shape *x = tti_in_shape(node, 0);
    int64_t scale[2], *here = is_grad ? p->out : p->in, *there = is_grad ? p->in : p->out;
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 4));
    p->n = (size_t)(x->dim[0] * x->dim[1]);
    p->nearest = tti_attr_has(node, "scale");
    p->align = !p->nearest && tti_attr_int(node, "align") != 0;
    for (int d = 0; d < 2; d++) here[d] = x->dim[2 + d];
    if (!p->nearest && (tti_attr_int(node, "align") & ~(int64_t)1))
        return tti_node_fail(node, "align must be 0 or 1");
    if (!p->nearest) TTI_TRY(tti_get_pair(node, is_grad ? "in_hw" : "out", 1, NULL, there));
    if (p->nearest) TTI_TRY(tti_get_pair(node, "scale", 1, NULL, scale));
    for (int d = 0; d < 2; d++) {
        if (p->nearest && is_grad && here[d] % scale[d])
            return tti_node_fail(node, "scale %lld does not divide %lld", (long long)scale[d],
                                 (long long)here[d]);
        if (p->nearest) there[d] = is_grad ? here[d] / scale[d] : here[d] * scale[d];
        if (p->in[d] < 1 || p->in[d] > 1 << 24 || p->out[d] < 1 || p->out[d] > 1 << 24)
            return tti_node_fail(node, "planes of %lld and %lld must be 1 .. %d",
                                 (long long)p->in[d], (long long)p->out[d], 1 << 24);
    }
    return TUTTI_OK;
}

static tutti_status resample_infer(const tti_node *node, bool is_grad, tutti_type *out) {
    planes p = {0};
    TTI_TRY(read_planes(node, is_grad, &p));
    const int64_t *to = is_grad ? p.in : p.out;
    out[0] =
        (tutti_type){node->in[0]->type.dtype,
                     TUTTI_SHAPE(tti_in_dim(node, 0, 0), tti_in_dim(node, 0, 1), to[0], to[1])};
    return TUTTI_OK;
}

static tutti_status forward_infer(const tti_node *node, tutti_type *out) {
    return resample_infer(node, false, out);
}
static tutti_status grad_infer(const tti_node *node, tutti_type *out) {
    return resample_infer(node, true, out);
}

/* Output row (d = 0) or column (d = 1) `at` is first (1 - share) + second share. */
typedef struct two_points {
    size_t first, second;
    double share;
} two_points;

static two_points points_of(const planes *p, int d, int64_t at) {
    int64_t n = p->in[d], m = p->out[d];
    double place;
    if (p->nearest) return (two_points){(size_t)(at * n / m), (size_t)(at * n / m), 0};
    if (p->align)
        place = m > 1 ? (double)at * (double)(n - 1) / (double)(m - 1) : 0;
    else
        place = fmax(((double)at + 0.5) * (double)n / (double)m - 0.5, 0);
    int64_t first = TTI_MIN((int64_t)place, n - 1);
    return (two_points){(size_t)first, (size_t)TTI_MIN(first + 1, n - 1), place - (double)first};
}

/* Called with the four elements of x for each element of y, and their weights. */
typedef struct corner {
    size_t x, y;
    double weight;
} corner;
typedef void (*corner_fn)(const tti_args *a, corner c);

static void each_corner(const tti_args *a, bool is_grad, corner_fn fn) {
    planes p = {0};
    TTI_ASSERT(read_planes(a->node, is_grad, &p) == TUTTI_OK);
    size_t in_w = (size_t)p.in[1], in_elems = (size_t)p.in[0] * in_w, y = 0;
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    for (size_t plane = 0; plane < p.n; plane++)
        for (int64_t i = 0; i < p.out[0]; i++)
            for (int64_t j = 0; j < p.out[1]; j++, y++) {
                two_points r = points_of(&p, 0, i), c = points_of(&p, 1, j);
                size_t top = plane * in_elems + r.first * in_w;
                size_t low = plane * in_elems + r.second * in_w;
                fn(a, (corner){top + c.first, y, (1 - r.share) * (1 - c.share)});
                fn(a, (corner){top + c.second, y, (1 - r.share) * c.share});
                fn(a, (corner){low + c.first, y, r.share * (1 - c.share)});
                fn(a, (corner){low + c.second, y, r.share * c.share});
            }
}

static void gather_corner(const tti_args *a, corner c) {
    if (c.weight != 0) a->out[0][c.y] += c.weight * a->in[0][c.x];
}
static void scatter_corner(const tti_args *a, corner c) {
    if (c.weight != 0) a->out[0][c.x] += c.weight * a->in[0][c.y];
}

static void forward_reference(const tti_args *a) { each_corner(a, false, gather_corner); }
static void grad_reference(const tti_args *a) { each_corner(a, true, scatter_corner); }

static tutti_status nearest_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {tti_same_attr(node, "scale"), {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "upsample_nearest2d_grad", dy, 1, attrs);
    return tutti_graph_check(g);
}

static tutti_status bilinear_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                  const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {
        TTI_INTS("in_hw", 2, &tti_in_shape(node, 0)->dim[2]), tti_same_attr(node, "align"), {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "upsample_bilinear2d_grad", dy, 1, attrs);
    return tutti_graph_check(g);
}

/* Planes stay whole; a term of a sum stays one. */
static tutti_status resample_shard(const tti_node *node, const tti_placement *in,
                                   tti_placement *out) {
    if (in[0].kind != TTI_PARTIAL) return tti_shard_planes(node, in, out);
    out[0] = in[0];
    return TUTTI_OK;
}

static void bilinear_cost(const tti_node *node, tti_cost *cost) {
    double n = (double)TTI_MAX(tti_in_n(node, 0), tti_out_n(node, 0));
    tti_cost_flops(node, 8 * n, cost);
}

/* ---- builders ---- */

tutti_value *tutti_upsample_nearest2d(tutti_graph *g, tutti_value *x, int64_t scale) {
    return tti_build1(g, "upsample_nearest2d", x,
                      (tti_attr_arg[]){TTI_INTS("scale", 2, (int64_t[]){scale, scale}), {0}});
}

tutti_value *tutti_upsample_bilinear2d(tutti_graph *g, tutti_value *x, int64_t out_h, int64_t out_w,
                                       bool align_corners) {
    return tti_build1(
        g, "upsample_bilinear2d", x,
        (tti_attr_arg[]){
            TTI_INTS("out", 2, (int64_t[]){out_h, out_w}), TTI_INT("align", align_corners), {0}});
}

/* ---- records ---- */

static const tti_sample nearest_samples[] = {
    {.in = "f32[2,4,3,2]", .attrs = "scale=[2,2]"},
    {.in = "f32[1,2,2,5]", .attrs = "scale=[3,1]"},
    {.in = "bf16[1,1,1,1]", .attrs = "scale=[1,2]"},
    {.in = "f32[0,2,2,2]", .attrs = "scale=[2,2]"},
    {.in = "f32[2,4,3,2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2]", .attrs = "scale=[0,2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3]", .attrs = "scale=[2,2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,0,2]", .attrs = "scale=[2,2]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample nearest_grad_samples[] = {
    {.in = "f32[2,4,6,4]", .attrs = "scale=[2,2]"},
    {.in = "f32[1,2,6,5]", .attrs = "scale=[3,1]"},
    {.in = "f32[1,2,5,4]", .attrs = "scale=[2,2]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bilinear_samples[] = {
    {.in = "f32[2,4,3,2]", .attrs = "out=[6,4]"},
    {.in = "f32[1,2,3,4]", .attrs = "out=[7,5] align=1"},
    {.in = "f32[1,2,5,4]", .attrs = "out=[2,1]"}, /* smaller, too */
    {.in = "f32[1,1,1,1]", .attrs = "out=[1,3] align=1"},
    {.in = "f32[0,2,2,2]", .attrs = "out=[4,4]"},
    {.in = "f32[2,4,3,2]", .attrs = "out=[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2]", .attrs = "out=[0,4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2]", .attrs = "out=[6,4] align=2", .expect = TUTTI_E_INVALID},
    {.in = "i32[2,4,3,2]", .attrs = "out=[6,4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bilinear_grad_samples[] = {
    {.in = "f32[2,4,6,4]", .attrs = "in_hw=[3,2]"},
    {.in = "f32[1,2,7,5]", .attrs = "in_hw=[3,4] align=1"},
    {.in = "f32[1,2,7,5]", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of the records. */
#define RESAMPLE .n_in_min = 1, .n_in_max = 1, .n_out = 1, .shard = resample_shard

const tti_op tti_ops_resample[] = {
    {RESAMPLE, .name = "upsample_nearest2d", .doc = "y[..,p,q] = x[..,p / scale,q / scale]",
     .attrs = nearest_attrs, .traits = TTI_CHANNELS_LAST | TTI_FOLLOWS, .infer = forward_infer,
     .grad = nearest_grad, .cost = tti_cost_move, .reference = forward_reference,
     .samples = nearest_samples},
    {RESAMPLE, .name = "upsample_nearest2d_grad",
     .doc = "dx = dy summed over the repeated elements", .attrs = nearest_attrs,
     .traits = TTI_CHANNELS_LAST, .infer = grad_infer, .cost = tti_cost_elementwise,
     .reference = grad_reference, .samples = nearest_grad_samples},
    {RESAMPLE, .name = "upsample_bilinear2d",
     .doc = "y[..,P,Q] by linear interpolation between elements of x", .attrs = bilinear_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_FOLLOWS, .infer = forward_infer, .grad = bilinear_grad,
     .cost = bilinear_cost, .reference = forward_reference, .samples = bilinear_samples},
    {RESAMPLE, .name = "upsample_bilinear2d_grad",
     .doc = "dx = dy times the weights of the interpolation", .attrs = bilinear_grad_attrs,
     .traits = TTI_CHANNELS_LAST, .infer = grad_infer, .cost = bilinear_cost,
     .reference = grad_reference, .samples = bilinear_grad_samples},
    {0},
};

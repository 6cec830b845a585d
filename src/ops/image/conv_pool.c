/* conv_pool.c - a 3x3 convolution with bias, relu and 2x2 pooling in one op, and its gradients.
 *
 *   y[n,o,p,q] = max over windows of 2x2 of relu(conv2d(x, w) + b), stride 1, padding 1
 *
 * "where" is the index of y in its window (0 .. 3 in row-major order, the first maximum; a NaN wins
 * over numbers), or 4 if y is not above 0 and gets no gradient.  The gradient dp has a quarter of
 * dy's size, and the ops compute dy from it while they read; dy itself is never stored.  Only the
 * pass fuse_pool.c makes these ops, after autodiff. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"

enum { NOWHERE = 4, MAX_SIDE = 1 << 24 };

/* x[n,c,h,w], y[n,o,h/2,w/2]. */
typedef struct sizes {
    int64_t n, c, h, w, o;
} sizes;

/* ---- infer ---- */

static tutti_status need_even(const tti_node *node, const sizes *s) {
    if (s->h % 2 == 0 && s->w % 2 == 0) return TUTTI_OK;
    return tti_node_fail(node, "planes of %lldx%lld do not divide into windows of 2x2",
                         (long long)s->h, (long long)s->w);
}

/* Input i is a weight [o,c,3,3]. */
static tutti_status need_weight(const tti_node *node, int i, const sizes *s) {
    const tutti_shape *w = tti_in_shape(node, i);
    if (w->n_dims == 4 && w->dim[0] == s->o && w->dim[1] == s->c && w->dim[2] == 3 &&
        w->dim[3] == 3)
        return TUTTI_OK;
    return tti_node_fail(node, "the weight must be [%lld,%lld,3,3]", (long long)s->o,
                         (long long)s->c);
}

static tutti_status forward_sizes(const tti_node *node, sizes *s) {
    TTI_TRY(tti_need_n_dims(node, 0, 4));
    TTI_TRY(tti_need_n_dims(node, 2, 1));
    const int64_t *x = tti_in_shape(node, 0)->dim;
    *s = (sizes){x[0], x[1], x[2], x[3], tti_in_dim(node, 2, 0)};
    TTI_TRY(need_weight(node, 1, s));
    return need_even(node, s);
}

/* in: dp, where, w or x. */
static tutti_status grad_sizes(const tti_node *node, sizes *s) {
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_U8));
    for (int i = 0; i < 3; i++) TTI_TRY(tti_need_n_dims(node, i, 4));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    const int64_t *dp = tti_in_shape(node, 0)->dim;
    if (dp[2] > MAX_SIDE || dp[3] > MAX_SIDE)
        return tti_node_fail(node, "planes of %lldx%lld are too large", (long long)dp[2],
                             (long long)dp[3]);
    *s = (sizes){dp[0], tti_in_dim(node, 2, 1), 2 * dp[2], 2 * dp[3], dp[1]};
    if (node->in[0]->type.dtype != node->in[2]->type.dtype ||
        !tti_is_float(node->in[0]->type.dtype))
        return tti_node_fail(node, "dp and input 2 must be floating and of one type");
    return TUTTI_OK;
}

static tutti_status forward_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(tti_need_floats(node, 0, 3));
    TTI_TRY(forward_sizes(node, &s));
    out[0] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.n, s.o, s.h / 2, s.w / 2)};
    out[1] = (tutti_type){TUTTI_U8, out[0].shape};
    return TUTTI_OK;
}

static tutti_status grad_x_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(grad_sizes(node, &s));
    TTI_TRY(need_weight(node, 2, &s));
    out[0] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.n, s.c, s.h, s.w)};
    return TUTTI_OK;
}

static tutti_status grad_w_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(grad_sizes(node, &s));
    const int64_t *x = tti_in_shape(node, 2)->dim;
    if (x[0] != s.n || x[2] != s.h || x[3] != s.w)
        return tti_node_fail(node, "x must be [%lld,C,%lld,%lld]", (long long)s.n, (long long)s.h,
                             (long long)s.w);
    out[0] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.o, s.c, 3, 3)};
    out[1] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.o)};
    return TUTTI_OK;
}

/* ---- references ---- */

static size_t plane_at(int64_t n_channels, const int64_t at[2], int64_t h, int64_t w) {
    return (size_t)((at[0] * n_channels + at[1]) * h * w);
}

/* Element (p, q) of a plane of x in front of tap (i, j); false: a zero around it. */
static bool tap_of(const sizes *s, const int64_t pq[2], int tap, size_t *element) {
    int64_t h = pq[0] + tap / 3 - 1, v = pq[1] + tap % 3 - 1;
    *element = (size_t)(h * s->w + v);
    return h >= 0 && h < s->h && v >= 0 && v < s->w;
}

/* relu(conv2d(x, w) + b) at (p, q) of channel at[1] of sample at[0]. */
static double one_element(const tti_args *a, const sizes *s, const int64_t at[2],
                          const int64_t pq[2]) {
    double sum = a->in[2][at[1]];
    for (int64_t c = 0; c < s->c; c++)
        for (int tap = 0; tap < 9; tap++) {
            size_t x;
            if (!tap_of(s, pq, tap, &x)) continue;
            sum += a->in[0][plane_at(s->c, (int64_t[]){at[0], c}, s->h, s->w) + x] *
                   a->in[1][(at[1] * s->c + c) * 9 + tap];
        }
    return sum < 0 ? 0 : sum; /* NaN stays NaN */
}

static void one_window(const tti_args *a, const sizes *s, const int64_t at[2], const int64_t pq[2],
                       size_t y) {
    double best = 0;
    int where = 0;
    for (int i = 0; i < 4; i++) {
        double now = one_element(a, s, at, (int64_t[]){2 * pq[0] + i / 2, 2 * pq[1] + i % 2});
        if (i == 0 || now > best || (isnan(now) && !isnan(best))) best = now, where = i;
    }
    a->out[0][y] = best;
    a->out[1][y] = best <= 0 ? NOWHERE : where;
}

static void forward_reference(const tti_args *a) {
    sizes s;
    size_t y = 0;
    TTI_ASSERT(forward_sizes(a->node, &s) == TUTTI_OK);
    for (int64_t n = 0; n < s.n; n++)
        for (int64_t o = 0; o < s.o; o++)
            for (int64_t p = 0; p < s.h / 2; p++)
                for (int64_t q = 0; q < s.w / 2; q++)
                    one_window(a, &s, (int64_t[]){n, o}, (int64_t[]){p, q}, y++);
}

/* The gradient d that element y of dp gives, at sample and channel `at`, position (p, q) of dy. */
typedef void (*visit_fn)(const tti_args *a, const sizes *s, const int64_t at[2],
                         const int64_t pq[2], double d);

static void visit_dy(const tti_args *a, const sizes *s, visit_fn visit) {
    size_t y = 0;
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < s->o; o++)
            for (int64_t p = 0; p < s->h / 2; p++)
                for (int64_t q = 0; q < s->w / 2; q++, y++) {
                    int where = (int)a->in[1][y];
                    if (where >= NOWHERE) continue;
                    visit(a, s, (int64_t[]){n, o},
                          (int64_t[]){2 * p + where / 2, 2 * q + where % 2}, a->in[0][y]);
                }
}

static void add_grad_x(const tti_args *a, const sizes *s, const int64_t at[2], const int64_t pq[2],
                       double d) {
    for (int64_t c = 0; c < s->c; c++)
        for (int tap = 0; tap < 9; tap++) {
            size_t x;
            if (!tap_of(s, pq, tap, &x)) continue;
            a->out[0][plane_at(s->c, (int64_t[]){at[0], c}, s->h, s->w) + x] +=
                d * a->in[2][(at[1] * s->c + c) * 9 + tap];
        }
}

static void add_grad_w(const tti_args *a, const sizes *s, const int64_t at[2], const int64_t pq[2],
                       double d) {
    a->out[1][at[1]] += d;
    for (int64_t c = 0; c < s->c; c++)
        for (int tap = 0; tap < 9; tap++) {
            size_t x;
            if (!tap_of(s, pq, tap, &x)) continue;
            a->out[0][(at[1] * s->c + c) * 9 + tap] +=
                d * a->in[2][plane_at(s->c, (int64_t[]){at[0], c}, s->h, s->w) + x];
        }
}

static void grad_x_reference(const tti_args *a) {
    sizes s;
    TTI_ASSERT(grad_sizes(a->node, &s) == TUTTI_OK);
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    visit_dy(a, &s, add_grad_x);
}

static void grad_w_reference(const tti_args *a) {
    sizes s;
    TTI_ASSERT(grad_sizes(a->node, &s) == TUTTI_OK);
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    memset(a->out[1], 0, tti_out_n(a->node, 1) * sizeof(double));
    visit_dy(a, &s, add_grad_w);
}

/* ---- shard and cost ---- */

static const char samples_why[] = "only samples can be split; partial sums only backward";

static tutti_status forward_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0WW", "00"}};
    return tti_shard_match(node, rules, TTI_COUNT(rules), in, out, samples_why);
}

static tutti_status grad_x_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00W", "0"}, {"PWW", "P"}, {"WWP", "P"}};
    return tti_shard_match(node, rules, TTI_COUNT(rules), in, out, samples_why);
}

static tutti_status grad_w_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"000", "PP"}, {"PWW", "PP"}};
    return tti_shard_match(node, rules, TTI_COUNT(rules), in, out, samples_why);
}

/* As the convolution alone: a multiplication and an addition for each term. */
static void cost_of(const tti_node *node, const sizes *s, tti_cost *cost) {
    double outputs = (double)s->n * (double)s->o * (double)s->h * (double)s->w;
    tti_cost_flops(node, 18 * outputs * (double)s->c, cost);
}

static void forward_cost(const tti_node *node, tti_cost *cost) {
    sizes s;
    TTI_ASSERT(forward_sizes(node, &s) == TUTTI_OK);
    cost_of(node, &s, cost);
}

static void grad_cost(const tti_node *node, tti_cost *cost) {
    sizes s;
    TTI_ASSERT(grad_sizes(node, &s) == TUTTI_OK);
    cost_of(node, &s, cost);
}

/* ---- records ---- */

static const tti_sample forward_samples[] = {
    {.in = "f32[2,3,6,4] f32[4,3,3,3] f32[4]"},
    {.in = "f32[3,1,4,4] f32[8,1,3,3] f32[8]", .lo = -1, .hi = 0.5},
    {.in = "f64[1,2,2,2] f64[3,2,3,3] f64[3]"},
    {.in = "f32[0,3,6,4] f32[4,3,3,3] f32[4]"},
    {.in = "f32[2,3,5,4] f32[4,3,3,3] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6,4] f32[4,3,3,2] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6,4] f32[4,2,3,3] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6,4] f32[4,3,3,3] f32[5]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_x_samples[] = {
    {.in = "f32[2,4,3,2] u8[2,4,3,2] f32[4,3,3,3]", .int_hi = 4},
    {.in = "f64[1,3,1,1] u8[1,3,1,1] f64[3,2,3,3]", .int_hi = 4},
    {.in = "f32[0,4,3,2] u8[0,4,3,2] f32[4,3,3,3]", .int_hi = 4},
    {.in = "f32[2,4,3,2] u8[2,4,2,3] f32[4,3,3,3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2] u8[2,4,3,2] f32[3,3,3,3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2] i32[2,4,3,2] f32[4,3,3,3]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_w_samples[] = {
    {.in = "f32[2,4,3,2] u8[2,4,3,2] f32[2,3,6,4]", .int_hi = 4},
    {.in = "f32[5,8,2,2] u8[5,8,2,2] f32[5,1,4,4]", .int_hi = 4},
    {.in = "f32[0,4,3,2] u8[0,4,3,2] f32[0,3,6,4]", .int_hi = 4}, /* zeros */
    {.in = "f32[2,4,3,2] u8[2,4,3,2] f32[2,3,6,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3,2] u8[2,4,3,2] f32[1,3,6,4]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_conv_pool[] = {
    {.name = "conv2d_pool",
     .doc = "y[N,O,H/2,W/2], where: max_pool2d by 2 of relu(conv2d 3x3 of x[N,C,H,W], w, b)",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 2,
     .traits = TTI_CHANNELS_LAST,
     .weights_in = 1u << 1,
     .infer = forward_infer,
     .shard = forward_shard,
     .cost = forward_cost,
     .reference = forward_reference,
     .samples = forward_samples},
    {.name = "conv2d_pool_grad_x",
     .doc = "dx[N,C,H,W] of conv2d_pool for dp[N,O,H/2,W/2], where, w",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .traits = TTI_CHANNELS_LAST,
     .weights_in = 1u << 2,
     .infer = grad_x_infer,
     .shard = grad_x_shard,
     .cost = grad_cost,
     .reference = grad_x_reference,
     .samples = grad_x_samples},
    {.name = "conv2d_pool_grad_w",
     .doc = "dw, db of conv2d_pool for dp[N,O,H/2,W/2], where, x[N,C,H,W]",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 2,
     .traits = TTI_CHANNELS_LAST,
     .weights_out = 1u << 0,
     .infer = grad_w_infer,
     .shard = grad_w_shard,
     .cost = grad_cost,
     .reference = grad_w_reference,
     .samples = grad_w_samples},
    {0},
};

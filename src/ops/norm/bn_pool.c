/* bn_pool.c - batch norm, relu and 3x3 pooling in one op, as after the first convolution of a
 * residual network, and its gradients.
 *
 *   y = max_pool2d(relu(bn_apply(x, ..))), 3x3 windows, stride 2, padding 1
 *
 * "where" is the index of y in its window (0 .. 8 in row-major order, the first maximum; a NaN wins
 * over numbers), or 9 if y is not above 0 and gets no gradient.  The intermediate values, four
 * times as large as y, and their gradients are never stored.  Batch norm keeps or reverses the
 * order of a channel's values, so the maximum is found among x, independent of rounding.  Only the
 * pass fuse_bn_pool.c makes these ops, after autodiff. */
#include "ops/norm/bn_rules.h"

enum { SIDE = 3, STEP = 2, NOWHERE = 9 }; /* of a window; from window to window */

static const tti_attr_spec attrs[] = {{"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"}, {0}};

static int64_t n_windows(int64_t n_places) { return (n_places - 1) / STEP + 1; }

static tutti_status need_images(const tti_node *node, int i) {
    const int64_t *x = tti_in_shape(node, i)->dim;
    TTI_TRY(tti_need_n_dims(node, i, 4));
    if (x[2] >= 1 && x[3] >= 1) return TUTTI_OK;
    return tti_node_fail(node, "a plane of %lldx%lld is empty", (long long)x[2], (long long)x[3]);
}

/* x, stats, gamma, beta */
static tutti_status bn_apply_pool_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(need_planes(node));
    TTI_TRY(need_images(node, 0));
    const int64_t *x = tti_in_shape(node, 0)->dim;
    TTI_TRY(need_vector(node, 1, 2 * x[1] + 1));
    for (int i = 2; i < 4; i++) TTI_TRY(need_vector(node, i, x[1]));
    out[0] = (tutti_type){node->in[0]->type.dtype,
                          TUTTI_SHAPE(x[0], x[1], n_windows(x[2]), n_windows(x[3]))};
    out[1] = (tutti_type){TUTTI_U8, out[0].shape};
    return TUTTI_OK;
}

/* dp, where, x, stats, ..; rows? as input `rows` */
static tutti_status check_grad(const tti_node *node, int rows) {
    char text[2][128];
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(need_planes(node));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_U8));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    TTI_TRY(tti_need_dtype(node, 2, node->in[0]->type.dtype));
    TTI_TRY(need_images(node, 2));
    const int64_t *x = tti_in_shape(node, 2)->dim;
    const tutti_shape want = TUTTI_SHAPE(x[0], x[1], n_windows(x[2]), n_windows(x[3]));
    if (!tti_shape_equal(tti_in_shape(node, 0), &want))
        return tti_node_fail(node, "dp is %s for x %s",
                             tti_type_text(&node->in[0]->type, text[0], sizeof text[0]),
                             tti_type_text(&node->in[2]->type, text[1], sizeof text[1]));
    TTI_TRY(check_rows(node, rows));
    return need_vector(node, 3, 2 * x[1] + 1);
}

/* dp, where, x, stats, rows? */
static tutti_status bn_pool_grad_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_grad(node, 4));
    int64_t n_channels = tti_in_dim(node, 2, 1);
    out[0] = stats_type(n_channels);
    out[1] = out[2] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(n_channels)};
    return TUTTI_OK;
}

/* dp, where, x, stats, gamma, sums, rows? */
static tutti_status bn_pool_grad_apply_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_grad(node, 6));
    TTI_TRY(need_vector(node, 4, tti_in_dim(node, 2, 1)));
    TTI_TRY(need_vector(node, 5, 2 * tti_in_dim(node, 2, 1) + 1));
    out[0] = node->in[2]->type;
    return TUTTI_OK;
}

/* One channel of relu(bn(x)) as a plane of x has it. */
typedef struct channel {
    const double *x; /* [h,w] */
    int64_t h, w;
    double mean, scale, shift;
} channel;

static double element(const channel *c, int64_t h, int64_t w) {
    double y = (c->x[h * c->w + w] - c->mean) * c->scale + c->shift;
    return y < 0 ? 0 : y; /* NaN stays NaN */
}

/* The maximum of the window at (p, q), and which of its places it is. */
static double pool(const channel *c, int64_t p, int64_t q, double *index) {
    double best = 0;
    *index = -1;
    for (int tap = 0; tap < SIDE * SIDE; tap++) {
        int64_t h = p * STEP - 1 + tap / SIDE, w = q * STEP - 1 + tap % SIDE;
        if (h < 0 || h >= c->h || w < 0 || w >= c->w) continue;
        double now = element(c, h, w);
        bool wins = *index < 0 || now > best || (isnan(now) && !isnan(best));
        if (wins) best = now, *index = tap;
    }
    if (best <= 0) *index = NOWHERE;
    return best;
}

static void bn_apply_pool_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    const int64_t *x = tti_in_shape(a->node, 0)->dim, *y = a->node->out[0]->type.shape.dim;
    double eps = tti_attr_float(a->node, "eps");
    const double *stats = a->in[1];
    size_t to = 0;
    for (size_t plane = 0; plane < p.n * p.c; plane++) {
        size_t k = plane % p.c;
        double rstd = rstd_of(stats[0], stats[1 + p.c + k], eps);
        channel c = {a->in[0] + plane * p.s, x[2],       x[3], stats[1 + k],
                     a->in[2][k] * rstd,     a->in[3][k]};
        for (int64_t i = 0; i < y[2] * y[3]; i++, to++)
            a->out[0][to] = pool(&c, i / y[3], i % y[3], &a->out[1][to]);
    }
}

/* x of a gradient. */
static planes planes_of_x(const tti_node *node) {
    const int64_t *x = tti_in_shape(node, 2)->dim;
    return (planes){(size_t)x[0], (size_t)x[1], (size_t)(x[2] * x[3])};
}

/* dy of element i of x: from the windows that see it. */
static double dy_at(const tti_args *a, size_t i) {
    const int64_t *x = tti_in_shape(a->node, 2)->dim, *y = tti_in_shape(a->node, 0)->dim;
    int64_t w = (int64_t)i % x[3], h = (int64_t)i / x[3] % x[2], plane = (int64_t)i / (x[2] * x[3]);
    double sum = 0;
    for (int64_t p = h / STEP; p <= (h + 1) / STEP && p < y[2]; p++)
        for (int64_t q = w / STEP; q <= (w + 1) / STEP && q < y[3]; q++) {
            int64_t tap = (h - p * STEP + 1) * SIDE + w - q * STEP + 1;
            size_t at = (size_t)((plane * y[2] + p) * y[3] + q);
            if (a->in[1][at] == (double)tap) sum += a->in[0][at];
        }
    return sum;
}

static void bn_pool_grad_sums_reference(const tti_args *a) {
    planes p = planes_of_x(a->node);
    size_t rows = rows_of(a, 4, p.n);
    double eps = tti_attr_float(a->node, "eps");
    const double *x = a->in[2], *stats = a->in[3];
    a->out[0][0] = (double)(rows * p.s);
    for (size_t c = 0; c < p.c; c++) {
        double mean = stats[1 + c], rstd = rstd_of(stats[0], stats[1 + p.c + c], eps);
        double sum = 0, dot = 0;
        for (size_t n = 0; n < rows; n++)
            for (size_t i = (n * p.c + c) * p.s; i < (n * p.c + c + 1) * p.s; i++) {
                double dy = dy_at(a, i);
                sum += dy, dot += dy * (x[i] - mean) * rstd;
            }
        put_sums(a->out, p.c, c, sum, dot);
    }
}

static void bn_pool_grad_apply_reference(const tti_args *a) {
    planes p = planes_of_x(a->node);
    size_t rows = rows_of(a, 6, p.n);
    double eps = tti_attr_float(a->node, "eps");
    const double *x = a->in[2], *stats = a->in[3], *sums = a->in[5];
    double count = fmax(sums[0], 1);
    for (size_t i = 0; i < p.n * p.c * p.s; i++) {
        size_t c = i / p.s % p.c;
        double rstd = rstd_of(stats[0], stats[1 + p.c + c], eps);
        double xhat = (x[i] - stats[1 + c]) * rstd;
        double through = dy_at(a, i) - sums[1 + c] / count - xhat * (sums[1 + p.c + c] / count);
        a->out[0][i] = i / p.s / p.c < rows ? a->in[4][c] * rstd * through : 0;
    }
}

static tutti_status bn_apply_pool_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0OWW", "00"}, {"0WWW", "00"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

static tutti_status bn_pool_grad_sums_shard(const tti_node *node, const tti_placement *in,
                                            tti_placement *out) {
    static const tti_shard_rule rules[2][3] = {
        {{"000O", "PPP"}, {"000W", "PPP"}}, {{"000OW", "PPP"}, {"000OP", "PPP"}, {"000WP", "PPP"}}};
    bool has_rows = node->n_in > 4;
    return tti_shard_match(node, rules[has_rows], has_rows ? 3 : 2, in, out, planes_why);
}

static tutti_status bn_pool_grad_apply_shard(const tti_node *node, const tti_placement *in,
                                             tti_placement *out) {
    static const tti_shard_rule rules[2][3] = {
        {{"000OWP", "0"}, {"000WWW", "0"}}, {{"000OWPW", "0"}, {"000OWPP", "0"}, {"000WWWP", "0"}}};
    bool has_rows = node->n_in > 6;
    return tti_shard_match(node, rules[has_rows], has_rows ? 3 : 2, in, out, planes_why);
}

static void grad_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 6.0 * (double)tti_in_n(node, 2), cost);
}

static const tti_sample bn_apply_pool_samples[] = {
    {.in = "f32[2,3,6,5] f32[7] f32[3] f32[3]", .lo = -2, .hi = 2, .attrs = "eps=1e4"},
    {.in = "f32[3,8,5,8] f32[17] f32[8] f32[8]", .lo = -2, .hi = 2, .attrs = "eps=1e4"},
    {.in = "f32[2,16,1,3] f32[33] f32[16] f32[16]", .lo = 0.5, .hi = 2},
    {.in = "f32[0,8,4,4] f32[17] f32[8] f32[8]", .lo = 0.5, .hi = 2},
    {.in = "f32[2,3,6,5] f32[7] f32[3] f32[3]", .attrs = "eps=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6] f32[7] f32[3] f32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6,0] f32[7] f32[3] f32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6,5] f32[6] f32[3] f32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,6,5] f32[7] f32[3] f32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_pool_grad_sums_samples[] = {
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[7]", .lo = 0.5, .hi = 2, .int_hi = 9},
    {.in = "f32[3,8,3,4] u8[3,8,3,4] f32[3,8,5,8] f32[17] i32[]", .lo = 0.5, .hi = 2, .int_hi = 2},
    {.in = "f32[2,16,2,2] u8[2,16,2,2] f32[2,16,4,3] f32[33]", .lo = 0.5, .hi = 2, .int_hi = 9},
    {.in = "f32[0,8,2,2] u8[0,8,2,2] f32[0,8,4,4] f32[17]", .lo = 0.5, .hi = 2, .int_hi = 9},
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,7,5] f32[7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3,3,3,3] i32[3,3,3,3] f32[3,3,6,5] f32[7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[7] i32[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[7]",
     .attrs = "eps=0",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_pool_grad_apply_samples[] = {
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[7] f32[3] f32[7]",
     .lo = 0.5,
     .hi = 2,
     .int_hi = 9},
    {.in = "f32[3,8,3,4] u8[3,8,3,4] f32[3,8,5,8] f32[17] f32[8] f32[17] i32[]",
     .lo = 0.5,
     .hi = 2,
     .int_hi = 2},
    {.in = "f32[0,8,2,2] u8[0,8,2,2] f32[0,8,4,4] f32[17] f32[8] f32[17]",
     .lo = 0.5,
     .hi = 2,
     .int_hi = 9},
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[7] f32[4] f32[7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3,3,3,3] u8[3,3,3,3] f32[3,3,6,5] f32[7] f32[3] f32[8]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_bn_pool[] = {
    {.name = "bn_apply_pool",
     .doc = "y, where: max_pool2d by 3x3, stride 2, pad 1, of relu(bn(x)); inputs x, stats, gamma, "
            "beta",
     .n_in_min = 4,
     .n_in_max = 4,
     .n_out = 2,
     .attrs = attrs,
     .traits = TTI_CHANNELS_LAST,
     .infer = bn_apply_pool_infer,
     .shard = bn_apply_pool_shard,
     .cost = bn_cost,
     .reference = bn_apply_pool_reference,
     .samples = bn_apply_pool_samples},
    {.name = "bn_pool_grad_sums",
     .doc = "sum dy, sum dy xhat of bn_apply_pool for dp; inputs dp, where, x, stats, rows?",
     .n_in_min = 4,
     .n_in_max = 5,
     .n_out = 3,
     .attrs = attrs,
     .traits = TTI_CHANNELS_LAST,
     .infer = bn_pool_grad_sums_infer,
     .shard = bn_pool_grad_sums_shard,
     .cost = grad_cost,
     .reference = bn_pool_grad_sums_reference,
     .samples = bn_pool_grad_sums_samples},
    {.name = "bn_pool_grad_apply",
     .doc = "dx of bn_apply_pool for dp; inputs dp, where, x, stats, gamma, sums, rows?",
     .n_in_min = 6,
     .n_in_max = 7,
     .n_out = 1,
     .attrs = attrs,
     .traits = TTI_CHANNELS_LAST,
     .infer = bn_pool_grad_apply_infer,
     .shard = bn_pool_grad_apply_shard,
     .cost = grad_cost,
     .reference = bn_pool_grad_apply_reference,
     .samples = bn_pool_grad_apply_samples},
    {0},
};

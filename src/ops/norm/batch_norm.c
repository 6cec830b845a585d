/* batch_norm.c - batch normalisation (Ioffe & Szegedy 2015), as a chain of small ops.
 *
 *   training    stats = bn_stats(x); y = bn_apply(x, stats); bn_running(stats) feeds the buffers
 *   joined      stats = sync_moments(bn_stats(x)): the moments of all shards, as in SyncBatchNorm
 *   inference   y = bn_eval(x, running mean, running variance)
 * bn_apply's gradient goes through the statistics too.  If its input stats comes from a TTI_SYNC
 * node, the sums of the gradient are joined as well.  Statistics are {count, mean[C], M2[C]}, M2 =
 * sum (x - mean)^2, in f32 whatever x is: this form can be joined without loss (Chan, Golub &
 * LeVeque 1983). `rows` is the number of real samples of the shard; the rest is padding, which does
 * not count and gets gradient 0.
 *
 * y = relu(bn(x) + r) is one node: r and act are the epilogue of bn_apply and bn_eval
 * (passes/fuse/fuse.c).  The gradient ops then read y, and use dy only where y > 0; no masked dy is
 * stored.  Without r they do not need y: it is recomputed from x, with gamma and beta
 * (passes/fuse/fuse_bn.c).  If the masked dy is needed for r as well, bn_grad_join makes it
 * together with the sums. */
#include <math.h>
#include <string.h>

#include "ops/norm/bn_rules.h"

static const tti_attr_spec apply_attrs[] = {
    {"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"},
    {"act", TTI_ATTR_INT, TTI_EPILOGUE_NONE, "tti_epilogue: 0 none, 1 relu"},
    {0}};
static const tti_attr_spec pair_attrs[] = {
    {"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance of x"},
    {"eps_r", TTI_ATTR_FLOAT, 1e-5, "added to the variance of r"},
    {"relu", TTI_ATTR_INT, 0, "1: relu of the sum"},
    {0}};

static const tti_attr_spec mask_attrs[] = {
    {"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance of x"},
    {"eps_r", TTI_ATTR_FLOAT, 1e-5, "added to the variance of r, where r is normalised too"},
    {0}};

/* ---- infer ---- */

static tutti_status bn_stats_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(need_planes(node));
    TTI_TRY(check_rows(node, 1));
    out[0] = stats_type(tti_in_dim(node, 0, 1));
    return TUTTI_OK;
}

/* Statistics alone: {count, C, C}. */
static tutti_status need_stats(const tti_node *node) {
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_F32));
    TTI_TRY(tti_need_n_dims(node, 0, 1));
    if (tti_in_dim(node, 0, 0) % 2 == 1) return TUTTI_OK;
    return tti_node_fail(node, "statistics have 2 C + 1 elements, not %lld",
                         (long long)tti_in_dim(node, 0, 0));
}

static tutti_status sync_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(need_stats(node));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

static tutti_status bn_running_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(need_stats(node));
    TTI_TRY(check_rows(node, 1));
    out[0] = out[1] = (tutti_type){TUTTI_F32, TUTTI_SHAPE((tti_in_dim(node, 0, 0) - 1) / 2)};
    return TUTTI_OK;
}

/* x, stats, gamma, beta, residual? */
static tutti_status bn_apply_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attrs(node));
    TTI_TRY(need_planes(node));
    int64_t n_channels = tti_in_dim(node, 0, 1);
    TTI_TRY(need_vector(node, 1, 2 * n_channels + 1));
    for (int i = 2; i < 4; i++) TTI_TRY(need_vector(node, i, n_channels));
    TTI_TRY(check_like_first(node, 4));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* x, stats, gamma, beta, r, its stats, gamma, beta */
static tutti_status bn_apply_pair_infer(const tti_node *node, tutti_type *out) {
    double eps = tti_attr_float(node, "eps"), eps_r = tti_attr_float(node, "eps_r");
    if (!(eps > 0 && isfinite(eps) && eps_r > 0 && isfinite(eps_r)))
        return tti_node_fail(node, "eps and eps_r must be > 0, are %g and %g", eps, eps_r);
    TTI_TRY(need_planes(node));
    int64_t n_channels = tti_in_dim(node, 0, 1);
    TTI_TRY(check_like_first(node, 4));
    for (int i = 1; i < 8; i++)
        if (i != 4) TTI_TRY(need_vector(node, i, i % 4 == 1 ? 2 * n_channels + 1 : n_channels));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* x, stats, gamma, beta, r, and its stats, gamma, beta or none of them */
static tutti_status bn_apply_mask_infer(const tti_node *node, tutti_type *out) {
    if (node->n_in == 8) {
        TTI_TRY(bn_apply_pair_infer(node, out));
    } else {
        TTI_TRY(tti_need_eps(node));
        TTI_TRY(need_planes(node));
        int64_t n_channels = tti_in_dim(node, 0, 1);
        TTI_TRY(need_vector(node, 1, 2 * n_channels + 1));
        for (int i = 2; i < 4; i++) TTI_TRY(need_vector(node, i, n_channels));
        TTI_TRY(check_like_first(node, 4));
        if (node->n_in != 5)
            return tti_node_fail(node, "there are 5 inputs or 8, not %d", node->n_in);
        out[0] = node->in[0]->type;
    }
    TTI_TRY(need_masked(node));
    out[1] = mask_type(node);
    return TUTTI_OK;
}

/* x, mean, var, gamma, beta, residual? */
static tutti_status bn_eval_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attrs(node));
    TTI_TRY(need_planes(node));
    for (int i = 1; i < 5; i++) TTI_TRY(need_vector(node, i, tti_in_dim(node, 0, 1)));
    TTI_TRY(check_like_first(node, 5));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* ---- references ---- */

static void bn_stats_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    put_moments(a->in[0], &p, rows_of(a, 1, p.n), a->out[0]);
}

static void sync_reference(const tti_args *a) {
    memcpy(a->out[0], a->in[0], tti_in_n(a->node, 0) * sizeof(double));
}

/* ---- joining: in a tree over the shards, so that the order depends on their number alone ---- */

typedef struct moments {
    double count, mean, m2;
} moments;

/* Chan's formula. */
static moments join_two(moments a, moments b) {
    double count = a.count + b.count, d = b.mean - a.mean;
    if (a.count == 0 || b.count == 0) return a.count == 0 ? b : a;
    return (moments){count, a.mean + d * b.count / count,
                     a.m2 + b.m2 + d * d * a.count * b.count / count};
}

/* Channel c of n parts of n_elems = 2 n_channels + 1 elements each. */
static moments join_channel(const float *parts, size_t n, size_t n_elems, size_t c) {
    if (n == 1) return (moments){parts[0], parts[1 + c], parts[1 + (n_elems - 1) / 2 + c]};
    size_t left = tti_left_parts(n);
    return join_two(join_channel(parts, left, n_elems, c),
                    join_channel(parts + left * n_elems, n - left, n_elems, c));
}

static void join_moments(const float *parts, size_t n_parts, size_t n_elems, float *out) {
    size_t n_channels = (n_elems - 1) / 2;
    out[0] = (float)tti_join_element(parts, n_parts, n_elems, 0);
    for (size_t c = 0; c < n_channels; c++) {
        moments m = join_channel(parts, n_parts, n_elems, c);
        out[1 + c] = (float)m.mean;
        out[1 + n_channels + c] = (float)m.m2;
    }
}

static void bn_running_reference(const tti_args *a) {
    size_t n_channels = (tti_in_n(a->node, 0) - 1) / 2;
    double rows = fmax(a->in[1][0], 0), count = a->in[0][0];
    for (size_t c = 0; c < n_channels; c++) {
        a->out[0][c] = rows * a->in[0][1 + c];
        a->out[1][c] = rows * a->in[0][1 + n_channels + c] / fmax(count - 1, 1);
    }
}

/* One channel of y = act(gamma (x - mean) rstd + beta + r); r, if there, is input `r`. */
typedef struct affine_of_channel {
    double mean, scale, shift;
} affine_of_channel;

static void apply_channel(const tti_args *a, size_t c, affine_of_channel f, int r) {
    planes p = planes_of(a->node);
    const double *add = r < a->node->n_in ? a->in[r] : NULL;
    for (size_t n = 0; n < p.n; n++)
        for (size_t i = (n * p.c + c) * p.s; i < (n * p.c + c + 1) * p.s; i++) {
            double y = (a->in[0][i] - f.mean) * f.scale + f.shift + (add ? add[i] : 0);
            a->out[0][i] = has_act(a->node) && y < 0 ? 0 : y;
        }
}

static void bn_apply_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    double eps = tti_attr_float(a->node, "eps");
    const double *stats = a->in[1], *gamma = a->in[2], *beta = a->in[3];
    for (size_t c = 0; c < p.c; c++) {
        double rstd = rstd_of(stats[0], stats[1 + p.c + c], eps);
        apply_channel(a, c, (affine_of_channel){stats[1 + c], gamma[c] * rstd, beta[c]}, 4);
    }
}

/* Element i, of channel c, of bn(x) + bn(r), or of bn(x) + r where r has no statistics. */
static double pair_at(const tti_args *a, const planes *p, size_t c, size_t i) {
    const double eps[2] = {tti_attr_float(a->node, "eps"), tti_attr_float(a->node, "eps_r")};
    double y = a->node->n_in == 8 ? 0 : a->in[4][i];
    for (int k = 0; k < a->node->n_in / 4; k++) {
        const double *const *in = a->in + 4 * k;
        double rstd = rstd_of(in[1][0], in[1][1 + p->c + c], eps[k]);
        y += (in[0][i] - in[1][1 + c]) * (in[2][c] * rstd) + in[3][c];
    }
    return y;
}

static void bn_apply_pair_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    for (size_t i = 0; i < p.n * p.c * p.s; i++) {
        double y = pair_at(a, &p, i / p.s % p.c, i);
        a->out[0][i] = tti_attr_int(a->node, "relu") && y < 0 ? 0 : y;
    }
}

static void bn_apply_mask_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    memset(a->out[1], 0, tti_out_n(a->node, 1) * sizeof(double));
    for (size_t i = 0; i < p.n * p.c * p.s; i++) {
        double y = pair_at(a, &p, i / p.s % p.c, i);
        a->out[0][i] = y < 0 ? 0 : y; /* NaN stays NaN */
        if (!(y <= 0)) a->out[1][mask_byte(&p, i)] += 1 << mask_bit(&p, i);
    }
}

static void bn_eval_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    double eps = tti_attr_float(a->node, "eps");
    for (size_t c = 0; c < p.c; c++) {
        double scale = a->in[3][c] / sqrt(a->in[2][c] + eps);
        apply_channel(a, c, (affine_of_channel){a->in[1][c], scale, a->in[4][c]}, 5);
    }
}

/* ---- gradient ---- */

/* The node that computed the statistics, before any TTI_SYNC; *synced says whether there is one. */
static const tti_node *stats_maker(const tutti_value *stats, bool *synced) {
    const tti_node *node = stats->node;
    *synced = false;
    while (node->op->traits & TTI_SYNC) {
        *synced = true;
        node = node->in[0]->node;
    }
    return node;
}

/* gamma's and beta's gradients are added over the shards anyway, so they are own sums. */
static tutti_status bn_apply_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                  const bool *need, tutti_value **dx) {
    bool synced;
    const tti_node *maker = stats_maker(node->in[1], &synced);
    bool has_rows = maker->op->reference == bn_stats_reference && maker->n_in == 2;
    tutti_value *rows = has_rows ? maker->in[1] : NULL;
    int n_rows = has_rows ? 1 : 0;
    tti_attr_arg attrs[] = {tti_same_attr(node, "eps"), {0}};
    bool need_r = node->n_in > 4 && need[4];
    if (!need[0] && !need[2] && !need[3] && !need_r) return TUTTI_OK;
    tutti_value *dz = tti_grad_act(g, node, dy[0]); /* fuse.c gives it to the next two */
    if (need_r) dx[4] = dz;
    if (!need[0] && !need[2] && !need[3]) return tutti_graph_check(g);
    tutti_value *sums =
        tti_grad_emit(g, node, "bn_grad_sums",
                      (tutti_value *[]){dz, node->in[0], node->in[1], rows}, 3 + n_rows, attrs);
    if (!sums) return tutti_graph_check(g);
    if (need[2]) dx[2] = sums->node->out[1];
    if (need[3]) dx[3] = sums->node->out[2];
    if (!need[0]) return tutti_graph_check(g);
    if (synced) sums = tti_grad_emit(g, node, "sync_sum", &sums, 1, NULL);
    dx[0] = tti_grad_emit(g, node, "bn_grad_apply",
                          (tutti_value *[]){dz, node->in[0], node->in[1], node->in[2], sums, rows},
                          5 + n_rows, attrs);
    return tutti_graph_check(g);
}

/* ---- shard: statistics of cut samples are each worker's own ---- */

static tutti_status bn_stats_shard(const tti_node *node, const tti_placement *in,
                                   tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0W", "O"}, {"0P", "O"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

static tutti_status sync_moments_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[] = {{"O", "W"}};
    return tti_shard_match(node, rules, 1, in, out, "only a shard's own statistics are joined");
}

static tutti_status sync_sum_shard(const tti_node *node, const tti_placement *in,
                                   tti_placement *out) {
    static const tti_shard_rule rules[] = {{"P", "W"}};
    return tti_shard_match(node, rules, 1, in, out, "only partial sums are joined");
}

/* Joined statistics are weighted by the shard's own rows: partial sums over all samples. */
static tutti_status bn_running_shard(const tti_node *node, const tti_placement *in,
                                     tti_placement *out) {
    static const tti_shard_rule rules[] = {{"OW", "PP"}, {"OP", "PP"}, {"WP", "PP"}};
    return tti_shard_match(node, rules, 3, in, out, planes_why);
}

static tutti_status bn_apply_shard(const tti_node *node, const tti_placement *in,
                                   tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0OWW0", "0"}, {"0WWW0", "0"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

static tutti_status bn_apply_pair_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0OWW0OWW", "0"}, {"0WWW0WWW", "0"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

static tutti_status bn_apply_mask_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0OWW0OWW", "00"}, {"0WWW0WWW", "00"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

static tutti_status bn_eval_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0WWWW0", "0"}, {"100001", "1"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

/* ---- cut: each worker has the statistics of its channels ---- */

static bool bn_stats_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    return tti_cut_match(node, "1W", "O", in, out);
}

static bool sync_moments_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    return tti_cut_match(node, "O", "O", in, out);
}

static bool bn_running_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    return tti_cut_match(node, "OW", "00", in, out);
}

static bool bn_apply_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    return tti_cut_match(node, "1O001", "1", in, out);
}

/* ---- records ---- */

static const tti_sample bn_stats_samples[] = {
    {.in = "f32[4,6,3,5]"},
    {.in = "f32[4,3,2,2] i32[]", .int_lo = 3, .int_hi = 3},
    {.in = "f32[64,32,9,9] i32[]", .int_lo = 63, .int_hi = 63},
    {.in = "f32[4,3] i32[]"}, /* no row counts */
    {.in = "f32[2,3,5] i32[]", .int_lo = 9, .int_hi = 9},
    {.in = "f64[1,1,1,1]"},
    {.in = "f32[0,3,2,2]"},
    {.in = "f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "i32[4,3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3] i32[1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample sync_samples[] = {
    {.in = "f32[7]", .lo = 0.5, .hi = 2},          {.in = "f32[1]"},
    {.in = "f32[6]", .expect = TUTTI_E_INVALID},   {.in = "f64[7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[7,1]", .expect = TUTTI_E_INVALID}, {0},
};

static const tti_sample bn_running_samples[] = {
    {.in = "f32[7] i32[]", .lo = 0.5, .hi = 4, .int_lo = 3, .int_hi = 3},
    {.in = "f32[3] i32[]", .lo = 0.5, .hi = 4},
    {.in = "f32[1] i32[]", .lo = 0.5, .hi = 4, .int_hi = 2},
    {.in = "f32[4] i32[]", .expect = TUTTI_E_INVALID},
    {.in = "f32[7] f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_apply_samples[] = {
    {.in = "f32[4,6,3,5] f32[13] f32[6] f32[6]", .lo = 0.5, .hi = 2},
    {.in = "f32[2,3] f32[7] f32[3] f32[3]", .attrs = "eps=0.01", .lo = 0.5, .hi = 2},
    {.in = "bf16[2,2,3,3] f32[5] f32[2] f32[2]", .lo = 0.5, .hi = 2},
    {.in = "f32[0,3,2,2] f32[7] f32[3] f32[3]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6,3,5] f32[12] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6,3,5] f32[13] f32[5] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[13] f32[6] f32[6]", .attrs = "eps=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[6] f32[13] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6,3,5] f32[13] f32[6] f32[6]", .attrs = "act=1", .lo = 0.1, .hi = 2},
    {.in = "f32[4,6,3,5] f32[13] f32[6] f32[6] f32[4,6,3,5]", .attrs = "act=1", .lo = 0.1, .hi = 2},
    {.in = "f32[4,3] f32[7] f32[3] f32[3] f32[4,3]", .lo = 0.5, .hi = 2},
    {.in = "bf16[2,2,3,3] f32[5] f32[2] f32[2] bf16[2,2,3,3]",
     .attrs = "act=1",
     .lo = 0.1,
     .hi = 2},
    {.in = "f16[2,2,3,3] f32[5] f32[2] f32[2] f16[2,2,3,3]", .attrs = "act=1", .lo = 0.1, .hi = 2},
    {.in = "f32[4,6] f32[13] f32[6] f32[6]", .attrs = "act=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[13] f32[6] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[13] f32[6] f32[6] bf16[4,6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_apply_pair_samples[] = {
    {.in = "f32[4,6,3,5] f32[13] f32[6] f32[6] f32[4,6,3,5] f32[13] f32[6] f32[6]",
     .attrs = "relu=1",
     .lo = 0.1,
     .hi = 2},
    {.in = "f32[8,264,5,5] f32[529] f32[264] f32[264] f32[8,264,5,5] f32[529] f32[264] f32[264]",
     .attrs = "relu=1 eps_r=0.5",
     .lo = 0.1,
     .hi = 2},
    {.in = "f32[4,3] f32[7] f32[3] f32[3] f32[4,3] f32[7] f32[3] f32[3]", .lo = 0.5, .hi = 2},
    {.in = "f32[0,3] f32[7] f32[3] f32[3] f32[0,3] f32[7] f32[3] f32[3]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,3] f32[7] f32[3] f32[3] f32[4,2] f32[7] f32[3] f32[3]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3] f32[7] f32[3] f32[3] f32[4,3] f32[6] f32[3] f32[3]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3] f32[7] f32[3] f32[3] f32[4,3] f32[7] f32[3] f32[3]",
     .attrs = "eps_r=0",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_apply_mask_samples[] = {
    {.in = "f32[4,8,3,5] f32[17] f32[8] f32[8] f32[4,8,3,5]", .lo = 0.1, .hi = 2},
    {.in = "f32[3,16,2,4] f32[33] f32[16] f32[16] f32[3,16,2,4] f32[33] f32[16] f32[16]",
     .attrs = "eps_r=0.5",
     .lo = 0.1,
     .hi = 2},
    {.in = "bf16[2,64,3,3] f32[129] f32[64] f32[64] bf16[2,64,3,3]", .lo = 0.1, .hi = 2},
    {.in = "f32[4,24] f32[49] f32[24] f32[24] f32[4,24]", .lo = 0.5, .hi = 2},
    {.in = "f32[0,8] f32[17] f32[8] f32[8] f32[0,8]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6] f32[13] f32[6] f32[6] f32[4,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8] f32[17] f32[8] f32[8] f32[4,7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8] f32[17] f32[8] f32[8] f32[4,8] f32[17]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8] f32[16] f32[8] f32[8] f32[4,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8] f32[17] f32[8] f32[8] f32[4,8]", .attrs = "eps=0", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_eval_samples[] = {
    {.in = "f32[4,6,3,5] f32[6] f32[6] f32[6] f32[6]", .lo = 0.5, .hi = 2},
    {.in = "f32[2,3] f32[3] f32[3] f32[3] f32[3]", .attrs = "eps=0.01", .lo = 0.5, .hi = 2},
    {.in = "f32[0,2,3,3] f32[2] f32[2] f32[2] f32[2]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6,3,5] f32[6] f32[6] f32[6] f32[6] f32[4,6,3,5]",
     .attrs = "act=1",
     .lo = 0.1,
     .hi = 2},
    {.in = "bf16[2,3] f32[3] f32[3] f32[3] f32[3] bf16[2,3]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6] f32[6] f32[6] f32[6] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6] f32[6] f32[6] f32[6]", .attrs = "act=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[6] f32[6] f32[6] f32[5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f64[6] f32[6] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_batch_norm[] = {
    {.name = "bn_stats",
     .doc = "{count, mean[C], M2[C]} over samples and positions; inputs x[N,C,..], rows?",
     .n_in_min = 1,
     .n_in_max = 2,
     .n_out = 1,
     .traits = TTI_CHANNELS_LAST | TTI_READS_LOW,
     .infer = bn_stats_infer,
     .shard = bn_stats_shard,
     .cut = bn_stats_cut,
     .cost = bn_cost,
     .reference = bn_stats_reference,
     .samples = bn_stats_samples},
    {.name = "sync_moments",
     .doc = "{count, mean[C], M2[C]} of the samples of all shards",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .traits = TTI_SYNC,
     .infer = sync_infer,
     .shard = sync_moments_shard,
     .cut = sync_moments_cut,
     .cost = tti_cost_move,
     .reference = sync_reference,
     .join = join_moments,
     .samples = sync_samples},
    {.name = "sync_sum",
     .doc = "the sum over all shards",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .traits = TTI_SYNC,
     .infer = sync_infer,
     .shard = sync_sum_shard,
     .cost = tti_cost_move,
     .reference = sync_reference,
     .join = tti_join_sums,
     .samples = sync_samples},
    {.name = "bn_apply",
     .doc =
         "y = act(gamma (x - mean) / sqrt(M2/count + eps) + beta + r), of count 0 act(beta + r); "
         "inputs x, stats, gamma, beta, r?",
     .n_in_min = 4,
     .n_in_max = 5,
     .n_out = 1,
     .attrs = apply_attrs,
     .traits =
         TTI_CHANNELS_LAST | TTI_READS_LOW | TTI_IN_PLACE | TTI_TAKES_EPILOGUE | TTI_TAKES_RESIDUAL,
     .infer = bn_apply_infer,
     .grad = bn_apply_grad,
     .shard = bn_apply_shard,
     .cut = bn_apply_cut,
     .cost = fusable_cost,
     .reference = bn_apply_reference,
     .samples = bn_apply_samples},
    {.name = "bn_apply_pair",
     .doc = "y = act(bn(x) + bn(r)); inputs x, stats, gamma, beta, r, its stats, gamma, beta",
     .n_in_min = 8,
     .n_in_max = 8,
     .n_out = 1,
     .attrs = pair_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_IN_PLACE,
     .infer = bn_apply_pair_infer,
     .shard = bn_apply_pair_shard,
     .cost = bn_cost,
     .reference = bn_apply_pair_reference,
     .samples = bn_apply_pair_samples},
    {.name = "bn_apply_mask",
     .doc =
         "y = relu(bn(x) + r) or relu(bn(x) + bn(r)), and where not y <= 0, 8 channels in a byte; "
         "inputs x, stats, gamma, beta, r, its stats? gamma? beta?",
     .n_in_min = 5,
     .n_in_max = 8,
     .n_out = 2,
     .attrs = mask_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_IN_PLACE,
     .infer = bn_apply_mask_infer,
     .shard = bn_apply_mask_shard,
     .cost = bn_cost,
     .reference = bn_apply_mask_reference,
     .samples = bn_apply_mask_samples},
    {.name = "bn_running",
     .doc = "rows mean[C], rows M2/(count-1)[C]: the new running statistics; inputs stats, "
            "rows",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 2,
     .infer = bn_running_infer,
     .shard = bn_running_shard,
     .cut = bn_running_cut,
     .cost = tti_cost_move,
     .reference = bn_running_reference,
     .samples = bn_running_samples},
    {.name = "bn_eval",
     .doc = "y = act(gamma (x - mean) / sqrt(var + eps) + beta + r); inputs x, mean, var, gamma, "
            "beta, r?",
     .n_in_min = 5,
     .n_in_max = 6,
     .n_out = 1,
     .attrs = apply_attrs,
     .traits =
         TTI_CHANNELS_LAST | TTI_READS_LOW | TTI_IN_PLACE | TTI_TAKES_EPILOGUE | TTI_TAKES_RESIDUAL,
     .infer = bn_eval_infer,
     .shard = bn_eval_shard,
     .cost = fusable_cost,
     .reference = bn_eval_reference,
     .samples = bn_eval_samples},
    {0},
};

/* batch_norm_grad.c - the gradient of bn_apply: sums over dy and xhat, and dx from them.
 *
 * These are separate ops because joined statistics need the sums of all shards.  Both can take dy
 * from before a relu, with y or the values from which y is recomputed; bn_grad_join writes the
 * masked dy as well, and conv2d_grad_join and _sums also compute dy itself, the gradient of a 1x1
 * convolution. */
#include "ops/norm/bn_rules.h"

static const tti_attr_spec join_attrs[] = {{"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"},
                                           {0}};
static const tti_attr_spec grad_attrs[] = {
    {"eps", TTI_ATTR_FLOAT, 1e-5, "added to the variance"},
    {"act", TTI_ATTR_INT, TTI_EPILOGUE_NONE,
     "tti_epilogue: 1: y = relu(..) or what makes it comes last"},
    {0}};

/* ---- infer ---- */

/* After an act, y is recomputed from x; of the n_made values that this takes, beta is the last. */
static bool makes_y(const tti_node *node) {
    return has_act(node) && node->in[node->n_in - 1]->type.shape.n_dims == 1;
}

/* Inputs that make the mask. */
static int n_mask(const tti_node *node, int n_made) {
    return !has_act(node) ? 0 : makes_y(node) ? n_made : 1;
}

/* dy, x, stats first; rows? as input `rows`; the mask last where there is an act: y, or n_made. */
static tutti_status check_grad(const tti_node *node, int rows, int n_made) {
    TTI_TRY(check_attrs(node));
    TTI_TRY(need_planes(node));
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    int n_last = n_mask(node, n_made), n_before = node->n_in - n_last;
    if (n_before != rows && n_before != rows + 1)
        return tti_node_fail(node, "with act %d the op has %d inputs, or %d with rows, not %d",
                             has_act(node), rows + n_last, rows + 1 + n_last, node->n_in);
    if (n_before > rows) TTI_TRY(check_rows(node, rows));
    if (has_act(node) && !makes_y(node)) TTI_TRY(check_like_first(node, node->n_in - 1));
    for (int i = n_before; makes_y(node) && i < node->n_in; i++)
        TTI_TRY(need_vector(node, i, tti_in_dim(node, 0, 1)));
    return need_vector(node, 2, 2 * tti_in_dim(node, 0, 1) + 1);
}

/* {sums, dgamma, dbeta} */
static void sums_types(int64_t n_channels, tutti_type out[3]) {
    out[0] = stats_type(n_channels);
    out[1] = out[2] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(n_channels)};
}

/* dy, x, stats, rows?, y? or gamma? beta? */
static tutti_status bn_grad_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_grad(node, 3, 2));
    sums_types(tti_in_dim(node, 0, 1), out);
    return TUTTI_OK;
}

/* dy, x, stats, gamma, sums, rows?, y? or beta? */
static tutti_status bn_grad_apply_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_grad(node, 5, 1));
    TTI_TRY(need_vector(node, 3, tti_in_dim(node, 0, 1)));
    TTI_TRY(need_vector(node, 4, 2 * tti_in_dim(node, 0, 1) + 1));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* Index of rows (and later inputs) of bn_grad_join, or -1. */
static int join_rows(const tti_node *node) {
    return node->n_in > 4 && node->in[4]->type.dtype == TUTTI_I32 ? 4 : -1;
}
static int join_more(const tti_node *node) {
    int i = join_rows(node) < 0 ? 4 : 5;
    return i < node->n_in ? i : -1;
}

/* For bn_grad_join: y is the mask of bn_apply_mask. */
static bool has_mask(const tti_node *node) { return node->in[1]->type.dtype == TUTTI_U8; }

static tutti_status check_mask(const tti_node *node) {
    char text[128];
    tutti_type want = mask_type(node);
    TTI_TRY(need_masked(node));
    if (tti_shape_equal(tti_in_shape(node, 1), &want.shape)) return TUTTI_OK;
    return tti_node_fail(node, "the mask must be %s", tti_type_text(&want, text, sizeof text));
}

/* dy, y or mask, x, stats, rows?, more? */
static tutti_status bn_grad_join_infer(const tti_node *node, tutti_type *out) {
    int more = join_more(node);
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(need_planes(node));
    TTI_TRY(has_mask(node) ? check_mask(node) : check_like_first(node, 1));
    TTI_TRY(check_like_first(node, 2));
    TTI_TRY(need_vector(node, 3, 2 * tti_in_dim(node, 0, 1) + 1));
    if (join_rows(node) > 0) TTI_TRY(check_rows(node, 4));
    if (more > 0) TTI_TRY(check_like_first(node, more));
    if (more > 0 && node->n_in > more + 1)
        return tti_node_fail(node, "input %d is not expected", more + 1);
    out[0] = node->in[0]->type;
    sums_types(tti_in_dim(node, 0, 1), out + 1);
    return TUTTI_OK;
}

/* Index of rows (and later inputs) of conv2d_grad_join, or -1. */
static int conv_rows(const tti_node *node) {
    return node->n_in > 5 && node->in[5]->type.dtype == TUTTI_I32 ? 5 : -1;
}
static int conv_more(const tti_node *node) {
    int i = conv_rows(node) < 0 ? 5 : 6;
    return i < node->n_in ? i : -1;
}

/* dy[N,O,H,W] and w[O,C,1,1] of x[N,C,H,W]: inputs `at` and the next. */
static tutti_status check_product(const tti_node *node, int at) {
    const tutti_shape *x = tti_in_shape(node, 0), *dy = tti_in_shape(node, at);
    const tutti_shape *w = tti_in_shape(node, at + 1);
    char text[3][128];
    bool fits = x->n_dims == 4 && dy->n_dims == 4 && w->n_dims == 4 && dy->dim[0] == x->dim[0] &&
                dy->dim[2] == x->dim[2] && dy->dim[3] == x->dim[3] && w->dim[0] == dy->dim[1] &&
                w->dim[1] == x->dim[1] && w->dim[2] == 1 && w->dim[3] == 1;
    for (int i = at; i < at + 2; i++) TTI_TRY(tti_need_dtype(node, i, node->in[0]->type.dtype));
    if (fits) return TUTTI_OK;
    for (int i = 0; i < 3; i++)
        tti_type_text(&node->in[i ? at + i - 1 : 0]->type, text[i], sizeof text[i]);
    return tti_node_fail(node,
                         "x, dy and w must be [N,C,H,W], [N,O,H,W], [O,C,1,1]; are %s, %s, %s",
                         text[0], text[1], text[2]);
}

/* x, mask, stats, dy, w, rows?, more? */
static tutti_status conv2d_grad_join_infer(const tti_node *node, tutti_type *out) {
    int more = conv_more(node);
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(need_planes(node));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_U8));
    TTI_TRY(check_mask(node));
    TTI_TRY(need_vector(node, 2, 2 * tti_in_dim(node, 0, 1) + 1));
    TTI_TRY(check_product(node, 3));
    if (conv_rows(node) > 0) TTI_TRY(check_rows(node, 5));
    if (more > 0) TTI_TRY(check_like_first(node, more));
    if (more > 0 && node->n_in > more + 1)
        return tti_node_fail(node, "input %d is not expected", more + 1);
    out[0] = node->in[0]->type;
    sums_types(tti_in_dim(node, 0, 1), out + 1);
    return TUTTI_OK;
}

/* x, stats, gamma, beta, dy, w, rows? */
static tutti_status conv2d_grad_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_eps(node));
    TTI_TRY(need_planes(node));
    TTI_TRY(need_vector(node, 1, 2 * tti_in_dim(node, 0, 1) + 1));
    for (int i = 2; i < 4; i++) TTI_TRY(need_vector(node, i, tti_in_dim(node, 0, 1)));
    TTI_TRY(check_product(node, 4));
    TTI_TRY(check_rows(node, 6));
    out[0] = node->in[0]->type;
    sums_types(tti_in_dim(node, 0, 1), out + 1);
    return TUTTI_OK;
}

/* ---- references ---- */

/* As rows_of, for the gradients, whose last inputs may be n_made values or 1 for a mask. */
static size_t grad_rows_of(const tti_args *a, int i, size_t n, int n_made) {
    return a->node->n_in - n_mask(a->node, n_made) > i ? rows_of(a, i, n) : n;
}

/* Element i of dy, of channel c, after the mask of act; gamma is input g if y is recomputed. */
static double dy_at(const tti_args *a, size_t i, size_t c, int g) {
    const tti_node *node = a->node;
    const double *last = a->in[node->n_in - 1];
    if (!has_act(node)) return a->in[0][i];
    if (!makes_y(node)) return last[i] <= 0 ? 0 : a->in[0][i];
    const double *stats = a->in[2];
    double rstd = rstd_of(stats[0], stats[1 + planes_of(node).c + c], tti_attr_float(node, "eps"));
    double y = (a->in[1][i] - stats[1 + c]) * (a->in[g][c] * rstd) + last[c];
    return y <= 0 ? 0 : a->in[0][i];
}

static void bn_grad_sums_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    size_t rows = grad_rows_of(a, 3, p.n, 2);
    double eps = tti_attr_float(a->node, "eps");
    const double *x = a->in[1], *stats = a->in[2];
    a->out[0][0] = (double)(rows * p.s);
    for (size_t c = 0; c < p.c; c++) {
        double mean = stats[1 + c], rstd = rstd_of(stats[0], stats[1 + p.c + c], eps);
        double sum = 0, dot = 0;
        for (size_t n = 0; n < rows; n++)
            for (size_t i = (n * p.c + c) * p.s; i < (n * p.c + c + 1) * p.s; i++) {
                double dy = dy_at(a, i, c, a->node->n_in - 2);
                sum += dy;
                dot += dy * (x[i] - mean) * rstd;
            }
        put_sums(a->out, p.c, c, sum, dot);
    }
}

/* The inputs of a join: dz is dy where mask (bits if packed) is set; includes more and rows. */
typedef struct joined {
    const double *x, *mask, *stats;
    bool packed;
    size_t rows;
} joined;

/* Whether element i of dy counts. */
static bool passes(const joined *j, const planes *p, size_t i) {
    if (!j->packed) return !(j->mask[i] <= 0);
    return ((int)j->mask[mask_byte(p, i)] >> mask_bit(p, i) & 1) != 0;
}

/* dz is dy + more at first. */
static void join_reference(const tti_args *a, const joined *j) {
    planes p = planes_of(a->node);
    double eps = tti_attr_float(a->node, "eps"), *dz = a->out[0];
    a->out[1][0] = (double)(j->rows * p.s);
    for (size_t c = 0; c < p.c; c++) {
        double mean = j->stats[1 + c], rstd = rstd_of(j->stats[0], j->stats[1 + p.c + c], eps);
        double sum = 0, dot = 0;
        for (size_t n = 0; n < p.n; n++)
            for (size_t i = (n * p.c + c) * p.s; i < (n * p.c + c + 1) * p.s; i++) {
                if (!passes(j, &p, i)) dz[i] = 0;
                if (n >= j->rows) continue;
                sum += dz[i];
                dot += dz[i] * (j->x[i] - mean) * rstd;
            }
        put_sums(a->out + 1, p.c, c, sum, dot);
    }
}

static void bn_grad_join_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    int rows = join_rows(a->node), more = join_more(a->node);
    joined j = {.x = a->in[2], .mask = a->in[1], .stats = a->in[3], .packed = has_mask(a->node)};
    j.rows = rows > 0 ? rows_of(a, rows, p.n) : p.n;
    for (size_t i = 0; i < p.n * p.c * p.s; i++)
        a->out[0][i] = a->in[0][i] + (more > 0 ? a->in[more][i] : 0);
    join_reference(a, &j);
}

/* Element i of x's gradient: of dy and w, inputs `at` and the next. */
static double product_at(const tti_args *a, int at, const planes *p, size_t i) {
    size_t n_out = (size_t)tti_in_dim(a->node, at, 1), c = i / p->s % p->c;
    size_t first = i / p->s / p->c * n_out * p->s + i % p->s;
    double sum = 0;
    for (size_t o = 0; o < n_out; o++)
        sum += a->in[at][first + o * p->s] * a->in[at + 1][o * p->c + c];
    return sum;
}

static void conv2d_grad_join_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    int rows = conv_rows(a->node), more = conv_more(a->node);
    joined j = {.x = a->in[0], .mask = a->in[1], .stats = a->in[2], .packed = true};
    j.rows = rows > 0 ? rows_of(a, rows, p.n) : p.n;
    for (size_t i = 0; i < p.n * p.c * p.s; i++)
        a->out[0][i] = product_at(a, 3, &p, i) + (more > 0 ? a->in[more][i] : 0);
    join_reference(a, &j);
}

static void conv2d_grad_sums_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    size_t rows = rows_of(a, 6, p.n);
    double eps = tti_attr_float(a->node, "eps");
    const double *x = a->in[0], *stats = a->in[1];
    a->out[1][0] = (double)(rows * p.s);
    for (size_t i = 0; i < p.n * p.c * p.s; i++) a->out[0][i] = product_at(a, 4, &p, i);
    for (size_t c = 0; c < p.c; c++) {
        double mean = stats[1 + c], rstd = rstd_of(stats[0], stats[1 + p.c + c], eps);
        double sum = 0, dot = 0;
        for (size_t n = 0; n < rows; n++)
            for (size_t i = (n * p.c + c) * p.s; i < (n * p.c + c + 1) * p.s; i++) {
                bool passes = !((x[i] - mean) * (a->in[2][c] * rstd) + a->in[3][c] <= 0);
                sum += passes ? a->out[0][i] : 0;
                dot += passes ? a->out[0][i] * (x[i] - mean) * rstd : 0;
            }
        put_sums(a->out + 1, p.c, c, sum, dot);
    }
}

static void bn_grad_apply_reference(const tti_args *a) {
    planes p = planes_of(a->node);
    size_t rows = grad_rows_of(a, 5, p.n, 1);
    double eps = tti_attr_float(a->node, "eps");
    const double *x = a->in[1], *stats = a->in[2], *sums = a->in[4];
    double count = fmax(sums[0], 1);
    for (size_t c = 0; c < p.c; c++) {
        double mean = stats[1 + c], rstd = rstd_of(stats[0], stats[1 + p.c + c], eps);
        double dy_mean = sums[1 + c] / count, dot_mean = sums[1 + p.c + c] / count;
        for (size_t n = 0; n < p.n; n++)
            for (size_t i = (n * p.c + c) * p.s; i < (n * p.c + c + 1) * p.s; i++) {
                double through = dy_at(a, i, c, 3) - dy_mean - (x[i] - mean) * rstd * dot_mean;
                a->out[0][i] = n < rows ? a->in[3][c] * rstd * through : 0;
            }
    }
}

/* ---- shard ---- */

/* Also without rows, in a graph whose samples all count; y is placed like dy, and every worker has
 * the values that recompute it. */
static tutti_status bn_grad_sums_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[2][2][3] = {
        {{{"00O0", "PPP"}, {"00W0", "PPP"}},
         {{"00OW0", "PPP"}, {"00OP0", "PPP"}, {"00WP0", "PPP"}}},
        {{{"00OWW", "PPP"}, {"00WWW", "PPP"}},
         {{"00OWWW", "PPP"}, {"00OPWW", "PPP"}, {"00WPWW", "PPP"}}}};
    bool has_rows = node->n_in - n_mask(node, 2) > 3;
    return tti_shard_match(node, rules[makes_y(node)][has_rows], has_rows ? 3 : 2, in, out,
                           planes_why);
}

static tutti_status bn_grad_join_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[2][3] = {
        {{"000O0", "0PPP"}, {"000W0", "0PPP"}},
        {{"000OW0", "0PPP"}, {"000OP0", "0PPP"}, {"000WP0", "0PPP"}}};
    bool has_rows = join_rows(node) > 0;
    return tti_shard_match(node, rules[has_rows], has_rows ? 3 : 2, in, out, planes_why);
}

static tutti_status conv2d_grad_join_shard(const tti_node *node, const tti_placement *in,
                                           tti_placement *out) {
    static const tti_shard_rule rules[2][3] = {
        {{"00O0W0", "0PPP"}, {"00W0W0", "0PPP"}},
        {{"00O0WW0", "0PPP"}, {"00O0WP0", "0PPP"}, {"00W0WP0", "0PPP"}}};
    bool has_rows = conv_rows(node) > 0;
    return tti_shard_match(node, rules[has_rows], has_rows ? 3 : 2, in, out, planes_why);
}

static tutti_status conv2d_grad_sums_shard(const tti_node *node, const tti_placement *in,
                                           tti_placement *out) {
    static const tti_shard_rule rules[] = {
        {"0OWW0WW", "0PPP"}, {"0OWW0WP", "0PPP"}, {"0WWW0WP", "0PPP"}};
    static const tti_shard_rule without[] = {{"0OWW0W", "0PPP"}, {"0WWW0W", "0PPP"}};
    return node->n_in > 6 ? tti_shard_match(node, rules, 3, in, out, planes_why)
                          : tti_shard_match(node, without, 2, in, out, planes_why);
}

static void conv2d_grad_sums_cost(const tti_node *node, tti_cost *cost) {
    double terms = (double)tti_in_dim(node, 4, 1);
    tti_cost_flops(node, (2 * terms + 6) * (double)tti_in_n(node, 0), cost);
}

static void conv2d_grad_join_cost(const tti_node *node, tti_cost *cost) {
    double terms = (double)tti_in_dim(node, 3, 1);
    tti_cost_flops(node, (2 * terms + 5) * (double)tti_in_n(node, 0), cost);
}

static tutti_status bn_grad_apply_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[2][2][3] = {
        {{{"00OWP0", "0"}, {"00WWW0", "0"}},
         {{"00OWPW0", "0"}, {"00OWPP0", "0"}, {"00WWWP0", "0"}}},
        {{{"00OWPW", "0"}, {"00WWWW", "0"}},
         {{"00OWPWW", "0"}, {"00OWPPW", "0"}, {"00WWWPW", "0"}}}};
    bool has_rows = node->n_in - n_mask(node, 1) > 5;
    return tti_shard_match(node, rules[makes_y(node)][has_rows], has_rows ? 3 : 2, in, out,
                           planes_why);
}

/* ---- records ---- */

static const tti_sample bn_grad_sums_samples[] = {
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[13]", .lo = 0.5, .hi = 2},
    {.in = "f32[3,2,2,2] f32[3,2,2,2] f32[5] i32[]", .lo = 0.5, .hi = 2, .int_lo = 2, .int_hi = 2},
    {.in = "f32[0,2] f32[0,2] f32[5]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[13] f32[4,6,3,5]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,2,2,2] f32[4,2,2,2] f32[5] i32[] f32[4,2,2,2]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 2,
     .int_hi = 2},
    {.in = "bf16[4,2,3] bf16[4,2,3] f32[5] bf16[4,2,3]", .attrs = "act=1 eps=9", .lo = -2, .hi = 2},
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[13] f32[6] f32[6]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,2,2,2] f32[4,2,2,2] f32[5] i32[] f32[2] f32[2]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 2,
     .int_hi = 2},
    {.in = "f32[64,32,9,9] f32[64,32,9,9] f32[65]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[6]", .attrs = "act=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[6] f32[5]", .attrs = "act=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13]", .attrs = "act=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[4,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] i32[]", .attrs = "act=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] i32[] f32[4,5]", .attrs = "act=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,5] f32[13]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[11]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_grad_join_samples[] = {
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[4,6,3,5] f32[13]", .attrs = "eps=9", .lo = -2, .hi = 2},
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[4,6,3,5] f32[13] f32[4,6,3,5]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,16,2,2] f32[4,16,2,2] f32[4,16,2,2] f32[33] i32[] f32[4,16,2,2]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 2,
     .int_hi = 2},
    {.in = "bf16[4,2,3] bf16[4,2,3] bf16[4,2,3] f32[5] i32[]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 3,
     .int_hi = 3},
    {.in = "f32[0,2] f32[0,2] f32[0,2] f32[5] f32[0,2]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,16,3,5] u8[4,2,3,5] f32[4,16,3,5] f32[33] f32[4,16,3,5]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 0,
     .int_hi = 255},
    {.in = "f32[6,64,2,2] u8[6,8,2,2] f32[6,64,2,2] f32[129] i32[]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 3,
     .int_hi = 5},
    {.in = "f32[4,6] u8[4,1] f32[4,6] f32[13]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8] u8[4,2] f32[4,8] f32[17]", .expect = TUTTI_E_INVALID},
    {.in = "f32[64,32,9,9] f32[64,32,9,9] f32[64,32,9,9] f32[65] f32[64,32,9,9]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[12]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,5] f32[4,6] f32[13]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[13] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[13] f32[4,6] f32[4,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[13]", .attrs = "eps=0", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample conv2d_grad_join_samples[] = {
    {.in = "f32[4,16,3,5] u8[4,2,3,5] f32[33] f32[4,6,3,5] f32[6,16,1,1] f32[4,16,3,5]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 0,
     .int_hi = 255},
    {.in = "f32[6,8,2,2] u8[6,1,2,2] f32[17] f32[6,3,2,2] f32[3,8,1,1]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 0,
     .int_hi = 255},
    {.in = "f32[6,64,2,2] u8[6,8,2,2] f32[129] f32[6,16,2,2] f32[16,64,1,1] i32[] f32[6,64,2,2]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 3,
     .int_hi = 5},
    {.in = "f32[6,8,2,2] u8[6,1,2,2] f32[17] f32[6,3,2,2] f32[3,8,1,1] i32[]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 4,
     .int_hi = 4},
    {.in = "f32[0,8,2,2] u8[0,1,2,2] f32[17] f32[0,3,2,2] f32[3,8,1,1]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[17] f32[4,3,2,2] f32[3,8,1,1]",
     .attrs = "eps=0",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] f32[4,8,2,2] f32[17] f32[4,3,2,2] f32[3,8,1,1]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[16] f32[4,3,2,2] f32[3,8,1,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[17] f32[4,3,2,3] f32[3,8,1,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[17] f32[4,3,2,2] f32[3,8,3,3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[17] f32[4,3,2,2] f32[4,8,1,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[17] bf16[4,3,2,2] bf16[3,8,1,1]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] u8[4,1,2,2] f32[17] f32[4,3,2,2] f32[3,8,1,1] f32[4,8,2,2] f32[4,8,2,2]",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample conv2d_grad_sums_samples[] = {
    {.in = "f32[4,16,3,5] f32[33] f32[16] f32[16] f32[4,6,3,5] f32[6,16,1,1]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[6,7,2,2] f32[15] f32[7] f32[7] f32[6,3,2,2] f32[3,7,1,1] i32[]",
     .attrs = "eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 4,
     .int_hi = 4},
    {.in = "f32[0,8,2,2] f32[17] f32[8] f32[8] f32[0,3,2,2] f32[3,8,1,1]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,8,2,2] f32[17] f32[8] f32[8] f32[4,3,2,2] f32[3,8,1,1]",
     .attrs = "eps=0",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] f32[16] f32[8] f32[8] f32[4,3,2,2] f32[3,8,1,1]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] f32[17] f32[8] f32[7] f32[4,3,2,2] f32[3,8,1,1]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] f32[17] f32[8] f32[8] f32[4,3,2,2] f32[3,8,2,1]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] f32[17] f32[8] f32[8] f32[3,3,2,2] f32[3,8,1,1]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[4,8,2,2] f32[17] f32[8] f32[8] f32[4,3,2,2] f32[3,8,1,1] i32[1]",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample bn_grad_apply_samples[] = {
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[13] f32[6] f32[13]", .lo = 0.5, .hi = 2},
    {.in = "f32[3,2,2,2] f32[3,2,2,2] f32[5] f32[2] f32[5] i32[]",
     .lo = 0.5,
     .hi = 2,
     .int_lo = 2,
     .int_hi = 2},
    {.in = "f32[0,2] f32[0,2] f32[5] f32[2] f32[5]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[13] f32[6] f32[13] f32[4,6,3,5]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,2,2,2] f32[4,2,2,2] f32[5] f32[2] f32[5] i32[] f32[4,2,2,2]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 2,
     .int_hi = 2},
    {.in = "bf16[4,2,3] bf16[4,2,3] f32[5] f32[2] f32[5] bf16[4,2,3]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,6,3,5] f32[4,6,3,5] f32[13] f32[6] f32[13] f32[6]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2},
    {.in = "f32[4,16,2,2] f32[4,16,2,2] f32[33] f32[16] f32[33] i32[] f32[16]",
     .attrs = "act=1 eps=9",
     .lo = -2,
     .hi = 2,
     .int_lo = 2,
     .int_hi = 2},
    {.in = "f32[64,32,9,9] f32[64,32,9,9] f32[65] f32[32] f32[65]", .lo = 0.5, .hi = 2},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[6] f32[13]", .attrs = "act=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[6] f32[13] f32[4,6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[5] f32[13]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[13] f32[6] f32[12]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_batch_norm_grad[] = {
    {.name = "bn_grad_sums",
     .doc = "{count, sum dy[C], sum dy xhat[C]}, dgamma, dbeta; dy unless y <= 0; inputs dy, x, "
            "stats, rows?, y? or gamma?, beta? that make it",
     .n_in_min = 3,
     .n_in_max = 6,
     .n_out = 3,
     .attrs = grad_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_TAKES_MASK,
     .infer = bn_grad_sums_infer,
     .shard = bn_grad_sums_shard,
     .cost = fusable_cost,
     .reference = bn_grad_sums_reference,
     .samples = bn_grad_sums_samples},
    {.name = "bn_grad_join",
     .doc = "dz = dy + more unless y <= 0, and bn_grad_sums of dz; inputs dy, y or bn_apply_mask's "
            "mask, x, stats, rows?, more?",
     .n_in_min = 4,
     .n_in_max = 6,
     .n_out = 4,
     .attrs = join_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_IN_PLACE,
     .infer = bn_grad_join_infer,
     .shard = bn_grad_join_shard,
     .cost = bn_cost,
     .reference = bn_grad_join_reference,
     .samples = bn_grad_join_samples},
    {.name = "conv2d_grad_join",
     .doc = "bn_grad_join of the gradient of a 1x1 convolution; inputs x, bn_apply_mask's mask, "
            "stats, dy[N,O,H,W], w[O,C,1,1], rows?, more?",
     .n_in_min = 5,
     .n_in_max = 7,
     .n_out = 4,
     .attrs = join_attrs,
     .traits = TTI_CHANNELS_LAST,
     .weights_in = 1u << 4,
     .infer = conv2d_grad_join_infer,
     .shard = conv2d_grad_join_shard,
     .cost = conv2d_grad_join_cost,
     .reference = conv2d_grad_join_reference,
     .samples = conv2d_grad_join_samples},
    {.name = "conv2d_grad_sums",
     .doc = "the gradient of a 1x1 convolution, and bn_grad_sums of it unless y <= 0; inputs x, "
            "stats, "
            "gamma, beta, dy[N,O,H,W], w[O,C,1,1], rows?",
     .n_in_min = 6,
     .n_in_max = 7,
     .n_out = 4,
     .attrs = join_attrs,
     .traits = TTI_CHANNELS_LAST,
     .weights_in = 1u << 5,
     .infer = conv2d_grad_sums_infer,
     .shard = conv2d_grad_sums_shard,
     .cost = conv2d_grad_sums_cost,
     .reference = conv2d_grad_sums_reference,
     .samples = conv2d_grad_sums_samples},
    {.name = "bn_grad_apply",
     .doc = "dx = gamma rstd (dy - mean dy - xhat mean(dy xhat)), dy unless y <= 0, 0 beyond rows; "
            "inputs dy, x, stats, gamma, sums, rows?, y? or beta? that makes it",
     .n_in_min = 5,
     .n_in_max = 7,
     .n_out = 1,
     .attrs = grad_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_IN_PLACE | TTI_TAKES_MASK,
     .infer = bn_grad_apply_infer,
     .shard = bn_grad_apply_shard,
     .cost = fusable_cost,
     .reference = bn_grad_apply_reference,
     .samples = bn_grad_apply_samples},
    {0},
};

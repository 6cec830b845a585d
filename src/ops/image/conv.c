/* conv.c - 2-D convolution (in networks' sense: correlation) and its two gradients.
 *
 *   y[n,o,p,q] = act(b[o] + sum over c,i,j of w[o,c,i,j] x[n,c',
 *                p stride - pad + i dilation, ..])
 *
 * where c' runs over the input channels of o's group, and x is 0 outside.  The three ops visit the
 * same (o, c, i, j, p, q) terms, so one loop serves all three references. */
#include <string.h>

#include "ops/norm/bn_rules.h"
#include "tutti/ops.h"

/* The common attributes of the three ops. */
#define STRIDE \
    { "stride", TTI_ATTR_INTS, 0, "[down, across], empty: 1" }
#define PAD \
    { "pad", TTI_ATTR_INTS, 0, "zeros on both sides, empty: 0" }
#define DILATION \
    { "dilation", TTI_ATTR_INTS, 0, "distance of the kernel's elements, empty: 1" }
#define GROUPS \
    { "groups", TTI_ATTR_INT, 1, "divides C and O" }

static const tti_attr_spec conv_attrs[] = {
    STRIDE,
    PAD,
    DILATION,
    GROUPS,
    {"act", TTI_ATTR_INT, TTI_EPILOGUE_NONE, "tti_epilogue: 0 none, 1 relu"},
    {0}};
static const tti_attr_spec stats_attrs[] = {STRIDE, PAD, DILATION, GROUPS, {0}};
static const tti_attr_spec grad_x_attrs[] = {
    STRIDE, PAD, DILATION, GROUPS, {"in_hw", TTI_ATTR_INTS, 0, "[H, W] of x"}, {0}};
static const tti_attr_spec grad_w_attrs[] = {
    STRIDE,
    PAD,
    DILATION,
    GROUPS,
    {"kernel", TTI_ATTR_INTS, 0, "[Kh, Kw]"},
    {"bias", TTI_ATTR_INT, 1, "0: db is not read and may be left out"},
    {0}};

static const int64_t ones[2] = {1, 1}, zeros[2] = {0, 0};

/* The sizes of one convolution: x[n,c,h,w] * w[o,c/groups,kernel] -> y[n,o,out]. */
typedef struct conv_sizes {
    int64_t n, c, o, groups;
    int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
} conv_sizes;

/* Reads the attributes; the caller adds the shapes. */
static tutti_status read_window(const tti_node *node, conv_sizes *s) {
    TTI_TRY(tti_get_pair(node, "stride", 1, ones, s->stride));
    TTI_TRY(tti_get_pair(node, "pad", 0, zeros, s->pad));
    TTI_TRY(tti_get_pair(node, "dilation", 1, ones, s->dilation));
    s->groups = tti_attr_int(node, "groups");
    if (s->groups < 1)
        return tti_node_fail(node, "groups must be >= 1, is %lld", (long long)s->groups);
    return TUTTI_OK;
}

/* s->out from the rest, or why not. */
static tutti_status fit_window(const tti_node *node, conv_sizes *s) {
    for (int d = 0; d < 2; d++) {
        int64_t reach = s->dilation[d] * (TTI_MIN(s->kernel[d], 1 << 24) - 1) + 1;
        if (s->kernel[d] < 1 || s->kernel[d] > 1 << 24 || reach > s->in[d] + 2 * s->pad[d])
            return tti_node_fail(node,
                                 "kernel %lldx%lld does not fit an input of %lldx%lld with pad "
                                 "%lldx%lld and dilation %lldx%lld",
                                 (long long)s->kernel[0], (long long)s->kernel[1],
                                 (long long)s->in[0], (long long)s->in[1], (long long)s->pad[0],
                                 (long long)s->pad[1], (long long)s->dilation[0],
                                 (long long)s->dilation[1]);
        s->out[d] = (s->in[d] + 2 * s->pad[d] - reach) / s->stride[d] + 1;
    }
    if (s->c % s->groups || s->o % s->groups)
        return tti_node_fail(node, "groups %lld must divide %lld input and %lld output channels",
                             (long long)s->groups, (long long)s->c, (long long)s->o);
    return TUTTI_OK;
}

/* Channels and kernel from a weight [O,C/groups,Kh,Kw]. */
static void take_weight(const tutti_shape *w, conv_sizes *s) {
    s->o = w->dim[0];
    s->kernel[0] = w->dim[2], s->kernel[1] = w->dim[3];
}

/* ---- conv2d ---- */

static tutti_status conv2d_sizes(const tti_node *node, conv_sizes *s) {
    const tutti_shape *x = tti_in_shape(node, 0), *w = tti_in_shape(node, 1);
    TTI_TRY(tti_need_n_dims(node, 0, 4));
    TTI_TRY(tti_need_n_dims(node, 1, 4));
    TTI_TRY(read_window(node, s));
    take_weight(w, s);
    s->n = x->dim[0], s->c = x->dim[1], s->in[0] = x->dim[2], s->in[1] = x->dim[3];
    TTI_TRY(fit_window(node, s));
    if (w->dim[1] != s->c / s->groups)
        return tti_node_fail(node,
                             "the weight is for %lld channels in each of %lld groups, the "
                             "input has %lld",
                             (long long)w->dim[1], (long long)s->groups, (long long)s->c);
    return TUTTI_OK;
}

static tutti_status conv2d_infer(const tti_node *node, tutti_type *out) {
    conv_sizes s;
    int64_t act = tti_attr_int(node, "act");
    TTI_TRY(tti_need_floats(node, 0, node->n_in));
    TTI_TRY(conv2d_sizes(node, &s));
    if (act != TTI_EPILOGUE_NONE && act != TTI_EPILOGUE_RELU)
        return tti_node_fail(node, "act must be 0 or 1, is %lld", (long long)act);
    if (node->n_in == 3) TTI_TRY(tti_need_n_dims(node, 2, 1));
    if (node->n_in == 3 && tti_in_dim(node, 2, 0) != s.o)
        return tti_node_fail(node, "bias has %lld elements, the weight has %lld output channels",
                             (long long)tti_in_dim(node, 2, 0), (long long)s.o);
    out[0] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.n, s.o, s.out[0], s.out[1])};
    return TUTTI_OK;
}

/* n terms of one weight along an output row: the first elements of x, w and y; those of x are
 * `stride` apart. */
typedef void (*terms_fn)(const tti_args *a, size_t x, size_t stride, size_t w, size_t y, size_t n);

static void forward_terms(const tti_args *a, size_t x, size_t stride, size_t w, size_t y,
                          size_t n) {
    const double *in = a->in[0] + x, weight = a->in[1][w];
    double *out = a->out[0] + y;
    for (size_t q = 0; q < n; q++) out[q] += in[q * stride] * weight;
}

static void grad_x_terms(const tti_args *a, size_t x, size_t stride, size_t w, size_t y, size_t n) {
    const double *dy = a->in[0] + y, weight = a->in[1][w];
    double *dx = a->out[0] + x;
    for (size_t q = 0; q < n; q++) dx[q * stride] += dy[q] * weight;
}

static void grad_w_terms(const tti_args *a, size_t x, size_t stride, size_t w, size_t y, size_t n) {
    const double *dy = a->in[0] + y, *in = a->in[1] + x;
    double sum = a->out[0][w];
    for (size_t q = 0; q < n; q++) sum += dy[q] * in[q * stride];
    a->out[0][w] = sum;
}

/* The smallest q with q stride + at >= least, at least 0. */
static int64_t first_at(int64_t least, int64_t at, int64_t stride) {
    return least <= at ? 0 : (least - at + stride - 1) / stride;
}

/* The terms of one output row (n, o, p), from left to right for each element of x, w and y: those
 * of an element of x have smaller j the further right they are. */
static void walk_row(const conv_sizes *s, const int64_t at[3], terms_fn terms, const tti_args *a) {
    int64_t n = at[0], o = at[1], p = at[2];
    int64_t cg = s->c / s->groups, c0 = o / (s->o / s->groups) * cg;
    for (int64_t ci = 0; ci < cg * s->kernel[0]; ci++) {
        int64_t c = ci / s->kernel[0], i = ci % s->kernel[0];
        int64_t h = p * s->stride[0] - s->pad[0] + i * s->dilation[0];
        if (h < 0 || h >= s->in[0]) continue;
        for (int64_t k = 0; k < s->kernel[1]; k++) {
            int64_t j = terms == grad_x_terms ? s->kernel[1] - 1 - k : k;
            int64_t v = j * s->dilation[1] - s->pad[1], stride = s->stride[1];
            int64_t q = first_at(0, v, stride);
            int64_t end = TTI_MIN(first_at(s->in[1], v, stride), s->out[1]);
            if (q >= end) continue;
            int64_t x = ((n * s->c + c0 + c) * s->in[0] + h) * s->in[1] + v + q * stride;
            terms(a, (size_t)x, (size_t)stride,
                  (size_t)((o * cg * s->kernel[0] + ci) * s->kernel[1] + j),
                  (size_t)(((n * s->o + o) * s->out[0] + p) * s->out[1] + q), (size_t)(end - q));
        }
    }
}

static void walk(const conv_sizes *s, terms_fn terms, const tti_args *a) {
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < s->o; o++)
            for (int64_t p = 0; p < s->out[0]; p++) walk_row(s, (int64_t[]){n, o, p}, terms, a);
}

static void conv2d_reference(const tti_args *a) {
    conv_sizes s;
    TTI_ASSERT(conv2d_sizes(a->node, &s) == TUTTI_OK);
    size_t n = tti_out_n(a->node, 0), plane = (size_t)(s.out[0] * s.out[1]);
    for (size_t i = 0; i < n; i++)
        a->out[0][i] = a->node->n_in == 3 ? a->in[2][i / plane % (size_t)s.o] : 0;
    walk(&s, forward_terms, a);
    if (tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU)
        for (size_t i = 0; i < n; i++)
            if (a->out[0][i] < 0) a->out[0][i] = 0;
}

static tutti_status conv2d_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    tutti_value *dz = tti_grad_act(g, node, dy[0]), *dw[2];
    const tutti_shape *x = tti_in_shape(node, 0), *w = tti_in_shape(node, 1);
    bool need_b = node->n_in == 3 && need[2];
    tti_attr_arg attrs[7] = {tti_same_attr(node, "stride"), tti_same_attr(node, "pad"),
                             tti_same_attr(node, "dilation"), tti_same_attr(node, "groups")};
    if (need[0]) {
        attrs[4] = TTI_INTS("in_hw", 2, &x->dim[2]);
        dx[0] =
            tti_grad_emit(g, node, "conv2d_grad_x", (tutti_value *[]){dz, node->in[1]}, 2, attrs);
    }
    if (!need[1] && !need_b) return tutti_graph_check(g);
    attrs[4] = TTI_INTS("kernel", 2, &w->dim[2]);
    attrs[5] = TTI_INT("bias", need_b);
    tti_emit_n(g, "conv2d_grad_w", node->name, (tutti_value *[]){dz, node->in[0]}, 2, attrs, dw);
    if (need[1]) dx[1] = dw[0];
    if (need_b) dx[2] = dw[1];
    return tutti_graph_check(g);
}

/* ---- conv2d_stats: y, and what bn_stats says of it ---- */

/* x, w, rows? */
static tutti_status conv2d_stats_infer(const tti_node *node, tutti_type *out) {
    conv_sizes s;
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(conv2d_sizes(node, &s));
    TTI_TRY(check_rows(node, 2));
    out[0] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.n, s.o, s.out[0], s.out[1])};
    out[1] = stats_type(s.o);
    return TUTTI_OK;
}

static void conv2d_stats_reference(const tti_args *a) {
    conv_sizes s;
    TTI_ASSERT(conv2d_sizes(a->node, &s) == TUTTI_OK);
    planes p = {(size_t)s.n, (size_t)s.o, (size_t)(s.out[0] * s.out[1])};
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    walk(&s, forward_terms, a);
    put_moments(a->out[0], &p, rows_of(a, 2, p.n), a->out[1]);
}

/* ---- conv2d_grad_x: dx[n,c,h,w] from dy[n,o,out] and w ---- */

/* The gradient ops know y's plane from dy; it must be what the window gives. */
static tutti_status check_plane(const tti_node *node, const conv_sizes *s) {
    const tutti_shape *dy = tti_in_shape(node, 0);
    if (dy->dim[1] == s->o && dy->dim[2] == s->out[0] && dy->dim[3] == s->out[1]) return TUTTI_OK;
    return tti_node_fail(node, "dy must have %lld channels of %lldx%lld, has %lld of %lldx%lld",
                         (long long)s->o, (long long)s->out[0], (long long)s->out[1],
                         (long long)dy->dim[1], (long long)dy->dim[2], (long long)dy->dim[3]);
}

static tutti_status grad_x_sizes(const tti_node *node, conv_sizes *s) {
    const tutti_shape *w = tti_in_shape(node, 1);
    TTI_TRY(tti_need_n_dims(node, 0, 4));
    TTI_TRY(tti_need_n_dims(node, 1, 4));
    TTI_TRY(read_window(node, s));
    TTI_TRY(tti_get_pair(node, "in_hw", 0, NULL, s->in));
    take_weight(w, s);
    s->n = tti_in_dim(node, 0, 0);
    if (__builtin_mul_overflow(w->dim[1], s->groups, &s->c))
        return tti_node_fail(node, "groups %lld is too large", (long long)s->groups);
    TTI_TRY(fit_window(node, s));
    return check_plane(node, s);
}

static tutti_status conv2d_grad_x_infer(const tti_node *node, tutti_type *out) {
    conv_sizes s;
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(grad_x_sizes(node, &s));
    out[0] = (tutti_type){node->in[0]->type.dtype, TUTTI_SHAPE(s.n, s.c, s.in[0], s.in[1])};
    return TUTTI_OK;
}

static void conv2d_grad_x_reference(const tti_args *a) {
    conv_sizes s;
    TTI_ASSERT(grad_x_sizes(a->node, &s) == TUTTI_OK);
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    walk(&s, grad_x_terms, a);
}

/* As an op of its own it is the transposed convolution: linear in dy and in w. */
static tutti_status conv2d_grad_x_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                       const bool *need, tutti_value **dx) {
    tutti_value *dw[2];
    tti_attr_arg attrs[7] = {tti_same_attr(node, "stride"), tti_same_attr(node, "pad"),
                             tti_same_attr(node, "dilation"), tti_same_attr(node, "groups")};
    if (need[0])
        dx[0] = tti_grad_emit(g, node, "conv2d", (tutti_value *[]){dy[0], node->in[1]}, 2, attrs);
    if (!need[1]) return tutti_graph_check(g);
    attrs[4] = TTI_INTS("kernel", 2, &tti_in_shape(node, 1)->dim[2]);
    attrs[5] = TTI_INT("bias", 0);
    tti_emit_n(g, "conv2d_grad_w", node->name, (tutti_value *[]){node->in[0], dy[0]}, 2, attrs, dw);
    dx[1] = dw[0];
    return tutti_graph_check(g);
}

/* ---- conv2d_grad_w: dw[o,c/groups,kernel], db[o] from dy and x ---- */

static tutti_status grad_w_sizes(const tti_node *node, conv_sizes *s) {
    const tutti_shape *dy = tti_in_shape(node, 0), *x = tti_in_shape(node, 1);
    TTI_TRY(tti_need_n_dims(node, 0, 4));
    TTI_TRY(tti_need_n_dims(node, 1, 4));
    TTI_TRY(read_window(node, s));
    TTI_TRY(tti_get_pair(node, "kernel", 1, NULL, s->kernel));
    s->n = x->dim[0], s->c = x->dim[1], s->in[0] = x->dim[2], s->in[1] = x->dim[3];
    s->o = dy->dim[1];
    if (dy->dim[0] != s->n) return tti_node_fail(node, "dy and x must have the same samples");
    TTI_TRY(fit_window(node, s));
    return check_plane(node, s);
}

static tutti_status conv2d_grad_w_infer(const tti_node *node, tutti_type *out) {
    conv_sizes s;
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(grad_w_sizes(node, &s));
    tutti_dtype dtype = node->in[0]->type.dtype;
    out[0] = (tutti_type){dtype, TUTTI_SHAPE(s.o, s.c / s.groups, s.kernel[0], s.kernel[1])};
    out[1] = (tutti_type){dtype, TUTTI_SHAPE(s.o)};
    return TUTTI_OK;
}

static void conv2d_grad_w_reference(const tti_args *a) {
    conv_sizes s;
    TTI_ASSERT(grad_w_sizes(a->node, &s) == TUTTI_OK);
    size_t n = tti_in_n(a->node, 0), plane = (size_t)(s.out[0] * s.out[1]);
    memset(a->out[0], 0, tti_out_n(a->node, 0) * sizeof(double));
    memset(a->out[1], 0, tti_out_n(a->node, 1) * sizeof(double));
    for (size_t i = 0; i < n; i++) a->out[1][i / plane % (size_t)s.o] += a->in[0][i];
    walk(&s, grad_w_terms, a);
}

/* ---- shard and cost ---- */

static const char channels_why[] =
    "only samples, or the channels of an ungrouped convolution, can be split, and neither bias nor "
    "activation may follow a partial sum";

/* The rules in front need one group of channels; those for samples and terms do not. */
static tutti_status conv_shard(const tti_node *node, const tti_placement *in, tti_placement *out,
                               const tti_shard_rule rules[5]) {
    int skip = tti_attr_int(node, "groups") == 1 ? 0 : 2;
    return tti_shard_match(node, rules + skip, 5 - skip, in, out, channels_why);
}

static tutti_status conv2d_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[5] = {
        {"W00", "1"}, {"11-", "P"}, {"0WW", "0"}, {"PW-", "P"}, {"WP-", "P"}};
    static const tti_shard_rule with_act[5] = {
        {"W00", "1"}, {"W00", "1"}, {"0WW", "0"}, {"0WW", "0"}, {"0WW", "0"}};
    return conv_shard(node, in, out, tti_attr_int(node, "act") ? with_act : rules);
}

static tutti_status conv2d_stats_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0WW", "0O"}, {"0WP", "0O"}};
    return tti_shard_match(node, rules, 2, in, out, planes_why);
}

static tutti_status conv2d_grad_x_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[5] = {
        {"10", "P"}, {"W1", "1"}, {"0W", "0"}, {"PW", "P"}, {"WP", "P"}};
    return conv_shard(node, in, out, rules);
}

static tutti_status conv2d_grad_w_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[5] = {
        {"1W", "00"}, {"W1", "1W"}, {"00", "PP"}, {"PW", "PP"}, {"WP", "PW"}};
    return conv_shard(node, in, out, rules);
}

/* Every term costs a multiplication and an addition; the border is counted too. */
static void cost_of(const tti_node *node, const conv_sizes *s, tti_cost *cost) {
    double outputs = (double)s->n * (double)s->o * (double)s->out[0] * (double)s->out[1];
    double terms = (double)(s->c / s->groups) * (double)s->kernel[0] * (double)s->kernel[1];
    tti_cost_flops(node, 2 * outputs * terms, cost);
}

static void conv2d_cost(const tti_node *node, tti_cost *cost) {
    conv_sizes s;
    TTI_ASSERT(conv2d_sizes(node, &s) == TUTTI_OK);
    cost_of(node, &s, cost);
}

static void conv2d_grad_x_cost(const tti_node *node, tti_cost *cost) {
    conv_sizes s;
    TTI_ASSERT(grad_x_sizes(node, &s) == TUTTI_OK);
    cost_of(node, &s, cost);
}

static void conv2d_grad_w_cost(const tti_node *node, tti_cost *cost) {
    conv_sizes s;
    TTI_ASSERT(grad_w_sizes(node, &s) == TUTTI_OK);
    cost_of(node, &s, cost);
}

/* ---- records ---- */

static const tti_sample conv2d_samples[] = {
    {.in = "f32[2,3,6,5] f32[4,3,3,3] f32[4]", .attrs = "pad=[1,1]"},
    {.in = "f32[2,4,5,5] f32[6,4,3,3]"},
    {.in = "f32[2,2,7,6] f32[2,2,3,2] f32[2]", .attrs = "stride=[2,3] pad=[1,0]"},
    {.in = "f32[1,2,7,7] f32[2,2,3,3]", .attrs = "dilation=[2,3] pad=[2,1]"},
    {.in = "f32[2,4,5,5] f32[6,2,3,3] f32[6]", .attrs = "groups=2 pad=[1,1]"},
    {.in = "f32[2,4,4,4] f32[4,1,3,3]", .attrs = "groups=4 act=1 stride=[2,2] pad=[1,1]"},
    {.in = "f32[2,2,4,4] f32[2,2,1,1] f32[2]", .attrs = "act=1"},
    {.in = "f32[2,5,7,9] f32[5,1,3,3] f32[5]", .attrs = "groups=5 pad=[1,1] act=1"},
    {.in = "f32[2,8,9,6] f32[8,1,5,5]", .attrs = "groups=8 stride=[2,2] pad=[2,2]"},
    {.in = "f32[1,3,1,8] f32[3,1,1,4] f32[3]", .attrs = "groups=3 pad=[0,3]"},
    {.in = "f64[1,1,1,1] f64[1,1,1,1]"},
    {.in = "f32[0,3,6,5] f32[4,3,3,3] f32[4]"},
    {.in = "f32[2,3,4,4] f32[4,3,5,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,2,3,3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3] f32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3]", .attrs = "stride=[0,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3]", .attrs = "pad=[-1,1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3]", .attrs = "pad=[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3]", .attrs = "groups=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3]", .attrs = "groups=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3]", .attrs = "act=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[3,4,4] f32[4,3,3,3]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample stats_samples[] = {
    {.in = "f32[2,3,6,5] f32[4,3,3,3]", .attrs = "pad=[1,1]"},
    {.in = "f32[5,16,4,4] f32[24,16,1,1] i32[]", .int_lo = 3, .int_hi = 3},
    {.in = "f32[3,8,5,5] f32[16,8,1,1]", .attrs = "stride=[2,2]", .lo = 0.1, .hi = 2},
    {.in = "f32[2,4,5,5] f32[6,2,3,3]", .attrs = "groups=2 pad=[1,1]"},
    {.in = "f32[2,8,5,5] f32[8,1,3,3]", .attrs = "groups=8 pad=[1,1]"},
    {.in = "f32[0,3,6,5] f32[4,3,3,3]"},
    {.in = "f32[2,3,4,4] f32[4,2,3,3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,4,4] f32[4,3,3,3] i32[1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_x_samples[] = {
    {.in = "f32[2,4,6,5] f32[4,2,3,3]", .attrs = "pad=[1,1] in_hw=[6,5]"},
    {.in = "f32[2,2,4,3] f32[2,2,3,2]", .attrs = "stride=[2,3] pad=[1,1] in_hw=[8,7]"},
    {.in = "f32[1,2,3,3] f32[2,2,3,3]", .attrs = "dilation=[2,2] in_hw=[7,7]"},
    {.in = "f32[2,6,3,3] f32[6,2,3,3]", .attrs = "groups=2 in_hw=[5,5]"},
    {.in = "f32[2,5,7,9] f32[5,1,3,3]", .attrs = "groups=5 pad=[1,1] in_hw=[7,9]"},
    {.in = "f32[2,8,5,3] f32[8,1,5,5]", .attrs = "groups=8 stride=[2,2] pad=[2,2] in_hw=[9,6]"},
    {.in = "f32[1,3,1,11] f32[3,1,1,4]", .attrs = "groups=3 pad=[0,3] in_hw=[1,8]"},
    {.in = "f32[0,4,6,5] f32[4,3,3,3]", .attrs = "pad=[1,1] in_hw=[6,5]"},
    {.in = "f32[2,4,6,5] f32[4,3,3,3]", .attrs = "in_hw=[6,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6,5] f32[4,3,3,3]", .attrs = "pad=[1,1]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample grad_w_samples[] = {
    {.in = "f32[2,4,6,5] f32[2,2,6,5]", .attrs = "pad=[1,1] kernel=[3,3]"},
    {.in = "f32[2,2,4,3] f32[2,2,8,7]", .attrs = "stride=[2,3] pad=[1,1] kernel=[3,2]"},
    {.in = "f32[1,2,3,3] f32[1,2,7,7]", .attrs = "dilation=[2,2] kernel=[3,3]"},
    {.in = "f32[2,6,3,3] f32[2,4,5,5]", .attrs = "groups=2 kernel=[3,3]"},
    {.in = "f32[2,5,7,9] f32[2,5,7,9]", .attrs = "groups=5 pad=[1,1] kernel=[3,3]"},
    {.in = "f32[2,8,5,3] f32[2,8,9,6]", .attrs = "groups=8 stride=[2,2] pad=[2,2] kernel=[5,5]"},
    {.in = "f32[1,3,1,11] f32[1,3,1,8]", .attrs = "groups=3 pad=[0,3] kernel=[1,4]"},
    {.in = "f32[0,4,6,5] f32[0,3,6,5]", .attrs = "pad=[1,1] kernel=[3,3]"}, /* zeros */
    {.in = "f32[2,4,6,5] f32[3,2,6,5]",
     .attrs = "pad=[1,1] kernel=[3,3]",
     .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,6,5] f32[2,2,6,5]", .attrs = "kernel=[3,3]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_conv[] = {
    {.name = "conv2d",
     .doc = "y[N,O,P,Q] = act(x[N,C,H,W] * w[O,C/groups,Kh,Kw] + b[O])",
     .n_in_min = 2,
     .n_in_max = 3,
     .n_out = 1,
     .attrs = conv_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_TAKES_EPILOGUE | TTI_COMPUTE,
     .weights_in = 1u << 1,
     .infer = conv2d_infer,
     .grad = conv2d_grad,
     .shard = conv2d_shard,
     .cost = conv2d_cost,
     .reference = conv2d_reference,
     .samples = conv2d_samples},
    {.name = "conv2d_stats",
     .doc = "y = x * w as conv2d, and bn_stats of y; inputs x[N,C,H,W], w[O,C/groups,Kh,Kw], rows?",
     .n_in_min = 2,
     .n_in_max = 3,
     .n_out = 2,
     .attrs = stats_attrs,
     .traits = TTI_CHANNELS_LAST,
     .weights_in = 1u << 1,
     .infer = conv2d_stats_infer,
     .shard = conv2d_stats_shard,
     .cost = conv2d_cost,
     .reference = conv2d_stats_reference,
     .samples = stats_samples},
    {.name = "conv2d_grad_x",
     .doc = "dx[N,C,H,W] of conv2d for dy[N,O,P,Q], w",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = grad_x_attrs,
     .traits = TTI_CHANNELS_LAST | TTI_COMPUTE,
     .weights_in = 1u << 1,
     .infer = conv2d_grad_x_infer,
     .grad = conv2d_grad_x_grad,
     .shard = conv2d_grad_x_shard,
     .cost = conv2d_grad_x_cost,
     .reference = conv2d_grad_x_reference,
     .samples = grad_x_samples},
    {.name = "conv2d_grad_w",
     .doc = "dw, db of conv2d for dy[N,O,P,Q], x[N,C,H,W]",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 2,
     .attrs = grad_w_attrs,
     .traits = TTI_CHANNELS_LAST,
     .weights_out = 1u << 0,
     .infer = conv2d_grad_w_infer,
     .shard = conv2d_grad_w_shard,
     .cost = conv2d_grad_w_cost,
     .reference = conv2d_grad_w_reference,
     .samples = grad_w_samples},
    {0},
};

/* pair_loss.c - losses of two values of one shape, element by element: squared error, binary cross
 * entropy, Kullback-Leibler divergence; as sums with their counts, like loss.c.
 *
 * Each loss adds a term for each pair (x, t) over the rows that are kept.  Rows whose label is
 * `ignore` are padding: they add nothing, and their gradient is exactly 0.  A loss is one row of
 * functions (pair_loss), and its gradient op serves x and, with of_target=1 or for a symmetric loss
 * with the inputs exchanged, the target. */
#include <math.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec loss_attrs[] = {
    {"ignore", TTI_ATTR_INT, -1, "label of rows that do not count"}, {0}};
static const tti_attr_spec grad_attrs[] = {
    {"ignore", TTI_ATTR_INT, -1, "label of rows that do not count"},
    {"of_target", TTI_ATTR_INT, 0, "1: the gradient of the target"},
    {0},
};

typedef struct pair_loss {
    double (*term)(double x, double t);
    double (*slope_x)(double x, double t); /* d term / d x */
    double (*slope_t)(double x, double t); /* d term / d t; NULL: symmetric */
    bool counts_rows;                      /* else elements */
} pair_loss;

/* ---- the losses ---- */

static double square_term(double x, double t) { return (x - t) * (x - t); }
static double square_slope_x(double x, double t) { return 2 * (x - t); }

/* -t ln s(x) - (1 - t) ln(1 - s(x)), s(x) = 1 / (1 + e^-x), without overflow. */
static double bce_term(double x, double t) { return fmax(x, 0) - x * t + log1p(exp(-fabs(x))); }
static double bce_slope_x(double x, double t) { return 1 / (1 + exp(-x)) - t; }
static double bce_slope_t(double x, double t) {
    (void)t;
    return -x;
}

/* t (ln t - x), 0 where t is 0; x is a logarithm. */
static double kl_term(double x, double t) { return t > 0 ? t * (log(t) - x) : t == 0 ? 0 : NAN; }
static double kl_slope_x(double x, double t) {
    (void)x;
    return -t;
}
static double kl_slope_t(double x, double t) { return t > 0 ? log(t) + 1 - x : t == 0 ? 0 : NAN; }

static const pair_loss mse = {square_term, square_slope_x, NULL, false};
static const pair_loss bce = {bce_term, bce_slope_x, bce_slope_t, false};
static const pair_loss kl = {kl_term, kl_slope_x, kl_slope_t, true};

/* ---- infer ---- */

/* Checks that x and target have one type, and that labels, if given, are one for each row; n_in
 * without dloss. */
static tutti_status check_pair(const tti_node *node, int n_in) {
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    if (tti_in_shape(node, 0)->n_dims < 1) return tti_node_fail(node, "input 0 has no rows");
    if (n_in < 3) return TUTTI_OK;
    TTI_TRY(tti_need_dtype(node, 2, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, 2, 1));
    if (tti_in_dim(node, 2, 0) != tti_in_dim(node, 0, 0))
        return tti_node_fail(node, "%lld rows, %lld labels", (long long)tti_in_dim(node, 0, 0),
                             (long long)tti_in_dim(node, 2, 0));
    return TUTTI_OK;
}

static tutti_status loss_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_pair(node, node->n_in));
    out[0] = out[1] = (tutti_type){TUTTI_F32, {0}};
    return TUTTI_OK;
}

static tutti_status grad_infer(const tti_node *node, tutti_type *out) {
    int64_t of_target = tti_attr_has(node, "of_target") ? tti_attr_int(node, "of_target") : 0;
    if (of_target != 0 && of_target != 1)
        return tti_node_fail(node, "of_target must be 0 or 1, is %lld", (long long)of_target);
    TTI_TRY(check_pair(node, node->n_in - 1));
    TTI_TRY(tti_need_dtype(node, node->n_in - 1, TUTTI_F32));
    TTI_TRY(tti_need_n_dims(node, node->n_in - 1, 0));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* ---- references ---- */

static bool row_is_kept(const tti_args *a, bool has_labels, size_t r) {
    return !has_labels || a->in[2][r] != (double)tti_attr_int(a->node, "ignore");
}

static size_t row_elems(const tti_node *node) {
    size_t n = 1;
    for (int d = 1; d < tti_in_shape(node, 0)->n_dims; d++) n *= (size_t)tti_in_dim(node, 0, d);
    return n;
}

static void add_pairs(const tti_args *a, const pair_loss *loss) {
    size_t rows = (size_t)tti_in_dim(a->node, 0, 0), width = row_elems(a->node);
    double sum = 0, count = 0;
    for (size_t r = 0; r < rows; r++) {
        if (!row_is_kept(a, a->node->n_in == 3, r)) continue;
        for (size_t i = r * width; i < (r + 1) * width; i++)
            sum += loss->term(a->in[0][i], a->in[1][i]);
        count += loss->counts_rows ? 1 : (double)width;
    }
    a->out[0][0] = sum, a->out[1][0] = count;
}

static void pair_slopes(const tti_args *a, const pair_loss *loss) {
    size_t rows = (size_t)tti_in_dim(a->node, 0, 0), width = row_elems(a->node);
    double dloss = a->in[a->node->n_in - 1][0];
    bool of_target = loss->slope_t && tti_attr_int(a->node, "of_target") != 0;
    double (*slope)(double, double) = of_target ? loss->slope_t : loss->slope_x;
    for (size_t r = 0; r < rows; r++) {
        bool kept = row_is_kept(a, a->node->n_in == 4, r);
        for (size_t i = r * width; i < (r + 1) * width; i++)
            a->out[0][i] = kept ? slope(a->in[0][i], a->in[1][i]) * dloss : 0;
    }
}

static void mse_reference(const tti_args *a) { add_pairs(a, &mse); }
static void mse_grad_reference(const tti_args *a) { pair_slopes(a, &mse); }
static void bce_with_logits_reference(const tti_args *a) { add_pairs(a, &bce); }
static void bce_with_logits_grad_reference(const tti_args *a) { pair_slopes(a, &bce); }
static void kl_div_reference(const tti_args *a) { add_pairs(a, &kl); }
static void kl_div_grad_reference(const tti_args *a) { pair_slopes(a, &kl); }

/* ---- gradients ---- */

static tutti_status emit_grads(tutti_graph *g, const tti_node *node, const char *op,
                               tutti_value *dloss, const bool *need, tutti_value **dx) {
    tutti_value *in[4] = {node->in[0], node->in[1], dloss};
    if (node->n_in == 3) in[2] = node->in[2], in[3] = dloss;
    for (int i = 0; dloss && i < 2; i++) {
        tti_attr_arg attrs[] = {tti_same_attr(node, "ignore"), TTI_INT("of_target", i), {0}};
        if (need[i]) dx[i] = tti_grad_emit(g, node, op, in, node->n_in + 1, attrs);
    }
    return tutti_graph_check(g);
}

/* Squared error is symmetric: the target's gradient is the same op the other way round. */
static tutti_status mse_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {tti_same_attr(node, "ignore"), {0}};
    for (int i = 0; dy[0] && i < 2; i++) {
        tutti_value *in[4] = {node->in[i], node->in[1 - i], dy[0]};
        if (node->n_in == 3) in[2] = node->in[2], in[3] = dy[0];
        if (need[i]) dx[i] = tti_grad_emit(g, node, "mse_grad", in, node->n_in + 1, attrs);
    }
    return tutti_graph_check(g);
}

static tutti_status bce_with_logits_grad(tutti_graph *g, const tti_node *node,
                                         tutti_value *const *dy, const bool *need,
                                         tutti_value **dx) {
    return emit_grads(g, node, "bce_with_logits_grad", dy[0], need, dx);
}
static tutti_status kl_div_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    return emit_grads(g, node, "kl_div_grad", dy[0], need, dx);
}

/* ---- shard and cost ---- */

static tutti_status loss_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"000", "PP"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, all inputs alike");
}

static tutti_status grad_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule without[] = {{"00W", "0"}, {"WWP", "P"}};
    static const tti_shard_rule with_labels[] = {{"000W", "0"}, {"WWWP", "P"}};
    return tti_shard_match(node, node->n_in == 3 ? without : with_labels, 2, in, out,
                           "only rows can be split, all inputs alike");
}

static void mse_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 3.0 * (double)tti_in_n(node, 0), cost);
}
static void smooth_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 30.0 * (double)tti_in_n(node, 0), cost); /* exp and log */
}

/* ---- builders ---- */

static tutti_loss build_loss(tutti_graph *g, const char *op, tutti_value *const in[3],
                             int64_t ignore) {
    tutti_value *out[TTI_MAX_OUT] = {NULL};
    tti_emit_n(g, op, NULL, in, in[2] ? 3 : 2, (tti_attr_arg[]){TTI_INT("ignore", ignore), {0}},
               out);
    return (tutti_loss){out[0], out[1], NULL};
}

tutti_loss tutti_mse(tutti_graph *g, tutti_value *pred, tutti_value *target, tutti_value *labels,
                     int64_t ignore) {
    return build_loss(g, "mse", (tutti_value *[]){pred, target, labels}, ignore);
}

tutti_loss tutti_bce_with_logits(tutti_graph *g, tutti_value *x, tutti_value *target,
                                 tutti_value *labels, int64_t ignore) {
    return build_loss(g, "bce_with_logits", (tutti_value *[]){x, target, labels}, ignore);
}

tutti_loss tutti_kl_div(tutti_graph *g, tutti_value *log_p, tutti_value *target,
                        tutti_value *labels, int64_t ignore) {
    return build_loss(g, "kl_div", (tutti_value *[]){log_p, target, labels}, ignore);
}

/* 1 / max(|x|, 1e-8) times x, along axis; the maximum is taken of the squares, where a zero vector
 * still has a slope. */
static tutti_value *unit_vector(tutti_graph *g, tutti_value *x, int axis) {
    const tutti_axes axes = {.n = 1, .axis = {axis}, .keep = true};
    tutti_value *square = tutti_sum(g, tutti_square(g, x), &axes);
    tutti_value *least =
        square ? tutti_constant(g, square->type.dtype, &(tutti_shape){0}, 1e-16) : NULL;
    return tutti_div(g, x, tutti_sqrt(g, tutti_maximum(g, square, least)));
}

tutti_value *tutti_cosine_similarity(tutti_graph *g, tutti_value *a, tutti_value *b, int axis) {
    tutti_value *product = tutti_mul(g, unit_vector(g, a, axis), unit_vector(g, b, axis));
    return tutti_sum(g, product, &(tutti_axes){.n = 1, .axis = {axis}});
}

/* ---- records ---- */

static const tti_sample mse_samples[] = {
    {.in = "f32[4,6] f32[4,6]"},
    {.in = "f32[6,2,3] f32[6,2,3] i32[6]", .int_lo = -1, .int_hi = 0},
    {.in = "f32[4] f32[4] i32[4]", .attrs = "ignore=1", .int_hi = 2},
    {.in = "f32[0,6] f32[0,6]"},
    {.in = "f32[4,6] f32[4,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] i32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[] f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample mse_grad_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[]"},
    {.in = "f32[6,3] f32[6,3] i32[6] f32[]", .int_lo = -1, .int_hi = 0},
    {.in = "f32[0,6] f32[0,6] f32[]"},
    {.in = "f32[4,6] f32[4,6] i32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] i32[3] f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample kl_samples[] = {
    {.in = "f32[4,6] f32[4,6]", .lo = 0.1, .hi = 1},
    {.in = "f32[6,2,3] f32[6,2,3] i32[6]", .lo = 0.1, .hi = 1, .int_lo = -1, .int_hi = 0},
    {.in = "f32[0,6] f32[0,6]"},
    {.in = "f32[4,6] f32[4,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] i32[4,6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample pair_grad_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[]", .lo = 0.1, .hi = 1},
    {.in = "f32[4,6] f32[4,6] f32[]", .attrs = "of_target=1", .lo = 0.1, .hi = 1},
    {.in = "f32[6,3] f32[6,3] i32[6] f32[]", .lo = 0.1, .hi = 1, .int_lo = -1, .int_hi = 0},
    {.in = "f32[0,6] f32[0,6] f32[]"},
    {.in = "f32[4,6] f32[4,6] f32[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,6] f32[]", .attrs = "of_target=2", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of a loss's record and that of its gradient. */
#define LOSS(op_name, op_doc)                                                                  \
    .name = #op_name, .doc = op_doc, .n_in_min = 2, .n_in_max = 3, .n_out = 2, .saved_out = 2, \
    .attrs = loss_attrs, .infer = loss_infer, .grad = op_name##_grad, .shard = loss_shard,     \
    .reference = op_name##_reference
#define GRAD(op_name, op_doc)                                                  \
    .name = #op_name, .doc = op_doc, .n_in_min = 3, .n_in_max = 4, .n_out = 1, \
    .infer = grad_infer, .shard = grad_shard, .reference = op_name##_reference

const tti_op tti_ops_pair_loss[] = {
    {LOSS(mse, "loss_sum, count: sum of (pred - target)^2 over kept rows, kept elements"),
     .cost = mse_cost, .samples = mse_samples},
    {GRAD(mse_grad, "dpred = 2 (pred - target) dloss; inputs pred, target, labels?, dloss"),
     .attrs = loss_attrs, .cost = mse_cost, .samples = mse_grad_samples},
    {LOSS(bce_with_logits,
          "loss_sum, count: sum of -t ln s(x) - (1-t) ln(1 - s(x)), s(x) = "
          "1/(1+e^-x), kept elements; inputs x, target, labels?"),
     .cost = smooth_cost, .samples = mse_samples},
    {GRAD(bce_with_logits_grad, "dx = (s(x) - t) dloss; inputs x, target, labels?, dloss"),
     .attrs = grad_attrs, .cost = smooth_cost, .samples = pair_grad_samples},
    {LOSS(kl_div, "loss_sum, count: sum of t (ln t - x), kept rows; inputs x = ln p, t, labels?"),
     .cost = smooth_cost, .samples = kl_samples},
    {GRAD(kl_div_grad, "dx = -t dloss; inputs x, target, labels?, dloss"), .attrs = grad_attrs,
     .cost = smooth_cost, .samples = pair_grad_samples},
    {0},
};

/* loss.c - cross entropy, as a sum with its count.
 *
 * Losses are never divided here: the sum and the count of kept rows are carried together through
 * every shard and worker and divided once (design: virtual shards).  Rows whose label is `ignore`
 * are padding: they add nothing, and their gradient is exactly 0.  Each row's maximum and sum of
 * e^(x - maximum) are kept (rows), so that the gradient needs no sums of its own. */
#include <math.h>
#include <string.h>

#include "ops/loss/vocabulary.h"
#include "ops/rules.h"
#include "tutti/ops.h"

static const tutti_type scalar = {TUTTI_F32, {0}};

/* ---- cross_entropy ---- */

static const tti_attr_spec entropy_attrs[] = {
    {"smoothing", TTI_ATTR_FLOAT, 0,
     "fraction of the target distributed evenly over the classes, 0 .. 1"},
    {"ignore", TTI_ATTR_INT, -1, "label of rows that do not count"},
    {0},
};

static tutti_status check_entropy(const tti_node *node) {
    double smoothing = tti_attr_float(node, "smoothing");
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, 1, 1));
    if (tti_in_dim(node, 0, 0) != tti_in_dim(node, 1, 0))
        return tti_node_fail(node, "%lld rows of logits, %lld labels",
                             (long long)tti_in_dim(node, 0, 0), (long long)tti_in_dim(node, 1, 0));
    if (tti_in_dim(node, 0, 1) < 1) return tti_node_fail(node, "at least one class is needed");
    if (!(smoothing >= 0 && smoothing <= 1))
        return tti_node_fail(node, "smoothing must be 0 .. 1, is %g", smoothing);
    return TUTTI_OK;
}

/* Maximum and sum of e^(x - maximum) of each row. */
static tutti_type rows_type(const tti_node *node) {
    return (tutti_type){TUTTI_F32, TUTTI_SHAPE(tti_in_dim(node, 0, 0), 2)};
}

static tutti_status cross_entropy_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_entropy(node));
    for (int k = 0; k < 3; k++) out[k] = scalar;
    out[3] = rows_type(node);
    return TUTTI_OK;
}

/* The loss is a scalar, so its gradient is one too. */
static tutti_status need_scalar(const tti_node *node, int i) {
    TTI_TRY(tti_need_dtype(node, i, TUTTI_F32));
    return tti_need_n_dims(node, i, 0);
}

static tutti_status cross_entropy_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_entropy(node));
    TTI_TRY(need_scalar(node, 2));
    if (node->n_in == 4) {
        tutti_type rows = rows_type(node);
        TTI_TRY(tti_need_dtype(node, 3, TUTTI_F32));
        if (!tti_shape_equal(tti_in_shape(node, 3), &rows.shape))
            return tti_node_fail(node, "input 3 must have a maximum and a sum for each row");
    }
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* row[0]: the maximum, row[1]: the sum of e^(x - maximum). */
static void sum_exponents(const double *x, size_t n, double row[2]) {
    row[0] = -INFINITY, row[1] = 0;
    for (size_t i = 0; i < n; i++) row[0] = fmax(row[0], x[i]);
    for (size_t i = 0; i < n; i++) row[1] += exp(x[i] - row[0]);
}

/* The share of class c in the target of label: (1 - s) [c == label] + s / C. */
static double target_of(size_t c, double label, double smoothing, size_t n_classes) {
    return (c == (size_t)label ? 1 - smoothing : 0) + smoothing / (double)n_classes;
}

/* A label that is not a class makes the loss NaN, which stops the run, instead of reading beyond.
 */
static bool is_class(double label, size_t n_classes) {
    return label >= 0 && label < (double)n_classes;
}

static double entropy_of_row(const double *x, double label, double smoothing, size_t n_classes,
                             const double row[2]) {
    double log_sum = log(row[1]), loss = (1 - smoothing) * (row[0] - x[(size_t)label] + log_sum);
    if (smoothing == 0) return loss;
    for (size_t c = 0; c < n_classes; c++)
        loss += smoothing / (double)n_classes * (row[0] - x[c] + log_sum);
    return loss;
}

/* True if label is the first maximum; a row whose loss is NaN has none. */
static bool is_hit(const double *x, double label, size_t n, double loss) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return (double)best == label && !isnan(loss);
}

static void cross_entropy_reference(const tti_args *a) {
    double smoothing = tti_attr_float(a->node, "smoothing"), loss = 0, count = 0, correct = 0;
    double ignore = (double)tti_attr_int(a->node, "ignore");
    size_t n = (size_t)tti_in_dim(a->node, 0, 0), n_classes = (size_t)tti_in_dim(a->node, 0, 1);
    for (size_t r = 0; r < n; r++) {
        const double *x = a->in[0] + r * n_classes;
        double label = a->in[1][r], *row = a->out[3] + 2 * r;
        row[0] = 0, row[1] = 1;
        if (label == ignore) continue;
        count += 1;
        if (!is_class(label, n_classes)) {
            loss = NAN;
            continue;
        }
        sum_exponents(x, n_classes, row);
        double own = entropy_of_row(x, label, smoothing, n_classes, row);
        loss += own;
        correct += is_hit(x, label, n_classes, own);
    }
    a->out[0][0] = loss, a->out[1][0] = count, a->out[2][0] = correct;
}

/* dx = (softmax(x) - target) dloss */
static void cross_entropy_grad_reference(const tti_args *a) {
    double smoothing = tti_attr_float(a->node, "smoothing"), dloss = a->in[2][0];
    double ignore = (double)tti_attr_int(a->node, "ignore");
    size_t n = (size_t)tti_in_dim(a->node, 0, 0), n_classes = (size_t)tti_in_dim(a->node, 0, 1);
    for (size_t r = 0; r < n; r++) {
        const double *x = a->in[0] + r * n_classes;
        double *dx = a->out[0] + r * n_classes, label = a->in[1][r];
        double row[2];
        bool good = is_class(label, n_classes);
        sum_exponents(x, n_classes, row);
        if (a->node->n_in == 4) memcpy(row, a->in[3] + 2 * r, sizeof row);
        for (size_t c = 0; c < n_classes; c++) {
            double target = good ? target_of(c, label, smoothing, n_classes) : NAN;
            dx[c] = label == ignore ? 0 : (exp(x[c] - row[0]) / row[1] - target) * dloss;
        }
    }
}

/* ---- loss and gradient together, if dloss is known before: the logits are read once ---- */

static tutti_status cross_entropy_and_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_entropy(node));
    TTI_TRY(need_scalar(node, 2));
    out[0] = node->in[0]->type;
    for (int k = 1; k < 4; k++) out[k] = scalar;
    return TUTTI_OK;
}

static void cross_entropy_and_grad_reference(const tti_args *a) {
    double smoothing = tti_attr_float(a->node, "smoothing"), loss = 0, count = 0, correct = 0;
    double ignore = (double)tti_attr_int(a->node, "ignore");
    size_t n = (size_t)tti_in_dim(a->node, 0, 0), n_classes = (size_t)tti_in_dim(a->node, 0, 1);
    for (size_t r = 0; r < n; r++) {
        const double *x = a->in[0] + r * n_classes;
        double *dx = a->out[0] + r * n_classes, label = a->in[1][r], row[2];
        bool kept = label != ignore, good = is_class(label, n_classes);
        sum_exponents(x, n_classes, row);
        for (size_t c = 0; c < n_classes; c++) {
            double target = good ? target_of(c, label, smoothing, n_classes) : NAN;
            dx[c] = kept ? (exp(x[c] - row[0]) / row[1] - target) * a->in[2][0] : 0;
        }
        count += kept;
        if (!kept) continue;
        double own = good ? entropy_of_row(x, label, smoothing, n_classes, row) : NAN;
        loss += own;
        correct += is_hit(x, label, n_classes, own);
    }
    a->out[1][0] = loss, a->out[2][0] = count, a->out[3][0] = correct;
}

/* The same, and the sums of dx over its rows. */
static tutti_status cross_entropy_and_grad_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(cross_entropy_and_grad_infer(node, out));
    out[4] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(tti_in_dim(node, 0, 1))};
    return TUTTI_OK;
}

static void cross_entropy_and_grad_sums_reference(const tti_args *a) {
    size_t n = tti_out_n(a->node, 0), n_classes = tti_out_n(a->node, 4);
    cross_entropy_and_grad_reference(a);
    memset(a->out[4], 0, n_classes * sizeof(double));
    for (size_t i = 0; i < n; i++) a->out[4][i % n_classes] += a->out[0][i];
}

static tutti_status cross_entropy_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                       const bool *need, tutti_value **dx) {
    if (!need[0] || !dy[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "smoothing"), tti_same_attr(node, "ignore"), {0}};
    dx[0] =
        tti_grad_emit(g, node, "cross_entropy_grad",
                      (tutti_value *[]){node->in[0], node->in[1], dy[0], node->out[3]}, 4, attrs);
    return tutti_graph_check(g);
}

static tutti_status cross_entropy_shard(const tti_node *node, const tti_placement *in,
                                        tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00", "PPP0"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, logits and labels");
}

static tutti_status cross_entropy_grad_shard(const tti_node *node, const tti_placement *in,
                                             tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00W0", "0"}, {"WWPW", "P"}};
    return tti_shard_match(node, rules, 2, in, out, "only rows can be split, logits and labels");
}

static tutti_status cross_entropy_and_grad_shard(const tti_node *node, const tti_placement *in,
                                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00W", "0PPP"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, logits and labels");
}

static tutti_status cross_entropy_and_grad_sums_shard(const tti_node *node, const tti_placement *in,
                                                      tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00W", "0PPPP"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, logits and labels");
}

/* Workers may have some classes of every row each (vocabulary.c). */
static bool cross_entropy_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    return tti_cut_match(node, "1W", "WWWW", in, out);
}

static void entropy_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 20.0 * (double)tti_in_n(node, 0), cost);
}

/* ---- builders ---- */

tutti_loss tutti_cross_entropy(tutti_graph *g, tutti_value *logits, tutti_value *labels,
                               double smoothing, int64_t ignore) {
    tutti_value *out[4] = {NULL};
    tti_emit_n(g, "cross_entropy", NULL, (tutti_value *[]){logits, labels}, 2,
               (tti_attr_arg[]){TTI_FLOAT("smoothing", smoothing), TTI_INT("ignore", ignore), {0}},
               out);
    return (tutti_loss){out[0], out[1], out[2]};
}

/* ---- records ---- */

static const tti_sample entropy_samples[] = {
    {.in = "f32[4,10] i32[4]", .lo = -3, .hi = 3, .int_hi = 9},
    {.in = "f32[6,5] i32[6]", .attrs = "smoothing=0.1", .int_lo = -1, .int_hi = 4},
    {.in = "f32[6,3] i32[6]", .attrs = "ignore=0", .int_hi = 2},
    {.in = "f32[2,7] i32[2]", .attrs = "smoothing=1", .lo = 500, .hi = 800, .int_hi = 6},
    {.in = "f32[4,10] i32[4]", .int_hi = 9, .shift = -0x1.1p20, .shifted = 1 << 0},
    {.in = "f64[1,1] i32[1]"},
    {.in = "f32[0,10] i32[0]"},
    {.in = "f32[4,10] i32[5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] i32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,0] i32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[4]", .attrs = "smoothing=1.5", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[4]", .attrs = "smoothing=-0.1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample entropy_grad_samples[] = {
    {.in = "f32[4,10] i32[4] f32[]", .lo = -3, .hi = 3, .int_hi = 9},
    {.in = "f32[6,5] i32[6] f32[]", .attrs = "smoothing=0.1", .int_lo = -1, .int_hi = 4},
    {.in = "f32[0,10] i32[0] f32[]"},
    {.in = "f32[4,10] i32[4] f32[] f32[4,2]", .lo = 0.5, .hi = 3, .int_lo = -1, .int_hi = 9},
    {.in = "f32[6,5] i32[6] f32[] f32[6,2]",
     .attrs = "smoothing=0.1",
     .lo = 0.5,
     .hi = 3,
     .int_hi = 4},
    {.in = "f32[0,10] i32[0] f32[] f32[0,2]"},
    {.in = "f32[4,10] i32[4] f32[] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[4] f32[] i32[4,2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[4] f32[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[3] f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample entropy_both_samples[] = {
    {.in = "f32[4,10] i32[4] f32[]", .lo = -3, .hi = 3, .int_hi = 9},
    {.in = "f32[6,5] i32[6] f32[]", .attrs = "smoothing=0.1", .int_lo = -1, .int_hi = 4},
    {.in = "f32[6,3] i32[6] f32[]", .attrs = "ignore=0", .int_hi = 2},
    {.in = "bf16[5,24] i32[5] f32[]", .lo = -3, .hi = 3, .int_lo = -1, .int_hi = 23},
    {.in = "f16[3,2056] i32[3] f32[]", .attrs = "smoothing=0.2", .int_hi = 2055},
    {.in = "f32[0,10] i32[0] f32[]"},
    {.in = "f32[4,10] i32[4] f32[1]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[3] f32[]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_loss[] = {
    {.name = "cross_entropy",
     .doc = "loss_sum, count, correct, rows: sum over rows of -sum_c t_c ln softmax(x)_c, kept "
            "rows, rows whose first maximum is the label (none if NaN), max and sum e^(x-max) of "
            "each row; "
            "t = (1-s) [c = label] + s/C",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 4,
     .saved_out = 8,
     .traits = TTI_READS_LOW,
     .attrs = entropy_attrs,
     .infer = cross_entropy_infer,
     .grad = cross_entropy_grad,
     .shard = cross_entropy_shard,
     .cut = cross_entropy_cut,
     .emit_cut = tti_emit_entropy_parts,
     .cost = entropy_cost,
     .reference = cross_entropy_reference,
     .samples = entropy_samples},
    {.name = "cross_entropy_grad",
     .doc = "dx = (softmax(x) - t) dloss; inputs logits, labels, dloss, rows?",
     .n_in_min = 3,
     .n_in_max = 4,
     .n_out = 1,
     .traits = TTI_IN_PLACE,
     .attrs = entropy_attrs,
     .infer = cross_entropy_grad_infer,
     .shard = cross_entropy_grad_shard,
     .cost = entropy_cost,
     .reference = cross_entropy_grad_reference,
     .samples = entropy_grad_samples},
    {.name = "cross_entropy_and_grad",
     .doc =
         "dx, loss_sum, count, correct of cross_entropy and its gradient; inputs logits, labels, "
         "dloss; made by a pass",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 4,
     .traits = TTI_IN_PLACE,
     .attrs = entropy_attrs,
     .infer = cross_entropy_and_grad_infer,
     .shard = cross_entropy_and_grad_shard,
     .cost = entropy_cost,
     .reference = cross_entropy_and_grad_reference,
     .samples = entropy_both_samples,
     .summed = "cross_entropy_and_grad_sums",
     .summed_from = 1 << 20},
    {.name = "cross_entropy_and_grad_sums",
     .doc = "cross_entropy_and_grad, and the sums of dx over all rows in f32; made by a pass",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 5,
     .traits = TTI_IN_PLACE,
     .attrs = entropy_attrs,
     .infer = cross_entropy_and_grad_sums_infer,
     .shard = cross_entropy_and_grad_sums_shard,
     .cost = entropy_cost,
     .reference = cross_entropy_and_grad_sums_reference,
     .samples = entropy_both_samples},
    {0},
};

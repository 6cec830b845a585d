/* vocabulary.c - cross entropy where each worker of a tensor axis has some of the classes.
 *
 * entropy_part computes five numbers for each row of a worker's logits, tensor_all_gather collects
 * those of all workers, and entropy_join computes the loss from them, the same on every worker.
 * The gradient of a logit needs only the row's maximum and sum of exponents from the other workers,
 * so entropy_join computes it; this is why it has the worker's own logits as an input. */
#include <math.h>
#include <string.h>

#include "ops/loss/vocabulary.h"
#include "ops/rules.h"

static const tti_attr_spec part_attrs[] = {{"first", TTI_ATTR_INT, 0, "class of the first logit"},
                                           {0}};

static const tti_attr_spec join_attrs[] = {
    {"smoothing", TTI_ATTR_FLOAT, 0,
     "fraction of the target distributed evenly over the classes, 0 .. 1"},
    {"ignore", TTI_ATTR_INT, -1, "label of rows that do not count"},
    {"n", TTI_ATTR_INT, 1, "number of workers, each with as many classes"},
    {"first", TTI_ATTR_INT, 0, "class of the first logit here"},
    {0},
};

/* The numbers of entropy_part for a row. */
enum { ROW_MAX, ROW_SUM, ROW_TARGET, ROW_TOTAL, ROW_BEST, N_ROW };

static const tutti_type scalar = {TUTTI_F32, {0}};

/* ---- checks ---- */

/* Logits f32[R,C], C >= 1, labels i32[R]. */
static tutti_status check_rows(const tti_node *node, int logits, int labels) {
    int64_t first = tti_attr_int(node, "first");
    TTI_TRY(tti_need_floats(node, logits, logits + 1));
    TTI_TRY(tti_need_n_dims(node, logits, 2));
    TTI_TRY(tti_need_dtype(node, labels, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, labels, 1));
    if (tti_in_dim(node, logits, 0) != tti_in_dim(node, labels, 0))
        return tti_node_fail(node, "%lld rows of logits, %lld labels",
                             (long long)tti_in_dim(node, logits, 0),
                             (long long)tti_in_dim(node, labels, 0));
    if (tti_in_dim(node, logits, 1) < 1) return tti_node_fail(node, "at least one class is needed");
    if (first < 0 || first > INT32_MAX)
        return tti_node_fail(node, "first must be >= 0, is %lld", (long long)first);
    return TUTTI_OK;
}

static tutti_status check_join(const tti_node *node, int labels) {
    double smoothing = tti_attr_float(node, "smoothing");
    int64_t n = tti_attr_int(node, "n");
    TTI_TRY(check_rows(node, 0, labels));
    if (!(smoothing >= 0 && smoothing <= 1))
        return tti_node_fail(node, "smoothing must be 0 .. 1, is %g", smoothing);
    if (n < 1 || n > 1 << 16) return tti_node_fail(node, "n must be >= 1, is %lld", (long long)n);
    return TUTTI_OK;
}

/* Input i is f32[R, n_cols]. */
static tutti_status need_columns(const tti_node *node, int i, int64_t n_cols) {
    tutti_shape want = TUTTI_SHAPE(tti_in_dim(node, 0, 0), n_cols);
    TTI_TRY(tti_need_dtype(node, i, TUTTI_F32));
    if (tti_shape_equal(tti_in_shape(node, i), &want)) return TUTTI_OK;
    return tti_node_fail(node, "input %d must have %lld numbers per row", i, (long long)n_cols);
}

static tutti_status entropy_part_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_rows(node, 0, 1));
    out[0] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(tti_in_dim(node, 0, 0), N_ROW)};
    return TUTTI_OK;
}

/* logits, parts, labels */
static tutti_status entropy_join_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_join(node, 2));
    TTI_TRY(need_columns(node, 1, N_ROW * tti_attr_int(node, "n")));
    for (int k = 0; k < 3; k++) out[k] = scalar;
    out[3] = (tutti_type){TUTTI_F32, TUTTI_SHAPE(tti_in_dim(node, 0, 0), 2)};
    return TUTTI_OK;
}

/* logits, labels, dloss, rows */
static tutti_status entropy_join_grad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_join(node, 1));
    TTI_TRY(tti_need_dtype(node, 2, TUTTI_F32));
    TTI_TRY(tti_need_n_dims(node, 2, 0));
    TTI_TRY(need_columns(node, 3, 2));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* ---- references ---- */

static void entropy_part_reference(const tti_args *a) {
    size_t n = (size_t)tti_in_dim(a->node, 0, 0), n_classes = (size_t)tti_in_dim(a->node, 0, 1);
    double first = (double)tti_attr_int(a->node, "first");
    for (size_t r = 0; r < n; r++) {
        const double *x = a->in[0] + r * n_classes;
        double *row = a->out[0] + r * N_ROW, label = a->in[1][r] - first;
        size_t best = 0;
        memset(row, 0, N_ROW * sizeof *row);
        for (size_t c = 1; c < n_classes; c++)
            if (x[c] > x[best]) best = c;
        double base = x[best] == -INFINITY ? 0 : x[best]; /* no weight here, unless one is NaN */
        for (size_t c = 0; c < n_classes; c++) {
            row[ROW_SUM] += exp(x[c] - base);
            row[ROW_TOTAL] += x[c];
        }
        row[ROW_MAX] = x[best];
        row[ROW_BEST] = first + (double)best;
        if (label >= 0 && label < (double)n_classes) row[ROW_TARGET] = x[(size_t)label];
    }
}

/* The parts of a row in one; of equal maxima the first one's class counts. */
static void join_row(const double *parts, size_t n, double row[N_ROW]) {
    memcpy(row, parts, N_ROW * sizeof *row);
    for (size_t i = 1; i < n; i++)
        if (parts[i * N_ROW + ROW_MAX] > row[ROW_MAX]) {
            row[ROW_MAX] = parts[i * N_ROW + ROW_MAX];
            row[ROW_BEST] = parts[i * N_ROW + ROW_BEST];
        }
    row[ROW_SUM] *= exp(parts[ROW_MAX] - row[ROW_MAX]);
    for (size_t i = 1; i < n; i++) {
        const double *part = parts + i * N_ROW;
        row[ROW_SUM] += part[ROW_SUM] * exp(part[ROW_MAX] - row[ROW_MAX]);
        row[ROW_TARGET] += part[ROW_TARGET];
        row[ROW_TOTAL] += part[ROW_TOTAL];
    }
}

static void entropy_join_reference(const tti_args *a) {
    double smoothing = tti_attr_float(a->node, "smoothing"), loss = 0, count = 0, correct = 0;
    double ignore = (double)tti_attr_int(a->node, "ignore");
    size_t n = (size_t)tti_attr_int(a->node, "n"), n_rows = (size_t)tti_in_dim(a->node, 0, 0);
    double n_classes = (double)n * (double)tti_in_dim(a->node, 0, 1);
    for (size_t r = 0; r < n_rows; r++) {
        double row[N_ROW], label = a->in[2][r], *kept = a->out[3] + 2 * r;
        kept[0] = 0, kept[1] = 1;
        if (label == ignore) continue;
        count += 1;
        if (!(label >= 0 && label < n_classes)) {
            loss = NAN;
            continue;
        }
        join_row(a->in[1] + r * n * N_ROW, n, row);
        double log_sum = log(row[ROW_SUM]), own = row[ROW_MAX] - row[ROW_TARGET] + log_sum;
        loss += (1 - smoothing) * own;
        if (smoothing > 0)
            loss += smoothing * (row[ROW_MAX] - row[ROW_TOTAL] / n_classes + log_sum);
        correct += row[ROW_BEST] == label && !isnan(own);
        kept[0] = row[ROW_MAX], kept[1] = row[ROW_SUM];
    }
    a->out[0][0] = loss, a->out[1][0] = count, a->out[2][0] = correct;
}

/* dx = (softmax(x) - target) dloss */
static void entropy_join_grad_reference(const tti_args *a) {
    double smoothing = tti_attr_float(a->node, "smoothing"), dloss = a->in[2][0];
    double ignore = (double)tti_attr_int(a->node, "ignore");
    double first = (double)tti_attr_int(a->node, "first");
    size_t n = (size_t)tti_in_dim(a->node, 0, 0), n_own = (size_t)tti_in_dim(a->node, 0, 1);
    double n_classes = (double)n_own * (double)tti_attr_int(a->node, "n");
    for (size_t r = 0; r < n; r++) {
        const double *x = a->in[0] + r * n_own, *row = a->in[3] + 2 * r;
        double *dx = a->out[0] + r * n_own, label = a->in[1][r];
        bool good = label >= 0 && label < n_classes;
        for (size_t c = 0; c < n_own; c++) {
            double target =
                (label == first + (double)c ? 1 - smoothing : 0) + smoothing / n_classes;
            double slope = good ? exp(x[c] - row[0]) / row[1] - target : NAN;
            dx[c] = label == ignore ? 0 : slope * dloss;
        }
    }
}

/* ---- gradient, shard, cost ---- */

static tutti_status entropy_join_gradient(tutti_graph *g, const tti_node *node,
                                          tutti_value *const *dy, const bool *need,
                                          tutti_value **dx) {
    if (!need[0] || !dy[0]) return TUTTI_OK;
    tti_attr_arg attrs[] = {tti_same_attr(node, "smoothing"),
                            tti_same_attr(node, "ignore"),
                            tti_same_attr(node, "n"),
                            tti_same_attr(node, "first"),
                            {0}};
    dx[0] =
        tti_grad_emit(g, node, "entropy_join_grad",
                      (tutti_value *[]){node->in[0], node->in[2], dy[0], node->out[3]}, 4, attrs);
    return tutti_graph_check(g);
}

static const char rows_why[] = "only rows can be split, all inputs alike";

static tutti_status entropy_part_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00", "0"}};
    return tti_shard_match(node, rules, 1, in, out, rows_why);
}

static tutti_status entropy_join_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[] = {{"000", "PPP0"}};
    return tti_shard_match(node, rules, 1, in, out, rows_why);
}

static tutti_status entropy_join_grad_shard(const tti_node *node, const tti_placement *in,
                                            tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00W0", "0"}, {"WWPW", "P"}};
    return tti_shard_match(node, rules, 2, in, out, rows_why);
}

static void entropy_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 20.0 * (double)tti_in_n(node, 0), cost);
}

/* Reads the parts and no logits. */
static void join_cost(const tti_node *node, tti_cost *cost) {
    double n = (double)tti_in_n(node, 1);
    *cost = (tti_cost){10 * n, 4 * n};
}

void tti_emit_entropy_parts(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                            const tti_cut *cut, tutti_value *const *in, tutti_value **out) {
    (void)cut;
    int64_t n_own = in[0] ? in[0]->type.shape.dim[1] : 0;
    tti_attr_arg first = TTI_INT("first", n_own * axis->index), n = TTI_INT("n", axis->n);
    tutti_value *parts =
        tti_emit(g, "entropy_part", node->name, in, 2, (tti_attr_arg[]){first, {0}});
    parts = tti_emit(g, "tensor_all_gather", node->name, &parts, 1,
                     (tti_attr_arg[]){n, TTI_INT("index", axis->index), TTI_INT("dim", 1), {0}});
    tti_emit_n(g, "entropy_join", node->name, (tutti_value *[]){in[0], parts, in[1]}, 3,
               (tti_attr_arg[]){
                   tti_same_attr(node, "smoothing"), tti_same_attr(node, "ignore"), n, first, {0}},
               out);
}

/* ---- records ---- */

static const tti_sample part_samples[] = {
    {.in = "f32[4,10] i32[4]", .attrs = "first=20", .lo = -3, .hi = 3, .int_lo = 15, .int_hi = 35},
    {.in = "f32[2,7] i32[2]", .lo = 500, .hi = 800, .int_lo = -1, .int_hi = 6},
    {.in = "bf16[3,8] i32[3]", .int_hi = 7},
    {.in = "f32[0,10] i32[0]"},
    {.in = "f32[4,10] i32[5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,0] i32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,10] i32[4]", .attrs = "first=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample join_samples[] = {
    {.in = "f32[4,6] f32[4,10] i32[4]", .attrs = "n=2 first=6", .lo = 0.5, .hi = 3, .int_hi = 11},
    {.in = "f32[6,5] f32[6,15] i32[6]",
     .attrs = "n=3 smoothing=0.1",
     .lo = 0.5,
     .hi = 3,
     .int_lo = -1,
     .int_hi = 14},
    {.in = "f32[0,5] f32[0,5] i32[0]"},
    {.in = "f32[4,6] f32[4,5] i32[4]", .attrs = "n=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,5] i32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,5] i32[4]", .attrs = "smoothing=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] f32[4,5] i32[4]", .attrs = "n=0", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample join_grad_samples[] = {
    {.in = "f32[4,6] i32[4] f32[] f32[4,2]",
     .attrs = "n=2 first=6",
     .lo = 0.5,
     .hi = 3,
     .int_hi = 11},
    {.in = "f32[6,5] i32[6] f32[] f32[6,2]",
     .attrs = "n=3 smoothing=0.1",
     .lo = 0.5,
     .hi = 3,
     .int_lo = -1,
     .int_hi = 14},
    {.in = "bf16[2,4] i32[2] f32[] f32[2,2]", .lo = 0.5, .hi = 3, .int_hi = 3},
    {.in = "f32[0,5] i32[0] f32[] f32[0,2]"},
    {.in = "f32[4,6] i32[4] f32[] f32[4,5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6] i32[4] f32[1] f32[4,2]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_vocabulary[] = {
    {.name = "entropy_part",
     .doc = "of each row of logits[R,C]: max, sum e^(x-max), x[label - first] or 0, sum, class of "
            "the max; inputs logits, labels",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .traits = TTI_READS_LOW,
     .attrs = part_attrs,
     .infer = entropy_part_infer,
     .shard = entropy_part_shard,
     .cost = entropy_cost,
     .reference = entropy_part_reference,
     .samples = part_samples},
    {.name = "entropy_join",
     .doc = "loss_sum, count, correct, rows of cross_entropy from the parts[R,5n] of n workers; "
            "inputs logits, parts, labels",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 4,
     .saved_out = 8,
     .traits = TTI_READS_LOW,
     .attrs = join_attrs,
     .infer = entropy_join_infer,
     .grad = entropy_join_gradient,
     .shard = entropy_join_shard,
     .cost = join_cost,
     .reference = entropy_join_reference,
     .samples = join_samples},
    {.name = "entropy_join_grad",
     .doc = "dx = (softmax(x) - t) dloss for the own classes; inputs logits, labels, dloss, rows",
     .n_in_min = 4,
     .n_in_max = 4,
     .n_out = 1,
     .traits = TTI_IN_PLACE,
     .attrs = join_attrs,
     .infer = entropy_join_grad_infer,
     .shard = entropy_join_grad_shard,
     .cost = entropy_cost,
     .reference = entropy_join_grad_reference,
     .samples = join_grad_samples},
    {0},
};

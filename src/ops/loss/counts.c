/* counts.c - what metrics are made of: counts of classes, and sums of errors of values.  They have
 * no gradient.
 *
 *   class_counts   per class the correct predictions, the targets and the predictions; and how many
 *                  targets are among the k largest logits, of how many
 *   value_sums     per column the number of values, the sums of |e| and e^2 of their errors, and
 *                  mean and sum of squared deviations of the targets
 *
 * Rows whose label is -1 do not count.  Of equal logits the first one is the larger one; a row with
 * a NaN predicts no class. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"

static const tti_attr_spec class_attrs[] = {
    {"k", TTI_ATTR_INT, 1, "a target among the k largest logits counts as correct"}, {0}};

/* ---- infer ---- */

static tutti_status class_counts_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, 1, 1));
    if (tti_in_dim(node, 0, 0) != tti_in_dim(node, 1, 0))
        return tti_node_fail(node, "%lld rows of logits, %lld labels",
                             (long long)tti_in_dim(node, 0, 0), (long long)tti_in_dim(node, 1, 0));
    if (tti_attr_int(node, "k") < 1)
        return tti_node_fail(node, "k must be >= 1, is %lld", (long long)tti_attr_int(node, "k"));
    out[0] = (tutti_type){TUTTI_I32, TUTTI_SHAPE(3, tti_in_dim(node, 0, 1))};
    out[1] = (tutti_type){TUTTI_I32, TUTTI_SHAPE(2)};
    return TUTTI_OK;
}

static tutti_status value_sums_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, 2));
    TTI_TRY(tti_need_n_dims(node, 0, 2));
    TTI_TRY(tti_need_same_shape(node, 0, 1));
    TTI_TRY(tti_need_dtype(node, 2, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, 2, 1));
    if (tti_in_dim(node, 0, 0) != tti_in_dim(node, 2, 0))
        return tti_node_fail(node, "%lld rows, %lld labels", (long long)tti_in_dim(node, 0, 0),
                             (long long)tti_in_dim(node, 2, 0));
    out[0] = (tutti_type){TUTTI_F64, TUTTI_SHAPE(5, tti_in_dim(node, 0, 1))};
    return TUTTI_OK;
}

/* ---- references ---- */

/* The largest logit, and how many come before that of the target; -1 and n for a NaN. */
static void rank_row(const double *x, size_t n, size_t target, size_t *best, size_t *before) {
    *best = 0, *before = 0;
    for (size_t j = 0; j < n; j++) {
        if (isnan(x[j])) {
            *best = SIZE_MAX, *before = n;
            return;
        }
        if (x[j] > x[*best]) *best = j;
        *before += x[j] > x[target] || (x[j] == x[target] && j < target);
    }
}

static void class_counts_reference(const tti_args *a) {
    size_t rows = (size_t)tti_in_dim(a->node, 0, 0), n = (size_t)tti_in_dim(a->node, 0, 1);
    int64_t k = tti_attr_int(a->node, "k");
    double *correct = a->out[0], *targets = correct + n, *predicted = targets + n;
    memset(a->out[0], 0, 3 * n * sizeof(double));
    a->out[1][0] = a->out[1][1] = 0;
    for (size_t r = 0; r < rows; r++) {
        double label = a->in[1][r];
        size_t best, before;
        if (!(label >= 0 && label < (double)n)) continue;
        rank_row(a->in[0] + r * n, n, (size_t)label, &best, &before);
        targets[(size_t)label]++;
        if (best != SIZE_MAX) predicted[best]++;
        if (best == (size_t)label) correct[best]++;
        a->out[1][0] += before < n && (int64_t)before < k;
        a->out[1][1]++;
    }
}

static void value_sums_reference(const tti_args *a) {
    size_t rows = (size_t)tti_in_dim(a->node, 0, 0), width = (size_t)tti_in_dim(a->node, 0, 1);
    for (size_t c = 0; c < width; c++) {
        double n = 0, size = 0, square = 0, sum = 0, deviations = 0;
        for (size_t r = 0; r < rows; r++) {
            if (a->in[2][r] == -1) continue;
            double target = a->in[1][r * width + c], error = a->in[0][r * width + c] - target;
            n++, size += fabs(error), square += error * error, sum += target;
        }
        double mean = n > 0 ? sum / n : 0;
        for (size_t r = 0; r < rows; r++) {
            double d = a->in[1][r * width + c] - mean;
            if (a->in[2][r] != -1) deviations += d * d;
        }
        const double sums[] = {n, size, square, mean, deviations};
        for (size_t i = 0; i < 5; i++) a->out[0][i * width + c] = sums[i];
    }
}

/* ---- shard, cost ---- */

static tutti_status class_counts_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00", "PP"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, all inputs alike");
}

/* The means are those of the own rows. */
static tutti_status value_sums_shard(const tti_node *node, const tti_placement *in,
                                     tti_placement *out) {
    static const tti_shard_rule rules[] = {{"000", "O"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows can be split, all inputs alike");
}

static void counts_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 4.0 * (double)tti_in_n(node, 0), cost);
}

/* ---- records ---- */

static const tti_sample class_samples[] = {
    {.in = "f32[9,5] i32[9]", .int_lo = -1, .int_hi = 4},
    {.in = "f32[9,5] i32[9]", .attrs = "k=3", .int_lo = -1, .int_hi = 5},
    {.in = "f32[600,40] i32[600]", .attrs = "k=5", .int_lo = -1, .int_hi = 39},
    {.in = "f32[0,5] i32[0]"},
    {.in = "f32[9,5] i32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[9,5] f32[9]", .expect = TUTTI_E_INVALID},
    {.in = "f32[9,5] i32[9]", .attrs = "k=0", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample value_samples[] = {
    {.in = "f32[9,5] f32[9,5] i32[9]", .int_lo = -1, .int_hi = 0},
    {.in = "f32[700,3] f32[700,3] i32[700]", .int_lo = -1, .int_hi = 1},
    {.in = "f32[0,5] f32[0,5] i32[0]"},
    {.in = "f32[9,5] f32[9,4] i32[9]", .expect = TUTTI_E_INVALID},
    {.in = "f32[9] f32[9] i32[9]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_counts[] = {
    {.name = "class_counts",
     .doc = "per class correct predictions, targets, predictions; and targets among the k largest, "
            "targets",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 2,
     .attrs = class_attrs,
     .infer = class_counts_infer,
     .grad = tti_grad_none,
     .shard = class_counts_shard,
     .cost = counts_cost,
     .reference = class_counts_reference,
     .samples = class_samples},
    {.name = "value_sums",
     .doc = "per column: number, sum |e|, sum e^2, mean t, sum (t - mean)^2; e = x - t",
     .n_in_min = 3,
     .n_in_max = 3,
     .n_out = 1,
     .infer = value_sums_infer,
     .shard = value_sums_shard,
     .cost = counts_cost,
     .reference = value_sums_reference,
     .samples = value_samples},
    {0},
};

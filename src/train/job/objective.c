/* objective.c - adds the loss to the end of a model.
 *
 * With mixup, the two labels of a row become one target, a distribution over the classes, because
 * the loss is linear in the target.  A missing row has a target of zeros and thus neither loss nor
 * gradient. */
#include "train/job/objective.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "data/loader/mixup.h"
#include "data/target.h"
#include "ops/op_table.h"
#include "tutti/losses.h"

/* Returns column k of a target [rows, TTI_MIXUP_LABELS] as [rows, 1]. */
static tutti_value *column(tutti_graph *g, tutti_value *target, int64_t k) {
    return tutti_slice(g, target, 1, k, 1);
}

/* Returns the labels of column k, [rows]. */
static tutti_value *labels_of(tutti_graph *g, tutti_value *target, int64_t k) {
    return tutti_reshape(g, column(g, target, k), &TUTTI_SHAPE(target->type.shape.dim[0]));
}

/* Returns the distribution w * onehot(own) + (1 - w) * onehot(other), f32 [rows, classes]. */
static tutti_value *mixed_target(tutti_graph *g, tutti_value *target, int64_t n_classes) {
    tutti_value *own = tutti_one_hot(g, labels_of(g, target, 0), n_classes);
    tutti_value *other = tutti_one_hot(g, labels_of(g, target, 1), n_classes);
    tutti_value *weight = tutti_cast(g, column(g, target, 2), TUTTI_F32);
    weight = tutti_affine(g, weight, 1.0 / TTI_MIXUP_ONE, 0);
    return tutti_add(g, other, tutti_mul(g, weight, tutti_sub(g, own, other)));
}

/* Label smoothing: (1 - s) * target + s / classes, in rows that are not missing. */
static tutti_value *smoothed(tutti_graph *g, tutti_value *wanted, double s, int64_t n_classes) {
    if (s <= 0) return wanted;
    tutti_value *kept = tutti_sum(g, wanted, &(tutti_axes){.n = 1, .axis = {1}, .keep = true});
    return tutti_add(g, tutti_affine(g, wanted, 1 - s, 0),
                     tutti_affine(g, kept, s / (double)n_classes, 0));
}

/* The entropy of t, -sum of t ln t with 0 ln 0 = 0.  It has no gradient. */
static tutti_value *entropy(tutti_graph *g, tutti_value *t) {
    tutti_value *least = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1e-30);
    tutti_value *surprise = tutti_neg(g, tutti_log(g, tutti_maximum(g, t, least)));
    return tutti_sum(g, tutti_mul(g, t, surprise), &(tutti_axes){0});
}

/* The cross entropy -sum of t ln softmax(logits), computed as the KL divergence from t plus the
 * entropy of t. */
static tutti_value *soft_entropy(tutti_graph *g, tutti_value *logits, tutti_value *t,
                                 tutti_value *label) {
    tutti_loss far = tutti_kl_div(g, tutti_log_softmax(g, logits, 1), t, label, -1);
    return tutti_add(g, far.sum, entropy(g, t));
}

void tti_objective_add(tutti_graph *g, const tti_job_config *c, tutti_value *logits,
                       tutti_value *target) {
    tutti_value *sums[TTI_MAX_OUT] = {0}, *mse[TTI_MAX_OUT] = {0}, *wanted = NULL;
    if (!logits || !target) return;
    bool is_mse = strcmp(c->train.loss, "mse") == 0;
    bool is_mixed = target->type.shape.n_dims == 2;
    double smoothing = is_mse ? 0 : c->train.label_smoothing;
    int64_t n_classes = logits->type.shape.dim[1];
    tutti_value *label = is_mixed ? labels_of(g, target, 0) : target;
    tti_emit_n(g, "cross_entropy", "loss", (tutti_value *[]){logits, label}, 2,
               (tti_attr_arg[]){TTI_FLOAT("smoothing", smoothing), {0}}, sums);
    if (is_mixed) wanted = mixed_target(g, target, n_classes);
    if (is_mixed && !is_mse)
        sums[0] = soft_entropy(g, logits, smoothed(g, wanted, smoothing, n_classes), label);
    if (is_mse) {
        if (!is_mixed) wanted = tutti_one_hot(g, label, n_classes);
        tti_emit_n(g, "mse", "loss", (tutti_value *[]){logits, wanted, label}, 3, NULL, mse);
    }
    tutti_output(g, "loss_sum", is_mse ? mse[0] : sums[0]);
    tutti_output(g, "count", is_mse ? mse[1] : sums[1]);
    tutti_output(g, "correct", sums[2]);
}

/* ---- values ---- */

/* Returns 1 for a row with a target, which is an even number, and 0 for a missing row, whose target
 * is -1. */
static tutti_value *presence(tutti_graph *g, tutti_value *target) {
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    return tutti_minimum(g, tutti_abs(g, tutti_affine(g, target, 1, 1)), one);
}

/* The loss of an error e: |e| (mae); e^2/2 up to delta and linear beyond (huber); huber divided by
 * delta (smooth_l1). */
static tutti_value *loss_of(tutti_graph *g, const tti_job_config *c, tutti_value *error) {
    tutti_value *size = tutti_abs(g, error);
    if (strcmp(c->train.loss, "mae") == 0) return size;
    bool is_smooth = strcmp(c->train.loss, "smooth_l1") == 0;
    double bend = is_smooth ? c->train.smooth_l1_beta : c->train.huber_delta;
    tutti_value *delta = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, bend);
    tutti_value *inner = tutti_minimum(g, size, delta);
    tutti_value *loss = tutti_mul(g, inner, tutti_sub(g, size, tutti_affine(g, inner, 0.5, 0)));
    return is_smooth ? tutti_affine(g, loss, 1 / bend, 0) : loss;
}

/* Sums x over the rows that are not missing.  Uses kl_div, which sums t (ln t - q) and gives x for
 * t = 1 and q = -x, because it is a loss that can be divided over shards. */
static tutti_value *sum_rows(tutti_graph *g, tutti_value *x, tutti_value *present,
                             tutti_value *target) {
    return tutti_kl_div(g, tutti_neg(g, x), present, target, -1).sum;
}

void tti_objective_add_values(tutti_graph *g, const tti_job_config *c, tutti_value *predicted,
                              tutti_value *target) {
    if (!predicted || !target) return;
    tutti_value *raw = tutti_cast(g, target, TUTTI_F32);
    raw = tutti_reshape(g, raw, &predicted->type.shape);
    tutti_value *wanted = tutti_affine(g, raw, 1.0 / TTI_TARGET_ONE, 0);
    tutti_loss mse = tutti_mse(g, predicted, wanted, target, -1);
    tutti_value *loss = mse.sum, *error = tutti_sub(g, predicted, wanted);
    if (strcmp(c->train.loss, "mse") != 0)
        loss = sum_rows(g, loss_of(g, c, error), presence(g, raw), target);
    tutti_output(g, "loss_sum", loss);
    tutti_output(g, "count",
                 tti_graph_is_training(g)
                     ? mse.count
                     : sum_rows(g, tutti_abs(g, error), presence(g, raw), target));
    tutti_output(g, "correct", mse.sum);
}

/* ---- targets of any shape ---- */

static bool is_loss(const tti_job_config *c, const char *name) {
    return strcmp(c->train.loss, name) == 0;
}

static bool is_of_classes(const tti_job_config *c) {
    return is_loss(c, "cross-entropy") || is_loss(c, "focal") || is_loss(c, "dice");
}

/* auto means 255 for masks, which mark ignored pixels with it. */
const char *tti_ignored_label(const tti_job_config *c) {
    if (strcmp(c->train.ignore_index, "auto") != 0) return c->train.ignore_index;
    return strcmp(c->data.format, "masks") == 0 && is_of_classes(c) ? "255" : "none";
}

static bool has_ignored(const tti_job_config *c) {
    return strcmp(tti_ignored_label(c), "none") != 0;
}

bool tti_loss_is_contrastive(const tti_job_config *c) {
    return is_loss(c, "infonce") || is_loss(c, "sigmoid");
}

bool tti_loss_wants_fields(const tti_job_config *c) {
    return tti_loss_is_contrastive(c) || is_loss(c, "bce") || is_loss(c, "dice") ||
           is_loss(c, "kl") || is_loss(c, "cosine");
}

bool tti_loss_is_named(const tti_job_config *c) {
    return is_loss(c, "focal") || c->train.class_weights[0] || has_ignored(c);
}

enum { MOST_IGNORED = 1 << 24 }; /* limit of an ignored label */

static tutti_status lost_key(const char *key, const char *losses, const tti_job_config *c) {
    return tti_fail(TUTTI_E_CONFIG, "%s: is for train.loss=%s, and train.loss is %s", key, losses,
                    c->train.loss);
}

tutti_status tti_objective_check(const tti_job_config *c, bool has_fields) {
    int64_t ignored;
    if (tti_loss_wants_fields(c) && !has_fields)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.loss: %s needs samples with fields, arrays of data.format=npy: give "
                        "data.fields=all",
                        c->train.loss);
    if (c->train.class_weights[0] && !is_loss(c, "cross-entropy"))
        return lost_key("train.class_weights", "cross-entropy", c);
    if (c->train.pos_weight[0] && !is_loss(c, "bce")) return lost_key("train.pos_weight", "bce", c);
    if ((c->train.focal_gamma != 2 || c->train.focal_alpha != 0) && !is_loss(c, "focal"))
        return lost_key("train.focal_gamma, train.focal_alpha", "focal", c);
    if (c->train.temperature != 0 && !tti_loss_is_contrastive(c))
        return lost_key("train.temperature", "infonce or sigmoid", c);
    if (c->train.logit_bias != -10 && !is_loss(c, "sigmoid"))
        return lost_key("train.logit_bias", "sigmoid", c);
    if (has_ignored(c) && !is_of_classes(c))
        return lost_key("train.ignore_index", "cross-entropy, focal or dice", c);
    if (has_ignored(c) && (tti_parse_int(tti_ignored_label(c), &ignored) != TTI_NUMBER_OK ||
                           ignored < -MOST_IGNORED || ignored > MOST_IGNORED))
        return tti_fail(TUTTI_E_CONFIG, "train.ignore_index: '%s' is not a label",
                        c->train.ignore_index);
    if (c->data.mixup > 0 && tti_loss_is_named(c))
        return tti_fail(TUTTI_E_CONFIG,
                        "data.mixup: cannot be combined with focal, class weights or ignored "
                        "labels; give data.mixup=0");
    return TUTTI_OK;
}

enum { MAX_WEIGHTS = 4096 };

/* Reads the number before the next comma, ignoring surrounding blanks. */
static tti_number read_weight(const char *text, double *out) {
    char word[64];
    text += strspn(text, " ");
    size_t n = strcspn(text, ",");
    while (n > 0 && text[n - 1] == ' ') n--;
    if (n >= sizeof word) return TTI_NUMBER_MALFORMED;
    snprintf(word, sizeof word, "%.*s", (int)n, text);
    return tti_parse_float(word, out);
}

/* Reads comma-separated numbers; TUTTI_E_CONFIG if the text is malformed. */
static tutti_status read_weights(const char *key, const char *text, double *out, int64_t *n) {
    *n = 0;
    while (*text) {
        double x = 0;
        tti_number form = read_weight(text, &x);
        if (form == TTI_NUMBER_TINY)
            return tti_fail(TUTTI_E_CONFIG,
                            "%s: number %" PRId64
                            " is too small to compute with; write 0 if that is meant",
                            key, *n + 1);
        if (form != TTI_NUMBER_OK || x < 0 || x > 1e30 || *n == MAX_WEIGHTS)
            return tti_fail(
                TUTTI_E_CONFIG,
                "%s: expected numbers of 0 or more, separated by commas, such as \"0.5, 2\"", key);
        out[(*n)++] = x;
        text += strcspn(text, ",");
        text += *text == ',';
    }
    return TUTTI_OK;
}

tutti_status tti_objective_add_named(tutti_graph *g, const tti_job_config *c,
                                     const tti_compared *x) {
    bool is_entropy = is_loss(c, "cross-entropy"), is_bce = is_loss(c, "bce");
    double *weight = tti_arena_alloc(tti_graph_arena(g), MAX_WEIGHTS * sizeof *weight);
    if (!weight) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    bool is_smooth = is_loss(c, "smooth_l1");
    tutti_loss_desc desc = {.smoothing = c->train.label_smoothing,
                            .ignores = has_ignored(c),
                            .ignore = atoll(tti_ignored_label(c)),
                            .weight = weight,
                            .gamma = c->train.focal_gamma,
                            .alpha = c->train.focal_alpha,
                            .temperature = c->train.temperature,
                            .scale = x->scale,
                            .bias = x->bias,
                            .logit_bias = c->train.logit_bias,
                            .delta = is_smooth ? c->train.smooth_l1_beta : c->train.huber_delta};
    if (is_entropy)
        TTI_TRY(
            read_weights("train.class_weights", c->train.class_weights, weight, &desc.n_weights));
    bool counts = desc.n_weights == 0; /* some class must have a weight above 0 */
    for (int64_t i = 0; i < desc.n_weights; i++) counts |= weight[i] > 0;
    if (!counts)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.class_weights: all weights are 0, so there is nothing to learn");
    if (is_bce)
        TTI_TRY(read_weights("train.pos_weight", c->train.pos_weight, weight, &desc.n_weights));
    const char *name = is_entropy ? "cross_entropy" : c->train.loss;
    tutti_set_loss(g, tutti_loss_named(g, name, x->predicted, x->target, x->present, &desc));
    tutti_status st = tutti_graph_check(g);
    return st == TUTTI_E_INVALID ? tti_fail(TUTTI_E_CONFIG, "train.loss: %s", tutti_last_error())
                                 : st;
}

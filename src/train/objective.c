/* objective.c - the loss at the end of a model.
 *
 * Two labels of a row become one target, a distribution over the classes: the loss is linear in
 * it.  A missing row has a target of zeros, and so neither loss nor gradient. */
#include "train/objective.h"

#include <string.h>

#include "data/mixup.h"
#include "ops/op_table.h"
#include "tutti/ops.h"

/* Column k of a target [rows, TTI_MIXUP_LABELS], as [rows, 1]. */
static tutti_value *column(tutti_graph *g, tutti_value *target, int64_t k) {
    return tutti_slice(g, target, 1, k, 1);
}

/* The labels of column k, [rows]. */
static tutti_value *labels_of(tutti_graph *g, tutti_value *target, int64_t k) {
    return tutti_reshape(g, column(g, target, k), &TUTTI_SHAPE(target->type.shape.dim[0]));
}

/* w [own] + (1 - w) [other], f32 [rows, classes]. */
static tutti_value *mixed_target(tutti_graph *g, tutti_value *target, int64_t n_classes) {
    tutti_value *own = tutti_one_hot(g, labels_of(g, target, 0), n_classes);
    tutti_value *other = tutti_one_hot(g, labels_of(g, target, 1), n_classes);
    tutti_value *weight = tutti_cast(g, column(g, target, 2), TUTTI_F32);
    weight = tutti_affine(g, weight, 1.0 / TTI_MIXUP_ONE, 0);
    return tutti_add(g, other, tutti_mul(g, weight, tutti_sub(g, own, other)));
}

/* (1 - s) of the target and s spread over the classes, in rows that are there. */
static tutti_value *smoothed(tutti_graph *g, tutti_value *wanted, double s, int64_t n_classes) {
    if (s <= 0) return wanted;
    tutti_value *kept = tutti_sum(g, wanted, &(tutti_axes){.n = 1, .axis = {1}, .keep = true});
    return tutti_add(g, tutti_affine(g, wanted, 1 - s, 0),
                     tutti_affine(g, kept, s / (double)n_classes, 0));
}

/* - sum of t ln t, which has no gradient; 0 ln 0 is 0. */
static tutti_value *entropy(tutti_graph *g, tutti_value *t) {
    tutti_value *least = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1e-30);
    tutti_value *surprise = tutti_neg(g, tutti_log(g, tutti_maximum(g, t, least)));
    return tutti_sum(g, tutti_mul(g, t, surprise), &(tutti_axes){0});
}

/* - sum of t ln softmax(logits): how far that is from t, and what is in t itself. */
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

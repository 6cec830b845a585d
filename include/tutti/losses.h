/* losses.h - losses and metrics by name, and a model's own.
 *
 * A loss is a sum over the samples of a shard with its count; the trainer adds both over all shards
 * and divides once.  The losses here are made of the operations of tutti/ops.h.
 *
 *   cross_entropy  predicted logits, target i32 classes: logits [N,C,...] or [N,...,C] for target
 *                  [N,...], so per sample, per token or per pixel; smoothing, ignore, class weights
 *   focal          the same with (1 - p)^gamma; or binary: predicted and target of one shape,
 *                  target in 0 .. 1; alpha
 *   dice           1 - 2 sum(p t) / (sum p + sum t), by sample and class; predicted logits as in
 *                  cross_entropy, or of the target's shape; ignore
 *   bce            predicted logits and target of one shape, target in 0 .. 1; pos_weight
 *   mse mae huber smooth_l1
 *                  predicted and target of one shape; delta, beta
 *   kl             predicted logits, target probabilities of the same shape, over the last axis
 *   cosine         1 - cos(predicted, target) over the last axis
 *   infonce        predicted and target: embeddings f32 [N,D] of two views of each sample (CLIP).
 *                  Cross entropy of scale cos(a_i, b_j) over the samples j of the whole batch, and
 *                  the same with a and b exchanged, halved; temperature or scale
 *   sigmoid        the same embeddings (SigLIP): the sum over j of ln(1 + e^-z), z = +-(scale
 *                  cos(a_i, b_j) + bias), + for j = i; temperature or scale, bias
 *
 * Counts: cross_entropy and focal of classes count the targets that are not ignored (or add their
 * weights).  mse, mae, huber, smooth_l1, bce and binary focal count elements.  kl and cosine count
 * rows.  dice, infonce and sigmoid count samples.
 *
 * infonce and sigmoid compare each sample with those of all shards (tutti_gather_rows).  "correct"
 * counts the samples whose most similar target is their own.
 */
#ifndef TUTTI_LOSSES_H
#define TUTTI_LOSSES_H

#include "tutti/ops.h"

/* Zero is the default of every field. */
typedef struct tutti_loss_desc {
    double smoothing;     /* cross_entropy: fraction of the target given to all classes     */
    bool ignores;         /* cross_entropy, focal of classes, dice: targets equal to ignore */
    int64_t ignore;       /* do not count                                                   */
    const double *weight; /* cross_entropy: [n_weights] of the classes; bce: of the         */
    int64_t n_weights;    /* positive targets of each column (pos_weight), or one for all   */
    double gamma;         /* focal; 0: 2                                                    */
    double alpha;         /* binary focal: weight of the positives; 0: none                 */
    double delta;         /* huber: where the line begins; smooth_l1: beta; 0: 1            */
    double smooth;        /* dice: added to numerator and denominator; 0: 1                 */
    double temperature;   /* infonce, sigmoid: 1 / scale; 0: 0.07 and 0.1                   */
    tutti_value *scale;   /* the same: f32 with one element, such as a parameter; NULL: 1 / */
    tutti_value *bias;    /* temperature.  sigmoid: likewise; NULL: logit_bias              */
    double logit_bias;    /* sigmoid: bias if it is not a value                             */
} tutti_loss_desc;

TUTTI_EXTERN_C_BEGIN

/* The loss `name` of the list above.  present i32[N] or NULL: samples with -1 are padding.  desc
 * may be NULL.  Shapes that do not fit fail as those of other builders do. */
TUTTI_API tutti_loss tutti_loss_named(tutti_graph *g, const char *name, tutti_value *predicted,
                                      tutti_value *target, tutti_value *present,
                                      const tutti_loss_desc *desc);

/* Names in the order of the list: i = 0, 1, ... until NULL. */
TUTTI_API const char *tutti_loss_name_at(int i);

/* Gathers the rows of all shards of the batch: x f32 [n,...] -> [shards n,...], in the order of the
 * shards; returns x for one shard.  The gradient of a row is summed over all shards, in an order
 * that does not depend on the number of workers. */
TUTTI_API tutti_value *tutti_gather_rows(tutti_graph *g, tutti_value *x);

/* i32 [n]: the index of each row of this shard in the result of tutti_gather_rows; -1 for padding,
 * where present i32 [n] is -1. */
TUTTI_API tutti_value *tutti_batch_rows(tutti_graph *g, tutti_value *present);

/* The loss of this model, in place of the job's: sum and count, f32 scalars. */
TUTTI_API void tutti_set_loss(tutti_graph *g, tutti_loss loss);

/* ---- metrics: computed at every evaluation ----
 *
 *   accuracy        the largest logit is that of the target, for classes as in cross_entropy.  If
 *                   predicted and target have one shape: the logit is above 0 where the target is
 *                   above 0.5
 *
 *   topK            top5, top3, ...: the logit of the target is among the K largest
 *
 *   class_accuracy  the fraction of correct predictions of each class; mean over the classes
 *
 *   miou            intersection / union of target and prediction; mean over the classes
 *
 *   auc             area under the ROC curve, for two classes, or predicted and target of one
 *                   shape; [N,L]: mean over the columns
 *
 *   mae rmse r2     predicted and target of one shape; [N,T]: mean over the columns
 *
 *   perplexity      e to the mean cross entropy, without weights and smoothing
 *
 * Targets of classes equal to desc->ignore do not count, as in losses.  Sums are added over the
 * shards in their order, so the results do not depend on the number of workers. */

/* Adds the metric `name` of the list above to a graph for evaluation; other arguments as in
 * tutti_loss_named.  Does nothing in a graph for training. */
TUTTI_API void tutti_add_metric_named(tutti_graph *g, const char *name, tutti_value *predicted,
                                      tutti_value *target, tutti_value *present,
                                      const tutti_loss_desc *desc);

/* Adds a metric of the model's own, of this name: sum / count, f32 scalars that are added up over
 * all shards.  In a graph for training it is reported with the loss of each step, in a graph for
 * evaluation with the other metrics; a model should add the same ones to both, at most 32. */
TUTTI_API void tutti_add_metric(tutti_graph *g, const char *name, tutti_value *sum,
                                tutti_value *count);

/* The part of a sample that has this name: a field, or "x", or "y" for the labels; NULL, with a
 * failure noted, if samples have no such part.  Labels that data.mixup has mixed cannot be read. */
TUTTI_API tutti_value *tutti_find_field(tutti_graph *g, const char *name);

/* i32 [N], -1 for rows of the batch that are padding and must not count.  A sample with several
 * labels, such as a text, counts unless all of them are -1.  NULL outside of training and
 * evaluation by a job. */
TUTTI_API tutti_value *tutti_find_present(tutti_graph *g);

TUTTI_EXTERN_C_END

#endif /* TUTTI_LOSSES_H */

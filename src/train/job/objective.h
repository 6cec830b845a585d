/* objective.h - adds the loss to the end of the graph of a shard. */
#ifndef TTI_TRAIN_OBJECTIVE_H
#define TTI_TRAIN_OBJECTIVE_H

#include "ir/graph.h"
#include "train/job/job.h"

/* Adds the outputs loss_sum, count and correct of classification, by train.loss.
 *
 *   logits   f32 [rows, classes]
 *   target   i32 [rows]: labels, -1 where a row is missing; or under data.mixup, in training, i32
 *            [rows, TTI_MIXUP_LABELS] (data/loader/mixup.h): the loss is that of both labels by
 *            their weights, and a prediction is correct if it is the first one
 *
 * Errors are sticky, as in every builder: tutti_graph_check reports them. */
void tti_objective_add(tutti_graph *g, const tti_job_config *config, tutti_value *logits,
                       tutti_value *target);

/* The same for a regression, by train.loss.  correct is the sum of squared errors.  In a graph for
 * evaluation, count is the sum of absolute errors: the caller knows how many values there are.
 *
 *   predicted  f32 [values, 1], of all rows
 *   target     i32 [values]: as data/target.h has them, -1 where a row is missing */
void tti_objective_add_values(tutti_graph *g, const tti_job_config *config, tutti_value *predicted,
                              tutti_value *target);

/* True if the loss compares each sample with all others of the batch. */
bool tti_loss_is_contrastive(const tti_job_config *config);

/* True if the targets of the loss are fields, not labels. */
bool tti_loss_wants_fields(const tti_job_config *config);

/* True if the loss needs tti_objective_add_named, even for labels. */
bool tti_loss_is_named(const tti_job_config *config);

/* The label that is not counted, "none" if all are: train.ignore_index with auto resolved. */
const char *tti_ignored_label(const tti_job_config *config);

/* Checks train.loss.  TUTTI_E_CONFIG: the loss needs samples with fields, or a key has no
 * effect. */
tutti_status tti_objective_check(const tti_job_config *config, bool has_fields);

/* The values that a loss of tutti/losses.h compares. */
typedef struct tti_compared {
    tutti_value *predicted, *target;
    tutti_value *present;      /* i32[N]: -1 where a row is missing */
    tutti_value *scale, *bias; /* for contrastive losses; NULL: the values of the job */
} tti_compared;

/* Adds the loss of train.loss for a target of any shape and type. */
tutti_status tti_objective_add_named(tutti_graph *g, const tti_job_config *config,
                                     const tti_compared *compared);

#endif /* TTI_TRAIN_OBJECTIVE_H */

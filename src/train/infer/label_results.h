/* label_results.h - results of each binary label in an evaluation. */
#ifndef TTI_TRAIN_LABEL_RESULTS_H
#define TTI_TRAIN_LABEL_RESULTS_H

#include "data/data_spec.h"
#include "tutti/eval.h"

/* Allocates result->labels [n], with their names in the specification. */
tutti_status tti_label_results_make(const tti_data_spec *spec, int64_t n,
                                    tutti_eval_result *result);

/* Counts the predictions for rows: logits and y f32 [n_rows, n_labels]; present [n_rows] is -1 for
 * rows that are not counted. */
void tti_label_results_add(tutti_eval_result *result, const float *logits, const float *y,
                           const int32_t *present, int64_t n_rows);

/* Computes the results from the counts and the metrics. */
void tti_label_results_finish(tutti_eval_result *result);

#endif /* TTI_TRAIN_LABEL_RESULTS_H */

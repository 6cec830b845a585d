/* value_errors.h - rmse, mae and r2 of the targets of a regression, from sums of errors. */
#ifndef TTI_TRAIN_VALUE_ERRORS_H
#define TTI_TRAIN_VALUE_ERRORS_H

#include "data/dataset.h"
#include "exec/exec.h"
#include "train/infer/metric_set.h"
#include "tutti/eval.h"

/* Maximum number of targets whose errors are measured separately, because each costs a pass over
 * the test split. */
enum { TTI_EVALUATED_TARGETS = 16 };

/* Sums over the test split.  A regression with at most TTI_EVALUATED_TARGETS targets also has the
 * sums of squared and absolute errors of each target, in its standard deviations. */
typedef struct tti_eval_sums {
    tti_step_result all; /* loss_sum, count (of labels or values), correct (objective.h) */
    int64_t n_rows;
    tti_metric_set *metrics; /* owned by the caller that runs the evaluation; NULL: no metrics */
    double squares[TTI_EVALUATED_TARGETS], sizes[TTI_EVALUATED_TARGETS];
} tti_eval_sums;

/* Computes errors from sums over n_rows rows of the test split: squares and sizes (absolute values)
 * of the errors, [targets] each, in standard deviations of the target.  Sets rmse, mae and r2 of
 * each[targets] in the target's unit, and *mean to the means over the targets. r2 is NAN if it is
 * undefined. */
TUTTI_NODISCARD tutti_status tti_value_errors(const tutti_dataset *test, double n_rows,
                                              const double *squares, const double *sizes,
                                              tutti_value_result *each, tutti_value_result *mean);

#endif /* TTI_TRAIN_VALUE_ERRORS_H */

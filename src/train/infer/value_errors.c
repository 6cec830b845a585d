/* value_errors.c - rmse, mae and r2 of the targets of a regression, for training and tutti_eval. */
#include "train/infer/value_errors.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"

tutti_status tti_value_errors(const tutti_dataset *test, double n_rows, const double *squares,
                              const double *sizes, tutti_value_result *each,
                              tutti_value_result *mean) {
    const tti_target_spec *t = &tti_dataset_spec(test)->target;
    double n = (double)t->n, *r2 = calloc((size_t)t->n, sizeof *r2);
    if (!r2)
        return tti_fail(TUTTI_E_NOMEM, "eval: out of memory for %lld targets", (long long)t->n);
    tutti_status st = tti_target_r2(test, squares, r2);
    *mean = (tutti_value_result){0};
    for (int64_t k = 0; k < t->n && st == TUTTI_OK; k++) {
        tutti_value_result *v = &each[k];
        v->rmse = n_rows > 0 ? t->std[k] * sqrt(squares[k] / n_rows) : 0;
        v->mae = n_rows > 0 ? t->std[k] * sizes[k] / n_rows : 0;
        v->r2 = r2[k];
        mean->rmse += v->rmse / n, mean->mae += v->mae / n, mean->r2 += v->r2 / n;
    }
    free(r2);
    return st;
}

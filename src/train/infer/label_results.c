/* label_results.c - counts the predictions for each binary label.  A logit above 0 predicts 1. */
#include "train/infer/label_results.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"

static tutti_status copy_names(const tti_data_spec *spec, tutti_eval_result *r) {
    tti_str names = {0};
    if (!tti_data_spec_target_name(spec, 0)) return TUTTI_OK;
    for (int64_t k = 0; k < r->n_labels; k++) {
        const char *name = tti_data_spec_target_name(spec, k);
        tti_str_add_bytes(&names, name, strlen(name) + 1);
    }
    r->names = names.text;
    if (names.failed) return tti_fail(TUTTI_E_NOMEM, "eval: out of memory");
    const char *at = r->names;
    for (int64_t k = 0; k < r->n_labels; k++, at += strlen(at) + 1) r->labels[k].name = at;
    return TUTTI_OK;
}

tutti_status tti_label_results_make(const tti_data_spec *spec, int64_t n, tutti_eval_result *r) {
    r->labels = calloc((size_t)n + 1, sizeof *r->labels);
    if (!r->labels) return tti_fail(TUTTI_E_NOMEM, "eval: out of memory");
    r->n_labels = n;
    return copy_names(spec, r);
}

void tti_label_results_add(tutti_eval_result *r, const float *logits, const float *y,
                           const int32_t *present, int64_t n_rows) {
    for (int64_t i = 0; i < n_rows * r->n_labels; i++) {
        if (present[i / r->n_labels] < 0) continue;
        tutti_label_result *label = &r->labels[i % r->n_labels];
        bool is_one = y[i] > 0.5f, predicted = logits[i] > 0;
        label->n_samples++;
        label->n_positive += is_one;
        label->n_predicted += predicted;
        label->n_correct += is_one == predicted;
    }
}

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

void tti_label_results_finish(tutti_eval_result *r) {
    const tutti_metric_result *auc = NULL;
    for (int64_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, "auc") == 0 && r->metrics[i].n_each == r->n_labels)
            auc = &r->metrics[i];
    for (int64_t k = 0; k < r->n_labels; k++) {
        tutti_label_result *label = &r->labels[k];
        /* n_predicted + n_positive = 2 * true positives + wrong predictions */
        double wrong = (double)(label->n_samples - label->n_correct);
        double both = (double)(label->n_predicted + label->n_positive), hits = (both - wrong) / 2;
        label->accuracy = ratio((double)label->n_correct, (double)label->n_samples);
        label->precision = ratio(hits, (double)label->n_predicted);
        label->recall = ratio(hits, (double)label->n_positive);
        label->f1 = ratio(2 * hits, both);
        label->auc = auc ? auc->each[k] : NAN;
    }
}

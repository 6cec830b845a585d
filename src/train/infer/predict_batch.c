/* predict_batch.c - runs the waiting samples as one batch and reports the prediction of each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/fields.h"
#include "train/infer/predicting.h"

/* ---- results ---- */

tutti_status tti_predict_report(const tti_predicting *r, const tutti_prediction *prediction) {
    if (r->fn(r->user, prediction) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERRUPTED, "predict: the callback has ended the call");
}

/* Sets the most likely classes.  False: the logits are not finite. */
static bool take_top(tti_predicting *r, const float *logits, int64_t n, tutti_prediction *out) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, (double)logits[i]);
    for (int64_t i = 0; i < n; i++) sum += exp((double)logits[i] - most);
    if (isnan(sum)) return false;
    for (int64_t i = 0; i < n; i++) r->probabilities[i] = exp((double)logits[i] - most) / sum;
    out->n_outputs = n;
    out->outputs = logits;
    out->probabilities = r->probabilities;
    out->n_top = (int)TTI_MIN(n, (int64_t)TUTTI_PREDICT_TOP);
    for (int k = 0; k < out->n_top; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool taken = false;
            for (int t = 0; t < k; t++) taken |= out->top[t].label == i;
            if (!taken && (best < 0 || logits[i] > logits[best])) best = i;
        }
        out->top[k].label = best;
        out->top[k].name = r->is_text ? NULL : tutti_dataset_class_name(r->ds, best);
        out->top[k].probability = r->probabilities[best];
    }
    return true;
}

/* Reports an output that is not finite. name: name of the output; NULL: the first one. */
static tutti_status report_not_finite(tti_predicting *r, const char *name,
                                      const tutti_prediction *out) {
    char text[1024];
    snprintf(text, sizeof text, "%s: sample %lld: the model's output %s%s%sis not finite",
             out->file, (long long)out->index, name ? "'" : "", name ? name : "", name ? "' " : "");
    r->n_not_finite++;
    return tti_predict_report(
        r, &(tutti_prediction){
               .file = out->file, .index = out->index, .n_in_file = out->n_in_file, .error = text});
}

/* Reports the prediction for a window of text. logits [context, n]. */
static tutti_status report_text(tti_predicting *r, const tti_predict_sample *w, const int32_t *x,
                                const float *logits, int64_t n, tutti_prediction *out) {
    char *text[TUTTI_PREDICT_TOP] = {NULL};
    double loss = 0;
    size_t n_bytes;
    for (int64_t t = 0; t < w->n_tokens; t++) {
        int32_t next = t + 1 < w->n_tokens ? x[t + 1] : w->next;
        if (next < 0) break;
        const float *row = logits + t * n;
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++) most = fmax(most, (double)row[i]);
        for (int64_t i = 0; i < n; i++) sum += exp((double)row[i] - most);
        loss += log(sum) + most - (double)row[next]; /* -log of the token's probability */
        out->n_tokens++;
    }
    out->is_text = true;
    if (out->n_tokens > 0) {
        out->loss = loss / (double)out->n_tokens;
        out->perplexity = exp(out->loss);
    }
    if (!take_top(r, logits + (w->n_tokens - 1) * n, n, out))
        return report_not_finite(r, NULL, out);
    for (int k = 0; tutti_dataset_get_tokenizer(r->ds) && k < out->n_top; k++) {
        int32_t token = (int32_t)out->top[k].label;
        if (tutti_tokenizer_decode(tutti_dataset_get_tokenizer(r->ds), &token, 1, &text[k],
                                   &n_bytes) == TUTTI_OK)
            out->top[k].name = text[k];
    }
    tutti_status st = tti_predict_report(r, out);
    for (int k = 0; k < TUTTI_PREDICT_TOP; k++) free(text[k]);
    return st;
}

/* Sets the values of a regression.  False: one of them is not finite. */
static bool take_values(tti_predicting *r, const float *logits, tutti_prediction *out) {
    const tti_target_spec *target = &tti_dataset_spec(r->ds)->target;
    bool finite = true;
    for (int64_t k = 0; k < target->n; k++) {
        r->values[k] = (double)logits[k] * target->std[k] + target->mean[k];
        finite = finite && isfinite(r->values[k]);
    }
    out->n_outputs = target->n;
    out->outputs = logits;
    out->n_values = target->n;
    out->values = r->values;
    out->names = r->names;
    return finite;
}

/* Sets the probability of a 1 for each label, using exp only of negative numbers, which cannot
 * overflow. */
static void take_labels(tti_predicting *r, const float *logits, tutti_prediction *out) {
    out->probabilities = r->probabilities;
    out->names = r->names;
    for (int64_t k = 0; k < r->n_outputs; k++) {
        double power = exp(-fabs((double)logits[k]));
        r->probabilities[k] = (logits[k] < 0 ? power : 1) / (1 + power);
    }
}

/* For samples with fields, reports the most likely classes, or the output itself. */
static tutti_status report_outputs(tti_predicting *r, const tti_predict_sample *w,
                                   const float *output, tutti_prediction *out) {
    bool finite = true;
    out->n_outputs = r->n_outputs;
    out->outputs = output;
    out->is_labels = r->gives_labels;
    out->is_value = !r->gives_classes && !r->gives_labels && r->side == 0;
    out->n_values = out->is_value ? r->n_outputs : 0;
    out->values = out->is_value ? r->values : NULL;
    for (int64_t k = 0; k < r->n_outputs; k++) {
        r->values[k] = (double)output[k];
        finite = finite && isfinite(r->values[k]);
    }
    if (r->gives_labels) take_labels(r, output, out);
    if (r->gives_classes) finite = take_top(r, output, r->n_outputs, out);
    if (finite && r->side > 0) TTI_TRY(tti_predict_take_mask(r, w, output, out));
    return finite ? tti_predict_report(r, out) : report_not_finite(r, NULL, out);
}

/* Reports the prediction of a waiting sample. row: its number among the waiting samples. */
static tutti_status report(tti_predicting *r, int64_t row, const tti_predicted *shard,
                           int64_t row_in_shard, const float *logits) {
    const tti_predict_sample *w = &r->wait[row];
    int64_t n = r->b->model_params.n_classes;
    tutti_prediction out = {.file = w->file, .index = w->index, .n_in_file = w->n_in_file};
    const char *x = (const char *)r->x + (size_t)row * r->row_bytes;
    const char *bad = tti_predict_take_outputs(r, shard->instance, row_in_shard, &out);
    if (bad) return report_not_finite(r, bad, &out);
    if (r->is_text) return report_text(r, w, (const int32_t *)x, logits, n, &out);
    if (r->n_outputs > 0) return report_outputs(r, w, logits, &out);
    out.is_value = tti_dataset_spec(r->ds)->target.n > 0;
    bool finite = out.is_value ? take_values(r, logits, &out) : take_top(r, logits, n, &out);
    return finite ? tti_predict_report(r, &out) : report_not_finite(r, NULL, &out);
}

/* ---- a batch ---- */

tutti_status tti_predict_flush(tti_predicting *r) {
    int64_t b = r->b->rows_per_shard, n_classes = r->b->model_params.n_classes;
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    int64_t n_logits = info->is_value ? n_classes : tutti_shape_n_elems(&info->y.shape) * n_classes;
    if (r->n_outputs > 0) n_logits = r->n_outputs;
    int n_shards = (int)((r->n_waiting + b - 1) / b);
    if (n_shards == 0) return TUTTI_OK;
    tti_shard_data *shards = calloc((size_t)n_shards, sizeof *shards);
    tti_predicted *out = calloc((size_t)n_shards, sizeof *out);
    tutti_status st = shards && out ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    for (int s = 0; st == TUTTI_OK && s < n_shards; s++)
        shards[s] = (tti_shard_data){(char *)r->x + (size_t)(s * b) * r->row_bytes, r->y,
                                     (int32_t)TTI_MIN(b, r->n_waiting - s * b)};
    if (st == TUTTI_OK) st = tti_predictor_run(r->p, shards, n_shards, out);
    for (int64_t row = 0; st == TUTTI_OK && row < r->n_waiting; row++)
        st = report(r, row, &out[row / b], row % b, out[row / b].logits + row % b * n_logits);
    if (st == TUTTI_OK) r->n_waiting = 0;
    free(shards);
    free(out);
    return st;
}

tutti_status tti_predict_add(tti_predicting *r, tti_predict_sample sample) {
    static const tti_sample_key key;
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    if (info->n_fields > 0)
        tti_fields_put(info->fields, info->n_fields, r->chain[0], 0, 1,
                       (char *)r->x + (size_t)r->n_waiting * r->row_bytes);
    else
        tti_chain_apply(tti_dataset_decode(r->ds), &key, r->chain,
                        tti_type_bytes(tti_dataset_stored(r->ds)),
                        (char *)r->x + (size_t)r->n_waiting * r->row_bytes);
    r->wait[r->n_waiting++] = sample;
    return r->n_waiting == r->n_rows ? tti_predict_flush(r) : TUTTI_OK;
}

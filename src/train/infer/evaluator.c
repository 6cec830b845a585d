/* evaluator.c - tutti_eval: evaluates a checkpoint on the test split, with counts per class.
 *
 * Samples are in the same batches and shards as in training, so loss and accuracy equal those that
 * training logged. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "data/target.h"
#include "train/infer/label_results.h"
#include "train/infer/metric_set.h"
#include "train/infer/output_stats.h"
#include "train/infer/predictor.h"
#include "train/infer/value_errors.h"
#include "train/setup/shard_graph.h"
#include "tutti/eval.h"

/* Maximum number of classes with a confusion matrix; a larger one would need too much memory. */
enum { MAX_CLASSES = 4096 };

typedef struct evaluation {
    tti_predictor *p;
    const tti_blueprint *b;
    tutti_eval_result *result;
    double loss_sum, count, correct;
    double *squares,
        *sizes; /* [targets]: sums over errors of a regression, in standard deviations */
    int64_t targets_per_row;
    int label_field;           /* field of binary labels; -1: none */
    tti_metric_set *metrics;   /* NULL: none */
    tutti_status status;       /* status of the metrics */
    tti_output_stats *outputs; /* NULL: none */
} evaluation;

/* ---- counting ---- */

/* Returns the index of the first maximum, or -1 if a logit is NaN: such a sample is counted for no
 * class. */
static int64_t first_max(const float *x, int64_t n) {
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i])) return -1;
        if (x[i] > x[best]) best = i;
    }
    return best;
}

static void count_classes(tutti_eval_result *r, const float *logits, const int32_t *y,
                          int64_t n_rows) {
    for (int64_t i = 0; i < n_rows && r->n_classes > 0; i++) {
        if (y[i] < 0 || y[i] >= r->n_classes) continue;
        int64_t predicted = first_max(logits + i * r->n_classes, r->n_classes);
        r->classes[y[i]].n_samples++;
        if (predicted >= 0) r->confusion[y[i] * r->n_classes + predicted]++;
    }
}

static void add_errors(evaluation *e, const float *predicted, const int32_t *y) {
    int64_t n_targets = e->targets_per_row;
    for (int64_t i = 0; i < e->b->rows_per_shard * n_targets; i++) {
        if (y[i] == -1) continue;
        double error = (double)predicted[i] - tti_target_decode(y[i]);
        e->squares[i % n_targets] += error * error;
        e->sizes[i % n_targets] += fabs(error);
    }
}

static void take(void *user, const tti_shard_data *data, const tti_predicted *out, int64_t index) {
    evaluation *e = user;
    (void)index;
    e->loss_sum += out->loss_sum;
    e->count += out->count;
    e->correct += out->correct;
    if (e->metrics && e->status == TUTTI_OK) {
        const void *values[TTI_MAX_METRICS];
        for (int i = 0; i < tti_metric_set_n(e->metrics); i++)
            values[i] = tti_instance_output(out->instance, tti_metric_set_output(e->metrics, i));
        e->status = tti_metric_set_add(e->metrics, values);
    }
    if (e->result->n_labels > 0) {
        const tutti_field *fields = tutti_dataset_get_info(e->b->train)->fields;
        const void *y =
            (const char *)data->x + tti_field_offset(fields, e->label_field, e->b->rows_per_shard);
        tti_label_results_add(e->result, out->logits, y, data->target, e->b->rows_per_shard);
    }
    tti_output_stats_add(e->outputs, out->instance, data->n_rows);
    e->result->n_samples += data->n_rows;
    bool is_value = tti_dataset_spec(e->b->train)->target.n > 0;
    for (int64_t i = 0; i < e->b->rows_per_shard * e->targets_per_row; i++) {
        int32_t y = ((const int32_t *)data->target)[i];
        e->result->n_targets += is_value ? y != -1 : y >= 0;
    }
    if (is_value) return add_errors(e, out->logits, data->target);
    count_classes(e->result, out->logits, data->target, e->b->rows_per_shard);
}

/* ---- the result ---- */

static tutti_status copy_names(const tutti_dataset *ds, tutti_eval_result *r) {
    tti_str names = {0};
    for (int64_t i = 0; i < r->n_classes; i++) {
        const char *name = tutti_dataset_class_name(ds, i);
        tti_str_add_bytes(&names, name ? name : "", name ? strlen(name) + 1 : 1);
    }
    r->names = names.text;
    if (names.failed) return tti_fail(TUTTI_E_NOMEM, "eval: out of memory");
    const char *at = r->names;
    for (int64_t i = 0; i < r->n_classes; i++, at += strlen(at) + 1)
        r->classes[i].name = *at ? at : NULL;
    return TUTTI_OK;
}

static tutti_status prepare_values(evaluation *e) {
    const tti_data_spec *spec = tti_dataset_spec(e->b->train);
    tutti_eval_result *r = e->result;
    size_t n = (size_t)spec->target.n;
    tti_str names = {0};
    e->squares = calloc(n, sizeof *e->squares);
    e->sizes = calloc(n, sizeof *e->sizes);
    r->values = calloc(n, sizeof *r->values);
    bool has_names = tti_data_spec_target_name(spec, 0) != NULL;
    for (size_t k = 0; k < n && has_names; k++) {
        const char *name = tti_data_spec_target_name(spec, (int64_t)k);
        tti_str_add_bytes(&names, name, strlen(name) + 1);
    }
    r->names = names.text;
    if (!e->squares || !e->sizes || !r->values || names.failed)
        return tti_fail(TUTTI_E_NOMEM, "eval: out of memory for %zu targets", n);
    r->n_values = spec->target.n;
    const char *at = r->names;
    for (size_t k = 0; k < n && has_names; k++, at += strlen(at) + 1) r->values[k].name = at;
    return TUTTI_OK;
}

/* Prepares the results of labels.  Fails unless the model has one logit per label. */
static tutti_status prepare_labels(evaluation *e) {
    const tutti_dataset_info *info = tutti_dataset_get_info(e->b->train);
    const tutti_value *logits = tti_graph_output(e->b->plan->eval.graph, "logits");
    e->label_field = tti_shard_graph_label_field(&e->b->config, info);
    if (e->label_field < 0 || !logits) return TUTTI_OK;
    int64_t n = tutti_shape_n_elems(&info->fields[e->label_field].type.shape);
    if (tti_value_n_elems(logits) != n * e->b->rows_per_shard) return TUTTI_OK;
    return tti_label_results_make(tti_dataset_spec(e->b->train), n, e->result);
}

static tutti_status prepare_classes(evaluation *e) {
    tutti_eval_result *r = e->result;
    const tutti_dataset_info *info = tutti_dataset_get_info(e->b->test);
    e->targets_per_row = tutti_shape_n_elems(&info->y.shape);
    r->is_sequence = !info->is_value && info->y.shape.n_dims > 0;
    if (info->is_value) return prepare_values(e);
    if (info->n_fields > 0) return prepare_labels(e);
    if (r->is_sequence || e->b->model_params.n_classes > MAX_CLASSES) return TUTTI_OK;
    int64_t n = e->b->model_params.n_classes;
    r->classes = calloc((size_t)n + 1, sizeof *r->classes);
    r->confusion = calloc((size_t)(n * n) + 1, sizeof *r->confusion);
    if (!r->classes || !r->confusion)
        return tti_fail(TUTTI_E_NOMEM, "eval: out of memory for %lld classes", (long long)n);
    r->n_classes = n;
    return copy_names(e->b->test, r);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static void sum_class(const tutti_eval_result *r, int64_t class) {
    tutti_class_result *c = &r->classes[class];
    for (int64_t i = 0; i < r->n_classes; i++)
        c->n_predicted += r->confusion[i * r->n_classes + class];
    c->n_correct = r->confusion[class * r->n_classes + class];
    c->precision = ratio((double)c->n_correct, (double)c->n_predicted);
    c->recall = ratio((double)c->n_correct, (double)c->n_samples);
    c->f1 = ratio(2 * c->precision * c->recall, c->precision + c->recall);
}

/* Computes the errors; with several targets the overall figures are means over the targets. */
static tutti_status finish_values(evaluation *e) {
    tutti_eval_result *r = e->result;
    const tti_target_spec *t = &tti_dataset_spec(e->b->train)->target;
    if (t->n == 0) return TUTTI_OK;
    tutti_value_result mean;
    /* for one target these are the sums that training logged */
    if (t->n == 1) e->squares[0] = e->correct, e->sizes[0] = e->count;
    r->is_regression = true;
    r->accuracy = 0;
    r->loss = ratio(e->loss_sum, (double)r->n_targets);
    TTI_TRY(tti_value_errors(e->b->test, (double)(r->n_targets / t->n), e->squares, e->sizes,
                             r->values, &mean));
    r->rmse = mean.rmse, r->mae = mean.mae, r->r2 = mean.r2;
    return TUTTI_OK;
}

/* Copies the metrics, with their names and parts, into memory of the result. */
static tutti_status finish_metrics(evaluation *e) {
    const tutti_metric_result *found;
    tutti_eval_result *r = e->result;
    int n = 0;
    size_t n_values = 0, n_text = 0;
    TTI_TRY(e->status);
    if (!e->metrics) return TUTTI_OK;
    TTI_TRY(tti_metric_set_finish(e->metrics, &found, &n));
    for (int i = 0; i < n; i++) {
        n_values += (size_t)found[i].n_each;
        n_text += strlen(found[i].name) + 1;
    }
    tutti_metric_result *copy =
        malloc((size_t)n * sizeof *copy + n_values * sizeof(double) + n_text);
    if (!copy) return tti_fail(TUTTI_E_NOMEM, "eval: out of memory");
    double *each = (double *)(void *)(copy + n);
    char *text = (char *)(each + n_values);
    for (int i = 0; i < n; i++) {
        copy[i] = found[i];
        copy[i].each = memcpy(each, found[i].each, (size_t)found[i].n_each * sizeof *each);
        copy[i].name = strcpy(text, found[i].name);
        each += found[i].n_each;
        text += strlen(text) + 1;
    }
    r->metrics = copy;
    r->n_metrics = n;
    return TUTTI_OK;
}

/* Describes the samples that were evaluated. */
static void describe_data(const evaluation *e, char *out, size_t n_bytes) {
    const tti_job_config *c = &e->b->config;
    const char *place = c->data.dir[0] ? c->data.dir : c->data.format;
    struct stat info;
    bool is_file = stat(place, &info) == 0 && S_ISREG(info.st_mode);
    if (!tti_predictor_has_other_data(e->p))
        snprintf(out, n_bytes, "%s: its test split", place);
    else if (c->data.n_test > 0)
        snprintf(out, n_bytes, "%s: the first %lld samples (data.n_test)", place,
                 (long long)c->data.n_test);
    else if (is_file)
        snprintf(out, n_bytes, "%s: all of it", place);
    else
        snprintf(out, n_bytes, "%s: the test split by its names, else all of it", place);
}

static void finish(const evaluation *e) {
    tutti_eval_result *r = e->result;
    double f1 = 0, n = 0;
    for (int64_t i = 0; i < r->n_classes; i++) {
        sum_class(r, i);
        if (r->classes[i].n_samples > 0) f1 += r->classes[i].f1, n++;
    }
    bool nats = strcmp(e->b->config.train.loss, "cross-entropy") == 0;
    r->macro_f1 = ratio(f1, n);
    r->loss = ratio(e->loss_sum, e->count);
    double n_scored =
        tutti_dataset_get_info(e->b->train)->n_fields > 0 ? e->count : (double)r->n_targets;
    r->accuracy = e->b->has_accuracy ? ratio(e->correct, n_scored) : NAN;
    if (r->is_sequence && nats) r->perplexity = exp(r->loss);
    r->step = tti_predictor_step(e->p);
    describe_data(e, r->data, sizeof r->data);
    snprintf(r->checkpoint, sizeof r->checkpoint, "%s", tti_predictor_checkpoint(e->p));
}

tutti_status tutti_eval(tutti_job *job, const char *run_dir, tutti_warn_fn warn, void *user,
                        tutti_eval_result *result) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(run_dir, __func__, "run_dir"));
    TTI_TRY(tti_need(result, __func__, "result"));
    *result = (tutti_eval_result){0};
    evaluation e = {.result = result};
    TTI_TRY(tti_predictor_open_with_test(job, run_dir, warn, user, &e.p));
    e.b = tti_predictor_blueprint(e.p);
    int64_t start_ns = tti_now_ns();
    tutti_status st = prepare_classes(&e);
    if (st == TUTTI_OK) st = tti_metric_set_create(e.b->plan->eval.graph, &e.metrics);
    if (st == TUTTI_OK)
        st = tti_output_stats_create(e.b->plan->eval.graph, e.b->rows_per_shard, &e.outputs);
    if (st == TUTTI_OK) st = tti_predictor_run_test(e.p, INT64_MAX, take, &e);
    if (st == TUTTI_OK) finish(&e);
    if (st == TUTTI_OK) st = finish_values(&e);
    if (st == TUTTI_OK) st = finish_metrics(&e);
    if (st == TUTTI_OK) tti_label_results_finish(result);
    if (st == TUTTI_OK)
        st = tti_output_stats_finish(e.outputs, &result->outputs, &result->n_outputs);
    tti_metric_set_destroy(e.metrics);
    tti_output_stats_destroy(e.outputs);
    result->wall_s = (double)(tti_now_ns() - start_ns) * 1e-9;
    tti_predictor_close(e.p);
    free(e.squares);
    free(e.sizes);
    if (st != TUTTI_OK) tutti_eval_result_free(result);
    return tti_job_say_where(job, st);
}

void tutti_eval_result_free(tutti_eval_result *r) {
    if (!r) return;
    free(r->classes);
    free(r->confusion);
    free(r->values);
    free(r->labels);
    free(r->names);
    free((void *)r->metrics);
    free(r->outputs);
    *r = (tutti_eval_result){0};
}

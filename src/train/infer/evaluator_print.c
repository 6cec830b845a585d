/* evaluator_print.c - prints the result of an evaluation as a table and as JSON.
 *
 * The confusion matrix is printed if it fits into a terminal; otherwise the most frequent
 * confusions are listed.  JSON always has the whole matrix. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/width.h"
#include "ir/graph.h"
#include "tutti/eval.h"

enum { MAX_DRAWN = 16, MAX_PAIRS = 10, MAX_LISTED = 50 };

static const char *class_label(const tutti_eval_result *r, int64_t i, char text[32]) {
    if (r->classes[i].name) return r->classes[i].name;
    snprintf(text, 32, "%lld", (long long)i);
    return text;
}

static void print_classes(tti_str *out, const tutti_eval_result *r) {
    char text[32];
    tti_str_printf(out, "\n%-20s %9s %9s %9s %9s %9s\n", "class", "samples", "predicted",
                   "precision", "recall", "f1");
    for (int64_t i = 0; i < r->n_classes && i < MAX_LISTED; i++) {
        const tutti_class_result *c = &r->classes[i];
        tti_str_add_column(out, class_label(r, i, text), 20);
        tti_str_printf(out, " %9lld %9lld %9.4f %9.4f %9.4f\n", (long long)c->n_samples,
                       (long long)c->n_predicted, c->precision, c->recall, c->f1);
    }
    if (r->n_classes > MAX_LISTED)
        tti_str_printf(out, "... and %lld more (--json lists all)\n",
                       (long long)(r->n_classes - MAX_LISTED));
    tti_str_printf(out, "%-20s %9s %9s %9s %9s %9.4f\n", "mean of the classes", "", "", "", "",
                   r->macro_f1);
}

static void draw_matrix(tti_str *out, const tutti_eval_result *r) {
    char text[32];
    tti_str_printf(out, "\nconfusion matrix: rows are true classes, columns predicted ones\n%-12s",
                   "");
    for (int64_t j = 0; j < r->n_classes; j++) {
        tti_str_add(out, " ");
        tti_str_add_column(out, class_label(r, j, text), -6);
    }
    for (int64_t i = 0; i < r->n_classes; i++) {
        tti_str_add(out, "\n");
        tti_str_add_column(out, class_label(r, i, text), 12);
        for (int64_t j = 0; j < r->n_classes; j++)
            if (r->confusion[i * r->n_classes + j])
                tti_str_printf(out, " %6lld", (long long)r->confusion[i * r->n_classes + j]);
            else
                tti_str_printf(out, " %6s", ".");
    }
    tti_str_add(out, "\n");
}

/* Returns the off-diagonal entry that follows `after` in the order of decreasing size, then of
 * position. */
static int64_t next_pair(const tutti_eval_result *r, int64_t after) {
    int64_t best = -1, n = r->n_classes;
    for (int64_t i = 0; i < n * n; i++) {
        int64_t count = r->confusion[i];
        bool wrong = i / n != i % n && count > 0;
        bool later =
            after < 0 || count < r->confusion[after] || (count == r->confusion[after] && i > after);
        if (wrong && later && (best < 0 || count > r->confusion[best])) best = i;
    }
    return best;
}

static void list_pairs(tti_str *out, const tutti_eval_result *r) {
    char is[32], predicted[32];
    tti_str_add(out, "\nmost frequent confusions\n");
    int64_t pair = -1;
    for (int k = 0; k < MAX_PAIRS && (pair = next_pair(r, pair)) >= 0; k++)
        tti_str_printf(out, "%9lld  %s predicted as %s\n", (long long)r->confusion[pair],
                       class_label(r, pair / r->n_classes, is),
                       class_label(r, pair % r->n_classes, predicted));
}

static const char *r2_text(double r2, char text[32]) {
    snprintf(text, 32, isnan(r2) ? "undefined" : fabs(r2) < 1e6 ? "%.4f" : "%.4g", r2);
    return text;
}

/* Prints the means over several targets, then a line for each target. */
static void print_values(tti_str *out, const tutti_eval_result *r) {
    char text[32], number[32];
    tti_str_printf(out, "rmse        %.6g\nmae         %.6g\nr2          %s\n", r->rmse, r->mae,
                   r2_text(r->r2, text));
    if (isnan(r->r2))
        tti_str_add(out, "r2 is undefined where all values of a target are the same\n");
    if (r->n_values < 2) return;
    tti_str_printf(out, "\n%-20s %12s %12s %9s\n", "target", "rmse", "mae", "r2");
    for (int64_t k = 0; k < r->n_values && k < MAX_LISTED; k++) {
        const tutti_value_result *v = &r->values[k];
        snprintf(number, sizeof number, "%lld", (long long)k);
        tti_str_add_column(out, v->name ? v->name : number, 20);
        tti_str_printf(out, " %12.6g %12.6g %9s\n", v->rmse, v->mae, r2_text(v->r2, text));
    }
    if (r->n_values > MAX_LISTED)
        tti_str_printf(out, "... and %lld more (--json lists all)\n",
                       (long long)(r->n_values - MAX_LISTED));
}

static const char *figure_text(double x, char text[32]) {
    snprintf(text, 32, isnan(x) ? "-" : "%.4f", x);
    return text;
}

static void print_labels(tti_str *out, const tutti_eval_result *r) {
    char number[32], text[5][32];
    if (r->n_labels == 0) return;
    tti_str_printf(out, "\n%-20s %9s %9s %9s %9s %9s %9s %9s\n", "label", "ones", "predicted",
                   "accuracy", "precision", "recall", "f1", "auc");
    for (int64_t k = 0; k < r->n_labels && k < MAX_LISTED; k++) {
        const tutti_label_result *l = &r->labels[k];
        snprintf(number, sizeof number, "%lld", (long long)k);
        tti_str_add_column(out, l->name ? l->name : number, 20);
        tti_str_printf(out, " %9lld %9lld %9s %9s %9s %9s %9s\n", (long long)l->n_positive,
                       (long long)l->n_predicted, figure_text(l->accuracy, text[0]),
                       figure_text(l->precision, text[1]), figure_text(l->recall, text[2]),
                       figure_text(l->f1, text[3]), figure_text(l->auc, text[4]));
    }
    if (r->n_labels > MAX_LISTED)
        tti_str_printf(out, "... and %lld more (--json lists all)\n",
                       (long long)(r->n_labels - MAX_LISTED));
}

static void print_metrics(tti_str *out, const tutti_eval_result *r) {
    for (int64_t i = 0; i < r->n_metrics; i++) {
        const tutti_metric_result *m = &r->metrics[i];
        if (isnan(m->value))
            tti_str_printf(out, "%-11s undefined\n", m->name);
        else
            tti_str_printf(out, "%-11s %.6g\n", m->name, m->value);
    }
}

static void print_outputs(tti_str *out, const tutti_eval_result *r) {
    if (r->n_outputs == 0) return;
    tti_str_printf(out, "\n%-20s %-14s %12s %12s %12s %12s\n", "output", "shape", "mean", "std",
                   "least", "most");
    for (int64_t i = 0; i < r->n_outputs; i++) {
        const tutti_output_result *o = &r->outputs[i];
        char text[64];
        tti_str_add_column(out, o->name, 20);
        tti_str_printf(out, " %-14s %12.6g %12.6g %12.6g %12.6g\n",
                       tti_type_text(&(tutti_type){TUTTI_F32, o->shape}, text, sizeof text),
                       o->mean, o->std, o->least, o->most);
    }
}

static void print_table(tti_str *out, const tutti_eval_result *r) {
    tti_str_printf(out, "checkpoint  %s (step %lld)\n", r->checkpoint, (long long)r->step);
    tti_str_printf(out, "data        %s\n", r->data);
    tti_str_printf(out, "samples     %lld", (long long)r->n_samples);
    if (r->is_sequence) tti_str_printf(out, ", %lld tokens", (long long)r->n_targets);
    tti_str_printf(out, " in %.2f s\nloss        %.6f\n", r->wall_s, r->loss);
    if (r->is_regression)
        print_values(out, r);
    else if (!isnan(r->accuracy))
        tti_str_printf(out, "accuracy    %.4f\n", r->accuracy);
    if (r->perplexity > 0) tti_str_printf(out, "perplexity  %.4f\n", r->perplexity);
    print_metrics(out, r);
    print_labels(out, r);
    print_outputs(out, r);
    if (r->n_classes == 0) return;
    print_classes(out, r);
    if (r->n_classes <= MAX_DRAWN)
        draw_matrix(out, r);
    else
        list_pairs(out, r);
}

/* ---- JSON ---- */

static void class_json(tti_json *j, const tutti_class_result *c) {
    tti_json_object(j, NULL);
    if (c->name) tti_json_text(j, "name", c->name);
    tti_json_int(j, "samples", c->n_samples);
    tti_json_int(j, "predicted", c->n_predicted);
    tti_json_int(j, "correct", c->n_correct);
    tti_json_double(j, "precision", c->precision);
    tti_json_double(j, "recall", c->recall);
    tti_json_double(j, "f1", c->f1);
    tti_json_end(j);
}

static void classes_json(tti_json *j, const tutti_eval_result *r) {
    tti_json_double(j, "macro_f1", r->macro_f1);
    tti_json_array(j, "classes");
    for (int64_t i = 0; i < r->n_classes; i++) class_json(j, &r->classes[i]);
    tti_json_end(j);
    tti_json_array(j, "confusion");
    for (int64_t i = 0; i < r->n_classes; i++) {
        tti_json_array(j, NULL);
        for (int64_t k = 0; k < r->n_classes; k++)
            tti_json_int(j, NULL, r->confusion[i * r->n_classes + k]);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void errors_json(tti_json *j, double rmse, double mae, double r2) {
    tti_json_double(j, "rmse", rmse);
    tti_json_double(j, "mae", mae);
    tti_json_double(j, "r2", r2);
}

static void values_json(tti_json *j, const tutti_eval_result *r) {
    errors_json(j, r->rmse, r->mae, r->r2);
    if (r->n_values < 2) return;
    tti_json_array(j, "values");
    for (int64_t k = 0; k < r->n_values; k++) {
        const tutti_value_result *v = &r->values[k];
        tti_json_object(j, NULL);
        if (v->name) tti_json_text(j, "name", v->name);
        errors_json(j, v->rmse, v->mae, v->r2);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void labels_json(tti_json *j, const tutti_eval_result *r) {
    tti_json_array(j, "labels");
    for (int64_t k = 0; k < r->n_labels; k++) {
        const tutti_label_result *l = &r->labels[k];
        tti_json_object(j, NULL);
        if (l->name) tti_json_text(j, "name", l->name);
        tti_json_int(j, "samples", l->n_samples);
        tti_json_int(j, "ones", l->n_positive);
        tti_json_int(j, "predicted", l->n_predicted);
        tti_json_int(j, "correct", l->n_correct);
        tti_json_double(j, "accuracy", l->accuracy);
        tti_json_double(j, "precision", l->precision);
        tti_json_double(j, "recall", l->recall);
        tti_json_double(j, "f1", l->f1);
        tti_json_double(j, "auc", l->auc);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void metrics_json(tti_json *j, const tutti_eval_result *r) {
    tti_json_object(j, "metrics");
    for (int64_t i = 0; i < r->n_metrics; i++)
        tti_json_double(j, r->metrics[i].name, r->metrics[i].value);
    tti_json_end(j);
    tti_json_object(j, "metrics_each"); /* values per class or column */
    for (int64_t i = 0; i < r->n_metrics; i++) {
        if (r->metrics[i].n_each == 0) continue;
        tti_json_array(j, r->metrics[i].name);
        for (int64_t k = 0; k < r->metrics[i].n_each; k++)
            tti_json_double(j, NULL, r->metrics[i].each[k]);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void outputs_json(tti_json *j, const tutti_eval_result *r) {
    tti_json_object(j, "outputs");
    for (int64_t i = 0; i < r->n_outputs; i++) {
        const tutti_output_result *o = &r->outputs[i];
        tti_json_object(j, o->name);
        tti_json_array(j, "shape");
        for (int d = 0; d < o->shape.n_dims; d++) tti_json_int(j, NULL, o->shape.dim[d]);
        tti_json_end(j);
        tti_json_double(j, "mean", o->mean);
        tti_json_double(j, "std", o->std);
        tti_json_double(j, "least", o->least);
        tti_json_double(j, "most", o->most);
        tti_json_end(j);
    }
    tti_json_end(j);
}

static void print_json(tti_str *out, const tutti_eval_result *r) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "checkpoint", r->checkpoint);
    tti_json_int(&j, "step", r->step);
    tti_json_text(&j, "data", r->data);
    tti_json_int(&j, "samples", r->n_samples);
    tti_json_int(&j, "targets", r->n_targets);
    tti_json_double(&j, "loss", r->loss);
    if (r->is_regression) {
        values_json(&j, r);
    } else if (!isnan(r->accuracy)) {
        tti_json_double(&j, "accuracy", r->accuracy);
    }
    if (r->perplexity > 0) tti_json_double(&j, "perplexity", r->perplexity);
    if (r->n_metrics > 0) metrics_json(&j, r);
    if (r->n_labels > 0) labels_json(&j, r);
    if (r->n_outputs > 0) outputs_json(&j, r);
    tti_json_double(&j, "wall_s", r->wall_s);
    if (r->n_classes > 0) classes_json(&j, r);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

char *tutti_eval_print(const tutti_eval_result *result, bool json) {
    tti_str out = {0};
    if (!result) return NULL;
    if (json)
        print_json(&out, result);
    else
        print_table(&out, result);
    if (out.failed) tti_str_free(&out);
    return out.text;
}

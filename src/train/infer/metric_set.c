/* metric_set.c - adds the metric outputs of the shards of an evaluation and computes metrics.
 *
 * The type of a shard's output determines its values:
 *
 *   i32 or f32 [2]   sum, count: their quotient (perplexity: e to it)
 *   i32 [3,C]        per class the correct ones, targets, predictions
 *   f64 [5,T]        per column number, sums of |e| and e^2, mean and deviations of the targets
 *   f32 [R,2L]       scores and targets, which are all kept: auc needs their order */
#include "train/infer/metric_set.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/loss/losses.h"

enum { PREFIX = 7 /* "metric." */, OWN = sizeof TTI_OWN_METRIC - 1 - PREFIX };

static const size_t most_kept = (size_t)1 << 30; /* bytes of scores and targets */

typedef struct metric {
    const tti_output *output;
    double *sums; /* [n_sums] */
    size_t n_sums;
    float *kept; /* [n_kept] */
    size_t n_kept, cap_kept;
    double *each; /* [n_each] of the result */
} metric;

struct tti_metric_set {
    metric *list;
    tutti_metric_result *results;
    int n;
    size_t n_words;
};

/* ---- outputs ---- */

static bool is_metric(const tti_output *out) { return strncmp(out->name, "metric.", PREFIX) == 0; }

static const tutti_type *type_of(const metric *m) { return &m->output->value->type; }

static bool is_ratio(const metric *m) {
    return type_of(m)->shape.n_dims == 1 && type_of(m)->dtype != TUTTI_F64;
}
static bool is_curve(const metric *m) {
    return type_of(m)->shape.n_dims == 2 && type_of(m)->dtype == TUTTI_F32;
}
static bool is_of_values(const metric *m) { return type_of(m)->dtype == TUTTI_F64; }

static size_t n_columns(const metric *m) {
    return type_of(m)->shape.n_dims == 2 ? (size_t)type_of(m)->shape.dim[1] : 1;
}

static const char *name_of(const metric *m) {
    const char *name = m->output->name + PREFIX;
    return tti_is_own_metric(m->output->name) ? name + OWN : name;
}

static bool is_called(const metric *m, const char *name) {
    return strcmp(m->output->name + PREFIX, name) == 0;
}

static size_t bytes_of(const metric *m) { return tti_value_n_bytes(m->output->value); }

static tutti_status make_metric(metric *m, const tti_output *out, tutti_metric_result *result) {
    m->output = out;
    m->n_sums = is_curve(m) ? 0 : (size_t)tti_value_n_elems(out->value);
    m->sums = calloc(m->n_sums + 1, sizeof *m->sums);
    m->each = calloc(n_columns(m) + 1, sizeof *m->each);
    if (!m->sums || !m->each) return tti_fail(TUTTI_E_NOMEM, "metrics: out of memory");
    *result = (tutti_metric_result){.name = name_of(m), .value = NAN, .each = m->each};
    return TUTTI_OK;
}

tutti_status tti_metric_set_create(const tutti_graph *eval, tti_metric_set **out) {
    int n = 0;
    *out = NULL;
    for (int i = 0; i < eval->n_outputs; i++) n += is_metric(&eval->outputs[i]);
    if (n == 0) return TUTTI_OK;
    if (n > TTI_MAX_METRICS)
        return tti_fail(TUTTI_E_UNSUPPORTED, "metrics: %d are requested, at most %d are supported",
                        n, TTI_MAX_METRICS);
    tti_metric_set *set = calloc(1, sizeof *set);
    if (!set) return tti_fail(TUTTI_E_NOMEM, "metrics: out of memory");
    set->list = calloc((size_t)n, sizeof *set->list);
    set->results = calloc((size_t)n, sizeof *set->results);
    tutti_status st =
        set->list && set->results ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "metrics: out of memory");
    for (int i = 0; i < eval->n_outputs && st == TUTTI_OK; i++) {
        if (!is_metric(&eval->outputs[i])) continue;
        metric *m = &set->list[set->n];
        st = make_metric(m, &eval->outputs[i], &set->results[set->n++]);
        set->n_words += bytes_of(m) / sizeof(int32_t);
    }
    if (st == TUTTI_OK)
        *out = set;
    else
        tti_metric_set_destroy(set);
    return st;
}

void tti_metric_set_destroy(tti_metric_set *set) {
    if (!set) return;
    for (int i = 0; set->list && i < set->n; i++) {
        free(set->list[i].sums);
        free(set->list[i].kept);
        free(set->list[i].each);
    }
    free(set->list);
    free(set->results);
    free(set);
}

int tti_metric_set_n(const tti_metric_set *set) { return set->n; }
size_t tti_metric_set_n_words(const tti_metric_set *set) { return set->n_words; }
const char *tti_metric_set_output(const tti_metric_set *set, int i) {
    return set->list[i].output->name;
}
size_t tti_metric_set_n_bytes(const tti_metric_set *set, int i) { return bytes_of(&set->list[i]); }

/* ---- adding ---- */

static tutti_status keep(metric *m, const float *rows) {
    size_t n = m->n_kept + (size_t)tti_value_n_elems(m->output->value);
    if (n > most_kept / sizeof *rows)
        return tti_fail(
            TUTTI_E_NOMEM,
            "%s: the scores of this evaluation take more than %zu MiB; leave the metric "
            "out, or give a smaller data.n_test",
            name_of(m), most_kept >> 20);
    if (n > m->cap_kept) {
        size_t cap = TTI_MAX(2 * m->cap_kept, n);
        float *kept = realloc(m->kept, cap * sizeof *kept);
        if (!kept) return tti_fail(TUTTI_E_NOMEM, "metrics: out of memory");
        m->kept = kept;
        m->cap_kept = cap;
    }
    memcpy(m->kept + m->n_kept, rows, (n - m->n_kept) * sizeof *rows);
    m->n_kept = n;
    return TUTTI_OK;
}

/* Merges column c; means and deviations by Chan's formula. */
static void join_values(metric *m, const double *x, size_t c) {
    size_t w = n_columns(m);
    double *s = m->sums + c, n = s[0], more = x[c], all = n + more;
    if (more == 0) return;
    double d = x[3 * w + c] - s[3 * w];
    s[0] = all;
    s[w] += x[w + c];
    s[2 * w] += x[2 * w + c];
    s[3 * w] += d * more / all;
    s[4 * w] += x[4 * w + c] + d * d * n * more / all;
}

static tutti_status add(metric *m, const void *from) {
    if (is_curve(m)) return keep(m, from);
    for (size_t c = 0; is_of_values(m) && c < n_columns(m); c++) join_values(m, from, c);
    if (is_of_values(m)) return TUTTI_OK;
    bool is_int = type_of(m)->dtype == TUTTI_I32;
    for (size_t i = 0; i < m->n_sums; i++)
        m->sums[i] +=
            is_int ? (double)((const int32_t *)from)[i] : (double)((const float *)from)[i];
    return TUTTI_OK;
}

tutti_status tti_metric_set_add(tti_metric_set *set, const void *const *values) {
    for (int i = 0; i < set->n; i++) TTI_TRY(add(&set->list[i], values[i]));
    return TUTTI_OK;
}

/* ---- figures ---- */

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

/* Returns the mean of the values that are not NAN, or NAN if there are none. */
static double mean_of(const double *x, size_t n) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(x[i])) sum += x[i], count++;
    return ratio(sum, count);
}

static double class_figure(const metric *m, size_t c) {
    size_t n = n_columns(m);
    double correct = m->sums[c], targets = m->sums[n + c], predicted = m->sums[2 * n + c];
    return ratio(correct, is_called(m, "miou") ? targets + predicted - correct : targets);
}

static double value_figure(const metric *m, size_t c) {
    const double *s = m->sums + c;
    size_t w = n_columns(m);
    if (is_called(m, "mae")) return ratio(s[w], s[0]);
    if (is_called(m, "rmse")) return sqrt(ratio(s[2 * w], s[0]));
    return s[4 * w] > 0 ? 1 - s[2 * w] / s[4 * w] : NAN;
}

typedef struct scored {
    float score;
    bool is_positive;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    return (x->score > y->score) - (x->score < y->score);
}

/* Returns the area under the ROC curve: the fraction of pairs of a positive and a negative in which
 * the positive has the larger score; equal scores count half.  Counts are doubled, so they stay
 * integers until the division. */
static double area(const scored *list, size_t n) {
    uint64_t twice = 0, negatives = 0, positives = 0;
    for (size_t i = 0; i < n;) {
        uint64_t here[2] = {0, 0};
        size_t end = i;
        for (; end < n && list[end].score == list[i].score; end++) here[list[end].is_positive]++;
        twice += 2 * here[1] * negatives + here[1] * here[0];
        negatives += here[0];
        positives += here[1];
        i = end;
    }
    if (negatives == 0 || positives == 0) return NAN;
    return (double)twice / (double)(2 * negatives * positives);
}

static tutti_status finish_curve(metric *m) {
    size_t width = n_columns(m), n_labels = width / 2, rows = m->n_kept / TTI_MAX(width, (size_t)1);
    scored *list = malloc((rows + 1) * sizeof *list);
    if (!list) return tti_fail(TUTTI_E_NOMEM, "metrics: out of memory");
    for (size_t k = 0; k < n_labels; k++) {
        size_t n = 0;
        bool has_nan = false;
        for (size_t r = 0; r < rows; r++) {
            const float *row = m->kept + r * width;
            if (row[n_labels + k] < 0) continue;
            has_nan |= isnan(row[k]);
            list[n++] = (scored){row[k], row[n_labels + k] > 0.5f};
        }
        if (!has_nan) qsort(list, n, sizeof *list, by_score);
        m->each[k] = has_nan ? NAN : area(list, n);
    }
    free(list);
    return TUTTI_OK;
}

static tutti_status finish(metric *m, tutti_metric_result *result) {
    size_t n = is_curve(m) ? n_columns(m) / 2 : n_columns(m);
    if (is_ratio(m)) {
        double x = ratio(m->sums[0], m->sums[1]);
        result->value = is_called(m, "perplexity") ? exp(x) : x;
        result->n_each = 0;
        return TUTTI_OK;
    }
    if (is_curve(m)) TTI_TRY(finish_curve(m));
    for (size_t c = 0; !is_curve(m) && c < n; c++)
        m->each[c] = is_of_values(m) ? value_figure(m, c) : class_figure(m, c);
    result->value = mean_of(m->each, n);
    result->n_each = (int64_t)n;
    return TUTTI_OK;
}

tutti_status tti_metric_set_finish(tti_metric_set *set, const tutti_metric_result **out, int *n) {
    for (int i = 0; i < set->n; i++) TTI_TRY(finish(&set->list[i], &set->results[i]));
    *out = set->results;
    *n = set->n;
    return TUTTI_OK;
}

/* output_stats.c - accumulates mean, standard deviation and range of each named output. */
#include "train/infer/output_stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ir/graph.h"
#include "train/infer/named_outputs.h"

typedef struct sums {
    const tti_output *output;
    double n, mean, squares; /* squares: sum of squared deviations from the mean */
    double least, most;
} sums;

struct tti_output_stats {
    sums *list; /* [n] */
    int n;
    int64_t rows;
};

tutti_status tti_output_stats_create(const tutti_graph *eval, int64_t rows,
                                     tti_output_stats **out) {
    int n = 0;
    *out = NULL;
    while (tti_shard_graph_named(eval, n)) n++;
    if (n == 0) return TUTTI_OK;
    tti_output_stats *s = calloc(1, sizeof *s);
    if (s) s->list = calloc((size_t)n, sizeof *s->list);
    if (!s || !s->list) {
        free(s);
        return tti_fail(TUTTI_E_NOMEM, "eval: out of memory");
    }
    s->rows = rows;
    for (; s->n < n; s->n++)
        s->list[s->n] = (sums){
            .output = tti_shard_graph_named(eval, s->n), .least = INFINITY, .most = -INFINITY};
    *out = s;
    return TUTTI_OK;
}

void tti_output_stats_destroy(tti_output_stats *s) {
    if (!s) return;
    free(s->list);
    free(s);
}

/* Uses Welford's method, because sums of squares lose the deviation of values far from 0. */
static void add_value(sums *s, double x) {
    double from_mean = x - s->mean;
    s->n++;
    s->mean += from_mean / s->n;
    s->squares += from_mean * (x - s->mean);
    s->least = fmin(s->least, x);
    s->most = fmax(s->most, x);
}

void tti_output_stats_add(tti_output_stats *s, const tti_instance *instance, int64_t n_rows) {
    for (int i = 0; s && i < s->n; i++) {
        const tti_output *output = s->list[i].output;
        const float *x = tti_instance_output(instance, output->name);
        int64_t n = tti_value_n_elems(output->value);
        if (tti_named_output_rows(output, s->rows) > 0) n = n / s->rows * n_rows;
        for (int64_t k = 0; k < n; k++) add_value(&s->list[i], (double)x[k]);
    }
}

tutti_status tti_output_stats_finish(const tti_output_stats *s, tutti_output_result **results,
                                     int64_t *n) {
    size_t n_text = 0;
    *results = NULL;
    *n = 0;
    if (!s) return TUTTI_OK;
    for (int i = 0; i < s->n; i++) n_text += strlen(tti_named_output_name(s->list[i].output)) + 1;
    tutti_output_result *list = malloc((size_t)s->n * sizeof *list + n_text);
    if (!list) return tti_fail(TUTTI_E_NOMEM, "eval: out of memory");
    char *text = (char *)(list + s->n);
    for (int i = 0; i < s->n; i++) {
        const sums *from = &s->list[i];
        bool any = from->n > 0;
        list[i] = (tutti_output_result){.name = strcpy(text, tti_named_output_name(from->output)),
                                        .shape = tti_named_output_shape(from->output, s->rows),
                                        .mean = any ? from->mean : NAN,
                                        .std = any ? sqrt(from->squares / from->n) : NAN,
                                        .least = any ? from->least : NAN,
                                        .most = any ? from->most : NAN};
        text += strlen(text) + 1;
    }
    *results = list;
    *n = s->n;
    return TUTTI_OK;
}

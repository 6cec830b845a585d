/* predict_outputs.c - collects all outputs of a model that has several, by name, for each sample.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/fields.h"
#include "ir/graph.h"
#include "train/infer/named_outputs.h"
#include "train/infer/predicting.h"

/* True if the output is a map over the pixels of an image, which is reported as a mask. */
static bool is_map(const tti_predicting *r, const tti_output *output) {
    return r->side > 0 && tti_value_n_elems(output->value) >= r->side * r->side;
}

/* True if an output needs labels or masks of images, which files do not have. */
static bool needs_target(const tti_predicting *r, const bool *needs, bool takes_images) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    if (info->n_fields == 0) return needs[0];
    for (int i = 0; i < info->n_fields && takes_images; i++)
        if (needs[i] && strcmp(info->fields[i].name, "x") != 0) return true;
    return false;
}

tutti_status tti_predict_prepare_outputs(tti_predicting *r, int64_t shard_rows, bool takes_images) {
    const tutti_graph *g = tti_predictor_graph(r->p);
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    int n = 0;
    while (tti_shard_graph_named(g, n)) n++;
    r->shard_rows = shard_rows;
    r->listed = calloc((size_t)n + 1, sizeof *r->listed);
    r->named = calloc((size_t)n + 1, sizeof *r->named);
    if (!r->listed || !r->named) return tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
    for (int i = 0; i < n; i++) {
        tti_listed_output *o = &r->listed[r->n_listed];
        *o = (tti_listed_output){.output = tti_shard_graph_named(g, i), .is_given = true};
        if (is_map(r, o->output)) continue;
        TTI_TRY(
            tti_shard_graph_needs(g, o->output->value, info->fields, info->n_fields, &o->needs));
        if (needs_target(r, o->needs, takes_images))
            free(o->needs);
        else
            r->n_listed++;
    }
    return TUTTI_OK;
}

void tti_predict_free_outputs(tti_predicting *r) {
    for (int i = 0; i < r->n_listed; i++) free(r->listed[i].needs);
    free(r->listed);
    free(r->named);
}

bool tti_predict_is_optional(const tti_predicting *r, int field) {
    for (int i = 0; i < r->n_listed && !r->needs[field]; i++)
        if (r->listed[i].needs[field]) return true;
    return false;
}

/* Returns the first field that an output needs and the samples do not have; -1: none. */
static int find_lacking(const tti_predicting *r, const tti_listed_output *o, const bool *has) {
    for (int i = 0; i < tutti_dataset_get_info(r->ds)->n_fields; i++)
        if (o->needs[i] && !has[i]) return i;
    return -1;
}

tutti_status tti_predict_choose_outputs(tti_predicting *r, const char *file, const bool *has) {
    const tutti_dataset_info *info = tutti_dataset_get_info(r->ds);
    char line[1024];
    for (int i = 0; i < r->n_listed; i++) {
        tti_listed_output *o = &r->listed[i];
        int field = find_lacking(r, o, has);
        o->is_given = field < 0;
        if (o->is_given) continue;
        snprintf(line, sizeof line,
                 "%s: the output '%s' is left out, because it needs the array '%s'", file,
                 tti_named_output_name(o->output), info->fields[field].name);
        TTI_TRY(tti_predict_report(r, &(tutti_prediction){.file = file, .notice = line}));
    }
    return TUTTI_OK;
}

/* Returns the part of an output that belongs to a row of the shard. */
static tutti_output_value take_row(const tti_predicting *r, const tti_output *output,
                                   const float *data, int64_t row) {
    tutti_output_value out = {.name = tti_named_output_name(output),
                              .shape = tti_named_output_shape(output, r->shard_rows),
                              .data = data};
    bool is_of_rows = tti_named_output_rows(output, r->shard_rows) > 0;
    if (is_of_rows) out.data += row * tutti_shape_n_elems(&out.shape);
    return out;
}

const char *tti_predict_take_outputs(tti_predicting *r, const tti_instance *instance, int64_t row,
                                     tutti_prediction *out) {
    const char *bad = NULL;
    out->named = r->named;
    for (int i = 0; i < r->n_listed; i++) {
        const tti_output *output = r->listed[i].output;
        if (!r->listed[i].is_given) continue;
        tutti_output_value *to = &r->named[out->n_named++];
        *to = take_row(r, output, tti_instance_output(instance, output->name), row);
        int64_t n = tutti_shape_n_elems(&to->shape);
        for (int64_t k = 0; k < n && !bad; k++)
            if (!isfinite(to->data[k])) bad = to->name;
    }
    return bad;
}

/* ---- as text ---- */

static void print_dims(tti_json *j, const char *key, const tutti_output_value *o, int dim,
                       const float **at) {
    if (dim == o->shape.n_dims) {
        tti_json_float(j, key, *(*at)++);
        return;
    }
    tti_json_array(j, key);
    for (int64_t i = 0; i < o->shape.dim[dim]; i++) print_dims(j, NULL, o, dim + 1, at);
    tti_json_end(j);
}

void tti_predict_print_outputs(tti_json *j, const tutti_prediction *p) {
    if (p->n_named == 0) return;
    tti_json_object(j, "outputs");
    for (int64_t i = 0; i < p->n_named; i++) {
        const float *at = p->named[i].data;
        print_dims(j, p->named[i].name, &p->named[i], 0, &at);
    }
    tti_json_end(j);
}

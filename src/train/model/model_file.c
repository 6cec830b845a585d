/* model_file.c - finds and opens the file of model.file, copies it, and builds the graph from
 * it. */
#include "train/model/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/plain_file.h"
#include "base/number.h"
#include "ir/graph.h"
#include "passes/recognize/recognize.h"
#include "train/job/objective.h"
#include "train/model/fixed_batch.h"
#include "tutti/losses.h"
#include "tutti/models.h"

/* True if the run's job file names the file, and neither the command line nor a program names
 * another one. */
static bool is_named_by_run(const tutti_job *job) {
    const char *source = tti_job_option_state(job, "model.file")->place.source;
    return job->is_of_run && tti_job_path(job) && source && strcmp(source, tti_job_path(job)) == 0;
}

tutti_status tti_model_file_path(const tutti_job *job, char out[TTI_TEXT_MAX]) {
    const char *file = tti_job_config_of(job)->model.file;
    snprintf(out, TTI_TEXT_MAX, "%s", tti_job_has_model_fn(job) ? "" : file);
    if (!out[0] || !is_named_by_run(job)) return TUTTI_OK;
    const char *slash = strrchr(tti_job_path(job), '/');
    int n_dir = slash ? (int)(slash - tti_job_path(job)) + 1 : 0;
    static const char *const names[] = {TTI_MODEL_FILE_KEPT, TTI_MODEL_FOLDER_KEPT};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        char kept[TTI_TEXT_MAX];
        int n = snprintf(kept, sizeof kept, "%.*s%s", n_dir, tti_job_path(job), names[i]);
        if (n >= (int)sizeof kept)
            return tti_fail(TUTTI_E_CONFIG, "model.file: the path of the run folder is too long");
        if (access(kept, F_OK) != 0) continue;
        memcpy(out, kept, (size_t)n + 1);
        break;
    }
    return TUTTI_OK;
}

tutti_status tti_model_file_open(const tutti_job *job, tti_import **out) {
    char path[TTI_TEXT_MAX];
    *out = NULL;
    TTI_TRY(tti_model_file_path(job, path));
    if (!path[0]) return TUTTI_OK;
    tutti_status st = tti_import_open(path, out);
    if (st == TUTTI_OK) st = tti_import_check(*out);
    if (st == TUTTI_OK) return TUTTI_OK;
    tti_fail_context("model.file: ");
    tti_import_close(*out);
    *out = NULL;
    return st;
}

/* ---- the copy ---- */

tutti_status tti_model_file_keep(const tutti_job *job, const char *run_dir, char *note,
                                 size_t n_note, tti_model_copy **copy) {
    char path[TTI_TEXT_MAX], kept[TTI_TEXT_MAX + 32];
    tti_import *import;
    note[0] = '\0';
    *copy = NULL;
    TTI_TRY(tti_model_file_path(job, path));
    if (!path[0]) return TUTTI_OK;
    TTI_TRY(tti_import_open(path, &import));
    if (tti_import_note(import)) snprintf(note, n_note, "%s", tti_import_note(import));
    bool is_archive = tti_import_is_archive(import);
    snprintf(kept, sizeof kept, "%s/%s", run_dir,
             is_archive ? TTI_MODEL_FILE_KEPT : TTI_MODEL_FOLDER_KEPT);
    tutti_status st =
        is_archive ? tti_model_copy_start(path, kept, copy) : tti_import_save(import, kept);
    tti_import_close(import);
    if (st != TUTTI_OK && !is_archive) tti_fail_context("model.file: ");
    return st;
}

/* ---- the graph ---- */

void tti_model_file_fields(const tti_import *import, tti_job_config *c) {
    if (strcmp(c->data.fields, "auto") != 0) return;
    bool wants = import && tti_import_n_inputs(import) > 1 && strcmp(c->data.format, "npy") == 0;
    snprintf(c->data.fields, sizeof c->data.fields, "%s", wants ? "all" : "");
}

/* Finds the field for an input in model.inputs, "INPUT=FIELD, ...".  Returns its length, 0: the
 * input is not named there. */
static size_t named_field(const char *list, const char *input, char out[TTI_TEXT_MAX]) {
    size_t n_input = strlen(input);
    out[0] = '\0';
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ","), first = strspn(at, " ");
        if (strncmp(at + first, input, n_input) == 0 && at[first + n_input] == '=') {
            size_t from = first + n_input + 1;
            while (n > from && at[n - 1] == ' ') n--;
            snprintf(out, TTI_TEXT_MAX, "%.*s", (int)(n - from), at + from);
            return strlen(out);
        }
        at += n + (at[n] == ',');
    }
    return 0;
}

static bool has_field(const tutti_graph *g, const char *name) {
    char text[TTI_MAX_NAME];
    bool is_part = strcmp(name, "x") == 0 || strcmp(name, "y") == 0;
    snprintf(text, sizeof text, "field.%s", name);
    return tti_graph_find_source(g, text) || (is_part && tti_graph_find_source(g, "x"));
}

static tutti_status missing_field(const tutti_graph *g, const char *input, const char *field) {
    tti_str known = {0};
    for (int i = 0; i < g->n_nodes; i++)
        if ((g->nodes[i]->op->traits & TTI_INPUT) && strncmp(g->nodes[i]->name, "field.", 6) == 0)
            tti_str_printf(&known, "%s%s", known.n_bytes ? ", " : "", g->nodes[i]->name + 6);
    tutti_status st =
        tti_fail(TUTTI_E_CONFIG,
                 "model.inputs: samples have no field '%s' for the input '%s' of the "
                 "model; they have %s.  Give model.inputs=\"%s=FIELD\"",
                 field, input, known.n_bytes ? tti_str_text(&known) : "x and y", input);
    tti_str_free(&known);
    return st;
}

/* Finds the data for an input.  If there is only one input, it gets x or the only field, regardless
 * of its name. */
static tutti_status find_input(const tti_import *import, const tti_job_config *c, tutti_graph *g,
                               int i, char field[TTI_TEXT_MAX], tutti_value **out) {
    const char *input = tti_import_input_name(import, i);
    if (!named_field(c->model.inputs, input, field)) {
        bool classic = tti_graph_find_source(g, "x") != NULL;
        bool alone = tti_import_n_inputs(import) == 1;
        const char *by_place = i == 0 ? "x" : i == 1 ? "y" : input;
        bool known = has_field(g, input);
        snprintf(field, TTI_TEXT_MAX, "%s",
                 !known && (classic || (alone && has_field(g, "x"))) ? by_place : input);
    }
    if (!has_field(g, field)) return missing_field(g, input, field);
    tutti_value *value = tutti_find_field(g, field);
    bool is_float = tti_import_input_is_float(import, i);
    if (is_float && value->type.dtype == TUTTI_I32) value = tutti_cast(g, value, TUTTI_F32);
    if (tti_import_input_is_bool(import, i)) { /* every value except 0 is true */
        tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
        value = tutti_minimum(g, tutti_abs(g, tutti_cast(g, value, TUTTI_F32)), one);
        value = tutti_cast(g, value, TUTTI_I32);
    }
    *out = value;
    return tutti_graph_check(g);
}

/* Finds the output whose number or name is in n_text bytes of text; -1: none. */
static int find_output(const tti_import *import, const char *text, size_t n_text) {
    char name[TTI_TEXT_MAX];
    int64_t number;
    int n = tti_import_n_outputs(import);
    snprintf(name, sizeof name, "%.*s", (int)TTI_MIN(n_text, sizeof name - 1), text);
    if (tti_parse_int(name, &number) == TTI_NUMBER_OK)
        return number >= 0 && number < n ? (int)number : -1;
    for (int i = 0; i < n; i++)
        if (strcmp(tti_import_output_name(import, i), name) == 0) return i;
    return -1;
}

/* Finds the output that is the loss by model.loss; -1: none. */
static tutti_status find_loss(const tti_import *import, const tti_job_config *c,
                              tutti_value *const *outputs, int *out) {
    const char *text = c->model.loss;
    int n = tti_import_n_outputs(import);
    *out = -1;
    if (strcmp(text, "none") == 0) return TUTTI_OK;
    if (strcmp(text, "auto") == 0 && tti_loss_is_contrastive(c)) return TUTTI_OK;
    if (strcmp(text, "auto") == 0 || strcmp(text, "first") == 0) {
        for (int i = n - 1; i >= 0; i--)
            if (outputs[i] && outputs[i]->type.shape.n_dims == 0) *out = i;
        return TUTTI_OK;
    }
    int number = find_output(import, text, strlen(text));
    if (number >= 0 && outputs[number]) {
        *out = number;
        return TUTTI_OK;
    }
    tti_str names = {0};
    for (int i = 0; i < n; i++)
        tti_str_printf(&names, "%s%s", i ? ", " : "", tti_import_output_name(import, i));
    tutti_status st = tti_fail(TUTTI_E_CONFIG,
                               "model.loss: the model has no output %s; it has %s, or by number 0 "
                               "to %d; or give none, or auto",
                               text, tti_str_text(&names), n - 1);
    tti_str_free(&names);
    return st;
}

/* Refuses only a loss that the user set, because the job file of a run has all keys. */
tutti_status tti_model_file_check_loss(const tutti_job *job) {
    const tti_option_state *state = tti_job_option_state(job, "train.loss");
    if (!state->place.source || state->is_own || job->is_of_run) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "train.loss: the model of model.file computes a loss of its own; leave "
                    "train.loss out, or give model.loss=none to use it");
}

/* ---- the model's own metrics ---- */

static tutti_status bad_metric(int n_outputs, const char *text, size_t n) {
    return tti_fail(TUTTI_E_CONFIG,
                    "model.metrics: '%.*s' is not NAME=OUTPUT or NAME=SUM/COUNT with names of "
                    "outputs of the model, or their numbers from 0 to %d",
                    (int)TTI_MIN(n, (size_t)64), text, n_outputs - 1);
}

/* Reads the name of an output, which ends at one of the stops.  NULL: there is no such output. */
static const char *read_output(const tti_import *import, const char *at, const char *stops,
                               int *out) {
    size_t n = strcspn(at, stops), n_name = n;
    while (n_name > 0 && at[n_name - 1] == ' ') n_name--;
    *out = n_name > 0 ? find_output(import, at, n_name) : -1;
    return *out >= 0 ? at + n : NULL;
}

static tutti_value *f32_of(tutti_graph *g, tutti_value *x) {
    return x->type.dtype == TUTTI_F32 ? x : tutti_cast(g, x, TUTTI_F32);
}

/* Returns f32 [N]: 1 for samples, 0 for padding. */
static tutti_value *find_there(tutti_graph *g) {
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_value *wide = tutti_cast(g, tutti_find_present(g), TUTTI_F32);
    return tutti_minimum(g, tutti_abs(g, tutti_affine(g, wide, 1, 1)), one);
}

/* Adds a metric: the mean over all elements of the samples without padding.  A scalar is the mean
 * of a shard. */
static void add_mean(tutti_graph *g, const char *name, tutti_value *x) {
    tutti_value *is_there = find_there(g), *sum = NULL;
    int axis = tutti_batch_axis(g, x);
    if (is_there && x->type.shape.n_dims > 0) {
        tutti_shape rows = {.n_dims = x->type.shape.n_dims};
        for (int d = 0; d < rows.n_dims; d++)
            rows.dim[d] = d == TTI_MAX(axis, 0) ? x->type.shape.dim[d] : 1;
        is_there = tutti_broadcast_to(g, tutti_reshape(g, is_there, &rows), &x->type.shape);
        sum = tutti_sum(g, tutti_keep(g, x, is_there), NULL);
    }
    tutti_value *count = tutti_sum(g, is_there, NULL);
    tutti_add_metric(g, name, sum ? sum : tutti_mul(g, x, count), count);
}

/* True if a value depends only on constants, such as a number of rows. */
static bool is_fixed(const tutti_value *x, int depth) {
    const tti_node *node = x->node;
    if (node->n_in == 0 || depth == 0) return node->op->traits & TTI_CONSTANT;
    for (int i = 0; i < node->n_in; i++)
        if (!is_fixed(node->in[i], depth - 1)) return false;
    return true;
}

/* Returns the count.  A constant number of rows is replaced, because the model includes padding
 * rows in it. */
static tutti_value *count_of(tutti_graph *g, tutti_value *count) {
    if (!is_fixed(count, 16)) return count;
    tutti_value *is_there = find_there(g);
    double rows = is_there ? (double)is_there->type.shape.dim[0] : 1;
    return tutti_mul(g, count, tutti_affine(g, tutti_sum(g, is_there, NULL), 1 / rows, 0));
}

/* Adds a metric from a sum and a count of the model.  Masks shards without samples, which computed
 * them from padding. */
static void add_ratio(tutti_graph *g, const char *name, tutti_value *sum, tutti_value *count) {
    tutti_value *any = tutti_sum(g, find_there(g), NULL);
    tutti_add_metric(g, name, any ? tutti_keep(g, sum, any) : sum,
                     any ? tutti_keep(g, count, any) : count);
}

/* Adds the metrics of model.metrics. is_taken [n]: marks the outputs that are metrics. */
static tutti_status add_metrics(const tti_import *import, const tti_job_config *c, tutti_graph *g,
                                tutti_value *const *outputs, bool *is_taken) {
    int n = tti_import_n_outputs(import);
    for (const char *at = c->model.metrics; *at;) {
        char name[65];
        int sum = -1, count = -1;
        at += strspn(at, " ,");
        size_t length = strcspn(at, ","), n_name = strcspn(at, "=,");
        if (length == 0) break;
        const char *rest =
            at[n_name] == '=' ? read_output(import, at + n_name + 1, "/,", &sum) : NULL;
        if (rest && *rest == '/') rest = read_output(import, rest + 1, ",", &count);
        if (!rest || rest != at + length || n_name == 0 || n_name >= sizeof name)
            return bad_metric(n, at, length);
        if (!outputs[sum] || (count >= 0 && !outputs[count])) return bad_metric(n, at, length);
        snprintf(name, sizeof name, "%.*s", (int)n_name, at);
        is_taken[sum] = true;
        if (count >= 0) is_taken[count] = true;
        if (count >= 0)
            add_ratio(g, name, f32_of(g, outputs[sum]), count_of(g, f32_of(g, outputs[count])));
        else
            add_mean(g, name, f32_of(g, outputs[sum]));
        at += length;
    }
    tutti_status st = tutti_graph_check(g);
    return st == TUTTI_E_INVALID ? tti_fail(TUTTI_E_CONFIG, "model.metrics: %s", tutti_last_error())
                                 : st;
}

/* ---- outputs ---- */

static tutti_status take_outputs(const tti_import *import, const tti_job_config *c,
                                 tutti_value *const *outputs, tti_model_outputs *out) {
    int loss, n = tti_import_n_outputs(import);
    TTI_TRY(find_loss(import, c, outputs, &loss));
    if (loss >= 0) out->loss = outputs[loss];
    for (int i = 0; i < n; i++) {
        if (i == loss || !outputs[i]) continue;
        bool is_number = tti_loss_is_contrastive(c) && out->second &&
                         tutti_shape_n_elems(&outputs[i]->type.shape) == 1;
        tutti_value **to = NULL;
        if (!out->logits || !out->second)
            to = !out->logits ? &out->logits : &out->second;
        else if (is_number && (!out->scale || !out->bias))
            to = !out->scale ? &out->scale : &out->bias;
        if (to) *to = outputs[i];
    }
    return TUTTI_OK;
}

static tutti_status name_outputs(const tti_import *import, tutti_graph *g,
                                 tutti_value *const *outputs, tti_model_outputs *out) {
    int n = tti_import_n_outputs(import);
    tti_model_output *named = tti_arena_alloc(tti_graph_arena(g), (size_t)n * sizeof *named + 1);
    if (!named) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    for (int i = 0; i < n; i++)
        if (outputs[i] && outputs[i] != out->loss)
            named[out->n_named++] =
                (tti_model_output){tti_import_output_name(import, i), outputs[i]};
    out->named = named;
    return TUTTI_OK;
}

/* Adds the metrics.  Their outputs are not used for anything else. */
static tutti_status take_metrics(const tti_import *import, const tti_job_config *c, tutti_graph *g,
                                 tutti_value **outputs, tti_model_outputs *out) {
    int n = tti_import_n_outputs(import);
    bool *is_taken = tti_arena_alloc(tti_graph_arena(g), (size_t)n * sizeof *is_taken + 1);
    if (!is_taken) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    memset(is_taken, 0, (size_t)n * sizeof *is_taken);
    TTI_TRY(add_metrics(import, c, g, outputs, is_taken));
    for (int i = 0; i < n; i++)
        if (is_taken[i]) outputs[i] = NULL;
    return take_outputs(import, c, outputs, out);
}

tutti_status tti_model_file_build(const tti_import *import, const tti_job_config *c, tutti_graph *g,
                                  tti_model_outputs *out) {
    int n_inputs = tti_import_n_inputs(import), n_outputs = tti_import_n_outputs(import);
    *out = (tti_model_outputs){0};
    tutti_value **inputs = tti_arena_alloc(tti_graph_arena(g), (size_t)n_inputs * sizeof *inputs);
    tutti_value **outputs =
        tti_arena_alloc(tti_graph_arena(g), (size_t)n_outputs * sizeof *outputs);
    const char **fields = tti_arena_alloc(tti_graph_arena(g), (size_t)n_inputs * sizeof *fields);
    if (!inputs || !outputs || !fields) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    char field[TTI_TEXT_MAX];
    tti_import_labels labels = {0};
    for (int i = 0; i < n_inputs; i++) {
        TTI_TRY(find_input(import, c, g, i, field, &inputs[i]));
        fields[i] = tti_arena_strdup(tti_graph_arena(g), field);
    }
    const tti_import_samples samples = {
        .inputs = inputs,
        .present = tti_graph_joins_samples(g) ? tutti_find_present(g) : NULL,
        .labels = &labels};
    tutti_status st = tti_fixed_batch_build(import, g, &samples, outputs);
    if (st != TUTTI_OK) {
        tti_fail_context("model.file: ");
        return st;
    }
    TTI_TRY(take_metrics(import, c, g, outputs, out));
    if (labels.n_classes > 0) out->labels = fields[labels.input];
    out->n_classes = labels.n_classes, out->ignored = labels.ignored;
    return name_outputs(import, g, outputs, out);
}

/* Describes the recognized ops in the model's training graph after the passes, built for a few
 * samples. */
static tutti_status describe_recognized(const tti_import *import, tti_str *out) {
    enum { N_SAMPLES = 2 };
    int n_inputs = tti_import_n_inputs(import), n_outputs = tti_import_n_outputs(import);
    tutti_graph *g = tutti_graph_create(true);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    tutti_value **inputs = tti_arena_alloc(tti_graph_arena(g), (size_t)n_inputs * sizeof *inputs);
    tutti_value **outputs =
        tti_arena_alloc(tti_graph_arena(g), (size_t)n_outputs * sizeof *outputs);
    for (int i = 0; inputs && i < n_inputs; i++) {
        tutti_type type = tti_import_input_type(import, i, N_SAMPLES);
        inputs[i] = tutti_input(g, tti_import_input_name(import, i), type.dtype, &type.shape);
    }
    tutti_status st = tutti_graph_check(g);
    if (st == TUTTI_OK && (!inputs || !outputs))
        st = tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    const tti_import_samples samples = {.inputs = inputs};
    if (st == TUTTI_OK) st = tti_import_build(import, g, &samples, outputs);
    for (int i = 0; st == TUTTI_OK && i < n_outputs; i++) {
        char name[32];
        snprintf(name, sizeof name, "output.%d", i);
        tutti_output(g, name, outputs[i]);
    }
    if (st == TUTTI_OK)
        st =
            tti_recognize_report(&g, tti_import_input_type(import, 0, N_SAMPLES).shape.dim[0], out);
    if (st == TUTTI_E_UNSUPPORTED || st == TUTTI_E_INVALID) {
        tti_str_printf(out, "not trainable: %s\n", tutti_last_error());
        st = TUTTI_OK;
    }
    tutti_graph_destroy(g);
    return st;
}

tutti_status tutti_model_describe(const char *path, char **text) {
    TTI_TRY(tti_need(path, __func__, "path"));
    TTI_TRY(tti_need(text, __func__, "text"));
    tti_import *import;
    tti_str str = {0};
    *text = NULL;
    TTI_TRY(tti_import_open(path, &import));
    tti_import_describe(import, &str);
    tutti_status st = TUTTI_OK;
    if (tti_import_check(import) == TUTTI_OK) st = describe_recognized(import, &str);
    tti_import_close(import);
    if (st == TUTTI_OK && str.failed) st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    if (st != TUTTI_OK) {
        tti_str_free(&str);
        return st;
    }
    *text = str.text;
    return TUTTI_OK;
}

tutti_status tutti_model_import(const char *path, const char *dir) {
    TTI_TRY(tti_need(path, __func__, "path"));
    TTI_TRY(tti_need(dir, __func__, "dir"));
    tti_import *import;
    TTI_TRY(tti_import_open(path, &import));
    tutti_status st = tti_import_check(import);
    if (st == TUTTI_OK) st = tti_new_folder(dir);
    if (st == TUTTI_OK) st = tti_import_save(import, dir);
    tti_import_close(import);
    return st;
}

const char *tutti_model_operator_at(int i) { return tti_operator_name_at(i); }

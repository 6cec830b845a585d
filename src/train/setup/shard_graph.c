/* shard_graph.c - builds the graph from samples, model, loss and metrics.
 *
 * Samples are x and labels ("target"), or fields ("field.NAME") with a target that only marks
 * missing rows.  The loss is the model's own, or that of train.loss. */
#include "train/setup/shard_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "data/fields.h"
#include "data/loader/mixup.h"
#include "ir/graph.h"
#include "ops/loss/losses.h"
#include "ops/op_table.h"
#include "passes/passes.h"
#include "train/job/job_data.h"
#include "train/job/objective.h"
#include "train/model/model_file.h"
#include "tutti/losses.h"

/* ---- samples ---- */

/* The shape of a sample with the rows of a shard as the first dimension. */
static tutti_shape with_rows(const tti_shard_graph_desc *d, const tutti_shape *sample) {
    tutti_shape shape = {.n_dims = sample->n_dims + 1, .dim = {d->rows}};
    for (int i = 0; i < sample->n_dims; i++) shape.dim[i + 1] = sample->dim[i];
    return shape;
}

static tutti_status add_fields(const tti_shard_graph_desc *d, tutti_graph *g) {
    const tutti_dataset_info *info = d->info;
    for (int i = 0; i < info->n_fields; i++) {
        const tutti_field *field = &info->fields[i];
        char name[TTI_MAX_FIELD_NAME + 8];
        if (field->type.shape.n_dims >= TUTTI_MAX_DIMS)
            return tti_fail(TUTTI_E_DATA,
                            "data: field '%s' has %d dimensions, at most %d are supported",
                            field->name, field->type.shape.n_dims, TUTTI_MAX_DIMS - 1);
        snprintf(name, sizeof name, "field.%s", field->name);
        const tutti_type type = {field->type.dtype, with_rows(d, &field->type.shape)};
        tti_input_field(g, name, &type, tti_field_offset(info->fields, i, d->rows));
    }
    tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(d->rows));
    return tutti_graph_check(g);
}

/* ---- the model's own loss ---- */

/* True if a batch may have fewer samples than rows. *n: number of samples of the data, 0:
 * unknown. */
static bool may_be_short(const tti_shard_graph_desc *d, const tutti_graph *g, int64_t *n) {
    const tutti_dataset *test = d->data[TUTTI_TEST];
    bool trains = tti_graph_is_training(g);
    *n = trains ? d->info->n_samples : test ? tutti_dataset_get_info(test)->n_samples : 0;
    if (*n == 0) return trains;
    return *n % (d->rows * d->n_shards) != 0 || strcmp(d->config->data.on_error, "skip") == 0;
}

/* Refuses a result of the model that combines samples if a batch may have padding rows, which must
 * not count. */
static tutti_status check_joined(const tti_shard_graph_desc *d, tutti_graph *g, const char *what,
                                 const tutti_value *value) {
    tutti_batch at;
    int64_t n;
    tutti_find_batch(g, value, &at);
    if (!at.mixed_by || !may_be_short(d, g, &n)) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "model.file: the %s depends on %s, which joins rows of different samples; a "
                    "batch with fewer samples than train.batch=%lld has rows that are padding, and "
                    "they would count.  Choose a train.batch that divides the number of samples "
                    "(%lld)",
                    what, at.mixed_by, (long long)(d->rows * d->n_shards), (long long)n);
}

/* Adds a scalar loss, the mean over the shard: it is weighted by the number of rows. */
static tutti_status add_whole_loss(const tti_shard_graph_desc *d, tutti_graph *g,
                                   tutti_value *loss) {
    TTI_TRY(check_joined(d, g, "loss", loss));
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_value *wide = tutti_cast(g, tutti_find_present(g), TUTTI_F32);
    tutti_value *is_there = tutti_minimum(g, tutti_abs(g, tutti_affine(g, wide, 1, 1)), one);
    tutti_value *count = tutti_sum(g, is_there, NULL);
    tutti_set_loss(g, (tutti_loss){tutti_mul(g, loss, count), count, NULL});
    return tutti_graph_check(g);
}

/* Adds a loss with one or more terms per sample. */
static tutti_status add_sample_losses(const tti_shard_graph_desc *d, tutti_graph *g,
                                      tutti_value *loss) {
    char text[64];
    int axis = tutti_batch_axis(g, loss);
    tti_graph_set_joins_samples(g, false);
    if (axis > 0) loss = tutti_transpose(g, loss, 0, axis);
    TTI_TRY(tutti_graph_check(g));
    if (loss->type.shape.dim[0] != d->rows)
        return tti_fail(
            TUTTI_E_CONFIG,
            "model.loss: the output is %s; a loss is one number, or has a term for each "
            "of the %lld samples of a shard",
            tti_type_text(&loss->type, text, sizeof text), (long long)d->rows);
    tutti_value *zeros = tutti_affine(g, loss, 0, 0);
    tutti_loss sum = tutti_loss_named(g, "mae", loss, tutti_stop_gradient(g, zeros),
                                      tutti_find_present(g), NULL);
    tutti_set_loss(g, sum);
    return tutti_graph_check(g);
}

/* ---- the job's loss ---- */

/* Checks that every target has logits: the shape of the target plus a class dimension, or all rows
 * flattened. */
static tutti_status check_logits(const tutti_value *logits, const tutti_shape *target,
                                 int64_t n_classes) {
    const tutti_shape *shape = &logits->type.shape;
    tutti_shape flat = TUTTI_SHAPE(tutti_shape_n_elems(target), n_classes), full = *target;
    full.dim[full.n_dims++] = n_classes;
    if (tti_shape_equal(shape, &flat) || tti_shape_equal(shape, &full)) return TUTTI_OK;
    char text[128], want[128], y[128];
    bool rows = target->n_dims == 2 && shape->n_dims == 2 && shape->dim[0] == target->dim[0];
    return tti_fail(TUTTI_E_INVALID, "model: logits must be %s, got %s; the labels y are %s%s",
                    tti_type_text(&(tutti_type){TUTTI_F32, full}, want, sizeof want),
                    tti_type_text(&logits->type, text, sizeof text),
                    tti_type_text(&(tutti_type){TUTTI_I32, *target}, y, sizeof y),
                    rows ? "; if they are one-hot, give the numbers of the classes, such as "
                           "y.argmax(axis=1); for several labels of a sample give train.loss=bce"
                         : "");
}

static tutti_value *flatten_rows(tutti_graph *g, tutti_value *x, const tutti_shape *shape) {
    if (tti_shape_equal(&x->type.shape, shape)) return x;
    return tti_emit(g, "reshape", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INTS("dims", shape->n_dims, shape->dim), {0}});
}

/* The prediction and the target that metrics compare. */
typedef struct scored_pair {
    tutti_value *predicted, *target, *present;
} scored_pair;

/* Adds the objective of samples x with labels: classes, tokens or standardized values. */
static tutti_status add_objective(const tti_shard_graph_desc *d, tutti_graph *g,
                                  tutti_value *logits, scored_pair *scored) {
    const tutti_dataset_info *info = d->info;
    tutti_value *target = tti_graph_find_source(g, "target")->out[0];
    tutti_shape y_shape = with_rows(d, &info->y.shape);
    bool is_value = info->is_value; /* if so, each output is a separate target */
    bool is_mixed = tti_graph_is_training(g) && d->config->data.mixup > 0;
    if (y_shape.n_dims > 1) scored->present = NULL; /* each label marks itself as missing */
    int axis = is_value ? -1 : tti_loss_class_axis(&logits->type.shape, &y_shape);
    if (axis >= 0 && logits->type.shape.dim[axis] == info->n_classes)
        logits = tti_classes_last(g, logits, axis);
    TTI_TRY(check_logits(logits, is_value ? &TUTTI_SHAPE(d->rows) : &y_shape, info->n_classes));
    int64_t n_targets = tutti_shape_n_elems(&y_shape);
    if (!is_value) logits = flatten_rows(g, logits, &TUTTI_SHAPE(n_targets, info->n_classes));
    if (!is_mixed) target = flatten_rows(g, target, &TUTTI_SHAPE(n_targets));
    if (d->gives_logits && !tti_graph_is_training(g)) tutti_output(g, "logits", logits);
    if (!is_value && !is_mixed) scored->predicted = logits, scored->target = target;
    if (is_value)
        tti_objective_add_values(g, d->config, flatten_rows(g, logits, &TUTTI_SHAPE(n_targets, 1)),
                                 target);
    else if (tti_loss_is_named(d->config))
        TTI_TRY(tti_objective_add_named(
            g, d->config,
            &(tti_compared){.predicted = logits, .target = target, .present = target}));
    else
        tti_objective_add(g, d->config, logits, target);
    return tutti_graph_check(g);
}

/* Checks the classes of masks, or the labels of a field, against the logits [N,C,...] or [N,...,C].
 * Other mismatches fail in the loss. */
static tutti_status check_classes(const tti_shard_graph_desc *d, const tutti_value *logits,
                                  const tutti_value *target, const char *name) {
    const tutti_shape *x = &logits->type.shape, *y = &target->type.shape;
    bool is_loss = strcmp(d->config->train.loss, "cross-entropy") == 0 ||
                   strcmp(d->config->train.loss, "focal") == 0 ||
                   strcmp(d->config->train.loss, "dice") == 0;
    int axis = is_loss && target->type.dtype == TUTTI_I32 ? tti_loss_class_axis(x, y) : -1;
    if (axis < 0) return TUTTI_OK;
    int64_t n = x->dim[axis], n_classes = d->info->n_classes;
    const char *ignored = tti_ignored_label(d->config);
    const tti_expected_labels range = {
        .field = tti_field_find(d->info->fields, d->info->n_fields, name),
        .n_classes = TTI_MAX(n, 2),
        .has_ignored = strcmp(ignored, "none") != 0,
        .ignored = atoll(ignored)};
    for (size_t i = 0; i < TTI_COUNT(d->data); i++)
        if (d->data[i]) TTI_TRY(tti_dataset_expect_labels(d->data[i], &range));
    if (n >= n_classes || (n == 1 && n_classes == 2)) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "model: gives %lld logits for each pixel, but the masks have %lld classes",
                    (long long)n, (long long)n_classes);
}

/* Returns the name of the field with the target; NULL: none. */
static const char *find_target(const tti_shard_graph_desc *d) {
    const tutti_dataset_info *info = d->info;
    int i = tti_field_find_target(info->fields, info->n_fields, tti_job_target_field(d->config));
    return i < 0 ? NULL : info->fields[i].name;
}

int tti_shard_graph_label_field(const tti_job_config *c, const tutti_dataset_info *info) {
    bool asks = strcmp(c->train.loss, "bce") == 0 || strcmp(c->data.format, "csv") == 0;
    int i = tti_field_find_target(info->fields, info->n_fields, tti_job_target_field(c));
    const tutti_type *type = i >= 0 ? &info->fields[i].type : NULL;
    return asks && type && type->dtype == TUTTI_F32 && type->shape.n_dims <= 1 ? i : -1;
}

/* Adds the objective of samples with fields; data.label names the target. */
static tutti_status add_field_objective(const tti_shard_graph_desc *d, tutti_graph *g,
                                        const tti_model_outputs *out, scored_pair *scored) {
    const char *label = tti_job_target_field(d->config);
    bool is_named = label[0] != '\0';
    bool takes_pair = tti_loss_is_contrastive(d->config) && out->second && !is_named;
    const char *name = takes_pair ? NULL : find_target(d);
    bool of_pairs = !name && !is_named && out->second; /* the loss compares the two outputs */
    if (!of_pairs && !name)
        return tti_fail(TUTTI_E_CONFIG,
                        "data.label: samples have no field '%s' for the target of train.loss=%s",
                        is_named ? label : "y", d->config->train.loss);
    if (strcmp(d->config->train.loss, "bce") == 0 && d->info->n_classes > 2)
        return tti_fail(
            TUTTI_E_CONFIG,
            "train.loss: bce answers a yes-or-no question for each pixel, but the masks "
            "have %lld classes; give cross-entropy, focal or dice",
            (long long)d->info->n_classes);
    tutti_value *target = of_pairs ? out->second : tutti_find_field(g, name);
    if (!of_pairs) TTI_TRY(check_classes(d, out->logits, target, name));
    scored->predicted = out->logits, scored->target = target;
    return tti_objective_add_named(g, d->config,
                                   &(tti_compared){.predicted = out->logits,
                                                   .target = target,
                                                   .present = tutti_find_present(g),
                                                   .scale = out->scale,
                                                   .bias = out->bias});
}

/* ---- losses that compare samples of all shards ---- */

bool tti_shard_graph_compares(const tutti_graph *g) {
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool joins = node->op->traits & TTI_SYNC;
        if (joins && tti_value_n_elems(node->out[0]) > tti_value_n_elems(node->in[0])) return true;
    }
    return false;
}

/* Refuses parallelism strategies in which a worker cannot get the samples of all others. */
static tutti_status check_compared(const tti_job_config *c, const tutti_graph *g) {
    const char *key = NULL, *advice = NULL;
    if (!tti_shard_graph_compares(g)) return TUTTI_OK;
    if (c->parallel.pipeline > 1)
        key = "parallel.pipeline", advice = "1";
    else if (c->parallel.tensor > 1)
        key = "parallel.tensor", advice = "1";
    else if (strcmp(c->parallel.sync, "local") == 0)
        key = "parallel.sync",
        advice = "all-reduce: workers of local SGD do not wait for each other";
    else if (c->parallel.backup_workers > 0)
        key = "parallel.backup_workers", advice = "0";
    else if (c->parallel.zero > 2 && strcmp(c->parallel.devices, "cpu") != 0)
        key = "parallel.zero", advice = "2, or parallel.devices=cpu";
    if (!key) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "%s: the loss compares each sample with those of all workers, which is not "
                    "possible with this value; give %s",
                    key, advice);
}

/* ---- the loss of the caller ---- */

static size_t end_of_samples(const tti_shard_graph_desc *d) {
    if (d->info->n_fields > 0) return tti_field_offset(d->info->fields, d->info->n_fields, d->rows);
    const tutti_field x = {"x", d->info->x};
    return tti_field_offset(&x, 1, d->rows);
}

static tutti_value *add_seed(tutti_graph *g, const char *name, const tutti_shape *shape,
                             size_t *offset) {
    char text[TTI_MAX_NAME];
    const tutti_type type = {TUTTI_F32, *shape};
    const tutti_field block = {"", type};
    size_t at = *offset;
    snprintf(text, sizeof text, "seed.%s", name);
    *offset += tti_field_offset(&block, 1, 1);
    return tti_input_field(g, text, &type, at);
}

bool tti_shard_graph_is_output(const tutti_graph *g, int i, int64_t rows) {
    const tti_output *out = &g->outputs[i];
    static const char *const sums[] = {"loss_sum", "count", "correct"};
    for (size_t k = 0; k < TTI_COUNT(sums); k++)
        if (strcmp(out->name, sums[k]) == 0) return false;
    const tutti_type *type = &out->value->type;
    return strncmp(out->name, "stat.", 5) != 0 && strncmp(out->name, "metric.", 7) != 0 &&
           strncmp(out->name, TTI_SHARED_PREFIX, sizeof TTI_SHARED_PREFIX - 1) != 0 &&
           type->shape.n_dims > 0 && type->shape.dim[0] % rows == 0 && type->shape.dim[0] > 0 &&
           (type->dtype == TUTTI_F32 || type->dtype == TUTTI_I32);
}

static tutti_status add_host_loss(const tti_shard_graph_desc *d, tutti_graph *g) {
    size_t offset = end_of_samples(d);
    tutti_value *sum = NULL;
    const tutti_graph *built = g;
    int n = built->n_outputs;
    if (!tti_graph_is_training(g)) return TUTTI_OK;
    for (int i = 0; i < n; i++) {
        if (!tti_shard_graph_is_output(g, i, d->rows)) continue;
        tutti_value *value = built->outputs[i].value;
        if (value->type.dtype != TUTTI_F32) continue;
        tutti_value *seed = add_seed(g, built->outputs[i].name, &value->type.shape, &offset);
        tutti_value *term = tutti_sum(g, tutti_mul(g, value, seed), NULL);
        sum = sum ? tutti_add(g, sum, term) : term;
    }
    if (!sum)
        return tti_fail(TUTTI_E_INVALID,
                        "model: it has no output f32 [N,...], of which the caller could compute a "
                        "loss");
    tutti_value *count = tutti_sum(g, add_seed(g, "count", &TUTTI_SHAPE(d->rows), &offset), NULL);
    tutti_set_loss(g, (tutti_loss){sum, count, NULL});
    return tutti_graph_check(g);
}

/* ---- metrics ---- */

static bool is_loss(const tti_shard_graph_desc *d, const char *name) {
    return strcmp(d->config->train.loss, name) == 0;
}

/* True if workers do not evaluate each batch together. */
static bool is_unsynchronized(const tti_job_config *c) {
    return strcmp(c->parallel.sync, "parameter-server") == 0 &&
           (c->parallel.staleness != 0 || c->parallel.backup_workers > 0);
}

/* The metrics of train.metrics=auto.  Samples without fields get their standard figures without any
 * metric. */
static const char *usual_metrics(const tti_shard_graph_desc *d, const scored_pair *s) {
    static const char *const of_values[] = {"mse", "mae", "huber", "smooth_l1"};
    if (d->info->n_fields == 0 || !s->target || is_unsynchronized(d->config)) return "";
    const tutti_shape *x = &s->predicted->type.shape, *y = &s->target->type.shape;
    bool is_map = s->target->type.dtype == TUTTI_I32 && x->n_dims == y->n_dims + 1 &&
                  y->n_dims > 2 && x->dim[1] > 1 && x->dim[x->n_dims - 1] > 1;
    for (size_t i = 0; i < TTI_COUNT(of_values); i++)
        if (is_loss(d, of_values[i])) return "mae, rmse, r2";
    bool asks = s->target->type.dtype == TUTTI_F32 && is_loss(d, "focal");
    if (asks || is_loss(d, "bce")) return x->n_dims <= 2 ? "accuracy, auc" : "accuracy";
    if (is_loss(d, "dice") && is_map) return "accuracy, miou";
    return is_map && (is_loss(d, "cross-entropy") || is_loss(d, "focal")) ? "miou" : "";
}

/* True if each evaluation reports the figure anyway. */
static bool is_known(const tti_shard_graph_desc *d, const tutti_graph *g, const char *name) {
    static const char *const of_values[] = {"mae", "rmse", "r2"};
    bool counts = tti_graph_output(g, "correct") != tti_graph_output(g, "count");
    if (d->info->n_fields > 0 || !d->info->is_value) return strcmp(name, "accuracy") == 0 && counts;
    for (size_t i = 0; i < TTI_COUNT(of_values); i++)
        if (strcmp(name, of_values[i]) == 0) return true;
    return false;
}

/* Adds perplexity, e to the mean loss. */
static tutti_status add_perplexity(const tti_shard_graph_desc *d, tutti_graph *g, bool own_loss) {
    tutti_value *sums[2] = {tti_graph_output(g, "loss_sum"), tti_graph_output(g, "count")};
    bool is_plain = is_loss(d, "cross-entropy") && d->config->train.label_smoothing == 0 &&
                    !d->config->train.class_weights[0];
    if (!own_loss && !is_plain)
        return tti_fail(
            TUTTI_E_CONFIG,
            "train.metrics: perplexity needs train.loss=cross-entropy without smoothing "
            "and weights");
    for (int i = 0; i < 2; i++) sums[i] = tutti_reshape(g, sums[i], &TUTTI_SHAPE(1));
    tutti_output(g, "metric.perplexity", tutti_concat(g, sums, 2, 0));
    return tutti_graph_check(g);
}

/* For a model with its own loss, scores its first other output against the target of the
 * samples. */
static void find_scored(const tti_shard_graph_desc *d, tutti_graph *g, const tti_model_outputs *out,
                        scored_pair *s) {
    const char *name = d->info->n_fields > 0 ? find_target(d) : "y";
    s->predicted = out->logits;
    s->target = name ? tutti_find_field(g, name) : NULL;
}

static tutti_status add_one_metric(const tti_shard_graph_desc *d, tutti_graph *g, const char *name,
                                   const scored_pair *s) {
    const tti_job_config *c = d->config;
    const char *ignored = tti_ignored_label(c);
    const tutti_loss_desc desc = {.ignores = strcmp(ignored, "none") != 0,
                                  .ignore = atoll(ignored)};
    if (!s->predicted || !s->target)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.metrics: %s needs an output of the model and a target (data.label)",
                        name);
    bool is_flat = s->present && s->target->type.shape.n_dims > 0 &&
                   s->present->type.shape.dim[0] != s->target->type.shape.dim[0];
    tutti_value *present = s->target == s->present || is_flat ? NULL : s->present;
    tutti_add_metric_named(g, name, s->predicted, s->target, present, &desc);
    tutti_status st = tutti_graph_check(g);
    return st == TUTTI_E_INVALID ? tti_fail(TUTTI_E_CONFIG, "train.metrics: %s", tutti_last_error())
                                 : st;
}

static tutti_status add_metrics(const tti_shard_graph_desc *d, tutti_graph *g,
                                const tti_model_outputs *out, scored_pair *s) {
    const char *list = d->config->train.metrics;
    bool is_auto = strcmp(list, "auto") == 0 || strcmp(list, "by_task") == 0;
    bool own_loss = !s->predicted && !d->info->is_value;
    if (is_auto) list = usual_metrics(d, s);
    if (strcmp(list, "none") == 0) list = "";
    if (own_loss && list[0]) find_scored(d, g, out, s);
    for (const char *at = list; *at;) {
        char name[65];
        at += strspn(at, " ,");
        size_t n = strcspn(at, ", ");
        if (n == 0) break;
        snprintf(name, sizeof name, "%.*s", (int)TTI_MIN(n, sizeof name - 1), at);
        at += n;
        if (is_known(d, g, name)) continue;
        if (is_unsynchronized(d->config))
            return tti_fail(TUTTI_E_CONFIG,
                            "train.metrics: workers that do not wait for each other evaluate "
                            "batches of their own; give train.metrics=none");
        if (strcmp(name, "perplexity") == 0)
            TTI_TRY(add_perplexity(d, g, own_loss));
        else
            TTI_TRY(add_one_metric(d, g, name, s));
    }
    return TUTTI_OK;
}

/* ---- outputs ---- */

/* True if the value is a parameter, an input or a constant, or a view of one. */
static bool is_stored(const tutti_value *value) {
    return tti_skip_views(value)->node->op->traits & TTI_SOURCE;
}

/* True if a value depends on an input; seen [n_nodes]. */
static bool reads_samples(const tutti_value *value, bool *seen) {
    const tti_node *node = value->node;
    if (node->op->traits & TTI_INPUT) return true;
    if (seen[node->id]) return false;
    seen[node->id] = true;
    for (int i = 0; i < node->n_in; i++)
        if (reads_samples(node->in[i], seen)) return true;
    return false;
}

/* True if a graph for training also has this output: the caller's loss needs rows of samples. */
static bool is_of_rows(const tutti_value *value, int64_t rows) {
    const tutti_type *type = &value->type;
    return type->shape.n_dims > 0 && type->shape.dim[0] % rows == 0 && type->shape.dim[0] > 0 &&
           type->dtype == TUTTI_F32;
}

/* Names the outputs as in the model's file.  Stored values are copied, because every output of a
 * program must be computed by one of its steps. */
static tutti_status name_outputs(tutti_graph *g, const tti_model_outputs *out, int64_t rows) {
    bool *seen = calloc((size_t)g->n_nodes + 1, sizeof *seen);
    if (!seen) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    int n_nodes = g->n_nodes;
    for (int i = 0; out->n_named > 1 && i < out->n_named; i++) {
        char text[TTI_MAX_NAME];
        tutti_value *value = out->named[i].value;
        memset(seen, 0, (size_t)n_nodes);
        bool reads = reads_samples(value, seen);
        if (tti_graph_is_training(g) && !(reads && is_of_rows(value, rows))) continue;
        snprintf(text, sizeof text, "%s%s", reads ? TTI_OUTPUT_PREFIX : TTI_SHARED_PREFIX,
                 out->named[i].name);
        tutti_output(g, text, is_stored(value) ? tutti_affine(g, value, 1, 0) : value);
    }
    if (out->n_named > 1 && !tti_graph_is_training(g))
        tti_graph_set_joins_samples(g, true); /* an output covers the samples of one shard only */
    free(seen);
    return TUTTI_OK;
}

bool tti_shard_graph_is_named(const tti_output *output) {
    static const size_t n = sizeof TTI_OUTPUT_PREFIX - 1;
    return strncmp(output->name, TTI_OUTPUT_PREFIX, n) == 0 ||
           strncmp(output->name, TTI_SHARED_PREFIX, n) == 0;
}

const tti_output *tti_shard_graph_named(const tutti_graph *g, int i) {
    for (int k = 0; k < g->n_outputs; k++)
        if (tti_shard_graph_is_named(&g->outputs[k]) && i-- == 0) return &g->outputs[k];
    return NULL;
}

/* Marks the fields that a value depends on, and whether it depends on the targets. */
static void mark_inputs(const tutti_value *value, const tutti_field *fields, int n_fields,
                        bool *seen, bool *needs) {
    const tti_node *node = value->node;
    if (seen[node->id]) return;
    seen[node->id] = true;
    bool is_input = node->op->traits & TTI_INPUT;
    bool is_field = is_input && strncmp(node->name, "field.", 6) == 0;
    int field = is_field ? tti_field_find(fields, n_fields, node->name + 6) : -1;
    if (field >= 0) needs[field] = true;
    if (is_input && strcmp(node->name, "target") == 0) needs[n_fields] = true;
    for (int i = 0; i < node->n_in; i++) mark_inputs(node->in[i], fields, n_fields, seen, needs);
}

tutti_status tti_shard_graph_needs(const tutti_graph *g, const tutti_value *value,
                                   const tutti_field *fields, int n_fields, bool **needs) {
    bool *seen = calloc((size_t)g->n_nodes + 1, sizeof *seen);
    *needs = calloc((size_t)n_fields + 1, sizeof **needs);
    bool good = seen && *needs;
    if (good) mark_inputs(value, fields, n_fields, seen, *needs);
    free(seen);
    return good ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "predict: out of memory");
}

/* Checks the labels of a model's own loss.  Like PyTorch, refuses labels that are not classes. */
static tutti_status check_own_labels(const tti_shard_graph_desc *d, const tti_model_outputs *out) {
    const tutti_dataset_info *info = d->info;
    if (!out->labels) return TUTTI_OK;
    const tti_expected_labels range = {
        .field = tti_field_find(info->fields, info->n_fields, out->labels),
        .n_classes = out->n_classes,
        .has_ignored = true,
        .ignored = out->ignored,
        .is_of_model = true};
    if (info->n_fields == 0 && !info->is_value && strcmp(out->labels, "y") == 0 &&
        info->n_classes > out->n_classes)
        return tti_fail(TUTTI_E_DATA,
                        "data: the labels are 0 .. %lld, but the model's own loss has %lld classes",
                        (long long)info->n_classes - 1, (long long)out->n_classes);
    bool is_known = range.field >= 0 && info->fields[range.field].type.dtype == TUTTI_I32;
    for (size_t i = 0; is_known && i < TTI_COUNT(d->data); i++)
        if (d->data[i]) TTI_TRY(tti_dataset_expect_labels(d->data[i], &range));
    return TUTTI_OK;
}

/* ---- the whole graph ---- */

static tutti_status add_loss(const tti_shard_graph_desc *d, tutti_graph *g,
                             const tti_model_outputs *out, scored_pair *scored) {
    if (tti_graph_output(g, "loss_sum")) return TUTTI_OK; /* the model's builder set it */
    if (out->loss) TTI_TRY(tti_model_file_check_loss(d->job));
    if (out->loss) TTI_TRY(check_own_labels(d, out));
    if (out->loss && out->loss->type.shape.n_dims == 0) return add_whole_loss(d, g, out->loss);
    if (out->loss) return add_sample_losses(d, g, out->loss);
    tti_graph_set_joins_samples(g, false);
    if (!out->logits) return tti_fail(TUTTI_E_INVALID, "model: the builder returned NULL");
    return d->info->n_fields > 0 ? add_field_objective(d, g, out, scored)
                                 : add_objective(d, g, out->logits, scored);
}

tutti_status tti_shard_graph_build(const tti_shard_graph_desc *d, tutti_graph *g) {
    const tutti_dataset_info *info = d->info;
    tutti_shape x_shape = with_rows(d, &info->x.shape), y_shape = with_rows(d, &info->y.shape);
    bool is_mixed = tti_graph_is_training(g) && d->config->data.mixup > 0,
         has_fields = info->n_fields > 0;
    tutti_graph_set_sync_batch_norm(g, d->config->parallel.sync_batch_norm);
    tutti_graph_set_shards(g, d->n_shards);
    tutti_value *x;
    tti_model_outputs out;
    if (has_fields) {
        TTI_TRY(add_fields(d, g));
        /* A model with one input gets the field x, or else the first field. */
        int field = tti_field_find(info->fields, info->n_fields, "x");
        x = tutti_find_field(g, info->fields[TTI_MAX(field, 0)].name);
    } else {
        x = tutti_input(g, "x", info->x.dtype, &x_shape);
        tutti_input(g, "target", TUTTI_I32,
                    is_mixed ? &TUTTI_SHAPE(d->rows, TTI_MIXUP_LABELS) : &y_shape);
    }
    tti_graph_set_mixes_labels(g, is_mixed);
    tti_graph_set_joins_samples(g, d->import && (has_fields || tti_import_n_inputs(d->import) > 1));
    TTI_TRY(tti_model_build(d->job, d->import, d->params, g, x, &out));
    TTI_TRY(tutti_graph_check(g));
    scored_pair scored = {.present = tutti_find_present(g)};
    if (!d->has_host_loss) TTI_TRY(add_loss(d, g, &out, &scored));
    if (!d->has_host_loss && !tti_graph_is_training(g)) TTI_TRY(add_metrics(d, g, &out, &scored));
    TTI_TRY(check_compared(d->config, g));
    tutti_value *result = out.logits ? out.logits : out.loss;
    bool gives = !tti_graph_is_training(g) || d->has_host_loss, names = d->gives_logits && gives;
    if (d->names_outputs && gives) TTI_TRY(name_outputs(g, &out, d->rows));
    if (tti_graph_is_training(g) && tti_shard_graph_named(g, 0)) names = false; /* already named */
    if (names && result && !tti_graph_output(g, "logits")) tutti_output(g, "logits", result);
    if (d->has_host_loss) TTI_TRY(add_host_loss(d, g));
    return d->import && tti_graph_is_training(g) ? tti_mark_unreached(g) : tutti_graph_check(g);
}

/* blueprint.c - creates data sets, graphs and plans from a job. */
#include "train/setup/blueprint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/backend.h"
#include "data/dataset.h"
#include "data/loader/loader.h"
#include "data/loader/mixup.h"
#include "data/loader/sampler.h"
#include "ops/op_table.h"
#include "train/job/job_data.h"
#include "train/job/load_weights.h"
#include "train/job/numerics.h"
#include "train/job/objective.h"
#include "train/job/optimizer.h"
#include "train/job/param_groups.h"
#include "train/model/model_choice.h"
#include "train/model/model_file.h"
#include "train/setup/shard_graph.h"
#include "train/setup/whole_layers.h"

static tutti_status open_split(const tti_job_config *c, tutti_data_split split,
                               const tti_data_spec *spec, tutti_dataset **out) {
    tutti_dataset_desc desc = tti_job_dataset_desc(c, split, spec);
    TTI_TRY(tti_job_check_samples(c));
    return tutti_dataset_open(&desc, out);
}

/* Opens the data for a trained model, which needs no training data. */
static tutti_status open_for_use(tti_blueprint *b, const tti_data_spec *spec, bool reads_test,
                                 bool is_other_data) {
    const char *dir = b->config.data.dir;
    struct stat info;
    TTI_TRY(tutti_dataset_open(&(tutti_dataset_desc){.spec = spec,
                                                     .no_files = true,
                                                     .tokenizer = tti_job_tokenizer(&b->config),
                                                     .tokenizer_dir = b->config.data.tokenizer_dir},
                               &b->train));
    b->test = b->train;
    if (!reads_test) return TUTTI_OK;
    b->test = NULL;
    TTI_TRY(tti_job_check_samples(&b->config));
    bool is_gone = !b->config.data.samples[TUTTI_TEST] && dir[0] && !strpbrk(dir, "*?[{") &&
                   stat(dir, &info) != 0;
    tutti_dataset_desc desc = tti_job_dataset_desc(&b->config, TUTTI_TEST, spec);
    desc.takes_all = is_other_data;
    if (!is_gone) return tutti_dataset_open(&desc, &b->test);
    return tti_fail(TUTTI_E_DATA,
                    "data.dir: '%s' does not exist: %s; give the folder of the data, or other data "
                    "of the same kind, as data.dir=FOLDER",
                    dir, strerror(errno));
}

static tutti_status count_steps(tti_blueprint *b) {
    const tti_job_config *c = &b->config;
    b->n_workers = (int)c->parallel.workers;
    bool fits =
        tti_mesh_shape(b->n_workers, (int)c->parallel.pipeline, (int)c->parallel.tensor, &b->mesh);
    TTI_ASSERT(fits); /* checked in job_conflicts.c */
    b->n_shards = (int)c->parallel.shards;
    TTI_TRY(tti_load_weights_given(c, b->mesh.data, b->n_shards, &b->has_shard_map, &b->shard_map));
    b->rows_per_shard = tti_rows_per_shard(c->train.batch, b->n_shards);
    int64_t n_samples = tutti_dataset_get_info(b->train)->n_samples;
    b->steps_per_epoch = tti_steps_per_epoch(n_samples, c->train.batch);
    if (b->gives_outputs)
        b->steps_per_epoch =
            TTI_MAX(b->steps_per_epoch, 1); /* the split may be smaller than a batch */
    int64_t by_epochs = c->train.epochs * b->steps_per_epoch;
    b->schedule_steps = c->schedule.steps > 0 ? c->schedule.steps : by_epochs;
    b->n_steps = c->train.steps > 0 ? c->train.steps : by_epochs;
    return TUTTI_OK;
}

/* Checks train.loss and data.target against the data. */
static tutti_status check_target(const tti_blueprint *b) {
    const tti_job_config *c = &b->config;
    bool wants = strcmp(tti_job_target(c), "value") == 0;
    bool has_fields = tutti_dataset_get_info(b->train)->n_fields > 0;
    TTI_TRY(tti_objective_check(c, has_fields));
    if (has_fields) return TUTTI_OK;
    if (wants && !tutti_dataset_get_info(b->train)->is_value)
        return tti_fail(TUTTI_E_CONFIG,
                        "train.loss: %s predicts values, but the targets of data.format=%s are "
                        "classes or tokens; give train.loss=cross-entropy data.target=auto",
                        c->train.loss, c->data.format);
    return TUTTI_OK;
}

/* Checks of data.mixup that need the data and the number of shards. */
static tutti_status check_mixup(const tti_blueprint *b) {
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    char text[64];
    if (b->config.data.mixup == 0) return TUTTI_OK;
    if (info->is_value)
        return tti_fail(TUTTI_E_CONFIG,
                        "data.mixup: mixes classes, but the targets of this data are values; give "
                        "data.mixup=0");
    if (info->x.dtype != TUTTI_F32 || info->y.shape.n_dims != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "data.mixup: mixes images and other samples of floats with one class each, "
                        "but those of data.format=%s are %s; give data.mixup=0",
                        b->config.data.format, tti_type_text(&info->x, text, sizeof text));
    if (b->rows_per_shard < 2)
        return tti_fail(TUTTI_E_CONFIG,
                        "data.mixup: mixes samples of the same shard, but a batch of %lld in %d "
                        "shards has one in each; give train.batch=%d or fewer shards",
                        (long long)b->config.train.batch, b->n_shards, 2 * b->n_shards);
    return TUTTI_OK;
}

/* ---- the graph of one shard ---- */

static tti_shard_graph_desc graph_desc(const tutti_job *job, const tti_blueprint *b,
                                       const tutti_dataset_info *info) {
    return (tti_shard_graph_desc){.job = job,
                                  .config = &b->config,
                                  .import = b->import,
                                  .params = &b->model_params,
                                  .info = info,
                                  .data = {b->borrows_data ? NULL : b->train,
                                           b->borrows_data || b->test == b->train ? NULL : b->test},
                                  .rows = b->rows_per_shard,
                                  .n_shards = b->n_shards,
                                  .gives_logits = b->gives_logits || b->gives_outputs,
                                  .names_outputs = b->gives_logits || b->gives_outputs,
                                  .has_host_loss = b->has_host_loss};
}

static tutti_status build_graph(const tti_shard_graph_desc *desc, bool training,
                                tutti_graph **out) {
    *out = NULL;
    tutti_graph *g = tutti_graph_create(training);
    if (!g) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    tutti_status st = tti_shard_graph_build(desc, g);
    if (st != TUTTI_OK) {
        tutti_graph_destroy(g);
        return st;
    }
    *out = g;
    return TUTTI_OK;
}

tutti_status tti_blueprint_graph(const tutti_job *job, const tti_blueprint *b, bool training,
                                 tutti_graph **out) {
    const tti_shard_graph_desc desc = graph_desc(job, b, tutti_dataset_get_info(b->train));
    return build_graph(&desc, training, out);
}

tutti_status tti_blueprint_graph_for_rows(const tutti_job *job, const tti_blueprint *b,
                                          int64_t n_rows, int64_t n_t, tutti_graph **out) {
    tutti_dataset_info info = *tutti_dataset_get_info(b->train);
    bool guesses = tti_shape_equal(&info.x.shape, &info.y.shape);
    if (n_t > 0) info.x.shape.dim[0] = n_t;
    if (n_t > 0 && guesses) info.y.shape = info.x.shape;
    tti_shard_graph_desc desc = graph_desc(job, b, &info);
    desc.rows = n_rows;
    return build_graph(&desc, false, out);
}

tutti_status tti_blueprint_graph_for_length(const tutti_job *job, const tti_blueprint *b,
                                            int64_t n_t, tutti_graph **out) {
    return tti_blueprint_graph_for_rows(job, b, b->rows_per_shard, n_t, out);
}

/* ---- the plan ---- */

/* True if all parameters are on the worker's device, which performs or tracks every change of
 * them. */
static bool keeps_low_copies(const tti_blueprint *b) {
    const tti_device_ops *device = b->devices.backend->device;
    const tti_job_config *c = &b->config;
    return device && device->update.low_copies && !b->devices.mixed && c->parallel.zero <= 1 &&
           strcmp(c->parallel.offload, "none") == 0 && strcmp(c->parallel.sync, "all-reduce") == 0;
}

tti_target tti_blueprint_target(const tti_blueprint *b) {
    bool reference = strcmp(b->config.parallel.backend, "reference") == 0;
    const tti_backend *backend = b->devices.backend;
    tti_target target;
    memset(&target, 0,
           sizeof target); /* also clears padding, because a plan cache compares targets by bytes */
    target.prefers_channels_last = reference ? NULL : backend->prefers_channels_last;
    target.strided = !reference && backend->strided;
    target.fuses_pool = reference ? NULL : backend->fuses_pool;
    target.fuse = !reference;
    target.one_shard = b->n_shards == 1 || b->one_row_is_proven;
    target.chains_any_float = backend->fuses_training;
    target.fuse_batch_norm = backend->fuses_training;
    target.fuse_residual_norm = backend->fuses_training;
    target.fuse_linear_grad = backend->fuses_training || backend->joins_products;
    target.joins_products = backend->joins_products;
    target.joins_exact_gelu = backend->joins_exact_gelu;
    target.joins_gradient = backend->joins_gradient;
    target.joins_head = backend->joins_head;
    target.fuse_loss = backend->fuses_training;
    target.fuse_sums = backend->fuses_training;
    target.weights = backend->weights;
    target.keeps_low_copies = !reference && keeps_low_copies(b);
    tti_numerics_target(&b->config, &target);
    return target;
}

tti_target tti_blueprint_target_at(const tti_blueprint *b, int model_rank) {
    tti_mesh_at at = tti_mesh_at_rank(&b->mesh, model_rank);
    tti_target target = tti_blueprint_target(b);
    target.n_tensor = b->mesh.tensor;
    target.tensor = at.tensor;
    target.n_stages = b->mesh.stage;
    target.stage = at.stage;
    target.n_chunks = (int)b->config.parallel.pipeline_chunks;
    const tti_device_ops *device = b->devices.backend->device;
    target.collectives =
        device && device->collectives.tp_collective && target.n_tensor > 1 && target.n_stages <= 1;
    target.joins_norms = target.collectives && tti_device_joins_norms(device, target.n_tensor);
    if (target.joins_norms && device->fusions.norm_grad)
        target.joins_grads = device->fusions.least_norm_grad;
    target.keeps_low_copies = target.keeps_low_copies && target.n_stages <= 1;
    target.adds_tied_by_shard =
        target.n_tensor <= 1 && strcmp(b->config.parallel.mode, "exact") == 0;
    return target;
}

/* The settings of a parameter by optimizer.groups and optimizer.freeze.  A parameter without
 * requires_grad is frozen. */
static tti_param_group group_of(const tti_blueprint *b, const char *name) {
    tti_param_group group = tti_param_group_of(&b->config, name);
    if (b->import && tti_import_is_fixed(b->import, name)) group.lr = 0, group.frozen = true;
    return group;
}

static void apply_groups(const char *name, const void *user, tti_slot_rule *rule) {
    tti_param_group group = group_of(user, name);
    rule->lr_factor = group.lr;
    rule->frozen = group.frozen;
    if (group.has_decay) rule->decay = group.decay;
}

/* Refuses patterns that match no parameter, because they are mistakes. */
static tutti_status check_groups(const tti_blueprint *b) {
    const char **names = calloc((size_t)b->plan->n_slots + 1, sizeof *names);
    int n = 0;
    if (!names) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    for (int i = 0; i < b->plan->n_slots; i++)
        if (!b->plan->slots[i].buffer) names[n++] = b->plan->slots[i].param->name;
    tutti_status st = tti_param_groups_check(&b->config, names, n);
    free(names);
    return st;
}

static bool is_unreached(const tti_slot *slot) {
    return !slot->buffer && tti_attr_int(slot->param, "reach") == TTI_GRAD_IS_MISSING;
}

void tti_blueprint_unreached_text(const tti_blueprint *b, tti_str *out) {
    enum { MAX_NAMED = 8 };
    tti_str names = {0};
    int n = 0;
    for (int i = 0; i < b->plan->n_slots; i++) {
        const tti_slot *slot = &b->plan->slots[i];
        if (!is_unreached(slot) || group_of(b, slot->param->name).frozen) continue;
        if (n++ < MAX_NAMED) tti_str_printf(&names, "%s%s", n > 1 ? ", " : "", slot->param->name);
    }
    if (n > MAX_NAMED) tti_str_printf(&names, " and %d more", n - MAX_NAMED);
    if (n > 0)
        tti_str_printf(
            out,
            "no gradient of the loss reaches %d parameter%s, which stay%s as in PyTorch: "
            "%s",
            n, n == 1 ? "" : "s", n == 1 ? "s as it is" : " as they are", tti_str_text(&names));
    tti_str_free(&names);
}

tutti_status tti_blueprint_check_trains(const tti_blueprint *b) {
    const tti_text_list *freeze = &b->config.optimizer.freeze;
    int n = 0, n_unreached = 0;
    for (int i = 0; i < freeze->n; i++)
        if (strcmp(freeze->v[i], "*") == 0) return TUTTI_OK; /* "*" freezes everything on purpose */
    for (int i = 0; i < b->plan->n_slots; i++) {
        if (b->plan->slots[i].buffer) continue;
        if (!b->plan->slots[i].rule.frozen) return TUTTI_OK;
        n_unreached += is_unreached(&b->plan->slots[i]);
        n++;
    }
    if (n > 0 && n_unreached == n)
        return tti_fail(TUTTI_E_CONFIG,
                        "model.file: no gradient of the loss reaches any of the %d parameters, so "
                        "there is nothing to train",
                        n);
    return n > 0 ? tti_fail(TUTTI_E_CONFIG,
                            "optimizer.freeze: every parameter of the model is frozen (%d), so "
                            "there is nothing to train (optimizer.groups with lr=0 freezes too); "
                            "optimizer.freeze=* runs the steps without any update",
                            n)
                 : tti_fail(TUTTI_E_CONFIG,
                            "model: it has no parameters, so there is nothing to train");
}

/* Builds the graphs for training and evaluation, both or none. */
static tutti_status build_graphs(const tutti_job *job, const tti_blueprint *b, tti_plan_desc *out) {
    tutti_graph *train, *eval;
    TTI_TRY(tti_blueprint_graph(job, b, true, &train));
    tutti_status st = tti_blueprint_graph(job, b, false, &eval);
    if (st != TUTTI_OK) {
        tutti_graph_destroy(train);
        return st;
    }
    out->train = train, out->eval = eval;
    return TUTTI_OK;
}

static tti_plan_desc plan_desc(const tti_blueprint *b, const tti_target *target) {
    const tti_job_config *c = &b->config;
    tti_plan_desc desc = {.target = target,
                          .weight_decay = c->optimizer.weight_decay,
                          .rule = apply_groups,
                          .rule_user = b,
                          .by_creation = b->devices.mixed};
    tti_bucket_link_apply(&b->link, c, &desc);
    return desc;
}

static tutti_status make_plan(const tutti_job *job, const tti_blueprint *b, tti_plan_desc *desc,
                              tti_plan **out) {
    const tti_job_config *c = &b->config;
    const tti_optimizer *optimizer = tti_optimizer_find(c->optimizer.name);
    if (!optimizer)
        return tti_fail(TUTTI_E_CONFIG, "optimizer.name: unknown '%s'", c->optimizer.name);
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    optimizer->attrs(c, attrs);
    desc->optimizer = optimizer->name;
    desc->optimizer_attrs = attrs;
    bool is_cached =
        desc->pass_cache && tti_pass_cache_has(desc->pass_cache, desc->number, desc->target);
    if (!is_cached) TTI_TRY(build_graphs(job, b, desc));
    return tti_plan_create(desc, out);
}

/* Creates the plan, or takes it from the cache. */
static tutti_status get_plan(const tutti_job *job, const tti_blueprint *b, const tti_target *target,
                             tti_plan **out) {
    tti_plan_desc desc = plan_desc(b, target);
    if (!b->cache) return make_plan(job, b, &desc, out);
    tti_plan_key of = {.backend = b->devices.backend,
                       .n_shards = b->n_shards,
                       .by_creation = desc.by_creation,
                       .bucket_bytes = desc.bucket_bytes,
                       .bucket_most = desc.bucket_most,
                       .bucket_growth = desc.bucket_growth};
    memcpy(&of.target, target, sizeof of.target);
    of.target.tensor = 0; /* one tensor shard represents the others */
    tutti_status st;
    if (tti_plan_cache_find(b->cache, &of, out, &st)) return st;
    desc.target = &of.target;
    desc.pass_cache = tti_plan_cache_passes(b->cache);
    desc.number = b->n_shards;
    st = make_plan(job, b, &desc, out);
    return tti_plan_cache_put(b->cache, &of, st == TUTTI_OK ? *out : NULL, st);
}

static tutti_status ask_whether_even(const tutti_job *job, const tti_blueprint *b) {
    tutti_graph *g;
    TTI_TRY(tti_blueprint_graph(job, b, true, &g));
    tti_target target = tti_blueprint_target(b);
    tutti_status st = tti_pass_simplify(&g, &target);
    if (st == TUTTI_OK) st = tti_uneven_check(b, g);
    tutti_graph_destroy(g);
    return st;
}

/* Checks that all layers can be divided before dividing them.  A plan cache stores the answer as a
 * plan without a backend. */
static tutti_status check_uneven(const tutti_job *job, const tti_blueprint *b) {
    if (b->mesh.tensor == 1 || b->gives_logits) return TUTTI_OK;
    tti_plan_key of = {.n_shards = b->n_shards};
    of.target.n_tensor = b->mesh.tensor;
    tti_plan *none;
    tutti_status st;
    if (b->cache && tti_plan_cache_find(b->cache, &of, &none, &st)) return st;
    st = ask_whether_even(job, b);
    return b->cache ? tti_plan_cache_put(b->cache, &of, NULL, st) : st;
}

/* Creates the plans of a model group. only: the position whose plan is needed; -1: all
 * positions. */
static tutti_status make_model_plans(const tutti_job *job, tti_blueprint *b, int only) {
    int n = tti_mesh_n_model(&b->mesh);
    if (n == 1 || b->gives_logits) return TUTTI_OK;
    b->plans = calloc((size_t)n, sizeof(tti_plan *));
    if (!b->plans) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    b->n_model_ranks = n;
    for (int i = 0; i < n; i++) {
        if (only >= 0 && i != only) continue;
        tti_target target = tti_blueprint_target_at(b, i);
        tti_plan *plan;
        TTI_TRY(get_plan(job, b, &target, &plan));
        if (b->mesh.tensor == 1) tti_plan_hash_as(plan, b->plan);
        b->plans[i] = plan;
    }
    return TUTTI_OK;
}

/* In shards of one row the batch dimension cannot be distinguished from other dimensions of size 1,
 * so the pass split may refuse a graph that it accepts for longer shards.  Therefore the same model
 * is checked with two rows.  A model that cannot have two rows is checked with one. */
static tutti_status prove_one_row(const tutti_job *job, tti_blueprint *b) {
    tti_shard_graph_desc desc = graph_desc(job, b, tutti_dataset_get_info(b->train));
    tti_target target = tti_blueprint_target(b);
    desc.rows = 2;
    for (int training = 0; training < 2; training++) {
        tutti_graph *g;
        if (build_graph(&desc, training, &g) != TUTTI_OK) return TUTTI_OK;
        tutti_status st = tti_pipeline_run(&g, &target, "split");
        tutti_graph_destroy(g);
        TTI_TRY(st);
    }
    b->one_row_is_proven = true;
    return TUTTI_OK;
}

static tutti_status make_plans(const tutti_job *job, tti_blueprint *b, int rank) {
    if (b->rows_per_shard == 1 && b->n_shards > 1) TTI_TRY(prove_one_row(job, b));
    tti_target target = tti_blueprint_target(b);
    tti_plan *whole;
    TTI_TRY(get_plan(job, b, &target, &whole));
    b->plan = whole;
    TTI_TRY(check_groups(b));
    TTI_TRY(check_uneven(job, b));
    bool may_move =
        b->config.parallel.min_workers > 0; /* in the next epoch a worker may get any part */
    return make_model_plans(job, b, rank < 0 || may_move ? -1 : rank % tti_mesh_n_model(&b->mesh));
}

const tti_job_config *tti_blueprint_config(const tti_blueprint *b) { return &b->config; }
const tti_backend *tti_blueprint_backend(const tti_blueprint *b) { return b->devices.backend; }
const tti_devices *tti_blueprint_devices(const tti_blueprint *b) { return &b->devices; }

const tti_plan *tti_blueprint_plan(const tti_blueprint *b, int model_rank) {
    if (b->n_model_ranks == 0) return b->plan;
    TTI_ASSERT(model_rank < b->n_model_ranks && b->plans[model_rank]);
    return b->plans[model_rank];
}

/* The options of a blueprint, besides its job. */
typedef struct requested {
    const tti_blueprint *like;  /* lends its data sets; NULL: they are opened */
    const tti_devices *devices; /* NULL: those that the job finds */
    bool gives_logits, one_row;
    bool gives_outputs, has_host_loss; /* as in tti_blueprint */
    const tti_data_spec *spec;   /* specification of a trained model, so that no training data is
                                    read; NULL: it is read */
    bool reads_test;             /* with spec: the test split is opened */
    bool is_other_data;          /* as in tti_blueprint_use */
    int rank, local_rank;        /* the only worker that uses the blueprint; -1: all workers */
    const tti_bucket_link *link; /* NULL: the link between workers on this machine */
    tti_plan_cache *cache;       /* owns all plans; NULL: the blueprint owns them */
} requested;

/* Makes the blueprint of workers on the host in a run that also has devices. */
static const tti_devices host_in_mixed_run = {.backend = &tti_backend_cpu, .mixed = true};

static tutti_status find_devices(tti_blueprint *b, const requested *w) {
    if (w->devices) {
        b->devices = b->places = *w->devices;
        if (w->devices->mixed) b->places = w->like->places;
        return TUTTI_OK;
    }
    TTI_TRY(tti_devices_find(&b->config, &b->devices));
    b->places = b->devices;
    bool is_own = b->devices.mixed && w->local_rank >= 0;
    if (is_own && tti_devices_place(&b->devices, w->local_rank) == TTI_ON_HOST)
        b->devices = host_in_mixed_run;
    return TUTTI_OK;
}

static tutti_status fill(const tutti_job *job, const requested *w, tti_blueprint *b) {
    TTI_TRY(find_devices(b, w));
    if (!b->borrows_import) TTI_TRY(tti_model_file_open(job, &b->import));
    tti_model_file_fields(b->import, &b->config);
    if (!w->like && w->spec) TTI_TRY(open_for_use(b, w->spec, w->reads_test, w->is_other_data));
    if (!w->like && !w->spec) {
        TTI_TRY(open_split(&b->config, TUTTI_TRAIN, NULL, &b->train));
        TTI_TRY(open_split(&b->config, TUTTI_TEST, tti_dataset_spec(b->train), &b->test));
    }
    TTI_TRY(count_steps(b));
    if (w->one_row) b->rows_per_shard = 1;
    if (!b->gives_logits && !b->has_host_loss) TTI_TRY(check_target(b));
    TTI_TRY(check_mixup(b));
    if (w->link)
        b->link = *w->link;
    else
        tti_bucket_link_of(&b->config, &b->devices, b->n_workers, 1, &b->link);
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    int64_t n_tokens = TTI_MAX(info->n_tokens, tutti_dataset_get_info(b->test)->n_tokens);
    b->model_params = tti_model_params_of(&b->config, info);
    TTI_TRY(tti_model_check_vocabulary(job, &b->model_params, info->is_value, n_tokens));
    TTI_TRY(make_plans(job, b, w->rank));
    /* A loss without correct predictions returns its count in their place. */
    const tutti_graph *g = b->plan->eval.graph;
    b->has_accuracy =
        !info->is_value && tti_graph_output(g, "correct") != tti_graph_output(g, "count");
    b->compares_samples = tti_shard_graph_compares(b->plan->eval.graph);
    tti_str kinds = {0};
    tti_devices_kinds(&b->places, b->n_workers, &kinds);
    snprintf(b->kinds, sizeof b->kinds, "%s", tti_str_text(&kinds));
    tti_str_free(&kinds);
    return TUTTI_OK;
}

static tutti_status create(const tutti_job *job, const requested *w, const tti_blueprint **out) {
    *out = NULL;
    tti_blueprint *b = calloc(1, sizeof *b);
    if (!b) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    b->config = *tti_job_config_of(job);
    tutti_job_model_name(job, b->model_name, sizeof b->model_name);
    tti_model_identity(job, b->model_identity, sizeof b->model_identity);
    b->gives_logits = w->gives_logits;
    b->gives_outputs = w->gives_outputs;
    b->has_host_loss = w->has_host_loss;
    b->borrows_data = w->like != NULL;
    b->cache = w->cache;
    if (w->like) b->train = w->like->train, b->test = w->like->test;
    if (w->like) b->import = w->like->import, b->borrows_import = true;
    tutti_status st = fill(job, w, b);
    bool is_for_all = w->local_rank < 0 && !w->devices;
    if (st == TUTTI_OK && b->devices.mixed && is_for_all)
        st = create(job,
                    &(requested){.like = b,
                                 .devices = &host_in_mixed_run,
                                 .rank = -1,
                                 .local_rank = -1,
                                 .cache = w->cache},
                    &b->on_host);
    if (st != TUTTI_OK) {
        tti_blueprint_destroy(b);
        return st;
    }
    *out = b;
    return TUTTI_OK;
}

tutti_status tti_blueprint_create(const tutti_job *job, const tti_blueprint **out) {
    return create(job, &(requested){.rank = -1, .local_rank = -1}, out);
}

tutti_status tti_blueprint_create_for_rank(const tutti_job *job, int rank, int local_rank,
                                           const tti_bucket_link *link, const tti_blueprint **out) {
    return create(job, &(requested){.rank = rank, .local_rank = local_rank, .link = link}, out);
}

tutti_status tti_blueprint_create_like(const tutti_job *job, const tti_blueprint *like,
                                       const tti_backend *backend, tti_plan_cache *cache,
                                       const tti_blueprint **out) {
    const tti_devices devices = {.backend = backend};
    return create(job,
                  &(requested){.like = like,
                               .devices = backend ? &devices : NULL,
                               .rank = -1,
                               .local_rank = -1,
                               .cache = cache},
                  out);
}

tutti_status tti_blueprint_create_linked(const tutti_job *job, const tti_backend *backend,
                                         const tti_bucket_link *link, const tti_blueprint **out) {
    const tti_devices devices = {.backend = backend};
    return create(
        job,
        &(requested){
            .devices = backend ? &devices : NULL, .rank = -1, .local_rank = -1, .link = link},
        out);
}

tutti_status tti_blueprint_create_for_use(const tutti_job *job, const tti_blueprint_use *use,
                                          const tti_blueprint **out) {
    /* Inference runs on the host. */
    static const tti_devices host = {.backend = &tti_backend_cpu};
    return create(job,
                  &(requested){.like = use->like,
                               .devices = &host,
                               .gives_logits = true,
                               .one_row = use->one_row,
                               .spec = use->spec,
                               .reads_test = use->reads_test,
                               .is_other_data = use->is_other_data,
                               .rank = -1,
                               .local_rank = -1},
                  out);
}

tutti_status tti_blueprint_create_for_session(const tutti_job *job,
                                              const tti_blueprint_session *session,
                                              const tti_blueprint **out) {
    return create(job,
                  &(requested){.spec = session->spec,
                               .gives_outputs = true,
                               .has_host_loss = session->has_host_loss,
                               .rank = session->rank,
                               .local_rank = session->local_rank,
                               .link = session->link},
                  out);
}

void tti_blueprint_describe(const tti_blueprint *b, tti_str *out) {
    b->places.backend->describe(out);
    if (b->kinds[0]) tti_str_printf(out, ", on %s", b->kinds);
    if (!b->places.mixed) return;
    tti_str_add(out, "; ");
    tti_backend_cpu.describe(out);
}

const tti_blueprint *tti_blueprint_of(const tti_blueprint *b, int local_rank) {
    bool on_host = b->on_host && tti_devices_place(&b->devices, local_rank) == TTI_ON_HOST;
    return on_host ? b->on_host : b;
}

void tti_blueprint_destroy(const tti_blueprint *made) {
    tti_blueprint *b = (tti_blueprint *)(uintptr_t)made; /* the caller has the only pointer left */
    if (!b) return;
    tti_blueprint_destroy(b->on_host);
    if (!b->cache) tti_plan_destroy(b->plan);
    for (int i = 0; i < b->n_model_ranks && !b->cache; i++) tti_plan_destroy(b->plans[i]);
    free(b->plans);
    tti_shard_map_free(&b->shard_map);
    if (!b->borrows_data && b->test != b->train) tutti_dataset_destroy(b->test);
    if (!b->borrows_data) tutti_dataset_destroy(b->train);
    if (!b->borrows_import) tti_import_close(b->import);
    free(b);
}

/* job_conflicts.c - rules that concern more than one key of a job.
 *
 * A rule names the keys that it reads.  It is skipped if one of them was refused already, so that
 * one mistake gives one message.  A message refers to the first of the rule's keys that the user
 * set, and suggests a solution. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/image/augment.h"
#include "train/job/devices.h"
#include "train/job/job.h"
#include "train/job/load_weights.h"
#include "train/job/numerics.h"
#include "train/job/optimizer.h"
#include "train/job/param_groups.h"
#include "tutti/models.h"

enum { MAX_KEYS = 9, WHY = 400 };

/* Writes the conflict to why, or leaves why empty. */
typedef struct rule {
    const char *keys[MAX_KEYS];
    void (*find)(const tti_job_config *c, char why[WHY]);
} rule;

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static int64_t power_of_two_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

static void find_odd_shards(const tti_job_config *c, char why[WHY]) {
    int64_t shards = c->parallel.shards, above = power_of_two_from(shards);
    if (shards < 1 || shards == above) return;
    snprintf(why, WHY,
             "must be a power of two, got %" PRId64 "; the nearest are %" PRId64 " and %" PRId64,
             shards, above / 2, above);
}

/* Number of workers that hold one replica of the model together. */
static int64_t workers_of_model(const tti_job_config *c) {
    return c->parallel.tensor * c->parallel.pipeline;
}

static bool is_divided(const tti_job_config *c) { return workers_of_model(c) > 1; }

/* Number of workers that divide the batch; 0: unknown, or not an integer. */
static int64_t workers_of_batch(const tti_job_config *c) {
    int64_t workers = c->parallel.workers, each = workers_of_model(c);
    tti_load_weights weights;
    if (workers <= 0 && c->parallel.data > 0) return c->parallel.data;
    if (workers <= 0)
        return tti_load_weights_parse(c->parallel.load_weights, &weights) ? 0 : weights.n;
    return workers % each == 0 ? workers / each : 0;
}

static void find_odd_mesh(const tti_job_config *c, char why[WHY]) {
    int64_t workers = c->parallel.workers, each = workers_of_model(c);
    int64_t below = workers / each * each;
    if (each > TTI_MAX_WORKERS)
        snprintf(why, WHY,
                 "%" PRId64 " tensor shards of %" PRId64 " stages need %" PRId64
                 " workers; at most %d are possible",
                 c->parallel.tensor, c->parallel.pipeline, each, TTI_MAX_WORKERS);
    else if (workers > 0 && below != workers)
        snprintf(why, WHY,
                 "workers are data x parallel.pipeline=%" PRId64 " x parallel.tensor=%" PRId64
                 ", and %" PRId64 " is not a multiple of %" PRId64
                 "; give parallel.workers=%" PRId64,
                 c->parallel.pipeline, c->parallel.tensor, workers, each, below > 0 ? below : each);
}

static void find_other_copies(const tti_job_config *c, char why[WHY]) {
    int64_t data = c->parallel.data, workers = c->parallel.workers, each = workers_of_model(c);
    if (data < 1 || each > TTI_MAX_WORKERS) return;
    if (data * each > TTI_MAX_WORKERS)
        snprintf(why, WHY,
                 "%" PRId64 " copies of %" PRId64 " workers each are %" PRId64
                 "; at most %d are possible",
                 data, each, data * each, TTI_MAX_WORKERS);
    else if (workers > 0 && workers != data * each)
        snprintf(why, WHY,
                 "workers are data x pipeline x tensor = %" PRId64
                 ", but parallel.workers is %" PRId64
                 "; give parallel.data=auto, or parallel.workers=auto",
                 data * each, workers);
}

/* With several chunks, shards pass the stages in groups as large as the number of stages.  An
 * asynchronous worker computes all shards of a batch. */
static void find_odd_chunks(const tti_job_config *c, char why[WHY]) {
    int64_t workers = tti_job_is_async(c) ? 1 : workers_of_batch(c), stages = c->parallel.pipeline;
    int64_t shards = c->parallel.shards, n = workers > 0 ? shards / workers : 0;
    if (c->parallel.pipeline_chunks == 1) return;
    if (workers > 0 && n % stages == 0 && shards % workers > 0)
        n++; /* some workers have one more */
    if (stages == 1)
        snprintf(why, WHY,
                 "pipeline chunks need a pipeline; give parallel.pipeline too, or leave out "
                 "parallel.pipeline_chunks");
    else if (workers > 0 && shards > 0 && n % stages != 0)
        snprintf(why, WHY,
                 "with several chunks, shards pass the %" PRId64 " stages in groups of %" PRId64
                 ", but a worker has %" PRId64
                 "; give parallel.pipeline_chunks=1, or another "
                 "number of shards or stages",
                 stages, stages, n);
}

static void find_idle_workers(const tti_job_config *c, char why[WHY]) {
    int64_t workers = workers_of_batch(c), shards = c->parallel.shards;
    if (workers <= shards || shards != power_of_two_from(shards)) return;
    snprintf(why, WHY,
             "%" PRId64 " workers%s for %" PRId64
             " shards: each worker needs at least one; give "
             "parallel.shards=%" PRId64 " (changes the result) or at most %" PRId64 " workers",
             workers, is_divided(c) ? " that divide the batch" : "", shards,
             power_of_two_from(workers), shards * workers_of_model(c));
}

static void find_odd_load_weights(const tti_job_config *c, char why[WHY]) {
    tti_load_weights weights;
    const char *wrong = tti_load_weights_parse(c->parallel.load_weights, &weights);
    int64_t workers = workers_of_batch(c);
    if (wrong)
        snprintf(why, WHY, "%s", wrong);
    else if (weights.kind == TTI_LOAD_WEIGHTS_GIVEN && workers > 0 && weights.n != workers)
        snprintf(why, WHY,
                 "%d weights for %" PRId64
                 " workers that divide the batch; give one weight for each, or "
                 "parallel.load_weights=measured",
                 weights.n, workers);
    else if (weights.n * workers_of_model(c) > TTI_MAX_WORKERS)
        snprintf(why, WHY,
                 "%d weights for replicas of %" PRId64 " workers each are %" PRId64
                 " workers; at most %d are possible",
                 weights.n, workers_of_model(c), weights.n * workers_of_model(c), TTI_MAX_WORKERS);
}

/* Why workers that do not wait for each other have equal numbers of shards; NULL: they wait. */
static const char *equal_by_server(const tti_job_config *c) {
    if (tti_job_is_async(c))
        return "an asynchronous worker computes all shards of a batch, and a fast one already "
               "computes more batches; give parallel.load_weights=equal";
    if (tti_job_has_server(c) && c->parallel.backup_workers > 0)
        return "with backup workers a step waits for a number of workers, so they need equal parts "
               "of the batch; give parallel.load_weights=equal";
    return NULL;
}

/* Refuses workers that divide the batch in another way, and weights that cannot be applied. */
static void find_lost_shares(const tti_job_config *c, char why[WHY]) {
    tti_load_weights_kind kind = tti_load_weights_kind_of(c);
    if (kind == TTI_LOAD_WEIGHTS_AUTO || kind == TTI_LOAD_WEIGHTS_EQUAL) return;
    const char *by_server = equal_by_server(c);
    if (by_server)
        snprintf(why, WHY, "%s", by_server);
    else if (is(c->parallel.sync, "local"))
        snprintf(why, WHY,
                 "local SGD averages the parameters of all workers equally, so each needs as many "
                 "samples; give parallel.load_weights=equal, or parallel.sync=all-reduce");
    else if (c->parallel.pipeline_chunks > 1)
        snprintf(why, WHY,
                 "with several chunks each worker needs a multiple of parallel.pipeline shards; "
                 "give parallel.load_weights=equal, or parallel.pipeline_chunks=1");
    else if (is_divided(c) && kind == TTI_LOAD_WEIGHTS_MEASURED)
        snprintf(why, WHY,
                 "a worker with a part of the model cannot be measured alone; give weights of the "
                 "replicas such as 3,1, or parallel.load_weights=equal");
}

static void find_empty_shards(const tti_job_config *c, char why[WHY]) {
    int64_t batch = c->train.batch, shards = c->parallel.shards;
    if (shards < 1 || batch >= shards) return;
    snprintf(why, WHY,
             "a batch of %" PRId64 " is smaller than the %" PRId64
             " shards it is divided into; give at least %" PRId64 " samples or fewer shards",
             batch, shards, shards);
}

static void find_small_batch(const tti_job_config *c, char why[WHY]) {
    int64_t batch = c->train.batch, workers = workers_of_batch(c);
    if (c->parallel.shards > 0 || workers < 1 || batch >= power_of_two_from(workers)) return;
    snprintf(why, WHY,
             "a batch of %" PRId64 " is too small for %" PRId64
             " workers, which divide it into %" PRId64 " shards; give at least %" PRId64
             " samples or fewer workers",
             batch, workers, power_of_two_from(workers), power_of_two_from(workers));
}

static void find_ring_in_exact(const tti_job_config *c, char why[WHY]) {
    if (!is(c->parallel.mode, "exact") || !is(c->parallel.algorithm, "ring")) return;
    snprintf(why, WHY,
             "ring adds in an order that depends on the number of workers, which exact mode does "
             "not allow; give direct, tree or auto, or parallel.mode=fast");
}

static void find_missing_dir(const tti_job_config *c, char why[WHY]) {
    bool drawn = is(c->data.format, "digits") || strncmp(c->data.format, "random_", 7) == 0;
    if (drawn || *c->data.dir) return;
    snprintf(why, WHY, "%s needs data.dir, the folder of the files, such as data.dir=data/mnist",
             c->data.format);
}

bool tti_job_has_images(const tti_job_config *c) {
    char word[TTI_TEXT_MAX + 2];
    snprintf(word, sizeof word, "|%s|", c->data.format);
    return strstr("|images|masks|tar|packed|cifar10|cifar100|", word) != NULL;
}

static void find_bad_augment(const tti_job_config *c, char why[WHY]) {
    bool known = tti_job_has_images(c);
    tti_augment augment;
    if (tti_augment_parse(c->data.augment, &(tti_augment){0}, &augment) != TUTTI_OK) {
        const char *colon = strchr(tutti_last_error(), ' '); /* after the key */
        snprintf(why, WHY, "%s", colon ? colon + 1 : tutti_last_error());
    } else if (!known && *c->data.augment && !is(c->data.augment, "auto") &&
               !is(c->data.augment, "none")) {
        snprintf(why, WHY,
                 "is for images (data.format=images, masks, tar, ...), but data.format is %s",
                 c->data.format);
    }
}

static bool is_language(const tti_job_config *c) {
    return is(c->data.format, "text") || is(c->data.format, "tokens");
}

static void find_mixed_tokens(const tti_job_config *c, char why[WHY]) {
    if (c->data.mixup > 0 && is_language(c))
        snprintf(why, WHY, "mixes samples of floats, such as images, but data.format=%s has tokens",
                 c->data.format);
}

static void find_lost_mask_token(const tti_job_config *c, char why[WHY]) {
    if (c->data.mask_prob == 0 && c->data.mask_token >= 0)
        snprintf(why, WHY, "is for masked tokens; give data.mask_prob=0.15 too");
    else if (c->data.mask_prob > 0 && c->data.mask_token == TTI_NO_MASK_TOKEN)
        snprintf(why, WHY, "data.mask_prob=%g needs a token that replaces masked ones; give added",
                 c->data.mask_prob);
}

/* Masking needs text, and a model that attends to both sides of a token and predicts it. */
static void find_lost_masks(const tti_job_config *c, char why[WHY]) {
    bool own = *c->model.plugin || *c->model.file;
    if (c->data.mask_prob > 0 && !is_language(c))
        snprintf(why, WHY, "masks tokens of the formats text and tokens, but data.format is %s",
                 c->data.format);
    else if (c->data.mask_prob > 0 && !own && !is(c->model.name, "bert"))
        snprintf(why, WHY,
                 "bert predicts masked tokens, but model.name is %s, which predicts the next "
                 "token; leave out data.mask_prob",
                 c->model.name);
}

static void find_bad_masked_model(const tti_job_config *c, char why[WHY]) {
    const tutti_model *model = tti_job_model(c);
    if (c->data.mask_prob == 0 || !model || !is(model->name, "bert")) return;
    if (is(c->model.head, "classify"))
        snprintf(why, WHY, "masked tokens are predicted by model.head=tokens");
    else if (c->model.padding >= 0)
        snprintf(why, WHY, "samples of masked text have no padding; leave it out");
}

static void find_two_models(const tti_job_config *c, char why[WHY]) {
    if (*c->model.file && *c->model.plugin)
        snprintf(why, WHY, "the model comes from model.file or from model.plugin, not from both");
}

/* For a model with a choice of sizes, a missing size is no conflict. */
static void find_missing_size(const tti_job_config *c, char why[WHY]) {
    const tutti_model *model = tti_job_model(c);
    bool is_said = c->model.layers > 0 && c->model.width > 0 &&
                   (c->model.heads > 0 || (model && !model->activation));
    if (!model || !model->size || is_said || !is(c->model.size, "none")) return;
    snprintf(why, WHY,
             "none needs model.layers, model.heads and model.width, but not all of them are given; "
             "give them, or model.size=%s",
             model->size);
}

static void find_missing_activation(const tti_job_config *c, char why[WHY]) {
    const tutti_model *model = tti_job_model(c);
    if (!model || !model->activation || !is(c->model.activation, "none")) return;
    snprintf(why, WHY, "%s needs an activation; give model.activation=%s", model->name,
             model->activation);
}

static void find_missing_tokenizer(const tti_job_config *c, char why[WHY]) {
    if (is(c->data.format, "text") && is(c->data.tokenizer, "none"))
        snprintf(why, WHY, "text needs a tokenizer: bytes, chars or gpt2");
    if (!is(c->data.format, "text") || !is(c->data.tokenizer, "gpt2")) return;
    if (*c->data.tokenizer_dir) return;
    snprintf(why, WHY,
             "gpt2 needs data.tokenizer_dir, a tokenizer.json or a folder with vocab.json and "
             "merges.txt");
}

static void find_lost_nesterov(const tti_job_config *c, char why[WHY]) {
    if (!c->optimizer.nesterov) return;
    if (!is(c->optimizer.name, "sgd"))
        snprintf(why, WHY, "nesterov is for sgd, but optimizer.name is %s", c->optimizer.name);
    else if (c->optimizer.momentum == 0)
        snprintf(why, WHY, "nesterov needs a momentum greater than 0, such as 0.9");
}

static void find_lost_smoothing(const tti_job_config *c, char why[WHY]) {
    if (c->train.label_smoothing <= 0 || is(c->train.loss, "cross-entropy")) return;
    snprintf(why, WHY, "is for cross-entropy, but train.loss is %s", c->train.loss);
}

static void find_lost_delta(const tti_job_config *c, char why[WHY]) {
    if (c->train.huber_delta == 1 || is(c->train.loss, "huber")) return;
    snprintf(why, WHY, "is for huber, but train.loss is %s", c->train.loss);
}

static void find_lost_beta(const tti_job_config *c, char why[WHY]) {
    if (c->train.smooth_l1_beta == 1 || is(c->train.loss, "smooth_l1")) return;
    snprintf(why, WHY, "is for smooth_l1, but train.loss is %s", c->train.loss);
}

/* Refuses keys that only tables use. */
static void find_lost_table_key(const tti_job_config *c, bool is_set, char why[WHY]) {
    if (!is_set || is(c->data.format, "csv")) return;
    snprintf(why, WHY, "is for tables (data.format=csv), but data.format is %s", c->data.format);
}

static void find_lost_label(const tti_job_config *c, char why[WHY]) {
    bool has_fields = is(c->data.format, "npy") && *c->data.fields &&
                      (!is(c->data.fields, "auto") || *c->model.file);
    find_lost_table_key(c, *c->data.label && !has_fields, why);
}

static void find_lost_columns(const tti_job_config *c, char why[WHY]) {
    find_lost_table_key(c, *c->data.columns, why);
}

static void find_lost_missing(const tti_job_config *c, char why[WHY]) {
    find_lost_table_key(c, is(c->data.missing, "refuse"), why);
}

static void find_lost_target(const tti_job_config *c, char why[WHY]) {
    static const char *const of_values[] = {"mae", "huber", "smooth_l1"};
    bool values = false;
    for (size_t i = 0; i < TTI_COUNT(of_values); i++) values |= is(c->train.loss, of_values[i]);
    if (is(c->data.target, "value") && !values && !is(c->train.loss, "mse"))
        snprintf(why, WHY, "values need train.loss=mse, mae, huber or smooth_l1");
    else if (is(c->data.target, "class") && values)
        snprintf(why, WHY, "classes need train.loss=cross-entropy, focal or mse");
}

static void find_rising_rate(const tti_job_config *c, char why[WHY]) {
    static const char *const falling[] = {"cosine",  "cyclic",     "linear",
                                          "plateau", "polynomial", "wsd"};
    double peak = tti_peak_lr(c);
    for (size_t i = 0; i < TTI_COUNT(falling); i++)
        if (is(c->schedule.name, falling[i]) && c->schedule.min_lr > peak)
            snprintf(why, WHY, "the final learning rate, %g, is above the peak, %s %g",
                     c->schedule.min_lr,
                     is(c->optimizer.scale_lr, "none") ? "optimizer.lr" : "the scaled", peak);
}

static void find_bad_milestones(const tti_job_config *c, char why[WHY]) {
    const tti_int_list *list = &c->schedule.milestones;
    if (!is(c->schedule.name, "multi_step")) return;
    if (list->n == 0)
        snprintf(why, WHY, "multi_step needs schedule.milestones, such as [30, 60, 90]");
    for (int i = 1; i < list->n; i++)
        if (list->v[i] <= list->v[i - 1])
            snprintf(why, WHY, "must rise, and %" PRId64 " follows %" PRId64, list->v[i],
                     list->v[i - 1]);
}

static void find_blind_plateau(const tti_job_config *c, char why[WHY]) {
    if (!is(c->schedule.name, "plateau") || c->train.eval_every > 0) return;
    snprintf(why, WHY,
             "plateau reduces the rate after evaluations; give train.eval_every=1 or more");
}

static void find_warmup_from_nothing(const tti_job_config *c, char why[WHY]) {
    bool grows = is(c->schedule.warmup_shape, "linear") || is(c->schedule.warmup_shape, "cosine");
    if (grows || c->schedule.warmup_start > 0) return;
    snprintf(why, WHY, "a warm-up that is %s cannot start at 0; give schedule.warmup_start=0.01",
             c->schedule.warmup_shape);
}

static void find_bad_groups(const tti_job_config *c, char why[WHY]) {
    char pattern[TTI_TEXT_MAX], clipped[TTI_CLIP];
    tti_param_group group;
    for (int i = 0; i < c->optimizer.groups.n; i++) {
        const char *text = c->optimizer.groups.v[i];
        const char *wrong = tti_param_group_parse(text, pattern, &group);
        if (!wrong) continue;
        snprintf(why, WHY, "\"%s\" %s", tti_clip(clipped, text), wrong);
        return;
    }
}

static void find_lost_scale(const tti_job_config *c, char why[WHY]) {
    bool wide = is(c->train.precision, "f32") || is(c->train.precision, "tf32");
    if (is(c->train.precision, "f16") && c->train.loss_scale == TTI_NO_LOSS_SCALE)
        snprintf(why, WHY, "small gradients underflow in f16 without a scale; give dynamic");
    if (c->train.loss_scale < 0 || !wide) return;
    snprintf(why, WHY, "is for 16-bit gradients, but train.precision is %s", c->train.precision);
}

static void find_bad_recompute(const tti_job_config *c, char why[WHY]) {
    char clipped[TTI_CLIP];
    tti_target target;
    if (tti_numerics_recompute(c->train.recompute, &target)) return;
    snprintf(why, WHY,
             "expected none, light, block or a number of bytes such as 512MiB, got \"%s\"",
             tti_clip(clipped, c->train.recompute));
}

static bool has_residuals(const tti_job_config *c) {
    return is(c->parallel.compress, "topk") || is(c->parallel.compress, "powersgd");
}

static void find_lost_compression(const tti_job_config *c, char why[WHY]) {
    if (is(c->parallel.compress, "none")) return;
    if (is(c->parallel.mode, "exact"))
        snprintf(why, WHY,
                 "%s changes each worker's sum, so the result depends on the number of workers; "
                 "give parallel.mode=fast",
                 c->parallel.compress);
    else if (c->parallel.zero > 1 && has_residuals(c))
        snprintf(why, WHY,
                 "%s keeps a residual of the whole gradient on every worker, but with "
                 "parallel.zero=%d a worker has only its partition; give bf16, or zero=1",
                 c->parallel.compress, (int)c->parallel.zero);
}

const char *tti_job_ends_on_host(const tti_job_config *c) {
    if (tti_job_has_server(c)) return "parallel.sync=parameter-server";
    if (is(c->parallel.sync, "local")) return "parallel.sync=local";
    return has_residuals(c) ? "parallel.compress" : NULL;
}

bool tti_job_is_host_staged(const tti_job_config *c, int n_copies) {
    bool several = n_copies > 1, is_local = is(c->parallel.sync, "local");
    if (!is_divided(c)) return false;
    if (is_local || (several && (has_residuals(c) || c->parallel.zero > 1))) return true;
    return c->parallel.sync_batch_norm && (several || c->parallel.pipeline > 1);
}

static void find_lost_start(const tti_job_config *c, char why[WHY]) {
    if (has_residuals(c) || c->parallel.compress_after == 0) return;
    snprintf(why, WHY, "is for parallel.compress=topk and powersgd; leave it out");
}

static void find_lost_residuals(const tti_job_config *c, char why[WHY]) {
    if (!has_residuals(c)) return;
    if (is(c->train.on_nan, "skip"))
        snprintf(why, WHY,
                 "a skipped step would lose the residuals of %s; give train.on_nan=stop, or "
                 "parallel.compress=bf16",
                 c->parallel.compress);
    else if (is(c->train.precision, "f16"))
        snprintf(why, WHY,
                 "f16 skips steps to find its loss scale, and they would lose the residuals of %s; "
                 "give bf16 or f32",
                 c->parallel.compress);
}

static void find_lost_restarts(const tti_job_config *c, char why[WHY]) {
    if (c->run.restarts == 0 || is(c->parallel.place, "processes")) return;
    snprintf(why, WHY,
             "a failed thread ends its process; only processes can be restarted: give "
             "parallel.place=processes");
}

/* Whether workers do not wait for all others in each step. */
static bool is_loose(const tti_job_config *c) {
    return tti_job_is_async(c) || (tti_job_has_server(c) && c->parallel.backup_workers > 0);
}

static void say_server_is_missing(char why[WHY]) {
    snprintf(why, WHY, "is for a parameter server; give parallel.sync=parameter-server too");
}

static void find_lost_backup(const tti_job_config *c, char why[WHY]) {
    int64_t n = c->parallel.backup_workers, workers = workers_of_batch(c);
    if (n == 0) return;
    if (!tti_job_has_server(c))
        say_server_is_missing(why);
    else if (c->parallel.staleness != 0)
        snprintf(why, WHY,
                 "asynchronous workers never wait for each other; give parallel.staleness=0, or "
                 "parallel.backup_workers=0");
    else if (!is(c->parallel.mode, "fast"))
        snprintf(why, WHY,
                 "the result depends on which gradients arrive in time, which exact mode does not "
                 "allow; give parallel.mode=fast");
    else if (workers >= 1 && n >= workers)
        snprintf(why, WHY,
                 "%" PRId64 " of %" PRId64
                 " workers%s leave none whose gradients would count; give at most %" PRId64,
                 n, workers, is_divided(c) ? " that divide the batch" : "", workers - 1);
    else if (c->parallel.sync_batch_norm)
        snprintf(why, WHY,
                 "parallel.sync_batch_norm joins all workers in every step; leave one of the two "
                 "out");
}

static void find_lost_staleness(const tti_job_config *c, char why[WHY]) {
    if (!tti_job_has_server(c) && c->parallel.staleness != 0) say_server_is_missing(why);
}

static void find_lost_servers(const tti_job_config *c, char why[WHY]) {
    if (!tti_job_has_server(c) && c->parallel.servers > 1) say_server_is_missing(why);
}

static void find_async_in_exact(const tti_job_config *c, char why[WHY]) {
    if (!tti_job_is_async(c) || is(c->parallel.mode, "fast")) return;
    snprintf(why, WHY,
             "asynchronous updates depend on the order in which workers finish, which exact mode "
             "does not allow; give parallel.mode=fast, or parallel.staleness=0");
}

/* The servers are the first worker processes; with a divided model, the first ones of each part. */
static void find_server_elsewhere(const tti_job_config *c, char why[WHY]) {
    int64_t copies = workers_of_batch(c);
    if (!tti_job_has_server(c) || copies < 1 || c->parallel.servers <= copies) return;
    if (is_divided(c))
        snprintf(why, WHY,
                 "the first parallel.servers workers of each part of the model are the servers, "
                 "but it has only %" PRId64 "; give at most that many",
                 copies);
    else if (is(c->parallel.place, "processes"))
        snprintf(why, WHY,
                 "the first parallel.servers worker processes are the servers, but there are only "
                 "%" PRId64 "; give at most that many",
                 copies);
}

/* With asynchronous workers the first replica stores the model. */
static void find_loose_parts(const tti_job_config *c, char why[WHY]) {
    if (!is_divided(c) || !is_loose(c) || c->parallel.servers == 1) return;
    snprintf(
        why, WHY,
        "asynchronous workers that divide a model already have a server for each of its %" PRId64
        " parts; give parallel.servers=1",
        workers_of_model(c));
}

static void find_server_with_parts(const tti_job_config *c, char why[WHY]) {
    if (!tti_job_has_server(c)) return;
    if (c->parallel.zero > 0)
        snprintf(why, WHY,
                 "the parameter server already keeps the only copy of the optimizer state; give "
                 "parallel.zero=0");
    else if (is_loose(c) && has_residuals(c))
        snprintf(why, WHY,
                 "%s keeps a residual of every gradient, which would be stale when it is sent and "
                 "lost at each checkpoint and evaluation; give bf16 or f16, or "
                 "parallel.staleness=0 without backup workers",
                 c->parallel.compress);
    else if (!is_loose(c) && !is_divided(c) && is(c->parallel.place, "threads") &&
             !is(c->parallel.compress, "none"))
        snprintf(why, WHY,
                 "worker threads share memory with a synchronous server, so nothing is sent; give "
                 "none, or parallel.place=processes");
}

static void find_backup_scale(const tti_job_config *c, char why[WHY]) {
    bool follows = is(c->train.precision, "f16") && c->train.loss_scale < 0;
    if (!tti_job_has_server(c) || c->parallel.backup_workers == 0 || !follows) return;
    snprintf(why, WHY,
             "with backup workers all gradients of a step need the same loss scale, but the "
             "dynamic scale of f16 differs between workers; give a number such as "
             "train.loss_scale=1024, or train.precision=bf16 or f32");
}

static bool is_local(const tti_job_config *c) { return is(c->parallel.sync, "local"); }

static void say_local_is_missing(char why[WHY]) {
    snprintf(why, WHY, "is for local SGD; give parallel.sync=local too");
}

static void find_lost_averaging(const tti_job_config *c, char why[WHY]) {
    if (!is_local(c) && !is(c->parallel.average, "parameters")) say_local_is_missing(why);
}

static void find_late_averaging(const tti_job_config *c, char why[WHY]) {
    if (!is_local(c) && c->parallel.average_after > 0) say_local_is_missing(why);
}

static void find_local_in_exact(const tti_job_config *c, char why[WHY]) {
    if (!is_local(c) || is(c->parallel.mode, "fast")) return;
    snprintf(why, WHY,
             "local updates depend on the number of workers, which exact mode does not allow; give "
             "parallel.mode=fast");
}

static void find_local_with_parts(const tti_job_config *c, char why[WHY]) {
    if (!is_local(c)) return;
    if (c->parallel.zero > 0)
        snprintf(why, WHY,
                 "each worker of local SGD has its own optimizer state; give parallel.zero=0");
    else if (!is(c->parallel.compress, "none"))
        snprintf(why, WHY, "local SGD sends parameters, not gradients; give none");
}

static void find_local_skips(const tti_job_config *c, char why[WHY]) {
    if (!is_local(c)) return;
    if (is(c->train.on_nan, "skip"))
        snprintf(why, WHY,
                 "all workers must skip a step together, which local SGD workers cannot; give "
                 "train.on_nan=stop");
    else if (is(c->train.precision, "f16"))
        snprintf(why, WHY,
                 "all workers must share the loss scale of f16, which local SGD workers cannot; "
                 "give bf16 or f32");
    else if (c->parallel.sync_batch_norm)
        snprintf(why, WHY,
                 "parallel.sync_batch_norm joins all workers in every step, but local SGD workers "
                 "do not synchronize; leave it out");
}

static void find_lost_replay(const tti_job_config *c, char why[WHY]) {
    if (!*c->parallel.replay || tti_job_is_async(c)) return;
    snprintf(why, WHY,
             "repeats the order of an asynchronous run; give parallel.sync=parameter-server and "
             "the parallel.staleness of that run, or leave it out");
}

/* ---- GPUs and the host in one run ---- */

static bool is_mixed(const tti_job_config *c) {
    return tti_devices_mixed_from(c->parallel.devices) > 0;
}

static void find_mixture_in_exact(const tti_job_config *c, char why[WHY]) {
    if (!is_mixed(c) || is(c->parallel.mode, "fast")) return;
    snprintf(why, WHY,
             "the kernels of GPUs and of the host do not give the same bits, which exact mode "
             "promises for every worker; give parallel.mode=fast, or GPUs of one kind only");
}

static void find_lonely_mixture(const tti_job_config *c, char why[WHY]) {
    int from = tti_devices_mixed_from(c->parallel.devices);
    if (from == 0 || c->parallel.workers <= 0 || c->parallel.workers >= from) return;
    snprintf(why, WHY,
             "the list has GPUs and the host, but the parallel.workers=%" PRId64
             " workers use only its beginning, which has one kind; give at least "
             "parallel.workers=%d, or one kind in parallel.devices",
             c->parallel.workers, from);
}

static void find_mixture_in_parts(const tti_job_config *c, char why[WHY]) {
    const char *what = NULL, *instead = NULL;
    if (!is_mixed(c)) return;
    if (!is(c->parallel.sync, "all-reduce"))
        what = "parallel.sync", instead = "parallel.sync=all-reduce";
    else if (c->parallel.zero > 0)
        what = "parallel.zero", instead = "parallel.zero=0";
    else if (is(c->parallel.compress, "topk") || is(c->parallel.compress, "powersgd"))
        what = "parallel.compress", instead = "parallel.compress=none, bf16 or f16";
    else if (is_divided(c))
        what = "a divided model", instead = "parallel.tensor=1 parallel.pipeline=1";
    if (!what) return;
    snprintf(why, WHY,
             "a run with workers on GPUs and on the host needs whole models and adds whole "
             "gradients in every step, which excludes %s; give %s, or workers of one kind",
             what, instead);
}

static void find_resident_mixture(const tti_job_config *c, char why[WHY]) {
    if (!is_mixed(c) || !is(c->data.resident, "yes")) return;
    snprintf(why, WHY,
             "resident samples need all workers on GPUs; with workers on the host batches are "
             "copied in every step; give data.resident=auto");
}

static const rule rules[] = {
    {{"parallel.shards"}, find_odd_shards},
    {{"parallel.tensor", "parallel.pipeline", "parallel.workers"}, find_odd_mesh},
    {{"parallel.data", "parallel.workers", "parallel.tensor", "parallel.pipeline"},
     find_other_copies},
    {{"parallel.pipeline_chunks", "parallel.pipeline", "parallel.workers", "parallel.shards",
      "parallel.data", "parallel.load_weights", "parallel.sync", "parallel.staleness"},
     find_odd_chunks},
    {{"parallel.workers", "parallel.shards", "parallel.tensor", "parallel.pipeline",
      "parallel.load_weights"},
     find_idle_workers},
    {{"parallel.load_weights", "parallel.workers", "parallel.data", "parallel.tensor",
      "parallel.pipeline"},
     find_odd_load_weights},
    {{"parallel.load_weights", "parallel.sync", "parallel.pipeline_chunks", "parallel.tensor",
      "parallel.pipeline", "parallel.staleness", "parallel.backup_workers"},
     find_lost_shares},
    {{"train.batch", "parallel.shards"}, find_empty_shards},
    {{"train.batch", "parallel.workers", "parallel.shards", "parallel.tensor", "parallel.pipeline",
      "parallel.load_weights"},
     find_small_batch},
    {{"parallel.algorithm", "parallel.mode"}, find_ring_in_exact},
    {{"run.restarts", "parallel.place"}, find_lost_restarts},
    {{"parallel.compress", "parallel.mode", "parallel.zero"}, find_lost_compression},
    {{"parallel.compress_after", "parallel.compress"}, find_lost_start},
    {{"parallel.compress", "train.on_nan", "train.precision"}, find_lost_residuals},
    {{"parallel.staleness", "parallel.sync"}, find_lost_staleness},
    {{"parallel.servers", "parallel.sync"}, find_lost_servers},
    {{"parallel.staleness", "parallel.mode", "parallel.sync"}, find_async_in_exact},
    {{"parallel.sync", "parallel.place", "parallel.workers", "parallel.servers", "parallel.tensor",
      "parallel.pipeline", "parallel.data"},
     find_server_elsewhere},
    {{"parallel.servers", "parallel.tensor", "parallel.pipeline", "parallel.sync",
      "parallel.staleness", "parallel.backup_workers"},
     find_loose_parts},
    {{"parallel.sync", "parallel.zero", "parallel.compress", "parallel.place", "parallel.staleness",
      "parallel.backup_workers", "parallel.tensor", "parallel.pipeline"},
     find_server_with_parts},
    {{"parallel.backup_workers", "parallel.sync", "train.precision", "train.loss_scale"},
     find_backup_scale},
    {{"parallel.backup_workers", "parallel.sync", "parallel.staleness", "parallel.mode",
      "parallel.workers", "parallel.tensor", "parallel.pipeline", "parallel.data",
      "parallel.sync_batch_norm"},
     find_lost_backup},
    {{"parallel.average", "parallel.sync"}, find_lost_averaging},
    {{"parallel.average_after", "parallel.sync"}, find_late_averaging},
    {{"parallel.sync", "parallel.mode"}, find_local_in_exact},
    {{"parallel.sync", "parallel.zero", "parallel.compress"}, find_local_with_parts},
    {{"parallel.sync", "train.on_nan", "train.precision", "parallel.sync_batch_norm"},
     find_local_skips},
    {{"parallel.replay", "parallel.sync", "parallel.staleness"}, find_lost_replay},
    {{"data.format", "data.dir"}, find_missing_dir},
    {{"data.augment", "data.format"}, find_bad_augment},
    {{"data.mixup", "data.format"}, find_mixed_tokens},
    {{"data.mask_token", "data.mask_prob"}, find_lost_mask_token},
    {{"data.mask_prob", "data.format", "model.name"}, find_lost_masks},
    {{"model.head", "model.padding", "data.mask_prob", "model.name"}, find_bad_masked_model},
    {{"data.tokenizer", "data.tokenizer_dir", "data.format"}, find_missing_tokenizer},
    {{"optimizer.nesterov", "optimizer.name", "optimizer.momentum"}, find_lost_nesterov},
    {{"train.label_smoothing", "train.loss"}, find_lost_smoothing},
    {{"train.huber_delta", "train.loss"}, find_lost_delta},
    {{"train.smooth_l1_beta", "train.loss"}, find_lost_beta},
    {{"data.target", "train.loss"}, find_lost_target},
    {{"data.label", "data.format", "data.fields"}, find_lost_label},
    {{"data.columns", "data.format"}, find_lost_columns},
    {{"data.missing", "data.format"}, find_lost_missing},
    {{"model.file", "model.plugin"}, find_two_models},
    {{"model.size", "model.name", "model.layers", "model.heads", "model.width"}, find_missing_size},
    {{"model.activation", "model.name"}, find_missing_activation},
    {{"schedule.min_lr", "schedule.name", "optimizer.lr", "optimizer.scale_lr"}, find_rising_rate},
    {{"schedule.milestones", "schedule.name"}, find_bad_milestones},
    {{"schedule.name", "train.eval_every"}, find_blind_plateau},
    {{"schedule.warmup_shape", "schedule.warmup_start"}, find_warmup_from_nothing},
    {{"optimizer.groups"}, find_bad_groups},
    {{"train.loss_scale", "train.precision"}, find_lost_scale},
    {{"train.recompute"}, find_bad_recompute},
    {{"parallel.devices", "parallel.mode"}, find_mixture_in_exact},
    {{"parallel.devices", "parallel.workers"}, find_lonely_mixture},
    {{"parallel.devices", "parallel.sync", "parallel.zero", "parallel.compress", "parallel.tensor",
      "parallel.pipeline"},
     find_mixture_in_parts},
    {{"parallel.devices", "data.resident"}, find_resident_mixture},
};

/* Looks up the keys only if the rule is broken: the planner checks a job for every layout. */
static void apply(const rule *r, tutti_job *job) {
    char why[WHY] = "";
    const char *place = NULL;
    r->find(&job->config, why);
    if (!*why) return;
    for (int i = 0; i < MAX_KEYS && r->keys[i]; i++) {
        const tti_option_state *state = tti_options_state(&job->options, r->keys[i]);
        TTI_ASSERT(state);
        if (state->bad) return;
        if (!place && state->place.source) place = r->keys[i];
    }
    tti_options_problem(&job->options, place ? place : r->keys[0], "%s", why);
}

/* A model file describes its model completely.  The job file of a run has all keys, so only keys
 * that the user set are refused. */
static void find_keys_beside_file(tutti_job *job) {
    static const char *const allowed[] = {"model.file",       "model.plugin", "model.init",
                                          "model.inputs",     "model.loss",   "model.metrics",
                                          "model.init_except"};
    if (!*job->config.model.file || job->is_of_run) return;
    for (size_t i = 0; i < tti_job_table.n_rows; i++) {
        const char *key = tti_job_table.rows[i].key;
        const tti_option_state *state = tti_options_state(&job->options, key);
        bool passed = strncmp(key, "model.", 6) != 0 || !state->place.source || state->is_own;
        for (size_t k = 0; k < TTI_COUNT(allowed); k++) passed |= is(key, allowed[k]);
        if (!passed)
            tti_options_problem(&job->options, key,
                                "describes a built-in model, but model.file names a file with "
                                "another model; leave one of the two out");
    }
}

void tti_job_find_conflicts(tutti_job *job) {
    for (size_t i = 0; i < TTI_COUNT(rules); i++) apply(&rules[i], job);
    find_keys_beside_file(job);
}

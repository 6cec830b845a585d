/* job_conflicts.c - rules that concern more than one key of a job; rules of parallelism are in
 * job_parallel_rules.c.
 *
 * A rule names the keys that it reads.  It is skipped if one of them was refused already, so that
 * one mistake gives one message.  A message refers to the first of the rule's keys that the user
 * set, and suggests a solution. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/image/augment.h"
#include "train/job/devices.h"
#include "train/job/job_rules.h"
#include "train/job/load_weights.h"
#include "train/job/numerics.h"
#include "train/job/optimizer.h"
#include "train/job/param_groups.h"
#include "tutti/models.h"

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static void find_missing_dir(const tti_job_config *c, char why[TTI_WHY]) {
    bool drawn = is(c->data.format, "digits") || strncmp(c->data.format, "random_", 7) == 0;
    if (drawn || *c->data.dir) return;
    snprintf(why, TTI_WHY,
             "%s needs data.dir, the folder of the files, such as data.dir=data/mnist",
             c->data.format);
}

bool tti_job_has_images(const tti_job_config *c) {
    char word[TTI_TEXT_MAX + 2];
    snprintf(word, sizeof word, "|%s|", c->data.format);
    return strstr("|images|masks|tar|packed|cifar10|cifar100|", word) != NULL;
}

static void find_bad_augment(const tti_job_config *c, char why[TTI_WHY]) {
    bool known = tti_job_has_images(c);
    tti_augment augment;
    if (tti_augment_parse(c->data.augment, &(tti_augment){0}, &augment) != TUTTI_OK) {
        const char *colon = strchr(tutti_last_error(), ' '); /* the text after the key */
        snprintf(why, TTI_WHY, "%s", colon ? colon + 1 : tutti_last_error());
    } else if (!known && *c->data.augment && !is(c->data.augment, "auto") &&
               !is(c->data.augment, "none")) {
        snprintf(why, TTI_WHY,
                 "is for images (data.format=images, masks, tar, ...), but data.format is %s",
                 c->data.format);
    }
}

static bool is_language(const tti_job_config *c) {
    return is(c->data.format, "text") || is(c->data.format, "tokens");
}

static void find_mixed_tokens(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->data.mixup > 0 && is_language(c))
        snprintf(why, TTI_WHY,
                 "mixes samples of floats, such as images, but data.format=%s has tokens",
                 c->data.format);
}

static void find_lost_mask_token(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->data.mask_prob == 0 && c->data.mask_token >= 0)
        snprintf(why, TTI_WHY, "is for masked tokens; give data.mask_prob=0.15 too");
    else if (c->data.mask_prob > 0 && c->data.mask_token == TTI_NO_MASK_TOKEN)
        snprintf(why, TTI_WHY,
                 "data.mask_prob=%g needs a token that replaces masked ones; give added",
                 c->data.mask_prob);
}

/* Refuses masking without text, or without a model that attends to both sides of a token and
 * predicts it. */
static void find_lost_masks(const tti_job_config *c, char why[TTI_WHY]) {
    bool own = *c->model.plugin || *c->model.file;
    if (c->data.mask_prob > 0 && !is_language(c))
        snprintf(why, TTI_WHY, "masks tokens of the formats text and tokens, but data.format is %s",
                 c->data.format);
    else if (c->data.mask_prob > 0 && !own && !is(c->model.name, "bert"))
        snprintf(why, TTI_WHY,
                 "bert predicts masked tokens, but model.name is %s, which predicts the next "
                 "token; leave out data.mask_prob",
                 c->model.name);
}

static void find_bad_masked_model(const tti_job_config *c, char why[TTI_WHY]) {
    const tutti_model *model = tti_job_model(c);
    if (c->data.mask_prob == 0 || !model || !is(model->name, "bert")) return;
    if (is(c->model.head, "classify"))
        snprintf(why, TTI_WHY, "masked tokens are predicted by model.head=tokens");
    else if (c->model.padding >= 0)
        snprintf(why, TTI_WHY, "samples of masked text have no padding; leave it out");
}

static void find_two_models(const tti_job_config *c, char why[TTI_WHY]) {
    if (*c->model.file && *c->model.plugin)
        snprintf(why, TTI_WHY,
                 "the model comes from model.file or from model.plugin, not from both");
}

/* Refuses model.size=none for models with named sizes, unless layers, heads and width are given. */
static void find_missing_size(const tti_job_config *c, char why[TTI_WHY]) {
    const tutti_model *model = tti_job_model(c);
    bool is_said = c->model.layers > 0 && c->model.width > 0 &&
                   (c->model.heads > 0 || (model && !model->activation));
    if (!model || !model->size || is_said || !is(c->model.size, "none")) return;
    snprintf(why, TTI_WHY,
             "none needs model.layers, model.heads and model.width, but not all of them are given; "
             "give them, or model.size=%s",
             model->size);
}

static void find_missing_activation(const tti_job_config *c, char why[TTI_WHY]) {
    const tutti_model *model = tti_job_model(c);
    if (!model || !model->activation || !is(c->model.activation, "none")) return;
    snprintf(why, TTI_WHY, "%s needs an activation; give model.activation=%s", model->name,
             model->activation);
}

static void find_missing_tokenizer(const tti_job_config *c, char why[TTI_WHY]) {
    if (is(c->data.format, "text") && is(c->data.tokenizer, "none"))
        snprintf(why, TTI_WHY, "text needs a tokenizer: bytes, chars or gpt2");
    if (!is(c->data.format, "text") || !is(c->data.tokenizer, "gpt2")) return;
    if (*c->data.tokenizer_dir) return;
    snprintf(why, TTI_WHY,
             "gpt2 needs data.tokenizer_dir, a tokenizer.json or a folder with vocab.json and "
             "merges.txt");
}

static void find_lost_nesterov(const tti_job_config *c, char why[TTI_WHY]) {
    if (!c->optimizer.nesterov) return;
    if (!is(c->optimizer.name, "sgd"))
        snprintf(why, TTI_WHY, "nesterov is for sgd, but optimizer.name is %s", c->optimizer.name);
    else if (c->optimizer.momentum == 0)
        snprintf(why, TTI_WHY, "nesterov needs a momentum greater than 0, such as 0.9");
}

static void find_lost_smoothing(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->train.label_smoothing <= 0 || is(c->train.loss, "cross-entropy")) return;
    snprintf(why, TTI_WHY, "is for cross-entropy, but train.loss is %s", c->train.loss);
}

static void find_lost_delta(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->train.huber_delta == 1 || is(c->train.loss, "huber")) return;
    snprintf(why, TTI_WHY, "is for huber, but train.loss is %s", c->train.loss);
}

static void find_lost_beta(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->train.smooth_l1_beta == 1 || is(c->train.loss, "smooth_l1")) return;
    snprintf(why, TTI_WHY, "is for smooth_l1, but train.loss is %s", c->train.loss);
}

/* Refuses keys that only tables use. */
static void find_lost_table_key(const tti_job_config *c, bool is_set, char why[TTI_WHY]) {
    if (!is_set || is(c->data.format, "csv")) return;
    snprintf(why, TTI_WHY, "is for tables (data.format=csv), but data.format is %s",
             c->data.format);
}

static void find_lost_label(const tti_job_config *c, char why[TTI_WHY]) {
    bool has_fields = is(c->data.format, "npy") && *c->data.fields &&
                      (!is(c->data.fields, "auto") || *c->model.file);
    find_lost_table_key(c, *c->data.label && !has_fields, why);
}

static void find_lost_columns(const tti_job_config *c, char why[TTI_WHY]) {
    find_lost_table_key(c, *c->data.columns, why);
}

static void find_lost_missing(const tti_job_config *c, char why[TTI_WHY]) {
    find_lost_table_key(c, is(c->data.missing, "refuse"), why);
}

static void find_lost_target(const tti_job_config *c, char why[TTI_WHY]) {
    static const char *const of_values[] = {"mae", "huber", "smooth_l1"};
    bool values = false;
    for (size_t i = 0; i < TTI_COUNT(of_values); i++) values |= is(c->train.loss, of_values[i]);
    bool of_labels = is(c->data.target, "labels"), is_bce = is(c->train.loss, "bce");
    if (of_labels && !is(c->data.format, "csv"))
        snprintf(why, TTI_WHY,
                 "labels are columns of data.format=csv; of arrays, y with a column for each label "
                 "is their target (data.fields=all)");
    else if (of_labels && !is_bce && !is(c->train.loss, "focal"))
        snprintf(why, TTI_WHY, "labels of 0 and 1 need train.loss=bce or focal");
    else if (is(c->data.target, "class") && is_bce && is(c->data.format, "csv"))
        snprintf(why, TTI_WHY, "bce learns labels of 0 and 1; give data.target=labels");
    else if (is(c->data.target, "value") && !values && !is(c->train.loss, "mse"))
        snprintf(why, TTI_WHY, "values need train.loss=mse, mae, huber or smooth_l1");
    else if (is(c->data.target, "class") && values)
        snprintf(why, TTI_WHY, "classes need train.loss=cross-entropy, focal or mse");
}

static void find_rising_rate(const tti_job_config *c, char why[TTI_WHY]) {
    static const char *const falling[] = {"cosine",  "cyclic",     "linear",
                                          "plateau", "polynomial", "wsd"};
    double peak = tti_peak_lr(c);
    for (size_t i = 0; i < TTI_COUNT(falling); i++)
        if (is(c->schedule.name, falling[i]) && c->schedule.min_lr > peak)
            snprintf(why, TTI_WHY, "the final learning rate, %g, is above the peak, %s %g",
                     c->schedule.min_lr,
                     is(c->optimizer.scale_lr, "none") ? "optimizer.lr" : "the scaled", peak);
}

static void find_bad_milestones(const tti_job_config *c, char why[TTI_WHY]) {
    const tti_int_list *list = &c->schedule.milestones;
    if (!is(c->schedule.name, "multi_step")) return;
    if (list->n == 0)
        snprintf(why, TTI_WHY, "multi_step needs schedule.milestones, such as [30, 60, 90]");
    for (int i = 1; i < list->n; i++)
        if (list->v[i] <= list->v[i - 1])
            snprintf(why, TTI_WHY, "must rise, and %" PRId64 " follows %" PRId64, list->v[i],
                     list->v[i - 1]);
}

static void find_blind_plateau(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is(c->schedule.name, "plateau") || c->train.eval_every > 0) return;
    snprintf(why, TTI_WHY,
             "plateau reduces the rate after evaluations; give train.eval_every=1 or more");
}

static void find_warmup_from_nothing(const tti_job_config *c, char why[TTI_WHY]) {
    bool grows = is(c->schedule.warmup_shape, "linear") || is(c->schedule.warmup_shape, "cosine");
    if (grows || c->schedule.warmup_start > 0) return;
    snprintf(why, TTI_WHY,
             "a warm-up that is %s cannot start at 0; give schedule.warmup_start=0.01",
             c->schedule.warmup_shape);
}

static void find_bad_groups(const tti_job_config *c, char why[TTI_WHY]) {
    char pattern[TTI_TEXT_MAX], clipped[TTI_CLIP];
    tti_param_group group;
    for (int i = 0; i < c->optimizer.groups.n; i++) {
        const char *text = c->optimizer.groups.v[i];
        const char *wrong = tti_param_group_parse(text, pattern, &group);
        if (!wrong) continue;
        snprintf(why, TTI_WHY, "\"%s\" %s", tti_clip(clipped, text), wrong);
        return;
    }
}

static void find_lost_scale(const tti_job_config *c, char why[TTI_WHY]) {
    bool wide = is(c->train.precision, "f32") || is(c->train.precision, "tf32");
    if (is(c->train.precision, "f16") && c->train.loss_scale == TTI_NO_LOSS_SCALE)
        snprintf(why, TTI_WHY, "small gradients underflow in f16 without a scale; give dynamic");
    if (c->train.loss_scale < 0 || !wide) return;
    snprintf(why, TTI_WHY, "is for 16-bit gradients, but train.precision is %s",
             c->train.precision);
}

static void find_bad_recompute(const tti_job_config *c, char why[TTI_WHY]) {
    char clipped[TTI_CLIP];
    tti_target target;
    if (tti_numerics_recompute(c->train.recompute, &target)) return;
    snprintf(why, TTI_WHY,
             "expected none, light, block or a number of bytes such as 512MiB, got \"%s\"",
             tti_clip(clipped, c->train.recompute));
}

static const tti_job_rule rules[] = {
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
    {{"data.target", "train.loss", "data.format"}, find_lost_target},
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
};

/* Applies a rule.  Looks up the keys only if the rule is broken, because the planner checks a job
 * for every layout. */
static void apply(const tti_job_rule *r, tutti_job *job) {
    char why[TTI_WHY] = "";
    const char *place = NULL;
    r->find(&job->config, why);
    if (!*why) return;
    for (int i = 0; i < TTI_RULE_KEYS && r->keys[i]; i++) {
        const tti_option_state *state = tti_options_state(&job->options, r->keys[i]);
        TTI_ASSERT(state);
        if (state->bad) return;
        if (!place && state->place.source) place = r->keys[i];
    }
    tti_options_problem(&job->options, place ? place : r->keys[0], "%s", why);
}

void tti_job_apply_rules(const tti_job_rule *of, size_t n, tutti_job *job) {
    for (size_t i = 0; i < n; i++) apply(&of[i], job);
}

/* True for keys of built-in models, which a model file does not use. */
static bool is_of_built_in(const char *key) {
    static const char *const others[] = {"model.file",       "model.plugin", "model.init",
                                         "model.inputs",     "model.loss",   "model.metrics",
                                         "model.init_except"};
    bool is = strncmp(key, "model.", 6) == 0;
    for (size_t k = 0; k < TTI_COUNT(others); k++) is = is && strcmp(key, others[k]) != 0;
    return is;
}

/* Plugins and models of the caller use the size keys, but not model.name. */
bool tti_job_key_applies(const char *key, const void *user) {
    const tutti_job *job = user;
    bool is_other = job->model_fn || *job->config.model.plugin || *job->config.model.file;
    const tti_option_state *state = tti_options_state(&job->options, key);
    bool is_default = !state->place.source || state->is_own || job->is_of_run;
    bool unread = is(key, "model.name") || (*job->config.model.file && is_of_built_in(key));
    return !(is_other && unread && is_default);
}

/* Refuses keys without effect for model.file.  Only keys that the user set, because job files of
 * runs of older versions contain all keys. */
static void find_keys_beside_file(tutti_job *job) {
    if (!*job->config.model.file || job->is_of_run) return;
    for (size_t i = 0; i < tti_job_table.n_rows; i++) {
        const char *key = tti_job_table.rows[i].key;
        const tti_option_state *state = tti_options_state(&job->options, key);
        if (is_of_built_in(key) && state->place.source && !state->is_own)
            tti_options_problem(&job->options, key,
                                "describes a built-in model, but model.file names a file with "
                                "another model; leave one of the two out");
    }
}

void tti_job_find_conflicts(tutti_job *job) {
    tti_job_apply_rules(rules, TTI_COUNT(rules), job);
    find_keys_beside_file(job);
}

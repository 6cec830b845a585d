/* model_choice.c - chooses the model of a job and its parameters.
 *
 * Values that the job does not set follow from the data: classes, tokens, the length of samples. */
#include "train/model/model_choice.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "data/fields.h"
#include "ir/graph.h"
#include "train/job/job_data.h"
#include "train/model/model_file.h"
#include "train/model/plugin.h"

/* The number of positions: one for every token of a sample, or the larger number in the job. */
static int64_t context_of(const tti_job_config *c, const tutti_dataset_info *info) {
    bool tokens = info->x.dtype == TUTTI_I32 && info->x.shape.n_dims == 1;
    return c->model.context > 0 || !tokens ? c->model.context : info->x.shape.dim[0];
}

/* The size of the vocabulary.  A model that predicts tokens has the vocabulary of the targets. */
static int64_t vocabulary_of(const tti_job_config *c, const tutti_dataset_info *info) {
    bool guesses = strcmp(c->model.head, "classify") != 0;
    return c->model.vocabulary > 0 || guesses ? c->model.vocabulary : info->n_tokens;
}

/* The width of a built-in model's output: the number of classes of the labels, or for samples with
 * fields that of the job, or one value or binary logit per column of the target.  One logit per
 * pixel separates two classes of masks. */
static int64_t outputs_of(const tti_job_config *c, const tutti_dataset_info *info) {
    bool is_question = strcmp(c->data.format, "masks") == 0 && strcmp(c->train.loss, "bce") == 0;
    if (is_question && info->n_classes == 2) return 1;
    if (info->n_classes > 0 || info->n_fields == 0) return info->n_classes;
    int target = tti_field_find_target(info->fields, info->n_fields, tti_job_target_field(c));
    const tutti_type *type = target >= 0 ? &info->fields[target].type : NULL;
    bool has_columns = type && type->dtype == TUTTI_F32 && type->shape.n_dims == 1;
    return c->data.classes == 0 && has_columns ? type->shape.dim[0] : c->data.classes;
}

/* Returns text, or NULL for auto. */
static const char *chosen(const char *text) {
    return strcmp(text, "auto") == 0 || strcmp(text, "none") == 0 ? NULL : text;
}

tutti_model_params tti_model_params_of(const tti_job_config *c, const tutti_dataset_info *info) {
    tutti_model_params p = {.n_classes = outputs_of(c, info),
                            .dropout = c->model.dropout,
                            .drop_path = c->model.drop_path,
                            .n_hidden = TTI_MIN(c->model.hidden.n, TUTTI_MODEL_MAX_HIDDEN),
                            .small_images = strcmp(c->model.stem, "cifar") == 0,
                            .width_multiplier = c->model.width_multiplier,
                            .batch_norm = c->model.batch_norm,
                            .zero_init_residual = c->model.zero_init_residual,
                            .patch = c->model.patch,
                            .window = c->model.window,
                            .n_stages = TTI_MIN(c->model.depths.n, TUTTI_MODEL_MAX_STAGES),
                            .bilinear = strcmp(c->model.upsample, "bilinear") == 0,
                            .size = chosen(c->model.size),
                            .n_layers = c->model.layers,
                            .n_heads = c->model.heads,
                            .width = c->model.width,
                            .context = context_of(c, info),
                            .vocabulary = vocabulary_of(c, info),
                            .classify = strcmp(c->model.head, "classify") == 0,
                            .padded = c->model.padding >= 0,
                            .pad_token = TTI_MAX(c->model.padding, 0),
                            .activation = chosen(c->model.activation),
                            .norm_eps = c->model.norm_eps,
                            .mlp_width = c->model.mlp_width,
                            .unscaled_attention = strcmp(c->model.attention_scaled, "no") == 0,
                            .attention_by_layer = strcmp(c->model.attention_by_layer, "yes") == 0,
                            .untied = strcmp(c->model.tied, "no") == 0,
                            .n_segments = c->model.segments};
    for (int i = 0; i < p.n_hidden; i++) p.hidden[i] = c->model.hidden.v[i];
    for (int i = 0; i < p.n_stages; i++) p.depths[i] = c->model.depths.v[i];
    return p;
}

/* The length of a file name without its ending: .pt2 or .onnx of a model; for a plugin everything
 * from the first dot on (.so.1). */
static int bytes_of_stem(const char *file, bool is_plugin) {
    static const char *const endings[] = {".pt2", ".onnx"};
    size_t n = strlen(file);
    if (is_plugin) return (int)strcspn(file, ".");
    for (size_t i = 0; i < TTI_COUNT(endings); i++) {
        size_t n_ending = strlen(endings[i]);
        if (n > n_ending && strcasecmp(file + n - n_ending, endings[i]) == 0)
            return (int)(n - n_ending);
    }
    return (int)n;
}

void tutti_job_model_name(const tutti_job *job, char *out, size_t n_bytes) {
    const tti_job_config *c = tti_job_config_of(job);
    bool is_plugin = !c->model.file[0];
    char path[TTI_TEXT_MAX];
    snprintf(path, sizeof path, "%s", is_plugin ? c->model.plugin : c->model.file);
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';) path[--end] = '\0';
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    int n = bytes_of_stem(file, is_plugin);
    if (job->model_fn || (path[0] && n == 0))
        snprintf(out, n_bytes, "model");
    else if (path[0])
        snprintf(out, n_bytes, "%.*s", n, file);
    else
        snprintf(out, n_bytes, "%s", c->model.name);
}

void tti_model_identity(const tutti_job *job, char *out, size_t n_bytes) {
    const char *plugin = tti_job_config_of(job)->model.plugin;
    char path[TTI_TEXT_MAX];
    const char *kind = "plugin";
    uint32_t crc;
    if (tti_model_file_path(job, path) == TUTTI_OK && path[0])
        kind = "file";
    else
        snprintf(path, sizeof path, "%s", plugin);
    if (job->model_fn)
        snprintf(out, n_bytes, "caller");
    else if (!path[0])
        snprintf(out, n_bytes, "built-in %s", tti_job_config_of(job)->model.name);
    else if (tti_plugin_checksum(path, &crc))
        snprintf(out, n_bytes, "%s %08x", kind, (unsigned)crc);
    else
        snprintf(out, n_bytes, "%s", kind); /* building the model reports why it cannot be read */
}

/* True if the run's job file, not the caller, names the plugin. */
static bool is_of_run(const tutti_job *job) {
    const char *source = tti_job_option_state(job, "model.plugin")->place.source;
    return source && tti_job_path(job) && strcmp(source, tti_job_path(job)) == 0;
}

tutti_status tti_model_check_identity(const tutti_job *job, const char *saved) {
    const char *plugin = tti_job_config_of(job)->model.plugin;
    char now[64];
    if (!saved || job->model_fn) return TUTTI_OK;
    if (strcmp(saved, "caller") == 0 && !plugin[0])
        return tti_fail(TUTTI_E_CONFIG,
                        "model: a C program built the model of this run, so only a program that "
                        "sets it again (tutti_job_set_model) can use the run");
    tti_model_identity(job, now, sizeof now);
    if (!plugin[0] || strcmp(now, saved) == 0 || !is_of_run(job)) return TUTTI_OK;
    if (strcmp(now, "plugin") == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "model.plugin: %s: can no longer be read; give the plugin that this run "
                        "was trained with as model.plugin=FILE",
                        plugin);
    return tti_fail(TUTTI_E_CONFIG,
                    "model.plugin: %s has changed since the training and may compute something "
                    "else; restore the old file, or accept this one with model.plugin=%s",
                    plugin, plugin);
}

/* Checks that the model accepts x; models for tokens check their input themselves. */
static tutti_status check_input(const tti_job_config *c, const tutti_model *model,
                                const tutti_value *x) {
    tutti_type type = tutti_value_type(x);
    bool images = model->input == TUTTI_MODEL_IMAGES;
    char text[64];
    if (model->input == TUTTI_MODEL_TOKENS) return TUTTI_OK;
    if (type.dtype == TUTTI_F32 && (!images || type.shape.n_dims == 4)) return TUTTI_OK;
    bool are_numbers = type.dtype == TUTTI_I32 && !images && strcmp(c->data.format, "npy") == 0;
    return tti_fail(TUTTI_E_CONFIG,
                    "model.name: %s needs %s, but samples of data.format=%s are %s; give %s",
                    c->model.name, images ? "images, f32[N,C,H,W]" : "floats", c->data.format,
                    tti_type_text(&type, text, sizeof text),
                    are_numbers ? "numbers as floats, such as x.astype('float32'), or a model of "
                                  "tokens"
                                : "another model or other data");
}

static tutti_status check_multiplier(const tti_job_config *c, const tutti_model *model) {
    if (c->model.width_multiplier == 1 || model->scales_width) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "model.width_multiplier: %s has fixed widths; leave it out, or give a "
                    "mobilenet, efficientnet, densenet or regnet as model.name",
                    model->name);
}

/* Refuses keys of one family that the chosen model does not read. */
static tutti_status check_keys(const tti_job_config *c, const tutti_model *model) {
    const struct {
        bool is_set;
        const char *key, *models;
    } keys[] = {
        {c->model.patch > 0, "model.patch", "|vit|"},
        {c->model.depths.n > 0, "model.depths", "|convnext|swin|"},
        {c->model.window > 0, "model.window", "|swin|"},
        {strcmp(c->model.upsample, "bilinear") == 0, "model.upsample=bilinear", "|unet|"},
    };
    char name[64];
    snprintf(name, sizeof name, "|%s|", model->name);
    for (size_t i = 0; i < TTI_COUNT(keys); i++)
        if (keys[i].is_set && !strstr(keys[i].models, name))
            return tti_fail(TUTTI_E_CONFIG, "%s: %s does not have this choice; leave it out",
                            keys[i].key, model->name);
    if (c->model.layers > 0 && strstr("|convnext|swin|", name))
        return tti_fail(TUTTI_E_CONFIG,
                        "model.layers: %s has stages; give model.depths, the number of blocks of "
                        "each",
                        model->name);
    if (strcmp(c->model.stem, "cifar") == 0 && strstr("|convnext|swin|unet|vit|", name))
        return tti_fail(TUTTI_E_CONFIG,
                        "model.stem: %s has one kind of first layer; leave it out%s", model->name,
                        strcmp(model->name, "vit") == 0 ? ", or give a smaller model.patch" : "");
    return TUTTI_OK;
}

tutti_status tti_model_build(const tutti_job *job, const tti_import *import,
                             const tutti_model_params *params, tutti_graph *g, tutti_value *x,
                             tti_model_outputs *out) {
    const char *plugin = tti_job_config_of(job)->model.plugin,
               *name = tti_job_config_of(job)->model.name;
    tutti_value **logits = &out->logits;
    *out = (tti_model_outputs){0};
    if (import) return tti_model_file_build(import, tti_job_config_of(job), g, out);
    if (!job->model_fn && plugin[0]) {
        TTI_TRY(tti_job_check_plugin(job));
        return tti_plugin_build(plugin, params, g, x, logits);
    }
    const tutti_model *model = job->model_fn ? NULL : tutti_model_find(name);
    if (!job->model_fn && !model)
        return tti_fail(TUTTI_E_CONFIG, "model.name: no model is called '%s'", name);
    if (model) TTI_TRY(check_input(tti_job_config_of(job), model, x));
    if (model) TTI_TRY(check_multiplier(tti_job_config_of(job), model));
    if (model) TTI_TRY(check_keys(tti_job_config_of(job), model));
    *logits = model ? model->build(g, x, params) : job->model_fn(g, x, job->model_user);
    if (model && !*logits && params->n_classes < 1)
        return tti_fail(TUTTI_E_CONFIG,
                        "model.name: %s does not know how many outputs it needs: give samples 'x' "
                        "with labels or values 'y', and with labels data.classes (in a session "
                        "n_classes); for train.loss=bce or focal with several labels give 'y' as "
                        "floats",
                        name);
    return TUTTI_OK;
}

/* Finds the model by name, if it is a model for tokens. */
static bool reads_tokens(const tutti_job *job) {
    const tutti_model *model = job->model_fn ? NULL : tti_job_model(tti_job_config_of(job));
    return model && model->input == TUTTI_MODEL_TOKENS;
}

tutti_status tti_model_check_vocabulary(const tutti_job *job, const tutti_model_params *params,
                                        bool is_value, int64_t n_tokens) {
    int64_t known = params->vocabulary > 0 ? params->vocabulary : params->n_classes;
    if (!reads_tokens(job)) return TUTTI_OK;
    if (is_value && !params->classify)
        return tti_fail(TUTTI_E_CONFIG,
                        "model.name: %s predicts tokens, but the targets of this data are numbers; "
                        "give model.name=bert model.head=classify, which has one output per target",
                        tti_job_config_of(job)->model.name);
    if (!params->classify && known != params->n_classes)
        return tti_fail(TUTTI_E_CONFIG,
                        "model.vocabulary: a model that predicts tokens needs the vocabulary of "
                        "the data, %lld, but %lld are requested; leave out model.vocabulary "
                        "(data.format=tokens: data.vocabulary allows more)",
                        (long long)params->n_classes, (long long)known);
    if (n_tokens <= known) return TUTTI_OK;
    if (!params->classify)
        return tti_fail(TUTTI_E_DATA,
                        "data: the samples have token %lld, but all targets are below %lld, so a "
                        "model that predicts tokens does not know it",
                        (long long)n_tokens - 1, (long long)known);
    return tti_fail(TUTTI_E_CONFIG,
                    "model.vocabulary: the model knows %lld tokens, but the data has token %lld; "
                    "give model.vocabulary=%lld or more",
                    (long long)known, (long long)n_tokens - 1, (long long)n_tokens);
}

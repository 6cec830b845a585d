/* init_config.c - reads config.json of Hugging Face models, key by key.
 *
 * Each family of models has a table of the keys that change what its model computes.  A key
 * determines a key of the job (option), or must have the one value that Tutti computes.  All other
 * keys that transformers is known to write have no influence on the logits and are listed in
 * `harmless`; an unlisted key is refused, because it may belong to a variant that Tutti does not
 * know.
 *
 * Sizes that are missing in config.json come from the shapes of the tensors. */
#include "train/setup/init_config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/job/param_groups.h"
#include "train/setup/weight_names.h"

enum { TEXT = 64, VALUE = 80, MAX_BLOCKS = 1000 };

/* ---- values ---- */

/* Converts the value to text for the job's key; false: not supported. */
typedef bool (*read_fn)(const json_t *value, char text[TEXT]);

static bool read_count(const json_t *value, char text[TEXT]) {
    if (!json_is_integer(value)) return false;
    snprintf(text, TEXT, "%lld", (long long)json_integer_value(value));
    return json_integer_value(value) >= 1;
}

static bool read_epsilon(const json_t *value, char text[TEXT]) {
    double x = json_number_value(value);
    snprintf(text, TEXT, "%.17g", x);
    return json_is_number(value) && x > 0 && x <= 1;
}

static bool read_yes_no(const json_t *value, char text[TEXT]) {
    snprintf(text, TEXT, "%s", json_is_true(value) ? "yes" : "no");
    return json_is_boolean(value);
}

/* Activation names in transformers; several of them denote the same function. */
static bool read_activation(const json_t *value, char text[TEXT]) {
    static const char *const names[][2] = {
        {"gelu_new", "gelu_tanh"},  {"gelu_pytorch_tanh", "gelu_tanh"},
        {"gelu_fast", "gelu_tanh"}, {"gelu_python_tanh", "gelu_tanh"},
        {"gelu", "gelu"},           {"gelu_python", "gelu"},
        {"relu", "relu"},           {"silu", "silu"},
        {"swish", "silu"},          {"tanh", "tanh"},
        {"sigmoid", "sigmoid"}};
    const char *name = json_string_value(value);
    for (size_t i = 0; name && i < TTI_COUNT(names); i++)
        if (strcmp(name, names[i][0]) == 0) return snprintf(text, TEXT, "%s", names[i][1]) > 0;
    return false;
}

static bool read_false(const json_t *value, char text[TEXT]) {
    text[0] = '\0';
    return json_is_false(value);
}

static bool read_relu(const json_t *value, char text[TEXT]) {
    return read_activation(value, text) && strcmp(text, "relu") == 0;
}

static bool read_gelu(const json_t *value, char text[TEXT]) {
    return read_activation(value, text) && strcmp(text, "gelu") == 0;
}

/* Reads a list such as [3, 3, 9, 3]. */
static bool read_counts(const json_t *value, char text[TEXT]) {
    json_int_t n[4];
    if (json_array_size(value) != TTI_COUNT(n)) return false;
    for (size_t i = 0; i < TTI_COUNT(n); i++) {
        n[i] = json_integer_value(json_array_get(value, i));
        if (n[i] < 1 || n[i] > MAX_BLOCKS) return false;
    }
    snprintf(text, TEXT, "[%d, %d, %d, %d]", (int)n[0], (int)n[1], (int)n[2], (int)n[3]);
    return true;
}

/* Reads the first number of a list in which each number is twice the previous one. */
static bool read_doubling(const json_t *value, char text[TEXT]) {
    size_t n = json_array_size(value);
    for (size_t i = 1; i < n; i++) {
        json_int_t before = json_integer_value(json_array_get(value, i - 1));
        json_int_t now = json_integer_value(json_array_get(value, i));
        if (now % 2 != 0 || now / 2 != before) return false;
    }
    return n > 0 && read_count(json_array_get(value, 0), text);
}

/* Accepts only PyTorch's value, which some norms of transformers' Swin use regardless of the
 * key. */
static bool read_usual_epsilon(const json_t *value, char text[TEXT]) {
    text[0] = '\0';
    return json_is_number(value) && json_number_value(value) == 1e-5;
}

static bool read_absolute(const json_t *value, char text[TEXT]) {
    text[0] = '\0';
    return json_is_string(value) && strcmp(json_string_value(value), "absolute") == 0;
}

static bool read_nothing(const json_t *value, char text[TEXT]) {
    text[0] = '\0';
    return json_object_size(value) == 0 && json_array_size(value) == 0 && !json_is_true(value) &&
           !json_is_string(value);
}

#define ACTIVATIONS \
    "gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, gelu_python, relu, silu, swish, tanh, sigmoid"

/* ---- keys ---- */

/* A dimension of a tensor, or the number of tensors that match a pattern (dim -1). */
typedef struct measure {
    const char *tensor;
    int dim;
} measure;

typedef struct config_key {
    const char *name;
    const char *option; /* key of the job; NULL: only values that `read` accepts are allowed */
    read_fn read;
    const char *supported; /* supported values, for the message */
    const char *absent; /* default of transformers if the key is missing; NULL: derived from tensor
                           shapes */
    measure measured;
} config_key;

/* Stands for the job's key data.vocabulary, or model.vocabulary for a classifier. */
static const char vocabulary[] = "vocabulary";

static const config_key gpt2_keys[] = {
    {"vocab_size", vocabulary, read_count, "1 or more", NULL, {"transformer.wte.weight", 0}},
    {"n_positions", "model.context", read_count, "1 or more", NULL, {"transformer.wpe.weight", 0}},
    {"n_embd", "model.width", read_count, "1 or more", NULL, {"transformer.wte.weight", 1}},
    {"n_layer", "model.layers", read_count, "1 or more", NULL, {"*h.*.attn.c_attn.weight", -1}},
    {"n_head", "model.heads", read_count, "1 or more", NULL, {0}},
    {"n_inner",
     "model.mlp_width",
     read_count,
     "1 or more",
     NULL,
     {"transformer.h.0.mlp.c_fc.bias", 0}},
    {"activation_function", "model.activation", read_activation, ACTIVATIONS, "gelu_tanh", {0}},
    {"layer_norm_epsilon", "model.norm_eps", read_epsilon, "above 0, at most 1", "1e-05", {0}},
    {"scale_attn_weights", "model.attention_scaled", read_yes_no, "true, false", "yes", {0}},
    {"scale_attn_by_inverse_layer_idx",
     "model.attention_by_layer",
     read_yes_no,
     "true, false",
     "no",
     {0}},
    {"tie_word_embeddings", "model.tied", read_yes_no, "true, false", "yes", {0}},
    {"add_cross_attention", NULL, read_false, "false", NULL, {0}},
    {0}};

static const config_key bert_keys[] = {
    {"vocab_size",
     vocabulary,
     read_count,
     "1 or more",
     NULL,
     {"bert.embeddings.word_embeddings.weight", 0}},
    {"max_position_embeddings",
     "model.context",
     read_count,
     "1 or more",
     NULL,
     {"bert.embeddings.position_embeddings.weight", 0}},
    {"hidden_size",
     "model.width",
     read_count,
     "1 or more",
     NULL,
     {"bert.embeddings.word_embeddings.weight", 1}},
    {"num_hidden_layers",
     "model.layers",
     read_count,
     "1 or more",
     NULL,
     {"*encoder.layer.*.attention.self.query.weight", -1}},
    {"num_attention_heads", "model.heads", read_count, "1 or more", NULL, {0}},
    {"intermediate_size",
     "model.mlp_width",
     read_count,
     "1 or more",
     NULL,
     {"bert.encoder.layer.0.intermediate.dense.bias", 0}},
    {"type_vocab_size",
     "model.segments",
     read_count,
     "1 or more",
     NULL,
     {"bert.embeddings.token_type_embeddings.weight", 0}},
    {"hidden_act", "model.activation", read_activation, ACTIVATIONS, "gelu", {0}},
    {"layer_norm_eps", "model.norm_eps", read_epsilon, "above 0, at most 1", "1e-12", {0}},
    {"tie_word_embeddings", "model.tied", read_yes_no, "true, false", "yes", {0}},
    {"position_embedding_type", NULL, read_absolute, "absolute", NULL, {0}},
    {"is_decoder", NULL, read_false, "false", NULL, {0}},
    {"add_cross_attention", NULL, read_false, "false", NULL, {0}},
    {0}};

/* All other settings follow from the shapes of the tensors. */
static const config_key resnet_keys[] = {
    {"hidden_act", NULL, read_relu, "relu", NULL, {0}},
    {"downsample_in_first_stage", NULL, read_false, "false", NULL, {0}},
    {"downsample_in_bottleneck", NULL, read_false, "false", NULL, {0}},
    {0}};

static const config_key vit_keys[] = {
    {"hidden_size", "model.width", read_count, "1 or more", "768", {0}},
    {"num_hidden_layers", "model.layers", read_count, "1 or more", "12", {0}},
    {"num_attention_heads", "model.heads", read_count, "1 or more", "12", {0}},
    {"intermediate_size", "model.mlp_width", read_count, "1 or more", "3072", {0}},
    {"patch_size", "model.patch", read_count, "1 or more", "16", {0}},
    {"hidden_act", "model.activation", read_activation, ACTIVATIONS, "gelu", {0}},
    {"layer_norm_eps", "model.norm_eps", read_epsilon, "above 0, at most 1", "1e-12", {0}},
    {0}};

static const config_key convnext_keys[] = {
    {"hidden_sizes", "model.width", read_doubling, "numbers that double", "96", {0}},
    {"depths", "model.depths", read_counts, "four numbers from 1 to 1000", "[3, 3, 9, 3]", {0}},
    {"layer_norm_eps", "model.norm_eps", read_epsilon, "above 0, at most 1", "1e-12", {0}},
    {"hidden_act", NULL, read_gelu, "gelu", NULL, {0}},
    {0}};

static const config_key swin_keys[] = {
    {"embed_dim", "model.width", read_count, "1 or more", "96", {0}},
    {"depths", "model.depths", read_counts, "four numbers from 1 to 1000", "[2, 2, 6, 2]", {0}},
    {"num_heads", "model.heads", read_doubling, "numbers that double", "3", {0}},
    {"window_size", "model.window", read_count, "1 or more", "7", {0}},
    {"layer_norm_eps", NULL, read_usual_epsilon, "1e-5", NULL, {0}},
    {"use_absolute_embeddings", NULL, read_false, "false", NULL, {0}},
    {"hidden_act", NULL, read_gelu, "gelu", NULL, {0}},
    {0}};

/* Keys that must be empty in every family, because they change weights or code. */
static const config_key common_keys[] = {
    {"pruned_heads", NULL, read_nothing, "no pruned heads", NULL, {0}},
    {"quantization_config", NULL, read_nothing, "weights that are not quantized", NULL, {0}},
    {"auto_map", NULL, read_nothing, "models without code of their own", NULL, {0}},
    {"is_encoder_decoder", NULL, read_false, "false", NULL, {0}},
    {"tie_encoder_decoder", NULL, read_false, "false", NULL, {0}},
    {0}};

/* Keys without influence on logits: names and versions, labels, generation, training (dropout,
 * which model.dropout sets), the order of additions, and keys that shapes check. */
static const char *const harmless[] = {
    /* all families */
    "_name_or_path", "_commit_hash", "_attn_implementation", "_attn_implementation_autoset",
    "attn_implementation", "_attn_implementation_internal", "transformers_version", "architectures",
    "model_type", "torch_dtype", "dtype", "torchscript", "use_bfloat16", "task_specific_params",
    "finetuning_task", "problem_type", "id2label", "label2id", "num_labels", "return_dict",
    "return_dict_in_generate", "output_hidden_states", "output_attentions", "output_scores",
    "output_past", "use_cache", "tokenizer_class", "prefix", "license", "language",
    "initializer_range", "initializer_factor", "gradient_checkpointing", "chunk_size_feed_forward",
    "cross_attention_hidden_size", "decoder_start_token_id", "bos_token_id", "eos_token_id",
    "sep_token_id", "cls_token_id", "mask_token_id", "pad_token_id", "tf_legacy_loss", "max_length",
    "min_length", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty",
    "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    /* gpt2 */
    "n_ctx", "n_special", "predict_special_tokens", "resid_pdrop", "embd_pdrop", "attn_pdrop",
    "reorder_and_upcast_attn", "summary_type", "summary_use_proj", "summary_activation",
    "summary_proj_to_labels", "summary_first_dropout", "is_decoder",
    /* bert */
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "directionality",
    "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
    "pooler_type",
    /* resnet */
    "num_channels", "embedding_size", "hidden_sizes", "depths", "layer_type", "stage_names",
    "out_features", "out_indices",
    /* vit, convnext, swin */
    "image_size", "patch_size", "qkv_bias", "encoder_stride", "pooler_act", "pooler_output_size",
    "num_stages", "layer_scale_init_value", "drop_path_rate", "mlp_ratio", "num_layers",
    "hidden_size"};

typedef struct family {
    const char *type; /* model_type of config.json, the beginning of model.name */
    const config_key *keys;
    const char *head, *table; /* the output layer and the token table that it may be tied to */
    const char *bias, *twin;  /* two names of one tensor, whose copies must be equal; NULL: none */
    const char *timm; /* prefixes of "architecture" in a config.json of timm, such as "vit_|deit_";
                         NULL: files of other origin are possible, and only config.json has sizes */
} family;

static const config_key no_keys[] = {{0}}; /* for families that exist only in timm */

static const family families[] = {
    {.type = "gpt2",
     .keys = gpt2_keys,
     .head = "lm_head.weight",
     .table = "transformer.wte.weight"},
    {.type = "bert",
     .keys = bert_keys,
     .head = "cls.predictions.decoder.weight",
     .table = "bert.embeddings.word_embeddings.weight",
     .bias = "cls.predictions.bias",
     .twin = "cls.predictions.decoder.bias"},
    {.type = "resnet", .keys = resnet_keys},
    {.type = "vit", .keys = vit_keys, .timm = "vit_|deit_"},
    {.type = "convnext", .keys = convnext_keys, .timm = "convnext_"},
    {.type = "swin", .keys = swin_keys, .timm = "swin_"},
    {.type = "densenet", .keys = no_keys, .timm = "densenet"},
    {.type = "efficientnet_b", .keys = no_keys, .timm = "efficientnet_b"},
    {.type = "mobilenet_v2", .keys = no_keys, .timm = "mobilenetv2_"},
    {.type = "regnet_", .keys = no_keys, .timm = "regnetx_|regnety_"}};

typedef struct taking {
    tutti_job *job;
    const tti_weights *weights;
    const family *family;
    const json_t *root; /* contents of config.json; NULL: there is none */
    char origin[TTI_TEXT_MAX + 32];
} taking;

/* ---- reading ---- */

static const char *print(const json_t *value, char text[VALUE]) {
    size_t n = json_dumpb(value, text, VALUE - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    text[n < VALUE ? n : VALUE - 1] = '\0';
    return text;
}

static tutti_status refuse_value(const taking *t, const config_key *key, const json_t *value) {
    char text[VALUE];
    return tti_fail(TUTTI_E_CONFIG, "model.init: %s: \"%s\" is %s, but model.name=%s supports: %s",
                    t->origin, key->name, print(value, text), tti_job_config_of(t->job)->model.name,
                    key->supported);
}

static const char *option_of(const taking *t, const config_key *key) {
    bool classifies = strcmp(tti_job_config_of(t->job)->model.head, "classify") == 0;
    if (key->option != vocabulary) return key->option;
    return classifies ? "model.vocabulary" : "data.vocabulary";
}

static const tti_option *row_of(const char *key) {
    for (size_t i = 0; i < tti_job_table.n_rows; i++)
        if (strcmp(tti_job_table.rows[i].key, key) == 0) return &tti_job_table.rows[i];
    return NULL;
}

/* True for the three keys that a named size determines; the shapes of tensors are compared with
 * it. */
static bool is_of_size(const taking *t, const char *option) {
    if (!tti_job_names_size(tti_job_config_of(t->job))) return false;
    return strcmp(option, "model.layers") == 0 || strcmp(option, "model.heads") == 0 ||
           strcmp(option, "model.width") == 0;
}

/* False for the tokenizers bytes and chars, which number tokens in their own way: accepting a
 * larger vocabulary would hide that the files belong to another tokenizer. */
static bool may_put_vocabulary(const tti_job_config *c) {
    bool text = strcmp(c->data.format, "text") == 0;
    if (strcmp(c->model.head, "classify") == 0) return true;
    return strcmp(c->data.format, "tokens") == 0 || strcmp(c->data.format, "random_tokens") == 0 ||
           (text && c->data.tokenizer_dir[0]);
}

static bool is_same(const tti_option *row, const char *a, const char *b) {
    return row->type == TTI_OPTION_FLOAT ? strtod(a, NULL) == strtod(b, NULL) : strcmp(a, b) == 0;
}

/* Sets a key of the job, or checks the value that it has. source: text such as "n_head" = 2, for
 * messages. */
static tutti_status put(const taking *t, const char *option, const char *value,
                        const char *source) {
    const tti_option *row = row_of(option);
    const char *now = tutti_job_get(t->job, option);
    TTI_ASSERT(row && now);
    if (is_of_size(t, option)) return TUTTI_OK;
    bool number = row->type == TTI_OPTION_INT || row->type == TTI_OPTION_FLOAT;
    if (number && (strtod(value, NULL) < row->min || strtod(value, NULL) > row->max))
        return tti_fail(TUTTI_E_CONFIG, "model.init: %s: %s, but %s must be from %g to %g",
                        t->origin, source, option, row->min, row->max);
    bool given = !is_same(row, now, row->value);
    if (given && !is_same(row, now, value))
        return tti_fail(TUTTI_E_CONFIG,
                        "model.init: %s: %s, but the job says %s=%s; leave out %s to use the value "
                        "of the files",
                        t->origin, source, option, now, option);
    bool vocabulary_of_data = strcmp(option, "data.vocabulary") == 0;
    if (vocabulary_of_data && !may_put_vocabulary(tti_job_config_of(t->job))) return TUTTI_OK;
    if (!given) tti_options_put(tti_job_options(t->job), option, value, t->origin);
    return TUTTI_OK;
}

/* Returns the dimension or count; 0 if the tensor is missing. */
static int64_t measure_tensor(const taking *t, const measure *m) {
    if (!m->tensor) return 0;
    if (m->dim >= 0) {
        int64_t at = tti_weight_find(t->weights, m->tensor);
        if (at < 0) return 0;
        const tutti_shape *shape = &tti_weights_at(t->weights, (size_t)at)->type.shape;
        return m->dim < shape->n_dims ? shape->dim[m->dim] : 0;
    }
    int64_t n = 0;
    for (size_t i = 0; i < tti_weights_n(t->weights); i++)
        n += tti_pattern_matches(m->tensor, tti_weights_at(t->weights, i)->name);
    return n;
}

static tutti_status take_measured(const taking *t, const config_key *key) {
    char value[TEXT], source[2 * TEXT];
    int64_t n = measure_tensor(t, &key->measured);
    if (n == 0) return TUTTI_OK; /* loading will report the missing tensors */
    snprintf(value, sizeof value, "%" PRId64, n);
    snprintf(source, sizeof source, "the tensors have %s = %" PRId64, key->name, n);
    return put(t, option_of(t, key), value, source);
}

static tutti_status take_key(const taking *t, const config_key *key) {
    const json_t *value = json_object_get(t->root, key->name);
    char text[TEXT] = "", printed[VALUE], source[VALUE + TEXT];
    if (!value || json_is_null(value)) {
        if (!key->option) return TUTTI_OK;
        if (!key->absent) return take_measured(t, key);
        snprintf(source, sizeof source, "\"%s\" is absent, which means %s", key->name, key->absent);
        return put(t, key->option, key->absent, source);
    }
    if (!key->read(value, text)) return refuse_value(t, key, value);
    snprintf(source, sizeof source, "\"%s\" is %s", key->name, print(value, printed));
    return key->option ? put(t, option_of(t, key), text, source) : TUTTI_OK;
}

/* ---- the output layer ---- */

static tutti_status tensors_equal(const taking *t, size_t a, size_t b, bool *out) {
    const tutti_shape *shape = &tti_weights_at(t->weights, a)->type.shape;
    *out = tti_shape_equal(shape, &tti_weights_at(t->weights, b)->type.shape);
    if (!*out) return TUTTI_OK;
    size_t n = (size_t)tutti_shape_n_elems(shape);
    float *x = malloc(2 * n * sizeof *x + 1);
    if (!x) return tti_fail(TUTTI_E_NOMEM, "model.init: out of memory");
    tutti_status st = tti_weights_read(t->weights, a, x);
    if (st == TUTTI_OK) st = tti_weights_read(t->weights, b, x + n);
    *out = st == TUTTI_OK && memcmp(x, x + n, n * sizeof *x) == 0;
    free(x);
    return st;
}

/* Finds the output layer.  As in transformers the tensors decide: an output layer that differs from
 * the token table is used regardless of config.json. *untied: the file has such a tensor. */
static tutti_status find_head(const taking *t, bool *untied) {
    *untied = false;
    int64_t head = tti_weight_find(t->weights, t->family->head);
    int64_t table = tti_weight_find(t->weights, t->family->table);
    bool equal;
    if (head < 0 || table < 0 || head == table) return TUTTI_OK;
    TTI_TRY(tensors_equal(t, (size_t)head, (size_t)table, &equal));
    *untied = !equal;
    return TUTTI_OK;
}

static tutti_status check_twin(const taking *t) {
    int64_t a = tti_weights_find(t->weights, t->family->bias);
    int64_t b = tti_weights_find(t->weights, t->family->twin);
    bool equal;
    if (a < 0 || b < 0 || a == b) return TUTTI_OK;
    TTI_TRY(tensors_equal(t, (size_t)a, (size_t)b, &equal));
    if (equal) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT,
                    "model.init: %s: %s and %s differ, but the model has only one of them",
                    tti_job_config_of(t->job)->model.init, t->family->bias, t->family->twin);
}

static tutti_status take_keys(const taking *t) {
    bool untied = false;
    if (t->family->twin) TTI_TRY(check_twin(t));
    if (t->family->head) TTI_TRY(find_head(t, &untied));
    for (const config_key *key = t->family->keys; key->name; key++) {
        bool tie = strcmp(key->name, "tie_word_embeddings") == 0;
        if (tie && untied) {
            char source[2 * TEXT];
            snprintf(source, sizeof source, "%s differs from the token table", t->family->head);
            TTI_TRY(put(t, key->option, "no", source));
        } else {
            TTI_TRY(take_key(t, key));
        }
    }
    return TUTTI_OK;
}

/* ---- the whole file ---- */

static bool is_listed(const config_key *keys, const char *name) {
    while (keys->name && strcmp(keys->name, name) != 0) keys++;
    return keys->name != NULL;
}

static bool is_harmless(const char *name) {
    for (size_t i = 0; i < TTI_COUNT(harmless); i++)
        if (strcmp(harmless[i], name) == 0) return true;
    return false;
}

static tutti_status check_known(const taking *t) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)t->root, name, value) {
        char text[VALUE];
        if (json_is_null(value) || is_listed(t->family->keys, name) ||
            is_listed(common_keys, name) || is_harmless(name))
            continue;
        return tti_fail(TUTTI_E_CONFIG,
                        "model.init: %s: the key \"%.60s\" (%s) is not known for %s and may change "
                        "what the model computes; if it does not, remove it from the file",
                        t->origin, name, print(value, text), t->family->type);
    }
    return TUTTI_OK;
}

static tutti_status check_type(const taking *t) {
    const char *type = json_string_value(json_object_get(t->root, "model_type"));
    if (!type || strcmp(type, t->family->type) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "model.init: %s: \"model_type\" is \"%.40s\", but model.name=%s loads \"%s\"",
                    t->origin, type, tti_job_config_of(t->job)->model.name, t->family->type);
}

/* Checks that config.json or the job sets the number of heads, which shapes do not show. */
static tutti_status check_heads(const taking *t) {
    const tti_job_config *c = tti_job_config_of(t->job);
    bool known = c->model.heads > 0 || tti_job_names_size(c) || !t->family->head;
    if (known) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_CONFIG,
        "model.init: %s does not say how many attention heads the model has; give model.heads",
        t->root ? t->origin : c->model.init);
}

/* Checks a config.json of timm, which names the architecture and has no other setting that changes
 * the model. */
static tutti_status check_timm(const taking *t, const char *architecture) {
    bool fits = strstr(architecture, "quickgelu") == NULL, is_known = false;
    for (const char *at = t->family->timm; *at && !is_known; at += strspn(at, "|")) {
        size_t n = strcspn(at, "|");
        is_known = strncmp(architecture, at, n) == 0;
        at += n;
    }
    if (fits && is_known) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "model.init: %s: \"architecture\" is \"%.60s\", which model.name=%s does not "
                    "compute",
                    t->origin, architecture, tti_job_config_of(t->job)->model.name);
}

static tutti_status take(taking *t) {
    const char *architecture = json_string_value(json_object_get(t->root, "architecture"));
    if (t->family->timm && !t->root) return TUTTI_OK;
    if (t->family->timm && architecture) return check_timm(t, architecture);
    if (t->root) TTI_TRY(check_type(t));
    TTI_TRY(take_keys(t));
    for (const config_key *key = common_keys; key->name; key++) TTI_TRY(take_key(t, key));
    if (t->root) TTI_TRY(check_known(t));
    return check_heads(t);
}

static const family *family_of(const tutti_job *job) {
    const tutti_model *model =
        tti_job_has_model_fn(job) ? NULL : tti_job_model(tti_job_config_of(job));
    const char *name = model ? model->name : "";
    for (size_t i = 0; i < TTI_COUNT(families); i++)
        if (strncmp(name, families[i].type, strlen(families[i].type)) == 0) return &families[i];
    return NULL;
}

tutti_status tti_init_config_apply(tutti_job *job) {
    const char *path = tti_job_config_of(job)->model.init;
    taking t = {.job = job, .family = family_of(job)};
    tti_weights *weights;
    json_t *root = NULL;
    if (!path[0] || !t.family) return TUTTI_OK;
    tutti_status st = tti_weights_open(path, &weights);
    if (st == TUTTI_OK) st = tti_weights_config(weights, &root);
    if (st != TUTTI_OK) tti_fail_context("model.init: ");
    t.weights = weights;
    t.root = root;
    snprintf(t.origin, sizeof t.origin, "%s%s", path, root ? "/config.json" : "");
    if (st == TUTTI_OK) st = take(&t);
    json_decref(root);
    tti_weights_close(weights);
    return st;
}

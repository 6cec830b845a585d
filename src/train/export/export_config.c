/* export_config.c - writes config.json for Hugging Face's GPT-2, BERT and ResNet.
 *
 * All values come from the parameters of the plan, not from the job, so they match the tensors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "train/export/export.h"
#include "train/job/param_groups.h"
#include "train/setup/weight_names.h"

static int64_t dim_of(const tti_blueprint *b, const char *name, int dim) {
    int slot = tti_plan_find_slot(b->plan, name);
    return slot < 0 ? 0 : b->plan->slots[slot].param->out[0]->type.shape.dim[dim];
}

static int64_t count(const tti_blueprint *b, const char *pattern) {
    int64_t n = 0;
    for (int i = 0; i < b->plan->n_slots; i++)
        n += tti_pattern_matches(pattern, b->plan->slots[i].param->name);
    return n;
}

/* Returns the name in transformers of an activation of tutti/models.h. */
static const char *activation_of(const tti_blueprint *b, const char *fallback) {
    const char *name = b->model_params.activation ? b->model_params.activation : fallback;
    return strcmp(name, "gelu_tanh") == 0 ? "gelu_new" : name;
}

static double epsilon_of(const tti_blueprint *b, double fallback) {
    return b->model_params.norm_eps > 0 ? b->model_params.norm_eps : fallback;
}

/* Writes the class names of the run; without them transformers uses LABEL_0, LABEL_1, ... */
static void labels(const tti_blueprint *b, tti_json *j) {
    char number[24];
    tti_json_int(j, "num_labels", b->model_params.n_classes);
    if (!tutti_dataset_class_name(b->train, 0)) return;
    tti_json_object(j, "id2label");
    for (int64_t i = 0; i < b->model_params.n_classes; i++) {
        snprintf(number, sizeof number, "%lld", (long long)i);
        tti_json_text(j, number, tutti_dataset_class_name(b->train, i));
    }
    tti_json_end(j);
    tti_json_object(j, "label2id");
    for (int64_t i = 0; i < b->model_params.n_classes; i++)
        tti_json_int(j, tutti_dataset_class_name(b->train, i), i);
    tti_json_end(j);
}

static void begin(tti_json *j, const char *type, const char *class, bool tied) {
    tti_json_object(j, NULL);
    tti_json_array(j, "architectures");
    tti_json_text(j, NULL, class);
    tti_json_end(j);
    tti_json_text(j, "model_type", type);
    tti_json_text(j, "torch_dtype", "float32");
    tti_json_double(j, "initializer_range", 0.02);
    tti_json_bool(j, "use_cache", true);
    tti_json_bool(j, "tie_word_embeddings", tied);
}

/* Writes the token that begins and ends texts: that of the tokenizer, or without a tokenizer the
 * last token of GPT-2's vocabulary. */
static void end_token(const tti_blueprint *b, tti_json *j, const char *key, int64_t n_tokens) {
    enum { GPT2_END = 50256 };
    const tutti_tokenizer *tokenizer = tutti_dataset_get_tokenizer(b->train);
    int64_t end = n_tokens > GPT2_END ? GPT2_END : -1;
    if (tokenizer) end = tutti_tokenizer_get_end(tokenizer);
    if (end >= 0)
        tti_json_int(j, key, end);
    else
        tti_json_null(j, key);
}

static void gpt2(const tti_blueprint *b, tti_json *j) {
    int64_t n_tokens = dim_of(b, "transformer.wte.weight", 0);
    int64_t context = dim_of(b, "transformer.wpe.weight", 0);
    begin(j, "gpt2", "GPT2LMHeadModel", !b->model_params.untied);
    tti_json_int(j, "vocab_size", n_tokens);
    tti_json_int(j, "n_positions", context);
    tti_json_int(j, "n_ctx", context);
    tti_json_int(j, "n_embd", dim_of(b, "transformer.wte.weight", 1));
    tti_json_int(j, "n_layer", count(b, "transformer.h.*.attn.c_attn.weight"));
    tti_json_int(j, "n_head", tti_model_n_heads(b));
    int64_t width = dim_of(b, "transformer.wte.weight", 1);
    int64_t inner = dim_of(b, "transformer.h.0.mlp.c_fc.weight", 0);
    if (inner == 4 * width)
        tti_json_null(j, "n_inner");
    else
        tti_json_int(j, "n_inner", inner);
    tti_json_text(j, "activation_function", activation_of(b, "gelu_tanh"));
    tti_json_double(j, "resid_pdrop", b->model_params.dropout);
    tti_json_double(j, "embd_pdrop", b->model_params.dropout);
    tti_json_double(j, "attn_pdrop", 0);
    tti_json_double(j, "layer_norm_epsilon", epsilon_of(b, 1e-5));
    tti_json_bool(j, "scale_attn_weights", !b->model_params.unscaled_attention);
    tti_json_bool(j, "scale_attn_by_inverse_layer_idx", b->model_params.attention_by_layer);
    end_token(b, j, "bos_token_id", n_tokens);
    end_token(b, j, "eos_token_id", n_tokens);
    tti_json_end(j);
}

static void bert(const tti_blueprint *b, tti_json *j) {
    bool classifies = b->model_params.classify;
    begin(j, "bert", classifies ? "BertForSequenceClassification" : "BertForMaskedLM",
          !b->model_params.untied);
    tti_json_int(j, "vocab_size", dim_of(b, "bert.embeddings.word_embeddings.weight", 0));
    tti_json_int(j, "hidden_size", dim_of(b, "bert.embeddings.word_embeddings.weight", 1));
    tti_json_int(j, "num_hidden_layers",
                 count(b, "bert.encoder.layer.*.attention.self.query.weight"));
    tti_json_int(j, "num_attention_heads", tti_model_n_heads(b));
    tti_json_int(j, "intermediate_size",
                 dim_of(b, "bert.encoder.layer.0.intermediate.dense.weight", 0));
    tti_json_int(j, "max_position_embeddings",
                 dim_of(b, "bert.embeddings.position_embeddings.weight", 0));
    tti_json_int(j, "type_vocab_size",
                 dim_of(b, "bert.embeddings.token_type_embeddings.weight", 0));
    tti_json_text(j, "hidden_act", activation_of(b, "gelu"));
    tti_json_text(j, "position_embedding_type", "absolute");
    tti_json_double(j, "hidden_dropout_prob", b->model_params.dropout);
    tti_json_double(j, "attention_probs_dropout_prob", 0);
    tti_json_double(j, "layer_norm_eps", epsilon_of(b, 1e-12));
    tti_json_int(j, "pad_token_id", b->model_params.padded ? b->model_params.pad_token : 0);
    if (classifies) labels(b, j);
    tti_json_end(j);
}

/* Writes the widths and numbers of blocks of the four stages. */
static void stages(const tti_blueprint *b, bool bottleneck, tti_json *j) {
    char name[64];
    tti_json_array(j, "hidden_sizes");
    for (int s = 1; s <= 4; s++) {
        snprintf(name, sizeof name, "layer%d.0.conv%d.weight", s, bottleneck ? 3 : 2);
        tti_json_int(j, NULL, dim_of(b, name, 0));
    }
    tti_json_end(j);
    tti_json_array(j, "depths");
    for (int s = 1; s <= 4; s++) {
        snprintf(name, sizeof name, "layer%d.*.conv1.weight", s);
        tti_json_int(j, NULL, count(b, name));
    }
    tti_json_end(j);
}

/* Writes the ResNet settings; strides are those of ResNet v1.5. */
static void resnet(const tti_blueprint *b, tti_json *j) {
    bool bottleneck = tti_plan_find_slot(b->plan, "layer1.0.conv3.weight") >= 0;
    tti_json_object(j, NULL);
    tti_json_array(j, "architectures");
    tti_json_text(j, NULL, "ResNetForImageClassification");
    tti_json_end(j);
    tti_json_text(j, "model_type", "resnet");
    tti_json_text(j, "torch_dtype", "float32");
    tti_json_int(j, "num_channels", dim_of(b, "conv1.weight", 1));
    tti_json_int(j, "embedding_size", dim_of(b, "conv1.weight", 0));
    stages(b, bottleneck, j);
    tti_json_text(j, "layer_type", bottleneck ? "bottleneck" : "basic");
    tti_json_text(j, "hidden_act", "relu");
    tti_json_bool(j, "downsample_in_first_stage", false);
    tti_json_bool(j, "downsample_in_bottleneck", false);
    labels(b, j);
    tti_json_end(j);
}

/* Names the generic class of transformers, which reads everything from tokenizer.json. */
void tti_export_tokenizer_config(const tti_blueprint *b, const tutti_tokenizer *t, tti_str *out) {
    tti_json j = tti_json_begin(out, 2);
    int32_t end = tutti_tokenizer_get_end(t);
    char *text = NULL;
    size_t n_bytes;
    tti_json_object(&j, NULL);
    tti_json_text(&j, "tokenizer_class", "PreTrainedTokenizerFast");
    tti_json_int(&j, "model_max_length", b->model_params.context);
    tti_json_bool(&j, "clean_up_tokenization_spaces", false);
    if (end >= 0 && tutti_tokenizer_decode(t, &end, 1, &text, &n_bytes) == TUTTI_OK) {
        tti_json_text(&j, "bos_token", text);
        tti_json_text(&j, "eos_token", text);
        free(text);
    }
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

bool tti_is_resnet(const tti_blueprint *b) {
    const tutti_model *model = tti_job_model(&b->config);
    return model && strncmp(model->name, "resnet", 6) == 0;
}

tutti_status tti_export_config(const tti_blueprint *b, tti_str *out) {
    tti_json j = tti_json_begin(out, 2);
    const tutti_model *model = tti_job_model(&b->config);
    const char *name = model ? model->name : "one of your own";
    if (strcmp(name, "gpt2") == 0)
        gpt2(b, &j);
    else if (strcmp(name, "bert") == 0)
        bert(b, &j);
    else if (tti_is_resnet(b) && b->model_params.small_images)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "export: format hf cannot describe a resnet with model.stem=cifar; use "
                        "torchvision or safetensors");
    else if (tti_is_resnet(b))
        resnet(b, &j);
    else
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "export: format hf is for gpt2, bert and resnet, the model is %s", name);
    tti_str_add(out, "\n");
    return out->failed ? tti_fail(TUTTI_E_NOMEM, "export: out of memory") : TUTTI_OK;
}

static void sides(tti_json *j, const char *key, int64_t side) {
    tti_json_object(j, key);
    tti_json_int(j, "height", side);
    tti_json_int(j, "width", side);
    tti_json_end(j);
}

static void numbers(tti_json *j, const char *key, const double v[3]) {
    tti_json_array(j, key);
    for (int i = 0; i < 3; i++) tti_json_double(j, NULL, v[i]);
    tti_json_end(j);
}

/* Uses CLIP's processor, because it has separate sizes for resizing and cropping. */
void tti_export_preprocessor_config(const tti_data_spec *spec, tti_str *out) {
    enum { BILINEAR = 2 };
    int64_t size = spec->stored.shape.dim[0];
    const tti_pixel_spec *pixels = &spec->pixels;
    bool crops = pixels->fit != TTI_FIT_FILL;
    tti_json j = tti_json_begin(out, 2);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "image_processor_type", "CLIPImageProcessor");
    tti_json_bool(&j, "do_convert_rgb", true);
    tti_json_bool(&j, "do_resize", true);
    tti_json_int(&j, "resample", BILINEAR);
    if (crops) {
        tti_json_object(&j, "size");
        tti_json_int(
            &j, "shortest_edge",
            pixels->fit == TTI_FIT_MIDDLE ? (int64_t)rint((double)size * 8.0 / 7.0) : size);
        tti_json_end(&j);
    } else {
        sides(&j, "size", size);
    }
    tti_json_bool(&j, "do_center_crop", crops);
    sides(&j, "crop_size", size);
    tti_json_bool(&j, "do_rescale", true);
    tti_json_double(&j, "rescale_factor", 1 / 255.0);
    tti_json_bool(&j, "do_normalize", true);
    numbers(&j, "image_mean", pixels->mean);
    numbers(&j, "image_std", pixels->std);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

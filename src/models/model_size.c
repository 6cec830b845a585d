/* model_size.c - sizes by name, and shared code of transformers: checks of tokens, layer names.
 *
 * A named size is only a row of defaults, so model.size=124M model.layers=6 has half the layers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/models.h"

enum { WHY = 320 };

static int64_t first_set(int64_t a, int64_t b) { return a > 0 ? a : b; }

/* Returns NULL, with the known names in why, for an unknown name. */
static const tti_model_size *find_size(const char *model, const tti_model_size *sizes,
                                       const char *name, char why[WHY]) {
    if (!name || !name[0]) return sizes;
    int n = snprintf(why, WHY, "%s: model.size: no size is called '%.40s', there are", model, name);
    for (const tti_model_size *s = sizes; s->name; s++) {
        if (strcmp(s->name, name) == 0) return s;
        if (n < WHY) n += snprintf(why + n, (size_t)(WHY - n), " %s", s->name);
    }
    return NULL;
}

static bool check_tokens(const char *model, const tutti_value *x, int64_t context, char why[WHY]) {
    tutti_type type = tutti_value_type(x);
    if (type.dtype != TUTTI_I32 || type.shape.n_dims != 2)
        snprintf(why, WHY, "%s: needs tokens, i32[N,T], as data.format=text and tokens give",
                 model);
    else if (context > 0 && type.shape.dim[1] > context)
        snprintf(why, WHY,
                 "%s: samples of %" PRId64 " tokens are longer than model.context, %" PRId64, model,
                 type.shape.dim[1], context);
    else
        return true;
    return false;
}

const tti_model_size *tti_model_find_size(tutti_graph *g, const char *model,
                                          const tti_model_size *sizes, const char *name) {
    char why[WHY];
    const tti_model_size *size = find_size(model, sizes, name, why);
    if (!size) (void)tutti_graph_refuse(g, why);
    return size;
}

bool tti_model_check_heads(tutti_graph *g, const char *model, const tti_model_size *size) {
    char why[WHY];
    if (size->width % size->n_heads == 0) return true;
    snprintf(why, WHY, "%s: model.width, %" PRId64 ", is not a multiple of model.heads, %" PRId64,
             model, size->width, size->n_heads);
    (void)tutti_graph_refuse(g, why);
    return false;
}

bool tti_model_pick_size(tutti_graph *g, const char *model, const tutti_value *x,
                         const tutti_model_params *params, const tti_model_size *sizes,
                         tti_model_size *out) {
    char why[WHY];
    if (!x) return false;
    const tti_model_size *size = find_size(model, sizes, params->size, why);
    bool fine = size && check_tokens(model, x, params->context, why);
    if (fine) {
        *out = (tti_model_size){
            .name = size->name,
            .n_layers = first_set(params->n_layers, size->n_layers),
            .n_heads = first_set(params->n_heads, size->n_heads),
            .width = first_set(params->width, size->width),
            .context = first_set(params->context, tutti_value_type(x).shape.dim[1]),
            .vocabulary = first_set(params->vocabulary, params->n_classes)};
        out->mlp_width = first_set(params->mlp_width, 4 * out->width);
        return tti_model_check_heads(g, model, out);
    }
    (void)tutti_graph_refuse(g, why);
    return false;
}

tutti_value *tti_model_activate(tutti_graph *g, tutti_value *x, const char *name,
                                const char *fallback) {
    static const struct {
        const char *name;
        tutti_value *(*apply)(tutti_graph *g, tutti_value *x);
    } known[] = {{"gelu", tutti_gelu}, {"gelu_tanh", tutti_gelu_tanh}, {"relu", tutti_relu},
                 {"silu", tutti_silu}, {"tanh", tutti_tanh},           {"sigmoid", tutti_sigmoid}};
    char why[WHY];
    if (!name) name = fallback;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0) return known[i].apply(g, x);
    snprintf(why, WHY, "model.activation: no activation is called '%.40s'", name);
    return tutti_graph_refuse(g, why);
}

tutti_attention_desc tti_model_attention(const tutti_model_params *params,
                                         const tti_model_size *size, int64_t i) {
    tutti_attention_desc desc = {.heads = size->n_heads};
    double scale = params->unscaled_attention ? 1 : 1 / sqrt((double)(size->width / size->n_heads));
    if (params->attention_by_layer) scale /= (double)(i + 1);
    if (params->unscaled_attention || params->attention_by_layer) desc.scale = scale;
    return desc;
}

const char *tti_layer_name(char text[TTI_MODEL_NAME], const char *prefix, int64_t i,
                           const char *suffix) {
    snprintf(text, TTI_MODEL_NAME, "%s.%" PRId64 ".%s", prefix, i, suffix);
    return text;
}

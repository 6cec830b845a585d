/* models.h - the builders of the built-in models, one per file, and their common functions. */
#ifndef TTI_MODELS_MODELS_H
#define TTI_MODELS_MODELS_H

#include "tutti/models.h"
#include "tutti/ops.h"

tutti_value *tti_model_bert(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_convnext(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_densenet121(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_densenet161(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_densenet169(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_densenet201(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b0(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b1(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b2(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b3(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b4(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b5(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b6(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_b7(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_v2_l(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_v2_m(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_efficientnet_v2_s(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_gpt2(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_lenet(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_lstm(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_mlp(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_mobilenet_v2(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_mobilenet_v3_large(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_mobilenet_v3_small(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_16gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_1_6gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_32gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_3_2gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_400mf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_800mf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_x_8gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_128gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_16gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_1_6gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_32gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_3_2gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_400mf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_800mf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_regnet_y_8gf(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_resnet101(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_resnet18(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_resnet34(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_resnet50(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_swin(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_unet(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_vgg11(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_vgg13(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_vgg16(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_vit(tutti_graph *g, tutti_value *x, const void *user);

tutti_value *tti_gpt2_decode(tutti_graph *g, tutti_value *tokens, tutti_value *pos,
                             const tutti_model_params *params);
extern const char *const tti_gpt2_transposed[];
extern const tutti_weight_alias *const tti_convnext_aliases[];
extern const tutti_weight_alias *const tti_densenet_aliases[];
extern const tutti_weight_alias *const tti_efficientnet_aliases[];
extern const tutti_weight_alias *const tti_mobilenet_v2_aliases[];
extern const tutti_weight_alias *const tti_regnet_aliases[];
extern const tutti_weight_alias *const tti_swin_aliases[];
extern const char *const tti_swin_surplus[];
extern const tutti_weight_alias *const tti_vit_aliases[];
extern const char *const tti_vit_surplus[];

/* ---- sizes ---- */

enum { TTI_MODEL_STAGES = 4 };

typedef struct tti_model_size {
    const char *name;
    int64_t n_layers, n_heads, width, context, vocabulary, mlp_width;
    int64_t depths[TTI_MODEL_STAGES]; /* models with stages: number of blocks in each stage; width
                                         is that of the first stage */
} tti_model_size;

/* Returns the row of that name (NULL: the first); NULL, with the reason stored in g, if there is
 * none. */
const tti_model_size *tti_model_find_size(tutti_graph *g, const char *model,
                                          const tti_model_size *sizes, const char *name);

/* Returns true if the heads divide the width; otherwise stores the reason in g. */
bool tti_model_check_heads(tutti_graph *g, const char *model, const tti_model_size *size);

/* ---- language models ---- */

/* Sets *out to the row of sizes that params->size names (NULL: the first), with all values of
 * params applied; context and vocabulary are those of params, else T of x[N,T] and n_classes.
 * Returns false, with the reason stored in g, for an unknown size, for x that is not i32[N,T] with
 * T <= context, and for heads that do not divide the width. */
bool tti_model_pick_size(tutti_graph *g, const char *model, const tutti_value *x,
                         const tutti_model_params *params, const tti_model_size *sizes,
                         tti_model_size *out);

/* Applies the activation with that name (NULL: `fallback`) to x. An unknown name is stored in g as
 * an error. */
tutti_value *tti_model_activate(tutti_graph *g, tutti_value *x, const char *name,
                                const char *fallback);

/* Returns the attention of layer i, scaled as params say. */
tutti_attention_desc tti_model_attention(const tutti_model_params *params,
                                         const tti_model_size *size, int64_t i);

/* Writes "PREFIX.i.SUFFIX" to text. */
enum { TTI_MODEL_NAME = 128 };
const char *tti_layer_name(char text[TTI_MODEL_NAME], const char *prefix, int64_t i,
                           const char *suffix);

/* ---- models of images ---- */

/* Returns true if x is f32[N,C,H,W]; otherwise stores the reason in g. */
bool tti_model_check_images(tutti_graph *g, const char *model, const tutti_value *x);

/* Like tti_model_find_size, for convnext and swin: with the values of params applied, in *out.
 * Returns false, with the reason stored in g, for values that such a model does not have. */
bool tti_model_pick_stages(tutti_graph *g, const char *model, const tutti_model_params *params,
                           const tti_model_size *sizes, tti_model_size *out);

/* Stochastic depth (Huang et al. 2016) for a residual branch of block i of n: the probability grows
 * linearly from 0 to params->drop_path. */
tutti_value *tti_model_drop_path(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                                 int64_t i, int64_t n, const char *name);

/* Applies dropout if params ask for it. */
tutti_value *tti_model_dropout(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                               const char *name);

/* A linear layer whose initial weights are normal with that standard deviation. */
tutti_value *tti_model_linear(tutti_graph *g, tutti_value *x, int64_t n_out, double deviation,
                              const char *name);

/* Writes "PREFIXSUFFIX" to text. */
const char *tti_model_join(char text[TTI_MODEL_NAME], const char *prefix, const char *suffix);

#endif /* TTI_MODELS_MODELS_H */

/* vit.c - vision transformers (Dosovitskiy et al. 2020): x [N,C,H,W] -> logits [N,n_classes].
 *
 * Names and initial values are torchvision's. The lists below map weight names of timm and of
 * Hugging Face's ViTForImageClassification. The class token and the positions have no weight
 * decay. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "models/models.h"
#include "tutti/functional.h"

enum { PATCH = 16 };

static const tti_model_size sizes[] = {
    {.name = "base", .n_layers = 12, .n_heads = 12, .width = 768},
    {.name = "tiny", .n_layers = 12, .n_heads = 3, .width = 192},
    {.name = "small", .n_layers = 12, .n_heads = 6, .width = 384},
    {.name = "large", .n_layers = 24, .n_heads = 16, .width = 1024},
    {0},
};

static const tutti_weight_alias timm[] = {{"^class_token", "cls_token"},
                                          {"^encoder.pos_embedding", "pos_embed"},
                                          {"^conv_proj.", "patch_embed.proj."},
                                          {"^encoder.layers.encoder_layer_", "blocks."},
                                          {"^encoder.ln.", "norm."},
                                          {"^heads.head.", "head."},
                                          {".ln_1.", ".norm1."},
                                          {".ln_2.", ".norm2."},
                                          {".self_attention.in_proj_", ".attn.qkv."},
                                          {".self_attention.out_proj.", ".attn.proj."},
                                          {".mlp.0.", ".mlp.fc1."},
                                          {".mlp.3.", ".mlp.fc2."},
                                          {0}};

#define HF_QKV(kind) ".attention.attention.{query." kind "|key." kind "|value." kind "}"
static const tutti_weight_alias hugging_face[] = {
    {"^class_token", "vit.embeddings.cls_token"},
    {"^encoder.pos_embedding", "vit.embeddings.position_embeddings"},
    {"^conv_proj.", "vit.embeddings.patch_embeddings.projection."},
    {"^encoder.layers.encoder_layer_", "vit.encoder.layer."},
    {"^encoder.ln.", "vit.layernorm."},
    {"^heads.head.", "classifier."},
    {".ln_1.", ".layernorm_before."},
    {".ln_2.", ".layernorm_after."},
    {".self_attention.in_proj_weight", HF_QKV("weight")},
    {".self_attention.in_proj_bias", HF_QKV("bias")},
    {".self_attention.out_proj.", ".attention.output.dense."},
    {".mlp.0.", ".intermediate.dense."},
    {".mlp.3.", ".output.dense."},
    {0}};

const tutti_weight_alias *const tti_vit_aliases[] = {timm, hugging_face, NULL};
const char *const tti_vit_surplus[] = {"vit.pooler.*", "vit.embeddings.mask_token", NULL};

typedef struct vit {
    tutti_graph *g;
    const tutti_model_params *p;
    tti_model_size size;
    tutti_norm_desc norm;
} vit;

static const char *layer_name(char text[TTI_MODEL_NAME], int64_t i, const char *suffix) {
    snprintf(text, TTI_MODEL_NAME, "encoder.layers.encoder_layer_%" PRId64 ".%s", i, suffix);
    return text;
}

/* ---- tokens ---- */

/* Adds the class token in front and the positions to all: x[N,T,width] -> [N,1+T,width]. */
static tutti_value *add_positions(const vit *m, tutti_value *x) {
    static const tutti_init zeros = {0}, normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.02};
    int64_t n_patches = tutti_value_type(x).shape.dim[1], width = m->size.width;
    tutti_value *token = tutti_param(m->g, "class_token", &TUTTI_SHAPE(1, 1, width), &zeros, false);
    tutti_value *at = tutti_param(m->g, "encoder.pos_embedding",
                                  &TUTTI_SHAPE(1, 1 + n_patches, width), &normal, false);
    at = tutti_add(m->g, at, tutti_pad(m->g, token, 1, 0, n_patches));
    return tutti_add(m->g, tutti_pad(m->g, x, 1, 1, 0), at);
}

static tutti_value *embed(const vit *m, tutti_value *x) {
    tutti_type type = tutti_value_type(x);
    int64_t patch = m->p->patch > 0 ? m->p->patch : PATCH, width = m->size.width;
    const int64_t *dim = type.shape.dim;
    if (dim[2] % patch != 0 || dim[3] % patch != 0 || dim[2] * dim[3] == 0) {
        char why[256];
        snprintf(why, sizeof why,
                 "vit: images of %" PRId64 "x%" PRId64 " cannot be divided into patches of %" PRId64
                 "x%" PRId64 "; give model.patch, or another data.image_size",
                 dim[2], dim[3], patch, patch);
        return tutti_graph_refuse(m->g, why);
    }
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = sqrt(1 / (double)(dim[1] * patch * patch))};
    tutti_conv2d_desc desc = {.n_out = width, .kernel = patch, .stride = patch, .init = &init};
    x = tutti_conv2d(m->g, x, &desc, "conv_proj");
    int64_t n_patches = dim[2] / patch * (dim[3] / patch);
    x = tutti_reshape(m->g, x, &TUTTI_SHAPE(dim[0], width, n_patches));
    return add_positions(m, tutti_transpose(m->g, x, 1, 2));
}

/* ---- blocks ---- */

static tutti_value *attend(const vit *m, tutti_value *x, int64_t i) {
    char text[TTI_MODEL_NAME];
    static const tutti_init xavier = {.kind = TUTTI_INIT_XAVIER_UNIFORM};
    static const tutti_init uniform = {.kind = TUTTI_INIT_FAN_IN_UNIFORM};
    int64_t width = m->size.width;
    tutti_value *w = tutti_param(m->g, layer_name(text, i, "self_attention.in_proj_weight"),
                                 &TUTTI_SHAPE(3 * width, width), &xavier, true);
    tutti_value *b = tutti_param(m->g, layer_name(text, i, "self_attention.in_proj_bias"),
                                 &TUTTI_SHAPE(3 * width), &(tutti_init){0}, false);
    tutti_attention_desc desc = tti_model_attention(m->p, &m->size, i);
    x = tutti_attention(m->g, tutti_linear_of(m->g, x, w, b), NULL, &desc);
    return tutti_linear_with(m->g, x, &(tutti_linear_desc){.n_out = width, .init = &uniform},
                             layer_name(text, i, "self_attention.out_proj"));
}

static tutti_value *mlp(const vit *m, tutti_value *x, int64_t i) {
    char text[TTI_MODEL_NAME];
    static const tutti_init xavier = {.kind = TUTTI_INIT_XAVIER_UNIFORM};
    tutti_linear_desc desc = {.n_out = m->size.mlp_width, .init = &xavier};
    x = tutti_linear_with(m->g, x, &desc, layer_name(text, i, "mlp.0"));
    x = tti_model_activate(m->g, x, m->p->activation, "gelu");
    x = tti_model_dropout(m->g, x, m->p, layer_name(text, i, "mlp.2"));
    desc.n_out = m->size.width;
    return tutti_linear_with(m->g, x, &desc, layer_name(text, i, "mlp.3"));
}

static tutti_value *block(const vit *m, tutti_value *x, int64_t i) {
    char text[TTI_MODEL_NAME];
    tutti_value *y = tutti_layer_norm(m->g, x, &m->norm, layer_name(text, i, "ln_1"));
    y = tti_model_dropout(m->g, attend(m, y, i), m->p, layer_name(text, i, "dropout"));
    y = tti_model_drop_path(m->g, y, m->p, i, m->size.n_layers, layer_name(text, i, "drop_path1"));
    x = tutti_add(m->g, x, y);
    y = tutti_layer_norm(m->g, x, &m->norm, layer_name(text, i, "ln_2"));
    y = tti_model_dropout(m->g, mlp(m, y, i), m->p, layer_name(text, i, "mlp.4"));
    y = tti_model_drop_path(m->g, y, m->p, i, m->size.n_layers, layer_name(text, i, "drop_path2"));
    return tutti_add(m->g, x, y);
}

/* ---- the model ---- */

static bool pick_size(vit *m) {
    const tutti_model_params *p = m->p;
    const tti_model_size *size = tti_model_find_size(m->g, "vit", sizes, p->size);
    if (!size) return false;
    m->size = (tti_model_size){.n_layers = p->n_layers > 0 ? p->n_layers : size->n_layers,
                               .n_heads = p->n_heads > 0 ? p->n_heads : size->n_heads,
                               .width = p->width > 0 ? p->width : size->width};
    m->size.mlp_width = p->mlp_width > 0 ? p->mlp_width : 4 * m->size.width;
    return tti_model_check_heads(m->g, "vit", &m->size);
}

tutti_value *tti_model_vit(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    vit m = {.g = g, .p = p, .norm = {.eps = p->norm_eps > 0 ? p->norm_eps : 1e-6}};
    if (!tti_model_check_images(g, "vit", x) || !pick_size(&m)) return NULL;
    x = tti_model_dropout(g, embed(&m, x), p, "encoder.dropout");
    for (int64_t i = 0; i < m.size.n_layers && x; i++) x = block(&m, x, i);
    x = tutti_layer_norm(g, tutti_select(g, x, 1, 0), &m.norm, "encoder.ln");
    return tutti_linear_with(
        g, x, &(tutti_linear_desc){.n_out = p->n_classes, .init = &(tutti_init){0}}, "heads.head");
}

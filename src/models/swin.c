/* swin.c - Swin, transformers with shifted windows (Liu et al. 2021, version 1): x [N,C,H,W] ->
 * logits [N,n_classes].
 *
 * Names, initial values and the treatment of odd sizes are torchvision's. The lists below map
 * weight names of timm and of Hugging Face's SwinForImageClassification. Values between blocks are
 * [N,H,W,C]. Windows are the batch of the attention; parts of a shifted image that are not adjacent
 * in the original are separate segments of the attention. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/models.h"

enum { PATCH = 4, WINDOW = 7, HEAD_WIDTH = 32, MAX_WINDOW = 64 };

static const tti_model_size sizes[] = {
    {.name = "tiny", .depths = {2, 2, 6, 2}, .width = 96},
    {.name = "small", .depths = {2, 2, 18, 2}, .width = 96},
    {.name = "base", .depths = {2, 2, 18, 2}, .width = 128},
    {.name = "large", .depths = {2, 2, 18, 2}, .width = 192},
    {0},
};

#define STAGES_OF_TIMM                                                              \
    {"^features.1.", "layers.0.blocks."}, {"^features.3.", "layers.1.blocks."},     \
        {"^features.5.", "layers.2.blocks."}, {"^features.7.", "layers.3.blocks."}, \
        {"^features.0.0.", "patch_embed.proj."}, {                                  \
        "^features.0.2.", "patch_embed.norm."                                       \
    }

static const tutti_weight_alias timm[] = {STAGES_OF_TIMM,
                                          {"^features.2.", "layers.1.downsample."},
                                          {"^features.4.", "layers.2.downsample."},
                                          {"^features.6.", "layers.3.downsample."},
                                          {"^head.", "head.fc."},
                                          {".mlp.0.", ".mlp.fc1."},
                                          {".mlp.3.", ".mlp.fc2."},
                                          {0}};

/* Also the names of older versions of timm. */
static const tutti_weight_alias authors[] = {STAGES_OF_TIMM,
                                             {"^features.2.", "layers.0.downsample."},
                                             {"^features.4.", "layers.1.downsample."},
                                             {"^features.6.", "layers.2.downsample."},
                                             {".mlp.0.", ".mlp.fc1."},
                                             {".mlp.3.", ".mlp.fc2."},
                                             {0}};

#define HF_QKV(kind) ".attention.self.{query." kind "|key." kind "|value." kind "}"
static const tutti_weight_alias hugging_face[] = {
    {"^features.0.0.", "swin.embeddings.patch_embeddings.projection."},
    {"^features.0.2.", "swin.embeddings.norm."},
    {"^features.1.", "swin.encoder.layers.0.blocks."},
    {"^features.2.", "swin.encoder.layers.0.downsample."},
    {"^features.3.", "swin.encoder.layers.1.blocks."},
    {"^features.4.", "swin.encoder.layers.1.downsample."},
    {"^features.5.", "swin.encoder.layers.2.blocks."},
    {"^features.6.", "swin.encoder.layers.2.downsample."},
    {"^features.7.", "swin.encoder.layers.3.blocks."},
    {"^norm.", "swin.layernorm."},
    {"^head.", "classifier."},
    {".norm1.", ".layernorm_before."},
    {".norm2.", ".layernorm_after."},
    {".attn.qkv.weight", HF_QKV("weight")},
    {".attn.qkv.bias", HF_QKV("bias")},
    {".attn.proj.", ".attention.output.dense."},
    {".attn.relative_position_bias_table", ".attention.self.relative_position_bias_table"},
    {".mlp.0.", ".intermediate.dense."},
    {".mlp.3.", ".output.dense."},
    {0}};

const tutti_weight_alias *const tti_swin_aliases[] = {timm, authors, hugging_face, NULL};
const char *const tti_swin_surplus[] = {"*.relative_position_index", "*.attn_mask",
                                        "swin.embeddings.mask_token", NULL};

static const tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.02};

typedef struct swin {
    tutti_graph *g;
    const tutti_model_params *p;
    tti_model_size size;
    tutti_norm_desc norm;
    int64_t side;          /* side length of a window */
    int64_t n_done, n_all; /* blocks over all stages */
} swin;

/* A block's image [N,h,w,width], padded to whole windows, and how far it is shifted. */
typedef struct grid {
    int64_t n, h, w, width, heads;
    int64_t padded[2], shift[2], n_windows;
} grid;

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

static grid grid_of(const swin *m, const tutti_value *x, int64_t heads, bool shifted) {
    tutti_type type = tutti_value_type(x);
    const int64_t *dim = type.shape.dim;
    grid a = {.n = dim[0], .h = dim[1], .w = dim[2], .width = dim[3], .heads = heads};
    for (int i = 0; i < 2; i++) {
        a.padded[i] = round_up(dim[1 + i], m->side);
        a.shift[i] = shifted && a.padded[i] > m->side ? m->side / 2 : 0;
    }
    a.n_windows = a.padded[0] / m->side * (a.padded[1] / m->side);
    return a;
}

/* ---- windows ---- */

/* Rolls x along axis, so that position `start` becomes the first one. */
static tutti_value *roll(const swin *m, tutti_value *x, int axis, int64_t start) {
    if (start == 0 || !x) return x;
    int64_t n = tutti_value_type(x).shape.dim[axis];
    tutti_value *part[] = {tutti_slice(m->g, x, axis, start, n - start),
                           tutti_slice(m->g, x, axis, 0, start)};
    return tutti_concat(m->g, part, 2, axis);
}

/* [N,h,w,C] -> [N windows, side side, C] */
static tutti_value *to_windows(const swin *m, tutti_value *x, const grid *a) {
    for (int i = 0; i < 2; i++) {
        int64_t more = a->padded[i] - (i == 0 ? a->h : a->w);
        if (more > 0) x = tutti_pad(m->g, x, 1 + i, 0, more);
        x = roll(m, x, 1 + i, a->shift[i]);
    }
    int64_t side = m->side, rows = a->padded[0] / side, cols = a->padded[1] / side;
    x = tutti_reshape(m->g, x, &TUTTI_SHAPE(a->n, rows, side, cols, side, a->width));
    x = tutti_permute(m->g, x, (int[]){0, 1, 3, 2, 4, 5}, 6);
    return tutti_reshape(m->g, x, &TUTTI_SHAPE(a->n * a->n_windows, side * side, a->width));
}

static tutti_value *from_windows(const swin *m, tutti_value *x, const grid *a) {
    int64_t side = m->side, rows = a->padded[0] / side, cols = a->padded[1] / side;
    x = tutti_reshape(m->g, x, &TUTTI_SHAPE(a->n, rows, cols, side, side, a->width));
    x = tutti_permute(m->g, x, (int[]){0, 1, 3, 2, 4, 5}, 6);
    x = tutti_reshape(m->g, x, &TUTTI_SHAPE(a->n, a->padded[0], a->padded[1], a->width));
    for (int i = 0; i < 2; i++) {
        int64_t len = i == 0 ? a->h : a->w;
        x = roll(m, x, 1 + i, a->shift[i] > 0 ? a->padded[i] - a->shift[i] : 0);
        if (len < a->padded[i]) x = tutti_slice(m->g, x, 1 + i, 0, len);
    }
    return x;
}

/* ---- attention between positions of a window ---- */

/* Returns the part of position i of n in the shifted image: 0 before the last window, 1 in the last
 * window, 2 moved into it from the other end. */
static int part_of(int64_t i, int64_t n, int64_t side, int64_t shift) {
    return shift == 0 || i < n - side ? 0 : i < n - shift ? 1 : 2;
}

/* Returns i32 [N windows, side side] with the part of the image that a position comes from. */
static tutti_value *segments_of(const swin *m, tutti_value *windows, const grid *a) {
    int64_t side = m->side, area = side * side, at = 0;
    float *part = malloc((size_t)(a->n_windows * area) * sizeof *part + 1);
    if (!part) return tutti_graph_refuse(m->g, "swin: out of memory");
    for (int64_t y = 0; y < a->padded[0]; y += side)
        for (int64_t x = 0; x < a->padded[1]; x += side)
            for (int64_t i = 0; i < area; i++)
                part[at++] = (float)(3 * part_of(y + i / side, a->padded[0], side, a->shift[0]) +
                                     part_of(x + i % side, a->padded[1], side, a->shift[1]));
    tutti_value *parts =
        tutti_constant_array(m->g, TUTTI_F32, &TUTTI_SHAPE(1, a->n_windows, area), part);
    free(part);
    /* A zero for each position, computed from windows so that it has the batch dimension. */
    tutti_value *zero = tutti_slice(m->g, windows, 2, 0, 1);
    zero = tutti_reshape(m->g, zero, &TUTTI_SHAPE(a->n, a->n_windows, area));
    zero = tutti_keep(m->g, zero, tutti_constant(m->g, TUTTI_F32, &(tutti_shape){0}, 0));
    parts = tutti_cast(m->g, tutti_add(m->g, zero, parts), TUTTI_I32);
    return tutti_reshape(m->g, parts, &TUTTI_SHAPE(a->n * a->n_windows, area));
}

/* Returns [1,heads,side side,side side]: a learned number for each distance of two positions. */
static tutti_value *bias_of(const swin *m, int64_t heads, const char *prefix) {
    char text[TTI_MODEL_NAME];
    int64_t side = m->side, area = side * side, span = 2 * side - 1;
    tutti_value *table =
        tutti_param(m->g, tti_model_join(text, prefix, "attn.relative_position_bias_table"),
                    &TUTTI_SHAPE(span * span, heads), &normal, false);
    int32_t *row = malloc((size_t)(area * area) * sizeof *row);
    if (!row) return tutti_graph_refuse(m->g, "swin: out of memory");
    for (int64_t i = 0; i < area; i++)
        for (int64_t j = 0; j < area; j++)
            row[i * area + j] =
                (int32_t)((i / side - j / side + side - 1) * span + i % side - j % side + side - 1);
    tutti_value *rows = tutti_constant_array(m->g, TUTTI_I32, &TUTTI_SHAPE(area * area), row);
    free(row);
    tutti_value *bias = tutti_transpose(m->g, tutti_lookup(m->g, table, rows), 0, 1);
    return tutti_reshape(m->g, bias, &TUTTI_SHAPE(1, heads, area, area));
}

/* ---- blocks ---- */

static tutti_value *attend(const swin *m, tutti_value *x, const grid *a, const char *prefix) {
    char text[TTI_MODEL_NAME];
    tutti_value *qkv[3];
    x = to_windows(m, x, a);
    tutti_sdpa_desc desc = {.heads = a->heads, .bias = bias_of(m, a->heads, prefix)};
    if (a->shift[0] > 0 || a->shift[1] > 0)
        desc.query_segments = desc.key_segments = segments_of(m, x, a);
    if (!desc.bias || tutti_graph_check(m->g) != TUTTI_OK) return NULL;
    x = tti_model_linear(m->g, x, 3 * a->width, normal.b, tti_model_join(text, prefix, "attn.qkv"));
    tutti_split(m->g, x, 2, 3, qkv);
    x = tutti_sdpa(m->g, qkv[0], qkv[1], qkv[2], &desc);
    x = tti_model_linear(m->g, x, a->width, normal.b, tti_model_join(text, prefix, "attn.proj"));
    return from_windows(m, x, a);
}

static tutti_value *mlp(const swin *m, tutti_value *x, int64_t width, const char *prefix) {
    char text[TTI_MODEL_NAME];
    x = tti_model_linear(m->g, x, 4 * width, normal.b, tti_model_join(text, prefix, "mlp.0"));
    x = tti_model_dropout(m->g, tutti_gelu(m->g, x), m->p, tti_model_join(text, prefix, "mlp.2"));
    return tti_model_linear(m->g, x, width, normal.b, tti_model_join(text, prefix, "mlp.3"));
}

static tutti_value *block(swin *m, tutti_value *x, int64_t heads, bool shifted,
                          const char *prefix) {
    char text[TTI_MODEL_NAME];
    grid a = grid_of(m, x, heads, shifted);
    tutti_value *y = tutti_layer_norm(m->g, x, &m->norm, tti_model_join(text, prefix, "norm1"));
    y = tti_model_dropout(m->g, attend(m, y, &a, prefix), m->p,
                          tti_model_join(text, prefix, "attn.dropout"));
    y = tti_model_drop_path(m->g, y, m->p, m->n_done, m->n_all,
                            tti_model_join(text, prefix, "drop_path1"));
    x = tutti_add(m->g, x, y);
    y = tutti_layer_norm(m->g, x, &m->norm, tti_model_join(text, prefix, "norm2"));
    y = tti_model_dropout(m->g, mlp(m, y, a.width, prefix), m->p,
                          tti_model_join(text, prefix, "mlp.4"));
    y = tti_model_drop_path(m->g, y, m->p, m->n_done++, m->n_all,
                            tti_model_join(text, prefix, "drop_path2"));
    return tutti_add(m->g, x, y);
}

/* ---- stages ---- */

/* Merges each 2x2 positions into one with twice the width. Odd sizes are padded with zeros at the
 * end. */
static tutti_value *merge(const swin *m, tutti_value *x, const char *prefix) {
    char text[TTI_MODEL_NAME];
    tutti_type type = tutti_value_type(x);
    int64_t n = type.shape.dim[0], width = type.shape.dim[3], half[2];
    for (int i = 0; i < 2; i++) {
        int64_t len = type.shape.dim[1 + i];
        half[i] = (len + 1) / 2;
        if (len % 2) x = tutti_pad(m->g, x, 1 + i, 0, 1);
    }
    x = tutti_reshape(m->g, x, &TUTTI_SHAPE(n, half[0], 2, half[1], 2, width));
    x = tutti_permute(m->g, x, (int[]){0, 1, 3, 4, 2, 5}, 6);
    x = tutti_reshape(m->g, x, &TUTTI_SHAPE(n, half[0], half[1], 4 * width));
    x = tutti_layer_norm(m->g, x, &m->norm, tti_model_join(text, prefix, "norm"));
    tutti_linear_desc desc = {.n_out = 2 * width, .no_bias = true, .init = &normal};
    return tutti_linear_with(m->g, x, &desc, tti_model_join(text, prefix, "reduction"));
}

static tutti_value *stage(swin *m, tutti_value *x, int s) {
    char name[TTI_MODEL_NAME];
    if (s > 0) {
        snprintf(name, sizeof name, "features.%d.", 2 * s);
        x = merge(m, x, name);
    }
    for (int64_t i = 0; i < m->size.depths[s] && x; i++) {
        snprintf(name, sizeof name, "features.%d.%" PRId64 ".", 2 * s + 1, i);
        x = block(m, x, m->size.n_heads << s, i % 2 == 1, name);
    }
    return x;
}

static bool pick_size(swin *m) {
    const tutti_model_params *p = m->p;
    if (!tti_model_pick_stages(m->g, "swin", p, sizes, &m->size)) return false;
    int64_t usual = m->size.width / HEAD_WIDTH;
    m->size.n_heads = p->n_heads > 0 ? p->n_heads : usual > 0 ? usual : 1;
    m->side = p->window > 0 ? p->window : WINDOW;
    if (m->side > MAX_WINDOW) {
        (void)tutti_graph_refuse(m->g, "swin: model.window: at most 64 is supported");
        return false;
    }
    for (int s = 0; s < TTI_MODEL_STAGES; s++) m->n_all += m->size.depths[s];
    return tti_model_check_heads(m->g, "swin", &m->size);
}

/* [N,C,H,W] -> [N,H/4,W/4,width] */
static tutti_value *embed(const swin *m, tutti_value *x) {
    static const tutti_init uniform = {.kind = TUTTI_INIT_FAN_IN_UNIFORM};
    tutti_conv2d_desc desc = {
        .n_out = m->size.width, .kernel = PATCH, .stride = PATCH, .init = &uniform};
    x = tutti_conv2d(m->g, x, &desc, "features.0.0");
    x = tutti_permute(m->g, x, (int[]){0, 2, 3, 1}, 4);
    return tutti_layer_norm(m->g, x, &m->norm, "features.0.2");
}

tutti_value *tti_model_swin(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    swin m = {.g = g, .p = p, .norm = {.eps = p->norm_eps > 0 ? p->norm_eps : 1e-5}};
    if (!tti_model_check_images(g, "swin", x) || !pick_size(&m)) return NULL;
    x = embed(&m, x);
    for (int s = 0; s < TTI_MODEL_STAGES && x; s++) x = stage(&m, x, s);
    x = tutti_layer_norm(g, x, &m.norm, "norm");
    x = tutti_mean(g, x, &(tutti_axes){.n = 2, .axis = {1, 2}});
    return tti_model_linear(g, x, p->n_classes, normal.b, "head");
}

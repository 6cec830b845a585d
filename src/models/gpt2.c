/* gpt2.c - GPT-2 (Radford et al. 2019): x i32[N,T] tokens -> logits [N,T,vocabulary].
 *
 * Names are those of Hugging Face's GPT2LMHeadModel.  Its Conv1D weights are [in,out]; ours are
 * [out,in], as in every linear layer (tti_gpt2_transposed).  The output layer is the token table,
 * unless params untie it: then it is lm_head.weight.  Initial values are normal with deviation
 * 0.02, and smaller for layers that add to the residual stream.  Training and decoding differ in
 * the attention only, so both use block(). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/models.h"

static const tti_model_size sizes[] = {
    {.name = "124M", .n_layers = 12, .n_heads = 12, .width = 768},
    {.name = "355M", .n_layers = 24, .n_heads = 16, .width = 1024},
    {.name = "774M", .n_layers = 36, .n_heads = 20, .width = 1280},
    {.name = "1558M", .n_layers = 48, .n_heads = 25, .width = 1600},
    {0},
};

const char *const tti_gpt2_transposed[] = {
    "transformer.h.*.attn.c_attn.weight", "transformer.h.*.attn.c_proj.weight",
    "transformer.h.*.mlp.c_fc.weight", "transformer.h.*.mlp.c_proj.weight", NULL};

typedef struct gpt {
    tutti_graph *g;
    const tutti_model_params *p;
    tti_model_size size;
    tutti_value *pos;       /* i32[1] while decoding; NULL: all positions at once */
    tutti_value *wte, *wpe; /* tables of tokens [vocabulary,width], positions [context,width] */
} gpt;

static tutti_value *table(const gpt *m, const char *name, int64_t n_rows) {
    tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.02};
    return tutti_param(m->g, name, &TUTTI_SHAPE(n_rows, m->size.width), &normal, true);
}

static tutti_value *drop(const gpt *m, tutti_value *x, const char *name) {
    bool drops = m->p->dropout > 0 && !m->pos;
    return drops ? tutti_dropout(m->g, x, m->p->dropout, name) : x;
}

/* A linear layer of block i.  The last layer of a residual branch starts with smaller weights. */
static tutti_value *linear(const gpt *m, tutti_value *x, int64_t i, int64_t n_out,
                           const char *name) {
    char text[TTI_MODEL_NAME];
    bool ends_branch = strstr(name, "c_proj") != NULL;
    double scale = ends_branch ? 1 / sqrt(2.0 * (double)m->size.n_layers) : 1;
    tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.02 * scale};
    return tutti_linear_with(m->g, x, &(tutti_linear_desc){.n_out = n_out, .init = &normal},
                             tti_layer_name(text, "transformer.h", i, name));
}

static tutti_value *norm(const gpt *m, tutti_value *x, int64_t i, const char *name) {
    char text[TTI_MODEL_NAME];
    return tutti_layer_norm(m->g, x, &(tutti_norm_desc){.eps = m->p->norm_eps},
                            tti_layer_name(text, "transformer.h", i, name));
}

/* Adds the cache of layer i as input "NAME.i". */
static tutti_value *cache_in(const gpt *m, const tutti_value *qkv, const char *name, int64_t i) {
    char text[TTI_MODEL_NAME];
    snprintf(text, sizeof text, "%s.%" PRId64, name, i);
    int64_t n = tutti_value_type(qkv).shape.dim[0];
    return tutti_input(m->g, text, TUTTI_F32, &TUTTI_SHAPE(n, m->size.context, m->size.width));
}

static void cache_out(const gpt *m, tutti_value *cache, const char *name, int64_t i) {
    char text[TTI_MODEL_NAME];
    snprintf(text, sizeof text, "%s.%" PRId64, name, i);
    tutti_output(m->g, text, cache);
}

static tutti_value *attend(const gpt *m, tutti_value *qkv, int64_t i) {
    tutti_attention_desc desc = tti_model_attention(m->p, &m->size, i);
    desc.causal = true;
    if (!qkv) return NULL;
    if (!m->pos) return tutti_attention(m->g, qkv, NULL, &desc);
    tutti_value *k = cache_in(m, qkv, "k_cache", i), *v = cache_in(m, qkv, "v_cache", i);
    desc.causal = false;
    tutti_cached_attention made = tutti_attention_cached(m->g, qkv, k, v, m->pos, &desc);
    cache_out(m, made.k_cache, "k_cache", i);
    cache_out(m, made.v_cache, "v_cache", i);
    return made.y;
}

static tutti_value *block(const gpt *m, tutti_value *x, int64_t i) {
    char text[TTI_MODEL_NAME];
    int64_t width = m->size.width;
    tutti_value *y = linear(m, norm(m, x, i, "ln_1"), i, 3 * width, "attn.c_attn");
    y = linear(m, attend(m, y, i), i, width, "attn.c_proj");
    y = drop(m, y, tti_layer_name(text, "transformer.h", i, "attn.resid_dropout"));
    x = tutti_add(m->g, x, y);
    y = linear(m, norm(m, x, i, "ln_2"), i, m->size.mlp_width, "mlp.c_fc");
    y = tti_model_activate(m->g, y, m->p->activation, "gelu_tanh");
    y = linear(m, y, i, width, "mlp.c_proj");
    y = drop(m, y, tti_layer_name(text, "transformer.h", i, "mlp.dropout"));
    return tutti_add(m->g, x, y);
}

static tutti_value *logits(gpt *m, tutti_value *tokens) {
    int64_t n_positions = tutti_value_type(tokens).shape.dim[1];
    m->wte = table(m, "transformer.wte.weight", m->size.vocabulary);
    m->wpe = table(m, "transformer.wpe.weight", m->size.context);
    tutti_value *at = m->wpe;
    if (m->pos)
        at = tutti_lookup(m->g, m->wpe, m->pos);
    else if (n_positions < m->size.context)
        at = tutti_slice(m->g, m->wpe, 0, 0, n_positions);
    tutti_value *x = tutti_add(m->g, tutti_lookup(m->g, m->wte, tokens), at);
    x = drop(m, x, "transformer.drop");
    for (int64_t i = 0; i < m->size.n_layers && x; i++) x = block(m, x, i);
    x = tutti_layer_norm(m->g, x, &(tutti_norm_desc){.eps = m->p->norm_eps}, "transformer.ln_f");
    tutti_value *head = m->p->untied ? table(m, "lm_head.weight", m->size.vocabulary) : m->wte;
    return tutti_matmul_with(m->g, x, head, false, true);
}

tutti_value *tti_model_gpt2(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    gpt m = {.g = g, .p = p};
    if (!tti_model_pick_size(g, "gpt2", x, p, sizes, &m.size)) return NULL;
    return logits(&m, x);
}

tutti_value *tti_gpt2_decode(tutti_graph *g, tutti_value *tokens, tutti_value *pos,
                             const tutti_model_params *params) {
    gpt m = {.g = g, .p = params, .pos = pos};
    if (!pos || !tti_model_pick_size(g, "gpt2", tokens, params, sizes, &m.size)) return NULL;
    if (tutti_value_type(tokens).shape.dim[1] != 1)
        return tutti_graph_refuse(g, "gpt2: decoding takes one token at a time");
    return logits(&m, tokens);
}

/* bert.c - BERT (Devlin et al. 2018): x i32[N,T] tokens -> logits of every token, [N,T,vocabulary],
 * to predict masked tokens; or of the sample, [N,n_classes], from its first token.
 *
 * Names are those of Hugging Face's BertForMaskedLM and BertForSequenceClassification; queries,
 * keys and values are three layers, as there.  All tokens belong to the first segment. Attention
 * ignores pad tokens, which are found in x itself. */
#include <stdio.h>

#include "models/models.h"

static const tti_model_size sizes[] = {
    {.name = "base", .n_layers = 12, .n_heads = 12, .width = 768},
    {.name = "tiny", .n_layers = 2, .n_heads = 2, .width = 128},
    {.name = "mini", .n_layers = 4, .n_heads = 4, .width = 256},
    {.name = "small", .n_layers = 4, .n_heads = 8, .width = 512},
    {.name = "medium", .n_layers = 8, .n_heads = 8, .width = 512},
    {.name = "large", .n_layers = 24, .n_heads = 16, .width = 1024},
    {0},
};

static const tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.02};

typedef struct bert {
    tutti_graph *g;
    const tutti_model_params *p;
    tti_model_size size;
    tutti_value *lengths; /* i32[N]; NULL: no padding */
    tutti_value *words;   /* table of tokens [vocabulary,width] */
    tutti_norm_desc norm;
} bert;

static tutti_value *table(const bert *m, const char *name, int64_t n_rows) {
    return tutti_param(m->g, name, &TUTTI_SHAPE(n_rows, m->size.width), &normal, true);
}

static tutti_value *drop(const bert *m, tutti_value *x, const char *name) {
    return m->p->dropout > 0 ? tutti_dropout(m->g, x, m->p->dropout, name) : x;
}

static tutti_value *linear(const bert *m, tutti_value *x, int64_t n_out, const char *name) {
    return tutti_linear_with(m->g, x, &(tutti_linear_desc){.n_out = n_out, .init = &normal}, name);
}

static tutti_value *layer_linear(const bert *m, tutti_value *x, int64_t i, int64_t n_out,
                                 const char *name) {
    char text[TTI_MODEL_NAME];
    return linear(m, x, n_out, tti_layer_name(text, "bert.encoder.layer", i, name));
}

/* Ends a residual branch: NAME.dropout, then NAME.LayerNorm of the sum. */
static tutti_value *add_norm(const bert *m, tutti_value *x, tutti_value *y, int64_t i,
                             const char *name) {
    char suffix[TTI_MODEL_NAME / 2], text[TTI_MODEL_NAME];
    snprintf(suffix, sizeof suffix, "%s.dropout", name);
    y = drop(m, y, tti_layer_name(text, "bert.encoder.layer", i, suffix));
    snprintf(suffix, sizeof suffix, "%s.LayerNorm", name);
    return tutti_layer_norm(m->g, tutti_add(m->g, x, y), &m->norm,
                            tti_layer_name(text, "bert.encoder.layer", i, suffix));
}

/* Returns i32[N], the number of tokens of each sample that are not padding. */
static tutti_value *count_tokens(const bert *m, tutti_value *tokens) {
    tutti_value *x = tutti_cast(m->g, tokens, TUTTI_F32);
    x = tutti_affine(m->g, x, 1, -(double)m->p->pad_token);
    x = tutti_square(m->g, tutti_sign(m->g, x)); /* 0 for padding, else 1 */
    return tutti_cast(m->g, tutti_sum(m->g, x, &(tutti_axes){.n = 1, .axis = {1}}), TUTTI_I32);
}

static tutti_value *embed(const bert *m, tutti_value *tokens) {
    int64_t n_positions = tutti_value_type(tokens).shape.dim[1];
    tutti_value *at = table(m, "bert.embeddings.position_embeddings.weight", m->size.context);
    tutti_value *segments = table(m, "bert.embeddings.token_type_embeddings.weight",
                                  m->p->n_segments > 0 ? m->p->n_segments : 2);
    if (n_positions < m->size.context) at = tutti_slice(m->g, at, 0, 0, n_positions);
    at = tutti_add(m->g, at, tutti_slice(m->g, segments, 0, 0, 1));
    tutti_value *x = tutti_add(m->g, tutti_lookup(m->g, m->words, tokens), at);
    x = tutti_layer_norm(m->g, x, &m->norm, "bert.embeddings.LayerNorm");
    return drop(m, x, "bert.embeddings.dropout");
}

static tutti_value *encode(const bert *m, tutti_value *x, int64_t i) {
    int64_t width = m->size.width;
    tutti_value *qkv[] = {layer_linear(m, x, i, width, "attention.self.query"),
                          layer_linear(m, x, i, width, "attention.self.key"),
                          layer_linear(m, x, i, width, "attention.self.value")};
    tutti_attention_desc desc = tti_model_attention(m->p, &m->size, i);
    tutti_value *y = tutti_attention(m->g, tutti_concat(m->g, qkv, 3, 2), m->lengths, &desc);
    y = layer_linear(m, y, i, width, "attention.output.dense");
    x = add_norm(m, x, y, i, "attention.output");
    y = layer_linear(m, x, i, m->size.mlp_width, "intermediate.dense");
    y = tti_model_activate(m->g, y, m->p->activation, "gelu");
    y = layer_linear(m, y, i, width, "output.dense");
    return add_norm(m, x, y, i, "output");
}

static tutti_value *guess_tokens(const bert *m, tutti_value *x) {
    x = linear(m, x, m->size.width, "cls.predictions.transform.dense");
    x = tti_model_activate(m->g, x, m->p->activation, "gelu");
    x = tutti_layer_norm(m->g, x, &m->norm, "cls.predictions.transform.LayerNorm");
    tutti_value *bias = tutti_param(m->g, "cls.predictions.bias", &TUTTI_SHAPE(m->size.vocabulary),
                                    &(tutti_init){0}, false);
    tutti_value *head = m->words;
    if (m->p->untied) head = table(m, "cls.predictions.decoder.weight", m->size.vocabulary);
    return tutti_add(m->g, tutti_matmul_with(m->g, x, head, false, true), bias);
}

static tutti_value *classify(const bert *m, tutti_value *x) {
    x = tutti_flatten(m->g, tutti_slice(m->g, x, 1, 0, 1));
    x = tutti_tanh(m->g, linear(m, x, m->size.width, "bert.pooler.dense"));
    return linear(m, drop(m, x, "dropout"), m->p->n_classes, "classifier");
}

tutti_value *tti_model_bert(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    bert m = {.g = g, .p = p, .norm = {.eps = p->norm_eps > 0 ? p->norm_eps : 1e-12}};
    if (!tti_model_pick_size(g, "bert", x, p, sizes, &m.size)) return NULL;
    if (p->padded) m.lengths = count_tokens(&m, x);
    m.words = table(&m, "bert.embeddings.word_embeddings.weight", m.size.vocabulary);
    x = embed(&m, x);
    for (int64_t i = 0; i < m.size.n_layers && x; i++) x = encode(&m, x, i);
    return p->classify ? classify(&m, x) : guess_tokens(&m, x);
}

/* lstm.c - a recurrent language model (Zaremba et al. 2014): x i32[N,T] tokens -> logits
 * [N,T,vocabulary].  The state is zero at the start of every sample.  Names and initial values are
 * those of PyTorch's example: encoder, rnn, decoder; uniform within 0.1 except for the LSTM. */
#include "models/models.h"
#include "tutti/ops.h"

static const tti_model_size sizes[] = {
    {.name = "small", .n_layers = 2, .n_heads = 1, .width = 200},
    {.name = "medium", .n_layers = 2, .n_heads = 1, .width = 650},
    {.name = "large", .n_layers = 2, .n_heads = 1, .width = 1500},
    {0},
};

tutti_value *tti_model_lstm(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_params *p = user;
    const tutti_init uniform = {.kind = TUTTI_INIT_UNIFORM, .a = -0.1, .b = 0.1};
    tti_model_size size;
    if (!tti_model_pick_size(g, "lstm", x, p, sizes, &size)) return NULL;
    tutti_embedding_desc encoder = {
        .n_rows = size.vocabulary, .n_out = size.width, .init = &uniform};
    tutti_recurrent_desc rnn = {
        .n_hidden = size.width, .n_layers = (int)size.n_layers, .dropout = p->dropout};
    tutti_linear_desc decoder = {.n_out = size.vocabulary, .init = &uniform};
    x = tutti_embedding(g, x, &encoder, "encoder");
    if (p->dropout > 0) x = tutti_dropout(g, x, p->dropout, "encoder.drop");
    x = tutti_lstm(g, x, &rnn, "rnn");
    if (p->dropout > 0) x = tutti_dropout(g, x, p->dropout, "decoder.drop");
    return tutti_linear_with(g, x, &decoder, "decoder");
}

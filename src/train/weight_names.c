/* weight_names.c - what files of Hugging Face and torchvision call our parameters.
 *
 * Our names are theirs, with the prefix that their classes with a head use; so little is left:
 * missing prefixes, names of older files, tensors that are no parameters. */
#include "train/weight_names.h"

#include <stdio.h>
#include <string.h>

#include "train/param_groups.h"

enum { NAME_BYTES = 600 };

bool tti_weight_is_transposed(const tti_blueprint *b, const char *name) {
    const tutti_model *model = tutti_model_find(b->config.model.name);
    if (!model || b->config.model.plugin[0] || !model->transposed) return false;
    for (const char *const *p = model->transposed; *p; p++)
        if (tti_pattern_fits(*p, name)) return true;
    return false;
}

/* name with its end, if it is old, exchanged; false if it has another end. */
static bool with_end(const char *name, const char *end, const char *other, char *out) {
    size_t n = strlen(name), n_end = strlen(end);
    if (n < n_end || strcmp(name + n - n_end, end) != 0) return false;
    return snprintf(out, NAME_BYTES, "%.*s%s", (int)(n - n_end), name, other) < NAME_BYTES;
}

static int64_t find_here(const tti_weights *w, const char *name) {
    static const char *const ends[][2] = {
        {".LayerNorm.weight", ".LayerNorm.gamma"},
        {".LayerNorm.bias", ".LayerNorm.beta"},
        {"cls.predictions.bias", "cls.predictions.decoder.bias"},
    };
    char other[NAME_BYTES];
    int64_t at = tti_weights_find(w, name);
    for (size_t i = 0; i < TTI_COUNT(ends) && at < 0; i++)
        if (with_end(name, ends[i][0], ends[i][1], other)) at = tti_weights_find(w, other);
    return at;
}

int64_t tti_weight_find(const tti_weights *w, const char *name) {
    static const char *const prefixes[] = {"transformer.", "bert."};
    int64_t at = find_here(w, name);
    for (size_t i = 0; i < TTI_COUNT(prefixes) && at < 0; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0) at = find_here(w, name + n);
    }
    return at;
}

bool tti_weight_is_surplus(const char *name) {
    static const char *const patterns[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias",
                                           "lm_head.*",      "*.num_batches_tracked",
                                           "*position_ids",  "cls.*",
                                           "*pooler.*",      "classifier.*"};
    for (size_t i = 0; i < TTI_COUNT(patterns); i++)
        if (tti_pattern_fits(patterns[i], name)) return true;
    return false;
}

void tti_weight_transpose(const float *src, int64_t n_rows, int64_t n_cols, float *dst) {
    for (int64_t r = 0; r < n_rows; r++)
        for (int64_t c = 0; c < n_cols; c++) dst[c * n_rows + r] = src[r * n_cols + c];
}

int64_t tti_model_n_heads(const tti_blueprint *b) {
    const tutti_graph *g = b->plan->eval.graph;
    for (int i = 0; i < g->n_nodes; i++)
        if (strcmp(g->nodes[i]->op->name, "attention") == 0)
            return tti_attr_int(g->nodes[i], "heads");
    return 0;
}

/* weight_names.c - maps parameter names to those of Hugging Face and torchvision files.
 *
 * Tutti uses the names of Hugging Face's classes with a head, including the prefix.  This file
 * handles missing prefixes, names in older files, and tensors that are not parameters.  ResNets
 * have two sets of names; Tutti uses torchvision's. */
#include "train/setup/weight_names.h"

#include <stdio.h>
#include <string.h>

#include "train/job/param_groups.h"

bool tti_weight_is_transposed(const tti_blueprint *b, const char *name) {
    const tutti_model *model = tti_job_model(&b->config);
    if (!model || !model->transposed) return false;
    for (const char *const *p = model->transposed; *p; p++)
        if (tti_pattern_matches(*p, name)) return true;
    return false;
}

/* Replaces an old suffix of name; false if name has another suffix. */
static bool with_end(const char *name, const char *end, const char *other, char *out) {
    size_t n = strlen(name), n_end = strlen(end);
    if (n < n_end || strcmp(name + n - n_end, end) != 0) return false;
    return snprintf(out, TTI_WEIGHT_NAME, "%.*s%s", (int)(n - n_end), name, other) <
           TTI_WEIGHT_NAME;
}

static int64_t find_here(const tti_weights *w, const char *name) {
    static const char *const ends[][2] = {
        {".LayerNorm.weight", ".LayerNorm.gamma"},
        {".LayerNorm.bias", ".LayerNorm.beta"},
        {"cls.predictions.bias", "cls.predictions.decoder.bias"},
    };
    char other[TTI_WEIGHT_NAME];
    int64_t at = tti_weights_find(w, name);
    for (size_t i = 0; i < TTI_COUNT(ends) && at < 0; i++)
        if (with_end(name, ends[i][0], ends[i][1], other)) at = tti_weights_find(w, other);
    return at;
}

/* Splits "layer2.0.conv1.weight" into stage 1, block 0, "conv1" and "weight". part: conv, bn or
 * downsample. */
static bool part_of_block(const char *name, int *stage, int *block, char part[16], int *number,
                          const char **rest) {
    int n = 0;
    if (sscanf(name, "layer%1d.%3d.%n", stage, block, &n) < 2 || n == 0) return false;
    const char *at = name + n;
    n = 0;
    if (sscanf(at, "%15[a-z]%n", part, &n) < 1) return false;
    at += n + (at[n] == '.');
    n = 0;
    if (sscanf(at, "%1d.%n", number, &n) < 1 || n == 0) return false;
    *rest = at + n;
    return *stage >= 1;
}

static bool put(char out[TTI_WEIGHT_NAME], const char *where, bool conv, const char *rest) {
    int n = snprintf(out, TTI_WEIGHT_NAME, "resnet.%s.%s.%s", where,
                     conv ? "convolution" : "normalization", rest);
    return n < TTI_WEIGHT_NAME;
}

bool tti_weight_hf_resnet(const char *name, char out[TTI_WEIGHT_NAME]) {
    static const char stem[] = "embedder.embedder";
    int stage, block, number;
    char part[16], where[96];
    const char *rest;
    if (strncmp(name, "fc.", 3) == 0)
        return snprintf(out, TTI_WEIGHT_NAME, "classifier.1.%s", name + 3) < TTI_WEIGHT_NAME;
    if (strncmp(name, "conv1.", 6) == 0) return put(out, stem, true, name + 6);
    if (strncmp(name, "bn1.", 4) == 0) return put(out, stem, false, name + 4);
    if (!part_of_block(name, &stage, &block, part, &number, &rest)) return false;
    int n = snprintf(where, sizeof where, "encoder.stages.%d.layers.%d.", stage - 1, block);
    if (strcmp(part, "downsample") == 0) {
        snprintf(where + n, sizeof where - (size_t)n, "shortcut");
        return put(out, where, number == 0, rest);
    }
    snprintf(where + n, sizeof where - (size_t)n, "layer.%d", number - 1);
    bool conv = strcmp(part, "conv") == 0;
    return (conv || strcmp(part, "bn") == 0) && put(out, where, conv, rest);
}

int64_t tti_weight_find(const tti_weights *w, const char *name) {
    char other[TTI_WEIGHT_NAME];
    static const char *const prefixes[] = {"transformer.", "bert."};
    int64_t at = find_here(w, name);
    for (size_t i = 0; i < TTI_COUNT(prefixes) && at < 0; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) == 0) at = find_here(w, name + n);
    }
    if (at < 0 && tti_weight_hf_resnet(name, other)) at = tti_weights_find(w, other);
    return at;
}

/* ---- aliases of a model ---- */

/* Applies one replacement to name; false if the result is too long. */
static bool replace(char name[TTI_WEIGHT_NAME], const tutti_weight_alias *alias) {
    bool at_start = alias->ours[0] == '^';
    const char *ours = alias->ours + at_start;
    char *at = strstr(name, ours);
    if (!at || (at_start && at != name)) return true;
    char rest[TTI_WEIGHT_NAME];
    snprintf(rest, sizeof rest, "%s", at + strlen(ours));
    size_t room = TTI_WEIGHT_NAME - (size_t)(at - name);
    return (size_t)snprintf(at, room, "%s%s", alias->theirs, rest) < room;
}

/* Looks up "a{b|c}d" as abd and acd; all tensors must exist. */
static tti_weight_parts find_joined(const tti_weights *w, const char *name) {
    tti_weight_parts parts = {0};
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL;
    const char *at = close ? open + 1 : "";
    do {
        char full[TTI_WEIGHT_NAME];
        size_t n = close ? strcspn(at, "|}") : 0;
        if (close)
            snprintf(full, sizeof full, "%.*s%.*s%s", (int)(open - name), name, (int)n, at,
                     close + 1);
        int64_t found = tti_weights_find(w, close ? full : name);
        if (found < 0) return (tti_weight_parts){0};
        parts.at[parts.n++] = (size_t)found;
        at += n + 1;
    } while (close && at <= close && parts.n < TTI_WEIGHT_PARTS);
    return parts;
}

tti_weight_parts tti_weight_find_parts(const tti_blueprint *b, const tti_weights *weights,
                                       const char *name) {
    const tutti_model *model = tti_job_model(&b->config);
    const tutti_weight_alias *const *list = model ? model->aliases : NULL;
    tti_weight_parts parts = {0};
    int64_t at = tti_weight_find(weights, name);
    if (at >= 0) return (tti_weight_parts){.n = 1, .at = {(size_t)at}};
    for (; list && *list && parts.n == 0; list++) {
        char other[TTI_WEIGHT_NAME];
        bool fits = snprintf(other, sizeof other, "%s", name) < TTI_WEIGHT_NAME;
        for (const tutti_weight_alias *alias = *list; fits && alias->ours; alias++)
            fits = replace(other, alias);
        if (fits) parts = find_joined(weights, other);
    }
    return parts;
}

static bool fits_any(const char *const *patterns, const char *name) {
    for (; *patterns; patterns++)
        if (tti_pattern_matches(*patterns, name)) return true;
    return false;
}

bool tti_weight_is_surplus(const tti_blueprint *b, const char *name) {
    static const char *const gpt2[] = {"*h.*.attn.bias", "*h.*.attn.masked_bias", "lm_head.weight",
                                       NULL};
    static const char *const guesses[] = {"*position_ids",          "*pooler.*",
                                          "cls.seq_relationship.*", "cls.predictions.decoder.*",
                                          "classifier.*",           NULL};
    static const char *const classifies[] = {"*position_ids", "cls.*", NULL};
    static const char *const others[] = {"*.num_batches_tracked", NULL};
    const tutti_model *built_in = tti_job_model(&b->config);
    const char *model = built_in ? built_in->name : "";
    if (strcmp(model, "gpt2") == 0) return fits_any(gpt2, name);
    if (strcmp(model, "bert") == 0)
        return fits_any(b->model_params.classify ? classifies : guesses, name);
    if (built_in && built_in->surplus && fits_any(built_in->surplus, name)) return true;
    return fits_any(others, name);
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

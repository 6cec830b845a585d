/* model_parts.c - functions that several image models share. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "models/models.h"

enum { WHY = 320 };

static bool refuse(tutti_graph *g, const char *model, const char *why) {
    char text[WHY];
    snprintf(text, sizeof text, "%s: %s", model, why);
    (void)tutti_graph_refuse(g, text);
    return false;
}

bool tti_model_check_images(tutti_graph *g, const char *model, const tutti_value *x) {
    if (!x) return false;
    tutti_type type = tutti_value_type(x);
    if (type.dtype == TUTTI_F32 && type.shape.n_dims == 4) return true;
    return refuse(g, model, "needs images, f32[N,C,H,W]");
}

bool tti_model_pick_stages(tutti_graph *g, const char *model, const tutti_model_params *params,
                           const tti_model_size *sizes, tti_model_size *out) {
    const tti_model_size *size = tti_model_find_size(g, model, sizes, params->size);
    if (!size) return false;
    *out = *size;
    if (params->n_stages != 0 && params->n_stages != TTI_MODEL_STAGES)
        return refuse(g, model, "model.depths: the model has 4 stages, so 4 numbers are needed");
    for (int s = 0; s < params->n_stages; s++) out->depths[s] = params->depths[s];
    if (params->width > 0) out->width = params->width;
    return true;
}

tutti_value *tti_model_drop_path(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                                 int64_t i, int64_t n, const char *name) {
    double p = n > 1 ? params->drop_path * (double)i / (double)(n - 1) : params->drop_path;
    return p > 0 ? tutti_drop_path(g, x, p, name) : x;
}

tutti_value *tti_model_dropout(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                               const char *name) {
    return params->dropout > 0 ? tutti_dropout(g, x, params->dropout, name) : x;
}

tutti_value *tti_model_linear(tutti_graph *g, tutti_value *x, int64_t n_out, double deviation,
                              const char *name) {
    tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = deviation};
    return tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = n_out, .init = &normal}, name);
}

const char *tti_model_join(char text[TTI_MODEL_NAME], const char *prefix, const char *suffix) {
    snprintf(text, TTI_MODEL_NAME, "%s%s", prefix, suffix);
    return text;
}

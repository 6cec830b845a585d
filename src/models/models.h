/* models.h - the builders of the built-in models, one per file. */
#ifndef TTI_MODELS_MODELS_H
#define TTI_MODELS_MODELS_H

#include "tutti/models.h"

tutti_value *tti_model_lenet(tutti_graph *g, tutti_value *x, const void *user);
tutti_value *tti_model_mlp(tutti_graph *g, tutti_value *x, const void *user);

#endif /* TTI_MODELS_MODELS_H */

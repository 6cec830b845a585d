/* whole_layers.h - reports layers that parallel.tensor leaves whole on every worker. */
#ifndef TTI_TRAIN_WHOLE_LAYERS_H
#define TTI_TRAIN_WHOLE_LAYERS_H

#include "base/str.h"
#include "train/setup/blueprint.h"

/* TUTTI_E_CONFIG, for parallel.tensor, if there are layers that it does not divide and
 * parallel.uneven does not leave whole: names the first, and the numbers that work. g: the whole
 * model in training, for b->mesh. */
tutti_status tti_uneven_check(const tti_blueprint *b, const tutti_graph *g);

/* Whether attention stays whole because its heads cannot be divided over the tensor shards; appends
 * the reason, and the sizes that divide them. */
bool tti_whole_heads_text(const tti_blueprint *b, tti_str *out);

/* Appends the fraction of parameter elements that every worker has whole, and the largest of them.
 * Nothing if layers are not divided, or if there are stages: then no worker has all layers. */
void tti_whole_params_text(const tti_blueprint *b, tti_str *out);

#endif /* TTI_TRAIN_WHOLE_LAYERS_H */

/* whole_layers.h - reports layers that parallel.tensor leaves whole on every worker. */
#ifndef TTI_TRAIN_WHOLE_LAYERS_H
#define TTI_TRAIN_WHOLE_LAYERS_H

#include "base/str.h"
#include "train/setup/blueprint.h"

/* Returns TUTTI_E_CONFIG if parallel.tensor cannot divide a layer and parallel.uneven is not
 * "whole".  The message names the first such layer and the values that work. g: the training graph
 * of the whole model, for b->mesh. */
tutti_status tti_uneven_check(const tti_blueprint *b, const tutti_graph *g);

/* Returns true if attention stays whole because its heads cannot be divided over the tensor shards;
 * appends the reason and the sizes that work. */
bool tti_whole_heads_text(const tti_blueprint *b, tti_str *out);

/* Appends the fraction of parameter elements that every worker has in full, and the largest such
 * parameter.  Appends nothing if layers are not divided, or if there are pipeline stages, because
 * then no worker has all layers. */
void tti_whole_params_text(const tti_blueprint *b, tti_str *out);

#endif /* TTI_TRAIN_WHOLE_LAYERS_H */

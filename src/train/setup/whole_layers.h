/* whole_layers.h - what parallel.tensor leaves whole on every worker, said before it surprises. */
#ifndef TTI_TRAIN_WHOLE_LAYERS_H
#define TTI_TRAIN_WHOLE_LAYERS_H

#include "base/str.h"
#include "train/setup/blueprint.h"

/* TUTTI_E_CONFIG, of parallel.tensor, if there are layers that the pieces
 * do not divide and parallel.uneven does not leave them whole: names the first, and the numbers of
 * pieces that would do.  g: the whole model as it is trained, for b->mesh. */
tutti_status tti_uneven_check(const tti_blueprint *b, const tutti_graph *g);

/* Whether attention stays whole, because its heads cannot be divided over the pieces: appends why,
 * and which numbers of pieces divide them. */
bool tti_whole_heads_text(const tti_blueprint *b, tti_str *out);

/* Appends which share of the elements of parameters every worker has whole, and the largest of
 * them.  Nothing where layers are not divided, or stages are: then no worker has all layers. */
void tti_whole_params_text(const tti_blueprint *b, tti_str *out);

#endif /* TTI_TRAIN_WHOLE_LAYERS_H */

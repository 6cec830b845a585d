/* vocabulary.h - cross entropy of logits of which each worker of a tensor axis has some classes. */
#ifndef TTI_OPS_VOCABULARY_H
#define TTI_OPS_VOCABULARY_H

#include "ir/graph.h"

/* emit_cut of a cross entropy whose logits are cut along the classes. */
void tti_emit_entropy_parts(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                            const tti_cut *cut, tutti_value *const *in, tutti_value **out);

#endif /* TTI_OPS_VOCABULARY_H */

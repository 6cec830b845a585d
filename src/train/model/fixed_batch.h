/* fixed_batch.h - converts a model that was exported for a fixed number of rows to the rows of
 * a shard. */
#ifndef TTI_TRAIN_FIXED_BATCH_H
#define TTI_TRAIN_FIXED_BATCH_H

#include "import/import.h"

/* As tti_import_build.  Where the file fixes the first dimension of all inputs to another number
 * than the shard has, that dimension counts as the batch if every node of the model computes each
 * row from the same row of its inputs; else TUTTI_E_UNSUPPORTED, which names the node. */
tutti_status tti_fixed_batch_build(const tti_import *import, tutti_graph *g,
                                   const tti_import_samples *samples, tutti_value **outputs);

#endif /* TTI_TRAIN_FIXED_BATCH_H */

/* fixed_batch.h - converts a model that was exported for a fixed number of rows to the rows of
 * a shard. */
#ifndef TTI_TRAIN_FIXED_BATCH_H
#define TTI_TRAIN_FIXED_BATCH_H

#include "import/import.h"

/* Like tti_import_build.  If the file fixes the first dimension of all inputs to a number other
 * than the rows of the shard, treats that dimension as the batch.  Every node of the model must
 * then compute each row from the same row of its inputs; otherwise TUTTI_E_UNSUPPORTED names the
 * node. */
tutti_status tti_fixed_batch_build(const tti_import *import, tutti_graph *g,
                                   const tti_import_samples *samples, tutti_value **outputs);

#endif /* TTI_TRAIN_FIXED_BATCH_H */

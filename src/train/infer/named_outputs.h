/* named_outputs.h - the outputs of an evaluation graph that have the names of the model's file
 * (TTI_OUTPUT_PREFIX), f32. */
#ifndef TTI_TRAIN_NAMED_OUTPUTS_H
#define TTI_TRAIN_NAMED_OUTPUTS_H

#include "train/setup/shard_graph.h"

bool tti_is_named_output(const tti_output *output);
const char *tti_named_output_name(const tti_output *output);

/* The number of output rows per row of the shard; 0: the output has no batch dimension. */
int64_t tti_named_output_rows(const tti_output *output, int64_t rows);

/* The shape for one sample, or the whole shape of an output without a batch dimension. */
tutti_shape tti_named_output_shape(const tti_output *output, int64_t rows);

#endif /* TTI_TRAIN_NAMED_OUTPUTS_H */

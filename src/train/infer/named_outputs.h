/* named_outputs.h - the outputs of an evaluation graph that have the names of the model's file
 * (TTI_OUTPUT_PREFIX), f32. */
#ifndef TTI_TRAIN_NAMED_OUTPUTS_H
#define TTI_TRAIN_NAMED_OUTPUTS_H

#include "train/setup/shard_graph.h"

bool tti_is_named_output(const tti_output *output);
const char *tti_named_output_name(const tti_output *output);

/* How many rows the output has for each of the shard's rows; 0: it does not have the batch. */
int64_t tti_named_output_rows(const tti_output *output, int64_t rows);

/* The shape for one sample; the whole shape of an output without the batch. */
tutti_shape tti_named_output_shape(const tti_output *output, int64_t rows);

#endif /* TTI_TRAIN_NAMED_OUTPUTS_H */

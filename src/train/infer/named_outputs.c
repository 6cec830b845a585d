/* named_outputs.c - finds outputs of an evaluation graph that have names from the model's file, and
 * their shapes. */
#include "train/infer/named_outputs.h"

#include <string.h>

static const size_t prefix = sizeof TTI_OUTPUT_PREFIX - 1;

bool tti_is_named_output(const tti_output *output) { return tti_shard_graph_is_named(output); }

const char *tti_named_output_name(const tti_output *output) { return output->name + prefix; }

int64_t tti_named_output_rows(const tti_output *output, int64_t rows) {
    const tutti_shape *shape = &output->value->type.shape;
    bool is_shared = strncmp(output->name, TTI_SHARED_PREFIX, prefix) == 0;
    bool is_of_rows =
        !is_shared && shape->n_dims > 0 && shape->dim[0] > 0 && shape->dim[0] % rows == 0;
    return is_of_rows ? shape->dim[0] / rows : 0;
}

tutti_shape tti_named_output_shape(const tti_output *output, int64_t rows) {
    tutti_shape shape = output->value->type.shape;
    int64_t n_each = tti_named_output_rows(output, rows);
    if (n_each > 1) shape.dim[0] = n_each;
    if (n_each != 1) return shape;
    shape.n_dims--;
    memmove(shape.dim, shape.dim + 1, (size_t)shape.n_dims * sizeof *shape.dim);
    return shape;
}

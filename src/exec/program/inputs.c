/* inputs.c - binds the inputs of a shard by name, and its sums. */
#include "exec/program/inputs.h"

static const tti_node *find(const tti_program *program, const char *name) {
    return tti_graph_find_source(program->graph, name);
}

size_t tti_inputs_bytes(const tti_program *program, const char *name) {
    const tti_node *input = find(program, name);
    return input ? tti_value_n_bytes(input->out[0]) : 0;
}

int64_t tti_inputs_rows(const tti_program *program, const char *name) {
    const tti_node *input = find(program, name);
    return input ? input->out[0]->type.shape.dim[0] : 0;
}

int64_t tti_inputs_most_rows(const tti_program *program) {
    const tutti_graph *g = program->graph;
    int64_t rows = tti_inputs_rows(program, "x");
    for (int i = 0; i < g->n_nodes && rows == 0; i++) {
        const tutti_shape *shape = &g->nodes[i]->out[0]->type.shape;
        if ((g->nodes[i]->op->traits & TTI_INPUT) && shape->n_dims > 0) rows = shape->dim[0];
    }
    return rows;
}

static void point(tti_instance *instance, int input, const void *data) {
    if (input >= 0) tti_instance_set_input(instance, input, data);
}

void tti_inputs_point(tti_instance *instance, const tti_inputs *inputs,
                      const tti_inputs_shard *shard, const float *loss_scale) {
    point(instance, inputs->x, shard->x);
    point(instance, inputs->target, shard->target);
    point(instance, inputs->rows, shard->rows);
    point(instance, inputs->loss_scale, loss_scale);
}

tutti_status tti_inputs_collect(const tti_device_ops *ops, const tti_instance *instance,
                                double *sums) {
    if (!tti_instance_has_output(instance, "loss_sum")) return TUTTI_OK;
    return ops->step.collect(tti_instance_output(instance, "loss_sum"),
                             tti_instance_output(instance, "count"),
                             tti_instance_output(instance, "correct"), sums);
}

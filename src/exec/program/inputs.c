/* inputs.c - binds the inputs of a shard by name, and its sums. */
#include "exec/program/inputs.h"

#include <string.h>

/* Whether a node reads the samples, and from which byte on. */
static bool reads_samples(const tti_node *node, size_t *offset) {
    if (!(node->op->traits & TTI_INPUT)) return false;
    int64_t at = tti_attr_int(node, "offset");
    *offset = at < 0 ? 0 : (size_t)at;
    return at >= 0 || strcmp(node->name, "x") == 0;
}

tutti_status tti_inputs_find(const tti_program *program, tti_inputs *out) {
    const tutti_graph *g = program->graph;
    size_t offset;
    *out = (tti_inputs){.target = tti_program_input(program, "target"),
                        .rows = tti_program_input(program, "rows"),
                        .loss_scale = tti_program_input(program, "loss_scale")};
    for (int i = 0; i < g->n_nodes; i++) {
        if (!reads_samples(g->nodes[i], &offset)) continue;
        if (out->n_fields == TTI_MAX_INPUT_FIELDS)
            return tti_fail(TUTTI_E_UNSUPPORTED, "exec: a model can read at most %d fields",
                            TTI_MAX_INPUT_FIELDS);
        out->field[out->n_fields++] =
            (tti_input_field_at){tti_program_input(program, g->nodes[i]->name), offset,
                                 tti_value_n_bytes(g->nodes[i]->out[0])};
    }
    return TUTTI_OK;
}

size_t tti_inputs_sample_bytes(const tti_program *program) {
    const tutti_graph *g = program->graph;
    size_t n_bytes = 0, offset;
    for (int i = 0; i < g->n_nodes; i++)
        if (reads_samples(g->nodes[i], &offset))
            n_bytes = TTI_MAX(n_bytes, offset + tti_value_n_bytes(g->nodes[i]->out[0]));
    return n_bytes;
}

size_t tti_inputs_target_bytes(const tti_program *program) {
    const tti_node *target = tti_graph_find_source(program->graph, "target");
    return target ? tti_value_n_bytes(target->out[0]) : 0;
}

int64_t tti_inputs_rows(const tti_program *program) {
    const tutti_graph *g = program->graph;
    size_t offset;
    for (int i = 0; i < g->n_nodes; i++)
        if (reads_samples(g->nodes[i], &offset)) return g->nodes[i]->out[0]->type.shape.dim[0];
    return 0;
}

int64_t tti_inputs_most_rows(const tti_program *program) {
    const tutti_graph *g = program->graph;
    int64_t rows = tti_inputs_rows(program);
    for (int i = 0; i < g->n_nodes && rows == 0; i++) {
        const tutti_shape *shape = &g->nodes[i]->out[0]->type.shape;
        if ((g->nodes[i]->op->traits & TTI_INPUT) && shape->n_dims > 0) rows = shape->dim[0];
    }
    return rows;
}

static void point(tti_instance *instance, int input, const void *data) {
    if (input >= 0) tti_instance_set_input(instance, input, data);
}

void tti_inputs_point_at_samples(tti_instance *instance, const tti_inputs *inputs, const void *x) {
    for (int i = 0; i < inputs->n_fields; i++)
        tti_instance_set_input(instance, inputs->field[i].input,
                               (const char *)x + inputs->field[i].offset);
}

void tti_inputs_point(tti_instance *instance, const tti_inputs *inputs,
                      const tti_inputs_shard *shard, const float *loss_scale) {
    tti_inputs_point_at_samples(instance, inputs, shard->x);
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

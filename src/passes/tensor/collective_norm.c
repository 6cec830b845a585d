/* collective_norm.c - finds norms between two collectives of a tensor axis.
 *
 * Values between the steps have only the next step as a reader, so code that computes all of them
 * at once need not store them.  It reads the inputs of the first step until the last output has
 * been made: memplan.c extends their lives accordingly. */
#include "passes/tensor/collective_norm.h"

#include <string.h>

#include "ops/op_table.h"

enum { MOST_WIDTH = 2048, UNIT = 8 /* elements of 16 bytes */ };

static bool is_named(const tti_node *node, const char *op) {
    return strcmp(node->op->name, op) == 0;
}

/* No other node reads value, directly or through another view. */
static bool is_read_alone(const tutti_graph *g, const tutti_value *value, const tti_node *reader) {
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == value) return false;
    for (int i = value->node->id + 1; i < g->n_nodes; i++)
        for (int k = 0; g->nodes[i] != reader && k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == value) return false;
    return true;
}

static bool is_low_row(const tutti_value *value) {
    const tutti_shape *shape = &value->type.shape;
    int64_t width = shape->n_dims == 3 ? shape->dim[2] : 0;
    bool is_16_bit = value->type.dtype == TUTTI_BF16 || value->type.dtype == TUTTI_F16;
    return is_16_bit && value->layout == TTI_PLAIN && width > 0 && width % UNIT == 0 &&
           width <= MOST_WIDTH;
}

static bool is_like(const tutti_value *a, const tutti_value *b) {
    return a->type.dtype == b->type.dtype && a->layout == b->layout &&
           tti_shape_equal(&a->type.shape, &b->type.shape);
}

/* The sum and a vector of its width. */
static bool adds_bias(const tti_node *node, const tutti_value *sum) {
    if (!is_named(node, "add") || node->in[0] != sum || !is_like(node->out[0], sum)) return false;
    const tutti_type *bias = &node->in[1]->type;
    return bias->dtype == sum->type.dtype && bias->shape.n_dims == 1 &&
           bias->shape.dim[0] == sum->type.shape.dim[2];
}

static bool is_norm(const tti_node *node, const tutti_value *branch, int *which) {
    if (!is_named(node, "add_layer_norm") || node->n_in != 4) return false;
    *which = node->in[1] == branch;
    return node->in[*which] == branch && node->in[1 - *which] != branch &&
           is_like(node->in[1 - *which], branch) && is_like(node->out[0], branch) &&
           is_like(node->out[1], branch);
}

static bool cuts_rows(const tti_node *node, const char *op) {
    return is_named(node, op) && tti_attr_int(node, "dim") == 1;
}

bool tti_is_norm_grad(const tti_node *node, const tutti_value *part, int least) {
    bool is_grad = is_named(node, "layer_norm_grads") || is_named(node, "layer_norm_grads_sums");
    if (least == 0 || !is_grad || node->in[0] != part) return false;
    if (!is_low_row(part) || part->type.shape.dim[2] < least) return false;
    bool alike = is_like(node->in[1], part) && is_like(node->out[0], part);
    return alike && (node->n_in < 6 || is_like(node->in[5], part));
}

static bool gathers(const tti_node *node, const tutti_value *part) {
    return cuts_rows(node, "tensor_all_gather") && node->in[0] == part;
}

static bool is_grad_at(const tti_program *program, int s, tti_collective_norm *out) {
    tti_node *const *step = program->steps + s;
    if (!tti_is_norm_grad(step[1], step[0]->out[0], program->joins_grads)) return false;
    if (!is_read_alone(program->graph, step[0]->out[0], step[1])) return false;
    bool gathered = s + 2 < program->n_steps && gathers(step[2], step[1]->out[0]);
    const tutti_shape *part = &step[0]->out[0]->type.shape;
    *out = (tti_collective_norm){.scatter = step[0], .norm = step[1]};
    out->gather = gathered ? step[2] : NULL;
    out->is_grad = true;
    out->n_steps = 2 + gathered;
    out->n_blocks = part->dim[0], out->n_rows = part->dim[1], out->width = part->dim[2];
    return tti_value_n_elems(step[0]->out[0]) > 0;
}

/* Only reader, and views, read the base of value. */
static bool is_base_read_alone(const tutti_graph *g, const tutti_value *value,
                               const tti_node *reader) {
    const tutti_value *base = tti_skip_views(value);
    for (int i = 0; i < g->n_outputs; i++)
        if (tti_skip_views(g->outputs[i].value) == base) return false;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        for (int k = 0; node != reader && k < node->n_in; k++)
            if (!(node->op->traits & TTI_VIEW) && tti_skip_views(node->in[k]) == base) return false;
    }
    return true;
}

int tti_collective_norm_product(const tti_program *program, int s) {
    const tti_node *scatter = program->steps[s];
    const tutti_value *base = tti_skip_views(scatter->in[0]);
    int p = s - 1;
    while (p >= 0 && program->steps[p] != base->node &&
           !(program->steps[p]->op->traits & TTI_COLLECTIVE))
        p--;
    if (p < 0 || program->steps[p] != base->node || base->node->out[0] != base) return -1;
    return is_base_read_alone(program->graph, base, scatter) ? p : -1;
}

bool tti_collective_norm_at(const tti_program *program, int s, tti_collective_norm *out) {
    const tutti_graph *g = program->graph;
    tti_node *const *step = program->steps + s;
    int left = program->n_steps - s, at = 1;
    if (!program->joins_norms || left < 2 || !cuts_rows(step[0], "tensor_reduce_scatter"))
        return false;
    if (is_grad_at(program, s, out)) return true;
    tti_collective_norm found = {.scatter = step[0]};
    const tutti_value *branch = step[0]->out[0];
    if (!is_low_row(branch)) return false;
    if (left > 2 && adds_bias(step[at], branch)) {
        if (!is_read_alone(g, branch, step[at])) return false;
        found.bias = step[at];
        branch = step[at++]->out[0];
    }
    if (at + 1 > left || !is_norm(step[at], branch, &found.branch)) return false;
    found.norm = step[at++];
    if (!is_read_alone(g, branch, found.norm)) return false;
    bool gathered = at < left && gathers(step[at], found.norm->out[0]);
    if (gathered && !is_read_alone(g, found.norm->out[0], step[at])) return false;
    if (gathered) found.gather = step[at++];
    const tutti_shape *part = &branch->type.shape;
    found.n_steps = at;
    found.n_blocks = part->dim[0], found.n_rows = part->dim[1], found.width = part->dim[2];
    *out = found;
    return tti_value_n_elems(branch) > 0;
}

/* The longest norm has three steps before its gather. */
static bool belongs_to_norm(const tti_program *program, int s) {
    tti_collective_norm joint;
    for (int first = s - 3; first < s; first++)
        if (first >= 0 && tti_collective_norm_at(program, first, &joint) &&
            joint.gather == program->steps[s])
            return true;
    return false;
}

bool tti_rows_gather_at(const tti_program *program, int s, tti_collective_norm *out) {
    const tti_node *gather = program->steps[s];
    const tutti_value *part = gather->in[0];
    if (!program->joins_norms || !cuts_rows(gather, "tensor_all_gather")) return false;
    if (!is_low_row(part) || tti_value_n_elems(part) == 0 || belongs_to_norm(program, s))
        return false;
    const tutti_shape *shape = &part->type.shape;
    *out = (tti_collective_norm){.gather = gather, .n_steps = 1};
    out->n_blocks = shape->dim[0], out->n_rows = shape->dim[1], out->width = shape->dim[2];
    return true;
}

/* fused.c - runs a chain of elementwise nodes as one.
 *
 * Only the fuse pass makes such nodes, after differentiation, so there is no gradient.  The body
 * defines the result, node by node; there is no separate reference. */
#include "ops/rules.h"

/* True if every element of part's output depends on the same elements of its inputs only. */
static bool is_elementwise(const tti_node *part) {
    if (part->op->n_out != 1 || part->op->traits & TTI_UPDATE) return false;
    if (part->op->traits & TTI_ELEMENTWISE) return true;
    bool alike = part->op->traits & TTI_BROADCAST;
    for (int i = 0; i < part->n_in; i++)
        alike = alike && tti_shape_equal(tti_in_shape(part, i), &part->out[0]->type.shape);
    return alike;
}

/* The shape is that of the inputs; the body's last node decides the dtype. */
static tutti_status fused_infer(const tti_node *node, tutti_type *out) {
    for (int i = 1; i < node->n_in; i++) TTI_TRY(tti_need_same_shape(node, 0, i));
    for (int i = 0; i < node->n_body; i++)
        if (!is_elementwise(node->body[i]))
            return tti_node_fail(node, "%s cannot be part of a chain", node->body[i]->op->name);
    out[0] = node->in[0]->type;
    if (node->n_body > 0) out[0].dtype = node->body[node->n_body - 1]->out[0]->type.dtype;
    return TUTTI_OK;
}

static void fused_cost(const tti_node *node, tti_cost *cost) {
    double flops = 0;
    for (int i = 0; i < node->n_body; i++) {
        tti_cost part;
        node->body[i]->op->cost(node->body[i], &part);
        flops += part.flops;
    }
    tti_cost_flops(node, flops, cost);
}

const tti_op tti_ops_fused[] = {
    {.name = "fused",
     .doc = "a chain of elementwise ops in one pass over memory",
     .n_in_min = 1,
     .n_in_max = TTI_MAX_IN,
     .n_out = 1,
     .traits = TTI_FUSED | TTI_ELEMENTWISE,
     .infer = fused_infer,
     .shard = tti_shard_same,
     .cost = fused_cost},
    {0},
};

/* low_copies.c - 16-bit copies of parameters, made by the update instead of the step.
 *
 * A cast of a whole parameter reads values that the update has just had in registers.  If the
 * target keeps such copies (tti_target.keeps_low_copies), they are stored in a separate flat array,
 * the cast is left out of the program, and its result is read there.  Parameters that are joined in
 * place are adjacent there too, each aligned to 16 elements. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/plan.h"

enum { ALIGN_ELEMS = 64 / sizeof(uint16_t) };

static bool is_whole_param(const tti_program *program, const tti_node *node) {
    return (node->op->traits & TTI_PARAM) != 0 || program->neighbours.joined[node->id];
}

static bool is_low_copy(const tti_target *target, const tti_program *program,
                        const tti_node *node) {
    if (node->op != tti_op_find("cast")) return false;
    return node->in[0]->type.dtype == TUTTI_F32 && is_whole_param(program, node->in[0]->node) &&
           node->out[0]->type.dtype == target->compute_dtype &&
           node->out[0]->layout == node->in[0]->layout;
}

/* A later part of a joined value may begin at an address that kernels do not support: such a part
 * is cast separately. */
static void leave_parts(const tti_node *whole, tti_program *program) {
    const tutti_graph *g = program->graph;
    for (int k = 1; k < whole->n_in; k++)
        for (int i = 0; i < g->n_nodes; i++)
            if (program->is_low_copy[i] && g->nodes[i]->in[0] == whole->in[k])
                program->is_low_copy[i] = false;
}

tutti_status tti_low_copies_find(const tti_target *target, tti_program *program) {
    const tutti_graph *g = program->graph;
    bool is_16_bit = target->compute_dtype == TUTTI_BF16 || target->compute_dtype == TUTTI_F16;
    if (!target->keeps_low_copies || !is_16_bit) return TUTTI_OK;
    program->is_low_copy = calloc((size_t)g->n_nodes + 1, sizeof *program->is_low_copy);
    if (!program->is_low_copy) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < g->n_nodes; i++)
        program->is_low_copy[i] = is_low_copy(target, program, g->nodes[i]);
    for (int i = 0; i < g->n_nodes; i++)
        if (program->is_low_copy[i] && program->neighbours.joined[g->nodes[i]->in[0]->node->id])
            leave_parts(g->nodes[i]->in[0]->node, program);
    return TUTTI_OK;
}

/* Places a parameter's slot after all others, or after those of its joined value. */
static void place(tti_plan *plan, const tti_node *param, bool begins) {
    int index = tti_plan_find_slot(plan, param->name);
    TTI_ASSERT(index >= 0);
    tti_slot *slot = &plan->slots[index];
    if (slot->has_low_copy) return;
    if (begins)
        plan->n_low_copies = (plan->n_low_copies + ALIGN_ELEMS - 1) / ALIGN_ELEMS * ALIGN_ELEMS;
    slot->has_low_copy = true;
    slot->low_copy = plan->n_low_copies;
    plan->n_low_copies += slot->n_elems;
}

/* Wholes first: their parts must lie side by side. */
static void place_all(tti_plan *plan, bool wholes) {
    const tutti_graph *g = plan->shard.graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *from = plan->shard.is_low_copy[i] ? g->nodes[i]->in[0]->node : NULL;
        if (!from || wholes == ((from->op->traits & TTI_PARAM) != 0)) continue;
        if (!wholes) place(plan, from, true);
        for (int k = 0; wholes && k < from->n_in; k++) place(plan, from->in[k]->node, k == 0);
    }
}

void tti_low_copies_place(tti_plan *plan, const tti_target *target) {
    if (!plan->shard.is_low_copy) return;
    place_all(plan, true);
    place_all(plan, false);
    if (plan->n_low_copies) plan->low_dtype = target->compute_dtype;
}

size_t tti_low_copy_at(const tti_plan *plan, const tti_node *cast) {
    const tti_node *from = cast->in[0]->node;
    const tti_node *param = from->op->traits & TTI_PARAM ? from : from->in[0]->node;
    return plan->slots[tti_plan_find_slot(plan, param->name)].low_copy;
}

/* update.c - the update program: the optimizer over the flat parameters, block by block.
 *
 * Blocks have a fixed number of elements and never cross a slot, so work can be dealt out to any
 * number of threads and partial sums over blocks never depend on it.  Blocks of one length and one
 * weight decay share a template node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/plan.h"

enum { N_HYPER = 8, MAX_STATES = 4 };

static int find_template(const tti_plan *plan, size_t n_elems, double decay) {
    for (int i = 0; i < plan->n_updates; i++)
        if (plan->updates[i].n_elems == n_elems &&
            tti_attr_float(plan->updates[i].node, "decay") == decay)
            return i;
    return -1;
}

static const tti_node *make_template(tti_plan *plan, const tti_plan_desc *desc, size_t n_elems,
                                     double decay) {
    tutti_graph *g = plan->update_graph;
    tutti_shape shape = TUTTI_SHAPE((int64_t)n_elems), hyper = TUTTI_SHAPE(N_HYPER);
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    tutti_value *in[MAX_STATES + 3] = {0}, *out[TTI_MAX_OUT] = {0};
    int n = 0, n_in = 0;
    for (; desc->optimizer_attrs[n].name; n++) attrs[n] = desc->optimizer_attrs[n];
    attrs[n] = TTI_FLOAT("decay", decay);
    for (; n_in < plan->n_states + 2; n_in++) {
        char name[64];
        snprintf(name, sizeof name, "%d.%zu.%d", n_in, n_elems, decay != 0);
        in[n_in] = tutti_input(g, name, TUTTI_F32, &shape);
    }
    tti_node *known = tti_graph_find_source(g, "hyper");
    in[n_in++] = known ? known->out[0] : tutti_input(g, "hyper", TUTTI_F32, &hyper);
    tti_emit_n(g, desc->optimizer, NULL, in, n_in, attrs, out);
    return out[0] ? out[0]->node : NULL;
}

static tutti_status add_block(tti_plan *plan, const tti_plan_desc *desc, tti_update_step step,
                              double decay) {
    int twin = find_template(plan, step.n_elems, decay);
    step.node =
        twin >= 0 ? plan->updates[twin].node : make_template(plan, desc, step.n_elems, decay);
    if (!step.node) return tutti_graph_check(plan->update_graph);
    plan->updates[plan->n_updates++] = step;
    return TUTTI_OK;
}

static tutti_status add_slot(tti_plan *plan, const tti_plan_desc *desc, const tti_slot *slot) {
    double decay = slot->decay ? desc->weight_decay : 0;
    for (size_t done = 0; done < slot->n_elems; done += TTI_UPDATE_BLOCK) {
        size_t n = TTI_MIN(slot->n_elems - done, (size_t)TTI_UPDATE_BLOCK);
        TTI_TRY(add_block(plan, desc, (tti_update_step){NULL, slot->first + done, n}, decay));
    }
    return TUTTI_OK;
}

tutti_status tti_plan_update(tti_plan *plan, const tti_plan_desc *desc) {
    const tti_op *op = tti_op_find(desc->optimizer);
    if (!op || !(op->traits & TTI_UPDATE))
        return tti_fail(TUTTI_E_INVALID, "plan: '%s' is no optimizer", desc->optimizer);
    plan->n_states = op->n_out - 1;
    size_t n_blocks = 0;
    for (int i = 0; i < plan->n_slots; i++)
        n_blocks += plan->slots[i].n_elems / TTI_UPDATE_BLOCK + 1;
    plan->updates = calloc(n_blocks + 1, sizeof *plan->updates);
    plan->update_graph = tutti_graph_create(true);
    if (!plan->updates || !plan->update_graph)
        return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < plan->n_slots; i++) TTI_TRY(add_slot(plan, desc, &plan->slots[i]));
    return TUTTI_OK;
}

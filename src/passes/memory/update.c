/* update.c - builds the update program: the optimizer over the flat parameters, block by block.
 *
 * Blocks have a fixed number of elements and never cross a slot, so work can be distributed over
 * any number of threads and partial sums over blocks never depend on it.  Blocks of one length and
 * one weight decay share a template node. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/op_table.h"
#include "passes/plan.h"

enum { N_HYPER = 8 };

/* The key of a template: an op over a number of elements with its attribute. */
typedef struct template_key {
    const char *op;
    size_t n_elems;
    const char *attr; /* "decay" of an optimizer, "momentum" of a buffer */
    double value;
} template_key;

static const tti_node *find_template(const tutti_graph *g, const template_key *key) {
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (strcmp(node->op->name, key->op) == 0 &&
            (size_t)tti_value_n_elems(node->out[0]) == key->n_elems &&
            tti_attr_float(node, key->attr) == key->value)
            return node;
    }
    return NULL;
}

/* A source by name, made on first use: templates of one length share theirs. */
static tutti_value *source(tutti_graph *g, const char *name, size_t n_elems) {
    tti_node *known = tti_graph_find_source(g, name);
    tutti_shape shape = TUTTI_SHAPE((int64_t)n_elems);
    return known ? known->out[0] : tutti_input(g, name, TUTTI_F32, &shape);
}

/* Inputs: w, states, gradient, hyper, and norms where the op takes them. */
static const tti_node *make_template(tti_plan *plan, const tti_attr_arg *given,
                                     const template_key *key) {
    tutti_graph *g = plan->update_graph;
    const tti_op *op = tti_op_find(key->op);
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    tutti_value *in[TTI_MAX_IN] = {0}, *out[TTI_MAX_OUT] = {0};
    int n = 0, n_in = 0;
    for (; given && given[n].name; n++) attrs[n] = given[n];
    attrs[n] = TTI_FLOAT(key->attr, key->value);
    bool takes_norms = tti_takes_norms(op);
    int n_tensors = op->n_in_max - 1 - takes_norms;
    for (; n_in < n_tensors; n_in++) {
        char name[64];
        snprintf(name, sizeof name, "%d.%zu", n_in, key->n_elems);
        in[n_in] = source(g, name, key->n_elems);
    }
    in[n_in++] = source(g, "hyper", N_HYPER);
    if (takes_norms) in[n_in++] = source(g, "norms", 2);
    tti_emit_n(g, key->op, NULL, in, n_in, attrs, out);
    return out[0] ? out[0]->node : NULL;
}

static const tti_node *get_template(tti_plan *plan, const tti_attr_arg *given,
                                    const template_key *key) {
    const tti_node *known = find_template(plan->update_graph, key);
    return known ? known : make_template(plan, given, key);
}

bool tti_takes_norms(const tti_op *op) { return (op->traits & TTI_NORMS) != 0; }

/* The nodes of one block; a frozen one has none and is only hashed.  Blocks of a slot are equal
 * except for the last: before is the previous one, NULL for the first. */
static tutti_status fill_step(tti_plan *plan, const tti_plan_desc *desc, const tti_slot *slot,
                              const tti_update_step *before, tti_update_step *step) {
    if (slot->rule.frozen) return TUTTI_OK;
    if (before && before->n_elems == step->n_elems) {
        step->node = before->node, step->direction = before->direction;
        return TUTTI_OK;
    }
    template_key key = {desc->optimizer, step->n_elems, "decay", slot->rule.decay};
    if (slot->buffer)
        key = (template_key){"buffer_update", step->n_elems, "momentum",
                             tti_attr_float(slot->param, "momentum")};
    step->node = get_template(plan, slot->buffer ? NULL : desc->optimizer_attrs, &key);
    char direction[64];
    snprintf(direction, sizeof direction, "%s_direction", key.op);
    if (tti_op_find(direction)) {
        key.op = direction;
        step->direction = get_template(plan, desc->optimizer_attrs, &key);
    }
    return tutti_graph_check(plan->update_graph);
}

static tutti_status add_slot(tti_plan *plan, const tti_plan_desc *desc, int index) {
    tti_slot *slot = &plan->slots[index];
    slot->rule = (tti_slot_rule){.lr_factor = 1, .decay = slot->decay ? desc->weight_decay : 0};
    if (desc->rule && !slot->buffer) desc->rule(slot->param->name, desc->rule_user, &slot->rule);
    if (!slot->buffer && tti_attr_int(slot->param, "reach") == TTI_GRAD_IS_MISSING)
        slot->rule.frozen = true;
    for (size_t done = 0; done < slot->n_elems; done += TTI_UPDATE_BLOCK) {
        tti_update_step *step = &plan->updates[plan->n_updates++];
        *step =
            (tti_update_step){.slot = index,
                              .first = slot->first + done,
                              .hash_at = slot->first + done,
                              .hash_weight = 1,
                              .n_elems = TTI_MIN(slot->n_elems - done, (size_t)TTI_UPDATE_BLOCK)};
        TTI_TRY(fill_step(plan, desc, slot, done > 0 ? step - 1 : NULL, step));
    }
    return TUTTI_OK;
}

tutti_status tti_plan_update(tti_plan *plan, const tti_plan_desc *desc) {
    const tti_op *op = tti_op_find(desc->optimizer);
    if (!op || !(op->traits & TTI_UPDATE))
        return tti_fail(TUTTI_E_INVALID, "plan: '%s' is not an optimizer", desc->optimizer);
    plan->n_states = op->n_out - 1;
    plan->takes_norms = tti_takes_norms(op);
    size_t n_blocks = 0;
    for (int i = 0; i < plan->n_slots; i++)
        n_blocks += plan->slots[i].n_elems / TTI_UPDATE_BLOCK + 1;
    plan->updates = calloc(n_blocks + 1, sizeof *plan->updates);
    plan->update_graph = tutti_graph_create(true);
    if (!plan->updates || !plan->update_graph)
        return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < plan->n_slots; i++) TTI_TRY(add_slot(plan, desc, i));
    return TUTTI_OK;
}

/* A parameter on n stages has weight n on the first and -1 on each copy, so that every block is in
 * the hash of its worker. */
static uint64_t hash_weight(const tti_plan *plan, const tti_slot *slot) {
    const tti_stages *s = plan->stages;
    for (int i = 0; i < s->n_tied; i++)
        if (strcmp(s->tied[i].name, slot->param->name) == 0)
            return slot->is_copy ? UINT64_MAX : (uint64_t)s->tied[i].n_stages;
    return 1;
}

void tti_plan_hash_as(tti_plan *stage, const tti_plan *whole) {
    for (int i = 0; i < stage->n_updates; i++) {
        tti_update_step *step = &stage->updates[i];
        const tti_slot *slot = &stage->slots[step->slot];
        int there = tti_plan_find_slot(whole, slot->param->name);
        TTI_ASSERT(there >= 0);
        step->hash_at = whole->slots[there].first + (step->first - slot->first);
        step->hash_weight = hash_weight(stage, slot);
    }
}

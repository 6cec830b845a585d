/* plan.c - turns two graphs into the three programs of a plan. */
#include "passes/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ops/loss/losses.h"
#include "passes/pass_cache.h"

/* Sources are data and views are other names of their input: neither runs.  Slices and concats
 * of adjacent values, and casts that the update makes, do not run either. */
static bool runs(const tti_program *program, const tti_node *node) {
    const tti_neighbours *neighbours = &program->neighbours;
    return !(node->op->traits & (TTI_SOURCE | TTI_VIEW)) && !neighbours->joined[node->id] &&
           !neighbours->cut_from[node->id] &&
           !(program->is_low_copy && program->is_low_copy[node->id]);
}

/* They must be in one bucket too, which training ensures only within groups: each bucket may have
 * its own memory. */
static bool are_side_by_side(const tti_plan *plan, const tti_slot *a, const tti_slot *b) {
    return b->first == a->first + a->n_elems &&
           tti_plan_find_bucket(plan, b->first) == tti_plan_find_bucket(plan, a->first);
}

static bool slots_are_neighbours(const tti_plan *plan, const tti_node *concat) {
    for (int i = 0; i + 1 < concat->n_in; i++) {
        int a = tti_plan_find_slot(plan, concat->in[i]->node->name);
        int b = tti_plan_find_slot(plan, concat->in[i + 1]->node->name);
        if (a < 0 || b < 0 || !are_side_by_side(plan, &plan->slots[a], &plan->slots[b]))
            return false;
    }
    return true;
}

/* In training the result determines the slots; in an evaluation they exist already.  Stages divide
 * programs by the maker of a gradient: there all nodes run. */
static tutti_status find_neighbours(const tti_plan *plan, bool wanted, tti_program *program) {
    const tutti_graph *g = program->graph;
    TTI_TRY(tti_neighbours_find(g, wanted && !plan->stages, &program->neighbours));
    for (int i = 0; program == &plan->eval && i < g->n_nodes; i++)
        program->neighbours.joined[i] =
            tti_joins_params(g->nodes[i]) && slots_are_neighbours(plan, g->nodes[i]);
    return TUTTI_OK;
}

/* has_neighbours: slots may stand as its parameters want it. */
static tutti_status make_program(const tti_plan *plan, const tti_target *target,
                                 bool has_neighbours, tti_program *program) {
    const tutti_graph *g = program->graph;
    TTI_TRY(find_neighbours(plan, has_neighbours, program));
    program->joins_norms = target->joins_norms && !plan->stages;
    program->joins_grads = program->joins_norms ? target->joins_grads : 0;
    if (program == &plan->shard && !plan->stages) TTI_TRY(tti_low_copies_find(target, program));
    program->steps = calloc((size_t)g->n_nodes + 1, sizeof(tti_node *));
    program->bufs = calloc((size_t)g->n_values + 1, sizeof *program->bufs);
    if (!program->steps || !program->bufs) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        if (runs(program, g->nodes[i])) program->steps[program->n_steps++] = g->nodes[i];
        if (g->nodes[i]->op->traits & TTI_INPUT) program->n_inputs++;
    }
    return TUTTI_OK;
}

static void program_fini(tti_program *program) {
    tutti_graph_destroy(program->graph);
    free(program->steps);
    free(program->bufs);
    free(program->segment_first);
    free(program->is_low_copy);
    tti_neighbours_fini(&program->neighbours);
}

static tutti_status check_same_params(const tti_plan *plan) {
    const tutti_graph *g = plan->eval.graph;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (!(node->op->traits & (TTI_PARAM | TTI_BUFFER))) continue;
        int slot = tti_plan_find_slot(plan, node->name);
        if (slot < 0 || !tti_shape_equal(&plan->slots[slot].param->out[0]->type.shape,
                                         &node->out[0]->type.shape))
            return tti_fail(TUTTI_E_INVALID,
                            "plan: parameter '%s' differs between training and evaluation: a model "
                            "must build the same parameters in both",
                            node->name);
    }
    return TUTTI_OK;
}

static tutti_status make_stages(tti_plan *plan, tti_target *target) {
    if (target->n_stages < 2) return TUTTI_OK;
    plan->stages = calloc(1, sizeof *plan->stages);
    if (!plan->stages) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    *plan->stages = (tti_stages){.stage = target->stage,
                                 .n_stages = target->n_stages,
                                 .n_chunks = TTI_MAX(1, target->n_chunks)};
    target->stages = plan->stages;
    return TUTTI_OK;
}

/* If several stages have a parameter, the first one counts. */
static void mark_copies(tti_plan *plan) {
    const tti_stages *s = plan->stages;
    for (int i = 0; s && i < s->n_tied; i++) {
        int slot = tti_plan_find_slot(plan, s->tied[i].name);
        if (slot >= 0) plan->slots[slot].is_copy = s->tied[i].stages[0] < s->stage;
    }
}

static tutti_status run_passes(const tti_plan_desc *desc, bool training, const tti_target *target,
                               tutti_graph **g) {
    if (!desc->pass_cache) return tti_pipeline_run(g, target, NULL);
    return tti_pass_cache_run(desc->pass_cache, &(tti_cached_graph_key){desc->number, training},
                              target, g);
}

static tutti_status build(tti_plan *plan, const tti_plan_desc *desc, tti_cuts *cuts) {
    tti_target target = *desc->target;
    target.cuts = cuts; /* evaluation has the same shards of the parameters */
    TTI_TRY(make_stages(plan, &target));
    TTI_TRY(run_passes(desc, true, &target, &plan->shard.graph));
    plan->n_metrics = plan->stages ? plan->stages->n_metrics : tti_n_own_metrics(plan->shard.graph);
    TTI_TRY(make_program(plan, &target, !desc->by_creation, &plan->shard));
    TTI_TRY(tti_plan_segments(plan->stages, &plan->shard));
    TTI_TRY(tti_plan_buckets(plan, desc));
    TTI_TRY(tti_plan_check_segments(plan));
    mark_copies(plan);
    tti_low_copies_place(plan, &target);
    TTI_TRY(tti_plan_memory(plan, &plan->shard));
    TTI_TRY(tti_plan_update(plan, desc));
    if (!plan->eval.graph && !desc->pass_cache) return TUTTI_OK;
    TTI_TRY(run_passes(desc, false, &target, &plan->eval.graph));
    TTI_TRY(make_program(plan, &target, !desc->by_creation, &plan->eval));
    TTI_TRY(tti_plan_segments(plan->stages, &plan->eval));
    TTI_TRY(check_same_params(plan));
    return tti_plan_memory(plan, &plan->eval);
}

tutti_status tti_plan_create(const tti_plan_desc *desc, tti_plan **out) {
    *out = NULL;
    tti_plan *plan = calloc(1, sizeof *plan);
    if (!plan) {
        tutti_graph_destroy(desc->train);
        tutti_graph_destroy(desc->eval);
        return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    }
    plan->shard.graph = desc->train;
    plan->eval.graph = desc->eval;
    tti_cuts cuts = {0};
    tutti_status st = build(plan, desc, &cuts);
    tti_cuts_fini(&cuts);
    if (st != TUTTI_OK) {
        tti_plan_destroy(plan);
        return st;
    }
    *out = plan;
    return TUTTI_OK;
}

void tti_plan_destroy(const tti_plan *made) {
    tti_plan *plan = (tti_plan *)(uintptr_t)made; /* the caller holds the last pointer */
    if (!plan) return;
    program_fini(&plan->shard);
    program_fini(&plan->eval);
    tutti_graph_destroy(plan->update_graph);
    if (plan->stages) tti_stages_fini(plan->stages);
    free(plan->stages);
    free(plan->slots);
    free(plan->buckets);
    free(plan->updates);
    free(plan);
}

const char *tti_plan_metric_name(const tti_plan *plan, int i) {
    const tutti_graph *g = plan->shard.graph;
    int k = 0;
    while (!tti_is_own_metric(g->outputs[k].name) || i-- > 0) k++;
    return g->outputs[k].name + sizeof TTI_OWN_METRIC - 1;
}

size_t tti_plan_low_copies_bytes(const tti_plan *plan) {
    return plan->n_low_copies * sizeof(uint16_t);
}

size_t tti_plan_own_bytes(const tti_plan *plan) {
    const tti_program *train = &plan->shard, *eval = &plan->eval;
    size_t n_bytes = train->const_bytes + train->result_bytes;
    return eval->graph ? n_bytes + eval->const_bytes + eval->result_bytes : n_bytes;
}

int tti_program_input(const tti_program *program, const char *name) {
    const tti_node *node = tti_graph_find_source(program->graph, name);
    if (!node || !(node->op->traits & TTI_INPUT)) return -1;
    return (int)program->bufs[node->out[0]->id].offset;
}

/* ---- common properties of plans ---- */

static uint64_t mix(uint64_t hash, uint64_t word) {
    return (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
}

uint64_t tti_plan_digest(const tti_plan *plan) {
    uint64_t hash = mix(plan->n_flat, (uint64_t)plan->n_states);
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        hash = mix(mix(hash, tti_hash_name(slot->param->name)), slot->first);
        hash = mix(mix(hash, slot->n_elems), slot->buffer);
    }
    for (int i = 0; i < plan->n_buckets; i++) hash = mix(hash, plan->buckets[i].first);
    for (int i = 0; i < plan->n_updates; i++) hash = mix(hash, plan->updates[i].first);
    for (int i = 0; i < plan->shard.n_steps; i++) {
        const tti_node *node = plan->shard.steps[i];
        if (!(node->op->traits & TTI_SYNC)) continue;
        hash = mix(mix(hash, tti_hash_name(node->op->name)), tti_hash_name(node->name));
        hash = mix(hash, (uint64_t)tti_value_n_elems(node->out[0]));
    }
    return hash;
}

double tti_program_flops(const tti_program *program) {
    double flops = 0;
    for (int i = 0; i < program->n_steps; i++) {
        tti_cost cost = {0};
        if (program->steps[i]->op->cost) program->steps[i]->op->cost(program->steps[i], &cost);
        flops += cost.flops;
    }
    return flops;
}

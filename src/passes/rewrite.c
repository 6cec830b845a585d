/* rewrite.c - helpers for building a new graph from an old one. */
#include "passes/rewrite.h"

#include <stdlib.h>
#include <string.h>

int *tti_count_uses(const tutti_graph *g) {
    int *n_uses = calloc((size_t)g->n_values + 1, sizeof *n_uses);
    if (!n_uses) return NULL;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) n_uses[g->nodes[i]->in[k]->id]++;
    for (int i = 0; i < g->n_outputs; i++) n_uses[g->outputs[i].value->id]++;
    return n_uses;
}

bool tti_is_output(const tutti_graph *g, const tutti_value *value) {
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i].value == value) return true;
    return false;
}

bool tti_is_op(const tti_node *node, const char *name) { return strcmp(node->op->name, name) == 0; }

bool tti_reads(const tti_node *node, const tutti_value *value) {
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] == value) return true;
    return false;
}

const tti_node *tti_only_user(const tutti_graph *g, const tutti_value *value) {
    const tti_node *user = NULL;
    for (int i = value->node->id + 1; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == value) {
                if (user) return NULL;
                user = g->nodes[i];
            }
    return user;
}

tutti_status tti_rewrite_begin(tti_rewrite *rw, const tutti_graph *from) {
    *rw = (tti_rewrite){.from = from, .to = tutti_graph_create(from->training)};
    rw->map = calloc((size_t)from->n_values + 1, sizeof *rw->map);
    rw->n_uses = tti_count_uses(from);
    if (rw->to) rw->to->joins_samples = from->joins_samples, rw->to->n_shards = from->n_shards;
    if (rw->to && rw->map && rw->n_uses) return TUTTI_OK;
    tutti_graph_destroy(rw->to);
    free(rw->map);
    free(rw->n_uses);
    *rw = (tti_rewrite){0};
    return tti_fail(TUTTI_E_NOMEM, "passes: out of memory");
}

void tti_rewrite_copy(tti_rewrite *rw, const tti_node *node) {
    bool has_stage = node->stage > 0 && !(node->op->traits & TTI_SOURCE);
    if (has_stage) rw->to->stage = node->stage; /* also for additional nodes */
    tti_graph_clone_node(rw->to, node, rw->map);
}

/* The clone reads its inputs through the map.  Backwards, as an input may be there twice. */
void tti_rewrite_copy_with(tti_rewrite *rw, const tti_node *node, tutti_value *const *in) {
    tutti_value *before[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) {
        before[i] = rw->map[node->in[i]->id];
        rw->map[node->in[i]->id] = in[i];
    }
    tti_rewrite_copy(rw, node);
    for (int i = node->n_in - 1; i >= 0; i--) rw->map[node->in[i]->id] = before[i];
}

/* A replacement belongs to the stage of the original node. */
static void keep_stages(const tti_rewrite *rw) {
    for (int i = 0; i < rw->from->n_nodes; i++) {
        const tti_node *node = rw->from->nodes[i];
        for (int k = 0; k < node->op->n_out && node->stage > 0; k++)
            if (rw->map[node->out[k]->id]) rw->map[node->out[k]->id]->node->stage = node->stage;
    }
}

tutti_status tti_rewrite_finish(tti_rewrite *rw, tutti_graph **g) {
    keep_stages(rw);
    for (int i = 0; i < rw->from->n_outputs; i++)
        tutti_output(rw->to, rw->from->outputs[i].name, rw->map[rw->from->outputs[i].value->id]);
    bool lost = rw->to->n_outputs != rw->from->n_outputs;
    if (lost && tutti_graph_check(rw->to) == TUTTI_OK)
        tti_graph_fail(rw->to, tti_fail(TUTTI_E_INTERNAL, "passes: a rewrite lost an output"));
    return tti_rewrite_replace(rw, g);
}

tutti_status tti_rewrite_replace(tti_rewrite *rw, tutti_graph **g) {
    tutti_status st = tutti_graph_check(rw->to);
    if (st == TUTTI_OK) {
        tutti_graph_destroy(*g);
        *g = rw->to;
    } else {
        tutti_graph_destroy(rw->to);
    }
    free(rw->map);
    free(rw->n_uses);
    *rw = (tti_rewrite){0};
    return st;
}

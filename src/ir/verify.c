/* verify.c - checks the invariants of a graph between passes. */
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "ir/graph.h"

static tutti_status broken(const tti_node *node, const char *what) {
    return tti_fail(TUTTI_E_INTERNAL, "verify: node %d %s '%s': %s", node->id, node->op->name,
                    node->name, what);
}

static tutti_status verify_inputs(const tutti_graph *g, const tti_node *node) {
    for (int i = 0; i < node->n_in; i++) {
        const tutti_value *in = node->in[i];
        if (!in || !in->node) return broken(node, "an input has no producer");
        const tti_node *from = in->node;
        if (from->id < 0 || from->id >= g->n_nodes || g->nodes[from->id] != from)
            return broken(node, "an input is of another graph");
        if (from->id >= node->id) return broken(node, "an input is produced later");
        if (in->out < 0 || in->out >= from->op->n_out || from->out[in->out] != in)
            return broken(node, "an input is not an output of its producer");
    }
    return TUTTI_OK;
}

static tutti_status verify_outputs(const tutti_graph *g, const tti_node *node) {
    tutti_type types[TTI_MAX_OUT] = {0};
    if (node->op->infer(node, types) != TUTTI_OK) return broken(node, tutti_last_error());
    for (int k = 0; k < node->op->n_out; k++) {
        const tutti_value *out = node->out[k];
        if (!out || out->node != node || out->out != k) return broken(node, "an output is astray");
        if (out->id < 0 || out->id >= g->n_values) return broken(node, "an output id is wild");
        if (out->type.dtype != types[k].dtype ||
            !tti_shape_equal(&out->type.shape, &types[k].shape))
            return broken(node, "an output's type is not what infer says");
        if (out->layout != TTI_PLAIN && out->type.shape.n_dims != 4)
            return broken(node, "only 4-D values may be channels last");
    }
    return TUTTI_OK;
}

/* Passes and plans keep arrays by value id. */
static tutti_status verify_ids(const tutti_graph *g) {
    bool *seen = calloc((size_t)g->n_values + 1, sizeof *seen);
    if (!seen) return tti_fail(TUTTI_E_NOMEM, "verify: out of memory");
    const tti_node *guilty = NULL;
    for (int i = 0; i < g->n_nodes && !guilty; i++)
        for (int k = 0; k < g->nodes[i]->op->n_out; k++) {
            int id = g->nodes[i]->out[k]->id;
            if (seen[id]) guilty = g->nodes[i];
            seen[id] = true;
        }
    free(seen);
    return guilty ? broken(guilty, "an output id is used twice") : TUTTI_OK;
}

/* The entry of a name in a table of so many, a power of two: its node's, or an empty one. */
static const tti_node **entry_of(const tti_node **table, size_t n, const char *name) {
    size_t at = (size_t)tti_hash_name(name) & (n - 1);
    while (table[at] && strcmp(table[at]->name, name) != 0) at = (at + 1) & (n - 1);
    return &table[at];
}

/* Constants may be called as they like. */
static tutti_status verify_name(const tti_node **table, size_t n, const tti_node *node) {
    bool is_constant = (node->op->traits & TTI_CONSTANT) != 0;
    if (!(node->op->traits & TTI_SOURCE)) return TUTTI_OK;
    if (!node->name[0]) return is_constant ? TUTTI_OK : broken(node, "a source without a name");
    const tti_node **entry = entry_of(table, n, node->name);
    if (*entry && !is_constant) return broken(node, "the name is taken");
    if (!*entry) *entry = node;
    return TUTTI_OK;
}

static tutti_status verify_names(const tutti_graph *g) {
    size_t n = 16;
    while (n < 2 * (size_t)g->n_nodes) n *= 2;
    const tti_node **table = calloc(n, sizeof *table);
    if (!table) return tti_fail(TUTTI_E_NOMEM, "verify: out of memory");
    tutti_status st = TUTTI_OK;
    for (int i = 0; st == TUTTI_OK && i < g->n_nodes; i++) st = verify_name(table, n, g->nodes[i]);
    free(table);
    return st;
}

tutti_status tti_graph_verify(const tutti_graph *g) {
    TTI_TRY(tutti_graph_check(g));
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (node->id != i) return broken(node, "its id is not its position");
        if (node->n_in < node->op->n_in_min || node->n_in > node->op->n_in_max)
            return broken(node, "wrong number of inputs");
        TTI_TRY(verify_inputs(g, node));
        TTI_TRY(verify_outputs(g, node));
    }
    TTI_TRY(verify_names(g));
    TTI_TRY(verify_ids(g));
    for (int i = 0; i < g->n_outputs; i++) {
        const tutti_value *value = g->outputs[i].value;
        if (!value || value->node->id >= g->n_nodes || g->nodes[value->node->id] != value->node)
            return tti_fail(TUTTI_E_INTERNAL, "verify: output '%s' is of another graph",
                            g->outputs[i].name);
    }
    return TUTTI_OK;
}

/* fuse.c - bias and activation into linear and conv; chains of elementwise nodes into one.
 *
 * A chain node ("fused") keeps its parts in node->body and runs them block by block, so that the
 * values between them stay in the nearest cache.  The bits are those of the separate nodes. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MAX_CHAIN = 16 };

/* ---- epilogues ---- */

/* The node whose epilogue this one can be: its only use, no activation there yet. */
static const tti_node *epilogue_host(const tti_rewrite *rw, const tti_node *node) {
    if (node->n_in < 1) return NULL;
    const tti_node *host = node->in[0]->node;
    bool takes = (host->op->traits & TTI_TAKES_EPILOGUE) && rw->n_uses[host->out[0]->id] == 1 &&
                 tti_attr_int(host, "act") == TTI_EPILOGUE_NONE;
    return takes ? host : NULL;
}

static bool is_channel_bias(const tti_node *host, const tutti_value *bias) {
    const tutti_shape *y = &host->out[0]->type.shape, *b = &bias->type.shape;
    return host->n_in == host->op->n_in_max - 1 && (bias->node->op->traits & TTI_PARAM) &&
           b->n_dims == 1 && y->n_dims == 2 && b->dim[0] == y->dim[1];
}

static void add_with_epilogue(tti_rewrite *rw, const tti_node *host, const tti_node *node) {
    tutti_value *in[TTI_MAX_IN] = {0};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    int n_in = host->n_in;
    for (int i = 0; i < n_in; i++) in[i] = rw->map[host->in[i]->id];
    for (int i = 0; i < tti_n_attrs(host->op); i++)
        attrs[i] = (tti_attr_arg){host->op->attrs[i].name, host->attrs[i]};
    int n_attrs = tti_n_attrs(host->op);
    if (node->op->epilogue == TTI_EPILOGUE_BIAS)
        in[n_in++] = rw->map[node->in[1]->id];
    else
        attrs[n_attrs] = TTI_INT("act", node->op->epilogue); /* later ones win */
    tti_node *made = tti_graph_add(
        rw->to, &(tti_node_desc){
                    .op = host->op, .name = host->name, .in = in, .n_in = n_in, .attrs = attrs});
    if (!made) return;
    made->out[0]->layout = host->out[0]->layout;
    rw->map[node->out[0]->id] = made->out[0];
}

static void fuse_epilogue(tti_rewrite *rw, const tti_node *node) {
    const tti_node *host = node->op->epilogue ? epilogue_host(rw, node) : NULL;
    bool bias = node->op->epilogue == TTI_EPILOGUE_BIAS;
    if (host && bias && !is_channel_bias(host, node->in[1])) host = NULL;
    if (host && node->out[0]->layout != host->out[0]->layout) host = NULL;
    if (host)
        add_with_epilogue(rw, host, node);
    else
        tti_rewrite_copy(rw, node);
}

static tutti_status fuse_epilogues(tutti_graph **g) {
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < (*g)->n_nodes; i++) fuse_epilogue(&rw, (*g)->nodes[i]);
    return tti_rewrite_finish(&rw, g);
}

/* ---- chains ---- */

/* One f32 output, all inputs of its shape and layout, no in-between state. */
static bool can_chain(const tti_node *node) {
    unsigned traits = node->op->traits;
    if (!(traits & (TTI_ELEMENTWISE | TTI_BROADCAST)) || node->op->n_out != 1) return false;
    if (traits & (TTI_UPDATE | TTI_FUSED | TTI_RANDOM | TTI_SOURCE)) return false;
    for (int i = 0; i < node->n_in; i++) {
        const tutti_value *in = node->in[i];
        if (in->type.dtype != TUTTI_F32 || in->layout != node->out[0]->layout) return false;
        if (!tti_shape_equal(&in->type.shape, &node->out[0]->type.shape)) return false;
    }
    return node->n_in > 0 && node->out[0]->type.dtype == TUTTI_F32;
}

typedef struct chain {
    const tti_node *part[MAX_CHAIN]; /* in order */
    int n_parts;
} chain;

/* The longest chain that starts at node: each part is used once, by the next part. */
static chain find_chain(const tti_rewrite *rw, const tti_node *node) {
    chain c = {.part = {node}, .n_parts = 1};
    while (c.n_parts < MAX_CHAIN) {
        const tti_node *last = c.part[c.n_parts - 1];
        if (rw->n_uses[last->out[0]->id] != 1) break;
        const tti_node *next = tti_only_user(rw->from, last->out[0]);
        if (!next || !can_chain(next)) break;
        c.part[c.n_parts++] = next;
    }
    return c;
}

static bool chain_has(const chain *c, const tti_node *node) {
    for (int i = 0; i < c->n_parts; i++)
        if (c->part[i] == node) return true;
    return false;
}

/* Inputs from outside the chain, each once, as values of the new graph; -1: too many. */
static int outside_inputs(const tti_rewrite *rw, const chain *c, tutti_value **in) {
    int n_in = 0;
    for (int p = 0; p < c->n_parts; p++)
        for (int i = 0; i < c->part[p]->n_in; i++) {
            const tutti_value *old = c->part[p]->in[i];
            tutti_value *value = rw->map[old->id];
            bool known = chain_has(c, old->node) || !value;
            for (int k = 0; k < n_in; k++) known = known || in[k] == value;
            if (known) continue;
            if (n_in == TTI_MAX_IN) return -1;
            in[n_in++] = value;
        }
    return n_in;
}

/* A copy of a part that belongs to the fused node: its values are in no list of the graph. */
static tti_node *body_node(tti_rewrite *rw, const tti_node *part) {
    tutti_graph *g = rw->to;
    tti_node *node = tti_arena_copy(&g->arena, part, sizeof *part);
    tutti_value *out = tti_arena_copy(&g->arena, part->out[0], sizeof *out);
    tutti_value **in = tti_arena_alloc(&g->arena, (size_t)part->n_in * sizeof(tutti_value *));
    tti_attr *attrs =
        tti_arena_copy(&g->arena, part->attrs, (size_t)tti_n_attrs(part->op) * sizeof(tti_attr));
    char *name = tti_arena_strdup(&g->arena, part->name);
    if (!node || !out || !in || !attrs || !name) return NULL;
    for (int i = 0; i < part->n_in; i++) in[i] = rw->map[part->in[i]->id];
    *out = (tutti_value){part->out[0]->type, part->out[0]->layout, node, 0, -1};
    node->name = name;
    node->in = in;
    node->attrs = attrs;
    node->out[0] = out;
    node->id = -1;
    rw->map[part->out[0]->id] = out;
    return node;
}

static bool fuse_chain(tti_rewrite *rw, const chain *c) {
    tutti_value *in[TTI_MAX_IN] = {0};
    int n_in = outside_inputs(rw, c, in);
    if (n_in < 1) return false;
    tti_node *made =
        tti_graph_add(rw->to, &(tti_node_desc){.op = tti_op_find("fused"), .in = in, .n_in = n_in});
    tti_node **body =
        made ? tti_arena_alloc(&rw->to->arena, (size_t)c->n_parts * sizeof *body) : NULL;
    if (!body) return false;
    for (int p = 0; p < c->n_parts; p++)
        if (!(body[p] = body_node(rw, c->part[p]))) return false;
    made->body = body;
    made->n_body = c->n_parts;
    const tti_node *last = c->part[c->n_parts - 1];
    made->out[0]->layout = last->out[0]->layout;
    rw->map[last->out[0]->id] = made->out[0];
    return true;
}

/* Parts of a chain stand where its last part stood, when all outside inputs exist. */
static tutti_status fuse_chains(tutti_graph **g) {
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    int n_nodes = (*g)->n_nodes;
    chain *at = calloc((size_t)n_nodes + 1, sizeof *at); /* by the last part's node id */
    bool *taken = calloc((size_t)n_nodes + 1, sizeof *taken);
    if (!at || !taken) tti_graph_fail(rw.to, tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; at && taken && i < n_nodes; i++) {
        if (taken[i] || !can_chain((*g)->nodes[i])) continue;
        chain c = find_chain(&rw, (*g)->nodes[i]);
        bool clash = c.n_parts < 2;
        for (int p = 0; p < c.n_parts; p++) clash = clash || taken[c.part[p]->id];
        if (clash) continue;
        for (int p = 0; p < c.n_parts; p++) taken[c.part[p]->id] = true;
        at[c.part[c.n_parts - 1]->id] = c;
    }
    for (int i = 0; at && taken && i < n_nodes; i++) {
        if (!taken[i])
            tti_rewrite_copy(&rw, (*g)->nodes[i]);
        else if (at[i].n_parts && !fuse_chain(&rw, &at[i]))
            for (int p = 0; p < at[i].n_parts; p++) tti_rewrite_copy(&rw, at[i].part[p]);
    }
    free(at);
    free(taken);
    return tti_rewrite_finish(&rw, g);
}

tutti_status tti_pass_fuse(tutti_graph **g, const tti_target *target) {
    if (!target->fuse) return TUTTI_OK;
    TTI_TRY(fuse_epilogues(g)); /* leaves the hosts dead, with uses that would hide chains */
    TTI_TRY(tti_pass_simplify(g, target));
    return fuse_chains(g);
}

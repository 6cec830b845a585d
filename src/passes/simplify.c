/* simplify.c - removes dead, repeated and identity nodes.
 *
 * Outputs that are sources become copies of them.
 *
 * Identity: an op with TTI_EVAL_IDENTITY in a graph that is not for training; a view to the same
 * shape.  Repeated: a pure node with the same op, attributes and inputs as an earlier one. */
#include <stdlib.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

/* Marks what outputs need; inputs and parameters always stay, so that a program keeps its slots. */
static bool *find_live(const tutti_graph *g) {
    bool *live = calloc((size_t)g->n_nodes + 1, sizeof *live);
    if (!live) return NULL;
    for (int i = 0; i < g->n_outputs; i++) live[g->outputs[i].value->node->id] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const tti_node *node = g->nodes[i];
        if (node->op->traits & (TTI_INPUT | TTI_PARAM | TTI_BUFFER)) live[i] = true;
        if (!live[i]) continue;
        for (int k = 0; k < node->n_in; k++) live[node->in[k]->node->id] = true;
    }
    return live;
}

static bool is_identity(const tutti_graph *g, const tti_node *node) {
    if ((node->op->traits & TTI_EVAL_IDENTITY) && !g->training) return true;
    if (node->op->traits & TTI_TURNS) return false; /* autodiff needs it */
    return (node->op->traits & TTI_VIEW) && node->op->n_out == 1 &&
           node->in[0]->layout == node->out[0]->layout &&
           tti_shape_equal(&node->in[0]->type.shape, &node->out[0]->type.shape);
}

/* Bytes are compared by what they hold. */
static bool same_attrs(const tti_node *a, const tti_node *b) {
    for (int i = 0; i < tti_n_attrs(a->op); i++) {
        tti_attr x = a->attrs[i], y = b->attrs[i];
        if (a->op->attrs[i].kind == TTI_ATTR_BYTES) {
            if (x.i != y.i || memcmp(x.bytes, y.bytes, (size_t)x.i) != 0) return false;
            x.bytes = y.bytes;
        }
        if (memcmp(&x, &y, sizeof x) != 0) return false;
    }
    return true;
}

static bool same_work(const tti_node *a, const tti_node *b) {
    if (a->op != b->op || a->n_in != b->n_in || a->n_body || b->n_body) return false;
    for (int i = 0; i < a->n_in; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int k = 0; k < a->op->n_out; k++)
        if (a->out[k]->layout != b->out[k]->layout) return false;
    return same_attrs(a, b);
}

/* An earlier node of the new graph with the same effect.  The candidate is the last added node.  An
 * equal node has the same inputs, so it comes after the last of them. */
static const tti_node *find_twin(const tutti_graph *to, const tti_node *node) {
    int first = 0;
    if (node->op->traits & (TTI_INPUT | TTI_PARAM | TTI_BUFFER | TTI_UPDATE)) return NULL;
    for (int i = 0; i < node->n_in; i++) first = TTI_MAX(first, node->in[i]->node->id + 1);
    for (int i = first; i < node->id; i++)
        if (same_work(to->nodes[i], node)) return to->nodes[i];
    return NULL;
}

/* A gradient must stay a separate value: it is written into its parameter's slot. */
static bool makes_output(const tutti_graph *g, const tti_node *node) {
    for (int k = 0; k < node->op->n_out; k++)
        if (tti_is_output(g, node->out[k])) return true;
    return false;
}

static void simplify_node(tti_rewrite *rw, const tti_node *node) {
    if (is_identity(tti_old_graph(rw), node)) {
        tti_map(rw, node->out[0], tti_mapped(rw, node->in[0]));
        return;
    }
    tti_rewrite_copy(rw, node);
    tutti_value *copied = tti_mapped(rw, node->out[0]);
    if (!copied) return;
    const tti_node *copy = copied->node;
    const tti_node *twin = find_twin(tti_new_graph(rw), copy);
    if (!twin || makes_output(tti_old_graph(rw), node)) return;
    for (int k = 0; k < node->op->n_out; k++) tti_map(rw, node->out[k], twin->out[k]);
}

static tutti_status sweep(tutti_graph **g) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    bool *live = find_live(*g);
    if (!live) return tti_fail(TUTTI_E_NOMEM, "simplify: out of memory");
    tutti_status st = tti_rewrite_begin(&rw, *g);
    if (st == TUTTI_OK) {
        for (int i = 0; i < from->n_nodes; i++)
            if (live[i]) simplify_node(&rw, from->nodes[i]);
        st = tti_rewrite_finish(&rw, g);
    }
    free(live);
    return st;
}

/* Results have memory of their own, so an output that is an input, a parameter or a constant, or a
 * view of one, becomes a copy. */
static tutti_status copy_sources(tutti_graph *g) {
    for (int i = 0; i < g->n_outputs; i++) {
        tutti_value *value = g->outputs[i].value;
        bool is_source = (tti_skip_views(value)->node->op->traits & TTI_SOURCE) != 0;
        if (!is_source || strncmp(g->outputs[i].name, "stat.", 5) == 0) continue;
        const char *copy = value->type.dtype == TUTTI_F32 ? "affine" : "concat";
        g->outputs[i].value = tti_emit(g, copy, NULL, &value, 1, NULL);
    }
    return tutti_graph_check(g);
}

tutti_status tti_pass_simplify(tutti_graph **g, const tti_target *target) {
    (void)target;
    TTI_TRY(sweep(g)); /* replaces identities and twins */
    TTI_TRY(sweep(g)); /* drops what these left dead */
    return copy_sources(*g);
}

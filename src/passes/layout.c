/* layout.c - chooses N,H,W,C order for 4-D activations if the backend is faster with it.
 *
 * Shapes stay N,C,H,W; only value->layout changes, and "to_layout" nodes convert the bytes.  Ops
 * with TTI_CHANNELS_LAST convert their activations, elementwise ops and collectives follow their
 * inputs, all other ops use the plain layout.  If C or H*W is 1 both layouts are the same bytes and
 * nothing is converted. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct layout_pass {
    tti_rewrite rw;
    const tti_target *target;
    tutti_value **turned; /* [from->n_values]: the other layout of a mapped value, NULL: not made */
} layout_pass;

static bool is_4d(const tutti_value *value) { return value->type.shape.n_dims == 4; }

/* Both layouts are the same bytes. */
static bool is_free(const tutti_value *value) {
    const int64_t *d = value->type.shape.dim;
    return d[1] == 1 || d[2] * d[3] == 1;
}

/* The mapped value of old in the wanted layout; a to_layout node is emitted where needed. */
static tutti_value *in_layout(layout_pass *lp, const tutti_value *old, tti_layout wanted) {
    tutti_value *value = lp->rw.map[old->id];
    if (!value || !is_4d(value) || value->layout == wanted) return value;
    if (is_free(value)) {
        if (wanted == TTI_CHANNELS_LAST_BYTES) value->layout = wanted;
        return value;
    }
    tutti_value **turned = &lp->turned[old->id];
    if (*turned) return *turned;
    *turned = tti_emit(lp->rw.to, "to_layout", NULL, &value, 1,
                       (tti_attr_arg[]){TTI_INT("layout", wanted), {0}});
    if (*turned) (*turned)->layout = wanted;
    return *turned;
}

/* An exchange follows its input: it knows where a dimension lies in it. */
static bool follows_one(const layout_pass *lp, const tti_node *node) {
    if (!(node->op->traits & TTI_COLLECTIVE)) return false;
    const tutti_value *mapped = lp->rw.map[node->in[0]->id];
    return mapped && is_4d(mapped) && mapped->layout == TTI_CHANNELS_LAST_BYTES;
}

/* An elementwise node follows when its 4-D inputs have one shape and the others are scalars. */
static bool follows(const layout_pass *lp, const tti_node *node) {
    if (!(node->op->traits & (TTI_ELEMENTWISE | TTI_BROADCAST))) return false;
    if (node->op->traits & TTI_RANDOM) return false; /* element indices refer to the plain layout */
    bool any = false;
    for (int i = 0; i < node->n_in; i++) {
        const tutti_value *in = node->in[i], *mapped = lp->rw.map[in->id];
        bool same = is_4d(in) && tti_shape_equal(&in->type.shape, &node->out[0]->type.shape);
        if (!same && tti_value_n_elems(in) != 1) return false;
        any = any || (same && mapped && mapped->layout == TTI_CHANNELS_LAST_BYTES);
    }
    return any;
}

static void copy_with_layout(layout_pass *lp, const tti_node *node, bool last, unsigned weights_in,
                             unsigned weights_out) {
    tutti_value *saved[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) {
        bool turn = last && is_4d(node->in[i]) && !((weights_in >> i) & 1u);
        saved[i] = in_layout(lp, node->in[i], turn ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN);
    }
    tutti_value *before[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) { /* the clone reads its inputs through the map */
        before[i] = lp->rw.map[node->in[i]->id];
        lp->rw.map[node->in[i]->id] = saved[i];
    }
    tti_rewrite_copy(&lp->rw, node);
    for (int i = node->n_in - 1; i >= 0; i--) lp->rw.map[node->in[i]->id] = before[i];
    for (int k = 0; last && k < node->op->n_out; k++) {
        tutti_value *out = lp->rw.map[node->out[k]->id];
        if (out && is_4d(out) && !((weights_out >> k) & 1u)) out->layout = TTI_CHANNELS_LAST_BYTES;
    }
}

static void visit(layout_pass *lp, const tti_node *node) {
    if (node->op->traits & TTI_TURNS) { /* the gradient is computed: it is the input */
        lp->rw.map[node->out[0]->id] = lp->rw.map[node->in[0]->id];
        return;
    }
    bool wants = (node->op->traits & TTI_CHANNELS_LAST) && lp->target->prefers_channels_last(node);
    if (wants)
        copy_with_layout(lp, node, true, node->op->weights_in, node->op->weights_out);
    else
        copy_with_layout(lp, node, follows(lp, node) || follows_one(lp, node), 0, 0);
}

/* Outputs of the graph have the plain layout. */
static void turn_outputs(layout_pass *lp) {
    for (int i = 0; i < lp->rw.from->n_outputs; i++) {
        const tutti_value *old = lp->rw.from->outputs[i].value;
        lp->rw.map[old->id] = in_layout(lp, old, TTI_PLAIN);
    }
}

tutti_status tti_pass_layout(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    if (!target->prefers_channels_last) return TUTTI_OK;
    layout_pass lp = {.target = target};
    TTI_TRY(tti_rewrite_begin(&lp.rw, *g));
    lp.turned = calloc((size_t)from->n_values + 1, sizeof *lp.turned);
    if (!lp.turned) tti_graph_fail(lp.rw.to, tti_fail(TUTTI_E_NOMEM, "layout: out of memory"));
    for (int i = 0; lp.turned && i < from->n_nodes; i++) visit(&lp, from->nodes[i]);
    if (lp.turned) turn_outputs(&lp);
    tutti_status st = tti_rewrite_finish(&lp.rw, g);
    free(lp.turned);
    return st;
}

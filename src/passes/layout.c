/* layout.c - chooses N,H,W,C order for 4-D activations if the backend is faster with it.
 *
 * Shapes stay N,C,H,W; only value->layout changes, and "to_layout" nodes convert the bytes.  Ops
 * with TTI_CHANNELS_LAST convert their activations, elementwise ops and collectives follow their
 * inputs, all other ops use the plain layout.  On a backend whose kernels take any strides,
 * broadcasts and the ops with TTI_EITHER_LAYOUT follow too.  A transpose between [N,C,H,W] and
 * [N,H,W,C] becomes a view if one side can be in N,H,W,C order.  If C or H*W is 1 both layouts are
 * the same bytes and nothing is converted. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "ops/rules.h"
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
    tutti_value *value = tti_mapped(&lp->rw, old);
    if (!value || !is_4d(value) || value->layout == wanted) return value;
    if (is_free(value)) {
        if (wanted == TTI_CHANNELS_LAST_BYTES) value->layout = wanted;
        return value;
    }
    tutti_value **turned = &lp->turned[old->id];
    if (*turned) return *turned;
    *turned = tti_emit(tti_new_graph(&lp->rw), "to_layout", NULL, &value, 1,
                       (tti_attr_arg[]){TTI_INT("layout", wanted), {0}});
    if (*turned) (*turned)->layout = wanted;
    return *turned;
}

/* A collective keeps the layout of its input: it finds its dimension in that layout. */
static bool follows_one(const layout_pass *lp, const tti_node *node) {
    if (!(node->op->traits & TTI_COLLECTIVE)) return false;
    const tutti_value *mapped = tti_mapped(&lp->rw, node->in[0]);
    return mapped && is_4d(mapped) && mapped->layout == TTI_CHANNELS_LAST_BYTES;
}

static bool is_last(const tutti_value *mapped) {
    return mapped && is_4d(mapped) && mapped->layout == TTI_CHANNELS_LAST_BYTES;
}

/* The inputs that an elementwise node repeats, as bits: they keep their layout. */
static unsigned repeated_inputs(const tti_node *node) {
    unsigned repeated = 0;
    for (int i = 0; i < node->n_in; i++)
        if (!tti_shape_equal(&node->in[i]->type.shape, &node->out[0]->type.shape))
            repeated |= 1u << i;
    return repeated;
}

/* An elementwise node follows when its 4-D inputs have one shape and the others are scalars, or
 * anything if kernels take strides. */
static bool elementwise_follows(const layout_pass *lp, const tti_node *node) {
    if (node->op->traits & TTI_RANDOM) return false; /* element indices refer to the plain layout */
    unsigned repeated = repeated_inputs(node);
    bool any = false;
    for (int i = 0; i < node->n_in; i++) {
        bool same = !((repeated >> i) & 1u);
        if (!same && !lp->target->strided && tti_value_n_elems(node->in[i]) != 1) return false;
        any = any || (same && is_last(tti_mapped(&lp->rw, node->in[i])));
    }
    return any;
}

static bool any_is_last(const layout_pass *lp, const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (is_last(tti_mapped(&lp->rw, node->in[i]))) return true;
    return false;
}

static bool follows(const layout_pass *lp, const tti_node *node) {
    unsigned traits = node->op->traits;
    if (!is_4d(node->out[0])) return false;
    if (traits & (TTI_ELEMENTWISE | TTI_BROADCAST)) return elementwise_follows(lp, node);
    return lp->target->strided && (traits & TTI_EITHER_LAYOUT) && any_is_last(lp, node);
}

/* How a copied node has its 4-D values: N,H,W,C order, except those of the other fields, by bit. */
typedef struct layout_choice {
    bool last;
    unsigned plain_in, plain_out; /* plain order whatever last says */
    unsigned kept_in;             /* as they are */
} layout_choice;

static void copy_with_layout(layout_pass *lp, const tti_node *node, layout_choice c) {
    bool last = c.last;
    tutti_value *saved[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) {
        bool turn = last && is_4d(node->in[i]) && !((c.plain_in >> i) & 1u);
        saved[i] = (c.kept_in >> i) & 1u
                       ? tti_mapped(&lp->rw, node->in[i])
                       : in_layout(lp, node->in[i], turn ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN);
    }
    tutti_value *before[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) { /* the clone reads its inputs through the map */
        before[i] = tti_mapped(&lp->rw, node->in[i]);
        tti_map(&lp->rw, node->in[i], saved[i]);
    }
    tti_rewrite_copy(&lp->rw, node);
    for (int i = node->n_in - 1; i >= 0; i--) tti_map(&lp->rw, node->in[i], before[i]);
    for (int k = 0; last && k < node->op->n_out; k++) {
        tutti_value *out = tti_mapped(&lp->rw, node->out[k]);
        if (out && is_4d(out) && !((c.plain_out >> k) & 1u)) out->layout = TTI_CHANNELS_LAST_BYTES;
    }
}

/* Whether node is a transpose of 4 dimensions in this order. */
static bool permutes(const tti_node *node, int a, int b, int c) {
    if (!(node->op->traits & TTI_PERMUTES) || !is_4d(node->in[0])) return false;
    const int64_t *perm = tti_attr_get(node, "perm")->v;
    return perm[0] == 0 && perm[1] == a && perm[2] == b && perm[3] == c;
}

/* Emits the transpose as a view: [N,C,H,W] in N,H,W,C order is [N,H,W,C] in plain order. */
static bool view_transpose(layout_pass *lp, const tti_node *node) {
    bool to_planes = permutes(node, 3, 1, 2), to_rows = permutes(node, 2, 3, 1);
    if (!to_planes && !to_rows) return false;
    tutti_value *x = tti_mapped(&lp->rw, node->in[0]), *turned = lp->turned[node->in[0]->id];
    if (to_rows && turned && is_last(turned)) x = turned;
    to_rows = to_rows && x && (is_last(x) || is_free(x));
    to_planes = to_planes && x && !is_last(x);
    if (!to_rows && !to_planes) return false;
    tutti_value *y = tti_emit(tti_new_graph(&lp->rw), "permute_view", node->name, &x, 1,
                              (tti_attr_arg[]){tti_same_attr(node, "perm"), {0}});
    if (y && to_planes) y->layout = TTI_CHANNELS_LAST_BYTES;
    tti_map(&lp->rw, node->out[0], y);
    return true;
}

static void visit(layout_pass *lp, const tti_node *node) {
    if (view_transpose(lp, node)) return;
    if (node->op->traits & TTI_TURNS) { /* the gradient is computed: it is the input */
        tti_map(&lp->rw, node->out[0], tti_mapped(&lp->rw, node->in[0]));
        return;
    }
    bool wants = (node->op->traits & TTI_CHANNELS_LAST) && lp->target->prefers_channels_last(node);
    bool by_element = node->op->traits & (TTI_ELEMENTWISE | TTI_BROADCAST);
    layout_choice c = {.last = wants || follows(lp, node) || follows_one(lp, node)};
    if (wants) c.plain_in = node->op->weights_in, c.plain_out = node->op->weights_out;
    if (lp->target->strided && c.last && by_element) c.kept_in = repeated_inputs(node);
    if (lp->target->strided && (node->op->traits & TTI_READS_STRIDED)) c.kept_in = ~0u;
    copy_with_layout(lp, node, c);
}

/* Outputs of the graph have the plain layout. */
static void turn_outputs(layout_pass *lp) {
    for (int i = 0; i < tti_old_graph(&lp->rw)->n_outputs; i++) {
        const tutti_value *old = tti_old_graph(&lp->rw)->outputs[i].value;
        tti_map(&lp->rw, old, in_layout(lp, old, TTI_PLAIN));
    }
}

tutti_status tti_pass_layout(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    if (!target->prefers_channels_last) return TUTTI_OK;
    layout_pass lp = {.target = target};
    TTI_TRY(tti_rewrite_begin(&lp.rw, *g));
    lp.turned = calloc((size_t)from->n_values + 1, sizeof *lp.turned);
    if (!lp.turned)
        tti_graph_fail(tti_new_graph(&lp.rw), tti_fail(TUTTI_E_NOMEM, "layout: out of memory"));
    for (int i = 0; lp.turned && i < from->n_nodes; i++) visit(&lp, from->nodes[i]);
    if (lp.turned) turn_outputs(&lp);
    tutti_status st = tti_rewrite_finish(&lp.rw, g);
    free(lp.turned);
    return st;
}

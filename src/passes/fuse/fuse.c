/* fuse.c - merges bias, residual and activation into the node before them, and an activation's
 * gradient into the nodes after it; chains of elementwise nodes into one; gradients of slices.
 *
 * Hosts are found in the new graph, so that an addition and then an activation are merged into one
 * node. dy is passed unmasked to the gradients of a batch norm only if all its readers apply the
 * mask.  If another node needs the masked dy, as the shortcut of a residual block does, it is made
 * once and all nodes read it, which moves fewer bytes than masking twice.
 *
 * A chain node ("fused") keeps its parts in node->body and runs them block by block, so that the
 * values between them stay in the nearest cache.  The bits are those of the separate nodes. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MAX_CHAIN = 16 };

/* ---- epilogues ---- */

/* The node of the new graph whose epilogue the user of this input can be: its only use, no
 * activation there yet. */
static const tti_node *epilogue_host(const tti_rewrite *rw, const tutti_value *in) {
    const tutti_value *mapped = tti_mapped(rw, in);
    if (!mapped || tti_n_uses(rw, in) != 1) return NULL;
    const tti_node *host = mapped->node;
    bool takes =
        (host->op->traits & TTI_TAKES_EPILOGUE) && tti_attr_int(host, "act") == TTI_EPILOGUE_NONE;
    return takes ? host : NULL;
}

static bool same_kind(const tutti_value *a, const tutti_value *b) {
    return a->type.dtype == b->type.dtype && a->layout == b->layout &&
           tti_shape_equal(&a->type.shape, &b->type.shape);
}

/* The host takes added as its last input: a bias, or a residual. */
static bool takes_addend(const tti_node *host, const tutti_value *added) {
    const tutti_shape *y = &host->out[0]->type.shape, *b = &added->type.shape;
    if (host->n_in != host->op->n_in_max - 1) return false;
    if (host->op->traits & TTI_TAKES_RESIDUAL) return same_kind(host->out[0], added);
    return (added->node->op->traits & TTI_PARAM) && b->n_dims == 1 && y->n_dims == 2 &&
           b->dim[0] == y->dim[1];
}

/* Copies a node of the new graph with one more input (or NULL) and another act; the results replace
 * those of becomes. */
static void add_again(tti_rewrite *rw, const tti_node *node, tutti_value *more, tti_epilogue act,
                      const tti_node *becomes) {
    tutti_value *in[TTI_MAX_IN] = {0};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    int n_in = node->n_in, n_attrs = tti_n_attrs(node->op);
    for (int i = 0; i < n_in; i++) in[i] = node->in[i];
    if (more) in[n_in++] = more;
    for (int i = 0; i < n_attrs; i++)
        attrs[i] = (tti_attr_arg){node->op->attrs[i].name, node->attrs[i]};
    attrs[n_attrs] = TTI_INT("act", act); /* later ones win */
    tti_node *made = tti_graph_add(
        tti_new_graph(rw),
        &(tti_node_desc){
            .op = node->op, .name = node->name, .in = in, .n_in = n_in, .attrs = attrs});
    if (!made) return;
    for (int k = 0; k < becomes->op->n_out; k++) {
        made->out[k]->layout = node->out[k]->layout;
        tti_map(rw, becomes->out[k], made->out[k]);
    }
}

/* An addition goes into the host of one of its inputs, the first if both can. */
static bool fuse_addition(tti_rewrite *rw, const tti_node *node) {
    for (int i = 0; i < node->n_in; i++) {
        const tti_node *host = epilogue_host(rw, node->in[i]);
        tutti_value *added = tti_mapped(rw, node->in[1 - i]);
        if (!host || !added || host->out[0]->layout != node->out[0]->layout) continue;
        if (!takes_addend(host, added)) continue;
        add_again(rw, host, added, TTI_EPILOGUE_NONE, node);
        return true;
    }
    return false;
}

static bool fuse_activation(tti_rewrite *rw, const tti_node *node) {
    const tti_node *host = epilogue_host(rw, node->in[0]);
    if (!host || host->out[0]->layout != node->out[0]->layout) return false;
    add_again(rw, host, NULL, node->op->epilogue, node);
    return true;
}

static void fuse_epilogue(tti_rewrite *rw, const tti_node *node) {
    bool fused = false;
    if (node->op->epilogue == TTI_EPILOGUE_BIAS)
        fused = fuse_addition(rw, node);
    else if (node->op->epilogue != TTI_EPILOGUE_NONE)
        fused = fuse_activation(rw, node);
    if (!fused) tti_rewrite_copy(rw, node);
}

static tutti_status fuse_epilogues(tutti_graph **g) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) fuse_epilogue(&rw, from->nodes[i]);
    return tti_rewrite_finish(&rw, g);
}

/* ---- masks: an activation's gradient, merged into the gradients after it ---- */

/* user reads dy, the result of mask, only where it can take the mask instead. */
static bool takes_mask(const tti_node *user, const tti_node *mask) {
    const tutti_value *dy = mask->out[0];
    for (int i = 1; i < user->n_in; i++)
        if (user->in[i] == dy) return false;
    return (user->op->traits & TTI_TAKES_MASK) && user->in[0] == dy &&
           user->n_in < user->op->n_in_max && tti_attr_int(user, "act") == TTI_EPILOGUE_NONE &&
           same_kind(dy, mask->in[0]) && same_kind(dy, mask->in[1]);
}

/* Whether every reader of the result of mask can apply the mask itself. */
static bool all_take_mask(const tti_rewrite *rw, const tti_node *mask) {
    int n = 0;
    for (int i = mask->id + 1; i < tti_old_graph(rw)->n_nodes; i++)
        n += takes_mask(tti_old_graph(rw)->nodes[i], mask);
    return n > 0 && n == tti_n_uses(rw, mask->out[0]);
}

/* The node with dy as it was before the mask, and y. */
static void add_masked(tti_rewrite *rw, const tti_node *node) {
    const tti_node *mask = node->in[0]->node;
    tutti_value *in[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) in[i] = tti_mapped(rw, node->in[i]);
    in[0] = tti_mapped(rw, mask->in[1]);
    tti_node old = *node; /* as a node of the new graph */
    old.in = in;
    add_again(rw, &old, tti_mapped(rw, mask->in[0]), mask->op->epilogue_grad, node);
}

static tutti_status fuse_masks(tutti_graph **g) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        const tti_node *mask = node->n_in > 0 ? node->in[0]->node : NULL;
        if (mask && mask->op->epilogue_grad && takes_mask(node, mask) && all_take_mask(&rw, mask))
            add_masked(&rw, node);
        else
            tti_rewrite_copy(&rw, node);
    }
    return tti_rewrite_finish(&rw, g);
}

/* ---- chains ---- */

static bool is_chained(tutti_dtype dtype, bool any_float) {
    return dtype == TUTTI_F32 || (any_float && (dtype == TUTTI_BF16 || dtype == TUTTI_F16));
}

/* One float output, all inputs of its shape and layout, no intermediate state. */
static bool can_chain(const tti_node *node, bool any_float) {
    unsigned traits = node->op->traits;
    if (!(traits & (TTI_ELEMENTWISE | TTI_BROADCAST)) || node->op->n_out != 1) return false;
    if (traits & (TTI_UPDATE | TTI_FUSED | TTI_RANDOM | TTI_SOURCE)) return false;
    for (int i = 0; i < node->n_in; i++) {
        const tutti_value *in = node->in[i];
        if (!is_chained(in->type.dtype, any_float) || in->layout != node->out[0]->layout)
            return false;
        if (!tti_shape_equal(&in->type.shape, &node->out[0]->type.shape)) return false;
    }
    return node->n_in > 0 && is_chained(node->out[0]->type.dtype, any_float);
}

typedef struct chain {
    const tti_node *part[MAX_CHAIN]; /* in order */
    int n_parts;
} chain;

/* The longest chain that starts at node: each part is used once, by the next part. */
static chain find_chain(const tti_rewrite *rw, const tti_node *node, bool any_float) {
    chain c = {.part = {node}, .n_parts = 1};
    while (c.n_parts < MAX_CHAIN) {
        const tti_node *last = c.part[c.n_parts - 1];
        if (tti_n_uses(rw, last->out[0]) != 1) break;
        const tti_node *next = tti_only_user(tti_old_graph(rw), last->out[0]);
        if (!next || !can_chain(next, any_float)) break;
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
            tutti_value *value = tti_mapped(rw, old);
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
    tti_arena *arena = tti_graph_arena(tti_new_graph(rw));
    const tutti_graph *g = tti_new_graph(rw);
    tti_node *node = tti_arena_copy(arena, part, sizeof *part);
    tutti_value *out = tti_arena_copy(arena, part->out[0], sizeof *out);
    tutti_value **in = tti_arena_alloc(arena, (size_t)part->n_in * sizeof(tutti_value *));
    tti_attr *attrs =
        tti_arena_copy(arena, part->attrs, (size_t)tti_n_attrs(part->op) * sizeof(tti_attr));
    char *name = tti_arena_strdup(arena, part->name);
    if (!node || !out || !in || !attrs || !name) return NULL;
    for (int i = 0; i < part->n_in; i++) in[i] = tti_mapped(rw, part->in[i]);
    *out = (tutti_value){
        .type = part->out[0]->type, .layout = part->out[0]->layout, .node = node, .id = -1};
    node->name = name;
    node->module = g->module;
    node->in = in;
    node->attrs = attrs;
    node->out[0] = out;
    node->id = -1;
    tti_map(rw, part->out[0], out);
    return node;
}

static bool fuse_chain(tti_rewrite *rw, const chain *c) {
    tutti_value *in[TTI_MAX_IN] = {0};
    int n_in = outside_inputs(rw, c, in);
    if (n_in < 1) return false;
    tti_node *made = tti_graph_add(
        tti_new_graph(rw), &(tti_node_desc){.op = tti_op_find("fused"), .in = in, .n_in = n_in});
    tti_node **body =
        made ? tti_arena_alloc(&tti_new_graph(rw)->arena, (size_t)c->n_parts * sizeof *body) : NULL;
    if (!body) return false;
    for (int p = 0; p < c->n_parts; p++)
        if (!(body[p] = body_node(rw, c->part[p]))) return false;
    made->body = body;
    made->n_body = c->n_parts;
    const tti_node *last = c->part[c->n_parts - 1];
    made->out[0]->layout = last->out[0]->layout;
    made->out[0]->type.dtype = last->out[0]->type.dtype;
    tti_map(rw, last->out[0], made->out[0]);
    return true;
}

/* Parts of a chain stand where its last part stood, when all outside inputs exist. */
static tutti_status fuse_chains(tutti_graph **g, bool any_float) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    int n_nodes = from->n_nodes;
    chain *at = calloc((size_t)n_nodes + 1, sizeof *at); /* by the last part's node id */
    bool *taken = calloc((size_t)n_nodes + 1, sizeof *taken);
    if (!at || !taken)
        tti_graph_fail(tti_new_graph(&rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; at && taken && i < n_nodes; i++) {
        if (taken[i] || !can_chain(from->nodes[i], any_float)) continue;
        chain c = find_chain(&rw, from->nodes[i], any_float);
        bool clash = c.n_parts < 2;
        for (int p = 0; p < c.n_parts; p++) clash = clash || taken[c.part[p]->id];
        if (clash) continue;
        for (int p = 0; p < c.n_parts; p++) taken[c.part[p]->id] = true;
        at[c.part[c.n_parts - 1]->id] = c;
    }
    for (int i = 0; at && taken && i < n_nodes; i++) {
        if (!taken[i])
            tti_rewrite_copy(&rw, from->nodes[i]);
        else if (at[i].n_parts && !fuse_chain(&rw, &at[i]))
            for (int p = 0; p < at[i].n_parts; p++) tti_rewrite_copy(&rw, at[i].part[p]);
    }
    free(at);
    free(taken);
    return tti_rewrite_finish(&rw, g);
}

/* ---- gradients of slices that make up a value ---- */

/*   slice_grad(a) + slice_grad(b) + ..              concat(a, b, ..)
 * Queries, keys and values that are slices of one product have such a gradient.  Each term is as
 * large as the sum and mostly zeros; joined, each part is moved once.  The bits are the same: what
 * is added to each element is 0. */
typedef struct joining {
    tti_rewrite rw;
    const tti_op *add, *part;
    bool *gone; /* [n_nodes]: in a concat that comes later */
} joining;

/* The terms of a sum, in order of their place. */
typedef struct terms {
    const tti_node *term[TTI_MAX_IN], *inner[2 * TTI_MAX_IN];
    int n, n_inner;
} terms;

static int64_t start_of(const tti_node *part) { return tti_attr_int(part, "start"); }

static int axis_of(const tti_node *part) {
    int64_t axis = tti_attr_int(part, "axis");
    return (int)(axis < 0 ? axis + part->in[0]->type.shape.n_dims : axis);
}

static int64_t length_of(const tti_node *part) {
    return part->in[0]->type.shape.dim[axis_of(part)];
}

static bool insert_term(terms *t, const tti_node *part) {
    if (t->n == TTI_MAX_IN) return false;
    int i = t->n++;
    for (; i > 0 && start_of(t->term[i - 1]) > start_of(part); i--) t->term[i] = t->term[i - 1];
    t->term[i] = part;
    return true;
}

/* Adds the terms of a value that only the sum reads. */
static bool collect_terms(const joining *j, const tti_node *node, bool is_root, terms *t) {
    const tutti_value *y = node->out[0];
    if (y->layout != TTI_PLAIN || (!is_root && tti_n_uses(&j->rw, y) != 1)) return false;
    if (!is_root && t->n_inner == 2 * TTI_MAX_IN) return false;
    if (!is_root) t->inner[t->n_inner++] = node;
    if (node->op == j->part) return node->in[0]->layout == TTI_PLAIN && insert_term(t, node);
    if (node->op != j->add) return false;
    for (int i = 0; i < 2; i++)
        if (!tti_shape_equal(&node->in[i]->type.shape, &y->type.shape) ||
            node->in[i]->type.dtype != y->type.dtype ||
            !collect_terms(j, node->in[i]->node, false, t))
            return false;
    return true;
}

/* Whether the terms lie side by side and are all of the value. */
static bool make_up(const terms *t) {
    int64_t end = 0;
    for (int i = 0; i < t->n; i++) {
        if (axis_of(t->term[i]) != axis_of(t->term[0]) || start_of(t->term[i]) != end) return false;
        end += length_of(t->term[i]);
    }
    return t->n > 1 && end == tti_attr_int(t->term[0], "total");
}

static bool find_terms(const joining *j, const tti_node *node, terms *t) {
    *t = (terms){.n = 0};
    return node->op == j->add && collect_terms(j, node, true, t) && make_up(t);
}

static void mark_terms(joining *j, const tti_node *node) {
    terms t;
    if (j->gone[node->id] || !find_terms(j, node, &t)) return;
    for (int i = 0; i < t.n_inner; i++) j->gone[t.inner[i]->id] = true;
}

static void join_terms(joining *j, const tti_node *node) {
    terms t;
    if (j->gone[node->id]) return;
    if (!find_terms(j, node, &t)) {
        tti_rewrite_copy(&j->rw, node);
        return;
    }
    tutti_value *in[TTI_MAX_IN] = {NULL};
    for (int i = 0; i < t.n; i++) in[i] = tti_mapped(&j->rw, t.term[i]->in[0]);
    tti_map(&j->rw, node->out[0],
            tti_emit(tti_new_graph(&j->rw), "concat", node->name, in, t.n,
                     (tti_attr_arg[]){TTI_INT("axis", axis_of(t.term[0])), {0}}));
}

static tutti_status fuse_slices(tutti_graph **g) {
    joining j = {.add = tti_op_find("add"), .part = tti_op_find("slice_grad")};
    TTI_TRY(tti_rewrite_begin(&j.rw, *g));
    j.gone = calloc((size_t)(*g)->n_nodes + 1, sizeof *j.gone);
    if (!j.gone)
        tti_graph_fail(tti_new_graph(&j.rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = (*g)->n_nodes - 1; j.gone && i >= 0; i--) mark_terms(&j, (*g)->nodes[i]);
    for (int i = 0; j.gone && i < (*g)->n_nodes; i++) join_terms(&j, (*g)->nodes[i]);
    free(j.gone);
    return tti_rewrite_finish(&j.rw, g);
}

tutti_status tti_pass_fuse(tutti_graph **g, const tti_target *target) {
    if (!target->fuse) return TUTTI_OK;
    TTI_TRY(fuse_slices(g));
    TTI_TRY(tti_sink_masks(g));
    TTI_TRY(fuse_epilogues(g));
    TTI_TRY(tti_fuse_bn_join(g, target));
    TTI_TRY(fuse_masks(g)); /* both leave dead nodes, with uses that would hide chains */
    TTI_TRY(tti_fuse_bn_masks(g, target));
    TTI_TRY(tti_pass_simplify(g, target));
    TTI_TRY(tti_fuse_bn_pairs(g, target));
    TTI_TRY(tti_fuse_bn_bits(g, target));
    TTI_TRY(tti_fuse_conv_join(g, target));
    TTI_TRY(tti_fuse_conv_sums(g, target));
    TTI_TRY(tti_fuse_conv_stats(g, target));
    TTI_TRY(tti_fuse_bn_pool(g, target));
    TTI_TRY(tti_fuse_pool(g, target));
    TTI_TRY(tti_fuse_norm(g, target)); /* first: it reads casts that products would take */
    TTI_TRY(tti_fuse_loss(g, target));
    TTI_TRY(tti_fuse_head(g, target)); /* before products become other ops */
    TTI_TRY(tti_fuse_linear(g, target));
    TTI_TRY(tti_fuse_sums(g, target));
    return fuse_chains(g, target->chains_any_float);
}

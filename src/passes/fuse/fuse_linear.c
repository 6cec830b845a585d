/* fuse_linear.c - merges a gelu, its gradient, an addition or a cast to f32 into the preceding
 * matrix product, if the backend has kernels for both (tti_target.fuse_linear_grad), for all
 * products or for some (joins_products).
 *
 * The records say which ops can be merged, and into which op: tti_op.joint and .joined.  A merged
 * op takes the place of its product, so no value lives longer than before: its other inputs must
 * exist already.  Merged ops may be merged again, so the pass repeats until it finds nothing. */
#include <stdlib.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MAX_ROUNDS = 3 };

/* A product and the nodes that are merged with it; for WIDE one for each used output. */
typedef struct pairing {
    tti_joint joint;                   /* TTI_JOINT_NONE: none */
    const tti_node *with[TTI_MAX_OUT]; /* [0] but for WIDE; NULL: none */
} pairing;

typedef struct finder {
    const tti_rewrite *rw;
    const tti_target *target;
} finder;

/* The only user of a value that is not an output of the graph; NULL: others, several, none. */
static const tti_node *sole_user(const tti_rewrite *rw, const tutti_value *value) {
    return tti_n_uses(rw, value) == 1 ? tti_only_user(tti_old_graph(rw), value) : NULL;
}

static bool same_type(const tutti_value *a, const tutti_value *b) {
    return a->type.dtype == b->type.dtype && a->layout == b->layout &&
           tti_shape_equal(&a->type.shape, &b->type.shape);
}

/* A gelu by tanh goes into every product, an exact one where the backend says so. */
static bool joins_gelu(const finder *f, const tti_node *product, const tti_node *gelu) {
    bool exact = tti_attr_has(gelu, "approximate") && tti_attr_int(gelu, "approximate") == 0;
    return !exact || (f->target->joins_exact_gelu && f->target->joins_exact_gelu(product));
}

/* z goes to the gelu and, in training, to others. */
static bool pair_gelu(const finder *f, const tti_node *node, pairing *out) {
    const tti_rewrite *rw = f->rw;
    const tutti_value *z = node->out[0];
    for (int i = node->id + 1; i < tti_old_graph(rw)->n_nodes && tti_n_uses(rw, z) > 1; i++) {
        const tti_node *user = tti_old_graph(rw)->nodes[i];
        if (user->op->joint != TTI_JOINT_GELU || user->in[0] != z) continue;
        if (!same_type(user->out[0], z) || !joins_gelu(f, node, user)) continue;
        *out = (pairing){TTI_JOINT_GELU, {user}};
        return true;
    }
    return false;
}

static bool pair_gelu_grad(const finder *f, const tti_node *node, pairing *out) {
    const tti_node *user = sole_user(f->rw, node->out[0]);
    if (!user || user->op->joint != TTI_JOINT_GELU_GRAD || !joins_gelu(f, node, user)) return false;
    const tutti_value *z = user->in[0];
    if (user->in[1] != node->out[0] || z->node->id > node->id || !same_type(z, user->in[1]))
        return false;
    *out = (pairing){TTI_JOINT_GELU_GRAD, {user}};
    return true;
}

/* The other term of an addition. */
static const tutti_value *other_term(const tti_node *node, const tti_node *sum) {
    return sum->in[sum->in[0] == node->out[0] ? 1 : 0];
}

/* An activation at the end of the product comes before any following node. */
static bool is_bare(const tti_node *product) {
    return !(product->op->traits & TTI_TAKES_EPILOGUE) ||
           tti_attr_int(product, "act") == TTI_EPILOGUE_NONE;
}

const tti_node *tti_added_by(const tti_rewrite *rw, const tti_node *product) {
    if (!product->op->joined[TTI_JOINT_ADD] || !is_bare(product)) return NULL;
    const tti_node *user = sole_user(rw, product->out[0]);
    if (!user || user->op->joint != TTI_JOINT_ADD) return NULL;
    const tutti_value *other = other_term(product, user);
    bool fits = other->node->id <= product->id && same_type(other, product->out[0]) &&
                same_type(user->out[0], product->out[0]);
    return fits ? user : NULL;
}

static bool pair_add(const finder *f, const tti_node *node, pairing *out) {
    const tti_node *user = tti_added_by(f->rw, node);
    if (user) *out = (pairing){TTI_JOINT_ADD, {user}};
    return user != NULL;
}

/* Every output that is used goes to a cast to f32 and nowhere else. */
static bool pair_wide(const finder *f, const tti_node *node, pairing *out) {
    const tti_rewrite *rw = f->rw;
    pairing found = {TTI_JOINT_WIDE, {NULL}};
    tutti_dtype dtype = node->out[0]->type.dtype;
    if (dtype != TUTTI_BF16 && dtype != TUTTI_F16) return false;
    for (int k = 0; k < node->op->n_out; k++) {
        if (tti_n_uses(rw, node->out[k]) == 0) continue;
        const tti_node *user = sole_user(rw, node->out[k]);
        if (!user || user->op->joint != TTI_JOINT_WIDE || user->out[0]->type.dtype != TUTTI_F32 ||
            user->out[0]->layout != node->out[k]->layout)
            return false;
        found.with[k] = user;
    }
    if (!found.with[0]) return false;
    *out = found;
    return true;
}

static pairing pair(const finder *f, const tti_node *node) {
    typedef bool (*pair_fn)(const finder *f, const tti_node *node, pairing *out);
    static const pair_fn pairs[TTI_N_JOINTS] = {[TTI_JOINT_GELU] = pair_gelu,
                                                [TTI_JOINT_GELU_GRAD] = pair_gelu_grad,
                                                [TTI_JOINT_ADD] = pair_add,
                                                [TTI_JOINT_WIDE] = pair_wide};
    pairing found = {TTI_JOINT_NONE, {NULL}};
    if (!is_bare(node)) return found;
    for (int j = TTI_JOINT_NONE + 1; j < TTI_N_JOINTS; j++)
        if (node->op->joined[j] && pairs[j](f, node, &found)) break;
    return found;
}

/* Adds the attributes of node that op has too. */
static void shared_attrs(const tti_node *node, const tti_op *op, tti_attr_arg *attrs) {
    int n = 0;
    while (attrs[n].name) n++;
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        for (int k = 0; k < tti_n_attrs(op); k++)
            if (strcmp(node->op->attrs[i].name, op->attrs[k].name) == 0)
                attrs[n++] = (tti_attr_arg){op->attrs[k].name, node->attrs[i]};
}

static void join(tti_rewrite *rw, const tti_node *node, const pairing *with) {
    const tti_op *op = tti_op_find(node->op->joined[with->joint]);
    const tti_node *other = with->with[0];
    tutti_value *in[TTI_MAX_IN] = {NULL};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    int n_in = node->n_in;
    TTI_ASSERT(op);
    for (int i = 0; i < n_in; i++) in[i] = tti_mapped(rw, node->in[i]);
    if (with->joint == TTI_JOINT_GELU_GRAD) in[n_in++] = tti_mapped(rw, other->in[0]);
    if (with->joint == TTI_JOINT_ADD) in[n_in++] = tti_mapped(rw, other_term(node, other));
    shared_attrs(node, op, attrs);
    if (other) shared_attrs(other, op, attrs);
    tti_node *made = tti_graph_add(
        tti_new_graph(rw),
        &(tti_node_desc){.op = op, .name = node->name, .in = in, .n_in = n_in, .attrs = attrs});
    if (!made) return; /* sticky */
    if (with->joint == TTI_JOINT_GELU) tti_map(rw, node->out[0], made->out[1]);
    for (int k = 0; k < TTI_MAX_OUT; k++)
        if (with->with[k]) tti_map(rw, with->with[k]->out[0], made->out[k]);
}

/* Once over the graph. */
static tutti_status join_all(tutti_graph **g, const tti_target *target, int *n_joined) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    *n_joined = 0;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    bool *taken = calloc((size_t)from->n_nodes + 1, sizeof *taken);
    if (!taken) tti_graph_fail(tti_new_graph(&rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; taken && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (taken[i]) continue;
        pairing found = {TTI_JOINT_NONE, {NULL}};
        if (!target->joins_products || target->joins_products(node))
            found = pair(&(finder){&rw, target}, node);
        bool fits = found.joint != TTI_JOINT_NONE;
        for (int k = 0; k < TTI_MAX_OUT; k++)
            if (found.with[k] && taken[found.with[k]->id]) fits = false;
        if (!fits) {
            tti_rewrite_copy(&rw, node);
            continue;
        }
        for (int k = 0; k < TTI_MAX_OUT; k++)
            if (found.with[k]) taken[found.with[k]->id] = true;
        join(&rw, node, &found);
        ++*n_joined;
    }
    free(taken);
    return tti_rewrite_finish(&rw, g);
}

tutti_status tti_fuse_linear(tutti_graph **g, const tti_target *target) {
    int n_joined = target->fuse_linear_grad ? 1 : 0;
    for (int i = 0; i < MAX_ROUNDS && n_joined > 0; i++) TTI_TRY(join_all(g, target, &n_joined));
    return TUTTI_OK;
}

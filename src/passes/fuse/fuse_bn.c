/* fuse_bn.c - batch norms followed by a relu, backward: fewer passes over the gradient.
 *
 *   dz = relu_grad(y, dy [+ more])                     dz, sums = bn_grad_join(dy, y, x, [more])
 *   sums = bn_grad_sums(dz, x), and dz is read         if other nodes need the masked dy as
 *   by others: a shortcut's branch                     well: it is written while it is summed
 *
 *   bn_grad_sums, bn_grad_apply with y = relu(bn(x))   with beta (and gamma) instead of y: they
 *                                                      read x anyway, and recompute y
 *   relu(bn(x) + bn(r)) in two nodes                   bn_apply_pair, if bn(r) has no other reader
 *   bn_grad_join(dy, y, ..), y such a sum              y, mask = bn_apply_mask(..), and the join
 *                                                      reads the bits of mask
 *
 *   bn_stats(conv2d(x, w)), 1x1 in 16 bits             y, stats = conv2d_stats(x, w)
 *   bn_grad_join(conv2d_grad_x(dy, w), bits, x, ..)    conv2d_grad_join(x, bits, .., dy, w) and
 *   g = conv2d_grad_x(dy, w), bn_grad_sums(g, x, ..)   g, sums = conv2d_grad_sums(x, .., dy, w),
 *                                                      1x1, if the backend supports them
 *
 * Only for backends that ask for it (tti_target.fuse_batch_norm).  The ops are named here, as in
 * fuse_norm.c: that they belong to the same normalisation is not a property of another op. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

static bool same_kind(const tutti_value *a, const tutti_value *b) {
    return a->type.dtype == b->type.dtype && a->layout == b->layout &&
           tti_shape_equal(&a->type.shape, &b->type.shape);
}

/* ---- masked gradients that are kept ---- */

typedef struct joining {
    tti_rewrite rw;
    const tti_op *sums;
    const tti_node **with; /* [n_nodes], by the mask's id: the sums that are made with it */
    bool *gone;            /* [n_nodes]: these sums */
} joining;

/* The first sums over the result of a mask, if others than the gradient of the same batch norm
 * read it too; all the rest that it reads is there before the mask. */
static const tti_node *sums_of(const joining *j, const tti_node *mask) {
    const tutti_value *dz = mask->out[0];
    if (!mask->op->epilogue_grad || tti_n_uses(&j->rw, dz) < 3) return NULL;
    if (!same_kind(dz, mask->in[0]) || !same_kind(dz, mask->in[1])) return NULL;
    for (int i = mask->id + 1; i < tti_old_graph(&j->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&j->rw)->nodes[i];
        if (node->op != j->sums || node->in[0] != dz) continue;
        if (tti_attr_int(node, "act") != TTI_EPILOGUE_NONE || !same_kind(dz, node->in[1])) continue;
        bool there = true;
        for (int k = 1; k < node->n_in; k++) there = there && node->in[k]->node->id < mask->id;
        if (there) return node;
    }
    return NULL;
}

/* The addition of two values of dy's type that makes dy, if it has no other reader; else NULL. */
static const tti_node *addition_of(const joining *j, const tutti_value *dy) {
    const tti_node *node = dy->node;
    if (node->op->joint != TTI_JOINT_ADD || tti_n_uses(&j->rw, dy) != 1) return NULL;
    return same_kind(node->in[0], dy) && same_kind(node->in[1], dy) ? node : NULL;
}

/* Adds a node with the eps of like; errors are kept in rw. */
static tutti_value *emit_with_eps(tti_rewrite *rw, const char *op, const char *name,
                                  tutti_value *const *in, int n_in, const tti_node *like) {
    return tti_emit(tti_new_graph(rw), op, name, in, n_in,
                    (tti_attr_arg[]){TTI_FLOAT("eps", tti_attr_float(like, "eps")), {0}});
}

/* Replaces a gradient and its sums by the outputs of one node. */
static void take_places(tti_rewrite *rw, tutti_value *joined, const tti_node *grad,
                        const tti_node *sums) {
    if (!joined) return; /* sticky */
    joined->layout = grad->out[0]->layout;
    tti_map(rw, grad->out[0], joined);
    for (int k = 0; k < sums->op->n_out; k++) tti_map(rw, sums->out[k], joined->node->out[1 + k]);
}

static void join(joining *j, const tti_node *mask, const tti_node *sums) {
    tti_rewrite *rw = &j->rw;
    const tti_node *add = addition_of(j, mask->in[1]);
    const tutti_value *dy = add ? add->in[0] : mask->in[1];
    tutti_value *in[6] = {tti_mapped(rw, dy), tti_mapped(rw, mask->in[0])};
    int n_in = 2;
    for (int k = 1; k < sums->n_in; k++) in[n_in++] = tti_mapped(rw, sums->in[k]);
    if (add) in[n_in++] = tti_mapped(rw, add->in[1]);
    tutti_value *dz = emit_with_eps(rw, "bn_grad_join", sums->name, in, n_in, sums);
    take_places(rw, dz, mask, sums);
}

tutti_status tti_fuse_bn_join(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    joining j = {.sums = tti_op_find("bn_grad_sums")};
    int n_nodes = from->n_nodes;
    if (!target->fuse_batch_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&j.rw, *g));
    j.with = calloc((size_t)n_nodes + 1, sizeof *j.with);
    j.gone = calloc((size_t)n_nodes + 1, sizeof *j.gone);
    bool fits = j.with && j.gone;
    if (!fits) tti_graph_fail(tti_new_graph(&j.rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; fits && i < n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (node->n_in == 2) j.with[i] = sums_of(&j, node);
        if (j.with[i]) j.gone[j.with[i]->id] = true;
        if (j.with[i])
            join(&j, node, j.with[i]);
        else if (!j.gone[i])
            tti_rewrite_copy(&j.rw, node);
    }
    free(j.with);
    free(j.gone);
    return tti_rewrite_finish(&j.rw, g);
}

/* ---- masks that are recomputed ---- */

/* The batch norm whose y masks this gradient of it, if y is nothing but relu(bn(x)). */
static const tti_node *norm_of(const tti_node *node, const tti_op *norm) {
    if (!(node->op->traits & TTI_TAKES_MASK) || tti_attr_int(node, "act") == TTI_EPILOGUE_NONE)
        return NULL;
    const tti_node *made = node->in[node->n_in - 1]->node;
    bool same = made->op == norm && made->n_in == 4 && made->in[0] == node->in[1] &&
                made->in[1] == node->in[2] &&
                tti_attr_float(made, "eps") == tti_attr_float(node, "eps") &&
                tti_attr_int(made, "act") == tti_attr_int(node, "act");
    return same ? made : NULL;
}

/* The gradient with gamma, where it does not have it, and beta in the place of y. */
static void mask_again(tti_rewrite *rw, const tti_node *node, const tti_node *norm,
                       bool has_gamma) {
    tutti_value *in[TTI_MAX_IN] = {NULL};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    int n_in = node->n_in - 1;
    for (int i = 0; i < n_in; i++) in[i] = tti_mapped(rw, node->in[i]);
    if (!has_gamma) in[n_in++] = tti_mapped(rw, norm->in[2]);
    in[n_in++] = tti_mapped(rw, norm->in[3]);
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        attrs[i] = (tti_attr_arg){node->op->attrs[i].name, node->attrs[i]};
    tutti_value *out = tti_emit(tti_new_graph(rw), node->op->name, node->name, in, n_in, attrs);
    if (!out) return; /* sticky */
    for (int k = 0; k < node->op->n_out; k++) {
        out->node->out[k]->layout = node->out[k]->layout;
        tti_map(rw, node->out[k], out->node->out[k]);
    }
}

tutti_status tti_fuse_bn_masks(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    const tti_op *norm = tti_op_find("bn_apply"), *apply = tti_op_find("bn_grad_apply");
    tti_rewrite rw;
    if (!target->fuse_batch_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i], *made = norm_of(node, norm);
        if (made)
            mask_again(&rw, node, made, node->op == apply);
        else
            tti_rewrite_copy(&rw, node);
    }
    return tti_rewrite_finish(&rw, g);
}

/* ---- a shortcut that is normalised too ---- */

/* The batch norm that makes the residual of node and nothing else. */
static const tti_node *normed_residual(const tti_rewrite *rw, const tti_node *node,
                                       const tti_op *norm) {
    if (node->op != norm || node->n_in != 5) return NULL;
    const tti_node *made = node->in[4]->node;
    bool fits = made->op == norm && made->n_in == 4 && tti_n_uses(rw, node->in[4]) == 1 &&
                tti_attr_int(made, "act") == TTI_EPILOGUE_NONE &&
                same_kind(node->out[0], made->out[0]);
    return fits ? made : NULL;
}

static void pair(tti_rewrite *rw, const tti_node *node, const tti_node *of_r) {
    tutti_value *in[8];
    for (int i = 0; i < 4; i++) in[i] = tti_mapped(rw, node->in[i]);
    for (int i = 0; i < 4; i++) in[4 + i] = tti_mapped(rw, of_r->in[i]);
    tutti_value *y =
        tti_emit(tti_new_graph(rw), "bn_apply_pair", node->name, in, 8,
                 (tti_attr_arg[]){TTI_FLOAT("eps", tti_attr_float(node, "eps")),
                                  TTI_FLOAT("eps_r", tti_attr_float(of_r, "eps")),
                                  TTI_INT("relu", tti_attr_int(node, "act") == TTI_EPILOGUE_RELU),
                                  {0}});
    if (!y) return; /* sticky */
    y->layout = node->out[0]->layout;
    tti_map(rw, node->out[0], y);
}

tutti_status tti_fuse_bn_pairs(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    const tti_op *norm = tti_op_find("bn_apply");
    tti_rewrite rw;
    if (!target->fuse_batch_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    bool *gone = calloc((size_t)from->n_nodes + 1, sizeof *gone);
    if (!gone) tti_graph_fail(tti_new_graph(&rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; gone && i < from->n_nodes; i++) {
        const tti_node *of_r = normed_residual(&rw, from->nodes[i], norm);
        if (of_r) gone[of_r->id] = true;
    }
    for (int i = 0; gone && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i], *of_r = normed_residual(&rw, node, norm);
        if (of_r)
            pair(&rw, node, of_r);
        else if (!gone[i])
            tti_rewrite_copy(&rw, node);
    }
    free(gone);
    return tti_rewrite_finish(&rw, g);
}

/* ---- masks of bits ---- */

typedef struct masking {
    tti_rewrite rw;
    const tti_op *norm, *pair, *grad;
    tutti_value **mask; /* [n_nodes], by the node that makes y: what may be read instead */
} masking;

/* relu(bn(x) + r), or + bn(r), of channels that make whole bytes. */
static bool makes_mask(const masking *m, const tti_node *node) {
    bool with_r =
        node->op == m->norm && node->n_in == 5 && tti_attr_int(node, "act") == TTI_EPILOGUE_RELU;
    bool pair = node->op == m->pair && tti_attr_int(node, "relu");
    return (with_r || pair) && node->out[0]->type.shape.dim[1] % 8 == 0;
}

static void emit_mask(masking *m, const tti_node *node) {
    tutti_value *in[8];
    double eps = tti_attr_float(node, "eps");
    for (int i = 0; i < node->n_in; i++) in[i] = tti_mapped(&m->rw, node->in[i]);
    tti_attr_arg attrs[3] = {TTI_FLOAT("eps", eps)};
    if (node->op == m->pair) attrs[1] = TTI_FLOAT("eps_r", tti_attr_float(node, "eps_r"));
    tutti_value *y =
        tti_emit(tti_new_graph(&m->rw), "bn_apply_mask", node->name, in, node->n_in, attrs);
    if (!y) return; /* sticky */
    for (int k = 0; k < 2; k++) y->node->out[k]->layout = node->out[0]->layout;
    tti_map(&m->rw, node->out[0], y);
    m->mask[node->id] = y->node->out[1];
}

/* Copies the join with the mask bits instead of y. */
static void copy_join(masking *m, const tti_node *node) {
    tutti_value *in[TTI_MAX_IN] = {NULL};
    tutti_value *mask = node->op == m->grad ? m->mask[node->in[1]->node->id] : NULL;
    for (int i = 0; i < node->n_in; i++) in[i] = tti_mapped(&m->rw, node->in[i]);
    if (mask) in[1] = mask;
    tti_rewrite_copy_with(&m->rw, node, in);
}

tutti_status tti_fuse_bn_bits(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    masking m = {.norm = tti_op_find("bn_apply"),
                 .pair = tti_op_find("bn_apply_pair"),
                 .grad = tti_op_find("bn_grad_join")};
    if (!target->fuse_batch_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&m.rw, *g));
    size_t n = (size_t)from->n_nodes + 1;
    bool *wanted = calloc(n, sizeof *wanted); /* by node id: a gradient reads its y */
    m.mask = calloc(n, sizeof *m.mask);
    bool fits = wanted && m.mask;
    if (!fits) tti_graph_fail(tti_new_graph(&m.rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; fits && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (node->op == m.grad) wanted[node->in[1]->node->id] = true;
    }
    for (int i = 0; fits && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (wanted[i] && makes_mask(&m, node))
            emit_mask(&m, node);
        else
            copy_join(&m, node);
    }
    free(wanted);
    free(m.mask);
    return tti_rewrite_finish(&m.rw, g);
}

/* ---- a convolution's gradient that is joined ---- */

/* 1x1, whose x and y have the same places: padding and a stride together can also make y as large
 * as x. */
static bool is_point(const tti_node *node) {
    const tutti_shape *w = &node->in[1]->type.shape, *x = &node->out[0]->type.shape;
    const tutti_shape *y = &node->in[0]->type.shape;
    const tti_attr *pad = tti_attr_get(node, "pad");
    for (int d = 0; d < pad->n; d++)
        if (pad->v[d] != 0) return false;
    return tti_attr_int(node, "groups") == 1 && w->dim[2] == 1 && w->dim[3] == 1 &&
           x->dim[2] == y->dim[2] && x->dim[3] == y->dim[3];
}

/* The input of a join of two gradients that only the join reads and that such a convolution makes;
 * -1: none. */
static int made_by_point(const tti_rewrite *rw, const tti_node *join, const tti_target *target) {
    const tti_op *grad_x = tti_op_find("conv2d_grad_x");
    for (int i = 0; i < join->n_in; i = i ? i + 1 : 4) {
        const tutti_value *value = join->in[i];
        const tti_node *made = value->node;
        if (made->op == grad_x && tti_n_uses(rw, value) == 1 && is_point(made) &&
            same_kind(value, join->out[0]) && target->joins_gradient(made, false))
            return i;
    }
    return -1;
}

/* dy, mask, x, stats, rows?, more?: the product in the place of input `at`. */
static void join_point(tti_rewrite *rw, const tti_node *join, int at) {
    const tti_node *made = join->in[at]->node;
    tutti_value *in[7] = {tti_mapped(rw, join->in[2]), tti_mapped(rw, join->in[1]),
                          tti_mapped(rw, join->in[3]), tti_mapped(rw, made->in[0]),
                          tti_mapped(rw, made->in[1])};
    int n_in = 5;
    for (int i = 4; i < join->n_in; i++)
        if (join->in[i]->type.dtype == TUTTI_I32) in[n_in++] = tti_mapped(rw, join->in[i]);
    for (int i = 0; i < join->n_in; i = i ? i + 1 : 4)
        if (i != at && join->in[i]->type.dtype != TUTTI_I32)
            in[n_in++] = tti_mapped(rw, join->in[i]);
    tutti_value *dz = emit_with_eps(rw, "conv2d_grad_join", made->name, in, n_in, join);
    if (!dz) return; /* sticky */
    dz->layout = join->out[0]->layout;
    for (int k = 0; k < join->op->n_out; k++) tti_map(rw, join->out[k], dz->node->out[k]);
}

tutti_status tti_fuse_conv_join(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    const tti_op *joins = tti_op_find("bn_grad_join");
    tti_rewrite rw;
    if (!target->fuse_batch_norm || !target->joins_gradient) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    size_t n = (size_t)from->n_nodes + 1;
    int *at = calloc(n, sizeof *at); /* by node id: the input of a join that goes, and 1 */
    bool *gone = calloc(n, sizeof *gone);
    bool fits = at && gone;
    if (!fits) tti_graph_fail(tti_new_graph(&rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; fits && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (node->op != joins || node->in[1]->type.dtype != TUTTI_U8) continue;
        at[i] = made_by_point(&rw, node, target) + 1;
        if (at[i]) gone[node->in[at[i] - 1]->node->id] = true;
    }
    for (int i = 0; fits && i < from->n_nodes; i++) {
        if (at[i])
            join_point(&rw, from->nodes[i], at[i] - 1);
        else if (!gone[i])
            tti_rewrite_copy(&rw, from->nodes[i]);
    }
    free(at);
    free(gone);
    return tti_rewrite_finish(&rw, g);
}

/* The sums over a product, masked by what makes y again, if what else they read is there before it:
 * dy, x, stats, rows?, gamma, beta. */
static const tti_node *sums_over(const tutti_graph *g, const tti_node *made, const tti_op *sums) {
    for (int i = made->id + 1; i < g->n_nodes; i++) {
        const tti_node *user = g->nodes[i];
        if (user->op != sums || user->in[0] != made->out[0]) continue;
        bool there = tti_attr_int(user, "act") == TTI_EPILOGUE_RELU &&
                     user->in[user->n_in - 1]->type.shape.n_dims == 1 &&
                     same_kind(user->in[0], user->in[1]);
        for (int k = 1; k < user->n_in; k++) there = there && user->in[k]->node->id < made->id;
        return there ? user : NULL;
    }
    return NULL;
}

static void sum_point(tti_rewrite *rw, const tti_node *made, const tti_node *sums) {
    int gamma = sums->n_in - 2, n_in = 6;
    tutti_value *in[7] = {tti_mapped(rw, sums->in[1]),     tti_mapped(rw, sums->in[2]),
                          tti_mapped(rw, sums->in[gamma]), tti_mapped(rw, sums->in[gamma + 1]),
                          tti_mapped(rw, made->in[0]),     tti_mapped(rw, made->in[1])};
    if (gamma > 3) in[n_in++] = tti_mapped(rw, sums->in[3]);
    tutti_value *g = emit_with_eps(rw, "conv2d_grad_sums", made->name, in, n_in, sums);
    take_places(rw, g, made, sums);
}

tutti_status tti_fuse_conv_sums(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    const tti_op *grad_x = tti_op_find("conv2d_grad_x"), *sums = tti_op_find("bn_grad_sums");
    tti_rewrite rw;
    if (!target->fuse_batch_norm || !target->joins_gradient) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    bool *gone = calloc((size_t)from->n_nodes + 1, sizeof *gone);
    if (!gone) tti_graph_fail(tti_new_graph(&rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; gone && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i], *of = NULL;
        if (node->op == grad_x && is_point(node) && target->joins_gradient(node, true))
            of = sums_over(*g, node, sums);
        if (of) gone[of->id] = true;
        if (of)
            sum_point(&rw, node, of);
        else if (!gone[i])
            tti_rewrite_copy(&rw, node);
    }
    free(gone);
    return tti_rewrite_finish(&rw, g);
}

/* ---- statistics of a convolution ---- */

/* A 1x1 convolution without bias or act, of whole vectors of 16 bits: its time is that of memory,
 * not of products. */
static bool is_memory_bound(const tti_node *node, const tti_op *conv) {
    if (node->op != conv || node->n_in != 2 || tti_attr_int(node, "act") != TTI_EPILOGUE_NONE ||
        tti_attr_int(node, "groups") != 1)
        return false;
    const int64_t *w = node->in[1]->type.shape.dim;
    const tutti_value *y = node->out[0];
    bool is_16_bit = y->type.dtype == TUTTI_BF16 || y->type.dtype == TUTTI_F16;
    return is_16_bit && w[2] == 1 && w[3] == 1 && w[0] % 8 == 0 && w[1] % 8 == 0 &&
           y->layout == TTI_CHANNELS_LAST_BYTES && node->in[0]->layout == y->layout;
}

/* The statistics of the node's result, if what else they read is there before it. */
static const tti_node *stats_of(const tutti_graph *g, const tti_node *node, const tti_op *stats) {
    for (int i = node->id + 1; i < g->n_nodes; i++) {
        const tti_node *user = g->nodes[i];
        if (user->op != stats || user->in[0] != node->out[0]) continue;
        return user->n_in < 2 || user->in[1]->node->id < node->id ? user : NULL;
    }
    return NULL;
}

static void emit_conv_stats(tti_rewrite *rw, const tti_node *node, const tti_node *stats) {
    const tti_op *op = tti_op_find("conv2d_stats");
    tutti_value *in[3] = {tti_mapped(rw, node->in[0]), tti_mapped(rw, node->in[1])};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    if (stats->n_in > 1) in[2] = tti_mapped(rw, stats->in[1]);
    for (int i = 0; i < tti_n_attrs(op); i++)
        attrs[i] = (tti_attr_arg){op->attrs[i].name, *tti_attr_get(node, op->attrs[i].name)};
    tutti_value *y = tti_emit(tti_new_graph(rw), op->name, node->name, in, 1 + stats->n_in, attrs);
    if (!y) return; /* sticky */
    y->layout = node->out[0]->layout;
    tti_map(rw, node->out[0], y);
    tti_map(rw, stats->out[0], y->node->out[1]);
}

tutti_status tti_fuse_conv_stats(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    const tti_op *conv = tti_op_find("conv2d"), *stats = tti_op_find("bn_stats");
    tti_rewrite rw;
    if (!target->fuse_batch_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    bool *gone = calloc((size_t)from->n_nodes + 1, sizeof *gone);
    if (!gone) tti_graph_fail(tti_new_graph(&rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; gone && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        const tti_node *of = is_memory_bound(node, conv) ? stats_of(*g, node, stats) : NULL;
        if (of) gone[of->id] = true;
        if (of)
            emit_conv_stats(&rw, node, of);
        else if (!gone[i])
            tti_rewrite_copy(&rw, node);
    }
    free(gone);
    return tti_rewrite_finish(&rw, g);
}

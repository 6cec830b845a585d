/* fuse_pool.c - merges a 3x3 convolution, its relu and the following 2x2 pooling, if the backend
 * has a fast kernel (tti_target.fuses_pool).
 *
 *   y = conv2d(x, w, b) with relu            p, where = conv2d_pool(x, w, b)
 *   p, index = max_pool2d(y)
 *   dz = relu_grad(p, dp)                    dw, db = conv2d_pool_grad_w(dp, where, x)
 *   dy = max_pool2d_grad(dz, index)          dx = conv2d_pool_grad_x(dp, where, w)
 *   dw, db = conv2d_grad_w(dy, x)
 *   dx = conv2d_grad_x(dy, w)
 * so that y and dy are never stored.  Masks have been moved past poolings before (sink_mask.c).
 * The op accepts p and dp in either layout, so they need no conversion.  Ops are named here, as in
 * fuse_bn.c. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct fusion {
    tti_rewrite rw;
    const tti_node **conv; /* [n_nodes] by the id of a pooling: its convolution; NULL: unchanged */
    const tti_node *
        *grad;   /* [n_nodes] by the id of a convolution's gradient: that of the pooling */
    bool *plain; /* [n_nodes] by the id of a pooling: its p and dp are plain bytes */
    bool *gone;  /* [n_nodes] */
} fusion;

static bool is_pair(const tti_node *node, const char *attr, int64_t value, bool may_be_empty) {
    const tti_attr *list = tti_attr_get(node, attr);
    if (list->n == 0) return may_be_empty;
    return list->v[0] == value && list->v[1] == value;
}

static bool is_by_two(const tti_node *pool) {
    const int64_t *y = pool->in[0]->type.shape.dim;
    return is_pair(pool, "kernel", 2, false) && is_pair(pool, "stride", 2, true) &&
           is_pair(pool, "pad", 0, true) && y[2] % 2 == 0 && y[3] % 2 == 0;
}

/* The pooling that is the only reader of a convolution with bias and relu; NULL: none. */
static const tti_node *pool_after(const fusion *f, const tti_node *conv, const tti_target *target) {
    if (!tti_is_op(conv, "conv2d") || conv->n_in != 3 || tti_n_uses(&f->rw, conv->out[0]) != 1)
        return NULL;
    const tti_node *pool = tti_only_user(tti_old_graph(&f->rw), conv->out[0]);
    if (!pool || !tti_is_op(pool, "max_pool2d") || !is_by_two(pool)) return NULL;
    if (tti_attr_int(conv, "act") != TTI_EPILOGUE_RELU) return NULL;
    return target->fuses_pool(conv, target->tf32) ? pool : NULL;
}

/* ---- backward ---- */

/* A gradient of conv that reads dy first, and nothing else of it. */
static bool is_grad_of(const tti_node *node, const tti_node *conv, const tutti_value *dy) {
    if (node->in[0] != dy || node->n_in != 2 || node->in[1] == dy) return false;
    return (tti_is_op(node, "conv2d_grad_x") && node->in[1] == conv->in[1]) ||
           (tti_is_op(node, "conv2d_grad_w") && node->in[1] == conv->in[0]);
}

/* All readers of dy are gradients of conv. */
static bool only_grads_read(const fusion *f, const tti_node *conv, const tutti_value *dy) {
    int n = 0;
    for (int i = dy->node->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++)
        n += is_grad_of(tti_old_graph(&f->rw)->nodes[i], conv, dy);
    return n == tti_n_uses(&f->rw, dy);
}

/* The mask of p in front of the pooling's gradient, read by that alone; NULL: none. */
static const tti_node *mask_before(const fusion *f, const tti_node *grad, const tti_node *pool) {
    if (!tti_is_op(grad, "max_pool2d_grad") || grad->in[1] != pool->out[1]) return NULL;
    const tti_node *mask = grad->in[0]->node;
    bool fits = tti_is_op(mask, "relu_grad") && mask->in[0] == pool->out[0] &&
                mask->in[1] != pool->out[0] && tti_n_uses(&f->rw, mask->out[0]) == 1;
    return fits ? mask : NULL;
}

/* Whether every reader of the index is such a gradient. */
static bool backward_fits(const fusion *f, const tti_node *conv, const tti_node *pool) {
    int n = 0;
    for (int i = pool->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (!tti_reads(node, pool->out[1])) continue;
        if (!mask_before(f, node, pool) || !only_grads_read(f, conv, node->out[0])) return false;
        n++;
    }
    return n == tti_n_uses(&f->rw, pool->out[1]);
}

/* ---- bytes that need not be turned ---- */

static bool turns(const tti_node *node, const tutti_value *value) {
    return tti_is_op(node, "to_layout") && node->in[0] == value;
}

/* p is only read to be turned, and every dp has just been turned for this. */
static bool may_be_plain(const fusion *f, const tti_node *pool) {
    int n = 0;
    for (int i = pool->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i], *mask = NULL;
        if (tti_reads(node, pool->out[1])) mask = mask_before(f, node, pool);
        if (turns(node, pool->out[0])) n++;
        if (!mask) continue;
        const tutti_value *dp = mask->in[1];
        if (!tti_is_op(dp->node, "to_layout") || tti_n_uses(&f->rw, dp) != 1) return false;
        n++; /* the mask reads p */
    }
    return pool->out[0]->layout == TTI_CHANNELS_LAST_BYTES && n == tti_n_uses(&f->rw, pool->out[0]);
}

static void plan(fusion *f, const tti_node *conv, const tti_node *pool) {
    bool plain = may_be_plain(f, pool);
    f->conv[pool->id] = conv;
    f->plain[pool->id] = plain;
    f->gone[conv->id] = true;
    for (int i = pool->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (plain && turns(node, pool->out[0])) f->gone[i] = true;
        if (!tti_reads(node, pool->out[1])) continue;
        const tti_node *mask = mask_before(f, node, pool);
        f->gone[i] = f->gone[mask->id] = true;
        if (plain) f->gone[mask->in[1]->node->id] = true;
        for (int k = i + 1; k < tti_old_graph(&f->rw)->n_nodes; k++)
            if (is_grad_of(tti_old_graph(&f->rw)->nodes[k], conv, node->out[0])) f->grad[k] = node;
    }
}

/* ---- the new nodes ---- */

static void emit_pool(fusion *f, const tti_node *pool) {
    const tti_node *conv = f->conv[pool->id];
    tti_layout layout = f->plain[pool->id] ? TTI_PLAIN : pool->out[0]->layout;
    tutti_value *in[3];
    for (int i = 0; i < 3; i++) in[i] = tti_mapped(&f->rw, conv->in[i]);
    tutti_value *p = tti_emit(tti_new_graph(&f->rw), "conv2d_pool", conv->name, in, 3, NULL);
    if (!p) return; /* sticky */
    for (int k = 0; k < 2; k++) {
        p->node->out[k]->layout = layout;
        tti_map(&f->rw, pool->out[k], p->node->out[k]);
    }
    for (int i = pool->id + 1; f->plain[pool->id] && i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (turns(node, pool->out[0])) tti_map(&f->rw, node->out[0], p);
    }
}

static void emit_grad(fusion *f, const tti_node *node) {
    const tti_node *unpool = f->grad[node->id], *pool = unpool->in[1]->node;
    const tutti_value *dp = unpool->in[0]->node->in[1];
    if (f->plain[pool->id]) dp = dp->node->in[0]; /* as it was before it was turned */
    tutti_value *in[3] = {tti_mapped(&f->rw, dp), tti_mapped(&f->rw, pool->out[1]),
                          tti_mapped(&f->rw, node->in[1])};
    const char *op = tti_is_op(node, "conv2d_grad_x") ? "conv2d_pool_grad_x" : "conv2d_pool_grad_w";
    tutti_value *made = tti_emit(tti_new_graph(&f->rw), op, node->name, in, 3, NULL);
    if (!made) return; /* sticky */
    for (int k = 0; k < node->op->n_out; k++) {
        made->node->out[k]->layout = node->out[k]->layout;
        tti_map(&f->rw, node->out[k], made->node->out[k]);
    }
}

static bool alloc_memory(fusion *f, size_t n_nodes) {
    f->conv = calloc(n_nodes + 1, sizeof *f->conv);
    f->grad = calloc(n_nodes + 1, sizeof *f->grad);
    f->plain = calloc(n_nodes + 1, sizeof *f->plain);
    f->gone = calloc(n_nodes + 1, sizeof *f->gone);
    bool taken = f->conv && f->grad && f->plain && f->gone;
    if (!taken)
        tti_graph_fail(tti_new_graph(&f->rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    return taken;
}

tutti_status tti_fuse_pool(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    fusion f = {0};
    if (!target->fuses_pool) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&f.rw, *g));
    int n_nodes = alloc_memory(&f, (size_t)from->n_nodes) ? from->n_nodes : 0;
    for (int i = 0; i < n_nodes; i++) {
        const tti_node *pool = pool_after(&f, from->nodes[i], target);
        if (pool && backward_fits(&f, from->nodes[i], pool)) plan(&f, from->nodes[i], pool);
    }
    for (int i = 0; i < n_nodes; i++) {
        if (f.conv[i])
            emit_pool(&f, from->nodes[i]);
        else if (f.grad[i])
            emit_grad(&f, from->nodes[i]);
        else if (!f.gone[i])
            tti_rewrite_copy(&f.rw, from->nodes[i]);
    }
    free(f.conv);
    free(f.grad);
    free(f.plain);
    free(f.gone);
    return tti_rewrite_finish(&f.rw, g);
}

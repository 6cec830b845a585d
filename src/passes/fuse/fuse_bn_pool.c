/* fuse_bn_pool.c - merges batch norm, relu and 3x3 pooling into one op, and its gradients: after
 * the first convolution of a residual network, whose values are the largest.
 *
 *   y = bn_apply(x, ..) with relu            p, where = bn_apply_pool(x, ..)
 *   p, index = max_pool2d(y)
 *   dz = relu_grad(p, dp)                    sums = bn_pool_grad_sums(dp, where, x, stats)
 *   dy = max_pool2d_grad(dz, index)          dx = bn_pool_grad_apply(dp, where, x, ..)
 *   sums = bn_grad_sums(dy, x, stats)
 *   dx = bn_grad_apply(dy, x, ..)
 * so that y and dy are never stored.  Masks have been moved past poolings before (sink_mask.c).
 * Only for 16 bits and channels last, and for backends that request joined batch norms; ops are
 * named here, as in fuse_bn.c. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

enum { MOST_CHANNELS = 512 };

typedef struct fusion {
    tti_rewrite rw;
    const tti_node *
        *norm; /* [n_nodes] by the id of a pooling: the batch norm before it; NULL: unchanged */
    const tti_node **pool; /* [n_nodes] by the id of a batch norm's gradient: that of the pooling */
    bool *gone;            /* [n_nodes] */
} fusion;

static bool is_pair(const tti_node *node, const char *name, int64_t value) {
    const tti_attr *list = tti_attr_get(node, name);
    return list->n == 2 && list->v[0] == value && list->v[1] == value;
}

/* ---- what fits ---- */

/* 16 bits, whole vectors of channels that share out a block's threads evenly. */
static bool is_wide(const tutti_value *x) {
    int64_t c = x->type.shape.dim[1];
    return x->layout == TTI_CHANNELS_LAST_BYTES && tutti_dtype_bytes(x->type.dtype) == 2 &&
           c >= 8 && c <= MOST_CHANNELS && (c & (c - 1)) == 0;
}

/* The batch norm with relu in front of a pooling, read by that alone; NULL: none. */
static const tti_node *norm_before(const fusion *f, const tti_node *pool) {
    if (!tti_is_op(pool, "max_pool2d") || !is_pair(pool, "kernel", 3) ||
        !is_pair(pool, "stride", 2) || !is_pair(pool, "pad", 1))
        return NULL;
    const tti_node *norm = pool->in[0]->node;
    if (!tti_is_op(norm, "bn_apply") || norm->n_in != 4 || tti_n_uses(&f->rw, norm->out[0]) != 1 ||
        tti_attr_int(norm, "act") != TTI_EPILOGUE_RELU)
        return NULL;
    bool fits = is_wide(norm->in[0]) && is_wide(norm->out[0]) && is_wide(pool->out[0]) &&
                pool->out[1]->layout == TTI_CHANNELS_LAST_BYTES;
    return fits ? norm : NULL;
}

/* The mask of p in front of the pooling's gradient, read by that alone; NULL: none. */
static const tti_node *mask_before(const fusion *f, const tti_node *unpool, const tti_node *pool) {
    if (!tti_is_op(unpool, "max_pool2d_grad") || unpool->in[1] != pool->out[1]) return NULL;
    const tti_node *mask = unpool->in[0]->node;
    bool fits = tti_is_op(mask, "relu_grad") && mask->in[0] == pool->out[0] &&
                mask->in[1] != pool->out[0] && tti_n_uses(&f->rw, mask->out[0]) == 1 &&
                is_wide(mask->in[1]);
    return fits ? mask : NULL;
}

/* Whether node is a gradient of the batch norm and reads dy only as that. */
static bool is_grad_of(const tti_node *node, const tti_node *norm, const tutti_value *dy) {
    bool sums = tti_is_op(node, "bn_grad_sums");
    if (!sums && !tti_is_op(node, "bn_grad_apply")) return false;
    bool fits = node->in[0] == dy && node->in[1] == norm->in[0] && node->in[2] == norm->in[1];
    if (!sums) fits = fits && node->in[3] == norm->in[2] && is_wide(node->out[0]);
    return fits && tti_attr_int(node, "act") == TTI_EPILOGUE_NONE &&
           tti_attr_float(node, "eps") == tti_attr_float(norm, "eps");
}

static bool only_grads_read(const fusion *f, const tti_node *norm, const tutti_value *dy) {
    int n = 0;
    for (int i = dy->node->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++)
        n += is_grad_of(tti_old_graph(&f->rw)->nodes[i], norm, dy);
    return n == tti_n_uses(&f->rw, dy);
}

/* Whether every reader of the index is such a gradient. */
static bool backward_fits(const fusion *f, const tti_node *norm, const tti_node *pool) {
    int n = 0;
    for (int i = pool->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (!tti_reads(node, pool->out[1])) continue;
        if (!mask_before(f, node, pool) || !only_grads_read(f, norm, node->out[0])) return false;
        n++;
    }
    return n == tti_n_uses(&f->rw, pool->out[1]);
}

static void plan(fusion *f, const tti_node *norm, const tti_node *pool) {
    f->norm[pool->id] = norm;
    f->gone[norm->id] = true;
    for (int i = pool->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (!tti_reads(node, pool->out[1])) continue;
        f->gone[i] = f->gone[node->in[0]->node->id] = true;
        for (int k = i + 1; k < tti_old_graph(&f->rw)->n_nodes; k++)
            if (is_grad_of(tti_old_graph(&f->rw)->nodes[k], norm, node->out[0])) f->pool[k] = node;
    }
}

/* ---- the new nodes ---- */

static void map_outputs(fusion *f, const tti_node *old, const tutti_value *made) {
    for (int k = 0; made && k < old->op->n_out; k++) { /* NULL: sticky */
        made->node->out[k]->layout = old->out[k]->layout;
        tti_map(&f->rw, old->out[k], made->node->out[k]);
    }
}

static void emit_pool(fusion *f, const tti_node *pool) {
    const tti_node *norm = f->norm[pool->id];
    tti_attr_arg attrs[] = {TTI_FLOAT("eps", tti_attr_float(norm, "eps")), {0}};
    tutti_value *in[4];
    for (int i = 0; i < 4; i++) in[i] = tti_mapped(&f->rw, norm->in[i]);
    map_outputs(f, pool,
                tti_emit(tti_new_graph(&f->rw), "bn_apply_pool", norm->name, in, 4, attrs));
}

/* dp, where, then all but dy. */
static void emit_grad(fusion *f, const tti_node *node) {
    const tti_node *unpool = f->pool[node->id], *mask = unpool->in[0]->node;
    tti_attr_arg attrs[] = {TTI_FLOAT("eps", tti_attr_float(node, "eps")), {0}};
    tutti_value *in[7] = {tti_mapped(&f->rw, mask->in[1]), tti_mapped(&f->rw, unpool->in[1])};
    const char *op = tti_is_op(node, "bn_grad_sums") ? "bn_pool_grad_sums" : "bn_pool_grad_apply";
    for (int i = 1; i < node->n_in; i++) in[i + 1] = tti_mapped(&f->rw, node->in[i]);
    map_outputs(f, node,
                tti_emit(tti_new_graph(&f->rw), op, node->name, in, node->n_in + 1, attrs));
}

static bool alloc_memory(fusion *f, size_t n_nodes) {
    f->norm = calloc(n_nodes + 1, sizeof *f->norm);
    f->pool = calloc(n_nodes + 1, sizeof *f->pool);
    f->gone = calloc(n_nodes + 1, sizeof *f->gone);
    bool taken = f->norm && f->pool && f->gone;
    if (!taken)
        tti_graph_fail(tti_new_graph(&f->rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    return taken;
}

tutti_status tti_fuse_bn_pool(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    fusion f = {0};
    if (!target->fuse_batch_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&f.rw, *g));
    int n_nodes = alloc_memory(&f, (size_t)from->n_nodes) ? from->n_nodes : 0;
    for (int i = 0; i < n_nodes; i++) {
        const tti_node *norm = norm_before(&f, from->nodes[i]);
        if (norm && backward_fits(&f, norm, from->nodes[i])) plan(&f, norm, from->nodes[i]);
    }
    for (int i = 0; i < n_nodes; i++) {
        if (f.norm[i])
            emit_pool(&f, from->nodes[i]);
        else if (f.pool[i])
            emit_grad(&f, from->nodes[i]);
        else if (!f.gone[i])
            tti_rewrite_copy(&f.rw, from->nodes[i]);
    }
    free(f.norm);
    free(f.pool);
    free(f.gone);
    return tti_rewrite_finish(&f.rw, g);
}

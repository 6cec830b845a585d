/* sink_mask.c - applies the mask of a relu after max pooling, where there are fewer elements.
 *
 * relu_grad(y, max_pool2d_grad(dp, index)) of p, index = max_pool2d(y) becomes
 * max_pool2d_grad(relu_grad(p, dp), index): a gradient goes where the window's maximum was, and
 * that is positive exactly where p is.  The bits are the same, for windows that overlap too: the
 * same terms are added in the same order, or none at all. */

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

/* The pooling whose gradient this mask reads, NULL: this is not such a mask. */
static const tti_node *pooling_of(const tti_rewrite *rw, const tti_node *mask) {
    if (!tti_is_op(mask, "relu_grad")) return NULL;
    const tti_node *grad = mask->in[1]->node;
    if (!tti_is_op(grad, "max_pool2d_grad") || tti_n_uses(rw, mask->in[1]) != 1) return NULL;
    const tti_node *pool = grad->in[1]->node;
    bool same = tti_is_op(pool, "max_pool2d") && pool->in[0] == mask->in[0];
    return same && pool->out[0]->layout == grad->in[0]->layout ? pool : NULL;
}

static void sink(tti_rewrite *rw, const tti_node *mask, const tti_node *pool) {
    const tti_node *grad = mask->in[1]->node;
    tutti_value *in[2] = {tti_mapped(rw, pool->out[0]), tti_mapped(rw, grad->in[0])};
    tutti_value *masked = tti_emit(tti_new_graph(rw), "relu_grad", mask->name, in, 2, NULL);
    if (!masked) return;
    masked->layout = grad->in[0]->layout;
    tutti_value *with[2] = {masked, tti_mapped(rw, grad->in[1])};
    tti_rewrite_copy_with(rw, grad, with);
    tti_map(rw, mask->out[0], tti_mapped(rw, grad->out[0]));
}

tutti_status tti_sink_masks(tutti_graph **g) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i], *pool = pooling_of(&rw, node);
        if (pool)
            sink(&rw, node, pool);
        else
            tti_rewrite_copy(&rw, node);
    }
    return tti_rewrite_finish(&rw, g);
}

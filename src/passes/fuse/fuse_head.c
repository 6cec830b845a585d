/* fuse_head.c - merges a head, its cross entropy and the gradients of both, if the backend asks
 * for it (tti_target.joins_head), so that logits are never stored.  They are the largest value of
 * a language model, and separate ops write them, read them, write their gradient and read it
 * twice.
 *
 * matmul and cross_entropy_and_grad become cross_entropy_head, whose factor per row is applied in
 * both products of the gradient by scale_rows: after the one that gives dx, before the one that
 * gives dw.  As in fuse_loss.c the ops are named here. */
#include <stdlib.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

/* logits = x w^T; the loss makes dlogits; dx = dlogits w, dw = dlogits^T x.  Views lie between. */
typedef struct head {
    const tti_node *logits, *loss, *dx, *dw;
} head;

/* The node that makes a value, through views without other readers; NULL: there are other readers.
 */
static const tti_node *made_by(const tti_rewrite *rw, const tutti_value *value) {
    while (tti_n_uses(rw, value) == 1 && (value->node->op->traits & TTI_VIEW))
        value = value->node->in[0];
    return tti_n_uses(rw, value) == 1 ? value->node : NULL;
}

static bool is_product(const tti_node *node, bool trans_a, bool trans_b) {
    return tti_is_op(node, "matmul") && node->in[1]->type.shape.n_dims == 2 &&
           (tti_attr_int(node, "trans_a") != 0) == trans_a &&
           (tti_attr_int(node, "trans_b") != 0) == trans_b;
}

/* Adds a reader of dlogits, or of a view of it; false where it is none of the two products. */
static bool take_reader(head *h, const tti_node *node) {
    bool rows = node->in[0]->type.shape.n_dims == 2;
    const tutti_value *x = tti_skip_views(h->logits->in[0]);
    if (is_product(node, false, false) && node->in[1] == h->logits->in[1] && !h->dx) {
        h->dx = node;
        return true;
    }
    bool fits = rows && is_product(node, true, false) && tti_skip_views(node->in[1]) == x &&
                tti_shape_equal(&node->out[0]->type.shape, &h->logits->in[1]->type.shape) && !h->dw;
    if (fits) h->dw = node;
    return fits;
}

static bool take_readers(const tutti_graph *g, head *h) {
    const tutti_value *dlogits = h->loss->out[0];
    for (int i = 0; i < g->n_outputs; i++)
        if (tti_skip_views(g->outputs[i].value) == dlogits) return false;
    for (int i = h->loss->id + 1; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (node->op->traits & TTI_VIEW) continue;
        for (int k = 0; k < node->n_in; k++)
            if (tti_skip_views(node->in[k]) == dlogits && (k != 0 || !take_reader(h, node)))
                return false;
    }
    return h->dx && h->dw;
}

static bool find_head(const tti_rewrite *rw, const tti_target *target, const tti_node *loss,
                      head *out) {
    *out = (head){.loss = loss};
    if (!tti_is_op(loss, "cross_entropy_and_grad") || tti_attr_float(loss, "smoothing") != 0)
        return false;
    out->logits = made_by(rw, loss->in[0]);
    bool fits = out->logits && is_product(out->logits, false, true) &&
                out->logits->out[0]->type.dtype == TUTTI_BF16 &&
                loss->in[0]->type.shape.dim[1] == out->logits->in[1]->type.shape.dim[0];
    return fits && target->joins_head(out->logits) && take_readers(tti_old_graph(rw), out);
}

/* ---- the new graph ---- */

/* [rows, columns] of the same bytes. */
static tutti_value *as_rows(tutti_graph *g, tutti_value *x) {
    if (!x || x->type.shape.n_dims == 2) return x;
    int64_t n = x->type.shape.dim[x->type.shape.n_dims - 1], n_rows = 1;
    for (int d = 0; d < x->type.shape.n_dims - 1; d++) n_rows *= x->type.shape.dim[d];
    return tti_emit(g, "reshape", NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INTS("dims", 2, ((int64_t[]){n_rows, n})), {0}});
}

static tutti_value *scaled(tutti_graph *g, tutti_value *x, tutti_value *factors) {
    return tti_emit(g, "scale_rows", NULL, (tutti_value *[]){as_rows(g, x), factors}, 2, NULL);
}

static tutti_value *emit_head(tti_rewrite *rw, const head *h) {
    tutti_value *out[TTI_MAX_OUT] = {NULL};
    tutti_value *in[] = {as_rows(tti_new_graph(rw), tti_mapped(rw, h->logits->in[0])),
                         tti_mapped(rw, h->logits->in[1]), tti_mapped(rw, h->loss->in[1]),
                         tti_mapped(rw, h->loss->in[2])};
    tti_emit_n(tti_new_graph(rw), "cross_entropy_head", h->loss->name, in, 4,
               (tti_attr_arg[]){TTI_INT("ignore", tti_attr_int(h->loss, "ignore")), {0}}, out);
    tti_map(rw, h->loss->out[0], out[0]);
    for (int k = 1; k < 4; k++) tti_map(rw, h->loss->out[k], out[k + 1]);
    return out[1];
}

static void emit_dx(tti_rewrite *rw, const head *h, tutti_value *factors) {
    const tutti_value *dx = h->dx->out[0];
    tti_rewrite_copy(rw, h->dx);
    tutti_value *made = scaled(tti_new_graph(rw), tti_mapped(rw, dx), factors);
    const tutti_shape *s = &dx->type.shape;
    if (made && s->n_dims != 2)
        made = tti_emit(tti_new_graph(rw), "reshape", NULL, &made, 1,
                        (tti_attr_arg[]){TTI_INTS("dims", s->n_dims, s->dim), {0}});
    tti_map(rw, dx, made);
}

static void emit_dw(tti_rewrite *rw, const head *h, tutti_value *factors) {
    tutti_value *x = scaled(tti_new_graph(rw), tti_mapped(rw, h->dw->in[1]), factors);
    tti_rewrite_copy_with(rw, h->dw, (tutti_value *[]){tti_mapped(rw, h->dw->in[0]), x});
}

/* True for the product and its views, which no node reads any more. */
static bool is_gone(const head *h, const tti_node *node) {
    while (node != h->logits && (node->op->traits & TTI_VIEW)) node = node->in[0]->node;
    return node == h->logits;
}

tutti_status tti_fuse_head(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    head h = {0};
    bool found = false;
    tti_rewrite rw;
    if (!target->fuse_loss || !target->joins_head) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes && !found; i++)
        found = find_head(&rw, target, from->nodes[i], &h);
    tutti_value *factors = NULL;
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (found && is_gone(&h, node)) continue;
        if (found && node == h.loss)
            factors = emit_head(&rw, &h);
        else if (found && node == h.dx)
            emit_dx(&rw, &h, factors);
        else if (found && node == h.dw)
            emit_dw(&rw, &h, factors);
        else
            tti_rewrite_copy(&rw, node);
    }
    return tti_rewrite_finish(&rw, g);
}

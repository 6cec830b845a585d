/* fuse_loss.c - merges cross entropy and its gradient into one op, if the backend asks for it
 * (tti_target.fuse_loss): the logits, the largest value of a language model, are read once.
 *
 * The gradient of the loss must exist before the loss, and it does: it is a source.  Both ops are
 * named here, since being a loss with its own gradient is not a property that another op could
 * have. The merged op takes the place of the gradient, so no node may read the loss before. */
#include <string.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct loss_ops {
    const tti_op *loss, *grad, *both;
} loss_ops;

enum { ROWS = 3 }; /* the output of the loss, the input of its gradient, that both go without */

static bool same_attrs(const tti_node *a, const tti_node *b) {
    return tti_attr_float(a, "smoothing") == tti_attr_float(b, "smoothing") &&
           tti_attr_int(a, "ignore") == tti_attr_int(b, "ignore");
}

/* A node before grad reads a result of the loss. */
static bool is_read_before(const tutti_graph *g, const tti_node *loss, const tti_node *grad) {
    for (int i = loss->id + 1; i < grad->id; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k]->node == loss) return true;
    return false;
}

/* The gradient that can be made together with the loss; NULL: none. */
static const tti_node *partner(const tti_rewrite *rw, const loss_ops *ops, const tti_node *loss) {
    if (loss->op != ops->loss || tti_n_uses(rw, loss->out[ROWS]) != 1) return NULL;
    const tti_node *grad = tti_only_user(tti_old_graph(rw), loss->out[ROWS]);
    bool fits = grad && grad->op == ops->grad && grad->n_in == ROWS + 1 &&
                grad->in[0] == loss->in[0] && grad->in[1] == loss->in[1] &&
                (grad->in[2]->node->op->traits & TTI_SOURCE) && same_attrs(loss, grad);
    return fits && !is_read_before(tti_old_graph(rw), loss, grad) ? grad : NULL;
}

static void join(tti_rewrite *rw, const loss_ops *ops, const tti_node *grad) {
    const tti_node *loss = grad->in[ROWS]->node;
    tutti_value *in[ROWS];
    tti_attr_arg attrs[] = {TTI_FLOAT("smoothing", tti_attr_float(grad, "smoothing")),
                            TTI_INT("ignore", tti_attr_int(grad, "ignore")),
                            {0}};
    for (int i = 0; i < ROWS; i++) in[i] = tti_mapped(rw, grad->in[i]);
    tti_node *made = tti_graph_add(
        tti_new_graph(rw),
        &(tti_node_desc){
            .op = ops->both, .name = loss->name, .in = in, .n_in = ROWS, .attrs = attrs});
    if (!made) return; /* sticky */
    tti_map(rw, grad->out[0], made->out[0]);
    for (int k = 0; k < ROWS; k++) tti_map(rw, loss->out[k], made->out[k + 1]);
}

tutti_status tti_fuse_loss(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    const loss_ops ops = {tti_op_find("cross_entropy"), tti_op_find("cross_entropy_grad"),
                          tti_op_find("cross_entropy_and_grad")};
    tti_rewrite rw;
    if (!target->fuse_loss) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (partner(&rw, &ops, node)) continue;
        bool last = node->op == ops.grad && node->n_in == ROWS + 1 &&
                    partner(&rw, &ops, node->in[ROWS]->node) == node;
        if (last)
            join(&rw, &ops, node);
        else
            tti_rewrite_copy(&rw, node);
    }
    return tti_rewrite_finish(&rw, g);
}

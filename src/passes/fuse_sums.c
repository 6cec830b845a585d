/* fuse_sums.c - the gradient of a bias into the op that makes its terms (tti_target.fuse_sums).
 *
 *   dy = OP;  dw, db = linear_grad_w_wide(dy, x)     dy, db = OP_SUMS;  dw = matmul_wide(dy^T, x)
 * Where OP has all of dy in registers the sums cost nothing, while linear_grad_w_wide has to read
 * dy a second time for them.  Which op can, its record says: tti_op.summed.  Only where one linear
 * layer alone wants the sums: each gradient needs a result of its own. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "tutti/ops.h"

typedef struct fusion {
    tti_rewrite rw;
    const tti_op *linear;
    tutti_value **sums; /* [n_nodes] by the id of the maker of dy, in the new graph; NULL: none */
} fusion;

/* The only node that wants the sums of out 0; NULL: none, or several. */
static const tti_node *taker(const fusion *f, const tti_node *maker) {
    const tti_node *found = NULL;
    if (!maker->op->summed || maker->out[0]->layout != TTI_PLAIN) return NULL;
    for (int i = maker->id + 1; i < f->rw.from->n_nodes; i++) {
        const tti_node *node = f->rw.from->nodes[i];
        if (node->op != f->linear || node->in[0] != maker->out[0]) continue;
        if (found) return NULL;
        found = node;
    }
    return found;
}

static void make_summed(fusion *f, const tti_node *maker) {
    const tti_op *op = tti_op_find(maker->op->summed);
    tutti_value *in[TTI_MAX_IN] = {NULL};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    TTI_ASSERT(op && op->n_out == maker->op->n_out + 1);
    for (int i = 0; i < maker->n_in; i++) in[i] = f->rw.map[maker->in[i]->id];
    for (int i = 0; i < tti_n_attrs(maker->op); i++)
        attrs[i] = (tti_attr_arg){maker->op->attrs[i].name, maker->attrs[i]};
    tti_node *made = tti_graph_add(
        f->rw.to,
        &(tti_node_desc){
            .op = op, .name = maker->name, .in = in, .n_in = maker->n_in, .attrs = attrs});
    if (!made) return; /* sticky */
    for (int k = 0; k < maker->op->n_out; k++) f->rw.map[maker->out[k]->id] = made->out[k];
    f->sums[maker->id] = made->out[maker->op->n_out];
}

/* [..,N] as [rows,N]. */
static tutti_value *flat(tutti_graph *g, tutti_value *value) {
    const tutti_shape *shape = &value->type.shape;
    int64_t width = shape->dim[shape->n_dims - 1], rows = 1;
    for (int d = 0; d < shape->n_dims - 1; d++) rows *= shape->dim[d];
    return shape->n_dims == 2 ? value : tutti_reshape(g, value, &TUTTI_SHAPE(rows, width));
}

static void make_product(fusion *f, const tti_node *linear) {
    tutti_value *in[2];
    for (int i = 0; i < 2; i++) in[i] = flat(f->rw.to, f->rw.map[linear->in[i]->id]);
    tti_node *made = tti_graph_add(
        f->rw.to, &(tti_node_desc){.op = tti_op_find("matmul_wide"),
                                   .name = linear->name,
                                   .in = in,
                                   .n_in = 2,
                                   .attrs = (tti_attr_arg[]){TTI_INT("trans_a", 1), {0}}});
    if (!made) return; /* sticky */
    f->rw.map[linear->out[0]->id] = made->out[0];
    f->rw.map[linear->out[1]->id] = f->sums[linear->in[0]->node->id];
}

tutti_status tti_fuse_sums(tutti_graph **g, const tti_target *target) {
    fusion f = {.linear = tti_op_find("linear_grad_w_wide")};
    if (!target->fuse_sums) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&f.rw, *g));
    f.sums = calloc((size_t)(*g)->n_nodes + 1, sizeof(tutti_value *));
    if (!f.sums) tti_graph_fail(f.rw.to, tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; f.sums && i < (*g)->n_nodes; i++) {
        const tti_node *node = (*g)->nodes[i];
        if (taker(&f, node))
            make_summed(&f, node);
        else if (node->op == f.linear && f.sums[node->in[0]->node->id])
            make_product(&f, node);
        else
            tti_rewrite_copy(&f.rw, node);
    }
    free(f.sums);
    return tti_rewrite_finish(&f.rw, g);
}

/* fuse_sums.c - moves the gradient of a bias into the op that makes its terms
 * (tti_target.fuse_sums).
 *
 *   dy = OP;  dw, db = linear_grad_w_wide(dy, x)     dy, db = OP_SUMS;  dw = matmul_wide(dy^T, x)
 *   dw, low = linear_grad_w(dy, x);  db = cast(low)  dw = matmul(dy^T, x)
 *   low = sum_to(dy);  db = cast(low)
 * If OP has all of dy in registers the sums are free, while linear_grad_w_wide has to read dy a
 * second time for them.  The op's record says whether it can: tti_op.summed.  Applied only if a
 * single linear layer needs the sums, or a single bias of a tensor-sharded layer, which is added to
 * a sum of terms: each gradient needs its own result.  Views between OP and the layer are allowed
 * if they keep rows whole.  Unread sums, such as those of that layer, are not computed. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "tutti/ops.h"

typedef struct fusion {
    tti_rewrite rw;
    const tti_op *wide, *narrow; /* products with the sums of dy */
    const tti_op *sum;           /* the sums alone */
    tutti_value **sums; /* [n_nodes] by the id of the maker of dy, in the new graph; NULL: none */
} fusion;

static int64_t width_of(const tutti_value *value) {
    const tutti_shape *shape = &value->type.shape;
    return shape->n_dims > 0 ? shape->dim[shape->n_dims - 1] : 0;
}

/* The input of the linear layer before views that keep the row width. */
static const tutti_value *made_as(const tti_node *linear) {
    const tutti_value *dy = linear->in[0];
    while ((dy->node->op->traits & (TTI_VIEW | TTI_TURNS)) == TTI_VIEW &&
           dy->node->in[0]->layout == dy->layout && width_of(dy->node->in[0]) == width_of(dy))
        dy = dy->node->in[0];
    return dy;
}

static bool is_sum(const fusion *f, const tti_node *node) {
    return node->op == f->sum && node->out[0]->type.shape.n_dims == 1 &&
           width_of(node->out[0]) == width_of(node->in[0]);
}

/* The f32 value of the sums: the sums themselves, or a cast that is their only reader.  NULL: they
 * are needed in 16 bits. */
static const tutti_value *sums_of(const fusion *f, const tti_node *node) {
    bool alone = is_sum(f, node);
    const tutti_value *low = node->out[alone ? 0 : 1];
    if (node->op == f->wide || (alone && low->type.dtype == TUTTI_F32)) return low;
    const tti_node *user =
        tti_n_uses(&f->rw, low) == 1 ? tti_only_user(tti_old_graph(&f->rw), low) : NULL;
    bool widens = user && user->op->joint == TTI_JOINT_WIDE && user->out[0]->layout == low->layout;
    return widens && user->out[0]->type.dtype == TUTTI_F32 ? user->out[0] : NULL;
}

static bool is_linear(const fusion *f, const tti_node *node) {
    return node->op == f->wide || node->op == f->narrow;
}

static bool is_unread(const fusion *f, const tti_node *linear) {
    return tti_n_uses(&f->rw, linear->out[1]) == 0;
}

static bool is_worth_it(const tti_node *maker) {
    return maker->op->summed && maker->out[0]->layout == TTI_PLAIN &&
           tti_value_n_elems(maker->out[0]) >= maker->op->summed_from;
}

/* The only node that wants the sums of out 0; NULL: none, or several. */
static const tti_node *taker(const fusion *f, const tti_node *maker) {
    const tti_node *found = NULL;
    if (!is_worth_it(maker)) return NULL;
    for (int i = maker->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        bool wants = is_sum(f, node) || (is_linear(f, node) && !is_unread(f, node));
        if (!wants || made_as(node) != maker->out[0]) continue;
        if (found || !sums_of(f, node)) return NULL;
        found = node;
    }
    return found;
}

static void make_summed(fusion *f, const tti_node *maker) {
    const tti_op *op = tti_op_find(maker->op->summed);
    tutti_value *in[TTI_MAX_IN] = {NULL};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    TTI_ASSERT(op && op->n_out == maker->op->n_out + 1);
    for (int i = 0; i < maker->n_in; i++) in[i] = tti_mapped(&f->rw, maker->in[i]);
    for (int i = 0; i < tti_n_attrs(maker->op); i++)
        attrs[i] = (tti_attr_arg){maker->op->attrs[i].name, maker->attrs[i]};
    tti_node *made = tti_graph_add(
        tti_new_graph(&f->rw),
        &(tti_node_desc){
            .op = op, .name = maker->name, .in = in, .n_in = maker->n_in, .attrs = attrs});
    if (!made) return; /* sticky */
    for (int k = 0; k < maker->op->n_out; k++) tti_map(&f->rw, maker->out[k], made->out[k]);
    f->sums[maker->id] = made->out[maker->op->n_out];
}

/* [..,N] as [rows,N]. */
static tutti_value *flat(tutti_graph *g, tutti_value *value) {
    const tutti_shape *shape = &value->type.shape;
    int64_t width = shape->dim[shape->n_dims - 1], rows = 1;
    for (int d = 0; d < shape->n_dims - 1; d++) rows *= shape->dim[d];
    return shape->n_dims == 2 ? value : tutti_reshape(g, value, &TUTTI_SHAPE(rows, width));
}

/* The layer's product alone. */
static void make_product(fusion *f, const tti_node *linear) {
    tutti_value *in[2];
    for (int i = 0; i < 2; i++)
        in[i] = flat(tti_new_graph(&f->rw), tti_mapped(&f->rw, linear->in[i]));
    tti_node *made = tti_graph_add(
        tti_new_graph(&f->rw),
        &(tti_node_desc){.op = tti_op_find(linear->op == f->wide ? "matmul_wide" : "matmul"),
                         .name = linear->name,
                         .in = in,
                         .n_in = 2,
                         .attrs = (tti_attr_arg[]){TTI_INT("trans_a", 1), {0}}});
    if (!made) return; /* sticky */
    tti_map(&f->rw, linear->out[0], made->out[0]);
}

/* Replaces a node whose sums the maker of dy has computed, or whose sums have no reader. */
static bool replace(fusion *f, const tti_node *node) {
    bool linear = is_linear(f, node), unread = linear && is_unread(f, node);
    if (!linear && !is_sum(f, node)) return false;
    tutti_value *sums = unread ? NULL : f->sums[made_as(node)->node->id];
    if (!unread && !sums) return false;
    if (linear) make_product(f, node);
    if (sums) tti_map(&f->rw, sums_of(f, node), sums);
    return true;
}

tutti_status tti_fuse_sums(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    fusion f = {.wide = tti_op_find("linear_grad_w_wide"),
                .narrow = tti_op_find("linear_grad_w"),
                .sum = tti_op_find("sum_to")};
    if (!target->fuse_sums) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&f.rw, *g));
    f.sums = calloc((size_t)from->n_nodes + 1, sizeof(tutti_value *));
    if (!f.sums)
        tti_graph_fail(tti_new_graph(&f.rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    for (int i = 0; f.sums && i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (node->op->n_out == 1 && tti_mapped(&f.rw, node->out[0])) continue; /* a cast of sums */
        if (taker(&f, node))
            make_summed(&f, node);
        else if (!replace(&f, node))
            tti_rewrite_copy(&f.rw, node);
    }
    free(f.sums);
    return tti_rewrite_finish(&f.rw, g);
}

/* products.c - merges matrix products into fewer and larger ones before differentiation.
 *
 *   linear(x, w0), linear(x, w1), .. -> concat      linear(x, concat(w0, w1, ..))
 *   matmul(x, w^T) + b                              linear(x, w, b)
 *   matmul(x, w) + b                                linear(x, w^T, b)
 * The first is how models with separate layers make queries, keys and values. concat's gradient is
 * slices, so joining weights in place of activations also merges the gradients of x into one
 * product and those of all weights into another, which is then sliced.  This moves fewer bytes if x
 * has more rows than the weights have columns.  The last, as GPT-2's Conv1D has it, transposes the
 * weight once in a step, which moves fewer bytes than the addition under the same condition; its
 * gradient is a product in the order in which it is stored (linear's gradient).  The ops are named
 * here: that a linear layer is a product and a bias is not a property that another op could have.
 */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "tutti/ops.h"

typedef struct products {
    tti_rewrite rw;
    const tti_op *concat, *linear, *matmul;
    bool *gone; /* [n_nodes]: stands in another node, which comes later */
} products;

/* ---- several linear layers of one input ---- */

static int64_t n_rows(const tutti_value *x) {
    int64_t rows = 1;
    for (int d = 0; d < x->type.shape.n_dims - 1; d++) rows *= x->type.shape.dim[d];
    return rows;
}

static bool is_last_axis(const tti_node *concat) {
    int n_dims = concat->out[0]->type.shape.n_dims;
    int64_t axis = tti_attr_int(concat, "axis");
    return axis == n_dims - 1 || axis == -1;
}

/* Layers of one input and kind, without other readers of their results, whose weights are
 * parameters: the joined weights exist before any activation. */
static bool joins(const products *p, const tti_node *concat) {
    if (concat->op != p->concat || concat->n_in < 2 || !is_last_axis(concat)) return false;
    const tti_node *first = concat->in[0]->node;
    for (int i = 0; i < concat->n_in; i++) {
        const tti_node *node = concat->in[i]->node;
        if (node->op != p->linear || tti_n_uses(&p->rw, concat->in[i]) != 1) return false;
        if (node->in[0] != first->in[0] || node->n_in != first->n_in ||
            tti_attr_int(node, "act") != tti_attr_int(first, "act"))
            return false;
        for (int k = 1; k < node->n_in; k++)
            if (!(node->in[k]->node->op->traits & TTI_PARAM)) return false;
    }
    const tutti_value *x = first->in[0];
    return n_rows(x) > x->type.shape.dim[x->type.shape.n_dims - 1];
}

/* Input k of all layers in one value. */
static tutti_value *joined_input(products *p, const tti_node *concat, int k) {
    tutti_value *in[TTI_MAX_IN] = {NULL};
    for (int i = 0; i < concat->n_in; i++) in[i] = tti_mapped(&p->rw, concat->in[i]->node->in[k]);
    return tti_emit(tti_new_graph(&p->rw), "concat", NULL, in, concat->n_in,
                    (tti_attr_arg[]){TTI_INT("axis", 0), {0}});
}

static void join(products *p, const tti_node *concat) {
    const tti_node *first = concat->in[0]->node;
    tutti_value *in[3] = {tti_mapped(&p->rw, first->in[0])};
    for (int k = 1; k < first->n_in; k++) in[k] = joined_input(p, concat, k);
    tti_map(&p->rw, concat->out[0],
            tti_emit(tti_new_graph(&p->rw), "linear", first->name, in, first->n_in,
                     (tti_attr_arg[]){TTI_INT("act", tti_attr_int(first, "act")), {0}}));
}

/* ---- a product and a bias ---- */

/* Whether product and bias are those of a linear layer; the weight may be stored as [K,N] if it is
 * worth a transposition. */
static bool is_biased_layer(const tti_node *product, const tutti_value *bias) {
    const tutti_shape *w = &product->in[1]->type.shape, *b = &bias->type.shape;
    bool turned = !tti_attr_int(product, "trans_b");
    if (tti_attr_int(product, "trans_a") || w->n_dims != 2) return false;
    if (!(bias->node->op->traits & TTI_PARAM) || b->n_dims != 1) return false;
    bool worth_it =
        (product->in[1]->node->op->traits & TTI_PARAM) && n_rows(product->in[0]) > w->dim[0];
    return b->dim[0] == w->dim[turned] && (!turned || worth_it);
}

/* Which input of the addition is a product that only it reads and that can take the other as its
 * bias, a parameter; -1: none. */
static int product_of(const products *p, const tti_node *sum) {
    if (sum->op->epilogue != TTI_EPILOGUE_BIAS) return -1;
    for (int i = 0; i < 2; i++) {
        const tti_node *node = sum->in[i]->node;
        if (node->op == p->matmul && tti_n_uses(&p->rw, sum->in[i]) == 1 &&
            is_biased_layer(node, sum->in[1 - i]))
            return i;
    }
    return -1;
}

static void add_bias(products *p, const tti_node *sum, int i) {
    const tti_node *node = sum->in[i]->node;
    tutti_value *in[3] = {tti_mapped(&p->rw, node->in[0]), tti_mapped(&p->rw, node->in[1]),
                          tti_mapped(&p->rw, sum->in[1 - i])};
    if (!tti_attr_int(node, "trans_b")) in[1] = tutti_transpose(tti_new_graph(&p->rw), in[1], 0, 1);
    tti_map(&p->rw, sum->out[0],
            tti_emit(tti_new_graph(&p->rw), "linear", node->name, in, 3, NULL));
}

/* ---- the pass ---- */

static void mark(products *p, const tti_node *node) {
    int i = product_of(p, node);
    if (i >= 0) p->gone[node->in[i]->node->id] = true;
    for (i = 0; joins(p, node) && i < node->n_in; i++) p->gone[node->in[i]->node->id] = true;
}

static void visit(products *p, const tti_node *node) {
    int i = product_of(p, node);
    if (i >= 0)
        add_bias(p, node, i);
    else if (joins(p, node))
        join(p, node);
    else if (!p->gone[node->id])
        tti_rewrite_copy(&p->rw, node);
}

tutti_status tti_pass_products(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    products p = {.concat = tti_op_find("concat"),
                  .linear = tti_op_find("linear"),
                  .matmul = tti_op_find("matmul")};
    if (!target->fuse) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&p.rw, *g));
    p.gone = calloc((size_t)from->n_nodes + 1, sizeof *p.gone);
    if (!p.gone)
        tti_graph_fail(tti_new_graph(&p.rw), tti_fail(TUTTI_E_NOMEM, "products: out of memory"));
    for (int i = 0; p.gone && i < from->n_nodes; i++) mark(&p, from->nodes[i]);
    for (int i = 0; p.gone && i < from->n_nodes; i++) visit(&p, from->nodes[i]);
    free(p.gone);
    return tti_rewrite_finish(&p.rw, g);
}

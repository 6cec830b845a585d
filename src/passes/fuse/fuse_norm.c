/* fuse_norm.c - the residual stream of a transformer: merges layer norms with the addition before
 * them, and their gradients with the addition after them, including casts.
 *
 *   x + branch -> layer_norm -> cast              add_layer_norm; not if the product that makes
 *                                                 branch can add x, which saves one value
 *   layer_norm_grad_w, _grad_x -> + r -> cast     layer_norm_grads, layer_norm_grads_cast
 * Only for backends that ask for it (tti_target.fuse_residual_norm).  The ops are named here, since
 * being a norm with its own gradient is not a property that another op could have.  A merged op
 * takes the place of the norm, or of the gradient of x; casts from 16 bits to f32 before it are
 * skipped, and removed if they have no other reader. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct norm_ops {
    const tti_op *norm, *grad_x, *grad_w;
} norm_ops;

/* The nodes merged with a layer_norm (add, cast of y) or a layer_norm_grad_x (grad_w, the addition
 * of a residual gradient, cast of dx). */
typedef struct joint {
    bool found;
    const tti_node *add, *grad_w, *cast;
} joint;

typedef struct fusion {
    tti_rewrite rw;
    joint *at;  /* [n_nodes], by the norm's or grad_x's id */
    bool *gone; /* [n_nodes]: part of a joint op, made at another place */
    norm_ops ops;
    bool adds_in_products; /* fuse_linear.c merges nodes that follow products */
} fusion;

static bool is_half(tutti_dtype dtype) { return dtype == TUTTI_BF16 || dtype == TUTTI_F16; }

/* A cast from 16 bits to f32 loses nothing: returns its input. */
static const tutti_value *skip_cast(const tutti_value *value) {
    const tti_node *node = value->node;
    bool widens = node->op->joint == TTI_JOINT_WIDE && value->type.dtype == TUTTI_F32 &&
                  is_half(node->in[0]->type.dtype);
    return widens ? node->in[0] : value;
}

/* The first later node that reads value; NULL: none. */
static const tti_node *first_user(const fusion *f, const tutti_value *value) {
    for (int i = value->node->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++)
        if (tti_reads(tti_old_graph(&f->rw)->nodes[i], value))
            return tti_old_graph(&f->rw)->nodes[i];
    return NULL;
}

/* A cast of value to 16 bits that is in no joint op yet. */
static const tti_node *cast_of(const fusion *f, const tutti_value *value) {
    for (int i = value->node->id + 1; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (node->op->joint == TTI_JOINT_WIDE && node->in[0] == value && !f->gone[i] &&
            is_half(node->out[0]->type.dtype))
            return node;
    }
    return NULL;
}

/* An addition of two values like its result, in plain bytes. */
static bool is_addition(const tti_node *node) {
    if (node->op->joint != TTI_JOINT_ADD || node->out[0]->layout != TTI_PLAIN) return false;
    for (int i = 0; i < 2; i++)
        if (!tti_shape_equal(&node->in[i]->type.shape, &node->out[0]->type.shape) ||
            node->in[i]->layout != TTI_PLAIN)
            return false;
    return true;
}

/* ---- finding ---- */

/* A product of 16 bits can add the other term as it ends: the norm reads one value instead of two.
 */
static bool ends_product(const fusion *f, const tti_node *add) {
    for (int i = 0; i < 2; i++)
        if (is_half(add->in[i]->type.dtype) && tti_added_by(&f->rw, add->in[i]->node) == add)
            return true;
    return false;
}

/* The sum is first read by the norm, so that it may be made there. */
static void find_forward(fusion *f, const tti_node *norm) {
    const tti_node *add = norm->in[0]->node;
    if (!is_addition(add) || f->gone[add->id] || first_user(f, add->out[0]) != norm) return;
    if (f->adds_in_products && ends_product(f, add)) return;
    const tti_node *cast = tti_n_uses(&f->rw, norm->out[0]) == 1 ? cast_of(f, norm->out[0]) : NULL;
    f->at[norm->id] = (joint){.found = true, .add = add, .cast = cast};
    f->gone[add->id] = true;
    if (cast) f->gone[cast->id] = true;
}

/* The gradient of the weights before grad_x, of the same values, whose results are read later. */
static const tti_node *find_grad_w(const fusion *f, const tti_node *grad_x) {
    for (int i = grad_x->id - 1; i >= 0; i--) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        bool same = node->op == f->ops.grad_w;
        for (int k = 0; same && k < node->n_in; k++) same = node->in[k] == grad_x->in[k];
        if (!same) continue;
        for (int k = 0; k < node->op->n_out; k++) {
            const tti_node *user = first_user(f, node->out[k]);
            if (user && user->id < grad_x->id) return NULL;
        }
        return f->gone[i] ? NULL : node;
    }
    return NULL;
}

/* The addition that is the only reader of dx, if its other input exists before. */
static const tti_node *find_residual(const fusion *f, const tti_node *grad_x) {
    const tutti_value *dx = grad_x->out[0];
    const tti_node *add = tti_n_uses(&f->rw, dx) == 1 ? first_user(f, dx) : NULL;
    if (!add || !is_addition(add) || f->gone[add->id] || add->in[0] == add->in[1]) return NULL;
    const tutti_value *other = add->in[add->in[0] == dx ? 1 : 0];
    return other->node->id < grad_x->id ? add : NULL;
}

static void find_backward(fusion *f, const tti_node *grad_x) {
    const tti_node *grad_w = find_grad_w(f, grad_x);
    if (!grad_w) return;
    const tti_node *add = find_residual(f, grad_x);
    const tti_node *cast = cast_of(f, add ? add->out[0] : grad_x->out[0]);
    f->at[grad_x->id] = (joint){.found = true, .add = add, .grad_w = grad_w, .cast = cast};
    f->gone[grad_w->id] = true;
    if (add) f->gone[add->id] = true;
    if (cast) f->gone[cast->id] = true;
}

static void find_all(fusion *f) {
    for (int i = 0; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (node->op == f->ops.norm) find_forward(f, node);
        if (node->op == f->ops.grad_x) find_backward(f, node);
    }
}

/* ---- making ---- */

static tti_node *add_joint(fusion *f, const char *op, const tti_node *like,
                           const tutti_value *const *old, int n_in, const tti_attr_arg *attrs) {
    tutti_value *in[TTI_MAX_IN] = {NULL};
    for (int i = 0; i < n_in; i++) in[i] = tti_mapped(&f->rw, old[i]);
    return tti_graph_add(
        tti_new_graph(&f->rw),
        &(tti_node_desc){
            .op = tti_op_find(op), .name = like->name, .in = in, .n_in = n_in, .attrs = attrs});
}

/* If one of the two terms was cast, it is the branch, else the second one. */
static void make_forward(fusion *f, const tti_node *norm, const joint *with) {
    const tti_node *add = with->add;
    int branch = skip_cast(add->in[1]) == add->in[1] && skip_cast(add->in[0]) != add->in[0];
    const tutti_value *in[4] = {add->in[branch ? 1 : 0], skip_cast(add->in[branch ? 0 : 1]),
                                norm->in[1], norm->n_in > 2 ? norm->in[2] : NULL};
    const tutti_value *y = with->cast ? with->cast->out[0] : norm->out[0];
    tti_attr_arg attrs[] = {
        TTI_FLOAT("eps", tti_attr_float(norm, "eps")), TTI_INT("dtype", y->type.dtype), {0}};
    tti_node *made = add_joint(f, "add_layer_norm", norm, in, norm->n_in + 1, attrs);
    if (!made) return; /* sticky */
    tti_map(&f->rw, y, made->out[0]);
    tti_map(&f->rw, add->out[0], made->out[1]);
    for (int k = 1; k < 3; k++) tti_map(&f->rw, norm->out[k], made->out[1 + k]);
}

static void make_backward(fusion *f, const tti_node *grad_x, const joint *with) {
    const tutti_value *in[6] = {skip_cast(grad_x->in[0]), grad_x->in[1], grad_x->in[2],
                                grad_x->in[3], grad_x->in[4]};
    const tutti_value *dx = grad_x->out[0];
    tti_attr_arg attrs[2] = {{0}};
    int n_in = 5;
    if (with->add) {
        in[n_in++] = with->add->in[with->add->in[0] == dx ? 1 : 0];
        dx = with->add->out[0];
    }
    if (with->cast) attrs[0] = TTI_INT("dtype", with->cast->out[0]->type.dtype);
    tti_node *made = add_joint(f, with->cast ? "layer_norm_grads_cast" : "layer_norm_grads", grad_x,
                               in, n_in, attrs);
    if (!made) return; /* sticky */
    tti_map(&f->rw, dx, made->out[0]);
    for (int k = 0; k < 2; k++) tti_map(&f->rw, with->grad_w->out[k], made->out[1 + k]);
    if (with->cast) tti_map(&f->rw, with->cast->out[0], made->out[3]);
}

static void make_all(fusion *f) {
    for (int i = 0; i < tti_old_graph(&f->rw)->n_nodes; i++) {
        const tti_node *node = tti_old_graph(&f->rw)->nodes[i];
        if (f->gone[i]) continue;
        if (!f->at[i].found)
            tti_rewrite_copy(&f->rw, node);
        else if (f->at[i].grad_w)
            make_backward(f, node, &f->at[i]);
        else
            make_forward(f, node, &f->at[i]);
    }
}

tutti_status tti_fuse_norm(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    fusion f = {.ops = {tti_op_find("layer_norm"), tti_op_find("layer_norm_grad_x"),
                        tti_op_find("layer_norm_grad_w")},
                .adds_in_products = target->fuse_linear_grad && !target->joins_products};
    if (!target->fuse_residual_norm) return TUTTI_OK;
    TTI_TRY(tti_rewrite_begin(&f.rw, *g));
    f.at = calloc((size_t)from->n_nodes + 1, sizeof *f.at);
    f.gone = calloc((size_t)from->n_nodes + 1, sizeof *f.gone);
    if (f.at && f.gone) {
        find_all(&f);
        make_all(&f);
    } else {
        tti_graph_fail(tti_new_graph(&f.rw), tti_fail(TUTTI_E_NOMEM, "fuse: out of memory"));
    }
    tutti_status st = tti_rewrite_finish(&f.rw, g);
    free(f.at);
    free(f.gone);
    return st == TUTTI_OK ? tti_pass_simplify(g, target) : st; /* removes casts without readers */
}

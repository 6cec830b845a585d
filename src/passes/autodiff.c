/* autodiff.c - reverse-mode differentiation by appending nodes.
 *
 * Nodes are visited backwards; each op's grad callback emits the nodes of its inputs' gradients.
 * The seed is d(loss_sum) = 1: gradients are sums over samples, divided by the global count once,
 * in the update.  If a value is used several times, its gradients are added in the order of the
 * graph. */
#include <stdio.h>
#include <stdlib.h>

#include "ops/op_table.h"
#include "ops/rules.h"
#include "passes/stages/stages.h"

typedef struct autodiff {
    tutti_graph *g;
    bool *wanted;       /* [n_values before]: the value depends on a parameter */
    tutti_value **grad; /* [n_values before]: gradient so far, NULL: none */
    int n_values;
    const tti_stages *stages; /* NULL: no pipeline */
} autodiff;

static void find_wanted(autodiff *ad) {
    for (int i = 0; i < ad->g->n_nodes; i++) {
        const tti_node *node = ad->g->nodes[i];
        bool wanted = (node->op->traits & TTI_PARAM) != 0;
        for (int k = 0; k < node->n_in; k++) wanted = wanted || ad->wanted[node->in[k]->id];
        for (int k = 0; k < node->op->n_out; k++) {
            const tutti_value *out = node->out[k];
            bool is_float = out->type.dtype <= TUTTI_BF16;
            ad->wanted[out->id] = wanted && is_float;
        }
    }
}

static void add_gradient(autodiff *ad, const tutti_value *value, tutti_value *term) {
    tutti_value **grad = &ad->grad[value->id];
    *grad = *grad ? tti_emit(ad->g, "add", NULL, (tutti_value *[]){*grad, term}, 2, NULL) : term;
}

static tutti_status visit(autodiff *ad, const tti_node *node) {
    tutti_value *dy[TTI_MAX_OUT] = {0}, *dx[TTI_MAX_IN] = {0};
    bool need[TTI_MAX_IN] = {0}, any_dy = false, any_need = false;
    for (int k = 0; k < node->op->n_out; k++) {
        dy[k] = ad->grad[node->out[k]->id];
        any_dy = any_dy || dy[k];
    }
    for (int i = 0; i < node->n_in; i++) {
        need[i] = ad->wanted[node->in[i]->id];
        any_need = any_need || need[i];
    }
    if (!any_dy || !any_need) return TUTTI_OK;
    ad->g->stage = node->stage; /* a gradient belongs to the stage and module of its node */
    ad->g->module = node->module;
    if (!node->op->grad)
        return tti_fail(TUTTI_E_UNSUPPORTED, "autodiff: %s '%s' has no gradient", node->op->name,
                        node->name);
    TTI_TRY(node->op->grad(ad->g, node, dy, need, dx));
    for (int i = 0; i < node->n_in; i++)
        if (need[i] && dx[i]) add_gradient(ad, node->in[i], dx[i]);
    return tutti_graph_check(ad->g);
}

/* Whether a parameter without a gradient is right: none reaches it, or one reaches another stage's
 * copy. */
static bool may_be_unreached(const autodiff *ad, const tti_node *param) {
    return tti_attr_int(param, "reach") != TTI_GRAD_REACHES ||
           (ad->stages && tti_stages_is_tied(ad->stages, param->name));
}

/* Each gradient is the result of a node that reads no other stage: nothing is less than itself. */
static tutti_value *zeros_like(tutti_graph *g, tutti_value *w) {
    return tti_emit(g, "less", NULL, (tutti_value *[]){w, w}, 2, NULL);
}

/* The gradient of a parameter becomes a named output.  A value that serves two parameters, or is
 * no node's own result, is copied: each parameter's slot is written by its own node. */
static tutti_status name_gradient(autodiff *ad, const tti_node *param) {
    tutti_value *grad = ad->grad[param->out[0]->id];
    ad->g->stage = param->stage;
    if (!grad && may_be_unreached(ad, param)) grad = zeros_like(ad->g, param->out[0]);
    if (!grad)
        return tti_fail(TUTTI_E_INVALID,
                        "autodiff: the loss does not depend on parameter '%s', or only through "
                        "operations without a gradient; remove it, or make it a buffer",
                        param->name);
    bool taken = (grad->node->op->traits & (TTI_SOURCE | TTI_VIEW)) != 0;
    for (int i = 0; i < ad->g->n_outputs; i++) taken = taken || ad->g->outputs[i].value == grad;
    if (taken) grad = tti_emit(ad->g, "affine", NULL, &grad, 1, NULL);
    char name[600];
    snprintf(name, sizeof name, "grad.%s", param->name);
    tutti_output(ad->g, name, grad);
    return tutti_graph_check(ad->g);
}

/* d(loss_sum): 1, or the scale that keeps 16-bit gradients away from 0. */
static tutti_value *seed(const autodiff *ad, const tutti_value *loss) {
    const tti_node *scale = tti_graph_find_source(ad->g, "loss_scale");
    if (scale) return scale->out[0];
    return tutti_constant(ad->g, loss->type.dtype, &loss->type.shape, 1.0);
}

static tutti_status differentiate(autodiff *ad, tutti_value *loss) {
    int n_forward = ad->g->n_nodes;
    ad->g->stage = loss->node->stage;
    ad->grad[loss->id] = seed(ad, loss);
    for (int i = n_forward - 1; i >= 0; i--) TTI_TRY(visit(ad, ad->g->nodes[i]));
    for (int i = 0; i < n_forward; i++)
        if (ad->g->nodes[i]->op->traits & TTI_PARAM) TTI_TRY(name_gradient(ad, ad->g->nodes[i]));
    ad->g->stage = 0;
    return tutti_graph_check(ad->g);
}

tutti_status tti_pass_autodiff(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    if (!from->training) return TUTTI_OK;
    tutti_value *loss = tti_graph_output(*g, "loss_sum");
    if (!loss) return tti_fail(TUTTI_E_INVALID, "autodiff: the graph has no output 'loss_sum'");
    size_t n = (size_t)from->n_values + 1;
    autodiff ad = {.g = *g, .n_values = from->n_values, .stages = target->stages};
    ad.wanted = calloc(n, sizeof *ad.wanted);
    ad.grad = calloc(n, sizeof *ad.grad);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "autodiff: out of memory");
    if (ad.wanted && ad.grad) {
        find_wanted(&ad);
        st = differentiate(&ad, loss);
    }
    free(ad.wanted);
    free(ad.grad);
    return st;
}

/* ---- parameters that no gradient reaches ---- */

/* If the float values of a node have reach r, its inputs have at most r. */
static int reach_of_inputs(const tti_node *node, const int *reach) {
    int r = 0;
    for (int k = 0; k < node->op->n_out; k++)
        if (node->out[k]->type.dtype <= TUTTI_BF16) r = TTI_MAX(r, reach[node->out[k]->id]);
    if (node->op->grad == tti_grad_none) return 0;
    return node->op->grad == tti_grad_zero ? TTI_MIN(r, 1) : r;
}

tutti_status tti_mark_unreached(tutti_graph *g) {
    TTI_TRY(tutti_graph_check(g));
    const tutti_value *loss = tti_graph_output(g, "loss_sum");
    if (!loss) return TUTTI_OK;
    int *reach = calloc((size_t)g->n_values + 1, sizeof *reach); /* 2: a gradient, 1: zeros only */
    if (!reach) return tti_fail(TUTTI_E_NOMEM, "autodiff: out of memory");
    reach[loss->id] = 2;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        tti_node *node = g->nodes[i];
        if (node->op->traits & TTI_PARAM) {
            int r = reach[node->out[0]->id];
            if (r < 2)
                tti_attr_set_int(node, "reach", r == 1 ? TTI_GRAD_IS_ZERO : TTI_GRAD_IS_MISSING);
        }
        int r = reach_of_inputs(node, reach);
        for (int k = 0; k < node->n_in; k++)
            reach[node->in[k]->id] = TTI_MAX(reach[node->in[k]->id], r);
    }
    free(reach);
    return TUTTI_OK;
}

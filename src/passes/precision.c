/* precision.c - mixed precision: 16-bit floats where they save time, f32 everywhere else.
 *
 * Casts are added before autodiff.  The gradient of a cast is a cast, so the backward pass runs in
 * 16 bits exactly where the forward pass does, and the gradients of the f32 parameters are f32,
 * without a rule for any gradient op (docs/adr/0003).
 *
 * TTI_COMPUTE nodes read all f32 inputs in 16 bits.  Elementwise nodes, views and TTI_FOLLOWS nodes
 * run in 16 bits if their inputs are 16 bits already; parameters and constants are converted to
 * match, any other f32 input makes the node f32.  TTI_WIDE nodes and the rest (sums, softmax,
 * norms, losses) run in f32; TTI_READS_LOW ones widen input 0 themselves, where a cast would only
 * move bytes.  TTI_STREAM nodes, and everything added to their outputs, are f32 unless
 * target->low_precision_residual. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"
#include "tutti/ops.h"

typedef struct precision {
    tti_rewrite rw;
    tutti_dtype dtype;
    bool low_precision_residual;
    tutti_value **cast; /* [from->n_values]: a mapped value in the other dtype, NULL: not made */
    bool *gives_way;    /* [from->n_values]: made of parameters and constants alone */
} precision;

/* The mapped value of old in the wanted dtype; one cast serves all users.  A transposed parameter
 * is converted before, so that a 16-bit copy of it serves. */
static tutti_value *in_dtype(precision *p, const tutti_value *old, tutti_dtype wanted) {
    tutti_value *value = tti_mapped(&p->rw, old);
    if (!value || value->type.dtype == wanted) return value;
    tutti_value **cast = &p->cast[old->id];
    const tutti_value *param = tti_turned_matrix(old);
    if (!*cast && param && (param->node->op->traits & TTI_PARAM))
        *cast = tutti_transpose(tti_new_graph(&p->rw), in_dtype(p, param, wanted), 0, 1);
    else if (!*cast)
        *cast = tti_emit(tti_new_graph(&p->rw), "cast", NULL, &value, 1,
                         (tti_attr_arg[]){TTI_INT("dtype", wanted), {0}});
    return *cast;
}

/* True for parameters and constants, parts of them such as the first rows of a position table, and
 * values made only of these, such as the sum of two tables: they are converted to match 16-bit
 * activations. */
static bool gives_way(const precision *p, const tti_node *node) {
    const unsigned through = TTI_VIEW | TTI_FOLLOWS | TTI_ELEMENTWISE | TTI_BROADCAST;
    if (node->op->traits & (TTI_PARAM | TTI_CONSTANT)) return true;
    if (node->n_in == 0 || !(node->op->traits & through)) return false;
    for (int i = 0; i < node->n_in; i++)
        if (!p->gives_way[node->in[i]->id]) return false;
    return true;
}

static bool follows(const precision *p, const tti_node *node) {
    const unsigned may = TTI_ELEMENTWISE | TTI_BROADCAST | TTI_VIEW | TTI_FOLLOWS;
    unsigned traits = node->op->traits;
    if (!(traits & may) || (traits & TTI_WIDE)) return false;
    if (node->out[0]->type.dtype != TUTTI_F32) return false;
    bool any = false;
    for (int i = 0; i < node->n_in; i++) {
        const tutti_value *in = node->in[i], *mapped = tti_mapped(&p->rw, in);
        bool is_lowered = mapped && mapped->type.dtype == p->dtype && in->type.dtype == TUTTI_F32;
        if (in->type.dtype == TUTTI_F32 && !is_lowered && !p->gives_way[in->id]) return false;
        any = any || is_lowered;
    }
    return any;
}

static void visit(precision *p, const tti_node *node) {
    tutti_value *in[TTI_MAX_IN] = {0};
    p->gives_way[node->out[0]->id] = gives_way(p, node);
    bool stream = p->low_precision_residual && (node->op->traits & TTI_STREAM);
    bool is_lowered = (node->op->traits & TTI_COMPUTE) || stream || follows(p, node);
    for (int i = 0; i < node->n_in; i++) {
        tutti_dtype dtype = node->in[i]->type.dtype;
        bool as_it_is = i == 0 && (node->op->traits & TTI_READS_LOW);
        in[i] = as_it_is
                    ? tti_mapped(&p->rw, node->in[i])
                    : in_dtype(p, node->in[i], is_lowered && dtype == TUTTI_F32 ? p->dtype : dtype);
    }
    tti_rewrite_copy_with(&p->rw, node, in);
}

static tutti_status lower(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    precision p = {.dtype = target->compute_dtype,
                   .low_precision_residual = target->low_precision_residual};
    TTI_TRY(tti_rewrite_begin(&p.rw, *g));
    p.cast = calloc((size_t)from->n_values + 1, sizeof(tutti_value *));
    p.gives_way = calloc((size_t)from->n_values + 1, sizeof *p.gives_way);
    bool ready = p.cast && p.gives_way;
    if (!ready)
        tti_graph_fail(tti_new_graph(&p.rw), tti_fail(TUTTI_E_NOMEM, "precision: out of memory"));
    for (int i = 0; ready && i < from->n_nodes; i++) visit(&p, from->nodes[i]);
    for (int i = 0; ready && i < from->n_outputs; i++) {
        const tutti_value *old = from->outputs[i].value;
        tti_map(&p.rw, old, in_dtype(&p, old, old->type.dtype));
    }
    tutti_status st = tti_rewrite_finish(&p.rw, g);
    free(p.cast);
    free(p.gives_way);
    return st;
}

tutti_status tti_pass_precision(tutti_graph **g, const tti_target *target) {
    tutti_dtype wanted = target->compute_dtype;
    if (wanted != TUTTI_F32 && wanted != TUTTI_BF16 && wanted != TUTTI_F16)
        return tti_fail(TUTTI_E_INVALID, "precision: compute in f32, bf16 or f16");
    if (wanted != TUTTI_F32) TTI_TRY(lower(g, target));
    if (!target->loss_scale || !tti_graph_is_training(*g)) return TUTTI_OK;
    tutti_input(*g, "loss_scale", TUTTI_F32, &(tutti_shape){0});
    return tutti_graph_check(*g);
}

/* split.c - the placement of every value over the workers of a mesh axis, by the ops' shard rules.
 *
 * For the data axis the inputs are divided along the batch and the parameters are whole.  Gradients
 * and loss sums must be partial sums, which the reduce program then adds.  An op that mixes samples
 * has no rule for this and is named in the error, unless the model has one loss for the whole
 * shard.  Tensor and pipeline axes use the same walk with other placements of the sources. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/loss/losses.h"
#include "passes/passes.h"

/* True if all rows of x are equal whatever their number: x was repeated along dimension 0. */
static bool repeats_rows(const tutti_value *x) {
    const tti_node *node = x->node;
    int n_dims = x->type.shape.n_dims;
    if (n_dims == 0 || node->op->traits & TTI_RANDOM) return false;
    if (node->op->traits & TTI_CONSTANT) return tti_attr_has(node, "value");
    bool is_broadcast = strcmp(node->op->name, "broadcast_to") == 0;
    if (!is_broadcast && !(node->op->traits & (TTI_ELEMENTWISE | TTI_BROADCAST))) return false;
    for (int k = 0; k < node->n_in; k++) {
        const tutti_shape *in = &node->in[k]->type.shape;
        bool has_rows = in->n_dims == n_dims && (in->dim[0] != 1 || x->type.shape.dim[0] == 1);
        if (has_rows && !repeats_rows(node->in[k])) return false;
    }
    return node->n_in > 0;
}

tutti_status tti_split_node(const tti_node *node, tti_placement *in, tti_placement *placed) {
    tutti_status st = node->op->shard(node, in, placed);
    bool changed = false;
    if (st != TUTTI_E_UNSUPPORTED) return st;
    for (int k = 0; k < node->n_in; k++)
        if (in[k].kind == TTI_WHOLE && repeats_rows(node->in[k])) {
            in[k] = (tti_placement){TTI_SPLIT, 0};
            changed = true;
        }
    return changed ? node->op->shard(node, in, placed) : st;
}

/* Names the node whose rule has failed. */
static tutti_status name_failure(const tti_node *node, tutti_status st) {
    char why[1024], text[TTI_NODE_TEXT];
    if (st == TUTTI_OK || st == TUTTI_E_NOMEM) return st;
    snprintf(why, sizeof why, "%s", tutti_last_error());
    return tti_fail(st, "split: %s cannot be split over samples: %s", tti_node_text(node, text),
                    why);
}

static tutti_status place(const tti_node *node, tti_source_placement source, const void *user,
                          tti_placement *out) {
    tti_placement in[TTI_MAX_IN] = {0}, placed[TTI_MAX_OUT] = {0};
    bool all_whole = true;
    for (int k = 0; k < node->n_in; k++) {
        in[k] = out[node->in[k]->id];
        all_whole = all_whole && in[k].kind == TTI_WHOLE;
    }
    if (node->op->traits & TTI_SOURCE)
        placed[0] = source(node, user);
    else if (!all_whole)
        TTI_TRY(name_failure(node, tti_split_node(node, in, placed)));
    for (int k = 0; k < node->op->n_out; k++) out[node->out[k]->id] = placed[k];
    return TUTTI_OK;
}

tutti_status tti_split_placements(const tutti_graph *g, tti_source_placement source,
                                  const void *user, tti_placement *out) {
    for (int i = 0; i < g->n_nodes; i++) TTI_TRY(place(g->nodes[i], source, user, out));
    return TUTTI_OK;
}

/* Inputs are cut by samples; a scalar of integers counts samples of the shard, other scalars are
 * settings that all share. */
static tti_placement data_axis(const tti_node *source, const void *user) {
    (void)user;
    const tutti_type *type = &source->out[0]->type;
    if (!(source->op->traits & TTI_INPUT)) return (tti_placement){TTI_WHOLE, 0};
    if (type->shape.n_dims > 0) return (tti_placement){TTI_SPLIT, 0};
    return (tti_placement){type->dtype == TUTTI_I32 ? TTI_PARTIAL : TTI_WHOLE, 0};
}

/* Zeros that autodiff has made of a parameter: they are a sum over any number of samples. */
static bool is_zero(const tutti_value *value) {
    const tti_node *node = value->node;
    return strcmp(node->op->name, "less") == 0 && node->in[0] == node->in[1];
}

static tutti_status check_outputs(const tutti_graph *g, const tti_placement *placed) {
    for (int i = 0; i < g->n_outputs; i++) {
        const char *name = g->outputs[i].name;
        tti_placement_kind kind = placed[g->outputs[i].value->id].kind;
        bool is_sum = strncmp(name, "grad.", 5) == 0 || strncmp(name, "stat.", 5) == 0 ||
                      g->outputs[i].value->type.shape.n_dims == 0;
        char text[TTI_NODE_TEXT];
        bool is_own = kind == TTI_OWN && strncmp(name, "stat.", 5) == 0;
        if (is_sum && !is_own && kind != TTI_PARTIAL && !is_zero(g->outputs[i].value))
            return tti_fail(TUTTI_E_INVALID,
                            "split: output '%s' is not a sum over samples, so it cannot be added "
                            "over the workers; it is computed by %s",
                            name, tti_node_text(g->outputs[i].value->node, text));
    }
    return TUTTI_OK;
}

/* The purpose of a node; only nodes whose values are added over the shards need a shard rule. */
typedef enum purpose {
    FOR_SUMS,  /* loss, count, gradients */
    FOR_STATS, /* running statistics */
    FOR_METRICS
} purpose;

/* As place, but where the op has no rule for its inputs the results are the worker's own. */
static tutti_status place_own(const tti_node *node, purpose why, bool *is_own, tti_placement *out) {
    tti_placement in[TTI_MAX_IN] = {0}, placed[TTI_MAX_OUT] = {0};
    bool all_whole = true, known = true;
    for (int k = 0; k < node->n_in; k++) {
        in[k] = out[node->in[k]->id];
        all_whole = all_whole && in[k].kind == TTI_WHOLE;
        bool by_rule = why == FOR_STATS && !is_own[node->in[k]->node->id];
        known = known && (in[k].kind != TTI_OWN || by_rule);
    }
    if (known && node->op->traits & TTI_SOURCE) {
        placed[0] = data_axis(node, NULL);
    } else if (known && !all_whole) {
        tutti_status st = tti_split_node(node, in, placed);
        if (st == TUTTI_E_NOMEM) return st;
        known = st == TUTTI_OK;
        if (!known) tti_clear_error();
    }
    is_own[node->id] = !known;
    for (int k = 0; k < node->op->n_out; k++)
        out[node->out[k]->id] = known ? placed[k] : (tti_placement){TTI_OWN, 0};
    return TUTTI_OK;
}

/* Finds the first purpose in the enum for which an output needs each node. */
static void find_purposes(const tutti_graph *g, purpose *of) {
    for (int i = 0; i < g->n_nodes; i++) of[i] = FOR_METRICS;
    for (int i = 0; i < g->n_outputs; i++) {
        const char *name = g->outputs[i].name;
        purpose own = tti_is_own_metric(name)          ? FOR_METRICS
                      : strncmp(name, "stat.", 5) == 0 ? FOR_STATS
                                                       : FOR_SUMS;
        purpose *node = &of[g->outputs[i].value->node->id];
        *node = TTI_MIN(*node, own);
    }
    for (int i = g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            purpose *in = &of[g->nodes[i]->in[k]->node->id];
            *in = TTI_MIN(*in, of[i]);
        }
}

/* Sum and count of a model's own metric are of each shard, and so is what it leaves in a buffer, so
 * the nodes that nothing else needs may join its samples. */
tutti_status tti_split_batch(const tutti_graph *g, tti_placement *out) {
    tutti_status st = TUTTI_OK;
    purpose *of = calloc((size_t)g->n_nodes + 1, sizeof *of);
    bool *is_own = calloc((size_t)g->n_nodes + 1, sizeof *is_own);
    if (!of || !is_own) st = tti_fail(TUTTI_E_NOMEM, "split: out of memory");
    if (st == TUTTI_OK) find_purposes(g, of);
    for (int i = 0; i < g->n_nodes && st == TUTTI_OK; i++)
        st = of[i] == FOR_SUMS ? place(g->nodes[i], data_axis, NULL, out)
                               : place_own(g->nodes[i], of[i], is_own, out);
    free(of);
    free(is_own);
    return st;
}

tutti_status tti_pass_split(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    if (target->one_shard) return TUTTI_OK;
    if (from->joins_samples) return TUTTI_OK; /* each shard has a loss of its own */
    tti_placement *placed = calloc((size_t)from->n_values + 1, sizeof *placed);
    if (!placed) return tti_fail(TUTTI_E_NOMEM, "split: out of memory");
    tutti_status st = tti_split_batch(*g, placed);
    if (st == TUTTI_OK) st = check_outputs(*g, placed);
    free(placed);
    return st;
}

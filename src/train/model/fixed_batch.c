/* fixed_batch.c - builds a model for the number of rows that its file fixes, checks with the shard
 * rules of its ops that the batch can be divided, and copies the nodes for another number of rows.
 *
 * Nodes are copied with their attributes, except for shapes.  A value that is divided along a
 * dimension has the same number of elements per row there; every other dimension stays.  A sum over
 * the batch is refused, because it may be part of a mean, whose number of rows is a constant in the
 * file. */
#include "train/model/fixed_batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/graph.h"
#include "passes/passes.h"

typedef struct resizing {
    const tutti_graph *from; /* graph for n_from rows */
    tutti_graph *to;         /* graph for n_to rows */
    int64_t n_from, n_to;
    tti_placement *placed; /* [from->n_values]: placement along the batch */
    tutti_value **made;    /* [from->n_values] */
    bool *live;            /* [from->n_values]: an output of the model depends on it */
    bool *
        live_node; /* [from->n_nodes]: the same for nodes, including those that update statistics */
} resizing;

/* ---- nodes ---- */

static tutti_status refuse(const tti_node *node, const char *why) {
    char text[TTI_NODE_TEXT];
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s %s", tti_node_text(node, text), why);
}

/* Computes the shape of a value in the new graph; false: the value does not consist of whole
 * rows. */
static bool resize_shape(const resizing *r, tti_placement at, tutti_shape *shape) {
    if (at.kind != TTI_SPLIT) return true;
    if (at.dim >= shape->n_dims || shape->dim[at.dim] % r->n_from != 0) return false;
    shape->dim[at.dim] = shape->dim[at.dim] / r->n_from * r->n_to;
    return true;
}

/* Adds a copy of node with other inputs. out: the shape of its output 0, for an attribute with the
 * shape. */
static tti_node *copy_node(resizing *r, const tti_node *node, tutti_value *const *in,
                           const tutti_shape *out) {
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    tutti_graph_set_module(r->to, node->module);
    for (int i = 0; i < tti_n_attrs(node->op); i++) {
        const char *name = node->op->attrs[i].name;
        attrs[i] = (tti_attr_arg){name, node->attrs[i]};
        if (strcmp(name, "dims") == 0) attrs[i] = TTI_INTS(name, out->n_dims, out->dim);
    }
    return tti_graph_add(
        r->to,
        &(tti_node_desc){
            .op = node->op, .name = node->name, .in = in, .n_in = node->n_in, .attrs = attrs});
}

/* Resizes a whole value with equal rows to the rows of the new batch (tti_split_node). */
static tutti_value *resize_rows(resizing *r, const tutti_value *value) {
    const tti_node *node = value->node;
    tutti_shape shape = value->type.shape;
    tutti_value *in[TTI_MAX_IN] = {0};
    if (!resize_shape(r, (tti_placement){TTI_SPLIT, 0}, &shape)) return NULL;
    for (int i = 0; i < node->n_in; i++) {
        const tutti_shape *own = &node->in[i]->type.shape;
        bool has_rows = own->n_dims == shape.n_dims && own->dim[0] == value->type.shape.dim[0] &&
                        own->dim[0] != 1;
        in[i] = has_rows ? resize_rows(r, node->in[i]) : r->made[node->in[i]->id];
        if (!in[i]) return NULL;
    }
    tti_node *copy = copy_node(r, node, in, &shape);
    return copy ? copy->out[value->out] : NULL;
}

/* Finds the inputs of a copy and the placement of its outputs. */
static tutti_status place_node(resizing *r, const tti_node *node, tutti_value **in,
                               tti_placement *out) {
    tti_placement at[TTI_MAX_IN] = {0};
    bool all_whole = true;
    for (int k = 0; k < node->n_in; k++) {
        at[k] = r->placed[node->in[k]->id];
        all_whole = all_whole && at[k].kind == TTI_WHOLE;
        in[k] = r->made[node->in[k]->id];
    }
    if (all_whole) return TUTTI_OK;
    tutti_status st = tti_split_node(node, at, out);
    if (st == TUTTI_E_NOMEM) return st;
    if (st != TUTTI_OK) {
        char why[1024];
        snprintf(why, sizeof why, "cannot be split over samples: %s", tutti_last_error());
        return refuse(node, why);
    }
    for (int k = 0; k < node->n_in; k++) {
        bool is_repeated = at[k].kind == TTI_SPLIT && r->placed[node->in[k]->id].kind == TTI_WHOLE;
        if (!is_repeated) continue;
        in[k] = resize_rows(r, node->in[k]);
        if (!in[k]) return refuse(node, "has an input whose rows are fixed");
    }
    return TUTTI_OK;
}

static tutti_status resize_node(resizing *r, const tti_node *node) {
    tti_placement placed[TTI_MAX_OUT] = {0};
    tutti_value *in[TTI_MAX_IN] = {0};
    TTI_TRY(place_node(r, node, in, placed));
    tutti_shape shape[TTI_MAX_OUT];
    for (int k = 0; k < node->op->n_out; k++) {
        shape[k] = node->out[k]->type.shape;
        if (placed[k].kind == TTI_PARTIAL && r->live[node->out[k]->id])
            return refuse(node, "sums over the samples");
        if (!resize_shape(r, placed[k], &shape[k]))
            return refuse(node, "joins several samples in a row");
    }
    tti_node *copy = copy_node(r, node, in, &shape[0]);
    if (!copy) return tutti_graph_check(r->to);
    for (int k = 0; k < node->op->n_out; k++) {
        if (!tti_shape_equal(&copy->out[k]->type.shape, &shape[k]))
            return refuse(node, "has another shape for another number of samples");
        r->made[node->out[k]->id] = copy->out[k];
        r->placed[node->out[k]->id] = placed[k];
    }
    return TUTTI_OK;
}

/* ---- the graph ---- */

static void mark_live(resizing *r, tutti_value *const *outputs, int n) {
    const tutti_graph *g = r->from;
    for (int i = 0; i < n; i++)
        if (outputs[i]) r->live[outputs[i]->id] = true;
    for (int i = 0; i < g->n_outputs; i++) r->live_node[g->outputs[i].value->node->id] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const tti_node *node = g->nodes[i];
        bool is_live = node->op->traits & TTI_BUFFER; /* its statistic is an output */
        for (int k = 0; k < node->op->n_out; k++) is_live |= r->live[node->out[k]->id];
        r->live_node[i] |= is_live;
        for (int k = 0; k < node->n_in; k++) {
            r->live[node->in[k]->id] |= is_live;
            r->live_node[node->in[k]->node->id] |= r->live_node[i];
        }
    }
}

/* Copies an input that the import adds, such as the number of rows. */
static tutti_status resize_input(resizing *r, const tti_node *node) {
    tti_node *own = tti_graph_find_source(r->to, node->name);
    if (r->made[node->out[0]->id]) return TUTTI_OK; /* one of the samples */
    if (node->out[0]->type.shape.n_dims > 0) return refuse(node, "is an input of the graph");
    if (!own) own = copy_node(r, node, NULL, &node->out[0]->type.shape);
    if (!own) return tutti_graph_check(r->to);
    r->made[node->out[0]->id] = own->out[0];
    if (node->out[0]->type.dtype == TUTTI_I32) /* an i32 input is the number of samples */
        r->placed[node->out[0]->id] = (tti_placement){TTI_PARTIAL, 0};
    return TUTTI_OK;
}

/* Copies the graph; the inputs of samples already exist in the new one. */
static tutti_status resize_graph(resizing *r, const tti_import *import,
                                 const tti_import_samples *small,
                                 const tti_import_samples *samples) {
    for (int i = 0; i < tti_import_n_inputs(import); i++) {
        r->made[small->inputs[i]->id] = samples->inputs[i];
        r->placed[small->inputs[i]->id] = (tti_placement){TTI_SPLIT, 0};
    }
    if (small->present) {
        r->made[small->present->id] = samples->present;
        r->placed[small->present->id] = (tti_placement){TTI_SPLIT, 0};
    }
    for (int i = 0; i < r->from->n_nodes; i++)
        if (r->live_node[i])
            TTI_TRY(r->from->nodes[i]->op->traits & TTI_INPUT ? resize_input(r, r->from->nodes[i])
                                                              : resize_node(r, r->from->nodes[i]));
    for (int i = 0; i < r->from->n_outputs; i++)
        tutti_output(r->to, r->from->outputs[i].name, r->made[r->from->outputs[i].value->id]);
    return tutti_graph_check(r->to);
}

/* Adds an input with n rows that is otherwise like value. */
static tutti_value *add_input(tutti_graph *g, int i, const tutti_value *value, int64_t n) {
    char name[32];
    tutti_shape shape = value->type.shape;
    shape.dim[0] = n;
    snprintf(name, sizeof name, "in.%d", i);
    return tutti_input(g, name, value->type.dtype, &shape);
}

static tutti_status build_small(const tti_import *import, tutti_graph *small, int64_t n,
                                const tti_import_samples *samples, tti_import_samples *own,
                                tutti_value **outputs) {
    int n_inputs = tti_import_n_inputs(import);
    tutti_value **inputs = tti_arena_alloc(&small->arena, ((size_t)n_inputs + 1) * sizeof *inputs);
    if (!inputs) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    for (int i = 0; i < n_inputs; i++) inputs[i] = add_input(small, i, samples->inputs[i], n);
    *own = (tti_import_samples){.inputs = inputs, .labels = samples->labels};
    if (samples->present) own->present = add_input(small, n_inputs, samples->present, n);
    TTI_TRY(tutti_graph_check(small));
    return tti_import_build(import, small, own, outputs);
}

static tutti_status resize(const tti_import *import, tutti_graph *small, tutti_graph *g, int64_t n,
                           const tti_import_samples *samples, tutti_value **outputs) {
    tti_import_samples own;
    TTI_TRY(build_small(import, small, n, samples, &own, outputs));
    resizing r = {.from = small,
                  .to = g,
                  .n_from = n,
                  .n_to = samples->inputs[0]->type.shape.dim[0],
                  .placed = calloc((size_t)small->n_values + 1, sizeof(tti_placement)),
                  .made = calloc((size_t)small->n_values + 1, sizeof(tutti_value *)),
                  .live = calloc((size_t)small->n_values + 1, sizeof(bool)),
                  .live_node = calloc((size_t)small->n_nodes + 1, sizeof(bool))};
    bool ready = r.placed && r.made && r.live && r.live_node;
    if (ready) mark_live(&r, outputs, tti_import_n_outputs(import));
    tutti_status st = ready ? resize_graph(&r, import, &own, samples)
                            : tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    for (int i = 0; st == TUTTI_OK && i < tti_import_n_outputs(import); i++)
        if (outputs[i]) outputs[i] = r.made[outputs[i]->id];
    free(r.placed);
    free(r.made);
    free(r.live);
    free(r.live_node);
    return st;
}

/* Returns the number of rows that the file fixes for all inputs if the shard has another number;
 * else 0. */
static int64_t find_fixed(const tti_import *import, const tti_import_samples *samples) {
    int64_t fixed = 0;
    for (int i = 0; i < tti_import_n_inputs(import); i++) {
        const tutti_shape *own = &samples->inputs[i]->type.shape;
        int64_t n = tti_import_fixed_rows(import, i);
        if (own->n_dims < 1 || n < 1 || own->dim[0] != samples->inputs[0]->type.shape.dim[0])
            return 0;
        if (i > 0 && n != fixed) return 0;
        fixed = n;
    }
    return fixed == samples->inputs[0]->type.shape.dim[0] ? 0 : fixed;
}

tutti_status tti_fixed_batch_build(const tti_import *import, tutti_graph *g,
                                   const tti_import_samples *samples, tutti_value **outputs) {
    int64_t n = find_fixed(import, samples);
    if (n == 0) return tti_import_build(import, g, samples, outputs);
    int64_t n_rows = samples->inputs[0]->type.shape.dim[0];
    const tutti_graph *whole = g;
    tutti_graph *small = tutti_graph_create(whole->training);
    if (!small) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
    tutti_graph_set_sync_batch_norm(small, whole->sync_batch_norm);
    tutti_graph_set_shards(small, whole->n_shards);
    tutti_status st = resize(import, small, g, n, samples, outputs);
    tutti_graph_destroy(small);
    if (st != TUTTI_E_UNSUPPORTED && st != TUTTI_E_INVALID) return st;
    char why[2048];
    snprintf(why, sizeof why, "%s", tutti_last_error());
    return tti_fail(
        TUTTI_E_UNSUPPORTED,
        "%s: the model was exported for a batch of %lld, and a shard has %lld row%s: %s; "
        "export it with a dynamic batch (torch.export.Dim), or choose train.batch and "
        "parallel.shards so that a shard has %lld",
        tti_import_path(import), (long long)n, (long long)n_rows, n_rows == 1 ? "" : "s", why,
        (long long)n);
}

/* onnx_emit.c - the evaluation graph of a job as an ONNX file.
 *
 * Only what logits depend on is written.  The idea to know: the graph is built for a fixed number
 * of rows, but no rule names it (reshapes leave the first dimension open), so the file takes
 * any number, unless the model itself has a constant with so many rows. */
#include "train/onnx_emit.h"

#include <stdlib.h>
#include <string.h>

/* ---- names and nodes ---- */

static const char *new_name(tti_onnx_emit *e) {
    const char *name = tti_arena_printf(&e->arena, "v.%d", e->n_made++);
    return name ? name : "";
}

tti_onnx_attr tti_onnx_ints(const char *key, int n, const int64_t *v) {
    tti_onnx_attr attr = {.name = key, .kind = TTI_ONNX_INTS, .n = n};
    for (int i = 0; i < n; i++) attr.v[i] = v[i];
    return attr;
}

const char *tti_onnx_in(const tti_onnx_emit *e, const tti_node *node, int i) {
    const char *name = e->names[node->in[i]->id];
    return name ? name : "";
}

const char *tti_onnx_op(tti_onnx_emit *e, const char *op, const char *const *in,
                        const tti_onnx_attr *attrs) {
    const char *out = new_name(e);
    tti_onnx_node node = {.op = op, .in = in, .out = &out, .n_out = 1, .attrs = attrs};
    while (in[node.n_in]) node.n_in++;
    tti_onnx_add_node(&e->file, &node);
    return out;
}

void tti_onnx_split(tti_onnx_emit *e, const char *x, int64_t axis, int n, const int64_t *sizes,
                    const char **out) {
    const char *in[] = {x, tti_onnx_list(e, n, sizes)};
    for (int i = 0; i < n; i++) out[i] = new_name(e);
    tti_onnx_add_node(&e->file,
                      &(tti_onnx_node){.op = "Split",
                                       .in = in,
                                       .n_in = 2,
                                       .out = out,
                                       .n_out = n,
                                       .attrs = (tti_onnx_attr[]){TTI_ONNX_I("axis", axis), {0}}});
}

const char *tti_onnx_floats(tti_onnx_emit *e, const tutti_shape *shape, const float *data) {
    const char *name = new_name(e);
    tti_onnx_add_tensor(&e->file, name, &(tutti_type){TUTTI_F32, *shape}, data);
    return name;
}

const char *tti_onnx_number(tti_onnx_emit *e, double x) {
    float f = (float)x;
    return tti_onnx_floats(e, &(tutti_shape){0}, &f);
}

const char *tti_onnx_list(tti_onnx_emit *e, int n, const int64_t *v) {
    const char *name = new_name(e);
    tti_onnx_add_tensor(&e->file, name, &(tutti_type){TUTTI_I64, TUTTI_SHAPE(n)}, v);
    return name;
}

const char *tti_onnx_reshape(tti_onnx_emit *e, const char *x, int n, const int64_t *dim) {
    return TTI_ONNX_OP(e, "Reshape", NULL, x, tti_onnx_list(e, n, dim));
}

const char *tti_onnx_transpose(tti_onnx_emit *e, const char *x, int n, const int64_t *perm) {
    tti_onnx_attr attrs[] = {tti_onnx_ints("perm", n, perm), {0}};
    return TTI_ONNX_OP(e, "Transpose", attrs, x);
}

/* ---- the graph ---- */

/* Marks the nodes that a value depends on. */
static void mark(const tutti_graph *g, const tutti_value *from, bool *live) {
    live[from->node->id] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; live[i] && k < g->nodes[i]->n_in; k++)
            live[g->nodes[i]->in[k]->node->id] = true;
}

static tutti_status add_param(tti_onnx_emit *e, const tti_exporting *x, const tti_node *node) {
    int slot = tti_plan_find_slot(x->b->plan, node->name);
    if (slot < 0) return tti_node_fail(node, "has no place in the plan");
    tti_onnx_add_tensor(&e->file, node->name, &node->out[0]->type,
                        tti_predictor_params(x->predictor) + x->b->plan->slots[slot].first);
    e->names[node->out[0]->id] = node->name;
    e->n_tensors++;
    return TUTTI_OK;
}

static tutti_status add_node(tti_onnx_emit *e, const tti_exporting *x, const tti_node *node) {
    const tutti_shape *shape = &node->out[0]->type.shape;
    if (node->op->traits & (TTI_PARAM | TTI_BUFFER)) return add_param(e, x, node);
    if (node->op->traits & TTI_INPUT) {
        e->names[node->out[0]->id] = node->name;
        return TUTTI_OK;
    }
    bool repeats = (node->op->traits & TTI_CONSTANT) || strcmp(node->op->name, "broadcast_to") == 0;
    if (repeats && shape->n_dims > 0 && shape->dim[0] == e->n_rows) e->fixed_batch = true;
    tti_onnx_rule rule = tti_onnx_find(node->op->name);
    if (!rule)
        return tti_fail(TUTTI_E_UNSUPPORTED, "export: format onnx does not have the op %s%s%s",
                        node->op->name, *node->name ? " of " : "", node->name);
    return rule(e, node, &e->names[node->out[0]->id]);
}

/* Logits as the model gives them, before they are made flat for the loss. */
static const tutti_value *find_logits(const tutti_graph *g) {
    const tutti_value *logits = tti_graph_output(g, "logits");
    const tti_node *node = logits->node;
    if (strcmp(node->op->name, "reshape") != 0) return logits;
    const tutti_shape *in = &node->in[0]->type.shape, *out = &logits->type.shape;
    bool flattened = in->n_dims > out->n_dims && in->dim[in->n_dims - 1] == out->dim[1];
    return flattened ? node->in[0] : logits;
}

static tutti_status add_graph(tti_onnx_emit *e, const tti_exporting *x, const tutti_graph *g,
                              bool *live) {
    const tutti_value *logits = find_logits(g);
    const char *logits_name = "logits";
    mark(g, logits, live);
    for (int i = 0; i < g->n_nodes; i++)
        if (live[i]) TTI_TRY(add_node(e, x, g->nodes[i]));
    tti_onnx_add_node(&e->file, &(tti_onnx_node){.op = "Identity",
                                                 .in = &e->names[logits->id],
                                                 .n_in = 1,
                                                 .out = &logits_name,
                                                 .n_out = 1});
    for (int i = 0; i < g->n_nodes; i++)
        if (live[i] && (g->nodes[i]->op->traits & TTI_INPUT))
            tti_onnx_add_input(&e->file, g->nodes[i]->name, &g->nodes[i]->out[0]->type,
                               !e->fixed_batch);
    tti_onnx_add_output(&e->file, "logits", &logits->type, !e->fixed_batch);
    return e->arena.failed ? tti_fail(TUTTI_E_NOMEM, "export: out of memory") : TUTTI_OK;
}

tutti_status tti_export_onnx(const tti_exporting *x) {
    tutti_graph *g;
    TTI_TRY(tti_blueprint_graph(x->job, x->b, false, &g));
    tti_onnx_emit e = {.n_rows = x->b->rows_per_shard};
    bool *live = calloc((size_t)g->n_nodes + 1, sizeof *live);
    e.names = calloc((size_t)g->n_values + 1, sizeof *e.names);
    tutti_status st = live && e.names ? add_graph(&e, x, g, live)
                                      : tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    if (st == TUTTI_OK)
        st = tti_onnx_save(&e.file, x->b->model_name, x->desc->out, &x->result->n_bytes);
    x->result->n_tensors = e.n_tensors;
    x->result->n_files = 1;
    tti_onnx_free(&e.file);
    tti_arena_free(&e.arena);
    free(e.names);
    free(live);
    tutti_graph_destroy(g);
    return st;
}

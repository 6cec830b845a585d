/* onnx_emit.c - writes the evaluation graph of a job as an ONNX file.
 *
 * Only nodes on which the results depend are written.  The graph is built for a fixed number of
 * rows, but no rule writes that number (reshapes leave the first dimension open).  So the file
 * accepts any number of rows, unless the model has a constant with that many rows.  The length of
 * sequences is variable too: the graph is built for two lengths, and dimensions that differ depend
 * on the length. */
#include "train/export/onnx_emit.h"

#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "train/infer/named_outputs.h"

/* ---- dimensions that depend on the sequence length ---- */

/* The bit mask of variable dimensions of a value: bit 0, and those that depend on the sequence
 * length. */
static unsigned open_dims(const tti_onnx_emit *e, const tutti_value *value) {
    const tutti_shape *here = &value->type.shape;
    const tutti_shape *there = &tti_onnx_twin(e, value->node)->out[0]->type.shape;
    unsigned open = !e->fixed_batch;
    for (int i = 1; i < TUTTI_MAX_DIMS && i < here->n_dims; i++)
        open |= (unsigned)(here->dim[i] != there->dim[i]) << i;
    return open;
}

/* True if attributes of the node may differ: they are shapes or positions, which the rules write as
 * functions of the length. */
static bool may_differ(const tti_node *node) {
    static const char *const ops[] = {"slice", "reshape", "constant", "broadcast_to"};
    for (size_t i = 0; i < TTI_COUNT(ops); i++)
        if (strcmp(node->op->name, ops[i]) == 0) return true;
    return (node->op->traits & TTI_INPUT) != 0;
}

static bool same_attrs(const tti_node *a, const tti_node *b) {
    bool same = true;
    for (int i = 0; i < tti_n_attrs(a->op) && same; i++) {
        const tti_attr *p = &a->attrs[i], *q = &b->attrs[i];
        same = p->i == q->i && p->f == q->f && p->n == q->n &&
               memcmp(p->v, q->v, (size_t)p->n * sizeof *p->v) == 0;
    }
    return same;
}

/* True if b is the same model for another length. */
static bool are_twins(const tutti_graph *a, const tutti_graph *b) {
    if (a->n_nodes != b->n_nodes || a->n_values != b->n_values) return false;
    for (int i = 0; i < a->n_nodes; i++) {
        const tti_node *p = a->nodes[i], *q = b->nodes[i];
        bool is_param = p->op->traits & (TTI_PARAM | TTI_BUFFER);
        if (p->op != q->op || strcmp(p->name, q->name) != 0 || p->n_in != q->n_in) return false;
        for (int k = 0; k < p->n_in; k++)
            if (p->in[k]->id != q->in[k]->id) return false;
        if (is_param && !tti_shape_equal(&p->out[0]->type.shape, &q->out[0]->type.shape))
            return false;
        if (!may_differ(p) && !same_attrs(p, q)) return false;
    }
    return true;
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
    if (node->op->traits & (TTI_PARAM | TTI_BUFFER)) return add_param(e, x, node);
    if (node->op->traits & TTI_INPUT) return TUTTI_OK; /* inputs are written first */
    tti_onnx_rule rule = tti_onnx_find(node->op->name);
    if (!rule)
        return tti_fail(TUTTI_E_UNSUPPORTED, "export: format onnx does not have the op %s%s%s",
                        node->op->name, *node->name ? " of " : "", node->name);
    return rule(e, node, &e->names[node->out[0]->id]);
}

/* Adds an input, which is x or a field.  Fails if the logits depend on targets. */
static tutti_status add_input(tti_onnx_emit *e, const tti_exporting *x, const tti_node *node) {
    bool is_field = strncmp(node->name, "field.", 6) == 0;
    if (!is_field && strcmp(node->name, "x") != 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "export: format onnx: the logits depend on the input %s", node->name);
    tti_onnx_add_raw_input(e, tti_dataset_spec(x->b->train), node, open_dims(e, node->out[0]),
                           &e->names[node->out[0]->id]);
    if (is_field) return TUTTI_OK;
    if (!e->twin) return TUTTI_OK;
    const char *shape = TTI_ONNX_OP(e, "Shape", NULL, "x");
    int64_t one = 1, two = 2;
    e->length =
        TTI_ONNX_OP(e, "Slice", NULL, shape, tti_onnx_list(e, 1, &one), tti_onnx_list(e, 1, &two));
    return TUTTI_OK;
}

/* Returns the logits of the model before they are flattened for the loss. */
static const tutti_value *find_logits(const tutti_graph *g) {
    const tutti_value *logits = tti_graph_output(g, "logits");
    const tti_node *node = logits->node;
    if (strcmp(node->op->name, "reshape") != 0) return logits;
    const tutti_shape *in = &node->in[0]->type.shape, *out = &logits->type.shape;
    bool flattened = in->n_dims > out->n_dims && in->dim[in->n_dims - 1] == out->dim[1];
    return flattened ? node->in[0] : logits;
}

/* True if a value depends on labels of samples, which users of the file do not have. */
static bool needs_labels(const tutti_graph *g, const tutti_value *value, bool *seen) {
    memset(seen, 0, (size_t)g->n_nodes);
    mark(g, value, seen);
    for (int i = 0; i < g->n_nodes; i++)
        if (seen[i] && (g->nodes[i]->op->traits & TTI_INPUT) &&
            strcmp(g->nodes[i]->name, "target") == 0)
            return true;
    return false;
}

/* True if the value differs in `more`, the graph for more rows; NULL: the model refuses them. */
static bool depends_on_rows(const tutti_graph *g, const tutti_graph *more, const tutti_value *value,
                            bool *seen) {
    if (!more || more->n_nodes != g->n_nodes) return true;
    memset(seen, 0, (size_t)g->n_nodes);
    mark(g, value, seen);
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *here = g->nodes[i], *there = more->nodes[i];
        if (seen[i] && (here->op != there->op || !same_attrs(here, there))) return true;
    }
    return false;
}

/* Drops results without a batch dimension that count the rows: the file accepts any number. */
static void drop_counts(const tti_onnx_emit *e, const tti_exporting *x, const tutti_graph *g,
                        bool *seen, const tutti_value **results) {
    tutti_graph *more = NULL;
    bool is_built = false;
    for (int i = 0; i < g->n_outputs; i++) {
        const tti_output *out = &g->outputs[i];
        bool is_whole = tti_is_named_output(out) && tti_named_output_rows(out, e->n_rows) == 0;
        if (!results[i] || !is_whole) continue;
        if (!is_built &&
            tti_blueprint_graph_for_rows(x->job, x->b, e->n_rows + 1, e->n_t, &more) != TUTTI_OK)
            tti_clear_error();
        is_built = true;
        if (depends_on_rows(g, more, results[i], seen)) results[i] = NULL;
    }
    tutti_graph_destroy(more);
}

/* Sets results [n_outputs]: the values that the file has for the outputs of the graph, NULL: none.
 * The file has the named outputs, or if there are none, the logits. */
static void find_results(tti_onnx_emit *e, const tti_exporting *x, const tutti_graph *g, bool *seen,
                         const tutti_value **results) {
    for (int i = 0; i < g->n_outputs; i++) e->has_names |= tti_is_named_output(&g->outputs[i]);
    for (int i = 0; i < g->n_outputs; i++) {
        const tti_output *out = &g->outputs[i];
        bool is_given = tti_is_named_output(out) && !needs_labels(g, out->value, seen);
        results[i] = is_given ? out->value : NULL;
        if (!e->has_names && strcmp(out->name, "logits") == 0) results[i] = find_logits(g);
    }
    if (!e->fixed_batch) drop_counts(e, x, g, seen, results);
}

/* True if an input or a parameter of the file has that name. */
static bool is_used(const tti_onnx_emit *e, const tutti_graph *g, const char *name) {
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        const char *source = node->name;
        if (!(node->op->traits & (TTI_PARAM | TTI_BUFFER | TTI_INPUT))) continue;
        if (strncmp(source, "field.", 6) == 0) source += 6;
        if (e->names[node->out[0]->id] && strcmp(source, name) == 0) return true;
    }
    return strncmp(name, "v.", 2) == 0;
}

static void add_result(tti_onnx_emit *e, const tutti_graph *g, const tti_output *out,
                       const tutti_value *value) {
    const char *name = tti_is_named_output(out) ? tti_named_output_name(out) : out->name;
    if (is_used(e, g, name)) name = tti_arena_printf(&e->arena, "output.%s", name);
    if (!name) return; /* the arena records the failure */
    tti_onnx_add_node(
        &e->file,
        &(tti_onnx_node){
            .op = "Identity", .in = &e->names[value->id], .n_in = 1, .out = &name, .n_out = 1});
    bool is_whole = tti_is_named_output(out) && tti_named_output_rows(out, e->n_rows) == 0;
    tti_onnx_add_output(&e->file, name, &value->type, open_dims(e, value) & (is_whole ? ~1U : ~0U));
}

static tutti_status add_graph(tti_onnx_emit *e, const tti_exporting *x, const tutti_graph *g,
                              bool *live) {
    const tutti_value **results =
        tti_arena_alloc(&e->arena, ((size_t)g->n_outputs + 1) * sizeof *results);
    if (!results) return tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    find_results(e, x, g, live, results);
    memset(live, 0, (size_t)g->n_nodes);
    for (int i = 0; i < g->n_outputs; i++)
        if (results[i]) mark(g, results[i], live);
    for (int i = 0; i < g->n_nodes; i++)
        if (live[i] && (g->nodes[i]->op->traits & TTI_INPUT)) TTI_TRY(add_input(e, x, g->nodes[i]));
    for (int i = 0; i < g->n_nodes; i++)
        if (live[i]) TTI_TRY(add_node(e, x, g->nodes[i]));
    for (int i = 0; i < g->n_outputs; i++)
        if (results[i]) add_result(e, g, &g->outputs[i], results[i]);
    return tti_arena_failed(&e->arena) ? tti_fail(TUTTI_E_NOMEM, "export: out of memory")
                                       : TUTTI_OK;
}

/* True if a node has a constant first dimension of n rows. */
static bool repeats_rows(const tti_node *node, int64_t n_rows) {
    const tutti_shape *shape = &node->out[0]->type.shape;
    bool repeats = (node->op->traits & TTI_CONSTANT) || strcmp(node->op->name, "broadcast_to") == 0;
    return repeats && shape->n_dims > 0 && shape->dim[0] == n_rows;
}

/* True if constants with n rows have another size in `more`, the graph for more rows. */
static bool are_fixed(const tutti_graph *g, const bool *live, int64_t n_rows,
                      const tutti_graph *more) {
    if (more->n_nodes != g->n_nodes) return true;
    for (int i = 0; i < g->n_nodes; i++)
        if (live[i] && repeats_rows(g->nodes[i], n_rows) && !repeats_rows(more->nodes[i], n_rows))
            return true;
    return false;
}

/* Marks the nodes of the outputs that the file can have. */
static bool *find_live(const tutti_graph *g) {
    bool *live = calloc((size_t)g->n_nodes + 1, sizeof *live);
    bool *seen = calloc((size_t)g->n_nodes + 1, sizeof *seen);
    for (int i = 0; i < g->n_outputs && live && seen; i++) {
        const tti_output *out = &g->outputs[i];
        bool is_result = tti_is_named_output(out) || strcmp(out->name, "logits") == 0;
        if (!is_result || needs_labels(g, out->value, seen)) continue;
        for (int k = 0; k < g->n_nodes; k++) live[k] = live[k] || seen[k];
    }
    free(seen);
    return live;
}

/* True if the batch is fixed: a constant of the results differs in the graph for more rows, or the
 * model refuses more rows. n_t: length of samples that are sequences, else 0. */
static bool has_fixed_batch(const tti_exporting *x, const tutti_graph *g, int64_t n_t) {
    int64_t n_rows = x->b->rows_per_shard;
    bool suspected = false, fixed = true;
    tutti_graph *more = NULL;
    bool *live = find_live(g);
    for (int i = 0; i < g->n_nodes && live && !suspected; i++)
        suspected = live[i] && repeats_rows(g->nodes[i], n_rows);
    if (live && !suspected)
        fixed = false;
    else if (live && tti_blueprint_graph_for_rows(x->job, x->b, n_rows + 1, n_t, &more) == TUTTI_OK)
        fixed = are_fixed(g, live, n_rows, more);
    else
        tti_clear_error();
    tutti_graph_destroy(more);
    free(live);
    return fixed;
}

static tutti_status emit(const tti_exporting *x, const tutti_graph *g, tti_onnx_emit *e) {
    bool *live = calloc((size_t)g->n_nodes + 1, sizeof *live);
    e->names = calloc((size_t)g->n_values + 1, sizeof *e->names);
    tutti_status st = live && e->names ? add_graph(e, x, g, live)
                                       : tti_fail(TUTTI_E_NOMEM, "export: out of memory");
    if (st == TUTTI_OK && !e->fixed_length) {
        tti_onnx_add_info(e, x);
        st = tti_onnx_save(&e->file, x->b->model_name, x->desc->out, &x->result->n_bytes);
    }
    x->result->n_tensors = e->n_tensors;
    x->result->n_files = 1;
    tti_onnx_free(&e->file);
    tti_arena_free(&e->arena);
    free(e->names);
    free(live);
    return st;
}

/* Exports with a variable sequence length if the model allows it. *done: it was exported. */
static tutti_status export_sequences(const tti_exporting *x, bool *done) {
    const tutti_type *type = &tutti_dataset_get_info(x->b->train)->x;
    int64_t n_t = type->shape.dim[0];
    tutti_graph *g = NULL, *twin = NULL;
    *done = false;
    if (type->dtype != TUTTI_I32 || type->shape.n_dims != 1 || n_t < 3) return TUTTI_OK;
    tti_onnx_emit e = {.n_rows = x->b->rows_per_shard, .n_t = n_t - 1, .twin_t = n_t - 2};
    e.most_t = TTI_MAX(n_t, x->b->model_params.context);
    tutti_status st = tti_blueprint_graph_for_length(x->job, x->b, e.n_t, &g);
    if (st == TUTTI_OK) st = tti_blueprint_graph_for_length(x->job, x->b, e.twin_t, &twin);
    bool fits = st == TUTTI_OK && are_twins(g, twin); /* the model may refuse another length */
    st = TUTTI_OK;
    e.twin = twin;
    if (fits) e.fixed_batch = has_fixed_batch(x, g, e.n_t);
    if (fits) st = emit(x, g, &e);
    *done = fits && !e.fixed_length;
    tutti_graph_destroy(g);
    tutti_graph_destroy(twin);
    return st;
}

tutti_status tti_export_onnx(const tti_exporting *x) {
    tutti_graph *g;
    bool done;
    TTI_TRY(tti_onnx_check_input(tti_dataset_spec(x->b->train)));
    TTI_TRY(export_sequences(x, &done));
    if (done) return TUTTI_OK;
    TTI_TRY(tti_blueprint_graph(x->job, x->b, false, &g));
    tti_onnx_emit e = {.n_rows = x->b->rows_per_shard};
    e.fixed_batch = has_fixed_batch(x, g, 0);
    tutti_status st = emit(x, g, &e);
    tutti_graph_destroy(g);
    return st;
}

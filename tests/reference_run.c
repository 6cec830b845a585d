/* reference_run.c - a little interpreter of graphs for tests: node after node, each by its op's
 * reference, everything in double whatever the dtype says, unless r->rounds. */
#include "reference_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

/* Element e of a constant, by attributes that are looked up here so that only base is linked. */
static double constant_value(const tti_node *node, size_t e) {
    for (int i = 0; node->op->attrs[i].name; i++) {
        const char *name = node->op->attrs[i].name;
        if (strcmp(name, "value") == 0) return node->attrs[i].f;
        if (strcmp(name, "data") == 0)
            return tti_load_elem(node->out[0]->type.dtype, node->attrs[i].bytes, e);
    }
    return 0;
}

static void *must_alloc(size_t n, size_t n_bytes) {
    void *memory = calloc(n ? n : 1, n_bytes);
    if (!memory) abort();
    return memory;
}

t_reference *t_reference_create(const tutti_graph *g) {
    t_reference *r = must_alloc(1, sizeof *r);
    r->g = g;
    r->value = must_alloc((size_t)g->n_values, sizeof *r->value);
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        for (int k = 0; k < node->op->n_out; k++) {
            size_t n = (size_t)tutti_shape_n_elems(&node->out[k]->type.shape);
            double *value = must_alloc(n, sizeof *value);
            r->value[node->out[k]->id] = value;
            for (size_t e = 0; (node->op->traits & TTI_CONSTANT) && e < n; e++)
                value[e] = constant_value(node, e);
        }
    }
    return r;
}

void t_reference_destroy(t_reference *r) {
    if (!r) return;
    for (int i = 0; i < r->g->n_values; i++) free(r->value[i]);
    free(r->value);
    free(r);
}

double *t_reference_of(const t_reference *r, const tutti_value *value) {
    return r->value[value->id];
}

static void run_node(const t_reference *r, const tti_node *node, const tti_run *run) {
    const double *in[TTI_MAX_IN];
    double *out[TTI_MAX_OUT];
    for (int i = 0; i < node->n_in; i++) in[i] = r->value[node->in[i]->id];
    for (int k = 0; k < node->op->n_out; k++) out[k] = r->value[node->out[k]->id];
    node->op->reference(&(tti_args){.node = node, .in = in, .out = out, .run = run});
}

/* Where a part of a chain finds an input: an earlier part's output (which has no id in the graph),
 * else a value of the graph. */
static const double *part_input(const t_reference *r, const tti_node *chain, double *const *made,
                                int n_made, const tutti_value *value) {
    for (int b = 0; b < n_made; b++)
        if (chain->body[b]->out[0] == value) return made[b];
    return r->value[value->id];
}

/* A chain: its parts in order; the last one's output is the chain's. */
static void run_chain(const t_reference *r, const tti_node *chain, const tti_run *run) {
    size_t n = (size_t)tutti_shape_n_elems(&chain->out[0]->type.shape);
    double **made = must_alloc((size_t)chain->n_body, sizeof *made);
    for (int b = 0; b < chain->n_body; b++) {
        const tti_node *part = chain->body[b];
        const double *in[TTI_MAX_IN];
        made[b] = must_alloc(n, sizeof **made);
        for (int i = 0; i < part->n_in; i++) in[i] = part_input(r, chain, made, b, part->in[i]);
        part->op->reference(&(tti_args){.node = part, .in = in, .out = &made[b], .run = run});
    }
    memcpy(r->value[chain->out[0]->id], made[chain->n_body - 1], n * sizeof **made);
    for (int b = 0; b < chain->n_body; b++) free(made[b]);
    free(made);
}

static bool is_float(tutti_dtype dtype) {
    return dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16;
}

static void round_results(const t_reference *r, const tti_node *node) {
    for (int k = 0; k < node->op->n_out; k++) {
        const tutti_type *type = &node->out[k]->type;
        double *value = r->value[node->out[k]->id];
        int64_t n = is_float(type->dtype) ? tutti_shape_n_elems(&type->shape) : 0;
        for (int64_t e = 0; e < n; e++) {
            uint64_t stored = 0;
            tti_store_elem(type->dtype, &stored, 0, value[e]);
            value[e] = tti_load_elem(type->dtype, &stored, 0);
        }
    }
}

void t_reference_run(t_reference *r, const tti_run *run) {
    for (int i = 0; i < r->g->n_nodes; i++) {
        const tti_node *node = r->g->nodes[i];
        if (node->op->traits & TTI_FUSED)
            run_chain(r, node, run);
        else if (!(node->op->traits & TTI_SOURCE))
            run_node(r, node, run);
        if (r->rounds) round_results(r, node);
    }
}

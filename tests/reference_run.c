/* reference_run.c - a little interpreter of graphs for tests: node after node, each by its op's
 * reference, everything in double whatever the dtype says. */
#include "reference_run.h"

#include <stdlib.h>
#include <string.h>

/* Attribute "value" of a constant, looked up here so that only base is linked. */
static double constant_value(const tti_node *node) {
    for (int i = 0; node->op->attrs[i].name; i++)
        if (strcmp(node->op->attrs[i].name, "value") == 0) return node->attrs[i].f;
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
                value[e] = constant_value(node);
        }
        for (int b = 0; b < node->n_body; b++) {
            const tutti_value *out = node->body[b]->out[0];
            if (!r->value[out->id])
                r->value[out->id] =
                    must_alloc((size_t)tutti_shape_n_elems(&out->type.shape), sizeof(double));
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

/* A chain: its nodes in order, then the last one's value is the fused node's. */
static void run_body(const t_reference *r, const tti_node *node, const tti_run *run) {
    for (int b = 0; b < node->n_body; b++) run_node(r, node->body[b], run);
    const tutti_value *last = node->body[node->n_body - 1]->out[0];
    size_t n = (size_t)tutti_shape_n_elems(&last->type.shape);
    if (last->id != node->out[0]->id)
        memcpy(r->value[node->out[0]->id], r->value[last->id], n * sizeof(double));
}

void t_reference_run(t_reference *r, const tti_run *run) {
    for (int i = 0; i < r->g->n_nodes; i++) {
        const tti_node *node = r->g->nodes[i];
        if (node->op->traits & TTI_SOURCE) continue;
        if (node->op->traits & TTI_FUSED)
            run_body(r, node, run);
        else
            run_node(r, node, run);
    }
}

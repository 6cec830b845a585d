/* lockstep.h - the graphs of all workers of a tensor axis, run node by node side by side with the
 * plain-C meaning of the ops; the test does the collectives between them. */
#ifndef TTI_TESTS_PASSES_LOCKSTEP_H
#define TTI_TESTS_PASSES_LOCKSTEP_H

#include <stdlib.h>

#include "ops/tensor_shard.h"
#include "passes/nets.h"

enum { LOCKSTEP_MOST = 8 };

typedef struct lockstep {
    int n;
    tutti_graph *g[LOCKSTEP_MOST];
    t_reference *r[LOCKSTEP_MOST];
} lockstep;

/* [outer, part] of worker w in [outer, n, part]. */
static inline void lockstep_copy(const tti_node *node, bool to_whole, double *whole, double *part,
                                 size_t n_part, int w, bool add) {
    size_t n = (size_t)tti_attr_int(node, "n"), run = 1;
    const tutti_shape *s = &node->in[0]->type.shape, *t = &node->out[0]->type.shape;
    int dim = (int)tti_attr_int(node, "dim");
    for (int d = dim; d < s->n_dims; d++) run *= (size_t)TTI_MIN(s->dim[d], t->dim[d]);
    for (size_t i = 0; i < n_part; i++) {
        size_t at = (i / run * n + (size_t)w) * run + i % run;
        if (to_whole)
            whole[at] = part[i];
        else
            part[i] = whole[at] + (add ? part[i] : 0);
    }
}

/* The collective of all workers at node number i. */
static inline void lockstep_exchange(const lockstep *l, int i) {
    tti_collective kind = l->g[0]->nodes[i]->op->collective;
    for (int to = 0; to < l->n; to++) {
        const tti_node *own = l->g[to]->nodes[i];
        double *out = t_reference_of(l->r[to], own->out[0]);
        size_t n_in = (size_t)tti_value_n_elems(own->in[0]);
        size_t n_out = (size_t)tti_value_n_elems(own->out[0]);
        T_EQ(own->op->collective, kind);
        T_EQ(tti_attr_int(own, "n"), l->n);
        T_EQ(tti_attr_int(own, "index"), to);
        memset(out, 0, n_out * sizeof *out);
        for (int w = 0; w < l->n; w++) {
            double *in = t_reference_of(l->r[w], l->g[w]->nodes[i]->in[0]);
            for (size_t e = 0; kind == TTI_COLLECTIVE_SUM && e < n_in; e++) out[e] += in[e];
            if (kind == TTI_COLLECTIVE_GATHER) lockstep_copy(own, true, out, in, n_in, w, false);
            if (kind == TTI_COLLECTIVE_SCATTER) lockstep_copy(own, false, in, out, n_out, to, true);
        }
    }
}

static inline void lockstep_node(const lockstep *l, int w, int i, const tti_run *run) {
    const tti_node *node = l->g[w]->nodes[i];
    const double *in[TTI_MAX_IN];
    double *out[TTI_MAX_OUT];
    if (node->op->traits & TTI_SOURCE) return;
    for (int k = 0; k < node->n_in; k++) in[k] = t_reference_of(l->r[w], node->in[k]);
    for (int k = 0; k < node->op->n_out; k++) out[k] = t_reference_of(l->r[w], node->out[k]);
    node->op->reference(&(tti_args){.node = node, .in = in, .out = out, .run = run});
}

static inline void lockstep_run(const lockstep *l, const tti_run *run) {
    for (int i = 0; i < l->g[0]->n_nodes; i++) {
        bool together = (l->g[0]->nodes[i]->op->traits & TTI_COLLECTIVE) != 0;
        for (int w = 0; w < l->n; w++) {
            T_EQ(l->g[w]->n_nodes, l->g[0]->n_nodes);
            assert_ptr_equal(l->g[w]->nodes[i]->op, l->g[0]->nodes[i]->op);
            if (!together) lockstep_node(l, w, i, run);
        }
        if (together) lockstep_exchange(l, i);
    }
}

/* Sources get what those of the same name have in whole, or their tensor shard of it. */
static inline void lockstep_fill(const lockstep *l, const t_reference *whole) {
    for (int w = 0; w < l->n; w++)
        for (int i = 0; i < l->g[w]->n_nodes; i++) {
            const tti_node *node = l->g[w]->nodes[i];
            if (!(node->op->traits & (TTI_INPUT | TTI_PARAM | TTI_BUFFER))) continue;
            const tti_node *from = tti_graph_find_source(whole->g, node->name);
            assert_non_null(from);
            for (size_t k = 0; k < tti_tensor_shard_n_runs(node); k++) {
                tti_tensor_shard_run run = tti_tensor_shard_run_at(node, k);
                memcpy(t_reference_of(l->r[w], node->out[0]) + run.in_shard,
                       t_reference_of(whole, from->out[0]) + run.in_whole,
                       run.n_elems * sizeof(double));
            }
        }
}

/* Output k of worker w is that of the whole graph, or, of a gradient or statistic, the tensor shard
 * that the worker has of its parameter. */
static inline void lockstep_compare(const lockstep *l, int w, int k, const t_reference *whole,
                                    double tolerance) {
    const tti_output *output = &l->g[w]->outputs[k];
    const tutti_value *want = tti_graph_output(whole->g, output->name);
    const double *x = t_reference_of(l->r[w], output->value), *y;
    assert_non_null(want);
    y = t_reference_of(whole, want);
    bool of_param =
        strncmp(output->name, "grad.", 5) == 0 || strncmp(output->name, "stat.", 5) == 0;
    const tti_node *param = of_param ? tti_graph_find_source(l->g[w], output->name + 5) : NULL;
    size_t n_runs = param ? tti_tensor_shard_n_runs(param) : 1, n_seen = 0;
    for (size_t r = 0; r < n_runs; r++) {
        size_t n = (size_t)tti_value_n_elems(output->value);
        tti_tensor_shard_run run =
            param ? tti_tensor_shard_run_at(param, r) : (tti_tensor_shard_run){0, 0, n};
        n_seen += run.n_elems;
        for (size_t e = 0; e < run.n_elems; e++) {
            double got = x[run.in_shard + e], wanted = y[run.in_whole + e];
            if (!(fabs(got - wanted) <= tolerance * fmax(1, fabs(wanted))))
                fail_msg("worker %d of %d: %s[%zu] = %.12g, not %.12g", w, l->n, output->name,
                         run.in_whole + e, got, wanted);
        }
    }
    T_EQ(n_seen, tti_value_n_elems(output->value));
}

static inline void lockstep_destroy(lockstep *l) {
    for (int w = 0; w < l->n; w++) {
        t_reference_destroy(l->r[w]);
        tutti_graph_destroy(l->g[w]);
    }
}

#endif /* TTI_TESTS_PASSES_LOCKSTEP_H */

/* stage_cut.c - divides a model into stages of equal time.
 *
 * The time of a node includes that of its gradient: nodes that autodiff appends are counted with
 * their node, on a copy; so is, approximately, what the fuse pass makes of both.  Stages begin at
 * nodes with parameters, which the graph for evaluation has as well, and dynamic programming
 * chooses their bounds: the smallest time of the slowest stage, then the fewest bytes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/weight.h"
#include "passes/rewrite.h"
#include "passes/stages/stages.h"

bool *tti_find_free_nodes(const tutti_graph *g) {
    bool *is_free = calloc((size_t)g->n_nodes + 1, sizeof *is_free);
    for (int i = 0; is_free && i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        is_free[i] = !(node->op->traits & TTI_RANDOM);
        for (int k = 0; k < node->n_in; k++) {
            const tti_node *from = node->in[k]->node;
            is_free[i] = is_free[i] && is_free[from->id] && !(from->op->traits & TTI_INPUT);
        }
    }
    return is_free;
}

/* The first parameter that a node reads; NULL: none. */
static const tti_node *param_of(const tti_node *node, const bool *is_free) {
    for (int k = 0; k < node->n_in; k++) {
        const tti_node *from = node->in[k]->node;
        if (from->op->traits & TTI_PARAM) return from;
        const tti_node *param = is_free[from->id] ? param_of(from, is_free) : NULL;
        if (param) return param;
    }
    return NULL;
}

bool tti_reads_param(const tti_node *node, const bool *is_free, const char *param) {
    for (int k = 0; k < node->n_in; k++) {
        const tti_node *from = node->in[k]->node;
        if ((from->op->traits & TTI_PARAM) && strcmp(from->name, param) == 0) return true;
        if (is_free[from->id] && tti_reads_param(from, is_free, param)) return true;
    }
    return false;
}

size_t *tti_stage_boundary_bytes(const tutti_graph *g, const bool *is_free) {
    size_t *cross = calloc((size_t)g->n_nodes + 1, sizeof *cross);
    int *last = calloc((size_t)g->n_values + 1, sizeof *last);
    for (int i = 0; cross && last && i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) last[g->nodes[i]->in[k]->id] = i;
    for (int i = 0; cross && last && i < g->n_nodes; i++)
        for (int k = 0; !is_free[i] && k < g->nodes[i]->op->n_out; k++) {
            const tutti_value *value = g->nodes[i]->out[k];
            for (int at = i + 1; at <= last[value->id]; at++) cross[at] += tti_value_n_bytes(value);
        }
    if (!last) {
        free(cross);
        cross = NULL;
    }
    free(last);
    return cross;
}

int tti_cut_place(const tutti_graph *g, const bool *is_free, const size_t *cross, int node) {
    int best = node;
    for (int i = node - 1; i > 0; i--) {
        if (is_free[i]) continue;
        if (param_of(g->nodes[i], is_free)) break;
        if (cross[i] < cross[best]) best = i;
    }
    return best;
}

/* ---- time ---- */

static const tti_weights *weights_of(const tti_target *target) {
    return target->weights ? target->weights : &tti_weights_host;
}

/* Makes the nodes that a step will run after fusion. */
static tutti_status make_steps(tutti_graph **g, const tti_target *target) {
    TTI_TRY(tti_pass_autodiff(g, target));
    if (!weights_of(target)->fused) return TUTTI_OK;
    TTI_TRY(tti_pass_layout(g, target));
    TTI_TRY(tti_pass_fuse(g, target));
    return tti_pass_simplify(g, target);
}

/* A copy in which every node is a separate stage. */
static tutti_status copy_apart(const tutti_graph *g, tutti_graph **out) {
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, g));
    for (int i = 0; i < g->n_nodes; i++) {
        tti_rewrite_copy(&rw, g->nodes[i]);
        if (tti_new_graph(&rw)->n_nodes == i + 1) tti_new_graph(&rw)->nodes[i]->stage = i;
    }
    for (int i = 0; i < g->n_outputs; i++)
        tutti_output(tti_new_graph(&rw), g->outputs[i].name, tti_mapped(&rw, g->outputs[i].value));
    *out = NULL;
    return tti_rewrite_replace(&rw, out);
}

/* time[i]: of the nodes before i, with their gradients; [n_nodes + 1]. */
static tutti_status sum_times(const tutti_graph *g, const tti_target *target, double *time) {
    tutti_graph *copy;
    tti_target whole = *target;
    whole.stages = NULL;
    TTI_TRY(copy_apart(g, &copy));
    tutti_status st = make_steps(&copy, &whole);
    for (int i = 0; st == TUTTI_OK && i < copy->n_nodes; i++)
        time[copy->nodes[i]->stage + 1] +=
            tti_node_weight(weights_of(target), copy->nodes[i], target->tf32);
    for (int i = 0; i < g->n_nodes; i++) time[i + 1] += time[i];
    tutti_graph_destroy(copy);
    return st;
}

/* ---- the choice ---- */

/* A choice to end a chunk at a place, and the best choice to get there. */
typedef struct choice {
    double slowest; /* chunk so far */
    size_t n_bytes; /* that cross so far */
    int before;     /* place of the chunk in front */
} choice;

typedef struct cutter {
    const tutti_graph *g;
    const bool *is_free;
    const size_t *cross;
    const double *time;
    double byte_time; /* of one that crosses */
    int *nodes;       /* [n]: that chunks can begin at, in order */
    int *cuts;        /* [n]: where the graph is then cut */
    int n;
    choice *choices; /* [chunks][n + 1]; place n: the end */
} cutter;

/* A bias that is added after the collective of its layer is not a boundary: evaluation, which may
 * divide its values differently, may add it in the layer itself. */
static bool ends_layer(const tti_node *node) {
    const tti_node *from = node->in[0]->node;
    return (from->op->traits & TTI_COLLECTIVE) && *node->name &&
           strcmp(node->name, from->name) == 0;
}

static void find_places(cutter *c) {
    bool first = true;
    for (int i = 0; i < c->g->n_nodes; i++) {
        if (c->is_free[i] || !param_of(c->g->nodes[i], c->is_free)) continue;
        if (!first && !ends_layer(c->g->nodes[i])) {
            c->nodes[c->n] = i;
            c->cuts[c->n++] = tti_cut_place(c->g, c->is_free, c->cross, i);
        }
        first = false;
    }
}

/* A chunk from place a, -1: the beginning, to place b. */
static double chunk_time(const cutter *c, int a, int b) {
    int from = a < 0 ? 0 : c->cuts[a], to = b < c->n ? c->cuts[b] : c->g->n_nodes;
    size_t n_bytes = (a < 0 ? 0 : c->cross[from]) + (b < c->n ? c->cross[to] : 0);
    return c->time[to] - c->time[from] + c->byte_time * (double)n_bytes;
}

static bool is_better(const choice *a, const choice *b) {
    return a->slowest < b->slowest || (a->slowest == b->slowest && a->n_bytes < b->n_bytes);
}

/* The best choice to have q + 1 chunks that end at place b. */
static choice best_way(const cutter *c, int q, int b) {
    choice best = {.slowest = INFINITY};
    if (q == 0) return (choice){chunk_time(c, -1, b), b < c->n ? c->cross[c->cuts[b]] : 0, -1};
    for (int a = q - 1; a < b; a++) {
        const choice *before = &c->choices[(size_t)(q - 1) * (size_t)(c->n + 1) + (size_t)a];
        choice w = {fmax(before->slowest, chunk_time(c, a, b)),
                    before->n_bytes + (b < c->n ? c->cross[c->cuts[b]] : 0), a};
        if (is_better(&w, &best)) best = w;
    }
    return best;
}

static tutti_status note_start(const cutter *c, int node, tti_chunk_start *start) {
    const char *param = param_of(c->g->nodes[node], c->is_free)->name;
    start->param = strdup(param);
    start->nth = 0;
    for (int i = 0; i < node; i++)
        start->nth += !c->is_free[i] && tti_reads_param(c->g->nodes[i], c->is_free, param);
    return start->param ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
}

/* The layer after which no chunk can begin. */
static const tti_node *last_layer(const cutter *c) {
    int i = c->n > 0 ? c->nodes[c->n - 1] : 0;
    while (i + 1 < c->g->n_nodes && !param_of(c->g->nodes[i], c->is_free)) i++;
    return c->g->nodes[i];
}

/* A stage without a layer would have nothing to do. */
static tutti_status too_many(const cutter *c, const tti_stages *stages) {
    char text[TTI_NODE_TEXT];
    int n_most = c->n + 1;
    tti_node_text(last_layer(c), text);
    if (stages->n_chunks == 1)
        return tti_fail(TUTTI_E_INVALID,
                        "parallel.pipeline: %d stages, but the model can be divided into at most "
                        "%d stage%s; give at most parallel.pipeline=%d; no stage can begin after "
                        "%s",
                        stages->n_stages, n_most, n_most == 1 ? "" : "s", n_most, text);
    return tti_fail(TUTTI_E_INVALID,
                    "parallel.pipeline: %d stages of %d chunks, but the model can be divided into "
                    "at most %d chunk%s; give at most parallel.pipeline=%d, or fewer chunks; no "
                    "chunk can begin after %s",
                    stages->n_stages, stages->n_chunks, n_most, n_most == 1 ? "" : "s",
                    TTI_MAX(1, n_most / stages->n_chunks), text);
}

static tutti_status choose(cutter *c, tti_stages *stages) {
    int n_all = tti_stages_n_all_chunks(stages);
    if (c->n + 1 < n_all) return too_many(c, stages);
    for (int q = 0; q < n_all; q++)
        for (int b = q; b <= c->n; b++)
            c->choices[(size_t)q * (size_t)(c->n + 1) + (size_t)b] = best_way(c, q, b);
    int end = c->n;
    for (int q = n_all - 1; q >= 0; q--) {
        int begin = c->choices[(size_t)q * (size_t)(c->n + 1) + (size_t)end].before;
        stages->cost[q] = chunk_time(c, begin, end);
        if (q > 0) TTI_TRY(note_start(c, c->nodes[begin], &stages->start[q]));
        end = begin;
    }
    return TUTTI_OK;
}

tutti_status tti_stages_find_cuts(const tutti_graph *g, const tti_target *target,
                                  tti_stages *stages) {
    size_t n = (size_t)g->n_nodes + 1, n_all = (size_t)tti_stages_n_all_chunks(stages);
    bool *is_free = tti_find_free_nodes(g);
    size_t *cross = is_free ? tti_stage_boundary_bytes(g, is_free) : NULL;
    double *time = calloc(n + 1, sizeof *time);
    cutter c = {.g = g, .is_free = is_free, .cross = cross, .time = time};
    c.byte_time = weights_of(target)->byte_between;
    c.nodes = calloc(n, sizeof *c.nodes);
    c.cuts = calloc(n, sizeof *c.cuts);
    c.choices = calloc(n * n_all, sizeof *c.choices);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
    if (is_free && cross && time && c.nodes && c.cuts && c.choices) {
        st = tti_stages_alloc_chunks(stages);
        if (st == TUTTI_OK) st = sum_times(g, target, time);
        find_places(&c);
        if (st == TUTTI_OK) st = choose(&c, stages);
    }
    free(is_free);
    free(cross);
    free(time);
    free(c.nodes);
    free(c.cuts);
    free(c.choices);
    return st;
}

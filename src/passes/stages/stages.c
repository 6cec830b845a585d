/* stages.c - assigns nodes to stages, and keeps the nodes of one stage.
 *
 * Each node is marked with its chunk (node->stage).  Autodiff gives the nodes of a gradient, and
 * the additions of its terms, the mark of the forward node.  Marks of backward nodes are then
 * counted backwards after the forward ones, and so become slots of the schedule.  Because the
 * graph is divided after autodiff, the ranks' graphs together have exactly the nodes of the whole
 * one. */
#include "passes/stages/stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/loss/losses.h"
#include "ops/op_table.h"
#include "passes/rewrite.h"
#include "tutti/ops.h"

enum { ANYWHERE = -1 /* mark of an input: fed to every rank that reads it */ };

void tti_stages_fini(tti_stages *s) {
    for (int q = 0; s->start && q < tti_stages_n_all_chunks(s); q++) free(s->start[q].param);
    free(s->start);
    free(s->cost);
    for (int i = 0; i < s->n_tied; i++) {
        free(s->tied[i].name);
        free(s->tied[i].stages);
    }
    free(s->tied);
    free(s->train.of);
    free(s->eval.of);
    *s = (tti_stages){.stage = s->stage, .n_stages = s->n_stages, .n_chunks = s->n_chunks};
}

int tti_stages_n_all_chunks(const tti_stages *s) { return s->n_stages * s->n_chunks; }

tutti_status tti_stages_alloc_chunks(tti_stages *s) {
    size_t n = (size_t)tti_stages_n_all_chunks(s);
    if (!s->start) s->start = calloc(n, sizeof *s->start);
    if (!s->cost) s->cost = calloc(n, sizeof *s->cost);
    return s->start && s->cost ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
}

bool tti_sched_slot_is_backward(const tti_stages *s, int sched_slot) {
    return sched_slot >= tti_stages_n_all_chunks(s);
}

static int chunk_of(const tti_stages *s, int sched_slot) {
    return tti_sched_slot_is_backward(s, sched_slot)
               ? 2 * tti_stages_n_all_chunks(s) - 1 - sched_slot
               : sched_slot;
}

int tti_sched_slot_stage(const tti_stages *s, int sched_slot) {
    return chunk_of(s, sched_slot) % s->n_stages;
}

int tti_sched_slot_segment(const tti_stages *s, int sched_slot) {
    int chunk = chunk_of(s, sched_slot) / s->n_stages;
    return tti_sched_slot_is_backward(s, sched_slot) ? 2 * s->n_chunks - 1 - chunk : chunk;
}

int tti_sched_slot_of(const tti_stages *s, int stage, int segment) {
    if (segment < s->n_chunks) return segment * s->n_stages + stage;
    int chunk = 2 * s->n_chunks - 1 - segment;
    return 2 * tti_stages_n_all_chunks(s) - 1 - (chunk * s->n_stages + stage);
}

int tti_stage_boundary_number(const char *name) {
    if (strncmp(name, "pipe.", 5) != 0 && strncmp(name, "back.", 5) != 0) return -1;
    char *end;
    long n = strtol(name + 5, &end, 10);
    return end != name + 5 && *end == '\0' && n >= 0 && n < INT32_MAX ? (int)n : -1;
}

/* ---- chunks: the marks, and sources on every rank that reads them ---- */

/* Bounds of the chunks: chunk q begins at node begin[q]. */
static tutti_status find_bounds(const tutti_graph *g, const bool *is_free, const tti_stages *s,
                                int *begin) {
    size_t *cross = tti_stage_boundary_bytes(g, is_free);
    if (!cross) return tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
    int q = 1, n_all = tti_stages_n_all_chunks(s), n_read = 0;
    begin[0] = 0;
    for (int i = 0; i < g->n_nodes && q < n_all; i++) {
        if (is_free[i] || !tti_reads_param(g->nodes[i], is_free, s->start[q].param)) continue;
        if (n_read++ < s->start[q].nth) continue;
        begin[q++] = tti_cut_place(g, is_free, cross, i);
        n_read = 0;
        for (int j = 0; q < n_all && j <= i; j++) /* the next one counts from the beginning */
            n_read += !is_free[j] && tti_reads_param(g->nodes[j], is_free, s->start[q].param);
    }
    free(cross);
    if (q == n_all) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_INVALID,
        "stages: training and evaluation read parameter '%s' in different places, so the "
        "model cannot be divided into stages",
        s->start[q].param);
}

typedef struct marker {
    tti_rewrite rw;
    tti_stages *s;
    const bool *is_free;
    tutti_value **copies; /* [n_stages][from->n_values]: of free values on each rank; NULL: none */
    int chunk;
} marker;

static tutti_value **copy_of(const marker *m, const tutti_value *value) {
    int stage = m->chunk % m->s->n_stages;
    return &m->copies[(size_t)stage * (size_t)(tti_old_graph(&m->rw)->n_values + 1) +
                      (size_t)value->id];
}

/* A parameter under its own name, and "NAME@S" on the ranks that read it later: until the cut all
 * are in one graph. */
static void copy_source(marker *m, const tti_node *node) {
    char name[TTI_MAX_NAME + 16];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    snprintf(name, sizeof name, "%s", node->name);
    if (node->name[0] && tti_graph_find_source(tti_new_graph(&m->rw), name))
        snprintf(name, sizeof name, "%s@%d", node->name, m->chunk % m->s->n_stages);
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        attrs[i] = (tti_attr_arg){node->op->attrs[i].name, node->attrs[i]};
    tti_node *copy = tti_graph_add(tti_new_graph(&m->rw),
                                   &(tti_node_desc){.op = node->op, .name = name, .attrs = attrs});
    if (copy) *copy_of(m, node->out[0]) = copy->out[0];
}

/* The value of the old graph on the rank of the current chunk. */
static tutti_value *value_here(marker *m, const tutti_value *value) {
    const tti_node *node = value->node;
    bool everywhere = (node->op->traits & TTI_INPUT) != 0;
    if (everywhere && !tti_mapped(&m->rw, value)) {
        tti_rewrite_copy(&m->rw, node);
        if (tti_mapped(&m->rw, value)) tti_mapped(&m->rw, value)->node->stage = ANYWHERE;
    }
    if (everywhere || !m->is_free[node->id]) return tti_mapped(&m->rw, value);
    if (*copy_of(m, value)) return *copy_of(m, value);
    if (node->op->traits & TTI_SOURCE) {
        copy_source(m, node);
        return *copy_of(m, value);
    }
    tutti_value *in[TTI_MAX_IN] = {0};
    for (int i = 0; i < node->n_in; i++) in[i] = value_here(m, node->in[i]);
    tti_rewrite_copy_with(&m->rw, node, in);
    for (int k = 0; k < node->op->n_out; k++) {
        tutti_value *copy = tti_mapped(&m->rw, node->out[k]);
        if (copy) copy->node->stage = m->chunk;
        *copy_of(m, node->out[k]) = copy;
    }
    return *copy_of(m, value);
}

static void copy_node(marker *m, const tti_node *node) {
    tutti_value *in[TTI_MAX_IN] = {0};
    tti_graph_set_stage(tti_new_graph(&m->rw), m->chunk);
    for (int i = 0; i < node->n_in; i++) in[i] = value_here(m, node->in[i]);
    tti_rewrite_copy_with(&m->rw, node, in);
    if (node->op->n_out > 0 && tti_mapped(&m->rw, node->out[0]))
        tti_mapped(&m->rw, node->out[0])->node->stage = m->chunk;
}

/* A buffer without readers belongs to the maker of its statistic; a parameter without readers goes
 * last; an input, such as the loss scale, is for autodiff. */
static void copy_idle_sources(marker *m) {
    const tutti_graph *g = tti_old_graph(&m->rw);
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (node->op->traits & TTI_INPUT) (void)value_here(m, node->out[0]);
        if (!(node->op->traits & (TTI_PARAM | TTI_BUFFER))) continue;
        if (tti_graph_find_source(tti_new_graph(&m->rw), node->name)) continue;
        char name[TTI_MAX_NAME + 16];
        snprintf(name, sizeof name, "stat.%s", node->name);
        const tutti_value *stat = tti_graph_output(g, name);
        if (stat && tti_mapped(&m->rw, stat)) m->chunk = tti_mapped(&m->rw, stat)->node->stage;
        tti_graph_set_stage(tti_new_graph(&m->rw), m->chunk);
        copy_source(m, node);
    }
}

/* The last stage reports the sums of a step: it has those that an earlier one makes as copies. */
static tutti_value *sum_here(marker *m, const tutti_value *value) {
    tutti_value *here = value_here(m, value);
    if (!here || here->node->stage == m->chunk) return here;
    tti_graph_set_stage(tti_new_graph(&m->rw), m->chunk);
    return tutti_affine(tti_new_graph(&m->rw), here, 1, 0);
}

static void name_outputs(marker *m) {
    const tutti_graph *g = tti_old_graph(&m->rw);
    for (int i = 0; i < g->n_outputs; i++) {
        const tti_output *out = &g->outputs[i];
        bool is_sum = tti_is_step_sum(out->name);
        tutti_output(tti_new_graph(&m->rw), out->name,
                     is_sum ? sum_here(m, out->value) : value_here(m, out->value));
    }
}

static tutti_status mark(tutti_graph **g, tti_stages *s, const bool *is_free, const int *begin) {
    const tutti_graph *from = *g;
    marker m = {.s = s, .is_free = is_free};
    int n_all = tti_stages_n_all_chunks(s);
    TTI_TRY(tti_rewrite_begin(&m.rw, *g));
    m.copies = calloc((size_t)s->n_stages * ((size_t)from->n_values + 1), sizeof(void *));
    if (!m.copies)
        tti_graph_fail(tti_new_graph(&m.rw), tti_fail(TUTTI_E_NOMEM, "stages: out of memory"));
    for (int i = 0; m.copies && i < from->n_nodes; i++) {
        while (m.chunk + 1 < n_all && i >= begin[m.chunk + 1]) m.chunk++;
        if (!is_free[i]) copy_node(&m, from->nodes[i]);
    }
    if (m.copies) {
        name_outputs(&m);
        copy_idle_sources(&m);
    }
    free(m.copies);
    tti_graph_set_stage(tti_new_graph(&m.rw), 0);
    return tti_rewrite_replace(&m.rw, g);
}

/* The length of a parameter's own name: without the "@S" of a further rank. */
static size_t own_name(const tutti_graph *g, const char *name) {
    const char *at = strrchr(name, '@');
    if (!at) return strlen(name);
    char *end, own[TTI_MAX_NAME + 16];
    (void)strtol(at + 1, &end, 10);
    if (end == at + 1 || *end) return strlen(name);
    snprintf(own, sizeof own, "%.*s", (int)(at - name), name);
    return tti_graph_find_source(g, own) ? strlen(own) : strlen(name);
}

/* Keeps the list ascending. */
static tutti_status add_tied_stage(tti_tied_param *tied, int stage) {
    if (tti_tied_has(tied, stage)) return TUTTI_OK;
    int below = tti_tied_count_below(tied, stage);
    int *stages = realloc(tied->stages, (size_t)(tied->n_stages + 1) * sizeof *stages);
    if (!stages) return tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
    tied->stages = stages;
    memmove(&stages[below + 1], &stages[below], (size_t)(tied->n_stages - below) * sizeof *stages);
    stages[below] = stage;
    tied->n_stages++;
    return TUTTI_OK;
}

static tutti_status note_tied(const tutti_graph *g, tti_stages *s, const tti_node *copy) {
    char own[TTI_MAX_NAME + 16];
    snprintf(own, sizeof own, "%.*s", (int)own_name(g, copy->name), copy->name);
    const tti_node *first = tti_graph_find_source(g, own);
    int i = 0;
    while (i < s->n_tied && strcmp(s->tied[i].name, own) != 0) i++;
    if (i == s->n_tied) {
        tti_tied_param *tied = realloc(s->tied, (size_t)(i + 1) * sizeof *tied);
        if (!tied) return tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
        s->tied = tied;
        tied[i] = (tti_tied_param){.name = strdup(own)};
        s->n_tied++;
        if (!tied[i].name) return tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
        TTI_TRY(add_tied_stage(&tied[i], first->stage % s->n_stages));
    }
    return add_tied_stage(&s->tied[i], copy->stage % s->n_stages);
}

bool tti_tied_has(const tti_tied_param *tied, int stage) {
    int below = tti_tied_count_below(tied, stage);
    return below < tied->n_stages && tied->stages[below] == stage;
}

int tti_tied_count_below(const tti_tied_param *tied, int stage) {
    int n = 0;
    while (n < tied->n_stages && tied->stages[n] < stage) n++;
    return n;
}

bool tti_stages_is_tied(const tti_stages *s, const char *name) {
    for (int i = 0; i < s->n_tied; i++) {
        size_t n = strlen(s->tied[i].name);
        if (strncmp(name, s->tied[i].name, n) == 0 && (name[n] == '\0' || name[n] == '@'))
            return true;
    }
    return false;
}

static bool is_further_copy(const tutti_graph *g, const tti_node *node) {
    bool kept = (node->op->traits & (TTI_PARAM | TTI_BUFFER)) != 0;
    return kept && own_name(g, node->name) < strlen(node->name);
}

static tutti_status find_tied(const tutti_graph *g, tti_stages *s) {
    for (int i = 0; i < g->n_nodes; i++)
        if (is_further_copy(g, g->nodes[i])) TTI_TRY(note_tied(g, s, g->nodes[i]));
    return TUTTI_OK;
}

/* A model's own names must not read as those of further copies. */
static tutti_status check_names(const tutti_graph *g) {
    for (int i = 0; i < g->n_nodes; i++)
        if (is_further_copy(g, g->nodes[i]))
            return tti_fail(TUTTI_E_INVALID,
                            "parallel.pipeline: stages use the name '%s' for copies of parameter "
                            "'%.*s'; give it another name",
                            g->nodes[i]->name, (int)own_name(g, g->nodes[i]->name),
                            g->nodes[i]->name);
    return TUTTI_OK;
}

static bool is_read(const tutti_graph *g, const tutti_value *value) {
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == value) return true;
    return false;
}

/* A statistic may be computed on any stage, and that stage has its buffer.  No other stage can read
 * it. */
static tutti_status check_buffers(const tutti_graph *g) {
    char name[TTI_MAX_NAME + 16];
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (!(node->op->traits & TTI_BUFFER)) continue;
        snprintf(name, sizeof name, "stat.%s", node->name);
        const tutti_value *stat = tti_graph_output(g, name);
        if (stat && strcmp(stat->node->op->name, "add") == 0)
            return tti_fail(TUTTI_E_UNSUPPORTED,
                            "parallel.pipeline: several calls of a batch norm share the buffer "
                            "'%s'; such a model cannot be cut into stages",
                            node->name);
        if (stat && is_read(g, node->out[0]))
            return tti_fail(TUTTI_E_UNSUPPORTED,
                            "parallel.pipeline: a step reads and changes the buffer '%s', as a "
                            "spectral norm does; such a model cannot be cut into stages",
                            node->name);
    }
    return TUTTI_OK;
}

tutti_status tti_pass_assign_stages(tutti_graph **g, const tti_target *target) {
    tti_stages *s = target->stages;
    if (!s) return TUTTI_OK;
    TTI_TRY(check_names(*g));
    TTI_TRY(check_buffers(*g));
    bool is_first = !s->is_cut;
    if (is_first) TTI_TRY(tti_stages_find_cuts(*g, target, s));
    s->is_cut = true;
    const tutti_graph *whole = *g;
    for (int i = 0; is_first && i < whole->n_nodes; i++)
        s->is_joined |= (whole->nodes[i]->op->traits & TTI_SYNC) != 0;
    if (is_first) s->n_metrics = tti_n_own_metrics(whole);
    int *begin = calloc((size_t)tti_stages_n_all_chunks(s), sizeof *begin);
    bool *is_free = tti_find_free_nodes(*g);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
    if (begin && is_free) st = find_bounds(*g, is_free, s, begin);
    if (st == TUTTI_OK) st = mark(g, s, is_free, begin);
    free(begin);
    free(is_free);
    const tutti_graph *marked = *g;
    s->n_forward = marked->n_nodes;
    return st == TUTTI_OK && is_first ? find_tied(*g, s) : st;
}

/* ---- stages: the nodes of one rank ---- */

typedef struct builder {
    tti_rewrite rw;
    tti_stages *s;
    tti_stage_boundaries *boundaries;
    int *sched_slot; /* [n_nodes of from] */
    int *number;     /* [n_values of from]: of the stage boundary to this rank, -1: none */
    int *reads;      /* [n_values of from][n_stages] */
} builder;

static void find_sched_slots(builder *k) {
    const tutti_graph *g = tti_old_graph(&k->rw);
    int last = 2 * tti_stages_n_all_chunks(k->s) - 1;
    for (int i = 0; i < g->n_nodes; i++) {
        bool backward = i >= k->s->n_forward;
        int stage = g->nodes[i]->stage;
        k->sched_slot[i] = stage == ANYWHERE ? ANYWHERE : backward ? last - stage : stage;
    }
}

/* When each rank first reads a value; ANYWHERE: it does not. */
static int *first_reads(const builder *k, const tutti_value *value) {
    return &k->reads[(size_t)value->id * (size_t)k->s->n_stages];
}

static void find_reads(builder *k) {
    const tutti_graph *g = tti_old_graph(&k->rw);
    for (int i = 0; i < g->n_values * k->s->n_stages; i++) k->reads[i] = ANYWHERE;
    for (int i = 0; i < g->n_nodes; i++) {
        int at = k->sched_slot[i];
        for (int n = 0; at != ANYWHERE && n < g->nodes[i]->n_in; n++) {
            int *first = &first_reads(k, g->nodes[i]->in[n])[tti_sched_slot_stage(k->s, at)];
            if (*first == ANYWHERE || *first > at) *first = at;
        }
    }
}

static tutti_status add_boundary(tti_stage_boundaries *c, const tti_stage_boundary *boundary) {
    tti_stage_boundary *of = realloc(c->of, (size_t)(c->n + 1) * sizeof *of);
    if (!of) return tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
    c->of = of;
    c->of[c->n++] = *boundary;
    return TUTTI_OK;
}

static const char *boundary_name(const builder *k, int number, char name[32]) {
    bool backward = tti_sched_slot_is_backward(k->s, k->boundaries->of[number].from);
    snprintf(name, 32, "%s.%d", backward ? "back" : "pipe", number);
    return name;
}

/* A sent value has its own node and memory, which wait for the reader. */
static void send_value(builder *k, const tutti_value *value, int number) {
    char name[32];
    tutti_value *own = tti_mapped(&k->rw, value);
    bool taken =
        tti_is_output(tti_old_graph(&k->rw), value) || tti_is_output(tti_new_graph(&k->rw), own);
    if (taken || (value->node->op->traits & (TTI_SOURCE | TTI_VIEW)))
        own = tti_emit(tti_new_graph(&k->rw), "affine", NULL, &own, 1, NULL);
    tutti_output(tti_new_graph(&k->rw), boundary_name(k, number, name), own);
}

/* The stage boundaries of a value, to one rank after the other. */
static tutti_status cross(builder *k, const tutti_value *value) {
    int from = k->sched_slot[value->node->id];
    for (int stage = 0; stage < k->s->n_stages; stage++) {
        if (stage == tti_sched_slot_stage(k->s, from)) continue;
        int to = first_reads(k, value)[stage];
        if (to == ANYWHERE) continue;
        TTI_ASSERT(to > from);
        int number = k->boundaries->n;
        TTI_TRY(
            add_boundary(k->boundaries, &(tti_stage_boundary){from, to, tti_value_n_bytes(value)}));
        if (stage == k->s->stage) k->number[value->id] = number;
        if (tti_sched_slot_stage(k->s, from) == k->s->stage) send_value(k, value, number);
    }
    return TUTTI_OK;
}

/* An input of the whole graph, or what another rank makes. */
static void map_input(builder *k, const tutti_value *value) {
    char name[32];
    if (tti_mapped(&k->rw, value)) return;
    if (k->sched_slot[value->node->id] == ANYWHERE) {
        tti_rewrite_copy(&k->rw, value->node);
        return;
    }
    TTI_ASSERT(k->number[value->id] >= 0);
    tti_map(&k->rw, value,
            tutti_input(tti_new_graph(&k->rw), boundary_name(k, k->number[value->id], name),
                        value->type.dtype, &value->type.shape));
}

/* A further copy of a parameter gets its name back. */
static void keep_source(builder *k, const tti_node *node) {
    char name[TTI_MAX_NAME + 16];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    snprintf(name, sizeof name, "%.*s", (int)own_name(tti_old_graph(&k->rw), node->name),
             node->name);
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        attrs[i] = (tti_attr_arg){node->op->attrs[i].name, node->attrs[i]};
    tti_node *copy = tti_graph_add(tti_new_graph(&k->rw),
                                   &(tti_node_desc){.op = node->op, .name = name, .attrs = attrs});
    if (copy) tti_map(&k->rw, node->out[0], copy->out[0]);
}

static tutti_status keep_node(builder *k, const tti_node *node) {
    int sched_slot = k->sched_slot[node->id];
    if (sched_slot == ANYWHERE) return TUTTI_OK;
    if (tti_sched_slot_stage(k->s, sched_slot) == k->s->stage) {
        for (int i = 0; i < node->n_in; i++) map_input(k, node->in[i]);
        if (is_further_copy(tti_old_graph(&k->rw), node))
            keep_source(k, node);
        else
            tti_rewrite_copy(&k->rw, node);
        TTI_TRY(tutti_graph_check(tti_new_graph(&k->rw)));
    }
    for (int i = 0; i < node->op->n_out; i++) TTI_TRY(cross(k, node->out[i]));
    return TUTTI_OK;
}

/* "grad.NAME@S" is the gradient of NAME here. */
static void keep_outputs(builder *k) {
    const tutti_graph *g = tti_old_graph(&k->rw);
    for (int i = 0; i < g->n_outputs; i++) {
        const char *name = g->outputs[i].name;
        const tutti_value *old = g->outputs[i].value;
        int at = k->sched_slot[old->node->id]; /* an input that is an output too: the last rank's */
        int stage = at == ANYWHERE ? k->s->n_stages - 1 : tti_sched_slot_stage(k->s, at);
        if (stage != k->s->stage) continue;
        map_input(k, old);
        char own[TTI_MAX_NAME + 32];
        bool of_source = strncmp(name, "grad.", 5) == 0 || strncmp(name, "stat.", 5) == 0;
        int n = of_source ? 5 + (int)own_name(g, name + 5) : (int)strlen(name);
        snprintf(own, sizeof own, "%.*s", n, name);
        tutti_output(tti_new_graph(&k->rw), own, tti_mapped(&k->rw, old));
    }
}

/* ---- parameters of several ranks: each shard's gradient as in the whole graph ---- */

/* The output "grad.NAME@S" for the copy on a rank, or "grad.NAME"; NULL: no gradient there. */
static tti_output *gradient_on(const tutti_graph *g, const tti_tied_param *tied, int rank) {
    char copy[TTI_MAX_NAME + 32], own[TTI_MAX_NAME + 32];
    tti_output *found = NULL;
    snprintf(copy, sizeof copy, "grad.%s@%d", tied->name, rank);
    snprintf(own, sizeof own, "grad.%s", tied->name);
    for (int i = 0; i < g->n_outputs; i++) {
        bool is_copy = strcmp(g->outputs[i].name, copy) == 0;
        if (is_copy || (!found && strcmp(g->outputs[i].name, own) == 0)) found = &g->outputs[i];
    }
    return found;
}

/* Values that the executor may add to any value without changing a bit: -0, or NaN as in x. */
static tutti_value *nothing_of(tutti_graph *g, tutti_value *x) {
    tti_graph_set_stage(g, x->node->stage);
    return tutti_neg(g, tutti_affine(g, x, 0, 0));
}

/* The first rank adds the terms of all ranks in the order of autodiff, the last reader's first. */
static void add_terms(tutti_graph *g, const tti_tied_param *tied) {
    tutti_value *sum = NULL;
    int first = tied->stages[0];
    for (int i = tied->n_stages - 1; i >= 0; i--) {
        int rank = tied->stages[i];
        tti_output *term = gradient_on(g, tied, rank);
        if (!term) continue;
        tutti_value *value = term->value;
        if (rank > first) term->value = nothing_of(g, value);
        tti_graph_set_stage(g, first);
        sum = sum ? tutti_add(g, sum, value) : value;
        if (rank == first) term->value = sum;
    }
}

static tutti_status keep(builder *k, tutti_graph **g) {
    const tutti_graph *from = *g;
    find_sched_slots(k);
    find_reads(k);
    for (int i = 0; i < from->n_values; i++) k->number[i] = -1;
    for (int i = 0; i < from->n_nodes; i++) TTI_TRY(keep_node(k, from->nodes[i]));
    keep_outputs(k);
    return tutti_graph_check(tti_new_graph(&k->rw));
}

tutti_status tti_pass_stages(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    if (!target->stages) return TUTTI_OK;
    builder k = {.s = target->stages};
    k.boundaries = from->training ? &k.s->train : &k.s->eval;
    k.boundaries->n = 0;
    bool adds = from->training && target->adds_tied_by_shard;
    for (int i = 0; adds && i < k.s->n_tied; i++) add_terms(*g, &k.s->tied[i]);
    TTI_TRY(tutti_graph_check(*g));
    TTI_TRY(tti_rewrite_begin(&k.rw, *g));
    k.sched_slot = calloc((size_t)from->n_nodes + 1, sizeof *k.sched_slot);
    k.number = calloc((size_t)from->n_values + 1, sizeof *k.number);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "stages: out of memory");
    k.reads = calloc(((size_t)from->n_values + 1) * (size_t)k.s->n_stages, sizeof *k.reads);
    if (k.sched_slot && k.number && k.reads) st = keep(&k, g);
    if (st != TUTTI_OK) tti_graph_fail(tti_new_graph(&k.rw), st);
    free(k.sched_slot);
    free(k.number);
    free(k.reads);
    return tti_rewrite_replace(&k.rw, g);
}

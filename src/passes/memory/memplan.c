/* memplan.c - assigns memory to every value, by live range.
 *
 * A value lives from the step that makes it to the last step that reads it.  Views share the bytes
 * of their input, in-place ops overwrite an input without later readers, and the rest is packed
 * greedily, largest first, each at the lowest offset where it overlaps no other value of an
 * overlapping live range (Pisarchyk, Lee 2020, "greedy by size"). */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "passes/tensor/collective_norm.h"

enum { ALIGN = 64 };

typedef struct live_range {
    int first, last; /* steps; first > last: the value has no memory of its own */
    size_t n_bytes;
    size_t offset;
    int value; /* root value id */
} live_range;

typedef struct memplan {
    int n_values; /* of the graph */
    const tti_plan *plan;
    tti_program *program;
    int *root;          /* [n_values]: the value whose bytes this one shares */
    live_range *ranges; /* [n_values]: by root value id */
    bool *fixed;        /* [n_values]: root has a place outside the arena */
    size_t *offset;     /* [n_values]: bytes of the root that lie before, in parts of a gradient */
} memplan;

static size_t aligned(size_t n_bytes) { return (n_bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1); }

/* Sources: fed inputs, parameters in their slots, constants. */
static tutti_status place_source(memplan *m, const tti_node *node, int *n_inputs) {
    int id = node->out[0]->id;
    tti_buf *buf = &m->program->bufs[id];
    m->fixed[id] = true;
    if (node->op->traits & TTI_INPUT) {
        *buf = (tti_buf){TTI_SPACE_INPUT, (size_t)(*n_inputs)++};
    } else if (node->op->traits & (TTI_PARAM | TTI_BUFFER)) {
        int slot = tti_plan_find_slot(m->plan, node->name);
        if (slot < 0) return tti_fail(TUTTI_E_INVALID, "plan: unknown parameter '%s'", node->name);
        *buf = (tti_buf){TTI_SPACE_PARAM, m->plan->slots[slot].first * sizeof(float)};
    } else {
        *buf = (tti_buf){TTI_SPACE_CONST, m->program->const_bytes};
        m->program->const_bytes += aligned(tti_value_n_bytes(node->out[0]));
    }
    return TUTTI_OK;
}

static tutti_status place_sources(memplan *m) {
    const tutti_graph *g = m->program->graph;
    int n_inputs = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & TTI_SOURCE) TTI_TRY(place_source(m, g->nodes[i], &n_inputs));
    return TUTTI_OK;
}

/* A program that plan.c did not make has no neighbours. */
static bool is_joined(const memplan *m, const tti_node *node) {
    const bool *joined = m->program->neighbours.joined;
    return joined && joined[node->id];
}

static bool is_cut(const memplan *m, const tti_node *node) {
    const tutti_value **from = m->program->neighbours.cut_from;
    return from && from[node->id];
}

/* Parameters that lie side by side are joined where they are. */
static void place_joined(memplan *m) {
    const tutti_graph *g = m->program->graph;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!is_joined(m, g->nodes[i])) continue;
        int id = g->nodes[i]->out[0]->id;
        m->program->bufs[id] = m->program->bufs[g->nodes[i]->in[0]->id];
        m->fixed[id] = true;
    }
}

/* Parameters that the update has left in 16 bits. */
static void place_low_copies(memplan *m) {
    const tutti_graph *g = m->program->graph;
    for (int i = 0; m->program->is_low_copy && i < g->n_nodes; i++) {
        if (!m->program->is_low_copy[i]) continue;
        int id = g->nodes[i]->out[0]->id;
        size_t offset = tti_low_copy_at(m->plan, g->nodes[i]) * sizeof(uint16_t);
        m->program->bufs[id] = (tti_buf){TTI_SPACE_LOW, offset};
        m->fixed[id] = true;
    }
}

static void find_roots(memplan *m) {
    const tutti_graph *g = m->program->graph;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->op->n_out; k++) {
            int id = g->nodes[i]->out[k]->id;
            bool cut = is_cut(m, g->nodes[i]);
            bool view = cut || (g->nodes[i]->op->traits & TTI_VIEW);
            m->root[id] = view ? m->root[g->nodes[i]->in[0]->id] : id;
            m->offset[id] = cut ? tti_slice_offset(g->nodes[i]) : 0;
        }
}

/* The root of a gradient, or of the whole that it is a part of. */
static tti_buf gradient_buf(const memplan *m, const char *param, const tutti_value *grad) {
    int slot = tti_plan_find_slot(m->plan, param);
    TTI_ASSERT(slot >= 0);
    size_t offset = m->plan->slots[slot].first * sizeof(float);
    TTI_ASSERT(offset >= m->offset[grad->id]);
    return (tti_buf){TTI_SPACE_GRAD, offset - m->offset[grad->id]};
}

/* Gradients go to their slots, other outputs to the results. */
static void place_outputs(memplan *m) {
    const tutti_graph *g = m->program->graph;
    for (int i = 0; i < g->n_outputs; i++) {
        const tutti_value *value = g->outputs[i].value;
        int id = m->root[value->id];
        bool reduced = strncmp(g->outputs[i].name, "grad.", 5) == 0 ||
                       strncmp(g->outputs[i].name, "stat.", 5) == 0;
        bool part = is_cut(m, value->node);
        if (m->fixed[id] && !part) continue;
        if (reduced) {
            tti_buf buf = gradient_buf(m, g->outputs[i].name + 5, value);
            TTI_ASSERT(!m->fixed[id] || buf.offset == m->program->bufs[id].offset);
            m->program->bufs[id] = buf;
        } else {
            m->program->bufs[id] = (tti_buf){TTI_SPACE_RESULT, m->program->result_bytes};
            m->program->result_bytes += aligned(tti_value_n_bytes(value));
        }
        m->fixed[id] = true;
    }
}

static void find_lives(memplan *m) {
    for (int id = 0; id < m->n_values; id++)
        m->ranges[id] = (live_range){.first = INT32_MAX, .last = -1, .value = id};
    for (int s = 0; s < m->program->n_steps; s++) {
        const tti_node *node = m->program->steps[s];
        for (int i = 0; i < node->n_in; i++) m->ranges[m->root[node->in[i]->id]].last = s;
        for (int k = 0; k < node->op->n_out; k++) {
            live_range *p = &m->ranges[m->root[node->out[k]->id]];
            p->first = TTI_MIN(p->first, s);
            p->last = TTI_MAX(p->last, s);
            p->n_bytes = aligned(tti_value_n_bytes(node->out[k]));
        }
    }
}

/* If several steps run as one, their inputs live until the last of them, and their outputs from the
 * first on. */
static void extend_lives(memplan *m) {
    tti_collective_norm joint;
    for (int s = 0; s < m->program->n_steps; s++) {
        if (!tti_collective_norm_at(m->program, s, &joint)) continue;
        int last = s + joint.n_steps - 1;
        for (int t = s; t <= last; t++) {
            const tti_node *node = m->program->steps[t];
            for (int i = 0; i < node->n_in; i++) {
                live_range *p = &m->ranges[m->root[node->in[i]->id]];
                if (p->last >= s) p->last = TTI_MAX(p->last, last);
            }
            for (int k = 0; k < node->op->n_out; k++) {
                live_range *p = &m->ranges[m->root[node->out[k]->id]];
                if (p->last >= s) p->first = TTI_MIN(p->first, s);
            }
        }
    }
}

/* Uses through another view of the same bytes count too. */
static bool is_used_twice(const memplan *m, const tti_node *node) {
    for (int i = 1; i < node->n_in; i++)
        if (m->root[node->in[i]->id] == m->root[node->in[0]->id]) return true;
    return false;
}

/* out 0 takes over the bytes of in 0 where in 0 dies here. */
static void share_in_place(memplan *m) {
    for (int s = 0; s < m->program->n_steps; s++) {
        const tti_node *node = m->program->steps[s];
        if (!(node->op->traits & TTI_IN_PLACE) || is_used_twice(m, node)) continue;
        int in = m->root[node->in[0]->id], out = m->root[node->out[0]->id];
        live_range *from = &m->ranges[in], *to = &m->ranges[out];
        bool same_bytes = tti_value_n_bytes(node->in[0]) == tti_value_n_bytes(node->out[0]) &&
                          from->n_bytes == to->n_bytes;
        bool allowed = same_bytes && !m->fixed[in] && !m->fixed[out] && from->last == s &&
                       node->in[0]->layout == node->out[0]->layout;
        if (!allowed) continue;
        from->last = to->last;
        *to = (live_range){.first = INT32_MAX, .last = -1, .value = out};
        for (int id = 0; id < m->n_values; id++)
            if (m->root[id] == out) m->root[id] = in;
    }
}

/* Terms of a gradient that workers add are made in the place of their sum, so that adjacent sums
 * can be reduced as one.  The steps of stages may be in different slots of the schedule. */
static void share_gradients(memplan *m) {
    for (int s = 0; !m->plan->stages && s < m->program->n_steps; s++) {
        const tti_node *node = m->program->steps[s];
        if (node->op->collective != TTI_COLLECTIVE_SUM) continue;
        const tutti_value *sum = node->out[0], *term = node->in[0];
        int in = m->root[term->id], out = m->root[sum->id];
        bool allowed = m->fixed[out] && m->program->bufs[out].space == TTI_SPACE_GRAD &&
                       out == sum->id && !m->fixed[in] && m->ranges[in].last == s &&
                       m->ranges[in].n_bytes == aligned(tti_value_n_bytes(sum)) &&
                       m->offset[term->id] == 0 && term->layout == sum->layout;
        if (!allowed) continue;
        m->fixed[in] = true;
        m->program->bufs[in] = m->program->bufs[out];
    }
}

static int by_size(const void *a, const void *b) {
    const live_range *x = *(live_range *const *)a, *y = *(live_range *const *)b;
    if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
    return x->value < y->value ? -1 : 1;
}

/* The lowest offset for p among the n placed ones (sorted by nothing): try 0 and every end. */
static size_t lowest_offset(const live_range *p, live_range *const *placed, int n) {
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            const live_range *q = placed[i];
            bool together = q->first <= p->last && p->first <= q->last;
            if (together && offset < q->offset + q->n_bytes && q->offset < offset + p->n_bytes) {
                offset = q->offset + q->n_bytes;
                moved = true;
            }
        }
    }
    return offset;
}

static tutti_status pack_arena(memplan *m) {
    int n_values = m->n_values, n = 0;
    live_range **order = calloc((size_t)n_values + 1, sizeof *order);
    if (!order) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int id = 0; id < n_values; id++)
        if (!m->fixed[id] && m->root[id] == id && m->ranges[id].n_bytes > 0)
            order[n++] = &m->ranges[id];
    qsort(order, (size_t)n, sizeof *order, by_size);
    for (int i = 0; i < n; i++) {
        order[i]->offset = lowest_offset(order[i], order, i);
        size_t end = order[i]->offset + order[i]->n_bytes;
        m->program->arena_bytes = TTI_MAX(m->program->arena_bytes, end);
        m->program->unshared_bytes += order[i]->n_bytes;
        m->program->bufs[order[i]->value] = (tti_buf){TTI_SPACE_ARENA, order[i]->offset};
    }
    free(order);
    return TUTTI_OK;
}

static tutti_status place_values(memplan *m) {
    TTI_TRY(place_sources(m));
    place_joined(m);
    place_low_copies(m);
    find_roots(m);
    place_outputs(m);
    find_lives(m);
    extend_lives(m);
    share_gradients(m);
    share_in_place(m);
    TTI_TRY(pack_arena(m));
    for (int id = 0; id < m->n_values; id++)
        m->program->bufs[id] = (tti_buf){m->program->bufs[m->root[id]].space,
                                         m->program->bufs[m->root[id]].offset + m->offset[id]};
    return TUTTI_OK;
}

tutti_status tti_plan_memory(const tti_plan *plan, tti_program *program) {
    const tutti_graph *g = program->graph;
    size_t n = (size_t)g->n_values + 1;
    memplan m = {.plan = plan, .program = program, .n_values = g->n_values};
    m.root = calloc(n, sizeof *m.root);
    m.ranges = calloc(n, sizeof *m.ranges);
    m.fixed = calloc(n, sizeof *m.fixed);
    m.offset = calloc(n, sizeof *m.offset);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    if (m.root && m.ranges && m.fixed && m.offset) st = place_values(&m);
    free(m.root);
    free(m.ranges);
    free(m.fixed);
    free(m.offset);
    return st;
}

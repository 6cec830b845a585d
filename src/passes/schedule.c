/* schedule.c - orders the nodes so that gradients of parameters are ready early.
 *
 * A bucket's reduction starts when its last gradient is complete, so a node that makes a gradient
 * goes before the node that continues the backward pass.  Otherwise the given order is kept, which
 * keeps values short-lived.  If tensor-parallel collectives overlap with the program, they go
 * before nodes that do not need them, such as the gradients of parameters, and their readers after
 * those; the order of the gradients, which is their order in memory, is kept.  Sums of short
 * gradients over a tensor axis go last, next to each other.  Nodes are moved, not copied, because
 * fused nodes cannot be copied. */
#include <stdlib.h>
#include <string.h>

#include "passes/rewrite.h"
#include "passes/tensor/collective_norm.h"

enum { SHORT_BYTES = 64 << 10 };

typedef struct schedule {
    tutti_graph *g;
    int *n_missing; /* [n_nodes]: inputs not yet produced */
    bool *makes_gradient;
    bool *done;
    tti_node **order;
    int n_done;
} schedule;

static void mark_gradients(schedule *s) {
    for (int i = 0; i < s->g->n_outputs; i++)
        if (strncmp(s->g->outputs[i].name, "grad.", 5) == 0 ||
            strncmp(s->g->outputs[i].name, "stat.", 5) == 0)
            s->makes_gradient[s->g->outputs[i].value->node->id] = true;
}

static void place(schedule *s, int id);

/* Nodes that became ready by this one and make gradients follow at once. */
static void release_users(schedule *s, const tti_node *node) {
    for (int i = node->id + 1; i < s->g->n_nodes; i++) {
        const tti_node *user = s->g->nodes[i];
        for (int k = 0; k < user->n_in; k++)
            if (user->in[k]->node == node) s->n_missing[i]--;
        if (s->makes_gradient[i] && !s->done[i] && s->n_missing[i] == 0) place(s, i);
    }
}

static void place(schedule *s, int id) {
    s->done[id] = true;
    s->order[s->n_done++] = s->g->nodes[id];
    release_users(s, s->g->nodes[id]);
}

static void renumber(schedule *s) {
    memcpy(s->g->nodes, s->order, (size_t)s->g->n_nodes * sizeof *s->order);
    for (int i = 0; i < s->g->n_nodes; i++) s->g->nodes[i]->id = i;
}

static void order_nodes(schedule *s) {
    mark_gradients(s);
    for (int i = 0; i < s->g->n_nodes; i++) s->n_missing[i] = s->g->nodes[i]->n_in;
    for (int i = 0; i < s->g->n_nodes; i++)
        if (!s->done[i]) place(s, i);
    renumber(s);
}

/* ---- short sums ---- */

/* True for a gradient that is the workers' sum of a short vector, such as that of a bias. */
static bool is_short_sum(const schedule *s, const int *n_uses, const tti_node *node) {
    return node->op->collective == TTI_COLLECTIVE_SUM && s->makes_gradient[node->id] &&
           n_uses[node->out[0]->id] == 1 && tti_value_n_bytes(node->out[0]) <= SHORT_BYTES;
}

/* At the end they delay nothing, and adjacent sums can be computed together. */
static tutti_status put_short_sums_last(schedule *s) {
    int *n_uses = tti_count_uses(s->g), n = s->g->n_nodes;
    if (!n_uses) return tti_fail(TUTTI_E_NOMEM, "schedule: out of memory");
    for (int i = 0; i < n; i++) s->makes_gradient[i] = false;
    mark_gradients(s);
    s->n_done = 0;
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < n; i++)
            if (is_short_sum(s, n_uses, s->g->nodes[i]) == (last == 1))
                s->order[s->n_done++] = s->g->nodes[i];
    free(n_uses);
    renumber(s);
    return TUTTI_OK;
}

/* ---- collectives ---- */

typedef struct collectives {
    schedule *s;
    bool *needed;  /* [n_nodes]: of the collective at hand */
    bool *follows; /* [n_nodes]: depends on the previous collective, or makes a gradient */
    int joins_grads;
} collectives;

/* Marks unfinished nodes only. */
static void mark_needed(collectives *e, int collective) {
    for (int i = 0; i <= collective; i++) e->needed[i] = i == collective;
    for (int i = collective; i >= 0; i--) {
        const tti_node *node = e->s->g->nodes[i];
        for (int k = 0; e->needed[i] && !e->s->done[i] && k < node->n_in; k++)
            e->needed[node->in[k]->node->id] = true;
    }
}

static void mark_follows(collectives *e, int before, int last) {
    for (int i = 0; i <= last; i++) {
        const tti_node *node = e->s->g->nodes[i];
        e->follows[i] = i == before || e->s->makes_gradient[i];
        for (int k = 0; k < node->n_in; k++)
            e->follows[i] = e->follows[i] || e->follows[node->in[k]->node->id];
    }
}

static void put(schedule *s, int id) {
    s->done[id] = true;
    s->order[s->n_done++] = s->g->nodes[id];
}

static double flops_of(const tti_node *node) {
    tti_cost cost = {0};
    if (node->op->cost) node->op->cost(node, &cost);
    return cost.flops;
}

/* Places the nodes that overlap with a collective: half of the remaining work, or a fifth if that
 * would be more than half, because the next collective, which often has no independent nodes, needs
 * the rest. */
static void put_overtaken(schedule *s, int collective) {
    double all = 0, overlapped = 0;
    for (int i = 0; i < collective; i++)
        if (!s->done[i]) all += flops_of(s->g->nodes[i]);
    for (int i = 0; i < collective && 2 * overlapped <= all; i++) {
        if (s->done[i]) continue;
        double flops = flops_of(s->g->nodes[i]);
        if (5 * overlapped >= all && 2 * (overlapped + flops) > all) break;
        overlapped += flops;
        put(s, i);
    }
}

/* The following nodes are computed with it and nothing else (collective_norm.h). */
static bool is_in_front_of_grads(const collectives *e, int collective) {
    const tutti_graph *g = e->s->g;
    const tti_node *node = g->nodes[collective];
    if (node->op->collective != TTI_COLLECTIVE_SCATTER) return false;
    for (int i = collective + 1; i < g->n_nodes; i++)
        if (tti_is_norm_grad(g->nodes[i], node->out[0], e->joins_grads)) return true;
    return false;
}

/* Places the nodes that it needs, first those that overlap with the previous collective; then
 * itself, and the nodes that overlap with it. */
static void put_collective(collectives *e, int before, int collective) {
    schedule *s = e->s;
    mark_needed(e, collective);
    mark_follows(e, before, collective);
    for (int i = 0; i < collective; i++)
        if (!s->done[i] && e->needed[i] && !e->follows[i]) put(s, i);
    for (int i = 0; i < collective; i++) {
        if (s->done[i] || !e->needed[i]) continue;
        for (int k = 0; k < i && s->makes_gradient[i]; k++) /* they keep their order */
            if (!s->done[k]) put(s, k);
        put(s, i);
    }
    put(s, collective);
    if (!is_in_front_of_grads(e, collective)) put_overtaken(s, collective);
}

static bool keeps_gradients(const schedule *s) {
    int last = -1;
    for (int i = 0; i < s->n_done; i++) {
        int id = s->order[i]->id;
        if (s->makes_gradient[id] && id < last) return false;
        if (s->makes_gradient[id]) last = id;
    }
    return true;
}

/* Collectives of gradients have no readers that would wait. */
static void put_all_collectives(collectives *e) {
    schedule *s = e->s;
    int n = s->g->n_nodes, before = -1;
    for (int i = 0; i < n; i++) s->done[i] = false;
    s->n_done = 0;
    for (int i = 0; i < n; i++) {
        if (s->done[i] || !(s->g->nodes[i]->op->traits & TTI_COLLECTIVE)) continue;
        if (s->makes_gradient[i]) continue;
        put_collective(e, before, i);
        before = i;
    }
    for (int i = 0; i < n; i++)
        if (!s->done[i]) put(s, i);
}

/* Marks the nodes that write the memory of gradients, also through views. */
static void mark_memory(schedule *s) {
    for (int i = 0; i < s->g->n_nodes; i++) s->makes_gradient[i] = false;
    mark_gradients(s);
    for (int i = s->g->n_nodes - 1; i >= 0; i--)
        if (s->makes_gradient[i] && (s->g->nodes[i]->op->traits & TTI_VIEW))
            s->makes_gradient[s->g->nodes[i]->in[0]->node->id] = true;
}

static tutti_status overlap_collectives(schedule *s, int joins_grads) {
    size_t n = (size_t)s->g->n_nodes;
    collectives e = {.s = s, .joins_grads = joins_grads};
    e.needed = calloc(n + 1, sizeof *e.needed);
    e.follows = calloc(n + 1, sizeof *e.follows);
    bool ready = e.needed && e.follows;
    if (ready) {
        mark_memory(s);
        put_all_collectives(&e);
        TTI_ASSERT(keeps_gradients(s));
        renumber(s);
    }
    free(e.needed);
    free(e.follows);
    return ready ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "schedule: out of memory");
}

tutti_status tti_pass_schedule(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    size_t n = (size_t)from->n_nodes + 1;
    schedule s = {.g = *g};
    s.n_missing = calloc(n, sizeof *s.n_missing);
    s.makes_gradient = calloc(n, sizeof *s.makes_gradient);
    s.done = calloc(n, sizeof *s.done);
    s.order = calloc(n, sizeof *s.order);
    tutti_status st = TUTTI_OK;
    if (s.n_missing && s.makes_gradient && s.done && s.order) {
        order_nodes(&s);
        if (target->n_tensor > 1 && target->n_stages <= 1) st = put_short_sums_last(&s);
        if (st == TUTTI_OK && target->collectives)
            st = overlap_collectives(&s, target->joins_norms ? target->joins_grads : 0);
    } else
        st = tti_fail(TUTTI_E_NOMEM, "schedule: out of memory");
    free(s.n_missing);
    free(s.makes_gradient);
    free(s.done);
    free(s.order);
    return st;
}

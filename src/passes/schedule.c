/* schedule.c - the order of the nodes: gradients of parameters as early as they can be had.
 *
 * A bucket's reduction starts when its last gradient is there, so a node that makes a gradient goes
 * before the node that carries on backwards.  Otherwise the given order is kept, which keeps values
 * short-lived.  Fused nodes would not survive a copy, so nodes are moved, not copied. */
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/rewrite.h"

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

static void run(schedule *s) {
    mark_gradients(s);
    for (int i = 0; i < s->g->n_nodes; i++) s->n_missing[i] = s->g->nodes[i]->n_in;
    for (int i = 0; i < s->g->n_nodes; i++)
        if (!s->done[i]) place(s, i);
    memcpy(s->g->nodes, s->order, (size_t)s->g->n_nodes * sizeof *s->order);
    for (int i = 0; i < s->g->n_nodes; i++) s->g->nodes[i]->id = i;
}

tutti_status tti_pass_schedule(tutti_graph **g, const tti_target *target) {
    (void)target;
    size_t n = (size_t)(*g)->n_nodes + 1;
    schedule s = {.g = *g};
    s.n_missing = calloc(n, sizeof *s.n_missing);
    s.makes_gradient = calloc(n, sizeof *s.makes_gradient);
    s.done = calloc(n, sizeof *s.done);
    s.order = calloc(n, sizeof *s.order);
    tutti_status st = TUTTI_OK;
    if (s.n_missing && s.makes_gradient && s.done && s.order)
        run(&s);
    else
        st = tti_fail(TUTTI_E_NOMEM, "schedule: out of memory");
    free(s.n_missing);
    free(s.makes_gradient);
    free(s.done);
    free(s.order);
    return st;
}

/* stage_segments.c - divides the program of a pipeline stage into segments, one for each slot of
 * its schedule.
 *
 * A step can run when all its inputs exist: in the segment of the latest of them.  A sent value
 * must be made in the segment that sends it; nodes that only gradients need are backward. Otherwise
 * the order of the passes is kept, so that recomputed activations stay where the backward pass
 * needs them. */
#include <stdlib.h>
#include <string.h>

#include "passes/plan.h"

typedef struct segments {
    const tti_stages *s;
    const tti_program *program;
    const tti_stage_boundaries *boundaries;
    int *need;     /* [n_values]: the first segment in which a value can be read */
    int *due;      /* [n_values]: the last segment in which it may be made */
    int *segment;  /* [n_steps] */
    bool *forward; /* [n_nodes]: sums, statistics or another stage's forward need it */
} segments;

/* s NULL: one segment of all steps. */
static int n_segments(const tti_stages *s, const tutti_graph *g) {
    return s ? (g->training ? 2 : 1) * s->n_chunks : 1;
}

/* Backwards: no step is due later than its readers. */
static void find_due(segments *p) {
    const tutti_graph *g = p->program->graph;
    for (int i = 0; i < g->n_values; i++) p->due[i] = n_segments(p->s, g) - 1;
    for (int i = 0; i < g->n_outputs; i++) {
        int number = tti_stage_boundary_number(g->outputs[i].name);
        if (number < 0) continue;
        p->due[g->outputs[i].value->id] =
            tti_sched_slot_segment(p->s, p->boundaries->of[number].from);
    }
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        int due = n_segments(p->s, g) - 1;
        for (int k = 0; k < g->nodes[i]->op->n_out; k++)
            due = TTI_MIN(due, p->due[g->nodes[i]->out[k]->id]);
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            int *in = &p->due[g->nodes[i]->in[k]->id];
            *in = TTI_MIN(*in, due);
        }
    }
}

static void find_forward(segments *p) {
    const tutti_graph *g = p->program->graph;
    for (int i = 0; i < g->n_outputs; i++)
        if (strncmp(g->outputs[i].name, "grad.", 5) != 0 &&
            strncmp(g->outputs[i].name, "back.", 5) != 0)
            p->forward[g->outputs[i].value->node->id] = true;
    for (int i = g->n_nodes - 1; i >= 0; i--)
        for (int k = 0; p->forward[i] && k < g->nodes[i]->n_in; k++)
            p->forward[g->nodes[i]->in[k]->node->id] = true;
}

/* Forwards: a step is in the segment of the previous step, unless its inputs or due segment require
 * another one. */
static tutti_status find_segments(segments *p) {
    const tutti_graph *g = p->program->graph;
    int now = 0, step = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool is_step = step < p->program->n_steps && p->program->steps[step] == node;
        int number = node->op->traits & TTI_INPUT ? tti_stage_boundary_number(node->name) : -1;
        int need = number < 0 ? 0 : tti_sched_slot_segment(p->s, p->boundaries->of[number].to);
        int due = n_segments(p->s, g) - 1;
        for (int k = 0; k < node->n_in; k++) need = TTI_MAX(need, p->need[node->in[k]->id]);
        for (int k = 0; k < node->op->n_out; k++) due = TTI_MIN(due, p->due[node->out[k]->id]);
        if (is_step && g->training && !p->forward[i]) need = TTI_MAX(need, p->s->n_chunks);
        if (is_step && need > due)
            return tti_fail(TUTTI_E_INTERNAL, "plan: %s '%s' is sent before it is computed",
                            node->op->name, node->name);
        if (is_step) {
            now = TTI_MAX(now, need);
            need = p->segment[step++] = TTI_MIN(now, due);
        }
        for (int k = 0; k < node->op->n_out; k++) p->need[node->out[k]->id] = need;
    }
    return TUTTI_OK;
}

/* Steps by segment, in the order they had. */
static tutti_status sort_steps(const segments *p, tti_program *program) {
    tti_node **sorted = calloc((size_t)program->n_steps + 1, sizeof(tti_node *));
    int n = 0;
    if (!sorted) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; i < program->n_segments; i++) {
        program->segment_first[i] = n;
        for (int s = 0; s < program->n_steps; s++)
            if (p->segment[s] == i) sorted[n++] = program->steps[s];
    }
    program->segment_first[program->n_segments] = n;
    memcpy(program->steps, sorted, (size_t)n * sizeof *sorted);
    free(sorted);
    return TUTTI_OK;
}

tutti_status tti_plan_segments(const tti_stages *stages, tti_program *program) {
    const tutti_graph *g = program->graph;
    program->n_segments = n_segments(stages, g);
    free(program->segment_first);
    program->segment_first =
        calloc((size_t)program->n_segments + 1, sizeof *program->segment_first);
    if (!program->segment_first) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    program->segment_first[program->n_segments] = program->n_steps;
    if (!stages) return TUTTI_OK;
    segments p = {.s = stages,
                  .program = program,
                  .boundaries = g->training ? &stages->train : &stages->eval,
                  .need = calloc((size_t)g->n_values + 1, sizeof(int)),
                  .due = calloc((size_t)g->n_values + 1, sizeof(int)),
                  .segment = calloc((size_t)program->n_steps + 1, sizeof(int)),
                  .forward = calloc((size_t)g->n_nodes + 1, sizeof(bool))};
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    if (p.need && p.due && p.segment && p.forward) {
        find_forward(&p);
        find_due(&p);
        st = find_segments(&p);
        if (st == TUTTI_OK) st = sort_steps(&p, program);
    }
    free(p.need);
    free(p.due);
    free(p.segment);
    free(p.forward);
    return st;
}

static int segment_of_step(const tti_program *program, int step) {
    int segment = 0;
    while (segment + 1 < program->n_segments && program->segment_first[segment + 1] <= step)
        segment++;
    return segment;
}

tutti_status tti_plan_check_segments(const tti_plan *plan) {
    const tti_program *program = &plan->shard;
    const tutti_graph *g = program->graph;
    for (int i = 0; plan->stages && i < g->n_outputs; i++) {
        const tti_output *out = &g->outputs[i];
        bool reduced = strncmp(out->name, "grad.", 5) == 0 || strncmp(out->name, "stat.", 5) == 0;
        int slot = reduced ? tti_plan_find_slot(plan, out->name + 5) : -1;
        if (slot < 0) continue;
        int made = 0;
        while (made < program->n_steps && program->steps[made] != out->value->node) made++;
        if (segment_of_step(program, made) ==
            segment_of_step(program, plan->slots[slot].ready_after))
            continue;
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "plan: the gradient of '%s' is read by another chunk of the same stage; "
                        "give parallel.pipeline_chunks=1",
                        plan->slots[slot].param->name);
    }
    return TUTTI_OK;
}

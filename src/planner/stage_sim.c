/* stage_sim.c - simulates a pipeline: every stage runs the next segment of its schedule as soon as
 * its inputs are available. */
#include "planner/stage_sim.h"

#include <math.h>
#include <stdlib.h>

typedef struct stage_state {
    const tti_stage_sim_desc *desc;
    tti_pipe_schedule *of; /* [n_stages] */
    int *done;             /* [n_stages]: number of actions that a stage has done */
    double *end;           /* [n_micro_groups][slots]: time at which the slot ended; < 0: not yet */
    int n_sched_slots;
} stage_state;

/* The time at which the inputs of a micro-batch group's slot are available; < 0: not yet. */
static double group_ready_s(const stage_state *g, int micro_group, int sched_slot) {
    const double *end = &g->end[micro_group * g->n_sched_slots];
    const tti_stage_boundaries *sent = &g->desc->stages->train;
    double ready = sched_slot > 0 ? end[sched_slot - 1] : 0;
    for (int i = 0; ready >= 0 && i < sent->n; i++) {
        const tti_stage_boundary *c = &sent->of[i];
        if (c->to != sched_slot) continue;
        if (end[c->from] < 0) return -1;
        double bytes = (double)c->n_bytes * g->desc->n_compute_threads;
        ready = fmax(ready, end[c->from] + g->desc->latency_s + bytes * g->desc->s_per_byte);
    }
    return ready;
}

/* The time at which a slot can run; a joined value waits for all micro-batch groups. */
static double ready_s(const stage_state *g, int micro_group, int sched_slot) {
    double ready = group_ready_s(g, micro_group, sched_slot);
    for (int w = 0; g->desc->stages->is_joined && ready >= 0 && w < g->desc->n_micro_groups; w++) {
        double other = group_ready_s(g, w, sched_slot);
        ready = other < 0 ? -1 : fmax(ready, other);
    }
    return ready;
}

static bool advance(stage_state *g, int stage, tti_stage_sim *out) {
    if (g->done[stage] == g->of[stage].n_actions) return false;
    const tti_pipe_action *a = &g->of[stage].actions[g->done[stage]];
    int sched_slot = tti_sched_slot_of(g->desc->stages, stage, a->segment);
    double ready = ready_s(g, a->micro_group, sched_slot), took = g->desc->slot_s[sched_slot];
    if (ready < 0) return false;
    const tti_stage_segment segment = {stage, *a, fmax(out->end_s[stage], ready), took};
    out->end_s[stage] = segment.begin_s + took;
    out->busy_s[stage] += took;
    g->end[a->micro_group * g->n_sched_slots + sched_slot] = out->end_s[stage];
    g->done[stage]++;
    if (g->desc->on_segment) g->desc->on_segment(g->desc->user, &segment);
    return true;
}

static tutti_status simulate(stage_state *g, tti_stage_sim *out) {
    const tti_stages *s = g->desc->stages;
    double busy = 0;
    for (int i = 0; i < g->desc->n_micro_groups * g->n_sched_slots; i++) g->end[i] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < s->n_stages; stage++)
            while (advance(g, stage, out)) moved = true;
    }
    for (int stage = 0; stage < s->n_stages; stage++) {
        if (g->done[stage] < g->of[stage].n_actions)
            return tti_fail(TUTTI_E_INTERNAL, "plan: stage %d waits forever", stage);
        out->step_s = fmax(out->step_s, out->end_s[stage]);
        busy += out->busy_s[stage];
    }
    if (out->step_s > 0) out->bubble = 1 - busy / (out->step_s * s->n_stages);
    return TUTTI_OK;
}

tutti_status tti_stage_sim_run(const tti_stage_sim_desc *desc, tti_stage_sim *out) {
    const tti_stages *s = desc->stages;
    const tti_pipe_shape shape = tti_pipe_shape_of(s, desc->n_micro_groups, true);
    size_t n = (size_t)s->n_stages;
    stage_state g = {.desc = desc,
                     .n_sched_slots = 2 * tti_stages_n_all_chunks(s),
                     .of = calloc(n, sizeof *g.of),
                     .done = calloc(n, sizeof *g.done)};
    g.end = calloc((size_t)desc->n_micro_groups, (size_t)g.n_sched_slots * sizeof *g.end);
    *out = (tti_stage_sim){.busy_s = calloc(n, sizeof *out->busy_s),
                           .end_s = calloc(n, sizeof *out->end_s)};
    tutti_status st = TUTTI_OK;
    if (!g.of || !g.done || !g.end || !out->busy_s || !out->end_s)
        st = tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int i = 0; st == TUTTI_OK && i < s->n_stages; i++)
        st = tti_pipe_schedule_init(&shape, i, &g.of[i]);
    if (st == TUTTI_OK) st = simulate(&g, out);
    for (int i = 0; g.of && i < s->n_stages; i++) tti_pipe_schedule_fini(&g.of[i]);
    free(g.of);
    free(g.done);
    free(g.end);
    if (st != TUTTI_OK) tti_stage_sim_fini(out);
    return st;
}

void tti_stage_sim_fini(tti_stage_sim *sim) {
    free(sim->busy_s);
    free(sim->end_s);
    *sim = (tti_stage_sim){0};
}

tutti_status tti_stage_costs(const tti_blueprint *b, const tti_calibration *c, double **slot_s) {
    const tti_stages *stages = tti_blueprint_plan(b, 0)->stages;
    double *of = calloc(2 * (size_t)tti_stages_n_all_chunks(stages), sizeof *of);
    if (!of) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int stage = 0; stage < b->mesh.stage; stage++) {
        const tti_plan *plan = tti_blueprint_plan(b, stage * b->mesh.tensor);
        for (int i = 0; i < plan->shard.n_segments; i++) {
            int first = plan->shard.segment_first[i], last = plan->shard.segment_first[i + 1];
            of[tti_sched_slot_of(plan->stages, stage, i)] =
                tti_steps_cost_s(c, &plan->shard, first, last) +
                (last - first) * c->launch_overhead_s;
        }
    }
    *slot_s = of;
    return TUTTI_OK;
}

double tti_stage_bytes(const tti_stages *stages, int from, int to) {
    double bytes = 0;
    for (int i = 0; i < stages->train.n; i++) {
        const tti_stage_boundary *c = &stages->train.of[i];
        if (tti_sched_slot_stage(stages, c->from) == from &&
            tti_sched_slot_stage(stages, c->to) == to)
            bytes += (double)c->n_bytes;
    }
    return bytes;
}

double tti_tied_bytes(const tti_plan *plan) {
    double bytes = 0;
    for (int i = 0; plan->stages && i < plan->stages->n_tied; i++) {
        int slot = tti_plan_find_slot(plan, plan->stages->tied[i].name);
        if (slot >= 0) bytes += (double)plan->slots[slot].n_elems * sizeof(float);
    }
    return bytes;
}

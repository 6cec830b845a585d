/* pipe_schedule.c - the 1F1B schedule and its predicted bubble. */
#include "exec/program/pipe_schedule.h"

#include <stdlib.h>

tti_pipe_shape tti_pipe_shape_of(const tti_stages *s, int n_micro_groups, bool training) {
    return (tti_pipe_shape){.n_stages = s->n_stages,
                            .n_chunks = s->n_chunks,
                            .n_micro_groups = n_micro_groups,
                            .training = training,
                            .joined = training && s->is_joined};
}

/* The k-th forward (or backward) action. All stages use the same order. */
static tti_pipe_action unit(const tti_pipe_shape *s, int k, bool backward) {
    int group = s->n_stages * s->n_chunks;
    if (s->n_chunks == 1) return (tti_pipe_action){k, backward ? 1 : 0};
    int chunk = k % group / s->n_stages;
    int micro_group = k / group * s->n_stages + k % s->n_stages;
    return (tti_pipe_action){micro_group, backward ? s->n_chunks + chunk : chunk};
}

/* The number of forward actions before the first backward action. */
static int n_ahead(const tti_pipe_shape *s, int stage) {
    int n_units = s->n_micro_groups * s->n_chunks, n_later = s->n_stages - 1 - stage;
    if (!s->training) return n_units;
    if (s->n_chunks == 1) return TTI_MIN(n_later, n_units);
    return TTI_MIN(2 * n_later + (s->n_chunks - 1) * s->n_stages, n_units);
}

static int count_in_flight(const tti_pipe_shape *s, const tti_pipe_schedule *schedule) {
    int last = (s->training ? 2 : 1) * s->n_chunks - 1, now = 0, most = 0;
    for (int i = 0; i < schedule->n_actions; i++) {
        now += schedule->actions[i].segment == 0;
        most = TTI_MAX(most, now);
        now -= schedule->actions[i].segment == last;
    }
    return most;
}

tutti_status tti_pipe_schedule_init(const tti_pipe_shape *s, int stage, tti_pipe_schedule *out) {
    *out = (tti_pipe_schedule){0};
    TTI_ASSERT(stage >= 0 && stage < s->n_stages && s->n_chunks >= 1 && s->n_micro_groups >= 1);
    if (s->n_chunks > 1 && s->n_micro_groups % s->n_stages != 0)
        return tti_fail(
            TUTTI_E_INVALID,
            "parallel.pipeline_chunks=%d: shards pass the stages in rounds of %d groups, and "
            "a worker has %d groups; give a multiple, or parallel.pipeline_chunks=1",
            s->n_chunks, s->n_stages, s->n_micro_groups);
    int n_units = s->n_micro_groups * s->n_chunks, ahead = n_ahead(s, stage);
    out->actions = calloc(2 * (size_t)n_units + 1, sizeof *out->actions);
    if (!out->actions) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    /* With joined values all micro-batch groups pass a segment before any enters the next one. */
    bool is_joined = s->joined && s->training;
    for (int k = 0; is_joined && k < 2 * n_units; k++)
        out->actions[out->n_actions++] =
            (tti_pipe_action){k % s->n_micro_groups, k / s->n_micro_groups};
    for (int k = 0; !is_joined && k < n_units + ahead; k++) {
        if (k < n_units) out->actions[out->n_actions++] = unit(s, k, false);
        if (s->training && k >= ahead) out->actions[out->n_actions++] = unit(s, k - ahead, true);
    }
    out->n_in_flight = count_in_flight(s, out);
    return TUTTI_OK;
}

void tti_pipe_schedule_fini(tti_pipe_schedule *schedule) {
    free(schedule->actions);
    *schedule = (tti_pipe_schedule){0};
}

/* ---- simulation ---- */

typedef struct simulation {
    const tti_pipe_shape *shape;
    const double *cost;
    tti_pipe_schedule *of; /* [n_stages] */
    int *done;             /* [n_stages]: actions of a stage */
    double *now;           /* [n_stages] */
    double *end; /* [n_micro_groups][slots]: time at which the slot ended; below 0: not yet */
    double busy;
} simulation;

static double *end_of(const simulation *p, int micro_group, int sched_slot) {
    return &p->end[micro_group * 2 * p->shape->n_stages * p->shape->n_chunks + sched_slot];
}

/* The time at which the inputs of a micro-batch group's slot are available; below 0: not yet.
 * Joined values are available only when all groups have ended the previous slot. */
static double ready(const simulation *p, int micro_group, int sched_slot) {
    double last = 0;
    if (sched_slot == 0) return 0;
    for (int w = 0; w < p->shape->n_micro_groups; w++) {
        double end = *end_of(p, w, sched_slot - 1);
        if (w != micro_group && !p->shape->joined) continue;
        if (end < 0) return -1;
        last = TTI_MAX(last, end);
    }
    return last;
}

/* Runs the next action of a stage if its inputs are available. */
static bool advance(simulation *p, int stage) {
    if (p->done[stage] == p->of[stage].n_actions) return false;
    const tti_pipe_action *a = &p->of[stage].actions[p->done[stage]];
    const tti_stages s = {.n_stages = p->shape->n_stages, .n_chunks = p->shape->n_chunks};
    int sched_slot = tti_sched_slot_of(&s, stage, a->segment),
        n_chunks = tti_stages_n_all_chunks(&s);
    bool backward = tti_sched_slot_is_backward(&s, sched_slot);
    double before = ready(p, a->micro_group, sched_slot);
    if (before < 0) return false;
    double time = p->cost ? p->cost[backward ? 2 * n_chunks - 1 - sched_slot : sched_slot] : 1;
    time *= backward ? 2.0 / 3 : 1.0 / 3;
    p->now[stage] = TTI_MAX(p->now[stage], before) + time;
    *end_of(p, a->micro_group, sched_slot) = p->now[stage];
    p->busy += time;
    p->done[stage]++;
    return true;
}

static double simulate(simulation *p) {
    size_t n =
        (size_t)p->shape->n_micro_groups * 2 * (size_t)(p->shape->n_stages * p->shape->n_chunks);
    double last = 0;
    for (size_t i = 0; i < n; i++) p->end[i] = -1;
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < p->shape->n_stages; s++)
            while (advance(p, s)) moved = true;
    }
    for (int s = 0; s < p->shape->n_stages; s++) {
        if (p->done[s] < p->of[s].n_actions) return -1;
        last = TTI_MAX(last, p->now[s]);
    }
    return last > 0 ? 1 - p->busy / (last * p->shape->n_stages) : 0;
}

tutti_status tti_pipe_bubble(const tti_pipe_shape *shape, const double *cost, double *bubble) {
    size_t n = (size_t)shape->n_stages, n_slots = 2 * n * (size_t)shape->n_chunks;
    simulation p = {.shape = shape,
                    .cost = cost,
                    .of = calloc(n, sizeof *p.of),
                    .done = calloc(n, sizeof *p.done),
                    .now = calloc(n, sizeof *p.now),
                    .end = calloc((size_t)shape->n_micro_groups * n_slots, sizeof *p.end)};
    tutti_status st = TUTTI_OK;
    if (!p.of || !p.done || !p.now || !p.end)
        st = tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int s = 0; st == TUTTI_OK && s < shape->n_stages; s++)
        st = tti_pipe_schedule_init(shape, s, &p.of[s]);
    if (st == TUTTI_OK) *bubble = simulate(&p);
    for (int s = 0; p.of && s < shape->n_stages; s++) tti_pipe_schedule_fini(&p.of[s]);
    free(p.of);
    free(p.done);
    free(p.now);
    free(p.end);
    return st;
}

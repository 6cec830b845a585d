/* pipe.c - runs a worker's shards through its pipeline stage.
 *
 * A wave is a shard for each lane, and each wave in flight has instances of its own.  A value from
 * another stage is read where its sender put it, in a slot of the mailbox, and its slot is freed
 * after the last part that reads it.  There are as many slots as waves in flight on the earlier of
 * the two stages, so that in training nobody waits for an empty one: that stage begins a wave only
 * when the wave of that slot has come back.
 *
 * Gradients are added along the same tree as without stages (accumulate.c), part by part: the slots
 * that a part completes are one range, in which waves follow each other in order. */
#include "exec/pipe_ends.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/worker.h"

/* ---- building ---- */

tutti_status tti_pipe_count_in_flight(const tti_stages *s, int n_waves, int *n) {
    tti_pipe_shape train = tti_pipe_shape_of(s, n_waves, true);
    tti_pipe_shape eval = tti_pipe_shape_of(s, n_waves, false);
    tti_pipe_schedule schedule;
    TTI_TRY(tti_pipe_schedule_init(&train, s->stage, &schedule));
    *n = schedule.n_in_flight;
    tti_pipe_schedule_fini(&schedule);
    TTI_TRY(tti_pipe_schedule_init(&eval, s->stage, &schedule));
    *n = TTI_MAX(*n, schedule.n_in_flight);
    tti_pipe_schedule_fini(&schedule);
    return TUTTI_OK;
}

int tti_waves_of(int n_shards, int n_lanes) { return (n_shards + n_lanes - 1) / n_lanes; }

int tti_pipe_fit_lanes(const tti_stages *s, int n_lanes, int n_shards) {
    while (s->n_chunks > 1 && n_lanes > 1 && tti_waves_of(n_shards, n_lanes) % s->n_stages != 0)
        n_lanes--;
    return n_lanes;
}

/* Waves of the worker of this stage that has most, where all of them fetch the same: on the host.
 */
static tutti_status agree_waves(tti_exec *x) {
    int32_t n = tti_waves_of(x->last_shard - x->first_shard, x->desc.n_lanes), most = n;
    if (x->desc.zero > 2 && x->n_ranks > 1 && !x->device)
        TTI_TRY(tutti_comm_all_reduce(x->desc.comm, &n, &most, 1, TUTTI_I32, TUTTI_MAX,
                                      TUTTI_ALG_AUTO));
    x->n_pipe_waves = most;
    return TUTTI_OK;
}

tutti_status tti_pipe_agree_lanes(tti_exec *x) {
    int32_t n = x->desc.n_lanes, least = n;
    if (!x->desc.plan->stages) return TUTTI_OK;
    TTI_ASSERT(x->desc.mesh && x->desc.mesh->pipeline);
    TTI_TRY(tutti_comm_all_reduce(x->desc.mesh->pipeline, &n, &least, 1, TUTTI_I32, TUTTI_MIN,
                                  TUTTI_ALG_AUTO));
    x->desc.n_lanes =
        tti_pipe_fit_lanes(x->desc.plan->stages, least, x->last_shard - x->first_shard);
    return agree_waves(x);
}

/* Shards that wait for each other are all under way at once. */
int tti_pipe_width(const tti_stages *s, int n_lanes, int n_local) {
    return s->is_joined ? n_local : n_lanes;
}

/* Slots for a crossing: as many as waves that can be between its two ends. */
static tutti_status depth_of(const tti_stages *s, int n_waves, const tti_crossing *c, bool training,
                             int *depth) {
    int last = 2 * tti_stages_n_pieces(s) - 1;
    int earlier = TTI_MIN(TTI_MIN(c->from, last - c->from), TTI_MIN(c->to, last - c->to));
    tti_stages at = {.stage = tti_moment_stage(s, earlier),
                     .n_stages = s->n_stages,
                     .n_chunks = s->n_chunks,
                     .is_joined = s->is_joined};
    *depth = s->n_chunks > 1 ? 2 * s->n_stages : 2;
    if (training) TTI_TRY(tti_pipe_count_in_flight(&at, n_waves, depth));
    *depth = TTI_MIN(*depth, n_waves);
    return TUTTI_OK;
}

static tutti_status add_slots(const tti_stages *s, int n_waves, int n_lanes, bool training,
                              size_t *n_bytes) {
    const tti_crossings *crossings = training ? &s->train : &s->eval;
    for (int i = 0; i < crossings->n; i++) {
        const tti_crossing *c = &crossings->of[i];
        int depth;
        if (tti_moment_stage(s, c->to) != s->stage) continue;
        TTI_TRY(depth_of(s, n_waves, c, training, &depth));
        *n_bytes += tti_mailbox_room(c->n_bytes) * (size_t)(depth * n_lanes);
    }
    return TUTTI_OK;
}

tutti_status tti_pipe_slot_bytes(const tti_plan *plan, int n_waves, int n_lanes, size_t *n_bytes) {
    *n_bytes = 0;
    TTI_TRY(add_slots(plan->stages, n_waves, n_lanes, true, n_bytes));
    return plan->eval.graph ? add_slots(plan->stages, n_waves, n_lanes, false, n_bytes) : TUTTI_OK;
}

static const tutti_value *behind_views(const tutti_value *value) {
    while (value->node->op->traits & TTI_VIEW) value = value->node->in[0];
    return value;
}

static bool reads(const tti_node *node, const tutti_value *value) {
    for (int k = 0; k < node->n_in; k++)
        if (behind_views(node->in[k]) == value) return true;
    return false;
}

static int last_part_of(const tti_program *program, const tutti_value *value, int part) {
    for (int p = part; p < program->n_parts; p++)
        for (int s = program->part_first[p]; s < program->part_first[p + 1]; s++)
            if (reads(program->steps[s], value)) part = p;
    return part;
}

/* This stage's end of crossing i, if it has one. */
static void add_end(tti_pipe_side *side, const tti_stages *s, const tti_crossing *c, int i,
                    const tti_pipe_end *slots) {
    tti_pipe_end end = *slots;
    snprintf(end.name, sizeof end.name, "%s.%d",
             tti_moment_is_backward(s, c->from) ? "back" : "pipe", i);
    if (tti_moment_stage(s, c->to) == s->stage) {
        const tti_node *node = tti_graph_find_source(side->program->graph, end.name);
        TTI_ASSERT(node != NULL);
        end.input = tti_program_input(side->program, end.name);
        end.part = tti_moment_part(s, c->to);
        end.last_part = last_part_of(side->program, node->out[0], end.part);
        side->in[side->n_in++] = end;
    } else if (tti_moment_stage(s, c->from) == s->stage) {
        end.part = tti_moment_part(s, c->from);
        side->out[side->n_out++] = end;
    }
}

/* The flat gradients that become complete in each part: slots stand in that order. */
static tutti_status find_flat(const tti_plan *plan, tti_pipe_side *side) {
    const tti_program *program = side->program;
    side->flat = calloc((size_t)program->n_parts + 1, sizeof *side->flat);
    if (!side->flat) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    int slot = 0;
    for (int p = 0; program == &plan->shard && p < program->n_parts; p++) {
        size_t first = slot < plan->n_slots ? plan->slots[slot].first : plan->n_flat;
        while (slot < plan->n_slots && plan->slots[slot].ready_after < program->part_first[p + 1])
            slot++;
        size_t last = slot < plan->n_slots ? plan->slots[slot].first : plan->n_flat;
        side->flat[p] = (tti_range){first, last};
    }
    return TUTTI_OK;
}

/* The ends of a program's crossings, and the slots of all of them behind those that there are: the
 * same on every stage. */
static tutti_status build_side(tti_exec *x, tti_pipe *pipe, tti_pipe_side *side,
                               const tti_program *program) {
    const tti_stages *s = x->desc.plan->stages;
    bool training = program == &x->desc.plan->shard;
    const tti_crossings *crossings = training ? &s->train : &s->eval;
    tti_pipe_shape shape = tti_pipe_shape_of(s, pipe->n_waves, training);
    side->program = program;
    TTI_TRY(tti_pipe_schedule_init(&shape, s->stage, &side->schedule));
    side->schedule.n_in_flight = TTI_MIN(side->schedule.n_in_flight, pipe->n_waves - pipe->n_idle);
    TTI_TRY(find_flat(x->desc.plan, side));
    side->in = calloc((size_t)crossings->n + 1, sizeof *side->in);
    side->out = calloc((size_t)crossings->n + 1, sizeof *side->out);
    if (!side->in || !side->out) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int i = 0; i < crossings->n; i++) {
        const tti_crossing *c = &crossings->of[i];
        tti_pipe_end end = {.first_slot = pipe->n_slots, .n_bytes = c->n_bytes};
        TTI_TRY(depth_of(s, pipe->n_waves, c, training, &end.depth));
        int n = end.depth * x->desc.n_lanes;
        tti_mail_slot *more = realloc(pipe->slots, (size_t)(pipe->n_slots + n) * sizeof *more);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
        pipe->slots = more;
        for (int k = 0; k < n; k++)
            more[pipe->n_slots++] = (tti_mail_slot){.to = tti_moment_stage(s, c->to),
                                                    .n_bytes = c->n_bytes,
                                                    .from = tti_moment_stage(s, c->from)};
        add_end(side, s, c, i, &end);
    }
    return TUTTI_OK;
}

/* Those of the gradients' buffers, or, where all shards have one of their own at once, a shard for
 * each lane of them; before them those that only others have. */
static tutti_status make_waves(const tti_exec *x, tti_pipe *pipe) {
    const tti_accumulation *acc = &x->acc;
    int n_local = x->last_shard - x->first_shard, n_lanes = x->desc.n_lanes;
    bool joined = pipe->stages->is_joined;
    pipe->n_waves = x->n_pipe_waves;
    pipe->n_idle = pipe->n_waves - tti_waves_of(n_local, n_lanes);
    pipe->waves = calloc((size_t)pipe->n_waves + 1, sizeof *pipe->waves);
    if (!pipe->waves) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    tti_wave *own = pipe->waves + pipe->n_idle;
    for (int w = 0; !joined && w < acc->n_waves; w++) own[w] = acc->waves[w];
    for (int s = 0; joined && s < n_local; s++) {
        tti_wave *wave = &own[s / n_lanes];
        if (wave->n_shards == 0) wave->first = x->first_shard + s;
        wave->buffer[wave->n_shards++] = acc->waves[0].buffer[s];
    }
    return TUTTI_OK;
}

/* Who waits for a stage tells which worker that is. */
static void show_ranks(const tti_exec *x, tti_mailbox *box) {
    int shown[TTI_MAX_RANKS];
    tti_mesh_at at = x->desc.mesh->at;
    for (at.stage = 0; at.stage < x->desc.mesh->size.stage; at.stage++)
        shown[at.stage] = tti_mesh_rank(&x->desc.mesh->size, &at);
    tti_mailbox_show_as(box, shown);
}

static tutti_status build(tti_exec *x, tti_pipe *pipe) {
    const tti_plan *plan = x->desc.plan;
    TTI_TRY(make_waves(x, pipe));
    tti_pipe_shape shape = tti_pipe_shape_of(plan->stages, pipe->n_waves, true);
    TTI_TRY(tti_pipe_bubble(&shape, plan->stages->cost, &pipe->expected));
    TTI_TRY(build_side(x, pipe, &pipe->train, &plan->shard));
    if (plan->eval.graph) TTI_TRY(build_side(x, pipe, &pipe->eval, &plan->eval));
    TTI_TRY(tti_mailbox_create(pipe->comm, pipe->slots, pipe->n_slots, &pipe->box));
    show_ranks(x, pipe->box);
    return TUTTI_OK;
}

tutti_status tti_pipe_create(tti_exec *x, tti_pipe **out) {
    *out = NULL;
    tti_pipe *pipe = calloc(1, sizeof *pipe);
    if (!pipe) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    pipe->stages = x->desc.plan->stages;
    pipe->comm = x->desc.mesh->pipeline;
    tutti_status st = build(x, pipe);
    if (st != TUTTI_OK) {
        tti_pipe_destroy(pipe);
        return st;
    }
    *out = pipe;
    return TUTTI_OK;
}

static void side_fini(tti_pipe_side *side) {
    tti_pipe_schedule_fini(&side->schedule);
    free(side->in);
    free(side->out);
    free(side->flat);
}

void tti_pipe_destroy(tti_pipe *pipe) {
    if (!pipe) return;
    tti_mailbox_destroy(pipe->box);
    side_fini(&pipe->train);
    side_fini(&pipe->eval);
    free(pipe->slots);
    free(pipe->waves);
    free(pipe);
}

size_t tti_pipe_bytes(const tti_pipe *pipe) { return tti_mailbox_bytes(pipe->box); }
double tti_pipe_bubble_measured(const tti_pipe *pipe) { return pipe->measured; }
double tti_pipe_bubble_expected(const tti_pipe *pipe) { return pipe->expected; }
const double *tti_pipe_busy(const tti_pipe *pipe) { return pipe->busy; }

/* ---- a step ---- */

typedef struct pipe_run {
    tti_exec *x;
    const tti_step_desc *desc;
    tti_pipe_side *side;
    bool eval;
} pipe_run;

/* A part of one shard. */
typedef struct pipe_part {
    tti_lane *lane; /* of the wave in flight */
    tti_instance *instance;
    int index, shard; /* of the lane; global number */
    tti_pipe_action action;
    tti_range steps; /* of the part, all or those between two joins */
} pipe_part;

int tti_pipe_slot(const tti_exec *x, const tti_pipe_end *end, int wave, int lane) {
    return end->first_slot + wave % end->depth * x->desc.n_lanes + lane;
}

static int slot_of(const pipe_run *r, const tti_pipe_end *end, const pipe_part *part) {
    return tti_pipe_slot(r->x, end, part->action.wave, part->index);
}

static bool is_timed(const pipe_run *r, const pipe_part *part) {
    return r->x->profile && !r->eval && part->index == 0;
}

/* What other stages have made, to where the part reads it. */
static tutti_status receive(const pipe_run *r, const pipe_part *part) {
    for (int i = 0; i < r->side->n_in; i++) {
        const tti_pipe_end *end = &r->side->in[i];
        const void *data;
        if (end->part != part->action.part) continue;
        int64_t start = tti_now_ns();
        TTI_TRY(tti_mailbox_wait(r->x->pipe->box, slot_of(r, end, part), &data));
        if (is_timed(r, part))
            tti_profile_add(r->x, TTI_ROW_COMPUTE, tti_part_wait("waiting for another stage"),
                            part->shard, start, tti_now_ns());
        tti_instance_set_input(part->instance, end->input, data);
    }
    return TUTTI_OK;
}

static tutti_status put(const pipe_run *r, const tti_pipe_end *end, const pipe_part *part) {
    const tti_span what = {.part = tti_part_stages("values to another stage"),
                           .shard = part->shard,
                           .row = TTI_ROW_STAGES};
    int64_t start = tti_now_ns();
    TTI_TRY(tti_mailbox_put(r->x->pipe->box, slot_of(r, end, part),
                            tti_instance_output(part->instance, end->name)));
    if (is_timed(r, part))
        tti_profile_stall(r->x, &what, "waiting for values to leave", start, tti_now_ns());
    return TUTTI_OK;
}

static tutti_status hand_on(const pipe_run *r, const pipe_part *part) {
    for (int i = 0; i < r->side->n_in; i++)
        if (r->side->in[i].last_part == part->action.part)
            tti_mailbox_free(r->x->pipe->box, slot_of(r, &r->side->in[i], part));
    for (int i = 0; i < r->side->n_out; i++) {
        const tti_pipe_end *end = &r->side->out[i];
        if (end->part == part->action.part) TTI_TRY(put(r, end, part));
    }
    return TUTTI_OK;
}

/* Buckets are reduced beside the last wave, as it completes them. */
static bool tells(const pipe_run *r, int wave) {
    return !r->eval && r->x->overlap && wave == r->x->pipe->n_waves - 1;
}

typedef struct telling {
    tti_exec *x;
    tti_lane *lane;
    int shard;
    bool tells, timed;
    tti_traffic *moves; /* NULL: none */
    int last;           /* behind the steps of the range */
    int64_t last_ns;    /* end of the step before */
} telling;

static void arrive(const telling *told, int step) {
    tti_traffic_arrive(told->moves, told->lane->reached = step);
}

static void await(telling *told, int step) {
    tti_exec_await(told->x, told->moves, step, told->shard, told->timed ? &told->last_ns : NULL);
}

/* Before other stages wait for what cannot be made: they hear why, and at once. */
static tutti_status check_moves(const telling *told) {
    return told->moves ? tti_traffic_check(told->moves) : TUTTI_OK;
}

static void after_step(int step, void *user) {
    telling *told = user;
    if (told->timed) tti_exec_time_step(told->x, told->lane, step, told->shard, &told->last_ns);
    if (told->tells) tti_exec_tell_buckets(told->x, told->lane, step);
    if (!told->moves) return;
    arrive(told, step + 1);
    if (step + 1 < told->last) await(told, step + 1); /* else in the next range */
}

static bool is_joined(const pipe_run *r) { return r->x->pipe->stages->is_joined && !r->eval; }

/* Each part of each wave fetches its parameters, with moves of its own. */
static bool fetches_by_part(const pipe_run *r) {
    return tti_exec_has_lean_params(r->x) && !is_joined(r);
}

/* What a wave waits for: parameters, joins, or the places of the last wave's gradients. */
static tti_traffic *moves_of(const pipe_run *r, int wave) {
    tti_lean *lean = r->x->lean;
    if (!lean) return NULL;
    if (r->eval) return lean->eval_moves;
    bool all = lean->params || is_joined(r);
    return all || wave == r->x->pipe->n_waves - 1 ? lean->moves : NULL;
}

/* Its gradients lie in places until they are summed, which is done beside it. */
static bool is_summed(const pipe_run *r, int wave) {
    return r->x->lean && !r->eval && wave == r->x->pipe->n_waves - 1;
}

static bool begins(const pipe_run *r, const pipe_part *part) {
    return (int)part->steps.first == r->side->program->part_first[part->action.part];
}

static bool ends(const pipe_run *r, const pipe_part *part) {
    return (int)part->steps.last == r->side->program->part_first[part->action.part + 1];
}

static tutti_status compute_part(const pipe_run *r, const pipe_part *part) {
    tti_exec *x = r->x;
    int p = part->action.part;
    bool backward = p >= x->pipe->stages->n_chunks;
    tti_run run = tti_exec_shard_run(x, r->desc, part->shard);
    int64_t start = tti_now_ns();
    if (begins(r, part) && TTI_FAULT_AT(backward ? "pipe.backward" : "pipe.forward",
                                        x->pipe->stages->stage, (int64_t)r->desc->step))
        return tti_fail(TUTTI_E_INTERNAL, "pipeline: stage %d cannot compute",
                        x->pipe->stages->stage);
    telling told = {.x = x, .lane = part->lane, .shard = part->shard, .last_ns = start};
    told.tells = tells(r, part->action.wave);
    told.timed = is_timed(r, part);
    told.moves = moves_of(r, part->action.wave);
    told.last = (int)part->steps.last;
    if (told.moves && part->lane->reached < (int)part->steps.first)
        arrive(&told, (int)part->steps.first);
    if (told.moves) await(&told, (int)part->steps.first);
    TTI_TRY(check_moves(&told));
    TTI_TRY(
        tti_instance_run_range(part->instance, &run, (int)part->steps.first, (int)part->steps.last,
                               told.tells || told.timed || told.moves ? after_step : NULL, &told));
    int64_t end = tti_now_ns();
    int64_t exchanged_ns = tti_instance_take_exchanged(part->instance);
    TTI_TRY(check_moves(&told));
    if (part->index == 0) x->pipe->busy_ns += end - start;
    if (part->index == 0) tti_exec_waited(x, exchanged_ns);
    if (told.timed)
        tti_profile_add(x, TTI_ROW_PARTS, tti_part_other(backward ? "backward" : "forward"),
                        part->shard, start, end);
    return TUTTI_OK;
}

static tutti_status run_part(const pipe_run *r, const pipe_part *part, const tti_wave *wave) {
    tti_exec *x = r->x;
    int p = part->action.part;
    if (p == 0 && begins(r, part))
        tti_exec_feed(x, part->instance, r->eval ? &x->eval_inputs : &x->shard_inputs,
                      &r->desc->shards[part->shard - x->first_shard]);
    if (begins(r, part)) TTI_TRY(receive(r, part));
    if (!r->eval) tti_exec_point_at_buffer(x, part->instance, wave->buffer[part->index]);
    TTI_TRY(compute_part(r, part));
    if (!ends(r, part)) return TUTTI_OK;
    TTI_TRY(hand_on(r, part));
    if (p == r->side->program->n_parts - 1) tti_exec_keep_sums(x, part->instance, part->shard);
    return TUTTI_OK;
}

/* Before a last wave without a shard for each lane: what is summed beside it is also of lanes that
 * have none there, and have to be done. */
static bool is_waited_for(const pipe_run *r, int wave) {
    const tti_pipe *pipe = r->x->pipe;
    return wave == pipe->n_waves - 2 && pipe->waves[wave + 1].n_shards < r->x->desc.n_lanes;
}

/* After a part of a wave: its gradients, where they complete subtrees.  Of the last one the
 * reduction beside it does that, or the moves. */
static void merge(const pipe_run *r, int lane, const tti_pipe_action *action) {
    tti_exec *x = r->x;
    const tti_wave *wave = &x->pipe->waves[action->wave];
    tti_range flat = r->side->flat[action->part];
    bool beside = tells(r, action->wave) || is_summed(r, action->wave);
    bool nothing = wave->n_merges == 0 && !is_waited_for(r, action->wave);
    if (r->eval || beside || nothing || flat.first == flat.last) return;
    tti_range mine = tti_lane_range(flat.last - flat.first, 16, lane, x->desc.n_lanes);
    tti_lanes_barrier(x->lanes);
    tti_exec_merge(x, wave, flat.first + mine.first, flat.first + mine.last);
    tti_lanes_barrier(x->lanes);
}

/* The instances of a lane in a wave. */
static tti_lane *lane_of(const pipe_run *r, int wave, int index) {
    int own = TTI_MAX(wave - r->x->pipe->n_idle, 0);
    return &r->x->lane[own % r->side->schedule.n_in_flight * r->x->desc.n_lanes + index];
}

/* All lanes of the last wave have told of all buckets, and no move waits for them. */
static void tell_rest(const pipe_run *r, int index) {
    int wave = r->x->pipe->n_waves - 1;
    tti_lane *lane = lane_of(r, wave, index);
    if (index >= r->x->pipe->waves[wave].n_shards) return;
    if (tells(r, wave)) tti_exec_tell_rest(r->x, lane);
    if (moves_of(r, wave) && !fetches_by_part(r))
        tti_traffic_leave(moves_of(r, wave), lane->reached + 1);
}

/* Sums of gradients go on beside the last wave, or beside all shards at once. */
static void begin_moves(const pipe_run *r) {
    const tti_pipe *pipe = r->x->pipe;
    int n_shards = pipe->waves[pipe->n_waves - 1].n_shards;
    for (int i = 0; i < r->x->n_in_flight; i++) r->x->lane[i].reached = -1;
    if (is_joined(r)) n_shards = r->x->last_shard - r->x->first_shard;
    if (!r->eval && !fetches_by_part(r)) tti_lean_begin(r->x, false, n_shards, true);
}

/* A shard that failed, or has nothing to do, keeps no move of its wave from being made. */
static void arrive_upto(const pipe_run *r, int index, int wave, int step) {
    tti_lane *lane = lane_of(r, wave, index);
    if (!moves_of(r, wave) || index >= r->x->pipe->waves[wave].n_shards) return;
    while (lane->reached < step) tti_traffic_arrive(moves_of(r, wave), ++lane->reached);
}

/* The steps of an action, for this lane's shard of the wave, if there is one. */
static void run_action(const pipe_run *r, int index, const tti_pipe_action *action,
                       tti_range steps) {
    tti_exec *x = r->x;
    const tti_wave *wave = &x->pipe->waves[action->wave];
    tti_lane *lane = lane_of(r, action->wave, index);
    pipe_part part = {.lane = lane,
                      .instance = r->eval ? lane->eval : lane->shard,
                      .index = index,
                      .shard = wave->first + index,
                      .action = *action,
                      .steps = steps};
    if (index >= wave->n_shards || lane->status != TUTTI_OK) return;
    tutti_status st = run_part(r, &part, wave);
    if (st == TUTTI_OK) return;
    tti_exec_lane_failed(x, lane, st);
    tti_mailbox_fail(x->pipe->box, st);
}

static tti_range steps_of(const pipe_run *r, int part) {
    const int *first = r->side->program->part_first;
    return (tti_range){(size_t)first[part], (size_t)first[part + 1]};
}

/* Beside moves a join is one of them. */
static void join_at(const pipe_run *r, int index, int sync) {
    tti_exec *x = r->x;
    for (int w = 0; x->lean && w < x->pipe->n_waves; w++)
        arrive_upto(r, index, w, x->syncs[sync] + 1);
    if (x->lean) return;
    tti_lanes_barrier(x->lanes);
    if (index == 0) {
        tutti_status st = tti_exec_join(x, sync);
        if (st != TUTTI_OK) tti_exec_lane_failed(x, &x->lane[0], st);
    }
    tti_lanes_barrier(x->lanes);
}

/* The steps between two joins: with moves all shards of the lane come to where one would wait. */
static void run_between(const pipe_run *r, int index, int part, tti_range steps) {
    const tti_pipe *pipe = r->x->pipe;
    tti_range turn = {steps.first, steps.last};
    do {
        if (r->x->lean) {
            int stop = tti_traffic_next_stop(r->x->lean->moves, (int)turn.first);
            turn.last = TTI_MIN((size_t)stop, steps.last);
        }
        for (int w = 0; w < pipe->n_waves; w++) {
            run_action(r, index, &(tti_pipe_action){w, part}, turn);
            arrive_upto(r, index, w, (int)turn.last);
        }
        turn.first = turn.last;
    } while (turn.last < steps.last);
}

/* All shards come to a join before any goes on, failed or not: other workers wait there too. */
static void run_joined_part(const pipe_run *r, int index, int part) {
    tti_exec *x = r->x;
    tti_range all = steps_of(r, part);
    size_t first = all.first;
    for (int i = 0; i <= x->n_syncs; i++) {
        size_t join = i < x->n_syncs ? (size_t)x->syncs[i] : all.last;
        if (i < x->n_syncs && (join < all.first || join >= all.last)) continue;
        run_between(r, index, part, (tti_range){first, join});
        if (i < x->n_syncs) join_at(r, index, i);
        first = join + 1;
    }
}

/* Part by part; gradients, of which each shard has all, are added at the end. */
static void run_joined(const pipe_run *r, int index) {
    tti_exec *x = r->x;
    tti_range mine = tti_lane_range(x->desc.plan->n_flat, 16, index, x->desc.n_lanes);
    for (int w = 0; w < x->pipe->n_waves; w++) arrive_upto(r, index, w, 0);
    for (int p = 0; p < r->side->program->n_parts; p++) run_joined_part(r, index, p);
    if (x->lean) return; /* they were beside the last parts */
    tti_lanes_barrier(x->lanes);
    tti_exec_merge(x, &x->acc.waves[0], mine.first, mine.last);
    tti_lanes_barrier(x->lanes);
}

/* Every lane comes here: parameters are in places while this part of one wave runs, so all workers
 * of this stage run the same parts in the same order, some without a shard. */
static void run_fetching(const pipe_run *r, int index, const tti_pipe_action *action) {
    tti_exec *x = r->x;
    const tti_wave *wave = &x->pipe->waves[action->wave];
    tti_range steps = steps_of(r, action->part);
    if (index < wave->n_shards) lane_of(r, action->wave, index)->reached = (int)steps.first - 1;
    if (index == 0)
        tti_lean_begin_part(x, r->eval, action->part, wave->n_shards, is_summed(r, action->wave));
    tti_lanes_barrier(x->lanes);
    arrive_upto(r, index, action->wave, (int)steps.first); /* they come while others compute */
    run_action(r, index, action, steps);
    arrive_upto(r, index, action->wave, (int)steps.last);
    tti_lanes_barrier(x->lanes);
    if (index > 0) return;
    tutti_status st = tti_lean_finish(x, r->eval);
    if (st == TUTTI_OK) return;
    tti_exec_lane_failed(x, &x->lane[0], st);
    tti_mailbox_fail(x->pipe->box, st);
}

static void run_lane(int index, void *arg) {
    pipe_run *r = arg;
    if (is_joined(r)) run_joined(r, index);
    for (int i = 0; !is_joined(r) && i < r->side->schedule.n_actions; i++) {
        const tti_pipe_action *action = &r->side->schedule.actions[i];
        if (fetches_by_part(r))
            run_fetching(r, index, action);
        else
            run_action(r, index, action, steps_of(r, action->part));
        merge(r, index, action);
    }
    tell_rest(r, index);
}

/* How long all stages computed of the time that the slowest took. */
tutti_status tti_pipe_measure(tti_exec *x, int64_t busy_ns, int64_t span_ns) {
    tti_pipe *pipe = x->pipe;
    int n = pipe->stages->n_stages;
    double times[2 * TTI_MAX_PIECES_OF_MODEL] = {0}, busy = 0, span = 0;
    int64_t start = tti_now_ns();
    times[2 * pipe->stages->stage] = (double)busy_ns;
    times[2 * pipe->stages->stage + 1] = (double)span_ns;
    TTI_TRY(tutti_comm_all_reduce(pipe->comm, times, times, 2 * (size_t)n, TUTTI_F64, TUTTI_SUM,
                                  TUTTI_ALG_AUTO));
    tti_exec_waited(x, TTI_MAX(span_ns - busy_ns, 0) + tti_now_ns() - start);
    for (int s = 0; s < n; s++) {
        busy += times[2 * s];
        span = TTI_MAX(span, times[2 * s + 1]);
    }
    pipe->measured = span > 0 ? 1 - busy / (span * n) : 0;
    for (int s = 0; s < n; s++) pipe->busy[s] = span > 0 ? times[2 * s] / span : 0;
    return TUTTI_OK;
}

/* Before any shard: others must not wait for what this stage was to add. */
static tutti_status give_up(const pipe_run *r, tutti_status status) {
    for (int i = 0; i < r->x->desc.n_lanes; i++) tell_rest(r, i);
    if (!r->eval && tti_lean_finish(r->x, false) != TUTTI_OK) tti_clear_error();
    TTI_TRY(tti_exec_lane_status(r->x));
    return status;
}

tutti_status tti_pipe_compute(tti_exec *x, const tti_step_desc *desc, bool eval) {
    tti_pipe *pipe = x->pipe;
    pipe_run r = {x, desc, eval ? &pipe->eval : &pipe->train, eval};
    int64_t start = tti_now_ns();
    pipe->busy_ns = 0;
    tutti_status before = tti_exec_lane_status(x);
    for (int i = 0; i < x->n_in_flight; i++) x->lane[i].next_bucket = 0;
    begin_moves(&r);
    if (before != TUTTI_OK) {
        tti_mailbox_fail(pipe->box, before);
        if (!is_joined(&r) && !fetches_by_part(&r)) return give_up(&r, before);
    }
    tti_lanes_run(x->lanes, run_lane, &r);
    tutti_status moved = eval || fetches_by_part(&r) ? TUTTI_OK : tti_lean_finish(x, false);
    TTI_TRY(tti_exec_lane_status(x));
    TTI_TRY(moved);
    return eval ? TUTTI_OK : tti_pipe_measure(x, pipe->busy_ns, tti_now_ns() - start);
}

/* ---- a shard that is looked at ---- */

static tutti_status look_at_part(const pipe_run *r, const pipe_part *part, int *moment, int *step) {
    tti_exec *x = r->x;
    const tti_program *program = r->side->program;
    tti_run run = tti_exec_shard_run(x, r->desc, part->shard);
    int p = part->action.part, found;
    TTI_TRY(receive(r, part));
    TTI_TRY(tti_instance_find_nonfinite(part->instance, &run, program->part_first[p],
                                        program->part_first[p + 1], &found));
    if (*step < 0 && found >= 0) {
        *moment = tti_part_moment(x->pipe->stages, x->pipe->stages->stage, p);
        *step = found;
    }
    return hand_on(r, part);
}

tutti_status tti_pipe_find_nonfinite(tti_exec *x, const tti_step_desc *desc, int shard, int *moment,
                                     int *step) {
    pipe_run r = {x, desc, &x->pipe->train, false};
    pipe_part part = {.instance = x->lane[0].shard, .shard = shard};
    tutti_status st = TUTTI_OK;
    *step = -1;
    tti_exec_feed(x, part.instance, &x->shard_inputs, &desc->shards[shard - x->first_shard]);
    tti_exec_point_at_buffer(x, part.instance, 0);
    for (int p = 0; st == TUTTI_OK && p < r.side->program->n_parts; p++) {
        part.action.part = p;
        st = look_at_part(&r, &part, moment, step);
    }
    if (st != TUTTI_OK) tti_mailbox_fail(x->pipe->box, st);
    return st;
}

/* ---- parameters on several stages ---- */

enum { CHUNK = 1 << 18 }; /* elements that are added before others come to where they lie */

/* The gradients of another stage are added as they come. */
static tutti_status add_of(const tti_pipe *pipe, int stage, float *sum, size_t n_elems) {
    size_t n_most = TTI_MIN(n_elems, (size_t)CHUNK);
    float *term = malloc(n_most * sizeof *term + 1);
    tutti_status st = term ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "pipeline: %zu elements", n_most);
    for (size_t at = 0; st == TUTTI_OK && at < n_elems; at += CHUNK) {
        size_t n = TTI_MIN(n_elems - at, (size_t)CHUNK);
        st = tutti_comm_recv(pipe->comm, term, n, TUTTI_F32, stage);
        for (size_t i = 0; st == TUTTI_OK && i < n; i++) sum[at + i] += term[i];
    }
    free(term);
    return st;
}

static tutti_status send_to_add(const tti_pipe *pipe, int stage, const float *term,
                                size_t n_elems) {
    for (size_t at = 0; at < n_elems; at += CHUNK)
        TTI_TRY(tutti_comm_send(pipe->comm, term + at, TTI_MIN(n_elems - at, (size_t)CHUNK),
                                TUTTI_F32, stage));
    return TUTTI_OK;
}

/* The first stage adds the others' gradients in their order and gives them the sum. */
static tutti_status sum_on_first(const tti_pipe *pipe, uint64_t stages, float *sum,
                                 size_t n_elems) {
    for (int s = pipe->stages->stage + 1; s < pipe->stages->n_stages; s++)
        if (stages >> s & 1) TTI_TRY(add_of(pipe, s, sum, n_elems));
    for (int s = pipe->stages->stage + 1; s < pipe->stages->n_stages; s++)
        if (stages >> s & 1) TTI_TRY(tutti_comm_send(pipe->comm, sum, n_elems, TUTTI_F32, s));
    return TUTTI_OK;
}

tutti_status tti_pipe_sum_shared(const tti_pipe *pipe, const tti_tied_param *tied,
                                 const tti_slot *slot, float *grads) {
    if (!slot->is_copy) return sum_on_first(pipe, tied->stages, grads, slot->n_elems);
    int first = __builtin_ctzll(tied->stages);
    TTI_TRY(send_to_add(pipe, first, grads, slot->n_elems));
    return tutti_comm_recv(pipe->comm, grads, slot->n_elems, TUTTI_F32, first);
}

const tti_slot *tti_pipe_tied_slot(const tti_exec *x, const tti_tied_param *tied) {
    int index = tti_plan_find_slot(x->desc.plan, tied->name);
    return index < 0 ? NULL : &x->desc.plan->slots[index];
}

bool tti_pipe_has_tied(const tti_exec *x, size_t first, size_t n_elems) {
    for (int i = 0; x->pipe && i < x->pipe->stages->n_tied; i++) {
        const tti_slot *slot = tti_pipe_tied_slot(x, &x->pipe->stages->tied[i]);
        if (slot && slot->first < first + n_elems && first < slot->first + slot->n_elems)
            return true;
    }
    return false;
}

tutti_status tti_pipe_sum_tied(tti_exec *x, float *grads) {
    const tti_stages *stages = x->pipe->stages;
    if (stages->n_tied == 0) return TUTTI_OK;
    int64_t start = tti_now_ns();
    for (int i = 0; i < stages->n_tied; i++) {
        const tti_slot *slot = tti_pipe_tied_slot(x, &stages->tied[i]);
        if (slot)
            TTI_TRY(tti_pipe_sum_shared(x->pipe, &stages->tied[i], slot, grads + slot->first));
    }
    tti_profile_add(x, TTI_ROW_COMM, tti_part_grads("gradients of shared parameters"), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

/* pipe.c - runs a worker's shards through its pipeline stage.
 *
 * A micro-batch group has one shard for each compute thread, and each micro-batch group in flight
 * has its own instances. A segment reads a value of another stage directly from the mailbox slot
 * that the sender wrote, and the slot is freed after the last segment that reads it. There are as
 * many slots as micro-batch groups in flight on the earlier of the two stages. So in training no
 * stage waits for an empty slot: that stage begins a micro-batch group only after the slot's
 * previous micro-batch group has returned.
 *
 * Gradients are added along the same tree as without stages (accumulate.c), segment by segment: the
 * gradients that a segment completes are one range, to which the micro-batch groups are added in
 * order. */
#include "exec/worker/pipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

/* ---- building ---- */

tutti_status tti_pipe_count_in_flight(const tti_stages *s, int n_micro_groups, int *n) {
    tti_pipe_shape train = tti_pipe_shape_of(s, n_micro_groups, true);
    tti_pipe_shape eval = tti_pipe_shape_of(s, n_micro_groups, false);
    tti_pipe_schedule schedule;
    TTI_TRY(tti_pipe_schedule_init(&train, s->stage, &schedule));
    *n = schedule.n_in_flight;
    tti_pipe_schedule_fini(&schedule);
    TTI_TRY(tti_pipe_schedule_init(&eval, s->stage, &schedule));
    *n = TTI_MAX(*n, schedule.n_in_flight);
    tti_pipe_schedule_fini(&schedule);
    return TUTTI_OK;
}

int tti_micro_groups_of(int n_shards, int n_compute_threads) {
    return (n_shards + n_compute_threads - 1) / n_compute_threads;
}

int tti_pipe_fit_compute_threads(const tti_stages *s, int n_compute_threads, int n_shards) {
    while (s->n_chunks > 1 && n_compute_threads > 1 &&
           tti_micro_groups_of(n_shards, n_compute_threads) % s->n_stages != 0)
        n_compute_threads--;
    return n_compute_threads;
}

/* Sets n_pipe_groups to the maximum over this stage's workers if parameters are sharded on the
 * host, because then all must gather equally often; else to this worker's number. */
static tutti_status agree_micro_groups(tti_setup *setup) {
    int32_t n = tti_micro_groups_of(setup->last_shard - setup->first_shard,
                                    setup->desc.n_compute_threads),
            most = n;
    if (setup->desc.zero > 2 && setup->n_ranks > 1 && !setup->desc.backend->device)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, &n, &most, 1, TUTTI_I32, TUTTI_MAX,
                                      TUTTI_ALG_AUTO));
    setup->n_pipe_groups = most;
    return TUTTI_OK;
}

tutti_status tti_pipe_agree_compute_threads(tti_setup *setup) {
    int32_t n = setup->desc.n_compute_threads, least = n;
    if (!setup->desc.plan->stages) return TUTTI_OK;
    TTI_ASSERT(setup->desc.mesh && setup->desc.mesh->pipeline);
    TTI_TRY(tutti_comm_all_reduce(setup->desc.mesh->pipeline, &n, &least, 1, TUTTI_I32, TUTTI_MIN,
                                  TUTTI_ALG_AUTO));
    setup->desc.n_compute_threads = tti_pipe_fit_compute_threads(
        setup->desc.plan->stages, least, setup->last_shard - setup->first_shard);
    return agree_micro_groups(setup);
}

/* Joined shards wait for each other, so all of them are in flight at the same time. */
int tti_pipe_width(const tti_stages *s, int n_compute_threads, int n_local) {
    return s->is_joined ? n_local : n_compute_threads;
}

/* The number of slots of a stage boundary: the largest number of micro-batch groups that can be
 * between its two ends. */
static tutti_status depth_of(const tti_stages *s, int n_micro_groups, const tti_stage_boundary *c,
                             bool training, int *depth) {
    int last = 2 * tti_stages_n_all_chunks(s) - 1;
    int earlier = TTI_MIN(TTI_MIN(c->from, last - c->from), TTI_MIN(c->to, last - c->to));
    tti_stages at = {.stage = tti_sched_slot_stage(s, earlier),
                     .n_stages = s->n_stages,
                     .n_chunks = s->n_chunks,
                     .is_joined = s->is_joined};
    *depth = s->n_chunks > 1 ? 2 * s->n_stages : 2;
    if (training) TTI_TRY(tti_pipe_count_in_flight(&at, n_micro_groups, depth));
    *depth = TTI_MIN(*depth, n_micro_groups);
    return TUTTI_OK;
}

static tutti_status add_slots(const tti_stages *s, int n_micro_groups, int n_compute_threads,
                              bool training, size_t *n_bytes) {
    const tti_stage_boundaries *boundaries = training ? &s->train : &s->eval;
    for (int i = 0; i < boundaries->n; i++) {
        const tti_stage_boundary *c = &boundaries->of[i];
        int depth;
        if (tti_sched_slot_stage(s, c->to) != s->stage) continue;
        TTI_TRY(depth_of(s, n_micro_groups, c, training, &depth));
        *n_bytes += tti_mailbox_room(c->n_bytes) * (size_t)(depth * n_compute_threads);
    }
    return TUTTI_OK;
}

tutti_status tti_pipe_slot_bytes(const tti_plan *plan, int n_micro_groups, int n_compute_threads,
                                 size_t *n_bytes) {
    *n_bytes = 0;
    TTI_TRY(add_slots(plan->stages, n_micro_groups, n_compute_threads, true, n_bytes));
    return plan->eval.graph
               ? add_slots(plan->stages, n_micro_groups, n_compute_threads, false, n_bytes)
               : TUTTI_OK;
}

static bool reads(const tti_node *node, const tutti_value *value) {
    for (int k = 0; k < node->n_in; k++)
        if (tti_skip_views(node->in[k]) == value) return true;
    return false;
}

static int last_segment_of(const tti_program *program, const tutti_value *value, int segment) {
    for (int p = segment; p < program->n_segments; p++)
        for (int s = program->segment_first[p]; s < program->segment_first[p + 1]; s++)
            if (reads(program->steps[s], value)) segment = p;
    return segment;
}

/* Adds this stage's end of stage boundary i, if it has one. */
static void add_end(tti_pipe_side *side, const tti_stages *s, const tti_stage_boundary *c, int i,
                    const tti_pipe_end *slots) {
    tti_pipe_end end = *slots;
    snprintf(end.name, sizeof end.name, "%s.%d",
             tti_sched_slot_is_backward(s, c->from) ? "back" : "pipe", i);
    if (tti_sched_slot_stage(s, c->to) == s->stage) {
        const tti_node *node = tti_graph_find_source(side->program->graph, end.name);
        TTI_ASSERT(node != NULL);
        end.input = tti_program_input(side->program, end.name);
        end.segment = tti_sched_slot_segment(s, c->to);
        end.last_segment = last_segment_of(side->program, node->out[0], end.segment);
        side->in[side->n_in++] = end;
    } else if (tti_sched_slot_stage(s, c->from) == s->stage) {
        end.segment = tti_sched_slot_segment(s, c->from);
        side->out[side->n_out++] = end;
    }
}

/* Finds the range of the flat gradients that each segment completes. The plan's slots are in the
 * order of completion. */
static tutti_status find_flat(const tti_plan *plan, tti_pipe_side *side) {
    const tti_program *program = side->program;
    side->flat = calloc((size_t)program->n_segments + 1, sizeof *side->flat);
    if (!side->flat) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    int slot = 0;
    for (int p = 0; program == &plan->shard && p < program->n_segments; p++) {
        size_t first = slot < plan->n_slots ? plan->slots[slot].first : plan->n_flat;
        while (slot < plan->n_slots &&
               plan->slots[slot].ready_after < program->segment_first[p + 1])
            slot++;
        size_t last = slot < plan->n_slots ? plan->slots[slot].first : plan->n_flat;
        side->flat[p] = (tti_range){first, last};
    }
    return TUTTI_OK;
}

/* Adds the ends of a program's stage boundaries, and appends their mailbox slots. The slots are
 * equal on every stage. */
static tutti_status build_side(const tti_plan *plan, int n_compute_threads, tti_pipe *pipe,
                               tti_pipe_side *side) {
    const tti_stages *s = plan->stages;
    bool training = side == &pipe->train;
    const tti_program *program = training ? &plan->shard : &plan->eval;
    const tti_stage_boundaries *boundaries = training ? &s->train : &s->eval;
    tti_pipe_shape shape = tti_pipe_shape_of(s, pipe->n_micro_groups, training);
    side->program = program;
    TTI_TRY(tti_pipe_schedule_init(&shape, s->stage, &side->schedule));
    side->schedule.n_in_flight =
        TTI_MIN(side->schedule.n_in_flight, pipe->n_micro_groups - pipe->n_idle);
    TTI_TRY(find_flat(plan, side));
    side->in = calloc((size_t)boundaries->n + 1, sizeof *side->in);
    side->out = calloc((size_t)boundaries->n + 1, sizeof *side->out);
    if (!side->in || !side->out) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int i = 0; i < boundaries->n; i++) {
        const tti_stage_boundary *c = &boundaries->of[i];
        tti_pipe_end end = {.first_slot = pipe->n_slots, .n_bytes = c->n_bytes};
        TTI_TRY(depth_of(s, pipe->n_micro_groups, c, training, &end.depth));
        int n = end.depth * n_compute_threads;
        tti_mailbox_slot *more = realloc(pipe->slots, (size_t)(pipe->n_slots + n) * sizeof *more);
        if (!more) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
        pipe->slots = more;
        for (int k = 0; k < n; k++)
            more[pipe->n_slots++] = (tti_mailbox_slot){.to = tti_sched_slot_stage(s, c->to),
                                                       .n_bytes = c->n_bytes,
                                                       .from = tti_sched_slot_stage(s, c->from)};
        add_end(side, s, c, i, &end);
    }
    return TUTTI_OK;
}

static tutti_status build_sides(const tti_plan *plan, int n_compute_threads, tti_pipe *pipe) {
    TTI_TRY(build_side(plan, n_compute_threads, pipe, &pipe->train));
    return plan->eval.graph ? build_side(plan, n_compute_threads, pipe, &pipe->eval) : TUTTI_OK;
}

tutti_status tti_pipe_plan(const tti_plan *plan, int n_compute_threads, int n_micro_groups,
                           int n_idle, tti_pipe **out) {
    tti_pipe *pipe = *out = calloc(1, sizeof *pipe);
    if (!pipe) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    *pipe = (tti_pipe){.stages = plan->stages, .n_micro_groups = n_micro_groups, .n_idle = n_idle};
    return build_sides(plan, n_compute_threads, pipe);
}

tutti_status tti_pipe_create(const tti_setup *setup, tti_pipe **out) {
    tti_pipe *pipe = *out = calloc(1, sizeof *pipe);
    if (!pipe) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    pipe->stages = setup->desc.plan->stages;
    pipe->comm = setup->desc.mesh->pipeline;
    const tti_plan *plan = setup->desc.plan;
    /* The micro-batch groups are those of the gradient buffers or, if all shards have their own
     * buffers, one shard per compute thread. Groups that only other workers have come first. */
    const tti_accumulation *acc = &setup->acc;
    int n_local = setup->last_shard - setup->first_shard,
        n_compute_threads = setup->desc.n_compute_threads;
    bool joined = pipe->stages->is_joined;
    pipe->n_micro_groups = setup->n_pipe_groups;
    pipe->n_idle = pipe->n_micro_groups - tti_micro_groups_of(n_local, n_compute_threads);
    pipe->micro_groups = calloc((size_t)pipe->n_micro_groups + 1, sizeof *pipe->micro_groups);
    pipe->busy = calloc((size_t)pipe->stages->n_stages, sizeof *pipe->busy);
    pipe->times = calloc(2 * (size_t)pipe->stages->n_stages, sizeof *pipe->times);
    if (!pipe->micro_groups || !pipe->busy || !pipe->times)
        return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    tti_micro_group *own = pipe->micro_groups + pipe->n_idle;
    for (int w = 0; !joined && w < acc->n_micro_groups; w++) own[w] = acc->micro_groups[w];
    for (int s = 0; joined && s < n_local; s++) {
        tti_micro_group *micro_group = &own[s / n_compute_threads];
        if (micro_group->n_shards == 0) micro_group->first = setup->first_shard + s;
        micro_group->buffer[micro_group->n_shards++] = acc->micro_groups[0].buffer[s];
    }
    tti_pipe_shape shape = tti_pipe_shape_of(plan->stages, pipe->n_micro_groups, true);
    TTI_TRY(tti_pipe_bubble(&shape, plan->stages->cost, &pipe->expected));
    TTI_TRY(build_sides(plan, setup->desc.n_compute_threads, pipe));
    TTI_TRY(tti_mailbox_create(pipe->comm, pipe->slots, pipe->n_slots, &pipe->box));
    /* Timeout messages show the numbers of workers instead of stages. */
    int *global_ranks = calloc((size_t)setup->desc.mesh->size.stage, sizeof *global_ranks);
    if (!global_ranks) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    tti_mesh_at at = setup->desc.mesh->at;
    for (at.stage = 0; at.stage < setup->desc.mesh->size.stage; at.stage++)
        global_ranks[at.stage] = tti_mesh_rank(&setup->desc.mesh->size, &at);
    tti_mailbox_set_global_ranks(pipe->box, global_ranks);
    free(global_ranks);
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
    free(pipe->micro_groups);
    free(pipe->busy);
    free(pipe->times);
    free(pipe);
}

/* ---- a step ---- */

int tti_pipe_slot(const tti_setup *setup, const tti_pipe_end *end, int micro_group,
                  int compute_thread) {
    return end->first_slot + micro_group % end->depth * setup->desc.n_compute_threads +
           compute_thread;
}

static int slot_of(const tti_setup *setup, const tti_pipe_end *end,
                   const tti_pipe_segment *segment) {
    return tti_pipe_slot(setup, end, segment->action.micro_group, segment->index);
}

tutti_status tti_pipe_receive(tti_exec *x, const tti_pipe_segment *segment) {
    for (int i = 0; i < segment->side->n_in; i++) {
        const tti_pipe_end *end = &segment->side->in[i];
        const void *data;
        if (end->segment != segment->action.segment) continue;
        int64_t start = tti_now_ns();
        TTI_TRY(
            tti_mailbox_wait(tti_pipe_of(x)->box, slot_of(tti_setup_of(x), end, segment), &data));
        if (segment->timed)
            tti_profile_add(x, TTI_ROW_COMPUTE,
                            tti_span_of(TTI_SPAN_WAIT, "waiting for another stage"), segment->shard,
                            start, tti_now_ns());
        tti_instance_set_input(segment->instance, end->input, data);
    }
    return TUTTI_OK;
}

tutti_status tti_pipe_send(tti_exec *x, const tti_pipe_segment *segment) {
    const tti_pipe_side *side = segment->side;
    for (int i = 0; i < side->n_in; i++)
        if (side->in[i].last_segment == segment->action.segment)
            tti_mailbox_free(tti_pipe_of(x)->box, slot_of(tti_setup_of(x), &side->in[i], segment));
    for (int i = 0; i < side->n_out; i++)
        if (side->out[i].segment == segment->action.segment) {
            const tti_span what = {
                .id = tti_instr_span(TTI_SEND), .shard = segment->shard, .row = TTI_ROW_STAGES};
            int64_t start = tti_now_ns();
            TTI_TRY(tti_mailbox_put(tti_pipe_of(x)->box,
                                    slot_of(tti_setup_of(x), &side->out[i], segment),
                                    tti_instance_output(segment->instance, side->out[i].name)));
            if (segment->timed)
                tti_profile_stall(x, &what, "waiting for values to be sent", start, tti_now_ns());
        }
    return TUTTI_OK;
}

void tti_pipe_begin(tti_pipe *pipe, tutti_status before) {
    pipe->busy_ns = 0;
    if (before != TUTTI_OK) tti_mailbox_fail(pipe->box, before);
}

/* Computes the fraction of the longest span of any stage that each stage computed. */
tutti_status tti_pipe_measure(tti_exec *x, int64_t busy_ns, int64_t span_ns) {
    tti_pipe *pipe = tti_pipe_of(x);
    int n = pipe->stages->n_stages;
    double busy = 0, span = 0, *times = pipe->times;
    int64_t start = tti_now_ns();
    memset(times, 0, 2 * (size_t)n * sizeof *times);
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

/* ---- recomputing a shard to find a non-finite value ---- */

static tutti_status look_at_segment(tti_exec *x, const tti_run *run,
                                    const tti_pipe_segment *segment, int *sched_slot, int *step) {
    tti_pipe *pipe = tti_pipe_of(x);
    const int *segment_first = segment->side->program->segment_first;
    int p = segment->action.segment, found;
    TTI_TRY(tti_pipe_receive(x, segment));
    TTI_TRY(tti_instance_find_nonfinite(segment->instance, run, segment_first[p],
                                        segment_first[p + 1], &found));
    if (*step < 0 && found >= 0) {
        *sched_slot = tti_sched_slot_of(pipe->stages, pipe->stages->stage, p);
        *step = found;
    }
    return tti_pipe_send(x, segment);
}

tutti_status tti_pipe_find_nonfinite(tti_exec *x, const tti_step_desc *desc, int shard,
                                     int *sched_slot, int *step) {
    const tti_setup *setup = tti_setup_of(x);
    tti_pipe *pipe = tti_pipe_of(x);
    tti_pipe_segment segment = {.side = &pipe->train,
                                .instance = tti_exec_instance(x, 0, false),
                                .shard = shard,
                                .timed = tti_profile_of(x)};
    tti_run run = tti_exec_shard_run(setup, desc, shard);
    tutti_status st = TUTTI_OK;
    *step = -1;
    tti_exec_feed(x, segment.instance, &setup->shard_inputs,
                  &desc->shards[shard - setup->first_shard]);
    tti_exec_point_at_buffer(x, segment.instance, 0);
    for (int p = 0; st == TUTTI_OK && p < segment.side->program->n_segments; p++) {
        segment.action.segment = p;
        st = look_at_segment(x, &run, &segment, sched_slot, step);
    }
    if (st != TUTTI_OK) tti_mailbox_fail(pipe->box, st);
    return st;
}

/* ---- tied parameters: gradients of parameters on several stages ---- */

enum { CHUNK = 1 << 18 }; /* elements that are added before other stages can read them */

tutti_status tti_pipe_reduce_tied_grad(const tti_pipe *pipe, const tti_tied_param *tied,
                                       const tti_slot *slot, float *grads) {
    if (!slot->is_copy) {
        /* The parameter's first stage adds the gradients of the others in order, and returns the
         * sum. */
        for (int k = 1; k < tied->n_stages; k++) {
            /* Adds the gradients of another stage chunk by chunk as they arrive. */
            size_t n_most = TTI_MIN(slot->n_elems, (size_t)CHUNK);
            float *term = malloc(n_most * sizeof *term + 1);
            tutti_status st =
                term ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "pipeline: %zu elements", n_most);
            for (size_t at = 0; st == TUTTI_OK && at < slot->n_elems; at += CHUNK) {
                size_t n = TTI_MIN(slot->n_elems - at, (size_t)CHUNK);
                st = tutti_comm_recv(pipe->comm, term, n, TUTTI_F32, tied->stages[k]);
                for (size_t i = 0; st == TUTTI_OK && i < n; i++) grads[at + i] += term[i];
            }
            free(term);
            TTI_TRY(st);
        }
        for (int k = 1; k < tied->n_stages; k++)
            TTI_TRY(tutti_comm_send(pipe->comm, grads, slot->n_elems, TUTTI_F32, tied->stages[k]));
        return TUTTI_OK;
    }
    int first = tied->stages[0];
    for (size_t at = 0; at < slot->n_elems; at += CHUNK)
        TTI_TRY(tutti_comm_send(pipe->comm, grads + at, TTI_MIN(slot->n_elems - at, (size_t)CHUNK),
                                TUTTI_F32, first));
    return tutti_comm_recv(pipe->comm, grads, slot->n_elems, TUTTI_F32, first);
}

const tti_slot *tti_pipe_find_tied_slot(const tti_plan *plan, const tti_tied_param *tied) {
    int index = tti_plan_find_slot(plan, tied->name);
    return index < 0 ? NULL : &plan->slots[index];
}

bool tti_pipe_has_tied(const tti_plan *plan, size_t first, size_t n_elems) {
    for (int i = 0; plan->stages && i < plan->stages->n_tied; i++) {
        const tti_slot *slot = tti_pipe_find_tied_slot(plan, &plan->stages->tied[i]);
        if (slot && slot->first < first + n_elems && first < slot->first + slot->n_elems)
            return true;
    }
    return false;
}

tutti_status tti_pipe_reduce_tied_grads(tti_exec *x, float *grads) {
    tti_pipe *pipe = tti_pipe_of(x);
    const tti_stages *stages = pipe->stages;
    if (stages->n_tied == 0) return TUTTI_OK;
    int64_t start = tti_now_ns();
    for (int i = 0; i < stages->n_tied; i++) {
        const tti_slot *slot =
            tti_pipe_find_tied_slot(tti_setup_of(x)->desc.plan, &stages->tied[i]);
        if (slot)
            TTI_TRY(tti_pipe_reduce_tied_grad(pipe, &stages->tied[i], slot, grads + slot->first));
    }
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_REDUCE_TIED_GRADS), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

/* device_pipe.c - launches the pipeline schedule of a stage on a device.
 *
 * If devices are connected (device_p2p.h) the host launches all segments of a step without waiting.
 * A segment first waits on the device for its inputs; its results are written to the memory of
 * their readers while the next segments compute. The first step and the first evaluation use the
 * path through the host: a kernel that waits for a peer must not run while another kernel is being
 * loaded.
 *
 * On the path through the host, a segment is launched when its inputs have arrived. Copies overlap
 * with kernels: the copy queue copies inputs to device memory, which is separate for each mailbox
 * slot. The communication queue copies results to pinned memory, and the host copies them to the
 * reader's slot. The results of a segment are sent while the next segment computes. If the next
 * segment waits for another stage they are sent first, because that stage may be waiting for them.
 * The order does not affect the bits. A copy into device memory waits for all segments but the
 * newest, and for the newest too if it reads that memory. */
#include "exec/device/device_step.h"

#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/worker/worker.h"

/* Buffers at one end of a stage boundary for transfers through the host. */
typedef struct boundary_buffers {
    void **staging; /* pinned [2], used alternately; NULL: this end receives values */
    int *reader;    /* [depth]: number of the last segment that reads the slot */
} boundary_buffers;

/* For joined shards: a range of steps that every shard runs before any shard continues. */
typedef struct step_range {
    int segment;
    tti_range steps;
    int join; /* index in x->syncs of the join after the steps; -1: none */
} step_range;

typedef struct side_buffers {
    tti_pipe_side *side;
    step_range *step_ranges; /* [n_step_ranges], for programs with joins */
    int n_step_ranges;
    boundary_buffers *in, *out; /* [side->n_in], [side->n_out] */
    int *sent_event; /* [in flight][segments]: event after its messages are sent; -1: none */
    bool has_run;    /* all kernels are loaded */
} side_buffers;

/* The segment that runs now. */
typedef struct segment {
    tti_pipe_action action;
    int number; /* position in the schedule of the step */
    tti_instance *instance;
    tti_range steps; /* all steps of the segment, or those between two joins */
} segment;

struct tti_device_pipe {
    tti_exec *x;
    const tti_device_ops *ops;
    tti_device_p2p *p2p;
    side_buffers train, eval;
    bool has_failed;
    int first_timestamp; /* of the last step: one timestamp at its beginning, then a pair per
                            segment, or per part of a segment between two joins */
    int n_timed;         /* number of pairs */
    void *pinned; /* the mailbox slots, which are pinned; NULL: they cannot be pinned, so copies are
                     slower */
    float *shared; /* pinned, with room for the longest tied gradient, which is all-reduced through
                      the host; NULL: not used yet */
};

typedef struct pipe_step {
    tti_device_pipe *pipe;
    const tti_device_pipe_step *desc;
    side_buffers *buffers;
    segment unsent; /* instance NULL: nothing to send */
    int n_runs;     /* runs of kernels between joins so far */
} pipe_step;

enum { N_TURNS = 2 };

/* ---- memory ---- */

static tutti_status make_pinned(const tti_setup *setup, const tti_pipe_end *end,
                                boundary_buffers *buffers) {
    buffers->staging = calloc(N_TURNS, sizeof *buffers->staging);
    if (!buffers->staging) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int i = 0; i < N_TURNS; i++) {
        buffers->staging[i] = setup->desc.backend->device->memory.alloc_host(end->n_bytes);
        if (!buffers->staging[i])
            return tti_fail(TUTTI_E_NOMEM, "pipeline: cannot allocate %zu bytes for a value",
                            end->n_bytes);
    }
    return TUTTI_OK;
}

/* Adds a range of steps, split where parameter or gradient buffers change. */
static void add_step_ranges(const tti_exec *x, side_buffers *buffers, step_range t) {
    int first = (int)t.steps.first, last = (int)t.steps.last, stop;
    for (; (stop = tti_sharded_next_stop(tti_sharded_of(x), first, last)) < last; first = stop)
        buffers->step_ranges[buffers->n_step_ranges++] =
            (step_range){t.segment, {(size_t)first, (size_t)stop}, -1};
    t.steps.first = (size_t)first;
    buffers->step_ranges[buffers->n_step_ranges++] = t;
}

static tutti_status alloc_buffers(tti_exec *x, tti_pipe_side *side, side_buffers *buffers) {
    const tti_setup *setup = tti_setup_of(x);
    buffers->side = side;
    buffers->in = calloc((size_t)side->n_in + 1, sizeof *buffers->in);
    buffers->out = calloc((size_t)side->n_out + 1, sizeof *buffers->out);
    buffers->sent_event = calloc((size_t)(setup->n_in_flight * side->program->n_segments),
                                 sizeof *buffers->sent_event);
    if (!buffers->in || !buffers->out || !buffers->sent_event)
        return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int i = 0; i < side->n_in; i++) {
        buffers->in[i].reader = calloc((size_t)side->in[i].depth, sizeof(int));
        if (!buffers->in[i].reader) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    }
    for (int i = 0; i < side->n_out; i++)
        TTI_TRY(make_pinned(setup, &side->out[i], &buffers->out[i]));
    if (!tti_pipe_of(x)->stages->is_joined || buffers->side->program != &setup->desc.plan->shard)
        return TUTTI_OK;
    int max_ranges =
        setup->desc.plan->shard.n_steps + buffers->side->program->n_segments + setup->syncs.n;
    buffers->step_ranges = calloc((size_t)max_ranges, sizeof *buffers->step_ranges);
    if (!buffers->step_ranges) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    const tti_program *program = buffers->side->program;
    for (int p = 0; p < program->n_segments; p++) {
        size_t first = (size_t)program->segment_first[p],
               last = (size_t)program->segment_first[p + 1];
        for (int i = 0; i < setup->syncs.n; i++) {
            size_t join = (size_t)setup->syncs.step[i];
            if (join < first || join >= last) continue;
            add_step_ranges(x, buffers, (step_range){p, {first, join}, i});
            first = join + 1;
        }
        add_step_ranges(x, buffers, (step_range){p, {first, last}, -1});
    }
    return TUTTI_OK;
}

tutti_status tti_device_pipe_create(tti_exec *x, tti_device_pipe **out) {
    *out = NULL;
    if (!tti_pipe_of(x)) return TUTTI_OK;
    tti_device_pipe *pipe = calloc(1, sizeof *pipe);
    *out = pipe;
    if (!pipe) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    pipe->x = x;
    pipe->ops = tti_setup_of(x)->desc.backend->device;
    size_t n_bytes;
    void *slots = tti_mailbox_memory(tti_pipe_of(pipe->x)->box, &n_bytes);
    if (pipe->ops->memory.pin(slots, n_bytes) == TUTTI_OK)
        pipe->pinned = slots;
    else
        tti_clear_error();
    TTI_TRY(tti_device_p2p_create(x, &pipe->p2p));
    tti_device_of(x)->p2p = pipe->p2p;
    TTI_TRY(alloc_buffers(x, &tti_pipe_of(x)->train, &pipe->train));
    return tti_pipe_of(x)->eval.program ? alloc_buffers(x, &tti_pipe_of(x)->eval, &pipe->eval)
                                        : TUTTI_OK;
}

static void free_buffers(const tti_device_pipe *pipe, side_buffers *buffers) {
    for (int i = 0; buffers->in && i < buffers->side->n_in; i++) free(buffers->in[i].reader);
    for (int i = 0; buffers->out && i < buffers->side->n_out; i++) {
        for (int k = 0; buffers->out[i].staging && k < N_TURNS; k++)
            pipe->ops->memory.release_host(buffers->out[i].staging[k]);
        free(buffers->out[i].staging);
    }
    free(buffers->in);
    free(buffers->out);
    free(buffers->sent_event);
    free(buffers->step_ranges);
}

void tti_device_pipe_destroy(tti_device_pipe *pipe) {
    if (!pipe) return;
    free_buffers(pipe, &pipe->train);
    free_buffers(pipe, &pipe->eval);
    tti_device_p2p_destroy(pipe->p2p);
    if (pipe->pinned) pipe->ops->memory.unpin(pipe->pinned);
    if (pipe->shared) pipe->ops->memory.release_host(pipe->shared);
    free(pipe);
}

tti_device_p2p *tti_device_pipe_p2p(const tti_device_pipe *pipe) {
    return pipe && tti_device_p2p_group(pipe->p2p) ? pipe->p2p : NULL;
}

void tti_device_pipe_describe(const tti_device_pipe *pipe, tti_str *str) {
    tti_device_p2p_describe(pipe->p2p, str);
}

/* ---- the results of a segment ---- */

static tutti_status copy_out(pipe_step *s, const segment *p) {
    const tti_device_ops *ops = s->pipe->ops;
    const tti_pipe_side *side = s->buffers->side;
    int turn = p->number % N_TURNS;
    bool any = false;
    for (int i = 0; i < side->n_out; i++) {
        const tti_pipe_end *end = &side->out[i];
        if (end->segment != p->action.segment) continue;
        if (!any) TTI_TRY(ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
        if (!any) TTI_TRY(tti_profile_from(s->pipe->x, TTI_ROW_COMM));
        any = true;
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMM, s->buffers->out[i].staging[turn],
                                 tti_instance_output(p->instance, end->name), end->n_bytes));
    }
    if (!any) return TUTTI_OK;
    TTI_TRY(tti_profile_upto(s->pipe->x, TTI_ROW_COMM, tti_instr_span(TTI_SEND), -1));
    TTI_TRY(ops->queues.record_host_event(TTI_QUEUE_COMM, TTI_EVENT_PIPE_OUT + turn));
    s->unsent = *p;
    return TUTTI_OK;
}

/* Sends the results of the previous segment when the device has computed them. */
static tutti_status send(pipe_step *s, const segment *p) {
    const tti_pipe_side *side = s->buffers->side;
    int turn = p->number % N_TURNS;
    if (!p->instance) return TUTTI_OK;
    TTI_TRY(s->pipe->ops->queues.await_host_event(TTI_EVENT_PIPE_OUT + turn));
    for (int i = 0; i < side->n_out; i++) {
        const tti_pipe_end *end = &side->out[i];
        if (end->segment != p->action.segment) continue;
        int slot = tti_pipe_slot(tti_setup_of(s->pipe->x), end, p->action.micro_group, 0);
        TTI_TRY(
            tti_mailbox_put(tti_pipe_of(s->pipe->x)->box, slot, s->buffers->out[i].staging[turn]));
    }
    return TUTTI_OK;
}

/* ---- the inputs of a segment ---- */

static bool begins_with(const tti_pipe_end *end, const segment *p) {
    return end->segment == p->action.segment;
}

static bool inputs_arrived(const pipe_step *s, const segment *p) {
    const tti_pipe_side *side = s->buffers->side;
    for (int i = 0; i < side->n_in; i++)
        if (begins_with(&side->in[i], p) &&
            !tti_mailbox_is_full(
                tti_pipe_of(s->pipe->x)->box,
                tti_pipe_slot(tti_setup_of(s->pipe->x), &side->in[i], p->action.micro_group, 0)))
            return false;
    return true;
}

static tutti_status receive_all(const pipe_step *s, const segment *p) {
    const tti_device_ops *ops = s->pipe->ops;
    const tti_pipe_side *side = s->buffers->side;
    bool any = false;
    for (int i = 0; i < side->n_in; i++) {
        if (begins_with(&side->in[i], p)) {
            /* Copies a value of another stage to device memory, after the previous segment if that
             * segment reads the same memory. */
            const tti_pipe_end *end = &s->buffers->side->in[i];
            boundary_buffers *buffers = &s->buffers->in[i];
            int at = p->action.micro_group % end->depth,
                slot = tti_pipe_slot(tti_setup_of(s->pipe->x), end, p->action.micro_group, 0);
            void *to = tti_device_p2p_address(s->pipe->p2p, slot);
            const void *data;
            TTI_TRY(tti_mailbox_wait(tti_pipe_of(s->pipe->x)->box, slot, &data));
            if (buffers->reader[at] == p->number - 1)
                TTI_TRY(ops->queues.order(TTI_QUEUE_COPY, TTI_QUEUE_COMPUTE));
            if (!any) TTI_TRY(tti_profile_from(s->pipe->x, TTI_ROW_COPY));
            TTI_TRY(ops->queues.copy(TTI_QUEUE_COPY, to, data, end->n_bytes));
            tti_instance_set_input(p->instance, end->input, to);
        }
        any = any || begins_with(&side->in[i], p);
        if (side->in[i].last_segment == p->action.segment)
            s->buffers->in[i].reader[p->action.micro_group % side->in[i].depth] = p->number;
    }
    if (!any) return TUTTI_OK;
    TTI_TRY(tti_profile_upto(s->pipe->x, TTI_ROW_COPY, tti_instr_span(TTI_RECV), -1));
    TTI_TRY(ops->queues.record_host_event(TTI_QUEUE_COPY, TTI_EVENT_PIPE_IN));
    return ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY);
}

/* Releases the slots whose device memory has no more readers. Until then the sender must not
 * overwrite it. */
static tutti_status free_slots(const pipe_step *s, const segment *p) {
    const tti_pipe_side *side = s->buffers->side;
    for (int i = 0; i < side->n_in; i++)
        if (begins_with(&side->in[i], p))
            TTI_TRY(s->pipe->ops->queues.await_host_event(TTI_EVENT_PIPE_IN));
    for (int i = 0; i < side->n_in; i++)
        if (side->in[i].last_segment == p->action.segment)
            tti_mailbox_free(
                tti_pipe_of(s->pipe->x)->box,
                tti_pipe_slot(tti_setup_of(s->pipe->x), &side->in[i], p->action.micro_group, 0));
    return TUTTI_OK;
}

static tutti_status send_unsent(pipe_step *s) {
    segment unsent = s->unsent;
    s->unsent = (segment){0};
    return send(s, &unsent);
}

/* ---- sharded parameters ---- */

static bool is_joined(const pipe_step *s) {
    return tti_pipe_of(s->pipe->x)->stages->is_joined && !s->desc->eval;
}

/* True if each segment gathers its own parameters, because segments of other micro-batch groups run
 * in between. */
static bool gathers_by_segment(const pipe_step *s) {
    return tti_exec_has_sharded_params(s->pipe->x) && !is_joined(s);
}

/* ---- a segment ---- */

/* True if buckets are reduced while the last micro-batch group completes them. */
static bool overlaps_sums(const pipe_step *s, int micro_group) {
    const tti_exec *x = s->pipe->x;
    const tti_device_reduce *reduce = s->desc->eval ? NULL : s->desc->reduce;
    if (!reduce)
        return tti_sharded_of(x) && !s->desc->eval &&
               micro_group == tti_pipe_of(x)->n_micro_groups - 1;
    return tti_device_reduce_merges(reduce, micro_group);
}

typedef struct running_segment {
    const pipe_step *s;
    int micro_group;
    const tti_instance *instance;
    int shard, last; /* last: one past the last step to run */
} running_segment;

static void after_step(int step, void *user) {
    const running_segment *at = user;
    tti_exec *x = at->s->pipe->x;
    if (tti_profile_of(x)) tti_device_time_step(x, at->instance, step, at->shard);
    if (overlaps_sums(at->s, at->micro_group)) {
        tti_exec_device *d = tti_device_of(at->s->pipe->x);
        if (at->s->desc->reduce)
            tti_device_reduce_after(at->s->desc->reduce, step);
        else if (d->overlap_status == TUTTI_OK)
            d->overlap_status = tti_device_host_staged_after(d->host_staged, step);
    }
    if (at->micro_group == 0 && at->s->desc->param_gather)
        tti_device_param_gather_before(at->s->desc->param_gather, step + 1);
    if (gathers_by_segment(at->s) && step + 1 < at->last)
        tti_device_sharded_before(tti_device_of(x)->sharded, step + 1);
}

/* Runs the kernels of a segment between two events.  Later copies of the copy queue wait for the
 * segments before this one. */
static tutti_status compute(const pipe_step *s, const segment *p) {
    tti_exec *x = s->pipe->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_micro_group *micro_group = &tti_pipe_of(x)->micro_groups[p->action.micro_group];
    int local = micro_group->first - setup->first_shard;
    if (!s->desc->eval) tti_exec_point_at_buffer(x, p->instance, micro_group->buffer[0]);
    if (p->action.segment == 0)
        tti_inputs_point(p->instance, s->desc->eval ? &setup->eval_inputs : &setup->shard_inputs,
                         &s->desc->shards[local], s->desc->loss_scale);
    if (!tti_device_of(s->pipe->x)->between)
        TTI_TRY(s->pipe->ops->queues.order(TTI_QUEUE_COPY, TTI_QUEUE_COMPUTE));
    tti_pipe *pipe = tti_pipe_of(x);
    int from = s->pipe->first_timestamp + 1 + 2 * p->number;
    int shard = pipe->micro_groups[p->action.micro_group].first;
    bool forward = p->action.segment < pipe->stages->n_chunks;
    TTI_TRY(s->pipe->ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, from));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE,
                             tti_span_of(TTI_SPAN_WAIT, "waiting for another stage"), shard));
    int first = (int)p->steps.first, last = (int)p->steps.last;
    running_segment at = {s, p->action.micro_group, p->instance,
                          tti_pipe_of(x)->micro_groups[p->action.micro_group].first, last};
    bool fetches = at.micro_group == 0 && s->desc->param_gather;
    bool looks =
        tti_profile_of(x) || fetches || overlaps_sums(s, at.micro_group) || gathers_by_segment(s);
    if (fetches) tti_device_param_gather_before(s->desc->param_gather, first);
    TTI_TRY(tti_instance_run_range(p->instance, &s->desc->runs[local], first, last,
                                   looks ? after_step : NULL, &at));
    TTI_TRY(gathers_by_segment(s) ? tti_device_sharded_finish(tti_device_of(x)->sharded)
                                  : TUTTI_OK);
    TTI_TRY(s->pipe->ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, from + 1));
    tti_profile_between(x, TTI_ROW_SEGMENTS,
                        tti_span_of(TTI_SPAN_OTHER, forward ? "forward" : "backward"), shard, from);
    return TUTTI_OK;
}

/* The part of a step for which no other stage waits. */
static tutti_status merge_and_collect(const pipe_step *s, const segment *p) {
    tti_exec *x = s->pipe->x;
    const tti_micro_group *micro_group = &tti_pipe_of(x)->micro_groups[p->action.micro_group];
    tti_range flat = s->buffers->side->flat[p->action.segment];
    bool merges = !s->desc->eval && !overlaps_sums(s, p->action.micro_group);
    if (merges) tti_exec_merge(x, micro_group, flat.first, flat.last);
    if (p->action.segment < s->buffers->side->program->n_segments - 1) return TUTTI_OK;
    const tti_step_desc *output_step =
        s->desc->eval ? s->desc->desc : tti_device_of(x)->output_step;
    if (output_step)
        TTI_TRY(tti_device_copy_outputs(x, output_step, p->instance,
                                        micro_group->first - tti_setup_of(x)->first_shard));
    int n = tti_n_sums(tti_setup_of(x));
    return tti_inputs_collect(s->pipe->ops, p->instance, s->desc->eval ? TTI_LOSS_SUMS : n,
                              s->desc->sums + micro_group->first * n);
}

static tutti_status run_host_staged(pipe_step *s, const segment *p) {
    /* A segment with collectives waits for other tensor ranks, which may be waiting for values that
     * are not sent yet. */
    if (tti_tp_of(s->pipe->x) || !inputs_arrived(s, p)) TTI_TRY(send_unsent(s));
    segment before = s->unsent;
    s->unsent = (segment){0};
    TTI_TRY(receive_all(s, p));
    /* The next micro-batch group reuses this instance, so its previous results must be copied out
     * first. */
    if (before.instance == p->instance && before.action.segment == p->action.segment)
        TTI_TRY(s->pipe->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    TTI_TRY(compute(s, p));
    TTI_TRY(copy_out(s, p));
    TTI_TRY(merge_and_collect(s, p));
    TTI_TRY(free_slots(s, p));
    return send(s, &before);
}

/* ---- a segment whose values are sent between devices ---- */

/* This segment overwrites the results of an earlier micro-batch group, so it waits until they have
 * been sent. */
static tutti_status run_between(const pipe_step *s, const segment *p) {
    const tti_pipe_side *side = s->buffers->side;
    int flight = p->action.micro_group % side->schedule.n_in_flight;
    int *sent = &s->buffers->sent_event[flight * side->program->n_segments + p->action.segment];
    for (int i = 0; i < side->n_in; i++) {
        const tti_pipe_end *end = &side->in[i];
        if (!begins_with(end, p)) continue;
        int slot = tti_pipe_slot(tti_setup_of(s->pipe->x), end, p->action.micro_group, 0);
        TTI_TRY(tti_device_p2p_recv(s->pipe->p2p, slot));
        tti_instance_set_input(p->instance, end->input, tti_device_p2p_address(s->pipe->p2p, slot));
    }
    if (*sent >= 0) TTI_TRY(s->pipe->ops->queues.wait_event(TTI_QUEUE_COMPUTE, *sent));
    *sent = -1;
    TTI_TRY(compute(s, p));
    bool any = false;
    for (int i = 0; i < side->n_out; i++) {
        const tti_pipe_end *end = &side->out[i];
        if (end->segment != p->action.segment) continue;
        if (!any) TTI_TRY(s->pipe->ops->queues.order(TTI_QUEUE_PEER, TTI_QUEUE_COMPUTE));
        if (!any) TTI_TRY(tti_profile_from(s->pipe->x, TTI_ROW_STAGES));
        any = true;
        TTI_TRY(tti_device_p2p_send(
            s->pipe->p2p, tti_pipe_slot(tti_setup_of(s->pipe->x), end, p->action.micro_group, 0),
            tti_instance_output(p->instance, end->name), end->n_bytes));
    }
    if (any) {
        TTI_TRY(tti_profile_upto(s->pipe->x, TTI_ROW_STAGES, tti_instr_span(TTI_SEND), -1));
        TTI_TRY(tti_device_p2p_record(s->pipe->p2p, sent));
    }
    for (int i = 0; i < side->n_in; i++)
        if (side->in[i].last_segment == p->action.segment)
            TTI_TRY(tti_device_p2p_release(
                s->pipe->p2p,
                tti_pipe_slot(tti_setup_of(s->pipe->x), &side->in[i], p->action.micro_group, 0)));
    return merge_and_collect(s, p);
}

/* ---- a step ---- */

static tutti_status pass_fault(const pipe_step *s, const segment *p) {
    const tti_stages *stages = tti_pipe_of(s->pipe->x)->stages;
    bool forward = p->action.segment < stages->n_chunks;
    const char *fault = forward ? "pipe.forward" : "pipe.backward";
    (void)fault; /* unused in builds without fault points */
    if (!TTI_FAULT_AT(fault, stages->stage, (int64_t)s->desc->number)) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "pipeline: stage %d cannot compute", stages->stage);
}

static segment make_segment(pipe_step *s, tti_pipe_action action) {
    const tti_pipe_side *side = s->buffers->side;
    const int *first = side->program->segment_first + action.segment;
    int in_flight = action.micro_group % side->schedule.n_in_flight;
    return (segment){.action = action,
                     .number = s->n_runs++,
                     .instance = tti_exec_instance(s->pipe->x, in_flight, s->desc->eval),
                     .steps = {(size_t)first[0], (size_t)first[1]}};
}

static tutti_status run_segments(pipe_step *s) {
    const tti_pipe_schedule *schedule = &s->buffers->side->schedule;
    for (int i = 0; i < schedule->n_actions; i++) {
        segment p = make_segment(s, schedule->actions[i]);
        TTI_TRY(pass_fault(s, &p));
        /* Gathers the parameters of the first steps while the worker waits for other stages. */
        tti_device_sharded *sharded = tti_device_of(s->pipe->x)->sharded;
        if (gathers_by_segment(s)) {
            tti_device_sharded_begin_segment(sharded, s->desc->eval, (int)p.steps.first);
            tti_device_sharded_before(sharded, (int)p.steps.first);
        }
        TTI_TRY(tti_device_of(s->pipe->x)->between ? run_between(s, &p) : run_host_staged(s, &p));
    }
    return tti_device_of(s->pipe->x)->between ? TUTTI_OK : send_unsent(s);
}

/* ---- joined shards: through the host, segment by segment ---- */

/* All shards reach a join before any continues.  Each shard has its own gradients, which are added
 * at the end, or during the last shards. */
static tutti_status run_joined(pipe_step *s) {
    tti_exec *x = s->pipe->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    if (device->sharded) tti_device_sharded_begin(device->sharded, true);
    for (int i = 0; i < s->buffers->n_step_ranges; i++) {
        tti_device_sharded *sharded = tti_device_of(x)->sharded;
        if (sharded)
            tti_device_sharded_before(sharded, (int)s->buffers->step_ranges[i].steps.first);
        if (sharded) TTI_TRY(tti_device_sharded_finish(sharded));
        for (int w = 0; w < tti_pipe_of(x)->n_micro_groups; w++) {
            segment p = make_segment(s, (tti_pipe_action){w, s->buffers->step_ranges[i].segment});
            p.steps = s->buffers->step_ranges[i].steps;
            /* The steps of a segment up to the next join.  Values are received before its first
             * step and sent after its last. */
            const int *of_segment = s->buffers->side->program->segment_first + p.action.segment;
            if ((int)p.steps.first == of_segment[0]) {
                TTI_TRY(pass_fault(s, &p));
                TTI_TRY(s->pipe->ops->queues.order(TTI_QUEUE_COPY, TTI_QUEUE_COMPUTE));
                TTI_TRY(receive_all(s, &p));
            }
            TTI_TRY(compute(s, &p));
            if ((int)p.steps.last >= of_segment[1]) {
                TTI_TRY(copy_out(s, &p));
                TTI_TRY(send_unsent(s));
                TTI_TRY(merge_and_collect(s, &p));
                TTI_TRY(free_slots(s, &p));
            }
        }
        TTI_TRY(s->buffers->step_ranges[i].join >= 0
                    ? tti_device_join_shards(x, s->buffers->step_ranges[i].join)
                    : TUTTI_OK);
    }
    if (!tti_sharded_of(x))
        tti_exec_merge(x, &setup->acc.micro_groups[0], 0, setup->desc.plan->n_flat);
    return TUTTI_OK;
}

/* The number of kernel launches of program runs. */
static int count_runs(const pipe_step *s) {
    if (is_joined(s)) return s->buffers->n_step_ranges * tti_pipe_of(s->pipe->x)->n_micro_groups;
    return s->buffers->side->schedule.n_actions;
}

bool tti_device_pipe_is_loaded(const tti_device_pipe *pipe, bool eval) {
    return tti_device_p2p_group(pipe->p2p) && (eval ? pipe->eval : pipe->train).has_run;
}

void tti_device_pipe_begin(tti_device_pipe *pipe, bool overlapped) {
    tti_device_p2p_begin(pipe->p2p, overlapped);
}

tutti_status tti_device_pipe_run(tti_device_pipe *pipe, const tti_device_pipe_step *step) {
    pipe_step s = {.pipe = pipe, .desc = step, .buffers = step->eval ? &pipe->eval : &pipe->train};
    /* Clears the readers of previous steps, which the device has completed. */
    for (int i = 0; i < s.buffers->side->n_in; i++)
        for (int k = 0; k < s.buffers->side->in[i].depth; k++) s.buffers->in[i].reader[k] = INT_MIN;
    for (int i = 0; i < tti_setup_of(pipe->x)->n_in_flight * s.buffers->side->program->n_segments;
         i++)
        s.buffers->sent_event[i] = -1;
    tti_device_of(pipe->x)->between = tti_device_pipe_is_loaded(pipe, step->eval);
    s.buffers->has_run = true;
    pipe->n_timed = count_runs(&s);
    pipe->first_timestamp = tti_profile_take(pipe->x, 2 * pipe->n_timed + 1);
    TTI_TRY(pipe->ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, pipe->first_timestamp));
    tutti_status st = is_joined(&s) ? run_joined(&s) : run_segments(&s);
    if (st != TUTTI_OK) tti_device_pipe_fail(pipe, st);
    TTI_TRY(st);
    return tti_device_of(pipe->x)->between ? TUTTI_OK : pipe->ops->queues.sync();
}

tutti_status tti_device_pipe_rest(tti_device_pipe *pipe) {
    return tti_device_of(pipe->x)->between ? tti_device_p2p_sync(pipe->p2p)
                                           : pipe->ops->queues.sync();
}

void tti_device_pipe_fail(tti_device_pipe *pipe, tutti_status status) {
    if (pipe->has_failed) return;
    pipe->has_failed = true;
    tti_mailbox_fail(tti_pipe_of(pipe->x)->box, status);
    if (tti_device_of(pipe->x)->between) tti_device_p2p_abort(pipe->p2p, status);
}

/* Measures, with the device's clock, the time from the beginning of the step to the end of the last
 * segment, and the part of it in which segments computed. */
tutti_status tti_device_pipe_measure(tti_device_pipe *pipe) {
    int first = pipe->first_timestamp, n = first + 2 * pipe->n_timed + 1;
    double *us = calloc((size_t)n, sizeof *us), busy = 0;
    if (!us) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    tutti_status st = pipe->ops->queues.read_timestamps(n, us);
    for (int i = first + 1; st == TUTTI_OK && i < n; i += 2) busy += us[i + 1] - us[i];
    int64_t span_ns = (int64_t)((us[n - 1] - us[first]) * 1e3);
    free(us);
    return st == TUTTI_OK ? tti_pipe_measure(pipe->x, (int64_t)(busy * 1e3), span_ns) : st;
}

static tutti_status sum_host_staged(const tti_device_pipe *pipe, const tti_tied_param *tied) {
    const tti_slot *slot = tti_pipe_find_tied_slot(tti_setup_of(pipe->x)->desc.plan, tied);
    if (!slot) return TUTTI_OK;
    float *grads = tti_exec_grads(pipe->x) + slot->first;
    size_t n_bytes = slot->n_elems * sizeof *grads;
    TTI_TRY(pipe->ops->queues.copy(TTI_QUEUE_COMPUTE, pipe->shared, grads, n_bytes));
    TTI_TRY(pipe->ops->queues.sync());
    TTI_TRY(tti_pipe_reduce_tied_grad(tti_pipe_of(pipe->x), tied, slot, pipe->shared));
    TTI_TRY(pipe->ops->queues.copy(TTI_QUEUE_COMPUTE, grads, pipe->shared, n_bytes));
    return pipe->ops->queues.sync();
}

static tutti_status reduce_tied_grads_host_staged(tti_device_pipe *pipe) {
    const tti_stages *stages = tti_pipe_of(pipe->x)->stages;
    int64_t start = tti_now_ns();
    /* Allocates it once, for the longest gradient. */
    size_t n = 0;
    if (!pipe->shared) {
        for (int i = 0; i < stages->n_tied; i++) {
            const tti_slot *slot =
                tti_pipe_find_tied_slot(tti_setup_of(pipe->x)->desc.plan, &stages->tied[i]);
            if (slot) n = TTI_MAX(n, slot->n_elems);
        }
        pipe->shared = pipe->ops->memory.alloc_host(n * sizeof *pipe->shared + 1);
        TTI_TRY(pipe->shared
                    ? TUTTI_OK
                    : tti_fail(TUTTI_E_NOMEM,
                               "pipeline: cannot allocate %zu floats of pinned memory", n));
    }
    for (int i = 0; i < stages->n_tied; i++) TTI_TRY(sum_host_staged(pipe, &stages->tied[i]));
    tti_profile_add(pipe->x, TTI_ROW_COMM, tti_instr_span(TTI_REDUCE_TIED_GRADS), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

tutti_status tti_device_pipe_reduce_tied_grads(tti_device_pipe *pipe) {
    tti_exec *x = pipe->x;
    if (tti_pipe_of(x)->stages->n_tied == 0) return TUTTI_OK;
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_MERGE), -1));
    TTI_TRY(tti_device_of(pipe->x)->between ? tti_device_p2p_reduce_tied_grads(pipe->p2p)
                                            : reduce_tied_grads_host_staged(pipe));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_REDUCE_TIED_GRADS), -1);
}

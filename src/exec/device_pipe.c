/* device_pipe.c - parts of shards in the device's queues, in the order of the schedule.
 *
 * Nothing is recorded: the host puts each part into the compute queue when what it reads has come.
 * Values go beside it: in by the copy queue, to a place of their own for each slot of the mailbox,
 * out by the third queue to pinned memory, and from there to the reader's slot.  What a part has
 * made is sent while the next part computes, if that one waits for nobody; else first, as the
 * others may be waiting for it.  Which of the two happens changes no bit.
 *
 * The idea to know: a place on the device is written again by a copy that waits for all parts but
 * the newest, and for that one too where it reads the place. */
#include "exec/device_pipe.h"

#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/device_step.h"
#include "exec/pipe_ends.h"
#include "exec/worker.h"

/* The memory of an end: where values come to, or where they leave from. */
typedef struct end_room {
    void **places; /* [depth] device; or [2] pinned, of parts in turn */
    int *reader;   /* [depth]: the number of the part that read it last */
} end_room;

typedef struct side_room {
    tti_pipe_side *side;
    end_room *in, *out; /* [side->n_in], [side->n_out] */
} side_room;

/* A part that is at work. */
typedef struct part {
    tti_pipe_action action;
    int number; /* in the order of the step */
    tti_instance *instance;
} part;

struct tti_device_pipe {
    tti_exec *x;
    const tti_device_ops *ops;
    side_room train, eval;
    void *pinned; /* slots of the mailbox; NULL: they cannot be, and copies are slower */
};

typedef struct pipe_step {
    tti_device_pipe *pipe;
    const tti_device_pipe_step *desc;
    side_room *room;
    part unsent;      /* instance NULL: nothing is to be sent */
    int first_moment; /* of two for each part: between them it computes */
} pipe_step;

enum { N_TURNS = 2 };

/* ---- memory ---- */

static tutti_status make_places(tti_exec *x, const tti_pipe_end *end, bool on_device,
                                end_room *room) {
    const tti_backend *backend = x->desc.backend;
    int n = on_device ? end->depth : N_TURNS;
    room->places = calloc((size_t)n, sizeof *room->places);
    room->reader = calloc((size_t)n, sizeof *room->reader);
    if (!room->places || !room->reader) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int i = 0; i < n; i++) {
        room->places[i] =
            on_device ? backend->alloc(end->n_bytes) : backend->device->alloc_host(end->n_bytes);
        if (!room->places[i])
            return tti_fail(TUTTI_E_NOMEM, "pipeline: %zu bytes for a value", end->n_bytes);
    }
    return TUTTI_OK;
}

static tutti_status make_room(tti_exec *x, tti_pipe_side *side, side_room *room) {
    room->side = side;
    room->in = calloc((size_t)side->n_in + 1, sizeof *room->in);
    room->out = calloc((size_t)side->n_out + 1, sizeof *room->out);
    if (!room->in || !room->out) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    for (int i = 0; i < side->n_in; i++) TTI_TRY(make_places(x, &side->in[i], true, &room->in[i]));
    for (int i = 0; i < side->n_out; i++)
        TTI_TRY(make_places(x, &side->out[i], false, &room->out[i]));
    return TUTTI_OK;
}

static void pin_slots(tti_device_pipe *pipe) {
    size_t n_bytes;
    void *slots = tti_mailbox_memory(pipe->x->pipe->box, &n_bytes);
    if (pipe->ops->pin(slots, n_bytes) == TUTTI_OK)
        pipe->pinned = slots;
    else
        tti_clear_error();
}

tutti_status tti_device_pipe_create(tti_exec *x, tti_device_pipe **out) {
    *out = NULL;
    if (!x->pipe) return TUTTI_OK;
    tti_device_pipe *pipe = calloc(1, sizeof *pipe);
    *out = pipe;
    if (!pipe) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    pipe->x = x;
    pipe->ops = x->desc.backend->device;
    pin_slots(pipe);
    TTI_TRY(make_room(x, &x->pipe->train, &pipe->train));
    return x->pipe->eval.program ? make_room(x, &x->pipe->eval, &pipe->eval) : TUTTI_OK;
}

static void release_room(const tti_device_pipe *pipe, side_room *room) {
    const tti_backend *backend = pipe->x->desc.backend;
    for (int i = 0; room->in && i < room->side->n_in; i++) {
        for (int k = 0; room->in[i].places && k < room->side->in[i].depth; k++)
            backend->release(room->in[i].places[k], room->side->in[i].n_bytes);
        free(room->in[i].places);
        free(room->in[i].reader);
    }
    for (int i = 0; room->out && i < room->side->n_out; i++) {
        for (int k = 0; room->out[i].places && k < N_TURNS; k++)
            pipe->ops->release_host(room->out[i].places[k]);
        free(room->out[i].places);
        free(room->out[i].reader);
    }
    free(room->in);
    free(room->out);
}

void tti_device_pipe_destroy(tti_device_pipe *pipe) {
    if (!pipe) return;
    release_room(pipe, &pipe->train);
    release_room(pipe, &pipe->eval);
    if (pipe->pinned) pipe->ops->unpin(pipe->pinned);
    free(pipe);
}

static size_t side_bytes(const tti_pipe_side *side) {
    size_t n_bytes = 0;
    for (int i = 0; i < side->n_in; i++) n_bytes += (size_t)side->in[i].depth * side->in[i].n_bytes;
    return n_bytes;
}

size_t tti_device_pipe_bytes(const tti_exec *x) {
    return x->pipe ? side_bytes(&x->pipe->train) + side_bytes(&x->pipe->eval) : 0;
}

/* ---- what a part has made ---- */

static tutti_status copy_out(pipe_step *s, const part *p) {
    const tti_device_ops *ops = s->pipe->ops;
    const tti_pipe_side *side = s->room->side;
    int turn = p->number % N_TURNS;
    bool any = false;
    for (int i = 0; i < side->n_out; i++) {
        const tti_pipe_end *end = &side->out[i];
        if (end->part != p->action.part) continue;
        if (!any) TTI_TRY(ops->order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
        if (!any) TTI_TRY(tti_profile_from(s->pipe->x, TTI_ROW_COMM));
        any = true;
        TTI_TRY(ops->copy(TTI_QUEUE_COMM, s->room->out[i].places[turn],
                          tti_instance_output(p->instance, end->name), end->n_bytes));
    }
    if (!any) return TUTTI_OK;
    TTI_TRY(tti_profile_upto(s->pipe->x, TTI_ROW_COMM, NULL, "values to another stage", -1));
    TTI_TRY(ops->mark(TTI_QUEUE_COMM, TTI_MARK_PIPE_OUT + turn));
    s->unsent = *p;
    return TUTTI_OK;
}

/* What the part before has made, once the device has come so far. */
static tutti_status send(pipe_step *s, const part *p) {
    const tti_pipe_side *side = s->room->side;
    int turn = p->number % N_TURNS;
    if (!p->instance) return TUTTI_OK;
    TTI_TRY(s->pipe->ops->await(TTI_MARK_PIPE_OUT + turn));
    for (int i = 0; i < side->n_out; i++) {
        const tti_pipe_end *end = &side->out[i];
        if (end->part != p->action.part) continue;
        int slot = tti_pipe_slot(s->pipe->x, end, p->action.wave, 0);
        TTI_TRY(tti_mailbox_put(s->pipe->x->pipe->box, slot, s->room->out[i].places[turn]));
    }
    return TUTTI_OK;
}

/* ---- what a part reads ---- */

static bool begins_with(const tti_pipe_end *end, const part *p) {
    return end->part == p->action.part;
}

static bool is_there(const pipe_step *s, const part *p) {
    const tti_pipe_side *side = s->room->side;
    for (int i = 0; i < side->n_in; i++)
        if (begins_with(&side->in[i], p) &&
            !tti_mailbox_is_full(s->pipe->x->pipe->box,
                                 tti_pipe_slot(s->pipe->x, &side->in[i], p->action.wave, 0)))
            return false;
    return true;
}

/* A value of another stage to its place; that of the part before must not be written over. */
static tutti_status take_in(const pipe_step *s, const part *p, int i, bool is_first) {
    const tti_device_ops *ops = s->pipe->ops;
    const tti_pipe_end *end = &s->room->side->in[i];
    end_room *room = &s->room->in[i];
    int at = p->action.wave % end->depth;
    const void *data;
    TTI_TRY(tti_mailbox_wait(s->pipe->x->pipe->box,
                             tti_pipe_slot(s->pipe->x, end, p->action.wave, 0), &data));
    if (room->reader[at] == p->number - 1) TTI_TRY(ops->order(TTI_QUEUE_COPY, TTI_QUEUE_COMPUTE));
    if (is_first) TTI_TRY(tti_profile_from(s->pipe->x, TTI_ROW_COPY));
    TTI_TRY(ops->copy(TTI_QUEUE_COPY, room->places[at], data, end->n_bytes));
    tti_instance_set_input(p->instance, end->input, room->places[at]);
    return TUTTI_OK;
}

static tutti_status take_all(const pipe_step *s, const part *p) {
    const tti_device_ops *ops = s->pipe->ops;
    const tti_pipe_side *side = s->room->side;
    bool any = false;
    for (int i = 0; i < side->n_in; i++) {
        if (begins_with(&side->in[i], p)) TTI_TRY(take_in(s, p, i, !any));
        any = any || begins_with(&side->in[i], p);
        if (side->in[i].last_part == p->action.part)
            s->room->in[i].reader[p->action.wave % side->in[i].depth] = p->number;
    }
    if (!any) return TUTTI_OK;
    TTI_TRY(tti_profile_upto(s->pipe->x, TTI_ROW_COPY, NULL, "values of another stage", -1));
    TTI_TRY(ops->mark(TTI_QUEUE_COPY, TTI_MARK_PIPE_IN));
    return ops->order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY);
}

/* The senders may use slots again whose places nobody reads any more: not before, as another value
 * would come to the same place. */
static tutti_status free_slots(const pipe_step *s, const part *p) {
    const tti_pipe_side *side = s->room->side;
    for (int i = 0; i < side->n_in; i++)
        if (begins_with(&side->in[i], p)) TTI_TRY(s->pipe->ops->await(TTI_MARK_PIPE_IN));
    for (int i = 0; i < side->n_in; i++)
        if (side->in[i].last_part == p->action.part)
            tti_mailbox_free(s->pipe->x->pipe->box,
                             tti_pipe_slot(s->pipe->x, &side->in[i], p->action.wave, 0));
    return TUTTI_OK;
}

/* ---- a part ---- */

typedef struct telling {
    tti_exec *x;
    const tti_instance *instance;
    int shard;
} telling;

static void after_step(int step, void *user) {
    const telling *told = user;
    tti_device_time_step(told->x, told->instance, step, told->shard);
}

static tutti_status run_timed(const pipe_step *s, const part *p, const tti_run *run,
                              tti_range steps) {
    tti_exec *x = s->pipe->x;
    int from = s->first_moment + 2 * p->number;
    bool forward = p->action.part < x->pipe->stages->n_chunks;
    telling told = {x, p->instance, x->acc.waves[p->action.wave].first};
    TTI_TRY(s->pipe->ops->stamp(TTI_QUEUE_COMPUTE, from));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, NULL, "waiting for another stage", told.shard));
    TTI_TRY(tti_instance_run_range(p->instance, run, (int)steps.first, (int)steps.last,
                                   x->profile ? after_step : NULL, &told));
    TTI_TRY(s->pipe->ops->stamp(TTI_QUEUE_COMPUTE, from + 1));
    tti_profile_between(x, TTI_ROW_PARTS, forward ? "forward" : "backward", told.shard, from);
    return TUTTI_OK;
}

/* Its kernels between two moments; what the copy queue gets from here on waits for the parts before
 * this one. */
static tutti_status compute(const pipe_step *s, const part *p) {
    tti_exec *x = s->pipe->x;
    const tti_device_ops *ops = s->pipe->ops;
    const tti_program *program = s->room->side->program;
    const tti_wave *wave = &x->acc.waves[p->action.wave];
    int first = program->part_first[p->action.part], last = program->part_first[p->action.part + 1];
    int local = wave->first - x->first_shard;
    if (!s->desc->eval) tti_instance_set_grads(p->instance, x->buffers[wave->buffer[0]]);
    if (p->action.part == 0)
        tti_fed_point(p->instance, s->desc->eval ? &x->eval_inputs : &x->shard_inputs,
                      &s->desc->shards[local], s->desc->loss_scale);
    TTI_TRY(ops->order(TTI_QUEUE_COPY, TTI_QUEUE_COMPUTE));
    TTI_TRY(run_timed(s, p, &s->desc->runs[local], (tti_range){(size_t)first, (size_t)last}));
    tti_range flat = s->room->side->flat[p->action.part];
    if (!s->desc->eval) tti_exec_merge(x, wave, flat.first, flat.last);
    if (p->action.part < program->n_parts - 1) return TUTTI_OK;
    return tti_fed_collect(ops, p->instance, s->desc->sums + (size_t)wave->first * TTI_SUMS);
}

static tutti_status run_part(pipe_step *s, const part *p) {
    const tti_stages *stages = s->pipe->x->pipe->stages;
    if (TTI_FAULT_AT(p->action.part < stages->n_chunks ? "pipe.forward" : "pipe.backward",
                     stages->stage, (int64_t)s->desc->number))
        return tti_fail(TUTTI_E_INTERNAL, "pipeline: stage %d cannot compute", stages->stage);
    /* A part with exchanges waits for its neighbours, who may wait for what is not sent. */
    if (s->pipe->x->exchange || !is_there(s, p)) {
        TTI_TRY(send(s, &s->unsent));
        s->unsent = (part){0};
    }
    part before = s->unsent;
    s->unsent = (part){0};
    TTI_TRY(take_all(s, p));
    /* An instance may be the next wave's before its last one has been copied out. */
    if (before.instance == p->instance && before.action.part == p->action.part)
        TTI_TRY(s->pipe->ops->order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    TTI_TRY(compute(s, p));
    TTI_TRY(copy_out(s, p));
    TTI_TRY(free_slots(s, p));
    return send(s, &before);
}

static tutti_status run_parts(pipe_step *s) {
    tti_exec *x = s->pipe->x;
    const tti_pipe_schedule *schedule = &s->room->side->schedule;
    for (int i = 0; i < schedule->n_actions; i++) {
        part p = {.action = schedule->actions[i], .number = i};
        tti_lane *lane = &x->lane[p.action.wave % schedule->n_in_flight];
        p.instance = s->desc->eval ? lane->eval : lane->shard;
        TTI_TRY(run_part(s, &p));
    }
    return send(s, &s->unsent);
}

/* ---- a step ---- */

/* How long the parts computed, by the device's own clock. */
static tutti_status find_busy(const pipe_step *s, int64_t *busy_ns) {
    int first = s->first_moment, n = first + 2 * s->room->side->schedule.n_actions;
    double *us = calloc((size_t)n + 1, sizeof *us), sum = 0;
    if (!us) return tti_fail(TUTTI_E_NOMEM, "pipeline: out of memory");
    tutti_status st = s->pipe->ops->read_stamps(n, us);
    for (int i = first; st == TUTTI_OK && i < n; i += 2) sum += us[i + 1] - us[i];
    *busy_ns = (int64_t)(sum * 1e3);
    free(us);
    return st;
}

/* Of the steps before; the device has come to their end. */
static void forget_readers(const side_room *room) {
    for (int i = 0; i < room->side->n_in; i++)
        for (int k = 0; k < room->side->in[i].depth; k++) room->in[i].reader[k] = INT_MIN;
}

tutti_status tti_device_pipe_run(tti_device_pipe *pipe, const tti_device_pipe_step *step) {
    pipe_step s = {.pipe = pipe, .desc = step, .room = step->eval ? &pipe->eval : &pipe->train};
    int64_t start = tti_now_ns(), busy_ns = 0;
    s.first_moment = tti_profile_take(pipe->x, 2 * s.room->side->schedule.n_actions);
    forget_readers(s.room);
    tutti_status st = run_parts(&s);
    if (st != TUTTI_OK) tti_mailbox_fail(pipe->x->pipe->box, st);
    TTI_TRY(st);
    TTI_TRY(pipe->ops->sync());
    if (step->eval) return TUTTI_OK;
    int64_t span_ns = tti_now_ns() - start;
    TTI_TRY(find_busy(&s, &busy_ns));
    return tti_pipe_measure(pipe->x, busy_ns, span_ns);
}

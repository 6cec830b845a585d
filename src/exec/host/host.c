/* host.c - the executor on the host: compute threads and the communication thread run a step
 * program. */
#include "exec/host/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/host/comm_thread.h"
#include "exec/host/main_queue.h"
#include "exec/worker/worker.h"

/* A step that stopped before its update. */
typedef struct begun_step {
    tti_step_desc desc;
    tti_step_result result;
    tti_host_main main;
} begun_step;

struct tti_host {
    tti_step_program *programs[TTI_N_FORMS];
    tti_comm_thread *comm_thread; /* NULL: the programs have nothing for it */
    begun_step begun;
};

/* ---- building ---- */

static tti_step_basis basis_of(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_arrays *arrays = tti_arrays_of(x);
    const tti_pipe *pipe = tti_pipe_of(x);
    return (tti_step_basis){.desc = &setup->desc,
                            .n_ranks = setup->n_ranks,
                            .is_divided = setup->divided != NULL,
                            .has_server = setup->desc.server != NULL,
                            .divides = tti_exec_divides(setup),
                            .acc = &setup->acc,
                            .n_compute_threads = setup->desc.n_compute_threads,
                            .n_idle = pipe ? pipe->n_idle
                                      : tti_exec_has_sharded_params(arrays)
                                          ? tti_sharded_idle_shard_groups(x)
                                          : 0,
                            .joins = setup->syncs.step,
                            .n_joins = setup->syncs.n,
                            .eval_joins = setup->eval_syncs.step,
                            .n_eval_joins = setup->eval_syncs.n,
                            .train = pipe ? &pipe->train : NULL,
                            .eval = pipe ? &pipe->eval : NULL,
                            .sharded = arrays->sharded};
}

static tutti_status communicate(const tti_instr *in, void *user) {
    return tti_host_communicate(user, in);
}

tutti_status tti_host_create(tti_exec *x, tti_host **out) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_step_basis basis = basis_of(x);
    int n_instrs = 0,
        core = setup->desc.cores ? setup->desc.cores[setup->desc.n_compute_threads - 1] : -1;
    bool has_comm = false;
    *out = NULL;
    if (setup->desc.serves) return TUTTI_OK; /* a server does not compute shards */
    tti_host *host = *out = calloc(1, sizeof *host);
    if (!host) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (tti_step_form form = 0; form < TTI_N_FORMS; form++) {
        if (!tti_step_has_form(&basis, form)) continue;
        TTI_TRY(tti_step_build(&basis, form, &host->programs[form]));
        n_instrs = TTI_MAX(n_instrs, host->programs[form]->n_instrs);
        has_comm = has_comm || host->programs[form]->has_comm;
    }
    return has_comm ? tti_comm_thread_create(n_instrs, core, communicate, x, &host->comm_thread)
                    : TUTTI_OK;
}

const tti_step_program *tti_host_program(const tti_host *host, tti_step_form form) {
    return host->programs[form];
}

void tti_host_destroy(tti_host *host) {
    if (!host) return;
    tti_comm_thread_destroy(host->comm_thread);
    for (int form = 0; form < TTI_N_FORMS; form++) tti_step_program_destroy(host->programs[form]);
    free(host);
}

/* ---- one instruction on one compute thread ---- */

typedef struct step_run {
    tti_exec *x;
    const tti_step_desc *desc;
    const tti_step_program *program;
    tti_comm_thread *thread; /* NULL: the program communicates nothing */
    bool eval;
} step_run;

/* A compute thread at an instruction. */
typedef struct flight {
    const step_run *r;
    const tti_instr *in;
    int index; /* of the compute thread */
    int shard; /* global number */
    tti_compute_thread *compute_thread;
    tti_instance *instance;
    tti_compute_thread_cursor cursor;
    bool timed;
    int64_t last_ns; /* end of the step before */
} flight;

/* The shortest wait that is recorded. */
enum { SHORT_NS = 1000 };

static void time_step(flight *f, int step) {
    int64_t now = tti_now_ns();
    const tti_node *node = f->r->program->program->steps[step];
    bool exchanges = node->op->traits & TTI_COLLECTIVE;
    tti_span_kind kind = exchanges ? TTI_SPAN_LAYERS : TTI_SPAN_WORK;
    const tti_span what = {
        .part = tti_part_node(kind, node, tti_instance_kernel(f->instance, step)),
        .shard = f->shard,
        .row = TTI_ROW_TP};
    if (exchanges)
        tti_profile_stall(f->r->x, &what, "waiting for an exchange", f->last_ns, now);
    else
        tti_profile_add(f->r->x, TTI_ROW_COMPUTE, what.part, f->shard, f->last_ns, now);
    f->last_ns = tti_now_ns();
}

/* Waits for the communication that a step needs. */
static void await(flight *f, int step) {
    if (!tti_compute_thread_cursor_must_wait(&f->cursor, step)) return;
    int64_t start = tti_now_ns();
    tti_compute_thread_cursor_wait(&f->cursor, step);
    int64_t now = tti_now_ns();
    tti_exec_compute_thread_waited(f->r->x, now - start);
    if (f->timed && now - f->last_ns > SHORT_NS)
        tti_profile_add(f->r->x, TTI_ROW_COMPUTE, tti_part_wait("waiting for parameters or places"),
                        f->shard, f->last_ns, now);
    f->last_ns = now;
}

static void after_step(int step, void *user) {
    flight *f = user;
    if (f->timed) time_step(f, step);
    tti_compute_thread_cursor_signal(&f->cursor, step + 1);
    if (step + 1 < f->in->last) await(f, step + 1);
}

static bool is_backward(const flight *f) {
    return f->in->part >= tti_setup_of(f->r->x)->desc.plan->stages->n_chunks;
}

static tutti_status pass_faults(const flight *f) {
    const tti_exec *x = f->r->x;
    const tti_instr *in = f->in;
    const int64_t step = (int64_t)f->r->desc->step;
    const tti_step_program *p = f->r->program;
    int worker = tti_exec_number(tti_setup_of(x)),
        stage = p->side ? tti_pipe_of(x)->stages->stage : 0;
    if (!f->r->eval && in->first == 0 && TTI_FAULT_AT("exec.shard", worker, step))
        return tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute a shard", worker);
    bool begins = p->side && in->first == p->program->part_first[in->part];
    if (begins && TTI_FAULT_AT(is_backward(f) ? "pipe.backward" : "pipe.forward", stage, step))
        return tti_fail(TUTTI_E_INTERNAL, "pipeline: stage %d cannot compute", stage);
    return TUTTI_OK;
}

static tutti_status check_comm(const flight *f) {
    return f->in->n_waits > 0 ? tti_comm_thread_check(f->r->thread) : TUTTI_OK;
}

static tutti_status run_steps(flight *f) {
    const step_run *r = f->r;
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    const tti_instr *in = f->in;
    tti_run run = tti_exec_shard_run(setup, r->desc, f->shard);
    if (in->first == 0)
        tti_exec_feed(tally, f->instance, r->eval ? &setup->eval_inputs : &setup->shard_inputs,
                      &r->desc->shards[f->shard - setup->first_shard]);
    if (!r->eval) tti_exec_point_at_buffer(tti_arrays_of(x), f->instance, in->buffer[f->index]);
    int64_t start = f->last_ns = tti_now_ns();
    TTI_TRY(pass_faults(f));
    await(f, in->first);
    TTI_TRY(check_comm(f));
    bool looks = f->timed || tti_compute_thread_cursor_is_used(&f->cursor);
    TTI_TRY(tti_instance_run_range(f->instance, &run, in->first, in->last,
                                   looks ? after_step : NULL, f));
    int64_t end = tti_now_ns();
    tti_exec_compute_thread_waited(x, tti_instance_take_exchanged(f->instance));
    TTI_TRY(check_comm(f)); /* before others wait for what could not be made: they hear why */
    if (r->program->side && f->index == 0) tti_pipe_of(x)->busy_ns += end - start;
    if (r->program->side && f->timed)
        tti_profile_add(x, TTI_ROW_PARTS, tti_part_other(is_backward(f) ? "backward" : "forward"),
                        f->shard, start, end);
    if (in->last < r->program->program->n_steps) return TUTTI_OK;
    tti_exec_keep_sums(tally, f->instance, f->shard);
    tti_exec_copy_outputs(r->desc, f->instance, f->shard - setup->first_shard);
    return TUTTI_OK;
}

static tutti_status transfer(const flight *f) {
    const step_run *r = f->r;
    const tti_pipe_part part = {.instance = f->instance,
                                .side = r->program->side,
                                .action = {f->in->shard_group, f->in->part},
                                .index = f->index,
                                .shard = f->shard,
                                .timed = f->timed};
    return f->in->kind == TTI_RECV ? tti_pipe_receive(r->x, &part) : tti_pipe_send(r->x, &part);
}

/* RUN, RECV or SEND for the compute thread's shard; not for one that failed before. */
static void run_shard(flight *f) {
    tti_exec *x = f->r->x;
    tti_thread_set *threads = tti_threads_of(x);
    int compute_thread =
        tti_step_program_compute_thread(f->r->program, f->in->shard_group, f->index);
    if (f->index >= f->in->n_shards || threads->thread[compute_thread].status != TUTTI_OK) return;
    f->compute_thread = &threads->thread[compute_thread];
    f->instance = f->r->eval ? f->compute_thread->eval : f->compute_thread->shard;
    f->shard = f->in->shard + f->index;
    f->timed = tti_profile_of(x) && !f->r->eval && f->index == 0;
    tutti_status st = f->in->kind == TTI_RUN ? run_steps(f) : transfer(f);
    if (st == TUTTI_OK) return;
    tti_exec_compute_thread_failed(threads, f->compute_thread, st);
    if (f->r->program->side) tti_mailbox_fail(tti_pipe_of(x)->box, st);
}

static void merge(tti_exec *x, const tti_instr *in, int index) {
    tti_range mine = tti_compute_thread_range(in->range.last - in->range.first, 16, index,
                                              tti_setup_of(x)->desc.n_compute_threads);
    tti_exec_merge(x, in->merges, in->range.first + mine.first, in->range.first + mine.last);
}

/* Compute threads join or merge together, failed or not: other workers wait for a join too. */
static void run_together(tti_exec *x, const tti_instr *in, int index) {
    tti_thread_set *threads = tti_threads_of(x);
    tti_compute_threads_barrier(threads->pool);
    if (in->kind == TTI_MERGE) {
        merge(x, in, index);
    } else if (index == 0) {
        tutti_status st = tti_host_communicate(x, in);
        if (st != TUTTI_OK) tti_exec_compute_thread_failed(threads, &threads->thread[0], st);
    }
    tti_compute_threads_barrier(threads->pool);
}

static void walk(int index, void *arg) {
    const step_run *r = arg;
    for (int i = 0; i < r->program->n_instrs; i++) {
        const tti_instr *in = &r->program->instrs[i];
        if (in->queue != TTI_ON_COMPUTE_THREADS) continue;
        flight f = {.r = r, .in = in, .index = index};
        f.cursor = tti_compute_thread_cursor_at(r->thread, r->program, i);
        if (in->kind == TTI_MERGE || in->kind == TTI_JOIN)
            run_together(r->x, in, index);
        else
            run_shard(&f);
        tti_compute_thread_cursor_leave(&f.cursor);
    }
}

/* ---- a step ---- */

/* All shards of the worker: gradients are then in x->buffers, sums in x->sums. */
static tutti_status compute(const step_run *r) {
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    int worker = tti_exec_number(setup);
    for (int i = 0; i < setup->n_in_flight; i++) threads->thread[i].status = TUTTI_OK;
    if (TTI_FAULT_AT(r->eval ? "exec.evaluate" : "exec.compute", worker, (int64_t)r->desc->step))
        tti_exec_compute_thread_failed(
            threads, &threads->thread[0],
            tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute", worker));
    tally->loss_scale = r->desc->loss_scale > 0 ? (float)r->desc->loss_scale : 1.0f;
    memset(tally->sums, 0, tally->n_sums * sizeof *tally->sums);
    tutti_status before = tti_exec_compute_thread_status(x);
    if (r->thread) tti_comm_thread_begin(r->thread, r->program);
    if (r->program->side) tti_pipe_begin(tti_pipe_of(x), before);
    tti_compute_threads_run(threads->pool, walk, (void *)r);
    return tti_exec_compute_thread_status(x);
}

/* All of a step up to the instructions after the reductions. */
static tutti_status run_until_reduced(tti_host_main *m, tti_step_form form) {
    tti_exec *x = m->x;
    step_run r = {.x = x, .desc = m->desc, .program = m->program, .eval = form == TTI_FORM_EVAL};
    if (r.program->has_comm) r.thread = tti_host_of(x)->comm_thread;
    m->eval = r.eval;
    tti_tally_of(x)->sent_bytes = 0;
    TTI_TRY(tti_host_begin(m));
    if (!r.eval) tti_exec_note(tti_setup_of(x), m->desc, "compute");
    m->start_ns = tti_now_ns();
    tutti_status computed = compute(&r);
    m->computed_ns = tti_now_ns();
    tti_profile_mark(x, m->computed_ns);
    if (!r.eval) tti_exec_note(tti_setup_of(x), m->desc, "reduce");
    tutti_status reduced = tti_host_reduce(m), communicated = tti_comm_thread_finish(r.thread);
    TTI_TRY(tti_exec_compute_thread_status(
        x)); /* also of a compute thread that failed in a reduction */
    TTI_TRY(computed);
    TTI_TRY(reduced);
    return communicated;
}

tutti_status tti_host_run(tti_exec *x, const tti_step_desc *desc, tti_step_form form,
                          tti_step_result *result) {
    tti_host_main m = {
        .x = x, .desc = desc, .result = result, .program = tti_host_of(x)->programs[form]};
    TTI_TRY(run_until_reduced(&m, form));
    return tti_host_finish(&m);
}

tutti_status tti_host_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                        tti_step_form form) {
    tti_host *host = tti_host_of(x);
    begun_step *begun = &host->begun;
    *begun = (begun_step){.desc = *desc};
    begun->main = (tti_host_main){.x = x,
                                  .desc = &begun->desc,
                                  .result = &begun->result,
                                  .program = host->programs[form],
                                  .stops = true};
    TTI_TRY(run_until_reduced(&begun->main, form));
    return tti_host_finish(&begun->main);
}

tutti_status tti_host_apply_gradients(tti_exec *x, double lr, bool keeps_params) {
    begun_step *begun = &tti_host_of(x)->begun;
    begun->desc.lr = lr;
    begun->desc.keeps_params = keeps_params;
    begun->main.stops = false;
    return tti_host_finish(&begun->main);
}

tti_step_result *tti_host_begun_result(tti_host *host) { return &host->begun.result; }

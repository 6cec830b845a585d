/* host.c - the executor on the host: compute threads and the communication thread run a step
 * program. */
#include "exec/host/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/host/comm_thread.h"
#include "exec/worker/worker.h"

/* ---- local SGD: averages over the workers ----
 *
 * Stich, Local SGD converges fast and communicates little (2018).  Between averagings workers do
 * not communicate, so the results of such a step are those of the worker's own shards.  With a
 * divided model the workers of a replica act as one: each position averages its part.  Parameters
 * are averaged in the buffer of the summed gradients, which peers see and which is free after the
 * update.  Frozen parameters are not averaged, since a mean of equal numbers need not be that
 * number. */

typedef struct mean {
    tti_exec *x;
    float *values; /* [n_flat] */
    bool back;     /* true: copies the mean back; false: copies values to the buffer */
} mean;

/* Copies the blocks of one compute thread. */
static void mean_compute_thread(int compute_thread, void *arg) {
    const mean *m = arg;
    const tti_plan *plan = tti_setup_of(m->x)->desc.plan;
    float share = 1 / (float)tti_setup_of(m->x)->n_ranks, *buffer = tti_exec_grads(m->x);
    tti_range mine = tti_compute_thread_range((size_t)plan->n_updates, 1, compute_thread,
                                              tti_setup_of(m->x)->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        float *v = m->values + u->first, *b = buffer + u->first;
        if (!m->back) memcpy(b, v, u->n_elems * sizeof *b);
        for (size_t e = 0; m->back && u->node && e < u->n_elems; e++) v[e] = b[e] * share;
    }
}

/* ---- runs the instructions of queue MAIN, on the worker's own thread ----
 *
 * To add an instruction: a row in the table below, and its name in program/step_program.c. */

typedef struct main_queue {
    tti_exec *x;
    const tti_step_desc *desc;
    const tti_step_program *program;
    tti_step_result *result;
    bool eval;
    int64_t start_ns, computed_ns; /* when the compute threads began and ended */
    int64_t reported_ns;           /* when the last report ended; initially computed_ns */
    int64_t comm_ns, update_ns;    /* time of the instructions after the compute threads, by kind */
    int next;                      /* index of the next instruction */
    bool stops;                    /* true: stops before the update */
} main_queue;

/* ---- gradients ---- */

/* Runs an instruction that communicates or merges, of any queue. */
static tutti_status communicate(const tti_instr *in, void *user) {
    tti_exec *x = user;
    switch (in->kind) {
        case TTI_ALL_GATHER:
            return tti_sharded_gather(x, in->bucket, in->offset, in->averages);
        case TTI_JOIN:
            return tti_exec_join(x, in->first, in->eval);
        case TTI_MERGE:
            tti_exec_merge(x, in->merges, in->range.first, in->range.last);
            return TUTTI_OK;
        default:
            TTI_TRY(tti_exec_reduce(x, in));
            tti_sharded_keep_sum(x, in->bucket);
            return TUTTI_OK;
    }
}

/* ---- the flight recorder ---- */

static void begin_record(const tti_exec *x, int thread, const tti_instr *in, uint64_t step) {
    const tti_setup *setup = tti_setup_of(x);
    if (!setup->desc.flight) return;
    bool is_comm = in->axis != TTI_AXIS_NONE && in->kind != TTI_UPDATE_BLOCKS;
    bool reduces = in->kind == TTI_REDUCE_SCATTER || in->kind == TTI_ALL_REDUCE;
    size_t each = reduces ? tti_exec_wire_bytes(&setup->desc) : sizeof(float);
    size_t n_elems = in->kind == TTI_RUN ? 0 : in->range.last - in->range.first;
    tti_flight_begin(setup->desc.flight, thread,
                     &(tti_flight_op){.name = tti_instr_name(in->kind),
                                      .step = step,
                                      .n_bytes = n_elems * each,
                                      .n_peers = is_comm ? setup->n_ranks - 1 : 0,
                                      .waits_for_peers = is_comm && setup->n_ranks > 1});
}

static void end_record(const tti_exec *x, int thread) {
    tti_flight_end(tti_setup_of(x)->desc.flight, thread);
}

/* Instructions that communicate, on the communication thread. */
static tutti_status communicate_recorded(const tti_instr *in, void *user) {
    const tti_exec *x = user;
    begin_record(x, TTI_THREAD_COMM, in, tti_tally_of(x)->begun.step);
    tutti_status st = communicate(in, user);
    end_record(x, TTI_THREAD_COMM);
    return st;
}

static tutti_status reduce(main_queue *m, const tti_instr *in) { return communicate(in, m->x); }

static tutti_status time_stages(main_queue *m, const tti_instr *in) {
    (void)in;
    TTI_TRY(tti_pipe_measure(m->x, tti_pipe_of(m->x)->busy_ns, m->computed_ns - m->start_ns));
    m->result->bubble = tti_pipe_of(m->x)->measured;
    return TUTTI_OK;
}

static tutti_status reduce_tied_grads(main_queue *m, const tti_instr *in) {
    (void)in;
    return tti_pipe_reduce_tied_grads(m->x, tti_exec_grads(m->x));
}

/* ---- report ---- */

static tutti_status add_sums(main_queue *m, const tti_instr *in) {
    tti_exec *x = m->x;
    const tti_setup *setup = tti_setup_of(x);
    double no_votes = 0;
    bool votes = in->report & TTI_REPORT_VOTES;
    m->result->partial = in->axis == TTI_AXIS_MODEL;
    if (in->axis == TTI_AXIS_ALL)
        return tti_exec_reduce_sums(x, votes && m->desc->vote, m->eval ? m->result : NULL);
    return tti_divided_sums(setup->divided, tti_tally_of(x)->sums, tti_n_shard_sums(setup),
                            &no_votes);
}

static tutti_status report(main_queue *m, const tti_instr *in) {
    tti_step_result *result = m->result;
    TTI_TRY(add_sums(m, in));
    tti_exec *x = m->x;
    const tti_setup *setup = tti_setup_of(x);
    int64_t now = tti_now_ns();
    if (!m->eval) {
        if (setup->n_ranks > 1)
            tti_profile_add(x, TTI_ROW_HOST, tti_span_of(TTI_SPAN_WAIT, "waiting for sums"), -1,
                            m->reported_ns, now);
        if (setup->n_ranks > 1 || setup->divided)
            tti_profile_rest(x, tti_span_of(TTI_SPAN_WAIT, "waiting for sums"), now);
        else
            tti_profile_mark(x, now);
        m->reported_ns = now;
    }
    if (in->report & TTI_REPORT_HASHES) TTI_TRY(tti_exec_compare_hashes(m->x, m->desc->step));
    if (m->eval)
        tti_exec_add_sums(m->x, result);
    else
        tti_exec_set_sums(m->x, result);
    int bad = in->report & TTI_REPORT_LOSSES ? tti_exec_first_bad_shard(m->x) : -1;
    if (bad < 0) return TUTTI_OK;
    result->skipped = true;
    if (in->axis == TTI_AXIS_ALL) return tti_exec_report_bad_loss(x, m->desc, bad);
    /* A worker of local SGD reports only its own loss, because the others do not take part. */
    char layer[TTI_LAYER_TEXT];
    tti_exec_find_bad_layer(x, m->desc, bad, layer);
    return tti_exec_bad_loss(x, m->desc->step, bad, layer);
}

/* ---- update ---- */

static double inv_count(const main_queue *m) {
    return m->result->count > 0 ? 1.0 / m->result->count : 0;
}

/* Sets last_hash to the hash of this worker's parameters. */
static tutti_status keep_hash(main_queue *m) {
    tti_exec_report_hash(m->x, m->result);
    return TUTTI_OK;
}

/* A worker of local SGD without samples in a short batch keeps its parameters. */
static tutti_status update(main_queue *m, const tti_instr *in) {
    tti_exec *x = m->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_step_desc desc = *m->desc;
    tti_exec_note(setup, m->desc, "update");
    if (in->own_rows) desc.n_rows = tti_local_rows(setup, m->desc);
    if (in->own_rows && desc.n_rows == 0)
        tti_exec_set_hash(x, tti_exec_flat_hash(x));
    else
        TTI_TRY(tti_exec_update(x, &desc, inv_count(m), m->result));
    return keep_hash(m);
}

static tutti_status push(main_queue *m, const tti_instr *in) {
    (void)in;
    tti_exec_note(tti_setup_of(m->x), m->desc, "update");
    return tti_calls_of(tti_setup_of(m->x)->desc.server)
        ->push(m->x, m->desc, inv_count(m), m->result);
}

static tutti_status pull(main_queue *m, const tti_instr *in) {
    (void)in;
    TTI_TRY(tti_calls_of(tti_setup_of(m->x)->desc.server)->pull(m->x));
    return keep_hash(m);
}

/* ---- parameters ---- */

static tutti_status gather(main_queue *m, const tti_instr *in) {
    return in->averages ? tti_exec_gather_averages(m->x) : tti_exec_gather_params(m->x);
}

static tutti_status average(main_queue *m, const tti_instr *in) {
    tti_exec *x = m->x;
    const tti_span move = {.id = tti_instr_span(TTI_AVERAGE), .shard = -1, .row = TTI_ROW_COMM};
    int64_t start = tti_now_ns();
    tti_exec_note(tti_setup_of(x), m->desc, "average");
    /* Replaces values [n_flat], parameters or state, by their mean over all workers, added in the
     * same order everywhere.  Frozen blocks are not changed.  Collective. */
    float *values = tti_exec_array(x, in->array);
    const tti_setup *setup = tti_setup_of(x);
    size_t n = setup->desc.plan->n_flat;
    float *buffer = tti_exec_grads(x);
    tti_exec_run_threads(x, mean_compute_thread, &(mean){x, values, false});
    tti_exec_count_sent(x, tti_exec_reduce_bytes(setup, n * sizeof *buffer));
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, buffer, buffer, n, TUTTI_F32, TUTTI_SUM,
                                  setup->desc.alg));
    tti_exec_run_threads(x, mean_compute_thread, &(mean){x, values, true});
    int64_t end = tti_now_ns();
    tti_profile_stall(x, &move, "waiting for parameters", start, end);
    tti_profile_mark(x, end);
    return TUTTI_OK;
}

static tutti_status hash(main_queue *m, const tti_instr *in) {
    if (in->whole) {
        tti_exec_set_hash(m->x, tti_exec_flat_hash(m->x));
        tti_profile_rest(m->x, tti_instr_span(TTI_HASH), tti_now_ns());
    } else {
        tti_exec_hash_gathered(m->x);
    }
    return keep_hash(m);
}

/* Adds the hashes of the blocks that each worker has updated.  ZeRO-3 stores the sum for full
 * checks. */
static tutti_status sum_block_hashes(tti_exec *x) {
    tti_tally *tally = tti_tally_of(x);
    if (!tti_exec_has_sharded_params(x))
        return tti_exec_sum_hashes(tti_setup_of(x), tally->last_hash, &tally->last_hash);
    TTI_TRY(tti_sharded_gather_hashes(x, tally->last_hash));
    tti_exec_set_hash(x, tti_sharded_of(x)->hashes->all);
    return TUTTI_OK;
}

static tutti_status sum_hashes(main_queue *m, const tti_instr *in) {
    tti_exec *x = m->x;
    int64_t start = tti_now_ns();
    if (in->axis == TTI_AXIS_MODEL)
        return tti_divided_hash(tti_setup_of(x)->divided, &m->result->params_hash);
    TTI_TRY(sum_block_hashes(x));
    int64_t end = tti_now_ns();
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_SUM_HASHES), -1, start, end);
    tti_profile_rest(x, tti_span_of(TTI_SPAN_WAIT, "waiting for all updates"), end);
    return keep_hash(m);
}

/* ---- the queue ---- */

typedef struct row {
    tutti_status (*run)(main_queue *m, const tti_instr *in);
    bool is_comm;    /* its time counts as communication, else as update */
    bool own_waited; /* it reports its own waits */
} row;

/* One row per kind of instruction. */
/* clang-format off */
static const row rows[TTI_N_INSTR_KINDS] = {
    [TTI_ALL_GATHER] = {gather, true, false},
    [TTI_MERGE] = {reduce, true, true},
    [TTI_ADD_PARTIALS] = {reduce, true, true},
    [TTI_REDUCE_SCATTER] = {reduce, true, true},
    [TTI_ALL_REDUCE] = {reduce, true, true},
    [TTI_TIME_STAGES] = {time_stages, true, true},
    [TTI_REDUCE_TIED_GRADS] = {reduce_tied_grads, true, false},
    [TTI_REPORT] = {report, true, true},
    [TTI_UPDATE_BLOCKS] = {update, false, true},
    [TTI_PUSH_GRADS] = {push, true, false},
    [TTI_PULL_PARAMS] = {pull, true, false},
    [TTI_AVERAGE] = {average, true, false},
    [TTI_HASH] = {hash, false, true},
    [TTI_SUM_HASHES] = {sum_hashes, true, false},
};
/* clang-format on */

static tutti_status run_next(main_queue *m) {
    const tti_instr *in = &m->program->instrs[m->next++];
    const row *r = &rows[in->kind];
    int64_t start = tti_now_ns();
    begin_record(m->x, TTI_THREAD_MAIN, in, m->desc->step);
    tutti_status st = r->run(m, in);
    end_record(m->x, TTI_THREAD_MAIN);
    TTI_TRY(st);
    int64_t spent = tti_now_ns() - start;
    *(r->is_comm ? &m->comm_ns : &m->update_ns) += spent;
    if (!r->own_waited) tti_exec_waited(m->x, spent);
    return TUTTI_OK;
}

/* Moves to the next instruction of this queue; false: there is none, or execution stops before
 * it. */
static bool find_next(main_queue *m) {
    const tti_step_program *p = m->program;
    while (m->next < p->n_instrs && p->instrs[m->next].queue != TTI_ON_MAIN) m->next++;
    if (m->stops && m->next < p->n_instrs && p->instrs[m->next].kind == TTI_UPDATE_BLOCKS)
        return false;
    return m->next < p->n_instrs;
}

static tutti_status finish_step(main_queue *m) {
    int64_t reduced = tti_now_ns();
    if (!m->eval) tti_exec_waited(m->x, reduced - m->computed_ns);
    m->comm_ns = reduced - m->computed_ns;
    m->result->sent_bytes = tti_exec_sent_bytes(m->x);
    while (find_next(m)) TTI_TRY(run_next(m));
    m->result->sent_bytes = tti_exec_sent_bytes(m->x);
    m->result->compute_ns = m->computed_ns - m->start_ns;
    m->result->comm_ns = m->comm_ns;
    m->result->update_ns = m->update_ns;
    return TUTTI_OK;
}

/* A step that stopped before its update. */
typedef struct begun_step {
    tti_step_desc desc;
    tti_step_result result;
    main_queue main;
} begun_step;

struct tti_host {
    tti_step_program *programs[TTI_N_FORMS];
    tti_comm_thread *comm_thread; /* NULL: the programs do not communicate while shards run */
    begun_step begun;
    tti_layer_hashes watched;
};

/* ---- building ---- */

tutti_status tti_host_create(tti_exec *x, tti_host **out) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_pipe *pipe = tti_pipe_of(x);
    const tti_step_basis basis = (tti_step_basis){
        .desc = &setup->desc,
        .n_ranks = setup->n_ranks,
        .is_divided = setup->divided != NULL,
        .has_server = setup->desc.server != NULL,
        .divides = tti_exec_divides(setup),
        .acc = &setup->acc,
        .n_compute_threads = setup->desc.n_compute_threads,
        .n_idle = pipe                             ? pipe->n_idle
                  : tti_exec_has_sharded_params(x) ? tti_sharded_idle_micro_groups(x)
                                                   : 0,
        .joins = setup->syncs.step,
        .n_joins = setup->syncs.n,
        .eval_joins = setup->eval_syncs.step,
        .n_eval_joins = setup->eval_syncs.n,
        .train = pipe ? &pipe->train : NULL,
        .eval = pipe ? &pipe->eval : NULL,
        .sharded = tti_sharded_of(x)};
    int n_instrs = 0,
        core = setup->desc.cores ? setup->desc.cores[setup->desc.n_compute_threads - 1] : -1;
    bool has_comm = false;
    *out = NULL;
    if (setup->desc.serves) return TUTTI_OK; /* a server does not compute shards */
    tti_host *host = *out = calloc(1, sizeof *host);
    if (!host) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    host->watched.shard = -1;
    for (tti_step_form form = 0; form < TTI_N_FORMS; form++) {
        if (!tti_step_has_form(&basis, form)) continue;
        TTI_TRY(tti_step_build(&basis, form, &host->programs[form]));
        n_instrs = TTI_MAX(n_instrs, host->programs[form]->n_instrs);
        has_comm = has_comm || host->programs[form]->has_comm;
    }
    return has_comm
               ? tti_comm_thread_create(n_instrs, core, communicate_recorded, x, &host->comm_thread)
               : TUTTI_OK;
}

const tti_step_program *tti_host_program(const tti_host *host, tti_step_form form) {
    return host->programs[form];
}

tti_layer_hashes *tti_host_layer_hashes(tti_host *host) { return &host->watched; }

void tti_host_destroy(const tti_exec *x, tti_host *host) {
    if (!host) return;
    tti_layer_hashes_fini(x, &host->watched);
    tti_comm_thread_destroy(host->comm_thread);
    for (int form = 0; form < TTI_N_FORMS; form++) tti_step_program_destroy(host->programs[form]);
    free(host);
}

/* ---- one instruction on one compute thread ---- */

typedef struct step_run {
    tti_exec *x;
    const tti_step_desc *desc;
    const tti_step_program *program;
    tti_comm_thread *thread; /* NULL: the program does not communicate */
    bool eval;
} step_run;

/* The state of a compute thread at an instruction. */
typedef struct thread_step {
    const step_run *r;
    const tti_instr *in;
    int index; /* index of the compute thread */
    int shard; /* number of the shard in the batch */
    tti_instance *instance;
    tti_compute_thread_cursor cursor;
    bool timed, hashed;
    int64_t last_ns; /* end of the previous step */
} thread_step;

/* The shortest wait that is recorded. */
enum { SHORT_NS = 1000 };

static void show_layers(const thread_step *f) {
    const tti_setup *setup = tti_setup_of(f->r->x);
    tti_instance_show_layers(
        f->instance, tti_flight_layer_place(setup->desc.flight, TTI_THREAD_COMPUTE + f->index),
        f->r->eval ? setup->desc.plan->shard.n_steps : 0);
}

/* Waits for the communication that a step depends on. */
static void await(thread_step *f, int step) {
    if (!tti_compute_thread_cursor_must_wait(&f->cursor, step)) return;
    int64_t start = tti_now_ns();
    tti_flight *recorder = tti_setup_of(f->r->x)->desc.flight;
    tti_flight_begin(
        recorder, TTI_THREAD_COMPUTE + f->index,
        &(tti_flight_op){
            .name = "wait for comm", .step = f->r->desc->step, .waits_for_peers = true});
    tti_compute_thread_cursor_wait(&f->cursor, step);
    begin_record(f->r->x, TTI_THREAD_COMPUTE + f->index, f->in, f->r->desc->step);
    show_layers(f);
    int64_t now = tti_now_ns();
    tti_exec_compute_thread_waited(f->r->x, now - start);
    if (f->timed && now - f->last_ns > SHORT_NS)
        tti_profile_add(f->r->x, TTI_ROW_COMPUTE,
                        tti_span_of(TTI_SPAN_WAIT, "waiting for parameters or places"), f->shard,
                        f->last_ns, now);
    f->last_ns = now;
}

/* In builds with fault points every layer is checked. */
static const bool has_faults = TUTTI_FAULTS;

static void after_step(int step, void *user) {
    thread_step *f = user;
    (void)TTI_FAULT_AT("exec.layer", tti_exec_number(tti_setup_of(f->r->x)),
                       (int64_t)f->r->desc->step);
    if (f->hashed) tti_layer_hash(f->r->x, f->instance, step, tti_host_of(f->r->x)->watched.hashes);
    if (f->timed) {
        int64_t now = tti_now_ns();
        const tti_node *node = f->r->program->program->steps[step];
        bool is_collective = node->op->traits & TTI_COLLECTIVE;
        tti_span_kind kind = is_collective ? TTI_SPAN_LAYERS : TTI_SPAN_WORK;
        const tti_span what = {
            .id = tti_span_node(kind, node, tti_instance_kernel(f->instance, step)),
            .shard = f->shard,
            .row = TTI_ROW_TP};
        if (is_collective)
            tti_profile_stall(f->r->x, &what, "waiting for a collective", f->last_ns, now);
        else
            tti_profile_add(f->r->x, TTI_ROW_COMPUTE, what.id, f->shard, f->last_ns, now);
        f->last_ns = tti_now_ns();
    }
    tti_compute_thread_cursor_signal(&f->cursor, step + 1);
    if (step + 1 < f->in->last) await(f, step + 1);
}

static bool is_backward(const thread_step *f) {
    return f->in->segment >= tti_setup_of(f->r->x)->desc.plan->stages->n_chunks;
}

static tutti_status pass_faults(const thread_step *f) {
    const tti_exec *x = f->r->x;
    const tti_instr *in = f->in;
    const int64_t step = (int64_t)f->r->desc->step;
    const tti_step_program *p = f->r->program;
    int worker = tti_exec_number(tti_setup_of(x)),
        stage = p->side ? tti_pipe_of(x)->stages->stage : 0;
    if (!f->r->eval && in->first == 0 && TTI_FAULT_AT("exec.shard", worker, step))
        return tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute a shard", worker);
    bool begins = p->side && in->first == p->program->segment_first[in->segment];
    if (begins && TTI_FAULT_AT(is_backward(f) ? "pipe.backward" : "pipe.forward", stage, step))
        return tti_fail(TUTTI_E_INTERNAL, "pipeline: stage %d cannot compute", stage);
    return TUTTI_OK;
}

static tutti_status check_comm(const thread_step *f) {
    return f->in->n_waits > 0 ? tti_comm_thread_check(f->r->thread) : TUTTI_OK;
}

static tutti_status run_steps(thread_step *f) {
    const step_run *r = f->r;
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_instr *in = f->in;
    tti_run run = tti_exec_shard_run(setup, r->desc, f->shard);
    if (in->first == 0)
        tti_exec_feed(x, f->instance, r->eval ? &setup->eval_inputs : &setup->shard_inputs,
                      &r->desc->shards[f->shard - setup->first_shard]);
    if (!r->eval) tti_exec_point_at_buffer(x, f->instance, in->buffer[f->index]);
    int64_t start = f->last_ns = tti_now_ns();
    TTI_TRY(pass_faults(f));
    await(f, in->first);
    TTI_TRY(check_comm(f));
    show_layers(f);
    bool looks =
        has_faults || f->timed || f->hashed || tti_compute_thread_cursor_is_used(&f->cursor);
    TTI_TRY(tti_instance_run_range(f->instance, &run, in->first, in->last,
                                   looks ? after_step : NULL, f));
    int64_t end = tti_now_ns();
    tti_exec_compute_thread_waited(x, tti_instance_take_collective_ns(f->instance));
    TTI_TRY(check_comm(f)); /* reports a failure before other workers wait for missing results */
    if (r->program->side && f->index == 0) tti_pipe_of(x)->busy_ns += end - start;
    if (r->program->side && f->timed)
        tti_profile_add(x, TTI_ROW_SEGMENTS,
                        tti_span_of(TTI_SPAN_OTHER, is_backward(f) ? "backward" : "forward"),
                        f->shard, start, end);
    if (in->last < r->program->program->n_steps) return TUTTI_OK;
    tti_exec_keep_sums(x, f->instance, f->shard, r->eval ? TTI_LOSS_SUMS : tti_n_sums(setup));
    tti_exec_copy_outputs(r->desc, f->instance, f->shard - setup->first_shard);
    return TUTTI_OK;
}

static tutti_status transfer(const thread_step *f) {
    const step_run *r = f->r;
    const tti_pipe_segment segment = {.instance = f->instance,
                                      .side = r->program->side,
                                      .action = {f->in->micro_group, f->in->segment},
                                      .index = f->index,
                                      .shard = f->shard,
                                      .timed = f->timed};
    return f->in->kind == TTI_RECV ? tti_pipe_receive(r->x, &segment)
                                   : tti_pipe_send(r->x, &segment);
}

/* Runs RUN, RECV or SEND for the compute thread's shard, unless it has failed before. */
static void run_shard(thread_step *f) {
    tti_exec *x = f->r->x;
    tti_thread_set *threads = tti_threads_of(x);
    int compute_thread =
        tti_step_program_compute_thread(f->r->program, f->in->micro_group, f->index);
    if (f->index >= f->in->n_shards || threads->thread[compute_thread].status != TUTTI_OK) return;
    f->instance = tti_exec_instance(x, compute_thread, f->r->eval);
    f->shard = f->in->shard + f->index;
    f->timed = tti_profile_of(x) && !f->r->eval && f->index == 0;
    f->hashed = !f->r->eval && f->shard == tti_host_of(x)->watched.shard;
    begin_record(x, TTI_THREAD_COMPUTE + f->index, f->in, f->r->desc->step);
    tutti_status st = f->in->kind == TTI_RUN ? run_steps(f) : transfer(f);
    end_record(x, TTI_THREAD_COMPUTE + f->index);
    if (st == TUTTI_OK) return;
    tti_exec_compute_thread_failed(x, compute_thread, st);
    if (f->r->program->side) tti_mailbox_fail(tti_pipe_of(x)->box, st);
}

/* Compute threads join or merge together, even after a failure, because other workers wait for a
 * join. */
static void run_together(tti_exec *x, const tti_instr *in, int index) {
    tti_thread_set *threads = tti_threads_of(x);
    tti_compute_threads_barrier(threads->pool);
    if (in->kind == TTI_MERGE) {
        tti_range mine = tti_compute_thread_range(in->range.last - in->range.first, 16, index,
                                                  tti_setup_of(x)->desc.n_compute_threads);
        int64_t start = tti_now_ns();
        tti_exec_merge(x, in->merges, in->range.first + mine.first, in->range.first + mine.last);
        if (index == 0 && tti_profile_of(x))
            tti_profile_add(x, TTI_ROW_COMPUTE, tti_instr_span(TTI_MERGE), -1, start, tti_now_ns());
    } else if (index == 0) {
        begin_record(x, TTI_THREAD_COMPUTE, in, tti_tally_of(x)->begun.step);
        tutti_status st = communicate(in, x);
        end_record(x, TTI_THREAD_COMPUTE);
        if (st != TUTTI_OK) tti_exec_compute_thread_failed(x, 0, st);
    }
    tti_compute_threads_barrier(threads->pool);
}

static void walk(int index, void *arg) {
    const step_run *r = arg;
    for (int i = 0; i < r->program->n_instrs; i++) {
        const tti_instr *in = &r->program->instrs[i];
        if (in->queue != TTI_ON_COMPUTE_THREADS) continue;
        thread_step f = {.r = r, .in = in, .index = index};
        f.cursor = tti_compute_thread_cursor_at(r->thread, r->program, i);
        if (in->kind == TTI_MERGE || in->kind == TTI_JOIN)
            run_together(r->x, in, index);
        else
            run_shard(&f);
        tti_compute_thread_cursor_leave(&f.cursor);
    }
}

/* ---- a step ---- */

/* Runs all shards of the worker.  Gradients are then in x->buffers, sums in x->sums. */
static tutti_status compute(const step_run *r) {
    tti_exec *x = r->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    int worker = tti_exec_number(setup);
    for (int i = 0; i < setup->n_in_flight; i++) threads->thread[i].status = TUTTI_OK;
    if (TTI_FAULT_AT(r->eval ? "exec.evaluate" : "exec.compute", worker, (int64_t)r->desc->step))
        tti_exec_compute_thread_failed(
            x, 0, tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute", worker));
    tti_exec_scale_loss(x, r->desc->loss_scale);
    tti_exec_clear_sums(x);
    tutti_status before = tti_exec_compute_thread_status(x);
    if (r->thread) tti_comm_thread_begin(r->thread, r->program);
    if (r->program->side) tti_pipe_begin(tti_pipe_of(x), before);
    tti_exec_run_threads(x, walk, (void *)r);
    return tti_exec_compute_thread_status(x);
}

/* Runs a step up to the instructions after the reductions. */
static tutti_status run_until_reduced(main_queue *m, tti_step_form form) {
    tti_exec *x = m->x;
    step_run r = {.x = x, .desc = m->desc, .program = m->program, .eval = form == TTI_FORM_EVAL};
    if (r.program->has_comm) r.thread = tti_host_of(x)->comm_thread;
    m->eval = r.eval;
    tti_tally_of(x)->sent_bytes = 0;
    while (m->next < m->program->n_head) TTI_TRY(run_next(m));
    if (!r.eval) tti_exec_note(tti_setup_of(x), m->desc, "compute");
    m->start_ns = tti_now_ns();
    tutti_status computed = compute(&r);
    m->computed_ns = m->reported_ns = tti_now_ns();
    tti_profile_mark(x, m->computed_ns);
    if (!r.eval) tti_exec_note(tti_setup_of(x), m->desc, "reduce");
    tutti_status reduced = TUTTI_OK;
    while (reduced == TUTTI_OK && find_next(m) &&
           tti_is_reduction(m->program->instrs[m->next].kind))
        reduced = run_next(m);
    tutti_status communicated = tti_comm_thread_finish(r.thread);
    TTI_TRY(tti_exec_compute_thread_status(
        x)); /* waits also after a compute thread failed in a reduction */
    TTI_TRY(computed);
    TTI_TRY(reduced);
    return communicated;
}

tutti_status tti_host_run(tti_exec *x, const tti_step_desc *desc, tti_step_form form,
                          tti_step_result *result) {
    main_queue m = {
        .x = x, .desc = desc, .result = result, .program = tti_host_of(x)->programs[form]};
    TTI_TRY(run_until_reduced(&m, form));
    return finish_step(&m);
}

tutti_status tti_host_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                        tti_step_form form) {
    tti_host *host = tti_host_of(x);
    begun_step *begun = &host->begun;
    *begun = (begun_step){.desc = *desc};
    begun->main = (main_queue){.x = x,
                               .desc = &begun->desc,
                               .result = &begun->result,
                               .program = host->programs[form],
                               .stops = true};
    TTI_TRY(run_until_reduced(&begun->main, form));
    return finish_step(&begun->main);
}

tutti_status tti_host_apply_gradients(tti_exec *x, double lr, bool keeps_params) {
    begun_step *begun = &tti_host_of(x)->begun;
    begun->desc.lr = lr;
    begun->desc.keeps_params = keeps_params;
    begun->main.stops = false;
    return finish_step(&begun->main);
}

tti_step_result *tti_host_begun_result(tti_host *host) { return &host->begun.result; }

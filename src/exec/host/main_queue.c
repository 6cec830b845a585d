/* main_queue.c - runs the instructions of a step that are on the worker's own thread.
 *
 * To add an instruction: a row in the table below, and its name in program/step_text.c. */
#include "exec/host/main_queue.h"

#include "base/clock.h"
#include "exec/host/local.h"
#include "exec/worker/worker.h"

/* ---- gradients ---- */

tutti_status tti_host_communicate(tti_exec *x, const tti_instr *in) {
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

static tutti_status reduce(tti_host_main *m, const tti_instr *in) {
    return tti_host_communicate(m->x, in);
}

static tutti_status time_stages(tti_host_main *m, const tti_instr *in) {
    (void)in;
    TTI_TRY(tti_pipe_measure(m->x, tti_pipe_of(m->x)->busy_ns, m->computed_ns - m->start_ns));
    m->result->bubble = tti_pipe_bubble_measured(tti_pipe_of(m->x));
    return TUTTI_OK;
}

static tutti_status sum_tied(tti_host_main *m, const tti_instr *in) {
    (void)in;
    return tti_pipe_sum_tied(m->x, tti_exec_grads(m->x));
}

/* ---- report ---- */

/* A worker of local SGD reports its loss alone: the others do not take part. */
static tutti_status fail_on_loss(tti_host_main *m, const tti_instr *in, int shard) {
    char layer[TTI_LAYER_TEXT];
    m->result->skipped = true;
    if (in->axis == TTI_AXIS_ALL) return tti_exec_report_bad_loss(m->x, m->desc, shard);
    tti_exec_find_bad_layer(m->x, m->desc, shard, layer);
    return tti_exec_bad_loss(m->x, m->desc->step, shard, layer);
}

static tutti_status add_sums(tti_host_main *m, const tti_instr *in) {
    tti_exec *x = m->x;
    const tti_setup *setup = tti_setup_of(x);
    double no_votes = 0;
    bool votes = in->report & TTI_REPORT_VOTES;
    m->result->partial = in->axis == TTI_AXIS_MODEL;
    if (in->axis == TTI_AXIS_ALL) return tti_exec_exchange_sums(x, votes && m->desc->vote);
    return tti_divided_sums(setup->divided, tti_tally_of(x)->sums,
                            (size_t)setup->desc.n_shards * TTI_SUMS, &no_votes);
}

static void profile_report(tti_host_main *m) {
    tti_exec *x = m->x;
    const tti_setup *setup = tti_setup_of(x);
    int64_t now = tti_now_ns();
    if (m->eval) return;
    if (setup->n_ranks > 1)
        tti_profile_add(x, TTI_ROW_HOST, tti_part_wait("waiting for sums"), -1, m->computed_ns,
                        now);
    if (setup->n_ranks > 1 || setup->divided)
        tti_profile_rest(x, tti_part_wait("waiting for sums"), now);
    else
        tti_profile_mark(x, now);
}

static tutti_status report(tti_host_main *m, const tti_instr *in) {
    tti_step_result *result = m->result;
    TTI_TRY(add_sums(m, in));
    profile_report(m);
    if (in->report & TTI_REPORT_HASHES) TTI_TRY(tti_exec_compare_hashes(m->x, m->desc->step));
    if (!m->eval) result->loss_sum = result->count = result->correct = 0;
    tti_exec_add_sums(m->x, result);
    int bad = in->report & TTI_REPORT_LOSSES ? tti_exec_first_bad_shard(m->x) : -1;
    return bad < 0 ? TUTTI_OK : fail_on_loss(m, in, bad);
}

/* ---- update ---- */

static double inv_count(const tti_host_main *m) {
    return m->result->count > 0 ? 1.0 / m->result->count : 0;
}

/* last_hash is that of the parameters of this worker. */
static tutti_status keep_hash(tti_host_main *m) {
    tti_tally_of(m->x)->has_hash = true;
    m->result->params_hash = m->result->own_hash = tti_tally_of(m->x)->last_hash;
    return TUTTI_OK;
}

/* A worker of local SGD that a short batch gave no sample keeps its parameters. */
static tutti_status update(tti_host_main *m, const tti_instr *in) {
    tti_exec *x = m->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_step_desc desc = *m->desc;
    tti_exec_note(setup, m->desc, "update");
    if (in->own_rows) desc.n_rows = tti_local_rows(setup, m->desc);
    if (in->own_rows && desc.n_rows == 0)
        tti_tally_of(x)->last_hash = tti_exec_flat_hash(x);
    else
        TTI_TRY(tti_exec_update(x, &desc, inv_count(m), m->result));
    return keep_hash(m);
}

static tutti_status push(tti_host_main *m, const tti_instr *in) {
    (void)in;
    tti_exec_note(tti_setup_of(m->x), m->desc, "update");
    return tti_calls_of(tti_setup_of(m->x)->desc.server)
        ->push(m->x, m->desc, inv_count(m), m->result);
}

static tutti_status pull(tti_host_main *m, const tti_instr *in) {
    (void)in;
    TTI_TRY(tti_calls_of(tti_setup_of(m->x)->desc.server)->pull(m->x));
    return keep_hash(m);
}

/* ---- parameters ---- */

static tutti_status gather(tti_host_main *m, const tti_instr *in) {
    return in->averages ? tti_exec_gather_averages(m->x) : tti_exec_gather_params(m->x);
}

static tutti_status average(tti_host_main *m, const tti_instr *in) {
    tti_exec *x = m->x;
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_span move = {
        .part = tti_part_params("mean of parameters"), .shard = -1, .row = TTI_ROW_COMM};
    int64_t start = tti_now_ns();
    tti_exec_note(tti_setup_of(x), m->desc, "average");
    TTI_TRY(tti_local_average(x, in->array == TTI_STATE_PARAMS ? arrays->params
                                 : in->array == TTI_STATE_EMA  ? arrays->ema
                                                               : arrays->states[in->array]));
    int64_t end = tti_now_ns();
    tti_profile_stall(x, &move, "waiting for parameters", start, end);
    tti_profile_mark(x, end);
    return TUTTI_OK;
}

static tutti_status hash(tti_host_main *m, const tti_instr *in) {
    if (in->whole) {
        tti_tally_of(m->x)->last_hash = tti_exec_flat_hash(m->x);
        tti_profile_rest(m->x, tti_part_work("hash of the parameters"), tti_now_ns());
    } else {
        tti_exec_hash_gathered(m->x);
    }
    return keep_hash(m);
}

/* Of the blocks that each worker has updated; ZeRO-3 keeps the sum for full checks. */
static tutti_status sum_block_hashes(tti_exec *x) {
    tti_arrays *arrays = tti_arrays_of(x);
    tti_tally *tally = tti_tally_of(x);
    if (!tti_exec_has_sharded_params(arrays))
        return tti_exec_sum_hashes(tti_setup_of(x), tally->last_hash, &tally->last_hash);
    TTI_TRY(tti_sharded_exchange_hash(x, tally->last_hash));
    tally->last_hash = arrays->sharded->hash;
    return TUTTI_OK;
}

static tutti_status sum_hashes(tti_host_main *m, const tti_instr *in) {
    tti_exec *x = m->x;
    int64_t start = tti_now_ns();
    if (in->axis == TTI_AXIS_MODEL)
        return tti_divided_hash(tti_setup_of(x)->divided, &m->result->params_hash);
    TTI_TRY(sum_block_hashes(x));
    int64_t end = tti_now_ns();
    tti_profile_add(x, TTI_ROW_COMM, tti_part_sums("sums of hashes"), -1, start, end);
    tti_profile_rest(x, tti_part_wait("waiting for all updates"), end);
    return keep_hash(m);
}

/* ---- the queue ---- */

typedef struct row {
    tutti_status (*run)(tti_host_main *m, const tti_instr *in);
    bool is_comm;    /* its time counts as communication, else as update */
    bool own_waited; /* tells itself how long it has waited */
} row;

static const row rows[TTI_N_INSTR_KINDS] = {
    [TTI_ALL_GATHER] = {gather, true, false},
    [TTI_MERGE] = {reduce, true, true},
    [TTI_ADD_PARTIALS] = {reduce, true, true},
    [TTI_REDUCE_SCATTER] = {reduce, true, true},
    [TTI_ALL_REDUCE] = {reduce, true, true},
    [TTI_TIME_STAGES] = {time_stages, true, true},
    [TTI_SUM_TIED] = {sum_tied, true, false},
    [TTI_REPORT] = {report, true, true},
    [TTI_UPDATE_BLOCKS] = {update, false, true},
    [TTI_PUSH_GRADS] = {push, true, false},
    [TTI_PULL_PARAMS] = {pull, true, false},
    [TTI_AVERAGE] = {average, true, false},
    [TTI_HASH] = {hash, false, true},
    [TTI_SUM_HASHES] = {sum_hashes, true, false},
};

static tutti_status run_next(tti_host_main *m) {
    const tti_instr *in = &m->program->instrs[m->next++];
    const row *r = &rows[in->kind];
    int64_t start = tti_now_ns();
    TTI_TRY(r->run(m, in));
    int64_t spent = tti_now_ns() - start;
    *(r->is_comm ? &m->comm_ns : &m->update_ns) += spent;
    if (!r->own_waited) tti_exec_waited(tti_tally_of(m->x), spent);
    return TUTTI_OK;
}

/* Moves to the next instruction of this queue; false: there is none, or it is to wait. */
static bool find_next(tti_host_main *m) {
    const tti_step_program *p = m->program;
    while (m->next < p->n_instrs && p->instrs[m->next].queue != TTI_ON_MAIN) m->next++;
    if (m->stops && m->next < p->n_instrs && p->instrs[m->next].kind == TTI_UPDATE_BLOCKS)
        return false;
    return m->next < p->n_instrs;
}

tutti_status tti_host_begin(tti_host_main *m) {
    while (m->next < m->program->n_head) TTI_TRY(run_next(m));
    return TUTTI_OK;
}

tutti_status tti_host_reduce(tti_host_main *m) {
    while (find_next(m) && tti_is_reduction(m->program->instrs[m->next].kind)) TTI_TRY(run_next(m));
    return TUTTI_OK;
}

tutti_status tti_host_finish(tti_host_main *m) {
    int64_t reduced = tti_now_ns();
    if (!m->eval) tti_exec_waited(tti_tally_of(m->x), reduced - m->computed_ns);
    m->comm_ns = reduced - m->computed_ns;
    m->result->sent_bytes = tti_tally_of(m->x)->sent_bytes;
    while (find_next(m)) TTI_TRY(run_next(m));
    m->result->sent_bytes = tti_tally_of(m->x)->sent_bytes;
    m->result->compute_ns = m->computed_ns - m->start_ns;
    m->result->comm_ns = m->comm_ns;
    m->result->update_ns = m->update_ns;
    return TUTTI_OK;
}

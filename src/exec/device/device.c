/* device.c - the step on a device: inputs, shard program, reduction, update, report.
 *
 * Two input sets alternate, or up to TTI_MAX_AHEAD if the device has the samples: then a step
 * begins by reading its numbers and indices from host memory, and ends by writing its report there,
 * so that it never waits for the host.  Everything that a captured graph refers to (pointers,
 * sizes, order) is fixed when the worker is created; only the bytes change. */
#include "exec/device/device.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "exec/device/device_compress.h"
#include "exec/device/device_failure.h"
#include "exec/device/device_memory.h"
#include "exec/device/device_step.h"

static bool is_alone(const tti_exec *x) { return x->n_ranks == 1; }

/* ---- preparation ---- */

tutti_status tti_exec_device_open(tti_exec *x) {
    const tti_device_ops *ops = x->desc.backend->device;
    if (!ops) return TUTTI_OK;
    x->device = calloc(1, sizeof *x->device);
    if (!x->device) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(ops->open(&x->desc.device));
    x->device->ops = ops;
    ops->describe(x->desc.device.index, &x->device->name);
    return TUTTI_OK;
}

tutti_status tti_exec_device_tell(tti_exec *x, tutti_status st) {
    const tti_exec_device *d = x->device;
    const tti_device_work work = {.name = tti_str_text(&d->name),
                                  .index = x->desc.device.index,
                                  .done = d->done,
                                  .newest = d->newest};
    bool waits_for_peers = d->reduce || d->axis || d->pipe;
    return tti_device_tell(&work, waits_for_peers ? NULL : d->ops, st);
}

static tutti_status make_sync(tti_exec *x) {
    size_t most = 0;
    for (int i = 0; i < x->n_syncs; i++) {
        const tti_node *node = x->desc.plan->shard.steps[x->syncs[i]];
        most = TTI_MAX(most, (size_t)tti_value_n_elems(node->out[0]));
    }
    TTI_TRY(tti_device_take(x, &x->device->sync_parts,
                            most * (size_t)x->desc.n_shards * sizeof(float)));
    return tti_device_take(x, &x->device->sync_joined, most * sizeof(float));
}

/* Labels say which rows of samples that come as bytes are there: also where nothing else reads
 * them. */
static void find_input_bytes(tti_exec *x) {
    tti_exec_device *d = x->device;
    const tti_program *program = &x->desc.plan->shard;
    d->x_bytes = tti_fed_bytes(program, "x");
    d->target_bytes = tti_fed_bytes(program, "target");
    if (d->target_bytes == 0)
        d->target_bytes = (size_t)tti_fed_rows(program, "x") * sizeof(int32_t);
}

tutti_status tti_exec_device_prepare(tti_exec *x) {
    tti_exec_device *d = x->device;
    TTI_TRY(tti_device_pipe_create(x, &d->pipe));
    TTI_TRY(tti_device_take(x, &d->args, sizeof *d->args));
    TTI_TRY(tti_device_meet(x));
    d->n_told = d->reduce || d->axis ? tti_device_reduce_n_told(x) : x->desc.n_shards * TTI_SUMS;
    size_t n_sums = (size_t)d->n_told;
    find_input_bytes(x);
    d->told_bytes = sizeof *d->report + n_sums * sizeof(double);
    TTI_TRY(tti_device_take(x, &d->report, sizeof *d->report));
    TTI_TRY(tti_device_take(x, &d->sums, n_sums * sizeof *d->sums));
    TTI_TRY(make_sync(x));
    d->n_sets = TTI_N_FED;
    TTI_TRY(tti_device_take_shards(x));
    if (x->offload)
        return tti_offload_attach(x->offload, d->by_host,
                                  &(tti_offload_told){d->report, d->sums, d->n_told});
    if (x->lean) TTI_TRY(tti_device_lean_create(x, d->reduce, &d->lean));
    if (d->reduce && tti_exec_has_parts(x) && !tti_exec_has_lean_params(x))
        TTI_TRY(tti_device_parts_create(x, d->reduce, &d->update, &d->parts));
    return tti_device_update_create(x,
                                    &(tti_device_update_desc){.args = d->args,
                                                              .sums = d->sums,
                                                              .told = d->sums,
                                                              .report = d->report,
                                                              .reduce = d->reduce,
                                                              .by_host = d->by_host,
                                                              .axis = d->axis},
                                    &d->update);
}

/* ---- does it fit? ---- */

/* Averages by a server of this process. */
static bool is_kept_here(const tti_exec *x) {
    return x->desc.server && tti_calls_of(x->desc.server)->keeper(x->desc.server);
}

/* Workers that update separately, or next to workers on the host, have everything. */
static bool may_have_parts(const tti_exec *x) {
    const tti_exec_desc *d = &x->desc;
    return x->n_ranks > 1 && !d->server && !d->local && !d->mixed &&
           x->device->ops->update.complete;
}

/* The memory with sharded gradients, and with sharded parameters too. */
static tutti_status find_parts(const tti_exec *x, tti_exec_desc desc, tti_device_need *need) {
    bool may = may_have_parts(x) && !desc.offload && desc.compression == TTI_COMPRESS_NONE;
    for (int level = TTI_MAX(2, desc.zero + 1); may && level <= 3; level++) {
        tti_exec_memory m;
        desc.zero = level;
        TTI_TRY(tti_exec_memory_plan(&desc, x->rank, x->n_ranks, &m));
        need->in_parts[level - 2].params = m.params + m.gathered;
        need->in_parts[level - 2].grads = m.grads;
    }
    return TUTTI_OK;
}

tutti_status tti_exec_device_check_memory(const tti_exec *x, size_t scratch) {
    const tti_plan *plan = x->desc.plan;
    size_t n_now, n_peak, n_free;
    tti_exec_desc desc = x->desc;
    tti_exec_memory lean = {0};
    desc.deal = &x->deal;
    bool is_lean = desc.zero > 1 && x->n_ranks > 1;
    if (is_lean) TTI_TRY(tti_exec_memory_plan(&desc, x->rank, x->n_ranks, &lean));
    size_t inputs = tti_fed_bytes(&plan->shard, "x") + tti_fed_bytes(&plan->shard, "target");
    tti_device_need need = {.flat = plan->n_flat * sizeof(float),
                            .low = tti_plan_low_bytes(plan),
                            .state = x->share.n_elems * sizeof(float),
                            .arena = TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes) +
                                     tti_plan_own_bytes(plan),
                            .inputs = TTI_N_FED * (size_t)tti_device_n_local(x) * inputs +
                                      tti_device_pipe_bytes(x) + tti_device_exchange_bytes(x),
                            .params = is_lean ? lean.params + lean.gathered : 0,
                            .grads = lean.grads,
                            .residuals = tti_device_compress_bytes(&desc, x->n_ranks),
                            .scratch = scratch,
                            .n_states = x->desc.server || x->desc.offload ? 0 : plan->n_states,
                            .n_emas = !is_kept_here(x) && !x->desc.offload && x->desc.ema > 0,
                            .offloads = !x->desc.server && !x->divided,
                            .n_grads = x->acc.n_buffers,
                            .n_arenas = x->n_in_flight,
                            .n_shards = x->desc.n_shards,
                            .most_shards = TTI_MAX_SHARDS,
                            .n_ranks = may_have_parts(x) ? x->n_ranks : 1,
                            .rows = tti_fed_most_rows(&plan->shard)};
    x->device->ops->memory.get_usage(&n_now, &n_peak, &n_free);
    TTI_TRY(find_parts(x, desc, &need));
    return tti_device_need_check(&need, n_free);
}

/* ---- samples that stay on the device ---- */

tutti_status tti_device_agree(tti_exec *x, bool *yes) {
    int32_t all = *yes;
    tutti_comm *comm = x->desc.mesh ? x->desc.mesh->world : x->desc.comm;
    if (!is_alone(x) || x->divided)
        TTI_TRY(tutti_comm_all_reduce(comm, &all, &all, 1, TUTTI_I32, TUTTI_MIN, TUTTI_ALG_AUTO));
    *yes = all != 0;
    return TUTTI_OK;
}

tutti_status tti_exec_device_keep(tti_exec *x, const tti_kept_samples *from, int ahead,
                                  bool *kept) {
    tti_exec_device *d = x->device;
    const tti_kept_desc desc = {.backend = x->desc.backend,
                                .samples = from,
                                .n_shards = tti_device_n_local(x),
                                .x_bytes = d->x_bytes,
                                .target_bytes = d->target_bytes,
                                .args = d->args};
    TTI_ASSERT(d->n_begun == 0 && !d->kept.gather.samples.x);
    bool fits = !x->pipe && tti_kept_fits(&desc);
    TTI_TRY(tti_device_agree(x, &fits));
    if (!fits) return TUTTI_OK;
    TTI_TRY(tti_kept_create(&desc, &d->kept));
    d->n_sets = ahead > 0 ? TTI_MIN(ahead, TTI_MAX_AHEAD) : TTI_MAX_AHEAD;
    for (int i = 0; i < d->n_sets; i++) {
        if (i >= TTI_N_FED) TTI_TRY(tti_device_make_set(x, &d->sets[i], false));
        TTI_TRY(tti_device_take_host(x, &d->sets[i].index,
                                     tti_kept_index_elems(&d->kept) * sizeof(int32_t)));
    }
    d->n_chained = tti_device_n_chained(x);
    *kept = true;
    return TUTTI_OK;
}

size_t tti_exec_device_compress_bytes(const tti_exec *x) {
    const tti_device_reduce *reduce = x->device->reduce;
    return reduce ? tti_device_reduce_compress_bytes(reduce) : 0;
}

const char *tti_exec_device_way(const tti_exec *x) { return tti_str_text(&x->device->way); }

/* If reductions go through the host, a step waits for the others before it ends, or for the update;
 * and that of a stage is measured. */
int tti_exec_device_depth(const tti_exec *x) {
    const tti_exec_device *d = x->device;
    return d->by_host || d->server || x->offload || d->pipe ? 1 : d->n_sets;
}

/* Others are waited for between a worker's shards and its update, and nowhere else. */
static bool waits_at_end(const tti_exec *x) {
    return !x->lean && !x->offload && !tti_exec_has_parts(x) && x->n_syncs == 0;
}

/* Kernels of a divided model do not report how long they wait for each other. */
tutti_status tti_exec_device_get_waits(tti_exec *x, tti_exec_spent *spent) {
    const tti_exec_device *d = x->device;
    int64_t t_ns = 0;
    if (d->reduce) TTI_TRY(tti_exec_device_tell(x, tti_device_reduce_waited(d->reduce, &t_ns)));
    if (t_ns < 0 && waits_at_end(x)) t_ns = d->exchanged_ns;
    spent->known = !d->axis && !d->pipe && t_ns >= 0;
    spent->waited_ns += TTI_MAX(t_ns, 0);
    return TUTTI_OK;
}

tutti_status tti_exec_device_settle(tti_exec *x) {
    tti_device_parts *parts = x->device->parts;
    return parts ? tti_exec_device_tell(x, tti_device_parts_settle(parts)) : TUTTI_OK;
}

tutti_status tti_exec_device_own_hash(tti_exec *x, uint64_t *hash) {
    return tti_exec_device_tell(x, tti_device_update_hash(x->device->update, hash));
}

tutti_status tti_exec_device_averages(tti_exec *x) {
    return tti_exec_device_tell(x, tti_device_lean_averages(x->device->lean));
}

tutti_status tti_exec_device_hash(tti_exec *x, uint64_t *hash) {
    TTI_TRY(tti_exec_device_settle(x));
    if (!x->offload)
        return tti_exec_device_tell(x, tti_device_update_hash(x->device->update, hash));
    TTI_TRY(tti_exec_device_pull_params(x));
    *hash = tti_device_mirrors_hash(x);
    return TUTTI_OK;
}

/* ---- feeding ---- */

static void fill_args(const tti_exec *x, const tti_step_desc *desc, tti_step_args *args) {
    double t = (double)desc->step + 1;
    *args = (tti_step_args){.step = desc->step,
                            .lr = (float)desc->lr,
                            .loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f,
                            .correction1 = (float)(1 - pow(x->desc.beta1, t)),
                            .correction2 = (float)(1 - pow(x->desc.beta2, t)),
                            .keep_bad = desc->stop_on_bad,
                            .vote = desc->vote,
                            .inv_rows = desc->n_rows > 0 ? (float)(1.0 / (double)desc->n_rows) : 0};
}

static bool takes_bytes(const tti_exec *x, const tti_step_desc *desc) {
    return desc->value && x->device->x_bytes > 0;
}

/* Bytes are converted to floats in the copy queue, while the previous step computes. */
static tutti_status unpack(tti_exec *x, const tti_device_set *set, const tti_bytes_desc *bytes) {
    for (int s = 0; takes_bytes(x, bytes->step) && s < tti_device_n_local(x); s++)
        TTI_TRY(
            tti_bytes_unpack(bytes, &x->device->bytes, s, set->shards[s].target, set->shards[s].x));
    return TUTTI_OK;
}

/* Batch and numbers of a step into a set; what computes next waits for them. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc) {
    tti_exec_device *d = x->device;
    (void)TTI_FAULT_AT("device.feed", x->rank, (int64_t)desc->step);
    fill_args(x, desc, set->args_host);
    if (d->rows == 0) TTI_TRY(tti_device_put_runs(x, desc->shard_size));
    set->gathers = desc->index != NULL;
    if (set->gathers) {
        tti_kept_note(&d->kept, desc, set->index);
        return TUTTI_OK;
    }
    const tti_bytes_desc bytes = {x->desc.backend, desc, tti_device_n_local(x), d->x_bytes,
                                  d->target_bytes};
    TTI_TRY(tti_profile_from(x, TTI_ROW_COPY));
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, set->args, set->args_host, sizeof *set->args));
    if (takes_bytes(x, desc)) TTI_TRY(tti_bytes_copy(&bytes, &d->bytes));
    for (int s = 0; s < tti_device_n_local(x); s++) {
        const tti_shard_data *data = &desc->shards[s];
        tti_fed_shard *to = &set->shards[s];
        set->rows_host[s] = data->n_rows;
        if (!desc->value && to->x)
            TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->x, data->x, d->x_bytes));
        if (to->target)
            TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->target, data->target, d->target_bytes));
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->rows, &set->rows_host[s], sizeof(int32_t)));
    }
    /* The loader may use the memory again once this returns; the device still computes the step
     * before meanwhile. */
    TTI_TRY(d->ops->queues.mark(TTI_QUEUE_COPY, TTI_MARK_FED));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_part_other("samples to the device"), -1));
    TTI_TRY(unpack(x, set, &bytes));
    if (takes_bytes(x, desc))
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_part_other("bytes to floats"), -1));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return d->ops->queues.await(TTI_MARK_FED);
}

/* ---- the step ---- */

static tutti_status put_begin(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    tti_gather g = d->kept.gather;
    g.args_from = set->args_host, g.index = set->index;
    if (set->gathers) return d->ops->step.gather(&g, d->fixed, d->runs);
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->args, set->args, sizeof *d->args));
    return d->ops->step.begin(d->args, d->fixed, d->runs, tti_device_n_local(x));
}

tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set) {
    TTI_TRY(tti_profile_from(x, TTI_ROW_COMPUTE));
    TTI_TRY(put_begin(x, set));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("begin"), -1);
}

/* Or all gradients for the host, which makes the update. */
static tutti_status update(tti_exec *x) {
    tti_exec_device *d = x->device;
    tti_queue sums = d->reduce ? TTI_QUEUE_COMM : TTI_QUEUE_COMPUTE;
    if (!x->offload) {
        TTI_TRY(tti_device_update_run(d->update));
        bool sums_too = tti_device_update_sums(d->update);
        tti_part made = sums_too ? tti_part_sums("sums and update") : tti_part_work("update");
        return tti_profile_upto(x, TTI_ROW_COMPUTE, made, -1);
    }
    TTI_TRY(tti_offload_bring(x->offload, x->desc.plan->n_buckets, sums));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for gradients at the host"),
                            -1);
}

static tutti_status update_and_tell(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    TTI_TRY(update(x));
    TTI_TRY(d->ops->step.report(d->report, d->sums, d->n_told, set->told));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("report to the host"), -1);
}

/* The initial values of the step's sums, if no other workers have other samples. */
static tutti_status tell_own(tti_exec *x) {
    tti_exec_device *d = x->device;
    return d->ops->collectives.report_sums(&(tti_device_told){.sums = d->sums,
                                                              .args = d->args,
                                                              .report = d->report,
                                                              .n_shards = x->desc.n_shards,
                                                              .last_shard = x->desc.n_shards,
                                                              .n_ranks = 1});
}

/* Hashes parameters that no other worker has, before they are updated again. */
static tutti_status reread(tti_exec *x) {
    TTI_TRY(tti_device_update_complete(x->device->update, 0, x->desc.plan->n_updates));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("hash of own parameters"), -1);
}

/* The same if the host reduces: it compares immediately with the stored hash. */
static tutti_status compare_own(tti_exec *x, uint64_t step) {
    uint64_t hash;
    if (!tti_exec_has_lean_params(x) || !x->has_hash) return TUTTI_OK;
    TTI_TRY(tti_device_update_hash(x->device->update, &hash));
    if (hash == x->lean->own_hash) return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %llu: the parameters of rank %d changed in memory after the update",
                    (unsigned long long)step, x->rank);
}

tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool beside) {
    tti_exec_device *d = x->device;
    tti_device_exchange_begin(x->exchange, beside);
    if (d->pipe) tti_device_pipe_begin(d->pipe, beside);
    if (d->reduce) tti_device_reduce_begin(d->reduce, beside);
    if (x->offload) tti_offload_begin(x->offload);
    d->beside = TUTTI_OK;
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->parts) TTI_TRY(tti_device_parts_begin(d->parts, beside));
    if (d->lean) TTI_TRY(tti_device_lean_step(d->lean, beside));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->parts) TTI_TRY(tti_device_parts_finish(d->parts));
    if (d->lean) TTI_TRY(tti_device_lean_finish(d->lean));
    if (tti_exec_has_lean_params(x)) TTI_TRY(reread(x));
    if (d->reduce) TTI_TRY(tti_device_reduce_finish(d->reduce, d->args, d->report, d->sums));
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    if (d->axis && !d->reduce) TTI_TRY(tell_own(x));
    if (d->axis) TTI_TRY(tti_device_axis_sums(d->axis, d->sums));
    if (d->axis)
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_sums("sums of the step"), -1));
    return update_and_tell(x, set);
}

/* Uses a captured graph from the second step of the worker, or the second with compression, on: the
 * first one loads kernels. */
static tutti_status run_recorded(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = x->device;
    bool streams = tti_offload_streams(x->offload);
    if (d->pipe || streams) tti_profile_next_step(x);
    if (streams) return tti_device_whole_step(x, set, false);
    if (d->pipe) return tti_device_whole_step(x, set, tti_device_pipe_is_loaded(d->pipe, false));
    bool is_timed_alone = x->profile && d->n_timed == 0; /* its moments cannot be recorded */
    if (is_timed_alone) tti_profile_next_step(x);
    if (d->loads || is_timed_alone) return tti_device_whole_step(x, set, false);
    if (d->next_timed < d->n_timed) return d->ops->queues.replay(d->timed[d->next_timed++]);
    return tti_device_play(x, set);
}

static tutti_status run_by_host(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = x->device;
    tti_profile_next_step(x);
    d->beside = compare_own(x, set->desc.step);
    TTI_TRY(d->beside);
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->lean) TTI_TRY(tti_device_lean_step(d->lean, false));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->lean) TTI_TRY(tti_device_lean_finish(d->lean));
    TTI_TRY(d->beside);
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe)); /* which ends with a lost stage */
    tti_exec_note(x, &set->desc, "reduce");
    TTI_TRY(tti_device_by_host_grads(d->by_host));
    if (d->pipe && is_alone(x)) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    TTI_TRY(tti_device_by_host_sums(d->by_host, d->sums, set->desc.vote));
    TTI_TRY(tti_exec_compare_hashes(x, set->desc.step));
    return x->offload ? TUTTI_OK : update_and_tell(x, set);
}

/* The gradient, for the server. */
static tutti_status run_for_server(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    tti_profile_next_step(x);
    TTI_TRY(tti_device_put_begin(x, set));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe));
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    TTI_TRY(tti_device_server_bring(d->server));
    return d->ops->step.report(d->report, d->sums, d->n_told, set->told);
}

/* As if this worker, or its replica, were alone; a worker without samples in a short batch does not
 * change. */
static tutti_status run_local(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = x->device;
    bool updates = set->desc.n_rows > 0;
    TTI_TRY(tti_device_local_begin(x));
    if (updates && !x->divided) return run_recorded(x, set);
    tti_profile_next_step(x);
    TTI_TRY(tti_device_put_begin(x, set));
    TTI_TRY(tti_device_run_shards(x, set));
    if (x->divided) TTI_TRY(tti_device_local_add_parts(x));
    if (updates) return update_and_tell(x, set);
    return d->ops->step.report(d->report, d->sums, d->n_told, set->told);
}

static tutti_status run(tti_exec *x, tti_device_set *set) {
    if (x->device->server) return run_for_server(x, set);
    if (tti_local_is_on(x)) return run_local(x, set);
    return x->device->by_host ? run_by_host(x, set) : run_recorded(x, set);
}

/* After a pause in which devices may have been synchronized. */
static tutti_status arrive(tti_exec *x) {
    tti_exec_device *d = x->device;
    if (d->axis) return tti_device_axis_meet(d->axis);
    return d->reduce ? tti_device_reduce_arrive(d->reduce) : TUTTI_OK;
}

/* Makes 16-bit copies of parameters that were not written by the update. */
static tutti_status narrow_params(tti_exec *x) {
    tti_exec_device *d = x->device;
    if (!x->low || d->has_low) return TUTTI_OK;
    d->has_low = true;
    return tti_device_update_narrow(d->update);
}

/* The first step whose gradients are compressed comes, of parallel.compress_after. */
static tutti_status turn(tti_exec *x, uint64_t step) {
    tti_device_reduce *reduce = x->device->reduce;
    x->device->loads = x->device->n_begun == 0;
    if (!reduce || !tti_device_reduce_turns(reduce, step)) return TUTTI_OK;
    TTI_TRY(tti_device_forget_recordings(x));
    tti_device_reduce_turn(reduce);
    x->device->loads = true;
    return TUTTI_OK;
}

static tutti_status begin_step(tti_exec *x, const tti_step_desc *desc) {
    tti_exec_device *d = x->device;
    int which = (int)(d->n_begun % (uint64_t)d->n_sets);
    tti_device_set *set = &d->sets[which];
    TTI_ASSERT(!set->at_work);
    TTI_TRY(turn(x, desc->step));
    tti_exec_note(x, desc, "compute");
    int64_t start = tti_now_ns();
    if (d->n_begun == d->n_ended) TTI_TRY(arrive(x));
    set->begun_ns = tti_now_ns();
    tti_exec_waited(x, set->begun_ns - start);
    set->desc = *desc;
    if (tti_local_is_on(x)) set->desc.n_rows = tti_local_rows(x, desc);
    TTI_TRY(tti_device_feed(x, set, &set->desc));
    TTI_TRY(narrow_params(x));
    int64_t fed_ns = tti_now_ns();
    x->copied_ns += fed_ns - set->begun_ns;
    if (d->parts) tti_device_parts_written(d->parts, false);
    d->has_just_ended = false;
    if (tti_device_is_chained(x, set)) {
        TTI_TRY(tti_device_chain_step(x, which));
    } else {
        TTI_TRY(run(x, set));
        TTI_TRY(d->ops->queues.mark(TTI_QUEUE_COMPUTE, which));
    }
    tti_exec_profile_wait(x, tti_part_other("feeding"), set->begun_ns, fed_ns);
    tti_exec_profile_wait(x, tti_part_other("putting into queues"), fed_ns, tti_now_ns());
    set->at_work = true;
    d->n_begun++;
    return TUTTI_OK;
}

tutti_status tti_exec_device_begin(tti_exec *x, const tti_step_desc *desc) {
    tti_exec_device *d = x->device;
    if (d->n_begun == d->n_ended) d->done = desc->step;
    d->newest = desc->step + 1;
    x->begun = *desc;
    x->loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f;
    x->sent_bytes = 0;
    tutti_status st = begin_step(x, desc);
    if (st != TUTTI_OK && d->pipe) tti_device_pipe_fail(d->pipe, st);
    return tti_exec_device_tell(x, st);
}

/* ---- the report of a step ---- */

/* A worker has the sums of all shards, but not where in the program a bad one began. */
static tutti_status report_bad(tti_exec *x, const tti_device_set *set, uint32_t bad) {
    if (bad & TTI_BAD_LOSS)
        return tti_exec_bad_loss(x, set->desc.step, TTI_MAX(0, tti_exec_first_bad_shard(x)), "");
    return tti_exec_bad_gradient(set->desc.step, "");
}

tutti_status tti_device_take_sums(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = x->device;
    const char *sums = set->told + sizeof(tti_step_report);
    if (d->reduce || d->axis)
        return tti_device_reduce_take(x, (const double *)(const void *)sums, set->desc.step);
    if (x->offload && d->by_host) return TUTTI_OK; /* they were made there */
    memcpy(x->sums, sums, (size_t)d->n_told * sizeof *x->sums);
    return TUTTI_OK;
}

static int next_to_end(const tti_exec_device *d) { return (int)(d->n_ended % (uint64_t)d->n_sets); }

tutti_status tti_device_await(tti_exec *x, const tti_device_set **out) {
    tti_exec_device *d = x->device;
    int which = next_to_end(d);
    tti_device_set *set = &d->sets[which];
    TTI_ASSERT(set->at_work);
    TTI_TRY(tti_device_chain_before_end(x));
    set->at_work = false;
    d->n_ended++;
    *out = set;
    int64_t start = tti_now_ns();
    if (d->axis && (d->pipe || !d->reduce))
        TTI_TRY(tti_device_axis_await(d->axis, which));
    else
        TTI_TRY(d->reduce ? tti_device_reduce_await(d->reduce, which)
                          : d->ops->queues.await(which));
    tti_exec_profile_wait(x, tti_part_wait("waiting for the device"), start, tti_now_ns());
    return TUTTI_OK;
}

void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    tti_exec_device *d = x->device;
    int64_t now = tti_now_ns();
    d->done = set->desc.step + 1;
    /* Excludes waits for other workers, which say nothing about this one's speed. */
    bool waited = d->by_host && !d->pipe && tti_device_by_host_computed(d->by_host) > set->begun_ns;
    int64_t computed = waited ? tti_device_by_host_computed(d->by_host) : now;
    if (tti_offload_streams(x->offload)) computed = tti_offload_came_ns(x->offload);
    if (waited) result->comm_ns = tti_device_by_host_summed(d->by_host) - computed;
    result->compute_ns = computed - TTI_MAX(set->begun_ns, d->last_end_ns);
    d->last_end_ns = now;
}

/* The host makes the update. */
static tutti_status end_at_host(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    TTI_TRY(tti_offload_update(x->offload, &set->desc, result));
    x->last_hash = result->own_hash = result->params_hash;
    x->has_hash = true;
    x->device->last_end_ns = tti_now_ns();
    return TUTTI_OK;
}

/* The hash of each worker's own updates: its parameters reach the others with the next step. */
static uint64_t told_hash(tti_exec *x, const tti_device_set *set) {
    const char *sums = set->told + sizeof(tti_step_report);
    uint64_t hash = tti_device_reduce_told_hash(x, (const double *)(const void *)sums);
    if (tti_exec_has_lean_params(x)) {
        x->lean->hash = hash;
        x->lean->own_hash = x->lean->all_hashes[x->rank];
    }
    return hash;
}

/* Records the device's waits at the end of its shards; for pipeline stages they are the bubble. */
static void note_exchange(const tti_exec *x, const tti_step_report *report,
                          tti_step_result *result) {
    if (x->pipe || report->exchange_ns == 0) return;
    result->comm_ns = (int64_t)TTI_MIN(report->exchange_ns, (uint64_t)result->compute_ns);
    result->compute_ns -= result->comm_ns;
    x->device->exchanged_ns += result->comm_ns;
}

static tutti_status end_step(tti_exec *x, tti_step_result *result) {
    const tti_device_set *set;
    tti_step_report report;
    *result = (tti_step_result){0};
    if (tti_offload_streams(x->offload))
        TTI_TRY(tti_offload_stream(x->offload, &x->device->sets[next_to_end(x->device)].desc));
    TTI_TRY(tti_device_await(x, &set));
    if (is_alone(x) && !x->divided) x->sums[x->n_sums - 1] = set->desc.vote ? 1 : 0;
    TTI_TRY(tti_device_take_sums(x, set));
    tti_exec_add_sums(x, result);
    tti_device_note_done(x, set, result);
    result->sent_bytes = x->sent_bytes;
    if (x->device->reduce)
        result->sent_bytes += tti_device_reduce_sent(x->device->reduce, set->desc.step);
    if (x->offload) return end_at_host(x, set, result);
    memcpy(&report, set->told, sizeof report);
    note_exchange(x, &report, result);
    result->grad_norm = report.grad_norm;
    if (x->pipe) TTI_TRY(tti_device_pipe_measure(x->device->pipe));
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    if (report.bad) {
        result->skipped = true;
        return report_bad(x, set, report.bad);
    }
    if (x->device->reduce && tti_exec_has_parts(x)) report.params_hash = told_hash(x, set);
    if (!x->device->reduce && tti_exec_has_lean_params(x)) {
        TTI_TRY(tti_lean_exchange_hash(x, report.params_hash));
        report.params_hash = x->lean->hash;
    }
    x->last_hash = result->own_hash = result->params_hash = report.params_hash;
    x->has_hash = true;
    if (tti_local_is_on(x)) return tti_device_local_end(x, &set->desc, result);
    return tti_divided_hash(x->divided, &result->params_hash);
}

tutti_status tti_exec_device_end(tti_exec *x, tti_step_result *result) {
    return tti_exec_device_tell(
        x, x->device->server ? tti_device_server_end(x, result) : end_step(x, result));
}

tutti_status tti_exec_device_gradient(tti_exec *x, const tti_step_desc *desc,
                                      tti_step_result *result) {
    TTI_TRY(tti_exec_device_begin(x, desc));
    return tti_exec_device_tell(x, tti_device_server_gradient(x, result));
}

tutti_status tti_exec_device_put(tti_exec *x, float *array, const float *from) {
    return tti_exec_device_tell(x, tti_device_server_put(x->device->server, array, from));
}

/* ---- the end ---- */

void tti_exec_device_release(tti_exec *x) {
    tti_exec_device *d = x->device;
    const tti_backend *backend = x->desc.backend;
    if (!d || !d->ops) return;
    tti_device_reduce_settle(d->reduce);
    if (d->ops->queues.sync() != TUTTI_OK) tti_clear_error();
    tti_exec_device_profile_end(x);
    /* The recordings first: NCCL parts only once nothing can call it again. */
    tti_device_release_shards(x);
    d->ops->queues.release_recording(d->eval_recording);
    tti_device_parts_destroy(d->parts);
    tti_device_lean_destroy(d->lean);
    tti_device_reduce_destroy(d->reduce);
    tti_device_update_destroy(d->update);
    tti_kept_release(backend, &d->kept);
    backend->release(d->args, sizeof *d->args);
    backend->release(d->sums, d->told_bytes - sizeof *d->report);
    backend->release(d->report, sizeof *d->report);
    backend->release(d->sync_parts, 0);
    backend->release(d->sync_joined, 0);
    tti_device_axis_destroy(d->axis);
    tti_device_by_host_destroy(d->by_host);
    tti_device_server_destroy(d->server);
    tti_device_pipe_destroy(d->pipe);
    tti_str_free(&d->way);
    tti_str_free(&d->name);
    tti_device_mirrors_fini(x);
}

void tti_exec_device_close(tti_exec *x) {
    if (!x->device) return;
    if (x->device->ops) x->device->ops->close();
    free(x->device);
    x->device = NULL;
}

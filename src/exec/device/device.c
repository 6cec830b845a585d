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
#include "exec/device/device_step.h"

static bool is_alone(const tti_setup *setup) { return setup->n_ranks == 1; }

/* ---- preparation ---- */

tutti_status tti_exec_device_open(const tti_setup *setup, tti_exec_device **out) {
    const tti_device_ops *ops = setup->desc.backend->device;
    if (!ops) return TUTTI_OK;
    tti_exec_device *device = *out = calloc(1, sizeof *device);
    if (!device) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(ops->open(&setup->desc.device));
    device->ops = ops;
    ops->describe(setup->desc.device.index, &device->name);
    return TUTTI_OK;
}

static tutti_status make_sync(const tti_setup *setup, const tti_join_size *most,
                              tti_exec_device *device) {
    TTI_TRY(tti_device_take(setup, &device->sync_parts,
                            most->n_part * (size_t)setup->desc.n_shards * sizeof(float)));
    return tti_device_take(setup, &device->sync_joined, most->n_joined * sizeof(float));
}

/* Labels say which rows of samples that come as bytes are there: also where nothing else reads
 * them. */
static void find_input_bytes(const tti_setup *setup, tti_exec_device *device) {
    tti_exec_device *d = device;
    const tti_program *program = &setup->desc.plan->shard;
    const tti_program *eval = &setup->desc.plan->eval;
    d->x_bytes = tti_inputs_sample_bytes(program);
    if (eval->graph) d->x_bytes = TTI_MAX(d->x_bytes, tti_inputs_sample_bytes(eval));
    d->target_bytes = tti_inputs_target_bytes(program);
    if (d->target_bytes == 0) d->target_bytes = (size_t)tti_inputs_rows(program) * sizeof(int32_t);
}

tutti_status tti_exec_device_prepare(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_exec_device *d = device;
    TTI_TRY(tti_device_pipe_create(x, &d->pipe));
    TTI_TRY(tti_device_take(setup, &d->args, sizeof *d->args));
    TTI_TRY(tti_device_meet(x));
    d->n_reported =
        d->reduce || d->axis ? tti_device_n_reported(setup) : setup->desc.n_shards * TTI_SUMS;
    size_t n_sums = (size_t)d->n_reported;
    find_input_bytes(setup, device);
    d->report_bytes = sizeof *d->report + n_sums * sizeof(double);
    TTI_TRY(tti_device_take(setup, &d->report, sizeof *d->report));
    TTI_TRY(tti_device_take(setup, &d->sums, n_sums * sizeof *d->sums));
    TTI_TRY(make_sync(setup, &tti_joins_of(x)->most, device));
    d->n_sets = TTI_N_INPUTS;
    TTI_TRY(tti_device_take_shards(x));
    if (offload)
        return tti_offload_attach(offload, d->host_staged,
                                  &(tti_offload_report){d->report, d->sums, d->n_reported});
    if (arrays->sharded) TTI_TRY(tti_device_sharded_create(x, d->reduce, &d->sharded));
    if (d->reduce && tti_exec_has_parts(setup) && !tti_exec_has_sharded_params(arrays))
        TTI_TRY(tti_device_parts_create(x, d->reduce, &d->update, &d->parts));
    return tti_device_update_create(x,
                                    &(tti_device_update_desc){.args = d->args,
                                                              .sums = d->sums,
                                                              .reported = d->sums,
                                                              .report = d->report,
                                                              .reduce = d->reduce,
                                                              .host_staged = d->host_staged,
                                                              .axis = d->axis},
                                    &d->update);
}

/* ---- rebalanced shards ---- */

tutti_status tti_exec_device_let_go(tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    TTI_ASSERT(tti_setup_of(x)->desc.mixed && device->n_begun == device->n_ended);
    TTI_TRY(tti_device_failure(x, device->ops->queues.sync()));
    tti_device_release_shards(x);
    return TUTTI_OK;
}

tutti_status tti_exec_device_take_up(tti_exec *x) {
    TTI_TRY(tti_device_host_staged_grow(tti_device_of(x)->host_staged));
    return tti_device_failure(x, tti_device_take_shards(x));
}

/* ---- samples that stay on the device ---- */

tutti_status tti_exec_device_keep(tti_exec *x, const tti_resident_samples *from, int ahead,
                                  bool *resident) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    const tti_resident_desc desc = {.backend = setup->desc.backend,
                                    .samples = from,
                                    .n_shards = tti_device_n_local(setup),
                                    .x_bytes = d->x_bytes,
                                    .target_bytes = d->target_bytes,
                                    .args = d->args};
    TTI_ASSERT(d->n_begun == 0 && !d->resident.gather.samples.x);
    bool fits = !tti_pipe_of(x) && tti_resident_fits(&desc);
    TTI_TRY(tti_device_agree(setup, &fits));
    if (!fits) return TUTTI_OK;
    TTI_TRY(tti_resident_create(&desc, &d->resident));
    d->n_sets = ahead > 0 ? TTI_MIN(ahead, TTI_MAX_AHEAD) : TTI_MAX_AHEAD;
    for (int i = 0; i < d->n_sets; i++) {
        if (i >= TTI_N_INPUTS) TTI_TRY(tti_device_make_set(x, &d->sets[i], false));
        TTI_TRY(tti_device_take_host(device, &d->sets[i].index,
                                     tti_resident_index_elems(&d->resident) * sizeof(int32_t)));
    }
    d->n_chained = tti_device_n_chained(x);
    *resident = true;
    return TUTTI_OK;
}

size_t tti_exec_device_compress_bytes(const tti_exec_device *device) {
    const tti_device_reduce *reduce = device->reduce;
    return reduce ? tti_device_reduce_compress_bytes(reduce) : 0;
}

const char *tti_exec_device_way(const tti_exec_device *device) {
    return tti_str_text(&device->transport);
}

/* If reductions go through the host, a step waits for the others before it ends, or for the update;
 * and that of a stage is measured. */
int tti_exec_device_depth(const tti_exec *x) {
    const tti_exec_device *d = tti_device_of(x);
    return d->host_staged || d->server || tti_offload_of(x) || d->pipe ? 1 : d->n_sets;
}

/* Others are waited for between a worker's shards and its update, and nowhere else. */
static bool waits_at_end(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    return !tti_arrays_of(x)->sharded && !tti_offload_of(x) && !tti_exec_has_parts(setup) &&
           setup->syncs.n == 0;
}

/* Kernels of a divided model do not report how long they wait for each other. */
tutti_status tti_exec_device_get_waits(tti_exec *x, tti_exec_spent *spent) {
    const tti_exec_device *d = tti_device_of(x);
    int64_t t_ns = 0;
    if (d->reduce) TTI_TRY(tti_device_failure(x, tti_device_reduce_waited(d->reduce, &t_ns)));
    if (t_ns < 0 && waits_at_end(x)) t_ns = d->waited_ns;
    spent->known = !d->axis && !d->pipe && t_ns >= 0;
    spent->waited_ns += TTI_MAX(t_ns, 0);
    return TUTTI_OK;
}

tutti_status tti_exec_device_averages(tti_exec *x) {
    return tti_device_failure(x, tti_device_sharded_averages(tti_device_of(x)->sharded));
}

/* ---- the step ---- */

/* The same if the host reduces: it compares immediately with the stored hash. */
static tutti_status compare_own(tti_exec *x, uint64_t step) {
    tti_arrays *arrays = tti_arrays_of(x);
    uint64_t hash;
    if (!tti_exec_has_sharded_params(arrays) || !tti_tally_of(x)->has_hash) return TUTTI_OK;
    TTI_TRY(tti_device_update_hash(tti_device_of(x)->update, &hash));
    if (hash == arrays->sharded->own_hash) return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %llu: the parameters of rank %d changed in memory after the update",
                    (unsigned long long)step, tti_setup_of(x)->rank);
}

/* Uses a captured graph from the second step of the worker, or the second with compression, on: the
 * first one loads kernels. */
static tutti_status run_recorded(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    bool streams = tti_offload_streams(tti_offload_of(x));
    if (d->pipe || streams) tti_profile_next_step(x);
    if (streams) return tti_device_whole_step(x, set, false);
    if (d->pipe) return tti_device_whole_step(x, set, tti_device_pipe_is_loaded(d->pipe, false));
    bool is_timed_alone = tti_profile_of(x) && d->n_timed == 0; /* its moments cannot be recorded */
    if (is_timed_alone) tti_profile_next_step(x);
    if (d->loads || is_timed_alone) return tti_device_whole_step(x, set, false);
    if (d->next_timed < d->n_timed) return d->ops->queues.replay(d->timed[d->next_timed++]);
    return tti_device_play(x, set);
}

static tutti_status run_host_staged(tti_exec *x, tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_profile_next_step(x);
    d->overlap_status = compare_own(x, set->desc.step);
    TTI_TRY(d->overlap_status);
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->sharded) TTI_TRY(tti_device_sharded_step(d->sharded, false));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->sharded) TTI_TRY(tti_device_sharded_finish(d->sharded));
    TTI_TRY(d->overlap_status);
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe)); /* which ends with a lost stage */
    tti_exec_note(setup, &set->desc, "reduce");
    TTI_TRY(tti_device_host_staged_grads(d->host_staged));
    if (d->pipe && is_alone(setup)) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    TTI_TRY(tti_device_host_staged_sums(d->host_staged, d->sums, set->desc.vote));
    TTI_TRY(tti_exec_compare_hashes(x, set->desc.step));
    return tti_offload_of(x) ? TUTTI_OK : tti_device_update_and_report(x, set);
}

/* The gradient, for the server. */
static tutti_status run_for_server(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    tti_profile_next_step(x);
    TTI_TRY(tti_device_put_begin(x, set));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe));
    if (d->pipe) TTI_TRY(tti_device_pipe_sum_tied(d->pipe));
    TTI_TRY(tti_device_server_bring(d->server));
    return d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report);
}

/* Runs the step as if this worker, or its replica, were alone; a worker without samples in a short
 * batch does not change. */
static tutti_status run_local(tti_exec *x, tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    bool updates = set->desc.n_rows > 0;
    TTI_TRY(tti_device_local_begin(x));
    if (updates && !setup->divided) return run_recorded(x, set);
    tti_profile_next_step(x);
    TTI_TRY(tti_device_put_begin(x, set));
    TTI_TRY(tti_device_run_shards(x, set));
    if (setup->divided) TTI_TRY(tti_device_local_add_parts(x));
    if (updates) return tti_device_update_and_report(x, set);
    return d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report);
}

static tutti_status run(tti_exec *x, tti_device_set *set) {
    tti_exec_device *device = tti_device_of(x);
    if (device->server) return run_for_server(x, set);
    if (tti_local_is_on(x)) return run_local(x, set);
    return device->host_staged ? run_host_staged(x, set) : run_recorded(x, set);
}

/* After a pause in which devices may have been synchronized. */
static tutti_status arrive(tti_exec_device *device) {
    tti_exec_device *d = device;
    if (d->axis) return tti_device_axis_meet(d->axis);
    return d->reduce ? tti_device_reduce_arrive(d->reduce) : TUTTI_OK;
}

/* Makes 16-bit copies of parameters that were not written by the update. */
static tutti_status narrow_params(tti_arrays *arrays, tti_exec_device *device) {
    tti_exec_device *d = device;
    if (!arrays->low || d->has_low) return TUTTI_OK;
    d->has_low = true;
    return tti_device_update_narrow(d->update);
}

/* The first step whose gradients are compressed comes, of parallel.compress_after. */
static tutti_status turn(tti_exec *x, uint64_t step) {
    tti_exec_device *device = tti_device_of(x);
    tti_device_reduce *reduce = device->reduce;
    device->loads = device->n_begun == 0;
    if (!reduce || !tti_device_reduce_turns(reduce, step)) return TUTTI_OK;
    TTI_TRY(tti_device_release_graphs(x));
    tti_device_reduce_turn(reduce);
    device->loads = true;
    return TUTTI_OK;
}

static tutti_status begin_step(tti_exec *x, const tti_step_desc *desc) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    int which = (int)(d->n_begun % (uint64_t)d->n_sets);
    tti_device_set *set = &d->sets[which];
    TTI_ASSERT(!set->at_work);
    TTI_TRY(turn(x, desc->step));
    tti_exec_note(setup, desc, "compute");
    int64_t start = tti_now_ns();
    if (d->n_begun == d->n_ended) TTI_TRY(arrive(device));
    set->begun_ns = tti_now_ns();
    tti_exec_waited(tally, set->begun_ns - start);
    set->desc = *desc;
    if (tti_local_is_on(x)) set->desc.n_rows = tti_local_rows(setup, desc);
    TTI_TRY(tti_device_feed(x, set, &set->desc));
    TTI_TRY(narrow_params(tti_arrays_of(x), device));
    int64_t inputs_ns = tti_now_ns();
    tally->copied_ns += inputs_ns - set->begun_ns;
    if (d->parts) tti_device_parts_written(d->parts, false);
    d->has_just_ended = false;
    if (tti_device_is_chained(x, set)) {
        TTI_TRY(tti_device_chain_step(x, which));
    } else {
        TTI_TRY(run(x, set));
        TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, which));
    }
    tti_profile_add(x, TTI_ROW_HOST, tti_part_other("feeding"), -1, set->begun_ns, inputs_ns);
    tti_profile_add(x, TTI_ROW_HOST, tti_part_other("putting into queues"), -1, inputs_ns,
                    tti_now_ns());
    set->at_work = true;
    d->n_begun++;
    return TUTTI_OK;
}

tutti_status tti_exec_device_begin(tti_exec *x, const tti_step_desc *desc) {
    tti_tally *tally = tti_tally_of(x);
    tti_exec_device *d = tti_device_of(x);
    if (d->n_begun == d->n_ended) d->done = desc->step;
    d->newest = desc->step + 1;
    tally->begun = *desc;
    tally->loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f;
    tally->sent_bytes = 0;
    tutti_status st = begin_step(x, desc);
    if (st != TUTTI_OK && d->pipe) tti_device_pipe_fail(d->pipe, st);
    return tti_device_failure(x, st);
}

tutti_status tti_exec_device_end(tti_exec *x, tti_step_result *result) {
    return tti_device_failure(x, tti_device_of(x)->server ? tti_device_server_end(x, result)
                                                          : tti_device_end_step(x, result));
}

tutti_status tti_exec_device_gradient(tti_exec *x, const tti_step_desc *desc,
                                      tti_step_result *result) {
    TTI_TRY(tti_exec_device_begin(x, desc));
    return tti_device_failure(x, tti_device_server_gradient(x, result));
}

tutti_status tti_exec_device_put(tti_exec *x, float *array, const float *from) {
    return tti_device_failure(x, tti_device_server_put(tti_device_of(x)->server, array, from));
}

tutti_status tti_exec_device_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    return tti_device_failure(x, tti_device_eval_batch(x, desc, result));
}

/* ---- the end ---- */

void tti_exec_device_release(tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    tti_exec_device *d = device;
    const tti_backend *backend = tti_setup_of(x)->desc.backend;
    if (!d || !d->ops) return;
    tti_device_reduce_settle(d->reduce);
    if (d->ops->queues.sync() != TUTTI_OK) tti_clear_error();
    tti_exec_device_profile_end(device);
    /* The captured graphs first: NCCL parts only once nothing can call it again. */
    tti_device_release_shards(x);
    d->ops->queues.release_captured_graph(d->eval_captured_graph);
    tti_device_parts_destroy(d->parts);
    tti_device_sharded_destroy(d->sharded);
    tti_device_reduce_destroy(d->reduce);
    tti_device_update_destroy(d->update);
    tti_resident_release(backend, &d->resident);
    backend->release(d->args, sizeof *d->args);
    backend->release(d->sums, d->report_bytes - sizeof *d->report);
    backend->release(d->report, sizeof *d->report);
    backend->release(d->sync_parts, 0);
    backend->release(d->sync_joined, 0);
    tti_device_axis_destroy(d->axis);
    tti_device_host_staged_destroy(d->host_staged);
    tti_device_server_destroy(d->server);
    tti_device_pipe_destroy(d->pipe);
    tti_str_free(&d->transport);
    tti_str_free(&d->name);
    tti_device_mirrors_fini(device);
}

void tti_exec_device_close(tti_exec_device *device) {
    if (!device) return;
    if (device->ops) device->ops->close();
    free(device);
}

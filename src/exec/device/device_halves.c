/* device_halves.c - a device step in two halves: the gradients of a batch, then the update.
 *
 * The first half ends with the sums over all workers.  Nothing is captured, as in a worker's first
 * step. The second half sends the new learning rate to the device and ends like every step. */
#include <string.h>

#include "exec/device/device_step.h"

/* With parameters of other workers a step completes the hash in the previous step's report.  This
 * half may be repeated, so it restores the report. */
static tutti_status copy_report(const tti_exec_device *d, tti_step_report *kept, bool back) {
    void *dst = back ? d->report : kept, *src = back ? kept : d->report;
    if (!d->param_gather) return TUTTI_OK;
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, dst, src, sizeof *kept));
    return d->ops->queues.sync();
}

static tutti_status launch_gradients(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    int which = (int)(d->n_begun % (uint64_t)d->n_sets);
    bool between = d->pipe && tti_device_pipe_is_loaded(d->pipe, false);
    TTI_TRY(d->host_staged ? tti_device_sum_through_host(x, set)
                           : tti_device_sum_gradients(x, set, between));
    if (tti_offload_of(x) && !d->host_staged) TTI_TRY(tti_device_copy_gradients_to_host(x));
    TTI_TRY(d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report));
    TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, which));
    return tti_device_await_event(x, which);
}

static tutti_status compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                      tti_step_result *result) {
    tti_exec_device *d = tti_device_of(x);
    tti_device_set *set;
    tti_step_report report;
    TTI_TRY(tti_device_prepare_step(x, desc, &set));
    TTI_TRY(copy_report(d, &report, false));
    d->output_step = desc->n_outputs > 0 ? desc : NULL;
    tutti_status st = launch_gradients(x, set);
    d->output_step = NULL;
    TTI_TRY(st);
    TTI_TRY(copy_report(d, &report, true));
    /* Only the sums of the shards: hashes are compared when the step ends. */
    memcpy(tti_exec_sums(x), set->host_report + sizeof(tti_step_report),
           tti_n_shard_sums(tti_setup_of(x)) * sizeof(double));
    tti_exec_set_votes(x, 0);
    tti_exec_set_sums(x, result);
    int bad = tti_exec_first_bad_shard(x);
    if (bad < 0) return TUTTI_OK;
    result->skipped = true;
    return tti_exec_bad_loss(x, desc->step, bad, "");
}

tutti_status tti_exec_device_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                               tti_step_result *result) {
    tti_exec_device *d = tti_device_of(x);
    tutti_status st = compute_gradients(x, desc, result);
    if (st != TUTTI_OK && !result->skipped && d->pipe) tti_device_pipe_fail(d->pipe, st);
    return tti_device_failure(x, st);
}

/* Updates the running statistics in the host's copy of the parameters. */
static void update_buffers(tti_exec *x, const tti_step_desc *desc) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    const tti_exec_device *d = tti_device_of(x);
    double inv_rows = desc->n_rows > 0 ? 1.0 / (double)desc->n_rows : 0;
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        if (!slot->buffer) continue;
        double momentum = tti_attr_float(slot->param, "momentum");
        float *w = d->mirrors[0] + slot->first;
        const float *g = d->gradients + slot->first;
        for (size_t k = 0; k < slot->n_elems; k++)
            w[k] = (float)((1 - momentum) * (double)w[k] + momentum * (double)g[k] * inv_rows);
    }
}

/* Same as average_block of flat_update.c. */
static void update_averages(const tti_exec *x, float *ema) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    const float *w = tti_device_of(x)->mirrors[0];
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_slot *slot = &plan->slots[i];
        float decay = slot->buffer ? 0 : (float)tti_setup_of(x)->desc.ema;
        for (size_t k = slot->first; k < slot->first + slot->n_elems; k++)
            ema[k] = decay * ema[k] + (1 - decay) * w[k];
    }
}

/* The caller has updated the host's copy of the parameters. */
static tutti_status keep_params(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_device *d = tti_device_of(x);
    uint64_t hash;
    float *ema;
    TTI_TRY(tti_exec_device_pull_gradients(x));
    update_buffers(x, desc);
    TTI_TRY(tti_exec_device_pull_averages(x, &ema));
    if (ema) update_averages(x, ema);
    TTI_TRY(tti_exec_device_push_params(x));
    tti_exec_set_sums(x, result);
    TTI_TRY(tti_device_update_hash(d->update, &hash));
    tti_exec_set_hash(x, hash);
    tti_exec_report_hash(x, result);
    return TUTTI_OK;
}

static tutti_status apply_gradients(tti_exec *x, tti_device_set *set, tti_step_result *result) {
    tti_exec_device *d = tti_device_of(x);
    set->args_host->lr = (float)set->desc.lr;
    if (!tti_offload_of(x)) {
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->args, set->args_host, sizeof *d->args));
        TTI_TRY(tti_device_update_and_report(x, set));
    }
    if (d->param_gather) tti_device_param_gather_written(d->param_gather, false);
    int which = (int)(d->n_begun % (uint64_t)d->n_sets);
    TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, which));
    set->at_work = true;
    d->n_begun++;
    return tti_device_end_step(x, result);
}

tutti_status tti_exec_device_apply_gradients(tti_exec *x, double lr, bool keeps_params,
                                             tti_step_result *result) {
    tti_exec_device *d = tti_device_of(x);
    tti_device_set *set =
        &d->sets[d->n_begun % (uint64_t)d->n_sets]; /* the set with the gradients */
    set->desc.lr = lr;
    set->desc.keeps_params = keeps_params;
    bool by_caller = keeps_params && !tti_offload_of(x);
    return tti_device_failure(
        x, by_caller ? keep_params(x, &set->desc, result) : apply_gradients(x, set, result));
}

/* device_feed.c - copies the batch and the numbers of a step to the device. */
#include <math.h>

#include "base/fault.h"
#include "exec/device/device_step.h"

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
        tti_resident_note(&d->resident, desc, set->index);
        return TUTTI_OK;
    }
    const tti_bytes_desc bytes = {x->desc.backend, desc, tti_device_n_local(x), d->x_bytes,
                                  d->target_bytes};
    TTI_TRY(tti_profile_from(x, TTI_ROW_COPY));
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, set->args, set->args_host, sizeof *set->args));
    if (takes_bytes(x, desc)) TTI_TRY(tti_bytes_copy(&bytes, &d->bytes));
    for (int s = 0; s < tti_device_n_local(x); s++) {
        const tti_shard_data *data = &desc->shards[s];
        tti_inputs_shard *to = &set->shards[s];
        set->rows_host[s] = data->n_rows;
        if (!desc->value && to->x)
            TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->x, data->x, d->x_bytes));
        if (to->target)
            TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->target, data->target, d->target_bytes));
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COPY, to->rows, &set->rows_host[s], sizeof(int32_t)));
    }
    /* The loader may use the memory again once this returns; the device still computes the step
     * before meanwhile. */
    TTI_TRY(d->ops->queues.mark(TTI_QUEUE_COPY, TTI_MARK_INPUTS));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_part_other("samples to the device"), -1));
    TTI_TRY(unpack(x, set, &bytes));
    if (takes_bytes(x, desc))
        TTI_TRY(tti_profile_upto(x, TTI_ROW_COPY, tti_part_other("bytes to floats"), -1));
    TTI_TRY(d->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COPY));
    return d->ops->queues.await(TTI_MARK_INPUTS);
}

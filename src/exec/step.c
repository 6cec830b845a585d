/* step.c - steps of training and evaluation: on the host by the step program, else by the device.
 */
#include "exec/device/device.h"
#include "exec/exec.h"
#include "exec/host/host.h"
#include "exec/worker/worker.h"

tutti_status tti_exec_get_spent(tti_exec *x, tti_exec_spent *spent) {
    tti_tally *tally = tti_tally_of(x);
    *spent =
        (tti_exec_spent){.known = true,
                         .waited_ns = atomic_load_explicit(&tally->waited_ns, memory_order_relaxed),
                         .copied_ns = tally->copied_ns};
    return tti_device_of(x) ? tti_exec_device_get_waits(x, spent) : TUTTI_OK;
}

tutti_status tti_exec_gradient(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_device *device = tti_device_of(x);
    *result = (tti_step_result){0};
    tti_arrays_of(x)->has_whole_ema = false;
    if (device) tti_exec_note(tti_setup_of(x), desc, "compute");
    if (device) return tti_exec_name_difference(x, tti_exec_device_gradient(x, desc, result));
    return tti_host_run(x, desc, TTI_FORM_GRADIENT, result);
}

int tti_exec_depth(const tti_exec *x) { return tti_device_of(x) ? tti_exec_device_depth(x) : 1; }

int tti_exec_steps_per_launch(const tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    return device ? tti_exec_device_steps_per_launch(device) : 1;
}

bool tti_exec_takes_bytes(const tti_exec *x) {
    const tti_device_ops *ops = tti_setup_of(x)->desc.backend->device;
    return ops && ops->step.unpack;
}

const char *tti_exec_way(const tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    return device ? tti_exec_device_way(device) : "";
}

tutti_status tti_exec_keep(tti_exec *x, const tti_resident_samples *samples, int ahead,
                           bool *resident) {
    *resident = false;
    return tti_device_of(x) ? tti_exec_device_keep(x, samples, ahead, resident) : TUTTI_OK;
}

tutti_status tti_exec_begin(tti_exec *x, const tti_step_desc *desc) {
    tti_tally *tally = tti_tally_of(x);
    tti_arrays_of(x)->has_whole_ema = false;
    if (tti_device_of(x)) return tti_exec_name_difference(x, tti_exec_device_begin(x, desc));
    TTI_ASSERT(!tally->has_begun);
    tally->begun = *desc;
    tally->has_begun = true;
    return TUTTI_OK;
}

tutti_status tti_exec_end(tti_exec *x, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    if (tti_device_of(x)) return tti_exec_name_difference(x, tti_exec_device_end(x, result));
    TTI_ASSERT(tally->has_begun);
    tally->has_begun = false;
    *result = (tti_step_result){0};
    tti_profile_next_step(x);
    tti_step_form form = tti_step_form_of(&setup->desc, setup->n_ranks, &tally->begun);
    return tti_exec_name_difference(x, tti_host_run(x, &tally->begun, form, result));
}

tutti_status tti_exec_step(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    TTI_TRY(tti_exec_begin(x, desc));
    return tti_exec_end(x, result);
}

tutti_status tti_exec_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                        tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    TTI_ASSERT(!tti_device_of(x) && !setup->desc.server);
    tti_arrays_of(x)->has_whole_ema = false;
    tti_profile_next_step(x);
    tti_step_form form = tti_step_form_of(&setup->desc, setup->n_ranks, desc);
    tutti_status st = tti_host_compute_gradients(x, desc, form);
    *result = *tti_host_begun_result(tti_host_of(x));
    return tti_exec_name_difference(x, st);
}

tutti_status tti_exec_apply_gradients(tti_exec *x, double lr, bool keeps_params,
                                      tti_step_result *result) {
    tutti_status st = tti_host_apply_gradients(x, lr, keeps_params);
    *result = *tti_host_begun_result(tti_host_of(x));
    return tti_exec_name_difference(x, st);
}

tutti_status tti_exec_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_exec_note(setup, desc, "evaluate");
    if (!tti_device_of(x)) return tti_host_run(x, desc, TTI_FORM_EVAL, result);
    if (arrays->ema && tti_exec_has_parts(setup) && !tti_exec_has_sharded_params(arrays))
        TTI_TRY(tti_exec_gather_averages(x));
    if (setup->desc.server) TTI_TRY(tti_calls_of(setup->desc.server)->pull_averages(x));
    if (offload) TTI_TRY(tti_offload_put_averages(offload));
    return tti_exec_device_eval(x, desc, result);
}

/* ---- a profile ---- */

tutti_status tti_exec_profile_begin(tti_exec *x, int n_steps) {
    TTI_TRY(tti_profile_open(x));
    return tti_device_of(x) ? tti_exec_device_profile_begin(x, n_steps) : TUTTI_OK;
}

tutti_status tti_exec_profile_end(tti_exec *x, tti_timeline *out) {
    tti_exec_device *device = tti_device_of(x);
    tutti_status st = tti_profile_hand_over(x, out);
    if (device) tti_exec_device_profile_end(device);
    tti_profile_drop(x);
    return st;
}

void tti_exec_profile_wait(tti_exec *x, tti_part part, int64_t start_ns, int64_t end_ns) {
    tti_profile_add(x, TTI_ROW_HOST, part, -1, start_ns, end_ns);
}

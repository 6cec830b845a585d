/* step.c - steps of training and evaluation: on the host by the step program, else by the device.
 */
#include "exec/device/device.h"
#include "exec/worker/worker.h"

tutti_status tti_exec_get_spent(tti_exec *x, tti_exec_spent *spent) {
    *spent =
        (tti_exec_spent){.known = true,
                         .waited_ns = atomic_load_explicit(&x->waited_ns, memory_order_relaxed),
                         .copied_ns = x->copied_ns};
    return x->device ? tti_exec_device_get_waits(x, spent) : TUTTI_OK;
}

tutti_status tti_exec_gradient(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    x->has_whole_ema = false;
    if (x->device) tti_exec_note(x, desc, "compute");
    if (x->device) return tti_exec_name_difference(x, tti_exec_device_gradient(x, desc, result));
    return tti_host_run(x, desc, TTI_FORM_GRADIENT, result);
}

int tti_exec_depth(const tti_exec *x) { return x->device ? tti_exec_device_depth(x) : 1; }

int tti_exec_steps_per_launch(const tti_exec *x) {
    return x->device ? tti_exec_device_steps_per_launch(x) : 1;
}

bool tti_exec_takes_bytes(const tti_exec *x) {
    const tti_device_ops *ops = x->desc.backend->device;
    return ops && ops->step.unpack;
}

const char *tti_exec_way(const tti_exec *x) { return x->device ? tti_exec_device_way(x) : ""; }

tutti_status tti_exec_keep(tti_exec *x, const tti_resident_samples *samples, int ahead,
                           bool *resident) {
    *resident = false;
    return x->device ? tti_exec_device_keep(x, samples, ahead, resident) : TUTTI_OK;
}

tutti_status tti_exec_begin(tti_exec *x, const tti_step_desc *desc) {
    x->has_whole_ema = false;
    if (x->device) return tti_exec_name_difference(x, tti_exec_device_begin(x, desc));
    TTI_ASSERT(!x->has_begun);
    x->begun = *desc;
    x->has_begun = true;
    return TUTTI_OK;
}

tutti_status tti_exec_end(tti_exec *x, tti_step_result *result) {
    if (x->device) return tti_exec_name_difference(x, tti_exec_device_end(x, result));
    TTI_ASSERT(x->has_begun);
    x->has_begun = false;
    *result = (tti_step_result){0};
    tti_profile_next_step(x);
    tti_step_form form = tti_step_form_of(&x->desc, x->n_ranks, &x->begun);
    return tti_exec_name_difference(x, tti_host_run(x, &x->begun, form, result));
}

tutti_status tti_exec_step(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    TTI_TRY(tti_exec_begin(x, desc));
    return tti_exec_end(x, result);
}

tutti_status tti_exec_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_note(x, desc, "evaluate");
    if (!x->device) return tti_host_run(x, desc, TTI_FORM_EVAL, result);
    if (x->ema && tti_exec_has_parts(x) && !tti_exec_has_sharded_params(x))
        TTI_TRY(tti_exec_gather_averages(x));
    if (x->desc.server) TTI_TRY(tti_calls_of(x->desc.server)->bring_averages(x));
    if (x->offload) TTI_TRY(tti_offload_put_averages(x->offload));
    return tti_exec_device_eval(x, desc, result);
}

/* ---- a profile ---- */

tutti_status tti_exec_profile_begin(tti_exec *x, int n_steps) {
    TTI_TRY(tti_profile_open(x));
    return x->device ? tti_exec_device_profile_begin(x, n_steps) : TUTTI_OK;
}

tutti_status tti_exec_profile_end(tti_exec *x, tti_timeline *out) {
    tutti_status st = tti_profile_hand_over(x, out);
    if (x->device) tti_exec_device_profile_end(x);
    tti_profile_drop(x);
    return st;
}

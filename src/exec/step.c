/* step.c - one step of training on the host: compute, reduce, sums, update; and evaluation. */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/progress.h"
#include "exec/worker/worker.h"

tutti_status tti_exec_get_spent(tti_exec *x, tti_exec_spent *spent) {
    *spent =
        (tti_exec_spent){.known = true,
                         .waited_ns = atomic_load_explicit(&x->waited_ns, memory_order_relaxed),
                         .copied_ns = x->copied_ns};
    return x->device ? tti_exec_device_get_waits(x, spent) : TUTTI_OK;
}

static tutti_status compute(tti_exec *x, const tti_step_desc *desc, bool eval) {
    int worker = tti_exec_number(x);
    for (int i = 0; i < x->n_in_flight; i++) x->lane[i].status = TUTTI_OK;
    if (TTI_FAULT_AT(eval ? "exec.evaluate" : "exec.compute", worker, (int64_t)desc->step))
        tti_exec_lane_failed(x, &x->lane[0],
                             tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute", worker));
    x->loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f;
    memset(x->sums, 0, x->n_sums * sizeof *x->sums);
    return tti_host_compute(x, desc, eval);
}

/* ---- the two calls ---- */

static tutti_status step_on_host(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    int64_t start = tti_now_ns();
    x->sent_bytes = 0;
    tti_exec_note(x, desc, "compute");
    tti_profile_next_step(x);
    tutti_status st = compute(x, desc, false);
    int64_t computed = tti_now_ns();
    tti_exec_note(x, desc, "reduce");
    tutti_status reduced = tti_host_finish(x, false);
    TTI_TRY(tti_exec_lane_status(x));
    TTI_TRY(st);
    TTI_TRY(reduced);
    tti_exec_waited(x, tti_now_ns() - computed);
    if (tti_local_is_on(x)) return tti_local_step(x, desc, start, computed, result);
    result->sent_bytes = x->sent_bytes;
    if (x->pipe) TTI_TRY(tti_pipe_sum_tied(x, tti_exec_grads(x)));
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    int64_t exchanged = tti_now_ns();
    if (x->n_ranks > 1 || x->divided)
        tti_profile_add(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for sums"), -1, computed,
                        exchanged);
    tti_profile_mark(x, exchanged);
    TTI_TRY(tti_exec_compare_hashes(x, desc->step));
    tti_exec_add_sums(x, result);
    int bad = tti_exec_first_bad_shard(x);
    if (bad >= 0) {
        result->skipped = true;
        return tti_exec_report_bad_loss(x, desc, bad);
    }
    tti_exec_note(x, desc, "update");
    double inv_count = result->count > 0 ? 1.0 / result->count : 0;
    TTI_TRY(x->desc.server ? tti_calls_of(x->desc.server)->step(x, desc, inv_count, result)
                           : tti_exec_apply(x, desc, inv_count, result));
    result->own_hash = result->params_hash;
    TTI_TRY(tti_divided_hash(x->divided, &result->params_hash));
    result->compute_ns = computed - start;
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    int64_t updated = tti_now_ns();
    result->comm_ns = exchanged - computed + x->gather_ns;
    tti_exec_waited(x, x->gather_ns);
    result->update_ns = updated - exchanged - x->gather_ns;
    tti_profile_rest(x, tti_part_work(x->gather_ns > 0 ? "hash of the parameters" : "update"),
                     updated);
    if (x->n_ranks > 1)
        tti_exec_profile_wait(x, tti_part_wait("waiting for sums"), computed, exchanged);
    return TUTTI_OK;
}

/* For a part of the model a gradient is one partial sum: contributions of several stages are added
 * when all shards here are complete. */
static tutti_status sum_pieces(tti_exec *x) {
    for (int i = 1; i < x->acc.n_pieces; i++)
        x->desc.backend->accumulate(tti_exec_grads(x), x->buffers[x->acc.piece_buffer[i]],
                                    x->desc.plan->n_flat);
    return x->pipe ? tti_pipe_sum_tied(x, tti_exec_grads(x)) : TUTTI_OK;
}

tutti_status tti_exec_gradient(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    x->has_whole_ema = false;
    tti_exec_note(x, desc, "compute");
    if (x->device) return tti_exec_name_difference(x, tti_exec_device_gradient(x, desc, result));
    TTI_TRY(compute(x, desc, false));
    if (x->divided) TTI_TRY(sum_pieces(x));
    TTI_TRY(tti_exec_exchange_sums(x, false));
    tti_exec_add_sums(x, result);
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    int bad = tti_exec_first_bad_shard(x);
    return bad < 0 ? TUTTI_OK : tti_exec_report_bad_loss(x, desc, bad);
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

tutti_status tti_exec_keep(tti_exec *x, const tti_kept_samples *samples, int ahead, bool *kept) {
    *kept = false;
    return x->device ? tti_exec_device_keep(x, samples, ahead, kept) : TUTTI_OK;
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
    return tti_exec_name_difference(x, step_on_host(x, &x->begun, result));
}

tutti_status tti_exec_step(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    TTI_TRY(tti_exec_begin(x, desc));
    return tti_exec_end(x, result);
}

tutti_status tti_exec_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_note(x, desc, "evaluate");
    if (x->ema && tti_exec_has_parts(x) && !tti_exec_has_lean_params(x))
        TTI_TRY(tti_exec_gather_averages(x));
    if (x->device && x->desc.server) TTI_TRY(tti_calls_of(x->desc.server)->bring_averages(x));
    if (x->offload) TTI_TRY(tti_offload_put_averages(x->offload));
    if (x->device) return tti_exec_device_eval(x, desc, result);
    tutti_status st = compute(x, desc, true), gathered = tti_host_finish(x, true);
    TTI_TRY(tti_exec_lane_status(x));
    TTI_TRY(st);
    TTI_TRY(gathered);
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
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

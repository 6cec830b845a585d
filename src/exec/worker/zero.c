/* zero.c - partitions of optimizer state: reduces, updates and gathers them.
 *
 * Gathered values are placed in the buffer of the summed gradients at the offsets of their
 * parameters, so partitions have the same bounds everywhere and no memory is allocated. */
#include "exec/worker/zero.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

tutti_status tti_zero_join(const tti_setup *setup, double *values, size_t n_each) {
    if (tti_exec_has_range(setup)) return setup->desc.join(setup->desc.join_user, values, n_each);
    if (!tti_exec_divides(setup)) return TUTTI_OK;
    size_t n = (size_t)setup->desc.plan->n_updates;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_each && !setup->share.is_own[i]; k++) values[i * n_each + k] = 0;
    /* Each sum has only one nonzero term: the order of the additions does not matter. */
    return tutti_comm_all_reduce(setup->desc.comm, values, values, n * n_each, TUTTI_F64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

void tti_zero_bounds(const tti_setup *setup, size_t first, size_t *bounds) {
    const size_t *flat = tti_share_bounds(&setup->share, setup->desc.plan, first);
    for (int r = 0; r <= setup->n_ranks; r++) bounds[r] = flat[r] - first;
}

tutti_status tti_zero_gather(const tti_setup *setup, const float *src, float *dst) {
    return tti_comm_gather_parts(setup->desc.comm,
                                 &(tti_parts_desc){.src = src,
                                                   .dst = dst,
                                                   .bounds = setup->share.bounds,
                                                   .n_groups = (size_t)setup->desc.plan->n_buckets,
                                                   .dtype = TUTTI_F32});
}

/* With sharded gradients others read the parameters directly. */
tutti_status tti_zero_gather_params(tti_exec *x) {
    tti_arrays *arrays = tti_arrays_of(x);
    return tti_zero_gather(tti_setup_of(x), arrays->sharded ? arrays->params : tti_exec_grads(x),
                           arrays->params);
}

tutti_status tti_zero_gather_bucket(tti_exec *x, int bucket) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    size_t n = (size_t)setup->share.n_ranks + 1;
    return tti_comm_gather_parts(
        setup->desc.comm,
        &(tti_parts_desc){.src = arrays->sharded ? arrays->params : tti_exec_grads(x),
                          .dst = arrays->params,
                          .bounds = setup->share.bounds + (size_t)bucket * n,
                          .n_groups = 1,
                          .dtype = TUTTI_F32});
}

float *tti_zero_averages(tti_exec *x) {
    tti_arrays *arrays = tti_arrays_of(x);
    return arrays->sharded ? arrays->sharded->averages : tti_exec_grads(x);
}

void tti_zero_place_own(const tti_setup *setup, const float *state, tti_range range, float *to) {
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        const tti_update_step *step = &setup->desc.plan->updates[own->update];
        if (step->first < range.first || step->first >= range.last) continue;
        memcpy(to + step->first, state + own->state, step->n_elems * sizeof *to);
    }
}

tutti_status tti_zero_gather_ema(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    float *whole = tti_exec_grads(x);
    if (arrays->has_whole_ema) return TUTTI_OK;
    arrays->has_whole_ema = true;
    if (arrays->sharded) return tti_sharded_gather_averages(x);
    tti_zero_place_own(setup, arrays->ema, (tti_range){0, setup->desc.plan->n_flat}, whole);
    return tti_zero_gather(setup, whole, whole);
}

/* ---- the update ---- */

/* Own parameters and gradients may be the only ones that the worker has. */
static tti_update_arrays update_arrays(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_sharded *sharded = arrays->sharded;
    bool has_own_grads = sharded && sharded->own_grads, is_range = tti_exec_has_range(setup);
    bool sends = tti_exec_has_parts(setup) && !sharded;
    return (tti_update_arrays){.params = arrays->params,
                               .grads = has_own_grads ? sharded->own_grads : tti_exec_grads(x),
                               .own_params = is_range || tti_exec_has_sharded_params(arrays),
                               .own_grads = is_range || has_own_grads,
                               .states = arrays->states,
                               .ema = arrays->ema,
                               .outgoing = sends ? tti_exec_grads(x) : NULL};
}

/* The norm of the mean gradient of the whole model, for clipping; not finite: the step is skipped.
 */
static tutti_status global_norm(const tti_setup *setup, tti_update *update, double inv_count,
                                double *norm) {
    double *partials = tti_update_partials(update);
    tti_update_square_grads(update);
    TTI_TRY(tti_zero_join(setup, partials, 1));
    double sum = tti_divided_own_blocks(setup->divided, setup->desc.plan, partials);
    TTI_TRY(tti_divided_add(setup->divided, &sum));
    *norm = sqrt(sum) * inv_count;
    return TUTTI_OK;
}

/* Norms of whole parameters and of their steps, for optimizers that scale by them. */
static tutti_status slot_norms(const tti_setup *setup, tti_update *update) {
    const tti_plan *plan = setup->desc.plan;
    double *partials = tti_update_partials(update), *norms = tti_update_norms(update);
    tti_update_square_steps(update);
    TTI_TRY(tti_zero_join(setup, partials, 2));
    tti_divided_own_slots(setup->divided, plan, partials, norms);
    TTI_TRY(tti_divided_squares(setup->divided, norms));
    for (int i = 0; i < 2 * plan->n_slots; i++) norms[i] = sqrt(norms[i]);
    return TUTTI_OK;
}

tutti_status tti_exec_update(tti_exec *x, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    tti_update *update = tti_update_of(x);
    double clip = 1, clip_norm = setup->desc.clip_norm;
    inv_count /= tally->loss_scale;
    tti_update_begin(update, &(tti_update_step_desc){.pool = threads->pool,
                                                     .arrays = update_arrays(x),
                                                     .step = desc->step,
                                                     .lr = desc->lr,
                                                     .inv_count = inv_count,
                                                     .n_rows = desc->n_rows,
                                                     .keeps_params = desc->keeps_params});
    if (!desc->keeps_params && (clip_norm > 0 || setup->desc.watch_gradients)) {
        TTI_TRY(global_norm(setup, update, inv_count, &result->grad_norm));
        if (!isfinite(result->grad_norm)) {
            result->skipped = true;
            return tti_exec_report_bad_gradient(x, desc->step);
        }
        if (clip_norm > 0 && result->grad_norm > clip_norm)
            clip = clip_norm / (result->grad_norm + 1e-6);
    }
    tti_update_set_clip(update, clip);
    if (setup->desc.plan->takes_norms && !desc->keeps_params) TTI_TRY(slot_norms(setup, update));
    tutti_status st = tti_update_run(update, &tally->last_hash);
    if (st != TUTTI_OK) {
        tti_exec_compute_thread_failed(threads, &threads->thread[0], st);
        return st;
    }
    tti_profile_rest(x, tti_part_work("update"), tti_now_ns());
    return TUTTI_OK;
}

/* Per bucket, if a consumer overlaps with this loop. */
static tutti_status gather_params(tti_exec *x) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    const tti_update *update = tti_update_of(x);
    if (!tti_update_overlaps(update)) return tti_zero_gather_params(x);
    for (int b = 0; b < plan->n_buckets; b++) {
        const tti_bucket *bucket = &plan->buckets[b];
        TTI_TRY(tti_zero_gather_bucket(x, b));
        TTI_TRY(tti_update_report(update, bucket->first, bucket->first + bucket->n_elems));
    }
    return TUTTI_OK;
}

tutti_status tti_exec_gather_params(tti_exec *x) {
    int64_t start = tti_now_ns();
    TTI_TRY(gather_params(x));
    int64_t end = tti_now_ns();
    tti_tally_of(x)->gather_ns = end - start;
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("parameters of other workers"), -1, start,
                    end);
    tti_profile_rest(x, tti_part_wait("waiting for parameters"), end);
    return TUTTI_OK;
}

void tti_exec_hash_gathered(tti_exec *x) {
    tti_tally_of(x)->last_hash = tti_update_hash_others(tti_update_of(x));
    tti_profile_rest(x, tti_part_work("hash of the parameters"), tti_now_ns());
}

tutti_status tti_exec_apply(tti_exec *x, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    TTI_TRY(tti_exec_update(x, desc, inv_count, result));
    if (tti_exec_has_parts(tti_setup_of(x))) {
        TTI_TRY(tti_exec_gather_params(x));
        tti_exec_hash_gathered(x);
    }
    tally->has_hash = true;
    result->params_hash = tally->last_hash;
    return TUTTI_OK;
}

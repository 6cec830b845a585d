/* zero.c - partitions of optimizer state, gradients and parameters (ZeRO-1, 2 and 3) on the host:
 * their memory, and how they are reduced, updated and gathered. */
#include "exec/worker/zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/partitions.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

/* ---- conditions and memory ---- */

tutti_status tti_sharded_plan_memory(const tti_plan *plan, tti_sharded *sharded) {
    TTI_TRY(tti_bucket_memory_init(plan, &plan->shard, TTI_SPACE_GRAD, &sharded->grads));
    if (!sharded->params) return TUTTI_OK;
    TTI_TRY(tti_bucket_memory_init(plan, &plan->shard, TTI_SPACE_PARAM, &sharded->train));
    if (plan->eval.graph)
        TTI_TRY(tti_bucket_memory_init(plan, &plan->eval, TTI_SPACE_PARAM, &sharded->eval));
    return TUTTI_OK;
}

tutti_status tti_sharded_init(tti_exec *x, tti_sharded **out) {
    const tti_setup *setup = tti_setup_of(x);
    *out = NULL;
    if (setup->desc.zero < 2 || setup->share.n_ranks == 1) return TUTTI_OK;
    if (tti_device_of(x) && tti_offload_of(x))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "exec: with parallel.offload the host updates from whole gradients, so "
                        "parallel.zero is at most 1");
    tti_sharded *sharded = *out = calloc(1, sizeof *sharded);
    if (!sharded) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    sharded->params = setup->desc.zero > 2;
    sharded->hashes =
        calloc(1, sizeof *sharded->hashes + (size_t)setup->n_ranks * sizeof(uint64_t));
    if (!sharded->hashes) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(tti_sharded_plan_memory(setup->desc.plan, sharded));
    int32_t n = setup->acc.n_micro_groups, n_max = n;
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, &n, &n_max, 1, TUTTI_I32, TUTTI_MAX,
                                  TUTTI_ALG_AUTO));
    sharded->n_micro_groups = n_max;
    return TUTTI_OK;
}

void tti_sharded_find_short(const tti_accumulation *acc, const tti_plan *plan, bool *is_short) {
    for (int b = 0; b < acc->n_buffers; b++) is_short[b] = true;
    if (plan->stages && plan->stages->n_tied > 0) is_short[acc->partial_buffer[0]] = false;
    for (int w = 0; w < acc->n_micro_groups - 1; w++)
        for (int i = 0; i < acc->micro_groups[w].n_shards; i++)
            is_short[acc->micro_groups[w].buffer[i]] = false;
}

static size_t longest_slot(const tti_plan *plan) {
    size_t n = 0;
    for (int i = 0; i < plan->n_slots; i++) n = TTI_MAX(n, plan->slots[i].n_elems);
    return n;
}

static tutti_status alloc_floats(const tti_backend *backend, float **memory, size_t n_elems) {
    *memory = backend->alloc(n_elems * sizeof(float) + 64);
    return *memory ? TUTTI_OK
                   : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu floats", n_elems);
}

static tutti_status alloc_memory(const tti_setup *setup, tti_sharded *sharded, bool has_averages) {
    const tti_backend *b = setup->desc.backend;
    TTI_TRY(alloc_floats(&tti_backend_cpu, &sharded->staging, longest_slot(setup->desc.plan)));
    if (sharded->is_short[setup->acc.partial_buffer[0]])
        TTI_TRY(alloc_floats(b, &sharded->own_grads, setup->share.n_elems));
    if (sharded->params)
        return alloc_floats(b, &sharded->gathered,
                            TTI_MAX(sharded->train.n_elems, sharded->eval.n_elems));
    sharded->n_averages = has_averages ? setup->desc.plan->n_flat : 0;
    return has_averages ? alloc_floats(b, &sharded->averages, sharded->n_averages) : TUTTI_OK;
}

tutti_status tti_sharded_buffers(tti_exec *x, tti_sharded *sharded, int n_buffers) {
    const tti_setup *setup = tti_setup_of(x);
    if (!sharded) return TUTTI_OK;
    int32_t *is_whole = calloc((size_t)n_buffers + 1, sizeof *is_whole);
    sharded->is_short = calloc((size_t)n_buffers + 1, sizeof *sharded->is_short);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (is_whole && sharded->is_short) {
        /* A buffer is short only if it is so for every worker, because all allocate equal sizes. */
        tti_sharded_find_short(&setup->acc, setup->desc.plan, sharded->is_short);
        for (int b = 0; b < setup->acc.n_buffers; b++) is_whole[b] = !sharded->is_short[b];
        st = tutti_comm_all_reduce(setup->desc.comm, is_whole, is_whole, (size_t)n_buffers,
                                   TUTTI_I32, TUTTI_MAX, TUTTI_ALG_AUTO);
        for (int b = 0; b < n_buffers; b++) sharded->is_short[b] = !is_whole[b];
    }
    free(is_whole);
    return st == TUTTI_OK ? alloc_memory(setup, sharded, tti_exec_array(x, TTI_STATE_EMA) != NULL)
                          : st;
}

size_t tti_sharded_grads(const tti_sharded *sharded, const tti_accumulation *acc,
                         const tti_share *share, const tti_plan *plan) {
    size_t n = sharded->is_short[acc->partial_buffer[0]] ? share->n_elems : 0;
    for (int b = 0; b < acc->n_buffers; b++)
        n += sharded->is_short[b] ? sharded->grads.n_elems : plan->n_flat;
    return n;
}

size_t tti_sharded_gathered(const tti_sharded *sharded) {
    if (!sharded) return 0;
    return TTI_MAX(sharded->train.n_elems, sharded->eval.n_elems) + sharded->n_averages;
}

/* ---- positions of parameters and gradients ---- */

int tti_sharded_next_stop(const tti_sharded *sharded, int step, int last) {
    if (!sharded) return last;
    last = tti_bucket_memory_next_change(&sharded->train, step, last);
    return tti_bucket_memory_next_change(&sharded->grads, step, last);
}

/* ---- moves ---- */

/* The own part of a bucket: its location in the flat arrays and in those of state. */
static tti_share_run own_part(const tti_setup *setup, int bucket) {
    const size_t *bounds =
        setup->share.bounds + (size_t)bucket * (size_t)(setup->n_ranks + 1) + setup->rank;
    size_t state = setup->share.from[(size_t)bucket * (size_t)setup->n_ranks + (size_t)setup->rank];
    return (tti_share_run){bounds[0], state, bounds[1] - bounds[0]};
}

tutti_status tti_sharded_gather(tti_exec *x, int index, size_t offset, bool averages) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_bucket *bucket = &setup->desc.plan->buckets[index];
    const float *src = tti_exec_array(x, averages ? TTI_STATE_EMA : TTI_STATE_PARAMS);
    tti_share_run own = own_part(setup, index);
    float *dst = tti_sharded_of(x)->gathered + offset;
    const size_t *bounds = tti_zero_bounds(setup, bucket->first);
    int64_t start = tti_now_ns();
    if (TTI_FAULT_AT("sharded.fetch", setup->rank, -1))
        return tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot fetch", setup->rank);
    memcpy(dst + (own.first - bucket->first), src + own.state, own.n_elems * sizeof *src);
    const tti_partitions_desc desc = {.src = src,
                                      .dst = dst,
                                      .bounds = bounds,
                                      .n_groups = 1,
                                      .from = setup->share.from + index * setup->n_ranks,
                                      .dtype = TUTTI_F32};
    TTI_TRY(tti_comm_gather_partitions(setup->desc.comm, &desc));
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_ALL_GATHER), -1, start, tti_now_ns());
    return TUTTI_OK;
}

void tti_sharded_keep_sum(tti_exec *x, int bucket) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    if (!sharded || !sharded->own_grads) return;
    tti_share_run own = own_part(setup, bucket);
    size_t first = setup->desc.plan->buckets[bucket].first;
    const float *sum = tti_exec_grads_at(x, setup->acc.partial_buffer[0], first);
    memcpy(sharded->own_grads + own.state, sum + (own.first - first), own.n_elems * sizeof *sum);
}

int tti_sharded_idle_micro_groups(const tti_exec *x) {
    const tti_sharded *sharded = tti_sharded_of(x);
    return sharded ? sharded->n_micro_groups - tti_setup_of(x)->acc.n_micro_groups : 0;
}

static void release(const tti_backend *backend, float *memory, size_t n_elems) {
    backend->release(memory, n_elems * sizeof(float) + 64);
}

void tti_sharded_fini_memory(tti_sharded *sharded) {
    tti_bucket_memory_fini(&sharded->grads);
    tti_bucket_memory_fini(&sharded->train);
    tti_bucket_memory_fini(&sharded->eval);
}

void tti_sharded_fini(const tti_setup *setup, tti_sharded **of_worker) {
    tti_sharded *sharded = *of_worker;
    const tti_backend *b = setup->desc.backend;
    if (!sharded) return;
    release(&tti_backend_cpu, sharded->staging, longest_slot(setup->desc.plan));
    release(b, sharded->own_grads, setup->share.n_elems);
    release(b, sharded->gathered, TTI_MAX(sharded->train.n_elems, sharded->eval.n_elems));
    release(b, sharded->averages, sharded->n_averages);
    tti_sharded_fini_memory(sharded);
    free(sharded->hashes);
    free(sharded->is_short);
    free(sharded);
    *of_worker = NULL;
}

/* ---- hashes ---- */

tutti_status tti_sharded_gather_hashes(tti_exec *x, uint64_t own) {
    const tti_setup *setup = tti_setup_of(x);
    tti_param_hashes *hashes = tti_sharded_of(x)->hashes;
    hashes->own = own;
    TTI_TRY(tutti_comm_all_gather(setup->desc.comm, &own, hashes->by_rank, 1, TUTTI_I64));
    hashes->all = 0;
    for (int r = 0; r < setup->n_ranks; r++) hashes->all += hashes->by_rank[r];
    return TUTTI_OK;
}

/* ---- whole arrays, for checkpoints and evaluation ---- */

tutti_status tti_sharded_gather_slot(tti_exec *x, const float *array, size_t first,
                                     size_t n_elems) {
    const tti_setup *setup = tti_setup_of(x);
    int bucket = tti_plan_find_bucket(setup->desc.plan, first);
    const size_t *bounds = tti_share_bounds(&setup->share, setup->desc.plan, first);
    const size_t *at = setup->share.from + bucket * setup->n_ranks;
    size_t n = (size_t)setup->n_ranks, *part = calloc(2 * n + 1, sizeof *part);
    if (!part) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    size_t *from = part + n + 1;
    float *to = tti_sharded_of(x)->staging;
    for (int r = 0; r <= setup->n_ranks; r++)
        part[r] = TTI_MIN(TTI_MAX(bounds[r], first), first + n_elems) - first;
    for (int r = 0; r < setup->n_ranks; r++)
        if (part[r + 1] > part[r]) from[r] = at[r] + (first + part[r] - bounds[r]);
    size_t n_own = part[setup->rank + 1] - part[setup->rank];
    memcpy(to + part[setup->rank], array + from[setup->rank], n_own * sizeof *to);
    const tti_partitions_desc desc = {
        .src = array, .dst = to, .bounds = part, .n_groups = 1, .from = from, .dtype = TUTTI_F32};
    tutti_status st = tti_comm_gather_partitions(setup->desc.comm, &desc);
    free(part);
    return st;
}

/* ---- partitions of optimizer state: reduces, updates and gathers them ----
 *
 * Gathered values are placed in the buffer of the summed gradients at the offsets of their
 * parameters, so partitions have the same bounds everywhere and no memory is allocated. */

tutti_status tti_zero_join(const tti_setup *setup, double *values, size_t n_each) {
    if (tti_exec_has_range(setup)) return setup->desc.join(setup->desc.join_user, values, n_each);
    if (!tti_exec_divides(setup)) return TUTTI_OK;
    size_t n = (size_t)setup->desc.plan->n_updates;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_each && !setup->share.is_own[i]; k++) values[i * n_each + k] = 0;
    /* Each sum has only one nonzero term, so the order of the additions does not matter. */
    return tutti_comm_all_reduce(setup->desc.comm, values, values, n * n_each, TUTTI_F64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

const size_t *tti_zero_bounds(const tti_setup *setup, size_t first) {
    size_t bucket = (size_t)tti_plan_find_bucket(setup->desc.plan, first);
    return setup->share.in_bucket + bucket * ((size_t)setup->share.n_ranks + 1);
}

int32_t tti_zero_digest(const tti_setup *setup, size_t first) {
    return setup->share.digests[tti_plan_find_bucket(setup->desc.plan, first)];
}

tutti_status tti_zero_gather(const tti_setup *setup, const float *src, float *dst) {
    return tti_comm_gather_partitions(
        setup->desc.comm, &(tti_partitions_desc){.src = src,
                                                 .dst = dst,
                                                 .bounds = setup->share.bounds,
                                                 .n_groups = (size_t)setup->desc.plan->n_buckets,
                                                 .dtype = TUTTI_F32});
}

float *tti_zero_averages(tti_exec *x) {
    const tti_sharded *sharded = tti_sharded_of(x);
    return sharded ? sharded->averages : tti_exec_grads(x);
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
    const tti_sharded *sharded = tti_sharded_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    float *whole = tti_exec_grads(x);
    if (arrays->has_whole_ema) return TUTTI_OK;
    arrays->has_whole_ema = true;
    if (sharded) {
        /* Gathers the averages of all parameters into sharded->averages. */
        const tti_plan *plan = setup->desc.plan;
        for (int b = 0; b < plan->n_buckets; b++) {
            tti_share_run own = own_part(setup, b);
            memcpy(sharded->averages + own.first, tti_exec_array(x, TTI_STATE_EMA) + own.state,
                   own.n_elems * sizeof(float));
        }
        return tti_comm_gather_partitions(
            setup->desc.comm, &(tti_partitions_desc){.src = tti_exec_array(x, TTI_STATE_EMA),
                                                     .dst = sharded->averages,
                                                     .bounds = setup->share.bounds,
                                                     .n_groups = (size_t)plan->n_buckets,
                                                     .from = setup->share.from,
                                                     .dtype = TUTTI_F32});
    }
    tti_zero_place_own(setup, tti_exec_array(x, TTI_STATE_EMA),
                       (tti_range){0, setup->desc.plan->n_flat}, whole);
    return tti_zero_gather(setup, whole, whole);
}

/* ---- the update ---- */

/* The worker may have only its own parameters and gradients. */
static tti_update_arrays update_arrays(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    bool has_own_grads = sharded && sharded->own_grads, is_range = tti_exec_has_range(setup);
    bool sends = tti_exec_has_partitions(setup) && !sharded;
    return (tti_update_arrays){.params = tti_exec_array(x, TTI_STATE_PARAMS),
                               .grads = has_own_grads ? sharded->own_grads : tti_exec_grads(x),
                               .own_params = is_range || tti_exec_has_sharded_params(x),
                               .own_grads = is_range || has_own_grads,
                               .states = arrays->states,
                               .ema = tti_exec_array(x, TTI_STATE_EMA),
                               .outgoing = sends ? tti_exec_grads(x) : NULL};
}

tutti_status tti_exec_update(tti_exec *x, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_update *update = tti_update_of(x);
    double clip = 1, clip_norm = setup->desc.clip_norm;
    inv_count /= tally->loss_scale;
    tti_update_begin(update, &(tti_update_step_desc){.pool = tti_threads_of(x)->pool,
                                                     .arrays = update_arrays(x),
                                                     .step = desc->step,
                                                     .lr = desc->lr,
                                                     .inv_count = inv_count,
                                                     .n_rows = desc->n_rows,
                                                     .keeps_params = desc->keeps_params});
    if (!desc->keeps_params && (clip_norm > 0 || setup->desc.watch_gradients)) {
        /* The norm of the mean gradient of the whole model, for clipping.  If it is not finite the
         * step is skipped. */
        double *partials = tti_update_partials(update);
        tti_update_square_grads(update);
        TTI_TRY(tti_zero_join(setup, partials, 1));
        double sum = tti_divided_own_blocks(setup->divided, setup->desc.plan, partials);
        TTI_TRY(tti_divided_add(setup->divided, &sum));
        result->grad_norm = sqrt(sum) * inv_count;
        if (!isfinite(result->grad_norm)) {
            result->skipped = true;
            return tti_exec_report_bad_gradient(x, desc->step);
        }
        if (clip_norm > 0 && result->grad_norm > clip_norm)
            clip = clip_norm / (result->grad_norm + 1e-6);
    }
    tti_update_set_clip(update, clip);
    if (setup->desc.plan->takes_norms && !desc->keeps_params) {
        /* Norms of whole parameters and of their steps, for optimizers that scale by them. */
        const tti_plan *plan = setup->desc.plan;
        double *partials = tti_update_partials(update), *norms = tti_update_norms(update);
        tti_update_square_steps(update);
        TTI_TRY(tti_zero_join(setup, partials, 2));
        tti_divided_own_slots(setup->divided, plan, partials, norms);
        TTI_TRY(tti_divided_squares(setup->divided, norms));
        for (int i = 0; i < 2 * plan->n_slots; i++) norms[i] = sqrt(norms[i]);
    }
    tutti_status st = tti_update_run(update, &tally->last_hash);
    if (st != TUTTI_OK) return tti_exec_compute_thread_failed(x, 0, st);
    tti_profile_rest(x, tti_instr_span(TTI_UPDATE_BLOCKS), tti_now_ns());
    return TUTTI_OK;
}

/* Gathers parameters bucket by bucket, because a consumer may overlap with this loop. */
static tutti_status gather_params(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    const tti_update *update = tti_update_of(x);
    float *params = tti_exec_array(x, TTI_STATE_PARAMS);
    /* With sharded gradients others read the parameters directly. */
    float *from = tti_sharded_of(x) ? params : tti_exec_grads(x);
    if (!tti_update_overlaps(update)) return tti_zero_gather(setup, from, params);
    for (int b = 0; b < plan->n_buckets; b++) {
        const tti_bucket *bucket = &plan->buckets[b];
        size_t n = (size_t)setup->share.n_ranks + 1;
        TTI_TRY(tti_comm_gather_partitions(
            setup->desc.comm, &(tti_partitions_desc){.src = from,
                                                     .dst = params,
                                                     .bounds = setup->share.bounds + (size_t)b * n,
                                                     .n_groups = 1,
                                                     .dtype = TUTTI_F32}));
        TTI_TRY(tti_update_report(update, bucket->first, bucket->first + bucket->n_elems));
    }
    return TUTTI_OK;
}

tutti_status tti_exec_gather_params(tti_exec *x) {
    int64_t start = tti_now_ns();
    TTI_TRY(gather_params(x));
    int64_t end = tti_now_ns();
    tti_tally_of(x)->gather_ns = end - start;
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_ALL_GATHER), -1, start, end);
    tti_profile_rest(x, tti_span_of(TTI_SPAN_WAIT, "waiting for parameters"), end);
    return TUTTI_OK;
}

void tti_exec_hash_gathered(tti_exec *x) {
    tti_exec_set_hash(x, tti_update_hash_others(tti_update_of(x)));
    tti_profile_rest(x, tti_instr_span(TTI_HASH), tti_now_ns());
}

tutti_status tti_exec_apply(tti_exec *x, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    TTI_TRY(tti_exec_update(x, desc, inv_count, result));
    if (tti_exec_has_partitions(tti_setup_of(x))) {
        TTI_TRY(tti_exec_gather_params(x));
        tti_exec_hash_gathered(x);
    }
    tally->has_hash = true;
    result->params_hash = tally->last_hash;
    return TUTTI_OK;
}

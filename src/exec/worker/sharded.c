/* sharded.c - ZeRO-2 and ZeRO-3 on the host: memory, and how parameters are gathered. */
#include "exec/worker/sharded.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

/* ---- what there is ---- */

static tutti_status check(const tti_exec_device *device, const tti_offload *offload) {
    if (!device || !offload) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "exec: the host makes the update of these devices from whole gradients; zero "
                    "is at most 1");
}

tutti_status tti_sharded_find_windows(const tti_plan *plan, tti_sharded *sharded) {
    TTI_TRY(tti_window_init(plan, &plan->shard, TTI_SPACE_GRAD, &sharded->grads));
    if (!sharded->params) return TUTTI_OK;
    TTI_TRY(tti_window_init(plan, &plan->shard, TTI_SPACE_PARAM, &sharded->train));
    if (plan->eval.graph)
        TTI_TRY(tti_window_init(plan, &plan->eval, TTI_SPACE_PARAM, &sharded->eval));
    return TUTTI_OK;
}

tutti_status tti_sharded_init(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    if (setup->desc.zero < 2 || setup->share.n_ranks == 1) return TUTTI_OK;
    TTI_TRY(check(tti_device_of(x), tti_offload_of(x)));
    arrays->sharded = calloc(1, sizeof *arrays->sharded);
    if (!arrays->sharded) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    arrays->sharded->params = setup->desc.zero > 2;
    arrays->sharded->all_hashes =
        calloc((size_t)setup->n_ranks, sizeof *arrays->sharded->all_hashes);
    if (!arrays->sharded->all_hashes) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(tti_sharded_find_windows(setup->desc.plan, arrays->sharded));
    int32_t n = setup->acc.n_shard_groups, n_max = n;
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, &n, &n_max, 1, TUTTI_I32, TUTTI_MAX,
                                  TUTTI_ALG_AUTO));
    arrays->sharded->n_shard_groups = n_max;
    return TUTTI_OK;
}

void tti_sharded_find_short(const tti_accumulation *acc, const tti_plan *plan, bool *is_short) {
    for (int b = 0; b < acc->n_buffers; b++) is_short[b] = true;
    if (plan->stages && plan->stages->n_tied > 0) is_short[acc->piece_buffer[0]] = false;
    for (int w = 0; w < acc->n_shard_groups - 1; w++)
        for (int i = 0; i < acc->shard_groups[w].n_shards; i++)
            is_short[acc->shard_groups[w].buffer[i]] = false;
}

/* A buffer is short where it is so for every worker: all ask for the same memory. */
static tutti_status agree_on_short(const tti_setup *setup, tti_arrays *arrays, int32_t *is_whole,
                                   int n_buffers) {
    tti_sharded_find_short(&setup->acc, setup->desc.plan, arrays->sharded->is_short);
    for (int b = 0; b < setup->acc.n_buffers; b++) is_whole[b] = !arrays->sharded->is_short[b];
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, is_whole, is_whole, (size_t)n_buffers,
                                  TUTTI_I32, TUTTI_MAX, TUTTI_ALG_AUTO));
    for (int b = 0; b < n_buffers; b++) arrays->sharded->is_short[b] = !is_whole[b];
    return TUTTI_OK;
}

static size_t longest_slot(const tti_plan *plan) {
    size_t n = 0;
    for (int i = 0; i < plan->n_slots; i++) n = TTI_MAX(n, plan->slots[i].n_elems);
    return n;
}

static tutti_status take(const tti_backend *backend, float **memory, size_t n_elems) {
    *memory = backend->alloc(n_elems * sizeof(float) + 64);
    return *memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu floats", n_elems);
}

static tutti_status take_memory(const tti_setup *setup, tti_arrays *arrays) {
    tti_sharded *sharded = arrays->sharded;
    const tti_backend *b = setup->desc.backend;
    TTI_TRY(take(&tti_backend_cpu, &sharded->staging, longest_slot(setup->desc.plan)));
    if (sharded->is_short[setup->acc.piece_buffer[0]])
        TTI_TRY(take(b, &sharded->own_grads, setup->share.n_elems));
    if (sharded->params)
        return take(b, &sharded->gathered, TTI_MAX(sharded->train.n_elems, sharded->eval.n_elems));
    sharded->n_averages = arrays->ema ? setup->desc.plan->n_flat : 0;
    return arrays->ema ? take(b, &sharded->averages, sharded->n_averages) : TUTTI_OK;
}

tutti_status tti_sharded_buffers(tti_exec *x, int n_buffers) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    if (!arrays->sharded) return TUTTI_OK;
    int32_t *is_whole = calloc((size_t)n_buffers + 1, sizeof *is_whole);
    arrays->sharded->is_short = calloc((size_t)n_buffers + 1, sizeof *arrays->sharded->is_short);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (is_whole && arrays->sharded->is_short)
        st = agree_on_short(setup, arrays, is_whole, n_buffers);
    free(is_whole);
    return st == TUTTI_OK ? take_memory(setup, arrays) : st;
}

size_t tti_sharded_grads(const tti_sharded *sharded, const tti_accumulation *acc,
                         const tti_share *share, const tti_plan *plan) {
    size_t n = sharded->is_short[acc->piece_buffer[0]] ? share->n_elems : 0;
    for (int b = 0; b < acc->n_buffers; b++)
        n += sharded->is_short[b] ? sharded->grads.n_elems : plan->n_flat;
    return n;
}

size_t tti_sharded_gathered(const tti_sharded *sharded) {
    if (!sharded) return 0;
    return TTI_MAX(sharded->train.n_elems, sharded->eval.n_elems) + sharded->n_averages;
}

/* ---- places ---- */

int tti_sharded_next_stop(const tti_sharded *sharded, int step, int last) {
    if (!sharded) return last;
    last = tti_window_next_change(&sharded->train, step, last);
    return tti_window_next_change(&sharded->grads, step, last);
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
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_bucket *bucket = &setup->desc.plan->buckets[index];
    const float *src = averages ? arrays->ema : arrays->params;
    tti_share_run own = own_part(setup, index);
    float *dst = arrays->sharded->gathered + offset;
    size_t bounds[TTI_MAX_RANKS + 1];
    int64_t start = tti_now_ns();
    if (TTI_FAULT_AT("sharded.fetch", setup->rank, -1))
        return tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot fetch", setup->rank);
    tti_zero_bounds(setup, bucket->first, bounds);
    memcpy(dst + (own.first - bucket->first), src + own.state, own.n_elems * sizeof *src);
    const tti_parts_desc desc = {.src = src,
                                 .dst = dst,
                                 .bounds = bounds,
                                 .n_groups = 1,
                                 .from = setup->share.from + index * setup->n_ranks,
                                 .dtype = TUTTI_F32};
    TTI_TRY(tti_comm_gather_parts(setup->desc.comm, &desc));
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("parameters of other workers"), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

void tti_sharded_keep_sum(tti_exec *x, int bucket) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    if (!arrays->sharded || !arrays->sharded->own_grads) return;
    tti_share_run own = own_part(setup, bucket);
    size_t first = setup->desc.plan->buckets[bucket].first;
    const float *sum = tti_exec_grads_at(arrays, setup->acc.piece_buffer[0], first);
    memcpy(arrays->sharded->own_grads + own.state, sum + (own.first - first),
           own.n_elems * sizeof *sum);
}

int tti_sharded_idle_shard_groups(const tti_exec *x) {
    const tti_arrays *arrays = tti_arrays_of(x);
    return arrays->sharded ? arrays->sharded->n_shard_groups - tti_setup_of(x)->acc.n_shard_groups
                           : 0;
}

static void release(const tti_backend *backend, float *memory, size_t n_elems) {
    backend->release(memory, n_elems * sizeof(float) + 64);
}

void tti_sharded_fini_windows(tti_sharded *sharded) {
    tti_window_fini(&sharded->grads);
    tti_window_fini(&sharded->train);
    tti_window_fini(&sharded->eval);
}

void tti_sharded_fini(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_sharded *sharded = arrays->sharded;
    const tti_backend *b = setup->desc.backend;
    if (!sharded) return;
    release(&tti_backend_cpu, sharded->staging, longest_slot(setup->desc.plan));
    release(b, sharded->own_grads, setup->share.n_elems);
    release(b, sharded->gathered, TTI_MAX(sharded->train.n_elems, sharded->eval.n_elems));
    release(b, sharded->averages, sharded->n_averages);
    tti_sharded_fini_windows(sharded);
    free(sharded->all_hashes);
    free(sharded->is_short);
    free(sharded);
    arrays->sharded = NULL;
}

/* ---- hashes ---- */

tutti_status tti_sharded_exchange_hash(tti_exec *x, uint64_t own) {
    tti_arrays *arrays = tti_arrays_of(x);
    arrays->sharded->own_hash = own;
    return tti_exec_sum_hashes(tti_setup_of(x), own, &arrays->sharded->hash);
}

/* ---- whole things, for checkpoints and evaluation ---- */

tutti_status tti_sharded_gather_slot(tti_exec *x, const float *array, size_t first,
                                     size_t n_elems) {
    const tti_setup *setup = tti_setup_of(x);
    int bucket = tti_plan_find_bucket(setup->desc.plan, first);
    const size_t *bounds = tti_share_bounds(&setup->share, setup->desc.plan, first);
    const size_t *at = setup->share.from + bucket * setup->n_ranks;
    size_t part[TTI_MAX_RANKS + 1], from[TTI_MAX_RANKS] = {0};
    float *to = tti_arrays_of(x)->sharded->staging;
    for (int r = 0; r <= setup->n_ranks; r++)
        part[r] = TTI_MIN(TTI_MAX(bounds[r], first), first + n_elems) - first;
    for (int r = 0; r < setup->n_ranks; r++)
        if (part[r + 1] > part[r]) from[r] = at[r] + (first + part[r] - bounds[r]);
    size_t n_own = part[setup->rank + 1] - part[setup->rank];
    memcpy(to + part[setup->rank], array + from[setup->rank], n_own * sizeof *to);
    return tti_comm_gather_parts(setup->desc.comm, &(tti_parts_desc){.src = array,
                                                                     .dst = to,
                                                                     .bounds = part,
                                                                     .n_groups = 1,
                                                                     .from = from,
                                                                     .dtype = TUTTI_F32});
}

tutti_status tti_sharded_gather_averages(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_plan *plan = setup->desc.plan;
    for (int b = 0; b < plan->n_buckets; b++) {
        tti_share_run own = own_part(setup, b);
        memcpy(arrays->sharded->averages + own.first, arrays->ema + own.state,
               own.n_elems * sizeof(float));
    }
    return tti_comm_gather_parts(setup->desc.comm,
                                 &(tti_parts_desc){.src = arrays->ema,
                                                   .dst = arrays->sharded->averages,
                                                   .bounds = setup->share.bounds,
                                                   .n_groups = (size_t)plan->n_buckets,
                                                   .from = setup->share.from,
                                                   .dtype = TUTTI_F32});
}

/* memory_fit.c - whether a worker fits into the memory of its device, before it takes any. */
#include "exec/device/device.h"
#include "exec/exec.h"
#include "exec/worker/worker.h"

/* Averages by a server of this process. */
static bool is_kept_here(const tti_setup *setup) {
    return setup->desc.server && tti_calls_of(setup->desc.server)->state_owner(setup->desc.server);
}

/* Workers that update separately, or next to workers on the host, have everything. */
static bool may_have_parts(const tti_setup *setup) {
    const tti_exec_desc *d = &setup->desc;
    return setup->n_ranks > 1 && !d->server && !d->local && !d->mixed &&
           setup->desc.backend->device->update.complete;
}

/* The memory with sharded gradients, and with sharded parameters too. */
static tutti_status find_parts(const tti_setup *setup, tti_exec_desc desc, tti_device_need *need) {
    bool may = may_have_parts(setup) && !desc.offload && desc.compression == TTI_COMPRESS_NONE;
    for (int level = TTI_MAX(2, desc.zero + 1); may && level <= 3; level++) {
        tti_exec_memory m;
        desc.zero = level;
        TTI_TRY(tti_exec_memory_plan(&desc, setup->rank, setup->n_ranks, &m));
        need->in_parts[level - 2].params = m.params + m.gathered;
        need->in_parts[level - 2].grads = m.grads;
    }
    return TUTTI_OK;
}

tutti_status tti_exec_check_memory(const tti_exec *x, size_t scratch) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    size_t n_now, n_peak, n_free;
    tti_exec_desc desc = setup->desc;
    tti_exec_memory sharded = {0};
    desc.shard_map = &setup->shard_map;
    bool is_sharded = desc.zero > 1 && setup->n_ranks > 1;
    if (is_sharded) TTI_TRY(tti_exec_memory_plan(&desc, setup->rank, setup->n_ranks, &sharded));
    size_t inputs = tti_inputs_sample_bytes(&plan->shard) + tti_inputs_target_bytes(&plan->shard);
    tti_device_need need = {
        .flat = plan->n_flat * sizeof(float),
        .low = tti_plan_low_bytes(plan),
        .state = setup->share.n_elems * sizeof(float),
        .arena =
            TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes) + tti_plan_own_bytes(plan),
        .inputs = TTI_N_INPUTS * (size_t)(setup->last_shard - setup->first_shard) * inputs +
                  tti_device_p2p_bytes(x) + tti_device_tp_bytes(setup),
        .params = is_sharded ? sharded.params + sharded.gathered : 0,
        .grads = sharded.grads,
        .residuals = tti_device_compress_bytes(&desc, setup->n_ranks),
        .scratch = scratch,
        .n_states = setup->desc.server || setup->desc.offload ? 0 : plan->n_states,
        .n_emas = !is_kept_here(setup) && !setup->desc.offload && setup->desc.ema > 0,
        .offloads = !setup->desc.server && !setup->divided,
        .n_grads = setup->acc.n_buffers,
        .n_arenas = setup->n_in_flight,
        .n_shards = setup->desc.n_shards,
        .most_shards = TTI_MAX_SHARDS,
        .n_ranks = may_have_parts(setup) ? setup->n_ranks : 1,
        .rows = tti_inputs_most_rows(&plan->shard)};
    setup->desc.backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
    TTI_TRY(find_parts(setup, desc, &need));
    return tti_device_need_check(&need, n_free);
}

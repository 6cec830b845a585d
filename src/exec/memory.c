/* memory.c - the bytes of a worker, before there is one. */
#include "exec/worker.h"

static bool has_step(const tti_program *program, tti_trait trait) {
    for (int s = 0; s < program->n_steps; s++)
        if (program->steps[s]->op->traits & trait) return true;
    return false;
}

int tti_exec_n_lanes(const tti_exec_desc *desc, int n_local) {
    if (desc->backend->device || has_step(&desc->plan->shard, TTI_COLLECTIVE)) return 1;
    int n = TTI_MAX(1, TTI_MIN(TTI_MIN(desc->n_lanes, n_local), TTI_MAX_LANES));
    return desc->plan->stages ? tti_pipe_fit_lanes(desc->plan->stages, n, n_local) : n;
}

/* Shards whose activations live at the same time. */
static tutti_status count_in_flight(const tti_exec_desc *desc, int n_local, int *n) {
    int n_lanes = tti_exec_n_lanes(desc, n_local);
    *n = has_step(&desc->plan->shard, TTI_SYNC) ? n_local : n_lanes;
    if (!desc->plan->stages) return TUTTI_OK;
    TTI_TRY(tti_pipe_count_in_flight(desc->plan->stages, (n_local + n_lanes - 1) / n_lanes, n));
    *n *= n_lanes;
    return TUTTI_OK;
}

tutti_status tti_exec_memory_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                  tti_exec_memory *out) {
    const tti_plan *plan = desc->plan;
    int first = tti_shard_first(rank, n_ranks, desc->n_shards);
    int last = tti_shard_first(rank + 1, n_ranks, desc->n_shards);
    int n_in_flight;
    TTI_TRY(count_in_flight(desc, last - first, &n_in_flight));
    int width = plan->stages ? tti_exec_n_lanes(desc, last - first) : n_in_flight;
    size_t flat = plan->n_flat * sizeof(float);
    bool rounds = desc->fast && n_ranks > 1 && desc->wire != TUTTI_F32 && !desc->backend->device;
    tti_accumulation acc;
    TTI_TRY(tti_accumulation_init(&acc, first, last, TTI_MAX(1, TTI_MIN(width, TTI_MAX_LANES))));
    tti_share share;
    tutti_status st = tti_share_init(plan, desc->zero ? rank : 0, desc->zero ? n_ranks : 1, &share);
    size_t state = share.n_elems * sizeof(float);
    *out = (tti_exec_memory){
        .params = flat,
        .states = state * (size_t)plan->n_states,
        .ema = desc->ema > 0 ? state : 0,
        .grads = flat * (size_t)acc.n_buffers + (rounds ? flat / 2 : 0) +
                 (desc->backend->device ? 0 : tti_compress_bytes(desc, n_ranks)),
        .arena = TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes) * (size_t)n_in_flight};
    tti_accumulation_fini(&acc);
    tti_share_fini(&share);
    return st;
}

/* sync.c - joins values over all shards inside a step, such as SyncBatchNorm statistics.
 *
 * Every shard's value is sent in its own slot, zero elsewhere, so that the all-reduce only moves
 * numbers; the op's join then combines the V slots, in an order that depends on V alone. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

static size_t joined_elems(const tti_node *node) { return (size_t)tti_value_n_elems(node->out[0]); }

tutti_status tti_exec_init_sync(tti_exec *x) {
    const tti_program *program = &x->desc.plan->shard;
    size_t most = 0;
    x->syncs = calloc((size_t)program->n_steps + 1, sizeof *x->syncs);
    if (!x->syncs) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int s = 0; s < program->n_steps; s++) {
        if (!(program->steps[s]->op->traits & TTI_SYNC)) continue;
        x->syncs[x->n_syncs++] = s;
        most = TTI_MAX(most, joined_elems(program->steps[s]));
    }
    x->sync_parts = calloc(most * (size_t)x->desc.n_shards + 1, sizeof *x->sync_parts);
    x->sync_joined = calloc(most + 1, sizeof *x->sync_joined);
    if (!x->sync_parts || !x->sync_joined) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    return TUTTI_OK;
}

void tti_exec_fini_sync(tti_exec *x) {
    free(x->syncs);
    free(x->sync_parts);
    free(x->sync_joined);
}

/* If another thread joins, the compute threads record their own waits. */
static void tell(tti_exec *x, const tti_node *node, int64_t start, int64_t met) {
    const tti_span join = {
        .part = tti_part_node(TTI_SPAN_SUMS, node, "join"), .shard = -1, .row = TTI_ROW_COMM};
    int64_t end = tti_now_ns();
    if (x->sharded) {
        tti_profile_add(x, join.row, join.part, join.shard, start, end);
        return;
    }
    tti_exec_waited(x, met - start);
    tti_profile_stall(x, &join, "waiting for a join", start, end);
}

tutti_status tti_exec_join(tti_exec *x, int step) {
    int n_local = x->last_shard - x->first_shard;
    const tti_node *node = x->desc.plan->shard.steps[step];
    size_t n = joined_elems(node), n_all = n * (size_t)x->desc.n_shards;
    memset(x->sync_parts, 0, n_all * sizeof *x->sync_parts);
    for (int s = 0; s < n_local; s++) {
        const float *part = tti_instance_step_in(x->compute_thread[s].shard, step, 0);
        float *slot = x->sync_parts + (size_t)(x->first_shard + s) * n;
        /* + 0: a sum with the zeros of other workers would turn -0 into 0, so one alone does too */
        for (size_t k = 0; k < n; k++) slot[k] = part[k] + 0.0f;
    }
    int64_t start = tti_now_ns();
    if (x->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(x->desc.comm, x->sync_parts, x->sync_parts, n_all, TUTTI_F32,
                                      TUTTI_SUM, TUTTI_ALG_AUTO));
    int64_t met = tti_now_ns();
    node->op->join(x->sync_parts, (size_t)x->desc.n_shards, n, x->sync_joined);
    tell(x, node, start, met);
    for (int s = 0; s < n_local; s++)
        memcpy(tti_instance_step_out(x->compute_thread[s].shard, step, 0), x->sync_joined,
               n * sizeof *x->sync_joined);
    return TUTTI_OK;
}

/* sync.c - joins values over all shards inside a step, such as SyncBatchNorm statistics.
 *
 * Every shard's value is sent in its own slot, zero elsewhere, so that the all-reduce only moves
 * numbers; the op's join then combines the V slots, in an order that depends on V alone. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

static size_t joined_elems(const tti_node *node) { return (size_t)tti_value_n_elems(node->out[0]); }

tutti_status tti_exec_init_sync(tti_setup *setup, tti_joins *joins) {
    const tti_program *program = &setup->desc.plan->shard;
    size_t most = 0;
    setup->syncs = calloc((size_t)program->n_steps + 1, sizeof *setup->syncs);
    if (!setup->syncs) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int s = 0; s < program->n_steps; s++) {
        if (!(program->steps[s]->op->traits & TTI_SYNC)) continue;
        setup->syncs[setup->n_syncs++] = s;
        most = TTI_MAX(most, joined_elems(program->steps[s]));
    }
    joins->parts = calloc(most * (size_t)setup->desc.n_shards + 1, sizeof *joins->parts);
    joins->joined = calloc(most + 1, sizeof *joins->joined);
    if (!joins->parts || !joins->joined) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    return TUTTI_OK;
}

void tti_exec_fini_sync(tti_setup *setup, tti_joins *joins) {
    free(setup->syncs);
    free(joins->parts);
    free(joins->joined);
}

/* If another thread joins, the compute threads record their own waits. */
static void record_join(tti_exec *x, const tti_node *node, int64_t start, int64_t arrived) {
    const tti_span join = {
        .part = tti_part_node(TTI_SPAN_SUMS, node, "join"), .shard = -1, .row = TTI_ROW_COMM};
    int64_t end = tti_now_ns();
    if (tti_arrays_of(x)->sharded) {
        tti_profile_add(x, join.row, join.part, join.shard, start, end);
        return;
    }
    tti_exec_waited(tti_tally_of(x), arrived - start);
    tti_profile_stall(x, &join, "waiting for a join", start, end);
}

tutti_status tti_exec_join(tti_exec *x, int step) {
    const tti_setup *setup = tti_setup_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    tti_joins *joins = tti_joins_of(x);
    int n_local = setup->last_shard - setup->first_shard;
    const tti_node *node = setup->desc.plan->shard.steps[step];
    size_t n = joined_elems(node), n_all = n * (size_t)setup->desc.n_shards;
    memset(joins->parts, 0, n_all * sizeof *joins->parts);
    for (int s = 0; s < n_local; s++) {
        const float *part = tti_instance_step_in(threads->thread[s].shard, step, 0);
        float *slot = joins->parts + (size_t)(setup->first_shard + s) * n;
        /* + 0: a sum with the zeros of other workers would turn -0 into 0, so one alone does too */
        for (size_t k = 0; k < n; k++) slot[k] = part[k] + 0.0f;
    }
    int64_t start = tti_now_ns();
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, joins->parts, joins->parts, n_all,
                                      TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    int64_t arrived = tti_now_ns();
    node->op->join(joins->parts, (size_t)setup->desc.n_shards, n, joins->joined);
    record_join(x, node, start, arrived);
    for (int s = 0; s < n_local; s++)
        memcpy(tti_instance_step_out(threads->thread[s].shard, step, 0), joins->joined,
               n * sizeof *joins->joined);
    return TUTTI_OK;
}

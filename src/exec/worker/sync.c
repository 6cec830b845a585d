/* sync.c - joins values over all shards inside a step, such as SyncBatchNorm statistics.
 *
 * Every shard's value is sent in its own slot, zero elsewhere, so that the all-reduce only moves
 * numbers; the op's join then combines the V slots, in an order that depends on V alone. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

static tutti_status find_syncs(const tti_program *program, tti_syncs *syncs, tti_join_size *most) {
    syncs->step = calloc((size_t)program->n_steps + 1, sizeof *syncs->step);
    if (!syncs->step) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int s = 0; s < program->n_steps; s++) {
        if (!(program->steps[s]->op->traits & TTI_SYNC)) continue;
        tti_join_size size = tti_join_size_of(program->steps[s]);
        syncs->step[syncs->n++] = s;
        most->n_part = TTI_MAX(most->n_part, size.n_part);
        most->n_joined = TTI_MAX(most->n_joined, size.n_joined);
    }
    return TUTTI_OK;
}

tutti_status tti_exec_init_sync(tti_setup *setup, tti_joins *joins) {
    const tti_plan *plan = setup->desc.plan;
    tti_join_size *most = &joins->most;
    TTI_TRY(find_syncs(&plan->shard, &setup->syncs, most));
    if (plan->eval.graph) TTI_TRY(find_syncs(&plan->eval, &setup->eval_syncs, most));
    joins->parts = calloc(most->n_part * (size_t)setup->desc.n_shards + 1, sizeof *joins->parts);
    joins->joined = calloc(most->n_joined + 1, sizeof *joins->joined);
    if (!joins->parts || !joins->joined) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    return TUTTI_OK;
}

void tti_exec_fini_sync(tti_setup *setup, tti_joins *joins) {
    free(setup->syncs.step);
    free(setup->eval_syncs.step);
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

static tti_instance *instance_of(const tti_compute_thread *thread, bool eval) {
    return eval ? thread->eval : thread->shard;
}

tutti_status tti_exec_join(tti_exec *x, int step, bool eval) {
    const tti_setup *setup = tti_setup_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    tti_joins *joins = tti_joins_of(x);
    int n_local = setup->last_shard - setup->first_shard;
    const tti_plan *plan = setup->desc.plan;
    const tti_node *node = (eval ? &plan->eval : &plan->shard)->steps[step];
    const tti_join_size size = tti_join_size_of(node);
    size_t n = size.n_part, n_all = n * (size_t)setup->desc.n_shards;
    memset(joins->parts, 0, n_all * sizeof *joins->parts);
    for (int s = 0; s < n_local; s++)
        tti_join_take(instance_of(&threads->thread[s], eval), step, &size,
                      joins->parts + (size_t)(setup->first_shard + s) * n);
    int64_t start = tti_now_ns();
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, joins->parts, joins->parts, n_all,
                                      TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    int64_t arrived = tti_now_ns();
    node->op->join(joins->parts, (size_t)setup->desc.n_shards, n, joins->joined);
    record_join(x, node, start, arrived);
    for (int s = 0; s < n_local; s++)
        tti_join_give(instance_of(&threads->thread[s], eval), step, &size, setup->first_shard + s,
                      joins->joined);
    return TUTTI_OK;
}

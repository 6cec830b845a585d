/* gradient_sums.c - reduces a range of the gradients between workers on the host. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/local_sum.h"
#include "exec/worker/worker.h"

/* Partitions are summed along the tree in fast mode too: a ring does not support them. */
static tutti_comm_alg alg_of_tree(const tti_setup *setup) {
    return setup->desc.fast && setup->desc.alg == TUTTI_ALG_RING ? TUTTI_ALG_AUTO : setup->desc.alg;
}

tutti_status tti_exec_reduce_tree(tti_exec *x, const tti_partial *partials, tti_range range,
                                  bool scatter, bool keeps) {
    const tti_setup *setup = tti_setup_of(x);
    bool rounds = tti_exec_rounds_partials(&setup->desc);
    size_t n_elems = range.last - range.first;
    int n_partials = setup->acc.n_partials;
    const size_t *bounds = scatter ? tti_zero_bounds(setup, range.first) : NULL;
    float *sum = partials[0].data;
    tti_exec_count_partials(x, n_elems, scatter);
    /* Rounded partial sums are sent from their own memory, as 16-bit values at its beginning. */
    for (int i = 0; rounds && i < n_partials; i++)
        tti_narrow_in_place(TUTTI_BF16, partials[i].data, n_elems);
    const tti_reduce_desc desc = {.partials = partials,
                                  .n_partials = n_partials,
                                  .dst = sum,
                                  .n_elems = n_elems,
                                  .dtype = rounds ? TUTTI_BF16 : TUTTI_F32,
                                  .rounds = rounds,
                                  .n_shards = setup->desc.n_shards,
                                  .alg = alg_of_tree(setup),
                                  .bounds = bounds,
                                  .digest = scatter ? tti_zero_digest(setup, range.first) : 0,
                                  .keeps_partials = keeps && !rounds,
                                  .shard_map = &setup->shard_map};
    TTI_TRY(tti_comm_reduce_shards(setup->desc.comm, &desc));
    if (rounds)
        tti_widen_in_place(TUTTI_BF16, sum, bounds ? bounds[setup->rank] : 0,
                           bounds ? bounds[setup->rank + 1] : n_elems);
    return TUTTI_OK;
}

/* Sends half the bytes: rounds to the wire's dtype, adds in f32, and rounds the sum again. */
static tutti_status reduce_rounded(tti_exec *x, float *sum, uint16_t *wire, size_t n_elems) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_count_sent(x, tti_exec_reduce_bytes(setup, n_elems * sizeof *wire));
    tti_narrow(setup->desc.wire, sum, wire, n_elems);
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, wire, wire, n_elems, setup->desc.wire,
                                  TUTTI_SUM, setup->desc.alg));
    tti_widen(setup->desc.wire, wire, sum, n_elems);
    return TUTTI_OK;
}

/* Reduces to the owner of each partition, with the same bits as above: a worker's sum is one
 * subtree of the tree over the workers. */
static tutti_status reduce_rounded_part(tti_exec *x, float *sum, uint16_t *wire, size_t first,
                                        size_t n_elems) {
    const tti_setup *setup = tti_setup_of(x);
    const size_t *bounds = tti_zero_bounds(setup, first);
    tti_shard_map shard_map;
    tti_partial partials[TTI_MAX_PARTIALS];
    tti_shard_map_subtrees(setup->n_ranks, &shard_map);
    int n = tti_shard_partials(tti_shard_map_first(&shard_map, setup->rank),
                               tti_shard_map_first(&shard_map, setup->rank + 1), partials);
    partials[0].data = wire;
    tti_exec_count_sent(x, tti_exec_reduce_bytes(setup, n_elems * sizeof *wire) / 2);
    tti_narrow(setup->desc.wire, sum, wire, n_elems);
    const tti_reduce_desc desc = {.partials = partials,
                                  .n_partials = n,
                                  .dst = wire,
                                  .n_elems = n_elems,
                                  .dtype = setup->desc.wire,
                                  .n_shards = tti_shard_map_n_shards(&shard_map),
                                  .alg = alg_of_tree(setup),
                                  .bounds = bounds,
                                  .digest = tti_zero_digest(setup, first),
                                  .shard_map = &shard_map};
    TTI_TRY(tti_comm_reduce_shards(setup->desc.comm, &desc));
    size_t own = bounds[setup->rank];
    tti_widen(setup->desc.wire, wire + own, sum + own, bounds[setup->rank + 1] - own);
    return TUTTI_OK;
}

/* Fast mode: adds a worker's own partial sums in any order. */
static float *add_partials(const tti_setup *setup, const tti_exec *x, size_t first,
                           size_t n_elems) {
    float *sum = tti_exec_grads_at(x, setup->acc.partial_buffer[0], first);
    for (int i = 1; i < setup->acc.n_partials; i++)
        setup->desc.backend->accumulate(
            sum, tti_exec_grads_at(x, setup->acc.partial_buffer[i], first), n_elems);
    return sum;
}

tutti_status tti_exec_reduce_sum(tti_exec *x, tti_reduce_method method, float *sum, uint16_t *wire,
                                 tti_range range, bool scatter) {
    const tti_setup *setup = tti_setup_of(x);
    size_t first = range.first, n = range.last - first;
    if (method == TTI_REDUCE_COMPRESS) return tti_compress_reduce(x, sum, first, n);
    if (method == TTI_REDUCE_ROUNDED)
        return scatter ? reduce_rounded_part(x, sum, wire, first, n)
                       : reduce_rounded(x, sum, wire, n);
    tti_exec_count_sent(x, tti_exec_reduce_bytes(setup, n * sizeof *sum));
    return tutti_comm_all_reduce(setup->desc.comm, sum, sum, n, TUTTI_F32, TUTTI_SUM,
                                 setup->desc.alg);
}

tutti_status tti_exec_reduce(tti_exec *x, const tti_instr *in) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    int64_t start = tti_now_ns();
    size_t first = in->range.first, n = in->range.last - first;
    bool scatter = in->kind == TTI_REDUCE_SCATTER;
    if (in->kind == TTI_ADD_PARTIALS) {
        add_partials(setup, x, first, n);
        return TUTTI_OK;
    }
    if (in->method == TTI_REDUCE_TREE || in->method == TTI_REDUCE_TREE_ROUNDED) {
        /* For a single worker the merges have left one partial sum, of the whole tree. */
        tti_partial partials[TTI_MAX_PARTIALS];
        for (int i = 0; i < setup->acc.n_partials; i++) {
            partials[i] = setup->acc.partials[i];
            partials[i].data = tti_exec_grads_at(x, setup->acc.partial_buffer[i], first);
        }
        /* The step reports before its buffers are used again. */
        TTI_TRY(
            tti_exec_reduce_tree(x, partials, in->range, scatter, scatter && !tti_sharded_of(x)));
    } else {
        uint16_t *wire = arrays->wire ? arrays->wire + first : NULL;
        TTI_TRY(tti_exec_reduce_sum(x, in->method, add_partials(setup, x, first, n), wire,
                                    in->range, scatter));
    }
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(in->kind), -1, start, tti_now_ns());
    return TUTTI_OK;
}

/* ---- joins values over all shards inside a step, for example SyncBatchNorm statistics ----
 *
 * Every shard's value is sent in its own slot, zero elsewhere, so that the all-reduce only moves
 * numbers; the op's join then combines the V slots, in an order that depends on V alone. */

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
        .id = tti_span_node(TTI_SPAN_SUMS, node, "join"), .shard = -1, .row = TTI_ROW_COMM};
    int64_t end = tti_now_ns();
    if (tti_sharded_of(x)) {
        tti_profile_add(x, join.row, join.id, join.shard, start, end);
        return;
    }
    tti_exec_waited(x, arrived - start);
    tti_profile_stall(x, &join, "waiting for a join", start, end);
}

tutti_status tti_exec_join(tti_exec *x, int step, bool eval) {
    const tti_setup *setup = tti_setup_of(x);
    tti_joins *joins = tti_joins_of(x);
    int n_local = setup->last_shard - setup->first_shard;
    const tti_plan *plan = setup->desc.plan;
    const tti_node *node = (eval ? &plan->eval : &plan->shard)->steps[step];
    const tti_join_size size = tti_join_size_of(node);
    size_t n = size.n_part, n_all = n * (size_t)setup->desc.n_shards;
    memset(joins->parts, 0, n_all * sizeof *joins->parts);
    for (int s = 0; s < n_local; s++)
        tti_join_take(tti_exec_instance(x, s, eval), step, &size,
                      joins->parts + (size_t)(setup->first_shard + s) * n);
    int64_t start = tti_now_ns();
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, joins->parts, joins->parts, n_all,
                                      TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    int64_t arrived = tti_now_ns();
    node->op->join(joins->parts, (size_t)setup->desc.n_shards, n, joins->joined);
    record_join(x, node, start, arrived);
    for (int s = 0; s < n_local; s++)
        tti_join_give(tti_exec_instance(x, s, eval), step, &size, setup->first_shard + s,
                      joins->joined);
    return TUTTI_OK;
}

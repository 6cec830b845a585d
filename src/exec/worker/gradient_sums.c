/* gradient_sums.c - sums of gradients between workers on the host, of a range of the flat arrays.
 */
#include "base/clock.h"
#include "comm/local_sum.h"
#include "exec/worker/worker.h"

/* Parts are summed along the tree in fast mode too, where a ring would not know of them. */
static tutti_comm_alg alg_of_tree(const tti_setup *setup) {
    return setup->desc.fast && setup->desc.alg == TUTTI_ALG_RING ? TUTTI_ALG_AUTO : setup->desc.alg;
}

/* Half the bytes: rounded to the wire's dtype, added in f32, and the sum rounded once more. */
tutti_status tti_exec_reduce_rounded(tti_exec *x, float *sum, uint16_t *wire, size_t n_elems) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally_of(x)->sent_bytes += tti_exec_reduce_bytes(setup, n_elems * sizeof *wire);
    tti_narrow(setup->desc.wire, sum, wire, n_elems);
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, wire, wire, n_elems, setup->desc.wire,
                                  TUTTI_SUM, setup->desc.alg));
    tti_widen(setup->desc.wire, wire, sum, n_elems);
    return TUTTI_OK;
}

/* The part of a sum that its owner needs, the same bits as above: a worker's sum is one subtree of
 * a tree over the workers. */
static tutti_status reduce_rounded_part(tti_exec *x, float *sum, size_t first, size_t n_elems) {
    const tti_setup *setup = tti_setup_of(x);
    uint16_t *wire = tti_arrays_of(x)->wire + first;
    size_t bounds[TTI_MAX_RANKS + 1];
    tti_shard_map shard_map;
    tti_partial piece[TTI_MAX_PARTIALS];
    tti_zero_bounds(setup, first, bounds);
    tti_shard_map_subtrees(setup->n_ranks, &shard_map);
    int n =
        tti_shard_partials(shard_map.first[setup->rank], shard_map.first[setup->rank + 1], piece);
    piece[0].data = wire;
    tti_tally_of(x)->sent_bytes += tti_exec_reduce_bytes(setup, n_elems * sizeof *wire) / 2;
    tti_narrow(setup->desc.wire, sum, wire, n_elems);
    const tti_reduce_desc desc = {.partials = piece,
                                  .n_partials = n,
                                  .dst = wire,
                                  .n_elems = n_elems,
                                  .dtype = setup->desc.wire,
                                  .n_shards = tti_shard_map_n_shards(&shard_map),
                                  .alg = alg_of_tree(setup),
                                  .bounds = bounds,
                                  .shard_map = &shard_map};
    TTI_TRY(tti_comm_reduce_shards(setup->desc.comm, &desc));
    size_t own = bounds[setup->rank];
    tti_widen(setup->desc.wire, wire + own, sum + own, bounds[setup->rank + 1] - own);
    return TUTTI_OK;
}

/* Fast mode: the sum of a worker's own partial sums, in any order. */
static float *add_partials(const tti_setup *setup, tti_arrays *arrays, size_t first,
                           size_t n_elems) {
    float *sum = tti_exec_grads_at(arrays, setup->acc.piece_buffer[0], first);
    for (int i = 1; i < setup->acc.n_pieces; i++)
        setup->desc.backend->accumulate(
            sum, tti_exec_grads_at(arrays, setup->acc.piece_buffer[i], first), n_elems);
    return sum;
}

static tutti_status reduce_any(const tti_setup *setup, tti_tally *tally, float *sum,
                               size_t n_elems) {
    tally->sent_bytes += tti_exec_reduce_bytes(setup, n_elems * sizeof *sum);
    return tutti_comm_all_reduce(setup->desc.comm, sum, sum, n_elems, TUTTI_F32, TUTTI_SUM,
                                 setup->desc.alg);
}

/* Alone the merges have left one partial sum: the whole tree. */
static tutti_status reduce_exact(tti_exec *x, size_t first, size_t n_elems, bool scatter) {
    const tti_setup *setup = tti_setup_of(x);
    size_t bounds[TTI_MAX_RANKS + 1];
    if (scatter) tti_zero_bounds(setup, first, bounds);
    tti_partial pieces[TTI_MAX_PARTIALS];
    for (int i = 0; i < setup->acc.n_pieces; i++) {
        pieces[i] = setup->acc.pieces[i];
        pieces[i].data = tti_exec_grads_at(tti_arrays_of(x), setup->acc.piece_buffer[i], first);
    }
    tti_exec_count_partials(x, n_elems, scatter);
    return tti_comm_reduce_shards(setup->desc.comm,
                                  &(tti_reduce_desc){.partials = pieces,
                                                     .n_partials = setup->acc.n_pieces,
                                                     .dst = pieces[0].data,
                                                     .n_elems = n_elems,
                                                     .dtype = TUTTI_F32,
                                                     .n_shards = setup->desc.n_shards,
                                                     .alg = alg_of_tree(setup),
                                                     .bounds = scatter ? bounds : NULL,
                                                     .shard_map = &setup->shard_map});
}

static tutti_status reduce(tti_exec *x, const tti_instr *in) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    size_t first = in->range.first, n = in->range.last - first;
    bool scatter = in->kind == TTI_REDUCE_SCATTER;
    if (in->method == TTI_REDUCE_TREE) return reduce_exact(x, first, n, scatter);
    float *sum = add_partials(setup, arrays, first, n);
    if (in->method == TTI_REDUCE_COMPRESS) return tti_compress_reduce(x, sum, first, n);
    if (in->method == TTI_REDUCE_ANY) return reduce_any(setup, tti_tally_of(x), sum, n);
    return scatter ? reduce_rounded_part(x, sum, first, n)
                   : tti_exec_reduce_rounded(x, sum, arrays->wire + first, n);
}

tutti_status tti_exec_reduce(tti_exec *x, const tti_instr *in) {
    int64_t start = tti_now_ns();
    if (in->kind == TTI_ADD_PARTIALS) {
        add_partials(tti_setup_of(x), tti_arrays_of(x), in->range.first,
                     in->range.last - in->range.first);
        return TUTTI_OK;
    }
    TTI_TRY(reduce(x, in));
    tti_profile_add(x, TTI_ROW_COMM, tti_part_grads("sum of gradients"), -1, start, tti_now_ns());
    return TUTTI_OK;
}

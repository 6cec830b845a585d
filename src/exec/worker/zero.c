/* zero.c - partitions of optimizer state: reduces, updates and gathers them.
 *
 * Gathered values are placed in the buffer of the summed gradients at the offsets of their
 * parameters, so partitions have the same bounds everywhere and no memory is allocated. */
#include "exec/worker/zero.h"

#include <string.h>

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

void tti_zero_spread(const tti_setup *setup, const float *state, tti_range range, float *to) {
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
    tti_zero_spread(setup, arrays->ema, (tti_range){0, setup->desc.plan->n_flat}, whole);
    return tti_zero_gather(setup, whole, whole);
}

/* zero.c - partitions of optimizer state: reduces, updates and gathers them.
 *
 * Gathered values are placed in the buffer of the summed gradients at the offsets of their
 * parameters, so partitions have the same bounds everywhere and no memory is allocated. */
#include "exec/worker/zero.h"

#include <string.h>

#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

tutti_status tti_zero_join(tti_exec *x, double *values, size_t n_each) {
    if (tti_exec_has_range(x)) return x->desc.join(x->desc.join_user, values, n_each);
    if (!tti_exec_divides(x)) return TUTTI_OK;
    size_t n = (size_t)x->desc.plan->n_updates;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_each && !x->share.is_own[i]; k++) values[i * n_each + k] = 0;
    /* Each sum has only one nonzero term: the order of the additions does not matter. */
    return tutti_comm_all_reduce(x->desc.comm, values, values, n * n_each, TUTTI_F64, TUTTI_SUM,
                                 TUTTI_ALG_AUTO);
}

void tti_zero_bounds(const tti_exec *x, size_t first, size_t *bounds) {
    const size_t *flat = tti_share_bounds(&x->share, x->desc.plan, first);
    for (int r = 0; r <= x->n_ranks; r++) bounds[r] = flat[r] - first;
}

tutti_status tti_zero_gather(tti_exec *x, const float *src, float *dst) {
    return tti_comm_gather_parts(x->desc.comm,
                                 &(tti_parts_desc){.src = src,
                                                   .dst = dst,
                                                   .bounds = x->share.bounds,
                                                   .n_groups = (size_t)x->desc.plan->n_buckets,
                                                   .dtype = TUTTI_F32});
}

/* With sharded gradients others read the parameters directly. */
tutti_status tti_zero_gather_params(tti_exec *x) {
    return tti_zero_gather(x, x->sharded ? x->params : tti_exec_grads(x), x->params);
}

tutti_status tti_zero_gather_bucket(tti_exec *x, int bucket) {
    size_t n = (size_t)x->share.n_ranks + 1;
    return tti_comm_gather_parts(
        x->desc.comm, &(tti_parts_desc){.src = x->sharded ? x->params : tti_exec_grads(x),
                                        .dst = x->params,
                                        .bounds = x->share.bounds + (size_t)bucket * n,
                                        .n_groups = 1,
                                        .dtype = TUTTI_F32});
}

float *tti_zero_averages(tti_exec *x) {
    return x->sharded ? x->sharded->averages : tti_exec_grads(x);
}

void tti_zero_spread(const tti_exec *x, const float *state, tti_range range, float *to) {
    for (int i = 0; i < x->share.n_blocks; i++) {
        const tti_own_block *own = &x->share.blocks[i];
        const tti_update_step *step = &x->desc.plan->updates[own->update];
        if (step->first < range.first || step->first >= range.last) continue;
        memcpy(to + step->first, state + own->state, step->n_elems * sizeof *to);
    }
}

tutti_status tti_zero_gather_ema(tti_exec *x) {
    float *whole = tti_exec_grads(x);
    if (x->has_whole_ema) return TUTTI_OK;
    x->has_whole_ema = true;
    if (x->sharded) return tti_sharded_gather_averages(x);
    tti_zero_spread(x, x->ema, (tti_range){0, x->desc.plan->n_flat}, whole);
    return tti_zero_gather(x, whole, whole);
}

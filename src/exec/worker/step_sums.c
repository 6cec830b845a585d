/* step_sums.c - the small vector of a step: sums of shards, hashes and votes of all workers. */
#include <inttypes.h>
#include <math.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

/* Sums and hashes of all workers in one small vector.  Every entry is set by one rank and zero on
 * the others (votes are small integers), so the order of the additions does not matter. */
tutti_status tti_exec_exchange_sums(tti_exec *x, bool vote) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    double *hashes = tally->sums + (size_t)setup->desc.n_shards * TTI_SUMS;
    hashes[2 * setup->rank] = (double)(uint32_t)(tally->last_hash >> 32);
    hashes[2 * setup->rank + 1] = (double)(uint32_t)tally->last_hash;
    tally->sums[tally->n_sums - 1] = vote ? 1 : 0;
    if (setup->n_ranks == 1 && !setup->divided) return TUTTI_OK;
    int64_t start = tti_now_ns();
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, tally->sums, tally->sums, tally->n_sums,
                                      TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    TTI_TRY(tti_divided_sums(setup->divided, tally->sums, (size_t)setup->desc.n_shards * TTI_SUMS,
                             &tally->sums[tally->n_sums - 1]));
    int64_t end = tti_now_ns();
    tti_exec_waited(tally, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_part_sums("sums of the step"), -1, start, end);
    return TUTTI_OK;
}

void tti_exec_add_sums(const tti_exec *x, tti_step_result *result) {
    const tti_tally *tally = tti_tally_of(x);
    result->n_votes = (int)tally->sums[tally->n_sums - 1];
    for (int s = 0; s < tti_setup_of(x)->desc.n_shards; s++) {
        result->loss_sum += tally->sums[s * TTI_SUMS];
        result->count += tally->sums[s * TTI_SUMS + 1];
        result->correct += tally->sums[s * TTI_SUMS + 2];
    }
}

/* ---- hashes ---- */

/* Halves, whose sums are exact in f64. */
tutti_status tti_exec_sum_hashes(const tti_setup *setup, uint64_t own, uint64_t *sum) {
    double halves[2] = {(double)(uint32_t)(own >> 32), (double)(uint32_t)own};
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, halves, halves, 2, TUTTI_F64, TUTTI_SUM,
                                  TUTTI_ALG_AUTO));
    *sum = ((uint64_t)halves[0] << 32) + (uint64_t)halves[1];
    return TUTTI_OK;
}

tutti_status tti_exec_compare_hashes(tti_exec *x, uint64_t step) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    const double *hashes = tally->sums + (size_t)setup->desc.n_shards * TTI_SUMS;
    if (!tally->has_hash) return TUTTI_OK;
    for (int r = 1; r < setup->n_ranks; r++) {
        if (hashes[2 * r] == hashes[0] && hashes[2 * r + 1] == hashes[1]) continue;
        tally->has_differed = true;
        tally->differed_in = step;
        return tti_fail(TUTTI_E_MISMATCH,
                        "step %llu: rank %d computed different parameters than rank 0, but they "
                        "agree in memory: its processor is probably faulty",
                        (unsigned long long)step, r);
    }
    return TUTTI_OK;
}

/* ---- what is not finite ---- */

int tti_exec_first_bad_shard(const tti_exec *x) {
    for (int s = 0; s < tti_setup_of(x)->desc.n_shards; s++)
        if (!isfinite(tti_tally_of(x)->sums[s * TTI_SUMS])) return s;
    return -1;
}

tutti_status tti_exec_bad_loss(const tti_exec *x, uint64_t step, int shard, const char *first_in) {
    return tti_fail(TUTTI_E_NUMERICS,
                    "step %" PRIu64
                    ": the loss is not finite (shard %d of %d%s%s); the parameters "
                    "are as before this step.  A lower learning rate or train.clip_norm may help%s",
                    step + 1, shard, tti_setup_of(x)->desc.n_shards, *first_in ? ", first in " : "",
                    first_in,
                    /* left out where all workers agree on it, or one makes an update alone */
                    !tti_local_is_on(x) ? "; train.on_nan=skip skips such steps" : "");
}

tutti_status tti_exec_bad_gradient(uint64_t step, const char *param) {
    return tti_fail(TUTTI_E_NUMERICS,
                    "step %" PRIu64
                    ": the gradient is not finite%s%s%s; the parameters are as "
                    "before this step",
                    step + 1, *param ? " (first in '" : "", param, *param ? "')" : "");
}

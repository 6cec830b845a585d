/* reported_sums.c - the sums that a step on several devices reports to the host: of shards, halves
 * of hashes, votes; and hashes of own blocks, where workers have parts. */
#include "exec/device/comm/reported_sums.h"

#include <string.h>

#include "base/dtype.h"
#include "exec/worker/worker.h"

/* Sums, hashes of the step before in halves, votes. */
size_t tti_device_n_shared_sums(const tti_setup *setup) {
    return (size_t)(setup->desc.n_shards * TTI_SUMS + 3 * setup->n_ranks);
}

int tti_device_n_reported(const tti_setup *setup) {
    return (int)tti_device_n_shared_sums(setup) + (tti_exec_has_parts(setup) ? setup->n_ranks : 0);
}

uint64_t tti_device_reported_hash(const tti_setup *setup, const double *reported) {
    uint64_t hash = 0;
    for (int r = 0; r < setup->n_ranks; r++)
        hash += tti_f64_to_bits(reported[(int)tti_device_n_shared_sums(setup) + r]);
    return hash;
}

/* If no other worker has these parameters: compares their hash before this update with that after
 * the last one. */
static tutti_status compare_own(const tti_exec *x, const double *reported, uint64_t step) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_arrays *arrays = tti_arrays_of(x);
    const double *halves = reported + setup->desc.n_shards * TTI_SUMS;
    for (int r = 0; tti_tally_of(x)->has_hash && r < setup->n_ranks; r++) {
        uint64_t hash = (uint64_t)halves[2 * r] << 32 | (uint64_t)halves[2 * r + 1];
        if (hash == arrays->sharded->all_hashes[r]) continue;
        return tti_fail(TUTTI_E_MISMATCH,
                        "step %llu: the parameters of rank %d changed in memory after the update",
                        (unsigned long long)step, r);
    }
    const double *own = reported + tti_device_n_shared_sums(setup);
    for (int r = 0; r < setup->n_ranks; r++)
        arrays->sharded->all_hashes[r] = tti_f64_to_bits(own[r]);
    return TUTTI_OK;
}

tutti_status tti_device_store_reported(tti_exec *x, const double *reported, uint64_t step) {
    tti_tally *tally = tti_tally_of(x);
    const double *votes = reported + tally->n_sums - 1;
    memcpy(tally->sums, reported, (tally->n_sums - 1) * sizeof *reported);
    tally->sums[tally->n_sums - 1] = 0;
    for (int rank = 0; rank < tti_setup_of(x)->n_ranks; rank++)
        tally->sums[tally->n_sums - 1] += votes[rank];
    if (tti_exec_has_sharded_params(tti_arrays_of(x))) return compare_own(x, reported, step);
    return tti_exec_compare_hashes(x, step);
}

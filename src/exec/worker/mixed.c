/* mixed.c - checks that workers with plans for different backends can train together.
 *
 * Their common actions follow from their plans (which ranges are summed, which values are joined,
 * which blocks are updated), so these are compared first. */
#include "exec/worker/mixed.h"

#include "exec/worker/worker.h"

/* Parts of state or of a model, and sums along the tree, are divided otherwise on devices. */
static tutti_status check_desc(const tti_exec_desc *desc) {
    bool whole = !desc->mesh && desc->zero == 0 && !desc->server && !desc->shared_params;
    bool joins = desc->fast && !desc->local && desc->compression == TTI_COMPRESS_NONE;
    if (whole && joins && (!desc->backend->device || desc->offload)) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "exec: workers on devices and on the host add whole gradients in every step, "
                    "in fast mode, and the host makes the update");
}

/* Buckets between devices are as long as a table of this machine says, which may have been measured
 * again while workers began. */
static bool compares(const tti_setup *setup) {
    bool by_table = setup->desc.backend->device && !setup->desc.mesh && setup->n_ranks > 1;
    return setup->desc.mixed || by_table;
}

tutti_status tti_mixed_check(const tti_setup *setup) {
    int64_t all[TTI_MAX_RANKS];
    if (!compares(setup)) return TUTTI_OK;
    int64_t mine = (int64_t)tti_plan_digest(setup->desc.plan);
    if (setup->desc.mixed) TTI_TRY(check_desc(&setup->desc));
    TTI_TRY(tutti_comm_all_gather(setup->desc.comm, &mine, all, 1, TUTTI_I64));
    for (int r = 1; r < setup->n_ranks; r++)
        if (all[r] != all[0])
            return tti_fail(TUTTI_E_MISMATCH,
                            "exec: rank %d has another plan than rank 0: parameters lie in other "
                            "places, or other values are joined inside a step; %s",
                            r,
                            setup->desc.mixed ? "give parallel.devices=cpu, or GPUs alone"
                                              : "start the run again");
    return TUTTI_OK;
}

/* callbacks.c - implements callbacks.h. */
#include "train/loop/callbacks.h"

#include <math.h>

#include "base/error.h"

tutti_status tti_callbacks_check(const tutti_train_desc *train, bool is_async) {
    if (!is_async || !(train->on_step || train->on_epoch)) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "train: asynchronous workers end no step together, so on_step and on_epoch "
                    "cannot be called; give parallel.staleness=0");
}

tutti_status tti_callbacks_consult(const tti_phases *phases, tutti_train_fn fn,
                                   const tutti_train_progress *progress, tutti_train_control *out) {
    const tti_worker_loop_desc *desc = phases->desc;
    *out = (tutti_train_control){0};
    if (!fn) return TUTTI_OK;
    if (desc->rank == 0) fn(desc->train->user, progress, out);
    double asked[4] = {out->stop, out->save, out->set_lr, out->lr};
    tutti_status st = TUTTI_OK;
    tti_phases_wait_for_peers(phases, "call back");
    if (desc->comm && tutti_comm_n_ranks(desc->comm) > 1)
        st = tutti_comm_broadcast(desc->comm, asked, 4, TUTTI_F64, 0);
    tti_phases_wait_for_peers(phases, NULL);
    TTI_TRY(st);
    *out = (tutti_train_control){
        .stop = asked[0] != 0, .save = asked[1] != 0, .set_lr = asked[2] != 0, .lr = asked[3]};
    if (out->set_lr && !(out->lr >= 0 && isfinite(out->lr)))
        return tti_fail(TUTTI_E_INVALID, "train: a callback set lr to %g; it must be 0 or more",
                        out->lr);
    return TUTTI_OK;
}

/* callbacks.c - runs callbacks on rank 0 and distributes their requests with one all-reduce. */
#include "train/loop/callbacks.h"

#include "base/error.h"
#include "train/job/lr_schedule.h"

bool tti_callbacks_follow_steps(const tutti_train_desc *train) {
    return train->on_step || train->on_epoch;
}

tutti_status tti_callbacks_check(const tutti_train_desc *train, bool is_async) {
    if (!is_async || !(tti_callbacks_follow_steps(train) || train->on_request)) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_UNSUPPORTED,
        "train: asynchronous workers do not end a step together, so on_step, on_epoch and "
        "on_request cannot be called; give parallel.staleness=0");
}

bool tti_callbacks_requested(const tutti_train_desc *train) {
    return train->on_request && train->request && __atomic_load_n(train->request, __ATOMIC_ACQUIRE);
}

/* Sums the requests over all workers.  Only rank 0 has requests of callbacks, but each worker may
 * want to stop. */
tutti_status tti_callbacks_consult(const tti_phases *phases, tutti_train_fn fn,
                                   const tutti_train_progress *progress, bool *stops,
                                   tutti_train_control *out) {
    const tti_worker_loop_desc *desc = phases->desc;
    *out = (tutti_train_control){0};
    if (!fn) return TUTTI_OK;
    if (desc->rank == 0) fn(desc->train->user, progress, out);
    double asked[] = {out->stop, out->save, out->set_lr, out->set_lr ? out->lr : 0, *stops};
    tutti_status st = TUTTI_OK;
    tti_phases_wait_for_peers(phases, "call back");
    if (desc->comm && tutti_comm_n_ranks(desc->comm) > 1)
        st = tutti_comm_all_reduce(desc->comm, asked, asked, TTI_COUNT(asked), TUTTI_F64, TUTTI_SUM,
                                   TUTTI_ALG_AUTO);
    TTI_TRY(tti_phases_end_wait(phases, st));
    *stops = asked[4] != 0;
    *out = (tutti_train_control){
        .stop = asked[0] != 0, .save = asked[1] != 0, .set_lr = asked[2] != 0, .lr = asked[3]};
    if (out->set_lr && !tti_lr_is_valid(out->lr))
        return tti_fail(TUTTI_E_INVALID, "train: a callback set lr to %g; it must be 0 .. %d",
                        out->lr, TTI_MOST_LR);
    return TUTTI_OK;
}

/* corruption.h - finds silent data corruption: every parallel.verify_every steps, one worker
 * computes a shard of another worker again, before the update, and all layers are compared bit by
 * bit.
 *
 * If they differ, all workers compute the shard once more and vote on the first layer that differs.
 * The worker whose value has no majority is faulty. */
#ifndef TTI_TRAIN_CORRUPTION_H
#define TTI_TRAIN_CORRUPTION_H

#include "train/loop/phases.h"

typedef struct tti_verify {
    tti_phases *phases; /* borrowed, like exec and order */
    tti_exec *exec;
    const tti_loader_desc *order; /* order of the training batches */
    tutti_status begun;           /* status of tti_verify_begin */
} tti_verify;

/* Initializes *verify.  TUTTI_E_UNSUPPORTED: the job sets parallel.verify_every, but this worker
 * cannot verify shards. */
TUTTI_NODISCARD tutti_status tti_verify_init(tti_verify *verify, tti_phases *phases, tti_exec *exec,
                                             const tti_loader_desc *order);

/* True if the step that begins after n_steps steps is verified. */
bool tti_verify_is_due(const tti_job_config *c, int64_t n_steps);

/* Run tti_exec_begin and tti_exec_end of a step that is verified.  TUTTI_E_MISMATCH: a worker is
 * faulty, or two workers differ and there is no majority; the message names rank and layer.  With
 * parallel.on_corruption=exclude the faulty worker ends, and the others get TUTTI_E_PEER.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_verify_begin(tti_verify *verify, const tti_step_desc *desc,
                                              tti_step_result *result);
TUTTI_NODISCARD tutti_status tti_verify_end(const tti_verify *verify, double lr,
                                            tti_step_result *result);

/* Steps between checks of the parameters in memory, which find faults after the update. */
enum { TTI_REREAD_EVERY = 100 };

/* Compares the parameters in memory with the hash of the last step, if a check is due after n_steps
 * steps.  TUTTI_E_MISMATCH: they differ. */
TUTTI_NODISCARD tutti_status tti_verify_reread(const tti_verify *verify, int64_t n_steps,
                                               const tti_step_result *last);

#endif /* TTI_TRAIN_CORRUPTION_H */

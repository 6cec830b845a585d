/* corruption.h - finds silent data corruption: every parallel.verify_every steps, one worker
 * computes a shard of another worker again, before the update, and all layers are compared bit by
 * bit.
 *
 * If they differ, all workers compute the shard once more and vote about the first layer that
 * differs: the worker that is outvoted has computed wrongly. */
#ifndef TTI_TRAIN_CORRUPTION_H
#define TTI_TRAIN_CORRUPTION_H

#include "train/loop/phases.h"

typedef struct tti_verify {
    tti_phases *phases; /* borrowed, as the two below */
    tti_exec *exec;
    const tti_loader_desc *order; /* of the training batches */
    tutti_status begun;           /* of the first part of the step */
} tti_verify;

/* TUTTI_E_UNSUPPORTED: the job asks for it, and this worker cannot. */
TUTTI_NODISCARD tutti_status tti_verify_init(tti_verify *verify, tti_phases *phases, tti_exec *exec,
                                             const tti_loader_desc *order);

/* Whether the step that begins after so many steps is verified. */
bool tti_verify_is_due(const tti_job_config *c, int64_t n_steps);

/* tti_exec_begin and tti_exec_end of a step that is verified.  TUTTI_E_MISMATCH: a worker has
 * computed wrongly, or it is not known which one; the message names rank and layer.  With
 * parallel.on_corruption=exclude that worker ends, and the others get TUTTI_E_PEER.  Collective. */
TUTTI_NODISCARD tutti_status tti_verify_begin(tti_verify *verify, const tti_step_desc *desc,
                                              tti_step_result *result);
TUTTI_NODISCARD tutti_status tti_verify_end(const tti_verify *verify, double lr,
                                            tti_step_result *result);

/* A memory fault after the update would be unnoticed until the value is used, so parameters are
 * hashed again from time to time. */
enum { TTI_REREAD_EVERY = 100 };

/* Compares the parameters in memory with the hash of the last step, if n_steps say so. */
TUTTI_NODISCARD tutti_status tti_verify_reread(const tti_verify *verify, int64_t n_steps,
                                               const tti_step_result *last);

#endif /* TTI_TRAIN_CORRUPTION_H */

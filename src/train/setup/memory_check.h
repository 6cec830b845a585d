/* memory_check.h - checks whether a run fits into memory before it allocates any. */
#ifndef TTI_TRAIN_MEMORY_CHECK_H
#define TTI_TRAIN_MEMORY_CHECK_H

#include "base/memory_room.h"
#include "train/setup/blueprint.h"

/* TUTTI_E_NOMEM, with the need, the available memory and what to change, if the workers of this
 * machine do not fit into room. rank: the worker that this process is, -1: all are in it; n_local:
 * workers of this machine, which need the same amount each.  For workers on devices their host
 * memory is counted: batches, messages between stages, and state that parallel.offload keeps there.
 *
 * Scratch memory of kernels is counted if the rest comes near the limit: the kernels are prepared
 * to learn it.  The sum is an estimate, and a run that passes may still fail.  Not counted:
 * allocations of libraries, decoders of images and the data set itself, which is already loaded. */
TUTTI_NODISCARD tutti_status tti_memory_check(const tti_blueprint *b, int rank, int n_local,
                                              const tti_memory_room *room);

#endif /* TTI_TRAIN_MEMORY_CHECK_H */

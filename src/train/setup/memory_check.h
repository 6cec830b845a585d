/* memory_check.h - checks that a run fits into memory before it allocates any. */
#ifndef TTI_TRAIN_MEMORY_CHECK_H
#define TTI_TRAIN_MEMORY_CHECK_H

#include "base/memory_room.h"
#include "train/setup/blueprint.h"

/* Returns TUTTI_E_NOMEM, with the needed and the available memory and advice, if the workers of
 * this machine do not fit into room. rank: the worker that this process runs, -1: it runs all
 * workers. n_local: number of workers of this machine, which all need the same amount.  For workers
 * on devices only host memory is counted: batches, messages between stages, and state that
 * parallel.offload keeps there.
 *
 * Scratch memory of kernels is counted only if the rest comes near the limit, because the kernels
 * must be prepared to determine it.  The sum is an estimate, and a run that passes may still fail.
 * Not counted: allocations of libraries, decoders of images and the data set itself, which is
 * already loaded. */
TUTTI_NODISCARD tutti_status tti_memory_check(const tti_blueprint *b, int rank, int n_local,
                                              const tti_memory_room *room);

#endif /* TTI_TRAIN_MEMORY_CHECK_H */

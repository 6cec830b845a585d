/* memory_check.h - whether a run fits into memory, asked before it takes any. */
#ifndef TTI_TRAIN_MEMORY_CHECK_H
#define TTI_TRAIN_MEMORY_CHECK_H

#include "base/memory_room.h"
#include "train/blueprint.h"

/* TUTTI_E_NOMEM, with what is needed, what there is and what to change, if the workers of this
 * machine do not fit into room.  rank: the worker that this process is, -1: all are in it; n_local:
 * workers of this machine, which take as much each.  Only the memory that a worker's plan names is
 * counted: a run that passes may still fail. */
TUTTI_NODISCARD tutti_status tti_memory_check(const tti_blueprint *b, int rank, int n_local,
                                              const tti_memory_room *room);

#endif /* TTI_TRAIN_MEMORY_CHECK_H */

/* memory.h - counts the buffers of a worker without creating it. */
#ifndef TTI_EXEC_MEMORY_H
#define TTI_EXEC_MEMORY_H

#include "exec/exec.h"
#include "exec/program/exec_program.h"

/* The largest number of micro-batch groups of a worker of this pipeline stage; if each worker has
 * its own number, that of a worker with n_local shards. */
tutti_status tti_planned_micro_groups(const tti_exec_desc *desc, int n_local, int n_ranks, int *n);

/* Plans the additions of rank's gradients.  On success fini frees it. */
tutti_status tti_planned_accumulation(const tti_exec_desc *desc, int rank, int n_ranks,
                                      tti_accumulation *acc);

#endif /* TTI_EXEC_MEMORY_H */

/* memory.h - counts the buffers of a worker before it is created. */
#ifndef TTI_EXEC_MEMORY_H
#define TTI_EXEC_MEMORY_H

#include "exec/exec.h"
#include "exec/program/exec_program.h"

/* Micro-batch groups of the worker of a pipeline stage that has most; if each has its own, of one
 * with n_local shards. */
tutti_status tti_planned_micro_groups(const tti_exec_desc *desc, int n_local, int n_ranks, int *n);

/* Which gradients of rank are added to which.  On success fini frees it. */
tutti_status tti_planned_accumulation(const tti_exec_desc *desc, int rank, int n_ranks,
                                      tti_accumulation *acc);

#endif /* TTI_EXEC_MEMORY_H */

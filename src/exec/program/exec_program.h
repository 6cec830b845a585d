/* exec_program.h - programs bound to kernels, and lists of instructions.  Other folders include
 * only this header.  Nothing here depends on ranks. */
#ifndef TTI_EXEC_EXEC_PROGRAM_H
#define TTI_EXEC_EXEC_PROGRAM_H

#include "exec/program/accumulate.h"
#include "exec/program/bucket_memory.h"
#include "exec/program/collective.h"
#include "exec/program/compute_threads.h"
#include "exec/program/instance.h"
#include "exec/program/join.h"
#include "exec/program/pipe_schedule.h"
#include "exec/program/step_program.h"
#include "exec/program/timeline.h"

#endif /* TTI_EXEC_EXEC_PROGRAM_H */

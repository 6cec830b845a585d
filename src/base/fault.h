/* fault.h - points where a test build can be made to fail, die, stop or wait.
 *
 *     if (TTI_FAULT("file.write")) return false;             errno is set
 *     if (TTI_FAULT_AT("allreduce.enter", rank, step)) ...
 *
 * Driven by the environment variable TUTTI_FAULT, a list joined by ';' of
 *
 *     POINT:ACTION[=VALUE][@CONDITION[,CONDITION...]]
 *
 *   POINT      the name at the place, or * for every place
 *   ACTION     kill (SIGKILL), vanish (SIGKILL, while a child keeps the descriptors open), stop
 *              (SIGSTOP), delay_ms=N (sleeps), spin_ms=N (computes), lock_ms=N (waits for a lock
 *              that another holds), advance_ms=N (the process's clock jumps), pass_ms=N (sleeps for
 *              a 15th of N, while the process's clock advances by N in small steps), or
 *              fail[=ERRNO]: the place behaves as if the call had failed with EIO (default),
 *              ENOSPC, EDQUOT, EACCES, EMFILE, EROFS, ENOMEM
 *   CONDITION  N: only the Nth time, from 1;  N+: from the Nth time on;  rank=R;  step=S (times are
 *              counted among those where rank and step match)
 *
 * for example "ckpt.rename:kill@3;allreduce.enter:stop@rank=1,step=10".  Without TUTTI_FAULTS=1 the
 * macros are the constant false: no code, and the variable is not read.  The tests of the tree link
 * objects with the points; the library and the program have them with cmake -DTUTTI_FAULTS=ON.
 *
 * Threads: points may be passed by any thread; tti_fault_set only while no other thread runs. */
#ifndef TTI_BASE_FAULT_H
#define TTI_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

#ifndef TUTTI_FAULTS
#define TUTTI_FAULTS 0
#endif

#if TUTTI_FAULTS

#define TTI_FAULT(point) tti_fault_hit((point), -1, -1)
#define TTI_FAULT_AT(point, rank, step) tti_fault_hit((point), (rank), (step))

/* True: the caller must fail, errno is set.  The first call reads TUTTI_FAULT; one that cannot be
 * understood ends the process, because a test that injects nothing would pass. */
bool tti_fault_hit(const char *point, int rank, int64_t step);

/* Replaces the faults of the environment, and restarts the counters; NULL or "": no faults. */
tutti_status tti_fault_set(const char *faults);

/* How many times something was injected since then: 0 ends a sweep over "*:fail@1", "@2", ... */
int64_t tti_fault_n_fired(void);

#else

#define TTI_FAULT(point) (false)
#define TTI_FAULT_AT(point, rank, step) ((void)(rank), (void)(step), false)

#endif

#endif /* TTI_BASE_FAULT_H */

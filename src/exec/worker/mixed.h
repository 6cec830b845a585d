/* mixed.h - workers on devices and on the host in one run (tti_exec_desc.mixed).
 *
 * Each has a plan of its own for its backend.  Gradients are summed by the collectives of the host,
 * bucket by bucket: workers on devices bring theirs there (device_by_host.h).  The update is that
 * of the host on all of them (offload.h), from the same sums, so parameters stay the same bits. */
#ifndef TTI_EXEC_MIXED_H
#define TTI_EXEC_MIXED_H

#include "exec/exec.h"

/* Of a worker with desc.mixed: that it may be one.  Of these, and of whole models on devices, that
 * the plans of all have the same layout and join the same values.  TUTTI_E_MISMATCH, on all ranks:
 * they do not.  Collective. */
tutti_status tti_mixed_check(tti_exec *x);

#endif /* TTI_EXEC_MIXED_H */

/* mixed.h - workers on devices and on the host in one run (tti_exec_desc.mixed).
 *
 * Each has its own plan for its backend.  The collectives of the host reduce gradients, bucket by
 * bucket: workers on devices copy theirs there (device_host_staged.h).  All of them update on the
 * host (offload.h), from the same sums, so parameters have the same bits. */
#ifndef TTI_EXEC_MIXED_H
#define TTI_EXEC_MIXED_H

#include "exec/worker/desc.h"

/* Checks that a worker with desc.mixed is possible.  Compares for these, and for undivided models
 * on devices, that the plans of all have the same layout and join the same values.
 * TUTTI_E_MISMATCH, on all ranks: they do not.  Collective. */
tutti_status tti_mixed_check(const tti_setup *setup);

#endif /* TTI_EXEC_MIXED_H */

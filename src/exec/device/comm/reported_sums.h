/* reported_sums.h - the sums that a step on several devices reports to the host. */
#ifndef TTI_EXEC_REPORTED_SUMS_H
#define TTI_EXEC_REPORTED_SUMS_H

#include "exec/worker/desc.h"

/* Number of sums of shards, halves of hashes and votes; and including the hashes of own blocks. */
size_t tti_device_n_shared_sums(const tti_setup *setup);
int tti_device_n_reported(const tti_setup *setup);

/* Copies the results to the worker's sums; hashes are those of the previous step.  TUTTI_E_MISMATCH
 * names the worker whose parameters differ. */
tutti_status tti_device_store_reported(tti_exec *x, const double *reported, uint64_t step);

/* Returns the sum of the hashes of all workers' own blocks. */
uint64_t tti_device_reported_hash(const tti_setup *setup, const double *reported);

#endif /* TTI_EXEC_REPORTED_SUMS_H */

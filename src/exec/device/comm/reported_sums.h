/* reported_sums.h - the sums that a step of several devices tells. */
#ifndef TTI_EXEC_REPORTED_SUMS_H
#define TTI_EXEC_REPORTED_SUMS_H

#include "exec/worker/desc.h"

/* How many: sums of shards, halves of hashes and votes; and with the hashes of own blocks. */
size_t tti_device_n_shared_sums(const tti_setup *setup);
int tti_device_n_reported(const tti_setup *setup);

/* Takes the results into x->sums; hashes are those of the previous step.  TUTTI_E_MISMATCH names
 * the worker whose parameters differ. */
tutti_status tti_device_store_reported(tti_exec *x, const double *reported, uint64_t step);

/* What the hashes of own blocks come to. */
uint64_t tti_device_reported_hash(const tti_setup *setup, const double *reported);

#endif /* TTI_EXEC_REPORTED_SUMS_H */

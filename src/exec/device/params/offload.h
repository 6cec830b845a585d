/* offload.h - the optimizer state of a worker on a device is in the memory of its host, which makes
 * the update (ZeRO-Offload, Ren et al. 2021).
 *
 * Summed gradients are copied to the host bucket by bucket during the backward pass; the update is
 * that of a worker on CPUs (flat_update.c), with its bits; parameters are copied back bucket by
 * bucket while the next ones are updated.  The device has parameters, gradients and activations.
 *
 * A single worker with several buckets, whose optimizer needs nothing of all gradients together,
 * such as their norm for clipping, updates a bucket as soon as it has arrived, during the backward
 * pass, if its kind of device has update.is_overlapped: it "streams".  Its steps are not captured,
 * since a captured graph records no events for the host. */
#ifndef TTI_EXEC_OFFLOAD_H
#define TTI_EXEC_OFFLOAD_H

#include "exec/device/comm/device_comm.h"
#include "exec/worker/desc.h"

typedef struct tti_offload tti_offload;

/* Returns the description of the host executor that owns the parameters and state of x. */
tti_exec_desc tti_offload_desc(const tti_setup *setup);

/* x->device is open; host is that executor.  Collective.  On success *out is owned by the caller
 * and borrows both. */
tutti_status tti_offload_create(tti_exec *x, tti_exec *host, tti_offload **out);
/* Before the device is closed, at rest, and before host is destroyed; takes NULL. */
void tti_offload_destroy(tti_offload *offload);

/* That executor: params, states and averages are its own, at all times.
 * NULL: offload is NULL. */
tti_exec *tti_offload_host(const tti_offload *offload);

/* The device's report of a step: the hash of the parameters in report, the sums of the shards in
 * sums [n_sums]. */
typedef struct tti_offload_report {
    tti_step_report *report;
    const double *sums;
    int n_sums;
} tti_offload_report;

/* Memory for the summed gradients; host_staged has them already (NULL: devices add, or the worker
 * is alone).  Collective. */
tutti_status tti_offload_attach(tti_offload *offload, tti_device_host_staged *host_staged,
                                const tti_offload_report *report);

/* Whether buckets are updated as they come; NULL: no. */
bool tti_offload_streams(const tti_offload *offload);

/* A new step is launched: no bucket has been copied. */
void tti_offload_begin(tti_offload *offload);

/* After the launches so far the device has the sums of the first n_buckets buckets: copies those
 * that were not copied before, in the copy queue. */
tutti_status tti_offload_bring(tti_offload *offload, int n_buckets, tti_queue queue);

/* For a streaming worker, when a shard has reached a step of its program: whether to add the
 * shard's sums now, so that the host has all of them before the first bucket. (Joins inside a step
 * stop a shard half way, while the last one continues.) */
bool tti_offload_wants_sums(const tti_offload *offload, int step);

/* For a single worker, when its last shard has reached a step of its program: adds its shards, and
 * copies the completed buckets. */
tutti_status tti_offload_after(tti_offload *offload, int step);

/* For a streaming worker: updates the step in flight, bucket by bucket as they arrive, unless its
 * sums are not finite. tti_offload_update follows when the step is complete. */
tutti_status tti_offload_stream(tti_offload *offload, const tti_step_desc *desc);

/* When the last bucket of the step had come, by tti_now_ns. */
int64_t tti_offload_came_ns(const tti_offload *offload);

/* The update, once sums (in x->sums, and in result) and gradients are here; what computes next
 * waits for the parameters.  TUTTI_E_NUMERICS as tti_exec_step. */
tutti_status tti_offload_update(tti_offload *offload, const tti_step_desc *desc,
                                tti_step_result *result);

/* Parameters to the device as they are on the host; and averages, whole, into the buffer of the
 * summed gradients there, until the next step.  Both wait; the second one is collective. */
tutti_status tti_offload_put_params(tti_offload *offload);
tutti_status tti_offload_put_averages(tti_offload *offload);

#endif /* TTI_EXEC_OFFLOAD_H */

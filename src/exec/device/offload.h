/* offload.h - the optimizer's state of a worker on a device stays in the memory of its host, which
 * makes the update (ZeRO-Offload, Ren et al. 2021).
 *
 * Summed gradients come to the host bucket by bucket beside the backward pass; the update is the
 * one of a worker on CPUs (apply.c), with its bits; parameters go back bucket by bucket while it
 * goes on with the next ones.  The device has parameters, gradients and activations.
 *
 * A worker alone with several buckets, whose optimizer needs to know nothing of all gradients at
 * once, such as their norm to clip by, updates a bucket as soon as it has come, while the backward
 * pass goes on, where its kind of device has updates_beside: it "streams".  Its steps are not
 * recorded, since a recording marks nothing. */
#ifndef TTI_EXEC_OFFLOAD_H
#define TTI_EXEC_OFFLOAD_H

#include "exec/device/device_by_host.h"
#include "exec/exec.h"

typedef struct tti_offload tti_offload;

/* Parameters and state on the host, the first ones; x->device is open.  Collective.  On success
 * *out is owned by the caller and borrows x. */
tutti_status tti_offload_create(tti_exec *x, tti_offload **out);
/* Before the device is closed, at rest; takes NULL. */
void tti_offload_destroy(tti_offload *offload);

/* The executor on the host that has them: params, states and averages are its own, at all times.
 * NULL: offload is NULL. */
tti_exec *tti_offload_host(const tti_offload *offload);

/* Bytes of the host: parameters, state, averages and summed gradients. */
size_t tti_offload_bytes(const tti_offload *offload);

/* What the device has of a step: the report tells the hash of the parameters, sums [n_sums] what
 * the shards come to. */
typedef struct tti_offload_told {
    tti_step_report *report;
    const double *sums;
    int n_sums;
} tti_offload_told;

/* Memory for the summed gradients; by_host has them already (NULL: devices add, or the worker is
 * alone).  Collective. */
tutti_status tti_offload_attach(tti_offload *offload, tti_device_by_host *by_host,
                                const tti_offload_told *told);

/* Whether buckets are updated as they come; NULL: no. */
bool tti_offload_streams(const tti_offload *offload);

/* A new step is put into the queues: nothing has been brought. */
void tti_offload_begin(tti_offload *offload);

/* What is in the queue so far leaves the sums of the first n_buckets buckets on the device: those
 * that were not brought come behind it, in the copy queue. */
tutti_status tti_offload_bring(tti_offload *offload, int n_buckets, tti_queue queue);

/* Of a worker that streams, a shard of which has got a step of its program to do: the shard's sums
 * are to be put to the others now, for the host to see them all before the first bucket.  (Joins
 * inside a step stop a shard half way, while the last one goes on.) */
bool tti_offload_wants_sums(const tti_offload *offload, int step);

/* Of a worker alone, whose last shard has got a step of its program to do: adds its shards, and
 * brings what is complete then. */
tutti_status tti_offload_after(tti_offload *offload, int step);

/* Of a worker that streams: the update of the step at work, bucket by bucket as they come, unless
 * its sums are not finite.  tti_offload_update follows when the step is done. */
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

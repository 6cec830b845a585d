/* offload.h - the optimizer's state of a worker on a device stays in the memory of its host, which
 * makes the update (ZeRO-Offload, Ren et al. 2021).
 *
 * Summed gradients come to the host bucket by bucket beside the backward pass; the update is the
 * one of a worker on CPUs (apply.c), with its bits; parameters go back bucket by bucket while it
 * goes on with the next ones.  The device has parameters, gradients and activations. */
#ifndef TTI_EXEC_OFFLOAD_H
#define TTI_EXEC_OFFLOAD_H

#include "exec/device_by_host.h"
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

/* Memory for the summed gradients; by_host has them already (NULL: devices add, or the worker is
 * alone).  report: of the device, tells the hash of the parameters.  Collective. */
tutti_status tti_offload_attach(tti_offload *offload, tti_device_by_host *by_host,
                                tti_step_report *report);

/* A new step is put into the queues: nothing has been brought. */
void tti_offload_begin(tti_offload *offload);

/* What is in the queue so far leaves the sums of the first n_buckets buckets on the device: those
 * that were not brought come behind it, in the copy queue. */
tutti_status tti_offload_bring(tti_offload *offload, int n_buckets, tti_queue queue);

/* Of a worker alone, whose last shard has got a step of its program to do: adds its shards, and
 * brings what is complete then. */
tutti_status tti_offload_after(tti_offload *offload, int step);

/* The update, once sums (in x->sums, and in result) and gradients are here; what computes next
 * waits for the parameters.  TUTTI_E_NUMERICS as tti_exec_step. */
tutti_status tti_offload_update(tti_offload *offload, const tti_step_desc *desc,
                                tti_step_result *result);

/* Parameters to the device as they are on the host; and averages, whole, into the buffer of the
 * summed gradients there, until the next step.  Both wait; the second one is collective. */
tutti_status tti_offload_put_params(tti_offload *offload);
tutti_status tti_offload_put_averages(tti_offload *offload);

#endif /* TTI_EXEC_OFFLOAD_H */

/* device_by_host.h - what workers on devices add where the devices do not reach each other: by way
 * of the host's memory and communicator.  Right for any number of workers, and slow. */
#ifndef TTI_EXEC_DEVICE_BY_HOST_H
#define TTI_EXEC_DEVICE_BY_HOST_H

#include "exec/exec.h"

typedef struct tti_device_by_host tti_device_by_host;

/* Host copies of the pieces that peers read.  Collective.  On success *out is owned by the caller
 * and borrows x. */
tutti_status tti_device_by_host_create(tti_exec *x, tti_device_by_host **out);
void tti_device_by_host_destroy(tti_device_by_host *by_host); /* takes NULL */

/* Shards were dealt anew: memory for as many pieces as the worker with the most has. Collective. */
tutti_status tti_device_by_host_grow(tti_device_by_host *by_host);

/* Of a worker that has its part of the summed gradients alone: its last shard has got a step of its
 * program to do, and the gradients that it has completed come to the host. */
tutti_status tti_device_by_host_after(tti_device_by_host *by_host, int step);

/* The summed gradients, into tti_exec_grads, or the own ones into x->lean->own_grads; of parameters
 * that several stages have, those of all of them.  Of a worker alone nothing is done. */
tutti_status tti_device_by_host_grads(tti_device_by_host *by_host);

/* When the device had computed the gradients of the newest step, and when the sums of all workers
 * were there; tti_now_ns, 0: there was none. */
int64_t tti_device_by_host_computed(const tti_device_by_host *by_host);
int64_t tti_device_by_host_summed(const tti_device_by_host *by_host);

/* Where they are on the host, [n_flat]: with desc.offload nowhere else. */
float *tti_device_by_host_sum(const tti_device_by_host *by_host);

/* Sums, hashes and votes of all workers; sums [V][TTI_SUMS] of the device get those of the shards.
 */
tutti_status tti_device_by_host_sums(tti_device_by_host *by_host, double *sums, bool vote);

/* Its two ends: x->sums become those of this worker's shards, the rest 0; and those of all shards
 * the device's. */
tutti_status tti_device_by_host_bring_sums(tti_device_by_host *by_host, const double *sums);
tutti_status tti_device_by_host_put_sums(tti_device_by_host *by_host, double *sums);

/* Values [V][n] of the device, of which this worker has those of its shards. */
tutti_status tti_device_by_host_parts(tti_device_by_host *by_host, float *parts, size_t n);

/* Where workers have parts of the state or of the model: n words of 32 bits that are doubles, one
 * or two for each block, 0 where they are another's, made whole; and the parameters of others. */
tutti_status tti_device_by_host_words(tti_device_by_host *by_host, void *words, size_t n);
tutti_status tti_device_by_host_gather(tti_device_by_host *by_host);

#endif /* TTI_EXEC_DEVICE_BY_HOST_H */

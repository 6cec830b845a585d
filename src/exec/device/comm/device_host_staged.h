/* device_host_staged.h - reductions between devices through host memory and the host's
 * communicator.  A fallback for devices that do not reach each other: works everywhere, slow. */
#ifndef TTI_EXEC_DEVICE_BY_HOST_H
#define TTI_EXEC_DEVICE_BY_HOST_H

#include "exec/worker/desc.h"

typedef struct tti_device_host_staged tti_device_host_staged;

/* Allocates host copies of the partial sums, which peers read. Collective. On success *out is owned
 * by the caller and borrows x. */
tutti_status tti_device_host_staged_create(tti_exec *x, tti_device_host_staged **out);
void tti_device_host_staged_destroy(tti_device_host_staged *host_staged); /* takes NULL */

/* Call after shards were redistributed: allocates as many partial sums as the worker with the most
 * needs. Collective. */
tutti_status tti_device_host_staged_grow(tti_device_host_staged *host_staged);

/* For a worker with sharded gradients: its last shard has reached a step of its program. Copies the
 * completed gradients to the host. */
tutti_status tti_device_host_staged_after(tti_device_host_staged *host_staged, int step);

/* Copies the summed gradients to tti_exec_grads, or this worker's partition to
 * x->sharded->own_grads. For parameters of several stages: the sum over all stages. Does nothing
 * for a single worker. */
tutti_status tti_device_host_staged_grads(tti_device_host_staged *host_staged);

/* Times (tti_now_ns) when the device had computed the gradients of the newest step, and when they
 * had been summed over all workers. 0: no such step. */
int64_t tti_device_host_staged_computed(const tti_device_host_staged *host_staged);
int64_t tti_device_host_staged_summed(const tti_device_host_staged *host_staged);

/* Their host memory, [n_flat]. With desc.offload it is the only copy. */
float *tti_device_host_staged_sum(const tti_device_host_staged *host_staged);

/* Reduces sums, hashes and votes over all workers. sums [V][tti_n_sums] on the device receives the
 * sums of the shards. */
tutti_status tti_device_host_staged_sums(tti_device_host_staged *host_staged, double *sums,
                                         bool vote);

/* The two halves of it: copies the sums of this worker's shards to x->sums and clears the rest;
 * copies the sums of all shards back to the device. */
tutti_status tti_device_host_staged_copy_sums(tti_device_host_staged *host_staged,
                                              const double *sums);
tutti_status tti_device_host_staged_put_sums(tti_device_host_staged *host_staged, double *sums);

/* All-gathers values [V][n] of the device. This worker has those of its own shards. */
tutti_status tti_device_host_staged_joins(tti_device_host_staged *host_staged, float *parts,
                                          size_t n);

/* For workers with partitions of the state or parts of the model: completes n 32-bit words
 * (doubles, one or two per block, 0 for other workers' blocks), and fetches the parameters that
 * others updated. */
tutti_status tti_device_host_staged_words(tti_device_host_staged *host_staged, void *words,
                                          size_t n);
tutti_status tti_device_host_staged_gather(tti_device_host_staged *host_staged);

#endif /* TTI_EXEC_DEVICE_BY_HOST_H */

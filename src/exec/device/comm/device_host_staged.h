/* device_host_staged.h - reductions between devices through host memory and the host's
 * communicator.  A fallback for devices that do not reach each other: works everywhere, slow. */
#ifndef TTI_EXEC_DEVICE_BY_HOST_H
#define TTI_EXEC_DEVICE_BY_HOST_H

#include "exec/worker/desc.h"

typedef struct tti_device_host_staged tti_device_host_staged;

/* Allocates host copies of the partial sums that peers read.  Collective.  On success *out is owned
 * by the caller and borrows x. */
tutti_status tti_device_host_staged_create(tti_exec *x, tti_device_host_staged **out);
void tti_device_host_staged_destroy(tti_device_host_staged *host_staged); /* takes NULL */

/* Shards were redistributed: memory for as many partial sums as the worker with the most has.
 * Collective. */
tutti_status tti_device_host_staged_grow(tti_device_host_staged *host_staged);

/* For a worker with a shard of the summed gradients: its last shard has reached a step of its
 * program, and the completed gradients are copied to the host. */
tutti_status tti_device_host_staged_after(tti_device_host_staged *host_staged, int step);

/* Copies the summed gradients to tti_exec_grads, or the own ones to x->sharded->own_grads; for
 * parameters of several stages, the sum over all of them.  Nothing to do for a single worker. */
tutti_status tti_device_host_staged_grads(tti_device_host_staged *host_staged);

/* When the device had computed the gradients of the newest step, and when the sums of all workers
 * were there; tti_now_ns, 0: there was none. */
int64_t tti_device_host_staged_computed(const tti_device_host_staged *host_staged);
int64_t tti_device_host_staged_summed(const tti_device_host_staged *host_staged);

/* Their host memory, [n_flat]: the only copy with desc.offload. */
float *tti_device_host_staged_sum(const tti_device_host_staged *host_staged);

/* Sums, hashes and votes of all workers; sums [V][tti_n_sums] of the device receive those of the
 * shards. */
tutti_status tti_device_host_staged_sums(tti_device_host_staged *host_staged, double *sums,
                                         bool vote);

/* The two halves: x->sums become those of this worker's shards, the rest 0; and the device receives
 * those of all shards. */
tutti_status tti_device_host_staged_copy_sums(tti_device_host_staged *host_staged,
                                              const double *sums);
tutti_status tti_device_host_staged_put_sums(tti_device_host_staged *host_staged, double *sums);

/* Values [V][n] of the device, of which this worker has those of its shards. */
tutti_status tti_device_host_staged_joins(tti_device_host_staged *host_staged, float *parts,
                                          size_t n);

/* If workers have partitions of the state or parts of the model: completes n 32-bit words, which
 * are doubles, one or two for each block, 0 for other workers' blocks; and fetches the parameters
 * of others. */
tutti_status tti_device_host_staged_words(tti_device_host_staged *host_staged, void *words,
                                          size_t n);
tutti_status tti_device_host_staged_gather(tti_device_host_staged *host_staged);

#endif /* TTI_EXEC_DEVICE_BY_HOST_H */

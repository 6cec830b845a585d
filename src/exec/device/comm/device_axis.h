/* device_axis.h - connects devices along an axis of the mesh, adds the sums that a step reports,
 * and reduces over tensor shards and stages. */
#ifndef TTI_EXEC_DEVICE_AXIS_H
#define TTI_EXEC_DEVICE_AXIS_H

#include "backend/backend.h"
#include "comm/sum_order.h"
#include "exec/device/comm/device_p2p.h"
#include "exec/worker/desc.h"

/* Number of shared sums: sums of shards, halves of hashes, votes. The second function also counts
 * the hashes of own blocks. */
size_t tti_device_n_shared_sums(const tti_setup *setup);
int tti_device_n_reported(const tti_setup *setup);

/* Copies the results to the worker's sums; hashes are those of the previous step.  TUTTI_E_MISMATCH
 * names the worker whose parameters differ. */
tutti_status tti_device_store_reported(tti_exec *x, const double *reported, uint64_t step);

/* Returns the sum of the hashes of all workers' own blocks. */
uint64_t tti_device_reported_hash(const tti_setup *setup, const double *reported);

/* ---- connections of the devices along one axis of the mesh ---- */

/* True if the host compresses gradients or averages parameters. Devices then add nothing. */
bool tti_device_ends_on_host(const tti_setup *setup);
/* True in that case, and if workers of a divided model join values inside a step or shard
 * gradients. Equal on all workers. */
bool tti_device_host_staged_alone(const tti_setup *setup);

/* Returns the status of a wait for peers. After a timeout the message also names the worker that
 * blocks it, if it is known. */
tutti_status tti_device_late(const tti_setup *setup, tutti_status st);

/* Whether every worker of the job has its own device: two kernels that wait for peers must not
 * block each other on one.  Collective over mesh->world. */
tutti_status tti_device_have_own(const tti_setup *setup, bool *own);

/* Time in ms that pending device work may still take after a worker is lost (tti_device_peers); 0:
 * the backend's default. */
int tti_device_grace_ms(const tti_setup *setup);

/* One axis of the mesh, whose devices must reach each other. The group of devices borrows it. */
typedef struct tti_device_line {
    tti_exec *x;
    tutti_comm *comm; /* the workers of this line */
    int turn, n_lines;
    const char *others; /* how messages name the workers of other lines */
} tti_device_line;

/* Connects the devices through peer memory, one line after the other.  wanted has this worker's
 * memory; the line provides the rest.  TUTTI_E_UNSUPPORTED: some line failed; *group may exist
 * nevertheless, and the caller disconnects it.  Collective over mesh->world. */
tutti_status tti_device_connect_line(tti_device_line *line, const tti_device_peers *wanted,
                                     void **group);

/* *yes becomes the logical and of *yes over all workers. */
tutti_status tti_device_agree(const tti_setup *setup, bool *yes);

/* Converts the order of a sum for devices: terms [order->n_terms]. */
void tti_device_terms(const tti_sum_order *order, tti_device_term *terms);

/* ---- reductions over tensor shards and stages ----
 *
 * Adds sums of shards, votes, and squares of parameters and gradients, in the same order as
 * divided.h does on the host. */

typedef struct tti_device_axis tti_device_axis;

/* For workers whose devices communicate directly: tensor shards through x->tp, stages through p2p
 * (NULL: no stages). *out is owned by the caller, also after a failure, and borrows both. */
tutti_status tti_device_axis_create(tti_exec *x, tti_device_p2p *p2p, tti_device_axis **out);
void tti_device_axis_destroy(tti_device_axis *axis); /* takes NULL */

/* Sums of shards and votes of tti_device_reduce_finish, over all workers of the model. The sums of
 * shards are those of tensor rank 0 on the last stage. */
tutti_status tti_device_axis_sums(tti_device_axis *axis, double *sums);

/* Completes squares by block, one or two doubles each, as 2 * n words of 32 bits
 * (tti_divided_partials). */
tutti_status tti_device_axis_partials(tti_device_axis *axis, void *words, size_t n_words);

/* A barrier of all workers of the job, once their devices are idle. */
tutti_status tti_device_axis_sync_and_barrier(tti_device_axis *axis);

/* Waits for an event, or for the failure of a worker. */
tutti_status tti_device_axis_await(tti_device_axis *axis, int event);

#endif /* TTI_EXEC_DEVICE_AXIS_H */

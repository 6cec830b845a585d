/* device_axis.h - reductions between the devices of a replica, other than values of the program,
 * over tensor shards and stages: sums of shards, votes, squares of parameters and gradients.  The
 * same as divided.h does on the host, in the same order. */
#ifndef TTI_EXEC_DEVICE_AXIS_H
#define TTI_EXEC_DEVICE_AXIS_H

#include "exec/device/comm/device_p2p.h"
#include "exec/worker/desc.h"

typedef struct tti_device_axis tti_device_axis;

/* For workers whose devices communicate directly: tensor shards through x->tp, stages through
 * p2p, NULL if there are none. *out is owned by the caller, and borrows both. */
tutti_status tti_device_axis_create(tti_exec *x, tti_device_p2p *p2p, tti_device_axis **out);
void tti_device_axis_destroy(tti_device_axis *axis); /* takes NULL */

/* Sums of shards and votes from tti_device_reduce_finish, of all workers of the model; those of
 * shards come from the first tensor shard of the last stage. */
tutti_status tti_device_axis_sums(tti_device_axis *axis, double *sums);

/* Squares by block, one or two doubles for each, as 2 * n words of 32 bits: tti_divided_partials.
 */
tutti_status tti_device_axis_partials(tti_device_axis *axis, void *words, size_t n_words);

/* A barrier of all workers of the job, after their devices are idle. */
tutti_status tti_device_axis_meet(tti_device_axis *axis);

/* Waits for an event, or for the failure of a worker. */
tutti_status tti_device_axis_await(tti_device_axis *axis, int event);

#endif /* TTI_EXEC_DEVICE_AXIS_H */

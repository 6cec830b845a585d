/* device_costs.h - communication between devices that overlaps with kernels: the time that a step
 * waits for it, and the time that the kernels lose to it. */
#ifndef TTI_PLANNER_DEVICE_COSTS_H
#define TTI_PLANNER_DEVICE_COSTS_H

#include "planner/calibrate.h"

/* Communication in a queue that runs concurrently with the kernels. */
typedef struct tti_overlap {
    double exposed_s; /* that kernels wait for it */
    double taken_s;   /* that they take longer, since it has a part of the device meanwhile */
} tti_overlap;

/* The tensor-parallel collectives of a shard between n tensor shards; second: seconds of the
 * kernels per unit of their cost.  The collectives run one after the other in their queue, and the
 * program waits where it reads their results.  Where the devices can (ops; NULL: they cannot), the
 * terms of a norm travel while the product before it runs, and its rows while the one after it
 * does.
 */
tutti_status tti_overlapped_collectives(const tti_calibration *c, const tti_device_ops *ops,
                                        const tti_program *program, int n, double second,
                                        tti_overlap *out);

/* Gradients of the last shard, which takes shard_s: the buckets of the plan, each sent as soon as
 * it is complete; sent bytes in all. */
tti_overlap tti_overlapped_sums(const tti_calibration *c, const tti_plan *plan, double shard_s,
                                double sent);

/* Parameters of others in n_calls, while kernels of compute_s run that wait for the first one. */
tti_overlap tti_overlapped_gathers(const tti_calibration *c, double n_calls, double sent,
                                   double compute_s);

/* Shards of n_own whose values, constants and scratch of kernels a device has at the same time. */
int tti_device_in_flight(const tti_plan *plan, int n_own);

/* Bytes of a worker on a device in addition to tti_exec_memory_plan: inputs of n_own shards,
 * constants and results of shards in flight, slots for messages between stages and for collectives;
 * and resident samples. */
double tti_device_extra_bytes(const tti_plan *plan, int n_own);
double tti_device_resident_bytes(const tti_blueprint *b);

#endif /* TTI_PLANNER_DEVICE_COSTS_H */

/* device_costs.h - communication between devices that overlaps with kernels: how long a step waits
 * for it, and how much it slows down the kernels. All times are in seconds. */
#ifndef TTI_PLANNER_DEVICE_COSTS_H
#define TTI_PLANNER_DEVICE_COSTS_H

#include "planner/calibrate.h"

/* Communication in a queue that runs concurrently with the kernels. */
typedef struct tti_overlap {
    double exposed_s;  /* time that kernels wait for the communication */
    double slowdown_s; /* additional time of kernels, because the communication occupies a part of
                       the device */
} tti_overlap;

/* The tensor-parallel collectives of a shard between n tensor shards. s_per_cost: measured kernel
 * seconds per estimated second. Collectives run in order in their queue; the program waits before
 * it reads a result. If ops (NULL: unsupported) has the fusions, the terms of a norm are sent while
 * the preceding product runs, and its rows while the following product runs. TUTTI_E_NOMEM. */
tutti_status tti_overlapped_collectives(const tti_calibration *c, const tti_device_ops *ops,
                                        const tti_program *program, int n, double s_per_cost,
                                        tti_overlap *out);

/* The reduction of gradients during the last shard, which takes shard_s. Each bucket of the plan is
 * sent when it is complete; sent: bytes of all buckets. */
tti_overlap tti_overlapped_sums(const tti_calibration *c, const tti_plan *plan, double shard_s,
                                double sent);

/* Gathering parameters in n_calls calls with `sent` bytes in total, while kernels of compute_s run.
 * The kernels wait for the first call. */
tti_overlap tti_overlapped_gathers(const tti_calibration *c, double n_calls, double sent,
                                   double compute_s);

/* The number of a worker's n_own shards that a device has in flight: their activations, constants
 * and scratch exist at the same time. */
int tti_device_in_flight(const tti_plan *plan, int n_own);

/* Bytes of a worker on a device in addition to tti_exec_memory_plan. Extra: inputs of n_own shards,
 * constants and results of shards in flight, slots for stage messages and collectives. Resident:
 * samples that stay on the device. */
double tti_device_extra_bytes(const tti_plan *plan, int n_own);
double tti_device_resident_bytes(const tti_blueprint *b);

#endif /* TTI_PLANNER_DEVICE_COSTS_H */

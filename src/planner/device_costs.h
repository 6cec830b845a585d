/* device_costs.h - what moves between devices beside their kernels: what of it a step waits for,
 * and what the kernels lose by the rest. */
#ifndef TTI_PLANNER_DEVICE_COSTS_H
#define TTI_PLANNER_DEVICE_COSTS_H

#include "planner/calibrate.h"

/* Something that goes on in a queue beside the kernels. */
typedef struct tti_beside {
    double exposed_s; /* that kernels wait for it */
    double taken_s;   /* that they take longer, since it has a part of the device meanwhile */
} tti_beside;

/* The exchanges of a shard between n pieces of the same layers, second: of the kernels, for one of
 * their costs.  One after the other in their queue, waited for where the program reads them. */
tutti_status tti_beside_exchanges(const tti_calibration *c, const tti_program *program, int n,
                                  double second, tti_beside *out);

/* Gradients of the last shard, which takes shard_s: the buckets of plan, of which sent bytes go out
 * together, as soon as they are complete. */
tti_beside tti_beside_sums(const tti_calibration *c, const tti_plan *plan, double shard_s,
                           double sent);

/* Parameters of others in n_calls, while kernels of compute_s run that wait for the first one. */
tti_beside tti_beside_fetches(const tti_calibration *c, double n_calls, double sent,
                              double compute_s);

/* Shards of n_own whose values, constants and scratch of kernels a device has at the same time. */
int tti_device_in_flight(const tti_plan *plan, int n_own);

/* Bytes of a worker on a device beside what tti_exec_memory_plan counts: inputs of n_own shards,
 * constants and results of those under way, places of messages between stages and of exchanges;
 * and samples that stay there. */
double tti_device_beside_bytes(const tti_plan *plan, int n_own);
double tti_device_kept_bytes(const tti_blueprint *b);

#endif /* TTI_PLANNER_DEVICE_COSTS_H */

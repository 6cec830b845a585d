/* scratch.h - scratch memory of kernels, as the kernels report it or estimated from the nearest
 * micro-batch group. All sizes are in bytes. */
#ifndef TTI_PLANNER_SCRATCH_H
#define TTI_PLANNER_SCRATCH_H

#include "planner/calibrate.h"

/* Sets *bytes to the scratch memory that the kernels of plan need for one shard. If b computes on a
 * device, the calling thread must have it open. On a host *bytes includes the constants and results
 * of a shard. */
tutti_status tti_scratch_query(const tti_blueprint *b, const tti_plan *plan, double *bytes);

/* Queries the kernels of all parts of a divided model and, on devices, those of an undivided model
 * that was not measured. Opens the device for this and closes it. Does nothing if left_s <= 0. Sets
 * *spent_s to the seconds spent. */
tutti_status tti_scratch_query_all(const tti_blueprint *b, tti_calibration *c, double left_s,
                                   double *spent_s);

/* Bytes that a shard of plan needs on a device beyond its planned arrays: what its kernels reported
 * plus the other hidden bytes of micro_group; else those of micro_group, scaled by cost_s. 0 on a
 * host. */
double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan,
                         const tti_group_cost *micro_group, double cost_s);

/* For a stage of a divided model on a host: the scratch bytes of its n_in_flight shards minus those
 * of the whole model on n_compute_threads threads, which are included in the hidden bytes of a
 * micro-batch group. May be negative; 0: unknown. */
double tti_scratch_difference(const tti_calibration *c, const tti_blueprint *b, int stage,
                              int n_in_flight, int n_compute_threads);

#endif /* TTI_PLANNER_SCRATCH_H */

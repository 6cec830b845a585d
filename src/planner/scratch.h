/* scratch.h - scratch memory of kernels: as they report it, or estimated from the nearest
 * micro-batch group. */
#ifndef TTI_PLANNER_SCRATCH_H
#define TTI_PLANNER_SCRATCH_H

#include "planner/calibrate.h"

/* Bytes of scratch that the kernels of plan need for a shard, on the device that the thread has
 * open if b computes on one; otherwise including what a shard keeps besides its activations. */
tutti_status tti_scratch_want(const tti_blueprint *b, const tti_plan *plan, double *bytes);

/* Asks for the parts of a divided model and, on devices, for an undivided one that did not run;
 * opens a device.  Does nothing if left_s is over. *spent_s: the time it took. */
tutti_status tti_scratch_ask(const tti_blueprint *b, tti_calibration *c, double left_s,
                             double *spent_s);

/* Bytes of a shard of plan, whose program costs cost_s: as its kernels say, with what else a
 * micro-batch group was seen to take; else as much of the micro-batch group as its costs are. */
double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan,
                         const tti_group_cost *micro_group, double cost_s);

/* For a worker of a stage of a divided model on a host, with this many shards in flight: the
 * scratch of its kernels minus that of the whole model, which the hidden bytes of a micro-batch
 * group include. Below 0 if they need less; 0: unknown. */
double tti_scratch_beyond(const tti_calibration *c, const tti_blueprint *b, int stage,
                          int n_in_flight, int n_compute_threads);

#endif /* TTI_PLANNER_SCRATCH_H */

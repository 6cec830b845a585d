/* scratch.h - what kernels take beside the arrays: as they say, or by the nearest wave. */
#ifndef TTI_PLANNER_SCRATCH_H
#define TTI_PLANNER_SCRATCH_H

#include "planner/calibrate.h"

/* Bytes that the kernels of plan want for a shard, on the device that the thread has open, if b
 * computes on one; else with what a shard keeps beside its activations. */
tutti_status tti_scratch_want(const tti_blueprint *b, const tti_plan *plan, double *bytes);

/* Asks for the parts of a divided model, and on devices, of which it opens one, for a whole one
 * that did not run.  Nothing happens where left_s is over.  *spent_s: what it took. */
tutti_status tti_scratch_ask(const tti_blueprint *b, tti_calibration *c, double left_s,
                             double *spent_s);

/* Bytes of a shard of plan, whose program costs cost_s: as its kernels say, with what else a wave
 * was seen to take; else as much of the wave as its costs are. */
double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan, const tti_wave *wave,
                         double cost_s);

/* On a host: of a worker of a stage of a divided model with so many shards in flight on its lanes,
 * what its kernels want beyond those of the whole model, of which the hidden bytes of a wave are;
 * below 0 where they want less; 0: nobody was asked. */
double tti_scratch_beyond(const tti_calibration *c, const tti_blueprint *b, int stage,
                          int n_in_flight, int n_lanes);

#endif /* TTI_PLANNER_SCRATCH_H */

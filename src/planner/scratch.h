/* scratch.h - what kernels of a device take beside the arrays: as they say, or by the nearest wave.
 */
#ifndef TTI_PLANNER_SCRATCH_H
#define TTI_PLANNER_SCRATCH_H

#include "planner/calibrate.h"

/* Bytes that the kernels of plan want for a shard, on the device that the thread has open. */
tutti_status tti_scratch_want(const tti_blueprint *b, const tti_plan *plan, double *bytes);

/* Asks for the parts of a divided model, and for a whole one that did not run; opens a device for
 * it.  Nothing happens on a host, or where left_s is over.  *spent_s: what it took. */
tutti_status tti_scratch_ask(const tti_blueprint *b, tti_calibration *c, double left_s,
                             double *spent_s);

/* Bytes of a shard of plan, whose program costs cost_s: as its kernels say, with what else a wave
 * was seen to take; else as much of the wave as its costs are. */
double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan, const tti_wave *wave,
                         double cost_s);

#endif /* TTI_PLANNER_SCRATCH_H */

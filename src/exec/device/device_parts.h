/* device_parts.h - parameters that other workers on devices update: they come to this one while the
 * next step computes.
 *
 * The step begins by fetching bucket after bucket in a queue of its own, in the order in which the
 * shard program reads them, and a step of the program waits for those that it reads.  When all are
 * there, the hash of the step before is completed, so a copy that went wrong is found with the next
 * step, as ever.  Whoever looks at parameters between steps settles them first. */
#ifndef TTI_EXEC_DEVICE_PARTS_H
#define TTI_EXEC_DEVICE_PARTS_H

#include "exec/device/device_update.h"

typedef struct tti_device_parts tti_device_parts;

/* On success *out is owned by the caller and borrows the rest; update may be made later. */
tutti_status tti_device_parts_create(tti_exec *x, tti_device_reduce *reduce,
                                     tti_device_update *const *update, tti_device_parts **out);
void tti_device_parts_destroy(tti_device_parts *parts); /* takes NULL */

/* A step of the worker, put into queues.  beside: recorded; else all come now, with all workers
 * waiting for them. */
tutti_status tti_device_parts_begin(tti_device_parts *parts, bool beside);

/* True while the first shard must tell of its steps. */
bool tti_device_parts_are_due(const tti_device_parts *parts);

/* It comes to a step of the shard program.  A failure comes out of finish. */
void tti_device_parts_before(tti_device_parts *parts, int step);

/* All that no step of the program has asked for.  Before the sums of the step are told. */
tutti_status tti_device_parts_finish(tti_device_parts *parts);

/* Parameters are whole after it; all workers do it, with all steps done.  Waits. */
tutti_status tti_device_parts_settle(tti_device_parts *parts);

/* Parameters are written: whole, the same by all workers, or by a step, recorded or not. */
void tti_device_parts_written(tti_device_parts *parts, bool whole);

#endif /* TTI_EXEC_DEVICE_PARTS_H */

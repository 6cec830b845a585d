/* device_parts.h - parameters that other workers on devices update: fetched during the next step.
 *
 * The step begins by fetching bucket after bucket in a separate queue, in the order in which the
 * shard program reads them, and a step of the program waits for those that it reads.  When all have
 * arrived, the hash of the previous step is completed, so a wrong copy is detected one step later,
 * as usual.  Code that reads parameters between steps must settle them first. */
#ifndef TTI_EXEC_DEVICE_PARTS_H
#define TTI_EXEC_DEVICE_PARTS_H

#include "exec/device/params/device_update.h"

typedef struct tti_device_parts tti_device_parts;

/* On success *out is owned by the caller and borrows the rest; update may be made later. */
tutti_status tti_device_parts_create(tti_exec *x, tti_device_reduce *reduce,
                                     tti_device_update *const *update, tti_device_parts **out);
void tti_device_parts_destroy(tti_device_parts *parts); /* takes NULL */

/* A step of the worker, launched in queues. overlapped: captured; else all are fetched now, and all
 * workers wait for them. */
tutti_status tti_device_parts_begin(tti_device_parts *parts, bool overlapped);

/* True while the first shard must report its steps. */
bool tti_device_parts_are_due(const tti_device_parts *parts);

/* The first shard reaches a step of the shard program.  A failure is returned by finish. */
void tti_device_parts_before(tti_device_parts *parts, int step);

/* Fetches everything that no step of the program has needed.  Call before the sums of the step are
 * reported. */
tutti_status tti_device_parts_finish(tti_device_parts *parts);

/* Parameters are whole after it; all workers do it, with all steps done.  Waits. */
tutti_status tti_device_parts_settle(tti_device_parts *parts);

/* Parameters are written: whole, the same by all workers, or by a step, recorded or not. */
void tti_device_parts_written(tti_device_parts *parts, bool whole);

#endif /* TTI_EXEC_DEVICE_PARTS_H */

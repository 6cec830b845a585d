/* device_axis.h - what a step of workers with parts of the model adds between their devices besides
 * values of the program, over pieces of layers and over stages: sums of shards, votes, squares of
 * parameters and gradients.  As divided.h does it on the host, and in the same order. */
#ifndef TTI_EXEC_DEVICE_AXIS_H
#define TTI_EXEC_DEVICE_AXIS_H

#include "exec/device/device_mail.h"
#include "exec/exec.h"

typedef struct tti_device_axis tti_device_axis;

/* Of workers whose devices exchange by themselves: those of pieces as x->exchange says, those of
 * stages through mail, NULL where there are none.  *out is owned by the caller, and borrows both.
 */
tutti_status tti_device_axis_create(tti_exec *x, tti_device_mail *mail, tti_device_axis **out);
void tti_device_axis_destroy(tti_device_axis *axis); /* takes NULL */

/* Sums of shards and votes as tti_device_reduce_finish leaves them, of all workers of the model;
 * those of shards come from the first piece of the last stage. */
tutti_status tti_device_axis_sums(tti_device_axis *axis, double *sums);

/* Squares by block, one or two doubles for each, as 2 * n words of 32 bits: tti_divided_partials.
 */
tutti_status tti_device_axis_partials(tti_device_axis *axis, void *words, size_t n_words);

/* Returns when all workers of the job are here, and their devices at rest. */
tutti_status tti_device_axis_meet(tti_device_axis *axis);

/* Waits for a mark, or for the failure of a worker. */
tutti_status tti_device_axis_await(tti_device_axis *axis, int mark);

#endif /* TTI_EXEC_DEVICE_AXIS_H */

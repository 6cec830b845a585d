/* device_axis.h - what a recorded step of workers with pieces of layers adds over the tensor axis
 * besides values of the program: sums of shards, votes, squares of parameters and gradients.  As
 * divided.h does it on the host, and in the same order. */
#ifndef TTI_EXEC_DEVICE_AXIS_H
#define TTI_EXEC_DEVICE_AXIS_H

#include "exec/exec.h"

typedef struct tti_device_axis tti_device_axis;

/* *out NULL: the devices of the axis do not exchange by themselves.  Else it is owned by the
 * caller, and borrows x. */
tutti_status tti_device_axis_create(tti_exec *x, tti_device_axis **out);
void tti_device_axis_destroy(tti_device_axis *axis); /* takes NULL */

/* Sums of shards and votes as tti_device_reduce_finish leaves them, of all workers of the model;
 * those of shards come from the first of the axis. */
tutti_status tti_device_axis_sums(tti_device_axis *axis, double *sums);

/* Squares by block, one or two doubles for each, as 2 * n words of 32 bits: tti_divided_partials.
 */
tutti_status tti_device_axis_partials(tti_device_axis *axis, void *words, size_t n_words);

#endif /* TTI_EXEC_DEVICE_AXIS_H */

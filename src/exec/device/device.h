/* device.h - a worker whose plan runs on a device with its own memory.
 *
 * The step is the same as on the host (exec.c), but it never waits for the host: values that change
 * from step to step are copied in with the batch, numbers of the step are computed on the device,
 * and its report is copied out at the end.  From the second step on it is a captured graph, one for
 * each of two input sets, so that a batch can be copied in while the previous one is computed. */
#ifndef TTI_EXEC_DEVICE_H
#define TTI_EXEC_DEVICE_H

#include "exec/device/comm/device_comm.h"
#include "exec/device/memory/device_memory.h"
#include "exec/device/params/device_params.h"
#include "exec/worker/desc.h"

/* Opens the device for this thread, before any memory of the worker is allocated. */
tutti_status tti_exec_device_open(const tti_setup *setup, tti_exec_device **out);
/* Memory and tables of the step; the compute threads exist. */
tutti_status tti_exec_device_prepare(tti_exec *x);
void tti_exec_device_close(tti_exec_device *device); /* after everything else of x is released */
void tti_exec_device_release(tti_exec *x);

/* For an idle worker: frees what depends on its shards before they are redistributed, and makes it
 * again when compute threads and buffers exist.  With desc.mixed that is memory; else it is also
 * the connection to other devices, captured graphs and samples that were kept.  Collective. */
tutti_status tti_exec_device_release_idle(tti_exec *x);
tutti_status tti_exec_device_regain(tti_exec *x);
/* Whether this device can do so. */
bool tti_exec_device_can_rebalance(const tti_exec *x);

/* tti_exec_keep, tti_exec_depth, tti_exec_begin, _end and tti_exec_eval of a worker on a device. */
tutti_status tti_exec_device_keep(tti_exec *x, const tti_resident_samples *samples, int ahead,
                                  bool *resident);
int tti_exec_device_depth(const tti_exec *x);

/* As tti_exec_wait_for_copies. */
tutti_status tti_exec_device_wait_for_copies(tti_exec *x);
/* The part of its memory for gradients that are compressed or rounded. */
size_t tti_exec_device_sent_bytes(const tti_exec_device *device);
int tti_exec_device_steps_per_launch(const tti_exec_device *device);
const char *tti_exec_device_way(const tti_exec_device *device);
tutti_status tti_exec_device_begin(tti_exec *x, const tti_step_desc *desc);
tutti_status tti_exec_device_end(tti_exec *x, tti_step_result *result);
tutti_status tti_exec_device_salvage(tti_exec *x, tti_step_result *result, bool *ended);
tutti_status tti_exec_device_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

/* tti_exec_compute_gradients and tti_exec_apply_gradients (device_step.c), which wait for the
 * device; and in between: the summed gradients to host memory, whole, [n_flat], or those of the own
 * blocks with tti_sharded_of(x).  pull is collective and copies once for each gradient. */
tutti_status tti_exec_device_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                               tti_step_result *result);
tutti_status tti_exec_device_apply_gradients(tti_exec *x, double lr, bool keeps_params,
                                             tti_step_result *result);
tutti_status tti_exec_device_pull_gradients(tti_exec *x);
float *tti_exec_device_gradients(const tti_exec_device *device);

/* For a worker with desc.server (device_host_steps.c): tti_exec_gradient; the partial sums of its
 * gradient, and the host memory [n_flat] for the server's parameters; and the copy of its contents
 * to an array of the device (waits). */
tutti_status tti_exec_device_gradient(tti_exec *x, const tti_step_desc *desc,
                                      tti_step_result *result);
float *tti_exec_device_pulled(const tti_exec_device *device);
tutti_status tti_exec_device_put(tti_exec *x, float *array, const float *from);

/* tti_exec_profile_begin: captures the graphs of the next n_steps steps with timestamps. */
tutti_status tti_exec_device_profile_begin(tti_exec *x, int n_steps);
void tti_exec_device_profile_end(tti_exec_device *device);

/* The waits of the device, for tti_exec_get_spent, if it measures them. */
tutti_status tti_exec_device_get_waits(tti_exec *x, tti_exec_spent *spent);

/* Copies of parameters and states on the host, made on first use: device.c. */
tutti_status tti_exec_device_pull(tti_exec *x);
tutti_status tti_exec_device_pull_params(tti_exec *x);                /* alone */
tutti_status tti_exec_device_pull_ema(tti_exec *x);                   /* and them */
tutti_status tti_exec_device_pull_averages(tti_exec *x, float **ema); /* alone; NULL: none */
tutti_status tti_exec_device_push(tti_exec *x);
tutti_status tti_exec_device_push_params(tti_exec *x); /* and averages, where they were pulled */
/* The same for elements of one array, by its number, of a device that has all of it; put
 * copies data to the device. */
tutti_status tti_exec_device_pull_range(tti_exec *x, int64_t k, tti_range range);
tutti_status tti_exec_device_put_range(tti_exec *x, int64_t k, tti_range range, const float *data);
tutti_status tti_exec_device_copy_range(tti_exec *x, int64_t k, tti_range range, void *to);
/* Host memory for whole state, [n_flat], allocated on first use; and the copy of its contents to
 * the buffer of the summed gradients. */
tutti_status tti_exec_device_staging(tti_exec *x, float **staging);
tutti_status tti_exec_device_put_staging(tti_exec *x);
/* Flat array k, whole, to or from other memory of the device; waits. */
tutti_status tti_exec_device_copy_flat(tti_exec *x, int64_t k, void *other, bool out);
/* tti_exec_broadcast_array of a device that has the whole array. */
tutti_status tti_exec_device_broadcast(tti_exec *x, int64_t k, int source, bool *done);
/* The copy on the host of flat array k (timeline.h). */
float *tti_exec_device_mirror(tti_exec_device *device, int64_t k);

/* The hash of the parameters on the device; and of the own blocks. */
tutti_status tti_exec_device_hash(tti_exec *x, uint64_t *hash);
tutti_status tti_exec_device_own_hash(tti_exec *x, uint64_t *hash);

/* Averages of all parameters on the device, where others have parts of them. */
tutti_status tti_exec_device_averages(tti_exec *x);

#endif /* TTI_EXEC_DEVICE_H */

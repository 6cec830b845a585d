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
/* call after all other memory of x is released */
tutti_status tti_exec_device_prepare(tti_exec *x);
void tti_exec_device_close(tti_exec_device *device); /* after everything else of x is released */
void tti_exec_device_release(tti_exec *x);

/* For an idle worker: release frees everything that depends on its shards before they are
 * redistributed; regain allocates it again when compute threads and buffers exist.  With desc.mixed
 * that is memory; otherwise also connections to other devices, captured graphs and resident
 * samples.  Collective. */
tutti_status tti_exec_device_release_idle(tti_exec *x);
tutti_status tti_exec_device_regain(tti_exec *x);
/* True if this device supports rebalancing. */
bool tti_exec_device_can_rebalance(const tti_exec *x);

/* tti_exec_keep, tti_exec_depth, tti_exec_begin, _end and tti_exec_eval for a worker on a
 * device. */
tutti_status tti_exec_device_keep(tti_exec *x, const tti_resident_samples *samples,
                                  tti_lasting_samples *lasting, int ahead, bool *resident);
int tti_exec_device_depth(const tti_exec *x);

/* See tti_exec_wait_for_copies. */
tutti_status tti_exec_device_wait_for_copies(tti_exec *x);
/* Bytes of its memory for gradients that are compressed or rounded. */
size_t tti_exec_device_sent_bytes(const tti_exec_device *device);
int tti_exec_device_steps_per_launch(const tti_exec_device *device);
const char *tti_exec_device_transport(const tti_exec_device *device);
tutti_status tti_exec_device_begin(tti_exec *x, const tti_step_desc *desc);
tutti_status tti_exec_device_end(tti_exec *x, tti_step_result *result);
tutti_status tti_exec_device_salvage(tti_exec *x, tti_step_result *result, bool *ended);
tutti_status tti_exec_device_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

/* tti_exec_compute_gradients and tti_exec_apply_gradients (device_halves.c), which wait for the
 * device.  Between the two, pull copies the summed gradients to host memory: whole [n_flat], or
 * only those of this worker's blocks with tti_sharded_of(x).  It is collective and copies once per
 * gradient. */
tutti_status tti_exec_device_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                               tti_step_result *result);
tutti_status tti_exec_device_apply_gradients(tti_exec *x, double lr, bool keeps_params,
                                             tti_step_result *result);
tutti_status tti_exec_device_pull_gradients(tti_exec *x);
float *tti_exec_device_gradients(const tti_exec_device *device);

/* For a worker with desc.server (device_host_steps.c): tti_exec_gradient; its partial sums; the
 * host memory [n_flat] for the server's parameters; a copy of that memory to an array of the device
 * (waits). */
tutti_status tti_exec_device_gradient(tti_exec *x, const tti_step_desc *desc,
                                      tti_step_result *result);
float *tti_exec_device_pulled(const tti_exec_device *device);
tutti_status tti_exec_device_put(tti_exec *x, float *array, const float *from);

/* tti_exec_profile_begin: captures the graphs of the next n_steps steps with timestamps. */
tutti_status tti_exec_device_profile_begin(tti_exec *x, int n_steps);
void tti_exec_device_profile_end(tti_exec_device *device);

/* Adds the waits of the device to tti_exec_get_spent, if the device measures them. */
tutti_status tti_exec_device_get_waits(tti_exec *x, tti_exec_spent *spent);

/* Mirrors: copies of parameters and states on the host, allocated on first use. */
tutti_status tti_exec_device_pull(tti_exec *x);
tutti_status tti_exec_device_pull_params(tti_exec *x); /* only the parameters */
tutti_status tti_exec_device_pull_ema(tti_exec *x);    /* and the averages */
tutti_status tti_exec_device_pull_averages(tti_exec *x,
                                           float **ema); /* only the averages; *ema NULL: none */
tutti_status tti_exec_device_push(tti_exec *x);
tutti_status tti_exec_device_push_params(tti_exec *x); /* and averages that were pulled */
/* The same for a range of array k, if the device has all of it. put copies data to the device. */
tutti_status tti_exec_device_pull_range(tti_exec *x, int64_t k, tti_range range);
tutti_status tti_exec_device_put_range(tti_exec *x, int64_t k, tti_range range, const float *data);
tutti_status tti_exec_device_copy_range(tti_exec *x, int64_t k, tti_range range, void *to);
/* Host memory for whole state, [n_flat], allocated on first use; copies it to the buffer of the
 * summed gradients. */
tutti_status tti_exec_device_staging(tti_exec *x, float **staging);
tutti_status tti_exec_device_put_staging(tti_exec *x);
/* Copies flat array k to (out) or from other device memory; waits. */
tutti_status tti_exec_device_copy_flat(tti_exec *x, int64_t k, void *other, bool out);
/* tti_exec_broadcast_array for a device that has the whole array. */
tutti_status tti_exec_device_broadcast(tti_exec *x, int64_t k, int source, bool *done);
/* The mirror of flat array k (timeline.h). */
float *tti_exec_device_mirror(tti_exec_device *device, int64_t k);

/* The hash of the parameters on the device; the hash of this worker's blocks. */
tutti_status tti_exec_device_hash(tti_exec *x, uint64_t *hash);
tutti_status tti_exec_device_own_hash(tti_exec *x, uint64_t *hash);

/* Gathers the averages of all parameters on the device, if workers have partitions of them. */
tutti_status tti_exec_device_averages(tti_exec *x);

#endif /* TTI_EXEC_DEVICE_H */

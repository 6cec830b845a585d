/* device_step.h - the parts of a step on a device. */
#ifndef TTI_EXEC_DEVICE_STEP_H
#define TTI_EXEC_DEVICE_STEP_H

#include "exec/device/device.h"
#include "exec/device/device_local.h"
#include "exec/device/device_pipe.h"
#include "exec/device/device_server.h"
#include "exec/device/state/device_state.h"

void tti_device_mirrors_fini(tti_exec_device *device);

/* device_meet.c: how the workers' devices add, as far as they reach each other. */
tutti_status tti_device_meet(tti_exec *x);

/* Batch and numbers of a step into a set; what computes next waits for them. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc);
/* The numbers of the step, to where programs read them. */
tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set);

/* Launches a step; overlapped: other devices are read while shards compute. */
tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool overlapped);

/* The end of a step whose gradients are there: the update, and the report to the host. */
tutti_status tti_device_update_and_report(tti_exec *x, const tti_device_set *set);

/* Ends capturing; st is the status of the captured launches. */
tutti_status tti_device_end_capture(tti_exec_device *device, tutti_status st,
                                    void **captured_graph);

/* device_graphs.c: a captured graph of a step with these inputs, nothing runs; and the set's own
 * one into the queue, made if it is not there. */
tutti_status tti_device_record(tti_exec *x, const tti_device_set *set, void **captured_graph);
tutti_status tti_device_play(tti_exec *x, tti_device_set *set);

/* device_graphs.c: later steps differ from the captured ones, which are all complete on return.
 * Collective. */
tutti_status tti_device_release_graphs(tti_exec *x);

/* device_graphs.c: how many steps over kept samples the device is best given at once; whether
 * the step of this set is one of those; and such a step, marked as every step is, which waits until
 * the others of its launch have been begun. */
int tti_device_n_chained(const tti_exec *x);
bool tti_device_is_chained(const tti_exec *x, const tti_device_set *set);
tutti_status tti_device_chain_step(tti_exec *x, int which);

/* device_graphs.c: before the oldest step at work is awaited.  Steps that wait for others go to
 * the device one by one if it is among them, or if no others come. */
tutti_status tti_device_chain_before_end(tti_exec *x);

/* device_shard_groups.c: runs the shards of this worker with their inputs; also the overlapped sums
 * with other workers.  And those of an evaluation. */
tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set);
tutti_status tti_device_eval_shards(tti_exec *x, const tti_device_set *set);

/* device_join.c: a step of the shard program is in the queue, for a profile. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard);

/* device_join.c: the values of sync number i of all shards become one. */
tutti_status tti_device_join_shards(tti_exec *x, int i);
tutti_status tti_device_copy_outputs(tti_exec *x, const tti_step_desc *desc,
                                     const tti_instance *instance, int index);

/* device_launch.c: tti_exec_device_eval. */
tutti_status tti_device_eval_batch(tti_exec *x, const tti_step_desc *desc, tti_step_result *result);

/* device_report.c: tti_exec_device_end, of a worker whose device makes the update. */
tutti_status tti_device_end_step(tti_exec *x, tti_step_result *result);

/* The oldest step at work is done: its set, until the next step begins. */
tutti_status tti_device_await(tti_exec *x, const tti_device_set **out);
/* Takes its sums into x->sums, and its times into result. */
tutti_status tti_device_take_sums(tti_exec *x, const tti_device_set *set);
void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_STEP_H */

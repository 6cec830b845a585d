/* feeding.h - converts the batches of a loader to the executor's input. */
#ifndef TTI_TRAIN_FEEDING_H
#define TTI_TRAIN_FEEDING_H

#include "data/loader/loader.h"
#include "data/loader/resident.h"
#include "exec/exec.h"

/* Returns shard i of a batch whose first shard is number first_shard of the global batch.  Its
 * pointers are NULL if the batch has no memory, because a device keeps the samples. */
tti_shard_data tti_shard_of(const tti_batch *batch, int i, int first_shard);

/* Creates a loader from a copy of desc with its field `bytes` set as exec needs it: images are
 * bytes if a device converts them to floats.  The loader's threads use all cores of the worker.  On
 * success *loader is owned by the caller. */
tutti_status tti_feeding_open(const tti_loader_desc *desc, const tti_exec *exec,
                              tti_loader **loader);

/* Calls tti_resident_load with threads that may use all cores of the worker. */
tutti_status tti_feeding_load(const tutti_dataset *ds, int n_threads, const tti_exec *exec,
                              tti_resident *out);

/* Marks in step if x of the loader's batches is bytes or floats. */
void tti_feeding_describe(const tti_loader *loader, tti_step_desc *step);

/* Pins the loader's memory while it feeds exec (tti_exec_pin); unpin it before the loader is
 * destroyed. */
void tti_feeding_pin(const tti_loader *loader, tti_exec *exec);
void tti_feeding_unpin(const tti_loader *loader, tti_exec *exec);

#endif /* TTI_TRAIN_FEEDING_H */

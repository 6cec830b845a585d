/* feeding.h - from the batches of a loader to what an executor is given. */
#ifndef TTI_TRAIN_FEEDING_H
#define TTI_TRAIN_FEEDING_H

#include "data/loader/loader.h"
#include "data/loader/resident.h"
#include "exec/exec.h"

/* Shard i of a batch whose shards begin with number first_shard of the global batch.  Without
 * memory where the batch has none: samples that a device keeps. */
tti_shard_data tti_shard_of(const tti_batch *batch, int i, int first_shard);

/* A loader like desc (whose field bytes is this function's), as exec takes it: images as bytes
 * where floats are made on a device.  Its threads have all cores of the worker.  Owned by the
 * caller. */
tutti_status tti_feeding_open(const tti_loader_desc *desc, const tti_exec *exec,
                              tti_loader **loader);

/* tti_resident_load by threads that have all cores of the worker. */
tutti_status tti_feeding_load(const tutti_dataset *ds, int n_threads, const tti_exec *exec,
                              tti_resident *out);

/* What x of the loader's batches stand for, into a step. */
void tti_feeding_tell(const tti_loader *loader, tti_step_desc *step);

/* The loader's memory for as long as it feeds exec (tti_exec_pin), and before it is destroyed. */
void tti_feeding_pin(const tti_loader *loader, tti_exec *exec);
void tti_feeding_unpin(const tti_loader *loader, tti_exec *exec);

#endif /* TTI_TRAIN_FEEDING_H */

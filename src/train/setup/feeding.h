/* feeding.h - converts the batches of a loader to the executor's input. */
#ifndef TTI_TRAIN_FEEDING_H
#define TTI_TRAIN_FEEDING_H

#include "data/loader/loader.h"
#include "data/loader/resident.h"
#include "exec/exec.h"

/* Shard i of a batch whose shards begin with number first_shard of the global batch.  Without
 * memory if the batch has none, because a device keeps the samples. */
tti_shard_data tti_shard_of(const tti_batch *batch, int i, int first_shard);

/* A loader like desc (whose field bytes this function sets) in the form that exec needs: images as
 * bytes if a device converts them to floats.  Its threads use all cores of the worker.  Owned by
 * the caller. */
tutti_status tti_feeding_open(const tti_loader_desc *desc, const tti_exec *exec,
                              tti_loader **loader);

/* tti_resident_load by threads that have all cores of the worker. */
tutti_status tti_feeding_load(const tutti_dataset *ds, int n_threads, const tti_exec *exec,
                              tti_resident *out);

/* Sets in a step the meaning of x in the loader's batches. */
void tti_feeding_tell(const tti_loader *loader, tti_step_desc *step);

/* The loader's memory for as long as it feeds exec (tti_exec_pin), and before it is destroyed. */
void tti_feeding_pin(const tti_loader *loader, tti_exec *exec);
void tti_feeding_unpin(const tti_loader *loader, tti_exec *exec);

#endif /* TTI_TRAIN_FEEDING_H */

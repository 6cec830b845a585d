/* snapshot.h - between a worker's flat arrays and a checkpoint's named tensors. */
#ifndef TTI_TRAIN_SNAPSHOT_H
#define TTI_TRAIN_SNAPSHOT_H

#include "exec/exec.h"
#include "train/blueprint.h"
#include "train/reporter.h"

/* Saves parameters and optimizer state after step updates.  Called by one rank. */
tutti_status tti_snapshot_save(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                               const char *job_yaml, int64_t step);

/* Loads the newest valid checkpoint of run_dir, on every rank; *step is where it stands.  A job
 * that would continue it with other shards, batch, seed or optimizer is refused. */
tutti_status tti_snapshot_load(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                               tti_reporter *reporter, int64_t *step);

#endif /* TTI_TRAIN_SNAPSHOT_H */

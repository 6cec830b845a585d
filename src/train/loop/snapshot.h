/* snapshot.h - converts between a worker's flat arrays and a checkpoint's named tensors. */
#ifndef TTI_TRAIN_SNAPSHOT_H
#define TTI_TRAIN_SNAPSHOT_H

#include "exec/exec.h"
#include "train/job/loss_scale.h"
#include "train/job/plateau.h"
#include "train/report/reporter.h"
#include "train/setup/blueprint.h"

/* The state of a run, besides its tensors. */
typedef struct tti_run_state {
    int64_t step; /* number of updates done */
    tti_plateau plateau;
    tti_loss_scale loss_scale;
    const tti_shard_map
        *shard_map; /* borrowed: written to the manifest for information only; NULL: equal runs */
} tti_run_state;

/* Saves parameters, optimizer state and the state of the run.  Called by rank 0 while the other
 * ranks are in tti_exec_serve, which the caller ends.  TUTTI_E_NUMERICS: a parameter is not finite,
 * and nothing was saved. */
tutti_status tti_snapshot_save(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                               const char *job_yaml, const tti_run_state *state);

/* Loads the newest valid checkpoint of run_dir, on every rank, and sets *state.  Refuses a job that
 * would continue it with other shards, batch, seed or optimizer. */
tutti_status tti_snapshot_load(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                               tti_reporter *reporter, tti_run_state *state);

/* Computes the hash of the whole model, which is the same for any layout of workers.  Called by
 * rank 0, after tti_exec_pull, while the other ranks are in tti_exec_serve. */
tutti_status tti_snapshot_hash(const tti_blueprint *b, tti_exec *exec, uint64_t *hash);

/* The same without a reporter, for a training loop of the caller: data, batch, shards and seed may
 * differ; parameters and optimizer must be the same.  Warnings are dropped. */
tutti_status tti_snapshot_restore(const tti_blueprint *b, tti_exec *exec, const char *run_dir,
                                  tti_run_state *state);

#endif /* TTI_TRAIN_SNAPSHOT_H */

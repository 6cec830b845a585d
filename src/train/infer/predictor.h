/* predictor.h - opens a trained run for inference: computes logits of shards.
 *
 * Inference uses one process, whose compute threads run shards in parallel.  A shard has as many
 * rows as in training, and there are no sums over shards, so the results do not depend on the
 * number of threads. */
#ifndef TTI_TRAIN_PREDICTOR_H
#define TTI_TRAIN_PREDICTOR_H

#include "data/loader/loader.h"
#include "exec/exec.h"
#include "exec/program/exec_program.h"
#include "train/setup/blueprint.h"
#include "tutti/eval.h"

typedef struct tti_predictor tti_predictor;

/* Opens the newest valid checkpoint of run_dir with the model of job, which is resolved here; with
 * train.ema the averaged parameters.  The run folder has the data specification (data/data_spec.h),
 * so no data is opened, and both splits have 0 samples.  TUTTI_E_CONFIG: there is no run, or the
 * job cannot build its model.  TUTTI_E_CHECKPOINT: there is no valid checkpoint, or it has another
 * model.  Messages include the place in the job.  Calls warn, unless NULL, for each checkpoint that
 * was skipped.  On success *out is owned by the caller. */
tutti_status tti_predictor_open(tutti_job *job, const char *run_dir, tutti_warn_fn warn, void *user,
                                tti_predictor **out);

/* Opens the run with the test split of the job's data. */
tutti_status tti_predictor_open_with_test(tutti_job *job, const char *run_dir, tutti_warn_fn warn,
                                          void *user, tti_predictor **out);

/* Opens the run without data, with shards of one row.  Kernels of larger shards may round a row
 * differently depending on its position, so only a row computed alone is independent of the other
 * samples of a call. */
tutti_status tti_predictor_open_one_row(tutti_job *job, const char *run_dir, tutti_warn_fn warn,
                                        void *user, tti_predictor **out);

/* Opens a run that has just ended: like is its blueprint and outlives the predictor.
 */
tutti_status tti_predictor_open_like(const tutti_job *job, const tti_blueprint *like,
                                     const char *run_dir, tti_predictor **out);
void tti_predictor_close(tti_predictor *p);

/* Borrowed until the predictor is closed. */
const tti_blueprint *tti_predictor_blueprint(const tti_predictor *p);
const tutti_graph *tti_predictor_graph(const tti_predictor *p); /* the evaluation graph */
const char *tti_predictor_checkpoint(const tti_predictor *p);   /* folder of the checkpoint */
int64_t tti_predictor_step(const tti_predictor *p);
float *tti_predictor_params(const tti_predictor *p); /* [plan->n_flat] */

/* The maximum number of shards per call of tti_predictor_run. */
int tti_predictor_n_compute_threads(const tti_predictor *p);

/* The results of a shard; logits are borrowed until the next run. */
typedef struct tti_predicted {
    const float *logits;             /* [targets of a shard, classes] */
    const tti_instance *instance;    /* has the other outputs */
    double loss_sum, count, correct; /* as in training */
} tti_predicted;

/* Runs n_shards shards, 1 .. n_compute_threads. out [n_shards].  Unknown targets are -1. */
tutti_status tti_predictor_run(tti_predictor *p, const tti_shard_data *shards, int n_shards,
                               tti_predicted *out);

/* Receives the results of a shard whose first sample has the given index in the split. */
typedef void (*tti_predicted_fn)(void *user, const tti_shard_data *shard, const tti_predicted *out,
                                 int64_t index);

/* Runs the test split in the batches and shards of training, in order, and calls take with each
 * shard.  After until_ns (tti_now_ns) it starts no further batch, except the first. */
tutti_status tti_predictor_run_test(tti_predictor *p, int64_t until_ns, tti_predicted_fn take,
                                    void *user);

/* True if the test split is not from the data of the run. */
bool tti_predictor_has_other_data(const tti_predictor *predictor);

#endif /* TTI_TRAIN_PREDICTOR_H */

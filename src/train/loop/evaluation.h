/* evaluation.h - one evaluation of the test split by all workers together. */
#ifndef TTI_TRAIN_EVALUATION_H
#define TTI_TRAIN_EVALUATION_H

#include "exec/exec.h"
#include "train/loop/phases.h"
#include "train/report/reporter.h"
#include "train/setup/blueprint.h"

typedef struct tti_evaluation {
    /* Objects of the worker loop; borrowed. */
    const tti_blueprint *b;
    tti_exec *exec;
    struct tti_server *server; /* NULL: none */
    tutti_comm *comm;
    tti_phases *phases;
    tti_shard_data *shards; /* [this worker's shards], overwritten */
    uint64_t step;
    tti_eval_sums sums;  /* the result, equal on every worker; the caller destroys its metrics */
    int32_t *words;      /* internal: [shards of all workers], inputs of the metrics */
    int64_t only_target; /* internal: as in tti_loader_desc */
} tti_evaluation;

/* Evaluates the test split.  Collective.  Returns TUTTI_E_DATA and other errors of the loader and
 * the executor. */
TUTTI_NODISCARD tutti_status tti_evaluation_run(tti_evaluation *evaluation);

#endif /* TTI_TRAIN_EVALUATION_H */

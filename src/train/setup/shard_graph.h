/* shard_graph.h - the graph of one shard: samples, the model, its loss and metrics. */
#ifndef TTI_TRAIN_SHARD_GRAPH_H
#define TTI_TRAIN_SHARD_GRAPH_H

#include "train/model/model_choice.h"

typedef struct tti_shard_graph_desc {
    const tutti_job *job;
    const tti_job_config *config; /* resolved */
    const tti_import *import;     /* of model.file; NULL: the job has none */
    const tutti_model_params *params;
    const tutti_dataset_info *info;
    int64_t rows; /* of the shard */
    int n_shards;
    bool gives_logits; /* an output "logits" too, in a graph for evaluation */
} tti_shard_graph_desc;

/* Builds it in g, which is empty, before any pass. */
tutti_status tti_shard_graph_build(const tti_shard_graph_desc *desc, tutti_graph *g);

#endif /* TTI_TRAIN_SHARD_GRAPH_H */

/* shard_graph.h - the graph of one shard: samples, the model, its loss and metrics. */
#ifndef TTI_TRAIN_SHARD_GRAPH_H
#define TTI_TRAIN_SHARD_GRAPH_H

#include "ir/graph.h"
#include "train/model/model_choice.h"

typedef struct tti_shard_graph_desc {
    const tutti_job *job;
    const tti_job_config *config; /* resolved */
    const tti_import *import;     /* of model.file; NULL: the job has none */
    const tutti_model_params *params;
    const tutti_dataset_info *info;
    tutti_dataset *data[2]; /* their labels must be classes of the output; NULL: none */
    int64_t rows;           /* of the shard */
    int n_shards;
    bool gives_logits;  /* an output "logits" too, in a graph for evaluation */
    bool names_outputs; /* and "output.NAME" for each output of a model with several; with
                           has_host_loss also in a graph for training, instead of "logits" */
    /* The caller computes the loss of the outputs.  The graph for training then has the inputs
     * "seed.OUTPUT" with d loss_sum / d output and "seed.count" f32 [rows], fields that follow the
     * samples, and its loss is the sum of outputs * seeds: that has the same gradients. */
    bool has_host_loss;
} tti_shard_graph_desc;

/* How the names of these outputs begin, and of those that depend on no sample. */
#define TTI_OUTPUT_PREFIX "output."
#define TTI_SHARED_PREFIX "shared."

/* Builds it in g, which is empty, before any pass. */
tutti_status tti_shard_graph_build(const tti_shard_graph_desc *desc, tutti_graph *g);

bool tti_shard_graph_is_named(const tti_output *output);
/* Output i of those that have names; NULL: there are fewer. */
const tti_output *tti_shard_graph_named(const tutti_graph *g, int i);

/* The fields that a value depends on: *needs [n_fields + 1], owned by the caller.  The last one is
 * the input "target": of samples without fields, their targets. */
tutti_status tti_shard_graph_needs(const tutti_graph *g, const tutti_value *value,
                                   const tutti_field *fields, int n_fields, bool **needs);

/* The field with labels of 0 and 1: f32, and the target of bce or of a table; -1: none. */
int tti_shard_graph_label_field(const tti_job_config *config, const tutti_dataset_info *info);

/* Whether output i is a value of the model with `rows` rows, or several for each. */
bool tti_shard_graph_is_output(const tutti_graph *g, int i, int64_t rows);
/* Whether a sample is compared with those of all shards (tutti_gather_rows). */
bool tti_shard_graph_compares(const tutti_graph *g);

#endif /* TTI_TRAIN_SHARD_GRAPH_H */

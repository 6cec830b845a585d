/* shard_graph.h - the graph of one shard: samples, the model, its loss and metrics. */
#ifndef TTI_TRAIN_SHARD_GRAPH_H
#define TTI_TRAIN_SHARD_GRAPH_H

#include "ir/graph.h"
#include "train/model/model_choice.h"

typedef struct tti_shard_graph_desc {
    const tutti_job *job;
    const tti_job_config *config; /* resolved */
    const tti_import *import;     /* the model of model.file; NULL: the job has none */
    const tutti_model_params *params;
    const tutti_dataset_info *info;
    tutti_dataset *data[2]; /* data sets whose labels must be classes of the output; NULL: none */
    int64_t rows;           /* rows of the shard */
    int n_shards;
    bool gives_logits;  /* adds an output "logits" to a graph for evaluation */
    bool names_outputs; /* adds "output.NAME" for each output of a model with several outputs; with
                           has_host_loss also to a graph for training, instead of "logits" */
    /* The caller computes the loss of the outputs.  The graph for training then has the inputs
     * "seed.OUTPUT" with d loss_sum / d output and "seed.count" f32 [rows], fields that follow the
     * samples, and its loss is the sum of outputs * seeds, which has the same gradients. */
    bool has_host_loss;
} tti_shard_graph_desc;

/* Prefixes of the names of these outputs, and of outputs that depend on no sample. */
#define TTI_OUTPUT_PREFIX "output."
#define TTI_SHARED_PREFIX "shared."

/* Builds the graph in g, which must be empty, before any pass. */
tutti_status tti_shard_graph_build(const tti_shard_graph_desc *desc, tutti_graph *g);

bool tti_shard_graph_is_named(const tti_output *output);
/* The i-th named output; NULL: there are fewer. */
const tti_output *tti_shard_graph_named(const tutti_graph *g, int i);

/* Finds the fields on which a value depends. *needs [n_fields + 1] is owned by the caller.  The
 * last entry is the input "target", which has the targets of samples without fields. */
tutti_status tti_shard_graph_needs(const tutti_graph *g, const tutti_value *value,
                                   const tutti_field *fields, int n_fields, bool **needs);

/* The index of the f32 field with labels 0 and 1 that is the target of bce or of a table; -1:
 * none. */
int tti_shard_graph_label_field(const tti_job_config *config, const tutti_dataset_info *info);

/* True if output i is a value of the model with one or more rows per sample of the shard. */
bool tti_shard_graph_is_output(const tutti_graph *g, int i, int64_t rows);
/* True if the graph compares samples of all shards (tutti_gather_rows). */
bool tti_shard_graph_compares(const tutti_graph *g);

#endif /* TTI_TRAIN_SHARD_GRAPH_H */

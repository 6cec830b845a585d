/* model_choice.h - converts the keys model.* of a job to a model that builds graphs. */
#ifndef TTI_TRAIN_MODEL_CHOICE_H
#define TTI_TRAIN_MODEL_CHOICE_H

#include "import/import.h"
#include "train/job/job.h"
#include "train/model/model_file.h"
#include "tutti/data.h"
#include "tutti/models.h"

/* The parameters of the model from a job and its training data.  Borrows texts of config. */
tutti_model_params tti_model_params_of(const tti_job_config *config,
                                       const tutti_dataset_info *info);

/* Identifies the model for a checkpoint: "built-in NAME", "plugin CHECKSUM" or "file CHECKSUM" of
 * the file, or "caller", whose program builds it. */
void tti_model_identity(const tutti_job *job, char *out, size_t n_bytes);

/* Whether the job has the model of a checkpoint, whose identity is saved (NULL: unknown):
 * TUTTI_E_CONFIG if it was the caller's and there is none, or if the file of the run's plugin has
 * changed or is gone.  A plugin that the user has named again is accepted. */
tutti_status tti_model_check_identity(const tutti_job *job, const char *saved);

/* Builds the model of import (model.file; NULL: the job has none), the caller's model, model.plugin
 * or model.name, in this order, for x.  *logits may be NULL when the builder failed;
 * tutti_graph_check has its reason.  Returns TUTTI_E_CONFIG for an unknown name, for an x that the
 * named model cannot read, and as tti_plugin_build. */
tutti_status tti_model_build(const tutti_job *job, const tti_import *import,
                             const tutti_model_params *params, tutti_graph *g, tutti_value *x,
                             tti_model_outputs *out);

/* The table of a model for tokens has a row for each token of the data, which are below n_tokens
 * (0: below the number of classes); else TUTTI_E_CONFIG, or TUTTI_E_DATA where no key helps. */
tutti_status tti_model_check_vocabulary(const tutti_job *job, const tutti_model_params *params,
                                        bool is_value, int64_t n_tokens);

#endif /* TTI_TRAIN_MODEL_CHOICE_H */

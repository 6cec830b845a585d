/* model_choice.h - converts the keys model.* of a job to a model that builds graphs. */
#ifndef TTI_TRAIN_MODEL_CHOICE_H
#define TTI_TRAIN_MODEL_CHOICE_H

#include "import/import.h"
#include "train/job/job.h"
#include "train/model/model_file.h"
#include "tutti/data.h"
#include "tutti/models.h"

/* Returns the parameters of the model for a job and its training data.  Borrows texts of config. */
tutti_model_params tti_model_params_of(const tti_job_config *config,
                                       const tutti_dataset_info *info);

/* Writes an identity of the model for checkpoints: "built-in NAME", "plugin CHECKSUM" or "file
 * CHECKSUM" with the checksum of the file, or "caller" if the caller's program builds the model. */
void tti_model_identity(const tutti_job *job, char *out, size_t n_bytes);

/* Checks that the job has the model of a checkpoint. saved: the identity in the checkpoint; NULL:
 * unknown.  TUTTI_E_CONFIG: the caller had built the model and there is no caller's model now, or
 * the plugin file of the run has changed or is missing.  A plugin that the user names explicitly is
 * accepted. */
tutti_status tti_model_check_identity(const tutti_job *job, const char *saved);

/* Builds the model of import (model.file; NULL: the job has none), the caller's model, model.plugin
 * or model.name, in this order, for x. out->logits may be NULL if the builder failed;
 * tutti_graph_check returns the reason.  TUTTI_E_CONFIG: the name is unknown, the model does not
 * accept x, or tti_plugin_build failed. */
tutti_status tti_model_build(const tutti_job *job, const tti_import *import,
                             const tutti_model_params *params, tutti_graph *g, tutti_value *x,
                             tti_model_outputs *out);

/* Checks that the token table of the model has a row for each token of the data.  Tokens are below
 * n_tokens (0: below the number of classes).  TUTTI_E_CONFIG: it has too few rows; TUTTI_E_DATA:
 * the same, and no key of the job can change it. */
tutti_status tti_model_check_vocabulary(const tutti_job *job, const tutti_model_params *params,
                                        bool is_value, int64_t n_tokens);

#endif /* TTI_TRAIN_MODEL_CHOICE_H */

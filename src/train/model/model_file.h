/* model_file.h - opens a model that another framework exported (model.file), and keeps a copy in
 * the run folder, so the run does not need the file any more. */
#ifndef TTI_TRAIN_MODEL_FILE_H
#define TTI_TRAIN_MODEL_FILE_H

#include "import/import.h"
#include "train/job/job.h"
#include "train/model/model_copy.h"

/* The copy in a run folder: of a .pt2 file, and the folder of tti_import_save for all others. */
#define TTI_MODEL_FILE_KEPT "model.pt2"
#define TTI_MODEL_FOLDER_KEPT "model"

/* Finds the file of the job: model.file, or the copy in the run folder if the job is that of a run
 * and names no other file.  *out is "" where the job has no model.file.  TUTTI_E_CONFIG if the path
 * is too long. */
tutti_status tti_model_file_path(const tutti_job *job, char out[TTI_TEXT_MAX]);

/* Opens the file; *out is owned by the caller, NULL if the job has none. */
tutti_status tti_model_file_open(const tutti_job *job, tti_import **out);

/* Copies the model into a new run folder.  note [n_note]: what the user should know of the model
 * before it trains; "": nothing.  *copy: the copy of a .pt2 file on its way, owned by the caller;
 * NULL: there is nothing to wait for. */
tutti_status tti_model_file_keep(const tutti_job *job, const char *run_dir, char *note,
                                 size_t n_note, tti_model_copy **copy);

/* Settles data.fields=auto: all arrays where a model with several inputs (import, or NULL) trains
 * on NumPy arrays. */
void tti_model_file_fields(const tti_import *import, tti_job_config *config);

/* An output under the name that the model's file gives it. */
typedef struct tti_model_output {
    const char *name;
    tutti_value *value;
} tti_model_output;

/* The outputs of a model; NULL: none of this kind. */
typedef struct tti_model_outputs {
    tutti_value *logits;       /* the first output that is not a loss */
    tutti_value *second;       /* the next one */
    tutti_value *scale, *bias; /* of a contrastive loss: the next two outputs with one element */
    tutti_value *loss;         /* a scalar of the shard, or [N,...] with a term for each sample */
    const tti_model_output *named; /* [n_named], of the graph's arena: those that are neither loss
                                      nor metric */
    int n_named;
    const char *labels; /* the field with the labels of a loss of the model's own; NULL: unknown */
    int64_t n_classes, ignored; /* of these labels */
} tti_model_outputs;

/* Adds the model to g, for the samples that g has as inputs (tutti_find_field). */
tutti_status tti_model_file_build(const tti_import *import, const tti_job_config *config,
                                  tutti_graph *g, tti_model_outputs *out);

/* For a model that computes its own loss: TUTTI_E_CONFIG if the user has set train.loss too. */
tutti_status tti_model_file_check_loss(const tutti_job *job);

#endif /* TTI_TRAIN_MODEL_FILE_H */

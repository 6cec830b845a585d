/* model_file.h - opens a model that another framework exported (model.file), and keeps a copy in
 * the run folder, so the run does not need the file any more. */
#ifndef TTI_TRAIN_MODEL_FILE_H
#define TTI_TRAIN_MODEL_FILE_H

#include "import/import.h"
#include "train/job/job.h"
#include "train/model/model_copy.h"

/* Names of the copy in a run folder: a .pt2 file, or for all other files the folder of
 * tti_import_save. */
#define TTI_MODEL_FILE_KEPT "model.pt2"
#define TTI_MODEL_FOLDER_KEPT "model"

/* Finds the file of the job: model.file, or the copy in the run folder if the job comes from a run
 * and does not name another file. out is "" if the job has no model.file.  TUTTI_E_CONFIG: the path
 * is too long. */
tutti_status tti_model_file_path(const tutti_job *job, char out[TTI_TEXT_MAX]);

/* Opens the file; *out is owned by the caller, NULL if the job has none. */
tutti_status tti_model_file_open(const tutti_job *job, tti_import **out);

/* Copies the model into a new run folder. note [n_note]: a message about the model for the user;
 * "": none. *copy: the copy of a .pt2 file in progress, owned by the caller; NULL: no copy is in
 * progress. */
tutti_status tti_model_file_keep(const tutti_job *job, const char *run_dir, char *note,
                                 size_t n_note, tti_model_copy **copy);

/* Resolves data.fields=auto: all arrays if a model with several inputs (import, or NULL) trains on
 * NumPy arrays. */
void tti_model_file_fields(const tti_import *import, tti_job_config *config);

/* An output with its name in the model's file. */
typedef struct tti_model_output {
    const char *name;
    tutti_value *value;
} tti_model_output;

/* The outputs of a model; NULL: none of this kind. */
typedef struct tti_model_outputs {
    tutti_value *logits;       /* the first output that is not a loss */
    tutti_value *second;       /* the next one */
    tutti_value *scale, *bias; /* for a contrastive loss: the next two outputs with one element */
    tutti_value *loss;         /* a scalar of the shard, or [N,...] with a term for each sample */
    const tti_model_output
        *named; /* [n_named], in the graph's arena: outputs that are neither loss nor metric */
    int n_named;
    const char *labels; /* the field with the labels of the model's own loss; NULL: unknown */
    int64_t n_classes, ignored; /* number of classes and ignored label of these labels */
} tti_model_outputs;

/* Adds the model to g, for the samples that g has as inputs (tutti_find_field). */
tutti_status tti_model_file_build(const tti_import *import, const tti_job_config *config,
                                  tutti_graph *g, tti_model_outputs *out);

/* For a model that computes its own loss: returns TUTTI_E_CONFIG if the user has also set
 * train.loss. */
tutti_status tti_model_file_check_loss(const tutti_job *job);

#endif /* TTI_TRAIN_MODEL_FILE_H */
